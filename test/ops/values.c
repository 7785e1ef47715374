// test/ops/values.c: storage types written from their definition, and what "near" means.
#include "test/ops/op_test.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

// x to `digits` binary digits, nearest even, with 2^quantum the smallest spacing; infinity above `most`.
static double round_digits(double x, int digits, int quantum, double most) {
    int e;
    if (!isfinite(x) || x == 0) return x;
    frexp(x, &e);
    int q = e - digits > quantum ? e - digits : quantum;
    double y = ldexp(rint(ldexp(x, -q)), q);
    return fabs(y) > most ? copysign(INFINITY, x) : y;
}

double storage_round(dtype t, double x) {
    switch (t) {
    case FP32: return (double)(float)x;
    case BF16: return round_digits(x, 8, -133, 0x1.fep127);
    case FP16: return round_digits(x, 11, -24, 65504);
    default: return x;
    }
}

static double half_get(uint16_t h) {
    double sign = h & 0x8000 ? -1 : 1;
    int e = h >> 10 & 31, f = h & 1023;
    if (e == 31) return f ? (double)NAN : sign * INFINITY;
    return sign * (e ? ldexp(1024 + f, e - 25) : ldexp(f, -24));
}

static uint16_t half_bits(double x) {  // x is a half's value
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double a = fabs(x);
    if (isnan(x)) return 0x7e00;
    if (isinf(x)) return sign | 0x7c00;
    if (a < 0x1p-14) return sign | (uint16_t)(a * 0x1p24);
    int e;
    double f = frexp(a, &e);  // a = f 2^e, 1/2 <= f < 1
    return sign | (uint16_t)((e + 14) << 10) | (uint16_t)(f * 2048 - 1024);
}

double storage_get(const void *p, dtype t, int64_t i) {
    switch (t) {
    case FP32: return (double)((const float *)p)[i];
    case FP64: return ((const double *)p)[i];
    case INT32: return ((const int32_t *)p)[i];
    case UINT8: return ((const uint8_t *)p)[i];
    case FP16: return half_get(((const uint16_t *)p)[i]);
    default: {
        uint32_t b = (uint32_t)((const uint16_t *)p)[i] << 16;
        float f;
        memcpy(&f, &b, 4);
        return (double)f;
    }
    }
}

void storage_set(void *p, dtype t, int64_t i, double x) {
    double y = storage_round(t, x);
    float f = (float)y;
    uint32_t b;
    switch (t) {
    case FP32: ((float *)p)[i] = f; return;
    case FP64: ((double *)p)[i] = x; return;
    case INT32: ((int32_t *)p)[i] = (int32_t)x; return;
    case UINT8: ((uint8_t *)p)[i] = (uint8_t)(int)x; return;
    case FP16: ((uint16_t *)p)[i] = half_bits(y); return;
    default: memcpy(&b, &f, 4); ((uint16_t *)p)[i] = (uint16_t)(b >> 16);
    }
}

// One rounding to p digits errs by at most u = 2^-p relative; the mean square of that lies between u^2 / 12 and u^2 /
// 3, wherever the mantissas lie. 0.4 u^2 therefore allows one rounding and not much more (few elements have more luck
// and more bad luck).
static double storage_nmse(dtype t) { return t == BF16 ? 0.4 * 0x1p-16 : t == FP16 ? 0.4 * 0x1p-22 : 0; }
static double storage_unit(dtype t) { return t == BF16 ? 0x1p-8 : t == FP16 ? 0x1p-11 : t == FP32 ? 0x1p-24 : 0x1p-53; }

// `rounded` sums whose one operand, of random signs, was rounded to t first: each product then errs by a rounding of
// its own, independently of the others, so the sum's error has the mean square of one rounding, 0.4 u^2 of the sum's
// own, and that of an element is eight times its root in the worst case, of at most twice the largest sum.
bool values_near(const char *name, dtype t, const void *got, const double *want, int64_t n, double nmse, int rounded,
                 char why[WHY]) {
    double error = 0, power = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        double g = storage_get(got, t, i);
        if (!isfinite(g)) {
            snprintf(why, WHY, "%s[%" PRId64 "] is %g, expected %.9g", name, i, g, want[i]);
            return false;
        }
        error += (g - want[i]) * (g - want[i]);
        power += want[i] * want[i];
        largest = fmax(largest, fabs(want[i]));
    }
    double limit = nmse + (1 + rounded) * storage_nmse(t) * (1 + 4 / (double)n),
           far = 16 * sqrt(rounded * storage_nmse(t)) * largest;
    double rms = sqrt(power / (double)n), tiny = t == FP16 ? 0x1p-24 : 0;
    if (error > limit * power + (double)n * tiny * tiny) {
        snprintf(why, WHY, "%s: normalised mean square error %.3g, allowed %.3g", name,
                 power > 0 ? error / power : error, limit);
        return false;
    }
    // A mean forgives one wrong element among many; this does not. One unit and a half in the last place of storage,
    // and 64 times the root mean square error that the arithmetic may have.
    for (int64_t i = 0; i < n; i++) {
        double g = storage_get(got, t, i),
               allowed = 3 * storage_unit(t) * fabs(want[i]) + 64 * sqrt(nmse) * rms + far + tiny;
        if (fabs(g - want[i]) <= allowed) continue;
        snprintf(why, WHY, "%s[%" PRId64 "] is %.9g, expected %.9g within %.2g", name, i, g, want[i], allowed);
        return false;
    }
    return true;
}
