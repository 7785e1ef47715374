// model/gpt/gpt.c: GPT-2 (Radford et al. 2019): token and position embeddings, L pre-norm transformer blocks, a final
// norm, and a head that shares the token embedding.
#include "model/gpt/gpt.h"

#include "model/dropout.h"
#include "model/head.h"
#include "model/past.h"
#include "model/transformer.h"
#include "model/types.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct gpt {
    model base;
    gpt_options o;
    int wte, wpe, ln_f_w, ln_f_b;
    transformer *body;
    head head;
    tensor ln_f_mean, ln_f_rstd;  // (rows here)
    tensor scratch;               // of the embedding's backward
} gpt;

enum { TOKENS, TARGETS };            // inputs
enum { EMBED = 0, DROP_EMBED = 0 };  // the first block, and its place of dropout

static int64_t T_of(const pass *p) { return p->in[TOKENS].size[1]; }

// The rows of the residual stream that are here.
static tensor stream_rows(const gpt *g, const tensor *x, const pass *p) { return view2(x, model_own_rows(&g->base, p->B * T_of(p)), g->o.embed); }

// --- embedding -------------------------------------------------------------------------------------------------------------

// Where rows of the table are elsewhere: the first one here.
static int64_t first_token(const gpt *g) { return g->base.slices.first * (g->head.Vp / g->base.slices.of); }

// Positions `at` .. at+n-1 of sample b, to x.
static err_t embed_positions(const gpt *g, const pass *p, const tensor *x, int64_t b, int64_t at, int64_t n) {
    int64_t first = past_first(p, b) + at;
    tensor to = view3(x, 1, n, g->o.embed), row = tensor_rows(&p->in[TOKENS], b, 1), all = view1(&row, T_of(p)), some = tensor_rows(&all, at, n);
    tensor tokens = view2(&some, 1, n), wpe = tensor_rows(&p->w[g->wpe], first, g->o.context - first);
    return p->ops->embedding_forward(
        &(embedding_forward_args){.x = &to, .tokens = &tokens, .wte = &p->w[g->wte], .wpe = &wpe, .part = p->merge, .first = first_token(g)}, p->s);
}

// Rows that begin or end within a sample, or samples that have positions of their own.
static err_t embed_runs(const gpt *g, const pass *p, const tensor *x, int64_t first) {
    int64_t T = T_of(p), rows = matrix_rows(x);
    for (int64_t k = 0, n; k < rows; k += n) {
        int64_t at = (first + k) % T;
        n = T - at < rows - k ? T - at : rows - k;
        tensor to = tensor_rows(x, k, n);
        TRY(embed_positions(g, p, &to, (first + k) / T, at, n));
    }
    return ERR_OK;
}

static err_t embed_rows(const gpt *g, const pass *p, const tensor *x) {
    int64_t N = p->B * T_of(p);
    tensor all = view3(x, p->B, T_of(p), g->o.embed);
    if (p->past || matrix_rows(x) < N) return embed_runs(g, p, x, model_first_row(&g->base, N));
    return p->ops->embedding_forward(
        &(embedding_forward_args){
            .x = &all, .tokens = &p->in[TOKENS], .wte = &p->w[g->wte], .wpe = &p->w[g->wpe], .part = p->merge, .first = first_token(g)},
        p->s);
}

static err_t embed_forward(model *m, int b, pass *p) {
    gpt *g = (gpt *)m;
    tensor own = stream_rows(g, &p->x[b], p), all = slices_scratch(m, &own, model_matrix_rows(m, p->B * T_of(p)), g->o.embed);
    TRY(embed_rows(g, p, &all));
    TRY(slices_whole(p, MERGE_PICK, &all));
    TRY(slices_take(m, p, &own, &all));
    if (p->past) return ERR_OK;
    return dropout_rows(m, p, EMBED, DROP_EMBED, &own, &own);
}

// Of a token slice, which begins with row `row`: all positions of some samples, or some positions of one. What has no gradient here is zero.
static err_t embed_gradients(gpt *g, const pass *p, const tensor *dx, int64_t row) {
    bool apart = p->dw[g->wte].data != p->dw[g->head.at.w].data;  // from the head's gradient, which this pass has made
    int64_t T = T_of(p), rows = matrix_rows(dx), n = rows < T ? rows : T, B = rows / n;
    bool part = n < T;
    tensor all = view1(&p->in[TOKENS], p->B * T), some = tensor_rows(&all, row, rows), tokens = view2(&some, B, n);
    tensor x = view3(dx, B, n, g->o.embed), dwpe = tensor_rows(&p->dw[g->wpe], row % T, n);
    if (part && p->fresh) TRY(stream_zero(p->s, p->dw[g->wpe].data, tensor_bytes(&p->dw[g->wpe])));
    return p->ops->embedding_backward(&(embedding_backward_args){.dwte = &p->dw[g->wte],
                                                                 .dwpe = part ? &dwpe : &p->dw[g->wpe],
                                                                 .scratch = &g->scratch,
                                                                 .dx = &x,
                                                                 .tokens = &tokens,
                                                                 .fresh_wte = p->fresh && apart,
                                                                 .fresh_wpe = p->fresh && !part,
                                                                 .part = p->merge,
                                                                 .first = first_token(g)},
                                      p->s);
}

static err_t embed_backward(model *m, int b, pass *p) {
    gpt *g = (gpt *)m;
    int64_t T = T_of(p), N = p->B * T, before = model_first_row(m, N);
    tensor own = stream_rows(g, &p->dx[b], p), all;
    TRY(dropout_rows(m, p, EMBED, DROP_EMBED, &own, &own));
    TRY(slices_gather(m, p, &all, &own, model_matrix_rows(m, N)));
    for (int k = 0; k < m->tokens.count; k++) {
        token_part mine = model_token_part(m, p, k, N);
        tensor dx = tensor_rows(&all, mine.first, mine.n);
        TRY(embed_gradients(g, &mine.p, &dx, before + mine.first));
    }
    return ERR_OK;
}

// --- layers ----------------------------------------------------------------------------------------------------------------

static err_t layer_forward(model *m, int b, pass *p) { return transformer_forward(((gpt *)m)->body, b - 1, p, &p->x[b], &p->x[b - 1]); }

static err_t layer_inputs(model *m, int b, pass *p) { return transformer_inputs(((gpt *)m)->body, b - 1, p, &p->dx[b - 1], &p->dx[b], &p->x[b - 1]); }

static err_t layer_weights(model *m, int b, pass *p) { return transformer_weights(((gpt *)m)->body, b - 1, p, &p->x[b - 1]); }

static err_t layer_backward(model *m, int b, pass *p) {
    TRY(layer_inputs(m, b, p));
    return layer_weights(m, b, p);
}

// --- final norm, head and loss ---------------------------------------------------------------------------------------------

// Rows of this pass: x, its norm, and what the norm's backward pass reads; the norm of all rows.
typedef struct final_view {
    tensor x, norm, mean, rstd, all;
} final_view;

static final_view view_final(const gpt *g, int b, const pass *p) {
    tensor x = stream_rows(g, &p->x[b - 1], p), norm = stream_rows(g, transformer_scratch(g->body), p);
    return (final_view){.x = x, .norm = norm, .mean = view1(&g->ln_f_mean, x.size[0]), .rstd = view1(&g->ln_f_rstd, x.size[0])};
}

static err_t final_norm(const gpt *g, pass *p, final_view *v) {
    if (v->x.size[0])
        TRY(p->ops->layer_norm_forward(
            &(layer_norm_forward_args){
                .y = &v->norm, .mean = &v->mean, .rstd = &v->rstd, .x = &v->x, .w = &p->w[g->ln_f_w], .b = &p->w[g->ln_f_b], .eps = NORM_EPS},
            p->s));
    return slices_gather(&g->base, p, &v->all, &v->norm, model_matrix_rows(&g->base, p->B * T_of(p)));
}

// Losses of all rows; with a backward pass the norm is then overwritten by its gradient.
static err_t losses_of(gpt *g, pass *p, final_view *v) { return head_stream_losses(&g->head, p, &v->all, &p->in[TARGETS]); }

// In training all of it waits for the backward pass: other micro-batches may come in between.
static err_t head_forward(model *m, int b, pass *p) {
    gpt *g = (gpt *)m;
    final_view v = view_final(g, b, p);
    if (p->dw) return ERR_OK;
    TRY(final_norm(g, p, &v));
    return p->predict ? head_stream_scores(&g->head, p, &v.all) : losses_of(g, p, &v);
}

static err_t head_backward(model *m, int b, pass *p) {
    gpt *g = (gpt *)m;
    final_view v = view_final(g, b, p);
    tensor dx = stream_rows(g, &p->dx[b - 1], p);
    TRY(final_norm(g, p, &v));
    TRY(losses_of(g, p, &v));
    TRY(slices_take(m, p, &v.norm, &v.all));
    return slices_layer_norm_backward(m, p, p->B * T_of(p),
                                      &(layer_norm_backward_args){.dx = &dx,
                                                                  .dw = &p->dw[g->ln_f_w],
                                                                  .db = &p->dw[g->ln_f_b],
                                                                  .dy = &v.norm,
                                                                  .x = &v.x,
                                                                  .w = &p->w[g->ln_f_w],
                                                                  .mean = &v.mean,
                                                                  .rstd = &v.rstd});
}

// --- tables ----------------------------------------------------------------------------------------------------------------

static block sequence_block(const gpt *g, const char *name, block_call forward, block_call backward) {
    return (block){.name = name, .dims = 2, .size = {g->o.context, g->o.embed, 1}, .forward = forward, .backward = backward};
}

static tensor_spec sequence(const gpt *g, const char *name) {
    tensor_spec x = {.type = INT32, .dims = 1, .size = {g->o.context, 1, 1}, .limit = g->o.vocab};
    snprintf(x.name, sizeof x.name, "%s", name);
    return x;
}

// Multiplications and additions of a sample's matrix products, forward and backward; of attention only the causal half.
static double flops_of(const gpt *g) {
    double T = (double)g->o.context, weights = (double)(model_elements(&g->base) - g->o.context * g->o.embed);
    return T * (6 * weights + 6 * (double)(g->o.layers * g->o.embed * g->o.context));
}

// The same block by block, of matrices alone.
static void set_block_flops(gpt *g) {
    double T = (double)g->o.context, C = (double)g->o.embed;
    for (int b = 1; b <= (int)g->o.layers; b++) g->base.block[b].flops = T * (6 * 12 * C * C + 6 * C * T);
    g->base.block[g->o.layers + 1].flops = T * 6 * (double)g->o.vocab * C;
}

static err_t declare(gpt *g) {
    const gpt_options *o = &g->o;
    model *m = &g->base;
    int last = (int)o->layers + 1;
    g->wte = model_add(m, EMBED, o->vocab, o->embed, 0.02, 0, "wte.weight");
    g->wpe = model_add(m, EMBED, o->context, o->embed, 0.02, 0, "wpe.weight");
    TRY(transformer_open(&g->body, m, (int)o->layers, (int)o->heads, o->context, o->embed));
    g->ln_f_w = model_add(m, last, o->embed, 0, 0, 1, "ln_f.weight");
    g->ln_f_b = model_add(m, last, o->embed, 0, 0, 0, "ln_f.bias");
    g->head = (head){.at = {.w = model_add(m, last, o->vocab, o->embed, 0, 0, "lm_head.weight"), .b = -1},
                     .classes = o->vocab,
                     .Vp = head_rows_in_memory(o->vocab, m->slices.of)};
    m->param[g->head.at.w].tied = g->wte;
    m->param[g->wte].rows_in_memory = m->param[g->head.at.w].rows_in_memory = g->head.Vp;
    model_divide(m, g->wte, 0, 0, NULL);
    linear_divide(&g->head.at, m, LINEAR_OUTPUTS, 0, NULL);

    m->block[EMBED] = sequence_block(g, "embedding", embed_forward, embed_backward);
    for (int b = 1; b < last; b++) {
        m->block[b] = sequence_block(g, "layer", layer_forward, layer_backward);
        m->block[b].inputs = layer_inputs, m->block[b].weights = layer_weights, m->block[b].recomputes = true;
    }
    m->block[last] = (block){.name = "head", .forward = head_forward, .backward = head_backward};
    m->inputs = 2;
    m->input[TOKENS] = sequence(g, "tokens"), m->input[TARGETS] = sequence(g, "targets");
    m->losses = m->units = m->context = o->context;
    m->unit = "token", m->short_unit = "tok";
    m->vocab = o->vocab;
    m->adds_once = o->head_chunks <= m->tokens.of;
    m->stream = true;
    m->dropout = o->dropout;
    m->flops = flops_of(g);
    set_block_flops(g);
    return ERR_OK;
}

static void gpt_close(model *m) {
    transformer_close(((gpt *)m)->body);
    model_free(m);
}

static err_t gpt_open(model **out, const void *options) {
    const gpt_options *o = options;
    *out = NULL;
    gpt *g = (gpt *)model_new(&model_gpt, sizeof *g, 5 + 12 * (int)o->layers, 2 + (int)o->layers);
    if (!g) return err_set(ERR_INTERNAL, "no memory for a model of %" PRId64 " layers", o->layers);
    g->o = *o;
    if (o->slices > 1) g->base.slices = (model_slices){(int)o->slices, 0, (int)o->slices, false};
    if (o->tokens > 1) g->base.tokens = (model_tokens){(int)o->tokens, 0, (int)o->tokens};
    err_t rc = declare(g);
    if (rc != ERR_OK) gpt_close(&g->base);
    else *out = &g->base;
    return rc;
}

static err_t gpt_plan(model *m, arena *a, const model_plan *o) {
    gpt *g = (gpt *)m;
    TRY(model_plan_slices(m, a, o, o->B * g->o.context, g->o.embed));
    TRY(transformer_plan(g->body, a, o));
    if (o->slots[m->blocks - 1]) {
        TRY(arena_1d(a, &g->ln_f_mean, FP32, model_most_rows(m, o->B * g->o.context)));
        TRY(arena_1d(a, &g->ln_f_rstd, FP32, model_most_rows(m, o->B * g->o.context)));
        TRY(head_plan(&g->head, a, o, o->B * g->o.context, g->o.head_chunks));
    }
    return o->forward_only || !o->slots[EMBED]
               ? ERR_OK
               : arena_1d(a, &g->scratch, INT32, o->B * g->o.context + (m->slices.of > 1 ? g->head.Vp : g->o.vocab) + 1);
}

static void gpt_describe(const model *m, char *dst, size_t room) {
    const gpt_options *o = &((const gpt *)m)->o;
    snprintf(dst, room, "%" PRId64 " layers %" PRId64 " channels", o->layers, o->embed);
}

// --- settings --------------------------------------------------------------------------------------------------------------

// clang-format off
#define INT(key, def, min, max, also, comment) {"model", #key, KEY_INT, CLASS_BITS, offsetof(gpt_options, key), def, min, max, NULL, also, comment}
#define REAL(key, def, min, max, also, comment) {"model", #key, KEY_REAL, CLASS_BITS, offsetof(gpt_options, key), def, min, max, NULL, also, comment}
// clang-format on

static const setting keys[] = {
    INT(layers, "4", 1, 1024, "n_layer num_layers depth", "number of blocks"),
    INT(heads, "4", 1, 1024, "n_head num_heads", "attention heads; must divide embed"),
    INT(embed, "128", 1, 1048576, "n_embd channels hidden_size dim d_model", "channels"),
    INT(vocab, "256", 2, 16777216, "vocab_size", "number of different tokens; 256 for bytes"),
    INT(context, "128", 1, 1048576, "block_size seq_len sequence_length", "tokens that the model sees at once"),
    REAL(dropout, "0", 0, 0.95, "", "probability that an activation is dropped while training"),
    INT(head_chunks, "0", 0, 9007199254740991.0, "loss_chunks",
        "parts of a micro-batch whose logits are in memory in turn; 0 = at most 20,971,520 logits each, on a GPU at least 8,192 rows"),
};

// head_chunks: from the INI and the kind of device. Builds without this key used one chunk.
static err_t gpt_resolve(void *options, model_rule *r) {
    gpt_options *o = options;
    if (o->embed % o->heads) {
        rule_break(r, "heads", "embed", NULL, NULL);
        return err_set(ERR_CONFIG, "embed = %" PRId64 " is not a multiple of heads = %" PRId64, o->embed, o->heads);
    }
    TRY(model_check_rows(r, o->context));
    if ((r->rows || r->tokens > 1) && o->dropout > 0 && o->embed % 4) {
        rule_break(r, "embed", "dropout", r->rows ? "parallel.sequence" : "parallel.token_slices", NULL);
        return err_set(ERR_CONFIG, "embed = %" PRId64 " is not a multiple of 4, as dropout wants where [parallel] %s", o->embed,
                       r->rows ? "sequence = yes" : "token_slices are more than 1");
    }
    o->slices = r->slices, o->tokens = r->tokens;
    r->divided[0] = "heads", r->value[0] = o->heads;
    r->blocks = (int)o->layers + 2;
    rule_choose(r, "head_chunks", &o->head_chunks, head_chunks(r->micro * o->context, o->vocab, r->gpu));
    return ERR_OK;
}

static const model_alias families[] = {{"gpt2", ""}, {0}};

const model_type model_gpt = {.name = "gpt",
                              .alias = families,
                              .key = keys,
                              .keys = sizeof keys / sizeof *keys,
                              .resolve = gpt_resolve,
                              .open = gpt_open,
                              .plan = gpt_plan,
                              .prefix = "transformer.",
                              .options = sizeof(gpt_options),
                              .parts = gpt_parts,
                              .is_foreign = gpt_is_foreign,
                              .from_foreign = gpt_from_foreign,
                              .to_foreign = gpt_to_foreign,
                              .describe = gpt_describe,
                              .close = gpt_close};
