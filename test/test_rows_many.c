// test/test_rows_many.c: tables of many rows, and of wide ones (comm/server/table.h): of several segments in memory and
// several groups of slots in a file, they have the rows of a table that is all in memory, the limit holds, and what is
// cleared begins anew. Wide rows have the bits of a plain loop. Rows of others are refused, and blocks that a disk does
// not read or write are named.
#include "test/support/place.h"
#include "test/support/tables.h"

#include <math.h>

// n ids of a table from `first` on, each `step` after the one before, in order of their keys.
static void keys_apart(row_key *key, int64_t n, uint64_t first, uint64_t step) {
    for (int64_t i = 0; i < n; i++) key[i] = row_key_of(first % 2, first + (uint64_t)i * step);
    qsort(key, (size_t)n, sizeof *key, by_key);
}

// --- many ------------------------------------------------------------------------------------------------------------

enum { SEGMENT = 1 << 16, MANY = 180000, BATCH = 20000 };

static void expect_same(row_table *a, row_table *b) {
    row_walk x, y;
    int64_t n = 0;
    row_table_begin(a, 0, &x);
    for (row_table_begin(b, 0, &y); row_table_next(a, &x); n++)
        if (!row_table_next(b, &y) || !row_equal(x.key, y.key) || *x.row != *y.row || *x.sum != *y.sum)
            fail_msg("row %d is another", (int)n);
    assert_true(!row_table_next(b, &y) && y.rc == ERR_OK && n == row_table_rows(a));
}

// Rows are made, and then some of all are updated once more.
static void grow_both(row_table *all, row_table *t) {
    const row_rules by = {1, 0.1f, 1e-10f};
    row_key *key = calloc(BATCH, sizeof *key);
    float *g = calloc(BATCH, sizeof *g);
    for (int i = 0; i < BATCH; i++) g[i] = (float)(i % 7) - 3;
    for (int first = 0; first < MANY + 3; first += first < MANY ? BATCH : 1) {
        keys_apart(key, BATCH, (uint64_t)(first % MANY), first < MANY ? 1 : MANY / BATCH);
        assert_ok(row_table_update(all, &(row_list){BATCH, key, g}, &by));
        assert_ok(row_table_update(t, &(row_list){BATCH, key, g}, &by));
        assert_ok(row_table_cool(t));
    }
    free(key), free(g);
}

static void test_many_rows_are_in_segments_and_groups(void **state) {
    place *p = *state;
    const row_options usual = {.width = 1, .seed = 9, .bound = 0.25f, .first = 0, .buckets = ROW_BUCKETS};
    row_options o = usual;
    int64_t slots = 0, bytes = 0;
    o.memory = 110000 * row_table_frame_bytes(1), o.dir = p->dir;
    row_table *all = open_table(&usual), *t = open_table(&o);
    for (int round = 0; round < 2; round++) {
        grow_both(all, t);
        int64_t hot = row_table_rows(t) - row_table_cold(t), file = row_table_file(t) / (4 * (1 + 2));
        assert_true(hot > SEGMENT && row_table_cold(t) > SEGMENT && file > SEGMENT);
        assert_true(row_table_held(t) <= o.memory && row_table_held(t) > o.memory / 10 * 9);
        expect_same(all, t);
        if (round == 0) slots = file, bytes = row_table_bytes(t);
        else assert_true(file == slots && row_table_bytes(t) == bytes);  // all of it was free
        bool *changed = row_table_changed(t);
        memset(changed, false, ROW_BUCKETS);
        assert_ok(row_table_clear(all));
        assert_ok(row_table_clear(t));
        for (int b = 0; b < ROW_BUCKETS; b++) assert_true(changed[b]);
        assert_true(row_table_rows(t) == 0 && row_table_cold(t) == 0 && row_table_file(t) == 0);
    }
    row_table_close(all), row_table_close(t);
}

// --- wide ------------------------------------------------------------------------------------------------------------

// The mean of the squares is added up as the header says: element c to sum c % 16, and the sums in order.
static void test_wide_rows(void **state) {
    (void)state;
    enum { N = 40, STEPS = 5, WIDEST = 50 };
    static const int widths[] = {15, 16, 17, 32, WIDEST};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        const int D = widths[i];
        const row_options o = {.width = D, .seed = 3, .bound = 0.5f, .first = 0, .buckets = ROW_BUCKETS};
        row_table *t = open_table(&o);
        row_key key[N];
        float row[N][WIDEST], sum[N] = {0}, g[N * WIDEST], seen[N * WIDEST];
        keys_apart(key, N, 0, 1);
        for (int k = 0; k < N; k++) row_initial(&o, key[k], row[k]);
        for (int step = 0; step < STEPS; step++) {
            const row_rules by = {.factor = 0.3f, .lr = 0.1f, .eps = 1e-8f};
            for (int k = 0; k < N * D; k++) g[k] = (float)((k * 37 + step * 11) % 101 - 50) / 30;
            assert_ok(row_table_update(t, &(row_list){N, key, g}, &by));
            for (int k = 0; k < N; k++) {
                float part[16] = {0}, all = 0, squares;
                for (int c = 0; c < D; c++) squares = by.factor * g[k * D + c], part[c % 16] += squares * squares;
                for (int c = 0; c < 16; c++) all += part[c];
                sum[k] += all / (float)D;
                for (int c = 0; c < D; c++) row[k][c] -= by.lr / (sqrtf(sum[k]) + by.eps) * (by.factor * g[k * D + c]);
            }
        }
        assert_ok(row_table_look(t, key, N, seen));
        for (int k = 0; k < N; k++) assert_memory_equal(seen + k * D, row[k], (size_t)D * sizeof(float));
        row_walk w;
        row_table_begin(t, 0, &w);
        for (int k = 0; k < N; k++) assert_true(row_table_next(t, &w) && *w.sum == sum[k]);
        row_table_close(t);
    }
}

// --- whose -----------------------------------------------------------------------------------------------------------

static void test_rows_of_others_are_refused(void **state) {
    (void)state;
    const row_options o = {.width = 1, .seed = 1, .bound = 1, .first = 1000, .buckets = 24};
    const float one = 1;
    row_table *t = open_table(&o);
    memset(row_table_changed(t), false, ROW_BUCKETS);
    static const struct {
        uint64_t bucket;
        bool own;
    } rows[] = {{0, false}, {999, false}, {1000, true}, {1023, true}, {1024, false}, {ROW_BUCKETS - 1, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row_key k = {rows[i].bucket << ROW_BUCKET_SHIFT, 1};
        err_t rc = row_table_put(t, k, &one, 0);
        if (rows[i].own) assert_ok(rc);
        else assert_error(rc, ERR_DATA, "is another rank's");
        assert_true(row_table_changed(t)[rows[i].bucket] == rows[i].own);
    }
    assert_int_equal(row_table_rows(t), 2);
    row_table_close(t);
}

// --- what a disk refuses ---------------------------------------------------------------------------------------------

enum { NEW = 1500 };

// Memory for about 2000 rows, and blocks of many slots.
static row_table *open_half(place *p, fault_list *faults) {
    row_options o = {.width = 5, .seed = 9, .bound = 0.25f, .first = 0, .buckets = ROW_BUCKETS};
    o.memory = 2400 * row_table_frame_bytes(5), o.dir = p->dir, o.number = 7, o.faults = faults;
    return open_table(&o);
}

static err_t update(row_table *t, row_key *key) {
    float g[NEW * 5] = {0};
    return row_table_update(t, &(row_list){NEW, key, g}, &(row_rules){1, 0.1f, 1});
}

// The number that follows `text` in the last error.
static int64_t number_after(const char *text) {
    const char *at = strstr(err_last()->text, text);
    if (!at) fail_msg("%s: expected `%s`", err_last()->text, text);
    return atoll(at + strlen(text));
}

// More rows are made than memory has room for, so those after the first ones take slot after slot, batch after batch.
// Of a block that is not written its first new row is named; of one that is not read all of its slots.
static void test_blocks_that_fail_are_named(void **state) {
    place *p = *state;
    row_key key[2 * NEW];
    float row[5];
    fault_list faults;
    int64_t hot = 0, slots = 0;
    keys_apart(key, 2 * NEW, 0, 1);
    static const char *const when[] = {"spill_read@1000000000", "spill_write@1", "spill_write@2", "spill_read@1"};
    for (int k = 0; k < 4; k++) {
        assert_ok(fault_parse(&faults, when[k]));
        row_table *t = open_half(p, &faults);
        assert_ok(update(t, key));
        assert_true(row_table_cold(t) == 0);
        err_t rc = update(t, key + NEW);
        if (k == 0) {
            assert_ok(rc);
            hot = 2 * NEW - row_table_cold(t), slots = row_table_file(t) / (4 * (5 + 2));
        } else {
            assert_error(rc, ERR_IO, "rows-of-rank-7");
            assert_true(row_table_is_lost(t));
        }
        if (k == 1 || k == 2) {
            int64_t slot = number_after(": slot ");
            assert_true(k == 1 ? slot == 0 : slot > 0 && slot < slots);
            assert_true((uint64_t)number_after(", id ") == row_id(key[hot + slot]));
            assert_error(row_table_look(t, key + hot, 1, row), ERR_IO, "of table 0: make room there, or use another");
        }
        if (k == 3) {
            int64_t block = number_after("slots 0 to ") + 1;
            assert_true(block > 1 && slots % block == 0);
            assert_error(row_table_look(t, key + hot, 1, row), ERR_IO, ": start again from the newest checkpoint");
        }
        row_table_close(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_many_rows_are_in_segments_and_groups, place_enter, place_leave),
        cmocka_unit_test(test_wide_rows),
        cmocka_unit_test(test_rows_of_others_are_refused),
        cmocka_unit_test_setup_teardown(test_blocks_that_fail_are_named, place_enter, place_leave),
    };
    return cmocka_run_group_tests_name("rows_many", tests, NULL, NULL);
}
