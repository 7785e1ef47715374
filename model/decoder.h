// model/decoder.h: decoders with grouped-query attention, rotary positions and a gated MLP: their sizes and the rules
// between them, their keys, and their names in files of Hugging Face.
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H

#include "model/keys.h"
#include "model/rope.h"
#include "model/rule.h"

// Their options begin with these; a `decoder` is the beginning of any of them.
#define DECODER_FIELDS \
    model_division by; \
    int64_t layers, heads, embed, vocab, context; \
    int64_t kv_heads, head_dim, hidden, head_chunks; /* 0 in the file: chosen by resolve */ \
    double norm_eps

typedef struct decoder {
    DECODER_FIELDS;
} decoder;

// clang-format off
#define DECODER_KEYS(default_layers) \
    INT(layers, SHAPE, default_layers, 1, 1024, "n_layer num_layers num_hidden_layers depth", "number of blocks"), \
    INT(heads, MEANING, "4", 1, 1024, "n_head num_heads num_attention_heads", "attention heads"), \
    INT(kv_heads, SHAPE, "0", 0, 1024, "num_key_value_heads n_kv_heads", \
        "heads of keys and values, which query heads share; must divide heads; 0 = heads"), \
    INT(head_dim, SHAPE, "0", 0, 1024, "head_size", "elements of a head, an even number; 0 = embed / heads"), \
    INT(embed, SHAPE, "128", 1, 1048576, "n_embd channels hidden_size dim d_model", "channels"), \
    INT(hidden, SHAPE, "0", 0, 16777216, "intermediate_size ffn_dim", "channels inside the MLP; 0 = 8/3 embed, up to a multiple of 64"), \
    INT(vocab, SHAPE, "256", 2, 16777216, "vocab_size", "number of different tokens; 256 for bytes"), \
    INT(context, MAY, "128", 1, ROPE_MOST, "block_size seq_len sequence_length max_position_embeddings", "tokens that the model sees at once")
// clang-format on

// For model_type; options begin with a decoder. resolve fills in sizes that were left open, and says what slices
// divide. ERR_CONFIG: heads can't share keys and values, or have an odd size; or as rule_divide_texts.
err_t decoder_resolve(void *options, model_rule *r);
void decoder_describe(const void *options, char *dst, size_t room);

// q, k and v are three matrices, gate and up are two.
struct param;
struct weight_part;
int decoder_parts(const void *options, const struct param *p, struct weight_part *part);

// Sizes from config.json, and to it, with its class and model_type. unsaid: what they are where it does not say them,
// in the order layers, heads, kv_heads, embed, hidden, head_dim, vocab, context. Returns 0, or -1: no memory.
enum { DECODER_SIZES = 8 };
struct foreign_reader;
struct json_t;
void decoder_from_foreign(decoder *d, struct foreign_reader *r, const int64_t unsaid[DECODER_SIZES]);
int decoder_to_foreign(const decoder *d, struct json_t *config, const char *class, const char *type);

#endif
