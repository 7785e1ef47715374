// model/mlp/mlp.c: a multilayer perceptron that sorts samples into classes: linear layers with ReLU or GELU after each,
// and softmax cross entropy over the last. It keeps all that backward reads; its blocks offer backward in two halves.
//
// With slices, hidden layers are divided in turn: the first by its outputs, the second by its inputs, and so on (linear.h). The last layer's classes are
// whole; its inputs are divided where the layer before left slices.
//
// Initial values: normal(0, sqrt(2 / inputs of the layer)) (He et al. 2015, equation 10), biases 0.
#include "model/mlp/mlp.h"

#include "model/head.h"
#include "model/types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct mlp {
    model base;
    mlp_options o;
    linear layer[MLP_HIDDEN_MAX];
    head head;
    tensor in;                // (slots, B, inputs) E: the samples, rounded; unused in FP32, and where the first block does not run
    tensor *pre, *dpre;       // a set for each slot of each layer, (B, width): before the activation, kept for GELU; its gradient
    int own[MLP_HIDDEN_MAX];  // the first of a layer's sets
    bool keeps;               // for a backward pass
} mlp;

enum { PIXELS, LABEL };  // inputs

static int64_t width(const mlp *m, int b) { return b < 0 ? m->o.inputs : m->o.width[b]; }

// --- blocks ----------------------------------------------------------------------------------------------------------------

static tensor samples_of(const mlp *m, const pass *p) {
    if (!m->in.data) return view2(&p->in[PIXELS], p->B, m->o.inputs);
    tensor x = view2(&m->in, p->B, m->o.inputs);
    x.data = (char *)m->in.data + tensor_bytes(&m->in) / (size_t)m->in.size[0] * (size_t)p->slot;
    return x;
}

// Does hidden layer b leave slices?
static bool leaves_slices(const mlp *m, int b) { return m->base.slices.of > 1 && b >= 0 && b % 2 == 0; }

// What hidden layer b leaves, or its gradient: (B,width), or slices of it.
static tensor left_by(const mlp *m, int b, const tensor *t, const pass *p) {
    return leaves_slices(m, b) ? model_cut(&m->base, t, p->B, width(m, b)) : view2(t, p->B, width(m, b));
}

// The input of block b, (B,I).
static tensor input_of(const mlp *m, int b, const pass *p) { return b == 0 ? samples_of(m, p) : left_by(m, b - 1, &p->x[b - 1], p); }

static err_t take_samples(const mlp *m, const pass *p) {
    tensor x = samples_of(m, p), from = view2(&p->in[PIXELS], p->B, m->o.inputs);
    return m->in.data ? p->ops->cast(&(cast_args){.y = &x, .x = &from}, p->s) : ERR_OK;
}

static tensor own(const mlp *m, const tensor *of, int b, const pass *p) { return left_by(m, b, &of[m->keeps ? m->own[b] + p->slot : 0], p); }

static err_t hidden_forward(model *base, int b, pass *p) {
    mlp *m = (mlp *)base;
    if (b == 0) TRY(take_samples(m, p));
    tensor x = input_of(m, b, p), y = left_by(m, b, &p->x[b], p);
    if (m->o.activation == MLP_GELU) {
        tensor pre = own(m, m->pre, b, p);
        return linear_forward(p, &m->layer[b], &y, &x, &pre);
    }
    TRY(linear_forward(p, &m->layer[b], &y, &x, NULL));
    return p->ops->relu_forward(&(relu_forward_args){.y = &y, .x = &y}, p->s);
}

static err_t hidden_inputs(model *base, int b, pass *p) {
    mlp *m = (mlp *)base;
    tensor dpre = own(m, m->dpre, b, p), dy = left_by(m, b, &p->dx[b], p), y = left_by(m, b, &p->x[b], p);
    if (m->o.activation == MLP_GELU) {
        tensor pre = own(m, m->pre, b, p);
        TRY(p->ops->gelu_backward(&(gelu_backward_args){.dx = &dpre, .dy = &dy, .x = &pre}, p->s));
    } else {
        TRY(p->ops->relu_backward(&(relu_backward_args){.dx = &dpre, .dy = &dy, .y = &y}, p->s));
    }
    if (b == 0) return ERR_OK;
    tensor dx = left_by(m, b - 1, &p->dx[b - 1], p);
    return linear_inputs(p, &m->layer[b], &dx, &dpre, NULL, NULL);
}

static err_t hidden_weights(model *base, int b, pass *p) {
    mlp *m = (mlp *)base;
    tensor dpre = own(m, m->dpre, b, p), x = input_of(m, b, p);
    return linear_weights(p, &m->layer[b], &dpre, &x);
}

static err_t hidden_backward(model *base, int b, pass *p) {
    TRY(hidden_inputs(base, b, p));
    return hidden_weights(base, b, p);
}

static err_t losses_of(mlp *m, int b, pass *p) {
    tensor x = input_of(m, b, p), losses = view1(&p->losses, p->B), hits = view1(&p->metrics, p->B), labels = view1(&p->in[LABEL], p->B);
    tensor dx = b && p->dw ? left_by(m, b - 1, &p->dx[b - 1], p) : (tensor){0};
    return head_losses(&m->head, p, &losses, p->metrics.data ? &hits : NULL, dx.data ? &dx : NULL, &x, &labels);
}

// In training all of it waits for the backward pass: other micro-batches may come in between.
static err_t head_forward(model *base, int b, pass *p) {
    mlp *m = (mlp *)base;
    if (b == 0) TRY(take_samples(m, p));
    return p->dw ? ERR_OK : losses_of(m, b, p);
}

static err_t head_backward(model *base, int b, pass *p) { return losses_of((mlp *)base, b, p); }

// --- tables ----------------------------------------------------------------------------------------------------------------

// 16 bytes of a 16-bit type: rows of logits begin where tensor cores want them.
enum { CLASS_ALIGN = 8 };

static linear add_linear(mlp *m, int b, int64_t outputs) {
    int64_t inputs = width(m, b - 1);
    return (linear){.w = model_add(&m->base, b, outputs, inputs, __builtin_sqrt(2.0 / (double)inputs), 0, "fc.%d.weight", b),
                    .b = model_add(&m->base, b, outputs, 0, 0, 0, "fc.%d.bias", b)};
}

static void declare(mlp *m) {
    model *base = &m->base;
    int last = m->o.layers;
    for (int b = 0; b < last; b++) {
        m->layer[b] = add_linear(m, b, width(m, b));
        linear_divide(&m->layer[b], base, leaves_slices(m, b) ? LINEAR_OUTPUTS : LINEAR_INPUTS, 0, NULL);
        base->block[b] = (block){.name = "hidden",
                                 .dims = 1,
                                 .size = {width(m, b), 1, 1},
                                 .divided = leaves_slices(m, b),
                                 .forward = hidden_forward,
                                 .backward = hidden_backward,
                                 .inputs = hidden_inputs,
                                 .weights = hidden_weights};
    }
    m->head =
        (head){.at = add_linear(m, last, m->o.classes), .classes = m->o.classes, .Vp = (m->o.classes + CLASS_ALIGN - 1) / CLASS_ALIGN * CLASS_ALIGN};
    if (leaves_slices(m, last - 1)) {
        linear_divide(&m->head.at, base, LINEAR_INPUTS, 0, NULL);
        m->head.Vp = m->o.classes;  // each slice is a matrix, and has no room for padding
    } else {
        base->param[m->head.at.w].rows_in_memory = base->param[m->head.at.b].rows_in_memory = m->head.Vp;
    }
    base->block[last] = (block){.name = "head", .forward = head_forward, .backward = head_backward};
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
}

static void mlp_close(model *base) {
    mlp *m = (mlp *)base;
    free(m->pre), free(m->dpre);
    model_free(base);
}

static err_t mlp_open(model **out, const void *options) {
    const mlp_options *o = options;
    *out = NULL;
    mlp *m = (mlp *)model_new(&model_mlp, sizeof *m, 2 * (o->layers + 1), o->layers + 1);
    if (!m) return err_set(ERR_INTERNAL, "no memory for a model of %d hidden layers", o->layers);
    m->o = *o;
    if (o->slices > 1) m->base.slices = (model_slices){(int)o->slices, 0, (int)o->slices, false};
    declare(m);
    *out = &m->base;
    return ERR_OK;
}

// Without a backward pass one set serves all layers.
static err_t plan_layers(mlp *m, arena *a, const model_plan *o) {
    int all = model_plan_sets(o, 0, m->o.layers, m->own), sets = m->keeps ? all : all > 0;
    int64_t most = 0;
    for (int b = 0; b < m->o.layers; b++) most = o->slots[b] && width(m, b) > most ? width(m, b) : most;
    free(m->pre), free(m->dpre);
    m->pre = calloc((size_t)sets + 1, sizeof *m->pre);
    m->dpre = calloc((size_t)sets + 1, sizeof *m->dpre);
    if (!m->pre || !m->dpre) return err_set(ERR_INTERNAL, "no memory for the activations of %d layers", m->o.layers);
    for (int i = 0, b = 0; i < sets; i++) {
        while (b + 1 < m->o.layers && m->own[b + 1] <= i) b++;
        int64_t n = m->keeps ? width(m, b) : most;
        if (m->keeps && leaves_slices(m, b)) n = model_share(&m->base, n);
        if (m->o.activation == MLP_GELU) TRY(arena_2d(a, &m->pre[i], o->compute, o->B, n));
        if (m->keeps) TRY(arena_2d(a, &m->dpre[i], o->compute, o->B, n));
    }
    return ERR_OK;
}

static err_t mlp_plan(model *base, arena *a, const model_plan *o) {
    mlp *m = (mlp *)base;
    int64_t most = m->o.classes;
    for (int b = 0; b < m->o.layers; b++) most = width(m, b) > most ? width(m, b) : most;
    m->keeps = !o->forward_only;
    m->in = (tensor){0};
    TRY(model_plan_slices(base, a, o, o->B, most));
    if (o->compute != FP32 && o->slots[0]) TRY(arena_3d(a, &m->in, o->compute, o->slots[0], o->B, m->o.inputs));
    TRY(plan_layers(m, a, o));
    return o->slots[m->o.layers] ? head_plan(&m->head, a, o, o->B, 1) : ERR_OK;
}

static void mlp_describe(const model *base, char *dst, size_t room) {
    const mlp *m = (const mlp *)base;
    size_t n = (size_t)snprintf(dst, room, "%" PRId64, m->o.inputs);
    for (int b = 0; b < m->o.layers && n < room; b++) n += (size_t)snprintf(dst + n, room - n, "-%" PRId64, width(m, b));
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
