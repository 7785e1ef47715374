// model/gemma/gemma.c: Gemma 3 (Gemma Team 2025), of text. Norms, whose gains are 1 + w, before and after attention and
// MLP. Each pattern-th layer sees all positions, the others a window of them, by angles of their own. The embedding is
// the head, too, and is scaled by sqrt(C).
#include "model/gemma/gemma.h"

#include "model/op/op.h"

// --- the page --------------------------------------------------------------------------------------------------------

static const double STD = 0.02;

static value norm(graph *g, const gemma_options *o, value x, const char *name) {
    return rms_norm(g, x, name, o->norm_eps, 1);
}

static value attention(graph *g, const gemma_options *o, bool sees_all, value x) {
    int64_t D = o->head_dim, H = o->heads, KV = o->kv_heads;
    rope near = {.theta = o->local_theta},
         far = {.kind = ROPE_LINEAR, .theta = o->rope_theta, .factor = o->rope_factor};
    projection in = {.outputs = (H + 2 * KV) * D,
                     .letters = "(H+2KV)D",
                     .divide = LINEAR_OUTPUTS,
                     .std = STD,
                     .matrices = 3,
                     .share = {H * D, KV * D, KV * D}};
    value qkv = project(g, x, "self_attn.qkv_proj", in);
    qkv = head_norm(g, qkv, "self_attn.q_norm", D, 0, H, o->norm_eps, 1);
    qkv = head_norm(g, qkv, "self_attn.k_norm", D, H, KV, o->norm_eps, 1);
    value a = attend(g, rotary(g, qkv, H + KV, D, sees_all ? &far : &near),
                     (attention_options){.heads = H,
                                         .kv_heads = KV,
                                         .head_size = D,
                                         .window = sees_all ? 0 : o->window,
                                         .letters = "HD",
                                         .site = -1});
    return project(g, a, "self_attn.o_proj",
                   (projection){.outputs = o->embed, .letters = "C", .divide = LINEAR_INPUTS, .std = STD});
}

static value mlp(graph *g, const gemma_options *o, value x) {
    int64_t F = o->hidden;
    projection in = {
        .outputs = 2 * F, .letters = "2F", .divide = LINEAR_OUTPUTS, .std = STD, .matrices = 2, .share = {F, F}};
    value pair = project(g, x, "mlp.gate_up_proj", in);
    return project(g, geglu(g, pair, "F"), "mlp.down_proj",
                   (projection){.outputs = o->embed, .letters = "C", .divide = LINEAR_INPUTS, .std = STD});
}

static void gemma_page(graph *g, const void *options) {
    const gemma_options *o = options;
    begin_block(g, "embedding");
    leave(g, embedding(g, "embed_tokens.weight", NULL, o->vocab, o->context, o->embed, STD,
                       __builtin_sqrt((double)o->embed)));
    for (int l = 0; l < o->layers; l++) {
        value x = begin_layer(g, "layers.%d.", l);
        value a = attention(g, o, (l + 1) % o->pattern == 0, norm(g, o, x, "input_layernorm"));
        x = add(g, x, norm(g, o, a, "post_attention_layernorm"));
        value m = mlp(g, o, norm(g, o, x, "pre_feedforward_layernorm"));
        leave(g, add(g, x, norm(g, o, m, "post_feedforward_layernorm")));
    }
    value x = begin_block(g, "head");
    next_token_loss(g, norm(g, o, x, "norm"), "lm_head.weight", o->vocab, 0, o->head_chunks, 0);
    leave(g, 0);
}

// --- settings --------------------------------------------------------------------------------------------------------

// clang-format off
#define OPTIONS gemma_options

static const setting keys[] = {
    DECODER_KEYS("6"),
    INT(pattern, MAY, "6", 1, 1048576, "sliding_window_pattern", "each pattern-th layer sees all positions before it, the others a window of them"),
    INT(window, MAY, "512", 1, ROPE_MOST, "sliding_window", "positions that a position sees in layers with a window, itself included"),
    REAL(norm_eps, MAY, "1e-6", 0, 1, "rms_norm_eps", "added to the mean square in RMS norms"),
    REAL(rope_theta, MAY, "1000000", 1, 1e12, "rope_base", "base of the rotary embedding's wavelengths in layers that see all positions"),
    REAL(rope_factor, MAY, "1", 1, 1e6, "rope_scaling", "how many times these wavelengths are stretched"),
    REAL(local_theta, MAY, "10000", 1, 1e12, "rope_local_base_freq", "base of the wavelengths in layers with a window"),
    HEAD_CHUNKS,
};
// clang-format on

// All published models have the defaults here, but for their sizes.
static const model_alias families[] = {{"gemma3", ""}, {0}};

const model_type model_gemma = {.name = "gemma",
                                .alias = families,
                                .key = keys,
                                .keys = sizeof keys / sizeof *keys,
                                .resolve = decoder_resolve,
                                .page = gemma_page,
                                .prefix = "model.",
                                .options = sizeof(gemma_options),
                                .parts = decoder_parts,
                                .foreign = "gemma3_text",
                                .from_foreign = gemma_from_foreign,
                                .to_foreign = gemma_to_foreign,
                                .describe = decoder_describe};
