// test/bench/foreign_sheet.h: the constants that predictions of other trainers' steps rest on, fewer than 25 in all, in
// one file (test/bench/foreign.sheet), a line each:
//
//   a100_matmul 0.71      what it means; from which tables it was fitted
//
// What a machine's datasheet says, such as peaks, is not among them: it is in the planner's own sheets
// (trainer/costs/sheets.h).
#ifndef TEST_BENCH_FOREIGN_SHEET_H
#define TEST_BENCH_FOREIGN_SHEET_H

#include "trainer/costs/costs.h"

// name, where a fit starts, meaning and tables. Times of an all-reduce over n GPUs of an A100 node, of which each sends
// W bytes: start + rank n + W / rate (1 + few / n) + root sqrt(W).
// clang-format off
#define CONSTANTS(X) \
    X(a100_matmul, 0.8, "share of the peak that full tiles of a product reach; vtrain, megatron") \
    X(a100_lost, 64, "k that each tile of a product loses; vtrain, megatron") \
    X(a100_other, 0.8, "share of the memory's rate that operations without products reach; vtrain, megatron") \
    X(a100_launch, 5, "us that each operation takes longer; vtrain, megatron") \
    X(a100_card, 0.8, "share of the cards' rate that collectives between nodes reach; vtrain, megatron") \
    X(vtrain_others, 0.2, "how much longer tensor ranks take, times the share of their node that is others'; vtrain") \
    X(a100_zero3, 0.5, "share of the cards' rate of ZeRO-3's gathers, a parameter at a time; megatron-2104-table2") \
    X(a100_beside, 1.2, "how much longer computing takes beside those gathers; megatron-2104-table2") \
    X(a100_start, 20, "us of an all-reduce; allreduce") \
    X(a100_rank, 4, "us more for each GPU of the group; allreduce") \
    X(a100_rate, 250, "GB/s that each GPU of a large group sends; allreduce") \
    X(a100_few, 0.5, "how much slower groups of few are; allreduce") \
    X(a100_root, 5, "us for the root of a MB: messages too small for the rate; allreduce") \
    X(v100_rank, 8, "us of an all-reduce for each GPU of the group; allreduce") \
    X(v100_two, 22, "GB/s that each of 2 GPUs sends, over the links that they have; allreduce") \
    X(v100_four, 88, "the same of 4, and of 7; allreduce") \
    X(v100_five, 44, "the same of 5; allreduce") \
    X(v100_eight, 132, "the same of 8; allreduce") \
    X(h100_matmul, 0.6, "share of the peak that products in BF16 reach; torchtitan") \
    X(h100_fp8, 0.6, "the same in FP8; torchtitan") \
    X(h100_rows, 2, "how often factors of FP8 are read and written to be cast with a scale a row; torchtitan") \
    X(h100_attention, 0.5, "share of the peak that attention reaches, forward; torchtitan") \
    X(h100_link, 0.8, "share of NVLink's and of the cards' rate that collectives reach; torchtitan")
// clang-format on

#define CONSTANT_NUMBER(name, start, meaning) CONSTANT_##name,
enum { CONSTANTS(CONSTANT_NUMBER) CONSTANT_COUNT };
#undef CONSTANT_NUMBER

typedef struct foreign_sheet {
    double at[CONSTANT_COUNT];
} foreign_sheet;

const char *constant_name(int i);

// Where a fit starts.
void foreign_sheet_start(foreign_sheet *s);

// ERR_IO; ERR_DATA: the line, and what was expected there.
err_t foreign_sheet_read(foreign_sheet *s, const char *path);
err_t foreign_sheet_write(const foreign_sheet *s, const char *path);

typedef enum { FOREIGN_A100, FOREIGN_V100, FOREIGN_H100, FOREIGN_H200 } foreign_device;
typedef enum { FOREIGN_FP16, FOREIGN_FP8, FOREIGN_FP8_ROWS } foreign_type;

// The planner's table of costs that the constants make of a datasheet. card: bytes/s of a GPU's share of the node's
// cards. Freed with costs_free.
err_t foreign_costs(costs *out, const foreign_sheet *s, foreign_device device, foreign_type type, double card);

// Such tables of one sheet, each made when it is first asked for.
typedef struct foreign_machines {
    const foreign_sheet *sheet;
    int count;
    struct {
        foreign_device device;
        foreign_type type;
        double card;
        costs costs;
    } at[16];
} foreign_machines;

// *c stays m's. ERR_INTERNAL: more kinds of machines than published tables have.
err_t foreign_machine(const costs **c, foreign_machines *m, foreign_device device, foreign_type type, double card);
void foreign_machines_free(foreign_machines *m);

#endif
