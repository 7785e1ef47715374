// test/test_writer.c: checkpoints that are written beside the steps. They are the same files, byte for byte, as those
// that steps wait for, whatever the state becomes while they are written; and a rank that is lost ends them.
#include "test/support/checkpoint_ranks.h"
#include "test/support/save_beside.h"

#include <unistd.h>

// --- the same files --------------------------------------------------------------------------------------------------

static void body_save_beside(rank_of *r) {
    fill_dealt(&r->d, r->j->step, r->j->salt);
    r->out->rc = save_beside(r->dir, &r->d.s, &r->d.at, 0, NULL);
}

static void same_files(const nodes *n, int a, int b) {
    char command[1024];
    snprintf(command, sizeof command, "diff -r '%s/ckpt' '%s/ckpt' >&2", n->dir[a], n->dir[b]);
    assert_int_equal(system(command), 0);
}

// By the first so many nodes, and by others.
static void compare(const nodes *n, int count, const int *ranks, int slicing) {
    job j = {.where = n, .nodes = count, .deal = (uint32_t)slicing, .slicing = slicing, .step = 7, .salt = 3};
    wipe(n);
    for (int k = 0; k < count; k++) j.ranks[k] = ranks[k], j.on[k] = k;
    all_ranks_do(&j, body_save);
    assert_int_equal(same_on_all(&j)->rc, ERR_OK);
    for (int k = 0; k < count; k++) j.on[k] = count + k;
    all_ranks_do(&j, body_save_beside);
    assert_int_equal(same_on_all(&j)->rc, ERR_OK);
    for (int k = 0; k < count; k++) same_files(n, k, count + k);
    end_job(&j);
}

static void the_same_files(void **state) {
    compare(*state, 1, (int[]){1}, 0);
    compare(*state, 1, (int[]){3}, 1);
    compare(*state, 2, (int[]){2, 1}, 2);
}

// --- one after the other ---------------------------------------------------------------------------------------------

// One writer, several checkpoints: it says of each what came of it, and when.
static void body_one_after_the_other(rank_of *r) {
    ckpt_writer *w;
    ckpt_written out;
    char hash[17];
    fill_dealt(&r->d, 1, 0);
    DOES(ckpt_writer_open(&w, r->dir, &r->d.s, r->c, NULL));
    MUST(!ckpt_writer_busy(w) && !ckpt_writer_ended(w), "it begins with nothing");
    DOES(ckpt_writer_finish(w, &out));
    for (int64_t step = 1; step <= 3; step++) {
        fill_dealt(&r->d, step, 0);
        DOES(ckpt_hash(&r->d.s, hash));
        ckpt_writer_begin(w, &r->d.s, &r->d.at);
        MUST(ckpt_writer_busy(w) && ckpt_writer_at(w)->step == step, "step %d", (int)step);
        while (!ckpt_writer_ended(w)) usleep(100);
        DOES(ckpt_writer_finish(w, &out));
        MUST(out.at.step == step && strcmp(out.hash, hash) == 0, "%s, expected %s", out.hash, hash);
        MUST(!ckpt_writer_busy(w), "nothing is left");
    }
    ckpt_writer_close(w);
}

static void one_after_the_other(void **state) {
    job j = {.where = *state, .nodes = 1, .ranks = {3}, .on = {0}};
    wipe(j.where);
    all_ranks_do(&j, body_one_after_the_other);
    end_job(&j);
}

// A failure of one rank is that of all, and the next checkpoint is none the worse.
static void body_one_fails(rank_of *r) {
    ckpt_writer *w;
    ckpt_written out;
    fault_list faults;
    DOES(fault_parse(&faults, r->rank == 1 ? "sync@1" : ""));
    fill_dealt(&r->d, 1, 0);
    DOES(ckpt_writer_open(&w, r->dir, &r->d.s, r->c, &faults));
    for (int64_t step = 1; step <= 2; step++) {
        fill_dealt(&r->d, step, 0);
        ckpt_writer_begin(w, &r->d.s, &r->d.at);
        err_t rc = ckpt_writer_finish(w, &out);
        MUST(rc == (step == 1 ? ERR_IO : ERR_OK) && out.at.step == step, "step %d: %d", (int)step, rc);
        MUST(step == 2 || strstr(err_last()->text, "fsync"), "%s", err_last()->text);
    }
    ckpt_writer_close(w);
}

static void one_fails(void **state) {
    const nodes *n = *state;
    job j = {.where = n, .nodes = 1, .ranks = {3}, .on = {0}};
    world w;
    wipe(n);
    all_ranks_do(&j, body_one_fails);
    strcpy(w.dir, n->dir[0]);
    holds(&w, "step-00000002 ");
    end_job(&j);
}

// --- progress --------------------------------------------------------------------------------------------------------

static void count_beat(void *ctx) { __atomic_fetch_add((long *)ctx, 1, __ATOMIC_RELAXED); }

// Each tensor is written and read back in at least one piece, and copied to another node.
static void body_beats(rank_of *r) {
    int tensors = 0;
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < TENSORS; i++) tensors += r->d.tensor[g][i].count > 0;
    r->d.s.pulse = (ckpt_pulse){count_beat, &r->out->n};
    fill_dealt(&r->d, 1, 0);
    DOES(save_beside(r->dir, &r->d.s, &r->d.at, 0, NULL));
    MUST(r->out->n > 2 * tensors + 2, "%ld beats of %d tensors", r->out->n, tensors);
    r->d.s.pulse.beat = NULL;
}

static void it_is_seen_to_go_forward(void **state) {
    job j = {.where = *state, .nodes = 2, .ranks = {1, 1}, .on = {0, 1}};
    wipe(j.where);
    all_ranks_do(&j, body_beats);
    end_job(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {NODES(the_same_files), NODES(one_after_the_other), NODES(one_fails),
                                       NODES(it_is_seen_to_go_forward)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
