// model/slices.c: see model/slices.h.
#include "model/slices.h"

row_range slices_own(const pass *p, int64_t N) {
    int64_t places = p->merge->places, first = N * p->merge->place / places;
    return (row_range){first, N * (p->merge->place + 1) / places - first};
}

// Each place adds up its own rows of the sum, in FP32, with what follows it, and only then are they rounded and sent: 4 bytes an element one way, an
// element's own size the other way.
static err_t finish_rows(const model *m, const pass *p, const matmul_args *args, const tensor *sum, const tensor *part) {
    int64_t C = matrix_columns(sum);
    row_range own = slices_own(p, matrix_rows(sum));
    tensor parts = view3(&m->parts, p->merge->places, own.count, C), y = tensor_rows(sum, own.first, own.count), residual = {0};
    TRY(p->merge->deal(p->merge->ctx, &parts, part, p->s));
    if (args->residual) residual = tensor_rows(args->residual, own.first, own.count);
    if (own.count)
        TRY(p->ops->sum_slices(&(sum_slices_args){.y = &y, .parts = &parts, .bias = args->bias, .residual = args->residual ? &residual : NULL},
                               p->s));
    return p->merge->gather(p->merge->ctx, sum, p->s);
}

// Slices that are here are added by the product itself. Of others comes their sum, and what follows the whole sum is left for then.
err_t slices_sum(const model *m, const pass *p, matmul_args *args) {
    tensor partials = m->partials, d = *args->d;
    if (partials.data) partials = view3(&partials, m->slices.count, matrix_rows(&d), matrix_columns(&d)), args->partials = &partials;
    if (!p->merge) return p->ops->matmul(args, p->s);
    tensor part = view2(&m->partial, d.size[0], d.size[1]);
    matmul_args here = {.d = &part, .a = args->a, .b = args->b, .tb = args->tb, .partials = args->partials, .rows = args->rows};
    TRY(p->ops->matmul(&here, p->s));
    TRY(finish_rows(m, p, args, args->pre ? args->pre : &d, &part));
    return args->pre ? p->ops->gelu_forward(&(gelu_forward_args){.y = &d, .x = args->pre}, p->s) : ERR_OK;
}
