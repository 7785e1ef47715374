// model/llama/layers.c: see model/llama/layers.h. The backward function mirrors the forward functions: read the forward lines from the bottom up.
#include "model/llama/layers.h"

#include "model/linear.h"
#include "model/past.h"

#include <stdlib.h>

// Where a layer's parameters are in the table.
typedef struct layer_params {
    int norm_1, norm_2, q_norm, k_norm;  // q_norm = -1: no norms of q and k
    linear qkv, proj, in, out;           // in: gate and up
} layer_params;

// What a layer's backward pass reads in addition to its input x, by the cost of recomputing it.
typedef struct layer_costly {
    tensor qkv, att, lse;             // (B,T,(H+2KV)D) turned, (B,T,HD), (B,H,T)
    tensor att_rows;                  // (N,HD)    where rows are elsewhere: att of the rows here, all slices
    tensor q, k, q_rstd, k_rstd;      // with norms of q and k: what they were before: (B,T,HD), (B,T,KV D), (B,T,H), (B,T,KV)
    tensor mid;                       // (R,C)     x + attention; R = B*T, or the rows that are here
    tensor pair;                      // (B,T,2F)  gate and up
    tensor norm_1_rstd, norm_2_rstd;  // (R)
} layer_costly;

typedef struct layer_cheap {
    tensor norm_1, norm_2;  // (R,C)
    tensor gated;           // (B,T,F)
} layer_cheap;

// Between the halves of backward: the gradients that the second one multiplies with activations. That of pair has taken its place.
typedef struct layer_later {
    tensor dout, dmid;  // (R,C)  of what `out` and `proj` left: they are those of y and of mid
    tensor dqkv;        // (B,T,(H+2KV)D)
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

struct llama_layers {
    model *of;
    llama_options o;
    int64_t Q, K, R;  // elements of a position's queries, of its keys, and of all three
    layer_params *layer;
    layer_sets sets;
    int *own;  // [layers] the first of a layer's sets, where it has its own
    layer_costly *costly;
    layer_cheap *cheap;
    bool halves;         // backward has two halves
    layer_later *later;  // ... and then each layer of each slot has a set
    past kept;
    tensor angles;                    // (T,D)
    tensor scratch;                   // (R,C)
    tensor inner, datt, dqkv, delta;  // backward: (R,C), (B,T,HD), (B,T,(H+2KV)D), (B,H,T)
    tensor dgated;                    // ... in halves: (B,T,F)
    // Where rows are elsewhere: qkv of the rows here on its way to attention or its gradient on the way back, of either shape; the gradient of att.
    tensor swap_qkv, swap_att;
    tensor dnorms, dnorm;  // ... of q and k, with slices: (slices here,1,D), (1,1,D) FP32: their weights' gradients are sums over heads
};

// One layer's tensors, its own or the shared ones, cut to this pass's B and T. Of all = B*T rows, N are here of matrices, and `here` of the residual
// stream; attention has all rows, and `many` samples. What belongs to heads or to hidden channels lies slice after slice: to operations that know nothing
// of slices, these are more rows, or more samples, of fewer heads or channels.
typedef struct layer_view {
    int64_t B, T, all, N, here, many;
    tensor x, norm_1, norm_1_rstd, qkv, q, k, q_rstd, k_rstd, att, lse, mid, norm_2, norm_2_rstd, pair, gated;
    tensor heads, att_heads;         // of attention: qkv and att, where all rows are here; (head slices,all,.)
    tensor qkv3, att3;               // (many,T,.)
    tensor rows, pairs, gated_rows;  // qkv, pair and gated as (slices*N,.)
    tensor dout, dgated, dmid, dqkv;
} layer_view;

static layer_view view_layer(const llama_layers *t, int l, const pass *p, const tensor *x) {
    int own = t->own[l] + p->slot;
    const layer_costly *a = &t->costly[t->sets.shares_costly ? 0 : own];
    const layer_cheap *b = &t->cheap[t->sets.shares_cheap ? 0 : own];
    const model *m = t->of;
    int64_t C = t->o.embed, F = t->o.hidden, B = p->B, T = p->in[0].size[1], all = B * T, S = m->slices.of, n = m->slices.count;
    int64_t N = model_matrix_rows(m, all), here = model_own_rows(m, all), many = B * model_head_slices(m);
    const tensor *qkv = p->swap ? &t->swap_qkv : &a->qkv;
    layer_view v = {
        .B = B,
        .T = T,
        .all = all,
        .N = N,
        .here = here,
        .many = many,
        .x = view2(x, here, C),
        .norm_1 = view2(&b->norm_1, here, C),
        .norm_1_rstd = view1(&a->norm_1_rstd, here),
        .qkv = model_cut(m, qkv, N, t->R),
        .att = model_cut(m, p->swap ? &a->att_rows : &a->att, N, t->Q),
        .heads = model_cut_heads(m, &a->qkv, all, t->R),
        .att_heads = model_cut_heads(m, &a->att, all, t->Q),
        .lse = view3(&a->lse, many, t->o.heads / S, T),
        .mid = view2(&a->mid, here, C),
        .norm_2 = view2(&b->norm_2, here, C),
        .norm_2_rstd = view1(&a->norm_2_rstd, here),
        .pair = model_cut(m, &a->pair, N, 2 * F),
        .gated = model_cut(m, &b->gated, N, F),
        .qkv3 = view3(&a->qkv, many, T, t->R / S),
        .att3 = view3(&a->att, many, T, t->Q / S),
        .rows = view2(qkv, n * N, t->R / S),
        .pairs = view2(&a->pair, n * N, 2 * F / S),
        .gated_rows = view2(&b->gated, n * N, F / S),
    };
    if (!t->o.qk_norm) return v;
    v.q = view2(&a->q, n * N, t->Q / S), v.q_rstd = view2(&a->q_rstd, n * N, t->o.heads / S);
    v.k = view2(&a->k, n * N, t->K / S), v.k_rstd = view2(&a->k_rstd, n * N, t->o.kv_heads / S);
    return v;
}

static err_t norm_forward(const llama_layers *t, const pass *p, int w, tensor *y, tensor *rstd, const tensor *x) {
    if (!x->size[0]) return ERR_OK;
    return p->ops->rms_norm_forward(&(rms_norm_forward_args){.y = y, .rstd = rstd, .x = x, .w = &p->w[w], .eps = (float)t->o.norm_eps}, p->s);
}

// dx = the gradient of x: through the norm and past it.
static err_t norm_backward(const llama_layers *t, const pass *p, int w, const layer_view *v, tensor *dx, const tensor *dy, const tensor *past,
                           const tensor *x, const tensor *rstd) {
    return slices_rms_norm_backward(
        t->of, p, v->all, &(rms_norm_backward_args){.dx = dx, .dw = &p->dw[w], .dy = dy, .dresidual = past, .x = x, .w = &p->w[w], .rstd = rstd});
}

static int heads_of_slice(const llama_layers *t) { return (int)t->o.heads / t->of->slices.of; }
static int kv_heads_of_slice(const llama_layers *t) { return (int)t->o.kv_heads / t->of->slices.of; }

// Queries and keys of unit mean square, each times its weight.
static err_t norm_heads(const llama_layers *t, const pass *p, const layer_params *n, layer_view *v) {
    if (n->q_norm < 0 || !v->N) return ERR_OK;
    float eps = (float)t->o.norm_eps;
    TRY(p->ops->head_norm_forward(
        &(head_norm_forward_args){.x = &v->rows, .kept = &v->q, .rstd = &v->q_rstd, .w = &p->w[n->q_norm], .first = 0, .eps = eps}, p->s));
    return p->ops->head_norm_forward(
        &(head_norm_forward_args){.x = &v->rows, .kept = &v->k, .rstd = &v->k_rstd, .w = &p->w[n->k_norm], .first = heads_of_slice(t), .eps = eps},
        p->s);
}

// Rows first .. first+n-1 of the heads of slice s. dw (+=), or (=) where it is fresh.
static err_t norm_rows_backward(const pass *p, const head_norm_backward_args *args, int64_t N, int64_t s, int64_t first, int64_t n, tensor *dw,
                                bool fresh) {
    head_norm_backward_args x = *args;
    tensor dx = tensor_rows(args->dx, s * N + first, n), kept = tensor_rows(args->kept, s * N + first, n);
    tensor rstd = tensor_rows(args->rstd, s * N + first, n);
    x.dx = &dx, x.kept = &kept, x.rstd = &rstd, x.dw = dw, x.fresh = fresh;
    return p->ops->head_norm_backward(&x, p->s);
}

// The weight's gradient is a sum over heads too, so each slice has a sum of its own.
static err_t norm_slices_backward(const llama_layers *t, const pass *p, const head_norm_backward_args *args, int64_t first, int64_t n) {
    int64_t slices = t->of->slices.count, N = args->dx->size[0] / slices, D = t->o.head_dim;
    tensor parts = view3(&t->dnorms, slices, 1, D), part = view2(&t->dnorm, 1, D), whole = view3(&t->dnorm, 1, 1, D);
    for (int64_t s = 0; s < slices; s++) {
        tensor dw = tensor_rows(&parts, s, 1);
        dw = view1(&dw, D);
        TRY(norm_rows_backward(p, args, N, s, first, n, &dw, true));
    }
    if (p->merge) {
        TRY(p->ops->sum_slices(&(sum_slices_args){.y = &part, .parts = &parts}, p->s));
        TRY(slices_whole(p, MERGE_SUM, &part));
    }
    tensor to = view2(args->dw, 1, D);
    return p->ops->sum_slices(&(sum_slices_args){.y = &to, .parts = p->merge ? &whole : &parts, .add = !args->fresh}, p->s);
}

static err_t norm_part_backward(const llama_layers *t, const pass *p, int w, int first, const tensor *kept, const tensor *rstd, tensor *dqkv) {
    head_norm_backward_args args = {.dx = dqkv, .dw = &p->dw[w], .kept = kept, .rstd = rstd, .w = &p->w[w], .first = first, .fresh = p->fresh};
    const model *m = t->of;
    if (m->slices.of == 1) return p->ops->head_norm_backward(&args, p->s);
    for (int k = 0; k < m->tokens.count; k++) {
        token_part own = model_token_part(m, p, k, p->B * p->in[0].size[1]);
        args.dw = &own.p.dw[w], args.fresh = own.p.fresh;
        TRY(norm_slices_backward(t, &own.p, &args, own.first, own.n));
    }
    return ERR_OK;
}

// dqkv (slices*N,.)
static err_t norm_heads_backward(const llama_layers *t, const pass *p, const layer_params *n, layer_view *v, tensor *dqkv) {
    if (n->q_norm < 0) return ERR_OK;
    TRY(norm_part_backward(t, p, n->q_norm, 0, &v->q, &v->q_rstd, dqkv));
    return norm_part_backward(t, p, n->k_norm, heads_of_slice(t), &v->k, &v->k_rstd, dqkv);
}

// Queries and keys turn by their positions; values do not.
static err_t turn(const llama_layers *t, const pass *p, tensor *qkv3, bool back) {
    rotary_args args = {.x = qkv3, .table = &t->angles, .heads = heads_of_slice(t) + kv_heads_of_slice(t), .back = back};
    if (!p->past) return p->ops->rotary(&args, p->s);
    for (int64_t b = 0; b < qkv3->size[0]; b++) {
        int64_t first = past_first(p, b % p->B);
        tensor row = tensor_rows(qkv3, b, 1), angles = tensor_rows(&t->angles, first, t->angles.size[0] - first);
        args.x = &row, args.table = &angles;
        TRY(p->ops->rotary(&args, p->s));
    }
    return ERR_OK;
}

static err_t attend_all(const llama_layers *t, int l, const pass *p, layer_view *v) {
    if (p->past) return past_attend(&t->kept, p, l, &v->att_heads, &v->heads);
    return p->ops->attention_forward(
        &(attention_forward_args){
            .y = &v->att3, .lse = &v->lse, .qkv = &v->qkv3, .heads = heads_of_slice(t), .kv_heads = kv_heads_of_slice(t), .window = (int)t->o.window},
        p->s);
}

static err_t attend(const llama_layers *t, int l, const pass *p, layer_view *v) {
    TRY(slices_to_heads(p, &v->heads, &v->qkv));
    TRY(turn(t, p, &v->qkv3, false));
    TRY(attend_all(t, l, p, v));
    return slices_to_rows(p, &v->att, &v->att_heads);
}

static err_t gate(const pass *p, layer_view *v) {
    return v->N ? p->ops->swiglu_forward(&(swiglu_forward_args){.y = &v->gated_rows, .x = &v->pairs}, p->s) : ERR_OK;
}

// mid = x + attention(norm(x));  gated = silu(gate) up of norm(mid): the layer up to the last value that its backward pass reads.
static err_t layer_to_gated(llama_layers *t, int l, const pass *p, layer_view *v) {
    const layer_params *n = &t->layer[l];
    tensor all;
    TRY(norm_forward(t, p, n->norm_1, &v->norm_1, &v->norm_1_rstd, &v->x));
    TRY(slices_gather(t->of, p, &all, &v->norm_1, v->N));
    TRY(linear_forward(p, &n->qkv, &v->qkv, &all, NULL));
    TRY(norm_heads(t, p, n, v));
    TRY(attend(t, l, p, v));
    TRY(linear_onto(p, &n->proj, &v->mid, &v->att, &v->x));
    TRY(norm_forward(t, p, n->norm_2, &v->norm_2, &v->norm_2_rstd, &v->mid));
    TRY(slices_gather(t->of, p, &all, &v->norm_2, v->N));
    TRY(linear_forward(p, &n->in, &v->pair, &all, NULL));
    return gate(p, v);
}

// Values of this layer, in sets that it shares with others.
static void hold(const llama_layers *t, int l, const pass *p) {
    if (t->sets.shares_cheap) t->of->held = (model_held){p->slot, l + 1};
}

static bool holds(const llama_layers *t, int l, const pass *p) { return t->of->held.slot == p->slot && t->of->held.block == l + 1; }

err_t llama_layer_forward(llama_layers *t, int l, pass *p, const tensor *y, const tensor *x) {
    layer_view v = view_layer(t, l, p, x);
    tensor out = view2(y, v.here, t->o.embed);
    TRY(layer_to_gated(t, l, p, &v));
    hold(t, l, p);
    return linear_onto(p, &t->layer[l].out, &out, &v.gated, &v.mid);
}

// Recomputes values in shared sets, unless they are still there.
static err_t recompute(llama_layers *t, int l, const pass *p, layer_view *v) {
    const layer_params *n = &t->layer[l];
    if (!t->sets.shares_cheap || holds(t, l, p)) return ERR_OK;
    hold(t, l, p);
    if (t->sets.shares_costly) return layer_to_gated(t, l, p, v);
    TRY(norm_forward(t, p, n->norm_1, &v->norm_1, &v->norm_1_rstd, &v->x));
    TRY(norm_forward(t, p, n->norm_2, &v->norm_2, &v->norm_2_rstd, &v->mid));
    return gate(p, v);
}

// Where gradients go: in halves they are kept for the second one, else they take the place of what was read.
static void place_gradients(const llama_layers *t, int l, const pass *p, layer_view *v, const tensor *dx, const tensor *dy) {
    const layer_later *k = t->halves ? &t->later[t->own[l] + p->slot] : NULL;
    v->dout = k ? view2(&k->dout, v->here, t->o.embed) : *dy;
    v->dgated = k ? model_cut(t->of, &t->dgated, v->N, t->o.hidden) : v->gated;
    v->dmid = k ? view2(&k->dmid, v->here, t->o.embed) : *dx;
    v->dqkv = model_cut(t->of, k ? &k->dqkv : &t->dqkv, v->N, t->R);
}

// Of in and qkv, from all rows of the norm before them.
static err_t norm_weights(const llama_layers *t, const pass *p, const layer_view *v, const linear *l, const tensor *dy, const tensor *norm) {
    tensor all;
    TRY(slices_gather(t->of, p, &all, norm, v->N));
    return linear_weights(p, l, dy, &all);
}

// dmid (=): through the MLP and past it. The gradient of pair takes its place.
static err_t mlp_backward(llama_layers *t, int l, const pass *p, layer_view *v, const tensor *dy) {
    const layer_params *n = &t->layer[l];
    tensor dnorm = view2(&t->inner, v->here, t->o.embed), dpair = v->pair, dpairs = v->pairs, all;
    tensor rows = view2(&v->dgated, v->gated_rows.size[0], v->gated_rows.size[1]);
    if (t->halves) TRY(p->ops->cast(&(cast_args){.y = &v->dout, .x = dy}, p->s));
    TRY(slices_gather(t->of, p, &all, dy, v->N));
    if (!t->halves) TRY(linear_weights(p, &n->out, &all, &v->gated));
    TRY(linear_inputs(p, &n->out, &v->dgated, &all, NULL, NULL));
    TRY(p->ops->swiglu_backward(&(swiglu_backward_args){.dx = &dpairs, .dy = &rows, .x = &v->pairs}, p->s));
    if (!t->halves) TRY(norm_weights(t, p, v, &n->in, &dpair, &v->norm_2));
    TRY(linear_inputs(p, &n->in, &dnorm, &dpair, NULL, NULL));
    return norm_backward(t, p, n->norm_2, v, &v->dmid, &dnorm, dy, &v->mid, &v->norm_2_rstd);
}

// v->dqkv (=), from datt, the gradient of att: of queries and keys before they were turned.
static err_t attend_backward(const llama_layers *t, const pass *p, layer_view *v, const tensor *datt) {
    int64_t S = t->of->slices.of;
    bool apart = p->swap;
    tensor dy = model_cut_heads(t->of, apart ? &t->swap_att : datt, v->all, t->Q),
           dqkv = model_cut_heads(t->of, apart ? &t->swap_qkv : &v->dqkv, v->all, t->R);
    tensor dy3 = view3(&dy, v->many, v->T, t->Q / S), dqkv3 = view3(&dqkv, v->many, v->T, t->R / S);
    tensor delta = view3(&t->delta, v->many, t->o.heads / S, v->T);
    TRY(slices_to_heads(p, &dy, datt));
    TRY(p->ops->attention_backward(&(attention_backward_args){.dqkv = &dqkv3,
                                                              .delta = &delta,
                                                              .dy = &dy3,
                                                              .y = &v->att3,
                                                              .lse = &v->lse,
                                                              .qkv = &v->qkv3,
                                                              .heads = heads_of_slice(t),
                                                              .kv_heads = kv_heads_of_slice(t),
                                                              .window = (int)t->o.window},
                                   p->s));
    TRY(turn(t, p, &dqkv3, true));
    return slices_to_rows(p, &v->dqkv, &dqkv);
}

// dx (=), which may be dmid.
static err_t attention_part_backward(llama_layers *t, int l, const pass *p, layer_view *v, tensor *dx) {
    const layer_params *n = &t->layer[l];
    tensor all, dnorm = view2(&t->inner, v->here, t->o.embed), datt = model_cut(t->of, &t->datt, v->N, t->Q);
    tensor rows = view2(&v->dqkv, t->of->slices.count * v->N, t->R / t->of->slices.of);
    TRY(slices_gather(t->of, p, &all, &v->dmid, v->N));
    if (!t->halves) TRY(linear_weights(p, &n->proj, &all, &v->att));
    TRY(linear_inputs(p, &n->proj, &datt, &all, NULL, NULL));
    TRY(attend_backward(t, p, v, &datt));
    TRY(norm_heads_backward(t, p, n, v, &rows));
    if (!t->halves) TRY(norm_weights(t, p, v, &n->qkv, &v->dqkv, &v->norm_1));
    TRY(linear_inputs(p, &n->qkv, &dnorm, &v->dqkv, NULL, NULL));
    return norm_backward(t, p, n->norm_1, v, dx, &dnorm, &v->dmid, &v->x, &v->norm_1_rstd);
}

err_t llama_layer_inputs(llama_layers *t, int l, pass *p, const tensor *dx, const tensor *dy, const tensor *x) {
    layer_view v = view_layer(t, l, p, x);
    tensor to = view2(dx, v.here, t->o.embed), from = view2(dy, v.here, t->o.embed);
    place_gradients(t, l, p, &v, &to, &from);
    TRY(recompute(t, l, p, &v));
    TRY(mlp_backward(t, l, p, &v, &from));
    if (holds(t, l, p)) t->of->held.block = -1;  // gated and pair are overwritten
    return attention_part_backward(t, l, p, &v, &to);
}

err_t llama_layer_weights(llama_layers *t, int l, pass *p, const tensor *x) {
    const layer_params *n = &t->layer[l];
    if (!t->halves) return ERR_OK;
    layer_view v = view_layer(t, l, p, x);
    tensor all;
    place_gradients(t, l, p, &v, x, x);  // dx and dy are of no use any more
    TRY(slices_gather(t->of, p, &all, &v.dout, v.N));
    TRY(linear_weights(p, &n->out, &all, &v.gated));
    TRY(norm_weights(t, p, &v, &n->in, &v.pair, &v.norm_2));
    TRY(slices_gather(t->of, p, &all, &v.dmid, v.N));
    TRY(linear_weights(p, &n->proj, &all, &v.att));
    return norm_weights(t, p, &v, &n->qkv, &v.dqkv, &v.norm_1);
}

const tensor *llama_layers_scratch(const llama_layers *t) { return &t->scratch; }

// --- opening ---------------------------------------------------------------------------------------------------------------

static int bias_of(model *m, bool has, int b, int64_t rows, const char *format, int l) {
    return has ? model_add(m, b, rows, 0, 0, 0, format, l) : -1;
}

// Initial values as GPT-2's: normal(0, 0.02), the projections back into the residual stream scaled by 1/sqrt(2L).
static void add_layer(llama_layers *t, int l) {
    model *m = t->of;
    const llama_options *o = &t->o;
    layer_params *n = &t->layer[l];
    int64_t C = o->embed, F = o->hidden;
    int b = l + 1;
    double std = 0.02, residual = 0.02 / __builtin_sqrt(2.0 * (double)o->layers);
    n->norm_1 = model_add(m, b, C, 0, 0, 1, "layers.%d.input_layernorm.weight", l);
    n->qkv.w = model_add(m, b, t->R, C, std, 0, "layers.%d.self_attn.qkv_proj.weight", l);
    n->qkv.b = bias_of(m, o->bias != LLAMA_BIAS_NO, b, t->R, "layers.%d.self_attn.qkv_proj.bias", l);
    n->q_norm = n->k_norm = -1;
    if (o->qk_norm) {
        n->q_norm = model_add(m, b, o->head_dim, 0, 0, 1, "layers.%d.self_attn.q_norm.weight", l);
        n->k_norm = model_add(m, b, o->head_dim, 0, 0, 1, "layers.%d.self_attn.k_norm.weight", l);
    }
    n->proj.w = model_add(m, b, C, t->Q, residual, 0, "layers.%d.self_attn.o_proj.weight", l);
    n->proj.b = bias_of(m, o->bias == LLAMA_BIAS_ALL, b, C, "layers.%d.self_attn.o_proj.bias", l);
    n->norm_2 = model_add(m, b, C, 0, 0, 1, "layers.%d.post_attention_layernorm.weight", l);
    n->in = (linear){.w = model_add(m, b, 2 * F, C, std, 0, "layers.%d.mlp.gate_up_proj.weight", l), .b = -1};
    n->out = (linear){.w = model_add(m, b, C, F, residual, 0, "layers.%d.mlp.down_proj.weight", l), .b = -1};
    linear_divide(&n->qkv, m, LINEAR_OUTPUTS, 3, (const int64_t[]){t->Q, t->K, t->K});
    linear_divide(&n->proj, m, LINEAR_INPUTS, 0, NULL);
    linear_divide(&n->in, m, LINEAR_OUTPUTS, 2, (const int64_t[]){F, F});
    linear_divide(&n->out, m, LINEAR_INPUTS, 0, NULL);
}

err_t llama_layers_open(llama_layers **out, model *m, const llama_options *o) {
    llama_layers *t = *out = calloc(1, sizeof *t);
    if (t)
        *t = (llama_layers){.of = m,
                            .o = *o,
                            .Q = o->heads * o->head_dim,
                            .K = o->kv_heads * o->head_dim,
                            .R = (o->heads + 2 * o->kv_heads) * o->head_dim,
                            .layer = calloc((size_t)o->layers, sizeof *t->layer),
                            .own = calloc((size_t)o->layers, sizeof *t->own)};
    if (!t || !t->layer || !t->own) return err_set(ERR_INTERNAL, "no memory for %d layers", (int)o->layers);
    for (int l = 0; l < (int)o->layers; l++) add_layer(t, l);
    return ERR_OK;
}

void llama_layers_close(llama_layers *t) {
    if (!t) return;
    past_close(&t->kept);
    free(t->layer), free(t->own), free(t->costly), free(t->cheap), free(t->later);
    free(t);
}

static err_t plan_costly(const llama_layers *t, arena *a, layer_costly *k, dtype type, int64_t B) {
    const model *m = t->of;
    int64_t T = t->o.context, here = model_most_rows(m, B * T), N = model_most_matrix_rows(m, B * T);
    TRY(arena_3d(a, &k->qkv, type, B, T, model_head_share(m, t->R)));
    TRY(arena_3d(a, &k->att, type, B, T, model_head_share(m, t->Q)));
    if (model_row_places(m) > 1) TRY(arena_2d(a, &k->att_rows, type, N, model_share(m, t->Q)));
    TRY(arena_3d(a, &k->lse, FP32, B, model_head_share(m, t->o.heads), T));
    TRY(arena_2d(a, &k->mid, type, here, t->o.embed));
    TRY(arena_2d(a, &k->pair, type, N, model_share(m, 2 * t->o.hidden)));
    TRY(arena_1d(a, &k->norm_1_rstd, FP32, here));
    TRY(arena_1d(a, &k->norm_2_rstd, FP32, here));
    if (!t->o.qk_norm) return ERR_OK;
    TRY(arena_2d(a, &k->q, type, N, model_share(m, t->Q)));
    TRY(arena_2d(a, &k->k, type, N, model_share(m, t->K)));
    TRY(arena_2d(a, &k->q_rstd, FP32, N, model_share(m, t->o.heads)));
    return arena_2d(a, &k->k_rstd, FP32, N, model_share(m, t->o.kv_heads));
}

static err_t plan_cheap(const llama_layers *t, arena *a, layer_cheap *k, dtype type, int64_t B) {
    int64_t here = model_most_rows(t->of, B * t->o.context), N = model_most_matrix_rows(t->of, B * t->o.context);
    TRY(arena_2d(a, &k->norm_1, type, here, t->o.embed));
    TRY(arena_2d(a, &k->norm_2, type, here, t->o.embed));
    return arena_2d(a, &k->gated, type, N, model_share(t->of, t->o.hidden));
}

static err_t plan_later(const llama_layers *t, arena *a, layer_later *k, dtype type, int64_t B) {
    int64_t here = model_most_rows(t->of, B * t->o.context), N = model_most_matrix_rows(t->of, B * t->o.context);
    TRY(arena_2d(a, &k->dout, type, here, t->o.embed));
    TRY(arena_2d(a, &k->dmid, type, here, t->o.embed));
    return arena_2d(a, &k->dqkv, type, N, model_share(t->of, t->R));
}

static err_t plan_swaps(llama_layers *t, arena *a, const model_plan *o) {
    const model *m = t->of;
    int64_t all = o->B * t->o.context, rows = model_most_matrix_rows(m, all) * model_share(m, t->R), heads = all * model_head_share(m, t->R);
    TRY(arena_1d(a, &t->swap_qkv, o->compute, rows > heads ? rows : heads));
    return o->forward_only ? ERR_OK : arena_1d(a, &t->swap_att, o->compute, all * model_head_share(m, t->Q));
}

static layer_sets choose_sets(llama_layers *t, const model_plan *o) {
    bool cheap = o->forward_only || o->recompute != RECOMPUTE_NONE, costly = o->forward_only || o->recompute == RECOMPUTE_BLOCK;
    int all = model_plan_sets(o, 1, (int)t->o.layers, t->own), one = all > 0;
    return (layer_sets){.costly = costly ? one : all, .cheap = cheap ? one : all, .shares_costly = costly, .shares_cheap = cheap};
}

err_t llama_layers_plan(llama_layers *t, arena *a, const model_plan *o) {
    free(t->costly), free(t->cheap), free(t->later);
    t->sets = choose_sets(t, o);
    t->halves = o->halves && !t->sets.shares_cheap;
    t->of->held.block = -1;
    t->costly = calloc((size_t)t->sets.costly + 1, sizeof *t->costly);
    t->cheap = calloc((size_t)t->sets.cheap + 1, sizeof *t->cheap);
    t->later = calloc((size_t)t->sets.costly + 1, sizeof *t->later);
    if (!t->costly || !t->cheap || !t->later) return err_set(ERR_INTERNAL, "no memory for the activations of %d layers", (int)t->o.layers);
    for (int i = 0; i < t->sets.costly; i++) TRY(plan_costly(t, a, &t->costly[i], o->compute, o->B));
    for (int i = 0; i < t->sets.cheap; i++) TRY(plan_cheap(t, a, &t->cheap[i], o->compute, o->B));
    for (int i = 0; t->halves && i < t->sets.costly; i++) TRY(plan_later(t, a, &t->later[i], o->compute, o->B));
    t->kept.heads = heads_of_slice(t), t->kept.kv_heads = kv_heads_of_slice(t), t->kept.window = (int)t->o.window;
    t->kept.slices = model_head_slices(t->of);
    TRY(past_plan(&t->kept, a, o, 1, (int)t->o.layers, t->o.context, t->o.head_dim));
    TRY(arena_2d(a, &t->angles, FP32, t->o.context, t->o.head_dim));
    int64_t here = model_most_rows(t->of, o->B * t->o.context), N = model_most_matrix_rows(t->of, o->B * t->o.context);
    TRY(arena_2d(a, &t->scratch, o->compute, here, t->o.embed));
    if (model_row_places(t->of) > 1) TRY(plan_swaps(t, a, o));
    if (o->forward_only) return ERR_OK;
    TRY(arena_2d(a, &t->inner, o->compute, here, t->o.embed));
    TRY(arena_2d(a, &t->datt, o->compute, N, model_share(t->of, t->Q)));
    if (t->halves) TRY(arena_2d(a, &t->dgated, o->compute, N, model_share(t->of, t->o.hidden)));
    else TRY(arena_2d(a, &t->dqkv, o->compute, N, model_share(t->of, t->R)));
    if (t->o.qk_norm && t->of->slices.of > 1) {
        TRY(arena_3d(a, &t->dnorms, FP32, t->of->slices.count, 1, t->o.head_dim));
        TRY(arena_3d(a, &t->dnorm, FP32, 1, 1, t->o.head_dim));
    }
    return arena_3d(a, &t->delta, FP32, o->B, model_head_share(t->of, t->o.heads), t->o.context);
}

static rope rope_of(const llama_options *o) {
    return (rope){(rope_kind)o->rope_scaling, o->rope_theta, o->rope_factor, o->rope_low, o->rope_high, o->rope_original};
}

err_t llama_layers_fill(llama_layers *t, stream *s) {
    int64_t T = t->o.context, D = t->o.head_dim;
    rope r = rope_of(&t->o);
    float *table = malloc((size_t)(T * D) * sizeof *table);
    if (!table) return err_set(ERR_INTERNAL, "no memory for the angles of %lld positions", (long long)T);
    rope_table(&r, T, D, table);
    err_t rc = stream_copy(s, t->angles.data, table, (size_t)(T * D) * sizeof *table);
    if (rc == ERR_OK) rc = stream_wait(s);
    free(table);
    return rc;
}
