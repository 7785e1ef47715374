// trainer/step/live.h: the state that ranks hold alike, when some of them were lost.
//
// Without ZeRO every rank that shares rows has all of their masters and of what the optimizer keeps, so nothing is lost
// with one of them: those that are left give it to who comes next. Each gives a share, and that of the rank before it,
// in case that one was lost:
//
//   rank        0      1      2      3        1 is lost
//   shares      0 3    1 0    2 1    3 2      0 3 2 are there, and 1 of rank 2
//
// From ZeRO 1 on a rank's masters are its own, and lost with it, as rows on demand always are: then all go back to the
// newest snapshot.
#ifndef TRAINER_STEP_LIVE_H
#define TRAINER_STEP_LIVE_H

#include "trainer/checkpoint/vault.h"
#include "trainer/step/state.h"

bool live_is_shared(const train_state *t);

// Values that this rank gives at most; 0: none.
int64_t live_values(const train_state *t);

// What this rank gives, with sums over the whole slices of rows that it is cut from: *range is the caller's to free.
// After a failure of the ranks' communication, which it does not need.
err_t live_ranges(train_state *t, vault_range **range, int *n);

// What reads them: NULL: the host can.
stream *live_stream(const train_state *t);

#endif
