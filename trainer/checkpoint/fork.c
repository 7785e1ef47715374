// trainer/checkpoint/fork.c: see trainer/checkpoint/fork.h. Files of a checkpoint never change, so it may belong to a
// run that goes on. That run may remove it: so first each file gets a second name in the new directory, which holds it
// until it is copied. Where that can't be (another file system, another owner) it is read where it is; if it is gone,
// the message says so.
#include "trainer/checkpoint/fork.h"

#include "trainer/checkpoint/copy.h"
#include "trainer/checkpoint/digest.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct copying {
    const char *from, *to;
    const manifest *m;
    bool (*stop)(void *ctx);
    void *ctx;
    uint8_t *piece;
} copying;

static err_t read_all(const copying *x, int fd, const char *path, int64_t bytes, ckpt_incoming *in) {
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < CKPT_PIECE ? bytes - at : CKPT_PIECE;
        if (x->stop && x->stop(x->ctx)) return err_set(ERR_INTERRUPTED, "stopped on request; nothing was made");
        TRY(io_read_at(fd, path, at, x->piece, (size_t)n));
        incoming_put(in, x->piece, (size_t)n);
    }
    return ERR_OK;
}

static err_t held_path(const copying *x, int file, char path[IO_PATH]) {
    return io_path(path, "%s/.held-%s", x->to, x->m->file[file].name);
}

static err_t hold_files(const copying *x) {
    char from[IO_PATH], held[IO_PATH];
    for (int f = 0; f < x->m->files; f++) {
        TRY(io_path(from, "%s/%s", x->from, x->m->file[f].name));
        TRY(held_path(x, f, held));
        if (link(from, held) != 0 && errno == ENOENT) return err_set(ERR_DATA, "%s: %s", from, strerror(errno));
    }
    return ERR_OK;
}

static err_t release_files(const copying *x) {
    char held[IO_PATH];
    for (int f = 0; f < x->m->files; f++) {
        TRY(held_path(x, f, held));
        if (unlink(held) != 0 && errno != ENOENT) return err_set(ERR_IO, "%s: remove: %s", held, strerror(errno));
    }
    return ERR_OK;
}

// The copy is removed with all that was made, so the original is what a person should look at.
static err_t blame_original(const char *path) {
    if (err_last()->code != ERR_DATA) return err_last()->code;
    err_record why = *err_last();
    return err_set(ERR_DATA, "%s: is damaged: %.700s. Fork another checkpoint of this run: RUN_DIR@STEP", path,
                   why.text);
}

static err_t copy_file(const copying *x, int file) {
    char path[IO_PATH], held[IO_PATH];
    ckpt_incoming in;
    const manifest_file *f = &x->m->file[file];
    TRY(io_path(path, "%s/%s", x->from, f->name));
    TRY(held_path(x, file, held));
    int fd;
    err_t found = io_open(held, O_RDONLY, &fd);
    if (found != ERR_OK) found = io_open(path, O_RDONLY, &fd);
    if (found == ERR_IO && errno == ENOENT) return err_set(ERR_DATA, "%s: %s", path, strerror(ENOENT));
    TRY(found);
    incoming_open(&in, x->to, f->name, NULL);
    err_t rc = read_all(x, fd, path, f->bytes, &in);
    close(fd);
    if (rc == ERR_OK) return incoming_close(&in, x->m, file) == ERR_OK ? ERR_OK : blame_original(path);
    if (in.fd >= 0) close(in.fd);
    return rc;
}

// Files lie on several nodes where several wrote them.
static err_t check_files(const char *from, const manifest *m) {
    if (ckpt_all_there(from, m, m->groups) == ERR_OK) return ERR_OK;
    if (err_last()->code != ERR_DATA || m->world == 1) return err_last()->code;
    err_record why = *err_last();
    return err_set(ERR_DATA, "%.700s. Copy them into this directory from the nodes that have them, and fork again",
                   why.text);
}

// rc is how the copying went, with the last error.
static err_t explain(const char *from, err_t rc) {
    if (rc == ERR_OK || rc == ERR_INTERRUPTED || ckpt_exists(from)) return rc;
    return err_set(
        ERR_DATA,
        "%s: the run has removed it while it was copied: it goes on, and keeps its newest checkpoints only. Fork a newer one, or its best",
        from);
}

static err_t copy_files(const copying *x) {
    TRY(hold_files(x));
    for (int f = 0; f < x->m->files; f++) TRY(copy_file(x, f));
    return release_files(x);
}

static bool same_counters(const run_progress *a, const run_progress *b) {
    return a->step == b->step && a->updates == b->updates && a->skipped == b->skipped &&
           a->loss_scale == b->loss_scale && a->good_steps == b->good_steps && a->norm_mean == b->norm_mean &&
           a->norms == b->norms && a->losses == b->losses && a->rollbacks == b->rollbacks;
}

static err_t make_hash(const copying *x, manifest *as) {
    uint8_t state[CKPT_DIGEST];
    if (same_counters(&x->m->at, &as->at)) return ERR_OK;
    TRY(ckpt_digest_dir(x->to, x->m, &as->at, state));
    digest_hex(as->state_hash, state, 8);
    return ERR_OK;
}

static err_t write_manifest(const char *to, const manifest *as) {
    char path[IO_PATH], *text;
    size_t size;
    TRY(io_path(path, "%s/manifest.json", to));
    TRY(manifest_print(as, &text, &size));
    err_t rc = io_write_file(path, text, size, NULL);
    free(text);
    return rc;
}

err_t ckpt_fork(const char *from, const manifest *m, const char *to, manifest *as, bool (*stop)(void *ctx), void *ctx) {
    copying x = {from, to, m, stop, ctx, malloc(CKPT_PIECE)};
    err_t rc = x.piece ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a piece of %d bytes", CKPT_PIECE);
    if (rc == ERR_OK) rc = explain(from, check_files(from, m));
    if (rc == ERR_OK && mkdir(to, 0755) != 0) rc = err_set(ERR_IO, "%s: mkdir: %s", to, strerror(errno));
    if (rc == ERR_OK) rc = explain(from, copy_files(&x));
    free(x.piece);
    if (rc == ERR_OK) rc = make_hash(&x, as);
    return rc == ERR_OK ? write_manifest(to, as) : rc;
}
