// data/text/masked.c: shards of tokens as a source for models that guess masked tokens (Devlin et al. 2019, section
// 3.1). Sample k is window k: the token that begins a sample, T-2 tokens from k*(T-2) on, and the token that ends it.
//
//   tokens   begin a b c d e f g h end     what the model reads: of M positions, 8 in 10 are the mask instead, 1 in
//   places         1     4                 10 a token drawn from all, and 1 in 10 what they were
//   targets        a     d                 what they were
//
// Which positions these are, and what becomes of them, is drawn by the position in the run: philox(seed; position,
// SITE_MASK, n) has a word by which positions are ranked, the M least of which are taken, a word for what becomes of
// one and a word for the token drawn. Looked at without chance, a sample has the masks of seed 0 and its own number.
#include "base/philox.h"
#include "data/source.h"
#include "data/text/dataset.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct candidate {
    uint32_t rank;
    int32_t place;
} candidate;

typedef struct masked_source {
    source head;
    dataset *tokens;
    int64_t T, M, vocab;
    int32_t mask, begin, end;
    int32_t *window;   // (T)
    candidate *among;  // (T-2)
} masked_source;

enum { TOKENS, TARGETS, PLACES, TYPES };

static int by_rank(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->place - y->place;
}
static int by_place(const void *a, const void *b) {
    return ((const candidate *)a)->place - ((const candidate *)b)->place;
}

static void words_of(uint32_t word[4], const source_draw *d, int64_t place) {
    uint64_t n = (uint64_t)(d->train ? d->n : d->sample);
    philox4x32(word, d->train ? d->seed : 0, (uint32_t)place, SITE_MASK, (uint32_t)n, (uint32_t)(n >> 32));
}

// Eight in ten are masked, one in ten is drawn, one in ten stays.
static int32_t becomes(const masked_source *x, const uint32_t word[4], int32_t was) {
    const uint32_t tenth = 429496730;
    if (word[1] < 8 * tenth) return x->mask;
    return word[1] < 9 * tenth ? (int32_t)((uint64_t)word[2] * (uint64_t)x->vocab >> 32) : was;
}

static err_t masked_read(source *s, const source_draw *d, void *const *out) {
    masked_source *x = (masked_source *)s;
    int64_t inner = x->T - 2;
    uint32_t word[4];
    TRY(dataset_read(x->tokens, d->sample * inner, inner, x->window + 1));
    x->window[0] = x->begin, x->window[x->T - 1] = x->end;
    for (int64_t i = 0; i < inner; i++) {
        words_of(word, d, i + 1);
        x->among[i] = (candidate){word[0], (int32_t)(i + 1)};
    }
    qsort(x->among, (size_t)inner, sizeof *x->among, by_rank);
    qsort(x->among, (size_t)x->M, sizeof *x->among, by_place);
    for (int64_t m = 0; m < x->M; m++) {
        int32_t place = x->among[m].place, was = x->window[place];
        words_of(word, d, place);
        x->window[place] = becomes(x, word, was);
        if (out[PLACES]) ((int32_t *)out[PLACES])[m] = place;
        if (out[TARGETS]) ((int32_t *)out[TARGETS])[m] = was;
    }
    if (out[TOKENS]) memcpy(out[TOKENS], x->window, (size_t)x->T * sizeof *x->window);
    if (out[TYPES]) memset(out[TYPES], 0, (size_t)x->T * sizeof *x->window);
    return ERR_OK;
}

static err_t masked_verify(source *s, void (*report)(void *ctx, const char *text), void *ctx) {
    return dataset_verify(((masked_source *)s)->tokens, report, ctx);
}
static void masked_cancel(source *s, bool cancelled) { dataset_cancel(((masked_source *)s)->tokens, cancelled); }
static void masked_counts(const source *s, int64_t *retries, int64_t *read) {
    dataset_counts(((const masked_source *)s)->tokens, retries, read);
}
static void masked_close(source *s) {
    masked_source *x = (masked_source *)s;
    dataset_close(x->tokens);
    free(x->window), free(x->among);
    free(x);
}

static const source_type type = {.read = masked_read,
                                 .verify = masked_verify,
                                 .cancel = masked_cancel,
                                 .counts = masked_counts,
                                 .close = masked_close};

static void describe(masked_source *x) {
    dataset_info d = dataset_about(x->tokens);
    source *s = &x->head;
    s->about = (source_info){.samples = d.tokens / (x->T - 2),
                             .units = d.tokens,
                             .units_per_sample = x->T,
                             .unit = "tokens",
                             .files = d.files};
    memcpy(s->about.hash, d.hash, sizeof s->about.hash);
    s->tensors = 4;
    const tensor_spec of_sample = {.type = INT32, .dims = 1, .size = {x->T, 1, 1}},
                      of_masks = {.type = INT32, .dims = 1, .size = {x->M, 1, 1}};
    static const char *const name[] = {"tokens", "targets", "places", "types"};
    for (int k = 0; k < 4; k++) {
        s->tensor[k] = k == TARGETS || k == PLACES ? of_masks : of_sample;
        strcpy(s->tensor[k].name, name[k]);
    }
}

static err_t open_masked(masked_source *x, const source_options *o) {
    const tensor_spec *tokens = source_wants(o, "tokens");
    TRY(dataset_open(&x->tokens, &(dataset_options){.files = o->files,
                                                    .format = o->format,
                                                    .vocab = tokens->limit,
                                                    .packed = o->packed,
                                                    .retry = o->retry,
                                                    .shared_by = o->shared_by,
                                                    .faults = o->faults}));
    if (o->answers || o->ignores || dataset_about(x->tokens).row_tokens)
        return err_set(ERR_CONFIG,
                       "a model that guesses masked tokens reads plain text: leave out [data] answers and ignore, and "
                       "pack text without [pack] template");
    x->T = tokens->size[0], x->vocab = tokens->limit, x->M = source_wants(o, "places")->size[0];
    x->mask = (int32_t)o->mask, x->begin = (int32_t)o->begin, x->end = (int32_t)o->end;
    describe(x);
    if (x->head.about.samples < 1)
        return err_set(ERR_DATA,
                       "%" PRId64 " tokens, expected at least %" PRId64 ": the model reads that many, and two more, at "
                       "once ([model] context)",
                       x->head.about.units, x->T - 2);
    x->window = malloc((size_t)x->T * sizeof *x->window);
    x->among = malloc((size_t)(x->T - 2) * sizeof *x->among);
    return x->window && x->among ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %" PRId64 " tokens", x->T);
}

err_t masked_open(source **out, const source_options *o) {
    masked_source *x = calloc(1, sizeof *x);
    if (!x) return err_set(ERR_INTERNAL, "no memory for a source of masked tokens");
    x->head.type = &type;
    err_t rc = open_masked(x, o);
    if (rc != ERR_OK) masked_close(&x->head);
    else *out = &x->head;
    return rc;
}
