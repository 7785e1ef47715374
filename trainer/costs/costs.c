// trainer/costs/costs.c: see trainer/costs/costs.h: the times.
#include "trainer/costs/costs.h"

#include "base/fmath.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const costs_level_name[COSTS_LEVELS] = {"node", "rack", "spine"};
const char *const costs_call_name[CALLS] = {"all_reduce", "reduce_scatter", "all_gather",
                                            "all_to_all", "merge",          "message"};

void costs_free(costs *c) {
    free(c->reach), free(c->op), free(c->comm);
    *c = (costs){0};
}

// --- the roofline ----------------------------------------------------------------------------------------------------

static costs_figure reach_of(const costs *c, const char *op) {
    costs_figure other = {1, 0};
    for (int i = 0; i < c->reaches; i++) {
        if (strcmp(c->reach[i].name, op) == 0) return c->reach[i].share;
        if (strcmp(c->reach[i].name, "other") == 0) other = c->reach[i].share;
    }
    return other;
}

// The share of a product's tiles that do something: the last wave is not full, and each tile loses some k.
static double full(const costs *c, const op_cost *x) {
    if (!c->tiles.processors || !x->size[2] || x->size[3]) return 1;
    double best = 0, m = (double)x->size[0], n = (double)x->size[1], k = (double)x->size[2];
    for (int turned = 0; turned < 2; turned++)
        for (int parts = 1; parts <= 4; parts *= 2) {  // of k, where tiles are few
            double rows = turned ? c->tiles.columns : c->tiles.rows,
                   columns = turned ? c->tiles.rows : c->tiles.columns;
            double tiles = ceil(m / rows) * ceil(n / columns) * parts, waves = ceil(tiles / c->tiles.processors);
            double spent = waves * c->tiles.processors * rows * columns * (k / parts + c->tiles.lost);
            best = fmax(best, m * n * k / spent);
        }
    return best;
}

// Without the launch.
static double ideal(const costs *c, const char *op, const op_cost *x) {
    double s = c->copy.is > 0 ? x->bytes / c->copy.is : 0;
    double peak = x->type < INT32 ? c->peak[x->type].is : 0;
    if (x->flops > 0 && peak > 0) s = fmax(s, x->flops / (peak * (strcmp(op, "matmul") == 0 ? full(c, x) : 1)));
    return s;
}

static costs_time by_roofline(const costs *c, const char *op, const op_cost *x) {
    bool flops = x->flops > 0 && x->type < INT32 && c->peak[x->type].is > 0;
    costs_figure reach = reach_of(c, op), limit = flops ? c->peak[x->type] : c->copy;
    double s = ideal(c, op, x) / reach.is;
    return (costs_time){s + c->launch.is, s * (reach.spread + limit.spread) + c->launch.is * c->launch.spread,
                        FROM_ROOFLINE};
}

// --- operations ------------------------------------------------------------------------------------------------------

static bool same_size(const int64_t a[4], const int64_t b[4]) { return memcmp(a, b, 4 * sizeof *a) == 0; }

// How far apart two shapes are: in powers of two, dimension by dimension. Below 0: not to be compared.
static double distance(const int64_t a[4], const int64_t b[4]) {
    const double LN2 = 0.69314718055994530942;
    double d = 0;
    for (int i = 0; i < 4; i++) {
        if (!a[i] != !b[i]) return -1;
        if (a[i]) d += fabs(fm_log((double)a[i] / (double)b[i])) / LN2;
    }
    return d;
}

// What an operation of a line's shape moves and computes is known of the asked one only: both in proportion to the
// sizes' product.
static op_cost scaled(const op_cost *x, const int64_t size[4]) {
    op_cost y = *x;
    double ratio = 1;
    for (int i = 0; i < 4 && size[i]; i++) ratio *= (double)size[i] / (double)x->size[i];
    memcpy(y.size, size, sizeof y.size);
    y.flops *= ratio;
    if (x->size[2] && !x->size[3] && x->flops > 0) {  // a product: three matrices
        double m = (double)x->size[0], n = (double)x->size[1], k = (double)x->size[2], M = (double)size[0],
               N = (double)size[1], K = (double)size[2];
        y.bytes *= (M * K + K * N + M * N) / (m * k + k * n + m * n);
    } else y.bytes *= ratio;
    return y;
}

costs_time costs_of_op(const costs *c, const char *op, const op_cost *x) {
    const double FAR = 0.05, OTHER = 1;  // of error for each power of two; what other options count as
    const costs_op *best = NULL;
    double nearest = INFINITY;
    for (int i = 0; i < c->ops; i++) {
        const costs_op *o = &c->op[i];
        if (o->type != x->type || strcmp(o->name, op) != 0) continue;
        if (o->options == x->options && same_size(o->size, x->size))
            return (costs_time){o->s.is, o->s.is * o->s.spread, FROM_LINE};
        double d = distance(o->size, x->size);
        if (d < 0) continue;
        if (o->options != x->options) d += OTHER;
        if (d < nearest) nearest = d, best = o;
    }
    if (!best) return by_roofline(c, op, x);
    op_cost there = scaled(x, best->size);
    double here = ideal(c, op, x) + c->launch.is, was = ideal(c, op, &there) + c->launch.is;
    double s = best->s.is * (was > 0 ? here / was : 1);
    return (costs_time){s, s * fmin(best->s.spread + FAR * nearest, 1), FROM_NEAR};
}

// --- messages --------------------------------------------------------------------------------------------------------

// Of one number of ranks: the knots below and above, straight between them in powers; below the first one its time,
// above the last one its time for each byte. False: there are no knots.
static bool along_bytes(const costs *c, costs_call call, costs_level level, int ranks, double bytes, costs_figure *s) {
    const costs_comm *below = NULL, *above = NULL;
    for (int i = 0; i < c->comms; i++) {
        const costs_comm *k = &c->comm[i];
        if (k->call != call || k->level != level || k->ranks != ranks) continue;
        if (k->bytes <= bytes && (!below || k->bytes > below->bytes)) below = k;
        if (k->bytes >= bytes && (!above || k->bytes < above->bytes)) above = k;
    }
    if (!below && !above) return false;
    if (!below) *s = above->s;
    else if (!above) *s = (costs_figure){below->s.is * bytes / below->bytes, below->s.spread};
    else if (below == above) *s = below->s;
    else {
        double at = fm_log(bytes / below->bytes) / fm_log(above->bytes / below->bytes);
        *s = (costs_figure){below->s.is * fm_exp(at * fm_log(above->s.is / below->s.is)),
                            fmax(below->s.spread, above->s.spread)};
    }
    return true;
}

static void neighbours(const costs *c, costs_call call, costs_level level, int ranks, int *below, int *above) {
    *below = *above = 0;
    for (int i = 0; i < c->comms; i++) {
        const costs_comm *k = &c->comm[i];
        if (k->call != call || k->level != level) continue;
        if (k->ranks <= ranks && k->ranks > *below) *below = k->ranks;
        if (k->ranks >= ranks && (!*above || k->ranks < *above)) *above = k->ranks;
    }
}

// A level that was not measured costs what the next one inside costs: nothing nearer is known.
static costs_time by_link(const costs *c, costs_level level, double bytes) {
    const double UNKNOWN = 0.5;
    while (level > COSTS_NODE && c->link[level].rate.is <= 0) level--;
    double rate = c->link[level].rate.is, spread = c->link[level].rate.spread;
    if (rate <= 0) rate = c->copy.is > 0 ? c->copy.is / 2 : 1e9, spread = UNKNOWN;
    double s = c->link[level].s + bytes / rate;
    return (costs_time){s, s * spread, FROM_ROOFLINE};
}

int costs_called(const costs *c, costs_call call, costs_level level, int ranks) {
    int below, above;
    neighbours(c, call, level, ranks, &below, &above);
    if (!below && !above && call == CALL_MERGE) return costs_called(c, CALL_ALL_TO_ALL, level, ranks);
    return above ? above : below;
}

costs_time costs_of_call(const costs *c, costs_call call, costs_level level, int ranks, double bytes) {
    const double OTHER = 0.05;  // of error, where the number of ranks is another one
    int below, above;
    costs_figure a, b;
    if (ranks < 2 || bytes <= 0) return (costs_time){0};
    neighbours(c, call, level, ranks, &below, &above);
    if (!below && !above)
        return call == CALL_MERGE ? costs_of_call(c, CALL_ALL_TO_ALL, level, ranks, bytes) : by_link(c, level, bytes);
    if (!below) below = above;
    if (!above) above = below;
    along_bytes(c, call, level, below, bytes, &a), along_bytes(c, call, level, above, bytes, &b);
    double s = below == above ? a.is : sqrt(a.is * b.is), spread = fmax(a.spread, b.spread);
    bool exact = below == ranks && above == ranks;
    return (costs_time){s, s * (spread + (exact ? 0 : OTHER)), exact ? FROM_LINE : FROM_NEAR};
}
