// trainer/config/sets.h: [eval] sets, more data that a run is evaluated on, each under a name of its own:
//
//   sets = code: datasets/code-val-*.bin, law: datasets/law-val-*.bin datasets/acts-val-*.bin
//
// A name, a colon and files or globs, with spaces between them; commas are between sets. The name is part of what logs,
// metrics and pages call its figures: "code.loss".
#ifndef TRAINER_CONFIG_SETS_H
#define TRAINER_CONFIG_SETS_H

#include "base/err.h"
#include "base/key.h"

enum { SETS_MOST = 8, SET_NAME = 24 };

typedef struct eval_set {
    char name[SET_NAME], files[KEY_TEXT_MAX];
} eval_set;

typedef struct eval_sets {
    int count;
    eval_set at[SETS_MOST];
} eval_sets;

// ERR_CONFIG: what is wrong, without the key's name.
err_t sets_parse(eval_sets *s, const char *text);

// Which one has that name; -1: none.
int sets_find(const eval_sets *s, const char *name);

// "code, law or acts", for those who asked for another. Returns dst.
enum { SETS_NAMES = SETS_MOST * (SET_NAME + 4) };
const char *sets_names(const eval_sets *s, char dst[SETS_NAMES]);

#endif
