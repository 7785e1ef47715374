// test/test_vault.c: snapshots in memory: what one dealing of the parts has written another one reads; what was being
// written when its rank was killed is never read; and of the step that all have in common no part is ever overwritten.
#include "trainer/checkpoint/vault_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
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
    device *dev;
    stream *stream;
    comm *self;
    ckpt_group group[GROUPS];
    ckpt_tensor tensor[GROUPS][TENSORS];
    ckpt_scalar scalar[SCALARS];
    double number[SCALARS];
} share;

// Rank of `ranks` has equal shares of each group's tensors; the last one of `uneven` has none.
static void open_share(share *x, int rank, int ranks, bool uneven) {
    *x = (share){.s = {.params = TENSORS, .groups = GROUPS, .scalars = SCALARS}};
    x->s.group = x->group, x->s.scalar = x->scalar;
    OK(device_open(&x->dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    OK(stream_open(x->dev, &x->stream));
    OK(comm_self_open(&x->self));
    x->s.ranks = x->self, x->s.s = x->stream;
    for (int k = 0; k < SCALARS; k++) x->scalar[k] = (ckpt_scalar){"scalar", &x->number[k]};
    int of = uneven ? ranks - 1 : ranks;
    for (int g = 0; g < GROUPS; g++) {
        x->group[g] = (ckpt_group){"", x->tensor[g]};
        for (int i = 0; i < TENSORS; i++) {
            int64_t first = elements[i] * rank / of, end = rank < of ? elements[i] * (rank + 1) / of : first;
            x->tensor[g][i] = (ckpt_tensor){.first = first, .count = end - first};
            snprintf(x->tensor[g][i].name, CKPT_NAME, "tensor %d", i);
            x->tensor[g][i].data = calloc((size_t)(end - first) + 1, 4);
        }
    }
}

static void close_share(share *x) {
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < TENSORS; i++) free(x->tensor[g][i].data);
    x->self->table->close(x->self);
    stream_close(x->stream);
    device_close(x->dev);
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

// The newest step of which all is there that a rank needs, put into x as that rank would alone. What is newer is
// forgotten.
static int64_t recall(int fd, share *x, int64_t live, run_progress *at, vault_recall *r) {
    vault v;
    vault_open(&v, fd, 1);  // not a rank's that writes
    *r = (vault_recall){.live = live, .saved = -7};
    OK(vault_gather(&v, &x->s, r, at));
    vault_close(&v);
    return r->step;
}

static int64_t newest(int fd, int rank, int ranks) {
    share x;
    run_progress at;
    vault_recall r;
    open_share(&x, rank, ranks, false);
    int64_t step = recall(fd, &x, -1, &at, &r);
    close_share(&x);
    return step;
}

static void expect_loaded(int fd, int ranks, int64_t step) {
    for (int r = 0; r < ranks; r++) {
        share x;
        run_progress at;
        vault_recall from;
        open_share(&x, r, ranks, false);
        assert_int_equal(recall(fd, &x, -1, &at, &from), step);
        expect_filled(&x, step);
        assert_int_equal(at.step, step);
        assert_int_equal(at.log_bytes, 7 * step);
        assert_int_equal(from.saved, step - 1);
        assert_false(from.is_live);
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
            assert_int_equal(newest(fd, 0, 1), -1);
            save_all(fd, from, uneven, 5);
            for (int to = 1; to <= MOST; to++) { expect_loaded(fd, to, 5); }
            close(fd);
        }
    assert_int_equal(open_files(), before);
}

static void ruin(int fd, int rank, int64_t step) {
    for (int g = 0; g < GENERATIONS; g++) {
        off_t at = (rank * GENERATIONS + g) * ((off_t)1 << 38);
        int64_t *head = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
        assert_true(head != MAP_FAILED);
        if (*head == step) *head = -1;
        munmap(head, 4096);
    }
}

// Two generations: the newest, and the one before where that is torn.
static void two_steps_are_kept(void **state) {
    (void)state;
    int fd = make();
    for (int64_t step = 0; step < 10; step++) {
        save_all(fd, 3, false, step);
        expect_loaded(fd, 3, step);
        if (!step) continue;
        ruin(fd, 1, step);
        expect_loaded(fd, 2, step - 1);
        save_all(fd, 3, false, step);
        expect_loaded(fd, 1, step);
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
    assert_int_equal(newest(fd, 0, 2), 9);  // its own part; with rank 1 there is no more
    save(fd, 0, 2, false, 9);
    expect_loaded(fd, 1, 8);
    save(fd, 0, 2, false, 9);
    assert_int_equal(newest(fd, 1, 2), 8);
    save_all(fd, 2, false, 9);
    expect_loaded(fd, 2, 9);
    save_all(fd, 2, false, 3);  // the run went on from an old checkpoint: later steps are of no use
    ruin(fd, 0, 9);
    assert_int_equal(newest(fd, 0, 1), 3);
    close(fd);
}

// What is newer than the step from which all go on is as if it had never been: its other half is never written, or is
// of a run that went another way.
static void what_is_newer_is_forgotten(void **state) {
    (void)state;
    int fd = make();
    save_all(fd, 2, false, 8);
    save(fd, 0, 2, false, 9);
    expect_loaded(fd, 1, 8);
    save(fd, 1, 2, false, 9);
    expect_loaded(fd, 1, 8);
    close(fd);
}

// Killed in the middle of writing: the generation is not whole, and the next one takes its place.
static void what_is_torn_is_not_read(void **state) {
    (void)state;
    int fd = make();
    save_all(fd, 2, false, 4);
    save_all(fd, 2, false, 6);
    ruin(fd, 1, 6);
    expect_loaded(fd, 1, 4);
    save_all(fd, 2, false, 6);
    expect_loaded(fd, 2, 6);
    ruin(fd, 0, 6);
    expect_loaded(fd, 1, 4);
    close(fd);
}

// A bit of a rank's newest generation, `at` bytes from its beginning, changes and changes back.
static void flip(int fd, int64_t step, int64_t at) {
    for (int g = 0; g < GENERATIONS; g++) {
        char *all = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, g * VAULT_ROOM);
        assert_true(all != MAP_FAILED);
        vault_head *h = (vault_head *)(void *)all;
        if (h->at.step == step && at < 8 << 20) all[at] ^= 4;
        munmap(all, 8 << 20);
    }
}

// Whatever bit is wrong, of the head, the table, the scalars or the values: it is said, and the step before is used.
static void what_is_damaged_is_not_read(void **state) {
    (void)state;
    int fd = make();
    share x;
    run_progress at;
    int64_t table = (int64_t)vault_aligned(sizeof(vault_head));
    open_share(&x, 0, 1, false);
    const int64_t step_at = offsetof(vault_head, at) + offsetof(run_progress, step);
    const int64_t first = (int64_t)vault_aligned((size_t)table + GROUPS * TENSORS * sizeof(vault_part) + SCALARS * 8);
    const int64_t places[] = {0,
                              1,  // as if it were of step 1030, the newest
                              8,
                              15,  // as if it had more bytes than there are addresses
                              17,
                              offsetof(vault_head, parts),
                              offsetof(vault_head, keys) + 2,
                              offsetof(vault_head, crc),
                              table,
                              table + 9,
                              table + 24,
                              table + offsetof(vault_part, crc),
                              first - 60,
                              first,
                              first + 4 * 100002,
                              first + 4 * 200000};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        vault v;
        vault_recall from = {.live = -1};
        err_record damage = {0};
        if (places[i] >= step_at && places[i] < step_at + 8) continue;  // by which `flip` finds it
        save_all(fd, 1, false, 4);
        save_all(fd, 1, false, 6);
        flip(fd, 6, places[i]);
        vault_open(&v, fd, 0);
        v.damage = &damage;
        OK(vault_gather(&v, &x.s, &from, &at));
        if (from.step != 4) fail_msg("byte %d: step %d was found", (int)places[i], (int)from.step);
        if (places[i] && (damage.code != ERR_DATA || !strstr(damage.text, "of step 6: ")))
            fail_msg("byte %d: \"%s\"", (int)places[i], damage.text);
        if (places[i] == first + 4 * 100002)
            assert_non_null(strstr(damage.text, "group 0, tensor 0, elements 0 to 100002"));
        expect_filled(&x, 4);
        vault_close(&v);
    }
    // as a copy is looked at when it has arrived, before its step is written
    vault v;
    vault_area a = {0};
    err_record damage = {0};
    save_all(fd, 1, false, 4);
    save_all(fd, 1, false, 6);
    vault_open(&v, fd, 0);
    OK(vault_look(&a, &v, 0, 1));
    assert_true(vault_is_sound(&a, &damage) && damage.code == ERR_OK);
    a.at[first + 40] ^= 1;
    assert_true(!vault_is_sound(&a, &damage) && damage.code == ERR_DATA);
    vault_unmap(&a);
    vault_close(&v);
    close_share(&x);
    close(fd);
}

static void keys_of_the_run_are_kept(void **state) {
    (void)state;
    int fd = make();
    share x;
    vault v;
    run_progress at;
    vault_recall from;
    open_share(&x, 0, 1, false);
    x.s.keys = 2;
    strcpy(x.s.key[0].key, "schedule.warmup"), strcpy(x.s.key[0].value, "10");
    strcpy(x.s.key[1].key, "schedule.decay_steps"), strcpy(x.s.key[1].value, "300");
    x.s.key[1].adopted = true;
    vault_open(&v, fd, 0);
    OK(vault_save(&v, &x.s, &(run_progress){.step = 1}, -1));
    strcpy(x.s.key[0].value, "20"), strcpy(x.s.key[1].value, "400");
    x.s.key[1].adopted = false;
    assert_int_equal(recall(fd, &x, -1, &at, &from), 1);
    assert_string_equal(x.s.key[0].value, "20");
    assert_string_equal(x.s.key[1].value, "300");
    assert_true(x.s.key[1].adopted && !x.s.key[0].adopted);
    assert_int_equal(from.saved, -1);
    vault_close(&v);
    close_share(&x);
    close(fd);
}

// --- live state ------------------------------------------------------------------------------------------------------

// Share `k` of `of` of every tensor, cut from all of it; lie: of one whose tensor 2 in group 1 sums up to something
// else.
static int add_share(vault_range *to, share *x, int k, int of, bool lies) {
    int n = 0;
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < TENSORS; i++) {
            int64_t first = elements[i] * k / of, end = elements[i] * (k + 1) / of;
            to[n++] = (vault_range){.group = g,
                                    .tensor = i,
                                    .first = first,
                                    .count = end - first,
                                    .sum = 77 + (uint64_t)(lies && g == 1 && i == 2),
                                    .data = x->tensor[g][i].data + first};
        }
    return n;
}

// Of a rank of `of` that all hold the same: its share and that of the rank before.
static void keep(int fd, int rank, int of, int64_t step, bool lies) {
    share x;
    vault v;
    vault_range range[2 * GROUPS * TENSORS];
    open_share(&x, 0, 1, false);
    fill(&x, step);
    int n = add_share(range, &x, rank, of, lies);
    n += add_share(range + n, &x, (rank + of - 1) % of, of, lies);
    vault_open(&v, fd, rank);
    OK(vault_save_live(&v, &x.s, range, n, &(run_progress){.step = step, .log_bytes = -1}, step - 3, NULL));
    vault_close(&v);
    close_share(&x);
}

static void expect_live(int fd, int64_t live, int64_t step, bool is_live, const char *torn) {
    share x;
    run_progress at;
    vault_recall r;
    open_share(&x, 0, 1, false);
    assert_int_equal(recall(fd, &x, live, &at, &r), step);
    if (step >= 0) expect_filled(&x, step);
    assert_true(step < 0 || r.is_live == is_live);
    if (is_live) assert_int_equal(r.saved, step - 3);
    assert_string_equal(r.torn, torn);
    close_share(&x);
}

// Whichever of the ranks is lost, the others have all of it; of two that follow each other, they have not.
static void what_others_hold_alike_is_there(void **state) {
    (void)state;
    for (int of = 2; of <= MOST; of++)
        for (int lost = 0; lost < of; lost++) {
            int fd = make();
            save_all(fd, of, false, 5);
            for (int r = 0; r < of; r++)
                if (r != lost) keep(fd, r, of, 8, false);
            expect_live(fd, 8, 8, true, "");
            close(fd);
            fd = make();
            save_all(fd, of, false, 5);
            for (int r = 0; r < of; r++)
                if (r != lost && r != (lost + 1) % of) keep(fd, r, of, 8, false);
            expect_live(fd, 8, 5, false, "");
            close(fd);
        }
}

// Not beyond the log; and in place of the older generation, unless the newer one is as new.
static void live_state_takes_the_older_place(void **state) {
    (void)state;
    int fd = make();
    save_all(fd, 2, false, 4), save_all(fd, 2, false, 6);
    keep(fd, 0, 2, 8, false);
    expect_live(fd, 7, 6, false, "");
    keep(fd, 0, 2, 6, false), keep(fd, 0, 2, 5, false);
    expect_live(fd, 8, 6, false, "");
    keep(fd, 0, 2, 8, false);
    expect_live(fd, 8, 8, true, "");
    ruin(fd, 0, 8);
    expect_live(fd, 8, 6, false, "");
    keep(fd, 0, 2, 9, false), keep(fd, 0, 2, 11, false);
    save_all(fd, 2, false, 12);
    expect_live(fd, 20, 12, false, "");
    close(fd);
}

// Two that do not hold the same after all: nobody can say who is right.
static void what_differs_is_not_used(void **state) {
    (void)state;
    int fd = make();
    save_all(fd, 4, false, 5);
    keep(fd, 0, 4, 8, false), keep(fd, 1, 4, 8, true), keep(fd, 2, 4, 8, false);
    expect_live(fd, 8, 5, false, "tensor 2");
    close(fd);
}

// Where a tensor lies in slices, each is a range of its own, with a sum of its own.
static void slices_of_a_tensor_are_no_difference(void **state) {
    (void)state;
    int fd = make();
    save_all(fd, 2, false, 5);
    for (int rank = 0; rank < 2; rank++) {
        share x;
        vault v;
        vault_range whole[GROUPS * TENSORS], range[2 * GROUPS * TENSORS];
        int n = 0;
        open_share(&x, 0, 1, false);
        fill(&x, 8);
        int tensors = add_share(whole, &x, 0, 1, false);
        for (int i = 0; i < tensors; i++)
            for (int slice = 0; slice < 2; slice++) {
                vault_range r = whole[i];
                int64_t half = (r.count + 1) / 2;
                r.of = r.first = slice * half, r.data += r.first, r.sum += (uint64_t)slice;
                r.count = slice ? r.count - half : half;
                range[n++] = r;
            }
        vault_open(&v, fd, rank);
        OK(vault_save_live(&v, &x.s, range, n, &(run_progress){.step = 8, .log_bytes = -1}, 5, NULL));
        vault_close(&v);
        close_share(&x);
    }
    expect_live(fd, 8, 8, true, "");
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
    assert_int_equal(vault_bytes(values / 4, 0), 2 * values);
    assert_int_equal(vault_bytes(100, 130), 2 * 4 * 130);
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
        cmocka_unit_test(any_dealing_reads_any_other),      cmocka_unit_test(two_steps_are_kept),
        cmocka_unit_test(the_step_in_common_stays),         cmocka_unit_test(what_is_torn_is_not_read),
        cmocka_unit_test(what_is_damaged_is_not_read),      cmocka_unit_test(keys_of_the_run_are_kept),
        cmocka_unit_test(memory_is_what_is_planned),        cmocka_unit_test(what_is_newer_is_forgotten),
        cmocka_unit_test(what_others_hold_alike_is_there),  cmocka_unit_test(what_differs_is_not_used),
        cmocka_unit_test(live_state_takes_the_older_place), cmocka_unit_test(slices_of_a_tensor_are_no_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
