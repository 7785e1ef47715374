// trainer/session/correlate.c: see trainer/session/correlate.h.
#include "trainer/session/correlate.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct ranked {
    double x;
    int64_t at;
} ranked;

static int by_number(const void *a, const void *b) {
    double x = ((const ranked *)a)->x, y = ((const ranked *)b)->x;
    return (x > y) - (x < y);
}

// rank[i] = the rank of x[i] from 1 on.
static void find_ranks(const double *x, int64_t n, ranked *scratch, double *rank) {
    for (int64_t i = 0; i < n; i++) scratch[i] = (ranked){x[i], i};
    qsort(scratch, (size_t)n, sizeof *scratch, by_number);
    for (int64_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && scratch[end].x == scratch[first].x;) end++;
        for (int64_t i = first; i < end; i++) rank[scratch[i].at] = (double)(first + 1 + end) / 2;
    }
}

static bool all_equal(const double *x, int64_t n) {
    for (int64_t i = 1; i < n; i++)
        if (x[i] != x[0]) return false;
    return true;
}

static double pearson_of(const double *x, const double *y, int64_t n) {
    double mx = 0, my = 0, xx = 0, yy = 0, xy = 0;
    if (all_equal(x, n) || all_equal(y, n)) return NAN;
    for (int64_t i = 0; i < n; i++) mx += x[i], my += y[i];
    mx /= (double)n, my /= (double)n;
    for (int64_t i = 0; i < n; i++) {
        double a = x[i] - mx, b = y[i] - my;
        xx += a * a, yy += b * b, xy += a * b;
    }
    return fmax(-1, fmin(1, xy / (sqrt(xx) * sqrt(yy))));
}

err_t correlate(const double *x, const double *y, int64_t n, double *pearson, double *spearman) {
    *pearson = *spearman = NAN;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]) || !isfinite(y[i])) return ERR_OK;
    if (n < 2) return ERR_OK;
    ranked *scratch = malloc((size_t)n * sizeof *scratch);
    double *rank = malloc((size_t)n * 2 * sizeof *rank);
    if (scratch && rank) {
        find_ranks(x, n, scratch, rank), find_ranks(y, n, scratch, rank + n);
        *pearson = pearson_of(x, y, n), *spearman = pearson_of(rank, rank + n, n);
    }
    bool done = scratch && rank;
    free(scratch), free(rank);
    return done ? ERR_OK : err_set(ERR_INTERNAL, "no memory for the ranks of %" PRId64 " numbers", n);
}
