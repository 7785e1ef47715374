// test/test_ops.c: the table of operations (test/ops/), as one cmocka test for each row.
//
//     test_ops                 every row and every special check, on every device and width of this machine
//     test_ops matmul          the rows whose name contains `matmul`
//     test_ops --bench [op]    no tests: the benchmark table
#include "test/ops/op_test.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct item { const op_row *row; const special *special; const fixtures *all; char name[200]; } item;

static void check_row(void **state) {
    const item *it = *state;
    char why[WHY] = "";
    if (!run_row(it->row, it->all, why)) fail_msg("%s\n    %s", it->name, why);
}

// One fixture of each width and device is enough: rows compare threads.
static void check_special(void **state) {
    const item *it = *state;
    int tried = 0;
    for (int i = 0; i < it->all->count; i++) {
        const fixture *f = &it->all->f[i];
        char why[WHY] = "";
        if (device_about(f->dev)->kind == DEVICE_CPU && device_about(f->dev)->threads != 2) continue;
        tried++;
        if (!it->special->check(f, why)) fail_msg("%s\n    %s", it->name, why);
    }
    assert_true(tried > 0);
}

static int run_table(const fixtures *all, const char *only) {
    int room = test_row_count + special_count, n = 0;
    item *items = calloc((size_t)room, sizeof *items);
    struct CMUnitTest *tests = calloc((size_t)room, sizeof *tests);
    for (int i = 0; i < room; i++) {
        item *it = &items[n];
        *it = (item){.all = all};
        if (i < test_row_count) row_name(it->name, sizeof it->name, it->row = &test_rows[i]);
        else snprintf(it->name, sizeof it->name, "%s", (it->special = &specials[i - test_row_count])->name);
        if (only && !strstr(it->name, only)) continue;
        tests[n++] = (struct CMUnitTest){.name = it->name, .test_func = it->row ? check_row : check_special, .initial_state = it};
    }
    int failures = n ? _cmocka_run_group_tests("operations", tests, (size_t)n, NULL, NULL) : 1;
    if (!n) fprintf(stderr, "test_ops: no row's name contains '%s'\n", only);
    free(items), free(tests);
    return failures;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--bench")) return bench_run(argc > 2 ? argv[2] : NULL);
    fixtures all;
    char why[WHY] = "";
    if (!fixtures_open(&all, why)) {
        fprintf(stderr, "test_ops: %s\n", why);
        return 1;
    }
    int failures = run_table(&all, argc > 1 ? argv[1] : NULL);
    fixtures_close(&all);
    return failures ? 1 : 0;
}
