// test/test_ops.c: the table of operations (test/ops/), as one cmocka test for each row.
//
//     test_ops                          every row and every special check, on every device and width of this machine
//     test_ops matmul                   the rows whose name contains `matmul`
//     test_ops --but fp16 ...           without the rows whose name contains `fp16`
//     test_ops --device cuda [name]     on devices of this kind alone; fails where there is none
//     test_ops --once ...               one execution of each row, without what compares several
//     test_ops --about --device cuda    no tests: which device that is, and the library behind its products; fails
//                                       where there is none
//     test_ops --bench [op]             no tests: the benchmark table, of the device that a run would choose or of
//                                       --device
//     test_ops --bench resnet50         the convolutions and norms of a net (bench_net.c), weighted by their work
//     test_ops --bench --pairs [op]     the same with [precision] products = bf16-pairs
//     test_ops --bench --scale 64 [op]  every size and the repetitions divided by 64: does it run to its end? No
//     figures to be quoted
#include "test/ops/op_test.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct item {
    const op_row *row;
    const special *special;
    const fixtures *all;
    char name[200];
} item;

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

static int run_table(const fixtures *all, const char *only, const char *but) {
    int room = test_row_count + special_count, n = 0;
    item *items = calloc((size_t)room, sizeof *items);
    struct CMUnitTest *tests = calloc((size_t)room, sizeof *tests);
    for (int i = 0; i < room; i++) {
        item *it = &items[n];
        *it = (item){.all = all};
        if (i < test_row_count) row_name(it->name, sizeof it->name, it->row = &test_rows[i]);
        else snprintf(it->name, sizeof it->name, "%s", (it->special = &specials[i - test_row_count])->name);
        if ((only && !strstr(it->name, only)) || (but && strstr(it->name, but))) continue;
        tests[n++] = (struct CMUnitTest){
            .name = it->name, .test_func = it->row ? check_row : check_special, .initial_state = it};
    }
    int failures = n ? _cmocka_run_group_tests("operations", tests, (size_t)n, NULL, NULL) : 1;
    if (!n) fprintf(stderr, "test_ops: no row's name contains '%s'\n", only);
    free(items), free(tests);
    return failures;
}

// gpu/cuda/blas.h, without the headers that it includes; absent in a build without CUDA.
err_t blas_about(char *dst, size_t room) __attribute__((weak));

// What a page of figures has to say of the device, one `name: text` a line.
static int tell_about(device_kind kind) {
    device *dev;
    char blas[512] = "none";
    err_t rc = device_open(&dev, &(device_options){.kind = kind});
    if (rc == ERR_OK && device_about(dev)->kind == DEVICE_CUDA && blas_about) rc = blas_about(blas, sizeof blas);
    if (rc == ERR_OK)
        printf("device: %s\nabout: %s\nlibrary: %s\n", device_about(dev)->name, device_about(dev)->choice, blas);
    else fprintf(stderr, "test_ops: %s\n", err_last()->text);
    device_close(dev);
    return (int)rc;
}

typedef struct command {
    bool bench, once, about;
    products products;
    device_kind kind;
    int64_t scale;
    const char *only, *but;  // in the name of a row
} command;

static bool parse(command *c, int argc, char **argv) {
    *c = (command){.scale = 1};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--bench")) c->bench = true;
        else if (!strcmp(argv[i], "--pairs")) c->products = PRODUCTS_BF16_PAIRS;
        else if (!strcmp(argv[i], "--once")) c->once = true;
        else if (!strcmp(argv[i], "--about")) c->about = true;
        else if (!strcmp(argv[i], "--device")) {
            c->kind = !strcmp(value, "cuda") ? DEVICE_CUDA : !strcmp(value, "cpu") ? DEVICE_CPU : DEVICE_AUTO;
            if (c->kind == DEVICE_AUTO) return false;
            i++;
        } else if (!strcmp(argv[i], "--but") && *value) {
            c->but = argv[++i];
        } else if (!strcmp(argv[i], "--scale")) {
            c->scale = strtol(value, NULL, 10);
            if (c->scale < 1) return false;
            i++;
        } else if (argv[i][0] == '-' || c->only) return false;
        else c->only = argv[i];
    }
    return c->bench || c->products == PRODUCTS_FP32;
}

int main(int argc, char **argv) {
    command c;
    if (!parse(&c, argc, argv)) {
        fprintf(stderr,
                "usage: test_ops [--device cpu|cuda] [--about] [--once] [--but NAME] [--bench [--pairs] [--scale N]] "
                "[name]\n");
        return 64;
    }
    if (c.about) return tell_about(c.kind);
    if (c.bench) return bench_run(c.kind, c.products, c.scale, c.only);
    fixtures all;
    char why[WHY] = "";
    if (!fixtures_open(&all, c.kind, why)) {
        fprintf(stderr, "test_ops: %s\n", why);
        return 1;
    }
    all.once = c.once;
    int failures = run_table(&all, c.only, c.but);
    fixtures_close(&all);
    return failures ? 1 : 0;
}
