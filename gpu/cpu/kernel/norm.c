// gpu/cpu/kernel/norm.c: layer norm (Ba, Kiros, Hinton 2016), and RMS norm (Zhang & Sennrich 2019), which is the same
// with means of 0 and no bias. A row fits the first-level cache, so mean, variance and result are three passes over it
// (the two-pass variance: subtracting squares of large means would lose everything) and cost one pass of memory.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"

enum {
    // rows of a block in backward: their weight gradients are summed in order, then the blocks in order
    NORM_ROWS = 64,
    NORM_COLUMNS = 256,  // columns of an item when the blocks are added
    // Rows processed side by side: their sums do not wait for each other, and per-column data is read once for all of
    // them. It pays where instructions are the limit: for BF16, and in backward for rows whose weight gradients do not
    // fit the first-level cache. Where memory is the limit, reading short rows in turns is slower than one after the
    // other.
    FORWARD_ROWS = 2,
    BACKWARD_ROWS = VEC_REGISTERS >= 32 ? 4 : 1,
    LONG_ROW = 2048,
};

// Row sums run in 32 interleaved accumulators: two vectors, elements 32 i + l. step(.., i, n, k) for vector k of each
// pair: n elements from i on, VL of them but at the row's end.
#define EACH_PAIR(width, step, ...) \
    do { \
        int64_t i_ = 0, width_ = (width); \
        for (; i_ + 2 * VL <= width_; i_ += 2 * VL) \
            for (int k_ = 0; k_ < 2; k_++) step(__VA_ARGS__, i_ + k_ * VL, (int64_t)VL, k_); \
        for (int k_ = 0; k_ < 2 && i_ < width_; k_++, i_ += VL) step(__VA_ARGS__, i_, width_ - i_, k_); \
    } while (0)

typedef struct norm_job {
    dtype type;
    void *y, *sum;
    float *mean, *rstd;  // mean NULL: RMS norm, without sum and residual
    const void *x, *residual, *w, *b;
    int64_t rows, width;
    float eps, shift;
} norm_job;

typedef struct forward_rows {
    vf total[FORWARD_ROWS][2], mean[FORWARD_ROWS], rstd[FORWARD_ROWS];
} forward_rows;

// What a column is multiplied by. Adding 0 would make +0 of -0.
BODY vf gain(const void *w, dtype t, float shift, int64_t i, int64_t n) {
    vf v = typed_load_n(w, t, i, n);
    return shift != 0 ? vf_add(vf_set1(shift), v) : v;
}

// Adds x (+ residual, rounded to E as it is stored) to the sums.
BODY void total_vector(dtype t, const norm_job *j, forward_rows *f, int64_t first, int rows, int64_t i, int64_t n,
                       int k) {
    for (int r = 0; r < rows; r++) {
        int64_t at = first + r * j->width + i;
        vf v = typed_load_n(j->x, t, at, n);
        if (j->residual) v = typed_round(t, vf_add(v, typed_load_n(j->residual, t, at, n)));
        if (j->sum) typed_store_n(j->sum, t, at, v, n);
        f->total[r][k] = vf_add(f->total[r][k], v);
    }
}

BODY void square_vector(dtype t, const norm_job *j, forward_rows *f, int64_t first, int rows, int64_t i, int64_t n,
                        int k) {
    const void *x = j->sum ? j->sum : j->x;
    for (int r = 0; r < rows; r++) {
        vf d = vf_sub(typed_load_n(x, t, first + r * j->width + i, n), f->mean[r]);
        if (n < VL) d = vf_select(vm_first((int)n), d, vf_zero());
        f->total[r][k] = vf_fma(d, d, f->total[r][k]);
    }
}

BODY void norm_vector(dtype t, const norm_job *j, const forward_rows *f, int64_t first, int rows, int64_t i,
                      int64_t n) {
    const void *x = j->sum ? j->sum : j->x;
    vf w = gain(j->w, t, j->shift, i, n), b = j->b ? typed_load_n(j->b, t, i, n) : vf_zero();
    for (int r = 0; r < rows; r++) {
        int64_t at = first + r * j->width + i;
        vf hat = vf_mul(vf_sub(typed_load_n(x, t, at, n), f->mean[r]), f->rstd[r]);
        typed_store_n(j->y, t, at, j->b ? vf_fma(hat, w, b) : vf_mul(hat, w), n);
        __builtin_prefetch(typed_at(j->x, t, at + rows * j->width));  // the next rows, while these are computed
    }
}

// The mean from a row's total, which is reset to zero.
BODY float row_mean(const norm_job *j, vf total[2]) {
    float mean = vf_sum(vf_add(total[0], total[1])) / (float)j->width;
    total[0] = total[1] = vf_zero();
    return mean;
}

BODY void norm_of(dtype t, const norm_job *j, int64_t row, int rows) {
    int64_t first = row * j->width;
    forward_rows f;
    for (int r = 0; r < rows; r++) f.total[r][0] = f.total[r][1] = vf_zero();
    for (int r = 0; r < rows; r++) f.mean[r] = vf_zero();
    if (j->mean) {
        EACH_PAIR(j->width, total_vector, t, j, &f, first, rows);
        for (int r = 0; r < rows; r++) f.mean[r] = vf_set1(j->mean[row + r] = row_mean(j, f.total[r]));
    }
    EACH_PAIR(j->width, square_vector, t, j, &f, first, rows);
    for (int r = 0; r < rows; r++)
        f.rstd[r] = vf_set1(j->rstd[row + r] = 1.0f / __builtin_sqrtf(row_mean(j, f.total[r]) + j->eps));
    EACH_VECTOR(0, j->width, norm_vector, t, j, &f, first, rows);
}

BODY void norm_typed(dtype t, const norm_job *j, int64_t from, int64_t to) {
    int64_t row = from;
    if (t == BF16)
        for (; row + FORWARD_ROWS <= to; row += FORWARD_ROWS) norm_of(t, j, row, FORWARD_ROWS);
    for (; row < to; row++) norm_of(t, j, row, 1);
}

// Not inlined: rows and heads share it. A copy of the job is one that no store to y can change.
static __attribute__((noinline)) void norm_rows(const norm_job *job, int64_t from, int64_t to) {
    const norm_job j = *job;
    BY_TYPE(j.type, norm_typed, &j, from, to);
}

static void norm_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const norm_job *j = ctx;
    int64_t rows = rows_per_item(j->width), from = item * rows, to = from + rows < j->rows ? from + rows : j->rows;
    norm_rows(j, from, to);
}

// alias: y == x and sum == x or residual allowed, y == sum not.  moves: 2 to 4 * sizeof(E) bytes an element; memory
// bound
err_t KERNEL(layer_norm_forward)(const layer_norm_forward_args *args, stream *s) {
    int64_t width = tensor_count(args->w), rows = tensor_count(args->x) / width;
    assert(rows * width == tensor_count(args->x) && tensor_count(args->y) == rows * width &&
           tensor_count(args->b) == width);
    assert(tensor_count(args->mean) == rows && tensor_count(args->rstd) == rows && args->mean->type == FP32 &&
           args->rstd->type == FP32);
    assert(args->y->type == args->x->type && args->w->type == args->x->type && args->b->type == args->x->type &&
           (args->sum || !args->residual));
    assert(!args->sum || (args->sum->type == args->x->type && tensor_count(args->sum) == rows * width &&
                          args->sum->data != args->y->data));
    assert(!args->residual || (args->residual->type == args->x->type && tensor_count(args->residual) == rows * width));
    norm_job j = {
        .type = args->x->type,
        .y = args->y->data,
        .sum = args->sum ? args->sum->data : NULL,
        .mean = args->mean->data,
        .rstd = args->rstd->data,
        .x = args->x->data,
        .residual = args->residual ? args->residual->data : NULL,
        .w = args->w->data,
        .b = args->b->data,
        .rows = rows,
        .width = width,
        .eps = args->eps,
    };
    int64_t per_item = rows_per_item(width);
    pool_run(s->workers, (rows + per_item - 1) / per_item, norm_item, &j);
    return ERR_OK;
}

err_t KERNEL(rms_norm_forward)(const rms_norm_forward_args *args, stream *s) {
    int64_t width = tensor_count(args->w), rows = tensor_count(args->x) / width, per_item = rows_per_item(width);
    assert(rows * width == tensor_count(args->x) && tensor_count(args->y) == rows * width);
    assert(tensor_count(args->rstd) == rows && args->rstd->type == FP32 && args->y->type == args->x->type &&
           args->w->type == args->x->type);
    norm_job j = {.type = args->x->type,
                  .y = args->y->data,
                  .rstd = args->rstd->data,
                  .x = args->x->data,
                  .w = args->w->data,
                  .rows = rows,
                  .width = width,
                  .eps = args->eps,
                  .shift = args->shift};
    pool_run(s->workers, (rows + per_item - 1) / per_item, norm_item, &j);
    return ERR_OK;
}

// --- backward --------------------------------------------------------------------------------------------------------

typedef struct norm_back_job {
    dtype type;
    void *dx;
    // parts: for each block of rows its dw (width), then its db (width); db and mean NULL: RMS norm
    float *dw, *db, *parts;
    const void *dy, *dresidual, *x, *w;
    const float *mean, *rstd;
    int64_t rows, width, blocks;
    float shift;
} norm_back_job;

typedef struct backward_rows {
    vf mean[BACKWARD_ROWS], rstd[BACKWARD_ROWS], mean_g[BACKWARD_ROWS], mean_gh[BACKWARD_ROWS];
    vf sum_g[BACKWARD_ROWS][2], sum_gh[BACKWARD_ROWS][2];
} backward_rows;

// With h = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - h mean(g h)).  First the sums of the two means, and
// these rows' part of dw and db, row after row. g is zero past the end of a row, because dy reads as zero there.
BODY void sums_vector(dtype t, const norm_back_job *j, backward_rows *b, float *dw, float *db, int64_t first, int rows,
                      int64_t i, int64_t n, int k) {
    vf w = gain(j->w, t, j->shift, i, n), dw_sum = typed_load_n(dw, FP32, i, n), db_sum = typed_load_n(db, FP32, i, n);
    for (int r = 0; r < rows; r++) {
        int64_t at = first + r * j->width + i;
        vf d = typed_load_n(j->dy, t, at, n), g = vf_mul(d, w);
        vf h = vf_mul(vf_sub(typed_load_n(j->x, t, at, n), b->mean[r]), b->rstd[r]);
        b->sum_g[r][k] = vf_add(b->sum_g[r][k], g);
        b->sum_gh[r][k] = vf_fma(g, h, b->sum_gh[r][k]);
        dw_sum = vf_fma(d, h, dw_sum);
        db_sum = vf_add(d, db_sum);
    }
    typed_store_n(dw, FP32, i, dw_sum, n);
    typed_store_n(db, FP32, i, db_sum, n);
}

BODY void dx_vector(dtype t, const norm_back_job *j, const backward_rows *b, int64_t first, int rows, int64_t i,
                    int64_t n) {
    vf w = gain(j->w, t, j->shift, i, n);
    for (int r = 0; r < rows; r++) {
        int64_t at = first + r * j->width + i;
        vf h = vf_mul(vf_sub(typed_load_n(j->x, t, at, n), b->mean[r]), b->rstd[r]),
           g = vf_mul(typed_load_n(j->dy, t, at, n), w);
        vf v = vf_mul(vf_fnma(h, b->mean_gh[r], vf_sub(g, b->mean_g[r])), b->rstd[r]);
        if (j->dresidual) v = vf_add(v, typed_load_n(j->dresidual, t, at, n));
        typed_store_n(j->dx, t, at, v, n);
    }
}

BODY void back_rows(dtype t, const norm_back_job *j, int64_t row, int rows, float *dw, float *db) {
    int64_t first = row * j->width;
    float width = (float)j->width;
    backward_rows b;
    for (int r = 0; r < rows; r++) {
        b.mean[r] = j->mean ? vf_set1(j->mean[row + r]) : vf_zero(), b.rstd[r] = vf_set1(j->rstd[row + r]);
        b.sum_g[r][0] = b.sum_g[r][1] = b.sum_gh[r][0] = b.sum_gh[r][1] = vf_zero();
    }
    EACH_PAIR(j->width, sums_vector, t, j, &b, dw, db, first, rows);
    for (int r = 0; r < rows; r++) {
        b.mean_g[r] = j->mean ? vf_set1(vf_sum(vf_add(b.sum_g[r][0], b.sum_g[r][1])) / width) : vf_zero();
        b.mean_gh[r] = vf_set1(vf_sum(vf_add(b.sum_gh[r][0], b.sum_gh[r][1])) / width);
    }
    EACH_VECTOR(0, j->width, dx_vector, t, j, &b, first, rows);
}

BODY void back_typed(dtype t, const norm_back_job *j, int64_t from, int64_t to, float *dw, float *db) {
    for (int64_t row = from; row < to; row++) back_rows(t, j, row, 1, dw, db);
}

// One after the other. Not inlined, as norm_rows.
static __attribute__((noinline)) void back_each(const norm_back_job *job, int64_t from, int64_t to, float *dw,
                                                float *db) {
    const norm_back_job j = *job;
    BY_TYPE(j.type, back_typed, &j, from, to, dw, db);
}

BODY void back_block(dtype t, const norm_back_job *j, int64_t block) {
    float *dw = j->parts + block * 2 * j->width, *db = dw + j->width;
    memset(dw, 0, (size_t)(2 * j->width) * sizeof *dw);
    int64_t row = block * NORM_ROWS, to = row + NORM_ROWS < j->rows ? row + NORM_ROWS : j->rows;
    if (t == BF16 || j->width >= LONG_ROW)
        for (; row + BACKWARD_ROWS <= to; row += BACKWARD_ROWS) back_rows(t, j, row, BACKWARD_ROWS, dw, db);
    back_each(j, row, to, dw, db);
}

static void back_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const norm_back_job j = *(const norm_back_job *)ctx;
    BY_TYPE(j.type, back_block, &j, item);
}

// Adds the blocks' parts in order, then the sum once to dw and db. A part has dw, then db: 2 * width columns.
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

static err_t column_sums(tensor *sums, const tensor *of, bool fresh, stream *s) {
    return sums ? KERNEL(bias_backward)(&(bias_backward_args){.dbias = sums, .dy = of, .fresh = fresh}, s) : ERR_OK;
}

static err_t norm_backward(norm_back_job *j, const char *who, stream *s) {
    size_t bytes = (size_t)(j->blocks * 2 * j->width) * sizeof(float);
    j->parts = pool_shared(s->workers, bytes);
    if (!j->parts) return err_set(ERR_INTERNAL, "%s: no memory for %zu bytes of partial sums", who, bytes);
    pool_run(s->workers, j->blocks, back_item, j);
    pool_run(s->workers, (j->db ? 2 : 1) * ((j->width + NORM_COLUMNS - 1) / NORM_COLUMNS), add_parts_item, j);
    return ERR_OK;
}

// alias: dx == dresidual or dy allowed, so the sums of dresidual come first.  sums: dw and db over blocks of NORM_ROWS
// rows in order, then over the blocks in order; column sums as bias_backward.
// moves: 3 or 4 * sizeof(E) bytes an element; memory bound
err_t KERNEL(layer_norm_backward)(const layer_norm_backward_args *args, stream *s) {
    int64_t width = tensor_count(args->w), rows = tensor_count(args->x) / width,
            blocks = (rows + NORM_ROWS - 1) / NORM_ROWS;
    assert(rows * width == tensor_count(args->x) && tensor_count(args->dx) == rows * width &&
           tensor_count(args->dy) == rows * width);
    assert(tensor_count(args->dw) == width && tensor_count(args->db) == width && args->dw->type == FP32 &&
           args->db->type == FP32);
    assert(tensor_count(args->mean) == rows && tensor_count(args->rstd) == rows && args->mean->type == FP32 &&
           args->rstd->type == FP32);
    assert(args->dx->type == args->x->type && args->dy->type == args->x->type && args->w->type == args->x->type);
    assert(!args->dresidual ||
           (args->dresidual->type == args->x->type && tensor_count(args->dresidual) == rows * width));
    if (args->fresh)
        memset(args->dw->data, 0, tensor_bytes(args->dw)), memset(args->db->data, 0, tensor_bytes(args->db));
    TRY(column_sums(args->dresidual_sums, args->dresidual, args->fresh, s));
    norm_back_job j = {
        .type = args->x->type,
        .dx = args->dx->data,
        .dw = args->dw->data,
        .db = args->db->data,
        .dy = args->dy->data,
        .dresidual = args->dresidual ? args->dresidual->data : NULL,
        .x = args->x->data,
        .w = args->w->data,
        .mean = args->mean->data,
        .rstd = args->rstd->data,
        .rows = rows,
        .width = width,
        .blocks = blocks,
    };
    TRY(norm_backward(&j, "layer_norm_backward", s));
    return column_sums(args->dx_sums, args->dx, args->fresh, s);
}

err_t KERNEL(rms_norm_backward)(const rms_norm_backward_args *args, stream *s) {
    int64_t width = tensor_count(args->w), rows = tensor_count(args->x) / width,
            blocks = (rows + NORM_ROWS - 1) / NORM_ROWS;
    assert(rows * width == tensor_count(args->x) && tensor_count(args->dx) == rows * width &&
           tensor_count(args->dy) == rows * width);
    assert(tensor_count(args->dw) == width && args->dw->type == FP32 && tensor_count(args->rstd) == rows &&
           args->rstd->type == FP32);
    assert(args->dx->type == args->x->type && args->dy->type == args->x->type && args->w->type == args->x->type);
    assert(!args->dresidual ||
           (args->dresidual->type == args->x->type && tensor_count(args->dresidual) == rows * width));
    if (args->fresh) memset(args->dw->data, 0, tensor_bytes(args->dw));
    norm_back_job j = {.type = args->x->type,
                       .dx = args->dx->data,
                       .dw = args->dw->data,
                       .dy = args->dy->data,
                       .dresidual = args->dresidual ? args->dresidual->data : NULL,
                       .x = args->x->data,
                       .w = args->w->data,
                       .rstd = args->rstd->data,
                       .rows = rows,
                       .width = width,
                       .blocks = blocks,
                       .shift = args->shift};
    return norm_backward(&j, "rms_norm_backward", s);
}

// --- of heads --------------------------------------------------------------------------------------------------------

// The heads of a row lie side by side, so they are rows of D elements: those of x begin at element `first` of each of
// its rows, those that are kept follow each other.
typedef struct heads_job {
    norm_job to;         // y: x, x: what is kept
    norm_back_job back;  // dx and dy: dx, x: what is kept
    void *kept;
    int64_t rows, row, first, count;  // elements of a row of x, and before the first head; heads
} heads_job;

enum { HEAD_ROWS = 16 };  // rows of a block in backward

static int64_t head_items(const heads_job *h, int64_t rows) { return (h->rows + rows - 1) / rows; }

BODY void heads_rows(dtype t, const heads_job *h, int64_t from, int64_t to) {
    for (int64_t row = from; row < to; row++) {
        norm_job j = h->to;
        j.y = typed_at_mut(h->to.y, t, row * h->row + h->first);
        j.x = typed_at(h->kept, t, row * h->count * j.width);
        j.rstd += row * h->count;
        memcpy(typed_at_mut(h->kept, t, row * h->count * j.width), j.y, (size_t)(h->count * j.width) * dtype_bytes(t));
        norm_rows(&j, 0, h->count);
    }
}

static void heads_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const heads_job h = *(const heads_job *)ctx;
    int64_t rows = rows_per_item(h.count * h.to.width), from = item * rows,
            to = from + rows < h.rows ? from + rows : h.rows;
    BY_TYPE(h.to.type, heads_rows, &h, from, to);
}

// moves: 3 * sizeof(E) bytes an element of the heads; memory bound
err_t KERNEL(head_norm_forward)(const head_norm_forward_args *args, stream *s) {
    int64_t width = tensor_count(args->w), rows = args->x->size[0], row = args->x->size[1],
            count = args->kept->size[1] / width;
    assert(args->x->dims == 2 && args->kept->dims == 2 && args->kept->size[0] == rows &&
           args->kept->size[1] == count * width);
    assert(tensor_count(args->rstd) == rows * count && args->rstd->type == FP32 && args->first >= 0 &&
           (args->first + count) * width <= row);
    assert(args->kept->type == args->x->type && args->w->type == args->x->type);
    heads_job h = {
        .to = {.type = args->x->type,
               .y = args->x->data,
               .rstd = args->rstd->data,
               .w = args->w->data,
               .width = width,
               .eps = args->eps,
               .shift = args->shift},
        .kept = args->kept->data,
        .rows = rows,
        .row = row,
        .first = args->first * width,
        .count = count,
    };
    pool_run(s->workers, head_items(&h, rows_per_item(count * width)), heads_item, &h);
    return ERR_OK;
}

BODY void heads_back_block(dtype t, const heads_job *h, int64_t block) {
    int64_t width = h->back.width, to = (block + 1) * HEAD_ROWS < h->rows ? (block + 1) * HEAD_ROWS : h->rows;
    float *dw = h->back.parts + block * 2 * width;
    memset(dw, 0, (size_t)(2 * width) * sizeof *dw);
    for (int64_t row = block * HEAD_ROWS; row < to; row++) {
        norm_back_job j = h->back;
        j.dx = typed_at_mut(h->back.dx, t, row * h->row + h->first);
        j.dy = j.dx;
        j.x = typed_at(h->kept, t, row * h->count * width);
        j.rstd += row * h->count;
        back_each(&j, 0, h->count, dw, dw + width);
    }
}

static void heads_back_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const heads_job h = *(const heads_job *)ctx;
    BY_TYPE(h.back.type, heads_back_block, &h, item);
}

// sums: dw over blocks of HEAD_ROWS rows, head after head, in order, then over the blocks in order.  moves: 3 *
// sizeof(E) bytes an element of the heads
err_t KERNEL(head_norm_backward)(const head_norm_backward_args *args, stream *s) {
    int64_t width = tensor_count(args->w), rows = args->dx->size[0], row = args->dx->size[1],
            count = args->kept->size[1] / width;
    assert(args->dx->dims == 2 && args->kept->dims == 2 && args->kept->size[0] == rows &&
           args->kept->size[1] == count * width);
    assert(tensor_count(args->rstd) == rows * count && args->rstd->type == FP32 && args->first >= 0 &&
           (args->first + count) * width <= row);
    assert(args->kept->type == args->dx->type && args->w->type == args->dx->type && tensor_count(args->dw) == width &&
           args->dw->type == FP32);
    heads_job h = {
        .back = {.type = args->dx->type,
                 .dx = args->dx->data,
                 .dw = args->dw->data,
                 .w = args->w->data,
                 .rstd = args->rstd->data,
                 .width = width,
                 .shift = args->shift},
        .kept = args->kept->data,
        .rows = rows,
        .row = row,
        .first = args->first * width,
        .count = count,
    };
    if (args->fresh) memset(args->dw->data, 0, tensor_bytes(args->dw));
    h.back.blocks = head_items(&h, HEAD_ROWS);
    size_t bytes = (size_t)(h.back.blocks * 2 * width) * sizeof(float);
    h.back.parts = pool_shared(s->workers, bytes);
    if (!h.back.parts)
        return err_set(ERR_INTERNAL, "head_norm_backward: no memory for %zu bytes of partial sums", bytes);
    pool_run(s->workers, h.back.blocks, heads_back_item, &h);
    pool_run(s->workers, (width + NORM_COLUMNS - 1) / NORM_COLUMNS, add_parts_item, &h.back);
    return ERR_OK;
}
