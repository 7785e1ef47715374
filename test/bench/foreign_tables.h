// test/bench/foreign_tables.h: published tables of measured steps and all-reduces, as rows that can be predicted. A
// file's kind is in its name, as dev-KIND.csv; its columns are those that its kind has. Lines that begin with # say
// where figures are from.
#ifndef TEST_BENCH_FOREIGN_TABLES_H
#define TEST_BENCH_FOREIGN_TABLES_H

#include "test/bench/foreign.h"

typedef enum {
    TABLE_VTRAIN,      // vtrain-multi: ms of a step
    TABLE_2104_ONE,    // megatron-2104-table1: TFLOP/s of a GPU
    TABLE_2104_TWO,    // megatron-2104-table2: the same
    TABLE_2205,        // megatron-2205-table5: seconds of a step
    TABLE_TORCHTITAN,  // torchtitan: tokens/s of a GPU
    TABLE_ALL_REDUCE,  // allreduce: us
    TABLES
} table_kind;

extern const char *const table_name[TABLES];

// Where a table does not say which micro-batch or how many stages a rank has, the fastest of several runs is meant.
enum { ROW_RUNS = 24, ROW_MODEL = 64 };

typedef struct table_row {
    table_kind kind;
    char model[ROW_MODEL];  // rows of the same one differ in their layouts: which one is best?
    double measured;        // as the table has it
    double work;            // what is divided by the predicted seconds; 0: `scale` of them is what was measured
    double scale;
    int runs;  // 0: an all-reduce
    foreign_case run[ROW_RUNS];
    foreign_device device;
    int gpus;
    double bytes;
} table_row;

typedef struct tables {
    table_row *row;
    int rows, room;
} tables;

// TABLES: of none.
table_kind table_kind_of(const char *file);

// Adds the file's rows. ERR_IO; ERR_DATA: the line, and what was expected there.
err_t table_read(tables *t, const char *path, table_kind kind);
void tables_free(tables *t);

// The predicted figure, in the unit of what was measured.
err_t table_predict(double *out, const table_row *row, foreign_machines *m);

#endif
