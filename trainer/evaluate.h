// trainer/evaluate.h: what the weights are worth, and what they write.
#ifndef TRAINER_EVALUATE_H
#define TRAINER_EVALUATE_H

#include "data/data.h"
#include "trainer/step/step.h"

// What evaluating and sampling need beside the runner's buffers.
typedef struct evaluator {
    step_runner *r;
    tensor windows;           // (2*B+1, T+1) INT32: an evaluation batch
    tensor window_loss;       // (world*B) FP64 on the device: losses of a round of an evaluation
    tensor host_window_loss;  // the same on the host
    tensor logits;            // (V) FP32 on the device: the last position's, for sampling
    tensor host_logits;       // (2,V) FP32: the same on the host, and room to sort them
    tensor context;           // (T) INT32: tokens that a sample continues
} evaluator;

// Between step_open and step_commit, which allocates it with the runner's own.
err_t evaluator_declare(evaluator *k, step_runner *r);

// Mean loss over the first `batches` micro-batches of windows of the split, in order (0: all of them; the last may be smaller). Losses of
// samples are added in double in order of sample. Uses the runner's activations.
err_t evaluate(evaluator *k, dataset *val, int64_t batches, double *loss, int64_t *windows);

typedef struct generate_options {
    const char *prompt;     // bytes
    int64_t tokens;         // to be written after it
    double temperature;     // 0: always the likeliest
    int64_t top_k;          // choose among the k likeliest and their equals, 0: all
    uint64_t seed;          // of the run
    int64_t step;           // of the weights: every step of every seed has draws of its own
    void (*put)(void *ctx, int32_t token);  // called for each new token
    void *ctx;
} generate_options;

// Continues the prompt: each token is drawn from the model's distribution after the last `context` ones.
err_t generate(evaluator *k, const generate_options *o);

#endif
