// data/text/to_text.h: texts, and what is to be said of each, become rows of tokens with marks, in a spool: for a model
// that says another text than it reads. A row is a sample:
//
//   tokens     a b c end  d e end  0 0      what is read, and what is said, each with the token that ends it
//                         ^^^^^^^           marked
//
// Of a pair of texts what is read is `a end b end`, as transformers' tokenizer of T5 writes pairs.
#ifndef DATA_TEXT_TO_TEXT_H
#define DATA_TEXT_TO_TEXT_H

#include "data/text/spool.h"

typedef struct to_text_options {
    const tokenizer *words;                     // NULL: a token is a byte
    int64_t reads, says;                        // tokens of either text at most, its end included; 2 or more
    int32_t end;                                // the token that ends both
    void (*progress)(void *ctx, int64_t done);  // as in spool_options
    void *ctx;
} to_text_options;

typedef struct to_text_spooled {
    int64_t cut;      // samples of which a text lost its end
    int64_t answers;  // tokens that are marked
} to_text_spooled;

// Writes a row for each sample of `count` files, in their order: JSONL lines or tables with "prompt" and "response", or
// with a text, or two, and a label, whose name is then what is said (data/text/fields.h). What is too long loses its
// end: of a pair the longer text first, as data/text/labels.h has it. ERR_DATA names file and line. ERR_CONFIG: the
// tokenizer ends a text with another token.
err_t to_text_spool_fill(spool *s, const char *path, const char *const *files, int64_t count, const to_text_options *o,
                         to_text_spooled *done);

#endif
