// model/gemma/gemma.h: the options of Gemma 3, for model/types.h.
#ifndef MODEL_GEMMA_GEMMA_H
#define MODEL_GEMMA_GEMMA_H

#include "base/err.h"
#include "model/rule.h"

#include <stdint.h>

typedef struct gemma_options {
    model_division by;
    int64_t layers, heads, embed, vocab, context;
    int64_t kv_heads, head_dim, hidden, head_chunks;  // 0 in the file: chosen by resolve
    int64_t pattern, window;                          // each pattern-th layer sees all positions, the others the last `window` of them
    double norm_eps;
    double rope_theta, rope_factor, local_theta;  // the first two: of layers that see all
} gemma_options;

// gemma/foreign.c: for model_type.
struct param;
struct weight_part;
struct foreign_reader;
struct json_t;
int gemma_parts(const void *options, const struct param *p, struct weight_part *part);
void gemma_from_foreign(void *options, struct foreign_reader *r);
err_t gemma_to_foreign(const void *options, struct json_t *config);

#endif
