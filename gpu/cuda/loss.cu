// gpu/cuda/loss.cu: softmax, cross entropy and their gradient in one kernel, in place; whether the right class is on
// top; and the mean loss of each sample. Probabilities are never stored. A row of logits is read once for its maximum
// and its sum of exponentials, which are kept together (online softmax, Milakov & Gimelshein 2018), and is then
// overwritten by its gradient. What fits into the registers of the row's threads is not read again.
#include "gpu/cuda/kernel.h"

// Groups of 16 bytes that a thread loads at once: bytes in flight, and the part of a row that is read once only.
enum { BATCH = 4, ROWS = 4 };  // ROWS: of a block, where a warp has a row

// How THREADS threads share a row. Sweep k covers THREADS groups of E elements, 16 bytes each. WIDE: a group is
// contiguous, for rows that begin at multiples of 16 bytes. Else its elements are THREADS apart, so that every access
// of a warp is contiguous all the same. `width` of the row's `stride` elements are classes. Of WIDE rows the group in
// which they end is read and written whole.
template <class T, int THREADS, bool WIDE> __device__ __forceinline__ int element(int thread, int sweep, int j) {
    enum { E = 16 / sizeof(T) };
    return WIDE ? (sweep * THREADS + thread) * E + j : (sweep * E + j) * THREADS + thread;
}

// What lies beyond the classes is -inf: e^-inf adds nothing.
template <class T, int THREADS, bool WIDE>
__device__ __forceinline__ void load_batch(pack<T> *g, const T *x, int width, int thread, int batch) {
    enum { E = 16 / sizeof(T) };
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
        int sweep = batch * BATCH + k, first = element<T, THREADS, WIDE>(thread, sweep, 0);
        if (WIDE && first < width) {
            g[k] = *reinterpret_cast<const pack<T> *>(x + first);
            if (first + E <= width) continue;
#pragma unroll
            for (int j = 1; j < E; j++)
                if (first + j >= width) round_to(&g[k].v[j], -INFINITY);
            continue;
        }
#pragma unroll
        for (int j = 0; j < E; j++) {
            int i = element<T, THREADS, WIDE>(thread, sweep, j);
            if (!WIDE && i < width) g[k].v[j] = x[i];
            else round_to(&g[k].v[j], -INFINITY);
        }
    }
}

// A finite value where only -inf was seen: -inf - -inf would make a NaN of an impossible class.
__device__ __forceinline__ float shift_of(float most) { return most == -INFINITY ? 0.0f : most; }

// Takes a batch into the running maximum and the running sum of e^(x - most). fmaxf passes over a NaN; the sum keeps
// it. +inf makes one.
template <class T, int THREADS>
__device__ __forceinline__ void take_batch(float *most, float *sum, const pack<T> *g, int width, int batch) {
    enum { E = 16 / sizeof(T) };
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
        if ((batch * BATCH + k) * THREADS * E >= width) break;
        float top = *most, part = 0;
#pragma unroll
        for (int j = 0; j < E; j++) top = fmaxf(top, to_float(g[k].v[j]));
        if (top > *most) *sum *= expf(*most - top);
        *most = top;
#pragma unroll
        for (int j = 0; j < E; j++) part += expf(to_float(g[k].v[j]) - shift_of(top));
        *sum += part;
    }
}

// x = e^(x - most) * ratio, less `factor` at the target. Zero beyond the classes, also in a row of NaN.
template <class T, int THREADS, bool WIDE>
__device__ __forceinline__ void store_batch(T *x, const pack<T> *g, int width, int thread, int batch, int target,
                                            float most, float ratio, float factor) {
    enum { E = 16 / sizeof(T) };
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
        int sweep = batch * BATCH + k, first = element<T, THREADS, WIDE>(thread, sweep, 0);
        if (first >= width) break;
        pack<T> d;
#pragma unroll
        for (int j = 0; j < E; j++) {
            int i = element<T, THREADS, WIDE>(thread, sweep, j);
            float p = expf(to_float(g[k].v[j]) - most) * ratio;
            round_to(&d.v[j], i == target ? p - factor : p);
            if (!WIDE && i < width) x[i] = d.v[j];
        }
        if (WIDE && first + E > width) {
#pragma unroll
            for (int j = 1; j < E; j++)
                if (first + j >= width) round_to(&d.v[j], 0.0f);
        }
        if (WIDE) store_pack(x + first, d);
    }
}

// Zeros for elements first .. end-1: a row whose target is ignored, or the columns past the classes.
template <class T, int THREADS> __device__ __forceinline__ void clear(T *x, int first, int end, int thread) {
    T zero;
    round_to(&zero, 0.0f);
    for (int i = first + thread; i < end; i += THREADS) x[i] = zero;
}

// Maximum and sum over the row's threads. After it every thread may overwrite what others have read before it.
template <int THREADS> __device__ __forceinline__ void combine(float *most, float *sum) {
    float own = *most;
    if (THREADS == WARP) {
        *most = warp_max(own);
        *sum = warp_sum(*sum * expf(own - shift_of(*most)));
        __syncwarp();
    } else {
        K_SMEM(float, room, [WARP]);
        *most = block_max(own, room);
        *sum = block_sum(*sum * expf(own - shift_of(*most)), room);
    }
}

// cross_entropy: THREADS threads a row, a warp for short ones; any width and stride. Batches are read from the last to
// the first, which is full if the row is long enough, and stays in registers. The gradient then goes from the first to
// the last, over the batches that were read into the L2 cache most recently.
// alias      in place; a thread writes what it alone has read, but for the target's logit, which all read before the
//            first barrier
// sums       FP32: in order within a thread, then a fixed tree; the order follows from type, width and alignment of the
//            rows: repeatable
// moves      2 * sizeof(T) bytes a logit and reads what lies beyond the first batch twice, the second time mostly from
//            L2; losses alone: once
// reference  gpu/cpu/kernel/loss.c
template <class T, int THREADS, bool WIDE>
__global__ void __launch_bounds__(THREADS == WARP ? ROWS * WARP : THREADS, THREADS == WARP ? 8 : 1024 / THREADS)
    cross_entropy_rows(float *losses, T *logits, const int32_t *targets, int64_t rows, int width, int stride,
                       bool gradient, float scale, const step_state *state) {
    enum { E = 16 / sizeof(T) };
    int thread = threadIdx.x % THREADS;
    int64_t row = THREADS == WARP ? (int64_t)blockIdx.x * ROWS + threadIdx.x / WARP : (int64_t)blockIdx.x;
    if (row >= rows) return;  // whole warps: blocks of several rows have no barrier
    T *x = logits + row * stride;
    int target = targets[row];
    if (target < 0) {
        if (thread == 0) losses[row] = 0;
        if (gradient) clear<T, THREADS>(x, 0, stride, thread);
        return;
    }
    const int last = (width - 1) / (THREADS * BATCH * E);
    float logit = target < width ? to_float(x[target]) : NAN, most = -INFINITY, sum = 0;
    pack<T> g[BATCH];
    for (int b = last; b >= 0; b--) {
        load_batch<T, THREADS, WIDE>(g, x, width, thread, b);
        take_batch<T, THREADS>(&most, &sum, g, width, b);
    }
    combine<THREADS>(&most, &sum);
    if (thread == 0) losses[row] = (most - logit) + logf(sum);
    if (!gradient) return;
    float factor = scale * state->loss_scale, ratio = factor / sum;
    clear<T, THREADS>(x, WIDE ? (width + E - 1) / E * E : width, stride, thread);
    for (int b = 0; b <= last; b++) {
        if (b > 0) load_batch<T, THREADS, WIDE>(g, x, width, thread, b);
        store_batch<T, THREADS, WIDE>(x, g, width, thread, b, target, most, ratio, factor);
    }
}

typedef struct loss_job {
    float *losses;
    void *logits;
    const int32_t *targets;
    int64_t rows;
    int width, stride;
    const float *scale;  // NULL: losses only
    const step_state *state;
} loss_job;

template <class T, int THREADS> static err_t launch_rows(const loss_job *j, stream *s) {
    bool warps = THREADS == WARP, wide = packs<T>(j->logits, j->stride);
    unsigned grid = (unsigned)(warps ? ceil_div(j->rows, ROWS) : j->rows), block = warps ? ROWS * WARP : THREADS;
    bool gradient = j->scale != NULL;
    float scale = gradient ? *j->scale : 0;
    T *x = (T *)j->logits;
    if (wide)
        LAUNCH((cross_entropy_rows<T, THREADS, true>), grid, block, 0, s, j->losses, x, j->targets, j->rows, j->width,
               j->stride, gradient, scale, j->state);
    else
        LAUNCH((cross_entropy_rows<T, THREADS, false>), grid, block, 0, s, j->losses, x, j->targets, j->rows, j->width,
               j->stride, gradient, scale, j->state);
    return ERR_OK;
}

// Chosen by the width alone: few enough rows are in flight that L2 holds them (two blocks of 512 on a multiprocessor).
template <class T> static err_t launch_width(const loss_job *j, stream *s) {
    if (j->width <= 1024) return launch_rows<T, WARP>(j, s);
    if (j->width <= 8192) return launch_rows<T, 256>(j, s);
    return launch_rows<T, 512>(j, s);
}

// --- columns in slices -----------------------------------------------------------------------------------------------

enum { CUT_THREADS = 256, ALL_STAGES = 1 << LOGITS_TOP | 1 << LOGITS_SUM | 1 << LOGITS_LOSS };

template <class T> struct cut_args {
    float *losses, *most, *logit, *sum;  // the last three NULL: not wanted
    T *logits;
    const int32_t *targets;
    int64_t rows;
    // classes of all slices; that of the first column here; columns of a slice; slices here
    int classes, first, width, slices;
    unsigned stages;
    bool gradient;
    float scale;
    const step_state *state;
};

// cross_entropy of columns that are cut, and its stages: a block a row.
// layout     logits (S,N,W)
// alias      in place; all threads have read the target's logit before the first barrier
// sums       FP32: of each slice in order within a thread, then a fixed tree; slices along theirs. By the slice's width
//            alone: repeatable
// moves      sizeof(T) bytes a logit and stage, mostly from L2 where all stages are done at once, and writes them in
//            the last
// reference  gpu/cpu/kernel/loss.c
template <class T> __global__ void __launch_bounds__(CUT_THREADS) cross_entropy_cut(cut_args<T> a) {
    enum { LEVELS = 11 };
    K_SMEM(float, room, [WARP]);
    const int64_t row = blockIdx.x;
    const int target = a.targets[row], own = target - a.first;
    const bool top = a.stages & 1 << LOGITS_TOP, adds = a.stages & 1 << LOGITS_SUM, ends = a.stages & 1 << LOGITS_LOSS,
               counts = target >= 0;
    float most = -INFINITY, logit = 0, sum = 0, level[LEVELS];
    if (!top) most = a.most[row], logit = a.logit[row];
    if (!top && !adds) sum = a.sum[row];
    if (top && counts && own >= 0 && own < a.slices * a.width)
        logit = to_float(a.logits[(own / a.width * a.rows + row) * a.width + own % a.width]);
    for (int s = 0; top && counts && s < a.slices; s++) {
        const T *x = a.logits + (s * a.rows + row) * a.width;
        int n = min(a.width, a.classes - a.first - s * a.width);
        for (int i = threadIdx.x; i < n; i += CUT_THREADS) most = fmaxf(most, to_float(x[i]));
    }
    if (top && counts) most = block_max(most, room);
    if (top && !counts) most = 0;
    for (int s = 0; adds && counts && s < a.slices; s++) {
        const T *x = a.logits + (s * a.rows + row) * a.width;
        int n = min(a.width, a.classes - a.first - s * a.width);
        float part = 0;
        for (int i = threadIdx.x; i < n; i += CUT_THREADS) part += expf(to_float(x[i]) - shift_of(most));
        sum = block_sum(part, room);
#pragma unroll
        for (int l = 0; l < LEVELS; l++) {
            if (!(s >> l & 1)) {
                level[l] = sum;
                break;
            }
            sum = level[l] + sum;
        }
    }
    if (threadIdx.x == 0) {
        if (top && a.most) a.most[row] = most, a.logit[row] = logit;
        if (adds && a.sum) a.sum[row] = sum;
        if (ends) a.losses[row] = counts ? (most - logit) + logf(sum) : 0.0f;
    }
    if (!ends || !a.gradient) return;
    const float factor = a.scale * a.state->loss_scale, ratio = factor / sum;
    __syncthreads();
    for (int s = 0; s < a.slices; s++) {
        T *x = a.logits + (s * a.rows + row) * a.width;
        int n = counts ? min(a.width, a.classes - a.first - s * a.width) : 0;
        for (int i = threadIdx.x; i < a.width; i += CUT_THREADS) {
            float p = i < n ? expf(to_float(x[i]) - most) * ratio : 0.0f;
            round_to(&x[i], i < n && s * a.width + i == own ? p - factor : p);
        }
    }
}

template <class T> static err_t launch_cut(const cross_entropy_part_args *args, unsigned stages, stream *s) {
    const tensor *x = args->logits;
    cut_args<T> a = {args->losses ? (float *)args->losses->data : NULL,
                     args->most ? (float *)args->most->data : NULL,
                     args->logit ? (float *)args->logit->data : NULL,
                     args->sum ? (float *)args->sum->data : NULL,
                     (T *)x->data,
                     (const int32_t *)args->targets->data,
                     tensor_count(args->targets),
                     (int)args->classes,
                     (int)args->first,
                     (int)x->size[x->dims - 1],
                     (int)matrix_slices(x),
                     stages,
                     args->scale != NULL,
                     args->scale ? *args->scale : 0,
                     args->state};
    assert(args->targets->type == INT32 && a.rows * matrix_columns(x) == tensor_count(x) && a.rows <= INT32_MAX &&
           matrix_columns(x) <= INT32_MAX / 2);
    assert((a.slices & (a.slices - 1)) == 0 && a.slices <= 1024);
    LAUNCH((cross_entropy_cut<T>), (unsigned)a.rows, CUT_THREADS, 0, s, a);
    return ERR_OK;
}

err_t cuda_cross_entropy_part(const cross_entropy_part_args *args, stream *s) {
    BY_TYPE(args->logits->type, T, TRY(launch_cut<T>(args, 1u << args->stage, s)));
    return ERR_OK;
}

// --- smoothed labels -------------------------------------------------------------------------------------------------

// cross_entropy of smoothed labels, which are of classifiers, whose rows are short: a block a row, one element after
// the other. A kernel of its own: cross_entropy_rows has no register to spare.
// layout     logits (N,Vp)
// alias      in place; a thread writes what it alone has read, but for the target's logit, which all read before the
//            first barrier
// sums       FP32: in order within a thread, then a fixed tree: repeatable
// moves      2 * sizeof(T) bytes a logit, and reads a row twice more from L1 or L2
// reference  gpu/cpu/kernel/loss.c
template <class T>
__global__ void __launch_bounds__(CUT_THREADS)
    cross_entropy_smoothed(float *losses, T *logits, const int32_t *targets, int width, int stride, bool gradient,
                           float scale, const step_state *state, float smoothing) {
    K_SMEM(float, room, [WARP]);
    const int64_t row = blockIdx.x;
    const int target = targets[row];
    T *x = logits + row * stride;
    if (target < 0) {
        if (threadIdx.x == 0) losses[row] = 0;
        if (gradient) clear<T, CUT_THREADS>(x, 0, stride, threadIdx.x);
        return;
    }
    const float logit = target < width ? to_float(x[target]) : NAN;
    float most = -INFINITY, sum = 0, below = 0;
    for (int i = threadIdx.x; i < width; i += CUT_THREADS) most = fmaxf(most, to_float(x[i]));
    most = block_max(most, room);
    for (int i = threadIdx.x; i < width; i += CUT_THREADS) {
        const float d = to_float(x[i]) - most;
        sum += expf(d), below += d;
    }
    sum = block_sum(sum, room), below = block_sum(below, room);
    const float each = smoothing / (float)width, own = 1 - smoothing;
    if (threadIdx.x == 0) losses[row] = own * (most - logit) - each * below + logf(sum);
    if (!gradient) return;
    const float factor = scale * state->loss_scale, ratio = factor / sum, share = factor * each;
    for (int i = threadIdx.x; i < width; i += CUT_THREADS) {
        const float p = expf(to_float(x[i]) - most) * ratio - share;
        round_to(&x[i], i == target ? p - factor * own : p);
    }
    clear<T, CUT_THREADS>(x, width, stride, threadIdx.x);
}

template <class T> static err_t launch_smoothed(const loss_job *j, float smoothing, stream *s) {
    LAUNCH((cross_entropy_smoothed<T>), (unsigned)j->rows, CUT_THREADS, 0, s, j->losses, (T *)j->logits, j->targets,
           j->width, j->stride, j->scale != NULL, j->scale ? *j->scale : 0.0f, j->state, smoothing);
    return ERR_OK;
}

err_t cuda_cross_entropy(const cross_entropy_args *args, stream *s) {
    assert(args->smoothing >= 0 && args->smoothing < 1 && (args->smoothing == 0 || matrix_slices(args->logits) == 1));
    if (matrix_slices(args->logits) > 1) {
        cross_entropy_part_args all = {};
        all.losses = args->losses, all.logits = args->logits, all.targets = args->targets, all.classes = args->classes;
        all.scale = args->scale, all.state = args->state;
        BY_TYPE(args->logits->type, T, TRY(launch_cut<T>(&all, ALL_STAGES, s)));
        return ERR_OK;
    }
    int64_t rows = tensor_count(args->targets), count = tensor_count(args->logits), stride = count / rows;
    assert(args->losses->type == FP32 && args->targets->type == INT32 && tensor_count(args->losses) == rows &&
           rows * stride == count);
    assert(args->classes >= 1 && args->classes <= stride && rows <= INT32_MAX && stride <= INT32_MAX / 2);
    loss_job j = {(float *)args->losses->data,
                  args->logits->data,
                  (const int32_t *)args->targets->data,
                  rows,
                  (int)args->classes,
                  (int)stride,
                  args->scale,
                  args->state};
    BY_TYPE(args->logits->type, T,
            TRY(args->smoothing > 0 ? launch_smoothed<T>(&j, args->smoothing, s) : launch_width<T>(&j, s)));
    return ERR_OK;
}

// top_k: a warp a row. Every lane counts the columns of its own that come before the target: larger ones, and equal
// ones in front of it. A NaN is reason enough for no. Accesses of a warp are contiguous.
// moves      sizeof(T) bytes a logit of a class; memory bound
// reference  gpu/cpu/kernel/loss.c
template <class T>
__global__ void __launch_bounds__(ROWS *WARP) top_k_kernel(double *hits, const T *logits, const int32_t *targets,
                                                           int64_t rows, int width, int stride, int64_t most) {
    int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x / WARP;
    if (row >= rows) return;  // whole warps
    const T *x = logits + row * stride;
    int lane = threadIdx.x % WARP, target = targets[row], before = 0;
    bool hit = target >= 0 && target < width;
    if (hit) {
        float own = to_float(x[target]);
        for (int i = lane; i < width; i += WARP) {
            float v = to_float(x[i]);
            hit &= v == v && own == own;
            before += v > own || (v == own && i < target);
        }
    }
    hit = __all_sync(0xffffffffu, hit);
#pragma unroll
    for (int step = WARP / 2; step; step /= 2) before += __shfl_xor_sync(0xffffffffu, before, step);
    if (lane == 0) hits[row] = hit && before < most ? 1.0 : 0.0;
}

err_t cuda_top_k(const top_k_args *args, stream *s) {
    int64_t rows = tensor_count(args->targets), count = tensor_count(args->logits), stride = count / rows;
    assert(args->hits->type == FP64 && args->targets->type == INT32 && tensor_count(args->hits) == rows &&
           rows * stride == count);
    assert(args->classes >= 1 && args->classes <= stride && rows <= INT32_MAX && stride <= INT32_MAX / 2);
    BY_TYPE(args->logits->type, T,
            LAUNCH((top_k_kernel<T>), (unsigned)ceil_div(rows, ROWS), ROWS * WARP, 0, s, (double *)args->hits->data,
                   (const T *)args->logits->data, (const int32_t *)args->targets->data, rows, (int)args->classes,
                   (int)stride, args->k ? args->k : (int64_t)1));
    return ERR_OK;
}

// first_equal: a warp a row. Every lane keeps the first column of its own that is equal. Accesses of a warp are
// contiguous, and it reads to the row's end.
// moves      sizeof(T) bytes a logit of a class; memory bound
// reference  gpu/cpu/kernel/loss.c
template <class T>
__global__ void __launch_bounds__(ROWS *WARP)
    first_equal_kernel(float *at, const T *logits, const float *values, int64_t rows, int slices, int width,
                       int classes, int first) {
    int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x / WARP;
    if (row >= rows) return;  // whole warps
    const float value = values[row];
    int lane = threadIdx.x % WARP, best = FIRST_EQUAL_NONE;
    for (int s = 0; s < slices; s++) {
        const T *x = logits + (s * rows + row) * width;
        int before = first + s * width, n = min(width, classes - before);
        for (int i = lane; i < n; i += WARP)
            if (to_float(x[i]) == value) best = min(best, before + i);
    }
#pragma unroll
    for (int step = WARP / 2; step; step /= 2) best = min(best, __shfl_xor_sync(0xffffffffu, best, step));
    if (lane == 0) at[row] = 0.0f - (float)best;
}

err_t cuda_first_equal(const first_equal_args *args, stream *s) {
    const tensor *x = args->logits;
    int64_t rows = tensor_count(args->at), width = x->size[x->dims - 1], slices = matrix_slices(x);
    assert(args->at->type == FP32 && args->values->type == FP32 && tensor_count(args->values) == rows &&
           rows * width * slices == tensor_count(x));
    assert(args->classes <= FIRST_EQUAL_NONE && rows <= INT32_MAX && width * slices <= INT32_MAX / 2);
    BY_TYPE(x->type, T,
            LAUNCH((first_equal_kernel<T>), (unsigned)ceil_div(rows, ROWS), ROWS * WARP, 0, s, (float *)args->at->data,
                   (const T *)x->data, (const float *)args->values->data, rows, (int)slices, (int)width,
                   (int)args->classes, (int)args->first));
    return ERR_OK;
}

// squared_error: a thread a row; there are as few as samples, and a row has at most eight columns.
// alias      in place; a thread writes what it alone has read
// moves      2 * sizeof(T) bytes an output; losses alone: of each row the first
// reference  gpu/cpu/kernel/loss.c
template <class T>
__global__ void __launch_bounds__(ROWS *WARP)
    squared_error_kernel(float *losses, double *said, double *wanted, T *outputs, const float *targets, int64_t rows,
                         int stride, bool gradient, float scale, const step_state *state) {
    int64_t row = (int64_t)blockIdx.x * (ROWS * WARP) + threadIdx.x;
    if (row >= rows) return;
    T *x = outputs + row * stride;
    float y = to_float(x[0]), d = y - targets[row];
    losses[row] = d * d;
    if (said) said[row] = y;
    if (wanted) wanted[row] = targets[row];
    if (!gradient) return;
    round_to(&x[0], 2 * d * (scale * state->loss_scale));
    for (int i = 1; i < stride; i++) round_to(&x[i], 0.0f);
}

err_t cuda_squared_error(const squared_error_args *args, stream *s) {
    int64_t rows = tensor_count(args->targets), stride = tensor_count(args->outputs) / rows;
    assert(args->losses->type == FP32 && args->targets->type == FP32 && tensor_count(args->losses) == rows &&
           rows * stride == tensor_count(args->outputs) && !args->said == !args->wanted);
    assert(rows <= INT32_MAX && stride <= INT32_MAX);
    BY_TYPE(args->outputs->type, T,
            LAUNCH((squared_error_kernel<T>), (unsigned)ceil_div(rows, ROWS * WARP), ROWS * WARP, 0, s,
                   (float *)args->losses->data, args->said ? (double *)args->said->data : NULL,
                   args->wanted ? (double *)args->wanted->data : NULL, (T *)args->outputs->data,
                   (const float *)args->targets->data, rows, (int)stride, args->scale != NULL,
                   args->scale ? *args->scale : 0.0f, args->state));
    return ERR_OK;
}

// loss_means: one block a sample; one thread adds in double, in order of t, what the others load into shared memory for
// it. The order is the contract, so the additions are a chain: about eight cycles an element; samples run in parallel.
// moves      4 bytes a loss
// reference  gpu/cpu/kernel/loss.c
__global__ void __launch_bounds__(ORDERED_THREADS)
    loss_means_kernel(double *means, const float *losses, int64_t length) {
    K_SMEM(float, room, [2][ORDERED_TILE]);
    double sum = ordered_sum(losses + blockIdx.x * length, length, room);
    if (threadIdx.x == 0) means[blockIdx.x] = sum / (double)length;
}

err_t cuda_loss_means(const loss_means_args *args, stream *s) {
    int64_t samples = tensor_count(args->means), length = tensor_count(args->losses) / samples;
    assert(args->means->type == FP64 && args->losses->type == FP32 && samples * length == tensor_count(args->losses) &&
           samples <= INT32_MAX);
    LAUNCH(loss_means_kernel, (unsigned)samples, ORDERED_THREADS, 0, s, (double *)args->means->data,
           (const float *)args->losses->data, length);
    return ERR_OK;
}

// count_targets: a warp a sample. Whole numbers: their order changes nothing. Accesses of a warp are contiguous.
// moves      4 bytes a target
// reference  gpu/cpu/kernel/loss.c
__global__ void __launch_bounds__(ROWS *WARP)
    count_targets_kernel(double *counts, const int32_t *targets, int64_t samples, int64_t length) {
    int64_t sample = (int64_t)blockIdx.x * ROWS + threadIdx.x / WARP;
    double count = 0;
    if (sample >= samples) return;  // whole warps
    for (int64_t t = threadIdx.x % WARP; t < length; t += WARP) count += targets[sample * length + t] >= 0;
    count = warp_sum(count);
    if (threadIdx.x % WARP == 0) counts[sample] = count;
}

err_t cuda_count_targets(const count_targets_args *args, stream *s) {
    int64_t samples = tensor_count(args->counts), length = tensor_count(args->targets) / samples;
    assert(args->counts->type == FP64 && args->targets->type == INT32 &&
           samples * length == tensor_count(args->targets) && samples <= INT32_MAX);
    LAUNCH(count_targets_kernel, (unsigned)ceil_div(samples, ROWS), ROWS * WARP, 0, s, (double *)args->counts->data,
           (const int32_t *)args->targets->data, samples, length);
    return ERR_OK;
}
