// test/test_checkpoint_crash.c: a checkpoint is there whole or not at all. Every write, fsync and rename is made to
// fail, on one rank and on one of several, the writers are killed at any moment and the disk is filled: what loads
// afterwards is always one state or the other, bit for bit and on all ranks the same.
#include "test/support/checkpoint_ranks.h"

#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>

// --- failures while saving -------------------------------------------------------------------------------------------

// No call reports a bit that is not as it was written: it shows when the file is read back.
static err_t fails_with(const char *plan) { return strncmp(plan, "flip", 4) == 0 ? ERR_DATA : ERR_IO; }

// Saves step `step` with the fault on its 1st, 2nd, ... pass until a save succeeds; returns how many failed. `with_x`:
// it stays broken from that pass on. After each failure step 1 of salt 0 must be the newest, with nothing lying about.
static int fail_each(two *t, const char *point, const char *with_x, int64_t step) {
    char plan[32];
    complaints c;
    for (int pass = 1;; pass++) {
        fault_list faults;
        snprintf(plan, sizeof plan, "%s@%d%s", point, pass, with_x);
        OK(fault_parse(&faults, plan));
        fill(t->w, step, 9);
        err_t rc = ckpt_save(t->w->dir, &t->w->s, &t->w->at, 5, &faults);
        if (rc == ERR_OK) return pass - 1;
        assert_int_equal(rc, fails_with(point));
        assert_non_null(strstr(err_last()->text, t->w->dir));
        holds(t->w, "step-00000001 ");
        resumes_as(t->w, t->first, &c);
        assert_int_equal(c.count, 0);
    }
}

static void test_fault_points(void **state) {
    // Writes: the header and three tensors of masters, the header and six of the optimizer, the manifest; every one may
    // come out wrong. Fsyncs: two files, the manifest, its directory, the directory of checkpoints. Renames: of the
    // manifest and of the step. `more`: a step that is there is set aside before.
    static const struct {
        const char *point;
        int times, more;
    } points[] = {{"write", 12, 0}, {"flip", 12, 0}, {"sync", 5, 1}, {"rename", 2, 1}};
    for (int64_t step = 1; step <= 2; step++)  // 1: the same step again, replaced; 2: a new one
        for (int i = 0; i < 4; i++)
            for (int x = 0; x < 2; x++) {
                two t = {*state, make_world("", 5)};
                char ckpt[IO_PATH];
                snprintf(ckpt, sizeof ckpt, "%s/ckpt", t.w->dir);
                OK(io_remove_tree(ckpt));
                save_step(t.w, 1, 5);
                fill(t.first, 1, 0);
                int failures = fail_each(&t, points[i].point, x ? "x1000000" : "", step);
                assert_int_equal(failures, points[i].times + (step == 1 ? points[i].more : 0));
                complaints c;
                fill(t.first, step, 9);
                resumes_as(t.w, t.first, &c);  // the one that succeeded
                holds(t.w, step == 1 ? "step-00000001 " : "step-00000001 step-00000002 ");
                drop_world(t.first);
            }
}

static void test_first_save_fails(void **state) {
    world *w = *state;
    static const char *const plans[] = {"sync@1", "sync@2", "sync@3", "write@1", "rename@1", "rename@2", "flip@1"};
    bool found;
    for (int i = 0; i < 7; i++) {
        fault_list faults;
        OK(fault_parse(&faults, plans[i]));
        fill(w, 1, 0);
        FAILS(ckpt_save(w->dir, &w->s, &w->at, 1, &faults), fails_with(plans[i]), w->dir);
        holds(w, "");
        OK(ckpt_resume(w->dir, &w->s, &w->at, &found, NULL, NULL));
        assert_false(found);
    }
}

static void test_best_fails(void **state) {
    world *w = *state;
    char best[IO_PATH], target[64] = "";
    fault_list faults;
    save_step(w, 1, 5);
    save_step(w, 2, 5);
    OK(ckpt_mark_best(w->dir, NULL, 1, NULL));
    OK(fault_parse(&faults, "rename@1"));
    FAILS(ckpt_mark_best(w->dir, NULL, 2, &faults), ERR_IO, "best");
    snprintf(best, sizeof best, "%s/best", w->dir);
    assert_int_equal(readlink(best, target, sizeof target - 1), 18);
    assert_string_equal(target, "ckpt/step-00000001");
    snprintf(best, sizeof best, "%s/.best", w->dir);
    assert_int_not_equal(access(best, F_OK), 0);
}

// --- crashes ---------------------------------------------------------------------------------------------------------

static int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static pid_t save_in_child(world *w) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(ckpt_save(w->dir, &w->s, &w->at, 1, NULL) == ERR_OK ? 0 : 1);
    return pid;
}

// Of what a crash leaves under a final name everything is whole, not only the newest.
static void all_whole(const world *w) {
    char text[1024], path[IO_PATH], hash[17], state_hash[17], *rest = text;
    listing(w, text);
    for (char *name; (name = strtok_r(rest, " ", &rest));) {
        assert_int_not_equal(name[0], '.');
        snprintf(path, sizeof path, "%s/ckpt/%s", w->dir, name);
        OK(ckpt_hash_dir(path, hash, state_hash));
    }
}

// A child saves and is killed; whatever the moment, the older or the newer state is there whole. Every third save
// replaces a step by another state of the same number, the others prune the one before.
static void test_kills(void **state) {
    enum { ROUNDS = 50 };
    world *w = *state, *before = make_world("", CHUNKY_ROWS), *after = make_world("", CHUNKY_ROWS);
    int older = 0, newer = 0;
    int64_t step = 1, took = now_us();
    uint32_t salt = 0, dice[4];
    save_step(w, step, 1);
    took = now_us() - took;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t next = round % 3 ? step + 1 : step;
        uint32_t next_salt = salt + 1;
        fill(before, step, salt), fill(after, next, next_salt), fill(w, next, next_salt);
        int64_t deadline = now_us();
        pid_t pid = save_in_child(w);
        philox4x32(dice, 20261120, (uint32_t)round, 0, 0, 0);
        deadline += (int64_t)((double)took * 1.4 * dice[0] / 4294967296.0);
        while (round > 0 && now_us() < deadline) usleep(20);
        if (round < ROUNDS - 1) kill(pid, SIGKILL);  // the first at once, the last one never
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status)) assert_int_equal(WEXITSTATUS(status), 0);
        bool found;
        complaints c = {0};
        OK(ckpt_clean(w->dir, NULL));
        scramble(w);
        OK(ckpt_resume(w->dir, &w->s, &w->at, &found, complain, &c));
        assert_true(found);
        assert_int_equal(c.count, 0);
        if (WIFEXITED(status)) assert_true(equal(w, after));
        if (equal(w, after)) newer++, step = next, salt = next_salt;
        else if (equal(w, before)) older++;
        else fail_msg("round %d: step %" PRId64 " is neither the older nor the newer state", round, w->at.step);
        all_whole(w);
    }
    assert_true(older > 0 && newer > 0);
    drop_world(before), drop_world(after);
}

// A tmpfs of 256 KB in a mount namespace of our own, full to within k pages; and a state that is larger than it.
static void test_full_disk(void **state) {
    two t = {*state, make_world("", 5)};
    if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", t.w->dir, "tmpfs", 0, "size=256k") != 0) {
        drop_world(t.first);
        skip();
    }
    world *large = make_world(t.w->dir, 100000);
    complaints c;
    char path[IO_PATH];
    static char page[4096] = "full";
    int failed = 0;
    save_step(t.w, 1, 5);
    fill(t.first, 1, 0);
    fill(large, 2, 0);
    FAILS(ckpt_save(large->dir, &large->s, &large->at, 5, NULL), ERR_IO, strerror(ENOSPC), "model.safetensors");
    holds(t.w, "step-00000001 ");
    resumes_as(t.w, t.first, &c);
    for (int free_pages = 0; free_pages < 12; free_pages++) {
        snprintf(path, sizeof path, "%s/filler", t.w->dir);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        while (write(fd, page, sizeof page) == sizeof page) {}
        off_t size = lseek(fd, 0, SEEK_CUR);
        assert_int_equal(ftruncate(fd, size - free_pages * (off_t)sizeof page), 0);
        close(fd);
        fill(t.w, 2, 0);
        err_t rc = ckpt_save(t.w->dir, &t.w->s, &t.w->at, 5, NULL);
        if (rc == ERR_OK) break;
        assert_int_equal(rc, ERR_IO);
        assert_non_null(strstr(err_last()->text, strerror(ENOSPC)));
        holds(t.w, "step-00000001 ");
        resumes_as(t.w, t.first, &c);
        assert_int_equal(c.count, 0);
        failed++;
    }
    assert_true(failed >= 3 && failed < 12);  // each of the three files once the one that does not fit
    OK(resume(t.w, &c));
    assert_int_equal(t.w->at.step, 2);
    drop_world(large), drop_world(t.first);
    assert_int_equal(umount(t.w->dir), 0);
}

// --- several ranks ---------------------------------------------------------------------------------------------------

// Like fail_each: rank `victim` has the fault, all have the error, and all still have step 1.
static void body_faults(rank_of *r) {
    const job *j = r->j;
    world here;
    char listed[1024];
    strcpy(here.dir, r->dir);
    fill_dealt(&r->d, 1, 0);
    DOES(ckpt_save(r->dir, &r->d.s, &r->d.at, 5, NULL));
    for (int pass = 1;; pass += j->keep) {
        fault_list faults;
        char plan[32];
        bool found;
        snprintf(plan, sizeof plan, j->text, pass);
        DOES(fault_parse(&faults, plan));
        fill_dealt(&r->d, j->step, 9);
        err_t rc = ckpt_save(r->dir, &r->d.s, &r->d.at, 5, r->rank == j->victim ? &faults : NULL);
        if (rc == ERR_OK) break;
        r->out->n++;
        MUST(rc == fails_with(plan), "pass %d: %d: %s", pass, rc, err_last()->text);
        char from[16];
        snprintf(from, sizeof from, "rank %d (", j->victim);
        MUST(r->rank == j->victim || strstr(err_last()->text, from), "pass %d: %s", pass, err_last()->text);
        MUST(strstr(err_last()->text, "step-0000000") || strstr(err_last()->text, "/ckpt"), "pass %d: %s", pass,
             err_last()->text);
        if (r->c->place[r->rank].local == 0) {
            listing(&here, listed);
            MUST(strcmp(listed, "step-00000001 ") == 0, "pass %d: %s", pass, listed);
        }
        fill_dealt(&r->d, 999, 0);
        DOES(ckpt_resume(r->dir, &r->d.s, &r->d.at, &found, count_complaint, r->out));
        MUST(found && dealt_is(&r->d, 1, 0), "pass %d: step %" PRId64, pass, r->d.at.step);
    }
    bool found;
    fill_dealt(&r->d, 999, 0);
    DOES(ckpt_resume(r->dir, &r->d.s, &r->d.at, &found, count_complaint, r->out));
    MUST(found && dealt_is(&r->d, j->step, 9), "step %" PRId64, r->d.at.step);
    MUST(r->out->complaints == 0, "%s", r->out->complaint);
}

// How often a rank passes a point follows from what it does: rank 0 of three nodes syncs two files, two that come from
// node c and the directory after each, the manifest and its directory, and, once the step has its name, the directory
// of checkpoints: 9. One more where a step is set aside before.
static void test_faults_of_ranks(void **state) {
    const nodes *n = *state;
    static const struct {
        int ranks[3], nodes, victim;
        int64_t step;
        const char *plan;
        int every, times;
    } rows[] = {
        {{3}, 1, 1, 2, "write@%d", 3, 6},
        {{3}, 1, 1, 1, "sync@%d", 1, 2},
        {{3}, 1, 0, 1, "rename@%d", 1, 3},
        {{2, 1, 1}, 3, 0, 1, "write@%d", 5, 3},
        {{2, 1, 1}, 3, 1, 2, "write@%dx1000000", 5, 3},
        {{2, 1, 1}, 3, 3, 1, "write@%d", 5, 3},
        {{2, 1, 1}, 3, 0, 2, "sync@%d", 1, 9},
        {{2, 1, 1}, 3, 1, 1, "sync@%d", 1, 2},
        {{2, 1, 1}, 3, 3, 1, "sync@%dx1000000", 1, 10},
        {{2, 1, 1}, 3, 0, 1, "rename@%dx1000000", 1, 5},
        {{2, 1, 1}, 3, 2, 1, "rename@%d", 1, 7},
        {{2, 1, 1}, 3, 3, 2, "rename@%d", 1, 4},
        {{3}, 1, 1, 2, "flip@%d", 3, 6},
        {{2, 1, 1}, 3, 1, 1, "flip@%d", 1, 11},
        {{2, 1, 1}, 3, 0, 2, "flip@%d", 1, 12},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        job j = {.where = n,
                 .nodes = rows[i].nodes,
                 .on = {0, 1, 2},
                 .deal = 13,
                 .victim = rows[i].victim,
                 .step = rows[i].step,
                 .text = rows[i].plan,
                 .keep = rows[i].every};
        memcpy(j.ranks, rows[i].ranks, sizeof rows[i].ranks);
        wipe(n);
        all_ranks_do(&j, body_faults);
        for (int r = 0; r < j.mesh.world; r++)
            if (j.out[r].n != j.out[0].n || j.out[r].n != rows[i].times)
                fail_msg("row %zu: rank %d saw %ld failures, expected %d", i, r, j.out[r].n, rows[i].times);
        end_job(&j);
    }
}

static void body_save_until_killed(rank_of *r) {
    fill_dealt(&r->d, r->j->step, r->j->salt);
    __atomic_store_n(&r->out->n, 1, __ATOMIC_SEQ_CST);
    r->out->rc = ckpt_save(r->dir, &r->d.s, &r->d.at, r->j->keep, NULL);
}

static void body_resume_until_killed(rank_of *r) {
    bool found;
    fill_dealt(&r->d, 999, 0);
    __atomic_store_n(&r->out->n, 1, __ATOMIC_SEQ_CST);
    if (ckpt_clean(r->dir, &r->d.s) == ERR_OK) r->out->rc = ckpt_resume(r->dir, &r->d.s, &r->d.at, &found, NULL, NULL);
}

// The ranks begin, and after this time one of them is killed, or all in some order. Returns whether all ended well
// before that.
static bool kill_during(job *j, void (*body)(rank_of *r), int64_t us, int first, int count) {
    j->body = body;
    start(j);
    for (int r = 0; r < j->mesh.world; r++)
        while (!__atomic_load_n(&j->out[r].n, __ATOMIC_SEQ_CST)) usleep(100);
    for (int64_t end = now_us() + us; now_us() < end;) usleep(20);
    for (int i = 0; i < count; i++) kill(j->pid[(first + i) % j->mesh.world], SIGKILL);
    bool well = reap(j, true);
    for (int r = 0; r < j->mesh.world; r++) well = well && j->out[r].rc == ERR_OK;
    return well;
}

// Every third save replaces a step, the others prune the one before. Every other time the rank that resumes is killed
// as well. Where only one is killed the others lose it, and leave things as they are.
static void test_killed_ranks(void **state) {
    enum { ROUNDS = 20 };
    const nodes *n = *state;
    job j = {.where = n, .nodes = 3, .ranks = {2, 1, 1}, .on = {0, 1, 2}, .deal = 14, .keep = 1};
    int64_t step = 1, took = now_us();
    int older = 0, newer = 0;
    uint32_t salt = 0, dice[4];
    wipe(n);
    for (int i = 0; i < 4; i++) saves(&j, step, salt);
    took = (now_us() - took) / 4;
    for (int round = 0; round < ROUNDS; round++) {
        j.step = round % 3 ? step + 1 : step;
        j.salt = salt + 1;
        philox4x32(dice, 20261121, (uint32_t)round, 0, 0, 0);
        bool done = kill_during(&j, body_save_until_killed, (int64_t)((double)took * 1.5 * dice[0] / 4294967296.0),
                                (int)(dice[1] % 4), round % 4 == 3 ? 1 : 4);
        int64_t next = j.step;
        if (round % 2)
            kill_during(&j, body_resume_until_killed, (int64_t)((double)took * 0.7 * dice[2] / 4294967296.0),
                        (int)(dice[3] % 4), round % 4 == 1 ? 1 : 4);
        all_ranks_do(&j, body_resume);
        const outcome *o = same_on_all(&j);
        if (o->rc != ERR_OK || !o->found || o->complaints)
            fail_msg("round %d: %d %s %s", round, o->rc, o->text, o->complaint);
        if (o->step == next && o->n == salt + 1) newer++, step = next, salt++;
        else if (o->step == step && o->n == salt && !done) older++;
        else
            fail_msg("round %d: step %" PRId64 " salt %ld is neither the older nor the newer state", round, o->step,
                     o->n);
        for (int k = 0; k < 3; k++) node_has(n, k, step, o);
    }
    assert_true(older > 0 && newer > 0);
    end_job(&j);
}

static void body_save_and_die(rank_of *r) {
    pipe_comm *c = (pipe_comm *)r->c;
    fill_dealt(&r->d, r->j->step, r->j->salt);
    if (r->rank == r->j->victim) c->die_in = r->j->die_in, c->reach = r->j->reach;
    r->out->rc = ckpt_save(r->dir, &r->d.s, &r->d.at, r->j->keep, NULL);
    r->out->n = 1;
}

// A rank is lost in each message of a save, when some have heard of it and others have not. Those that have may rename
// and remove what is older; if those that have not took back what they did, five nodes are enough to lose everything.
static void test_lost_in_every_message(void **state) {
    const nodes *n = *state;
    job j = {
        .where = n, .nodes = 5, .ranks = {1, 1, 1, 1, 1}, .on = {0, 1, 2, 3, 4}, .keep = 1, .victim = 4, .reach = 2};
    int64_t step = 1;
    uint32_t salt = 0;
    int died = 0, older = 0, newer = 0;
    wipe(n);
    saves(&j, step, salt);
    for (bool survived = false; !survived; died++) {
        j.step = died % 2 ? step + 1 : step;
        j.salt = salt + 1;
        j.die_in = died + 1;
        all_ranks_do(&j, body_save_and_die);
        survived = j.out[j.victim].n == 1;
        int64_t next = j.step;
        all_ranks_do(&j, body_resume);
        const outcome *o = same_on_all(&j);
        if (o->rc != ERR_OK || !o->found || o->complaints)
            fail_msg("message %d: %d %s %s", died + 1, o->rc, o->text, o->complaint);
        if (o->step == next && o->n == salt + 1) newer++, step = next, salt++;
        else if (o->step == step && o->n == salt && !survived) older++;
        else
            fail_msg("message %d: step %" PRId64 " salt %ld is neither the older nor the newer", died + 1, o->step,
                     o->n);
    }
    assert_true(died > 15 && older > 10 && newer > 2);
    end_job(&j);
}

static void copy_tree(const char *from, const char *to) {
    char command[2 * IO_PATH];
    snprintf(command, sizeof command, "cp -a '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

// All that a crash between renames can leave of a step that replaces itself. `on` node k: the new one under its name
// and the old one set aside; the others in one of four ways.
enum { NOT_YET, TAKEN_BACK, BETWEEN, NO_MANIFEST, WAYS };
enum { NAMES = 3 };

static void lay_out(const nodes *n, int mask, int way) {
    char from[2][IO_PATH], to[NAMES][IO_PATH];
    for (int k = 0; k < 3; k++) {
        for (int v = 0; v < 2; v++) snprintf(from[v], IO_PATH, "%s/kept-%d-%d", n->base, v, k);
        for (int i = 0; i < NAMES; i++) {
            snprintf(to[i], IO_PATH, "%s/ckpt/%sstep-00000002", n->dir[k], i == 1 ? ".tmp-" : i == 2 ? ".old-" : "");
            OK(io_remove_tree(to[i]));
        }
        bool on = mask >> k & 1;
        copy_tree(from[0], to[on || way == BETWEEN ? 2 : 0]);
        if (on || way != TAKEN_BACK) copy_tree(from[1], to[on ? 0 : 1]);
        if (on || way != NO_MANIFEST) continue;
        strcat(to[1], "/manifest.json");
        assert_int_equal(unlink(to[1]), 0);
    }
}

static void test_between_renames(void **state) {
    const nodes *n = *state;
    char from[IO_PATH], to[IO_PATH];
    job j = {.where = n, .nodes = 3, .ranks = {1, 1, 1}, .on = {0, 1, 2}, .deal = 15, .keep = 5};
    wipe(n);
    saves(&j, 1, 0);
    for (int v = 0; v < 2; v++) {
        saves(&j, 2, 1 + (uint32_t)v);
        for (int k = 0; k < 3; k++) {
            node_path(from, n, k, 2, "");
            snprintf(to, sizeof to, "%s/kept-%d-%d", n->base, v, k);
            copy_tree(from, to);
        }
    }
    for (int way = 0; way < WAYS; way++)
        for (int mask = 0; mask < 8; mask++) {
            bool held = true;  // by those who renamed: each has its own files and those of the node before
            for (int k = 0; k < 3; k++) held = held && (mask >> k & 1 || mask >> (k + 1) % 3 & 1);
            bool new = way == BETWEEN || (way == NOT_YET && mask) || held;
            lay_out(n, mask, way);
            const outcome *o = resumes_at(&j, 2, new ? 2 : 1, 0);
            for (int k = 0; k < 3; k++) {
                world w;
                strcpy(w.dir, n->dir[k]);
                node_has(n, k, 2, o);
                holds(&w, "step-00000001 step-00000002 ");
            }
        }
    end_job(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_fault_points),     TEST(test_first_save_fails),
        TEST(test_best_fails),       CHUNKY(test_kills),
        TEST(test_full_disk),        NODES(test_faults_of_ranks),
        NODES(test_killed_ranks),    NODES(test_lost_in_every_message),
        NODES(test_between_renames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
