// trainer/step/state_read.h: values by their coordinates, from files of others or from chance.
#ifndef TRAINER_STEP_STATE_READ_H
#define TRAINER_STEP_STATE_READ_H

#include "model/weights.h"
#include "trainer/step/state.h"

// Where values come from: files of others, or, where that is NULL, chance.
typedef struct values {
    const weights_map *map;
    uint64_t seed;
} values;

// The values of a piece to dst.
err_t state_read_piece(const train_state *t, const zero_piece *p, const values *from, float *dst);

#endif
