// model/llama/layers.h: the layers of Llama (Touvron et al. 2023): pre-norm blocks of attention and a gated MLP, each with a residual path around it.
//
//   x -> RMS norm -> q,k,v -> (norms of q and k) -> rotary -> attention -> projection -> + x = mid
//   mid -> RMS norm -> gate,up -> silu(gate) * up -> down -> + mid = y
//
// q, k and v are one matrix, (H + 2 KV) D rows, and so are gate and up, 2 F rows.
#ifndef MODEL_LLAMA_LAYERS_H
#define MODEL_LLAMA_LAYERS_H

#include "model/llama/llama.h"
#include "model/model.h"

typedef struct llama_layers llama_layers;

enum { LLAMA_LAYER_PARAMS = 11 };  // at most

// Adds the layers' parameters to m's table: layer l is block l + 1.
err_t llama_layers_open(llama_layers **out, model *m, const llama_options *o);
void llama_layers_close(llama_layers *t);

// Declares their memory; after it was committed, `fill` writes the table of angles.
err_t llama_layers_plan(llama_layers *t, arena *a, const model_plan *o);
err_t llama_layers_fill(llama_layers *t, stream *s);

// y (=) of x, both (B,T,C) of layer l.
err_t llama_layer_forward(llama_layers *t, int l, pass *p, const tensor *y, const tensor *x);

// Backward in two halves. The first forms dx (=) from dy, which it may share memory with, and the gradients of norms. The second forms those of matrices
// and biases. Unless the plan has halves and recomputes nothing, the first does both, in less memory.
err_t llama_layer_inputs(llama_layers *t, int l, pass *p, const tensor *dx, const tensor *dy, const tensor *x);
err_t llama_layer_weights(llama_layers *t, int l, pass *p, const tensor *x);

// (B,T,C) that holds nothing between two blocks.
const tensor *llama_layers_scratch(const llama_layers *t);

#endif
