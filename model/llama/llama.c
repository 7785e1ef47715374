// model/llama/llama.c: Llama (Touvron et al. 2023) and the families that vary it: Llama 3, Qwen 2 and 3, Mistral. A token embedding, L layers
// (layers.c), a final RMS norm, and a head that may share the embedding.
#include "model/llama/llama.h"

#include "model/head.h"
#include "model/llama/layers.h"
#include "model/types.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct llama {
    model base;
    llama_options o;
    int embed, norm;
    llama_layers *body;
    head head;
    tensor norm_rstd;  // (rows here)
    tensor sort;       // of the embedding's backward
} llama;

enum { TOKENS, TARGETS };  // inputs
enum { EMBED = 0 };        // the first block

static int64_t T_of(const pass *p) { return p->in[TOKENS].size[1]; }

// The rows of the residual stream that are here.
static tensor stream_rows(const llama *g, const tensor *x, const pass *p) { return view2(x, model_own_rows(&g->base, p->B * T_of(p)), g->o.embed); }

// Where rows of the table are elsewhere: the first one here.
static int64_t first_token(const llama *g) { return g->base.slices.first * (g->head.Vp / g->base.slices.of); }

// --- embedding and layers --------------------------------------------------------------------------------------------------

// Rows may begin or end within a sample: to this table a token is a token, so they are as one text.
static err_t embed_forward(model *m, int b, pass *p) {
    llama *g = (llama *)m;
    int64_t N = p->B * T_of(p), here = model_matrix_rows(m, N);
    tensor own = stream_rows(g, &p->x[b], p), all = slices_scratch(m, &own, here, g->o.embed), x = view3(&all, 1, here, g->o.embed);
    tensor tokens = view1(&p->in[TOKENS], N), some = tensor_rows(&tokens, model_first_row(m, N), here), row = view2(&some, 1, here);
    if (here)
        TRY(p->ops->embedding_forward(
            &(embedding_forward_args){.x = &x, .tokens = &row, .wte = &p->w[g->embed], .part = p->merge, .first = first_token(g)}, p->s));
    TRY(slices_whole(p, MERGE_PICK, &all));
    return slices_take(m, p, &own, &all);
}

static err_t embed_gradient(llama *g, const pass *p, const tensor *dx, const tensor *tokens) {
    bool apart = p->dw[g->embed].data != p->dw[g->head.at.w].data;  // from the head's gradient, which this pass has made
    int64_t n = matrix_rows(dx);
    tensor rows = view3(dx, 1, n, g->o.embed), row = view2(tokens, 1, n);
    return p->ops->embedding_backward(&(embedding_backward_args){.dwte = &p->dw[g->embed],
                                                                 .scratch = &g->sort,
                                                                 .dx = &rows,
                                                                 .tokens = &row,
                                                                 .fresh_wte = p->fresh && apart,
                                                                 .part = p->merge,
                                                                 .first = first_token(g)},
                                      p->s);
}

static err_t embed_backward(model *m, int b, pass *p) {
    llama *g = (llama *)m;
    int64_t N = p->B * T_of(p), before = model_first_row(m, N);
    tensor own = stream_rows(g, &p->dx[b], p), all, tokens = view1(&p->in[TOKENS], N);
    TRY(slices_gather(m, p, &all, &own, model_matrix_rows(m, N)));
    for (int k = 0; k < m->tokens.count; k++) {
        token_part mine = model_token_part(m, p, k, N);
        tensor dx = tensor_rows(&all, mine.first, mine.n), some = tensor_rows(&tokens, before + mine.first, mine.n);
        TRY(embed_gradient(g, &mine.p, &dx, &some));
    }
    return ERR_OK;
}

static err_t layer_forward(model *m, int b, pass *p) { return llama_layer_forward(((llama *)m)->body, b - 1, p, &p->x[b], &p->x[b - 1]); }

static err_t layer_inputs(model *m, int b, pass *p) {
    return llama_layer_inputs(((llama *)m)->body, b - 1, p, &p->dx[b - 1], &p->dx[b], &p->x[b - 1]);
}

static err_t layer_weights(model *m, int b, pass *p) { return llama_layer_weights(((llama *)m)->body, b - 1, p, &p->x[b - 1]); }

static err_t layer_backward(model *m, int b, pass *p) {
    TRY(layer_inputs(m, b, p));
    return layer_weights(m, b, p);
}

// --- final norm, head and loss ---------------------------------------------------------------------------------------------

// Rows of this pass: x, its norm, and what the norm's backward pass reads; the norm of all rows.
typedef struct final_view {
    tensor x, norm, rstd, all;
} final_view;

static final_view view_final(const llama *g, int b, const pass *p) {
    tensor x = stream_rows(g, &p->x[b - 1], p), norm = stream_rows(g, llama_layers_scratch(g->body), p);
    return (final_view){.x = x, .norm = norm, .rstd = view1(&g->norm_rstd, x.size[0])};
}

static err_t final_norm(const llama *g, pass *p, final_view *v) {
    if (v->x.size[0])
        TRY(p->ops->rms_norm_forward(
            &(rms_norm_forward_args){.y = &v->norm, .rstd = &v->rstd, .x = &v->x, .w = &p->w[g->norm], .eps = (float)g->o.norm_eps}, p->s));
    return slices_gather(&g->base, p, &v->all, &v->norm, model_matrix_rows(&g->base, p->B * T_of(p)));
}

// Losses of all rows; with a backward pass the norm is then overwritten by its gradient.
static err_t losses_of(llama *g, pass *p, final_view *v) { return head_stream_losses(&g->head, p, &v->all, &p->in[TARGETS]); }

// In training all of it waits for the backward pass: other micro-batches may come in between.
static err_t head_forward(model *m, int b, pass *p) {
    llama *g = (llama *)m;
    final_view v = view_final(g, b, p);
    if (p->dw) return ERR_OK;
    TRY(final_norm(g, p, &v));
    return p->predict ? head_stream_scores(&g->head, p, &v.all) : losses_of(g, p, &v);
}

static err_t head_backward(model *m, int b, pass *p) {
    llama *g = (llama *)m;
    final_view v = view_final(g, b, p);
    tensor dx = stream_rows(g, &p->dx[b - 1], p);
    TRY(final_norm(g, p, &v));
    TRY(losses_of(g, p, &v));
    TRY(slices_take(m, p, &v.norm, &v.all));
    return slices_rms_norm_backward(
        m, p, p->B * T_of(p),
        &(rms_norm_backward_args){.dx = &dx, .dw = &p->dw[g->norm], .dy = &v.norm, .x = &v.x, .w = &p->w[g->norm], .rstd = &v.rstd});
}

// --- tables ----------------------------------------------------------------------------------------------------------------

static block sequence_block(const llama *g, const char *name, block_call forward, block_call backward) {
    return (block){.name = name, .dims = 2, .size = {g->o.context, g->o.embed, 1}, .forward = forward, .backward = backward};
}

static tensor_spec sequence(const llama *g, const char *name) {
    tensor_spec x = {.type = INT32, .dims = 1, .size = {g->o.context, 1, 1}, .limit = g->o.vocab};
    snprintf(x.name, sizeof x.name, "%s", name);
    return x;
}

// Multiplications and additions of a sample's matrix products, forward and backward; of attention only what is seen.
static double flops_of(const llama *g) {
    const llama_options *o = &g->o;
    double T = (double)o->context, W = o->window ? (double)o->window : T, weights = (double)model_elements(&g->base);
    double pairs = W >= T ? T * T / 2 : W * (T - W / 2);     // of positions and those that they see
    if (!o->tied) weights -= (double)(o->vocab * o->embed);  // an embedding is not multiplied
    return 6 * T * weights + 12 * pairs * (double)(o->layers * o->heads * o->head_dim);
}

// The same block by block, of matrices alone.
static void set_block_flops(llama *g) {
    const llama_options *o = &g->o;
    double head = 6 * (double)(o->context * o->vocab * o->embed), layers = g->base.flops - head;
    for (int b = 1; b <= (int)o->layers; b++) g->base.block[b].flops = layers / (double)o->layers;
    g->base.block[o->layers + 1].flops = head;
}

static err_t declare(llama *g) {
    const llama_options *o = &g->o;
    model *m = &g->base;
    int last = (int)o->layers + 1;
    g->embed = model_add(m, EMBED, o->vocab, o->embed, 0.02, 0, "embed_tokens.weight");
    TRY(llama_layers_open(&g->body, m, o));
    g->norm = model_add(m, last, o->embed, 0, 0, 1, "norm.weight");
    int w = model_add(m, last, o->vocab, o->embed, o->tied ? 0 : 0.02, 0, "lm_head.weight");
    g->head = (head){.at = {.w = w, .b = -1}, .classes = o->vocab, .Vp = head_rows_in_memory(o->vocab, m->slices.of)};
    if (o->tied) m->param[w].tied = g->embed;
    m->param[g->embed].rows_in_memory = m->param[w].rows_in_memory = g->head.Vp;
    model_divide(m, g->embed, 0, 0, NULL);
    linear_divide(&g->head.at, m, LINEAR_OUTPUTS, 0, NULL);

    m->block[EMBED] = sequence_block(g, "embedding", embed_forward, embed_backward);
    for (int b = 1; b < last; b++) {
        m->block[b] = sequence_block(g, "layer", layer_forward, layer_backward);
        m->block[b].inputs = layer_inputs, m->block[b].weights = layer_weights, m->block[b].recomputes = true;
    }
    m->block[last] = (block){.name = "head", .forward = head_forward, .backward = head_backward};
    m->inputs = 2;
    m->input[TOKENS] = sequence(g, "tokens"), m->input[TARGETS] = sequence(g, "targets");
    m->stream = true;
    m->losses = m->units = m->context = o->context;
    m->unit = "token", m->short_unit = "tok";
    m->vocab = o->vocab;
    m->adds_once = o->head_chunks <= m->tokens.of;
    m->flops = flops_of(g);
    set_block_flops(g);
    return ERR_OK;
}

static void llama_close(model *m) {
    llama_layers_close(((llama *)m)->body);
    model_free(m);
}

static err_t llama_open(model **out, const void *options) {
    const llama_options *o = options;
    *out = NULL;
    llama *g = (llama *)model_new(&model_llama, sizeof *g, 3 + LLAMA_LAYER_PARAMS * (int)o->layers, 2 + (int)o->layers);
    if (!g) return err_set(ERR_INTERNAL, "no memory for a model of %" PRId64 " layers", o->layers);
    g->o = *o;
    if (o->slices > 1) g->base.slices = (model_slices){(int)o->slices, 0, (int)o->slices, false};
    if (o->tokens > 1) g->base.tokens = (model_tokens){(int)o->tokens, 0, (int)o->tokens};
    err_t rc = declare(g);
    if (rc != ERR_OK) llama_close(&g->base);
    else *out = &g->base;
    return rc;
}

static err_t llama_plan(model *m, arena *a, const model_plan *o) {
    llama *g = (llama *)m;
    TRY(model_plan_slices(m, a, o, o->B * g->o.context, g->o.embed));
    TRY(llama_layers_plan(g->body, a, o));
    if (o->slots[m->blocks - 1]) {
        TRY(arena_1d(a, &g->norm_rstd, FP32, model_most_rows(m, o->B * g->o.context)));
        TRY(head_plan(&g->head, a, o, o->B * g->o.context, g->o.head_chunks));
    }
    return o->forward_only || !o->slots[EMBED] ? ERR_OK
                                               : arena_1d(a, &g->sort, INT32, o->B * g->o.context + (m->slices.of > 1 ? g->head.Vp : g->o.vocab) + 1);
}

static err_t llama_fill(model *m, stream *s) { return llama_layers_fill(((llama *)m)->body, s); }

static void llama_describe(const model *m, char *dst, size_t room) {
    const llama_options *o = &((const llama *)m)->o;
    snprintf(dst, room, "%" PRId64 " layers %" PRId64 " channels %" PRId64 "/%" PRId64 " heads", o->layers, o->embed, o->heads, o->kv_heads);
}

// --- settings --------------------------------------------------------------------------------------------------------------

// clang-format off
#define ROW(key, type, def, min, max, words, also, comment) {"model", #key, type, CLASS_BITS, offsetof(llama_options, key), def, min, max, words, also, comment}
#define INT(key, def, min, max, also, comment) ROW(key, KEY_INT, def, min, max, NULL, also, comment)
#define REAL(key, def, min, max, also, comment) ROW(key, KEY_REAL, def, min, max, NULL, also, comment)

static const setting keys[] = {
    INT(layers, "4", 1, 1024, "n_layer num_layers num_hidden_layers depth", "number of blocks"),
    INT(heads, "4", 1, 1024, "n_head num_heads num_attention_heads", "attention heads"),
    INT(kv_heads, "0", 0, 1024, "num_key_value_heads n_kv_heads", "heads of keys and values, which query heads share; must divide heads; 0 = heads"),
    INT(head_dim, "0", 0, 1024, "head_size", "elements of a head, an even number; 0 = embed / heads"),
    INT(embed, "128", 1, 1048576, "n_embd channels hidden_size dim d_model", "channels"),
    INT(hidden, "0", 0, 16777216, "intermediate_size ffn_dim", "channels inside the MLP; 0 = 8/3 embed, up to a multiple of 64"),
    INT(vocab, "256", 2, 16777216, "vocab_size", "number of different tokens; 256 for bytes"),
    INT(context, "128", 1, ROPE_MOST, "block_size seq_len sequence_length max_position_embeddings", "tokens that the model sees at once"),
    ROW(tied, KEY_BOOL, "no", 0, 0, "no yes", "tie_word_embeddings", "the head's weight is the embedding"),
    ROW(bias, KEY_WORD, "no", 0, 0, "no qkv all", "attention_bias qkv_bias", "biases of attention: none; of queries, keys and values; of the projection too"),
    ROW(qk_norm, KEY_BOOL, "no", 0, 0, "no yes", "use_qk_norm", "RMS norm of each query and key before it is turned"),
    INT(window, "0", 0, ROPE_MOST, "sliding_window", "positions that a position sees, itself included; 0 = all before it"),
    REAL(norm_eps, "1e-5", 0, 1, "rms_norm_eps", "added to the mean square in RMS norms"),
    REAL(rope_theta, "10000", 1, 1e12, "rope_base", "base of the rotary embedding's wavelengths"),
    ROW(rope_scaling, KEY_WORD, "no", 0, 0, "no llama3", "rope_type", "how long wavelengths are stretched: not, or as in Llama 3.1"),
    REAL(rope_factor, "8", 1, 1e6, "", "llama3: how many times"),
    REAL(rope_low, "1", 1e-6, 1e6, "low_freq_factor", "llama3: wavelengths above rope_original / rope_low are stretched in full"),
    REAL(rope_high, "4", 1e-6, 1e6, "high_freq_factor", "llama3: those below rope_original / rope_high stay; must be above rope_low"),
    INT(rope_original, "8192", 1, ROPE_MOST, "original_max_position_embeddings", "llama3: the context before it was stretched"),
    INT(head_chunks, "0", 0, 9007199254740991.0, "loss_chunks",
        "parts of a micro-batch whose logits are in memory in turn; 0 = at most 20,971,520 logits each, on a GPU at least 8,192 rows"),
};
// clang-format on

static err_t check_heads(llama_options *o, model_rule *r) {
    rule_choose(r, "kv_heads", &o->kv_heads, o->heads);
    if (o->heads % o->kv_heads) {
        rule_break(r, "kv_heads", "heads", NULL, NULL);
        return err_set(ERR_CONFIG, "heads = %" PRId64 " is not a multiple of kv_heads = %" PRId64, o->heads, o->kv_heads);
    }
    bool open = !o->head_dim;
    if (open && o->embed % o->heads) {
        rule_break(r, "heads", "embed", "head_dim", NULL);
        return err_set(ERR_CONFIG, "embed = %" PRId64 " is not a multiple of heads = %" PRId64 ", and head_dim is left open", o->embed, o->heads);
    }
    rule_choose(r, "head_dim", &o->head_dim, o->embed / o->heads);
    if (o->head_dim % 2 == 0) return ERR_OK;
    rule_break(r, "head_dim", open ? "embed" : NULL, open ? "heads" : NULL, NULL);
    return err_set(ERR_CONFIG, "heads of %" PRId64 " elements can't be turned in pairs: expected an even number", o->head_dim);
}

static err_t llama_resolve(void *options, model_rule *r) {
    llama_options *o = options;
    TRY(check_heads(o, r));
    if (o->rope_scaling == ROPE_LLAMA3 && !(o->rope_high > o->rope_low)) {
        rule_break(r, "rope_high", "rope_low", NULL, NULL);
        return err_set(ERR_CONFIG, "rope_high = %g must be above rope_low = %g", o->rope_high, o->rope_low);
    }
    rule_choose(r, "hidden", &o->hidden, (o->embed * 8 / 3 + 63) / 64 * 64);
    TRY(model_check_rows(r, o->context));
    o->slices = r->slices, o->tokens = r->tokens;
    r->divided[0] = "heads", r->value[0] = o->heads;
    r->divided[1] = "kv_heads", r->value[1] = o->kv_heads;
    r->divided[2] = "hidden", r->value[2] = o->hidden;
    r->blocks = (int)o->layers + 2;
    rule_choose(r, "head_chunks", &o->head_chunks, head_chunks(r->micro * o->context, o->vocab, r->gpu));
    return ERR_OK;
}

static int llama_parts(const model *m, int param, weight_part *part) { return llama_parts_of(&((const llama *)m)->o, &m->param[param], part); }

// What all published models of a family have, where it is not the default here.
static const model_alias families[] = {
    {"llama2", ""},
    {"llama3", "rope_theta=500000"},
    {"llama3.1", "rope_theta=500000 rope_scaling=llama3"},
    {"mistral", "window=4096"},
    {"qwen2", "bias=qkv rope_theta=1000000 norm_eps=1e-06"},
    {"qwen2.5", "bias=qkv rope_theta=1000000 norm_eps=1e-06"},
    {"qwen3", "qk_norm=yes head_dim=128 rope_theta=1000000 norm_eps=1e-06"},
    {0},
};

const model_type model_llama = {.name = "llama",
                                .alias = families,
                                .key = keys,
                                .keys = sizeof keys / sizeof *keys,
                                .resolve = llama_resolve,
                                .open = llama_open,
                                .plan = llama_plan,
                                .fill = llama_fill,
                                .prefix = "model.",
                                .options = sizeof(llama_options),
                                .parts = llama_parts,
                                .is_foreign = llama_is_foreign,
                                .from_foreign = llama_from_foreign,
                                .to_foreign = llama_to_foreign,
                                .describe = llama_describe,
                                .close = llama_close};
