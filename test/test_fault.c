// test/test_fault.c: a fault list fails the passes that it names, of the points that it names, and no others.
#include "base/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

// The points fail in passes first .. first+count-1; count 0: never.
static void expect(const char *text, const long first[FAULT_POINTS], const long count[FAULT_POINTS]) {
    enum { PASSES = 200 };
    fault_list list;
    if (fault_parse(&list, text) != ERR_OK) fail_msg("%s: %s", text, err_last()->text);
    for (int k = 0; k < FAULT_POINTS; k++)
        for (long pass = 1; pass <= PASSES; pass++) {
            bool fails = pass >= first[k] && pass < first[k] + count[k];
            if (fault_hit(&list, (fault_point)k) != fails) fail_msg("%s: point %d, pass %ld", text, k, pass);
        }
}

static void passes_are_counted(void **state) {
    (void)state;
    const long none[FAULT_POINTS] = {0};
    expect("", none, none);
    expect(" ,\t", none, none);
    expect("read@1", (long[FAULT_POINTS]){[FAULT_READ] = 1}, (long[FAULT_POINTS]){[FAULT_READ] = 1});
    expect("write@98x89", (long[FAULT_POINTS]){[FAULT_WRITE] = 98}, (long[FAULT_POINTS]){[FAULT_WRITE] = 89});
    const long first[FAULT_POINTS] = {[FAULT_SYNC] = 19, [FAULT_RENAME] = 3, [FAULT_READ] = 8};
    const long count[FAULT_POINTS] = {[FAULT_SYNC] = 2, [FAULT_RENAME] = 1, [FAULT_READ] = 1};
    expect(" sync@19x2, rename@3\tread@8,", first, count);
    assert_false(fault_hit(NULL, FAULT_READ));
}

// A process that does not know its rank yet passes by what is for one rank.
static void one_rank_can_be_meant(void **state) {
    (void)state;
    fault_list list;
    assert_int_equal(fault_parse(&list, "unit@2:1, read@1x2:0"), ERR_OK);
    assert_false(fault_hit(&list, FAULT_UNIT) || fault_hit(&list, FAULT_UNIT) || fault_hit(&list, FAULT_READ));
    list.rank = 1;
    assert_false(fault_hit(&list, FAULT_UNIT));
    assert_true(fault_hit(&list, FAULT_UNIT));
    assert_false(fault_hit(&list, FAULT_UNIT) || fault_hit(&list, FAULT_READ));
    list.rank = 0;
    assert_true(fault_hit(&list, FAULT_READ) && fault_hit(&list, FAULT_READ));
    assert_false(fault_hit(&list, FAULT_READ) || fault_hit(&list, FAULT_UNIT));
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const char *const texts[] = {"sync",       "sync@",     "sync@0",    "sync@-1",   "sync@2x0",
                                        "sync@2x",    "sync@2y",   "sync@0x10", "slow",      "read@1,open@2",
                                        "syncs@1",    "@1",        "unit@2:",   "unit@2:-1", "unit@2:9999999999",
                                        "unit@2:1x3", "unit@2:1y", "unit:1@2"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fault_list list;
        assert_int_equal(fault_parse(&list, texts[i]), ERR_CONFIG);
        if (!strstr(err_last()->text, "read write sync rename")) fail_msg("%s: \"%s\"", texts[i], err_last()->text);
    }
}

static void a_point_stands_there_once(void **state) {
    (void)state;
    fault_list list;
    assert_int_equal(fault_parse(&list, "unit@2:1, read@3, unit@5:2"), ERR_CONFIG);
    assert_non_null(strstr(err_last()->text, "unit stands there twice"));
    assert_int_equal(fault_parse(&list, "unit@2:1, read@3"), ERR_OK);
    assert_int_equal(fault_parse(&list, "unit@2:1, read@3"), ERR_OK);
}

// A process is killed at such a point, and at no other pass.
static void a_process_is_killed_there(void **state) {
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        fault_list list;
        if (fault_parse(&list, "update@3") != ERR_OK) _exit(1);
        for (int i = 0; i < 2; i++)
            fault_kill(&list, FAULT_UPDATE), fault_kill(&list, FAULT_SAVE), fault_kill(NULL, FAULT_UPDATE);
        if (list.seen[FAULT_UPDATE] != 2) _exit(2);
        fault_kill(&list, FAULT_UPDATE);
        _exit(3);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

// What one process has met another one of the same rank does not meet again.
static void processes_of_a_rank_count_together(void **state) {
    (void)state;
    atomic_long passed[FAULT_POINTS] = {0};
    fault_list first, second;
    assert_int_equal(fault_parse(&first, "read@3"), ERR_OK);
    assert_int_equal(fault_parse(&second, "read@3"), ERR_OK);
    first.shared = second.shared = passed;
    assert_false(fault_hit(&first, FAULT_READ));
    assert_false(fault_hit(&second, FAULT_READ));
    assert_true(fault_hit(&first, FAULT_READ));
    for (int i = 0; i < 5; i++) assert_false(fault_hit(&second, FAULT_READ));
    assert_int_equal(passed[FAULT_READ], 8);
    assert_int_equal(passed[FAULT_WRITE], 0);
    assert_int_equal(fault_parse(&second, "read@1"), ERR_OK);  // alone again
    assert_true(fault_hit(&second, FAULT_READ));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(passes_are_counted),
                                       cmocka_unit_test(one_rank_can_be_meant),
                                       cmocka_unit_test(processes_of_a_rank_count_together),
                                       cmocka_unit_test(mistakes_are_named),
                                       cmocka_unit_test(a_point_stands_there_once),
                                       cmocka_unit_test(a_process_is_killed_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
