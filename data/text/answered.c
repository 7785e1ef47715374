// data/text/answered.c: texts and what is said of them (data/text/to_text.h) as a source for a model that reads one
// text and says another. Sample k is row k of the shards:
//
//   row      a b c end  d e end  0 0          d e end are marked
//   tokens   a b c end begin begin            what is read, in as many places as the model reads
//            begin d e begin begin            then what is said, its targets one place later
//   targets  d e end -1 -1                    a target of -1 does not count
//   length   4                                of what is read
//
// Room that a text leaves has the token that begins what is said, which nothing sees.
#include "data/text/shard.h"
#include "data/text/tokens_source.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct answered_source {
    tokens_source from;
    int64_t Te, Td, vocab;  // room for what is read, and for what is said
    int32_t begin;
    int32_t *row;    // (Te+Td)
    uint8_t *marks;  // (Te+Td)
} answered_source;

enum { TOKENS, LENGTH, TARGETS };

// How many tokens of the row are read, and how many are said.
static err_t look_at_row(const answered_source *x, int64_t sample, int64_t *reads, int64_t *says) {
    int64_t T = x->Te + x->Td, in = 0, out = 0;
    while (in < T && !(x->marks[in] & MARK_ANSWER)) in++;
    while (in + out < T && x->marks[in + out] & MARK_ANSWER) out++;
    int64_t more = in + out;
    while (more < T && !(x->marks[more] & MARK_ANSWER)) more++;
    *reads = in, *says = out;
    if (in >= 1 && in <= x->Te && out >= 1 && out <= x->Td && more == T) return ERR_OK;
    return err_set(ERR_DATA,
                   "sample %" PRId64 ": %" PRId64 " tokens are read and %" PRId64 " said%s, expected 1 to %" PRId64
                   " and 1 to %" PRId64 " ([model] context and decoder_context): pack these files with [pack] template "
                   "= text, and the same [model]",
                   sample, in, out, more < T ? ", and later ones, too" : "", x->Te, x->Td);
}

static err_t check_tokens(const answered_source *x, int64_t sample, int64_t n) {
    for (int64_t t = 0; t < n; t++)
        if (x->row[t] >= x->vocab)
            return err_set(ERR_DATA, "sample %" PRId64 ": token %d, and the model has [model] vocab = %" PRId64, sample,
                           x->row[t], x->vocab);
    return ERR_OK;
}

static err_t read_row(answered_source *x, int64_t sample, int64_t *reads, int64_t *says) {
    int64_t T = x->Te + x->Td;
    TRY(dataset_read_marked(x->from.tokens, sample * T, T, x->row, x->marks));
    TRY(look_at_row(x, sample, reads, says));
    return check_tokens(x, sample, *reads + *says);
}

static err_t answered_read(source *s, const source_draw *d, void *const *out) {
    answered_source *x = (answered_source *)s;
    int32_t *tokens = out[TOKENS], *targets = out[TARGETS];
    int64_t reads, says;
    TRY(read_row(x, d->sample, &reads, &says));
    const int32_t *said = x->row + reads;
    for (int64_t i = 0; tokens && i < x->Te + x->Td; i++) tokens[i] = x->begin;
    if (tokens) memcpy(tokens, x->row, (size_t)reads * sizeof *tokens);
    if (tokens) memcpy(tokens + x->Te + 1, said, (size_t)(says - 1) * sizeof *tokens);
    for (int64_t i = 0; targets && i < x->Td; i++) targets[i] = i < says ? said[i] : -1;
    if (out[LENGTH]) *(int32_t *)out[LENGTH] = (int32_t)reads;
    return ERR_OK;
}

// Of rows that no model could read the first one is reported.
static err_t answered_verify(source *s, void (*report)(void *ctx, const char *text), void *ctx) {
    answered_source *x = (answered_source *)s;
    err_t rc = tokens_verify(s, report, ctx);
    int64_t samples = dataset_about(x->from.tokens).tokens / (x->Te + x->Td), reads, says;
    for (int64_t k = 0; k < samples && rc == ERR_OK; k++)
        if ((rc = read_row(x, k, &reads, &says)) != ERR_OK) report(ctx, err_last()->text);
    return rc;
}

static void answered_close(source *s) {
    answered_source *x = (answered_source *)s;
    dataset_close(x->from.tokens);
    free(x->row), free(x->marks);
    free(x);
}

static const source_type type = {.read = answered_read,
                                 .verify = answered_verify,
                                 .cancel = tokens_cancel,
                                 .counts = tokens_counts,
                                 .close = answered_close};

static void describe(answered_source *x) {
    dataset_info d = dataset_about(x->from.tokens);
    tokens_two_texts(&x->from.head, &d, x->Te + x->Td, x->Te, x->Td);
}

static err_t check_files(const answered_source *x, const source_options *o) {
    dataset_info d = dataset_about(x->from.tokens);
    int64_t T = x->Te + x->Td;
    if (d.labels || !d.row_tokens)
        return err_set(
            ERR_CONFIG,
            "the model reads a text and says another one, and these files do not have both: pack prompts and "
            "responses, or texts and labels, with [pack] template = text");
    if (d.documents || o->documents)
        return err_set(ERR_CONFIG,
                       "a sample is one text and what is said of it: set [data] documents = no, and pack with [pack] "
                       "documents = no");
    if (!o->answers)
        return err_set(ERR_CONFIG, "what is said has a loss, and room that it leaves has none: set [data] answers = "
                                   "yes");
    if (o->ignores)
        return err_set(ERR_CONFIG, "every token that is said counts: leave out [data] ignore, and set answers = yes");
    if (d.row_tokens == T) return ERR_OK;
    return err_set(ERR_CONFIG,
                   "these samples were packed for %" PRId64
                   " tokens that are read and said, and the model has room for "
                   "%" PRId64 " and %" PRId64 " ([model] context and decoder_context): pack them again, with [pack] "
                   "template = text and the same [model]",
                   d.row_tokens, x->Te, x->Td);
}

static err_t open_answered(answered_source *x, const source_options *o) {
    const tensor_spec *tokens = source_wants(o, "tokens");
    TRY(dataset_open(&x->from.tokens, &(dataset_options){.files = o->files,
                                                         .format = o->format,
                                                         .packed = o->packed,
                                                         .retry = o->retry,
                                                         .shared_by = o->shared_by,
                                                         .faults = o->faults}));
    x->Td = source_wants(o, "targets")->size[0], x->Te = tokens->size[0] - x->Td;
    x->vocab = tokens->limit, x->begin = (int32_t)o->begin;
    TRY(check_files(x, o));
    describe(x);
    int64_t T = x->Te + x->Td;
    x->row = malloc((size_t)T * sizeof *x->row), x->marks = malloc((size_t)T);
    return x->row && x->marks ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a row of %" PRId64 " tokens", T);
}

err_t answered_open(source **out, const source_options *o) {
    answered_source *x = calloc(1, sizeof *x);
    if (!x) return err_set(ERR_INTERNAL, "no memory for a source of texts and answers");
    x->from.head.type = &type;
    err_t rc = open_answered(x, o);
    if (rc != ERR_OK) answered_close(&x->from.head);
    else *out = &x->from.head;
    return rc;
}
