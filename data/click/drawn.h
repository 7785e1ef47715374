// data/click/drawn.h: what made-up records are drawn with: numbers that follow from seed, record and draw alone, by
// arithmetic that is the same on every machine; and ids, few of which are frequent.
#ifndef DATA_CLICK_DRAWN_H
#define DATA_CLICK_DRAWN_H

#include "base/err.h"

#include <stdint.h>

// [0,1) with 53 bits: draw `which` of record n.
double drawn_uniform(uint64_t seed, uint32_t site, int64_t n, uint32_t which);

// normal(0, std): parameter i of a model, by Box-Muller.
double drawn_normal(uint64_t seed, uint32_t site, int64_t i, double std);

// Ids 0 .. ids-1, id k with probability ~ (k+1)^-power (Zipf).
typedef struct drawn_ids {
    int64_t ids;
    double *below;  // (ids) the chance of an id of at most this
} drawn_ids;
err_t drawn_ids_open(drawn_ids *x, int64_t ids, double power);
void drawn_ids_close(drawn_ids *x);
int64_t drawn_id(const drawn_ids *x, double u);  // u: from [0,1)

#endif
