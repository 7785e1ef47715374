// model/predict.h: continues a text: what a model with a vocabulary is sampled for.
#ifndef MODEL_PREDICT_H
#define MODEL_PREDICT_H

#include "model/model.h"

// How tokens are drawn, the same for all texts of a call.
typedef struct predict_options {
    int64_t tokens;      // to draw after a prompt, at most
    double temperature;  // 0: always the likeliest
    // Each filters what the ones before it left, in this order, as in Hugging Face's generate. Tokens as likely as the
    // least likely one that stays, stay too.
    int64_t top_k;  // choose among the k likeliest, 0: all
    double top_p;   // among the likeliest that together have this probability, 0 or 1: all
    double min_p;   // among those at least so likely as this share of the likeliest, 0: all
    uint64_t seed;  // of the run
    int64_t step;   // of the weights: each step of each seed has its own draws
} predict_options;

typedef struct predict_text {
    const char *prompt;  // bytes, each a token
    const int32_t *ids;  // or its tokens, `count` of them; NULL: the bytes
    int64_t count;
    bool (*put)(void *ctx, int32_t token);  // called for each new token; false: it was the last one
    void *ctx;
} predict_text;

// What follows these tokens?
typedef struct predict_ask {
    int kv_slot;            // 0 .. predict_with.kv_slots-1: a text keeps its slot until it ends
    const int32_t *tokens;  // at most `context` of them
    int64_t count, kept;    // the first `kept` were scored before, in this slot; at least one is new
    // of a model that says another text than it reads (model.reads): tokens of the one that it reads. `tokens` has room
    // for that, then the other one, which has count - model.reads; what is left has valid tokens. What is read is new
    // where `kept` is 0; else `kept` counts its room
    int64_t read;
    float *scores;  // (V) out
} predict_ask;

// What drawing needs of its caller.
typedef struct predict_with {
    int kv_slots;     // texts that grow at the same time
    int32_t *tokens;  // (kv_slots,context)
    float *scores;    // (kv_slots,V)
    float *copy;      // (V)
    // Fills in the scores of each of the `asks`, which are in different slots.
    err_t (*score)(void *ctx, const predict_ask *ask, int asks);
    void *ctx;
} predict_with;

// Continues `count` texts. Each token is drawn from the distribution after the last `context` ones. A continuation
// depends on its prompt, its number in the call and the options, not on other prompts. A model that says another text
// than it reads is given as much of the prompt as it has room for, and says at most as many tokens as it has room for.
// ERR_CONFIG: the model predicts nothing, or a prompt is not in its vocabulary.
err_t predict(const model *m, const predict_options *o, const predict_text *text, int count, const predict_with *w);

// The most tokens that the model says after a prompt, of `wanted`.
int64_t predict_most(const model *m, int64_t wanted);

// ERR_CONFIG: the model does not continue texts.
err_t predict_can(const model *m);

// Would predict() accept this prompt, or, if ids is not NULL, these tokens? ERR_CONFIG: no. The model has a vocabulary.
err_t predict_check(const model *m, const char *prompt, const int32_t *ids, int64_t count);

#endif
