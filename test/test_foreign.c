// test/test_foreign.c: what is read of a config.json, setting by setting, without weights: what is said twice, not at
// all, or with another type; what an export of any settings says, read again; and directories of weights whose files,
// names and index are not as usual.
#include "test/support/foreign.h"
#include "test/support/settings_of.h"

#include "model/families.h"
#include "model/foreign.h"
#include "model/rope.h"
#include "model/weights.h"

#include <math.h>

// --- one config.json -------------------------------------------------------------------------------------------------

#define LLAMA "{\"model_type\": \"llama\", "
#define MISTRAL "{\"model_type\": \"mistral\", "
#define QWEN2 "{\"model_type\": \"qwen2\", "
#define QWEN3 "{\"model_type\": \"qwen3\", "
#define GEMMA3 "{\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 3, "
#define GPT2 "{\"model_type\": \"gpt2\", "

// rope_scaling goes before rope_parameters, and what stands in either before rope_theta beside them. The scaling of
// Llama 3.1 that says no more is that which [model] has where nothing is said.
static void angles_are_those_of_the_last_word(void **state) {
    (void)state;
    static const char *const all[][2] = {
        {LLAMA "\"rope_theta\": 77}", "rope_theta=77 rope_scaling=no"},
        {LLAMA "\"rope_theta\": 77, \"rope_parameters\": {\"rope_theta\": 99}}", "rope_theta=99 rope_scaling=no"},
        {LLAMA "\"rope_theta\": 77, \"rope_parameters\": {\"rope_type\": \"default\"}}",
         "rope_theta=77 rope_scaling=no"},
        {LLAMA "\"rope_theta\": 77, \"rope_parameters\": null, \"rope_scaling\": null}",
         "rope_theta=77 rope_scaling=no"},
        {LLAMA "\"rope_scaling\": {\"type\": \"llama3\", \"rope_theta\": 55}, \"rope_theta\": 77}",
         "rope_theta=55 rope_scaling=llama3"},
        {LLAMA
         "\"rope_scaling\": {\"type\": \"llama3\"}, \"rope_parameters\": {\"rope_theta\": 99, \"rope_type\": \"default\"}}",
         "rope_theta=99 rope_scaling=llama3 rope_factor=8 rope_low=1 rope_high=4 rope_original=8192"},
        {LLAMA
         "\"rope_scaling\": {\"type\": \"default\"}, \"rope_parameters\": {\"rope_theta\": 99, \"rope_type\": \"llama3\"}}",
         "rope_theta=99 rope_scaling=no"},
        {LLAMA "\"rope_scaling\": null, \"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 3}}",
         "rope_theta=10000 rope_scaling=llama3 rope_factor=3 rope_low=1 rope_high=4 rope_original=8192"},
        {LLAMA
         "\"rope_scaling\": {\"rope_type\": \"llama3\", \"type\": \"linear\", \"low_freq_factor\": 2, \"high_freq_factor\": 5.5, "
         "\"original_max_position_embeddings\": 24}}",
         "rope_scaling=llama3 rope_factor=8 rope_low=2 rope_high=5.5 rope_original=24"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) expect_settings(all[i][0], all[i][1]);
}

// Where Qwen's window is switched on and has no size it has that of the family, as Mistral's has; null is none.
static void windows_are_those_of_all_layers(void **state) {
    (void)state;
#define ON "\"num_hidden_layers\": 3, \"use_sliding_window\": true, "
#define WHOLE "\"full_attention\""
#define PART "\"sliding_attention\""
    static const char *const all[][2] = {
        {LLAMA "\"sliding_window\": 9}", "window=0"},
        {LLAMA ON "\"sliding_window\": 9, \"max_window_layers\": 0}", "window=0"},
        {MISTRAL "\"sliding_window\": 9}", "window=9"},
        {MISTRAL "\"sliding_window\": null}", "window=0"},
        {MISTRAL "\"num_hidden_layers\": 3}", "window=4096"},
        {MISTRAL "\"use_sliding_window\": false, \"sliding_window\": 9, \"max_window_layers\": 99}", "window=9"},
        {QWEN2 "\"sliding_window\": 9, \"max_window_layers\": 0}", "window=0"},
        {QWEN2 ON "\"sliding_window\": 9, \"max_window_layers\": 0}", "window=9"},
        {QWEN2 ON "\"max_window_layers\": 0}", "window=4096"},
        {QWEN3 ON "\"max_window_layers\": 0}", "window=4096"},
        {QWEN3 ON "\"sliding_window\": null, \"max_window_layers\": 0}", "window=0"},
        {QWEN3 ON "\"sliding_window\": 9, \"max_window_layers\": 3}", "window=0"},
        {QWEN3 ON "\"sliding_window\": 9, \"max_window_layers\": 4}", "window=0"},
        {QWEN2 ON "\"sliding_window\": 9}", "window=0"},
        {QWEN2 "\"num_hidden_layers\": 28, \"use_sliding_window\": true}", "window=0"},
        {QWEN2 ON "\"sliding_window\": 9, \"max_window_layers\": 0, \"layer_types\": [" WHOLE ", " WHOLE ", " WHOLE
                  "]}",
         "window=0"},
        {QWEN3 ON "\"sliding_window\": 9, \"layer_types\": [" PART ", " PART ", " PART "]}", "window=9"},
        {QWEN3 ON "\"sliding_window\": 9, \"max_window_layers\": 0, \"layer_types\": null}", "window=9"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) expect_settings(all[i][0], all[i][1]);
    expect_refused(QWEN2 ON "\"max_window_layers\": 1}", "use_sliding_window: a window of some layers only");
    expect_refused(QWEN2 ON "\"max_window_layers\": 2}", "use_sliding_window: a window of some layers only");
    expect_refused(QWEN2 "\"num_hidden_layers\": 29, \"use_sliding_window\": true}",
                   "use_sliding_window: a window of some layers only");
    expect_refused(QWEN3 ON "\"layer_types\": [" PART ", " PART ", " WHOLE "]}",
                   "use_sliding_window: a window of some layers only");
    expect_refused(QWEN3 ON "\"layer_types\": [" PART ", " PART ", \"linear_attention\"]}",
                   "layer_types: expected full_attention or sliding");
    expect_refused(QWEN3 ON "\"layer_types\": [" WHOLE ", 7, " WHOLE "]}",
                   "layer_types: expected full_attention or sliding");
}

// Gemma's layers may differ: which of them see all positions, and by which angles these turn.
static void layers_of_gemma_differ_by_a_pattern(void **state) {
    (void)state;
    static const char *const all[][2] = {
        {GEMMA3 "\"sliding_window\": 9}", "pattern=6 window=9 rope_theta=1000000 rope_factor=1 local_theta=10000"},
        {GEMMA3 "\"sliding_window_pattern\": 2}", "pattern=2 window=4096"},
        {GEMMA3 "\"_sliding_window_pattern\": 2}", "pattern=6"},
        {GEMMA3 "\"sliding_window_pattern\": 2, \"layer_types\": [" PART ", " WHOLE ", " PART "]}", "pattern=2"},
        {GEMMA3 "\"sliding_window_pattern\": 3, \"layer_types\": [" PART ", " WHOLE ", " PART "]}", "pattern=2"},
        {GEMMA3 "\"layer_types\": [" PART ", " PART ", " PART "]}", "pattern=6"},
        {GEMMA3 "\"sliding_window_pattern\": 3, \"layer_types\": [" PART ", " PART ", " PART "]}", "pattern=4"},
        {GEMMA3 "\"layer_types\": [" WHOLE ", " WHOLE ", " WHOLE "]}", "pattern=1"},
        {GEMMA3 "\"rope_theta\": 77, \"rope_local_base_freq\": 55}", "rope_theta=77 local_theta=55 rope_factor=1"},
        {GEMMA3 "\"rope_theta\": 77, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8}}",
         "rope_theta=77 rope_factor=8"},
        {GEMMA3 "\"rope_scaling\": {\"rope_type\": \"linear\", \"type\": \"linear\", \"factor\": 8}}", "rope_factor=8"},
        {GEMMA3
         "\"rope_theta\": 77, \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 99, \"rope_type\": \"linear\", \"factor\": 2}}}",
         "rope_theta=99 rope_factor=2 local_theta=10000"},
        {GEMMA3
         "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 2}}, \"rope_scaling\": {\"factor\": 3, "
         "\"rope_type\": \"linear\"}, \"rope_theta\": 77}",
         "rope_theta=77 rope_factor=3"},
        {GEMMA3 "\"rope_parameters\": {\"sliding_attention\": {\"rope_theta\": 11}, \"full_attention\": null}}",
         "rope_theta=1000000 local_theta=11"},
        {GEMMA3 "\"head_dim\": 128, \"query_pre_attn_scalar\": 128}", "head_dim=128"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) expect_settings(all[i][0], all[i][1]);
    static const char *const refused[][2] = {
        {GEMMA3 "\"sliding_window_pattern\": 0}", "sliding_window_pattern: expected 1 or more"},
        {GEMMA3 "\"layer_types\": [" WHOLE ", " PART ", " PART "]}",
         "layer_types: expected for each layer full_attention or sliding_attention"},
        {GEMMA3 "\"layer_types\": [" PART ", " PART "]}", "layer_types: expected for each layer"},
        {GEMMA3 "\"layer_types\": [" PART ", " PART ", \"linear_attention\"]}", "layer_types: expected for each layer"},
        {GEMMA3 "\"sliding_window\": null}", "sliding_window: expected a number of positions"},
        {GEMMA3 "\"sliding_window\": 0}", "[model] window = 0 is out of its limits"},
        {GEMMA3 "\"rope_scaling\": {\"rope_type\": \"yarn\"}}", "rope_type: expected default or linear"},
        {GEMMA3 "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 8}}", "type: expected rope_type"},
        {GEMMA3 "\"rope_scaling\": {\"rope_type\": \"linear\"}}", "factor: expected a number of at least 1"},
        {GEMMA3 "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": \"x\"}}}", "rope_theta: expected a number"},
        {GEMMA3 "\"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"linear\", \"factor\": 2}}}",
         "rope_parameters: expected default for sliding_attention"},
        {GEMMA3 "\"attention_bias\": true}", "attention_bias: expected false"},
        {GEMMA3 "\"use_bidirectional_attention\": true}", "use_bidirectional_attention: expected false"},
        {GEMMA3 "\"final_logit_softcapping\": 30.0}", "final_logit_softcapping: expected null"},
        {GEMMA3 "\"attn_logit_softcapping\": 50.0}", "attn_logit_softcapping: expected null"},
        {GEMMA3 "\"query_pre_attn_scalar\": 168, \"head_dim\": 128}", "query_pre_attn_scalar: expected head_dim"},
        {GEMMA3 "\"head_dim\": 128}", "query_pre_attn_scalar: expected head_dim"},
        {GEMMA3 "\"tie_word_embeddings\": false}", "tie_word_embeddings: expected true"},
        {GEMMA3 "\"hidden_activation\": \"silu\"}", "hidden_activation: expected gelu_pytorch_tanh"},
        {"{\"model_type\": \"gemma3\"}",
         "model_type \"gemma3\": expected gpt2, llama, mistral, qwen2, qwen3, gemma3_text"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) expect_refused(refused[i][0], refused[i][1]);
}

// A key that a family does not have is nothing to it.
static void a_family_has_its_own_keys(void **state) {
    (void)state;
    static const char *const all[][2] = {
        {LLAMA "\"attention_bias\": true}", "bias=all qk_norm=no"},
        {LLAMA "\"attention_bias\": false}", "bias=no qk_norm=no"},
        {MISTRAL "\"attention_bias\": true}", "bias=no qk_norm=no"},
        {QWEN2 "\"attention_bias\": false}", "bias=qkv qk_norm=no"},
        {QWEN2 "\"attention_bias\": true}", "bias=qkv qk_norm=no"},
        {QWEN3 "\"attention_bias\": true}", "bias=all qk_norm=yes"},
        {QWEN3 "\"attention_bias\": null}", "bias=no qk_norm=yes"},
        {QWEN3 "\"head_dim\": null}", "head_dim=128"},
        {QWEN3 "\"head_dim\": 64}", "head_dim=64"},
        {QWEN2 "\"head_dim\": 64}", "head_dim=64"},
        {LLAMA "\"hidden_size\": 96, \"num_attention_heads\": 8, \"num_key_value_heads\": 4}",
         "embed=96 heads=8 kv_heads=4 head_dim=12"},
        {LLAMA "\"max_position_embeddings\": 999999}", "context=999999"},
        {LLAMA "\"max_position_embeddings\": 1000000}", "context=1000000"},
        {QWEN2 "\"max_position_embeddings\": 2000000000}", "context=1000000"},
        {LLAMA "\"tie_word_embeddings\": true, \"rms_norm_eps\": 1}", "tied=yes norm_eps=1"},
        {LLAMA "\"mlp_bias\": false, \"hidden_act\": \"silu\"}", "tied=no"},
        {LLAMA "\"mlp_bias\": null, \"hidden_act\": null}", "tied=no"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) expect_settings(all[i][0], all[i][1]);
    expect_refused(LLAMA "\"mlp_bias\": true}", "mlp_bias: expected false");
    expect_refused(LLAMA "\"hidden_act\": \"gelu\"}", "hidden_act: expected silu");
    expect_refused(QWEN3 "\"hidden_act\": \"silu_and_mul\"}", "hidden_act: expected silu");
    expect_refused("{\"model_type\": \"llama4\"}", "model_type \"llama4\": expected gpt2, llama");
    expect_refused("{\"model_type\": \"Llama\"}", "model_type \"Llama\": expected gpt2");
    expect_refused("{\"model_type\": null}", "model_type is missing: expected gpt2");
    expect_refused("{}", "model_type is missing");
}

// A value of another type is refused by its name, wherever it stands, and never taken for what is not said. Of several
// the first one is named.
static void values_of_another_type_are_refused(void **state) {
    (void)state;
    static const char *const all[][2] = {
        {LLAMA "\"num_hidden_layers\": \"2\"}", "num_hidden_layers: expected a whole number from 0 to 2147483647"},
        {LLAMA "\"num_hidden_layers\": 2.0}", "num_hidden_layers: expected a whole number"},
        {LLAMA "\"num_attention_heads\": -1}", "num_attention_heads: expected a whole number"},
        {LLAMA "\"vocab_size\": 2147483648}", "vocab_size: expected a whole number"},
        {LLAMA "\"max_position_embeddings\": -1}", "max_position_embeddings: expected a whole number"},
        {LLAMA "\"max_position_embeddings\": 9999999999}", "max_position_embeddings: expected a whole number"},
        {LLAMA "\"head_dim\": [64]}", "head_dim: expected a whole number"},
        {QWEN2 "\"use_sliding_window\": true, \"sliding_window\": false}", "sliding_window: expected a whole number"},
        {QWEN2 "\"use_sliding_window\": true, \"max_window_layers\": \"all\"}",
         "max_window_layers: expected a whole number"},
        {LLAMA "\"rms_norm_eps\": \"1e-5\"}", "rms_norm_eps: expected a number"},
        {LLAMA "\"rope_theta\": \"1e4\"}", "rope_theta: expected a number"},
        {LLAMA "\"rope_parameters\": {\"rope_theta\": \"1e4\"}}", "rope_theta: expected a number"},
        {LLAMA "\"rope_parameters\": {\"rope_theta\": true}, \"rope_scaling\": {\"type\": \"llama3\"}}",
         "rope_theta: expected a number"},
        {LLAMA "\"rope_scaling\": {\"type\": \"llama3\", \"factor\": \"8\"}}", "factor: expected a number"},
        {LLAMA "\"rope_scaling\": {\"type\": \"llama3\", \"low_freq_factor\": true}}",
         "low_freq_factor: expected a number"},
        {LLAMA "\"rope_scaling\": {\"type\": \"llama3\", \"high_freq_factor\": {}}}",
         "high_freq_factor: expected a number"},
        {LLAMA "\"rope_scaling\": {\"type\": \"llama3\", \"original_max_position_embeddings\": 8192.5}}",
         "embeddings: expected a whole number"},
        {LLAMA "\"rope_scaling\": {\"type\": 3}}", "type: expected a string"},
        {LLAMA "\"rope_scaling\": {\"rope_type\": \"yarn\"}}", "rope_type: expected default or llama3"},
        {LLAMA "\"tie_word_embeddings\": 1}", "tie_word_embeddings: expected true or false"},
        {LLAMA "\"attention_bias\": \"no\"}", "attention_bias: expected true or false"},
        {LLAMA "\"mlp_bias\": 0}", "mlp_bias: expected true or false"},
        {QWEN3 "\"use_sliding_window\": 0}", "use_sliding_window: expected true or false"},
        {LLAMA "\"hidden_act\": 5}", "hidden_act: expected a string"},
        {GPT2 "\"n_layer\": 1.5}", "n_layer: expected a whole number"},
        {GPT2 "\"n_positions\": \"x\"}", "n_positions: expected a whole number"},
        {GPT2 "\"layer_norm_epsilon\": \"x\"}", "layer_norm_epsilon: expected a number"},
        {GPT2 "\"activation_function\": true}", "activation_function: expected a string"},
        {LLAMA "\"num_hidden_layers\": -1, \"hidden_size\": -1, \"mlp_bias\": true}",
         "theirs/config.json: num_hidden_layers: expected"},
        {LLAMA "\"rms_norm_eps\": \"x\", \"rope_scaling\": {\"type\": \"yarn\"}}",
         "theirs/config.json: rms_norm_eps: expected"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) expect_refused(all[i][0], all[i][1]);
    expect_settings(LLAMA "\"vocab_size\": 100000, \"rope_theta\": 10000000}", "vocab=100000 rope_theta=10000000");
    expect_settings(LLAMA "\"rms_norm_eps\": 1.2345678e-5, \"rope_theta\": 123456.75}",
                    "norm_eps=1.2345678e-05 rope_theta=123456.75");
}

// --- there and back --------------------------------------------------------------------------------------------------

// All that a config.json of one family can say, in two ways: written, and read again, it is the same.
static void what_is_written_is_read_back(void **state) {
    (void)state;
    static const char *const more[] = {
        LLAMA "\"attention_bias\": true, \"tie_word_embeddings\": true, \"rope_theta\": 12}",
        LLAMA
        "\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 32, \"low_freq_factor\": 1.5, \"high_freq_factor\": 2.5, "
        "\"original_max_position_embeddings\": 77}, \"rope_theta\": 13}",
        MISTRAL "\"sliding_window\": 33, \"head_dim\": 20}",
        QWEN2
        "\"num_hidden_layers\": 3, \"use_sliding_window\": true, \"sliding_window\": 44, \"max_window_layers\": 0}",
        QWEN2
        "\"num_hidden_layers\": 40, \"num_key_value_heads\": 8, \"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 2}}",
        QWEN3 "\"num_hidden_layers\": 30, \"attention_bias\": true, \"rms_norm_eps\": 0.125}",
        QWEN3 "\"num_hidden_layers\": 2, \"use_sliding_window\": true, \"layer_types\": [" PART ", " PART
              "], \"intermediate_size\": 100}",
        GEMMA3
        "\"sliding_window\": 9, \"sliding_window_pattern\": 4, \"rope_theta\": 77, \"rope_local_base_freq\": 55}",
        GEMMA3 "\"layer_types\": [" PART ", " WHOLE ", " PART
               "], \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8}, \"head_dim\": 64, "
               "\"query_pre_attn_scalar\": 64}",
        GPT2 "\"n_layer\": 3, \"n_embd\": 36, \"n_head\": 3, \"n_positions\": 50, \"vocab_size\": 70}",
    };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        const model_type *type, *again;
        json_t *config = json_of(more[i]), *written = json_object();
        void *options = options_of(config, &type), *back;
        if (!options) fail_msg("%s: %s", more[i], err_last()->text);
        OK(type->to_foreign(options, written));
        OK(foreign_agrees(type, options, written, "ours"));
        back = options_of(written, &again);
        assert_ptr_equal(type, again);
        for (int k = 0; k < type->keys; k++) {
            char a[SETTING_VALUE], b[SETTING_VALUE];
            setting_value(&type->key[k], options, a), setting_value(&type->key[k], back, b);
            if (strcmp(a, b) != 0)
                fail_msg("%s: %s = %s, and %s when it is read back", more[i], type->key[k].key, a, b);
        }
        if (strncmp(more[i], GPT2, 20) != 0)
            assert_string_equal(json_string_value(json_object_get(written, "model_type")),
                                json_string_value(json_object_get(config, "model_type")));
        free(options), free(back);
        json_decref(config), json_decref(written);
    }
}

static void put_members(json_t *config, const char *text) {
    json_t *more = json_of(text);
    assert_int_equal(json_object_update(config, more), 0);
    json_decref(more);
}

// Each setting that is another one is named, the last one too; those that are not of the weights may be.
static void every_difference_is_named(void **state) {
    (void)state;
    const model_type *type, *gpt;
    json_t *ours = json_of(LLAMA "\"num_attention_heads\": 4, \"hidden_size\": 32}"),
           *theirs = json_of(GPT2 "\"n_embd\": 48}");
    void *options = options_of(ours, &type), *others = options_of(theirs, &gpt);
    assert_non_null(options), assert_non_null(others);
    assert_int_equal(foreign_agrees(type, options, theirs, "theirs"), ERR_CONFIG);
    assert_non_null(strstr(err_last()->text, "[model] type = llama: theirs holds weights of type = gpt"));
    assert_int_equal(foreign_agrees(gpt, others, ours, "ours"), ERR_CONFIG);
    assert_non_null(strstr(err_last()->text, "[model] type = gpt: ours holds weights of type = llama"));
    put_members(ours, "{\"max_position_embeddings\": 77, \"vocab_size\": 99}");
    OK(foreign_agrees(type, options, ours, "ours"));
    put_members(ours, "{\"num_hidden_layers\": 3, \"tie_word_embeddings\": true, \"rope_theta\": 5}");
    assert_int_equal(foreign_agrees(type, options, ours, "ours"), ERR_CONFIG);
    static const char *const said[] = {
        "layers = 32, and the weights are of layers = 3", "tied = no, and the weights are of tied = yes",
        "rope_theta = 10000, and the weights are of rope_theta = 5", "ours/config.json differ"};
    for (int i = 0; i < 4; i++)
        if (!strstr(err_last()->text, said[i])) fail_msg("\"%s\" is not in: %s", said[i], err_last()->text);
    assert_null(strstr(err_last()->text, "vocab"));
    assert_null(strstr(err_last()->text, "heads ="));
    for (int i = 0; i < gpt->keys; i++) {  // choices of a run
        const setting *k = &gpt->key[i];
        if (strcmp(k->key, "dropout") == 0) *(double *)((char *)others + k->offset) = 0.25;
        if (strcmp(k->key, "head_chunks") == 0) *(int64_t *)((char *)others + k->offset) = 7;
    }
    OK(foreign_agrees(gpt, others, theirs, "theirs"));
    free(options), free(others);
    json_decref(ours), json_decref(theirs);
}

// --- one file --------------------------------------------------------------------------------------------------------

typedef struct rig {
    char *dir;
    const model_type *type;
    void *options;
    model *m;
} rig;

static void rig_open(rig *r, const char *text) {
    json_t *config = json_of(text);
    r->dir = make_dir();
    r->options = options_of(config, &r->type);
    if (!r->options) fail_msg("%s: %s", text, err_last()->text);
    OK(model_open(&r->m, r->type, r->options));
    json_decref(config);
}

static void rig_close(rig *r) {
    model_close(r->m);
    free(r->options);
    drop_dir(r->dir);
}

static const char small_llama[] =
    LLAMA "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"hidden_size\": 8, "
          "\"intermediate_size\": 12, \"vocab_size\": 20, \"max_position_embeddings\": 16}";
static const char small_gpt[] =
    GPT2 "\"n_layer\": 2, \"n_head\": 2, \"n_embd\": 8, \"n_positions\": 16, \"vocab_size\": 20}";

// What is another way in a file than it would be: the tensor's name, NULL: it is not there; its type and the rows that
// it has more.
typedef struct change {
    const char *tensor, *as;
    st_type type;
    int more_rows;
} change;

static const change *change_of(const change *all, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (all[i].tensor && strcmp(all[i].tensor, name) == 0) return &all[i];
    return NULL;
}

// The tensors of a model as they would be in a file, but for the changes; a change without a tensor adds one of a
// single element.
static int tensors_of(const model *m, bool prefixed, const change *all, int changes, st_tensor *table) {
    int count = 0;
    for (int i = 0; i < m->params; i++) {
        const struct param *p = &m->param[i];
        weight_part part[WEIGHT_PARTS];
        int parts = p->tied >= 0 ? 0 : m->type->parts(m->options, p, part);
        for (int k = 0; k < parts; k++) {
            int64_t rows = part[k].rows, cols = p->dims > 1 ? p->size[1] : 0;
            st_tensor t = {.type = ST_F32, .dims = p->dims};
            snprintf(t.name, sizeof t.name, "%s%s", prefixed && part[k].prefixed ? m->type->prefix : "", part[k].name);
            const change *c = change_of(all, changes, t.name);
            if (c && !c->as) continue;
            if (c) snprintf(t.name, sizeof t.name, "%s", c->as), t.type = c->type, rows += c->more_rows;
            t.size[0] = part[k].transposed ? cols : rows, t.size[1] = part[k].transposed ? rows : cols;
            table[count++] = t;
        }
    }
    for (int i = 0; i < changes; i++)
        if (!all[i].tensor) {
            st_tensor t = {.type = ST_F32, .dims = 1, .size = {1}};
            snprintf(t.name, sizeof t.name, "%s", all[i].as);
            table[count++] = t;
        }
    return count;
}

enum { TENSORS = 128 };

// says: of which each must be in the message; none: it is taken.
static void expect_match(const rig *r, bool prefixed, bool resize, const change *all, int changes,
                         const char *const *says) {
    char path[600];
    st_tensor table[TENSORS] = {0};
    weights *w;
    weights_map *map;
    snprintf(path, sizeof path, "%s/file.safetensors", r->dir);
    write_tensors(path, table, tensors_of(r->m, prefixed, all, changes, table));
    OK(weights_open(&w, path));
    err_t rc = weights_match(&map, w, r->m, r->options, resize);
    const char *what = changes ? all[0].tensor ? all[0].tensor : all[0].as : "no change";
    if (rc != (*says ? ERR_DATA : ERR_OK)) fail_msg("%s: %d, %s", what, rc, rc == ERR_OK ? "taken" : err_last()->text);
    for (; *says; says++)
        if (!strstr(err_last()->text, *says)) fail_msg("%s: \"%s\" is not in: %s", what, *says, err_last()->text);
    weights_map_close(map), weights_close(w);
}
static const char *const taken[] = {NULL};
#define SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define MATCHES(r, prefixed, resize, says, ...) \
    expect_match(r, prefixed, resize, (const change[]){__VA_ARGS__}, \
                 (int)(sizeof((const change[]){__VA_ARGS__}) / sizeof(change)), says)

// With the prefix of their family or without it; but what has none is not found under it.
static void names_have_a_prefix_or_none(void **state) {
    (void)state;
    static const char *const models[] = {small_llama, small_gpt};
    for (int i = 0; i < 2; i++) {
        rig r;
        rig_open(&r, models[i]);
        expect_match(&r, true, false, NULL, 0, taken);
        expect_match(&r, false, false, NULL, 0, taken);
        rig_close(&r);
    }
    rig r;
    rig_open(&r, small_llama);
    MATCHES(&r, true, false, SAYS("1 of its tensors", "\n  lm_head.weight is missing"),
            {"lm_head.weight", "model.lm_head.weight", ST_F32, 0});
    MATCHES(&r, true, false,
            SAYS("2 of its tensors", "\n  model.norm.weight is missing", "\n  lm_head.weight is missing"),
            {"lm_head.weight", NULL, ST_F32, 0}, {"model.norm.weight", NULL, ST_F32, 0});
    MATCHES(&r, false, false, SAYS("1 of its tensors", "\n  layers.1.self_attn.k_proj.weight is missing"),
            {"layers.1.self_attn.k_proj.weight", NULL, ST_F32, 0});
    MATCHES(&r, true, false, taken,
            {"model.layers.1.self_attn.k_proj.weight", "layers.1.self_attn.k_proj.weight", ST_F32, 0});
    rig_close(&r);
}

static void each_tensor_has_its_shape_and_type(void **state) {
    (void)state;
    static const char *const floats[] = {"F16", "BF16", "F64"};
    static const st_type types[] = {ST_F16, ST_BF16, ST_F64};
    rig r;
    rig_open(&r, small_llama);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(st_type_name(types[i]), floats[i]);
        MATCHES(&r, true, false, taken,
                {"model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight", types[i], 0});
    }
    MATCHES(&r, true, false, SAYS("model.layers.1.mlp.up_proj.weight holds I32, expected numbers"),
            {"model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight", ST_I32, 0});
    MATCHES(&r, true, true, SAYS("1 of its", "model.layers.1.mlp.up_proj.weight is (13,8), expected (12,8)"),
            {"model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight", ST_F32, 1});
    MATCHES(&r, true, true,
            SAYS("model.layers.0.self_attn.v_proj.weight is (3,8), expected (4,8)",
                 "model.norm.weight is (9), expected (8)"),
            {"model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.v_proj.weight", ST_F32, -1},
            {"model.norm.weight", "model.norm.weight", ST_F32, 1});
    static const char *const tables[] = {"model.embed_tokens.weight", "lm_head.weight"};
    for (int i = 0; i < 2; i++)
        for (int more = -1; more < 2; more += 2) {
            char want[128];
            snprintf(want, sizeof want, "%s is (%d,8), expected (20,8); [model] init_resize = yes", tables[i],
                     20 + more);
            MATCHES(&r, true, true, taken, {tables[i], tables[i], ST_F32, more});
            MATCHES(&r, true, false, SAYS(want), {tables[i], tables[i], ST_F32, more});
        }
    rig_close(&r);
    rig_open(&r, small_gpt);
    MATCHES(&r, true, true, SAYS("transformer.h.1.mlp.c_fc.weight is (8,33), expected (8,32)"),
            {"transformer.h.1.mlp.c_fc.weight", "transformer.h.1.mlp.c_fc.weight", ST_F32, 1});
    MATCHES(&r, true, true, taken, {"transformer.wpe.weight", "transformer.wpe.weight", ST_F32, 1});
    rig_close(&r);
}

// Buffers that follow from the settings may be there, and nothing else.
static void what_no_model_has_is_named(void **state) {
    (void)state;
    rig r;
    rig_open(&r, small_gpt);
    MATCHES(&r, true, false, taken, {NULL, "transformer.h.0.attn.bias", ST_F32, 0},
            {NULL, "transformer.h.1.attn.masked_bias", ST_F32, 0});
    MATCHES(&r, true, false, SAYS("1 of its", "\n  transformer.h.0.attn.bias_2 is not of this model"),
            {NULL, "transformer.h.0.attn.bias_2", ST_F32, 0});
    MATCHES(
        &r, true, false,
        SAYS("2 of its", "\n  transformer.h.2.ln_1.bias is not of this model", "\n  score.weight is not of this model"),
        {NULL, "score.weight", ST_F32, 0}, {NULL, "transformer.h.2.ln_1.bias", ST_F32, 0});
    rig_close(&r);
    rig_open(&r, small_llama);
    MATCHES(&r, true, false, taken, {NULL, "model.layers.1.self_attn.rotary_emb.inv_freq", ST_F32, 0},
            {NULL, "model.rotary_emb.inv_freq", ST_F32, 0});
    MATCHES(&r, true, false, SAYS("model.layers.1.self_attn.q_proj.bias is not of this model"),
            {NULL, "model.layers.1.self_attn.q_proj.bias", ST_F32, 0});
    rig_close(&r);
}

// Files of a directory are all looked at: what a later one has more is named as well.
static void what_no_model_has_is_named_in_each_file(void **state) {
    (void)state;
    rig r;
    rig_open(&r, small_llama);
    for (int extra = 0; extra < 3; extra++) {  // in no file, in the first, in the second
        st_tensor table[TENSORS] = {0};
        char path[700], index[16384];
        weights *w;
        weights_map *map;
        int count = tensors_of(r.m, true, NULL, 0, table), half = count / 2;
        size_t n = (size_t)snprintf(index, sizeof index, "{\"weight_map\": {");
        for (int file = 1; file <= 2; file++) {
            st_tensor part[TENSORS] = {0};
            int first = file == 1 ? 0 : half, some = file == 1 ? half : count - half;
            memcpy(part, table + first, (size_t)some * sizeof *part);
            if (extra == file)
                part[some] = (st_tensor){.name = "score.weight", .type = ST_F32, .dims = 1, .size = {1}}, some++;
            for (int i = 0; i < some; i++) {
                const char *comma = file == 1 && i == 0 ? "" : ", ";
                n += (size_t)snprintf(index + n, sizeof index - n, "%s\"%s\": \"%d.st\"", comma, part[i].name, file);
            }
            snprintf(path, sizeof path, "%s/%d.st", r.dir, file);
            write_tensors(path, part, some);
        }
        snprintf(index + n, sizeof index - n, "}}");
        write_text(r.dir, "model.safetensors.index.json", index);
        OK(weights_open(&w, r.dir));
        err_t rc = weights_match(&map, w, r.m, r.options, false);
        if (rc != (extra ? ERR_DATA : ERR_OK))
            fail_msg("file %d: %s", extra, rc == ERR_OK ? "taken" : err_last()->text);
        if (extra) assert_non_null(strstr(err_last()->text, "score.weight is not of this model"));
        weights_map_close(map), weights_close(w);
    }
    rig_close(&r);
}

// Of many faults those are named that fit into a message; all are counted.
static void many_faults_are_counted(void **state) {
    (void)state;
    enum { MANY = 60 };
    static change all[MANY];
    static char names[MANY][ST_NAME];
    rig r;
    rig_open(&r, small_gpt);
    for (int count = 5; count <= MANY; count += MANY - 5) {
        const char *says[MANY + 2] = {0};
        char first[64];
        snprintf(first, sizeof first, "file.safetensors: %d of its tensors are not those", count);
        says[0] = first;
        for (int i = 0; i < count; i++) {
            snprintf(names[i], sizeof names[i], "extra.%02d", i);
            all[i] = (change){NULL, names[i], ST_F32, 0};
            if (i < 10) says[1 + i] = names[i];
        }
        expect_match(&r, true, false, all, count, says);
    }
    rig_close(&r);
}

// The tensors of a model under its own names, as a checkpoint has them, the embedding with so many rows more.
static int own_tensors(const model *m, int more, st_tensor *table) {
    int count = 0;
    for (int i = 0; i < m->params; i++) {
        const struct param *p = &m->param[i];
        if (p->tied >= 0) continue;
        st_tensor t = {.type = ST_F32, .dims = p->dims, .size = {p->size[0], p->dims > 1 ? p->size[1] : 0}};
        snprintf(t.name, sizeof t.name, "%s", p->name);
        if (strcmp(p->name, "embed_tokens.weight") == 0) t.size[0] += more;
        table[count++] = t;
    }
    return count;
}

// Rows that a table lacks are those of a new model, and of one that has more the first ones are taken: whatever range
// is read, from others' files and from a checkpoint.
static void rows_that_are_not_there_are_new(void **state) {
    (void)state;
    enum { ROWS = 20, COLS = 8, N = ROWS * COLS, SEED = 5 };
    static const int more[] = {-7, 0, 7};
    rig r;
    rig_open(&r, small_llama);
    int table = model_find(r.m, "embed_tokens.weight");
    float fresh[N], found[N];
    model_init(r.m, table, SEED, 0, N, fresh);
    for (int of = 0; of < 6; of++) {
        char path[600];
        int i = of % 3;
        st_tensor tensors[TENSORS] = {0};
        weights *w;
        weights_map *map;
        const change c = {"model.embed_tokens.weight", "model.embed_tokens.weight", ST_F32, more[i]};
        snprintf(path, sizeof path, "%s/rows.safetensors", r.dir);
        write_tensors(path, tensors,
                      of < 3 ? tensors_of(r.m, true, &c, 1, tensors) : own_tensors(r.m, more[i], tensors));
        OK(weights_open(&w, path));
        OK(weights_match(&map, w, r.m, r.options, true));
        for (int first = 0; first < N; first += 13)
            for (int count = 1; first + count <= N; count += 17) {
                OK(weights_read(map, table, first, count, SEED, found));
                for (int k = 0; k < count; k++) {
                    float want = first + k < (ROWS + (more[i] < 0 ? more[i] : 0)) * COLS ? 0.5f : fresh[first + k];
                    if (found[k] != want)
                        fail_msg("%d rows more, element %d of %d from %d on: %g, expected %g", more[i], k, count, first,
                                 (double)found[k], (double)want);
                }
            }
        weights_map_close(map), weights_close(w);
    }
    rig_close(&r);
}

// --- rope ---------------------------------------------------------------------------------------------------------

// Llama 3.1's stretching where `low` is not 1: these steps are transformers' (5.24.0: ROPE_INIT_FUNCTIONS["llama3"]).
static void waves_are_stretched(void **state) {
    static const float steps[16] = {1.0f,           0.715995133f,   0.402633697f,   0.226417571f,
                                    0.127323955f,   0.0715995133f,  0.0444569848f,  0.0333380364f,
                                    0.025f,         0.0187473539f,  0.0140585322f,  0.0105424123f,
                                    0.00790569466f, 0.00592843397f, 0.00444569858f, 0.00333380373f};
    const rope r = {.kind = ROPE_LLAMA3, .theta = 100, .factor = 4, .low = 2, .high = 8, .original = 64};
    (void)state;
    for (int i = 0; i < 16; i++) {
        float found = rope_step(&r, i, 32);
        if (fabsf(found - steps[i]) > 3e-7f * steps[i])
            fail_msg("pair %d turns by %.9g, expected %.9g", i, (double)found, (double)steps[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waves_are_stretched),
        cmocka_unit_test(angles_are_those_of_the_last_word),
        cmocka_unit_test(windows_are_those_of_all_layers),
        cmocka_unit_test(layers_of_gemma_differ_by_a_pattern),
        cmocka_unit_test(a_family_has_its_own_keys),
        cmocka_unit_test(values_of_another_type_are_refused),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(every_difference_is_named),
        cmocka_unit_test(names_have_a_prefix_or_none),
        cmocka_unit_test(each_tensor_has_its_shape_and_type),
        cmocka_unit_test(what_no_model_has_is_named),
        cmocka_unit_test(what_no_model_has_is_named_in_each_file),
        cmocka_unit_test(many_faults_are_counted),
        cmocka_unit_test(rows_that_are_not_there_are_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
