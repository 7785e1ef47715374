// test/test_metrics.c: what trainer/watch/ says of a state that is made up: metrics byte for byte, health case by case,
// the four pages; and that the dashboard asks for nothing else than what is exported. (test/check_promtool.sh: what
// Prometheus itself thinks of it.)
#include "base/io.h"
#include "test/support/expect.h"
#include "test/support/watch_state.h"
#include "trainer/watch/metrics.h"
#include "trainer/watch/pages.h"
#ifndef __SANITIZE_ADDRESS__
#include "test/support/heap.h"
#endif

#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { ROOM = 1 << 20, MANY = 128 };

static char text[ROOM];

static const char *metrics_of(const watch_state *s) {
    assert_true(metrics_write(s, text, sizeof text) == strlen(text));
    return text;
}

static void has(const char *in, const char *line) {
    if (!strstr(in, line)) fail_msg("no \"%s\" in:\n%s", line, in);
}

static void lacks(const char *in, const char *word) {
    if (strstr(in, word)) fail_msg("\"%s\" in:\n%s", word, in);
}

// Removes the lines about the build, which has another name each time.
static void without_build(char *t) {
    char *to = t;
    for (char *line = t, *end; *line; line = end) {
        end = strchr(line, '\n') + 1;
        if (memmem(line, (size_t)(end - line), "build_info", 10)) continue;
        memmove(to, line, (size_t)(end - line));
        to += end - line;
    }
    *to = 0;
}

// --- metrics ---------------------------------------------------------------------------------------------------------

static void golden(void **state) {
    (void)state;
    char *expected;
    size_t n;
    watch_rank rank[2];
    watch_state s = state_make(rank, 2);
    assert_ok(io_read_file("test/golden/watch.prom", 1 << 20, &expected, &n));
    without_build((char *)(uintptr_t)metrics_of(&s));
    assert_string_equal(text, expected);
    free(expected);
}

// A node without rank 0, of whose CPU nothing is known.
static void unknown_is_left_out(void **state) {
    (void)state;
    watch_rank rank;
    watch_state s = state_make_bare(&rank);
    const char *t = metrics_of(&s);
    static const char *const absent[] = {
        "NaN",  "nan",    "inf\n",  " -1\n",      "lockstep_steps", "_total{rank=\"0\"}",
        "loss", "tokens", "device", "filesystem", "gpu=",           "resident"};
    for (size_t i = 0; i < COUNT(absent); i++) lacks(t, absent[i]);
    has(t, "\nlockstep_rank_step{rank=\"0\"} 121\n");
    has(t, "\nlockstep_rank_phase_seconds_total{rank=\"0\",phase=\"step\"} 240.25\n");
    has(t, "\nlockstep_step 120\n");
    has(t, "\nlockstep_ready 1\n");
    has(t, "\nlockstep_alarms{kind=\"hang\"} 0\n");
}

// Of CPUs only the energy is known, of all processors together.
static void a_cpu(void **state) {
    (void)state;
    watch_rank rank;
    watch_state s = state_make_bare(&rank);
    rank.sensors.joules = 12.5;
    has(metrics_of(&s), "\nlockstep_device_energy_joules_total{rank=\"0\"} 12.5\n");
    lacks(text, "device_power");
}

// What only grows begins with the process: a run that was resumed at step 20 and is at 120 has done 100.
static void counters(void **state) {
    (void)state;
    watch_rank rank;
    watch_state s = state_make(&rank, 1);
    has(metrics_of(&s), "\nlockstep_steps_total 100\n");
    has(text, "\nlockstep_tokens_total 6553600\n");
    s.news.eval_step = 0;  // a run that went on knows its best, and has not evaluated yet
    has(metrics_of(&s), "\nlockstep_best_eval_step 100\n");
    lacks(text, "lockstep_eval_step");
    s.news.best_step = 0, s.news.eval_step = 100;
    has(metrics_of(&s), "\nlockstep_eval_step 100\n");
    lacks(text, "lockstep_best_eval_step");
    lacks(text, "lockstep_eval_auc"), lacks(text, "lockstep_eval_pearson"), lacks(text, "lockstep_eval_accuracy");
    s.news.eval_accuracy = 0.75;
    has(metrics_of(&s), "\nlockstep_eval_accuracy 0.75\n");
    s.news.eval_pearson = -0.5, s.news.eval_spearman = 0;  // correlations may be nothing or less
    has(metrics_of(&s), "\nlockstep_eval_pearson -0.5\n");
    has(text, "\nlockstep_eval_spearman 0\n");
    s.news.began_step = s.news.step;
    has(metrics_of(&s), "\nlockstep_steps_total 0\n");
    has(text, "\nlockstep_tokens_total 0\n");
    s.step = 0;
    s.news = (board_news){.steps = 600,
                          .unit = "sample",
                          .loss = NAN,
                          .grad_norm = NAN,
                          .lr = NAN,
                          .loss_scale = NAN,
                          .ms = NAN,
                          .units_per_s = NAN,
                          .mfu = NAN,
                          .stale = NAN,
                          .late = NAN,
                          .waiting = NAN,
                          .data_wait_ms = NAN,
                          .comm_wait_ms = NAN,
                          .eval_loss = NAN,
                          .best = NAN};
    has(metrics_of(&s), "\nlockstep_step 0\n");
    has(text, "\nlockstep_samples_total 0\n");
    has(text, "\nlockstep_step_duration_seconds_bucket{le=\"+Inf\"} 0\n");
    static const char *const absent[] = {"loss",      "lockstep_eval", "checkpoint",
                                         "timestamp", "tokens",        "samples_per_second"};
    for (size_t i = 0; i < COUNT(absent); i++) lacks(text, absent[i]);
    for (int sign = -1; sign <= 1; sign += 2) {  // what is infinite is not known either
        double *const reals[] = {&s.news.loss,       &s.news.grad_norm, &s.news.lr,
                                 &s.news.loss_scale, &s.news.mfu,       &s.news.units_per_s};
        for (size_t i = 0; i < COUNT(reals); i++) *reals[i] = sign * INFINITY;
        metrics_of(&s);
        for (size_t i = 0; i < COUNT(absent); i++) lacks(text, absent[i]);
        lacks(text, "inf\n");
    }
}

// Of servers that do not wait for all of a step, each number under its own name, be it nothing; of others none.
static void what_servers_know_of_a_step(void **state) {
    (void)state;
    watch_rank rank;
    watch_state s = state_make(&rank, 1);
    s.news.stale = 1.5, s.news.late = 3, s.news.waiting = 0.25;
    has(metrics_of(&s), "\nlockstep_stale_updates 1.5\n");
    has(text, "\nlockstep_late_gradients 3\n");
    has(text, "\nlockstep_server_queue 0.25\n");
    s.news.stale = s.news.late = s.news.waiting = 0;
    has(metrics_of(&s), "\nlockstep_stale_updates 0\n");
    has(text, "\nlockstep_late_gradients 0\n");
    has(text, "\nlockstep_server_queue 0\n");
    s.news.stale = s.news.late = s.news.waiting = NAN;
    lacks(metrics_of(&s), "stale"), lacks(text, "late_"), lacks(text, "queue");
}

static void alarms_are_counted(void **state) {
    (void)state;
    watch_rank rank[2];
    watch_state s = state_make(rank, 2);
    state_alarm(&s, ALARM_THROTTLED, 0, "hot");
    state_alarm(&s, ALARM_THROTTLED, 1, "hot, too");
    state_alarm(&s, ALARM_DISK, -1, "full by tomorrow");
    has(metrics_of(&s), "\nlockstep_alarms{kind=\"throttled\"} 2\n");
    has(text, "\nlockstep_alarms{kind=\"disk_full\"} 1\n");
    has(text, "\nlockstep_alarms{kind=\"dead\"} 0\n");
    has(text, "\nlockstep_healthy 1\n");
    state_alarm(&s, ALARM_DEAD, 1, "rank 1 is gone");
    has(metrics_of(&s), "\nlockstep_healthy 0\n");
}

// Steps advance, and are of no use.
static void a_run_that_diverges(void **state) {
    (void)state;
    watch_rank rank[2];
    watch_state s = state_make(rank, 2);
    char why[HEALTH_TEXT] = "";
    has(metrics_of(&s), "\nlockstep_bad_steps 0\n");
    s.bad_limit = 5, s.bad_steps = 4;
    assert_true(health(&s, why, sizeof why));
    s.bad_steps = 5;
    assert_false(health(&s, why, sizeof why));
    assert_non_null(
        strstr(why, "the run diverges: the loss or the gradient of the last 5 steps, up to step 120, was not finite"));
    has(metrics_of(&s), "\nlockstep_bad_steps 5\n");
    has(text, "\nlockstep_healthy 0\n");
}

// On a node that is not the first a rank's number is not its place there: each number of each rank is under its own.
static void ranks_of_another_node(void **state) {
    (void)state;
    // clang-format off
    static const struct { const char *family; double first, more; } families[] = {
        {"rank_step", 200, 1}, {"rank_lanes", 7, 2},                {"rank_operation_age_seconds", 2, 3},   {"rank_busy_processors", 1, 0.5},
        {"process_resident_bytes", 3000, 7},  {"read_bytes_total", 4000, 9},          {"read_retries_total", 5, 2},
        {"read_median_seconds", 0.25, 1},     {"read_p99_seconds", 0.5, 1},           {"device_power_watts", 300, 5},
        {"device_power_limit_watts", 700, 6}, {"device_energy_joules_total", 80, 4},  {"device_temperature_celsius", 60, 2},
        {"device_clock_hertz", 1e9, 1e8},     {"device_utilization_ratio", 0.5, 0.1}, {"device_memory_used_bytes", 6000, 8},
        {"device_memory_size_bytes", 9000, 1}, {"device_memory_planned_bytes", 5000, 3},
    };
    // clang-format on
    watch_rank rank[3];
    char line[256], labels[128];
    watch_state s = state_make(rank, 3);
    s.node = 2, s.nodes = 3, s.world = 11;
    for (int i = 0; i < 3; i++) {
        watch_rank *r = &rank[i];
        r->place.node = 2, r->place.rank = 8 + i;
        r->step = 200 + i, r->lanes = 7 + 2 * i, r->what_s = 2 + 3 * i, r->cpu = 1 + 0.5 * i,
        r->resident = 3000 + 7 * i;
        r->read_bytes = 4000 + 9 * i, r->read_retries = 5 + 2 * i, r->read_p50_ms = 250 + 1000 * i,
        r->read_p99_ms = 500 + 1000 * i;
        r->sensors =
            (device_sensors){.watts = 300 + 5 * i, .joules = 80 + 4 * i, .celsius = 60 + 2 * i, .mhz = 1000 + 100 * i};
        r->sensors.limited = i == 0 ? LIMITED_HEAT : i == 1 ? LIMITED_POWER : 0;
        r->limit_watts = 700 + 6 * i, r->utilisation = 0.5 + 0.1 * i;
        r->device_used = 6000 + 8 * i, r->device_total = 9000 + i, r->device_planned = 5000 + 3 * i;
        for (int p = 0; p < BOARD_PHASES; p++) r->in_phase_s[p] = 10 * i + p + 1;
    }
    rank[2].device[0] = 0;  // a CPU beside GPUs
    metrics_of(&s);
    for (int i = 0; i < 3; i++) {
        for (size_t k = 0; k < COUNT(families); k++) {
            snprintf(labels, sizeof labels, "{rank=\"%d\"}", 8 + i);
            if (i < 2 && strncmp(families[k].family, "device", 6) == 0)
                snprintf(labels, sizeof labels, "{gpu=\"%d\",UUID=\"%s\",pci_bus_id=\"%s\",rank=\"%d\"}", i,
                         rank[i].uuid, rank[i].device, 8 + i);
            snprintf(line, sizeof line, "\nlockstep_%s%s %.15g\n", families[k].family, labels,
                     families[k].first + families[k].more * i);
            has(text, line);
        }
        for (int p = 0; p < BOARD_PHASES; p++) {
            snprintf(line, sizeof line, "\nlockstep_rank_phase_seconds_total{rank=\"%d\",phase=\"%s\"} %d\n", 8 + i,
                     board_phase_name((board_phase)p), 10 * i + p + 1);
            has(text, line);
        }
        snprintf(line, sizeof line, "rank=\"%d\",reason=\"%s\"} %d\n", 8 + i, i == 1 ? "power" : "heat", i < 2);
        has(text, line);
    }
}

static void labels_are_escaped(void **state) {
    (void)state;
    watch_rank rank;
    watch_state s = state_make(&rank, 1);
    snprintf(rank.uuid, sizeof rank.uuid, "a\"b\\c\nd");
    has(metrics_of(&s), "UUID=\"a\\\"b\\\\c\\nd\"");
    memset(rank.uuid, '"', sizeof rank.uuid - 1), rank.uuid[sizeof rank.uuid - 1] = 0;
    memset(rank.device, '\\', sizeof rank.device - 1), rank.device[sizeof rank.device - 1] = 0;
    metrics_of(&s);
}

// Reasons why a clock is held down: one series each, and none where it is not known.
static void limits(void **state) {
    (void)state;
    watch_rank rank;
    watch_state s = state_make(&rank, 1);
    rank.sensors.limited = LIMITED_HEAT | LIMITED_HARDWARE;
    has(metrics_of(&s), "reason=\"heat\"} 1\n");
    has(text, "reason=\"hardware\"} 1\n");
    has(text, "reason=\"power\"} 0\n");
    rank.sensors.limited = LIMITED_UNKNOWN;
    lacks(metrics_of(&s), "reason=");
}

// As large as it can be: all numbers of many digits, in every field.
static void widest(watch_rank *rank, watch_state *s, int locals) {
    *s = state_make(rank, 1);
    s->locals = s->world = locals, s->step = INT64_MAX;
    for (int i = 0; i < locals; i++) {
        rank[i] = state_rank(0);
        watch_rank *r = &rank[i];
        r->place.rank = r->place.local = 1000000 + i;
        memset(r->uuid, '"', sizeof r->uuid - 1);
        memset(r->device, '"', sizeof r->device - 1);
        r->cpu = r->what_s = r->sensors.watts = r->sensors.joules = r->sensors.celsius = r->sensors.mhz =
            r->utilisation = r->limit_watts = -1.23456789012345e-123;
        r->read_p50_ms = r->read_p99_ms = -1.23456789012345e-123;
        for (int p = 0; p < BOARD_PHASES; p++) r->in_phase_s[p] = -1.23456789012345e-123;
        r->step = r->resident = r->lanes = r->device_used = r->device_total = r->device_planned = r->read_bytes =
            r->read_retries = INT64_MAX;
    }
}

static void room_is_enough_or_none(void **state) {
    (void)state;
    static watch_rank rank[MANY];
    watch_state s;
    int locals[] = {1, 8, MANY};
    for (size_t i = 0; i < COUNT(locals); i++) {
        widest(rank, &s, locals[i]);
        size_t n = metrics_write(&s, text, sizeof text), room = metrics_room(locals[i]);
        if (n == 0 || n >= room) fail_msg("%zu bytes of %d ranks; metrics_room: %zu", n, locals[i], room);
        char *exact = malloc(n + 1);
        assert_int_equal(metrics_write(&s, exact, n + 1), n);
        assert_string_equal(exact, text);
        for (size_t less = 0; less <= n; less += 1 + n / 50) {
            exact[0] = 'x';
            assert_int_equal(metrics_write(&s, exact, less), 0);
            if (less) assert_string_equal(exact, "");
        }
        assert_int_equal(metrics_write(&s, exact, n), 0);
        free(exact);
    }
}

// A name for a file or a directory to be made.
static void fresh(char dst[IO_PATH]) {
    const char *base = getenv("TMPDIR");
    assert_ok(io_path(dst, "%s/lockstep-metrics-XXXXXX", base ? base : "/tmp"));
}

static int files_in(const char *dir) {
    int n = 0;
    DIR *d = opendir(dir);
    for (const struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

// The file is what /metrics is, in pieces; on failure the old one stays, and nothing else.
static void a_file(void **state) {
    (void)state;
    static watch_rank rank[MANY];
    char dir[IO_PATH], path[IO_PATH], *found;
    size_t n;
    watch_state s;
    fresh(dir);
    assert_non_null(mkdtemp(dir));
    assert_ok(io_path(path, "%s/lockstep.prom", dir));
    for (int locals = MANY; locals >= 1; locals /= 8) {
        widest(rank, &s, locals);
        assert_ok(metrics_file(&s, path));
        assert_ok(io_read_file(path, 1 << 22, &found, &n));
        assert_string_equal(found, metrics_of(&s));
        assert_int_equal(files_in(dir), 1);
        free(found);
    }
    assert_ok(io_path(path, "%s/none/lockstep.prom", dir));
    assert_error(metrics_file(&s, path), ERR_IO, path, "No such file");
    assert_ok(io_path(path, "%s/sub", dir));
    assert_ok(io_mkdirs(path));
    assert_error(metrics_file(&s, path), ERR_IO, path);
    assert_int_equal(files_in(dir), 2);
    assert_ok(io_remove_tree(dir));
}

// A disk that is full in the midst of it: the collector keeps what it had, whole.
static void a_file_without_room(void **state) {
    (void)state;
    static watch_rank rank[MANY];
    char dir[IO_PATH], path[IO_PATH], *found;
    size_t n;
    watch_state s = state_make(rank, 1);
    struct rlimit before, small;
    fresh(dir);
    assert_non_null(mkdtemp(dir));
    assert_ok(io_path(path, "%s/lockstep.prom", dir));
    assert_ok(metrics_file(&s, path));
    char *had = strdup(metrics_of(&s));
    widest(rank, &s, MANY);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){strlen(metrics_of(&s)) / 2, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    err_t rc = metrics_file(&s, path);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_error(rc, ERR_IO, path, "too large");
    assert_ok(io_read_file(path, 1 << 22, &found, &n));
    assert_string_equal(found, had);
    assert_int_equal(files_in(dir), 1);
    free(found), free(had);
    assert_ok(io_remove_tree(dir));
}

static void no_heap(void **state) {
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip();  // it has its own malloc
#else
    watch_rank rank[2];
    watch_state s = state_make(rank, 2);
    char why[HEALTH_TEXT], path[IO_PATH];
    fresh(path);
    close(mkstemp(path));
    long before = atomic_load(&heap_calls);
    metrics_write(&s, text, sizeof text);
    health(&s, why, sizeof why);
    err_t rc = metrics_file(&s, path);
    assert_int_equal(atomic_load(&heap_calls) - before, 0);
    assert_ok(rc);
    unlink(path);
#endif
}

// --- the dashboard ---------------------------------------------------------------------------------------------------

// Whether a family's name, or that of one of its series, begins a line.
static bool exported(const char *in, const char *name, size_t n) {
    for (const char *at = in; (at = memmem(at, strlen(at), name, n)); at++)
        if ((at == in || at[-1] == '\n') && (at[n] == ' ' || at[n] == '{')) return true;
    return false;
}

// Each name in an expression is one of ours, and has a place in the texts of both runs.
static void check_expression(const char *expr, const char *texts) {
    int names = 0;
    for (const char *at = expr; (at = strstr(at, "lockstep_"));) {
        size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_");
        if (!exported(texts, at, n)) fail_msg("%.*s in \"%s\" is not exported", (int)n, at, expr);
        at += n, names++;
    }
    if (names == 0) fail_msg("no metric in \"%s\"", expr);
    if (strstr(expr, "lockstep_") && !strstr(expr, "instance=~\"$instance\""))
        fail_msg("\"%s\" is not of one node", expr);
}

static int check_expressions(json_t *j, const char *texts) {
    int n = 0;
    const char *key;
    json_t *value;
    size_t i;
    if (json_is_array(j)) json_array_foreach(j, i, value) n += check_expressions(value, texts);
    if (json_is_object(j)) json_object_foreach(j, key, value) {
            if (strcmp(key, "expr") == 0) check_expression(json_string_value(value), texts), n++;
            else n += check_expressions(value, texts);
        }
    return n;
}

static void dashboard(void **state) {
    (void)state;
    static char both[2 * 65536];
    watch_rank rank[2];
    json_error_t why;
    watch_state s = state_make(rank, 2);
    size_t n = metrics_write(&s, both, sizeof both);
    snprintf(s.news.unit, sizeof s.news.unit, "sample");
    assert_true(n > 0 && metrics_write(&s, both + n, sizeof both - n) > 0);
    json_t *j = json_load_file("trainer/watch/grafana.json", JSON_REJECT_DUPLICATES, &why);
    if (!j) fail_msg("grafana.json:%d: %s", why.line, why.text);
    int expressions = check_expressions(j, both);
    if (expressions < 40) fail_msg("only %d expressions were found", expressions);
    json_t *panels = json_object_get(j, "panels"), *panel;
    size_t i;
    json_int_t last = 0;
    json_array_foreach(panels, i, panel) {
        json_int_t id = json_integer_value(json_object_get(panel, "id"));
        assert_true(id > last && json_string_length(json_object_get(panel, "title")) > 0);
        last = id;
    }
    json_decref(j);
}

// --- health ----------------------------------------------------------------------------------------------------------

static watch_rank two[2];

static void judged(const watch_state *s, bool well, const char *words) {
    char why[HEALTH_TEXT] = "";
    if (health(s, why, sizeof why) != well || !strstr(why, words))
        fail_msg("expected %s with \"%s\": %s", well ? "200" : "503", words, why);
    if (well != (strncmp(why, "ok: ", 4) == 0) || strchr(why, '\n')) fail_msg("what of %s?", why);
}

static void steps_advance(void **state) {
    (void)state;
    watch_state s = state_make(two, 2);
    judged(&s, true, "step 120 of 600, the last 0.4 s ago");
    s.time = s.news.step_time - 3;
    judged(&s, true, "the last 0.0 s ago");
    s.time = s.news.step_time + 29;
    judged(&s, true, "29.0 s ago");
    s.time += 2;
    two[1].what_s = 30, two[1].what = "wait for data", two[1].number = -1;
    judged(&s, false, "no step for 31 s, expected one within 30 s (rank 1 (10.0.0.1): wait for data, for 30 s)");
    s.news.p99_ns = 20000000000;  // steps of 20 s: 100 s are allowed
    judged(&s, true, "31.0 s ago");
    s.time = s.news.step_time + 101, two[0].phase_s = two[1].phase_s = 200;
    judged(&s, false, "within 100 s");
    two[1].phase = PHASE_ENDED, two[1].phase_s = two[1].what_s = 1;  // whoever has just ended makes no step
    judged(&s, false, "within 100 s (rank 0 (10.0.0.1)");
    two[1].phase = PHASE_STEPPING, two[1].phase_s = 200;
    two[0].phase_s = 5;  // it has just evaluated
    judged(&s, true, "5.0 s ago");
}

static void none_is_expected(void **state) {
    (void)state;
    static const board_phase phases[] = {PHASE_EVALUATING, PHASE_SAMPLING, PHASE_SAVING};
    static const char *const names[] = {"evaluate", "sample", "save"};
    for (size_t i = 0; i < COUNT(phases); i++) {
        watch_state s = state_make(two, 2);
        s.time += 1000;
        two[1].phase = phases[i], two[1].what = NULL, two[1].phase_s = 1000;
        judged(&s, true, names[i]);
        judged(&s, true, "no step is expected now (rank 1 (10.0.0.1)");
    }
}

static void it_starts(void **state) {
    (void)state;
    watch_state s = state_make(two, 2);
    s.ready = false, s.has_news = false;
    two[0].phase = two[1].phase = PHASE_STARTING;
    two[1].what = "load", two[1].number = -1, two[1].what_s = 200;
    s.time = s.began + 800;
    judged(&s, true, "starting for 800 s (rank 1 (10.0.0.1): load, for 200 s)");
    two[1].number = 0;
    judged(&s, true, "(rank 1 (10.0.0.1): load 0, for 200 s)");
    s.time = s.began + 901;
    judged(&s, false, "starting for 901 s");
    s = state_make(two, 2);  // the first step may take long, too
    s.news.step = s.news.began_step, s.news.step_time = 0, s.news.p99_ns = 0;
    two[0].phase_s = two[1].phase_s = 800;
    judged(&s, true, "800.0 s ago");
    two[0].phase_s = two[1].phase_s = 901;
    judged(&s, false, "within 900 s");
}

// Of a node without rank 0 the operations must come to their ends.
static void without_rank_0(void **state) {
    (void)state;
    watch_state s = state_make(two, 2);
    s.has_news = false;
    two[0].phase_s = two[1].phase_s = 5000;
    s.time = s.began + HEALTH_START_S + 1;
    judged(&s, true, "step 120, an operation began 0.2 s ago");
    two[0].what_s = two[1].what_s = 301;
    judged(&s, false, "step 120, no step for 301 s");
    s.time -= 2;  // it may still be the first step
    judged(&s, true, "301.0 s ago");
}

static void it_is_ill(void **state) {
    (void)state;
    watch_state s = state_make(two, 2);
    state_alarm(&s, ALARM_THROTTLED, 0, "hot");
    state_alarm(&s, ALARM_DISK, -1, "full");
    judged(&s, true, "step 120");
    state_alarm(&s, ALARM_HANG, 1, "rank 1 hangs");
    judged(&s, false, "rank 1 hangs");
    s = state_make(two, 2);
    two[1].process = 'T', two[1].phase = PHASE_EVALUATING;
    judged(&s, false, "rank 1 (10.0.0.1) is stopped by a signal (process 4001)");
    two[1].process = 'Z';
    judged(&s, false, "rank 1 (10.0.0.1) has ended (process 4001)");
    two[1].process = 'D';
    judged(&s, true, "no step is expected");
    s = state_make(two, 2);
    s.ended = true;
    judged(&s, false, "has ended");
    s = state_make(two, 2);
    two[0].phase = two[1].phase = PHASE_ENDED;
    judged(&s, false, "no rank of this node runs");
    char little[8];
    health(&s, little, sizeof little);
    assert_string_equal(little, "no rank");
}

// Of all that rings these three say that no step will come, whichever rings beside it.
// What one of the ranks is at, or what has become of it.
static void be(watch_rank *r, int what) {
    static const char process[] = {'T', 'Z', 'X', 'D'};
    static const board_phase phase[] = {PHASE_STARTING, PHASE_EVALUATING, PHASE_SAMPLING, PHASE_SAVING, PHASE_ENDED};
    if (what < (int)COUNT(process)) r->process = process[what];
    else if (what - COUNT(process) < COUNT(phase))
        r->phase = phase[what - COUNT(process)], r->what = NULL, r->phase_s = 7;
    else r->phase_s = r->what_s = 7;  // it has just begun to step again
}

// Ranks that are otherwise alike: the same is reported, whichever of them it is about.
static void whichever_rank_it_is(void **state) {
    (void)state;
    enum { RANKS = 3, KINDS = 10, GONE = 2, AGAIN = 9 };
    watch_rank rank[RANKS];
    for (int what = 0; what < KINDS; what++)
        for (int news = 0; news < 2; news++) {
            char first[HEALTH_TEXT], why[HEALTH_TEXT];
            for (int k = 0; k < RANKS; k++) {
                watch_state s = state_make(rank, RANKS);
                s.has_news = news, s.time += 1000;
                for (int i = 0; i < RANKS; i++) rank[i] = rank[0], rank[i].phase_s = rank[i].what_s = 1000;
                be(&rank[k], what);
                bool well = health(&s, why, sizeof why);
                if (what <= GONE) judged(&s, false, what ? "has ended" : "is stopped by a signal");
                if (what == AGAIN) judged(&s, true, " 7.0 s ago");
                if (k == 0) strcpy(first, why);
                if (strcmp(why, first) != 0)
                    fail_msg("%d of rank %d, %d: %s; of the first: %s", what, k, well, why, first);
            }
        }
}

static void alarms_that_end_health(void **state) {
    (void)state;
    for (int k = 0; k < ALARM_KINDS; k++)
        for (int second = 0; second < 2; second++) {
            watch_state s = state_make(two, 2);
            if (second) state_alarm(&s, ALARM_THROTTLED, 0, "the first");
            state_alarm(&s, (alarm_kind)k, 1, "the one");
            bool ill = k == ALARM_HANG || k == ALARM_STOPPED || k == ALARM_DEAD;
            judged(&s, !ill, ill ? "the one" : "step 120");
        }
}

// --- pages -----------------------------------------------------------------------------------------------------------

static err_t report(void *ctx, const char **t, size_t *n) {
    *t = ctx, *n = strlen(ctx);
    return ERR_OK;
}

static err_t no_status(void *ctx, const char **t, size_t *n) {
    (void)ctx, (void)t, (void)n;
    return err_set(ERR_IO, "status.json: gone");
}

static http_page get(pages *p, const char *path) {
    http_page out = {.status = 0};
    for (int i = 0; i < PAGES; i++)
        if (strcmp(pages_routes[i].path, path) == 0) assert_ok(pages_routes[i].get(p, &out));
    assert_non_null(out.body);
    return out;
}

static void four_pages(void **state) {
    (void)state;
    char html[] = "<p>report";
    watch_state s = state_make(two, 2);
    pages p = {.state = &s, .report = report, .status = report, .ctx = html};
    assert_ok(pages_open(&p));
    for (int i = 0; i < PAGES; i++)  // a state is a second old at most; a report takes a while to make
        assert_true(pages_routes[i].fresh_s > 0 &&
                    pages_routes[i].fresh_s <= (strcmp(pages_routes[i].path, "/") == 0 ? 10 : 1));
    http_page page = get(&p, "/");
    assert_true(page.status == 200 && page.bytes == 9 && strcmp(page.type, "text/html; charset=utf-8") == 0);
    page = get(&p, "/status.json");
    assert_true(page.status == 200 && strcmp(page.type, "application/json") == 0);
    page = get(&p, "/metrics");
    assert_true(page.status == 200 && strcmp(page.type, "text/plain; version=0.0.4; charset=utf-8") == 0 &&
                page.bytes == strlen(metrics_of(&s)));
    page = get(&p, "/health");
    assert_int_equal(page.status, 200);
    has(page.body, "ok: step 120 of 600");
    s.ended = true;
    page = get(&p, "/health");
    assert_int_equal(page.status, 503);
    assert_string_equal(page.body, "the run has ended\n");
    p.report = p.status = NULL;
    assert_int_equal(get(&p, "/").status, 404);
    assert_int_equal(get(&p, "/status.json").status, 404);
    p.status = no_status;
    http_page out;
    assert_error(pages_routes[3].get(&p, &out), ERR_IO, "gone");
    s.locals = 0;  // of a state that has more ranks than when it was opened
    p.room = 100;
    assert_error(pages_routes[1].get(&p, &out), ERR_INTERNAL, "100 bytes");
    pages_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(unknown_is_left_out),
        cmocka_unit_test(a_cpu),
        cmocka_unit_test(counters),
        cmocka_unit_test(what_servers_know_of_a_step),
        cmocka_unit_test(alarms_are_counted),
        cmocka_unit_test(a_run_that_diverges),
        cmocka_unit_test(ranks_of_another_node),
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test(limits),
        cmocka_unit_test(room_is_enough_or_none),
        cmocka_unit_test(a_file),
        cmocka_unit_test(a_file_without_room),
        cmocka_unit_test(no_heap),
        cmocka_unit_test(dashboard),
        cmocka_unit_test(steps_advance),
        cmocka_unit_test(none_is_expected),
        cmocka_unit_test(it_starts),
        cmocka_unit_test(without_rank_0),
        cmocka_unit_test(it_is_ill),
        cmocka_unit_test(alarms_that_end_health),
        cmocka_unit_test(whichever_rank_it_is),
        cmocka_unit_test(four_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
