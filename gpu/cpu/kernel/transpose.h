// gpu/cpu/kernel/transpose.h: sixteen vectors as a 16 x 16 matrix, transposed.
#ifndef GPU_CPU_KERNEL_TRANSPOSE_H
#define GPU_CPU_KERNEL_TRANSPOSE_H

#include "gpu/cpu/kernel/vec.h"

#if defined(__AVX512F__)
// Pairs of rows, then pairs of pairs within 128-bit lanes, then the lanes themselves: 64 shuffles.
VEC void transpose16(vf x[16]) {
    vf t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) {  // x[i + c]: column c of each lane, rows i .. i+3
        x[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t[i]), _mm512_castps_pd(t[i + 2])));
        x[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t[i]), _mm512_castps_pd(t[i + 2])));
        x[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t[i + 1]), _mm512_castps_pd(t[i + 3])));
        x[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t[i + 1]), _mm512_castps_pd(t[i + 3])));
    }
#pragma GCC unroll 16
    for (int c = 0; c < 4; c++) {
        vf a = _mm512_shuffle_f32x4(x[c], x[c + 4], 0x88), b = _mm512_shuffle_f32x4(x[c + 8], x[c + 12], 0x88);
        vf d = _mm512_shuffle_f32x4(x[c], x[c + 4], 0xdd), e = _mm512_shuffle_f32x4(x[c + 8], x[c + 12], 0xdd);
        t[c] = _mm512_shuffle_f32x4(a, b, 0x88);       // lane 0
        t[c + 8] = _mm512_shuffle_f32x4(a, b, 0xdd);   // lane 2
        t[c + 4] = _mm512_shuffle_f32x4(d, e, 0x88);   // lane 1
        t[c + 12] = _mm512_shuffle_f32x4(d, e, 0xdd);  // lane 3
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) x[i] = t[i];
}
#elif defined(__AVX2__)
VEC void transpose8(__m256 x[8]) {
    __m256 t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 4) {
        x[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        x[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        x[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        x[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 8
    for (int c = 0; c < 4; c++) {
        t[c] = _mm256_permute2f128_ps(x[c], x[c + 4], 0x20);
        t[c + 4] = _mm256_permute2f128_ps(x[c], x[c + 4], 0x31);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) x[i] = t[i];
}
VEC void transpose16(vf x[16]) {
    __m256 q[4][8];  // the quarters
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) q[0][i] = x[i].lo, q[1][i] = x[i].hi, q[2][i] = x[i + 8].lo, q[3][i] = x[i + 8].hi;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) transpose8(q[i]);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) x[i] = (vf){q[0][i], q[2][i]}, x[i + 8] = (vf){q[1][i], q[3][i]};
}
#else
// 64 quads fit no register file: the work is done in memory, and may as well be a call.
static void transpose16(vf x[16]) {
    for (int i = 0; i < 16; i += 4) {
        vi four[4] = {vf_bits(x[i]), vf_bits(x[i + 1]), vf_bits(x[i + 2]), vf_bits(x[i + 3])};
        vi_transpose4(four);  // quad c of four[k]: column 4c + k, rows i .. i+3
        for (int k = 0; k < 4; k++) x[i + k] = vi_float_bits(four[k]);
    }
    for (int k = 0; k < 4; k++) {
        vf a = x[k], b = x[4 + k], c = x[8 + k], d = x[12 + k];
        x[k] = (vf){a.q0, b.q0, c.q0, d.q0}, x[4 + k] = (vf){a.q1, b.q1, c.q1, d.q1};
        x[8 + k] = (vf){a.q2, b.q2, c.q2, d.q2}, x[12 + k] = (vf){a.q3, b.q3, c.q3, d.q3};
    }
}
#endif

#endif
