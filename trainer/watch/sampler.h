// trainer/watch/sampler.h: looks at a node once: the board, the ranks' processes, their devices, the disk. All that it
// finds is in one watch_state (trainer/watch/state.h), which stays until it looks again.
#ifndef TRAINER_WATCH_SAMPLER_H
#define TRAINER_WATCH_SAMPLER_H

#include "trainer/config/config.h"
#include "trainer/watch/state.h"

typedef struct sampler sampler;

typedef struct sampler_options {
    const config *c;
    const watch_start *at;
    const char *root;  // "": this machine's files; else of one that is made of files, for tests: ROOT/proc, ROOT/sys
    const char *nvml;  // NVML's library, NULL: where the driver puts it
    double every_s;    // between two looks
} sampler_options;

// Allocates all that later looks need. *out is NULL only without memory.
err_t sampler_open(sampler **out, const sampler_options *o);
void sampler_close(sampler *x);

// The state, brought up to date. alarms of the last look are still in it. monotonic: clock_now(), in tests any time
// later than the last. Never fails: what can't be read is not known.
watch_state *sampler_look(sampler *x, double monotonic, double time);

// Why no device of a node could be asked, once: "" if there is nothing to say.
const char *sampler_complaint(const sampler *x);

#endif
