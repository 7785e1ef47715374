// model/op/part.c: the residual stream of a model with two texts has, of each sample, the rows of the first text and
// then those of the second. `part` takes the rows of one or of both out of it, `join` puts one text's rows back:
//
//   x      a a a a b b      part: a a a a, b b      y = join(x, B')      a a a a B' B'
//
// So a block that works on one text hands the other one on. Backward of join: the gradient of y has that of the text,
// and of what was handed on, that of x; a part writes or adds its own there.
#include "model/op/op.h"

enum { FIRST = TEXT_READ, SECOND = TEXT_SAID };    // texts: bits of operation.taps
enum { P_X, P_FIRST, P_SECOND, P_PAST, P_OTHER };  // operands of part, and of its backward
enum { J_Y, J_X, J_PART };

// Samples as rows, so that a text's rows are columns.
static tensor whole(const frame *f, const tensor *x) { return view2(x, f->p->B, tensor_count(x) / f->p->B); }

// Elements of a sample's rows: the first text's, and those of a text of x. A pass of one text alone has all rows of
// that.
static int64_t first_of(const frame *f, const step *s, const tensor *x) {
    int64_t rows = f->p->text == TEXT_SAID ? 0 : f->p->text == TEXT_READ ? T_of(f) : f->op[s->op].first;
    return rows * matrix_columns(x);
}
static scale_columns_args columns_of(const frame *f, const step *s, const tensor *x, int text) {
    int64_t before = first_of(f, s, x), all = tensor_count(x) / f->p->B;
    return (scale_columns_args){
        .width = text == FIRST ? before : all - before, .y_first = text == FIRST ? 0 : before, .factor = 1};
}

// y's rows of a text, in the whole stream, = or += what `from` has: the same rows of another stream, or these alone.
static err_t put(const frame *f, const step *s, const tensor *y, const tensor *from, int text, bool add) {
    tensor to = whole(f, y), x = whole(f, from);
    scale_columns_args args = columns_of(f, s, y, text);
    if (!args.width) return ERR_OK;
    args.y = &to, args.x = &x, args.add = add, args.x_first = x.size[1] == to.size[1] ? args.y_first : 0;
    return f->p->ops->scale_columns(&args, f->p->s);
}

static err_t take(const frame *f, const step *s, const tensor *y, const tensor *from, int text) {
    tensor to = whole(f, y), x = whole(f, from);
    scale_columns_args args = columns_of(f, s, from, text);
    if (!args.width) return ERR_OK;
    args.y = &to, args.x = &x, args.x_first = args.y_first, args.y_first = 0;
    return f->p->ops->scale_columns(&args, f->p->s);
}

// --- part ------------------------------------------------------------------------------------------------------------

static err_t take_parts(const frame *f, const step *s) {
    tensor x = at(f, s->v[P_X]), y;
    for (int k = 0; k < 2; k++)
        if (at_if(f, s->v[P_FIRST + k], &y)) TRY(take(f, s, &y, &x, k ? SECOND : FIRST));
    return ERR_OK;
}

static err_t put_zeros(const frame *f, const step *s, const tensor *dx, int text) {
    tensor to = whole(f, dx), other = at(f, s->v[P_OTHER]), x = whole(f, &other);
    scale_columns_args args = columns_of(f, s, dx, text);
    args.y = &to, args.x = &x, args.x_first = args.y_first, args.factor = 0;
    return f->p->ops->scale_columns(&args, f->p->s);
}

// `past` is the gradient from later readers of the stream. It is added, except to the text that join overwrote. Without
// later readers, a text that no part took out has a gradient of zeros: 0 times its values.
static err_t put_parts(const frame *f, const step *s) {
    tensor dx = at(f, s->v[P_X]), past, d;
    const tensor *more = at_if(f, s->v[P_PAST], &past);
    int overwritten = f->op[s->op].pad;
    for (int k = 0; k < 2; k++) {
        int text = k ? SECOND : FIRST;
        bool given = at_if(f, s->v[P_FIRST + k], &d), keeps = more && text != overwritten;
        if (keeps && more->data != dx.data) TRY(put(f, s, &dx, more, text, false));
        if (given) TRY(put(f, s, &dx, &d, text, keeps));
        else if (!more) TRY(put_zeros(f, s, &dx, text));
    }
    return ERR_OK;
}

static value result_of(const operation *o, int text) {
    if (!(o->taps & text)) return 0;
    return o->taps == (FIRST | SECOND) && text == SECOND ? o->out[1] : o->out[0];
}

static void part_forward(lowering *L, int op, const operation *o) {
    emit(L, "part", take_parts, op, "rww", o->in[0], result_of(o, FIRST), result_of(o, SECOND));
}

static void part_backward(lowering *L, int op, const operation *o) {
    value x = o->in[0], past = L->grad[x], dx = make_gradient(L, x, L->v[x].at), first = result_of(o, FIRST),
          second = result_of(o, SECOND);
    step *s = emit(L, "parts' gradient", put_parts, op, "wrrrr", dx, first ? L->grad[first] : 0,
                   second ? L->grad[second] : 0, past, past ? 0 : x);
    s->into = P_X, s->over = past ? P_PAST : -1;
    L->grad[x] = dx;
}

static const op_type part_type = {.name = "part", .adds = true, .forward = part_forward, .backward = part_backward};

static value add_result(graph *g, operation *o, int k, int64_t rows, pass_text text) {
    graph_value y = *graph_at(g, o->in[0]);
    y.name[0] = 0, y.rows = rows, y.text = text;
    return graph_result(g, o, k, y);
}

void part(graph *g, value x, int64_t rows, value *first, value *second) {
    operation *o = graph_add(g, &part_type, "part", x, 0);
    int k = 0;
    o->first = rows, o->taps = (first ? FIRST : 0) | (second ? SECOND : 0);
    if (rows < 1 || rows >= g->m->context)
        graph_mistake(g, "part", "the first text has %lld of %lld rows", (long long)rows, (long long)g->m->context);
    if (first) *first = add_result(g, o, k++, rows, TEXT_READ);
    if (second) *second = add_result(g, o, k, g->m->context - rows, TEXT_SAID);
}

// --- join ------------------------------------------------------------------------------------------------------------

static err_t join_text(const frame *f, const step *s) {
    tensor y = at(f, s->v[J_Y]), x = at(f, s->v[J_X]), text = at(f, s->v[J_PART]);
    int own = f->op[s->op].taps;
    TRY(put(f, s, &y, &text, own, false));
    return put(f, s, &y, &x, FIRST + SECOND - own, false);
}

static err_t join_gradient(const frame *f, const step *s) {
    tensor d = at(f, s->v[0]), dy = at(f, s->v[1]);
    return take(f, s, &d, &dy, f->op[s->op].taps);
}

static void join_forward(lowering *L, int op, const operation *o) {
    emit(L, "join", join_text, op, "wrr", o->out[0], o->in[0], o->in[1]);
}

static void join_backward(lowering *L, int op, const operation *o) {
    value d = make_gradient(L, o->in[1], L->v[o->in[1]].at);
    emit(L, "joined text's gradient", join_gradient, op, "wr", d, L->given[op]);
    L->grad[o->in[1]] = d, L->grad[o->in[0]] = L->given[op];
}

static const op_type join_type = {.name = "join", .forward = join_forward, .backward = join_backward};

// The operation that took x apart learns which text join overwrites.
value join(graph *g, value x, int64_t rows, value text, bool second) {
    operation *o = graph_add(g, &join_type, "join", x, text);
    const graph_value *in = graph_at(g, x), *of = graph_at(g, text);
    o->first = rows, o->taps = second ? SECOND : FIRST;
    if (of->width != in->width || of->rows != (second ? g->m->context - rows : rows))
        graph_mistake(g, "join", "%s has width %lld, and %s %lld, and %lld rows", in->name, (long long)in->width,
                      of->name, (long long)of->width, (long long)of->rows);
    for (int i = 0; i < g->ops; i++)
        if (g->op[i].type == &part_type && g->op[i].in[0] == x) g->op[i].pad = o->taps;
    return graph_same(g, o);
}
