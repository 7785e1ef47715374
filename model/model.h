// model/model.h: what is computed. A model is a table of named parameters and a list of blocks. It says what it reads,
// what goes from each block to the next, and what its losses are. It knows nothing of processes, steps or optimizers.
// The caller owns all memory and runs ranges of blocks.
//
//   inputs -> block 0 -> x[0] -> block 1 -> x[1] -> ... -> block n-1 -> losses
//                     <- dx[0] <-        <- dx[1] <- ... <-
//
// Alphabet  B batch  T time  C channels (embed)  H heads  F hidden  V vocabulary or classes  L layers  N rows
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "model/architecture.h"
#include "model/pass.h"
#include "model/plan.h"

enum { MODEL_METRICS = 2 };

typedef struct model model;

typedef struct block {
    const char *name;
    int dims;  // of its output for the next block, of one sample, E. The last block has none
    int64_t size[TENSOR_DIMS - 1];
    bool divided;  // its output is a matrix of each slice: (slices here, samples, part of its size)
    bool halves;   // its backward has two: dx of its input, then dw
    // model_plan.recompute applies to it. If that is not RECOMPUTE_NONE, the first half does all of backward
    bool recomputes;
    double flops;  // its part of model.flops
} block;

// Memory that layers share holds the values of one layer at a time: of block `block`, for slot `slot`. Backward need
// not compute these again. block -1: it holds none. model_held_pass says what each pass finds and leaves there.
typedef struct model_held {
    int slot, block;
} model_held;

// Tables whose rows are made on demand: each sample names one row of each of `tables` tables, by 64-bit ids, in an
// input of its own. They are no parameters: who runs passes finds a micro-batch's rows, and gets their gradients
// (model/pass.h).
typedef struct model_table {
    char name[MODEL_NAME];
    int input;
    int64_t tables, width;  // of a row; 0: the model has no such tables
    float bound;            // rows begin uniform in +-bound
} model_table;

struct model {
    const struct model_type *type;
    void *options;    // its own copy
    struct net *net;  // model/lower.h
    model_slices slices;
    model_tokens tokens;
    slices_scratch_memory scratch;
    int params, blocks;
    param *param;
    block *block;
    int inputs;  // what it reads of a sample
    tensor_spec input[MODEL_INPUTS];
    model_table table;
    int64_t losses;  // of a sample; the sample's loss is their mean
    // the input that has a target for each loss. A target below 0 has weight 0: its loss and gradient are 0, and it is
    // not counted
    int targets;
    int metrics;  // numbers of a sample beside its loss; their means are logged
    const char *metric[MODEL_METRICS];
    bool stream;     // it has a residual stream, whose rows may be divided among ranks
    bool adds_once;  // a pass adds to each element of dw once
    double dropout;
    int64_t vocab, context;  // of what it predicts (model/predict.h); 0: there is nothing to sample
    // it reads a text of up to so many tokens, and says another one; 0: it continues the text that it reads
    int64_t reads;
    int64_t mask, begin, end;  // tokens for what is masked, and for a sample's ends; all 0: nothing is masked
    // it says what was left out of a text: of `window` tokens so many, in so many spans. Then mask stands for the first
    // span. 0: it does not
    int64_t window, left_out, spans;
    // what it says is an answer, right where every token is: an evaluation asks for the likeliest tokens (pass.said),
    // and its only metric is the share of samples whose answer is right
    bool says;
    int64_t classes;                // it says to which of them a sample belongs; 0: it does not
    bool ranks;                     // of two classes: how well it ranks samples by the chance of the second counts
    bool numbers;                   // it says a number of a sample: metrics of a sample are that one and the right one
    bool root;                      // it says a number, and counts by the root of its mean squared error, the loss
    const char *unit, *short_unit;  // what people count of its samples: "token", "tok"
    int64_t units;                  // of a sample
    double flops;                   // multiplications and additions of a sample, forward and backward
    // Backward queues other work if the slot of the block is held. This is all that a pass takes from earlier passes on
    // the host; forward takes nothing. Code that queues a pass without model_run, such as a replayed recording, must
    // update `held` itself.
    model_held held;
};

// Does the block's backward compute its values again, where they are not held?
static inline bool block_recomputes(const block *k, recomputation r) { return r != RECOMPUTE_NONE && k->recomputes; }

// Does the block's backward have two halves?
static inline bool block_has_halves(const block *k, recomputation r) { return k->halves && !block_recomputes(k, r); }

// Opens a model. options were resolved; it keeps a copy.
err_t model_open(model **out, const model_type *type, const void *options);
void model_close(model *m);

// model_declare declares the memory of the blocks and, unless forward_only, of what backward reads. model_fill writes
// the constants, after that memory was committed. model_forget ends the plan, with its arena; another may follow.
err_t model_declare(model *m, arena *a, const model_plan *o);
err_t model_fill(model *m, stream *s);
void model_forget(model *m);

// Its adapters (model/rule.h). An architecture's options begin with it.
static inline const model_adapters *model_adapts(const model *m) {
    return &((const model_division *)m->options)->adapters;
}

// Rows of a sample in the residual stream.
static inline int64_t model_positions(const model *m) { return m->context ? m->context : 1; }

// Elements of all parameters (a tied one is not counted again); and of those that are trained.
int64_t model_elements(const model *m);
int64_t model_trained(const model *m);
int model_find(const model *m, const char *name);   // index of that parameter; -1: none
int model_input(const model *m, const char *name);  // of that input; -1: none

// dst (host, FP32, count) = initial values of elements first .. first+count-1, in row-major order whatever the slices:
// Philox keyed by (seed, row of the table, element); of normal ones Box-Muller.
void model_init(const model *m, int param, uint64_t seed, int64_t first, int64_t count, float *dst);

// Blocks first .. last, in that order; backward from last down to first. PASS_INPUTS and PASS_WEIGHTS are the halves of
// backward: a block without halves does all its work in the first.
typedef enum { PASS_FORWARD, PASS_BACKWARD, PASS_INPUTS, PASS_WEIGHTS } pass_part;

// Of a block that recomputes: this part of it runs now. Forward leaves its values in the memory that layers share, and
// backward uses them up. Returns whether backward finds them there.
static inline bool model_held_pass(model_held *h, pass_part part, int slot, int block) {
    bool back = part == PASS_BACKWARD || part == PASS_INPUTS, finds = back && h->slot == slot && h->block == block;
    if (part == PASS_FORWARD) *h = (model_held){slot, block};
    if (back) h->block = -1;
    return finds;
}

err_t model_run(model *m, pass_part part, int first, int last, pass *p);

// Does a pass of this text read weights of the block? What a decoder says needs none of the encoder's.
bool model_reads_weights(const model *m, int b, pass_text text);

// All blocks.
static inline err_t model_forward(model *m, pass *p) { return model_run(m, PASS_FORWARD, 0, m->blocks - 1, p); }
static inline err_t model_backward(model *m, pass *p) { return model_run(m, PASS_BACKWARD, 0, m->blocks - 1, p); }

#endif
