// trainer/session/auc.c: see trainer/session/auc.h.
#include "trainer/session/auc.h"

#include <math.h>

void auc_add(int64_t *count, int class, double chance) {
    int64_t k = (int64_t)(chance * AUC_BUCKETS);
    count[class * AUC_BUCKETS + (k < AUC_BUCKETS ? k : AUC_BUCKETS - 1)]++;
}

// Twice the number of pairs in order, in which one of equal chances counts half: exact up to 67 million samples a
// class.
double auc_area(const int64_t *count) {
    double pairs = 0, below = 0, others = 0;
    for (int k = 0; k < AUC_BUCKETS; k++) {
        double no = (double)count[k], yes = (double)count[AUC_BUCKETS + k];
        pairs += yes * (2 * below + no);
        below += no, others += yes;
    }
    return below > 0 && others > 0 ? pairs / (2 * below * others) : NAN;
}
