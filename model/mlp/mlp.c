// model/mlp/mlp.c: a multilayer perceptron that sorts samples into classes: linear layers with ReLU or GELU after each,
// and softmax cross entropy over the last. It keeps all that backward reads; its blocks offer backward in two halves.
//
// With slices, hidden layers are divided in turn: the first by its outputs, the second by its inputs, and so on (linear.h). The last layer's classes are
// whole; its inputs are divided where the layer before left slices.
//
// Initial values: normal(0, sqrt(2 / inputs of the layer)) (He et al. 2015, equation 10), biases 0.
#include "model/mlp/mlp.h"

#include "model/op/op.h"
#include "model/types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct mlp {
    model base;
    mlp_options o;
    lowered net;
} mlp;

enum { PIXELS, LABEL };  // inputs

// --- the page --------------------------------------------------------------------------------------------------------------

static double std_of(int64_t inputs) { return __builtin_sqrt(2.0 / (double)inputs); }

static void write_page(graph *g, const mlp_options *o) {
    char name[MODEL_NAME];
    for (int b = 0; b <= o->layers; b++) {
        value x = begin_block(g, b < o->layers ? "hidden" : "head", "%s", "");
        int64_t inputs = b ? o->width[b - 1] : o->inputs;
        bool outputs = b % 2 == 0;  // hidden layers are divided in turn, by their outputs and by their inputs
        if (b == 0) x = samples(g, o->inputs);
        snprintf(name, sizeof name, "fc.%d", b);
        if (b == o->layers) return class_loss(g, x, name, o->classes, b > 0 && !outputs, std_of(inputs)), leave(g, 0);
        x = project(g, x, name,
                    (projection){.outputs = o->width[b], .letters = "F", .divide = outputs ? LINEAR_OUTPUTS : LINEAR_INPUTS, .bias = true, .std = std_of(inputs)});
        leave(g, o->activation == MLP_GELU ? gelu(g, x) : relu(g, x));
    }
}

// --- tables ----------------------------------------------------------------------------------------------------------------

static err_t run_forward(model *m, int b, pass *p) { return lowered_run(&((mlp *)m)->net, b, p, PASS_FORWARD); }
static err_t run_backward(model *m, int b, pass *p) { return lowered_run(&((mlp *)m)->net, b, p, PASS_BACKWARD); }
static err_t run_inputs(model *m, int b, pass *p) { return lowered_run(&((mlp *)m)->net, b, p, PASS_INPUTS); }
static err_t run_weights(model *m, int b, pass *p) { return lowered_run(&((mlp *)m)->net, b, p, PASS_WEIGHTS); }

static err_t declare(mlp *m) {
    model *base = &m->base;
    int last = m->o.layers;
    for (int b = 0; b <= last; b++) {
        base->block[b] = (block){.forward = run_forward, .backward = run_backward};
        if (b == last) continue;
        base->block[b].dims = 1, base->block[b].size[0] = m->o.width[b], base->block[b].size[1] = base->block[b].size[2] = 1;
        base->block[b].divided = base->slices.of > 1 && b % 2 == 0;
        base->block[b].inputs = run_inputs, base->block[b].weights = run_weights;
    }
    TRY(lowered_open(&m->net, base));
    write_page(&m->net.g, &m->o);
    TRY(graph_end(&m->net.g));
    base->inputs = 2;
    base->input[PIXELS] = (tensor_spec){.name = "pixels", .type = FP32, .dims = 1, .size = {m->o.inputs, 1, 1}};
    base->input[LABEL] = (tensor_spec){.name = "label", .type = INT32, .size = {1, 1, 1}, .limit = m->o.classes};
    base->losses = base->units = 1;
    base->unit = "sample", base->short_unit = "samples";
    base->metrics = 1;
    base->metric[0] = "accuracy";
    base->adds_once = true;
    for (int i = 0; i < base->params; i++)
        if (base->param[i].dims == 2)
            base->block[base->param[i].block].flops = (base->param[i].block ? 6 : 4) * (double)shape_count(2, base->param[i].size);
    for (int b = 0; b < base->blocks; b++) base->flops += base->block[b].flops;
    return ERR_OK;
}

static void mlp_close(model *base) {
    mlp *m = (mlp *)base;
    lowered_close(&m->net);
    model_free(base);
}

static err_t mlp_open(model **out, const void *options) {
    const mlp_options *o = options;
    *out = NULL;
    mlp *m = (mlp *)model_new(&model_mlp, sizeof *m, 2 * (o->layers + 1), o->layers + 1);
    if (!m) return err_set(ERR_INTERNAL, "no memory for a model of %d hidden layers", o->layers);
    m->o = *o;
    if (o->slices > 1) m->base.slices = (model_slices){(int)o->slices, 0, (int)o->slices, false};
    err_t rc = declare(m);
    if (rc != ERR_OK) mlp_close(&m->base);
    else *out = &m->base;
    return rc;
}

static err_t mlp_plan(model *base, arena *a, const model_plan *o) {
    mlp *m = (mlp *)base;
    int64_t most = m->o.classes;
    for (int b = 0; b < m->o.layers; b++) most = m->o.width[b] > most ? m->o.width[b] : most;
    TRY(model_plan_slices(base, a, o, o->B, most));
    return lowered_plan(&m->net, a, o);
}

static void mlp_describe(const model *base, char *dst, size_t room) {
    const mlp *m = (const mlp *)base;
    size_t n = (size_t)snprintf(dst, room, "%" PRId64, m->o.inputs);
    for (int b = 0; b < m->o.layers && n < room; b++) n += (size_t)snprintf(dst + n, room - n, "-%" PRId64, m->o.width[b]);
    if (n < room) snprintf(dst + n, room - n, "-%" PRId64 " %s", m->o.classes, m->o.activation == MLP_GELU ? "gelu" : "relu");
}

// --- settings --------------------------------------------------------------------------------------------------------------

// clang-format off
#define ROW(key, type, def, min, max, words, also, comment) {"model", #key, type, CLASS_BITS, offsetof(mlp_options, key), def, min, max, words, also, comment}
// clang-format on

enum { WIDTH_MAX = 1048576 };

static const setting keys[] = {
    ROW(inputs, KEY_INT, "784", 1, 16777216, NULL, "in_features input_size", "numbers of a sample, such as the pixels of an image"),
    ROW(hidden, KEY_TEXT, "256 128", 0, 0, NULL, "layers hidden_size hidden_sizes", "widths of the hidden layers, space between; empty = none"),
    ROW(classes, KEY_INT, "10", 2, 16777216, NULL, "num_classes vocab", "number of different labels"),
    ROW(activation, KEY_WORD, "relu", 0, 0, "relu gelu", "nonlinearity", "after each hidden layer"),
};

// Reads `hidden`.
static err_t mlp_resolve(void *options, model_rule *r) {
    mlp_options *o = options;
    o->layers = 0, o->slices = r->slices;
    if (r->rows || r->tokens > 1) {
        rule_break(r, "type", r->rows ? "parallel.sequence" : "parallel.token_slices", NULL, NULL);
        return err_set(ERR_CONFIG, "a perceptron has no residual stream to divide, as [parallel] %s would",
                       r->rows ? "sequence = yes" : "token_slices of more than 1");
    }
    for (const char *at = o->hidden + strspn(o->hidden, " "); *at; at += strspn(at, " ")) {
        char *end;
        errno = 0;
        long long n = strtoll(at, &end, 10);
        bool number = end > at && (*end == ' ' || *end == 0) && *at >= '0' && *at <= '9' && !errno;
        if (!number || n < 1 || n > WIDTH_MAX || o->layers == MLP_HIDDEN_MAX) {
            rule_break(r, "hidden", NULL, NULL, NULL);
            return err_set(ERR_CONFIG, "expected at most %d widths from 1 to %d, such as 256 128, found `%s` at `%s`", MLP_HIDDEN_MAX, WIDTH_MAX,
                           o->hidden, at);
        }
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
                              .open = mlp_open,
                              .plan = mlp_plan,
                              .describe = mlp_describe,
                              .close = mlp_close};
