// data/text/labels.h: texts with labels become rows of tokens, in a spool: what a model that sorts texts into classes
// reads. A row is a sample:
//
//   tokens     [CLS] a b c [SEP] d e [SEP] 0 0      as many as the model reads; those of the second text are marked
//   length     8                                    tokens before the padding
//   label      1                                    the number of its class; of numbers, the bits of an FP32
#ifndef DATA_TEXT_LABELS_H
#define DATA_TEXT_LABELS_H

#include "data/text/spool.h"

enum { LABEL_ROW = 2 };  // numbers after a row's tokens

typedef struct labels_options {
    const tokenizer *words;
    int64_t context;    // tokens of a row: where texts are longer, the longer one of a pair loses its end first
    bool numbers;       // labels are numbers: nothing has a name
    const char *names;  // the file that gets the labels' names: a JSON list, in the order of their numbers
    void (*progress)(void *ctx, int64_t done);  // as in spool_options
    void *ctx;
} labels_options;

typedef struct labels_spooled {
    int64_t cut;      // samples that lost some of their text
    int64_t classes;  // different labels
} labels_spooled;

// Writes a row for each sample of `count` files, in their order: JSONL lines with "text", "label" and, of a pair,
// "text_b", or TSV (.tsv, or compressed) with a header that names columns `text`, `text_b` and `label`, or as GLUE does
// `sentence` or `sentence1`, `sentence2`. Whole numbers from 0 on are their own class; other labels are names, numbered
// in the order of their bytes. Where labels are numbers, each is a decimal number (3.8, -1e-3), in a string or not, and
// is rounded to FP32; one that is none, or beyond FP32, is an error. ERR_DATA names file and line.
err_t labels_spool_fill(spool *s, const char *path, const char *const *files, int64_t count, const labels_options *o,
                        labels_spooled *done);

#endif
