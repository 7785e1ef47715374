// test/test_table.c: rows that are made on demand (comm/server/): keys and ids are each other's, whatever the order of
// updates the same rows are there, growth loses none and is spread, a walk has all rows in order, and twenty steps have
// the bits of dense arrays in plain loops. Sums over lists skip who is absent. With a limit of memory, and the rest of
// the rows in a file, all is the same, the limit holds, no step pays for the table, and no damage goes unseen.
#include "base/philox.h"
#include "comm/server/table.h"
#include "test/support/expect.h"
#include "test/support/place.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { D = 5, TABLES = 3 };

static const row_options usual = {.width = D, .seed = 9, .bound = 0.25f, .first = 0, .buckets = ROW_BUCKETS};

static uint32_t draw(uint32_t a, uint32_t b) {
    uint32_t x[4];
    philox4x32(x, 77, a, b, 0, 0);
    return x[0];
}

static row_table *open_table(const row_options *o) {
    row_table *t;
    assert_true(row_table_open(&t, o) == ERR_OK && row_table_rows(t) == 0);
    return t;
}

static int by_key(const void *a, const void *b) {
    return row_less(*(const row_key *)a, *(const row_key *)b) ? -1 : row_less(*(const row_key *)b, *(const row_key *)a);
}

// n ids of a table from `first` on, in order of their keys.
static void make_keys(row_key *key, int n, uint64_t table, uint64_t first) {
    for (int i = 0; i < n; i++) key[i] = row_key_of(table, first + (uint64_t)i);
    qsort(key, (size_t)n, sizeof *key, by_key);
}

// --- keys ------------------------------------------------------------------------------------------------------------

static void test_a_key_has_its_id(void **state) {
    (void)state;
    const uint64_t id[] = {0, 1, 2, 1u << 31, 0x123456789abcdefu, UINT64_MAX, UINT64_MAX / 3};
    for (size_t i = 0; i < sizeof id / sizeof *id; i++)
        for (uint64_t table = 0; table < 64; table += 9) assert_true(row_id(row_key_of(table, id[i])) == id[i]);
    assert_true(row_key_of(0, 5).point != row_key_of(1, 5).point);  // the same id elsewhere has another owner
    for (int r = 0, end = 0; r < 7; r++, end = row_first_bucket(r, 7)) assert_true(row_first_bucket(r, 7) == end);
    assert_true(row_first_bucket(7, 7) == ROW_BUCKETS && row_first_bucket(1, 3) == 1365);
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

// Two ids can have the same point, each in a table of its own: they are two rows.
static void test_tables_share_points(void **state) {
    (void)state;
    enum { N = 6 };
    const uint64_t golden = 0x9e3779b97f4a7c15u, id[N] = {5 + golden, 5, 9, 5 + golden, 5, 9};  // of tables 0, 1, 2
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

// A dense model of ids 0 .. IDS-1 of each table, spread over 64 bits.
enum { IDS = 4000 };
static uint64_t spread(int i) { return (uint64_t)i << 40 | (uint64_t)i; }

typedef struct dense {
    float row[TABLES * IDS][D], sum[TABLES * IDS];
    bool there[TABLES * IDS];
} dense;

static void begin_dense(dense *x, const row_options *o) {
    memset(x, 0, sizeof *x);
    for (int t = 0; t < TABLES; t++)
        for (int i = 0; i < IDS; i++) row_initial(o, row_key_of((uint64_t)t, spread(i)), x->row[t * IDS + i]);
}

typedef struct batch {
    row_list list;
    int number[TABLES * IDS];  // of each row, in the dense model
} batch;

// Some of the rows, with gradients.
static void make_batch(batch *b, int step, int share) {
    row_key key[1];
    b->list.n = 0;
    static struct {
        row_key key;
        int number;
    } all[TABLES * IDS];
    for (int i = 0; i < TABLES * IDS; i++) {
        if (draw((uint32_t)i, (uint32_t)step) % (uint32_t)share) continue;
        key[0] = row_key_of((uint64_t)(i / IDS), spread(i % IDS));
        all[b->list.n].key = key[0], all[b->list.n++].number = i;
    }
    qsort(all, (size_t)b->list.n, sizeof *all, by_key);
    for (int64_t k = 0; k < b->list.n; k++) {
        b->list.key[k] = all[k].key, b->number[k] = all[k].number;
        for (int c = 0; c < D; c++)
            b->list.row[k * D + c] =
                (float)((int)(draw((uint32_t)b->number[k], (uint32_t)(100 + 7 * step + c)) % 2001) - 1000) / 300;
    }
}

static void open_batch(batch *b) {
    b->list.key = calloc(TABLES * IDS, sizeof *b->list.key);
    b->list.row = calloc(TABLES * IDS * D, sizeof *b->list.row);
}
static void close_batch(batch *b) { free(b->list.key), free(b->list.row); }

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
        o.first = row_first_bucket(r, OWNERS), o.buckets = row_first_bucket(r + 1, OWNERS) - o.first;
        part[r] = open_table(&o);
        int64_t from = row_lower(b->list.key, b->list.n, o.first),
                to = row_lower(b->list.key, b->list.n, o.first + o.buckets);
        row_list mine = {to - from, b->list.key + from, b->list.row + from * D};
        assert_true(mine.n > 900 && row_table_update(part[r], &mine, &by) == ERR_OK);
    }
    for (int bucket = 0; bucket < ROW_BUCKETS; bucket += 37) {
        row_walk w, p = {0};
        int r = 0;
        while (bucket >= row_first_bucket(r + 1, OWNERS)) r++;
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

// --- with a file -----------------------------------------------------------------------------------------------------

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
    o.faults = &faults;
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
        cmocka_unit_test(test_a_key_has_its_id),
        cmocka_unit_test(test_unique_keys_are_sorted),
        cmocka_unit_test(test_tables_share_points),
        cmocka_unit_test(test_an_absent_row_is_skipped),
        cmocka_unit_test(test_twenty_steps_have_the_bits_of_dense_arrays),
        cmocka_unit_test(test_growth_is_spread_and_loses_nothing),
        cmocka_unit_test(test_a_table_is_cleared_while_it_grows),
        cmocka_unit_test(test_collisions_at_the_end),
        cmocka_unit_test(test_owners_have_their_buckets),
        cmocka_unit_test(test_initial_values),
        cmocka_unit_test_setup_teardown(test_a_file_changes_no_bit, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_rows_are_put_past_the_limit, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_what_is_used_stays_and_a_step_pays_for_itself, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_as_many_leave_as_have_to, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_slots_are_used_again, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_slots_of_rows_without_a_frame_are_used_again, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_a_skipped_step_ends_while_rows_are_read, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_what_did_not_change_is_not_written, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_damage_is_named, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_a_lost_write_is_found, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_a_disk_that_fails_is_named, place_enter, place_leave),
    };
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
