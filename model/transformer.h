// model/transformer.h: pre-norm transformer blocks, as in GPT-2 (Radford et al. 2019):
//
//   mid = x + attention(norm(x));  y = mid + mlp(norm(mid))
//
// with causal attention over H heads and an MLP of width 4C with GELU. They belong to a model, whose table of
// parameters and whose plan they use: layer l is block l + 1.
#ifndef MODEL_TRANSFORMER_H
#define MODEL_TRANSFORMER_H

#include "model/linear.h"

typedef struct transformer transformer;

// Adds the layers' parameters to the table of m, under "h.<l>.", and declares their blocks' outputs, (T,C).
err_t transformer_open(transformer **out, model *m, int layers, int heads, int64_t T, int64_t C);
void transformer_close(transformer *t);

err_t transformer_plan(transformer *t, arena *a, const model_plan *o);

// y = layer l of x.
err_t transformer_forward(transformer *t, int l, pass *p, const tensor *y, const tensor *x);

// Backward in two halves. The first forms dx (=), the gradient of x, from dy, that of y (they may share memory), and the gradients of norms and of those
// biases whose sums cost no further reading there. The second forms those of matrices and of the other biases. Unless the plan has halves and recomputes
// nothing, the first does both, in less memory.
err_t transformer_inputs(transformer *t, int l, pass *p, const tensor *dx, const tensor *dy, const tensor *x);
err_t transformer_weights(transformer *t, int l, pass *p, const tensor *x);

// Scratch (R,C) E for the blocks beside the layers, of as many rows as are here: free while no layer runs.
const tensor *transformer_scratch(const transformer *t);

// eps of every norm.
extern const float NORM_EPS;

#endif
