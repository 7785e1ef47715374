// data/sampler.h: the order in which samples are visited. It is computed, never stored.
#ifndef DATA_SAMPLER_H
#define DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

// Position n (from 0) of a run over W samples visits sample perm(seed, n / W)[n % W]: a keyed permutation of [0,W) for
// each epoch, evaluated by a Feistel network with cycle walking; n % W itself when not shuffled.
int64_t sampler_at(uint64_t seed, int64_t n, int64_t W, bool shuffle);

#endif
