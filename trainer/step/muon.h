// trainer/step/muon.h: what Muon makes of the direction in which a matrix should move: the nearest matrix whose
// singular values are all 1, or close to it (Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural
// networks").
//
//   x = d / |d|;  five times:  a = x x^T (the smaller side),  x = 3.4445 x + (-4.7750 a + 2.0315 a a) x
//
// which is Newton and Schulz's iteration with the coefficients that were published. The result is multiplied by 0.2
// sqrt(max(rows, columns)), so that its elements are as large as those of AdamW's steps: then one learning rate and one
// decay serve both (Liu et al. 2025, "Muon is scalable for LLM training", section 2.2). Where a row consists of several
// matrices, one below the other, such as q, k and v, each is taken by itself.
//
// All is FP32, by the products of the device. A matrix is put together in the order of its own rows and columns, so
// that the bits do not depend on where its slices were. Whoever updates has all of it: no owner of ZeRO has a part
// (model/param.h: whole), and ranks that share a layer send each other the directions of their slices.
#ifndef TRAINER_STEP_MUON_H
#define TRAINER_STEP_MUON_H

#include "comm/cost.h"
#include "gpu/ops.h"
#include "model/param.h"

typedef struct muon_room {
    int64_t row, part, side, chunks;  // elements of the largest row and matrix, the longest shorter side, chunks
    tensor d;                         // FP32: the row that is being updated, all its slices
    tensor x[2], square[3];           // FP32: a matrix; its squares on the shorter side
    tensor sums;                      // FP64
    size_t *cut;                      // where the parts of ranks that share a layer begin in d, bytes
} muon_room;

// Before muon_declare: this row is one of those that are updated here. Without any, there is no memory.
void muon_count(muon_room *m, const param *p);
err_t muon_declare(muon_room *m, arena *a, const comm *layer);
void muon_close(muon_room *m);

// Where slice `slice` of the row is in d.
tensor muon_slice(const muon_room *m, const param *p, int slice, int64_t count);

// Sends the slices that are in d to the ranks that share the layer, each of which has equally many. layer NULL: all are
// here. The cost is what this rank sends.
err_t muon_gather(muon_room *m, const param *p, comm *layer, stream *s);
comm_cost muon_gather_cost(muon_room *m, const param *p, const comm *layer);

// d (+=): of each slice from `first` on, `count` of them, what is to be taken from the master times the learning rate.
err_t muon_orthogonalize(const muon_room *m, const param *p, int first, int count, const ops *on, stream *s);

#endif
