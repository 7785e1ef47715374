// test/test_vault.c: snapshots in memory: what one dealing of the parts has written another one reads; what was being
// written when its rank was killed is never read; and of the step that all have in common no part is ever overwritten.
#include "trainer/checkpoint/vault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define OK(call) \
    do { \
        if ((call) != ERR_OK) fail_msg("%s: %s", #call, err_last()->text); \
    } while (0)

enum { GROUPS = 3, TENSORS = 4, MOST = 4, SCALARS = 2 };
static const int64_t elements[TENSORS] = {100003, 1, 4096, 77};

// Of one rank.
typedef struct share {
    ckpt_state s;
    ckpt_group group[GROUPS];
    ckpt_tensor tensor[GROUPS][TENSORS];
    ckpt_scalar scalar[SCALARS];
    double number[SCALARS];
} share;

// Rank of `ranks` has equal shares of each group's tensors; the last one of `uneven` has none.
static void open_share(share *x, int rank, int ranks, bool uneven) {
    *x = (share){.s = {.params = TENSORS, .groups = GROUPS, .scalars = SCALARS}};
    x->s.group = x->group, x->s.scalar = x->scalar;
    for (int k = 0; k < SCALARS; k++) x->scalar[k] = (ckpt_scalar){"scalar", &x->number[k]};
    int of = uneven ? ranks - 1 : ranks;
    for (int g = 0; g < GROUPS; g++) {
        x->group[g] = (ckpt_group){"", x->tensor[g]};
        for (int i = 0; i < TENSORS; i++) {
            int64_t first = elements[i] * rank / of, end = rank < of ? elements[i] * (rank + 1) / of : first;
            x->tensor[g][i] = (ckpt_tensor){.first = first, .count = end - first};
            x->tensor[g][i].data = calloc((size_t)(end - first) + 1, 4);
        }
    }
}

static void close_share(share *x) {
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < TENSORS; i++) free(x->tensor[g][i].data);
}

static float value_of(int64_t step, int g, int i, int64_t e) {
    return (float)((double)(step * 131 + g * 17 + i * 5) + (double)e / 131072);
}

static void fill(share *x, int64_t step) {
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < TENSORS; i++)
            for (int64_t e = 0; e < x->tensor[g][i].count; e++)
                x->tensor[g][i].data[e] = value_of(step, g, i, x->tensor[g][i].first + e);
    for (int k = 0; k < SCALARS; k++) x->number[k] = (double)step / (k + 3);
}

static void expect_filled(const share *x, int64_t step) {
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < TENSORS; i++)
            for (int64_t e = 0; e < x->tensor[g][i].count; e++)
                if (x->tensor[g][i].data[e] != value_of(step, g, i, x->tensor[g][i].first + e))
                    fail_msg("step %d: group %d, tensor %d, element %d", (int)step, g, i, (int)e);
    for (int k = 0; k < SCALARS; k++) assert_true(x->number[k] == (double)step / (k + 3));
}

static void save(int fd, int rank, int ranks, bool uneven, int64_t step) {
    share x;
    vault v;
    open_share(&x, rank, ranks, uneven);
    fill(&x, step);
    vault_open(&v, fd, rank);
    OK(vault_save(&v, &x.s, &(run_progress){.step = step, .log_bytes = 7 * step}, step - 1));
    vault_close(&v);
    close_share(&x);
}

static void save_all(int fd, int ranks, bool uneven, int64_t step) {
    for (int r = 0; r < ranks; r++) save(fd, r, ranks, uneven, step);
}

static int64_t newest(int fd, int rank, int ranks, int64_t below) {
    share x;
    vault v;
    open_share(&x, rank, ranks, false);
    vault_open(&v, fd, rank);
    int64_t step = vault_newest(&v, &x.s, below);
    vault_close(&v);
    close_share(&x);
    return step;
}

static void expect_loaded(int fd, int ranks, int64_t step) {
    for (int r = 0; r < ranks; r++) {
        share x;
        vault v;
        run_progress at;
        int64_t saved = 0;
        open_share(&x, r, ranks, false);
        vault_open(&v, fd, r);
        OK(vault_load(&v, &x.s, step, &at, &saved));
        expect_filled(&x, step);
        assert_int_equal(at.step, step);
        assert_int_equal(at.log_bytes, 7 * step);
        assert_int_equal(saved, step - 1);
        vault_close(&v);
        close_share(&x);
    }
}

static int make(void) {
    int fd = vault_make();
    if (fd < 0) fail_msg("%s", err_last()->text);
    return fd;
}

static int open_files(void) {
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static void any_dealing_reads_any_other(void **state) {
    (void)state;
    int before = open_files();
    for (int from = 1; from <= MOST; from++)
        for (int uneven = 0; uneven < (from > 1 ? 2 : 1); uneven++) {
            int fd = make();
            assert_int_equal(newest(fd, 0, 1, INT64_MAX), -1);
            save_all(fd, from, uneven, 5);
            for (int to = 1; to <= MOST; to++) {
                for (int r = 0; r < to; r++) assert_int_equal(newest(fd, r, to, INT64_MAX), 5);
                expect_loaded(fd, to, 5);
            }
            close(fd);
        }
    assert_int_equal(open_files(), before);
}

// Two generations: the newest and the one before.
static void two_steps_are_kept(void **state) {
    (void)state;
    int fd = make();
    for (int64_t step = 0; step < 10; step++) {
        save_all(fd, 3, false, step);
        assert_int_equal(newest(fd, 1, 3, INT64_MAX), step);
        assert_int_equal(newest(fd, 1, 3, step), step - 1);
        assert_int_equal(newest(fd, 1, 3, step - 1 > 0 ? step - 1 : 0), -1);
        expect_loaded(fd, 3, step);
        if (step) expect_loaded(fd, 2, step - 1);
    }
    close(fd);
}

// One rank was killed before it had written step 9: nobody uses it. The ranks go on from step 8, and whoever has 9
// already writes it again without touching 8, which is all that they have in common.
static void the_step_in_common_stays(void **state) {
    (void)state;
    int fd = make();
    save_all(fd, 2, false, 7);
    save_all(fd, 2, false, 8);
    save(fd, 0, 2, false, 9);
    assert_int_equal(newest(fd, 0, 2, INT64_MAX), 9);  // its own part; rank 1 tells it that there is no more
    assert_int_equal(newest(fd, 1, 2, INT64_MAX), 8);
    assert_int_equal(newest(fd, 0, 1, INT64_MAX), 8);
    save(fd, 0, 2, false, 9);
    expect_loaded(fd, 2, 8);
    save(fd, 1, 2, false, 9);
    expect_loaded(fd, 2, 9);
    expect_loaded(fd, 1, 8);
    save_all(fd, 2, false, 3);  // the run went on from an old checkpoint: later steps are of no use
    assert_int_equal(newest(fd, 0, 1, 9), 3);
    close(fd);
}

static void ruin(int fd, int rank, int64_t step) {
    enum { GENERATIONS = 2 };
    for (int g = 0; g < GENERATIONS; g++) {
        off_t at = (rank * GENERATIONS + g) * ((off_t)1 << 38);
        int64_t *head = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
        assert_true(head != MAP_FAILED);
        if (*head == step) *head = -1;
        munmap(head, 4096);
    }
}

// Killed in the middle of writing: the generation is not whole, and the next one takes its place.
static void what_is_torn_is_not_read(void **state) {
    (void)state;
    int fd = make();
    save_all(fd, 2, false, 4);
    save_all(fd, 2, false, 6);
    ruin(fd, 1, 6);
    assert_int_equal(newest(fd, 0, 1, INT64_MAX), 4);
    expect_loaded(fd, 2, 4);
    share x;
    vault v;
    run_progress at;
    int64_t saved;
    open_share(&x, 0, 1, false);
    vault_open(&v, fd, 0);
    assert_int_equal(vault_load(&v, &x.s, 6, &at, &saved), ERR_DATA);
    assert_int_equal(vault_load(&v, &x.s, 5, &at, &saved), ERR_DATA);
    vault_close(&v);
    close_share(&x);
    save(fd, 1, 2, false, 6);
    expect_loaded(fd, 2, 6);
    expect_loaded(fd, 2, 4);
    close(fd);
}

static void keys_of_the_run_are_kept(void **state) {
    (void)state;
    int fd = make();
    share x;
    vault v;
    run_progress at;
    int64_t saved;
    open_share(&x, 0, 1, false);
    x.s.keys = 2;
    strcpy(x.s.key[0].key, "schedule.warmup"), strcpy(x.s.key[0].value, "10");
    strcpy(x.s.key[1].key, "schedule.decay_steps"), strcpy(x.s.key[1].value, "300");
    x.s.key[1].adopted = true;
    vault_open(&v, fd, 0);
    OK(vault_save(&v, &x.s, &(run_progress){.step = 1}, -1));
    strcpy(x.s.key[0].value, "20"), strcpy(x.s.key[1].value, "400");
    x.s.key[1].adopted = false;
    OK(vault_load(&v, &x.s, 1, &at, &saved));
    assert_string_equal(x.s.key[0].value, "20");
    assert_string_equal(x.s.key[1].value, "300");
    assert_true(x.s.key[1].adopted && !x.s.key[0].adopted);
    assert_int_equal(saved, -1);
    vault_close(&v);
    close_share(&x);
    close(fd);
}

// Bytes that it takes, in whole pages.
static int64_t held(int fd) {
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return 512 * (int64_t)st.st_blocks;
}

// What a plan says is what it takes, a share that has become smaller gives memory back; and without leave for a file of
// that size there is none.
static void memory_is_what_is_planned(void **state) {
    (void)state;
    int64_t values = 0;
    for (int i = 0; i < TENSORS; i++) values += 4 * GROUPS * elements[i];
    assert_int_equal(vault_bytes(values / 4), 2 * values);
    int fd = make();
    int64_t before = held(fd);
    save(fd, 0, 1, false, 1), save(fd, 0, 1, false, 2);
    int64_t most = held(fd) - before;
    save(fd, 0, 2, false, 3), save(fd, 0, 2, false, 4);
    int64_t least = held(fd) - before;
    close(fd);
    if (most < 2 * values || most > 2 * values + 4 * 4096) fail_msg("%d bytes for 2 x %d", (int)most, (int)values);
    if (least < values || least > values + 4 * 4096) fail_msg("%d bytes for 2 x %d / 2", (int)least, (int)values);
    struct rlimit was;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    struct rlimit few = {1 << 20, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    int none = vault_make();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(none, -1);
    assert_non_null(strstr(err_last()->text, "LimitFSIZE"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_dealing_reads_any_other), cmocka_unit_test(two_steps_are_kept),
        cmocka_unit_test(the_step_in_common_stays),    cmocka_unit_test(what_is_torn_is_not_read),
        cmocka_unit_test(keys_of_the_run_are_kept),    cmocka_unit_test(memory_is_what_is_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
