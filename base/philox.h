// base/philox.h: random numbers without state. philox4x32-10 maps a 64-bit key and a 128-bit counter to 128 random bits
// (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3 and table 2).
//
// Every random number in lockstep is keyed by what it is for, never by which rank or thread computes it:
//   key     = seed
//   counter = { element / 4, site, sample, step }      element % 4 picks the word
#ifndef BASE_PHILOX_H
#define BASE_PHILOX_H

#include <stdint.h>

// Sites: the third axis of the key. Layers add their index to a dropout site.
enum {
    SITE_MIX = 0x08000000,      // element = part of a mix of data: makes its own key, sample = step = 0
    SITE_INIT = 0x10000000,     // sample = index in the parameter table, step = 0
    SITE_SHUFFLE = 0x20000000,  // sample = Feistel round, step = epoch
    SITE_SAMPLE = 0x30000000,   // text generation: sample = step of the weights, step = token number
    SITE_FAULT = 0x40000000,    // seeded fault points
    SITE_DROPOUT = 0x50000000,  // + 8 * block + which
    SITE_ADAPTER = 0x58000000,  // + (64 * block + adapter) * 1024 + slice: dropout before an adapter
    SITE_MADE_UP = 0x70000000,  // benchmarks' samples: sample = input
    // stochastic rounding: + index in the parameter table, sample = element / 2^34, step = Adam's t
    SITE_ROUND = 0x60000000,
    SITE_MASK =
        0x01000000,  // masked tokens: element = position, sample and step = halves of n or of the sample's number
    SITE_SPANS = 0x06000000,    // spans of a text: element = place, sample and step as SITE_MASK's
    SITE_VIEW = 0x04000000,     // what is seen of an image: sample and step = halves of n or of the sample's number
    SITE_STORIES = 0x02000000,  // stories: element = choice, sample, step = number of the story
    // made-up clicks: element = draw, sample and step = halves of the record; + 1 + kind: element and sample = a
    // parameter of the planted model
    SITE_CLICKS = 0x03000000,
    SITE_RATINGS = 0x07000000,  // made-up ratings: as SITE_CLICKS
    SITE_TABLE = 0x05000000,    // + table: element of a row that is made on demand, sample and step = halves of its id
};

#ifndef DEVICE_FN  // kernels make them device functions
#define DEVICE_FN static inline
#endif

DEVICE_FN void philox4x32(uint32_t out[4], uint64_t seed, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

// [0,1) with 24 bits: every value is a float exactly.
DEVICE_FN float philox_uniform(uint32_t bits) { return (float)(bits >> 8) * 0x1p-24f; }

#endif
