// base/nearest.h: numbers to suggest where one does not fit.
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include <stdint.h>

// dst = the divisors of n that are nearest to x: "a or b", below and above, or one of them.
void nearest_divisors(int64_t n, int64_t x, char dst[64]);

// dst = the multiples of m nearest to x, written like that.
void nearest_multiples(int64_t m, int64_t x, char dst[64]);

#endif
