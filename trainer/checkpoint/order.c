// trainer/checkpoint/order.c: see trainer/checkpoint/order.h.
#include "trainer/checkpoint/order.h"

#include "trainer/checkpoint/away.h"

#include <string.h>

static const ckpt_split EQUAL = {0};

ckpt_order order_of(int dims, const int64_t *size, int axis, int slices, const ckpt_split *split) {
    int64_t all = shape_count(dims, size), inner = dims > 0 ? all / size[0] : 1;
    if (slices <= 1) return (ckpt_order){.slices = 1, .each = all, .all = all, .run = all};
    if (!split) split = &EQUAL;
    ckpt_order o = {
        .slices = slices, .each = all / slices, .all = all, .run = shape_count(dims - axis, size + axis) / slices};
    if (split->padded) o.each = o.run = split->padded / slices * inner;
    for (int k = 0; k < CKPT_SHARES; k++) o.share[k] = split->rows[k] / slices * inner;
    return o;
}

// Are these shares of dimension 0?
static bool split_is_possible(const int64_t *size, int64_t inner, int axis, int slices, const ckpt_split *split) {
    int64_t sum = 0, product;
    for (int k = 0; k < CKPT_SHARES; k++) {
        if (split->rows[k] < 0 || split->rows[k] > size[0] - sum || split->rows[k] % slices != 0 ||
            (k && split->rows[k] && !split->rows[k - 1]))
            return false;
        sum += split->rows[k];
    }
    if (axis != 0 || (sum > 0) == (split->padded != 0)) return false;
    if (sum > 0) return sum == size[0];
    return split->padded >= size[0] && split->padded % slices == 0 &&
           !__builtin_mul_overflow(split->padded, inner, &product) && product <= INT64_MAX / 4;
}

bool order_is_possible(int dims, const int64_t *size, int axis, int slices, const ckpt_split *split) {
    bool equal = memcmp(split, &EQUAL, sizeof EQUAL) == 0;
    if (dims < 0 || dims > CKPT_DIMS) return false;
    for (int d = 0; d < dims; d++)
        if (size[d] < 1) return false;
    if (slices == 0 || slices == 1) return equal;
    if (slices < 0 || axis < 0 || axis >= dims) return false;
    return equal ? size[axis] % slices == 0
                 : split_is_possible(size, shape_count(dims - 1, size + 1), axis, slices, split);
}

bool order_equal(const ckpt_order *a, const ckpt_order *b) {
    return a->slices == b->slices && a->each == b->each && a->all == b->all && a->run == b->run &&
           memcmp(a->share, b->share, sizeof a->share) == 0;
}

// Along the axis a row of the tensor has `slices` runs, one of each slice. Of several matrices a slice has a run of
// each.
int64_t order_logical(const ckpt_order *o, int64_t k, int64_t *run) {
    int64_t slice = k / o->each, in = k % o->each, above = 0;
    if (!o->share[0]) {
        *run = o->run - in % o->run;
        return (in / o->run * o->slices + slice) * o->run + in % o->run;
    }
    int part = 0;
    for (; in >= o->share[part]; part++) in -= o->share[part], above += o->share[part] * o->slices;
    *run = o->share[part] - in;
    return above + slice * o->share[part] + in;
}

int64_t order_stored(const ckpt_order *o, int64_t logical, int64_t *run) {
    if (!o->share[0]) {
        int64_t row = logical / (o->run * o->slices), slice = logical / o->run % o->slices, column = logical % o->run;
        *run = o->run - column;
        return slice * o->each + row * o->run + column;
    }
    int64_t before = 0;
    int part = 0;
    for (; logical >= o->share[part] * o->slices; part++)
        logical -= o->share[part] * o->slices, before += o->share[part];
    *run = o->share[part] - logical % o->share[part];
    return logical / o->share[part] * o->each + before + logical % o->share[part];
}

// Where element k of order o is in order `to`. Returns how many of the n from there on follow each other in both.
static int64_t next_run(const ckpt_order *o, const ckpt_order *to, int64_t k, int64_t n, int64_t *at) {
    int64_t run, there;
    *at = order_stored(to, order_logical(o, k, &run), &there);
    if (there < run) run = there;
    return run < n ? run : n;
}

// The part of [at, at + n) that t has: *skip of it are before.
static int64_t clip(const ckpt_tensor *t, int64_t at, int64_t n, int64_t *skip) {
    int64_t end = at + n < t->first + t->count ? at + n : t->first + t->count;
    *skip = at < t->first ? t->first - at : 0;
    return end - at - *skip;
}

err_t order_copy(const ckpt_order *o, int64_t k, int64_t n, const float *x, const ckpt_tensor *t) {
    const ckpt_order to = ckpt_order_of(t);
    for (int64_t run, at, skip; n > 0; k += run, x += run, n -= run) {
        run = next_run(o, &to, k, n, &at);
        int64_t count = clip(t, at, run, &skip);
        if (count > 0) TRY(away_put(t, at + skip - t->first, count, x + skip));
    }
    return ERR_OK;
}

bool order_overlaps(const ckpt_order *o, int64_t k, int64_t n, const ckpt_tensor *t) {
    const ckpt_order to = ckpt_order_of(t);
    for (int64_t run, at, skip; n > 0; k += run, n -= run) {
        run = next_run(o, &to, k, n, &at);
        if (clip(t, at, run, &skip) > 0) return true;
    }
    return false;
}
