// model/bert/bert.c: BERT (Devlin et al. 2019): embeddings of tokens, positions and texts, L post-norm transformer
// blocks in which each position sees all others, and a head that says which tokens were masked, of which class a
// sample is, or which number it has.
//
// A sample has the same number of masked positions whatever it says, so that each loss has the same share of a step's
// mean, in every layout.
#include "model/bert/bert.h"

#include "model/keys.h"
#include "model/op/op.h"

#include <inttypes.h>
#include <stdio.h>

enum { DROP_EMBED, DROP_ATTENTION, DROP_MID, DROP_OUT };  // sites of dropout in a block
enum { DROP_POOLED };                                     // in the head

// --- the page --------------------------------------------------------------------------------------------------------

static const double STD = 0.02;  // all weights begin normal(0, 0.02)

static value dense(graph *g, value x, const char *name, int64_t outputs, const char *letters, linear_division divide) {
    return project(g, x, name,
                   (projection){.outputs = outputs, .letters = letters, .divide = divide, .bias = true, .std = STD});
}

static value attention(graph *g, const bert_options *o, value x) {
    int64_t C = o->embed;
    value qkv = project(g, x, "attention.self.qkv",
                        (projection){.outputs = 3 * C,
                                     .letters = "3C",
                                     .divide = LINEAR_OUTPUTS,
                                     .bias = true,
                                     .std = STD,
                                     .matrices = 3,
                                     .share = {C, C, C}});
    value a = attend(g, qkv,
                     (attention_options){.heads = o->heads,
                                         .head_size = C / o->heads,
                                         .letters = "C",
                                         .site = DROP_ATTENTION,
                                         .all = true,
                                         .lengths = o->task == BERT_MLM ? NULL : "length"});
    return dense(g, a, "attention.output.dense", C, "C", LINEAR_INPUTS);
}

static value mlp(graph *g, const bert_options *o, value x) {
    value h = dense(g, x, "intermediate.dense", o->hidden, "F", LINEAR_OUTPUTS);
    return dense(g, gelu_erf(g, h), "output.dense", o->embed, "C", LINEAR_INPUTS);
}

static void embeddings(graph *g, const bert_options *o) {
    begin_block(g, "embedding");
    value x = embedding(g, "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight", o->vocab,
                        o->context, o->embed, STD, 1);
    if (o->task != BERT_MLM) sample_length(g, "length");
    x = token_types(g, x, "embeddings.token_type_embeddings.weight", o->types, STD);
    leave(g, dropout(g, layer_norm_of(g, x, "embeddings.LayerNorm", o->norm_eps), DROP_EMBED));
}

static value pooler(graph *g, const bert_options *o, value x) {
    return hyperbolic(g, dense(g, gather_rows(g, x, NULL, 1), "pooler.dense", o->embed, "C", LINEAR_WHOLE));
}

// The decoder of masked tokens is the embedding.
static void masked_head(graph *g, const bert_options *o, value x) {
    value y = dense(g, gather_rows(g, x, "places", o->places), "cls.predictions.transform.dense", o->embed, "C",
                    LINEAR_WHOLE);
    y = layer_norm_of(g, gelu_erf(g, y), "cls.predictions.transform.LayerNorm", o->norm_eps);
    masked_loss(g, y, "cls.predictions.decoder.weight", "cls.predictions.bias",
                (masked_options){.vocab = o->vocab,
                                 .chunks = o->head_chunks,
                                 .tied = 0,
                                 .mask = o->mask_token,
                                 .begin = o->begin_token,
                                 .end = o->end_token,
                                 .pooled = o->next_sentence ? pooler(g, o, x) : 0,
                                 .pairs = "cls.seq_relationship",
                                 .pairs_std = STD});
}

static void pooled_head(graph *g, const bert_options *o, value x) {
    x = dropout(g, pooler(g, o, x), DROP_POOLED);
    if (o->task == BERT_REGRESS) number_loss(g, x, "classifier", (number_options){.std = STD});
    else class_loss(g, x, "classifier", (class_options){.classes = o->classes, .std = STD});
}

static void bert_page(graph *g, const void *options) {
    const bert_options *o = options;
    dropout_rate(g, o->dropout);
    embeddings(g, o);
    for (int l = 0; l < o->layers; l++) {
        value x = begin_layer(g, "encoder.layer.%d.", l);
        x = add(g, x, dropout(g, attention(g, o, x), DROP_MID));
        x = layer_norm_of(g, x, "attention.output.LayerNorm", o->norm_eps);
        x = add(g, x, dropout(g, mlp(g, o, x), DROP_OUT));
        leave(g, layer_norm_of(g, x, "output.LayerNorm", o->norm_eps));
    }
    value x = begin_block(g, "head");
    if (o->task == BERT_MLM) masked_head(g, o, x);
    else pooled_head(g, o, x);
    leave(g, 0);
}

static void bert_describe(const void *options, char *dst, size_t room) {
    const bert_options *o = options;
    int n = snprintf(dst, room, "%" PRId64 " layers %" PRId64 " channels", o->layers, o->embed);
    if (o->task == BERT_CLASSIFY && n > 0 && (size_t)n < room)
        snprintf(dst + n, room - (size_t)n, " %" PRId64 " classes", o->classes);
}

// --- settings --------------------------------------------------------------------------------------------------------

// clang-format off
#define OPTIONS bert_options

static const setting keys[] = {
    ROW(task, SHAPE, KEY_WORD, "mlm", 0, 0, "mlm classify regress", "objective", "what is learned: which tokens were masked, of which class a text is, or a number of it"),
    INT(layers, SHAPE, "12", 1, 1024, "num_hidden_layers num_layers depth", "number of blocks"),
    INT(heads, MEANING, "12", 1, 1024, "num_attention_heads num_heads", "attention heads; must divide embed"),
    INT(embed, SHAPE, "768", 1, 1048576, "hidden_size channels dim d_model", "channels"),
    INT(hidden, SHAPE, "3072", 1, 1048576, "intermediate_size ffn_dim", "channels of the MLP"),
    INT(vocab, SHAPE, "30522", 4, 16777216, "vocab_size", "number of different tokens"),
    INT(context, SHAPE, "128", 3, 1048576, "max_position_embeddings seq_len sequence_length", "tokens of a sample, those at its ends included"),
    INT(types, SHAPE, "2", 1, 1024, "type_vocab_size", "texts of which a sample may consist"),
    INT(classes, SHAPE, "2", 2, 65536, "num_labels num_classes", "task = classify: number of different labels"),
    ROW(next_sentence, SHAPE, KEY_BOOL, "no", 0, 0, "no yes", "nsp next_sentence_prediction", "task = mlm: samples are pairs of texts; learned is also whether the second follows the first"),
    REAL(masked, MAY, "0.15", 0, 1, "mlm_probability mask_prob", "task = mlm: this share of a sample's positions is masked, rounded to a whole number, at least 1"),
    INT(mask_token, MAY, "103", 0, 16777215, "mask_token_id", "task = mlm: the token that stands for a masked one"),
    INT(begin_token, MAY, "101", 0, 16777215, "cls_token_id", "task = mlm: the token that a sample begins with"),
    INT(end_token, MAY, "102", 0, 16777215, "sep_token_id", "task = mlm: the token that a sample ends with"),
    REAL(norm_eps, MAY, "1e-12", 1e-20, 1, "layer_norm_eps", "added to the variance in norms"),
    REAL(dropout, MAY, "0", 0, 0.95, "hidden_dropout_prob", "probability that an activation is dropped while training"),
    HEAD_CHUNKS,
};
// clang-format on

static err_t check_tokens(const bert_options *o, model_rule *r) {
    const int64_t token[] = {o->mask_token, o->begin_token, o->end_token};
    static const char *const key[] = {"mask_token", "begin_token", "end_token"};
    for (int i = 0; i < 3 && o->task == BERT_MLM; i++) {
        if (token[i] >= o->vocab)
            return rule_break(r, KEYS(key[i], "vocab"),
                              "%s = %" PRId64 " is no token: vocab = %" PRId64 " has tokens 0 to %" PRId64
                              ". Of bytes, vocab = 259 leaves room for mask_token = 256, begin_token = 257 and "
                              "end_token = 258",
                              key[i], token[i], o->vocab, o->vocab - 1);
        for (int k = 0; k < i; k++)
            if (token[i] == token[k])
                return rule_break(r, KEYS(key[i], key[k]), "%s and %s are the same token, %" PRId64, key[k], key[i],
                                  token[i]);
    }
    return ERR_OK;
}

// Masked are positions between the ends; of pairs, all but that of the token between the texts.
static err_t choose_places(bert_options *o, model_rule *r) {
    int64_t apart = 2 + o->next_sentence;
    o->places = (int64_t)(o->masked * (double)o->context + 0.5);
    if (o->places < 1) o->places = 1;
    if (o->places > o->context - apart)
        return rule_break(r, KEYS("masked", "context"),
                          "masked = %g of context = %" PRId64 " positions are %" PRId64 ", and there are %" PRId64
                          " between a sample's ends",
                          o->masked, o->context, o->places, o->context - apart);
    return ERR_OK;
}

static err_t check_pairs(const bert_options *o, model_rule *r) {
    if (!o->next_sentence) return ERR_OK;
    if (o->task != BERT_MLM)
        return rule_break(r, KEYS("next_sentence", "task"), "next_sentence = yes is for task = mlm: leave it out");
    if (o->types < 2)
        return rule_break(
            r, KEYS("next_sentence", "types"),
            "next_sentence = yes makes samples of two texts: types = %" PRId64 " is too few, set types = 2", o->types);
    if (o->context < 5)
        return rule_break(r, KEYS("next_sentence", "context"),
                          "next_sentence = yes makes samples of two texts, with a token before, between and after "
                          "them: context = %" PRId64 " is too short, set context = 5 or more",
                          o->context);
    return ERR_OK;
}

static err_t bert_resolve(void *options, model_rule *r) {
    bert_options *o = options;
    if (o->embed % o->heads)
        return rule_break(r, KEYS("heads", "embed"), "embed = %" PRId64 " is not a multiple of heads = %" PRId64,
                          o->embed, o->heads);
    TRY(check_tokens(o, r));
    TRY(check_pairs(o, r));
    TRY(choose_places(o, r));
    int64_t losses = o->task == BERT_MLM ? o->places : 1;
    TRY(rule_divide_encoder(r, "bert", o->task == BERT_MLM ? o->places : o->context, &o->by));
    r->divided[0] = "heads", r->value[0] = o->heads;
    r->divided[1] = "hidden", r->value[1] = o->hidden;
    r->blocks = (int)o->layers + 2;
    r->tied = o->task == BERT_MLM;
    int64_t outputs = o->task == BERT_MLM ? o->vocab : o->task == BERT_CLASSIFY ? o->classes : 1;
    rule_choose(r, "head_chunks", &o->head_chunks, head_chunks(r->micro * losses, outputs, r->gpu));
    return ERR_OK;
}

const model_type model_bert = {.name = "bert",
                               .key = keys,
                               .keys = sizeof keys / sizeof *keys,
                               .resolve = bert_resolve,
                               .page = bert_page,
                               .prefix = "bert.",
                               .options = sizeof(bert_options),
                               .parts = bert_parts,
                               .ignores = bert_ignores,
                               .foreign = "bert",
                               .from_foreign = bert_from_foreign,
                               .to_foreign = bert_to_foreign,
                               .describe = bert_describe};
