// test/test_pairs_attention.c: attention of devices whose products are BF16 pairs is the one that is written down here,
// element by element and to the last bit: in every body that this machine has, for any number of threads, forward,
// backward and for a text that grows; and that one is close to the true value. No call leaves the processor in another
// mode.
//
// The specification, of gpu/cpu/kernel/products.h and attention.c once more, in plain C. Exponentials and the logarithm
// are the library's own (test/test_vec.c holds those).
#include "base/philox.h"
#include "gpu/cpu/kernel/vmath.h"
#include "gpu/gpu.h"
#include "gpu/ops.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

// --- one step --------------------------------------------------------------------------------------------------------

// a*b + c, rounded once as if the exponent had no lower end; below 2^-126 a zero. It is below if the exact sum is
// nearer to what precedes 2^-126 than to 2^-126 itself. a*b is exact in long double, and so is the sum where it is near
// that edge.
static float step(float a, float b, float c) {
    if (fabsf(c) < 0x1p-126f) c = copysignf(0, c);
    float r = fmaf(a, b, c);
    if (!(fabsf(r) < 0x1p-125f)) return r;
    return fabsl((long double)a * (long double)b + (long double)c) < 0x1p-126L - 0x1p-151L ? copysignf(0, r) : r;
}

// What is multiplied: a BF16 number, to nearest even, and not a denormal one.
static float operand(float x) {
    uint32_t u;
    if (fabsf(x) < 0x1p-126f) return copysignf(0, x);
    if (isnan(x)) return x;
    memcpy(&u, &x, sizeof u);
    u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &u, sizeof x);
    return x;
}

// Goes on from p over n products x[i * dx] * y[i * dy], in pairs, the odd one first.
static float chain(float p, const float *x, int64_t dx, const float *y, int64_t dy, int n) {
    for (int i = 0; i < n; i += 2) {
        bool both = i + 1 < n;
        p = step(both ? x[(i + 1) * dx] : 0, both ? y[(i + 1) * dy] : 0, p);
        p = step(x[i * dx], y[i * dy], p);
    }
    return p;
}

static float lane(vf v) {
    float f[VL];
    vf_store(f, v);
    return f[0];
}
static float larger(float a, float b) { return a > b ? a : b; }

// --- a problem -------------------------------------------------------------------------------------------------------

// the specification's, written here again on purpose: they may never change
enum { TILE = 64, STRIP = 16, GUARD = 64 };

typedef enum fill { PLAIN, TINY, SMALL, WILD, CANCEL, SPECIAL, RISE, EDGE } fill;

typedef struct shape {
    int B, H, KV, T, D, window;
    dtype type;
    fill fill;
    float p;              // dropout
    int together, first;  // samples of a slice of heads (0: all), the first head's number
} shape;

typedef struct problem {
    shape s;
    int W, group, row, C;
    float scale;
    dropout_key key;
    tensor qkv, dy;                                     // in
    tensor y, lse, dqkv, delta;                         // out, between guards
    float *want_y, *want_lse, *want_dqkv, *want_delta;  // by the specification, from y and lse as they are
} problem;

static uint32_t noise_at;
static uint32_t word(void) {
    uint32_t r[4];
    philox4x32(r, 5, noise_at++, 0, 0, 0);
    return r[0];
}
static float noise(void) { return 2 * philox_uniform(word()) - 1; }

static float get(const tensor *t, int64_t i) {
    uint32_t u;
    float x;
    if (t->type == FP32) return ((const float *)t->data)[i];
    u = (uint32_t)((const uint16_t *)t->data)[i] << 16;
    memcpy(&x, &u, sizeof x);
    return x;
}
static float stored(dtype t, float x) {  // as the type holds it, denormals kept
    uint32_t u;
    if (t == FP32 || isnan(x)) return x;
    memcpy(&u, &x, sizeof u);
    u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &u, sizeof x);
    return x;
}
static void put(tensor *t, int64_t i, float x) {
    uint32_t u;
    x = stored(t->type, x);
    memcpy(&u, &x, sizeof u);
    if (t->type == FP32) ((float *)t->data)[i] = x;
    else ((uint16_t *)t->data)[i] = (uint16_t)(u >> 16 | (isnan(x) ? 0x40 : 0));
}

static tensor make(dtype t, int64_t a, int64_t b, int64_t c, int guard) {
    tensor x = {NULL, t, 3, {a, b, c, 1}};
    char *p = malloc(tensor_bytes(&x) + 2 * (size_t)guard);
    assert_non_null(p);
    x.data = p + guard;
    return x;
}
static void poison(tensor *t) { memset((char *)t->data - GUARD, 0xa5, tensor_bytes(t) + 2 * GUARD); }
static void check_guards(const tensor *t) {
    const unsigned char *p = (const unsigned char *)t->data - GUARD,
                        *q = (const unsigned char *)t->data + tensor_bytes(t);
    for (int i = 0; i < GUARD; i++)
        if (p[i] != 0xa5 || q[i] != 0xa5) fail_msg("written outside of a tensor");
}
static float *floats(int64_t n) {
    float *p = calloc((size_t)n, sizeof *p);
    assert_non_null(p);
    return p;
}

// Which of q (0), k (1) and v (2) element i of a row of qkv is part of.
static int part_of(const problem *x, int64_t i) {
    int64_t c = i % x->row;
    return c < x->C ? 0 : c < x->C + x->s.KV * x->s.D ? 1 : 2;
}

// Numbers of which many products, of two or of pairs, are near 2^-126 or below: those of v and dy with probabilities
// (TINY), with each other (SMALL), those of q with k where a window of one lets scores be seen, or any (WILD). part 3
// is dy.
static float draw(const problem *x, int part) {
    static const int exponents[] = {-130, -127, -126, -125, -120, -66, -64, -63, -62, -60, -20, 0};
    float e = noise();
    switch (x->s.fill) {
    case TINY: return part < 2 ? 4 * e : ldexpf(e, -120 - (int)(word() % 12));
    case SMALL: return part < 2 && x->W > 1 ? 2 * e : ldexpf(e, -60 - (int)(word() % 6));
    case WILD: return word() % 16 == 0 ? copysignf(0, e) : ldexpf(e, exponents[word() % COUNT(exponents)]);
    default: return part < 2 ? 2 * e : e;
    }
}

static void fill_in(problem *x) {
    for (int64_t i = 0; i < tensor_count(&x->qkv); i++) put(&x->qkv, i, draw(x, part_of(x, i)));
    for (int64_t i = 0; i < tensor_count(&x->dy); i++) put(&x->dy, i, draw(x, 3));
    if (x->s.fill == CANCEL)  // a pair of d cancels in scores, pairs of keys do in y, but for a bit here and there
        for (int64_t i = 1; i < tensor_count(&x->qkv); i++) {
            int part = part_of(x, i), d = (int)(i % x->row % x->s.D);
            float flip = word() % 5 ? 1.0f : 1.0f + 0x1p-7f;
            if (part == 0 && d % 2) put(&x->qkv, i, get(&x->qkv, i - 1));
            if (part == 1 && d % 2) put(&x->qkv, i, -get(&x->qkv, i - 1) * flip);
            if (part == 2 && i / x->row % 2) put(&x->qkv, i, -get(&x->qkv, i - x->row) * flip);
        }
    if (x->s.fill ==
        RISE)  // y of the first tile is denormal once the maximum has risen, and what is added to it is not small
        for (int64_t i = 0; i < tensor_count(&x->qkv); i++) {
            bool first = i / x->row % x->s.T < TILE;
            float e = noise();
            if (part_of(x, i) < 2) put(&x->qkv, i, e / 16 + (first && part_of(x, i) ? 0 : 1));
            else put(&x->qkv, i, first ? ldexpf(copysignf(1.5f, e), -125) : ldexpf(2 + e, -112));
        }
    if (x->s.fill ==
        EDGE)  // q k = 2^-126 - 1.5 * 2^-151: FP32, which has fewer digits there, has 2^-126 for what is less than that. Nothing is smaller
        for (int64_t i = 0; i < tensor_count(&x->qkv); i++) {
            bool even = i % x->row % x->s.D % 2 == 0;
            if (part_of(x, i) == 0) put(&x->qkv, i, even ? 0x1.8p-75f : 0x1p-63f);
            if (part_of(x, i) == 1) put(&x->qkv, i, even ? -0x1p-76f : 0x1p-63f);
        }
    if (x->s.fill == SPECIAL) {
        static const float special[] = {INFINITY, -INFINITY, NAN, -0.0f, 3e38f, -3e38f, 0x1p-149f, 0};
        for (int i = 0; i < 12; i++) put(&x->qkv, word() % tensor_count(&x->qkv), special[i % COUNT(special)]);
        for (int i = 0; i < 4; i++) put(&x->dy, word() % tensor_count(&x->dy), special[i % COUNT(special)]);
    }
}

static void open_problem(problem *x, shape s) {
    *x = (problem){.s = s,
                   .W = s.window && s.window < s.T ? s.window : s.T,
                   .group = s.H / s.KV,
                   .row = (s.H + 2 * s.KV) * s.D,
                   .C = s.H * s.D};
    x->scale = 1.0f / sqrtf((float)s.D);
    x->key = (dropout_key){0x23456789abcdefull, .step = 3, .first_sample = 11, .site = SITE_DROPOUT + 2, .p = s.p};
    x->qkv = make(s.type, s.B, s.T, x->row, 0), x->dy = make(s.type, s.B, s.T, x->C, 0);
    x->y = make(s.type, s.B, s.T, x->C, GUARD), x->lse = make(FP32, s.B, s.H, s.T, GUARD);
    x->dqkv = make(s.type, s.B, s.T, x->row, GUARD), x->delta = make(FP32, s.B, s.H, s.T, GUARD);
    x->want_y = floats(tensor_count(&x->y)), x->want_lse = floats(tensor_count(&x->lse));
    x->want_dqkv = floats(tensor_count(&x->dqkv)), x->want_delta = floats(tensor_count(&x->delta));
    fill_in(x);
}
static void close_problem(problem *x) {
    tensor *out[] = {&x->y, &x->lse, &x->dqkv, &x->delta};
    for (int i = 0; i < 4; i++) free((char *)out[i]->data - GUARD);
    free(x->qkv.data), free(x->dy.data), free(x->want_y), free(x->want_lse), free(x->want_dqkv), free(x->want_delta);
}

// --- the specification -----------------------------------------------------------------------------------------------

// Element (b, t, query head h, d) of q, k, v in qkv, or (3) of y.
static int64_t place(const problem *x, int part, int b, int t, int h, int d) {
    int64_t at = (int64_t)b * x->s.T + t;
    if (part == 3) return at * x->C + h * x->s.D + d;
    return at * x->row + (part == 0 ? h : x->s.H + (part - 1) * x->s.KV + h / x->group) * x->s.D + d;
}

// 0 or 1/(1-p) for the probability of (b,h,i,j).
static float kept(const problem *x, int b, int h, int i, int j) {
    if (x->s.p == 0) return 1;
    int together = x->s.together ? x->s.together : x->s.B;
    int64_t head = x->s.first + b / together * x->s.H + h, e = (head * x->s.T + i) * x->s.T + j;
    uint32_t r[4];
    philox4x32(r, x->key.seed, (uint32_t)(e / 4), x->key.site, x->key.first_sample + (uint32_t)(b % together),
               x->key.step);
    return r[e % 4] < (double)x->s.p * 0x1p32 ? 0 : 1.0f / (1.0f - x->s.p);
}

// Of one head: rows of operands, and what each query makes of each key.
typedef struct head {
    float *in[4];  // q, k, v, dy: (T,D), as they are multiplied
    // (T,T): scores; probabilities and gradients of scores as they are multiplied, 0 where a key is hidden
    float *s, *p, *ds;
} head;

static void open_head(head *a, const problem *x, int b, int h) {
    int T = x->s.T, D = x->s.D;
    for (int part = 0; part < 4; part++) {
        a->in[part] = floats(T * D);
        for (int t = 0; t < T; t++)
            for (int d = 0; d < D; d++)
                a->in[part][t * D + d] = operand(get(part < 3 ? &x->qkv : &x->dy, place(x, part, b, t, h, d)));
    }
    a->s = floats(T * T), a->p = floats(T * T), a->ds = floats(T * T);
    for (int i = 0; i < T; i++)
        for (int j = 0; j <= i; j++) a->s[i * T + j] = chain(0, a->in[0] + i * D, 1, a->in[1] + j * D, 1, D) * x->scale;
}
static void close_head(head *a) {
    for (int i = 0; i < 4; i++) free(a->in[i]);
    free(a->s), free(a->p), free(a->ds);
}

static bool sees(const problem *x, int i, int j) { return j <= i && j > i - x->W; }
static int first_tile(const problem *x, int i) {  // of keys, for the tile of query i
    int t = i / TILE * TILE - (x->W - 1);
    return t > 0 ? t / TILE : 0;
}
static int least(int a, int b) { return a < b ? a : b; }
// The keys of a tile that query i is multiplied with, hidden ones as 0: all, or in its own tile those up to the end of
// its strip.
static int keys_end(const problem *x, int i, int tile) {
    return least(x->s.T, tile == i / TILE ? (i / STRIP + 1) * STRIP : (tile + 1) * TILE);
}

static float tree(const float *x) {
    float a[8];
    for (int i = 0; i < 8; i++) a[i] = x[i] + x[i + 8];
    for (int i = 0; i < 4; i++) a[i] = a[i] + a[i + 4];
    return (a[0] + a[2]) + (a[1] + a[3]);
}

// Row i of one head: y and lse.
static void forward_row(const problem *x, head *a, int b, int h, int i) {
    int T = x->s.T, D = x->s.D;
    float max = -INFINITY, sum[16] = {0}, *y = floats(D);
    for (int tile = first_tile(x, i); tile <= i / TILE; tile++) {
        bool first = tile == first_tile(x, i);
        int from = tile * TILE, to = keys_end(x, i, tile);
        float old = max, here[16] = {0};
        for (int j = from; j < to; j++)
            if (sees(x, i, j)) max = larger(max, a->s[i * T + j]);
        // some row of the tile sees not all keys, or none
        if (x->W < (i / TILE - tile + 1) * TILE) max = larger(max, -FLT_MAX * x->scale);
        float shrink = lane(vf_exp_down(vf_set1(old - max)));
        for (int j = from; j < to; j++) {
            float p = sees(x, i, j) ? lane(vf_exp_down(vf_set1(a->s[i * T + j] - max))) : 0;
            here[j % 16] += p;
            a->p[i * T + j] = operand(x->s.p > 0 && sees(x, i, j) ? p * kept(x, b, h, i, j) : p);
        }
        for (int l = 0; l < 16; l++) sum[l] = first ? here[l] : fmaf(sum[l], shrink, here[l]);
        for (int d = 0; d < D; d++) {
            if (!first && shrink != 1) y[d] *= shrink;
            y[d] = chain(y[d], a->p + i * T + from, 1, a->in[2] + from * D + d, D, to - from);
        }
    }
    float total = tree(sum);
    for (int d = 0; d < D; d++) x->want_y[place(x, 3, b, i, h, d)] = stored(x->s.type, (y[d] + 0.0f) / total);
    x->want_lse[(b * x->s.H + h) * T + i] = max + lane(vf_log(vf_set1(total)));
    free(y);
}

// Row i of one head: delta, p and ds, then dq. y and lse are the device's own, which were compared before.
static void backward_row(const problem *x, head *a, int b, int h, int i) {
    int T = x->s.T, D = x->s.D, stat = (b * x->s.H + h) * T + i;
    float sum[2][16] = {{0}}, lse = get(&x->lse, stat);
    for (int d = 0; d < (D + 15) / 16 * 16; d++) {
        float u = d < D ? get(&x->dy, place(x, 3, b, i, h, d)) : 0, v = d < D ? get(&x->y, place(x, 3, b, i, h, d)) : 0;
        sum[d / 16 % 2][d % 16] = fmaf(u, v, sum[d / 16 % 2][d % 16]);
    }
    for (int l = 0; l < 16; l++) sum[0][l] += sum[1][l];
    float delta = x->want_delta[stat] = tree(sum[0]);
    for (int j = 0; j <= i; j++) {
        if (!sees(x, i, j)) continue;
        float p = lane(vf_exp(vf_set1(a->s[i * T + j] - lse))),
              dp = chain(0, a->in[3] + i * D, 1, a->in[2] + j * D, 1, D);
        float f = kept(x, b, h, i, j);
        a->p[i * T + j] = operand(x->s.p > 0 ? p * f : p);
        a->ds[i * T + j] = operand(p * ((x->s.p > 0 ? dp * f : dp) - delta));
    }
    for (int d = 0; d < D; d++) {
        float dq = 0;
        for (int tile = first_tile(x, i); tile <= i / TILE; tile++)
            dq = chain(dq, a->ds + i * T + tile * TILE, 1, a->in[1] + tile * TILE * D + d, D,
                       keys_end(x, i, tile) - tile * TILE);
        x->want_dqkv[place(x, 0, b, i, h, d)] = stored(x->s.type, dq * x->scale);
    }
}

// Goes on with dk and dv of key j by one query head: over the queries of its strip and after, then over whole tiles of
// them.
static void backward_key(const problem *x, const head *a, int j, float *dk, float *dv) {
    int T = x->s.T, D = x->s.D;
    for (int tile = j / TILE; tile * TILE < T && first_tile(x, tile * TILE) <= j / TILE; tile++) {
        int from = tile == j / TILE ? j / STRIP * STRIP : tile * TILE, n = least(T, (tile + 1) * TILE) - from;
        for (int d = 0; d < D; d++) {
            dv[d] = chain(dv[d], a->p + from * T + j, T, a->in[3] + from * D + d, D, n);
            dk[d] = chain(dk[d], a->ds + from * T + j, T, a->in[0] + from * D + d, D, n);
        }
    }
}

static void specify_forward(const problem *x) {
    for (int b = 0; b < x->s.B; b++)
        for (int h = 0; h < x->s.H; h++) {
            head a;
            open_head(&a, x, b, h);
            for (int i = 0; i < x->s.T; i++) forward_row(x, &a, b, h, i);
            close_head(&a);
        }
}
static void specify_backward(const problem *x) {
    int T = x->s.T, D = x->s.D;
    float *dk = floats(T * D), *dv = floats(T * D);
    for (int b = 0; b < x->s.B; b++)
        for (int h = 0; h < x->s.H; h++) {
            head a;
            open_head(&a, x, b, h);
            if (h % x->group == 0)
                memset(dk, 0, (size_t)(T * D) * sizeof *dk), memset(dv, 0, (size_t)(T * D) * sizeof *dv);
            for (int i = 0; i < T; i++) backward_row(x, &a, b, h, i);
            for (int j = 0; j < T; j++) backward_key(x, &a, j, dk + j * D, dv + j * D);
            for (int i = 0; i < T * D && h % x->group == x->group - 1; i++) {
                x->want_dqkv[place(x, 1, b, i / D, h, i % D)] = stored(x->s.type, dk[i] * x->scale);
                x->want_dqkv[place(x, 2, b, i / D, h, i % D)] = stored(x->s.type, dv[i]);
            }
            close_head(&a);
        }
    free(dk), free(dv);
}

// --- the devices -----------------------------------------------------------------------------------------------------

typedef struct body {
    const char *name;
    device *dev;
    stream *s;
    const ops *table;
} body;
enum { MOST = 2 * 5 };
typedef struct bodies {
    body b[MOST];
    int count;
} bodies;

static int open_bodies(void **state) {
    static bodies all;  // cmocka hands it to every test
    static const struct {
        vector_width width;
        const char *name;
    } width[] = {{WIDTH_AVX512BF16, "avx512bf16"},
                 {WIDTH_AVX512, "avx512"},
                 {WIDTH_AVX2, "avx2"},
                 {WIDTH_NEON, "neon"},
                 {WIDTH_PORTABLE, "portable"}};
    static const int threads[] = {1, 3};
    for (int i = 0; i < MOST; i++) {
        body *b = &all.b[all.count];
        b->name = width[i / 2].name;
        device_options o = {.kind = DEVICE_CPU,
                            .threads = threads[i % 2],
                            .width = width[i / 2].width,
                            .products = PRODUCTS_BF16_PAIRS};
        err_t rc = device_open(&b->dev, &o);
        o.products = PRODUCTS_FP32;
        if (rc == ERR_UNAVAILABLE && device_open(&b->dev, &o) == ERR_UNAVAILABLE) {
            if (i % 2) fprintf(stderr, "test_pairs_attention: %s skipped: this processor lacks it\n", b->name);
            continue;
        }
        if (rc == ERR_UNAVAILABLE)
            fprintf(stderr, "test_pairs_attention: %s is refused: its pairs are not those of the specification\n",
                    b->name);
        if (rc != ERR_OK || stream_open(b->dev, &b->s) != ERR_OK) return 1;
        b->table = device_ops(b->dev), all.count++;
    }
    *state = &all;
    return all.count ? 0 : 1;
}
static int close_bodies(void **state) {
    bodies *all = *state;
    for (int i = 0; i < all->count; i++) stream_close(all->b[i].s), device_close(all->b[i].dev);
    return 0;
}

// The processor's mode, without the flags of what happened.
static uint64_t mode(void) {
#if defined(__x86_64__)
    return _mm_getcsr() & ~0x3fu;
#elif defined(__aarch64__)
    uint64_t m;
    __asm__ volatile("mrs %0, fpcr" : "=r"(m));
    return m;
#else
    return 0;
#endif
}

// Every thread keeps denormals.
static void check_threads(const body *b) {
    enum { N = 5 * 8192 };
    float *x = floats(N), *y = floats(N);
    for (int i = 0; i < N; i++) x[i] = 0x1p-140f;
    tensor in = {x, FP32, 1, {N, 1, 1, 1}}, out = {y, FP32, 1, {N, 1, 1, 1}};
    assert_int_equal(b->table->add(&(add_args){.y = &out, .a = &in, .b = &in}, b->s), ERR_OK);
    assert_int_equal(stream_wait(b->s), ERR_OK);
    for (int i = 0; i < N; i++)
        if (y[i] != 0x1p-139f) fail_msg("%s: a denormal was lost after attention", b->name);
    free(x), free(y);
}

static void finish(const body *b, err_t rc, uint64_t before) {
    assert_int_equal(rc, ERR_OK);
    assert_int_equal(stream_wait(b->s), ERR_OK);
    if (mode() != before) fail_msg("%s: the processor was left in another mode", b->name);
}

#define HEADS(x) \
    .heads = (x)->s.H, .kv_heads = (x)->s.KV, .window = (x)->s.window, .drop = &(x)->key, .samples = (x)->s.together, \
    .first_head = (x)->s.first
static void run_forward(problem *x, const body *b) {
    uint64_t before = mode();
    poison(&x->y), poison(&x->lse);
    finish(b,
           b->table->attention_forward(&(attention_forward_args){.y = &x->y, .lse = &x->lse, .qkv = &x->qkv, HEADS(x)},
                                       b->s),
           before);
    check_guards(&x->y), check_guards(&x->lse);
}
static void run_backward(problem *x, const body *b) {
    uint64_t before = mode();
    poison(&x->dqkv), poison(&x->delta);
    finish(b,
           b->table->attention_backward(&(attention_backward_args){.dqkv = &x->dqkv,
                                                                   .delta = &x->delta,
                                                                   .dy = &x->dy,
                                                                   .y = &x->y,
                                                                   .lse = &x->lse,
                                                                   .qkv = &x->qkv,
                                                                   HEADS(x)},
                                        b->s),
           before);
    check_guards(&x->dqkv), check_guards(&x->delta);
}

// --- comparing -------------------------------------------------------------------------------------------------------

static void check(const problem *x, const body *b, const char *what, const tensor *got, const float *want) {
    for (int64_t i = 0; i < tensor_count(got); i++) {
        float g = get(got, i);
        if (memcmp(&g, &want[i], sizeof g) && !(isnan(g) && isnan(want[i])))
            fail_msg(
                "%s %s of B %d H %d KV %d T %d D %d window %d type %d fill %d dropout %g: element %d is %a, not %a",
                b->name, what, x->s.B, x->s.H, x->s.KV, x->s.T, x->s.D, x->s.window, x->s.type, x->s.fill,
                (double)x->s.p, (int)i, (double)g, (double)want[i]);
    }
}

static tensor rows_of(const tensor *t, int64_t first, int64_t n, int64_t width) {
    return (tensor){(char *)t->data + (size_t)(first * width) * dtype_bytes(t->type), t->type, 2, {n, width, 1, 1}};
}

// The text comes in parts of 1, 61, 2, 70 positions and the rest (turn 0), at once (4) or in parts of one to three (5);
// row for row it has forward's y.
static void check_past(problem *x, const body *b, int turn) {
    static const int parts[] = {1, 61, 2, 70};
    int T = x->s.T, P = 2 * x->s.KV * x->s.D;
    tensor past = make(x->s.type, 1, T, P, GUARD);
    poison(&past), poison(&x->y);
    past.dims = 2, past.size[0] = T, past.size[1] = P, past.size[2] = 1;
    for (int at = 0, n; at < T; at += n, turn++) {
        uint64_t before = mode();
        n = turn < 4 ? least(parts[turn % 4], T - at) : turn == 4 ? T - at : least(1 + turn % 3, T - at);
        tensor y = rows_of(&x->y, at, n, x->C), qkv = rows_of(&x->qkv, at, n, x->row);
        attention_past_args args = {.y = &y,
                                    .past = &past,
                                    .qkv = &qkv,
                                    .heads = x->s.H,
                                    .kv_heads = x->s.KV,
                                    .window = x->s.window,
                                    .first = at};
        finish(b, b->table->attention_past(&args, b->s), before);
    }
    check_guards(&past), check_guards(&x->y);
    check(x, b, "y as the text grows", &x->y, x->want_y);
    free((char *)past.data - GUARD);
}

// stain: what runs before each call, or NULL.
static void check_after(const bodies *all, shape s, problem *stain) {
    problem x;
    open_problem(&x, s);
    specify_forward(&x);
    for (int i = 0; i < all->count; i++) {
        const body *b = &all->b[i];
        if (stain) run_forward(stain, b), run_backward(stain, b);
        run_forward(&x, b);
        check(&x, b, "y", &x.y, x.want_y);
        check(&x, b, "lse", &x.lse, x.want_lse);
        if (i == 0) specify_backward(&x);
        if (stain) run_backward(stain, b);
        run_backward(&x, b);
        check(&x, b, "delta", &x.delta, x.want_delta);
        check(&x, b, "dqkv", &x.dqkv, x.want_dqkv);
        if (s.B == 1 && s.p == 0 && s.fill != SPECIAL)
            for (int turn = 0; turn < 6; turn += turn ? 1 : 4) check_past(&x, b, turn);
        check_threads(b);
    }
    close_problem(&x);
}

static void check_shape(const bodies *all, shape s) { check_after(all, s, NULL); }

static void odd_sizes(void **state) {
    static const int sizes[] = {1, 3, 17, 64, 80}, times[] = {1, 2, 15, 33, 64, 65, 130};
    for (int d = 0, n = 0; d < COUNT(sizes); d++)
        for (int t = 0; t < COUNT(times); t++, n++)
            check_shape(*state,
                        (shape){1 + (n % 3 == 2), 1, 1, times[t], sizes[d], 0, n % 2 ? FP32 : BF16, PLAIN, 0, 0, 0});
}

static void many_tiles(
    void *
        *state) {  // more queries than an item of forward takes, and one head: backward in two passes, of three threads
    check_shape(*state, (shape){1, 1, 1, 323, 17, 0, FP32, PLAIN, 0, 0, 0});
    check_shape(*state, (shape){1, 1, 1, 200, 64, 0, BF16, PLAIN, 0, 0, 0});
}

static void groups_and_windows(void **state) {
    check_shape(*state, (shape){1, 4, 2, 130, 16, 0, BF16, PLAIN, 0, 0, 0});
    check_shape(*state, (shape){1, 3, 1, 150, 9, 1, FP32, PLAIN, 0, 0, 0});
    check_shape(*state, (shape){1, 2, 1, 200, 20, 37, BF16, PLAIN, 0, 0, 0});
    check_shape(*state, (shape){1, 2, 2, 197, 33, 64, FP32, PLAIN, 0, 0, 0});
    check_shape(*state, (shape){2, 1, 1, 199, 32, 100, BF16, PLAIN, 0, 0, 0});
}

static void dropout(void **state) {
    check_shape(*state, (shape){2, 2, 1, 67, 20, 0, BF16, PLAIN, 0.2f, 0, 0});
    check_shape(*state, (shape){1, 1, 1, 130, 64, 70, FP32, PLAIN, 0.1f, 0, 0});
    // two slices of two samples, heads 4, 5 and 6, 7
    check_shape(*state, (shape){4, 2, 2, 35, 8, 0, FP32, PLAIN, 0.5f, 2, 4});
}

static void edges(void **state) {
    for (int type = FP32; type <= BF16; type++)
        for (int f = TINY; f <= SPECIAL; f++) {
            check_shape(*state, (shape){1, 1, 1, 143, 17, 0, (dtype)type, (fill)f, 0, 0, 0});
            check_shape(*state, (shape){1, 2, 1, 131, 8, 45, (dtype)type, (fill)f, 0, 0, 0});
            check_shape(*state,
                        (shape){1, 1, 1, 70, 64, f == SMALL ? 1 : 0, (dtype)type, (fill)f, f == WILD ? 0.2f : 0, 0, 0});
        }
}

static void one_step(void **state) { check_shape(*state, (shape){1, 1, 1, 1, 2, 0, FP32, EDGE, 0, 0, 0}); }

static void a_rise(void **state) { check_shape(*state, (shape){1, 1, 1, 200, 16, 0, FP32, RISE, 0, 0, 0}); }

// Scratch that still holds what another shape wrote, here NaN.
static void stale_scratch(void **state) {
    static const int times[] = {1, 15, 33, 65};
    problem stain;
    open_problem(&stain, (shape){1, 1, 1, 100, 80, 0, FP32, PLAIN, 0, 0, 0});
    for (int64_t i = 0; i < tensor_count(&stain.qkv); i++) put(&stain.qkv, i, NAN);
    for (int t = 0; t < COUNT(times); t++)
        check_after(*state, (shape){1, 1, 1, times[t], 17, 0, t % 2 ? FP32 : BF16, PLAIN, 0, 0, 0}, &stain);
    close_problem(&stain);
}

// --- the true value --------------------------------------------------------------------------------------------------

typedef struct truth {
    double *y, *dqkv;
} truth;

static double *doubles(int64_t n) {
    double *p = calloc((size_t)n, sizeof *p);
    assert_non_null(p);
    return p;
}

static void true_row(const problem *x, const truth *want, int b, int h, int i) {
    int D = x->s.D, from = i - x->W + 1 > 0 ? i - x->W + 1 : 0;
    double *p = doubles(i + 1), *dp = doubles(i + 1), sum = 0, delta = 0;
    for (int j = from; j <= i; j++)
        for (int d = 0; d < D; d++) {
            p[j] +=
                (double)get(&x->qkv, place(x, 0, b, i, h, d)) * (double)get(&x->qkv, place(x, 1, b, j, h, d)) / sqrt(D);
            dp[j] += (double)get(&x->dy, place(x, 3, b, i, h, d)) * (double)get(&x->qkv, place(x, 2, b, j, h, d));
        }
    for (int j = from; j <= i; j++) sum += p[j] = exp(p[j]);
    for (int j = from; j <= i; j++) p[j] /= sum, delta += p[j] * dp[j];
    for (int j = from; j <= i; j++)
        for (int d = 0; d < D; d++) {
            double ds = p[j] * (dp[j] - delta) / sqrt(D);
            want->y[place(x, 3, b, i, h, d)] += p[j] * (double)get(&x->qkv, place(x, 2, b, j, h, d));
            want->dqkv[place(x, 0, b, i, h, d)] += ds * (double)get(&x->qkv, place(x, 1, b, j, h, d));
            want->dqkv[place(x, 1, b, j, h, d)] += ds * (double)get(&x->qkv, place(x, 0, b, i, h, d));
            want->dqkv[place(x, 2, b, j, h, d)] += p[j] * (double)get(&x->dy, place(x, 3, b, i, h, d));
        }
    free(p), free(dp);
}

// A BF16 number is within 2^-9 of what it rounds. A result errs by its operands' rounding, which in sums of many is
// less, and by its own.
static void check_close(const problem *x, const char *what, const tensor *got, const double *want) {
    double errors = 0, squares = 0;
    for (int64_t i = 0; i < tensor_count(got); i++) {
        double e = (double)get(got, i) - want[i];
        errors += e * e, squares += want[i] * want[i];
    }
    if (!(sqrt(errors / squares) <= 0x1p-8))
        fail_msg("%s of T %d D %d type %d is off by %g, in the mean, of its size", what, x->s.T, x->s.D, x->s.type,
                 sqrt(errors / squares));
}

static void near_the_truth(void **state) {
    static const shape list[] = {{1, 2, 1, 130, 64, 0, FP32, PLAIN, 0, 0, 0},
                                 {1, 2, 2, 130, 64, 0, BF16, PLAIN, 0, 0, 0},
                                 {1, 1, 1, 100, 33, 50, FP32, PLAIN, 0, 0, 0}};
    const bodies *all = *state;
    for (int k = 0; k < COUNT(list); k++) {
        problem x;
        open_problem(&x, list[k]);
        truth want = {doubles(tensor_count(&x.y)), doubles(tensor_count(&x.dqkv))};
        for (int h = 0; h < x.s.H; h++)
            for (int i = 0; i < x.s.T; i++) true_row(&x, &want, 0, h, i);
        run_forward(&x, &all->b[0]), run_backward(&x, &all->b[0]);
        check_close(&x, "y", &x.y, want.y), check_close(&x, "dqkv", &x.dqkv, want.dqkv);
        free(want.y), free(want.dqkv);
        close_problem(&x);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_sizes), cmocka_unit_test(many_tiles),    cmocka_unit_test(groups_and_windows),
        cmocka_unit_test(dropout),   cmocka_unit_test(edges),         cmocka_unit_test(one_step),
        cmocka_unit_test(a_rise),    cmocka_unit_test(stale_scratch), cmocka_unit_test(near_the_truth)};
    return cmocka_run_group_tests(tests, open_bodies, close_bodies);
}
