// data/text/text.c: shards of tokens as a source. Sample k is window k: T tokens from k*T on, and as targets the token
// that follows each. T is what the model reads. Where answers are marked, sample k is row k of T+1 tokens, and targets
// outside answers are -1. With [data] documents a sample also has each token's place in its document, from 0 on, and a
// target that is of another document than its token is -1:
//
//   tokens   a  b  c  E  d  e        E ends a document
//   places   0  1  2  3  0  1
//   targets  b  c  E -1  e  f
//
// A document that a window begins in the middle of has its first place there.
#include "data/text/tokens_source.h"
#include "data/text/shard.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct text_source {
    tokens_source from;
    int64_t T;
    int64_t step;  // tokens from one sample to the next
    bool ignores;
    int64_t ignored;
    bool documents;   // keeps them apart: marks say where they begin
    int64_t ends;     // or after this token; -1: none
    int32_t *window;  // (T+1)
    uint8_t *marks;   // (T+1); NULL: all targets count
} text_source;

enum { TOKENS, TARGETS, PLACES };

// Does a document begin with token t of the window, from 1 on?
static bool begins(const text_source *x, int64_t t) {
    if (!x->documents) return false;
    return (x->ends >= 0 && x->window[t - 1] == x->ends) || (x->marks && x->marks[t] & MARK_BEGIN);
}

static void copy_targets(const text_source *x, int32_t *to) {
    for (int64_t t = 0; t < x->T; t++) {
        int32_t next = x->window[t + 1];
        bool asked = !x->marks || x->marks[t + 1] & MARK_ANSWER;
        to[t] = !asked || (x->ignores && next == x->ignored) || begins(x, t + 1) ? -1 : next;
    }
}

static void copy_places(const text_source *x, int32_t *to) {
    for (int64_t t = 0; t < x->T; t++) to[t] = t == 0 || begins(x, t) ? 0 : to[t - 1] + 1;
}

static err_t text_read(source *s, const source_draw *d, void *const *out) {
    text_source *x = (text_source *)s;
    size_t bytes = (size_t)x->T * sizeof *x->window;
    TRY(dataset_read_marked(x->from.tokens, d->sample * x->step, x->T + 1, x->window, x->marks));
    if (out[TOKENS]) memcpy(out[TOKENS], x->window, bytes);
    if (out[TARGETS]) copy_targets(x, out[TARGETS]);
    if (out[PLACES]) copy_places(x, out[PLACES]);
    return ERR_OK;
}

static void text_close(source *s) {
    text_source *x = (text_source *)s;
    dataset_close(x->from.tokens);
    free(x->window), free(x->marks);
    free(x);
}

static const source_type type = {
    .read = text_read, .verify = tokens_verify, .cancel = tokens_cancel, .counts = tokens_counts, .close = text_close};

// How many samples the tokens hold: rows, or windows, of which the token after each is its last target.
static int64_t samples_of(const text_source *x, dataset_info d) {
    if (d.row_tokens) return d.tokens / d.row_tokens;
    return d.tokens > 0 ? (d.tokens - 1) / x->T : 0;
}

static void describe(text_source *x, int64_t vocab) {
    dataset_info d = dataset_about(x->from.tokens);
    source *s = &x->from.head;
    s->about = (source_info){
        .samples = samples_of(x, d), .units = d.tokens, .units_per_sample = x->T, .unit = "tokens", .files = d.files};
    memcpy(s->about.hash, d.hash, sizeof s->about.hash);
    s->tensors = 3;
    s->tensor[TOKENS] = (tensor_spec){.name = "tokens", .type = INT32, .dims = 1, .size = {x->T, 1, 1}, .limit = vocab};
    s->tensor[TARGETS] =
        (tensor_spec){.name = "targets", .type = INT32, .dims = 1, .size = {x->T, 1, 1}, .limit = vocab};
    s->tensor[PLACES] =
        (tensor_spec){.name = "positions", .type = INT32, .dims = 1, .size = {x->T, 1, 1}, .limit = x->T};
}

// Documents must be told apart somehow, and where rows hold several they must be.
static err_t check_documents(const text_source *x, const source_options *o) {
    dataset_info d = dataset_about(x->from.tokens);
    if (d.documents && !o->documents)
        return err_set(ERR_CONFIG,
                       "rows of these files hold several documents each: set [data] documents = yes, so that none sees "
                       "another");
    if (d.documents && o->document_end >= 0)
        return err_set(ERR_CONFIG, "these files say where documents begin: set [data] document_end = -1");
    if (!o->documents || d.row_tokens || o->document_end >= 0) return ERR_OK;
    return err_set(ERR_CONFIG,
                   "[data] documents = yes, and these files do not say where documents begin: set document_end to the "
                   "token that ends one, such as 50256 of GPT-2, or documents = no");
}

// What is marked must be what the run asks for, in rows as long as the model reads.
static err_t check_rows(const text_source *x, const source_options *o) {
    int64_t row = dataset_about(x->from.tokens).row_tokens;
    if (dataset_about(x->from.tokens).labels)
        return err_set(
            ERR_CONFIG,
            "these files have texts with labels, which [model] type = bert with task = classify or regress reads: set "
            "these, or pack text without [pack] template");
    if (o->answers && !row)
        return err_set(
            ERR_CONFIG,
            "[data] answers = yes, and in these files no answers are marked: pack them with [pack] template, "
            "or set answers = no");
    if (row && !o->answers)
        return err_set(ERR_CONFIG,
                       "answers are marked in these files, and the rest is prompts and padding: set [data] answers = "
                       "yes");
    TRY(check_documents(x, o));
    if (!row || row == x->T + 1) return ERR_OK;
    return err_set(ERR_CONFIG,
                   "these samples were packed for [model] context = %" PRId64 ", and the model reads %" PRId64
                   " tokens: set context = %" PRId64 ", or pack them again",
                   row - 1, x->T, row - 1);
}

static err_t open_tokens(text_source *x, const source_options *o, const tensor_spec *window) {
    TRY(dataset_open(&x->from.tokens, &(dataset_options){.files = o->files,
                                                         .format = o->format,
                                                         .vocab = window ? window->limit : 0,
                                                         .packed = o->packed,
                                                         .retry = o->retry,
                                                         .shared_by = o->shared_by,
                                                         .faults = o->faults}));
    x->T = window ? window->size[0] : 1;
    x->ignores = o->ignores, x->ignored = o->ignored;
    x->documents = o->documents, x->ends = o->document_end;
    int64_t row = dataset_about(x->from.tokens).row_tokens;
    if (window) TRY(check_rows(x, o));
    else if (row) x->T = row - 1;
    x->step = row ? row : x->T;
    describe(x, window ? window->limit : 0);
    if (window && x->from.head.about.samples < 1)
        return err_set(ERR_DATA,
                       "%" PRId64 " tokens, expected more than the model reads at once, %" PRId64 " ([model] context)",
                       x->from.head.about.units, x->T);
    x->window = malloc((size_t)(x->T + 1) * sizeof *x->window);
    if (row) x->marks = malloc((size_t)(x->T + 1));
    return x->window && (x->marks || !row)
               ? ERR_OK
               : err_set(ERR_INTERNAL, "no memory for a window of %" PRId64 " tokens", x->T);
}

err_t text_open(source **out, const source_options *o) {
    text_source *x = calloc(1, sizeof *x);
    if (!x) return err_set(ERR_INTERNAL, "no memory for a source of tokens");
    x->from.head.type = &type;
    err_t rc = open_tokens(x, o, source_wants(o, "tokens"));
    if (rc != ERR_OK) text_close(&x->from.head);
    else *out = &x->from.head;
    return rc;
}
