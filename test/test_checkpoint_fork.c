// test/test_checkpoint_fork.c: the copy of a checkpoint for another run: every byte of files of several pieces,
// whatever happens to the original meanwhile; what is damaged or missing is named; and the hash of counters that are
// others.
#include "test/support/checkpoint.h"
#include "trainer/checkpoint/digest.h"
#include "trainer/checkpoint/read.h"
#include "trainer/checkpoint/fork.h"

#include <math.h>
#include <sys/stat.h>

static bool one_name_each;  // link() fails as it does on another file system

int link(const char *from, const char *to) {
    if (!one_name_each) return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
    errno = EXDEV;
    return -1;
}

enum { LARGE_ROWS = 100000 };  // a model of more than one piece, and an optimizer's file of more than two

static int enter_large(void **state) {
    one_name_each = false;
    return enter_with(state, LARGE_ROWS);
}

typedef struct asked {
    const char *from;
    int calls, at;  // at the call of this number:
    bool stop;      // stop, or else remove the original
} asked;

static bool ask(void *ctx) {
    asked *a = ctx;
    if (++a->calls != a->at) return false;
    if (a->stop) return true;
    OK(io_remove_tree(a->from));
    return false;
}

// The copy is checkpoint 3 of DIR/b.
static err_t copy(const world *w, asked *a, const run_progress *as_at) {
    char from[IO_PATH], to[IO_PATH];
    manifest m = {0};
    path_of(from, w, 3, "");
    OK(manifest_read(&m, from));
    manifest as = m;
    if (as_at) as.at = *as_at;
    snprintf(to, sizeof to, "%s/b/ckpt", w->dir);
    OK(io_remove_tree(to));
    OK(io_mkdirs(to));
    snprintf(to, sizeof to, "%s/b/ckpt/step-00000003", w->dir);
    if (a) a->from = from, a->calls = 0;
    err_t rc = ckpt_fork(from, &m, to, &as, a ? ask : NULL, a);
    manifest_close(&m);
    return rc;
}

// What was copied is what was saved, and there is nothing else.
static void is_whole(world *w, const run_progress *as_at) {
    char dir[256];
    complaints c;
    world *want = make_world(w->dir, LARGE_ROWS);
    fill(want, 3, 0);
    if (as_at) want->at = *as_at;
    strcpy(dir, w->dir);
    snprintf(w->dir, sizeof w->dir, "%.200s/b", dir);
    resumes_as(w, want, &c);
    assert_int_equal(c.count, 0);
    struct dirent **names;
    char path[IO_PATH];
    path_of(path, w, 3, "");
    int n = scandir(path, &names, NULL, alphasort);
    assert_int_equal(n, 2 + 3);
    assert_true(names[2]->d_name[0] == 'm' && names[4]->d_name[0] == 'o');
    for (int i = 0; i < n; i++) free(names[i]);
    free(names);
    strcpy(w->dir, dir);
    drop_world(want);
}

static void every_byte_is_copied(void **state) {
    world *w = *state;
    save_step(w, 3, 0);
    asked a = {.at = -1};
    OK(copy(w, NULL, NULL));
    is_whole(w, NULL);
    OK(copy(w, &a, NULL));
    is_whole(w, NULL);
    assert_int_equal(a.calls, 2 + 3);  // pieces of both files
}

// Whichever piece is next.
static void it_can_be_stopped(void **state) {
    world *w = *state;
    save_step(w, 3, 0);
    for (int k = 1; k <= 5; k++) {
        char path[IO_PATH];
        FAILS(copy(w, &(asked){.at = k, .stop = true}, NULL), ERR_INTERRUPTED, "stopped on request; nothing was made");
        snprintf(path, sizeof path, "%s/b/ckpt/step-00000003/manifest.json", w->dir);
        assert_int_equal(access(path, F_OK), -1);
    }
}

// The run that it belongs to has gone on, and needs it no more: what has begun is finished.
static void the_original_may_go(void **state) {
    world *w = *state;
    for (int k = 1; k <= 5; k++) {
        save_step(w, 3, 0);
        OK(copy(w, &(asked){.at = k}, NULL));
        is_whole(w, NULL);
    }
}

// Where files can't have a second name they are read where they are. Then the original has to stay until the last of
// them is open.
static void files_of_one_name(void **state) {
    world *w = *state;
    char path[IO_PATH];
    save_step(w, 3, 0);
    one_name_each = true;
    OK(copy(w, NULL, NULL));
    is_whole(w, NULL);
    path_of(path, w, 3, "");
    for (int k = 1; k <= 5; k++) {
        OK(io_remove_tree(path));
        one_name_each = false;
        save_step(w, 3, 0);
        one_name_each = true;
        err_t rc = copy(w, &(asked){.at = k}, NULL);
        if (k <= 2) FAILS(rc, ERR_DATA, path, ": the run has removed it while it was copied", "Fork a newer one");
        OK(k <= 2 ? ERR_OK : rc);
        if (k > 2) is_whole(w, NULL);
    }
    one_name_each = false;
}

static void what_is_damaged_or_gone(void **state) {
    world *w = *state;
    char path[IO_PATH], byte;
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    for (int k = 0; k < 2; k++) {
        struct stat st;
        save_step(w, 3, 0);
        path_of(path, w, 3, files[k]);
        int fd = open(path, O_RDWR);
        assert_int_equal(fstat(fd, &st), 0);
        const int64_t at[] = {0, (1 << 20) + 5, st.st_size - 1};
        for (int i = 0; i < 3; i++) {
            assert_int_equal(pread(fd, &byte, 1, at[i]), 1);
            byte ^= 1;
            assert_int_equal(pwrite(fd, &byte, 1, at[i]), 1);
            FAILS(copy(w, NULL, NULL), ERR_DATA, path, ": is damaged: ", "Fork another checkpoint of this run");
            byte ^= 1;
            assert_int_equal(pwrite(fd, &byte, 1, at[i]), 1);
        }
        OK(copy(w, NULL, NULL));
        close(fd);
        assert_int_equal(unlink(path), 0);
        FAILS(copy(w, NULL, NULL), ERR_DATA, files[k], "is missing");
        assert_null(strstr(err_last()->text, "from the nodes that have them"));  // one rank wrote it
        path_of(path, w, 3, "");
        OK(io_remove_tree(path));
    }
}

// The hash is that of a state with these counters, whichever of them differs.
static void counters_have_their_hash(void **state) {
    world *w = *state;
    save_step(w, 3, 0);
    char seen[6][17], path[IO_PATH];
    snprintf(path, sizeof path, "%.200s/b/ckpt/step-00000003", w->dir);
    const run_progress usual = w->at;
    for (int k = 0; k < 6; k++) {
        run_progress at = usual;
        if (k == 1) at.updates++;
        if (k == 2) at.skipped++;
        if (k == 3) at.loss_scale = 1024;
        if (k == 4) at.good_steps = 0;
        if (k == 5) at.best_step = 0, at.best_loss = INFINITY, at.log_bytes = 1;  // of these it says nothing
        OK(copy(w, NULL, &at));
        is_whole(w, &at);
        manifest m = {0};
        uint8_t state_of[CKPT_DIGEST];
        OK(manifest_read(&m, path));
        OK(ckpt_digest_dir(path, &m, &m.at, state_of));
        digest_hex(seen[k], state_of, 8);
        assert_string_equal(m.state_hash, seen[k]);
        for (int j = 0; j < k; j++) assert_int_equal(strcmp(seen[j], seen[k]) == 0, k == 5 && j == 0);
        manifest_close(&m);
    }
}

#define LARGE(f) cmocka_unit_test_setup_teardown(f, enter_large, leave)

int main(void) {
    const struct CMUnitTest tests[] = {LARGE(every_byte_is_copied),    LARGE(it_can_be_stopped),
                                       LARGE(the_original_may_go),     LARGE(files_of_one_name),
                                       LARGE(what_is_damaged_or_gone), LARGE(counters_have_their_hash)};
    return cmocka_run_group_tests_name("checkpoint fork", tests, NULL, NULL);
}
