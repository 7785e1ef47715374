// model/op/rms_norm.c: y = x * rstd * (shift + w), of each row    (Zhang & Sennrich 2019). Backward makes x's gradient,
// the part that flows past the norm included.
#include "model/op/op.h"

enum { Y, RSTD };                                    // results
enum { F_Y, F_RSTD, F_X };                           // operands of forward
enum { B_DX, B_DY, B_PAST, B_X, B_RSTD, B_UNREAD };  // of backward; UNREAD: instead of the gradient of a frozen w

static err_t norm(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    tensor y = at(f, s->v[F_Y]), rstd = at(f, s->v[F_RSTD]), x = at(f, s->v[F_X]);
    if (!y.size[0]) return ERR_OK;
    return f->p->ops->rms_norm_forward(
        &(rms_norm_forward_args){
            .y = &y, .rstd = &rstd, .x = &x, .w = &f->p->w[o->at.w], .eps = o->eps, .shift = o->shift},
        f->p->s);
}

static err_t norm_backward(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    int w = o->at.w;
    tensor dx = at(f, s->v[B_DX]), dy = at(f, s->v[B_DY]), x = at(f, s->v[B_X]), rstd = at(f, s->v[B_RSTD]), past;
    tensor unread, *frozen = at_if(f, s->v[B_UNREAD], &unread);
    rms_norm_backward_args args = {.dx = &dx,
                                   .dw = frozen ? frozen : &f->p->dw[w],
                                   .dy = &dy,
                                   .dresidual = at_if(f, s->v[B_PAST], &past),
                                   .x = &x,
                                   .w = &f->p->w[w],
                                   .rstd = &rstd,
                                   .shift = o->shift,
                                   .fresh = frozen};
    if (!frozen) return slices_rms_norm_backward(f->m, f->p, rows_of_samples(f, s->v[B_X]), &args);
    return dx.size[0] ? f->p->ops->rms_norm_backward(&args, f->p->s) : ERR_OK;
}

static void forward(lowering *L, int op, const operation *o) {
    uses(emit(L, "rms norm", norm, op, "wwr", o->out[Y], o->out[RSTD], o->in[0]), o->at.w);
}

static void backward(lowering *L, int op, const operation *o) {
    value x = o->in[0], past = L->v[x].users > 1 ? L->grad[x] : 0, dx = make_gradient(L, x, L->v[x].at);
    step *s = emit(L, "rms norm's gradient", norm_backward, op, "wrrrr", dx, L->given[op], past, x, o->out[RSTD]);
    s->into = B_DX, s->over = past ? B_PAST : -1;
    uses(s, o->at.w);
    if (is_trained(L, o->at.w)) adds(s, o->at.w), s->meets = MEET_SUM_OF_ROWS;
    else add_operand(s, 'w', make_unread(L, o->at.w));
    L->grad[x] = dx;
}

static const op_type type = {
    .name = "rms norm", .adds = true, .freezes = true, .cheap = true, .forward = forward, .backward = backward};

value rms_norm(graph *g, value x, const char *name, double eps, double shift) {
    operation *o = graph_add(g, &type, name, x, 0);
    graph_value y = *graph_at(g, x), row = {.name = ".rstd",
                                            .letters = "1",
                                            .width = 1,
                                            .at = y.at,
                                            .rows = y.rows,
                                            .text = y.text,
                                            .shape = SHAPE_PER_ROW,
                                            .type = FP32};
    o->at.w = graph_param(g, name, ".weight", y.width, 0, 0, 1 - (float)shift), o->eps = (float)eps,
    o->shift = (float)shift;
    graph_same(g, o), graph_result(g, o, RSTD, row);
    return o->out[Y];
}
