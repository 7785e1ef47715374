// trainer/step/results.c: see trainer/step/results.h.
#include "trainer/step/results.h"

#include "model/slices.h"

#include <math.h>
#include <stdlib.h>

// Rows of chunks, slice after slice.
static err_t number_sums(results *x, const model *net, int64_t *chunks) {
    *chunks = 0;
    x->sums_at = calloc((size_t)net->params, sizeof *x->sums_at);
    if (!x->sums_at) return err_set(ERR_INTERNAL, "no memory for the table of %d parameters", net->params);
    for (int i = 0; i < net->params; i++) {
        x->sums_at[i] = *chunks;
        if (net->param[i].tied >= 0) continue;
        for (int c = 0; c < param_slices(&net->param[i]); c++)
            *chunks += (param_slice_count(&net->param[i], c) + CHUNK - 1) / CHUNK;
    }
    return ERR_OK;
}

err_t results_open(results *x, const config *c, const model *net, int world, int slots, int64_t words, arena *memory,
                   arena *staging) {
    int64_t chunks, G = c->batch.global, B = c->resolved.micro;
    bool weighs = c->data.ignore >= 0;  // some losses may not count
    *x = (results){.slots = slots};
    TRY(number_sums(x, net, &chunks));
    x->sums = (tensor){NULL, FP64, 1, {chunks, 1, 1, 1}};
    x->sample_loss = (tensor){NULL, FP64, 1, {G, 1, 1, 1}};
    x->reports = (tensor){NULL, FP64, 2, {world, REPORT_ITEMS, 1, 1}};
    if (weighs) x->sample_counts = (tensor){NULL, FP64, 1, {G, 1, 1, 1}};
    int64_t told = G + world * REPORT_ITEMS + (weighs ? G : 0);  // numbers that the host reads
    TRY(arena_1d(memory, &x->shared, FP64, chunks + told));
    TRY(arena_1d(memory, &x->micro_loss, FP64, B));
    if (weighs) TRY(arena_1d(memory, &x->micro_counts, FP64, B));
    for (result_slot *s = x->slot; s < x->slot + slots; s++) {
        TRY(arena_1d(staging, &s->loss, FP64, told));
        TRY(arena_1d(staging, &s->report, FP64, REPORT_ITEMS));
        for (int k = 0; k < 2; k++) TRY(arena_1d(staging, &s->state[k], INT32, words));
        TRY(arena_1d(staging, &s->lr, FP32, 1));
    }
    if (slots > 1) TRY(arena_1d(staging, &x->revoked, INT32, 1));
    if (slots > 1) TRY(arena_1d(memory, &x->seen, INT32, 1));
    return arena_1d(staging, &x->host_void, FP64, 1);
}

err_t results_commit(results *x, device *dev) {
    double *at = x->shared.data;
    x->sums.data = at;
    x->sample_loss.data = at + tensor_count(&x->sums);
    x->reports.data = at + tensor_count(&x->sums) + tensor_count(&x->sample_loss);
    if (x->sample_counts.dims) x->sample_counts.data = (double *)x->reports.data + tensor_count(&x->reports);
    *(double *)x->host_void.data = NAN;
    if (x->revoked.data) *(int32_t *)x->revoked.data = 0;
    for (int k = 0; k < x->slots; k++) TRY(event_open(dev, &x->slot[k].done));
    return ERR_OK;
}

void results_close(results *x) {
    for (int k = 0; k < 2; k++)
        if (x->slot[k].done) event_close(x->slot[k].done);
    free(x->sums_at);
    *x = (results){0};
}

double results_loss(const results *x, const result_slot *of, int64_t losses) {
    int64_t G = x->sample_loss.size[0];
    const double *each = of->loss.data, *count = each + G + tensor_count(&x->reports);
    double loss = 0, counted = 0;
    for (int64_t i = 0; i < G; i++) loss += each[i];
    if (!x->sample_counts.dims) return loss / (double)G;
    for (int64_t i = 0; i < G; i++) counted += count[i];
    return loss * (double)losses / counted;
}
