// model/llama/llama.h: the options of Llama and of the families after it, for model/types.h.
#ifndef MODEL_LLAMA_LLAMA_H
#define MODEL_LLAMA_LLAMA_H

#include "model/decoder.h"

#include <stdbool.h>
#include <stdint.h>

// of attention: none; of q, k, v; and of the projection
typedef enum { LLAMA_BIAS_NO, LLAMA_BIAS_QKV, LLAMA_BIAS_ALL } llama_bias;

typedef struct llama_options {
    DECODER_FIELDS;
    int64_t window;  // positions that one sees, itself included; 0: all
    double rope_theta, rope_factor, rope_low, rope_high;
    int64_t rope_original;
    int rope_scaling;  // rope_kind
    int bias;          // llama_bias
    bool qk_norm, tied;
} llama_options;

// llama/foreign.c: for model_type.
struct foreign_reader;
struct json_t;
void llama_from_foreign(void *options, struct foreign_reader *r);
err_t llama_to_foreign(const void *options, struct json_t *config);

#endif
