// trainer/report/series.c: see trainer/report/series.h.
#include "trainer/report/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void empty(sheet *s) {
    for (int64_t i = 0; i < (int64_t)s->count * SERIES_BUCKETS; i++) s->at[i] = (bucket){INFINITY, -INFINITY, 0, 0};
}

err_t sheet_open(sheet *s, int count, double origin, double width, bool log) {
    *s = (sheet){.log = log, .origin = origin, .width = width, .count = count};
    s->at = malloc((size_t)count * SERIES_BUCKETS * sizeof *s->at);
    if (!s->at) return err_set(ERR_INTERNAL, "no memory for %d curves", count);
    empty(s);
    return ERR_OK;
}

void sheet_close(sheet *s) {
    free(s->at);
    s->at = NULL;
}

void sheet_clear(sheet *s, double origin, double width) {
    s->origin = origin, s->width = width, s->used = 0;
    empty(s);
}

static void add_bucket(bucket *to, const bucket *b) {
    if (b->least < to->least) to->least = b->least;
    if (b->most > to->most) to->most = b->most;
    to->sum += b->sum;
    to->n += b->n;
}

static void halve(sheet *s) {
    for (int c = 0; c < s->count; c++) {
        bucket *b = s->at + (int64_t)c * SERIES_BUCKETS;
        for (int i = 0; i < SERIES_BUCKETS; i += 2) {
            bucket pair = b[i];
            add_bucket(&pair, &b[i + 1]);
            b[i / 2] = pair;
        }
        for (int i = SERIES_BUCKETS / 2; i < SERIES_BUCKETS; i++) b[i] = (bucket){INFINITY, -INFINITY, 0, 0};
    }
    s->width *= 2;
    s->used = (s->used + 1) / 2;
}

int sheet_find(sheet *s, double x, int *merged) {
    int times = 0, i;
    if (merged) *merged = 0;
    if (!(x <= 1e15) || isnan(s->origin)) return -1;
    if (s->log) {
        int octave;
        double m = frexp(x < 1 ? 1 : x, &octave);  // x = m * 2^octave, m in [0.5, 1): octave is at least 1
        i = (octave - 1) * SERIES_OCTAVE + (int)((m - 0.5) * 2 * SERIES_OCTAVE);
        if (i >= SERIES_BUCKETS) i = SERIES_BUCKETS - 1;
    } else {
        double from = x < s->origin ? 0 : x - s->origin;
        for (; from >= s->width * SERIES_BUCKETS; times++) halve(s);
        i = (int)(from / s->width);
    }
    if (i >= s->used) s->used = i + 1;
    if (merged) *merged = times;
    return i;
}

void sheet_widen(sheet *s, int curve, int i, double value) {
    bucket *b = s->at + (int64_t)curve * SERIES_BUCKETS + i;
    if (i < 0 || !isfinite(value)) return;
    if ((float)value < b->least) b->least = (float)value;
    if ((float)value > b->most) b->most = (float)value;
}

void sheet_add(sheet *s, int curve, int i, double value) {
    bucket *b = s->at + (int64_t)curve * SERIES_BUCKETS + i;
    if (i < 0 || !isfinite(value)) return;
    sheet_widen(s, curve, i, value);
    b->sum += value;
    b->n++;
}

bucket sheet_total(const sheet *s, int curve) {
    bucket all = {INFINITY, -INFINITY, 0, 0};
    for (int i = 0; i < s->used; i++) add_bucket(&all, sheet_bucket(s, curve, i));
    return all;
}

// --- spread ----------------------------------------------------------------------------------------------------------

err_t spread_open(spread *s) {
    s->count = calloc(SPREAD_COLUMNS, sizeof *s->count);
    return s->count ? ERR_OK : err_set(ERR_INTERNAL, "no memory for the spread of a curve");
}

void spread_close(spread *s) {
    free(s->count);
    s->count = NULL;
}

void spread_clear(spread *s) { memset(s->count, 0, SPREAD_COLUMNS * sizeof *s->count); }

// A float is an exponent and a mantissa: their upper bits count the bins.
void spread_add(spread *s, int bucket, double value) {
    float v = (float)value;
    uint32_t bits;
    if (bucket < 0 || !(v > 0) || !isfinite(v)) return;
    memcpy(&bits, &v, sizeof bits);
    int bin = (int)(bits >> 18) - (127 - 10) * 32;
    bin = bin < 0 ? 0 : bin >= SPREAD_BINS ? SPREAD_BINS - 1 : bin;
    s->count[bucket / SPREAD_BUCKETS][bin]++;
}

static double bin_from(int bin) { return ldexp(1 + (double)(bin % 32) / 32, bin / 32 - 10); }

void spread_merge(spread *s) {
    for (int i = 0; i < SPREAD_COLUMNS; i += 2)
        for (int b = 0; b < SPREAD_BINS; b++) s->count[i / 2][b] = s->count[i][b] + s->count[i + 1][b];
    memset(s->count + SPREAD_COLUMNS / 2, 0, SPREAD_COLUMNS / 2 * sizeof *s->count);
}

int64_t spread_count(const spread *s, int first, int end) {
    int64_t n = 0;
    for (int i = first; i < end; i++)
        for (int b = 0; b < SPREAD_BINS; b++) n += s->count[i][b];
    return n;
}

double spread_quantile(const spread *s, int first, int end, double q) {
    int64_t all = spread_count(s, first, end), below = 0;
    double rank = q * (double)all;
    if (all == 0) return NAN;
    for (int b = 0; b < SPREAD_BINS; b++) {
        int64_t here = 0;
        for (int i = first; i < end; i++) here += s->count[i][b];
        if (here && (double)(below + here) >= rank) {
            double part = (rank - (double)below) / (double)here;
            return bin_from(b) + (bin_from(b + 1) - bin_from(b)) * (part < 0 ? 0 : part);
        }
        below += here;
    }
    return bin_from(SPREAD_BINS);
}
