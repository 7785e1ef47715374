// test/support/page.h: runs of a few lines, and the pages and comparisons that trainer/report makes of them, for tests
// in a directory of their own.
#ifndef TEST_SUPPORT_PAGE_H
#define TEST_SUPPORT_PAGE_H

#include "test/support/run.h"

#include "trainer/report/report.h"

static char *home;  // where the test was started

static inline int enter(void **state) {
    *state = make_dir();
    home = getcwd(NULL, 0);
    return chdir(*state);
}

static inline int leave(void **state) {
    int rc = chdir(home);
    free(home);
    drop_dir(*state);
    return rc;
}

static inline void put(const char *dir, const char *name, const char *text) {
    char path[1024];
    OK(io_mkdirs(dir));
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "a");
    assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

// A step each `every`, with a hash that is another from `parts` on.
static inline void put_steps(const char *dir, int64_t steps, int64_t every, double slope, int64_t parts, bool hashes) {
    for (int64_t i = every; i <= steps; i += every) {
        char line[512], hash[64] = "";
        if (hashes) snprintf(hash, sizeof hash, ",\"hash\":\"%08x%08x\"", (unsigned)(i >= parts), (unsigned)i);
        snprintf(
            line, sizeof line,
            "{\"t\":\"step\",\"step\":%d,\"loss\":%.9g,\"grad_norm\":%.9g,\"lr\":0.001,\"tokens\":%d,\"ms\":50,\"tokens_per_s\":%d,\"mfu\":null,"
            "\"data_wait_ms\":1,\"comm_wait_ms\":2,\"loss_scale\":1,\"skipped\":%s%s}\n",
            (int)i, 5 - slope * (double)i + (i >= parts ? 0.25 : 0), 1.0 / (double)i, (int)(i * 64),
            (int)(1280 + i % 3), i == 4 ? "true" : "false", hash);
        put(dir, "log.jsonl", line);
    }
}

// A page of these runs. Where it is inlined, GCC takes what it returns for the address of its own variable.
__attribute__((noinline, unused)) static char *render(const char *const *dirs, int n, size_t *bytes) {
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

static inline int count(const char *in, const char *what) {
    int n = 0;
    for (; (in = strstr(in, what)) != NULL; in += strlen(what)) n++;
    return n;
}

// Where it is inlined, GCC takes what it returns for the address of its own variable, as with render().
__attribute__((noinline, unused)) static char *compared(const char *locale, char **dirs, int n) {
    char *text = NULL;
    size_t size;
    setenv("LC_ALL", locale, 1);
    FILE *out = open_memstream(&text, &size);
    OK(verb_compare(n, dirs, out));
    fclose(out);
    return text;
}

// The text is the file of this name in test/golden; else it is left in build/ for who looks.
__attribute__((unused)) static void same_as(const char *golden, const char *got, size_t n) {
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

#define IN_A_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, enter, leave)

// The cells of the row of a table that begins here, as text without tags. Returns how many there are.
enum { CELLS = 20 };
static inline int cells(const char *row, char cell[CELLS][64]) {
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

#endif
