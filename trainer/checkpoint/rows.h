// trainer/checkpoint/rows.h: rows on demand (comm/server/table.h) in hashes and checkpoints. They have no shape that is
// known before, so they are no tensors of the groups, and have files of their own:
//
//   table.safetensors               tables.id     (n)   U64    sorted by key: bucket after bucket
//   table-00001-of-00004....        tables.table  (n)   U32
//                                   tables.row    (n,D) F32
//                                   tables.sum    (n)   F32    of AdaGrad
//
// A rank's file is a part: the rows of its buckets, none where it has none. Any number of ranks loads them: each reads
// the parts that have some of its buckets, and keeps its own rows.
//
//   bucket = B(id, table and values of its rows), B(their sums)
//   part   = B(buckets)                                          verified by who reads any of it
//   table  = B(name, width, all buckets' values), B(all buckets' sums)
//
// Who owns a bucket digests it; all ranks gather all of them. One that has not changed is not digested again.
#ifndef TRAINER_CHECKPOINT_ROWS_H
#define TRAINER_CHECKPOINT_ROWS_H

#include "comm/server/table.h"
#include "trainer/checkpoint/manifest.h"

struct st_file;
struct ckpt_saving;

enum { ROW_TENSORS = 4, ROWS_VALUES = 0, ROWS_SUMS = 1 };

// Of each bucket: values, sums.
typedef struct row_digests {
    uint8_t of[ROW_BUCKETS][2][CKPT_DIGEST];
} row_digests;

// With those of no rows. NULL: no memory.
row_digests *row_digests_open(void);

void rows_part_digest(const row_digests *x, int first, int buckets, uint8_t out[CKPT_DIGEST]);
// out (=) of the table's values, and of its sums.
void rows_table_digest(const row_digests *x, const char *name, int64_t width, uint8_t out[2][CKPT_DIGEST]);
// The hash of a state with rows on demand begins with this digest, of the masters' group and the table's values.
void rows_hash(const uint8_t masters[CKPT_DIGEST], const uint8_t values[CKPT_DIGEST], uint8_t out[CKPT_DIGEST]);

// Collective. s->row_digests (=) those of all buckets, of all ranks.
err_t ckpt_rows_digest(const ckpt_state *s);

// Collective. Says in the manifest which ranks have rows, and how many.
err_t ckpt_rows_describe(manifest *m, const ckpt_state *s);
// This rank's file, of which path is the place; fills in what is said of it. None where it has no rows.
err_t ckpt_rows_write(manifest *m, const ckpt_state *s, const char *path, int file, fault_list *faults);

// Reads a part and compares its digest. table NULL: no row is kept; else those of its buckets are put there, and x (=)
// these buckets' digests; without a table, those of all buckets of the part. x NULL: nowhere.
err_t ckpt_rows_read_part(const struct st_file *f, const manifest *m, int file, row_table *table, row_digests *x);

#endif
