// test/vec_probe.c: see vec_probe.h. Unused words of out stay as the caller left them.
#include "test/vec_probe.h"

#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/products.h"
#include "gpu/cpu/kernel/stochastic.h"
#include "gpu/cpu/kernel/typed.h"
#include "gpu/cpu/kernel/vmath.h"

#define EACH for (int64_t i = 0; i < blocks; i++, out += PROBE_OUT, in += PROBE_IN)
#define A vf_load((const float *)in)
#define B vf_load((const float *)in + VL)
#define C vf_load((const float *)in + 2 * VL)
#define IA vi_load((const int32_t *)in)
#define IB vi_load((const int32_t *)in + VL)
#define N ((int)in[2 * VL])
#define PROBE(name, ...) \
    static void name(uint32_t *out, const uint32_t *in, int64_t blocks) { \
        EACH { __VA_ARGS__; } \
    }
#define FLOATS(expr) vf_store((float *)out, expr)
#define INTS(expr) vi_store((int32_t *)out, expr)
#define MASK(expr) INTS(vi_select(expr, vi_set1(1), vi_set1(0)))

PROBE(p_set1, FLOATS(vf_set1(((const float *)in)[0])))
PROBE(p_add, FLOATS(vf_add(A, B)))
PROBE(p_sub, FLOATS(vf_sub(A, B)))
PROBE(p_mul, FLOATS(vf_mul(A, B)))
PROBE(p_div, FLOATS(vf_div(A, B)))
PROBE(p_max, FLOATS(vf_max(A, B)))
PROBE(p_min, FLOATS(vf_min(A, B)))
PROBE(p_sqrt, FLOATS(vf_sqrt(A)))
PROBE(p_fma, FLOATS(vf_fma(A, B, C)))
PROBE(p_fnma, FLOATS(vf_fnma(A, B, C)))
PROBE(p_lt, MASK(vf_lt(A, B)))
PROBE(p_le, MASK(vf_le(A, B)))
PROBE(p_eq, MASK(vf_eq(A, B)))
PROBE(p_select, FLOATS(vf_select(vf_lt(A, B), C, A)))
PROBE(p_abs, FLOATS(vf_abs(A)))
PROBE(p_neg, FLOATS(vf_neg(A)))
PROBE(p_first, MASK(vm_first(N)))
PROBE(p_load_n, FLOATS(vf_load_n((const float *)in, N)))
PROBE(p_store_n, vf_store_n((float *)out, A, N))
PROBE(p_sum, float s = vf_sum(A); memcpy(out, &s, sizeof s))
PROBE(p_round_int, INTS(vf_round_int(A)))
PROBE(p_to_float, FLOATS(vi_to_float(IA)))
PROBE(p_vi_add, INTS(vi_add(IA, IB)))
PROBE(p_vi_sub, INTS(vi_sub(IA, IB)))
PROBE(p_vi_and, INTS(vi_and(IA, IB)))
PROBE(p_vi_or, INTS(vi_or(IA, IB)))
PROBE(p_vi_xor, INTS(vi_xor(IA, IB)))
PROBE(p_vi_mul_lo, INTS(vi_mul_lo(IA, IB)))
PROBE(p_vi_mul_hi, INTS(vi_mul_hi(IA, IB)))
PROBE(p_vi_shl, INTS(vi_add(vi_shl(IA, 7), vi_add(vi_shl(IA, 16), vi_shl(IA, 31)))))
PROBE(p_vi_shr, INTS(vi_add(vi_shr(IA, 7), vi_add(vi_shr(IA, 16), vi_shr(IA, 31)))))
PROBE(p_vi_sar, INTS(vi_add(vi_sar(IA, 7), vi_add(vi_sar(IA, 16), vi_sar(IA, 31)))))
PROBE(p_vi_lt, MASK(vi_lt(IA, IB)))
PROBE(p_vi_eq, MASK(vi_eq(IA, IB)))
PROBE(p_vi_select, INTS(vi_select(vi_lt(IA, IB), IB, vi_set1(7))))
PROBE(p_transpose4, vi x[4] = {IA, IB, vf_bits(C), vi_xor(IA, IB)}; vi_transpose4(x);
      for (int k = 0; k < 4; k++) vi_store((int32_t *)out + k * VL, x[k]))
PROBE(p_load_u16, vi raw; FLOATS(vf_load_u16((const uint16_t *)in, &raw)); vi_store((int32_t *)out + VL, raw))
PROBE(p_store_u16, vi_store_high_u16((uint16_t *)out, IA))
PROBE(p_load_fp16, FLOATS(vf_load_fp16((const uint16_t *)in)))
PROBE(p_load_bf16, FLOATS(vf_load_bf16((const uint16_t *)in)))
PROBE(p_store_fp16, vf_store_fp16((uint16_t *)out, A))
PROBE(p_store_bf16, vf_store_bf16((uint16_t *)out, A))
PROBE(p_typed_load_n, for (int t = 0; t < 3; t++) FLOATS(typed_load_n(in, (dtype)t, 1, N)), out += VL; out -= 3 * VL)
PROBE(p_typed_store_n, for (int t = 0; t < 3; t++) typed_store_n(out + t * VL, (dtype)t, 0, A, N))
PROBE(p_typed_round, for (int t = 0; t < 3; t++) vf_store((float *)out + t * VL, typed_round((dtype)t, A)))
PROBE(p_exp, FLOATS(vf_exp(A)))
PROBE(p_log, FLOATS(vf_log(A)))
PROBE(p_tanh, FLOATS(vf_tanh(A)))
PROBE(p_gelu, FLOATS(vf_gelu(A)))
PROBE(p_gelu_grad, FLOATS(vf_gelu_grad(A)))
PROBE(p_gelu_erf, FLOATS(vf_gelu_erf(A)))
PROBE(p_gelu_erf_grad, FLOATS(vf_gelu_erf_grad(A)))
PROBE(p_silu, FLOATS(vf_silu(A)))
PROBE(p_silu_grad, FLOATS(vf_silu_grad(A)))
PROBE(p_philox64, vi w[4]; vi_philox64(w, in[0] | (uint64_t)in[1] << 32, in[2], in[3], in[4], in[5]);
      for (int k = 0; k < 4; k++) vi_store((int32_t *)out + k * VL, w[k]))
PROBE(p_goes, MASK(dropout_goes(IA, in[VL])))
PROBE(p_stochastic_bf16, FLOATS(stochastic_bf16(A, IB)))
PROBE(p_stochastic_fp16, FLOATS(stochastic_fp16(A, IB)))
PROBE(p_product_operand, FLOATS(product_operand(A, false)); vf_store((float *)out + VL, product_operand(B, true)))
PROBE(p_product_exact, FLOATS(product_exact(product_operand(A, false), product_operand(B, false), C)))

// clang-format off
#define ROW(name, kind) {#name, kind, p_##name}
const probe_row KERNEL(probes)[] = {
    ROW(set1, PROBE_FLOAT), ROW(add, PROBE_FLOAT), ROW(sub, PROBE_FLOAT), ROW(mul, PROBE_FLOAT), ROW(div, PROBE_FLOAT),
    ROW(max, PROBE_FLOAT), ROW(min, PROBE_FLOAT), ROW(sqrt, PROBE_FLOAT), ROW(fma, PROBE_FLOAT), ROW(fnma, PROBE_FLOAT),
    ROW(lt, PROBE_EXACT), ROW(le, PROBE_EXACT), ROW(eq, PROBE_EXACT), ROW(select, PROBE_FLOAT), ROW(abs, PROBE_EXACT),
    ROW(neg, PROBE_EXACT), ROW(first, PROBE_COUNT), ROW(load_n, PROBE_COUNT), ROW(store_n, PROBE_COUNT), ROW(sum, PROBE_FLOAT),
    ROW(round_int, PROBE_EXACT), ROW(to_float, PROBE_EXACT), ROW(vi_add, PROBE_EXACT), ROW(vi_sub, PROBE_EXACT),
    ROW(vi_and, PROBE_EXACT), ROW(vi_or, PROBE_EXACT), ROW(vi_xor, PROBE_EXACT), ROW(vi_mul_lo, PROBE_EXACT),
    ROW(vi_mul_hi, PROBE_EXACT), ROW(vi_shl, PROBE_EXACT), ROW(vi_shr, PROBE_EXACT), ROW(vi_sar, PROBE_EXACT),
    ROW(vi_lt, PROBE_EXACT), ROW(vi_eq, PROBE_EXACT), ROW(vi_select, PROBE_EXACT), ROW(transpose4, PROBE_EXACT),
    ROW(load_u16, PROBE_EXACT), ROW(store_u16, PROBE_EXACT), ROW(load_fp16, PROBE_EXACT), ROW(load_bf16, PROBE_EXACT),
    ROW(store_fp16, PROBE_EXACT), ROW(store_bf16, PROBE_EXACT), ROW(typed_load_n, PROBE_COUNT), ROW(typed_store_n, PROBE_COUNT),
    ROW(typed_round, PROBE_EXACT), ROW(exp, PROBE_FLOAT), ROW(log, PROBE_FLOAT), ROW(tanh, PROBE_FLOAT), ROW(gelu, PROBE_FLOAT),
    ROW(gelu_grad, PROBE_FLOAT), ROW(gelu_erf, PROBE_FLOAT), ROW(gelu_erf_grad, PROBE_FLOAT), ROW(silu, PROBE_FLOAT), ROW(silu_grad, PROBE_FLOAT), ROW(philox64, PROBE_EXACT), ROW(goes, PROBE_EXACT),
    ROW(stochastic_bf16, PROBE_EXACT), ROW(stochastic_fp16, PROBE_EXACT),
    ROW(product_operand, PROBE_FLOAT), ROW(product_exact, PROBE_FLOAT),
    {0, 0, 0},
};
// clang-format on
