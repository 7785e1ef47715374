// model/graph.h: a network written down once, block by block, as operations on named values. Nothing is computed while it is written:
//
//   value x = begin_block(g, "layer", "h.%d.", l);
//   x = add(g, x, attention(g, o, layer_norm(g, x, "ln_1")));      each function of model/op/op.h appends an operation
//   leave(g, x);
//
// Everything else is derived from this list: the table of parameters (each use of a weight adds its rows), and by model/lower.h the calls of forward and
// backward, what is kept for backward, and where all of it lies. A mistake in a page is found by graph_close, and names block and operation.
#ifndef MODEL_GRAPH_H
#define MODEL_GRAPH_H

#include "model/head.h"
#include "model/past.h"
#include "model/rope.h"

// Which rows of a micro-batch a value has, and which part of its width. Where nothing is divided all are the same.
typedef enum { ROWS_OWN, ROWS_MATRIX, ROWS_ALL } row_span;           // of the residual stream; of matrices; all, as attention wants
typedef enum { WIDTH_WHOLE, WIDTH_SLICES, WIDTH_HEADS } width_span;  // all; the slices here; the slices of heads here
typedef struct layout {
    row_span rows;
    width_span width;
} layout;

#define LAYOUT_STREAM ((layout){ROWS_OWN, WIDTH_WHOLE})
#define LAYOUT_MATRIX ((layout){ROWS_MATRIX, WIDTH_WHOLE})
#define LAYOUT_SLICES ((layout){ROWS_MATRIX, WIDTH_SLICES})
#define LAYOUT_HEADS ((layout){ROWS_ALL, WIDTH_HEADS})

typedef enum { SHAPE_MATRIX, SHAPE_PER_ROW, SHAPE_PER_HEAD, SHAPE_PLAIN } value_shape;  // (rows,width); (rows); (samples,width,T); (width)

typedef int value;  // one of a block's; 0: none

enum { VALUE_NAME = 24, VALUE_USERS = 4, OP_INPUTS = 2, OP_RESULTS = 3 };

typedef struct graph_value {
    char name[VALUE_NAME];
    const char *letters;  // of its width, as a reader knows it: "3C"
    int64_t width;
    layout at;
    value_shape shape;
    dtype type;   // FP32, INT32, or BF16 for E: the run's compute type
    bool is_E, is_input;  // is_input: it lies in the model's first input
    bool all_rows;        // it lies in the memory of gathered rows, until the next is gathered
    int maker;    // operation of the block; -1: it comes into the block
    int users, user[VALUE_USERS];
    value storage;           // in whose memory it lies: its own, or that of the value whose place it takes
    value as[ROWS_ALL + 1];  // the same value with other rows, where that is kept, too
} graph_value;

struct op_type;

// One operation. What the fields after `out` mean, its file in model/op/ says.
typedef struct operation {
    const struct op_type *type;
    const char *name;
    value in[OP_INPUTS], out[OP_RESULTS];
    linear at;  // rows of the parameter table
    int site;   // of dropout; -1: none
    int heads, kv_heads, first_head, window;
    float eps;
    int64_t classes, classes_in_memory, chunks;
} operation;

typedef struct block_graph {
    operation *op;
    graph_value *v;
    int ops, values;
    value in, out;  // from the block before, to the block after; 0: none
    int form;       // the first block that is like this one, but for its parameters
} block_graph;

typedef struct graph {
    model *m;
    block_graph *block;
    double dropout;
    head head;      // of the loss; its chunks
    int64_t chunks;
    past past;      // of attention
    int attends;    // the first block that has it
    int layers;     // so many blocks have it
    int64_t head_size;
    rope rope;      // of rotary positions, of heads of so many elements; 0: there are none
    int64_t turned;
    // Of the block that is being written.
    int b;
    char prefix[MODEL_NAME];
    operation op[32];
    graph_value v[96];
    int ops, values;
    err_t rc;
} graph;

// --- what a page calls ---------------------------------------------------------------------------------------------------------------

// The next block; returns what the one before left. prefix: what the names of its parameters begin with.
value begin_block(graph *g, const char *name, const char *prefix, ...) __attribute__((format(printf, 3, 4)));
// Ends the block; x goes to the next one. 0: it is the last.
void leave(graph *g, value x);

// --- what operations call ------------------------------------------------------------------------------------------------------------

// The operation's first fields: type, name, what it reads. NULL after a mistake.
operation *graph_add(graph *g, const struct op_type *type, const char *name, value a, value b);
// Result k of it.
value graph_result(graph *g, operation *o, int k, graph_value x);
// The first result lies in the memory of what it reads.
value graph_in_place(graph *g, operation *o);
// A row of the table of parameters, PREFIX + name + suffix; cols 0: a vector.
int graph_param(graph *g, const char *name, const char *suffix, int64_t rows, int64_t cols, double std, float initial);
// The page is wrong: keeps the first mistake, with block and operation.
void graph_mistake(graph *g, const char *op, const char *format, ...) __attribute__((format(printf, 3, 4)));

const graph_value *graph_at(const graph *g, value v);

// --- the whole -------------------------------------------------------------------------------------------------------------------------

err_t graph_open(graph *g, model *m);
// After the last block: finds equal forms. Returns the first mistake.
err_t graph_end(graph *g);
void graph_close(graph *g);

#endif
