// test/test_plots.c: what each chart of a page says of runs of which no two numbers are alike: its title and note, what
// its axis counts, and of each curve where it begins and ends, and its extremes. (How a page looks is in
// test/test_page.c, what is written around its charts in test/test_page_says.c.)
#include "test/support/page.h"

#include "trainer/report/chart.h"

#include <math.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

// --- runs ------------------------------------------------------------------------------------------------------------

// What a run logs at step `i`. Of run `k` each number is higher by a share of it than of the run before.
static void log_step(const char *dir, int i, double more, const char *unit) {
    char line[1024];
    snprintf(
        line, sizeof line,
        "{\"t\":\"step\",\"step\":%d,\"loss\":%g,\"grad_norm\":%g,\"lr\":%g,\"%ss\":%d,\"ms\":%g,\"%ss_per_s\":%g,\"mfu\":%g,\"data_wait_ms\":%g,"
        "\"comm_wait_ms\":%g,\"comm_hidden\":%g,\"loss_scale\":%g,\"skipped\":%s,\"resident\":%g,\"device_bytes\":%g,\"time\":%g}\n",
        i, more * (5 - 0.05 * i), more * (1 + 0.01 * i), more * 1e-3 * i, unit, 64 * i, more * 100, unit,
        more * (600 + i), more * (0.3 + 1e-3 * i), more * 10, more * 20, more * (0.5 + 0.01 * i),
        more * (i < 20 ? 1024 : 2048), i == 7 ? "true" : "false", more * (1e9 + 1e7 * i), more * (2e9 + 1e7 * i),
        1000 + more * i);
    put(dir, "log.jsonl", line);
}

static void put_all(const char *dir, double more) {
    char line[1024];
    for (int i = 1; i <= 40; i++) {
        log_step(dir, i, more, "token");
        if (i % 20) continue;
        double e = i / 20;
        snprintf(
            line, sizeof line,
            "{\"t\":\"eval\",\"step\":%d,\"loss\":%g,\"accuracy\":%g,\"bits_per_byte\":%g,\"acc\":%g,\"acc_norm\":%g}\n",
            i, more * (5 - e), more * 0.2 * e, more * (2 - 0.5 * e), more * 0.1 * e, more * 0.15 * e);
        put(dir, "log.jsonl", line);
        snprintf(
            line, sizeof line,
            "{\"t\":\"power\",\"step\":%d,\"joules_per_token\":%g,\"devices\":[{\"rank\":0,\"watts\":%g,\"celsius\":%g,\"mhz\":%g}]}\n",
            i, more * e, more * 200 * e, more * 30 * e, more * 1000 * e);
        put(dir, "log.jsonl", line);
    }
}

// Ranks that wait for each other, for data and for a processor.
static void put_ranks(const char *dir, int step, double more) {
    char line[512];
    snprintf(
        line, sizeof line,
        "{\"t\":\"ranks\",\"step\":%d,\"compute_ms\":[%g,%g],\"data_ms\":[1,2],\"wait_ms\":[3,4],\"before_ms\":[5,6],\"after_ms\":[7,8],"
        "\"tensor_ms\":[9,10]}\n",
        step, more * 40, more * 60);
    put(dir, "log.jsonl", line);
}

static void put_machine(const char *dir, double more) {
    char line[1024];
    for (int i = 0; i < 3; i++) {
        double m = more * (i + 1);
        snprintf(
            line, sizeof line,
            "{\"t\":\"machine\",\"time\":%d,\"disk_free\":%g,\"disk_read_per_s\":%g,\"disk_written_per_s\":%g,\"cpu\":%g,\"ranks\":[{\"rank\":0,"
            "\"watts\":%g,\"watts_max\":%g,\"celsius\":%g,\"mhz\":%g,\"utilisation\":%g,\"starved\":%g,\"resident\":%g,\"device_used\":%g}]}\n",
            1700000000 + 10 * i, 5e9 * m, 1e6 * m, 2e6 * m, m, 100 * m, 120 * m, 20 * m, 500 * m, 0.2 * m, 0.1 * m,
            1e8 * m, 3e8 * m);
        put(dir, "machine.jsonl", line);
    }
}

// Of three days: samples, a loss and a norm with a spike, evaluations at every fifth step, events that are near each
// other.
static void put_long(const char *dir) {
    enum { STEPS = 1300 };
    char line[512];
    put(dir, "config.ini", "[run]\nsteps = 2000 ; layout x\n[optimizer]\ngrad_clip = 0.5 ; bits x\n");
    for (int i = 1; i <= STEPS; i++) {
        bool odd = i == 77 || i == 1290;
        snprintf(
            line, sizeof line,
            "{\"t\":\"step\",\"step\":%d,\"loss\":%g,\"grad_norm\":%g,\"samples\":%d,\"ms\":200000,\"samples_per_s\":%g,\"skipped\":%s}\n",
            i, odd ? 20.0 : 4 - 0.001 * i, odd ? 50 : 1.0 / i, 8 * i, odd ? 10 : 100.0 + i % 100,
            odd ? "true" : "false");
        put(dir, "log.jsonl", line);
        snprintf(line, sizeof line, "{\"t\":\"eval\",\"step\":%d,\"loss\":%g}\n", i, 5 - 0.001 * i);
        if (i % 5 == 0) put(dir, "log.jsonl", line);
    }
    for (int i = 0; i < 5; i++) {
        static const int at[] = {0, 100, 103, 500, 1300};
        static const char *const kinds[] = {"resume", "unhang", "hang", "stop", "<b>"};
        snprintf(line, sizeof line,
                 "{\"t\":\"event\",\"at\":\"2023-11-14T22:13:%02dZ\",\"kind\":\"%s\",\"step\":%d,\"text\":\"x\"}\n",
                 20 + 5 * i, kinds[i], at[i]);
        put(dir, "events.jsonl", line);
    }
    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line, "{\"t\":\"machine\",\"time\":%d,\"cpu\":%d}\n", 1700000000 + 10 * i, i + 1);
        put(dir, "machine.jsonl", line);
    }
}

// --- charts ----------------------------------------------------------------------------------------------------------

// Each text that stands between two marks, up to `end`, after a word of what they are; none: nothing.
static void put_each(FILE *out, const char *what, const char *at, const char *end, const char *from, const char *to) {
    int n = 0;
    for (const char *stop; (at = strstr(at, from)) != NULL && at < end; at = stop) {
        at += strlen(from);
        stop = strstr(at, to);
        fprintf(out, "%s%.*s", n++ ? " | " : what, (int)(stop - at), at);
    }
    if (n) fputc('\n', out);
}

// What one reads of each chart of a page: its title, note and curves; the columns of its table; its axes; its events.
static void put_charts(FILE *out, const char *const *dirs, int n) {
    size_t bytes;
    char *page = render(dirs, n, &bytes);
    for (const char *at = page, *end; (at = strstr(at, "<figure")) != NULL; at = end) {
        end = strstr(at, "</figure>");
        const char *svg = strstr(at, "<svg class=\"p\""), *table = strstr(at, "<summary>Values");
        put_each(out, "", strstr(at, "<b id="), strstr(at, "</b>"), "\">", "</b>");
        put_each(out, "  note: ", at, svg, "<small>", "</small>");
        put_each(out, "  legend: ", at, strstr(at, "</figcaption>"), "</svg>", "</span>");
        put_each(out, "  says: ", strchr(strstr(svg, "<desc id="), '>'), strstr(svg, "</desc>"), ">", "</desc>");
        put_each(out, "  columns: ", table, end, "<th scope=\"col\">", "</th>");
        put_each(out, "  x: ", svg, table, "text-anchor=\"middle\">", "</text>");
        put_each(out, "  of: ", svg, table, "text-anchor=\"end\">step", "</text>");
        put_each(out, "  of: ", svg, table, "text-anchor=\"end\">time", "</text>");
        put_each(out, "  y: ", svg, table, "<text x=\"-7\" y=\"", "</text>");
        put_each(out, "  rules: ", svg, table, "<text class=\"r\" x=\"100%\" dx=\"-2\" y=\"", "</text>");
        put_each(out, "  lines: ", svg, table, "<path fill=\"none\" stroke=\"", "\"non-scaling-stroke\" d=");
        put_each(out, "  bands: ", svg, table, "<path class=\"q\" fill=\"", "\" d=");
        put_each(out, "  areas: ", svg, table, "<path class=\"a\" fill=\"", "\"/>");
        put_each(out, "  events: ", svg, table, "<line class=\"m\" x1=\"", "</title>");
    }
    free(page);
}

static void charts(void **state) {
    static const char *const two[] = {"one", "two"};
    char *text = NULL;
    size_t n;
    (void)state;
    FILE *out = open_memstream(&text, &n);
    put_all("one", 1);
    put_charts(out, two, 1);
    put_machine("one", 1), put_ranks("one", 20, 1), put_ranks("one", 40, 2);
    fprintf(out, "--- with a watcher\n");
    put_charts(out, two, 1);
    put_all("two", 2), put_machine("two", 2), put_ranks("two", 20, 2);
    fprintf(out, "--- beside another\n");
    put_charts(out, two, 2);
    put_long("long");
    fprintf(out, "--- a long one\n");
    put_charts(out, (const char *const[]){"long"}, 1);
    fclose(out);
    same_as("charts.txt", text, n);
    free(text);
}

// The titles, notes, axes and rules of a page's charts.
static char *frames_of(const char *const *dirs, int n) {
    size_t bytes;
    char *page = render(dirs, n, &bytes), *text = NULL;
    FILE *out = open_memstream(&text, &bytes);
    for (const char *at = page, *end; (at = strstr(at, "<figure")) != NULL; at = end) {
        end = strstr(at, "</figure>");
        const char *svg = strstr(at, "<svg class=\"p\""), *table = strstr(at, "<summary>Values");
        put_each(out, "", strstr(at, "<b id="), strstr(at, "</b>"), "\">", "</b>");
        put_each(out, "  note: ", at, svg, "<small>", "</small>");
        put_each(out, "  x: ", svg, table, "text-anchor=\"middle\">", "</text>");
        put_each(out, "  of: ", svg, table, "text-anchor=\"end\">", "</text>");
        put_each(out, "  y: ", svg, table, "<text x=\"-7\" y=\"", "</text>");
    }
    fclose(out);
    free(page);
    return text;
}

// Charts, and their axes, are those that all of the runs need, whichever of them is named first.
static void whichever_is_first(void **state) {
    static const char *const runs[] = {"rich", "bare", "spiky", "short"};
    char line[256];
    (void)state;
    put_all("rich", 1), put_machine("rich", 1);
    for (int i = 1; i <= 60; i++) {
        snprintf(line, sizeof line,
                 "{\"t\":\"step\",\"step\":%d,\"loss\":3,\"grad_norm\":1,\"loss_scale\":8,\"tokens\":%d,\"ms\":10}\n",
                 i, i);
        put("bare", "log.jsonl", line);
        if (i <= 4) put("short", "log.jsonl", line);
        snprintf(line, sizeof line,
                 "{\"t\":\"step\",\"step\":%d,\"loss\":-1,\"grad_norm\":%d,\"loss_scale\":4,\"tokens\":%d,\"ms\":10}\n",
                 i, i == 9 ? 900 : 2, i);
        if (i <= 30) put("spiky", "log.jsonl", line);
    }
    put("bare", "machine.jsonl",
        "{\"t\":\"machine\",\"time\":1700000000,\"cpu\":1,\"ranks\":[{\"rank\":0,\"starved\":0.01}]}\n");
    for (int a = 0; a < 4; a++)
        for (int b = a + 1; b < 4; b++) {
            char *one = frames_of((const char *const[]){runs[a], runs[b]}, 2),
                 *other = frames_of((const char *const[]){runs[b], runs[a]}, 2);
            if (strcmp(one, other) != 0)
                fail_msg("%s and %s:\n%s\n%s and %s:\n%s", runs[a], runs[b], one, runs[b], runs[a], other);
            free(one), free(other);
        }
}

// A loss scale stays as it is until it changes: stairs, of each run.
static void stairs(void **state) {
    static const char *const two[] = {"one", "two"};
    size_t n;
    (void)state;
    put_all("one", 1), put_all("two", 2);
    for (int runs = 1; runs <= 2; runs++) {
        char *page = render(two, runs, &n), *at = strstr(page, ">Loss scale</b>");
        assert_non_null(at);
        *strstr(at, "</figure>") = 0;
        int curves = 0;
        for (; (at = strstr(at, "non-scaling-stroke\" d=\"M")) != NULL; curves++) {
            at += strlen("non-scaling-stroke\" d=\"M");
            *strchr(at, '"') = 0;
            assert_int_equal(count(at, "v"), 1);
            assert_int_equal(count(at, "l"), 0);
            at += strlen(at) + 1;
        }
        assert_int_equal(curves, runs);
        free(page);
    }
}

// A time axis counts in what it is long enough for.
static void units_of_time(void **state) {
    static const struct {
        double s;  // that a step takes; there are ten
        const char *unit;
    } cases[] = {{1, "s"}, {17, "s"}, {19, "min"}, {1000, "min"}, {1200, "h"}, {25000, "h"}, {27000, "d"}};
    char dir[16], line[128], want[64];
    size_t n;
    (void)state;
    for (size_t k = 0; k < COUNT(cases); k++) {
        snprintf(dir, sizeof dir, "time%zu", k);
        for (int i = 1; i <= 10; i++) {
            snprintf(line, sizeof line, "{\"t\":\"step\",\"step\":%d,\"loss\":2,\"ms\":%g}\n", i, 1e3 * cases[k].s);
            put(dir, "log.jsonl", line);
        }
        const char *const one = dir;
        char *page = render(&one, 1, &n), *at = strstr(page, ">Loss by time</b>");
        assert_non_null(at);
        *strstr(at, "<summary>") = 0;
        snprintf(want, sizeof want, "text-anchor=\"end\">time, %s</text>", cases[k].unit);
        assert_non_null(strstr(at, want));
        double last = 0, end = 10 * cases[k].s /
                               (cases[k].unit[0] == 's'   ? 1
                                : cases[k].unit[0] == 'm' ? 60
                                : cases[k].unit[0] == 'h' ? 3600
                                                          : 86400);
        for (const char *tick = at; (tick = strstr(tick, "text-anchor=\"middle\">")) != NULL;)
            last = strtod(tick += 21, NULL);
        if (!(last > 0.5 * end && last <= 1.01 * end))
            fail_msg("%g s: the last tick is %g of %g", cases[k].s, last, end);
        free(page);
    }
}

// The colours of ranks follow from how their time compares with the median; what no record tells is as in the next one.
static void colours_of_ranks(void **state) {
    static const struct {
        double ratio;
        const char *colour, *opacity;
    } rows[] = {{1.51, "#D55E00", "1"},  {1.49, "#D55E00", ".75"}, {1.26, "#D55E00", ".75"}, {1.24, "#D55E00", ".5"},
                {1.11, "#D55E00", ".5"}, {1.09, "#D55E00", ".25"}, {1.05, "#D55E00", ".25"}, {1.03, NULL, NULL},
                {1, NULL, NULL},         {1, NULL, NULL},          {0.99, NULL, NULL},       {0.98, NULL, NULL},
                {0.97, NULL, NULL},      {0.95, "#0072B2", ".4"},  {0.91, "#0072B2", ".4"},  {0.89, "#0072B2", ".8"},
                {0.5, "#0072B2", ".8"}};
    enum { ROWS = COUNT(rows) };
    static const int at[] = {4, 10, 11};  // steps; of the second one the order is the other way round
    char line[512], want[64];
    size_t n;
    (void)state;
    put("ranks", "log.jsonl", "{\"t\":\"step\",\"step\":12,\"loss\":1}\n");
    for (size_t k = 0; k < COUNT(at); k++) {
        int size = sprintf(line, "{\"t\":\"ranks\",\"step\":%d,\"compute_ms\":[", at[k]);
        for (int i = 0; i < ROWS; i++)
            size += sprintf(line + size, "%s%g", i ? "," : "", 1000 * rows[k == 1 ? ROWS - 1 - i : i].ratio);
        sprintf(line + size, "]}\n");
        put("ranks", "log.jsonl", line);
    }
    char *page = render((const char *const[]){"ranks"}, 1, &n), *svg = strstr(page, "<svg viewBox=\"0 0 110 170\"");
    assert_non_null(svg);
    for (int i = 0; i < ROWS; i++) {  // the table has each rank's mean and its largest
        double a = rows[i].ratio, b = rows[ROWS - 1 - i].ratio, mean, most;
        snprintf(want, sizeof want, "<th scope=\"row\">%d</th>", i);
        const char *cell = strstr(svg, want);
        if (!cell || sscanf(cell + strlen(want), "<td>%lf</td><td>%lf</td>", &mean, &most) != 2)
            fail_msg("rank %d has no row", i);
        else if (fabs(mean - (2 * a + b) / 3) > 0.0011 || fabs(most - fmax(a, b)) > 0.0011)
            fail_msg("rank %d: %g, at most %g", i, mean, most);
    }
    *strstr(svg, "</svg>") = 0;
    for (int i = 0; i < ROWS; i++)
        for (size_t k = 0; k < COUNT(at); k++) {
            int from = k == 0 ? 0 : 10 * at[k - 1], wide = 10 * at[k] - from, row = k == 1 ? ROWS - 1 - i : i;
            snprintf(want, sizeof want, "M%d %dh%dv10h-%dz", from, 10 * row, wide, wide);
            const char *found = strstr(svg, want), *fill = svg, *next = svg;
            if ((found != NULL) != (rows[i].colour != NULL))
                fail_msg("ratio %g, step %d: %s", rows[i].ratio, at[k], found ? "coloured" : "not");
            while (found && (next = strstr(next, "<path fill=")) != NULL && next < found) fill = next++;
            snprintf(want, sizeof want, "<path fill=\"%s\" fill-opacity=\"%s\" d=", rows[i].colour, rows[i].opacity);
            if (found && strncmp(fill, want, strlen(want)) != 0) fail_msg("ratio %g: %.50s", rows[i].ratio, fill);
        }
    free(page);
}

// What the watcher saw stands at the time when it saw it, however many steps there were.
static void time_of_the_machine(void **state) {
    enum { LOOKS = 200, EVERY_S = 30 };  // 99 minutes
    static const char *const titles[] = {
        "Memory", "Power", "Temperature", "Clock", "Utilisation", "Processors in use", "Free disk", "Disk traffic"};
    static const int steps[] = {3, 40, 5000};
    char line[1024], dir[16], want[64];
    size_t n;
    (void)state;
    for (size_t k = 0; k < COUNT(steps); k++) {
        snprintf(dir, sizeof dir, "watched%d", steps[k]);
        for (int i = 1; i <= 3; i++) {
            snprintf(line, sizeof line, "{\"t\":\"step\",\"step\":%d,\"loss\":2,\"ms\":100}\n", i * steps[k] / 3);
            put(dir, "log.jsonl", line);
        }
        for (int i = 0; i < LOOKS; i++) {
            snprintf(
                line, sizeof line,
                "{\"t\":\"machine\",\"time\":%d,\"disk_free\":%d,\"disk_read_per_s\":%d,\"disk_written_per_s\":%d,\"cpu\":%d,\"ranks\":[{\"rank\":0,"
                "\"watts\":%d,\"celsius\":%d,\"mhz\":%d,\"utilisation\":0.5,\"resident\":%d,\"device_used\":%d}]}\n",
                1700000000 + EVERY_S * i, i, i, i, i, i, i, i, i, i);
            put(dir, "machine.jsonl", line);
        }
        const char *const one = dir;
        char *page = render(&one, 1, &n);
        for (size_t i = 0; i < COUNT(titles); i++) {
            snprintf(want, sizeof want, "\">%s</b>", titles[i]);
            char *says = strstr(page, want);
            says = says ? strstr(says, "<desc ") : NULL;
            assert_non_null(says);
            char *end = strstr(says, "</desc>");
            *end = 0;
            if (!count(says, ": from ") || count(says, ": from ") != count(says, " at 99 min "))
                fail_msg("%d steps, %s: %s", steps[k], titles[i], says);
            *end = '<';
        }
        free(page);
    }
}

// Of several runs one is other than the rest: what it changes, it changes wherever it stands among them.
static void wherever_it_stands(void **state) {
    static const char *const odd[] = {"rich", "samples", "clipped", "scaled", "spiked", "starved", "longer"};
    enum { RUNS = 4 };
    char line[512], same[RUNS][8];
    (void)state;
    put_all("rich", 1), put_machine("rich", 1);
    for (size_t k = 0; k < COUNT(odd) + RUNS; k++) {
        bool plain = k >= COUNT(odd);
        const char *dir = plain ? same[k - COUNT(odd)] : odd[k];
        if (plain) snprintf(same[k - COUNT(odd)], sizeof *same, "same%zu", k - COUNT(odd));
        for (int i = 1; i <= (k == 6 ? 90 : 40) && k > 0; i++) {
            const char *unit = k == 1 ? "sample" : "token";
            snprintf(
                line, sizeof line,
                "{\"t\":\"step\",\"step\":%d,\"loss\":%g,\"grad_norm\":%d,\"loss_scale\":%d,\"%ss\":%d,\"%ss_per_s\":640,\"ms\":10}\n",
                i, 5 - 0.05 * i, k == 4 && i == 9 ? 900 : 1, k == 3 && i > 20 ? 16 : 8, unit, 64 * i, unit);
            put(dir, "log.jsonl", line);
        }
        put(dir, "config.ini",
            k == 2 ? "[optimizer]\ngrad_clip = 1.5 ; bits x\n" : "[optimizer]\ngrad_clip = 1 ; bits x\n");
        if (k == 5)
            put(dir, "machine.jsonl",
                "{\"t\":\"machine\",\"time\":1700000000,\"ranks\":[{\"rank\":0,\"starved\":0.5}]}\n");
    }
    const char *plain[RUNS];
    for (int i = 0; i < RUNS; i++) plain[i] = same[i];
    char *without = frames_of(plain, RUNS);
    for (size_t k = 0; k < COUNT(odd); k++) {
        char *first = NULL;
        for (int at = 0; at < RUNS; at++) {
            const char *runs[RUNS];
            for (int i = 0; i < RUNS; i++) runs[i] = i == at ? odd[k] : same[i];
            char *found = frames_of(runs, RUNS);
            if (strcmp(found, without) == 0) fail_msg("%s changes nothing at place %d", odd[k], at);
            if (first && strcmp(found, first) != 0)
                fail_msg("%s at place %d:\n%s\nat the first:\n%s", odd[k], at, found, first);
            if (first) free(found);
            else first = found;
        }
        free(first);
    }
    free(without);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_A_DIRECTORY(charts),
        IN_A_DIRECTORY(whichever_is_first),
        IN_A_DIRECTORY(stairs),
        IN_A_DIRECTORY(units_of_time),
        IN_A_DIRECTORY(colours_of_ranks),
        IN_A_DIRECTORY(time_of_the_machine),
        IN_A_DIRECTORY(wherever_it_stands),
    };
    return cmocka_run_group_tests_name("plots", tests, NULL, NULL);
}
