// trainer/step/optimizer.h: what an optimizer is. It keeps FP32 arrays with one element for each element of a weight,
// and scalars of the whole run, as many as it likes, by name, and changes a piece of the weights by one operation of a
// device. Everything else is the same for all of them: where arrays and scalars lie, who has which share of them, and
// how they get into a checkpoint and back (trainer/step/state.c), and on which device a piece is updated
// (trainer/step/finish.c).
//
// A new one is a file like trainer/step/sgd.c, a line in trainer/step/optimizers.c, its word and its keys in
// trainer/config, its operation in gpu/, and its tests.
#ifndef TRAINER_STEP_OPTIMIZER_H
#define TRAINER_STEP_OPTIMIZER_H

#include "gpu/gpu.h"
#include "gpu/ops.h"
#include "trainer/config/config.h"
#include "trainer/step/mean.h"

// Some consecutive elements of one weight, all tensors of the same length.
typedef struct optimizer_piece {
    tensor w;                   // E (=) the rounded master; no data: the master itself is what a pass reads
    tensor master;              // FP32 (+=)
    tensor *array;              // FP32 (+=) what the optimizer keeps, in the order in which it named them
    tensor grad;                // FP32, scaled: the update multiplies it by state->grad_factor
    const step_state *state;    // where the operation's device reads it
    const step_scalar *scalar;  // there, too: in the order in which the optimizer named them, as of this update
    const rounding_key *round;  // of w; NULL: to nearest
    double lr, decay;           // a factor of the step's learning rate; what the weight decays by, 0: it does not
    const float *of_row;        // there, too: what `rows` has made of the whole row; NULL: the optimizer has no `rows`
} optimizer_piece;

// All rows of the model, as the device sees them once a step is decided: the same on all ranks.
typedef struct optimizer_rows {
    tensor of_row;   // (rows) FP32 (=): a number each, for the updates of the row's pieces
    tensor at;       // (rows+1) INT32: where each row's chunks begin; a tied row has none of its own
    tensor grads;    // (chunks) FP64: sums of squares of the gradient, scaled: its norm is times grad_factor
    tensor masters;  // ... of the masters of weights that decay, and 0 of all others
    const step_state *state;
} optimizer_rows;

// A scalar: the same on all ranks, and made ready for a step with the decision to apply it (gpu/ops.h: step_scalar).
typedef struct optimizer_scalar {
    const char *name;   // in a checkpoint: constant, as an array's
    step_scalar begin;  // before the first update
    // It follows from the settings of today and the number of updates: no checkpoint holds it, and it is computed again
    // when one is loaded.
    bool follows;
} optimizer_scalar;

typedef struct optimizer {
    // The name of the k-th array that it keeps with these settings, from 0 on; NULL: it keeps no more. A name is
    // constant and is what stands before the weights' own names in a checkpoint: renaming one would make checkpoints
    // unreadable. An array begins as zeros.
    const char *(*array)(const optimizer_keys *o, int k);
    // Its k-th scalar; false: it has no more. NULL: it has none.
    bool (*scalar)(const optimizer_keys *o, int k, optimizer_scalar *to);
    // Queues the update of a piece. `on` are the operations of the device in whose memory the piece is.
    err_t (*update)(const ops *on, const optimizer_keys *o, optimizer_piece *p, stream *s);
    // Queues what it computes of whole rows, before the first update: a rank may have only pieces of them. NULL: it
    // needs nothing of them, and the squares of masters are not added up.
    err_t (*rows)(const ops *on, const optimizer_keys *o, optimizer_rows *x, stream *s);
    // Of rows whose rule is Muon (trainer/step/row_rules.h), before matrices are made of the directions of their pieces
    // (trainer/step/muon.h), and after: d (=) the piece's direction, of its size; then the update by what was made of
    // it. NULL: it has no such rows.
    err_t (*direct)(const ops *on, const optimizer_keys *o, optimizer_piece *p, tensor *d, stream *s);
    err_t (*turn)(const ops *on, const optimizer_keys *o, optimizer_piece *p, const tensor *d, stream *s);
    double highest_lr;  // a learning rate as high as most models bear it
} optimizer;

extern const optimizer optimizer_adamw, optimizer_sgd, optimizer_lars, optimizer_muon;

// Of [optimizer] type, and of the types that groups name.
const optimizer *optimizer_of(const optimizer_keys *o);

// The name of the k-th array of a run: the optimizer's own, and the last, with [optimizer] ema, the mean of the weights
// (trainer/step/mean.h). NULL: there are no more.
static inline const char *optimizer_array(const optimizer *x, const optimizer_keys *o, int k) {
    int own = 0;
    while (x->array(o, own)) own++;
    return k < own ? x->array(o, k) : k == own && o->ema > 0 ? MEAN_NAME : NULL;
}

// How many arrays there are, and scalars.
static inline int optimizer_arrays(const optimizer *x, const optimizer_keys *o) {
    int n = 0;
    while (optimizer_array(x, o, n)) n++;
    return n;
}
static inline int optimizer_scalars(const optimizer *x, const optimizer_keys *o) {
    optimizer_scalar unused;
    int n = 0;
    while (x->scalar && x->scalar(o, n, &unused)) n++;
    return n;
}

// The copy of the weights that an update writes; NULL: there is none.
static inline tensor *piece_weights(optimizer_piece *p) { return p->w.data ? &p->w : NULL; }

#endif
