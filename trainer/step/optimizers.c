// trainer/step/optimizers.c: the optimizers there are.
#include "trainer/config/groups.h"
#include "trainer/step/optimizer.h"

const optimizer *optimizer_of(const optimizer_keys *o) {
    static const optimizer *const by_kind[] = {[OPTIMIZER_ADAMW] = &optimizer_adamw,
                                               [OPTIMIZER_SGD] = &optimizer_sgd,
                                               [OPTIMIZER_LARS] = &optimizer_lars,
                                               [OPTIMIZER_MUON] = &optimizer_muon};
    return groups_have(o->groups, OPTIMIZER_MUON) ? &optimizer_muon : by_kind[o->type];
}
