// gpu/cpu/kernel/vec.h: sixteen floats, three bodies, the same bits.
//
// A kernel is written once over `vf` (16 x float) and `vi` (16 x int32). AVX-512 has one register of it, AVX2 two, the portable body an
// array that the compiler spreads over what the machine has (NEON, SSE2). Every function here is one IEEE operation per lane or
// an exact move, so the bodies agree to the last bit; nothing else may depend on the width. Sums across lanes use one fixed tree.
#ifndef GPU_CPU_KERNEL_VEC_H
#define GPU_CPU_KERNEL_VEC_H

#include <stdint.h>
#include <string.h>

enum { VL = 16 };

#if defined(__SANITIZE_ADDRESS__) && !defined(__AVX2__)
#define VEC static __attribute__((noinline, unused))  // a thousand instrumented lanes to a kernel would compile for minutes
#else
#define VEC static inline __attribute__((always_inline))  // or a vector of several registers goes through memory
#endif

#if defined(__AVX512F__)
// ------------------------------------------------------------------------------------------------------------------ AVX-512
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
VEC vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }  // a > b ? a : b
VEC vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }  // a < b ? a : b
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
#define vi_shr(a, n) _mm512_srli_epi32((a), (n))  // logical
#define vi_sar(a, n) _mm512_srai_epi32((a), (n))  // arithmetic
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
    __m512i rounded = _mm512_mask_add_epi32(below, _mm512_test_epi32_mask(b, _mm512_set1_epi32(0x10000)), below, _mm512_set1_epi32(1));
    return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), b, _mm512_set1_epi32(0x400000));
}
VEC void vi_store_high_u16(uint16_t *p, vi v) {  // the upper half of each lane
    static const uint16_t high[VL] = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
    __m512i order = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)high));
    _mm256_storeu_si256((__m256i *)p, _mm512_castsi512_si256(_mm512_permutexvar_epi16(order, v)));
}
VEC vf vf_load_fp16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
VEC void vf_store_fp16(uint16_t *p, vf v) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }
// (1 + p) 2^n, k = n as a float, |n| <= 152: rounded as it is added, and again where the product is denormal.
VEC vf vf_scale1p(vf p, vf k, vi n) { return (void)n, _mm512_scalef_ps(_mm512_add_ps(p, _mm512_set1_ps(1.0f)), k); }
VEC float vf_sum(vf v) {  // (i, i+8), (i, i+4), (i, i+2), (0, 1)
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

#elif defined(__AVX2__)
// --------------------------------------------------------------------------------------------------------------------- AVX2
#include <immintrin.h>

enum { VEC_REGISTERS = 8 };
typedef struct { __m256 lo, hi; } vf;
typedef struct { __m256i lo, hi; } vi;
typedef struct { __m256 lo, hi; } vm;

VEC vf vf_set1(float x) { return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
VEC vf vf_load(const float *p) { return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
VEC void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v.lo); _mm256_storeu_ps(p + 8, v.hi); }
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
#define VEC_F2(name, f) VEC vf name(vf a, vf b) { return (vf){f(a.lo, b.lo), f(a.hi, b.hi)}; }
VEC_F2(vf_add, _mm256_add_ps)
VEC_F2(vf_sub, _mm256_sub_ps)
VEC_F2(vf_mul, _mm256_mul_ps)
VEC_F2(vf_div, _mm256_div_ps)
VEC_F2(vf_max, _mm256_max_ps)
VEC_F2(vf_min, _mm256_min_ps)
VEC vf vf_sqrt(vf a) { return (vf){_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
VEC vf vf_fma(vf a, vf b, vf c) { return (vf){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
VEC vf vf_fnma(vf a, vf b, vf c) { return (vf){_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)}; }
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
#define VEC_I2(name, f) VEC vi name(vi a, vi b) { return (vi){f(a.lo, b.lo), f(a.hi, b.hi)}; }
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
    return (vm){_mm256_castsi256_ps(_mm256_cmpgt_epi32(b.lo, a.lo)), _mm256_castsi256_ps(_mm256_cmpgt_epi32(b.hi, a.hi))};
}
VEC vm vi_eq(vi a, vi b) {
    return (vm){_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.lo, b.lo)), _mm256_castsi256_ps(_mm256_cmpeq_epi32(a.hi, b.hi))};
}
VEC vi vi_select(vm m, vi yes, vi no) { return vf_bits(vf_select(m, vi_float_bits(yes), vi_float_bits(no))); }
VEC_I2(vec_unpacklo32, _mm256_unpacklo_epi32)
VEC_I2(vec_unpackhi32, _mm256_unpackhi_epi32)
VEC_I2(vec_unpacklo64, _mm256_unpacklo_epi64)
VEC_I2(vec_unpackhi64, _mm256_unpackhi_epi64)
VEC void vi_transpose4(vi x[4]) {
    vi a = vec_unpacklo32(x[0], x[1]), b = vec_unpackhi32(x[0], x[1]), c = vec_unpacklo32(x[2], x[3]), d = vec_unpackhi32(x[2], x[3]);
    x[0] = vec_unpacklo64(a, c), x[1] = vec_unpackhi64(a, c);
    x[2] = vec_unpacklo64(b, d), x[3] = vec_unpackhi64(b, d);
}
VEC vf vf_load_u16(const uint16_t *p, vi *raw) {
    *raw = (vi){_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 8)))};
    return vi_float_bits(*raw);
}
VEC void vi_store_high_u16(uint16_t *p, vi v) {
    __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(v.lo, 16), _mm256_srli_epi32(v.hi, 16));
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(packed, 0xD8));
}
VEC vf vf_load_fp16(const uint16_t *p) {
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
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
// ----------------------------------------------------------------------------------------------------------------- portable
enum { VEC_REGISTERS = 8 };
typedef struct { float f[VL]; } vf;
typedef struct { int32_t i[VL]; } vi;
typedef struct { int32_t i[VL]; } vm;  // 0 or -1

#define VEC_EACH for (int l = 0; l < VL; l++)
#define VEC_F2(name, expr) VEC vf name(vf a, vf b) { vf r; VEC_EACH r.f[l] = expr; return r; }
#define VEC_CMP(name, op) VEC vm name(vf a, vf b) { vm r; VEC_EACH r.i[l] = -(a.f[l] op b.f[l]); return r; }
#define VEC_I2(name, expr) VEC vi name(vi a, vi b) { vi r; VEC_EACH r.i[l] = (int32_t)(expr); return r; }

#if defined(__FP_FAST_FMAF)
VEC float vec_fma1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
// Fused multiply-add in double: the product of two floats is exact there, the sum is rounded to odd so that the second
// rounding, to float, is the only one that counts (Boldo & Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
VEC float vec_fma1(float a, float b, float c) {
    double p = (double)a * b, z = c, s = p + z;
    double t = s - p, e = (p - (s - t)) + (z - t);  // exact error of s (Knuth's two-sum); NaN when s is not finite
    int64_t bits;
    memcpy(&bits, &s, sizeof bits);
    int64_t inexact = (e > 0) | (e < 0), even = ~bits & 1;
    int64_t toward = ((e > 0) ^ (s < 0)) ? 1 : -1;  // the neighbour on the side of the error, as steps of the magnitude
    bits += (inexact & even) ? toward : 0;
    memcpy(&s, &bits, sizeof bits);
    return (float)s;
}
#endif

VEC vf vf_set1(float x) { vf r; VEC_EACH r.f[l] = x; return r; }
VEC vf vf_load(const float *p) { vf r; memcpy(&r, p, sizeof r); return r; }
VEC void vf_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
VEC vm vm_first(int n) { vm r; VEC_EACH r.i[l] = -(l < n); return r; }
VEC vf vf_load_n(const float *p, int n) { vf r = vf_set1(0); memcpy(&r, p, (size_t)n * 4); return r; }
VEC void vf_store_n(float *p, vf v, int n) { memcpy(p, &v, (size_t)n * 4); }
VEC_F2(vf_add, a.f[l] + b.f[l])
VEC_F2(vf_sub, a.f[l] - b.f[l])
VEC_F2(vf_mul, a.f[l] * b.f[l])
VEC_F2(vf_div, a.f[l] / b.f[l])
VEC_F2(vf_max, a.f[l] > b.f[l] ? a.f[l] : b.f[l])
VEC_F2(vf_min, a.f[l] < b.f[l] ? a.f[l] : b.f[l])
VEC vf vf_sqrt(vf a) { vf r; VEC_EACH r.f[l] = __builtin_sqrtf(a.f[l]); return r; }
#if defined(__FP_FAST_FMAF)
VEC vf vf_fma(vf a, vf b, vf c) { vf r; VEC_EACH r.f[l] = vec_fma1(a.f[l], b.f[l], c.f[l]); return r; }
#else
// Sixteen emulations are too much code to stand in every place that multiplies.
static __attribute__((noinline, unused)) void vec_fma16(vf *r, const vf *a, const vf *b, const vf *c) {
    VEC_EACH r->f[l] = vec_fma1(a->f[l], b->f[l], c->f[l]);
}
VEC vf vf_fma(vf a, vf b, vf c) { vf r; vec_fma16(&r, &a, &b, &c); return r; }
#endif
VEC vf vf_fnma(vf a, vf b, vf c) { VEC_EACH a.f[l] = -a.f[l]; return vf_fma(a, b, c); }
VEC_CMP(vf_lt, <)
VEC_CMP(vf_le, <=)
VEC_CMP(vf_eq, ==)
VEC vm vf_nan(vf a) { vm r; VEC_EACH r.i[l] = -(a.f[l] != a.f[l]); return r; }
VEC vf vf_select(vm m, vf yes, vf no) { vf r; VEC_EACH r.f[l] = m.i[l] ? yes.f[l] : no.f[l]; return r; }
VEC vi vf_bits(vf a) { vi r; memcpy(&r, &a, sizeof r); return r; }
VEC vf vi_float_bits(vi a) { vf r; memcpy(&r, &a, sizeof r); return r; }
// Nearest even by adding 1.5 * 2^52 in double, exact for every float in the range; INT32_MIN outside of it and for NaN, as on x86.
VEC vi vf_round_int(vf a) {
    vi r;
    VEC_EACH {
        double t = (double)a.f[l] + 0x1.8p52;
        int64_t b;
        memcpy(&b, &t, 8);
        r.i[l] = a.f[l] < 0x1p31f && a.f[l] >= -0x1p31f ? (int32_t)b : INT32_MIN;
    }
    return r;
}
VEC vf vi_to_float(vi a) { vf r; VEC_EACH r.f[l] = (float)a.i[l]; return r; }
VEC vi vi_set1(int32_t x) { vi r; VEC_EACH r.i[l] = x; return r; }
VEC vi vi_load(const int32_t *p) { vi r; memcpy(&r, p, sizeof r); return r; }
VEC void vi_store(int32_t *p, vi v) { memcpy(p, &v, sizeof v); }
VEC_I2(vi_add, (uint32_t)a.i[l] + (uint32_t)b.i[l])
VEC_I2(vi_sub, (uint32_t)a.i[l] - (uint32_t)b.i[l])
VEC_I2(vi_and, a.i[l] & b.i[l])
VEC_I2(vi_or, a.i[l] | b.i[l])
VEC_I2(vi_xor, a.i[l] ^ b.i[l])
VEC_I2(vi_mul_lo, (uint32_t)a.i[l] * (uint32_t)b.i[l])
VEC_I2(vi_mul_hi, ((uint64_t)(uint32_t)a.i[l] * (uint32_t)b.i[l]) >> 32)
VEC vi vi_shl(vi a, int n) { VEC_EACH a.i[l] = (int32_t)((uint32_t)a.i[l] << n); return a; }
VEC vi vi_shr(vi a, int n) { VEC_EACH a.i[l] = (int32_t)((uint32_t)a.i[l] >> n); return a; }
VEC vi vi_sar(vi a, int n) { VEC_EACH a.i[l] = a.i[l] >> n; return a; }
VEC vm vi_lt(vi a, vi b) { vm r; VEC_EACH r.i[l] = -(a.i[l] < b.i[l]); return r; }
VEC vm vi_eq(vi a, vi b) { vm r; VEC_EACH r.i[l] = -(a.i[l] == b.i[l]); return r; }
VEC vi vi_select(vm m, vi yes, vi no) { vi r; VEC_EACH r.i[l] = m.i[l] ? yes.i[l] : no.i[l]; return r; }
VEC void vi_transpose4(vi x[4]) {
    vi y[4];
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < VL; l++) y[l % 4].i[l - l % 4 + i] = x[i].i[l];
    memcpy(x, y, sizeof y);
}
VEC vf vf_load_u16(const uint16_t *p, vi *raw) { VEC_EACH raw->i[l] = p[l]; return vi_float_bits(*raw); }
VEC void vi_store_high_u16(uint16_t *p, vi v) { VEC_EACH p[l] = (uint16_t)((uint32_t)v.i[l] >> 16); }
// IEEE half to float: exact. Rebias; subnormals by an exact multiplication.
VEC vf vf_load_fp16(const uint16_t *p) {
    vf r;
    VEC_EACH {
        uint32_t h = p[l], sign = (h & 0x8000u) << 16, em = h & 0x7fffu, bits;
        if (em >= 0x7c00u) bits = 0x7f800000u | (em & 0x3ffu) << 13 | (em > 0x7c00u ? 0x400000u : 0);  // NaN made quiet, as F16C does
        else {
            float f;
            uint32_t shifted = em << 13;
            memcpy(&f, &shifted, 4);
            f *= 0x1p112f;
            memcpy(&bits, &f, 4);
        }
        bits |= sign;
        memcpy(&r.f[l], &bits, 4);
    }
    return r;
}
// Float to half, nearest even, overflow to infinity.
VEC void vf_store_fp16(uint16_t *p, vf v) {
    VEC_EACH {
        uint32_t b, sign;
        memcpy(&b, &v.f[l], 4);
        sign = b >> 16 & 0x8000u;
        b &= 0x7fffffffu;
        uint32_t h;
        if (b > 0x7f800000u) h = 0x7e00u | (b >> 13 & 0x3ffu);
        else if (b >= 0x477ff000u) h = 0x7c00u;  // 65520 and above
        else if (b < 0x38800000u) {              // below 2^-14: adding 0.5 leaves the value in units of 2^-24, rounded once
            float f, half = 0.5f;
            memcpy(&f, &b, 4);
            f += half;
            memcpy(&b, &f, 4);
            h = b - 0x3f000000u;
        } else h = (b + 0xfffu + (b >> 13 & 1)) >> 13, h -= (127u - 15u) << 10;
        p[l] = (uint16_t)(h | sign);
    }
}
VEC float vf_sum(vf v) {
    for (int w = VL / 2; w; w /= 2)
        for (int l = 0; l < w; l++) v.f[l] += v.f[l + w];
    return v.f[0];
}
#undef VEC_EACH
#endif
#undef VEC_F2
#undef VEC_I2
#undef VEC_CMP

// --- made of the above: the same text for every width ------------------------------------------------------------------------

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

// bfloat16: the upper half of a float. Load is exact; vf_round_bf16 rounds to nearest even, a NaN stays one, and leaves anything in
// the lower half.
VEC vf vf_load_bf16(const uint16_t *p) {
    vi raw;
    vf_load_u16(p, &raw);
    return vi_float_bits(vi_shl(raw, 16));
}
VEC void vf_store_bf16(uint16_t *p, vf v) { vi_store_high_u16(p, vf_round_bf16(v)); }

#endif
