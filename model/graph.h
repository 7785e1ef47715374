// model/graph.h: a network written down once, block by block, as operations on named values. Nothing is computed while
// it is written:
//
//   value x = begin_layer(g, "h.%d.", l);
//   x = add(g, x, attention(g, o, layer_norm(g, x, "ln_1")));      each function of model/op/op.h appends an operation
//   leave(g, x);
//
// Everything else is derived from this list: here the table of parameters, the model's inputs, its blocks and flops; in
// model/lower.h the calls of forward and backward, the values kept for backward, and their memory. A mistake in a page
// is found when the model is opened; the error names block and operation.
#ifndef MODEL_GRAPH_H
#define MODEL_GRAPH_H

#include "model/head.h"
#include "model/past.h"
#include "model/rope.h"

// Which rows of a micro-batch a value has, and which part of its width. If nothing is divided, all are the same. Rows
// of the residual stream; of matrices; all, for attention.
typedef enum { ROWS_OWN, ROWS_MATRIX, ROWS_ALL } row_span;
typedef enum { WIDTH_WHOLE, WIDTH_SLICES, WIDTH_HEADS } width_span;  // all; the slices here; the heads' slices here
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
    GRAPH_ROPES = 4,
    GRAPH_CONSTANTS = 16
};

typedef struct graph_value {
    char name[VALUE_NAME];  // unique in the block
    const char *letters;    // its width for readers: "3C"
    int64_t width;
    int64_t H, W, C;  // of images, H rows of W pixels of C channels: width = H * W * C. 0: it is none
    layout at;
    int64_t rows;    // of a sample; 0: all its positions
    pass_text text;  // of which these rows are
    value_shape shape;
    bool is_E;      // of the run's compute type
    dtype type;     // else
    bool is_input;  // it lies in the model's first input
    bool all_rows;  // it lies in the memory of gathered rows, until the next is gathered
    int maker;      // operation of the block; -1: it is the block's input
    int users, user[VALUE_USERS];
    value storage;           // the value in whose memory it lies: itself, or one that it overwrites
    value as[ROWS_ALL + 1];  // the same value with other rows, if that is kept too
} graph_value;

typedef struct lowering lowering;
struct operation;

// What operations ask of neighbours that they don't know: one that can do some of a neighbour's work looks for its
// role. SUM_NORM: a norm that forms the sum itself.
typedef enum { ROLE_OTHER, ROLE_INPUT, ROLE_PRODUCT, ROLE_GELU, ROLE_RELU, ROLE_SUM, ROLE_SUM_NORM } op_role;

// What an operation derives: lists of steps (model/lower.h).
typedef struct op_type {
    const char *name;
    op_role role;
    // its backward adds to the gradient of its input that later operations have formed
    bool adds;
    // it does without the gradients of frozen weights
    bool freezes;
    // cheap to compute again: its first result need not be kept
    bool cheap;
    // its backward reads its first result: nothing may overwrite that
    bool reads_result;
    // without dropout it does nothing
    bool drops;
    bool halves;  // its backward has work in the second half
    // before the lists are made: claims work of other operations that it can do as well. NULL: none
    void (*claim)(lowering *L, int op, const struct operation *o);
    void (*forward)(lowering *L, int op, const struct operation *o);
    // from the gradient of its result: those of its inputs and of its weights
    void (*backward)(lowering *L, int op, const struct operation *o);
    // flops of its matrix products for a sample, forward and backward. NULL: none
    double (*flops)(const model *m, const struct operation *o);
} op_type;

// One operation. Its file in model/op/ says what the fields after `out` mean.
typedef struct operation {
    const op_type *type;
    char name[VALUE_NAME];
    value in[OP_INPUTS], out[OP_RESULTS];
    linear at;  // rows of the parameter table
    int site;   // of dropout; -1: none
    int heads, kv_heads, first_head, window;
    int rope;  // which of the graph's tables of angles
    float eps, shift, factor;
    int64_t head_size;
    int64_t classes, classes_in_memory;
    int constant;                   // the first of its constants
    int taps, stride, pad, groups;  // of a convolution or a pool: windows of taps x taps pixels
    int64_t outputs;                // of a sample; of an adapter, those of its part of a product
    int64_t first;                  // of an adapter: the part's first output, in a slice
    int mean, variance;             // rows of the parameter table: running statistics
    bool erf;                       // the form of a GELU
    bool all;                       // of attention: it is not causal
    int input;                      // of the model, which it reads
    int64_t rows;                   // of a sample, where it works on some; 0: all
} operation;

typedef struct block_graph {
    operation *op;
    graph_value *v;
    int ops, values;
    value in, out;  // from the block before, to the block after; 0: none
    int form;       // the first block that differs only in its parameters: they share lists
} block_graph;

// The angles by which heads of this size turn: one table for all layers that have the same.
typedef struct graph_rope {
    rope r;
    int64_t head_size;
} graph_rope;

typedef struct graph {
    model *m;
    block_graph *block;
    double dropout;
    int64_t widest;  // the widest value between blocks, or the classes: for sums over slices
    // A model has one of each of these.
    head head;          // the loss
    int64_t chunks;     // of its rows
    head pairs;         // the loss of pairs of texts, beside that of masked tokens; classes 0: there is none
    past past;          // the KV cache
    past read;          // that of the text that is read, where another one is said
    int attends;        // the first block that has attention
    int layers;         // blocks that have it
    int64_t head_size;  // elements of a head
    graph_rope rope[GRAPH_ROPES];
    int ropes;
    float constant[GRAPH_CONSTANTS];  // numbers that operations read on the device, such as the mean of each channel
    int constants;
    // Of [lora] targets: which have named a product, and names that they might have.
    uint64_t targets;
    char named[160];
    // The block that is being written.
    int b;
    char prefix[MODEL_NAME];
    operation op[GRAPH_OPS];
    graph_value v[GRAPH_VALUES];
    int ops, values;
    operation spare;  // returned after a mistake
    err_t rc;         // the first mistake
} graph;

// --- what a page calls -----------------------------------------------------------------------------------------------

// The probability that an element is dropped in training, at every `dropout` of the page.
void dropout_rate(graph *g, double p);

// Is anything dropped in training, by the page or before an adapter?
bool graph_drops(const graph *g);

// Begins the next block; returns its input, the output of the block before. prefix: of the names of a layer's
// parameters.
value begin_block(graph *g, const char *name);
value begin_layer(graph *g, const char *prefix, ...) __attribute__((format(printf, 2, 3)));
// Ends the block; x is its output. 0: it is the last block.
void leave(graph *g, value x);

// --- what operations call --------------------------------------------------------------------------------------------

// Appends an operation that reads a, and b unless it is 0. After a mistake: one that belongs to no block.
operation *graph_add(graph *g, const op_type *type, const char *name, value a, value b);
// Result k of an operation: a value like x. Its name is that of the operation followed by the name in x, such as
// ".mean".
value graph_result(graph *g, operation *o, int k, graph_value x);
// Its first result, shaped like its first input. graph_in_place: in the memory of that input.
value graph_same(graph *g, operation *o);
// If backward of the operation that made the input reads it, that is a mistake.
value graph_in_place(graph *g, operation *o);
// Does backward of the operation that made x read x?
bool graph_is_read_again(const graph *g, value x);
// A row of the table of parameters, PREFIX + name + suffix; cols 0: a vector.
int graph_param(graph *g, const char *name, const char *suffix, int64_t rows, int64_t cols, double std, float initial);
// A row of any dimensions; of one it does not decay.
int graph_param_of(graph *g, const char *name, const char *suffix, int dims, const int64_t size[TENSOR_DIMS],
                   double std, float initial);
// The row's values are FP32 in every pass, as for statistics that 16 bits would round away. It is small: every rank has
// all of it.
void graph_fp32(graph *g, int param);
// What changes this row's values, if not the optimizer. graph_average: it is a running statistic, FP32 in every pass.
void graph_rule(graph *g, int param, param_rule rule);
void graph_average(graph *g, int param, float momentum);
// The model's next input: n numbers of this type a sample; n 0: one number. limit: as tensor_spec.
void graph_input(graph *g, const char *name, dtype type, int64_t n, int64_t limit);
// Are samples several documents each?
bool graph_documents(const graph *g);
// Its index; -1: there is none of this name.
int graph_find_input(const graph *g, const char *name);
// The same: an image of bytes.
void graph_image_input(graph *g, const char *name, int64_t H, int64_t W, int64_t C);
// The block keeps keys and values of so many heads while texts grow. Such blocks follow each other, and have the same
// heads.
void graph_keeps(graph *g, const char *op, int64_t heads, int64_t kv_heads, int64_t head_size);
// Where n numbers are among those that are on the device (lower.h: constants_at).
int graph_constant(graph *g, const float *x, int n);
// The page is wrong. The first mistake is kept, with block and operation.
void graph_mistake(graph *g, const char *op, const char *format, ...) __attribute__((format(printf, 3, 4)));

// After a mistake: a value of no width.
const graph_value *graph_at(const graph *g, value v);

// dst = before + name + after, and a number after it if one of values 1 .. n-1 has that name.
void graph_name(char dst[VALUE_NAME], const graph_value *v, int n, const char *before, const char *name,
                const char *after);

// --- the whole -------------------------------------------------------------------------------------------------------

void graph_open(graph *g, model *m);
// After the page: fills in the model's blocks, and finds which of them share a form. Returns the first mistake.
err_t graph_end(graph *g);
void graph_close(graph *g);

#endif
