// gpu/cpu/kernel/elementwise.c: sums and conversions that look at each element once: add, cast, bias gradient, sum of
// squares.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/stochastic.h"
#include "gpu/cpu/kernel/typed.h"

// --- add -------------------------------------------------------------------------------------------------------------

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
    assert(args->a->type == args->y->type && args->b->type == args->y->type && tensor_count(args->a) == j.count &&
           tensor_count(args->b) == j.count);
    pool_run(s->workers, slices(j.count), add_item, &j);
    return ERR_OK;
}

// --- columns ---------------------------------------------------------------------------------------------------------

typedef struct columns_job {
    dtype type;
    void *y;
    const void *x;
    int64_t rows, width, y_row, x_row, y_first, x_first;
    float factor;
    bool add;
} columns_job;

BODY void columns_vector(dtype t, const columns_job *j, int64_t row, int64_t i, int64_t n) {
    int64_t at = row * j->y_row + j->y_first + i;
    vf x = typed_load_n(j->x, t, row * j->x_row + j->x_first + i, n), factor = vf_set1(j->factor);
    typed_store_n(j->y, t, at, j->add ? vf_fma(factor, x, typed_load_n(j->y, t, at, n)) : vf_mul(factor, x), n);
}

BODY void columns_rows(dtype t, const columns_job *j, int64_t from, int64_t to) {
    for (int64_t row = from; row < to; row++) EACH_VECTOR(0, j->width, columns_vector, t, j, row);
}

static void columns_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const columns_job j = *(const columns_job *)ctx;
    int64_t rows = rows_per_item(j.width), to = (item + 1) * rows;
    BY_TYPE(j.type, columns_rows, &j, item * rows, to < j.rows ? to : j.rows);
}

// moves: 2 * sizeof(E) bytes an element of the columns, 3 where it adds; memory bound
err_t KERNEL(scale_columns)(const scale_columns_args *args, stream *s) {
    columns_job j = {.type = args->y->type,
                     .y = args->y->data,
                     .x = args->x->data,
                     .rows = args->y->size[0],
                     .width = args->width,
                     .y_row = args->y->size[1],
                     .x_row = args->x->size[1],
                     .y_first = args->y_first,
                     .x_first = args->x_first,
                     .factor = args->factor,
                     .add = args->add};
    assert(args->y->dims == 2 && args->x->dims == 2 && args->x->type == j.type && args->x->size[0] == j.rows);
    assert(j.width >= 1 && j.y_first + j.width <= j.y_row && j.x_first + j.width <= j.x_row);
    int64_t per_item = rows_per_item(j.width);
    pool_run(s->workers, (j.rows + per_item - 1) / per_item, columns_item, &j);
    return ERR_OK;
}

// --- cast ------------------------------------------------------------------------------------------------------------

typedef struct cast_job {
    dtype to, from;
    void *y;
    const void *x;
    int64_t count;
} cast_job;

BODY void cast_vector(dtype from, dtype to, const cast_job *j, int64_t i, int64_t n) {
    typed_store_n(j->y, to, i, typed_load_n(j->x, from, i, n), n);
}

BODY void cast_pair(dtype from, dtype to, const cast_job *j, int64_t at, int64_t end) {
    EACH_VECTOR(at, end, cast_vector, from, to, j);
}

BODY void cast_slice(dtype to, const cast_job *j, int64_t at, int64_t end) {
    BY_TYPE(j->from, cast_pair, to, j, at, end);
}

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

// --- cast, stochastically --------------------------------------------------------------------------------------------

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
    stochastic_job j = {args->y->data, args->x->data, tensor_count(args->y), args->round,
                        (uint32_t)args->state->updates};
    assert(args->x->type == FP32 && (args->y->type == BF16 || args->y->type == FP16) &&
           tensor_count(args->x) == j.count && args->round->first % 64 == 0);
    if (args->state->updates == 0) return KERNEL(cast)(&(cast_args){.y = args->y, .x = args->x}, s);
    pool_run(s->workers, slices(j.count), args->y->type == BF16 ? to_bf16_item : to_fp16_item, &j);
    return ERR_OK;
}

// --- bias gradient ---------------------------------------------------------------------------------------------------

// columns of an item: four running sums hide the latency of an addition
enum { BIAS_VECTORS = 4, BIAS_COLUMNS = BIAS_VECTORS * VL };

typedef struct bias_job {
    dtype type;
    float *dbias;
    const void *dy;
    int64_t rows, columns;  // of a slice
} bias_job;

// `vectors` vectors of columns from c on, rows in order; the last vector has n of them.
BODY void bias_columns(dtype t, const bias_job *j, int64_t c, int vectors, int64_t n) {
    vf sum[BIAS_VECTORS];
    for (int k = 0; k < vectors; k++) sum[k] = vf_zero();
    for (int64_t r = 0; r < j->rows; r++)
        for (int k = 0; k < vectors; k++)
            sum[k] = vf_add(sum[k], typed_load_n(j->dy, t, r * j->columns + c + k * VL, k == vectors - 1 ? n : VL));
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
    bias_job j = *(const bias_job *)ctx;
    int64_t each = (j.columns + BIAS_COLUMNS - 1) / BIAS_COLUMNS, slice = item / each;
    j.dbias += slice * j.columns, j.dy = typed_at(j.dy, j.type, slice * j.rows * j.columns);
    BY_TYPE(j.type, bias_chunk, &j, item % each * BIAS_COLUMNS);
}

// sums: each column from zero, row after row, then added once
err_t KERNEL(bias_backward)(const bias_backward_args *args, stream *s) {
    int64_t all = tensor_count(args->dbias), count = tensor_count(args->dy), slices = matrix_slices(args->dy),
            columns = all / slices;
    bias_job j = {args->dy->type, args->dbias->data, args->dy->data, count / all, columns};
    assert(args->dbias->type == FP32 && j.rows * columns * slices == count);
    if (args->fresh) memset(j.dbias, 0, tensor_bytes(args->dbias));
    pool_run(s->workers, slices * ((columns + BIAS_COLUMNS - 1) / BIAS_COLUMNS), bias_item, &j);
    return ERR_OK;
}

// --- the sum of slices -----------------------------------------------------------------------------------------------

typedef struct slices_job {
    tensor *y;
    const float *parts;
    const tensor *bias, *residual;
    bool add;
    int64_t slices, rows, columns;
} slices_job;

// A binary counter of sums: siblings are added as soon as both are there.
BODY vf slices_tree(const slices_job *j, int64_t i, int64_t n) {
    enum { LEVELS = 16 };
    vf level[LEVELS], sum = typed_load_n(j->parts, FP32, i, n);
    level[0] = sum;
    for (int64_t s = 1; s < j->slices; s++) {
        int l = 0;
        sum = typed_load_n(j->parts, FP32, s * j->rows * j->columns + i, n);
        for (; s >> l & 1; l++) sum = vf_add(level[l], sum);
        level[l] = sum;
    }
    return sum;
}

BODY void slices_row(dtype t, const slices_job *j, int64_t row) {
    for (int64_t c = 0; c < j->columns; c += VL) {
        int64_t at = row * j->columns + c, n = j->columns - c;
        vf x = slices_tree(j, at, n);
        if (j->bias) x = vf_add(x, typed_load_n(j->bias->data, t, c, n));
        if (j->residual) x = vf_add(x, typed_load_n(j->residual->data, t, at, n));
        if (j->add) x = vf_add(typed_load_n(j->y->data, FP32, at, n), x);
        typed_store_n(j->y->data, t, at, x, n);
    }
}

static void slices_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const slices_job *j = ctx;
    int64_t rows = rows_per_item(j->columns), to = (item + 1) * rows < j->rows ? (item + 1) * rows : j->rows;
    for (int64_t row = item * rows; row < to; row++) BY_TYPE(j->y->type, slices_row, j, row);
}

// The same tree in double.
enum { DOUBLES_A_TURN = 512 };

static void doubles_item(void *ctx, int64_t item, int thread) {
    enum { LEVELS = 11 };
    (void)thread;
    const slices_job *j = ctx;
    const int64_t count = j->rows * j->columns, from = item * DOUBLES_A_TURN,
                  n = count - from < DOUBLES_A_TURN ? count - from : DOUBLES_A_TURN;
    const double *parts = (const double *)j->parts + from;
    double level[LEVELS][DOUBLES_A_TURN], sum[DOUBLES_A_TURN];
    for (int64_t s = 0; s < j->slices; s++) {
        int l = 0;
        memcpy(sum, parts + s * count, (size_t)n * sizeof *sum);
        for (; s >> l & 1; l++)
            for (int64_t i = 0; i < n; i++) sum[i] = level[l][i] + sum[i];
        memcpy(level[l], sum, (size_t)n * sizeof *sum);
    }
    memcpy((double *)j->y->data + from, sum, (size_t)n * sizeof *sum);
}

static err_t sum_doubles(slices_job *j, pool *workers) {
    assert(j->y->type == FP64 && !j->bias && !j->residual && !j->add && j->slices <= 1024);
    pool_run(workers, (j->rows * j->columns + DOUBLES_A_TURN - 1) / DOUBLES_A_TURN, doubles_item, j);
    return ERR_OK;
}

// moves: 4 bytes an element of each part (8 in FP64), and what is added and written
err_t KERNEL(sum_slices)(const sum_slices_args *args, stream *s) {
    slices_job j = {args->y,   args->parts->data,    args->bias,           args->residual,
                    args->add, args->parts->size[0], args->parts->size[1], args->parts->size[2]};
    assert(args->parts->dims == 3 && (j.slices & (j.slices - 1)) == 0 && tensor_count(args->y) == j.rows * j.columns);
    if (args->parts->type == FP64) return sum_doubles(&j, s->workers);
    assert(args->parts->type == FP32);
    assert(!j.bias || (j.bias->type == j.y->type && tensor_count(j.bias) == j.columns));
    assert(!j.residual || (j.residual->type == j.y->type && tensor_count(j.residual) == j.rows * j.columns));
    assert(!j.add || j.y->type == FP32);
    int64_t rows = rows_per_item(j.columns);
    pool_run(s->workers, (j.rows + rows - 1) / rows, slices_item, &j);
    return ERR_OK;
}

// --- sum of squares --------------------------------------------------------------------------------------------------

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
