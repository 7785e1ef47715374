// trainer/checkpoint/resume.c: resuming with several nodes, each with a directory of its own.
//
// Chooses the newest step of which the nodes together have every file. Each node gets the files that it lacks (found by
// length and header), so that it can then load alone; a node with an empty directory gets everything. If loading finds
// damage, every file on every node is read, damaged copies count as missing, and the step is tried once more; then the
// previous step.
#include "trainer/checkpoint/resume.h"

#include "trainer/checkpoint/copy.h"
#include "trainer/checkpoint/nodes.h"
#include "trainer/checkpoint/ranks.h"
#include "trainer/checkpoint/read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// --- sending what a node lacks ---------------------------------------------------------------------------------------

// Where this node receives files: step-N, or, if it has nothing of this checkpoint, a new directory.
static err_t open_target(const shared *x, char dir[IO_PATH]) {
    const ckpt_version *at = remains_place(&x->r, x->digest, ckpt_node(x->r.s));
    if (at) return io_path(dir, "%s", x->final);
    TRY(ckpt_open_directory(x->r.run_dir, NULL));
    TRY(remains_remove(&x->r, KIND_TMP));
    TRY(remains_remove(&x->r, KIND_OLD));
    TRY(ckpt_path(dir, x->r.run_dir, KIND_TMP, x->r.step));
    return mkdir(dir, 0755) == 0 ? ERR_OK : err_set(ERR_IO, "%s: mkdir: %s", dir, strerror(errno));
}

static err_t close_target(const shared *x, const char *dir) {
    char path[IO_PATH];
    const ckpt_version *at = remains_place(&x->r, x->digest, ckpt_node(x->r.s));
    if (at && at->whole) return ERR_OK;
    TRY(io_path(path, "%s/manifest.json", dir));
    TRY(io_write_file(path, x->text, x->size, NULL));
    if (at) return ERR_OK;
    TRY(ckpt_commit_node(x->r.run_dir, x->r.step, NULL));
    return remains_remove(&x->r, KIND_OLD);
}

// One file, sent from the first node that has it to all that lack it, by the first rank of each.
typedef struct passage {
    const shared *x;
    int f, source;
    bool sends, receives;
    int fd;
    ckpt_incoming in;
    comm_part *part;
    uint8_t *piece;
    err_record why;  // the first failure of all files; it does not end the sending
} passage;

static void passage_note(passage *p, err_t rc) {
    if (rc != ERR_OK && p->why.code == ERR_OK) p->why = *err_last();
}

static bool lacks(const shared *x, int node, int f) { return !x->have[node * x->m.files + f]; }

static void passage_open(passage *p, int f, const char *dir) {
    const shared *x = p->x;
    char path[IO_PATH];
    p->f = f, p->fd = -1, p->source = 0;
    while (lacks(x, p->source, f)) p->source++;
    p->sends = ckpt_leads(x->r.s) && ckpt_node(x->r.s) == p->source;
    p->receives = ckpt_leads(x->r.s) && lacks(x, ckpt_node(x->r.s), f);
    if (p->receives) incoming_open(&p->in, dir, x->m.file[f].name, NULL);
    if (!p->sends) return;
    err_t rc = io_path(path, "%s/%s", x->final, x->m.file[f].name);
    if (rc == ERR_OK) rc = io_open(path, O_RDONLY, &p->fd);
    if (rc != ERR_OK) passage_note(p, err_set(ERR_DATA, "%s", err_last()->text));
}

static void read_piece(passage *p, int64_t at, size_t n) {
    if (p->fd < 0 || io_read_at(p->fd, p->x->m.file[p->f].name, at, p->piece, n) == ERR_OK) return;
    // this copy is of no use
    passage_note(p, err_set(ERR_DATA, "%s: can't be read to be sent to other nodes", p->x->final));
}

// All ranks take part in every call, most with nothing to send or receive: they make the same calls in the same order.
static err_t pass_piece(passage *p, int64_t at, size_t n) {
    const ckpt_state *s = p->x->r.s;
    int sends = 0;
    for (int k = 0; k < ckpt_nodes(s) && p->sends; k++)
        if (lacks(p->x, k, p->f)) p->part[sends++] = (comm_part){ckpt_leader_of(s, k), p->piece, n};
    comm_part from = {ckpt_leader_of(s, p->source), p->piece, n};
    if (p->sends) read_piece(p, at, n);
    TRY(ckpt_exchange(s, p->part, sends, &from, p->receives));
    if (p->receives) incoming_put(&p->in, p->piece, n);
    return ERR_OK;
}

static void passage_close(passage *p, bool arrived) {
    if (p->fd >= 0) close(p->fd);
    if (p->receives && arrived) passage_note(p, incoming_close(&p->in, &p->x->m, p->f));
    else if (p->receives && p->in.fd >= 0) close(p->in.fd), unlink(p->in.path);
}

static err_t pass_file(passage *p, int f, const char *dir) {
    const shared *x = p->x;
    bool needed = false;
    for (int k = 0; k < ckpt_nodes(x->r.s); k++) needed = needed || lacks(x, k, f);
    if (!needed) return ERR_OK;
    passage_open(p, f, dir);
    err_t rc = ERR_OK;
    for (int64_t at = 0, left; rc == ERR_OK && (left = x->m.file[f].bytes - at) > 0; at += CKPT_PIECE)
        rc = pass_piece(p, at, left < CKPT_PIECE ? (size_t)left : CKPT_PIECE);
    passage_close(p, rc == ERR_OK);
    return rc;
}

static err_t move_files(const shared *x, const char *dir) {
    passage p = {.x = x, .piece = malloc(CKPT_PIECE), .part = calloc((size_t)ckpt_nodes(x->r.s), sizeof(comm_part))};
    err_t rc = ckpt_agree(
        x->r.s, p.piece && p.part ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a piece of %d bytes", CKPT_PIECE));
    for (int f = 0; f < x->m.files && rc == ERR_OK; f++) rc = pass_file(&p, f, dir);
    free(p.piece), free(p.part);
    if (rc != ERR_OK) return rc;
    return ckpt_agree(x->r.s, p.why.code ? err_restore(&p.why) : ERR_OK);
}

// Gives every node this whole checkpoint, as step-N. ERR_DATA: a copy that was sent is damaged.
static err_t fetch(const shared *x) {
    char dir[IO_PATH] = "";
    bool leads = ckpt_leads(x->r.s), all = true;
    for (int n = 0; n < ckpt_nodes(x->r.s); n++) {
        const ckpt_version *at = remains_place(&x->r, x->digest, n);
        all = all && at && at->whole;
        for (int f = 0; f < x->m.files; f++) all = all && x->have[n * x->m.files + f];
    }
    if (all) return ERR_OK;
    TRY(ckpt_agree(x->r.s, leads ? open_target(x, dir) : ERR_OK));
    err_t rc = move_files(x, dir);
    if (rc == ERR_OK) rc = ckpt_agree(x->r.s, leads ? close_target(x, dir) : ERR_OK);
    return rc;  // an unfinished new directory has no manifest, and the next cleaning removes it
}

// --- resuming --------------------------------------------------------------------------------------------------------

typedef struct attempt {
    run_progress *at;  // (=) of the checkpoint that was resumed
    void (*complain)(void *ctx, const err_record *why);
    void *ctx;
    bool fatal;     // not the checkpoint's fault: trying an older one would lose steps for nothing
    bool reported;  // complained about already
    int tried, unreadable;
    err_record newest;  // what is wrong with the newest that was tried
    err_record unread;  // and with the newest that could not be read
} attempt;

static void report_damage(attempt *a, const err_record *why) {
    if (a->complain && !a->reported) a->complain(a->ctx, why);
    a->reported = true;
}

// Nothing to load: rc says why.
static void note_failure(attempt *a, err_t rc) {
    if (a->tried++ == 0) a->newest = *err_last();
    if (rc == ERR_IO && a->unreadable++ == 0) a->unread = *err_last();
}

// Sends each node what it lacks, and loads. deep: a first try has failed, with the last error.
static err_t fetch_and_read(shared *x, ckpt_state *s, bool deep, attempt *a) {
    err_record damage, first = deep ? *err_last() : (err_record){0};
    err_t rc = shared_inventory(x, deep, &damage);
    if (rc == ERR_OK && damage.code && !deep) report_damage(a, &damage);
    TRY(rc);
    if (damage.code == ERR_IO && !shared_complete(x)) return err_restore(&damage);
    if (deep && (!damage.code || !shared_complete(x))) return err_restore(&first);
    TRY(ckpt_missing(x->final, &x->m, x->absent));
    rc = fetch(x);
    a->fatal = rc != ERR_OK && rc != ERR_DATA;
    if (rc == ERR_OK) rc = ckpt_read(x->final, &x->m, s);
    return rc;
}

static err_t try_shared(shared *x, ckpt_state *s, attempt *a) {
    if (x->m.at.step != x->r.step)
        return err_set(ERR_DATA, "%s: holds step %" PRId64 ": the directory was renamed", x->final, x->m.at.step);
    TRY(ckpt_agree(s, ckpt_fits(x->final, &x->m, s, false)));
    err_t rc = fetch_and_read(x, s, false, a);
    if ((rc == ERR_DATA || rc == ERR_IO) && !a->fatal && shared_complete(x)) {
        report_damage(a, err_last());
        // The first try may have sent files: look again.
        ckpt_version *list;
        int count, i = 0;
        err_record why = *err_last();
        TRY(ckpt_versions(x->r.run_dir, s, &list, &count));
        while (i < count && list[i].step != x->r.step) i++;
        x->r = remains_at(x->r.run_dir, s, list, count, i);
        err_restore(&why);
        rc = fetch_and_read(x, s, true, a);
        free(list);
    }
    return rc == ERR_OK ? ckpt_adopt(x->final, &x->m, s, a->at, false) : rc;
}

static err_t try_version(const remains *r, const ckpt_version *v, ckpt_state *s, attempt *a) {
    shared x;
    a->reported = a->fatal = false;
    err_t rc = shared_open(&x, r, v);
    if (rc == ERR_OK) rc = try_shared(&x, s, a);
    shared_close(&x);
    if (rc != ERR_DATA && rc != ERR_IO) return rc;  // it is whole and does not fit, or this process has failed
    note_failure(a, rc);
    if (!a->fatal) report_damage(a, err_last());
    return rc;
}

// This node's directory of a step to complain of: step-N, or another one that it can't read and that may be whole.
static const ckpt_version *broken_here(const remains *r) {
    for (int kind = 0; kind < KINDS; kind++) {
        const ckpt_version *v = remains_find(r, ckpt_node(r->s), kind);
        if (v && (kind == KIND_FINAL || v->unread)) return v;
    }
    return NULL;
}

// A step for which no node has a readable manifest.
static err_t try_broken(const remains *r, attempt *a) {
    char path[IO_PATH], *text = NULL;
    uint8_t digest[CKPT_DIGEST];
    size_t n;
    err_t rc = ERR_OK;
    const ckpt_version *v = broken_here(r);
    if (ckpt_leads(r->s) && v) {
        rc = ckpt_path(path, r->run_dir, (ckpt_kind)v->kind, r->step);
        if (rc == ERR_OK) rc = manifest_text(path, &text, &n, digest);
        if (rc == ERR_OK)
            rc = err_set(ERR_IO, "%s/manifest.json: could not be read at first, and could a moment later", path);
        free(text);
    }
    rc = ckpt_agree(r->s, rc);
    if (rc != ERR_DATA && rc != ERR_IO) return rc;
    a->reported = false;
    note_failure(a, rc);
    report_damage(a, err_last());
    return rc;
}

// How many nodes have it as step-N.
static int holders(const remains *r, const ckpt_version *v) {
    int n = 0;
    for (int i = 0; i < r->count; i++) n += r->v[i].kind == KIND_FINAL && remains_is(&r->v[i], v->digest);
    return n;
}

// The checkpoint of this step to try after `before` (NULL: the first one): those that most nodes have come first. NULL:
// none.
static const ckpt_version *next_version(const remains *r, const ckpt_version *before) {
    const ckpt_version *best = NULL;
    for (int i = 0; i < r->count; i++) {
        const ckpt_version *v = &r->v[i];
        if (!v->whole || v->kind != KIND_FINAL) continue;
        int n = holders(r, v), least = before ? holders(r, before) : 0, most = best ? holders(r, best) : 0;
        if (before && (n > least || (n == least && memcmp(v->digest, before->digest, CKPT_DIGEST) <= 0))) continue;
        if (!best || n > most || (n == most && memcmp(v->digest, best->digest, CKPT_DIGEST) < 0)) best = v;
    }
    return best;
}

static err_t try_step(const remains *r, ckpt_state *s, attempt *a) {
    const ckpt_version *v = next_version(r, NULL);
    if (!v) return try_broken(r, a);
    err_t rc = ERR_DATA;
    for (; v && (rc == ERR_DATA || rc == ERR_IO) && !a->fatal; v = next_version(r, v)) rc = try_version(r, v, s, a);
    return rc;
}

// Is there something that may be a whole checkpoint?
static bool worth_a_try(const remains *r) {
    for (int i = 0; i < r->count; i++)
        if (r->v[i].kind == KIND_FINAL || r->v[i].unread) return true;
    return false;
}

err_t ckpt_unreadable(const char *run_dir, int tried, int unreadable) {
    char text[ERR_TEXT], others[64] = "";
    snprintf(text, sizeof text, "%s", err_last()->text);
    if (unreadable < tried)
        snprintf(others, sizeof others, ", and %d %s damaged", tried - unreadable,
                 tried - unreadable == 1 ? "is" : "are");
    return err_set(
        ERR_IO,
        "%s/ckpt: of %d checkpoint%s %d could not be read%s. What can't be read may be whole: leave it where it is, mend what the system "
        "refuses here, and start the same command again; it goes on from there. %.500s",
        run_dir, tried, tried == 1 ? "" : "s", unreadable, others, text);
}

err_t ckpt_resume_nodes(const char *run_dir, ckpt_state *s, run_progress *at, bool *found,
                        void (*complain)(void *ctx, const err_record *why), void *ctx) {
    attempt a = {.at = at, .complain = complain, .ctx = ctx};
    ckpt_version *list;
    int count;
    TRY(ckpt_settle(run_dir, s));
    err_t rc = ckpt_versions(run_dir, s, &list, &count);
    for (int i = 0; i < count && rc == ERR_OK && !*found;) {
        remains r = remains_at(run_dir, s, list, count, i);
        i += r.count;
        if (!worth_a_try(&r)) continue;
        rc = try_step(&r, s, &a);
        *found = rc == ERR_OK;
        if ((rc == ERR_DATA || rc == ERR_IO) && !a.fatal) rc = ERR_OK;
    }
    free(list);
    if (rc != ERR_OK || *found || a.tried == 0) return rc;
    if (a.unreadable) return err_restore(&a.unread), ckpt_unreadable(run_dir, a.tried, a.unreadable);
    return err_set(
        ERR_DATA,
        "%s/ckpt: the nodes have %d checkpoint%s, and none can be used: bring back a node that has what is missing, "
        "restore one from a "
        "copy, or move the directories away to start from the beginning. Of the newest: %.600s",
        run_dir, a.tried, a.tried == 1 ? "" : "s", a.newest.text);
}
