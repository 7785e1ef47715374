// model/dlrm/dlrm.c: will this be clicked, or how will it be rated? The deep learning recommendation model of Naumov et
// al. 2019 (arXiv 1906.00091): a perceptron makes a vector of a sample's numbers, tables have one for each of its ids,
// and a second perceptron reads the first vector and the dot products of all pairs.
//
//   dense (B,D) -> bottom -> x (B,C) ---+-> x . e_1, x . e_2, e_1 . e_2, ... -> top -> two logits, softmax
//   ids   (B,F) -> tables -> e (B,F,C) -+                                          or a number, squared error
//
// Softmax over two logits is the logistic loss of their difference. Where samples have no numbers, x is one vector, the
// same for all of them. Then, without hidden layers, of a user's and an item's ids the number is
//
//   b + w_1 x . e_user + w_2 x . e_item + w_3 e_user . e_item    (+ what is the same for all)
//
// a factorisation with biases (Koren, Bell and Volinsky 2009, equation 4): x . e is the bias of an id.
//
// Initial values: layers normal(0, sqrt(2 / inputs)), biases 0, that of a number `mean`; x normal(0, 1) where it is one
// vector; tables normal(0, sqrt(1 / (3 rows))), the variance of the paper's code, which draws them evenly from
// +- sqrt(1 / rows), as rows on demand are.
#include "model/dlrm/dlrm.h"

#include "model/keys.h"
#include "model/op/op.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- the page --------------------------------------------------------------------------------------------------------

static value layer(graph *g, value x, const char *perceptron, int k, int64_t outputs) {
    char name[MODEL_NAME];
    snprintf(name, sizeof name, "%s.%d", perceptron, k);
    double inputs = (double)graph_at(g, x)->width;
    return relu(g, project(g, x, name,
                           (projection){.outputs = outputs,
                                        .letters = "F",
                                        .divide = LINEAR_WHOLE,
                                        .bias = true,
                                        .std = inputs > 0 ? __builtin_sqrt(2 / inputs) : 0}));
}

// The input is 1 in all samples (data/click/clicks.c).
static value common(graph *g, const dlrm_options *o) {
    return project(g, samples(g, "one", 1), "common",
                   (projection){.outputs = o->embed, .letters = "C", .divide = LINEAR_WHOLE, .std = 1});
}

static value bottom(graph *g, const dlrm_options *o) {
    const dlrm_widths *b = &o->bottom_of;
    value x = samples(g, "dense", o->dense);
    for (int k = 0; k <= b->layers; k++) x = layer(g, x, "bottom", k, k < b->layers ? b->width[k] : o->embed);
    return x;
}

static value features(graph *g, const dlrm_options *o) {
    value x = o->dense ? bottom(g, o) : common(g, o);
    value rows = tables(g, "ids", "tables",
                        (table_options){.tables = o->tables,
                                        .rows = o->rows,
                                        .width = o->embed,
                                        .std = __builtin_sqrt(1 / (3 * (double)o->rows)),
                                        .demand = o->demand,
                                        .bound = __builtin_sqrt(1 / (double)o->rows)});
    return interact(g, x, rows);
}

static void dlrm_page(graph *g, const void *options) {
    const dlrm_options *o = options;
    begin_block(g, "features");
    leave(g, features(g, o));
    for (int k = 0; k < o->top_of.layers; k++) {
        value x = begin_block(g, "top");
        leave(g, layer(g, x, "top", k, o->top_of.width[k]));
    }
    value x = begin_block(g, "head");
    double std = __builtin_sqrt(1 / (double)graph_at(g, x)->width);
    if (o->task == DLRM_REGRESS)
        number_loss(g, x, "rating", (number_options){.std = std, .begin = o->mean, .root = true});
    else class_loss(g, x, "click", (class_options){.classes = 2, .std = std, .ranks = true});
    leave(g, 0);
}

static void dlrm_describe(const void *options, char *dst, size_t room) {
    const dlrm_options *o = options;
    if (o->demand) snprintf(dst, room, "%" PRId64 " tables of rows of %" PRId64 " on demand", o->tables, o->embed);
    else snprintf(dst, room, "%" PRId64 " tables of %" PRId64 " rows of %" PRId64, o->tables, o->rows, o->embed);
}

// --- settings --------------------------------------------------------------------------------------------------------

enum { WIDTH_MAX = 1048576 };

// clang-format off
#define OPTIONS dlrm_options

static const setting keys[] = {
    ROW(task, SHAPE, KEY_WORD, "classify", 0, 0, "classify regress", "objective", "what is learned: is a sample clicked, or a number of it, such as a rating"),
    INT(dense, SHAPE, "13", 0, 64, "dense_features num_dense", "numbers of a sample; 0 = it has ids alone"),
    INT(tables, SHAPE, "26", 1, INTERACT_ROWS, "sparse_features num_sparse", "ids of a sample, each with a table of its own"),
    INT(rows, SHAPE, "10000", 1, 2147483647, "num_embeddings max_ind_range", "rows of each table; ids from this on are spread over all of them"),
    ROW(demand, SHAPE, KEY_BOOL, "no", 0, 0, "no yes", "sparse rows_on_demand", "a table has a row for each id that was trained, by its 64 bits, with an AdaGrad of its own; rows says how wide they begin"),
    INT(embed, SHAPE, "16", 1, 1024, "embedding_dim arch_sparse_feature_size dim", "width of a row, and of what the bottom makes of the numbers"),
    REAL(mean, MAY, "0", -1e6, 1e6, "global_mean mu", "task = regress: the number that a model begins with, best the mean of those in the data"),
    ROW(bottom, SHAPE, KEY_TEXT, "64", 0, 0, NULL, "arch_mlp_bot dense_arch_layer_sizes", "widths of the bottom's hidden layers, space between; empty = none"),
    ROW(top, SHAPE, KEY_TEXT, "64 32", 0, 0, NULL, "arch_mlp_top over_arch_layer_sizes", "widths of the top's hidden layers, space between; empty = none"),
};
// clang-format on

static err_t read_widths(dlrm_widths *w, const char *key, const char *text, model_rule *r) {
    w->layers = 0;
    for (const char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
        char *end;
        errno = 0;
        long long n = strtoll(at, &end, 10);
        bool number = end > at && (*end == ' ' || *end == 0) && *at >= '0' && *at <= '9' && !errno;
        if (!number || n < 1 || n > WIDTH_MAX || w->layers == DLRM_HIDDEN_MAX)
            return rule_break(r, KEYS(key),
                              "expected at most %d widths from 1 to %d, such as 64 32, found `%s` at `%s`",
                              DLRM_HIDDEN_MAX, WIDTH_MAX, text, at);
        w->width[w->layers++] = n;
        at = end;
    }
    return ERR_OK;
}

static err_t dlrm_resolve(void *options, model_rule *r) {
    dlrm_options *o = options;
    TRY(read_widths(&o->bottom_of, "bottom", o->bottom, r));
    TRY(read_widths(&o->top_of, "top", o->top, r));
    if (!o->dense && o->bottom_of.layers)
        return rule_break(
            r, KEYS("bottom", "dense"),
            "bottom = %s reads a sample's numbers, and dense = 0 says that there are none: leave bottom empty",
            o->bottom);
    TRY(rule_divide_layers(r, "dlrm", &o->by));
    if (r->slices > 1)
        return rule_break(r, KEYS("parallel.slices"),
                          "the layers of a dlrm can't be divided: expected slices = 1, found %" PRId64, r->slices);
    r->demand = o->demand;
    if (!o->demand && o->rows > INT32_MAX / o->tables)
        return rule_break(r, KEYS("rows", "tables"),
                          "%" PRId64 " tables of %" PRId64 " rows are more than 2^31 rows: expected rows of at most "
                          "%" PRId64,
                          o->tables, o->rows, INT32_MAX / o->tables);
    r->blocks = o->top_of.layers + 2;
    return ERR_OK;
}

const model_type model_dlrm = {.name = "dlrm",
                               .key = keys,
                               .keys = sizeof keys / sizeof *keys,
                               .resolve = dlrm_resolve,
                               .page = dlrm_page,
                               .options = sizeof(dlrm_options),
                               .describe = dlrm_describe};
