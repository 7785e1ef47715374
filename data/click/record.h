// data/click/record.h: what is known of one impression, and whether it was clicked; or who rated what, and how.
#ifndef DATA_CLICK_RECORD_H
#define DATA_CLICK_RECORD_H

#include "base/mix.h"

#include <stdint.h>

enum { CLICK_DENSE = 64, CLICK_TABLES = 64 };  // most of a record

typedef struct click {
    float label;                // 0 or 1; of ratings the rating
    float dense[CLICK_DENSE];   // numbers, such as logarithms of counts
    uint64_t id[CLICK_TABLES];  // one of each table; 0: it is missing
} click;

// The row of an id in a table of so many rows. Small ids have a row of their own, so that tables with a row for each id
// have no two in one. All others are spread over all rows, those of each table in another way.
static inline int64_t click_row(uint64_t id, int table, int64_t rows) {
    return id < (uint64_t)rows ? (int64_t)id : (int64_t)(mix((uint64_t)table, id) % (uint64_t)rows);
}

#endif
