// model/gpt/gpt.c: GPT-2 (Radford et al. 2019): token and position embeddings, L pre-norm transformer blocks, a final
// norm, and a head that shares the token embedding.
#include "model/gpt/gpt.h"

#include "model/keys.h"
#include "model/op/op.h"

#include <inttypes.h>
#include <stdio.h>

enum { DROP_EMBED, DROP_ATTENTION, DROP_MID, DROP_OUT };  // sites of dropout in a block

// --- the page --------------------------------------------------------------------------------------------------------

// Initial values are those of GPT-2: normal(0, 0.02), the projections back into the residual stream scaled by
// 1/sqrt(2L).
static const double STD = 0.02;
static double residual_std(const gpt_options *o) { return STD / __builtin_sqrt(2.0 * (double)o->layers); }

static value attention(graph *g, const gpt_options *o, value x) {
    int64_t C = o->embed;
    value qkv = project(g, x, "attn.c_attn",
                        (projection){.outputs = 3 * C,
                                     .letters = "3C",
                                     .divide = LINEAR_OUTPUTS,
                                     .bias = true,
                                     .std = STD,
                                     .matrices = 3,
                                     .share = {C, C, C}});
    value a = attend(
        g, qkv,
        (attention_options){.heads = o->heads, .head_size = C / o->heads, .letters = "C", .site = DROP_ATTENTION});
    return project(
        g, a, "attn.c_proj",
        (projection){.outputs = C, .letters = "C", .divide = LINEAR_INPUTS, .bias = true, .std = residual_std(o)});
}

static value mlp(graph *g, const gpt_options *o, value x) {
    value h = project(
        g, x, "mlp.c_fc",
        (projection){.outputs = 4 * o->embed, .letters = "4C", .divide = LINEAR_OUTPUTS, .bias = true, .std = STD});
    return project(
        g, gelu(g, h), "mlp.c_proj",
        (projection){
            .outputs = o->embed, .letters = "C", .divide = LINEAR_INPUTS, .bias = true, .std = residual_std(o)});
}

static void gpt_page(graph *g, const void *options) {
    const gpt_options *o = options;
    dropout_rate(g, o->dropout);
    begin_block(g, "embedding");
    leave(g, dropout(g, embedding(g, "wte.weight", "wpe.weight", o->vocab, o->context, o->embed, STD, 1), DROP_EMBED));
    for (int l = 0; l < o->layers; l++) {
        value x = begin_layer(g, "h.%d.", l);
        x = add(g, x, dropout(g, attention(g, o, layer_norm(g, x, "ln_1")), DROP_MID));
        x = add(g, x, dropout(g, mlp(g, o, layer_norm(g, x, "ln_2")), DROP_OUT));
        leave(g, x);
    }
    value x = begin_block(g, "head");
    next_token_loss(g, layer_norm(g, x, "ln_f"), "lm_head.weight", o->vocab, 0, o->head_chunks, 0);
    leave(g, 0);
}

static void gpt_describe(const void *options, char *dst, size_t room) {
    const gpt_options *o = options;
    snprintf(dst, room, "%" PRId64 " layers %" PRId64 " channels", o->layers, o->embed);
}

// --- settings --------------------------------------------------------------------------------------------------------

// clang-format off
#define OPTIONS gpt_options

static const setting keys[] = {
    INT(layers, SHAPE, "4", 1, 1024, "n_layer num_layers depth", "number of blocks"),
    INT(heads, MEANING, "4", 1, 1024, "n_head num_heads", "attention heads; must divide embed"),
    INT(embed, SHAPE, "128", 1, 1048576, "n_embd channels hidden_size dim d_model", "channels"),
    INT(vocab, SHAPE, "256", 2, 16777216, "vocab_size", "number of different tokens; 256 for bytes"),
    INT(context, SHAPE, "128", 1, 1048576, "block_size seq_len sequence_length", "tokens that the model sees at once"),
    REAL(dropout, MAY, "0", 0, 0.95, "", "probability that an activation is dropped while training"),
    HEAD_CHUNKS,
};
// clang-format on

// head_chunks: from the INI and the kind of device. Builds without this key used one chunk.
static err_t gpt_resolve(void *options, model_rule *r) {
    gpt_options *o = options;
    if (o->embed % o->heads)
        return rule_break(r, KEYS("heads", "embed"), "embed = %" PRId64 " is not a multiple of heads = %" PRId64,
                          o->embed, o->heads);
    TRY(rule_divide_texts(r, o->context, o->dropout > 0 ? o->embed : 0, &o->by));
    r->divided[0] = "heads", r->value[0] = o->heads;
    r->blocks = (int)o->layers + 2;
    r->tied = true;
    rule_choose(r, "head_chunks", &o->head_chunks, head_chunks(r->micro * o->context, o->vocab, r->gpu));
    return ERR_OK;
}

static const model_alias families[] = {{"gpt2", ""}, {0}};

const model_type model_gpt = {.name = "gpt",
                              .alias = families,
                              .key = keys,
                              .keys = sizeof keys / sizeof *keys,
                              .resolve = gpt_resolve,
                              .page = gpt_page,
                              .prefix = "transformer.",
                              .options = sizeof(gpt_options),
                              .parts = gpt_parts,
                              .foreign = "gpt2",
                              .from_foreign = gpt_from_foreign,
                              .to_foreign = gpt_to_foreign,
                              .describe = gpt_describe};
