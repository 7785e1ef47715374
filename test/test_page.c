// test/test_page.c: the pages and the terminal's pictures that trainer/report draws. A small run's page is known byte
// for byte (test/golden/report.html) and so is a comparison (test/golden/compare.txt): where one is meant to change,
// look at it in a browser, and copy what this test leaves in build/.
#include "test/support/page.h"

#include "trainer/report/braille.h"
#include "trainer/report/chart.h"
#include "trainer/report/parting.h"

#include <math.h>

static const char settings[] =
    "# lockstep 0.1.0 abc  config 0123  data 4567\n# machine box  device cpu avx512 x2 threads\n[run]\nname = small ; layout a.ini:2\nsteps = 12 ; layout a.ini:3\n[optimizer]\n"
    "lr = 0.002 ; bits   a.ini:4\ngrad_clip = 0.5 ; bits   a.ini:5\n";

static void put_small(void) {
    put("small", "config.ini", settings);
    put_steps("small", 12, 1, 0.2, 100, true);
    put("small", "log.jsonl",
        "{\"t\":\"eval\",\"step\":12,\"loss\":2.75,\"best\":2.75,\"best_step\":12,\"windows\":8,\"ms\":5}\n"
        "{\"t\":\"sample\",\"step\":12,\"prompt\":\"a < b\",\"text\":\" && \\\"c\\\"\"}\n{\"t\":\"checkpoint\",\"step\":12,\"hash\":\"00ff\",\"ms\":1}\n"
        "{\"t\":\"ranks\",\"step\":12,\"steps\":12,\"compute_ms\":[40,40,50],\"data_ms\":[1,1,1],\"wait_ms\":[2,2,2]}\n");
    put("small", "events.jsonl",
        "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"resume\",\"step\":5,\"text\":\"from step 5\"}\n");
    put("small", "machine.jsonl",
        "{\"t\":\"machine\",\"time\":1795521600,\"node\":0,\"disk_free\":5e9,\"cpu\":1.5,\"ranks\":[{\"rank\":0,\"watts\":100,\"watts_max\":120,\"resident\":1e9}]}\n"
        "{\"t\":\"machine\",\"time\":1795521610,\"node\":0,\"disk_free\":4e9,\"cpu\":1.7,\"ranks\":[{\"rank\":0,\"watts\":110,\"watts_max\":130,\"resident\":1e9}]}\n");
}

static void small_page(void **state) {
    size_t n, again;
    (void)state;
    put_small();
    runlog *run;
    char *page = render((const char *const[]){"small"}, 1, &n), *file;
    same_as("report.html", page, n);
    OK(runlog_open(&run, "small"));
    OK(report_write(run, "small"));
    runlog_close(run);
    OK(io_read_file("small/report.html", 1 << 20, &file, &again));
    assert_string_equal(file, page);
    free(file);
    free(page);
}

// A live page asks to be loaded anew, and is the same in all else.
static void live_page(void **state) {
    runlog *r;
    char *page, *live;
    size_t n, m;
    (void)state;
    put_small();
    OK(runlog_open(&r, "small"));
    OK(runlog_poll(r));
    OK(report_render(&r, 1, false, &page, &n));
    OK(report_render(&r, 1, true, &live, &m));
    assert_null(strstr(page, "http-equiv=\"refresh\""));
    assert_non_null(strstr(live, "<meta http-equiv=\"refresh\" content=\"10\">"));
    assert_non_null(strstr(live, "default-src 'none'; style-src 'unsafe-inline'"));
    free(page);
    assert_int_equal(report_render(&r, 0, false, &page, &n), ERR_USAGE);
    runlog_close(r);
    free(live);
}

// Whoever can write a sample, a setting, an event or a directory's name can't write a tag, nor an escape sequence.
static void hostile(void **state) {
    static const char evil[] = "</pre></title><script>x</script><img src=x onerror=y>\\u001b[31m\\u009b31m\\u007f";
    static const char *const dirs[] = {"<i>evil", "small"};
    char line[2048], *text = NULL;
    size_t n;
    (void)state;
    put_small();
    put(dirs[0], "log.jsonl", "{\"t\":\"step\",\"step\":1,\"loss\":3,\"<img>s\":5,\"<img>s_per_s\":7,\"ms\":1}\n");
    put_steps(dirs[0], 6, 1, 0.1, 100, false);
    snprintf(line, sizeof line, "{\"t\":\"sample\",\"step\":6,\"prompt\":\"%s\",\"text\":\"%s\\ud800\xFF\"}\n", evil,
             evil);
    put(dirs[0], "log.jsonl", line);
    snprintf(line, sizeof line, "{\"t\":\"event\",\"at\":\"%s\",\"kind\":\"%s\",\"step\":1,\"text\":\"%s\"}\n", evil,
             evil, evil);
    put(dirs[0], "events.jsonl", line);
    put(dirs[0], "config.ini",
        "# lockstep <script>\n[<script>]\n<script> = \"<script>\x1b[31m\" ; bits x\n[optimizer]\nlr = <img> ; bits x\n");
    put(dirs[0], "status.json",
        "{\"state\":\"<script>\",\"host\":\"<img>\",\"ranks\":[{\"rank\":0,\"host\":\"<script>\",\"device\":\"<img>\"}],\"alarms\":[{\"kind\":\"hang\",\"text\":\"<script>\"}]}");
    for (int both = 0; both < 2; both++) {
        char *page = render(dirs, 1 + both, &n);
        if (both == 0) assert_true(count(page, "&lt;script&gt;") >= 8);
        assert_int_equal(count(page, "<script"), 0);
        assert_int_equal(count(page, "<img"), 0);
        assert_int_equal(count(page, "<i>"), 0);
        assert_int_equal(count(page, "</pre>"), both == 0 ? 1 : 0);
        assert_int_equal(count(page, "</title>"), 1 + count(page, "</title></line>"));
        assert_int_equal(count(page, "\x1b") + count(page, "\xC2\x9B") + count(page, "\x7F"), 0);
        free(page);
    }
    FILE *out = open_memstream(&text, &n);
    OK(verb_compare(2, (char *[]){"<i>evil", "small"}, out));
    fclose(out);
    assert_int_equal(count(text, "\x1b") + count(text, "\xC2\x9B") + count(text, "\x7F"), 0);
    free(text);
}

// A number between 0 and 1 that is the same each time.
static double noise(uint32_t *x) {
    *x = *x * 1664525u + 1013904223u;
    return (*x >> 8) / 16777216.0;
}

// What the tile says is what its chart draws: the median. Steps that were slow at the end change neither. The axis of
// the loss has enough ticks, and says what it is.
static void says_what_it_draws(void **state) {
    char line[512];
    uint32_t x = 1;
    size_t n;
    (void)state;
    for (int i = 1; i <= 200; i++) {
        snprintf(
            line, sizeof line,
            "{\"t\":\"step\",\"step\":%d,\"loss\":%.6f,\"tokens\":%d,\"ms\":50,\"tokens_per_s\":1000,\"mfu\":%g}\n", i,
            2.3 + 3.1 * exp(-i / 40.0) + 0.1 * noise(&x), i * 64, i > 190 ? 0.05 : 0.5);
        put("median", "log.jsonl", line);
    }
    for (int i = 0; i < 20; i++) {  // a processor short for half of the time: computing is not all computing
        snprintf(line, sizeof line, "{\"t\":\"machine\",\"time\":%d,\"ranks\":[{\"rank\":0,\"starved\":%g}]}\n",
                 1700000000 + i, i < 10 ? 0.8 : 0.0);
        put("median", "machine.jsonl", line);
    }
    char *page = render((const char *const[]){"median"}, 1, &n), *tile = strstr(page, "<dt>Share of the peak</dt><dd>");
    assert_non_null(tile);
    double said = strtod(tile + strlen("<dt>Share of the peak</dt><dd>"), NULL);
    if (!(said > 48 && said < 52)) fail_msg("the median share is 50 %%, the page says %g", said);
    assert_int_equal(count(page, "<b id=\"t0\">Loss</b> <small>logarithmic axis</small>"), 1);
    assert_int_equal(count(page, "; computing waits for a processor for 40 % of the time</small>"), 1);
    assert_int_equal(count(page, ">Waiting for a processor</b>"), 1);
    char *first = strstr(page, "<figure"), *end = strstr(first, "</figure>");
    *end = 0;
    int ticks = count(first, "<line class=\"g\"");
    if (ticks < 4 || ticks > 8) fail_msg("%d ticks from 2.3 to 5.4", ticks);
    free(page);
}

// However noisy a curve is: the smoothed line stays in its band, and the band has all values.
static void in_its_band(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        enum { LINE = 90, GROUP = 3 };
        point raw[LINE], wide[LINE / GROUP];
        uint32_t x = seed;
        for (int i = 0; i < LINE; i++)
            raw[i].x = i, raw[i].y = raw[i].low = raw[i].high = exp(-i / 10.0) + noise(&x) * noise(&x) * noise(&x);
        for (int g = 0; g < LINE / GROUP; g++) {
            const point *p = &raw[GROUP * g];
            wide[g] = (point){p[1].x, p[1].y, fmin(p[0].y, fmin(p[1].y, p[2].y)), fmax(p[0].y, fmax(p[1].y, p[2].y))};
        }
        points all = {raw, LINE}, groups = {wide, LINE / GROUP}, line = points_smooth(&all, 1.5),
               band = points_around(&groups, &line);
        assert_true(band.n >= groups.n);
        for (int g = 0, k = 0; g < groups.n; g++, k++) {
            while (band.at[k].x < wide[g].x) k++;
            assert_true(band.at[k].x == wide[g].x && band.at[k].low <= wide[g].low && band.at[k].high >= wide[g].high);
        }
        for (int i = 0, k = 0; i < line.n; i++) {
            while (k + 2 < band.n && band.at[k + 1].x < line.at[i].x) k++;
            const point *a = &band.at[k], *b = a + 1;
            double t = fmin(fmax((line.at[i].x - a->x) / (b->x - a->x), 0), 1), low = a->low + t * (b->low - a->low),
                   high = a->high + t * (b->high - a->high);
            if (!(line.at[i].y >= low - 1e-9 && line.at[i].y <= high + 1e-9))
                fail_msg("seed %u, at %g: %g is not from %g to %g", seed, line.at[i].x, line.at[i].y, low, high);
        }
        points_free(&line), points_free(&band);
    }
}

// Whatever is missing, single, constant, zero or below zero: a page, without a number that is none.
static void odd_runs(void **state) {
    static const struct {
        const char *file, *text;
    } odd[] = {
        {"config.ini", "[run]\nsteps = 5 ; layout x\n"},
        {"log.jsonl", ""},
        {"log.jsonl", "{\"t\":\"step\",\"step\":1}\n"},
        {"log.jsonl", "{\"t\":\"step\",\"step\":1,\"loss\":null,\"grad_norm\":null,\"skipped\":true}\n"},
        {"log.jsonl",
         "{\"t\":\"step\",\"step\":7,\"loss\":2,\"grad_norm\":0,\"tokens\":0,\"ms\":0,\"tokens_per_s\":0,\"lr\":0}\n"},
        {"log.jsonl",
         "{\"t\":\"step\",\"step\":1,\"loss\":-1,\"lr\":-1,\"ms\":-5}\n{\"t\":\"step\",\"step\":2,\"loss\":-1,\"lr\":-1,\"ms\":-5}\n"},
        {"log.jsonl",
         "{\"t\":\"step\",\"step\":1,\"loss\":1e38,\"time\":1e300}\n{\"t\":\"step\",\"step\":900000000000000,\"loss\":1e-38,\"time\":0}\n"},
        {"log.jsonl",
         "{\"t\":\"eval\",\"step\":3,\"loss\":2}\n{\"t\":\"power\",\"step\":3,\"devices\":[{\"rank\":0,\"watts\":3}]}\n"},
        {"log.jsonl", "{\"t\":\"ranks\",\"step\":3,\"compute_ms\":[1,2]}\n"},
    };
    char dir[16];
    size_t n;
    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        snprintf(dir, sizeof dir, "odd%zu", i);
        put(dir, "log.jsonl", "");
        put(dir, odd[i].file, odd[i].text);
        char *page = render((const char *const[]){dir}, 1, &n), *text = NULL;
        if (strstr(page, "\"nan") || strstr(page, "nan%") || strstr(page, "-nan") || strstr(page, "inf%") ||
            strstr(page, ">nan") || strstr(page, ">inf"))
            fail_msg("odd run %zu: %s", i, page);
        assert_non_null(strstr(page, "</html>"));
        free(page);
        FILE *out = open_memstream(&text, &n);
        OK(verb_compare(1, (char *[]){dir}, out));
        fclose(out);
        free(text);
    }
}

// The axis of the gradient norm is the norm's: skipped steps are marked along its foot, and do not stretch it to their
// zeros and ones.
static void marks_do_not_stretch(void **state) {
    char line[256];
    size_t n;
    (void)state;
    for (int i = 1; i <= 40; i++) {
        snprintf(line, sizeof line,
                 "{\"t\":\"step\",\"step\":%d,\"loss\":3,\"grad_norm\":%d,\"ms\":1,\"skipped\":%s}\n", i, 100 + i % 5,
                 i % 10 ? "false" : "true");
        put("norms", "log.jsonl", line);
    }
    char *page = render((const char *const[]){"norms"}, 1, &n), *at = strstr(page, ">Gradient norm</b>"),
         *end = at ? strstr(at, "</figure>") : NULL;
    assert_non_null(end);
    *end = 0;
    assert_non_null(strstr(at, "skipped steps at 4 places"));
    int ticks = 0;
    for (const char *tick = at; (tick = strstr(tick, "<text x=\"-7\"")) != NULL; ticks++) {
        double value = strtod(tick = strchr(tick, '>') + 1, NULL);
        if (value < 99 || value > 105) fail_msg("norms from 100 to 104, and a tick at %g", value);
    }
    assert_true(ticks >= 2);
    free(page);
}

// More ranks than rows: each row is several, none of which is in two.
static void many_ranks(void **state) {
    enum { MANY = 128 };
    char line[2048], *to = line;
    size_t n;
    (void)state;
    to += sprintf(to, "{\"t\":\"step\",\"step\":3,\"loss\":1}\n{\"t\":\"ranks\",\"step\":3,\"compute_ms\":[");
    for (int i = 0; i < MANY; i++) to += sprintf(to, "%s%d", i ? "," : "", i == 77 ? 30 : 20);
    sprintf(to, "]}\n");
    put("many", "log.jsonl", line);
    char *page = render((const char *const[]){"many"}, 1, &n);
    assert_non_null(strstr(page, "<th scope=\"row\">0 to 1</th><td>1.000</td><td>1.000</td>"));
    assert_non_null(strstr(page, "<th scope=\"row\">76 to 77</th><td>1.250</td><td>1.250</td>"));
    assert_non_null(strstr(page, "<th scope=\"row\">126 to 127</th>"));
    assert_non_null(strstr(page, "is 1.25, of rank 76 and its neighbours"));
    assert_non_null(strstr(page, "a row is 2 ranks of 128"));
    free(page);
}

// --- where runs part -------------------------------------------------------------------------------------------------

static void parts(void **state) {
    static const struct {
        const char *a, *b, *text;
    } cases[] = {
        {"a", "same", "the same weights up to step 40, the last with a hash in both"},
        {"a", "later", "the same weights at step 24, others at step 25"},
        {"a", "rare", "the same weights at step 20, others at step 30"},
        {"a", "never", "other weights from the first hash on, at step 1"},
        {"a", "bare", "the same loss at step 29, another at step 30 (no hashes to compare: [log] hash_every)"},
        {"bare", "bare2", "the same losses up to step 29 (no hashes to compare: [log] hash_every)"},
        {"a", "none", "no step is in both logs"},
    };
    char text[PARTING_TEXT];
    (void)state;
    put_steps("a", 40, 1, 0.05, 100, true);
    put_steps("same", 60, 1, 0.05, 100, true);
    put_steps("later", 40, 1, 0.05, 25, true);
    put_steps("rare", 40, 10, 0.05, 25, true);
    put_steps("never", 40, 1, 0.05, 1, true);
    put_steps("bare", 40, 1, 0.05, 30, false);
    put_steps("bare2", 29, 1, 0.05, 100, false);
    put("none", "config.ini", "");
    put("same", "log.jsonl", "{\"t\":\"step\",\"step\":61,\"lo");  // torn
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        parting p;
        OK(parting_of(&p, cases[i].a, cases[i].b));
        assert_string_equal(parting_text(text, &p), cases[i].text);
        parting back;
        OK(parting_of(&back, cases[i].b, cases[i].a));
        assert_true(back.shared == p.shared && back.other_hash == p.other_hash && back.other_loss == p.other_loss);
    }
    // The hash of a checkpoint is that of its step.
    put_steps("kept", 40, 1, 0.05, 100, false);
    put("kept", "log.jsonl", "{\"t\":\"checkpoint\",\"step\":40,\"hash\":\"0000000000000028\",\"ms\":1}\n");
    parting p;
    OK(parting_of(&p, "a", "kept"));
    assert_true(p.hashed == 1 && p.same_hash == 40 && p.other_hash == 0 && p.shared == 40);
}

typedef struct found {
    char text[512];
} found;

static void note(void *ctx, key_class class, const char *name, const char *const *value) {
    found *f = ctx;
    size_t n = strlen(f->text);
    snprintf(f->text + n, sizeof f->text - n, "%d %s %s %s; ", (int)class, name, value[0] ? value[0] : "-",
             value[1] ? value[1] : "-");
}

static void other_settings(void **state) {
    runlog *runs[2];
    found f = {""};
    (void)state;
    put("x", "config.ini",
        "[run]\nname = x ; layout\nsteps = 3 ; layout\n[log]\nevery = 1 ; local\n[optimizer]\nlr = 1 ; bits\nbeta1 = 0.9 ; bits\n");
    put("y", "config.ini",
        "[run]\nname = y ; layout\nsteps = 4 ; layout\n[log]\nevery = 2 ; local\n[optimizer]\nlr = 2 ; bits\nbeta1 = 0.9 ; bits\n[new]\nk = v ; bits\n");
    for (int i = 0; i < 2; i++) {
        OK(runlog_open(&runs[i], i ? "y" : "x"));
        OK(runlog_poll(runs[i]));
    }
    parting_settings(runs, 2, note, &f);
    assert_string_equal(f.text, "0 optimizer.lr 1 2; 1 run.steps 3 4; 2 log.every 1 2; 2 new.k - v; ");
    for (int i = 0; i < 2; i++) runlog_close(runs[i]);
}

// --- the terminal ----------------------------------------------------------------------------------------------------

static void narrow(const char *text) {
    int column = 0;
    for (const char *s = text; *s; s++) {
        column = *s == '\n' ? 0 : column + (((unsigned char)*s & 0xC0) != 0x80);
        if (column > 80) fail_msg("a line of more than 80 characters ends before: %.40s", s);
    }
}

static void in_the_terminal(void **state) {
    char *dirs[] = {"a", "later", "a run with a name that is longer than its column"}, all[20000];
    (void)state;
    put_steps("a", 40, 1, 0.05, 100, true);
    put_steps("later", 40, 1, 0.02, 25, true);
    put_steps(dirs[2], 30, 10, 0.1, 25, true);
    put("a", "config.ini",
        "[optimizer]\nlr = 0.001 ; bits\n[sample]\nprompt = \"a\xC3\xA9 long text, with words and words and words and words and words and words\" ; layout\n");
    put("later", "config.ini", "[optimizer]\nlr = 0.002 ; bits\n");
    char *utf8 = compared("C.UTF-8", dirs, 3), *ascii = compared("C", dirs, 2),
         *twice = compared("C.UTF-8", (char *[]){"a", "a"}, 2);
    narrow(utf8);
    narrow(ascii);
    for (const char *s = ascii; *s; s++) assert_true((unsigned char)*s < 0x80);
    int n = snprintf(all, sizeof all, "%s---\n%s---\n%s", utf8, ascii, twice);
    free(utf8);
    free(ascii);
    free(twice);
    if (strstr(all, "\xE2\xA0") == NULL) {
        print_message("no locale C.UTF-8 here\n");
        skip();
    }
    same_as("compare.txt", all, (size_t)n);
}

static void usage(void **state) {
    FILE *out = fopen("/dev/null", "w");
    char *many[REPORT_RUNS + 1];
    (void)state;
    for (int i = 0; i <= REPORT_RUNS; i++) many[i] = "a";
    put_steps("a", 4, 1, 0.05, 100, true);
    assert_int_equal(verb_report(0, NULL, out), ERR_USAGE);
    assert_int_equal(verb_compare(0, NULL, out), ERR_USAGE);
    assert_int_equal(verb_report(REPORT_RUNS + 1, many, out), ERR_USAGE);
    assert_int_equal(verb_compare(REPORT_RUNS + 1, many, out), ERR_USAGE);
    assert_int_equal(verb_report(2, (char *[]){"a", "--out"}, out), ERR_USAGE);
    assert_int_equal(verb_report(2, (char *[]){"a", "--in"}, out), ERR_USAGE);
    assert_int_equal(verb_compare(2, (char *[]){"a", "--out"}, out), ERR_USAGE);
    assert_int_equal(verb_report(1, (char *[]){"missing"}, out), ERR_DATA);
    assert_int_equal(verb_report(3, (char *[]){"a", "--out", "no/such/place.html"}, out), ERR_IO);
    OK(verb_report(1, (char *[]){"a"}, out));  // of one run: in its directory
    assert_true(access("a/report.html", R_OK) == 0 && access("report.html", R_OK) != 0);
    assert_int_equal(unlink("a/report.html"), 0);
    OK(verb_report(3, (char *[]){"--out", "one.html", "a"}, out));
    assert_true(access("one.html", R_OK) == 0 && access("a/report.html", R_OK) != 0 &&
                access("report.html", R_OK) != 0);
    OK(verb_report(4, (char *[]){"a", "a", "--out", "two.html"}, out));
    OK(verb_compare(REPORT_RUNS, many, out));
    OK(verb_report(REPORT_RUNS, many, out));
    assert_int_equal(access("report.html", R_OK), 0);
    fclose(out);
}

// --- numbers ---------------------------------------------------------------------------------------------------------

static void figures(void **state) {
    static const struct {
        figure kind;
        double v;
        int digits;
        const char *text;
    } cases[] = {{FIGURE_PLAIN, 43602, 3, "43.6k"},
                 {FIGURE_PLAIN, 999.96, 4, "1k"},
                 {FIGURE_PLAIN, 0, 3, "0"},
                 {FIGURE_PLAIN, -0.25, 3, "-0.25"},
                 {FIGURE_PLAIN, 1e-5, 3, "1e-05"},
                 {FIGURE_WHOLE, 1234567, 0, "1,234,567"},
                 {FIGURE_WHOLE, 999, 0, "999"},
                 {FIGURE_WHOLE, -1000, 0, "-1,000"},
                 {FIGURE_SMALL, 3e-4, 3, "3.0e-04"},
                 {FIGURE_BYTES, 6.4e10, 3, "64 GB"},
                 {FIGURE_BYTES, 512, 2, "512 B"},
                 {FIGURE_SHARE, 0.412, 3, "41.2 %"},
                 {FIGURE_SECONDS, 0.0123, 3, "12.3 ms"},
                 {FIGURE_SECONDS, 5076, 3, "84 min 36 s"},
                 {FIGURE_SECONDS, 7200, 3, "2 h 0 min"},
                 {FIGURE_SECONDS, 200000, 3, "2 d 7 h"},
                 {FIGURE_DATE, 1795521600, 0, "2026-11-24 12:00 UTC"},
                 {FIGURE_DATE, 1e20, 0, "–"},
                 {FIGURE_PLAIN, 999.94, 4, "999.9"},
                 {FIGURE_PLAIN, 1e15, 3, "1P"},
                 {FIGURE_PLAIN, 2e18, 4, "2000P"},
                 {FIGURE_PLAIN, 0.001, 3, "0.001"},
                 {FIGURE_WHOLE, 123456, 0, "123,456"},
                 {FIGURE_WHOLE, 2e15, 0, "2e+15"},
                 {FIGURE_SMALL, 0, 3, "0"},
                 {FIGURE_SMALL, -2e-3, 4, "-2.00e-03"},
                 {FIGURE_BYTES, 999, 2, "999 B"},
                 {FIGURE_SECONDS, 0.9994, 4, "999 ms"},
                 {FIGURE_SECONDS, 0.9996, 4, "1 s"},
                 {FIGURE_SECONDS, 119.9, 4, "120 s"},
                 {FIGURE_SECONDS, 120, 4, "2 min 0 s"},
                 {FIGURE_SECONDS, 7199, 4, "119 min 59 s"},
                 {FIGURE_SECONDS, 172799, 4, "47 h 59 min"},
                 {FIGURE_SECONDS, 172800, 4, "2 d 0 h"},
                 {FIGURE_DATE, 0, 0, "1970-01-01 00:00 UTC"},
                 {FIGURE_DATE, -1, 0, "–"},
                 {FIGURE_PLAIN, NAN, 3, "–"},
                 {FIGURE_BYTES, INFINITY, 3, "–"}};
    char text[FIGURE_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(figure_text(text, cases[i].kind, cases[i].v, cases[i].digits), cases[i].text);
}

// Text of anyone's is text, and no more: what could be markup, or changes how a terminal or a browser reads on, is not
// there.
static void text_is_text(void **state) {
    static const struct {
        const char *in, *out;
    } cases[] = {{"a<b>&\"'c", "a&lt;b&gt;&amp;&quot;&#39;c"},
                 {"a\n\tb", "a\n\tb"},
                 {"\x01\x1b\x7f", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
                 {"\xC2\x80\xC2\x9F", "\xEF\xBF\xBD\xEF\xBF\xBD"},
                 {"\xC2\xA0\xC3\x9F\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC2\xA0\xC3\x9F\xE2\x82\xAC\xF0\x9F\x98\x80"},
                 {"\xFFx\xE2\x82", "\xEF\xBF\xBDx\xEF\xBF\xBD\xEF\xBF\xBD"},
                 {"", ""}};
    (void)state;
    text h = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {  // one after the other: what was there before stays
        size_t before = h.n;
        text_put(&h, "[");
        text_html(&h, cases[i].in);
        text_put(&h, "]");
        assert_true(h.n == strlen(h.at) && h.at[before] == '[' && h.at[h.n - 1] == ']');
        assert_true(h.n - before - 2 == strlen(cases[i].out) &&
                    memcmp(h.at + before + 1, cases[i].out, strlen(cases[i].out)) == 0);
    }
    assert_false(h.full);
    text_free(&h);
}

// Curves that are flat, also at and below zero, and single points have axes with room for them, which begin and end
// where they do.
static void flat_curves(void **state) {
    static const double levels[] = {0, 5, -5};
    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (int n = 1; n <= 2; n++) {
            point at[2] = {{3, levels[i], levels[i], levels[i]}, {9, levels[i], levels[i], levels[i]}};
            points line = {at, n};
            char *text = NULL;
            size_t size;
            FILE *out = open_memstream(&text, &size);
            braille_draw(out, &line, 1, &(braille_look){.x_name = "step"});
            fclose(out);
            double label[2] = {strtod(text, NULL), 0};
            char *last = text;
            for (int row = 0; row < 15; row++) last = strchr(last, '\n') + 1;  // the lowest of the labels
            label[1] = strtod(last, NULL);
            if (!(label[0] >= levels[i] && label[1] <= levels[i] && label[0] > label[1] && label[0] - label[1] <= 1))
                fail_msg("from %g to %g, of a curve at %g", label[1], label[0], levels[i]);
            char *foot = strstr(text, n == 2 ? "step 9" : "step 4");
            assert_true(foot && strstr(text, " 3 ") && count(text, "A") > 0);
            free(text);
        }
}

// Exchanges letters A and B in a picture, up to what follows it.
static void exchange(char *text) {
    char *end = strstr(text, "\nbeside A");
    assert_non_null(end);
    for (*end = 0; *text; text++) *text = (char)(*text == 'A' ? 'B' : *text == 'B' ? 'A' : *text);
}

// A curve is drawn to its own end: whichever run is first, the picture is the same but for the letters.
static void whichever_is_first(void **state) {
    static const int64_t steps[] = {300, 40, 1, 299};  // beside one of 300
    char name[16], *dirs[] = {"long", name};
    (void)state;
    put_steps("long", 300, 1, 0.01, 301, false);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        snprintf(name, sizeof name, "short%zu", i);
        put_steps(name, steps[i], 1, 0.005, 301, false);
        char *one = compared("C", dirs, 2), *other = compared("C", (char *[]){name, "long"}, 2);
        char *first = strstr(one, "\ntraining loss"), *second = strstr(other, "\ntraining loss");
        assert_true(first && second && strstr(first, "step 300\n"));
        *strstr(first, "\nbeside A") = 0;
        exchange(second);
        assert_string_equal(first, second);
        free(one), free(other);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_A_DIRECTORY(small_page),         IN_A_DIRECTORY(live_page),       IN_A_DIRECTORY(hostile),
        IN_A_DIRECTORY(says_what_it_draws), cmocka_unit_test(in_its_band),   IN_A_DIRECTORY(odd_runs),
        IN_A_DIRECTORY(many_ranks),         IN_A_DIRECTORY(parts),           IN_A_DIRECTORY(marks_do_not_stretch),
        IN_A_DIRECTORY(other_settings),     IN_A_DIRECTORY(in_the_terminal), IN_A_DIRECTORY(usage),
        IN_A_DIRECTORY(whichever_is_first), cmocka_unit_test(figures),       cmocka_unit_test(text_is_text),
        cmocka_unit_test(flat_curves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
