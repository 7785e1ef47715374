// model/head.h: the last linear layer and softmax cross entropy, over classes or a vocabulary.
//
// It works on one chunk of rows after the other, since the logits of all rows would be the largest tensor of all. In
// training a chunk's gradient overwrites its logits and is used before the next chunk begins. So one loop over the
// chunks, in backward, gives losses, dx and the gradients of weights. The weight's gradient is summed from zero over
// each chunk, not over a micro-batch, and added once a chunk. Token slices (model/division.h) have sums of their own,
// so each has its own share of the chunks.
//
// Vp is V with padding: the products include rows of zeros after the weight. These give columns of logits that no
// softmax reads. Their gradient is zero and adds nothing to dx, nor to the padding of the weight's gradient. With
// slices (model/division.h) the padded vocabulary is divided: each slice has Vp/S rows of W and a matrix of Vp/S
// columns of logits; dx and the sum of exponentials are sums over slices.
#ifndef MODEL_HEAD_H
#define MODEL_HEAD_H

#include "model/linear.h"

typedef struct head {
    linear at;  // W (V,C), b (V). Divided: by its outputs or by its inputs
    int64_t classes, Vp;
    bool frozen;      // W has no gradient
    float smoothing;  // of the targets, in training (ops.h: cross_entropy)
    int64_t top;      // the second metric: is the target among so many largest? 0: there is none
    bool says;        // a pass may ask for the likeliest class of each row (pass.said)
    bool squares;     // there is one class, whose logit is a number: its loss is the squared error
    int64_t rows;     // of a chunk
    tensor logits;    // (rows,Vp), or (slices here,rows,Vp/S)
    tensor kept;      // (3,rows) FP32, if other ranks have slices, or it says: results of the softmax's stages
    tensor last;      // (texts,C) E, if other ranks have rows: the rows of the last positions
} head;

// Tensor cores are fast when rows of logits begin at multiples of 16 bytes and tiles are whole. GPT-2's 50257 gives
// neither, 50304 gives both. The padding is only in memory: names, shapes, files, hashes and samples have V.
enum { VOCAB_ALIGN = 128 };
static inline int64_t head_rows_in_memory(int64_t vocab, int64_t slices) {
    int64_t unit = slices > VOCAB_ALIGN ? slices : VOCAB_ALIGN;
    return (vocab + unit - 1) / unit * unit;
}

// The fewest chunks with at most HEAD_LOGITS elements each, or of one row. On a GPU chunks have at least HEAD_ROWS_GPU
// rows: a product of fewer does not fill it, and each chunk reads and writes the whole gradient of the weight.
enum { HEAD_LOGITS = 20 << 20, HEAD_ROWS_GPU = 8192 };
int64_t head_chunks(int64_t rows, int64_t vocab, bool gpu);

// Rows of a chunk. Their number affects the bits of the weight's gradient. Chunks have equal shares of the rows,
// rounded up to whole tiles of a matrix product; the last one may have fewer.
enum { HEAD_TILE = 128 };
int64_t head_rows(int64_t rows, int64_t chunks);

// For at most `rows` rows of a micro-batch in so many chunks. Set at, classes and Vp first.
err_t head_plan(head *h, arena *a, const model_plan *o, int64_t rows, int64_t chunks);

// losses (N) (=) of the rows of x (N,C), and hits (metrics,N) FP64 (=) unless NULL: 1 where the target's logit is the
// first largest, and where it is among the `top` largest; of squared errors the number, and the target. p->scores
// (N,classes) (=), if it has data: the logits. p->said (N) (=), if it has data: the likeliest (model/pass.h). If p->dw
// is given: the gradients of W and b (+=), and dx (N,C) (=), which may be x; NULL: not wanted.
err_t head_losses(head *h, pass *p, const tensor *losses, const tensor *hits, const tensor *dx, const tensor *x,
                  const tensor *targets);

// For models with a residual stream, of which x has this rank's rows (model_matrix_rows). The losses of all positions,
// with targets (B,T), as above; dx overwrites x. And the scores of what follows each sample, from its last position; if
// there are several samples, each has one position.
err_t head_stream_losses(head *h, pass *p, const tensor *x, const tensor *targets);
err_t head_stream_scores(head *h, pass *p, const tensor *x);

// p->scores (B,V) = the logits of B rows, without the padding.
err_t head_scores(head *h, pass *p, const tensor *x);

#endif
