// test/test_status.c: what `lockstep status` says of a run's directory, whatever is in it, at a time of the test's
// choosing: running, hanging, done, stopped, failed, dead; with files that are missing, old, from the future, or
// damaged.
#include "base/io.h"
#include "base/utf8.h"
#include "trainer/watch/command.h"
#include "trainer/watch/facts.h"
#include "trainer/watch/rundir.h"
#include "trainer/watch/status.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const double NOW = 1795522000;  // 2026-11-24 12:06:40Z

typedef struct place {
    char dir[256];
    int lock;
    char *said;
    size_t bytes;
    int code;
} place;

static int enter(void **state) {
    place *p = calloc(1, sizeof *p);
    const char *tmp = getenv("TMPDIR");
    snprintf(p->dir, sizeof p->dir, "%.200s/lockstep-status-XXXXXX", tmp ? tmp : "/tmp");
    p->lock = -1;
    *state = p;
    return mkdtemp(p->dir) ? 0 : -1;
}

static int leave(void **state) {
    place *p = *state;
    if (p->lock >= 0) close(p->lock);
    free(p->said);
    err_t rc = io_remove_tree(p->dir);
    free(p);
    return (int)rc;
}

static void put(const place *p, const char *name, const char *text, size_t n) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", p->dir, name);
    FILE *f = fopen(path, "w");
    assert_true(f && fwrite(text, 1, n, f) == n && fclose(f) == 0);
}

static void say(const place *p, const char *name, const char *text) { put(p, name, text, strlen(text)); }

static void unlink_of(const place *p, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", p->dir, name);
    assert_int_equal(unlink(path), 0);
}

static void lives(place *p) {
    char path[512];
    snprintf(path, sizeof path, "%s/lock", p->dir);
    p->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(flock(p->lock, LOCK_EX | LOCK_NB), 0);
}

static void dies(place *p) { close(p->lock), p->lock = -1; }

// Steps 10, 20 ... `last`, 0.5 s each, the last one `age` seconds ago; without times where the log is an old one.
// A checkpoint each hundred steps, with a hash of its own.
static void log_of(const place *p, int last, double age, bool timed) {
    char *text = NULL, at[64] = "";
    size_t n;
    FILE *f = open_memstream(&text, &n);
    for (int k = 10; k <= last; k += 10) {
        if (timed) snprintf(at, sizeof at, ",\"time\":%.3f", NOW - age - 0.5 * (last - k));
        fprintf(f, "{\"t\":\"step\",\"step\":%d,\"loss\":2.5,\"tokens\":%d,\"ms\":500,\"tokens_per_s\":38100%s}\n", k,
                100 * k, at);
        if (k % 100 == 0)
            fprintf(f, "{\"t\":\"checkpoint\",\"step\":%d,\"hash\":\"%016x\",\"ms\":5}\n", k, (unsigned)k);
    }
    fclose(f);
    put(p, "log.jsonl", text, n);
    free(text);
}

static void checkpoint(const place *p, int step) {
    char path[512];
    snprintf(path, sizeof path, "%s/ckpt/step-%08d", p->dir, step);
    assert_int_equal(io_mkdirs(path), ERR_OK);
    struct timespec t[2] = {{(time_t)NOW - 60, 0}, {(time_t)NOW - 60, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

enum { ALL = 1 << 16 };
static const char *rank_text =
    "{\"rank\":%d,\"host\":\"10.0.0.%d\",\"local\":%d,\"role\":\"\",\"device\":\"0000:%d1:00.0\",\"pid\":%d,\"process\":\"S\",\"phase\":\"step\","
    "\"doing\":\"%s\",\"number\":3,\"step\":413,\"doing_s\":%d,\"watts\":%d,\"median_watts\":510}";

// A status of two GPUs, `age` seconds old.
static void status_of(const place *p, double age, const char *state, int step, double step_age, const char *alarms) {
    static char text[ALL], rank[2][1024];
    snprintf(rank[0], sizeof rank[0], rank_text, 0, 1, 0, 4, 4000, "wait for communication", 31, 120);
    snprintf(rank[1], sizeof rank[1], rank_text, 1, 2, 0, 5, 4001, "forward", 32, 70);
    snprintf(
        text, sizeof text,
        "{\"t\":\"status\",\"time\":%.3f,\"every_s\":1,\"pid\":77,\"world\":2,\"state\":\"%s\",\"step\":%d,\"steps\":600,\"began_step\":0,\"began\":1795520000,"
        "\"step_time\":%.3f,\"p50_ms\":400,\"p99_ms\":600,\"loss\":1.9734,\"tokens_per_s\":38123.5,\"unit\":\"token\",\"checkpoint_step\":400,"
        "\"checkpoint_hash\":\"fedcba9876543210\",\"ranks\":[%s,%s],\"disk\":{\"free\":1,\"total\":2,\"free_per_s\":-1000000},\"alarms\":[%s]}\n",
        NOW - age, state, step, NOW - step_age, rank[0], rank[1], alarms);
    say(p, "status.json", text);
}

static int look_at(place *p, bool json, err_t expected) {
    free(p->said);
    p->said = NULL;
    p->code = -1;
    FILE *f = open_memstream(&p->said, &p->bytes);
    err_t rc = status_write(p->dir, NOW, json, f, &p->code);
    fclose(f);
    if (rc != expected) fail_msg("%d: %s", rc, err_last()->text);
    int lines = 0;
    for (const char *at = p->said, *end; !json && *at; at = end + 1, lines++) {
        end = strchr(at, '\n');
        assert_non_null(end);
        if (end - at > STATUS_COLUMNS && strncmp(at, "next ", 5) != 0)
            fail_msg("a line of %d: %s", (int)(end - at), p->said);
        for (const char *c = at; c < end; c++)
            if ((unsigned char)*c < 32 || *c == 127) fail_msg("a control character in: %s", p->said);
        for (const char *c = at; c < end; c += utf8_length((const unsigned char *)c))
            if (utf8_length((const unsigned char *)c) == 0)
                fail_msg("half a character, at byte %d of: %s", (int)(c - at), at);
    }
    if (lines > STATUS_LINES) fail_msg("%d lines: %s", lines, p->said);
    return p->code;
}

// The code, and all of these words in the text, up to a NULL.
static void expect(place *p, int code, const char *const words[]) {
    look_at(p, false, ERR_OK);
    if (p->code != code) fail_msg("code %d, expected %d:\n%s", p->code, code, p->said);
    for (; *words; words++)
        if (!strstr(p->said, *words)) fail_msg("it does not say \"%s\":\n%s", *words, p->said);
}
#define EXPECT(p, code, ...) expect(p, code, (const char *const[]){__VA_ARGS__, NULL})

static void lacks(const place *p, const char *word) {
    if (strstr(p->said, word)) fail_msg("it says \"%s\":\n%s", word, p->said);
}

// --- a run that goes on ----------------------------------------------------------------------------------------------

static void fine(void **state) {
    place *p = *state;
    lives(p);
    log_of(p, 410, 1, true);
    checkpoint(p, 300);
    checkpoint(p, 400);
    status_of(p, 0.5, "training", 412, 0.4, "");
    EXPECT(p, 0, "FINE: training: step 412/600, 0 s ago (p99 600 ms)", "loss 1.9734, 38.1k tokens/s, done in 1 m 15 s",
           "190 W of 2 devices, median 1020 W", "rank 1: 70 W, median 510 W",
           "step 400, 1 m 0 s ago; at risk: 12 steps (5 s); hash fedcba9876543210", "B free of ", "full in",
           "lockstep tail");
    lacks(p, "note");
    lacks(p, "waits for");
    static const char *const others[] = {"evaluating", "sampling", "saving", "starting", "stopping"};
    for (int i = 0; i < 5; i++) {  // no step is expected
        status_of(p, 0.5, others[i], 412, 5000, "");
        EXPECT(p, 0, others[i]);
    }
}

static void a_hang(void **state) {
    place *p = *state;
    lives(p);
    log_of(p, 410, 31, true);
    checkpoint(p, 400);
    status_of(
        p, 0.5, "training", 412, 31,
        "{\"kind\":\"hang\",\"rank\":1,\"since\":1,\"text\":\"no step for 31 s after step 412: waiting for rank 1 (10.0.0.2), GPU 0000:51:00.0: it "
        "computes nothing, or waits; phase step, forward 3 of step 413 for 31 s; 70 W, median 510 W. Next: dmesg (Xid); gdb -p 4001\"}");
    EXPECT(p, 1, "ATTENTION: the run hangs: step 412/600, 31 s ago", "why       no step for 31 s after step 412",
           "rank 1 (10.0.0.2), GPU 0000:51:00.0, pid 4001: phase step, forward 3", "step 413 for 32 s",
           "\nnext      dmesg (Xid); gdb -p 4001\n");
    look_at(p, true, ERR_OK);
    json_t *o = json_loads(p->said, 0, NULL);
    assert_int_equal(rundir_whole(o, "code", -1), 1);
    assert_string_equal(rundir_text(o, "life"), "runs");
    assert_string_equal(rundir_text(o, "next"), "dmesg (Xid); gdb -p 4001");
    assert_int_equal(rundir_whole(json_object_get(o, "waits_for"), "rank", -1), 1);
    assert_int_equal(json_array_size(json_object_get(o, "alarms")), 1);
    assert_int_equal(rundir_whole(o, "steps_at_risk", -1), 12);
    json_decref(o);
    // The watcher has not rung, and yet no step comes.
    status_of(p, 0.5, "training", 412, 40, "");
    EXPECT(p, 1, "no step is finished", "no step for 40 s; at most 30 s were expected", "waits for rank 1 (10.0.0.2)");
    status_of(p, 0.5, "training", 0, 200, "");  // the first step may take long
    EXPECT(p, 0, "FINE");
}

// The first step of a process may take long, also when it begins after a checkpoint.
static void a_first_step(void **state) {
    place *p = *state;
    static const int cases[][4] = {{0, 0, 299, 0},     {0, 0, 301, 1},    {400, 400, 299, 0},
                                   {400, 400, 301, 1}, {400, 401, 29, 0}, {400, 401, 31, 1}};
    char text[512];
    lives(p);
    log_of(p, 400, 299, true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(
            text, sizeof text,
            "{\"time\":%.1f,\"every_s\":1,\"state\":\"training\",\"began_step\":%d,\"step\":%d,\"steps\":600,\"step_time\":%.1f,\"p99_ms\":600}",
            NOW - 0.5, cases[i][0], cases[i][1], NOW - cases[i][2]);
        say(p, "status.json", text);
        EXPECT(p, cases[i][3], cases[i][3] ? "no step is finished" : "FINE: training");
    }
}

static void alarms_by_kind(void **state) {
    place *p = *state;
    static const char *const kinds[][2] = {{"dead", "a rank is gone"},
                                           {"stopped", "process is stopped"},
                                           {"slow_reader", "the loader is slow"},
                                           {"throttled", "is slowed down"},
                                           {"disk_full", "the disk is full, or will"},
                                           {"bad_steps", "the run diverges"},
                                           {"unheard-of", "the watcher rings"}};
    lives(p);
    log_of(p, 410, 1, true);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"kind\":\"%s\",\"rank\":0,\"since\":1,\"text\":\"some words\"}", kinds[i][0]);
        status_of(p, 0.5, "training", 412, 0.4, text);
        EXPECT(p, 1, "ATTENTION", kinds[i][1], "some words", "rank 0 (10.0.0.1)", "lockstep tail");
    }
}

// The watcher died, or never was, or its clock is another: the log knows whether steps go on.
static void without_a_watcher(void **state) {
    place *p = *state;
    lives(p);
    say(p, "config.ini", "# lockstep\n[device]\nsteps = 7\n[run]\nname = a\nsteps = 900\n");
    for (int how = 0; how < 4; how++) {
        log_of(p, 410, 1, true);
        checkpoint(p, 400);
        if (how == 0) unlink("status.json");
        if (how == 1)
            status_of(p, 340, "training", 400, 341, "{\"kind\":\"hang\",\"rank\":1,\"since\":1,\"text\":\"old\"}");
        if (how == 2)
            status_of(p, -3600, "training", 500, -3600, "{\"kind\":\"hang\",\"rank\":1,\"since\":1,\"text\":\"odd\"}");
        if (how == 3) say(p, "status.json", "{\"t\":\"status\",\"time\":17");
        EXPECT(p, 0, "FINE: running: step 410/", "1 s ago",
               how == 0   ? "there is no watcher"
               : how == 1 ? "status.json is 5 m 40 s old"
               : how == 2 ? "1 h 0 m in the future"
                          : "can't be read");
        lacks(p, "power");
        lacks(p, "full in");
        log_of(p, 410, 59, true);  // that may be an evaluation
        EXPECT(p, 0, "FINE");
        log_of(p, 410, 61, true);
        EXPECT(p, 1, "ATTENTION: no step is finished", "no step for 1 m 1 s; at most 1 m 0 s");
    }
}

// A log without times, as older builds write it: the file's own time stands for the last record's.
static void an_old_log(void **state) {
    place *p = *state;
    char path[512];
    lives(p);
    log_of(p, 410, 0, false);
    snprintf(path, sizeof path, "%s/log.jsonl", p->dir);
    struct timespec t[2] = {{(time_t)NOW - 20, 0}, {(time_t)NOW - 20, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
    EXPECT(p, 0, "step 410, 20 s ago (p99 500 ms)", "nothing yet; at risk: 410 steps (3 m 25 s)");
    t[1].tv_sec -= 60;
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
    EXPECT(p, 1, "no step for 1 m 20 s");
}

static void checkpoints_that_fail(void **state) {
    place *p = *state;
    lives(p);
    log_of(p, 410, 1, true);
    checkpoint(p, 300);
    status_of(p, 0.5, "training", 412, 0.4, "");
    say(p, "events.jsonl",
        "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"checkpoint_failed\",\"step\":400,\"text\":\"No space left\"}\n");
    EXPECT(p, 1, "the last checkpoint could not be written", "step 400 could not be saved", "df -h",
           "6 m 40 s ago, step 400, checkpoint_failed: No space left");
    checkpoint(p, 410);
    EXPECT(p, 0, "FINE");
}

static void restarts(void **state) {
    place *p = *state;
    lives(p);
    log_of(p, 410, 1, true);
    char text[4096] = "";
    for (int i = 0; i < 8; i++)  // one every five hours, the last at 11:00
        snprintf(
            text + strlen(text), 256,
            "{\"t\":\"event\",\"at\":\"2026-11-%02dT%02d:00:00Z\",\"kind\":\"resume\",\"step\":%d,\"text\":\"continuing\"}\n",
            23 + (5 * i) / 24, (5 * i) % 24, i);
    say(p, "events.jsonl", text);
    EXPECT(p, 0, "restarts  5 in 24 h, the last 1 h 6 m ago", "events    1 h 6 m ago, step 7, resume: continuing",
           "6 h 6 m ago, step 6", "11 h 6 m ago, step 5");
}

// The same of a loss that is finite, and far above what it was, until it is near again. Ruined weights are nothing to
// go on with.
static void a_run_whose_loss_is_ruined(void **state) {
    place *p = *state;
    static const char event[] =
        "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"%s\",\"step\":%d,\"text\":\"the loss of step 400 is "
        "92.1, far above the lowest, 2.3. Next: lockstep fork runs/a@best a-2\"}\n";
    static const char next[] = "\nnext      lockstep fork runs/a@best a-2\n", why[] = "the loss of step 400 is 92.1";
    char text[1024];
    lives(p);
    log_of(p, 410, 1, true);
    int n = snprintf(text, sizeof text, event, "ruined", 400);
    say(p, "events.jsonl", text);
    EXPECT(p, 1, "ATTENTION: the loss is far above what it was", why, next);
    status_of(p, 0.5, "training", 416, 0.4, "");
    EXPECT(p, 1, "ATTENTION: the loss is far above what it was", why, next);
    snprintf(text + n, sizeof text - (size_t)n, event, "mended", 405);
    say(p, "events.jsonl", text);
    EXPECT(p, 0, "FINE");
    snprintf(text + n, sizeof text - (size_t)n, event, "stop", 410);
    say(p, "events.jsonl", text);
    dies(p);
    unlink_of(p, "status.json");
    EXPECT(p, 1, "ATTENTION: stopped on request, and its loss is far above what it was", why, next);
    say(p, "config.ini", "[run]\nsteps = 410\n");
    EXPECT(p, 1, "ATTENTION: has all its steps, and its loss is far above what it was", why, next);
}

// What to do is in the run's own event, also where the watcher rings, until there is a good step again.
static void a_run_that_diverges(void **state) {
    place *p = *state;
    static const char event[] =
        "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"%s\",\"step\":%d,\"text\":\"no finite loss in "
        "steps 411 to 415. Next: lockstep fork runs/a@best a-2\"}\n";
    char text[512];
    lives(p);
    log_of(p, 410, 1, true);
    snprintf(text, sizeof text, event, "diverged", 415);
    say(p, "events.jsonl", text);
    EXPECT(p, 1, "ATTENTION: the run diverges", "no finite loss in steps 411 to 415",
           "\nnext      lockstep fork runs/a@best a-2\n");
    status_of(p, 0.5, "training", 416, 0.4,
              "{\"kind\":\"bad_steps\",\"rank\":-1,\"since\":1,\"text\":\"it diverges. Next: look\"}");
    EXPECT(p, 1, "ATTENTION: the run diverges", "\nnext      lockstep fork runs/a@best a-2\n");
    status_of(p, 0.5, "training", 417, 0.4, "");  // the watcher has seen a good step, which is not in the log yet
    EXPECT(p, 0, "FINE");
    log_of(p, 420, 1, true);
    EXPECT(p, 0, "FINE");
    dies(p);
    log_of(p, 410, 1, true);
    say(p, "config.ini", "[run]\nsteps = 410\n");
    unlink_of(p, "status.json");
    EXPECT(p, 1, "ATTENTION: has all its steps, and has diverged", "\nnext      lockstep fork runs/a@best a-2\n");
    say(p, "config.ini", "[run]\nsteps = 600\n");
    snprintf(text, sizeof text, event, "gave_up", 460);
    say(p, "events.jsonl", text);
    EXPECT(p, 2, "DEAD: stopped itself: it has diverged", "no finite loss in steps 411 to 415",
           "\nnext      lockstep fork runs/a@best a-2\n");
    look_at(p, true, ERR_OK);
    assert_non_null(strstr(p->said, "\"life\":\"diverged\""));
}

// A run that was resumed since is another life: it is judged by its own steps, also before it has reached those
// that were bad, and diverges by itself.
static void goes_on_after_it_diverged(void **state) {
    place *p = *state;
    static const char event[] =
        "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"%s\",\"step\":%d,\"text\":\"%s\"}\n";
    char text[2048];
    int n = snprintf(text, sizeof text, event, "diverged", 415,
                     "no finite loss in steps 411 to 415. Next: lockstep fork runs/a@best a-2");
    lives(p);
    log_of(p, 410, 1, true);
    say(p, "events.jsonl", text);
    EXPECT(p, 1, "ATTENTION: the run diverges");
    n += snprintf(text + n, sizeof text - (size_t)n, event, "resume", 300, "continuing");
    say(p, "events.jsonl", text);
    log_of(p, 310, 1, true);
    EXPECT(p, 0, "FINE: running: step 310");
    say(p, "config.ini", "[run]\nsteps = 310\n");
    dies(p);
    EXPECT(p, 0, "FINE: has all its steps");
    lives(p);
    snprintf(text + n, sizeof text - (size_t)n, event, "diverged", 320,
             "no finite loss in steps 316 to 320. Next: lockstep fork runs/a@best a-3");
    say(p, "events.jsonl", text);
    EXPECT(p, 1, "ATTENTION: the run diverges", "no finite loss in steps 316 to 320",
           "\nnext      lockstep fork runs/a@best a-3\n");
}

// --- a run that is over ----------------------------------------------------------------------------------------------

static void over(void **state) {
    place *p = *state;
    static const char event[] =
        "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"%s\",\"step\":410,\"text\":\"these words\"}\n";
    char text[512];
    lives(p);
    dies(p);
    EXPECT(p, 2, "DEAD: has not begun", "lockstep CONFIG.ini");
    log_of(p, 410, 100, true);
    checkpoint(p, 400);
    say(p, "config.ini", "[run]\nsteps = 600\n");
    EXPECT(p, 2, "DEAD: died: step 410/600, 1 m 40 s ago", "without a word", "lost: 10 steps (5 s)", "/config.ini\n");
    // its last word
    status_of(p, 95, "training", 412, 96, "{\"kind\":\"hang\",\"rank\":1,\"since\":1,\"text\":\"old\"}");
    EXPECT(p, 2, "DEAD: died: step 412/600", "lost: 12 steps");
    lacks(p, "old");
    lacks(p, "note");
    status_of(p, 0.5, "training", 412, 1, "");  // killed this moment
    EXPECT(p, 2, "DEAD: died");
    unlink("status.json");
    say(p, "status.json", "{}");
    snprintf(text, sizeof text, event, "stop");
    say(p, "events.jsonl", text);
    EXPECT(p, 1, "ATTENTION: stopped on request", "these words", "lockstep ", "/config.ini");
    snprintf(text, sizeof text, event, "failed");
    say(p, "events.jsonl", text);
    EXPECT(p, 2, "DEAD: failed", "these words", "when that is mended: lockstep");
    snprintf(text + strlen(text), sizeof text - strlen(text), event, "resume");  // and then it went on
    say(p, "events.jsonl", text);
    EXPECT(p, 2, "DEAD: died");
    log_of(p, 600, 100, true);
    EXPECT(p, 0, "FINE: has all its steps: step 600/600", "lockstep eval");
    lives(p);  // its last checkpoint is being written
    EXPECT(p, 1, "no step is finished");
    dies(p);
    status_of(p, 95, "done", 600, 96, "");
    EXPECT(p, 0, "FINE: has all its steps");
    status_of(p, 95, "failed", 500, 96, "");
    log_of(p, 500, 100, true);
    EXPECT(p, 2, "DEAD: failed");
    status_of(p, 95, "stopped", 500, 96, "");
    EXPECT(p, 1, "stopped on request");
}

static void no_run(void **state) {
    place *p = *state;
    char was[256];
    look_at(p, false, ERR_USAGE);
    assert_non_null(strstr(err_last()->text, "no run's directory"));
    say(p, "file", "x");
    strcpy(was, p->dir);
    strcat(p->dir, "/file");
    look_at(p, false, ERR_USAGE);
    assert_non_null(strstr(err_last()->text, "a file"));
    strcat(p->dir, "s");
    look_at(p, true, ERR_USAGE);
    assert_non_null(strstr(err_last()->text, "No such file"));
    strcpy(p->dir, was);
}

// --- anything at all -------------------------------------------------------------------------------------------------

// Long texts, escape sequences, numbers out of range, wrong types: it says something, in its lines and columns.
static void hostile(void **state) {
    place *p = *state;
    static char text[ALL], big[3000];
    memset(big, 'w', sizeof big - 1);
    for (size_t i = 40; i < sizeof big; i += 90) big[i] = ' ';
    lives(p);
    log_of(p, 410, 31, true);
    for (int i = 0; i < 2; i++) {
        snprintf(
            text, sizeof text,
            "{\"time\":%.0f,\"state\":\"\\u001b[2J%s\",\"step\":9223372036854775807,\"steps\":1e300,\"step_time\":-1e300,\"p99_ms\":1e-300,\"ranks\":[{"
            "\"rank\":1,\"host\":\"%s\",\"doing\":\"\\u0007%s\",\"doing_s\":1e300,\"watts\":-1e308,\"median_watts\":1e308},7,null],\"alarms\":[{\"kind\":\"%s\",\"rank\":1,"
            "\"text\":\"\\r\\n%s. Next: %s\"},[]]}",
            NOW, big, big, big, i ? "hang" : big, big, big);
        say(p, "status.json", text);
        snprintf(text, sizeof text, "{\"at\":\"%s\",\"kind\":\"%s\",\"step\":-9e99,\"text\":\"\\u009b%s\"}\n", big, big,
                 big);
        char *three = malloc(3 * strlen(text) + 1);
        sprintf(three, "%s%s%s", text, text, text);
        say(p, "events.jsonl", three);
        free(three);
        assert_int_equal(look_at(p, false, ERR_OK), 1);
        assert_non_null(strstr(p->said, "\nnext "));
        look_at(p, true, ERR_OK);
        json_t *o = json_loads(p->said, 0, NULL);
        assert_non_null(o);
        json_decref(o);
    }
    static const char *const odd[] = {"",
                                      "null",
                                      "[]",
                                      "{}",
                                      "{\"time\":\"now\"}",
                                      "{\"time\":null,\"ranks\":{},\"alarms\":7,\"disk\":[]}",
                                      "{\"alarms\":[null]}",
                                      "\xff\xfe",
                                      "{\"a\":\"\xc0\"}"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        say(p, "status.json", odd[i]);
        say(p, "log.jsonl", odd[i]);
        say(p, "events.jsonl", odd[i]);
        say(p, "config.ini", odd[i]);
        look_at(p, false, ERR_OK);
        look_at(p, true, ERR_OK);
    }
}

// A word that is too long for a line, and a text that is too long for its lines, are cut between characters.
static void words_of_any_length(void **state) {
    place *p = *state;
    static const char *const letters[] = {"w", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
    char text[2048], word[900];
    lives(p);
    log_of(p, 410, 1, true);
    for (int k = 0; k < 4; k++)
        for (int before = 0; before < 4; before++)
            for (int length = 10; length < 220; length += 15) {
                int n = 0;
                for (int i = 0; i < before; i++) word[n++] = 'a';
                for (int i = 0; i < length; i++) n += snprintf(word + n, sizeof word - (size_t)n, "%s", letters[k]);
                snprintf(text, sizeof text, "{\"kind\":\"hang\",\"rank\":0,\"since\":1,\"text\":\"%s\"}", word);
                status_of(p, 0.5, "training", 412, 0.4, text);
                snprintf(text, sizeof text,
                         "{\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"stop\",\"step\":1,\"text\":\"%s\"}\n", word);
                say(p, "events.jsonl", text);
                EXPECT(p, 1, "\nwhy       ", "\nevents    6 m 40 s ago, step 1, stop:");
                if (n <= STATUS_COLUMNS - 10 && !strstr(p->said, word))
                    fail_msg("\"%s\" is not whole in:\n%s", word, p->said);
            }
}

// A setting reads as it was written, whatever is in it (trainer/config/print.c).
static void settings_of_a_run(void **state) {
    place *p = *state;
    static const struct {
        const char *line, *value;
    } cases[] = {{"dir = runs                          ; local  default", "runs"},
                 {"dir = \"runs\" ; local a.ini:1", "runs"},
                 {"dir = \"it's \\\"here\\\" ; # \\\\ \" ; local a.ini:1", "it's \"here\" ; # \\ "},
                 {"dir = \"a\\tb\\nc\" ; local a.ini:1", "a\tb\nc"},
                 {"dir = \"\" ; local default", ""},
                 {"directory = x", NULL},
                 {"; dir = x", NULL}};
    char text[512], value[64];
    assert_false(rundir_setting(p->dir, "run", "dir", value, sizeof value));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(
            text, sizeof text,
            "# lockstep\n[data]\ndir = other\n[runs]\ndir = fourth\n[run]\nname = a\n%s\nsteps = 5\n[log]\ndir = third\n",
            cases[i].line);
        say(p, "config.ini", text);
        assert_int_equal(rundir_setting(p->dir, "run", "dir", value, sizeof value), cases[i].value != NULL);
        assert_string_equal(value, cases[i].value ? cases[i].value : "");
        assert_int_equal(rundir_steps(p->dir), 5);
    }
    assert_true(rundir_setting(p->dir, "run", "name", value, 1) && !*value);  // cut to the room
}

// A log that is longer than what is read of it, and a last line that is being written.
static void a_long_log(void **state) {
    place *p = *state;
    char path[512];
    lives(p);
    log_of(p, 40000, 1, true);
    snprintf(path, sizeof path, "%s/log.jsonl", p->dir);
    FILE *f = fopen(path, "a");
    fputs("{\"t\":\"step\",\"step\":50000,\"loss\":1", f);
    fclose(f);
    EXPECT(p, 0, "step 40000");
}

// What is no regular file is not waited for.
static void other_kinds_of_files(void **state) {
    place *p = *state;
    char path[512];
    static const char *const names[] = {"status.json", "log.jsonl", "events.jsonl", "config.ini", "lock"};
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", p->dir, names[i]);
        assert_int_equal(mkfifo(path, 0644), 0);
    }
    EXPECT(p, 2, "has not begun");
}

static void ages(void **state) {
    (void)state;
    static const struct {
        double s;
        const char *text;
    } cases[] = {{0, "0 s"},           {59.4, "59 s"},     {59.6, "1 m 0 s"}, {3599, "59 m 59 s"}, {3600, "1 h 0 m"},
                 {86399, "23 h 59 m"}, {90000, "1 d 1 h"}, {-3, "?"},         {1e12, "?"}};
    char text[FACTS_AGE];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(facts_age(text, cases[i].s), cases[i].text);
    assert_string_equal(facts_age(text, NAN), "?");
    assert_true(rundir_when("2026-11-24T12:06:40Z") == NOW && isnan(rundir_when("2026-11-24")) &&
                isnan(rundir_when("")));
}

// The times that count are those of the last records, of a log with thousands of them.
static void times_of_a_long_log(void **state) {
    place *p = *state;
    for (int slow_at = 0; slow_at < 2; slow_at++) {  // a pause of an hour: long ago, or just now
        char *text = NULL;
        size_t n;
        facts x;
        FILE *f = open_memstream(&text, &n);
        double at = NOW - 10000;
        for (int k = 1; k <= 2700; k++) {
            at += k <= 1500 ? 0.1 : 1;
            if (k == (slow_at ? 2690 : 1400)) at += 3600;
            fprintf(f, "{\"t\":\"step\",\"step\":%d,\"loss\":2,\"tokens\":%d,\"ms\":%d,\"time\":%.1f}\n", k, k,
                    k <= 1500 ? 100 : 1000, at);
        }
        fclose(f);
        put(p, "log.jsonl", text, n);
        assert_int_equal(facts_gather(&x, p->dir, NOW), ERR_OK);
        assert_true(fabs(x.p50 - 1) < 1e-6 && fabs(x.p99 - 1) < 1e-6 && fabs(x.gap - (slow_at ? 3601 : 1)) < 1e-3);
        assert_true(x.step == 2700 && fabs(x.step_age - (NOW - at)) < 1e-3);
        facts_release(&x);
        free(text);
    }
}

// A hash is that of the newest checkpoint that is there, whatever else the log and the watcher have heard of.
static void hash_of_the_checkpoint(void **state) {
    place *p = *state;
    facts x;
    log_of(p, 410, 1, true);
    status_of(p, 1, "training", 412, 1, "");  // of a checkpoint 400
    for (int step = 200; step <= 400; step += 100) {
        char want[17];
        snprintf(want, sizeof want, "%016x", (unsigned)step);
        checkpoint(p, step);
        assert_int_equal(facts_gather(&x, p->dir, NOW), ERR_OK);
        assert_int_equal(x.checkpoint, step);
        assert_string_equal(x.hash, step == 400 ? "fedcba9876543210" : want);
        facts_release(&x);
    }
}

// Where [run] dir is absolute, a command works anywhere, unless another path in the settings is relative: any of them,
// also one of several in one setting.
static void commands_with_relative_paths(void **state) {
    place *p = *state;
    static const char *const keys[][2] = {
        {"data", "train"},     {"data", "val"},     {"model", "init_from"},  {"eval", "text"},
        {"eval", "choices"},   {"device", "plans"}, {"sample", "tokenizer"}, {"cluster", "secret_file"},
        {"log", "http_token"}, {"log", "prom_file"}};
    static const struct {
        const char *value;
        bool relative, several;
    } paths[] = {{"", false, false},         {"/a/x", false, false},   {"b/x", true, false},
                 {"/a/x /a/y", false, true}, {"/a/x b/y", true, true}, {"/a/x  /a/y b/z", true, true},
                 {"b/x /a/y", true, true}};
    char text[512], command[1024], path[IO_PATH];
    assert_non_null(realpath(p->dir, path));
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
            if (paths[i].several && strcmp(keys[k][0], "data") != 0) continue;
            snprintf(text, sizeof text, "[run]\nname = a\ndir = /all\n[%s]\n%s = \"%s\"\n", keys[k][0], keys[k][1],
                     paths[i].value);
            say(p, "config.ini", text);
            snprintf(text, sizeof text, "%slockstep eval %s/config.ini",
                     paths[i].relative ? "where it was started: " : "", path);
            command_of(command, sizeof command, "", "eval ", p->dir);
            if (strcmp(command, text) != 0)
                fail_msg("[%s] %s = %s: %s", keys[k][0], keys[k][1], paths[i].value, command);
        }
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)
    const struct CMUnitTest tests[] = {
        TEST(fine),
        TEST(a_hang),
        TEST(a_first_step),
        TEST(alarms_by_kind),
        TEST(without_a_watcher),
        TEST(an_old_log),
        TEST(checkpoints_that_fail),
        TEST(a_run_that_diverges),
        TEST(goes_on_after_it_diverged),
        TEST(a_run_whose_loss_is_ruined),
        TEST(restarts),
        TEST(over),
        TEST(no_run),
        TEST(times_of_a_long_log),
        TEST(hash_of_the_checkpoint),
        TEST(commands_with_relative_paths),
        TEST(hostile),
        TEST(words_of_any_length),
        TEST(settings_of_a_run),
        TEST(a_long_log),
        TEST(other_kinds_of_files),
        TEST(ages),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
