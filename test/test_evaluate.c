// test/test_evaluate.c: the loss of a validation split against PyTorch, window by window (test/golden/make_look.py).
//
// One idea: no two windows have the same loss, so that one that is read twice, left out or counted wrongly shows.
#include "test/support/look.h"
#include "trainer/session/restore.h"
#include "trainer/verbs.h"

enum { WINDOWS = 21 };  // and 13 tokens more, which fill no window

static const double CLOSE = 1e-5;  // float32 itself is off by 1e-6

typedef struct rig {
    char *dir;
    config c;
    session x;
    double losses[WINDOWS];
} rig;

static void rig_open(rig *r, session_kind kind, const char *more) {
    *r = (rig){.dir = make_dir()};
    golden_read(LOOK_GOLDEN, "losses", WINDOWS, r->losses);
    look_open(&r->x, &r->c, r->dir, kind, more);
}

static void rig_close(rig *r) {
    session_close(&r->x);
    drop_dir(r->dir);
}

// Mean of the first n windows, by their own losses.
static double mean_of(const rig *r, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += r->losses[i];
    return sum / (double)n;
}

static void expect_mean(rig *r, int64_t batches, int64_t expected) {
    double loss;
    int64_t windows;
    OK(eval_loss(&r->x, batches, &loss, &windows));
    if (windows != expected) fail_msg("%d batches: %d windows, expected %d", (int)batches, (int)windows, (int)expected);
    if (!(fabs(loss - mean_of(r, expected)) <= CLOSE))
        fail_msg("%d batches: loss %.9f, PyTorch %.9f", (int)batches, loss, mean_of(r, expected));
}

static void no_two_windows_are_alike(void **state) {
    (void)state;
    double losses[WINDOWS];
    golden_read(LOOK_GOLDEN, "losses", WINDOWS, losses);
    for (int i = 0; i < WINDOWS; i++)
        for (int k = 0; k < i; k++)
            if (fabs(losses[i] - losses[k]) < 20 * CLOSE)
                fail_msg("windows %d and %d have losses %.6f and %.6f", k, i, losses[k], losses[i]);
}

// What the last micro-batch left on the host are its windows' own losses.
static void every_window_has_its_loss(void **state) {
    (void)state;
    rig r;
    rig_open(&r, SESSION_INFERENCE, "");
    for (int64_t batch = 0; batch * 4 < WINDOWS; batch++) {
        double loss;
        int64_t windows;
        OK(eval_loss(&r.x, batch + 1, &loss, &windows));
        const double *each = r.x.evaluator.host_results.data;
        for (int64_t i = batch * 4; i < windows; i++)
            if (!(fabs(each[i - batch * 4] - r.losses[i]) <= CLOSE))
                fail_msg("window %d: loss %.9f, PyTorch %.9f", (int)i, each[i - batch * 4], r.losses[i]);
    }
    rig_close(&r);
}

// Micro-batches of 1, of 4 and 5, of which the last has one window, and of more than there are; in sessions that look
// and that train.
static void the_mean_is_over_the_split_or_its_first_batches(void **state) {
    (void)state;
    static const int64_t micros[] = {1, 4, 5, 32};
    for (int k = 0; k < 4; k++) {
        char more[64];
        rig r;
        long long micro = micros[k];
        snprintf(more, sizeof more, "[batch]\nglobal = %lld\nmicro = %lld\n", micro, micro);
        rig_open(&r, k % 2 ? SESSION_TRAIN : SESSION_INFERENCE, more);
        expect_mean(&r, 0, WINDOWS);
        for (int64_t n = 1; n <= 23; n++) expect_mean(&r, n, n * micro < WINDOWS ? n * micro : WINDOWS);
        rig_close(&r);
    }
}

// What `lockstep eval` says: of a checkpoint, as [eval] batches asks for.
static void the_verb_says_the_same(void **state) {
    (void)state;
    rig r;
    char line[256] = "", expected[256], ckpt[1100];
    rig_open(&r, SESSION_TRAIN, "[eval]\nbatches = 3\n");
    OK(session_fetch(&r.x));
    OK(ckpt_save(r.x.dir, &r.x.state.ckpt, &r.x.progress, 1, NULL));
    snprintf(ckpt, sizeof ckpt, "%s/ckpt/step-%08d", r.x.dir, 0);
    FILE *out = fmemopen(line, sizeof line, "w");
    r.c.eval_ckpt = ckpt;
    OK(verb_eval(&r.c, out));
    fclose(out);
    snprintf(expected, sizeof expected, "step 0  loss %.5f", mean_of(&r, 12));
    if (strncmp(line, expected, strlen(expected)) != 0) fail_msg("\"%s\", expected \"%s\"", line, expected);
    assert_non_null(strstr(line, "12 windows of 32 tokens"));
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_windows_are_alike),
        cmocka_unit_test(every_window_has_its_loss),
        cmocka_unit_test(the_mean_is_over_the_split_or_its_first_batches),
        cmocka_unit_test(the_verb_says_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
