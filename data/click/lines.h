// data/click/lines.h: lines of the files of others as records.
#ifndef DATA_CLICK_LINES_H
#define DATA_CLICK_LINES_H

#include "base/err.h"
#include "data/click/record.h"

#include <stdbool.h>

// Criteo's: label, 13 whole numbers and 26 ids of hexadecimal digits, with tabs between. A number may be missing, and
// is 0 then; one below 0 is 0 too. dense = ln(1 + number), as DLRM has it (Naumov et al. 2019). An id is its value + 1,
// 0 where it is missing.
enum { CRITEO_DENSE = 13, CRITEO_TABLES = 26 };
err_t criteo_line(click *out, const uint8_t *line, int64_t n);

// MovieLens': user, item, rating from 0.5 to 5 and seconds since 1970, with tabs between as in u.data, `::` as in
// ratings.dat, or commas as in ratings.csv. The label is the rating, or with a threshold 1 for a rating of at least
// `threshold`. dense = years since 1998 began; the ids are those of user and item.
enum { MOVIELENS_DENSE = 1, MOVIELENS_TABLES = 2 };
err_t movielens_line(click *out, const uint8_t *line, int64_t n, int64_t threshold);
// Is it the first line of ratings.csv, which names the columns?
bool movielens_header(const uint8_t *line, int64_t n);

#endif
