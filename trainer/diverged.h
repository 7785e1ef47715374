// trainer/diverged.h: what to do about a run whose loss or gradient is no longer finite. Such a step is skipped or
// useless, and so are those after it: the weights are what they were, or ruined. Often they are ruined before: the loss
// explodes for some steps while it is still finite. So the newest checkpoint from before is not always the one to go
// back to.
#ifndef TRAINER_DIVERGED_H
#define TRAINER_DIVERGED_H

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/config.h"

// After how many such steps in a row a person should know: more than a dynamic loss scale needs to find its place (24
// halvings from the largest to 1), and more than a single bad sample makes. At most [run] bad_steps.
int64_t diverged_limit(const config *c);

// How many steps in a row, with a loss far above the lowest one, are no accident.
enum { RUINED_STEPS = 50 };

// What a run keeps of it beside the counters that its checkpoints have. All zeros when a process begins.
typedef struct divergence {
    int64_t far_steps;  // in a row, up to this one, that were bad, or whose loss was far above the lowest
    bool ruined;        // that it is ruined was the last word of it
    int64_t gave_up;    // after this step too many in a row were bad ([run] bad_steps); 0: not
} divergence;

// What there is to say after a step. RUINED: RUINED_STEPS in a row are far above the lowest loss, and the last one is
// finite. MENDED: after that, the loss is near the lowest again. DIVERGED: diverged_limit steps in a row are bad.
// GAVE_UP: [run] bad_steps are, and nothing more counts. Each is said once, and again only after good steps.
typedef enum divergence_news { NEWS_NONE, NEWS_RUINED, NEWS_MENDED, NEWS_DIVERGED, NEWS_GAVE_UP } divergence_news;

// Counts a step, in d and in the counters, of which step is the number. applied: it was not skipped. All ranks
// count alike: they see the same results.
divergence_news divergence_step(divergence *d, run_progress *at, const config *c, int64_t step, double loss,
                                bool applied);

// Does a run that ends now end with a loss that is finite, but far above the lowest, and has not said so? A single step
// may be an accident; it was the last one. Then it counts as said.
bool divergence_at_end(divergence *d, const run_progress *at);

// Why a step was skipped: in two words for its record, and as a sentence with figures for people.
const char *skipped_why(double grad_norm);
enum { SKIPPED_TEXT = 200 };
const char *skipped_text(const config *c, double grad_norm, double norm_mean, char text[SKIPPED_TEXT]);

// Steps `first` to `last` were not finite, or the loss was far above the lowest.
typedef struct diverged_run {
    const config *c;
    const char *dir;  // DIR/NAME, of this node
    int64_t first, last;
    double loss;         // of step `last`, far above the lowest; NAN: not finite
    double least;        // the lowest loss that the run had; INFINITY: not known
    int64_t sound_step;  // newest step whose weights gave a loss near it; -1: not known (progress_is_proven)
} diverged_run;

// In words: which checkpoints are from before, how good they are, and after ". Next: " the command to go on with. Reads
// manifests.
enum { DIVERGED_TEXT = 900 };
err_t diverged_advice(const diverged_run *r, char text[DIVERGED_TEXT]);

#endif
