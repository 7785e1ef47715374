// data/text/tokens_source.h: what sources that read shards of tokens begin with, and what they do alike.
#ifndef DATA_TEXT_TOKENS_SOURCE_H
#define DATA_TEXT_TOKENS_SOURCE_H

#include "data/source.h"
#include "data/text/dataset.h"

typedef struct tokens_source {
    source head;
    dataset *tokens;
} tokens_source;

static inline err_t tokens_verify(source *s, void (*report)(void *ctx, const char *text), void *ctx) {
    return dataset_verify(((tokens_source *)s)->tokens, report, ctx);
}
static inline void tokens_cancel(source *s, bool cancelled) { dataset_cancel(((tokens_source *)s)->tokens, cancelled); }
static inline void tokens_counts(const source *s, int64_t *retries, int64_t *read) {
    dataset_counts(((const tokens_source *)s)->tokens, retries, read);
}

#endif
