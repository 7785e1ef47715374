// gpu/cpu/kernel/elementwise.c: sums and conversions that look at each element once: add, cast, bias gradient, sum of squares.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/stochastic.h"
#include "gpu/cpu/kernel/typed.h"

// --- add ---------------------------------------------------------------------------------------------------------------------

typedef struct add_job {
    dtype type;
    void *y;
    const void *a, *b;
    int64_t count;
} add_job;

BODY void add_vector(dtype t, const add_job *j, int64_t i, int64_t n) {
    typed_store_n(j->y, t, i, vf_add(typed_load_n(j->a, t, i, n), typed_load_n(j->b, t, i, n)), n);
}

BODY void add_slice(dtype t, const add_job *j, int64_t from, int64_t to) { EACH_VECTOR(from, to, add_vector, t, j); }

static void add_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const add_job j = *(const add_job *)ctx;
    BY_TYPE(j.type, add_slice, &j, item * SLICE, slice_end(item, j.count));
}

// moves: 3 * sizeof(E) bytes an element; memory bound
err_t KERNEL(add)(const add_args *args, stream *s) {
    add_job j = {args->y->type, args->y->data, args->a->data, args->b->data, tensor_count(args->y)};
    assert(args->a->type == args->y->type && args->b->type == args->y->type && tensor_count(args->a) == j.count && tensor_count(args->b) == j.count);
    pool_run(s->workers, slices(j.count), add_item, &j);
    return ERR_OK;
}

// --- cast --------------------------------------------------------------------------------------------------------------------

typedef struct cast_job {
    dtype to, from;
    void *y;
    const void *x;
    int64_t count;
} cast_job;

BODY void cast_vector(dtype from, dtype to, const cast_job *j, int64_t i, int64_t n) {
    typed_store_n(j->y, to, i, typed_load_n(j->x, from, i, n), n);
}

BODY void cast_pair(dtype from, dtype to, const cast_job *j, int64_t at, int64_t end) { EACH_VECTOR(at, end, cast_vector, from, to, j); }

BODY void cast_slice(dtype to, const cast_job *j, int64_t at, int64_t end) { BY_TYPE(j->from, cast_pair, to, j, at, end); }

static void cast_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const cast_job j = *(const cast_job *)ctx;
    BY_TYPE(j.to, cast_slice, &j, item * SLICE, slice_end(item, j.count));
}

err_t KERNEL(cast)(const cast_args *args, stream *s) {
    cast_job j = {args->y->type, args->x->type, args->y->data, args->x->data, tensor_count(args->y)};
    assert(tensor_count(args->x) == j.count && j.to <= FP16 && j.from <= FP16);
    pool_run(s->workers, slices(j.count), cast_item, &j);
    return ERR_OK;
}

// --- cast, stochastically --------------------------------------------------------------------------------------------------------

typedef struct stochastic_job {
    void *y;
    const void *x;
    int64_t count;
    const rounding_key *round;
    uint32_t t;
} stochastic_job;

// The elements of 64 * blocks words from `at` on, or those of them before `end`.
BODY void stochastic_blocks(dtype to, const stochastic_job *j, int64_t at, int64_t end, int blocks, bool whole) {
    vi word[4 * PHILOX_BLOCKS];
    rounding_words(word, blocks, j->round, at, j->t);
    for (int k = 0; k < 4 * blocks; k++) {
        int64_t i = at + k * VL, n = whole ? VL : end - i;
        typed_store_n(j->y, to, i, typed_stochastic(to, typed_load_n(j->x, FP32, i, n), word[k]), n);
    }
}

BODY void stochastic_slice(dtype to, const stochastic_job *j, int64_t at, int64_t end) {
    for (; at + PHILOX_WORDS <= end; at += PHILOX_WORDS) stochastic_blocks(to, j, at, end, PHILOX_BLOCKS, true);
    for (; at < end; at += 4 * VL) stochastic_blocks(to, j, at, end, 1, false);
}

static void to_bf16_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const stochastic_job j = *(const stochastic_job *)ctx;
    stochastic_slice(BF16, &j, item * SLICE, slice_end(item, j.count));
}

static void to_fp16_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const stochastic_job j = *(const stochastic_job *)ctx;
    stochastic_slice(FP16, &j, item * SLICE, slice_end(item, j.count));
}

// moves: 4 + sizeof(E) bytes an element, and 10 rounds of philox for 4 of them
err_t KERNEL(cast_stochastic)(const cast_stochastic_args *args, stream *s) {
    stochastic_job j = {args->y->data, args->x->data, tensor_count(args->y), args->round, (uint32_t)args->state->adam_t};
    assert(args->x->type == FP32 && (args->y->type == BF16 || args->y->type == FP16) && tensor_count(args->x) == j.count &&
           args->round->first % 64 == 0);
    if (args->state->adam_t == 0) return KERNEL(cast)(&(cast_args){.y = args->y, .x = args->x}, s);
    pool_run(s->workers, slices(j.count), args->y->type == BF16 ? to_bf16_item : to_fp16_item, &j);
    return ERR_OK;
}

// --- bias gradient -----------------------------------------------------------------------------------------------------------

enum { BIAS_VECTORS = 4, BIAS_COLUMNS = BIAS_VECTORS * VL };  // columns of an item: four running sums hide the latency of an addition

typedef struct bias_job {
    dtype type;
    float *dbias;
    const void *dy;
    int64_t rows, columns;
} bias_job;

// `vectors` vectors of columns from c on, rows in order; the last vector has n of them.
BODY void bias_columns(dtype t, const bias_job *j, int64_t c, int vectors, int64_t n) {
    vf sum[BIAS_VECTORS];
    for (int k = 0; k < vectors; k++) sum[k] = vf_zero();
    for (int64_t r = 0; r < j->rows; r++)
        for (int k = 0; k < vectors; k++) sum[k] = vf_add(sum[k], typed_load_n(j->dy, t, r * j->columns + c + k * VL, k == vectors - 1 ? n : VL));
    for (int k = 0; k < vectors; k++) {
        int64_t at = c + k * VL, m = k == vectors - 1 ? n : VL;
        typed_store_n(j->dbias, FP32, at, vf_add(typed_load_n(j->dbias, FP32, at, m), sum[k]), m);
    }
}

BODY void bias_chunk(dtype t, const bias_job *j, int64_t c) {
    if (c + BIAS_COLUMNS <= j->columns) bias_columns(t, j, c, BIAS_VECTORS, VL);
    else
        for (; c < j->columns; c += VL) bias_columns(t, j, c, 1, j->columns - c);
}

static void bias_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const bias_job j = *(const bias_job *)ctx;
    BY_TYPE(j.type, bias_chunk, &j, item * BIAS_COLUMNS);
}

// sums: each column from zero, row after row, then added once
err_t KERNEL(bias_backward)(const bias_backward_args *args, stream *s) {
    int64_t columns = tensor_count(args->dbias), count = tensor_count(args->dy);
    bias_job j = {args->dy->type, args->dbias->data, args->dy->data, count / columns, columns};
    assert(args->dbias->type == FP32 && j.rows * columns == count);
    if (args->fresh) memset(j.dbias, 0, tensor_bytes(args->dbias));
    pool_run(s->workers, (columns + BIAS_COLUMNS - 1) / BIAS_COLUMNS, bias_item, &j);
    return ERR_OK;
}

// --- sum of squares ----------------------------------------------------------------------------------------------------------

typedef struct squares_job {
    double *sums;
    const float *g;
    int64_t count;
} squares_job;

// The square of a float is exact in double, so only the additions round: eight running sums, then their tree.
static void squares_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const squares_job *j = ctx;
    const float *g = j->g + item * CHUNK;
    int64_t n = j->count - item * CHUNK < CHUNK ? j->count - item * CHUNK : CHUNK, i = 0;
    double sum[8] = {0};
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++) sum[l] += (double)g[i + l] * (double)g[i + l];
    for (; i < n; i++) sum[i % 8] += (double)g[i] * (double)g[i];
    j->sums[item] = ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

err_t KERNEL(sum_squares)(const sum_squares_args *args, stream *s) {
    squares_job j = {args->sums->data, args->g->data, tensor_count(args->g)};
    int64_t chunks = (j.count + CHUNK - 1) / CHUNK;
    assert(args->sums->type == FP64 && args->g->type == FP32 && tensor_count(args->sums) >= chunks);
    pool_run(s->workers, chunks, squares_item, &j);
    return ERR_OK;
}
