// gpu/cpu/kernel/typed.h: sixteen elements of a tensor whose type is known at run time only.
//
// Everything here is always inlined: where `t` is a constant, the switch disappears. BY_TYPE makes it a constant: a
// kernel's body is written once, with the dtype as its first parameter, and compiled three times.
//
//     BODY void add_body(dtype t, const add_job *j, int64_t from, int64_t to) { ... typed_load_n(j->a, t, i, n) ... }
//     static void add_item(void *ctx, int64_t item, int thread) { ... BY_TYPE(j->type, add_body, j, from, to); }
//
// The _n forms touch n elements and no byte outside them; lanes past the n-th read as zero. n > VL counts as VL, n < 0
// as 0, so that `for (i = 0; i < n; i += VL) ... typed_load_n(p, t, i, n - i)` is the whole loop, tail included.
#ifndef GPU_CPU_KERNEL_TYPED_H
#define GPU_CPU_KERNEL_TYPED_H

#include "gpu/cpu/kernel/vec.h"
#include "gpu/gpu.h"

#define BODY static inline __attribute__((always_inline))

// Elements of an item of work where elements are independent: enough to be worth a thread's visit, a multiple of 64.
enum { SLICE = 8192 };
BODY int64_t slices(int64_t n) { return (n + SLICE - 1) / SLICE; }
BODY int64_t slice_end(int64_t item, int64_t n) { return (item + 1) * SLICE < n ? (item + 1) * SLICE : n; }
// Rows of `width` elements that make an item of about that size.
BODY int64_t rows_per_item(int64_t width) { return width < SLICE ? SLICE / width : 1; }

// step(.., i, n) for each vector of [from, to): n is the constant VL except for the last one, so that the loop has no
// branch on it.
#define EACH_VECTOR(from, to, step, ...) \
    do { \
        int64_t i_ = (from), to_ = (to); \
        for (; i_ + VL <= to_; i_ += VL) step(__VA_ARGS__, i_, (int64_t)VL); \
        if (i_ < to_) step(__VA_ARGS__, i_, to_ - i_); \
    } while (0)

// Calls body(<constant dtype>, ...) for the compute type t.
#define BY_TYPE(t, body, ...) \
    do { \
        switch (t) { \
        case FP32: body(FP32, __VA_ARGS__); break; \
        case BF16: body(BF16, __VA_ARGS__); break; \
        default: body(FP16, __VA_ARGS__); break; \
        } \
    } while (0)

// Element i as an address, for rows and slices.
BODY const void *typed_at(const void *p, dtype t, int64_t i) { return (const char *)p + i * (int64_t)dtype_bytes(t); }
BODY void *typed_at_mut(void *p, dtype t, int64_t i) { return (char *)p + i * (int64_t)dtype_bytes(t); }

BODY vf typed_load(const void *p, dtype t, int64_t i) {
    if (t == FP32) return vf_load((const float *)p + i);
    if (t == BF16) return vf_load_bf16((const uint16_t *)p + i);
    return vf_load_fp16((const uint16_t *)p + i);
}

BODY void typed_store(void *p, dtype t, int64_t i, vf v) {
    if (t == FP32) vf_store((float *)p + i, v);
    else if (t == BF16) vf_store_bf16((uint16_t *)p + i, v);
    else vf_store_fp16((uint16_t *)p + i, v);
}

BODY vf typed_load_n(const void *p, dtype t, int64_t i, int64_t n) {
    if (n >= VL) return typed_load(p, t, i);
    if (n <= 0) return vf_zero();
    if (t == FP32) return vf_load_n((const float *)p + i, (int)n);
    uint16_t buf[VL] = {0};
    memcpy(buf, (const uint16_t *)p + i, (size_t)n * sizeof *buf);
    return typed_load(buf, t, 0);
}

BODY void typed_store_n(void *p, dtype t, int64_t i, vf v, int64_t n) {
    if (n >= VL) typed_store(p, t, i, v);
    else if (n <= 0) return;
    else if (t == FP32) vf_store_n((float *)p + i, v, (int)n);
    else {
        uint16_t buf[VL];
        typed_store(buf, t, 0, v);
        memcpy((uint16_t *)p + i, buf, (size_t)n * sizeof *buf);
    }
}

// v as the type would hold it.
BODY vf typed_round(dtype t, vf v) {
    if (t == FP32) return v;
    if (t == BF16) return vi_float_bits(vi_and(vf_round_bf16(v), vi_set1((int32_t)0xffff0000u)));
    uint16_t buf[VL];
    typed_store(buf, t, 0, v);
    return typed_load(buf, t, 0);
}

// One element.
BODY float typed_get(const void *p, dtype t, int64_t i) {
    float lane[VL];
    vf_store(lane, typed_load_n(p, t, i, 1));
    return lane[0];
}
BODY void typed_set(void *p, dtype t, int64_t i, float x) { typed_store_n(p, t, i, vf_set1(x), 1); }

#endif
