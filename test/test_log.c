// test/test_log.c: what a run says of itself is true: every figure of log.jsonl and of the lines for a person against
// an account that is kept here, with jansson as the reader.
//
// One idea: this program has a clock of its own. Each time the run reads it a second has passed, so that times are
// known without waiting.
#include "test/support/rate.h"
#include "test/support/train.h"

#include "base/utf8.h"
#include "trainer/log/monitor.h"
#include "trainer/log/progress.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

static const char small_model[] = SMALL_GPT(1, 2, 16, 24, 128)
    SMALL_BATCH(12, 3, 4) "[device]\nthreads = 1\n[log]\nevery = 1\n[sample]\ntokens = 0\n[eval]\nevery = 0\n";

enum { TOKENS = 12 * 24, MICROS = 4 };  // of a step

// --- the clock -------------------------------------------------------------------------------------------------------

static _Thread_local bool ticking;  // on the thread that trains; the loader has the machine's time
static double seconds;

int clock_gettime(clockid_t id, struct timespec *t) {
    if (!ticking || id != CLOCK_MONOTONIC) return (int)syscall(SYS_clock_gettime, id, t);
    seconds++;
    t->tv_sec = (time_t)seconds;
    t->tv_nsec = 0;
    return 0;
}

typedef struct rig {
    char *dir;
    config c;
} rig;

static void rig_open(rig *r, const char *more) {
    r->dir = data_dir();
    load_config(&r->c, r->dir, small_model, more);
}

static void run(rig *r) {
    ticking = true;
    err_t rc = train(&r->c, r->dir);
    ticking = false;
    OK(rc);
}

static void expect_near(const char *what, int64_t step, double found, double expected, double share) {
    if (!(fabs(found - expected) <= share * fabs(expected)))
        fail_msg("step %d: %s is %.9g, expected %.9g", (int)step, what, found, expected);
}

static void expect_between(const char *what, int64_t step, double found, double low, double high) {
    if (!(found >= low && found <= high))
        fail_msg("step %d: %s is %.9g, expected %g to %g", (int)step, what, found, low, high);
}

// --- figures ---------------------------------------------------------------------------------------------------------

// A step reads the clock before and after each micro-batch comes, twice more where that had to be waited for, and a few
// times beside.
static void expect_times(const json_t *record, int64_t step) {
    double ms = real_of(record, "ms"), data = real_of(record, "data_wait_ms");
    expect_between("ms", step, ms, 1e3 * (2 * MICROS + 1), 1e3 * (4 * MICROS + 10));
    expect_between("data_wait_ms", step, data, 1e3 * MICROS, 1e3 * 3 * MICROS);
    expect_near("tokens_per_s", step, real_of(record, "tokens_per_s"), TOKENS / (ms / 1e3), 1e-6);
    // there is no other rank to wait for
    expect_between("comm_wait_ms", step, real_of(record, "comm_wait_ms"), 0, 3e3);
}

// The line of this step says what its record says. spent: seconds of a step in this process; telling takes a few more.
static void expect_line(const rig *r, const json_t *record, int64_t step, double spent) {
    char path[1024], start[64], *out, *at;
    size_t n;
    int last = (int)r->c.run.steps, left = last - (int)step;
    snprintf(path, sizeof path, "%s/out", r->dir);
    OK(io_read_file(path, 1 << 20, &out, &n));
    snprintf(start, sizeof start, "\nstep %4d/%d %3d%%  loss ", (int)step, last, 100 * (int)step / last);
    at = strstr(out, start);
    if (!at) fail_msg("no line begins with \"%s\"", start + 1);
    double loss, norm, lr, speed, data;
    long minutes = 0, eta = 0;
    int read = sscanf(at + strlen(start), "%lf norm %lf lr %lf %lf tok/s data %lf%%", &loss, &norm, &lr, &speed, &data);
    if (read != 5) fail_msg("%d of 5 figures in \"%.120s\"", read, at + 1);
    expect_near("the line's loss", step, loss, real_of(record, "loss"), 1e-3);
    expect_near("the line's lr", step, lr, real_of(record, "lr"), 0.06);
    expect_near("the line's speed", step, speed, real_of(record, "tokens_per_s"), 0.1);
    double share = real_of(record, "data_wait_ms") / real_of(record, "ms");
    expect_near("the line's share of data", step, data, 100 * share, 0.01);
    at = strstr(at, "eta ");
    assert_non_null(at);
    if (sscanf(at, "eta %ldm%lds", &minutes, &eta) != 2) minutes = 0, assert_int_equal(sscanf(at, "eta %lds", &eta), 1);
    expect_between("eta", step, (double)(60 * minutes + eta), spent * left - 1, (spent + 8) * left + 1);
    free(out);
}

// Records from .. to of the log, of which those after `resumed` are this process's.
static void expect_steps(const rig *r, int type, int64_t to, int64_t resumed) {
    static const rate rates = {.lr = 4e-3, .warmup = 3, .end = 10, .final = 0.1};
    json_t *steps = read_records(&r->c, "log.jsonl", "step");
    double spent = 0;
    assert_int_equal(json_array_size(steps), to);
    for (int64_t step = 1; step <= to; step++) {
        const json_t *record = json_array_get(steps, (size_t)step - 1);
        assert_true(real_of(record, "step") == (double)step);
        assert_true(real_of(record, "tokens") == (double)(step * TOKENS));
        assert_true(real_of(record, "loss_scale") == 1);
        assert_true(json_is_false(json_object_get(record, "skipped")));
        expect_near("lr", step, real_of(record, "lr"), rate_at(&rates, type, (double)step), 1e-8);
        expect_times(record, step);
        if (step <= resumed) continue;
        spent += real_of(record, "ms") / 1e3;
        expect_line(r, record, step, spent / (double)(step - resumed));
    }
    json_decref(steps);
}

// To step 6, and in another process, as far as a run can tell, from there to step 24: what is left is not reckoned from
// steps that were done before.
static void every_figure_is_right_also_after_a_resume(void **state) {
    (void)state;
    for (int type = 0; type < 4; type++) {
        char more[256], longer[512];
        rig r;
        snprintf(more, sizeof more,
                 "[optimizer]\nlr = 4e-3\n"
                 "[schedule]\ntype = %s\nwarmup = 3\ndecay_steps = 10\nfinal_fraction = 0.1\n",
                 rate_types[type]);
        snprintf(longer, sizeof longer, "%s[run]\nsteps = 6\n", more);
        rig_open(&r, longer);
        run(&r);
        expect_steps(&r, type, 6, 0);
        snprintf(longer, sizeof longer, "%s[run]\nsteps = 24\n", more);
        load_config(&r.c, r.dir, small_model, longer);
        run(&r);
        expect_steps(&r, type, 24, 6);
        drop_dir(r.dir);
    }
}

static void an_evaluation_says_how_much_and_how_long(void **state) {
    (void)state;
    rig r;
    rig_open(&r, "[run]\nsteps = 5\n[schedule]\nwarmup = 3\n[eval]\nevery = 2\nbatches = 7\n");
    run(&r);
    json_t *evals = read_records(&r.c, "log.jsonl", "eval");
    assert_int_equal(json_array_size(evals), 3);  // the last step's too
    for (size_t i = 0; i < 3; i++) {
        const json_t *record = json_array_get(evals, i);
        assert_true(real_of(record, "step") == (i < 2 ? 2.0 * (double)(i + 1) : 5));
        assert_true(real_of(record, "windows") == 7 * 3);
        expect_between("ms", (int64_t)i, real_of(record, "ms"), 1000, 100000);
    }
    json_decref(evals);
    drop_dir(r.dir);
}

// Every key has its own value, those of several ranks too.
static void every_figure_is_under_its_own_key(void **state) {
    (void)state;
    static const struct {
        const char *key;
        double value;
    } all[] = {{"step", 1},
               {"tokens", 2},
               {"loss", 3.25},
               {"grad_norm", 4.5},
               {"lr", 5e-7},
               {"ms", 6.125},
               {"tokens_per_s", 7e9},
               {"data_wait_ms", 8.5},
               {"comm_wait_ms", 9.5},
               {"loss_scale", 10},
               {"comm_ms", 11},
               {"comm_hidden", 0.12},
               {"slowest_rank", 13},
               {"slowest_compute_ms", 14},
               {"median_compute_ms", 15},
               {"mfu", 0.4375},
               {"time", 1700000000.5},
               {"resident", 1e10},
               {"device_bytes", 3e10}};
    const step_record said = {.step = 1,
                              .units = 2,
                              .logged = true,
                              .loss = 3.25,
                              .grad_norm = 4.5,
                              .lr = 5e-7,
                              .ms = 6.125,
                              .units_per_s = 7e9,
                              .data_wait_ms = 8.5,
                              .comm_wait_ms = 9.5,
                              .loss_scale = 10,
                              .comm_ms = 11,
                              .hidden = 0.12,
                              .slowest = 13,
                              .slowest_ms = 14,
                              .median_ms = 15,
                              .world = 16,
                              .mfu = 0.4375,
                              .time = 1700000000.5,
                              .resident = 10000000000,
                              .device_bytes = 30000000000,
                              .skipped = true,
                              .hash = "0123456789abcdef"};
    monitor m;
    rig r;
    rig_open(&r, "");
    snprintf(r.c.run.name, sizeof r.c.run.name, "record");
    char dir[1500];
    snprintf(dir, sizeof dir, "%s/record", r.c.run.dir);
    OK(io_mkdirs(dir));
    OK(monitor_open(&m, &(log_setup){.dir = dir, .c = &r.c, .unit = "token", .short_unit = "tok", .quiet = true}));
    monitor_log(&m, &(record){RECORD_STEP, .step = said});
    monitor_close(&m);
    json_t *steps = read_records(&r.c, "log.jsonl", "step");
    assert_int_equal(json_array_size(steps), 1);
    const json_t *record = json_array_get(steps, 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect_near(all[i].key, 1, real_of(record, all[i].key), all[i].value, 1e-8);
    assert_true(json_is_true(json_object_get(record, "skipped")));
    assert_string_equal(text_of(record, "hash"), "0123456789abcdef");
    json_decref(steps);
    drop_dir(r.dir);
}

// A mean for each rank, in its place; of many ranks 128 a line.
static void ranks_have_a_mean_each(void **state) {
    (void)state;
    static const int worlds[] = {1, 128, 130};
    static const char *const keys[] = {"compute_ms", "data_ms", "wait_ms", "before_ms", "after_ms", "tensor_ms"};
    double *sum = calloc(130 * REPORT_ITEMS, sizeof *sum);
    int64_t lanes[130];
    assert_non_null(sum);
    for (int i = 0; i < 130; i++) lanes[i] = i % 5;
    for (int i = 0; i < 130 * REPORT_ITEMS; i++)
        sum[i] = 4 * (i / REPORT_ITEMS + (i % REPORT_ITEMS - REPORT_COMPUTE_MS) / 8.0);
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        monitor m;
        rig r;
        rig_open(&r, "");
        char dir[1500];
        snprintf(r.c.run.name, sizeof r.c.run.name, "ranks");
        snprintf(dir, sizeof dir, "%s/ranks", r.c.run.dir);
        OK(io_mkdirs(dir));
        OK(monitor_open(&m, &(log_setup){.dir = dir, .c = &r.c, .quiet = true}));
        monitor_log(&m, &(record){RECORD_RANKS, .ranks = {100, 4, worlds[w], sum, w ? lanes : NULL}});
        monitor_close(&m);
        json_t *lines = read_records(&r.c, "log.jsonl", "ranks");
        assert_int_equal(json_array_size(lines), worlds[w] > 128 ? 2 : 1);
        for (int k = 0; k < worlds[w]; k++) {
            const json_t *line = json_array_get(lines, (size_t)k / 128);
            assert_true(real_of(line, "step") == 100 && real_of(line, "steps") == 4);
            if (k >= 128) assert_true(real_of(line, "first") == 128);
            const json_t *dealt = json_object_get(line, "lanes");
            assert_true(w ? json_integer_value(json_array_get(dealt, (size_t)k % 128)) == k % 5 : dealt == NULL);
            for (int i = 0; i < 6; i++) {
                const json_t *all = json_object_get(line, keys[i]);
                assert_int_equal(json_array_size(all), k < 128 ? (worlds[w] < 128 ? worlds[w] : 128) : worlds[w] - 128);
                assert_true(fabs(json_number_value(json_array_get(all, (size_t)k % 128)) - (k + i / 8.0)) < 1e-2);
            }
        }
        json_decref(lines);
        drop_dir(r.dir);
    }
    free(sum);
}

// Each device by its rank, in its place; of many 128 a line, each with the sums over all. What is not known is null.
static void devices_have_a_place_each(void **state) {
    (void)state;
    static const int counts[] = {1, 128, 129, 300};
    static power_device device[300];
    for (int i = 0; i < 300; i++)
        device[i] = (power_device){.rank = 2 * i,
                                   .watts = 100 + i,
                                   .celsius = i % 2 ? NAN : 30 + i,
                                   .mhz = 1000 + i,
                                   .limited = i % 3 ? 0 : LIMITED_UNKNOWN};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        monitor m;
        rig r;
        char dir[1500];
        rig_open(&r, "");
        snprintf(r.c.run.name, sizeof r.c.run.name, "power");
        snprintf(dir, sizeof dir, "%s/power", r.c.run.dir);
        OK(io_mkdirs(dir));
        OK(monitor_open(&m, &(log_setup){.dir = dir, .c = &r.c, .quiet = true}));
        monitor_log(
            &m, &(record){
                    RECORD_POWER,
                    .power = {.step = 50, .watts = 777, .joules_per_unit = 2, .device = device, .devices = counts[c]}});
        monitor_close(&m);
        json_t *lines = read_records(&r.c, "log.jsonl", "power");
        assert_int_equal(json_array_size(lines), (counts[c] + 127) / 128);
        for (int k = 0; k < counts[c]; k++) {
            const json_t *line = json_array_get(lines, (size_t)k / 128), *all = json_object_get(line, "devices"),
                         *d = json_array_get(all, (size_t)k % 128);
            assert_int_equal(json_array_size(all), counts[c] - k / 128 * 128 < 128 ? counts[c] - k / 128 * 128 : 128);
            assert_true(real_of(line, "step") == 50 && real_of(line, "watts") == 777);
            assert_true(real_of(d, "rank") == 2 * k && real_of(d, "watts") == 100 + k && real_of(d, "mhz") == 1000 + k);
            assert_true(k % 2 ? json_is_null(json_object_get(d, "celsius")) : real_of(d, "celsius") == 30 + k);
            assert_int_equal(json_is_null(json_object_get(d, "limited")), k % 3 == 0);
        }
        json_decref(lines);
        drop_dir(r.dir);
    }
}

// --- text ------------------------------------------------------------------------------------------------------------

static void log_sample(monitor *m, int64_t step, const char *prompt, const char *text) {
    monitor_log(m, &(record){RECORD_SAMPLE, .sample = {.step = step, .prompt = prompt, .text = text}});
}

#define BAD "\xEF\xBF\xBD"

// Whatever a prompt, a model or a path has in it: a reader of JSON gets the same back, with U+FFFD for what is no
// UTF-8.
static void any_text_can_be_read_again(void **state) {
    (void)state;
    static const struct {
        const char *said, *read;
    } list[] = {{"say \"no\" \\ and \\\"yes\\\"", NULL},
                {"\n\r\t\b\f\x01\x1f\x7f/", NULL},
                {"", NULL},
                {"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", NULL},
                {"{\"t\":\"step\"}\n{", NULL},
                {"a\x80z", "a" BAD "z"},
                {"\xC3", BAD},
                {"\xC0\x80", BAD BAD},
                {"\xED\xA0\x80", BAD BAD BAD},
                {"\xF4\x90\x80\x80", BAD BAD BAD BAD},
                {"\xE2\x82\"", BAD BAD "\""},
                {"\xFF\\", BAD "\\"}};
    enum { TEXTS = sizeof list / sizeof *list };
    monitor m;
    rig r;
    rig_open(&r, "");
    char dir[1500];
    snprintf(dir, sizeof dir, "%s/%s", r.c.run.dir, r.c.run.name);
    OK(io_mkdirs(dir));
    OK(monitor_open(&m, &(log_setup){.dir = dir, .c = &r.c, .quiet = true}));
    for (int i = 0; i < TEXTS; i++) {
        log_sample(&m, i, list[i].said, list[TEXTS - 1 - i].said);
        monitor_event(&m, "try", i, list[i].said);
    }
    monitor_close(&m);
    json_t *samples = read_records(&r.c, "log.jsonl", "sample"), *events = read_records(&r.c, "events.jsonl", "event");
    assert_int_equal(json_array_size(samples), TEXTS);
    assert_int_equal(json_array_size(events), TEXTS);
    for (int i = 0; i < TEXTS; i++) {
        const int k = TEXTS - 1 - i;
        const char *one = list[i].read ? list[i].read : list[i].said;
        const char *other = list[k].read ? list[k].read : list[k].said;
        const json_t *sample = json_array_get(samples, (size_t)i), *event = json_array_get(events, (size_t)i);
        assert_string_equal(text_of(sample, "prompt"), one);
        assert_string_equal(text_of(sample, "text"), other);
        assert_string_equal(text_of(event, "text"), one);
        assert_string_equal(text_of(event, "kind"), "try");
    }
    json_decref(samples);
    json_decref(events);
    drop_dir(r.dir);
}

// What is longer than a record is cut, never in the middle of an escape or of a character.
// What turns around or hides what is beside it does not reach a terminal; letters of any script, and what joins them,
// do.
static void a_terminal_obeys_nothing(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"a\nb\tc", "a\nb\tc"},
        {"\x1b[31m\x07\x7f", "?[31m??"},
        {"\xc2\x9b", "?"},  // a control of one byte in Latin-1
        {"done \xe2\x80\xae"
         "0 ssol",
         "done ?0 ssol"},                                                           // U+202E
        {"\xd8\x9c\xe2\x80\x8b\xe2\x80\x8e\xe2\x80\x8f\xe2\x80\xaa", "?????"},      // U+061C 200B 200E 200F 202A
        {"\xe2\x80\xa8\xe2\x80\xa9\xe2\x81\xa6\xe2\x81\xa9\xef\xbb\xbf", "?????"},  // U+2028 2029 2066 2069 FEFF
        {"\xf3\xa0\x81\x81", "?"},                                                  // U+E0041, a tag
        {"\xd9\x85\xdb\x8c\xe2\x80\x8c\xe2\x80\x8d \xe2\x80\xa7\xe2\x80\xaf \xf0\x9f\x98\x80",
         "\xd9\x85\xdb\x8c\xe2\x80\x8c\xe2\x80\x8d \xe2\x80\xa7\xe2\x80\xaf \xf0\x9f\x98\x80"},
        {"\xff\xc0\xaf\xed\xa0\x80", "??????"},  // no UTF-8
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char text[64];
        utf8_printable(text, sizeof text, pairs[i][0]);
        assert_string_equal(text, pairs[i][1]);
    }
}

static void a_text_that_is_too_long_is_cut(void **state) {
    (void)state;
    static const char *const units[] = {"x", "\"", "\\", "\x01", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
    enum { LENGTH = 24000 };
    monitor m;
    rig r;
    rig_open(&r, "");
    char dir[1500], *said = calloc(1, LENGTH + 8);
    assert_non_null(said);
    snprintf(dir, sizeof dir, "%s/%s", r.c.run.dir, r.c.run.name);
    OK(io_mkdirs(dir));
    OK(monitor_open(&m, &(log_setup){.dir = dir, .c = &r.c, .quiet = true}));
    for (int i = 0; i < 6; i++) {
        size_t n = strlen(units[i]);
        for (size_t at = 0; at < LENGTH; at += n) memcpy(said + at, units[i], n + 1);
        log_sample(&m, i, said, said);
        log_sample(&m, i, "", said);
    }
    monitor_close(&m);
    json_t *samples = read_records(&r.c, "log.jsonl", "sample");
    assert_int_equal(json_array_size(samples), 12);
    for (size_t i = 0; i < 12; i++) {
        const char *text = text_of(json_array_get(samples, i), i % 2 ? "text" : "prompt");
        size_t n = strlen(units[i / 2]);
        assert_true(strlen(text) > 2000 && strlen(text) % n == 0);
        for (size_t at = 0; at < strlen(text); at += n) assert_memory_equal(text + at, units[i / 2], n);
    }
    free(said);
    json_decref(samples);
    drop_dir(r.dir);
}

// A run whose directory and prompt have all of it in their names: its files can be read.
static void a_run_of_any_name_can_be_read(void **state) {
    (void)state;
    rig r;
    char more[2048], prompt[] = "say \"no\"\t\\n\n";
    rig_open(&r, "");
    snprintf(more, sizeof more,
             "[run]\nsteps = 2\nfaults = write@1\ndir = '%s/q\"u\\o'\n[schedule]\nwarmup = 1\n"
             "[checkpoint]\nevery = 1\n[sample]\nevery = 1\ntokens = 30\ntemperature = 2\n"
             "prompt = \"say \\\"no\\\"\\t\\\\n\\n\"\n",
             r.dir);
    load_config(&r.c, r.dir, small_model, more);
    assert_string_equal(r.c.sample.prompt, prompt);
    run(&r);
    json_t *samples = read_records(&r.c, "log.jsonl", "sample"), *events = read_records(&r.c, "events.jsonl", "event");
    assert_int_equal(json_array_size(samples), 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(text_of(json_array_get(samples, i), "prompt"), prompt);
        assert_true(strlen(text_of(json_array_get(samples, i), "text")) >= 30);
    }
    assert_int_equal(json_array_size(events), 1);
    assert_string_equal(text_of(json_array_get(events, 0), "kind"), "checkpoint_failed");
    assert_non_null(strstr(text_of(json_array_get(events, 0), "text"), "q\"u\\o"));
    json_decref(samples);
    json_decref(events);
    drop_dir(r.dir);
}

// --- sinks -----------------------------------------------------------------------------------------------------------

// Writes down all that it gets.
typedef struct notebook {
    int count;
    char page[32][96];  // "KIND STEP TEXT"
} notebook;

static err_t note(void *self, const record *r) {
    notebook *n = self;
    assert_in_range(n->count, 0, 31);
    char *page = n->page[n->count++];
    switch (r->kind) {
    case RECORD_START: sprintf(page, "start %d", (int)r->start.step); break;
    case RECORD_STEP: sprintf(page, "step %d", (int)r->step.step); break;
    case RECORD_EVAL: sprintf(page, "eval %d", (int)r->eval.step); break;
    case RECORD_CHECKPOINT: sprintf(page, "checkpoint %d", (int)r->checkpoint.step); break;
    case RECORD_SAVED: sprintf(page, "saved %d", (int)r->saved.step); break;
    case RECORD_RANKS: sprintf(page, "ranks %d", (int)r->ranks.step); break;
    case RECORD_SAMPLE: sprintf(page, "sample %d", (int)r->sample.step); break;
    case RECORD_POWER: sprintf(page, "power %d", (int)r->power.step); break;
    case RECORD_EVENT: snprintf(page, 96, "event %d %s: %s", (int)r->event.step, r->event.kind, r->event.text); break;
    case RECORD_LINE: snprintf(page, 96, "line %s", r->line); break;
    default: fail();
    }
    return ERR_OK;
}

static const sink notes = {.name = "notes",
                           .bytes = sizeof(notebook),
                           .every_step = true,
                           .take = {note, note, note, note, note, note, note, note, note, note}};
_Static_assert(sizeof((sink *)0)->take / sizeof *((sink *)0)->take == 10, "notes takes every kind");

// Its disk is full, but for the fourth record that it wants.
static err_t lose(void *self, const record *r) {
    (void)r;
    return ++*(int *)self == 4 ? ERR_OK : err_set(ERR_IO, "the disk is full");
}

static const sink full = {.name = "full",
                          .bytes = sizeof(int),
                          .take = {[RECORD_STEP] = lose,
                                   [RECORD_EVAL] = lose,
                                   [RECORD_CHECKPOINT] = lose,
                                   [RECORD_SAMPLE] = lose,
                                   [RECORD_POWER] = lose}};

static err_t mishear(void *self, const record *r) {
    (void)self, (void)r;
    return err_set(ERR_IO, "what?");
}

static const sink deaf = {.name = "deaf", .take = {[RECORD_EVENT] = mishear}};

static void log_one_of_each(monitor *m) {
    monitor_log(m, &(record){RECORD_START, .start.step = 0});
    monitor_log(m, &(record){RECORD_STEP, .step = {.step = 1, .logged = true, .world = 1}});
    monitor_log(m, &(record){RECORD_STEP, .step = {.step = 2, .world = 1}});
    monitor_log(m, &(record){RECORD_EVAL, .eval = {.step = 2, .of = "windows"}});
    monitor_log(m, &(record){RECORD_CHECKPOINT, .checkpoint = {.step = 2, .hash = "0123456789abcdef"}});
    monitor_log(m, &(record){RECORD_SAMPLE, .sample = {.step = 2, .prompt = "", .text = "said"}});
    monitor_log(m, &(record){RECORD_POWER, .power = {.step = 2, .devices = 1, .device = &(power_device){0}}});
    monitor_log(
        m, &(record){RECORD_RANKS, .ranks = {.step = 2, .steps = 1, .world = 1, .sum = (double[REPORT_ITEMS]){0}}});
    monitor_log(m, &(record){RECORD_SAVED, .saved = {.step = 2, .hash = "0123456789abcdef"}});
    assert_int_equal(err_set(ERR_DATA, "torn"), ERR_DATA);
    monitor_event(m, "damaged", 3, err_last()->text);  // which the others' failures replace meanwhile
    assert_string_equal(err_last()->text, "torn");
    monitor_say(m, "done %d", 3);
}

// Sinks before it fail: one gets each record all the same, whole, once and in order, and so do the files.
static void a_sink_gets_each_record_whatever_others_do(void **state) {
    (void)state;
    static const sink *const list[] = {&full, &deaf, &sink_events, &notes, &sink_jsonl, NULL};
    static const char *const pages[] = {"start 0",
                                        "line deaf: what?",
                                        "event 0 log_failed: record not written: the disk is full",
                                        "step 1",
                                        "step 2",
                                        "eval 2",
                                        "checkpoint 2",
                                        "sample 2",
                                        "line deaf: what?",
                                        "event 0 log_failed: record not written: the disk is full",
                                        "power 2",
                                        "ranks 2",
                                        "saved 2",
                                        "line deaf: what?",
                                        "event 3 damaged: torn",
                                        "line done 3"};
    static const char *const logged[] = {"step", "eval", "checkpoint", "sample", "power", "ranks"};
    enum { PAGES = sizeof pages / sizeof *pages };
    monitor m;
    rig r;
    rig_open(&r, "[run]\nname = sinks\n");
    char dir[1500];
    snprintf(dir, sizeof dir, "%s/sinks", r.c.run.dir);
    OK(io_mkdirs(dir));
    OK(monitor_open_list(&m, &(log_setup){.dir = dir, .c = &r.c, .quiet = true}, list));
    log_one_of_each(&m);
    const notebook *n = m.sinks[3].self;
    for (int i = 0; i < n->count && i < PAGES; i++) assert_string_equal(n->page[i], pages[i]);
    assert_int_equal(n->count, PAGES);
    assert_int_equal(*(int *)m.sinks[0].self, 5);  // not the step that [log] every leaves out
    monitor_close(&m);
    for (size_t i = 0; i < sizeof logged / sizeof *logged; i++) {
        json_t *one = read_records(&r.c, "log.jsonl", logged[i]);
        assert_int_equal(json_array_size(one), 1);
        json_decref(one);
    }
    json_t *events = read_records(&r.c, "events.jsonl", "event");
    assert_int_equal(json_array_size(events), 3);
    assert_string_equal(text_of(json_array_get(events, 2), "text"), "torn");
    json_decref(events);
    drop_dir(r.dir);
}

static int closed;

static err_t shut(void *self, const log_setup *run) {
    (void)self, (void)run;
    return err_set(ERR_IO, "shut");
}

static void count_close(void *self) {
    (void)self;
    closed++;
}

static bool never(const config *c) { return c == NULL; }

// The machine lost the end of the log, which its checkpoint remembers: that is an event, and what is left of the log
// stays.
static void a_log_that_is_too_short(void **state) {
    (void)state;
    static const sink *const list[] = {&notes, &sink_jsonl, NULL};
    char *dir = make_dir();
    config c = {.log.jsonl = true};
    monitor m;
    for (int64_t bytes = 0; bytes <= 9; bytes += 9) {
        assert_int_equal(monitor_open_list(&m, &(log_setup){.dir = dir, .c = &c, .log_bytes = bytes}, list), ERR_OK);
        const notebook *n = m.sinks[0].self;
        assert_int_equal(n->count, bytes != 0);
        if (bytes)
            assert_non_null(
                strstr(n->page[0], "event 0 log_short: log.jsonl is shorter than its checkpoint remembers"));
        assert_int_equal(monitor_log_bytes(&m), 0);
        monitor_close(&m);
    }
    drop_dir(dir);
}

// Those before it can say why; it is closed, and gets nothing. What no setting wants is not opened at all.
static void a_sink_that_can_not_open(void **state) {
    (void)state;
    static const sink locked = {
        .name = "locked", .open = shut, .close = count_close, .take = {[RECORD_EVENT] = mishear}};
    static const sink idle = {.name = "idle", .wanted = never, .open = shut};
    static const sink *const list[] = {&idle, &notes, &locked, &sink_jsonl, NULL};
    char *dir = make_dir();
    config c = {.log.jsonl = true};
    monitor m;
    assert_int_equal(monitor_open_list(&m, &(log_setup){.dir = dir, .c = &c}, list), ERR_IO);
    monitor_event(&m, "failed", 0, err_last()->text);
    const notebook *n = m.sinks[0].self;
    assert_int_equal(n->count, 1);
    assert_string_equal(n->page[0], "event 0 failed: shut");
    assert_int_equal(closed, 1);
    monitor_close(&m);
    monitor_event(&m, "failed", 0, "after the end");  // is lost
    assert_int_equal(closed, 1);
    drop_dir(dir);
}

// --- a run that diverges ---------------------------------------------------------------------------------------------

// FP16 can't hold what weights of a thousand make of it: from the second step on no gradient is finite. Its records say
// so whatever [log] every is, and one event does, after as many skipped steps in a row as are no loss scale looking for
// its place.
static void expect_diverged(const char *scale, int patience) {
    char more[256];
    rig r;
    snprintf(more, sizeof more,
             "[run]\nsteps = 60\nbad_steps = 0\n[precision]\ncompute = fp16\nloss_scale = %s\n"
             "[optimizer]\nlr = 1000\n[schedule]\nwarmup = 0\ntype = constant\n[log]\nevery = 40\n",
             scale);
    rig_open(&r, more);
    board b = {0};
    OK(train_on(&r.c, r.dir, &b));
    json_t *steps = read_records(&r.c, "log.jsonl", "step"), *events = read_records(&r.c, "events.jsonl", "event");
    int64_t first = 0, skipped = 0;
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *record = json_array_get(steps, i);
        if (!json_is_true(json_object_get(record, "skipped"))) continue;
        if (!first) first = (int64_t)real_of(record, "step");
        assert_int_equal(real_of(record, "step"), first + skipped++);
        assert_true(real_of(record, "tokens") == (double)TOKENS * real_of(record, "step"));
        assert_true(json_is_null(json_object_get(record, "grad_norm")));
    }
    assert_true(first >= 1 && first <= 5);
    assert_int_equal(skipped, 60 - first + 1);
    size_t said = strcmp(scale, "dynamic") != 0;  // a scale that is looking for its place skips without a word
    assert_int_equal(json_array_size(events), said + 1);
    if (said) assert_string_equal(text_of(json_array_get(events, 0), "kind"), "skipped");
    if (said) assert_int_equal(real_of(json_array_get(events, 0), "step"), first);
    assert_string_equal(text_of(json_array_get(events, said), "kind"), "diverged");
    assert_int_equal(real_of(json_array_get(events, said), "step"), first + patience - 1);
    snprintf(more, sizeof more,
             "no finite loss or gradient in steps %d to %d; there is no checkpoint from before. Next: ", (int)first,
             (int)first + patience - 1);
    assert_int_equal(strncmp(text_of(json_array_get(events, said), "text"), more, strlen(more)), 0);
    assert_true(b.bad_limit == patience && b.bad_steps == skipped && !b.gave_up && b.step == 60);
    json_decref(steps);
    json_decref(events);
    drop_dir(r.dir);
}

// Nothing is saved in place of a good checkpoint: what is saved in the bad steps takes the place of what was saved in
// them before. The stop saves nothing.
static void a_run_that_diverges_stops(void **state) {
    (void)state;
    char out[1200], *text;
    size_t n;
    rig r;
    rig_open(
        &r,
        "[run]\nsteps = 60\nbad_steps = 20\n[precision]\ncompute = fp16\nloss_scale = 1\n[checkpoint]\nevery = 1\nkeep = 2\n"
        "[optimizer]\nlr = 1000\n[schedule]\nwarmup = 0\ntype = constant\n[log]\nevery = 1\n");
    for (int start = 0; start < 3; start++) {  // it goes on where it was, and finds the same
        board b = {0};
        assert_int_equal(train_on(&r.c, r.dir, &b), ERR_INTERRUPTED);
        assert_true(b.gave_up && b.bad_limit == 5 && b.bad_steps == 20);
        snprintf(out, sizeof out, "%s", err_last()->text);
        json_t *steps = read_records(&r.c, "log.jsonl", "step"), *events = read_records(&r.c, "events.jsonl", "event");
        int64_t first = 0, last = 0;
        for (size_t i = 0; i < json_array_size(steps); i++) {
            const json_t *record = json_array_get(steps, i);
            last = (int64_t)real_of(record, "step");
            if (!first && json_is_true(json_object_get(record, "skipped"))) first = last;
        }
        assert_int_equal(last, first + 19);
        char want[160];
        snprintf(
            want, sizeof want,
            "stopped by [run] bad_steps = 20: no finite loss or gradient in steps %d to %d; the newest checkpoint from before is step %d (loss ",
            (int)first, (int)last, (int)first - 1);
        if (strncmp(out, want, strlen(want)) != 0 || !strstr(out, ". Next: lockstep ")) fail_msg("%s", out);
        assert_string_equal(text_of(json_array_get(events, json_array_size(events) - 1), "kind"), "gave_up");
        json_decref(steps), json_decref(events);
        for (int64_t step = 1; step <= last; step++) {
            char path[1200];
            struct stat st;
            snprintf(path, sizeof path, "%s/%s/ckpt/step-%08d", r.c.run.dir, r.c.run.name, (int)step);
            bool there = stat(path, &st) == 0, kept = step == first - 1 || step == first - 2 || step == last - 1;
            if (there != kept)
                fail_msg("step %d of %d, bad from %d: %s", (int)step, (int)last, (int)first,
                         there ? "is there" : "is gone");
        }
    }
    snprintf(out, sizeof out, "%s/out", r.dir);
    OK(io_read_file(out, 1 << 20, &text, &n));
    assert_true(strstr(text, "loss nan") || strstr(text, "norm nan"));
    assert_null(strstr(text, "-nan"));
    free(text);
    drop_dir(r.dir);
}

static void a_run_that_diverges_says_so_once(void **state) {
    (void)state;
    expect_diverged("1", 5);
    expect_diverged("dynamic", 30);
}

// A scale that grows with every good step is too high for about every second one: many steps are skipped, but few in a
// row.
static void skipped_steps_between_good_ones_are_no_divergence(void **state) {
    (void)state;
    rig r;
    rig_open(&r, "[run]\nsteps = 60\nbad_steps = 5\n[precision]\ncompute = fp16\nscale_window = 1\n[log]\nevery = 1\n");
    run(&r);
    json_t *steps = read_records(&r.c, "log.jsonl", "step"), *events = read_records(&r.c, "events.jsonl", "event");
    int skipped = 0;
    assert_int_equal(json_array_size(steps), 60);
    for (size_t i = 0; i < json_array_size(steps); i++)
        skipped += json_is_true(json_object_get(json_array_get(steps, i), "skipped"));
    assert_true(skipped >= 15);
    for (size_t i = 0; i < json_array_size(events); i++)
        if (strcmp(text_of(json_array_get(events, i), "kind"), "diverged") == 0)
            fail_msg("%s", text_of(json_array_get(events, i), "text"));
    json_decref(steps), json_decref(events);
    drop_dir(r.dir);
}

// Rounded to whole seconds, and of what is not known a line.
static void times_and_rates_are_short(void **state) {
    (void)state;
    static const struct {
        double s;
        const char *text;
    } times[] = {{0.4, "0s"},        {0.6, "1s"},       {59.4, "59s"},   {59.6, "1m00s"},   {61, "1m01s"},
                 {3599.4, "59m59s"}, {3599.6, "1h00m"}, {3660, "1h01m"}, {90061, "25h01m"}, {NAN, "-"},
                 {INFINITY, "-"},    {-1, "-"},         {2e9, "-"}},
      rates[] = {{0, "0 tok/s"},         {999, "999 tok/s"},   {1000, "1.0k tok/s"},
                 {12345, "12.3k tok/s"}, {1e6, "1.00M tok/s"}, {1234567, "1.23M tok/s"}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        char found[32];
        progress_time(found, times[i].s);
        assert_string_equal(found, times[i].text);
    }
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        char found[48];
        progress_rate(found, "tok", rates[i].s);
        assert_string_equal(found, rates[i].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_and_rates_are_short),
        cmocka_unit_test(every_figure_is_right_also_after_a_resume),
        cmocka_unit_test(an_evaluation_says_how_much_and_how_long),
        cmocka_unit_test(every_figure_is_under_its_own_key),
        cmocka_unit_test(ranks_have_a_mean_each),
        cmocka_unit_test(devices_have_a_place_each),
        cmocka_unit_test(any_text_can_be_read_again),
        cmocka_unit_test(a_terminal_obeys_nothing),
        cmocka_unit_test(a_text_that_is_too_long_is_cut),
        cmocka_unit_test(a_run_of_any_name_can_be_read),
        cmocka_unit_test(a_sink_gets_each_record_whatever_others_do),
        cmocka_unit_test(a_log_that_is_too_short),
        cmocka_unit_test(a_sink_that_can_not_open),
        cmocka_unit_test(a_run_that_diverges_says_so_once),
        cmocka_unit_test(skipped_steps_between_good_ones_are_no_divergence),
        cmocka_unit_test(a_run_that_diverges_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
