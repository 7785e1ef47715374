// model/rope.c: see model/rope.h. The rounding is that of others' weights: a step in FP32, times a position in FP32,
// its cosine in FP32. At position 100,000 the exact angle would be another one.
#include "model/rope.h"

#include "base/fmath.h"

static const double PI = 3.141592653589793;

static float stretched(const rope *r, float step) {
    double wave = 2 * PI / (double)step, original = (double)r->original;
    if (wave < original / r->high) return step;
    if (wave > original / r->low) return (float)((double)step / r->factor);
    double blend = (original / wave - r->low) / (r->high - r->low);
    return (float)((1 - blend) * (double)step / r->factor + blend * (double)step);
}

bool rope_equal(const rope *a, const rope *b) {
    return a->kind == b->kind && a->theta == b->theta && a->factor == b->factor && a->low == b->low &&
           a->high == b->high && a->original == b->original;
}

float rope_step(const rope *r, int64_t i, int64_t D) {
    float step = (float)fm_exp(-fm_log(r->theta) * (2 * (double)i / (double)D));
    if (r->kind == ROPE_LINEAR) return (float)((double)step / r->factor);
    return r->kind == ROPE_LLAMA3 ? stretched(r, step) : step;
}

void rope_table(const rope *r, int64_t T, int64_t D, float *table) {
    for (int64_t i = 0; i < D / 2; i++) {
        float step = rope_step(r, i, D);
        for (int64_t t = 0; t < T; t++) {
            double angle = (double)((float)t * step);
            table[t * D + i] = (float)fm_cos(angle), table[t * D + D / 2 + i] = (float)fm_sin(angle);
        }
    }
}
