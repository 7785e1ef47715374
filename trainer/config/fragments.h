// trainer/config/fragments.h: [outer] fragments: which tensors islands mix how often. Layers that change fast travel
// often and others rarely (layered synchronisation), or all equally often, but not at the same step, so that no step
// needs the whole bandwidth (Streaming DiLoCo: Douillard et al. 2025, arXiv 2501.18512, section 2.1).
//
//     fragments = h.0.*:50 h.1.*:50+25      two layers, 25 steps apart; all else each `every` steps
//
// A tensor belongs to the first pattern that fits its name; those that none fits are one more fragment.
#ifndef TRAINER_CONFIG_FRAGMENTS_H
#define TRAINER_CONFIG_FRAGMENTS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { FRAGMENTS_MOST = 64, FRAGMENT_PATTERN = 96 };

// Due at steps that are offset + a multiple of period.
typedef struct fragment {
    char pattern[FRAGMENT_PATTERN];  // "": what no pattern fits
    int64_t period, offset;
} fragment;

typedef struct fragments {
    int count;  // at least 1: the last one is the rest
    fragment of[FRAGMENTS_MOST + 1];
} fragments;

// every: the rest's period. ERR_CONFIG: says which word is wrong.
err_t fragments_parse(fragments *x, const char *words, int64_t every);

// Which fragment a tensor of this name is in.
int fragments_find(const fragments *x, const char *name);

static inline bool fragment_is_due(const fragment *f, int64_t step) { return step % f->period == f->offset; }

#endif
