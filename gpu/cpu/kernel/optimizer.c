// gpu/cpu/kernel/optimizer.c: whether a step counts, and what it does to the weights. Both read and write step_state in
// the device's memory, so that on other devices the host is not involved.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/stochastic.h"
#include "gpu/cpu/kernel/typed.h"

// The loss scale is multiplied in FP32. Beyond these bounds it is of no use to any half-precision gradient.
#define SCALE_MOST 0x1p24f
#define SCALE_LEAST 0x1p-14f

// A step counts when the norm is finite. This step's gradient is unscaled by the scale that it was computed with; a new
// scale holds from the next step on.
err_t KERNEL(step_decide)(const step_decide_args *args, stream *s) {
    (void)s;
    assert(args->sums->type == FP64);
    const double *sum = args->sums->data;
    int64_t n = tensor_count(args->sums);
    double total = 0;
    for (int64_t i = 0; i < n; i++) total += sum[i];
    double scale = args->state->loss_scale, norm = __builtin_sqrt(total) / scale;
    bool finite = norm <= 0x1.fffffffffffffp1023;  // false for NaN too
    args->state->grad_norm = norm;
    args->state->apply = finite;
    args->state->grad_factor = 0;
    if (!finite) {
        args->state->skipped++;
        args->state->good_steps = 0;
        if (args->rules->dynamic_scale && args->state->loss_scale > SCALE_LEAST) args->state->loss_scale *= 0.5f;
        return ERR_OK;
    }
    double clip = args->rules->grad_clip > 0 && norm > args->rules->grad_clip ? args->rules->grad_clip / norm : 1.0;
    args->state->grad_factor = (float)(clip / scale);
    args->state->adam_t++;
    args->state->beta1_power *= args->rules->beta1;
    args->state->beta2_power *= args->rules->beta2;
    args->state->good_steps++;
    if (args->rules->dynamic_scale && args->state->good_steps >= args->rules->scale_window) {
        if (args->state->loss_scale < SCALE_MOST) args->state->loss_scale *= 2.0f;
        args->state->good_steps = 0;
    }
    return ERR_OK;
}

typedef struct adamw_job {
    dtype type;  // of w
    void *w;
    float *master, *m, *v;
    const float *grad;
    int64_t count;
    float factor, keep, step, beta1, rest1, beta2, rest2, correct2, eps;
    const rounding_key *round;
    uint32_t t;  // for the rounding
} adamw_job;

// The arithmetic, once: m and v decay and take in g; the weight decays, then moves against m' / (sqrt(v') + eps).
// n elements from i on; returns the masters.
BODY vf adamw_vector(const adamw_job *j, int64_t i, int64_t n) {
    vf g = vf_mul(typed_load_n(j->grad, FP32, i, n), vf_set1(j->factor));
    vf m = vf_fma(vf_set1(j->beta1), typed_load_n(j->m, FP32, i, n), vf_mul(vf_set1(j->rest1), g));
    vf v = vf_fma(vf_set1(j->beta2), typed_load_n(j->v, FP32, i, n), vf_mul(vf_set1(j->rest2), vf_mul(g, g)));
    vf kept = vf_mul(typed_load_n(j->master, FP32, i, n), vf_set1(j->keep));
    vf size = vf_div(m, vf_fma(vf_sqrt(v), vf_set1(j->correct2), vf_set1(j->eps)));
    vf master = vf_fnma(vf_set1(j->step), size, kept);
    typed_store_n(j->m, FP32, i, m, n);
    typed_store_n(j->v, FP32, i, v, n);
    typed_store_n(j->master, FP32, i, master, n);
    return master;
}

BODY void adamw_store(dtype t, const adamw_job *j, int64_t i, int64_t n) { typed_store_n(j->w, t, i, adamw_vector(j, i, n), n); }
BODY void adamw_keep(const adamw_job *j, int64_t i, int64_t n) { adamw_vector(j, i, n); }

BODY void adamw_slice(dtype t, const adamw_job *j, int64_t from, int64_t to) {
    if (j->w) EACH_VECTOR(from, to, adamw_store, t, j);
    else EACH_VECTOR(from, to, adamw_keep, j);
}

// The elements of 64 * blocks words from `at` on, or those of them before `to`.
BODY void adamw_blocks_stochastic(dtype t, const adamw_job *j, int64_t at, int64_t to, int blocks, bool whole) {
    vi word[4 * PHILOX_BLOCKS];
    rounding_words(word, blocks, j->round, at, j->t);
    for (int k = 0; k < 4 * blocks && (whole || at + k * VL < to); k++) {
        int64_t i = at + k * VL, n = whole ? VL : to - i;
        typed_store_n(j->w, t, i, typed_stochastic(t, adamw_vector(j, i, n), word[k]), n);
    }
}

BODY void adamw_slice_stochastic(dtype t, const adamw_job *j, int64_t from, int64_t to) {
    int64_t at = from;
    for (; at + PHILOX_WORDS <= to; at += PHILOX_WORDS) adamw_blocks_stochastic(t, j, at, to, PHILOX_BLOCKS, true);
    for (; at < to; at += 4 * VL) adamw_blocks_stochastic(t, j, at, to, 1, false);
}

static void adamw_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const adamw_job j = *(const adamw_job *)ctx;
    int64_t from = item * SLICE, to = slice_end(item, j.count);
    if (!j.round) BY_TYPE(j.type, adamw_slice, &j, from, to);
    else if (j.type == BF16) adamw_slice_stochastic(BF16, &j, from, to);
    else adamw_slice_stochastic(FP16, &j, from, to);
}

// The constants of a step are computed in double and rounded once: step = lr / (1 - beta1^t), and the factor 1 / sqrt(1 - beta2^t) that
// makes sqrt(v') of sqrt(v).  moves: 28 + sizeof(E) bytes a weight; memory bound
err_t KERNEL(adamw)(const adamw_args *args, stream *s) {
    int64_t count = tensor_count(args->master);
    assert(args->master->type == FP32 && args->m->type == FP32 && args->v->type == FP32 && args->grad->type == FP32);
    assert(tensor_count(args->m) == count && tensor_count(args->v) == count && tensor_count(args->grad) == count);
    assert(!args->w || tensor_count(args->w) == count);
    assert(!args->round ||
           (args->w && (args->w->type == BF16 || args->w->type == FP16) && args->round->first % 64 == 0));
    if (!args->state->apply) return ERR_OK;
    double lr = args->state->lr;
    adamw_job j = {
        .type = args->w ? args->w->type : FP32,
        .w = args->w ? args->w->data : NULL,
        .master = args->master->data,
        .m = args->m->data,
        .v = args->v->data,
        .grad = args->grad->data,
        .count = count,
        .factor = args->state->grad_factor,
        .keep = (float)(1 - lr * args->rules->weight_decay),
        .step = (float)(lr / (1 - args->state->beta1_power)),
        .beta1 = (float)args->rules->beta1,
        .rest1 = (float)(1 - args->rules->beta1),
        .beta2 = (float)args->rules->beta2,
        .rest2 = (float)(1 - args->rules->beta2),
        .correct2 = (float)(1 / __builtin_sqrt(1 - args->state->beta2_power)),
        .eps = (float)args->rules->eps,
        .round = args->round,
        .t = (uint32_t)args->state->adam_t,
    };
    pool_run(s->workers, slices(count), adamw_item, &j);
    return ERR_OK;
}
