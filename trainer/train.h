// trainer/train.h: a run from its INI to its last step.
#ifndef TRAINER_TRAIN_H
#define TRAINER_TRAIN_H

#include "comm/team/team.h"
#include "trainer/config/config.h"
#include "trainer/log/board.h"

// A rank of `lockstep CONFIG.ini`: trains to the last step. b->stop: finish the step, save, return ERR_INTERRUPTED.
err_t train_rank(const config *c, const launch *at, board *b);

#endif
