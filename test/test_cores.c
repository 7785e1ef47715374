// test/test_cores.c: how ranks share out the processors of machines that this one is not. A folder stands for /sys.
#include "base/cores.h"
#include "base/io.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void write_number(const char *sys, int cpu, const char *name, int value) {
    char path[IO_PATH], number[16];
    assert_int_equal(io_path(path, "%s/devices/system/cpu/cpu%d/topology", sys, cpu), ERR_OK);
    assert_int_equal(io_mkdirs(path), ERR_OK);
    assert_int_equal(io_path(path, "%s/devices/system/cpu/cpu%d/topology/%s", sys, cpu, name), ERR_OK);
    snprintf(number, sizeof number, "%d\n", value);
    assert_int_equal(io_write_file(path, number, strlen(number), NULL), ERR_OK);
}

static void add(const char *sys, int cpu, int node, int package, int core) {
    char path[IO_PATH];
    write_number(sys, cpu, "physical_package_id", package);
    write_number(sys, cpu, "core_id", core);
    assert_int_equal(io_path(path, "%s/devices/system/cpu/cpu%d/node%d", sys, cpu, node), ERR_OK);
    assert_int_equal(io_mkdirs(path), ERR_OK);
}

static void assert_order(cores c, const char *sys, const int *expected) {
    cores_sort(&c, sys);
    for (int i = 0; i < c.n; i++)
        if (c.cpu[i] != expected[i]) fail_msg("place %d has processor %d, expected %d", i, c.cpu[i], expected[i]);
}

// Two sockets of two cores of two threads: 0 to 3 are the first threads of all cores, 4 to 7 the second ones.
static void second_threads_stand_beside_first_ones(void **state) {
    (void)state;
    char sys[] = "/tmp/lockstep-cores.XXXXXX";
    assert_non_null(mkdtemp(sys));
    for (int cpu = 0; cpu < 8; cpu++) add(sys, cpu, cpu / 2 % 2, cpu / 2 % 2, cpu % 2);
    assert_order((cores){8, {0, 1, 2, 3, 4, 5, 6, 7}}, sys, (int[]){0, 4, 1, 5, 2, 6, 3, 7});
    assert_order((cores){3, {1, 2, 5}}, sys, (int[]){1, 5, 2});  // what taskset left
    assert_int_equal(io_remove_tree(sys), ERR_OK);
}

// Numbers are dealt to the sockets in turns, and a socket has two NUMA nodes, whose numbers are not those of sockets.
static void nodes_stay_together(void **state) {
    (void)state;
    static const int node[8] = {2, 0, 2, 0, 3, 1, 3, 1};
    char sys[] = "/tmp/lockstep-cores.XXXXXX";
    assert_non_null(mkdtemp(sys));
    for (int cpu = 0; cpu < 8; cpu++) add(sys, cpu, node[cpu], cpu % 2, 7 - cpu);
    assert_order((cores){8, {0, 1, 2, 3, 4, 5, 6, 7}}, sys, (int[]){3, 1, 7, 5, 2, 0, 6, 4});
    assert_int_equal(io_remove_tree(sys), ERR_OK);
}

// A machine without NUMA that still has two sockets; and one that tells nothing.
static void what_is_not_told_keeps_the_order_of_numbers(void **state) {
    (void)state;
    char sys[] = "/tmp/lockstep-cores.XXXXXX";
    assert_non_null(mkdtemp(sys));
    assert_order((cores){4, {1, 3, 5, 7}}, sys, (int[]){1, 3, 5, 7});
    for (int cpu = 0; cpu < 4; cpu++) add(sys, cpu, 0, 1 - cpu % 2, 0);
    assert_order((cores){4, {0, 1, 2, 3}}, sys, (int[]){1, 3, 0, 2});
    assert_int_equal(io_remove_tree(sys), ERR_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_threads_stand_beside_first_ones),
        cmocka_unit_test(nodes_stay_together),
        cmocka_unit_test(what_is_not_told_keeps_the_order_of_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
