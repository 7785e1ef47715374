// model/t5/t5.c: T5 (Raffel et al. 2020), version 1.0 and 1.1: an encoder reads a text, a decoder says another one.
// Norms have no mean and no bias, attention has no scale, and what a position sees is biased by how far away it is, by
// a table that all layers of a stack share.
//
// The residual stream has, of each sample, the encoder's rows and then the decoder's (model/op/part.c): block 0 embeds
// both texts, the encoder's layers hand the decoder's rows on, and the decoder's those of the encoder.
#include "model/t5/t5.h"

#include "model/keys.h"
#include "model/op/op.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

// Sites of dropout in a block.
enum {
    DROP_EMBED = 0,
    DROP_ATTENTION = 0,
    DROP_CROSS,
    DROP_HIDDEN,
    DROP_SELF_OUT,
    DROP_CROSS_OUT,
    DROP_OUT,
    DROP_LAST
};

// --- the page --------------------------------------------------------------------------------------------------------

static double of_fan(int64_t inputs) { return 1 / sqrt((double)inputs); }

static value dense(graph *g, value x, const char *name, int64_t outputs, const char *letters, linear_division divide,
                   double std) {
    return project(g, x, name, (projection){.outputs = outputs, .letters = letters, .divide = divide, .std = std});
}

// Two matrices that read the same rows as one: keys and values, or gate and up.
static value pair(graph *g, value x, const char *name, int64_t each, const char *letters, double std) {
    return project(g, x, name,
                   (projection){.outputs = 2 * each,
                                .letters = letters,
                                .divide = LINEAR_OUTPUTS,
                                .std = std,
                                .matrices = 2,
                                .share = {each, each}});
}

// Of x's rows to those of `to`. self: of a stack's own text, with the bias that its layers share.
typedef struct t5_attention {
    const char *q, *kv, *o;
    const char *bias;  // NULL: none
    int tied;          // the row of the stack's first table; -1: none yet
    bool causal;
    const char *lengths;
    int site;
} t5_attention;

static value attention(graph *g, const t5_options *o, value x, value to, t5_attention a) {
    int64_t inner = o->heads * o->head_dim;
    value q = dense(g, x, a.q, inner, "HD", LINEAR_OUTPUTS, of_fan(o->embed * o->head_dim)),
          kv = pair(g, to, a.kv, inner, "2HD", of_fan(o->embed)),
          y = cross_attend(g, q, kv,
                           (cross_options){.heads = o->heads,
                                           .head_size = o->head_dim,
                                           .letters = "HD",
                                           .site = o->dropout > 0 ? a.site : -1,
                                           .causal = a.causal,
                                           .lengths = a.lengths,
                                           .scale = 1,
                                           .bias = a.bias,
                                           .buckets = o->buckets,
                                           .most = o->max_distance,
                                           .tied = a.tied,
                                           .std = of_fan(o->embed)});
    return dense(g, y, a.o, o->embed, "C", LINEAR_INPUTS, of_fan(inner));
}

static value self_attention(graph *g, const t5_options *o, value x, bool causal, int tied) {
    return attention(g, o, x, x,
                     (t5_attention){.q = "layer.0.SelfAttention.q",
                                    .kv = "layer.0.SelfAttention.kv",
                                    .o = "layer.0.SelfAttention.o",
                                    .bias = "layer.0.SelfAttention.relative_attention_bias.weight",
                                    .tied = tied,
                                    .causal = causal,
                                    .lengths = causal ? NULL : "length",
                                    .site = DROP_ATTENTION});
}

static value mlp(graph *g, const t5_options *o, value x, const char *in, const char *out) {
    int64_t F = o->hidden;
    double std = of_fan(o->embed);
    // dropout of what ReLU leaves, or ReLU of what dropout leaves: the same, but ReLU's backward reads its result,
    // which dropout would overwrite
    value h = o->activation == T5_RELU ? relu(g, dropout(g, dense(g, x, in, F, "F", LINEAR_OUTPUTS, std), DROP_HIDDEN))
                                       : dropout(g, geglu(g, pair(g, x, in, F, "2F", std), "F"), DROP_HIDDEN);
    return dense(g, h, out, o->embed, "C", LINEAR_INPUTS, of_fan(F));
}

// Returns the row of the first layer's table.
static int encoder(graph *g, const t5_options *o) {
    int table = -1;
    for (int l = 0; l < o->layers; l++) {
        value e, x = begin_layer(g, "encoder.block.%d.", l);
        part(g, x, o->context, &e, NULL);
        value h = rms_norm(g, e, "layer.0.layer_norm", o->norm_eps, 0);
        e = add(g, e, dropout(g, self_attention(g, o, h, false, table), DROP_SELF_OUT));
        if (table < 0) table = model_find(g->m, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
        h = rms_norm(g, e, "layer.1.layer_norm", o->norm_eps, 0);
        e = add(g, e, dropout(g, mlp(g, o, h, "layer.1.DenseReluDense.wi", "layer.1.DenseReluDense.wo"), DROP_OUT));
        leave(g, join(g, x, o->context, e, false));
    }
    value e, x = begin_block(g, "encoder's norm");
    part(g, x, o->context, &e, NULL);
    e = dropout(g, rms_norm(g, e, "encoder.final_layer_norm", o->norm_eps, 0), DROP_LAST);
    leave(g, join(g, x, o->context, e, false));
    return table;
}

static void decoder(graph *g, const t5_options *o) {
    int table = -1;
    for (int l = 0; l < o->decoder_layers; l++) {
        value e, d, x = begin_layer(g, "decoder.block.%d.", l);
        part(g, x, o->context, &e, &d);
        value h = rms_norm(g, d, "layer.0.layer_norm", o->norm_eps, 0);
        d = add(g, d, dropout(g, self_attention(g, o, h, true, table), DROP_SELF_OUT));
        if (table < 0) table = model_find(g->m, "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
        h = rms_norm(g, d, "layer.1.layer_norm", o->norm_eps, 0);
        h = attention(g, o, h, e,
                      (t5_attention){.q = "layer.1.EncDecAttention.q",
                                     .kv = "layer.1.EncDecAttention.kv",
                                     .o = "layer.1.EncDecAttention.o",
                                     .tied = -1,
                                     .lengths = "length",
                                     .site = DROP_CROSS});
        d = add(g, d, dropout(g, h, DROP_CROSS_OUT));
        h = rms_norm(g, d, "layer.2.layer_norm", o->norm_eps, 0);
        d = add(g, d, dropout(g, mlp(g, o, h, "layer.2.DenseReluDense.wi", "layer.2.DenseReluDense.wo"), DROP_OUT));
        leave(g, join(g, x, o->context, d, true));
    }
}

static void t5_page(graph *g, const void *options) {
    const t5_options *o = options;
    dropout_rate(g, o->dropout);
    begin_block(g, "embedding");
    value x = embedding(g, "shared.weight", NULL, o->vocab, o->context + o->says, o->embed, 1, 1), d;
    sample_length(g, "length");
    leave(g, dropout(g, x, DROP_EMBED));
    encoder(g, o);
    decoder(g, o);
    x = begin_block(g, "head");
    part(g, x, o->context, NULL, &d);
    d = dropout(g, rms_norm(g, d, "decoder.final_layer_norm", o->norm_eps, 0), DROP_LAST);
    if (o->tied) d = scaled(g, d, of_fan(o->embed));
    target_loss(g, d, "lm_head.weight", o->vocab, o->tied ? 0 : -1, o->head_chunks, o->tied ? 0 : of_fan(o->embed));
    g->m->mask = o->sentinel_token, g->m->begin = o->begin_token, g->m->end = o->end_token, g->m->reads = o->context,
    g->m->window = o->window, g->m->left_out = o->left_out, g->m->spans = o->spans;
    if (o->task == T5_TEXT) target_answers(g);
    leave(g, 0);
}

static void t5_describe(const void *options, char *dst, size_t room) {
    const t5_options *o = options;
    snprintf(dst, room, "%" PRId64 " + %" PRId64 " layers %" PRId64 " channels", o->layers, o->decoder_layers,
             o->embed);
}

// --- settings --------------------------------------------------------------------------------------------------------

// clang-format off
#define OPTIONS t5_options

static const setting keys[] = {
    ROW(task, MAY, KEY_WORD, "spans", 0, 0, "spans text", "objective", "what is learned: spans that were left out of a text, or the text that answers another one"),
    INT(layers, SHAPE, "12", 1, 1024, "num_layers depth", "layers of the encoder"),
    INT(decoder_layers, SHAPE, "0", 0, 1024, "num_decoder_layers", "layers of the decoder; 0 = as many as the encoder has"),
    INT(heads, SHAPE, "12", 1, 1024, "num_heads num_attention_heads", "attention heads"),
    INT(head_dim, SHAPE, "64", 1, 65536, "d_kv", "channels of a head"),
    INT(embed, SHAPE, "768", 1, 1048576, "d_model channels dim", "channels"),
    INT(hidden, SHAPE, "2048", 1, 1048576, "d_ff ffn_dim", "channels of the MLP"),
    ROW(activation, SHAPE, KEY_WORD, "geglu", 0, 0, "geglu relu", "feed_forward_proj", "of the MLP: a gate with GELU (version 1.1), or ReLU (1.0)"),
    INT(vocab, SHAPE, "32128", 4, 16777216, "vocab_size", "number of different tokens"),
    INT(context, MAY, "512", 4, 1048576, "n_positions seq_len inputs_length", "tokens that the encoder reads"),
    INT(decoder_context, MAY, "0", 0, 1048576, "max_target_length targets_length", "task = text: tokens that the decoder says, the end token included; 0 = as many as context"),
    ROW(tied, SHAPE, KEY_BOOL, "no", 0, 0, "no yes", "tie_word_embeddings", "the head is the embedding, of the decoder's rows times embed^-0.5 (1.0); no: its own (1.1)"),
    INT(buckets, SHAPE, "32", 4, DISTANCE_BUCKETS, "relative_attention_num_buckets", "distances that attention tells apart"),
    INT(max_distance, MEANING, "128", 2, 1048576, "relative_attention_max_distance", "positions farther away than this share a bucket"),
    REAL(noise, MAY, "0.15", 0, 0.9, "noise_density corruption_rate", "task = spans: share of a sample's tokens that the decoder has to say"),
    REAL(span, MAY, "3", 1, 1024, "mean_noise_span_length", "task = spans: mean number of tokens that are left out together"),
    INT(sentinel_token, MAY, "32099", 0, 16777215, "extra_id_0", "task = spans: stands for the first span that is left out; those before it for the next ones"),
    INT(begin_token, MAY, "0", 0, 16777215, "decoder_start_token_id", "the token that the decoder's text begins with"),
    INT(end_token, MAY, "1", 0, 16777215, "eos_token_id", "the token that both texts end with"),
    REAL(norm_eps, MAY, "1e-6", 0, 1, "layer_norm_epsilon", "added to the mean square in RMS norms"),
    REAL(dropout, MAY, "0", 0, 0.95, "dropout_rate", "probability that an activation is dropped while training"),
    HEAD_CHUNKS,
};
// clang-format on

static err_t check_buckets(const t5_options *o, model_rule *r) {
    if (o->buckets % 4)
        return rule_break(r, KEYS("buckets"),
                          "buckets = %" PRId64
                          " can't be halved twice: half of them is for either direction, and half of that for single "
                          "distances",
                          o->buckets);
    if (o->max_distance > o->buckets / 2) return ERR_OK;
    return rule_break(r, KEYS("max_distance", "buckets"),
                      "max_distance = %" PRId64 " leaves nothing to divide: of buckets = %" PRId64
                      " a decoder has %" PRId64 " for one distance each",
                      o->max_distance, o->buckets, o->buckets / 2);
}

static err_t check_tokens(const t5_options *o, model_rule *r) {
    const int64_t token[] = {o->sentinel_token, o->begin_token, o->end_token};
    static const char *const key[] = {"sentinel_token", "begin_token", "end_token"};
    for (int i = o->task == T5_TEXT; i < 3; i++)
        if (token[i] >= o->vocab)
            return rule_break(r, KEYS(key[i], "vocab"),
                              "%s = %" PRId64 " is no token: vocab = %" PRId64 " has tokens 0 to %" PRId64, key[i],
                              token[i], o->vocab, o->vocab - 1);
    if (o->sentinel_token + 1 >= o->spans) return ERR_OK;
    return rule_break(r, KEYS("sentinel_token", "noise", "span", "context"),
                      "a sample has %" PRId64 " spans, and from sentinel_token = %" PRId64 " down there are %" PRId64
                      " tokens",
                      o->spans, o->sentinel_token, o->sentinel_token + 1);
}

// How long samples are.
static err_t choose_lengths(t5_options *o, model_rule *r) {
    t5_spans s = t5_spans_for(o->context, o->noise, o->span);
    if (o->task == T5_TEXT) {
        rule_choose(r, "decoder_context", &o->decoder_context, o->context);
        o->window = o->left_out = o->spans = 0;
        o->says = o->decoder_context;
        if (o->says >= 2) return ERR_OK;
        return rule_break(r, KEYS("decoder_context"),
                          "decoder_context = 1 has room for the token that ends an answer, and for none of it: set "
                          "decoder_context = 2 or more");
    }
    o->window = s.window, o->left_out = s.noise, o->spans = s.spans;
    o->says = s.targets;
    if (o->decoder_context == 0) return ERR_OK;
    return rule_break(r, KEYS("decoder_context", "task"),
                      "decoder_context = %" PRId64
                      " is for task = text: with task = spans the decoder says what is left "
                      "out, %" PRId64 " tokens; set decoder_context = 0, or task = text",
                      o->decoder_context, o->says);
}

static err_t t5_resolve(void *options, model_rule *r) {
    t5_options *o = options;
    rule_choose(r, "decoder_layers", &o->decoder_layers, o->layers);
    TRY(check_buckets(o, r));
    TRY(choose_lengths(o, r));
    TRY(check_tokens(o, r));
    int64_t least = o->says < o->context ? o->says : o->context;
    TRY(rule_divide_encoder(r, "t5", least, &o->by));
    r->divided[0] = "heads", r->value[0] = o->heads;
    r->divided[1] = "hidden", r->value[1] = o->hidden;
    r->blocks = (int)(o->layers + o->decoder_layers) + 3;
    r->tied = o->tied, r->shared = true;
    rule_choose(r, "head_chunks", &o->head_chunks, head_chunks(r->micro * o->says, o->vocab, r->gpu));
    return ERR_OK;
}

// Version 1.1 is what there is without an alias.
static const model_alias families[] = {{"t5-1.0", "activation=relu tied=yes"}, {0}};

const model_type model_t5 = {.name = "t5",
                             .alias = families,
                             .key = keys,
                             .keys = sizeof keys / sizeof *keys,
                             .resolve = t5_resolve,
                             .page = t5_page,
                             .prefix = "",
                             .options = sizeof(t5_options),
                             .parts = t5_parts,
                             .ignores = t5_ignores,
                             .foreign = "t5",
                             .from_foreign = t5_from_foreign,
                             .to_foreign = t5_to_foreign,
                             .describe = t5_describe};
