// gpu/cpu/kernel/vec_double.h: sixteen doubles, for sums of floats. The product of two floats is exact in double: fused
// or not, a multiply-add of them rounds once, and every width has the same bits.
#ifndef GPU_CPU_KERNEL_VEC_DOUBLE_H
#define GPU_CPU_KERNEL_VEC_DOUBLE_H

#include "gpu/cpu/kernel/vec.h"

#if defined(__AVX512F__)
typedef struct vd {
    __m512d part[2];
} vd;
VEC vd vd_load(const double *p) { return (vd){{_mm512_loadu_pd(p), _mm512_loadu_pd(p + 8)}}; }
VEC void vd_store(double *p, vd a) { _mm512_storeu_pd(p, a.part[0]), _mm512_storeu_pd(p + 8, a.part[1]); }
VEC vd vd_add(vd a, vd b) { return (vd){{_mm512_add_pd(a.part[0], b.part[0]), _mm512_add_pd(a.part[1], b.part[1])}}; }
VEC vd vd_from(vf x) {
    return (vd){{_mm512_cvtps_pd(_mm512_castps512_ps256(x)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))}};
}
// a*b + c, a and b from floats
VEC vd vd_multiply_add(vd a, vd b, vd c) {
    return (vd){{_mm512_fmadd_pd(a.part[0], b.part[0], c.part[0]), _mm512_fmadd_pd(a.part[1], b.part[1], c.part[1])}};
}

#elif defined(__AVX2__)
typedef struct vd {
    __m256d a, b, c, d;
} vd;
VEC vd vd_load(const double *p) {
    return (vd){_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4), _mm256_loadu_pd(p + 8), _mm256_loadu_pd(p + 12)};
}
VEC void vd_store(double *p, vd x) {
    _mm256_storeu_pd(p, x.a), _mm256_storeu_pd(p + 4, x.b), _mm256_storeu_pd(p + 8, x.c), _mm256_storeu_pd(p + 12, x.d);
}
VEC vd vd_add(vd x, vd y) {
    return (vd){_mm256_add_pd(x.a, y.a), _mm256_add_pd(x.b, y.b), _mm256_add_pd(x.c, y.c), _mm256_add_pd(x.d, y.d)};
}
VEC vd vd_from(vf x) {
    return (vd){_mm256_cvtps_pd(_mm256_castps256_ps128(x.lo)), _mm256_cvtps_pd(_mm256_extractf128_ps(x.lo, 1)),
                _mm256_cvtps_pd(_mm256_castps256_ps128(x.hi)), _mm256_cvtps_pd(_mm256_extractf128_ps(x.hi, 1))};
}
VEC vd vd_multiply_add(vd x, vd y, vd z) {
    return (vd){_mm256_fmadd_pd(x.a, y.a, z.a), _mm256_fmadd_pd(x.b, y.b, z.b), _mm256_fmadd_pd(x.c, y.c, z.c),
                _mm256_fmadd_pd(x.d, y.d, z.d)};
}

#else
typedef struct vd {
    double x[VL];
} vd;
VEC vd vd_load(const double *p) {
    vd a;
    memcpy(a.x, p, sizeof a.x);
    return a;
}
VEC void vd_store(double *p, vd a) { memcpy(p, a.x, sizeof a.x); }
VEC vd vd_add(vd a, vd b) {
    for (int i = 0; i < VL; i++) a.x[i] += b.x[i];
    return a;
}
VEC vd vd_from(vf x) {
    float lane[VL];
    vd a;
    vf_store(lane, x);
    for (int i = 0; i < VL; i++) a.x[i] = (double)lane[i];
    return a;
}
VEC vd vd_multiply_add(vd a, vd b, vd c) {
    for (int i = 0; i < VL; i++) c.x[i] += a.x[i] * b.x[i];
    return c;
}
#endif

#endif
