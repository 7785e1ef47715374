// test/test_runlog.c: a run's directory as trainer/report/runlog.h reads it: while it grows, after it was truncated,
// with torn and damaged lines, and for longer than there are buckets. What is expected is computed here from the lines
// that are written.
#include "test/support/runlog.h"

#include "trainer/config/table.h"
#include "trainer/report/chart.h"
#include "trainer/report/scan.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

// --- JSON ------------------------------------------------------------------------------------------------------------

// Numbers are those of strtod, to the last bit.
static void numbers(void **state) {
    static const char *const texts[] = {"0",
                                        "-0",
                                        "1",
                                        "12.5",
                                        "0.1",
                                        "1e-05",
                                        "1.23456789e-07",
                                        "5.41094591",
                                        "123456789012345",
                                        "1234567890123456789",
                                        "0.1234567890123456789",
                                        "1e22",
                                        "1e23",
                                        "-9.87654321E+30",
                                        "4.9e-324",
                                        "1e400",
                                        "2.2250738585072014e-308"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        scan s = scan_of(texts[i], strlen(texts[i]));
        double x = scan_real(&s), want = strtod(texts[i], NULL);
        assert_memory_equal(&x, &want, sizeof x);
        assert_true(scan_end(&s));
    }
}

static bool whole(const char *text) {
    char *exact = malloc(strlen(text) + 1);  // without its NUL, so that a byte too far is seen
    memcpy(exact, text, strlen(text));
    scan s = scan_of(exact, strlen(text));
    scan_skip(&s);
    bool well = scan_end(&s);
    free(exact);
    return well;
}

static void what_is_json(void **state) {
    static const char *const good[] = {
        "{}",   "[]",     " { \"a\" : [ 1 , null , true , \"x\\\"y\" , { \"b\" : { } } ] } ",
        "\"\"", "-1.5e3", "[[[[]]],{}]"};
    static const char *const bad[] = {"",           "{",
                                      "}",          "{\"a\"}",
                                      "{\"a\":}",   "{\"a\":1,}",
                                      "[1,]",       "[1 2]",
                                      "{a:1}",      "\"x",
                                      "\"x\\",      "tru",
                                      "nul",        "-",
                                      "1.",         "1e",
                                      "{\"a\":1}x", "[1}",
                                      "\"a\nb\"",   "+1",
                                      ".5",         "{\"a\":1 \"b\":2}"};
    char deep[300];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!whole(good[i])) fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (whole(bad[i])) fail_msg("accepted: %s", bad[i]);
    memset(deep, '[', 100), memset(deep + 100, ']', 99), deep[199] = 0;
    assert_false(whole(deep));
    for (int n = 1; n <= 40; n++) {  // brackets in brackets, of both kinds
        char *to = deep;
        for (int i = 0; i < n; i++) to += sprintf(to, i % 2 ? "[" : "{\"a\":");
        *to++ = '1';
        for (int i = n; i-- > 0;) *to++ = i % 2 ? ']' : '}';
        *to = 0;
        assert_int_equal(whole(deep), n <= 32);
    }
}

static void plain_text(void **state) {
    static const struct {
        const char *in, *out;
    } cases[] = {{"a\\nb\\t\\\"\\\\\\/", "a\nb\t\"\\/"},
                 {"\\u00e9\\u20ac\\ud83d\\ude00", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
                 {"\\udbff\\udfff\\ud800\\udc00", "\xF4\x8F\xBF\xBF\xF0\x90\x80\x80"},
                 {"\xE2\x82\xAC\xF0\x9F\x98\x80", "\xE2\x82\xAC\xF0\x9F\x98\x80"},
                 {"\\ud83d", "\xEF\xBF\xBD"},
                 {"\\ud83d\\u0041", "\xEF\xBF\xBD"
                                    "A"},
                 {"\\u0000", "\xEF\xBF\xBD"},
                 {"\\u12", "\xEF\xBF\xBD"
                           "12"},
                 {"\xFF\xC3", "\xEF\xBF\xBD\xEF\xBF\xBD"},
                 {"\\x", "\xEF\xBF\xBD"}};
    char got[64];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(scan_plain(got, sizeof got, (scan_text){cases[i].in, strlen(cases[i].in)}), cases[i].out);
    assert_string_equal(scan_plain(got, 4, (scan_text){"ab\\u20ac", 8}), "ab");  // cut after a whole character
}

// --- files that grow -------------------------------------------------------------------------------------------------

static void grows(void **state) {
    char *dir = make_dir();
    (void)state;
    runlog *r;
    assert_int_equal(runlog_open(&r, dir), ERR_DATA);
    assert_non_null(strstr(err_last()->text, "neither log.jsonl nor config.ini"));
    append(dir, "log.jsonl", "");
    r = open_log(dir);
    assert_int_equal(r->records, 0);
    append(dir, "log.jsonl", step_line(1, 5));
    append(dir, "log.jsonl", "{\"t\":\"step\",\"step\":2,\"lo");  // torn
    OK(runlog_poll(r));
    assert_int_equal(r->last_step, 1);
    append(dir, "log.jsonl", "ss\":4.5,\"tokens\":128,\"ms\":30}\n");
    OK(runlog_poll(r));
    OK(runlog_poll(r));
    assert_int_equal(r->records, 2);
    assert_int_equal(r->log.lines, 2);
    assert_int_equal(r->log.damaged, 0);
    assert_true(r->loss == 4.5 && r->units == 128);
    assert_true(fabs(r->trained_s - 0.040) < 1e-12);
    assert_string_equal(r->unit, "token");
    runlog_close(r);
    drop_dir(dir);
}

// What was read is not read again: here its beginning is another one by now, and nobody knows.
static void only_what_was_appended(void **state) {
    char *dir = make_dir(), path[1024];
    (void)state;
    for (int i = 1; i <= 100; i++) append(dir, "log.jsonl", step_line(i, 2));
    runlog *r = open_log(dir);
    snprintf(path, sizeof path, "%s/log.jsonl", dir);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0 && pwrite(fd, "x", 1, 0) == 1 && close(fd) == 0);
    for (int i = 101; i <= 110; i++) {
        append(dir, "log.jsonl", step_line(i, 2));
        OK(runlog_poll(r));
        assert_true(r->records == i && r->log.lines == i && r->log.damaged == 0);
    }
    runlog_close(r);
    drop_dir(dir);
}

static void truncated(void **state) {
    char *dir = make_dir(), path[1024];
    (void)state;
    for (int i = 1; i <= 10; i++) append(dir, "log.jsonl", step_line(i, 10 - 0.5 * i));
    int64_t half = 0;  // bytes of the first 5
    runlog *r = open_log(dir);
    assert_int_equal(r->last_step, 10);
    // Shorter than before.
    snprintf(path, sizeof path, "%s/log.jsonl", dir);
    FILE *f = fopen(path, "r");
    for (int i = 0, c; i < 5; half++) i += (c = fgetc(f)) == '\n';
    fclose(f);
    cut(dir, "log.jsonl", half);
    OK(runlog_poll(r));
    assert_int_equal(r->last_step, 5);
    assert_int_equal(r->records, 5);
    // Truncated, and grown beyond where it was, between two looks.
    for (int i = 6; i <= 12; i++) append(dir, "log.jsonl", step_line(i, 3));
    OK(runlog_poll(r));
    cut(dir, "log.jsonl", half);
    for (int i = 6; i <= 40; i++) append(dir, "log.jsonl", step_line(i, 2 + 0.001 * i));
    OK(runlog_poll(r));
    assert_int_equal(r->records, 40);
    assert_true(mean_at(r, CURVE_LOSS, 6) < 2.1);
    // Another file of that name.
    assert_int_equal(unlink(path), 0);
    OK(runlog_poll(r));
    assert_int_equal(r->records, 0);
    append(dir, "log.jsonl", step_line(3, 1));
    OK(runlog_poll(r));
    assert_int_equal(r->records, 1);
    assert_int_equal(r->first_step, 3);
    // The same bytes before, and a step that goes back: it is read again, once, and is damage if it still goes back.
    append(dir, "log.jsonl", step_line(2, 1));
    OK(runlog_poll(r));
    assert_int_equal(r->records, 1);
    assert_int_equal(r->log.damaged, 1);
    runlog_close(r);
    drop_dir(dir);
}

static void damaged(void **state) {
    char *dir = make_dir();
    (void)state;
    append(dir, "log.jsonl", step_line(1, 5));
    append(dir, "log.jsonl", "{\"t\":\"step\",\"step\":2,\"loss\":4,,}\n");
    append(dir, "log.jsonl", "garbage\n");
    append(dir, "log.jsonl", "{\"t\":\"step\",\"loss\":4}\n");  // no step
    append(dir, "log.jsonl", "{\"t\":\"step\",\"step\":1e99,\"loss\":4}\n");
    append(dir, "log.jsonl", "\n{\"t\":\"news\",\"x\":[{}]}\n");  // an empty line; a kind of another version
    append(
        dir, "log.jsonl",
        "{\"skipped\":true,\"loss\":null,\"later\":[1,{\"a\":\"}\"}],\"step\":3,\"t\":\"step\",\"grad_norm\":1e400}\n");
    append(
        dir, "events.jsonl",
        "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"resume\",\"step\":3,\"text\":\"a\\u0000b\"}\n{\n");
    append(
        dir, "machine.jsonl",
        "{\"t\":\"machine\",\"time\":-1}\n{\"t\":\"machine\",\"time\":1700000000,\"disk_free\":5,\"ranks\":[{\"rank\":3,\"watts\":200,\"watts_max\":300}]}\n");
    runlog *r = open_log(dir);
    assert_int_equal(r->log.damaged, 4);
    assert_int_equal(r->records, 2);
    assert_int_equal(r->skipped, 1);
    assert_true(isnan(r->loss) && r->lowest_loss == 5);
    assert_int_equal(r->events.damaged, 1);
    assert_int_equal(r->marks, 1);
    assert_true(r->mark[0].time == 1795521600.0);
    assert_string_equal(r->event[0].text, "a\xEF\xBF\xBD"
                                          "b");
    assert_int_equal(r->machine.damaged, 1);
    assert_int_equal(r->world, 4);
    const bucket *w = sheet_bucket(&r->seconds, MACHINE_WATTS, 0);
    assert_true(w->n == 1 && w->sum == 200 && w->most == 300);
    runlog_close(r);
    drop_dir(dir);
}

// A line that is longer than what is read at a time is passed over; those after it count.
static void too_long(void **state) {
    char *dir = make_dir(), *text = malloc(3 * RUNLOG_CHUNK);
    (void)state;
    memset(text, 'x', 3 * RUNLOG_CHUNK - 1);
    text[3 * RUNLOG_CHUNK - 1] = 0;
    append(dir, "log.jsonl", step_line(1, 5));
    append(dir, "log.jsonl", text);
    runlog *r = open_log(dir);
    append(dir, "log.jsonl", "\n");
    append(dir, "log.jsonl", step_line(2, 4));
    OK(runlog_poll(r));
    assert_int_equal(r->log.damaged, 1);
    assert_int_equal(r->last_step, 2);
    runlog_close(r);
    free(text);
    drop_dir(dir);
}

// --- long runs -------------------------------------------------------------------------------------------------------

// 300,000 steps with 3 spikes: all are in the extremes of their buckets, sums and counts are exact.
static void every_spike(void **state) {
    enum { STEPS = 300000 };
    char *dir = make_dir(), path[1024];
    static const int spikes[] = {17, 123456, 299999};
    double sum = 0;
    (void)state;
    snprintf(path, sizeof path, "%s/log.jsonl", dir);
    FILE *f = fopen(path, "w");
    for (int i = 1; i <= STEPS; i++) {
        bool spike = i == spikes[0] || i == spikes[1] || i == spikes[2];
        fputs(step_line(i, spike ? 100 + i : 2), f);
        sum += spike ? 100 + i : 2;
    }
    fclose(f);
    runlog *r = open_log(dir);
    bucket all = sheet_total(&r->steps, CURVE_LOSS);
    assert_int_equal(all.n, STEPS);
    assert_true(all.sum == sum);
    assert_true(r->steps.width == 512 && r->steps.used == 586);
    for (int k = 0; k < 3; k++) {
        const bucket *b = sheet_bucket(&r->steps, CURVE_LOSS, (spikes[k] - 1) / 512);
        assert_true(b->most == 100 + (float)spikes[k] && b->least == 2);
    }
    // Rates are 1000 to 1099, and shares of the peak 0.25 to 0.4975, each as often. What a column has is of its steps.
    for (int k = 0; k < 2; k++) {
        const spread *of = k ? &r->mfu : &r->rate;
        for (int q = 1; q <= 9; q++) {
            double want = k ? 0.25 + 0.025 * q : 1000 + 10 * q, got = spread_quantile(of, 0, SPREAD_COLUMNS, 0.1 * q);
            if (fabs(got / want - 1) > 0.03) fail_msg("spread %d, quantile 0.%d: %g, expected %g", k, q, got, want);
        }
        assert_int_equal(spread_count(of, 0, SPREAD_COLUMNS), STEPS);
        for (int c = 0; c < STEPS / (512 * SPREAD_BUCKETS); c++)
            assert_int_equal(spread_count(of, c, c + 1), 512 * SPREAD_BUCKETS);
    }
    // The beginning is as fine as ever where the axis is logarithmic.
    bucket early = sheet_total(&r->early, EARLY_LOSS);
    assert_int_equal(early.n, STEPS);
    assert_true(sheet_bucket(&r->early, EARLY_LOSS, 4 * SERIES_OCTAVE + 2)->most == 117);  // step 17 alone
    runlog_close(r);
    drop_dir(dir);
}

// 200 ranks in two lines, one of which is slow; ranks are drawn in fewer rows than there are.
static void slow_rank(void **state) {
    char *dir = make_dir();
    (void)state;
    for (int step = 100; step <= 8000; step += 100)
        for (int first = 0; first < 200; first += 100) {
            char line[2048];
            int n = snprintf(line, sizeof line,
                             "{\"t\":\"ranks\",\"step\":%d,\"steps\":100,\"first\":%d,\"compute_ms\":[", step, first);
            for (int i = first; i < first + 100; i++)
                n += snprintf(line + n, sizeof line - (size_t)n, "%s%d", i > first ? "," : "", i == 133 ? 30 : 20);
            snprintf(line + n, sizeof line - (size_t)n, "],\"data_ms\":[1,2],\"before_ms\":[3],\"after_ms\":[4]}\n");
            append(dir, "log.jsonl", line);
        }
    runlog *r = open_log(dir);
    assert_int_equal(r->world, 200);
    assert_int_equal(r->heat.ranks, 4);
    assert_int_equal(r->heat.rows, 50);
    assert_true(r->heat.width * HEAT_COLUMNS >= 8000 && r->heat.columns > HEAT_COLUMNS / 2 - 2);
    for (int row = 0; row < r->heat.rows; row++)
        for (int c = 1; c < r->heat.columns; c++) {
            double want = row == 133 / 4 ? 1.125 : 1;
            if (r->heat.n[row][c]) assert_true(fabs(r->heat.sum[row][c] / (float)r->heat.n[row][c] - want) < 1e-6);
        }
    bucket stages = sheet_total(&r->steps, CURVE_R_STAGES);
    assert_true(stages.least == 7 && stages.most == 7);
    runlog_close(r);
    drop_dir(dir);
}

// Ranks are compared with those of their stage, lane for lane, as lanes are dealt.
static void alike(void **state) {
    static const struct {
        const char *settings, *times;
    } cases[] = {
        {"[batch]\nlanes = 4\n", "20,20,40"},
        {"[batch]\nlanes = 4\n[parallel]\nzero = 2\n", "40,20,20"},
        {"[batch]\nlanes = 2\n[parallel]\npipeline = 2\n", "10,10,30,30"},
        {"[batch]\nlanes = 8\n[parallel]\npipeline = 2\ntensor = 2\n", "20,20,30,30,30,30,7,7,10.5,10.5,10.5,10.5"},
        {"[batch]\nlanes = 6\n[parallel]\ncontext = 2\nzero = 2\n", "30,30,30,30"},
        {"[batch]\nlanes = 3\n[parallel]\ncontext = 2\nzero = 3\n", "20,20,10,10"},
        {"[batch]\nlanes = 5\n[parallel]\ntensor = 2\nzero = 2\n", "30,30,20,20"},
        {"[batch]\nlanes = 3\n[parallel]\npipeline = 2\ncontext = 2\ntensor = 2\nzero = 2\n",
         "20,20,20,20,10,10,10,10,40,40,40,40,20,20,20,20"},
        {"[batch]\nlanes = 8\n", "20,40,10,10],\"lanes\":[2,4,1,1"},    // dealt otherwise: the record says how
        {"[batch]\nlanes = 3\n[parallel]\ntensor = 2\n", "10,10,10"}};  // ranks are missing: nothing is known of lanes
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *dir = make_dir(), line[512];
        append(dir, "config.ini", cases[i].settings);
        snprintf(line, sizeof line,
                 "{\"t\":\"ranks\",\"step\":5,\"compute_ms\":[%s],\"before_ms\":[3,4],\"after_ms\":[]}\n",
                 cases[i].times);
        append(dir, "log.jsonl", line);
        runlog *r = open_log(dir);
        assert_int_equal(r->heat.rows, r->world);
        assert_true(r->world >= 3);
        for (int row = 0; row < r->heat.rows; row++)
            if (fabs(r->heat.sum[row][4] - 1) > 1e-6 || r->heat.n[row][4] != 1)
                fail_msg("case %zu, rank %d: %g", i, row, r->heat.sum[row][4]);
        assert_true(mean_at(r, CURVE_R_STAGES, 4) == 3.5);
        runlog_close(r);
        drop_dir(dir);
    }
}

// --- settings --------------------------------------------------------------------------------------------------------

// What this build prints of a run is read back: exactly what was set differs.
static void settings(void **state) {
    char *dir = make_dir(), path[1024];
    config *c = calloc(1, sizeof *c);
    (void)state;
    load_config(
        c, dir,
        "[optimizer]\nlr = 0.002\nbeta1 = 0.90\n[model]\nlayers = 3\n[sample]\nprompt = \"a \\\"b\\\" ; c\\n\"\n",
        "[log]\nhash_every = 7\n");
    snprintf(path, sizeof path, "%s/config.ini", dir);
    FILE *f = fopen(path, "w");
    fputs("# lockstep 0.1.0 abc  config 0123  data 4567\n", f);
    config_print(c, f);
    fputs("[new]\nkey = 3                              ; bits   x.ini:1\n", f);
    fclose(f);
    runlog *r = open_log(dir);
    char all[512] = "";
    for (int i = 0; i < r->settings; i++)
        if (r->setting[i].differs && strncmp(r->setting[i].name, "data.", 5) != 0)
            strcat(strcat(all, r->setting[i].name), " ");
    assert_string_equal(all, "run.dir model.layers optimizer.lr sample.prompt log.hash_every new.key ");
    assert_string_equal(runlog_find(r, "sample.prompt")->value, "a \"b\" ; c\n");
    assert_true(runlog_number(r, "optimizer.lr") == 0.002 && runlog_number(r, "batch.lanes") >= 1);
    assert_true(isnan(runlog_number(r, "sample.prompt")) && isnan(runlog_number(r, "none.such")));
    assert_null(runlog_find(r, "new.key")->fallback);
    assert_int_equal(runlog_find(r, "optimizer.lr")->class, CLASS_BITS);
    assert_string_equal(r->about, "lockstep 0.1.0 abc  config 0123  data 4567");
    runlog_close(r);
    free(c);
    drop_dir(dir);
}

// A value is a default's as a text, or as a number; keys of the chosen architecture are known, those of others and of
// other versions are shown.
static void settings_that_are_defaults(void **state) {
    (void)state;
    static const struct {
        const char *section, *line;
        bool differs, known;
    } cases[] = {{"optimizer", "beta1 = 0.9", false, true},
                 {"optimizer", "beta1 = 0.90", false, true},
                 {"optimizer", "beta1 = 9e-1", false, true},
                 {"optimizer", "beta1 = 0.91", true, true},
                 {"optimizer", "beta1 = 0.9x", true, true},
                 {"optimizer", "beta1 = x", true, true},
                 {"optimizer", "beta1 =", true, true},
                 {"optimizer", "beta1 = 0.8 ; bits   default, chosen", false, true},
                 {"optimizer", "beta1=0.8\t; bits", true, true},
                 {"optimizer", "beta9 = 0.9", true, false},
                 {"model", "type = llama", true, true},
                 {"model", "type = llama\nkv_heads = 77", true, true},
                 {"model", "type = gpt\nkv_heads = 77", true, false},
                 {"sample", "prompt = \"a\\tb\\nc\\\"\"", true, true}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *dir = make_dir(), text[512];
        snprintf(text, sizeof text, "[%s]\n%s\n", cases[i].section, cases[i].line);
        write_text(dir, "config.ini", text);
        runlog *r = open_log(dir);
        const runlog_setting *s = &r->setting[r->settings - 1];
        if (s->differs != cases[i].differs || (s->fallback != NULL) != cases[i].known)
            fail_msg("%s: differs %d, known %d", cases[i].line, s->differs, s->fallback != NULL);
        if (strcmp(s->name, "sample.prompt") == 0) assert_string_equal(s->value, "a\tb\nc\"");
        runlog_close(r);
        drop_dir(dir);
    }
}

// Whoever changes config.ini while it is looked at: what counts is what it says now.
static void settings_that_change(void **state) {
    char *dir = make_dir();
    (void)state;
    write_text(
        dir, "config.ini",
        "# lockstep 0.1.0 abc  config 01\n# machine box  device cpu x2\n[run]\nsteps = 5\n[optimizer]\nlr = 0.5\n");
    runlog *r = open_log(dir);
    assert_true(r->settings == 2 && runlog_number(r, "run.steps") == 5);
    assert_string_equal(r->computer, "box");
    assert_string_equal(r->runs_on, "cpu x2");
    write_text(dir, "config.ini", "# lockstep 0.1.0 def  config 02\n[run]\nsteps = 600\n");
    OK(runlog_poll(r));
    assert_true(r->settings == 1 && runlog_number(r, "run.steps") == 600 && !runlog_find(r, "optimizer.lr"));
    assert_string_equal(r->about, "lockstep 0.1.0 def  config 02");
    // it does not say that any more
    assert_true(!*r->computer && !*r->runs_on);
    write_text(dir, "config.ini", "# lockstep 0.1.0 ghi  config 03\n[run]\nsteps = 800\n");  // as long as it was
    char path[1024];
    snprintf(path, sizeof path, "%s/config.ini", dir);
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[2]){{1795521600, 0}, {1795521600, 0}}, 0), 0);
    OK(runlog_poll(r));
    assert_true(r->settings == 1 && runlog_number(r, "run.steps") == 800);
    assert_string_equal(r->about, "lockstep 0.1.0 ghi  config 03");
    // and a second later, to the second
    write_text(dir, "config.ini", "# lockstep 0.1.0 jkl  config 04\n[run]\nsteps = 900\n");
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[2]){{1795521601, 0}, {1795521601, 0}}, 0), 0);
    OK(runlog_poll(r));
    assert_int_equal(runlog_number(r, "run.steps"), 900);
    runlog_close(r);
    drop_dir(dir);
}

// Of more settings than there is room for, those that come first count.
static void settings_that_are_many(void **state) {
    (void)state;
    for (int more = -1; more <= 3; more++) {
        char *dir = make_dir(), *text = malloc(32 * (RUNLOG_SETTINGS + 8)), *to = text, name[32];
        assert_non_null(text);
        to += sprintf(to, "[run]\n");
        for (int i = 0; i < RUNLOG_SETTINGS + more; i++) to += sprintf(to, "k%d = %d\n", i, i);
        write_text(dir, "config.ini", text);
        runlog *r = open_log(dir);
        int kept = more < 0 ? RUNLOG_SETTINGS + more : RUNLOG_SETTINGS;
        assert_int_equal(r->settings, kept);
        snprintf(name, sizeof name, "run.k%d", kept - 1);
        assert_true(runlog_number(r, "run.k0") == 0 && runlog_number(r, name) == kept - 1);
        snprintf(name, sizeof name, "run.k%d", kept);
        assert_null(runlog_find(r, name));
        runlog_close(r);
        free(text);
        drop_dir(dir);
    }
}

// The comment of a long text is on a line of its own. It says of that text alone that it was chosen.
static void settings_with_a_long_text(void **state) {
    (void)state;
    for (int chosen = 0; chosen < 2; chosen++) {
        char *dir = make_dir(), path[1024], prompt[640], text[800];
        config *c = calloc(1, sizeof *c);
        assert_non_null(c);
        memset(prompt, 'p', sizeof prompt - 1), prompt[sizeof prompt - 1] = 0;
        snprintf(text, sizeof text, "[sample]\nprompt = \"%s\"\ntokens = 77\n[optimizer]\nlr = 0.002\n", prompt);
        load_config(c, dir, text, "");
        c->origin[config_find(c, "sample", "prompt")].chosen = chosen;
        snprintf(path, sizeof path, "%s/config.ini", dir);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        config_print(c, f);
        fclose(f);
        runlog *r = open_log(dir);
        assert_string_equal(runlog_find(r, "sample.prompt")->value, prompt);
        assert_int_equal(runlog_find(r, "sample.prompt")->differs, !chosen);
        assert_true(runlog_find(r, "sample.tokens")->differs && runlog_find(r, "optimizer.lr")->differs);
        assert_int_equal(runlog_number(r, "sample.tokens"), 77);
        runlog_close(r);
        free(c);
        drop_dir(dir);
    }
}

// What is drawn of a curve: as many points as there is room for, in order, none beyond the run's end, and nothing is
// left out.
static void points_of_a_curve(void **state) {
    (void)state;
    static const int lasts[] = {1, 7, 1024, 1025, 1999, 100000};
    for (size_t k = 0; k < sizeof lasts / sizeof *lasts; k++)
        for (int columns = 10; columns <= 2000; columns *= 10) {
            sheet s;
            double low = INFINITY, high = -INFINITY;
            OK(sheet_open(&s, 2, 1, 1, false));
            for (int x = 1; x <= lasts[k]; x++) {
                int i = sheet_find(&s, x, NULL);
                sheet_add(&s, 0, i, x == lasts[k] / 3 ? -7 : x);
                sheet_add(&s, 1, i, 10.0 * x);
            }
            points p = points_of(&s, 0, -1, lasts[k], columns);
            assert_true(p.n >= 1 && p.n <= columns && p.n <= lasts[k] && p.at[p.n - 1].x == lasts[k]);
            for (int i = 0; i < p.n; i++) {
                assert_true(i == 0 || p.at[i].x > p.at[i - 1].x);
                assert_true(p.at[i].low <= p.at[i].y && p.at[i].y <= p.at[i].high);
                low = fmin(low, p.at[i].low), high = fmax(high, p.at[i].high);
            }
            assert_true(high == lasts[k] && low == (lasts[k] >= 3 ? -7 : 1));
            points over = points_of(&s, 0, 1, lasts[k], columns);
            assert_int_equal(over.n, p.n);
            for (int i = 0; i < p.n; i++)
                assert_true(over.at[i].y == p.at[i].y && over.at[i].x >= 10 && over.at[i].x <= 10.0 * lasts[k]);
            points_free(&p), points_free(&over);
            sheet_close(&s);
        }
}

// Over another curve a point stands where that curve was when there was a value, whatever it did at other times.
static void points_of_few_values(void **state) {
    (void)state;
    for (int columns = 5; columns <= 500; columns *= 10)
        for (int every = 1; every <= 100; every = 3 * every + 1) {
            sheet s;
            int64_t values = 0;
            OK(sheet_open(&s, 2, 1, 1, false));
            for (int x = 1; x <= 1000; x++) {
                int i = sheet_find(&s, x, NULL);
                if (x % every == 0) sheet_add(&s, 0, i, x), values++;
                sheet_add(&s, 1, i, 10.0 * x);
            }
            points over = points_of(&s, 0, 1, INFINITY, columns);
            assert_true(over.n >= 1 && over.n <= columns && over.n <= values);
            for (int i = 0; i < over.n; i++)
                if (fabs(over.at[i].x - 10 * over.at[i].y) > 1e-6)
                    fail_msg("every %d in %d columns: %g stands at %g", every, columns, over.at[i].y, over.at[i].x);
            points_free(&over);
            sheet_close(&s);
        }
}

// Nothing is lost when an axis is outgrown, wherever its last bucket is, nor at the ends of what a spread can tell
// apart.
static void nothing_is_lost(void **state) {
    (void)state;
    static const double ends[] = {1e-30, 1e-6, 1.0 / 1024, 1, 2199023255551.0, 2199023255552.0, 1e30};
    enum { ENDS = COUNT(ends) };
    for (int used = 1000; used < 1024; used++)
        for (int log = 0; log < 2; log++) {
            sheet s;
            OK(sheet_open(&s, 2, 1, 1, log));
            for (int x = 1; x <= used; x++) sheet_add(&s, 1, sheet_find(&s, x, NULL), x);
            for (int x = 3000, n = 1; x < 900000000; x *= 3, n++) {
                sheet_add(&s, 1, sheet_find(&s, x, NULL), -x);
                bucket all = sheet_total(&s, 1), none = sheet_total(&s, 0);
                assert_true(all.n == used + n && all.least == (float)-x && all.most == used && none.n == 0);
                if (!log)
                    assert_true(sheet_bucket(&s, 1, (int)((x - 1) / s.width))->n >= 1 &&
                                s.used == (int)((x - 1) / s.width) + 1);
            }
            sheet_close(&s);
        }
    sheet s;
    OK(sheet_open(&s, 1, 1, 1, true));
    assert_int_equal(sheet_find(&s, 1, NULL), 0);
    assert_int_equal(sheet_find(&s, 0, NULL), 0);
    assert_int_equal(sheet_find(&s, 4294967295.0, NULL), SERIES_BUCKETS - 1);
    assert_int_equal(sheet_find(&s, 1e15, NULL), SERIES_BUCKETS - 1);
    assert_int_equal(sheet_find(&s, 1e16, NULL), -1);
    assert_int_equal(s.used, SERIES_BUCKETS);
    sheet_close(&s);
    spread v;
    OK(spread_open(&v));
    for (int i = 0; i < ENDS; i++) {
        spread_add(&v, 0, ends[i]);
        assert_int_equal(spread_count(&v, 0, 1), i + 1);
        assert_int_equal(spread_count(&v, 1, SPREAD_COLUMNS), 0);
        if (i >= 2) continue;  // as the least that can be told apart
        double q = spread_quantile(&v, 0, 1, 1);
        assert_true(q > 0.99 / 1024 && q < 1.04 / 1024);
    }
    double q = spread_quantile(&v, 0, 1, 1);
    assert_true(q > 2.1e12 && q <= 2199023255552.0);
    for (int i = 0; i < 3; i++) spread_add(&v, i - 1, i == 1 ? 0 : -1);  // none of these counts
    assert_int_equal(spread_count(&v, 0, SPREAD_COLUMNS), ENDS);
    spread_close(&v);
}

// Smoothing: a straight line stays what it is, from its beginning on, and one value is spread over its neighbours as a
// Gaussian.
static void smoothing(void **state) {
    (void)state;
    enum { N = 61, AT = 30 };
    for (double over = 1; over <= 5; over += 1.5) {
        point line[N], spike[N];
        for (int i = 0; i < N; i++) line[i] = (point){i, 3 - 0.5 * i, 0, 0}, spike[i] = (point){i, i == AT, 0, 0};
        points a = points_smooth(&(points){line, N}, over), b = points_smooth(&(points){spike, N}, over);
        assert_true(a.n == N && b.n == N);
        double sum = 0;
        for (int i = 0; i < N; i++) {
            double y = a.at[i].y, want = b.at[AT].y * exp(-0.5 * (i - AT) * (i - AT) / (over * over));
            if (i + (int)ceil(3 * over) < N) assert_true(fabs(y - line[i].y) < 1e-9);
            assert_true(a.at[i].x == i && a.at[i].low == y && a.at[i].high == y);
            if (abs(i - AT) <= 3 * over) assert_true(fabs(b.at[i].y - want) < 1e-9);
            sum += b.at[i].y;
        }
        assert_true(fabs(sum - 1) < 1e-9 && fabs(b.at[AT].y * over * sqrt(2 * M_PI) - 1) < 0.01);
        points_free(&a), points_free(&b);
    }
}

static void other_units(void **state) {
    char *dir = make_dir();
    (void)state;
    append(dir, "log.jsonl", "{\"t\":\"step\",\"step\":1,\"loss\":1,\"samples\":64,\"ms\":1,\"samples_per_s\":640}\n");
    append(
        dir, "log.jsonl",
        "{\"t\":\"eval\",\"step\":1,\"loss\":2.5,\"accuracy\":0.25,\"rmse\":1.5,\"best\":2,\"best_step\":0,\"samples\":10}\n");
    append(
        dir, "log.jsonl",
        "{\"t\":\"sample\",\"step\":1,\"prompt\":\"<p>\",\"text\":\"t\\n\"}\n{\"t\":\"checkpoint\",\"step\":1,\"hash\":\"00ff\",\"ms\":3}\n");
    runlog *r = open_log(dir);
    assert_string_equal(r->unit, "sample");
    assert_true(r->units == 64 && mean_at(r, CURVE_RATE, 0) == 640 && mean_at(r, CURVE_ACCURACY, 0) == 0.25);
    assert_true(mean_at(r, CURVE_RMSE, 0) == 1.5 && isnan(mean_at(r, CURVE_ACC_NORM, 0)));
    assert_true(r->eval_loss == 2.5 && r->best == 2 && r->best_step == 0 && r->evals == 1);
    assert_string_equal(r->hash, "00ff");
    assert_string_equal(r->sample[0].text, "t\n");
    runlog_close(r);
    drop_dir(dir);
}

// Whichever record outgrows the axis, once or more often, rates stay with the steps that had them.
static void outgrown_by_any(void **state) {
    static const char *const records[] = {"{\"t\":\"step\",\"step\":%d,\"loss\":2}\n",
                                          "{\"t\":\"eval\",\"step\":%d,\"loss\":2}\n",
                                          "{\"t\":\"power\",\"step\":%d,\"devices\":[{\"rank\":0,\"watts\":100}]}\n",
                                          "{\"t\":\"ranks\",\"step\":%d,\"compute_ms\":[10,20]}\n"};
    (void)state;
    for (size_t k = 0; k < sizeof records / sizeof *records; k++)
        for (int width = 2; width <= 8; width *= 2) {
            char *dir = make_dir(), line[128];
            for (int i = 1; i <= SERIES_BUCKETS; i++) append(dir, "log.jsonl", step_line(i, 2));
            snprintf(line, sizeof line, records[k], SERIES_BUCKETS * width / 2 + 1);
            append(dir, "log.jsonl", line);
            runlog *r = open_log(dir);
            assert_true(r->steps.width == width);
            for (int c = 0, steps = width * SPREAD_BUCKETS; c < SPREAD_COLUMNS; c++) {
                int want = c < SERIES_BUCKETS / steps ? steps : 0;
                if (spread_count(&r->rate, c, c + 1) != want || spread_count(&r->mfu, c, c + 1) != want)
                    fail_msg("column %d, after %s: expected %d", c, line, want);
            }
            runlog_close(r);
            drop_dir(dir);
        }
}

// As many named sets as there may be, each by the newest value; what is no name is no set.
static void named_sets(void **state) {
    static const char *const odd[] = {
        "<b>.loss", "a b.loss", ".loss", "code.", "a.b.loss", "a\\u0000.loss", "a-name-of-twenty-four-let.loss"};
    char *dir = make_dir(), line[256];
    (void)state;
    append(dir, "log.jsonl", step_line(1, 2));
    append(dir, "log.jsonl",
           "{\"t\":\"eval\",\"step\":1,\"loss\":null,\"code.loss\":2.5,\"code.accuracy\":0.25,\"Law_1-b.loss\":3,"
           "\"best\":2.5,\"best_step\":1,\"best_of\":\"code\"}\n");
    runlog *r = open_log(dir);
    assert_true(r->sets == 2 && r->figures == 3 && r->evals == 1 && r->best == 2.5 && r->best_step == 1);
    assert_string_equal(r->set[1], "Law_1-b");
    assert_string_equal(r->best_of, "code");
    for (size_t k = 0; k < COUNT(odd); k++) {
        snprintf(line, sizeof line, "{\"t\":\"eval\",\"step\":2,\"loss\":2,\"%s\":1}\n", odd[k]);
        append(dir, "log.jsonl", line);
    }
    append(dir, "log.jsonl", "{\"t\":\"eval\",\"step\":2,\"loss\":2,\"code.loss\":1.5}\n");
    OK(runlog_poll(r));
    assert_true(r->sets == 2 && r->figures == 3 && r->figure[0].value == 1.5 && r->evals == 9 && !r->best_of[0]);
    bucket code = sheet_total(&r->steps, CURVE_SET), law = sheet_total(&r->steps, CURVE_SET + 1);
    assert_true(code.n == 2 && code.least == 1.5f && code.most == 2.5f && law.n == 1 && law.least == 3);
    for (int k = 0; k < SETS_MOST * 5; k++) {
        snprintf(line, sizeof line, "{\"t\":\"eval\",\"step\":3,\"loss\":2,\"s%d.f%d\":1,\"s%d.loss\":1}\n", k % 9, k,
                 k);
        append(dir, "log.jsonl", line);
    }
    OK(runlog_poll(r));
    assert_true(r->sets == SETS_MOST && r->figures == RUNLOG_FIGURES);
    runlog_close(r);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),
        cmocka_unit_test(what_is_json),
        cmocka_unit_test(plain_text),
        cmocka_unit_test(grows),
        cmocka_unit_test(only_what_was_appended),
        cmocka_unit_test(truncated),
        cmocka_unit_test(damaged),
        cmocka_unit_test(too_long),
        cmocka_unit_test(every_spike),
        cmocka_unit_test(outgrown_by_any),
        cmocka_unit_test(slow_rank),
        cmocka_unit_test(alike),
        cmocka_unit_test(settings),
        cmocka_unit_test(other_units),
        cmocka_unit_test(settings_that_change),
        cmocka_unit_test(settings_with_a_long_text),
        cmocka_unit_test(settings_that_are_many),
        cmocka_unit_test(points_of_a_curve),
        cmocka_unit_test(points_of_few_values),
        cmocka_unit_test(smoothing),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(named_sets),
        cmocka_unit_test(settings_that_are_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
