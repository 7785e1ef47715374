// gpu/cpu/kernel/optimizer.c: whether a step counts, and what it does to the weights. Both read and write step_state in
// the device's memory, so that on other devices the host is not involved.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/stochastic.h"
#include "gpu/cpu/kernel/typed.h"

// The loss scale is multiplied in FP32. Beyond these bounds it is of no use to any half-precision gradient.
#define SCALE_MOST 0x1p24f
#define SCALE_LEAST 0x1p-14f

// Which part of the step's losses counts.
static double counted_share(const step_decide_args *args) {
    const double *count = args->counts ? args->counts->data : NULL;
    double total = 0;
    for (int64_t i = 0; count && i < tensor_count(args->counts); i++) total += count[i];
    return count ? total / (double)args->losses : 1;
}

static void advance(step_scalar *x) { x->value = x->factor * x->value + x->addend; }

// Is a finite norm far above those of the steps before?
static bool is_outlier(const step_state *s, const step_rules *r, double norm) {
    return r->skip_norm > 0 && s->norms >= NORMS_LEAST && norm > r->skip_norm * s->norm_mean;
}

static void count_norm(step_state *s, double norm) {
    if (s->norms < NORMS_MOST) s->norms++;
    s->norm_mean += (norm - s->norm_mean) / (double)s->norms;
}

static bool is_whole(const step_decide_args *args) {
    for (int k = 0; k < args->ranks; k++)
        if (!(args->ended[k * args->apart] >= 1)) return false;
    return !args->revoked || *args->revoked == 0;
}

// A step counts when the norm is finite and no outlier. This step's gradient is unscaled by the scale that it was
// computed with; a new scale holds from the next step on.
err_t KERNEL(step_decide)(const step_decide_args *args, stream *s) {
    (void)s;
    assert(args->sums->type == FP64);
    if (!is_whole(args)) return args->state->apply = 0, ERR_OK;
    const double *sum = args->sums->data;
    int64_t n = tensor_count(args->sums);
    double total = 0;
    for (int64_t i = 0; i < n; i++) total += sum[i];
    if (args->rules->islands) total /= args->rules->islands;
    double share = counted_share(args), scale = args->state->loss_scale * share,
           norm = share > 0 ? __builtin_sqrt(total) / scale : __builtin_nan("");
    bool finite = norm <= 0x1.fffffffffffffp1023;  // false for NaN too
    args->state->grad_norm = norm;
    args->state->apply = finite && !is_outlier(args->state, args->rules, norm);
    args->state->grad_factor = 0;
    if (!finite) {
        args->state->skipped++;
        if (share == 0) return ERR_OK;
        args->state->good_steps = 0;
        if (args->rules->dynamic_scale && args->state->loss_scale > SCALE_LEAST) args->state->loss_scale *= 0.5f;
        return ERR_OK;
    }
    if (!args->state->apply) return args->state->skipped++, ERR_OK;
    if (args->rules->skip_norm > 0) count_norm(args->state, norm);
    double clip = args->rules->grad_clip > 0 && norm > args->rules->grad_clip ? args->rules->grad_clip / norm : 1.0;
    args->state->grad_factor = (float)(clip / scale);
    args->state->updates++;
    for (int k = 0; k < args->scalar_count; k++) advance(&args->scalars[k]);
    args->state->good_steps++;
    if (args->rules->dynamic_scale && args->state->good_steps >= args->rules->scale_window) {
        if (args->state->loss_scale < SCALE_MOST) args->state->loss_scale *= 2.0f;
        args->state->good_steps = 0;
    }
    return ERR_OK;
}

// --- updates: an optimizer says what becomes of sixteen masters. The walk over the elements, and the rounding of the
// masters to w, are the same for all

typedef enum { ADAMW, SGD } rule;

typedef struct update_job {
    dtype type;  // of w
    void *w;
    float *master;
    const float *grad;
    int64_t count;
    float factor;
    const rounding_key *round;
    uint32_t t;  // for the rounding
    struct {
        float *m, *v, keep, step, beta1, rest1, beta2, rest2, correct2, eps;
    } adamw;
    struct {
        float *buf, lr, decay, momentum, ratio;
        bool nesterov;
    } sgd;
} update_job;

// The arithmetic, once: m and v decay and take in g; the weight decays, then moves against m' / (sqrt(v') + eps).
// n elements from i on; returns the masters.
BODY vf adamw_vector(const update_job *j, int64_t i, int64_t n) {
    vf g = vf_mul(typed_load_n(j->grad, FP32, i, n), vf_set1(j->factor));
    vf m = vf_fma(vf_set1(j->adamw.beta1), typed_load_n(j->adamw.m, FP32, i, n), vf_mul(vf_set1(j->adamw.rest1), g));
    vf v = vf_fma(vf_set1(j->adamw.beta2), typed_load_n(j->adamw.v, FP32, i, n),
                  vf_mul(vf_set1(j->adamw.rest2), vf_mul(g, g)));
    vf kept = vf_mul(typed_load_n(j->master, FP32, i, n), vf_set1(j->adamw.keep));
    vf size = vf_div(m, vf_fma(vf_sqrt(v), vf_set1(j->adamw.correct2), vf_set1(j->adamw.eps)));
    vf master = vf_fnma(vf_set1(j->adamw.step), size, kept);
    typed_store_n(j->adamw.m, FP32, i, m, n);
    typed_store_n(j->adamw.v, FP32, i, v, n);
    typed_store_n(j->master, FP32, i, master, n);
    return master;
}

// The decay is part of the gradient, and the ratio is of both; the weight moves against what the buffer has gathered,
// or, with nesterov, against what it will have gathered when the next gradient is the same. A ratio of 1 moves no bit.
BODY vf sgd_vector(const update_job *j, int64_t i, int64_t n) {
    vf master = typed_load_n(j->master, FP32, i, n);
    vf g = vf_fma(vf_set1(j->sgd.decay), master, vf_mul(typed_load_n(j->grad, FP32, i, n), vf_set1(j->factor)));
    g = vf_mul(vf_set1(j->sgd.ratio), g);
    if (j->sgd.buf) {
        vf buf = vf_fma(vf_set1(j->sgd.momentum), typed_load_n(j->sgd.buf, FP32, i, n), g);
        typed_store_n(j->sgd.buf, FP32, i, buf, n);
        g = j->sgd.nesterov ? vf_fma(vf_set1(j->sgd.momentum), buf, g) : buf;
    }
    master = vf_fnma(vf_set1(j->sgd.lr), g, master);
    typed_store_n(j->master, FP32, i, master, n);
    return master;
}

// r is a constant wherever this is called, so that a loop has one body.
BODY vf update_vector(rule r, const update_job *j, int64_t i, int64_t n) {
    return r == ADAMW ? adamw_vector(j, i, n) : sgd_vector(j, i, n);
}

BODY void update_store(dtype t, rule r, const update_job *j, int64_t i, int64_t n) {
    typed_store_n(j->w, t, i, update_vector(r, j, i, n), n);
}
BODY void update_keep(rule r, const update_job *j, int64_t i, int64_t n) { update_vector(r, j, i, n); }

BODY void update_slice(dtype t, rule r, const update_job *j, int64_t from, int64_t to) {
    if (j->w) EACH_VECTOR(from, to, update_store, t, r, j);
    else EACH_VECTOR(from, to, update_keep, r, j);
}

// The elements of 64 * blocks words from `at` on, or those of them before `to`.
BODY void update_blocks_stochastic(dtype t, rule r, const update_job *j, int64_t at, int64_t to, int blocks,
                                   bool whole) {
    vi word[4 * PHILOX_BLOCKS];
    rounding_words(word, blocks, j->round, at, j->t);
    for (int k = 0; k < 4 * blocks && (whole || at + k * VL < to); k++) {
        int64_t i = at + k * VL, n = whole ? VL : to - i;
        typed_store_n(j->w, t, i, typed_stochastic(t, update_vector(r, j, i, n), word[k]), n);
    }
}

BODY void update_slice_stochastic(dtype t, rule r, const update_job *j, int64_t from, int64_t to) {
    int64_t at = from;
    for (; at + PHILOX_WORDS <= to; at += PHILOX_WORDS) update_blocks_stochastic(t, r, j, at, to, PHILOX_BLOCKS, true);
    for (; at < to; at += 4 * VL) update_blocks_stochastic(t, r, j, at, to, 1, false);
}

BODY void update_item(rule r, const void *ctx, int64_t item) {
    const update_job j = *(const update_job *)ctx;
    int64_t from = item * SLICE, to = slice_end(item, j.count);
    if (!j.round) BY_TYPE(j.type, update_slice, r, &j, from, to);
    else if (j.type == BF16) update_slice_stochastic(BF16, r, &j, from, to);
    else update_slice_stochastic(FP16, r, &j, from, to);
}

static void adamw_item(void *ctx, int64_t item, int thread) { (void)thread, update_item(ADAMW, ctx, item); }
static void sgd_item(void *ctx, int64_t item, int thread) { (void)thread, update_item(SGD, ctx, item); }

// What every update needs, from what every update's arguments have.
static update_job update_of(const tensor *w, const tensor *master, const tensor *grad, const step_state *state,
                            const rounding_key *round) {
    int64_t count = tensor_count(master);
    assert(master->type == FP32 && grad->type == FP32 && tensor_count(grad) == count &&
           (!w || tensor_count(w) == count));
    assert(!round || (w && (w->type == BF16 || w->type == FP16) && round->first % 64 == 0));
    return (update_job){
        .type = w ? w->type : FP32,
        .w = w ? w->data : NULL,
        .master = master->data,
        .grad = grad->data,
        .count = count,
        .factor = state->grad_factor,
        .round = round,
        .t = (uint32_t)state->updates,
    };
}

// 0: a factor that is not given.
static double times(double lr, double factor) { return factor > 0 ? lr * factor : lr; }

// The constants of a step are computed in double and rounded once: step = lr / (1 - beta1^t), and the factor 1 / sqrt(1
// - beta2^t) that
// makes sqrt(v') of sqrt(v).  moves: 28 + sizeof(E) bytes a weight; memory bound
err_t KERNEL(adamw)(const adamw_args *args, stream *s) {
    update_job j = update_of(args->w, args->master, args->grad, args->state, args->round);
    assert(args->m->type == FP32 && args->v->type == FP32 && tensor_count(args->m) == j.count &&
           tensor_count(args->v) == j.count);
    if (!args->state->apply) return ERR_OK;
    double lr = times(args->state->lr, args->rules->lr_factor);
    j.adamw.m = args->m->data;
    j.adamw.v = args->v->data;
    j.adamw.keep = (float)(1 - lr * args->rules->weight_decay);
    j.adamw.step = (float)(lr / (1 - args->power[0].value));
    j.adamw.beta1 = (float)args->rules->beta1;
    j.adamw.rest1 = (float)(1 - args->rules->beta1);
    j.adamw.beta2 = (float)args->rules->beta2;
    j.adamw.rest2 = (float)(1 - args->rules->beta2);
    j.adamw.correct2 = (float)(1 / __builtin_sqrt(1 - args->power[1].value));
    j.adamw.eps = (float)args->rules->eps;
    pool_run(s->workers, slices(j.count), adamw_item, &j);
    return ERR_OK;
}

// moves: 20 + sizeof(E) bytes a weight, 12 + sizeof(E) without momentum; memory bound
err_t KERNEL(sgd)(const sgd_args *args, stream *s) {
    update_job j = update_of(args->w, args->master, args->grad, args->state, args->round);
    assert((args->buf != NULL) == (args->rules->momentum != 0));
    assert(!args->buf || (args->buf->type == FP32 && tensor_count(args->buf) == j.count));
    if (!args->state->apply) return ERR_OK;
    j.sgd.buf = args->buf ? args->buf->data : NULL;
    j.sgd.lr = (float)times(args->state->lr, args->rules->lr_factor);
    if (args->rules->factor > 0) j.factor = (float)args->rules->factor;
    j.sgd.decay = (float)args->rules->weight_decay;
    j.sgd.momentum = (float)args->rules->momentum;
    j.sgd.ratio = args->ratio ? *args->ratio : 1;
    j.sgd.nesterov = args->rules->nesterov;
    pool_run(s->workers, slices(j.count), sgd_item, &j);
    return ERR_OK;
}

// The root of sums from .. to-1, added in order.
static double root_of(const tensor *sums, int from, int to) {
    const double *x = sums->data;
    double total = 0;
    for (int i = from; i < to; i++) total += x[i];
    return __builtin_sqrt(total);
}

// --- what Muon orthogonalises ----------------------------------------------------------------------------------------

typedef struct direction_job {
    float *d, *m;
    const float *grad;
    int64_t count;
    float factor, momentum, rest;
    bool apply;
} direction_job;

BODY void direction_vector(const direction_job *j, int64_t i, int64_t n) {
    vf g = vf_mul(vf_mul(typed_load_n(j->grad, FP32, i, n), vf_set1(j->factor)), vf_set1(j->rest));
    vf m = vf_fma(vf_set1(j->momentum), typed_load_n(j->m, FP32, i, n), g);
    typed_store_n(j->m, FP32, i, m, n);
    typed_store_n(j->d, FP32, i, vf_fma(vf_set1(j->momentum), m, g), n);
}

static void direction_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const direction_job j = *(const direction_job *)ctx;
    int64_t from = item * SLICE, to = slice_end(item, j.count);
    if (j.apply) EACH_VECTOR(from, to, direction_vector, &j);
    else
        for (int64_t i = from; i < to; i++) j.d[i] = 0;
}

// moves: 16 bytes a weight; memory bound
err_t KERNEL(muon_direction)(const muon_direction_args *args, stream *s) {
    direction_job j = {.d = args->d->data,
                       .m = args->m->data,
                       .grad = args->grad->data,
                       .count = tensor_count(args->m),
                       .factor = args->state->grad_factor,
                       .momentum = (float)args->momentum,
                       .rest = (float)(1 - args->momentum),
                       .apply = args->state->apply};
    assert(args->d->type == FP32 && args->m->type == FP32 && args->grad->type == FP32);
    assert(tensor_count(args->d) == j.count && tensor_count(args->grad) == j.count);
    pool_run(s->workers, slices(j.count), direction_item, &j);
    return ERR_OK;
}

typedef struct normalize_job {
    float *x, factor;
    int64_t count;
} normalize_job;

BODY void normalize_vector(const normalize_job *j, int64_t i, int64_t n) {
    typed_store_n(j->x, FP32, i, vf_mul(typed_load_n(j->x, FP32, i, n), vf_set1(j->factor)), n);
}

static void normalize_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const normalize_job j = *(const normalize_job *)ctx;
    EACH_VECTOR(item * SLICE, slice_end(item, j.count), normalize_vector, &j);
}

// moves: 8 bytes an element; memory bound
err_t KERNEL(normalize)(const normalize_args *args, stream *s) {
    normalize_job j = {.x = args->x->data, .count = tensor_count(args->x)};
    int64_t chunks = tensor_count(args->sums);
    assert(args->x->type == FP32 && args->sums->type == FP64 && chunks == (j.count + CHUNK - 1) / CHUNK);
    double norm = root_of(args->sums, 0, (int)chunks);
    j.factor = (float)(1 / (norm > args->eps ? norm : args->eps));
    pool_run(s->workers, slices(j.count), normalize_item, &j);
    return ERR_OK;
}

// --- ratios of rows --------------------------------------------------------------------------------------------------

// On one thread: a model has a few thousand chunks.
err_t KERNEL(lars_ratio)(const lars_ratio_args *args, stream *s) {
    (void)s;
    const lars_rules *r = args->rules;
    const int32_t *at = args->at->data;
    float *ratio = args->ratio->data;
    int64_t rows = tensor_count(args->ratio);
    assert(args->ratio->type == FP32 && args->at->type == INT32 && tensor_count(args->at) == rows + 1);
    assert(args->grads->type == FP64 && args->weights->type == FP64);
    for (int64_t i = 0; args->state->apply && i < rows; i++) {
        double w = root_of(args->weights, at[i], at[i + 1]);
        double g = root_of(args->grads, at[i], at[i + 1]) * (double)args->state->grad_factor;
        ratio[i] = w > 0 && g > 0 ? (float)(r->trust * w / (g + r->weight_decay * w + r->eps)) : 1;
    }
    return ERR_OK;
}

// --- running statistics ----------------------------------------------------------------------------------------------

typedef struct average_job {
    float *x;
    const float *sum;
    float share, momentum;
    int64_t count;
} average_job;

BODY void average_vector(const average_job *j, int64_t i, int64_t n) {
    vf x = typed_load_n(j->x, FP32, i, n), mean = vf_mul(typed_load_n(j->sum, FP32, i, n), vf_set1(j->share));
    typed_store_n(j->x, FP32, i, vf_fma(vf_set1(j->momentum), vf_sub(mean, x), x), n);
}

static void average_item(void *ctx, int64_t item, int thread) {
    const average_job *j = ctx;
    (void)thread;
    EACH_VECTOR(item * SLICE, slice_end(item, j->count), average_vector, j);
}

// A few channels, or all weights. moves: 12 bytes an element; memory bound
err_t KERNEL(average)(const average_args *args, stream *s) {
    average_job j = {args->x->data, args->sum->data, (float)(1.0 / (double)args->count), args->momentum,
                     tensor_count(args->x)};
    assert(args->x->type == FP32 && args->sum->type == FP32 && tensor_count(args->sum) == j.count && args->count >= 1);
    if (args->state->apply) pool_run(s->workers, slices(j.count), average_item, &j);
    return ERR_OK;
}
