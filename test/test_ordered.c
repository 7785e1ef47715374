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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree_is_the_balanced_one),
        cmocka_unit_test(every_split_gives_the_same_sum),
        cmocka_unit_test(only_siblings_are_added),
        cmocka_unit_test(buffers_are_as_many_as_planned),
        cmocka_unit_test(owners_keep_as_few_buffers_as_there_are_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
