// test/ops/special_variants.c: what an argument adds to an operation is, where it adds nothing, the operation as it
// was, to the bit.
#include "test/ops/special.h"

#include <math.h>
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
    for (int64_t i = 0; i < N * F; i++)
        storage_set(some, dx->type, i, storage_get(all, dx->type, (i / F * 2 + half) * F + i % F));
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
        tensor *dy = random_box(&b, T, N, F, 1, 2), *y = box(&b, T, N, F, NULL), *y2 = box(&b, T, N, F, NULL),
               *dx = box(&b, T, N, 2 * F, NULL);
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

// --- norms whose gain is shift + w -----------------------------------------------------------------------------------

typedef struct norms {
    tensor *x, *dy, *y, *heads, *kept, *rstd, *rstds, *dx, *dw, *dheads, *dhead_w;
} norms;
enum { ROWS = 5, HEADS = 3 };

// Forward and backward of rows, and of heads 1 and 2 of 3.
static norms norms_of(bench *b, dtype T, int64_t D, const tensor *w, float shift) {
    const ops *o = b->f->table;
    stream *s = b->f->s;
    norms n = {.x = random_box(b, T, ROWS, D, 1, 1),
               .dy = random_box(b, T, ROWS, D, 1, 2),
               .heads = random_box(b, T, ROWS, HEADS * D, 1, 3)};
    n.y = box(b, T, ROWS, D, NULL), n.rstd = box(b, FP32, ROWS, 0, NULL), n.dx = box(b, T, ROWS, D, NULL),
    n.dw = box(b, FP32, D, 0, NULL);
    n.kept = box(b, T, ROWS, 2 * D, NULL), n.rstds = box(b, FP32, ROWS, 2, NULL);
    n.dheads = random_box(b, T, ROWS, HEADS * D, 1, 4), n.dhead_w = box(b, FP32, D, 0, NULL);
    did(b, o->rms_norm_forward(
               &(rms_norm_forward_args){.y = n.y, .rstd = n.rstd, .x = n.x, .w = w, .eps = 1e-5f, .shift = shift}, s));
    did(b, o->rms_norm_backward(
               &(rms_norm_backward_args){
                   .dx = n.dx, .dw = n.dw, .dy = n.dy, .x = n.x, .w = w, .rstd = n.rstd, .shift = shift, .fresh = true},
               s));
    did(b, o->head_norm_forward(
               &(head_norm_forward_args){
                   .x = n.heads, .kept = n.kept, .rstd = n.rstds, .w = w, .first = 1, .eps = 1e-5f, .shift = shift},
               s));
    did(b, o->head_norm_backward(&(head_norm_backward_args){.dx = n.dheads,
                                                            .dw = n.dhead_w,
                                                            .kept = n.kept,
                                                            .rstd = n.rstds,
                                                            .w = w,
                                                            .first = 1,
                                                            .shift = shift,
                                                            .fresh = true},
                                 s));
    return n;
}

// Weights of which the type holds 1 + w.
bool shift_is_part_of_the_gain(const fixture *f, char why[WHY]) {
    bool ok = true;
    for (int k = 0; k < 9 && ok; k++) {
        bench b = {.f = f, .ok = true, .why = why};
        dtype T = compute_types[k % 3];
        int64_t D = (const int64_t[]){67, 64, 4104}[k / 3];  // odd, packs of 16 bytes, longer than one pass of backward
        void *w = filled(T, D, 0), *gain = filled(T, D, 0);
        for (int64_t i = 0; i < D; i++)
            storage_set(w, T, i, (double)(i % 17 - 8) / 8), storage_set(gain, T, i, 1 + (double)(i % 17 - 8) / 8);
        norms a = norms_of(&b, T, D, box(&b, T, D, 0, w), 1), c = norms_of(&b, T, D, box(&b, T, D, 0, gain), 0);
        free(w), free(gain);
        expect_same(&b, "rms_norm by 1 + w against the sum", a.y, c.y);
        expect_same(&b, "its dx", a.dx, c.dx);
        expect_same(&b, "its dw", a.dw, c.dw);
        expect_same(&b, "head_norm by 1 + w against the sum", a.heads, c.heads);
        expect_same(&b, "its dx", a.dheads, c.dheads);
        expect_same(&b, "its dw", a.dhead_w, c.dhead_w);
        ok = done(&b);
    }
    return ok;
}

// Each result is a zero of the sign that x does not have.
static void expect_turned_zeros(bench *b, const char *what, const tensor *y, const tensor *x, int64_t from) {
    void *p = take(b, y), *q = take(b, x);
    int64_t row = y->size[1], width = x->size[1];
    for (int64_t i = 0; b->ok && i < tensor_count(x); i++) {
        double is = storage_get(p, y->type, i / width * row + from + i % width), was = storage_get(q, x->type, i);
        if (is != 0 || (bool)signbit(is) == (bool)signbit(was))
            say(b, "%s: element %d: %g times -0 is %g", what, (int)i, was, is);
    }
    free(p), free(q);
}

bool no_shift_leaves_minus_zero(const fixture *f, char why[WHY]) {
    bool ok = true;
    for (int k = 0; k < 6 && ok; k++) {
        bench b = {.f = f, .ok = true, .why = why};
        dtype T = compute_types[k % 3];
        int64_t D = k < 3 ? 67 : 64;
        void *w = filled(T, D, -0.0);
        norms n = norms_of(&b, T, D, box(&b, T, D, 0, w), 0);
        free(w);
        expect_turned_zeros(&b, "rms_norm", n.y, n.x, 0);
        expect_turned_zeros(&b, "head_norm", n.heads, n.kept, D);
        ok = done(&b);
    }
    return ok;
}

// --- embedding -------------------------------------------------------------------------------------------------------

enum { SAMPLES = 3, TIME = 5, WORDS = 11, FIRST = 3, PART = 5 };

// Of a table, all of it or rows FIRST .. FIRST+PART-1: x[0] by a factor of 4, x[1] of a table whose numbers are four
// times as large.
static void embed_both(bench *b, tensor *x[2], const tensor *tokens, const tensor *wpe, int64_t rows, int64_t C) {
    dtype T = x[0]->type;
    void *w = random_values(T, rows * C, 1, 1), *w4 = filled(T, rows * C, 0);
    for (int64_t i = 0; i < rows * C; i++) storage_set(w4, T, i, 4 * storage_get(w, T, i));
    const tensor *table[] = {box(b, T, rows, C, w), box(b, T, rows, C, w4)};
    for (int i = 0; i < 2; i++) {
        tensor y = view3(x[i], SAMPLES, TIME, C);
        bool part = rows == PART;
        embedding_forward_args args = {
            .x = &y, .tokens = tokens, .wte = table[i], .wpe = wpe, .factor = i ? 1 : 4, .part = part};
        args.first = part ? FIRST : 0;
        did(b, b->f->table->embedding_forward(&args, b->f->s));
    }
    free(w), free(w4);
}

static tensor *embed_back(bench *b, tensor *dwpe, const tensor *dx, const tensor *tokens, int64_t rows, float factor) {
    int64_t C = dx->size[1];
    tensor x = view3(dx, SAMPLES, TIME, C), *dwte = box(b, FP32, rows, C, NULL),
           *scratch = box(b, INT32, SAMPLES * TIME + rows + 1, 0, NULL);
    embedding_backward_args args = {
        .dwte = dwte, .dwpe = dwpe, .scratch = scratch, .dx = &x, .tokens = tokens, .factor = factor};
    args.part = rows == PART, args.first = args.part ? FIRST : 0;
    did(b, b->f->table->embedding_backward(&args, b->f->s));
    return dwte;
}

static void expect_four_times(bench *b, const char *what, const tensor *large, const tensor *small) {
    float *p = take(b, large), *q = take(b, small);
    for (int64_t i = 0; i < tensor_count(small); i++)
        if (p[i] != 4 * q[i])
            say(b, "%s: element %d: %.9g is not four times %.9g", what, (int)i, (double)p[i], (double)q[i]);
    free(p), free(q);
}

bool a_factor_is_part_of_the_table(const fixture *f, char why[WHY]) {
    bool ok = true;
    for (int k = 0; k < 24 && ok; k++) {
        bench b = {.f = f, .ok = true, .why = why};
        dtype T = compute_types[k % 3];
        int64_t rows = k / 3 % 2 ? PART : WORDS, C = k < 12 ? 37 : 64;
        int32_t token[SAMPLES * TIME];
        for (int i = 0; i < SAMPLES * TIME; i++) token[i] = i * 7 % WORDS;
        tensor *wpe = k / 6 % 2 ? random_box(&b, T, TIME, C, 1, 2) : NULL,
               *tokens = box(&b, INT32, SAMPLES, TIME, token);
        tensor *x[] = {box(&b, T, SAMPLES * TIME, C, NULL), box(&b, T, SAMPLES * TIME, C, NULL)};
        embed_both(&b, x, tokens, wpe, rows, C);
        expect_same(&b, "embedding by a factor against a larger table", x[0], x[1]);
        tensor *dx = random_box(&b, T, SAMPLES * TIME, C, 1, 3),
               *dwpe[] = {box(&b, FP32, TIME, C, NULL), box(&b, FP32, TIME, C, NULL)};
        tensor *four = embed_back(&b, dwpe[0], dx, tokens, rows, 4),
               *one = embed_back(&b, dwpe[1], dx, tokens, rows, 1);
        expect_four_times(&b, "gradient of the table", four, one);
        expect_same(&b, "gradient of the positions, which have no factor", dwpe[0], dwpe[1]);
        ok = done(&b);
    }
    return ok;
}
