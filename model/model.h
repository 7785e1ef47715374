// model/model.h: what is computed. A model is a table of named parameters and a static list of blocks. It knows its
// sizes, but nothing of ranks, steps or optimizers. The trainer owns all memory, runs the blocks forward and then
// backward, and may do anything between two blocks: start sending a final gradient, gather the next block's weights,
// send activations to another rank.
//
// Alphabet  B batch  T time  C channels (embed)  H heads  F hidden = 4C  V vocabulary  L layers
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "gpu/gpu.h"
#include "gpu/ops.h"

enum { MODEL_NAME = 64 };

typedef struct model_options {
    int layers, heads;
    int64_t embed, vocab, context;
    double dropout;
} model_options;

// One row of the parameter table. Norms, hashes and files follow the order of the table.
typedef struct param {
    char name[MODEL_NAME];
    int dims;
    int64_t size[TENSOR_DIMS];
    int64_t rows_in_memory;  // 0: size[0]. Else at least size[0]: rows of zeros pad values and gradient to this number
    int block;         // the block that uses it
    bool decay;        // weight decay applies: matrices and embeddings, not biases and gains
    double init_std;   // values start normal(0, init_std), or, where it is 0, at init_value
    float init_value;
    int tied;          // -1, or the row whose values this one shares. It has its own gradient, which is added to that
                       // row's at the end. A backward pass finishes this gradient before it adds to that row's, once:
                       // both may use the same memory
} param;

// One micro-batch on its way through the blocks.
typedef struct pass {
    const ops *ops;
    stream *s;
    int64_t B, T;             // B <= the planned batch, T <= the context
    tensor tokens, targets;   // (B,T) INT32 on the device; targets unused when last_only
    const tensor *w;          // the parameters' values, compute type, one for each row of the table
    tensor *dw;               // their gradients, FP32 (+=). One operation of a pass adds to each; to the head's one for
                              // each chunk. NULL: forward only
    const step_state *state;  // on the device: the loss scale
    float loss_factor;        // 1 / (G*T): the share of one token in the step's mean loss
    dropout_key drop;         // seed, step and first sample; p = 0: no dropout
    const struct pass_hooks *hooks;  // NULL: none
    bool last_only;           // leave logits of the last position instead of losses
    tensor losses;            // out (B,T) FP32: from the forward pass, or, if dw is given, from the backward pass
    tensor logits;            // out (B,V) compute type, when last_only; no padding
} pass;

// Called around each block: to bring its weights, and to send its gradients.
typedef struct pass_hooks {
    void *ctx;
    err_t (*enter)(void *ctx, int block, bool backward);
    err_t (*leave)(void *ctx, int block, bool backward);
} pass_hooks;

typedef struct model model;

typedef struct block {
    const char *name;
    int layer;
    err_t (*forward)(model *m, int layer, pass *p);
    err_t (*backward)(model *m, int layer, pass *p);
} block;

// What every architecture begins with.
struct model {
    const struct model_type *type;
    model_options options;
    int params, blocks;
    param *param;
    block *block;
};

// What the forward pass does not keep. The backward pass computes it again, with the same operations on the same
// values, so with the same bits.
typedef enum recomputation {
    RECOMPUTE_NONE,       // keeps everything
    RECOMPUTE_SELECTIVE,  // norms and activation functions: much memory, little work (Korthikanti et al. 2022)
    RECOMPUTE_BLOCK,      // all but the blocks' inputs: nearly a second forward pass (Chen et al. 2016)
} recomputation;

// What memory is planned for: micro-batches of at most B x T.
typedef struct model_plan {
    dtype compute;
    int64_t B, T;
    bool forward_only;  // no pass will have dw: nothing is kept, and recompute is ignored
    recomputation recompute;
    int64_t head_chunks;  // parts of B*T rows whose logits are in memory one after the other: model_head_rows
} model_plan;

typedef struct model_type {
    const char *name;
    err_t (*open)(model **out, const model_options *o);
    // Declares the activations and, unless forward_only, what backward needs. A backward pass must directly follow the
    // forward pass of its micro-batch: memory that layers share is then as the last layer left it.
    err_t (*plan)(model *m, arena *a, const model_plan *o);
    void (*close)(model *m);
} model_type;

extern const model_type model_gpt;

// All of them, in the order of the words of [model] type.
extern const model_type *const model_types[];

// A vocabulary's rows in memory, V or more. Tensor cores are fast when rows of logits begin at multiples of 16 bytes
// and tiles are whole. GPT-2's 50257 gives neither, 50304 gives both. The padding is only in memory: names, shapes,
// files, hashes and samples have V.
enum { VOCAB_ALIGN = 128 };
static inline int64_t model_vocab_in_memory(int64_t vocab) { return (vocab + VOCAB_ALIGN - 1) / VOCAB_ALIGN * VOCAB_ALIGN; }

// --- model/model.c: the same for every architecture --------------------------------------------------------------------------

// Elements of all parameters (a tied one is not counted again).
int64_t model_elements(const model *m);

// Rows of a chunk. A head computes its logits in chunks of rows. Their number affects the bits: the head's weight
// gradient is summed over each chunk and then added. A chunk has an equal share of the rows, rounded up to whole tiles
// of a matrix product; the last one may have fewer.
enum { HEAD_TILE = 128 };
int64_t model_head_rows(int64_t rows, int64_t chunks);

// The fewest chunks with at most HEAD_LOGITS elements each (or one row).
enum { HEAD_LOGITS = 20 << 20 };
int64_t model_head_chunks(int64_t rows, int64_t vocab);

// Index of a parameter, -1 when there is none of that name.
int model_find(const model *m, const char *name);

// dst (host, FP32, count) = initial values of elements first .. first+count-1: Philox keyed by (seed, row of the table, element), Box-Muller.
// first is a multiple of 4.
void model_init(const model *m, int param, uint64_t seed, int64_t first, int64_t count, float *dst);

// All blocks in order, or in reverse order.
err_t model_forward(model *m, pass *p);
err_t model_backward(model *m, pass *p);

// The same with hooks and without blocks: for a rank that has no work in a pass, but whose weights or sums the others
// need.
err_t model_forward_hooks(const model *m, const pass_hooks *h);
err_t model_backward_hooks(const model *m, const pass_hooks *h);

#endif
