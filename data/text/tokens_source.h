// data/text/tokens_source.h: what sources that read shards of tokens begin with, and what they do alike.
#ifndef DATA_TEXT_TOKENS_SOURCE_H
#define DATA_TEXT_TOKENS_SOURCE_H

#include "data/source.h"
#include "data/text/dataset.h"

#include <string.h>

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

// What a source says of itself whose samples are a text that is read, of Te tokens, and one that is said, of Td. Each
// takes so many tokens of the files.
static inline void tokens_two_texts(source *s, const dataset_info *d, int64_t takes, int64_t Te, int64_t Td) {
    static const char *const name[] = {"tokens", "length", "targets"};
    const int64_t size[] = {Te + Td, 1, Td};
    s->about = (source_info){.samples = d->tokens / takes,
                             .units = d->tokens,
                             .units_per_sample = Te + Td,
                             .unit = "tokens",
                             .files = d->files};
    memcpy(s->about.hash, d->hash, sizeof s->about.hash);
    s->tensors = 3;
    for (int k = 0; k < 3; k++) {
        s->tensor[k] = (tensor_spec){.type = INT32, .dims = k != 1, .size = {size[k], 1, 1}};
        strcpy(s->tensor[k].name, name[k]);
    }
}

#endif
