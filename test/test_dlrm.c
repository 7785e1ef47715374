// test/test_dlrm.c: what model/dlrm/dlrm.c says of a new DLRM: how its values are drawn, and what a table costs.
// What it computes is in test_dlrm.sh.
#include "model/dlrm/dlrm.h"
#include "model/types.h"
#include "test/support/expect.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TABLES = 8, ROWS = 300, EMBED = 12, WIDE = EMBED + (TABLES + 1) * TABLES / 2 };  // WIDE: what the top reads

static model *open_dlrm(dlrm_options o) {
    model_rule rule = {.micro = 1};
    model *m;
    assert_ok(model_dlrm.resolve(&o, &rule));
    assert_ok(model_open(&m, &model_dlrm, &o));
    return m;
}

// Mean and deviation of a parameter's first values.
static void expect_values(const model *m, const char *name, double mean, double std) {
    int i = 0;
    while (i < m->params && strcmp(m->param[i].name, name) != 0) i++;
    if (i == m->params) fail_msg("there is no %s", name);
    int64_t n = shape_count(m->param[i].dims, m->param[i].size);
    float *x = malloc((size_t)n * sizeof *x);
    double sum = 0, squares = 0;
    model_init(m, i, 7, 0, n, x);
    for (int64_t e = 0; e < n; e++) sum += x[e] - mean, squares += (x[e] - mean) * (x[e] - mean);
    double off = sqrt(squares / (double)n), wide = n < 64 ? 0.5 : 0.1;  // of few values it is farther off
    if (fabs(off - std) > wide * std || fabs(sum / (double)n) > wide * std)
        fail_msg("%s: a mean of %g and a deviation of %g, expected %g and %g", name, mean + sum / (double)n, off, mean,
                 std);
    free(x);
}

static void a_new_model_begins_as_it_says(void **state) {
    (void)state;
    model *m = open_dlrm(
        (dlrm_options){.dense = 13, .tables = TABLES, .rows = ROWS, .embed = EMBED, .bottom = "40", .top = "50 30"});
    expect_values(m, "bottom.0.weight", 0, sqrt(2.0 / 13));
    expect_values(m, "bottom.1.weight", 0, sqrt(2.0 / 40));
    expect_values(m, "bottom.1.bias", 0, 0);
    expect_values(m, "tables.weight", 0, sqrt(1 / (3.0 * ROWS)));
    expect_values(m, "top.0.weight", 0, sqrt(2.0 / WIDE));
    expect_values(m, "top.1.weight", 0, sqrt(2.0 / 50));
    expect_values(m, "click.weight", 0, sqrt(1.0 / 30));
    expect_values(m, "click.bias", 0, 0);
    model_close(m);
    m = open_dlrm((dlrm_options){
        .task = DLRM_REGRESS, .tables = 2, .rows = ROWS, .embed = 100, .bottom = "", .top = "", .mean = 3.5});
    expect_values(m, "common.weight", 0, 1);
    expect_values(m, "rating.weight", 0, sqrt(1.0 / 103));
    expect_values(m, "rating.bias", 3.5, 0);
    model_close(m);
}

// Two a product, and as many twice backward, but for the numbers of a click, which have no gradient: of one more table
// those with all vectors that are there, and of the top.
static void a_table_costs_its_pairs(void **state) {
    (void)state;
    model *m[2];
    for (int k = 0; k < 2; k++)
        m[k] = open_dlrm((dlrm_options){
            .dense = 13, .tables = TABLES + k, .rows = ROWS, .embed = EMBED, .bottom = "40", .top = "50 30"});
    assert_true(m[1]->block[0].flops - m[0]->block[0].flops == 6.0 * (TABLES + 1) * EMBED);
    assert_true(m[0]->block[0].flops == 4.0 * 13 * 40 + 6.0 * 40 * EMBED + 6.0 * (TABLES + 1) * TABLES / 2 * EMBED);
    assert_true(m[0]->block[1].flops == 6.0 * WIDE * 50);
    assert_true(m[1]->block[1].flops - m[0]->block[1].flops == 6.0 * (TABLES + 1) * 50);
    model_close(m[0]), model_close(m[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_model_begins_as_it_says),
        cmocka_unit_test(a_table_costs_its_pairs),
    };
    return cmocka_run_group_tests_name("dlrm", tests, NULL, NULL);
}
