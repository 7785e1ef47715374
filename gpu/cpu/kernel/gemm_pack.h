// gpu/cpu/kernel/gemm_pack.h: operands brought into the order in which the inner loop reads them.
//
// A panel is `width` rows of op(a), or columns of op(b), by kc steps of k, as cells (cells.h), stored [cell][width]:
// the inner loop then reads forward only. Conversion and transposition happen here, once per element, and the inner
// loop knows of neither. Rows beyond the matrix are zero in the panel: their products go to outputs that are not
// stored. So is the k that is missing of a last pair.
#ifndef GPU_CPU_KERNEL_GEMM_PACK_H
#define GPU_CPU_KERNEL_GEMM_PACK_H

#include "gpu/cpu/kernel/gemm_micro.h"
#include "gpu/cpu/kernel/transpose.h"

// An operand, seen as `count` rows or columns of K elements each. along_k: the K elements of one are neighbours in
// memory, and `stride` leads to the next; else the rows are neighbours, and `stride` leads to the next k.
typedef struct operand {
    const void *data;
    dtype type;
    bool along_k;
    int64_t stride, count;
    // its columns in memory may be cut into slices of so many, each a matrix of its own, `step` elements apart. 0: they
    // are not
    int64_t slice, step;
} operand;

// Slice `number` of the operand, as one that is not cut.
static inline operand operand_slice(const operand *o, int64_t number) {
    operand x = *o;
    x.data = typed_at(o->data, o->type, number * o->step), x.slice = 0;
    return x;
}

// Where element (row or column `first`, step k) is, in elements from data.
static inline int64_t operand_at(const operand *o, int64_t first, int64_t k) {
    int64_t row = o->along_k ? first : k, column = o->along_k ? k : first;
    return o->slice ? column / o->slice * o->step + row * o->stride + column % o->slice : row * o->stride + column;
}

// The first `width` lanes, width <= 16 a constant.
VEC void store_first(float *p, vf v, int width) {
#if defined(__AVX512F__)
    if (width == 8) {
        _mm256_storeu_ps(p, _mm512_castps512_ps256(v));
        return;
    }
#elif defined(__AVX2__)
    if (width == 6) {  // two plain stores: a masked one is slow on some processors
        _mm_storeu_ps(p, _mm256_castps256_ps128(v.lo));
        _mm_storel_pi((__m64 *)(p + 4), _mm256_extractf128_ps(v.lo, 1));
        return;
    }
#endif
    if (width == VL) vf_store(p, v);
    else vf_store_n(p, v, width);
}

// The first eight lanes, and the last.
VEC void store_halves(float *p, float *q, vf v) {
    float all[VL];
    vf_store(all, v);
    memcpy(p, all, sizeof all / 2), memcpy(q, all + VL / 2, sizeof all / 2);
}

// Prefetches into the L2 what will be packed soon: the pieces of rows are too short for the processor to guess the next
// one. The address may be past the end of the matrix; its prefetch does nothing.
BODY void ask(const operand *o, dtype t, int64_t i) { __builtin_prefetch(typed_at(o->data, t, i), 0, 2); }

enum { AHEAD = 24 };  // steps of k, where k goes down the rows

// --- panels ----------------------------------------------------------------------------------------------------------

// One panel from K elements in a row: tiles of 16 rows by 16 cells, transposed in registers.
BODY void pack_along_k(dtype t, int width, float *dst, const operand *o, int64_t first, int64_t n, int64_t k0,
                       int64_t kc) {
    for (int64_t j = 0; j < width; j += VL) {
        int w = width - j < VL ? (int)(width - j) : VL;
        int rows = n - j < w ? (n > j ? (int)(n - j) : 0) : w;
        int64_t at = (first + j) * o->stride + k0;
        for (int64_t k = 0; k < kc; k += CELL_K * VL) {
            vf x[16];
            for (int i = 0; i < w; i++) ask(o, t, at + (i + w) * o->stride + k);  // the tile below, next in turn
            if (rows == w && kc - k >= CELL_K * VL) {
#pragma GCC unroll 16
                for (int i = 0; i < VL; i++) x[i] = i < w ? cells_along(t, o->data, at + i * o->stride + k) : vf_zero();
            } else {
                for (int i = 0; i < VL; i++)
                    x[i] = i < rows ? cells_along_n(t, o->data, at + i * o->stride + k, kc - k) : vf_zero();
            }
            transpose16(x);
            float *out = dst + k / CELL_K * width + j;
            if (kc - k >= CELL_K * VL) {
#pragma GCC unroll 16
                for (int i = 0; i < VL; i++) store_first(out + cell_place(i) * width, x[i], w);
            } else {
                for (int i = 0; i < product_cells(kc - k); i++) store_first(out + cell_place(i) * width, x[i], w);
            }
        }
    }
}

// All panels from rows that are adjacent in memory: copies, k outermost, so that whole cache lines are read and each
// page is visited once.
BODY void pack_across_k(dtype t, int width, float *dst, const operand *o, int64_t first, int64_t n, int64_t k0,
                        int64_t kc) {
    const int64_t cells = product_cells(kc), line = 64 / (int64_t)dtype_bytes(t);
    for (int64_t c = 0, k = 0, at = k0 * o->stride + first; c < cells; c++, k += CELL_K, at += CELL_K * o->stride) {
        float *out = dst + cell_place(c) * width;
        int64_t i = 0, next = at + o->stride;
        const bool whole = k + CELL_K <= kc;
        for (int64_t r = 0; r < CELL_K; r++)
            for (int64_t j = 0; j < n; j += line) ask(o, t, at + (AHEAD + r) * o->stride + j);
        for (; WORDS && 2 * width == VL && whole && i + VL <= n; i += VL, out += 2 * width * cells)  // two panels
            store_halves(out, out + width * cells, cells_across(t, o->data, at + i, next + i));
        for (; whole && i + width <= n; i += width, out += width * cells) {
            if (t == FP32 && !PAIRED) memcpy(out, (const float *)o->data + at + i, (size_t)width * sizeof *out);
            else {
#pragma GCC unroll 4
                for (int j = 0; j < width; j += VL)
                    store_first(out + j,
                                width < VL && n - i < VL
                                    ? cells_across_n(t, o->data, at + i + j, next + i + j, n - i, true)
                                    : cells_across(t, o->data, at + i + j, next + i + j),
                                width < VL ? width : VL);
            }
        }
        for (; i < n; i += width, out += width * cells)  // the last panel, not full, or the last k
            for (int j = 0; j < width; j += VL) {
                vf x = n - i > j && k < kc ? cells_across_n(t, o->data, at + i + j, next + i + j, n - i - j, whole)
                                           : vf_zero();
                store_first(out + j, x, width < VL ? width : VL);
            }
    }
}

// Rows first .. first+n-1 of the operand, k0 .. k0+kc-1, as ceil(n / width) panels, one after the other.
BODY void pack_typed(dtype t, int width, float *dst, const operand *o, int64_t first, int64_t n, int64_t k0,
                     int64_t kc) {
    const int64_t cells = product_cells(kc);
    if (o->along_k)
        for (int64_t p = 0; p < n; p += width) pack_along_k(t, width, dst + p * cells, o, first + p, n - p, k0, kc);
    else
        for (int64_t p = 0, some = 64 / width * width; p < n; p += some)
            pack_across_k(t, width, dst + p * cells, o, first + p, n - p < some ? n - p : some, k0, kc);
}

// ... for the two widths. Not inlined: each is needed whole and cut, and compiles for seconds.
typedef void packer(float *dst, const operand *o, int64_t first, int64_t n, int64_t k0, int64_t kc);
static __attribute__((noinline)) void pack_whole_s(float *dst, const operand *o, int64_t first, int64_t n, int64_t k0,
                                                   int64_t kc) {
    BY_TYPE(o->type, pack_typed, MR, dst, o, first, n, k0, kc);
}
static __attribute__((noinline)) void pack_whole_v(float *dst, const operand *o, int64_t first, int64_t n, int64_t k0,
                                                   int64_t kc) {
    BY_TYPE(o->type, pack_typed, NR, dst, o, first, n, k0, kc);
}

// A panel whose columns lie in several slices.
BODY void pack_crossing_typed(dtype t, int64_t width, float *dst, const operand *o, int64_t first, int64_t n,
                              int64_t k0, int64_t kc) {
    memset(dst, 0, (size_t)(width * product_cells(kc)) * sizeof *dst);
    for (int64_t i = 0, some; i < n; i += some) {
        int64_t left = o->slice - (first + i) % o->slice, at = operand_at(o, first + i, k0);
        some = left < n - i ? left : n - i;
        for (int64_t k = 0; k < kc; k += CELL_K)
            for (int64_t j = 0; j < some; j += VL) {
                int64_t in = at + k * o->stride + j;
                vf x = cells_across_n(t, o->data, in, in + o->stride, some - j, k + CELL_K <= kc);
                typed_store_n(dst, FP32, cell_place(k / CELL_K) * width + i + j, x, some - j);
            }
    }
}
static __attribute__((noinline)) void pack_crossing(int64_t width, float *dst, const operand *o, int64_t first,
                                                    int64_t n, int64_t k0, int64_t kc) {
    BY_TYPE(o->type, pack_crossing_typed, width, dst, o, first, n, k0, kc);
}

// The same of an operand that is cut: along k, where k0 .. k0+kc-1 are of one slice, or across it.
static void pack_cut(packer *whole, int64_t width, float *dst, const operand *o, int64_t first, int64_t n, int64_t k0,
                     int64_t kc) {
    if (o->along_k) {
        const operand x = operand_slice(o, k0 / o->slice);
        whole(dst, &x, first, n, k0 % o->slice, kc);
        return;
    }
    for (int64_t p = 0, some; p < n; p += some) {
        int64_t column = (first + p) % o->slice, room = o->slice - column, left = n - p;
        some = left <= room ? left : room / width * width;
        if (some) {
            const operand x = operand_slice(o, (first + p) / o->slice);
            whole(dst + p * product_cells(kc), &x, column, some, k0, kc);
        } else {
            some = width;
            pack_crossing(width, dst + p * product_cells(kc), o, first + p, left < width ? left : width, k0, kc);
        }
    }
}

static void pack_s(float *dst, const operand *o, int64_t first, int64_t n, int64_t k0, int64_t kc) {
    if (o->slice) pack_cut(pack_whole_s, MR, dst, o, first, n, k0, kc);
    else pack_whole_s(dst, o, first, n, k0, kc);
}

static void pack_v(float *dst, const operand *o, int64_t first, int64_t n, int64_t k0, int64_t kc) {
    if (o->slice) pack_cut(pack_whole_v, NR, dst, o, first, n, k0, kc);
    else pack_whole_v(dst, o, first, n, k0, kc);
}

#endif
