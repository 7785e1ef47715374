// test/test_ordered.c: the lanes' tree. Buffers hold the text of the sum they stand for, so that an order is seen and
// not inferred.
#include "comm/cost.h"
#include "comm/ordered.h"
#include "comm/reduce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { TEXT = 512, BUFFERS = 32 };

typedef struct holder {
    lane_counter c;
    char text[BUFFERS][TEXT];
} holder;

static void push(holder *h, int64_t first, int64_t size, const char *text) {
    int b = lane_counter_free(&h->c), into, from;
    snprintf(h->text[b], TEXT, "%s", text);
    lane_counter_push(&h->c, (lane_span){first, size, b});
    while (lane_counter_merge(&h->c, &into, &from)) {
        char sum[TEXT];
        assert_true(snprintf(sum, TEXT, "(%s+%s)", h->text[into], h->text[from]) < TEXT);
        strcpy(h->text[into], sum);
        strcpy(h->text[from], "?");
    }
}

static void run_lanes(holder *h, int64_t first, int64_t count) {
    for (int64_t l = first; l < first + count; l++) {
        char name[16];
        snprintf(name, sizeof name, "%d", (int)l);
        push(h, l, 1, name);
    }
}

static void tree_is_the_balanced_one(void **state) {
    (void)state;
    holder h = {0};
    run_lanes(&h, 0, 8);
    assert_int_equal(h.c.count, 1);
    assert_string_equal(h.text[h.c.span[0].buffer], "(((0+1)+(2+3))+((4+5)+(6+7)))");
}

// Every way to cut 8 lanes into contiguous ranges, each range a rank; ranks' leftovers merged in order.
static void every_split_gives_the_same_sum(void **state) {
    (void)state;
    enum { L = 8 };
    holder whole = {0};
    run_lanes(&whole, 0, L);
    for (int cuts = 0; cuts < 1 << (L - 1); cuts++) {
        holder all = {0};
        for (int from = 0, to; from < L; from = to) {
            holder rank = {0};
            for (to = from + 1; to < L && !(cuts >> (to - 1) & 1); to++) {}
            run_lanes(&rank, from, to - from);
            for (int i = 0; i < rank.c.count; i++) {
                lane_span s = rank.c.span[i];
                push(&all, s.first, s.size, rank.text[s.buffer]);
            }
        }
        assert_int_equal(all.c.count, 1);
        assert_string_equal(all.text[all.c.span[0].buffer], whole.text[whole.c.span[0].buffer]);
    }
}

static void only_siblings_are_added(void **state) {
    (void)state;
    holder h = {0};
    run_lanes(&h, 3, 4);  // 3 | 4 5 | 6: nothing but 4+5 may meet
    assert_int_equal(h.c.count, 3);
    assert_string_equal(h.text[h.c.span[1].buffer], "(4+5)");
}

static void buffers_are_as_many_as_planned(void **state) {
    (void)state;
    assert_int_equal(lane_counter_buffers(0, 1, false), 1);
    assert_int_equal(lane_counter_buffers(0, 2, false), 2);
    assert_int_equal(lane_counter_buffers(0, 8, false), 4);
    assert_int_equal(lane_counter_buffers(0, 64, false), 7);
    assert_int_equal(lane_counter_buffers(1, 7, false), 5);  // 1, 2+3, 4+5, 6, and 7 while it is filled
    assert_int_equal(lane_counter_buffers(0, 2, true), 1);   // one micro-batch a lane: 1 goes on top of 0
    assert_int_equal(lane_counter_buffers(0, 8, true), 3);
    assert_int_equal(lane_counter_buffers(1, 2, true), 2);  // no siblings
    for (int first = 0; first < 16; first++)
        for (int count = 1; first + count <= 16; count++) {
            lane_counter joined = lane_counter_of(first, count, true), apart = lane_counter_of(first, count, false);
            assert_int_equal(joined.count, apart.count);
            for (int i = 0; i < joined.count; i++)
                assert_true(joined.span[i].first == apart.span[i].first && joined.span[i].size == apart.span[i].size);
            holder h = {0};
            for (int64_t l = first; l < first + count; l++) {
                assert_true(lane_counter_free(&h.c) < lane_counter_buffers(first, count, false));
                run_lanes(&h, l, 1);
            }
        }
}

// Where lanes take turns, an owner keeps a buffer for each subtree that is complete before a turn, and none besides.
static void owners_keep_as_few_buffers_as_there_are_sums(void **state) {
    (void)state;
    enum { WORLDS = 6 };
    for (int world = 1; world <= WORLDS; world++)
        for (int lanes = 1; lanes <= 32; lanes++) {
            comm_place place[WORLDS] = {0};
            size_t cut[WORLDS + 1] = {0};
            comm *ranks;
            reducer *r;
            int most = 0;
            assert_int_equal(comm_imaginary_open(&ranks, 0, world, place), ERR_OK);
            reduce_options o = {.ranks = ranks, .lanes = lanes, .turns = true, .segments = 1, .cut = cut};
            assert_int_equal(reduce_open(&r, &o), ERR_OK);
            for (int64_t turn = 0; turn < reduce_turns(r); turn++) {
                int sums = __builtin_popcountll((unsigned long long)(turn * world));
                most = sums > most ? sums : most;
            }
            if (reduce_kept(r) != most)
                fail_msg("%d lanes on %d ranks: %d kept, expected %d", lanes, world, reduce_kept(r), most);
            reduce_close(r);
            ranks->table->close(ranks);
        }
}

// What a world is planned for is enough for any deal in it, and not more than some deal needs.
static void the_worst_range_and_the_worst_deal_are_known(void **state) {
    (void)state;
    for (int lanes = 1; lanes <= 64; lanes *= 2)
        for (int once = 0; once <= 1; once++) {
            int most = 0;
            for (int first = 0; first < lanes; first++)
                for (int count = 1; first + count <= lanes; count++) {
                    int n = lane_counter_buffers(first, count, once);
                    most = n > most ? n : most;
                }
            assert_int_equal(lane_counter_most(lanes, once), most);
        }
    for (int lanes = 2; lanes <= 32; lanes *= 2)
        for (int a = 0; a <= lanes; a++)
            for (int b = a; b <= lanes; b++) {
                int two = lane_counter_of(0, a, false).count + lane_counter_of(a, lanes - a, false).count,
                    three = lane_counter_of(0, a, false).count + lane_counter_of(a, b - a, false).count +
                            lane_counter_of(b, lanes - b, false).count;
                assert_true(two <= lane_spans_most(lanes, 2) && three <= lane_spans_most(lanes, 3));
            }
}

// Nodes of `each` ranks, racks of `nodes` nodes; of a node `joined` ranks each are joined.
static comm_cost sums_cost(int world, int each, int joined, int nodes, int lanes, size_t *gathered) {
    enum { WORLDS = 16, EACH = 1000 };
    comm_place place[WORLDS];
    size_t cut[WORLDS + 1];
    comm_cost all = {0}, gather = {0};
    for (int r = 0; r <= world; r++) cut[r] = (size_t)r * EACH;
    for (int r = 0; r < world; r++)
        place[r] = (comm_place){
            .node = r / each, .local = r % each, .rank = r, .rack = r / each / nodes, .join = r % each / joined};
    for (int rank = 0; rank < world; rank++) {
        comm *ranks;
        reducer *r;
        reduce_cost one;
        assert_int_equal(comm_imaginary_open(&ranks, rank, world, place), ERR_OK);
        reduce_options o = {.ranks = ranks, .lanes = lanes, .segments = 1, .cut = cut};
        assert_int_equal(reduce_open(&r, &o), ERR_OK);
        assert_int_equal(reduce_plan(r, 0, 0, 1, &one), ERR_OK);
        all = cost_add(all, one.moves), gather = cost_add(gather, cost_all_gather(ranks, cut));
        reduce_close(r);
        ranks->table->close(ranks);
    }
    // what is gathered enters each node and each rack once
    assert_int_equal(gather.sent, cut[world] * (size_t)(world - 1));
    assert_int_equal(gather.sent_far, cut[world] * (size_t)(world / each - 1));
    assert_int_equal(gather.sent_racks, cut[world] * (size_t)(world / each / nodes - 1));
    *gathered = cut[world] * sizeof(float);
    return all;
}

// Where each node and each rack has one subtree, each sends of all elements what others own, once.
static void sums_leave_each_rack_once(void **state) {
    (void)state;
    for (int each = 1; each <= 4; each *= 2)
        for (int nodes = 1; nodes <= 4; nodes *= 2)
            for (int racks = 1; each * nodes * racks <= 16 && racks <= 4; racks *= 2) {
                int world = each * nodes * racks;
                size_t n;
                comm_cost x = sums_cost(world, each, each, nodes, 16, &n);
                assert_int_equal(x.sent_racks, (size_t)(racks - 1) * n);
                assert_int_equal(x.sent_far, (size_t)(nodes * racks - 1) * n);
                assert_int_equal(x.sent, (size_t)(world - 1) * n);
            }
    size_t n;
    comm_cost x = sums_cost(12, 2, 2, 3, 4, &n);  // lanes 0, 1 | 2, 3 in two racks of three nodes
    assert_int_equal(x.sent_racks, n);
}

// Each group of joined ranks, too; without them each rank sends the others of its node what they own.
static void sums_leave_joined_ranks_once(void **state) {
    (void)state;
    size_t n;
    for (int joined = 1; joined <= 8; joined *= 2) {
        comm_cost x = sums_cost(8, 8, joined, 1, 16, &n), y = sums_cost(16, 8, joined, 1, 16, &n);
        assert_int_equal(x.sent_apart, (size_t)(8 / joined - 1) * (n / 2));
        assert_int_equal(x.sent, 7 * (n / 2));
        assert_int_equal(y.sent_apart, (size_t)(16 / joined - 1) * n);
        assert_int_equal(y.sent_far, n);
    }
}

static int64_t lanes_run(const lane_table *t, int rank, bool *ran) {
    int64_t n = lane_table_count(t, rank), before = -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t lane = lane_table_lane(t, rank, i);
        assert_true(lane > before && lane < t->lanes && !ran[lane]);
        ran[lane] = true, before = lane;
    }
    if (t->turns) assert_int_equal(lane_table_at(t, rank, n / lane_table_span(t)), -1);
    return n;
}

// In turns the lanes of a turn follow each other, in order of rank; those of a rank are a subtree.
static void expect_turns(const lane_table *t) {
    int64_t next = 0, span = lane_table_span(t);
    for (int64_t turn = 0; turn < lane_table_turns(t); turn++)
        for (int k = 0; k < t->world; k++) {
            int64_t lane = lane_table_at(t, k, turn);
            if (lane < 0) continue;
            assert_int_equal(lane, next);
            for (int64_t i = 0; i < span; i++) assert_int_equal(lane_table_lane(t, k, turn * span + i), next++);
        }
    assert_int_equal(next, t->lanes);
}

static uint32_t draw(uint32_t *seed) { return *seed = *seed * 1664525 + 1013904223, *seed >> 8; }

static void every_lane_is_run_once_in_any_deal(void **state) {
    (void)state;
    uint32_t seed = 1;
    for (int i = 0; i < 2000; i++) {
        int world = 1 + (int)(draw(&seed) % 9), lanes = 1 << draw(&seed) % 7;
        int64_t count[9] = {0}, sum = 0;
        bool turns = i % 2, ran[64] = {0};
        int span = turns && lanes >= 4 ? 1 << draw(&seed) % 3 : 1;
        for (int l = 0; l < lanes; l += span) count[draw(&seed) % (1 + draw(&seed) % (uint32_t)world)] += span;
        lane_table t = {lanes, world, turns, count, span};
        for (int k = 0; k < world; k++) sum += lanes_run(&t, k, ran);
        assert_int_equal(sum, lanes);
        if (turns) expect_turns(&t);
    }
}

// A list that says what holds without one changes nothing.
static void the_equal_deal_is_the_one_without_a_list(void **state) {
    (void)state;
    for (int world = 1; world <= 9; world++)
        for (int lanes = 1; lanes <= 64; lanes++)
            for (int turns = 0; turns <= 2; turns++) {
                if (turns == 2 && lanes % 4) continue;
                lane_table plain = {lanes, world, turns > 0, NULL, turns == 2 ? 4 : 0}, listed = plain;
                int64_t count[9];
                for (int k = 0; k < world; k++) count[k] = lane_table_count(&plain, k);
                listed.count = count;
                assert_int_equal(lane_table_turns(&plain), lane_table_turns(&listed));
                for (int k = 0; k < world; k++)
                    for (int64_t l = 0; l < count[k]; l++)
                        assert_int_equal(lane_table_lane(&plain, k, l), lane_table_lane(&listed, k, l));
            }
}

// The one that comm/ordered.h draws.
static void spans_are_dealt_in_turns(void **state) {
    (void)state;
    static const int64_t want[4][5] = {{0, 1, 6, 7, -1}, {2, 3, -1}, {-1}, {4, 5, -1}};
    lane_table t = {8, 4, true, (int64_t[]){4, 2, 0, 2}, 2};
    assert_int_equal(lane_table_turns(&t), 2);
    for (int rank = 0; rank < 4; rank++)
        for (int i = 0; i < 5 && want[rank][i] >= 0; i++) assert_int_equal(lane_table_lane(&t, rank, i), want[rank][i]);
    for (int rank = 0; rank < 4; rank++) assert_int_equal(lane_table_at(&t, rank, 0), want[rank][0]);
    assert_int_equal(lane_table_at(&t, 0, 1), 6);
    t.count = NULL, t.world = 3;  // 0 1 6 7 | 2 3 | 4 5
    assert_int_equal(lane_table_count(&t, 0), 4);
    assert_int_equal(lane_table_count(&t, 2), 2);
    assert_int_equal(lane_table_lane(&t, 0, 3), 7);
    assert_int_equal(lane_table_lane(&t, 2, 1), 5);
    t.turns = false;  // in ranges it means nothing
    assert_int_equal(lane_table_span(&t), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_are_dealt_in_turns),
        cmocka_unit_test(tree_is_the_balanced_one),
        cmocka_unit_test(every_split_gives_the_same_sum),
        cmocka_unit_test(only_siblings_are_added),
        cmocka_unit_test(buffers_are_as_many_as_planned),
        cmocka_unit_test(owners_keep_as_few_buffers_as_there_are_sums),
        cmocka_unit_test(the_worst_range_and_the_worst_deal_are_known),
        cmocka_unit_test(sums_leave_each_rack_once),
        cmocka_unit_test(sums_leave_joined_ranks_once),
        cmocka_unit_test(every_lane_is_run_once_in_any_deal),
        cmocka_unit_test(the_equal_deal_is_the_one_without_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
