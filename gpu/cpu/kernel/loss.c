// gpu/cpu/kernel/loss.c: what a step says of its logits: the loss and its gradient, whether the right class is among
// the largest, and means.
//
// Softmax, cross entropy and their gradient are one visit per row. A row of logits is read for
// its maximum, then for the sum of exponentials, then overwritten by its gradient; by the second time it is in the
// cache. In FP32 the exponentials are kept in the row itself; a 16-bit row has no room for their bits, so they are
// computed twice.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"
#include "gpu/cpu/kernel/vmath.h"

typedef struct loss_job {
    dtype type;
    float *losses;
    void *logits;
    const int32_t *targets;
    int64_t rows, width, stride;  // of a row: classes, elements in memory
    bool gradient;
    float factor;     // of the gradient
    float smoothing;  // never where columns are cut
    // Where columns are cut: `width` counts the classes of all slices, `stride` is a slice's.
    unsigned stages;  // 1 << logits_stage; 0: columns are not cut
    int64_t slices, first;
    float *most, *logit, *sum;  // NULL: not wanted
} loss_job;

enum { ALL_STAGES = 1 << LOGITS_TOP | 1 << LOGITS_SUM | 1 << LOGITS_LOSS };

BODY float row_max(dtype t, const void *x, int64_t width) {
    const vf least = vf_set1(-__builtin_inff());
    vf a = least, b = least;
    int64_t i = 0;
    for (; i + 2 * VL <= width; i += 2 * VL) {
        a = vf_max(typed_load(x, t, i), a);
        b = vf_max(typed_load(x, t, i + VL), b);
    }
    for (; i < width; i += VL) {
        int n = width - i < VL ? (int)(width - i) : VL;
        a = vf_max(vf_select(vm_first(n), typed_load_n(x, t, i, n), least), a);
    }
    float lane[VL], most;
    vf_store(lane, vf_max(a, b));
    most = lane[0];
    for (int l = 1; l < VL; l++) most = lane[l] > most ? lane[l] : most;
    return most;
}

// Sum of e^(x - most): 32 interleaved sums and the tree. `keep`: the powers stay where the logits were.
BODY float row_sum_exp(dtype t, void *x, int64_t width, float most, bool keep) {
    const vf shift = vf_set1(most);
    vf sum[2] = {vf_zero(), vf_zero()};
    int64_t i = 0;
    for (; i + 2 * VL <= width; i += 2 * VL)
        for (int k = 0; k < 2; k++) {
            vf e = vf_exp_down(vf_sub(typed_load(x, t, i + k * VL), shift));
            if (keep) typed_store(x, t, i + k * VL, e);
            sum[k] = vf_add(sum[k], e);
        }
    for (int k = 0; k < 2 && i < width; k++, i += VL) {
        int n = width - i < VL ? (int)(width - i) : VL;
        vf e = vf_exp_down(vf_sub(typed_load_n(x, t, i, n), shift));
        if (keep) typed_store_n(x, t, i, e, n);
        sum[k] = vf_add(sum[k], vf_select(vm_first(n), e, vf_zero()));
    }
    return vf_sum(vf_add(sum[0], sum[1]));
}

// Sum of x - most: 32 interleaved sums and the tree.
BODY float row_sum_below(dtype t, const void *x, int64_t width, float most) {
    const vf shift = vf_set1(most);
    vf sum[2] = {vf_zero(), vf_zero()};
    int64_t i = 0;
    for (; i + 2 * VL <= width; i += 2 * VL)
        for (int k = 0; k < 2; k++) sum[k] = vf_add(sum[k], vf_sub(typed_load(x, t, i + k * VL), shift));
    for (int k = 0; k < 2 && i < width; k++, i += VL) {
        int n = width - i < VL ? (int)(width - i) : VL;
        vf d = vf_sub(typed_load_n(x, t, i, n), shift);
        sum[k] = vf_add(sum[k], vf_select(vm_first(n), d, vf_zero()));
    }
    return vf_sum(vf_add(sum[0], sum[1]));
}

typedef struct gradient_of {
    void *x;
    vf most, ratio;
    vf share;  // of each class in the target, times the factor; where it is smoothed
} gradient_of;

// x = e^(x - most) * ratio, ratio = factor / sum. In FP32 the powers are there already.
BODY void gradient_vector(dtype t, const gradient_of *g, int64_t i, int64_t n) {
    vf x = typed_load_n(g->x, t, i, n), e = t == FP32 ? x : vf_exp_down(vf_sub(x, g->most));
    typed_store_n(g->x, t, i, vf_mul(e, g->ratio), n);
}

BODY void smoothed_vector(dtype t, const gradient_of *g, int64_t i, int64_t n) {
    vf x = typed_load_n(g->x, t, i, n), e = t == FP32 ? x : vf_exp_down(vf_sub(x, g->most));
    typed_store_n(g->x, t, i, vf_sub(vf_mul(e, g->ratio), g->share), n);
}

static float scalar(vf v) {
    float lane[VL];
    vf_store(lane, v);
    return lane[0];
}

BODY void loss_row(dtype t, const loss_job *j, int64_t row) {
    void *x = typed_at_mut(j->logits, t, row * j->stride);
    int32_t target = j->targets[row];
    assert(target < j->width);
    if (target < 0) {
        j->losses[row] = 0;
        if (j->gradient) memset(x, 0, (size_t)j->stride * dtype_bytes(t));
        return;
    }
    const float rest = j->smoothing, each = rest / (float)j->width;
    float logit = typed_get(x, t, target), most = row_max(t, x, j->width),
          below = rest > 0 ? row_sum_below(t, x, j->width, most) : 0;
    float sum = j->gradient ? row_sum_exp(t, x, j->width, most, t == FP32) : row_sum_exp(t, x, j->width, most, false);
    j->losses[row] = (most - logit) + scalar(vf_log(vf_set1(sum)));
    if (rest > 0) j->losses[row] = (1 - rest) * (most - logit) - each * below + scalar(vf_log(vf_set1(sum)));
    if (!j->gradient) return;
    float ratio = j->factor / sum, p = scalar(vf_exp(vf_set1(logit - most))) * ratio, share = j->factor * each;
    const gradient_of g = {x, vf_set1(most), vf_set1(ratio), vf_set1(share)};
    if (rest > 0) {
        EACH_VECTOR(0, j->width, smoothed_vector, t, &g);
        typed_set(x, t, target, (p - share) - j->factor * (1 - rest));
    } else {
        EACH_VECTOR(0, j->width, gradient_vector, t, &g);
        typed_set(x, t, target, p - j->factor);
    }
    memset(typed_at_mut(x, t, j->width), 0, (size_t)(j->stride - j->width) * dtype_bytes(t));
}

// --- columns in slices -----------------------------------------------------------------------------------------------

// The slice's part of a row, and how many of its columns are classes.
BODY void *slice_of(dtype t, const loss_job *j, int64_t row, int64_t slice, int64_t *classes) {
    int64_t left = j->width - j->first - slice * j->stride;
    *classes = left < 0 ? 0 : left < j->stride ? left : j->stride;
    return typed_at_mut(j->logits, t, (slice * j->rows + row) * j->stride);
}

// What one stage leaves for the next.
typedef struct left_over {
    float most, logit, sum;
} left_over;

BODY void row_top(dtype t, const loss_job *j, int64_t row, left_over *k) {
    int64_t n, target = j->targets[row] - j->first;
    float most = -__builtin_inff();
    k->logit = 0;
    for (int64_t s = 0; s < j->slices; s++) {
        const void *x = slice_of(t, j, row, s, &n);
        float top = n ? row_max(t, x, n) : most;
        most = top > most ? top : most;
        if (target >= s * j->stride && target < s * j->stride + n) k->logit = typed_get(x, t, target - s * j->stride);
    }
    k->most = most;
}

// Siblings as soon as both are there.
BODY void row_sum(dtype t, const loss_job *j, int64_t row, left_over *k) {
    enum { LEVELS = 16 };
    float level[LEVELS], sum = 0;
    for (int64_t s = 0, n; s < j->slices; s++) {
        void *x = slice_of(t, j, row, s, &n);
        int l = 0;
        sum = 0;
        if (n) sum = j->gradient ? row_sum_exp(t, x, n, k->most, t == FP32) : row_sum_exp(t, x, n, k->most, false);
        for (; s >> l & 1; l++) sum = level[l] + sum;
        level[l] = sum;
    }
    k->sum = sum;
}

BODY void row_gradient(dtype t, const loss_job *j, int64_t row, const left_over *k) {
    int64_t n, target = j->targets[row] - j->first;
    float most = k->most, ratio = j->factor / k->sum, p = scalar(vf_exp(vf_set1(k->logit - most))) * ratio;
    for (int64_t s = 0; s < j->slices; s++) {
        void *x = slice_of(t, j, row, s, &n);
        const gradient_of g = {.x = x, .most = vf_set1(most), .ratio = vf_set1(ratio)};
        EACH_VECTOR(0, n, gradient_vector, t, &g);
        if (target >= s * j->stride && target < s * j->stride + n)
            typed_set(x, t, target - s * j->stride, p - j->factor);
        memset(typed_at_mut(x, t, n), 0, (size_t)(j->stride - n) * dtype_bytes(t));
    }
}

BODY void loss_row_cut(dtype t, const loss_job *j, int64_t row) {
    bool top = j->stages & 1 << LOGITS_TOP, sum = j->stages & 1 << LOGITS_SUM, loss = j->stages & 1 << LOGITS_LOSS,
         ignored = j->targets[row] < 0;
    left_over k = {0};
    assert(j->targets[row] < j->width);
    if (!top) k.most = j->most[row], k.logit = j->logit[row];
    if (!top && !sum) k.sum = j->sum[row];
    if (top && !ignored) row_top(t, j, row, &k);
    if (sum && !ignored) row_sum(t, j, row, &k);
    if (top && j->most) j->most[row] = k.most, j->logit[row] = k.logit;
    if (sum && j->sum) j->sum[row] = k.sum;
    if (!loss) return;
    j->losses[row] = ignored ? 0 : (k.most - k.logit) + scalar(vf_log(vf_set1(k.sum)));
    if (!j->gradient) return;
    if (!ignored) row_gradient(t, j, row, &k);
    else
        for (int64_t s = 0, n; s < j->slices; s++)
            memset(slice_of(t, j, row, s, &n), 0, (size_t)j->stride * dtype_bytes(t));
}

BODY void loss_rows_cut(dtype t, const loss_job *j, int64_t from, int64_t to) {
    for (int64_t row = from; row < to; row++) loss_row_cut(t, j, row);
}

BODY void loss_rows(dtype t, const loss_job *j, int64_t from, int64_t to) {
    if (j->stages) loss_rows_cut(t, j, from, to);
    else
        for (int64_t row = from; row < to; row++) loss_row(t, j, row);
}

static void loss_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const loss_job *j = ctx;
    int64_t rows = rows_per_item(j->stride), from = item * rows, to = from + rows < j->rows ? from + rows : j->rows;
    BY_TYPE(j->type, loss_rows, j, from, to);
}

// moves: 2 * sizeof(E) bytes a logit, and two exponentials (FP32: one).  A row that holds a NaN or +inf gives NaN
err_t KERNEL(cross_entropy)(const cross_entropy_args *args, stream *s) {
    int64_t rows = tensor_count(args->targets), count = tensor_count(args->logits);
    int64_t slices = matrix_slices(args->logits);
    loss_job j = {.type = args->logits->type,
                  .losses = args->losses->data,
                  .logits = args->logits->data,
                  .targets = args->targets->data,
                  .rows = rows,
                  .width = args->classes,
                  .stride = count / rows / slices,
                  .gradient = args->scale != NULL,
                  .factor = args->scale ? *args->scale * args->state->loss_scale : 0,
                  .smoothing = args->smoothing,
                  .stages = slices > 1 ? ALL_STAGES : 0,
                  .slices = slices};
    assert(args->smoothing >= 0 && args->smoothing < 1 && (slices == 1 || args->smoothing == 0));
    assert(args->losses->type == FP32 && args->targets->type == INT32 && tensor_count(args->losses) == rows &&
           rows * j.stride * slices == count);
    assert(args->classes >= 1 && args->classes <= j.stride * slices && (slices & (slices - 1)) == 0);
    int64_t per_item = rows_per_item(j.stride);
    pool_run(s->workers, (rows + per_item - 1) / per_item, loss_item, &j);
    return ERR_OK;
}

err_t KERNEL(cross_entropy_part)(const cross_entropy_part_args *args, stream *s) {
    int64_t rows = tensor_count(args->targets), slices = matrix_slices(args->logits),
            stride = args->logits->size[args->logits->dims - 1];
    loss_job j = {.type = args->logits->type,
                  .losses = args->losses ? args->losses->data : NULL,
                  .logits = args->logits->data,
                  .targets = args->targets->data,
                  .rows = rows,
                  .width = args->classes,
                  .stride = stride,
                  .gradient = args->scale != NULL,
                  .factor = args->scale ? *args->scale * args->state->loss_scale : 0,
                  .stages = 1u << args->stage,
                  .slices = slices,
                  .first = args->first,
                  .most = args->most->data,
                  .logit = args->logit->data,
                  .sum = args->sum->data};
    assert(args->targets->type == INT32 && rows * stride * slices == tensor_count(args->logits) &&
           (slices & (slices - 1)) == 0);
    int64_t per_item = rows_per_item(stride);
    pool_run(s->workers, (rows + per_item - 1) / per_item, loss_item, &j);
    return ERR_OK;
}

// --- top k -----------------------------------------------------------------------------------------------------------

typedef struct top_job {
    dtype type;
    double *hits;
    const void *logits;
    const int32_t *targets;
    int64_t rows, width, stride, k;
} top_job;

// How many of x[from..to) are not below `top`, or, where `ties` allows, not equal to it either. A NaN is neither, and
// counts NANS times more.
#define NANS 0x1p40
BODY double not_below(dtype t, const void *x, int64_t from, int64_t to, vf top, bool ties) {
    const vf one = vf_set1(1);
    vf above = vf_zero(), odd = vf_zero();
    float lane[VL], broken[VL];
    double sum = 0;
    for (int64_t i = from; i < to; i += VL) {
        int n = to - i < VL ? (int)(to - i) : VL;
        vf v = typed_load_n(x, t, i, n), miss = vf_select(ties ? vf_le(v, top) : vf_lt(v, top), vf_zero(), one);
        above = vf_add(above, vf_select(vm_first(n), miss, vf_zero()));
        odd = vf_add(odd, vf_select(vf_eq(v, v), vf_zero(), one));
    }
    vf_store(lane, above), vf_store(broken, odd);
    for (int l = 0; l < VL; l++) sum += (double)lane[l] + NANS * (double)broken[l];
    return sum;
}

// Ahead of it is what is larger, and what is equal and in front of it.
BODY void top_rows(dtype t, const top_job *j, int64_t from, int64_t to) {
    for (int64_t row = from; row < to; row++) {
        const void *x = typed_at(j->logits, t, row * j->stride);
        int32_t target = j->targets[row];
        j->hits[row] = 0;
        if (target < 0 || target >= j->width) continue;
        vf top = vf_set1(typed_get(x, t, target));
        double ahead = not_below(t, x, 0, target, top, false) + not_below(t, x, target, j->width, top, true);
        j->hits[row] = ahead < (double)j->k;
    }
}

static void top_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const top_job *j = ctx;
    int64_t rows = rows_per_item(j->stride), from = item * rows, to = from + rows < j->rows ? from + rows : j->rows;
    BY_TYPE(j->type, top_rows, j, from, to);
}

// moves: sizeof(E) bytes a logit
err_t KERNEL(top_k)(const top_k_args *args, stream *s) {
    int64_t rows = tensor_count(args->targets), count = tensor_count(args->logits), stride = count / rows;
    top_job j = {args->logits->type, args->hits->data, args->logits->data,   args->targets->data, rows,
                 args->classes,      stride,           args->k ? args->k : 1};
    assert(args->hits->type == FP64 && args->targets->type == INT32 && tensor_count(args->hits) == rows &&
           rows * stride == count);
    assert(args->classes >= 1 && args->classes <= stride);
    int64_t per_item = rows_per_item(stride);
    pool_run(s->workers, (rows + per_item - 1) / per_item, top_item, &j);
    return ERR_OK;
}

// --- first equal -----------------------------------------------------------------------------------------------------

typedef struct equal_job {
    dtype type;
    float *at;
    const void *logits;
    const float *values;
    int64_t rows, slices, stride, classes, first;
} equal_job;

// The first of x[0..n) that equals `value`; n: none.
BODY int64_t first_equal_of(dtype t, const void *x, int64_t n, float value) {
    const vf want = vf_set1(value), one = vf_set1(1);
    float lane[VL];
    for (int64_t i = 0; i < n; i += VL) {
        int some = n - i < VL ? (int)(n - i) : VL;
        vf hit = vf_select(vf_eq(typed_load_n(x, t, i, some), want), one, vf_zero());
        vf_store(lane, hit);
        for (int l = 0; l < some; l++)
            if (lane[l] > 0) return i + l;
    }
    return n;
}

BODY void equal_rows(dtype t, const equal_job *j, int64_t from, int64_t to) {
    for (int64_t row = from; row < to; row++) {
        j->at[row] = -(float)FIRST_EQUAL_NONE;
        for (int64_t s = 0; s < j->slices; s++) {
            int64_t first = j->first + s * j->stride,
                    n = j->classes - first < j->stride ? j->classes - first : j->stride;
            int64_t k =
                n > 0 ? first_equal_of(t, typed_at(j->logits, t, (s * j->rows + row) * j->stride), n, j->values[row])
                      : 0;
            if (n <= 0 || k == n) continue;
            j->at[row] = 0 - (float)(first + k);
            break;
        }
    }
}

static void equal_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const equal_job *j = ctx;
    int64_t rows = rows_per_item(j->stride), from = item * rows, to = from + rows < j->rows ? from + rows : j->rows;
    BY_TYPE(j->type, equal_rows, j, from, to);
}

// moves: sizeof(E) bytes a logit, up to the first that is equal
err_t KERNEL(first_equal)(const first_equal_args *args, stream *s) {
    const tensor *x = args->logits;
    equal_job j = {.type = x->type,
                   .at = args->at->data,
                   .logits = x->data,
                   .values = args->values->data,
                   .rows = tensor_count(args->at),
                   .slices = matrix_slices(x),
                   .stride = x->size[x->dims - 1],
                   .classes = args->classes,
                   .first = args->first};
    assert(args->at->type == FP32 && args->values->type == FP32 && tensor_count(args->values) == j.rows &&
           j.rows * j.stride * j.slices == tensor_count(x) && args->classes <= FIRST_EQUAL_NONE);
    int64_t per_item = rows_per_item(j.stride);
    pool_run(s->workers, (j.rows + per_item - 1) / per_item, equal_item, &j);
    return ERR_OK;
}

// --- squared error ---------------------------------------------------------------------------------------------------

// Of a batch's few samples: less than it costs to wake other threads.
// moves: 2 * sizeof(E) bytes an output; losses alone: of each row the first
err_t KERNEL(squared_error)(const squared_error_args *args, stream *s) {
    int64_t rows = tensor_count(args->targets), stride = tensor_count(args->outputs) / rows;
    float *losses = args->losses->data, factor = args->scale ? *args->scale * args->state->loss_scale : 0;
    const float *targets = args->targets->data;
    void *outputs = args->outputs->data;
    dtype t = args->outputs->type;
    (void)s;
    assert(args->losses->type == FP32 && args->targets->type == FP32 && tensor_count(args->losses) == rows &&
           rows * stride == tensor_count(args->outputs) && !args->said == !args->wanted);
    for (int64_t row = 0; row < rows; row++) {
        float y = typed_get(outputs, t, row * stride), d = y - targets[row];
        losses[row] = d * d;
        if (args->said) ((double *)args->said->data)[row] = (double)y;
        if (args->wanted) ((double *)args->wanted->data)[row] = (double)targets[row];
        if (args->scale) typed_set(outputs, t, row * stride, 2 * d * factor);
        for (int64_t i = 1; args->scale && i < stride; i++) typed_set(outputs, t, row * stride + i, 0);
    }
    return ERR_OK;
}

// --- means -----------------------------------------------------------------------------------------------------------

typedef struct means_job {
    double *means;
    const float *losses;
    int64_t length;
} means_job;

static void means_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const means_job *j = ctx;
    double sum = 0;
    for (int64_t i = 0; i < j->length; i++) sum += (double)j->losses[item * j->length + i];
    j->means[item] = sum / (double)j->length;
}

err_t KERNEL(loss_means)(const loss_means_args *args, stream *s) {
    int64_t samples = tensor_count(args->means);
    means_job j = {args->means->data, args->losses->data, tensor_count(args->losses) / samples};
    assert(args->means->type == FP64 && args->losses->type == FP32 && samples * j.length == tensor_count(args->losses));
    pool_run(s->workers, samples, means_item, &j);
    return ERR_OK;
}

// --- how many count --------------------------------------------------------------------------------------------------

typedef struct counts_job {
    double *counts;
    const int32_t *targets;
    int64_t length;
} counts_job;

static void counts_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const counts_job *j = ctx;
    int64_t count = 0;
    for (int64_t i = 0; i < j->length; i++) count += j->targets[item * j->length + i] >= 0;
    j->counts[item] = (double)count;
}

err_t KERNEL(count_targets)(const count_targets_args *args, stream *s) {
    int64_t samples = tensor_count(args->counts);
    counts_job j = {args->counts->data, args->targets->data, tensor_count(args->targets) / samples};
    assert(args->counts->type == FP64 && args->targets->type == INT32 &&
           samples * j.length == tensor_count(args->targets));
    pool_run(s->workers, samples, counts_item, &j);
    return ERR_OK;
}
