// test/support/pairs.h: the arithmetic of [precision] products = bf16-pairs as it is specified (gpu/README.md), written
// here again on purpose, and numbers at which it would show if it were another.
#ifndef TEST_SUPPORT_PAIRS_H
#define TEST_SUPPORT_PAIRS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

// x as an operand of pairs: rounded to BF16, to nearest even; a denormal number is a zero.
static inline float operand(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (fabsf(x) < 0x1p-126f) return copysignf(0, x);
    if (x == x) bits += 0x7fff + (bits >> 16 & 1);
    bits &= 0xffff0000u;
    if (x != x) bits |= 0x400000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// a*b + c, rounded as if exponents had no lower end; what is then below 2^-126 is a zero. A result of just 2^-126 is
// looked at 2^24 times as large; if a becomes infinite by that, b is 0, and the result was exact.
static inline float step(float a, float b, float c) {
    float r = fmaf(a, b, c);
    if (!(fabsf(r) <= 0x1p-126f)) return r;
    if (fabsf(r) == 0x1p-126f && !(fabsf(fmaf(a * 0x1p24f, b, c * 0x1p24f)) < 0x1p-102f)) return r;
    return copysignf(0, r);
}

// What operands are made of.
typedef enum fill {
    FILL_USUAL,   // near 1
    FILL_ANY,     // any finite number
    FILL_TINY,    // products around 2^-126
    FILL_EDGE,    // sums that are just at 2^-126
    FILL_ODD,     // zeros of both signs, denormals, the largest
    FILL_BROKEN,  // now and then infinite, or not a number
    FILLS,
} fill;

// A number of that kind, from three random words; usual: one near 1.
static inline float number_of(fill kind, uint32_t x, uint32_t y, float usual) {
    static const uint32_t odd[] = {0,        0x80000000u, 1,          0x80000001u, 0x7fffff, 0x807f8000u,
                                   0x800000, 0x80800000u, 0x7f7fffff, 0xff7f0000u, 0x7f8000, 0x3f800000};
    uint32_t part = (x & 0x7fffffu) | (x >> 31) << 31, bits = 0;
    if (kind == FILL_USUAL || (kind == FILL_BROKEN && y % 997)) return usual;
    if (kind == FILL_BROKEN) bits = 0x7f800000u | (x & 0x80400000u);
    if (kind == FILL_ANY) bits = x % 0x7f800000u | (y & 0x80000000u);
    if (kind == FILL_TINY) bits = part | (56 + y % 16) << 23;
    if (kind == FILL_EDGE)
        bits = (part & (y & 3 ? 0x80000000u : 0x80070000u)) | (64 - (y >> 2) % 26 * (y >> 8 & 1)) << 23;
    if (kind == FILL_ODD) bits = y & 7 ? odd[x % (sizeof odd / sizeof *odd)] : part | (60 + (y >> 3) % 80) << 23;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

#endif
