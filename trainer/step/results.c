// trainer/step/results.c: see trainer/step/results.h.
#include "trainer/step/results.h"

#include "model/slices.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

// Rows of chunks, slice after slice.
static err_t number_sums(results *x, const model *net, int64_t *chunks) {
    x->sums_at = calloc((size_t)net->params + 1, sizeof *x->sums_at);
    if (!x->sums_at) return err_set(ERR_INTERNAL, "no memory for the table of %d parameters", net->params);
    *chunks = 0;
    for (int i = 0; i < net->params; i++) {
        x->sums_at[i] = (int32_t)*chunks;
        if (!param_is_saved(&net->param[i])) continue;
        for (int c = 0; c < param_slices(&net->param[i]); c++)
            *chunks += (param_slice_count(&net->param[i], c) + CHUNK - 1) / CHUNK;
    }
    x->sums_at[net->params] = (int32_t)*chunks;
    if (*chunks > INT32_MAX)
        return err_set(ERR_CONFIG, "a model of %" PRId64 " chunks of %d elements: %d is the most that can be numbered",
                       *chunks, CHUNK, INT32_MAX);
    return ERR_OK;
}

static err_t open_slot(result_slot *x, const result_options *o, int64_t told) {
    TRY(arena_1d(o->staging, &x->loss, FP64, told));
    TRY(arena_1d(o->staging, &x->report, FP64, REPORT_ITEMS));
    for (int k = 0; k < 2; k++) TRY(arena_1d(o->staging, &x->state[k], INT32, o->words));
    return arena_1d(o->staging, &x->lr, FP32, 1);
}

static err_t open_rows(results *x, const result_options *o, int64_t rows, int64_t chunks) {
    if (!o->rows) return ERR_OK;
    x->masters = (tensor){NULL, FP64, 1, {chunks, 1, 1, 1}};
    TRY(arena_1d(o->memory, &x->rows_at, INT32, rows + 1));
    TRY(arena_1d(o->memory, &x->of_row, FP32, rows));
    if (!o->on_host) return ERR_OK;
    TRY(arena_1d(o->staging, &x->host_masters, FP64, chunks));
    return arena_1d(o->staging, &x->host_of_row, FP32, rows);
}

err_t results_open(results *x, const config *c, const model *net, const result_options *o) {
    int64_t chunks, G = c->batch.global, B = c->resolved.micro;
    bool weighs = config_weighs(c);  // some losses may not count
    *x = (results){.slots = o->slots};
    TRY(number_sums(x, net, &chunks));
    int64_t all = chunks * o->islands + o->buckets;
    x->sums = (tensor){NULL, FP64, 1, {all, 1, 1, 1}};
    x->sample_loss = (tensor){NULL, FP64, 1, {G, 1, 1, 1}};
    x->reports = (tensor){NULL, FP64, 2, {o->world, REPORT_ITEMS, 1, 1}};
    if (weighs) x->sample_counts = (tensor){NULL, FP64, 1, {G, 1, 1, 1}};
    TRY(open_rows(x, o, net->params, chunks));
    if (o->buckets) x->row_counts = (tensor){NULL, FP64, 1, {ROW_COUNTS, 1, 1, 1}};
    int64_t told =
        G + o->world * REPORT_ITEMS + (weighs ? G : 0) + (o->buckets ? ROW_COUNTS : 0);  // numbers that the host reads
    TRY(arena_1d(o->memory, &x->shared, FP64, all + (o->rows ? chunks : 0) + told));
    TRY(arena_1d(o->memory, &x->micro_loss, FP64, B));
    if (weighs) TRY(arena_1d(o->memory, &x->micro_counts, FP64, B));
    for (int k = 0; k < o->slots; k++) TRY(open_slot(&x->slot[k], o, told));
    if (o->slots > 1) TRY(arena_1d(o->staging, &x->revoked, INT32, 1));
    if (o->slots > 1) TRY(arena_1d(o->memory, &x->seen, INT32, 1));
    return arena_1d(o->staging, &x->host_void, FP64, 1);
}

// The next of the numbers that ranks share.
static double *place(tensor *t, double *at) {
    if (!t->dims) return at;
    t->data = at;
    return at + tensor_count(t);
}

err_t results_commit(results *x, device *dev, stream *s) {
    double *at = place(&x->sums, x->shared.data);
    at = place(&x->masters, at);
    at = place(&x->sample_loss, at);
    at = place(&x->reports, at);
    at = place(&x->sample_counts, at);
    place(&x->row_counts, at);
    *(double *)x->host_void.data = NAN;
    if (x->revoked.data) *(int32_t *)x->revoked.data = 0;
    for (int k = 0; k < x->slots; k++) TRY(event_open(dev, &x->slot[k].done));
    if (!x->rows_at.data) return ERR_OK;
    TRY(stream_copy(s, x->rows_at.data, x->sums_at, tensor_bytes(&x->rows_at)));
    return stream_wait(s);
}

void results_close(results *x) {
    for (int k = 0; k < 2; k++)
        if (x->slot[k].done) event_close(x->slot[k].done);
    free(x->sums_at);
    *x = (results){0};
}

static const double *row_counts(const results *x, const result_slot *of) {
    static const double none[ROW_COUNTS] = {0};
    if (!x->row_counts.dims) return none;
    int64_t before = x->sample_loss.size[0] + tensor_count(&x->reports);
    if (x->sample_counts.dims) before += tensor_count(&x->sample_counts);
    return (const double *)of->loss.data + before;
}

int64_t results_row_count(const results *x, const result_slot *of, bool applied) {
    const double *counts = row_counts(x, of);
    return (int64_t)(counts[0] + (applied ? counts[1] : 0));
}

int64_t results_cold_rows(const results *x, const result_slot *of) { return (int64_t)row_counts(x, of)[2]; }

double results_loss(const results *x, const result_slot *of, int64_t losses) {
    int64_t G = x->sample_loss.size[0];
    const double *each = of->loss.data, *count = each + G + tensor_count(&x->reports);
    double loss = 0, counted = 0;
    for (int64_t i = 0; i < G; i++) loss += each[i];
    if (!x->sample_counts.dims) return loss / (double)G;
    for (int64_t i = 0; i < G; i++) counted += count[i];
    return loss * (double)losses / counted;
}
