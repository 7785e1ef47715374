// test/ops/special_variants.c: what an argument adds to an operation is, where it adds nothing, the operation as it was, to the bit.
#include "test/ops/special.h"

#include <stdlib.h>

static void *filled(dtype T, int64_t n, double x) {
    void *p = calloc((size_t)n, dtype_bytes(T));
    for (int64_t i = 0; i < n; i++) storage_set(p, T, i, x);
    return p;
}

// Rows of two halves: g, and ones.
static void *gates(dtype T, int64_t N, int64_t F, const void *g) {
    void *x = filled(T, 2 * N * F, 1);
    for (int64_t i = 0; i < N * F; i++) storage_set(x, T, i / F * 2 * F + i % F, storage_get(g, T, i));
    return x;
}

// One half of each row of dx.
static tensor *half_of(bench *b, const tensor *dx, int half) {
    int64_t N = dx->size[0], F = dx->size[1] / 2;
    void *all = take(b, dx), *some = calloc((size_t)(N * F), dtype_bytes(dx->type));
    for (int64_t i = 0; i < N * F; i++) storage_set(some, dx->type, i, storage_get(all, dx->type, (i / F * 2 + half) * F + i % F));
    tensor *x = box(b, dx->type, N, F, some);
    free(all), free(some);
    return x;
}

bool geglu_is_gelu(const fixture *f, char why[WHY]) {
    bool ok = true;
    for (int k = 0; k < 6 && ok; k++) {
        bench b = {.f = f, .ok = true, .why = why};
        const ops *o = f->table;
        dtype T = compute_types[k % 3];
        int64_t N = 5, F = k < 3 ? 67 : 64;  // odd, and packs of 16 bytes
        void *g = random_values(T, N * F, 6, 1), *x = gates(T, N, F, g), *ones = filled(T, N * F, 1);
        tensor *gate = box(&b, T, N, F, g), *both = box(&b, T, N, 2 * F, x), *one = box(&b, T, N, F, ones);
        tensor *dy = random_box(&b, T, N, F, 1, 2), *y = box(&b, T, N, F, NULL), *y2 = box(&b, T, N, F, NULL), *dx = box(&b, T, N, 2 * F, NULL);
        free(g), free(x), free(ones);
        did(&b, o->geglu_forward(&(geglu_forward_args){.y = y, .x = both}, f->s));
        did(&b, o->gelu_forward(&(gelu_forward_args){.y = y2, .x = gate}, f->s));
        expect_same(&b, "gelu(gate) * 1 against gelu", y, y2);
        did(&b, o->geglu_backward(&(geglu_backward_args){.dx = dx, .dy = one, .x = both}, f->s));
        expect_same(&b, "its gradient with respect to up against gelu", half_of(&b, dx, 1), y2);
        did(&b, o->geglu_backward(&(geglu_backward_args){.dx = dx, .dy = dy, .x = both}, f->s));
        did(&b, o->gelu_backward(&(gelu_backward_args){.dx = y2, .dy = dy, .x = gate}, f->s));
        expect_same(&b, "its gradient with respect to the gate against gelu's", half_of(&b, dx, 0), y2);
        ok = done(&b);
    }
    return ok;
}
