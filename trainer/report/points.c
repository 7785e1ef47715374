// trainer/report/points.c: from buckets to what is drawn.
#include "trainer/report/chart.h"

#include "base/fmath.h"

#include <math.h>
#include <stdlib.h>

points points_of(const sheet *s, int curve, int over, double last, int columns) {
    points p = {0};
    int group = columns > 0 ? (s->used + columns - 1) / columns : 1;
    if (group < 1) group = 1;
    p.at = malloc(((size_t)s->used / (size_t)group + 1) * sizeof *p.at);
    for (int from = 0; p.at && from < s->used; from += group) {
        bucket all = {INFINITY, -INFINITY, 0, 0}, x = all;
        for (int i = from; i < from + group && i < s->used; i++) {
            const bucket *b = sheet_bucket(s, curve, i), *a = over >= 0 ? sheet_bucket(s, over, i) : NULL;
            if (b->least < all.least) all.least = b->least;
            if (b->most > all.most) all.most = b->most;
            all.sum += b->sum, all.n += b->n;
            if (a && b->n) x.sum += a->sum, x.n += a->n;
        }
        if (!all.n || (over >= 0 && !x.n)) continue;
        double at = over >= 0 ? x.sum / (double)x.n : s->origin + from * s->width + (group * s->width - 1) / 2;
        // the last column: the curve ends where the run does
        if (over < 0 && last < s->origin + (from + group) * s->width) at = last;
        p.at[p.n++] = (point){at, all.sum / (double)all.n, all.least, all.most};
    }
    return p;
}

points points_smooth(const points *p, double over) {
    points s = {malloc(((size_t)p->n + 1) * sizeof *s.at), 0};
    int reach = (int)ceil(3 * over);
    for (int i = 0; s.at && i < p->n; i++) {
        double sum = 0, weights = 0;
        // At its steep beginning a curve must not be drawn towards what comes later: there as many on both sides.
        int near = reach < i ? reach : i, end = p->n - 1 - i < near ? p->n - 1 - i : near;
        for (int k = -near; k <= end; k++) {
            double w = fm_exp(-0.5 * k * k / (over * over));
            sum += w * p->at[i + k].y, weights += w;
        }
        double y = sum / weights;
        s.at[s.n++] = (point){p->at[i].x, y, y, y};
    }
    return s;
}

// Of the points around x; beyond the ends as there. next: the first point that is not before an earlier x.
static point between(const points *p, double x, int *next) {
    while (*next < p->n && p->at[*next].x < x) ++*next;
    if (*next == 0 || *next == p->n) return p->at[*next == 0 ? 0 : p->n - 1];
    const point *a = &p->at[*next - 1], *b = a + 1;
    double t = b->x > a->x ? (x - a->x) / (b->x - a->x) : 0;
    return (point){x, a->y + t * (b->y - a->y), a->low + t * (b->low - a->low), a->high + t * (b->high - a->high)};
}

points points_around(const points *band, const points *line) {
    points w = {malloc(((size_t)band->n + (size_t)line->n + 1) * sizeof *w.at), 0};
    int in_band = 0, in_line = 0;
    for (int i = 0, k = 0; w.at && band->n && line->n && (i < band->n || k < line->n);) {
        bool own = k == line->n || (i < band->n && band->at[i].x <= line->at[k].x);
        double x = own ? band->at[i++].x : line->at[k++].x, y = between(line, x, &in_line).y;
        point p = own ? band->at[i - 1] : between(band, x, &in_band);
        if (!own && y >= p.low && y <= p.high) continue;
        w.at[w.n++] = (point){x, p.y, fmin(p.low, y), fmax(p.high, y)};
    }
    return w;
}

void points_free(points *p) {
    free(p->at);
    *p = (points){0};
}
