// model/model.h: what is computed. A model is a table of named parameters and a list of blocks. It says what it reads,
// what goes from each block to the next, and what its losses are. It knows nothing of ranks, steps or optimizers. The
// caller owns all memory and runs ranges of blocks: a pipeline may cut between any two.
//
//   inputs -> block 0 -> x[0] -> block 1 -> x[1] -> ... -> block n-1 -> losses
//                     <- dx[0] <-        <- dx[1] <- ... <-
//
// Alphabet  B batch  T time  C channels (embed)  H heads  F hidden  V vocabulary or classes  L layers  N rows
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/key.h"
#include "gpu/gpu.h"
#include "gpu/ops.h"

enum { MODEL_NAME = 64, MODEL_INPUTS = 4, MODEL_METRICS = 2, PARAM_SHARES = 3, SUMS_OVER_ROWS = 4 };

// One row of the parameter table. Norms, hashes and files follow the order of the table.
typedef struct param {
    char name[MODEL_NAME];
    int dims;
    int64_t size[TENSOR_DIMS];
    int64_t rows_in_memory;  // 0: size[0]. Else at least size[0]: rows of zeros pad values and gradient to this number
    int block;               // the block that uses it
    // Divided among slices (model_slices): a slice has an equal share of dimension `axis`, and slices lie in memory one after the other, each of
    // them row-major. A matrix that is several ones, one below the other, is divided along dimension 0 by shares of each. Of rows_in_memory, which
    // is a multiple of the slices, the last slices have the zeros.
    int slices, axis;             // 0 or 1 slices: it is whole
    int64_t share[PARAM_SHARES];  // rows of each of several matrices; all 0: it is one
    bool decay;                   // weight decay applies: matrices and embeddings, not biases and gains
    double init_std;              // values start normal(0, init_std), or, where it is 0, at init_value
    float init_value;
    int tied;  // -1, or the row whose values this one shares. It has its own gradient, which is added to that
               // row's at the end. A backward pass finishes this gradient before it adds to that row's, once:
               // both may use the same memory
} param;

// Of a text that grows: where its keys and values are kept, and of how many positions they are there. The input continues these.
typedef struct pass_past {
    int place;  // 0 .. model_plan.places-1
    int64_t first;
} pass_past;

// How a result whose slices lie in several places becomes whole, in all of them.
typedef enum merge_kind {
    MERGE_SUM,      // FP32: sums of aligned slices, added along the tree of slices
    MERGE_LARGEST,  // FP32
    MERGE_PICK,     // any type: at most one place has bits other than 0
} merge_kind;

// Of N rows, part k of `parts` begins with this one.
static inline int64_t part_row(int64_t N, int k, int parts) { return N * k / parts; }

// Places meet: all of them make the same calls in the same order. Place k has slices k * S / places and on, and of each matrix of N rows it has rows
// of its own, from part_row(N, k, places) on: there may be none.
typedef struct slice_merge {
    int places, place;
    // part becomes whole in all places. Small tensors: every place gets all that the others have.
    err_t (*whole)(void *ctx, merge_kind kind, const tensor *part, stream *s);
    // parts (=) what the places have in their `part`, (N,C) FP32, of this place's own rows: (places, rows, C), or (1, rows, C) where they come added
    // up. `part` is scratch afterwards.
    err_t (*deal)(void *ctx, tensor *parts, const tensor *part, stream *s);
    // x (N,C) any type (=): the rows of all places, from `own` of each, or, where that is NULL, from where they are in x.
    err_t (*gather)(void *ctx, const tensor *x, const tensor *own, stream *s);
    void *ctx;
} slice_merge;

// Places that share the rows of a micro-batch, and work on all rows together in attention: place k has rows of its own, from part_row(N, k, places) on,
// of all heads, or all rows of the k-th share of the heads' slices.
//
//            rows (S,n,W)                          heads (S/places,N,W)
//          slice 0 1 2 3                                slice 0 1
//   place 0   [ a b c d ]  rows 0, 1    place 0 rows 0, 1  [ a b ]      A message from one place to another: what is in both.
//   place 1   [ e f g h ]  rows 2, 3            rows 2, 3  [ e f ]      (Jacobs et al. 2023, DeepSpeed Ulysses)
typedef struct row_swap {
    slice_merge merge;  // places, place; whole and gather of what they have: deal is NULL
    err_t (*to_heads)(void *ctx, const tensor *heads, const tensor *rows, stream *s);  // heads (=)
    err_t (*to_rows)(void *ctx, const tensor *rows, const tensor *heads, stream *s);   // rows (=)
} row_swap;

// One micro-batch on its way through the blocks.
typedef struct pass {
    const ops *ops;
    stream *s;
    int64_t B;                // samples, at most the planned number
    int64_t whole;            // samples of a whole micro-batch, of which these may be a part: a device chooses algorithms by it. 0: B
    int64_t rows;             // the same in rows of a matrix, for samples of any length. 0: as `whole` says
    int slot;                 // where the blocks keep what their backward pass reads: 0 .. model_plan.slots[block]-1
    tensor in[MODEL_INPUTS];  // (B, ...) what the sample consists of, in the order of model.input, on the device
    const tensor *x;          // [blocks-1] what block b leaves for block b+1: (B, ...) E, shapes as planned
    const tensor *dx;         // [blocks-1] its gradient (=); unused if dw is NULL. All of them may share memory: a block
                              // reads all of dx[b] before it writes dx[b-1]
    const tensor *w;  // the parameters' values, E, one for each row of the table. Of a divided one the slices that are here, one after the other:
                      // (rows here, columns), or, where columns are divided, (slices here, rows, columns of a slice)
    tensor *dw;       // their gradients, FP32 (+=), shaped like them. NULL: forward only
    tensor *more_dw;  // with several token slices here: dw is of the first, and this of the others, table after table. NULL: dw is of all, in order
    const slice_merge *merge;  // NULL: all slices are here
    const row_swap *swap;      // NULL: all rows are here
    bool fresh;                // dw is (=): what it holds is garbage
    const step_state *state;   // on the device: the loss scale
    float loss_factor;         // 1 / (G * model.losses): the share of one loss in the step's mean loss
    dropout_key drop;          // seed, step and first sample; p = 0: no dropout
    tensor losses;             // (B, model.losses) FP32 (=), the caller's memory: written by the last block, forward or, if
                               // dw is given, backward
    tensor metrics;            // (metrics, B) FP64 (=), the caller's memory; written with the losses; no data: not wanted
    bool predict;              // instead of losses, leave the scores of what follows each sample, whose length is that of in[0]
    const pass_past *past;     // [B] when predict: the samples' earlier positions; of B > 1 samples each has one new position. NULL: there are none,
                               // and nothing is kept
    tensor scores;             // (B,V) FP32 (=), the caller's memory, when predict
} pass;

typedef struct model model;

typedef err_t (*block_call)(model *m, int block, pass *p);

typedef struct block {
    const char *name;
    int dims;  // what it leaves for the next block, of one sample, E. The last block: nothing
    int64_t size[TENSOR_DIMS - 1];
    bool divided;  // it leaves (slices here, samples, part of its size): matrices of its slices
    block_call forward, backward;
    double flops;                // its part of model.flops
    block_call inputs, weights;  // backward in two halves, in this order: dx of its input, then dw. NULL: it has none
    bool recomputes;             // it obeys model_plan.recompute. If that is not RECOMPUTE_NONE, `inputs` does all of backward
} block;

// Sums over heads, over hidden channels and over a vocabulary are cut into `of` slices, a power of two. Each is summed as the whole would be, and
// the results are added along one binary tree, ((0+1)+(2+3)): only siblings are. So a rank that has an aligned part of the slices can add them alone.
// The same tree adds what is summed over rows of the residual stream alone, the gradients of norms: slice s of a matrix of N rows begins with row
// part_row(N, s, of). With `rows` a place has the rows of its slices and no others, wherever the residual stream goes (Korthikanti et al. 2022,
// section 4.2.2).
typedef struct model_slices {
    int of;            // 1: sums are whole
    int first, count;  // those that are here
    bool rows;         // of rows, too
} model_slices;

// Where a gradient of weights is a sum over positions, it is one sum for each token slice: of the N rows of a micro-batch, samples one after the other,
// token slice k begins with row part_row(N, k, of). A run adds them along the tree of lanes, of which they are the lowest levels: leaf `lane * of + k`. So
// places can have some of them, and work on their rows alone (row_swap). Within a token slice the rows have `model_slices.of / of` slices for norms.
typedef struct model_tokens {
    int of;            // 1: sums are whole. Divides model_slices.of
    int first, count;  // those that are here
} model_tokens;

// Memory that layers share holds the values of one layer at a time: of this block, for this slot. They need not be computed again. block -1: it holds none.
typedef struct model_held {
    int slot, block;
} model_held;

// What every architecture begins with.
struct model {
    const struct model_type *type;
    model_slices slices;
    model_tokens tokens;
    tensor partials;  // (slices here,N,C) FP32, scratch of sums that are cut, on a GPU
    tensor partial;   // (N,C) FP32: this place's part of them, where slices are elsewhere too
    tensor parts;     // (places, own rows, C) FP32: all places' parts of this place's rows
    tensor all_rows;  // (N,C) E: rows of all places, where each has its own
    tensor row_sums;  // (SUMS_OVER_ROWS, slices of rows here, C) FP32: sums over a slice's rows; and of all of them
    tensor row_sum;   // (SUMS_OVER_ROWS, C)
    int params, blocks;
    param *param;
    block *block;
    int inputs;  // what it reads of a sample
    tensor_spec input[MODEL_INPUTS];
    int64_t losses;  // of a sample; the sample's loss is their mean
    int metrics;     // numbers of a sample beside its loss, of which the mean is shown
    const char *metric[MODEL_METRICS];
    bool stream;     // it has a residual stream, whose rows may be divided among places
    bool adds_once;  // a pass adds to each element of dw with one operation
    double dropout;
    int64_t vocab, context;         // of what it predicts (model/predict.h); 0: there is nothing to sample
    const char *unit, *short_unit;  // what people count of its samples: "token", "tok"
    int64_t units;                  // of a sample
    double flops;                   // multiplications and additions of a sample, forward and backward
    // What backward queues depends on it: on whether this slot of this block is held. Of what earlier passes left on the host it depends on nothing else,
    // and forward on nothing at all. Whoever queues a pass in another way than by model_run says here what it left.
    model_held held;
};

// What the forward pass does not keep. The backward pass computes it again, with the same operations on the same
// values, so with the same bits.
typedef enum recomputation {
    RECOMPUTE_NONE,       // keeps everything
    RECOMPUTE_SELECTIVE,  // norms and activation functions: much memory, little work (Korthikanti et al. 2022)
    RECOMPUTE_BLOCK,      // all but the blocks' inputs: nearly a second forward pass (Chen et al. 2016)
} recomputation;

// Does the block's backward have two halves?
static inline bool block_has_halves(const block *k, recomputation r) { return k->inputs && (r == RECOMPUTE_NONE || !k->recomputes); }

// What memory is planned for: micro-batches of at most B samples. Of so many of them at a time a block keeps what its backward pass reads.
typedef struct model_plan {
    dtype compute;
    int64_t B;
    const int *range;   // [blocks] numbers of the ranges of blocks that run here; NULL: they are one
    int boundaries;     // gradients between these blocks and those elsewhere that are on their way at a time
    const int *slots;   // [blocks] 0: the block does not run here, and needs no memory
    bool forward_only;  // no pass will have dw: nothing is kept, and recompute is ignored
    bool halves;        // backward will run in halves: blocks keep the gradients that the second one reads. Else `inputs` may do it all
    recomputation recompute;
    int places;                    // texts whose keys and values can be kept while they grow, `context` positions of each
    int slice_first, slice_count;  // those that are here: a subtree of the tree of slices. 0: all
    bool slice_rows;               // the residual stream's rows are divided, too. Only of models with `stream`
    int token_first, token_count;  // token slices that are here: an aligned part of them. 0: all
} model_plan;

enum { RULE_DIVIDED = 32, RULE_KEYS = 4 };  // 32: half of the hidden layers that a perceptron may have
// Input and result of model_type.resolve. Keys are given by name, those of other sections as "parallel.slices".
typedef struct model_rule {
    int64_t micro;                      // samples of a micro-batch
    bool gpu;                           // the run is on GPUs
    int64_t slices;                     // [parallel] slices; 0: 1
    bool rows;                          // [parallel] sequence: the residual stream's rows are divided
    int64_t tokens;                     // [parallel] token_slices; 0: 1
    int blocks;                         // which the stages of a pipeline divide among them
    const char *chosen[RULE_KEYS];      // keys that were left open and are now filled in; NULL: no more
    const char *broken[RULE_KEYS];      // the keys of the rule that does not hold
    const char *divided[RULE_DIVIDED];  // keys whose values the slices must divide; NULL: none
    int64_t value[RULE_DIVIDED];        // ... and these values
} model_rule;

// One of the tensors that hold a parameter in files of others: its next `rows` rows.
enum { WEIGHT_PARTS = 3 };
typedef struct weight_part {
    char name[MODEL_NAME];  // without model_type.prefix
    bool prefixed;          // which stands before it as a rule
    bool transposed;        // stored as (columns, rows)
    bool table;             // a row for each token or position
    int64_t rows;
} weight_part;

struct json_t;
struct foreign_reader;

// Another name of an architecture: a family that is this one with some keys other than their defaults.
typedef struct model_alias {
    const char *name;
    const char *implies;  // "key=value key=value"; a key that is set in a file or by -o keeps its value
} model_alias;

typedef struct model_type {
    const char *name;
    const model_alias *alias;  // ends with a name of NULL; NULL: there are none
    const setting *key;        // its keys of [model]; offsets are within its options
    int keys;
    // Fills in what was left open and checks the rules between keys. ERR_CONFIG: r->broken says which keys.
    err_t (*resolve)(void *options, model_rule *r);
    err_t (*open)(model **out, const void *options);
    // Declares the memory of the blocks and, unless forward_only, of what backward reads. Again: after the arena of the
    // last plan was closed.
    err_t (*plan)(model *m, arena *a, const model_plan *o);
    err_t (*fill)(model *m, stream *s);  // writes what is constant, after that memory was committed. NULL: nothing is
    // Files of Hugging Face (model/weights.h, model/families.h). parts: returns how many tensors hold a parameter. NULL: there are none of this model.
    const char *prefix;
    size_t options;  // bytes of them
    int (*parts)(const model *m, int param, weight_part *part);
    bool (*is_foreign)(const struct json_t *config);                // by its model_type
    void (*from_foreign)(void *options, struct foreign_reader *r);  // of which the defaults are set
    err_t (*to_foreign)(const void *options, struct json_t *config);
    void (*describe)(const model *m, char *dst, size_t room);  // "4 layers 128 channels"
    void (*close)(model *m);
} model_type;

// Sets of memory of `count` blocks from `first` on, one for each slot of each. at[i], unless NULL: how many come before those of block first + i.
static inline int model_plan_sets(const model_plan *o, int first, int count, int *at) {
    int sets = 0;
    for (int i = 0; i < count; i++) {
        if (at) at[i] = sets;
        sets += o->slots[first + i];
    }
    return sets;
}

// --- model/model.c: the same for every architecture --------------------------------------------------------------------------

// Memory for a model's tables, `size` bytes of which the first are the model. NULL: there is none.
model *model_new(const model_type *type, size_t size, int params, int blocks);
void model_free(model *m);

// Appends a row to the table; cols = 0 makes it a vector. Returns its index.
int model_add(model *m, int block, int64_t rows, int64_t cols, double std, float value, const char *format, ...)
    __attribute__((format(printf, 7, 8)));

// Of a width that is divided, the part that is here.
static inline int64_t model_share(const model *m, int64_t width) { return width / m->slices.of * m->slices.count; }

// Where a slice of N rows begins.
static inline int64_t model_row(const model *m, int slice, int64_t N) { return part_row(N, slice, m->slices.of); }

// Where a token slice of N rows begins.
static inline int64_t model_token_row(const model *m, int slice, int64_t N) { return part_row(N, slice, m->tokens.of); }

// Of N rows of a micro-batch the first one of the token slices that are here, and how many they have: the rows of all matrices but those within attention.
static inline int64_t model_first_row(const model *m, int64_t N) { return model_token_row(m, m->tokens.first, N); }
static inline int64_t model_matrix_rows(const model *m, int64_t N) {
    return model_token_row(m, m->tokens.first + m->tokens.count, N) - model_first_row(m, N);
}

// Are token slices elsewhere? Then this many places share the rows.
static inline int model_row_places(const model *m) { return m->tokens.of / m->tokens.count; }

// Slices of the heads whose attention is here, and the first of them.
static inline int model_head_slices(const model *m) { return m->slices.count / model_row_places(m); }
static inline int64_t model_head_share(const model *m, int64_t width) {
    return width / m->slices.of * model_head_slices(m);
}  // of a width of all heads
static inline int model_head_first(const model *m) { return m->slices.first + m->tokens.first / m->tokens.count * model_head_slices(m); }

// Are rows of the residual stream elsewhere?
static inline bool model_divides_rows(const model *m) { return m->slices.rows || m->tokens.count < m->tokens.of; }

// Of N rows of the residual stream, those that are here.
static inline int64_t model_own_rows(const model *m, int64_t N) {
    const model_slices *x = &m->slices;
    return x->rows ? model_row(m, x->first + x->count, N) - model_row(m, x->first, N) : model_matrix_rows(m, N);
}

// The most that any place has of N rows or fewer: of the residual stream, and of matrices.
static inline int64_t model_most_matrix_rows(const model *m, int64_t N) { return (N * m->tokens.count + m->tokens.of - 1) / m->tokens.of; }
static inline int64_t model_most_rows(const model *m, int64_t N) {
    const model_slices *x = &m->slices;
    return x->rows ? (N * x->count + x->of - 1) / x->of : model_most_matrix_rows(m, N);
}

// Elements of what block b leaves of so many samples, as far as it is here. T: positions of a sample; 0: as many as the block says.
static inline int64_t model_left(const model *m, int b, int64_t samples, int64_t T) {
    const block *k = &m->block[b];
    int64_t n = shape_count(k->dims, k->size);
    if (k->divided) return samples * model_share(m, n);
    if (!T) T = k->size[0];
    return model_divides_rows(m) ? model_own_rows(m, samples * T) * (n / k->size[0]) : samples * (n / k->size[0] * T);
}

// Token slice k of those that are here, of N rows: the pass with its gradients, and its rows, counted from the first one that is here.
typedef struct token_part {
    pass p;
    int64_t first, n;
} token_part;

static inline token_part model_token_part(const model *m, const pass *p, int k, int64_t N) {
    token_part own = {.p = *p, .first = model_token_row(m, m->tokens.first + k, N) - model_first_row(m, N)};
    own.n = model_token_row(m, m->tokens.first + k + 1, N) - model_first_row(m, N) - own.first;
    if (k && p->more_dw) own.p.dw = p->more_dw + (k - 1) * m->params;
    if (k && !p->more_dw) own.p.fresh = false;
    return own;
}

// (N,width), or, where the width is divided, (slices here, N, its part in a slice): a view of t's first elements.
static inline tensor model_cut(const model *m, const tensor *t, int64_t N, int64_t width) {
    if (m->slices.of == 1) return view2(t, N, width);
    return view3(t, m->slices.count, N, width / m->slices.of);
}

// The same of the heads whose attention is here, with all N rows.
static inline tensor model_cut_heads(const model *m, const tensor *t, int64_t N, int64_t width) {
    if (m->slices.of == 1) return view2(t, N, width);
    return view3(t, model_head_slices(m), N, width / m->slices.of);
}

// Takes the plan's slices, and declares the scratch of sums that are cut, of at most N rows and C columns. m->stream is set.
err_t model_plan_slices(model *m, arena *a, const model_plan *o, int64_t N, int64_t C);

// Divides a parameter along an axis among the model's slices. rows: of each of `matrices` that it consists of.
void model_divide(model *m, int param, int axis, int matrices, const int64_t *rows);

// For resolve: each slice has rows of the residual stream, of which a sample has so many; each token slice has whole samples, or a part of one. ERR_CONFIG.
err_t model_check_rows(model_rule *r, int64_t context);

// For resolve: says that the rule between up to four keys is broken; NULL: no such key.
void rule_break(model_rule *r, const char *a, const char *b, const char *c, const char *d);

// For resolve: fills in a key that was left open.
void rule_choose(model_rule *r, const char *key, int64_t *at, int64_t value);

static inline int param_slices(const param *p) { return p->slices > 1 ? p->slices : 1; }

// Elements of a slice in memory, and of these the ones that are no padding.
int64_t param_slice_room(const param *p);
int64_t param_slice_count(const param *p, int slice);

// Elements of all parameters (a tied one is not counted again).
int64_t model_elements(const model *m);

// Index of a parameter, -1 when there is none of that name.
int model_find(const model *m, const char *name);

// dst (host, FP32, count) = initial values of elements first .. first+count-1, in row-major order whatever the slices: Philox keyed by (seed, row of
// the table, element), Box-Muller.
void model_init(const model *m, int param, uint64_t seed, int64_t first, int64_t count, float *dst);

// Blocks first .. last, in that order; backward from last down to first. PASS_INPUTS and PASS_WEIGHTS are the halves of
// backward: a block without halves does all its work in the first.
typedef enum { PASS_FORWARD, PASS_BACKWARD, PASS_INPUTS, PASS_WEIGHTS } pass_part;
err_t model_run(model *m, pass_part part, int first, int last, pass *p);

// All blocks.
static inline err_t model_forward(model *m, pass *p) { return model_run(m, PASS_FORWARD, 0, m->blocks - 1, p); }
static inline err_t model_backward(model *m, pass *p) { return model_run(m, PASS_BACKWARD, 0, m->blocks - 1, p); }

#endif
