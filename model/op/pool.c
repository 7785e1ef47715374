// model/op/pool.c: the largest of each window of pixels; the mean of all pixels of an image.
#include "model/op/op.h"

#include <string.h>

// --- the largest -----------------------------------------------------------------------------------------------------

enum { Y, INDEX };             // results
enum { F_Y, F_INDEX, F_X };    // operands of forward
enum { B_DX, B_DY, B_INDEX };  // of backward

static err_t largest(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    tensor y = at_images(f, s->v[F_Y]), index = at_images(f, s->v[F_INDEX]), x = at_images(f, s->v[F_X]);
    return f->p->ops->max_pool_forward(
        &(max_pool_forward_args){
            .y = &y, .index = &index, .x = &x, .taps = o->taps, .stride = o->stride, .pad = o->pad},
        f->p->s);
}

static err_t largest_backward(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    tensor dx = at_images(f, s->v[B_DX]), dy = at_images(f, s->v[B_DY]), index = at_images(f, s->v[B_INDEX]);
    return f->p->ops->max_pool_backward(
        &(max_pool_backward_args){
            .dx = &dx, .dy = &dy, .index = &index, .taps = o->taps, .stride = o->stride, .pad = o->pad},
        f->p->s);
}

static void max_forward(lowering *L, int op, const operation *o) {
    emit(L, "max pool", largest, op, "wwr", o->out[Y], o->out[INDEX], o->in[0]);
}

static void max_backward(lowering *L, int op, const operation *o) {
    value x = o->in[0], dx = L->grad[x] = make_gradient(L, x, L->v[x].at);
    emit(L, "max pool's gradient", largest_backward, op, "wrr", dx, L->given[op], o->out[INDEX]);
}

static const op_type max_type = {.name = "max pool", .forward = max_forward, .backward = max_backward};

value max_pool(graph *g, value x, int taps, int stride, int pad) {
    operation *o = graph_add(g, &max_type, "pool", x, 0);
    graph_value y = *graph_at(g, x), index;
    o->taps = taps, o->stride = stride, o->pad = pad;
    y.H = conv_out(y.H, taps, stride, pad), y.W = conv_out(y.W, taps, stride, pad);
    if (!y.C) graph_mistake(g, "pool", "%s is no image", y.name);
    if (y.H < 1 || y.W < 1) graph_mistake(g, "pool", "%s has no window of %d pixels", y.name, taps);
    y.width = y.H * y.W * y.C, y.name[0] = 0;
    index = y, index.is_E = false, index.type = UINT8;
    graph_result(g, o, Y, y);
    strcpy(index.name, ".index");
    graph_result(g, o, INDEX, index);
    return o->out[Y];
}

// --- the mean --------------------------------------------------------------------------------------------------------

static err_t mean(const frame *f, const step *s) {
    tensor y = at(f, s->v[0]), x = at_images(f, s->v[1]);
    return f->p->ops->mean_pool_forward(&(mean_pool_forward_args){.y = &y, .x = &x}, f->p->s);
}

static err_t mean_backward_of(const frame *f, const step *s) {
    tensor dx = at_images(f, s->v[0]), dy = at(f, s->v[1]);
    return f->p->ops->mean_pool_backward(&(mean_pool_backward_args){.dx = &dx, .dy = &dy}, f->p->s);
}

static void mean_forward(lowering *L, int op, const operation *o) {
    emit(L, "mean pool", mean, op, "wr", o->out[0], o->in[0]);
}

static void mean_backward(lowering *L, int op, const operation *o) {
    value x = o->in[0], dx = L->grad[x] = make_gradient(L, x, L->v[x].at);
    emit(L, "mean pool's gradient", mean_backward_of, op, "wr", dx, L->given[op]);
}

static const op_type mean_type = {.name = "mean pool", .forward = mean_forward, .backward = mean_backward};

value mean_pool(graph *g, value x) {
    operation *o = graph_add(g, &mean_type, "pool", x, 0);
    graph_value y = *graph_at(g, x);
    if (!y.C) graph_mistake(g, "pool", "%s is no image", y.name);
    y.width = y.C, y.H = y.W = y.C = 0, y.letters = "C", y.name[0] = 0;
    return graph_result(g, o, 0, y);
}
