// gpu/cuda/optimizer.cu: the gradient's norm, whether a step counts, and what it does to the weights. All of it gives
// the bits of the CPU: orders are written down (gpu/ops.h), and only operations that IEEE 754 fixes are used: + - * /
// sqrt and fma, which nvcc rounds to nearest without flushing denormals unless told otherwise.
#include "gpu/cuda/kernel.h"

// --- sum_squares -----------------------------------------------------------------------------------------------------

enum { LANES = 8, CHUNKS_A_WARP = WARP / LANES, AHEAD = 16 };  // AHEAD: loads of a lane in flight

// sum_squares: a lane is an accumulator, eight lanes a chunk, a warp four chunks. Each load of a warp takes four whole
// sectors of 32 bytes.
// sums       the contract's accumulators and tree, in double: a square of an FP32 number has 48 bits and is exact
//            there, so that one fma gives the bits of product and sum. What an accumulator takes is a chain of 2048
//            additions; chunks go side by side
// moves      4 bytes an element: memory bound where double has a 64th of the FP32 rate or more
// reference  gpu/cpu/kernel/elementwise.c: sum_squares
__global__ void __launch_bounds__(WARP)
    sum_squares_kernel(double *sums, const float *g, int64_t chunks, int64_t count) {
    int64_t chunk = (int64_t)blockIdx.x * CHUNKS_A_WARP + threadIdx.x / LANES;
    int lane = threadIdx.x % LANES;
    int64_t rest = chunk < chunks ? count - chunk * CHUNK : 0;
    int n = rest < CHUNK ? (int)rest : (int)CHUNK;
    const float *x = g + (chunk < chunks ? chunk * CHUNK : 0);
    double sum = 0;
    for (int at = lane; at < n; at += LANES * AHEAD) {
        float v[AHEAD];
#pragma unroll
        // + 0^2 changes no bit of a sum that is not -0
        for (int k = 0; k < AHEAD; k++) v[k] = at + k * LANES < n ? x[at + k * LANES] : 0.0f;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) sum = fma((double)v[k], (double)v[k], sum);
    }
#pragma unroll
    for (int step = LANES / 2; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (chunk < chunks && lane == 0) sums[chunk] = sum;
}

err_t cuda_sum_squares(const sum_squares_args *args, stream *s) {
    int64_t count = tensor_count(args->g), chunks = ceil_div(count, CHUNK);
    assert(args->sums->type == FP64 && args->g->type == FP32 && tensor_count(args->sums) == chunks);
    LAUNCH(sum_squares_kernel, (unsigned)ceil_div(chunks, CHUNKS_A_WARP), WARP, 0, s, (double *)args->sums->data,
           (const float *)args->g->data, chunks, count);
    return ERR_OK;
}

// --- step_decide -----------------------------------------------------------------------------------------------------

// The loss scale is multiplied in FP32. Beyond these bounds it is of no use to any half-precision gradient.
#define SCALE_MOST 0x1p24f
#define SCALE_LEAST 0x1p-14f

__device__ static bool is_outlier(const step_state *s, const step_rules *r, double norm) {
    return r->skip_norm > 0 && s->norms >= NORMS_LEAST && norm > r->skip_norm * s->norm_mean;
}

__device__ static void count_norm(step_state *s, double norm) {
    if (s->norms < NORMS_MOST) s->norms++;
    s->norm_mean += (norm - s->norm_mean) / (double)s->norms;
}

// The decision, line by line as in gpu/cpu/kernel/optimizer.c.
__device__ static void decide(step_state *state, double total, double share, step_rules r, step_scalar *scalars,
                              int scalar_count) {
    if (r.islands) total /= r.islands;
    double scale = state->loss_scale * share, norm = share > 0 ? sqrt(total) / scale : nan("");
    bool finite = norm <= 0x1.fffffffffffffp1023;  // false for NaN too
    state->grad_norm = norm;
    state->apply = finite && !is_outlier(state, &r, norm);
    state->grad_factor = 0;
    if (!finite) {
        state->skipped++;
        if (share == 0) return;
        state->good_steps = 0;
        if (r.dynamic_scale && state->loss_scale > SCALE_LEAST) state->loss_scale *= 0.5f;
        return;
    }
    if (!state->apply) {
        state->skipped++;
        return;
    }
    if (r.skip_norm > 0) count_norm(state, norm);
    double clip = r.grad_clip > 0 && norm > r.grad_clip ? r.grad_clip / norm : 1.0;
    state->grad_factor = (float)(clip / scale);
    state->updates++;
    for (int k = 0; k < scalar_count; k++) scalars[k].value = scalars[k].factor * scalars[k].value + scalars[k].addend;
    state->good_steps++;
    if (r.dynamic_scale && state->good_steps >= r.scale_window) {
        if (state->loss_scale < SCALE_MOST) state->loss_scale *= 2.0f;
        state->good_steps = 0;
    }
}

// Of step_decide_args.
typedef struct wholeness {
    int ranks, apart;
    const double *ended;
    const int32_t *revoked;
} wholeness;

__device__ static bool is_whole(wholeness w) {
    for (int k = 0; k < w.ranks; k++)
        if (!(w.ended[k * w.apart] >= 1)) return false;
    return !w.revoked || *w.revoked == 0;
}

// step_decide: one block; one thread adds in order and decides. The order is the contract: a chain of about eight
// cycles a chunk, 40 us for 124 M weights, while the rest of the device is free.
// moves      8 bytes a chunk
// reference  gpu/cpu/kernel/optimizer.c
__global__ void __launch_bounds__(ORDERED_THREADS)
    step_decide_kernel(step_state *state, const double *sums, int64_t n, const double *counts, int64_t samples,
                       double losses, step_rules r, step_scalar *scalars, int scalar_count, wholeness w) {
    K_SMEM(double, room, [2][ORDERED_TILE]);
    double total = ordered_sum(sums, n, room), counted = counts ? ordered_sum(counts, samples, room) : losses;
    if (threadIdx.x != 0) return;
    if (is_whole(w)) decide(state, total, counted / losses, r, scalars, scalar_count);
    else state->apply = 0;
}

err_t cuda_step_decide(const step_decide_args *args, stream *s) {
    const tensor *counts = args->counts;
    assert(args->sums->type == FP64 && (!counts || counts->type == FP64));
    LAUNCH(step_decide_kernel, 1, ORDERED_THREADS, 0, s, args->state, (const double *)args->sums->data,
           tensor_count(args->sums), counts ? (const double *)counts->data : NULL, counts ? tensor_count(counts) : 0,
           counts ? (double)args->losses : 1.0, *args->rules, args->scalars, args->scalar_count,
           (wholeness){args->ranks, args->apart, args->ended, args->revoked});
    return ERR_OK;
}

// --- stochastic rounding: gpu/ops.h, rounding_key; line by line that of gpu/cpu/kernel/stochastic.h ------------------

// The words of the four elements of this call that begin with i, a multiple of four.
__device__ __forceinline__ void rounding_words(uint32_t *word, const rounding_key &key, int64_t i, uint32_t t) {
    uint64_t quad = (uint64_t)(key.first + i) / 4;
    philox4x32(word, key.seed, (uint32_t)quad, key.site, (uint32_t)(quad >> 32), t);
}

__device__ __forceinline__ void round_stochastic(bf16 *y, float x, uint32_t word) {
    uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) <= 0x7f7f0000u) x = __uint_as_float((bits + (word >> 16)) & 0xffff0000u);
    round_to(y, x);
}

__device__ __forceinline__ void round_stochastic(fp16 *y, float x, uint32_t word) {
    uint32_t magnitude = __float_as_uint(x) & 0x7fffffffu, sign = __float_as_uint(x) ^ magnitude;
    if (magnitude < 0x38800000u) {  // below 2^-14 halves are 2^-24 apart
        float a = __uint_as_float(magnitude) * 0x1p24f, whole = floorf(a),
              rest = (float)((1u << 24) - (word >> 8)) * 0x1p-24f;
        float up = rest <= a - whole ? 1.0f : 0.0f;
        x = __uint_as_float(sign | __float_as_uint((whole + up) * 0x1p-24f));
    } else if (magnitude <= 0x477fe000u) x = __uint_as_float(sign | ((magnitude + (word >> 19)) & ~0x1fffu));
    round_to(y, x);
}

// --- updates: four elements at a time --------------------------------------------------------------------------------

enum {
    UPDATE_THREADS = 256,
    UPDATE_GROUPS = 4,
    UPDATE_SPAN = UPDATE_THREADS * UPDATE_GROUPS * 4
};  // elements of a block; a thread's are groups of four

template <class T> struct alignas(4 * sizeof(T)) four { T v[4]; };

// Four elements from i on, of which those below `count` exist. WIDE: in one access where all four do.
template <bool WIDE, class T> __device__ __forceinline__ four<T> load4(const T *x, int64_t i, int64_t count) {
    if (WIDE && i + 4 <= count) return *reinterpret_cast<const four<T> *>(x + i);
    four<T> a;
#pragma unroll
    for (int k = 0; k < 4; k++) a.v[k] = i + k < count ? x[i + k] : 0.0f;
    return a;
}

template <bool WIDE, class T> __device__ __forceinline__ void store4(T *x, four<T> a, int64_t i, int64_t count) {
    if (WIDE && i + 4 <= count) {
        *reinterpret_cast<four<T> *>(x + i) = a;
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (i + k < count) x[i + k] = a.v[k];
}

// --- adamw -----------------------------------------------------------------------------------------------------------

typedef struct adam_job {
    void *w;
    float *master, *m, *v;
    const float *grad;
    int64_t count;
    const step_state *state;
    const step_scalar *power;
    adamw_rules rules;
    rounding_key round;
} adam_job;
typedef struct adam_step {
    float factor, keep, step, beta1, rest1, beta2, rest2, correct2, eps;
} adam_step;

// The constants of a step, in double and rounded once, as the CPU computes them.
__device__ static adam_step constants(const step_state *state, const step_scalar *power, adamw_rules r) {
    double lr = r.lr_factor > 0 ? state->lr * r.lr_factor : state->lr;
    adam_step c;
    c.factor = state->grad_factor;
    c.keep = (float)(1 - lr * r.weight_decay);
    c.step = (float)(lr / (1 - power[0].value));
    c.beta1 = (float)r.beta1, c.rest1 = (float)(1 - r.beta1);
    c.beta2 = (float)r.beta2, c.rest2 = (float)(1 - r.beta2);
    c.correct2 = (float)(1 / sqrt(1 - power[1].value));
    c.eps = (float)r.eps;
    return c;
}

// adamw: element by element; w may be NULL, or the master itself. WIDE: all five begin at a multiple of four elements.
// STOCHASTIC: w is rounded stochastically, with one philox for a thread's four elements; its registers cost a block on
// each processor.
// moves      28 + sizeof(E) bytes a weight; memory bound. Nothing but the state is read when the step was decided
//            against
// reference  gpu/cpu/kernel/optimizer.c, to the bit
template <class T, bool WIDE, bool STOCHASTIC>
__global__ void __launch_bounds__(UPDATE_THREADS, STOCHASTIC ? 4 : 5) adamw_kernel(adam_job j) {
    K_SMEM(adam_step, shared, [1]);
    if (!j.state->apply) return;
    if (threadIdx.x == 0) shared[0] = constants(j.state, j.power, j.rules);
    __syncthreads();
    const adam_step c = shared[0];
    for (int k = 0; k < UPDATE_GROUPS; k++) {
        int64_t i = (int64_t)blockIdx.x * UPDATE_SPAN + (k * UPDATE_THREADS + threadIdx.x) * 4;
        if (i >= j.count) return;
        four<float> grad = load4<WIDE>(j.grad, i, j.count), m = load4<WIDE>(j.m, i, j.count),
                    v = load4<WIDE>(j.v, i, j.count);
        four<float> master = load4<WIDE>(j.master, i, j.count);
        four<T> w;
        uint32_t word[4];
        if constexpr (STOCHASTIC) rounding_words(word, j.round, i, (uint32_t)j.state->updates);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float g = grad.v[e] * c.factor;
            m.v[e] = fmaf(c.beta1, m.v[e], c.rest1 * g);
            v.v[e] = fmaf(c.beta2, v.v[e], c.rest2 * (g * g));
            float size = m.v[e] / fmaf(sqrtf(v.v[e]), c.correct2, c.eps);
            master.v[e] = fmaf(-c.step, size, master.v[e] * c.keep);
            if constexpr (STOCHASTIC) round_stochastic(&w.v[e], master.v[e], word[e]);
            else round_to(&w.v[e], master.v[e]);
        }
        store4<WIDE>(j.m, m, i, j.count);
        store4<WIDE>(j.v, v, i, j.count);
        store4<WIDE>(j.master, master, i, j.count);
        if (j.w) store4<WIDE>((T *)j.w, w, i, j.count);
    }
}

template <class T, bool STOCHASTIC> static err_t adamw_of(const adam_job &j, stream *s) {
    size_t aligned = (uintptr_t)j.master | (uintptr_t)j.m | (uintptr_t)j.v | (uintptr_t)j.grad;
    unsigned grid = (unsigned)ceil_div(j.count, UPDATE_SPAN);
    if (aligned % 16 == 0 && (uintptr_t)j.w % sizeof(four<T>) == 0)
        LAUNCH((adamw_kernel<T, true, STOCHASTIC>), grid, UPDATE_THREADS, 0, s, j);
    else LAUNCH((adamw_kernel<T, false, STOCHASTIC>), grid, UPDATE_THREADS, 0, s, j);
    return ERR_OK;
}

err_t cuda_adamw(const adamw_args *args, stream *s) {
    int64_t count = tensor_count(args->master);
    assert(args->master->type == FP32 && args->m->type == FP32 && args->v->type == FP32 && args->grad->type == FP32);
    assert(tensor_count(args->m) == count && tensor_count(args->v) == count && tensor_count(args->grad) == count);
    assert(!args->w || tensor_count(args->w) == count);
    assert(!args->round ||
           (args->w && (args->w->type == BF16 || args->w->type == FP16) && args->round->first % 64 == 0));
    adam_job j = {args->w ? args->w->data : NULL,
                  (float *)args->master->data,
                  (float *)args->m->data,
                  (float *)args->v->data,
                  (const float *)args->grad->data,
                  count,
                  args->state,
                  args->power,
                  *args->rules,
                  args->round ? *args->round : rounding_key()};
    if (args->round && args->w->type == BF16) return adamw_of<bf16, true>(j, s);
    if (args->round) return adamw_of<fp16, true>(j, s);
    BY_TYPE(args->w ? args->w->type : FP32, T, TRY((adamw_of<T, false>(j, s))));
    return ERR_OK;
}

// --- sgd -------------------------------------------------------------------------------------------------------------

typedef struct sgd_job {
    void *w;
    float *master, *buf;
    const float *grad;
    int64_t count;
    const step_state *state;
    const float *ratio;
    float decay, momentum;
    bool nesterov;
    rounding_key round;
    double lr_factor;
    float factor;  // 0: the step's
} sgd_job;

// sgd: element by element; w may be NULL, or the master itself; buf is NULL without momentum. WIDE: all that there are
// begin at a multiple of four elements. STOCHASTIC: as adamw's.
// moves      20 + sizeof(E) bytes a weight, 12 + sizeof(E) without momentum; memory bound. Nothing but the state is
//            read when the step was decided against
// reference  gpu/cpu/kernel/optimizer.c, to the bit
template <class T, bool WIDE, bool STOCHASTIC>
__global__ void __launch_bounds__(UPDATE_THREADS, STOCHASTIC ? 4 : 5) sgd_kernel(sgd_job j) {
    if (!j.state->apply) return;
    const float factor = j.factor > 0 ? j.factor : j.state->grad_factor, ratio = j.ratio ? *j.ratio : 1.0f;
    const float lr = j.lr_factor > 0 ? (float)(j.state->lr * j.lr_factor) : j.state->lr;
    for (int k = 0; k < UPDATE_GROUPS; k++) {
        int64_t i = (int64_t)blockIdx.x * UPDATE_SPAN + (k * UPDATE_THREADS + threadIdx.x) * 4;
        if (i >= j.count) return;
        four<float> grad = load4<WIDE>(j.grad, i, j.count), master = load4<WIDE>(j.master, i, j.count), buf = {};
        four<T> w;
        uint32_t word[4];
        if (j.buf) buf = load4<WIDE>(j.buf, i, j.count);
        if constexpr (STOCHASTIC) rounding_words(word, j.round, i, (uint32_t)j.state->updates);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float g = ratio * fmaf(j.decay, master.v[e], grad.v[e] * factor);
            if (j.buf) {
                buf.v[e] = fmaf(j.momentum, buf.v[e], g);
                g = j.nesterov ? fmaf(j.momentum, buf.v[e], g) : buf.v[e];
            }
            master.v[e] = fmaf(-lr, g, master.v[e]);
            if constexpr (STOCHASTIC) round_stochastic(&w.v[e], master.v[e], word[e]);
            else round_to(&w.v[e], master.v[e]);
        }
        if (j.buf) store4<WIDE>(j.buf, buf, i, j.count);
        store4<WIDE>(j.master, master, i, j.count);
        if (j.w) store4<WIDE>((T *)j.w, w, i, j.count);
    }
}

template <class T, bool STOCHASTIC> static err_t sgd_of(const sgd_job &j, stream *s) {
    size_t aligned = (uintptr_t)j.master | (uintptr_t)j.buf | (uintptr_t)j.grad;
    unsigned grid = (unsigned)ceil_div(j.count, UPDATE_SPAN);
    if (aligned % 16 == 0 && (uintptr_t)j.w % sizeof(four<T>) == 0)
        LAUNCH((sgd_kernel<T, true, STOCHASTIC>), grid, UPDATE_THREADS, 0, s, j);
    else LAUNCH((sgd_kernel<T, false, STOCHASTIC>), grid, UPDATE_THREADS, 0, s, j);
    return ERR_OK;
}

err_t cuda_sgd(const sgd_args *args, stream *s) {
    int64_t count = tensor_count(args->master);
    assert(args->master->type == FP32 && args->grad->type == FP32 && tensor_count(args->grad) == count);
    assert((args->buf != NULL) == (args->rules->momentum != 0));
    assert(!args->buf || (args->buf->type == FP32 && tensor_count(args->buf) == count));
    assert(!args->w || tensor_count(args->w) == count);
    assert(!args->round ||
           (args->w && (args->w->type == BF16 || args->w->type == FP16) && args->round->first % 64 == 0));
    sgd_job j = {args->w ? args->w->data : NULL,
                 (float *)args->master->data,
                 args->buf ? (float *)args->buf->data : NULL,
                 (const float *)args->grad->data,
                 count,
                 args->state,
                 args->ratio,
                 (float)args->rules->weight_decay,
                 (float)args->rules->momentum,
                 args->rules->nesterov,
                 args->round ? *args->round : rounding_key(),
                 args->rules->lr_factor,
                 (float)args->rules->factor};
    if (args->round && args->w->type == BF16) return sgd_of<bf16, true>(j, s);
    if (args->round) return sgd_of<fp16, true>(j, s);
    BY_TYPE(args->w ? args->w->type : FP32, T, TRY((sgd_of<T, false>(j, s))));
    return ERR_OK;
}

// --- muon_direction --------------------------------------------------------------------------------------------------

// muon_direction: an element a thread.
// alias      d == grad
// moves      16 bytes a weight; memory bound
// reference  gpu/cpu/kernel/optimizer.c, to the bit
__global__ void __launch_bounds__(UPDATE_THREADS)
    muon_direction_kernel(float *d, float *m, const float *grad, int64_t count, const step_state *state, float momentum,
                          float rest) {
    int64_t i = (int64_t)blockIdx.x * UPDATE_THREADS + threadIdx.x;
    if (i >= count) return;
    if (!state->apply) {
        d[i] = 0;
        return;
    }
    float g = grad[i] * state->grad_factor * rest, next = fmaf(momentum, m[i], g);
    m[i] = next;
    d[i] = fmaf(momentum, next, g);
}

err_t cuda_muon_direction(const muon_direction_args *args, stream *s) {
    int64_t count = tensor_count(args->m);
    assert(args->d->type == FP32 && args->m->type == FP32 && args->grad->type == FP32);
    assert(tensor_count(args->d) == count && tensor_count(args->grad) == count);
    LAUNCH(muon_direction_kernel, (unsigned)ceil_div(count, UPDATE_THREADS), UPDATE_THREADS, 0, s,
           (float *)args->d->data, (float *)args->m->data, (const float *)args->grad->data, count, args->state,
           (float)args->momentum, (float)(1 - args->momentum));
    return ERR_OK;
}

// --- normalize -------------------------------------------------------------------------------------------------------

enum { NORMALIZE_SPAN = 64 * ORDERED_THREADS };  // elements of a block

// normalize: every block adds the sums in order, which a cache has; of a matrix of 4096 x 4096 there are 1024.
// alias      in place
// moves      8 bytes an element; memory bound
// reference  gpu/cpu/kernel/optimizer.c, to the bit
__global__ void __launch_bounds__(ORDERED_THREADS)
    normalize_kernel(float *x, const double *sums, int64_t chunks, int64_t count, double eps) {
    K_SMEM(double, room, [2][ORDERED_TILE]);
    K_SMEM(float, factor, [1]);
    double norm = sqrt(ordered_sum(sums, chunks, room));
    if (threadIdx.x == 0) factor[0] = (float)(1 / (norm > eps ? norm : eps));
    __syncthreads();
    int64_t from = (int64_t)blockIdx.x * NORMALIZE_SPAN, to = from + NORMALIZE_SPAN;
    for (int64_t i = from + threadIdx.x; i < count && i < to; i += ORDERED_THREADS) x[i] *= factor[0];
}

err_t cuda_normalize(const normalize_args *args, stream *s) {
    int64_t count = tensor_count(args->x), chunks = tensor_count(args->sums);
    assert(args->x->type == FP32 && args->sums->type == FP64 && chunks == ceil_div(count, CHUNK));
    LAUNCH(normalize_kernel, (unsigned)ceil_div(count, NORMALIZE_SPAN), ORDERED_THREADS, 0, s, (float *)args->x->data,
           (const double *)args->sums->data, chunks, count, args->eps);
    return ERR_OK;
}

// --- lars_ratio ------------------------------------------------------------------------------------------------------

// lars_ratio: a block a row, whose sums one thread adds in order, as step_decide's; it is as long as the row with most
// chunks, 2,362 of them of a vocabulary of 50,000 and 768 channels.
// alias      none
// moves      16 bytes a chunk, twice 4 a row
// reference  gpu/cpu/kernel/optimizer.c, to the bit
__global__ void __launch_bounds__(ORDERED_THREADS)
    lars_ratio_kernel(float *ratio, const int32_t *at, const double *grads, const double *weights,
                      const step_state *state, lars_rules r) {
    K_SMEM(double, room, [2][ORDERED_TILE]);
    if (!state->apply) return;
    int32_t from = at[blockIdx.x], count = at[blockIdx.x + 1] - from;
    double w = sqrt(ordered_sum(weights + from, count, room));
    double g = sqrt(ordered_sum(grads + from, count, room)) * (double)state->grad_factor;
    if (threadIdx.x == 0)
        ratio[blockIdx.x] = w > 0 && g > 0 ? (float)(r.trust * w / (g + r.weight_decay * w + r.eps)) : 1.0f;
}

err_t cuda_lars_ratio(const lars_ratio_args *args, stream *s) {
    int64_t rows = tensor_count(args->ratio);
    assert(args->ratio->type == FP32 && args->at->type == INT32 && tensor_count(args->at) == rows + 1);
    assert(args->grads->type == FP64 && args->weights->type == FP64);
    LAUNCH(lars_ratio_kernel, (unsigned)rows, ORDERED_THREADS, 0, s, (float *)args->ratio->data,
           (const int32_t *)args->at->data, (const double *)args->grads->data, (const double *)args->weights->data,
           args->state, *args->rules);
    return ERR_OK;
}

// --- cast, stochastically --------------------------------------------------------------------------------------------

// cast_stochastic: four elements a thread, with the words that the update had for them. WIDE: both begin at a multiple
// of four elements.
// moves      4 + sizeof(E) bytes a weight; memory bound
// reference  gpu/cpu/kernel/elementwise.c: cast_stochastic, to the bit
template <class T, bool WIDE>
__global__ void __launch_bounds__(UPDATE_THREADS)
    cast_stochastic_kernel(T *y, const float *x, int64_t count, const step_state *state, rounding_key key) {
    int64_t i = ((int64_t)blockIdx.x * UPDATE_THREADS + threadIdx.x) * 4, t = state->updates;
    if (i >= count) return;
    four<float> from = load4<WIDE>(x, i, count);
    four<T> to;
    uint32_t word[4];
    rounding_words(word, key, i, (uint32_t)t);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        if (t) round_stochastic(&to.v[e], from.v[e], word[e]);
        else round_to(&to.v[e], from.v[e]);
    }
    store4<WIDE>(y, to, i, count);
}

template <class T>
static err_t cast_stochastic_of(tensor *y, const tensor *x, const rounding_key *round, const step_state *state,
                                stream *s) {
    T *to = (T *)y->data;
    const float *from = (const float *)x->data;
    int64_t count = tensor_count(y);
    unsigned grid = (unsigned)ceil_div(count, 4 * UPDATE_THREADS);
    if ((uintptr_t)from % 16 == 0 && (uintptr_t)to % sizeof(four<T>) == 0)
        LAUNCH((cast_stochastic_kernel<T, true>), grid, UPDATE_THREADS, 0, s, to, from, count, state, *round);
    else LAUNCH((cast_stochastic_kernel<T, false>), grid, UPDATE_THREADS, 0, s, to, from, count, state, *round);
    return ERR_OK;
}

err_t cuda_cast_stochastic(const cast_stochastic_args *args, stream *s) {
    assert(args->x->type == FP32 && (args->y->type == BF16 || args->y->type == FP16));
    assert(tensor_count(args->x) == tensor_count(args->y) && args->round->first % 64 == 0);
    return args->y->type == BF16 ? cast_stochastic_of<bf16>(args->y, args->x, args->round, args->state, s)
                                 : cast_stochastic_of<fp16>(args->y, args->x, args->round, args->state, s);
}

// --- average ---------------------------------------------------------------------------------------------------------

// average: element by element, of a few hundred channels.
// moves      12 bytes an element; nothing but the state is read when the step was decided against
// reference  gpu/cpu/kernel/optimizer.c, to the bit
__global__ void average_kernel(float *x, const float *sum, int64_t count, float share, float momentum,
                               const step_state *state) {
    int64_t i = (int64_t)blockIdx.x * UPDATE_THREADS + threadIdx.x;
    if (i < count && state->apply) x[i] = fmaf(momentum, sum[i] * share - x[i], x[i]);
}

err_t cuda_average(const average_args *args, stream *s) {
    int64_t count = tensor_count(args->x);
    assert(args->x->type == FP32 && args->sum->type == FP32 && tensor_count(args->sum) == count && args->count >= 1);
    LAUNCH(average_kernel, (unsigned)ceil_div(count, UPDATE_THREADS), UPDATE_THREADS, 0, s, (float *)args->x->data,
           (const float *)args->sum->data, count, (float)(1.0 / (double)args->count), args->momentum, args->state);
    return ERR_OK;
}
