// model/op/conv.c: a convolution of images with K filters of taps x taps pixels, without a bias: a batch norm follows.
// Backward can add the gradient of its input that later operations have formed.
#include "model/op/op.h"

#include "model/slices.h"

enum { F_Y, F_X };                // operands of forward
enum { W_DY, W_X };               // of the weights' gradient
enum { B_DX, B_DY, B_RESIDUAL };  // of the input's

static err_t convolve(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    tensor y = at_images(f, s->v[F_Y]), x = at_images(f, s->v[F_X]);
    return f->p->ops->conv_forward(
        &(conv_forward_args){
            .y = &y, .x = &x, .w = &f->p->w[o->at.w], .stride = o->stride, .pad = o->pad, .groups = o->groups},
        f->p->s);
}

// Each token slice has a gradient of its own.
static err_t weights(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    tensor dy = at_images(f, s->v[W_DY]), x = at_images(f, s->v[W_X]);
    for (int k = 0; k < f->m->tokens.count; k++) {
        token_part own = model_token_part(f->m, f->p, k, f->all);
        tensor dyk = tensor_rows(&dy, own.first, own.n), xk = tensor_rows(&x, own.first, own.n);
        TRY(f->p->ops->conv_weights(&(conv_weights_args){.dw = &own.p.dw[o->at.w],
                                                         .dy = &dyk,
                                                         .x = &xk,
                                                         .stride = o->stride,
                                                         .pad = o->pad,
                                                         .groups = o->groups,
                                                         .fresh = own.p.fresh},
                                    f->p->s));
    }
    return ERR_OK;
}

static err_t inputs(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    tensor dx = at_images(f, s->v[B_DX]), dy = at_images(f, s->v[B_DY]), residual;
    bool adds = s->v[B_RESIDUAL] != 0;
    if (adds) residual = at_images(f, s->v[B_RESIDUAL]);
    return f->p->ops->conv_inputs(&(conv_inputs_args){.dx = &dx,
                                                      .dy = &dy,
                                                      .w = &f->p->w[o->at.w],
                                                      .residual = adds ? &residual : NULL,
                                                      .stride = o->stride,
                                                      .pad = o->pad,
                                                      .groups = o->groups},
                                  f->p->s);
}

static void forward(lowering *L, int op, const operation *o) {
    uses(emit(L, "convolution", convolve, op, "wr", o->out[0], o->in[0]), o->at.w);
}

static void inputs_step(lowering *L, int op, const operation *o, value dy) {
    value x = o->in[0], more = L->v[x].users > 1 ? L->grad[x] : 0, dx = make_gradient(L, x, L->v[x].at);
    step *s = emit(L, more ? "input's gradient, sum" : "input's gradient", inputs, op, "wrr", dx, dy, more);
    s->into = B_DX, s->over = more ? B_RESIDUAL : -1;
    uses(s, o->at.w);
    L->grad[x] = dx;
}

static void backward(lowering *L, int op, const operation *o) {
    value dy = L->given[op];
    if (L->part != BACKWARD_INPUTS) adds(emit(L, "weights' gradient", weights, op, "rr", dy, o->in[0]), o->at.w);
    if (L->part != BACKWARD_WEIGHTS && !is_made_by(L, o->in[0], ROLE_INPUT)) inputs_step(L, op, o, dy);
}

// Each output is a product of so many numbers; the gradient of the model's input is not formed.
static double flops(const model *m, const operation *o) {
    const param *w = &m->param[o->at.w];
    double each = (double)(w->size[1] * w->size[2] * w->size[3]);
    return (w->block ? 6 : 4) * (double)o->outputs * each;
}

static const op_type type = {.name = "convolution",
                             .role = ROLE_PRODUCT,
                             .adds = true,
                             .halves = true,
                             .forward = forward,
                             .backward = backward,
                             .flops = flops};

value conv(graph *g, value x, const char *name, convolution c) {
    operation *o = graph_add(g, &type, name, x, 0);
    graph_value in = *graph_at(g, x), y = in;
    o->stride = c.stride, o->pad = c.pad, o->taps = c.taps, o->groups = c.groups ? c.groups : 1;
    y.H = conv_out(in.H, c.taps, c.stride, c.pad), y.W = conv_out(in.W, c.taps, c.stride, c.pad), y.C = c.filters;
    if (!in.C || in.C % o->groups || c.filters % o->groups)
        graph_mistake(g, name, "%lld channels and %lld filters can't be divided into %d groups", (long long)in.C,
                      (long long)c.filters, o->groups);
    if (y.H < 1 || y.W < 1)
        graph_mistake(g, name, "windows of %d x %d pixels do not fit into %lld x %lld", c.taps, c.taps, (long long)in.W,
                      (long long)in.H);
    y.width = y.H * y.W * y.C, y.name[0] = 0;
    o->outputs = y.width;
    double std = __builtin_sqrt(2.0 / (double)(c.filters * c.taps * c.taps));
    o->at.w = graph_param_of(g, name, ".weight", 4, (int64_t[TENSOR_DIMS]){c.filters, c.taps, c.taps, in.C / o->groups},
                             std, 0);
    return graph_result(g, o, 0, y);
}
