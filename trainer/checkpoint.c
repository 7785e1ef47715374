// trainer/checkpoint.c: the directory of checkpoints; see trainer/checkpoint.h. What is there under its final name is whole and
// was read back. Everything in between has a name that starts with a dot, so that whatever instant a crash picks, ckpt_clean can
// tell what is what:
//
//   .tmp-step-N   being written, or being removed: to be deleted
//   .old-step-N   step N as it was, set aside while a new step N takes its place: put back unless the new one made it
#include "trainer/checkpoint.h"

#include "base/io.h"
#include "model/safetensors.h"
#include "trainer/manifest.h"
#include "trainer/state_hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 16 * CKPT_CHUNK, STEP_DIGITS = 8 };
static const char TMP[] = ".tmp-step-", OLD[] = ".old-step-", STEP[] = "step-";

// --- names ---------------------------------------------------------------------------------------------------------------------

static err_t step_path(char path[IO_PATH], const char *run_dir, const char *prefix, int64_t step) {
    return io_path(path, "%s/ckpt/%s%0*lld", run_dir, prefix, STEP_DIGITS, (long long)step);
}

// The step of a name that step_path makes of this prefix, -1 of any other.
static int64_t step_of(const char *name, const char *prefix) {
    size_t n = strlen(prefix), digits = strspn(name + (strncmp(name, prefix, n) == 0 ? n : 0), "0123456789");
    if (strncmp(name, prefix, n) != 0 || name[n + digits] != 0 || digits < STEP_DIGITS || digits > 18) return -1;
    return digits > STEP_DIGITS && name[n] == '0' ? -1 : strtoll(name + n, NULL, 10);
}

static bool exists(const char *path) {
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

// The steps of this prefix in DIR/ckpt, newest first; none when there is no such directory. The caller frees *steps, also after a
// failure.
static err_t list_steps(const char *run_dir, const char *prefix, int64_t **steps, int *count) {
    char path[IO_PATH];
    *steps = NULL;
    *count = 0;
    TRY(io_path(path, "%s/ckpt", run_dir));
    DIR *dir = opendir(path);
    if (!dir && errno == ENOENT) return ERR_OK;
    if (!dir) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    err_t rc = read_names(dir, path, prefix, steps, count);
    closedir(dir);
    if (*count) qsort(*steps, (size_t)*count, sizeof **steps, newest_first);
    return rc;
}

// --- cleaning up after a crash -------------------------------------------------------------------------------------------------

static err_t clean_one(const char *run_dir, const char *prefix, int64_t step) {
    char path[IO_PATH], final[IO_PATH];
    TRY(step_path(path, run_dir, prefix, step));
    TRY(step_path(final, run_dir, STEP, step));
    if (prefix == OLD && !exists(final)) return io_rename(path, final, NULL);
    return io_remove_tree(path);
}

static err_t clean_prefix(const char *run_dir, const char *prefix) {
    int64_t *steps;
    int count;
    err_t rc = list_steps(run_dir, prefix, &steps, &count);
    for (int i = 0; i < count && rc == ERR_OK; i++) rc = clean_one(run_dir, prefix, steps[i]);
    free(steps);
    return rc;
}

err_t ckpt_clean(const char *run_dir) {
    char link[IO_PATH];
    TRY(io_path(link, "%s/.best", run_dir));
    if (unlink(link) != 0 && errno != ENOENT && errno != ENOTDIR) return err_set(ERR_IO, "%s: remove: %s", link, strerror(errno));
    TRY(clean_prefix(run_dir, OLD));
    return clean_prefix(run_dir, TMP);
}

// --- writing -------------------------------------------------------------------------------------------------------------------

static err_t put_tensor(st_writer *w, const ckpt_tensor *t, manifest_tensor *say, digest *group) {
    digest tensor;
    int64_t count = ckpt_elements(t->dims, t->size);
    digest_begin(&tensor);
    group_tensor(group, t->name, t->dims, t->size);
    for (int64_t i = 0; i < count; i += PIECE) {
        int64_t n = count - i < PIECE ? count - i : PIECE;
        group_chunks(group, &tensor, t->data + i, n);
        TRY(st_put(w, t->data + i, (size_t)n * 4));
    }
    digest_end(&tensor, say->digest);
    return ERR_OK;
}

static err_t put_group(st_writer *w, manifest *m, int group, const ckpt_tensor *t, uint8_t out[CKPT_DIGEST]) {
    digest d;
    digest_begin(&d);
    for (int i = 0; i < m->params; i++) TRY(put_tensor(w, &t[i], &m->tensor[group * m->params + i], &d));
    digest_end(&d, out);
    return ERR_OK;
}

// The digest of the first n bytes, which st_create wrote: read back, from the cache, so that nobody has to hand them around.
static err_t digest_header(const char *path, int64_t n, uint8_t out[CKPT_DIGEST]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    digest d;
    char piece[4096];
    err_t rc = ERR_OK;
    digest_begin(&d);
    for (int64_t i = 0; i < n && rc == ERR_OK; i += (int64_t)sizeof piece) {
        size_t count = n - i < (int64_t)sizeof piece ? (size_t)(n - i) : sizeof piece;
        rc = io_read_at(fd, path, i, piece, count);
        if (rc == ERR_OK) digest_put(&d, piece, count);
    }
    close(fd);
    digest_end(&d, out);
    return rc;
}

typedef struct save {
    const ckpt_state *s;
    manifest *m;
    const char *dir;
    fault_list *faults;
    uint8_t group[GROUPS][CKPT_DIGEST];
} save;

// Groups first .. last into one file. `table` has room for their tensors.
static err_t write_tensors(save *x, int file, int first, int last, st_tensor *table) {
    const ckpt_tensor *const from[GROUPS] = {x->s->master, x->s->m, x->s->v};
    static const char *const metadata[] = {"format", "pt", NULL};  // what other readers look for: plain arrays, row by row
    manifest_file *say = &x->m->file[file];
    int base = first * x->m->params, count = (last - first + 1) * x->m->params;
    char path[IO_PATH];
    st_writer w;
    for (int i = 0; i < count; i++) {
        const manifest_tensor *t = &x->m->tensor[base + i];
        table[i] = (st_tensor){.type = ST_F32, .dims = t->dims, .size = {t->size[0], t->size[1], t->size[2], t->size[3]}};
        memcpy(table[i].name, t->name, sizeof table[i].name);
    }
    TRY(io_path(path, "%s/%s", x->dir, say->name));
    TRY(st_create(&w, path, table, count, metadata, x->faults));
    err_t rc = ERR_OK;
    for (int g = first; g <= last && rc == ERR_OK; g++) rc = put_group(&w, x->m, g, from[g], x->group[g]);
    if (rc == ERR_OK) rc = st_finish(&w, &say->bytes);
    else st_abort(&w);
    TRY(rc);
    return digest_header(path, table[0].offset, say->header);
}

static err_t write_files(save *x) {
    uint8_t state[CKPT_DIGEST];
    st_tensor *table = calloc(2 * (size_t)x->m->params, sizeof *table);
    if (!table) return err_set(ERR_INTERNAL, "no memory for a table of %d tensors", 2 * x->m->params);
    err_t rc = write_tensors(x, FILE_MODEL, GROUP_MASTER, GROUP_MASTER, table);
    if (rc == ERR_OK && x->m->groups == GROUPS) rc = write_tensors(x, FILE_OPTIMIZER, GROUP_M, GROUP_V, table);
    free(table);
    TRY(rc);
    if (x->m->groups == 1) {
        group_digest(NULL, 0, x->group[GROUP_M]);
        group_digest(NULL, 0, x->group[GROUP_V]);
    }
    state_digest(x->group, &x->s->at, state);
    digest_hex(x->m->hash, x->group[GROUP_MASTER], 8);
    digest_hex(x->m->state_hash, state, 8);
    return manifest_write(x->m, x->dir, x->faults);  // also fsyncs the directory
}

// Asks the kernel to forget the pages, so that reading back reads the disk. Advice: where it isn't taken, the pages are compared.
static err_t forget_pages(const char *dir, const manifest *m) {
    for (int f = 0; f < m->files; f++) {
        char path[IO_PATH];
        TRY(io_path(path, "%s/%s", dir, m->file[f].name));
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    return ERR_OK;
}

static err_t verify(const char *dir, const manifest *m) {
    char hash[17], state_hash[17];
    TRY(forget_pages(dir, m));
    err_t rc = ckpt_hash_dir(dir, hash, state_hash);
    if (rc != ERR_OK) err_prefix("the new checkpoint can't be read back and is not used");
    TRY(rc);
    if (strcmp(hash, m->hash) != 0 || strcmp(state_hash, m->state_hash) != 0)
        return err_set(ERR_DATA, "%s: reads back with hash %s and state_hash %s, expected %s and %s: not used", dir, hash,
                       state_hash, m->hash, m->state_hash);
    return ERR_OK;
}

static err_t write_directory(const char *dir, const ckpt_state *s, fault_list *faults) {
    manifest m;
    TRY(io_remove_tree(dir));
    if (mkdir(dir, 0755) != 0) return err_set(ERR_IO, "%s: mkdir: %s", dir, strerror(errno));
    err_t rc = manifest_open(&m, s);
    if (rc == ERR_OK) rc = write_files(&(save){.s = s, .m = &m, .dir = dir, .faults = faults});
    if (rc == ERR_OK) rc = verify(dir, &m);
    manifest_close(&m);
    return rc;
}

// --- committing ----------------------------------------------------------------------------------------------------------------

// `tmp` becomes `final`. What stood there is set aside first and comes back when anything fails: at every instant it, or the new
// one, exists whole under a name that ckpt_clean and a resume understand.
static err_t commit(const char *tmp, const char *final, const char *old, fault_list *faults) {
    err_t rc = exists(final) ? io_rename(final, old, faults) : ERR_OK;
    if (rc == ERR_OK) rc = io_rename(tmp, final, faults);
    if (rc == ERR_OK) return ERR_OK;
    err_record why = *err_last();
    if (!exists(tmp) && rename(final, tmp) != 0)
        return err_restore(&why);  // renamed, but perhaps not for good: nobody was told of it yet
    if (exists(old) && rename(old, final) != 0) {
        err_restore(&why);
        err_prefix("%s could not be put back from %s (the next start does it)", final, old);
        return err_last()->code;
    }
    return err_restore(&why);
}

// The directory of checkpoints, there for good before anything in it is.
static err_t open_directory(const char *run_dir, fault_list *faults) {
    char path[IO_PATH], parent[IO_PATH + 4];
    TRY(io_path(path, "%s/ckpt", run_dir));
    if (exists(path)) return ERR_OK;
    TRY(io_mkdirs(path));
    snprintf(parent, sizeof parent, "%s/..", run_dir);
    err_t rc = io_sync_dir(run_dir, faults);
    if (rc == ERR_OK) rc = io_sync_dir(parent, faults);
    if (rc != ERR_OK) rmdir(path);  // the next save must not take it for synced
    return rc;
}

// --- pruning -------------------------------------------------------------------------------------------------------------------

// The step that DIR/best points to, -1 when it points nowhere of ours.
static err_t best_step(const char *run_dir, int64_t *step) {
    char link[IO_PATH], target[IO_PATH];
    *step = -1;
    TRY(io_path(link, "%s/best", run_dir));
    ssize_t n = readlink(link, target, sizeof target - 1);
    if (n < 0 && (errno == ENOENT || errno == EINVAL)) return ERR_OK;
    if (n < 0) return err_set(ERR_IO, "%s: %s", link, strerror(errno));
    target[n] = 0;
    const char *name = strrchr(target, '/');
    *step = step_of(name ? name + 1 : target, STEP);
    return ERR_OK;
}

// Renamed first, so that a crash in the middle leaves a directory to be cleaned up and not a damaged checkpoint.
static err_t remove_step(const char *run_dir, int64_t step) {
    char path[IO_PATH], tmp[IO_PATH];
    TRY(step_path(path, run_dir, STEP, step));
    TRY(step_path(tmp, run_dir, TMP, step));
    if (rename(path, tmp) != 0) return err_set(ERR_IO, "%s: rename to %s: %s", path, tmp, strerror(errno));
    return io_remove_tree(tmp);
}

// Steps beyond the one just saved are of no use to this run, or it would have begun there; but they are not counted and not
// touched: someone may want to know what happened to them.
err_t ckpt_prune(const char *run_dir, int64_t saved, int keep) {
    int64_t *steps, best;
    int count, kept = 0;
    if (keep < 1) return ERR_OK;
    TRY(best_step(run_dir, &best));
    err_t rc = list_steps(run_dir, STEP, &steps, &count);
    for (int i = 0; i < count && rc == ERR_OK; i++)
        if (steps[i] <= saved && ++kept > keep && steps[i] != best) rc = remove_step(run_dir, steps[i]);
    free(steps);
    return rc;
}

err_t ckpt_save(const char *run_dir, const ckpt_state *s, int keep, fault_list *faults) {
    char tmp[IO_PATH], final[IO_PATH], old[IO_PATH];
    TRY(step_path(tmp, run_dir, TMP, s->at.step));
    TRY(step_path(final, run_dir, STEP, s->at.step));
    TRY(step_path(old, run_dir, OLD, s->at.step));
    TRY(open_directory(run_dir, faults));
    TRY(ckpt_clean(run_dir));
    err_t rc = write_directory(tmp, s, faults);
    if (rc == ERR_OK) rc = commit(tmp, final, old, faults);
    if (rc != ERR_OK) {
        err_record why = *err_last();
        io_remove_tree(tmp);
        return err_restore(&why);
    }
    rc = io_remove_tree(old);
    if (rc == ERR_OK) rc = ckpt_prune(run_dir, s->at.step, keep);
    if (rc != ERR_OK) err_prefix("%s is saved, but what it replaces can't be removed", final);
    return rc;
}

err_t ckpt_mark_best(const char *run_dir, int64_t step, fault_list *faults) {
    char path[IO_PATH], link[IO_PATH], best[IO_PATH], target[64];
    TRY(step_path(path, run_dir, STEP, step));
    TRY(io_path(link, "%s/.best", run_dir));
    TRY(io_path(best, "%s/best", run_dir));
    if (!exists(path)) return err_set(ERR_IO, "%s: is missing, best can't point at it", path);
    snprintf(target, sizeof target, "ckpt/%s%0*lld", STEP, STEP_DIGITS, (long long)step);
    if (unlink(link) != 0 && errno != ENOENT) return err_set(ERR_IO, "%s: remove: %s", link, strerror(errno));
    if (symlink(target, link) != 0) return err_set(ERR_IO, "%s: symlink to %s: %s", link, target, strerror(errno));
    err_t rc = io_rename(link, best, faults);
    if (rc != ERR_OK) unlink(link);
    return rc;
}

// --- resuming ------------------------------------------------------------------------------------------------------------------

static err_t try_step(const char *run_dir, int64_t step, ckpt_state *s) {
    char path[IO_PATH];
    TRY(step_path(path, run_dir, STEP, step));
    TRY(ckpt_load(path, s, false));
    if (s->at.step != step)
        return err_set(ERR_DATA, "%s: holds step %lld: the directory was renamed", path, (long long)s->at.step);
    return ERR_OK;
}

static err_t try_all(const char *run_dir, const int64_t *steps, int count, ckpt_state *s, bool *found,
                     void (*complain)(void *ctx, const char *text), void *ctx) {
    for (int i = 0; i < count; i++) {
        err_t rc = try_step(run_dir, steps[i], s);
        *found = rc == ERR_OK;
        if (*found) return ERR_OK;
        if (rc != ERR_DATA && rc != ERR_IO) return rc;  // it is whole and does not fit, or this process is not well
        if (complain) complain(ctx, err_last()->text);
    }
    if (count == 0) return ERR_OK;
    err_record why = *err_last();
    return err_set(
        ERR_DATA,
        "%s/ckpt: none of its %d checkpoints can be used: restore one from a copy, or move the directory away to start from "
        "the beginning. Of the oldest: %s",
        run_dir, count, why.text);
}

err_t ckpt_resume(const char *run_dir, ckpt_state *s, bool *found, void (*complain)(void *ctx, const char *text), void *ctx) {
    int64_t *steps;
    int count;
    *found = false;
    err_t rc = list_steps(run_dir, STEP, &steps, &count);
    if (rc == ERR_OK) rc = try_all(run_dir, steps, count, s, found, complain, ctx);
    free(steps);
    return rc;
}

err_t ckpt_newest(const char *run_dir, char path[IO_PATH], bool *found) {
    int64_t *steps;
    int count;
    *found = false;
    err_t rc = list_steps(run_dir, STEP, &steps, &count);
    if (rc == ERR_OK && count > 0) rc = step_path(path, run_dir, STEP, steps[0]);
    if (rc == ERR_OK) *found = count > 0;
    free(steps);
    return rc;
}
