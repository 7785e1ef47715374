// trainer/config/table.h: shared by the files of trainer/config: the row type of the one table of keys,
// trainer/config/keys.c.
#ifndef TRAINER_CONFIG_TABLE_H
#define TRAINER_CONFIG_TABLE_H

#include "trainer/config/config.h"
#include "trainer/config/ini.h"

#include <stddef.h>

typedef enum {
    KEY_INT,   // int64_t in [min, max]
    KEY_REAL,  // double in [min, max]; where `words` is one word, that word stands for 0
    KEY_BOOL,  // bool: yes or no
    KEY_TEXT,  // char[CONFIG_TEXT]; min = 1: must not be empty
    KEY_NAME,  // char[CONFIG_WORD] that can be the name of a directory
    KEY_WORD,  // int: the index of the value in `words`
} key_type;

typedef struct config_key {
    const char *section, *key;
    key_type type;
    key_class class;
    size_t offset;         // into config
    const char *fallback;  // the default, as written in a file
    double min, max;       // every int that we allow is exact in a double
    const char *words;     // "auto never must"
    const char *also;      // its names in other trainers: the key is suggested for these too
    const char *comment;
} config_key;

extern const config_key config_keys[];
extern const int config_key_count;

// The comment of a section, NULL when there is no such section.
const char *config_section(const char *name);

// The i-th word of "a b c" into dst; false when there are fewer.
bool config_word(const char *words, int i, char dst[CONFIG_WORD]);

// The row whose value is at this offset of config. There is one.
int config_row(size_t offset);

// dst = the value of row i in canonical form, on one line: whole numbers in decimal, reals as the shortest text that reads
// back as the same double, yes or no, the word, text with its escapes but without quotes.
enum { CONFIG_VALUE = 2 * CONFIG_TEXT };
void config_value(const config *c, int i, char dst[CONFIG_VALUE]);

// dst = "file:line", or "default" with no file. Returns dst.
const char *config_place(const config *c, int i, char dst[INI_PLACE]);

// Resolves open keys and checks the rules between keys. ERR_CONFIG at the line of the latest key in the broken rule.
err_t config_resolve(config *c);

// trainer/config/nearest.c: err_set for an unknown section or key, with the nearest one that exists.
err_t config_no_section(const char *place, const ini_entry *e);
err_t config_no_key(const char *place, const ini_entry *e);

// The word of "a b c" that is nearest to `found`, into dst.
void config_nearest_word(const char *found, const char *words, char dst[CONFIG_WORD]);

#endif
