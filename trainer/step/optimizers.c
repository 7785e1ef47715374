// trainer/step/optimizers.c: the optimizers there are.
#include "trainer/step/optimizer.h"

const optimizer *const optimizers[] = {
    [OPTIMIZER_ADAMW] = &optimizer_adamw, [OPTIMIZER_SGD] = &optimizer_sgd, [OPTIMIZER_LARS] = &optimizer_lars};
