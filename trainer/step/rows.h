// trainer/step/rows.h: rows on demand in a step. A rank owns those of some buckets, or of none (row_cuts): all ranks as
// many, or servers more than others, as of the rest of the state ([server] weight).
//
//   FETCH    a micro-batch's ids -> its keys, sorted, each once -> their owners, who look -> their rows. Beside the
//            micro-batch before it, so there are two sets of rows
//   AHEAD    the keys of the next step's first micro-batch, as far as it is loaded -> their owners, who begin to read
//            those that are cold. Their values are asked for after the update, by FETCH
//   KEEP     the gradients of these rows -> added to those of the lane's micro-batches before; a lane that has ended
//            is added to its sibling, if that is here
//   ROWS     what is left of the tree's subtrees here -> the owners of their rows, who add siblings, in order of lane
//   SQUARES  of the owners' sums, bucket by bucket
//   UPDATE   AdaGrad on these rows; those that are new are made
//
// In all sums a row that only one side has is taken as it is. So the bits are those of one rank, and a row's cost is
// paid where it is touched. Lists have room for a micro-batch, or a step, in which no id comes twice.
//
// A row exists after the first step that has updated it. Until then all see its initial values, so evaluations and
// steps that are skipped make none.
//
// All of it is in host memory, and done when the call returns. FETCH and AHEAD are called from the stream beside
// (trainer/step/parallel.h), where other communication has the same connections; all else when nothing is queued there.
#ifndef TRAINER_STEP_ROWS_H
#define TRAINER_STEP_ROWS_H

#include "comm/comm.h"
#include "comm/ordered.h"
#include "comm/server/table.h"
#include "gpu/ops_step.h"
#include "model/model.h"

struct train_state;

#define ROW_EPS 1e-10f  // of AdaGrad; PyTorch's default

// A sum over lanes first .. first+size-1, a subtree, at `at` of its pile.
typedef struct list_span {
    int64_t first, size;
    int64_t at, n;
} list_span;

// Lists one after the other, in order of lane.
typedef struct row_pile {
    int64_t spans, used;
    list_span *span;  // [lanes + 1]
    tensor key, row;  // as row_list, for all of them
} row_pile;

// The rows of a micro-batch.
typedef struct rows_set {
    const tensor *ids;   // in its input slot
    pass_rows fetched;   // as step_rows_of gives it
    tensor values, key;  // (most,D); (most) row_key
    int64_t keys;
} rows_set;

typedef struct step_rows {
    const model_table *of;  // NULL: there are none, and nothing below
    row_table *const *table;
    comm *ranks;
    const int *cut;  // [world + 1] as row_cuts
    lane_table lanes;
    int64_t most;  // ids of a micro-batch
    rows_set set[2];
    int now;                    // the one that is computed with
    const void *next;           // ids of the next step's first micro-batch
    tensor gradient;            // (most,D)
    tensor more, scratch;       // (most) row_key; INT32
    tensor asked, answer;       // keys that other ranks ask for, and their rows
    row_pile own, owned;        // this rank's lanes; of all lanes the rows that it owns: of one rank, the same
    tensor more_key, more_row;  // for a sum of two lists
    // For exchanges:
    list_span *left;   // [lanes] subtrees that are left of each rank's lanes, rank after rank
    int64_t *left_at;  // [world + 1] where a rank's begin
    int64_t *order;    // [lanes] of all of them in order of lane: which
    int64_t *count;
    comm_part *part;
} step_rows;

// Declares the memory of `micro` samples, and of a step's lanes if the state trains.
err_t step_rows_open(step_rows *x, const struct train_state *t, comm *ranks, int64_t micro, arena *a);
void step_rows_close(step_rows *x);

// What a pass reads: of set `now`, as many rows as it has keys. NULL: there are none.
pass_rows *step_rows_of(step_rows *x);

// Before the first micro-batch of a step.
void step_rows_begin(step_rows *x);

// Collective. To this set the rows of set->ids (B,2*tables) INT32, each id as two numbers; B 0: none, and ids is not
// read.
err_t step_rows_fetch(step_rows *x, int set, int64_t B, stream *s);

// Collective, with a set that is not in use: of x->next, B samples.
err_t step_rows_ahead(step_rows *x, int set, int64_t B, stream *s);

// After backward of micro-batch `micro` of `micros` of a lane, of set `now`.
void step_rows_keep(step_rows *x, int64_t lane, int64_t micro, int64_t micros);

// Collective, after the last lane.
err_t step_rows_send(step_rows *x, stream *s);

// The last ROW_BUCKETS of these sums (=). Nothing where there are no rows on demand, here and below.
void step_rows_squares(const step_rows *x, const tensor *sums);

// counts (ROW_COUNTS) FP64 (=) the rows that this rank has, how many the update will make, and how many of those that
// it has are in its file alone.
void step_rows_count(const step_rows *x, const tensor *counts);

// Once the step is decided.
err_t step_rows_update(step_rows *x, const step_state *decided);

#endif
