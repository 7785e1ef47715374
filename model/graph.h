// model/graph.h: a network written down once, block by block, as operations on named values. Nothing is computed while
// it is written:
//
//   value x = begin_layer(g, "h.%d.", l);
//   x = add(g, x, attention(g, o, layer_norm(g, x, "ln_1")));      each function of model/op/op.h appends an operation
//   leave(g, x);
//
// Everything else is derived from this list: here the table of parameters, the model's inputs, its blocks and flops; by
// model/lower.h the calls of forward and backward, what is kept for backward, and where all of it lies. A mistake in a
// page is found when the model is opened, and names block and operation.
#ifndef MODEL_GRAPH_H
#define MODEL_GRAPH_H

#include "model/head.h"
#include "model/past.h"
#include "model/rope.h"

// Which rows of a micro-batch a value has, and which part of its width. Where nothing is divided all are the same.
// of the residual stream; of matrices; all, as attention wants
typedef enum { ROWS_OWN, ROWS_MATRIX, ROWS_ALL } row_span;
typedef enum { WIDTH_WHOLE, WIDTH_SLICES, WIDTH_HEADS } width_span;  // all; the slices here; the slices of heads here
typedef struct layout {
    row_span rows;
    width_span width;
} layout;

#define LAYOUT_STREAM ((layout){ROWS_OWN, WIDTH_WHOLE})
#define LAYOUT_MATRIX ((layout){ROWS_MATRIX, WIDTH_WHOLE})
#define LAYOUT_SLICES ((layout){ROWS_MATRIX, WIDTH_SLICES})
#define LAYOUT_HEADS ((layout){ROWS_ALL, WIDTH_HEADS})

// (rows,width); (rows); (samples,width,T); (width)
typedef enum { SHAPE_MATRIX, SHAPE_PER_ROW, SHAPE_PER_HEAD, SHAPE_PLAIN } value_shape;

typedef int value;  // one of a block's; 0: none

enum {
    VALUE_NAME = 40,
    VALUE_USERS = 4,
    OP_INPUTS = 2,
    OP_RESULTS = 3,
    GRAPH_OPS = 32,
    GRAPH_VALUES = 96,
    GRAPH_ROPES = 4
};

typedef struct graph_value {
    char name[VALUE_NAME];  // of which there is one in a block
    const char *letters;    // of its width, as a reader knows it: "3C"
    int64_t width;
    layout at;
    value_shape shape;
    bool is_E;      // of the run's compute type
    dtype type;     // else
    bool is_input;  // it lies in the model's first input
    bool all_rows;  // it lies in the memory of gathered rows, until the next is gathered
    int maker;      // operation of the block; -1: it comes into the block
    int users, user[VALUE_USERS];
    value storage;           // in whose memory it lies: its own, or that of the value whose place it takes
    value as[ROWS_ALL + 1];  // the same value with other rows, where that is kept, too
} graph_value;

typedef struct lowering lowering;
struct operation;

// What operations ask of their neighbours, which they don't know: an operation that does some of a neighbour's work in
// passing looks for what it is.
// sum norm: a norm that forms the sum itself
typedef enum { ROLE_OTHER, ROLE_INPUT, ROLE_PRODUCT, ROLE_GELU, ROLE_SUM, ROLE_SUM_NORM } op_role;

// What an operation derives: lists of steps (model/lower.h).
typedef struct op_type {
    const char *name;
    op_role role;
    // backward adds the gradient of its input that later operations have formed
    bool adds;
    // to compute again, in time: its first result need not be kept
    bool cheap;
    // where nothing is dropped it is no operation at all
    bool drops;
    bool halves;  // backward does something in the second half, too
    // before the lists: work of other operations that it does in passing. NULL: none
    void (*claim)(lowering *L, int op, const struct operation *o);
    void (*forward)(lowering *L, int op, const struct operation *o);
    // the gradients of its inputs, from that of its result, and of its weights
    void (*backward)(lowering *L, int op, const struct operation *o);
    // of its matrix products, of a sample, forward and backward. NULL: none
    double (*flops)(const model *m, const struct operation *o);
} op_type;

// One operation. What the fields after `out` mean, its file in model/op/ says.
typedef struct operation {
    const op_type *type;
    char name[VALUE_NAME];
    value in[OP_INPUTS], out[OP_RESULTS];
    linear at;  // rows of the parameter table
    int site;   // of dropout; -1: none
    int heads, kv_heads, first_head, window;
    int rope;  // of the graph's tables of angles
    float eps, shift, factor;
    int64_t head_size;
    int64_t classes, classes_in_memory;
} operation;

typedef struct block_graph {
    operation *op;
    graph_value *v;
    int ops, values;
    value in, out;  // from the block before, to the block after; 0: none
    int form;       // the first block that is like this one, but for which parameters it has: they share lists
} block_graph;

// Angles by which heads of so many elements turn: a table of them, which all layers that have the same share.
typedef struct graph_rope {
    rope r;
    int64_t head_size;
} graph_rope;

typedef struct graph {
    model *m;
    block_graph *block;
    double dropout;
    int64_t widest;  // of what goes between blocks, or of classes: for sums over slices
    // What there is one of in a model.
    head head;          // of the loss
    int64_t chunks;     // of its rows
    past past;          // of attention
    int attends;        // the first block that has it
    int layers;         // so many blocks have it,
    int64_t head_size;  // with heads of so many elements
    graph_rope rope[GRAPH_ROPES];
    int ropes;
    // The block that is being written.
    int b;
    char prefix[MODEL_NAME];
    operation op[GRAPH_OPS];
    graph_value v[GRAPH_VALUES];
    int ops, values;
    operation spare;  // that of a page with a mistake
    err_t rc;         // the first mistake
} graph;

// --- what a page calls -----------------------------------------------------------------------------------------------

// Chance that an element is dropped while training, at every `dropout` of the page.
void dropout_rate(graph *g, double p);

// The next block; returns what the one before left. A layer's parameters have names that begin with prefix.
value begin_block(graph *g, const char *name);
value begin_layer(graph *g, const char *prefix, ...) __attribute__((format(printf, 2, 3)));
// Ends the block; x goes to the next one. 0: it is the last.
void leave(graph *g, value x);

// --- what operations call --------------------------------------------------------------------------------------------

// Appends an operation that reads a, and b unless it is 0. After a mistake one that is of no block.
operation *graph_add(graph *g, const op_type *type, const char *name, value a, value b);
// Result k of an operation: a value like x. Its name is the operation's with what x has as a name after it, such as
// ".mean".
value graph_result(graph *g, operation *o, int k, graph_value x);
// Its first result, like what it reads first; and in the memory of that.
value graph_same(graph *g, operation *o);
value graph_in_place(graph *g, operation *o);
// A row of the table of parameters, PREFIX + name + suffix; cols 0: a vector.
int graph_param(graph *g, const char *name, const char *suffix, int64_t rows, int64_t cols, double std, float initial);
// The row's values are FP32 in every pass, such as statistics that 16 bits would round away. It is a small one: every
// rank has all of them.
void graph_fp32(graph *g, int param);
// What changes this row's values, where it is not the optimizer.
void graph_rule(graph *g, int param, param_rule rule);
// The next input of the model: of a sample, (n) of this type; n 0: one number. limit: as tensor_spec.
void graph_input(graph *g, const char *name, dtype type, int64_t n, int64_t limit);
// The page is wrong: keeps the first mistake, with block and operation.
void graph_mistake(graph *g, const char *op, const char *format, ...) __attribute__((format(printf, 3, 4)));

// After a mistake: a value of no width.
const graph_value *graph_at(const graph *g, value v);

// dst (=) before + name + after, with a number after it if one of values 1 .. n-1 is called that.
void graph_name(char dst[VALUE_NAME], const graph_value *v, int n, const char *before, const char *name,
                const char *after);

// --- the whole -------------------------------------------------------------------------------------------------------

void graph_open(graph *g, model *m);
// After the page: what the model's table says of its blocks; which blocks have one form. Returns the first mistake.
err_t graph_end(graph *g);
void graph_close(graph *g);

#endif
