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
//
// A model that also learns whether texts follow one another has samples of two:
//
//   tokens   begin a b c d end e f g h end     window k: T-3 tokens from k*(T-3) on, in two halves
//   types        0 0 0 0 0   0 1 1 1 1   1
//   label    0: e follows d. 1: the second half is that of another window, of another document
//
// The words of position 0, which is never masked, say whether the second text is another one, as in half of the
// samples, and which window it is from. A document ends with the token that ends a sample, as `lockstep pack` writes it
// with a tokenizer of BERT's. Windows that share a token with the document of d are left out, and those that are held
// out. The document's ends are looked for in NEAR windows to either side: of a longer one, windows farther away than
// these may be drawn. Where no window is left, all but k may be.
#include "base/philox.h"
#include "data/text/tokens_source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct candidate {
    uint32_t rank;
    int32_t place;
} candidate;

typedef struct masked_source {
    tokens_source from;
    int64_t T, M, vocab;
    int64_t n;     // tokens of a window
    int64_t half;  // those of its first text; all of them, where samples are one text
    bool pairs;
    int32_t mask, begin, end;
    int32_t *window;   // (T)
    int32_t *look;     // (n) a window beside it
    candidate *among;  // (n)
} masked_source;

enum { TOKENS, TARGETS, PLACES, TYPES, LABEL };
enum { NEAR = 64 };

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

static err_t look(masked_source *x, int64_t k) { return dataset_read(x->from.tokens, k * x->n, x->n, x->look); }

// The windows from *first to *last have tokens of the document of the last token of window k's first text.
static err_t find_document(masked_source *x, int64_t k, int64_t *first, int64_t *last) {
    int64_t least = x->from.head.first, most = least + x->from.head.about.samples - 1;
    if (least < k - NEAR) least = k - NEAR;
    if (most > k + NEAR) most = k + NEAR;
    *first = least, *last = most;
    for (int64_t w = k, end = -1; w >= least && end < 0; w--) {  // the end of the document before
        TRY(look(x, w));
        for (int64_t i = w == k ? x->half - 2 : x->n - 1; i >= 0 && end < 0; i--)
            if (x->look[i] == x->end) end = w * x->n + i;
        if (end >= 0 && *first < (end + 1) / x->n) *first = (end + 1) / x->n;
    }
    for (int64_t w = k, end = -1; w <= most && end < 0; w++) {  // and its own
        TRY(look(x, w));
        for (int64_t i = w == k ? x->half - 1 : 0; i < x->n && end < 0; i++)
            if (x->look[i] == x->end) end = w * x->n + i;
        if (end >= 0) *last = end / x->n;
    }
    return ERR_OK;
}

// The second half of a window of another document, in place of that of window k.
static err_t read_other(masked_source *x, int64_t k, const uint32_t word[4], int32_t *to) {
    int64_t first, last, windows = x->from.head.about.samples;
    TRY(find_document(x, k, &first, &last));
    if (last - first + 1 == windows) first = last = k;
    uint64_t left = (uint64_t)(windows - (last - first + 1)), drawn = ((uint64_t)word[1] << 32 | word[2]) % left;
    int64_t other = x->from.head.first + (int64_t)drawn;
    if (other >= first) other += last - first + 1;
    return dataset_read(x->from.tokens, other * x->n + x->half, x->n - x->half, to);
}

// The sample before anything is masked.
static err_t read_window(masked_source *x, const source_draw *d, int32_t *label) {
    uint32_t word[4];
    int32_t *w = x->window;
    TRY(dataset_read(x->from.tokens, d->sample * x->n, x->n, w + 1));
    w[0] = x->begin, w[x->T - 1] = x->end;
    if (!x->pairs) return ERR_OK;
    words_of(word, d, 0);
    *label = x->from.head.about.samples > 1 && word[0] >> 31;
    memmove(w + x->half + 2, w + x->half + 1, (size_t)(x->n - x->half) * sizeof *w);
    w[x->half + 1] = x->end;
    return *label ? read_other(x, d->sample, word, w + x->half + 2) : ERR_OK;
}

// Every position may be masked but those of the tokens around the texts.
static void choose_places(masked_source *x, const source_draw *d) {
    uint32_t word[4];
    for (int64_t i = 0; i < x->n; i++) {
        int64_t place = i + 1 + (i >= x->half);
        words_of(word, d, place);
        x->among[i] = (candidate){word[0], (int32_t)place};
    }
    qsort(x->among, (size_t)x->n, sizeof *x->among, by_rank);
    qsort(x->among, (size_t)x->M, sizeof *x->among, by_place);
}

static err_t masked_read(source *s, const source_draw *d, void *const *out) {
    masked_source *x = (masked_source *)s;
    int32_t label = 0, *types = out[TYPES];
    uint32_t word[4];
    TRY(read_window(x, d, &label));
    choose_places(x, d);
    for (int64_t m = 0; m < x->M; m++) {
        int32_t place = x->among[m].place, was = x->window[place];
        words_of(word, d, place);
        x->window[place] = becomes(x, word, was);
        if (out[PLACES]) ((int32_t *)out[PLACES])[m] = place;
        if (out[TARGETS]) ((int32_t *)out[TARGETS])[m] = was;
    }
    if (out[TOKENS]) memcpy(out[TOKENS], x->window, (size_t)x->T * sizeof *x->window);
    for (int64_t t = 0; types && t < x->T; t++) types[t] = x->pairs && t > x->half + 1;
    if (x->pairs && out[LABEL]) *(int32_t *)out[LABEL] = label;
    return ERR_OK;
}

static void masked_close(source *s) {
    masked_source *x = (masked_source *)s;
    dataset_close(x->from.tokens);
    free(x->window), free(x->look), free(x->among);
    free(x);
}

static const source_type type = {.read = masked_read,
                                 .verify = tokens_verify,
                                 .cancel = tokens_cancel,
                                 .counts = tokens_counts,
                                 .close = masked_close};

static void describe(masked_source *x) {
    dataset_info d = dataset_about(x->from.tokens);
    source *s = &x->from.head;
    s->about = (source_info){
        .samples = d.tokens / x->n, .units = d.tokens, .units_per_sample = x->T, .unit = "tokens", .files = d.files};
    memcpy(s->about.hash, d.hash, sizeof s->about.hash);
    s->tensors = x->pairs ? 5 : 4;
    const tensor_spec of_sample = {.type = INT32, .dims = 1, .size = {x->T, 1, 1}},
                      of_masks = {.type = INT32, .dims = 1, .size = {x->M, 1, 1}},
                      of_label = {.type = INT32, .size = {1, 1, 1}};
    static const char *const name[] = {"tokens", "targets", "places", "types", "label"};
    for (int k = 0; k < s->tensors; k++) {
        s->tensor[k] = k == LABEL ? of_label : k == TARGETS || k == PLACES ? of_masks : of_sample;
        strcpy(s->tensor[k].name, name[k]);
    }
}

static err_t open_masked(masked_source *x, const source_options *o) {
    const tensor_spec *tokens = source_wants(o, "tokens");
    TRY(dataset_open(&x->from.tokens, &(dataset_options){.files = o->files,
                                                         .format = o->format,
                                                         .vocab = tokens->limit,
                                                         .packed = o->packed,
                                                         .retry = o->retry,
                                                         .shared_by = o->shared_by,
                                                         .faults = o->faults}));
    if (o->answers || o->ignores || dataset_about(x->from.tokens).row_tokens)
        return err_set(ERR_CONFIG,
                       "a model that guesses masked tokens reads plain text: leave out [data] answers and ignore, and "
                       "pack text without [pack] template");
    x->T = tokens->size[0], x->vocab = tokens->limit, x->M = source_wants(o, "places")->size[0];
    x->mask = (int32_t)o->mask, x->begin = (int32_t)o->begin, x->end = (int32_t)o->end;
    x->pairs = source_wants(o, "label") != NULL;
    x->n = x->T - 2 - x->pairs, x->half = x->pairs ? x->n / 2 : x->n;
    describe(x);
    if (x->from.head.about.samples < 1 + x->pairs)
        return err_set(ERR_DATA,
                       "%" PRId64 " tokens, expected at least %" PRId64 ": the model reads %" PRId64
                       " of them at once ([model] context)%s",
                       x->from.head.about.units, (1 + x->pairs) * x->n, x->n,
                       x->pairs ? ", and second texts come from others" : "");
    x->window = malloc((size_t)x->T * sizeof *x->window);
    x->look = malloc((size_t)x->n * sizeof *x->look);
    x->among = malloc((size_t)x->n * sizeof *x->among);
    return x->window && x->look && x->among ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %" PRId64 " tokens", x->T);
}

err_t masked_open(source **out, const source_options *o) {
    masked_source *x = calloc(1, sizeof *x);
    if (!x) return err_set(ERR_INTERNAL, "no memory for a source of masked tokens");
    x->from.head.type = &type;
    err_t rc = open_masked(x, o);
    if (rc != ERR_OK) masked_close(&x->from.head);
    else *out = &x->from.head;
    return rc;
}
