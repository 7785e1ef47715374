// base/quantiles.h: exact quantiles of the last 1024 numbers, without heap. A number more moves at most 8 KB, so that
// the one who measures need not sort, and can afford it each time.
#ifndef BASE_QUANTILES_H
#define BASE_QUANTILES_H

enum { QUANTILES_ROOM = 1024 };

// All zeros: no number yet.
typedef struct quantiles {
    int count;                     // numbers in both, at most QUANTILES_ROOM
    int next;                      // place in the ring of the next one: of the oldest, once it is full
    float ring[QUANTILES_ROOM];    // in the order in which they came
    float sorted[QUANTILES_ROOM];  // the same, the smallest first
} quantiles;

// Takes x, and forgets the oldest when there is no room for it. NaN is ignored.
void quantiles_add(quantiles *q, double x);

// The smallest number that at least this share (0 to 1) of all do not exceed; 0 without numbers.
double quantiles_at(const quantiles *q, double share);

#endif
