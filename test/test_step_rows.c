// test/test_step_rows.c: rows on demand in a step (trainer/step/rows.h), over one to four ranks whose rows are mostly
// in files, beside one that has all of them in memory: every micro-batch gets the same values, to the bit. What is
// looked for ahead is read before it is asked for, and its values are those after the update that comes between.
#include "base/philox.h"
#include "test/support/comm_ranks.h"
#include "test/support/place.h"
#include "trainer/step/state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "trainer/step/rows.h"

enum { D = 4, TABLES = 2, B = 3, LANES = 4, MICROS = 2, STEPS = 150, IDS = 800 };

static uint32_t draw(uint32_t a, uint32_t b) {
    uint32_t x[4];
    philox4x32(x, 5, a, b, 0, 0);
    return x[0];
}

// A rank's part of a run.
typedef struct part {
    model net;
    train_state t;
    step_rows x;
    device *dev;
    stream *s;
    arena memory;
    uint64_t ids[2][B][TABLES], next[B][TABLES];
    tensor in[2];
    fault_list faults;  // that are counted, and never come
    int cut[LANES + 1];
} part;

static void open_part(part *p, comm *c, int64_t memory, const char *dir, int64_t *deal, bool turns,
                      const int64_t *weight) {
    *p = (part){.net.table = {.tables = TABLES, .width = D, .bound = 0.1f}};
    p->t = (train_state){.net = &p->net, .ranks = c, .all = c, .turns = turns};
    p->t.o = (state_options){.lanes = LANES, .micros = MICROS, .deal = deal, .training = true};
    RUNS(fault_parse(&p->faults, "spill_read@1000000000"));
    row_cuts(p->cut, c->world, weight);
    p->t.row_cut = p->cut;
    RUNS(row_table_open(&p->t.rows, &(row_options){.width = D,
                                                   .seed = 3,
                                                   .bound = 0.1f,
                                                   .first = p->cut[c->rank],
                                                   .buckets = p->cut[c->rank + 1] - p->cut[c->rank],
                                                   .memory = memory,
                                                   .dir = dir,
                                                   .number = c->rank,
                                                   .faults = &p->faults}));
    RUNS(device_open(&p->dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    RUNS(stream_open(p->dev, &p->s));
    arena_open(&p->memory, p->dev, MEMORY_DEVICE);
    RUNS(step_rows_open(&p->x, &p->t, c, B, &p->memory));
    RUNS(arena_commit(&p->memory));
    for (int k = 0; k < 2; k++) {
        p->in[k] = (tensor){p->ids[k], INT32, 2, {B, 2 * TABLES, 1, 1}};
        p->x.set[k].ids = &p->in[k];
    }
}

static void close_part(part *p) {
    step_rows_close(&p->x);
    arena_close(&p->memory);
    stream_close(p->s);
    device_close(p->dev);
    row_table_close(p->t.rows);
}

// Few ids come often, others now and then.
static void fill_ids(uint64_t ids[B][TABLES], int step, int64_t lane, int64_t micro) {
    for (int i = 0; i < B * TABLES; i++) {
        uint32_t r = draw((uint32_t)(step * LANES * MICROS + lane * MICROS + micro), (uint32_t)i);
        ids[i / TABLES][i % TABLES] = (r >> 16) % (r % 3 ? IDS : 8) * 0x100000001u;
    }
}

static long reads(part *p) { return atomic_load(&p->faults.seen[FAULT_SPILL_READ]); }

static void fetch(part *p, int set, int step, int64_t lane, int64_t micro) {
    fill_ids(p->ids[set], step, lane, micro);
    RUNS(step_rows_fetch(&p->x, set, B, p->s));
}

// The micro-batch of set `now` is computed: its gradients depend on the row alone.
static void compute(part *p, int set, int64_t lane, int64_t micro) {
    p->x.now = set;
    const rows_set *k = &p->x.set[set];
    const row_key *key = k->key.data;
    float *g = p->x.gradient.data;
    for (int64_t i = 0; i < k->keys * D; i++)
        g[i] = (float)(draw((uint32_t)key[i / D].point, (uint32_t)(lane * 2 + micro + i % D)) % 200) / 100 - 1;
    step_rows_keep(&p->x, lane, micro, MICROS);
}

static void end_step(part *p) {
    RUNS(step_rows_send(&p->x, p->s));
    RUNS(step_rows_update(&p->x, &(step_state){.apply = 1, .grad_factor = 0.5f, .lr = 0.1f}));
}

// One rank with all lanes and all rows. Of lanes that are this rank's its values are copied.
typedef struct values {
    int64_t keys;
    int32_t index[B * TABLES];
    float of[B * TABLES * D];
} values;

static void one_step_alone(part *p, int step, values seen[LANES][MICROS]) {
    step_rows_begin(&p->x);
    for (int64_t u = 0; u < LANES * MICROS; u++) {
        int64_t lane = u / MICROS, micro = u % MICROS;
        values *v = &seen[lane][micro];
        const rows_set *k = &p->x.set[0];
        fetch(p, 0, step, lane, micro);
        v->keys = k->keys;
        memcpy(v->index, k->fetched.index.data, sizeof v->index);
        memcpy(v->of, k->values.data, (size_t)(k->keys * D) * sizeof *v->of);
        compute(p, 0, lane, micro);
    }
    end_step(p);
}

// As the list of actions has it (trainer/step/action.h). ahead, late (+=) how many rows of a step's first micro-batch
// were read before, and how many only when they were asked for.
static void one_step(part *p, int step, values seen[LANES][MICROS], long *ahead, long *late) {
    comm *c = p->x.ranks;
    const lane_table *t = &p->x.lanes;
    int64_t own = lane_table_count(t, c->rank) * MICROS, most = 0;
    for (int r = 0; r < c->world; r++) {
        int64_t n = lane_table_count(t, r) * MICROS;
        most = n > most ? n : most;
    }
    step_rows_begin(&p->x);
    long before = reads(p);
    for (int64_t u = own; u < most; u++) RUNS(step_rows_fetch(&p->x, 0, 0, p->s));
    const int64_t first = own ? lane_table_lane(t, c->rank, 0) : 0;
    if (own) fetch(p, 0, step, first, 0);
    else RUNS(step_rows_ahead(&p->x, 1, 0, p->s));
    if (own == most) *late += reads(p) - before;
    for (int64_t u = 0; u < own; u++) {
        int64_t lane = lane_table_lane(t, c->rank, u / MICROS), micro = u % MICROS;
        const values *v = &seen[lane][micro];
        const rows_set *k = &p->x.set[u % 2];
        CHECK(k->keys == v->keys && memcmp(k->fetched.index.data, v->index, sizeof v->index) == 0 &&
                  memcmp(k->values.data, v->of, (size_t)(k->keys * D) * sizeof *v->of) == 0,
              "step %d, lane %d, micro-batch %d: other rows than of one rank", step, (int)lane, (int)micro);
        p->x.now = (int)(u % 2);
        if (u + 1 < own)
            fetch(p, (int)((u + 1) % 2), step, lane_table_lane(t, c->rank, (u + 1) / MICROS), (u + 1) % MICROS);
        else {
            before = reads(p);
            fill_ids(p->next, step + 1, first, 0);
            p->x.next = p->next;
            RUNS(step_rows_ahead(&p->x, 1 - p->x.now, B, p->s));
            row_walk w;
            row_table_begin(p->t.rows, 0, &w);  // waits for them
            RUNS(w.rc);
            *ahead += reads(p) - before;
        }
        compute(p, (int)(u % 2), lane, micro);
    }
    end_step(p);
}

typedef struct share {
    const char *dir;
    int64_t *deal, *weight;  // lanes of each rank, and how many rows it owns beside the others; NULL: all alike
    int steps;
    bool turns;  // ... and one after the other, in place of ranges
} share;

static void same_values(comm *c, void *ctx) {
    const share *o = ctx;
    static part all, p;
    static values seen[LANES][MICROS];
    comm *self;
    long ahead = 0, late = 0, coldest = 0;
    RUNS(comm_self_open(&self));
    open_part(&all, self, 0, NULL, NULL, false, NULL);
    open_part(&p, c, 600 / c->world * row_table_frame_bytes(D), o->dir, o->deal, o->turns, o->weight);
    for (int step = 0; step < o->steps; step++) {
        one_step_alone(&all, step, seen);
        one_step(&p, step, seen, &ahead, &late);
        long cold = (long)row_table_cold(p.t.rows);
        coldest = cold > coldest ? cold : coldest;
    }
    // where more rows come than in the step before, some find no room
    CHECK(o->deal || (coldest > 0 && ahead > 50 && late < ahead / 2),
          "rank %d: %ld rows were cold, %ld read ahead, %ld late", c->rank, coldest, ahead, late);
    CHECK(!o->weight || o->weight[c->rank] || (row_table_rows(p.t.rows) == 0 && coldest == 0),
          "rank %d owns no rows, and has %ld", c->rank, (long)row_table_rows(p.t.rows));
    CHECK(!o->weight || !o->weight[c->rank] || row_table_rows(p.t.rows) > 0, "rank %d has no rows", c->rank);
    close_part(&p), close_part(&all);
    self->table->close(self);
}

static void every_micro_batch_gets_the_rows_of_one_rank(void **state) {
    place *p = *state;
    const layout near1 = NEAR(1), *const worlds[] = {&near1, &near2, &near3, &near4};
    share o = {p->dir, NULL, NULL, STEPS, false};
    for (size_t k = 0; k < sizeof worlds / sizeof *worlds; k++) run_ranks(worlds[k], 60, same_values, &o, 0);
}

// Lanes 1 and 2 are no siblings in the tree, though one rank has both; and some ranks have none.
static void any_deal_of_lanes_has_the_rows_of_one_rank(void **state) {
    place *p = *state;
    static struct {
        const layout *world;
        int64_t deal[4];
    } of[] = {{&near2, {1, 3}}, {&near2, {0, 4}}, {&near3, {1, 2, 1}}, {&near3, {3, 0, 1}}, {&near4, {0, 2, 2, 0}}};
    for (size_t k = 0; k < 2 * sizeof of / sizeof *of; k++)
        run_ranks(of[k / 2].world, 60, same_values, &(share){p->dir, of[k / 2].deal, NULL, 12, k % 2}, 0);
}

// Servers have rows and no lanes, and others no rows, or few.
static void servers_have_the_rows_of_one_rank(void **state) {
    place *p = *state;
    static struct {
        const layout *world;
        int64_t deal[4], weight[4];
    } of[] = {{&near2, {4, 0}, {0, 1}},
              {&near3, {3, 1, 0}, {0, 0, 7}},
              {&near4, {1, 3, 0, 0}, {1, 1, 4, 4}},
              {&near4, {0, 4, 0, 0}, {0, 0, 1, 1}}};
    for (size_t k = 0; k < 2 * sizeof of / sizeof *of; k++)
        run_ranks(of[k / 2].world, 60, same_values, &(share){p->dir, of[k / 2].deal, of[k / 2].weight, 12, k % 2}, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_micro_batch_gets_the_rows_of_one_rank, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(any_deal_of_lanes_has_the_rows_of_one_rank, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(servers_have_the_rows_of_one_rank, place_enter, place_leave),
    };
    return cmocka_run_group_tests_name("step_rows", tests, NULL, NULL);
}
