// trainer/state.h: the tensors of a run: what a checkpoint holds, and the gradients of one step.
#ifndef TRAINER_STATE_H
#define TRAINER_STATE_H

#include "gpu/gpu.h"
#include "gpu/ops.h"
#include "model/model.h"
#include "trainer/checkpoint.h"
#include "trainer/config.h"

typedef struct train_state {
    model *net;
    device *dev;
    stream *s;
    dtype compute;
    arena memory;
    // One for each row of the parameter table; a tied row shares its partner's tensors.
    tensor *master, *m, *v;  // FP32; m and v absent (data NULL) for inference
    tensor *w;               // compute type; the master itself when that is FP32
    // Gradients: one slab for each buffer of the lane counter, the rows side by side; grad[buffer * params + row] is a view.
    int buffers;
    tensor *slab, *grad;
    tensor sums;             // FP64: squares of each chunk, rows in order
    int64_t *sums_at;        // first chunk of each row
    tensor step;             // one step_state on the device, as raw INT32 words
    ckpt_state ckpt;         // the same tensors as a checkpoint sees them
} train_state;

// Declares and allocates everything; buffers = 0 for inference: no moments, no gradients.
err_t state_open(train_state *t, model *net, device *dev, stream *s, dtype compute, int buffers);
void state_close(train_state *t);

// Random initial values (model_init), or those of a safetensors file: every name must be there with its shape.
err_t state_init(train_state *t, uint64_t seed);
err_t state_init_from(train_state *t, const char *safetensors);

// w = master, rounded. After anything that changed the masters from outside.
err_t state_publish(train_state *t);

// The step_state: host to device and back (waits).
err_t state_set_step(train_state *t, const step_state *from);
err_t state_get_step(train_state *t, step_state *to);

static inline step_state *state_step(const train_state *t) { return t->step.data; }

// ckpt counters <-> step_state. beta powers are rebuilt by repeated multiplication, as the device made them.
void state_from_counters(step_state *to, const ckpt_counters *at, const config *c);

#endif
