// trainer/session/auc.h: the area under the ROC curve: how likely a model gives a higher chance to a sample of class 1
// than to one of class 0, where equal ones count half. Chances are rounded down to one of 65,536 buckets. Only whole
// numbers are added, so the order of samples, and who counts them, changes no bit.
#ifndef TRAINER_SESSION_AUC_H
#define TRAINER_SESSION_AUC_H

#include <stdint.h>

enum { AUC_BUCKETS = 65536 };

// count: (2, AUC_BUCKETS), of each class. chance: 0 to 1.
void auc_add(int64_t *count, int class, double chance);
// NaN where a class has no samples.
double auc_area(const int64_t *count);

#endif
