// data/sampler.c: a shuffle that is computed, not stored. A permutation of any size, keyed by seed and epoch, answers
// "which sample comes at position n?" in constant memory, so resuming, splitting over ranks and looking ahead are
// arithmetic.
//
// [0,W) is part of the square [0,a) x [0,a), a = ceil(sqrt(W)). A Feistel network with addition mod a permutes the
// square (Luby & Rackoff 1988; mod a: Black & Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002, section
// 5), and walking along its cycles until the value is below W again makes a permutation of [0,W) (section 3 there). The
// square exceeds W by less than 2 sqrt(W) + 1, so the walk is nearly always one step.
#include "data/sampler.h"

#include "base/philox.h"

enum { ROUNDS = 8 };  // 4 give a pseudorandom permutation of a large domain; small ones need more to mix

// Smallest a with a*a >= w, bit by bit.  w <= 2^63, so a < 2^32 and a*a fits.
static uint64_t root_up(uint64_t w) {
    uint64_t a = 0;
    for (uint64_t bit = UINT64_C(1) << 31; bit; bit >>= 1)
        if ((a + bit) * (a + bit) < w) a += bit;
    return a + 1;  // a was the largest with a*a < w
}

// One pass of the network over x in [0,a*a). Counter: the half, site, round, epoch (32 bits of it, which no run
// exceeds).
static uint64_t feistel(uint64_t x, uint64_t a, uint64_t seed, uint32_t epoch) {
    uint64_t left = x / a, right = x % a;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t r[4];
        philox4x32(r, seed, (uint32_t)right, SITE_SHUFFLE, round, epoch);
        uint64_t next = (left + ((uint64_t)r[1] << 32 | r[0]) % a) % a;
        left = right;
        right = next;
    }
    return left * a + right;
}

int64_t sampler_at(uint64_t seed, int64_t n, int64_t W, bool shuffle) {
    if (W <= 1) return 0;
    uint64_t x = (uint64_t)(n % W), a = root_up((uint64_t)W);
    if (!shuffle) return (int64_t)x;
    do x = feistel(x, a, seed, (uint32_t)(n / W));
    while (x >= (uint64_t)W);
    return (int64_t)x;
}
