// trainer/config/table.h: shared by the files of trainer/config: the one table of keys.
#ifndef TRAINER_CONFIG_TABLE_H
#define TRAINER_CONFIG_TABLE_H

#include "trainer/config/config.h"
#include "trainer/config/ini.h"

#include <stddef.h>

// The table's rows: the keys of keys.c and, after [model] type, those of each architecture (model_type.key). A row
// applies to a configuration unless it is of another architecture than the chosen one.
int config_keys(void);
const setting *config_key(int row);
bool config_applies(const config *c, int row);

// The next row that applies, -1: none. Start with row = -1. Without a configuration: with the default architecture.
int config_next(const config *c, int row);

// Where the value of the row is in *c.
void *config_at(config *c, int row);

// The same of a value that counts in the run: of a key that may be left open, where it is resolved.
void *config_in_force(config *c, int row);

// The row of a key that applies, -1: there is none.
int config_find(const config *c, const char *section, const char *key);

// The comment of a section, NULL when there is no such section.
const char *config_section(const char *name);

// The i-th word of "a b c" into dst; false when there are fewer.
bool config_word(const char *words, int i, char dst[CONFIG_WORD]);

// The row of keys.c whose value is at this offset of config. There is one.
int config_row(size_t offset);

// dst = the value of row i in canonical form, on one line: whole numbers in decimal, reals as the shortest text that
// reads back as the same double, yes or no, the word, text with its escapes but without quotes.
enum { CONFIG_VALUE = 2 * CONFIG_TEXT };
void config_value(const config *c, int i, char dst[CONFIG_VALUE]);

// dst = "file:line", "command line", or "default" with no file. Returns dst.
const char *config_origin(const config *c, key_origin o, char dst[INI_PLACE]);
const char *config_place(const config *c, int i, char dst[INI_PLACE]);

// Resolves open keys and checks the rules between keys. ERR_CONFIG at the line of the latest key in the broken rule.
err_t config_resolve(config *c);

// trainer/config/nearest.c: err_set for an unknown section or key, with the nearest one that exists.
err_t config_no_section(const char *place, const ini_entry *e);
err_t config_no_key(const config *c, const char *place, const ini_entry *e);

// The same for a value that is none of the key's words.
err_t config_no_value(const setting *k, const char *text);

// The family of that name, and the architecture that it is; NULL: there is none.
const model_alias *config_family(const char *name, int *type);

#endif
