// data/text/spans.c: shards of tokens as a source for models that say what was left out of a text (Raffel et al. 2020,
// section 3.1.4). Sample k is window k, n tokens from k*n on; some of them are left out, in spans:
//
//   window   a b c d e f g h i           two spans, c d and h i
//   tokens   a b X e f g Y end           what the encoder reads: X stands for the first span, Y for the second;
//            begin X c d Y h i           then what the decoder reads, its targets one place later
//   targets  X c d Y h i end
//   length   8                           of the encoder's text
//
// Texts alternate between what stays and what is left out, and begin with what stays. Both are divided as T5's own code
// divides them: into as many parts as there are spans, of any lengths from 1 on, each division as likely as any other.
// Of the places between two tokens those are cut that have the least words philox(seed; place, SITE_SPANS, n), the
// first word of a place for what is left out, the second for what stays. Looked at without chance, a sample has the
// spans of seed 0 and its own number.
#include "base/philox.h"
#include "data/text/tokens_source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct place {
    uint32_t rank;
    int32_t at;
} place;

typedef struct spans_source {
    tokens_source from;
    int64_t Te, Td;    // room for the encoder's tokens, and the decoder's
    int64_t n, noise;  // tokens of a window, and of these those that are left out
    int64_t spans;
    int32_t sentinel, begin, end;
    int32_t *window;           // (n)
    int32_t *gone, *stays;     // (spans) lengths
    place *among;              // (n)
    int32_t *said, *read_out;  // (Td), (Te)
} spans_source;

enum { TOKENS, LENGTH, TARGETS };

static int by_rank(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->at - y->at;
}
static int by_place(const void *a, const void *b) { return ((const place *)a)->at - ((const place *)b)->at; }

// Divides `tokens` into as many parts as there are spans.
static void divide(spans_source *x, const source_draw *d, int64_t tokens, int which, int32_t *length) {
    uint64_t n = (uint64_t)(d->train ? d->n : d->sample);
    for (int64_t i = 0; i < tokens - 1; i++) {
        uint32_t word[4];
        philox4x32(word, d->train ? d->seed : 0, (uint32_t)i, SITE_SPANS, (uint32_t)n, (uint32_t)(n >> 32));
        x->among[i] = (place){word[which], (int32_t)i};
    }
    int64_t cuts = x->spans - 1;
    qsort(x->among, (size_t)(tokens - 1), sizeof *x->among, by_rank);
    qsort(x->among, (size_t)cuts, sizeof *x->among, by_place);
    int32_t before = 0;
    for (int64_t k = 0; k <= cuts; k++) {
        int32_t to = k < cuts ? x->among[k].at + 1 : (int32_t)tokens;
        length[k] = to - before;
        before = to;
    }
}

// Both texts, without their ends. Returns how many tokens the encoder's has.
static int64_t cut_spans(spans_source *x) {
    int64_t in = 0, out = 0, at = 0;
    for (int64_t k = 0; k < x->spans; k++) {
        int32_t sentinel = x->sentinel - (int32_t)k;
        for (int32_t i = 0; i < x->stays[k]; i++) x->read_out[in++] = x->window[at++];
        x->read_out[in++] = x->said[out++] = sentinel;
        for (int32_t i = 0; i < x->gone[k]; i++) x->said[out++] = x->window[at++];
    }
    return in;
}

// Room that a text leaves has the token that begins the decoder's, which nothing reads, and targets that do not count.
static void give(const spans_source *x, int64_t in, void *const *out) {
    int64_t said = x->noise + x->spans + 1;
    int32_t *tokens = out[TOKENS], *targets = out[TARGETS];
    for (int64_t i = 0; tokens && i < x->Te + x->Td; i++) tokens[i] = x->begin;
    if (tokens) memcpy(tokens, x->read_out, (size_t)in * sizeof *tokens);
    if (tokens) memcpy(tokens + x->Te + 1, x->said, (size_t)(said - 1) * sizeof *tokens);
    for (int64_t i = 0; targets && i < x->Td; i++) targets[i] = i < said ? x->said[i] : -1;
    if (out[LENGTH]) *(int32_t *)out[LENGTH] = (int32_t)in;
}

static err_t spans_read(source *s, const source_draw *d, void *const *out) {
    spans_source *x = (spans_source *)s;
    TRY(dataset_read(x->from.tokens, d->sample * x->n, x->n, x->window));
    divide(x, d, x->noise, 0, x->gone);
    divide(x, d, x->n - x->noise, 1, x->stays);
    int64_t in = cut_spans(x);
    x->read_out[in++] = x->said[x->noise + x->spans] = x->end;
    give(x, in, out);
    return ERR_OK;
}

static void spans_close(source *s) {
    spans_source *x = (spans_source *)s;
    dataset_close(x->from.tokens);
    free(x->window), free(x->gone), free(x->stays), free(x->among), free(x->said), free(x->read_out);
    free(x);
}

static const source_type type = {.read = spans_read,
                                 .verify = tokens_verify,
                                 .cancel = tokens_cancel,
                                 .counts = tokens_counts,
                                 .close = spans_close};

static void describe(spans_source *x) {
    dataset_info d = dataset_about(x->from.tokens);
    tokens_two_texts(&x->from.head, &d, x->n, x->Te, x->Td);
}

static err_t find_sizes(spans_source *x, const source_options *o) {
    x->Td = source_wants(o, "targets")->size[0], x->Te = source_wants(o, "tokens")->size[0] - x->Td;
    x->spans = o->spans, x->noise = o->left_out, x->n = o->window;
    x->sentinel = (int32_t)o->mask, x->begin = (int32_t)o->begin, x->end = (int32_t)o->end;
    describe(x);
    if (x->from.head.about.samples >= 1) return ERR_OK;
    return err_set(ERR_DATA,
                   "%" PRId64 " tokens, expected at least %" PRId64 ": of so many the model reads what is left in a "
                   "sample ([model] context)",
                   x->from.head.about.units, x->n);
}

static err_t open_spans(spans_source *x, const source_options *o) {
    TRY(dataset_open(&x->from.tokens, &(dataset_options){.files = o->files,
                                                         .format = o->format,
                                                         .vocab = source_wants(o, "tokens")->limit,
                                                         .packed = o->packed,
                                                         .retry = o->retry,
                                                         .shared_by = o->shared_by,
                                                         .faults = o->faults}));
    if (o->answers || o->ignores || dataset_about(x->from.tokens).row_tokens)
        return err_set(ERR_CONFIG,
                       "a model that says what was left out of a text reads plain text: leave out [data] answers and "
                       "ignore, and pack text without [pack] template");
    TRY(find_sizes(x, o));
    x->window = malloc((size_t)x->n * sizeof *x->window), x->among = malloc((size_t)x->n * sizeof *x->among);
    x->gone = malloc((size_t)x->spans * sizeof *x->gone), x->stays = malloc((size_t)x->spans * sizeof *x->stays);
    x->said = malloc((size_t)x->Td * sizeof *x->said), x->read_out = malloc((size_t)x->Te * sizeof *x->read_out);
    return x->window && x->among && x->gone && x->stays && x->said && x->read_out
               ? ERR_OK
               : err_set(ERR_INTERNAL, "no memory for %" PRId64 " tokens", x->n);
}

err_t spans_open(source **out, const source_options *o) {
    spans_source *x = calloc(1, sizeof *x);
    if (!x) return err_set(ERR_INTERNAL, "no memory for a source of spans");
    x->from.head.type = &type;
    err_t rc = open_spans(x, o);
    if (rc != ERR_OK) spans_close(&x->from.head);
    else *out = &x->from.head;
    return rc;
}
