// test/test_table.c: rows that are made on demand (comm/server/): keys and ids are each other's, whatever the order of
// updates the same rows are there, growth loses none and is spread, a walk has all rows in order, and twenty steps have
// the bits of dense arrays in plain loops. Sums over lists skip who is absent. Rows in a file are in test_table_file.c.
#include "test/support/tables.h"

#include <math.h>

// --- keys ------------------------------------------------------------------------------------------------------------

static void test_a_key_has_its_id(void **state) {
    (void)state;
    const uint64_t id[] = {0, 1, 2, 1u << 31, 0x123456789abcdefu, UINT64_MAX, UINT64_MAX / 3};
    for (size_t i = 0; i < sizeof id / sizeof *id; i++)
        for (uint64_t table = 0; table < 64; table += 9) assert_true(row_id(row_key_of(table, id[i])) == id[i]);
    assert_true(row_key_of(0, 5).point != row_key_of(1, 5).point);  // the same id elsewhere has another owner
}

// To each owner as many as its weight says, to within one; to one of weight 0 none.
static void test_buckets_are_dealt_by_weight(void **state) {
    (void)state;
    enum { MOST = 1024 };
    static const int64_t uneven[] = {0, 1, 0, 3, 65536 * 9, 65536 * 9, 0};
    static int cut[MOST + 1];
    int64_t weight[MOST], all = 0;
    for (int world = 1; world <= MOST; world += 93) {
        row_cuts(cut, world, NULL);
        assert_true(cut[0] == 0 && cut[world] == ROW_BUCKETS);
        for (int r = 0; r < world; r++) assert_true(abs(cut[r + 1] - cut[r] - ROW_BUCKETS / world) <= 1);
    }
    row_cuts(cut, 3, NULL);
    assert_true(cut[1] == 1365 && cut[2] == 2730);
    row_cuts(cut, 4, uneven);
    assert_true(cut[1] == 0 && cut[2] == 1024 && cut[3] == 1024 && cut[4] == ROW_BUCKETS);
    row_cuts(cut, 7, uneven);  // the first four have hardly any
    assert_true(cut[4] == 0 && cut[5] == ROW_BUCKETS / 2 && cut[6] == ROW_BUCKETS && cut[7] == ROW_BUCKETS);
    for (int r = 0; r < MOST; r++) weight[r] = r % 5 ? 32768 : 65536, all += weight[r];
    row_cuts(cut, MOST, weight);
    for (int r = 0; r < MOST; r++)
        assert_true(fabs(cut[r + 1] - cut[r] - (double)ROW_BUCKETS * (double)weight[r] / (double)all) < 1);
}

// Of ids with few different ones, of many tables: against a sort of all pairs.
static void test_unique_keys_are_sorted(void **state) {
    (void)state;
    enum { N = 3000 };
    uint64_t id[N];
    row_key *key = calloc(N, sizeof *key), *more = calloc(N, sizeof *more), *all = calloc(N, sizeof *all);
    int32_t at[N], *scratch = calloc((size_t)row_unique_room(N), sizeof *scratch);
    for (int n = 0; n <= N; n = n < 3 ? n + 1 : n * 10) {
        for (int i = 0; i < n; i++) id[i] = (uint64_t)(draw((uint32_t)i, 1) % 400) * 0x100000001u;
        int64_t found = row_unique(id, n, TABLES, key, at, scratch, more), different = 0;
        for (int i = 0; i < n; i++) {
            assert_true(at[i] >= 0 && at[i] < found &&
                        row_equal(key[at[i]], row_key_of((uint64_t)(i % TABLES), id[i])));
            all[i] = key[at[i]];
        }
        qsort(all, (size_t)n, sizeof *all, by_key);
        for (int i = 0; i < n; i++)
            if (i == 0 || !row_equal(all[i], all[i - 1])) assert_true(row_equal(key[different++], all[i]));
        assert_true(different == found);
        for (int b = 0; b <= ROW_BUCKETS; b += 512) {
            int64_t k = 0;
            while (k < found && row_bucket(key[k]) < b) k++;
            assert_true(row_lower(key, found, b) == k);
        }
    }
    free(key), free(more), free(all), free(scratch);
}

// The id that has in the first table the point of the id 0 of the next one.
#define NEXT_TABLE 0x9e3779b97f4a7c15u

// Two ids can have the same point, each in a table of its own: they are two rows.
static void test_tables_share_points(void **state) {
    (void)state;
    enum { N = 6 };
    const uint64_t id[N] = {5 + NEXT_TABLE, 5, 9, 5 + NEXT_TABLE, 5, 9};  // of tables 0, 1, 2
    row_key key[N], more[N];
    int32_t at[N], scratch[64];
    assert_true(row_unique_room(N) <= 64 && row_unique(id, N, TABLES, key, at, scratch, more) == 3);
    assert_true(key[at[0]].point == key[at[1]].point && at[1] == at[0] + 1 && at[3] == at[0] && at[4] == at[1]);
    row_table *t = open_table(&usual);
    float rows[3 * D], one[3 * D] = {1, 1, 1, 1, 1, 2, 2, 2, 2, 2}, first[D];
    assert_true(row_table_missing(t, key, 3) == 3);
    assert_true(row_table_update(t, &(row_list){3, key, one}, &(row_rules){1, 0.5f, 0}) == ERR_OK);
    assert_true(row_table_rows(t) == 3 && row_table_missing(t, key, 3) == 0);
    assert_ok(row_table_look(t, key, 3, rows));
    for (int k = 0; k < 2; k++) {
        row_initial(&usual, key[k], first);
        assert_true(rows[k * D] == first[0] - (one[k * D] > 0 ? 0.5f : 0));
    }
    row_table_close(t);
}

// Of many points, each in all tables, some keys are looked for where those of other tables stand. Each finds its own.
static void test_tables_share_many_points(void **state) {
    (void)state;
    enum { N = 3000, POINTS = 400 };
    uint64_t id[N];
    row_key *key = calloc(N, sizeof *key), *more = calloc(N, sizeof *more);
    int32_t at[N], *scratch = calloc((size_t)row_unique_room(N), sizeof *scratch);
    for (uint64_t i = 0; i < N; i++) id[i] = i / TABLES % POINTS - i % TABLES * NEXT_TABLE;
    assert_int_equal(row_unique(id, N, TABLES, key, at, scratch, more), POINTS * TABLES);
    for (int k = 0; k < POINTS * TABLES; k++) {
        assert_true(k == 0 || row_less(key[k - 1], key[k]));
        assert_true(key[k].point == key[k / TABLES * TABLES].point && key[k].table == (uint64_t)k % TABLES);
    }
    for (int i = 0; i < N; i++) assert_true(row_equal(key[at[i]], row_key_of((uint64_t)(i % TABLES), id[i])));
    free(key), free(more), free(scratch);
}

// --- sums ------------------------------------------------------------------------------------------------------------

static void test_an_absent_row_is_skipped(void **state) {
    (void)state;
    row_key k[4];
    for (int i = 0; i < 4; i++) k[i] = (row_key){(uint64_t)(i / 2) << ROW_BUCKET_SHIFT, (uint64_t)i};
    row_key a_keys[] = {k[0], k[1], k[3]}, b_keys[] = {k[1], k[2]}, out_keys[5];
    float a_rows[] = {-0.0f, 1, 1e8f, 2, -0.0f, 7}, b_rows[] = {1, 0.5f, 3, -0.0f}, out_rows[10];
    const float wanted[] = {-0.0f, 1, 1e8f + 1, 2.5f, 3, -0.0f, -0.0f, 7};
    row_list a = {3, a_keys, a_rows}, b = {2, b_keys, b_rows}, out = {0, out_keys, out_rows}, none = {0};
    row_add(&out, &a, &b, 2);
    assert_true(out.n == 4 && memcmp(out_keys, k, sizeof k) == 0 && memcmp(out_rows, wanted, sizeof wanted) == 0);
    row_add(&out, &a, &none, 2);
    assert_true(out.n == 3 && memcmp(out_rows, a_rows, sizeof a_rows) == 0);
    row_add(&out, &none, &b, 2);
    assert_true(out.n == 2 && memcmp(out_rows, b_rows, sizeof b_rows) == 0);

    static double sums[ROW_BUCKETS];
    sums[0] = sums[2] = 3;
    row_squares(sums, &a, 2);
    assert_true(sums[0] == 1.0 + 1e8 * 1e8 + 4 && sums[1] == 49 && sums[2] == 0);
}

// --- rows ------------------------------------------------------------------------------------------------------------

// A dense model of ids 0 .. IDS-1 of each table.
typedef struct dense {
    float row[TABLES * IDS][D], sum[TABLES * IDS];
    bool there[TABLES * IDS];
} dense;

static void begin_dense(dense *x, const row_options *o) {
    memset(x, 0, sizeof *x);
    for (int t = 0; t < TABLES; t++)
        for (int i = 0; i < IDS; i++) row_initial(o, row_key_of((uint64_t)t, spread(i)), x->row[t * IDS + i]);
}

static void update_dense(dense *x, const batch *b, const row_rules *by) {
    for (int64_t k = 0; k < b->list.n; k++) {
        float *row = x->row[b->number[k]], *sum = &x->sum[b->number[k]], squares = 0;
        x->there[b->number[k]] = true;
        for (int c = 0; c < D; c++) {
            float g = by->factor * b->list.row[k * D + c];
            squares += g * g;
        }
        *sum += squares / D;
        for (int c = 0; c < D; c++) row[c] -= by->lr / (sqrtf(*sum) + by->eps) * (by->factor * b->list.row[k * D + c]);
    }
}

// A walk has the rows that the model has, in order, with their values.
static void expect_dense(row_table *t, const dense *x) {
    row_walk w;
    row_key before = {0};
    int64_t n = 0;
    row_table_begin(t, 0, &w);
    for (; row_table_next(t, &w); n++, before = w.key) {
        uint64_t id = row_id(w.key);
        int i = (int)w.key.table * IDS + (int)(id & 0xffff);
        assert_true((n == 0 || row_less(before, w.key)) && id == spread(i % IDS) && x->there[i]);
        assert_memory_equal(w.row, x->row[i], sizeof x->row[i]);
        assert_memory_equal(w.sum, &x->sum[i], sizeof x->sum[i]);
    }
    for (int i = 0; i < TABLES * IDS; i++) n -= x->there[i];
    assert_true(n == 0);
}

static void test_twenty_steps_have_the_bits_of_dense_arrays(void **state) {
    (void)state;
    dense *x = calloc(1, sizeof *x);
    row_table *t = open_table(&usual);
    batch *b = calloc(1, sizeof *b);
    float *seen = calloc(TABLES * IDS * D, sizeof *seen);
    bool grew = false;
    open_batch(b);
    begin_dense(x, &usual);
    for (int step = 0; step < 20; step++) {
        const row_rules by = {.factor = step % 3 ? 1 : 0.5f, .lr = 0.1f / (float)(1 + step), .eps = 1e-10f};
        make_batch(b, step, step == 10 ? 3 : 30);
        assert_ok(row_table_look(t, b->list.key, b->list.n, seen));
        for (int64_t k = 0; k < b->list.n; k++)
            assert_memory_equal(seen + k * D, x->row[b->number[k]], sizeof x->row[0]);
        assert_true(row_table_update(t, &b->list, &by) == ERR_OK);
        update_dense(x, b, &by);
        grew |= row_table_left(t) > 0;
        assert_ok(row_table_look(t, b->list.key, b->list.n, seen));
        for (int64_t k = 0; k < b->list.n; k++)
            assert_memory_equal(seen + k * D, x->row[b->number[k]], sizeof x->row[0]);
    }
    assert_true(grew && row_table_rows(t) > 5000);
    expect_dense(t, x);
    assert_ok(row_table_clear(t));
    assert_true(row_table_rows(t) == 0);
    begin_dense(x, &usual);
    expect_dense(t, x);
    row_table_close(t), close_batch(b), free(b), free(x), free(seen);
}

// The term that keeps AdaGrad from dividing by zero is added to the root, not below it: small gradients move a row as
// far as large ones do.
static void test_small_gradients_move_a_row(void **state) {
    (void)state;
    row_table *t = open_table(&usual);
    const row_key k = row_key_of(0, 7);
    float before[D], g[D], after[D];
    for (int c = 0; c < D; c++) g[c] = 1e-8f;
    assert_ok(row_table_look(t, &k, 1, before));
    assert_ok(row_table_update(t, &(row_list){1, (row_key *)&k, g}, &(row_rules){1, 0.5f, 1e-10f}));
    assert_ok(row_table_look(t, &k, 1, after));
    for (int c = 0; c < D; c++) assert_true(fabs(before[c] - after[c] - 0.5 / 1.01) < 1e-5);
    row_table_close(t);
}

// One row after the other, in the order of their keys, the other way round and in none: while the index grows, what is
// there is found at every moment, and no update moves more than four slots a row.
static void test_growth_is_spread_and_loses_nothing(void **state) {
    (void)state;
    enum { N = 9000 };
    row_key *key = calloc(N, sizeof *key);
    for (int i = 0; i < N; i++) key[i] = row_key_of(i % 2, (uint64_t)i * 3);
    for (int order = 0; order < 3; order++) {
        row_table *t = open_table(&usual);
        if (order) qsort(key, N, sizeof *key, by_key);
        for (int i = 0; i < N; i++) {
            row_key k = key[order == 2 ? N - 1 - i : i];
            float one[D] = {1, 2, 3, 4, 5}, row[D], first[D];
            int64_t left = row_table_left(t);
            assert_true(row_table_update(t, &(row_list){1, &k, one}, &(row_rules){1, 1, 0}) == ERR_OK);
            assert_true(row_table_left(t) <= left || left == 0);
            assert_true(left - row_table_left(t) <= 4 && row_table_rows(t) == i + 1);
            for (int back = 0; back <= i && back < 40; back += 13) {
                row_key old = key[order == 2 ? N - 1 - i + back : i - back];
                assert_ok(row_table_look(t, &old, 1, row));
                row_initial(&usual, old, first);
                assert_true(row[0] == first[0] - 1 / sqrtf(11) && row[4] == first[4] - 1 / sqrtf(11) * 5);
            }
        }
        row_walk w;
        int64_t n = 0;
        for (row_table_begin(t, 0, &w); row_table_next(t, &w);) n++;
        assert_true(n == N && row_table_left(t) == 0);
        row_table_close(t);
    }
    free(key);
}

// What is cleared while the index grows is gone, also what had not moved yet.
static void test_a_table_is_cleared_while_it_grows(void **state) {
    (void)state;
    row_table *t = open_table(&usual);
    row_walk w;
    float one[D] = {1, 2, 3, 4, 5}, row[D], first[D];
    uint64_t n = 0;
    for (; row_table_left(t) == 0; n++) {
        row_key k = row_key_of(0, n);
        assert_ok(row_table_update(t, &(row_list){1, &k, one}, &(row_rules){1, 1, 0}));
    }
    assert_ok(row_table_clear(t));
    assert_true(row_table_rows(t) == 0 && row_table_left(t) == 0);
    for (uint64_t i = 0; i < n; i++) {
        row_key k = row_key_of(0, i);
        assert_true(row_table_missing(t, &k, 1) == 1);
        assert_ok(row_table_look(t, &k, 1, row));
        row_initial(&usual, k, first);
        assert_memory_equal(row, first, sizeof row);
    }
    row_table_begin(t, 0, &w);
    assert_false(row_table_next(t, &w));
    row_table_close(t);
}

// Points that differ in their last bits alone have one home, at the end of the index: a run of more keys than a bucket
// should have, and next to it the end of memory.
static void test_collisions_at_the_end(void **state) {
    (void)state;
    enum { N = 6000 };
    const row_options last = {.width = 1, .seed = 1, .bound = 0, .first = ROW_BUCKETS - 1, .buckets = 1};
    row_table *t = open_table(&last);
    row_walk w;
    const float one = 1;
    for (int i = 0; i < N; i++) {
        uint64_t k = (uint64_t)(i * 7 % N);
        assert_true(row_table_put(t, (row_key){UINT64_MAX - k / 2, k % 2}, &(float){(float)k}, 0.5f) == ERR_OK);
    }
    row_table_begin(t, 0, &w);
    for (uint64_t k = N - 2, n = 0; n < N; n++, k = k % 2 ? k - 3 : k + 1) {
        assert_true(row_table_next(t, &w) && w.key.table == k % 2 && *w.row == (float)k && *w.sum == 0.5f);
    }
    assert_false(row_table_next(t, &w));
    assert_error(row_table_put(t, (row_key){UINT64_MAX, 1}, &one, 0), ERR_DATA, "is there twice");
    assert_error(row_table_put(t, (row_key){UINT64_MAX >> 1, 1}, &one, 0), ERR_DATA, "is another rank's");
    row_table_close(t);
}

// Owners of parts have together what one has, and a walk begins at any bucket.
static void test_owners_have_their_buckets(void **state) {
    (void)state;
    enum { OWNERS = 3 };
    row_table *all = open_table(&usual), *part[OWNERS];
    batch *b = calloc(1, sizeof *b);
    open_batch(b);
    make_batch(b, 3, 4);
    const row_rules by = {1, 0.1f, 1e-10f};
    memset(row_table_changed(all), false, ROW_BUCKETS);
    assert_true(row_table_update(all, &b->list, &by) == ERR_OK);
    for (int r = 0; r < OWNERS; r++) {
        row_options o = usual;
        o.first = first_bucket(r, OWNERS), o.buckets = first_bucket(r + 1, OWNERS) - o.first;
        part[r] = open_table(&o);
        int64_t from = row_lower(b->list.key, b->list.n, o.first),
                to = row_lower(b->list.key, b->list.n, o.first + o.buckets);
        row_list mine = {to - from, b->list.key + from, b->list.row + from * D};
        assert_true(mine.n > 900 && row_table_update(part[r], &mine, &by) == ERR_OK);
    }
    for (int bucket = 0; bucket < ROW_BUCKETS; bucket += 37) {
        row_walk w, p = {0};
        int r = 0;
        while (bucket >= first_bucket(r + 1, OWNERS)) r++;
        row_table_begin(all, bucket, &w);
        row_table_begin(part[r], bucket, &p);
        bool some = false;
        while (row_table_next(all, &w) && row_bucket(w.key) == bucket) {
            some = true;
            assert_true(row_table_next(part[r], &p) && row_equal(w.key, p.key) && *w.sum == *p.sum);
            assert_memory_equal(w.row, p.row, D * sizeof *w.row);
        }
        assert_true(row_table_changed(all)[bucket] == some);
    }
    // from before its buckets an owner has all of its rows, and after them none
    for (int r = 0; r < OWNERS; r++) {
        const row_options *o = row_table_about(part[r]);
        const int past[] = {o->first + o->buckets, ROW_BUCKETS - 1, ROW_BUCKETS};
        row_walk w;
        int64_t n = 0;
        for (row_table_begin(part[r], 0, &w); row_table_next(part[r], &w); n++) {}
        assert_int_equal(n, row_table_rows(part[r]));
        for (int i = 0; i < 3; i++) {
            row_table_begin(part[r], past[i], &w);
            if (past[i] >= o->first + o->buckets) assert_false(row_table_next(part[r], &w));
        }
    }
    for (int r = 0; r < OWNERS; r++) row_table_close(part[r]);
    row_table_close(all), close_batch(b), free(b);
}

// Values of a seed, a table and an id: within the bound, and others elsewhere.
static void test_initial_values(void **state) {
    (void)state;
    float a[D], b[D];
    double sum = 0, largest = 0;
    row_options other = usual;
    other.seed = 10;
    row_initial(&usual, row_key_of(0, 1), a);
    row_initial(&other, row_key_of(0, 1), b);
    assert_true(memcmp(a, b, sizeof a) != 0);
    row_initial(&usual, row_key_of(1, 1), b);
    assert_true(memcmp(a, b, sizeof a) != 0);
    row_initial(&usual, row_key_of(0, 1ull << 32 | 1), b);
    assert_true(memcmp(a, b, sizeof a) != 0);
    for (int i = 0; i < 2000; i++) {
        row_initial(&usual, row_key_of(0, (uint64_t)i), a);
        for (int c = 0; c < D; c++) sum += a[c], largest = fmax(largest, fabs(a[c]));
    }
    assert_true(largest <= 0.25 && largest > 0.2499 && fabs(sum) / (2000 * D) < 0.005);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_key_has_its_id),
        cmocka_unit_test(test_buckets_are_dealt_by_weight),
        cmocka_unit_test(test_unique_keys_are_sorted),
        cmocka_unit_test(test_tables_share_points),
        cmocka_unit_test(test_tables_share_many_points),
        cmocka_unit_test(test_an_absent_row_is_skipped),
        cmocka_unit_test(test_twenty_steps_have_the_bits_of_dense_arrays),
        cmocka_unit_test(test_small_gradients_move_a_row),
        cmocka_unit_test(test_growth_is_spread_and_loses_nothing),
        cmocka_unit_test(test_a_table_is_cleared_while_it_grows),
        cmocka_unit_test(test_collisions_at_the_end),
        cmocka_unit_test(test_owners_have_their_buckets),
        cmocka_unit_test(test_initial_values),
    };
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
