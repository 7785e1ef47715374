// trainer/tune.c: `lockstep tune`: meets the matrix products of a run's steps, on made-up samples, and measures how
// each is best computed.
#include "base/io.h"
#include "trainer/session/restore.h"
#include "trainer/session/tuned.h"
#include "trainer/verbs.h"

#include <stdlib.h>

enum { SHAPES_MOST = 512, TUNE_STEPS = 2 };

static void print_head(FILE *out) {
    fprintf(out, "%9s %9s %8s %6s %7s  %s\n", "ms", "first", "TFLOP/s", "tried", "refused", "matrix product");
}

static void print_plan(const plan_tuning *t, FILE *out) {
    fprintf(out, "%9.4f %9.4f %8.1f %6d %7d  %s\n", t->best_ms, t->first_ms,
            t->best_ms > 0 ? 1e-9 * t->flops / t->best_ms : 0, t->tried, t->refused, t->name);
    fflush(out);
}

// The plans are read first: measuring one makes others.
static err_t read_plans(const session *x, char (*text)[DEVICE_PLAN], int *count) {
    for (*count = 0; *count < SHAPES_MOST && device_plans_get(x->dev, *count, text[*count]); ++*count) {}
    if (*count) return ERR_OK;
    return err_set(
        ERR_UNAVAILABLE,
        "%s multiplies without plans, so there is nothing to measure; lockstep tune is for GPUs ([device] backend = cuda)",
        device_about(x->dev)->name);
}

static err_t measure_all(session *x, char (*text)[DEVICE_PLAN], plan_tuning *plan, int *count, FILE *out) {
    TRY(read_plans(x, text, count));
    print_head(out);
    for (int i = 0; i < *count; i++) {
        TRY(device_plans_tune(x->dev, x->s, text[i], &plan[i]));
        print_plan(&plan[i], out);
    }
    return ERR_OK;
}

static err_t run_steps(session *x) {
    step_result r;
    TRY(session_init(x));
    TRY(session_feed(x, TUNE_STEPS));
    for (int i = 0; i < TUNE_STEPS; i++) TRY(session_step(x, &r));
    return session_settle(x);
}

// The file of [device] plans, or else one in the run's directory.
static err_t save(const session *x, const plan_tuning *plan, int count, FILE *out) {
    const char *named = x->cfg->device.plans;
    char path[IO_PATH];
    if (!*named) TRY(io_mkdirs(x->dir));
    TRY(io_path(path, "%s%s", *named ? named : x->dir, *named ? "" : "/plans"));
    TRY(tuned_save(x->dev, path, plan, count));
    fprintf(out, "%d plans: %s%s\n", count, path, *named ? "" : " (a run uses it with [device] plans set to its path)");
    return ERR_OK;
}

static err_t tune(session *x, FILE *out) {
    int count;
    char(*text)[DEVICE_PLAN] = calloc(SHAPES_MOST, sizeof *text);
    plan_tuning *plan = calloc(SHAPES_MOST, sizeof *plan);
    err_t rc = text && plan ? run_steps(x) : err_set(ERR_INTERNAL, "no memory for %d plans", SHAPES_MOST);
    if (rc == ERR_OK) rc = measure_all(x, text, plan, &count, out);
    if (rc == ERR_OK) rc = save(x, plan, count, out);
    free(text), free(plan);
    return rc;
}

err_t verb_tune(const config *c, FILE *out) {
    session x;
    err_t rc = session_open(&x, c, SESSION_TUNE, NULL);
    if (rc == ERR_OK) rc = tune(&x, out);
    session_close(&x);
    return rc;
}
