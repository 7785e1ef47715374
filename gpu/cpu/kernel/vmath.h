// gpu/cpu/kernel/vmath.h: exp, log, tanh, GELU and Philox over sixteen lanes, made of vec.h alone and therefore the
// same bits on every width and every machine.
//
// Polynomials are Chebyshev fits of the remainder of the series (the leading terms are kept exact), computed at 60
// digits and rounded to float. Largest errors in units of the last place, against long double at every 29th float of
// the range (test/test_vec.c looks at every 1009th and holds a little more than this as bounds):
//     vf_exp   1.08    vf_log   0.82    vf_tanh   2.40
//     vf_gelu  1.8 for x > 0; for x < 0 4.7, of which results below 1/16 are counted in the unit of 1/16 (the error is
//              absolute there: the exponent 2u itself is a rounded float)
//     vf_gelu_grad  2.8 for x > 0, in the unit of 1 for x < 0 1.7; vf_gelu_erf  1.6, and 5.5 as vf_gelu
#ifndef GPU_CPU_KERNEL_VMATH_H
#define GPU_CPU_KERNEL_VMATH_H

#include "gpu/cpu/kernel/vec.h"
#include "gpu/ops.h"

// e^x = 2^n (1 + p), n = round(x / ln 2), p = e^r - 1 of the rest |r| <= ln 2 / 2. ln 2 is taken off in two parts; the
// first product is exact under FMA for every x that matters (Cody & Waite 1980). Gives n as a float and as an integer,
// for |n| < 2^22.
VEC vf vmath_exp_split(vf x, vf *k, vi *n) {
    const vf magic = vf_set1(0x1.8p23f);  // adding it rounds to an integer, which is then in the low bits
    vf z = vf_fma(x, vf_set1(0x1.715476p0f), magic);
    *k = vf_sub(z, magic);
    *n = vi_sub(vf_bits(z), vf_bits(magic));
    vf r = vf_fnma(*k, vf_set1(-0x1.05c61p-29f), vf_fnma(*k, vf_set1(0x1.62e43p-1f), x));
    vf q = vf_fma(vf_set1(0x1.6d115p-10f), r, vf_set1(0x1.120bb6p-7f));
    q = vf_fma(q, r, vf_set1(0x1.55551ap-5f));
    q = vf_fma(q, r, vf_set1(0x1.5554dcp-3f));
    q = vf_fma(q, r, vf_set1(0.5f));
    return vf_fma(vf_mul(r, r), q, r);
}

VEC vf vmath_pow2(vi n) { return vi_float_bits(vi_shl(vi_add(n, vi_set1(127)), 23)); }  // -127 < n < 128

// e^x. Overflows to infinity above 88.72, goes through the denormals to 0 below -103.97; NaN stays NaN. The first form
// is for x <= 0.
VEC_LONG vf vf_exp_down(vf x) {
    vf k, p;
    vi n;
    p = vmath_exp_split(vf_max(vf_set1(-104.0f), x), &k, &n);  // in this order of arguments a NaN goes through
    return vf_scale1p(p, k, n);
}
VEC_LONG vf vf_exp(vf x) { return vf_exp_down(vf_min(vf_set1(89.0f), x)); }

// ln x = e ln 2 + ln(1+f), sqrt(1/2) <= 1+f < sqrt(2). ln 0 = -inf, of negative numbers NaN.
VEC_LONG vf vf_log(vf x) {
    vm tiny = vf_lt(x, vf_set1(0x1p-126f));
    vf scaled = vf_select(tiny, vf_mul(x, vf_set1(0x1p23f)), x);
    vi b = vf_bits(scaled), e = vi_sar(vi_sub(b, vi_set1(0x3f3504f3)), 23);
    vf f = vf_sub(vi_float_bits(vi_sub(b, vi_shl(e, 23))), vf_set1(1.0f));
    vf k = vi_to_float(vi_sub(e, vi_select(tiny, vi_set1(23), vi_set1(0)))), ff = vf_mul(f, f);
    vf q = vf_fma(vf_set1(0x1.1d8ea6p-4f), f, vf_set1(-0x1.d635bcp-4f));
    q = vf_fma(q, f, vf_set1(0x1.dea282p-4f));
    q = vf_fma(q, f, vf_set1(-0x1.fcf4c6p-4f));
    q = vf_fma(q, f, vf_set1(0x1.23d21ap-3f));
    q = vf_fma(q, f, vf_set1(-0x1.555b4ap-3f));
    q = vf_fma(q, f, vf_set1(0x1.999d5ap-3f));
    q = vf_fma(q, f, vf_set1(-0x1.fffffcp-3f));
    q = vf_fma(q, f, vf_set1(0x1.555554p-2f));
    vf low = vf_fma(vf_mul(f, ff), q, vf_mul(k, vf_set1(-0x1.05c61p-29f)));
    low = vf_fma(ff, vf_set1(-0.5f), low);
    vf y = vf_fma(k, vf_set1(0x1.62e43p-1f), vf_add(f, low));
    y = vf_select(vf_eq(x, vf_zero()), vf_set1(-__builtin_inff()), y);
    y = vf_select(vf_lt(x, vf_zero()), vf_set1(__builtin_nanf("")), y);
    return vf_select(vf_lt(x, vf_set1(__builtin_inff())), y, vf_select(vf_lt(vf_zero(), x), x, vf_add(x, y)));
}

// tanh x = E / (E + 2) with E = e^(2|x|) - 1, which loses nothing near 0; +-1 from |x| = 9.02 on.
VEC_LONG vf vf_tanh(vf x) {
    vf a = vf_min(vf_set1(20.0f), vf_mul(vf_abs(x), vf_set1(2.0f)));
    vi n, sign = vi_and(vf_bits(x), vi_set1(INT32_MIN));
    vf k, p = vmath_exp_split(a, &k, &n), s = vmath_pow2(n);
    vf e = vf_fma(p, s, vf_sub(s, vf_set1(1.0f)));
    return vi_float_bits(vi_or(vf_bits(vf_div(e, vf_add(e, vf_set1(2.0f)))), sign));
}

// GELU, tanh form: 0.5 x (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3). Since (1 + tanh u) / 2 = 1 / (1 + e^(-2u)),
// one exponential and one division do it, and nothing cancels for negative x, where 1 + tanh u would.
#define VMATH_GELU_A 0x1.988454p-1f  // sqrt(2/pi)
#define VMATH_GELU_B 0x1.6e4e26p-5f  // 0.044715

VEC vf vmath_gelu_exp(vf x) {  // e^(-2u)
    vf u = vf_mul(x, vf_fma(vf_mul(x, x), vf_set1(-2 * VMATH_GELU_A * VMATH_GELU_B), vf_set1(-2 * VMATH_GELU_A)));
    return vf_exp(u);
}

VEC_LONG vf vf_gelu(vf x) { return vf_div(x, vf_add(vf_set1(1.0f), vmath_gelu_exp(x))); }

// 0.5 (1+t) + 0.5 x (1-t^2) u' = s (1 + 2 x (e s) u') with e = e^(-2u), s = 1 / (1+e), 1-s = e s. Beyond |x| = 10 it is
// 0 or 1 to the last bit that a float has around 1; clamping there keeps e finite.
VEC_LONG vf vf_gelu_grad(vf x) {
    x = vf_max(vf_set1(-10.0f), vf_min(vf_set1(10.0f), x));
    vf e = vmath_gelu_exp(x), s = vf_div(vf_set1(1.0f), vf_add(vf_set1(1.0f), e));
    vf du = vf_fma(vf_mul(x, x), vf_set1(6 * VMATH_GELU_A * VMATH_GELU_B), vf_set1(2 * VMATH_GELU_A));  // 2 u'
    return vf_fma(vf_mul(vf_mul(x, du), vf_mul(e, s)), s, s);
}

// GELU, erf form: x Phi(x), Phi(x) = erfc(-x / sqrt 2) / 2. With t = 1 / (1 + 0.3 |x|) the tail Phi(-|x|) is
// e^(-x^2 / 2) t Q(t), where Q hardly bends (Hastings 1955, sheets 43 to 45, has the form). Q is a fit of degree 9.
VEC vf vmath_tail(vf x, vf *density) {  // and e^(-x^2 / 2)
    vf e = vf_exp_down(vf_mul(vf_mul(x, x), vf_set1(-0.5f)));
    vf t = vf_div(vf_set1(1.0f), vf_fma(vf_abs(x), vf_set1(0x1.333334p-2f), vf_set1(1.0f)));
    vf q = vf_fma(vf_set1(-0x1.5757fp-6f), t, vf_set1(0x1.d3ff9cp-4f));
    q = vf_fma(q, t, vf_set1(-0x1.dc35b8p-3f));
    q = vf_fma(q, t, vf_set1(0x1.949558p-3f));
    q = vf_fma(q, t, vf_set1(-0x1.58f028p-4f));
    q = vf_fma(q, t, vf_set1(0x1.945258p-4f));
    q = vf_fma(q, t, vf_set1(0x1.3d836cp-4f));
    q = vf_fma(q, t, vf_set1(0x1.c44618p-4f));
    q = vf_fma(q, t, vf_set1(0x1.e9adb8p-4f));
    q = vf_fma(q, t, vf_set1(0x1.ea3db4p-4f));
    *density = e;
    return vf_mul(vf_mul(e, t), q);
}

// Phi(x): within 1 of 0 it is 1/2 + x P(x^2), which loses nothing there; P is a fit of degree 5.
VEC vf vmath_below(vf x, vf tail) {
    vf z = vf_mul(x, x), p = vf_fma(vf_set1(-0x1.010b86p-17f), z, vf_set1(0x1.dc102ap-14f));
    p = vf_fma(p, z, vf_set1(-0x1.36fe32p-10f));
    p = vf_fma(p, z, vf_set1(0x1.46ce58p-7f));
    p = vf_fma(p, z, vf_set1(-0x1.105832p-4f));
    p = vf_fma(p, z, vf_set1(0x1.988454p-2f));
    vf far = vf_select(vf_lt(x, vf_zero()), tail, vf_sub(vf_set1(1.0f), tail));
    return vf_select(vf_lt(z, vf_set1(1.0f)), vf_fma(p, x, vf_set1(0.5f)), far);
}

VEC_LONG vf vf_gelu_erf(vf x) {
    vf density, tail = vmath_tail(x, &density);
    return vf_mul(x, vmath_below(x, tail));
}

// Phi(x) + x e^(-x^2 / 2) / sqrt(2 pi). Beyond |x| = 14 it is 0 or 1 to the last bit that a float has around 1.
VEC_LONG vf vf_gelu_erf_grad(vf x) {
    x = vf_max(vf_set1(-14.0f), vf_min(vf_set1(14.0f), x));
    vf density, tail = vmath_tail(x, &density);
    return vf_fma(vf_mul(x, density), vf_set1(0x1.988454p-2f), vmath_below(x, tail));
}

// --- silu ------------------------------------------------------------------------------------------------------------

// x / (1 + e^-x)
VEC_LONG vf vf_silu(vf x) { return vf_div(x, vf_add(vf_set1(1.0f), vf_exp(vf_neg(x)))); }

// s + x (e s) s with e = e^-x, s = 1 / (1+e), 1-s = e s. Below -80 it is 0 to the last bit that a float has around 1,
// above 200 it is 1; clamping there keeps the product from being infinity times 0.
VEC_LONG vf vf_silu_grad(vf x) {
    x = vf_min(vf_set1(200.0f), vf_max(vf_set1(-80.0f), x));
    vf e = vf_exp(vf_neg(x)), s = vf_div(vf_set1(1.0f), vf_add(vf_set1(1.0f), e));
    return vf_fma(vf_mul(x, vf_mul(e, s)), s, s);
}

// --- random numbers --------------------------------------------------------------------------------------------------

// Sixteen philox4x32-10 at once (base/philox.h), `blocks` times side by side, which hides the latency of the products:
// out[k] lane l is word (16k + l) % 4 of counter c0 + (16k + l) / 4, that is, the words of the 64 * blocks consecutive
// elements from 4 * c0 on. The counters are dealt to the lanes so that four 4 x 4 transpositions put the words in
// order.
enum { PHILOX_BLOCKS = 2, PHILOX_WORDS = 64 * PHILOX_BLOCKS };
VEC_LONG void vi_philox(vi *out, int blocks, uint64_t seed, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
    static const int32_t deal[VL] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const vi m0 = vi_set1((int32_t)0xD2511F53u), m1 = vi_set1((int32_t)0xCD9E8D57u);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    vi x[PHILOX_BLOCKS][4];
    for (int n = 0; n < blocks; n++) {
        x[n][0] = vi_add(vi_set1((int32_t)(c0 + (uint32_t)(n * VL))), vi_load(deal)), x[n][1] = vi_set1((int32_t)c1);
        x[n][2] = vi_set1((int32_t)c2), x[n][3] = vi_set1((int32_t)c3);
    }
    for (int round = 0; round < 10; round++) {
        for (int n = 0; n < blocks; n++) {
            vi *r = x[n], p0 = vi_mul_lo(m0, r[0]), p1 = vi_mul_lo(m1, r[2]);
            vi a = vi_xor(vi_xor(vi_mul_hi(m1, r[2]), r[1]), vi_set1((int32_t)k0));
            r[2] = vi_xor(vi_xor(vi_mul_hi(m0, r[0]), r[3]), vi_set1((int32_t)k1));
            r[0] = a, r[1] = p1, r[3] = p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int n = 0; n < blocks; n++) {
        for (int k = 0; k < 4; k++) out[4 * n + k] = x[n][k];
        vi_transpose4(out + 4 * n);
    }
}
VEC void vi_philox64(vi out[4], uint64_t seed, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
    vi_philox(out, 1, seed, c0, c1, c2, c3);
}

// Dropout drops an element when its word is below p * 2^32. Returns the smallest word that is kept, rounded up where p
// has bits below 2^-32.
VEC uint32_t dropout_limit(float p) {
    double limit = (double)p * 0x1p32;
    uint32_t whole = (uint32_t)limit;
    return whole + (whole < limit);
}

// Lanes to drop.
VEC vm dropout_goes(vi word, uint32_t limit) {
    return vi_lt(vi_xor(word, vi_set1(INT32_MIN)), vi_set1((int32_t)(limit ^ 0x80000000u)));  // unsigned comparison
}

// Step and sample of a key, which a caller may keep in memory (ops.h: dropout_key.at).
static inline uint32_t dropout_step(const dropout_key *key) { return key->at ? key->at[0] : key->step; }
static inline uint32_t dropout_sample(const dropout_key *key, uint32_t sample) {
    return (key->at ? key->at[1] : key->first_sample) + sample;
}

// factor[i] = 0 where element e + i of the sample is dropped, 1 / (1-p) where it is kept. sample counts from the key's
// first. 0 <= e + n <= 2^34.
static inline void dropout_factors(float *factor, int64_t e, int64_t n, const dropout_key *key, uint32_t sample) {
    uint32_t limit = dropout_limit(key->p);
    uint32_t step = dropout_step(key), drawn = dropout_sample(key, sample);
    vf stays = vf_set1(1.0f / (1.0f - key->p));
    int64_t end = e + n;
    for (int64_t at = e & ~(int64_t)3; at < end; at += 4 * VL) {
        vi word[4];
        float f[4 * VL];
        vi_philox64(word, key->seed, (uint32_t)(at / 4), key->site, drawn, step);
        for (int k = 0; k < 4; k++) vf_store(f + k * VL, vf_select(dropout_goes(word[k], limit), vf_zero(), stays));
        int64_t from = at < e ? e : at, to = at + 4 * VL < end ? at + 4 * VL : end;
        memcpy(factor + (from - e), f + (from - at), (size_t)(to - from) * sizeof *factor);
    }
}

#endif
