// trainer/bench.h: the speed of training steps, on made-up samples: no data, no files. A rank each; rank 0 prints.
#ifndef TRAINER_BENCH_H
#define TRAINER_BENCH_H

#include "comm/team/team.h"
#include "trainer/config/config.h"
#include "trainer/log/board.h"

// `lockstep bench`: the time of [run] steps whole steps.
err_t bench_rank(const config *c, const launch *at, board *b);

// `lockstep bench step`: the time of a step, operation by operation, compared with what this device could do.
err_t bench_step_rank(const config *c, const launch *at, board *b);

#endif
