// model/frame.c: where a value lies in a pass, and how many rows it has: see model/lower.h.
#include "model/lower.h"

static int64_t cuts(const model *m, width_span w) {
    return m->slices.of == 1 || w == WIDTH_WHOLE ? 1 : w == WIDTH_SLICES ? m->slices.count : model_head_slices(m);
}

// Of a sample. A pass of one text alone has all its rows, and none of the other one.
static int64_t sample_rows(const frame *f, const graph_value *x) {
    if (!x->rows || (f->p->text && x->text == f->p->text)) return T_of(f);
    return f->p->text && x->text ? 0 : x->rows;
}

int64_t rows_of_samples(const frame *f, value v) { return f->x->v[v].rows ? f->p->B * f->x->v[v].rows : f->all; }

static int64_t rows_of(const frame *f, row_span r) {
    return r == ROWS_ALL ? f->all : r == ROWS_MATRIX ? f->matrix : f->own;
}

frame frame_of(net *l, int b, const pass *p, const lists *x) {
    const model *m = l->g.m;
    frame f = {.net = l, .m = m, .p = p, .b = b, .op = l->g.block[b].op, .x = x, .type = l->type};
    f.all = p->B * T_of(&f), f.matrix = model_matrix_rows(m, f.all), f.own = model_own_rows(m, f.all);
    return f;
}

tensor at(const frame *f, value v) {
    const graph_value *x = &f->x->v[v];
    int64_t n = x->rows ? f->p->B * sample_rows(f, x) : rows_of(f, x->at.rows), s = cuts(f->m, x->at.width),
            S = f->m->slices.of;
    tensor t = {.data = f->base[f->x->place[v].in] + f->x->place[v].at, .type = x->is_E ? f->type : x->type};
    if (x->shape == SHAPE_PLAIN) return view1(&t, x->width);
    if (x->shape == SHAPE_PER_ROW) return view1(&t, n);
    if (x->shape == SHAPE_PER_HEAD) return view3(&t, f->p->B * s, x->width / S, sample_rows(f, x));
    if (x->at.width == WIDTH_WHOLE || S == 1) return view2(&t, n, x->width);
    return view3(&t, s, n, x->width / S);
}

tensor *at_if(const frame *f, value v, tensor *t) {
    if (v) *t = at(f, v);
    return v ? t : NULL;
}

tensor at_rows(const frame *f, value v) {
    tensor x = at(f, v);
    return x.dims == 2 ? x : view2(&x, x.size[0] * x.size[1], x.size[2]);
}

tensor at_images(const frame *f, value v) {
    const graph_value *x = &f->x->v[v];
    tensor t = at(f, v);
    return (tensor){t.data, t.type, 4, {t.size[0], x->H, x->W, x->C}};
}

const tensor *input_at(const frame *f, const operation *o) {
    return o->input < 0 || f->p->predict ? NULL : &f->p->in[o->input];
}

tensor constants_at(const frame *f, int first, int64_t n) { return tensor_rows(&f->net->constants, first, n); }

tensor at_samples(const frame *f, value v) {
    tensor x = at_rows(f, v);
    int64_t T = sample_rows(f, &f->x->v[v]);
    return view3(&x, x.size[0] / T, T, x.size[1]);
}
