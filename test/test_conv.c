// test/test_conv.c: convolutions are the ones that gpu/ops.h and gpu/cpu/kernel/conv.c write down, to the last bit, in
// both arithmetics of [precision] products, on every vector width that this machine has and for any number of threads.
#include "gpu/cpu/kernel/typed.h"
#include "gpu/ops.h"
#include "test/support/pairs.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KC = 384 };  // the specification's, written here again on purpose: it may never change

// --- the specification -----------------------------------------------------------------------------------------------

typedef struct shape {
    int N, H, W, C, K, R, S, stride, pad, groups;
} shape;

static int out_size(int pixels, int taps, const shape *z) { return (pixels + 2 * z->pad - taps) / z->stride + 1; }

// A chain of products, in blocks of KC. Of pairs it keeps the first until it has the second.
typedef struct chain {
    bool pairs;
    float p, sum, a, b;
    int64_t n;
} chain;

static void next(chain *c, float a, float b) {
    if (c->n && c->n % KC == 0) c->sum = c->n == KC ? c->p : c->sum + c->p, c->p = 0;
    if (!c->pairs) c->p = fmaf(a, b, c->p);
    else if (c->n % 2 == 0) c->a = a, c->b = b;
    else c->p = step(c->a, c->b, step(a, b, c->p));
    c->n++;
}
// The last one of a tap, or of all pixels, has a zero beside it, so that the next one begins a pair.
static void even(chain *c) {
    if (c->pairs && c->n % 2) next(c, 0, 0);
}
static float end(chain *c) {
    even(c);
    return c->n == 0 ? 0 : c->n <= KC ? c->p : c->sum + c->p;
}

// Element (n,h,w,c), +0 outside.
static float at(const float *t, int n, int h, int w, int c, int H, int W, int C) {
    return h < 0 || w < 0 || h >= H || w >= W ? 0 : t[(((int64_t)n * H + h) * W + w) * C + c];
}

static float forward_of(bool pairs, const shape *z, const float *x, const float *w, int n, int p, int q, int k) {
    const int Cg = z->C / z->groups, Kg = z->K / z->groups;
    chain a = {.pairs = pairs};
    for (int r = 0; r < z->R; r++)
        for (int s = 0; s < z->S; s++) {
            for (int c = 0; c < Cg; c++)
                next(
                    &a,
                    at(x, n, p * z->stride - z->pad + r, q * z->stride - z->pad + s, k / Kg * Cg + c, z->H, z->W, z->C),
                    w[((k * z->R + r) * z->S + s) * Cg + c]);
            even(&a);
        }
    return end(&a);
}

// Whole multiples of the stride are the taps of this pixel; the quotient may be below 0.
static bool tap_of(int x, int stride, int *place) {
    int rest = (x % stride + stride) % stride;
    *place = (x - rest) / stride;
    return rest == 0;
}

static float inputs_of(bool pairs, const shape *z, const float *dy, const float *w, int n, int h, int v, int c) {
    const int P = out_size(z->H, z->R, z), Q = out_size(z->W, z->S, z), Cg = z->C / z->groups, Kg = z->K / z->groups;
    chain a = {.pairs = pairs};
    for (int r = z->R - 1; r >= 0; r--)
        for (int s = z->S - 1; s >= 0; s--) {
            int p, q;
            if (!tap_of(h + z->pad - r, z->stride, &p) || !tap_of(v + z->pad - s, z->stride, &q)) continue;
            for (int k = 0; k < Kg; k++)
                next(&a, at(dy, n, p, q, c / Cg * Kg + k, P, Q, z->K),
                     w[(((c / Cg * Kg + k) * z->R + r) * z->S + s) * Cg + c % Cg]);
            even(&a);
        }
    return end(&a);
}

static float weights_of(bool pairs, const shape *z, const float *x, const float *dy, int k, int r, int s, int c) {
    const int P = out_size(z->H, z->R, z), Q = out_size(z->W, z->S, z), Cg = z->C / z->groups, Kg = z->K / z->groups;
    chain a = {.pairs = pairs};
    for (int n = 0; n < z->N; n++)
        for (int p = 0; p < P; p++)
            for (int q = 0; q < Q; q++)
                next(&a, dy[(((int64_t)n * P + p) * Q + q) * z->K + k],
                     at(x, n, p * z->stride - z->pad + r, q * z->stride - z->pad + s, k / Kg * Cg + c, z->H, z->W,
                        z->C));
    return end(&a);
}

// --- tensors ---------------------------------------------------------------------------------------------------------

enum { GUARD = 256 };

static tensor guarded(dtype t, int64_t a, int64_t b, int64_t c, int64_t d) {
    tensor x = {NULL, t, 4, {a, b, c, d}};
    char *p = malloc(tensor_bytes(&x) + 2 * GUARD);
    assert_non_null(p);
    memset(p, 0xa5, tensor_bytes(&x) + 2 * GUARD);
    x.data = p + GUARD;
    return x;
}
static void check_guards(const tensor *t) {
    const unsigned char *p = (const unsigned char *)t->data - GUARD,
                        *q = (const unsigned char *)t->data + tensor_bytes(t);
    for (int i = 0; i < GUARD; i++) assert_true(p[i] == 0xa5 && q[i] == 0xa5);
}
static void release(tensor *t) { free((char *)t->data - GUARD); }

static uint32_t seed = 1;
static uint32_t rnd(void) {
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

// Near 1, with zeros of both signs and tiny numbers among them.
static float usual(void) {
    uint32_t kind = rnd() % 16;
    if (kind == 0) return 0;
    if (kind == 1) return -0.0f;
    if (kind == 2) return 1e-22f * (float)((int)(rnd() % 7) - 3);
    return (float)((int)(rnd() % 65536) - 32768) * 0x1p-13f;
}

static void put_numbers(tensor *t, fill kind) {
    for (int64_t i = 0; i < tensor_count(t); i++) {
        uint32_t x = rnd() << 16 ^ rnd(), y = rnd() << 16 ^ rnd();
        typed_set(t->data, t->type, i, number_of(kind, x, y, usual()));
    }
}

// As operands.
static float *floats(const tensor *t, bool pairs) {
    float *p = malloc((size_t)tensor_count(t) * sizeof *p);
    assert_non_null(p);
    for (int64_t i = 0; i < tensor_count(t); i++) {
        p[i] = typed_get(t->data, t->type, i);
        if (pairs) p[i] = operand(p[i]);
    }
    return p;
}
static tensor copy_of(const tensor *t) {
    tensor x = guarded(t->type, t->size[0], t->size[1], t->size[2], t->size[3]);
    memcpy(x.data, t->data, tensor_bytes(t));
    return x;
}

// --- a case ----------------------------------------------------------------------------------------------------------

enum { FIXTURES = 15 };
typedef struct fixture {
    bool pairs;
    int count;
    device *dev[FIXTURES];
    stream *s[FIXTURES];
} fixture;

// Tensors, and what they must become: of y and dx also with a residual, which is what they held before.
typedef struct problem {
    shape z;
    bool pairs, fresh, residual;
    tensor x, w, dy, y, dx, dw;  // the last three before
    tensor want_y, want_dx, want_dw;
} problem;

// kind: of filters, and, where all are to have it, of the others.
static problem make(bool pairs, shape z, dtype t, fill kind, bool all) {
    const fill others = all ? kind : FILL_USUAL;
    const int P = out_size(z.H, z.R, &z), Q = out_size(z.W, z.S, &z), Cg = z.C / z.groups;
    problem p = {.z = z, .pairs = pairs, .fresh = rnd() % 2, .residual = rnd() % 3 == 0};
    p.x = guarded(t, z.N, z.H, z.W, z.C), p.w = guarded(t, z.K, z.R, z.S, Cg), p.dy = guarded(t, z.N, P, Q, z.K);
    put_numbers(&p.x, others), put_numbers(&p.w, kind), put_numbers(&p.dy, others);
    p.y = copy_of(&p.dy), p.dx = copy_of(&p.x), p.dw = guarded(FP32, z.K, z.R, z.S, Cg);
    put_numbers(&p.y, FILL_USUAL), put_numbers(&p.dx, FILL_USUAL), put_numbers(&p.dw, FILL_USUAL);
    p.want_y = copy_of(&p.y), p.want_dx = copy_of(&p.dx), p.want_dw = copy_of(&p.dw);
    return p;
}
static void drop(problem *p) {
    tensor *all[] = {&p->x, &p->w, &p->dy, &p->y, &p->dx, &p->dw, &p->want_y, &p->want_dx, &p->want_dw};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) release(all[i]);
}

static void specify(problem *p) {
    const shape *z = &p->z;
    float *x = floats(&p->x, p->pairs), *w = floats(&p->w, p->pairs), *dy = floats(&p->dy, p->pairs);
    const int64_t *y = p->y.size;
    int64_t i = 0;
    for (int n = 0; n < z->N; n++)
        for (int h = 0; h < y[1]; h++)
            for (int v = 0; v < y[2]; v++)
                for (int k = 0; k < z->K; k++, i++) {
                    float sum = forward_of(p->pairs, z, x, w, n, h, v, k);
                    if (p->residual) sum += typed_get(p->y.data, p->y.type, i);
                    typed_set(p->want_y.data, p->y.type, i, sum);
                }
    i = 0;
    for (int n = 0; n < z->N; n++)
        for (int h = 0; h < z->H; h++)
            for (int v = 0; v < z->W; v++)
                for (int c = 0; c < z->C; c++, i++) {
                    float sum = inputs_of(p->pairs, z, dy, w, n, h, v, c);
                    if (p->residual) sum += typed_get(p->dx.data, p->dx.type, i);
                    typed_set(p->want_dx.data, p->dx.type, i, sum);
                }
    i = 0;
    for (int k = 0; k < z->K; k++)
        for (int r = 0; r < z->R; r++)
            for (int s = 0; s < z->S; s++)
                for (int c = 0; c < z->C / z->groups; c++, i++) {
                    float sum = weights_of(p->pairs, z, x, dy, k, r, s, c), *to = (float *)p->want_dw.data + i;
                    *to = p->fresh ? sum : *to + sum;
                }
    free(x), free(w), free(dy);
}

// Compares and frees. A NaN is one, whichever.
static void check_same(const fixture *f, int which, const problem *p, const char *what, tensor *got,
                       const tensor *want) {
    const shape *z = &p->z;
    const size_t e = dtype_bytes(want->type);
    check_guards(got);
    for (int64_t i = 0; i < tensor_count(want); i++) {
        float x = typed_get(got->data, got->type, i), y = typed_get(want->data, want->type, i);
        if (!memcmp((char *)got->data + (size_t)i * e, (char *)want->data + (size_t)i * e, e) || (x != x && y != y))
            continue;
        fail_msg("%s, %s: %s[%" PRId64
                 "] of %s images %dx%dx%dx%d, filters %d of %dx%d, stride %d, pad %d, groups %d: got "
                 "%.9g, specified %.9g",
                 device_about(f->dev[which])->name, f->pairs ? "pairs" : "fp32", what, i, dtype_name(p->x.type), z->N,
                 z->H, z->W, z->C, z->K, z->R, z->S, z->stride, z->pad, z->groups, (double)x, (double)y);
    }
    release(got);
}

static void run_case(const fixture *f, int which, const problem *p) {
    const ops *o = device_ops(f->dev[which]);
    const shape *z = &p->z;
    tensor y = copy_of(&p->y), dx = copy_of(&p->dx), dw = copy_of(&p->dw);
    conv_forward_args forward = {&y, &p->x, &p->w, p->residual ? &y : NULL, z->stride, z->pad, z->groups};
    conv_inputs_args inputs = {&dx, &p->dy, &p->w, p->residual ? &dx : NULL, z->stride, z->pad, z->groups};
    conv_weights_args weights = {&dw, &p->dy, &p->x, z->stride, z->pad, z->groups, p->fresh};
    assert_int_equal(o->conv_forward(&forward, f->s[which]), ERR_OK);
    assert_int_equal(o->conv_inputs(&inputs, f->s[which]), ERR_OK);
    assert_int_equal(o->conv_weights(&weights, f->s[which]), ERR_OK);
    check_same(f, which, p, "y", &y, &p->want_y);
    check_same(f, which, p, "dx", &dx, &p->want_dx);
    check_same(f, which, p, "dw", &dw, &p->want_dw);
}

static void check_filled(const fixture *f, shape z, dtype t, fill kind, bool all) {
    problem p = make(f->pairs, z, t, kind, all);
    specify(&p);
    for (int i = 0; i < f->count; i++) run_case(f, i, &p);
    drop(&p);
}

static void check_case(const fixture *f, shape z, dtype t) { check_filled(f, z, t, FILL_USUAL, false); }

// --- tests -----------------------------------------------------------------------------------------------------------

static const dtype types[] = {FP32, BF16, FP16};

// Pairs are of BF16 numbers, stored or rounded: there are none of FP16.
static int types_of(const fixture *f) { return f->pairs ? 2 : 3; }

// Ragged shapes: 1 to 7 taps, strides 1 to 3, borders of 0 to 4, groups, one filter a channel.
static void specified_bits(void **state) {
    static const int taps[] = {1, 3, 5, 7, 2}, channels[] = {1, 3, 4, 8, 16, 17, 20, 32, 48, 64, 70, 80, 130, 5};
    for (int done = 0; done < 120;) {
        shape z = {1 + (int)(rnd() % 3),  1 + (int)(rnd() % 13),
                   1 + (int)(rnd() % 15), channels[rnd() % 14],
                   channels[rnd() % 14],  taps[rnd() % 5],
                   taps[rnd() % 5],       1 + (int)(rnd() % 3),
                   (int)(rnd() % 5),      1};
        if (rnd() % 4 == 0) z.S = z.R;
        if (rnd() % 4 == 0)
            z.groups = 1 + (int)(rnd() % 4), z.C = (z.C / 4 + 1) * z.groups, z.K = (z.K / 4 + 1) * z.groups;
        if (rnd() % 16 == 0) z.groups = z.K = z.C;
        if (z.H + 2 * z.pad < z.R || z.W + 2 * z.pad < z.S) continue;
        if ((int64_t)z.N * z.H * z.W * z.C / z.groups * z.K * z.R * z.S > 12000000) continue;
        check_filled(*state, z, types[done % types_of(*state)], done % 5 == 0 ? FILL_BROKEN : FILL_USUAL, false);
        done++;
    }
}

// What a plan decides by size: gradients of weights by blocks or by panels, inputs and dy where they lie or packed,
// short last blocks, parts of panels, several images in a band.
static void ways_through_the_plan(void **state) {
    static const shape cases[] = {
        {1, 20, 21, 16, 8, 3, 3, 1, 1, 1},     // a short block after the first
        {3, 13, 12, 48, 16, 1, 1, 1, 0, 1},    // 468 pixels: 384 and 84
        {9, 7, 7, 64, 40, 1, 1, 1, 0, 1},      // images smaller than a band
        {2, 10, 10, 272, 264, 1, 1, 1, 0, 1},  // wide pixels, too many weights for blocks apart
        {2, 10, 10, 144, 456, 1, 1, 2, 0, 1},  // the same where inputs stay, stride 2
        {1, 22, 20, 16, 456, 3, 3, 1, 1, 1},   // 440 pixels in one block, shared
        {1, 6, 6, 64, 1032, 1, 1, 1, 0, 1},    // more filters than are read where they lie
        {1, 3, 300, 3, 17, 3, 3, 1, 1, 1},     // rows longer than a band
        {1, 4, 4, 1, 1, 4, 4, 1, 0, 1},        // one result
        {2, 1, 1, 390, 33, 1, 1, 1, 0, 1},     // one pixel, two blocks of sums
        {2, 5, 5, 96, 20, 3, 3, 1, 1, 1},      // taps of 288 products: blocks end within one
        {1, 4, 5, 6, 4, 1, 1, 1, 3, 1},        // more border than image
        {2, 7, 9, 128, 64, 3, 3, 2, 1, 4},
        {2, 5, 7, 43, 31, 3, 3, 1, 1, 1},   // an odd channel in each of the taps of several blocks
        {1, 9, 43, 12, 18, 1, 1, 1, 0, 2},  // an odd number of pixels, two blocks
        {3, 5, 5, 15, 21, 1, 1, 1, 0, 3},   // pixels of odd channels, of which a group has an odd part
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int t = 0; t < types_of(*state); t++) check_case(*state, cases[i], types[t]);
}

// More blocks than wait at a time, and too many products to specify all: some are, and every width must agree.
static void many_pixels(void **state) {
    const fixture *f = *state;
    const shape z = {1, 160, 158, 64, 64, 1, 1, 1, 0, 1}, wide = {1, 157, 158, 1024, 64, 1, 1, 1, 0, 1};
    const shape *all[] = {&z, &wide};
    for (int k = 0; k < 2; k++) {
        problem p = make(f->pairs, *all[k], k ? BF16 : FP32, FILL_USUAL, false);
        float *x = floats(&p.x, f->pairs), *dy = floats(&p.dy, f->pairs);
        p.fresh = k;
        for (int i = 0; i < f->count; i++) {
            if (strstr(device_about(f->dev[i])->name, "portable") && f->count > 3) continue;
            tensor dw = copy_of(&p.dw);
            conv_weights_args weights = {&dw, &p.dy, &p.x, 1, 0, 1, p.fresh};
            assert_int_equal(device_ops(f->dev[i])->conv_weights(&weights, f->s[i]), ERR_OK);
            for (int probe = 0; probe < 8; probe++) {
                int filter = (int)(rnd() % 64), c = (int)(rnd() % (uint32_t)all[k]->C), place = filter * all[k]->C + c;
                float sum = weights_of(f->pairs, all[k], x, dy, filter, 0, 0, c), before = ((float *)p.dw.data)[place];
                ((float *)p.want_dw.data)[place] = p.fresh ? sum : before + sum;
                assert_memory_equal((float *)dw.data + place, (float *)p.want_dw.data + place, sizeof(float));
            }
            check_guards(&dw);
            release(&dw);
        }
        free(x), free(dy);
        drop(&p);
    }
}

// Numbers for which it matters what is flushed, and when; zeros of both signs, cancellation, infinity and NaN.
static void edges(void **state) {
    static const shape cases[] = {{2, 5, 6, 7, 9, 3, 3, 1, 1, 1},
                                  {1, 21, 20, 6, 20, 1, 1, 1, 0, 1},
                                  {2, 6, 5, 48, 70, 2, 3, 2, 1, 1},
                                  {2, 7, 8, 10, 30, 3, 3, 2, 1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int t = 0; t < 2; t++)
            for (int kind = 0; kind < FILLS; kind++) check_filled(*state, cases[i], types[t], (fill)kind, true);
}

// A convolution of pairs leaves the processor's mode as it was, on every thread: products of denormals in FP32, by the
// same threads, are what they were before.
static void mode_is_left_alone(void **state) {
    const fixture *f = *state;
    const shape z = {2, 20, 21, 3, 40, 1, 1, 1, 0, 1};
    device *plain_device;
    stream *plain;
    problem p = make(true, z, FP32, FILL_TINY, true);
    specify(&p);
    assert_int_equal(device_open(&plain_device, &(device_options){.kind = DEVICE_CPU, .threads = 1}), ERR_OK);
    assert_int_equal(stream_open(plain_device, &plain), ERR_OK);
    tensor y = copy_of(&p.y), want = copy_of(&p.y);
    assert_int_equal(
        device_ops(plain_device)
            ->conv_forward(&(conv_forward_args){&want, &p.x, &p.w, NULL, z.stride, z.pad, z.groups}, plain),
        ERR_OK);
    bool tiny = false;
    for (int64_t i = 0; i < tensor_count(&want); i++)
        tiny |= ((float *)want.data)[i] != 0 && fabsf(((float *)want.data)[i]) < 0x1p-126f;
    assert_true(tiny);
    for (int i = 0; i < f->count; i++) {
        run_case(f, i, &p);
        conv_forward_args args = {&y, &p.x, &p.w, NULL, z.stride, z.pad, z.groups};
        assert_int_equal(device_ops(plain_device)->conv_forward(&args, f->s[i]), ERR_OK);
        assert_memory_equal(y.data, want.data, tensor_bytes(&y));
    }
    stream_close(plain), device_close(plain_device);
    release(&y), release(&want);
    drop(&p);
}

static int open_devices(void **state, products products) {
    static const vector_width width[] = {WIDTH_AVX512BF16, WIDTH_AVX512, WIDTH_AVX2, WIDTH_NEON, WIDTH_PORTABLE};
    static const int threads[] = {1, 2, 5};
    fixture *f = calloc(1, sizeof *f);
    for (int i = products == PRODUCTS_FP32 ? 3 : 0; f && i < FIXTURES; i++) {
        device_options o = {.kind = DEVICE_CPU, .width = width[i / 3], .threads = threads[i % 3], .products = products};
        if (device_open(&f->dev[f->count], &o) != ERR_OK) continue;
        if (stream_open(f->dev[f->count], &f->s[f->count]) != ERR_OK) return -1;
        f->count++;
    }
    if (f) f->pairs = products == PRODUCTS_BF16_PAIRS;
    *state = f;
    return f ? 0 : -1;
}
static int open_fp32(void **state) { return open_devices(state, PRODUCTS_FP32); }
static int open_pairs(void **state) { return open_devices(state, PRODUCTS_BF16_PAIRS); }

static int close_all(void **state) {
    fixture *f = *state;
    for (int i = 0; i < f->count; i++) stream_close(f->s[i]), device_close(f->dev[i]);
    free(f);
    return 0;
}

// An argument is the name of the only test to run.
int main(int argc, char **argv) {
    const struct CMUnitTest fp32[] = {
        cmocka_unit_test(specified_bits),
        cmocka_unit_test(ways_through_the_plan),
        cmocka_unit_test(many_pixels),
    };
    const struct CMUnitTest pairs[] = {
        cmocka_unit_test(specified_bits), cmocka_unit_test(ways_through_the_plan), cmocka_unit_test(many_pixels),
        cmocka_unit_test(edges),          cmocka_unit_test(mode_is_left_alone),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    int failures = cmocka_run_group_tests_name("fp32", fp32, open_fp32, close_all);
    return failures + cmocka_run_group_tests_name("pairs", pairs, open_pairs, close_all);
}
