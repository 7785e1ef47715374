// trainer/diverged.c: see trainer/diverged.h.
#include "trainer/diverged.h"

#include "base/shell.h"
#include "base/text.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/step/optimizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT = 5, LIMIT_SCALED = 30 };

int64_t diverged_limit(const config *c) {
    bool dynamic = c->precision.compute == FP16 && c->precision.loss_scale == 0;
    int64_t limit = dynamic ? LIMIT_SCALED : LIMIT, most = c->run.bad_steps;
    return most > 0 && most < limit ? most : limit;
}

// --- what the steps say ----------------------------------------------------------------------------------------------

divergence_news divergence_step(divergence *d, run_progress *at, const config *c, int64_t step, double loss,
                                bool applied) {
    bool bad = !applied || !isfinite(loss);
    if (d->gave_up) return NEWS_NONE;  // a step that was queued already
    at->bad_steps = bad ? at->bad_steps + 1 : 0;
    at->loss = isfinite(loss) ? loss : NAN;
    if (loss < at->least_loss) at->least_loss = loss;
    bool sound = progress_is_sound(at), mended = sound && d->ruined;
    d->far_steps = sound ? 0 : d->far_steps + 1;
    if (sound) at->sound_step = step - 1;  // the loss is of the weights before this step's update
    if (mended) d->ruined = false;
    if (mended) return NEWS_MENDED;
    if (d->far_steps >= RUINED_STEPS && at->bad_steps == 0 && !d->ruined) {
        d->ruined = true;
        return NEWS_RUINED;
    }
    d->gave_up = c->run.bad_steps > 0 && at->bad_steps >= c->run.bad_steps ? step : 0;
    if (d->gave_up) return NEWS_GAVE_UP;
    return at->bad_steps == diverged_limit(c) ? NEWS_DIVERGED : NEWS_NONE;
}

bool divergence_at_end(divergence *d, const run_progress *at) {
    if (d->ruined || at->bad_steps > 0 || !loss_is_far(at->loss, at->least_loss)) return false;
    d->ruined = true;
    return true;
}

// --- a step that was skipped -----------------------------------------------------------------------------------------

const char *skipped_why(double grad_norm) { return isfinite(grad_norm) ? "outlier" : "not finite"; }

const char *skipped_text(const config *c, double grad_norm, double norm_mean, char text[SKIPPED_TEXT]) {
    if (!isfinite(grad_norm)) return strcpy(text, "the gradient is not finite: the step changes no weight");
    snprintf(text, SKIPPED_TEXT,
             "the gradient's norm, %.4g, is %.4g times the mean of those before, %.4g, more than [optimizer] "
             "skip_norm = %.4g: the step changes no weight",
             grad_norm, grad_norm / norm_mean, norm_mean, c->optimizer.skip_norm);
    return text;
}

// --- which checkpoint ------------------------------------------------------------------------------------------------

typedef struct choice {
    int64_t newest, sound, best;     // steps of checkpoints from before; -1: none
    double newest_loss, sound_loss;  // of the step's training samples; NAN: not known
    double best_loss, least;         // best_loss: of the validation data
    bool newest_far;                 // newest_loss is far above the lowest
} choice;

static void consider(choice *x, const diverged_run *r, int64_t step) {
    char dir[IO_PATH];
    manifest m = {0};
    err_t rc = ckpt_path(dir, r->dir, KIND_FINAL, step);
    if (rc == ERR_OK) rc = manifest_read(&m, dir);
    if (rc == ERR_OK && m.at.bad_steps == 0) {
        if (x->newest < 0) x->newest = step, x->newest_loss = m.at.loss, x->newest_far = !progress_is_sound(&m.at);
        if (x->sound < 0 && progress_is_proven(&m.at, r->sound_step)) x->sound = step, x->sound_loss = m.at.loss;
    }
    manifest_close(&m);
}

// One that can't be read is none.
static err_t choose(choice *x, const diverged_run *r) {
    char dir[IO_PATH];
    manifest m = {0};
    int64_t *steps;
    int count;
    *x = (choice){.newest = -1, .sound = -1, .best = -1, .least = r->least};
    TRY(ckpt_steps(r->dir, KIND_FINAL, &steps, &count));
    for (int i = 0; i < count && x->sound < 0; i++)
        if (steps[i] < r->first) consider(x, r, steps[i]);
    free(steps);
    TRY(io_path(dir, "%s/best", r->dir));
    if (ckpt_exists(dir) && manifest_read(&m, dir) == ERR_OK && m.at.step < r->first &&
        progress_is_proven(&m.at, r->sound_step) && !loss_is_far(m.at.best_loss, m.at.least_loss))
        x->best = m.at.step, x->best_loss = m.at.best_loss;
    manifest_close(&m);
    return ERR_OK;
}

// --- in words --------------------------------------------------------------------------------------------------------

// A tenth, and no more than what the optimizer bears: of a rate that is far too high a tenth is too high as well.
static double lower_lr(const config *c) {
    double most = optimizer_of(&c->optimizer)->highest_lr, tenth = c->optimizer.lr / 10;
    return tenth < most ? tenth : most;
}

// A name that no run beside this one has: NAME-2, NAME-3 ...
static err_t free_name(const diverged_run *r, char name[CONFIG_WORD + 16]) {
    char path[IO_PATH];
    for (int k = 2;; k++) {
        snprintf(name, CONFIG_WORD + 16, "%.*s-%d", CONFIG_WORD - 12, r->c->run.name, k);
        TRY(io_path(path, "%s/%s", r->c->run.dir, name));
        if (access(path, F_OK) != 0) return ERR_OK;
    }
}

static void put_loss(text *l, double loss) {
    if (isnan(loss)) text_put(l, " (its loss is not known)");
    else text_put(l, " (loss %.4g)", loss);
}

static void put_checkpoints(text *l, const choice *x) {
    if (x->newest < 0) text_put(l, "; there is no checkpoint from before");
    if (x->newest >= 0)
        text_put(l, "; the newest checkpoint from before is step %" PRId64, x->newest), put_loss(l, x->newest_loss);
    bool ruined = x->newest >= 0 && x->sound != x->newest;
    if (ruined && x->newest_far)
        text_put(l, ", but the loss was %.4g before: these weights are ruined already", x->least);
    else if (ruined) text_put(l, ", but no loss after it was near that: these weights are ruined already");
    if (x->sound >= 0 && x->sound != x->newest)
        text_put(l, "; step %" PRId64 " is sound", x->sound), put_loss(l, x->sound_loss);
    if (x->best >= 0) text_put(l, "; the best is step %" PRId64 " (validation loss %.4g)", x->best, x->best_loss);
}

// The best one was measured on other data, so it is preferred. `lockstep fork` (trainer/fork.h) says itself how to
// train on.
static err_t put_next(text *l, const diverged_run *r, const choice *x) {
    char name[CONFIG_WORD + 16], at[32], from[IO_PATH + 64], word[SHELL_PATH];
    TRY(free_name(r, name));
    text_put(l, ". Next: lockstep ");
    if (x->best < 0 && x->sound < 0) {
        snprintf(from, sizeof from, "%s/config.ini", r->dir);
        text_put(l, "train %s", shell_path(word, from));
        text_put(l, " -o run.name=%s -o optimizer.lr=%.3g", name, lower_lr(r->c));
        return ERR_OK;
    }
    if (x->best >= 0) strcpy(at, "best");
    else snprintf(at, sizeof at, "%" PRId64, x->sound);
    snprintf(from, sizeof from, "%s@%s", r->dir, at);
    text_put(l, "fork %s", shell_path(word, from));
    text_put(l, " %s -o optimizer.lr=%.3g", name, lower_lr(r->c));
    return ERR_OK;
}

err_t diverged_advice(const diverged_run *r, char dst[DIVERGED_TEXT]) {
    text l = {.at = dst, .room = DIVERGED_TEXT};
    choice x;
    TRY(choose(&x, r));
    if (isfinite(r->loss)) {
        text_put(&l, "the loss of step %" PRId64 " is %.4g, far above the lowest, %.4g", r->last, r->loss, r->least);
        put_checkpoints(&l, &x);
        return put_next(&l, r, &x);
    }
    text_put(&l, r->c->optimizer.skip_norm > 0
                     ? "no finite loss, or no gradient that [optimizer] skip_norm lets pass, in "
                     : "no finite loss or gradient in ");
    if (r->first == r->last) text_put(&l, "step %" PRId64, r->last);
    else text_put(&l, "steps %" PRId64 " to %" PRId64, r->first, r->last);
    put_checkpoints(&l, &x);
    return put_next(&l, r, &x);
}
