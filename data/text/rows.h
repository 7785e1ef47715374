// data/text/rows.h: tokens in memory as a source, for likelihoods. A row is a stretch of text, of whose last tokens the
// likelihood is asked:
//
//   tokens     a  b  c  d  .  .       what the model reads; after the row's end: 0, which no asked token sees
//   targets   -1 -1  d  e -1 -1       what follows each, where it is asked (here of a b c d e the last two); else -1,
//             which has loss 0
//
// So the losses of a row add up to minus the logarithm of the probability of what is asked, given what is before it.
#ifndef DATA_TEXT_ROWS_H
#define DATA_TEXT_ROWS_H

#include "data/source.h"
#include "data/tokenizer/tokenizer.h"

typedef struct rows rows;

// What the makers of rows from a file are given (data/text/passage.h, data/text/questions.h).
typedef struct rows_from {
    const char *path;
    const tokenizer *words;
    int64_t context, vocab;  // of the model
    bool places;             // it reads places in documents, too: a row is one
} rows_from;

// The token to put before a text, so that its first token can be asked: the one that the tokenizer begins or else ends
// a text with; -1: none.
static inline int32_t rows_prefix(const tokenizer *words) {
    tokenizer_info about = tokenizer_about(words);
    return about.bos >= 0 ? about.bos : about.end_of_text;
}

// For a model that reads at most `context` tokens at once, all below `vocab`.
err_t rows_open(rows **out, const rows_from *o);

// Not needed after rows_done: source_close does it.
void rows_close(rows *r);

// A row of `count` tokens, of which the last `asked` are asked; the first one can't be. It keeps its last context + 1
// tokens at most: *cut says whether it lost some (NULL: not wanted). ERR_DATA: nothing is asked, more than the context
// holds, a token that the model does not know, or more rows than are kept in memory.
err_t rows_add(rows *r, const int32_t *ids, int64_t count, int64_t asked, bool *cut);

// There will be no more rows. The source has samples of `tokens`, perhaps `positions`, and `targets`, each (T) INT32: T
// is as long as the longest row needs, in whole tiles of ROWS_TILE, at most `context`. Row k is sample k. files: how
// many they were made of.
enum { ROWS_TILE = 64 };
source *rows_done(rows *r, int files);

#endif
