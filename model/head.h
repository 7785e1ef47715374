// model/head.h: the last linear layer and softmax cross entropy, over classes or a vocabulary.
//
// It works on one chunk of rows after the other: the logits of all rows would be the largest tensor of all. In training
// a chunk's logits are overwritten by their gradient, which is used before the next chunk begins. So one loop over the
// chunks gives losses, dx and the gradients of weights; it runs in backward. The weight's gradient is summed from zero
// over each chunk, not over a micro-batch, and added once for each chunk. Token slices (model.h) have sums of their
// own, so each has its own share of the chunks.
//
// Vp is V in memory, V or more: the products include rows of zeros after the weight. These give columns of logits that
// no softmax reads; their gradient is zero and adds nothing to dx or to the padding of the weight's gradient.
// With slices (model.h) the vocabulary in memory is divided: each slice has Vp/S rows of W and columns of logits, its
// own matrix of them; dx and the sum of exponentials are sums over slices.
#ifndef MODEL_HEAD_H
#define MODEL_HEAD_H

#include "model/linear.h"

typedef struct head {
    linear at;  // W (V,C), b (V). Divided: by its outputs, without a bias, or by its inputs
    int64_t classes, Vp;
    int64_t rows;   // of a chunk
    tensor logits;  // (rows,Vp), or (slices here,rows,Vp/S)
    tensor kept;    // (3,rows) FP32, where slices are elsewhere too: what a stage of the softmax leaves
    tensor last;    // (texts,C) E, where rows are elsewhere: what is predicted from
} head;

// Tensor cores are fast when rows of logits begin at multiples of 16 bytes and tiles are whole. GPT-2's 50257 gives
// neither, 50304 gives both. The padding is only in memory: names, shapes, files, hashes and samples have V.
enum { VOCAB_ALIGN = 128 };
static inline int64_t head_rows_in_memory(int64_t vocab, int64_t slices) {
    int64_t unit = slices > VOCAB_ALIGN ? slices : VOCAB_ALIGN;
    return (vocab + unit - 1) / unit * unit;
}

// The fewest chunks with at most HEAD_LOGITS elements each (or one row), lest they be the largest tensor of all. On a
// GPU with at least HEAD_ROWS_GPU rows each: a product of fewer rows does not fill it, and each chunk reads and writes
// the weight's whole gradient.
enum { HEAD_LOGITS = 20 << 20, HEAD_ROWS_GPU = 8192 };
int64_t head_chunks(int64_t rows, int64_t vocab, bool gpu);

// Rows of a chunk. Their number affects the bits of the weight's gradient. A chunk has an equal share of the rows,
// rounded up to whole tiles of a matrix product; the last one may have fewer.
enum { HEAD_TILE = 128 };
int64_t head_rows(int64_t rows, int64_t chunks);

// For at most `rows` rows of a micro-batch in so many chunks. Set at, classes and Vp first.
err_t head_plan(head *h, arena *a, const model_plan *o, int64_t rows, int64_t chunks);

// losses (N) (=) of the rows of x (N,C), and hits (N) FP64 (=) unless NULL: 1 where the target's logit is the first
// largest. If p->dw is given: the gradients of W and b (+=), and dx (N,C) (=), which may be x; NULL: not wanted.
err_t head_losses(head *h, pass *p, const tensor *losses, const tensor *hits, const tensor *dx, const tensor *x,
                  const tensor *targets);

// Of a model with a residual stream, of which x has the rows that are here (model_matrix_rows): the losses of all
// positions, with targets (B,T), as above; dx takes the place of x. And the scores of what follows each sample, from
// its last position: of several samples each has one.
err_t head_stream_losses(head *h, pass *p, const tensor *x, const tensor *targets);
err_t head_stream_scores(head *h, pass *p, const tensor *x);

// p->scores (B,V) = the logits of B rows, without the padding.
err_t head_scores(head *h, pass *p, const tensor *x);

#endif
