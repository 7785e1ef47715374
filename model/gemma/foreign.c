// model/gemma/foreign.c: Gemma 3 as Hugging Face has it, without pictures: model_type gemma3_text.
#include "model/foreign.h"
#include "model/gemma/gemma.h"
#include "model/rope.h"

#include <string.h>

// --- config.json, read -----------------------------------------------------------------------------------------------

static const char *const layer_types[] = {"sliding_attention", "full_attention"};
static const char *type_of(const gemma_options *o, int64_t layer) { return layer_types[(layer + 1) % o->pattern == 0]; }

// The layers that o->pattern says are those of the list.
static bool is_pattern(const gemma_options *o, const json_t *layers) {
    for (int64_t l = 0; l < o->layers; l++) {
        const char *type = json_string_value(json_array_get(layers, (size_t)l));
        if (!type || strcmp(type, type_of(o, l)) != 0) return false;
    }
    return json_array_size(layers) == (size_t)o->layers;
}

// layer_types counts, where it is there; the pattern that it has may be said besides.
static void read_pattern(gemma_options *o, foreign_reader *r) {
    const json_t *layers = json_object_get(r->at, "layer_types");
    o->pattern = foreign_int(r, "sliding_window_pattern", 6);
    if (o->pattern < 1) o->pattern = 1, foreign_refuse(r, "sliding_window_pattern", "expected 1 or more");
    if (!json_is_array(layers) || is_pattern(o, layers)) return;
    for (o->pattern = 1; o->pattern <= o->layers; o->pattern++)
        if (is_pattern(o, layers)) return;
    if (!is_pattern(o, layers))
        foreign_refuse(r, "layer_types",
                       "expected for each layer full_attention or sliding_attention, full each n-th time");
}

static double read_angles(foreign_reader *r, const char *layers, const char *older, double theta) {
    foreign_reader all = foreign_inside(r, "rope_parameters"), in = foreign_inside(&all, layers);
    theta = foreign_real(&in, "rope_theta", foreign_real(r, older, theta));
    if (r->rc == ERR_OK) r->rc = in.rc;
    return theta;
}

// How many times the angles of these parameters are stretched; `factor` where they say nothing.
static double read_factor(foreign_reader *r, foreign_reader in, double factor) {
    const char *type = foreign_text(&in, "rope_type", NULL);
    if (!type && foreign_text(&in, "type", NULL))
        foreign_refuse(&in, "type", "expected rope_type: releases of transformers differ in what they read here");
    if (type && strcmp(type, "linear") == 0) factor = foreign_real(&in, "factor", 0);
    else if (type && strcmp(type, "default") == 0) factor = 1;
    else if (type) foreign_refuse(&in, "rope_type", "expected default or linear: others are not known here");
    if (factor < 1) foreign_refuse(&in, "factor", "expected a number of at least 1");
    if (r->rc == ERR_OK) r->rc = in.rc;
    return factor;
}

// rope_scaling is of layers that see all, and counts more than rope_parameters.
static void read_rope(gemma_options *o, foreign_reader *r) {
    foreign_reader all = foreign_inside(r, "rope_parameters");
    o->rope_theta = read_angles(r, "full_attention", "rope_theta", 1e6);
    o->local_theta = read_angles(r, "sliding_attention", "rope_local_base_freq", 1e4);
    o->rope_factor =
        read_factor(r, foreign_inside(r, "rope_scaling"), read_factor(r, foreign_inside(&all, "full_attention"), 1));
    if (read_factor(r, foreign_inside(&all, "sliding_attention"), 1) != 1)
        foreign_refuse(r, "rope_parameters",
                       "expected default for sliding_attention: angles of layers with a window are not stretched");
}

static void refuse_others(const gemma_options *o, foreign_reader *r) {
    static const char *const absent[] = {"attention_bias", "use_bidirectional_attention"};
    static const char *const capped[] = {"final_logit_softcapping", "attn_logit_softcapping"};
    for (int i = 0; i < 2; i++)
        if (foreign_bool(r, absent[i], false)) foreign_refuse(r, absent[i], "expected false");
    for (int i = 0; i < 2; i++)
        if (foreign_real(r, capped[i], 0) != 0)
            foreign_refuse(r, capped[i], "expected null: capped logits are not known here");
    if (foreign_real(r, "query_pre_attn_scalar", 256) != (double)o->head_dim)
        foreign_refuse(r, "query_pre_attn_scalar",
                       "expected head_dim: scores are divided by its square root, other scales are not known here");
    if (!foreign_bool(r, "tie_word_embeddings", true))
        foreign_refuse(r, "tie_word_embeddings", "expected true: the head is the embedding");
    if (strcmp(foreign_text(r, "hidden_activation", "gelu_pytorch_tanh"), "gelu_pytorch_tanh") != 0)
        foreign_refuse(r, "hidden_activation", "expected gelu_pytorch_tanh");
    if (json_is_null(json_object_get(r->at, "sliding_window")))
        foreign_refuse(r, "sliding_window", "expected a number of positions");
}

void gemma_from_foreign(void *options, foreign_reader *r) {
    gemma_options *o = options;
    decoder_from_foreign(options, r, (const int64_t[]){26, 8, 4, 2304, 9216, 256, 262208, 131072});
    o->window = foreign_int(r, "sliding_window", 4096);
    read_pattern(o, r);
    read_rope(o, r);
    refuse_others(o, r);
}

// --- config.json, written --------------------------------------------------------------------------------------------

// rope_parameters is what transformers 5 reads, the other three what 4 does: both say the same.
static int add_rope(json_t *c, const gemma_options *o) {
    bool stretched = o->rope_factor != 1;
    json_t *far = json_pack("{s:s, s:f}", "rope_type", stretched ? "linear" : "default", "rope_theta", o->rope_theta);
    json_t *near = json_pack("{s:s, s:f}", "rope_type", "default", "rope_theta", o->local_theta);
    json_t *scaling =
        stretched ? json_pack("{s:s, s:f}", "rope_type", "linear", "factor", o->rope_factor) : json_null();
    int failed = stretched ? json_object_set_new(far, "factor", json_real(o->rope_factor)) : 0;
    return failed |
           json_object_update_new(c, json_pack("{s:{s:o, s:o}, s:f, s:f, s:o}", "rope_parameters", "full_attention",
                                               far, "sliding_attention", near, "rope_theta", o->rope_theta,
                                               "rope_local_base_freq", o->local_theta, "rope_scaling", scaling));
}

// Which layers have a window: as a list, and by the two names that the pattern has had.
static int add_window(json_t *c, const gemma_options *o) {
    json_t *layers = json_array();
    int failed = 0;
    for (int64_t l = 0; l < o->layers; l++) failed |= json_array_append_new(layers, json_string(type_of(o, l)));
    return failed | json_object_update_new(c, json_pack("{s:I, s:I, s:I, s:o}", "sliding_window", (json_int_t)o->window,
                                                        "sliding_window_pattern", (json_int_t)o->pattern,
                                                        "_sliding_window_pattern", (json_int_t)o->pattern,
                                                        "layer_types", layers));
}

// pad_token_id is null: where it is not said it is 0, and token 0 would have no gradient.
err_t gemma_to_foreign(const void *options, json_t *config) {
    const gemma_options *o = options;
    int failed = decoder_to_foreign(options, config, "Gemma3ForCausalLM", "gemma3_text");
    failed |= json_object_update_new(
        config, json_pack("{s:I, s:b, s:b, s:s, s:f, s:f, s:n, s:n, s:n}", "query_pre_attn_scalar",
                          (json_int_t)o->head_dim, "tie_word_embeddings", 1, "attention_bias", 0, "hidden_activation",
                          "gelu_pytorch_tanh", "attention_dropout", 0.0, "initializer_range", 0.02,
                          "final_logit_softcapping", "attn_logit_softcapping", "pad_token_id"));
    failed |= add_rope(config, o) | add_window(config, o);
    return failed ? err_set(ERR_INTERNAL, "no memory for config.json") : ERR_OK;
}
