// data/text/text.c: shards of tokens as a source. Sample k is window k: T tokens from k*T on, and as targets the token
// that follows each. T is what the model reads.
#include "data/source.h"
#include "data/text/dataset.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct text_source {
    source head;
    dataset *tokens;
    int64_t T;
    bool ignores;
    int64_t ignored;
    int32_t *window;  // (T+1)
} text_source;

enum { TOKENS, TARGETS };

static void copy_targets(const text_source *x, int32_t *to) {
    for (int64_t t = 0; t < x->T; t++) to[t] = x->ignores && x->window[t + 1] == x->ignored ? -1 : x->window[t + 1];
}

static err_t text_read(source *s, const source_draw *d, void *const *out) {
    text_source *x = (text_source *)s;
    size_t bytes = (size_t)x->T * sizeof *x->window;
    TRY(dataset_read(x->tokens, d->sample * x->T, x->T + 1, x->window));
    if (out[TOKENS]) memcpy(out[TOKENS], x->window, bytes);
    if (out[TARGETS]) copy_targets(x, out[TARGETS]);
    return ERR_OK;
}

static err_t text_verify(source *s, void (*report)(void *ctx, const char *text), void *ctx) {
    return dataset_verify(((text_source *)s)->tokens, report, ctx);
}

static void text_cancel(source *s, bool cancelled) { dataset_cancel(((text_source *)s)->tokens, cancelled); }
static void text_counts(const source *s, int64_t *retries, int64_t *read) {
    dataset_counts(((const text_source *)s)->tokens, retries, read);
}

static void text_close(source *s) {
    text_source *x = (text_source *)s;
    dataset_close(x->tokens);
    free(x->window);
    free(x);
}

static const source_type type = {
    .read = text_read, .verify = text_verify, .cancel = text_cancel, .counts = text_counts, .close = text_close};

// How many windows the tokens hold: the token after a window is its last target.
static int64_t windows_of(int64_t tokens, int64_t T) { return tokens > 0 ? (tokens - 1) / T : 0; }

static void describe(text_source *x, int64_t vocab) {
    dataset_info d = dataset_about(x->tokens);
    source *s = &x->head;
    s->about = (source_info){.samples = windows_of(d.tokens, x->T),
                             .units = d.tokens,
                             .units_per_sample = x->T,
                             .unit = "tokens",
                             .files = d.files};
    memcpy(s->about.hash, d.hash, sizeof s->about.hash);
    s->tensors = 2;
    s->tensor[TOKENS] = (tensor_spec){.name = "tokens", .type = INT32, .dims = 1, .size = {x->T, 1, 1}, .limit = vocab};
    s->tensor[TARGETS] =
        (tensor_spec){.name = "targets", .type = INT32, .dims = 1, .size = {x->T, 1, 1}, .limit = vocab};
}

static err_t open_tokens(text_source *x, const source_options *o, const tensor_spec *window) {
    TRY(dataset_open(&x->tokens, &(dataset_options){.files = o->files,
                                                    .format = o->format,
                                                    .vocab = window ? window->limit : 0,
                                                    .packed = o->packed,
                                                    .retry = o->retry,
                                                    .shared_by = o->shared_by,
                                                    .faults = o->faults}));
    x->T = window ? window->size[0] : 1;
    x->ignores = o->ignores, x->ignored = o->ignored;
    describe(x, window ? window->limit : 0);
    if (window && x->head.about.samples < 1)
        return err_set(ERR_DATA,
                       "%" PRId64 " tokens, expected more than the model reads at once, %" PRId64 " ([model] context)",
                       x->head.about.units, x->T);
    x->window = malloc((size_t)(x->T + 1) * sizeof *x->window);
    return x->window ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a window of %" PRId64 " tokens", x->T);
}

err_t text_open(source **out, const source_options *o) {
    text_source *x = calloc(1, sizeof *x);
    if (!x) return err_set(ERR_INTERNAL, "no memory for a source of tokens");
    x->head.type = &type;
    err_t rc = open_tokens(x, o, source_wants(o, "tokens"));
    if (rc != ERR_OK) text_close(&x->head);
    else *out = &x->head;
    return rc;
}
