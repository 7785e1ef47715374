// trainer/checkpoint/order.c: see trainer/checkpoint/order.h.
#include "trainer/checkpoint/order.h"

#include <string.h>

ckpt_order order_of(int dims, const int64_t *size, int axis, int slices) {
    int64_t all = shape_count(dims, size);
    if (slices <= 1) return (ckpt_order){.slices = 1, .each = all, .run = all};
    return (ckpt_order){.slices = slices, .each = all / slices, .run = shape_count(dims - axis, size + axis) / slices};
}

bool order_is_possible(int dims, const int64_t *size, int axis, int slices) {
    if (dims < 0 || dims > CKPT_DIMS) return false;
    for (int d = 0; d < dims; d++)
        if (size[d] < 1) return false;
    return slices == 0 || slices == 1 || (slices > 1 && axis >= 0 && axis < dims && size[axis] % slices == 0);
}

// Along the axis a row of the tensor has `slices` runs, one of each slice.
int64_t order_logical(const ckpt_order *o, int64_t k, int64_t *run) {
    int64_t slice = k / o->each, row = k % o->each / o->run, column = k % o->run;
    *run = o->run - column;
    return (row * o->slices + slice) * o->run + column;
}

int64_t order_stored(const ckpt_order *o, int64_t logical, int64_t *run) {
    int64_t row = logical / (o->run * o->slices), slice = logical / o->run % o->slices, column = logical % o->run;
    *run = o->run - column;
    return slice * o->each + row * o->run + column;
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

void order_copy(const ckpt_order *o, int64_t k, int64_t n, const float *x, const ckpt_tensor *t) {
    const ckpt_order to = ckpt_order_of(t);
    for (int64_t run, at, skip; n > 0; k += run, x += run, n -= run) {
        run = next_run(o, &to, k, n, &at);
        int64_t count = clip(t, at, run, &skip);
        if (count > 0) memcpy(t->data + (at + skip - t->first), x + skip, (size_t)count * sizeof *x);
    }
}

bool order_overlaps(const ckpt_order *o, int64_t k, int64_t n, const ckpt_tensor *t) {
    const ckpt_order to = ckpt_order_of(t);
    for (int64_t run, at, skip; n > 0; k += run, n -= run) {
        run = next_run(o, &to, k, n, &at);
        if (clip(t, at, run, &skip) > 0) return true;
    }
    return false;
}
