// base/fmath.c: reduce the argument so that almost all of the result is known exactly, add a short polynomial for the
// rest, and carry the rounding error of the reduction along (the approach of Cody & Waite, "Software manual for the
// elementary functions", 1980, and of Ng's fdlibm). The polynomials are Chebyshev fits at 60 digits.
#include "base/fmath.h"

#include <string.h>

static const double INFINITE = __builtin_inf();

// Highest power first.
static double polynomial(const double *c, int n, double x) {
    double y = c[0];
    for (int i = 1; i < n; i++) y = y * x + c[i];
    return y;
}

// |x| < 2^51 to the nearest integer: there the unit of 1.5 * 2^52 is 1.
static double nearest(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

static double power_of_two(int64_t n) {  // -1023 < n < 1024
    int64_t bits = (n + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// ln 2 = high + low; high has 31 bits, so that k * high is exact for every exponent k.
static const double LN2_HIGH = 0x1.62e42feep-1, LN2_LOW = 0x1.a39ef35793c76p-33;

double fm_exp(double x) {
    if (x != x) return x;
    if (x > 710) return INFINITE;
    if (x < -746) return 0;
    static const double q[] = {0x1.1f732921c514bp-29,
                               0x1.af4e2bbb50609p-26,
                               0x1.27e4db5238e9ap-22,
                               0x1.71de0211bc37ep-19,
                               0x1.a01a01a6de478p-16,
                               0x1.a01a01abf20adp-13,
                               0x1.6c16c16c162cap-10,
                               0x1.11111111100c9p-7,
                               0x1.5555555555556p-5,
                               0x1.5555555555557p-3,
                               0.5};
    double k = nearest(x * 0x1.71547652b82fep0);
    double high = x - k * LN2_HIGH, low = k * LN2_LOW, r = high - low, lost = (high - r) - low;
    double y = 1 + (r + (r * r * polynomial(q, 11, r) + lost));  // e^r = 1 + r + r^2 q(r)
    int64_t n = (int64_t)k, half = n / 2;
    // two steps: exact, then one rounding, also into the denormals
    return y * power_of_two(half) * power_of_two(n - half);
}

double fm_log(double x) {
    if (x == 0) return -INFINITE;
    if (x < 0) return __builtin_nan("");
    if (!(x < INFINITE)) return x;
    int64_t scaled = x < 0x1p-1022 ? 54 : 0, bits;
    double m = scaled ? x * 0x1p54 : x;
    memcpy(&bits, &m, sizeof bits);
    int64_t n = (bits - 0x3fe6a09e667f3bcd) >> 52;  // so that sqrt(1/2) <= m < sqrt(2)
    bits -= n * ((int64_t)1 << 52);
    memcpy(&m, &bits, sizeof m);
    // ln(1+f) = 2 atanh s, s = f / (2+f); 2s = f - s f, and with h = f^2/2: s f = h - s h. Hence f - (h - s (h +
    // rest)).
    static const double r[] = {0x1.0c0951618e529p-3, 0x1.0fbe0a13127a7p-3, 0x1.3b1c3a931a599p-3, 0x1.745cf8ebf8dcep-3,
                               0x1.c71c72019401ap-3, 0x1.2492492476ab7p-2, 0x1.9999999999a38p-2, 0x1.5555555555555p-1};
    double f = m - 1, s = f / (2 + f), z = s * s, h = 0.5 * f * f, rest = z * polynomial(r, 8, z),
           k = (double)(n - scaled);
    return k * LN2_HIGH - ((h - (s * (h + rest) + k * LN2_LOW)) - f);
}

static double cos_near(double r, double lost) {  // |r| <= pi/4
    static const double c[] = {-0x1.907c0e63adbb6p-37, 0x1.1eeb66b683028p-29,  -0x1.27e4fa15bd814p-22,
                               0x1.a01a019f4d0edp-16,  -0x1.6c16c16c16960p-10, 0x1.5555555555555p-5};
    double z = r * r, h = 0.5 * z, w = 1 - h;
    return w + (((1 - w) - h) + (z * z * polynomial(c, 6, z) - r * lost));
}

static double sin_near(double r, double lost) {
    static const double s[] = {-0x1.ab17a79237a19p-41, 0x1.61217ec01749dp-33,  -0x1.ae64541266378p-26,
                               0x1.71de3a54605eep-19,  -0x1.a01a01a019936p-13, 0x1.1111111111110p-7,
                               -0x1.5555555555555p-3};
    double z = r * r;
    return r + (r * z * polynomial(s, 7, z) + lost * (1 - 0.5 * z));
}

// cos(x - turns pi/2)
static double cos_turned(double x, int turns) {
    if (!(x <= 1e6 && x >= -1e6)) return __builtin_nan("");
    // pi/2 in three parts; the first two have 33 bits, so that their products with k, of at most 20, are exact
    double k = nearest(x * 0x1.45f306dc9c883p-1);
    double far = x - k * 0x1.921fb544p0, middle = k * 0x1.0b4611a6p-34, low = k * 0x1.3198a2e037073p-69;
    double a = far - middle, r = a - low, lost = ((far - a) - middle) + ((a - r) - low);
    switch (((int64_t)k - turns) & 3) {
    case 0: return cos_near(r, lost);
    case 1: return -sin_near(r, lost);
    case 2: return -cos_near(r, lost);
    default: return sin_near(r, lost);
    }
}

double fm_cos(double x) { return cos_turned(x, 0); }
double fm_sin(double x) { return cos_turned(x, 1); }

double fm_pow(double x, int64_t n) {
    uint64_t left = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    double y = 1;
    for (; left; left >>= 1, x *= x)
        if (left & 1) y *= x;
    return n < 0 ? 1 / y : y;
}
