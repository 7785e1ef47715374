// gpu/cpu/kernel/vec.h: sixteen floats, four bodies, the same bits.
//
// A kernel is written once over `vf` (16 x float) and `vi` (16 x int32). Each is one register on AVX-512, two on AVX2
// and four on NEON; the portable body uses four of the compiler's vectors of four (vec_quads.h). Every function here is
// one IEEE operation per lane or an exact move, so the bodies agree to the last bit; nothing else may depend on the
// width. Sums across lanes use one fixed tree.
#ifndef GPU_CPU_KERNEL_VEC_H
#define GPU_CPU_KERNEL_VEC_H

#include <stdint.h>
#include <string.h>

enum { VL = 16 };

// A function of many operations (VEC_LONG) is a call where each operation is a call or several instructions: inlined,
// kernels would compile for minutes. For the same reason every function is a call under AddressSanitizer, which doubles
// the instructions.
#define VEC_INLINE static inline __attribute__((always_inline))  // or a vector of several registers goes through memory
#define VEC_CALL static __attribute__((noinline, unused))
#if defined(__SANITIZE_ADDRESS__) && !defined(__AVX2__)
#define VEC VEC_CALL
#else
#define VEC VEC_INLINE
#endif
#if defined(__AVX2__) || defined(VEC_NEON)
#define VEC_LONG VEC
#else
#define VEC_LONG VEC_CALL
#endif

#if defined(__AVX512F__)
// ------------------------------------------------------------------------------------------------------------------
// AVX-512
#include <immintrin.h>

enum { VEC_REGISTERS = 32 };  // vectors that a kernel can hold at a time
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

VEC vf vf_set1(float x) { return _mm512_set1_ps(x); }
VEC vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
VEC void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
VEC vm vm_first(int n) { return (vm)((1u << n) - 1); }  // 0 <= n <= 16
VEC vf vf_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(vm_first(n), p); }
VEC void vf_store_n(float *p, vf v, int n) { _mm512_mask_storeu_ps(p, vm_first(n), v); }
VEC vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
VEC vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
VEC vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
VEC vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
VEC vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }
VEC vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }    // a*b + c
VEC vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a*b
VEC vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }               // a > b ? a : b
VEC vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }               // a < b ? a : b
VEC vm vf_lt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
VEC vm vf_le(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
VEC vm vf_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
VEC vf vf_select(vm m, vf yes, vf no) { return _mm512_mask_blend_ps(m, no, yes); }
VEC vi vf_bits(vf a) { return _mm512_castps_si512(a); }
VEC vf vi_float_bits(vi a) { return _mm512_castsi512_ps(a); }
VEC vi vf_round_int(vf a) { return _mm512_cvtps_epi32(a); }  // nearest even
VEC vf vi_to_float(vi a) { return _mm512_cvtepi32_ps(a); }
VEC vi vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
VEC vi vi_load(const int32_t *p) { return _mm512_loadu_si512(p); }
VEC void vi_store(int32_t *p, vi v) { _mm512_storeu_si512(p, v); }
VEC vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
VEC vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
VEC vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
VEC vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
VEC vi vi_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
#define vi_shl(a, n) _mm512_slli_epi32((a), (n))
#define vi_shr(a, n) _mm512_srli_epi32((a), (n))                    // logical
#define vi_sar(a, n) _mm512_srai_epi32((a), (n))                    // arithmetic
VEC vm vi_lt(vi a, vi b) { return _mm512_cmplt_epi32_mask(a, b); }  // signed
VEC vm vi_eq(vi a, vi b) { return _mm512_cmpeq_epi32_mask(a, b); }
VEC vi vi_select(vm m, vi yes, vi no) { return _mm512_mask_blend_epi32(m, no, yes); }
VEC vi vi_mul_lo(vi a, vi b) { return _mm512_mullo_epi32(a, b); }
VEC vi vi_mul_hi(vi a, vi b) {  // unsigned high half
    __m512i even = _mm512_srli_epi64(_mm512_mul_epu32(a, b), 32);
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));
    return _mm512_mask_blend_epi32(0xAAAA, even, odd);
}
// 4 x 4 transposition inside each group of four lanes: lane 4g+j of x[i] becomes lane 4g+i of x[j].
VEC void vi_transpose4(vi x[4]) {
    vi a = _mm512_unpacklo_epi32(x[0], x[1]), b = _mm512_unpackhi_epi32(x[0], x[1]);
    vi c = _mm512_unpacklo_epi32(x[2], x[3]), d = _mm512_unpackhi_epi32(x[2], x[3]);
    x[0] = _mm512_unpacklo_epi64(a, c), x[1] = _mm512_unpackhi_epi64(a, c);
    x[2] = _mm512_unpacklo_epi64(b, d), x[3] = _mm512_unpackhi_epi64(b, d);
}
VEC vf vf_load_u16(const uint16_t *p, vi *raw) {  // 16 x uint16, widened
    *raw = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(*raw);
}
VEC vi vf_round_bf16(vf v) {
    __m512i b = _mm512_castps_si512(v), below = _mm512_add_epi32(b, _mm512_set1_epi32(0x7fff));
    __m512i rounded = _mm512_mask_add_epi32(below, _mm512_test_epi32_mask(b, _mm512_set1_epi32(0x10000)), below,
                                            _mm512_set1_epi32(1));
    return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), b, _mm512_set1_epi32(0x400000));
}
VEC void vi_store_high_u16(uint16_t *p, vi v) {  // the upper half of each lane
    static const uint16_t high[VL] = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
    __m512i order = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)high));
    _mm256_storeu_si256((__m256i *)p, _mm512_castsi512_si256(_mm512_permutexvar_epi16(order, v)));
}
VEC vf vf_load_fp16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
VEC void vf_store_fp16(uint16_t *p, vf v) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
// (1 + p) 2^n, k = n as a float, |n| <= 152: rounded as it is added, and again where the product is denormal.
VEC vf vf_scale1p(vf p, vf k, vi n) { return (void)n, _mm512_scalef_ps(_mm512_add_ps(p, _mm512_set1_ps(1.0f)), k); }
VEC float vf_sum(vf v) {  // (i, i+8), (i, i+4), (i, i+2), (0, 1)
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

#elif defined(__AVX2__)
// ---------------------------------------------------------------------------------------------------------------------
// AVX2
#include <immintrin.h>

enum { VEC_REGISTERS = 8 };
typedef struct {
    __m256 lo, hi;
} vf;
typedef struct {
    __m256i lo, hi;
} vi;
typedef struct {
    __m256 lo, hi;
} vm;

VEC vf vf_set1(float x) { return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
VEC vf vf_load(const float *p) { return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
VEC void vf_store(float *p, vf v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
}
VEC vm vm_first(int n) {
    __m256i count = _mm256_set1_epi32(n), i = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return (vm){_mm256_castsi256_ps(_mm256_cmpgt_epi32(count, i)),
                _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, _mm256_add_epi32(i, _mm256_set1_epi32(8))))};
}
VEC vf vf_load_n(const float *p, int n) {
    vm m = vm_first(n);
    return (vf){_mm256_maskload_ps(p, _mm256_castps_si256(m.lo)), _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.hi))};
}
VEC void vf_store_n(float *p, vf v, int n) {
    vm m = vm_first(n);
    _mm256_maskstore_ps(p, _mm256_castps_si256(m.lo), v.lo);
    _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.hi), v.hi);
}
#define VEC_F2(name, f) \
    VEC vf name(vf a, vf b) { return (vf){f(a.lo, b.lo), f(a.hi, b.hi)}; }
VEC_F2(vf_add, _mm256_add_ps)
VEC_F2(vf_sub, _mm256_sub_ps)
VEC_F2(vf_mul, _mm256_mul_ps)
VEC_F2(vf_div, _mm256_div_ps)
VEC_F2(vf_max, _mm256_max_ps)
VEC_F2(vf_min, _mm256_min_ps)
VEC vf vf_sqrt(vf a) { return (vf){_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
VEC vf vf_fma(vf a, vf b, vf c) { return (vf){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
VEC vf vf_fnma(vf a, vf b, vf c) {
    return (vf){_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
#define VEC_CMP(name, op) \
    VEC vm name(vf a, vf b) { return (vm){_mm256_cmp_ps(a.lo, b.lo, op), _mm256_cmp_ps(a.hi, b.hi, op)}; }
VEC_CMP(vf_lt, _CMP_LT_OQ)
VEC_CMP(vf_le, _CMP_LE_OQ)
VEC_CMP(vf_eq, _CMP_EQ_OQ)
VEC vm vf_nan(vf a) { return (vm){_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q)}; }
VEC vf vf_select(vm m, vf yes, vf no) {
    return (vf){_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}
VEC vi vf_bits(vf a) { return (vi){_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
VEC vf vi_float_bits(vi a) { return (vf){_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
VEC vi vf_round_int(vf a) { return (vi){_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
VEC vf vi_to_float(vi a) { return (vf){_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
VEC vi vi_set1(int32_t x) { return (vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
VEC vi vi_load(const int32_t *p) {
    return (vi){_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 8))};
}
VEC void vi_store(int32_t *p, vi v) {
    _mm256_storeu_si256((__m256i *)p, v.lo);
    _mm256_storeu_si256((__m256i *)(p + 8), v.hi);
}
#define VEC_I2(name, f) \
    VEC vi name(vi a, vi b) { return (vi){f(a.lo, b.lo), f(a.hi, b.hi)}; }
VEC_I2(vi_add, _mm256_add_epi32)
VEC_I2(vi_sub, _mm256_sub_epi32)
VEC_I2(vi_and, _mm256_and_si256)
VEC_I2(vi_or, _mm256_or_si256)
VEC_I2(vi_xor, _mm256_xor_si256)
VEC_I2(vi_mul_lo, _mm256_mullo_epi32)
VEC __m256i vec_mul_hi8(__m256i a, __m256i b) {
    __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(a, b), 32);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
    return _mm256_blend_epi32(even, odd, 0xAA);
}
VEC_I2(vi_mul_hi, vec_mul_hi8)
#define vi_shl(a, n) ((vi){_mm256_slli_epi32((a).lo, (n)), _mm256_slli_epi32((a).hi, (n))})
#define vi_shr(a, n) ((vi){_mm256_srli_epi32((a).lo, (n)), _mm256_srli_epi32((a).hi, (n))})
#define vi_sar(a, n) ((vi){_mm256_srai_epi32((a).lo, (n)), _mm256_srai_epi32((a).hi, (n))})
VEC vm vi_lt(vi a, vi b) {
    return (vm){_mm256_castsi256_ps(_mm256_cmpgt_epi32(b.lo, a.lo)),
                _mm256_castsi256_ps(_mm256_cmpgt_epi32(b.hi, a.hi))};
}
VEC vm vi_eq(vi a, vi b) {
    return (vm){_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.lo, b.lo)),
                _mm256_castsi256_ps(_mm256_cmpeq_epi32(a.hi, b.hi))};
}
VEC vi vi_select(vm m, vi yes, vi no) { return vf_bits(vf_select(m, vi_float_bits(yes), vi_float_bits(no))); }
VEC_I2(vec_unpacklo32, _mm256_unpacklo_epi32)
VEC_I2(vec_unpackhi32, _mm256_unpackhi_epi32)
VEC_I2(vec_unpacklo64, _mm256_unpacklo_epi64)
VEC_I2(vec_unpackhi64, _mm256_unpackhi_epi64)
VEC void vi_transpose4(vi x[4]) {
    vi a = vec_unpacklo32(x[0], x[1]), b = vec_unpackhi32(x[0], x[1]), c = vec_unpacklo32(x[2], x[3]),
       d = vec_unpackhi32(x[2], x[3]);
    x[0] = vec_unpacklo64(a, c), x[1] = vec_unpackhi64(a, c);
    x[2] = vec_unpacklo64(b, d), x[3] = vec_unpackhi64(b, d);
}
VEC vf vf_load_u16(const uint16_t *p, vi *raw) {
    *raw = (vi){_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)),
                _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 8)))};
    return vi_float_bits(*raw);
}
VEC void vi_store_high_u16(uint16_t *p, vi v) {
    __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(v.lo, 16), _mm256_srli_epi32(v.hi, 16));
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(packed, 0xD8));
}
VEC vf vf_load_fp16(const uint16_t *p) {
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
VEC void vf_store_fp16(uint16_t *p, vf v) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(v.hi, _MM_FROUND_TO_NEAREST_INT));
}
VEC float vf_sum(vf v) {
    __m256 a = _mm256_add_ps(v.lo, v.hi);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

#else
// ------------------------------------------------------------------------------------------------- neon and portable
#include "gpu/cpu/kernel/vec_quads.h"
#endif
#undef VEC_F2
#undef VEC_I2
#undef VEC_CMP

// --- made of the above: the same text for every width ----------------------------------------------------------------

VEC vf vf_zero(void) { return vf_set1(0.0f); }
VEC vf vf_abs(vf a) { return vi_float_bits(vi_and(vf_bits(a), vi_set1(0x7fffffff))); }
VEC vf vf_neg(vf a) { return vi_float_bits(vi_xor(vf_bits(a), vi_set1(INT32_MIN))); }

#if !defined(__AVX512F__)
// (1 + p) 2^n in two steps: the first is exact, the second rounds once, also into the denormals.
VEC vf vf_scale1p(vf p, vf k, vi n) {
    (void)k;
    vi half = vi_sar(n, 1), bias = vi_set1(127);
    vf s = vi_float_bits(vi_shl(vi_add(half, bias), 23));
    return vf_mul(vf_fma(p, s, s), vi_float_bits(vi_shl(vi_add(vi_sub(n, half), bias), 23)));
}

VEC vi vf_round_bf16(vf v) {
    vi b = vf_bits(v), odd = vi_and(vi_shr(b, 16), vi_set1(1)), rounded = vi_add(b, vi_add(odd, vi_set1(0x7fff)));
    return vi_select(vf_nan(v), vi_or(b, vi_set1(0x400000)), rounded);
}
#endif

// bfloat16: the upper half of a float. Load is exact; vf_round_bf16 rounds to nearest even, a NaN stays one, and leaves
// anything in the lower half.
VEC vf vf_load_bf16(const uint16_t *p) {
    vi raw;
    vf_load_u16(p, &raw);
    return vi_float_bits(vi_shl(raw, 16));
}
VEC void vf_store_bf16(uint16_t *p, vf v) {
#if defined(__AVX512BF16__)
    if (__builtin_expect(_mm512_fpclass_ps_mask(v, 0x20) == 0,
                         1)) {  // none is denormal: the instruction would make it 0
        _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(v));
        return;
    }
#endif
    vi_store_high_u16(p, vf_round_bf16(v));
}

#endif
