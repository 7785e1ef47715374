// test/test_world.c: one machine, several worlds. Processes that live on leave a world and enter another one with
// another number of ranks; they train on from the checkpoint to the bits of a run that was never stopped, and nothing
// is left behind: no descriptor, no thread, no memory.
#include "test/support/ranks.h"

#include <dirent.h>
#include <time.h>

#ifndef __SANITIZE_ADDRESS__
#include "test/support/heap.h"
#include "trainer/session/machine.h"
#include "trainer/session/restore.h"
#else
static long heap_blocks;  // a sanitizer finds leaks itself
#endif

enum { WORLDS = 5, MOST = 4, STEPS = 2, WARM = 12 };  // STEPS: in each world

static const char small_model[] =
    "[run]\nsteps = 10\n[data]\nformat = raw16\n[model]\nlayers = 2\nheads = 2\nembed = 24\ncontext = 16\nvocab = 130\ndropout = 0.1\n"
    "[batch]\nglobal = 8\nmicro = 2\nlanes = 4\n[optimizer]\nlr = 3e-3\n[schedule]\nwarmup = 4\ndecay_steps = 10\n[checkpoint]\nkeep = 1\n";

typedef struct course {
    int ranks[WORLDS];
    char hash[WORLDS][17], state_hash[WORLDS][17];  // as rank 0 found them after each world
} course;

static int entries(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

// What a process has beside its machine, while it is in no world.
typedef struct holdings {
    int descriptors, threads;
} holdings;

// A thread that was joined may be counted for a moment longer: the kernel wakes who waits for it before it takes it
// from the list. So threads are counted until their number stands still.
static holdings look(void) {
    enum { STILL = 5, MOST_LOOKS = 500 };
    holdings now = {entries("/proc/self/fd"), entries("/proc/self/task")};
    for (int looks = 0, still = 0; still < STILL && looks < MOST_LOOKS; looks++) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        int threads = entries("/proc/self/task");
        still = threads == now.threads ? still + 1 : 0;
        now.threads = threads;
    }
    return now;
}

static err_t train_here(session *x, course *k, int world) {
    bool found;
    monitor m = {0};
    step_result s;
    TRY(session_resume(x, &found, &m));
    if (found != (world > 0))
        return err_set(ERR_INTERNAL, "world %d: a checkpoint was %s", world, found ? "found" : "not found");
    if (!found) TRY(session_init(x));
    TRY(session_feed(x, x->progress.step + STEPS));
    for (int i = 0; i < STEPS; i++) TRY(session_step(x, &s));
    TRY(session_settle(x));
    TRY(session_fetch(x));
    TRY(ckpt_save(x->dir, &x->state.ckpt, &x->progress, 1, NULL));
    char hash[17], state_hash[17];
    TRY(ckpt_hash(&x->state.ckpt, hash));
    TRY(ckpt_state_hash(&x->state.ckpt, &x->progress, state_hash));
    if (x->ranks->rank == 0) strcpy(k->hash[world], hash), strcpy(k->state_hash[world], state_hash);
    return ERR_OK;
}

// One process through all worlds that it belongs to. Those that sit one out wait for the next by trying to enter it.
static err_t live(const config *c, course *k, launch at[WORLDS], int rank) {
    session x;
    holdings first = {0};
    TRY(session_machine(&x, c, SESSION_TRAIN, 0));
    for (int w = 0; w < WORLDS; w++) {
        if (rank >= k->ranks[w]) {
            launch_close(&at[w]);
            continue;
        }
        launch_become(&at[w], rank);
        long blocks = heap_blocks;
        TRY(session_enter(&x, &at[w]));
        TRY(train_here(&x, k, w));
        session_leave(&x);
        blocks = heap_blocks - blocks;
        launch_close(&at[w]);
        holdings now = look();
        if (!first.descriptors) first = now;
        // Each launch that is not used yet holds descriptors; those of a world that was left are gone.
        if (now.threads != first.threads)
            return err_set(ERR_INTERNAL, "world %d: %d threads, %d after the first", w, now.threads, first.threads);
        if (now.descriptors > first.descriptors)
            return err_set(ERR_INTERNAL, "world %d: %d descriptors, %d after the first", w, now.descriptors,
                           first.descriptors);
        // The first world leaves what libraries keep.
        if (w > 0 && blocks > 0) return err_set(ERR_INTERNAL, "world %d left %ld blocks of heap", w, blocks);
    }
    session_close(&x);
    return ERR_OK;
}

static void run_worlds(const config *c, course *k) {
    char(*text)[ERR_TEXT] = share_memory(MOST * sizeof *text);
    int status, bad = 0;
    launch at[WORLDS];
    grid shape[WORLDS];
    for (int w = 0; w < WORLDS; w++) {
        OK(launch_open(&at[w], 1, &k->ranks[w], NULL, 0));
        shape[w] = config_grid(c, k->ranks[w]);
        channel_plan plan = grid_channels(&shape[w]);
        if (plan.channels) OK(launch_channels(&at[w], &plan));
    }
    fflush(NULL);
    for (int rank = 0; rank < MOST; rank++) {
        if (fork() != 0) continue;
        alarm(RANK_LIMIT);
        err_t rc = live(c, k, at, rank);
        if (rc != ERR_OK) snprintf(text[rank], sizeof *text, "%s", err_last()->text);
        _exit(rc);
    }
    for (int w = 0; w < WORLDS; w++) launch_close(&at[w]);
    for (int i = 0; i < MOST; i++) bad |= wait(&status) > 0 ? status : 1;
    for (int i = 0; i < MOST; i++)
        if (text[i][0]) fail_msg("process %d: %s", i, text[i]);
    assert_int_equal(bad, 0);
    munmap(text, MOST * sizeof *text);
}

static void expect_hashes_of_one_rank(const int ranks[WORLDS], const char *more) {
    char *dir = rank_dir();
    config c;
    session x;
    step_result s;
    course *k = share_memory(sizeof *k);
    memcpy(k->ranks, ranks, sizeof k->ranks);
    rank_config(&c, dir, small_model, more);
    run_worlds(&c, k);

    OK(session_open(&x, &c, SESSION_TRAIN, NULL));
    OK(session_init(&x));
    OK(session_feed(&x, WORLDS * STEPS));
    for (int w = 0; w < WORLDS; w++) {
        char hash[17], state_hash[17];
        for (int i = 0; i < STEPS; i++) OK(session_step(&x, &s));
        OK(session_fetch(&x));
        OK(ckpt_hash(&x.state.ckpt, hash));
        OK(ckpt_state_hash(&x.state.ckpt, &x.progress, state_hash));
        assert_string_equal(k->hash[w], hash);
        assert_string_equal(k->state_hash[w], state_hash);
    }
    session_close(&x);
    munmap(k, sizeof *k);
    drop_dir(dir);
}

static void other_numbers_of_ranks_train_on_to_the_same_bits(void **state) {
    (void)state;
    static const int ranks[WORLDS] = {4, 2, 1, 3, 4};
    expect_hashes_of_one_rank(ranks, "");
    expect_hashes_of_one_rank(ranks, "[parallel]\nzero = 3\n[precision]\ncompute = bf16\n");
    expect_hashes_of_one_rank(ranks, "[parallel]\nzero = 2\noffload = nvme\nrecompute = block\n");
}

static void so_do_pipelines(void **state) {
    (void)state;
    static const int ranks[WORLDS] = {4, 2, 1, 2, 4};
    expect_hashes_of_one_rank(ranks, "[parallel]\npipeline = 2\nzero = 1\n");
    expect_hashes_of_one_rank(ranks, "[parallel]\npipeline = 2\nschedule = zb-v\nchunks = 2\nzero = 3\n");
    expect_hashes_of_one_rank(ranks, "[parallel]\npipeline = 2\nschedule = interleaved\nchunks = 2\n");
}

// A rank alone enters and leaves many times: what it holds does not grow. Blocks of memory are counted, not their
// bytes: how many of those are in use depends on the caches of the allocator, and so on when threads run.
static void leaves_nothing(const char *more) {
    char *dir = rank_dir();
    config c;
    session x;
    step_result s;
    long after = 0;
    holdings first = {0};
    rank_config(&c, dir, small_model, more);
    OK(session_machine(&x, &c, SESSION_TRAIN, 0));
    for (int i = 0; i < 3 * WARM; i++) {
        OK(session_enter(&x, NULL));
        OK(session_init(&x));
        OK(session_feed(&x, 1));
        OK(session_step(&x, &s));
        session_leave(&x);
        session_leave(&x);  // again: there is nothing to leave
        holdings now = look();
        long heap = heap_blocks;
        if (i == WARM) first = now, after = heap;
        if (i <= WARM) continue;
        assert_int_equal(now.descriptors, first.descriptors);
        assert_int_equal(now.threads, first.threads);
        if (heap > after) fail_msg("round %d: %ld blocks of heap, %ld after round %d", i, heap, after, WARM);
    }
    session_close(&x);
    drop_dir(dir);
}

static void nothing_is_left_behind(void **state) {
    (void)state;
    leaves_nothing("");
    leaves_nothing("[parallel]\noffload = nvme\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_numbers_of_ranks_train_on_to_the_same_bits),
        cmocka_unit_test(so_do_pipelines),
        cmocka_unit_test(nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
