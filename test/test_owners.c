// test/test_owners.c: who owns what (trainer/step/zero.h) where ranks have weights, and which ranks are servers: pure
// functions, on many worlds. (Runs: test_ranks.c, test_servers.sh.)
#include "test/support/run.h"
#include "trainer/config/pipes.h"
#include "trainer/plan/plan_ranks.h"
#include "trainer/step/row_rules.h"

#include <stdint.h>

static const char wide[] =
    "[data]\nformat = raw16\n[model]\nlayers = 3\nheads = 4\nembed = 192\ncontext = 16\nvocab = 517\n[batch]\n"
    "global = 32\nmicro = 2\nlanes = 16\n[device]\nthreads = 1\n";

enum { WORLD_MOST = 9 };

static const int64_t weights[][WORLD_MOST] = {{1},
                                              {1, 1, 1},
                                              {0, 1},
                                              {0, 0, 1, 1},
                                              {0, 0, 0, 0, 0, 0, 0, 1},
                                              {16384, 16384, 65536},
                                              {1, 0, 5, 0, 0, 2},
                                              {3, 0, 0},
                                              {1, 1000000},
                                              {6554, 6554, 6554, 6554, 6554, 6554, 65536, 65536, 65536}};
static const int worlds[] = {1, 3, 2, 4, 8, 3, 6, 3, 2, 9};
enum { DEALS = sizeof worlds / sizeof *worlds };

typedef struct subject {
    char *dir;
    config c;
    model *net;
    row_rule *rules;
} subject;

static void open_subject(subject *x, const char *more) {
    x->dir = data_dir();
    load_config(&x->c, x->dir, wide, more);
    OK(model_open(&x->net, model_types[x->c.model.type], &x->c.model.of));
    OK(row_rules_open(&x->rules, x->net, &x->c.optimizer));
}

static void close_subject(subject *x) {
    free(x->rules);
    model_close(x->net);
    drop_dir(x->dir);
}

static zero_layout layout_of(const subject *x, int rank, int world, const int64_t *weight) {
    zero_layout z;
    OK(zero_open(&z, x->net, &(zero_options){.rank = rank, .world = world, .weight = weight, .bucket_bytes = 1 << 20}));
    return z;
}

// Marks each chunk of a rank's pieces. seen: [params][..] how often.
static void mark_chunks(const subject *x, const zero_layout *z, int (*seen)[512]) {
    for (int k = 0; k < z->owned; k++) {
        const zero_piece *p = &z->piece[k];
        int64_t whole = shape_count(x->net->param[p->row].dims, x->net->param[p->row].size);
        assert_int_equal(p->first % CHUNK, 0);
        assert_true(p->count % CHUNK == 0 || p->first + p->count == whole);
        for (int64_t at = p->first; at < p->first + p->count; at += CHUNK) {
            assert_in_range(at / CHUNK, 0, 511);
            seen[p->row][at / CHUNK]++;
        }
    }
}

static void expect_each_chunk_once(const subject *x, int world, const int64_t *weight) {
    int(*seen)[512] = calloc((size_t)x->net->params, sizeof *seen);
    size_t floats = 0;
    assert_non_null(seen);
    for (int rank = 0; rank < world; rank++) {
        zero_layout z = layout_of(x, rank, world, weight);
        mark_chunks(x, &z, seen);
        if (!weight[rank] && z.owned) fail_msg("rank %d of %d has no weight, and %d pieces", rank, world, z.owned);
        if (!weight[rank]) assert_int_equal(z.shard, 0);
        floats += z.shard;
        if (rank == world - 1) assert_int_equal(floats, z.slab);
        zero_close(&z);
    }
    for (int i = 0; i < x->net->params; i++) {
        int64_t n = shape_count(x->net->param[i].dims, x->net->param[i].size);
        for (int64_t k = 0; k * CHUNK < n; k++)
            if (seen[i][k] != 1) fail_msg("%s, chunk %d: %d owners", x->net->param[i].name, (int)k, seen[i][k]);
    }
    free(seen);
}

// In order of rank, and each as much of a segment as its weight says, but for a chunk.
static void expect_shares(const subject *x, int world, const int64_t *weight) {
    zero_layout z = layout_of(x, 0, world, weight);
    double all = 0;
    for (int k = 0; k < world; k++) all += (double)weight[k];
    for (int g = 0; g < z.segments; g++) {
        const size_t *cut = &z.cut[(size_t)g * (size_t)(world + 1)];
        assert_int_equal(cut[0], 0);
        assert_int_equal(cut[world], z.segment[g].count);
        for (int k = 0; k < world; k++) {
            double wanted = (double)z.segment[g].count * (double)weight[k] / all;
            assert_true(cut[k] <= cut[k + 1]);
            if (fabs((double)(cut[k + 1] - cut[k]) - wanted) >= CHUNK)
                fail_msg("segment %d, rank %d of %d: %zu floats, wanted %.0f", g, k, world, cut[k + 1] - cut[k],
                         wanted);
        }
    }
    zero_close(&z);
}

static void each_chunk_has_one_owner_and_each_rank_its_share(void **state) {
    (void)state;
    subject x;
    open_subject(&x, "");
    for (int i = 0; i < DEALS; i++) {
        expect_each_chunk_once(&x, worlds[i], weights[i]);
        expect_shares(&x, worlds[i], weights[i]);
    }
    close_subject(&x);
}

// Weights are relative: equal ones, however large, are none.
static void equal_weights_cut_as_none_do(void **state) {
    (void)state;
    static const char *const kinds[] = {"", "[optimizer]\ntype = muon\n"};
    for (int kind = 0; kind < 2; kind++) {
        subject x;
        open_subject(&x, kinds[kind]);
        for (int world = 1; world < WORLD_MOST; world++) {
            int64_t equal[WORLD_MOST];
            zero_layout plain = layout_of(&x, 0, world, NULL);
            for (int64_t each = 1; each <= 65536; each *= 256) {
                for (int k = 0; k < world; k++) equal[k] = each;
                zero_layout z = layout_of(&x, 0, world, equal);
                size_t cuts = (size_t)z.segments * (size_t)(world + 1);
                assert_memory_equal(z.cut, plain.cut, cuts * sizeof *z.cut);
                zero_close(&z);
            }
            zero_close(&plain);
        }
        close_subject(&x);
    }
}

// A matrix is whole on a rank that has a weight, and no rank has more than its share and the half of a matrix.
static void whole_matrices_go_by_weight(void **state) {
    (void)state;
    subject x;
    open_subject(&x, "[model]\nlayers = 12\n[optimizer]\ntype = muon\n");
    size_t largest = 0;
    for (int i = 0; i < x.net->params; i++) {
        size_t n = (size_t)param_slice_room(&x.net->param[i]);
        if (x.net->param[i].whole && n > largest) largest = n;
    }
    assert_true(largest > 4 * CHUNK);
    for (int i = 0; i < DEALS; i++) {
        double all = 0;
        expect_each_chunk_once(&x, worlds[i], weights[i]);
        for (int k = 0; k < worlds[i]; k++) all += (double)weights[i][k];
        for (int k = 0; k < worlds[i]; k++) {
            zero_layout z = layout_of(&x, k, worlds[i], weights[i]);
            double most = (double)z.slab * (double)weights[i][k] / all + (weights[i][k] ? (double)largest : 0);
            if ((double)z.shard > most) fail_msg("rank %d of deal %d: %zu floats, at most %.0f", k, i, z.shard, most);
            for (int j = 0; j < z.owned; j++) {
                const param *p = &x.net->param[z.piece[j].row];
                if (p->whole) assert_int_equal(z.piece[j].count, shape_count(p->dims, p->size));
            }
            zero_close(&z);
        }
    }
    close_subject(&x);
}

// What is planned once for buckets that are cut alike is what each of them takes by itself, after another deal too.
static void expect_reductions(session *s) {
    train_state *t = &s->state;
    int n = t->zero.buckets;
    for (int64_t turn = 0; turn < reduce_turns(t->reduce); turn++)
        for (int k = 0; k < n; k++) {
            const zero_bucket *b = &t->zero.bucket[k];
            const reduce_cost *planned = &t->reduction[turn * n + k];
            reduce_cost alone;
            OK(reduce_plan(t->reduce, turn, b->first, b->count, &alone));
            assert_int_equal(planned->scratch, alone.scratch);
            assert_memory_equal(&planned->moves, &alone.moves, sizeof alone.moves);
        }
}

static void buckets_cut_alike_cost_the_same(void **state) {
    (void)state;
    static const char *const kinds[] = {"", "[parallel]\nzero = 1\nslices = 2\n", "[parallel]\nzero = 3\n",
                                        "[optimizer]\ntype = muon\n"};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        subject x;
        plan_world w;
        char more[256];
        snprintf(more, sizeof more, "[model]\nlayers = 7\n[reduce]\nbucket_mb = 0.1\n%s", kinds[kind]);
        open_subject(&x, more);
        OK(plan_world_any(&w, "3x5x3"));
        for (int rank = 0; rank < w.world; rank += 4) {
            session s = {0};
            int alike = 0, others = 0;
            OK(plan_begin(&s, &x.c, rank, &w));
            const zero_layout *z = &s.state.zero;
            for (int k = 0; k < z->buckets; k++) alike += z->bucket[k].alike < k, others += z->bucket[k].alike == k;
            if (kind < 3) assert_true(alike >= 5 && others >= 2);  // layers; the head, and the tables of words
            expect_reductions(&s);
            session_close(&s);
        }
        plan_world_close(&w);
        close_subject(&x);
    }
}

// --- which ranks -----------------------------------------------------------------------------------------------------

static void servers_are_the_last_ranks_and_have_no_lanes(void **state) {
    (void)state;
    subject x;
    int64_t lanes[8];
    char role[COMM_ROLE], name[GRID_TEXT];
    open_subject(&x, "[server]\ncount = 2\n[parallel]\nzero = 1\n");
    grid g = config_grid(&x.c, 7);
    assert_int_equal(grid_workers(&g), 5);
    assert_true(pipe_lanes(&x.c, &g, lanes));
    for (int k = 0; k < 7; k++) {
        static const int64_t wanted[] = {3, 3, 3, 3, 4, 0, 0};
        assert_int_equal(lanes[k], wanted[k]);
        assert_int_equal(grid_serves(&g, k), k >= 5);
        assert_string_equal(grid_role(&g, k, role), k >= 5 ? ", server" : "");
    }
    assert_non_null(grid_channels(&g).role);
    assert_int_equal(grid_channels(&g).channels, 0);
    close_subject(&x);

    open_subject(&x, "[server]\ncount = 1\n[parallel]\nzero = 2\ntensor = 2\nslices = 2\ndeal = 0,16\n");
    g = config_grid(&x.c, 6);
    assert_int_equal(grid_workers(&g), 2);
    assert_true(pipe_lanes(&x.c, &g, lanes));
    assert_int_equal(lanes[0], 0);
    assert_int_equal(lanes[1], 16);
    assert_int_equal(lanes[2], 0);
    for (int k = 0; k < 6; k++) assert_int_equal(grid_serves(&g, k), k >= 4);
    assert_string_equal(grid_role(&g, 5, role), ", data 2, tensor 1, server");
    assert_non_null(strstr(grid_text(&g, 5, name), "rank 5 (stage 0, data 2, tensor 1)"));
    close_subject(&x);
}

// --- what each holds -------------------------------------------------------------------------------------------------

// All of the state is with the servers, once. They hold no gradient of a lane and read no data; others hold weights.
static void servers_hold_the_state_and_others_the_weights(void **state) {
    (void)state;
    enum { RANKS = 5, SERVERS = 2, SLACK = 4096 };
    static const char *const types[] = {"fp32", "bf16"};
    comm_place place[RANKS];
    for (int r = 0; r < RANKS; r++) place[r] = (comm_place){.local = r, .rank = r};
    for (int zero = 1; zero <= 3; zero++)
        for (int type = 0; type < 2; type++) {
            subject x;
            char more[160];
            size_t masters = 0, moments = 0;
            snprintf(more, sizeof more, "[server]\ncount = 2\n[parallel]\nzero = %d\n[precision]\ncompute = %s\n", zero,
                     types[type]);
            open_subject(&x, more);
            size_t values = (size_t)model_elements(x.net);
            for (int r = 0; r < RANKS; r++) {
                plan_rank p;
                bool serves = r >= RANKS - SERVERS;
                OK(plan_one(&x.c, r, RANKS, place, &p));
                if (serves) masters += p.masters, moments += p.moments;
                assert_int_equal(p.lanes == 0, serves);
                assert_int_equal(p.gradients == 0, serves);
                assert_int_equal(p.ring == 0, serves);
                if (!serves) assert_int_equal(p.moments + p.counters, 0);
                size_t whole = zero < 3 ? values * (type ? 2 : 4) : 0, held = p.masters + p.weights;
                // rows are filled up, and those that stay FP32 in 16-bit passes are here once more
                if (!serves && (held < whole || held > whole + whole / 20 + SLACK + (type ? 16 * SLACK : 0)))
                    fail_msg("zero %d, %s, rank %d: %zu bytes of weights, of %zu", zero, types[type], r, held, whole);
            }
            // with what fills rows up
            assert_in_range(masters, 4 * values, 4 * values + values / 2 + SLACK);
            assert_int_equal(moments, 2 * masters);
            close_subject(&x);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_chunk_has_one_owner_and_each_rank_its_share),
        cmocka_unit_test(equal_weights_cut_as_none_do),
        cmocka_unit_test(whole_matrices_go_by_weight),
        cmocka_unit_test(buckets_cut_alike_cost_the_same),
        cmocka_unit_test(servers_are_the_last_ranks_and_have_no_lanes),
        cmocka_unit_test(servers_hold_the_state_and_others_the_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
