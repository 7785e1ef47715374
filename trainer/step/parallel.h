// trainer/step/parallel.h: what the ranks do together while a step is computed. The blocks of the model know nothing of it: hooks around them bring
// weights before they are read and hand over gradients when they are final, on a stream beside the compute stream.
//
//   forward of block b     weights of b are here; those of b+1 are being gathered                        (stage 3, and 1 and 2 after an update)
//   backward of block b    when the last block of a bucket is done, on the last micro-batch of a lane (stages 2, 3) or of this rank's last lane
//                          (stages 0, 1): the bucket goes to its owners in order of the tree, and in stage 0 comes back
#ifndef TRAINER_STEP_PARALLEL_H
#define TRAINER_STEP_PARALLEL_H

#include "trainer/step/state.h"
#include "trainer/log/stopwatch.h"

#include <stdatomic.h>

typedef struct parallel {
    train_state *state;
    comm *ranks;
    const ops *ops;
    stream *s, *side;        // compute, communication
    pass_hooks hooks;        // for every pass
    event *computed;         // on s: what a call on the side stream needs is there
    event *joined;           // on the side stream: all of it up to here is done
    event **reduced;         // one for each bucket, on the side stream
    event **arrived;         // one for each segment: its weights were updated everywhere (stages 1 and 2)
    bool *fresh;             // [segments] they are on their way
    event *gathered[2];      // stage 3: the two places
    int held[2];             // the block whose weights each has, -1: none
    size_t *slab_at;         // [segments] where a segment begins in a slab
    float **lanes, **kepts;  // bases, for reduce_run
    bool final;              // the gradients of this pass are the last of their lane or of this rank's lanes
    int64_t step, turn;
    int merges;              // stages 0 and 1: what becomes siblings when the last lane is done
    struct { int into, from; } merge[ORDERED_LEVELS];
    double wait_s;           // the host waited for communication: since it was last taken
    _Atomic double busy_s;   // communication was under way: the same
    stopwatch watch;         // the same by the device's clock, where it works on its own
} parallel;

err_t parallel_open(parallel *x, train_state *t);
void parallel_close(parallel *x);

// Before a step's first lane.
void parallel_begin(parallel *x, int64_t step);

// Before a lane writes to its slab: whatever still reads the lane before is done.
err_t parallel_lane(parallel *x);

// Before each micro-batch: whether it is the last of its lane (stages 2 and 3) or of this rank's last lane (0 and 1). c: the lane counter with that lane
// in it and not yet merged, where lanes are added along the tree; NULL otherwise.
void parallel_micro(parallel *x, int64_t turn, bool last, const lane_counter *c);

// Would the hooks queue nothing in this micro-batch but work on the compute stream, the same for all micro-batches with this `last`?
bool parallel_is_quiet(const parallel *x);

// Behind the last lane: what is queued from here on finds the whole sum (state_gradient).
err_t parallel_finish(parallel *x);

// Behind the update: owners' new weights go to everybody. Does not wait; hooks do.
err_t parallel_spread(parallel *x);

// Seconds since the last call, by the host's clock: the host waited for communication, and communication was under way.
void parallel_times(parallel *x, double *wait_s, double *busy_s);

// What is queued on the compute stream from here on comes after all that is under way between the ranks.
err_t parallel_join(parallel *x);

// Until nothing of this rank's is under way. Before anything else asks the ranks for something.
err_t parallel_wait(parallel *x);

// Weights were set from outside: what was gathered is stale.
void parallel_forget(parallel *x);

#endif
