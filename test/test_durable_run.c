// test/test_durable_run.c: what a run asks of its disk, and in which order: the log is on disk before the checkpoint
// that remembers its length, and who is asked to stop saves before it looks at anything. And a log that can't be
// written for a while loses those records and nothing else.
#include "test/support/journal.h"
#include "test/support/run.h"
#include "trainer/fork.h"
#include "trainer/log/monitor.h"
#include "trainer/train.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

static const char small_model[] = "[run]\nsteps = 10\n" SMALL_GPT(1, 2, 16, 24, 131) SMALL_BATCH(
    4, 2, 2) "[schedule]\nwarmup = 2\n[device]\nthreads = 1\n[sample]\nevery = 1\ntokens = 2\n[eval]\nevery = 1\n"
             "batches = 1\n[log]\nevery = 1\nhash_every = 0\n";

// --- a run -----------------------------------------------------------------------------------------------------------

// The journal of a run in this process, seen from the directory above its own.
static err_t run_in(journal *j, const char *dir, const char *more, int stop) {
    config c;
    launch at;
    board b = {0};
    char runs[600];
    load_config(&c, dir, small_model, more);
    snprintf(runs, sizeof runs, "%s/runs", dir);
    OK(io_mkdirs(runs));
    OK(launch_open(&at, 1, (int[]){1}, NULL, 0));
    launch_become(&at, 0);
    atomic_store(&b.stop, stop);
    int out = dup(STDOUT_FILENO), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    fflush(stdout);
    dup2(nowhere, STDOUT_FILENO);
    journal_begin(j, runs);
    err_t rc = train_rank(&c, &at, &b);
    journal_end();
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    close(out), close(nowhere);
    launch_close(&at);
    return rc;
}

static char *make_data(void) {
    char *dir = make_dir();
    write_tokens(dir, "text.bin", 2000);
    write_tokens(dir, "val.bin", 200);
    return dir;
}

static void expect_lines(const journal *j, const char *const *want, int count) {
    for (int i = 0; i < count || i < j->lines; i++) {
        const char *a = i < count ? want[i] : "nothing more", *b = i < j->lines ? j->line[i] : "nothing more";
        if (strcmp(a, b) == 0) continue;
        journal_print(j);
        fail_msg("call %d is \"%s\", expected \"%s\"", i + 1, b, a);
    }
}

#define TMP "default/ckpt/.tmp-step-00000001"
#define STEP "default/ckpt/step-00000001"
#define OLD "default/ckpt/.old-step-00000001"
#define SAVES_STEP_1 \
    "mkdir " TMP, "write " TMP "/model.safetensors", "sync " TMP "/model.safetensors", \
        "write " TMP "/optimizer.safetensors", "sync " TMP "/optimizer.safetensors", "read " TMP "/model.safetensors", \
        "read " TMP "/optimizer.safetensors", "write " TMP "/manifest.json.tmp", "sync " TMP "/manifest.json.tmp", \
        "rename " TMP "/manifest.json.tmp " TMP "/manifest.json", "sync " TMP, "read " TMP "/manifest.json"

// The one who asks may not wait for an evaluation and a sample: the step is safe before them, and saved again
// with what they left in the log.
static void a_stop_saves_before_it_looks(void **state) {
    (void)state;
    static const char *const want[] = {
        "mkdir default",
        "sync .",
        "write default/config.ini.tmp",
        "sync default/config.ini.tmp",
        "rename default/config.ini.tmp default/config.ini",
        "sync default",
        "write default/log.jsonl step",
        "sync default/log.jsonl",
        "mkdir default/ckpt",
        "sync default",
        "sync default",
        "sync .",
        SAVES_STEP_1,
        "rename " TMP " " STEP,
        "sync default/ckpt",
        "write default/log.jsonl eval",
        "write default/log.jsonl sample",
        "sync default/log.jsonl",
        SAVES_STEP_1,
        "rename " STEP " " OLD,
        "sync default/ckpt",
        "rename " TMP " " STEP,
        "sync default/ckpt",
        "empty " OLD,
        "remove " OLD,
        "write default/log.jsonl checkpoint",
        "link default/.best ckpt/step-00000001",
        "rename default/.best default/best",
        "sync default",
        "write default/events.jsonl event",
    };
    char *dir = make_data();
    journal *j = journal_open(1);
    assert_int_equal(run_in(j, dir, "[checkpoint]\nevery = 0\n", 1), ERR_INTERRUPTED);
    expect_lines(j, want, (int)(sizeof want / sizeof *want));
    journal_drop(j, 1);
    drop_dir(dir);
}

// Whatever was written to the log before a checkpoint begins is on disk when it does.
static void the_log_is_on_disk_before_a_checkpoint(void **state) {
    (void)state;
    char *dir = make_data();
    journal *j = journal_open(1);
    OK(run_in(j, dir, "[run]\nsteps = 3\n[checkpoint]\nevery = 1\nkeep_best = no\n[sample]\nevery = 2\n", 0));
    bool on_disk = false;
    int saves = 0, records = 0;
    for (int i = 0; i < j->lines; i++) {
        if (strncmp(j->line[i], "write default/log.jsonl", 23) == 0) on_disk = false, records++;
        if (strcmp(j->line[i], "sync default/log.jsonl") == 0) on_disk = true;
        if (strncmp(j->line[i], "mkdir default/ckpt/.tmp-step-", 29) != 0) continue;
        saves++;
        if (on_disk) continue;
        journal_print(j);
        fail_msg("checkpoint %d begins before the log is on disk", saves);
    }
    assert_int_equal(saves, 3);
    assert_true(records >= 3);
    journal_drop(j, 1);
    drop_dir(dir);
}

#define FORK ".b.fork/ckpt/step-00000002"
#define COPIES(kind) \
    "read " FORK "/.held-" kind ".safetensors", "write " FORK "/.part-" kind ".safetensors", \
        "sync " FORK "/.part-" kind ".safetensors", "read " FORK "/.part-" kind ".safetensors", \
        "rename " FORK "/.part-" kind ".safetensors " FORK "/" kind ".safetensors", "sync " FORK

// The new run is on disk before it has the name that a person sees (a call that the journal does not hear), and the
// name is before that is said.
static void a_fork_is_on_disk_before_it_is_there(void **state) {
    (void)state;
    static const char *const want[] = {
        "read default/ckpt/step-00000002/manifest.json",
        "mkdir .b.fork",
        "read default/log.jsonl",
        "write .b.fork/log.jsonl step",
        "sync .b.fork/log.jsonl",
        "write .b.fork/config.ini.tmp",
        "sync .b.fork/config.ini.tmp",
        "rename .b.fork/config.ini.tmp .b.fork/config.ini",
        "sync .b.fork",
        "write .b.fork/events.jsonl event",
        "sync .b.fork/events.jsonl",
        "mkdir .b.fork/ckpt",
        "sync .b.fork",
        "sync .b.fork",
        "sync .",
        "mkdir " FORK,
        COPIES("model"),
        COPIES("optimizer"),
        "remove " FORK "/.held-model.safetensors",
        "remove " FORK "/.held-optimizer.safetensors",
        "write " FORK "/manifest.json.tmp",
        "sync " FORK "/manifest.json.tmp",
        "rename " FORK "/manifest.json.tmp " FORK "/manifest.json",
        "sync " FORK,
        "sync .b.fork/ckpt",
        "sync .b.fork",
        "sync .",
        "write default/events.jsonl event",
    };
    char *dir = make_data(), from[700], runs[600], *text;
    size_t size;
    journal *j = journal_open(2);
    OK(run_in(&j[0], dir, "[run]\nsteps = 2\n[checkpoint]\nevery = 2\n", 0));
    FILE *out = open_memstream(&text, &size);
    snprintf(runs, sizeof runs, "%s/runs", dir);
    snprintf(from, sizeof from, "%s/default@2", runs);
    journal_begin(&j[1], runs);
    err_t rc = fork_run(&(fork_options){.from = from, .name = "b"}, out);
    journal_end();
    OK(rc);
    expect_lines(&j[1], want, (int)(sizeof want / sizeof *want));
    fclose(out);
    free(text);
    journal_drop(j, 2);
    drop_dir(dir);
}

// --- a log that can't be written -------------------------------------------------------------------------------------

static void log_steps(monitor *m, int from, int to) {
    for (int k = from; k <= to; k++)
        monitor_log(m,
                    &(record){RECORD_STEP, .step = {.step = k, .logged = true, .loss = 1.0 / k, .ms = 2, .world = 1}});
}

// Files of this process may have so many bytes; RLIM_INFINITY: as many as they like.
static void limit_files(rlim_t bytes) {
    struct rlimit now;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &now), 0);
    now.rlim_cur = bytes < now.rlim_max ? bytes : now.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
}

static char *read_back(const char *dir, const char *name, size_t *n) {
    char path[600], *text;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    OK(io_read_file(path, 1 << 20, &text, n));
    assert_int_equal(strlen(text), *n);  // a hole would read as zeros
    return text;
}

// log.jsonl has the records of these steps, whole, and no other byte.
static void expect_steps(const char *dir, const monitor *m, const int *steps, int count) {
    size_t n;
    char *text = read_back(dir, "log.jsonl", &n), *rest = text, *line, head[64];
    assert_int_equal(n, monitor_log_bytes(m));
    for (int i = 0; (line = strsep(&rest, "\n")) && *line; i++) {
        if (i == count) fail_msg("one record too many: %s", line);
        snprintf(head, sizeof head, "{\"t\":\"step\",\"step\":%d,", steps[i]);
        if (strncmp(line, head, strlen(head)) != 0 || line[strlen(line) - 1] != '}')
            fail_msg("record %d, of step %d: %s", i, steps[i], line);
        if (i + 1 < count && !rest) fail_msg("%d records, expected %d", i + 1, count);
    }
    free(text);
}

static int events_of(const char *dir) {
    size_t n;
    char *text = read_back(dir, "events.jsonl", &n);
    int count = 0;
    for (const char *p = text; (p = strstr(p, "\"kind\":\"log_failed\"")); p++) count++;
    free(text);
    return count;
}

// The file may not grow beyond the middle of a record: a part of it is written, then no more. (The kernel refuses it as
// it does on a full disk.)
static void a_log_that_can_not_grow(void **state) {
    (void)state;
    static const int whole[] = {1, 2, 3, 6, 7, 10};
    char *dir = make_dir();
    config c;
    monitor m;
    OK(config_load(&c, NULL, 0));
    signal(SIGXFSZ, SIG_IGN);
    OK(monitor_open(&m, &(log_setup){.dir = dir, .c = &c, .quiet = true}));
    log_steps(&m, 1, 3);
    limit_files((rlim_t)monitor_log_bytes(&m) + 50);
    log_steps(&m, 4, 5);
    limit_files(RLIM_INFINITY);
    expect_steps(dir, &m, whole, 3);
    assert_int_equal(events_of(dir), 1);  // one of a series
    log_steps(&m, 6, 7);
    expect_steps(dir, &m, whole, 5);
    limit_files((rlim_t)monitor_log_bytes(&m));  // not a single byte
    log_steps(&m, 8, 9);
    limit_files(RLIM_INFINITY);
    log_steps(&m, 10, 10);
    expect_steps(dir, &m, whole, 6);
    assert_int_equal(events_of(dir), 2);
    monitor_close(&m);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_saves_before_it_looks),
        cmocka_unit_test(the_log_is_on_disk_before_a_checkpoint),
        cmocka_unit_test(a_fork_is_on_disk_before_it_is_there),
        cmocka_unit_test(a_log_that_can_not_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
