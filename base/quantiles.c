// base/quantiles.c: see base/quantiles.h.
#include "base/quantiles.h"

#include <math.h>
#include <string.h>

// Where among the sorted numbers this one is, or would come.
static int place_of(const quantiles *q, float x) {
    int low = 0;
    for (int high = q->count; low < high;) {
        int middle = (low + high) / 2;
        if (q->sorted[middle] < x) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void forget_oldest(quantiles *q) {
    int at = place_of(q, q->ring[q->next]);
    q->count--;
    memmove(&q->sorted[at], &q->sorted[at + 1], (size_t)(q->count - at) * sizeof *q->sorted);
}

void quantiles_add(quantiles *q, double x) {
    if (isnan(x)) return;
    if (q->count == QUANTILES_ROOM) forget_oldest(q);
    int at = place_of(q, (float)x);
    memmove(&q->sorted[at + 1], &q->sorted[at], (size_t)(q->count - at) * sizeof *q->sorted);
    q->sorted[at] = q->ring[q->next] = (float)x;
    q->count++;
    q->next = (q->next + 1) % QUANTILES_ROOM;
}

double quantiles_at(const quantiles *q, double share) {
    int rank = (int)ceil(share * q->count);
    return q->count ? (double)q->sorted[rank > 0 ? rank - 1 : 0] : 0;
}
