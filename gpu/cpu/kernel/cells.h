// gpu/cpu/kernel/cells.h: operands of products as cells (products.h), sixteen at a time.
//
// Memory holds elements of an operand, k running along a row or from row to row. A cell is four bytes: one k, or, where
// WORDS, two. So sixteen cells along k are 16 or 32 neighbours in memory, and sixteen cells across are 16 columns of
// one row of k or of two.
#ifndef GPU_CPU_KERNEL_CELLS_H
#define GPU_CPU_KERNEL_CELLS_H

#include "gpu/cpu/kernel/products.h"

enum { CELL_K = WORDS ? 2 : 1 };                 // k of a cell
enum { PAIR_CELLS = PAIRED && !WORDS ? 2 : 1 };  // cells that are taken together, in the order of cell_place

// Where cell `i` of a chain is stored: FMA takes the odd one of a pair first.
static inline int64_t cell_place(int64_t i) { return PAIRED && !WORDS ? i ^ 1 : i; }

// x of type t as a float cell. x86 takes denormals of BF16 for zeros by itself.
BODY vf cells_of(dtype t, vf x) {
    if (!PAIRED || (t == BF16 && VEC_FLUSHES)) return x;
    return product_operand(x, t == BF16);
}

#if defined(PAIRS) && defined(__AVX512BF16__)
VEC vf cells_of_words(__m512i x) { return _mm512_castsi512_ps(x); }

// 32 floats as BF16, to nearest even, denormals as zeros: just what the instruction does.
VEC __m512i words_of(vf low, vf high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

VEC vf cells_along(dtype t, const void *p, int64_t at) {
    if (t == BF16) return cells_of_words(_mm512_loadu_si512((const uint16_t *)p + at));
    return cells_of_words(words_of(vf_load((const float *)p + at), vf_load((const float *)p + at + VL)));
}
VEC vf cells_along_n(dtype t, const void *p, int64_t at, int64_t n) {
    if (t == BF16) {
        __mmask32 there = n >= 32 ? ~(__mmask32)0 : n > 0 ? ((__mmask32)1 << n) - 1 : 0;
        return cells_of_words(_mm512_maskz_loadu_epi16(there, (const uint16_t *)p + at));
    }
    return cells_of_words(words_of(typed_load_n(p, FP32, at, n), typed_load_n(p, FP32, at + VL, n - VL)));
}

// Sixteen columns of the rows that begin at elements `first` and `second`.
static const uint16_t in_pairs[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
VEC vf cells_across(dtype t, const void *p, int64_t first, int64_t second) {
    const uint16_t *h = p;
    __m512i x;
    if (t != BF16) x = words_of(vf_load((const float *)p + first), vf_load((const float *)p + second));
    else
        x = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)(h + first))),
                               _mm256_loadu_si256((const void *)(h + second)), 1);
    return cells_of_words(_mm512_permutexvar_epi16(_mm512_loadu_si512(in_pairs), x));
}
VEC vf cells_across_n(dtype t, const void *p, int64_t first, int64_t second, int64_t n, bool has_second) {
    if (t == BF16) {
        __mmask16 there = n >= VL ? 0xffff : n > 0 ? (__mmask16)((1u << n) - 1) : 0;
        const uint16_t *h = p;
        __m256i low = _mm256_maskz_loadu_epi16(there, h + first),
                high = has_second ? _mm256_maskz_loadu_epi16(there, h + second) : _mm256_setzero_si256();
        return cells_of_words(_mm512_permutexvar_epi16(_mm512_loadu_si512(in_pairs),
                                                       _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1)));
    }
    vf x = typed_load_n(p, t, first, n), y = has_second ? typed_load_n(p, t, second, n) : vf_zero();
    return cells_of_words(_mm512_permutexvar_epi16(_mm512_loadu_si512(in_pairs), words_of(x, y)));
}

// Floats x become the cells of a row's elements from `at` on, a multiple of VL.
VEC void cells_put_along(float *row, int64_t at, vf x) {
    _mm256_storeu_si256((void *)(row + at / 2), (__m256i)_mm512_cvtneps_pbh(x));
}
// ... or, with y of the row after it, those of sixteen columns.
VEC void cells_put_across(float *to, vf x, vf y) {
    vf_store(to, cells_of_words(_mm512_permutexvar_epi16(_mm512_loadu_si512(in_pairs), words_of(x, y))));
}

#else
BODY vf cells_along(dtype t, const void *p, int64_t at) { return cells_of(t, typed_load(p, t, at)); }
BODY vf cells_along_n(dtype t, const void *p, int64_t at, int64_t n) { return cells_of(t, typed_load_n(p, t, at, n)); }
BODY vf cells_across(dtype t, const void *p, int64_t first, int64_t second) {
    return (void)second, cells_along(t, p, first);
}
BODY vf cells_across_n(dtype t, const void *p, int64_t first, int64_t second, int64_t n, bool has_second) {
    return (void)second, (void)has_second, cells_along_n(t, p, first, n);
}
VEC void cells_put_along(float *row, int64_t at, vf x) { vf_store(row + at, cells_of(FP32, x)); }
VEC void cells_put_across(float *to, vf x, vf y) { (void)y, vf_store(to, cells_of(FP32, x)); }
#endif

#endif
