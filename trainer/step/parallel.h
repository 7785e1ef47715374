// trainer/step/parallel.h: communication during a step. The model's blocks know nothing of it: hooks around them bring
// weights before they are read and hand over gradients when they are final, on a stream beside the compute stream.
//
//   forward of block b     weights of b are here; those of b+1 are being gathered (stage 3; 1 and 2 after an update)
//   backward of block b    after the last block of a bucket, the bucket goes to its owners in order of the tree, and in
//                          stage 0 comes back. Only on the last micro-batch of a lane (stages 2, 3) or of this rank's
//                          last lane (stages 0, 1)
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
    event *computed;         // on s: the input of the next call on the side stream is ready
    event *joined;           // on the side stream: everything queued before is done
    event **reduced;         // one for each bucket, on the side stream
    event **arrived;         // one for each segment: its new weights are here (stages 1 and 2)
    bool *fresh;             // [segments] new weights are on their way
    event *gathered[2];      // stage 3: one for each of the two places
    int held[2];             // the block whose weights each place holds, -1: none
    size_t *slab_at;         // [segments] where a segment begins in a slab
    float **lanes, **kepts;  // bases, for reduce_run
    bool final;              // this pass completes the gradients of its lane, or of this rank's lanes
    int64_t step, turn;
    int merges;              // stages 0 and 1: pairs that become siblings with the last lane
    struct { int into, from; } merge[ORDERED_LEVELS];
    double wait_s;           // seconds that the host waited for communication, since parallel_times
    _Atomic double busy_s;   // seconds in communication, since parallel_times
    stopwatch watch;         // both by the device's clock, where the device runs asynchronously
} parallel;

err_t parallel_open(parallel *x, train_state *t);
void parallel_close(parallel *x);

// Before a step's first lane.
void parallel_begin(parallel *x, int64_t step);

// Before a lane writes to its slab: waits until nothing reads the previous lane any more.
err_t parallel_lane(parallel *x);

// Before each micro-batch. last: it is the last of its lane (stages 2 and 3) or of this rank's last lane (0 and 1). c:
// where lanes are added along the tree, the lane counter that contains this lane, not yet merged; NULL otherwise.
void parallel_micro(parallel *x, int64_t turn, bool last, const lane_counter *c);

// True: in this micro-batch the hooks queue work on the compute stream only, the same for all micro-batches with this
// `last`.
bool parallel_is_quiet(const parallel *x);

// After the last lane: work queued from here on sees the complete sum (state_gradient).
err_t parallel_finish(parallel *x);

// After the update: owners send their new weights to all ranks. Does not wait; the hooks do.
err_t parallel_spread(parallel *x);

// Since the last call, by the host's clock: seconds that the host waited for communication, and seconds in
// communication.
void parallel_times(parallel *x, double *wait_s, double *busy_s);

// Work queued on the compute stream from here on runs after all communication queued so far.
err_t parallel_join(parallel *x);

// Waits until none of this rank's communication is in flight. Call it before any other collective.
err_t parallel_wait(parallel *x);

// Call it after weights were set from outside: gathered copies are stale.
void parallel_forget(parallel *x);

#endif
