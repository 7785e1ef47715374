// trainer/command.h: the command line: which verbs there are, which options each has, and what its help says. One
// table, VERBS and its pages, is the only source: an option that is not in it is refused before the verb is called.
#ifndef TRAINER_COMMAND_H
#define TRAINER_COMMAND_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

// clang-format off
#define VERBS(X) \
    X(train) X(check) X(plan) X(config) X(pack) X(tokenize) X(data) X(eval) X(sample) X(status) X(tail) X(flight) X(fork) X(hash) X(export) X(inspect) X(bench) X(tune) \
    X(report) X(compare) X(failures)
// clang-format on

enum {
#define VERB_INDEX(name) VERB_##name,
    VERBS(VERB_INDEX)
#undef VERB_INDEX
        VERB_COUNT
};

typedef struct verb_option {
    // "--ckpt", "DIR"; value NULL: it takes none; "[BLOCK]": it may be left out, before an option or a file
    const char *name, *value;
    const char *does;  // one line
} verb_option;

enum { VERB_OPTIONS = 8 };

typedef struct verb_page {
    const char *name;
    const char *usage;  // what follows the verb; options may stand anywhere in it unless it says where
    const char *does;   // 2 to 6 lines
    const char *example;
    int files;                         // 0: it takes no INI files; else it needs so many, -1: none need be given
    verb_option option[VERB_OPTIONS];  // those of verbs with INI files also have -o
} verb_page;

extern const verb_page verb_pages[VERB_COUNT];
extern const char command_overview[];  // `lockstep --help`

// The verb of that name, -1: there is none.
int command_verb(const char *name);

// The verb that was probably meant, NULL: none is near.
const char *command_nearest(const char *name);

// Is --help or -h among the arguments, other than as an option's value?
bool command_asks_help(const verb_page *p, int argc, char **argv);

void command_print_help(const verb_page *p, FILE *out);

// The arguments after a verb, taken apart. The memory is `words`; command_free frees it.
typedef struct command {
    const verb_page *page;
    const char **words;  // those that are no options, in order
    int count;
    const char **overrides;  // what stands after each -o
    int override_count;
    // of each option of the page; of one that takes none its name; "": it was left out; NULL: not given
    const char *value[VERB_OPTIONS];
} command;

// ERR_USAGE: an option that the verb does not have, or one without its value.
err_t command_parse(command *out, const verb_page *p, int argc, char **argv);
void command_free(command *c);

// What was given for the option, NULL: it was not.
const char *command_value(const command *c, const char *option);

#endif
