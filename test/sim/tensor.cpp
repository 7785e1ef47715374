// test/sim/tensor.cpp: tensor cores and asynchronous copies: what gpu/cuda/simt.h wraps as single instructions.
#include "test/sim/device.h"

#include <immintrin.h>
#include <string.h>

namespace simt {

// --- mma.m16n8k16: fragments as in the PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" ---------
//
// Lane l is group g = l / 4, member t = l % 4. Products are exact in FP32; sums run over k in order. (Hardware may sum
// in another order.)

struct mma_operands {
    float *d;
    const uint32_t *a, *b;
};

template <bool bf> static inline float half_of(uint32_t pair, int high) {
    uint16_t bits = (uint16_t)(high ? pair >> 16 : pair);
    if (!bf) return _cvtsh_ss(bits);
    uint32_t wide = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &wide, sizeof f);
    return f;
}

typedef float row8 __attribute__((vector_size(32)));  // eight columns at once, each with its own sum

template <bool bf> static void mma_all(fiber *lanes, uint32_t) {
    float a[16][16];
    union {
        float at[16][8];
        row8 row[16];
    } b, d;
    for (int l = 0; l < LANES; l++) {
        const mma_operands *o = (mma_operands *)lanes[l].operands;
        int g = l / 4, t = l % 4;
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) a[g + i / 2 % 2 * 8][t * 2 + i % 2 + i / 4 * 8] = half_of<bf>(o->a[i / 2], i % 2);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) b.at[t * 2 + i % 2 + i / 2 * 8][g] = half_of<bf>(o->b[i / 2], i % 2);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) d.at[g + i / 2 * 8][t * 2 + i % 2] = o->d[i];
    }
    for (int i = 0; i < 16; i++) {
        row8 sum = d.row[i];
        for (int k = 0; k < 16; k++) sum += a[i][k] * b.row[k];
        d.row[i] = sum;
    }
    for (int l = 0; l < LANES; l++) {
        const mma_operands *o = (mma_operands *)lanes[l].operands;
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) o->d[i] = d.at[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
    }
    stats.mma++;
}

// Tensor-core operations are the whole warp's.
static void meet_all(warp_op op, void *operands, warp_function fn, place at) {
    if (block.warps[running->warp].exist != ~0u) {
        check_msg("warp", "an operation of the whole warp at %s:%d in a warp that is not whole", at.file, at.line);
        return;
    }
    meet(op, ~0u, operands, fn, at);
}

void mma_m16n8k16(float *d, const uint32_t *a, const uint32_t *b, bool bf, const char *file, int line) {
    mma_operands o = {d, a, b};
    meet_all(bf ? OP_MMA_BF16 : OP_MMA_F16, &o, bf ? mma_all<true> : mma_all<false>, {file, line});
}

// --- ldmatrix --------------------------------------------------------------------------------------------------------

struct ldmatrix_operands {
    uint32_t *r;
    const char *row;
    int count;
    const void *pc;
};

static void read_row(uint16_t *out, fiber *f) {
    const ldmatrix_operands *o = (ldmatrix_operands *)f->operands;
    if ((uintptr_t)o->row % 16)
        check_msg("misaligned", "ldmatrix at %s:%d: the row of lane %d is not aligned to 16 bytes", f->at.file,
                  f->at.line, f->lane);
    if (!shared_name(o->row, 16)) {
        check_msg("shared-bounds", "ldmatrix at %s:%d: the row of lane %d is outside of shared memory", f->at.file,
                  f->at.line, f->lane);
        memset(out, 0xFF, 16);
        return;
    }
    race_access(f, o->row, 16, false, o->pc);
    memcpy(out, o->row, 16);
}

static void ldmatrix_all(fiber *lanes, uint32_t) {
    int count = ((ldmatrix_operands *)lanes[0].operands)->count;
    bool trans = lanes[0].op == OP_LDMATRIX_TRANS;
    for (int i = 0; i < count; i++) {
        uint16_t m[8][8];
        for (int r = 0; r < 8; r++) read_row(m[r], &lanes[i * 8 + r]);
        for (int l = 0; l < LANES; l++) {
            int g = l / 4, t = l % 4 * 2;
            uint32_t low = trans ? m[t][g] : m[g][t], high = trans ? m[t + 1][g] : m[g][t + 1];
            ((ldmatrix_operands *)lanes[l].operands)->r[i] = low | high << 16;
        }
    }
}

void ldmatrix(uint32_t *r, const void *row, int count, bool trans, const char *file, int line) {
    ldmatrix_operands o = {r, (const char *)row, count, __builtin_return_address(0)};
    meet_all(trans ? OP_LDMATRIX_TRANS : OP_LDMATRIX, &o, ldmatrix_all, {file, line});
}

// --- cp.async: until it is waited for, the destination holds NaN -----------------------------------------------------

void cp_async(void *to, const void *from, int bytes, int read, const char *file, int line) {
    fiber *me = running;
    async_copy c = {(char *)to, (const char *)from, bytes, read, me->group, {file, line}};
    if (((uintptr_t)to | (uintptr_t)from) % (unsigned)bytes)
        check_msg("misaligned", "cp.async at %s:%d: an address is not aligned to %d bytes", file, line, bytes);
    if (!shared_name(to, (size_t)bytes)) {
        check_msg("shared-bounds", "cp.async at %s:%d: the destination is outside of shared memory", file, line);
        return;
    }
    race_copy_issued(me, &c, __builtin_return_address(0));
    if (SIM_ASAN && read) {  // out of bounds is reported here and not at the wait
        char probe[16];
        memcpy(probe, from, (size_t)read);
    }
    memset(to, 0xFF, (size_t)bytes);
    me->copies.push_back(c);
}

void cp_async_commit() { running->group++; }

void cp_async_wait(int pending) {
    fiber *me = running;
    size_t kept = 0;
    for (const async_copy &c : me->copies) {
        if (c.group >= me->group - pending) {
            me->copies[kept++] = c;
            continue;
        }
        memcpy(c.to, c.from, (size_t)c.read);
        memset(c.to + c.read, 0, (size_t)(c.bytes - c.read));
        race_copy_done(me, &c);
    }
    me->copies.resize(kept);
}

}  // namespace simt
