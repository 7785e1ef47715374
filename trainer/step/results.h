// trainer/step/results.h: a step's results: the numbers that ranks add up at its end, on the device, and their copies
// on the host. Each number comes from one rank and is zero on all others, or is whole, so adding them rounds nothing.
#ifndef TRAINER_STEP_RESULTS_H
#define TRAINER_STEP_RESULTS_H

#include "gpu/ops.h"
#include "model/model.h"
#include "trainer/config/config.h"
#include "trainer/log/report.h"

// A step's results on the host, pinned, until they are collected.
typedef struct result_slot {
    // (G + world * REPORT_ITEMS) FP64: sample_loss and reports, and after them sample_counts and row_counts
    tensor loss;
    tensor report;    // (REPORT_ITEMS) FP64: this rank's, on its way to the device
    tensor state[2];  // step_state and the optimizer's scalars, as INT32 words: before and after it was decided
    tensor lr;        // FP32, on its way to the device
    event *done;      // all results have arrived
    int64_t step;
} result_slot;

enum { ROW_COUNTS = 3 };

typedef struct results {
    tensor shared;  // FP64: those below, one after the other
    // (chunks) sum of squares of each chunk of the gradient, rows in order; then of each bucket of rows on demand
    tensor sums;
    tensor masters;        // (chunks) ... of the masters. No size: the optimizer does not ask for them
    tensor sample_loss;    // (G) mean loss of each sample of the step
    tensor reports;        // (world, REPORT_ITEMS)
    tensor sample_counts;  // (G) how many losses of each sample count. No size: all do
    // (ROW_COUNTS) of rows on demand, all ranks' together: before the step; new ones; of those before, in files alone.
    // No size: there are none
    tensor row_counts;
    tensor micro_loss;    // (B) FP64: losses of the micro-batch's samples
    tensor micro_counts;  // (B) FP64: how many of each one's losses count. No size: all do
    int32_t *sums_at;     // [rows+1] first chunk of each row
    result_slot slot[2];  // `slots` of them: a step is queued before the previous one is collected
    int slots;
    tensor host_void;  // FP64: not a number
    // Where steps run ahead, INT32: set when the transport ends what is queued (comm_revoke_at), pinned; and as it was
    // when the step's sums were through, on the device. No size: else.
    tensor revoked, seen;
    // Where the optimizer looks at whole rows (optimizer.h: rows), on the device: sums_at, and what it makes of a row.
    tensor rows_at, of_row;
    // ... and masters are updated on the host, pinned: squares of its masters on their way to the device, and of_row.
    tensor host_masters, host_of_row;
} results;

typedef struct result_options {
    int world;
    int islands;      // each has sums of its own
    int slots;        // steps that may be queued and not collected
    int64_t words;    // of the step_state with its scalars
    int64_t buckets;  // of rows on demand: their sums of squares come after those of all chunks
    bool rows;        // the optimizer looks at whole rows
    bool on_host;     // masters are updated there
    arena *memory, *staging;
} result_options;

// Declares them; results_commit follows when the arenas have memory. Waits.
err_t results_open(results *x, const config *c, const model *net, const result_options *o);
err_t results_commit(results *x, device *dev, stream *s);
void results_close(results *x);

static inline result_slot *results_of(results *x, int64_t step) { return &x->slot[step % x->slots]; }

// The times of rank k among a step's results; and the mean of the losses that count, NaN if none does.
static inline const double *results_report(const results *x, const result_slot *of, int k) {
    return (const double *)of->loss.data + x->sample_loss.size[0] + k * REPORT_ITEMS;
}
// How many rows on demand there are after a step; and how many before it were in files alone. 0: none.
int64_t results_row_count(const results *x, const result_slot *of, bool applied);
int64_t results_cold_rows(const results *x, const result_slot *of);
// losses: of a sample.
double results_loss(const results *x, const result_slot *of, int64_t losses);

#endif
