// model/lower.h: from a graph and a plan to lists of steps and the memory that they work in.
//
//   forward    the block's operations, top down
//   backward   the block's operations, bottom up: each forms the gradients of its inputs and of its weights; in halves
//              those of weights come later
//   kept       values of forward that a step of backward reads; under recomputation, those from which they are computed
//   memory     a value lives from the step that first writes it to the one that last reads it; values that do not live
//              at the same time share memory
//
// Steps name values, not addresses. A frame says where a value lies in this pass, and how many rows it has.
#ifndef MODEL_LOWER_H
#define MODEL_LOWER_H

#include "model/graph.h"

typedef struct frame frame;
typedef struct step step;

typedef err_t (*step_call)(const frame *f, const step *s);

enum { STEP_VALUES = 10, STEP_OPS = 2, STEP_ROWS = 8, LOWER_VALUES = 160 };

// What ranks that share layers or positions communicate in a step.
typedef enum {
    MEET_NEVER,
    MEET_ROWS,         // rows or heads of other ranks: a conversion
    MEET_SUM,          // a sum over slices
    MEET_SUM_OF_ROWS,  // sums over slices of rows
    MEET_SOFTMAX,      // over slices of the vocabulary; losses of all rows
    MEET_PICK,         // rows of the table that other ranks have
    MEET_SPAN,         // sums over the token slices: of a batch norm
} meeting;

// One call, or several that belong together. `run` finds its operands by position, and may use no others.
struct step {
    const char *name;
    step_call run;
    int op, other[STEP_OPS];  // operations of the block: its own, and others that it also does; -1: none
    value v[STEP_VALUES];     // operands, by position; 0: not given
    char how[STEP_VALUES];    // r reads, w overwrites, u reads and writes
    int count;
    int into, over;  // operand `into` may overwrite operand `over`; -1: no
    // Only for model/show.h: `run` does not read these.
    int row[STEP_ROWS];       // rows of the parameter table, of the form's first block
    char row_how[STEP_ROWS];  // r reads the values, a adds to the gradient
    int rows;
    meeting meets;
};

typedef enum { BACKWARD_WHOLE, BACKWARD_INPUTS, BACKWARD_WEIGHTS } backward_part;

typedef struct step_list {
    step *at;
    int count, room;
} step_list;

// The lists of a form, while they are made.
struct lowering {
    const graph *g;
    const model_plan *o;
    int b;
    bool drops;                   // with dropout
    operation op[GRAPH_OPS];      // the block's own
    graph_value v[LOWER_VALUES];  // ... and what the lists add: gradients, scratch, values with other rows
    int ops, values;
    value in, out;
    backward_part part;  // of the list that is being made
    step_list *to;
    bool passed[GRAPH_OPS];                 // the operation does nothing here
    bool need[GRAPH_OPS], done[GRAPH_OPS];  // in this list: it must be computed; another one has done it
    value grad[LOWER_VALUES];               // the complete gradient of a value
    value given[GRAPH_OPS];                 // the gradient of an operation's result, in backward
    value copy[LOWER_VALUES];               // the copy of a gradient that is overwritten before the second half
    int by[GRAPH_OPS];                      // the operation that does this one's work too; -1: itself
    // What backward reads of forward; and which of that is computed again. All false while forward is listed.
    bool kept[LOWER_VALUES], again[LOWER_VALUES];
    int bias_by[GRAPH_OPS];            // the operation whose backward forms this one's bias gradient; -1: its own
    value gathered, gathered_from;     // the last value whose rows were gathered
    bool remakes, made[LOWER_VALUES];  // forward's conversions, which are made again
    step spare;                        // returned when there is no memory
    err_t rc;
};

// --- for operations --------------------------------------------------------------------------------------------------

static inline const operation *op_at(const lowering *L, int op) { return &L->op[op]; }
// The operation that makes a value in this block; -1: it is the block's input.
static inline int maker_of(const lowering *L, value v) { return L->v[v].maker; }
static inline bool is_made_by(const lowering *L, value v, op_role r) {
    return v && L->v[v].maker >= 0 && L->op[L->v[v].maker].type->role == r;
}
// The only operation that reads a value, if it has this role; else -1.
int only_user(const lowering *L, value v, op_role r);
// In the list that is being made: is this result of operation `op` written? Others of its results may be kept.
bool is_wanted(const lowering *L, value v);
// Appends a step of operation `op`. `how` has a letter for each of the operands that follow it (step.how), in the order
// in which `run` counts them. 0: an operand that is not given.
step *emit(lowering *L, const char *name, step_call run, int op, const char *how, ...);
// Adds an operand.
void add_operand(step *s, char how, value v);
// The step reads the values of this row of the parameter table, or adds to its gradient. -1: there is none.
void uses(step *s, int row);
void adds(step *s, int row);
// Does the row have a gradient? -1: there is none.
static inline bool is_trained(const lowering *L, int row) { return row >= 0 && !param_is_frozen(&L->g->m->param[row]); }
// Room for the gradient of a frozen vector that an operation forms together with others: FP32, read by nothing.
value make_unread(lowering *L, int row);
// A new value of these lists, with the width and letters of `x`: its gradient, "dx"; or `x` in another form, "x.own".
value make_gradient(lowering *L, value x, layout at);
value make_like(lowering *L, value x, const char *after, layout at);
value make_value(lowering *L, const graph_value *x);
// The value with this layout of rows: itself, or another one that a conversion makes.
value as(lowering *L, value v, layout want);

// --- running ---------------------------------------------------------------------------------------------------------

// Where values lie.
typedef enum {
    REGION_NONE,
    REGION_KEPT,     // a set for each slot: values of forward that backward reads
    REGION_HELD,     // one for all blocks: values that are computed again
    REGION_SCRATCH,  // one for all blocks: values that live within one list
    REGION_X,        // the input from the block before, and the output for the next
    REGION_Y,
    REGION_DY,  // their gradients
    REGION_DX,
    REGION_ALL,    // gathered rows
    REGION_INPUT,  // the model's first input
    REGIONS
} region;

typedef struct place {
    region in;
    int64_t at;  // bytes
} place;

typedef enum { LIST_FORWARD, LIST_AGAIN, LIST_BACKWARD, LIST_WEIGHTS, LISTS } list_kind;

// A form's lists, with dropout or without.
typedef struct lists {
    graph_value *v;
    place *place;
    int values;
    step_list list[LISTS];
    int64_t bytes[REGION_SCRATCH + 1];  // of each kind that the block places
} lists;

enum { WITHOUT_DROPOUT, WITH_DROPOUT, VARIANTS };

// A block in one pass.
struct frame {
    struct net *net;
    const model *m;
    const pass *p;
    int b;
    const operation *op;  // the block's own; steps belong to its form
    const lists *x;
    char *base[REGIONS];
    int64_t all, matrix, own;  // rows of this pass, by row_span
    dtype type;                // E
};

// The value: (rows,width), or (slices here, rows, width of a slice).
tensor at(const frame *f, value v);
// The same for an operand that may not be given: in *t, or NULL.
tensor *at_if(const frame *f, value v, tensor *t);
// The same with slices as more rows, for operations that know no slices.
tensor at_rows(const frame *f, value v);
// Rows of all samples, those of other ranks included.
int64_t rows_of_samples(const frame *f, value v);
// The same as samples: (B or B * slices, T, width).
tensor at_samples(const frame *f, value v);
// Images: (B,H,W,C).
tensor at_images(const frame *f, value v);
// The input of the model that the operation reads beside its operands; NULL: it reads none, or the pass continues
// texts, of which there are tokens alone.
const tensor *input_at(const frame *f, const operation *o);
// n of the graph's constants: (n) FP32.
tensor constants_at(const frame *f, int first, int64_t n);
// Positions of a sample of this pass.
static inline int64_t T_of(const frame *f) { return f->m->context ? f->p->in[0].size[1] : 1; }

// model.net: the page, and what was planned for it.
typedef struct net {
    graph g;
    lists *form[VARIANTS];  // [blocks], of forms
    dtype type;
    bool recomputes;
    int64_t B;     // samples of a planned micro-batch
    int *set;      // [blocks+1] a block's first set of kept values; the last entry: how many there are
    tensor *kept;  // [sets]
    tensor held, scratch, angles[GRAPH_ROPES], constants;
} net;

// A block in this pass, without the memory of its values.
frame frame_of(net *l, int b, const pass *p, const lists *x);

// model/lower.c: the lists of a form, and where their values lie.
err_t lower_form(lowering *L, lists *x);

// model/place.c: where the values of a form lie.
void place_values(lists *x, const lowering *L, const bool *kept, const bool *again);

#endif
