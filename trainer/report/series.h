// trainer/report/series.h: curves of any length in memory of one size. The x axis (steps, or seconds) is cut into at
// most SERIES_BUCKETS buckets of one width; each keeps the least, the most, the sum and the count of what fell into it,
// so that no spike is ever lost. When a run outgrows the axis, pairs of buckets are merged and the width doubles.
//
//   width 1   |1|2|3|4|5|6|7|8|          the 9th step doesn't fit:
//   width 2   |1 2|3 4|5 6|7 8|9  |  |  |  |
#ifndef TRAINER_REPORT_SERIES_H
#define TRAINER_REPORT_SERIES_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { SERIES_BUCKETS = 1024, SERIES_OCTAVE = 32 };

typedef struct bucket {
    float least, most;
    double sum;
    int64_t n;
} bucket;

// Several curves over one axis.
typedef struct sheet {
    // buckets are SERIES_OCTAVE to each power of two of x >= 1, and there are enough of them from the start
    bool log;
    double origin, width;  // bucket i is [origin + i * width, origin + (i + 1) * width)
    int used;              // buckets up to the last one with something in it
    int count;             // curves
    bucket *at;            // (count, SERIES_BUCKETS)
} sheet;

// ERR_INTERNAL: no memory. origin may be set later, before the first sheet_find.
err_t sheet_open(sheet *s, int count, double origin, double width, bool log);
void sheet_close(sheet *s);
void sheet_clear(sheet *s, double origin, double width);

// The bucket of x, after merging as often as it takes; -1: x is no number, or beyond 1e15. What is below the origin
// counts as the origin. *merged: how often pairs were merged (may be NULL).
int sheet_find(sheet *s, double x, int *merged);

static inline const bucket *sheet_bucket(const sheet *s, int curve, int i) {
    return s->at + (int64_t)curve * SERIES_BUCKETS + i;
}

// A value of one curve in bucket i. Infinity and NaN are ignored.
void sheet_add(sheet *s, int curve, int i, double value);
// Only its least and most.
void sheet_widen(sheet *s, int curve, int i, double value);

// All of a curve as one bucket.
bucket sheet_total(const sheet *s, int curve);

// How values are spread, in the SPREAD_BUCKETS buckets that are merged into a column: counts of values in bins that are
// 3 % wide, from 2^-10 to 2^41.
enum { SPREAD_BUCKETS = 8, SPREAD_COLUMNS = SERIES_BUCKETS / SPREAD_BUCKETS, SPREAD_BINS = 51 * 32 };

typedef struct spread {
    uint32_t (*count)[SPREAD_BINS];  // (SPREAD_COLUMNS, SPREAD_BINS)
} spread;

err_t spread_open(spread *s);
void spread_close(spread *s);
void spread_clear(spread *s);
void spread_add(spread *s, int bucket, double value);  // values that are not above 0 are ignored
void spread_merge(spread *s);                          // as the sheet did

// The value below which the share q of columns first..end-1 lies; NaN: nothing in them. Right within 3 %.
double spread_quantile(const spread *s, int first, int end, double q);
int64_t spread_count(const spread *s, int first, int end);

#endif
