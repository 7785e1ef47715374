// gpu/cpu/kernel/norm.c: layer norm (Ba, Kiros, Hinton 2016). A row fits the first-level cache, so mean, variance and result are three
// passes over it (the two-pass variance: subtracting squares of large means would lose everything) and cost one pass of memory.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"

enum {
    NORM_ROWS = 64,      // rows of a block in backward: their weight gradients are summed in order, then the blocks in order
    NORM_COLUMNS = 256,  // columns of an item when the blocks are added
};

// Row sums run in 32 interleaved accumulators: two vectors, elements 32 i + l.
#define ROW_EACH(i, width) for (int64_t i = 0; i < (width); i += 2 * VL)

typedef struct norm_job {
    dtype type;
    void *y, *sum;
    float *mean, *rstd;
    const void *x, *residual, *w, *b;
    int64_t rows, width;
    float eps;
} norm_job;

// Sums x (+ residual), rounded to T as it is stored, over the row.
BODY float norm_total(dtype t, const norm_job *j, const void *x, const void *residual, void *sum) {
    vf total[2] = {vf_zero(), vf_zero()};
    ROW_EACH(i, j->width) for (int k = 0; k < 2; k++) {
        int64_t at = i + k * VL, n = j->width - at;
        vf v = typed_load_n(x, t, at, n);
        if (residual) v = typed_round(t, vf_add(v, typed_load_n(residual, t, at, n)));
        if (sum) typed_store_n(sum, t, at, v, n);
        total[k] = vf_add(total[k], v);
    }
    return vf_sum(vf_add(total[0], total[1]));
}

BODY float norm_squares(dtype t, const void *x, int64_t width, float mean) {
    vf total[2] = {vf_zero(), vf_zero()}, m = vf_set1(mean);
    int64_t i = 0;
    for (; i + 2 * VL <= width; i += 2 * VL)
        for (int k = 0; k < 2; k++) {
            vf d = vf_sub(typed_load(x, t, i + k * VL), m);
            total[k] = vf_fma(d, d, total[k]);
        }
    for (int k = 0; k < 2 && i < width; k++, i += VL) {
        int n = width - i < VL ? (int)(width - i) : VL;
        vf d = vf_select(vm_first(n), vf_sub(typed_load_n(x, t, i, n), m), vf_zero());
        total[k] = vf_fma(d, d, total[k]);
    }
    return vf_sum(vf_add(total[0], total[1]));
}

BODY void norm_row(dtype t, const norm_job *j, int64_t row) {
    int64_t width = j->width, first = row * width;
    const void *x = typed_at(j->x, t, first), *residual = j->residual ? typed_at(j->residual, t, first) : NULL;
    void *sum = j->sum ? typed_at_mut(j->sum, t, first) : NULL, *y = typed_at_mut(j->y, t, first);
    float mean = norm_total(t, j, x, residual, sum) / (float)width;
    if (sum) x = sum;
    float rstd = 1.0f / __builtin_sqrtf(norm_squares(t, x, width, mean) / (float)width + j->eps);
    j->mean[row] = mean, j->rstd[row] = rstd;
    vf m = vf_set1(mean), r = vf_set1(rstd);
    for (int64_t i = 0; i < width; i += VL) {
        int64_t n = width - i;
        vf hat = vf_mul(vf_sub(typed_load_n(x, t, i, n), m), r);
        typed_store_n(y, t, i, vf_fma(hat, typed_load_n(j->w, t, i, n), typed_load_n(j->b, t, i, n)), n);
    }
}

BODY void norm_rows(dtype t, const norm_job *j, int64_t from, int64_t to) {
    for (int64_t row = from; row < to; row++) norm_row(t, j, row);
}

static void norm_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const norm_job *j = ctx;
    int64_t rows = rows_per_item(j->width), from = item * rows, to = from + rows < j->rows ? from + rows : j->rows;
    BY_TYPE(j->type, norm_rows, j, from, to);
}

// alias: y == x and sum == x or residual allowed, y == sum not.  moves: 2 to 4 * sizeof(T) bytes an element; memory bound
err_t KERNEL(layer_norm_forward)(tensor *y, tensor *mean, tensor *rstd, tensor *sum, const tensor *x, const tensor *residual,
                                 const tensor *w, const tensor *b, float eps, stream *s) {
    int64_t width = tensor_count(w), rows = tensor_count(x) / width;
    assert(rows * width == tensor_count(x) && tensor_count(y) == rows * width && tensor_count(b) == width);
    assert(tensor_count(mean) == rows && tensor_count(rstd) == rows && mean->type == FP32 && rstd->type == FP32);
    assert(y->type == x->type && w->type == x->type && b->type == x->type && (sum || !residual));
    assert(!sum || (sum->type == x->type && tensor_count(sum) == rows * width && sum->data != y->data));
    assert(!residual || (residual->type == x->type && tensor_count(residual) == rows * width));
    norm_job j = {
        .type = x->type, .y = y->data, .sum = sum ? sum->data : NULL, .mean = mean->data, .rstd = rstd->data, .x = x->data,
        .residual = residual ? residual->data : NULL, .w = w->data, .b = b->data, .rows = rows, .width = width, .eps = eps,
    };
    int64_t per_item = rows_per_item(width);
    pool_run(s->workers, (rows + per_item - 1) / per_item, norm_item, &j);
    return ERR_OK;
}

// --- backward ----------------------------------------------------------------------------------------------------------------

typedef struct norm_back_job {
    dtype type;
    void *dx;
    float *dw, *db, *parts;  // parts: for each block of rows its dw (width), then its db (width)
    const void *dy, *dresidual, *x, *w;
    const float *mean, *rstd;
    int64_t rows, width, blocks;
} norm_back_job;

// With h = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - h mean(g h)).  First the two means, and this row's part of dw and db.
BODY void back_row(dtype t, const norm_back_job *j, int64_t row, float *dw, float *db) {
    int64_t width = j->width, first = row * width;
    const void *x = typed_at(j->x, t, first), *dy = typed_at(j->dy, t, first);
    const void *dresidual = j->dresidual ? typed_at(j->dresidual, t, first) : NULL;
    void *dx = typed_at_mut(j->dx, t, first);
    vf m = vf_set1(j->mean[row]), r = vf_set1(j->rstd[row]);
    vf sum_g[2] = {vf_zero(), vf_zero()}, sum_gh[2] = {vf_zero(), vf_zero()};
    ROW_EACH(i, width) for (int k = 0; k < 2; k++) {
        int64_t at = i + k * VL, n = width - at;
        vf d = typed_load_n(dy, t, at, n), h = vf_mul(vf_sub(typed_load_n(x, t, at, n), m), r);
        vf g = vf_mul(d, typed_load_n(j->w, t, at, n));  // zero behind the end of the row, as dy reads there
        sum_g[k] = vf_add(sum_g[k], g);
        sum_gh[k] = vf_fma(g, h, sum_gh[k]);
        typed_store_n(dw, FP32, at, vf_fma(d, h, typed_load_n(dw, FP32, at, n)), n);
        typed_store_n(db, FP32, at, vf_add(d, typed_load_n(db, FP32, at, n)), n);
    }
    vf mean_g = vf_set1(vf_sum(vf_add(sum_g[0], sum_g[1])) / (float)width);
    vf mean_gh = vf_set1(vf_sum(vf_add(sum_gh[0], sum_gh[1])) / (float)width);
    for (int64_t i = 0; i < width; i += VL) {
        int64_t n = width - i;
        vf h = vf_mul(vf_sub(typed_load_n(x, t, i, n), m), r);
        vf g = vf_mul(typed_load_n(dy, t, i, n), typed_load_n(j->w, t, i, n));
        vf v = vf_mul(vf_fnma(h, mean_gh, vf_sub(g, mean_g)), r);
        if (dresidual) v = vf_add(v, typed_load_n(dresidual, t, i, n));
        typed_store_n(dx, t, i, v, n);
    }
}

BODY void back_block(dtype t, const norm_back_job *j, int64_t block) {
    float *dw = j->parts + block * 2 * j->width, *db = dw + j->width;
    memset(dw, 0, (size_t)(2 * j->width) * sizeof *dw);
    int64_t to = (block + 1) * NORM_ROWS < j->rows ? (block + 1) * NORM_ROWS : j->rows;
    for (int64_t row = block * NORM_ROWS; row < to; row++) back_row(t, j, row, dw, db);
}

static void back_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const norm_back_job *j = ctx;
    BY_TYPE(j->type, back_block, j, item);
}

// The blocks' parts, in order, then once onto what is there. dw and db stand one behind the other: 2 * width columns.
static void add_parts_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const norm_back_job *j = ctx;
    int64_t half = (j->width + NORM_COLUMNS - 1) / NORM_COLUMNS, at = item % half * NORM_COLUMNS;
    int64_t to = at + NORM_COLUMNS < j->width ? at + NORM_COLUMNS : j->width;
    float *out = item < half ? j->dw : j->db;
    const float *part = j->parts + (item < half ? 0 : j->width);
    for (; at < to; at += VL) {
        vf sum = vf_zero();
        for (int64_t block = 0; block < j->blocks; block++)
            sum = vf_add(sum, typed_load_n(part, FP32, block * 2 * j->width + at, to - at));
        typed_store_n(out, FP32, at, vf_add(typed_load_n(out, FP32, at, to - at), sum), to - at);
    }
}

// alias: dx == dresidual or dy allowed.  sums: dw and db over blocks of NORM_ROWS rows in order, then over the blocks in order.
// moves: 3 or 4 * sizeof(T) bytes an element; memory bound
err_t KERNEL(layer_norm_backward)(tensor *dx, tensor *dw, tensor *db, const tensor *dy, const tensor *dresidual, const tensor *x,
                                  const tensor *w, const tensor *mean, const tensor *rstd, stream *s) {
    int64_t width = tensor_count(w), rows = tensor_count(x) / width, blocks = (rows + NORM_ROWS - 1) / NORM_ROWS;
    assert(rows * width == tensor_count(x) && tensor_count(dx) == rows * width && tensor_count(dy) == rows * width);
    assert(tensor_count(dw) == width && tensor_count(db) == width && dw->type == FP32 && db->type == FP32);
    assert(tensor_count(mean) == rows && tensor_count(rstd) == rows && mean->type == FP32 && rstd->type == FP32);
    assert(dx->type == x->type && dy->type == x->type && w->type == x->type);
    assert(!dresidual || (dresidual->type == x->type && tensor_count(dresidual) == rows * width));
    size_t bytes = (size_t)(blocks * 2 * width) * sizeof(float);
    float *parts = pool_shared(s->workers, bytes);
    if (!parts) return err_set(ERR_INTERNAL, "layer_norm_backward: no memory for %zu bytes of partial sums", bytes);
    norm_back_job j = {
        .type = x->type, .dx = dx->data, .dw = dw->data, .db = db->data, .parts = parts, .dy = dy->data,
        .dresidual = dresidual ? dresidual->data : NULL, .x = x->data, .w = w->data, .mean = mean->data, .rstd = rstd->data,
        .rows = rows, .width = width, .blocks = blocks,
    };
    pool_run(s->workers, blocks, back_item, &j);
    pool_run(s->workers, 2 * ((width + NORM_COLUMNS - 1) / NORM_COLUMNS), add_parts_item, &j);
    return ERR_OK;
}
