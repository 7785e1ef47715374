// test/test_watch_run.c: the process beside a node's ranks, from its first look to its last, with a clock that goes as
// fast as it is asked to: what is an event, and once; what of it is written, and when. Ranks, disk and time are made
// up, files are real. (What one look sees is in test/test_watch.c, what is an alarm in test/test_alarms.c.)
#include "test/support/run.h"

#include "trainer/watch/watcher.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// --- time and the disk -----------------------------------------------------------------------------------------------

static double now;               // of both clocks; 0: this machine's
static int64_t disk_free = -1;   // bytes of 500 GB; -1: this machine's disk
static const char *no_room_for;  // writes to files whose path ends so come to half of what they should: no space left
static const double WALL_S = 1.8e9;

int clock_gettime(clockid_t clock, struct timespec *t) {
    if (now == 0) return (int)syscall(SYS_clock_gettime, clock, t);
    double s = now + (clock == CLOCK_REALTIME ? WALL_S : 0);
    *t = (struct timespec){.tv_sec = (time_t)s, .tv_nsec = (long)(1e9 * (s - floor(s)))};
    return 0;
}

int statvfs(const char *path, struct statvfs *out) {
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = fd < 0 ? -1 : fstatvfs(fd, out);
    if (fd >= 0) close(fd);
    if (rc == 0 && disk_free >= 0) {
        out->f_frsize = 1000, out->f_blocks = 500000000;
        out->f_bfree = out->f_bavail = (fsblkcnt_t)(disk_free / 1000);
    }
    return rc;
}

static bool has_no_room(int fd) {
    char link[64], path[1024];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = no_room_for ? readlink(link, path, sizeof path) : 0;
    size_t end = no_room_for ? strlen(no_room_for) : 0;
    return n > 0 && (size_t)n >= end && memcmp(path + (size_t)n - end, no_room_for, end) == 0;
}

static double slow_s;  // what the next write takes

ssize_t write(int fd, const void *bytes, size_t n) {
    now += slow_s, slow_s = 0;
    if (!has_no_room(fd)) return syscall(SYS_write, fd, bytes, n);
    if (n > 1) return syscall(SYS_write, fd, bytes, n / 2);
    errno = ENOSPC;
    return -1;
}

// --- a run -----------------------------------------------------------------------------------------------------------

typedef struct run {
    char *root, dir[600];
    config *c;
    board *b;
    board_news news;
    comm_place place[2];
    watch_start at;
} run;

// What happens to the run before look `k`, from 1 on; true: it is over.
typedef bool story(run *r, int k);

static struct {
    run *r;
    story *what;
    int looks;
} told;

static bool over(double until) {
    if (until > now) now = until;
    return until != 0 && told.what(told.r, ++told.looks);
}

static void prepare(run *r, int node) {
    *r = (run){
        .root = make_dir(), .c = calloc(1, sizeof *r->c), .b = aligned_alloc(128, (board_bytes(2) + 127) / 128 * 128)};
    assert_true(r->c && r->b);
    memset(r->b, 0, board_bytes(2));
    board_init(r->b, 2);
    snprintf(r->dir, sizeof r->dir, "%s/made", r->root);
    snprintf(r->c->run.dir, sizeof r->c->run.dir, "%s", r->root);
    snprintf(r->c->run.name, sizeof r->c->run.name, "made");
    r->c->log.machine_every = 10, r->c->checkpoint.keep = 3;
    OK(io_mkdirs(r->dir));
    for (int i = 0; i < 2; i++) {
        r->place[i] = (comm_place){.node = node, .local = i, .rank = 2 * node + i, .host = "10.0.0.2"};
        board_enter(&r->b->rank[i], PHASE_STEPPING, 1);
    }
    atomic_store(&r->b->ready, 2);
    r->at =
        (watch_start){.b = r->b, .place = r->place, .node = node, .nodes = 2, .world = 4, .starts = 1, .over = over};
    now = 1000, disk_free = -1, no_room_for = NULL;
}

static void watch(run *r, story *what) {
    told.r = r, told.what = what, told.looks = 0;
    OK(watch_run(r->c, &r->at));
}

static void drop(run *r) {
    now = 0, disk_free = -1, no_room_for = NULL;
    drop_dir(r->root);
    free(r->c), free(r->b);
}

// A step more, which rank 0 tells where it is here.
static void step(run *r) {
    int64_t n = atomic_load(&r->b->step) + 1;
    atomic_store(&r->b->step, n);
    for (int i = 0; i < 2; i++) atomic_store(&r->b->rank[i].step, n + 1);
    if (r->place[0].rank != 0) return;
    r->news.step = n, r->news.steps = 1000000, r->news.p99_ns = 1000000000, r->news.ms = 1000,
    r->news.step_time = now + WALL_S;
    snprintf(r->news.unit, sizeof r->news.unit, "token");
    board_publish(r->b, &r->news);
}

static char *text_of(const run *r, const char *name) {
    char path[700], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    if (io_read_file(path, 1 << 24, &text, &n) != ERR_OK) return strdup("");
    return text;
}

static int count(const char *text, const char *word) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word)) n++;
    return n;
}

// So many events of a kind, each of which says this.
static void events(const run *r, const char *kind, int n, const char *word) {
    char *text = text_of(r, "events.jsonl"), key[64];
    snprintf(key, sizeof key, "\"kind\":\"%s\"", kind);
    if (count(text, key) != n || (n && !strstr(text, word)))
        fail_msg("expected %d times %s, \"%s\": %s", n, kind, word, text);
    free(text);
}

static bool exists(const run *r, const char *name) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    return access(path, F_OK) == 0;
}

// --- what can't be written -------------------------------------------------------------------------------------------

static bool no_room_twice(run *r, int k) {
    step(r);
    no_room_for = k < 20 || (k >= 70 && k < 90) || (k >= 120 && k < 150) ? NULL
                  : k < 70                                               ? ".new"
                  : k < 120                                              ? "/machine.jsonl"
                                                                         : ".prom.new";
    return k == 200;
}

// A disk that stays full is one event, whatever finds no room; when it is full again, that is another one. What was
// half written is taken back.
static void a_full_disk_is_one_event(void **state) {
    (void)state;
    run r;
    prepare(&r, 0);
    snprintf(r.c->log.prom_file, sizeof r.c->log.prom_file, "%s/a.prom", r.root);
    watch(&r, no_room_twice);
    events(&r, "watch_failed", 3, "No space left on device");
    char *status = text_of(&r, "status.json"), *lines = text_of(&r, "machine.jsonl"),
         *event = text_of(&r, "events.jsonl");
    assert_int_equal(count(event, "\n"), 3);
    assert_non_null(strstr(event, "\"step\":20,"));
    assert_non_null(strstr(event, "status.json.new"));
    assert_non_null(strstr(event, "machine.jsonl"));
    assert_non_null(strstr(event, "a.prom.new"));
    assert_non_null(strstr(status, "\"step\":200"));
    assert_int_equal(count(lines, "\n"), count(lines, "{\"t\":\"machine\""));
    assert_int_equal(count(lines, "}]}\n"), count(lines, "\n"));
    assert_in_range(count(lines, "\n"), 16, 18);  // one in ten looks, but for those without room
    free(status), free(lines), free(event);
    drop(&r);
}

static bool full_for_all(run *r, int k) {
    step(r);
    no_room_for = k >= 10 && k < 50 ? "" : NULL;
    return k == 100;
}

// Where the event finds no room either, the files are whole all the same.
static void a_disk_that_takes_nothing(void **state) {
    (void)state;
    run r;
    prepare(&r, 0);
    watch(&r, full_for_all);
    char *status = text_of(&r, "status.json"), *lines = text_of(&r, "machine.jsonl"),
         *event = text_of(&r, "events.jsonl");
    assert_non_null(strstr(status, "\"step\":100"));
    assert_int_equal(count(lines, "{\"t\":\"machine\""), count(lines, "}]}\n"));
    assert_int_equal(count(event, "{\"t\":\"event\""), count(event, "\"}\n"));
    assert_in_range(count(lines, "\n"), 6, 7);
    free(status), free(lines), free(event);
    drop(&r);
}

enum { LOOKS = 100, SLOW_AT = 20 };
static double looked_at[LOOKS + 1];

static bool slow_once(run *r, int k) {
    step(r);
    looked_at[k] = now;
    if (k == SLOW_AT) slow_s = 30;
    return k == LOOKS;
}

// A look that waits for a disk makes the next ones late, and no more: those that were missed are not made up for.
static void a_slow_disk(void **state) {
    (void)state;
    run r;
    prepare(&r, 0);
    watch(&r, slow_once);
    for (int k = 2; k <= LOOKS; k++) {
        double want = k == SLOW_AT + 1 ? 30 : 1;
        if (k != SLOW_AT + 2 && fabs(looked_at[k] - looked_at[k - 1] - want) > 1e-6)
            fail_msg("look %d after %.3f s", k, looked_at[k] - looked_at[k - 1]);
    }
    events(&r, "watch_failed", 0, "");
    drop(&r);
}

// --- the report ------------------------------------------------------------------------------------------------------

static int reports, reported_at[8];

static bool checkpoints(run *r, int k) {
    char path[700];
    snprintf(path, sizeof path, "%s/report.html", r->dir);
    if (unlink(path) == 0) reported_at[reports++ % 8] = k - 1;  // the look before has written it
    if (k > 10) step(r);
    if (k == 30 || k == 31 || k == 60) r->news.checkpoint_step = k;
    return k == 80;
}

// It is written after each checkpoint and at the end, by the node that has the log, and by no other.
static void a_report_after_each_checkpoint(void **state) {
    (void)state;
    for (int node = 0; node < 2; node++)
        for (int wanted = 0; wanted < 2; wanted++) {
            run r;
            prepare(&r, node);
            write_text(r.dir, "log.jsonl", "");
            r.c->log.report = wanted;
            reports = 0;
            watch(&r, checkpoints);
            assert_int_equal(reports, node == 0 && wanted ? 3 : 0);
            if (reports) assert_true(reported_at[0] == 31 && reported_at[1] == 32 && reported_at[2] == 61);
            assert_int_equal(exists(&r, "report.html"), node == 0 && wanted);
            events(&r, "watch_failed", 0, "");
            drop(&r);
        }
}

static bool checkpoints_with_a_full_disk(run *r, int k) {
    step(r);
    if (k % 10 == 0) r->news.checkpoint_step = k;
    no_room_for = k == 55 ? ".new" : NULL;
    return k == 60;
}

// That it can't be written is one event, and hides no other.
static void a_report_that_can_not_be_written(void **state) {
    (void)state;
    run r;
    char path[700];
    prepare(&r, 0);
    write_text(r.dir, "log.jsonl", "");
    snprintf(path, sizeof path, "%s/report.html/in the way", r.dir);
    OK(io_mkdirs(path));
    r.c->log.report = true;
    watch(&r, checkpoints_with_a_full_disk);
    events(&r, "watch_failed", 2, "/made/report.html: ");
    char *event = text_of(&r, "events.jsonl");
    assert_non_null(strstr(event, "\"step\":11,"));
    assert_non_null(strstr(event, "\"step\":55,"));
    free(event);
    drop(&r);
}

// --- checkpoints -----------------------------------------------------------------------------------------------------

// Every hundred seconds one of 10 GB, which is there after 20 s; the first ones stay.
static int stay;
static bool checkpoints_fill(run *r, int k) {
    int at = k % 100, saves = k / 100 - 7;  // a rate is known after ten minutes
    step(r);
    if (saves < 0) return false;
    if (at == 80 || at == 0)
        for (int i = 0; i < 2; i++) board_enter(&r->b->rank[i], at ? PHASE_SAVING : PHASE_STEPPING, k);
    if (at >= 80) disk_free -= 500000000;
    if (at == 99 && saves >= stay) disk_free += 10000000000;
    return saves == 7;
}

// The best one is kept beside the newest: until all of them are there, they fill the disk, and that is no trend.
static void the_best_checkpoint_is_kept_too(void **state) {
    (void)state;
    for (int best = 0; best < 2; best++)
        for (stay = 3 + best; stay <= 4 + best; stay++) {
            run r;
            prepare(&r, 0);
            r.c->checkpoint.keep_best = best;
            disk_free = 200000000000;
            watch(&r, checkpoints_fill);
            events(&r, "disk_full", stay > 3 + best, "less each hour");
            drop(&r);
        }
}

// --- alarms are events -----------------------------------------------------------------------------------------------

static pid_t child;

static void wait_for_state(char wanted) {
    char path[64], text[256], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)child);
    for (int i = 0; i < 5000 && state != wanted; i++) {
        FILE *f = fopen(path, "r");
        if (f && fgets(text, sizeof text, f) && strrchr(text, ')')) state = strrchr(text, ')')[2];
        if (f) fclose(f);
        if (state != wanted) usleep(1000);
    }
    assert_int_equal(state, wanted);
}

static bool stops_and_goes_on(run *r, int k) {
    if (k == 1) atomic_store(&r->b->rank[1].pid, (int)child);
    step(r);
    if (k == 20) kill(child, SIGSTOP), wait_for_state('T');
    if (k == 50) kill(child, SIGCONT), wait_for_state('S');
    if (k == 100) atomic_store(&r->b->end, RUN_DONE);
    return k == 100;
}

static void alarms_are_events(void **state) {
    (void)state;
    run r;
    prepare(&r, 1);
    child = fork();
    if (child == 0)
        while (true) pause();
    watch(&r, stops_and_goes_on);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    events(&r, "stopped", 1, "rank 3 (10.0.0.2)");
    events(&r, "continued", 1, "goes on, after 31 s");
    char *event = text_of(&r, "events.jsonl"), *status = text_of(&r, "status.json");
    assert_int_equal(count(event, "\n"), 2);
    assert_non_null(strstr(event, "\"step\":29,"));
    assert_non_null(strstr(status, "\"state\":\"done\""));  // of how it ended the last look tells
    free(event), free(status);
    drop(&r);
}

static bool thirty_looks(run *r, int k) {
    step(r);
    return k == 30;
}

// GPUs whose sensors can't be read are one event, however many there are and however often they are looked at.
static void sensors_that_can_not_be_read(void **state) {
    (void)state;
    run r;
    prepare(&r, 1);
    for (int i = 0; i < 2; i++) board_name_device(&r.b->rank[i], i ? "ffff:ff:1f.0" : "ffff:fe:1f.0");  // of no machine
    watch(&r, thirty_looks);
    events(&r, "watch_sensors", 1, "");
    drop(&r);
}

// --- the end ---------------------------------------------------------------------------------------------------------

static int last_look;
static bool ends_in_between(run *r, int k) {
    for (int i = 0; i < 2; i++) atomic_store(&r->b->rank[i].pid, k < last_look ? getpid() : 0);  // the ranks have left
    step(r);
    return k == last_look;
}

// What was measured since the last line is a line, too, however short the time was; what was not is none.
static void the_last_seconds_are_a_line(void **state) {
    (void)state;
    for (last_look = 1; last_look <= 31; last_look += 5) {
        run r;
        char want[32];
        prepare(&r, 1);
        watch(&r, ends_in_between);
        char *lines = text_of(&r, "machine.jsonl");
        snprintf(want, sizeof want, "\"step\":%d,", last_look);
        bool measured = last_look % 10 != 1;  // by a look since the last line, or since the first look
        assert_int_equal(count(lines, "\n"), (last_look - 1) / 10 + measured);
        assert_int_equal(count(lines, want), measured);
        free(lines);
        drop(&r);
    }
}

// --- the beginning ---------------------------------------------------------------------------------------------------

static bool never_ready(run *r, int k) {
    (void)r;
    return k == 50;
}

static bool ready_at_last(run *r, int k) {
    if (k == 20) assert_false(exists(r, "status.json")), atomic_store(&r->b->ready, 2);
    return k == 20;
}

// Before all ranks are ready the directory may be another run's: nothing is written. When it is over just then, one
// look is.
static void not_before_all_are_ready(void **state) {
    (void)state;
    run r;
    prepare(&r, 0);
    atomic_store(&r.b->ready, 1);
    watch(&r, never_ready);
    assert_true(!exists(&r, "status.json") && !exists(&r, "events.jsonl") && !exists(&r, "machine.jsonl"));
    watch(&r, ready_at_last);
    assert_true(exists(&r, "status.json"));
    drop(&r);
}

static bool ten_looks(run *r, int k) {
    step(r);
    return k == 10;
}

static void one_that_is_started_again(void **state) {
    (void)state;
    static const struct {
        int starts, ended, events;
        const char *word;
    } cases[] = {{1, 0, 0, ""},
                 {2, SIGKILL, 1, "on node 1 was killed by signal 9, and is started again (start 2)"},
                 {3, ERR_IO << 8, 1, "ended with code 74, and is started again (start 3)"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run r;
        prepare(&r, 1);
        r.at.starts = cases[i].starts, r.at.ended = cases[i].ended;
        write_text(r.dir, "machine.jsonl", "{\"t\":\"machine\",\"ti");  // the last line of the one before
        write_text(r.dir, "events.jsonl", "before\n");
        snprintf(r.c->log.http, sizeof r.c->log.http, "192.0.2.1:28080");  // not of this machine: an event, and no more
        watch(&r, ten_looks);
        events(&r, "watch_restarted", cases[i].events, cases[i].word);
        events(&r, "watch_failed", 1, "192.0.2.1:28080");
        char *lines = text_of(&r, "machine.jsonl"), *event = text_of(&r, "events.jsonl");
        assert_true(strncmp(event, "before\n", 7) == 0);
        assert_true(strncmp(lines, "{\"t\":\"machine\",\"ti\n{\"t\":\"machine\",\"time\":", 39) == 0);
        free(lines), free(event);
        drop(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_disk_is_one_event),
        cmocka_unit_test(a_disk_that_takes_nothing),
        cmocka_unit_test(a_slow_disk),
        cmocka_unit_test(a_report_after_each_checkpoint),
        cmocka_unit_test(a_report_that_can_not_be_written),
        cmocka_unit_test(the_best_checkpoint_is_kept_too),
        cmocka_unit_test(alarms_are_events),
        cmocka_unit_test(sensors_that_can_not_be_read),
        cmocka_unit_test(the_last_seconds_are_a_line),
        cmocka_unit_test(not_before_all_are_ready),
        cmocka_unit_test(one_that_is_started_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
