// trainer/checkpoint/progress.h: how far a run is: everything of its state that is not a tensor. Whoever runs the steps
// owns it, and gives it to a checkpoint when it saves (the manifest's "counters"); a checkpoint that is loaded gives it
// back.
#ifndef TRAINER_CHECKPOINT_PROGRESS_H
#define TRAINER_CHECKPOINT_PROGRESS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { PROGRESS_LOSSES = 32, PROGRESS_ROLLBACKS = 5, PROGRESS_SET = 24 };

// Steps first .. last, both left out.
typedef struct step_range {
    int64_t first, last;
} step_range;

typedef struct run_progress {
    int64_t step;  // finished steps; the next sample of the data is step * [batch] global
    // Of the optimizer and the loss scale. The device counts them; these are as of the last save or load.
    int64_t updates;  // updates applied (a skipped step is not one)
    int64_t skipped;  // steps skipped for overflow
    double loss_scale;
    int64_t good_steps;  // since the scale last changed
    double norm_mean;    // of the gradient's norms of applied steps, with [optimizer] skip_norm (gpu/ops.h)
    int64_t norms;       // how many it is of; 0: none
    // Of evaluations and of the log.
    double best_loss;            // of the validation split; INFINITY before the first evaluation (stored as null)
    char best_of[PROGRESS_SET];  // or of this named set ([eval] best_of)
    int64_t best_step;           // 0: none yet
    int64_t no_better;           // evaluations since, up to this step, that were no better
    int64_t log_bytes;           // length of log.jsonl when this state was current
    // Of the losses of steps (trainer/diverged.h).
    int64_t bad_steps;   // in a row, up to this one, whose loss or gradient was not finite
    double loss;         // of this step; NAN: not finite, or not known (stored as null)
    double least_loss;   // of all steps so far; INFINITY: not known (stored as null)
    int64_t sound_step;  // newest step whose weights are known to give a loss near the lowest; -1: not known (null)
    // With [optimizer] rollback (trainer/spike.h).
    double lately[PROGRESS_LOSSES];           // the last losses that were not far above the others, the oldest first
    int64_t losses;                           // so many of them
    int64_t spiking;                          // steps in a row, up to this one, that were; no state of them is stored
    int64_t rollbacks;                        // how often the run went back
    step_range left_out[PROGRESS_ROLLBACKS];  // and of which steps it left out the data since
} run_progress;

// Before the first step.
static inline run_progress progress_none(void) {
    return (run_progress){.best_loss = INFINITY, .loss = NAN, .least_loss = INFINITY, .sound_step = -1};
}

// The best as another progress knows it, with what it is by.
static inline void progress_take_best(run_progress *to, const run_progress *from) {
    to->best_loss = from->best_loss, to->best_step = from->best_step;
    memcpy(to->best_of, from->best_of, sizeof to->best_of);
}

// Losses of steps vary, so half as much again, and half a unit, is not far. NAN is not.
static inline bool loss_is_far(double loss, double least) { return loss > 1.5 * least + 0.5; }

// Weights are often ruined some steps before the loss is no longer finite: then it is far above what it was.
static inline bool progress_is_sound(const run_progress *at) {
    return at->bad_steps == 0 && !loss_is_far(at->loss, at->least_loss);
}

// Is the checkpoint with this progress worth going back to, when a run has diverged? The loss of a step is of the
// weights before its update, so it says nothing of the weights that were saved: a later loss does, or an evaluation.
// sound_step: what the run knows today.
static inline bool progress_is_proven(const run_progress *at, int64_t sound_step) {
    bool measured = at->best_step == at->step && !loss_is_far(at->best_loss, at->least_loss);
    return progress_is_sound(at) && (sound_step < 0 || at->step <= sound_step || measured);
}

#endif
