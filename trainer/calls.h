// trainer/calls.h: `lockstep bench comm`: how long collectives of the run's ranks take, by size, and by how many of the
// ranks. A rank each; rank 0 prints, and saves (trainer/costs/costs.h).
#ifndef TRAINER_CALLS_H
#define TRAINER_CALLS_H

#include "comm/team/team.h"
#include "trainer/config/config.h"
#include "trainer/log/board.h"

err_t calls_rank(const config *c, const launch *at, board *b);

#endif
