// comm/server/rows.c: see comm/server/rows.h.
#include "comm/server/rows.h"

#include <assert.h>
#include <string.h>

// x ^ x >> k, undone: each turn gives k more of the highest bits.
static uint64_t undo_shift(uint64_t x, int k) {
    uint64_t y = x;
    for (int known = k; known < 64; known += k) y = x ^ y >> k;
    return y;
}

// The steps of base/mix.h backwards; the factors are the inverses of its factors modulo 2^64.
uint64_t row_id(row_key k) {
    uint64_t z = undo_shift(k.point, 31) * 0x319642b2d24d8ec3u;
    z = undo_shift(z, 27) * 0x96de1b173f119089u;
    return undo_shift(z, 30) - 0x9e3779b97f4a7c15u - k.table * 0x9e3779b97f4a7c15u;
}

void row_cuts(int *cut, int world, const int64_t *weight) {
    int64_t all = 0, sum = 0;
    for (int r = 0; r < world; r++) all += weight ? weight[r] : 1;
    assert(all > 0);
    for (int r = 0; r <= world; r++) {
        cut[r] = (int)((int64_t)ROW_BUCKETS * sum / all);
        if (r < world) sum += weight ? weight[r] : 1;
    }
}

int64_t row_lower(const row_key *key, int64_t n, int bucket) {
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (row_bucket(key[middle]) < bucket) low = middle + 1;
        else high = middle;
    }
    return low;
}

// --- the keys of a micro-batch ---------------------------------------------------------------------------------------

// A table of `room` places, a power of two, of which at most half are used: numbers of keys, -1 where none is. A key's
// place is found by the low bits of its point.
static int32_t find_key(int32_t *place, int64_t room, row_key *key, int64_t *n, row_key k) {
    int64_t i = (int64_t)((k.point ^ k.table) & (uint64_t)(room - 1));
    for (; place[i] >= 0; i = (i + 1) & (room - 1))
        if (row_equal(key[place[i]], k)) return place[i];
    key[*n] = k;
    return place[i] = (int32_t)(*n)++;
}

// Keys that are in disorder only among those of a range of points.
static void insertion_sort(const row_key *key, int32_t *of, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        int32_t x = of[i];
        int64_t k = i;
        for (; k > 0 && row_less(key[x], key[of[k - 1]]); k--) of[k] = of[k - 1];
        of[k] = x;
    }
}

// order [n] (=) the numbers of n different keys, sorted. Points are even over all of 64 bits, so n ranges of points
// have about one key each. begin [n + 1].
static void sort_keys(const row_key *key, int64_t n, int32_t *order, int32_t *begin) {
    memset(begin, 0, (size_t)(n + 1) * sizeof *begin);
    for (int64_t i = 0; i < n; i++) begin[(unsigned __int128)key[i].point * (uint64_t)n >> 64]++;
    for (int64_t k = 0, sum = 0; k <= n; k++) sum += begin[k], begin[k] = (int32_t)sum;  // where the range ends
    for (int64_t i = n - 1; i >= 0; i--)
        order[--begin[(unsigned __int128)key[i].point * (uint64_t)n >> 64]] = (int32_t)i;
    for (int64_t k = 0; k < n; k++) insertion_sort(key, order + begin[k], begin[k + 1] - begin[k]);
}

int64_t row_unique(const uint64_t *id, int64_t n, int64_t tables, row_key *key, int32_t *at, int32_t *scratch,
                   row_key *more) {
    int64_t room = row_unique_room(n) - 3 * n - 1, found = 0;
    int32_t *place = scratch, *order = place + room, *begin = order + n, *rank = begin + n + 1;
    assert(n < INT32_MAX / 2);
    memset(place, -1, (size_t)room * sizeof *place);
    for (int64_t i = 0; i < n; i++)
        at[i] = find_key(place, room, more, &found, row_key_of((uint64_t)(i % tables), id[i]));
    sort_keys(more, found, order, begin);
    for (int64_t k = 0; k < found; k++) key[k] = more[order[k]], rank[order[k]] = (int32_t)k;
    for (int64_t i = 0; i < n; i++) at[i] = rank[at[i]];
    return found;
}

// --- sums ------------------------------------------------------------------------------------------------------------

void row_add(row_list *out, const row_list *a, const row_list *b, int64_t D) {
    int64_t i = 0, j = 0, n = 0;
    const size_t bytes = (size_t)D * sizeof *out->row;
    for (; i < a->n || j < b->n; n++) {
        bool from_a = j == b->n || (i < a->n && !row_less(b->key[j], a->key[i])),
             from_b = i == a->n || (j < b->n && !row_less(a->key[i], b->key[j]));
        float *to = out->row + n * D;
        out->key[n] = from_a ? a->key[i] : b->key[j];
        if (!from_b) memcpy(to, a->row + i * D, bytes);
        else if (!from_a) memcpy(to, b->row + j * D, bytes);
        else
            for (int64_t c = 0; c < D; c++) to[c] = a->row[i * D + c] + b->row[j * D + c];
        i += from_a, j += from_b;
    }
    out->n = n;
}

void row_squares(double *sums, const row_list *x, int64_t D) {
    memset(sums, 0, ROW_BUCKETS * sizeof *sums);
    for (int64_t i = 0; i < x->n; i++) {
        double *sum = &sums[row_bucket(x->key[i])];
        for (int64_t c = 0; c < D; c++) *sum += (double)x->row[i * D + c] * (double)x->row[i * D + c];
    }
}
