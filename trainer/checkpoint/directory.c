// trainer/checkpoint/directory.c: the directory of checkpoints of one node. A checkpoint under its final name is whole
// and was read back. Everything else has a name that starts with a dot, so the state is clear whenever a crash happens:
//
//   .tmp-step-N   being written, or being removed: delete it
//   .old-step-N   the previous step N, set aside while a new one takes its place: put it back unless step-N exists
//
// (With several nodes, a .tmp with a manifest may be all that a node has of a checkpoint that others have renamed:
// nodes.c.)
#include "trainer/checkpoint/directory.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP_DIGITS = 8 };
static const char *const prefixes[KINDS] = {"step-", ".tmp-step-", ".old-step-"};

// --- names -----------------------------------------------------------------------------------------------------------

err_t ckpt_path(char path[IO_PATH], const char *run_dir, ckpt_kind kind, int64_t step) {
    return io_path(path, "%s/ckpt/%s%0*" PRId64, run_dir, prefixes[kind], STEP_DIGITS, step);
}

// The step of a name that ckpt_path makes with this prefix; -1 for any other name.
static int64_t step_of(const char *name, const char *prefix) {
    size_t n = strlen(prefix), digits = strspn(name + (strncmp(name, prefix, n) == 0 ? n : 0), "0123456789");
    if (strncmp(name, prefix, n) != 0 || name[n + digits] != 0 || digits < STEP_DIGITS || digits > 18) return -1;
    return digits > STEP_DIGITS && name[n] == '0' ? -1 : strtoll(name + n, NULL, 10);
}

bool ckpt_exists(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

static int newest_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static err_t read_names(DIR *dir, const char *path, const char *prefix, int64_t **steps, int *count) {
    int room = 0;
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(dir);
        if (!e) return errno ? err_set(ERR_IO, "%s: %s", path, strerror(errno)) : ERR_OK;
        int64_t step = step_of(e->d_name, prefix);
        if (step < 0) continue;
        if (*count == room) {
            room = room ? 2 * room : 16;
            int64_t *more = realloc(*steps, (size_t)room * sizeof *more);
            if (!more) return err_set(ERR_INTERNAL, "%s: no memory for its names", path);
            *steps = more;
        }
        (*steps)[(*count)++] = step;
    }
}

err_t ckpt_steps(const char *run_dir, ckpt_kind kind, int64_t **steps, int *count) {
    char path[IO_PATH];
    *steps = NULL;
    *count = 0;
    TRY(io_path(path, "%s/ckpt", run_dir));
    DIR *dir = opendir(path);
    if (!dir && errno == ENOENT) return ERR_OK;
    if (!dir) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    err_t rc = read_names(dir, path, prefixes[kind], steps, count);
    closedir(dir);
    if (*count) qsort(*steps, (size_t)*count, sizeof **steps, newest_first);
    return rc;
}

// --- cleaning up after a crash ---------------------------------------------------------------------------------------

static err_t clean_one(const char *run_dir, ckpt_kind kind, int64_t step) {
    char path[IO_PATH], final[IO_PATH];
    TRY(ckpt_path(path, run_dir, kind, step));
    TRY(ckpt_path(final, run_dir, KIND_FINAL, step));
    if (kind == KIND_OLD && !ckpt_exists(final)) return io_rename(path, final, NULL);
    return io_remove_tree(path);
}

static err_t clean_kind(const char *run_dir, ckpt_kind kind) {
    int64_t *steps;
    int count;
    err_t rc = ckpt_steps(run_dir, kind, &steps, &count);
    for (int i = 0; i < count && rc == ERR_OK; i++) rc = clean_one(run_dir, kind, steps[i]);
    free(steps);
    return rc;
}

err_t ckpt_remove_link(const char *run_dir) {
    char link[IO_PATH];
    TRY(io_path(link, "%s/.best", run_dir));
    if (unlink(link) != 0 && errno != ENOENT && errno != ENOTDIR)
        return err_set(ERR_IO, "%s: remove: %s", link, strerror(errno));
    return ERR_OK;
}

err_t ckpt_clean_node(const char *run_dir) {
    TRY(ckpt_remove_link(run_dir));
    TRY(clean_kind(run_dir, KIND_OLD));
    return clean_kind(run_dir, KIND_TMP);
}

// --- committing ------------------------------------------------------------------------------------------------------

typedef struct step_paths {
    char final[IO_PATH], tmp[IO_PATH], old[IO_PATH];
} step_paths;

static err_t paths_of(step_paths *p, const char *run_dir, int64_t step) {
    TRY(ckpt_path(p->final, run_dir, KIND_FINAL, step));
    TRY(ckpt_path(p->tmp, run_dir, KIND_TMP, step));
    return ckpt_path(p->old, run_dir, KIND_OLD, step);
}

static err_t undo(const step_paths *p) {
    if (!ckpt_exists(p->tmp) && rename(p->final, p->tmp) != 0)
        return err_set(ERR_IO, "%s could not be taken back: %s", p->final, strerror(errno));
    if (ckpt_exists(p->old) && rename(p->old, p->final) != 0)
        return err_set(ERR_IO, "%s could not be put back from %s (the next start does it): %s", p->final, p->old,
                       strerror(errno));
    return ERR_OK;
}

err_t ckpt_undo_node(const char *run_dir, int64_t step) {
    step_paths p;
    TRY(paths_of(&p, run_dir, step));
    return undo(&p);
}

// At every instant the old checkpoint or the new one exists whole, under a name that cleaning and resuming understand.
err_t ckpt_commit_node(const char *run_dir, int64_t step, fault_list *faults) {
    step_paths p;
    TRY(paths_of(&p, run_dir, step));
    err_t rc = ckpt_exists(p.final) ? io_rename(p.final, p.old, faults) : ERR_OK;
    if (rc == ERR_OK) rc = io_rename(p.tmp, p.final, faults);
    if (rc == ERR_OK) return ERR_OK;
    err_record why = *err_last();
    undo(&p);  // perhaps renamed but not synced; the save has not been reported yet
    return err_restore(&why);
}

err_t ckpt_open_directory(const char *run_dir, fault_list *faults) {
    char path[IO_PATH], parent[IO_PATH + 4];
    TRY(io_path(path, "%s/ckpt", run_dir));
    if (ckpt_exists(path)) return ERR_OK;
    TRY(io_mkdirs(path));
    snprintf(parent, sizeof parent, "%s/..", run_dir);
    err_t rc = io_sync_dir(run_dir, faults);
    if (rc == ERR_OK) rc = io_sync_dir(parent, faults);
    if (rc != ERR_OK) rmdir(path);  // the next save must not take it for synced
    return rc;
}

// --- pruning ---------------------------------------------------------------------------------------------------------

// The step that DIR/best points to; -1 when it points to none of our checkpoints.
static err_t best_step(const char *run_dir, int64_t *step) {
    char link[IO_PATH], target[IO_PATH];
    *step = -1;
    TRY(io_path(link, "%s/best", run_dir));
    ssize_t n = readlink(link, target, sizeof target - 1);
    if (n < 0 && (errno == ENOENT || errno == EINVAL)) return ERR_OK;
    if (n < 0) return err_set(ERR_IO, "%s: %s", link, strerror(errno));
    target[n] = 0;
    const char *name = strrchr(target, '/');
    *step = step_of(name ? name + 1 : target, prefixes[KIND_FINAL]);
    return ERR_OK;
}

// Renames first: a crash in the middle then leaves a directory to clean up, not a damaged checkpoint.
static err_t remove_step(const char *run_dir, int64_t step) {
    char path[IO_PATH], tmp[IO_PATH];
    TRY(ckpt_path(path, run_dir, KIND_FINAL, step));
    TRY(ckpt_path(tmp, run_dir, KIND_TMP, step));
    if (rename(path, tmp) != 0) return err_set(ERR_IO, "%s: rename to %s: %s", path, tmp, strerror(errno));
    return io_remove_tree(tmp);
}

// Steps later than `saved` are of no use to this run: it would have resumed from them. They are neither counted nor
// removed, so that a person can find out what happened to them.
//
// Those after `good` are of steps whose loss or gradient was not finite: they never take the place of a good one.
err_t ckpt_prune_node(const char *run_dir, int64_t saved, int64_t good, int keep) {
    int64_t *steps, best;
    int count, kept = 0, bad = 0;
    if (keep < 1) return ERR_OK;
    TRY(best_step(run_dir, &best));
    err_t rc = ckpt_steps(run_dir, KIND_FINAL, &steps, &count);
    for (int i = 0; i < count && rc == ERR_OK; i++) {
        if (steps[i] > saved) continue;
        bool many = steps[i] > good ? ++bad > 1 : ++kept > keep;
        if (many && steps[i] != best) rc = remove_step(run_dir, steps[i]);
    }
    free(steps);
    return rc;
}

// --- best ------------------------------------------------------------------------------------------------------------

err_t ckpt_make_link(const char *run_dir, int64_t step) {
    char path[IO_PATH], link[IO_PATH], target[64];
    TRY(ckpt_path(path, run_dir, KIND_FINAL, step));
    TRY(io_path(link, "%s/.best", run_dir));
    if (!ckpt_exists(path)) return err_set(ERR_IO, "%s: is missing, best can't point at it", path);
    snprintf(target, sizeof target, "ckpt/%s%0*" PRId64, prefixes[KIND_FINAL], STEP_DIGITS, step);
    if (unlink(link) != 0 && errno != ENOENT) return err_set(ERR_IO, "%s: remove: %s", link, strerror(errno));
    return symlink(target, link) == 0 ? ERR_OK
                                      : err_set(ERR_IO, "%s: symlink to %s: %s", link, target, strerror(errno));
}

err_t ckpt_swing_link(const char *run_dir, fault_list *faults) {
    char link[IO_PATH], best[IO_PATH];
    TRY(io_path(link, "%s/.best", run_dir));
    TRY(io_path(best, "%s/best", run_dir));
    err_t rc = io_rename(link, best, faults);
    if (rc != ERR_OK) unlink(link);
    return rc;
}
