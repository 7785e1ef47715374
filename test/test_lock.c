// test/test_lock.c: the lock of a run's directory: what is taken and made, what is kept when somebody removes or
// replaces the directory or the file, that nothing of it is left over, and who is refused, by name.
#include "base/io.h"
#include "test/support/run.h"
#include "trainer/lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>

typedef struct place {
    char *top, dir[IO_PATH], file[IO_PATH], aside[IO_PATH];
    int next;  // the descriptor that is given next, if none is kept
} place;

static int next_descriptor(void) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
}

static int enter(void **state) {
    place *p = calloc(1, sizeof *p);
    p->top = make_dir();
    OK(io_path(p->dir, "%s/runs/a", p->top));
    OK(io_path(p->file, "%s/runs/a/lock", p->top));
    OK(io_path(p->aside, "%s/aside", p->top));
    p->next = next_descriptor();
    *state = p;
    return 0;
}

static int leave(void **state) {
    place *p = *state;
    int same = next_descriptor() == p->next;
    if (!same) print_error("a descriptor is kept\n");
    drop_dir(p->top);
    free(p);
    return same ? 0 : -1;
}

// Does the path name what is there, and does somebody hold it?
static bool is_held(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    bool held = flock(fd, LOCK_EX | LOCK_NB) != 0;
    close(fd);
    return held;
}

static void holds_both(const place *p, const run_lock *l) {
    assert_true(l->dir >= 0 && l->file >= 0 && l->dir != l->file);
    assert_true(is_held(p->dir) && is_held(p->file));
    assert_true((fcntl(l->dir, F_GETFD) & FD_CLOEXEC) && (fcntl(l->file, F_GETFD) & FD_CLOEXEC));
}

static void is_free(const place *p) { assert_false(is_held(p->dir) || is_held(p->file)); }

static void refused(err_t rc, const char *path) {
    assert_int_equal(rc, ERR_UNAVAILABLE);
    char want[IO_PATH + 64];
    snprintf(want, sizeof want, "%s: another process trains this run", path);
    if (strncmp(err_last()->text, want, strlen(want)) != 0) fail_msg("%s; expected %s", err_last()->text, want);
}

// First what is there, then the rest.
static void what_is_taken(void **state) {
    const place *p = *state;
    run_lock l = {-1, -1};
    OK(run_lock_take(&l, p->dir, false));
    assert_true(l.dir == -1 && l.file == -1 && access(p->dir, F_OK) != 0);
    OK(io_mkdirs(p->dir));
    OK(run_lock_take(&l, p->dir, false));
    assert_true(l.dir >= 0 && l.file == -1 && is_held(p->dir) && access(p->file, F_OK) != 0);
    int dir = l.dir;
    OK(run_lock_take(&l, p->dir, true));
    assert_int_equal(l.dir, dir);
    holds_both(p, &l);
    run_lock was = l;
    OK(run_lock_take(&l, p->dir, true));  // again
    assert_true(l.dir == was.dir && l.file == was.file);
    run_lock_release(&l);
    assert_true(l.dir == -1 && l.file == -1);
    is_free(p);
    run_lock_release(&l);
    OK(run_lock_take(&l, p->dir, false));  // both are there now
    holds_both(p, &l);
    run_lock_release(&l);
    OK(run_lock_take(&l, p->file, false));  // no directory: there is nothing to take
    assert_true(l.dir == -1 && l.file == -1);
    assert_true(run_lock_take(&l, p->file, true) != ERR_OK);
    assert_true(l.dir == -1 && l.file == -1);
    assert_int_equal(unlink(p->file) | mkdir(p->file, 0755), 0);
    assert_int_equal(run_lock_take(&l, p->dir, true), ERR_DATA);
    assert_int_equal(l.file, -1);
    run_lock_release(&l);
}

static void what_is_removed_is_made_again(void **state) {
    const place *p = *state;
    run_lock l = {-1, -1}, was;
    OK(run_lock_take(&l, p->dir, true));
    for (int k = 0; k < 2; k++) {  // and so again
        was = l;
        OK(run_lock_keep(&l, p->dir));
        assert_true(l.dir == was.dir && l.file == was.file);
        assert_int_equal(unlink(p->file), 0);
        OK(run_lock_keep(&l, p->dir));
        assert_int_equal(l.dir, was.dir);
        holds_both(p, &l);
        OK(io_write_file(p->file, "another", 7, NULL));  // by a rename
        OK(run_lock_keep(&l, p->dir));
        assert_int_equal(l.dir, was.dir);
        holds_both(p, &l);
        assert_int_equal(rename(p->dir, p->aside), 0);
        OK(run_lock_keep(&l, p->dir));
        holds_both(p, &l);
        assert_false(is_held(p->aside));  // what was held is not held for ever
        OK(io_remove_tree(p->aside));
        assert_int_equal(rename(p->dir, p->aside) | mkdir(p->dir, 0755), 0);
        OK(run_lock_keep(&l, p->dir));
        holds_both(p, &l);
        assert_false(is_held(p->aside));
        OK(io_remove_tree(p->aside));
    }
    run_lock_release(&l);
    is_free(p);
}

// Another one has come meanwhile: then what is held stays held, and nothing else is.
static void what_another_has_is_not_taken(void **state) {
    const place *p = *state;
    run_lock l = {-1, -1}, other = {-1, -1}, was;
    OK(run_lock_take(&l, p->dir, true));
    refused(run_lock_take(&other, p->dir, true), p->dir);
    assert_true(other.dir == -1 && other.file == -1);
    was = l;
    assert_int_equal(unlink(p->file), 0);
    OK(io_write_file(p->file, "x", 1, NULL));
    int file = open(p->file, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(file, LOCK_EX | LOCK_NB), 0);  // a build that knows the file only
    refused(run_lock_keep(&l, p->dir), p->file);
    assert_true(l.dir == was.dir && l.file == was.file && is_held(p->dir));
    assert_int_equal(rename(p->dir, p->aside) | mkdir(p->dir, 0755), 0);
    int dir = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    OK(io_write_file(p->file, "x", 1, NULL));
    close(file);
    file = open(p->file, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(file, LOCK_EX | LOCK_NB), 0);
    refused(run_lock_keep(&l, p->dir), p->file);  // the directory was free
    assert_true(l.dir == was.dir && l.file == was.file && is_held(p->aside) && !is_held(p->dir));
    assert_int_equal(flock(dir, LOCK_EX | LOCK_NB), 0);
    refused(run_lock_keep(&l, p->dir), p->dir);
    close(file), close(dir);
    OK(run_lock_keep(&l, p->dir));
    holds_both(p, &l);
    run_lock_release(&l);
}

static void *let_go(void *lock) {
    usleep(250000);
    run_lock_release(lock);
    return NULL;
}

// One that was just killed may need a moment.
static void who_ends_is_waited_for(void **state) {
    const place *p = *state;
    pthread_t thread;
    run_lock l = {-1, -1}, other = {-1, -1};
    OK(run_lock_take(&other, p->dir, true));
    pthread_create(&thread, NULL, let_go, &other);
    OK(run_lock_take(&l, p->dir, false));
    pthread_join(thread, NULL);
    holds_both(p, &l);
    run_lock_release(&l);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)

int main(void) {
    const struct CMUnitTest tests[] = {TEST(what_is_taken), TEST(what_is_removed_is_made_again),
                                       TEST(what_another_has_is_not_taken), TEST(who_ends_is_waited_for)};
    return cmocka_run_group_tests_name("lock", tests, NULL, NULL);
}
