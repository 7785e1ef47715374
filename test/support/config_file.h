// test/support/config_file.h: what the tests of configurations share: a file in a directory of its own, loaded, and
// what the last failure says.
#ifndef TEST_SUPPORT_CONFIG_FILE_H
#define TEST_SUPPORT_CONFIG_FILE_H

#include "base/io.h"
#include "trainer/config/config.h"
#include "trainer/config/ini.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct fixture {
    char dir[256];
    char path[320];  // DIR/c.ini
    config c;
} fixture;

static inline void write_bytes(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline void write_text(const char *path, const char *text) { write_bytes(path, text, strlen(text)); }

static inline err_t load(fixture *x, const char *path) { return config_load(&x->c, &path, 1); }

static inline err_t load_text(fixture *x, const char *text) {
    write_text(x->path, text);
    return load(x, x->path);
}

// The last failure: ERR_CONFIG, one line, and a text that starts with "PATH" and the first part and holds the others.
static inline void assert_says(const char *path, const char *start, const char *part1, const char *part2) {
    const err_record *e = err_last();
    if (strncmp(e->text, path, strlen(path)) != 0 || strncmp(e->text + strlen(path), start, strlen(start)) != 0)
        fail_msg("expected \"%s%s\" at the start of\n%s", path, start, e->text);
    if (part1 && !strstr(e->text, part1)) fail_msg("expected \"%s\" in\n%s", part1, e->text);
    if (part2 && !strstr(e->text, part2)) fail_msg("expected \"%s\" in\n%s", part2, e->text);
    assert_null(strchr(e->text, '\n'));
    assert_int_equal(e->code, ERR_CONFIG);
}

static inline int set_up(void **state) {
    fixture *x = calloc(1, sizeof *x);
    const char *tmp = getenv("TMPDIR");
    snprintf(x->dir, sizeof x->dir, "%s/lockstep-config-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(x->dir)) return -1;
    snprintf(x->path, sizeof x->path, "%s/c.ini", x->dir);
    *state = x;
    return 0;
}

static inline int tear_down(void **state) {
    fixture *x = *state;
    io_remove_tree(x->dir);
    free(x);
    return 0;
}

// What is printed of c, or for NULL the defaults file. Freed by the caller.
static inline void print(const config *c, char **text) {
    size_t n;
    FILE *f = open_memstream(text, &n);
    assert_non_null(f);
    if (c) config_print(c, f);
    else config_print_defaults(f);
    assert_int_equal(fclose(f), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

#endif
