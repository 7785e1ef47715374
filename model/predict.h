// model/predict.h: continues a text: what a model with a vocabulary is sampled for.
#ifndef MODEL_PREDICT_H
#define MODEL_PREDICT_H

#include "model/model.h"

typedef struct predict_options {
    const char *prompt;  // bytes, each a token
    const int32_t *ids;  // or its tokens, `count` of them; NULL: the bytes
    int64_t count;
    int64_t tokens;      // to draw after it, at most
    double temperature;  // 0: always the likeliest
    // Of what is left by those before it, in this order, as in Hugging Face's generate; equals of the least likely that stays stay too.
    int64_t top_k;                          // choose among the k likeliest, 0: all
    double top_p;                           // among the likeliest that together have this probability, 0 or 1: all
    double min_p;                           // among those at least so likely as this share of the likeliest, 0: all
    uint64_t seed;                          // of the run
    int64_t step;                           // of the weights: each step of each seed has its own draws
    bool (*put)(void *ctx, int32_t token);  // called for each new token; false: it was the last one
    void *ctx;
} predict_options;

// What drawing needs of its caller.
typedef struct predict_with {
    int32_t *context;      // (model.context)
    float *scores, *copy;  // (V) each
    // scores (=) the model's for what follows these tokens, at most `context` of them
    err_t (*score)(void *ctx, const int32_t *tokens, int64_t count, float *scores);
    void *ctx;
} predict_with;

// Draws each token from the distribution after the last `context` ones. ERR_CONFIG: the model predicts nothing, or the
// prompt is not in its vocabulary.
err_t predict(const model *m, const predict_options *o, const predict_with *w);

// Whether predict() would take this prompt, or, if ids is not NULL, these tokens. ERR_CONFIG: it would not; the model has a vocabulary.
err_t predict_check(const model *m, const char *prompt, const int32_t *ids, int64_t count);

#endif
