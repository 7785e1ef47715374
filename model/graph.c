// model/graph.c: see model/graph.h.
#include "model/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void graph_mistake(graph *g, const char *op, const char *format, ...) {
    char text[200];
    va_list ap;
    if (g->rc != ERR_OK) return;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    bool inside = g->b >= 0 && g->b < g->m->blocks && g->m->block[g->b].name;
    g->rc = err_set(ERR_INTERNAL, "the page of %s, block %d (%s), %s: %s", g->m->type->name, g->b,
                    inside ? g->m->block[g->b].name : "none", op, text);
}

const graph_value *graph_at(const graph *g, value v) { return &g->v[v > 0 && v < g->values ? v : 0]; }

static bool is_taken(const graph_value *v, int n, const char *name) {
    for (int i = 1; i < n; i++)
        if (strcmp(v[i].name, name) == 0) return true;
    return false;
}

void graph_name(char dst[VALUE_NAME], const graph_value *v, int n, const char *before, const char *name,
                const char *after) {
    size_t end = (size_t)snprintf(dst, VALUE_NAME, "%s%s%s", before, name, after), room = VALUE_NAME - sizeof "_999";
    if (end > room) end = room;
    for (int k = 2; is_taken(v, n, dst) && k < 1000; k++) snprintf(dst + end, VALUE_NAME - end, "_%d", k);
}

static value new_value(graph *g, const graph_value *x, int maker) {
    if (g->values == GRAPH_VALUES) graph_mistake(g, x->name, "a block has at most %d values", GRAPH_VALUES);
    if (g->rc != ERR_OK) return 0;
    value v = g->values++;
    g->v[v] = *x;
    g->v[v].maker = maker, g->v[v].users = 0, g->v[v].storage = v;
    if (!x->letters) g->v[v].letters = "?";
    return v;
}

static bool grow_blocks(graph *g) {
    model *m = g->m;
    block *blocks = realloc(m->block, (size_t)(g->b + 1) * sizeof *blocks);
    if (blocks) m->block = blocks;
    block_graph *graphs = realloc(g->block, (size_t)(g->b + 1) * sizeof *graphs);
    if (graphs) g->block = graphs;
    if (!blocks || !graphs)
        return graph_mistake(g, "begin_block", "no memory for a table of %d blocks", g->b + 1), false;
    m->block[g->b] = (block){0}, g->block[g->b] = (block_graph){0};
    m->blocks = g->b + 1;
    return true;
}

value begin_block(graph *g, const char *name) {
    g->b++, g->ops = 0, g->values = 1, g->prefix[0] = 0;
    if (g->rc != ERR_OK || !grow_blocks(g)) return 0;
    g->v[0] = (graph_value){.name = "none", .letters = "", .maker = -1};
    g->m->block[g->b].name = name;
    if (g->b == 0) return 0;
    const block_graph *before = &g->block[g->b - 1];
    const graph_value *x = &before->v[before->out];
    graph_value in = {.name = "x",
                      .letters = x->letters,
                      .width = x->width,
                      .H = x->H,
                      .W = x->W,
                      .C = x->C,
                      .at = x->at,
                      .shape = x->shape,
                      .is_E = true};
    return g->block[g->b].in = new_value(g, &in, -1);
}

value begin_layer(graph *g, const char *prefix, ...) {
    va_list ap;
    value x = begin_block(g, "layer");
    va_start(ap, prefix);
    vsnprintf(g->prefix, sizeof g->prefix, prefix, ap);
    va_end(ap);
    return x;
}

void leave(graph *g, value x) {
    if (g->rc == ERR_OK && (x < 0 || x >= g->values)) graph_mistake(g, "leave", "value %d was never made", x);
    if (g->rc != ERR_OK) return;
    block_graph *k = &g->block[g->b];
    k->ops = g->ops, k->values = g->values, k->out = x;
    k->op = malloc((size_t)g->ops * sizeof *k->op + 1);
    k->v = malloc((size_t)g->values * sizeof *k->v);
    if (!k->op || !k->v) graph_mistake(g, "leave", "no memory for a table of %d operations", g->ops);
    if (g->rc != ERR_OK) return;
    memcpy(k->op, g->op, (size_t)g->ops * sizeof *k->op);
    memcpy(k->v, g->v, (size_t)g->values * sizeof *k->v);
}

static void use(graph *g, value v, int op, const char *name) {
    if (!v || g->rc != ERR_OK) return;
    if (v < 0 || v >= g->values) graph_mistake(g, name, "it reads value %d, which nothing has made", v);
    else if (g->v[v].users == VALUE_USERS)
        graph_mistake(g, name, "%s is read by more than %d operations", g->v[v].name, VALUE_USERS);
    if (g->rc == ERR_OK) g->v[v].user[g->v[v].users++] = op;
}

operation *graph_add(graph *g, const struct op_type *type, const char *name, value a, value b) {
    if (g->b < 0) graph_mistake(g, name, "no block was begun");
    if (g->ops == GRAPH_OPS) graph_mistake(g, name, "a block has at most %d operations", GRAPH_OPS);
    use(g, a, g->ops, name), use(g, b, g->ops, name);
    operation *o = g->rc == ERR_OK ? &g->op[g->ops++] : &g->spare;
    *o = (operation){.type = type, .in = {a, b}, .at = {.w = -1, .b = -1}, .site = -1, .input = -1};
    snprintf(o->name, sizeof o->name, "%s", name);
    return o;
}

value graph_result(graph *g, operation *o, int k, graph_value x) {
    if (g->rc != ERR_OK) return 0;
    char after[VALUE_NAME];
    memcpy(after, x.name, sizeof after);
    graph_name(x.name, g->v, g->values, "", o->name, after);
    return o->out[k] = new_value(g, &x, (int)(o - g->op));
}

value graph_same(graph *g, operation *o) {
    graph_value x = *graph_at(g, o->in[0]);
    x.name[0] = 0;
    return graph_result(g, o, 0, x);
}

bool graph_is_read_again(const graph *g, value x) {
    int maker = g->rc == ERR_OK && x > 0 ? g->v[x].maker : -1;
    return maker >= 0 && g->op[maker].type->reads_result && g->op[maker].out[0] == x;
}

value graph_in_place(graph *g, operation *o) {
    if (graph_is_read_again(g, o->in[0]))
        graph_mistake(g, o->name, "it overwrites %s, which that one's backward reads", g->v[o->in[0]].name);
    value y = graph_same(g, o);
    if (y) g->v[y].storage = g->v[o->in[0]].storage;
    return y;
}

int graph_param(graph *g, const char *name, const char *suffix, int64_t rows, int64_t cols, double std, float initial) {
    return graph_param_of(g, name, suffix, cols ? 2 : 1, (int64_t[TENSOR_DIMS]){rows, cols ? cols : 1, 1, 1}, std,
                          initial);
}

int graph_param_of(graph *g, const char *name, const char *suffix, int dims, const int64_t size[TENSOR_DIMS],
                   double std, float initial) {
    model *m = g->m;
    param *table = g->rc == ERR_OK ? realloc(m->param, (size_t)(m->params + 1) * sizeof *table) : NULL;
    if (!table) return graph_mistake(g, name, "no memory for a table of %d parameters", m->params + 1), 0;
    m->param = table;
    param *p = &m->param[m->params];
    *p = (param){.dims = dims,
                 .size = {size[0], size[1], size[2], size[3]},
                 .block = g->b,
                 .decay = dims > 1,
                 .init_std = std,
                 .init_value = initial,
                 .tied = -1,
                 .rule = PARAM_OPTIMIZER};
    if ((size_t)snprintf(p->name, sizeof p->name, "%s%s%s", g->prefix, name, suffix) >= sizeof p->name)
        graph_mistake(g, name, "a name has at most %d letters", MODEL_NAME - 1);
    if (model_adapts(m)->rank || adapters_freeze(model_adapts(m), p->name)) p->rule = PARAM_FROZEN;
    for (int i = 0; i < m->params; i++)
        if (strcmp(m->param[i].name, p->name) == 0) graph_mistake(g, name, "another parameter is called %s", p->name);
    return m->params++;
}

void graph_fp32(graph *g, int row) {
    if (g->rc == ERR_OK) g->m->param[row].fp32 = true;
}

void graph_average(graph *g, int row, float momentum) {
    if (g->rc != ERR_OK) return;
    param *p = &g->m->param[row];
    p->rule = PARAM_AVERAGE, p->momentum = momentum, p->fp32 = true, p->decay = false;
}

void graph_rule(graph *g, int row, param_rule rule) {
    if (g->rc == ERR_OK) g->m->param[row].rule = rule;
}

static void add_input(graph *g, const char *name, const tensor_spec *of) {
    model *m = g->m;
    if (m->inputs == MODEL_INPUTS) graph_mistake(g, name, "a model has at most %d inputs", MODEL_INPUTS);
    if (g->rc != ERR_OK) return;
    tensor_spec *x = &m->input[m->inputs++];
    *x = *of;
    snprintf(x->name, sizeof x->name, "%s", name);
}

void graph_input(graph *g, const char *name, dtype type, int64_t n, int64_t limit) {
    add_input(g, name, &(tensor_spec){.type = type, .dims = n > 0, .size = {n ? n : 1, 1, 1}, .limit = limit});
}

bool graph_documents(const graph *g) { return ((const model_division *)g->m->options)->documents; }

int graph_find_input(const graph *g, const char *name) { return model_input(g->m, name); }

void graph_image_input(graph *g, const char *name, int64_t H, int64_t W, int64_t C) {
    add_input(g, name, &(tensor_spec){.type = UINT8, .dims = 3, .size = {H, W, C}});
}

int graph_constant(graph *g, const float *x, int n) {
    if (g->constants + n > GRAPH_CONSTANTS)
        graph_mistake(g, "constant", "a model has at most %d of them", GRAPH_CONSTANTS);
    if (g->rc != ERR_OK) return 0;
    memcpy(g->constant + g->constants, x, (size_t)n * sizeof *x);
    g->constants += n;
    return g->constants - n;
}

void graph_keeps(graph *g, const char *op, int64_t heads, int64_t kv_heads, int64_t head_size) {
    int64_t S = g->m->slices.of;
    past p = {.heads = (int)(heads / S), .kv_heads = (int)(kv_heads / S)};
    bool same = g->past.heads == p.heads && g->past.kv_heads == p.kv_heads && g->head_size == head_size;
    if (g->layers && (!same || g->b != g->attends + g->layers))
        graph_mistake(g, op, "expected one in each block from block %d on, with the same heads in all", g->attends);
    if (!g->layers++) g->attends = g->b;
    g->past = g->read = p, g->head_size = head_size;
}

void dropout_rate(graph *g, double p) { g->dropout = g->m->dropout = p; }

bool graph_drops(const graph *g) { return g->dropout > 0 || model_adapts(g->m)->dropout > 0; }

// --- the whole -------------------------------------------------------------------------------------------------------

void graph_open(graph *g, model *m) { *g = (graph){.m = m, .b = -1}; }

void graph_close(graph *g) {
    for (int b = 0; g->block && b < g->m->blocks; b++) free(g->block[b].op), free(g->block[b].v);
    free(g->block);
    g->block = NULL;
}

static bool is_frozen(const model *m, int row) { return row >= 0 && param_is_frozen(&m->param[row]); }

// How many letters two names begin with alike.
static int common(const char *a, const char *b) {
    int n = 0;
    while (a[n] && a[n] == b[n]) n++;
    return n;
}

// Operations are alike if they differ only in their parameters, of which the same are frozen.
static bool alike(const model *m, const operation *a, const operation *b) {
    if (is_frozen(m, a->at.w) != is_frozen(m, b->at.w) || is_frozen(m, a->at.b) != is_frozen(m, b->at.b)) return false;
    if ((a->at.w < 0) != (b->at.w < 0) || (a->at.b < 0) != (b->at.b < 0) || a->at.division != b->at.division)
        return false;
    for (int i = 0; i < OP_INPUTS; i++)
        if (a->in[i] != b->in[i]) return false;
    for (int i = 0; i < OP_RESULTS; i++)
        if (a->out[i] != b->out[i]) return false;
    return a->type == b->type && a->site == b->site && a->heads == b->heads && a->kv_heads == b->kv_heads &&
           a->first_head == b->first_head && a->window == b->window && a->rope == b->rope &&
           a->head_size == b->head_size && a->eps == b->eps && a->shift == b->shift && a->factor == b->factor &&
           a->classes == b->classes && a->classes_in_memory == b->classes_in_memory && a->first == b->first &&
           a->outputs == b->outputs && a->constant == b->constant && a->taps == b->taps && a->stride == b->stride &&
           a->pad == b->pad && a->groups == b->groups && a->erf == b->erf && a->all == b->all && a->input == b->input;
}

static bool same_value(const graph_value *a, const graph_value *b) {
    return a->width == b->width && a->rows == b->rows && a->text == b->text && a->H == b->H && a->W == b->W &&
           a->C == b->C && a->at.rows == b->at.rows && a->at.width == b->at.width && a->shape == b->shape &&
           a->type == b->type && a->is_E == b->is_E && a->maker == b->maker && a->storage == b->storage &&
           a->users == b->users;
}

static bool same_form(const model *m, const block_graph *a, const block_graph *b) {
    if (a->ops != b->ops || a->values != b->values || a->in != b->in || a->out != b->out) return false;
    for (int i = 0; i < a->ops; i++)
        if (!alike(m, &a->op[i], &b->op[i])) return false;
    for (int i = 0; i < a->values; i++)
        if (!same_value(&a->v[i], &b->v[i])) return false;
    return true;
}

// Backward reaches the last reader of a value first. Every other reader must add to the gradient, or it would be lost.
// The output's gradient comes from the next block; the model's input has none.
static void check_gradients(graph *g, const block_graph *k) {
    for (value v = 1; v < k->values; v++) {
        const graph_value *x = &k->v[v];
        if (x->maker >= 0 && k->op[x->maker].type->role == ROLE_INPUT) continue;
        for (int i = 0; i < x->users - (v != k->out); i++) {
            const operation *o = &k->op[x->user[i]];
            if (!o->type->adds || (o->type->role == ROLE_PRODUCT && o->at.division == LINEAR_INPUTS))
                graph_mistake(
                    g, o->name,
                    "%s is read again after it, and its gradient would be lost: only norms of rows, gathers, convolutions and products whose inputs are whole add the gradients of what follows",
                    x->name);
        }
    }
}

// Fills in a block's output, whether its backward has halves, and its flops.
static void describe_block(graph *g, int b) {
    const block_graph *k = &g->block[b];
    model *m = g->m;
    block *to = &m->block[b];
    bool products = false;
    for (int i = 0; i < k->ops; i++) {
        products |= k->op[i].at.w >= 0 && k->op[i].type->flops;
        if (k->op[i].type->flops) to->flops += k->op[i].type->flops(m, &k->op[i]);
    }
    m->flops += to->flops;
    to->halves = products && k->out, to->recomputes = (m->stream || k->v[k->in].C) && k->in && k->out;
    to->dims = 0, to->size[0] = to->size[1] = to->size[2] = 1;
    if (!k->out) return;
    const graph_value *x = &k->v[k->out];
    if (x->width > g->widest) g->widest = x->width;
    to->divided = m->slices.of > 1 && x->at.width == WIDTH_SLICES;
    if (m->stream) to->size[to->dims++] = m->context;
    to->size[to->dims++] = x->width;
}

// Tied rows share values, so they have one type, which passes choose.
static void check_fp32(graph *g) {
    const param *table = g->m->param;
    for (int i = 0; i < g->m->params; i++)
        if (table[i].tied >= 0 && (table[i].fp32 || table[table[i].tied].fp32))
            graph_mistake(g, table[i].name, "a row that is tied can't be FP32 in 16-bit passes");
}

// Frozen rows have no memory for a gradient. An operation forms the gradients of all its weights or of none.
static err_t check_frozen(const model *m, const operation *o) {
    bool w = is_frozen(m, o->at.w), b = is_frozen(m, o->at.b);
    if (!w && !b) return ERR_OK;
    if (!o->type->freezes && adapters_freeze(model_adapts(m), m->param[w ? o->at.w : o->at.b].name))
        return err_set(ERR_CONFIG,
                       "[optimizer] groups: %s is frozen, and a %s always forms its gradient: expected that it is not",
                       m->param[w ? o->at.w : o->at.b].name, o->type->name);
    if (o->at.w < 0 || o->at.b < 0 || w == b) return ERR_OK;
    const char *one = m->param[o->at.w].name, *two = m->param[o->at.b].name;
    return err_set(ERR_CONFIG,
                   "[optimizer] groups: %s is frozen and %s is not, and their gradients are formed together: freeze "
                   "both, as %.*s* does, or neither",
                   w ? one : two, w ? two : one, common(one, two), one);
}

static void check_all_frozen(graph *g, const block_graph *k) {
    for (int i = 0; i < k->ops && g->rc == ERR_OK; i++) {
        const operation *o = &k->op[i];
        g->rc = check_frozen(g->m, o);
        if (!o->type->freezes && (is_frozen(g->m, o->at.w) || is_frozen(g->m, o->at.b)))
            graph_mistake(g, o->name, "the rule \"frozen\" is not built for the weights of a %s", o->type->name);
    }
}

static err_t check_targets(const graph *g) {
    const char *t = model_adapts(g->m)->targets;
    size_t n;
    for (int k = 0; model_adapts(g->m)->rank && *(t = adapter_target(t, &n)); k++, t += n)
        if (!(g->targets >> k % 64 & 1))
            return err_set(ERR_CONFIG,
                           "[lora] targets: %.*s names no product of this model: expected ends of names such as %s",
                           (int)n, t, g->named);
    return ERR_OK;
}

err_t graph_end(graph *g) {
    model *m = g->m;
    if (g->rc == ERR_OK && (g->b < 0 || g->block[g->b].out || !g->head.classes))
        graph_mistake(g, "the end", "the last block has no loss");
    if (g->rc != ERR_OK) return g->rc;
    if (!m->stream) g->widest = g->head.classes;
    for (int b = 0; b < m->blocks; b++) {
        int form = 0;
        while (form < b && (g->block[form].form != form || !same_form(m, &g->block[form], &g->block[b]))) form++;
        g->block[b].form = form;
        g->b = b;
        if (b < m->blocks - 1 && !g->block[b].out) graph_mistake(g, "leave", "there is nothing for the next block");
        check_gradients(g, &g->block[b]);
        check_all_frozen(g, &g->block[b]);
        describe_block(g, b);
    }
    check_fp32(g);
    return g->rc == ERR_OK ? check_targets(g) : g->rc;
}
