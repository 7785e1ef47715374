// test/test_timeline.c: drawings of pipelines (trainer/step/timeline.h), to the character. The times that they show are
// in test/test_pipeline.c.
#include "test/support/pipelines.h"

#include <stdio.h>
#include <string.h>

static void expect_drawing(pipeline_layout l, double column, const char *expected) {
    rows r = rows_of(1, 1, 1);
    timeline t = timeline_at(&l, &r, 0, 0);
    char text[TEXT], part[20];
    size_t n = timeline_draw(&t, column, text, sizeof text);
    assert_string_equal(text, expected);
    assert_int_equal(n, strlen(expected));
    assert_int_equal(timeline_draw(&t, column, part, sizeof part), n);
    assert_memory_equal(part, expected, sizeof part - 1);
    assert_int_equal(part[sizeof part - 1], 0);
    assert_int_equal(timeline_draw(&t, column, NULL, 0), n);
    timeline_free(&t);
}

static void drawings_show_who_does_what_when(void **state) {
    (void)state;
    expect_drawing(layout_of(PIPELINE_GPIPE, 2, 3), 1,
                   "rank 0  012...aabbcc\n"
                   "rank 1  .012aabbcc..\n");
    expect_drawing(layout_of(PIPELINE_ZB_H1, 1, 12), 1, "rank 0  0aA1bB2cC3dD4eE5fF6gG7hH8iI9jJ0aA1bB\n");
}

// Every unit has as many columns as it takes time, and lines are at most 120 wide.
static void expect_columns(pipeline_layout l, int rows_expected, bool whole) {
    static char text[1 << 16];
    rows r = rows_of(1, 1, 1);
    timeline t = timeline_at(&l, &r, 0, 0);
    size_t n = timeline_draw(&t, 1, text, sizeof text);
    assert_in_range(n, 1, sizeof text - 1);
    int count[3] = {0}, lines = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "one column = ", 13) == 0) continue;
        assert_in_range(strlen(line), 9, TIMELINE_WIDTH);
        assert_memory_equal(line, "rank ", 5);
        lines++;
        for (char *c = line + 8; *c; c++)
            count[0] += *c >= '0' && *c <= '9', count[1] += *c >= 'a' && *c <= 'j', count[2] += *c >= 'A' && *c <= 'J';
    }
    assert_int_equal(lines, rows_expected);
    int units = pipeline_stages(&l) * l.micros;
    if (whole) assert_int_equal(count[0], units);
    if (whole) assert_int_equal(count[1], halves(l.kind) ? units : 2 * units);
    if (whole) assert_int_equal(count[2], halves(l.kind) ? units : 0);
    timeline_free(&t);
}

static void long_drawings_are_folded_or_sampled(void **state) {
    (void)state;
    for (int kind = 0; kind < PIPELINE_KINDS; kind++) {
        expect_columns(layout_of(kind, 4, 8), 4, true);
        expect_columns(layout_of(kind, 4, 60), 4 * (kind == PIPELINE_INTERLEAVED || kind == PIPELINE_ZB_V ? 4 : 2),
                       true);
        expect_columns(layout_of(kind, 4, 200), 4, false);
    }
    pipeline_layout l = layout_of(PIPELINE_1F1B, 1, 300);
    rows r = rows_of(1, 1, 1);
    timeline t = timeline_at(&l, &r, 0, 0);
    char text[TEXT];
    timeline_draw(&t, 1, text, sizeof text);
    // 900 in 112 columns; at 4.018 runs F of 1
    assert_int_equal(strncmp(text, "one column = 8.036\nrank 0  1", 27), 0);
    timeline_free(&t);
}

// A drawing of the page, which is between "```" and "```".
static void expect_on_page(const char *page, pipeline_layout l) {
    rows r = rows_of(1, 1, 1);
    timeline t = timeline_at(&l, &r, 0, 0);
    char text[TEXT] = "```\n";
    timeline_draw(&t, 1, text + 4, sizeof text - 8);
    strcat(text, "```\n");
    timeline_free(&t);
    if (!strstr(page, text))
        fail_msg("trainer/step/README.md should have this of %s:\n%s", pipeline_name(l.kind), text);
}

static void the_page_has_these_drawings(void **state) {
    (void)state;
    static char page[1 << 16];
    FILE *f = fopen("trainer/step/README.md", "r");
    assert_non_null(f);
    size_t n = fread(page, 1, sizeof page - 1, f);
    fclose(f);
    assert_in_range(n, 1, sizeof page - 2);
    expect_on_page(page, layout_of(PIPELINE_1F1B, 4, 8));
    expect_on_page(page, layout_of(PIPELINE_ZB_H1, 4, 8));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawings_show_who_does_what_when),
        cmocka_unit_test(long_drawings_are_folded_or_sampled),
        cmocka_unit_test(the_page_has_these_drawings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
