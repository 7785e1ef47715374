// test/test_tensorboard.c: what TensorBoard will read of a run, with a reader that is written here, after the format's
// documents and not after trainer/log/proto.c: exactly the numbers of log.jsonl, whatever was killed, whichever disk
// was full. (test/interop/compare_tensorboard.py: the same with TensorBoard itself.)
//
// One idea: this program has a clock, a host and a process number of its own, so that bytes can be known beforehand;
// and its clock can kill who looks at it.
#include "test/support/train.h"

#include "trainer/log/monitor.h"
#include "trainer/log/tfrecord.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

// --- clock, host, process --------------------------------------------------------------------------------------------

static bool pinned;                // the time, the host and the process are these
static double now = 1700000000.5;  // seconds since 1970
static _Thread_local long looks;   // at the clock, until this thread's process is killed; 0: never

int clock_gettime(clockid_t id, struct timespec *t) {
    if (looks > 0 && --looks == 0) raise(SIGKILL);
    if (!pinned || id != CLOCK_REALTIME) return (int)syscall(SYS_clock_gettime, id, t);
    *t = (struct timespec){.tv_sec = (time_t)now, .tv_nsec = (long)(1e9 * (now - (double)(time_t)now))};
    return 0;
}

int gethostname(char *name, size_t room) {
    snprintf(name, room, "node-3");
    return 0;
}

pid_t getpid(void) { return pinned ? 4711 : (pid_t)syscall(SYS_getpid); }

// --- a reader of protocol buffers ------------------------------------------------------------------------------------

typedef struct span {
    const uint8_t *at, *end;
} span;

typedef struct field {
    int number, kind;
    uint64_t whole;  // of kinds 0, 1 and 5: bits
    span bytes;      // of kind 2
} field;

static uint64_t take_bits(span *s, size_t n) {
    uint64_t bits = 0;
    assert_true((size_t)(s->end - s->at) >= n);
    for (size_t i = 0; i < n; i++) bits |= (uint64_t)*s->at++ << 8 * i;
    return bits;
}

static uint64_t take_varint(span *s) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        uint64_t byte = take_bits(s, 1);
        assert_true(shift <= 63);
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80) return value;
    }
}

static bool next_field(span *s, field *f) {
    if (s->at == s->end) return false;
    uint64_t key = take_varint(s);
    *f = (field){.number = (int)(key >> 3), .kind = (int)(key & 7)};
    if (f->kind == 0) f->whole = take_varint(s);
    else if (f->kind == 1) f->whole = take_bits(s, 8);
    else if (f->kind == 5) f->whole = take_bits(s, 4);
    else {
        assert_int_equal(f->kind, 2);
        uint64_t n = take_varint(s);
        assert_true((uint64_t)(s->end - s->at) >= n);
        f->bytes = (span){s->at, s->at + n};
        s->at += n;
    }
    return true;
}

// The field of this number, which is in the message once.
static field only(span s, int number) {
    field f, found = {0};
    int times = 0;
    while (next_field(&s, &f))
        if (f.number == number) found = f, times++;
    if (times != 1) fail_msg("%d fields %d, expected 1", times, number);
    return found;
}

static bool has(span s, int number) {
    field f;
    while (next_field(&s, &f))
        if (f.number == number) return true;
    return false;
}

static void text_at(span s, char dst[64]) { snprintf(dst, 64, "%.*s", (int)(s.end - s.at), (const char *)s.at); }

static double double_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float float_of(uint64_t bits) {
    uint32_t low = (uint32_t)bits;
    float x;
    memcpy(&x, &low, sizeof x);
    return x;
}

// --- a reader of event files -----------------------------------------------------------------------------------------

enum { POINTS = 4096, TEXTS = 16 };

typedef struct point {
    int64_t step;
    char tag[64];
    float value;
} point;

// What a reader has kept of a directory.
typedef struct board_view {
    int files, records, starts, settings, ends, points, texts, torn, purged;
    int64_t start[16];
    point point[POINTS];
    struct {
        int64_t step;
        char text[80000];
    } text[TEXTS];
    char hparams[128][64];  // "optimizer.lr 0.001"
    int hparam_count;
} board_view;

// By a table; the one under test goes bit by bit.
static uint32_t checksum(const uint8_t *b, size_t n) {
    uint32_t table[256], crc = 0xFFFFFFFF;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++) table[i] = table[i] & 1 ? table[i] >> 1 ^ 0x82F63B78 : table[i] >> 1;
    }
    for (size_t i = 0; i < n; i++) crc = table[(crc ^ b[i]) & 0xFF] ^ crc >> 8;
    crc ^= 0xFFFFFFFF;
    return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

static void expect_checksum(const span *s, size_t n) {
    span sum = {s->at + n, s->end};
    assert_int_equal(take_bits(&sum, 4), checksum(s->at, n));
}

// What stands beside a scalar, a text or settings: the plugin's name; "" without one.
static void plugin_of(span value, char name[64], span *content) {
    *name = 0;
    if (!has(value, 9)) return;
    span plugin = only(only(value, 9).bytes, 1).bytes;
    text_at(only(plugin, 1).bytes, name);
    if (has(plugin, 2)) *content = only(plugin, 2).bytes;
}

static void read_settings(board_view *v, span start) {
    field f;
    assert_true(double_of(only(start, 5).whole) > 1.5e9);
    v->settings++;
    v->hparam_count = 0;
    while (next_field(&start, &f)) {
        if (f.number != 1) continue;
        char key[64], text[64];
        span value = only(f.bytes, 2).bytes;
        text_at(only(f.bytes, 1).bytes, key);
        field what;
        assert_true(next_field(&value, &what) && value.at == value.end);
        if (what.number == 2) snprintf(text, sizeof text, "%g", double_of(what.whole));
        else if (what.number == 3) text_at(what.bytes, text);
        else snprintf(text, sizeof text, "%s", what.whole ? "true" : "false"), assert_int_equal(what.number, 4);
        assert_in_range(v->hparam_count, 0, 127);
        snprintf(v->hparams[v->hparam_count++], 64, "%.31s %.31s", key, text);
    }
}

static void read_text(board_view *v, int64_t step, span value) {
    span tensor = only(value, 8).bytes, text = only(tensor, 8).bytes;
    assert_int_equal(only(only(value, 9).bytes, 4).whole, 2);
    assert_int_equal(only(tensor, 1).whole, 7);
    assert_int_equal(only(only(only(tensor, 2).bytes, 2).bytes, 1).whole, 1);
    assert_in_range(v->texts, 0, TEXTS - 1);
    v->text[v->texts].step = step;
    snprintf(v->text[v->texts++].text, 80000, "%.*s", (int)(text.end - text.at), (const char *)text.at);
}

static void read_value(board_view *v, int64_t step, span value) {
    char tag[64], plugin[64];
    span content = {0};
    text_at(only(value, 1).bytes, tag);
    plugin_of(value, plugin, &content);
    if (!*plugin) {
        assert_in_range(v->points, 0, POINTS - 1);
        point *p = &v->point[v->points++];
        *p = (point){.step = step, .value = float_of(only(value, 2).whole)};
        snprintf(p->tag, sizeof p->tag, "%s", tag);
    } else if (strcmp(plugin, "text") == 0) {
        assert_string_equal(tag, "sample");
        read_text(v, step, value);
    } else if (strcmp(tag, "_hparams_/session_start_info") == 0) {
        read_settings(v, only(content, 3).bytes);
    } else {
        assert_string_equal(tag, "_hparams_/session_end_info");
        assert_int_equal(only(only(content, 4).bytes, 1).whole, 1);
        v->ends++;
    }
}

// As TensorBoard does: what is of this step or a later one came from a process that was killed.
static void purge(board_view *v, int64_t step) {
    int points = 0, texts = 0;
    for (int i = 0; i < v->points; i++)
        if (v->point[i].step < step) v->point[points++] = v->point[i];
    for (int i = 0; i < v->texts; i++)
        if (v->text[i].step < step) memmove(&v->text[texts++], &v->text[i], sizeof *v->text);
    v->purged += v->points - points;
    v->points = points, v->texts = texts;
    assert_in_range(v->starts, 0, 15);
    v->start[v->starts++] = step;
}

// number: of the record in its file, from 0.
static void read_event(board_view *v, int number, span event) {
    char version[64];
    int64_t step = has(event, 2) ? (int64_t)only(event, 2).whole : 0;
    field f;
    assert_true(double_of(only(event, 1).whole) > 1.5e9);
    assert_int_equal(has(event, 3), number == 0);
    assert_int_equal(has(event, 7), number == 1);
    if (number == 0) text_at(only(event, 3).bytes, version), assert_string_equal(version, "brain.Event:2");
    if (number == 1) assert_int_equal(only(only(event, 7).bytes, 1).whole, 1);
    if (number == 1) purge(v, step);
    if (!has(event, 5)) return;
    for (span summary = only(event, 5).bytes; next_field(&summary, &f);) read_value(v, step, f.bytes);
}

// The last record may be torn: its process was killed while it wrote.
static void read_events(board_view *v, const char *path) {
    char *bytes;
    size_t size;
    OK(io_read_file(path, 1 << 24, &bytes, &size));
    span s = {(const uint8_t *)bytes, (const uint8_t *)bytes + size};
    for (int number = 0; s.at < s.end; number++) {
        span head = s;
        if (s.end - s.at < 12) {
            v->torn++;
            break;
        }
        uint64_t n = take_bits(&head, 8);
        expect_checksum(&s, 8);
        if ((uint64_t)(s.end - s.at) < n + 16) {
            v->torn++;
            break;
        }
        s.at += 12;
        expect_checksum(&s, (size_t)n);
        read_event(v, number, (span){s.at, s.at + n});
        s.at += n + 4;
        v->records++;
    }
    v->files++;
    free(bytes);
}

static int is_event_file(const struct dirent *e) { return strstr(e->d_name, "tfevents") != NULL; }

static board_view *read_board(const char *dir) {
    char path[2048];
    struct dirent **list;
    board_view *v = calloc(1, sizeof *v);
    assert_non_null(v);
    int n = scandir(dir, &list, is_event_file, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, list[i]->d_name);
        read_events(v, path);
        free(list[i]);
    }
    free(list);
    return v;
}

static const point *find_point(const board_view *v, int64_t step, const char *tag) {
    const point *found = NULL;
    for (int i = 0; i < v->points; i++) {
        if (v->point[i].step != step || strcmp(v->point[i].tag, tag) != 0) continue;
        if (found) fail_msg("step %d has %s twice", (int)step, tag);
        found = &v->point[i];
    }
    return found;
}

static void expect_point(const board_view *v, int64_t step, const char *tag, double value) {
    const point *p = find_point(v, step, tag);
    if (!p) fail_msg("step %d has no %s", (int)step, tag);
    if (p->value != (float)value)
        fail_msg("step %d: %s is %.9g, expected %.9g", (int)step, tag, (double)p->value, value);
}

// --- bytes -----------------------------------------------------------------------------------------------------------

static void the_checksum_is_the_standard_one(void **state) {
    (void)state;
    assert_int_equal(crc32c("123456789", 9), 0xE3069283);
    assert_int_equal(crc32c("", 0), 0);
    uint8_t zeros[32] = {0};
    assert_int_equal(crc32c(zeros, 32), 0x8A9136AA);  // RFC 3720, B.4
}

static char *make_run_dir(config *c, const char *more) {
    char *dir = data_dir(), all[1024];
    snprintf(
        all, sizeof all,
        "[data]\nformat = raw16\n[model]\nlayers = 1\nheads = 2\nembed = 8\ncontext = 16\nvocab = 256\n[device]\nthreads = 1\n"
        "[batch]\nglobal = 4\nmicro = 2\n[schedule]\nwarmup = 1\n[log]\nevery = 1\ntensorboard = yes\n");
    load_config(c, dir, all, more);
    return dir;
}

static void monitor_on(monitor *m, const config *c, const char *dir) {
    static const sink *const list[] = {&sink_tensorboard, NULL};
    OK(monitor_open_list(m, &(log_setup){.dir = dir, .c = c, .unit = "token", .short_unit = "tok", .quiet = true},
                         list));
}

static void log_start(monitor *m, int64_t step) { monitor_log(m, &(record){RECORD_START, .start.step = step}); }

static void log_step(monitor *m, int64_t step, double loss) {
    monitor_log(m,
                &(record){RECORD_STEP,
                          .step = {.step = step, .logged = true, .loss = loss, .grad_norm = NAN, .ms = 4, .world = 1}});
}

// The newest and only file of the directory, whose name is then in name.
static char *only_file(const char *dir, char name[256], size_t *size) {
    char path[2048], *bytes;
    struct dirent **list;
    assert_int_equal(scandir(dir, &list, is_event_file, alphasort), 1);
    snprintf(name, 256, "%s", list[0]->d_name);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    OK(io_read_file(path, 1 << 24, &bytes, size));
    free(list[0]);
    free(list);
    return bytes;
}

static void hex_of(char *dst, const uint8_t *b, size_t n) {
    for (size_t i = 0; i < n; i++) sprintf(dst + 2 * i, "%02x", b[i]);
}

static size_t length_at(const char *b) {
    span s = {(const uint8_t *)b, (const uint8_t *)b + 8};
    return (size_t)take_bits(&s, 8) + 16;
}

static void log_golden(monitor *m) {
    static const char *const names[] = {"accuracy", "bits_per_byte"};
    static const double values[] = {0.625, 1.5};
    static const power_device devices[] = {{.rank = 0, .watts = 250, .celsius = NAN, .mhz = 1980},
                                           {.rank = 1, .watts = NAN, .celsius = 61, .mhz = NAN}};
    const step_record step = {.step = 301,
                              .units = 4096,
                              .logged = true,
                              .loss = 3.25,
                              .grad_norm = 0.1,
                              .lr = 6e-4,
                              .ms = 12.5,
                              .units_per_s = 327680,
                              .data_wait_ms = 0.25,
                              .comm_wait_ms = NAN,
                              .mfu = 0.4375,
                              .resident = 98304,
                              .device_bytes = 3221225472,
                              .loss_scale = 65536,
                              .world = 2,
                              .comm_ms = 3,
                              .hidden = 0.75,
                              .slowest = 1,
                              .slowest_ms = 9,
                              .median_ms = 8.5};
    log_start(m, 300);
    monitor_log(m, &(record){RECORD_STEP, .step = step});
    monitor_log(
        m,
        &(record){RECORD_EVAL,
                  .eval = {.step = 301, .of = "windows", .loss = NAN, .metrics = 2, .metric = names, .value = values}});
    monitor_log(
        m, &(record){RECORD_POWER,
                     .power = {.step = 301, .watts = 250, .joules_per_unit = 1e-3, .device = devices, .devices = 2}});
    monitor_log(
        m, &(record){RECORD_SAMPLE, .sample = {.step = 301, .prompt = "Once\n", .text = "a\xFFtime\n\xE2\x82\xAC"}});
    log_step(m, 600, 1e39);  // which no float holds
}

// As TensorBoard's own classes write them (test/golden/README.md). The third record, the settings, changes with each
// new key: its line is empty, and it is compared in its parts below.
static void every_byte_is_as_tensorboard_writes_it(void **state) {
    (void)state;
    config c;
    monitor m;
    size_t size, at = 0;
    int lines = 0;
    char *dir = make_run_dir(&c, "[optimizer]\nlr = 6e-4\n[run]\nsteps = 600\n"), name[256], *golden, *rest;
    OK(io_read_file("test/golden/tensorboard.txt", 1 << 20, &golden, &size));
    pinned = true;
    monitor_on(&m, &c, dir);
    log_golden(&m);
    monitor_close(&m);
    pinned = false;
    char *bytes = only_file(dir, name, &size);
    assert_string_equal(name, "events.out.tfevents.1700000000.node-3.4711.0");
    rest = golden;
    for (char *line; (line = strsep(&rest, "\n")) && rest; lines++) {
        assert_true(at + 16 <= size && at + length_at(bytes + at) <= size);
        size_t n = length_at(bytes + at);
        char *hex = calloc(2, n + 1);
        assert_non_null(hex);
        hex_of(hex, (const uint8_t *)bytes + at, n);
        if (*line && strcmp(hex, line) != 0) fail_msg("record %d:\n%s, expected\n%s", lines, hex, line);
        free(hex);
        at += n;
    }
    assert_int_equal(lines, 9);
    assert_int_equal(at, size);
    free(bytes), free(golden);
    drop_dir(dir);
}

// Only where servers do not wait for all of a step.
static void what_servers_know_of_a_step(void **state) {
    (void)state;
    config c;
    monitor m;
    char *dir = make_run_dir(&c, "[run]\nsteps = 600\n");
    monitor_on(&m, &c, dir);
    log_start(&m, 0);
    step_record step = {
        .step = 1, .logged = true, .world = 3, .served = true, .stale = 1.5, .late = 3, .waiting = 0.25};
    monitor_log(&m, &(record){RECORD_STEP, .step = step});
    step.step = 2, step.served = false;
    monitor_log(&m, &(record){RECORD_STEP, .step = step});
    monitor_close(&m);
    board_view *v = read_board(dir);
    expect_point(v, 1, "servers/stale", 1.5);
    expect_point(v, 1, "servers/late", 3);
    expect_point(v, 1, "servers/waiting", 0.25);
    assert_null(find_point(v, 2, "servers/stale"));
    assert_null(find_point(v, 2, "servers/late"));
    assert_null(find_point(v, 2, "servers/waiting"));
    assert_non_null(find_point(v, 2, "train/loss"));
    free(v);
    drop_dir(dir);
}

static void settings_are_those_that_decide_the_weights(void **state) {
    (void)state;
    static const char *const expected[] = {
        "optimizer.lr 0.0006",   "batch.global 4",           "optimizer.type adamw",   "model.type gpt",
        "data.shuffle true",     "optimizer.nesterov false", "precision.compute fp32", "precision.loss_scale dynamic",
        "schedule.decay_steps 7"};
    config c;
    monitor m;
    char *dir = make_run_dir(&c, "[optimizer]\nlr = 6e-4\n[run]\nsteps = 7\n");
    monitor_on(&m, &c, dir);
    log_start(&m, 0);
    monitor_close(&m);
    board_view *v = read_board(dir);
    assert_int_equal(v->settings, 1);
    assert_int_equal(v->ends, 0);  // its last step is not logged
    for (int i = 0; i < (int)(sizeof expected / sizeof *expected); i++) {
        int found = 0;
        for (int k = 0; k < v->hparam_count; k++) found += strcmp(v->hparams[k], expected[i]) == 0;
        if (found != 1) fail_msg("\"%s\" is there %d times", expected[i], found);
    }
    for (int k = 0; k < v->hparam_count; k++)
        assert_true(strncmp(v->hparams[k], "run.steps", 9) != 0 && strncmp(v->hparams[k], "run.dir", 7) != 0);
    free(v);
    drop_dir(dir);
}

// --- runs ------------------------------------------------------------------------------------------------------------

// The names of numbers here and in log.jsonl.
static const struct {
    const char *kind, *key, *tag;
} names[] = {{"step", "loss", "train/loss"},
             {"step", "grad_norm", "train/grad_norm"},
             {"step", "lr", "train/lr"},
             {"step", "loss_scale", "train/loss_scale"},
             {"step", "skipped", "train/skipped"},
             {"step", "ms", "speed/ms"},
             {"step", "tokens_per_s", "speed/tokens_per_s"},
             {"step", "data_wait_ms", "speed/data_wait_ms"},
             {"step", "comm_wait_ms", "speed/comm_wait_ms"},
             {"step", "mfu", "speed/mfu"},
             {"step", "resident", "memory/resident"},
             {"step", "device_bytes", "memory/device_bytes"},
             {"eval", "loss", "eval/loss"},
             {"eval", "bits_per_byte", "eval/bits_per_byte"},
             {"power", "watts", "power/watts"},
             {"power", "joules_per_token", "power/joules_per_token"}};

// Each number of log.jsonl, and no other: step by step, to the last bit of a float.
static void expect_log(const board_view *v, const config *c) {
    int count = 0;
    for (int k = 0; k < (int)(sizeof names / sizeof *names); k++) {
        json_t *all = read_records(c, "log.jsonl", names[k].kind);
        for (size_t i = 0; i < json_array_size(all); i++) {
            const json_t *one = json_array_get(all, i), *value = json_object_get(one, names[k].key);
            int64_t step = (int64_t)real_of(one, "step");
            bool known = json_is_number(value) || json_is_boolean(value);
            assert_true(value != NULL);
            if (known)
                expect_point(v, step, names[k].tag,
                             json_is_number(value) ? json_number_value(value) : json_is_true(value));
            else assert_null(find_point(v, step, names[k].tag));
            count += known;
        }
        json_decref(all);
    }
    assert_int_equal(v->points, count);
}

static void expect_samples(const board_view *v, const config *c) {
    json_t *all = read_records(c, "log.jsonl", "sample");
    assert_int_equal(json_array_size(all), v->texts);
    for (int i = 0; i < v->texts; i++) {
        assert_true(v->text[i].step == (int64_t)real_of(json_array_get(all, (size_t)i), "step"));
        assert_memory_equal(v->text[i].text, "    One", 7);
    }
    json_decref(all);
}

// In a process that is killed when it looks at the clock for the n-th time; 0: never. Returns how it ended.
static int train_until(const config *c, const char *dir, long n) {
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        looks = n;
        _exit(train(c, dir) == ERR_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

// Three times killed at any moment, and gone on with from an earlier step.
static void killed_runs_leave_what_one_run_would(void **state) {
    (void)state;
    static const long moments[][3] = {{190, 200, 210}, {223, 161, 232}, {177, 250, 189}};
    int purged = 0;
    for (int k = 0; k < 3; k++) {
        config c;
        char run[1100],
            *dir = make_run_dir(&c, "[run]\nsteps = 60\n[checkpoint]\nevery = 4\n[eval]\nevery = 3\nbatches = 1\n"
                                    "[sample]\nevery = 20\ntokens = 5\n[log]\npower_every = 7\n");
        snprintf(run, sizeof run, "%s/runs/default", dir);
        snprintf(c.eval.text, sizeof c.eval.text, "%s/layer2.ini", dir);  // any short text
        for (int i = 0; i < 3; i++) assert_true(WIFSIGNALED(train_until(&c, dir, moments[k][i])));
        assert_int_equal(train_until(&c, dir, 0), 0);
        board_view *v = read_board(run);
        assert_int_equal(v->files, 4);
        assert_int_equal(v->starts, 4);
        assert_int_equal(v->settings, 4);
        assert_int_equal(v->ends, 1);
        assert_int_equal(v->torn, 0);
        for (int i = 0; i < 4; i++) assert_true(v->start[i] >= (i ? v->start[i - 1] : 1));
        assert_true(v->start[3] > 1);
        expect_log(v, &c);
        expect_samples(v, &c);
        purged += v->purged;
        free(v);
        drop_dir(dir);
    }
    assert_true(purged > 0);  // there was something to forget
}

// At whichever moment of a step it was killed, and before it has gone on.
static void a_killed_run_has_all_that_its_log_has(void **state) {
    (void)state;
    for (long n = 200; n < 216; n++) {
        config c;
        char run[1100], *dir = make_run_dir(&c, "[run]\nsteps = 1000\n[eval]\nevery = 0\n");
        snprintf(run, sizeof run, "%s/runs/default", dir);
        assert_true(WIFSIGNALED(train_until(&c, dir, n)));
        board_view *v = read_board(run);
        json_t *steps = read_records(&c, "log.jsonl", "step");
        assert_true(json_array_size(steps) > 5);
        assert_int_equal(v->ends, 0);
        expect_log(v, &c);
        json_decref(steps);
        free(v);
        drop_dir(dir);
    }
}

static void without_the_setting_there_is_no_file(void **state) {
    (void)state;
    config c;
    char run[1100], *dir = make_run_dir(&c, "[run]\nsteps = 2\n[log]\ntensorboard = no\n");
    snprintf(run, sizeof run, "%s/runs/default", dir);
    OK(train(&c, dir));
    board_view *v = read_board(run);
    assert_int_equal(v->files, 0);
    free(v);
    drop_dir(dir);
}

static int next_fd(void) {
    int fd = dup(STDOUT_FILENO);
    close(fd);
    return fd;
}

// Two starts in a second, and one after the clock was set back: files are read in the order in which they were made.
static void later_files_have_later_names(void **state) {
    (void)state;
    static const double clocks[] = {1700000000.5, 1700000000.75, 1600000000, 1700000001.5, 1800000000};
    config c;
    monitor m;
    char *dir = make_run_dir(&c, "");
    int fd = next_fd();
    pinned = true;
    write_text(dir, "events.out.tfevents.x", "");
    write_text(dir, "events.out.tfevents.99999999999.other", "");
    for (int i = 0; i < 5; i++) {
        now = clocks[i];
        monitor_on(&m, &c, dir);
        log_start(&m, 10 - i);
        monitor_close(&m);
    }
    pinned = false, now = clocks[0];
    char path[1100];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/events.out.tfevents.%s", dir, i ? "x" : "99999999999.other");
        assert_int_equal(unlink(path), 0);
    }
    snprintf(path, sizeof path, "%s/events.out.tfevents.1700000000.node-3.4711.0", dir);
    assert_int_equal(access(path, F_OK), 0);  // a name that is no time moved none
    assert_int_equal(next_fd(), fd);          // all are closed
    board_view *v = read_board(dir);
    assert_int_equal(v->files, 5);
    for (int i = 0; i < 5; i++) assert_int_equal(v->start[i], 11 - i);
    free(v);
    drop_dir(dir);
}

// --- a bad disk ------------------------------------------------------------------------------------------------------

static int failures;

static err_t count_failure(void *self, const record *r) {
    (void)self;
    assert_string_equal(r->event.kind, "log_failed");
    failures++;
    return ERR_OK;
}

static const sink counter = {.name = "counter", .take = {[RECORD_EVENT] = count_failure}};

static void monitor_on_bad_disk(monitor *m, const config *c, const char *dir) {
    static const sink *const list[] = {&counter, &sink_tensorboard, NULL};
    failures = 0;
    OK(monitor_open_list(m, &(log_setup){.dir = dir, .c = c, .unit = "token", .short_unit = "tok", .quiet = true},
                         list));
}

static void limit_files(rlim_t bytes) {
    struct rlimit r;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = bytes < r.rlim_max ? bytes : r.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

// The disk is full after half a record. When there is room again, the rest of it follows, and what came after: the file
// only ever grew. One event for the row of failures.
static void a_full_disk_loses_nothing_for_a_while(void **state) {
    (void)state;
    config c;
    monitor m;
    size_t before, torn, after;
    char *dir = make_run_dir(&c, ""), name[256];
    signal(SIGXFSZ, SIG_IGN);
    monitor_on_bad_disk(&m, &c, dir);
    log_start(&m, 0);
    log_step(&m, 1, 1.5);
    free(only_file(dir, name, &before));
    limit_files(before + 41);
    for (int step = 2; step <= 20; step++) log_step(&m, step, 1.0 / step);
    char *half = only_file(dir, name, &torn);
    limit_files(RLIM_INFINITY);
    assert_int_equal(torn, before + 41);
    assert_int_equal(failures, 1);
    log_step(&m, 21, 1.0 / 21);
    monitor_close(&m);
    char *whole = only_file(dir, name, &after);
    assert_true(after > torn && memcmp(half, whole, torn) == 0);
    board_view *v = read_board(dir);
    assert_int_equal(v->torn, 0);
    for (int step = 2; step <= 21; step++) {
        snprintf(name, sizeof name, "%.9g", 1.0 / step);
        expect_point(v, step, "train/loss", strtod(name, NULL));
    }
    free(half), free(whole), free(v);
    drop_dir(dir);
}

// It is full for too long: what has no room to wait is lost, and the records that are there are whole.
static void a_disk_that_stays_full(void **state) {
    (void)state;
    config c;
    monitor m;
    size_t size;
    char *dir = make_run_dir(&c, ""), name[256];
    monitor_on_bad_disk(&m, &c, dir);
    log_start(&m, 0);
    free(only_file(dir, name, &size));
    limit_files(size + 7);
    for (int step = 1; step <= 2000; step++) log_step(&m, step, 2);
    limit_files(RLIM_INFINITY);
    assert_int_equal(failures, 1);
    log_step(&m, 2001, 2);
    log_step(&m, 2002, 2);
    monitor_close(&m);
    board_view *v = read_board(dir);
    assert_int_equal(v->torn, 0);
    assert_true(v->records > 100 && v->records < 1000);
    expect_point(v, 1, "train/loss", 2);
    expect_point(v, 2002, "train/loss", 2);
    free(v);
    drop_dir(dir);
}

// The directory is not there when the file is to be made, and comes back.
static void a_file_that_can_not_be_made(void **state) {
    (void)state;
    config c;
    monitor m;
    char *dir = make_run_dir(&c, ""), gone[1100];
    snprintf(gone, sizeof gone, "%s/gone", dir);
    monitor_on_bad_disk(&m, &c, gone);
    log_start(&m, 4);
    log_step(&m, 5, 3);
    monitor_sync(&m);
    assert_int_equal(failures, 1);
    OK(io_mkdirs(gone));
    log_step(&m, 6, 2);
    monitor_sync(&m);
    monitor_close(&m);
    board_view *v = read_board(gone);
    assert_int_equal(v->files, 1);
    assert_true(v->start[0] == 5);
    expect_point(v, 5, "train/loss", 3);
    expect_point(v, 6, "train/loss", 2);
    assert_int_equal(failures, 1);
    free(v);
    drop_dir(dir);
}

// --- long ------------------------------------------------------------------------------------------------------------

// Text is cut, after a whole character, and stays valid; a thousand devices have several events.
static void what_is_long(void **state) {
    (void)state;
    enum { LENGTH = 60000, DEVICES = 1000 };
    static char text[LENGTH + 4];
    static power_device devices[DEVICES];
    config c;
    monitor m;
    char *dir = make_run_dir(&c, "");
    for (int i = 0; i < LENGTH; i += 3) memcpy(text + i, i % 2 ? "\xE2\x82\xAC" : "\n\x80z", 4);
    for (int i = 0; i < DEVICES; i++) devices[i] = (power_device){.rank = i, .watts = i, .celsius = 50, .mhz = NAN};
    monitor_on_bad_disk(&m, &c, dir);
    log_start(&m, 0);
    monitor_log(&m, &(record){RECORD_SAMPLE, .sample = {.step = 1, .prompt = "", .text = text}});
    monitor_log(
        &m, &(record){RECORD_POWER,
                      .power = {.step = 1, .watts = 9, .joules_per_unit = 2, .device = devices, .devices = DEVICES}});
    monitor_close(&m);
    assert_int_equal(failures, 0);
    board_view *v = read_board(dir);
    assert_int_equal(v->points, 2 * DEVICES + 2);
    expect_point(v, 1, "device/999/watts", 999);
    expect_point(v, 1, "power/watts", 9);
    assert_int_equal(v->texts, 1);
    size_t n = strlen(v->text[0].text);
    assert_in_range(n, 16000, 16400);
    for (size_t at = 4; at < n;) {
        static const char *const pieces[] = {"\n    ", "\xEF\xBF\xBD", "z", "\xE2\x82\xAC"};
        size_t piece = 0, before = at;
        for (; piece < 4 && before == at; piece++)
            if (strncmp(v->text[0].text + at, pieces[piece], strlen(pieces[piece])) == 0) at += strlen(pieces[piece]);
        if (at == before) fail_msg("byte %d of %d begins nothing that was said", (int)at, (int)n);
    }
    free(v);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_checksum_is_the_standard_one),
        cmocka_unit_test(every_byte_is_as_tensorboard_writes_it),
        cmocka_unit_test(what_servers_know_of_a_step),
        cmocka_unit_test(settings_are_those_that_decide_the_weights),
        cmocka_unit_test(killed_runs_leave_what_one_run_would),
        cmocka_unit_test(a_killed_run_has_all_that_its_log_has),
        cmocka_unit_test(without_the_setting_there_is_no_file),
        cmocka_unit_test(later_files_have_later_names),
        cmocka_unit_test(a_full_disk_loses_nothing_for_a_while),
        cmocka_unit_test(a_disk_that_stays_full),
        cmocka_unit_test(a_file_that_can_not_be_made),
        cmocka_unit_test(what_is_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
