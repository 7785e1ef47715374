// trainer/diverged.h: what to do about a run whose loss or gradient is no longer finite. Such a step is skipped or
// useless, and so are those after it: the weights are what they were, or ruined. Often they are ruined before: the loss
// explodes for some steps while it is still finite. So the newest checkpoint from before is not always the one to go
// back to.
#ifndef TRAINER_DIVERGED_H
#define TRAINER_DIVERGED_H

#include "trainer/config/config.h"

// After how many such steps in a row a person should know: more than a dynamic loss scale needs to find its place (24
// halvings from the largest to 1), and more than a single bad sample makes. At most [run] bad_steps.
int64_t diverged_limit(const config *c);

// How many steps in a row, with a loss far above the lowest one, are no accident.
enum { RUINED_STEPS = 50 };

// Steps `first` to `last` were not finite, or the loss was far above the lowest.
typedef struct diverged_run {
    const config *c;
    const char *dir;  // DIR/NAME, of this node
    int64_t first, last;
    double loss;         // of step `last`, far above the lowest; NAN: not finite
    double least;        // the lowest loss that the run had; INFINITY: not known
    int64_t sound_step;  // newest step whose weights gave a loss near it; -1: not known (ckpt_is_proven)
} diverged_run;

// In words: which checkpoints are from before, how good they are, and after ". Next: " the command to go on with. Reads
// manifests.
enum { DIVERGED_TEXT = 900 };
err_t diverged_advice(const diverged_run *r, char text[DIVERGED_TEXT]);

#endif
