// model/mlp/mlp.h: the options of the multilayer perceptron, for model/types.h.
#ifndef MODEL_MLP_MLP_H
#define MODEL_MLP_MLP_H

#include "base/key.h"
#include "model/rule.h"

#include <stdint.h>

enum { MLP_HIDDEN_MAX = 64 };

typedef struct mlp_options {
    model_division by;
    int64_t inputs, classes;
    char hidden[KEY_TEXT_MAX];      // "256 128": widths, as in the file
    int64_t width[MLP_HIDDEN_MAX];  // the same as numbers, `layers` of them: read by resolve
    int layers;
    int activation;  // mlp_activation
} mlp_options;

typedef enum { MLP_RELU, MLP_GELU } mlp_activation;

#endif
