// trainer/costs/stragglers.c: see trainer/costs/stragglers.h.
#include "trainer/costs/stragglers.h"

#include "base/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Knuth, "The Art of Computer Programming", volume 2, algorithm 3.4.2S: each choice of `left` among the ranks to come
// is as likely as any other.
static bool draw(uint64_t seed, int rank, int left, int to_come) {
    uint32_t w[4];
    philox4x32(w, seed, (uint32_t)rank, SITE_FAULT, 0, 1);
    return (uint64_t)w[0] * (uint64_t)to_come < (uint64_t)left << 32;
}

// slow: [pipelines][stages]
static void mark_slow(bool *slow, const grid *g, int devices, uint64_t seed) {
    int world = grid_world(g);
    for (int rank = 0, left = devices; rank < world; rank++) {
        if (!draw(seed, rank, left, world - rank)) continue;
        grid_place p = grid_at(g, rank);
        left--;
        if (!grid_serves(g, rank)) slow[(p.island * g->data + p.data) * g->pipeline + p.stage] = true;
    }
}

static int count_of(const bool *set, int stages) {
    int n = 0;
    for (int s = 0; s < stages; s++) n += set[s];
    return n;
}

static bool is_part(const bool *set, const bool *of, int stages) {
    for (int s = 0; s < stages; s++)
        if (set[s] && !of[s]) return false;
    return true;
}

static void keep(straggler_sets *out, const bool *set) {
    size_t n = (size_t)out->stages;
    for (int i = 0; i < out->count; i++)
        if (is_part(set, &out->slow[(size_t)i * n], out->stages)) return;
    if (out->count < STRAGGLER_SETS) memcpy(&out->slow[(size_t)out->count++ * n], set, n);
}

err_t stragglers_draw(straggler_sets *out, const grid *g, double share, uint64_t seed) {
    int pipelines = grid_islands(g) * g->data, stages = g->pipeline;
    *out = (straggler_sets){.devices = (int)floor(share * grid_world(g) + 0.5), .stages = stages};
    bool *all = calloc((size_t)pipelines * (size_t)stages, sizeof *all);
    out->slow = calloc(STRAGGLER_SETS * (size_t)stages, sizeof *out->slow);
    if (!all || !out->slow) {
        free(all), stragglers_free(out);
        return err_set(ERR_INTERNAL, "no memory for the stages of %d pipelines", pipelines);
    }
    mark_slow(all, g, out->devices, seed);
    for (int n = stages; n > 0; n--)
        for (int p = 0; p < pipelines; p++)
            if (count_of(&all[(size_t)p * (size_t)stages], stages) == n) keep(out, &all[(size_t)p * (size_t)stages]);
    free(all);
    return ERR_OK;
}

void stragglers_free(straggler_sets *s) {
    free(s->slow);
    *s = (straggler_sets){0};
}
