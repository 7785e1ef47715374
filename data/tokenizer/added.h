// data/tokenizer/added.h: added tokens: strings that are found in a text before it is split.
#ifndef DATA_TOKENIZER_ADDED_H
#define DATA_TOKENIZER_ADDED_H

#include "data/tokenizer/room.h"

#include <stdbool.h>

typedef struct added_token {
    uint8_t *text;
    int32_t bytes, id;
    bool special;       // recognised only where special tokens are
    bool left, right;   // takes the white space before or after it along
    bool single_word;   // not beside a character of words
    bool after_normal;  // looked for in the normalized text
} added_token;

typedef struct added_node {
    int32_t token, child, sibling;  // -1: none
    uint8_t byte;
} added_node;

// A set of them as a tree of bytes.
typedef struct added_set {
    struct {
        added_node *at;
        int64_t n, room;
    } nodes;
    const added_token *token;
    int32_t count, plain;  // in the tree, and those of them that are not special
    bool starts[256];      // bytes that one begins with
} added_set;

typedef struct added_match {
    int64_t begin, end;  // with the white space taken along
    int32_t token;       // -1: none
} added_match;

// Takes token k into the set; `text` may be other than the token's own. Of equal texts the first counts.
err_t added_put(added_set *s, const added_token *token, int32_t k, const uint8_t *text, int64_t n);
void added_free(added_set *s);

// The next one in text[0..n). `scan` is where to look on from, `from` where the last match ended; both begin as 0. At
// each place the longest. special: special ones count too; what they hide, they hide in either case.
added_match added_next(const added_set *s, const uint8_t *table, const uint8_t *text, int64_t n, bool special,
                       int64_t *scan, int64_t from);

// The longest one that stands at text[0], of n bytes: its index, or -1; and its bytes.
int32_t added_at(const added_set *s, const uint8_t *text, int64_t n, int64_t *length);

#endif
