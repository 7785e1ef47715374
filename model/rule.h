// model/rule.h: rules between the keys of a model, for model_type.resolve and its callers.
#ifndef MODEL_RULE_H
#define MODEL_RULE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// Adapters: low-rank matrices beside frozen ones (Hu et al. 2022). y = x W^T + alpha / rank * (d(x) A^T) B^T, A
// (rank,I), B (O,rank), where `targets` names W; d drops elements in training.
enum { ADAPTER_TARGETS = 256, FROZEN_GLOBS = 512 };
typedef struct model_adapters {
    int64_t rank;  // 0: there are none, and of the model's own weights only those are frozen that `frozen` says
    double alpha;
    double dropout;                 // the probability that an element of x is dropped
    bool int8;                      // the frozen matrices beside them are kept in 8 bits
    char targets[ADAPTER_TARGETS];  // ends of names, space between (model/op/adapter.h)
    // globs of parameters' names, space between. The first that matches decides: with `-` before it the parameter is
    // frozen, with `+` it is trained, as is one that none matches
    char frozen[FROZEN_GLOBS];
} model_adapters;

// Is the parameter of this name frozen by itself, whatever adapters there are?
bool adapters_freeze(const model_adapters *is, const char *name);

// The next of the targets at `t`, and its length; "": there is none.
const char *adapter_target(const char *t, size_t *n);

enum { RULE_DIVIDED = 32, RULE_KEYS = 4 };  // 32: half of the hidden layers that a perceptron may have
// Input and result of model_type.resolve. Keys are given by name, those of other sections as "parallel.slices".
typedef struct model_rule {
    int64_t micro;                      // samples of a micro-batch
    bool gpu;                           // the run is on GPUs
    int64_t slices;                     // [parallel] slices; 0: 1
    bool rows;                          // [parallel] sequence: the residual stream's rows are divided
    int64_t tokens;                     // [parallel] token_slices; 0: 1
    int64_t span;                       // [batch] bn_span, in lanes: of micro-batches that are computed as one; 0: 1
    const model_adapters *adapters;     // [lora]; NULL: none
    bool documents;                     // [data] documents: a sample is several, each a text of its own
    int blocks;                         // which the stages of a pipeline divide among them
    bool demand;                        // rows of tables are made on demand
    bool tied;                          // the first block and the last one share a tensor
    bool shared;                        // so do blocks in between
    const char *chosen[RULE_KEYS];      // keys that were left open and are now filled in; NULL: no more
    const char *broken[RULE_KEYS];      // the keys of the rule that does not hold
    const char *divided[RULE_DIVIDED];  // keys whose values the slices must divide; NULL: none
    int64_t value[RULE_DIVIDED];        // ... and these values
} model_rule;

// What the options of every architecture begin with: how the model is divided, and what is added to it. Filled in by
// resolve.
typedef struct model_division {
    int64_t slices, tokens;  // 0: 1
    bool documents;          // of a model of texts: no position sees a document but its own
    model_adapters adapters;
} model_division;

// Divides a model of texts with `context` positions. `dropped`: the width of what dropout acts on; 0: nothing.
// ERR_CONFIG: the rows of a micro-batch can't be divided.
err_t rule_divide_texts(model_rule *r, int64_t context, int64_t dropped, model_division *by);

// The same for a model without positions, called `what`: only its layers are divided.
err_t rule_divide_layers(model_rule *r, const char *what, model_division *by);

// The same for a model of texts, called `what`, that works on whole samples, and whose narrowest part has so many rows
// of a sample: only its layers are divided.
err_t rule_divide_encoder(model_rule *r, const char *what, int64_t rows, model_division *by);

// The same for a model of images, called `what`, whose batch norms take moments of a span: its lanes are the token
// slices, and have whole samples. Its layers are not divided.
err_t rule_divide_samples(model_rule *r, const char *what, model_division *by);

// ERR_CONFIG with this text, for a broken rule between these keys: `return rule_break(r, KEYS("heads", "embed"), "%d
// ...", ...);`
#define KEYS(...) ((const char *const[RULE_KEYS]){__VA_ARGS__})
#define rule_break(r, keys, ...) (memcpy((r)->broken, keys, sizeof(r)->broken), err_set(ERR_CONFIG, __VA_ARGS__))

// Fills in a key that was left open.
void rule_choose(model_rule *r, const char *key, int64_t *at, int64_t value);

#endif
