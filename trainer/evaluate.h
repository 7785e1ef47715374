// trainer/evaluate.h: what the weights are worth, and what they write.
#ifndef TRAINER_EVALUATE_H
#define TRAINER_EVALUATE_H

#include "data/data.h"
#include "trainer/step/step.h"

// Mean loss over the first `batches` micro-batches of windows of the split, in order (0: all of them; the last may be smaller). Losses of
// samples are added in double in order of sample. Uses the runner's activations.
err_t evaluate(step_runner *r, dataset *val, int64_t batches, double *loss, int64_t *windows);

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
err_t generate(step_runner *r, const generate_options *o);

#endif
