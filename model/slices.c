// model/slices.c: see model/slices.h.
#include "model/slices.h"

#include <assert.h>

// --- planning --------------------------------------------------------------------------------------------------------

void model_divide(model *m, int index, int axis, int matrices, const int64_t *rows) {
    param *p = &m->param[index];
    if (m->slices.of == 1) return;
    p->slices = m->slices.of, p->axis = axis;
    for (int k = 0; k < matrices; k++) p->share[k] = rows[k];
}

err_t model_plan_slices(model *m, arena *a, const model_plan *o, int64_t N, int64_t C) {
    model_slices *x = &m->slices;
    *x = (model_slices){x->of, o->slice_first, o->slice_count ? o->slice_count : x->of, o->slice_rows};
    m->tokens = (model_tokens){m->tokens.of, o->token_first, o->token_count ? o->token_count : m->tokens.of};
    N = model_most_matrix_rows(m, N);
    m->scratch = (slices_scratch_memory){0};
    if (x->of == 1) return ERR_OK;
    if (m->stream && !o->forward_only) {
        TRY(arena_3d(a, &m->scratch.row_sums, FP32, SUMS_OVER_ROWS, x->rows ? x->count : x->of / m->tokens.of, C));
        TRY(arena_2d(a, &m->scratch.row_sum, FP32, SUMS_OVER_ROWS, C));
    }
    if (x->rows) TRY(arena_2d(a, &m->scratch.all_rows, o->compute, N, C));
    if (device_about(a->dev)->kind == DEVICE_CUDA && x->count > 1)
        TRY(arena_3d(a, &m->scratch.partials, FP32, x->count, N, C));
    if (x->count == x->of) return ERR_OK;
    int64_t ranks = x->of / x->count;
    TRY(arena_2d(a, &m->scratch.partial, FP32, N, C));
    return arena_3d(a, &m->scratch.parts, FP32, ranks, (N + ranks - 1) / ranks, C);
}

// --- sums over slices ------------------------------------------------------------------------------------------------

// Each rank adds up its own rows of the sum in FP32, with bias and residual, then rounds them and sends them: 4 bytes
// an element one way, an element's own size the other way.
static err_t finish_rows(const model *m, const pass *p, const matmul_args *args, const tensor *sum, const tensor *part,
                         bool own) {
    int ranks = p->merge->ranks, rank = p->merge->rank;
    int64_t N = matrix_rows(part), C = matrix_columns(part), first = part_row(N, rank, ranks),
            count = part_row(N, rank + 1, ranks) - first;
    tensor parts = view3(&m->scratch.parts, ranks, count, C), y = tensor_rows(sum, own ? 0 : first, count),
           residual = {0};
    TRY(p->merge->deal(p->merge->ctx, &parts, part, p->s));
    if (args->residual) residual = tensor_rows(args->residual, own ? 0 : first, count);
    if (count)
        TRY(p->ops->sum_slices(
            &(sum_slices_args){
                .y = &y, .parts = &parts, .bias = args->bias, .residual = args->residual ? &residual : NULL},
            p->s));
    return own ? ERR_OK : p->merge->gather(p->merge->ctx, sum, NULL, p->s);
}

// The product itself adds the slices that are here. If other ranks have slices, bias, residual and GELU wait for the
// sum of all.
err_t slices_sum(const model *m, const pass *p, matmul_args *args, bool own) {
    tensor partials = m->scratch.partials, d = *args->d;
    int64_t N = matrix_rows(args->a), C = matrix_columns(&d);
    if (partials.data) partials = view3(&partials, m->slices.count, N, C), args->partials = &partials;
    if (!p->merge) return p->ops->matmul(args, p->s);
    tensor part = view2(&m->scratch.partial, N, C);
    matmul_args here = {
        .d = &part, .a = args->a, .b = args->b, .tb = args->tb, .partials = args->partials, .rows = args->rows};
    TRY(p->ops->matmul(&here, p->s));
    TRY(finish_rows(m, p, args, args->pre ? args->pre : &d, &part, own));
    return args->pre ? p->ops->gelu_forward(&(gelu_forward_args){.y = &d, .x = args->pre, .erf = args->erf}, p->s)
                     : ERR_OK;
}

// --- rows of one's own -----------------------------------------------------------------------------------------------

tensor slices_scratch(const model *m, const tensor *x, int64_t N, int64_t C) {
    return view2(m->slices.rows ? &m->scratch.all_rows : x, N, C);
}

err_t slices_gather(const model *m, const pass *p, tensor *all, const tensor *own, int64_t N) {
    *all = slices_scratch(m, own, N, matrix_columns(own));
    return m->slices.rows ? p->merge->gather(p->merge->ctx, all, own, p->s) : ERR_OK;
}

err_t slices_take(const model *m, const pass *p, const tensor *own, const tensor *all) {
    tensor from = tensor_rows(all, model_row(m, m->slices.first, matrix_rows(all)), matrix_rows(own)), to = *own;
    return m->slices.rows && matrix_rows(own) ? p->ops->cast(&(cast_args){.y = &to, .x = &from}, p->s) : ERR_OK;
}

// --- attention's rows ------------------------------------------------------------------------------------------------

err_t slices_share_rows(const pass *p, const tensor *x) {
    tensor all = view2(x, x->size[0], tensor_count(x) / x->size[0]);
    return p->swap ? p->swap->merge.gather(p->swap->merge.ctx, &all, NULL, p->s) : ERR_OK;
}

// Rows of other ranks are zero here, so that only one rank has bits other than 0.
err_t slices_pick_rows(const model *m, const pass *p, const tensor *picked, const tensor *own, int64_t first,
                       int64_t N) {
    int64_t n = picked->size[0], before = model_first_row(m, N), from = first > before ? first : before;
    int64_t last = before + own->size[0], to = first + n < last ? first + n : last;
    if (p->swap) TRY(stream_zero(p->s, picked->data, tensor_bytes(picked)));
    if (from < to) {
        tensor y = tensor_rows(picked, from - first, to - from), x = tensor_rows(own, from - before, to - from);
        TRY(p->ops->cast(&(cast_args){.y = &y, .x = &x}, p->s));
    }
    return p->swap ? p->swap->merge.whole(p->swap->merge.ctx, MERGE_PICK, picked, p->s) : ERR_OK;
}

// --- sums over token slices ------------------------------------------------------------------------------------------

err_t slices_sum_tokens(const model *m, const pass *p, const tensor *sum, const tensor *parts) {
    tensor all = view3(parts, m->tokens.count, 1, tensor_count(sum)), to = *sum;
    if (m->tokens.count > 1) TRY(p->ops->sum_slices(&(sum_slices_args){.y = &to, .parts = &all}, p->s));
    return p->swap ? p->swap->merge.whole(p->swap->merge.ctx, MERGE_SUM, sum, p->s) : ERR_OK;
}

// --- sums over rows --------------------------------------------------------------------------------------------------

// An operation on some of this rank's rows that also forms sums over them: sums += or, with fresh, =.
typedef err_t (*rows_call)(const void *args, const pass *p, int64_t first, int64_t rows, tensor *const *sums,
                           bool fresh);

// Sum k of each slice of rows: (slices of rows here, 1, C).
static tensor parts_of(const model *m, int k, int64_t slices, int64_t C) {
    tensor all = view2(&m->scratch.row_sums, SUMS_OVER_ROWS * slices, C), mine = tensor_rows(&all, k * slices, slices);
    return view3(&mine, slices, 1, C);
}

// Adds up the slices' parts of each sum; the ranks communicate once for all sums.
static err_t add_up(const model *m, const pass *p, tensor *const *sums, int count, int64_t slices, int64_t C) {
    tensor whole = view2(&m->scratch.row_sum, count, C);
    for (int k = 0; k < count; k++) {
        tensor parts = parts_of(m, k, slices, C),
               to = m->slices.rows ? tensor_rows(&whole, k, 1) : view2(sums[k], 1, C);
        TRY(p->ops->sum_slices(&(sum_slices_args){.y = &to, .parts = &parts, .add = !m->slices.rows && !p->fresh},
                               p->s));
    }
    if (!m->slices.rows) return ERR_OK;
    TRY(slices_whole(p, MERGE_SUM, &whole));
    for (int k = 0; k < count; k++) {
        tensor one = tensor_rows(&whole, k, 1), part = view3(&one, 1, 1, C), to = view2(sums[k], 1, C);
        TRY(p->ops->sum_slices(&(sum_slices_args){.y = &to, .parts = &part, .add = !p->fresh}, p->s));
    }
    return ERR_OK;
}

// Calls it for the rows of each of these slices, and adds the slices' sums. `before`: the row that is first in memory.
// sums[k] NULL: not wanted.
static err_t sum_slices_of_rows(const model *m, const pass *p, int64_t N, int64_t before, int first, int slices,
                                rows_call call, const void *args, tensor *const *sums, int count) {
    tensor *wanted[SUMS_OVER_ROWS] = {NULL}, part[SUMS_OVER_ROWS], *to[SUMS_OVER_ROWS] = {NULL};
    int n = 0;
    for (int k = 0; k < count; k++)
        if (sums[k]) to[k] = &part[n], wanted[n++] = sums[k];
    int64_t C = tensor_count(sums[0]);
    for (int s = first; s < first + slices; s++) {
        int64_t at = model_row(m, s, N), rows = model_row(m, s + 1, N) - at;
        assert(rows > 0);
        for (int k = 0; k < n; k++) {
            tensor parts = parts_of(m, k, slices, C), row = tensor_rows(&parts, s - first, 1);
            part[k] = view1(&row, C);
        }
        TRY(call(args, p, at - before, rows, to, true));
    }
    return add_up(m, p, wanted, n, slices, C);
}

// The same gradient in another table.
static tensor *same_in(const pass *to, const pass *from, tensor *sum) { return sum ? to->dw + (sum - from->dw) : NULL; }

// A token slice is a subtree of the slices of all rows, and has a sum of its own. sums: in p->dw.
static err_t sum_rows(const model *m, const pass *p, int64_t N, rows_call call, const void *args, tensor *const *sums,
                      int count) {
    const model_slices *x = &m->slices;
    int each = x->of / m->tokens.of;
    if (x->of == 1) return call(args, p, 0, N, sums, p->fresh);
    if (x->rows)
        return sum_slices_of_rows(m, p, N, model_row(m, x->first, N), x->first, x->count, call, args, sums, count);
    for (int k = 0; k < m->tokens.count; k++) {
        token_part own = model_token_part(m, p, k, N);
        tensor *mine[SUMS_OVER_ROWS];
        for (int i = 0; i < count; i++) mine[i] = same_in(&own.p, p, sums[i]);
        TRY(sum_slices_of_rows(m, &own.p, N, model_first_row(m, N), (m->tokens.first + k) * each, each, call, args,
                               mine, count));
    }
    return ERR_OK;
}

static err_t layer_norm_rows(const void *args, const pass *p, int64_t first, int64_t rows, tensor *const *sums,
                             bool fresh) {
    layer_norm_backward_args x = *(const layer_norm_backward_args *)args;
    tensor dx = tensor_rows(x.dx, first, rows), dy = tensor_rows(x.dy, first, rows), in = tensor_rows(x.x, first, rows);
    tensor mean = tensor_rows(x.mean, first, rows), rstd = tensor_rows(x.rstd, first, rows), past = {0};
    if (x.dresidual) past = tensor_rows(x.dresidual, first, rows), x.dresidual = &past;
    x.dx = &dx, x.dy = &dy, x.x = &in, x.mean = &mean, x.rstd = &rstd;
    x.dw = sums[0], x.db = sums[1], x.dx_sums = sums[2], x.dresidual_sums = sums[3], x.fresh = fresh;
    return p->ops->layer_norm_backward(&x, p->s);
}

err_t slices_layer_norm_backward(const model *m, const pass *p, int64_t N, const layer_norm_backward_args *args) {
    tensor *const sums[] = {args->dw, args->db, args->dx_sums, args->dresidual_sums};
    return sum_rows(m, p, N, layer_norm_rows, args, sums, 4);
}

static err_t rms_norm_rows(const void *args, const pass *p, int64_t first, int64_t rows, tensor *const *sums,
                           bool fresh) {
    rms_norm_backward_args x = *(const rms_norm_backward_args *)args;
    tensor dx = tensor_rows(x.dx, first, rows), dy = tensor_rows(x.dy, first, rows), in = tensor_rows(x.x, first, rows);
    tensor rstd = tensor_rows(x.rstd, first, rows), past = {0};
    if (x.dresidual) past = tensor_rows(x.dresidual, first, rows), x.dresidual = &past;
    x.dx = &dx, x.dy = &dy, x.x = &in, x.rstd = &rstd;
    x.dw = sums[0], x.fresh = fresh;
    return p->ops->rms_norm_backward(&x, p->s);
}

err_t slices_rms_norm_backward(const model *m, const pass *p, int64_t N, const rms_norm_backward_args *args) {
    return sum_rows(m, p, N, rms_norm_rows, args, (tensor *const[]){args->dw}, 1);
}
