// model/gpt/foreign.c: GPT-2 as Hugging Face has it: matrices of layers lie as (in,out), those of
// adapters as PEFT has them.
#include "model/foreign.h"
#include "model/gpt/gpt.h"

#include <stdio.h>
#include <string.h>

int gpt_parts(const void *options, const param *p, weight_part *part) {
    (void)options;
    bool layer = strncmp(p->name, "h.", 2) == 0 && !strstr(p->name, ".lora_"),
         table = strcmp(p->name, "wte.weight") == 0 || strcmp(p->name, "wpe.weight") == 0;
    part[0] = (weight_part){.prefixed = true, .transposed = layer && p->dims == 2, .table = table, .rows = p->size[0]};
    snprintf(part[0].name, sizeof part[0].name, "%s", p->name);
    return 1;
}

void gpt_from_foreign(void *options, foreign_reader *r) {
    gpt_options *o = options;
    o->layers = foreign_int(r, "n_layer", 12);
    o->heads = foreign_int(r, "n_head", 12);
    o->embed = foreign_int(r, "n_embd", 768);
    o->vocab = foreign_int(r, "vocab_size", 50257);
    o->context = foreign_int(r, "n_positions", 1024);
    const char *act = foreign_text(r, "activation_function", "gelu_new");
    if (strcmp(act, "gelu_new") != 0 && strcmp(act, "gelu_pytorch_tanh") != 0)
        foreign_refuse(r, "activation_function", "expected gelu_new, the GELU with a tanh");
    if (foreign_int(r, "n_inner", 4 * o->embed) != 4 * o->embed) foreign_refuse(r, "n_inner", "expected 4 n_embd");
    if (foreign_real(r, "layer_norm_epsilon", 1e-5) != 1e-5) foreign_refuse(r, "layer_norm_epsilon", "expected 1e-5");
    if (!foreign_bool(r, "scale_attn_weights", true)) foreign_refuse(r, "scale_attn_weights", "expected true");
    if (foreign_bool(r, "scale_attn_by_inverse_layer_idx", false))
        foreign_refuse(r, "scale_attn_by_inverse_layer_idx", "expected false");
    if (foreign_bool(r, "add_cross_attention", false)) foreign_refuse(r, "add_cross_attention", "expected false");
    if (!foreign_bool(r, "tie_word_embeddings", true))
        foreign_refuse(r, "tie_word_embeddings", "expected true: the head is the embedding");
}

// n_ctx repeats n_positions: transformers reads it no more, the converter of llama.cpp reads no other.
err_t gpt_to_foreign(const void *options, json_t *config) {
    const gpt_options *o = options;
    json_t *all = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:f, s:b}", "architectures",
        "GPT2LMHeadModel", "model_type", "gpt2", "n_layer", (json_int_t)o->layers, "n_head", (json_int_t)o->heads,
        "n_embd", (json_int_t)o->embed, "vocab_size", (json_int_t)o->vocab, "n_positions", (json_int_t)o->context,
        "n_ctx", (json_int_t)o->context, "activation_function", "gelu_new", "layer_norm_epsilon", 1e-5,
        "initializer_range", 0.02, "attn_pdrop", 0.0, "embd_pdrop", 0.0, "resid_pdrop", 0.0, "tie_word_embeddings", 1);
    return json_object_update_new(config, all) ? err_set(ERR_INTERNAL, "no memory for config.json") : ERR_OK;
}
