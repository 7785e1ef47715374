// gpu/cpu/kernel/stochastic.h: stochastic rounding of sixteen floats (gpu/ops.h: rounding_key). The result is a float
// that the type can hold, so the store after it, which rounds to nearest, does not change it. Numbers that are not
// rounded by chance pass unchanged and are rounded by the store.
#ifndef GPU_CPU_KERNEL_STOCHASTIC_H
#define GPU_CPU_KERNEL_STOCHASTIC_H

#include "gpu/cpu/kernel/typed.h"
#include "gpu/cpu/kernel/vmath.h"
#include "gpu/ops.h"

// The words of the 64 * blocks elements of this call that begin with e, a multiple of 64.
BODY void rounding_words(vi *word, int blocks, const rounding_key *key, int64_t e, uint32_t t) {
    uint64_t quad = (uint64_t)(key->first + e) / 4, last = quad + (uint64_t)(blocks - 1) * VL;
    if (quad >> 32 == last >> 32)
        vi_philox(word, blocks, key->seed, (uint32_t)quad, key->site, (uint32_t)(quad >> 32), t);
    else
        for (int b = 0; b < blocks; b++, quad += VL)
            vi_philox64(word + 4 * b, key->seed, (uint32_t)quad, key->site, (uint32_t)(quad >> 32), t);
}

// A number is its neighbour below plus 16 low bits: adding 16 random bits carries into the neighbour above with exactly
// the right probability.
BODY vf stochastic_bf16(vf x, vi word) {
    vi bits = vf_bits(x), magnitude = vi_and(bits, vi_set1(0x7fffffff));
    vf y = vi_float_bits(vi_and(vi_add(bits, vi_shr(word, 16)), vi_set1((int32_t)0xffff0000u)));
    return vf_select(vi_lt(vi_set1(0x7f7f0000), magnitude), x, y);
}

// The same with 13 bits where the half is normal. Below 2^-14 halves are 2^-24 apart: there the share of the gap is a
// float's difference, exactly.
BODY vf stochastic_fp16(vf x, vi word) {
    vi magnitude = vi_and(vf_bits(x), vi_set1(0x7fffffff)), sign = vi_xor(vf_bits(x), magnitude);
    vi normal = vi_and(vi_add(magnitude, vi_shr(word, 19)), vi_set1(~0x1fff));
    vf a = vf_mul(vi_float_bits(magnitude), vf_set1(0x1p24f)), whole = vi_to_float(vf_round_int(a));
    whole = vf_select(vf_lt(a, whole), vf_sub(whole, vf_set1(1.0f)), whole);
    vf rest = vf_mul(vi_to_float(vi_sub(vi_set1(1 << 24), vi_shr(word, 8))), vf_set1(0x1p-24f));  // 1 - u
    vf up = vf_select(vf_le(rest, vf_sub(a, whole)), vf_set1(1.0f), vf_zero());
    vi small = vf_bits(vf_mul(vf_add(whole, up), vf_set1(0x1p-24f)));
    vf y = vi_float_bits(vi_or(sign, vi_select(vi_lt(magnitude, vi_set1(0x38800000)), small, normal)));
    return vf_select(vi_lt(vi_set1(0x477fe000), magnitude), x, y);
}

// t is BF16 or FP16.
BODY vf typed_stochastic(dtype t, vf x, vi word) {
    return t == BF16 ? stochastic_bf16(x, word) : stochastic_fp16(x, word);
}

#endif
