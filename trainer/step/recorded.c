// trainer/step/recorded.c: see trainer/step/recorded.h. Actions are sorted by all that a recording fixes; those that
// are equal share one.
#include "trainer/step/recorded.h"

#include <stdlib.h>

// Addresses and numbers passed by value, as far as actions differ in them: what they don't have is 0, or -1 of buffers.
enum { FIXES = 10 };
typedef struct fixed {
    int by[FIXES];
    int action;
} fixed;

static bool is_part(const action *a) {
    return a->kind == ACTION_FORWARD || a->kind == ACTION_BACKWARD || a->kind == ACTION_INPUTS ||
           a->kind == ACTION_WEIGHTS;
}

// The place has the samples, and step and first sample for dropout; the slot has the activations. Weights and the
// gradients in slots of buckets are where the blocks say. The boundaries' gradients belong to the stage's last block
// and to its first one.
static fixed fixes(const action *a, int i, const stages *of) {
    const int *cut = &of->cut[stages_with(of, a->first)];
    bool back = a->kind != ACTION_FORWARD;
    return (fixed){.by = {(int)a->kind, a->first, a->last, a->place, a->slot, back ? a->buffer : 0, back && a->fresh,
                          back && a->last == cut[1] - 1 ? a->in : -1, back && a->first == cut[0] ? a->out : -1,
                          recorded_losses(a)},
                   .action = i};
}

static int compare(const void *x, const void *y) {
    const fixed *a = x, *b = y;
    for (int k = 0; k < FIXES; k++)
        if (a->by[k] != b->by[k]) return a->by[k] < b->by[k] ? -1 : 1;
    return 0;
}

// Numbers them; returns how many differ.
static int number(recorded_parts *x, fixed *f, int parts) {
    int count = 0;
    qsort(f, (size_t)parts, sizeof *f, compare);
    for (int i = 0; i < parts; i++) {
        count += i == 0 || compare(&f[i - 1], &f[i]) != 0;
        x->of[f[i].action] = count - 1;
    }
    return count;
}

err_t recorded_open(recorded_parts *x, const action_list *a, const stages *of) {
    int parts = 0;
    *x = (recorded_parts){.of = malloc((size_t)(a->count + 1) * sizeof *x->of)};
    fixed *f = malloc((size_t)(a->count + 1) * sizeof *f);
    for (int i = 0; x->of && f && i < a->count; i++) {
        x->of[i] = -1;
        if (is_part(&a->at[i])) f[parts++] = fixes(&a->at[i], i, of);
    }
    if (x->of && f) x->count = number(x, f, parts);
    free(f);
    x->part = calloc(2 * (size_t)x->count + 1, sizeof *x->part);
    return x->of && f && x->part ? ERR_OK
                                 : err_set(ERR_INTERNAL, "no memory for the recordings of %d actions", a->count);
}

void recorded_close(recorded_parts *x) {
    for (int i = 0; x->part && i < 2 * x->count; i++) replay_close(&x->part[i].calls);
    free(x->of), free(x->part);
    *x = (recorded_parts){0};
}

recorded_part *recorded_at(const recorded_parts *x, int i, bool finds) {
    return x->of ? &x->part[2 * x->of[i] + finds] : NULL;
}
