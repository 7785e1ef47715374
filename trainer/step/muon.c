// trainer/step/muon.c: see trainer/step/muon.h; and what becomes of a row by it and of all other rows, which AdamW
// updates. Of [optimizer] it reads what adamw reads, and muon_momentum.
#include "trainer/step/muon.h"

#include "trainer/step/optimizer.h"

#include <math.h>
#include <stdlib.h>

enum { ITERATIONS = 5 };
static const float coefficient[3] = {3.4445f, -4.7750f, 2.0315f};
#define LEAST_NORM 1e-7

// --- memory ----------------------------------------------------------------------------------------------------------

// One of the matrices of a row: rows first .. first+rows-1 of it.
typedef struct part {
    int64_t first, rows, columns;
} part;

static part part_of(const param *p, int k) {
    part x = {.rows = p->share[0] ? p->share[k] : p->size[0], .columns = p->size[1]};
    for (int i = 0; i < k && p->share[0]; i++) x.first += p->share[i];
    return x;
}

static int parts_of(const param *p) {
    int n = 0;
    while (n < PARAM_SHARES && p->share[n]) n++;
    return n ? n : 1;
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t chunks_of(int64_t n) { return (n + CHUNK - 1) / CHUNK; }

void muon_count(muon_room *m, const param *p) {
    m->row = most(m->row, p->size[0] * p->size[1]);
    for (int k = 0; k < parts_of(p); k++) {
        part x = part_of(p, k);
        m->part = most(m->part, x.rows * x.columns);
        m->side = most(m->side, x.rows < x.columns ? x.rows : x.columns);
        m->chunks = most(m->chunks, chunks_of(x.rows * x.columns));
    }
}

err_t muon_declare(muon_room *m, arena *a, const comm *layer) {
    if (!m->row) return ERR_OK;
    m->cut = calloc((size_t)(layer ? layer->world : 1) + 1, sizeof *m->cut);
    if (!m->cut) return err_set(ERR_INTERNAL, "no memory for a table of ranks");
    TRY(arena_1d(a, &m->d, FP32, m->row));
    for (int k = 0; k < 2; k++) TRY(arena_1d(a, &m->x[k], FP32, m->part));
    for (int k = 0; k < 3; k++) TRY(arena_1d(a, &m->square[k], FP32, m->side * m->side));
    return arena_1d(a, &m->sums, FP64, m->chunks);
}

void muon_close(muon_room *m) {
    free(m->cut);
    *m = (muon_room){0};
}

tensor muon_slice(const muon_room *m, const param *p, int slice, int64_t count) {
    tensor t = view1(&m->d, count);
    t.data = (float *)m->d.data + slice * param_slice_room(p);
    return t;
}

// --- ranks that share a layer ----------------------------------------------------------------------------------------

static const size_t *cuts(muon_room *m, const param *p, const comm *layer) {
    size_t each = (size_t)(param_slice_room(p) * (param_slices(p) / layer->world)) * sizeof(float);
    for (int k = 0; k <= layer->world; k++) m->cut[k] = (size_t)k * each;
    return m->cut;
}

static bool is_shared(const param *p, const comm *layer) { return layer && layer->world > 1 && param_slices(p) > 1; }

err_t muon_gather(muon_room *m, const param *p, comm *layer, stream *s) {
    if (!is_shared(p, layer)) return ERR_OK;
    layer->phase.what = "share directions";
    return layer->table->all_gather(layer, m->d.data, cuts(m, p, layer), s);
}

comm_cost muon_gather_cost(muon_room *m, const param *p, const comm *layer) {
    return is_shared(p, layer) ? cost_all_gather(layer, cuts(m, p, layer)) : (comm_cost){0};
}

// --- the iteration ---------------------------------------------------------------------------------------------------

static err_t add_columns(const ops *on, tensor *y, const tensor *x, float factor, bool add, stream *s) {
    return on->scale_columns(&(scale_columns_args){.y = y, .x = x, .width = x->size[1], .factor = factor, .add = add},
                             s);
}

// x[1] = the next of x[0], of R rows and C columns.
static err_t iterate(const tensor *from, const tensor *to, const tensor square[3], int64_t R, int64_t C, const ops *on,
                     stream *s) {
    bool wide = R <= C;
    int64_t n = wide ? R : C;
    tensor x = view2(from, R, C), y = view2(to, R, C), a = view2(&square[0], n, n), aa = view2(&square[1], n, n),
           b = view2(&square[2], n, n);
    TRY(on->matmul(&(matmul_args){.d = &a, .a = &x, .ta = !wide, .b = &x, .tb = wide}, s));
    TRY(on->matmul(&(matmul_args){.d = &aa, .a = &a, .b = &a}, s));
    TRY(add_columns(on, &b, &a, coefficient[1], false, s));
    TRY(add_columns(on, &b, &aa, coefficient[2], true, s));
    TRY(on->matmul(&(matmul_args){.d = &y, .a = wide ? &b : &x, .b = wide ? &x : &b}, s));
    return add_columns(on, &y, &x, coefficient[0], true, s);
}

// Some rows of a matrix of so many columns.
static tensor rows_at(const tensor *of, int64_t at, int64_t rows, int64_t columns) {
    tensor t = view2(of, rows, columns);
    t.data = (float *)of->data + at;
    return t;
}

// A slice's share of a matrix: between its place in d and its place in x, either way.
static err_t move(const muon_room *m, const param *p, part of, int slice, const tensor *whole, bool back, const ops *on,
                  stream *s) {
    int64_t slices = param_slices(p), room = param_slice_room(p), columns = of.columns;
    float factor = back ? (float)(0.2 * sqrt((double)most(of.rows, of.columns))) : 1;
    scale_columns_args args = {.factor = factor};
    tensor in_d, in_x;
    if (slices > 1 && p->axis == 1) {
        columns /= slices;
        in_d = rows_at(&m->d, slice * room, of.rows, columns), in_x = rows_at(whole, 0, of.rows, of.columns);
        *(back ? &args.x_first : &args.y_first) = slice * columns;
    } else {
        int64_t rows = of.rows / slices;
        in_d = rows_at(&m->d, slice * room + of.first / slices * columns, rows, columns);
        in_x = rows_at(whole, slice * rows * columns, rows, columns);
    }
    args.width = columns, args.y = back ? &in_d : &in_x, args.x = back ? &in_x : &in_d;
    return on->scale_columns(&args, s);
}

static err_t orthogonalize(const muon_room *m, const param *p, part of, int first, int count, const ops *on,
                           stream *s) {
    int64_t n = of.rows * of.columns;
    tensor x = view1(&m->x[0], n), sums = view1(&m->sums, chunks_of(n));
    for (int k = 0; k < param_slices(p); k++) TRY(move(m, p, of, k, &m->x[0], false, on, s));
    TRY(on->sum_squares(&(sum_squares_args){.sums = &sums, .g = &x}, s));
    TRY(on->normalize(&(normalize_args){.x = &x, .sums = &sums, .eps = LEAST_NORM}, s));
    for (int k = 0; k < ITERATIONS; k++)
        TRY(iterate(&m->x[k % 2], &m->x[(k + 1) % 2], m->square, of.rows, of.columns, on, s));
    for (int k = first; k < first + count; k++) TRY(move(m, p, of, k, &m->x[ITERATIONS % 2], true, on, s));
    return ERR_OK;
}

err_t muon_orthogonalize(const muon_room *m, const param *p, int first, int count, const ops *on, stream *s) {
    for (int k = 0; k < parts_of(p); k++) TRY(orthogonalize(m, p, part_of(p, k), first, count, on, s));
    return ERR_OK;
}

// --- the optimizer ---------------------------------------------------------------------------------------------------

// Matrices keep the first, the mean of their gradient; v stays zero for them.
static const char *array(const optimizer_keys *o, int k) { return optimizer_adamw.array(o, k); }
static bool scalar(const optimizer_keys *o, int k, optimizer_scalar *to) { return optimizer_adamw.scalar(o, k, to); }

static err_t update(const ops *on, const optimizer_keys *o, optimizer_piece *p, stream *s) {
    return optimizer_adamw.update(on, o, p, s);
}

static err_t direct(const ops *on, const optimizer_keys *o, optimizer_piece *p, tensor *d, stream *s) {
    return on->muon_direction(
        &(muon_direction_args){
            .d = d, .m = &p->array[0], .grad = &p->grad, .state = p->state, .momentum = o->muon_momentum},
        s);
}

// The decay is apart from the gradient, as adamw's: a step of gradient descent along d + decay * master is the same.
static err_t turn(const ops *on, const optimizer_keys *o, optimizer_piece *p, const tensor *d, stream *s) {
    const sgd_rules rules = {.weight_decay = p->decay, .lr_factor = p->lr, .factor = 1};
    (void)o;
    return on->sgd(&(sgd_args){.w = piece_weights(p),
                               .master = &p->master,
                               .grad = d,
                               .state = p->state,
                               .rules = &rules,
                               .round = p->round},
                   s);
}

const optimizer optimizer_muon = {
    .array = array, .scalar = scalar, .update = update, .direct = direct, .turn = turn, .highest_lr = 1e-3};
