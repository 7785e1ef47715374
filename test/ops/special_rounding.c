// test/ops/special_rounding.c: see test/ops/special.h. Stochastic rounding: what share goes up, what it leaves alone,
// which keys it has, and what it is for.
#include "test/ops/reference.h"
#include "test/ops/special.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// y = x after update t, as one double for each element; the caller frees it.
static double *rounded_by_chance(bench *b, tensor *y, const tensor *x, tensor *st, rounding_key key, int64_t t) {
    int64_t n = tensor_count(y);
    double *v = calloc((size_t)n, sizeof *v);
    put(b, st, &(step_state){.updates = t});
    if (b->ok)
        did(b, b->f->table->cast_stochastic(&(cast_stochastic_args){.y = y, .x = x, .round = &key, .state = st->data},
                                            b->f->s));
    void *got = take(b, y);
    for (int64_t i = 0; i < n; i++) v[i] = storage_get(got, y->type, i);
    free(got);
    return v;
}

static const rounding_key chance = {.seed = 4711, .site = 0x60000005, .first = 2 * CHUNK};

typedef struct share {
    dtype type;
    double low, gap, f;
} share;

// How many of DRAWS elements of the same value go away from zero: the share f of them, five standard deviations
// allowed; the rest goes the other way.
bool rounding_share(const fixture *f, char why[WHY]) {
    enum { DRAWS = 100000 };
    static const share shares[] = {
        {BF16, 1, 0x1p-7, 0.3125},        {BF16, -0.75, -0x1p-8, 0.5}, {BF16, 0x1p-128, 0x1p-133, 0.25},
        {BF16, 1.5, 0x1p-7, 0x1p-13},     {FP16, 1, 0x1p-10, 0.3125},  {FP16, -3, -0x1p-9, 0.875},
        {FP16, 0x1p-16, 0x1p-24, 0.0625}, {FP16, 0, -0x1p-24, 0.6875},
    };
    bench b = {.f = f, .ok = true, .why = why};
    float *same = malloc(DRAWS * sizeof *same);
    tensor *x = box(&b, FP32, DRAWS, 0, NULL), *bf16 = box(&b, BF16, DRAWS, 0, NULL),
           *fp16 = box(&b, FP16, DRAWS, 0, NULL);
    tensor *st = box(&b, INT32, sizeof(step_state) / 4, 0, NULL);
    for (size_t k = 0; k < sizeof shares / sizeof *shares && b.ok; k++) {
        const share *s = &shares[k];
        for (int i = 0; i < DRAWS; i++) same[i] = (float)(s->low + s->f * s->gap);
        put(&b, x, same);
        double *y = rounded_by_chance(&b, s->type == BF16 ? bf16 : fp16, x, st, chance, 3), ups = 0, downs = 0;
        for (int i = 0; i < DRAWS; i++) ups += y[i] == s->low + s->gap, downs += y[i] == s->low;
        if (ups + downs != DRAWS)
            say(&b, "%s %a went elsewhere than to its two neighbours", dtype_name(s->type), (double)same[0]);
        if (fabs(ups - DRAWS * s->f) > 5 * sqrt(DRAWS * s->f * (1 - s->f)))
            say(&b, "%s: %.0f of %d went up from %a, whose share is %g", dtype_name(s->type), ups, DRAWS,
                (double)same[0], s->f);
        free(y);
    }
    free(same);
    return done(&b);
}

// Numbers of the type stay, and what is beyond them goes to nearest: infinity is made where it always was.
bool rounding_leaves(const fixture *f, char why[WHY]) {
    enum { BEYOND = 5, N = 65536 + BEYOND };
    static const float beyond[2][BEYOND] = {
        {0x1.fe0002p127f, 0x1.fefffep127f, 0x1.ffp127f, -0x1.ff8p127f, 0x1.fffffep127f},
        {65504.004f, 65519.996f, 65520, -1e6f, 0x1.fffffep127f}};
    bool ok = true;
    for (int k = 0; k < 2 && ok; k++) {
        bench b = {.f = f, .ok = true, .why = why};
        dtype T = compute_types[1 + k];
        uint16_t *half = malloc(65536 * sizeof *half);
        float *full = malloc(N * sizeof *full);
        for (int i = 0; i < 65536; i++) half[i] = (uint16_t)i;
        for (int i = 0; i < N; i++) full[i] = i < 65536 ? (float)storage_get(half, T, i) : beyond[k][i - 65536];
        tensor *x = box(&b, FP32, N, 0, full), *y = box(&b, T, N, 0, NULL),
               *st = box(&b, INT32, sizeof(step_state) / 4, 0, NULL);
        for (int64_t t = 1; t <= 4 && b.ok; t++) {
            double *got = rounded_by_chance(&b, y, x, st, chance, t);
            for (int i = 0; i < N && b.ok; i++) {
                double want = storage_round(T, (double)full[i]);
                bool same = isnan(want) ? isnan(got[i]) : got[i] == want && signbit(got[i]) == signbit(want);
                if (!same) say(&b, "%s: %a became %a, expected %a", dtype_name(T), (double)full[i], got[i], want);
            }
            free(got);
        }
        free(half), free(full);
        ok = done(&b);
    }
    return ok;
}

// The mean over many updates is the number itself: half a gap's worth of error at each, and none of it stays.
bool rounding_mean(const fixture *f, char why[WHY]) {
    enum { N = 64, UPDATES = 400 };
    bool ok = true;
    for (int k = 0; k < 2 && ok; k++) {
        bench b = {.f = f, .ok = true, .why = why};
        dtype T = compute_types[1 + k];
        double sum[N] = {0};
        float *x = random_values(FP32, N, 1, 12);
        tensor *from = box(&b, FP32, N, 0, x), *y = box(&b, T, N, 0, NULL),
               *st = box(&b, INT32, sizeof(step_state) / 4, 0, NULL);
        for (int64_t t = 1; t <= UPDATES && b.ok; t++) {
            double *got = rounded_by_chance(&b, y, from, st, chance, t);
            for (int i = 0; i < N; i++) sum[i] += got[i];
            free(got);
        }
        for (int i = 0; i < N && b.ok; i++) {
            double v = fabs((double)x[i]), gap = ldexp(1, ilogb(v) - (T == BF16 ? 7 : 10)),
                   part = v / gap - floor(v / gap);
            double off = fabs(sum[i] / UPDATES - (double)x[i]) / gap, allowed = 5 * sqrt(part * (1 - part) / UPDATES);
            if (off > allowed)
                say(&b, "%s %a: the mean of %d is %g gaps off, allowed %g", dtype_name(T), (double)x[i], UPDATES, off,
                    allowed);
        }
        free(x);
        ok = done(&b);
    }
    return ok;
}

// Another update, tensor, seed or place draws other bits: of numbers half way between two, half fall alike. Before the
// first update: to nearest.
bool rounding_keys(const fixture *f, char why[WHY]) {
    enum { DRAWS = 25001 };
    bench b = {.f = f, .ok = true, .why = why};
    float *half = malloc(DRAWS * sizeof *half);
    for (int i = 0; i < DRAWS; i++) half[i] = 1 + 0x1p-8f;  // a tie, whose even neighbour is 1
    tensor *x = box(&b, FP32, DRAWS, 0, half), *y = box(&b, BF16, DRAWS, 0, NULL),
           *st = box(&b, INT32, sizeof(step_state) / 4, 0, NULL);
    double *base = rounded_by_chance(&b, y, x, st, chance, 9), *first = rounded_by_chance(&b, y, x, st, chance, 0);
    for (int i = 0; i < DRAWS; i++)
        if (first[i] != 1) say(&b, "before the first update %a became %a", (double)half[i], first[i]);
    for (int k = 0; k < 5 && b.ok; k++) {
        rounding_key other = chance;
        int64_t same = 0;
        if (k == 1) other.site++;
        if (k == 2) other.seed += 1ull << 32;
        if (k == 3) other.first += 64;
        if (k == 4) other.first += 1ll << 34;
        double *now = rounded_by_chance(&b, y, x, st, other, k == 0 ? 10 : 9);
        for (int i = 0; i < DRAWS; i++) same += now[i] == base[i];
        if (llabs(same - DRAWS / 2) > 396)
            say(&b, "key part %d does not draw anew: %" PRId64 " of %d alike", k, same, DRAWS);
        free(now);
    }
    free(half), free(base), free(first);
    return done(&b);
}

// A tensor in two calls, as its owners cut it, has the bits of one call; and a later look at the masters finds
// adamw's weights again.
bool rounding_comes_back(const fixture *f, char why[WHY]) {
    enum { N = 2 * CHUNK + 101, CUT = CHUNK };
    const adamw_rules adam = {0.9, 0.95, 1e-8, 0.1, 0};
    bool ok = true;
    for (int k = 0; k < 2 && ok; k++) {
        bench b = {.f = f, .ok = true, .why = why};
        const step_state state = {.lr = 3e-3f, .apply = 1, .grad_factor = 1, .updates = 6};
        const step_scalar powers[] = {{.value = 0.9}, {.value = 0.95}};
        tensor *w[2], *master[2], *st = box(&b, INT32, sizeof state / 4, 0, &state),
                                  *grad = random_box(&b, FP32, N, 0, 1, 5), *power = box(&b, FP64, 6, 0, powers);
        for (int parts = 0; parts < 2; parts++) {
            tensor *m = box(&b, FP32, N, 0, NULL), *v = box(&b, FP32, N, 0, NULL);
            w[parts] = box(&b, compute_types[1 + k], N, 0, NULL), master[parts] = random_box(&b, FP32, N, 0, 0.05, 6);
            for (int64_t at = 0; at < N && b.ok; at += parts ? CUT : N) {
                tensor *all[] = {w[parts], master[parts], m, v, grad}, t[5];
                rounding_key key = chance;
                key.first += at;
                for (int i = 0; i < 5; i++) {
                    t[i] = view1(all[i], parts && N - at > CUT ? CUT : N - at);
                    t[i].data = (char *)all[i]->data + (size_t)at * dtype_bytes(all[i]->type);
                }
                did(&b, f->table->adamw(&(adamw_args){.w = &t[0],
                                                      .master = &t[1],
                                                      .m = &t[2],
                                                      .v = &t[3],
                                                      .grad = &t[4],
                                                      .state = st->data,
                                                      .power = power->data,
                                                      .rules = &adam,
                                                      .round = &key},
                                        f->s));
            }
        }
        expect_same(&b, "weights in one call and in parts", w[0], w[1]);
        if (b.ok)
            did(&b, f->table->cast_stochastic(
                        &(cast_stochastic_args){.y = w[1], .x = master[0], .round = &chance, .state = st->data}, f->s));
        expect_same(&b, "adamw's weights and those of its masters", w[0], w[1]);
        ok = done(&b);
    }
    return ok;
}

// What it is for: eight updates that together are a quarter of a gap. To nearest no weight in use has moved; by chance
// they have, in the mean.
bool rounding_shows_updates(const fixture *f, char why[WHY]) {
    enum { N = 20000, UPDATES = 8 };
    bench b = {.f = f, .ok = true, .why = why};
    const adamw_rules adam = {0, 0, 1e-30, 0, 0};
    float *ones = malloc(N * sizeof *ones);
    for (int i = 0; i < N; i++) ones[i] = 1;
    tensor *w[2] = {box(&b, BF16, N, 0, NULL), box(&b, BF16, N, 0, NULL)}, *grad = box(&b, FP32, N, 0, ones);
    tensor *m = box(&b, FP32, N, 0, NULL), *v = box(&b, FP32, N, 0, NULL),
           *st = box(&b, INT32, sizeof(step_state) / 4, 0, NULL), *power = box(&b, FP64, 6, 0, NULL);
    tensor *master = box(&b, FP32, N, 0, NULL);
    double mean[2] = {0};
    for (int k = 0; k < 2; k++) {
        put(&b, master, ones);
        for (int t = 1; t <= UPDATES && b.ok; t++) {
            put(&b, st, &(step_state){.lr = 0x1p-13f, .apply = 1, .grad_factor = 1, .updates = t});
            did(&b, f->table->adamw(&(adamw_args){.w = w[k],
                                                  .master = master,
                                                  .m = m,
                                                  .v = v,
                                                  .grad = grad,
                                                  .state = st->data,
                                                  .power = power->data,
                                                  .rules = &adam,
                                                  .round = k ? &chance : NULL},
                                    f->s));
        }
        void *got = take(&b, w[k]);
        for (int i = 0; i < N; i++) mean[k] += storage_get(got, BF16, i);
        mean[k] /= N;
        free(got);
    }
    if (b.ok && mean[0] != 1) say(&b, "to nearest the weights are %.9g in the mean, expected 1", mean[0]);
    double allowed = 5 * 0x1p-8 * sqrt(0.25 * 0.75 / N);
    if (b.ok && fabs(mean[1] - (1 - 0x1p-10)) > allowed)
        say(&b, "the mean of the weights is %.9g, of their masters %.9g", mean[1], 1 - 0x1p-10);
    free(ones);
    return done(&b);
}
