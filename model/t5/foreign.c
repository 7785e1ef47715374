// model/t5/foreign.c: T5 as Hugging Face has it. Keys and values, and the gate and what it acts on, are matrices of
// their own there.
#include "model/foreign.h"
#include "model/t5/t5.h"

#include <stdio.h>
#include <string.h>

static bool ends(const char *name, const char *with) {
    size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

int t5_parts(const void *options, const param *p, weight_part *part) {
    static const char *const keys[] = {"k.weight", "v.weight"}, *const gates[] = {"wi_0.weight", "wi_1.weight"};
    const t5_options *o = options;
    bool kv = ends(p->name, ".kv.weight"), gate = o->activation == T5_GEGLU && ends(p->name, ".wi.weight");
    int parts = kv || gate ? 2 : 1;
    for (int k = 0; k < parts; k++) {
        part[k] =
            (weight_part){.table = strcmp(p->name, "shared.weight") == 0 || strcmp(p->name, "lm_head.weight") == 0,
                          .rows = p->size[0] / parts};
        int n = (int)(strlen(p->name) - (kv ? strlen("kv.weight") : strlen("wi.weight")));
        if (parts == 1) memcpy(part[k].name, p->name, sizeof part[k].name);
        else snprintf(part[k].name, sizeof part[k].name, "%.*s%s", n, p->name, kv ? keys[k] : gates[k]);
    }
    return parts;
}

// Copies of the embedding, and a table that older files have and nothing reads.
bool t5_ignores(const void *options, const char *name) {
    (void)options;
    return strcmp(name, "encoder.embed_tokens.weight") == 0 || strcmp(name, "decoder.embed_tokens.weight") == 0 ||
           strcmp(name, "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight") == 0;
}

void t5_from_foreign(void *options, foreign_reader *r) {
    t5_options *o = options;
    const char *mlp = foreign_text(r, "feed_forward_proj", "relu");
    o->layers = foreign_int(r, "num_layers", 6);
    o->decoder_layers = foreign_int(r, "num_decoder_layers", o->layers);
    o->heads = foreign_int(r, "num_heads", 8);
    o->head_dim = foreign_int(r, "d_kv", 64);
    o->embed = foreign_int(r, "d_model", 512);
    o->hidden = foreign_int(r, "d_ff", 2048);
    o->vocab = foreign_int(r, "vocab_size", 32128);
    o->buckets = foreign_int(r, "relative_attention_num_buckets", 32);
    o->max_distance = foreign_int(r, "relative_attention_max_distance", 128);
    o->norm_eps = foreign_real(r, "layer_norm_epsilon", 1e-6);
    o->begin_token = foreign_int(r, "decoder_start_token_id", foreign_int(r, "pad_token_id", 0));
    o->end_token = foreign_int(r, "eos_token_id", 1);
    // transformers 5 calls the head tied even where it is not, and says here what is meant
    o->tied = foreign_bool(r, "scale_decoder_outputs", foreign_bool(r, "tie_word_embeddings", true));
    if (o->sentinel_token >= o->vocab) o->sentinel_token = o->vocab - 1;  // that of the published models
    o->activation = strcmp(mlp, "gated-gelu") == 0 ? T5_GEGLU : T5_RELU;
    if (o->activation == T5_RELU && strcmp(mlp, "relu") != 0)
        foreign_refuse(r, "feed_forward_proj", "expected gated-gelu or relu: others are not known here");
}

err_t t5_to_foreign(const void *options, json_t *config) {
    const t5_options *o = options;
    json_t *all = json_pack(
        "{s:[s], s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:b, s:b, s:I, s:I, s:I, s:I, "
        "s:f}",
        "architectures", "T5ForConditionalGeneration", "model_type", "t5", "is_encoder_decoder", 1, "num_layers",
        (json_int_t)o->layers, "num_decoder_layers", (json_int_t)o->decoder_layers, "num_heads", (json_int_t)o->heads,
        "d_kv", (json_int_t)o->head_dim, "d_model", (json_int_t)o->embed, "d_ff", (json_int_t)o->hidden, "vocab_size",
        (json_int_t)o->vocab, "relative_attention_num_buckets", (json_int_t)o->buckets,
        "relative_attention_max_distance", (json_int_t)o->max_distance, "layer_norm_epsilon", o->norm_eps,
        "dropout_rate", o->dropout, "feed_forward_proj", o->activation == T5_RELU ? "relu" : "gated-gelu",
        "tie_word_embeddings", (int)o->tied, "scale_decoder_outputs", (int)o->tied, "pad_token_id", (json_int_t)0,
        "eos_token_id", (json_int_t)o->end_token, "decoder_start_token_id", (json_int_t)o->begin_token, "n_positions",
        (json_int_t)o->context, "initializer_factor", 1.0);
    return json_object_update_new(config, all) ? err_set(ERR_INTERNAL, "no memory for config.json") : ERR_OK;
}
