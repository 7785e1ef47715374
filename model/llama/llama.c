// model/llama/llama.c: Llama (Touvron et al. 2023) and the families that vary it: Llama 3, Qwen 2 and 3, Mistral. A
// token embedding, L layers, a final RMS norm, and a head that may share the embedding.
#include "model/llama/llama.h"

#include "model/op/op.h"

// --- the page --------------------------------------------------------------------------------------------------------

// Initial values as GPT-2's: normal(0, 0.02), the projections back into the residual stream scaled by 1/sqrt(2L).
static const double STD = 0.02;
static double residual_std(const llama_options *o) { return STD / __builtin_sqrt(2.0 * (double)o->layers); }

static rope rope_of(const llama_options *o) {
    return (rope){
        (rope_kind)o->rope_scaling, o->rope_theta, o->rope_factor, o->rope_low, o->rope_high, o->rope_original};
}

static value attention(graph *g, const llama_options *o, value x) {
    int64_t D = o->head_dim, H = o->heads, KV = o->kv_heads;
    rope r = rope_of(o);
    value qkv = project(g, x, "self_attn.qkv_proj",
                        (projection){.outputs = (H + 2 * KV) * D,
                                     .letters = "(H+2KV)D",
                                     .divide = LINEAR_OUTPUTS,
                                     .bias = o->bias != LLAMA_BIAS_NO,
                                     .std = STD,
                                     .matrices = 3,
                                     .share = {H * D, KV * D, KV * D}});
    if (o->qk_norm) {
        qkv = head_norm(g, qkv, "self_attn.q_norm", D, 0, H, o->norm_eps, 0);
        qkv = head_norm(g, qkv, "self_attn.k_norm", D, H, KV, o->norm_eps, 0);
    }
    value a = attend(g, rotary(g, qkv, H + KV, D, &r),
                     (attention_options){
                         .heads = H, .kv_heads = KV, .head_size = D, .window = o->window, .letters = "HD", .site = -1});
    return project(g, a, "self_attn.o_proj",
                   (projection){.outputs = o->embed,
                                .letters = "C",
                                .divide = LINEAR_INPUTS,
                                .bias = o->bias == LLAMA_BIAS_ALL,
                                .std = residual_std(o)});
}

static value mlp(graph *g, const llama_options *o, value x) {
    int64_t F = o->hidden;
    value pair = project(
        g, x, "mlp.gate_up_proj",
        (projection){
            .outputs = 2 * F, .letters = "2F", .divide = LINEAR_OUTPUTS, .std = STD, .matrices = 2, .share = {F, F}});
    return project(g, swiglu(g, pair, "F"), "mlp.down_proj",
                   (projection){.outputs = o->embed, .letters = "C", .divide = LINEAR_INPUTS, .std = residual_std(o)});
}

static void llama_page(graph *g, const void *options) {
    const llama_options *o = options;
    begin_block(g, "embedding");
    leave(g, embedding(g, "embed_tokens.weight", NULL, o->vocab, o->context, o->embed, STD, 1));
    for (int l = 0; l < o->layers; l++) {
        value x = begin_layer(g, "layers.%d.", l);
        x = add(g, x, attention(g, o, rms_norm(g, x, "input_layernorm", o->norm_eps, 0)));
        x = add(g, x, mlp(g, o, rms_norm(g, x, "post_attention_layernorm", o->norm_eps, 0)));
        leave(g, x);
    }
    value x = begin_block(g, "head");
    next_token_loss(g, rms_norm(g, x, "norm", o->norm_eps, 0), "lm_head.weight", o->vocab, o->tied ? 0 : -1,
                    o->head_chunks, o->tied ? 0 : STD);
    leave(g, 0);
}

// --- settings --------------------------------------------------------------------------------------------------------

// clang-format off
#define OPTIONS llama_options

static const setting keys[] = {
    DECODER_KEYS("4"),
    ROW(tied, SHAPE, KEY_BOOL, "no", 0, 0, "no yes", "tie_word_embeddings", "the head's weight is the embedding"),
    ROW(bias, SHAPE, KEY_WORD, "no", 0, 0, "no qkv all", "attention_bias qkv_bias", "biases of attention: none; of queries, keys and values; of the projection too"),
    ROW(qk_norm, SHAPE, KEY_BOOL, "no", 0, 0, "no yes", "use_qk_norm", "RMS norm of each query and key before it is turned"),
    INT(window, MAY, "0", 0, ROPE_MOST, "sliding_window", "positions that a position sees, itself included; 0 = all before it"),
    REAL(norm_eps, MAY, "1e-5", 0, 1, "rms_norm_eps", "added to the mean square in RMS norms"),
    REAL(rope_theta, MAY, "10000", 1, 1e12, "rope_base", "base of the rotary embedding's wavelengths"),
    ROW(rope_scaling, MAY, KEY_WORD, "no", 0, 0, "no llama3", "rope_type", "how long wavelengths are stretched: not, or as in Llama 3.1"),
    REAL(rope_factor, MAY, "8", 1, 1e6, "", "llama3: how many times"),
    REAL(rope_low, MAY, "1", 1e-6, 1e6, "low_freq_factor", "llama3: wavelengths above rope_original / rope_low are stretched in full"),
    REAL(rope_high, MAY, "4", 1e-6, 1e6, "high_freq_factor", "llama3: those below rope_original / rope_high stay; must be above rope_low"),
    INT(rope_original, MAY, "8192", 1, ROPE_MOST, "original_max_position_embeddings", "llama3: the context before it was stretched"),
    HEAD_CHUNKS,
};
// clang-format on

static err_t llama_resolve(void *options, model_rule *r) {
    llama_options *o = options;
    TRY(decoder_resolve(options, r));
    r->tied = o->tied;
    if (o->rope_scaling == ROPE_LLAMA3 && !(o->rope_high > o->rope_low))
        return rule_break(r, KEYS("rope_high", "rope_low"), "rope_high = %g must be above rope_low = %g", o->rope_high,
                          o->rope_low);
    return ERR_OK;
}

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
                                .page = llama_page,
                                .prefix = "model.",
                                .options = sizeof(llama_options),
                                .parts = decoder_parts,
                                .foreign = "llama mistral qwen2 qwen3",
                                .from_foreign = llama_from_foreign,
                                .to_foreign = llama_to_foreign,
                                .describe = decoder_describe};
