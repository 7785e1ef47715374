// test/test_cut.c: where a log ends after a step, whatever its last lines are.
#include "trainer/log/cut.h"

#include "test/support/place.h"

#include <string.h>

#define STEP(n) "{\"t\":\"step\",\"step\":" #n ",\"loss\":2.5}\n"
#define SAVED(n) "{\"t\":\"checkpoint\",\"step\":" #n ",\"file\":\"ckpt\"}\n"
#define EVAL(n) "{\"t\":\"eval\",\"step\":" #n ",\"loss\":2.5}\n"
#define RANKS "{\"t\":\"ranks\",\"slowest_rank\":3}\n"

typedef struct cut_case {
    const char *kept, *rest;  // the log is both
    int64_t step;
    bool saved;
} cut_case;

static const cut_case cases[] = {
    {"", "", 5, true},
    {"", STEP(1), 0, true},
    {STEP(1) STEP(2), STEP(3) STEP(4), 2, true},
    {STEP(1) STEP(2), "", 2, true},
    {STEP(1) STEP(2), "", 900, true},
    {STEP(9) STEP(10), STEP(11), 10, true},  // numbers, not texts
    {STEP(9), STEP(10) STEP(11), 9, true},
    // a line that is torn
    {STEP(1), "{\"t\":\"step\",\"st", 7, true},
    {STEP(1), "{\"t\":\"step\",\"step\":2,\"loss\":2.5}", 7, true},
    {STEP(1), "{", 7, true},
    {"", "{\"t\":\"step\",\"step\":1", 7, true},
    {STEP(1) STEP(2), STEP(3) "{\"t\":\"st", 2, true},
    // the step's checkpoint is written after its step, and is none where it is still to be written
    {STEP(4) SAVED(4), STEP(5), 4, true},
    {STEP(4), SAVED(4) STEP(5), 4, false},
    {STEP(4) EVAL(4) SAVED(4) STEP(5), STEP(6), 5, false},  // of an earlier step
    {STEP(4) EVAL(4), SAVED(4), 4, false},
    // records of no step
    {RANKS STEP(1) RANKS STEP(2) RANKS, STEP(3) RANKS, 2, true},
    {"\n" STEP(1) "no record at all\n", STEP(2), 1, true},
    {"{\"t\":\"sample\",\"text\":\"\\\"step\\\":99\"}\n" STEP(1), STEP(2), 1, true},  // a text that speaks of steps
    // what comes after a later step goes, also what is of an earlier one
    {STEP(1), STEP(3) STEP(2) RANKS, 2, true},
};

static int64_t cut(const char *path, const cut_case *c) {
    int64_t bytes = -1;
    if (log_cut(path, c->step, c->saved, &bytes) != ERR_OK) fail_msg("%s", err_last()->text);
    return bytes;
}

static void what_is_kept(void **state) {
    const char *path = at(*state, "log.jsonl");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const cut_case *c = &cases[i];
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        assert_true(fputs(c->kept, f) >= 0 && fputs(c->rest, f) >= 0);
        fclose(f);
        int64_t bytes = cut(path, c);
        if (bytes != (int64_t)strlen(c->kept))
            fail_msg("row %d: %d bytes are kept, expected %d", (int)i, (int)bytes, (int)strlen(c->kept));
    }
}

static void no_file(void **state) {
    assert_int_equal(cut(at(*state, "none.jsonl"), &cases[0]), 0);
    assert_int_equal(cut(at(*state, "none/log.jsonl"), &cases[0]), 0);
}

static void what_can_not_be_read(void **state) {
    (void)state;
    int64_t bytes = -1;
    assert_int_equal(log_cut("/dev/null/log.jsonl", 1, true, &bytes), ERR_IO);
    assert_int_equal(bytes, 0);
    assert_non_null(strstr(err_last()->text, "/dev/null/log.jsonl"));
    assert_int_equal(log_cut("/", 1, true, &bytes), ERR_IO);  // a directory opens and can't be read
}

// Longer than any buffer, and the length is in bytes of the file.
static void a_long_line(void **state) {
    enum { LONG = 3 << 20 };
    const char *path = at(*state, "log.jsonl");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"t\":\"step\",\"step\":1,\"text\":\"%0*d\"}\n", LONG, 7);
    long kept = ftell(f);
    fprintf(f, "{\"t\":\"sample\",\"text\":\"%0*d\",\"step\":2}\n", LONG, 7);
    fclose(f);
    assert_int_equal(cut(path, &(cut_case){.step = 1}), kept);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_kept, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(no_file, place_enter, place_leave),
        cmocka_unit_test(what_can_not_be_read),
        cmocka_unit_test_setup_teardown(a_long_line, place_enter, place_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
