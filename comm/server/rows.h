// comm/server/rows.h: keys of the rows of tables that are made on demand, and sorted lists of such rows.
//
// A row is named by its table and a 64-bit id. Its key is a point, which is a bijection of the id that spreads ids
// evenly, and the table. Everything is in order of keys: who owns a row, where a hash and a checkpoint have it, and in
// which order gradients are added. So the highest bits of the point decide: they are the row's bucket, of ROW_BUCKETS.
#ifndef COMM_SERVER_ROWS_H
#define COMM_SERVER_ROWS_H

#include "base/mix.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ROW_BUCKETS = 4096, ROW_BUCKET_SHIFT = 52 };

typedef struct row_key {
    uint64_t point, table;
} row_key;

static inline row_key row_key_of(uint64_t table, uint64_t id) { return (row_key){mix(table, id), table}; }
// The inverse.
uint64_t row_id(row_key k);

static inline int row_bucket(row_key k) { return (int)(k.point >> ROW_BUCKET_SHIFT); }
static inline bool row_less(row_key a, row_key b) { return a.point != b.point ? a.point < b.point : a.table < b.table; }
static inline bool row_equal(row_key a, row_key b) { return a.point == b.point && a.table == b.table; }

// cut [world + 1] (=): rank r owns the buckets cut[r] .. cut[r + 1] - 1, as many as its weight says, to within one, and
// cut[world] is ROW_BUCKETS. weight [world]: their sum is above 0; NULL: all as many.
void row_cuts(int *cut, int world, const int64_t *weight);

// Rows in order of their keys, each key once.
typedef struct row_list {
    int64_t n;
    row_key *key;  // [n]
    float *row;    // (n,D)
} row_list;

// Where the first key of this bucket, or of a later one, is among n sorted ones.
int64_t row_lower(const row_key *key, int64_t n, int bucket);

// Numbers that row_unique needs beside its results, for n ids.
static inline int64_t row_unique_room(int64_t n) {
    int64_t room = 4;
    while (room < 2 * n) room *= 2;
    return room + 3 * n + 1;  // its places; an order, its ranges, and the inverse
}

// The keys of ids [n], where id i is of table i % tables: key (=) each once, sorted. at [n] (=): where the key of id i
// is among them. scratch [row_unique_room(n)] and more [n] are its own. Returns how many.
int64_t row_unique(const uint64_t *id, int64_t n, int64_t tables, row_key *key, int32_t *at, int32_t *scratch,
                   row_key *more);

// out (=) every row of a or b: of one that both have, a's plus b's; of one that only one of them has, that one, to the
// bit. out has room for all of both, and shares no memory with them.
void row_add(row_list *out, const row_list *a, const row_list *b, int64_t D);

// The sums of squares of the rows of each bucket, in double, row after row, each in order of its elements.
// sums [ROW_BUCKETS] (=), of buckets without a row 0.
void row_squares(double *sums, const row_list *x, int64_t D);

#endif
