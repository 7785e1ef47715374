// trainer/step/served.h: steps whose gradients servers apply as they come ([server] mode = bounded, async or hybrid).
// What each of them does next is decided in comm/server/serving.h; here it is done.
//
//     worker    NEXT, PULL | forward ... backward | PUSH, NEXT, PULL | forward ...
//                    weights of blocks     buckets, as backward finishes them
//     server                 a thread a worker receives and sends; this rank's own thread updates, one push after the
//                            other: finish_pushed
//
// A push is one worker's share of a step's samples, and its gradient their mean. So a step makes as many updates as
// there are workers, each of fewer samples (in hybrid: one, of the mean of those that were there). Gradients are
// clipped one by one. Adam counts updates; the learning rate is that of the ticket's step.
//
// After a period all ranks meet: every push is applied, all hold the same weights, and a step_state, which is the first
// server's. What comes between is in no checkpoint.
#ifndef TRAINER_STEP_SERVED_H
#define TRAINER_STEP_SERVED_H

#include "trainer/step/server.h"
#include "trainer/step/step.h"

typedef struct served served;

typedef struct served_options {
    serving_rules rules;
    int64_t most;                 // steps of a period
    const char *record, *replay;  // directories of served-K.log; NULL: none
    int64_t after;                // the step from which the run goes on
} served_options;

// The results of a period's steps, until the next one.
typedef struct served_results {
    const step_result *result;  // [steps]
    const served_step *step;    // [steps]
} served_results;

// Before the first period, when all weights are the same. Collective. ERR_DATA, ERR_IO: of the records.
err_t served_open(served **out, step_runner *r, const served_options *o);
void served_close(served *x);

// Steps first .. last. Collective; the results are the same on all ranks. ERR_DATA, ERR_IO: some rank could not read
// its data, and some of the period is in the weights: the newest checkpoint stands.
err_t served_period(served *x, loader *data, int64_t first, int64_t last, served_results *out);

// "320 gradients; updates of others that each had missed: 0 in 12 %, ..." of all periods so far, into dst. Returns dst.
enum { SERVED_SUMMARY = 512 };
const char *served_summary(const served *x, char dst[SERVED_SUMMARY]);

#endif
