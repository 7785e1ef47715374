// test/test_rows_file.c: files of rows on demand in checkpoints (trainer/checkpoint/rows.h): what is written is read by
// any ranks; files that are not as the manifest says are refused, whichever number is wrong; and digests are those of
// the rows, also where few buckets have changed.
#include "comm/server/table.h"
#include "model/safetensors.h"
#include "test/support/expect.h"
#include "test/support/place.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/rows.h"

#include <stdlib.h>
#include <string.h>

enum { D = 3, ROWS = 60 };

typedef struct saved {
    row_table *table;
    ckpt_state state;
    manifest m;
    char path[IO_PATH];
    // as in its file
    uint64_t id[ROWS];
    uint32_t number[ROWS];
    float row[ROWS][D], sum[ROWS];
} saved;

static const int all_buckets[] = {0, ROW_BUCKETS};  // of one rank

// The first bucket of a rank's, where all own as many.
static int first_bucket(int rank, int world) {
    int cut[world + 1];
    row_cuts(cut, world, NULL);
    return cut[rank];
}

static row_table *open_table(int rank, int world) {
    row_table *t;
    int first = first_bucket(rank, world), end = first_bucket(rank + 1, world);
    assert_ok(row_table_open(
        &t, &(row_options){.width = D, .seed = 4, .bound = 0.5f, .first = first, .buckets = end - first}));
    return t;
}

// One row after the other, so the order of ids does not matter. A row's gradient is of its number.
static void update(row_table *t, int from, int end) {
    for (int i = from; i < end; i++) {
        row_key k = row_key_of((uint64_t)i % 2, 5 * (uint64_t)i);
        float g[D] = {(float)i, 1, -1};
        assert_ok(row_table_update(t, &(row_list){1, &k, g}, &(row_rules){1, 0.25f, 1e-10f}));
    }
}

static void describe(saved *x) {
    assert_ok(ckpt_rows_digest(&x->state));
    x->m = (manifest){.world = 1, .file = calloc(1, sizeof *x->m.file)};
    assert_ok(ckpt_rows_describe(&x->m, &x->state));
    manifest_rows_part *p = x->m.rows.part;
    assert_true(x->m.rows.parts == 1 && x->m.rows.rows == ROWS && p->rows == ROWS && p->buckets == ROW_BUCKETS);
    rows_part_digest(x->state.row_digests, p->first, p->buckets, p->digest);
}

static saved *save(place *p) {
    saved *x = calloc(1, sizeof *x);
    row_walk w;
    x->table = open_table(0, 1);
    x->state = (ckpt_state){
        .rows = x->table, .row_cut = all_buckets, .rows_name = "tables", .row_digests = row_digests_open()};
    update(x->table, 0, ROWS);
    describe(x);
    snprintf(x->path, sizeof x->path, "%s", at(p, "table.safetensors"));
    assert_ok(ckpt_rows_write(&x->m, &x->state, x->path, 0, NULL));
    row_table_begin(x->table, 0, &w);
    for (int i = 0; row_table_next(x->table, &w); i++) {
        x->id[i] = row_id(w.key), x->number[i] = (uint32_t)w.key.table;
        memcpy(x->row[i], w.row, sizeof x->row[i]);
        x->sum[i] = *w.sum;
    }
    return x;
}

static void release(saved *x) {
    row_table_close(x->table);
    free(x->state.row_digests);
    manifest_close(&x->m);
    free(x);
}

static err_t read_file(const saved *x, const char *path, row_table *to, row_digests *digests) {
    st_file f;
    assert_ok(st_open(&f, path));
    err_t rc = ckpt_rows_read_part(&f, &x->m, 0, to, digests);
    st_close(&f);
    return rc;
}

static void test_any_ranks_read_what_is_written(void **state) {
    saved *x = save(*state);
    const size_t each = sizeof x->state.row_digests->of[0];
    row_digests *all = row_digests_open(), *empty = row_digests_open();
    for (int world = 1; world <= 3; world++) {
        row_walk w, own;
        row_table_begin(x->table, 0, &w);
        for (int rank = 0; rank < world; rank++) {
            row_table *t = open_table(rank, world);
            row_digests *digests = row_digests_open();
            assert_ok(read_file(x, x->path, t, digests));
            row_table_begin(t, 0, &own);
            while (row_table_next(t, &own)) {
                assert_true(row_table_next(x->table, &w) && row_equal(w.key, own.key) && *w.sum == *own.sum);
                assert_memory_equal(w.row, own.row, D * sizeof *w.row);
            }
            for (int b = 0; b < ROW_BUCKETS; b++) {
                bool mine = b >= first_bucket(rank, world) && b < first_bucket(rank + 1, world);
                assert_memory_equal(digests->of[b], mine ? x->state.row_digests->of[b] : empty->of[b], each);
            }
            row_table_close(t), free(digests);
        }
        assert_false(row_table_next(x->table, &w));
    }
    assert_ok(read_file(x, x->path, NULL, all));  // as `lockstep hash` does
    assert_memory_equal(all, x->state.row_digests, sizeof *all);
    assert_ok(read_file(x, x->path, NULL, NULL));
    free(all), free(empty);
    release(x);
}

typedef struct forged {
    int left_out;  // a tensor; -1: none
    st_type id, number, row, sum;
    int64_t rows, width;
    int dims;
} forged;

static void write_forged(const saved *x, const char *path, const forged *by) {
    static const char *const name[] = {"tables.id", "tables.table", "tables.row", "tables.sum"};
    const st_type type[] = {by->id, by->number, by->row, by->sum};
    const void *data[] = {x->id, x->number, x->row, x->sum};
    char zeros[4096] = {0};
    st_tensor t[4];
    st_writer w;
    int n = 0, of[4];
    for (int k = 0; k < 4; k++) {
        if (k == by->left_out) continue;
        t[n] = (st_tensor){.type = type[k], .dims = 1, .size = {k == 2 && by->dims == 1 ? ROWS * D : by->rows}};
        if (k == 2 && by->dims == 2) t[n].dims = 2, t[n].size[1] = by->width;
        snprintf(t[n].name, sizeof t[n].name, "%s", name[k]);
        of[n++] = k;
    }
    assert_ok(st_create(&w, path, t, n, NULL, NULL));
    for (int k = 0; k < n; k++) {
        bool whole = by->rows == ROWS && by->width == D;
        assert_ok(st_put(&w, whole ? data[of[k]] : zeros, (size_t)t[k].bytes));
    }
    int64_t bytes;
    assert_ok(st_finish(&w, &bytes));
}

static void test_other_tensors_are_named(void **state) {
    place *p = *state;
    saved *x = save(p);
    const char *path = at(p, "forged.safetensors");
    const forged right = {-1, ST_U64, ST_U32, ST_F32, ST_F32, ROWS, D, 2};
    write_forged(x, path, &right);
    assert_ok(read_file(x, path, NULL, NULL));
    static const char *const name[] = {"tables.id", "tables.table", "tables.row", "tables.sum"};
    char says[128];
    for (int k = 0; k < 4; k++) {
        forged by = right;
        by.left_out = k;
        write_forged(x, path, &by);
        snprintf(says, sizeof says, "forged.safetensors: tensor %s is missing", name[k]);
        assert_error(read_file(x, path, NULL, NULL), ERR_DATA, says);
        by = right;
        *(k == 0 ? &by.id : k == 1 ? &by.number : k == 2 ? &by.row : &by.sum) = k == 0 ? ST_I64 : ST_I32;
        write_forged(x, path, &by);
        snprintf(says, sizeof says, "tensor %s has another type or shape than the manifest says", name[k]);
        assert_error(read_file(x, path, NULL, NULL), ERR_DATA, says);
    }
    const forged shapes[] = {{-1, ST_U64, ST_U32, ST_F32, ST_F32, ROWS + 1, D, 2},
                             {-1, ST_U64, ST_U32, ST_F32, ST_F32, ROWS, D + 1, 2},
                             {-1, ST_U64, ST_U32, ST_F32, ST_F32, ROWS, D, 1}};
    for (int k = 0; k < 3; k++) {
        write_forged(x, path, &shapes[k]);
        snprintf(says, sizeof says, "tensor %s has another type or shape", k == 0 ? "tables.id" : "tables.row");
        assert_error(read_file(x, path, NULL, NULL), ERR_DATA, says);
    }
    release(x);
}

static void swap_rows(saved *x, int a, int b) {
    saved was = *x;
    x->id[a] = was.id[b], x->number[a] = was.number[b], x->sum[a] = was.sum[b];
    x->id[b] = was.id[a], x->number[b] = was.number[a], x->sum[b] = was.sum[a];
    memcpy(x->row[a], was.row[b], sizeof was.row[a]), memcpy(x->row[b], was.row[a], sizeof was.row[a]);
}

// Whichever number is another: nothing of it is used.
static void test_other_rows_are_damage(void **state) {
    place *p = *state;
    saved *x = save(p);
    const char *path = at(p, "forged.safetensors");
    const forged right = {-1, ST_U64, ST_U32, ST_F32, ST_F32, ROWS, D, 2};
    for (int k = 0; k < 7; k++) {
        saved was = *x;
        row_table *t = open_table(0, 1);
        row_digests *digests = row_digests_open(), *none = row_digests_open();
        if (k == 0) swap_rows(x, 7, 8);
        if (k == 1) x->id[8] = x->id[7], x->number[8] = x->number[7];  // twice
        if (k == 2) x->id[0] ^= 1;
        if (k == 3) x->number[ROWS - 1] ^= 1;
        if (k == 4) x->row[ROWS - 1][D - 1] += 1;
        if (k == 5) x->sum[ROWS - 1] += 1;
        if (k == 6) {  // rows beside those of its buckets, whose digest is right
            x->m.rows.part->first = 1, x->m.rows.part->buckets = ROW_BUCKETS / 2;
            rows_part_digest(x->state.row_digests, 1, ROW_BUCKETS / 2, x->m.rows.part->digest);
        }
        write_forged(x, path, &right);
        assert_error(read_file(x, path, t, digests), ERR_DATA, "forged.safetensors: the rows of buckets ",
                     k == 6 ? "1 to 2048 have" : "0 to 4095 have", "another digest than the manifest says");
        assert_memory_equal(digests, none, sizeof *none);
        row_table_close(t), free(digests), free(none);
        *x = was;
    }
    release(x);
}

// Most rows are in a file, and its disk fails while they are written to a checkpoint, or digested: what is said is the
// disk's, and which row it was about.
static void test_a_disk_that_fails_meanwhile_is_named(void **state) {
    place *p = *state;
    fault_list faults;
    saved *x = save(p);
    const row_options o = {.width = D,
                           .seed = 4,
                           .bound = 0.5f,
                           .buckets = ROW_BUCKETS,
                           .memory = row_table_least(D) + 3 * (row_table_frame_bytes(D) + 1),
                           .dir = p->dir,
                           .number = 3,
                           .faults = &faults};
    for (int k = 0; k < 3; k++) {
        row_table *all = x->state.rows;
        row_walk w;
        char path[IO_PATH], fault[64];
        assert_ok(fault_parse(&faults, "spill_read@1000000000"));
        assert_ok(row_table_open(&x->state.rows, &o));
        row_table_begin(all, 0, &w);
        while (row_table_next(all, &w)) assert_ok(row_table_put(x->state.rows, w.key, w.row, *w.sum));
        assert_true(row_table_cold(x->state.rows) > ROWS / 2);
        // of the four tensors two have values that are read; digests read each row once
        long reads = k == 0 ? 5 : k == 1 ? row_table_cold(x->state.rows) + 5 : 9;
        snprintf(fault, sizeof fault, "spill_read@%ld", reads);
        assert_ok(fault_parse(&faults, fault));
        snprintf(path, sizeof path, "%s", at(p, "again.safetensors"));
        err_t rc = k == 2 ? ckpt_rows_digest(&x->state) : ckpt_rows_write(&x->m, &x->state, path, 0, NULL);
        assert_error(rc, ERR_IO, "rows-of-rank-3", ": read of ", ": slot ", ", id ", " of table ",
                     "start again from the newest checkpoint");
        assert_true(row_table_is_lost(x->state.rows));
        row_table_close(x->state.rows);
        x->state.rows = all;
    }
    release(x);
}

static void count_beat(void *ctx) { ++*(int *)ctx; }

// Who watches the rank hears of each piece of 4096 rows: of each tensor that is written, and of all that is read.
static void test_each_piece_is_a_beat(void **state) {
    enum { MANY = 9000 };
    saved *x = calloc(1, sizeof *x);
    int beats = 0;
    x->table = open_table(0, 1);
    x->state = (ckpt_state){
        .rows = x->table, .row_cut = all_buckets, .rows_name = "tables", .row_digests = row_digests_open()};
    update(x->table, 0, MANY);
    assert_ok(ckpt_rows_digest(&x->state));
    x->m = (manifest){.world = 1, .file = calloc(1, sizeof *x->m.file)};
    assert_ok(ckpt_rows_describe(&x->m, &x->state));
    assert_true(x->m.rows.rows == MANY && x->m.rows.part->rows == MANY);
    rows_part_digest(x->state.row_digests, 0, ROW_BUCKETS, x->m.rows.part->digest);
    x->state.pulse = x->m.pulse = (ckpt_pulse){count_beat, &beats};
    snprintf(x->path, sizeof x->path, "%s", at(*state, "table.safetensors"));
    assert_ok(ckpt_rows_write(&x->m, &x->state, x->path, 0, NULL));
    assert_int_equal(beats, 4 * (MANY / 4096));
    beats = 0;
    assert_ok(read_file(x, x->path, NULL, NULL));
    assert_int_equal(beats, MANY / 4096 + 1);
    release(x);
}

// Digests of a table of which few buckets changed since the last ones are those of one that was made at once. The
// table's are of its name, its width, all values and all sums, and no build may change them.
static void test_digests_are_of_the_rows(void **state) {
    saved *x = save(*state), *more = calloc(1, sizeof *more);
    uint8_t of[2][CKPT_DIGEST], other[2][CKPT_DIGEST];
    more->table = open_table(0, 1);
    more->state = (ckpt_state){.rows = more->table, .row_digests = row_digests_open()};
    for (int from = 0; from < ROWS; from += 3) {
        update(more->table, from, from + 3);
        assert_ok(ckpt_rows_digest(&more->state));
    }
    assert_memory_equal(more->state.row_digests, x->state.row_digests, sizeof *x->state.row_digests);
    rows_table_digest(x->state.row_digests, "tables", D, of);
    static const uint8_t values[] = {0x81, 0xf8, 0xa2, 0x78}, sums[] = {0xa5, 0xcf, 0xfd, 0xc3};
    assert_memory_equal(of[ROWS_VALUES], values, sizeof values);
    assert_memory_equal(of[ROWS_SUMS], sums, sizeof sums);
    for (int k = 0; k < 2; k++) {
        rows_table_digest(x->state.row_digests, k ? "table" : "tables", k ? D : D + 1, other);
        assert_true(memcmp(of[0], other[0], CKPT_DIGEST) != 0 && memcmp(of[1], other[1], CKPT_DIGEST) != 0);
    }
    assert_ok(row_table_clear(more->table));
    assert_ok(ckpt_rows_digest(&more->state));
    row_digests *none = row_digests_open();
    assert_memory_equal(more->state.row_digests, none, sizeof *none);
    row_table_close(more->table), free(more->state.row_digests), free(more), free(none);
    release(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_any_ranks_read_what_is_written, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_other_tensors_are_named, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_other_rows_are_damage, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_a_disk_that_fails_meanwhile_is_named, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_each_piece_is_a_beat, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_digests_are_of_the_rows, place_enter, place_leave),
    };
    return cmocka_run_group_tests_name("rows_file", tests, NULL, NULL);
}
