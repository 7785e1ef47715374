// trainer/report/answers.h: what a page says of DIR/answers.json (trainer/answers.h has its form): pictures of the
// validation data with what the model says of each, a table of what it takes for what, and its surest mistakes. Any
// bytes at all may stand in the file.
#ifndef TRAINER_REPORT_ANSWERS_H
#define TRAINER_REPORT_ANSWERS_H

#include "base/text.h"

struct json_t;

typedef struct answers_file {
    struct json_t *all;  // NULL: there is no such file, or it is damaged
    char wrong[256];     // what is damaged; "": nothing
} answers_file;

// What can't be read is in a->wrong; answers_close(a) in any case.
void answers_read(answers_file *a, const char *dir);
void answers_close(answers_file *a);

// Styles of what answers_draw appends, for the page's head.
extern const char answers_style[];

// expected: the run has evaluated a model that answers, so that the file should be there.
void answers_draw(text *h, const answers_file *a, bool expected);

#endif
