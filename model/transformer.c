// model/transformer.c: see model/transformer.h. The backward function mirrors the forward functions: read the forward
// lines from the bottom up.
//
// Initial values are those of GPT-2: normal(0, 0.02), the projections back into the residual stream scaled by 1/sqrt(2L).
#include "model/transformer.h"

#include "model/dropout.h"
#include "model/past.h"

#include <stdlib.h>

const float NORM_EPS = 1e-5f;

// Where a layer's parameters are in the table.
typedef struct layer_params {
    int ln_1_w, ln_1_b, ln_2_w, ln_2_b;
    linear qkv, proj, fc, out;
} layer_params;

// What a layer's backward pass reads in addition to its input x, by the cost of recomputing it.
typedef struct layer_costly {
    tensor qkv, att, lse;                               // (B,T,3C), (B,T,C), (B,H,T): the slices that are here, one after the other
    tensor att_rows;                                    // (N,C)     where rows are elsewhere: att of the rows here, all slices
    tensor mid;                                         // (R,C)     x + attention; R = B*T, or the rows that are here
    tensor fc_pre;                                      // (B,T,4C)  before GELU: slices
    tensor ln_1_mean, ln_1_rstd, ln_2_mean, ln_2_rstd;  // (R)
} layer_costly;

typedef struct layer_cheap {
    tensor ln_1, ln_2;  // (R,C)
    tensor fc;          // (B,T,4C)  after GELU: slices
} layer_cheap;

// Between the halves of backward: the gradients that the second one multiplies with activations. That of qkv is in the memory of fc_pre.
typedef struct layer_later {
    tensor dout, dproj;  // (R,C)     of what `out` and `proj` left
    tensor dfc;          // (B,T,4C)  of fc_pre: slices
} layer_later;

// The number of sets of each: one for each layer of each slot, or one that all share and each layer's forward pass
// overwrites.
//                costly   cheap
//   none           L        L      of each slot
//   selective      L        1
//   block          1        1
//   forward only   1        1
typedef struct layer_sets {
    int costly, cheap;
    bool shares_costly, shares_cheap;
} layer_sets;

struct transformer {
    model *of;
    int layers, heads;
    int64_t T, C;
    layer_params *layer;
    layer_sets sets;
    int *own;  // [layers] the first of a layer's sets, where it has its own
    layer_costly *costly;
    layer_cheap *cheap;
    bool halves;         // backward has two halves
    layer_later *later;  // ... and then each layer of each slot has a set
    past kept;
    tensor branch;        // (R,C)   added to the residual stream
    tensor inner, delta;  // backward: (R,C) of a norm, or (B,T,C) of attention's slices; (B,H,T)
    // Where rows are elsewhere: qkv of the rows here on its way to attention or its gradient on the way back, of either shape; the gradient of att.
    tensor swap_qkv, swap_att;
};

enum { DROP_ATTENTION = 1, DROP_MID, DROP_OUT };  // places of a block

// One layer's tensors, its own or the shared ones, cut to this pass's B and T. Of all = B*T rows, N are here of matrices, and R of the residual stream.
// Attention has all rows, and `many` samples: slices of the heads are more samples of fewer heads.
typedef struct layer_view {
    int64_t B, T, all, N, R, many;
    tensor x, ln_1, ln_1_mean, ln_1_rstd, qkv, att, lse, mid, ln_2, ln_2_mean, ln_2_rstd, fc_pre, fc, branch;
    tensor heads, att_heads;  // of attention: qkv and att, where all rows are here; (head slices,all,.)
    tensor qkv3, att3;        // (many,T,.)
    tensor dout, dfc, dmid, dproj, dqkv;
} layer_view;

static layer_view view_layer(const transformer *t, int l, const pass *p, const tensor *x) {
    int own = t->own[l] + p->slot;
    const layer_costly *a = &t->costly[t->sets.shares_costly ? 0 : own];
    const layer_cheap *b = &t->cheap[t->sets.shares_cheap ? 0 : own];
    const model *m = t->of;
    int64_t C = t->C, B = p->B, T = p->in[0].size[1], all = B * T, S = m->slices.of, many = B * model_head_slices(m);
    int64_t N = model_matrix_rows(m, all), R = model_own_rows(m, all);
    bool apart = p->swap;
    return (layer_view){
        .B = B,
        .T = T,
        .all = all,
        .N = N,
        .R = R,
        .many = many,
        .x = view2(x, R, C),
        .ln_1 = view2(&b->ln_1, R, C),
        .ln_1_mean = view1(&a->ln_1_mean, R),
        .ln_1_rstd = view1(&a->ln_1_rstd, R),
        .qkv = model_cut(m, apart ? &t->swap_qkv : &a->qkv, N, 3 * C),
        .att = model_cut(m, apart ? &a->att_rows : &a->att, N, C),
        .heads = model_cut_heads(m, &a->qkv, all, 3 * C),
        .att_heads = model_cut_heads(m, &a->att, all, C),
        .lse = view3(&a->lse, many, t->heads / S, T),
        .mid = view2(&a->mid, R, C),
        .ln_2 = view2(&b->ln_2, R, C),
        .ln_2_mean = view1(&a->ln_2_mean, R),
        .ln_2_rstd = view1(&a->ln_2_rstd, R),
        .fc_pre = model_cut(m, &a->fc_pre, N, 4 * C),
        .fc = model_cut(m, &b->fc, N, 4 * C),
        .branch = view2(&t->branch, R, C),
        .qkv3 = view3(&a->qkv, many, T, 3 * C / S),
        .att3 = view3(&a->att, many, T, C / S),
    };
}

// ln_1 = norm(x)
static err_t norm_1(const pass *p, const layer_params *n, layer_view *v) {
    if (!v->R) return ERR_OK;
    return p->ops->layer_norm_forward(
        &(layer_norm_forward_args){
            .y = &v->ln_1, .mean = &v->ln_1_mean, .rstd = &v->ln_1_rstd, .x = &v->x, .w = &p->w[n->ln_1_w], .b = &p->w[n->ln_1_b], .eps = NORM_EPS},
        p->s);
}

// ln_2 = norm(mid), with mid = x + branch, or, if branch is NULL, the mid that was kept: in both cases the operation
// norms the rounded sum.
static err_t norm_2(const pass *p, const layer_params *n, layer_view *v, const tensor *branch) {
    if (!v->R) return ERR_OK;
    return p->ops->layer_norm_forward(&(layer_norm_forward_args){.y = &v->ln_2,
                                                                 .mean = &v->ln_2_mean,
                                                                 .rstd = &v->ln_2_rstd,
                                                                 .sum = branch ? &v->mid : NULL,
                                                                 .x = branch ? &v->x : &v->mid,
                                                                 .residual = branch,
                                                                 .w = &p->w[n->ln_2_w],
                                                                 .b = &p->w[n->ln_2_b],
                                                                 .eps = NORM_EPS},
                                      p->s);
}

// mid = x + linear(att), ln_2 = norm(mid). What is dropped is dropped before it is added, so with dropout the sum has to wait.
static err_t attention_sum(const transformer *t, int l, const pass *p, const layer_params *n, layer_view *v) {
    if (p->drop.p == 0) {
        TRY(linear_onto(p, &n->proj, &v->mid, &v->att, &v->x));
        return norm_2(p, n, v, NULL);
    }
    TRY(linear_forward(p, &n->proj, &v->branch, &v->att, NULL));
    TRY(dropout_rows(t->of, p, l + 1, DROP_MID, &v->branch, &v->branch));
    return norm_2(p, n, v, &v->branch);
}

static int heads_of_slice(const transformer *t) { return t->heads / t->of->slices.of; }

static err_t attend_all(transformer *t, int l, const pass *p, layer_view *v) {
    dropout_key key;
    if (p->past) return past_attend(&t->kept, p, l, &v->att_heads, &v->heads);
    return p->ops->attention_forward(&(attention_forward_args){.y = &v->att3,
                                                               .lse = &v->lse,
                                                               .qkv = &v->qkv3,
                                                               .heads = heads_of_slice(t),
                                                               .drop = dropout_at(p, l + 1, DROP_ATTENTION, &key),
                                                               .samples = v->B,
                                                               .first_head = model_head_first(t->of) * heads_of_slice(t)},
                                     p->s);
}

static err_t attend(transformer *t, int l, const pass *p, layer_view *v) {
    TRY(slices_to_heads(p, &v->heads, &v->qkv));
    TRY(attend_all(t, l, p, v));
    return slices_to_rows(p, &v->att, &v->att_heads);
}

// mid = x + attention(norm(x));  fc = gelu(linear(norm(mid))): the layer up to the last value that its backward pass reads.
static err_t layer_to_fc(transformer *t, int l, const pass *p, layer_view *v) {
    const layer_params *n = &t->layer[l];
    tensor all;
    TRY(norm_1(p, n, v));
    TRY(slices_gather(t->of, p, &all, &v->ln_1, v->N));
    TRY(linear_forward(p, &n->qkv, &v->qkv, &all, NULL));
    TRY(attend(t, l, p, v));
    TRY(attention_sum(t, l, p, n, v));
    TRY(slices_gather(t->of, p, &all, &v->ln_2, v->N));
    return linear_forward(p, &n->fc, &v->fc, &all, &v->fc_pre);
}

// Values of this layer, in sets that it shares with others.
static void hold(const transformer *t, int l, const pass *p) {
    if (t->sets.shares_cheap) t->of->held = (model_held){p->slot, l + 1};
}

static bool holds(const transformer *t, int l, const pass *p) { return t->of->held.slot == p->slot && t->of->held.block == l + 1; }

err_t transformer_forward(transformer *t, int l, pass *p, const tensor *y, const tensor *x) {
    layer_view v = view_layer(t, l, p, x);
    tensor out = view2(y, v.R, t->C);
    TRY(layer_to_fc(t, l, p, &v));
    hold(t, l, p);
    if (p->drop.p == 0) return linear_onto(p, &t->layer[l].out, &out, &v.fc, &v.mid);
    TRY(linear_forward(p, &t->layer[l].out, &v.branch, &v.fc, NULL));
    TRY(dropout_rows(t->of, p, l + 1, DROP_OUT, &v.branch, &v.branch));
    return p->ops->add(&(add_args){.y = &out, .a = &v.mid, .b = &v.branch}, p->s);
}

// Recomputes values in shared sets, unless they are still there.
static err_t recompute(transformer *t, int l, const pass *p, layer_view *v) {
    const layer_params *n = &t->layer[l];
    if (!t->sets.shares_cheap || holds(t, l, p)) return ERR_OK;
    hold(t, l, p);
    if (t->sets.shares_costly) return layer_to_fc(t, l, p, v);
    TRY(norm_1(p, n, v));
    TRY(norm_2(p, n, v, NULL));
    return p->ops->gelu_forward(&(gelu_forward_args){.y = &v->fc, .x = &v->fc_pre}, p->s);
}

// Where gradients go: in halves they are kept for the second one, else they take the place of what was read. Without dropout the gradients of what `out`
// and `proj` left are those of y and of mid.
static void place_gradients(const transformer *t, int l, const pass *p, layer_view *v, const tensor *dx, const tensor *dy) {
    bool dropped = p->drop.p != 0;
    if (t->halves) {
        const layer_later *k = &t->later[t->own[l] + p->slot];
        v->dout = view2(&k->dout, v->R, t->C), v->dproj = view2(&k->dproj, v->R, t->C), v->dfc = model_cut(t->of, &k->dfc, v->N, 4 * t->C);
    } else {
        v->dout = dropped ? v->branch : *dy, v->dproj = dropped ? v->branch : *dx, v->dfc = v->fc;
    }
    v->dqkv = model_cut(t->of, t->halves ? &v->fc_pre : &v->fc, v->N, 3 * t->C);
    v->dmid = dropped ? *dx : v->dproj;
}

// out = the gradient before the dropout at `which`: dy without dropout.
static err_t branch_gradient(const transformer *t, const pass *p, int l, int which, const tensor *dy, const tensor *out) {
    if (p->drop.p != 0) return dropout_rows(t->of, p, l + 1, which, out, dy);
    tensor to = *out;
    return out->data == dy->data ? ERR_OK : p->ops->cast(&(cast_args){.y = &to, .x = dy}, p->s);
}

// Of `out` or `proj`; dy: all rows. Without dropout a norm forms the bias's gradient.
static err_t branch_weights(const pass *p, const linear *l, const tensor *dy, const tensor *x) {
    return p->drop.p == 0 ? linear_weights_only(p, l, dy, x) : linear_weights(p, l, dy, x);
}

// Of qkv, from all rows of the first norm, and of fc, from those of the second.
static err_t qkv_weights(const transformer *t, int l, const pass *p, layer_view *v) {
    tensor all;
    TRY(slices_gather(t->of, p, &all, &v->ln_1, v->N));
    return linear_weights(p, &t->layer[l].qkv, &v->dqkv, &all);
}

static err_t fc_weights(const transformer *t, int l, const pass *p, layer_view *v) {
    tensor all;
    TRY(slices_gather(t->of, p, &all, &v->ln_2, v->N));
    return linear_weights_only(p, &t->layer[l].fc, &v->dfc, &all);
}

// dmid (=): through the MLP and past it. The norm reads dy and makes dmid, which without dropout are the gradients of what `out`
// and `proj` left: their biases' gradients are formed there.
static err_t mlp_backward(transformer *t, int l, const pass *p, layer_view *v, const tensor *dy) {
    const layer_params *n = &t->layer[l];
    tensor dnorm = view2(&t->inner, v->R, t->C), all;
    bool dropped = p->drop.p != 0;
    TRY(branch_gradient(t, p, l, DROP_OUT, dy, &v->dout));
    TRY(slices_gather(t->of, p, &all, &v->dout, v->N));
    if (!t->halves) TRY(branch_weights(p, &n->out, &all, &v->fc));
    TRY(linear_inputs(p, &n->out, &v->dfc, &all, &v->fc_pre, &n->fc));
    if (!t->halves) TRY(fc_weights(t, l, p, v));
    TRY(linear_inputs(p, &n->fc, &dnorm, &v->dfc, NULL, NULL));
    return slices_layer_norm_backward(t->of, p, v->all,
                                      &(layer_norm_backward_args){.dx = &v->dmid,
                                                                  .dw = &p->dw[n->ln_2_w],
                                                                  .db = &p->dw[n->ln_2_b],
                                                                  .dx_sums = dropped ? NULL : linear_bias(p, &n->proj),
                                                                  .dresidual_sums = dropped ? NULL : linear_bias(p, &n->out),
                                                                  .dy = &dnorm,
                                                                  .dresidual = dy,
                                                                  .x = &v->mid,
                                                                  .w = &p->w[n->ln_2_w],
                                                                  .mean = &v->ln_2_mean,
                                                                  .rstd = &v->ln_2_rstd});
}

// v->dqkv (=), from datt, the gradient of att.
static err_t attend_backward(transformer *t, int l, const pass *p, layer_view *v, const tensor *datt) {
    int64_t S = t->of->slices.of;
    bool apart = p->swap;
    tensor dy = model_cut_heads(t->of, apart ? &t->swap_att : datt, v->all, t->C),
           dqkv = model_cut_heads(t->of, apart ? &t->swap_qkv : &v->dqkv, v->all, 3 * t->C);
    tensor dy3 = view3(&dy, v->many, v->T, t->C / S), dqkv3 = view3(&dqkv, v->many, v->T, 3 * t->C / S);
    tensor delta = view3(&t->delta, v->many, t->heads / S, v->T);
    dropout_key key;
    TRY(slices_to_heads(p, &dy, datt));
    TRY(p->ops->attention_backward(&(attention_backward_args){.dqkv = &dqkv3,
                                                              .delta = &delta,
                                                              .dy = &dy3,
                                                              .y = &v->att3,
                                                              .lse = &v->lse,
                                                              .qkv = &v->qkv3,
                                                              .heads = heads_of_slice(t),
                                                              .drop = dropout_at(p, l + 1, DROP_ATTENTION, &key),
                                                              .samples = v->B,
                                                              .first_head = model_head_first(t->of) * heads_of_slice(t)},
                                   p->s));
    return slices_to_rows(p, &v->dqkv, &dqkv);
}

// dx (=), which may be dmid.
static err_t attention_part_backward(transformer *t, int l, const pass *p, layer_view *v, tensor *dx) {
    const layer_params *n = &t->layer[l];
    tensor all, dnorm = view2(&t->inner, v->R, t->C), datt = model_cut(t->of, &t->inner, v->N, t->C);
    TRY(branch_gradient(t, p, l, DROP_MID, &v->dmid, &v->dproj));
    TRY(slices_gather(t->of, p, &all, &v->dproj, v->N));
    if (!t->halves) TRY(branch_weights(p, &n->proj, &all, &v->att));
    TRY(linear_inputs(p, &n->proj, &datt, &all, NULL, NULL));
    TRY(attend_backward(t, l, p, v, &datt));
    if (!t->halves) TRY(qkv_weights(t, l, p, v));
    TRY(linear_inputs(p, &n->qkv, &dnorm, &v->dqkv, NULL, NULL));
    return slices_layer_norm_backward(t->of, p, v->all,
                                      &(layer_norm_backward_args){.dx = dx,
                                                                  .dw = &p->dw[n->ln_1_w],
                                                                  .db = &p->dw[n->ln_1_b],
                                                                  .dy = &dnorm,
                                                                  .dresidual = &v->dmid,
                                                                  .x = &v->x,
                                                                  .w = &p->w[n->ln_1_w],
                                                                  .mean = &v->ln_1_mean,
                                                                  .rstd = &v->ln_1_rstd});
}

err_t transformer_inputs(transformer *t, int l, pass *p, const tensor *dx, const tensor *dy, const tensor *x) {
    layer_view v = view_layer(t, l, p, x);
    tensor to = view2(dx, v.R, t->C), from = view2(dy, v.R, t->C);
    place_gradients(t, l, p, &v, &to, &from);
    TRY(recompute(t, l, p, &v));
    TRY(mlp_backward(t, l, p, &v, &from));
    if (holds(t, l, p)) t->of->held.block = -1;  // fc is overwritten
    return attention_part_backward(t, l, p, &v, &to);
}

err_t transformer_weights(transformer *t, int l, pass *p, const tensor *x) {
    const layer_params *n = &t->layer[l];
    if (!t->halves) return ERR_OK;
    layer_view v = view_layer(t, l, p, x);
    tensor all;
    place_gradients(t, l, p, &v, x, x);  // dx and dy are of no use any more
    TRY(slices_gather(t->of, p, &all, &v.dout, v.N));
    TRY(branch_weights(p, &n->out, &all, &v.fc));
    TRY(fc_weights(t, l, p, &v));
    TRY(slices_gather(t->of, p, &all, &v.dproj, v.N));
    TRY(branch_weights(p, &n->proj, &all, &v.att));
    return qkv_weights(t, l, p, &v);
}

const tensor *transformer_scratch(const transformer *t) { return &t->branch; }

// --- opening ---------------------------------------------------------------------------------------------------------------

static void add_layer(transformer *t, int l) {
    model *m = t->of;
    layer_params *n = &t->layer[l];
    int64_t C = t->C;
    int b = l + 1;
    double std = 0.02, residual = 0.02 / __builtin_sqrt(2.0 * t->layers);
    n->ln_1_w = model_add(m, b, C, 0, 0, 1, "h.%d.ln_1.weight", l);
    n->ln_1_b = model_add(m, b, C, 0, 0, 0, "h.%d.ln_1.bias", l);
    n->qkv.w = model_add(m, b, 3 * C, C, std, 0, "h.%d.attn.c_attn.weight", l);
    n->qkv.b = model_add(m, b, 3 * C, 0, 0, 0, "h.%d.attn.c_attn.bias", l);
    n->proj.w = model_add(m, b, C, C, residual, 0, "h.%d.attn.c_proj.weight", l);
    n->proj.b = model_add(m, b, C, 0, 0, 0, "h.%d.attn.c_proj.bias", l);
    n->ln_2_w = model_add(m, b, C, 0, 0, 1, "h.%d.ln_2.weight", l);
    n->ln_2_b = model_add(m, b, C, 0, 0, 0, "h.%d.ln_2.bias", l);
    n->fc.w = model_add(m, b, 4 * C, C, std, 0, "h.%d.mlp.c_fc.weight", l);
    n->fc.b = model_add(m, b, 4 * C, 0, 0, 0, "h.%d.mlp.c_fc.bias", l);
    n->out.w = model_add(m, b, C, 4 * C, residual, 0, "h.%d.mlp.c_proj.weight", l);
    n->out.b = model_add(m, b, C, 0, 0, 0, "h.%d.mlp.c_proj.bias", l);
    linear_divide(&n->qkv, m, LINEAR_OUTPUTS, 3, (const int64_t[]){C, C, C});
    linear_divide(&n->proj, m, LINEAR_INPUTS, 0, NULL);
    linear_divide(&n->fc, m, LINEAR_OUTPUTS, 0, NULL);
    linear_divide(&n->out, m, LINEAR_INPUTS, 0, NULL);
}

err_t transformer_open(transformer **out, model *m, int layers, int heads, int64_t T, int64_t C) {
    transformer *t = *out = calloc(1, sizeof *t);
    if (t)
        *t = (transformer){.of = m,
                           .layers = layers,
                           .heads = heads,
                           .T = T,
                           .C = C,
                           .layer = calloc((size_t)layers, sizeof *t->layer),
                           .own = calloc((size_t)layers, sizeof *t->own)};
    if (!t || !t->layer || !t->own) return err_set(ERR_INTERNAL, "no memory for %d layers", layers);
    for (int l = 0; l < layers; l++) add_layer(t, l);
    return ERR_OK;
}

void transformer_close(transformer *t) {
    if (!t) return;
    past_close(&t->kept);
    free(t->layer), free(t->own), free(t->costly), free(t->cheap), free(t->later);
    free(t);
}

static err_t plan_costly(const transformer *t, arena *a, layer_costly *k, dtype type, int64_t B) {
    int64_t T = t->T, C = t->C, R = model_most_rows(t->of, B * T), N = model_most_matrix_rows(t->of, B * T);
    TRY(arena_3d(a, &k->qkv, type, B, T, model_head_share(t->of, 3 * C)));
    TRY(arena_3d(a, &k->att, type, B, T, model_head_share(t->of, C)));
    if (model_row_places(t->of) > 1) TRY(arena_2d(a, &k->att_rows, type, N, model_share(t->of, C)));
    TRY(arena_3d(a, &k->lse, FP32, B, model_head_share(t->of, t->heads), T));
    TRY(arena_2d(a, &k->mid, type, R, C));
    TRY(arena_2d(a, &k->fc_pre, type, N, model_share(t->of, 4 * C)));
    TRY(arena_1d(a, &k->ln_1_mean, FP32, R));
    TRY(arena_1d(a, &k->ln_1_rstd, FP32, R));
    TRY(arena_1d(a, &k->ln_2_mean, FP32, R));
    return arena_1d(a, &k->ln_2_rstd, FP32, R);
}

static err_t plan_cheap(const transformer *t, arena *a, layer_cheap *k, dtype type, int64_t B) {
    int64_t R = model_most_rows(t->of, B * t->T);
    TRY(arena_2d(a, &k->ln_1, type, R, t->C));
    TRY(arena_2d(a, &k->ln_2, type, R, t->C));
    return arena_2d(a, &k->fc, type, model_most_matrix_rows(t->of, B * t->T), model_share(t->of, 4 * t->C));
}

static err_t plan_later(const transformer *t, arena *a, layer_later *k, dtype type, int64_t B) {
    int64_t R = model_most_rows(t->of, B * t->T);
    TRY(arena_2d(a, &k->dout, type, R, t->C));
    TRY(arena_2d(a, &k->dproj, type, R, t->C));
    return arena_2d(a, &k->dfc, type, model_most_matrix_rows(t->of, B * t->T), model_share(t->of, 4 * t->C));
}

static layer_sets choose_sets(transformer *t, const model_plan *o) {
    bool cheap = o->forward_only || o->recompute != RECOMPUTE_NONE, costly = o->forward_only || o->recompute == RECOMPUTE_BLOCK;
    int all = model_plan_sets(o, 1, t->layers, t->own), one = all > 0;
    return (layer_sets){.costly = costly ? one : all, .cheap = cheap ? one : all, .shares_costly = costly, .shares_cheap = cheap};
}

static err_t plan_swaps(transformer *t, arena *a, const model_plan *o) {
    const model *m = t->of;
    int64_t N = o->B * t->T, rows = model_most_matrix_rows(m, N) * model_share(m, t->C), heads = N * model_head_share(m, t->C);
    TRY(arena_1d(a, &t->swap_qkv, o->compute, 3 * (rows > heads ? rows : heads)));
    return o->forward_only ? ERR_OK : arena_1d(a, &t->swap_att, o->compute, heads);
}

err_t transformer_plan(transformer *t, arena *a, const model_plan *o) {
    free(t->costly), free(t->cheap), free(t->later);
    t->sets = choose_sets(t, o);
    t->halves = o->halves && !t->sets.shares_cheap;
    t->of->held.block = -1;
    t->costly = calloc((size_t)t->sets.costly + 1, sizeof *t->costly);
    t->cheap = calloc((size_t)t->sets.cheap + 1, sizeof *t->cheap);
    t->later = calloc((size_t)t->sets.costly + 1, sizeof *t->later);
    if (!t->costly || !t->cheap || !t->later) return err_set(ERR_INTERNAL, "no memory for the activations of %d layers", t->layers);
    for (int i = 0; i < t->sets.costly; i++) TRY(plan_costly(t, a, &t->costly[i], o->compute, o->B));
    for (int i = 0; i < t->sets.cheap; i++) TRY(plan_cheap(t, a, &t->cheap[i], o->compute, o->B));
    for (int i = 0; t->halves && i < t->sets.costly; i++) TRY(plan_later(t, a, &t->later[i], o->compute, o->B));
    t->kept.heads = t->kept.kv_heads = heads_of_slice(t), t->kept.slices = model_head_slices(t->of);
    TRY(past_plan(&t->kept, a, o, 1, t->layers, t->T, t->C / t->heads));
    int64_t R = model_most_rows(t->of, o->B * t->T) * t->C, all = model_most_matrix_rows(t->of, o->B * t->T) * model_share(t->of, t->C);
    TRY(arena_1d(a, &t->branch, o->compute, R));
    if (model_row_places(t->of) > 1) TRY(plan_swaps(t, a, o));
    if (o->forward_only) return ERR_OK;
    TRY(arena_1d(a, &t->inner, o->compute, R > all ? R : all));
    return arena_3d(a, &t->delta, FP32, o->B, model_head_share(t->of, t->heads), t->T);
}
