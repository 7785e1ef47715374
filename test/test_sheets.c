// test/test_sheets.c: every figure of every sheet, beside where it is from; every line of a table as it is written; and
// what a roofline makes of waves of tiles, of shapes that can't be compared, and of lines that are uncertain.
#include "test/support/run.h"
#include "trainer/costs/sheets.h"

#include <math.h>

static void close_to(double found, double wanted) {
    if (!(fabs(found - wanted) <= 1e-9 * fabs(wanted))) fail_msg("%.12g, expected %.12g", found, wanted);
}

static void is(const char *sheet, const char *what, double found, double wanted) {
    if (!(fabs(found - wanted) <= 1e-12 * fabs(wanted)))
        fail_msg("%s: %s is %.9g, expected %.9g", sheet, what, found, wanted);
}

static void figure(const char *sheet, const char *what, costs_figure x, double wanted, double spread) {
    is(sheet, what, x.is, wanted), is(sheet, what, x.spread, spread);
}

static void reach(const costs *c, const char *sheet, const char *op, double share, double spread) {
    for (int i = 0; i < c->reaches; i++)
        if (strcmp(c->reach[i].name, op) == 0) return figure(sheet, op, c->reach[i].share, share, spread);
    fail_msg("%s: nothing of %s", sheet, op);
}

static void link_is(const costs *c, const char *sheet, costs_level level, double rate, double us, double spread) {
    figure(sheet, costs_level_name[level], c->link[level].rate, rate, spread);
    is(sheet, costs_level_name[level], c->link[level].s, us * 1e-6);
}

// NVIDIA's datasheets (H100 2023, H200 2024, A100 2021): FP32 and dense BF16 and FP16 in TFLOP/s, memory in GB and
// TB/s, multiprocessors; NVLink 450, 450, 300 GB/s one way, cards 50, 50, 25 GB/s, PCIe 64, 64, 32 GB/s. Of memory
// 3 or 4 GB are kept. All-reduces of A100 reach 223 of NVLink's 300 GB/s at 40 us (vTrain), and so of the others and
// of cards, in whole or half GB/s. Of PCIe 0.8 is reached. The host's: 16 channels of DDR5-4800 or DDR4-3200, 8 bytes
// each, of which 0.6 is reached, an eighth for each GPU.
static void figures_of_gpus(void **state) {
    (void)state;
    static const struct {
        const char *name, *device;
        double memory, fp32, half, copy, launch;
        int processors, lost;
        double node, node_us, node_spread, card, rack_us, spine_us, pcie, channel;
    } gpus[] = {
        {"h100", "NVIDIA H100 SXM 80 GB, 8 in a node", 80 - 3, 66.9, 989.4, 3.35, 2, 132, 192, 335, 30, 0.15, 37, 45,
         60, 51, 46},
        {"h200", "NVIDIA H200 SXM 141 GB, 8 in a node", 141 - 4, 66.9, 989.4, 4.8, 2, 132, 192, 335, 30, 0.15, 37, 45,
         60, 51, 46},
        {"a100", "NVIDIA A100 SXM 80 GB, 8 in a node", 80 - 3, 19.5, 312, 2.039, 3, 108, 128, 223, 40, 0.1, 18.5, 50,
         65, 25, 31},
    };
    const double share = 223 / 300.0, nvlink[] = {450, 450, 300}, cards[] = {50, 50, 25}, pcie[] = {64, 64, 32},
                 ddr[] = {4.8, 4.8, 3.2};
    for (int i = 0; i < 3; i++) {
        const char *n = gpus[i].name;
        costs c;
        OK(sheet_or_file(&c, n));
        assert_true(c.sheet && c.ops == 0 && c.comms == 0 && c.reaches == 4);
        assert_string_equal(c.device, gpus[i].device);
        is(n, "memory", c.memory, 1e9 * gpus[i].memory);
        figure(n, "fp32", c.peak[FP32], 1e12 * gpus[i].fp32, 0.1);
        figure(n, "bf16", c.peak[BF16], 1e12 * gpus[i].half, 0.05);
        figure(n, "fp16", c.peak[FP16], 1e12 * gpus[i].half, 0.05);
        figure(n, "copy", c.copy, 1e12 * gpus[i].copy, 0.05);
        figure(n, "launch", c.launch, 1e-6 * gpus[i].launch, 0.25);
        assert_int_equal(c.tiles.processors, gpus[i].processors);
        assert_true(c.tiles.rows == 128 && c.tiles.columns == 256 && c.tiles.lost == gpus[i].lost);
        reach(&c, n, "matmul", 0.8, 0.1), reach(&c, n, "other", 0.85, 0.15);
        reach(&c, n, "attention_forward", 0.35, 0.25), reach(&c, n, "attention_backward", 0.3, 0.25);
        link_is(&c, n, COSTS_NODE, 1e9 * gpus[i].node, gpus[i].node_us, gpus[i].node_spread);
        link_is(&c, n, COSTS_RACK, 1e9 * gpus[i].card, gpus[i].rack_us, 0.25);
        link_is(&c, n, COSTS_SPINE, 1e9 * gpus[i].card, gpus[i].spine_us, 0.35);
        is(n, "host_memory", c.host_memory, 240e9);
        figure(n, "host_link", c.host_link, 1e9 * gpus[i].pcie, 0.2);
        figure(n, "host_copy", c.host_copy, 1e9 * gpus[i].channel, 0.4);
        assert_true(c.disk == 0 && c.disk_copy.is == 0 && c.beside.is == 0);
        // as they follow from what is published
        assert_true(fabs(gpus[i].node - share * nvlink[i]) < 0.6 && fabs(gpus[i].card - share * cards[i]) < 0.25);
        assert_true(fabs(gpus[i].pcie - 0.8 * pcie[i]) < 0.7);
        assert_true(fabs(gpus[i].channel - 0.6 * 16 * 8 * ddr[i] / 8) < 0.5);
        costs_free(&c);
    }
}

// AMD's and Intel's datasheets (2022, 2023): cores, base clock in GHz, FP32 numbers that a core multiplies and adds in
// a cycle (2 units of 8, 2 of 16), channels of DDR5-4800. The rest was measured (trainer/costs/sheets.c says where).
static void figures_of_sockets(void **state) {
    (void)state;
    static const struct {
        const char *name, *device;
        double memory, cores, clock, numbers, peak, channels;
    } sockets[] = {{"epyc9654", "AMD EPYC 9654, the 96 cores of a socket", 370, 96, 2.4, 2 * 8, 7.37, 12},
                   {"xeon8480", "Intel Xeon Platinum 8480+, the 56 cores of a socket", 245, 56, 2.0, 2 * 16, 7.17, 8}};
    for (int i = 0; i < 2; i++) {
        const char *n = sockets[i].name;
        costs c;
        OK(sheet_or_file(&c, n));
        assert_true(c.sheet && c.ops == 0 && c.comms == 0 && c.reaches == 4 && c.tiles.processors == 0);
        assert_string_equal(c.device, sockets[i].device);
        is(n, "memory", c.memory, 1e9 * sockets[i].memory);
        for (int t = FP32; t <= FP16; t++) figure(n, "peak", c.peak[t], 1e12 * sockets[i].peak, 0.1);
        double gflops = 2 * sockets[i].cores * sockets[i].clock * sockets[i].numbers;  // a multiplication, a sum
        assert_true(fabs(1e3 * sockets[i].peak - gflops) < 5);
        figure(n, "copy", c.copy, sockets[i].channels * 8 * 4.8e9, 0.05);
        figure(n, "launch", c.launch, 10e-6, 0.5);
        reach(&c, n, "matmul", 0.75, 0.1), reach(&c, n, "other", 0.6, 0.3);
        reach(&c, n, "attention_forward", 0.6, 0.2), reach(&c, n, "attention_backward", 0.7, 0.1);
        link_is(&c, n, COSTS_NODE, 4e9, 20, 0.25);
        link_is(&c, n, COSTS_RACK, 0.75e9, 60, 0.5), link_is(&c, n, COSTS_SPINE, 0.75e9, 75, 0.5);
        figure(n, "beside", c.beside, 1, 0.3);
        assert_true(c.host_memory == 0 && c.host_link.is == 0 && c.host_copy.is == 0 && c.disk_copy.is == 0);
        costs_free(&c);
    }
}

// --- a file ----------------------------------------------------------------------------------------------------------

// Every kind of line, in the order in which they are written.
static const char every[] = "lockstep costs 2\n"
                            "device cpu test, 1 thread\n"
                            "memory 8.12345679e+09 bytes\n"
                            "peak fp32 1.5e+12 flop/s 0.125 spread\n"
                            "peak bf16 2.5e+12 flop/s 0.25 spread\n"
                            "peak fp16 3.5e+12 flop/s 0.375 spread\n"
                            "copy 1.25e+10 bytes/s 0.01 spread\n"
                            "launch 12.5 us 0.02 spread\n"
                            "beside 0.75 0.03 spread\n"
                            "host_memory 1.6e+10 bytes\n"
                            "host_link 3e+09 bytes/s 0.04 spread\n"
                            "host_copy 2e+09 bytes/s 0.05 spread\n"
                            "disk 3.2e+10 bytes\n"
                            "disk_copy 5e+08 bytes/s 0.06 spread\n"
                            "tiles 132 128 256 192\n"
                            "reach matmul 0.5 0.07 spread\n"
                            "reach other 0.8 0.08 spread\n"
                            "link node 4e+09 bytes/s 5 us 0.09 spread\n"
                            "link rack 3e+09 bytes/s 6 us 0.11 spread\n"
                            "link spine 2e+09 bytes/s 7 us 0.12 spread\n"
                            "op matmul bf16 100x200x300 bias,tb 4.5 ms 0.13 spread 31 calls\n"
                            "op add fp32 1000 - 0.5 ms 0.14 spread 7 calls\n"
                            "op add fp32 1000x8 - 0.25 ms 0.15 spread 9 calls\n"
                            "comm all_reduce node 4 1000 10.5 us 0.16 spread\n"
                            "comm all_reduce rack 4 1000 20.5 us 0.17 spread\n"
                            "comm message spine 2 123456789 30.5 us 0.18 spread\n"
                            "end 24\n";

static void lines_are_written_as_they_were_read(void **state) {
    (void)state;
    char *dir = make_dir(), path[1024], *text;
    size_t n;
    costs c;
    snprintf(path, sizeof path, "%s/c.costs", dir);
    OK(costs_parse(&c, "every", every));
    OK(costs_save(&c, path));
    OK(io_read_file(path, 1 << 20, &text, &n));
    assert_string_equal(text, every);
    assert_true(c.tiles.processors == 132 && c.tiles.rows == 128 && c.tiles.columns == 256 && c.tiles.lost == 192);
    free(text), costs_free(&c);
    // a sheet stays one, and nothing is added to it
    OK(sheet_or_file(&c, "a100"));
    OK(costs_save(&c, path));
    costs_free(&c);
    OK(costs_load(&c, path));
    assert_true(c.sheet);
    costs_free(&c);
    assert_int_equal(costs_begin(&c, path, "NVIDIA A100 SXM 80 GB, 8 in a node"), ERR_CONFIG);
    assert_non_null(strstr(err_last()->text, "has a sheet of"));
    // what stands after a byte of zero would not be read
    char cut[] = "lockstep costs 2\ndevice x\nend 0\n\0copy 1 bytes/s 0 spread\n";
    OK(io_write_file(path, cut, sizeof cut - 1, NULL));
    assert_int_equal(costs_load(&c, path), ERR_DATA);
    assert_non_null(strstr(err_last()->text, "found a byte of zero"));
    drop_dir(dir);
}

// A line takes the place of one that is the same in all but its time.
static void lines_take_the_place_of_the_same(void **state) {
    (void)state;
    costs c;
    OK(costs_parse(&c, "every", every));
    costs_comm said = c.comm[0];
    said.s.is = 7;
    OK(costs_set_comm(&c, &said));
    assert_true(c.comms == 3 && c.comm[0].s.is == 7);
    costs_comm others[4] = {said, said, said, said};
    others[0].call = CALL_ALL_GATHER, others[1].level = COSTS_SPINE, others[2].ranks = 8, others[3].bytes = 1001;
    for (int i = 0; i < 4; i++) {
        OK(costs_set_comm(&c, &others[i]));
        assert_int_equal(c.comms, 4 + i);
        assert_true(c.comm[0].s.is == 7 && memcmp(&c.comm[3 + i], &others[i], sizeof said) == 0);
    }
    costs_op op = c.op[0], more[3];
    op.s.is = 9;
    OK(costs_set_op(&c, &op));
    assert_true(c.ops == 3 && c.op[0].s.is == 9);
    for (int i = 0; i < 3; i++) more[i] = op;
    snprintf(more[0].name, sizeof more[0].name, "add"), more[1].size[2] = 301, more[2].options = 0;
    for (int i = 0; i < 3; i++) {
        OK(costs_set_op(&c, &more[i]));
        assert_int_equal(c.ops, 4 + i);
    }
    costs_free(&c);
}

// --- times -----------------------------------------------------------------------------------------------------------

// A second for each operation of arithmetic.
static double product(const costs *c, const char *op, int64_t m, int64_t n, int64_t k, int64_t more) {
    op_cost x = {FP32, {m, n, k, more}, 0, 0, (double)(m * n * k)};
    return costs_of_op(c, op, &x).s;
}

// The share of the tiles' products that a product asks for, in the best of all ways to lay tiles and to divide k.
static void products_come_in_waves(void **state) {
    (void)state;
    costs c;
    OK(costs_parse(&c, "t", "lockstep costs 2\ndevice t\npeak fp32 1 flop/s 0 spread\ntiles 4 100 200 50\nend 2\n"));
    // one tile of a wave of four, or one each of a quarter of k: each loses 50 of its k
    close_to(product(&c, "matmul", 100, 200, 100, 0), 4 * 100 * 200 * (25 + 50.0));
    close_to(product(&c, "matmul", 200, 100, 100, 0), 4 * 100 * 200 * (25 + 50.0));  // as well, tiles turned
    close_to(product(&c, "matmul", 400, 200, 100, 0), 4 * 100 * 200 * (100 + 50.0));
    // other operations, and products of four sizes, have no such tiles
    close_to(product(&c, "attention_forward", 100, 200, 100, 0), 100 * 200 * 100);
    close_to(product(&c, "matmul", 100, 200, 100, 7), 100 * 200 * 100);
    // a tile of which a part is used costs as much as a whole one, at both edges
    c.tiles.processors = 1, c.tiles.rows = c.tiles.columns = 100, c.tiles.lost = 0;
    close_to(product(&c, "matmul", 250, 250, 10, 0), 9 * 100 * 100 * 10);
    close_to(product(&c, "matmul", 250, 100, 10, 0), 3 * 100 * 100 * 10);
    close_to(product(&c, "matmul", 100, 250, 10, 0), 3 * 100 * 100 * 10);
    costs_free(&c);
}

// The doubt of a roofline is that of the figure which it is made of, and of the share that is reached.
static void doubts_add_up(void **state) {
    (void)state;
    costs c;
    OK(costs_parse(
        &c, "t",
        "lockstep costs 2\ndevice t\npeak fp32 1 flop/s 0.2 spread\ncopy 1 bytes/s 0.3 spread\n"
        "launch 1e6 us 0.5 spread\nreach matmul 0.5 0.01 spread\n"
        "op sum fp32 1024 - 1000 ms 0.6 spread 1 calls\nop sum fp32 8x8 - 7000 ms 0.6 spread 1 calls\n"
        "comm merge node 4 100 1e6 us 0.1 spread\ncomm merge node 4 400 4e6 us 0.02 spread\n"
        "comm merge node 16 100 9e6 us 0.3 spread\ncomm all_to_all rack 8 100 1e6 us 0.1 spread\n"
        "comm all_gather node 4 100 1e6 us 0.02 spread\ncomm all_gather node 4 400 4e6 us 0.1 spread\nend 12\n"));
    op_cost work = {FP32, {4, 4, 4}, 0, 1, 128}, bytes = {FP32, {64}, 0, 128, 0};
    costs_time t = costs_of_op(&c, "matmul", &work);
    close_to(t.s, 128 / 0.5 + 1), close_to(t.error, 256 * (0.01 + 0.2) + 0.5);
    t = costs_of_op(&c, "copy", &bytes);  // no share of its own: all of it
    close_to(t.s, 128 + 1), close_to(t.error, 128 * 0.3 + 0.5);
    // shapes of other dimensions can't be compared; one that is far is no more in doubt than by all of it
    op_cost near = {FP32, {2048}, 0, 2048, 0}, far = {FP32, {1 << 20}, 0, 1 << 20, 0},
            three = {FP32, {2, 2, 2}, 0, 8, 0};
    t = costs_of_op(&c, "sum", &near);
    assert_int_equal(t.from, FROM_NEAR);
    close_to(t.s, 1 * (2048 + 1) / (1024.0 + 1)), close_to(t.error, (0.6 + 0.05) * t.s);
    t = costs_of_op(&c, "sum", &far);
    close_to(t.s, 1 * ((1 << 20) + 1) / (1024.0 + 1)), close_to(t.error, t.s);
    assert_int_equal(costs_of_op(&c, "sum", &three).from, FROM_ROOFLINE);
    // of two lines the more doubtful one counts, on both sides
    t = costs_of_call(&c, CALL_MERGE, COSTS_NODE, 4, 200);
    close_to(t.s, 2), close_to(t.error, 0.1 * 2);
    close_to(costs_of_call(&c, CALL_ALL_GATHER, COSTS_NODE, 4, 200).error, 0.1 * 2);
    close_to(costs_of_call(&c, CALL_MERGE, COSTS_NODE, 4, 800).error, 0.02 * 8);
    close_to(costs_of_call(&c, CALL_MERGE, COSTS_NODE, 4, 50).error, 0.1 * 1);
    t = costs_of_call(&c, CALL_MERGE, COSTS_NODE, 8, 100);
    close_to(t.s, 3), close_to(t.error, (0.3 + 0.05) * 3);
    // lines of another level, or of another call, say nothing; but merges are exchanges where none was measured
    assert_int_equal(costs_of_call(&c, CALL_ALL_TO_ALL, COSTS_NODE, 8, 100).from, FROM_ROOFLINE);
    assert_int_equal(costs_called(&c, CALL_MERGE, COSTS_NODE, 2), 4);
    assert_int_equal(costs_called(&c, CALL_MERGE, COSTS_NODE, 5), 16);
    assert_int_equal(costs_called(&c, CALL_MERGE, COSTS_NODE, 32), 16);
    assert_int_equal(costs_called(&c, CALL_MERGE, COSTS_RACK, 2), 8);
    assert_int_equal(costs_called(&c, CALL_MERGE, COSTS_SPINE, 2), 0);
    assert_int_equal(costs_called(&c, CALL_ALL_TO_ALL, COSTS_NODE, 2), 0);
    costs_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(figures_of_gpus),
                                       cmocka_unit_test(figures_of_sockets),
                                       cmocka_unit_test(lines_are_written_as_they_were_read),
                                       cmocka_unit_test(lines_take_the_place_of_the_same),
                                       cmocka_unit_test(products_come_in_waves),
                                       cmocka_unit_test(doubts_add_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
