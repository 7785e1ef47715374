// model/gpt/gpt.c: GPT-2 (Radford et al. 2019): token and position embeddings, L pre-norm transformer blocks, a final
// norm, and a head that shares the token embedding.
#include "model/gpt/gpt.h"

#include "model/op/op.h"
#include "model/types.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct gpt {
    model base;
    gpt_options o;
    lowered net;
} gpt;

enum { TOKENS, TARGETS };                               // inputs
enum { DROP_EMBED, DROP_ATTENTION, DROP_MID, DROP_OUT };  // places of dropout in a block

// --- the page --------------------------------------------------------------------------------------------------------------

// Initial values are those of GPT-2: normal(0, 0.02), the projections back into the residual stream scaled by 1/sqrt(2L).
static const double STD = 0.02;
static double residual_std(const gpt_options *o) { return STD / __builtin_sqrt(2.0 * (double)o->layers); }

static value attention(graph *g, const gpt_options *o, value x) {
    int64_t C = o->embed;
    value qkv = project(g, x, "attn.c_attn",
                        (projection){.outputs = 3 * C, .letters = "3C", .divide = LINEAR_OUTPUTS, .bias = true, .std = STD, .matrices = 3, .rows = {C, C, C}});
    value a = attend(g, qkv, (attention_options){.heads = o->heads, .head_size = C / o->heads, .letters = "C", .site = DROP_ATTENTION});
    return project(g, a, "attn.c_proj", (projection){.outputs = C, .letters = "C", .divide = LINEAR_INPUTS, .bias = true, .std = residual_std(o)});
}

static value mlp(graph *g, const gpt_options *o, value x) {
    value h = project(g, x, "mlp.c_fc", (projection){.outputs = 4 * o->embed, .letters = "4C", .divide = LINEAR_OUTPUTS, .bias = true, .std = STD});
    return project(g, gelu(g, h), "mlp.c_proj",
                   (projection){.outputs = o->embed, .letters = "C", .divide = LINEAR_INPUTS, .bias = true, .std = residual_std(o)});
}

static void write_page(graph *g, const gpt_options *o) {
    begin_block(g, "embedding", "%s", "");
    leave(g, dropout(g, embedding(g, "wte.weight", "wpe.weight", o->vocab, o->context, o->embed, STD), DROP_EMBED));
    for (int l = 0; l < o->layers; l++) {
        value x = begin_block(g, "layer", "h.%d.", l);
        x = add(g, x, dropout(g, attention(g, o, layer_norm(g, x, "ln_1")), DROP_MID));
        x = add(g, x, dropout(g, mlp(g, o, layer_norm(g, x, "ln_2")), DROP_OUT));
        leave(g, x);
    }
    value x = begin_block(g, "head", "%s", "");
    next_token_loss(g, layer_norm(g, x, "ln_f"), "lm_head.weight", o->vocab, 0, o->head_chunks, 0);
    leave(g, 0);
}

// --- tables ----------------------------------------------------------------------------------------------------------------

static err_t run_forward(model *m, int b, pass *p) { return lowered_run(&((gpt *)m)->net, b, p, PASS_FORWARD); }
static err_t run_backward(model *m, int b, pass *p) { return lowered_run(&((gpt *)m)->net, b, p, PASS_BACKWARD); }
static err_t run_inputs(model *m, int b, pass *p) { return lowered_run(&((gpt *)m)->net, b, p, PASS_INPUTS); }
static err_t run_weights(model *m, int b, pass *p) { return lowered_run(&((gpt *)m)->net, b, p, PASS_WEIGHTS); }

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
    for (int b = 0; b <= last; b++) {
        bool layer = b > 0 && b < last;
        m->block[b] = (block){.forward = run_forward, .backward = run_backward, .recomputes = layer};
        if (b < last) m->block[b].dims = 2, m->block[b].size[0] = o->context, m->block[b].size[1] = o->embed, m->block[b].size[2] = 1;
        if (layer) m->block[b].inputs = run_inputs, m->block[b].weights = run_weights;
    }
    TRY(lowered_open(&g->net, m));
    g->net.g.dropout = m->dropout = o->dropout;
    write_page(&g->net.g, o);
    TRY(graph_end(&g->net.g));
    m->inputs = 2;
    m->input[TOKENS] = sequence(g, "tokens"), m->input[TARGETS] = sequence(g, "targets");
    m->losses = m->units = m->context = o->context;
    m->unit = "token", m->short_unit = "tok";
    m->vocab = o->vocab;
    m->adds_once = o->head_chunks <= m->tokens.of;
    m->stream = true;
    m->flops = flops_of(g);
    set_block_flops(g);
    return ERR_OK;
}

static void gpt_close(model *m) {
    lowered_close(&((gpt *)m)->net);
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
    return lowered_plan(&g->net, a, o);
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
