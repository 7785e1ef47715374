// model/graph.c: see model/graph.h.
#include "model/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPS_MOST = sizeof((graph *)0)->op / sizeof(operation), VALUES_MOST = sizeof((graph *)0)->v / sizeof(graph_value) };

void graph_mistake(graph *g, const char *op, const char *format, ...) {
    char text[200];
    va_list ap;
    if (g->rc != ERR_OK) return;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    const char *block = g->b >= 0 && g->b < g->m->blocks ? g->m->block[g->b].name : "after the last block";
    g->rc = err_set(ERR_INTERNAL, "the page of %s, block %d (%s), %s: %s", g->m->type->name, g->b, block ? block : "?", op, text);
}

const graph_value *graph_at(const graph *g, value v) { return &g->v[v > 0 && v < g->values ? v : 0]; }

static value new_value(graph *g, const graph_value *x, int maker) {
    if (g->values == VALUES_MOST) graph_mistake(g, x->name, "a block has at most %d values", VALUES_MOST);
    if (g->rc != ERR_OK) return 0;
    value v = g->values++;
    g->v[v] = *x;
    g->v[v].maker = maker, g->v[v].users = 0, g->v[v].storage = v;
    return v;
}

value begin_block(graph *g, const char *name, const char *prefix, ...) {
    va_list ap;
    g->b++, g->ops = 0, g->values = 1;
    if (g->b >= g->m->blocks) graph_mistake(g, name, "the model has %d blocks", g->m->blocks);
    if (g->rc != ERR_OK) return 0;
    va_start(ap, prefix);
    vsnprintf(g->prefix, sizeof g->prefix, prefix, ap);
    va_end(ap);
    g->v[0] = (graph_value){.name = "none", .letters = "", .maker = -1};
    g->m->block[g->b].name = name;
    if (g->b == 0) return 0;
    const block_graph *before = &g->block[g->b - 1];
    const graph_value *x = &before->v[before->out];
    graph_value in = {.name = "x", .letters = x->letters, .width = x->width, .at = x->at, .shape = x->shape, .is_E = true};
    return g->block[g->b].in = new_value(g, &in, -1);
}

void leave(graph *g, value x) {
    if (g->rc == ERR_OK && (x < 0 || x >= g->values)) graph_mistake(g, "leave", "value %d was never made", x);
    if (g->rc == ERR_OK && !x != (g->b == g->m->blocks - 1)) graph_mistake(g, "leave", x ? "the last block leaves nothing" : "nothing for the next block");
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
    if (!v) return;
    if (v < 0 || v >= g->values) graph_mistake(g, name, "it reads value %d, which nothing has made", v);
    else if (g->v[v].users == VALUE_USERS) graph_mistake(g, name, "%s is read by more than %d operations", g->v[v].name, VALUE_USERS);
    if (g->rc == ERR_OK) g->v[v].user[g->v[v].users++] = op;
}

operation *graph_add(graph *g, const struct op_type *type, const char *name, value a, value b) {
    if (g->b < 0) graph_mistake(g, name, "no block was begun");
    if (g->ops == OPS_MOST) graph_mistake(g, name, "a block has at most %d operations", OPS_MOST);
    if (g->rc != ERR_OK) return NULL;
    use(g, a, g->ops, name), use(g, b, g->ops, name);
    if (g->rc != ERR_OK) return NULL;
    g->op[g->ops] = (operation){.type = type, .name = name, .in = {a, b}, .at = {.w = -1, .b = -1}, .site = -1};
    return &g->op[g->ops++];
}

value graph_result(graph *g, operation *o, int k, graph_value x) {
    if (g->rc != ERR_OK) return 0;
    if (!x.name[0]) snprintf(x.name, sizeof x.name, "%s", o->name);
    return o->out[k] = new_value(g, &x, (int)(o - g->op));
}

value graph_in_place(graph *g, operation *o) {
    if (g->rc != ERR_OK) return 0;
    graph_value x = g->v[o->in[0]];
    x.name[0] = 0;
    value y = graph_result(g, o, 0, x);
    if (y) g->v[y].storage = g->v[o->in[0]].storage;
    return y;
}

int graph_param(graph *g, const char *name, const char *suffix, int64_t rows, int64_t cols, double std, float initial) {
    return g->rc == ERR_OK ? model_add(g->m, g->b, rows, cols, std, initial, "%s%s%s", g->prefix, name, suffix) : 0;
}

// --- the whole ---------------------------------------------------------------------------------------------------------------------------

err_t graph_open(graph *g, model *m) {
    *g = (graph){.m = m, .b = -1};
    g->block = calloc((size_t)m->blocks, sizeof *g->block);
    return g->block ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a table of %d blocks", m->blocks);
}

void graph_close(graph *g) {
    for (int b = 0; g->block && b < g->m->blocks; b++) free(g->block[b].op), free(g->block[b].v);
    free(g->block);
    g->block = NULL;
}

// Two operations are alike if they differ in nothing but which parameters they have.
static bool alike(const operation *a, const operation *b) {
    operation x = *a, y = *b;
    if ((x.at.w < 0) != (y.at.w < 0) || (x.at.b < 0) != (y.at.b < 0) || x.at.division != y.at.division) return false;
    x.at = y.at;
    return memcmp(&x, &y, sizeof x) == 0;
}

static bool same_form(const block_graph *a, const block_graph *b) {
    if (a->ops != b->ops || a->values != b->values || a->in != b->in || a->out != b->out) return false;
    for (int i = 0; i < a->ops; i++)
        if (!alike(&a->op[i], &b->op[i])) return false;
    return memcmp(a->v, b->v, (size_t)a->values * sizeof *a->v) == 0;
}

err_t graph_end(graph *g) {
    if (g->rc == ERR_OK && g->b != g->m->blocks - 1) graph_mistake(g, "the end", "%d of %d blocks were written", g->b + 1, g->m->blocks);
    if (g->rc != ERR_OK) return g->rc;
    for (int b = 0; b < g->m->blocks; b++) {
        int form = 0;
        while (form < b && (g->block[form].form != form || !same_form(&g->block[form], &g->block[b]))) form++;
        g->block[b].form = form;
    }
    return ERR_OK;
}
