// model/op/project.c: y = x W^T + b (model/linear.h). A GELU or a sum that is y's only reader is done with the
// product. If inputs are divided, the product adds the slices that are here; if other ranks have slices, bias, sum and
// GELU wait for the sum of all (model/slices.h).
#include "model/op/adapter.h"

enum { F_Y, F_X, F_PRE, F_RESIDUAL };  // operands of forward
enum { B_DX, B_DY, B_PRE, B_MORE };    // of the input's gradient
enum { W_DY, W_X };                    // of the weights'
// other operations: a GELU, and the product before it, whose bias gradient is formed with the slope
enum { THROUGH, BEFORE };
enum { WITH };  // of forward: a GELU or a sum

static bool erf_of(const frame *f, int op) { return op >= 0 && f->op[op].erf; }

static err_t product(const frame *f, const step *s) {
    const linear *l = &f->op[s->op].at;
    tensor y = at(f, s->v[F_Y]), x = at(f, s->v[F_X]), pre, residual;
    return linear_forward(f->p, l, &y, &x, at_if(f, s->v[F_PRE], &pre), erf_of(f, s->other[WITH]),
                          at_if(f, s->v[F_RESIDUAL], &residual));
}

static err_t inputs(const frame *f, const step *s) {
    const linear *before = s->other[BEFORE] < 0 ? NULL : &f->op[s->other[BEFORE]].at;
    tensor dx = at(f, s->v[B_DX]), dy = at(f, s->v[B_DY]), pre, more;
    return linear_inputs(f->p, &f->op[s->op].at, &dx, &dy, at_if(f, s->v[B_PRE], &pre), erf_of(f, s->other[THROUGH]),
                         before, at_if(f, s->v[B_MORE], &more));
}

static err_t weights(const frame *f, const step *s) {
    tensor dy = at(f, s->v[W_DY]), x = at(f, s->v[W_X]);
    return linear_weights_only(f->p, &f->op[s->op].at, &dy, &x);
}

static err_t weights_and_bias(const frame *f, const step *s) {
    tensor dy = at(f, s->v[W_DY]), x = at(f, s->v[W_X]);
    return linear_weights(f->p, &f->op[s->op].at, &dy, &x);
}

static layout layout_of_x(const operation *o) {
    return o->at.division == LINEAR_INPUTS ? LAYOUT_SLICES : LAYOUT_MATRIX;
}
static layout layout_of_y(const operation *o) {
    return o->at.division == LINEAR_OUTPUTS ? LAYOUT_SLICES : LAYOUT_MATRIX;
}

static void forward(lowering *L, int op, const operation *o) {
    value y = o->out[0], x = as(L, o->in[0], layout_of_x(o));
    int act = only_user(L, y, ROLE_GELU), sum = only_user(L, y, ROLE_SUM);
    bool fuses = act >= 0 && L->need[act], onto = sum >= 0 && L->need[sum] && op_at(L, sum)->in[1] == y;
    value to = fuses ? op_at(L, act)->out[0] : onto ? op_at(L, sum)->out[0] : y;
    step *s = emit(L,
                   fuses  ? "product, gelu"
                   : onto ? "product, sum"
                          : "product",
                   product, op, "wrwr", to, x, fuses ? y : 0, onto ? op_at(L, sum)->in[0] : 0);
    uses(s, o->at.w), uses(s, o->at.b);
    if (o->at.division == LINEAR_INPUTS) s->meets = MEET_SUM;
    s->other[WITH] = fuses ? act : onto ? sum : -1;
    if (fuses) L->done[act] = true;
    if (onto) L->done[sum] = true;
}

static void weights_step(lowering *L, int op, const operation *o, value dy) {
    if (!is_trained(L, o->at.w)) return;
    value x = as(L, o->in[0], layout_of_x(o));
    step *s = emit(L, "weights' gradient", L->bias_by[op] < 0 ? weights_and_bias : weights, op, "rr", dy, x);
    adds(s, o->at.w);
    if (L->bias_by[op] < 0) adds(s, o->at.b);
}

// Includes a GELU before it, unless another operation reads that result. Where others read x after it, their gradient
// is added.
static void inputs_step(lowering *L, int op, const operation *o, value dy) {
    bool through = is_made_by(L, o->in[0], ROLE_GELU) && o->at.division != LINEAR_OUTPUTS && L->v[o->in[0]].users == 1;
    int act = through ? maker_of(L, o->in[0]) : -1;
    value to = through ? op_at(L, act)->in[0] : o->in[0];
    layout x = o->at.division == LINEAR_INPUTS ? LAYOUT_SLICES : LAYOUT_STREAM;
    value more = !through && L->v[to].users > 1 ? L->grad[to] : 0;
    value dx = L->grad[to] = make_gradient(L, to, x);
    step *s = emit(L,
                   through ? "input's gradient, gelu's slope"
                   : more  ? "input's gradient, sum"
                           : "input's gradient",
                   inputs, op, "wrrr", dx, dy, through ? to : 0, more);
    uses(s, o->at.w);
    if (o->at.division == LINEAR_OUTPUTS) s->meets = MEET_SUM;
    if (!through) return;
    L->done[act] = true;
    s->other[THROUGH] = act;
    int before = maker_of(L, to);
    if (before >= 0 && L->bias_by[before] == act) s->other[BEFORE] = before, adds(s, op_at(L, before)->at.b);
}

static void backward(lowering *L, int op, const operation *o) {
    value given = L->given[op], from = L->copy[given] ? L->copy[given] : given, dy = as(L, from, layout_of_y(o));
    if (L->part != BACKWARD_INPUTS) weights_step(L, op, o, dy);
    if (L->part != BACKWARD_WEIGHTS && !is_made_by(L, o->in[0], ROLE_INPUT)) inputs_step(L, op, o, dy);
}

static double flops(const model *m, const operation *o) {
    const param *w = &m->param[o->at.w];
    int products = 3 - !w->hidden - param_is_frozen(w);  // the model's input has no gradient
    return 2 * products * (double)(o->rows ? o->rows : m->stream ? m->context : 1) * (double)shape_count(2, w->size);
}

static const op_type type = {.name = "product",
                             .role = ROLE_PRODUCT,
                             .adds = true,
                             .halves = true,
                             .freezes = true,
                             .forward = forward,
                             .backward = backward,
                             .flops = flops};

static bool reads_input(const graph *g, const graph_value *x) {
    return x->maker >= 0 && g->op[x->maker].type->role == ROLE_INPUT;
}

// A group that shares a scale is of one row of a slice.
static void keep_narrow(graph *g, int w) {
    param *p = &g->m->param[w];
    int64_t inputs = p->axis == 1 ? p->size[1] / param_slices(p) : p->size[1];
    if (!model_adapts(g->m)->rank || !model_adapts(g->m)->int8) return;
    p->int8 = true;
    if (inputs % WIDEN_GROUP)
        g->rc =
            err_set(ERR_CONFIG,
                    "[lora] weights = int8: %s has %lld inputs%s, expected a multiple of %d: set weights = compute%s",
                    p->name, (long long)inputs, param_slices(p) > 1 ? " in a slice" : "", WIDEN_GROUP,
                    param_slices(p) > 1 ? ", or fewer [parallel] slices" : "");
}

value project(graph *g, value x, const char *name, projection p) {
    model *m = g->m;
    const graph_value *in = graph_at(g, x);
    if (p.divide == LINEAR_OUTPUTS && p.outputs % m->slices.of)
        graph_mistake(g, name, "%lld outputs can't be divided among %d slices", (long long)p.outputs, m->slices.of);
    int w = graph_param(g, name, ".weight", p.outputs, in->width, p.std, 0),
        b = p.bias ? graph_param(g, name, ".bias", p.outputs, 0, 0, 0) : -1;
    adapters more = adapters_down(g, x, w, &p);
    operation *o = graph_add(g, &type, name, x, 0);
    o->at.w = w, o->at.b = b, o->rows = in->rows;
    if (p.divide != LINEAR_WHOLE && g->rc == ERR_OK) linear_divide(&o->at, m, p.divide, p.matrices, p.share);
    for (int k = 0; k < p.matrices && g->rc == ERR_OK; k++) m->param[w].share[k] = p.share[k];
    if (g->rc == ERR_OK) m->param[w].hidden = !reads_input(g, in);
    if (g->rc == ERR_OK) keep_narrow(g, w);
    bool divided = o->at.division == LINEAR_OUTPUTS;
    value y = graph_result(g, o, 0,
                           (graph_value){.letters = p.letters,
                                         .width = p.outputs,
                                         .rows = in->rows,
                                         .text = in->text,
                                         .at = divided ? LAYOUT_SLICES : LAYOUT_STREAM,
                                         .is_E = true});
    return adapters_up(g, y, &more);
}
