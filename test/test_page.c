// test/test_page.c: the pages and the terminal's pictures that trainer/report draws. A small run's page is known byte for byte (test/golden/report.html) and
// so is a comparison (test/golden/compare.txt): where one is meant to change, look at it in a browser, and copy what this test leaves in build/.
#include "test/support/run.h"

#include "trainer/report/braille.h"
#include "trainer/report/chart.h"
#include "trainer/report/parting.h"
#include "trainer/report/report.h"

#include <math.h>

static char *home;

static int enter(void **state) {
    *state = make_dir();
    home = getcwd(NULL, 0);
    return chdir(*state);
}

static int leave(void **state) {
    int rc = chdir(home);
    free(home);
    drop_dir(*state);
    return rc;
}

static void put(const char *dir, const char *name, const char *text) {
    char path[1024];
    OK(io_mkdirs(dir));
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "a");
    assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

// A step each `every`, with a hash that is another from `parts` on.
static void put_steps(const char *dir, int64_t steps, int64_t every, double slope, int64_t parts, bool hashes) {
    for (int64_t i = every; i <= steps; i += every) {
        char line[512], hash[64] = "";
        if (hashes) snprintf(hash, sizeof hash, ",\"hash\":\"%08x%08x\"", (unsigned)(i >= parts), (unsigned)i);
        snprintf(line, sizeof line,
                 "{\"t\":\"step\",\"step\":%d,\"loss\":%.9g,\"grad_norm\":%.9g,\"lr\":0.001,\"tokens\":%d,\"ms\":50,\"tokens_per_s\":%d,\"mfu\":null,"
                 "\"data_wait_ms\":1,\"comm_wait_ms\":2,\"loss_scale\":1,\"skipped\":%s%s}\n",
                 (int)i, 5 - slope * (double)i + (i >= parts ? 0.25 : 0), 1.0 / (double)i, (int)(i * 64), (int)(1280 + i % 3),
                 i == 4 ? "true" : "false", hash);
        put(dir, "log.jsonl", line);
    }
}

static char *render(const char *const *dirs, int n, size_t *bytes) {
    runlog *runs[REPORT_RUNS] = {0};
    char *page;
    for (int i = 0; i < n; i++) {
        OK(runlog_open(&runs[i], dirs[i]));
        OK(runlog_poll(runs[i]));
    }
    OK(report_render(runs, n, false, &page, bytes));
    assert_int_equal(strlen(page), *bytes);
    for (int i = 0; i < n; i++) runlog_close(runs[i]);
    return page;
}

static void same_as(const char *golden, const char *got, size_t n) {
    char path[1200], *want;
    size_t size;
    snprintf(path, sizeof path, "%s/test/golden/%s", home, golden);
    err_t rc = io_read_file(path, 1 << 20, &want, &size);
    bool same = rc == ERR_OK && size == n && memcmp(want, got, n) == 0;
    if (rc == ERR_OK) free(want);
    if (same) return;
    snprintf(path, sizeof path, "%s/build/%s", home, golden);
    OK(io_write_file(path, got, n, NULL));
    fail_msg("%s is not test/golden/%s", path, golden);
}

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
    put("small", "events.jsonl", "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"resume\",\"step\":5,\"text\":\"from step 5\"}\n");
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

static int count(const char *in, const char *what) {
    int n = 0;
    for (; (in = strstr(in, what)) != NULL; in += strlen(what)) n++;
    return n;
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
    snprintf(line, sizeof line, "{\"t\":\"sample\",\"step\":6,\"prompt\":\"%s\",\"text\":\"%s\\ud800\xFF\"}\n", evil, evil);
    put(dirs[0], "log.jsonl", line);
    snprintf(line, sizeof line, "{\"t\":\"event\",\"at\":\"%s\",\"kind\":\"%s\",\"step\":1,\"text\":\"%s\"}\n", evil, evil, evil);
    put(dirs[0], "events.jsonl", line);
    put(dirs[0], "config.ini", "# lockstep <script>\n[<script>]\n<script> = \"<script>\x1b[31m\" ; bits x\n[optimizer]\nlr = <img> ; bits x\n");
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

// What the tile says is what its chart draws: the median. Steps that were slow at the end change neither. The axis of the loss has enough ticks, and says what it is.
static void says_what_it_draws(void **state) {
    char line[512];
    uint32_t x = 1;
    size_t n;
    (void)state;
    for (int i = 1; i <= 200; i++) {
        snprintf(line, sizeof line, "{\"t\":\"step\",\"step\":%d,\"loss\":%.6f,\"tokens\":%d,\"ms\":50,\"tokens_per_s\":1000,\"mfu\":%g}\n", i,
                 2.3 + 3.1 * exp(-i / 40.0) + 0.1 * noise(&x), i * 64, i > 190 ? 0.05 : 0.5);
        put("median", "log.jsonl", line);
    }
    for (int i = 0; i < 20; i++) {  // a processor short for half of the time: computing is not all computing
        snprintf(line, sizeof line, "{\"t\":\"machine\",\"time\":%d,\"ranks\":[{\"rank\":0,\"starved\":%g}]}\n", 1700000000 + i, i < 10 ? 0.8 : 0.0);
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

// The newest of many events and samples, newest first, each once and with what belongs to it.
static void the_newest_first(void **state) {
    enum { EVENTS = 45, SAMPLES = 10 };
    char line[512], want[256];
    size_t n;
    (void)state;
    put_steps("long", 50, 1, 0.05, 100, false);
    for (int i = 1; i <= EVENTS; i++) {
        snprintf(line, sizeof line, "{\"t\":\"event\",\"at\":\"2026-11-24T12:%02d:00Z\",\"kind\":\"kind-%d\",\"step\":%d,\"text\":\"text %d\"}\n", i,
                 i, i, i);
        put("long", "events.jsonl", line);
    }
    for (int i = 1; i <= SAMPLES; i++) {
        snprintf(line, sizeof line, "{\"t\":\"sample\",\"step\":%d,\"prompt\":\"prompt %d\",\"text\":\" and text %d\"}\n", 5 * i, i, i);
        put("long", "log.jsonl", line);
    }
    char *page = render((const char *const[]){"long"}, 1, &n), *at = strstr(page, "<h2>What the model wrote</h2>"),
         *events = strstr(page, "<h2>Events</h2>");
    assert_true(at && events && strstr(page, "the last 20 of 45"));
    for (int i = SAMPLES; i > SAMPLES - RUNLOG_SAMPLES; i--) {
        snprintf(want, sizeof want, "after step %d%s<pre><b>prompt %d</b> and text %d</pre>", 5 * i, i == SAMPLES ? "</p>" : "</summary>", i, i);
        char *found = strstr(at, want);
        if (!found) fail_msg("no \"%s\" after: %.200s", want, at);
        at = found;
    }
    assert_int_equal(count(page, "after step "), RUNLOG_SAMPLES);
    at = events;
    for (int i = EVENTS; i > EVENTS - RUNLOG_EVENTS; i--) {
        snprintf(want, sizeof want, "2026-11-24 12:%02d UTC</td><td>%d</td><td class=\"x\">kind-%d</td><td class=\"v\">text %d</td>", i, i, i, i);
        char *found = strstr(at, want);
        if (!found) fail_msg("no \"%s\" after: %.200s", want, at);
        at = found;
    }
    assert_int_equal(count(events, " UTC</td>"), RUNLOG_EVENTS);
    free(page);
}

// The cells of the row of a table that begins here, as text without tags. Returns how many there are.
enum { CELLS = 16 };
static int cells(const char *row, char cell[CELLS][64]) {
    const char *end = strstr(row, "</tr>");
    int n = 0;
    for (const char *at = row; end && at < end && n < CELLS; n++) {
        size_t size = 0;
        while (at < end && strncmp(at, "<th", 3) != 0 && strncmp(at, "<td", 3) != 0) at++;
        if (at >= end) break;
        for (bool tag = false; strncmp(at, "</th>", 5) != 0 && strncmp(at, "</td>", 5) != 0; at++) {
            if (*at == '<') tag = true;
            if (!tag && size < 63) cell[n][size++] = *at;
            if (*at == '>') tag = false;
        }
        cell[n][size] = 0;
    }
    return n;
}

static char *compared(const char *locale, char **dirs, int n) {
    char *text = NULL;
    size_t size;
    setenv("LC_ALL", locale, 1);
    FILE *out = open_memstream(&text, &size);
    OK(verb_compare(n, dirs, out));
    fclose(out);
    return text;
}

// What stands under each heading of a page of several runs: runs of which no two numbers are alike.
static void beside_each_other(void **state) {
    static const char *const heading[] = {
        "run",           "state",    "steps", "loss", "lowest", "validation", "best", "median per second", "median share of the peak",
        "time in steps", "last hash"};
    static const char *const want[2][11] = {{"one", "not at its end", "30", "3.5", "2.5", "2.75", "2.25", "1k", "25.4 %", "3 s", "1e"},
                                            {"two", "done", "40", "5.5", "4.5", "4.75", "4.25", "2k", "50.8 %", "8 s", "28"}};
    char line[512], cell[CELLS][64];
    size_t n;
    (void)state;
    for (int run = 0; run < 2; run++) {
        const char *dir = run ? "two" : "one";
        int last = run ? 40 : 30;
        put(dir, "config.ini", "[run]\nsteps = 40 ; layout\n");
        for (int i = 1; i <= last; i++) {
            snprintf(line, sizeof line,
                     "{\"t\":\"step\",\"step\":%d,\"loss\":%g,\"ms\":%d,\"tokens\":%d,\"tokens_per_s\":%d,\"mfu\":%g,\"hash\":\"%x\"}\n", i,
                     2.5 + 2 * run + (i == 7 ? 0 : 1), 100 + 100 * run, i, 1000 + 1000 * run, 0.25 + 0.25 * run, (unsigned)i);
            put(dir, "log.jsonl", line);
        }
        snprintf(line, sizeof line, "{\"t\":\"eval\",\"step\":20,\"loss\":%g}\n{\"t\":\"eval\",\"step\":30,\"loss\":%g}\n", 2.25 + 2 * run,
                 2.75 + 2 * run);
        put(dir, "log.jsonl", line);
    }
    char *page = render((const char *const[]){"one", "two"}, 2, &n), *row = strstr(page, "<table><tr>");
    assert_non_null(row);
    assert_int_equal(cells(row, cell), 11);
    for (int i = 0; i < 11; i++) assert_string_equal(cell[i], heading[i]);
    for (int run = 0; run < 2; run++) {
        row = strstr(row, "</tr>") + 5;
        assert_int_equal(cells(row, cell), 11);
        for (int i = 0; i < 11; i++)
            if (strcmp(cell[i], want[run][i]) != 0) fail_msg("%s of run %d: %s, expected %s", heading[i], run, cell[i], want[run][i]);
    }
    free(page);
    // And in a terminal.
    static const char *const words[3] = {"run steps loss best val rate/s mfu time ", "A one 30 3.5 2.25 1k 25.4 % 3.0 s ",
                                         "B two 40 5.5 4.25 2k 50.8 % 8.0 s "};
    char *text = compared("C", (char *[]){"one", "two"}, 2), *at = text;
    for (int i = 0; i < 3; i++, at = strchr(at, '\n') + 1) {
        char found[128] = "";
        int size = 0;
        for (const char *s = at; *s != '\n' && size < 100; s += strspn(s, " ")) {
            int length = (int)strcspn(s, " \n");
            size += sprintf(found + size, length ? "%.*s " : "", length, s), s += length;
        }
        assert_string_equal(found, words[i]);
    }
    free(text);
}

// A chart's table of values goes from the first point of its curve to the last one, however many there are.
static void values_from_end_to_end(void **state) {
    static const int lasts[] = {1, 5, 12, 13, 200, 3000};
    char cell[CELLS][64], dir[16], want[16];
    size_t n;
    (void)state;
    for (size_t k = 0; k < sizeof lasts / sizeof *lasts; k++) {
        snprintf(dir, sizeof dir, "ends%d", lasts[k]);
        put_steps(dir, lasts[k], 1, 0.001, 10000, false);
        char *page = render((const char *const[]){dir}, 1, &n), *row = strstr(page, "<summary>Values</summary>");
        assert_non_null(row);
        *strstr(row, "</table>") = 0;
        int rows = count(row, "<tr>") - 1, points = lasts[k] < 12 ? lasts[k] : 12;
        assert_int_equal(rows, points);
        for (int i = 0; i < rows; i++) {
            row = strstr(row, "</tr>") + 5;
            assert_true(cells(row, cell) >= 2);
            snprintf(want, sizeof want, lasts[k] < 1000 ? "%d" : "%d,%03d", lasts[k] < 1000 ? lasts[k] : lasts[k] / 1000, lasts[k] % 1000);
            if (i == 0 && lasts[k] <= 200) assert_string_equal(cell[0], "1");
            if (i == rows - 1) assert_string_equal(cell[0], want);
        }
        free(page);
    }
}

// However many steps a point of a curve stands for: one that was skipped is seen.
static void a_skipped_step_is_seen(void **state) {
    static const int lasts[] = {12, 500, 3000};  // put_steps skips the fourth
    char dir[16];
    size_t n;
    (void)state;
    for (size_t k = 0; k < sizeof lasts / sizeof *lasts; k++) {
        snprintf(dir, sizeof dir, "skips%d", lasts[k]);
        put_steps(dir, lasts[k], 1, 0.001, 10000, false);
        char *page = render((const char *const[]){dir}, 1, &n);
        if (!strstr(page, "skipped steps at 1 places. ")) fail_msg("of %d steps none is shown as skipped", lasts[k]);
        free(page);
    }
}

// Where gradients are clipped is a line across the curves, if it is the same for all of them and not far beyond them.
static void clipped_where(void **state) {
    static const struct {
        const char *one, *two;
        int lines;
    } cases[] = {{"0.5", "0.5", 1}, {"0.5", "1", 0}, {"1", "0.5", 0}, {"0", "0", 0}, {"0", "0.5", 0}, {"1000", "1000", 0}};
    char name[2][16], text[64];
    size_t n;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int k = 0; k < 2; k++) {
            snprintf(name[k], sizeof name[k], "clip%zu%d", i, k);
            snprintf(text, sizeof text, "[optimizer]\ngrad_clip = %s ; bits x\n", k ? cases[i].two : cases[i].one);
            put(name[k], "config.ini", text);
            put_steps(name[k], 12, 1, 0.2, 100, false);
        }
        char *page = render((const char *const[]){name[0], name[1]}, 2, &n);
        if (count(page, ">clipped at ") != cases[i].lines)
            fail_msg("clipped at %s and %s: %d lines", cases[i].one, cases[i].two, count(page, ">clipped at "));
        free(page);
    }
}

// Watts are shown where any of the runs has them, whichever is named first: those of the watcher, else of the log.
static void power_of_those_that_have_it(void **state) {
    static const char *const kinds[] = {"none", "watched", "logged"};
    char line[256];
    size_t n;
    (void)state;
    for (int k = 0; k < 3; k++) {
        put_steps(kinds[k], 40, 1, 0.05, 100, false);
        for (int i = 1; i <= 4; i++) {
            snprintf(line, sizeof line, "{\"t\":\"machine\",\"time\":%d,\"ranks\":[{\"rank\":0,\"watts\":%d}]}\n", 1700000000 + 10 * i, 200 + i);
            if (k == 1) put(kinds[k], "machine.jsonl", line);
            snprintf(line, sizeof line, "{\"t\":\"power\",\"step\":%d,\"devices\":[{\"rank\":0,\"watts\":%d}]}\n", 10 * i, 300 + i);
            if (k == 2) put(kinds[k], "log.jsonl", line);
        }
    }
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            bool watched = a == 1 || b == 1, logged = a == 2 || b == 2;
            char *page = render((const char *const[]){kinds[a], kinds[b]}, 2, &n), *chart = strstr(page, ">Power</b>");
            if ((chart != NULL) != (watched || logged)) fail_msg("%s and %s: %s chart of watts", kinds[a], kinds[b], chart ? "a" : "no");
            if (chart) *strstr(chart, "</figure>") = 0;
            if (chart && !strstr(chart, watched ? ">time<" : ">step<")) fail_msg("%s and %s: over what?", kinds[a], kinds[b]);
            free(page);
        }
}

// Devices of a later node are shown by the ranks that they have, and all alarms. A run has its directory's name.
static void who_is_who(void **state) {
    size_t n;
    (void)state;
    put_steps("second", 4, 1, 0.05, 100, false);
    put("second", "status.json",
        "{\"state\":\"training\",\"host\":\"h\",\"alarms\":[{\"kind\":\"dead\",\"text\":\"first\"},{\"kind\":\"hang\",\"text\":\"second\"}],\"ranks\":[{\"rank\":8,\"host\":\"h8\",\"device\":\"0000:41:00.0\"},{\"rank\":9,\"host\":\"h9\",\"device\":\"0000:42:00.0\"}]}");
    assert_int_equal(chdir("second"), 0);
    for (int k = 0; k < 3; k++) {
        static const char *const ways[] = {".", "../second", "../second/"};
        char *page = render(&ways[k], 1, &n);
        assert_non_null(strstr(page, "<title>second – lockstep</title>"));
        assert_non_null(strstr(page, "<h1>second</h1>"));
        const char *alarm = strstr(page, "role=\"alert\">first</p>");
        assert_true(alarm && strstr(alarm, "role=\"alert\">second</p>"));
        assert_non_null(strstr(page, "rank 8</th><td class=\"v\">0000:41:00.0 on h8</td>"));
        assert_non_null(strstr(page, "rank 9</th><td class=\"v\">0000:42:00.0 on h9</td>"));
        free(page);
    }
    assert_int_equal(chdir(".."), 0);
}

static double number_of(const char *text) {
    char plain[64], *to = plain;
    for (; *text && to < plain + 63; text++)
        if (*text != ',') *to++ = *text;
    *to = 0;
    return strtod(plain, NULL);
}

// No curve begins before a run's first step, nor goes beyond its last one.
static void nothing_beyond_the_run(void **state) {
    static const int lasts[] = {33, 100, 195, 1100, 3001};
    char cell[CELLS][64], dir[16];
    size_t n;
    (void)state;
    for (size_t k = 0; k < sizeof lasts / sizeof *lasts; k++) {
        snprintf(dir, sizeof dir, "within%d", lasts[k]);
        put_steps(dir, lasts[k], 1, 0.001, 10000, false);
        char *page = render((const char *const[]){dir}, 1, &n);
        int tables = 0;
        for (char *at = page, *end; (at = strstr(at, "<summary>Values</summary>")) != NULL; at = end) {
            end = strstr(at, "</table>");
            *end++ = 0;
            if (cells(at, cell) < 2 || strcmp(cell[0], "step") != 0) continue;
            tables++;
            for (char *row = at; (row = strstr(row + 1, "<tr>")) != NULL && cells(row, cell) >= 2;)
                if (strcmp(cell[0], "step") != 0 && (number_of(cell[0]) < 1 || number_of(cell[0]) > lasts[k]))
                    fail_msg("%s at step %s of %d", cell[1], cell[0], lasts[k]);
        }
        assert_in_range(tables, 5, 20);
        free(page);
    }
}

// Of several runs: each counts what it counts, and the events of one say nothing about the others.
static void units_and_events_of_several(void **state) {
    static const char *const runs[] = {"tokens1", "tokens2", "samples1", "samples2"};
    char line[512];
    size_t n;
    (void)state;
    for (int k = 0; k < 4; k++) {
        for (int i = 1; i <= 40; i++) {
            const char *unit = k < 2 ? "token" : "sample";
            snprintf(line, sizeof line, "{\"t\":\"step\",\"step\":%d,\"loss\":%g,\"ms\":10,\"%ss\":%d,\"%ss_per_s\":640}\n", i, 5 - 0.05 * i, unit,
                     64 * i, unit);
            put(runs[k], "log.jsonl", line);
        }
        put(runs[k], "events.jsonl", "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"resume\",\"step\":20,\"text\":\"x\"}\n");
    }
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++) {
            bool same = a / 2 == b / 2;
            char *page = render((const char *const[]){runs[a], runs[b]}, 2, &n), *chart = strstr(page, ">Loss by amount of data</b>");
            assert_non_null(chart);
            assert_int_equal(count(page, "<line class=\"m\""), 0);
            assert_int_equal(count(page, ">Speed</b>"), !same);
            assert_int_equal(count(page, a < 2 ? ">Tokens per second</b>" : ">Samples per second</b>"), same);
            *strstr(chart, "</figure>") = 0;
            assert_int_equal(count(chart, "text-anchor=\"end\">samples or tokens</text>"), !same);
            assert_int_equal(count(chart, a < 2 ? "text-anchor=\"end\">tokens</text>" : "text-anchor=\"end\">samples</text>"), same);
            free(page);
        }
    char *one = render(&runs[0], 1, &n);
    assert_true(count(one, "<line class=\"m\"") > 0);
    free(one);
}

// Of events that are near each other all are lines; those are named for whose name there is room before the next.
static void names_of_events_do_not_meet(void **state) {
    enum { EVENTS = 20 };
    static const char tag[] = "<text class=\"n\" x=\"";
    char line[256];
    size_t n;
    (void)state;
    put_steps("near", 1000, 10, 0.001, 10000, false);
    for (int i = 1; i <= EVENTS; i++) {
        snprintf(line, sizeof line, "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"happened_%02d\",\"step\":%d,\"text\":\"x\"}\n", i,
                 20 * i);
        put("near", "events.jsonl", line);
    }
    char *page = render((const char *const[]){"near"}, 1, &n), *end = strstr(page, "</figure>");
    *end = 0;
    assert_int_equal(count(page, "<line class=\"m\""), EVENTS);
    double free_from = 0;
    int named = 0;
    for (const char *at = page; (at = strstr(at, tag)) != NULL; at++) {
        const char *text = strchr(at, '>') + 1;
        double x = strtod(at + sizeof tag - 1, NULL);
        if (strncmp(text, "happened_", 9) != 0) continue;
        if (x < free_from) fail_msg("%.11s at %g %%, and the name before reaches to %g %%", text, x, free_from);
        free_from = x + 0.8 * (double)strlen("happened_00");  // a wide chart is about 1200 pixels, and a letter 10
        named++;
    }
    assert_in_range(named, 3, EVENTS - 1);
    free(page);
}

// However noisy a curve is: the smoothed line stays in its band, and the band has all values.
static void in_its_band(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        enum { LINE = 90, GROUP = 3 };
        point raw[LINE], wide[LINE / GROUP];
        uint32_t x = seed;
        for (int i = 0; i < LINE; i++) raw[i].x = i, raw[i].y = raw[i].low = raw[i].high = exp(-i / 10.0) + noise(&x) * noise(&x) * noise(&x);
        for (int g = 0; g < LINE / GROUP; g++) {
            const point *p = &raw[GROUP * g];
            wide[g] = (point){p[1].x, p[1].y, fmin(p[0].y, fmin(p[1].y, p[2].y)), fmax(p[0].y, fmax(p[1].y, p[2].y))};
        }
        points all = {raw, LINE}, groups = {wide, LINE / GROUP}, line = points_smooth(&all, 1.5), band = points_around(&groups, &line);
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
        {"log.jsonl", "{\"t\":\"step\",\"step\":7,\"loss\":2,\"grad_norm\":0,\"tokens\":0,\"ms\":0,\"tokens_per_s\":0,\"lr\":0}\n"},
        {"log.jsonl", "{\"t\":\"step\",\"step\":1,\"loss\":-1,\"lr\":-1,\"ms\":-5}\n{\"t\":\"step\",\"step\":2,\"loss\":-1,\"lr\":-1,\"ms\":-5}\n"},
        {"log.jsonl",
         "{\"t\":\"step\",\"step\":1,\"loss\":1e38,\"time\":1e300}\n{\"t\":\"step\",\"step\":900000000000000,\"loss\":1e-38,\"time\":0}\n"},
        {"log.jsonl", "{\"t\":\"eval\",\"step\":3,\"loss\":2}\n{\"t\":\"power\",\"step\":3,\"devices\":[{\"rank\":0,\"watts\":3}]}\n"},
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
        if (strstr(page, "\"nan") || strstr(page, "nan%") || strstr(page, "-nan") || strstr(page, "inf%") || strstr(page, ">nan") ||
            strstr(page, ">inf"))
            fail_msg("odd run %zu: %s", i, page);
        assert_non_null(strstr(page, "</html>"));
        free(page);
        FILE *out = open_memstream(&text, &n);
        OK(verb_compare(1, (char *[]){dir}, out));
        fclose(out);
        free(text);
    }
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

// --- where runs part ---------------------------------------------------------------------------------------------------------------------

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
    snprintf(f->text + n, sizeof f->text - n, "%d %s %s %s; ", (int)class, name, value[0] ? value[0] : "-", value[1] ? value[1] : "-");
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

// --- the terminal ------------------------------------------------------------------------------------------------------------------------

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
    char *utf8 = compared("C.UTF-8", dirs, 3), *ascii = compared("C", dirs, 2), *twice = compared("C.UTF-8", (char *[]){"a", "a"}, 2);
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

// A name is as wide as its characters, not as its bytes: the columns after it stand under each other.
static void columns_line_up(void **state) {
    char *dirs[] = {
        "plain",
        "gr\xC3\xB6\xC3\x9F"
        "er",
        "\xCE\xB1\xCE\xB2\xCE\xB3\xCE\xB4\xCE\xB5\xCE\xB6\xCE\xB7\xCE\xB8\xCE\xB9\xCE\xBA\xCE\xBB\xCE\xBC\xCE\xBD\xCE\xBE\xCE\xBF\xCF\x80\xCF\x81\xCF\x83\xCF\x84\xCF\x85\xCF\x86\xCF\x87"};
    (void)state;
    for (int i = 0; i < 3; i++) put_steps(dirs[i], 40, 1, 0.05, 100, false);
    for (int k = 0; k < 2; k++) {
        char *text = compared(k ? "C" : "C.UTF-8", dirs, 3), *line = text;
        int wide[4] = {0};
        for (int i = 0; i < 4; i++, line = strchr(line, '\n') + 1)
            for (const char *s = line; *s != '\n'; s++) wide[i] += ((unsigned char)*s & 0xC0) != 0x80;
        for (int i = 1; i < 4; i++)
            if (wide[i] != wide[0]) fail_msg("a row of %d characters under a heading of %d:\n%s", wide[i], wide[0], text);
        free(text);
    }
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
    OK(verb_report(4, (char *[]){"a", "a", "--out", "two.html"}, out));
    OK(verb_compare(REPORT_RUNS, many, out));
    OK(verb_report(REPORT_RUNS, many, out));
    assert_int_equal(access("report.html", R_OK), 0);
    fclose(out);
}

// --- numbers -----------------------------------------------------------------------------------------------------------------------------

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
                 {FIGURE_PLAIN, NAN, 3, "–"},
                 {FIGURE_BYTES, INFINITY, 3, "–"}};
    char text[FIGURE_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(figure_text(text, cases[i].kind, cases[i].v, cases[i].digits), cases[i].text);
}

#define IN_A_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, enter, leave)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_A_DIRECTORY(small_page),
        IN_A_DIRECTORY(live_page),
        IN_A_DIRECTORY(hostile),
        IN_A_DIRECTORY(says_what_it_draws),
        cmocka_unit_test(in_its_band),
        IN_A_DIRECTORY(odd_runs),
        IN_A_DIRECTORY(many_ranks),
        IN_A_DIRECTORY(parts),
        IN_A_DIRECTORY(the_newest_first),
        IN_A_DIRECTORY(beside_each_other),
        IN_A_DIRECTORY(values_from_end_to_end),
        IN_A_DIRECTORY(names_of_events_do_not_meet),
        IN_A_DIRECTORY(columns_line_up),
        IN_A_DIRECTORY(a_skipped_step_is_seen),
        IN_A_DIRECTORY(clipped_where),
        IN_A_DIRECTORY(power_of_those_that_have_it),
        IN_A_DIRECTORY(who_is_who),
        IN_A_DIRECTORY(nothing_beyond_the_run),
        IN_A_DIRECTORY(units_and_events_of_several),
        IN_A_DIRECTORY(other_settings),
        IN_A_DIRECTORY(in_the_terminal),
        IN_A_DIRECTORY(usage),
        cmocka_unit_test(figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
