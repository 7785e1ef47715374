// comm/server/table.h: rows of tables that are made when they are first updated, each with the sum of a row-wise
// AdaGrad (Duchi et al. 2011, with one sum for a whole row, of the mean of its squares: Mudigere et al. 2022, section
// 4.1.2). A table of so many rows costs so many, and not all that ids could name.
//
//   index   slots in order of keys, with gaps:       | a |   | b | c |   |   | d | ...      16 bytes each, at most 5/8
//           a key stands at its home or right after it                                      of them used
//   rows    segments of SEGMENT rows, which never move, in the order in which they were made
//
// A key's home is its share of the points times the slots, so the order of homes is that of keys. A new key moves those
// after it up to the next gap. Nothing is ever removed, so there are no tombstones, and a walk over the slots is one in
// order of keys.
//
// Growth: from 5/8 on there is a second index of twice the slots, and each new row takes four slots of the old one
// along. Until all are there a key is looked up in both. So no update pays for the whole table.
//
// What is not there has its initial values: Philox keyed by (seed, table, id, element), uniform in +-bound. So it
// changes no bit in which order rows are made, and by whom.
#ifndef COMM_SERVER_TABLE_H
#define COMM_SERVER_TABLE_H

#include "base/err.h"
#include "comm/server/rows.h"

typedef struct row_table row_table;

typedef struct row_options {
    int64_t width;  // of a row
    uint64_t seed;
    float bound;         // initial values are within it
    int first, buckets;  // whose rows it has
} row_options;

// What AdaGrad does with a gradient g: sum += mean((factor g)^2); row -= lr factor g / (sqrt(sum) + eps)
typedef struct row_rules {
    float factor, lr, eps;
} row_rules;

err_t row_table_open(row_table **out, const row_options *o);
void row_table_close(row_table *t);

// All rows are gone.
void row_table_clear(row_table *t);

const row_options *row_table_about(const row_table *t);
int64_t row_table_rows(const row_table *t);
// Of memory that was touched, or may have been: index and segments.
int64_t row_table_bytes(const row_table *t);
// Slots of the old index that have not moved yet.
int64_t row_table_left(const row_table *t);

// The initial values of a row.
void row_initial(const row_options *o, row_key k, float *row);

// How many of n keys have no row yet.
int64_t row_table_missing(const row_table *t, const row_key *key, int64_t n);

// rows (n,width) (=) the rows of n sorted keys, each once. None is made.
void row_table_look(const row_table *t, const row_key *key, int64_t n, float *rows);

// One step of AdaGrad on these rows; those that are not there are made. ERR_INTERNAL: no memory; then some rows have
// been updated.
err_t row_table_update(row_table *t, const row_list *gradient, const row_rules *by);

// Sets a row. ERR_DATA: its bucket is not one of the table's, or it is there already.
err_t row_table_put(row_table *t, row_key k, const float *row, float sum);

// A walk in order of keys, from the first of a bucket on; nothing may change meanwhile. Growth is finished first.
typedef struct row_walk {
    int64_t slot;
    row_key key;
    const float *row, *sum;
} row_walk;
void row_table_begin(row_table *t, int bucket, row_walk *w);
bool row_table_next(const row_table *t, row_walk *w);

// [ROW_BUCKETS] which buckets have changed since the caller set these to false. After opening: all.
bool *row_table_changed(row_table *t);

#endif
