// gpu/cpu/kernel/matmul.c: d = epilogue(op(a) op(b)), packed, blocked for the caches, and always in one order of
// summation.
//
// The specification. With x = op(a), y = op(b) as floats (BF16 and FP16 convert exactly) and KC = 384, element (m, n)
// is
//
//     for each block q of KC consecutive k (the last one may be shorter):
//         p = +0;  for k in block q, ascending: p = fma(x[m][k], y[k][n], p)
//         sum = p for the first block, else sum + p
//     then the epilogue (finish_vector below); with MATMUL_ACCUMULATE d = d + sum, once.
//
// Where k is cut into slices (gpu/ops.h) each of them is summed so, as if it were all, and then
//
//     sum = ((slice 0 + slice 1) + (slice 2 + slice 3)) + ...: siblings of one binary tree
//
// Nothing else enters: not the number of threads, not the width of the vectors, not M, N or the element's place. KC is
// part of the arithmetic of every run that was ever made and never changes; every other number in this file is about
// speed alone.
//
// The way (Goto & van de Geijn 2008, with the roles of the operands as the widest tile wants them): s = op(a) is packed
// into panels of MR rows, v = op(b) into panels of NR columns (gemm_pack.h). Threads take tiles of d. A tile goes
// through k in blocks of KC; for a block, a panel of s (12 KB) stays in L1 while panels of v come from L2; the sums
// live in registers (gemm_micro.h). k is never divided between threads. Who packs what:
//
//   alone     few rows, and few enough threads for tiles of about 256 rows and many columns. A thread keeps its block
//             of s in its L2 and takes v in strips of STRIP columns. Where v already has the order of the inner loop
//             (dX, dW), each strip is copied while the previous one is multiplied. Threads share only what no thread
//             writes: a line that one packs and another reads costs 50 ns, and 230 ns between two dies of one
//             processor.
//   together  otherwise. An operand that several tiles need is packed once, for all threads. One that is too large for
//             the shared cache (the weights of the output head), or that meets few rows, is packed block by block by
//             the thread that is about to use it; tiles are then so long in the other direction that no other thread
//             needs the block.
//
// What comes next is prefetched meanwhile.
//
// With products = bf16-pairs a block's chain is one of pairs (products.h), which begins anew in each block and each
// slice; KC is even, so that no block cuts a pair. A panel then has product_cells(kc) cells for kc of k. The rest is as
// above.
//
// Slices of k cost little: as many as fit into KC steps are packed together, and a register tile adds theirs while they
// are in L1; only the sums of such groups go through a thread's scratch, and most are added where the inner loop stores
// its products anyway. Matrices whose columns are cut elsewhere are packed and written slice by slice.
#include "gpu/cpu/kernel/gemm_micro.h"
#include "gpu/cpu/kernel/gemm_pack.h"
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/vmath.h"
#include "gpu/matmul_check.h"

#include <inttypes.h>

enum {
    KC = 384,           // the specification's
    NC = 192,           // columns of v that are used from L2 together: a multiple of every NR
    MC = 256,           // rows of a large tile, about
    LONG = 1280,        // the long side of a tile whose other operand is packed on the fly
    SHARED = 4 << 20,   // cells of an operand that is packed as a whole
    STRIP = 48,         // columns of v that a thread alone packs at a time, a multiple of every NR
    LEAD = 96,          // lines that the prefetch is ahead of the copy
    ITEMS = 24,         // tiles to aim at, so that threads end together
    TURNS = 2,          // ... and how many a thread takes at least, if they are as high as d,
    LOW = 512,          // ... twice as many if d has no more rows: a block of s then stays in the L2 from tile to tile
    WAITING = 1 << 19,  // most floats of s packed then: beyond, k goes in short steps: others use the shared cache too
};

typedef struct gemm {
    operand s, v;  // op(a), op(b)
    int64_t m, n, k;
    tensor *d, *pre;
    const tensor *bias, *residual;
    unsigned epilogue;  // with ADD_RESIDUAL
    bool alone;         // each thread packs what it needs
    bool copies;        // ... and copies v within the inner loop, whose order it has already
    int64_t k_slice;    // of a sum that is cut; 0: it is whole
    int64_t group;      // slices of k that a register tile adds at once
    // sums of a tile that wait for others, one of each level of the tree. What is under way waits where its sum will
    int64_t kept;
    int64_t d_slice;  // columns of a slice of d and pre; n: they are whole
    // d is FP32 and gets the sum, plus bias or d, unchanged: the inner loop may write to it
    bool plain;
    int64_t k_step;              // k that is packed at a time, a multiple of KC unless it is all
    int64_t k0, k1;              // ... now
    float *packed_s, *packed_v;  // NULL: packed on the fly
    float *next_s;               // s of the next step is packed here during this one, or NULL
    float *sums;                 // (m,n) unfinished sums when k goes in several steps and d cannot hold them, or NULL
    int64_t tile_m, tile_n, tiles_m, tiles;
    size_t local_s, local_v, local_sums;  // floats of each thread's scratch
    pool *workers;
} gemm;

enum { ADD_RESIDUAL = 1 << 8, GELU_ERF = 1 << 9 };  // of gemm.epilogue, beside those of gpu/ops.h

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

// Cells of `length` of k that begin where a block does: each slice has its own.
static inline int64_t cells(const gemm *g, int64_t length) {
    if (!g->k_slice) return product_cells(length);
    return length / g->k_slice * product_cells(g->k_slice) + product_cells(length % g->k_slice);
}

// Where row m, column n of d and pre is.
static inline int64_t element(const gemm *g, int64_t m, int64_t n) {
    if (g->d_slice == g->n) return m * g->n + n;
    return n / g->d_slice * g->m * g->d_slice + m * g->d_slice + n % g->d_slice;
}

// --- the epilogue ----------------------------------------------------------------------------------------------------

// `left` of 16 columns from n on, which are from element `at` on in d: sum (from a tile, plus what earlier blocks left,
// or NULL) -> d, through bias, GELU and the rest.
BODY void finish_vector(dtype t, unsigned epilogue, const gemm *g, const float *tile, const float *earlier, int64_t n,
                        int64_t at, int64_t left) {
    tensor *d = g->d;
    vf x = left >= VL ? vf_load(tile) : vf_load_n(tile, (int)left);
    if (earlier) x = vf_add(left >= VL ? vf_load(earlier) : vf_load_n(earlier, (int)left), x);
    if (epilogue & MATMUL_BIAS) x = vf_add(x, typed_load_n(g->bias->data, t, n, left));
    if (epilogue & ADD_RESIDUAL) x = vf_add(x, typed_load_n(g->residual->data, t, at, left));
    if (epilogue & MATMUL_GELU) {
        x = typed_round(t, x);
        typed_store_n(g->pre->data, t, at, x, left);
        x = epilogue & GELU_ERF ? vf_gelu_erf(x) : vf_gelu(x);
    }
    if (epilogue & MATMUL_DGELU) {
        vf pre = typed_load_n(g->pre->data, t, at, left);
        x = vf_mul(typed_round(t, x), epilogue & GELU_ERF ? vf_gelu_erf_grad(pre) : vf_gelu_grad(pre));
    }
    if (epilogue & MATMUL_ACCUMULATE) x = vf_add(typed_load_n(d->data, FP32, at, left), x);
    if (t == FP32 || d->type == FP32) typed_store_n(d->data, FP32, at, x, left);
    else typed_store_n(d->data, t, at, x, left);
}

// NR columns of row m.
BODY void finish_row(dtype t, unsigned epilogue, const gemm *g, const float *tile, const float *earlier, int64_t m,
                     int64_t n) {
    const int64_t first = element(g, m, n);
#pragma GCC unroll 4
    for (int64_t i = 0; i < NR; i += VL)
        finish_vector(t, epilogue, g, tile + i, earlier ? earlier + i : NULL, n + i, first + i, VL);
}

// Whole rows, which are nearly all, have loops of their own, without branches, for the compiler to unroll.
BODY void finish_typed(dtype t, unsigned epilogue, const gemm *g, const float *tile, const float *earlier, int64_t ld,
                       int64_t m, int64_t n, int64_t rows) {
    if (earlier)
        for (int64_t r = 0; r < rows; r++) finish_row(t, epilogue, g, tile + r * NR, earlier + r * ld, m + r, n);
    else
        for (int64_t r = 0; r < rows; r++) finish_row(t, epilogue, g, tile + r * NR, NULL, m + r, n);
}

// Rows of fewer columns, and combinations that no model has, share one loop.
BODY void finish_ragged(dtype t, const gemm *g, const float *tile, const float *earlier, int64_t ld, int64_t m,
                        int64_t n, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++) {
        const int64_t first = element(g, m + r, n);
#pragma GCC unroll 1
        for (int64_t i = 0; i < cols; i += VL)
            finish_vector(t, g->epilogue, g, tile + r * NR + i, earlier ? earlier + r * ld + i : NULL, n + i, first + i,
                          cols - i);
    }
}

static void finish(const gemm *g, const float *tile, const float *earlier, int64_t ld, int64_t m, int64_t n,
                   int64_t rows, int64_t cols) {
    int64_t room = g->d_slice - n % g->d_slice;
    if (cols > room) {
        finish(g, tile, earlier, ld, m, n, rows, room);
        finish(g, tile + room, earlier ? earlier + room : NULL, ld, m, n + room, rows, cols - room);
        return;
    }
    const unsigned gelu = MATMUL_GELU | MATMUL_DGELU, biased_gelu = MATMUL_BIAS | MATMUL_GELU;
    if (cols < NR) BY_TYPE(g->s.type, finish_ragged, g, tile, earlier, ld, m, n, rows, cols);
    else if (g->epilogue == biased_gelu)
        BY_TYPE(g->s.type, finish_typed, biased_gelu, g, tile, earlier, ld, m, n, rows);
    else if (g->epilogue == MATMUL_DGELU)
        BY_TYPE(g->s.type, finish_typed, MATMUL_DGELU, g, tile, earlier, ld, m, n, rows);
    else if (g->epilogue == (biased_gelu | GELU_ERF))
        BY_TYPE(g->s.type, finish_typed, biased_gelu | GELU_ERF, g, tile, earlier, ld, m, n, rows);
    else if (g->epilogue == (MATMUL_DGELU | GELU_ERF))
        BY_TYPE(g->s.type, finish_typed, MATMUL_DGELU | GELU_ERF, g, tile, earlier, ld, m, n, rows);
    else if (g->epilogue & gelu) BY_TYPE(g->s.type, finish_ragged, g, tile, earlier, ld, m, n, rows, cols);
    else BY_TYPE(g->s.type, finish_typed, g->epilogue & ~gelu, g, tile, earlier, ld, m, n, rows);
}

// sums (=) or (+=) tile, for tiles whose last vector is not full.
static void keep(float *sums, int64_t ld, const float *tile, bool add, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++, sums += ld, tile += NR)
        for (int64_t j = 0; j < cols; j++) sums[j] = add ? sums[j] + tile[j] : tile[j];
}

// --- tiles -----------------------------------------------------------------------------------------------------------

// Where a thread works: a tile of d, and one block of k of it.
typedef struct place {
    const gemm *g;
    float *sums;  // element (m, n) of the unfinished sums is sums[(m - m0) * ld + n - n0]
    int64_t ld, m0, n0;
    int64_t kc, cells;  // ... and what it takes in a panel
    bool first, last;
    // Where k is cut: a block is of `slices` whole ones, of kc each, whose panels are so far apart, or of a part of
    // one, which it begins and ends, or not. It ends with slice `number`, or, if it has several, group `number`.
    int64_t slices, apart_s, apart_v, number, sums_step;
    int64_t panel_v;  // cells from one panel of v to the next: those of kc, or of all slices
    bool begins, ends;
} place;

static int64_t tile_row(const gemm *g, int64_t item) { return item % g->tiles_m * g->tile_m; }
static int64_t tile_column(const gemm *g, int64_t item) { return item / g->tiles_m * g->tile_n; }
static int64_t tile_rows(const gemm *g, int64_t item) { return min64(g->tile_m, g->m - tile_row(g, item)); }
static int64_t tile_columns(const gemm *g, int64_t item) { return min64(g->tile_n, g->n - tile_column(g, item)); }

// Where the products of a tile of whole vectors at (m, n) go.
static destination destination_of(const place *w, float *sums, int64_t m, int64_t n) {
    const gemm *g = w->g;
    destination to = {.sums = w->first ? NULL : sums, .ld_sums = w->ld, .c = sums, .ldc = w->ld};
    if (!w->last) return to;
    to.c = (float *)g->d->data + element(g, m, n), to.ldc = g->d_slice;
    if (g->epilogue & MATMUL_ACCUMULATE) to.base = to.c, to.ld_base = g->d_slice;
    if (g->epilogue & MATMUL_BIAS) to.base = (const float *)g->bias->data + n;
    return to;
}

// May the inner loop write such a tile to d?
static bool writes_d(const gemm *g, int64_t n, int64_t cols) {
    return g->plain && cols % VL == 0 && n % g->d_slice + cols <= g->d_slice;
}

// The lines of t, of d's shape, that a tile is written to.
static walk lines_of(const gemm *g, const tensor *t, int64_t m, int64_t n, int64_t cols) {
    int64_t bytes = (int64_t)dtype_bytes(t->type);
    return (walk){
        .row = (const char *)t->data + element(g, m, n) * bytes, .width = cols * bytes, .stride = g->d_slice * bytes};
}

static walk lines_of_sums(const float *sums, int64_t ld, int64_t cols) {
    return (walk){
        .row = (const char *)sums, .width = cols * (int64_t)sizeof *sums, .stride = ld * (int64_t)sizeof *sums};
}

// --- slices of k: a binary counter of sums ---------------------------------------------------------------------------

enum { TREE = 16 };  // levels that a tree may have

// What is added to a tile's products, one after the other.
typedef struct addends {
    const float *x[TREE + 2];
    int64_t ld[TREE + 2];
    int count;
} addends;

static void add_next(addends *a, const float *x, int64_t ld) { a->x[a->count] = x, a->ld[a->count++] = ld; }

// c (=) products of n cells, plus the addends. The inner loop adds two of them as it stores; more are rare.
static void multiply_onto(float *c, int64_t ldc, const addends *a, int64_t n, const float *s, const float *v,
                          int64_t rows, int64_t cols, lookahead *ahead) {
    _Alignas(64) float tile[MR * NR];
    destination to = {.c = c, .ldc = ldc};
    if (a->count > 0) to.sums = a->x[0], to.ld_sums = a->ld[0];
    if (a->count > 1) to.base = a->x[1], to.ld_base = a->ld[1];
    if (a->count > 2) to.c = tile, to.ldc = NR;
    micro[rows - 1][(cols - 1) / VL](n, s, v, &to, ahead);
    for (int i = 2; i < a->count; i++) {
        if (i == a->count - 1) to.c = c, to.ldc = ldc;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < cols; j += VL)
                vf_store(to.c + r * to.ldc + j,
                         vf_add(vf_load(a->x[i] + r * a->ld[i] + j), vf_load(tile + r * NR + j)));
    }
}

// A subtree that is complete merges with its left sibling, if it is a right one, and so on: as many times as its number
// ends in ones.
static int merges_of(int64_t number) { return __builtin_ctzll(~(uint64_t)number); }

// The block's slices but the last one, for which `a` is: each with the left siblings that it completes a subtree with.
// All of those lie in L1.
static void slices_but_last(const place *w, addends *a, float level[TREE][MR * NR], const float *s, const float *v,
                            int64_t rows, int64_t cols, lookahead *ahead) {
    for (int64_t c = 0;; c++, s += w->apart_s, v += w->apart_v) {
        int merges = merges_of(c);
        a->count = 0;
        for (int l = 0; l < merges; l++) add_next(a, level[l], NR);
        if (c == w->slices - 1) return;
        multiply_onto(level[merges], NR, a, w->cells, s, v, rows, cols, ahead);
    }
}

// Sums that wait have rows of whole panels, so that they need no masks.
static void register_tile_cut(const place *w, const float *s, const float *v, int64_t m, int64_t n, int64_t rows,
                              int64_t cols, lookahead *ahead) {
    _Alignas(64) float level[TREE][MR * NR];
    addends a;
    const gemm *g = w->g;
    const int merges = merges_of(w->number);
    const bool to_d = w->last && writes_d(g, n, cols);
    float *kept = w->sums ? w->sums + (m - w->m0) * w->ld + n - w->n0 : NULL,
          *place = kept && merges < g->kept ? kept + merges * w->sums_step : NULL;
    destination to = {.c = place, .ldc = w->ld};
    if (to_d) to = destination_of(w, NULL, m, n);
    else if (w->last) to.c = level[TREE - 1], to.ldc = NR;
    ahead->out = w->last ? lines_of(g, g->d, m, n, cols) : lines_of_sums(place, w->ld, cols);
    ahead->pre = w->ends && merges ? lines_of_sums(kept, w->ld, cols)
                 : !w->begins      ? lines_of_sums(place, w->ld, cols)
                                   : ahead->out;
    slices_but_last(w, &a, level, s, v, rows, cols, ahead);
    if (!w->begins) add_next(&a, place, w->ld);
    for (int l = 0; w->ends && l < merges; l++) add_next(&a, kept + l * w->sums_step, w->ld);
    if (to.base) add_next(&a, to.base, to.ld_base);
    multiply_onto(to.c, to.ldc, &a, w->cells, s + (w->slices - 1) * w->apart_s, v + (w->slices - 1) * w->apart_v, rows,
                  cols, ahead);
    if (w->last && !to_d) finish(g, to.c, NULL, w->ld, m, n, rows, cols);
}

// One tile of registers: rows x cols outputs at (m, n).
static void register_tile(const place *w, const float *s, const float *v, int64_t m, int64_t n, int64_t rows,
                          int64_t cols, lookahead *ahead) {
    const gemm *g = w->g;
    micro_kernel run = micro[rows - 1][(cols - 1) / VL];
    float *sums = w->sums ? w->sums + (m - w->m0) * w->ld + n - w->n0 : NULL;
    ahead->out = lines_of(g, g->d, m, n, cols);
    ahead->pre = g->pre              ? lines_of(g, g->pre, m, n, cols)
                 : !w->first && sums ? lines_of_sums(sums, w->ld, cols)
                                     : ahead->out;
    if (w->last ? writes_d(g, n, cols) : cols % VL == 0) {
        destination to = destination_of(w, sums, m, n);
        run(w->cells, s, v, &to, ahead);
        return;
    }
    _Alignas(64) float tile[MR * NR];
    run(w->cells, s, v, &(destination){.c = tile, .ldc = NR}, ahead);
    if (!w->last) keep(sums, w->ld, tile, !w->first, rows, cols);
    else finish(g, tile, w->first ? NULL : sums, w->ld, m, n, rows, cols);
}

// What is prefetched while a block is multiplied and its number of lines; the same for what is prefetched after it;
// what is copied.
typedef struct coming {
    walk way;
    int64_t lines;
    walk then;
    int64_t then_lines;
    transfer copy;
} coming;

static coming coming_of(const operand *o, int64_t first, int64_t n, int64_t k0, int64_t kc) {
    int64_t bytes = (int64_t)dtype_bytes(o->type), at = operand_at(o, first, k0);
    walk way = {
        .row = (const char *)o->data + at * bytes, .width = (o->along_k ? kc : n) * bytes, .stride = o->stride * bytes};
    int64_t rows = o->along_k ? n : kc;
    if (o->along_k && o->slice && kc >= o->slice)
        way.width = n * o->slice * bytes, way.stride = o->step * bytes, rows = kc / o->slice;  // whole slices
    return (coming){.way = way, .lines = rows * ((way.width + 63) / 64)};
}

// The length of the block that begins at k, and is of some slices or of a part of one, where k is cut.
static int64_t block_length(const gemm *g, int64_t k, int64_t end) {
    if (!g->k_slice) return min64(KC, end - k);
    if (g->k_slice <= KC) return min64(g->group * g->k_slice, end - k);
    return min64(min64(KC, g->k_slice - k % g->k_slice), end - k);
}

// What the thread that works on block k of tile `item` will pack next: the tile's next block, or the first block of the
// tile that it will take next if all threads are equally fast.
static coming packed_next(const gemm *g, int64_t item, int64_t k) {
    const coming none = {.way = {.row = g->d->data, .width = 64}};
    if (g->packed_s && g->packed_v) return none;
    int64_t end = g->k1, after = k + block_length(g, k, end);
    if (after < end) k = after;
    else item += pool_threads(g->workers), k = g->k0;
    if (item >= g->tiles) item -= g->tiles, k = g->k1, end = min64(g->k1 + g->k_step, g->k);
    if (k >= g->k || item >= g->tiles) return none;
    int64_t kc = block_length(g, k, end);
    if (g->packed_v) return coming_of(&g->s, tile_row(g, item), tile_rows(g, item), k, kc);
    return coming_of(&g->v, tile_column(g, item), tile_columns(g, item), k, kc);
}

// ... followed by this block's share of the s that all threads will pack for the next step of k.
static coming asked_for(const gemm *g, int64_t item, int64_t k) {
    coming next = packed_next(g, item, k);
    if (!g->packed_s || g->k1 == g->k) return next;
    int64_t blocks = (g->k1 - g->k0 + KC - 1) / KC, shares = g->tiles * blocks,
            share = item * blocks + (k - g->k0) / KC;
    int64_t first = share * g->m / shares, end = (share + 1) * g->m / shares;
    coming s = coming_of(&g->s, first, end - first, g->k1, min64(g->k_step, g->k - g->k1));
    next.then = s.way, next.then_lines = s.lines;
    return next;
}

// One block of k for `rows` x `cols` outputs whose operands are packed: panels of s in turn, each against all panels of
// v. Meanwhile `next` is prefetched and copied.
static void block(const place *w, const float *s, const float *v, int64_t m, int64_t n, int64_t rows, int64_t cols,
                  coming *next) {
    const bool twice = WORDS && w->g->s.type == FP32;
    lookahead ahead = {.far = next->way, .twice = twice, .copy = next->copy};
    for (int64_t i = 0; i < rows; i += MR, s += MR * w->cells) {
        ahead.near = (const char *)(s + MR * w->cells);
        for (int64_t j = 0; j < cols; j += NR) {
            if (w->g->k_slice)
                register_tile_cut(w, s, v + j * w->panel_v, m + i, n + j, min64(MR, rows - i), min64(NR, cols - j),
                                  &ahead);
            else
                register_tile(w, s, v + j * w->panel_v, m + i, n + j, min64(MR, rows - i), min64(NR, cols - j), &ahead);
            next->lines -= w->slices * (w->cells / 8) << twice;
            if (next->lines > 0) continue;
            if (next->then_lines) ahead.far = next->then, next->lines = next->then_lines, next->then_lines = 0;
            else ahead.far.stride = 0, ahead.far.width = 64;  // all is prefetched
        }
    }
    next->way = ahead.far, next->copy = ahead.copy;
}

static place place_of(const gemm *g, int64_t m0, int64_t n0, float *local_sums) {
    place w = {.g = g, .m0 = m0, .n0 = n0};
    if (g->local_sums) w.sums = local_sums, w.ld = g->tile_n, w.sums_step = g->tile_m * g->tile_n;
    else if (g->k_slice)
        w.ld = round_up(g->n, NR), w.sums = g->sums ? g->sums + m0 * w.ld + n0 : NULL, w.sums_step = g->m * w.ld;
    else if (g->sums || g->d->type == FP32)
        w.sums = (g->sums ? g->sums : (float *)g->d->data) + m0 * g->n + n0, w.ld = g->n;
    return w;
}

// The block at k; of one slice, if k is not cut. Returns where it ends.
static int64_t at_block(place *w, int64_t k, int64_t end) {
    const gemm *g = w->g;
    int64_t length = block_length(g, k, end);
    w->first = k == 0;
    w->last = k + length == g->k;
    w->slices = g->k_slice && length > g->k_slice ? length / g->k_slice : 1;
    w->kc = length / w->slices;
    w->cells = w->panel_v = product_cells(w->kc);
    if (g->k_slice) {
        w->begins = k % g->k_slice == 0;
        w->ends = (k + length) % g->k_slice == 0;
        w->number = k / (g->k_slice * g->group);
    }
    return k + length;
}

// Rows or columns of the block at k, slice by slice.
static void pack_slices(const place *w, float *dst, bool is_s, int64_t first, int64_t n, int64_t k) {
    for (int64_t c = 0; c < w->slices; c++) {
        if (is_s) pack_s(dst + c * w->apart_s, &w->g->s, first, n, k + c * w->kc, w->kc);
        else pack_v(dst + c * w->apart_v, &w->g->v, first, n, k + c * w->kc, w->kc);
    }
}

// The tile of a thread that shares s or v with others.
static void tile_together(const gemm *g, int64_t item, float *local, int64_t rows, int64_t cols) {
    int64_t m0 = tile_row(g, item), n0 = tile_column(g, item);
    place w = place_of(g, m0, n0, local + g->local_s + g->local_v);
    for (int64_t k = g->k0, end; k < g->k1; k = end) {
        end = at_block(&w, k, g->k1);
        coming next = asked_for(g, item, k);
        const float *s = local, *v = local + g->local_s;
        w.apart_s = w.cells * round_up(g->packed_s ? g->m : rows, MR),
        w.apart_v = w.cells * round_up(g->packed_v ? g->n : cols, NR);
        if (g->packed_s) s = g->packed_s + cells(g, k - g->k0) * round_up(g->m, MR) + m0 * w.cells;
        else pack_slices(&w, local, true, m0, rows, k);
        if (g->packed_v) v = g->packed_v + cells(g, k - g->k0) * round_up(g->n, NR) + n0 * w.cells;
        else pack_slices(&w, local + g->local_s, false, n0, cols, k);
        for (int64_t j = 0; j < cols; j += NC)
            block(&w, s, v + j * w.cells, m0, n0 + j, rows, min64(NC, cols - j), &next);
    }
}

// --- a thread alone --------------------------------------------------------------------------------------------------

// The copy of columns n .. n+cols-1 of v, k .. k+kc-1, to `packed`.
static transfer transfer_of(const gemm *g, int64_t n, int64_t cols, int64_t k, int64_t kc, float *packed) {
    return (transfer){.from = g->v.data,
                      .type = g->v.type,
                      .at = operand_at(&g->v, n, k),
                      .to = packed,
                      .stride = g->v.stride,
                      .line_step = (int64_t)NR == STRIP ? VL : NR * product_cells(kc),
                      .width = cols / VL,
                      .turn = -LEAD,
                      .lines = cols / VL * product_cells(kc)};
}

// While the strip at column j of block k is multiplied, the next strip is prefetched and copied to `packed`, and a
// share of the next block of s is prefetched. The next tile is the one that the thread will take if all threads are
// equally fast.
static coming strip_next(const gemm *g, int64_t item, int64_t j, int64_t k, int64_t cols, float *packed) {
    int64_t end = k + block_length(g, k, g->k);
    bool goes_on = j + STRIP < cols, stays = end < g->k;  // in the block, in the tile
    int64_t tile = stays ? item : item + pool_threads(g->workers), k2 = stays ? end : 0,
            kc2 = block_length(g, k2, g->k);
    coming next = {.way = {.row = g->d->data, .width = 64}};
    if (goes_on || tile < g->tiles) {
        int64_t n = goes_on ? tile_column(g, item) + j + STRIP : tile_column(g, tile), at = goes_on ? k : k2,
                kc = block_length(g, at, g->k);
        int64_t count = min64(STRIP, goes_on ? cols - j - STRIP : tile_columns(g, tile));
        next = coming_of(&g->v, n, count, at, kc);
        if (g->copies && (goes_on || stays)) next.copy = transfer_of(g, n, count, at, kc, packed);
    }
    if (tile < g->tiles) {
        int64_t rows = tile_rows(g, tile), first = rows * j / cols, end = rows * min64(j + STRIP, cols) / cols;
        coming s = coming_of(&g->s, tile_row(g, tile) + first, end - first, k2, kc2);
        next.then = s.way, next.then_lines = s.lines;
    }
    return next;
}

static void tile_alone(const gemm *g, int64_t item, float *local, int64_t rows, int64_t cols) {
    int64_t m0 = tile_row(g, item), n0 = tile_column(g, item);
    float *s = local, *v[2] = {local + g->local_s, local + g->local_s + g->local_v / 2};
    place w = place_of(g, m0, n0, v[0] + g->local_v);
    int turn = 0;
    if (g->copies) pack_v(v[0], &g->v, n0, min64(STRIP, cols), 0, block_length(g, 0, g->k));
    for (int64_t k = 0, end; k < g->k; k = end) {
        end = at_block(&w, k, g->k);
        w.apart_s = w.cells * round_up(rows, MR), w.apart_v = w.cells * (g->copies ? NR : STRIP);
        // slices of k follow one another in v, and so they do in a copied panel
        if (g->copies) w.panel_v = product_cells(end - k);
        pack_slices(&w, s, true, m0, rows, k);
        for (int64_t j = 0; j < cols; j += STRIP, turn ^= g->copies) {
            if (!g->copies) pack_slices(&w, v[turn], false, n0 + j, min64(STRIP, cols - j), k);
            coming next = strip_next(g, item, j, k, cols, v[!turn]);
            block(&w, s, v[turn], m0, n0 + j, rows, min64(STRIP, cols - j), &next);
            while (next.copy.turn < next.copy.lines) transfer_line(&next.copy);  // the rest, where rows were too few
        }
    }
}

static void tile_item(void *ctx, int64_t item, int thread) {
    const gemm *g = ctx;
    float *local = pool_scratch(g->workers, thread, (g->local_s + g->local_v + g->local_sums) * sizeof *local);
    (g->alone ? tile_alone : tile_together)(g, item, local, tile_rows(g, item), tile_columns(g, item));
}

// --- packing for all -------------------------------------------------------------------------------------------------

enum { PACK_S = 64 / MR * MR, PACK_V = NR < 48 ? 48 : NR };  // rows or columns of one item, by KC of k

static int64_t pack_groups(bool is_s, int64_t count) {
    return (count + (is_s ? PACK_S : PACK_V) - 1) / (is_s ? PACK_S : PACK_V);
}

// Blocks of k from k0 to k1: KC long, or, where k is cut, no longer than what is left of a slice.
static int64_t blocks_of(const gemm *g, int64_t k0, int64_t k1) {
    if (!g->k_slice || k1 - k0 <= g->k_slice) return (k1 - k0 + KC - 1) / KC;
    return (k1 - k0) / g->k_slice * ((g->k_slice + KC - 1) / KC);
}

// Where block `number` begins, from k0 on, and how long it is.
static int64_t block_at(const gemm *g, int64_t k0, int64_t k1, int64_t number, int64_t *kc) {
    int64_t slice = g->k_slice && k1 - k0 > g->k_slice ? g->k_slice : k1 - k0, each = (slice + KC - 1) / KC,
            in = number % each * KC;
    *kc = min64(KC, slice - in);
    return number / each * slice + in;
}

static int64_t pack_items(const gemm *g, const float *packed, bool is_s, int64_t k0, int64_t k1) {
    return packed ? pack_groups(is_s, is_s ? g->m : g->n) * blocks_of(g, k0, k1) : 0;
}

// Item `item` of an operand, of which k0 .. k1-1 goes to `packed`.
static void pack_part(const gemm *g, float *packed, bool is_s, int64_t k0, int64_t k1, int64_t item) {
    const operand *o = is_s ? &g->s : &g->v;
    int64_t unit = is_s ? PACK_S : PACK_V, width = is_s ? MR : NR, groups = pack_groups(is_s, o->count), kc;
    int64_t block = block_at(g, k0, k1, item / groups, &kc), first = item % groups * unit;
    float *dst = packed + cells(g, block) * round_up(o->count, width) + first * product_cells(kc);
    (is_s ? pack_s : pack_v)(dst, o, first, min64(unit, o->count - first), k0 + block, kc);
}

static void pack_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const gemm *g = ctx;
    int64_t s_items = pack_items(g, g->packed_s, true, g->k0, g->k1);
    if (item < s_items) pack_part(g, g->packed_s, true, g->k0, g->k1, item);
    else pack_part(g, g->packed_v, false, g->k0, g->k1, item - s_items);
}

// Where the step of k that begins at k ends. Of several steps none has parts of two slices.
static int64_t step_end(const gemm *g, int64_t k) {
    int64_t end = min64(k + g->k_step, g->k);
    return g->k_slice && g->k_step < g->k && g->k_step < g->k_slice ? min64(end, (k / g->k_slice + 1) * g->k_slice)
                                                                    : end;
}

static int64_t next_k1(const gemm *g) { return step_end(g, g->k1); }

// The tiles, then s of the next step: a thread that finds no more tiles packs while others finish theirs.
static void step_item(void *ctx, int64_t item, int thread) {
    const gemm *g = ctx;
    if (item < g->tiles) tile_item(ctx, item, thread);
    else pack_part(g, g->next_s, true, g->k1, next_k1(g), item - g->tiles);
}

// --- the plan --------------------------------------------------------------------------------------------------------

// Divides `count` into equal parts, none much larger than `most`. Returns their size, rounded up to whole panels.
static int64_t even(int64_t count, int64_t most, int64_t panel) {
    int64_t parts = (count + most - 1) / most;
    return round_up((count + parts - 1) / parts, panel);
}

static void count_tiles(gemm *g, int64_t rows, int64_t cols) {
    g->tile_m = even(g->m, rows, MR);
    g->tile_n = even(g->n, cols, NR);
    g->tiles_m = (g->m + g->tile_m - 1) / g->tile_m;
    g->tiles = g->tiles_m * ((g->n + g->tile_n - 1) / g->tile_n);
}

// Panels of columns that the busiest thread takes if tiles are as high as d and `panels` panels wide.
static int64_t busiest(const gemm *g, int64_t panels) {
    int64_t all = (g->n + NR - 1) / NR, tiles = (all + panels - 1) / panels, threads = pool_threads(g->workers);
    return (tiles + threads - 1) / threads * panels;
}

// The width of tiles as high as d: `columns` or less; where so few tiles would leave a thread idle for long, the widest
// that keeps all threads busy.
static int64_t balanced(const gemm *g, int64_t columns) {
    int64_t panels = even(g->n, columns, NR) / NR, best = panels;
    for (int64_t p = NC / NR; p >= 1; p--)
        if (busiest(g, p) * 10 < busiest(g, best) * 9) best = p;
    return best * NR;
}

// Unfinished sums can be kept in d itself.
static bool holds_sums(const gemm *g) {
    return g->d->type == FP32 && !(g->epilogue & MATMUL_ACCUMULATE) && !g->k_slice && g->d_slice == g->n;
}

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

// Tiles for threads that share nothing: enough rows that a strip can be copied while the previous one is multiplied (a
// register tile copies one line for each 8 of its k), and the same number of tiles for each thread. True if packing
// then costs little compared with multiplying: packing a row of s costs as much as 12 columns of products, a column of
// v as 5 rows, or 9 if it is transposed (measured on a Zen 5).
static bool plan_alone(gemm *g) {
    double best = 0.08;
    int64_t rows = 0, cols = 0, threads = pool_threads(g->workers);
    // of pairs, none may lack its second
    const bool in_order = PAIRED ? (g->k_slice ? g->k_slice : g->k) % 2 == 0 : g->v.type == FP32;
    g->copies = in_order && !g->v.along_k && g->n % VL == 0 &&
                (!g->v.slice || (g->v.slice % STRIP == 0 && (int64_t)NR == STRIP));
    if (g->m > (g->copies ? LONG : MC) || (!g->k_slice && g->k > KC && !holds_sums(g))) return false;
    for (int64_t most = MC; most <= MC / 4 * 5; most += MC / 4) {
        int64_t r = even(g->m, most, MR), groups = (g->m + r - 1) / r;
        int64_t across = threads / gcd(groups, threads), widest = (g->n + across - 1) / across;
        // each tile of a cut sum has several sums that wait
        int64_t c = even(g->n, g->k_slice ? min64(widest, LONG) : widest, NR);
        double cost = 12.0 / (double)c + (g->copies ? 5.0 : 9.0) / (double)r;
        if (r >= MC / 4 * 3 && cost < best) best = cost, rows = r, cols = c;
    }
    if (rows) count_tiles(g, rows, cols);
    return rows > 0;
}

// Which operand is packed whole, how far k goes at a time, and the size of the tiles. By shape and number of threads.
static void plan_tiles(gemm *g, bool *share_s, bool *share_v) {
    int64_t big = g->m > g->n ? g->m : g->n, small = g->m + g->n - big;
    int64_t columns = g->n / ((g->m <= LOW ? 2 * TURNS : TURNS) * pool_threads(g->workers));
    g->k_step = g->k;
    *share_s = *share_v = false;
    g->alone = plan_alone(g);
    if (g->alone) return;
    if (small * g->k > SHARED) {
        int64_t step = SHARED / (SHARED / big >= 4 * KC ? big : small) / KC * KC;
        g->k_step = step > KC ? step : KC;
    }
    if (g->m <= LONG && columns >= NR) {  // tiles as high as d: each column of v is packed once anyway
        *share_s = true, *share_v = false;
        if (g->m * g->k > WAITING && holds_sums(g)) g->k_step = g->m <= LOW ? 2 * KC : KC;
        // two blocks at least: unfinished sums go through memory at every step
        else if (g->k_step < g->k) g->k_step = 2 * WAITING / g->m / KC * KC;
        count_tiles(g, LONG, balanced(g, columns < NC ? columns : NC));
        return;
    }
    bool fits = big * min64(g->k_step, g->k) <= SHARED;
    *share_s = fits || g->m <= g->n;
    *share_v = fits || g->m > g->n;
    int64_t rows = *share_v ? MC : LONG, cols = *share_s ? NC : LONG;
    for (int turn = 0;; turn++) {  // halve until there are enough tiles, but not below what makes packing pay
        count_tiles(g, rows, cols);
        if (g->tiles >= ITEMS) break;
        if (*share_v && rows > MC / 4) rows /= 2;
        else if (*share_s && cols > (*share_v ? NC / 4 : NC / 2)) cols /= 2;
        else break;
    }
}

// A cut sum goes in steps of whole groups of slices, or of whole blocks of one slice.
static void plan_slices(gemm *g) {
    int64_t slices = g->k / g->k_slice, unit;
    g->group = 1;
    while (g->group < slices && 2 * g->group * g->k_slice <= KC) g->group *= 2;
    g->kept = merges_of(slices / g->group - 1) + (g->k_slice > KC);
    if (g->k_step >= g->k) return;
    unit = g->k_step < g->k_slice ? KC : g->group * g->k_slice;
    g->k_step = g->k_step > unit ? g->k_step / unit * unit : unit;
}

// Memory of the plan: what all threads share, and each thread's own.
static err_t plan_memory(gemm *g, bool share_s, bool share_v) {
    int64_t k = cells(g, min64(g->k_step, g->k));
    // of a block
    const int64_t most = g->k_slice && g->k_slice < KC ? g->group * product_cells(g->k_slice) : product_cells(KC);
    int64_t keeps = g->k_slice ? g->kept : g->k > KC && !holds_sums(g);
    bool ahead = share_s && !share_v && g->k_step < g->k;
    size_t s = share_s ? (size_t)(round_up(g->m, MR) * k) : 0, next = ahead ? s : 0,
           v = share_v ? (size_t)(round_up(g->n, NR) * k) : 0;
    size_t sums = g->k_step < g->k ? (size_t)(keeps * g->m * round_up(g->n, NR)) : 0;
    s = (s + 15) & ~(size_t)15, next = (next + 15) & ~(size_t)15, v = (v + 15) & ~(size_t)15;
    // read-ahead may look beyond
    float *shared = pool_shared(g->workers, (s + next + v + sums + 1024) * sizeof *shared);
    g->local_s = share_s ? 0 : (size_t)(g->tile_m * most);
    g->local_v = share_v ? 0 : (size_t)((g->alone ? 2 * STRIP : g->tile_n) * most);
    g->local_sums = sums ? 0 : (size_t)(keeps * g->tile_m * g->tile_n);
    size_t local = (g->local_s + g->local_v + g->local_sums) * sizeof *shared;
    bool ok = shared != NULL;
    for (int i = 0; ok && i < pool_threads(g->workers); i++)
        ok = pool_scratch(g->workers, i, local ? local : 64) != NULL;
    if (!ok)
        return err_set(ERR_INTERNAL,
                       "matmul (%" PRId64 ",%" PRId64 ",%" PRId64 "): no memory for %.1f MB of packed operands", g->m,
                       g->n, g->k, (double)((s + next + v + sums) * sizeof *shared + local) / 1e6);
    if (share_s) g->packed_s = shared;
    if (ahead) g->next_s = shared + s;
    if (share_v) g->packed_v = shared + s + next;
    if (sums) g->sums = shared + s + next + v;
    return ERR_OK;
}

err_t PLAIN_KERNEL(bias_backward)(const bias_backward_args *args, stream *s);
static err_t bias_of_d(const matmul_args *args, stream *st) {
    if (!args->dbias) return ERR_OK;
    return PLAIN_KERNEL(bias_backward)(&(bias_backward_args){.dbias = args->dbias, .dy = args->d, .fresh = args->fresh},
                                       st);
}

// A matrix of a product as an operand: of three dimensions, its columns are cut.
static operand operand_of(const tensor *t, bool along_k, int64_t count) {
    if (t->dims == 2 || t->size[0] == 1) return (operand){t->data, t->type, along_k, t->size[t->dims - 1], count, 0, 0};
    return (operand){t->data, t->type, along_k, t->size[2], count, t->size[2], t->size[1] * t->size[2]};
}

// alias      none: d, pre, a, b, bias and residual are apart
// moves      each operand once or a few times; bound by FMA from about K = 128 on
err_t KERNEL(matmul)(const matmul_args *args, stream *st) {
    matmul_check(args);
    gemm g = {.m = matrix_rows(args->d),
              .n = matrix_columns(args->d),
              .k = args->ta ? matrix_rows(args->a) : matrix_columns(args->a),
              .k_slice = matmul_slices(args) > 1 ? args->a->size[2] : 0,
              .d_slice = args->d->size[args->d->dims - 1],
              .d = args->d,
              .pre = args->pre,
              .bias = args->bias,
              .residual = args->residual,
              .epilogue = args->epilogue | (args->residual ? ADD_RESIDUAL : 0) |
                          (args->erf && args->epilogue & (MATMUL_GELU | MATMUL_DGELU) ? GELU_ERF : 0),
              .workers = st->workers};
    bool adds = g.epilogue == MATMUL_ACCUMULATE || (g.epilogue == MATMUL_BIAS && args->bias->type == FP32);
    g.plain = args->d->type == FP32 && (!g.epilogue || adds);
    g.s = operand_of(args->a, !args->ta, g.m);
    g.v = operand_of(args->b, args->tb, g.n);
    bool share_s, share_v;
    plan_tiles(&g, &share_s, &share_v);
    if (g.k_slice) plan_slices(&g);
    TRY(plan_memory(&g, share_s, share_v));
    for (g.k0 = 0; g.k0 < g.k; g.k0 = g.k1) {
        g.k1 = step_end(&g, g.k0);
        if (g.k0 == 0 || !g.next_s)
            pool_run(g.workers,
                     pack_items(&g, g.packed_s, true, g.k0, g.k1) + pack_items(&g, g.packed_v, false, g.k0, g.k1),
                     pack_item, &g);
        pool_run(g.workers, g.tiles + pack_items(&g, g.next_s, true, g.k1, next_k1(&g)), step_item, &g);
        float *done = g.packed_s;
        if (g.next_s) g.packed_s = g.next_s, g.next_s = done;
    }
    return bias_of_d(args, st);
}
