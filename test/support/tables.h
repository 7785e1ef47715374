// test/support/tables.h: tables of rows on demand, sorted keys, and batches of rows with gradients that are drawn.
#ifndef TEST_SUPPORT_TABLES_H
#define TEST_SUPPORT_TABLES_H

#include "base/philox.h"
#include "comm/server/table.h"
#include "test/support/expect.h"

#include <stdlib.h>
#include <string.h>

enum { D = 5, TABLES = 3 };

static const row_options usual = {.width = D, .seed = 9, .bound = 0.25f, .first = 0, .buckets = ROW_BUCKETS};

// The first bucket of a rank's, where all own as many.
static inline int first_bucket(int rank, int world) {
    int cut[world + 1];
    row_cuts(cut, world, NULL);
    return cut[rank];
}

static inline uint32_t draw(uint32_t a, uint32_t b) {
    uint32_t x[4];
    philox4x32(x, 77, a, b, 0, 0);
    return x[0];
}

static inline row_table *open_table(const row_options *o) {
    row_table *t;
    assert_true(row_table_open(&t, o) == ERR_OK && row_table_rows(t) == 0);
    return t;
}

static inline int by_key(const void *a, const void *b) {
    return row_less(*(const row_key *)a, *(const row_key *)b) ? -1 : row_less(*(const row_key *)b, *(const row_key *)a);
}

// n ids of a table from `first` on, in order of their keys.
static inline void make_keys(row_key *key, int n, uint64_t table, uint64_t first) {
    for (int i = 0; i < n; i++) key[i] = row_key_of(table, first + (uint64_t)i);
    qsort(key, (size_t)n, sizeof *key, by_key);
}

// Ids 0 .. IDS-1 of each table, spread over 64 bits.
enum { IDS = 4000 };
static inline uint64_t spread(int i) { return (uint64_t)i << 40 | (uint64_t)i; }

typedef struct batch {
    row_list list;
    int number[TABLES * IDS];  // of each row, in the dense model
} batch;

// Some of the rows, with gradients.
static inline void make_batch(batch *b, int step, int share) {
    row_key key[1];
    b->list.n = 0;
    static struct {
        row_key key;
        int number;
    } all[TABLES * IDS];
    for (int i = 0; i < TABLES * IDS; i++) {
        if (draw((uint32_t)i, (uint32_t)step) % (uint32_t)share) continue;
        key[0] = row_key_of((uint64_t)(i / IDS), spread(i % IDS));
        all[b->list.n].key = key[0], all[b->list.n++].number = i;
    }
    qsort(all, (size_t)b->list.n, sizeof *all, by_key);
    for (int64_t k = 0; k < b->list.n; k++) {
        b->list.key[k] = all[k].key, b->number[k] = all[k].number;
        for (int c = 0; c < D; c++)
            b->list.row[k * D + c] =
                (float)((int)(draw((uint32_t)b->number[k], (uint32_t)(100 + 7 * step + c)) % 2001) - 1000) / 300;
    }
}

static inline void open_batch(batch *b) {
    b->list.key = calloc(TABLES * IDS, sizeof *b->list.key);
    b->list.row = calloc(TABLES * IDS * D, sizeof *b->list.row);
}
static inline void close_batch(batch *b) { free(b->list.key), free(b->list.row); }

#endif
