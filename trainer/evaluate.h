// trainer/evaluate.h: the loss on validation data, and text generation.
#ifndef TRAINER_EVALUATE_H
#define TRAINER_EVALUATE_H

#include "data/data.h"
#include "trainer/step/step.h"

// Buffers for evaluating and sampling, in addition to the runner's.
typedef struct evaluator {
    step_runner *r;
    tensor windows;           // (2*B+1, T+1) INT32: an evaluation batch
    tensor window_loss;       // (world*B) FP64 on the device: losses of a round of an evaluation
    tensor host_window_loss;  // the same on the host
    tensor logits;            // (V) FP32 on the device: of the last position, for sampling
    tensor host_logits;       // (2,V) FP32: the same on the host, and a copy for selection
    tensor context;           // (T) INT32: tokens that a sample continues
} evaluator;

// Call it between step_open and step_commit, which allocates these buffers with the runner's.
err_t evaluator_declare(evaluator *k, step_runner *r);

// Mean loss over the first `batches` micro-batches of windows of the split, in order (0: all of them; the last may be
// smaller). The samples' losses are added as doubles, in order. Uses the runner's activations.
err_t evaluate(evaluator *k, dataset *val, int64_t batches, double *loss, int64_t *windows);

typedef struct generate_options {
    const char *prompt;     // bytes
    int64_t tokens;         // to generate after it
    double temperature;     // 0: always the likeliest
    int64_t top_k;          // choose among the k likeliest and their equals, 0: all
    uint64_t seed;          // of the run
    int64_t step;           // of the weights: each step of each seed has its own draws
    void (*put)(void *ctx, int32_t token);  // called for each new token
    void *ctx;
} generate_options;

// Continues the prompt: each token is drawn from the model's distribution after the last `context` ones.
err_t generate(evaluator *k, const generate_options *o);

#endif
