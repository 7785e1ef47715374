// model/llama/foreign.c: Llama, Mistral, Qwen 2 and Qwen 3 as Hugging Face has them.
#include "model/foreign.h"
#include "model/llama/llama.h"

#include <stdio.h>
#include <string.h>

// --- config.json, read -----------------------------------------------------------------------------------------------

typedef enum { LLAMA, MISTRAL, QWEN2, QWEN3, FAMILIES } family;
static const char *const family_names[] = {"llama", "mistral", "qwen2", "qwen3"};

static family family_of(const json_t *config) {
    const char *type = json_string_value(json_object_get(config, "model_type"));
    int f = 0;
    while (f < FAMILIES && !(type && strcmp(type, family_names[f]) == 0)) f++;
    return (family)f;
}

// rope_scaling, where it is not null, replaces rope_parameters; rope_theta stands in either of them or at the top.
static void read_rope(llama_options *o, foreign_reader *r) {
    const json_t *scaling = json_object_get(r->at, "rope_scaling"), *both = json_object_get(r->at, "rope_parameters");
    const json_t *from = json_is_object(scaling) ? scaling : both;
    foreign_reader in = {r->path, from, r->rc};
    o->rope_theta = foreign_real(r, "rope_theta", 10000);
    foreign_reader p = foreign_inside(r, "rope_parameters");
    o->rope_theta = foreign_real(&p, "rope_theta", o->rope_theta);
    if (r->rc == ERR_OK) r->rc = p.rc;
    if (!json_is_object(from)) return;
    o->rope_theta = foreign_real(&in, "rope_theta", o->rope_theta);
    const char *type = foreign_text(&in, "rope_type", foreign_text(&in, "type", "default"));
    if (strcmp(type, "llama3") == 0) {
        o->rope_scaling = ROPE_LLAMA3;
        o->rope_factor = foreign_real(&in, "factor", 8);
        o->rope_low = foreign_real(&in, "low_freq_factor", 1);
        o->rope_high = foreign_real(&in, "high_freq_factor", 4);
        o->rope_original = foreign_int(&in, "original_max_position_embeddings", 8192);
    } else if (strcmp(type, "default") != 0)
        foreign_refuse(&in, "rope_type", "expected default or llama3: others are not known here");
    if (r->rc == ERR_OK) r->rc = in.rc;
}

// How many layers have the window: those that layer_types says, or, where an older file has none, those from
// max_window_layers on.
static int64_t windowed_layers(const llama_options *o, foreign_reader *r) {
    const json_t *layers = json_object_get(r->at, "layer_types");
    int64_t n = 0, whole = foreign_int(r, "max_window_layers", 28);
    if (!json_is_array(layers)) return whole < o->layers ? o->layers - whole : 0;
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const char *type = json_string_value(json_array_get(layers, i));
        bool window = type && strcmp(type, "sliding_attention") == 0;
        if (!window && !(type && strcmp(type, "full_attention") == 0))
            foreign_refuse(r, "layer_types", "expected full_attention or sliding_attention: others are not known here");
        n += window;
    }
    return n;
}

// Qwen's window counts only where it is switched on, and may be that of some layers only.
static void read_window(llama_options *o, foreign_reader *r, family f) {
    bool counts = f == MISTRAL || ((f == QWEN2 || f == QWEN3) && foreign_bool(r, "use_sliding_window", false));
    bool said = json_object_get(r->at, "sliding_window") != NULL;  // null: there is none
    o->window = counts ? foreign_int(r, "sliding_window", said ? 0 : 4096) : 0;
    if (!o->window || f == MISTRAL) return;
    int64_t windowed = windowed_layers(o, r);
    if (windowed == 0) o->window = 0;
    else if (windowed != o->layers)
        foreign_refuse(r, "use_sliding_window", "a window of some layers only is not known here");
}

// What a family is where config.json does not say it (decoder_from_foreign).
static const int64_t unsaid[][DECODER_SIZES] = {[LLAMA] = {32, 32, 0, 4096, 11008, 0, 32000, 2048},
                                                [MISTRAL] = {32, 32, 8, 4096, 14336, 0, 32000, 131072},
                                                [QWEN2] = {32, 32, 32, 4096, 22016, 0, 151936, 32768},
                                                [QWEN3] = {32, 32, 32, 4096, 22016, 128, 151936, 32768}};

void llama_from_foreign(void *options, foreign_reader *r) {
    llama_options *o = options;
    family f = family_of(r->at);
    decoder_from_foreign(options, r, unsaid[f]);
    if (json_is_null(json_object_get(r->at, "num_key_value_heads"))) o->kv_heads = 0;  // as many as heads
    o->tied = foreign_bool(r, "tie_word_embeddings", false);
    bool bias = f != QWEN2 && f != MISTRAL && foreign_bool(r, "attention_bias", false);
    o->bias = f == QWEN2 ? LLAMA_BIAS_QKV : bias ? LLAMA_BIAS_ALL : LLAMA_BIAS_NO;
    o->qk_norm = f == QWEN3;
    if (foreign_bool(r, "mlp_bias", false))
        foreign_refuse(r, "mlp_bias", "expected false: biases of the MLP are not known here");
    if (strcmp(foreign_text(r, "hidden_act", "silu"), "silu") != 0) foreign_refuse(r, "hidden_act", "expected silu");
    read_rope(o, r);
    read_window(o, r, f);
}

// --- config.json, written --------------------------------------------------------------------------------------------

static err_t choose_family(const llama_options *o, family *f) {
    *f = o->qk_norm ? QWEN3 : o->bias == LLAMA_BIAS_QKV ? QWEN2 : o->window ? MISTRAL : LLAMA;
    if (*f == QWEN3 && o->bias == LLAMA_BIAS_QKV)
        return err_set(
            ERR_CONFIG,
            "qk_norm = yes with bias = qkv: no family of Hugging Face has both; Qwen 3 has bias = no or all");
    if (*f == MISTRAL && o->bias != LLAMA_BIAS_NO)
        return err_set(ERR_CONFIG,
                       "window = %d with bias = all: no family of Hugging Face has both; Mistral has bias = no",
                       (int)o->window);
    return ERR_OK;
}

static json_t *rope_json(const llama_options *o) {
    if (o->rope_scaling == ROPE_DEFAULT)
        return json_pack("{s:s, s:f}", "rope_type", "default", "rope_theta", o->rope_theta);
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "rope_theta", o->rope_theta, "factor",
                     o->rope_factor, "low_freq_factor", o->rope_low, "high_freq_factor", o->rope_high,
                     "original_max_position_embeddings", (json_int_t)o->rope_original);
}

// The window, as the family has it: Qwen's is switched on, for all layers.
static int add_window(json_t *c, const llama_options *o, family f) {
    if (f == MISTRAL)
        return json_object_set_new(c, "sliding_window", o->window ? json_integer(o->window) : json_null());
    if (f == LLAMA) return 0;
    int failed = json_object_set_new(c, "use_sliding_window", json_boolean(o->window > 0));
    failed |= json_object_set_new(c, "sliding_window", o->window ? json_integer(o->window) : json_null());
    failed |= json_object_set_new(c, "max_window_layers", json_integer(o->window ? 0 : o->layers));
    json_t *layers = json_array();
    for (int64_t l = 0; l < o->layers; l++)
        failed |= json_array_append_new(layers, json_string(o->window ? "sliding_attention" : "full_attention"));
    return failed | json_object_set_new(c, "layer_types", layers);
}

// rope_parameters is what transformers 5 reads, rope_theta and rope_scaling what 4 does: both say the same.
static int add_rope(json_t *c, const llama_options *o) {
    json_t *scaling = o->rope_scaling == ROPE_DEFAULT ? json_null() : rope_json(o);
    return json_object_update_new(c, json_pack("{s:o, s:f, s:o}", "rope_parameters", rope_json(o), "rope_theta",
                                               o->rope_theta, "rope_scaling", scaling));
}

err_t llama_to_foreign(const void *options, json_t *config) {
    static const char *const class[] = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM",
                                        "Qwen3ForCausalLM"};
    const llama_options *o = options;
    family f;
    TRY(choose_family(o, &f));
    int failed = decoder_to_foreign(options, config, class[f], family_names[f]);
    failed |= json_object_update_new(config, json_pack("{s:b, s:s, s:f, s:f}", "tie_word_embeddings", (int)o->tied,
                                                       "hidden_act", "silu", "attention_dropout", 0.0,
                                                       "initializer_range", 0.02));
    if (f == LLAMA || f == QWEN3)
        failed |= json_object_set_new(config, "attention_bias", json_boolean(o->bias == LLAMA_BIAS_ALL));
    if (f == LLAMA) failed |= json_object_set_new(config, "mlp_bias", json_false());
    failed |= add_rope(config, o) | add_window(config, o, f);
    return failed ? err_set(ERR_INTERNAL, "no memory for config.json") : ERR_OK;
}
