// gpu/cpu/kernel/products.h: one step of a product, in the two arithmetics of [precision] products.
//
// Files that multiply are compiled twice for each vector width: plain, for products = fp32, and with PAIRS, for
// products = bf16-pairs. What differs is here: what a cell of a packed operand holds, and what is done with it.
//
// fp32: a cell is one float. step k of a chain is p = fma(x[k], y[k], p).
//
// bf16-pairs: x and y are BF16 numbers. FP32 ones are rounded to BF16, to nearest even; denormals, of either type, are
// zeros of their sign. A chain of products takes them in pairs, the odd one first; what is missing of the last pair is
// +0:
//
//     p = +0 (or what the chain goes on from);  for pairs (k, k+1), ascending:  p = step(x[k], y[k], step(x[k+1],
//     y[k+1], p))
//
// step(a, b, c) is a*b + c, rounded once to nearest even as if the exponent had no lower end. What is then smaller than
// 2^-126 becomes a zero of its sign; a denormal c counts as a zero of its sign. Where a NaN comes out, it does so
// everywhere, but which one is not promised.
//
// That is what VDPBF16PS computes (Intel SDM; over 320 million adversarial lanes an emulation by two FMAs differed in
// none), and what FMA computes on x86 with FTZ and DAZ. So there are four ways to it, with the same bits:
//
//     native     AVX512_BF16: a cell is a pair of BF16 numbers, k in the lower half; one instruction a pair, twice the
//                rate of FMA
//     x86        a cell is a float, k+1 before k; FMA, with FTZ and DAZ set between product_begin and product_end
//     NEON       the same cells; FMA with FPCR.FZ, which flushes before it rounds. Where something was flushed
//                (FPSR.UFC) the tile is computed again
//     portable   the same cells; FMA. Where a result was as small as 2^-126, but not 0, the tile is computed again
//
// "Again" is product_exact, which is step as it is written here, and slow. Gradients that small are rare: most tiles
// never have one.
#ifndef GPU_CPU_KERNEL_PRODUCTS_H
#define GPU_CPU_KERNEL_PRODUCTS_H

#include "gpu/cpu/kernel/typed.h"

#include <stdbool.h>

// What says, while a chain runs, whether it can be believed.
typedef struct product_state {
    vf least;        // portable: the smallest result that is not 0
    uint64_t saved;  // the processor's mode before
} product_state;

// What denormals count as: zeros of their sign.
VEC vf product_flushed(vf x) {
    return vf_select(vf_lt(vf_abs(x), vf_set1(0x1p-126f)), vi_float_bits(vi_and(vf_bits(x), vi_set1(INT32_MIN))), x);
}

// step, in every lane and in the processor's usual mode. A result of exactly 2^-126 is computed again 2^24 times as
// large, to see from which side it was rounded. There a*b can't overflow unless it was exact.
VEC vf product_exact(vf a, vf b, vf c) {
    const vf up = vf_set1(0x1p24f), least = vf_set1(0x1p-126f);
    vi sign = vi_set1(INT32_MIN);
    c = product_flushed(c);
    vf r = vf_fma(a, b, c), more = vf_fma(vf_mul(a, up), b, vf_mul(c, up)),
       zero = vi_float_bits(vi_and(vf_bits(r), sign));
    vf edge = vf_select(vf_lt(vf_abs(more), vf_set1(0x1p-102f)), zero, r);
    return vf_select(vf_lt(vf_abs(r), least), zero, vf_select(vf_eq(vf_abs(r), least), edge, r));
}

// x as an operand of pairs: a BF16 number, and not a denormal one. `exact`: it is a BF16 number already.
VEC vf product_operand(vf x, bool exact) {
    vi high = exact ? vf_bits(x) : vi_and(vf_round_bf16(x), vi_set1((int32_t)0xffff0000u));
    return vf_select(vf_lt(vf_abs(x), vf_set1(0x1p-126f)), vi_float_bits(vi_and(vf_bits(x), vi_set1(INT32_MIN))),
                     vi_float_bits(high));
}

#if defined(PAIRS)
enum { PAIRED = true };
#else
enum { PAIRED = false };
#endif
#if defined(__AVX2__)
enum { VEC_FLUSHES = true };  // a denormal BF16 number in a cell is taken for the zero that it counts as
#else
enum { VEC_FLUSHES = false };
#endif
enum { AGAIN = PAIRED && !VEC_FLUSHES };  // whether chains may have to be computed again

// What a chain goes on from. NEON flushes it by itself, too, but a block has only one of it for each of its chains.
VEC vf product_from(vf c) { return AGAIN ? product_flushed(c) : c; }

#if defined(PAIRS) && defined(__AVX512BF16__)
enum { WORDS = true };  // a cell is two BF16 numbers
VEC vf product_step(product_state *p, vf x, vf y, vf c) {
    (void)p;
    return _mm512_dpbf16_ps(c, (__m512bh)_mm512_castps_si512(x), (__m512bh)_mm512_castps_si512(y));
}
#else
enum { WORDS = false };
VEC vf product_step(product_state *p, vf x, vf y, vf c) {
    vf r = vf_fma(x, y, c);
#if defined(PAIRS) && !defined(__AVX2__) && !defined(VEC_NEON)
    vf size = vf_abs(r);
    p->least = vf_min(vf_select(vf_eq(size, vf_zero()), p->least, size), p->least);
#endif
    (void)p;
    return r;
}
#endif

// Cells that kc steps of k take in a panel, for each row or column.
static inline int64_t product_cells(int64_t kc) { return !PAIRED ? kc : WORDS ? (kc + 1) / 2 : (kc + 1) / 2 * 2; }

// Before the first step of chains, and after the last. In between there is nothing but loads, prefetches and
// product_step. Results pass through product_hold before product_end, or the compiler might form them after it.
// product_end: true where the chains must be computed again.
#if defined(PAIRS) && defined(__AVX2__) && !defined(__AVX512BF16__)
enum { FTZ_DAZ = 0x8040 };
VEC product_state product_begin(void) {
    product_state p = {.saved = 0};
    uint32_t mode;
    __asm__ volatile("stmxcsr %0" : "=m"(mode));
    p.saved = mode;
    mode |= FTZ_DAZ;
    __asm__ volatile("ldmxcsr %0" : : "m"(mode) : "memory");
    return p;
}
VEC bool product_end(const product_state *p) {
    uint32_t mode = (uint32_t)p->saved;
    __asm__ volatile("ldmxcsr %0" : : "m"(mode) : "memory");
    return false;
}
#if defined(__AVX512F__)
VEC void product_hold(vf *x) { __asm__ volatile("" : "+v"(*x)); }
#else
VEC void product_hold(vf *x) { __asm__ volatile("" : "+x"(x->lo), "+x"(x->hi)); }
#endif

#elif defined(PAIRS) && defined(VEC_NEON)
enum { FZ = 1 << 24, UFC = 1 << 3 };
VEC product_state product_begin(void) {
    product_state p = {.saved = 0};
    uint64_t flags;
    __asm__ volatile("mrs %0, fpcr" : "=r"(p.saved));
    __asm__ volatile("mrs %0, fpsr" : "=r"(flags));
    __asm__ volatile("msr fpsr, %0\n\tmsr fpcr, %1" : : "r"(flags & ~(uint64_t)UFC), "r"(p.saved | FZ) : "memory");
    return p;
}
VEC bool product_end(const product_state *p) {
    uint64_t flags;
    __asm__ volatile("mrs %0, fpsr\n\tmsr fpcr, %1" : "=&r"(flags) : "r"(p->saved) : "memory");
    return flags & UFC;
}
VEC void product_hold(vf *x) { __asm__ volatile("" : "+w"(x->q0), "+w"(x->q1), "+w"(x->q2), "+w"(x->q3)); }

#else
VEC product_state product_begin(void) { return (product_state){.least = vf_set1(1)}; }
VEC void product_hold(vf *x) { (void)x; }
#if defined(PAIRS) && !defined(__AVX512BF16__)
VEC bool product_end(const product_state *p) {
    float lane[VL];
    bool small = false;
    vf_store(lane, p->least);
    for (int i = 0; i < VL; i++) small |= lane[i] <= 0x1p-126f;
    return small;
}
#else
VEC bool product_end(const product_state *p) { return (void)p, false; }
#endif
#endif

#endif
