// trainer/checkpoint/nodes.c: several nodes, each with its own directory, find out together what they have after a
// crash. A checkpoint is a manifest and the files that it lists, on whatever node they are. The manifest's digest is
// its identity: two manifests of the same step are two checkpoints, and are never mixed.
//
// Settling. A save that was interrupted leaves, on each node, some of step-N, .tmp-step-N and .old-step-N. save.c
// ensures that the nodes together have every file of one of these checkpoints. For each such step:
//
//   1  One complete checkpoint is chosen, the same on all nodes. Those that no node has set aside as .old come first;
//      among equals, those that some node has renamed.
//   2  Each node that has the chosen one renames it to step-N. It has a name at every moment: a crash here is settled
//      by the next settling.
//   3  Only then is the rest removed.
//
// If none is complete, none is chosen, and only directories without a whole manifest are removed: a node that is
// missing today may be back tomorrow, and so may a disk that refuses to read.
#include "trainer/checkpoint/nodes.h"

#include "trainer/checkpoint/ranks.h"
#include "trainer/checkpoint/read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- what there is ---------------------------------------------------------------------------------------------------

static err_t look_at(ckpt_version *v, const char *run_dir) {
    char path[IO_PATH], *text;
    size_t n;
    TRY(ckpt_path(path, run_dir, (ckpt_kind)v->kind, v->step));
    err_t rc = manifest_text(path, &text, &n, v->digest);
    free(text);
    v->whole = rc == ERR_OK, v->unread = rc == ERR_IO;
    return rc == ERR_INTERNAL ? rc : ERR_OK;
}

static err_t list_mine(const char *run_dir, int node, ckpt_version **list, int *count) {
    for (int kind = 0; kind < KINDS; kind++) {
        int64_t *steps;
        int n;
        err_t rc = ckpt_steps(run_dir, (ckpt_kind)kind, &steps, &n);
        ckpt_version *more = rc == ERR_OK ? realloc(*list, (size_t)(*count + n + 1) * sizeof *more) : NULL;
        if (rc == ERR_OK && !more) rc = err_set(ERR_INTERNAL, "%s/ckpt: no memory for its names", run_dir);
        if (more) *list = more;
        for (int i = 0; i < n && rc == ERR_OK; i++) {
            ckpt_version *v = &more[(*count)++];
            memset(v, 0, sizeof *v);
            v->step = steps[i], v->kind = kind, v->node = node;
            rc = look_at(v, run_dir);
        }
        free(steps);
        TRY(rc);
    }
    return ERR_OK;
}

static int by_step(const void *a, const void *b) {
    const ckpt_version *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? 1 : -1;
    return x->node != y->node ? x->node - y->node : x->kind - y->kind;
}

err_t ckpt_versions(const char *run_dir, const ckpt_state *s, ckpt_version **list, int *count) {
    ckpt_version *mine = NULL;
    size_t *cut = NULL;
    int n = 0;
    *list = NULL;
    err_t rc = ckpt_agree(s, ckpt_leads(s) ? list_mine(run_dir, ckpt_node(s), &mine, &n) : ERR_OK);
    if (rc == ERR_OK) rc = ckpt_gather(s, mine, (size_t)n * sizeof *mine, (void **)list, &cut);
    *count = rc == ERR_OK ? (int)(cut[ckpt_world(s)] / sizeof **list) : 0;
    if (*count) qsort(*list, (size_t)*count, sizeof **list, by_step);
    free(mine), free(cut);
    return rc;
}

remains remains_at(const char *run_dir, const ckpt_state *s, const ckpt_version *list, int count, int first) {
    remains r = {run_dir, s, list[first].step, list + first, 0};
    while (first + r.count < count && list[first + r.count].step == r.step) r.count++;
    return r;
}

bool remains_is(const ckpt_version *v, const uint8_t *digest) {
    return v && digest && v->whole && memcmp(v->digest, digest, CKPT_DIGEST) == 0;
}

const ckpt_version *remains_find(const remains *r, int node, int kind) {
    for (int i = 0; i < r->count; i++)
        if (r->v[i].node == node && r->v[i].kind == kind) return &r->v[i];
    return NULL;
}

const ckpt_version *remains_place(const remains *r, const uint8_t *digest, int node) {
    for (int kind = 0; kind < KINDS; kind++)
        if (remains_is(remains_find(r, node, kind), digest)) return remains_find(r, node, kind);
    const ckpt_version *final = remains_find(r, node, KIND_FINAL);
    return final && !final->whole ? final : NULL;
}

// --- one checkpoint, on all nodes ------------------------------------------------------------------------------------

void shared_close(shared *x) {
    manifest_close(&x->m);
    free(x->text), free(x->have), free(x->absent);
}

err_t shared_open(shared *x, const remains *r, const ckpt_version *of) {
    char path[IO_PATH];
    uint8_t digest[CKPT_DIGEST];
    *x = (shared){.r = *r};
    memcpy(x->digest, of->digest, CKPT_DIGEST);
    int i = 0;
    while (!remains_is(&r->v[i], x->digest)) i++;
    int root = ckpt_leader_of(r->s, r->v[i].node);
    err_t rc = ckpt_path(x->final, r->run_dir, KIND_FINAL, r->step);
    if (rc == ERR_OK && ckpt_rank(r->s) == root) {
        rc = ckpt_path(path, r->run_dir, (ckpt_kind)r->v[i].kind, r->step);
        if (rc == ERR_OK) rc = manifest_text(path, &x->text, &x->size, digest);
    }
    TRY(ckpt_agree(r->s, rc));
    TRY(ckpt_broadcast_text(r->s, &x->text, &x->size, root));
    rc = io_path(path, "%s/manifest.json", x->final);
    if (rc == ERR_OK) rc = manifest_parse(&x->m, path, x->text, x->size);
    if (rc == ERR_OK) {
        x->have = calloc((size_t)ckpt_nodes(r->s) * (size_t)x->m.files, sizeof *x->have);
        x->absent = calloc((size_t)x->m.files, sizeof *x->absent);
        if (!x->have || !x->absent) rc = err_set(ERR_INTERNAL, "%s: no memory for %d files", path, x->m.files);
    }
    return ckpt_agree(r->s, rc);
}

// An unreadable file may be whole, and a try later may find it so: that is what is told, if both happen.
static void note_bad(err_record *bad, err_t rc) {
    if (bad->code == ERR_OK || (rc == ERR_IO && bad->code != ERR_IO)) *bad = *err_last();
}

// *bad: the first file here that can't be used.
static err_t look_here(shared *x, const char *dir, bool deep, err_record *bad) {
    const comm_place *here = &x->r.s->ranks->place[ckpt_rank(x->r.s)];
    int locals = ckpt_ranks_of(x->r.s, here->node);
    for (int f = 0; f < x->m.files; f++) {
        char path[IO_PATH];
        if (f % locals != here->local) continue;  // the ranks of a node share its files
        TRY(io_path(path, "%s/%s", dir, x->m.file[f].name));
        err_t rc = deep ? ckpt_verify_file(path, &x->m, f) : ckpt_look_at_file(path, &x->m, f);
        x->have[here->node * x->m.files + f] = rc == ERR_OK;
        if (rc == ERR_INTERNAL) return rc;
        if (rc != ERR_OK && (rc == ERR_IO || ckpt_exists(path))) note_bad(bad, rc);
    }
    return ERR_OK;
}

err_t shared_inventory(shared *x, bool deep, err_record *damage) {
    char dir[IO_PATH];
    err_record bad = {0};
    const ckpt_version *at = remains_place(&x->r, x->digest, ckpt_node(x->r.s));
    size_t cells = (size_t)ckpt_nodes(x->r.s) * (size_t)x->m.files;
    memset(x->have, 0, cells * sizeof *x->have);
    err_t rc = at ? ckpt_path(dir, x->r.run_dir, (ckpt_kind)at->kind, x->r.step) : ERR_OK;
    if (rc == ERR_OK && at) rc = look_here(x, dir, deep, &bad);
    if (rc == ERR_OK && at && !at->whole && ckpt_leads(x->r.s)) {
        uint8_t digest[CKPT_DIGEST];
        char *text;
        size_t n;
        rc = manifest_text(dir, &text, &n, digest);
        if (rc != ERR_OK) note_bad(&bad, rc);
        rc = ERR_OK;
        free(text);
    }
    TRY(ckpt_agree(x->r.s, rc));
    TRY(ckpt_largest(x->r.s, x->have, cells));
    for (int f = 0; f < x->m.files; f++) {
        x->absent[f] = true;
        for (int n = 0; n < ckpt_nodes(x->r.s); n++)
            if (x->have[n * x->m.files + f]) x->absent[f] = false;
    }
    *damage = (err_record){0};
    rc = ckpt_agree(x->r.s, bad.code == ERR_IO ? err_restore(&bad) : ERR_OK);
    if (rc == ERR_OK) rc = ckpt_agree(x->r.s, bad.code ? err_restore(&bad) : ERR_OK);
    if (rc != ERR_OK && ckpt_cut_off(x->r.s)) return rc;
    if (rc != ERR_OK) *damage = *err_last();
    return ERR_OK;
}

bool shared_complete(const shared *x) {
    for (int f = 0; f < x->m.files; f++)
        if (x->absent[f]) return false;
    return true;
}

// --- settling --------------------------------------------------------------------------------------------------------

err_t remains_remove(const remains *r, ckpt_kind kind) {
    char path[IO_PATH];
    TRY(ckpt_path(path, r->run_dir, kind, r->step));
    return io_remove_tree(path);
}

static err_t rename_kind(const remains *r, ckpt_kind from, ckpt_kind to) {
    char a[IO_PATH], b[IO_PATH];
    TRY(ckpt_path(a, r->run_dir, from, r->step));
    TRY(ckpt_path(b, r->run_dir, to, r->step));
    return io_rename(a, b, NULL);
}

// Cleans up this node's directories of the step, so that `chosen` (NULL: none) becomes step-N.
static err_t settle_here(const remains *r, const uint8_t *chosen) {
    int node = ckpt_node(r->s);
    const ckpt_version *final = remains_find(r, node, KIND_FINAL), *tmp = remains_find(r, node, KIND_TMP),
                       *old = remains_find(r, node, KIND_OLD);
    if (remains_is(final, chosen)) {
        TRY(remains_remove(r, KIND_TMP));
        return remains_remove(r, KIND_OLD);
    }
    if (remains_is(tmp, chosen)) {
        if (final) TRY(remains_remove(r, KIND_OLD));
        TRY(ckpt_commit_node(r->run_dir, r->step, NULL));
        return remains_remove(r, KIND_OLD);
    }
    if (remains_is(old, chosen)) {
        TRY(remains_remove(r, KIND_TMP));
        if (final) TRY(rename_kind(r, KIND_FINAL, KIND_TMP));
        TRY(rename_kind(r, KIND_OLD, KIND_FINAL));
        return remains_remove(r, KIND_TMP);
    }
    if (tmp && (chosen || (!tmp->whole && !tmp->unread))) TRY(remains_remove(r, KIND_TMP));
    if (old && !final) return rename_kind(r, KIND_OLD, KIND_FINAL);
    return old && chosen ? remains_remove(r, KIND_OLD) : ERR_OK;
}

// How preferable a checkpoint is; 0: not complete.
static err_t rate(const remains *r, const ckpt_version *v, int *rating) {
    shared x;
    err_record damage;
    bool set_aside = false, renamed = false;
    for (int i = 0; i < r->count; i++) {
        if (!remains_is(&r->v[i], v->digest)) continue;
        set_aside |= r->v[i].kind == KIND_OLD;
        renamed |= r->v[i].kind == KIND_FINAL;
    }
    *rating = 0;
    err_t rc = shared_open(&x, r, v);
    if (rc == ERR_OK) rc = shared_inventory(&x, false, &damage);
    if (rc == ERR_OK && shared_complete(&x)) *rating = 1 + 2 * !set_aside + renamed;
    shared_close(&x);
    // written by a build that we can't read: not ours to finish
    return rc == ERR_DATA || rc == ERR_CONFIG ? ERR_OK : rc;
}

static err_t settle_step(const remains *r) {
    const ckpt_version *best = NULL;
    int most = 0;
    bool pending = false;
    for (int i = 0; i < r->count; i++) pending |= r->v[i].kind != KIND_FINAL;
    for (int i = 0; i < r->count && pending; i++) {
        bool seen = !r->v[i].whole;
        for (int j = 0; j < i; j++) seen |= remains_is(&r->v[j], r->v[i].digest);
        int rating = 0;
        if (!seen) TRY(rate(r, &r->v[i], &rating));
        if (rating == 0 || rating < most || (rating == most && memcmp(r->v[i].digest, best->digest, CKPT_DIGEST) > 0))
            continue;
        most = rating;
        best = &r->v[i];
    }
    return pending ? ckpt_agree(r->s, ckpt_leads(r->s) ? settle_here(r, best ? best->digest : NULL) : ERR_OK) : ERR_OK;
}

err_t ckpt_settle(const char *run_dir, const ckpt_state *s) {
    ckpt_version *list;
    int count;
    err_t rc = ckpt_versions(run_dir, s, &list, &count);
    for (int i = 0; i < count && rc == ERR_OK;) {
        remains r = remains_at(run_dir, s, list, count, i);
        rc = settle_step(&r);
        i += r.count;
    }
    free(list);
    return rc;
}
