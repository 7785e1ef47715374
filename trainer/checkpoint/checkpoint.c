// trainer/checkpoint/checkpoint.c: what the ranks do together in their nodes' directories; see
// trainer/checkpoint/checkpoint.h.
#include "trainer/checkpoint/checkpoint.h"

#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/nodes.h"
#include "trainer/checkpoint/ranks.h"
#include "trainer/checkpoint/resume.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

err_t ckpt_clean(const char *run_dir, const ckpt_state *s) {
    if (ckpt_nodes(s) == 1) return ckpt_agree(s, ckpt_leads(s) ? ckpt_clean_node(run_dir) : ERR_OK);
    TRY(ckpt_agree(s, ckpt_leads(s) ? ckpt_remove_link(run_dir) : ERR_OK));
    return ckpt_settle(run_dir, s);
}

err_t ckpt_prune(const char *run_dir, const ckpt_state *s, const run_progress *at, int64_t saved, int keep) {
    return ckpt_agree(s, ckpt_leads(s) ? ckpt_prune_node(run_dir, saved, saved - at->bad_steps, keep) : ERR_OK);
}

// All nodes make their link before any node renames it: the likely failures then happen while all still point to the
// old one.
err_t ckpt_mark_best(const char *run_dir, const ckpt_state *s, int64_t step, fault_list *faults) {
    bool leads = ckpt_leads(s);
    err_t rc = ckpt_agree(s, leads ? ckpt_make_link(run_dir, step) : ERR_OK);
    fault_kill(faults, FAULT_BEST);
    if (rc == ERR_OK) return ckpt_agree(s, leads ? ckpt_swing_link(run_dir, faults) : ERR_OK);
    err_record why = *err_last();
    if (leads) ckpt_remove_link(run_dir);
    return err_restore(&why);
}

// --- resuming --------------------------------------------------------------------------------------------------------

static err_t try_step(const char *run_dir, int64_t step, ckpt_state *s, run_progress *at) {
    char path[IO_PATH];
    TRY(ckpt_path(path, run_dir, KIND_FINAL, step));
    TRY(ckpt_load(path, s, at, false));
    if (at->step != step)
        return err_set(ERR_DATA, "%s: holds step %" PRId64 ": the directory was renamed", path, at->step);
    return ERR_OK;
}

static err_t try_all(const char *run_dir, const int64_t *steps, int count, ckpt_state *s, run_progress *at, bool *found,
                     void (*complain)(void *ctx, const err_record *why), void *ctx) {
    err_record newest = {0}, unread = {0};
    int unreadable = 0;
    for (int i = 0; i < count; i++) {
        err_t rc = try_step(run_dir, steps[i], s, at);
        *found = rc == ERR_OK;
        if (*found) return ERR_OK;
        if (rc != ERR_DATA && rc != ERR_IO) return rc;  // it is whole and does not fit, or this process has failed
        if (i == 0) newest = *err_last();
        if (rc == ERR_IO && unreadable++ == 0) unread = *err_last();
        if (complain) complain(ctx, err_last());
    }
    if (count == 0) return ERR_OK;
    if (unreadable) return err_restore(&unread), ckpt_unreadable(run_dir, count, unreadable);
    err_record oldest = *err_last();
    return err_set(
        ERR_DATA,
        "%s/ckpt: none of its %d checkpoints can be used: restore one from a copy, or move the directory away to start from "
        "the beginning. Of the newest: %.400s%s%.300s",
        run_dir, count, newest.text, count > 1 ? ". Of the oldest: " : "", count > 1 ? oldest.text : "");
}

// All ranks use the list of rank 0: they share the directory, and must try the same steps in the same order.
static err_t share_steps(const ckpt_state *s, int64_t **steps, int *count, err_t rc) {
    TRY(ckpt_agree(s, rc));
    char *text = (char *)*steps, none = 0;
    size_t size = (size_t)*count * sizeof **steps;
    if (ckpt_rank(s) != 0) free(text), *steps = NULL, text = NULL;
    if (!text && ckpt_rank(s) == 0) text = &none, size = 0;
    rc = ckpt_broadcast_text(s, &text, &size, 0);
    if (text != &none) *steps = (int64_t *)(void *)text;
    *count = (int)(size / sizeof **steps);
    return rc;
}

err_t ckpt_resume(const char *run_dir, ckpt_state *s, run_progress *at, bool *found,
                  void (*complain)(void *ctx, const err_record *why), void *ctx) {
    int64_t *steps;
    int count;
    *found = false;
    if (ckpt_nodes(s) > 1) return ckpt_resume_nodes(run_dir, s, at, found, complain, ctx);
    err_t rc = ckpt_steps(run_dir, KIND_FINAL, &steps, &count);
    if (!ckpt_alone(s)) rc = share_steps(s, &steps, &count, rc);
    if (rc == ERR_OK) rc = try_all(run_dir, steps, count, s, at, found, complain, ctx);
    free(steps);
    return rc;
}

err_t ckpt_newest(const char *run_dir, char path[IO_PATH], bool *found) {
    int64_t *steps;
    int count;
    *found = false;
    err_t rc = ckpt_steps(run_dir, KIND_FINAL, &steps, &count);
    if (rc == ERR_OK && count > 0) rc = ckpt_path(path, run_dir, KIND_FINAL, steps[0]);
    if (rc == ERR_OK) *found = count > 0;
    free(steps);
    return rc;
}

err_t ckpt_saved_hash(const char *run_dir, int64_t step, char hash[17]) {
    char path[IO_PATH];
    manifest m;
    TRY(ckpt_path(path, run_dir, KIND_FINAL, step));
    err_t rc = manifest_read(&m, path);
    if (rc == ERR_OK) memcpy(hash, m.hash, sizeof m.hash);
    manifest_close(&m);
    return rc;
}
