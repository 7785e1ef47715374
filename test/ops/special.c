// test/ops/special.c: promises that are not one operation at one shape: equal bits of fused and unfused pairs, truth
// tables, sweeps over all values of a type, properties of the random masks. Each runs on one fixture.
#include "test/ops/reference.h"
#include "test/ops/special.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool say(bench *b, const char *fmt, ...) {
    char text[WHY - 100];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (b->ok) snprintf(b->why, WHY, "%s: %s", b->f->name, text);
    return b->ok = false;
}

bool did(bench *b, err_t rc) { return rc == ERR_OK ? b->ok : say(b, "%s", err_last()->text); }

tensor *box(bench *b, dtype t, int64_t n0, int64_t n1, const void *host) {
    tensor *x = &b->t[b->count++];
    *x = (tensor){NULL, t, n1 ? 2 : 1, {n0, n1 ? n1 : 1, 1, 1}};
    did(b, device_alloc(b->f->dev, MEMORY_DEVICE, tensor_bytes(x), &x->data));
    if (b->ok && host) did(b, stream_copy(b->f->s, x->data, host, tensor_bytes(x)));
    if (b->ok) did(b, stream_wait(b->f->s));
    return x;
}

void put(bench *b, tensor *x, const void *host) {
    if (b->ok) did(b, stream_copy(b->f->s, x->data, host, tensor_bytes(x)));
    if (b->ok) did(b, stream_wait(b->f->s));
}

void *take(bench *b, const tensor *x) {  // a copy on the host; the caller frees it
    void *p = calloc(1, tensor_bytes(x));
    if (b->ok) did(b, stream_copy(b->f->s, p, x->data, tensor_bytes(x)));
    if (b->ok) did(b, stream_wait(b->f->s));
    return p;
}

bool done(bench *b) {
    for (int i = 0; i < b->count; i++) device_free(b->f->dev, MEMORY_DEVICE, b->t[i].data, tensor_bytes(&b->t[i]));
    return b->ok;
}

void *random_values(dtype t, int64_t n, double scale, uint32_t seed) {
    void *p = calloc((size_t)n, dtype_bytes(t));
    uint64_t x = seed * 0x9E3779B97F4A7C15ull + 1;
    for (int64_t i = 0; i < n; i++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        storage_set(p, t, i, scale * ((double)(x >> 40) * 0x1p-23 - 1));
    }
    return p;
}

tensor *random_box(bench *b, dtype t, int64_t n0, int64_t n1, double scale, uint32_t seed) {
    void *p = random_values(t, n0 * (n1 ? n1 : 1), scale, seed);
    tensor *x = box(b, t, n0, n1, p);
    free(p);
    return x;
}

void expect_same(bench *b, const char *what, const tensor *x, const tensor *y) {
    unsigned char *p = take(b, x), *q = take(b, y);
    size_t width = dtype_bytes(x->type);
    for (int64_t i = 0; b->ok && i < tensor_count(x); i++)
        if (memcmp(p + (size_t)i * width, q + (size_t)i * width, width))
            say(b, "%s: element %" PRId64 ": %.9g and %.9g", what, i, storage_get(p, x->type, i),
                storage_get(q, x->type, i));
    free(p), free(q);
}

// --- a vocabulary's padding ------------------------------------------------------------------------------------------

// Rows of `plain` begin those of `wide`, and what else `wide` has (columns or rows) is +0.
static void expect_padded(bench *b, const char *what, const tensor *wide, const tensor *plain) {
    unsigned char *p = take(b, wide), *q = take(b, plain);
    size_t each = dtype_bytes(wide->type);
    static const unsigned char zero[4];
    for (int64_t i = 0; b->ok && i < tensor_count(wide); i++) {
        int64_t row = i / wide->size[1], column = i % wide->size[1];
        bool inside = row < plain->size[0] && column < plain->size[1];
        const unsigned char *want = inside ? q + (size_t)(row * plain->size[1] + column) * each : zero;
        if (memcmp(p + (size_t)i * each, want, each))
            say(b, "%s: (%" PRId64 ",%" PRId64 ") is %.9g, expected %.9g", what, row, column,
                storage_get(p, wide->type, i), storage_get(want, wide->type, 0));
    }
    free(p), free(q);
}

// A head of V classes, once over memory of Vp rows with zeros past V and once without: logits, losses and gradients.
static void padded_head(bench *b, dtype T, int64_t V, int64_t Vp) {
    enum { N = 21, C = 29 };
    const ops *o = b->f->table;
    stream *s = b->f->s;
    float scale = 0.5f;
    step_state state = {.loss_scale = 64};
    int32_t target[N];
    for (int i = 0; i < N; i++) target[i] = i % 6 == 5 ? -1 : i == 3 ? 0 : (int32_t)(V - 1 - i);
    void *rows = random_values(T, Vp * C, 2, 7);
    float *sums = random_values(FP32, Vp * C, 1, 8);
    memset((char *)rows + (size_t)(V * C) * dtype_bytes(T), 0, (size_t)((Vp - V) * C) * dtype_bytes(T));
    memset(sums + V * C, 0, (size_t)((Vp - V) * C) * sizeof *sums);
    tensor *x = random_box(b, T, N, C, 3, 9), *w = box(b, T, Vp, C, rows), *w2 = box(b, T, V, C, rows);
    tensor *y = box(b, T, N, Vp, NULL), *losses = box(b, FP32, N, 0, NULL);
    tensor *y2 = box(b, T, N, V, NULL), *losses2 = box(b, FP32, N, 0, NULL);
    tensor *dx = box(b, T, N, C, NULL), *dw = box(b, FP32, Vp, C, sums);
    tensor *dx2 = box(b, T, N, C, NULL), *dw2 = box(b, FP32, V, C, sums);
    tensor *targets = box(b, INT32, N, 0, target), *st = box(b, INT32, sizeof state / 4, 0, &state);
    did(b, o->matmul(&(matmul_args){.d = y, .a = x, .b = w, .tb = true}, s));
    did(b, o->matmul(&(matmul_args){.d = y2, .a = x, .b = w2, .tb = true}, s));
    expect_padded(b, "logits", y, y2);
    did(b, o->cross_entropy(
               &(cross_entropy_args){
                   .losses = losses, .logits = y, .targets = targets, .classes = V, .scale = &scale, .state = st->data},
               s));
    did(b,
        o->cross_entropy(
            &(cross_entropy_args){
                .losses = losses2, .logits = y2, .targets = targets, .classes = V, .scale = &scale, .state = st->data},
            s));
    expect_same(b, "losses", losses, losses2);
    expect_padded(b, "gradient of the logits", y, y2);
    did(b, o->matmul(&(matmul_args){.d = dx, .a = y, .b = w}, s));
    did(b, o->matmul(&(matmul_args){.d = dx2, .a = y2, .b = w2}, s));
    expect_same(b, "gradient of the head's input", dx, dx2);
    did(b, o->matmul(&(matmul_args){.d = dw, .a = y, .ta = true, .b = x, .epilogue = MATMUL_ACCUMULATE}, s));
    did(b, o->matmul(&(matmul_args){.d = dw2, .a = y2, .ta = true, .b = x, .epilogue = MATMUL_ACCUMULATE}, s));
    expect_padded(b, "gradient of the weight", dw, dw2);
    free(rows), free(sums);
}

// Zeros along n and k. On a GPU the order of sums follows from the shape; test_device compares whole runs.
static bool padding_is_nothing(const fixture *f, char why[WHY]) {
    // one to three blocks of k
    static const int64_t classes[][2] = {{131, 256}, {383, 384}, {769, 896}, {1030, 1152}, {50, 51}};
    bool ok = true;
    for (int k = 0; k < 15 && ok && device_about(f->dev)->kind == DEVICE_CPU; k++) {
        bench b = {.f = f, .ok = true, .why = why};
        padded_head(&b, compute_types[k % 3], classes[k / 3][0], classes[k / 3][1]);
        ok = done(&b);
    }
    return ok;
}

// --- fused and unfused -----------------------------------------------------------------------------------------------

static bool matmul_fused(const fixture *f, char why[WHY]) {
    bool ok = true;
    for (int k = 0; k < 3 && ok; k++) {
        bench b = {.f = f, .ok = true, .why = why};
        dtype T = compute_types[k];
        int64_t M = 19, N = 83, K = 37;
        const ops *o = f->table;
        tensor *x = random_box(&b, T, M, K, 1, 1), *w = random_box(&b, T, N, K, 0.5, 2),
               *bias = random_box(&b, T, N, 0, 1, 3);
        tensor *pre = box(&b, T, M, N, NULL), *d = box(&b, T, M, N, NULL), *pre2 = box(&b, T, M, N, NULL);
        tensor *d2 = box(&b, T, M, N, NULL);
        did(&b, o->matmul(&(matmul_args){.d = d,
                                         .pre = pre,
                                         .a = x,
                                         .b = w,
                                         .tb = true,
                                         .bias = bias,
                                         .epilogue = MATMUL_BIAS | MATMUL_GELU},
                          f->s));
        did(&b, o->matmul(&(matmul_args){.d = pre2, .a = x, .b = w, .tb = true, .bias = bias, .epilogue = MATMUL_BIAS},
                          f->s));
        did(&b, o->gelu_forward(&(gelu_forward_args){.y = d2, .x = pre2}, f->s));
        expect_same(&b, "pre of matmul+gelu against matmul", pre, pre2);
        expect_same(&b, "matmul+gelu against matmul, then gelu", d, d2);
        did(&b,
            o->matmul(&(matmul_args){.d = d, .pre = pre, .a = x, .b = w, .tb = true, .epilogue = MATMUL_DGELU}, f->s));
        did(&b, o->matmul(&(matmul_args){.d = d2, .a = x, .b = w, .tb = true}, f->s));
        did(&b, o->gelu_backward(&(gelu_backward_args){.dx = d2, .dy = d2, .x = pre}, f->s));
        expect_same(&b, "matmul+dgelu against matmul, then gelu_backward", d, d2);
        did(&b,
            o->matmul(
                &(matmul_args){.d = d, .pre = pre, .a = x, .b = w, .tb = true, .epilogue = MATMUL_DGELU, .erf = true},
                f->s));
        did(&b, o->matmul(&(matmul_args){.d = d2, .a = x, .b = w, .tb = true}, f->s));
        did(&b, o->gelu_backward(&(gelu_backward_args){.dx = d2, .dy = d2, .x = pre, .erf = true}, f->s));
        expect_same(&b, "the same of the erf form", d, d2);
        // An FP32 accumulator is c + the FP32 result, whatever T is.
        tensor *sum = random_box(&b, FP32, M, N, 3, 4), *c = random_box(&b, FP32, M, N, 3, 4),
               *z = box(&b, FP32, M, N, NULL);
        did(&b, o->matmul(&(matmul_args){.d = sum, .a = x, .b = w, .tb = true, .epilogue = MATMUL_ACCUMULATE}, f->s));
        did(&b, o->matmul(&(matmul_args){.d = z, .a = x, .b = w, .tb = true}, f->s));
        did(&b, o->add(&(add_args){.y = z, .a = z, .b = c}, f->s));
        expect_same(&b, "accumulate against matmul, then add", sum, z);
        ok = done(&b);
    }
    return ok;
}

// Rows of odd length, of whole packs of 16 bytes, and longer than a block of threads holds. What a backward pass
// computes again relies on it.
static bool norm_fused(const fixture *f, char why[WHY]) {
    static const int64_t rows[] = {23, 23, 2}, widths[] = {173, 192, 8216};
    bool ok = true;
    for (int k = 0; k < 9 && ok; k++) {
        bench b = {.f = f, .ok = true, .why = why};
        dtype T = compute_types[k % 3];
        int64_t N = rows[k / 3], C = widths[k / 3];
        tensor *x = random_box(&b, T, N, C, 1, 1), *res = random_box(&b, T, N, C, 2, 2);
        tensor *w = random_box(&b, T, C, 0, 1, 3), *bias = random_box(&b, T, C, 0, 1, 4);
        tensor *y = box(&b, T, N, C, NULL), *y2 = box(&b, T, N, C, NULL), *sum = box(&b, T, N, C, NULL);
        tensor *sum2 = box(&b, T, N, C, NULL);
        tensor *mean = box(&b, FP32, N, 0, NULL), *rstd = box(&b, FP32, N, 0, NULL), *mean2 = box(&b, FP32, N, 0, NULL);
        tensor *rstd2 = box(&b, FP32, N, 0, NULL);
        did(&b, f->table->layer_norm_forward(&(layer_norm_forward_args){.y = y,
                                                                        .mean = mean,
                                                                        .rstd = rstd,
                                                                        .sum = sum,
                                                                        .x = x,
                                                                        .residual = res,
                                                                        .w = w,
                                                                        .b = bias,
                                                                        .eps = 1e-5f},
                                             f->s));
        did(&b, f->table->add(&(add_args){.y = sum2, .a = x, .b = res}, f->s));
        did(&b, f->table->layer_norm_forward(
                    &(layer_norm_forward_args){
                        .y = y2, .mean = mean2, .rstd = rstd2, .x = sum2, .w = w, .b = bias, .eps = 1e-5f},
                    f->s));
        expect_same(&b, "fused residual against add", sum, sum2);
        expect_same(&b, "fused layer_norm against add, then layer_norm", y, y2);
        expect_same(&b, "its mean", mean, mean2);
        expect_same(&b, "its rstd", rstd, rstd2);
        ok = done(&b);
    }
    return ok;
}

// --- cast: every value of a type -------------------------------------------------------------------------------------

static bool cast_all(bench *b, dtype to, dtype from, const void *values, int64_t n) {
    tensor *x = box(b, from, n, 0, values), *y = box(b, to, n, 0, NULL);
    if (b->ok) did(b, b->f->table->cast(&(cast_args){.y = y, .x = x}, b->f->s));
    void *got = take(b, y);
    for (int64_t i = 0; i < n && b->ok; i++) {
        double in = storage_get(values, from, i), g = storage_get(got, to, i), want = storage_round(to, in);
        bool same = isnan(want) ? isnan(g) : g == want && signbit(g) == signbit(want);
        if (!same) say(b, "cast %s %a to %s gave %a, expected %a", dtype_name(from), in, dtype_name(to), g, want);
    }
    free(got);
    return b->ok;
}

static bool cast_exhaustive(const fixture *f, char why[WHY]) {
    // Low halves of a float on both sides of every rounding decision of BF16 (bit 15) and FP16 (bit 12, lower for
    // denormals).
    static const uint16_t low[] = {0,      1,      0x0fff, 0x1000, 0x1001, 0x1fff, 0x2000,
                                   0x3000, 0x7fff, 0x8000, 0x8001, 0xf000, 0xffff};
    enum { LOWS = sizeof low / sizeof *low };
    uint16_t *half = malloc(65536 * sizeof *half);
    uint32_t *full = malloc(65536 * LOWS * sizeof *full);
    for (uint32_t i = 0; i < 65536; i++) {
        half[i] = (uint16_t)i;
        for (int k = 0; k < LOWS; k++) full[i * LOWS + (uint32_t)k] = i << 16 | low[k];
    }
    bool ok = true;
    for (int from = BF16; from <= FP16 && ok; from++)
        for (int to = FP32; to <= FP16 && ok; to++) {
            bench b = {.f = f, .ok = true, .why = why};
            if (from != to) cast_all(&b, (dtype)to, (dtype)from, half, 65536);
            ok = done(&b);
        }
    for (int to = BF16; to <= FP16 && ok; to++) {
        bench b = {.f = f, .ok = true, .why = why};
        cast_all(&b, (dtype)to, FP32, full, 65536 * LOWS);
        ok = done(&b);
    }
    free(half), free(full);
    return ok;
}

// --- dropout ---------------------------------------------------------------------------------------------------------

// What the mask does to ones, as one float for each element.
static float *mask(bench *b, tensor *y, const tensor *ones, dropout_key key) {
    if (b->ok) did(b, b->f->table->dropout(&(dropout_args){.y = y, .x = ones, .drop = &key}, b->f->s));
    return take(b, y);
}

static int64_t zeros(const float *p, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += p[i] == 0;
    return count;
}

static bool dropout_masks(const fixture *f, char why[WHY]) {
    enum { B = 4, E = 25001 };
    bench b = {.f = f, .ok = true, .why = why};
    float *ones = malloc((size_t)B * E * sizeof *ones);
    for (int i = 0; i < B * E; i++) ones[i] = 1;
    tensor *x = box(&b, FP32, B, E, ones), *y = box(&b, FP32, B, E, NULL);
    tensor head = view2(x, B / 2, E), part = view2(y, B / 2, E);
    dropout_key key = {.seed = 99, .step = 5, .first_sample = 1000, .site = 0x50000011, .p = 0.2f}, later = key,
                other = key;
    float *whole = mask(&b, y, x, key);
    // The rate: 100,004 draws of p = 0.2 have a standard deviation of 126.5; five of them.
    int64_t gone = zeros(whole, B * E);
    if (llabs(gone - B * E / 5) > 633) say(&b, "p = 0.2 dropped %" PRId64 " of %d", gone, B * E);
    // Samples 2 and 3 of the key are samples 0 and 1 of a key that begins there.
    later.first_sample += B / 2;
    float *tail = mask(&b, &part, &head, later);
    if (b.ok && memcmp(tail, whole + B / 2 * E, sizeof(float) * B / 2 * E))
        say(&b, "samples [2,4) depend on where the call begins");
    // Another step, site, seed or sample is another mask.
    for (int k = 0; k < 4; k++) {
        other = key;
        if (k == 0) other.step++;
        if (k == 1) other.site++;
        if (k == 2) other.seed += 1ull << 32;
        if (k == 3) other.first_sample += B;
        float *m = mask(&b, y, x, other);
        int64_t same = 0;
        for (int i = 0; i < B * E; i++) same += (m[i] == 0) == (whole[i] == 0);
        if (llabs(same - (int64_t)(0.68 * B * E)) > 738)
            say(&b, "key part %d does not make another mask: %" PRId64 " of %d alike", k, same, B * E);
        free(m);
    }
    free(ones), free(whole), free(tail);
    return done(&b);
}

// --- non-finite values -----------------------------------------------------------------------------------------------

// Whatever is not finite must be seen by the finite check: it may not turn into a number on its way.
static void expect_not_finite(bench *b, const char *what, const tensor *x, int64_t from, int64_t n) {
    void *p = take(b, x);
    for (int64_t i = 0; i < tensor_count(x) && b->ok; i++) {
        double v = storage_get(p, x->type, i);
        bool inside = i >= from && i < from + n;
        if (inside == (bool)isfinite(v))
            say(b, "%s[%" PRId64 "] is %g, expected %s", what, i, v, inside ? "NaN or infinity" : "a number");
    }
    free(p);
}

// ... but not where it has no business: columns that are no classes.
static void expect_zero_columns(bench *b, const tensor *x, int64_t from) {
    unsigned char *p = take(b, x);
    for (int64_t i = 0; i < tensor_count(x); i++) {
        double v = storage_get(p, x->type, i);
        if (i % x->size[1] >= from && (v != 0 || signbit(v)))
            say(b, "cross_entropy of a row with it: gradient %" PRId64 ", column %" PRId64 ", is %g, expected +0", i,
                i % x->size[1], v);
    }
    free(p);
}

static bool not_finite(const fixture *f, char why[WHY]) {
    bool ok = true;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3 && ok; k++) {
        bench b = {.f = f, .ok = true, .why = why};
        enum { N = 3, C = 40, AT = C + 7 };  // the bad value is in row 1
        const ops *o = f->table;
        float *p = random_values(FP32, N * C, 1, 5);
        p[AT] = bad[k];
        int32_t target[N] = {1, 2, 3};
        step_state state = {.loss_scale = 2};
        float scale = 1;
        tensor *x = box(&b, FP32, N, C, p), *y = box(&b, FP32, N, C, NULL), *w = random_box(&b, FP32, C, 0, 1, 6);
        tensor *mean = box(&b, FP32, N, 0, NULL), *rstd = box(&b, FP32, N, 0, NULL),
               *losses = box(&b, FP32, N, 0, NULL);
        tensor *targets = box(&b, INT32, N, 0, target), *st = box(&b, INT32, sizeof state / 4, 0, &state);
        tensor *sums = box(&b, FP64, 1, 0, NULL);
        did(&b, o->add(&(add_args){.y = y, .a = x, .b = x}, f->s));
        expect_not_finite(&b, "add", y, AT, 1);
        did(&b,
            o->layer_norm_forward(
                &(layer_norm_forward_args){.y = y, .mean = mean, .rstd = rstd, .x = x, .w = w, .b = w, .eps = 1e-5f},
                f->s));
        expect_not_finite(&b, "layer_norm of a row with it", y, C, C);
        did(&b, o->sum_squares(&(sum_squares_args){.sums = sums, .g = x}, f->s));
        expect_not_finite(&b, "sum_squares", sums, 0, 1);
        if (isnan(bad[k])) {
            did(&b, o->gelu_forward(&(gelu_forward_args){.y = y, .x = x}, f->s));
            expect_not_finite(&b, "gelu_forward", y, AT, 1);
            did(&b,
                o->batch_norm_apply(
                    &(batch_norm_apply_args){.y = y, .x = x, .mean = w, .rstd = w, .gain = w, .bias = w, .relu = true},
                    f->s));
            expect_not_finite(&b, "batch_norm_apply with relu", y, AT, 1);
        }
        if (isnan(bad[k]) || bad[k] > 0) {
            did(&b, o->relu_forward(&(relu_forward_args){.y = y, .x = x}, f->s));
            expect_not_finite(&b, "relu_forward", y, AT, 1);
        }
        if (bad[k] > 0 || isnan(bad[k])) {  // a logit of -inf is a class that cannot be
            did(&b, o->cross_entropy(&(cross_entropy_args){.losses = losses,
                                                           .logits = x,
                                                           .targets = targets,
                                                           .classes = C,
                                                           .scale = &scale,
                                                           .state = st->data},
                                     f->s));
            expect_not_finite(&b, "cross_entropy's loss", losses, 1, 1);
            put(&b, x, p);
            did(&b, o->cross_entropy(&(cross_entropy_args){.losses = losses,
                                                           .logits = x,
                                                           .targets = targets,
                                                           .classes = C - 3,
                                                           .scale = &scale,
                                                           .state = st->data},
                                     f->s));
            expect_not_finite(&b, "cross_entropy's loss of fewer classes", losses, 1, 1);
            expect_zero_columns(&b, x, C - 3);
        }
        free(p);
        ok = done(&b);
    }
    return ok;
}

// --- adamw: five steps, driven as the trainer drives them ------------------------------------------------------------

enum { STEPS = 5, WEIGHTS = 1037 };
typedef struct adam_ref {
    double master[WEIGHTS], m[WEIGHTS], v[WEIGHTS], grad[WEIGHTS];
    int64_t t;
} adam_ref;

static void adam_step(bench *b, int step, adam_ref *ref, const step_rules *rules, const adamw_rules *adam) {
    tensor *w = &b->t[0], *master = &b->t[1], *m = &b->t[2], *v = &b->t[3], *grad = &b->t[4], *st = &b->t[5],
           *sums = &b->t[6], *powers = &b->t[7];
    float *g = random_values(FP32, WEIGHTS, 100, (uint32_t)(40 + step));
    double norm = 0;
    if (step == 2) g[WEIGHTS - 1] = INFINITY;  // skipped: its m and v must not see it
    for (int i = 0; i < WEIGHTS; i++) ref->grad[i] = (double)g[i], norm += ref->grad[i] * ref->grad[i];
    put(b, grad, g);
    free(g);
    step_state *before = take(b, st);
    if (b->ok) did(b, b->f->table->sum_squares(&(sum_squares_args){.sums = sums, .g = grad}, b->f->s));
    step_decide_args args = {
        .state = st->data, .sums = sums, .rules = rules, .scalars = powers->data, .scalar_count = 2};
    if (b->ok) did(b, b->f->table->step_decide(&args, b->f->s));
    if (b->ok)
        did(b, b->f->table->adamw(&(adamw_args){.w = w,
                                                .master = master,
                                                .m = m,
                                                .v = v,
                                                .grad = grad,
                                                .state = st->data,
                                                .power = powers->data,
                                                .rules = adam},
                                  b->f->s));
    double scale = (double)before->loss_scale, factor = 1 / scale * fmin(1, rules->grad_clip / (sqrt(norm) / scale));
    if (step != 2)
        ref_adamw(ref->master, ref->m, ref->v, ref->grad, factor, (double)before->lr, ++ref->t, adam, WEIGHTS);
    free(before);
}

static bool adamw_steps(const fixture *f, char why[WHY]) {
    bench b = {.f = f, .ok = true, .why = why};
    const step_rules rules = {1.5, true, 3, 0, 0};
    const adamw_rules adam = {0.9, 0.95, 1e-8, 0.1, 0};
    const step_state start = {.lr = 3e-3f, .loss_scale = 1024};
    const step_scalar powers[] = {{1, 0.9, 0}, {1, 0.95, 0}};
    adam_ref *ref = calloc(1, sizeof *ref);
    float *p = random_values(FP32, WEIGHTS, 0.05, 3);
    box(&b, BF16, WEIGHTS, 0, NULL);
    box(&b, FP32, WEIGHTS, 0, p);
    for (int i = 0; i < 3; i++) box(&b, FP32, WEIGHTS, 0, NULL);  // m, v from zero, grad
    box(&b, INT32, sizeof start / 4, 0, &start);
    box(&b, FP64, 1, 0, NULL);
    box(&b, FP64, 6, 0, powers);
    for (int i = 0; i < WEIGHTS; i++) ref->master[i] = (double)p[i];
    for (int step = 0; step < STEPS; step++) adam_step(&b, step, ref, &rules, &adam);
    step_state *s = take(&b, &b.t[5]);
    if (b.ok && (s->updates != STEPS - 1 || s->skipped != 1))
        say(&b, "updates %" PRId64 ", skipped %" PRId64, s->updates, s->skipped);
    const double *want[] = {ref->master, ref->m, ref->v};
    static const char *const name[] = {"master", "m", "v"};
    for (int i = 0; i < 3; i++) {
        char text[WHY];
        void *got = take(&b, &b.t[1 + i]);
        if (b.ok && !values_near(name[i], FP32, got, want[i], WEIGHTS, 1e-12, 0, text))
            say(&b, "after %d steps: %.300s", STEPS, text);
        free(got);
    }
    free(s), free(p), free(ref);
    return done(&b);
}

// --- one optimizer step is the CPU's, to the bit: under offload the CPU does it for the device -----------------------

enum {
    OPT_W,
    OPT_MASTER,
    OPT_M,
    OPT_V,
    OPT_GRAD,
    OPT_STATE,
    OPT_SUMS,
    OPT_POWERS,
    OPT_CUTS,
    OPT_NORMS,
    OPT_OF_ROW,
    OPT_TENSORS
};

// Magnitudes from denormals to 1e12, both signs but for v, zeros; no NaN, whose bits are nobody's promise.
static float *step_values(int64_t n, int which) {
    float *x = random_values(FP32, n, 1, (uint32_t)(70 + which));
    for (int64_t i = 0; i < n; i++) {
        int low = which == OPT_GRAD ? -50 : -35, range = which == OPT_GRAD ? 90 : 40;
        double y = ldexp((double)x[i], low + (int)((i * 29 + which * 11) % range));
        if (which == OPT_V) y = fabs(y);
        x[i] = (float)(i % 31 == which ? 0 : i % 37 == which ? ldexp(y, -110) : y);
    }
    return x;
}

typedef enum optimizer { BY_ADAMW, BY_SGD, BY_NESTEROV, BY_LARS, OPTIMIZERS } optimizer;

// sgd's buffer is where adamw's m is.
static err_t update(const fixture *f, optimizer by, tensor t[OPT_TENSORS], const rounding_key *round) {
    const adamw_rules adam = {0.9, 0.95, 1e-8, 0.1, 0};
    const sgd_rules sgd = {0.9, 0.1, by == BY_NESTEROV, 0, 0};
    if (by == BY_ADAMW)
        return f->table->adamw(&(adamw_args){.w = &t[OPT_W],
                                             .master = &t[OPT_MASTER],
                                             .m = &t[OPT_M],
                                             .v = &t[OPT_V],
                                             .grad = &t[OPT_GRAD],
                                             .state = t[OPT_STATE].data,
                                             .power = t[OPT_POWERS].data,
                                             .rules = &adam,
                                             .round = round},
                               f->s);
    return f->table->sgd(&(sgd_args){.w = &t[OPT_W],
                                     .master = &t[OPT_MASTER],
                                     .buf = &t[OPT_M],
                                     .grad = &t[OPT_GRAD],
                                     .state = t[OPT_STATE].data,
                                     .ratio = by == BY_LARS ? t[OPT_OF_ROW].data : NULL,
                                     .rules = &sgd,
                                     .round = round},
                         f->s);
}

// All weights are one row.
static err_t rows(const fixture *f, optimizer by, tensor t[OPT_TENSORS]) {
    const lars_rules rules = {1e-3, 0.1, 1e-8};
    if (by != BY_LARS) return ERR_OK;
    TRY(f->table->sum_squares(&(sum_squares_args){.sums = &t[OPT_NORMS], .g = &t[OPT_MASTER]}, f->s));
    return f->table->lars_ratio(&(lars_ratio_args){.ratio = &t[OPT_OF_ROW],
                                                   .at = &t[OPT_CUTS],
                                                   .grads = &t[OPT_SUMS],
                                                   .weights = &t[OPT_NORMS],
                                                   .state = t[OPT_STATE].data,
                                                   .rules = &rules},
                                f->s);
}

// Two steps on f of n weights that begin `at` elements past an aligned address; out: what they leave.
static bool two_steps(const fixture *f, optimizer by, dtype T, int64_t n, int64_t at, const rounding_key *round,
                      void *out[OPT_TENSORS], char why[WHY]) {
    bench b = {.f = f, .ok = true, .why = why};
    const step_rules rules = {1e3, true, 2, 0, 0};
    const step_state start = {.lr = 3e-3f, .loss_scale = 1024, .updates = 2};
    const step_scalar powers[] = {{0.9 * 0.9, 0.9, 0}, {0.95 * 0.95, 0.95, 0}};
    tensor t[OPT_TENSORS];
    for (int k = 0; k < OPT_STATE; k++) {
        dtype type = k == OPT_W ? T : FP32;
        float *x = k == OPT_W ? NULL : step_values(n + at, k);
        t[k] = *box(&b, type, n + at, 0, x);
        t[k] = (tensor){(char *)t[k].data + (size_t)at * dtype_bytes(type), type, 1, {n, 1, 1, 1}};
        free(x);
    }
    t[OPT_STATE] = *box(&b, INT32, sizeof start / 4, 0, &start);
    const int32_t cuts[] = {0, (int32_t)((n + CHUNK - 1) / CHUNK)};
    t[OPT_SUMS] = *box(&b, FP64, cuts[1], 0, NULL);
    t[OPT_POWERS] = *box(&b, FP64, 6, 0, powers);
    t[OPT_CUTS] = *box(&b, INT32, 2, 0, cuts);
    t[OPT_NORMS] = *box(&b, FP64, cuts[1], 0, NULL);
    t[OPT_OF_ROW] = *box(&b, FP32, 1, 0, NULL);
    for (int step = 0; step < 2 && b.ok; step++) {
        did(&b, f->table->sum_squares(&(sum_squares_args){.sums = &t[OPT_SUMS], .g = &t[OPT_GRAD]}, f->s));
        did(&b, f->table->step_decide(&(step_decide_args){.state = t[OPT_STATE].data,
                                                          .sums = &t[OPT_SUMS],
                                                          .rules = &rules,
                                                          .scalars = t[OPT_POWERS].data,
                                                          .scalar_count = 2},
                                      f->s));
        did(&b, rows(f, by, t));
        did(&b, update(f, by, t, round));
    }
    for (int k = 0; k < OPT_TENSORS; k++) out[k] = take(&b, &t[k]);
    return done(&b);
}

// Both do the same two steps; a difference is reported with its tensor.
static bool same_steps(const fixture *f, const fixture *cpu, optimizer by, dtype T, int64_t n, int64_t at,
                       const rounding_key *round, char why[WHY]) {
    static const char *const names[] = {"adamw", "sgd", "sgd, nesterov", "lars"};
    static const char *const name[] = {"w",    "master",       "m",    "v", "grad", "state", "sums", "powers",
                                       "cuts", "squares of w", "ratio"};
    const size_t each = (size_t)n * 4, sums = (size_t)(n + CHUNK - 1) / CHUNK * sizeof(double);
    const size_t bytes[] = {(size_t)n * dtype_bytes(T),
                            each,
                            each,
                            each,
                            each,
                            sizeof(step_state),
                            sums,
                            2 * sizeof(step_scalar),
                            2 * sizeof(int32_t),
                            by == BY_LARS ? sums : 0,
                            by == BY_LARS ? sizeof(float) : 0};
    void *got[OPT_TENSORS] = {0}, *want[OPT_TENSORS] = {0};
    bool ok = two_steps(f, by, T, n, at, round, got, why) && two_steps(cpu, by, T, n, at, round, want, why);
    if (ok && ((step_state *)want[OPT_STATE])->updates != 4) ok = false, snprintf(why, WHY, "the steps were skipped");
    for (int k = 0; k < OPT_TENSORS; k++) {
        if (ok && memcmp(got[k], want[k], bytes[k])) {
            ok = false;
            snprintf(why, WHY,
                     "%s: %s of %" PRId64 " weights in %s%s, %" PRId64
                     " past an aligned address: %s has not the CPU's bits",
                     f->name, names[by], n, dtype_name(T), round ? ", rounded stochastically" : "", at, name[k]);
        }
        free(got[k]), free(want[k]);
    }
    return ok;
}

static bool step_as_cpu(const fixture *f, char why[WHY]) {
    static const int64_t sizes[] = {1, 7, 259, 4099, CHUNK + 5, 4 * CHUNK - 3};
    fixture cpu = {.name = "the CPU"};
    bool ok = device_open(&cpu.dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}) == ERR_OK &&
              stream_open(cpu.dev, &cpu.s) == ERR_OK;
    if (!ok) return snprintf(why, WHY, "%s", err_last()->text), false;
    cpu.table = device_ops(cpu.dev);
    const rounding_key round = {.seed = 1337, .site = 0x60000001, .first = 3 * CHUNK};
    for (int i = 0; i < 36 * OPTIMIZERS && ok; i++)
        ok = same_steps(f, &cpu, (optimizer)(i / 36), compute_types[i % 3], sizes[i % 36 / 6], i / 3 % 2, NULL, why);
    for (int i = 0; i < 24 * OPTIMIZERS && ok; i++)
        ok = same_steps(f, &cpu, (optimizer)(i / 24), compute_types[1 + i % 2], sizes[i % 24 / 4], i / 2 % 2, &round,
                        why);
    stream_close(cpu.s), device_close(cpu.dev);
    return ok;
}

const special specials[] = {
    {"matmul: fused epilogues are the unfused pairs, to the bit", matmul_fused},
    {"a vocabulary's padding changes no bit", padding_is_nothing},
    {"layer_norm: fused residual is the unfused pair, to the bit", norm_fused},
    {"geglu: where up is 1 it is gelu, to the bit", geglu_is_gelu},
    {"norms: shift + w is one gain, to the bit", shift_is_part_of_the_gain},
    {"norms: without a shift, -0 stays -0", no_shift_leaves_minus_zero},
    {"embedding: a factor is part of the table, to the bit", a_factor_is_part_of_the_table},
    {"cast: every 16-bit value, every rounding decision", cast_exhaustive},
    {"dropout: rate, keys, samples", dropout_masks},
    {"attention: causal to the bit", attention_causal},
    {"attention: a text that grows has the bits of one that is there", attention_grows},
    {"cross attention: a text that is said has the bits of one that is there", cross_attention_grows},
    {"what is not finite stays visible", not_finite},
    {"step_decide: truth table", decide_table},
    {"step_decide: sums that were aborted", decide_aborted},
    {"step_decide: norms far above the mean", decide_outliers},
    {"step_decide: losses that do not count", decide_counts},
    {"step_decide: the scale stays usable", scale_limits},
    {"adamw: five steps with one skipped", adamw_steps},
    {"optimizer step: the CPU's bits", step_as_cpu},
    {"encode_sparse: steps of lanes are those of deep gradient compression", sparse_steps},
    {"decode_sparse: indices beyond their chunk", sparse_strange_indices},
    {"stochastic rounding: the share that goes up", rounding_share},
    {"stochastic rounding: what it leaves alone", rounding_leaves},
    {"stochastic rounding: no bias over many updates", rounding_mean},
    {"stochastic rounding: keys", rounding_keys},
    {"stochastic rounding: parts of a tensor, and coming back", rounding_comes_back},
    {"stochastic rounding: updates below half a gap", rounding_shows_updates},
};
const int special_count = sizeof specials / sizeof *specials;
