// data/click/rated.h: made-up ratings of MovieLens' shape, no numbers and two ids, from a model that is known: the same
// for everybody, in any number, without a download.
//
//   ids     user 1 .. users and item 1 .. items, id k with probability ~ k^-0.5, drawn by themselves
//   q       = 0.6 + a[user] + b[item] + <v[user], w[item]>, within 0.05 to 0.95: a biased factorisation (Koren, Bell
//           and Volinsky 2009, equation 4), vectors of 2 numbers
//   rating  half a star and half of each of 9 draws that is a hit, with probability q: 0.5 to 5 in halves
//
// So a rating's mean is (1 + 9 q) / 2 and its variance 9 q (1 - q) / 4. No model's mean squared error on such ratings
// is below the mean of that. On given ratings the planted model's own squared error is what others are compared with:
// it has the same luck.
#ifndef DATA_CLICK_RATED_H
#define DATA_CLICK_RATED_H

#include "base/err.h"
#include "data/click/record.h"

#include <stdbool.h>

enum { RATED_TABLES = 2, RATED_FACTORS = 2, RATED_IDS = 1 << 20 };

typedef struct rated_shape {
    uint64_t seed;
    int64_t records, users, items;
} rated_shape;

// Does an input of [pack] name made-up ratings?
bool rated_begins(const char *text);
// "planted:SEED:RECORDS:USERS:ITEMS". ERR_CONFIG: it is another one.
err_t rated_parse(const char *text, rated_shape *shape);

typedef struct rated rated;
err_t rated_open(rated **out, const rated_shape *shape);
void rated_close(rated *r);

// *out = record n; *mean, *variance: of its rating, by the model.
void rated_record(const rated *r, int64_t n, click *out, double *mean, double *variance);

#endif
