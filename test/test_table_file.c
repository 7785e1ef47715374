// test/test_table_file.c: tables with a limit of memory, and the rest of their rows in a file (comm/server/table.h):
// all is as without a limit, the limit holds, no step pays for the table, and no damage goes unseen.
#include "test/support/place.h"
#include "test/support/tables.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

// Room for so many rows, and more for batches: of one row the least that there can be.
static row_options limited(place *p, int64_t rows) {
    row_options o = usual;
    row_table *t;
    o.memory = 1, o.dir = p->dir;
    assert_error(row_table_open(&t, &o), ERR_CONFIG, "1 bytes of memory for rows of 5: expected at least ");
    const int64_t least = atoll(strstr(err_last()->text, "at least ") + 9);
    o.memory = least - 1;
    assert_error(row_table_open(&t, &o), ERR_CONFIG, "expected at least ");
    o.memory = least + (rows - 1) * (row_table_frame_bytes(D) + 1);
    return o;
}

// Both have the same rows, to the bit, and in the same order.
static void expect_same(row_table *a, row_table *b, int bucket) {
    row_walk x, y, keys;
    int64_t n = 0;
    row_table_begin(a, bucket, &x);
    row_table_begin(b, bucket, &y);
    row_table_begin(b, bucket, &keys);
    keys.keys_only = true;
    while (row_table_next(a, &x)) {
        if (!row_table_next(b, &y)) fail_msg("row %d is missing: %s", (int)n, y.rc ? err_last()->text : "");
        assert_true(row_table_next(b, &keys) && row_equal(x.key, y.key) && row_equal(x.key, keys.key));
        assert_memory_equal(x.row, y.row, D * sizeof *x.row);
        assert_memory_equal(x.sum, y.sum, sizeof *x.sum);
        n++;
    }
    assert_true(!row_table_next(b, &y) && y.rc == ERR_OK && (bucket > 0 || n == row_table_rows(a)));
    assert_true(row_table_rows(a) == row_table_rows(b));
}

// Number of the descriptor of the table's file, which has no name.
static int file_of_rows(void) {
    for (int fd = 3; fd < 256; fd++) {
        char link[64], to[1024] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, to, sizeof to - 1) > 0 && strstr(to, "rows-of-rank-7")) return fd;
    }
    fail_msg("no file is open");
    return -1;
}

// One after the other: a look ahead, a look as of an evaluation, the step's look, its update, its end. Rates, sizes of
// batches and which of them come are drawn.
static void one_history(row_table *all, row_table *t, uint32_t seed, int steps, bool cold) {
    batch *b = calloc(1, sizeof *b);
    float *x = calloc(TABLES * IDS * D, sizeof *x), *y = calloc(TABLES * IDS * D, sizeof *y);
    int64_t most = row_table_about(t)->memory, coldest = 0;
    open_batch(b);
    for (int step = 0; step < steps; step++) {
        uint32_t r = draw(seed, (uint32_t)step);
        const row_rules by = {.factor = r % 3 ? 1 : 0.5f, .lr = 0.1f / (float)(1 + step), .eps = 1e-10f};
        make_batch(b, (int)(r % 50), r % 7 ? 20 + (int)(r >> 8 & 63) : 3);
        for (int look = 0; look < 2; look++) {
            if (r >> (10 + look) & 1) continue;
            if (r >> (12 + look) & 1) assert_ok(row_table_ahead(t, b->list.key, b->list.n));
            if (r >> (14 + look) & 1) assert_ok(row_table_ahead(t, b->list.key, b->list.n / 2));
            assert_ok(row_table_look(all, b->list.key, b->list.n, x));
            assert_ok(row_table_look(t, b->list.key, b->list.n, y));
            assert_memory_equal(x, y, (size_t)b->list.n * D * sizeof *x);
            assert_true(row_table_missing(all, b->list.key, b->list.n) == row_table_missing(t, b->list.key, b->list.n));
        }
        if (r >> 16 & 1) assert_ok(row_table_ahead(t, b->list.key, b->list.n));
        assert_ok(row_table_update(all, &b->list, &by));
        assert_ok(row_table_update(t, &b->list, &by));
        if (r >> 17 & 1) assert_ok(row_table_ahead(t, b->list.key, b->list.n));
        if (r >> 18 & 3) assert_ok(row_table_cool(t));
        assert_true((!most || row_table_held(t) <= most) && row_table_rows(t) - row_table_cold(t) >= 0);
        if (row_table_cold(t) > coldest) coldest = row_table_cold(t);
        if ((r >> 20 & 7) == 0) expect_same(all, t, (int)(r >> 12) % 4096);
    }
    expect_same(all, t, 0);
    assert_true(!cold || coldest > row_table_rows(t) / 3);
    close_batch(b), free(b), free(x), free(y);
}

static void test_a_file_changes_no_bit(void **state) {
    place *p = *state;
    static const int64_t rooms[] = {1, 3, 40, 700, 3000, 100000};
    for (size_t k = 0; k < sizeof rooms / sizeof *rooms; k++) {
        const row_options o = limited(p, rooms[k]);
        row_table *all = open_table(&usual), *t = open_table(&o);
        one_history(all, t, (uint32_t)k, 40, rooms[k] < 5000);
        assert_true(rooms[k] < 5000 || row_table_cold(t) == 0);
        assert_ok(row_table_clear(t));
        assert_ok(row_table_clear(all));
        assert_true(row_table_rows(t) == 0 && row_table_cold(t) == 0);
        one_history(all, t, (uint32_t)k + 100, 10, false);
        row_table_close(all), row_table_close(t);
    }
}

// What is put row by row, as a checkpoint is read, in more rows than memory has, be it one.
static void test_rows_are_put_past_the_limit(void **state) {
    static const int64_t rooms[] = {1, 3, 50};
    for (size_t k = 0; k < sizeof rooms / sizeof *rooms; k++) {
        const row_options o = limited(*state, rooms[k]);
        row_table *all = open_table(&usual), *from = open_table(&usual), *t = open_table(&o);
        row_walk w;
        const float one[D] = {0};
        row_key last = {0};
        one_history(all, from, 5, 15, false);
        for (row_table_begin(all, 0, &w); row_table_next(all, &w); last = w.key)
            assert_ok(row_table_put(t, w.key, w.row, *w.sum));
        assert_true(row_table_held(t) <= o.memory && row_table_cold(t) > row_table_rows(t) - 60);
        expect_same(all, t, 0);
        assert_error(row_table_put(t, last, one, 0), ERR_DATA, "is there twice");
        one_history(all, t, 6, 15, true);
        row_table_close(all), row_table_close(from), row_table_close(t);
    }
}

// Rows of few ids in every step, and new ones: the few stay in memory, and none of them is read. A step's end moves
// what the step took, and a bit.
static void test_what_is_used_stays_and_a_step_pays_for_itself(void **state) {
    enum { HOT = 500, OTHERS = 90, STEPS = 120, ROOM = 2000 };
    place *p = *state;
    row_options o = limited(p, ROOM);
    fault_list faults;
    assert_ok(fault_parse(&faults, "spill_read@1000000000,spill_write@1000000000"));  // counted, and never hit
    o.faults = &faults;
    row_table *t = open_table(&o);
    const row_rules by = {1, 0.1f, 1e-10f};
    row_key key[HOT + OTHERS];
    float g[(HOT + OTHERS) * D], seen[HOT * D];
    for (int i = 0; i < (HOT + OTHERS) * D; i++) g[i] = 1;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < HOT + OTHERS; i++)
            key[i] = row_key_of(0, i < HOT ? (uint64_t)i : (uint64_t)(1000 + step * OTHERS + i));
        qsort(key, HOT + OTHERS, sizeof *key, by_key);
        int64_t before = row_table_cold(t);
        long reads = atomic_load(&faults.seen[FAULT_SPILL_READ]);
        assert_ok(row_table_update(t, &(row_list){HOT + OTHERS, key, g}, &by));
        assert_true(atomic_load(&faults.seen[FAULT_SPILL_READ]) == reads);
        int64_t made = step ? OTHERS : HOT + OTHERS, most = made + made / 4;
        assert_true(row_table_cold(t) == before);
        assert_ok(row_table_cool(t));
        assert_true(row_table_cold(t) - before <= (most > ROOM / 64 + 2 ? most : ROOM / 64 + 2));
    }
    assert_true(row_table_cold(t) > HOT + STEPS * OTHERS - ROOM);
    make_keys(key, HOT, 0, 0);
    long reads = atomic_load(&faults.seen[FAULT_SPILL_READ]);
    assert_ok(row_table_look(t, key, HOT, seen));
    assert_true(atomic_load(&faults.seen[FAULT_SPILL_READ]) == reads);

    // of the oldest, which are cold, 60 are read: they stay
    make_keys(key, 60, 0, 1000 + HOT);
    assert_ok(row_table_look(t, key, 60, seen));
    assert_true(atomic_load(&faults.seen[FAULT_SPILL_READ]) == reads + 60);
    assert_ok(row_table_look(t, key, 60, seen));  // again: they are in memory
    assert_true(atomic_load(&faults.seen[FAULT_SPILL_READ]) == reads + 60);
    row_table_close(t);
}

// At a step's end as many frames are free as the step took, and a quarter more; of at most a quarter of all, and one.
// Ages are counted up to a limit: a row that was not touched for longer is as old as the limit.
static void test_as_many_leave_as_have_to(void **state) {
    enum { N = 6000, FEW = 300, LONG = 5000 };
    row_options o = limited(*state, 2000);
    row_table *t = open_table(&o);
    const row_rules by = {1, 0.1f, 1e-10f};
    row_key *key = calloc(N, sizeof *key);
    float *g = calloc(N * D, sizeof *g);
    for (int i = 0; i < N; i++) g[i] = 1;
    make_keys(key, N, 0, 0);
    assert_ok(row_table_update(t, &(row_list){N, key, g}, &by));
    const int64_t frames = N - row_table_cold(t);
    assert_true(frames > 1000 && frames < 2000);
    assert_ok(row_table_cool(t));
    int64_t hot = N - row_table_cold(t);
    assert_int_equal(hot, frames - (frames / 4 + 1));
    assert_ok(row_table_look(t, key, FEW, g));
    for (int k = 0; k < LONG; k++) assert_ok(row_table_cool(t));
    hot = N - row_table_cold(t);
    make_keys(key, FEW, 1, 0);
    assert_ok(row_table_update(t, &(row_list){FEW, key, g}, &by));
    const int64_t all = row_table_rows(t);
    assert_int_equal(all, N + FEW);
    assert_int_equal(all - row_table_cold(t), hot + FEW);
    assert_ok(row_table_cool(t));
    assert_int_equal(all - row_table_cold(t), frames - FEW * 5 / 4);
    row_table_close(t);
    free(key), free(g);
}

// Rows that were not touched for longer than ages are counted leave before those of a few steps ago.
static void test_the_oldest_leave_first(void **state) {
    enum { N = 6000, LONG = 5000 };
    fault_list faults;
    row_options o = limited(*state, 2000);
    assert_ok(fault_parse(&faults, "spill_read@1000000000"));
    o.faults = &faults;
    row_table *t = open_table(&o);
    const row_rules by = {1, 0.1f, 1e-10f};
    row_key *key = calloc(N, sizeof *key);
    float *g = calloc(N * D, sizeof *g);
    make_keys(key, N, 0, 0);
    assert_ok(row_table_update(t, &(row_list){N, key, g}, &by));
    const int frames = (int)(N - row_table_cold(t)), old = frames / 2, some = frames / 4, more = some - 10;
    assert_ok(row_table_clear(t));
    make_keys(key, old, 0, 0);
    assert_ok(row_table_update(t, &(row_list){old, key, g}, &by));
    for (int k = 0; k < LONG; k++) assert_ok(row_table_cool(t));
    make_keys(key, some, 1, 0);
    assert_ok(row_table_update(t, &(row_list){some, key, g}, &by));
    for (int k = 0; k < 10; k++) assert_ok(row_table_cool(t));
    make_keys(key + some, more, 2, 0);
    assert_ok(row_table_update(t, &(row_list){more, key + some, g}, &by));
    assert_ok(row_table_cool(t));
    assert_true(row_table_cold(t) > frames / 5);
    long reads = atomic_load(&faults.seen[FAULT_SPILL_READ]);
    assert_ok(row_table_look(t, key, some, g));
    assert_ok(row_table_look(t, key + some, more, g));
    assert_int_equal(atomic_load(&faults.seen[FAULT_SPILL_READ]), reads);
    row_table_close(t);
    free(key), free(g);
}

// What is held is all that memory was given for, but for less than a frame, and a byte a frame: rows, and beside them
// what reads and writes those of the file. What tells the slots of the file apart is counted, too: two bytes a slot, of
// 65536 at once.
static void test_what_is_held_is_the_limit(void **state) {
    static const int64_t rooms[] = {1, 40, 3000};
    for (size_t k = 0; k < sizeof rooms / sizeof *rooms; k++) {
        const row_options o = limited(*state, rooms[k]);
        row_table *t = open_table(&o);
        const float row[D] = {0};
        int64_t rows = 0, beside = row_table_bytes(t) - row_table_held(t), frames;
        for (; row_table_cold(t) == 0; rows++) {
            assert_int_equal(row_table_bytes(t) - row_table_held(t), beside);
            assert_ok(row_table_put(t, row_key_of(0, (uint64_t)rows), row, 0));
        }
        frames = rows - 1;  // the last one found them full
        assert_true(frames >= 1 && frames <= rooms[k]);
        assert_true(row_table_held(t) <= o.memory);
        assert_true(row_table_held(t) > o.memory - frames - 1 - row_table_frame_bytes(D));
        assert_int_equal(row_table_bytes(t) - row_table_held(t), beside + 2 * 65536);
        row_table_close(t);
    }
}

// Rows that a checkpoint brings are those of no step: after the first one that follows none has to leave.
static void test_rows_that_are_put_are_of_no_step(void **state) {
    enum { N = 6000 };
    row_options o = limited(*state, 2000);
    row_table *t = open_table(&o);
    row_key *key = calloc(N, sizeof *key);
    float *g = calloc(N * D, sizeof *g);
    make_keys(key, N, 0, 0);
    assert_ok(row_table_update(t, &(row_list){N, key, g}, &(row_rules){1, 0.1f, 1}));
    const int64_t frames = N - row_table_cold(t);
    assert_ok(row_table_clear(t));
    for (int64_t i = 0; i < frames - frames / 16; i++) assert_ok(row_table_put(t, key[i], g, 0));
    assert_ok(row_table_cool(t));
    assert_int_equal(row_table_cold(t), 0);
    row_table_close(t);
    free(key), free(g);
}

// A table whose rows all have left memory, but for those of `room` frames.
static row_table *cold_table(const row_options *o, row_key *key, int n) {
    row_table *t = open_table(o);
    float g[D] = {1, 2, 3, 4, 5};
    make_keys(key, n, 0, 0);
    for (int i = 0; i < n; i++) {
        assert_ok(row_table_update(t, &(row_list){1, &key[i], g}, &(row_rules){1, 0.1f, 0}));
        assert_ok(row_table_cool(t));
    }
    assert_true(row_table_cold(t) == n);
    return t;
}

// Rows come and go for long, in blocks of several slots: the file keeps its size, and a write takes many rows along.
static void test_slots_are_used_again(void **state) {
    enum { N = 6000, BATCH = 500, STEPS = 200 };
    row_options o = limited(*state, 2000);
    fault_list faults;
    assert_ok(fault_parse(&faults, "spill_write@1000000000"));
    o.faults = &faults, o.number = 7;
    row_table *all = open_table(&usual), *t = open_table(&o);
    row_key *key = calloc(N, sizeof *key), some[BATCH];
    float *g = calloc(N * D, sizeof *g);
    int64_t left = 0;
    for (int i = 0; i < N; i++) key[i] = row_key_of(i % 2, (uint64_t)i), g[i] = (float)(i % 7);
    for (int step = 0; step < STEPS; step++) {
        const row_rules by = {1, 0.1f, 1e-10f};
        int n = 0;
        for (int i = 0; n < BATCH && i < N; i++)
            if (draw((uint32_t)i, (uint32_t)step) % (N / BATCH) == 0) some[n++] = key[i];
        qsort(some, (size_t)n, sizeof *some, by_key);
        assert_ok(row_table_update(all, &(row_list){n, some, g}, &by));
        assert_ok(row_table_update(t, &(row_list){n, some, g}, &by));
        int64_t before = row_table_cold(t);
        assert_ok(row_table_cool(t));
        left += row_table_cold(t) - before;
    }
    expect_same(all, t, 0);
    int64_t slots = row_table_file(t) / (4 * (D + 2)), writes = atomic_load(&faults.seen[FAULT_SPILL_WRITE]);
    assert_true(slots >= row_table_cold(t) && slots < row_table_rows(t) * 5 / 4 + 1000);
    assert_true(left > 20 * N / 2 && writes < left / 10);
    // what is cleared gives the disk back
    struct stat st;
    assert_true(fstat(file_of_rows(), &st) == 0 && st.st_size == row_table_file(t));
    assert_ok(row_table_clear(t));
    assert_true(fstat(file_of_rows(), &st) == 0 && st.st_size == 0 && row_table_file(t) == 0);
    row_table_close(all), row_table_close(t);
    free(key), free(g);
}

// Rows that no frame is free for are written back at once, and their old slots are free then: of the same rows over and
// over the file comes to a size that it keeps.
static void test_slots_of_rows_without_a_frame_are_used_again(void **state) {
    enum { N = 200, STEPS = 80 };
    const row_options o = limited(*state, 1);
    const row_rules by = {1, 0.1f, 1e-10f};
    row_table *all = open_table(&usual), *t = open_table(&o);
    row_key key[N];
    float g[N * D];
    int64_t half = 0;
    for (int i = 0; i < N * D; i++) g[i] = (float)(i % 7);
    for (int i = 0; i < N; i++) key[i] = row_key_of(i % 2, (uint64_t)i);
    qsort(key, N, sizeof *key, by_key);
    for (int step = 0; step < STEPS; step++) {
        assert_ok(row_table_update(all, &(row_list){N, key, g}, &by));
        assert_ok(row_table_update(t, &(row_list){N, key, g}, &by));
        assert_true(row_table_cold(t) >= N - 1);
        assert_ok(row_table_cool(t));
        if (step == STEPS / 2) half = row_table_file(t);
    }
    expect_same(all, t, 0);
    assert_true(half > 0 && row_table_file(t) < half * 5 / 4);
    row_table_close(all), row_table_close(t);
}

// Rows of the next step are on their way when a step ends that updates nothing, as one is that is skipped. Some that
// had changed have to leave then.
static void test_a_skipped_step_ends_while_rows_are_read(void **state) {
    enum { N = 4000, NEW = 100, ROOM = 2000 };
    const row_options o = limited(*state, ROOM);
    const row_rules by = {1, 0.1f, 1e-10f};
    row_table *all = open_table(&usual), *t = open_table(&o);
    row_key *key = calloc(N, sizeof *key);
    float g[NEW * D];
    for (int i = 0; i < NEW * D; i++) g[i] = (float)(i % 5);
    make_keys(key, N, 0, 0);
    for (int i = 0; i < N; i += NEW) {
        assert_ok(row_table_update(all, &(row_list){NEW, key + i, g}, &by));
        assert_ok(row_table_update(t, &(row_list){NEW, key + i, g}, &by));
        assert_ok(row_table_cool(t));
    }
    int64_t before = row_table_cold(t);
    assert_ok(row_table_ahead(t, key, NEW));
    int64_t read = before - row_table_cold(t);
    assert_true(read > 0);
    assert_ok(row_table_cool(t));
    assert_true(row_table_cold(t) > before - read);
    expect_same(all, t, 0);
    row_table_close(all), row_table_close(t);
    free(key);
}

// A frame, which one row after the other takes: those that were only read leave without a write.
static void test_what_did_not_change_is_not_written(void **state) {
    enum { N = 30 };
    row_key key[N];
    float row[D], g[D] = {1};
    fault_list faults;
    row_options o = limited(*state, 1);
    assert_ok(fault_parse(&faults, "spill_read@1000000000,spill_write@1000000000"));
    o.faults = &faults;
    row_table *t = cold_table(&o, key, N);
    assert_true(atomic_load(&faults.seen[FAULT_SPILL_WRITE]) == N);
    for (int i = 0; i < 2 * N; i++) {
        long reads = atomic_load(&faults.seen[FAULT_SPILL_READ]);
        assert_ok(row_table_look(t, &key[i % N], 1, row));
        assert_true(row_table_cold(t) == N - 1 && atomic_load(&faults.seen[FAULT_SPILL_READ]) == reads + 1);
        if (i % 3 == 0) assert_ok(row_table_update(t, &(row_list){1, &key[i % N], g}, &(row_rules){1, 0.1f, 0}));
        assert_ok(row_table_cool(t));
        assert_true(row_table_cold(t) == N);
    }
    assert_true(atomic_load(&faults.seen[FAULT_SPILL_WRITE]) == N + 2 * N / 3);
    row_table_close(t);
}

// Whatever is wrong in a slot: what was written last is what is read, or an error that names file, slot and id. A slot
// is summed up by 64 bits at a time: of an odd width they are even, of an even one half a word is left.
static void damage_of_rows(place *p, int width) {
    enum { N = 40, AT = 3 };
    const int SLOT = 4 * (width + 2);
    row_key key[N];
    float row[N * D], g[N * D] = {0};
    row_options o = limited(p, 1);
    o.number = 7, o.width = width, o.memory = row_table_least(width);
    for (int byte = -1; byte < SLOT; byte += byte < 0 ? 1 : 3) {
        char slot[2][4 * (D + 2)], id[64];
        row_table *t = cold_table(&o, key, N);
        int fd = file_of_rows();
        snprintf(id, sizeof id, "slot %d at offset %d, id %d of table 0", AT, AT * SLOT, (int)row_id(key[AT]));
        assert_true(pread(fd, slot[0], SLOT, AT * SLOT) == SLOT && pread(fd, slot[1], SLOT, (AT + 1) * SLOT) == SLOT);
        if (byte == -1) memcpy(slot[0], slot[1], SLOT);  // another row's
        if (byte >= 0) slot[0][byte] ^= 4;
        assert_true(pwrite(fd, slot[0], SLOT, AT * SLOT) == SLOT);
        assert_false(row_table_is_lost(t));
        if (byte % 2) {
            assert_error(row_table_look(t, key, N, row), ERR_DATA, "rows-of-rank-7", id, "checksum 0x",
                         "Start again from the newest checkpoint");
        } else {
            row_walk w;
            row_table_begin(t, 0, &w);
            while (row_table_next(t, &w)) {}
            assert_error(w.rc, ERR_DATA, "rows-of-rank-7", id, "checksum 0x", "Start again from the newest checkpoint");
        }
        assert_true(row_table_is_lost(t));
        assert_error(row_table_update(t, &(row_list){N, key, g}, &(row_rules){1, 0.1f, 1}), ERR_DATA, id);
        assert_error(row_table_look(t, key, 1, row), ERR_DATA, id);
        row_table_close(t);
    }
}

static void test_damage_is_named(void **state) {
    damage_of_rows(*state, D);
    damage_of_rows(*state, D - 1);
}

// A row is written again, to the slot that it had, and the slot is as it was.
static void test_a_lost_write_is_found(void **state) {
    enum { SLOT = 4 * (D + 2) };
    char before[SLOT], after[SLOT];
    float row[D], g[D] = {1};
    row_key key;
    row_options o = limited(*state, 1);
    o.number = 7;
    row_table *t = cold_table(&o, &key, 1);
    int fd = file_of_rows();
    assert_true(pread(fd, before, SLOT, 0) == SLOT);
    assert_ok(row_table_update(t, &(row_list){1, &key, g}, &(row_rules){1, 0.1f, 1}));
    assert_ok(row_table_cool(t));
    assert_true(row_table_file(t) == SLOT && pread(fd, after, SLOT, 0) == SLOT && memcmp(before, after, SLOT) != 0);
    assert_ok(row_table_look(t, &key, 1, row));
    assert_ok(row_table_cool(t));
    assert_true(row_table_cold(t) == 1 && pwrite(fd, before, SLOT, 0) == SLOT);
    assert_error(row_table_look(t, &key, 1, row), ERR_DATA, "slot 0 at offset 0, id 0 of table 0: checksum 0x");
    row_table_close(t);
}

static void test_a_disk_that_fails_is_named(void **state) {
    enum { N = 40 };
    place *p = *state;
    row_key key[N];
    float row[N * D], g[D] = {1};
    fault_list faults;
    row_options o = limited(p, 1);
    o.number = 7, o.faults = &faults;
    assert_ok(fault_parse(&faults, "spill_read@9"));
    row_table *t = cold_table(&o, key, N);
    assert_error(row_table_look(t, key, N, row), ERR_IO, "rows-of-rank-7", "read of 28 bytes", ": slot ", "id ",
                 "of table 0: start again from the newest checkpoint");
    assert_true(row_table_is_lost(t));
    row_table_close(t);

    assert_ok(fault_parse(&faults, "spill_flip@1"));
    t = cold_table(&o, key, N);
    assert_error(row_table_look(t, key, N, row), ERR_DATA, "slot 0 at offset 0", "checksum 0x");
    row_table_close(t);

    assert_ok(fault_parse(&faults, "spill_write@45"));
    t = cold_table(&o, key, N);
    err_t rc = ERR_OK;
    char id[64] = "";
    for (int i = 0; i < N && rc == ERR_OK; i++) {
        snprintf(id, sizeof id, ", id %d of table 0: make room there, or use", (int)row_id(key[i]));
        rc = row_table_update(t, &(row_list){1, &key[i], g}, &(row_rules){1, 0.1f, 0});
        if (rc == ERR_OK) rc = row_table_cool(t);
    }
    assert_error(rc, ERR_IO, "rows-of-rank-7", "No space left on device: slot ", id);
    assert_true(row_table_is_lost(t));
    row_table_close(t);

    o.memory = 10000, o.dir = "/proc/none";
    assert_error(row_table_open(&t, &o), ERR_IO, "/proc/none");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_file_changes_no_bit, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_rows_are_put_past_the_limit, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_what_is_used_stays_and_a_step_pays_for_itself, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_as_many_leave_as_have_to, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_the_oldest_leave_first, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_what_is_held_is_the_limit, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_rows_that_are_put_are_of_no_step, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_slots_are_used_again, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_slots_of_rows_without_a_frame_are_used_again, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_a_skipped_step_ends_while_rows_are_read, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_what_did_not_change_is_not_written, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_damage_is_named, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_a_lost_write_is_found, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_a_disk_that_fails_is_named, place_enter, place_leave),
    };
    return cmocka_run_group_tests_name("table_file", tests, NULL, NULL);
}
