// trainer/greet.h: what a run says of itself before its first step: program, model, device, data, ranks, batch.
#ifndef TRAINER_GREET_H
#define TRAINER_GREET_H

#include "trainer/log/monitor.h"
#include "trainer/session/session.h"

// begins: at its first step. The bits of a run that goes on are decided.
void greet(const session *x, monitor *m, bool begins);

#endif
