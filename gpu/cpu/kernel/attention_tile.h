// gpu/cpu/kernel/attention_tile.h: what attention is made of: rows become tiles of cells, tiles are transposed and
// multiplied.
//
// One product serves all seven matrix products of attention: c[r][n] += sum of a[r,k] * b[k][n], where vectors run
// along n, the rows of b and c lie in memory as they are, and a is read one cell at a time along its rows or along its
// columns. Every element of c is one chain of FMAs, k ascending, that starts from c (or from 0): how many rows and
// vectors are kept in registers at a time is a matter of the machine and leaves no trace in the bits.
//
// A cell is a float, or, with PAIRS where the processor multiplies pairs, two BF16 numbers (products.h, cells.h). So
// there are two kinds of tiles:
//
//     along    a row of cells for each row: it is transposed to be b, or read as a along its rows
//     across   a row of cells for each step of k, which is CELL_K rows: it is b, or read as a along its columns
//
// Where a cell is a float they are one. Pairs by FMA read the cells of a pair in the order of cell_place; an even
// number of them is there.
#ifndef GPU_CPU_KERNEL_ATTENTION_TILE_H
#define GPU_CPU_KERNEL_ATTENTION_TILE_H

#include "gpu/cpu/kernel/cells.h"
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/transpose.h"

#include <inttypes.h>

enum {
    TILE = 64,   // queries or keys in a tile: part of the arithmetic, the same on every machine
    STRIP = VL,  // rows of a tile on the diagonal that are cut at the same key
    TILE_VECS = TILE / VL,
    TILE_ALONG = TILE / CELL_K,  // cells of a tile's row of keys
};

// Rows and vectors of c in registers. AVX-512 has 32 registers of one vector, AVX2 16 of half of one.
#if defined(__AVX512F__)
enum { BLOCK_ROWS = 8, BLOCK_VECS = 2 };
#else
enum { BLOCK_ROWS = 6, BLOCK_VECS = 1 };
#endif

// Before the products of a tile, and after them: nothing else is computed in between. Where chains may have to be
// computed again, each block does so.
VEC product_state tile_begin(void) { return AGAIN ? (product_state){.saved = 0} : product_begin(); }
VEC void tile_end(const product_state *p) {
    if (!AGAIN) product_end(p);
}

// The chains of a block as they are specified.
static void block_again(int rows, int vecs, bool by_column, vf acc[BLOCK_ROWS][BLOCK_VECS], const float *c, int64_t ldc,
                        const float *a, int64_t lda, const float *b, int64_t ldb, int64_t cells, bool from_zero) {
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < vecs; n++) {
            acc[r][n] = from_zero ? vf_zero() : vf_load(c + r * ldc + n * VL);
            for (int64_t i = 0; i < cells; i++) {
                int64_t k = cell_place(i);
                vf x = vf_set1(by_column ? a[k * lda + r] : a[r * lda + k]);
                acc[r][n] = product_exact(x, vf_load(b + k * ldb + n * VL), acc[r][n]);
            }
        }
}

// rows, vecs and by_column are constants wherever this is called, so that acc lives in registers.
VEC void product_block(int rows, int vecs, bool by_column, float *c, int64_t ldc, const float *a, int64_t lda,
                       const float *b, int64_t ldb, int64_t cells, bool from_zero) {
    vf acc[BLOCK_ROWS][BLOCK_VECS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int n = 0; n < vecs; n++) acc[r][n] = from_zero ? vf_zero() : product_from(vf_load(c + r * ldc + n * VL));
    product_state p = AGAIN ? product_begin() : (product_state){.saved = 0};
    for (int64_t first = 0; first < cells; first += PAIR_CELLS)
#pragma GCC unroll 2
        for (int i = 0; i < PAIR_CELLS; i++) {
            int64_t k = first + cell_place(i);
            vf y[BLOCK_VECS];
#pragma GCC unroll 2
            for (int n = 0; n < vecs; n++) y[n] = vf_load(b + k * ldb + n * VL);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                vf x = vf_set1(by_column ? a[k * lda + r] : a[r * lda + k]);
#pragma GCC unroll 2
                for (int n = 0; n < vecs; n++) acc[r][n] = product_step(&p, x, y[n], acc[r][n]);
            }
        }
    if (AGAIN) {
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int n = 0; n < vecs; n++) product_hold(&acc[r][n]);
        if (product_end(&p)) block_again(rows, vecs, by_column, acc, c, ldc, a, lda, b, ldb, cells, from_zero);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int n = 0; n < vecs; n++) vf_store(c + r * ldc + n * VL, acc[r][n]);
}

// All rows of c, `vecs` vectors wide.
VEC void product_column(int vecs, bool by_column, float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                        int64_t ldb, int64_t rows, int64_t cells, bool from_zero) {
    int64_t r = 0, step = by_column ? 1 : lda;
    for (; r + BLOCK_ROWS <= rows; r += BLOCK_ROWS)
        product_block(BLOCK_ROWS, vecs, by_column, c + r * ldc, ldc, a + r * step, lda, b, ldb, cells, from_zero);
    c += r * ldc, a += r * step;
#define PRODUCT_REST(n) \
    case n: product_block(n, vecs, by_column, c, ldc, a, lda, b, ldb, cells, from_zero); break
    switch (rows - r) {
        PRODUCT_REST(1);
        PRODUCT_REST(2);
        PRODUCT_REST(3);
        PRODUCT_REST(4);
        PRODUCT_REST(5);
#if defined(__AVX512F__)
        PRODUCT_REST(6);
        PRODUCT_REST(7);
#endif
    }
#undef PRODUCT_REST
}

VEC void product_all(bool by_column, float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb,
                     int64_t rows, int64_t cols, int64_t cells, bool from_zero) {
    int64_t n = 0;
    for (; n + BLOCK_VECS * VL <= cols; n += BLOCK_VECS * VL)
        product_column(BLOCK_VECS, by_column, c + n, ldc, a, lda, b + n, ldb, rows, cells, from_zero);
    for (; n < cols; n += VL) product_column(1, by_column, c + n, ldc, a, lda, b + n, ldb, rows, cells, from_zero);
}

// c (rows,cols) = or += a (rows,cells) b (cells,cols), cols a multiple of VL, between tile_begin and tile_end.
static void product(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int64_t rows,
                    int64_t cols, int64_t cells, bool from_zero) {
    product_all(false, c, ldc, a, lda, b, ldb, rows, cols, cells, from_zero);
}

// A score, of what the product gave: with pairs q is not scaled before it.
VEC vf score_of(vf x, float scale) { return PAIRED ? vf_mul(x, vf_set1(scale)) : x; }

// y as it is divided: with pairs a hidden key leaves no sign of zero.
VEC vf dividend_of(const float *y) { return PAIRED ? vf_add(vf_load(y), vf_zero()) : vf_load(y); }

// --- rows in and out -------------------------------------------------------------------------------------------------

// Cells of a row of n elements in a tile along, up to whole vectors.
static inline int64_t cells_of_row(int64_t n) { return (product_cells(n) + VL - 1) / VL * VL; }

// A tile along: n values from each of `rows` rows that are `stride` elements apart, into rows of ld cells, a multiple
// of VL; zeros past the n-th. Floats that are not paired are multiplied by `scale`. What is missing of the last pair of
// rows is a row of zeros.
BODY void load_rows_of(dtype t, float *out, int64_t ld, const void *in, int64_t at, int64_t stride, int64_t rows,
                       int64_t n, float scale) {
    vf factor = vf_set1(scale);
    for (int64_t r = 0; r < rows || r < product_cells(rows); r++)
        for (int64_t i = 0; i < ld; i += VL) {
            vf x = cells_along_n(t, in, at + r * stride + CELL_K * i, r < rows ? n - CELL_K * i : 0);
            vf_store(out + r * ld + i, PAIRED ? x : vf_mul(factor, x));
        }
}
static void load_rows(dtype t, float *out, int64_t ld, const void *in, int64_t at, int64_t stride, int64_t rows,
                      int64_t n, float scale) {
    BY_TYPE(t, load_rows_of, out, ld, in, at, stride, rows, n, scale);
}

// A tile across: the same values in rows of ld cells, one for each CELL_K rows.
BODY void load_across_of(dtype t, float *out, int64_t ld, const void *in, int64_t at, int64_t stride, int64_t rows,
                         int64_t n) {
    for (int64_t c = 0; c < product_cells(rows); c++)
        for (int64_t i = 0; i < ld; i += VL) {
            int64_t r = CELL_K * c, first = at + r * stride + i, second = first + stride;
            bool whole = n - i >= VL && r + CELL_K <= rows;
            vf_store(out + c * ld + i, whole
                                           ? cells_across(t, in, first, second)
                                           : cells_across_n(t, in, first, second, r < rows ? n - i : 0, r + 1 < rows));
        }
}
static void load_across(dtype t, float *out, int64_t ld, const void *in, int64_t at, int64_t stride, int64_t rows,
                        int64_t n) {
    BY_TYPE(t, load_across_of, out, ld, in, at, stride, rows, n);
}

// out (ld,TILE) = a tile along, transposed, of `rows` rows of n values that are `stride` elements apart; zeros past the
// last cell of a row and, up to a multiple of VL, past the last column.
BODY void load_columns_of(dtype t, float *out, int64_t ld, const void *in, int64_t at, int64_t stride, int64_t rows,
                          int64_t n) {
    for (int64_t r = 0; r < rows; r += VL)
        for (int64_t i = 0; i < ld; i += VL) {
            vf x[VL];
            bool whole = r + VL <= rows && n - CELL_K * i >= CELL_K * VL;
            for (int k = 0; k < VL; k++) {
                int64_t first = at + (r + k) * stride + CELL_K * i;
                x[k] =
                    whole ? cells_along(t, in, first) : cells_along_n(t, in, first, r + k < rows ? n - CELL_K * i : 0);
            }
            transpose16(x);
            for (int k = 0; k < VL; k++) vf_store(out + (i + k) * TILE + r, x[k]);
        }
}
static void load_columns(dtype t, float *out, int64_t ld, const void *in, int64_t at, int64_t stride, int64_t rows,
                         int64_t n) {
    BY_TYPE(t, load_columns_of, out, ld, in, at, stride, rows, n);
}

// --- scratch ---------------------------------------------------------------------------------------------------------

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Takes parts of one block of scratch. With base NULL it only measures.
typedef struct room {
    float *base;
    int64_t used;
} room;
static float *take(room *r, int64_t floats) {
    float *p = r->base ? r->base + r->used : NULL;
    r->used += (floats + 15) & ~(int64_t)15;
    return p;
}

// Allocates every thread's scratch before the work starts, where a failure can still be returned.
static err_t reserve(stream *s, int64_t floats, const char *who) {
    for (int i = 0; i < pool_threads(s->workers); i++)
        if (!pool_scratch(s->workers, i, (size_t)floats * sizeof(float)))
            return err_set(ERR_INTERNAL, "%s: no memory for %" PRId64 " bytes of scratch for thread %d", who,
                           floats * (int64_t)sizeof(float), i);
    return ERR_OK;
}

#endif
