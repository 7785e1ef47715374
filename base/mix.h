// base/mix.h: numbers folded into one of 64 bits, for tables of what is equal. Two lists that differ have the same
// number with a chance of about 2^-64. It is no hash against adversaries.
#ifndef BASE_MIX_H
#define BASE_MIX_H

#include <stdint.h>

// The order of calls counts. The finaliser is that of splitmix64 (Steele et al. 2014, "Fast splittable pseudorandom
// number generators", figure 15).
static inline uint64_t mix(uint64_t h, uint64_t x) {
    uint64_t z = h * 0x9e3779b97f4a7c15u + x + 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

#endif
