// test/test_page_many.c: a page of as many runs as there may be, and of runs with many ranks.
#include "test/support/page.h"

// The line of a legend or a table that stands before this name: how the run's curves are drawn. "": it is not named
// here.
static void swatch_of(char dst[256], const char *at, const char *end, const char *name) {
    char want[32];
    snprintf(want, sizeof want, "</svg>%s<", name);
    const char *found = strstr(at, want), *from = found;
    *dst = 0;
    if (!found || found > end) return;
    while (strncmp(from, "<svg ", 5) != 0) from--;
    snprintf(dst, 256, "%.*s", (int)(found - from), from);
}

// Each is known by its line, which is no other's, wherever it is named; and stands beside the first in words and
// settings.
static void as_many_runs_as_there_may_be(void **state) {
    char name[REPORT_RUNS][8], *dirs[REPORT_RUNS], line[REPORT_RUNS][256], again[256], cell[CELLS][64], text[128];
    size_t n;
    (void)state;
    for (int k = 0; k < REPORT_RUNS; k++) {
        snprintf(name[k], sizeof name[k], "run%02d", k);
        put_steps(dirs[k] = name[k], 30, 1, 0.05, k ? 5 + k : 100, true);
        snprintf(text, sizeof text, "[optimizer]\nlr = %d ; bits\n", 100 + k);
        put(name[k], "config.ini", text);
        put(name[k], "log.jsonl", "{\"t\":\"eval\",\"step\":20,\"loss\":2}\n");
    }
    char *page = render((const char *const *)dirs, REPORT_RUNS, &n), *said = compared("C", dirs, REPORT_RUNS);
    const char *top = strstr(page, "<table><tr>"), *curves = strstr(page, "<h2>Curves</h2>");
    const char *part = strstr(page, "<h2>Where they part</h2>"), *beside = strstr(said, "\nbeside A\n");
    const char *setting = strstr(page, "optimizer.lr"), *set = strstr(said, "\n  optimizer.lr");
    assert_true(top && curves && part && setting && beside && set);
    while (strncmp(setting, "<tr>", 4) != 0) setting--;
    assert_int_equal(cells(setting, cell), REPORT_RUNS + 1);
    for (int k = 0; k < REPORT_RUNS; k++) {
        swatch_of(line[k], top, part, name[k]);
        swatch_of(again, curves, strstr(curves, "</figure>"), name[k]);
        assert_true(*line[k] && strcmp(again, line[k]) == 0);
        for (int i = 0; i < k; i++)
            if (strcmp(line[i], line[k]) == 0) fail_msg("%s and %s have one line: %s", name[i], name[k], line[k]);
        char *stroke = strstr(again, "stroke=");  // its curve is drawn as its swatch is
        stroke[strcspn(stroke, "/")] = 0;
        const char *dash = strstr(stroke, "stroke-dasharray");
        for (const char *at = strstr(curves, "<path fill=\"none\""); dash && at;
             at = strstr(at + 1, "<path fill=\"none\"")) {
            const char *stop = strchr(at, '>');
            const char *colour = strstr(at, "stroke=\"#"), *found = strstr(at, dash);
            if (found && found < stop && strncmp(colour, stroke, strlen("stroke=\"#000000\"")) == 0) dash = NULL;
        }
        if (dash) fail_msg("no curve is drawn with %s", stroke);
        snprintf(text, sizeof text, "%d", 100 + k);
        assert_string_equal(cell[k + 1], text);
        snprintf(text, sizeof text, " %c  %d\n", 'A' + k, 100 + k);
        if (!strstr(set, text)) fail_msg("no \"%s\" in:%s", text, set);
        snprintf(text, sizeof text, "\n%c  %s ", 'A' + k, name[k]);
        assert_int_equal(count(said, text), 1);
        if (k == 0) continue;
        snprintf(text, sizeof text, "%s</th><td>the same weights at step %d, others at step %d<", name[k], 4 + k,
                 5 + k);
        if (!strstr(part, text)) fail_msg("no \"%s\"", text);
        snprintf(text, sizeof text, "\n%c  the same weights at step %d, others at step %d\n", 'A' + k, 4 + k, 5 + k);
        if (!strstr(beside, text)) fail_msg("no \"%s\" in:%s", text, beside);
    }
    // evaluations and skipped steps of all of them
    char *norm = strstr(page, ">Gradient norm</b>"), *end = strstr(curves, "</figure>");
    *end = 0, *strstr(norm, "</figure>") = 0;
    assert_int_equal(count(curves, "stroke-linecap=\"round\""), REPORT_RUNS);
    assert_int_equal(count(norm, "skipped steps at 1 places. "), REPORT_RUNS);
    free(page), free(said);
}

// And no more: one too many is refused before any is read.
static void no_more_than_there_may_be(void **state) {
    char *argv[REPORT_RUNS + 3], *page;
    runlog *runs[REPORT_RUNS + 1] = {0};
    size_t n;
    (void)state;
    FILE *out = fopen("/dev/null", "w");
    assert_non_null(out);
    put_steps("one", 4, 1, 0.05, 100, false);
    for (int i = 0; i < REPORT_RUNS + 3; i++) argv[i] = "one";
    OK(verb_report(REPORT_RUNS, argv, out));
    OK(verb_compare(REPORT_RUNS, argv, out));
    for (int more = 1; more <= 3; more++) {
        assert_int_equal(verb_report(REPORT_RUNS + more, argv, out), ERR_USAGE);
        assert_string_equal(err_last()->text, "more than 16 runs");
        assert_int_equal(verb_compare(REPORT_RUNS + more, argv, out), ERR_USAGE);
        assert_string_equal(err_last()->text, "more than 16 runs");
    }
    assert_int_equal(report_render(runs, REPORT_RUNS + 1, false, &page, &n), ERR_USAGE);
    fclose(out);
}

// However many ranks a row stands for, its label is the first of them, in the picture as in the table.
static void labels_of_ranks(void **state) {
    static const int worlds[] = {2, 17, 64, 65, 128, 200, 300};
    char dir[16], want[64], *line = malloc(1 << 16);
    size_t n;
    (void)state;
    assert_non_null(line);
    for (size_t k = 0; k < sizeof worlds / sizeof *worlds; k++) {
        int of = 1, labels = 0, rows = 0, before = -1, row;
        char *to = line;
        while (worlds[k] > 64 * of) of *= 2;
        snprintf(dir, sizeof dir, "world%d", worlds[k]);
        to += sprintf(to, "{\"t\":\"step\",\"step\":3,\"loss\":1}\n{\"t\":\"ranks\",\"step\":3,\"compute_ms\":[");
        for (int i = 0; i < worlds[k]; i++) to += sprintf(to, "%s20", i ? "," : "");
        sprintf(to, "]}\n");
        put(dir, "log.jsonl", line);
        const char *const one = dir;
        char *page = render(&one, 1, &n), *at = strstr(page, ">Compute time of each rank</b>");
        assert_non_null(at);
        *strstr(at, "</figure>") = 0;
        for (const char *cell = at; (cell = strstr(cell, "<th scope=\"row\">")) != NULL; cell++, rows++) {
            assert_int_equal(sscanf(cell, "<th scope=\"row\">%d", &row), 1);
            assert_int_equal(row, rows * of);
        }
        assert_int_equal(rows, (worlds[k] + of - 1) / of);
        double height = strtod(strstr(at, "<svg class=\"p\" height=\"") + 23, NULL), y;
        for (const char *label = at; (label = strstr(label, "<text x=\"-7\" y=\"")) != NULL; label++, labels++) {
            assert_int_equal(sscanf(label, "<text x=\"-7\" y=\"%lf\" text-anchor=\"end\">%d<", &y, &row), 2);
            if (row <= before || (int)((y - 4) / height * rows) != row / of)
                fail_msg("%d ranks: %d at %g of %g", worlds[k], row, y, height);
            before = row;
        }
        assert_in_range(labels, 2, rows);
        if (of == 1) snprintf(want, sizeof want, "a row is one rank of %d<", worlds[k]);
        else snprintf(want, sizeof want, "a row is %d ranks of %d<", of, worlds[k]);
        if (!strstr(at, want)) fail_msg("no \"%s\"", want);
        free(page);
    }
    free(line);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_A_DIRECTORY(as_many_runs_as_there_may_be),
        IN_A_DIRECTORY(no_more_than_there_may_be),
        IN_A_DIRECTORY(labels_of_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
