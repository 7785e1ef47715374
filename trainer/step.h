// trainer/step.h: one training step: lanes of micro-batches forward and backward, their sum along the fixed tree, one update.
#ifndef TRAINER_STEP_H
#define TRAINER_STEP_H

#include "data/data.h"
#include "trainer/config.h"
#include "trainer/parallel.h"
#include "trainer/state.h"

// What each rank tells the others of a step.
enum { REPORT_STOP, REPORT_FAILED, REPORT_COMPUTE_MS, REPORT_DATA_MS, REPORT_WAIT_MS, REPORT_BUSY_MS, REPORT_ITEMS };

typedef struct step_runner {
    const config *cfg;
    device *dev;
    stream *s;
    comm *ranks;
    model *net;
    train_state *state;
    parallel together;
    arena memory;             // activations and batch buffers
    tensor tokens, targets;   // (B,T) INT32 on the device
    // What the ranks add up at a step's end. Each number comes from one rank and is zero on all others, so that adding moves it and rounds nothing.
    tensor shared;            // FP64: the three below, one behind the other
    tensor sums;              // (chunks) squares of each chunk of the gradient, rows in order
    tensor sample_loss;       // (G) mean loss of each sample of the step
    tensor reports;           // (world, REPORT_ITEMS)
    int64_t *sums_at;         // first chunk of each row
    arena staging;            // pinned: what goes between host and device
    tensor host_loss;         // (G + world * REPORT_ITEMS) FP64: sample_loss and reports on the host
    tensor host_report;       // (REPORT_ITEMS) FP64: this rank's
    tensor windows;           // (2*B+1, T+1) INT32: an evaluation batch
    tensor window_loss;       // (world*B) FP64 on the device: losses of a round of an evaluation
    tensor host_window_loss;  // the same on the host
    tensor logits;            // (V) FP32 on the device: the last position's, for sampling
    tensor host_logits;       // (2,V) FP32: the same on the host, and room to sort them
    tensor context;           // (T) INT32: tokens that a sample continues
    event *copied;            // the batch has left the loader's ring
    step_rules rules;
    bool stop_wanted;         // this rank was asked to stop
    err_record data_failed;   // why this rank could not read its data in this step
    double began, data_s;     // of the step: when it began, and how long the loader let it wait
} step_runner;

// What a finished step has to tell; the same on all ranks.
typedef struct step_result {
    double loss;       // mean over the step's samples, added in order of sample
    double grad_norm;  // before clipping
    double lr, loss_scale;
    bool applied;      // false: skipped for overflow
    int64_t adam_t, good_steps, skipped;
    bool stop;         // some rank was asked to stop: all do, behind this step
    const double *reports;  // (world, REPORT_ITEMS), until the next step
} step_result;

// Declares everything; step_commit allocates it.
err_t step_open(step_runner *r, const config *cfg, device *dev, stream *s, comm *ranks, model *net, train_state *state);
err_t step_commit(step_runner *r);
void step_close(step_runner *r);

// Runs this rank's lanes of the step, whose micro-batches come next from the loader, and adds all ranks' lanes: the gradient is then
// state_gradient's. Collective.
err_t step_gradient(step_runner *r, loader *data, int64_t step);

// All of it. The host waits for the end. A rank that can't read its data makes the step void on all of them: nothing is updated, and all
// return its ERR_DATA or ERR_IO.
err_t step_run(step_runner *r, loader *data, int64_t step, step_result *out);

// A forward pass without gradients, with the hooks that bring weights.
pass step_inference(step_runner *r, int64_t B, int64_t T);

#endif
