// trainer/step/zero.c: see trainer/step/zero.h.
#include "trainer/step/zero.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_ALIGN = 64 };  // floats: rows of a slab start on 256 bytes; the padding stays zero

static size_t padded(const zero_layout *z, const param *p) {
    size_t n = (size_t)param_slice_room(p) * (size_t)zero_slices(z, p);
    return (n + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
}

// Slices of all rows: the most pieces that there can be.
static size_t slices_of(const zero_layout *z, const model *net) {
    size_t n = 0;
    for (int i = 0; i < net->params; i++) n += (size_t)zero_slices(z, &net->param[i]);
    return n;
}

// Is the row tied to another, either way? Such a row is alone in its segment: both are cut alike, and an owner has both
// gradients.
static bool shares(const model *net, int row) {
    if (net->param[row].tied >= 0) return true;
    for (int i = 0; i < net->params; i++)
        if (net->param[i].tied == row) return true;
    return false;
}

static int chunk_of(const zero_options *o, const model *net, int row) {
    return o->chunk ? o->chunk[net->param[row].block] : 0;
}

static void find_segments(zero_layout *z, const model *net, const zero_options *o) {
    for (int i = 0; i < net->params; i++) {
        z->row_at[i] = ZERO_ELSEWHERE;
        if (chunk_of(o, net, i) < 0 || param_is_frozen(&net->param[i])) continue;
        const zero_segment *last = z->segments ? &z->segment[z->segments - 1] : NULL;
        bool join = last && last->block == net->param[i].block && last->first + last->rows == i && !shares(net, i) &&
                    !shares(net, last->first);
        if (!join)
            z->segment[z->segments++] = (zero_segment){.block = net->param[i].block,
                                                       .chunk = chunk_of(o, net, i),
                                                       .first = i,
                                                       .tied = net->param[i].tied >= 0};
        z->segment[z->segments - 1].rows++;
    }
}

// Places a segment's rows in the slab from `at` on. Returns where they end.
static size_t place_segment(zero_layout *z, const model *net, zero_segment *s, size_t at) {
    s->at = at;
    for (int i = s->first; i < s->first + s->rows; i++) {
        z->row_at[i] = at;
        at += padded(z, &net->param[i]);
    }
    s->count = at - s->at;
    return at;
}

// Tied segments come last, so that stores of values end before them.
static void place_rows(zero_layout *z, const model *net) {
    for (int g = 0; g < z->segments; g++)
        if (!z->segment[g].tied) z->slab = place_segment(z, net, &z->segment[g], z->slab);
    z->values = z->slab;
    for (int g = 0; g < z->segments; g++) {
        zero_segment *s = &z->segment[g];
        if (!s->tied) continue;
        // alone in its segment, like its partner
        if (z->joined) place_segment(z, net, s, z->row_at[net->param[s->first].tied]);
        else z->slab = place_segment(z, net, s, z->slab);
    }
}

// How much each rank should own: weight of `all` parts.
typedef struct division {
    const int64_t *weight;  // NULL: all as much
    int world;
    uint64_t all;
    size_t *load;  // [world] deal_whole: floats of each rank so far
} division;

static uint64_t weight_of(const division *x, int rank) { return x->weight ? (uint64_t)x->weight[rank] : 1; }

static division division_of(const zero_options *o, size_t *load) {
    division x = {.weight = o->weight, .world = o->world, .load = load};
    for (int k = 0; k < o->world; k++) x.all += weight_of(&x, k);
    return x;
}

// A chunk belongs to the rank in whose share of the segment it begins. Chunks begin anew with each slice.
static void deal(zero_layout *z, const model *net, int g, const division *x) {
    const zero_segment *s = &z->segment[g];
    size_t *cut = &z->cut[(size_t)g * (size_t)(z->world + 1)];
    size_t at = 0;
    int rank = 0;
    uint64_t end = weight_of(x, 0);  // of the rank's share
    for (int i = s->first; i < s->first + s->rows; i++) {
        const param *p = &net->param[i];
        for (int c = 0; c < zero_slices(z, p); c++) {
            size_t slice = z->row_at[i] - s->at + (size_t)(c * param_slice_room(p));
            for (int64_t k = 0; k < param_slice_count(p, zero_first(z, p) + c); k += CHUNK) {
                at = slice + (size_t)k;
                uint64_t part = (uint64_t)((unsigned __int128)at * x->all / s->count);
                while (part >= end) cut[++rank] = at, end += weight_of(x, rank);
            }
        }
    }
    while (rank < z->world) cut[++rank] = s->count;
}

static bool has_whole(const zero_segment *s, const model *net) {
    for (int i = s->first; i < s->first + s->rows; i++)
        if (net->param[i].whole) return true;
    return false;
}

// Has the rank room for half of n more floats? all: floats that are shared so far.
static bool has_room(const division *x, int rank, size_t n, size_t all) {
    uint64_t weight = weight_of(x, rank);
    return weight && x->load[rank] + n / 2 <= (size_t)((unsigned __int128)all * weight / x->all);
}

// Of the ranks from this one on, the first that has least of what it should have. None may own anything: this one.
static int least_loaded(const division *x, int rank) {
    int best = rank;
    for (int k = rank; k < x->world; k++) {
        unsigned __int128 here = (unsigned __int128)x->load[k] * weight_of(x, best),
                          least = (unsigned __int128)x->load[best] * weight_of(x, k);
        if (weight_of(x, k) && (!weight_of(x, best) || here < least)) best = k;
    }
    return best;
}

// Gives the next ranks their turns, until one has room for half of n more floats. Where none has, as a matrix is more
// than a rank's share, the one with least takes it.
static void find_room(size_t *cut, const division *x, int *rank, size_t at, size_t n, size_t all) {
    int to = *rank;
    while (to < x->world && !has_room(x, to, n, all)) to++;
    if (to == x->world) to = least_loaded(x, *rank);
    while (*rank < to) cut[++*rank] = at;
}

// Where some rows go to one rank each, with all their slices: a rank takes rows and chunks until it has its share of
// this segment and of all such segments before it. What is uneven in one is made up for in the next ones. all: floats
// of these segments.
static void deal_whole(zero_layout *z, const model *net, int g, const division *x, size_t *all) {
    const zero_segment *s = &z->segment[g];
    size_t *cut = &z->cut[(size_t)g * (size_t)(z->world + 1)];
    int rank = 0;
    *all += s->count;
    for (int i = s->first; i < s->first + s->rows; i++) {
        const param *p = &net->param[i];
        size_t row = z->row_at[i] - s->at, room = (size_t)param_slice_room(p), slices = (size_t)zero_slices(z, p);
        if (p->whole) {
            find_room(cut, x, &rank, row, slices * room, *all);
            x->load[rank] += slices * room;
        }
        for (size_t c = 0; c < slices && !p->whole; c++) {
            size_t n = (size_t)param_slice_count(p, zero_first(z, p) + (int)c);
            for (size_t k = 0; k < n; k += CHUNK) {
                size_t of = n - k < CHUNK ? n - k : CHUNK;
                find_room(cut, x, &rank, row + c * room + k, of, *all);
                x->load[rank] += of;
            }
        }
    }
    while (rank < z->world) cut[++rank] = s->count;
}

// Has row i, in a segment that begins at `at`, slices where row k has them in its own segment, and as large ones?
static bool same_row(const zero_layout *z, const model *net, int i, size_t at, int k, size_t from) {
    const param *p = &net->param[i], *q = &net->param[k];
    bool same = z->row_at[i] - at == z->row_at[k] - from && zero_slices(z, p) == zero_slices(z, q) &&
                zero_first(z, p) == zero_first(z, q) && param_slice_room(p) == param_slice_room(q);
    for (int c = 0; same && c < zero_slices(z, p); c++)
        same = param_slice_count(p, zero_first(z, p) + c) == param_slice_count(q, zero_first(z, q) + c);
    return same;
}

static bool same_rows(const zero_layout *z, const model *net, const zero_segment *s, const zero_segment *q) {
    bool same = s->rows == q->rows && s->count == q->count;
    for (int i = 0; same && i < s->rows; i++) same = same_row(z, net, s->first + i, s->at, q->first + i, q->at);
    return same;
}

// Most blocks are as the one before, and are cut as that one is.
static void deal_all(zero_layout *z, const model *net, const division *x) {
    size_t all = 0, each = (size_t)(z->world + 1);
    for (int g = 0; g < z->segments; g++) {
        const zero_segment *s = &z->segment[g];
        if (has_whole(s, net)) deal_whole(z, net, g, x, &all);
        else if (g && !has_whole(s - 1, net) && same_rows(z, net, s, s - 1))
            memcpy(&z->cut[(size_t)g * each], &z->cut[(size_t)(g - 1) * each], each * sizeof *z->cut);
        else deal(z, net, g, x);
    }
}

// Backward goes from the last block to the first; a bucket takes whole blocks' segments until it is large enough.
static void fill_buckets(zero_layout *z, size_t bytes) {
    zero_bucket *b = NULL;
    for (int g = z->segments - 1; g >= 0; g--) {
        const zero_segment *s = &z->segment[g];
        if (s->tied && z->joined) continue;
        bool near = b && z->segment[g + 1].at == s->at + s->count && b->chunk == s->chunk;  // in the slab too
        if (!near || b->floats * sizeof(float) >= bytes) {
            b = &z->bucket[z->buckets++];
            *b = (zero_bucket){.first = g + 1, .chunk = s->chunk};
        }
        b->first = g;
        b->count++;
        b->block = s->block;
        b->at = s->at;
        b->floats += s->count;
    }
}

static bool cut_alike(const zero_layout *z, const zero_bucket *a, const zero_bucket *b) {
    size_t each = (size_t)(z->world + 1) * sizeof *z->cut, from = (size_t)(z->world + 1);
    return a->count == b->count &&
           memcmp(&z->cut[(size_t)a->first * from], &z->cut[(size_t)b->first * from], (size_t)a->count * each) == 0;
}

static void compare_buckets(zero_layout *z) {
    for (int k = 0; k < z->buckets; k++) {
        zero_bucket *b = &z->bucket[k];
        b->alike = k && cut_alike(z, b - 1, b) ? b[-1].alike : k;
    }
}

static void own_ranges(zero_layout *z) {
    for (int tied = 0; tied <= !z->joined; tied++) {
        for (int g = 0; g < z->segments; g++) {
            if (z->segment[g].tied != tied) continue;
            z->slab_at[g] = z->segment[g].at + z->cut[(size_t)g * (size_t)(z->world + 1) + (size_t)z->rank];
            z->shard_at[g] = z->shard;
            z->shard += zero_range(z, g, z->rank);
        }
        if (!tied) z->shard_values = z->shard;
    }
}

// One slice of a row, and the part of it that is in this rank's range.
static void own_slice(zero_layout *z, const param *p, zero_piece of) {
    size_t begin = z->slab_at[of.segment], end = begin + zero_range(z, of.segment, z->rank),
           n = (size_t)param_slice_count(p, of.slice);
    size_t slice = z->row_at[of.row] + (size_t)((of.slice - zero_first(z, p)) * param_slice_room(p));
    size_t from = slice > begin ? slice : begin, to = slice + n < end ? slice + n : end;
    if (n == 0) return;
    of.slab = slice, of.count = (int64_t)n;
    z->whole[z->wholes++] = of;
    if (from >= to) return;
    of.slab = from, of.first = (int64_t)(from - slice), of.count = (int64_t)(to - from),
    of.shard = z->shard_at[of.segment] + (from - begin);
    z->piece[z->owned++] = of;
}

static void own_pieces(zero_layout *z, const model *net, int g) {
    const zero_segment *s = &z->segment[g];
    if (s->tied && z->joined) return;
    for (int i = s->first; i < s->first + s->rows; i++) {
        const param *p = &net->param[i];
        for (int c = 0; c < zero_slices(z, p); c++)
            own_slice(z, p, (zero_piece){.row = i, .segment = g, .slice = zero_first(z, p) + c});
    }
}

void zero_own(zero_layout *z, const model *net, int rank) {
    z->rank = rank;
    z->owned = z->wholes = 0;
    z->shard = z->shard_values = 0;
    own_ranges(z);
    for (int g = 0; g < z->segments; g++) own_pieces(z, net, g);
}

err_t zero_open(zero_layout *z, const model *net, const zero_options *o) {
    size_t n = (size_t)net->params;
    int world = o->world;
    assert(!o->joined || !o->chunk);
    *z = (zero_layout){.rank = o->rank, .world = world, .here = o->here, .joined = o->joined};
    if (!z->here.count) z->here = (model_slices){net->slices.of, 0, net->slices.of, false};
    z->segment = calloc(n, sizeof *z->segment);
    z->row_at = calloc(n, sizeof *z->row_at);
    if (z->segment && z->row_at) find_segments(z, net, o);
    z->bucket = calloc(n, sizeof *z->bucket);
    z->cut = calloc((size_t)(z->segments + 1) * (size_t)(world + 1), sizeof *z->cut);
    z->piece = calloc(slices_of(z, net), sizeof *z->piece);
    z->whole = calloc(slices_of(z, net), sizeof *z->whole);
    z->shard_at = calloc(n, sizeof *z->shard_at);
    z->slab_at = calloc(n, sizeof *z->slab_at);
    size_t *load = calloc((size_t)world, sizeof *load);
    if (!z->segment || !z->bucket || !z->cut || !z->row_at || !z->piece || !z->whole || !z->shard_at || !z->slab_at ||
        !load) {
        free(load);
        zero_close(z);
        return err_set(ERR_INTERNAL, "no memory for the layout of %zu parameters over %d ranks", n, world);
    }
    place_rows(z, net);
    division x = division_of(o, load);
    deal_all(z, net, &x);
    free(load);
    fill_buckets(z, o->bucket_bytes);
    compare_buckets(z);
    zero_own(z, net, o->rank);
    return ERR_OK;
}

void zero_close(zero_layout *z) {
    free(z->segment), free(z->bucket), free(z->cut), free(z->row_at);
    free(z->piece), free(z->whole), free(z->shard_at), free(z->slab_at);
    *z = (zero_layout){0};
}
