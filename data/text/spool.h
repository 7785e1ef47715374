// data/text/spool.h: documents become tokens, with as many threads as there are, in a temporary file: only when all are
// encoded is it known how many there are, and so where training data ends.
#ifndef DATA_TEXT_SPOOL_H
#define DATA_TEXT_SPOOL_H

#include "data/tokenizer/tokenizer.h"

#include <stdio.h>

typedef struct spool_options {
    const tokenizer *t;
    const char *key;  // of JSONL lines
    int threads;
    // Called now and then with the bytes of input that were read, of all; NULL: not wanted.
    void (*progress)(void *ctx, int64_t done);
    void *ctx;
} spool_options;

typedef struct spool {
    FILE *file;  // the tokens, token_bytes each, little-endian
    char *path;
    int token_bytes;                   // 2 or 4: what the largest id needs
    int64_t tokens, documents, bytes;  // bytes of text, uncompressed
} spool;

// Encodes `count` files, in their order; after each document comes the tokenizer's end of text, if it has one. What the
// tokens are does not depend on the number of threads. Memory does not depend on the files, unless one has no place to
// cut for long.
err_t spool_fill(spool *s, const char *path, const char *const *files, int64_t count, const spool_options *o);

// The next n tokens, from the first one.
err_t spool_rewind(spool *s);
err_t spool_read(spool *s, void *tokens, int64_t n);

// Removes the file.
void spool_close(spool *s);

#endif
