// trainer/step/parallel.h: the communication of a step, on a stream beside the compute stream. Each function does one
// action of the step's list (trainer/step/action.h). How gradients are summed and where weights are kept are policies
// (trainer/step/sync.h).
#ifndef TRAINER_STEP_PARALLEL_H
#define TRAINER_STEP_PARALLEL_H

#include "comm/cost.h"
#include "trainer/log/board.h"
#include "trainer/log/stopwatch.h"
#include "trainer/step/state.h"

#include <stdatomic.h>

typedef struct parallel parallel;
struct step_rows;

// Work on the side stream: `what` is a bucket, a block or a segment.
typedef err_t (*parallel_body)(parallel *x, int what, int64_t turn, stream *inner);

// How the ranks' gradients become one sum.
typedef struct gradient_policy {
    parallel_body reduce;  // of a bucket, to the owners' sums, or to all ranks' (ZeRO 0)
    // What this rank sends for it.
    err_t (*cost)(train_state *t, int bucket, int64_t turn, comm_cost *out);
} gradient_policy;

// Where the weights are while they are used.
typedef struct weight_policy {
    err_t (*gather)(parallel *x, int block);  // NULL: never asked for
    err_t (*need)(parallel *x, int block);
    err_t (*spread)(parallel *x);  // after the update
    comm_cost (*gather_cost)(train_state *t, int block);
    comm_cost (*spread_cost)(train_state *t);
} weight_policy;

struct parallel {
    train_state *state;
    comm *ranks;
    const ops *ops;
    const gradient_policy *gradients;
    const weight_policy *weights;
    stream *s, *side;        // compute, communication
    event *computed;         // on s: the input of the next call on the side stream is ready
    event *joined;           // on the side stream: everything queued before is done
    event **reduced;         // one for each bucket, on the side stream
    event **arrived;         // one for each segment: its new weights are here
    bool *fresh;             // [segments] new weights are on their way
    event *gathered[2];      // one for each of the two buffers of gathered weights
    struct step_rows *rows;  // on demand
    event *fetched[2];       // one for each of its two sets
    float **lanes, **kept;   // addresses of the lane buffers and of the kept partial sums
    int64_t step;
    // seconds that the host waited, by what for (WAIT, BEFORE, AFTER, JOIN), since parallel_times
    double wait_s[SPANS];
    _Atomic double busy_s;  // seconds in communication, since parallel_times
    stopwatch watch;        // both by the device's clock, where the device runs asynchronously
    board_rank *board;      // NULL: nowhere to say what is under way
};

// What else a step may wait for: messages and stages of this rank in a pipeline (trainer/step/stages.h; else 0 and 1),
// and calls among ranks that share its layers.
typedef struct parallel_spans {
    int messages, chunks, merges;
} parallel_spans;
err_t parallel_open(parallel *x, train_state *t, const gradient_policy *gradients, const weight_policy *weights,
                    const parallel_spans *spans);
void parallel_close(parallel *x);

// The actions. step: of which they are.
err_t parallel_gather(parallel *x, int block);
err_t parallel_need(parallel *x, int block);
err_t parallel_fetch(parallel *x, int set, int64_t B);  // step_rows_fetch
err_t parallel_have(parallel *x, int set);
err_t parallel_ahead(parallel *x, int set, int64_t B);  // step_rows_ahead
err_t parallel_take(parallel *x, int bucket);
err_t parallel_zero(parallel *x, int bucket);
err_t parallel_add(parallel *x, int bucket, int into, int from);  // bucket -1: whole buffers
err_t parallel_reduce(parallel *x, int bucket, int64_t turn);
err_t parallel_settle(parallel *x);
err_t parallel_spread(parallel *x);

// Since the last call, by the host's clock: seconds that the host waited, by kind, and seconds in communication.
void parallel_times(parallel *x, double wait_s[SPANS], double *busy_s);

// Work queued on the compute stream from here on runs after all communication queued so far.
err_t parallel_join(parallel *x);

// Waits until none of this rank's communication is in flight. Call it before any other collective.
err_t parallel_wait(parallel *x);

// --- for the policies ------------------------------------------------------------------------------------------------

// The side stream waits for the work queued so far on the compute stream.
err_t parallel_follow(parallel *x);

// The compute stream waits for the event, and the time is counted as SPAN_WAIT, or as this kind.
err_t parallel_wait_for(parallel *x, event *e);
err_t parallel_wait_as(parallel *x, span_kind kind, event *e);

// parallel_wait_for; meanwhile the board says what is waited for, and then again what it said before.
err_t parallel_wait_shown(parallel *x, event *e, const char *what, int64_t number);

// Queues body(x, what, turn, inner) on the side stream, and records `done` after it. Its time is counted. It waits for
// what was computed before the last parallel_follow: one serves all calls that follow with nothing computed between
// them. phase: what a rank that is lost in it is said to have been doing.
err_t parallel_queue(parallel *x, const char *phase, parallel_body body, int what, int64_t turn, event *done);

#endif
