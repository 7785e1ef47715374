// base/fault.h: failures on demand, so that recovery is tested.
//
// `[run] faults = write@3, read@5x2` makes the third write fail, and the fifth and sixth read; `unit@17:2` is for rank
// 2 alone. Code that can fail calls fault_hit() where the operating system would report the error; a list that is NULL
// or empty costs one load.
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef enum fault_point {
    FAULT_READ,    // a dataset read returns EIO
    FAULT_WRITE,   // a checkpoint write returns ENOSPC
    FAULT_SYNC,    // an fsync returns EIO
    FAULT_RENAME,  // a commit rename returns EIO
    FAULT_FLIP,    // a checkpoint write succeeds, and a bit of what it wrote is wrong
    FAULT_SLOW,    // a dataset read takes FAULT_SLOW_MS longer
    FAULT_UNIT,    // a unit of a pipeline's table: the process is killed before it computes (trainer/step/executor.c)
    FAULT_LIE,     // a step is over, and a bit of what the rank holds of the weights is wrong
    FAULT_NAN,     // a step's gradient is summed, and a number of what this rank owns of it is NaN
    FAULT_DRAG,    // a micro-batch takes FAULT_DRAG_MS longer to compute
    FAULT_TWICE,   // a micro-batch takes as long again: of a rank at half speed
    FAULT_POINTS,
} fault_point;

enum { FAULT_SLOW_MS = 250, FAULT_DRAG_MS = 10 };

typedef struct fault_list {
    atomic_long seen[FAULT_POINTS];                 // how often the point was passed
    atomic_long *shared;                            // counted there instead: by all processes of a rank. NULL: here
    long first[FAULT_POINTS], count[FAULT_POINTS];  // fail passes first .. first+count-1 (from 1); first = 0: never
    int only[FAULT_POINTS];                         // the rank that it is for; -1: all
    // this process's, -1 until it is known: what is for one rank is not counted before
    int rank;
} fault_list;

// Parses "point@first[xcount][:rank], ..." into *list. ERR_CONFIG with the valid points on anything else.
err_t fault_parse(fault_list *list, const char *text);

// Counts one pass of the point and returns whether it must fail. Any thread.
bool fault_hit(fault_list *list, fault_point point);

#endif
