// base/nearest.c: see base/nearest.h.
#include "base/nearest.h"

#include <inttypes.h>
#include <stdio.h>

static void print_pair(int64_t below, int64_t above, char dst[64]) {
    if (below && above) snprintf(dst, 64, "%" PRId64 " or %" PRId64, below, above);
    else snprintf(dst, 64, "%" PRId64, below ? below : above);
}

void nearest_divisors(int64_t n, int64_t x, char dst[64]) {
    int64_t below = 0, above = 0;
    for (int64_t d = x; d >= 1 && !below; d--)
        if (n % d == 0) below = d;
    for (int64_t d = x + 1; d <= n && !above; d++)
        if (n % d == 0) above = d;
    print_pair(below, above, dst);
}

void nearest_multiples(int64_t m, int64_t x, char dst[64]) {
    int64_t below = x / m * m;
    print_pair(below, below + m, dst);
}
