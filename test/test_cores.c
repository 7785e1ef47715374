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

// --- near a GPU ------------------------------------------------------------------------------------------------------

static void add_gpu(const char *sys, const char *name, int node) {
    char path[IO_PATH], number[16];
    assert_int_equal(io_path(path, "%s/bus/pci/devices/%s", sys, name), ERR_OK);
    assert_int_equal(io_mkdirs(path), ERR_OK);
    assert_int_equal(io_path(path, "%s/bus/pci/devices/%s/numa_node", sys, name), ERR_OK);
    snprintf(number, sizeof number, "%d\n", node);
    assert_int_equal(io_write_file(path, number, strlen(number), NULL), ERR_OK);
}

static void gpus_are_near_a_node(void **state) {
    (void)state;
    char sys[] = "/tmp/lockstep-cores.XXXXXX";
    assert_non_null(mkdtemp(sys));
    add_gpu(sys, "0000:c1:00.0", 1);
    add_gpu(sys, "0000:41:00.0", 0);
    add_gpu(sys, "0000:81:00.0", -1);  // what a machine without NUMA says
    assert_int_equal(cores_near_pci(sys, "0000:C1:00.0"), 1);
    assert_int_equal(cores_near_pci(sys, "0000:41:00.0"), 0);
    assert_int_equal(cores_near_pci(sys, "0000:81:00.0"), -1);
    assert_int_equal(cores_near_pci(sys, "0000:21:00.0"), -1);
    assert_int_equal(cores_near_pci(sys, ""), -1);
    assert_int_equal(io_remove_tree(sys), ERR_OK);
}

static void assert_share(const char *sys, const cores *all, const int *near, int locals, int local, int n,
                         const int *expected) {
    cores mine;
    cores_share(&mine, all, sys, near, local, locals);
    if (mine.n != n) fail_msg("rank %d of %d has %d processors, expected %d", local, locals, mine.n, n);
    for (int i = 0; i < n; i++)
        if (mine.cpu[i] != expected[i])
            fail_msg("rank %d of %d: processor %d, expected %d", local, locals, mine.cpu[i], expected[i]);
}

// Two nodes of four processors, dealt in turns; GPUs whose order is not that of the nodes.
static void ranks_get_processors_near_their_gpus(void **state) {
    (void)state;
    char sys[] = "/tmp/lockstep-cores.XXXXXX";
    assert_non_null(mkdtemp(sys));
    for (int cpu = 0; cpu < 8; cpu++) add(sys, cpu, cpu % 2, cpu % 2, cpu / 2);
    cores all = {8, {0, 1, 2, 3, 4, 5, 6, 7}}, first = {4, {0, 2, 4, 6}};
    static const int crossed[] = {1, 1, 0, 0}, lopsided[] = {1, 0, 1, 1}, unknown[] = {1, 1, 0, -1}, none[] = {1, 5};
    assert_share(sys, &all, crossed, 4, 0, 2, (int[]){1, 3});
    assert_share(sys, &all, crossed, 4, 1, 2, (int[]){5, 7});
    assert_share(sys, &all, crossed, 4, 2, 2, (int[]){0, 2});
    assert_share(sys, &all, crossed, 4, 3, 2, (int[]){4, 6});
    assert_share(sys, &all, lopsided, 4, 0, 1, (int[]){1});
    assert_share(sys, &all, lopsided, 4, 1, 4, (int[]){0, 2, 4, 6});
    assert_share(sys, &all, lopsided, 4, 3, 2, (int[]){5, 7});
    // what is not known of one is not used for any, or two would have the same processors
    assert_share(sys, &all, unknown, 4, 0, 2, (int[]){0, 2});
    assert_share(sys, &all, unknown, 4, 3, 2, (int[]){5, 7});
    assert_share(sys, &all, none, 2, 0, 4, (int[]){0, 2, 4, 6});
    assert_share(sys, &first, crossed, 4, 0, 1, (int[]){0});  // taskset left nothing of node 1
    assert_share(sys, &all, NULL, 4, 2, 2, (int[]){1, 3});
    assert_share(sys, &first, NULL, 6, 5, 1, (int[]){2});  // more ranks than processors
    assert_int_equal(io_remove_tree(sys), ERR_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_threads_stand_beside_first_ones),      cmocka_unit_test(nodes_stay_together),
        cmocka_unit_test(what_is_not_told_keeps_the_order_of_numbers), cmocka_unit_test(gpus_are_near_a_node),
        cmocka_unit_test(ranks_get_processors_near_their_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
