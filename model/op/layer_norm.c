// model/op/layer_norm.c: y = (x - mean) * rstd * w + b, of each row. If x is a sum that has not been formed yet,
// forward forms it too: x = a + b, in one pass over the rows.
//
// Backward reads the gradient that flows past the norm, and makes dx. If x = a + W h + c, dx is also the gradient of
// W h + c; if x + W h + c follows, the gradient that flows past is that of W h + c. The bias gradients of such products
// are column sums of these, for which nothing more is read here, so the first norm in backward forms them.
#include "model/op/op.h"

#include <string.h>

static const float NORM_EPS = 1e-5f;

enum { Y, MEAN, RSTD };                                // results
enum { F_Y, F_MEAN, F_RSTD, F_SUM, F_X, F_RESIDUAL };  // operands of forward
// operands of backward; UNREAD: instead of the gradients of a frozen w and b
enum { B_DX, B_DY, B_PAST, B_X, B_MEAN, B_RSTD, B_UNREAD_W, B_UNREAD_B };
// products whose bias gradients it forms; BEFORE: the one before it in forward, in the sum
enum { BEFORE, AFTER };

static err_t norm(const frame *f, const step *s) {
    const linear *l = &f->op[s->op].at;
    tensor y = at(f, s->v[F_Y]), mean = at(f, s->v[F_MEAN]), rstd = at(f, s->v[F_RSTD]), x = at(f, s->v[F_X]), sum,
           residual;
    if (!y.size[0]) return ERR_OK;
    return f->p->ops->layer_norm_forward(&(layer_norm_forward_args){.y = &y,
                                                                    .mean = &mean,
                                                                    .rstd = &rstd,
                                                                    .sum = at_if(f, s->v[F_SUM], &sum),
                                                                    .x = &x,
                                                                    .residual = at_if(f, s->v[F_RESIDUAL], &residual),
                                                                    .w = &f->p->w[l->w],
                                                                    .b = &f->p->w[l->b],
                                                                    .eps = f->op[s->op].eps},
                                         f->p->s);
}

static tensor *bias_of(const frame *f, int op) { return op < 0 ? NULL : linear_bias(f->p, &f->op[op].at); }

static err_t norm_backward(const frame *f, const step *s) {
    const linear *l = &f->op[s->op].at;
    tensor dx = at(f, s->v[B_DX]), dy = at(f, s->v[B_DY]), x = at(f, s->v[B_X]), mean = at(f, s->v[B_MEAN]),
           rstd = at(f, s->v[B_RSTD]), past;
    tensor unread[2], *dw = at_if(f, s->v[B_UNREAD_W], &unread[0]), *db = at_if(f, s->v[B_UNREAD_B], &unread[1]);
    layer_norm_backward_args args = {.dx = &dx,
                                     .dw = dw ? dw : &f->p->dw[l->w],
                                     .db = db ? db : &f->p->dw[l->b],
                                     .dx_sums = bias_of(f, s->other[BEFORE]),
                                     .dresidual_sums = bias_of(f, s->other[AFTER]),
                                     .dy = &dy,
                                     .dresidual = at_if(f, s->v[B_PAST], &past),
                                     .x = &x,
                                     .w = &f->p->w[l->w],
                                     .mean = &mean,
                                     .rstd = &rstd,
                                     .fresh = dw};
    if (!dw) return slices_layer_norm_backward(f->m, f->p, rows_of_samples(f, s->v[B_DX]), &args);
    return dx.size[0] ? f->p->ops->layer_norm_backward(&args, f->p->s) : ERR_OK;
}

// The product with a bias that is an operand of the sum `op`; -1: none.
static int product_of_sum(const lowering *L, int op) {
    if (op < 0 || op_at(L, op)->type->role != ROLE_SUM) return -1;
    value b = op_at(L, op)->in[1];
    return is_made_by(L, b, ROLE_PRODUCT) && is_trained(L, op_at(L, maker_of(L, b))->at.b) ? maker_of(L, b) : -1;
}

static void claim_sum(lowering *L, int op, int sum) {
    int product = product_of_sum(L, sum);
    if (product >= 0 && L->bias_by[product] < 0) L->bias_by[product] = op;
}

static void claim(lowering *L, int op, const operation *o) {
    value x = o->in[0];
    claim_sum(L, op, maker_of(L, x));
    for (int k = 0; k < L->v[x].users; k++) claim_sum(L, op, L->v[x].user[k]);
}

static void forward(lowering *L, int op, const operation *o) {
    value x = o->in[0];
    int sum = is_made_by(L, x, ROLE_SUM) && L->need[maker_of(L, x)] && !L->done[maker_of(L, x)] ? maker_of(L, x) : -1;
    value a = sum < 0 ? x : op_at(L, sum)->in[0], b = sum < 0 ? 0 : op_at(L, sum)->in[1];
    step *s = emit(L, sum < 0 ? "layer norm" : "sum, layer norm", norm, op, "wwwwrr", o->out[Y], o->out[MEAN],
                   o->out[RSTD], sum < 0 ? 0 : x, a, b);
    s->other[BEFORE] = sum;
    uses(s, o->at.w), uses(s, o->at.b);
    if (sum >= 0) L->done[sum] = true;
}

static void backward(lowering *L, int op, const operation *o) {
    value x = o->in[0], past = L->v[x].users > 1 ? L->grad[x] : 0, dx = make_gradient(L, x, L->v[x].at);
    step *s = emit(L, "layer norm's gradient", norm_backward, op, "wrrrrr", dx, L->given[op], past, x, o->out[MEAN],
                   o->out[RSTD]);
    s->into = B_DX, s->over = past ? B_PAST : -1;
    uses(s, o->at.w);
    if (is_trained(L, o->at.w)) adds(s, o->at.w), adds(s, o->at.b), s->meets = MEET_SUM_OF_ROWS;
    else add_operand(s, 'w', make_unread(L, o->at.w)), add_operand(s, 'w', make_unread(L, o->at.b));
    int before = product_of_sum(L, maker_of(L, x));
    if (before >= 0 && L->bias_by[before] == op) s->other[BEFORE] = before, adds(s, op_at(L, before)->at.b);
    for (int k = 0; k < L->v[x].users; k++) {
        int after = product_of_sum(L, L->v[x].user[k]);
        if (after >= 0 && L->bias_by[after] == op) s->other[AFTER] = after, adds(s, op_at(L, after)->at.b);
    }
    L->grad[x] = dx;
}

static const op_type type = {.name = "layer norm",
                             .adds = true,
                             .freezes = true,
                             .role = ROLE_SUM_NORM,
                             .cheap = true,
                             .claim = claim,
                             .forward = forward,
                             .backward = backward};

value layer_norm(graph *g, value x, const char *name) { return layer_norm_of(g, x, name, NORM_EPS); }

value layer_norm_of(graph *g, value x, const char *name, double eps) {
    operation *o = graph_add(g, &type, name, x, 0);
    graph_value y = *graph_at(g, x),
                row = {.letters = "1", .width = 1, .at = y.at, .rows = y.rows, .shape = SHAPE_PER_ROW, .type = FP32};
    o->eps = (float)eps;
    o->at.w = graph_param(g, name, ".weight", y.width, 0, 0, 1);
    o->at.b = graph_param(g, name, ".bias", y.width, 0, 0, 0);
    graph_same(g, o);
    strcpy(row.name, ".mean"), graph_result(g, o, MEAN, row);
    strcpy(row.name, ".rstd"), graph_result(g, o, RSTD, row);
    return o->out[Y];
}
