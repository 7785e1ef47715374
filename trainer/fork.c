// trainer/fork.c: see trainer/fork.h.
#include "trainer/fork.h"

#include "base/io.h"
#include "base/shell.h"
#include "base/text.h"
#include "base/utf8.h"
#include "trainer/checkpoint/copy.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/fork.h"
#include "trainer/epochs.h"
#include "trainer/lock.h"
#include "trainer/log/monitor.h"
#include "trainer/session/machine.h"
#include "trainer/step/optimizer.h"
#include "trainer/step/schedule.h"
#include "trainer/watch/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// A setting that differs.
typedef struct change {
    char key[CKPT_KEY];
    const char *was, *is;  // in a listing, or a manifest
} change;

// The settings of a class or of all: key NUL value NUL, and so on, and a NUL.
typedef struct listing {
    char *text;
    size_t n, room;
} listing;

typedef struct forking {
    const fork_options *o;
    FILE *out;
    char dir[IO_PATH];                  // of the run that is forked
    char ckpt[IO_PATH];                 // its checkpoint
    bool newest;                        // nobody said which
    char parent[IO_PATH], to[IO_PATH];  // where the new run is made; its directory
    char hidden[IO_PATH];               // until it is whole
    run_lock lock;
    config *was, *is;
    session x;    // model and data of the new run
    manifest m;   // of the checkpoint
    manifest as;  // m with what the new run changes; its tables are m's, but for the keys
    ckpt_key *key;
    listing before, now;
    change change[CONFIG_KEYS_MAX];
    int changes;
    char log_note[128];
} forking;

static bool is(const char *a, const char *b) { return strcmp(a, b) == 0; }

// --- which checkpoint ------------------------------------------------------------------------------------------------

// RUN_DIR and what stands after its last @, NULL: nothing. A directory's name may have one.
static err_t split_from(forking *f, const char **at) {
    struct stat st;
    TRY(io_path(f->dir, "%s", f->o->from));
    *at = NULL;
    char *mark = strrchr(f->dir, '@');
    if (mark && stat(f->dir, &st) != 0) {
        *mark = 0;
        *at = mark + 1;
    }
    for (size_t n = strlen(f->dir); n > 1 && f->dir[n - 1] == '/'; n--) f->dir[n - 1] = 0;
    return rundir_check(f->dir);
}

// A checkpoint that was removed or damaged is no reason not to take another.
static err_t newest_sound(forking *f) {
    int64_t *steps, proven = -1;
    int count, found = -1;
    TRY(ckpt_steps(f->dir, KIND_FINAL, &steps, &count));
    err_t rc = ERR_OK;
    for (int i = 0; i < count && found < 0 && rc == ERR_OK; i++) {
        manifest_close(&f->m);
        rc = ckpt_path(f->ckpt, f->dir, KIND_FINAL, steps[i]);
        if (rc != ERR_OK) break;
        rc = manifest_read(&f->m, f->ckpt);
        if (rc == ERR_OK && progress_is_proven(&f->m.at, proven)) found = i;
        else if (rc == ERR_OK && progress_is_sound(&f->m.at))
            fprintf(f->out, "passed over %s: no loss after it was near its own, %.4g: its weights are ruined\n",
                    f->ckpt, f->m.at.loss);
        else if (rc == ERR_OK)
            fprintf(
                f->out,
                "passed over %s: it was saved when the run had diverged, or its loss of %.4g is far above the lowest, %.4g\n",
                f->ckpt, f->m.at.loss, f->m.at.least_loss);
        if (rc == ERR_OK && proven < f->m.at.sound_step) proven = f->m.at.sound_step;
        else if (rc == ERR_DATA || rc == ERR_IO) {
            if (ckpt_exists(f->ckpt)) fprintf(f->out, "passed over %s: %s\n", f->ckpt, err_last()->text);
            rc = ERR_OK;
        }
    }
    free(steps);
    if (rc != ERR_OK || found >= 0) return rc;
    if (count == 0) return err_set(ERR_DATA, "%s/ckpt: no checkpoint yet", f->dir);
    return err_set(ERR_DATA,
                   "%s/ckpt: none of its %d checkpoints is sound; %s@STEP takes one all the same, by its step", f->dir,
                   count, f->dir);
}

static err_t choose_step(forking *f, const char *at) {
    char *end;
    errno = 0;
    int64_t step = strtoll(at, &end, 10);
    if (*at < '0' || *at > '9' || *end || errno)
        return err_set(ERR_USAGE, "%s@%s: expected a step or `best` after the @", f->dir, at);
    TRY(ckpt_path(f->ckpt, f->dir, KIND_FINAL, step));
    if (ckpt_exists(f->ckpt)) return ERR_OK;
    char have[256] = "";
    text l = {.at = have, .room = sizeof have};
    int64_t *steps;
    int count;
    TRY(ckpt_steps(f->dir, KIND_FINAL, &steps, &count));
    for (int i = 0; i < count; i++) text_put(&l, "%s%" PRId64, i ? ", " : "", steps[i]);
    free(steps);
    return err_set(ERR_DATA, "%s: no such checkpoint. There %s: %s", f->ckpt,
                   count == 1 ? "is that of step" : "are those of steps", count ? have : "none");
}

// The link is followed once, so that it may move meanwhile.
static err_t choose_best(forking *f) {
    char path[IO_PATH];
    TRY(io_path(path, "%s/best", f->dir));
    char *real = realpath(path, NULL);
    const char *name = real ? strrchr(real, '/') : NULL;
    err_t rc = name ? io_path(f->ckpt, "%s/ckpt%s", f->dir, name)
                    : err_set(ERR_DATA, "%s: this run has no best checkpoint: %s@STEP takes another", path, f->dir);
    free(real);
    return rc;
}

// Validation data may be harder than that of training: this is no reason to refuse it.
static void say_measured(const forking *f) {
    const run_progress *at = &f->m.at;
    if (progress_is_sound(at) && at->best_step == at->step && !*at->best_of &&
        loss_is_far(at->best_loss, at->least_loss))
        fprintf(f->out,
                "careful: the validation loss at step %" PRId64
                " was %.4g, and the lowest loss %.4g: these weights may be ruined\n",
                at->step, at->best_loss, at->least_loss);
}

static err_t choose(forking *f) {
    const char *at;
    TRY(split_from(f, &at));
    f->newest = !at;
    if (!at) {
        TRY(newest_sound(f));
        say_measured(f);
        return ERR_OK;
    }
    TRY(is(at, "best") ? choose_best(f) : choose_step(f, at));
    TRY(manifest_read(&f->m, f->ckpt));
    if (!progress_is_sound(&f->m.at))
        fprintf(f->out,
                "careful: the loss at step %" PRId64 " was %.4g, and %.4g at its lowest: these weights may be ruined\n",
                f->m.at.step, f->m.at.loss, f->m.at.least_loss);
    say_measured(f);
    return ERR_OK;
}

// --- settings --------------------------------------------------------------------------------------------------------

// The directory in which the run's directory is.
static err_t find_parent(forking *f) {
    TRY(io_path(f->parent, "%s", f->dir));
    char *slash = strrchr(f->parent, '/'), *last = slash ? slash + 1 : f->parent;
    if (is(last, ".") || is(last, "..")) {
        char *real = realpath(f->dir, NULL);
        err_t rc = real ? io_path(f->parent, "%s", real) : err_set(ERR_IO, "%s: %m", f->dir);
        free(real);
        TRY(rc);
        slash = strrchr(f->parent, '/');
    }
    if (!slash) strcpy(f->parent, ".");
    else slash[slash == f->parent] = 0;
    return ERR_OK;
}

static err_t forbid(const forking *f, const char *key, const char *was, const char *now, const char *why) {
    return err_set(
        ERR_CONFIG,
        "%s is %.200s in %s and would be %.200s in the fork: %s. Leave it as it is; or take the weights alone into a new run, where they fit, with [model] init_from "
        "= %s",
        key, was, f->ckpt, now, why, f->ckpt);
}

// Of another architecture the keys are others, so this is asked first.
static err_t compare_types(forking *f) {
    const fork_options *o = f->o;
    if (config_load_with(f->is, o->files, o->count, o->overrides, o->override_count) != ERR_OK) return ERR_OK;
    if (!config_given(f->is, "model", "type", 0)) return ERR_OK;
    const char *was = model_types[f->was->model.type]->name, *now = model_types[f->is->model.type]->name;
    return is(was, now) ? ERR_OK : forbid(f, "model.type", was, now, fork_forbids(f->is, "model.type"));
}

static err_t load_settings(forking *f) {
    char own[IO_PATH];
    const char *files[CONFIG_FILES_MAX] = {own};
    if (f->o->count + 1 > CONFIG_FILES_MAX) return err_set(ERR_USAGE, "more than %d files", CONFIG_FILES_MAX - 1);
    TRY(io_path(own, "%s/config.ini", f->dir));
    for (int i = 0; i < f->o->count; i++) files[1 + i] = f->o->files[i];
    TRY(config_load(f->was, files, 1));
    TRY(compare_types(f));
    TRY(config_load_with(f->is, files, 1 + f->o->count, f->o->overrides, f->o->override_count));
    TRY(epochs_settle(f->is));
    TRY(config_rename(f->is, f->o->name));
    TRY(find_parent(f));
    if (config_given(f->is, "run", "dir", 1)) TRY(io_path(f->parent, "%s", f->is->run.dir));
    if (strlen(f->parent) >= CONFIG_TEXT)
        return err_set(ERR_CONFIG, "%s: the path is too long for [run] dir", f->parent);
    strcpy(f->is->run.dir, f->parent);
    if (f->is->run.resume == RESUME_NEVER) f->is->run.resume = RESUME_AUTO;  // it begins with a checkpoint
    TRY(io_path(f->to, "%s/%s", f->parent, f->o->name));
    TRY(io_path(f->hidden, "%s/.%s.fork", f->parent, f->o->name));
    return ckpt_exists(f->to) ? err_set(ERR_USAGE, "%s is there already: choose another name", f->to) : ERR_OK;
}

static err_t list_one(void *ctx, const char *key, const char *value) {
    listing *l = ctx;
    size_t k = strlen(key) + 1, v = strlen(value) + 1;
    if (l->n + k + v + 1 > l->room) {
        l->room = 2 * (l->room + k + v + 1);
        char *more = realloc(l->text, l->room);
        if (!more) return err_set(ERR_INTERNAL, "no memory for the settings");
        l->text = more;
    }
    memcpy(l->text + l->n, key, k), memcpy(l->text + l->n + k, value, v);
    l->n += k + v;
    l->text[l->n] = 0;
    return ERR_OK;
}

static err_t list_all(const config *c, listing *l) {
    TRY(config_each(c, CLASS_BITS, list_one, l));
    TRY(config_each(c, CLASS_LAYOUT, list_one, l));
    return config_each(c, CLASS_LOCAL, list_one, l);
}

static const char *value_in(const listing *l, const char *key) {
    for (const char *at = l->text; *at;) {
        const char *value = at + strlen(at) + 1;
        if (is(at, key)) return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}

// What the checkpoint says of a bits key counts; config.ini may have been edited since. NULL: it says nothing.
static const char *recorded(const forking *f, const char *key) {
    for (int i = 0; i < f->m.keys; i++)
        if (is(f->m.key[i].key, key)) return f->m.key[i].value;
    return NULL;
}

// A bits key: the checkpoint of the new run has the new value.
static err_t set_bits_key(forking *f, const char *key, const char *now, const char **was) {
    const char *says = recorded(f, key);
    bool plans = is(key, "device.plans");  // of these the checkpoint says what they are, not where
    if (says && !plans) *was = says;
    if (*was && !is(*was, now) && fork_forbids(f->is, key)) return forbid(f, key, *was, now, fork_forbids(f->is, key));
    ckpt_key *to = &f->key[f->as.keys];
    if (f->as.keys == CKPT_KEYS_MAX || strlen(key) >= CKPT_KEY || strlen(now) >= CKPT_VALUE)
        return err_set(ERR_INTERNAL, "%s: too many keys, or too long a value, for a manifest", key);
    snprintf(to->key, sizeof to->key, "%s", key);
    snprintf(to->value, sizeof to->value, "%s", plans ? says ? says : "" : now);
    f->as.keys++;
    return ERR_OK;
}

static err_t compare_one(forking *f, const char *key, const char *now, bool bits) {
    const char *was = value_in(&f->before, key);
    if (bits) TRY(set_bits_key(f, key, now, &was));
    if (!was || is(was, now) || is(key, "run.name") || is(key, "run.dir")) return ERR_OK;
    f->change[f->changes++] = (change){.was = was, .is = now};
    snprintf(f->change[f->changes - 1].key, CKPT_KEY, "%s", key);
    return ERR_OK;
}

// A key of the checkpoint that this build does not know.
static err_t check_known(const forking *f) {
    for (int i = 0; i < f->m.keys; i++)
        if (!value_in(&f->now, f->m.key[i].key))
            return err_set(ERR_CONFIG,
                           "%s: %s = %.200s, which build %s wrote, is not known to this build: fork with that build",
                           f->ckpt, f->m.key[i].key, f->m.key[i].value, f->m.build);
    return ERR_OK;
}

static err_t compare_settings(forking *f) {
    listing bits = {0};
    TRY(list_all(f->was, &f->before));
    TRY(list_all(f->is, &f->now));
    TRY(check_known(f));
    err_t rc = config_each(f->is, CLASS_BITS, list_one, &bits);
    for (const char *key = f->now.text; *key && rc == ERR_OK;) {
        const char *value = key + strlen(key) + 1;
        rc = compare_one(f, key, value, value_in(&bits, key) != NULL);
        key = value + strlen(value) + 1;
    }
    free(bits.text);
    return rc;
}

static const change *changed(const forking *f, const char *key) {
    for (int i = 0; i < f->changes; i++)
        if (is(f->change[i].key, key)) return &f->change[i];
    return NULL;
}

// Arrays of what was left out of lanes and their sums ([reduce] compress).
static int residuals_of(const config *c) {
    int of_a_lane = c->reduce.compress == SEND_ALL ? 0 : c->reduce.compress == SEND_TOPK ? 2 : 1;
    return of_a_lane * (int)(c->resolved.lanes / c->reduce.compress_span) + (c->reduce.compress_back != CODEC_NONE);
}

// Does the outer optimizer of islands keep an array?
static bool keeps_outer(const config *c) { return c->outer.islands > 1 && c->outer.type == OUTER_NESTEROV; }

// What each island has of its own: moments, and what was left out of deltas. Where islands are apart, masters, too, and
// what they agree on: their anchor, means on their way, and the mean of masters.
static int islands_of(const config *c) {
    int islands = (int)c->outer.islands, apart = config_is_apart(c), each = apart;
    if (apart || c->outer.moments == MOMENTS_OWN) each += optimizer_arrays(optimizer_of(&c->optimizer), &c->optimizer);
    return (islands - 1) * each + (c->outer.compress != CODEC_NONE ? islands + 1 : 0) +
           (apart ? 2 + (c->outer.overlap > 0) : 0);
}

// What the optimizer keeps must be what the checkpoint has, and what was left out of lanes.
static err_t compare_kept(const forking *f) {
    const optimizer_keys *o = &f->is->optimizer;
    const optimizer *rule = optimizer_of(o);
    int arrays = optimizer_arrays(rule, o), kept = 0, residuals = residuals_of(f->is);
    bool same = f->m.groups == 1 + arrays + residuals + keeps_outer(f->is) + islands_of(f->is);
    for (int k = 0; k < arrays; k++) same = same && manifest_group(&f->m, optimizer_array(rule, o, k));
    for (int k = 0; k < optimizer_scalars(rule, o); k++) {
        optimizer_scalar x;
        rule->scalar(o, k, &x);
        if (!x.follows) kept++, same = same && manifest_scalar_of(&f->m, x.name);
    }
    if (same && f->m.scalars == kept) return ERR_OK;
    const change *c = changed(f, "optimizer.momentum");
    if (c) return forbid(f, c->key, c->was, c->is, "what the optimizer keeps of each weight would not fit");
    c = changed(f, changed(f, "outer.type") ? "outer.type" : "outer.islands");
    if (c && keeps_outer(f->is) != keeps_outer(f->was))
        return forbid(f, c->key, c->was, c->is, "the momentum of islands is in one of both only");
    static const char *const outer[] = {"outer.compress", "outer.moments", "outer.fragments", "outer.overlap",
                                        "outer.islands"};
    for (size_t k = 0; k < sizeof outer / sizeof *outer; k++) {
        c = changed(f, outer[k]);
        if (c && islands_of(f->is) != islands_of(f->was))
            return forbid(f, c->key, c->was, c->is, "what each island has of its own would not fit");
    }
    static const char *const coded[] = {"reduce.compress", "reduce.compress_back", "reduce.compress_span",
                                        "batch.lanes"};
    for (size_t k = 0; k < sizeof coded / sizeof *coded; k++) {
        c = changed(f, coded[k]);
        if (c && (residuals || residuals_of(f->was)))
            return forbid(f, c->key, c->was, c->is, "what was left out of the lanes would not fit");
    }
    return err_set(
        ERR_CONFIG,
        "%s: holds no optimizer state%s, and training can't go on from it: take its weights into a new run with [model] init_from = %s",
        f->ckpt, f->m.groups > 1 || f->m.scalars ? " of this optimizer" : "", f->ckpt);
}

// --- counters and data -----------------------------------------------------------------------------------------------

// A loss scale that belongs to another type of numbers, or that was given, begins anew.
static void rescale(forking *f) {
    const change *c;
    step_state fresh;
    bool other = false;
    for (c = f->change; c < f->change + f->changes; c++)
        other |= is(c->key, "precision.compute") || is(c->key, "precision.loss_scale");
    if (!other) return;
    state_from_progress(&fresh, &(run_progress){0}, f->is);
    f->as.at.loss_scale = fresh.loss_scale;
    f->as.at.good_steps = 0;
}

// Of another compute type, or other products, the bits are those of this build from here on: the masters are FP32 all
// the same.
static void set_revision(forking *f) {
    const char *type, *kind;
    if (changed(f, "precision.compute") || changed(f, "precision.products"))
        f->as.revision = manifest_revision_now(f->as.arithmetic, f->as.key, f->as.keys, &type, &kind);
}

// The best checkpoint of a run is one of its own.
static err_t set_counters(forking *f, int64_t log_bytes) {
    run_progress *at = &f->as.at;
    source_info data = source_about(f->x.train);
    if (at->best_step != at->step) at->best_step = 0, at->best_loss = INFINITY, at->no_better = 0;
    at->bad_steps = 0;
    if (f->is->optimizer.skip_norm == 0) at->norms = 0, at->norm_mean = 0;
    // what it left out were steps of that run's data, with that run's losses
    if (f->is->optimizer.rollback == 0 || !is(data.hash, f->m.data_hash)) at->losses = at->rollbacks = 0;
    if (!is(data.hash, f->m.data_hash)) at->loss = NAN, at->least_loss = INFINITY;  // of other data
    at->log_bytes = log_bytes;
    rescale(f);
    set_revision(f);
    memcpy(f->as.data_hash, data.hash, sizeof f->as.data_hash);
    f->as.origin.step = f->m.at.step;
    utf8_printable(f->as.origin.run, sizeof f->as.origin.run, f->dir);
    memcpy(f->as.origin.hash, f->m.hash, sizeof f->as.origin.hash);
    return ERR_OK;
}

// Where in the data the next step begins follows from its number and [batch] global alone.
static void say_data(const forking *f) {
    source_info data = source_about(f->x.train);
    int64_t step = f->m.at.step, at = step * f->is->batch.global, epoch = data.samples > 0 ? at / data.samples : 0;
    const change *global = changed(f, "batch.global");
    fprintf(f->out, "data     step %" PRId64 " begins with sample %" PRId64 " of %" PRId64 " of epoch %" PRId64,
            step + 1, at - epoch * data.samples + 1, data.samples, epoch + 1);
    if (!is(data.hash, f->m.data_hash))
        fprintf(f->out, "; the dataset is another, so what was seen says nothing of it");
    else if (changed(f, "run.seed") || changed(f, "data.shuffle") || changed(f, "data.holdout"))
        fprintf(f->out, "; their order is another: some of this epoch come again, some are left out");
    else if (global) {
        int64_t was = step * strtoll(global->was, NULL, 10);
        fprintf(f->out,
                "; with the old [batch] global it would be sample %" PRId64 " of the run, not %" PRId64
                ": those between are %s",
                was + 1, at + 1, at > was ? "left out" : "seen again");
    } else fprintf(f->out, ", as in %s", f->dir);
    fprintf(f->out, "\n");
}

// A schedule goes by steps since the beginning, and does not begin again with a fork, nor stretch by itself: a new rate
// alone may hardly train.
static bool say_low_rate(const forking *f) {
    int64_t next = f->m.at.step + 1, warmup = f->is->resolved.warmup;
    double rate = schedule_lr(f->is, next), lr = f->is->optimizer.lr;
    if (f->changes == 0 || next > f->is->run.steps || rate > 0.1001 * lr) return false;
    fprintf(f->out, "rate     %.3g at step %" PRId64 ", far below [optimizer] lr = %.3g: ", rate, next, lr);
    if (next < warmup)
        fprintf(f->out, "the warm-up to step %" PRId64 " is %s; lower [schedule] warmup for more\n", warmup,
                changed(f, "schedule.warmup") ? "not over" : "as it was");
    else
        fprintf(f->out, "the decay to step %" PRId64 " is %s; raise [schedule] decay_steps for more\n",
                f->is->resolved.decay_steps, changed(f, "schedule.decay_steps") ? "as good as over" : "as it was");
    return true;
}

static bool has_all_steps(const forking *f) { return f->is->run.steps <= f->m.at.step; }

static void say_steps(const forking *f) {
    int64_t steps = f->is->run.steps, end = f->is->resolved.decay_steps;
    if (has_all_steps(f)) fprintf(f->out, "steps    all %" PRId64 " of [run] steps are done: raise it\n", steps);
    else if (!say_low_rate(f) && end > 0 && end < steps)
        fprintf(f->out,
                "rate     at its lowest from step %" PRId64
                " on, as [schedule] decay_steps says: raise it if the rate is to fall later\n",
                end);
}

static void say_changes(const forking *f) {
    if (f->changes == 0) fprintf(f->out, "settings all as in %s\n", f->dir);
    else fprintf(f->out, "%-32s %-24s %s\n", "setting", f->dir, f->to);
    for (int i = 0; i < f->changes; i++)
        fprintf(f->out, "%-32s %-24s %s\n", f->change[i].key, *f->change[i].was ? f->change[i].was : "\"\"",
                *f->change[i].is ? f->change[i].is : "\"\"");
}

// --- the new run -----------------------------------------------------------------------------------------------------

static bool is_asked_to_stop(void *ctx) {
    sigset_t waiting;
    (void)ctx;
    return sigpending(&waiting) == 0 && (sigismember(&waiting, SIGTERM) || sigismember(&waiting, SIGINT));
}

// What a killed fork has left is removed. The lock is the one that the run's own processes take: it becomes theirs with
// the directory.
static err_t open_hidden(forking *f) {
    run_lock old = {-1, -1};
    err_t rc = run_lock_take(&old, f->hidden, false);
    if (rc == ERR_UNAVAILABLE) err_set(rc, "%s: another process makes this fork", f->hidden);
    if (rc == ERR_OK) rc = io_remove_tree(f->hidden);
    run_lock_release(&old);
    TRY(rc);
    TRY(io_mkdirs(f->parent));
    if (mkdir(f->hidden, 0755) != 0) return err_set(ERR_IO, "%s: mkdir: %s", f->hidden, strerror(errno));
    return run_lock_take(&f->lock, f->hidden, true);
}

// The first n bytes of a file, in pieces: a long run's log has hundreds of megabytes. *last: the last one.
static err_t copy_bytes(int from, const char *name, const char *to, int64_t n, char *last) {
    int fd;
    TRY(io_open(to, O_WRONLY | O_CREAT | O_EXCL, &fd));
    char *piece = malloc(CKPT_PIECE);
    err_t rc = piece ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a piece of %d bytes", CKPT_PIECE);
    for (int64_t at = 0, k; at < n && rc == ERR_OK; at += k) {
        k = n - at < CKPT_PIECE ? n - at : CKPT_PIECE;
        rc = io_read_at(from, name, at, piece, (size_t)k);
        if (rc == ERR_OK) rc = io_write(fd, to, piece, (size_t)k, NULL);
        *last = piece[k - 1];
    }
    if (rc == ERR_OK) rc = io_sync(fd, to, NULL);
    close(fd);
    free(piece);
    return rc;
}

// The log up to the checkpoint, so that report, compare and tail show the run from its beginning. *bytes: of it. One
// that is not whole up to there is left out.
static err_t copy_log(forking *f, int64_t *bytes) {
    char from[IO_PATH], to[IO_PATH], last = 0;
    struct stat st;
    int64_t n = f->m.at.log_bytes;
    int fd = -1;
    err_t rc = ERR_OK;
    *bytes = 0;
    TRY(io_path(from, "%s/log.jsonl", f->dir));
    TRY(io_path(to, "%s/log.jsonl", f->hidden));
    bool whole = n > 0 && io_open(from, O_RDONLY, &fd) == ERR_OK && fstat(fd, &st) == 0 && st.st_size >= n;
    if (whole) rc = copy_bytes(fd, from, to, n, &last);
    if (fd >= 0) close(fd);
    TRY(rc);
    if (last == '\n') *bytes = n;
    else if (whole && unlink(to) != 0) return err_set(ERR_IO, "%s: remove: %s", to, strerror(errno));
    if (*bytes == 0)
        snprintf(f->log_note, sizeof f->log_note,
                 "begins with this fork: that of the other run is not here up to step %" PRId64, f->m.at.step);
    else
        snprintf(f->log_note, sizeof f->log_note, "begins with that of the other run, up to step %" PRId64,
                 f->m.at.step);
    return ERR_OK;
}

static err_t note_event(const char *dir, const config *c, const char *kind, int64_t step, const char *text) {
    static const sink *const events[] = {&sink_events, NULL};
    monitor m;
    err_t rc = monitor_open_list(&m, &(log_setup){.dir = dir, .c = c, .quiet = true}, events);
    if (rc == ERR_OK) monitor_event(&m, kind, step, text);
    monitor_close(&m);
    return rc;
}

static void describe(const forking *f, const char *begin, char dst[], size_t room) {
    text l = {.at = dst, .room = room};
    text_put(&l, "%s", begin);
    for (int i = 0; i < f->changes; i++)
        text_put(&l, "%s %s %s -> %s", i ? "," : ":", f->change[i].key, f->change[i].was, f->change[i].is);
    if (f->changes == 0) text_put(&l, ": all settings as they were");
}

static err_t note_here(const forking *f) {
    char begin[2 * IO_PATH], text[8192];
    snprintf(begin, sizeof begin, "from %s, step %" PRId64 ", hash %s", f->dir, f->m.at.step, f->m.hash);
    describe(f, begin, text, sizeof text);
    return note_event(f->hidden, f->is, "forked", f->m.at.step, text);
}

// The new run is there: that the other one does not know of it is no failure.
static void note_there(const forking *f) {
    char begin[2 * IO_PATH], text[8192];
    snprintf(begin, sizeof begin, "step %" PRId64 " begins %s", f->m.at.step, f->to);
    describe(f, begin, text, sizeof text);
    if (note_event(f->dir, f->was, "fork", f->m.at.step, text) != ERR_OK)
        fprintf(f->out, "note     %s\n", err_last()->text);
}

static err_t sync_events(const forking *f) {
    char path[IO_PATH];
    TRY(io_path(path, "%s/events.jsonl", f->hidden));
    int fd;
    TRY(io_open(path, O_RDONLY, &fd));
    err_t rc = io_sync(fd, path, NULL);
    close(fd);
    return rc;
}

// The checkpoint last: its copy takes longest, and has what was said of the log.
static err_t fill(forking *f) {
    char ckpt[IO_PATH], path[IO_PATH];
    int64_t log_bytes;
    TRY(copy_log(f, &log_bytes));
    TRY(set_counters(f, log_bytes));
    TRY(session_write_config(&f->x, f->hidden));
    TRY(note_here(f));
    TRY(sync_events(f));
    TRY(ckpt_open_directory(f->hidden, NULL));
    TRY(ckpt_path(ckpt, f->hidden, KIND_FINAL, f->m.at.step));
    TRY(ckpt_fork(f->ckpt, &f->m, ckpt, &f->as, is_asked_to_stop, NULL));
    TRY(io_path(path, "%s/ckpt", f->hidden));
    TRY(io_sync_dir(path, NULL));
    return io_sync_dir(f->hidden, NULL);
}

// Nothing that has come there meanwhile is replaced. Some file systems can't promise it: there it is looked at once
// more.
static err_t commit(const forking *f) {
    bool moved = renameat2(AT_FDCWD, f->hidden, AT_FDCWD, f->to, RENAME_NOREPLACE) == 0;
    if (!moved && errno == EINVAL && !ckpt_exists(f->to)) moved = rename(f->hidden, f->to) == 0;
    if (!moved)
        return err_set(errno == EEXIST ? ERR_USAGE : ERR_IO, "%s: rename to %s: %s", f->hidden, f->to, strerror(errno));
    return io_sync_dir(f->parent, NULL);
}

static err_t make(forking *f) {
    err_t rc = open_hidden(f);
    if (rc == ERR_UNAVAILABLE) return rc;
    if (rc == ERR_OK) rc = fill(f);
    if (rc == ERR_OK) rc = commit(f);
    if (rc == ERR_OK) return rc;
    err_record why = *err_last();
    io_remove_tree(f->hidden);
    return err_restore(&why);
}

// --- all of it -------------------------------------------------------------------------------------------------------

static err_t prepare(forking *f) {
    TRY(choose(f));
    TRY(load_settings(f));
    f->as = f->m;
    f->as.keys = 0;
    f->as.key = f->key;
    TRY(compare_settings(f));
    TRY(compare_kept(f));
    return session_data(&f->x, f->is);
}

static void say_done(const forking *f) {
    char path[IO_PATH + 16], word[SHELL_PATH];
    snprintf(path, sizeof path, "%s/config.ini", f->to);
    fprintf(f->out, "forked   %s, step %" PRId64 ", hash %s -> %s\n", f->dir, f->m.at.step, f->m.hash, f->to);
    say_changes(f);
    say_data(f);
    fprintf(f->out, "log      %s\n", f->log_note);
    say_steps(f);
    fprintf(f->out, "next     lockstep %s", shell_path(word, path));
    if (has_all_steps(f)) fprintf(f->out, " -o run.steps=%" PRId64, 2 * f->m.at.step);
    fprintf(f->out, "\n");
}

static err_t fork_prepared(forking *f) {
    sigset_t ends, before;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    TRY(prepare(f));
    pthread_sigmask(SIG_BLOCK, &ends, &before);
    err_t rc = make(f);
    err_record why = *err_last();
    if (rc == ERR_OK) say_done(f), note_there(f);
    while (sigtimedwait(&ends, NULL, &(struct timespec){0}) > 0) {}  // what they asked for is done
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == ERR_OK ? rc : err_restore(&why);
}

// *gone: the checkpoint that was the newest has been removed meanwhile.
static err_t try_fork(const fork_options *o, FILE *out, bool *gone) {
    forking *f = calloc(1, sizeof *f);
    if (!f) return err_set(ERR_INTERNAL, "no memory for a fork");
    *f = (forking){.o = o,
                   .out = out,
                   .lock = {-1, -1},
                   .was = calloc(1, sizeof *f->was),
                   .is = calloc(1, sizeof *f->is),
                   .key = calloc(CKPT_KEYS_MAX, sizeof *f->key)};
    err_t rc = f->was && f->is && f->key ? fork_prepared(f) : err_set(ERR_INTERNAL, "no memory for a fork");
    err_record why = *err_last();
    *gone = rc == ERR_DATA && f->newest && *f->ckpt && !ckpt_exists(f->ckpt);
    session_close(&f->x);
    manifest_close(&f->m);
    run_lock_release(&f->lock);
    free(f->was), free(f->is), free(f->key), free(f->before.text), free(f->now.text);
    free(f);
    return rc == ERR_OK ? rc : err_restore(&why);
}

// A run that goes on replaces its newest checkpoint, at most every few seconds if it is not a toy.
err_t fork_run(const fork_options *o, FILE *out) {
    enum { TRIES = 20 };
    bool gone = true;
    err_t rc = ERR_DATA;
    for (int i = 0; i < TRIES && gone && rc == ERR_DATA; i++) rc = try_fork(o, out, &gone);
    return rc;
}

err_t verb_fork(const command *w, FILE *out) {
    if (w->count < 2)
        return err_set(
            ERR_USAGE,
            "lockstep fork: expected a run and a name, e.g. lockstep fork runs/a@best b -o optimizer.lr=1e-4");
    return fork_run(
        &(fork_options){w->words[0], w->words[1], w->words + 2, w->count - 2, w->overrides, w->override_count}, out);
}
