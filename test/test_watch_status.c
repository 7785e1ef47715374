// test/test_watch_status.c: what a watcher writes down of a state, to the byte: status.json and the lines of
// machine.jsonl. (What it sees is in test/test_watch.c.)
#include "test/support/run.h"

#include "base/clock.h"
#include "base/text.h"
#include "trainer/watch/alarms.h"
#include "trainer/watch/machine.h"
#include "trainer/watch/sampler.h"
#include "trainer/watch/status_json.h"

#include <jansson.h>
#include <math.h>

static watch_state made_state(watch_rank *rank) {
    *rank = (watch_rank){.place = {.node = 1, .local = 0, .rank = 4, .host = "10.0.0.2", .role = ", stage 1"},
                         .device = "0000:41:00.0",
                         .uuid = "GPU-1",
                         .pid = 4711,
                         .process = 'S',
                         .phase = PHASE_STEPPING,
                         .what = "forward",
                         .number = 3,
                         .step = 13,
                         .what_s = 0.25,
                         .phase_s = 60.5,
                         .beside_number = -1,
                         .cpu = 1.5,
                         .resident = 1000000,
                         .sensors = {.watts = 300, .celsius = 61, .mhz = 1980, .limited = LIMITED_POWER | LIMITED_HEAT},
                         .utilisation = 0.97,
                         .device_used = 2000000,
                         .device_total = 3000000,
                         .device_planned = 1500000,
                         .lanes = 9,
                         .limit_watts = NAN,
                         .median_watts = 310,
                         .read_p50_ms = 0.5,
                         .read_p99_ms = NAN,
                         .read_bytes_per_s = 2e6,
                         .read_retries = 1};
    return (watch_state){.run = "a \"run\"",
                         .dir = "runs/a",
                         .build = "0.1.0 abc",
                         .host = "10.0.0.2",
                         .supervisor = 4700,
                         .every_s = 1,
                         .time = 1700000000.5,
                         .monotonic = 50,
                         .began = 1699999000,
                         .node = 1,
                         .nodes = 2,
                         .world = 6,
                         .locals = 1,
                         .ready = true,
                         .step = 12,
                         .rank = rank,
                         .disk_free = 5000000000,
                         .disk_total = 9000000000,
                         .disk_free_per_s = -1500.5,
                         .disk_read_per_s = NAN,
                         .disk_written_per_s = 0};
}

static const board_news made_news = {.step = 12,
                                     .steps = 600,
                                     .units = 12288,
                                     .began_step = 10,
                                     .skipped = 1,
                                     .loss = 2.5,
                                     .grad_norm = 0.5,
                                     .lr = 1e-3,
                                     .loss_scale = 1,
                                     .ms = 12.5,
                                     .units_per_s = 81920,
                                     .mfu = 0.4375,
                                     .stale = NAN,
                                     .late = NAN,
                                     .waiting = NAN,
                                     .step_time = 1700000000.25,
                                     .eval_loss = 2.25,
                                     .eval_accuracy = NAN,
                                     .eval_auc = NAN,
                                     .eval_rmse = NAN,
                                     .eval_pearson = NAN,
                                     .eval_spearman = NAN,
                                     .best = 2,
                                     .eval_step = 10,
                                     .best_step = 5,
                                     .checkpoint_step = 10,
                                     .checkpoint_time = NAN,
                                     .hash = "0123456789abcdef",
                                     .unit = "token",
                                     .p50_ns = 12500000,
                                     .p99_ns = 40000000};

// The same as the lines of test/golden/status.json, which a reader of JSON has read.
static void status_to_the_byte(void **state) {
    (void)state;
    watch_rank rank;
    watch_state s = made_state(&rank);
    size_t room = status_json_room(1), size;
    char *found = malloc(2 * room), *golden;
    assert_non_null(found);
    size_t n = status_json(&s, found, room);  // a node that has not got rank 0
    s.has_news = true, s.news = made_news;
    s.alarm[0] = (watch_alarm){.kind = ALARM_HANG, .rank = 4, .since = 1699999990, .text = "rank 4 \\ has\nstopped"};
    s.alarm[1] = (watch_alarm){.kind = ALARM_DISK, .rank = -1, .since = 1699999991, .text = "full \xFF soon"};
    s.alarms = 2, s.ended = true, s.end = RUN_FAILED;
    n += status_json(&s, found + n, room);
    OK(io_read_file("test/golden/status.json", 1 << 20, &golden, &size));
    if (n != size || memcmp(found, golden, n) != 0) fail_msg("status.json is\n%s\nexpected\n%s", found, golden);
    free(golden), free(found);
}

// Of servers that do not wait for all of a step, and of rows on demand, what there is to say, and where.
static void status_of_servers_and_of_rows(void **state) {
    (void)state;
    watch_rank rank;
    watch_state s = made_state(&rank);
    const size_t room = status_json_room(1);
    char *found = malloc(room);
    assert_non_null(found);
    s.has_news = true, s.news = made_news;
    s.news.stale = 1.5, s.news.late = 3, s.news.waiting = 0.25, s.news.rows = 700, s.news.cold_rows = 60;
    assert_true(status_json(&s, found, room) > 0);
    assert_non_null(
        strstr(found, ",\"skipped\":1,\"rows\":700,\"cold_rows\":60,\"stale\":1.5,\"late\":3,\"waiting\":0.25,"));
    s.news.stale = s.news.late = s.news.waiting = 0, s.news.rows = 0, s.news.cold_rows = 0;
    assert_true(status_json(&s, found, room) > 0);
    assert_non_null(strstr(found, ",\"skipped\":1,\"stale\":0,\"late\":0,\"waiting\":0,"));
    s.has_news = false;
    assert_true(status_json(&s, found, room) > 0);
    assert_null(strstr(found, "\"stale\""));
    free(found);
}

// Never half of one.
static void status_needs_its_room(void **state) {
    (void)state;
    watch_rank rank;
    watch_state s = made_state(&rank);
    char *dst = malloc(status_json_room(1));
    assert_non_null(dst);
    size_t n = status_json(&s, dst, status_json_room(1));
    assert_true(n > 0 && n < status_json_room(1));
    assert_int_equal(status_json(&s, dst, n + 1), n);
    for (size_t room = 1; room <= n; room++) {
        char *exact = malloc(room);
        assert_non_null(exact);
        assert_int_equal(status_json(&s, exact, room), 0);
        free(exact);
    }
    free(dst);
}

// However long all of its texts are, escaped.
static void the_longest_texts_of_many(void **state) {
    (void)state;
    enum { RANKS = 64 };
    watch_rank rank[RANKS];
    watch_state s = made_state(&rank[0]);
    for (int i = 0; i < RANKS; i++) {
        rank[i] = rank[0];
        memset(rank[i].place.host, 'h', sizeof rank[i].place.host - 1);
        memset(rank[i].place.role, 'r', sizeof rank[i].place.role - 1);
        memset(rank[i].device, 'd', sizeof rank[i].device - 1);
        memset(rank[i].uuid, 'u', sizeof rank[i].uuid - 1);
        rank[i].what = rank[i].beside = "wait until activations have left for stage";
        rank[i].number = rank[i].step = rank[i].resident = rank[i].device_used = rank[i].device_total = INT64_MAX;
        rank[i].cpu = rank[i].what_s = rank[i].phase_s = rank[i].beside_s = rank[i].low_watts_s = -1.23456789e-300;
        rank[i].sensors = (device_sensors){-1.23456789e-300, -1.23456789e-300, -1.23456789e-300, 0, 15};
        rank[i].utilisation = rank[i].starved = -1.23456789e-300;
    }
    s.rank = rank, s.locals = RANKS, s.alarms = WATCH_ALARMS;
    for (int i = 0; i < WATCH_ALARMS; i++) memset(s.alarm[i].text, 1, ALARM_TEXT - 1);
    char *dst = malloc(status_json_room(RANKS));
    assert_non_null(dst);
    assert_true(status_json(&s, dst, status_json_room(RANKS)) > 0);
    free(dst);
    machine *m;
    const char *line;
    size_t n;
    OK(machine_open(&m, RANKS, 1));
    machine_add(m, &s, false, &line, &n), s.monotonic += 1, machine_add(m, &s, false, &line, &n);
    assert_true(line && line[n - 1] == '\n');
    machine_close(m);
}

// Each rank and each alarm is an object of its own, in their order, with its own numbers.
static void status_of_several(void **state) {
    (void)state;
    watch_rank rank[3];
    watch_state s = made_state(&rank[0]);
    static const char *const whole[] = {"rank",         "local",          "pid",          "number",
                                        "step",         "beside_number",  "resident",     "device_used",
                                        "device_total", "device_planned", "read_retries", "lanes"};
    static const char *const real[] = {
        "doing_s", "phase_s", "beside_s",    "cpu",         "watts",       "median_watts", "limit_watts",
        "celsius", "mhz",     "utilisation", "low_watts_s", "read_p50_ms", "read_p99_ms",  "read_bytes_per_s"};
    for (int i = 0; i < 3; i++) {
        watch_rank *r = &rank[i];
        double n = 100 * (i + 1);
        int64_t k = 100 * (i + 1);
        *r = rank[0];
        r->place = (comm_place){.node = 1, .local = (int)k + 1, .rank = (int)k};
        snprintf(r->place.host, sizeof r->place.host, "host %d", i),
            snprintf(r->place.role, sizeof r->place.role, ", stage %d", i);
        snprintf(r->device, sizeof r->device, "device %d", i), snprintf(r->uuid, sizeof r->uuid, "uuid %d", i);
        r->pid = (int)k + 2, r->number = k + 3, r->step = k + 4, r->beside_number = k + 5, r->resident = k + 6;
        r->device_used = k + 7, r->device_total = k + 8, r->device_planned = k + 9, r->read_retries = k + 10,
        r->lanes = k + 11;
        r->what_s = n + 0.5, r->phase_s = n + 1.5, r->beside_s = n + 2.5, r->cpu = n + 3, r->sensors.watts = n + 4,
        r->median_watts = n + 5;
        r->limit_watts = n + 6, r->sensors.celsius = n + 7, r->sensors.mhz = n + 8, r->utilisation = n + 9,
        r->low_watts_s = n + 10;
        r->read_p50_ms = n + 11, r->read_p99_ms = n + 12, r->read_bytes_per_s = n + 13;
        r->beside = "reduce", r->process = "RST"[i];
        s.alarm[i] = (watch_alarm){.kind = (alarm_kind)i, .rank = (int)k, .since = 1699999990 + i};
        snprintf(s.alarm[i].text, ALARM_TEXT, "alarm %d", i);
    }
    s.rank = rank, s.locals = 3, s.alarms = 3, s.bad_steps = 3;
    s.has_news = true, s.news = made_news, s.news.checkpoint_time = 1700000000.125;
    char *dst = malloc(status_json_room(3)), name[32];
    assert_non_null(dst);
    assert_true(status_json(&s, dst, status_json_room(3)) > 0);
    json_t *o = json_loads(dst, JSON_REJECT_DUPLICATES, NULL), *ranks = json_object_get(o, "ranks"),
           *alarms = json_object_get(o, "alarms");
    assert_true(json_array_size(ranks) == 3 && json_array_size(alarms) == 3 &&
                json_integer_value(json_object_get(o, "bad_steps")) == 3);
    assert_true(json_number_value(json_object_get(o, "checkpoint_time")) == 1700000000.125);
    for (int i = 0; i < 3; i++) {
        json_t *r = json_array_get(ranks, (size_t)i), *a = json_array_get(alarms, (size_t)i);
        static const char *const texts[][2] = {
            {"host", "host"}, {"role", "stage"}, {"device", "device"}, {"uuid", "uuid"}};
        for (size_t k = 0; k < 4; k++) {
            snprintf(name, sizeof name, "%s %d", texts[k][1], i);
            assert_string_equal(json_string_value(json_object_get(r, texts[k][0])), name);
        }
        for (size_t k = 0; k < sizeof whole / sizeof *whole; k++)
            if (json_integer_value(json_object_get(r, whole[k])) != 100 * (i + 1) + (json_int_t)k)
                fail_msg("\"%s\" of rank %d: %s", whole[k], i, dst);
        for (size_t k = 0; k < sizeof real / sizeof *real; k++) {
            double want = 100 * (i + 1) + (k < 3 ? (double)k + 0.5 : (double)k);
            if (json_number_value(json_object_get(r, real[k])) != want)
                fail_msg("\"%s\" of rank %d: %s", real[k], i, dst);
        }
        assert_int_equal(json_string_value(json_object_get(r, "process"))[0], "RST"[i]);
        snprintf(name, sizeof name, "alarm %d", i);
        assert_string_equal(json_string_value(json_object_get(a, "text")), name);
        assert_string_equal(json_string_value(json_object_get(a, "kind")), alarm_event((alarm_kind)i, true));
        assert_true(json_integer_value(json_object_get(a, "rank")) == 100 * (i + 1) &&
                    json_number_value(json_object_get(a, "since")) == 1699999990 + i);
    }
    json_decref(o);
    free(dst);
}

// Any text is JSON, and is read again as it was; what is no UTF-8 is U+FFFD.
static void texts_are_json(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"", ""},
        {"a\"b\\c/d", "a\"b\\c/d"},
        {"\x01\b\t\n\x1f\x7f ~", "\x01\b\t\n\x1f\x7f ~"},
        {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
        {"a\xFF\xC3", "a\xEF\xBF\xBD\xEF\xBF\xBD"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char at[256];
        text t = {.at = at, .room = sizeof at};
        text_put(&t, "{");
        text_word(&t, "word", cases[i][0]), text_word(&t, "none", NULL);
        text_whole(&t, "zero", 0), text_whole(&t, "unknown", -1), text_whole(&t, "most", INT64_MAX);
        text_real(&t, "third", 1.0 / 3, 4), text_real(&t, "infinite", INFINITY, 4), text_real(&t, "negative", -0.5, 4);
        text_put(&t, "}");
        assert_true(!t.full && t.n == strlen(at) && !strchr(at, 0x7F));
        for (const char *c = at; *c; c++) assert_true((unsigned char)*c >= ' ');
        json_t *o = json_loads(at, JSON_REJECT_DUPLICATES, NULL);
        assert_int_equal(json_object_size(o), 8);
        assert_string_equal(json_string_value(json_object_get(o, "word")), cases[i][1]);
        assert_true(json_is_null(json_object_get(o, "none")) && json_is_null(json_object_get(o, "unknown")) &&
                    json_is_null(json_object_get(o, "infinite")));
        assert_true(json_is_integer(json_object_get(o, "zero")) &&
                    json_integer_value(json_object_get(o, "most")) == INT64_MAX);
        assert_true(json_number_value(json_object_get(o, "third")) == 0.3333 &&
                    json_number_value(json_object_get(o, "negative")) == -0.5);
        json_decref(o);
    }
}

static void states_have_words(void **state) {
    (void)state;
    watch_rank rank;
    watch_state s = made_state(&rank);
    static const char *const words[BOARD_PHASES] = {"starting", "training", "evaluating",
                                                    "sampling", "saving",   "stopping"};
    for (int p = 0; p < BOARD_PHASES; p++) {
        rank.phase = (board_phase)p;
        assert_string_equal(status_word(&s), words[p]);
    }
    s.ready = false;
    assert_string_equal(status_word(&s), "starting");
    s.stopping = true;
    assert_string_equal(status_word(&s), "stopping");
    s.ended = true, s.end = RUN_DONE;
    assert_string_equal(status_word(&s), "done");
    s.end = RUN_STOPPED;
    assert_string_equal(status_word(&s), "stopped");
    s.end = RUN_FAILED;
    assert_string_equal(status_word(&s), "failed");
    s.end = RUN_DIVERGED;
    assert_string_equal(status_word(&s), "diverged");
}

// A line every ten seconds, whose numbers are means of what was known; looks come a little early or late.
static void lines_of_the_machine(void **state) {
    (void)state;
    static const char want[] =
        "{\"t\":\"machine\",\"time\":1700000010.500,\"node\":1,\"host\":\"10.0.0.2\",\"step\":12,\"disk_free\":5000000000,\"disk_read_per_s\":null,"
        "\"disk_written_per_s\":0,\"cpu\":1.5,\"ranks\":[{\"rank\":4,\"watts\":305.5,\"watts_max\":310,\"celsius\":61,\"mhz\":1980,\"utilisation\":0.97,"
        "\"starved\":0.25,\"resident\":1000000,\"device_used\":2000000,\"limited\":\"power+heat\"}]}\n";
    watch_rank rank;
    watch_state s = made_state(&rank);
    machine *m;
    const char *line;
    size_t n;
    OK(machine_open(&m, 1, 10));
    for (int i = 0; i <= 10; i++) {
        s.time = 1700000000.5 + i, s.monotonic = 50 + i + (i % 2 ? 0.02 : -0.02);
        rank.sensors.watts = i == 3 ? NAN : i == 5 ? 310 : 305;
        rank.starved = i == 4 ? NAN : i % 2 ? 0.5 : 0;
        machine_add(m, &s, false, &line, &n);
        assert_true((line != NULL) == (i == 10));
    }
    assert_string_equal(line, want);
    assert_int_equal(n, strlen(want));
    rank.cpu = NAN;
    machine_add(m, &s, true, &line, &n);
    assert_null(line);  // the ranks are gone, and there was no look since the line
    rank.cpu = 1.5;
    machine_add(m, &s, false, &line, &n);
    assert_null(line);
    rank.cpu = NAN;
    machine_add(m, &s, true, &line, &n);
    assert_non_null(line);
    machine_close(m);
}

// Each line is of its own ten seconds: two ranks, of which each in turn has limits and watts that change from one to
// the next.
static void lines_one_after_another(void **state) {
    (void)state;
    static const struct {
        double read[2];  // of the first five looks, and of the others
        unsigned limited[2];
        double watts[3];  // of the first look, the fifth, the others
        const char *read_text, *changing;
    } rows[] = {{{1000, 2000},
                 {LIMITED_HEAT, 0},
                 {100, 500, 200},
                 "\"disk_read_per_s\":1500,",
                 "\"watts\":220,\"watts_max\":500,"},
                {{NAN, 4000},
                 {LIMITED_POWER, LIMITED_BRAKE},
                 {300, 100, 200},
                 "\"disk_read_per_s\":4000,",
                 "\"watts\":200,\"watts_max\":300,"},
                {{NAN, NAN},
                 {LIMITED_UNKNOWN, LIMITED_UNKNOWN},
                 {NAN, NAN, NAN},
                 "\"disk_read_per_s\":null,",
                 "\"watts\":null,\"watts_max\":null,"},
                {{500, 500},
                 {0, LIMITED_UNKNOWN},
                 {NAN, 50, 40},
                 "\"disk_read_per_s\":500,",
                 "\"watts\":41.111,\"watts_max\":50,"}};
    static const char *const limits[] = {"\"limited\":\"heat\"}", "\"limited\":\"power+brake\"}", "\"limited\":null}",
                                         "\"limited\":\"no\"}"};
    static const char *const names[] = {"{\"rank\":4,", "{\"rank\":5,"};
    static const char same[] = "\"watts\":77,\"watts_max\":77,\"celsius\":null,";
    watch_rank rank[2];
    watch_state s = made_state(&rank[0]);
    machine *m;
    const char *line = NULL;
    size_t n;
    const device_sensors steady = {.watts = 77, .celsius = NAN, .mhz = NAN, .limited = 0};
    rank[1] = rank[0], rank[1].place.rank = 5, s.locals = 2;
    OK(machine_open(&m, 2, 10));
    s.monotonic = 1000;
    machine_add(m, &s, false, &line, &n);  // from here on ten seconds are counted
    for (int i = 1; i <= 10; i++) s.monotonic++, machine_add(m, &s, false, &line, &n);
    assert_non_null(line);
    for (size_t k = 0; k < 2 * sizeof rows / sizeof *rows; k++) {
        size_t row = k / 2, who = k % 2;
        for (int i = 0; i < 10; i++) {
            s.monotonic++;
            s.disk_read_per_s = rows[row].read[i >= 5];
            rank[0].sensors = rank[1].sensors = steady;
            rank[who].sensors.limited = rows[row].limited[i >= 5];
            rank[who].sensors.watts = rows[row].watts[i == 0 ? 0 : i == 4 ? 1 : 2];
            machine_add(m, &s, false, &line, &n);
            assert_true((line != NULL) == (i == 9));
        }
        assert_non_null(strstr(line, ",\"cpu\":3,"));  // of both
        const char *changing = strstr(line, names[who]), *other = strstr(line, names[1 - who]);
        if (!strstr(line, rows[row].read_text) || !changing || !other) fail_msg("line %zu: %s", k, line);
        if (strncmp(changing + strlen(names[who]), rows[row].changing, strlen(rows[row].changing)) != 0)
            fail_msg("line %zu: %s", k, line);
        if (strstr(changing, "\"limited\":") != strstr(changing, limits[row])) fail_msg("line %zu: %s", k, line);
        if (strncmp(other + strlen(names[who]), same, strlen(same)) != 0) fail_msg("line %zu: %s", k, line);
        assert_ptr_equal(strstr(other, "\"limited\":"), strstr(other, "\"limited\":\"no\"}"));
    }
    machine_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_to_the_byte),      cmocka_unit_test(status_of_servers_and_of_rows),
        cmocka_unit_test(status_needs_its_room),   cmocka_unit_test(the_longest_texts_of_many),
        cmocka_unit_test(states_have_words),       cmocka_unit_test(lines_of_the_machine),
        cmocka_unit_test(lines_one_after_another), cmocka_unit_test(status_of_several),
        cmocka_unit_test(texts_are_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
