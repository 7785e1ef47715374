// gpu/cpu/kernel/vec_quads.h: the bodies of vec.h for registers that hold four floats: sixteen lanes are four quads.
//
// A quad is GCC's vector type, and most of what vec.h asks for is an operator of the language, which becomes one
// instruction of NEON or SSE2. So there is one text for `neon` (VEC_NEON, set by the Makefile) and `portable`. They
// differ in the few functions that the language does not have: NEON has an instruction for each, and the portable body
// makes them out of what it has. There they are calls: inlined, they would be most of the time that compiling takes.
#ifndef GPU_CPU_KERNEL_VEC_QUADS_H
#define GPU_CPU_KERNEL_VEC_QUADS_H

#include <stdint.h>
#include <string.h>
#if defined(VEC_NEON)
#include <arm_neon.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { VEC_REGISTERS = 8 };
typedef float f4 __attribute__((vector_size(16)));
typedef int32_t i4 __attribute__((vector_size(16)));
typedef uint32_t u4 __attribute__((vector_size(16)));
typedef struct {
    f4 q0, q1, q2, q3;
} vf;
typedef struct {
    u4 q0, q1, q2, q3;
} vi;  // unsigned, for its overflow is defined
typedef struct {
    i4 q0, q1, q2, q3;
} vm;  // 0 or -1

// Lanes i, j, k, l of the eight of x and y.
#if defined(__clang__) || __GNUC__ >= 12
#define QUAD_MIX(x, y, i, j, k, l) __builtin_shufflevector((x), (y), i, j, k, l)
#else
#define QUAD_MIX(x, y, i, j, k, l) __builtin_shuffle((x), (y), (i4){i, j, k, l})
#endif

VEC f4 quad_set(float x) { return (f4){x, x, x, x}; }
VEC u4 quad_seti(uint32_t x) { return (u4){x, x, x, x}; }
VEC u4 quad_choose(i4 m, u4 yes, u4 no) { return (yes & (u4)m) | (no & ~(u4)m); }

// --- one quad: what the language has no operator for ---------------------------------------------------------------

#if defined(VEC_NEON)
#define QUAD_FMA(a, b, c) vfmaq_f32(c, a, b)
#define QUAD_FNMA(a, b, c) vfmsq_f32(c, a, b)
#define QUAD_SELECT(m, yes, no) vbslq_f32((uint32x4_t)(m), yes, no)
#define QUAD_SQRT(a) vsqrtq_f32(a)
#define QUAD_MUL_HI(a, b) \
    vuzp2q_u32((uint32x4_t)vmull_u32(vget_low_u32(a), vget_low_u32(b)), (uint32x4_t)vmull_high_u32(a, b))
VEC u4 quad_round_int(f4 a) {  // the instruction saturates, and gives 0 for NaN
    return quad_choose((a < 0x1p31f) & (a >= -0x1p31f), (u4)vcvtnq_s32_f32(a), quad_seti(0x80000000u));
}
#define QUAD_ROUND_INT(a) quad_round_int(a)

#else
#define QUAD_SELECT(m, yes, no) ((f4)quad_choose(m, (u4)(yes), (u4)(no)))

#if defined(__FP_FAST_FMAF)
VEC f4 quad_fma(f4 a, f4 b, f4 c) {
    return (f4){__builtin_fmaf(a[0], b[0], c[0]), __builtin_fmaf(a[1], b[1], c[1]), __builtin_fmaf(a[2], b[2], c[2]),
                __builtin_fmaf(a[3], b[3], c[3])};
}
#else
// Fused multiply-add in double: the product of two floats is exact there, the sum is rounded to odd so that the
// second rounding, to float, is the only one that counts (Boldo & Melquiond, "Emulation of FMA and correctly rounded
// sums", 2008). e is the exact error of s (Knuth's two-sum), and NaN when s is not finite. The neighbour on
// e's side is +1 or -1 steps of the magnitude away.
typedef double d2 __attribute__((vector_size(16)));
typedef int64_t l2 __attribute__((vector_size(16)));
VEC d2 quad_fma_odd(d2 a, d2 b, d2 z) {
    d2 p = a * b, s = p + z, t = s - p, e = (p - (s - t)) + (z - t);
    l2 bits = (l2)s, inexact = (e > 0) | (e < 0), even = (bits & 1) - 1;  // masks
    l2 side = (e > 0) ^ (s < 0), toward = ~(side + side);
    return (d2)(bits + (inexact & even & toward));
}
#if defined(__SSE2__)
VEC d2 quad_low(f4 a) { return _mm_cvtps_pd(a); }
VEC d2 quad_high(f4 a) { return _mm_cvtps_pd(_mm_movehl_ps(a, a)); }
VEC f4 quad_narrow(d2 low, d2 high) { return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high)); }
#else
VEC d2 quad_low(f4 a) { return (d2){a[0], a[1]}; }
VEC d2 quad_high(f4 a) { return (d2){a[2], a[3]}; }
VEC f4 quad_narrow(d2 low, d2 high) { return (f4){(float)low[0], (float)low[1], (float)high[0], (float)high[1]}; }
#endif
VEC f4 quad_fma(f4 a, f4 b, f4 c) {
    return quad_narrow(quad_fma_odd(quad_low(a), quad_low(b), quad_low(c)),
                       quad_fma_odd(quad_high(a), quad_high(b), quad_high(c)));
}
#endif

VEC f4 quad_sqrt(f4 a) {
    return (f4){__builtin_sqrtf(a[0]), __builtin_sqrtf(a[1]), __builtin_sqrtf(a[2]), __builtin_sqrtf(a[3])};
}

// Lanes 0 and 2.
typedef uint64_t m2 __attribute__((vector_size(16)));
#if defined(__SSE2__)
VEC u4 quad_mul_even(u4 a, u4 b) { return (u4)_mm_mul_epu32((__m128i)a, (__m128i)b); }
#else
VEC u4 quad_mul_even(u4 a, u4 b) { return (u4)(((m2)a & 0xffffffffu) * ((m2)b & 0xffffffffu)); }
#endif
VEC u4 quad_mul_hi(u4 a, u4 b) {
    u4 even = quad_mul_even(a, b), odd = quad_mul_even((u4)((m2)a >> 32), (u4)((m2)b >> 32));
    return QUAD_MIX(even, odd, 1, 5, 3, 7);
}

// Nearest even by adding 2^23 to the magnitude, which leaves no bits for a fraction; from 2^23 on there is none.
// INT32_MIN outside of the range and for NaN, as on x86.
VEC u4 quad_round_int(f4 a) {
    u4 bits = (u4)a, sign = bits & 0x80000000u;
    f4 magnitude = (f4)(bits ^ sign), whole = (f4)((u4)((magnitude + 0x1p23f) - 0x1p23f) | sign);
    whole = QUAD_SELECT(magnitude < 0x1p23f, whole, a);
    i4 inside = (whole < 0x1p31f) & (whole >= -0x1p31f);
    return quad_choose(inside, (u4) __builtin_convertvector((f4)((u4)whole & (u4)inside), i4), quad_seti(0x80000000u));
}
#define QUAD_SQRT(a) quad_sqrt(a)
#define QUAD_MUL_HI(a, b) quad_mul_hi(a, b)
#define QUAD_ROUND_INT(a) quad_round_int(a)

// IEEE half, in the low bits, to float: exact. Rebias; subnormals by an exact multiplication.
VEC f4 quad_from_fp16(u4 h) {
    u4 sign = (h & 0x8000u) << 16, em = h & 0x7fffu, finite = (u4)((f4)(em << 13) * 0x1p112f);
    u4 special = (em & 0x3ffu) << 13 | 0x7f800000u | ((u4)(em > 0x7c00u) & 0x400000u);  // NaN made quiet, as F16C does
    return (f4)(quad_choose(em >= 0x7c00u, special, finite) | sign);
}

// Float to half, in the high bits: nearest even, overflow to infinity.
VEC u4 quad_to_fp16(f4 v) {
    u4 sign = (u4)v & 0x80000000u, b = (u4)v ^ sign;
    u4 h = ((b + 0xfffu + (b >> 13 & 1u)) >> 13) - ((127u - 15u) << 10);
    // adding 0.5 leaves the value in units of 2^-24, rounded once
    u4 small = (u4)((f4)b + 0.5f) - 0x3f000000u;
    h = quad_choose(b < 0x38800000u, small, h);                // below 2^-14
    h = quad_choose(b >= 0x477ff000u, quad_seti(0x7c00u), h);  // 65520 and above
    h = quad_choose(b > 0x7f800000u, 0x7e00u | (b >> 13 & 0x3ffu), h);
    return h << 16 | sign;
}
#endif

// --- four of them --------------------------------------------------------------------------------------------------

#define QUAD_ADD(x, y) ((x) + (y))
#define QUAD_SUB(x, y) ((x) - (y))
#define QUAD_MUL(x, y) ((x) * (y))
#define QUAD_DIV(x, y) ((x) / (y))
#define QUAD_AND(x, y) ((x) & (y))
#define QUAD_OR(x, y) ((x) | (y))
#define QUAD_XOR(x, y) ((x) ^ (y))
#define QUAD_LT(x, y) ((x) < (y))
#define QUAD_LE(x, y) ((x) <= (y))
#define QUAD_EQ(x, y) ((x) == (y))
#define QUAD_LT_SIGNED(x, y) ((i4)(x) < (i4)(y))
#define QUAD_MAX(x, y) QUAD_SELECT((x) > (y), x, y)  // not the instruction, which treats zeros and NaN differently
#define QUAD_MIN(x, y) QUAD_SELECT((x) < (y), x, y)

#define QUADS_1(type, f) ((type){f(a.q0), f(a.q1), f(a.q2), f(a.q3)})
#define QUADS_2(type, f) ((type){f(a.q0, b.q0), f(a.q1, b.q1), f(a.q2, b.q2), f(a.q3, b.q3)})
#define QUADS_3(type, f) ((type){f(a.q0, b.q0, c.q0), f(a.q1, b.q1, c.q1), f(a.q2, b.q2, c.q2), f(a.q3, b.q3, c.q3)})
#define VEC_F2(name, f) \
    VEC vf name(vf a, vf b) { return QUADS_2(vf, f); }
#define VEC_I2(name, f) \
    VEC vi name(vi a, vi b) { return QUADS_2(vi, f); }
#define VEC_CMP(name, f) \
    VEC vm name(vf a, vf b) { return QUADS_2(vm, f); }

VEC vf vf_set1(float x) { return (vf){quad_set(x), quad_set(x), quad_set(x), quad_set(x)}; }
VEC vf vf_load(const float *p) {
    vf r;
    memcpy(&r.q0, p, 16), memcpy(&r.q1, p + 4, 16), memcpy(&r.q2, p + 8, 16), memcpy(&r.q3, p + 12, 16);
    return r;
}
VEC void vf_store(float *p, vf v) {
    memcpy(p, &v.q0, 16), memcpy(p + 4, &v.q1, 16), memcpy(p + 8, &v.q2, 16), memcpy(p + 12, &v.q3, 16);
}
VEC vm vm_first(int n) {
    i4 lane = {0, 1, 2, 3};
    return (vm){lane < n, lane < n - 4, lane < n - 8, lane < n - 12};
}
VEC vf vf_load_n(const float *p, int n) {
    float all[VL] = {0};
    memcpy(all, p, (size_t)n * sizeof *all);
    return vf_load(all);
}
VEC void vf_store_n(float *p, vf v, int n) {
    float all[VL];
    vf_store(all, v);
    memcpy(p, all, (size_t)n * sizeof *all);
}
VEC_F2(vf_add, QUAD_ADD)
VEC_F2(vf_sub, QUAD_SUB)
VEC_F2(vf_mul, QUAD_MUL)
VEC_F2(vf_div, QUAD_DIV)
VEC_F2(vf_max, QUAD_MAX)
VEC_F2(vf_min, QUAD_MIN)
VEC_CMP(vf_lt, QUAD_LT)
VEC_CMP(vf_le, QUAD_LE)
VEC_CMP(vf_eq, QUAD_EQ)
VEC vf vf_select(vm a, vf b, vf c) { return QUADS_3(vf, QUAD_SELECT); }
VEC vf vf_sqrt(vf a) { return QUADS_1(vf, QUAD_SQRT); }
VEC vi vf_round_int(vf a) { return QUADS_1(vi, QUAD_ROUND_INT); }
VEC vi vf_bits(vf a) { return (vi){(u4)a.q0, (u4)a.q1, (u4)a.q2, (u4)a.q3}; }
VEC vf vi_float_bits(vi a) { return (vf){(f4)a.q0, (f4)a.q1, (f4)a.q2, (f4)a.q3}; }
#define QUAD_TO_FLOAT(x) __builtin_convertvector((i4)(x), f4)
VEC vf vi_to_float(vi a) { return QUADS_1(vf, QUAD_TO_FLOAT); }
VEC vi vi_set1(int32_t x) {
    u4 q = quad_seti((uint32_t)x);
    return (vi){q, q, q, q};
}
VEC vi vi_load(const int32_t *p) { return vf_bits(vf_load((const float *)p)); }
VEC void vi_store(int32_t *p, vi v) { vf_store((float *)p, vi_float_bits(v)); }
VEC_I2(vi_add, QUAD_ADD)
VEC_I2(vi_sub, QUAD_SUB)
VEC_I2(vi_and, QUAD_AND)
VEC_I2(vi_or, QUAD_OR)
VEC_I2(vi_xor, QUAD_XOR)
VEC_I2(vi_mul_lo, QUAD_MUL)
VEC_I2(vi_mul_hi, QUAD_MUL_HI)
VEC vi vi_shl(vi a, int n) { return (vi){a.q0 << n, a.q1 << n, a.q2 << n, a.q3 << n}; }
VEC vi vi_shr(vi a, int n) { return (vi){a.q0 >> n, a.q1 >> n, a.q2 >> n, a.q3 >> n}; }
VEC vi vi_sar(vi a, int n) {
    return (vi){(u4)((i4)a.q0 >> n), (u4)((i4)a.q1 >> n), (u4)((i4)a.q2 >> n), (u4)((i4)a.q3 >> n)};
}
VEC vm vi_lt(vi a, vi b) { return QUADS_2(vm, QUAD_LT_SIGNED); }
VEC vm vi_eq(vi a, vi b) { return QUADS_2(vm, QUAD_EQ); }
VEC vi vi_select(vm a, vi b, vi c) { return QUADS_3(vi, quad_choose); }

VEC void quad_transpose4(u4 *x0, u4 *x1, u4 *x2, u4 *x3) {
    u4 a = QUAD_MIX(*x0, *x1, 0, 4, 1, 5), b = QUAD_MIX(*x0, *x1, 2, 6, 3, 7);
    u4 c = QUAD_MIX(*x2, *x3, 0, 4, 1, 5), d = QUAD_MIX(*x2, *x3, 2, 6, 3, 7);
    *x0 = QUAD_MIX(a, c, 0, 1, 4, 5), *x1 = QUAD_MIX(a, c, 2, 3, 6, 7);
    *x2 = QUAD_MIX(b, d, 0, 1, 4, 5), *x3 = QUAD_MIX(b, d, 2, 3, 6, 7);
}
VEC void vi_transpose4(vi x[4]) {
    vi a = x[0], b = x[1], c = x[2], d = x[3];
    quad_transpose4(&a.q0, &b.q0, &c.q0, &d.q0), quad_transpose4(&a.q1, &b.q1, &c.q1, &d.q1);
    quad_transpose4(&a.q2, &b.q2, &c.q2, &d.q2), quad_transpose4(&a.q3, &b.q3, &c.q3, &d.q3);
    x[0] = a, x[1] = b, x[2] = c, x[3] = d;
}

// Eight 16-bit numbers in memory are four pairs, the first of a pair in the lower half.
VEC void quad_load_u16(const uint16_t *p, u4 *first, u4 *last) {
    u4 pairs;
    memcpy(&pairs, p, 16);
    u4 even = pairs & 0xffffu, odd = pairs >> 16;
    *first = QUAD_MIX(even, odd, 0, 4, 1, 5), *last = QUAD_MIX(even, odd, 2, 6, 3, 7);
}
VEC void quad_store_high_u16(uint16_t *p, u4 first, u4 last) {
    u4 even = QUAD_MIX(first, last, 0, 2, 4, 6), odd = QUAD_MIX(first, last, 1, 3, 5, 7);
    u4 pairs = even >> 16 | (odd & 0xffff0000u);
    memcpy(p, &pairs, 16);
}
VEC vf vf_load_u16(const uint16_t *p, vi *raw) {
    quad_load_u16(p, &raw->q0, &raw->q1), quad_load_u16(p + 8, &raw->q2, &raw->q3);
    return vi_float_bits(*raw);
}
VEC void vi_store_high_u16(uint16_t *p, vi v) {
    quad_store_high_u16(p, v.q0, v.q1), quad_store_high_u16(p + 8, v.q2, v.q3);
}

VEC float vf_sum(vf v) {
    f4 x = (v.q0 + v.q2) + (v.q1 + v.q3);
    return (x[0] + x[2]) + (x[1] + x[3]);
}

// --- four of them, in a call where the quad's way is long ----------------------------------------------------------

#if defined(VEC_NEON)
VEC vf vf_fma(vf a, vf b, vf c) { return QUADS_3(vf, QUAD_FMA); }
VEC vf vf_fnma(vf a, vf b, vf c) { return QUADS_3(vf, QUAD_FNMA); }
VEC f4 quad_load_fp16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
VEC void quad_store_fp16(uint16_t *p, f4 x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
VEC vf vf_load_fp16(const uint16_t *p) {
    return (vf){quad_load_fp16(p), quad_load_fp16(p + 4), quad_load_fp16(p + 8), quad_load_fp16(p + 12)};
}
VEC void vf_store_fp16(uint16_t *p, vf v) {
    quad_store_fp16(p, v.q0), quad_store_fp16(p + 4, v.q1), quad_store_fp16(p + 8, v.q2), quad_store_fp16(p + 12, v.q3);
}
#else
#if defined(__FP_FAST_FMAF)
VEC vf vf_fma(vf a, vf b, vf c) { return QUADS_3(vf, quad_fma); }
#else
VEC_LONG vf vf_fma(vf a, vf b, vf c) { return QUADS_3(vf, quad_fma); }
#endif
#define QUAD_NEG(x) ((f4)((u4)(x) ^ 0x80000000u))
VEC vf vf_fnma(vf a, vf b, vf c) { return vf_fma(QUADS_1(vf, QUAD_NEG), b, c); }
VEC_LONG vf vf_load_fp16(const uint16_t *p) {
    vi a;
    vf_load_u16(p, &a);
    return QUADS_1(vf, quad_from_fp16);
}
VEC_LONG void vf_store_fp16(uint16_t *p, vf a) { vi_store_high_u16(p, QUADS_1(vi, quad_to_fp16)); }
#endif
VEC vm vf_nan(vf a) { return (vm){a.q0 != a.q0, a.q1 != a.q1, a.q2 != a.q2, a.q3 != a.q3}; }

#endif
