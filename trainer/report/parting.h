// trainer/report/parting.h: up to which step two runs are the same, and what was set otherwise.
#ifndef TRAINER_REPORT_PARTING_H
#define TRAINER_REPORT_PARTING_H

#include "trainer/report/runlog.h"

// Steps count from 1; 0: there is no such step. Losses are compared as logged, with 9 digits.
typedef struct parting {
    int64_t shared, last_shared;    // steps that both logs have
    int64_t hashed;                 // of these: with a hash in both
    int64_t same_hash, other_hash;  // the last with the same hash before the first with another one, and that
    char hash[2][RUNLOG_WORD];      // of the last step with a hash in both
    int64_t last_hash;
    int64_t same_loss, other_loss;  // the same of losses
} parting;

// Both logs are read side by side, from their beginnings: nothing is kept, however long they are. A missing log has no
// steps. ERR_IO, ERR_INTERNAL (no memory).
err_t parting_of(parting *p, const char *dir_a, const char *dir_b);

// In one sentence, where the two part. dst has room for PARTING_TEXT bytes. Returns dst.
enum { PARTING_TEXT = 256 };
const char *parting_text(char dst[PARTING_TEXT], const parting *p);

// Calls visit for each setting that is not the same in all n runs, first those of class bits, then layout, then local.
// value[i] is NULL where run i has no such setting. [run] name and dir, which always differ, are left out. The runs
// must have been polled.
typedef void (*parting_visit)(void *ctx, key_class class, const char *name, const char *const *value);
void parting_settings(runlog *const *runs, int n, parting_visit visit, void *ctx);

extern const char *const parting_classes[3];  // by key_class: what a difference of that class means

#endif
