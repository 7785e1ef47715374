// model/gemma/gemma.h: the options of Gemma 3, for model/types.h.
#ifndef MODEL_GEMMA_GEMMA_H
#define MODEL_GEMMA_GEMMA_H

#include "model/decoder.h"

#include <stdint.h>

typedef struct gemma_options {
    DECODER_FIELDS;
    // each pattern-th layer sees all positions, the others the last `window` of them
    int64_t pattern, window;
    double rope_theta, rope_factor, local_theta;  // the first two: of layers that see all
} gemma_options;

// gemma/foreign.c: for model_type.
struct foreign_reader;
struct json_t;
void gemma_from_foreign(void *options, struct foreign_reader *r);
err_t gemma_to_foreign(const void *options, struct json_t *config);

#endif
