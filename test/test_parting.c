// test/test_parting.c: up to which step two logs agree (trainer/report/parting.c): with hashes and without, with steps
// that only one of them has, lines that are damaged, losses that are no numbers, a log that went back, and more lines
// than are read at a time.
#include "test/support/run.h"

#include "trainer/report/parting.h"

#include <stdint.h>
#include <sys/stat.h>

typedef struct pair {
    char *dir, log[2][600];
    FILE *f[2];
    parting p;
} pair;

static void pair_open(pair *x) {
    x->dir = make_dir();
    for (int i = 0; i < 2; i++) {
        snprintf(x->log[i], sizeof x->log[i], "%s/%c", x->dir, "ab"[i]);
        OK(io_mkdirs(x->log[i]));
        char path[700];
        snprintf(path, sizeof path, "%s/log.jsonl", x->log[i]);
        x->f[i] = fopen(path, "w");
        assert_non_null(x->f[i]);
    }
}

// A line of log i, or of both where i is 2. loss: as it stands there, NULL: none; hash NULL: none.
static void line(pair *x, int i, const char *kind, int64_t step, const char *loss, const char *hash) {
    for (int k = 0; k < 2; k++) {
        if (i != 2 && i != k) continue;
        fprintf(x->f[k], "{\"t\":\"%s\",\"step\":%lld", kind, (long long)step);
        if (loss) fprintf(x->f[k], ",\"loss\":%s", loss);
        if (hash) fprintf(x->f[k], ",\"hash\":\"%s\"", hash);
        fputs("}\n", x->f[k]);
    }
}

static void step(pair *x, int i, int64_t n, const char *loss, const char *hash) { line(x, i, "step", n, loss, hash); }

static const parting *compared(pair *x) {
    for (int i = 0; i < 2; i++)
        if (x->f[i]) assert_int_equal(fclose(x->f[i]), 0);
    parting back;
    OK(parting_of(&x->p, x->log[0], x->log[1]));
    OK(parting_of(&back, x->log[1], x->log[0]));  // the same from the other side
    assert_true(back.shared == x->p.shared && back.last_shared == x->p.last_shared && back.hashed == x->p.hashed);
    assert_true(back.same_hash == x->p.same_hash && back.other_hash == x->p.other_hash &&
                back.last_hash == x->p.last_hash);
    assert_true(back.same_loss == x->p.same_loss && back.other_loss == x->p.other_loss);
    assert_string_equal(back.hash[0], x->p.hash[1]);
    assert_string_equal(back.hash[1], x->p.hash[0]);
    return &x->p;
}

// ... and that is what is said of it.
static void closed(pair *x, const char *text) {
    char got[PARTING_TEXT];
    assert_string_equal(parting_text(got, &x->p), text);
    drop_dir(x->dir);
}

// Steps in the order shared, last_shared; hashed, same, other, last; loss same, other.
static void is(const parting *p, const int64_t want[8]) {
    const int64_t got[8] = {p->shared,     p->last_shared, p->hashed,    p->same_hash,
                            p->other_hash, p->last_hash,   p->same_loss, p->other_loss};
    static const char *const names[8] = {"shared",     "last_shared", "hashed",    "same_hash",
                                         "other_hash", "last_hash",   "same_loss", "other_loss"};
    for (int i = 0; i < 8; i++)
        if (got[i] != want[i]) fail_msg("%s is %lld, expected %lld", names[i], (long long)got[i], (long long)want[i]);
}
#define IS(x, ...) is(compared(x), (const int64_t[8]){__VA_ARGS__})

static void with_hashes(void **state) {
    (void)state;
    pair x;
    pair_open(&x);
    for (int n = 1; n <= 20; n++) step(&x, 2, n, "2.5", n % 5 ? NULL : n == 20 ? "00ff" : "00aa");
    IS(&x, 20, 20, 4, 20, 0, 20, 20, 0);
    assert_string_equal(x.p.hash[0], "00ff");
    closed(&x, "the same weights up to step 20, the last with a hash in both");
    pair_open(&x);  // they part, and come together again by chance: where they parted first counts
    for (int n = 1; n <= 40; n++) {
        step(&x, 0, n, n >= 13 && n < 20 ? "2.5" : "2", n % 5 ? NULL : "00aa");
        step(&x, 1, n, "2", n % 5 ? NULL : n >= 15 && n < 30 ? "00bb" : "00aa");
    }
    IS(&x, 40, 40, 8, 10, 15, 40, 12, 13);
    closed(&x, "the same weights at step 10, others at step 15; the loss parts at step 13");
    pair_open(&x);  // from the first one on
    for (int n = 1; n <= 9; n++) step(&x, 0, n, "2", n % 3 ? NULL : "0a"), step(&x, 1, n, "2", n % 3 ? NULL : "0b");
    IS(&x, 9, 9, 3, 0, 3, 9, 9, 0);
    assert_string_equal(x.p.hash[0], "0a");
    assert_string_equal(x.p.hash[1], "0b");
    closed(&x, "other weights from the first hash on, at step 3");
    pair_open(&x);  // the loss that parts later is no news
    for (int n = 1; n <= 9; n++)
        step(&x, 0, n, n > 6 ? "3" : "2", n % 3 ? NULL : "0a"), step(&x, 1, n, "2", n % 3 ? NULL : n > 3 ? "0b" : "0a");
    IS(&x, 9, 9, 3, 3, 6, 9, 6, 7);
    closed(&x, "the same weights at step 3, others at step 6");
}

static void without_hashes(void **state) {
    (void)state;
    pair x;
    pair_open(&x);
    for (int n = 1; n <= 9; n++)
        step(&x, 0, n, "2", NULL), step(&x, 1, n, n > 5 ? "2.00000001" : "2", n == 3 ? "0a" : NULL);
    IS(&x, 9, 9, 0, 0, 0, 0, 5, 6);
    closed(&x, "the same loss at step 5, another at step 6 (no hashes to compare: [log] hash_every)");
    pair_open(&x);
    for (int n = 1; n <= 9; n++) step(&x, 0, n, "2", NULL), step(&x, 1, n, n < 5 ? "3" : "2", NULL);
    IS(&x, 9, 9, 0, 0, 0, 0, 0, 1);
    closed(&x, "another loss from step 1 on (no hashes to compare: [log] hash_every)");
    pair_open(&x);
    for (int n = 1; n <= 9; n++) step(&x, 2, n, "2", NULL);
    IS(&x, 9, 9, 0, 0, 0, 0, 9, 0);
    closed(&x, "the same losses up to step 9 (no hashes to compare: [log] hash_every)");
}

// A loss that is no number is written as null, and is the same as another one; a line that has none says nothing.
static void losses_that_are_no_numbers(void **state) {
    (void)state;
    pair x;
    pair_open(&x);
    for (int n = 1; n <= 6; n++) step(&x, 2, n, n > 3 ? "null" : "2", NULL);
    IS(&x, 6, 6, 0, 0, 0, 0, 6, 0);
    drop_dir(x.dir);
    pair_open(&x);
    for (int n = 1; n <= 6; n++) step(&x, 0, n, n > 3 ? "null" : "2", NULL), step(&x, 1, n, n > 4 ? "null" : "2", NULL);
    IS(&x, 6, 6, 0, 0, 0, 0, 3, 4);
    drop_dir(x.dir);
    pair_open(&x);
    for (int n = 1; n <= 6; n++) step(&x, 0, n, n > 3 ? NULL : "2", NULL), step(&x, 1, n, "2", NULL);
    IS(&x, 6, 6, 0, 0, 0, 0, 3, 0);
    drop_dir(x.dir);
}

// Not each step is in both: one was logged more rarely, began later, ended earlier.
static void steps_of_one_alone(void **state) {
    (void)state;
    pair x;
    pair_open(&x);
    for (int n = 2; n <= 60; n += 2) step(&x, 0, n, "2", n % 4 ? NULL : "0a");
    for (int n = 3; n <= 48; n += 3) step(&x, 1, n, n == 47 || n == 45 ? "3" : "2", n % 9 ? NULL : "0a");
    IS(&x, 8, 48, 1, 36, 0, 36, 48, 0);
    drop_dir(x.dir);
    pair_open(&x);
    for (int n = 1; n <= 10; n++) step(&x, 0, n, "2", "0a"), step(&x, 1, n + 10, "2", "0a");
    IS(&x, 0, 0, 0, 0, 0, 0, 0, 0);
    closed(&x, "no step is in both logs");
    pair_open(&x);
    for (int n = 1; n <= 10; n++) step(&x, 0, n, "2", "0a");
    assert_int_equal(fclose(x.f[0]) | fclose(x.f[1]), 0);
    x.f[0] = x.f[1] = NULL;
    IS(&x, 0, 0, 0, 0, 0, 0, 0, 0);  // an empty one
    char path[700];
    snprintf(path, sizeof path, "%s/log.jsonl", x.log[1]);
    assert_int_equal(unlink(path), 0);
    IS(&x, 0, 0, 0, 0, 0, 0, 0, 0);  // none
    drop_dir(x.dir);
}

// What is known of a step is in two lines, in either order: its own, and that of its checkpoint, between which others
// may stand.
static void checkpoints_have_hashes(void **state) {
    (void)state;
    pair x;
    pair_open(&x);
    for (int n = 1; n <= 9; n++) {
        if (n == 5) line(&x, 0, "checkpoint", n, NULL, "0c");
        step(&x, 0, n, "2", NULL);
        step(&x, 1, n, n == 5 ? "3" : "2", NULL);
        line(&x, 2, "eval", n, "7", NULL);
        line(&x, 2, "sample", n, NULL, "0d");
        if (n == 5 || n == 9) line(&x, 1, "checkpoint", n, NULL, n == 5 ? "0c" : "0e");
        if (n == 9) line(&x, 0, "checkpoint", n, NULL, "0f");
    }
    IS(&x, 9, 9, 2, 5, 9, 9, 4, 5);
    closed(&x, "the same weights at step 5, others at step 9; the loss parts at step 5");
}

// Logged again from an earlier step on, as by a run that was killed and went on, whose log was not cut: what was first
// counts, and what comes after it goes on.
static void a_log_that_goes_back(void **state) {
    (void)state;
    pair x;
    pair_open(&x);
    for (int n = 1; n <= 10; n++) step(&x, 2, n, "2", "0a");
    for (int n = 6; n <= 10; n++) step(&x, 0, n, "9", "0b");
    for (int n = 11; n <= 20; n++) step(&x, 2, n, n == 17 ? "4" : "2", "0a");
    IS(&x, 20, 20, 20, 20, 0, 20, 20, 0);
    drop_dir(x.dir);
    pair_open(&x);
    for (int n = 1; n <= 10; n++) step(&x, 2, n, "2", NULL);
    step(&x, 0, 10, "9", "0b");  // the same step once more: only what was not said yet counts
    step(&x, 1, 10, "8", "0b");
    step(&x, 0, 11, "3", NULL), step(&x, 1, 11, "2", NULL);
    IS(&x, 11, 11, 1, 10, 0, 10, 10, 11);
    drop_dir(x.dir);
    pair_open(&x);  // both went back, and each step counts once; what belongs to the last one comes after that
    for (int n = 1; n <= 10; n++) step(&x, 2, n, "2", NULL);
    for (int n = 6; n <= 9; n++) step(&x, 0, n, "5", "0b"), step(&x, 1, n, "6", "0c");
    line(&x, 2, "checkpoint", 10, NULL, "0d");
    for (int n = 11; n <= 12; n++) step(&x, 2, n, "2", NULL);
    IS(&x, 12, 12, 1, 10, 0, 10, 12, 0);
    drop_dir(x.dir);
}

static void damaged_lines(void **state) {
    (void)state;
    pair x;
    pair_open(&x);
    char *wide = malloc(RUNLOG_CHUNK + 100);
    memset(wide, 'x', RUNLOG_CHUNK + 99), wide[RUNLOG_CHUNK + 99] = 0;
    step(&x, 2, 1, "2", "0a");
    fputs(
        "{\"t\":\"step\",\"step\":2,\"loss\":3\n{\"t\":\"step\",\"step\":2,,}\n\n{\"step\":2,\"loss\":9}\n{\"t\":\"step\",\"step\":0,\"loss\":9}\n",
        x.f[0]);
    fprintf(x.f[0], "{\"t\":\"step\",\"step\":2,\"loss\":9,\"x\":\"%s\"}\n", wide);
    fprintf(x.f[1], "%s%s\n", wide, wide);
    // its end is no line of its own
    fprintf(x.f[1], "%.*s{\"t\":\"step\",\"step\":2,\"loss\":9}\n", RUNLOG_CHUNK, wide);
    step(&x, 2, 2, "2", "0a");
    step(&x, 2, 3, "2", "0b");
    fputs("{\"t\":\"step\",\"step\":4,\"loss\":2}", x.f[0]);  // its end has not been written yet
    step(&x, 1, 4, "2", NULL);
    IS(&x, 3, 3, 3, 3, 0, 3, 3, 0);
    free(wide);
    drop_dir(x.dir);
}

// Logs of which each is read in many pieces, whose ends fall anywhere in a line.
static void long_logs(void **state) {
    (void)state;
    enum { STEPS = 120000, PARTS = 98765 };
    pair x;
    pair_open(&x);
    for (int n = 1; n <= STEPS; n++) {
        char loss[32], hash[20];
        snprintf(loss, sizeof loss, "%.9g", 2 + 1.0 / n);
        snprintf(hash, sizeof hash, "%016x", n * 2654435761u);
        step(&x, 0, n, loss, hash);
        if (n == PARTS) hash[15] ^= 1;
        if (n % 3 == 0 || n == PARTS) step(&x, 1, n, n == PARTS + 1 ? "9" : loss, hash);
    }
    IS(&x, STEPS / 3 + 1, STEPS, STEPS / 3 + 1, PARTS - 2, PARTS, STEPS, PARTS, PARTS + 1);
    drop_dir(x.dir);
}

// --- settings --------------------------------------------------------------------------------------------------------

static void visit(void *ctx, key_class class, const char *name, const char *const *value) {
    char *at = (char *)ctx + strlen(ctx);
    sprintf(at, "%d %s %s %s %s\n", (int)class, name, value[0] ? value[0] : "-", value[1] ? value[1] : "-",
            value[2] ? value[2] : "-");
}

// Each setting that is not the same in all runs, once, whichever of them has it, and first those that decide the
// weights.
static void settings_that_differ(void **state) {
    (void)state;
    static const char *const texts[3] = {
        "[run]\nname = a\ndir = x\nsteps = 5\n[log]\nevery = 1\nprom_file = /a\n[optimizer]\nlr = 0.5\nbeta1 = 0.9\n",
        "[run]\nname = b\ndir = y\nsteps = 5\n[log]\nevery = 1\nprom_file = /b\n[optimizer]\nlr = 0.5\nbeta1 = 0.9\nbeta2 = 0.8\n",
        "[run]\nname = c\ndir = z\nsteps = 5\n[log]\nevery = 2\nprom_file = /a\n[optimizer]\nlr = 0.25\nbeta2 = 0.8\n"};
    char *dir = make_dir(), at[600], got[2048] = "";
    runlog *r[3];
    for (int i = 0; i < 3; i++) {
        snprintf(at, sizeof at, "%s/%d", dir, i);
        OK(io_mkdirs(at));
        write_text(at, "config.ini", texts[i]);
        OK(runlog_open(&r[i], at));
        OK(runlog_poll(r[i]));
    }
    parting_settings(r, 3, visit, got);
    char want[2048];
    snprintf(
        want, sizeof want,
        "%d optimizer.lr 0.5 0.5 0.25\n%d optimizer.beta1 0.9 0.9 -\n%d optimizer.beta2 - 0.8 0.8\n%d log.every 1 1 2\n%d log.prom_file /a /b /a\n",
        CLASS_BITS, CLASS_BITS, CLASS_BITS, runlog_find(r[0], "log.every")->class, CLASS_LOCAL);
    assert_string_equal(got, want);
    for (int i = 0; i < 3; i++) runlog_close(r[i]);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_hashes),
        cmocka_unit_test(without_hashes),
        cmocka_unit_test(losses_that_are_no_numbers),
        cmocka_unit_test(steps_of_one_alone),
        cmocka_unit_test(checkpoints_have_hashes),
        cmocka_unit_test(a_log_that_goes_back),
        cmocka_unit_test(damaged_lines),
        cmocka_unit_test(long_logs),
        cmocka_unit_test(settings_that_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
