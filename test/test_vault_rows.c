// test/test_vault_rows.c: rows on demand in snapshots: ranks that own them otherwise, on fewer nodes or on one, have
// all of their rows again and no others, whether rows came, went or are in a file; and what is damaged is not used.
#include "comm/server/table.h"
#include "test/support/checkpoint_ranks.h"
#include "trainer/checkpoint/rows.h"
#include "trainer/checkpoint/vault.h"

enum { WIDTH = 3, IDS = 6000, TABLES = 2, OLDER = 4, NEWER = 6 };

// Step `step` has every so-manyth id of each table; step 0 none, so that tables shrink as well as grow.
static bool is_there(int64_t id, int64_t step) { return step > 0 && id % (8 - step) == 0; }

static void row_of(float row[WIDTH + 1], int64_t table, int64_t id, int64_t step) {
    for (int k = 0; k <= WIDTH; k++) row[k] = (float)(id * 8 + step) + (float)(table * 4 + k) / 8;
}

// A job, its nodes' files, and how rows are shared out.
typedef struct vaults {
    job j;
    int fd[MOST_NODES];
    int64_t weight[PIPE_RANKS];
    int64_t memory, steps[2];  // bytes for rows, 0: all; the steps that are saved
} vaults;

typedef struct owned {
    int cut[PIPE_RANKS + 1];
    row_table *table;
    vault v;
} owned;

static void own(owned *o, rank_of *r) {
    const vaults *x = (const vaults *)(const void *)r->j;
    row_cuts(o->cut, r->c->world, x->weight);
    const int first = o->cut[r->rank];
    DOES(row_table_open(&o->table, &(row_options){.width = WIDTH,
                                                  .seed = 1,
                                                  .bound = 1,
                                                  .first = first,
                                                  .buckets = o->cut[r->rank + 1] - first,
                                                  .memory = o->cut[r->rank + 1] > first ? x->memory : 0,
                                                  .dir = r->dir,
                                                  .number = r->rank}));
    r->d.s.rows = o->table, r->d.s.row_cut = o->cut, r->d.s.rows_name = "tables", r->d.s.ranks = r->c;
    vault_open(&o->v, x->fd[r->j->on[r->node]], r->c->place[r->rank].local);
}

static void disown(owned *o, rank_of *r) {
    vault_close(&o->v);
    row_table_close(o->table);
    r->d.s.rows = NULL;
}

static bool is_mine(const owned *o, const rank_of *r, row_key k) {
    return row_bucket(k) >= o->cut[r->rank] && row_bucket(k) < o->cut[r->rank + 1];
}

static void fill_rows(owned *o, rank_of *r, int64_t step) {
    float row[WIDTH + 1];
    DOES(row_table_clear(o->table));
    for (int64_t table = 0; table < TABLES; table++)
        for (int64_t id = 0; id < IDS; id++) {
            const row_key k = row_key_of((uint64_t)table, (uint64_t)id);
            if (!is_there(id, step) || !is_mine(o, r, k)) continue;
            row_of(row, table, id, step);
            DOES(row_table_put(o->table, k, row, row[WIDTH]));
        }
}

static void check_rows(owned *o, rank_of *r, int64_t step) {
    int64_t rows = 0;
    float row[WIDTH + 1];
    row_walk w;
    for (row_table_begin(o->table, 0, &w); row_table_next(o->table, &w); rows++) {
        row_of(row, (int64_t)w.key.table, (int64_t)row_id(w.key), step);
        MUST(is_mine(o, r, w.key) && is_there((int64_t)row_id(w.key), step) && *w.sum == row[WIDTH] &&
                 memcmp(w.row, row, WIDTH * sizeof *row) == 0,
             "id %" PRIu64 " of table %" PRIu64 " is not as in step %" PRId64, row_id(w.key), w.key.table, step);
    }
    DOES(w.rc);
    for (int64_t table = 0; table < TABLES; table++)
        for (int64_t id = 0; id < IDS; id++)
            rows -= is_there(id, step) && is_mine(o, r, row_key_of((uint64_t)table, (uint64_t)id));
    MUST(rows == 0, "%" PRId64 " rows more than in step %" PRId64, rows, step);
}

static void body_keep(rank_of *r) {
    const vaults *x = (const vaults *)(const void *)r->j;
    owned o;
    own(&o, r);
    for (int k = 0; k < 2; k++) {
        fill_rows(&o, r, x->steps[k]);
        fill_dealt(&r->d, NEWER + k, r->j->salt);
        DOES(vault_save(&o.v, &r->d.s, &r->d.at, 0));
        DOES(vault_mirror(&o.v, r->c, r->d.s.s));
    }
    disown(&o, r);
}

// What is found is a whole step; rows that were here before are gone.
static void body_find(rank_of *r) {
    const vaults *x = (const vaults *)(const void *)r->j;
    vault_recall found = {.live = -1};
    owned o;
    own(&o, r);
    fill_rows(&o, r, OLDER - 1);
    memset(row_table_changed(o.table), 0, ROW_BUCKETS * sizeof(bool));
    fill_dealt(&r->d, 999, 0);
    DOES(vault_gather(&o.v, &r->d.s, &found, &r->d.at));
    r->out->step = found.step;
    check_rows(&o, r, found.step < 0 ? OLDER - 1 : x->steps[found.step - NEWER]);
    for (int b = o.cut[r->rank]; found.step >= 0 && b < o.cut[r->rank + 1]; b++)
        MUST(row_table_changed(o.table)[b], "bucket %d would not be digested again", b);
    disown(&o, r);
}

static void open_vaults(vaults *x, const nodes *n, int count, const int *ranks) {
    *x = (vaults){.j = {.where = n, .nodes = count, .deal = 1, .salt = 3}, .steps = {OLDER, NEWER}};
    for (int r = 0; r < PIPE_RANKS; r++) x->weight[r] = 1;
    for (int k = 0; k < count; k++) {
        x->j.ranks[k] = ranks[k], x->j.on[k] = k;
        x->fd[k] = vault_make();
        assert_true(x->fd[k] >= 0);
    }
}

static void close_vaults(vaults *x, int count) {
    for (int k = 0; k < count; k++) close(x->fd[k]);
    end_job(&x->j);
}

// Without node `lost`, and with so many ranks on each of the others.
static int64_t found_with(vaults *x, int count, const int *ranks, int lost) {
    x->j.nodes = 0, x->j.deal++;
    for (int k = 0; k < count; k++)
        if (k != lost) x->j.on[x->j.nodes] = k, x->j.ranks[x->j.nodes++] = ranks[k];
    all_ranks_do(&x->j, body_find);
    return same_on_all(&x->j)->step;
}

static void any_node_may_be_lost(void **state) {
    static const struct {
        int count, ranks[3], then[3];
    } of[] = {{1, {1}, {3}}, {1, {3}, {2}}, {2, {1, 1}, {1, 1}}, {2, {2, 1}, {1, 3}}, {3, {3, 1, 2}, {1, 2, 1}}};
    static const int64_t steps[][2] = {{OLDER, NEWER}, {NEWER, OLDER}, {NEWER, 0}, {0, 0}, {0, OLDER}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            vaults x;
            wipe(*state);
            open_vaults(&x, *state, of[i].count, of[i].ranks);
            memcpy(x.steps, steps[k], sizeof x.steps);
            all_ranks_do(&x.j, body_keep);
            for (int lost = of[i].count > 1 ? 0 : -1; lost < of[i].count && (of[i].count > 1 || lost < 0); lost++)
                assert_int_equal(found_with(&x, of[i].count, of[i].then, lost), NEWER + 1);
            close_vaults(&x, of[i].count);
        }
}

// Servers own what their weights say, and others nothing: before, after, or never.
static void ranks_may_own_none(void **state) {
    static const int64_t weights[][4] = {{0, 0, 3, 1}, {1, 0, 0, 0}, {0, 1, 0, 1}};
    const int ranks[] = {2, 2};
    for (int k = 0; k < 3; k++) {
        vaults x;
        wipe(*state);
        open_vaults(&x, *state, 2, ranks);
        memcpy(x.weight, weights[k], sizeof weights[k]);
        all_ranks_do(&x.j, body_keep);
        memcpy(x.weight, weights[(k + 1) % 3], sizeof weights[k]);
        assert_int_equal(found_with(&x, 2, ranks, -1), NEWER + 1);
        close_vaults(&x, 2);
    }
}

// Most of them are.
static void rows_may_be_in_a_file(void **state) {
    const int ranks[] = {2, 1};
    vaults x;
    wipe(*state);
    open_vaults(&x, *state, 2, ranks);
    x.memory = row_table_least(WIDTH) + 100 * row_table_frame_bytes(WIDTH);
    all_ranks_do(&x.j, body_keep);
    assert_int_equal(found_with(&x, 2, ranks, -1), NEWER + 1);
    assert_int_equal(found_with(&x, 2, ranks, 0), NEWER + 1);
    x.memory = 0;
    assert_int_equal(found_with(&x, 2, ranks, 1), NEWER + 1);
    close_vaults(&x, 2);
}

// Flips a bit of this row wherever a file has it. Returns how many it found.
static int damage(int fd, int64_t table, int64_t id, int64_t step) {
    const row_key k = row_key_of((uint64_t)table, (uint64_t)id);
    float row[WIDTH + 1];
    char wanted[sizeof k + sizeof row], room[1 << 16];
    int n = 0;
    row_of(row, table, id, step);
    memcpy(wanted, &k, sizeof k);
    memcpy(wanted + sizeof k, &row[WIDTH], sizeof *row);
    memcpy(wanted + sizeof k + sizeof *row, row, WIDTH * sizeof *row);
    for (off_t at = lseek(fd, 0, SEEK_DATA); at >= 0; at = lseek(fd, at, SEEK_DATA)) {
        ssize_t got = pread(fd, room, sizeof room, at);
        assert_true(got > 0);
        for (ssize_t i = 0; i + (ssize_t)sizeof wanted <= got; i += 4)
            if (memcmp(room + i, wanted, sizeof wanted) == 0) {
                room[i + (ssize_t)sizeof wanted - 1] ^= 1;
                assert_int_equal(pwrite(fd, room, (size_t)got, at), got);
                n++;
            }
        at += got - (got == sizeof room ? (ssize_t)sizeof wanted : 0);
    }
    return n;
}

// Of two copies of the newest snapshot the other one is used; without one, the snapshot before.
static void a_flipped_bit_is_not_used(void **state) {
    const int ranks[] = {1, 1}, id = 0;
    vaults x;
    wipe(*state);
    open_vaults(&x, *state, 2, ranks);
    all_ranks_do(&x.j, body_keep);
    int first = damage(x.fd[0], 1, id, NEWER);
    assert_true(first > 0);
    assert_int_equal(found_with(&x, 2, ranks, -1), NEWER + 1);
    int second = damage(x.fd[1], 1, id, NEWER);
    assert_int_equal(first + second, 2);
    assert_int_equal(found_with(&x, 2, ranks, -1), NEWER);
    close_vaults(&x, 2);
}

#define NODES(f) cmocka_unit_test_setup_teardown(f, enter_nodes, leave_nodes)
int main(void) {
    const struct CMUnitTest tests[] = {
        NODES(any_node_may_be_lost),
        NODES(ranks_may_own_none),
        NODES(rows_may_be_in_a_file),
        NODES(a_flipped_bit_is_not_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
