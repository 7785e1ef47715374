// test/ops/special_step.c: what step_decide decides, case by case.
#include "test/ops/special.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct decision {
    const char *why;
    double sums[2];
    double clip;
    bool dynamic;
    int64_t window, good_steps;  // before
    bool apply;                  // expected from here on
    double norm, clipped_to;     // clipped_to: norm after grad_factor
    float scale;                 // 64 before
    int64_t good_after;          // -1: not said
} decision;

static const decision decisions[] = {
    // sums are of gradients scaled by 64: a norm of 5 shows as (5 * 64)^2 = 102400
    {"no clipping", {51200, 51200}, 0, true, 10, 3, true, 5, 5, 64, 4},
    {"below the clip", {51200, 51200}, 6, true, 10, 3, true, 5, 5, 64, 4},
    {"above the clip", {51200, 51200}, 1, true, 10, 3, true, 5, 1, 64, 4},
    {"zero gradient", {0, 0}, 1, true, 10, 3, true, 0, 0, 64, 4},
    {"window full: scale doubles", {102400, 0}, 0, true, 10, 9, true, 5, 5, 128, 0},
    {"one before the window", {102400, 0}, 0, true, 10, 8, true, 5, 5, 64, 9},
    {"window of one", {102400, 0}, 0, true, 1, 0, true, 5, 5, 128, 0},
    {"fixed scale stays", {102400, 0}, 0, false, 10, 9, true, 5, 5, 64, -1},
    {"infinity in the first", {INFINITY, 1}, 1, true, 10, 9, false, 0, 0, 32, 0},
    {"infinity in the last", {1, INFINITY}, 0, true, 10, 3, false, 0, 0, 32, 0},
    {"NaN", {NAN, 1}, 1, true, 10, 3, false, 0, 0, 32, 0},
    {"finite sums, infinite total", {1.7e308, 1.7e308}, 1, true, 10, 3, false, 0, 0, 32, 0},
    {"overflow under fixed scale", {NAN, 1}, 1, false, 10, 3, false, 0, 0, 64, -1},
};

// With islands the sums are those of all of them, which are as many times as much here.
static void decide_one(bench *b, tensor *st, tensor *sums, tensor *scalars, const decision *d, int islands) {
    const double all[] = {d->sums[0] * (islands ? islands : 1), d->sums[1] * (islands ? islands : 1)};
    const step_state before = {.lr = 0.125f,
                               .apply = 77,
                               .grad_factor = 77,
                               .loss_scale = 64,
                               .grad_norm = 77,
                               .updates = 41,
                               .good_steps = d->good_steps,
                               .skipped = 6};
    const step_rules rules = {d->clip, d->dynamic, d->window, 0, islands};
    const step_scalar powers[] = {{0.25, 0.5, 0}, {0.5, 0.75, 0}};
    put(b, st, &before);
    put(b, sums, all);
    put(b, scalars, powers);
    step_decide_args args = {
        .state = st->data, .sums = sums, .rules = &rules, .scalars = scalars->data, .scalar_count = 2};
    if (b->ok) did(b, b->f->table->step_decide(&args, b->f->s));
    step_state *s = take(b, st);
    step_scalar *x = take(b, scalars);
    if (!b->ok) return free(s), free(x);
    if (s->apply != d->apply || s->loss_scale != d->scale || s->lr != before.lr)
        say(b, "%s: apply %d, scale %g, lr %g", d->why, s->apply, (double)s->loss_scale, (double)s->lr);
    if (d->good_after >= 0 && s->good_steps != d->good_after) say(b, "%s: good_steps %" PRId64, d->why, s->good_steps);
    if (s->updates != 41 + d->apply || s->skipped != 6 + !d->apply)
        say(b, "%s: updates %" PRId64 ", skipped %" PRId64, d->why, s->updates, s->skipped);
    if (x[0].value != (d->apply ? 0.125 : 0.25) || x[1].value != (d->apply ? 0.375 : 0.5))
        say(b, "%s: powers %g %g", d->why, x[0].value, x[1].value);
    if (d->apply ? s->grad_norm != d->norm : (bool)isfinite(s->grad_norm)) say(b, "%s: norm %g", d->why, s->grad_norm);
    double after = (double)s->grad_factor * 64 * d->norm;  // within the 1e-6 that some add to the norm
    if (d->apply && d->norm > 0 && fabs(after - d->clipped_to) > 2e-6 * d->clipped_to)
        say(b, "%s: norm after the factor is %.9g", d->why, after);
    if (d->apply && d->norm == 0 && s->grad_factor != 1.0f / 64)
        say(b, "%s: factor %g", d->why, (double)s->grad_factor);
    free(s), free(x);
}

// Of 40 losses a quarter counts: norm and gradient are those of a mean over 10. All count: the bits of no counts at
// all. None: skipped, scale and window stay.
bool decide_counts(const fixture *f, char why[WHY]) {
    bench b = {.f = f, .ok = true, .why = why};
    static const struct {
        double counts[4];
        bool apply;
        double norm, factor;
    } cases[] = {{{10, 0, 0, 0}, true, 20, 4.0 / 64 / 2},
                 {{3, 2, 0, 5}, true, 20, 4.0 / 64 / 2},
                 {{10, 10, 10, 10}, true, 5, 1.0 / 64},
                 {{0}, false, 0, 0}};
    const step_rules rules = {10, true, 100, 0, 0};
    const step_state before = {.loss_scale = 64, .updates = 3, .good_steps = 7, .skipped = 2};
    tensor *st = box(&b, INT32, sizeof before / 4, 0, NULL), *sums = box(&b, FP64, 2, 0, NULL),
           *counts = box(&b, FP64, 4, 0, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases && b.ok; i++) {
        put(&b, st, &before);
        put(&b, sums, (double[]){51200, 51200});
        put(&b, counts, cases[i].counts);
        step_decide_args args = {.state = st->data, .sums = sums, .counts = counts, .losses = 40, .rules = &rules};
        if (b.ok) did(&b, f->table->step_decide(&args, f->s));
        step_state *s = take(&b, st);
        bool ok = cases[i].apply ? s->grad_norm == cases[i].norm &&
                                       fabs((double)s->grad_factor - cases[i].factor) < 1e-6 && s->good_steps == 8
                                 : isnan(s->grad_norm) && s->grad_factor == 0 && s->good_steps == 7;
        if (b.ok && (!ok || s->apply != cases[i].apply || s->loss_scale != 64 || s->updates != 3 + cases[i].apply ||
                     s->skipped != 2 + !cases[i].apply))
            say(&b, "case %zu: apply %d, norm %g, factor %g, scale %g, good_steps %" PRId64 ", skipped %" PRId64, i,
                s->apply, s->grad_norm, (double)s->grad_factor, (double)s->loss_scale, s->good_steps, s->skipped);
        free(s);
    }
    return done(&b);
}

// Norms of 1, then one of `norm`: the mean is of those that were applied, and what is skipped changes nothing else, the
// loss scale above all.
static void decide_after(bench *b, tensor *st, tensor *sums, int before, double norm, bool applies) {
    const step_rules rules = {0, true, 1000, 3, 0};
    const step_state start = {.loss_scale = 64};
    put(b, st, &start);
    for (int i = 0; i <= before && b->ok; i++) {
        double x = i < before ? 1 : norm, square = 64 * 64 * x * x;
        put(b, sums, &square);
        if (b->ok)
            did(b, b->f->table->step_decide(&(step_decide_args){.state = st->data, .sums = sums, .rules = &rules},
                                            b->f->s));
    }
    step_state *s = take(b, st);
    int64_t good = before + applies, norms = good < NORMS_MOST ? good : NORMS_MOST;
    double mean = applies ? 1 + (norm - 1) / (double)norms : 1;
    if (b->ok && (s->apply != applies || s->updates != good || s->good_steps != (isfinite(norm) ? good : 0) ||
                  s->skipped != !applies || s->norms != norms || fabs(s->norm_mean - mean) > 1e-12 ||
                  s->loss_scale != (isfinite(norm) ? 64 : 32)))
        say(b, "%g after %d: apply %d, updates %" PRId64 ", norms %" PRId64 " of mean %g, scale %g", norm, before,
            s->apply, s->updates, s->norms, s->norm_mean, (double)s->loss_scale);
    free(s);
}

bool decide_outliers(const fixture *f, char why[WHY]) {
    bench b = {.f = f, .ok = true, .why = why};
    tensor *st = box(&b, INT32, sizeof(step_state) / 4, 0, NULL), *sums = box(&b, FP64, 1, 0, NULL);
    decide_after(&b, st, sums, NORMS_LEAST - 1, 100, true);  // too few are known
    decide_after(&b, st, sums, NORMS_LEAST, 3.001, false);
    decide_after(&b, st, sums, NORMS_LEAST, 2.999, true);
    decide_after(&b, st, sums, NORMS_LEAST, 0, true);
    decide_after(&b, st, sums, NORMS_LEAST, INFINITY, false);
    decide_after(&b, st, sums, NORMS_MOST + 5, 2, true);
    decide_after(&b, st, sums, NORMS_MOST + 5, 4, false);
    return done(&b);
}

bool decide_table(const fixture *f, char why[WHY]) {
    bench b = {.f = f, .ok = true, .why = why};
    tensor *st = box(&b, INT32, sizeof(step_state) / 4, 0, NULL), *sums = box(&b, FP64, 2, 0, NULL),
           *scalars = box(&b, FP64, 6, 0, NULL);
    for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++)
        for (int islands = 0; islands <= 4 && b.ok; islands += 4)
            decide_one(&b, st, sums, scalars, &decisions[i], islands);
    return done(&b);
}

// A word is missing, is what an aborted sum leaves, or somebody had begun to end things: nothing changes, whatever the
// sums are.
bool decide_aborted(const fixture *f, char why[WHY]) {
    bench b = {.f = f, .ok = true, .why = why};
    static const struct {
        double ended[3];
        int32_t revoked;
        bool apply;
    } cases[] = {{{1, 1, 1}, 0, true},  {{3, 1, 2}, 0, true},    {{1, 1, 1}, 1, false}, {{0, 1, 1}, 0, false},
                 {{1, 1, 0}, 0, false}, {{1, NAN, 1}, 0, false}, {{1, -7, 1}, 0, false}};
    const step_rules rules = {1, true, 1, 3, 0};
    const step_scalar power = {0.25, 0.5, 0};
    const step_state before = {
        .loss_scale = 64, .apply = 1, .updates = 3, .good_steps = 7, .skipped = 2, .norm_mean = 5, .norms = 3};
    tensor *st = box(&b, INT32, sizeof before / 4, 0, NULL), *sums = box(&b, FP64, 2, 0, NULL),
           *ended = box(&b, FP64, 3, 2, NULL), *revoked = box(&b, INT32, 1, 0, NULL),
           *scalars = box(&b, FP64, 3, 0, NULL);
    for (size_t i = 0; i < 3 * sizeof cases / sizeof *cases && b.ok; i++) {
        const double *e = cases[i / 3].ended, rows[3][2] = {{e[0], 9}, {e[1], 0}, {e[2], NAN}};
        put(&b, st, &before), put(&b, scalars, &power);
        put(&b, sums, (double[]){i % 3 == 1 ? NAN : 51200, i % 3 == 2 ? 1e30 : 51200});
        put(&b, ended, rows), put(&b, revoked, &cases[i / 3].revoked);
        step_decide_args args = {.state = st->data,
                                 .sums = sums,
                                 .rules = &rules,
                                 .scalars = scalars->data,
                                 .scalar_count = 1,
                                 .ranks = 3,
                                 .apart = 2,
                                 .ended = ended->data,
                                 .revoked = revoked->data};
        if (b.ok) did(&b, f->table->step_decide(&args, f->s));
        step_state *s = take(&b, st);
        step_scalar *x = take(&b, scalars);
        bool decided = s->updates + s->skipped == 6, applies = cases[i / 3].apply && i % 3 != 1;
        if (b.ok && s->apply != applies) say(&b, "case %zu: apply %d", i, s->apply);
        s->apply = before.apply;
        if (b.ok && decided != cases[i / 3].apply) say(&b, "case %zu: decided %d", i, decided);
        if (b.ok && !decided && (memcmp(s, &before, sizeof before) != 0 || memcmp(x, &power, sizeof power) != 0))
            say(&b, "case %zu: a step that was not decided has changed counters", i);
        if (b.ok && x->value != (applies ? 0.125 : 0.25)) say(&b, "case %zu: the scalar is %g", i, x->value);
        free(s), free(x);
    }
    return done(&b);
}

// Hundreds of overflows, or of doublings, leave a scale that a good step can use.
bool scale_limits(const fixture *f, char why[WHY]) {
    bench b = {.f = f, .ok = true, .why = why};
    const step_rules rules = {0, true, 1, 0, 0};
    const double bad = NAN, good = 4;
    step_state start = {.loss_scale = 64};
    tensor *st = box(&b, INT32, sizeof start / 4, 0, NULL), *sums = box(&b, FP64, 1, 0, NULL);
    for (int up = 0; up < 2; up++) {
        put(&b, st, &start);
        put(&b, sums, up ? &good : &bad);
        for (int i = 0; i < 400 && b.ok; i++)
            did(&b, f->table->step_decide(&(step_decide_args){.state = st->data, .sums = sums, .rules = &rules}, f->s));
        put(&b, sums, &good);
        if (b.ok)
            did(&b, f->table->step_decide(&(step_decide_args){.state = st->data, .sums = sums, .rules = &rules}, f->s));
        step_state *s = take(&b, st);
        bool usable = s->apply == 1 && isfinite(s->loss_scale) && s->loss_scale > 0 && isfinite(s->grad_factor) &&
                      s->grad_factor > 0;
        if (b.ok && !usable)
            say(&b, "after 400 %s: scale %g, factor %g, apply %d", up ? "doublings" : "overflows",
                (double)s->loss_scale, (double)s->grad_factor, s->apply);
        free(s);
    }
    return done(&b);
}
