// trainer/step.h: one training step: lanes of micro-batches forward and backward, their sum along the fixed tree, one update.
#ifndef TRAINER_STEP_H
#define TRAINER_STEP_H

#include "comm/comm.h"
#include "data/data.h"
#include "trainer/config.h"
#include "trainer/state.h"

typedef struct step_runner {
    const config *cfg;
    device *dev;
    stream *s;
    comm *ranks;
    model *net;
    train_state *state;
    arena memory;             // activations and batch buffers
    tensor tokens, targets;   // (B,T) INT32 on the device
    tensor sample_loss;       // (G) FP64 on the device: mean loss of each sample of the step
    arena staging;            // pinned: what goes between host and device
    tensor host_loss;         // (G) FP64: sample_loss on the host
    tensor windows;           // (2*B+1, T+1) INT32: an evaluation batch
    tensor logits;            // (V) FP32 on the device: the last position's, for sampling
    tensor host_logits;       // (2,V) FP32: the same on the host, and room to sort them
    tensor context;           // (T) INT32: tokens that a sample continues
    event *copied;            // the batch has left the loader's ring
    step_rules rules;
} step_runner;

// What a finished step has to tell.
typedef struct step_result {
    double loss;       // mean over the step's samples, added in order of sample
    double grad_norm;  // before clipping
    double lr, loss_scale;
    bool applied;      // false: skipped for overflow
    int64_t adam_t, good_steps, skipped;
} step_result;

err_t step_open(step_runner *r, const config *cfg, device *dev, stream *s, comm *ranks, model *net, train_state *state);
void step_close(step_runner *r);

// Runs lanes first .. first+count-1 of the step, whose micro-batches come next from the loader, and leaves their maximal subtrees in *c
// (over state->slab). The building block of step_run; ranks differ only in which lanes they run.
err_t step_lanes(step_runner *r, loader *data, int64_t step, int64_t first, int64_t count, lane_counter *c);

// Updates the weights from the whole sum in slab[sum].
err_t step_update(step_runner *r, int64_t step, int sum);

// All of it, for this rank. The host waits for the end.
err_t step_run(step_runner *r, loader *data, int64_t step, step_result *out);

#endif
