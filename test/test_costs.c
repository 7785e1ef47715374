// test/test_costs.c: tables of costs: what is written is read again; what is wrong in a file is named by its line; and
// how times of shapes and messages that are not in the table follow from those that are.
#include "test/support/run.h"
#include "trainer/costs/sheets.h"

#include <math.h>

static void close_to(double found, double wanted, double part) {
    if (fabs(found - wanted) > part * fabs(wanted)) fail_msg("%.9g, expected %.9g", found, wanted);
}

static const char table[] = "lockstep costs 2\n"
                            "device cpu test, 1 thread\n"
                            "# a remark\n"
                            "memory 8e9 bytes\n"
                            "peak fp32 1e9 flop/s 0.1 spread\n"
                            "copy 1e9 bytes/s 0.1 spread\n"
                            "launch 10 us 0.5 spread\n"
                            "beside 1.25 0.4 spread\n"
                            "host_memory 16e9 bytes\n"
                            "host_link 3e9 bytes/s 0.2 spread\n"
                            "host_copy 2e9 bytes/s 0.4 spread\n"
                            "disk 32e9 bytes\n"
                            "disk_copy 5e8 bytes/s 0.3 spread\n"
                            "reach matmul 0.5 0.2 spread\n"
                            "reach other 0.8 0.1 spread\n"
                            "link node 1e9 bytes/s 5 us 0.1 spread\n"
                            "link rack 1e8 bytes/s 50 us 0.2 spread\n"
                            "op matmul fp32 100x100x100 tb,bias 4 ms 0.02 spread 31 calls\n"
                            "op matmul fp32 400x100x100 tb,bias 20 ms 0.03 spread 31 calls\n"
                            "op add fp32 1000 - 0.5 ms 0.01 spread 7 calls\n"
                            "comm all_gather node 4 1000 10 us 0.01 spread\n"
                            "comm all_gather node 4 16000 40 us 0.02 spread\n"
                            "comm all_gather node 16 1000 90 us 0.03 spread\n"
                            "comm all_to_all node 4 1000 30 us 0.01 spread\n"
                            "comm merge node 2 1000 3 us 0.02 spread\n"
                            "end 22\n";

static op_cost product(int64_t m, int64_t n, int64_t k, unsigned options) {
    return (op_cost){FP32, {m, n, k}, options, 4.0 * (double)(m * k + n * k + m * n), 2.0 * (double)(m * n * k)};
}

static void what_is_written_is_read(void **state) {
    (void)state;
    char *dir = make_dir(), path[1024], *one, *two;
    size_t n, m;
    costs c, again;
    OK(costs_parse(&c, "table", table));
    assert_int_equal(c.ops, 3);
    assert_int_equal(c.comms, 5);
    assert_int_equal(c.op[0].options, COST_TB | MATMUL_BIAS);
    assert_false(c.sheet);
    assert_true(c.beside.is == 1.25 && c.beside.spread == 0.4);
    close_to(c.op[0].s.is, 4e-3, 1e-12), close_to(c.comm[1].s.is, 40e-6, 1e-12),
        close_to(c.link[COSTS_RACK].s, 50e-6, 1e-12);
    snprintf(path, sizeof path, "%s/c.costs", dir);
    OK(costs_save(&c, path));
    OK(costs_load(&again, path));
    OK(io_read_file(path, 1 << 20, &one, &n));
    close_to(again.host_memory, 16e9, 1e-12), close_to(again.host_link.is, 3e9, 1e-12);
    close_to(again.host_copy.is, 2e9, 1e-12), close_to(again.host_copy.spread, 0.4, 1e-12);
    close_to(again.disk, 32e9, 1e-12), close_to(again.disk_copy.is, 5e8, 1e-12),
        close_to(again.disk_copy.spread, 0.3, 1e-12);
    const costs_figure *all[][2] = {{&c.peak[FP32], &again.peak[FP32]},
                                    {&c.copy, &again.copy},
                                    {&c.launch, &again.launch},
                                    {&c.beside, &again.beside},
                                    {&c.link[COSTS_NODE].rate, &again.link[COSTS_NODE].rate},
                                    {&c.link[COSTS_RACK].rate, &again.link[COSTS_RACK].rate},
                                    {&c.reach[0].share, &again.reach[0].share},
                                    {&c.reach[1].share, &again.reach[1].share}};
    assert_true(again.memory == 8e9 && again.reaches == 2 && again.ops == 3 && again.comms == 5);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        close_to(all[i][1]->is, all[i][0]->is, 1e-12), close_to(all[i][1]->spread, all[i][0]->spread, 1e-12);
    OK(costs_save(&again, path));
    OK(io_read_file(path, 1 << 20, &two, &m));
    assert_string_equal(one, two);
    costs_free(&again);
    // a line of the same shape is replaced, another one is added; another device's are not
    costs_op more = c.op[2];
    more.s.is = 1;
    OK(costs_set_op(&c, &more));
    assert_int_equal(c.ops, 3);
    assert_true(c.op[2].s.is == 1);
    more.options = COST_RESIDUAL;
    OK(costs_set_op(&c, &more));
    assert_int_equal(c.ops, 4);
    more.type = BF16;
    OK(costs_set_op(&c, &more));
    assert_int_equal(c.ops, 5);
    assert_true(c.op[3].type == FP32 && c.op[4].type == BF16);
    OK(costs_begin(&again, path, "cpu test, 1 thread"));
    assert_int_equal(again.ops, 3);
    costs_free(&again);
    assert_int_equal(costs_begin(&again, path, "cpu test, 2 threads"), ERR_CONFIG);
    assert_non_null(strstr(err_last()->text, "a file of its own"));
    assert_true(again.ops == 0 && !again.op && !again.comm);  // nothing is left of what was read
    memset(&again, 1, sizeof again);
    OK(costs_begin(&again, "/nowhere/c.costs", "other"));
    assert_string_equal(again.device, "other");
    assert_true(again.ops == 0 && !again.op && again.comms == 0 && again.copy.is == 0);
    costs_free(&again), costs_free(&c);
    free(one), free(two);
    drop_dir(dir);
}

static void mistakes_are_named_by_line(void **state) {
    (void)state;
    static const struct {
        const char *line, *says;
    } wrong[] = {{"memory 8e9", "3: expected `memory BYTES bytes`"},
                 {"memory 0 bytes", "3: expected"},
                 {"peak int32 1e9 flop/s 0.1 spread", "3: expected `peak fp32"},
                 {"peak fp32 1e9 flop/s -0.1 spread", "3: expected"},
                 {"peak fp32 nan flop/s 0.1 spread", "3: expected"},
                 {"copy 1e9 bytes 0.1 spread", "3: expected `copy"},
                 {"launch 1 ms 0.1 spread", "3: expected `launch"},
                 {"beside 0.5 of 0.1 spread", "3: expected `beside NUMBER SPREAD spread"},
                 {"beside -1 0.1 spread", "3: expected `beside"},
                 {"host_memory none", "3: expected `host_memory BYTES bytes"},
                 {"host_link 1 us 0.1 spread", "3: expected `host_link NUMBER bytes/s"},
                 {"host_copy 1 bytes/s", "3: expected `host_copy NUMBER bytes/s"},
                 {"disk 1 MB", "3: expected `disk BYTES bytes"},
                 {"disk_copy 0 bytes/s 0.1 spread", "3: expected `disk_copy NUMBER bytes/s"},
                 {"tiles 132 128 256", "3: expected `tiles"},
                 {"tiles 0 128 256 1", "3: expected `tiles"},
                 {"reach matmul 0 0.1 spread", "3: expected `reach"},
                 {"link wan 1e9 bytes/s 1 us 0.1 spread", "3: expected `link"},
                 {"op matmul fp32 100x0x3 tb 4 ms 0.02 spread 31 calls", "3: expected `op"},
                 {"op matmul fp32 1x2x3x4x5 tb 4 ms 0.02 spread 31 calls", "3: expected `op"},
                 {"op matmul fp32 100 tb,tb 4 ms 0.02 spread 31 calls", "3: expected `op"},
                 {"op matmul fp32 100 tbx 4 ms 0.02 spread 31 calls", "3: expected `op"},
                 {"op matmul fp99 100 tb 4 ms 0.02 spread 31 calls", "3: expected `op"},
                 {"op matmul fp32 100 tb 0 ms 0.02 spread 31 calls", "3: expected `op"},
                 {"op matmul fp32 100 tb 4 ms 0.02 spread 31", "3: expected `op"},
                 {"comm shout node 4 1000 10 us 0.01 spread", "3: expected `comm"},
                 {"comm all_gather node 1 1000 10 us 0.01 spread", "3: expected `comm"},
                 {"comm all_gather node 4 1000 10 us 0.01 spread more", "3: expected `comm"},
                 {"speed 12", "3: expected `memory, peak"},
                 {"end 1", "3: says that there are 1 lines, found 0"},
                 {"end", "3: expected `end NUMBER`"},
                 {"", "end 0`, found the end"}};
    costs c;
    char text[512];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(text, sizeof text, "lockstep costs 2\ndevice x\n%s\n", wrong[i].line);
        assert_int_equal(costs_parse(&c, "f", text), ERR_DATA);
        if (!strstr(err_last()->text, wrong[i].says)) fail_msg("`%s`: %s", wrong[i].line, err_last()->text);
    }
    assert_int_equal(costs_parse(&c, "f", "lockstep costs 3\ndevice x\nend 0\n"), ERR_CONFIG);
    assert_int_equal(costs_parse(&c, "f", "lockstep plans 1\ndevice x\nend 0\n"), ERR_DATA);
    assert_int_equal(costs_parse(&c, "f", ""), ERR_DATA);
    assert_int_equal(costs_parse(&c, "f", "lockstep costs 2\ndevice x\nend 0\n# more\n"), ERR_DATA);
    // all or nothing: no beginning of a table is one
    for (size_t n = 0; n < sizeof table - 2; n++) {
        char *part = strndup(table, n);
        if (costs_parse(&c, "f", part) == ERR_OK)
            fail_msg("%zu of %zu bytes were taken for a table", n, sizeof table - 1);
        free(part);
    }
}

static void times_of_shapes(void **state) {
    (void)state;
    costs c;
    OK(costs_parse(&c, "table", table));
    op_cost x = product(100, 100, 100, COST_TB | MATMUL_BIAS);
    costs_time t = costs_of_op(&c, "matmul", &x);
    assert_int_equal(t.from, FROM_LINE);
    close_to(t.s, 4e-3, 1e-9), close_to(t.error, 8e-5, 1e-9);
    // twice the rows: of the nearest shape, as the roofline grows
    x = product(200, 100, 100, COST_TB | MATMUL_BIAS);
    t = costs_of_op(&c, "matmul", &x);
    assert_int_equal(t.from, FROM_NEAR);
    close_to(t.s, 4e-3 * (4e-3 + 1e-5) / (2e-3 + 1e-5), 1e-9), close_to(t.error / t.s, 0.02 + 0.05, 1e-9);
    x = product(800, 100, 100, COST_TB | MATMUL_BIAS);  // of the other line
    t = costs_of_op(&c, "matmul", &x);
    close_to(t.s, 20e-3 * (16e-3 + 1e-5) / (8e-3 + 1e-5), 1e-9);
    x = product(100, 100, 100, 0);  // other options: the same, with more doubt
    t = costs_of_op(&c, "matmul", &x);
    assert_int_equal(t.from, FROM_NEAR);
    close_to(t.s, 4e-3, 1e-9), close_to(t.error / t.s, 0.07, 1e-9);
    // another type, another operation: the roofline
    x.type = BF16;
    assert_int_equal(costs_of_op(&c, "matmul", &x).from, FROM_ROOFLINE);
    x = (op_cost){FP32, {1000, 8}, 0, 8e6, 0};
    t = costs_of_op(&c, "cast", &x);
    assert_int_equal(t.from, FROM_ROOFLINE);
    close_to(t.s, 8e-3 / 0.8 + 1e-5, 1e-9), close_to(t.error, 1e-2 * 0.2 + 5e-6, 1e-9);
    c.ops = 0;
    x = product(1000, 1000, 1000, 0);
    close_to(costs_of_op(&c, "matmul", &x).s, 2 / 0.5 + 1e-5, 1e-9);
    // what memory bounds is not faster for its flops
    x = (op_cost){FP32, {10, 10, 10}, 0, 1e9, 1};
    close_to(costs_of_op(&c, "matmul", &x).s, 1 / 0.5 + 1e-5, 1e-9);
    // a product that memory bounds is scaled by its three matrices, none of which grows as the work does
    costs_op line = {.name = "matmul", .type = FP32, .size = {20, 30, 50}, .s = {1, 0.1}, .calls = 3};
    OK(costs_set_op(&c, &line));
    c.peak[FP32].is = 0, c.launch.is = 0;
    x = product(40, 120, 10, 0);
    close_to(costs_of_op(&c, "matmul", &x).s, (40.0 * 10 + 10 * 120 + 40 * 120) / (20.0 * 50 + 50 * 30 + 20 * 30),
             1e-9);
    c.peak[FP32].is = 1e9, c.ops = 0;
    // a second wave for one tile more
    c.tiles.processors = 4, c.tiles.rows = c.tiles.columns = 100, c.tiles.lost = 1000, c.copy.is = 1e15,
    c.launch.is = 0;
    x = product(400, 100, 1, 0);
    double four = costs_of_op(&c, "matmul", &x).s;
    x = product(401, 100, 1, 0);
    close_to(costs_of_op(&c, "matmul", &x).s, 2 * four, 0.01);
    costs_free(&c);
}

static void times_of_messages(void **state) {
    (void)state;
    costs c;
    OK(costs_parse(&c, "table", table));
    costs_time t = costs_of_call(&c, CALL_ALL_GATHER, COSTS_NODE, 4, 1000);
    assert_int_equal(t.from, FROM_LINE);
    close_to(t.s, 10e-6, 1e-9), close_to(t.error, 1e-7, 1e-9);
    close_to(costs_of_call(&c, CALL_ALL_GATHER, COSTS_NODE, 4, 4000).s, 20e-6, 1e-9);   // straight, in powers
    close_to(costs_of_call(&c, CALL_ALL_GATHER, COSTS_NODE, 4, 32000).s, 80e-6, 1e-9);  // beyond: by bytes
    close_to(costs_of_call(&c, CALL_ALL_GATHER, COSTS_NODE, 4, 10).s, 10e-6, 1e-9);  // below: what the smallest takes
    t = costs_of_call(&c, CALL_ALL_GATHER, COSTS_NODE, 8, 1000);                     // of 4 ranks and 16
    assert_int_equal(t.from, FROM_NEAR);
    close_to(t.s, 30e-6, 1e-9), close_to(t.error / t.s, 0.08, 1e-9);
    close_to(costs_of_call(&c, CALL_ALL_GATHER, COSTS_NODE, 2, 1000).s, 10e-6, 1e-9);  // the nearest
    close_to(costs_of_call(&c, CALL_ALL_GATHER, COSTS_NODE, 64, 1000).s, 90e-6, 1e-9);
    t = costs_of_call(&c, CALL_ALL_GATHER, COSTS_RACK, 8, 1e6);  // a link
    assert_int_equal(t.from, FROM_ROOFLINE);
    close_to(t.s, 1e-2 + 50e-6, 1e-9), close_to(t.error / t.s, 0.2, 1e-9);
    // merges of their own where some were measured; else an all_to_all
    close_to(costs_of_call(&c, CALL_MERGE, COSTS_NODE, 2, 1000).s, 3e-6, 1e-9);
    c.comms--;
    close_to(costs_of_call(&c, CALL_MERGE, COSTS_NODE, 4, 1000).s, 30e-6, 1e-9), c.comms++;
    close_to(costs_of_call(&c, CALL_MESSAGE, COSTS_SPINE, 2, 1e6).s, 1e-2 + 50e-6, 1e-9);  // the next link inside
    costs bare = {.copy = {4e9, 0.1}};  // no link at all: half of what memory copies, and half of that is doubt
    t = costs_of_call(&bare, CALL_MESSAGE, COSTS_RACK, 2, 1e6);
    close_to(t.s, 5e-4, 1e-9), close_to(t.error, 2.5e-4, 1e-9);
    assert_true(costs_of_call(&c, CALL_MESSAGE, COSTS_NODE, 1, 1e6).s == 0);
    assert_true(costs_of_call(&c, CALL_MESSAGE, COSTS_NODE, 2, 0).s == 0);
    costs_free(&c);
}

static void sheets_are_tables(void **state) {
    (void)state;
    static const char *const names[] = {"h100", "h200", "a100"};
    // of PCI Express one way; of a channel of memory, of which two processors have 8 each
    static const double lanes[] = {64e9, 64e9, 32e9}, channel[] = {38.4e9, 38.4e9, 25.6e9};
    costs c;
    for (int i = 0; i < 3; i++) {
        OK(sheet_or_file(&c, names[i]));
        close_to(c.host_link.is, 0.8 * lanes[i], 0.03), close_to(c.host_copy.is, 0.6 * 16 * channel[i] / 8, 0.03);
        assert_true(c.sheet && c.memory > 70e9 && c.peak[BF16].is > 300e12 && c.tiles.processors > 100);
        assert_true(c.host_memory > 0 && c.host_link.is < c.copy.is / 30 && c.host_copy.is < c.copy.is / 30);
        assert_non_null(strstr(sheet_text(names[i]), "datasheet"));
        assert_non_null(strstr(sheet_names, names[i]));
        op_cost x = {BF16, {8192, 8192, 8192}, 0, 3 * 2.0 * 8192 * 8192, 2 * 8192.0 * 8192 * 8192};
        double reached = x.flops / costs_of_op(&c, "matmul", &x).s / c.peak[BF16].is;
        assert_true(reached > 0.65 && reached < 0.85);
        costs_free(&c);
    }
    // of a socket: all its products are FP32 ones, of its own memory, and nothing is offloaded
    static const char *const sockets[] = {"epyc9654", "xeon8480"};
    for (int i = 0; i < 2; i++) {
        OK(sheet_or_file(&c, sockets[i]));
        assert_true(c.sheet && c.memory > 200e9 && c.copy.is > 300e9 && !c.tiles.processors && c.host_link.is == 0);
        assert_true(strncmp(c.device, "cpu", 3) != 0);  // or its ranks would share the cores of this machine
        assert_non_null(strstr(sheet_text(sockets[i]), "datasheet"));
        assert_non_null(strstr(sheet_names, sockets[i]));
        op_cost x = {BF16, {2048, 2048, 2048}, 0, 3 * 2.0 * 2048 * 2048, 2 * 2048.0 * 2048 * 2048};
        double rate = x.flops / costs_of_op(&c, "matmul", &x).s;
        assert_true(rate > 5e12 && rate < 6e12);
        costs_free(&c);
    }
    assert_int_equal(sheet_or_file(&c, "b200"), ERR_CONFIG);
    assert_non_null(strstr(err_last()->text, sheet_names));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_written_is_read),
                                       cmocka_unit_test(mistakes_are_named_by_line), cmocka_unit_test(times_of_shapes),
                                       cmocka_unit_test(times_of_messages), cmocka_unit_test(sheets_are_tables)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
