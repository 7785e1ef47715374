// data/text/chat_spool.h: files of conversations become rows of tokens with marks, in a spool: each a row, or as many
// in one as fit (best fit, Johnson 1974: each goes to the fullest of the rows that have room for it). Rows that wait
// for more are few, so that memory does not depend on the files. Rows depend on the conversations and their order
// alone.
#ifndef DATA_TEXT_CHAT_SPOOL_H
#define DATA_TEXT_CHAT_SPOOL_H

#include "data/text/chat.h"
#include "data/text/spool.h"

typedef struct chat_spool_options {
    chat *chat;
    int64_t vocab;       // ids are below it
    int64_t row_tokens;  // of a sample: longer ones are cut at the end, shorter ones are followed by 0
    bool documents;      // as many samples in a row as fit
    void (*progress)(void *ctx, int64_t done);  // as in spool_options
    void *ctx;
} chat_spool_options;

typedef struct chat_spooled {
    int64_t cut;       // samples that lost their end
    int64_t left_out;  // samples of which no answer was left
    int64_t answers;   // tokens that are marked
    int64_t filled;    // tokens of all samples
} chat_spooled;

// Writes the lines of `count` JSONL files: s->tokens counts those of rows that are written, s->documents samples.
// Tokens have 2 or 4 bytes with marks in the highest bits, as in shards. ERR_DATA names file and line.
err_t chat_spool_fill(spool *s, const char *path, const char *const *files, int64_t count, const chat_spool_options *o,
                      chat_spooled *done);

#endif
