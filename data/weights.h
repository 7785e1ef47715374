// data/weights.h: names of files with weights, as [data] train takes them: `a*.bin@0.7 b*.bin@0.3`.
#ifndef DATA_WEIGHTS_H
#define DATA_WEIGHTS_H

#include "base/err.h"

#include <stdint.h>

enum { WEIGHTS_PLACES = 10000 };  // most samples of a block: weights like 0.0001 and 0.9999 still work

typedef struct weighted {
    char *text;     // as it was written: "a*.bin@0.7"
    char *files;    // the file or glob: "a*.bin"
    int64_t count;  // of the samples of a block so many are of this part: the weight as a whole number
} weighted;

typedef struct weights {
    weighted *part;  // (parts), in the order in which they were written
    int parts;       // 0: no name has a weight
    int64_t places;  // samples of a block: the sum of all counts
} weights;

// Splits the names, with space between. A weight is a positive decimal after the last `@` of a name; an `@` before
// anything but a number is part of the name. Counts are the weights multiplied by what makes them whole numbers without
// a common divisor. ERR_CONFIG: some names have a weight and some have none; a weight that is not positive; counts that
// exceed WEIGHTS_PLACES in sum. *out must be zero; weights_free() it in any case.
err_t weights_parse(weights *out, const char *files);
void weights_free(weights *w);

#endif
