// test/test_best.c: which checkpoint `best` is, in runs whose validation loss rises again: through restarts, and where
// the disk fails.
//
// One idea: the learning rate grows until training destroys what it has learned. The run's own log says what every
// evaluation found; which of them was the lowest, and could be saved, is reckoned here.
#include "test/support/train.h"

#include <math.h>

enum { STEPS = 16, EVERY = 2 };

static const char small_model[] = SMALL_GPT(1, 2, 16, 24, 128) SMALL_BATCH(
    12, 6, 2) "[device]\nthreads = 1\n[sample]\ntokens = 0\n[run]\nseed = 2\n[optimizer]\nlr = 0.8\n[schedule]\n"
              "type = constant\nwarmup = 16\n[eval]\nevery = 2\nbatches = 4\n[checkpoint]\nevery = 0\n";

typedef struct rig {
    char *dir;
    config c;
} rig;

static void rig_open(rig *r) { r->dir = data_dir(); }

// To step `to`, from wherever the last one ended.
static err_t run(rig *r, int to, const char *more) {
    char text[256];
    snprintf(text, sizeof text, "[run]\nsteps = %d\n%s", to, more);
    load_config(&r->c, r->dir, small_model, text);
    return train(&r->c, r->dir);
}

// The step that `best` points to, 0: to none.
static int best_of(const rig *r) {
    char path[2048], target[64] = "";
    int step = 0;
    snprintf(path, sizeof path, "%s/%s/best", r->c.run.dir, r->c.run.name);
    if (readlink(path, target, sizeof target - 1) < 0) return 0;
    assert_int_equal(sscanf(target, "ckpt/step-%d", &step), 1);
    strcat(path, "/manifest.json");
    if (access(path, R_OK) != 0) fail_msg("best points to step %d, of which there is no checkpoint", step);
    return step;
}

// The evaluations of the log, as far as they were kept: by step, NAN where there was none.
typedef struct account {
    double loss[STEPS + 1], best[STEPS + 1];
    int best_step[STEPS + 1];
} account;

static account read_account(const rig *r) {
    account a;
    json_t *all = read_records(&r->c, "log.jsonl", "eval");
    for (int i = 0; i <= STEPS; i++) a.loss[i] = NAN;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *record = json_array_get(all, i);
        int step = (int)real_of(record, "step");
        assert_in_range(step, 1, STEPS);
        assert_true(isnan(a.loss[step]));
        a.loss[step] = real_of(record, "loss"), a.best[step] = real_of(record, "best");
        a.best_step[step] = (int)real_of(record, "best_step");
    }
    json_decref(all);
    return a;
}

// The step with the lowest loss until `to`, but for those whose bits are in `lost`, which could not be saved; 0: none.
static int lowest(const account *a, int to, unsigned lost) {
    int at = 0;
    for (int i = 1; i <= to; i++)
        if (!isnan(a->loss[i]) && !(lost >> i & 1) && (!at || a->loss[i] < a->loss[at])) at = i;
    return at;
}

// Every evaluation names the lowest one until then: of itself and of those that were saved.
static void expect_records(const account *a, unsigned lost) {
    for (int i = 1; i <= STEPS; i++) {
        int best = lowest(a, i, lost & ~(1u << i));
        if (!isnan(a->loss[i]) && (a->best_step[i] != best || a->best[i] != a->loss[best]))
            fail_msg("step %d: best %.9g at step %d, expected %.9g at step %d", i, a->best[i], a->best_step[i],
                     a->loss[best], best);
    }
}

// A run without restarts: its losses fall, and rise again well before the end.
static account whole_run(void) {
    rig r;
    rig_open(&r);
    OK(run(&r, STEPS, ""));
    account a = read_account(&r);
    int best = lowest(&a, STEPS, 0);
    for (int i = 1; i <= STEPS; i++) assert_int_equal(isnan(a.loss[i]), i % EVERY != 0);
    assert_in_range(best, 2 * EVERY, STEPS - 3 * EVERY);
    assert_true(a.loss[STEPS] > a.loss[best] + 0.1);
    assert_int_equal(best_of(&r), best);
    expect_records(&a, 0);
    drop_dir(r.dir);
    return a;
}

// Parts that end before the best step, at it, after it, and after every step. A part's last step is evaluated as well.
static void best_is_the_lowest_through_restarts(void **state) {
    (void)state;
    const account whole = whole_run();
    const int best = lowest(&whole, STEPS, 0);
    const int ends[][STEPS] = {{best - 1},
                               {best},
                               {best + 1},
                               {best + 2},
                               {best + 3, STEPS - 1},
                               {EVERY, best, STEPS - 2},
                               {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
    for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
        rig r;
        rig_open(&r);
        for (int i = 0; ends[k][i]; i++) OK(run(&r, ends[k][i], ""));
        OK(run(&r, STEPS, ""));
        account a = read_account(&r);
        for (int i = EVERY; i <= STEPS; i += EVERY) assert_true(a.loss[i] == whole.loss[i]);
        expect_records(&a, 0);
        if (best_of(&r) != lowest(&a, STEPS, 0))
            fail_msg("case %zu: best is step %d, expected %d", k, best_of(&r), lowest(&a, STEPS, 0));
        drop_dir(r.dir);
    }
}

// --- a disk that fails -----------------------------------------------------------------------------------------------

// Steps that events.jsonl says could not be saved. One failure is one event, and the run's own end another where the
// last step is lost.
static unsigned unsaved(const rig *r) {
    unsigned steps = 0, events = 0;
    json_t *all = read_records(&r->c, "events.jsonl", "event");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *event = json_array_get(all, i);
        events += strcmp(text_of(event, "kind"), "failed") != 0;
        if (strcmp(text_of(event, "kind"), "checkpoint_failed") == 0) steps |= 1u << (int)real_of(event, "step");
    }
    assert_in_range(events, 0, 1);
    json_decref(all);
    return steps;
}

// Each commit by rename fails once, in a run of its own: of checkpoints and of `best` itself. `best` is the lowest one
// that there is, also where that comes after a lower one that was lost; where the link fails it is tried again.
static void best_is_one_that_was_saved(void **state) {
    (void)state;
    const account whole = whole_run();
    unsigned seen = 0;
    for (int k = 1; k <= 20; k++) {
        char more[64];
        rig r;
        rig_open(&r);
        snprintf(more, sizeof more, "faults = rename@%d\n", k);
        err_t rc = run(&r, STEPS, more);
        unsigned lost = unsaved(&r);
        account a = read_account(&r);
        for (int i = EVERY; i <= STEPS; i += EVERY) assert_true(a.loss[i] == whole.loss[i]);
        expect_records(&a, lost);
        if (rc != (lost >> STEPS & 1 ? ERR_IO : ERR_OK)) fail_msg("rename %d: %d: %s", k, rc, err_last()->text);
        if (best_of(&r) != lowest(&a, STEPS, lost))
            fail_msg("rename %d: best is step %d, expected %d", k, best_of(&r), lowest(&a, STEPS, lost));
        seen |= lost;
        drop_dir(r.dir);
    }
    int best = lowest(&whole, STEPS, 0), next = lowest(&whole, STEPS, 1u << best);
    assert_true(seen >> best & 1 && next > best);  // the best of all was lost once, and then another one came
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_is_the_lowest_through_restarts),
        cmocka_unit_test(best_is_one_that_was_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
