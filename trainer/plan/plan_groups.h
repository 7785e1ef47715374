// trainer/plan/plan_groups.h: which parameters are in which group of [optimizer] groups, and which ones Muon updates,
// for `lockstep plan`.
#ifndef TRAINER_PLAN_PLAN_GROUPS_H
#define TRAINER_PLAN_PLAN_GROUPS_H

#include "model/model.h"
#include "trainer/config/config.h"

#include <stdio.h>

// Prints nothing where there are no groups and no Muon.
err_t plan_groups(FILE *out, model *net, const optimizer_keys *o);

#endif
