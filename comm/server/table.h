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
// Where memory is limited, the rows of the steps before it are in a file (comm/server/cold.h), and only their slots of
// the index are in memory:
//
//   hot    in a frame: memory of a row and its sum, beside which stands the step that touched it last
//   cold   in the file alone. A look at it, or an update, reads it into a free frame. Where none is free, a look reads
//          it for the caller alone, and an update writes it back at once
//
// At a step's end (row_table_cool) rows leave, so that as many frames are free as the last step took, and a quarter
// more; of at least 1/64, and at most 1/4, of all frames. A hand goes round over the frames: of the next eight times as
// many as have to leave, those leave that were touched in the earliest steps, and of those of one step the first ones.
// (Of a sample of eight the oldest one is nearly the oldest of all: Redis's approximated LRU.) A row that has not
// changed since it was read is not written. So a step's end pays for what the step took, not for the table. Which rows
// are cold depends on the calls alone; no value does.
//
// What is not there has its initial values: Philox keyed by (seed, table, id, element), uniform in +-bound. So it
// changes no bit in which order rows are made, and by whom.
#ifndef COMM_SERVER_TABLE_H
#define COMM_SERVER_TABLE_H

#include "base/err.h"
#include "base/fault.h"
#include "comm/server/rows.h"

typedef struct row_table row_table;

typedef struct row_options {
    int64_t width;  // of a row
    uint64_t seed;
    float bound;         // initial values are within it
    int first, buckets;  // whose rows it has; of a rank that owns none: 0 buckets
    int64_t memory;      // bytes for rows, the index not counted; 0: for all of them, and nothing below
    const char *dir;     // of the file
    int number;          // of the rank, for the file's name
    fault_list *faults;  // FAULT_SPILL_READ, _WRITE, _FLIP; NULL: none
} row_options;

// What AdaGrad does with a gradient g: sum += mean((factor g)^2); row -= lr factor g / (sqrt(sum) + eps)
typedef struct row_rules {
    float factor, lr, eps;
} row_rules;

// ERR_CONFIG: so much memory does not hold a row. ERR_IO: the file can't be made.
err_t row_table_open(row_table **out, const row_options *o);
void row_table_close(row_table *t);

// All rows are gone.
err_t row_table_clear(row_table *t);

const row_options *row_table_about(const row_table *t);
int64_t row_table_rows(const row_table *t);
// Of these, those that are in the file alone.
int64_t row_table_cold(const row_table *t);
// Of memory that was touched, or may have been: index and rows; and rows alone, of which there are at most `memory`.
int64_t row_table_bytes(const row_table *t);
int64_t row_table_held(const row_table *t);
// Of the file.
int64_t row_table_file(const row_table *t);
// Slots of the old index that have not moved yet.
int64_t row_table_left(const row_table *t);
// Has the file failed? Then rows are lost, and all that reads any returns that failure.
bool row_table_is_lost(const row_table *t);

// The initial values of a row.
void row_initial(const row_options *o, row_key k, float *row);

// How many of n keys have no row yet.
int64_t row_table_missing(const row_table *t, const row_key *key, int64_t n);

// rows (n,width) (=) the rows of n sorted keys, each once. None is made. Where there is a file, here and below: ERR_IO,
// the disk refused; ERR_DATA, a row is not what was written last; both name file, slot and id.
err_t row_table_look(row_table *t, const row_key *key, int64_t n, float *rows);

// These keys will be looked at, or updated: those that are cold begin to be read, as far as frames are free, while the
// caller goes on. What comes next waits for them. May be called several times.
err_t row_table_ahead(row_table *t, const row_key *key, int64_t n);

// One step of AdaGrad on these rows; those that are not there are made. ERR_INTERNAL: no memory; then some rows have
// been updated.
err_t row_table_update(row_table *t, const row_list *gradient, const row_rules *by);

// At a step's end: rows leave memory.
err_t row_table_cool(row_table *t);

// Sets a row. ERR_DATA: its bucket is not one of the table's, or it is there already.
err_t row_table_put(row_table *t, row_key k, const float *row, float sum);

// A walk in order of keys, from the first of a bucket on; nothing may change meanwhile, and there is one walk at a
// time. Growth is finished first. Cold rows come a bucket, or a part of one, at a time.
typedef struct row_walk {
    int64_t slot;
    row_key key;
    const float *row, *sum;
    bool keys_only;  // set it after row_table_begin: row and sum are not wanted, and nothing is read
    err_t rc;        // why there are no more rows; ERR_OK: there are none
    int at, count;   // of the cold rows that were read
} row_walk;
void row_table_begin(row_table *t, int bucket, row_walk *w);
bool row_table_next(row_table *t, row_walk *w);

// [ROW_BUCKETS] which buckets have changed since the caller set these to false. After opening: all.
bool *row_table_changed(row_table *t);

// The least memory that a limit may be, and what each row takes of it.
int64_t row_table_least(int64_t width);
int64_t row_table_frame_bytes(int64_t width);

#endif
