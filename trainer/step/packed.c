// trainer/step/packed.c: see trainer/step/packed.h.
#include "trainer/step/packed.h"

#include <stdlib.h>

size_t packed_bytes(const packed_piece *p, codec c, int64_t kept) {
    if (p->codes && kept) return sparse_bytes(p->count, kept);
    if (p->codes && c != CODEC_NONE) return codec_bytes(c, p->count);
    return ((size_t)p->count * sizeof(float) + 15) / 16 * 16;
}

int64_t packed_before(const lane_table *lanes, int64_t turn) {
    for (int r = 0; r < lanes->world; r++) {
        int64_t lane = lane_table_at(lanes, r, turn);
        if (lane >= 0) return lane;
    }
    return lanes->lanes;
}

// With topk all rows that an optimizer changes: momentum is that of lanes, for rows of one dimension, too.
static bool codes(const param *p, const packed_sparse *s) {
    return (p->dims > 1 || s->kept) && p->rule != PARAM_AVERAGE;
}

// What of a slice is in an owner's range of its segment. Returns whether there is anything.
static bool part_of(const packed *x, const zero_layout *z, const model *net, const zero_piece *slice, int owner,
                    packed_piece *out) {
    const size_t *cut = &z->cut[(size_t)slice->segment * (size_t)(z->world + 1)];
    size_t base = z->segment[slice->segment].at, begin = base + cut[owner], end = base + cut[owner + 1];
    size_t from = slice->slab > begin ? slice->slab : begin, to = slice->slab + (size_t)slice->count;
    if (to > end) to = end;
    if (from >= to) return false;
    *out = (packed_piece){.owner = owner,
                          .codes = codes(&net->param[slice->row], &x->sparse),
                          .slab = from,
                          .shard = z->shard_at[slice->segment] + (from - begin),
                          .count = (int64_t)(to - from)};
    return true;
}

static bool is_in(const zero_bucket *b, const zero_piece *slice) {
    return slice->segment >= b->first && slice->segment < b->first + b->count;
}

// The pieces of one bucket from number `n` on. Returns where they end.
static int fill_bucket(packed *x, const zero_layout *z, const model *net, int k, int n) {
    size_t there = 0, back = 0;
    for (int r = 0; r < x->world; r++) {
        x->first[k * (x->world + 1) + r] = n;
        x->there[k * (x->world + 1) + r] = there, x->back[k * (x->world + 1) + r] = back;
        for (int i = 0; i < z->wholes; i++) {
            packed_piece *p = &x->piece[n];
            if (!is_in(&z->bucket[k], &z->whole[i]) || !part_of(x, z, net, &z->whole[i], r, p)) continue;
            p->there = there, p->back = back;
            there += packed_bytes(p, x->to, x->sparse.kept), back += packed_bytes(p, x->from, 0);
            n++;
        }
    }
    x->first[k * (x->world + 1) + x->world] = n;
    x->there[k * (x->world + 1) + x->world] = there, x->back[k * (x->world + 1) + x->world] = back;
    if (there > x->most_there) x->most_there = there;
    if (back > x->most_back) x->most_back = back;
    const size_t *cut = packed_there(x, k) + z->rank;
    size_t own = x->sparse.all ? there : cut[1] - cut[0];
    if (own > x->most_own) x->most_own = own;
    return n;
}

static void close_one(packed *x) {
    free(x->piece), free(x->first), free(x->there), free(x->back);
    *x = (packed){0};
}

static err_t open_one(packed *x, const zero_layout *z, const model *net, codec to, codec from, packed_sparse sparse) {
    *x = (packed){.sparse = sparse, .to = to, .from = from, .world = z->world};
    size_t cuts = (size_t)z->buckets * (size_t)(z->world + 1);
    // a slice lies in one segment, which has a cut between each two owners
    x->piece = calloc((size_t)z->wholes + (size_t)z->segments * (size_t)z->world + 1, sizeof *x->piece);
    x->first = calloc(cuts, sizeof *x->first);
    x->there = calloc(cuts, sizeof *x->there);
    x->back = calloc(cuts, sizeof *x->back);
    if (!x->piece || !x->first || !x->there || !x->back)
        return err_set(ERR_INTERNAL, "no memory for the coded pieces of %d segments on %d ranks", z->segments,
                       z->world);
    for (int k = 0, n = 0; k < z->buckets; k++) n = fill_bucket(x, z, net, k, n);
    return ERR_OK;
}

int packed_stage_of(const packed_stages *x, int64_t step) {
    if (step > x->warmup) return x->count - 1;
    return (int)((step - 1) * (x->count - 1) / x->warmup);
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

err_t packed_open(packed_stages *x, const zero_layout *z, const model *net, codec to, codec from, packed_sparse sparse,
                  int64_t warmup) {
    *x = (packed_stages){.warmup = warmup};
    err_t rc = ERR_OK;
    for (bool last = false; rc == ERR_OK && !last;) {
        packed_sparse now = {CHUNK >> 2 * (x->count + 1), sparse.all};
        last = warmup == 0 || now.kept <= sparse.kept;
        packed *p = &x->of[x->count++];
        rc = open_one(p, z, net, to, from, last ? sparse : now);
        x->most_there = larger(x->most_there, p->most_there), x->most_back = larger(x->most_back, p->most_back);
        x->most_own = larger(x->most_own, p->most_own);
    }
    if (rc == ERR_OK && x->count == 1) x->warmup = 0;
    if (rc != ERR_OK) packed_close(x);
    return rc;
}

void packed_close(packed_stages *x) {
    for (int i = 0; i < x->count; i++) close_one(&x->of[i]);
    *x = (packed_stages){0};
}
