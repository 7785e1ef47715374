// trainer/step/row_rules.h: what [optimizer] says of each parameter: the run's own settings, or those of the first of
// its groups that matches the name (trainer/config/groups.h).
#ifndef TRAINER_STEP_ROW_RULES_H
#define TRAINER_STEP_ROW_RULES_H

#include "model/model.h"
#include "trainer/config/groups.h"

typedef struct row_rule {
    int group;     // -1: none
    double lr;     // factor
    double decay;  // 0: it does not decay
    bool muon;     // a matrix that Muon updates; a tied row has no update
} row_rule;

// [params], free() it. Marks rows that have to be whole where they are updated. ERR_CONFIG: a group that matches
// nothing or asks for what can't be.
err_t row_rules_open(row_rule **out, model *net, const optimizer_keys *o);

#endif
