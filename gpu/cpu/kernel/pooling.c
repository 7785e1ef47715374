// gpu/cpu/kernel/pooling.c: the largest of a window of pixels, the mean of an image, and what flows back from them.
#include "gpu/cpu/kernel/bytes.h"
#include "gpu/cpu/kernel/kernel.h"

typedef struct pool_job {
    dtype type;
    void *out;
    const void *in;
    uint8_t *index;
    int64_t N, H, W, C, P, Q, taps, stride, pad;
} pool_job;

static pool_job job_of(const tensor *pixels, const tensor *results, int taps, int stride, int pad) {
    const int64_t *x = pixels->size, *y = results->size;
    assert(pixels->dims == 4 && results->dims == 4 && pixels->type == results->type && x[0] == y[0] && x[3] == y[3]);
    assert(taps >= 1 && taps <= 16 && stride >= 1 && pad >= 0 && pad < taps);
    assert(y[1] == conv_out(x[1], taps, stride, pad) && y[2] == conv_out(x[2], taps, stride, pad));
    return (pool_job){.type = pixels->type,
                      .N = x[0],
                      .H = x[1],
                      .W = x[2],
                      .C = x[3],
                      .P = y[1],
                      .Q = y[2],
                      .taps = taps,
                      .stride = stride,
                      .pad = pad};
}

// Of `count` things from `first` on, those within 0 .. limit-1: from .. to-1, counted from first.
typedef struct inside {
    int64_t from, to;
} inside;
static inside inside_of(int64_t first, int64_t count, int64_t limit) {
    return (inside){first < 0 ? -first : 0, first + count > limit ? limit - first : count};
}

// --- the largest -----------------------------------------------------------------------------------------------------

// A NaN that comes after numbers takes their place; nothing takes that of a NaN.
BODY void max_vector(dtype t, const pool_job *j, int64_t row, int64_t q, inside r, int64_t i, int64_t n) {
    const int64_t h = row % j->P * j->stride - j->pad, w = q * j->stride - j->pad, out = (row * j->Q + q) * j->C + i;
    const inside s = inside_of(w, j->taps, j->W);
    vf best = vf_zero(), tap = vf_zero();
    for (int64_t a = r.from; a < r.to; a++)
        for (int64_t b = s.from; b < s.to; b++) {
            vf x = typed_load_n(j->in, t, ((row / j->P * j->H + h + a) * j->W + w + b) * j->C + i, n);
            vf at = vf_set1((float)(a * j->taps + b));
            if (a == r.from && b == s.from) {
                best = x, tap = at;
                continue;
            }
            vm keeps = vf_le(x, best), number = vf_eq(best, best);
            tap = vf_select(number, vf_select(keeps, tap, at), tap);
            best = vf_select(number, vf_select(keeps, best, x), best);
        }
    typed_store_n(j->out, t, out, best, n);
    bytes_store_n(j->index + out, tap, n);
}

BODY void max_row(dtype t, const pool_job *j, int64_t row) {
    const inside r = inside_of(row % j->P * j->stride - j->pad, j->taps, j->H);
    for (int64_t q = 0; q < j->Q; q++) EACH_VECTOR(0, j->C, max_vector, t, j, row, q, r);
}

static void max_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const pool_job j = *(const pool_job *)ctx;
    BY_TYPE(j.type, max_row, &j, item);
}

// alias: none.  moves: x and y once, a byte a result; windows meet in the L1
err_t KERNEL(max_pool_forward)(const max_pool_forward_args *args, stream *s) {
    pool_job j = job_of(args->x, args->y, args->taps, args->stride, args->pad);
    assert(args->index->type == UINT8 && tensor_count(args->index) == tensor_count(args->y));
    j.out = args->y->data, j.in = args->x->data, j.index = args->index->data;
    pool_run(s->workers, j.N * j.P, max_item, &j);
    return ERR_OK;
}

// Windows that have pixel `at` of an axis: first .. end-1.
static void windows_of(const pool_job *j, int64_t at, int64_t limit, int64_t *first, int64_t *end) {
    const int64_t before = at + j->pad - j->taps + 1;
    *first = before <= 0 ? 0 : (before + j->stride - 1) / j->stride;
    *end = (at + j->pad) / j->stride + 1;
    if (*end > limit) *end = limit;
}

BODY void back_vector(dtype t, const pool_job *j, int64_t row, int64_t w, int64_t i, int64_t n) {
    const int64_t image = row / j->H, h = row % j->H;
    int64_t p, p_end, q0, q_end;
    vf sum = vf_zero();
    windows_of(j, h, j->P, &p, &p_end), windows_of(j, w, j->Q, &q0, &q_end);
    for (; p < p_end; p++)
        for (int64_t q = q0; q < q_end; q++) {
            const int64_t at = ((image * j->P + p) * j->Q + q) * j->C + i,
                          tap = (h - p * j->stride + j->pad) * j->taps + w - q * j->stride + j->pad;
            vm chosen = vf_eq(bytes_load_n(j->index + at, n), vf_set1((float)tap));
            sum = vf_add(sum, vf_select(chosen, typed_load_n(j->in, t, at, n), vf_zero()));
        }
    typed_store_n(j->out, t, (row * j->W + w) * j->C + i, sum, n);
}

BODY void back_row(dtype t, const pool_job *j, int64_t row) {
    for (int64_t w = 0; w < j->W; w++) EACH_VECTOR(0, j->C, back_vector, t, j, row, w);
}

static void back_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const pool_job j = *(const pool_job *)ctx;
    BY_TYPE(j.type, back_row, &j, item);
}

// alias: none.  moves: dx and dy once, a byte a result
err_t KERNEL(max_pool_backward)(const max_pool_backward_args *args, stream *s) {
    pool_job j = job_of(args->dx, args->dy, args->taps, args->stride, args->pad);
    assert(args->index->type == UINT8 && tensor_count(args->index) == tensor_count(args->dy));
    j.out = args->dx->data, j.in = args->dy->data, j.index = args->index->data;
    pool_run(s->workers, j.N * j.H, back_item, &j);
    return ERR_OK;
}

// --- the mean --------------------------------------------------------------------------------------------------------

typedef struct mean_job {
    dtype type;
    void *out;
    const void *in;
    int64_t images, pixels, channels;
    float share;
} mean_job;

BODY void mean_vector(dtype t, const mean_job *j, int64_t image, int64_t i, int64_t n) {
    vf sum = vf_zero();
    for (int64_t m = 0; m < j->pixels; m++)
        sum = vf_add(sum, typed_load_n(j->in, t, (image * j->pixels + m) * j->channels + i, n));
    typed_store_n(j->out, t, image * j->channels + i, vf_mul(sum, vf_set1(j->share)), n);
}

BODY void spread_vector(dtype t, const mean_job *j, int64_t image, int64_t i, int64_t n) {
    vf x = vf_mul(typed_load_n(j->in, t, image * j->channels + i, n), vf_set1(j->share));
    for (int64_t m = 0; m < j->pixels; m++) typed_store_n(j->out, t, (image * j->pixels + m) * j->channels + i, x, n);
}

BODY void mean_image(dtype t, bool back, const mean_job *j, int64_t image) {
    if (back) EACH_VECTOR(0, j->channels, spread_vector, t, j, image);
    else EACH_VECTOR(0, j->channels, mean_vector, t, j, image);
}

static void mean_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const mean_job j = *(const mean_job *)ctx;
    BY_TYPE(j.type, mean_image, false, &j, item);
}
static void spread_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const mean_job j = *(const mean_job *)ctx;
    BY_TYPE(j.type, mean_image, true, &j, item);
}

static mean_job mean_of(const tensor *pixels, const tensor *means) {
    const int64_t *x = pixels->size;
    assert(pixels->dims == 4 && means->type == pixels->type && tensor_count(means) == x[0] * x[3]);
    return (mean_job){.type = means->type,
                      .images = x[0],
                      .pixels = x[1] * x[2],
                      .channels = x[3],
                      .share = 1.0f / (float)(x[1] * x[2])};
}

// alias: none.  moves: x once
err_t KERNEL(mean_pool_forward)(const mean_pool_forward_args *args, stream *s) {
    mean_job j = mean_of(args->x, args->y);
    j.out = args->y->data, j.in = args->x->data;
    pool_run(s->workers, j.images, mean_item, &j);
    return ERR_OK;
}

// alias: none.  moves: dx once
err_t KERNEL(mean_pool_backward)(const mean_pool_backward_args *args, stream *s) {
    mean_job j = mean_of(args->dx, args->dy);
    j.out = args->dx->data, j.in = args->dy->data;
    pool_run(s->workers, j.images, spread_item, &j);
    return ERR_OK;
}
