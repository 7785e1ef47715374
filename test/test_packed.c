// test/test_packed.c: in which steps of [reduce] density_warmup how much is sent (trainer/step/packed.h).
#include "trainer/step/packed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

// Of layouts without rows: what counts is how many stages there are, and when.
static packed_stages stages_of(int64_t kept, int64_t warmup) {
    packed_stages x;
    const zero_layout none = {.world = 2};
    const model net = {0};
    assert_int_equal(packed_open(&x, &none, &net, CODEC_NONE, CODEC_NONE, (packed_sparse){kept, true}, warmup), ERR_OK);
    return x;
}

static void the_density_falls(void **state) {
    (void)state;
    static const int64_t row[][3] = {{1, 4096, 0},  {100, 4096, 0}, {101, 1024, 0}, {200, 1024, 0},
                                     {201, 256, 0}, {300, 256, 0},  {301, 164, 0},  {100000, 164, 0}};
    packed_stages x = stages_of(164, 300);
    assert_int_equal(x.count, 4);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_int_equal(packed_at(&x, row[i][0])->sparse.kept, row[i][1]);
        assert_true(packed_at(&x, row[i][0])->sparse.all);
    }
    assert_int_equal(packed_last(&x)->sparse.kept, 164);
    packed_close(&x);
}

// Fewer steps than stages leave some out; the least density has the most stages.
static void few_steps_and_many_stages(void **state) {
    (void)state;
    packed_stages x = stages_of(2, 2);
    assert_int_equal(x.count, 7);
    assert_int_equal(packed_at(&x, 1)->sparse.kept, 4096);
    assert_int_equal(packed_at(&x, 2)->sparse.kept, 64);
    assert_int_equal(packed_at(&x, 3)->sparse.kept, 2);
    packed_close(&x);
    x = stages_of(256, 8);  // 1/64: the stage that would send as many is the last one
    assert_int_equal(x.count, 3);
    assert_int_equal(packed_at(&x, 4)->sparse.kept, 4096);
    assert_int_equal(packed_at(&x, 5)->sparse.kept, 1024);
    assert_int_equal(packed_at(&x, 8)->sparse.kept, 1024);
    assert_int_equal(packed_at(&x, 9)->sparse.kept, 256);
    packed_close(&x);
}

static void without_warmup_there_is_one(void **state) {
    (void)state;
    packed_stages x = stages_of(164, 0);
    assert_int_equal(x.count, 1);
    assert_int_equal(packed_at(&x, 1)->sparse.kept, 164);
    packed_close(&x);
    x = stages_of(0, 0);  // codes of every element
    assert_int_equal(x.count, 1);
    assert_int_equal(packed_at(&x, 1)->sparse.kept, 0);
    packed_close(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_density_falls),
        cmocka_unit_test(few_steps_and_many_stages),
        cmocka_unit_test(without_warmup_there_is_one),
    };
    return cmocka_run_group_tests_name("packed", tests, NULL, NULL);
}
