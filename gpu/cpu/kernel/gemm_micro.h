// gpu/cpu/kernel/gemm_micro.h: the inner loop of the matrix product: a tile of outputs that lives in registers while k
// runs.
//
// Every output has one accumulator, and step k does acc[r][c] = fma(s[k][r], v[k][c], acc[r][c]): the chain that the
// specification in matmul.c asks for, whatever the tile's shape. (With products = bf16-pairs a step is product_step, of
// cells: products.h.) So the shape is free, and each vector width has the one that suits it:
//
//               tile (rows x columns)   registers of 32 or 16                       loads : FMAs per k
//     AVX-512   8 x 48                  24 sums + 3 of v + 1 broadcast  of 32       11 : 24
//     AVX2      6 x 16                  12 sums + 2 of v + 1 broadcast  of 16        8 : 12
//     NEON      6 x 16                  24 sums + 4 of v + 1 broadcast  of 32       10 : 24
//     portable  4 x 16                  the compiler's business
//
// Two FMAs a cycle of four cycles' latency want 8 independent chains or more. The 8 x 48 tile needs 192 bytes of v for
// 12 cycles of FMA; s, a panel of 8 rows, stays in L1 while v streams by from L2. Tiles at the edges have functions of
// their own with fewer rows or vectors, so that they cost no more than their rows. Meanwhile the operands that come
// next are prefetched or, if they need no conversion, copied, a line every 8 steps: one load and one store next to 192
// FMAs cost little.
#ifndef GPU_CPU_KERNEL_GEMM_MICRO_H
#define GPU_CPU_KERNEL_GEMM_MICRO_H

#include "gpu/cpu/kernel/cells.h"

#if defined(__AVX512F__)
enum { MR = 8, NV = 3 };
#define UNROLL_K _Pragma("GCC unroll 8")
#elif defined(__AVX2__) || defined(VEC_NEON)
enum { MR = 6, NV = 1 };
#define UNROLL_K _Pragma("GCC unroll 8")
#else
enum { MR = 4, NV = 1 };
#define UNROLL_K _Pragma("GCC unroll 1")
#endif
enum { NR = NV * VL };

// What will be needed soon, line by line: rows of `width` bytes that are `stride` bytes apart. The inner loop
// prefetches one line every 8 steps, so that memory works while the units multiply. It may run past the last row: such
// a prefetch does nothing.
typedef struct walk {
    const char *row;
    int64_t done, width, stride;
} walk;

VEC const char *walk_on(walk *w) {
    const char *line = w->row + w->done;
    w->done += 64;
    if (w->done >= w->width) w->done = 0, w->row += w->stride;
    return line;
}

// Where a tile goes: c = base + (sums + products), without what is NULL. ld_base may be 0: one row for all. c may be
// sums or base.
typedef struct destination {
    float *c;
    const float *sums, *base;
    int64_t ldc, ld_sums, ld_base;
} destination;

// A copy of rows of v into panels, as cells: line by line, `width` lines for each row of cells.
typedef struct transfer {
    const void *from;  // of type `type`
    dtype type;
    int64_t at;         // the first element of the current row
    float *to;          // ... its place in the first panel
    int64_t stride;     // from row to row, in elements
    int64_t line_step;  // from line to line in the panels, in cells
    int64_t line, width, row;
    int64_t turn, lines;  // while turn < 0 it waits for the prefetch
} transfer;

BODY void transfer_typed(dtype type, transfer *t) {
    int64_t at = t->at + t->line * VL;
    vf_store(t->to + (cell_place(t->row) - t->row) * NR + t->line * t->line_step,
             cells_across(type, t->from, at, at + t->stride));
}

BODY void transfer_line(transfer *t) {
    if ((uint64_t)t->turn++ >= (uint64_t)t->lines) return;
    if (PAIRED && t->type == BF16) transfer_typed(BF16, t);
    else transfer_typed(FP32, t);
    if (++t->line == t->width) t->line = 0, t->row++, t->at += CELL_K * t->stride, t->to += NR;
}

typedef struct lookahead {
    const char *near;  // the next panel of s, into the L1
    walk far;          // what is packed next, into the L2
    walk out, pre;     // the tile's own places in memory
    bool twice;        // FP32 that is packed as pairs has two lines of `far` for one of cells
    transfer copy;
} lookahead;

// products (rows, 16 * vecs) = sum over cells c < n of s[c][r] * v[c][j], then as `to` says. s is packed [n][MR], v
// [n][NR].
typedef void (*micro_kernel)(int64_t n, const float *s, const float *v, const destination *to, lookahead *ahead);

VEC void micro_step(int rows, int vecs, product_state *p, vf acc[MR][NV], const float *s, const float *v) {
    vf b[NV];
#pragma GCC unroll 4
    for (int j = 0; j < vecs; j++) b[j] = vf_load(v + j * VL);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        vf a = vf_set1(s[r]);
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++) acc[r][j] = product_step(p, a, b[j], acc[r][j]);
    }
}

VEC void micro_store(int rows, int vecs, vf acc[MR][NV], const destination *to, bool sums, bool base) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++) {
            vf x = acc[r][j];
            if (sums) x = vf_add(vf_load(to->sums + r * to->ld_sums + j * VL), x);
            if (base) x = vf_add(vf_load(to->base + r * to->ld_base + j * VL), x);
            vf_store(to->c + r * to->ldc + j * VL, x);
        }
    }
}

// The same chains as they are specified.
static void micro_again(int rows, int vecs, vf acc[MR][NV], int64_t n, const float *s, const float *v) {
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vecs; j++) {
            acc[r][j] = vf_zero();
            for (int64_t c = 0; c < n; c++)
                acc[r][j] = product_exact(vf_set1(s[c * MR + r]), vf_load(v + c * NR + j * VL), acc[r][j]);
        }
}

VEC void micro_body(int rows, int vecs, int64_t n, const float *s, const float *v, const destination *to,
                    lookahead *ahead) {
    vf acc[MR][NV];
    lookahead a = *ahead;
    const float *first_s = s, *first_v = v;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++) acc[r][j] = vf_zero();
    product_state p = product_begin();
    int64_t c = 0;
    for (; c + 8 <= n; c += 8, s += 8 * MR, v += 8 * NR, a.near += 64) {
        __builtin_prefetch(a.near);
        __builtin_prefetch(walk_on(&a.far), 0, 2);
        __builtin_prefetch(walk_on(&a.out), 1);
        __builtin_prefetch(walk_on(&a.pre), 1);
        if (WORDS && a.twice) __builtin_prefetch(walk_on(&a.far), 0, 2);
        // a short chain has fewer turns than its tile has lines
        if (WORDS && n < 8 * MR * NV) __builtin_prefetch(walk_on(&a.out), 1);
        transfer_line(&a.copy);
        UNROLL_K
        for (int i = 0; i < 8; i++) micro_step(rows, vecs, &p, acc, s + i * MR, v + i * NR);
    }
    for (; c < n; c++, s += MR, v += NR) micro_step(rows, vecs, &p, acc, s, v);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++) product_hold(&acc[r][j]);
    if (product_end(&p)) micro_again(rows, vecs, acc, n, first_s, first_v);
    ahead->near = a.near, ahead->far = a.far, ahead->copy = a.copy;
    if (to->sums && to->base) micro_store(rows, vecs, acc, to, true, true);
    else if (to->sums) micro_store(rows, vecs, acc, to, true, false);
    else if (to->base) micro_store(rows, vecs, acc, to, false, true);
    else micro_store(rows, vecs, acc, to, false, false);
}

#define MICRO(r, w) \
    static void micro_##r##x##w(int64_t n, const float *s, const float *v, const destination *to, lookahead *ahead) { \
        micro_body(r, w, n, s, v, to, ahead); \
    }
#if defined(__AVX512F__)
#define MICRO_ROWS(r) MICRO(r, 1) MICRO(r, 2) MICRO(r, 3)
#define MICRO_ROW(r) \
    { micro_##r##x1, micro_##r##x2, micro_##r##x3 }
#else
#define MICRO_ROWS(r) MICRO(r, 1)
#define MICRO_ROW(r) \
    { micro_##r##x1 }
#endif
// clang-format off
MICRO_ROWS(1) MICRO_ROWS(2) MICRO_ROWS(3) MICRO_ROWS(4)
#if defined(__AVX2__) || defined(VEC_NEON)
MICRO_ROWS(5) MICRO_ROWS(6)
#endif
#if defined(__AVX512F__)
MICRO_ROWS(7) MICRO_ROWS(8)
#endif
    // clang-format on

    // [rows - 1][vectors - 1]
    static const micro_kernel micro[MR][NV] = {
        MICRO_ROW(1), MICRO_ROW(2), MICRO_ROW(3), MICRO_ROW(4),
#if defined(__AVX2__) || defined(VEC_NEON)
        MICRO_ROW(5), MICRO_ROW(6),
#endif
#if defined(__AVX512F__)
        MICRO_ROW(7), MICRO_ROW(8),
#endif
};
#undef MICRO
#undef MICRO_ROWS
#undef MICRO_ROW
#undef UNROLL_K

#endif
