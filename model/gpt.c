// model/gpt.c: GPT-2 (Radford et al. 2019): token and position embeddings, L pre-norm transformer blocks, a final norm,
// and a head that shares the token embedding. Each backward function mirrors its forward function: read the forward
// lines from the bottom up.
//
// Vp is the padded V (model_vocab_in_memory): the head's products include the zeros after the token embedding. These
// give columns of logits that no softmax reads; their gradient is zero and adds nothing to dx or to the weight
// gradient's padding.
//
// The head works on one chunk of rows after the other (model_plan.head_chunks): the logits of all rows would be the
// largest tensor of all. In training a chunk's logits are overwritten by their gradient, which is used before the next
// chunk begins. So one loop over the chunks gives losses, dx and the weight's gradient; it runs in backward, where the
// memory of gradients is available. The weight's gradient is summed from zero over each chunk, not over a micro-batch,
// and added once for each chunk.
//
// Initial values are those of GPT-2: normal(0, 0.02), the projections back into the residual stream scaled by 1/sqrt(2L).
#include "base/philox.h"
#include "model/model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

// Where a layer's parameters are in the table.
typedef struct layer_params {
    int ln_1_w, ln_1_b, qkv_w, qkv_b, proj_w, proj_b, ln_2_w, ln_2_b, fc_w, fc_b, out_w, out_b;
} layer_params;

// What a layer's backward pass reads in addition to its input x, by the cost of recomputing it.
typedef struct layer_costly {
    tensor qkv, att, lse;                                 // (B,T,3C), (B,T,C), (B,H,T)
    tensor mid;                                           // (B,T,C)   x + attention
    tensor fc_pre;                                        // (B,T,4C)  before GELU
    tensor ln_1_mean, ln_1_rstd, ln_2_mean, ln_2_rstd;    // (B,T)
} layer_costly;

typedef struct layer_cheap {
    tensor ln_1, ln_2;  // (B,T,C)
    tensor fc;          // (B,T,4C)  after GELU
} layer_cheap;

// The number of sets of each: one for each layer, or one that all layers share and each layer's forward pass
// overwrites.
//                x   costly   cheap
//   none         L      L       L
//   selective    L      L       1
//   block        L      1       1
//   forward only 1      1       1     each layer's output overwrites its input
typedef struct layer_sets { int x, costly, cheap; } layer_sets;

typedef struct gpt {
    model head;
    int wte, wpe, ln_f_w, ln_f_b, lm_head;
    layer_params *layer;
    layer_sets sets;
    tensor *x;                                // (B,T,C)   inputs of the layers
    layer_costly *costly;
    layer_cheap *cheap;
    tensor last, ln_f_mean, ln_f_rstd;        // (B,T,C), (B,T)
    tensor logits, losses;                    // (rows of a chunk,Vp), (B,T)
    tensor branch;                            // (B,T,C)   added to the residual stream; head: norm, then its gradient
    tensor dx, dinner, delta;                 // backward: (B,T,C) x2, (B,H,T); dinner: of a norm or of attention
    tensor scratch;                           // of the embedding's backward
} gpt;

static const float NORM_EPS = 1e-5f;

enum { DROP_EMBED, DROP_ATTENTION, DROP_MID, DROP_OUT };  // sites of a block

static const dropout_key *drop_at(pass *p, int layer, int which, dropout_key *key) {
    if (p->drop.p == 0) return NULL;
    *key = p->drop;
    key->site = SITE_DROPOUT + 8 * (uint32_t)(layer + 1) + (uint32_t)which;
    return key;
}

// y = dropout(x), or nothing, for x of B samples: the operation needs the sample as dimension 0.
static err_t drop_samples(pass *p, int layer, int which, const tensor *y, const tensor *x) {
    dropout_key key;
    if (!drop_at(p, layer, which, &key)) return ERR_OK;
    int64_t columns = tensor_count(x) / (p->B * p->T);
    tensor to = view3(y, p->B, p->T, columns), from = view3(x, p->B, p->T, columns);
    return p->ops->dropout(&(dropout_args){.y = &to, .x = &from, .drop = &key}, p->s);
}

// Gradients of y = x W^T + b for W (O,I): dW += dy^T x, db += column sums of dy
static err_t linear_weights(pass *p, int w, int b, const tensor *dy, const tensor *x) {
    TRY(p->ops->matmul(&(matmul_args){.d = &p->dw[w], .a = dy, .ta = true, .b = x, .epilogue = MATMUL_ACCUMULATE}, p->s));
    return p->ops->bias_backward(&(bias_backward_args){.dbias = &p->dw[b], .dy = dy}, p->s);
}

// --- embedding -------------------------------------------------------------------------------------------------------------

static err_t embed_forward(model *m, int layer, pass *p) {
    gpt *g = (gpt *)m;
    tensor x = view3(&g->x[0], p->B, p->T, m->options.embed);
    TRY(p->ops->embedding_forward(&(embedding_forward_args){.x = &x, .tokens = &p->tokens, .wte = &p->w[g->wte], .wpe = &p->w[g->wpe]},
                                  p->s));
    return drop_samples(p, layer, DROP_EMBED, &x, &x);
}

static err_t embed_backward(model *m, int layer, pass *p) {
    gpt *g = (gpt *)m;
    tensor dx = view3(&g->dx, p->B, p->T, m->options.embed);
    TRY(drop_samples(p, layer, DROP_EMBED, &dx, &dx));
    return p->ops->embedding_backward(&(embedding_backward_args){.dwte = &p->dw[g->wte], .dwpe = &p->dw[g->wpe], .scratch = &g->scratch,
                                                                 .dx = &dx, .tokens = &p->tokens}, p->s);
}

// --- transformer block -----------------------------------------------------------------------------------------------------

// One layer's tensors, its own or the shared ones, cut to this pass's B and T.
typedef struct layer_view {
    tensor x, ln_1, ln_1_mean, ln_1_rstd, qkv, att, lse, mid, ln_2, ln_2_mean, ln_2_rstd, fc_pre, fc, y, branch;
    tensor qkv3, att3;  // (B,T,.)
} layer_view;

static layer_view view_layer(gpt *g, int l, const pass *p) {
    const layer_costly *a = &g->costly[l % g->sets.costly];
    const layer_cheap *b = &g->cheap[l % g->sets.cheap];
    const tensor *x = &g->x[l % g->sets.x];
    int64_t N = p->B * p->T, C = g->head.options.embed;
    const tensor *out = l + 1 < g->head.options.layers ? &g->x[(l + 1) % g->sets.x] : &g->last;
    return (layer_view){
        .x = view2(x, N, C), .ln_1 = view2(&b->ln_1, N, C), .ln_1_mean = view1(&a->ln_1_mean, N), .ln_1_rstd = view1(&a->ln_1_rstd, N),
        .qkv = view2(&a->qkv, N, 3 * C), .att = view2(&a->att, N, C), .lse = view3(&a->lse, p->B, g->head.options.heads, p->T),
        .mid = view2(&a->mid, N, C), .ln_2 = view2(&b->ln_2, N, C), .ln_2_mean = view1(&a->ln_2_mean, N), .ln_2_rstd = view1(&a->ln_2_rstd, N),
        .fc_pre = view2(&a->fc_pre, N, 4 * C), .fc = view2(&b->fc, N, 4 * C), .y = view2(out, N, C), .branch = view2(&g->branch, N, C),
        .qkv3 = view3(&a->qkv, p->B, p->T, 3 * C), .att3 = view3(&a->att, p->B, p->T, C),
    };
}

// ln_1 = norm(x)
static err_t norm_1(pass *p, const layer_params *n, layer_view *v) {
    return p->ops->layer_norm_forward(&(layer_norm_forward_args){.y = &v->ln_1, .mean = &v->ln_1_mean, .rstd = &v->ln_1_rstd, .x = &v->x,
                                                                 .w = &p->w[n->ln_1_w], .b = &p->w[n->ln_1_b], .eps = NORM_EPS}, p->s);
}

// ln_2 = norm(mid), with mid = x + branch, or, if branch is NULL, the mid that was kept: in both cases the operation
// norms the rounded sum.
static err_t norm_2(pass *p, const layer_params *n, layer_view *v, const tensor *branch) {
    return p->ops->layer_norm_forward(&(layer_norm_forward_args){.y = &v->ln_2, .mean = &v->ln_2_mean, .rstd = &v->ln_2_rstd,
                                                                 .sum = branch ? &v->mid : NULL, .x = branch ? &v->x : &v->mid,
                                                                 .residual = branch, .w = &p->w[n->ln_2_w], .b = &p->w[n->ln_2_b],
                                                                 .eps = NORM_EPS}, p->s);
}

// mid = x + attention(norm(x));  fc = gelu(linear(norm(mid))): the layer up to the last value that its backward pass reads.
static err_t layer_to_fc(gpt *g, int l, pass *p, layer_view *v) {
    const ops *o = p->ops;
    const layer_params *n = &g->layer[l];
    const tensor *w = p->w;
    dropout_key key;

    TRY(norm_1(p, n, v));
    TRY(o->matmul(&(matmul_args){.d = &v->qkv, .a = &v->ln_1, .b = &w[n->qkv_w], .tb = true, .bias = &w[n->qkv_b], .epilogue = MATMUL_BIAS},
                  p->s));
    TRY(o->attention_forward(&(attention_forward_args){.y = &v->att3, .lse = &v->lse, .qkv = &v->qkv3, .heads = g->head.options.heads,
                                                       .drop = drop_at(p, l, DROP_ATTENTION, &key)}, p->s));
    TRY(o->matmul(&(matmul_args){.d = &v->branch, .a = &v->att, .b = &w[n->proj_w], .tb = true, .bias = &w[n->proj_b],
                                 .epilogue = MATMUL_BIAS}, p->s));
    TRY(drop_samples(p, l, DROP_MID, &v->branch, &v->branch));

    TRY(norm_2(p, n, v, &v->branch));
    return o->matmul(&(matmul_args){.d = &v->fc, .pre = &v->fc_pre, .a = &v->ln_2, .b = &w[n->fc_w], .tb = true, .bias = &w[n->fc_b],
                                    .epilogue = MATMUL_BIAS | MATMUL_GELU}, p->s);
}

// mid = x + attention(norm(x));  y = mid + mlp(norm(mid))
static err_t layer_forward(model *m, int l, pass *p) {
    gpt *g = (gpt *)m;
    const layer_params *n = &g->layer[l];
    layer_view v = view_layer(g, l, p);
    TRY(layer_to_fc(g, l, p, &v));
    TRY(p->ops->matmul(&(matmul_args){.d = &v.branch, .a = &v.fc, .b = &p->w[n->out_w], .tb = true, .bias = &p->w[n->out_b],
                                      .epilogue = MATMUL_BIAS}, p->s));
    TRY(drop_samples(p, l, DROP_OUT, &v.branch, &v.branch));
    return p->ops->add(&(add_args){.y = &v.y, .a = &v.mid, .b = &v.branch}, p->s);
}

// Recomputes values in shared sets, which later layers have overwritten. The last layer's are still there.
static err_t layer_recompute(gpt *g, int l, pass *p, layer_view *v) {
    const layer_params *n = &g->layer[l];
    int layers = g->head.options.layers;
    if (l + 1 == layers || g->sets.cheap == layers) return ERR_OK;
    if (g->sets.costly == 1) return layer_to_fc(g, l, p, v);
    TRY(norm_1(p, n, v));
    TRY(norm_2(p, n, v, NULL));
    return p->ops->gelu_forward(&(gelu_forward_args){.y = &v->fc, .x = &v->fc_pre}, p->s);
}

// The gradient before the dropout at `which`; dx itself without dropout.
static err_t branch_gradient(gpt *g, pass *p, int l, int which, const tensor *dx, tensor *out) {
    *out = p->drop.p == 0 ? *dx : view2(&g->branch, dx->size[0], dx->size[1]);
    return drop_samples(p, l, which, out, dx);
}

// g->dx holds dy on entry and the gradient of the layer's input on return.
static err_t layer_backward(model *m, int l, pass *p) {
    gpt *g = (gpt *)m;
    const ops *o = p->ops;
    const layer_params *n = &g->layer[l];
    const tensor *w = p->w;
    layer_view v = view_layer(g, l, p);
    int64_t N = p->B * p->T, C = m->options.embed;
    tensor dx = view2(&g->dx, N, C), dnorm = view2(&g->dinner, N, C), datt = dnorm, dbranch;
    tensor dfc = v.fc, dqkv = view2(&v.fc, N, 3 * C), delta = view3(&g->delta, p->B, m->options.heads, p->T);  // fc's memory is reused after fc was read
    tensor dqkv3 = view3(&dqkv, p->B, p->T, 3 * C), datt3 = view3(&datt, p->B, p->T, C);
    dropout_key key;

    TRY(layer_recompute(g, l, p, &v));
    TRY(branch_gradient(g, p, l, DROP_OUT, &dx, &dbranch));
    TRY(linear_weights(p, n->out_w, n->out_b, &dbranch, &v.fc));
    TRY(o->matmul(&(matmul_args){.d = &dfc, .pre = &v.fc_pre, .a = &dbranch, .b = &w[n->out_w], .epilogue = MATMUL_DGELU}, p->s));
    TRY(linear_weights(p, n->fc_w, n->fc_b, &dfc, &v.ln_2));
    TRY(o->matmul(&(matmul_args){.d = &dnorm, .a = &dfc, .b = &w[n->fc_w]}, p->s));
    TRY(o->layer_norm_backward(&(layer_norm_backward_args){.dx = &dx, .dw = &p->dw[n->ln_2_w], .db = &p->dw[n->ln_2_b], .dy = &dnorm,
                                                           .dresidual = &dx, .x = &v.mid, .w = &w[n->ln_2_w], .mean = &v.ln_2_mean,
                                                           .rstd = &v.ln_2_rstd}, p->s));

    TRY(branch_gradient(g, p, l, DROP_MID, &dx, &dbranch));
    TRY(linear_weights(p, n->proj_w, n->proj_b, &dbranch, &v.att));
    TRY(o->matmul(&(matmul_args){.d = &datt, .a = &dbranch, .b = &w[n->proj_w]}, p->s));
    TRY(o->attention_backward(&(attention_backward_args){.dqkv = &dqkv3, .delta = &delta, .dy = &datt3, .y = &v.att3, .lse = &v.lse,
                                                         .qkv = &v.qkv3, .heads = m->options.heads, .drop = drop_at(p, l, DROP_ATTENTION,
                                                                 &key)}, p->s));
    TRY(linear_weights(p, n->qkv_w, n->qkv_b, &dqkv, &v.ln_1));
    TRY(o->matmul(&(matmul_args){.d = &dnorm, .a = &dqkv, .b = &w[n->qkv_w]}, p->s));
    return o->layer_norm_backward(&(layer_norm_backward_args){.dx = &dx, .dw = &p->dw[n->ln_1_w], .db = &p->dw[n->ln_1_b], .dy = &dnorm,
                                                              .dresidual = &dx, .x = &v.x, .w = &w[n->ln_1_w], .mean = &v.ln_1_mean,
                                                              .rstd = &v.ln_1_rstd}, p->s);
}

// --- head and loss ---------------------------------------------------------------------------------------------------------

// The head's weight or its gradient, with the zeros after it.
static tensor with_padding(const tensor *t, int64_t Vp) { return view2(t, Vp, t->size[1]); }

// Rows first .. first+count-1 of a matrix or vector.
static tensor rows_of(const tensor *t, int64_t first, int64_t count) {
    tensor part = *t;
    part.data = (char *)t->data + (size_t)(first * (t->dims > 1 ? t->size[1] : 1)) * dtype_bytes(t->type);
    part.size[0] = count;
    return part;
}

// The head's tensors, cut to this pass's rows.
typedef struct head_view { tensor x, norm, mean, rstd, losses, targets, w; } head_view;

static head_view view_head(gpt *g, const pass *p) {
    int64_t N = p->B * p->T, C = g->head.options.embed, Vp = model_vocab_in_memory(g->head.options.vocab);
    return (head_view){
        .x = view2(&g->last, N, C), .norm = view2(&g->branch, N, C), .mean = view1(&g->ln_f_mean, N), .rstd = view1(&g->ln_f_rstd, N),
        .losses = view1(&g->losses, N), .targets = view1(&p->targets, N), .w = with_padding(&p->w[g->lm_head], Vp),
    };
}

// Logits of the last position of each sample (sampling needs no others). B = 1 there.
static err_t last_logits(gpt *g, pass *p, const head_view *v) {
    assert(p->B == 1);
    tensor x = rows_of(&v->norm, p->T - 1, 1), logits = view2(&g->logits, 1, v->w.size[0]);
    p->logits = view2(&g->logits, 1, g->head.options.vocab);
    return p->ops->matmul(&(matmul_args){.d = &logits, .a = &x, .b = &v->w, .tb = true}, p->s);
}

// Logits and losses of a chunk of rows. With a backward pass, logits and norm are then overwritten by their gradients.
static err_t head_chunk(gpt *g, pass *p, const head_view *v, int64_t first, int64_t rows) {
    const ops *o = p->ops;
    tensor norm = rows_of(&v->norm, first, rows), losses = rows_of(&v->losses, first, rows), targets = rows_of(&v->targets, first, rows);
    tensor logits = view2(&g->logits, rows, v->w.size[0]);
    TRY(o->matmul(&(matmul_args){.d = &logits, .a = &norm, .b = &v->w, .tb = true}, p->s));
    TRY(o->cross_entropy(&(cross_entropy_args){.losses = &losses, .logits = &logits, .targets = &targets, .classes = g->head.options.vocab,
                                               .scale = p->dw ? &p->loss_factor : NULL, .state = p->state}, p->s));
    if (!p->dw) return ERR_OK;
    tensor dw = with_padding(&p->dw[g->lm_head], v->w.size[0]);
    TRY(o->matmul(&(matmul_args){.d = &dw, .a = &logits, .ta = true, .b = &norm, .epilogue = MATMUL_ACCUMULATE}, p->s));
    return o->matmul(&(matmul_args){.d = &norm, .a = &logits, .b = &v->w}, p->s);
}

static err_t head_chunks(gpt *g, pass *p, const head_view *v) {
    int64_t N = p->B * p->T, rows = g->logits.size[0];
    for (int64_t first = 0; first < N; first += rows) TRY(head_chunk(g, p, v, first, N - first < rows ? N - first : rows));
    p->losses = view2(&g->losses, p->B, p->T);
    return ERR_OK;
}

static err_t head_forward(model *m, int layer, pass *p) {
    (void)layer;
    gpt *g = (gpt *)m;
    head_view v = view_head(g, p);
    TRY(p->ops->layer_norm_forward(&(layer_norm_forward_args){.y = &v.norm, .mean = &v.mean, .rstd = &v.rstd, .x = &v.x,
                                                              .w = &p->w[g->ln_f_w], .b = &p->w[g->ln_f_b], .eps = NORM_EPS}, p->s));
    if (p->last_only) return last_logits(g, p, &v);
    return p->dw ? ERR_OK : head_chunks(g, p, &v);
}

static err_t head_backward(model *m, int layer, pass *p) {
    (void)layer;
    gpt *g = (gpt *)m;
    head_view v = view_head(g, p);
    tensor dx = view2(&g->dx, p->B * p->T, m->options.embed);
    TRY(head_chunks(g, p, &v));
    return p->ops->layer_norm_backward(&(layer_norm_backward_args){.dx = &dx, .dw = &p->dw[g->ln_f_w], .db = &p->dw[g->ln_f_b],
                                                                   .dy = &v.norm, .x = &v.x, .w = &p->w[g->ln_f_w], .mean = &v.mean,
                                                                   .rstd = &v.rstd}, p->s);
}

// --- tables ----------------------------------------------------------------------------------------------------------------

// Appends a parameter; cols = 0 makes it a vector. Returns its row.
static int add_param(gpt *g, int block, int64_t rows, int64_t cols, double std, float value, int tied, const char *name) {
    param *p = &g->head.param[g->head.params];
    *p = (param){.dims = cols ? 2 : 1, .size = {rows, cols ? cols : 1, 1, 1}, .block = block, .decay = cols != 0,
                 .init_std = std, .init_value = value, .tied = tied};
    snprintf(p->name, sizeof p->name, "%s", name);
    return g->head.params++;
}

static int add_layer_param(gpt *g, int l, int64_t rows, int64_t cols, double std, float value, const char *name) {
    char full[MODEL_NAME];
    snprintf(full, sizeof full, "h.%d.%s", l, name);
    return add_param(g, 1 + l, rows, cols, std, value, -1, full);
}

static void declare_layer(gpt *g, int l) {
    int64_t C = g->head.options.embed;
    double std = 0.02, residual = 0.02 / __builtin_sqrt(2.0 * g->head.options.layers);
    layer_params *n = &g->layer[l];
    n->ln_1_w = add_layer_param(g, l, C, 0, 0, 1, "ln_1.weight");
    n->ln_1_b = add_layer_param(g, l, C, 0, 0, 0, "ln_1.bias");
    n->qkv_w = add_layer_param(g, l, 3 * C, C, std, 0, "attn.c_attn.weight");
    n->qkv_b = add_layer_param(g, l, 3 * C, 0, 0, 0, "attn.c_attn.bias");
    n->proj_w = add_layer_param(g, l, C, C, residual, 0, "attn.c_proj.weight");
    n->proj_b = add_layer_param(g, l, C, 0, 0, 0, "attn.c_proj.bias");
    n->ln_2_w = add_layer_param(g, l, C, 0, 0, 1, "ln_2.weight");
    n->ln_2_b = add_layer_param(g, l, C, 0, 0, 0, "ln_2.bias");
    n->fc_w = add_layer_param(g, l, 4 * C, C, std, 0, "mlp.c_fc.weight");
    n->fc_b = add_layer_param(g, l, 4 * C, 0, 0, 0, "mlp.c_fc.bias");
    n->out_w = add_layer_param(g, l, C, 4 * C, residual, 0, "mlp.c_proj.weight");
    n->out_b = add_layer_param(g, l, C, 0, 0, 0, "mlp.c_proj.bias");
}

static void declare(gpt *g) {
    const model_options *o = &g->head.options;
    int head = o->layers + 1;
    g->wte = add_param(g, 0, o->vocab, o->embed, 0.02, 0, -1, "wte.weight");
    g->wpe = add_param(g, 0, o->context, o->embed, 0.02, 0, -1, "wpe.weight");
    for (int l = 0; l < o->layers; l++) declare_layer(g, l);
    g->ln_f_w = add_param(g, head, o->embed, 0, 0, 1, -1, "ln_f.weight");
    g->ln_f_b = add_param(g, head, o->embed, 0, 0, 0, -1, "ln_f.bias");
    g->lm_head = add_param(g, head, o->vocab, o->embed, 0, 0, g->wte, "lm_head.weight");
    g->head.param[g->wte].rows_in_memory = g->head.param[g->lm_head].rows_in_memory = model_vocab_in_memory(o->vocab);

    g->head.block[0] = (block){"embedding", -1, embed_forward, embed_backward};
    for (int l = 0; l < o->layers; l++) g->head.block[1 + l] = (block){"layer", l, layer_forward, layer_backward};
    g->head.block[head] = (block){"head", o->layers, head_forward, head_backward};
    g->head.blocks = head + 1;
}

static void gpt_close(model *m) {
    gpt *g = (gpt *)m;
    free(m->param);
    free(m->block);
    free(g->layer);
    free(g->x);
    free(g->costly);
    free(g->cheap);
    free(g);
}

static err_t gpt_open(model **out, const model_options *o) {
    *out = NULL;
    gpt *g = calloc(1, sizeof *g);
    if (!g) return err_set(ERR_INTERNAL, "no memory for a model");
    g->head = (model){.type = &model_gpt, .options = *o};
    g->head.param = calloc((size_t)(5 + 12 * o->layers), sizeof(param));
    g->head.block = calloc((size_t)(2 + o->layers), sizeof(block));
    g->layer = calloc((size_t)o->layers, sizeof *g->layer);
    g->x = calloc((size_t)o->layers, sizeof *g->x);
    g->costly = calloc((size_t)o->layers, sizeof *g->costly);
    g->cheap = calloc((size_t)o->layers, sizeof *g->cheap);
    if (!g->head.param || !g->head.block || !g->layer || !g->x || !g->costly || !g->cheap) {
        gpt_close(&g->head);
        return err_set(ERR_INTERNAL, "no memory for a model of %d layers", o->layers);
    }
    declare(g);
    *out = &g->head;
    return ERR_OK;
}

static err_t plan_costly(gpt *g, arena *a, layer_costly *t, dtype type, int64_t B, int64_t T) {
    int64_t C = g->head.options.embed;
    TRY(arena_3d(a, &t->qkv, type, B, T, 3 * C));
    TRY(arena_3d(a, &t->att, type, B, T, C));
    TRY(arena_3d(a, &t->lse, FP32, B, g->head.options.heads, T));
    TRY(arena_3d(a, &t->mid, type, B, T, C));
    TRY(arena_3d(a, &t->fc_pre, type, B, T, 4 * C));
    TRY(arena_2d(a, &t->ln_1_mean, FP32, B, T));
    TRY(arena_2d(a, &t->ln_1_rstd, FP32, B, T));
    TRY(arena_2d(a, &t->ln_2_mean, FP32, B, T));
    return arena_2d(a, &t->ln_2_rstd, FP32, B, T);
}

static err_t plan_cheap(gpt *g, arena *a, layer_cheap *t, dtype type, int64_t B, int64_t T) {
    int64_t C = g->head.options.embed;
    TRY(arena_3d(a, &t->ln_1, type, B, T, C));
    TRY(arena_3d(a, &t->ln_2, type, B, T, C));
    return arena_3d(a, &t->fc, type, B, T, 4 * C);
}

static err_t plan_layers(gpt *g, arena *a, const model_plan *o) {
    int L = g->head.options.layers;
    g->sets = (layer_sets){
        .x = o->forward_only ? 1 : L,
        .costly = o->forward_only || o->recompute == RECOMPUTE_BLOCK ? 1 : L,
        .cheap = o->forward_only || o->recompute != RECOMPUTE_NONE ? 1 : L,
    };
    for (int l = 0; l < g->sets.x; l++) TRY(arena_3d(a, &g->x[l], o->compute, o->B, o->T, g->head.options.embed));
    for (int l = 0; l < g->sets.costly; l++) TRY(plan_costly(g, a, &g->costly[l], o->compute, o->B, o->T));
    for (int l = 0; l < g->sets.cheap; l++) TRY(plan_cheap(g, a, &g->cheap[l], o->compute, o->B, o->T));
    return ERR_OK;
}

static err_t plan_backward(gpt *g, arena *a, dtype type, int64_t B, int64_t T) {
    int64_t C = g->head.options.embed;
    TRY(arena_3d(a, &g->dx, type, B, T, C));
    TRY(arena_3d(a, &g->dinner, type, B, T, C));
    TRY(arena_3d(a, &g->delta, FP32, B, g->head.options.heads, T));
    return arena_1d(a, &g->scratch, INT32, B * T + g->head.options.vocab + 1);
}

static err_t gpt_plan(model *m, arena *a, const model_plan *o) {
    gpt *g = (gpt *)m;
    dtype type = o->compute;
    int64_t C = m->options.embed, B = o->B, T = o->T;
    TRY(plan_layers(g, a, o));
    TRY(arena_3d(a, &g->last, type, B, T, C));
    TRY(arena_2d(a, &g->ln_f_mean, FP32, B, T));
    TRY(arena_2d(a, &g->ln_f_rstd, FP32, B, T));
    TRY(arena_2d(a, &g->logits, type, model_head_rows(B * T, o->head_chunks), model_vocab_in_memory(m->options.vocab)));
    TRY(arena_2d(a, &g->losses, FP32, B, T));
    TRY(arena_3d(a, &g->branch, type, B, T, C));
    return o->forward_only ? ERR_OK : plan_backward(g, a, type, B, T);
}

const model_type model_gpt = {.name = "gpt", .open = gpt_open, .plan = gpt_plan, .close = gpt_close};
