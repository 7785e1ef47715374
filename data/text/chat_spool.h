// data/text/chat_spool.h: files of conversations become rows of tokens with marks, in a spool.
#ifndef DATA_TEXT_CHAT_SPOOL_H
#define DATA_TEXT_CHAT_SPOOL_H

#include "data/text/chat.h"
#include "data/text/spool.h"

typedef struct chat_spool_options {
    chat *chat;
    int64_t vocab;       // ids are below it
    int64_t row_tokens;  // of a sample: longer ones are cut at the end, shorter ones are followed by 0
    void (*progress)(void *ctx, int64_t done);  // as in spool_options
    void *ctx;
} chat_spool_options;

typedef struct chat_spooled {
    int64_t cut;       // samples that lost their end
    int64_t left_out;  // samples of which no answer was left
    int64_t answers;   // tokens that are marked
} chat_spooled;

// Writes a row for each line of `count` JSONL files, in their order: s->tokens and s->documents count rows that are
// written. Tokens have 2 or 4 bytes with the mark in the highest bit, as in shards. ERR_DATA names file and line.
err_t chat_spool_fill(spool *s, const char *path, const char *const *files, int64_t count, const chat_spool_options *o,
                      chat_spooled *done);

#endif
