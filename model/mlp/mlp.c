// model/mlp/mlp.c: a multilayer perceptron that sorts samples into classes: linear layers with ReLU or GELU after each,
// and softmax cross entropy over the last.
//
// Hidden layers are divided in turn: the first by its outputs, the second by its inputs, and so on (linear.h). The last
// layer's inputs are where the layer before is by its outputs.
//
// Initial values: normal(0, sqrt(2 / inputs of the layer)) (He et al. 2015, equation 10), biases 0.
#include "model/mlp/mlp.h"

#include "model/keys.h"
#include "model/op/op.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- the page --------------------------------------------------------------------------------------------------------

static double std_of(int64_t inputs) { return __builtin_sqrt(2.0 / (double)inputs); }

static void mlp_page(graph *g, const void *options) {
    const mlp_options *o = options;
    char name[MODEL_NAME];
    for (int b = 0; b <= o->layers; b++) {
        value x = begin_block(g, b < o->layers ? "hidden" : "head");
        int64_t inputs = b ? o->width[b - 1] : o->inputs;
        bool outputs = b % 2 == 0;  // hidden layers are divided in turn, by their outputs and by their inputs
        if (b == 0) x = samples(g, "pixels", o->inputs);
        snprintf(name, sizeof name, "fc.%d", b);
        if (b == o->layers) {
            class_loss(g, x, name,
                       (class_options){.classes = o->classes, .divided = b > 0 && !outputs, .std = std_of(inputs)});
            return leave(g, 0);
        }
        x = project(g, x, name,
                    (projection){.outputs = o->width[b],
                                 .letters = "F",
                                 .divide = outputs ? LINEAR_OUTPUTS : LINEAR_INPUTS,
                                 .bias = true,
                                 .std = std_of(inputs)});
        leave(g, o->activation == MLP_GELU ? gelu(g, x) : relu(g, x));
    }
}

static void mlp_describe(const void *options, char *dst, size_t room) {
    const mlp_options *o = options;
    size_t n = (size_t)snprintf(dst, room, "%" PRId64, o->inputs);
    for (int b = 0; b < o->layers && n < room; b++) n += (size_t)snprintf(dst + n, room - n, "-%" PRId64, o->width[b]);
    if (n < room)
        snprintf(dst + n, room - n, "-%" PRId64 " %s", o->classes, o->activation == MLP_GELU ? "gelu" : "relu");
}

// --- settings --------------------------------------------------------------------------------------------------------

enum { WIDTH_MAX = 1048576 };

// clang-format off
#define OPTIONS mlp_options

static const setting keys[] = {
    ROW(inputs, SHAPE, KEY_INT, "784", 1, 16777216, NULL, "in_features input_size", "numbers of a sample, such as the pixels of an image"),
    ROW(hidden, SHAPE, KEY_TEXT, "256 128", 0, 0, NULL, "layers hidden_size hidden_sizes", "widths of the hidden layers, space between; empty = none"),
    ROW(classes, SHAPE, KEY_INT, "10", 2, 16777216, NULL, "num_classes vocab", "number of different labels"),
    ROW(activation, MEANING, KEY_WORD, "relu", 0, 0, "relu gelu", "nonlinearity", "after each hidden layer"),
};
// clang-format on

// Reads `hidden`.
static err_t mlp_resolve(void *options, model_rule *r) {
    mlp_options *o = options;
    o->layers = 0;
    TRY(rule_divide_layers(r, "perceptron", &o->by));
    for (const char *at = o->hidden + strspn(o->hidden, " "); *at; at += strspn(at, " ")) {
        char *end;
        errno = 0;
        long long n = strtoll(at, &end, 10);
        bool number = end > at && (*end == ' ' || *end == 0) && *at >= '0' && *at <= '9' && !errno;
        if (!number || n < 1 || n > WIDTH_MAX || o->layers == MLP_HIDDEN_MAX)
            return rule_break(r, KEYS("hidden"),
                              "expected at most %d widths from 1 to %d, such as 256 128, found `%s` at `%s`",
                              MLP_HIDDEN_MAX, WIDTH_MAX, o->hidden, at);
        if (o->layers % 2 == 0) r->divided[o->layers / 2] = "hidden", r->value[o->layers / 2] = n;
        o->width[o->layers++] = n;
        at = end;
    }
    r->blocks = o->layers + 1;
    return ERR_OK;
}

const model_type model_mlp = {.name = "mlp",
                              .key = keys,
                              .keys = sizeof keys / sizeof *keys,
                              .resolve = mlp_resolve,
                              .page = mlp_page,
                              .options = sizeof(mlp_options),
                              .describe = mlp_describe};
