// test/test_spill.c: what base/spill.h keeps in a file has the bits that it would have in memory, whatever the windows
// and threads; and nothing that a disk does to it goes unseen.
#include "base/spill.h"
#include "gpu/gpu.h"
#include "gpu/ops.h"
#include "test/support/expect.h"
#include "test/support/place.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
static long heap_calls;
#elif defined(__SANITIZE_THREAD__)
static long heap_calls;
#else
#include "test/support/heap.h"
#endif

// A block is a chunk of masters, means and means of squares.
enum { ARRAYS = 3, BLOCK = ARRAYS * CHUNK, BLOCKS = 11 };

static spill_options options_of(place *p, int windows, int64_t window_blocks, int threads) {
    return (spill_options){.dir = p->dir,
                           .name = "state",
                           .block_bytes = BLOCK * sizeof(float),
                           .blocks = BLOCKS,
                           .windows = windows,
                           .window_blocks = window_blocks,
                           .threads = threads};
}

typedef struct opened {
    spill *x;
    void *memory;
} opened;

static opened open_one(const spill_options *o) {
    opened s = {.memory = aligned_alloc(SPILL_ALIGN, spill_memory(o))};
    assert_ok(spill_open(&s.x, o, s.memory));
    return s;
}

static void close_one(opened *s) {
    spill_close(s->x);
    free(s->memory);
}

// --- one update after the other --------------------------------------------------------------------------------------

typedef struct updates {
    device *dev;
    stream *s;
    float *grad;  // of all chunks
    step_state state;
    step_scalar power[2];
    int64_t next;  // block that must come next
} updates;

static tensor chunk_at(float *x) { return (tensor){x, FP32, 1, {CHUNK, 1, 1, 1}}; }

static err_t adamw_blocks(void *ctx, int64_t first, int64_t count, void *data) {
    updates *u = ctx;
    const adamw_rules rules = {0.9f, 0.95f, 1e-8f, 0.1f, 0};
    assert_int_equal(first, u->next);
    u->next = first + count;
    for (int64_t k = 0; k < count; k++) {
        float *at = (float *)data + k * BLOCK;
        tensor master = chunk_at(at), m = chunk_at(at + CHUNK), v = chunk_at(at + 2 * CHUNK),
               grad = chunk_at(u->grad + (first + k) * CHUNK);
        TRY(device_ops(u->dev)->adamw(&(adamw_args){.master = &master,
                                                    .m = &m,
                                                    .v = &v,
                                                    .grad = &grad,
                                                    .state = &u->state,
                                                    .power = u->power,
                                                    .rules = &rules},
                                      u->s));
    }
    return stream_wait(u->s);
}

static void next_step(updates *u, int step) {
    for (int64_t i = 0; i < BLOCKS * CHUNK; i++) u->grad[i] = sinf((float)(i % 9973 + 31 * step)) * 1e-2f;
    u->state = (step_state){.apply = 1, .lr = 1e-3f, .grad_factor = 1};
    for (int k = 0; k < 2; k++) u->power[k].value = pow(k ? 0.95 : 0.9, step + 1);
    u->next = 0;
}

static err_t first_values(void *ctx, int64_t first, int64_t count, void *data) {
    (void)ctx;
    float *x = data;
    memset(data, 0, (size_t)count * BLOCK * sizeof *x);
    for (int64_t k = 0; k < count; k++)
        for (int64_t i = 0; i < CHUNK; i++) x[k * BLOCK + i] = cosf((float)((first + k) * CHUNK + i));
    return ERR_OK;
}

static err_t must_equal(void *ctx, int64_t first, int64_t count, void *data) {
    if (memcmp((const float *)ctx + first * BLOCK, data, (size_t)count * BLOCK * sizeof(float)) == 0) return ERR_OK;
    return err_set(ERR_INTERNAL, "blocks from %d on differ", (int)first);
}

static void windows_change_no_bit(void **state) {
    enum { STEPS = 3 };
    static const int shape[][3] = {{2, 1, 1}, {2, 4, 3}, {3, 1, 4}, {3, 2, 8}, {5, 3, 2}, {4, 16, 4}, {16, 1, 16}};
    updates u = {.grad = malloc(BLOCKS * CHUNK * sizeof(float))};
    float *whole = malloc(BLOCKS * BLOCK * sizeof *whole);
    assert_ok(device_open(&u.dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    assert_ok(stream_open(u.dev, &u.s));
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        const spill_options o = options_of(*state, shape[i][0], shape[i][1], shape[i][2]);
        opened s = open_one(&o);
        assert_ok(first_values(NULL, 0, BLOCKS, whole));
        assert_ok(spill_walk(s.x, SPILL_FILL, 0, BLOCKS, first_values, NULL));
        long calls = 0;
        for (int step = 0; step < STEPS; step++) {
            next_step(&u, step);
            assert_ok(adamw_blocks(&u, 0, BLOCKS, whole));
            u.next = 0;
            long before = heap_calls;
            assert_ok(spill_walk(s.x, SPILL_UPDATE, 0, BLOCKS, adamw_blocks, &u));
            if (step > 0) calls += heap_calls - before;
            assert_int_equal(u.next, BLOCKS);
        }
        assert_int_equal(calls, 0);
        assert_true(whole[0] != 1 && whole[CHUNK] != 0 && whole[2 * CHUNK] != 0);  // there were updates
        assert_ok(spill_walk(s.x, SPILL_READ, 0, BLOCKS, must_equal, whole));
        whole[BLOCKS * BLOCK - 1] += 1;  // the comparison can fail, and a walk that only reads goes on after that
        assert_error(spill_walk(s.x, SPILL_READ, 0, BLOCKS, must_equal, whole), ERR_INTERNAL, "differ");
        assert_ok(spill_walk(s.x, SPILL_READ, 0, BLOCKS - 1, must_equal, whole));
        close_one(&s);
    }
    stream_close(u.s);
    device_close(u.dev);
    free(whole);
    free(u.grad);
}

// --- parts -----------------------------------------------------------------------------------------------------------

static err_t set_to(void *ctx, int64_t first, int64_t count, void *data) {
    (void)first;
    for (int64_t i = 0; i < count * BLOCK; i++) ((float *)data)[i] = *(const float *)ctx;
    return ERR_OK;
}

static void parts_leave_the_rest(void **state) {
    const spill_options o = options_of(*state, 3, 2, 4);
    opened s = open_one(&o);
    float *whole = calloc(BLOCKS * BLOCK, sizeof *whole), seven = 7;
    assert_ok(spill_walk(s.x, SPILL_READ, 0, BLOCKS, must_equal, whole));  // a new file is all zeros
    assert_ok(spill_walk(s.x, SPILL_FILL, 3, 5, set_to, &seven));
    assert_ok(set_to(&seven, 3, 5, whole + 3 * BLOCK));
    assert_ok(spill_walk(s.x, SPILL_READ, 0, BLOCKS, must_equal, whole));
    assert_ok(spill_walk(s.x, SPILL_UPDATE, 4, 0, set_to, NULL));
    assert_error(spill_walk(s.x, SPILL_READ, 1, BLOCKS, must_equal, whole), ERR_INTERNAL, "11 blocks from 1", "has 11");
    free(whole);
    close_one(&s);
}

// --- what disks do ---------------------------------------------------------------------------------------------------

static err_t nothing(void *ctx, int64_t first, int64_t count, void *data) {
    (void)ctx, (void)first, (void)count, (void)data;
    return ERR_OK;
}

static err_t refuse(void *ctx, int64_t first, int64_t count, void *data) {
    (void)count, (void)data;
    return first < *(const int64_t *)ctx ? ERR_OK : err_set(ERR_UNAVAILABLE, "no more");
}

// Each is found in the walk that meets it, and no later one gets through.
static void faults_are_final(void **state) {
    static const struct {
        const char *faults, *words;
        err_t code;
        int walks;  // that succeed
    } cases[] = {{"spill_read@1", "Input/output error", ERR_IO, 0},
                 {"spill_read@11", "Input/output error", ERR_IO, 0},
                 {"spill_read@15", "Input/output error", ERR_IO, 1},
                 {"spill_write@1", "No space left", ERR_IO, 0},
                 {"spill_write@11", "No space left", ERR_IO, 0},
                 {"spill_write@12x90", "No space left", ERR_IO, 1},
                 {"spill_flip@1", "the disk did not return", ERR_DATA, 1},
                 {"spill_flip@14", "the disk did not return", ERR_DATA, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int threads = 1; threads <= 8; threads += 7) {
            fault_list faults;
            spill_options o = options_of(*state, 3, 2, threads);
            assert_ok(fault_parse(&faults, cases[i].faults));
            o.faults = &faults;
            opened s = open_one(&o);
            for (int k = 0; k < cases[i].walks; k++) assert_ok(spill_walk(s.x, SPILL_UPDATE, 0, BLOCKS, nothing, NULL));
            for (int k = 0; k < 2; k++)
                assert_error(spill_walk(s.x, SPILL_UPDATE, 0, BLOCKS, nothing, NULL), cases[i].code, cases[i].words,
                             "/state.", "offset");
            assert_error(spill_walk(s.x, SPILL_READ, 0, 1, nothing, NULL), cases[i].code, cases[i].words);
            if (threads == 1) {  // nothing was asked of the disk after it
                assert_true(faults.seen[FAULT_SPILL_READ] == faults.first[FAULT_SPILL_READ] ||
                            !faults.first[FAULT_SPILL_READ]);
                assert_true(faults.seen[FAULT_SPILL_WRITE] == faults.first[FAULT_SPILL_WRITE] ||
                            !faults.first[FAULT_SPILL_WRITE]);
            }
            close_one(&s);
        }
}

// What changed in part is no state.
static void a_failed_visit_is_final(void **state) {
    for (int64_t until = 0; until < BLOCKS; until += 5) {
        const spill_options o = options_of(*state, 3, 1, 4);
        opened s = open_one(&o);
        assert_error(spill_walk(s.x, SPILL_READ, 0, BLOCKS, refuse, &until), ERR_UNAVAILABLE, "no more");
        assert_ok(spill_walk(s.x, SPILL_READ, 0, BLOCKS, nothing, NULL));
        assert_error(spill_walk(s.x, SPILL_UPDATE, 0, BLOCKS, refuse, &until), ERR_UNAVAILABLE, "no more");
        assert_error(spill_walk(s.x, SPILL_READ, 0, BLOCKS, nothing, NULL), ERR_UNAVAILABLE, "no more");
        close_one(&s);
    }
}

// The file, which has no name: opened once more, for bytes at any offset.
static int reopen(place *p) {
    DIR *d = opendir("/proc/self/fd");
    int found = -1;
    for (struct dirent *e; d && found < 0 && (e = readdir(d));) {
        char link[300], to[IO_PATH] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%s", e->d_name);
        if (readlink(link, to, sizeof to - 1) < 0 || !strstr(to, p->dir) || !strstr(to, "/state.")) continue;
        found = open(link, O_RDWR | O_CLOEXEC);
    }
    if (d) closedir(d);
    assert_true(found >= 0);
    return found;
}

static void damage_is_found_where_it_is(void **state) {
    const spill_options o = options_of(*state, 2, 2, 3);
    float one = 1;
    for (int torn = 0; torn < 3; torn++) {
        opened s = open_one(&o);
        assert_ok(spill_walk(s.x, SPILL_FILL, 0, BLOCKS, set_to, &one));
        int fd = reopen(*state);
        const off_t at = (off_t)(7 * o.block_bytes + 70000);
        uint8_t byte, half[8192] = {0};
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 1;
        if (torn == 0) assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        if (torn == 1) assert_int_equal(pwrite(fd, half, sizeof half, at), sizeof half);
        if (torn == 2) assert_int_equal(ftruncate(fd, at), 0);
        assert_int_equal(fsync(fd), 0);
        close(fd);
        assert_ok(spill_walk(s.x, SPILL_READ, 0, 7, nothing, NULL));
        const char *words = torn == 2 ? "the file is truncated" : "block 7 at offset 1376256: checksum";
        assert_error(spill_walk(s.x, SPILL_READ, torn == 2 ? 7 : 4, torn == 2 ? 1 : 5, nothing, NULL), ERR_DATA,
                     "/state.", words);
        int64_t block;
        assert_true(spill_failed(s.x, &block) && block == 7);
        close_one(&s);
    }
}

// As another file there says.
static void the_page_cache_is_left_out(void **state) {
    place *p = *state;
    const spill_options o = options_of(p, 2, 1, 1);
    opened s = open_one(&o);
    int fd = open(at(p, "other"), O_CREAT | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    assert_int_equal(spill_is_direct(s.x), fd >= 0);
    if (fd >= 0) close(fd);
    close_one(&s);
}

static void no_file_is_left(void **state) {
    place *p = *state;
    const spill_options o = options_of(p, 2, 1, 1);
    opened first = open_one(&o), second = open_one(&o);  // in one directory
    float one = 1, two = 2, *whole = malloc(BLOCKS * BLOCK * sizeof *whole);
    assert_ok(spill_walk(first.x, SPILL_FILL, 0, BLOCKS, set_to, &one));
    assert_ok(spill_walk(second.x, SPILL_FILL, 0, BLOCKS, set_to, &two));
    assert_ok(set_to(&one, 0, BLOCKS, whole));
    assert_ok(spill_walk(first.x, SPILL_READ, 0, BLOCKS, must_equal, whole));
    assert_int_equal(rmdir(p->dir), 0);  // while both are open: there is nothing in it
    assert_int_equal(mkdir(p->dir, 0700), 0);
    free(whole);
    close_one(&first), close_one(&second);
}

// --- what does not fit -----------------------------------------------------------------------------------------------

static void mistakes_are_named(void **state) {
    static char memory[SPILL_ALIGN] __attribute__((aligned(SPILL_ALIGN)));
    spill *x;
    spill_options o = options_of(*state, 2, 1, 1);
    o.block_bytes = 1000;
    assert_error(spill_open(&x, &o, memory), ERR_CONFIG, "of 1000 bytes", "a multiple of 4096");
    o = options_of(*state, 1, 1, 1);
    assert_error(spill_open(&x, &o, memory), ERR_CONFIG, "1 windows", "expected 2 to 16");
    o = options_of(*state, 2, 1, 65);
    assert_error(spill_open(&x, &o, memory), ERR_CONFIG, "65 threads", "1 to 64");
    o = options_of(*state, 2, 1, 1);
    assert_error(spill_open(&x, &o, memory + 16), ERR_INTERNAL, "expected a multiple of 4096");
    o.dir = "/nowhere";
    assert_error(spill_open(&x, &o, memory), ERR_IO, "/nowhere/state.", "No such file");
    assert_null(x);
}

// Petabytes: found before the disk is filled.
static void a_full_disk_is_found_at_once(void **state) {
    static char memory[SPILL_ALIGN] __attribute__((aligned(SPILL_ALIGN)));
    spill *x;
    spill_options o = options_of(*state, 2, 1, 1);
    o.blocks = (int64_t)1 << 36;
    assert_error(spill_open(&x, &o, memory), ERR_IO, "No space left", "it needs 13510798882111488 bytes",
                 "are free in");
    struct rlimit before, less = {1 << 20, 1 << 20};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    less.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    o.blocks = BLOCKS;
    err_t rc = spill_open(&x, &o, memory);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_error(rc, ERR_IO, "File too large", "2162688 bytes", "ulimit -f");
}

// A small file system in memory, in a namespace of its own. 2: this process may not make one.
static int on_tmpfs(place *p) {
    spill *x;
    spill_options o = options_of(p, 3, 2, 4);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return 2;
    if (mount("none", p->dir, "tmpfs", 0, "size=3m") != 0) return 2;
    opened s = open_one(&o);  // 2.06 MiB fit once
    float one = 1;
    assert_ok(spill_walk(s.x, SPILL_FILL, 0, BLOCKS, set_to, &one));
    assert_ok(spill_walk(s.x, SPILL_UPDATE, 0, BLOCKS, nothing, NULL));
    void *memory = aligned_alloc(SPILL_ALIGN, spill_memory(&o));
    assert_error(spill_open(&x, &o, memory), ERR_IO, "it needs 2162688 bytes and 983040 are free");
    close_one(&s);
    assert_ok(spill_open(&x, &o, memory));  // its room was given back
    spill_close(x);
    free(memory);
    return 0;
}

static void a_small_disk_in_memory(void **state) {
    int status;
    pid_t child = fork();
    if (child == 0) _exit(on_tmpfs(*state));
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2) {
        print_message("skipped: test_spill a_small_disk_in_memory (no mount namespace of its own)\n");
        skip();
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#define IN_PLACE(f) cmocka_unit_test_setup_teardown(f, place_enter, place_leave)
int main(void) {
    const struct CMUnitTest tests[] = {IN_PLACE(windows_change_no_bit),
                                       IN_PLACE(parts_leave_the_rest),
                                       IN_PLACE(faults_are_final),
                                       IN_PLACE(a_failed_visit_is_final),
                                       IN_PLACE(damage_is_found_where_it_is),
                                       IN_PLACE(the_page_cache_is_left_out),
                                       IN_PLACE(no_file_is_left),
                                       IN_PLACE(mistakes_are_named),
                                       IN_PLACE(a_full_disk_is_found_at_once),
                                       IN_PLACE(a_small_disk_in_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
