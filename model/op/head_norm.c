// model/op/head_norm.c: RMS norm of each of some heads of a row, by one weight for all of them, in place    (Dehghani
// et al. 2023, section 2.2). The weight's gradient is also a sum over heads: each slice has its own sum, and the sums
// are added along the tree.
#include "model/op/op.h"

#include <stdio.h>

enum { Y, KEPT, RSTD };  // results: in place; what the heads were; 1 / their root mean squares
// operands of backward; UNREAD: instead of the gradient of a frozen w
enum { B_DX, B_KEPT, B_RSTD, B_PARTS, B_PART, B_UNREAD };

static int first_of(const frame *f, const step *s) { return f->op[s->op].first_head / f->m->slices.of; }

static err_t norm(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    tensor x = at_rows(f, s->v[Y]), kept = at_rows(f, s->v[KEPT]), rstd = at_rows(f, s->v[RSTD]);
    if (!f->matrix) return ERR_OK;
    return f->p->ops->head_norm_forward(&(head_norm_forward_args){.x = &x,
                                                                  .kept = &kept,
                                                                  .rstd = &rstd,
                                                                  .w = &f->p->w[o->at.w],
                                                                  .first = first_of(f, s),
                                                                  .eps = o->eps,
                                                                  .shift = o->shift},
                                        f->p->s);
}

// Rows first .. first+n-1 of the heads of slice k.
static err_t rows_backward(const pass *p, const head_norm_backward_args *args, int64_t N, int64_t k, int64_t first,
                           int64_t n, tensor *dw) {
    head_norm_backward_args x = *args;
    tensor dx = tensor_rows(args->dx, k * N + first, n), kept = tensor_rows(args->kept, k * N + first, n);
    tensor rstd = tensor_rows(args->rstd, k * N + first, n);
    x.dx = &dx, x.kept = &kept, x.rstd = &rstd, x.dw = dw, x.fresh = true;
    return p->ops->head_norm_backward(&x, p->s);
}

static err_t token_slice_backward(const frame *f, const step *s, const pass *p, const head_norm_backward_args *args,
                                  int64_t first, int64_t n) {
    int64_t slices = f->m->slices.count, D = args->w->size[0];
    tensor all = at(f, s->v[B_PARTS]), one = at(f, s->v[B_PART]);
    tensor parts = view3(&all, slices, 1, D), part = view2(&one, 1, D), whole = view3(&one, 1, 1, D),
           to = view2(args->dw, 1, D);
    for (int64_t k = 0; k < slices; k++) {
        tensor dw = tensor_rows(&parts, k, 1);
        dw = view1(&dw, D);
        TRY(rows_backward(p, args, args->dx->size[0] / slices, k, first, n, &dw));
    }
    if (p->merge) {
        TRY(p->ops->sum_slices(&(sum_slices_args){.y = &part, .parts = &parts}, p->s));
        TRY(slices_whole(p, MERGE_SUM, &part));
    }
    return p->ops->sum_slices(&(sum_slices_args){.y = &to, .parts = p->merge ? &whole : &parts, .add = !args->fresh},
                              p->s);
}

static err_t norm_backward(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    int w = o->at.w;
    tensor dx = at_rows(f, s->v[B_DX]), kept = at_rows(f, s->v[B_KEPT]), rstd = at_rows(f, s->v[B_RSTD]);
    head_norm_backward_args args = {.dx = &dx,
                                    .dw = &f->p->dw[w],
                                    .kept = &kept,
                                    .rstd = &rstd,
                                    .w = &f->p->w[w],
                                    .first = first_of(f, s),
                                    .shift = o->shift,
                                    .fresh = f->p->fresh};
    tensor unread;
    if (at_if(f, s->v[B_UNREAD], &unread)) {
        args.dw = &unread, args.fresh = true;
        return f->matrix ? f->p->ops->head_norm_backward(&args, f->p->s) : ERR_OK;
    }
    if (f->m->slices.of == 1) return f->p->ops->head_norm_backward(&args, f->p->s);
    for (int k = 0; k < f->m->tokens.count; k++) {
        token_part own = model_token_part(f->m, f->p, k, f->all);
        args.dw = &own.p.dw[w], args.fresh = own.p.fresh;
        TRY(token_slice_backward(f, s, &own.p, &args, own.first, own.n));
    }
    return ERR_OK;
}

static void forward(lowering *L, int op, const operation *o) {
    uses(emit(L, "head norm", norm, op, "uww", o->out[Y], o->out[KEPT], o->out[RSTD]), o->at.w);
}

// Sums over the heads of each slice, and over those of all.
static value scratch(lowering *L, const operation *o, const char *after, const char *letters, int64_t width) {
    graph_value x = {.letters = letters, .width = width, .shape = SHAPE_PLAIN, .type = FP32};
    snprintf(x.name, sizeof x.name, "%s%s", o->name, after);
    return make_value(L, &x);
}

static void backward(lowering *L, int op, const operation *o) {
    const model *m = L->g->m;
    value d = as(L, L->given[op], LAYOUT_SLICES);
    int64_t D = m->param[o->at.w].size[0];
    step *s = emit(L, "head norm's gradient", norm_backward, op, "urr", d, o->out[KEPT], o->out[RSTD]);
    L->grad[o->in[0]] = d;
    uses(s, o->at.w);
    if (!is_trained(L, o->at.w)) {
        add_operand(s, 'w', 0), add_operand(s, 'w', 0), add_operand(s, 'w', make_unread(L, o->at.w));
        return;
    }
    if (m->slices.of > 1) {
        add_operand(s, 'w', scratch(L, o, ".sums", "SD", m->slices.count * D));
        add_operand(s, 'w', scratch(L, o, ".sum", "D", D));
    }
    adds(s, o->at.w);
    s->meets = MEET_SUM;
}

static const op_type type = {.name = "head norm", .freezes = true, .forward = forward, .backward = backward};

value head_norm(graph *g, value qkv, const char *name, int64_t head_size, int64_t first, int64_t heads, double eps,
                double shift) {
    operation *o = graph_add(g, &type, name, qkv, 0);
    layout where = graph_at(g, qkv)->at;
    o->at.w = graph_param(g, name, ".weight", head_size, 0, 0, 1 - (float)shift);
    o->first_head = (int)first, o->heads = (int)heads, o->eps = (float)eps, o->shift = (float)shift;
    graph_in_place(g, o);
    graph_result(
        g, o, KEPT,
        (graph_value){.name = ".before", .letters = "hD", .width = heads * head_size, .at = where, .is_E = true});
    graph_result(g, o, RSTD, (graph_value){.name = ".rstd", .letters = "h", .width = heads, .at = where, .type = FP32});
    return o->out[Y];
}
