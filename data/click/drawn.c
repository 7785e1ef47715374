// data/click/drawn.c: see data/click/drawn.h.
#include "data/click/drawn.h"

#include "base/fmath.h"
#include "base/philox.h"

#include <inttypes.h>
#include <stdlib.h>

static double uniform(uint32_t high, uint32_t low) { return (double)((uint64_t)high << 21 ^ low >> 11) * 0x1p-53; }

double drawn_uniform(uint64_t seed, uint32_t site, int64_t n, uint32_t which) {
    uint32_t bits[4];
    philox4x32(bits, seed, which, site, (uint32_t)n, (uint32_t)(n >> 32));
    return uniform(bits[0], bits[1]);
}

double drawn_normal(uint64_t seed, uint32_t site, int64_t i, double std) {
    uint32_t bits[4];
    philox4x32(bits, seed, (uint32_t)i, site, (uint32_t)(i >> 32), 0);
    double radius = __builtin_sqrt(-2 * fm_log(1 - uniform(bits[0], bits[1])));
    return std * radius * fm_cos(6.283185307179586 * uniform(bits[2], bits[3]));
}

err_t drawn_ids_open(drawn_ids *x, int64_t ids, double power) {
    double sum = 0;
    *x = (drawn_ids){.ids = ids, .below = malloc((size_t)ids * sizeof *x->below)};
    if (!x->below) return err_set(ERR_INTERNAL, "no memory for %" PRId64 " ids", ids);
    for (int64_t k = 0; k < ids; k++) x->below[k] = sum += fm_exp(-power * fm_log((double)k + 1));
    for (int64_t k = 0; k < ids; k++) x->below[k] /= sum;
    return ERR_OK;
}

void drawn_ids_close(drawn_ids *x) {
    free(x->below);
    *x = (drawn_ids){0};
}

// The first id with u < below.
int64_t drawn_id(const drawn_ids *x, double u) {
    int64_t low = 0, high = x->ids - 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (u < x->below[middle]) high = middle;
        else low = middle + 1;
    }
    return low;
}
