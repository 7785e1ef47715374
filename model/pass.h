// model/pass.h: one micro-batch on its way through the blocks.
#ifndef MODEL_PASS_H
#define MODEL_PASS_H

#include "gpu/ops.h"
#include "model/division.h"

enum { MODEL_INPUTS = 5 };

// Where a text's keys and values are kept, and how many positions are there already. The input comes after these.
typedef struct pass_past {
    int kv_slot;  // 0 .. model_plan.kv_slots-1
    int64_t first;
    int64_t read;  // of a model that says another text than it reads: tokens of the one that it has read
} pass_past;

// Of a model that reads one text and says another one.
typedef enum { TEXT_BOTH, TEXT_READ, TEXT_SAID } pass_text;

// The rows of a micro-batch that are made on demand (model.h: model_table), each once, N = B * tables or fewer of them.
typedef struct pass_rows {
    tensor index;     // (B,tables) INT32: which of them each sample names
    tensor values;    // (N,D) E
    tensor gradient;  // (N,D) FP32 (=); unused if dw is NULL
} pass_rows;

typedef struct pass {
    const ops *ops;
    stream *s;
    int64_t B;  // samples, at most the planned number
    // samples of the whole micro-batch, if these are a part of it: a device chooses algorithms by it. 0: B
    int64_t whole;
    int64_t rows;             // the same in rows of a matrix, for samples of any length. 0: as `whole` says
    int slot;                 // where the blocks keep what their backward pass reads: 0 .. model_plan.slots[block]-1
    tensor in[MODEL_INPUTS];  // (B, ...) the samples' inputs, in the order of model.input, on the device
    const tensor *x;          // [blocks-1] the output of block b, which block b+1 reads: (B, ...) E, shapes as planned
    // [blocks-1] its gradient (=); unused if dw is NULL. All of them may share memory: a block reads all of dx[b]
    // before it writes dx[b-1]
    const tensor *dx;
    // the parameters' values, E, one tensor for each row of the table. A divided parameter has the slices that are
    // here, one after the other: (rows here, columns), or, where columns are divided, (slices here, rows, columns of a
    // slice)
    const tensor *w;
    tensor wide;  // (the most elements of a row that is kept in 8 bits) E: scratch; unused if there is none
    tensor *dw;   // their gradients, FP32 (+=), shaped like them. NULL: forward only
    // with several token slices here: dw has the gradients of the first, more_dw those of the others, table after
    // table. NULL: dw has the sum of all, in order
    tensor *more_dw;
    const pass_rows *fetched;  // NULL: the model has no tables of rows on demand
    const slice_merge *merge;  // NULL: all slices are here
    const row_swap *swap;      // NULL: all rows are here
    bool fresh;                // dw is (=): it is not initialized
    const step_state *state;   // on the device: the loss scale
    float loss_factor;         // 1 / (G * model.losses): the share of one loss in the step's mean loss
    dropout_key drop;          // seed, step and first sample; p = 0: no dropout of the model's own
    float drop_adapted;        // the same probability for what adapters read
    // (B, model.losses) FP32 (=), the caller's memory: the last block writes it, in forward, or, if dw is given, in
    // backward
    tensor losses;
    tensor metrics;  // (metrics, B) FP64 (=), the caller's memory; written with the losses; no data: not wanted
    // scores of the next token instead of losses; samples are as long as in[0]
    bool predict;
    // when predict, of a model that says another text than it reads, without `past`: the row whose scores are wanted
    int64_t row;
    // [B] when predict: the samples' earlier positions. If B > 1, each sample has one new position. NULL: there are no
    // earlier ones, and no keys and values are kept
    const pass_past *past;
    // with `past`, of a model of two texts: the input is of this one alone. TEXT_READ: one sample, all that is read;
    // its keys and values are kept for what will be said of it, and there are no scores. TEXT_SAID: what is said of it
    pass_text text;
    // (B,V) FP32 (=), the caller's memory, when predict. Of a model of classes (B,classes): their logits, beside the
    // losses; no data: not wanted
    tensor scores;
    // (B, model.losses) FP32 (=), the caller's memory: of a model that says answers (model.says), beside the losses,
    // minus the token that is likeliest at each place whose target counts, the first one of equals, and any number at
    // others; no data: not wanted
    tensor said;
} pass;

#endif
