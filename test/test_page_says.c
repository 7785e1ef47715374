// test/test_page_says.c: what pages and comparisons say, number by number: of long runs, of several beside each other,
// of nodes that are not the first. (How they look is in test/test_page.c.)
#include "test/support/page.h"

// The newest of many events and samples, newest first, each once and with what belongs to it.
static void the_newest_first(void **state) {
    enum { EVENTS = 45, SAMPLES = 10 };
    char line[512], want[256];
    size_t n;
    (void)state;
    put_steps("long", 50, 1, 0.05, 100, false);
    for (int i = 1; i <= EVENTS; i++) {
        snprintf(
            line, sizeof line,
            "{\"t\":\"event\",\"at\":\"2026-11-24T12:%02d:00Z\",\"kind\":\"kind-%d\",\"step\":%d,\"text\":\"text %d\"}\n",
            i, i, i, i);
        put("long", "events.jsonl", line);
    }
    for (int i = 1; i <= SAMPLES; i++) {
        snprintf(line, sizeof line,
                 "{\"t\":\"sample\",\"step\":%d,\"prompt\":\"prompt %d\",\"text\":\" and text %d\"}\n", 5 * i, i, i);
        put("long", "log.jsonl", line);
    }
    char *page = render((const char *const[]){"long"}, 1, &n), *at = strstr(page, "<h2>What the model wrote</h2>"),
         *events = strstr(page, "<h2>Events</h2>");
    assert_true(at && events && strstr(page, "the last 20 of 45"));
    for (int i = SAMPLES; i > SAMPLES - RUNLOG_SAMPLES; i--) {
        snprintf(want, sizeof want, "after step %d%s<pre><b>prompt %d</b> and text %d</pre>", 5 * i,
                 i == SAMPLES ? "</p>" : "</summary>", i, i);
        char *found = strstr(at, want);
        if (!found) fail_msg("no \"%s\" after: %.200s", want, at);
        at = found;
    }
    assert_int_equal(count(page, "after step "), RUNLOG_SAMPLES);
    at = events;
    for (int i = EVENTS; i > EVENTS - RUNLOG_EVENTS; i--) {
        snprintf(want, sizeof want,
                 "2026-11-24 12:%02d UTC</td><td>%d</td><td class=\"x\">kind-%d</td><td class=\"v\">text %d</td>", i, i,
                 i, i);
        char *found = strstr(at, want);
        if (!found) fail_msg("no \"%s\" after: %.200s", want, at);
        at = found;
    }
    assert_int_equal(count(events, " UTC</td>"), RUNLOG_EVENTS);
    free(page);
}

// Runs `one` and `two`, of which no two numbers are alike.
static void put_two(void) {
    char line[512];
    for (int run = 0; run < 2; run++) {
        const char *dir = run ? "two" : "one";
        int last = run ? 40 : 30;
        put(dir, "config.ini", "[run]\nsteps = 40 ; layout\n");
        for (int i = 1; i <= last; i++) {
            snprintf(
                line, sizeof line,
                "{\"t\":\"step\",\"step\":%d,\"loss\":%g,\"ms\":%d,\"tokens\":%d,\"tokens_per_s\":%d,\"mfu\":%g,\"hash\":\"%x\"}\n",
                i, 2.5 + 2 * run + (i == 7 ? 0 : 1), 100 + 100 * run, i, 1000 + 1000 * run, 0.25 + 0.25 * run,
                (unsigned)i);
            put(dir, "log.jsonl", line);
        }
        snprintf(line, sizeof line,
                 "{\"t\":\"eval\",\"step\":20,\"loss\":%g}\n{\"t\":\"eval\",\"step\":30,\"loss\":%g}\n", 2.25 + 2 * run,
                 2.75 + 2 * run);
        put(dir, "log.jsonl", line);
    }
}

// What stands under each heading of a page of several runs.
static void beside_each_other(void **state) {
    static const char *const heading[] = {"run",
                                          "state",
                                          "steps",
                                          "loss",
                                          "lowest",
                                          "validation",
                                          "best",
                                          "median per second",
                                          "median share of the peak",
                                          "time in steps",
                                          "last hash"};
    static const char *const want[2][11] = {
        {"one", "not at its end", "30", "3.5", "2.5", "2.75", "2.25", "1k", "25.4 %", "3 s", "1e"},
        {"two", "done", "40", "5.5", "4.5", "4.75", "4.25", "2k", "50.8 %", "8 s", "28"}};
    char cell[CELLS][64];
    size_t n;
    (void)state;
    put_two();
    char *page = render((const char *const[]){"one", "two"}, 2, &n), *row = strstr(page, "<table><tr>");
    assert_non_null(row);
    assert_int_equal(cells(row, cell), 11);
    for (int i = 0; i < 11; i++) assert_string_equal(cell[i], heading[i]);
    for (int run = 0; run < 2; run++) {
        row = strstr(row, "</tr>") + 5;
        assert_int_equal(cells(row, cell), 11);
        for (int i = 0; i < 11; i++)
            if (strcmp(cell[i], want[run][i]) != 0)
                fail_msg("%s of run %d: %s, expected %s", heading[i], run, cell[i], want[run][i]);
    }
    free(page);
}

// And in a terminal.
static void in_a_terminal(void **state) {
    (void)state;
    put_two();
    static const char *const words[3] = {"run steps loss best val rate/s mfu time ",
                                         "A one 30 3.5 2.25 1k 25.4 % 3.0 s ", "B two 40 5.5 4.25 2k 50.8 % 8.0 s "};
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
            snprintf(want, sizeof want, lasts[k] < 1000 ? "%d" : "%d,%03d",
                     lasts[k] < 1000 ? lasts[k] : lasts[k] / 1000, lasts[k] % 1000);
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
    } cases[] = {{"0.5", "0.5", 1}, {"0.5", "1", 0}, {"1", "0.5", 0},
                 {"0", "0", 0},     {"0", "0.5", 0}, {"1000", "1000", 0}};
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
            snprintf(line, sizeof line, "{\"t\":\"machine\",\"time\":%d,\"ranks\":[{\"rank\":0,\"watts\":%d}]}\n",
                     1700000000 + 10 * i, 200 + i);
            if (k == 1) put(kinds[k], "machine.jsonl", line);
            snprintf(line, sizeof line, "{\"t\":\"power\",\"step\":%d,\"devices\":[{\"rank\":0,\"watts\":%d}]}\n",
                     10 * i, 300 + i);
            if (k == 2) put(kinds[k], "log.jsonl", line);
        }
    }
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            bool watched = a == 1 || b == 1, logged = a == 2 || b == 2;
            char *page = render((const char *const[]){kinds[a], kinds[b]}, 2, &n), *chart = strstr(page, ">Power</b>");
            if ((chart != NULL) != (watched || logged))
                fail_msg("%s and %s: %s chart of watts", kinds[a], kinds[b], chart ? "a" : "no");
            if (chart) *strstr(chart, "</figure>") = 0;
            if (chart && !strstr(chart, watched ? ">time<" : ">step<"))
                fail_msg("%s and %s: over what?", kinds[a], kinds[b]);
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
            snprintf(line, sizeof line,
                     "{\"t\":\"step\",\"step\":%d,\"loss\":%g,\"ms\":10,\"%ss\":%d,\"%ss_per_s\":640}\n", i,
                     5 - 0.05 * i, unit, 64 * i, unit);
            put(runs[k], "log.jsonl", line);
        }
        put(runs[k], "events.jsonl",
            "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"resume\",\"step\":20,\"text\":\"x\"}\n");
    }
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++) {
            bool same = a / 2 == b / 2;
            char *page = render((const char *const[]){runs[a], runs[b]}, 2, &n),
                 *chart = strstr(page, ">Loss by amount of data</b>");
            assert_non_null(chart);
            assert_int_equal(count(page, "<line class=\"m\""), 0);
            assert_int_equal(count(page, ">Speed</b>"), !same);
            assert_int_equal(count(page, a < 2 ? ">Tokens per second</b>" : ">Samples per second</b>"), same);
            *strstr(chart, "</figure>") = 0;
            assert_int_equal(count(chart, "text-anchor=\"end\">samples or tokens</text>"), !same);
            assert_int_equal(
                count(chart, a < 2 ? "text-anchor=\"end\">tokens</text>" : "text-anchor=\"end\">samples</text>"), same);
            free(page);
        }
    char *one = render(&runs[0], 1, &n);
    assert_true(count(one, "<line class=\"m\"") > 0);
    free(one);
}

// Of events that are near each other all are lines; those are named for whose name there is room before the next.
static void names_of_events_do_not_meet(void **state) {
    enum { EVENTS = 45 };
    static const char tag[] = "<text class=\"n\" x=\"";
    char line[256];
    size_t n;
    (void)state;
    put_steps("near", 1000, 10, 0.001, 10000, false);
    for (int i = 1; i <= EVENTS; i++) {
        snprintf(
            line, sizeof line,
            "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"happened_%02d\",\"step\":%d,\"text\":\"x\"}\n",
            i, 20 * i);
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
            if (wide[i] != wide[0])
                fail_msg("a row of %d characters under a heading of %d:\n%s", wide[i], wide[0], text);
        free(text);
    }
}

// Where lists are full, and no more: nothing is said to be left out.
static void lists_that_are_just_full(void **state) {
    char line[256];
    size_t n;
    (void)state;
    for (int more = 0; more < 2; more++) {
        const char *dir = more ? "over" : "full";
        put_steps(dir, 30, 1, 0.05, 100, false);
        for (int i = 1; i <= RUNLOG_EVENTS + more; i++) {
            snprintf(line, sizeof line,
                     "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"k%d\",\"step\":%d,\"text\":\"x\"}\n",
                     i, i);
            put(dir, "events.jsonl", line);
            snprintf(line, sizeof line, "{\"t\":\"sample\",\"step\":%d,\"prompt\":\"p%d.\",\"text\":\"\"}\n", i, i);
            if (i <= RUNLOG_SAMPLES + more) put(dir, "log.jsonl", line);
        }
        char *page = render(&dir, 1, &n), *events = strstr(page, "<h2>Events</h2>");
        assert_int_equal(count(page, ">the last "), more);
        assert_int_equal(count(events, " UTC</td>"), RUNLOG_EVENTS);
        assert_int_equal(count(events, ">k1</td>"), !more);
        assert_int_equal(count(page, "<b>p1.</b>"), !more);
        assert_int_equal(count(page, "<details><summary>after step"), RUNLOG_SAMPLES - 1);
        free(page);
    }
}

// Rows of tiles are as long as each other, and none has one tile alone. The hash is of the step that had it.
static void tiles_in_rows(void **state) {
    size_t n;
    (void)state;
    for (int k = 0; k < 4; k++) {
        char dir[16];
        snprintf(dir, sizeof dir, "tiles%d", k);
        put_steps(dir, 30, 1, 0.05, 100, false);
        if (k > 0) put(dir, "log.jsonl", "{\"t\":\"checkpoint\",\"step\":20,\"hash\":\"0abc\"}\n");
        if (k > 1) put(dir, "log.jsonl", "{\"t\":\"eval\",\"step\":30,\"loss\":2}\n");
        if (k > 2) put(dir, "log.jsonl", "{\"t\":\"ranks\",\"step\":30,\"compute_ms\":[1,2]}\n");
        const char *const one = dir;
        char *page = render(&one, 1, &n), *list = strstr(page, "<dl style=\"--c:");
        assert_non_null(list);
        int columns = atoi(list + strlen("<dl style=\"--c:")), tiles = count(page, "<dt>"),
            rows = (tiles + columns - 1) / columns;
        assert_int_equal(tiles, 6 + k);
        if (columns > 7 || columns < 3 || (rows > 1 && tiles - columns * (rows - 1) < 2))
            fail_msg("%d tiles in rows of %d", tiles, columns);
        assert_int_equal(count(page, "<code>0abc</code><small>of step 20</small>"), k > 0);
        free(page);
    }
}

// Settings that differ stand under their class, which is named once. What a run does not have is a dash.
static void classes_of_settings(void **state) {
    static const char *const runs[] = {"sets1", "sets2"};
    size_t n;
    (void)state;
    put_steps("sets1", 4, 1, 0.05, 100, false);
    put_steps("sets2", 4, 1, 0.05, 100, false);
    put("sets1", "config.ini",
        "[run]\nsteps = 4 ; layout\n[optimizer]\nlr = 1 ; bits\nbeta1 = 0.8 ; bits\n[log]\nevery = 1 ; local\n[device]\nranks = 1 ; x\n");
    put("sets2", "config.ini",
        "[run]\nsteps = 5 ; layout\n[optimizer]\nlr = 2 ; bits\nbeta1 = 0.9 ; bits\n[log]\nevery = 2 ; local\n");
    char *page = render(runs, 2, &n), *at = strstr(page, "<h2>Settings that differ</h2>"),
         *text = compared("C", (char *[]){"sets1", "sets2"}, 2);
    static const char *const classes[] = {"bits: these decide the weights", "layout: how the work", "local: a node"};
    assert_non_null(at);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(count(at, classes[k]), 1);
        assert_int_equal(count(text, classes[k]), 1);
    }
    assert_non_null(strstr(
        at, "<code>optimizer.lr</code></th><td class=\"v\"><code>1</code></td><td class=\"v\"><code>2</code></td>"));
    assert_non_null(strstr(
        at, "<code>device.ranks</code></th><td class=\"v\"><code>1</code></td><td class=\"v\"><code>–</code></td>"));
    free(page);
    free(text);
}

// A node that has no log of steps has its machine's curves; a device or a CPU is named where there are several ranks,
// and a GPU always.
static void machines_and_devices(void **state) {
    static const struct {
        const char *ranks, *rows[2];
    } cases[] = {{"{\"rank\":0,\"host\":\"h\",\"device\":\"\"}", {NULL, NULL}},
                 {"{\"rank\":0,\"host\":\"h\",\"device\":\"g1\"}", {"rank 0</th><td class=\"v\">g1 on h</td>", NULL}},
                 {"{\"rank\":4,\"host\":\"h\",\"device\":\"\"},{\"rank\":5,\"host\":\"i\",\"device\":\"\"}",
                  {"rank 4</th><td class=\"v\">CPU on h</td>", "rank 5</th><td class=\"v\">CPU on i</td>"}}};
    char dir[16], text[512];
    size_t n;
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        snprintf(dir, sizeof dir, "node%zu", k);
        put(dir, "config.ini", "[run]\nsteps = 5 ; layout\n");
        put(dir, "machine.jsonl",
            "{\"t\":\"machine\",\"time\":1700000000,\"cpu\":1}\n{\"t\":\"machine\",\"time\":1700000010,\"cpu\":2}\n");
        snprintf(text, sizeof text, "{\"state\":\"training\",\"ranks\":[%s]}", cases[k].ranks);
        put(dir, "status.json", text);
        const char *const one = dir;
        char *page = render(&one, 1, &n);
        assert_int_equal(count(page, ">Processors in use</b>"), 1);
        for (int i = 0; i < 2; i++)
            if (cases[k].rows[i]) assert_non_null(strstr(page, cases[k].rows[i]));
        assert_int_equal(count(page, " on h</td>") + count(page, " on i</td>"),
                         (cases[k].rows[0] != NULL) + (cases[k].rows[1] != NULL));
        free(page);
    }
}

// Of three runs each is compared with the first one, has its own line in each table, and its own colour.
static void three_runs(void **state) {
    static const char *const runs[] = {"first", "other", "like first"};
    static const char *const rows[] = {
        "<th scope=\"row\">other</th><td>the same weights at step 9, others at step 10</td>",
        "<th scope=\"row\">like first</th><td>the same weights up to step 30, the last with a hash in both</td>"};
    char text[128], want[128];
    size_t n;
    (void)state;
    for (int k = 0; k < 3; k++) {
        put_steps(runs[k], 30 + k, 1, 0.05, k == 1 ? 10 : 100, true);
        snprintf(text, sizeof text, "[optimizer]\nlr = %d ; bits\n", 7 + k);
        put(runs[k], "config.ini", text);
    }
    char *page = render(runs, 3, &n), *part = strstr(page, "<h2>Where they part</h2>"),
         *curves = strstr(page, "<h2>Curves</h2>");
    assert_true(part && curves && strstr(page, "<title>first, other, like first – lockstep</title>") &&
                strstr(page, "<h1>3 runs</h1>"));
    for (int k = 0; k < 2; k++) assert_non_null(strstr(part, rows[k]));
    assert_non_null(
        strstr(part, "<code>7</code></td><td class=\"v\"><code>8</code></td><td class=\"v\"><code>9</code></td>"));
    char *at = page;
    for (int k = 0; k < 3; k++) {
        snprintf(want, sizeof want, "</svg>%s</th><td>not at its end</td><td>%d</td>", runs[k], 30 + k);
        at = strstr(at, want);
        assert_non_null(at);
        snprintf(want, sizeof want, "stroke=\"%s\"", (const char *const[]){"#0072B2", "#D55E00", "#009E73"}[k]);
        const char *colour = at;  // of the swatch before its name
        while (strncmp(colour, "stroke=", 7) != 0) colour--;
        assert_int_equal(strncmp(colour, want, strlen(want)), 0);
    }
    assert_true(count(curves, "#009E73") > 5);
    free(page);
}

// --- all that one run says -------------------------------------------------------------------------------------------

// Each tile of a page as "name: value (what is small)", a line each.
static void put_tiles(FILE *out, const char *page) {
    const char *at = strstr(page, "<dl "), *end = at ? strstr(at, "</dl>") : NULL;
    assert_non_null(end);
    for (; (at = strstr(at, "<dt>")) != NULL && at < end; at++) {
        const char *value = strstr(at, "<dd>") + 4, *stop = strstr(value, "</dd>"), *small = strstr(value, "<small>");
        if (strncmp(value, "<code>", 6) == 0) value += 6;
        fprintf(out, "%.*s: %.*s", (int)(strstr(at, "</dt>") - at - 4), at + 4, (int)strcspn(value, "<"), value);
        if (small && small < stop) fprintf(out, " (%.*s)", (int)strcspn(small + 7, "<"), small + 7);
        fputc('\n', out);
    }
}

// Each row of the table under a heading, a line each; without the directory, which is another one each time.
static void put_rows(FILE *out, const char *page, const char *heading) {
    char cell[CELLS][64];
    const char *at = strstr(page, heading), *end = at ? strstr(at, "</table>") : NULL;
    assert_non_null(end);
    fprintf(out, "%s\n", heading);
    for (; (at = strstr(at, "<tr>")) != NULL && at < end; at++) {
        int n = cells(at, cell);
        for (int i = 0; i < n && strcmp(cell[0], "directory") != 0; i++)
            fprintf(out, "%s%s%s", i ? " | " : "", cell[i], i + 1 < n ? "" : "\n");
    }
}

// A run of which no two numbers are alike, and what its page says of it outside the charts.
static void every_number_in_its_place(void **state) {
    static const struct {
        const char *loss, *evals, *steps, *want;  // loss: of the seventh step, the lowest; NULL: no step has one
    } cases[] = {
        {"2.5", "{\"t\":\"eval\",\"step\":20,\"loss\":2.25}\n{\"t\":\"eval\",\"step\":28,\"loss\":2.75}\n", "40",
         "Steps: 30 (of 40)\nTraining loss: 3.5 (lowest 2.5 at step 7)\nValidation loss: 2.75 (best 2.25 at step 20)\n"},
        // the best is of a life before
        {"2.5", "{\"t\":\"eval\",\"step\":28,\"loss\":2.75,\"best\":1.5,\"best_step\":4}\n", "40",
         "Steps: 30 (of 40)\nTraining loss: 3.5 (lowest 2.5 at step 7)\nValidation loss: 2.75 (best 1.5 at step 4)\n"},
        {"2.5", "", NULL, "Steps: 30\nTraining loss: 3.5 (lowest 2.5 at step 7)\n"},
        {NULL, "{\"t\":\"eval\",\"step\":28,\"loss\":2.75}\n", "40",
         "Steps: 30 (of 40)\nTraining loss: –\nValidation loss: 2.75 (best 2.75 at step 28)\n"},
    };
    static const char rest[] =
        "Data: 1.92k (tokens)\n"
        "Tokens per second: 1k (10 to 90 %: 994 to 2k)\n"
        "Share of the peak: 25.5 % (model FLOPs; 10 to 90 %: 25.1 % to 50.6 %)\n"
        "Time in steps: 6 s\n"
        "Skipped steps: 2\n"
        "Ranks: 3\n"
        "Hash of the weights: 0abc (of step 25)\n"
        "<h2>Hardware and build</h2>\n"
        "machine | box\n"
        "ranks | 3\n"
        "rank 0 | g0 on h0\n"
        "rank 1 | g1 on h1\n"
        "rank 2 | CPU on h2\n"
        "device | cuda of some kind\n"
        "compute type | bf16\n"
        "nodes | 5\n"
        "build, hash of the settings, hash of the data | lockstep 0.1.0 abc  config 0123  data 4567\n"
        "forked from | runs/old, step 5\n"
        "<h2>Settings that differ from the defaults</h2>\n"
        "setting | value | default | class\n"
        "precision.compute | bf16 | fp32 | bits\n"
        "unknown.key | 6 | – | local\n"
        "cluster.nodes | 5 |  | layout\n";
    char dir[16], line[512], *text = NULL, want[2048];
    size_t n;
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        snprintf(dir, sizeof dir, "says%zu", k);
        put(dir, "config.ini",
            "# lockstep 0.1.0 abc  config 0123  data 4567\n# machine box  device cuda of some kind\n[precision]\ncompute = bf16 ; bits x\n"
            "[unknown]\nkey = 6 ; local x\n[cluster]\nnodes = 5 ; local x\n");
        snprintf(line, sizeof line, "[run]\nsteps = %s ; layout default, chosen\n",
                 cases[k].steps ? cases[k].steps : "");
        if (cases[k].steps) put(dir, "config.ini", line);
        for (int i = 1; i <= 30; i++) {
            bool odd = i > 25;
            snprintf(
                line, sizeof line,
                "{\"t\":\"step\",\"step\":%d,\"loss\":%s,\"ms\":200,\"tokens\":%d,\"tokens_per_s\":%d,\"mfu\":%g,\"skipped\":%s}\n",
                i,
                !cases[k].loss ? "null"
                : i == 7       ? cases[k].loss
                               : "3.5",
                64 * i, odd ? 2000 : 1000, odd ? 0.5 : 0.25, i == 3 || i == 5 ? "true" : "false");
            put(dir, "log.jsonl", line);
        }
        put(dir, "log.jsonl", cases[k].evals);
        put(dir, "log.jsonl",
            "{\"t\":\"checkpoint\",\"step\":25,\"hash\":\"0abc\"}\n{\"t\":\"ranks\",\"step\":30,\"compute_ms\":[1,2,3]}\n");
        put(dir, "events.jsonl",
            "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"forked\",\"step\":5,\"text\":\"from runs/old, step 5\"}\n");
        put(dir, "status.json",
            "{\"state\":\"training\",\"host\":\"other\",\"world\":3,\"ranks\":[{\"rank\":0,\"host\":\"h0\",\"device\":\"g0\"},"
            "{\"rank\":1,\"host\":\"h1\",\"device\":\"g1\"},{\"rank\":2,\"host\":\"h2\",\"device\":\"\"}]}");
        const char *const one = dir;
        char *page = render(&one, 1, &n);
        FILE *out = open_memstream(&text, &n);
        put_tiles(out, page), put_rows(out, page, "<h2>Hardware and build</h2>");
        put_rows(out, page, "<h2>Settings that differ from the defaults</h2>");
        fclose(out);
        snprintf(want, sizeof want, "%s%s", cases[k].want, rest);
        assert_string_equal(text, want);
        free(text), free(page);
    }
}

// Products are named beside the type where they are not FP32's; a run of an older build knows none.
static void products_are_named(void **state) {
    static const char *const cases[][2] = {
        {"", "compute type | bf16\n"},
        {"products = fp32 ; bits default\n", "compute type | bf16\n"},
        {"products = bf16-pairs ; bits x\n", "compute type | bf16, products bf16-pairs\n"}};
    char dir[16], ini[128], *text = NULL;
    size_t n;
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        snprintf(dir, sizeof dir, "pairs%zu", k);
        snprintf(ini, sizeof ini, "[precision]\ncompute = bf16 ; bits x\n%s", cases[k][0]);
        put_steps(dir, 30, 1, 0.05, 100, true);
        put(dir, "config.ini", ini);
        const char *const one = dir;
        char *page = render(&one, 1, &n);
        FILE *out = open_memstream(&text, &n);
        put_rows(out, page, "<h2>Hardware and build</h2>");
        fclose(out);
        assert_non_null(strstr(text, cases[k][1]));
        free(text), free(page);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_A_DIRECTORY(the_newest_first),
        IN_A_DIRECTORY(beside_each_other),
        IN_A_DIRECTORY(in_a_terminal),
        IN_A_DIRECTORY(values_from_end_to_end),
        IN_A_DIRECTORY(names_of_events_do_not_meet),
        IN_A_DIRECTORY(columns_line_up),
        IN_A_DIRECTORY(a_skipped_step_is_seen),
        IN_A_DIRECTORY(clipped_where),
        IN_A_DIRECTORY(power_of_those_that_have_it),
        IN_A_DIRECTORY(who_is_who),
        IN_A_DIRECTORY(nothing_beyond_the_run),
        IN_A_DIRECTORY(units_and_events_of_several),
        IN_A_DIRECTORY(lists_that_are_just_full),
        IN_A_DIRECTORY(tiles_in_rows),
        IN_A_DIRECTORY(three_runs),
        IN_A_DIRECTORY(classes_of_settings),
        IN_A_DIRECTORY(machines_and_devices),
        IN_A_DIRECTORY(every_number_in_its_place),
        IN_A_DIRECTORY(products_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
