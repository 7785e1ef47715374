// gpu/cpu/kernel/batch_norm.c: batch normalisation, its statistics and its gradients. A row is a pixel; channels are
// its elements, and vectors run across them.
//
// Sums are in double, channel by channel: each block of BATCH_NORM_ROWS rows from zero, row after row, then the blocks
// in order. Threads take blocks. A block goes through its rows a few at a time, all channels of those before the next:
// so memory is read in a few long streams, and the sums of a block stay in the L1 meanwhile. (Channel by channel, each
// row at a distance of C floats, was half as fast.)
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"
#include "gpu/cpu/kernel/vec_double.h"

#include <inttypes.h>
#include <math.h>

enum { ROWS_AT_ONCE = 4 };

typedef struct norm_job {
    dtype type;
    int64_t rows, channels;
    const void *x, *dy, *y, *residual;  // y: of a relu, or NULL
    const float *center;                // of sums: or NULL
    const float *mean, *rstd, *gain, *bias;
    bool relu;
    void *out, *dresidual;
    double *blocks;  // (blocks, 2, padded channels)
    double *sums;    // (2, channels)
    float *dgain, *dbias;
    bool fresh;
    const float *share, *slope;  // mean of g, and of g * (x - mean) times rstd^2
} norm_job;

static int64_t padded(int64_t channels) { return (channels + VL - 1) / VL * VL; }
static int64_t blocks_of(int64_t rows) { return (rows + BATCH_NORM_ROWS - 1) / BATCH_NORM_ROWS; }

static const float *floats(const tensor *t, int64_t channels) {
    assert(!t || (t->type == FP32 && tensor_count(t) == channels));
    (void)channels;
    return t ? t->data : NULL;
}

// --- sums ------------------------------------------------------------------------------------------------------------

// The gradient that comes back through a relu, or as it is.
BODY vf gradient_at(dtype t, const norm_job *j, int64_t at, int64_t n) {
    vf dy = typed_load_n(j->dy, t, at, n);
    return j->y ? vf_select(vf_lt(vf_zero(), typed_load_n(j->y, t, at, n)), dy, vf_zero()) : dy;
}

// Rows from .. to-1 of channels i .. i+n-1, onto sums of u and of u*v: u = v = x - center, or u = g, v = x - mean.
BODY void add_rows(dtype t, bool back, const norm_job *j, double *sums, int64_t from, int64_t to, int64_t i,
                   int64_t n) {
    double *products = sums + padded(j->channels);
    vd s = vd_load(sums + i), p = vd_load(products + i);
    const vf center = j->center ? typed_load_n(j->center, FP32, i, n) : vf_zero();
    for (int64_t m = from; m < to; m++) {
        const int64_t at = m * j->channels + i;
        vf d = vf_sub(typed_load_n(j->x, t, at, n), center);
        vd v = vd_from(d), u = back ? vd_from(gradient_at(t, j, at, n)) : v;
        s = vd_add(s, u), p = vd_multiply_add(u, v, p);
    }
    vd_store(sums + i, s), vd_store(products + i, p);
}

BODY void block_sums(dtype t, bool back, const norm_job *j, int64_t block) {
    const int64_t C = j->channels, first = block * BATCH_NORM_ROWS,
                  end = first + BATCH_NORM_ROWS < j->rows ? first + BATCH_NORM_ROWS : j->rows,
                  step = C <= 2 * VL ? BATCH_NORM_ROWS : ROWS_AT_ONCE;
    double *sums = j->blocks + block * 2 * padded(C);
    memset(sums, 0, (size_t)(2 * padded(C)) * sizeof *sums);
    for (int64_t m = first; m < end; m += step) {
        const int64_t to = m + step < end ? m + step : end;
        int64_t i = 0;
        for (; i + VL <= C; i += VL) add_rows(t, back, j, sums, m, to, i, VL);
        if (i < C) add_rows(t, back, j, sums, m, to, i, C - i);
    }
}

static void sums_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const norm_job *j = ctx;
    if (j->dy) BY_TYPE(j->type, block_sums, true, j, item);
    else BY_TYPE(j->type, block_sums, false, j, item);
}

enum { CHANNELS_A_TURN = 256 };

static void add_gradient(float *to, int64_t c, float x, bool fresh) {
    if (to) to[c] = fresh ? x : to[c] + x;
}

static void blocks_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const norm_job *j = ctx;
    const int64_t C = j->channels, from = item * CHANNELS_A_TURN,
                  to = from + CHANNELS_A_TURN < C ? from + CHANNELS_A_TURN : C;
    double sum[2][CHANNELS_A_TURN];
    for (int k = 0; k < 2; k++)
        for (int64_t b = 0; b < blocks_of(j->rows); b++) {
            const double *of = j->blocks + (2 * b + k) * padded(C);
            for (int64_t c = from; c < to; c++) sum[k][c - from] = b ? sum[k][c - from] + of[c] : of[c];
        }
    for (int64_t c = from; c < to; c++) {
        j->sums[c] = sum[0][c - from], j->sums[C + c] = sum[1][c - from];
        add_gradient(j->dbias, c, (float)sum[0][c - from], j->fresh);
        if (j->dgain) add_gradient(j->dgain, c, (float)((double)j->rstd[c] * sum[1][c - from]), j->fresh);
    }
}

static err_t add_all(norm_job *j, pool *workers) {
    const int64_t blocks = blocks_of(j->rows);
    const size_t bytes = (size_t)(blocks * 2 * padded(j->channels)) * sizeof(double);
    j->blocks = pool_shared(workers, bytes);
    if (!j->blocks)
        return err_set(ERR_INTERNAL,
                       "batch norm of %" PRId64 " rows of %" PRId64 " channels: no memory for %.1f MB of sums", j->rows,
                       j->channels, (double)bytes / 1e6);
    pool_run(workers, blocks, sums_item, j);
    pool_run(workers, (j->channels + CHANNELS_A_TURN - 1) / CHANNELS_A_TURN, blocks_item, j);
    return ERR_OK;
}

static norm_job job_of(const tensor *x, int64_t channels) {
    norm_job j = {.type = x->type, .x = x->data, .channels = channels, .rows = tensor_count(x) / channels};
    assert(j.rows >= 1 && j.rows * channels == tensor_count(x) && x->size[x->dims - 1] == channels);
    return j;
}

// moves: x once
err_t KERNEL(batch_norm_sums)(const batch_norm_sums_args *args, stream *s) {
    norm_job j = job_of(args->x, args->sums->size[1]);
    assert(args->sums->type == FP64 && tensor_count(args->sums) == 2 * j.channels);
    j.center = floats(args->center, j.channels), j.sums = args->sums->data;
    return add_all(&j, s->workers);
}

// moves: dy, x and, after a relu, y once
err_t KERNEL(batch_norm_back_sums)(const batch_norm_back_sums_args *args, stream *s) {
    norm_job j = job_of(args->x, args->sums->size[1]);
    assert(args->sums->type == FP64 && tensor_count(args->sums) == 2 * j.channels);
    assert(args->dy->type == j.type && tensor_count(args->dy) == tensor_count(args->x));
    assert(!args->y || (args->y->type == j.type && tensor_count(args->y) == tensor_count(args->x)));
    j.dy = args->dy->data, j.y = args->y ? args->y->data : NULL, j.sums = args->sums->data;
    j.center = floats(args->mean, j.channels), j.rstd = floats(args->rstd, j.channels);
    j.dgain = args->dgain ? args->dgain->data : NULL, j.dbias = args->dbias ? args->dbias->data : NULL;
    j.fresh = args->fresh;
    return add_all(&j, s->workers);
}

// --- moments ---------------------------------------------------------------------------------------------------------

err_t KERNEL(batch_norm_moments)(const batch_norm_moments_args *args, stream *s) {
    (void)s;
    const int64_t C = tensor_count(args->mean);
    const double *sums = args->running ? NULL : args->sums->data, rows = (double)args->rows;
    const float *center = floats(args->center, C), *running = floats(args->running, C);
    float *mean = args->mean->data, *rstd = args->rstd->data, *variance = args->variance ? args->variance->data : NULL;
    assert(running || (args->rows >= 1 && args->sums->type == FP64 && tensor_count(args->sums) == 2 * C));
    assert(floats(args->mean, C) && floats(args->rstd, C) && (!variance || floats(args->variance, C)));
    for (int64_t c = 0; c < C; c++) {
        double m = sums ? sums[c] / rows : 0, v = sums ? sums[C + c] / rows - m * m : (double)running[c];
        if (v < 0) v = 0;
        mean[c] = (float)((center ? (double)center[c] : 0) + m);
        rstd[c] = (float)(1 / sqrt(v + args->eps));
        if (variance) variance[c] = (float)(sums && args->rows > 1 ? v * (rows / (rows - 1)) : v);
    }
    return ERR_OK;
}

// --- rows ------------------------------------------------------------------------------------------------------------

BODY void apply_vector(dtype t, const norm_job *j, int64_t row, int64_t i, int64_t n) {
    const int64_t at = row + i;
    vf scale = vf_mul(typed_load_n(j->rstd, FP32, i, n), typed_load_n(j->gain, FP32, i, n));
    vf d = vf_sub(typed_load_n(j->x, t, at, n), typed_load_n(j->mean, FP32, i, n));
    vf y = vf_fma(d, scale, typed_load_n(j->bias, FP32, i, n));
    if (j->residual) y = vf_add(y, typed_load_n(j->residual, t, at, n));
    if (j->relu) y = vf_select(vf_le(y, vf_zero()), vf_zero(), y);
    typed_store_n(j->out, t, at, y, n);
}

BODY void back_vector(dtype t, const norm_job *j, int64_t row, int64_t i, int64_t n) {
    const int64_t at = row + i;
    vf scale = vf_mul(typed_load_n(j->gain, FP32, i, n), typed_load_n(j->rstd, FP32, i, n));
    vf d = vf_sub(typed_load_n(j->x, t, at, n), typed_load_n(j->mean, FP32, i, n)), g = gradient_at(t, j, at, n);
    vf dx = vf_fnma(d, typed_load_n(j->slope, FP32, i, n), vf_sub(g, typed_load_n(j->share, FP32, i, n)));
    if (j->dresidual) typed_store_n(j->dresidual, t, at, g, n);
    typed_store_n(j->out, t, at, vf_mul(scale, dx), n);
}

BODY void rows_of(dtype t, bool back, const norm_job *j, int64_t from, int64_t to) {
    for (int64_t m = from; m < to; m++) {
        if (back) EACH_VECTOR(0, j->channels, back_vector, t, j, m * j->channels);
        else EACH_VECTOR(0, j->channels, apply_vector, t, j, m * j->channels);
    }
}

static void rows_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const norm_job j = *(const norm_job *)ctx;
    int64_t rows = rows_per_item(j.channels), from = item * rows, to = from + rows < j.rows ? from + rows : j.rows;
    if (j.dy) BY_TYPE(j.type, rows_of, true, &j, from, to);
    else BY_TYPE(j.type, rows_of, false, &j, from, to);
}

static void all_rows(norm_job *j, pool *workers) {
    const int64_t rows = rows_per_item(j->channels);
    pool_run(workers, (j->rows + rows - 1) / rows, rows_item, j);
}

// alias: y == x and y == residual allowed.  moves: x and y once, and the residual
err_t KERNEL(batch_norm_apply)(const batch_norm_apply_args *args, stream *s) {
    norm_job j = job_of(args->x, tensor_count(args->mean));
    assert(args->y->type == j.type && tensor_count(args->y) == tensor_count(args->x));
    assert(!args->residual ||
           (args->residual->type == j.type && tensor_count(args->residual) == tensor_count(args->x)));
    j.out = args->y->data, j.residual = args->residual ? args->residual->data : NULL, j.relu = args->relu;
    j.mean = floats(args->mean, j.channels), j.rstd = floats(args->rstd, j.channels);
    j.gain = floats(args->gain, j.channels), j.bias = floats(args->bias, j.channels);
    all_rows(&j, s->workers);
    return ERR_OK;
}

// alias: dx == dy or dresidual == dy allowed.  moves: dy, x, dx once, and y and dresidual
err_t KERNEL(batch_norm_back)(const batch_norm_back_args *args, stream *s) {
    norm_job j = job_of(args->x, tensor_count(args->mean));
    const int64_t C = j.channels;
    const double *sums = args->sums->data, rows = (double)args->rows;
    float *means = pool_shared(s->workers, (size_t)(2 * C) * sizeof *means);
    if (!means)
        return err_set(ERR_INTERNAL, "batch norm of %" PRId64 " channels: no memory for %.3f MB of means", C,
                       (double)(2 * C) * sizeof *means / 1e6);
    assert(args->dy->type == j.type && tensor_count(args->dy) == tensor_count(args->x) && args->rows >= 1);
    assert(args->dx->type == j.type && tensor_count(args->dx) == tensor_count(args->x));
    assert(args->sums->type == FP64 && tensor_count(args->sums) == 2 * C);
    assert(!args->y || (args->y->type == j.type && tensor_count(args->y) == tensor_count(args->x)));
    assert(!args->dresidual || (args->dresidual->type == j.type && args->dresidual->data != args->dx->data &&
                                tensor_count(args->dresidual) == tensor_count(args->x)));
    j.mean = floats(args->mean, C), j.rstd = floats(args->rstd, C), j.gain = floats(args->gain, C);
    for (int64_t c = 0; c < C; c++) {
        means[c] = (float)(sums[c] / rows);
        means[C + c] = (float)((double)j.rstd[c] * (double)j.rstd[c] * (sums[C + c] / rows));
    }
    j.share = means, j.slope = means + C;
    j.dy = args->dy->data, j.y = args->y ? args->y->data : NULL;
    j.out = args->dx->data, j.dresidual = args->dresidual ? args->dresidual->data : NULL;
    all_rows(&j, s->workers);
    return ERR_OK;
}
