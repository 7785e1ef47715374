// model/rule.h: the rules between the keys of a model, for the `resolve` of an architecture and for who calls it.
#ifndef MODEL_RULE_H
#define MODEL_RULE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { RULE_DIVIDED = 32, RULE_KEYS = 4 };  // 32: half of the hidden layers that a perceptron may have
// Input and result of model_type.resolve. Keys are given by name, those of other sections as "parallel.slices".
typedef struct model_rule {
    int64_t micro;                      // samples of a micro-batch
    bool gpu;                           // the run is on GPUs
    int64_t slices;                     // [parallel] slices; 0: 1
    bool rows;                          // [parallel] sequence: the residual stream's rows are divided
    int64_t tokens;                     // [parallel] token_slices; 0: 1
    int blocks;                         // which the stages of a pipeline divide among them
    const char *chosen[RULE_KEYS];      // keys that were left open and are now filled in; NULL: no more
    const char *broken[RULE_KEYS];      // the keys of the rule that does not hold
    const char *divided[RULE_DIVIDED];  // keys whose values the slices must divide; NULL: none
    int64_t value[RULE_DIVIDED];        // ... and these values
} model_rule;

// What the options of every architecture begin with: how the model is divided. Filled in by resolve.
typedef struct model_division {
    int64_t slices, tokens;  // 0: 1
} model_division;

// How these rules divide a model of texts of so many positions, whose width is `embed` where some of it is dropped (0:
// nothing is). ERR_CONFIG: the rows of a micro-batch can't be.
err_t rule_divide_texts(model_rule *r, int64_t context, int64_t dropped, model_division *by);

// The same of a model without positions, which is called `what`: layers alone.
err_t rule_divide_layers(model_rule *r, const char *what, model_division *by);

// Sizes of a decoder whose query heads share keys and values, turn by their position, and whose MLP has a gate.
typedef struct decoder_sizes {
    int64_t layers, heads, embed, context;
    int64_t *kv_heads, *head_dim, *hidden;  // where left open: heads; embed / heads; 8/3 embed, up to a multiple of 64
} decoder_sizes;

// Fills in what was left open, and says what slices divide. ERR_CONFIG: heads can't share keys and values so, or can't be turned in pairs; or as
// rule_divide_texts.
err_t rule_decoder(model_rule *r, const decoder_sizes *x, model_division *by);

// Says that the rule between up to four keys is broken; NULL: no such key.
void rule_break(model_rule *r, const char *a, const char *b, const char *c, const char *d);

// Fills in a key that was left open.
void rule_choose(model_rule *r, const char *key, int64_t *at, int64_t value);

#endif
