// model/dlrm/dlrm.h: the options of DLRM, for model/types.h.
#ifndef MODEL_DLRM_DLRM_H
#define MODEL_DLRM_DLRM_H

#include "base/key.h"
#include "model/rule.h"

#include <stdint.h>

enum { DLRM_HIDDEN_MAX = 10 };  // layers of a perceptron

typedef enum { DLRM_CLASSIFY, DLRM_REGRESS } dlrm_task;

typedef struct dlrm_widths {
    int64_t width[DLRM_HIDDEN_MAX];
    int layers;
} dlrm_widths;

typedef struct dlrm_options {
    model_division by;
    int task;       // dlrm_task
    int64_t dense;  // 0: a vector of the model itself is in the place of what a bottom makes of numbers
    int64_t tables, rows, embed;
    bool demand;
    double mean;                                   // task = regress: what the bias of the last layer begins as
    char bottom[KEY_TEXT_MAX], top[KEY_TEXT_MAX];  // "64 32": widths, as in the file
    dlrm_widths bottom_of, top_of;                 // the same as numbers: read by resolve
} dlrm_options;

#endif
