// gpu/cuda/tune.c: which of cuBLASLt's algorithms is the fastest for a plan, and keeps what the plan promises: the same
// bits when it runs again, and for a part of its rows the same bits as for all of them. The heuristic knows neither the
// caches' state nor the clocks that the device has under load, and is often 10 % off. Neither promise is in cuBLASLt's
// documentation for every algorithm, so both are tested.
#include "gpu/cuda/plans.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TUNE_ROUNDS = 5 };
static const double TUNE_MS = 4;  // of a round, at least

// What a product reads and writes, on the device.
typedef struct bench_operands {
    device *dev;
    stream *s;
    event *from, *to;
    tensor a, b, bias, d, again;
    void *differ;
} bench_operands;

static err_t new_tensor(device *d, stream *s, tensor *t, dtype type, int64_t rows, int64_t columns, uint64_t seed) {
    *t = (tensor){NULL, type, 2, {rows, columns, 1, 1}};
    TRY(cuda_alloc(d, MEMORY_DEVICE, tensor_bytes(t), &t->data));
    return seed ? cuda_random_fill(&(random_fill_args){.y = t, .seed = seed}, s) : ERR_OK;
}

static err_t open_operands(bench_operands *o, const plan_key *k) {
    TRY(new_tensor(o->dev, o->s, &o->a, (dtype)k->type, k->ta ? k->k : k->m, k->lda, 1));
    TRY(new_tensor(o->dev, o->s, &o->b, (dtype)k->type, k->tb ? k->n : k->k, k->ldb, 2));
    TRY(new_tensor(o->dev, o->s, &o->bias, (dtype)k->d_type, 1, k->n, 3));
    TRY(new_tensor(o->dev, o->s, &o->d, (dtype)k->d_type, k->m, k->n, 0));
    TRY(new_tensor(o->dev, o->s, &o->again, (dtype)k->d_type, k->m, k->n, 0));
    TRY(cuda_alloc(o->dev, MEMORY_DEVICE, sizeof(int32_t), &o->differ));
    TRY(cuda_event_open_timed(o->dev, &o->from));
    return cuda_event_open_timed(o->dev, &o->to);
}

static void close_operands(bench_operands *o) {
    tensor *const all[] = {&o->a, &o->b, &o->bias, &o->d, &o->again};
    (void)cuda_stream_wait(o->s);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->data) cuda_free(o->dev, MEMORY_DEVICE, all[i]->data, tensor_bytes(all[i]));
    if (o->differ) cuda_free(o->dev, MEMORY_DEVICE, o->differ, sizeof(int32_t));
    if (o->from) cuda_event_close(o->from);
    if (o->to) cuda_event_close(o->to);
}

// Rows first .. first + m - 1 of the product, into the same rows of `to`.
static err_t run_rows(matmul_plans *p, plan *e, const bench_operands *o, const tensor *to, int64_t first, int64_t m) {
    size_t a_row = (size_t)e->key.lda * dtype_bytes(e->key.type), d_row = (size_t)e->key.n * dtype_bytes(e->key.d_type);
    char *out = (char *)to->data + (size_t)first * d_row;
    TRY(plan_set_rows(p, e, m));
    return plan_run(p, e,
                    &(plan_operands){.m = m,
                                     .out = out,
                                     .c = out,
                                     .a = (const char *)o->a.data + (size_t)first * a_row,
                                     .b = o->b.data,
                                     .bias = o->bias.data},
                    o->s);
}

static err_t compare(const bench_operands *o, bool *same) {
    int32_t differ = 1;
    TRY(memory_differs(o->differ, o->d.data, o->again.data, tensor_bytes(&o->d), o->s));
    TRY(cuda_copy(o->s, &differ, o->differ, sizeof differ));
    TRY(cuda_stream_wait(o->s));
    *same = !differ;
    return ERR_OK;
}

// Is the product the same a second time, and, where rows are a batch, in two parts, cut where no tile ends? o->d holds
// all of it.
static err_t keeps_bits(matmul_plans *p, plan *e, const bench_operands *o, bool *keeps) {
    int64_t M = e->key.m;
    const int64_t cuts[] = {M / 2, M * 3 / 8 + 1, 1, M - 1};
    TRY(run_rows(p, e, o, &o->again, 0, M));
    TRY(compare(o, keeps));
    for (size_t i = 0; !e->key.ta && *keeps && i < sizeof cuts / sizeof *cuts; i++) {
        const int64_t part[] = {cuts[i], M - cuts[i]};
        if (part[0] <= 0 || part[1] <= 0) continue;
        TRY(cuda_zero(o->s, o->again.data, tensor_bytes(&o->again)));
        for (int k = 0; k < 2 && *keeps; k++) {
            TRY(plan_set_rows(p, e, part[k]));
            *keeps = plan_possible(p, e, &e->algo);
            if (*keeps) TRY(run_rows(p, e, o, &o->again, k ? part[0] : 0, part[k]));
        }
        if (*keeps) TRY(compare(o, keeps));
    }
    return plan_set_rows(p, e, M);
}

static err_t time_calls(matmul_plans *p, plan *e, const bench_operands *o, int calls, double *ms) {
    TRY(cuda_event_record(o->from, o->s));
    for (int i = 0; i < calls; i++) TRY(run_rows(p, e, o, &o->d, 0, e->key.m));
    TRY(cuda_event_record(o->to, o->s));
    TRY(cuda_event_wait(o->to));
    TRY(cuda_event_elapsed(o->from, o->to, ms));
    *ms /= calls;
    return ERR_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The median of several rounds, in milliseconds. The first call, which may load code, is not timed.
static err_t time_plan(matmul_plans *p, plan *e, const bench_operands *o, double *ms) {
    double one, round[TUNE_ROUNDS];
    TRY(run_rows(p, e, o, &o->d, 0, e->key.m));
    TRY(time_calls(p, e, o, 1, &one));
    int calls = one > 0 && one < TUNE_MS ? (int)fmin(ceil(TUNE_MS / one), 200) : 1;
    for (int i = 0; i < TUNE_ROUNDS; i++) TRY(time_calls(p, e, o, calls, &round[i]));
    qsort(round, TUNE_ROUNDS, sizeof *round, by_value);
    *ms = round[TUNE_ROUNDS / 2];
    return ERR_OK;
}

// Times every candidate and tests its bits. *best: the fastest that keeps them, -1: none does.
static err_t try_all(matmul_plans *p, plan *e, const bench_operands *o, const cublasLtMatmulAlgo_t *candidate,
                     int count, int *best, plan_tuning *out) {
    *best = -1;
    for (int i = 0; i < count; i++) {
        double ms;
        bool keeps;
        if (!plan_possible(p, e, &candidate[i])) continue;
        plan_take(p, e, &candidate[i]);
        TRY(time_plan(p, e, o, &ms));
        TRY(keeps_bits(p, e, o, &keeps));
        out->tried++;
        if (i == 0) out->first_ms = ms;
        if (!keeps) out->refused++;
        else if (*best < 0 || ms < out->best_ms) *best = i, out->best_ms = ms;
    }
    return ERR_OK;
}

static err_t tune(matmul_plans *p, plan *e, bench_operands *o, plan_entry *x, plan_tuning *out) {
    cublasLtMatmulAlgo_t candidate[TUNE_MOST];
    int count, best;
    e->key = x->key;
    e->m = x->key.m;
    TRY(open_operands(o, &x->key));
    TRY(plan_describe(p, e, o->bias.data));
    TRY(plan_ask(p, e, TUNE_MOST, candidate, &count));
    e->candidates = count;
    TRY(try_all(p, e, o, candidate, count, &best, out));
    x->candidates = best >= 0;
    if (best >= 0) x->candidate[0] = candidate[best];
    else {
        e->candidates = 0;
        TRY(time_plan(p, e, o, &out->best_ms));
    }
    plan_write(p, x, out->text);
    return ERR_OK;
}

err_t cuda_plans_tune(device *d, stream *s, const char *text, plan_tuning *out) {
    matmul_plans *p = ((cuda_device *)d)->plans;
    bench_operands o = {.dev = d, .s = s};
    plan_entry x = {0};
    plan e = {0};
    *out = (plan_tuning){0};
    TRY(plan_read(p, text, &x));
    plan_name(&x.key, x.key.m, out->name);
    out->flops = 2.0 * (double)x.key.m * (double)x.key.n * (double)x.key.k;
    err_t rc = tune(p, &e, &o, &x, out);
    close_operands(&o);
    plan_drop(p, &e);
    return rc == ERR_OK ? rc : err_pass(__FILE__, __LINE__, __func__, rc);
}
