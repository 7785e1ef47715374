// data/click/planted.h: made-up clicks of Criteo's shape, 13 numbers and 26 ids, from a model that is known: the same
// for everybody, in any number, without a download.
//
//   ids     of each table 1 .. ids, id k with probability ~ k^-1.05 (Zipf), drawn by themselves
//   dense   ln(1 + n), n a whole number that falls off exponentially with mean 10 about
//   label   1 with probability p = 1 / (1 + exp(-z)),
//           z = offset + sum_j a[j] * (dense[j] - 2) + sum_{s<t} (<v[s][id_s], v[t][id_t]> - |m|^2)
//
// The vectors v, of 4 numbers, are drawn around a mean m, so that an id has an effect of its own, 25 <m, v - m>, and
// one with each other id. It is a factorisation machine (Rendle 2010, equation 1). No model's mean loss on such records
// is below the mean of p's entropy. On given labels the planted model's own mean loss, -ln of what it gave to each
// label, is what others are compared with: it has the same luck.
//
// All numbers are Philox of (seed, record or parameter), by arithmetic that is the same on every machine.
#ifndef DATA_CLICK_PLANTED_H
#define DATA_CLICK_PLANTED_H

#include "base/err.h"
#include "data/click/record.h"

#include <stdbool.h>

enum { PLANTED_DENSE = 13, PLANTED_TABLES = 26, PLANTED_FACTORS = 4, PLANTED_IDS = 1 << 20 };

// An input of [pack]: "planted:SEED:RECORDS:IDS", IDS of each table. ERR_CONFIG: it is another one.
err_t planted_parse(const char *text, uint64_t *seed, int64_t *records, int64_t *ids);

typedef struct planted planted;
err_t planted_open(planted **out, uint64_t seed, int64_t ids);
void planted_close(planted *p);

// *out = record n; *chance: of a click, by the model.
void planted_record(const planted *p, int64_t n, click *out, double *chance);

#endif
