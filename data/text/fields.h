// data/text/fields.h: files of samples that consist of a text, or of two, and of what is said of it: lines of JSON, or
// of a table with tabs between.
#ifndef DATA_TEXT_FIELDS_H
#define DATA_TEXT_FIELDS_H

#include "data/tokenizer/room.h"

#include <stdbool.h>
#include <stdint.h>

enum { FIELD_TEXT, FIELD_TEXT_B, FIELD_LABEL, FIELDS };

// Valid until the next line. at NULL: the sample has none.
typedef struct field {
    const char *at;
    int64_t n;
    char number[32];
} field;

// Which numbers of JSON a label may be, beside a string.
typedef enum { FIELD_STRING, FIELD_WHOLE, FIELD_NUMBER } field_numbers;

typedef struct fields_reader {
    bool answers;                               // "prompt" and "response" are a text and its label, too
    field_numbers numbers;                      // labels; a prompt and a response are strings
    err_t (*put)(void *ctx, const field *x);    // x [FIELDS]: a sample
    void (*progress)(void *ctx, int64_t done);  // of the input's bytes, now and then; NULL: not wanted
    void *ctx, *progress_ctx;
    // zero before the first file
    int64_t before;      // stored bytes of files that are done
    int column[FIELDS];  // of a table; -1: it has none
} fields_reader;

// Hands each sample of the file to r->put: of JSONL (.jsonl, .ndjson) "text", "label" and, of a pair, "text_b"; of a
// table (.tsv) the columns that its header calls so, or as GLUE does `sentence` or `sentence1`, `sentence2`. Either may
// be compressed. Blank lines are none. ERR_DATA names file and line, also of what r->put refuses.
err_t fields_read(fields_reader *r, const char *path);

// Leaves `room` tokens in both: the longer one loses its end until both are equal, then each in turn. false: both had
// room.
bool fields_cut(id_list *a, id_list *b, int64_t room);

#endif
