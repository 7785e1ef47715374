// base/key.h: a setting: one key of an INI section, and everything about it. Rooms that own settings declare them in
// tables of these; trainer/config/ parses, checks and prints them all.
#ifndef BASE_KEY_H
#define BASE_KEY_H

#include <stddef.h>

enum { KEY_WORD_MAX = 64, KEY_TEXT_MAX = 1024 };

typedef enum {
    KEY_INT,   // int64_t in [min, max]
    KEY_REAL,  // double in [min, max]; where `words` is one word, that word stands for 0
    KEY_BOOL,  // bool: yes or no
    KEY_TEXT,  // char[KEY_TEXT_MAX]; min = 1: must not be empty
    KEY_NAME,  // char[KEY_WORD_MAX] that can be the name of a directory
    KEY_WORD,  // int: the index of the value in `words`
} key_type;

// Where a key must agree: `bits` keys must match on resume, `layout` keys may change between runs but must match across
// ranks, `local` keys may differ on each node.
typedef enum { CLASS_BITS, CLASS_LAYOUT, CLASS_LOCAL } key_class;

// What a checkpoint's weights are under another value of a key of class bits, and so whether a fork may have one
// (trainer/fork.h).
typedef enum {
    FORK_UNSAID,   // the row does not say: trainer/fork_keys.c does
    FORK_MAY,      // weights
    FORK_SHAPE,    // of another shape
    FORK_MEANING,  // of the same shape, and something else
} key_fork;

typedef struct setting {
    const char *section, *key;
    key_type type;
    key_class class;
    size_t offset;         // of the value, in the struct of its table
    const char *fallback;  // the default, as written in a file
    double min, max;       // every int that we allow is exact in a double
    const char *words;     // "auto never must"
    const char *also;      // its names in other trainers: the key is suggested for these too
    const char *comment;
    key_fork fork;
} setting;

#endif
