// model/op/adapter.h: low-rank matrices beside the frozen one of a product (model/rule.h: model_adapters).
#ifndef MODEL_OP_ADAPTER_H
#define MODEL_OP_ADAPTER_H

#include "model/foreign.h"
#include "model/op/op.h"

typedef struct adapter {
    char name[MODEL_NAME];   // of its parameters, without ".lora_A.weight"
    int64_t outputs, first;  // of its part of the product; where they begin in a slice
    value u;                 // x A^T
} adapter;

// Of one product: one for each of its parts that is named.
typedef struct adapters {
    adapter at[WEIGHT_PARTS];
    int count;
    projection of;
    bool whole;  // one adapter is for all of the product's outputs, which may be several matrices
} adapters;

// Before the product of x with row w of the table: x A^T of each adapter.
adapters adapters_down(graph *g, value x, int w, const projection *of);
// After it: y with what the adapters add, in y's memory.
value adapters_up(graph *g, value y, const adapters *a);

#endif
