// test/fuzz/driver.c: runs a fuzz target without libFuzzer: its own seeds, mutated by a seeded generator, for a bounded
// time or count. Coverage is not followed; what it finds it finds again, since input k depends on the seed and k alone.
// `make fuzz` uses libFuzzer where clang has it.
//
// Every seed is something valid, and the target must find it so: mutations of what is refused at its first byte would
// reach nothing. A run in which no mutated input was tried has failed.
//
//   fuzz_shard [seconds [first input number [say]]]    say: the number of each input before it is tried
#include "base/philox.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

enum { SEEDS = 16, LARGEST = 1 << 16 };

typedef struct corpus {
    uint8_t *bytes[SEEDS];
    size_t size[SEEDS];
    int count, dropped;
} corpus;

static void keep(void *ctx, const uint8_t *bytes, size_t n) {
    corpus *c = ctx;
    if (c->count == SEEDS || n > LARGEST) {
        c->dropped++;
        return;
    }
    c->bytes[c->count] = malloc(n + 1);
    memcpy(c->bytes[c->count], bytes, n);
    c->size[c->count++] = n;
}

typedef struct dice {
    uint64_t input;
    uint32_t roll, word[4];
} dice;

static uint32_t roll(dice *d, uint32_t sides) {
    if (d->roll % 4 == 0)
        philox4x32(d->word, 20, d->roll / 4, SITE_FAULT, (uint32_t)d->input, (uint32_t)(d->input >> 32));
    return sides ? d->word[d->roll++ % 4] % sides : 0;
}

static void write_number(dice *d, uint8_t *at, size_t room) {
    static const uint64_t edges[] = {0,         1,          0x7F,        0x80,        0xFF,      0x7FFF,
                                     0xFFFF,    0x7FFFFFFF, 0x80000000u, 0xFFFFFFFFu, INT64_MAX, (uint64_t)INT64_MIN,
                                     UINT64_MAX};
    uint64_t v = edges[roll(d, sizeof edges / sizeof *edges)];
    size_t n = (size_t)1 << roll(d, 4);
    memcpy(at, &v, n < room ? n : room);
}

static size_t mutate(dice *d, uint8_t *b, size_t n) {
    uint32_t at = roll(d, (uint32_t)n), other = roll(d, (uint32_t)n), length = 1 + roll(d, 16);
    switch (roll(d, 7)) {
    case 0:
        if (n) b[at] ^= (uint8_t)(1u << roll(d, 8));
        return n;
    case 1:
        if (n) b[at] = (uint8_t)roll(d, 256);
        return n;
    case 2:
        if (n) write_number(d, b + at, n - at);
        return n;
    case 3: return at;  // cut
    case 4:             // take out
        if (at + length > n) return n;
        memmove(b + at, b + at + length, n - at - length);
        return n - length;
    case 5:  // put in what stands elsewhere
        if (n + length > LARGEST || other + length > n) return n;
        memmove(b + at + length, b + at, n - at);
        memmove(b + at, b + (other >= at ? other + length : other), length);
        return n + length;
    default:
        if (n + length > LARGEST) return n;
        for (uint32_t i = 0; i < length; i++) b[n + i] = (uint8_t)roll(d, 256);
        return n + length;
    }
}

// The target's seeds, all of which must be there, fit and be accepted.
static bool plant(corpus *c) {
    bool made = lockstep_fuzz_seeds(keep, c) == 0, well = made && c->count > 0 && c->dropped == 0;
    if (!well)
        fprintf(stderr, "seeds: %d kept, %d too many or too large%s\n", c->count, c->dropped,
                made ? "" : ", others could not be made");
    for (int i = 0; i < c->count; i++) {
        if (lockstep_fuzz_try(c->bytes[i], c->size[i])) continue;
        fprintf(stderr, "seed %d, of %zu bytes, is refused: expected something valid\n", i, c->size[i]);
        well = false;
    }
    return well;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 5;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 0, k = first;
    static uint8_t input[LARGEST + 64];
    corpus c = {0};
    bool well = plant(&c);
    fprintf(stderr, "from input %llu\n", (unsigned long long)first);
    for (clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC); well && clock() < end; k++) {
        dice d = {.input = k};
        int seed = (int)roll(&d, (uint32_t)c.count);
        size_t n = c.size[seed];
        memcpy(input, c.bytes[seed], n);
        for (uint32_t i = 1 + roll(&d, 6); i; i--) n = mutate(&d, input, n);
        uint8_t *exact = malloc(n ? n : 1);  // of its own size, so that the sanitizer sees a byte too far
        memcpy(exact, input, n);
        if (argc > 3) fprintf(stderr, "input %llu\n", (unsigned long long)k);
        lockstep_fuzz_try(exact, n);
        free(exact);
    }
    for (int i = 0; i < c.count; i++) free(c.bytes[i]);
    well = well && k > first;
    printf("%llu inputs\n%d passed, %d failed\n", (unsigned long long)(k - first), well, !well);
    return !well;
}
