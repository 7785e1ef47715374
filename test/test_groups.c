// test/test_groups.c: the arithmetic of layouts. For every layout of up to 24 ranks: each kind of group partitions the
// ranks, links join neighbours and each other's ends, the splits say the same, and what the channels are declared to
// connect is just that.
#include "comm/cost.h"
#include "comm/groups.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 24, ALL_LINKS = (1 << LINK_KINDS) - 1 };

typedef void check(const grid *g);

// All islands of a world, from none, which is one.
static void each_island(int world, const grid *wanted, check *f) {
    int one = wanted->pipeline * wanted->tensor * grid_context(wanted);
    for (int i = 0; i <= world / one; i++) {
        grid with = *wanted, g;
        if (world % (one * (i ? i : 1))) continue;
        with.islands = i;
        assert_int_equal(grid_of(&g, world, &with), ERR_OK);
        assert_int_equal(grid_world(&g), world);
        assert_int_equal(grid_island(&g) * (i ? i : 1), world);
        f(&g);
    }
}

static void each_layout(check *f) {
    for (int world = 1; world <= MOST; world++)
        for (int p = 1; p <= world; p++)
            for (int t = 1; t <= world / p; t++)
                for (int c = 0; c <= world / p / t; c++)
                    each_island(world, &(grid){.tensor = t, .pipeline = p, .context = c, .links = ALL_LINKS}, f);
}

// From rank `first` on. Returns the rank after the island's.
static int island_places(const grid *g, int island, int first) {
    int rank = first;
    for (int stage = 0; stage < g->pipeline; stage++)
        for (int d = 0; d < g->data; d++)
            for (int c = 0; c < grid_context(g); c++)
                for (int t = 0; t < g->tensor; t++, rank++) {
                    grid_place p = grid_at(g, rank);
                    assert_true(p.island == island && p.stage == stage && p.data == d && p.context == c &&
                                p.tensor == t);
                    assert_int_equal(grid_rank(g, p), rank);
                    assert_int_equal(rank - first, ((stage * g->data + d) * grid_context(g) + c) * g->tensor + t);
                }
    return rank;
}

static void places(const grid *g) {
    int rank = 0;
    for (int island = 0; island < grid_islands(g); island++) rank = island_places(g, island, rank);
    assert_int_equal(rank, grid_world(g));
}

static void a_rank_is_a_place(void **state) {
    (void)state;
    each_layout(places);
    grid g;
    char text[GRID_TEXT];
    assert_int_equal(grid_of(&g, 6, &(grid){.data = 0, .tensor = 2, .pipeline = 3, .links = 0}), ERR_OK);
    assert_string_equal(grid_text(&g, 5, text), "rank 5 (stage 2, data 0, tensor 1)");
    assert_int_equal(grid_of(&g, 8, &(grid){.data = 2, .tensor = 1, .pipeline = 2, .context = 2}), ERR_OK);
    assert_string_equal(grid_text(&g, 5, text), "rank 5 (stage 1, data 0, context 1, tensor 0)");
    assert_int_equal(grid_of(&g, 8, &(grid){.data = 0, .tensor = 2, .pipeline = 1, .islands = 2}), ERR_OK);
    assert_int_equal(g.data, 2);
    assert_string_equal(grid_text(&g, 7, text), "rank 7 (island 1, stage 0, data 1, tensor 1)");
}

static void says_with(int context, int data, int tensor, int pipeline, int rank, const char *role) {
    grid g = {.data = data, .tensor = tensor, .pipeline = pipeline, .context = context, .links = ALL_LINKS};
    char text[COMM_ROLE];
    assert_int_equal(grid_of(&g, grid_world(&g), &g), ERR_OK);
    assert_string_equal(grid_role(&g, rank, text), role);
}

static void says(int data, int tensor, int pipeline, int rank, const char *role) {
    says_with(1, data, tensor, pipeline, rank, role);
}

static void a_role_says_what_there_is_more_than_one_of(void **state) {
    (void)state;
    says(1, 1, 1, 0, "");
    says(4, 1, 1, 3, ", data 3");
    says(1, 2, 3, 5, ", stage 2, tensor 1");
    says(2, 1, 2, 2, ", stage 1, data 0");
    says(2, 2, 1, 3, ", data 1, tensor 1");
    says(4, 4, 64, 1023, ", stage 63, data 3, tensor 3");
    says(1, 1, 1024, 1023, ", stage 1023");
    says_with(4, 1, 1, 1, 3, ", context 3");
    says_with(2, 2, 1, 1, 3, ", data 1, context 1");
    says_with(16, 16, 4, 16, 16383, ", stage 15, data 15, context 15, tensor 3");
    grid g = {.data = 16, .tensor = 4, .pipeline = 16, .context = 16, .islands = 16};
    char text[COMM_ROLE];
    assert_string_equal(grid_role(&g, 262143, text), ", island 15, stage 15, data 15, context 15, tensor 3");
}

static void a_shape_says_what_is_divided(void **state) {
    (void)state;
    char text[GRID_SHAPE];
    assert_string_equal(grid_shape(&(grid){.data = 3, .tensor = 1, .pipeline = 2}, text), "pipeline 2 x data 3");
    assert_string_equal(grid_shape(&(grid){.data = 1, .tensor = 2, .pipeline = 1}, text),
                        "tensor 2 x pipeline 1 x data 1");
    assert_string_equal(grid_shape(&(grid){.data = 2, .tensor = 2, .pipeline = 1, .context = 4}, text),
                        "tensor 2 x context 4 x pipeline 1 x data 2");
    assert_string_equal(grid_shape(&(grid){.data = 2, .tensor = 1, .pipeline = 1, .islands = 4}, text),
                        "pipeline 1 x data 2 x islands 4");
}

static char *placed(const launch *l, int rank) {
    static char text[COMM_NAME];
    return (char *)comm_place_text(&l->place[rank], text);
}

// A launch needs the layout no longer than the call. A run without stages and tensor ranks names its ranks as ever.
static void a_launch_knows_the_roles(void **state) {
    (void)state;
    launch l;
    grid g;
    assert_int_equal(launch_open(&l, 2, (int[]){3, 3}, (const char *[]){"10.0.0.1", "10.0.0.2"}, 1), ERR_OK);
    assert_string_equal(placed(&l, 5), "rank 5 (10.0.0.2)");
    assert_int_equal(grid_of(&g, 6, &(grid){.data = 0, .tensor = 2, .pipeline = 3, .links = LINKS_PLAIN}), ERR_OK);
    channel_plan plan = grid_channels(&g);
    assert_int_equal(launch_channels(&l, &plan), ERR_OK);
    g = (grid){0}, plan = (channel_plan){0};
    assert_string_equal(placed(&l, 5), "rank 5 (10.0.0.2, stage 2, tensor 1)");
    assert_string_equal(placed(&l, 2), "rank 2 (10.0.0.1, stage 1, tensor 0)");
    assert_true(launch_connects(&l, 1 + GROUP_TENSOR, 4, 5) && !launch_connects(&l, 1 + GROUP_TENSOR, 3, 4));
    launch_close(&l);
    assert_int_equal(launch_open(&l, 1, (int[]){4}, NULL, 0), ERR_OK);
    assert_int_equal(grid_of(&g, 4, &(grid){.data = 0, .tensor = 1, .pipeline = 1, .links = 0}), ERR_OK);
    plan = grid_channels(&g);
    assert_int_equal(launch_channels(&l, &plan), ERR_OK);
    assert_string_equal(placed(&l, 3), "rank 3 (localhost)");
    launch_close(&l);
}

// Of a plan: the members of a group are numbered from 0, and named as ranks of the world.
static void parts_name_ranks_of_the_world(void **state) {
    (void)state;
    comm_place place[8] = {0};
    groups x;
    grid g;
    comm *world;
    char name[COMM_NAME];
    for (int r = 0; r < 8; r++) place[r] = (comm_place){.node = r / 4, .local = r % 4, .rank = r, .host = "a"};
    assert_int_equal(grid_of(&g, 8, &(grid){.data = 0, .tensor = 2, .pipeline = 2, .links = LINKS_PLAIN}), ERR_OK);
    assert_int_equal(comm_imaginary_open(&world, 7, 8, place), ERR_OK);
    assert_int_equal(groups_imagine(&x, &g, world), ERR_OK);
    assert_string_equal(comm_rank_text(x.group[GROUP_DATA], 0, name), "rank 5 (a)");
    assert_string_equal(comm_rank_text(x.group[GROUP_TENSOR], 1, name), "rank 7 (a)");
    assert_string_equal(comm_rank_text(x.before[LINK_FORWARD], 0, name), "rank 3 (a)");
    groups_close(&x);
    world->table->close(world);
}

// Which two of a place's numbers ranks of one group share.
static bool together(const grid *g, group_kind kind, int a, int b) {
    grid_place x = grid_at(g, a), y = grid_at(g, b);
    bool stage = x.stage == y.stage, data = x.data == y.data, tensor = x.tensor == y.tensor,
         context = x.context == y.context;
    if (kind == GROUP_ISLANDS) return stage && data && tensor && context;
    if (x.island != y.island) return false;
    if (kind == GROUP_DATA) return stage && tensor;
    if (kind == GROUP_TENSOR) return stage && data && context;
    if (kind == GROUP_CONTEXT) return stage && data && tensor;
    if (kind == GROUP_STAGE) return stage;
    return data && tensor && context;
}

static void partition(const grid *g) {
    channel_plan plan = grid_channels(g);
    for (int k = 0; k < GROUP_KINDS; k++)
        for (int a = 0; a < grid_world(g); a++) {
            group_kind kind = (group_kind)k;
            grid_split mine = grid_group_split(g, kind, a);
            int members = 0;
            for (int b = 0; b < grid_world(g); b++) {
                grid_split its = grid_group_split(g, kind, b);
                assert_int_equal(its.channel, mine.channel);
                assert_int_equal(its.color == mine.color, together(g, kind, a, b));
                if (a < b && plan.channels)
                    assert_int_equal(plan.needs(plan.ctx, mine.channel, a, b), together(g, kind, a, b));
                if (!together(g, kind, a, b)) continue;
                assert_int_equal(its.key, members);
                assert_int_equal(grid_group_member(g, kind, a, members), b);
                members++;
            }
            assert_int_equal(members, grid_group_size(g, kind));
            assert_int_equal(grid_group_member(g, kind, a, grid_group_index(g, kind, a)), a);
        }
}

static void groups_partition_the_ranks(void **state) {
    (void)state;
    each_layout(partition);
}

static bool over_the_end(link_kind k) { return k >= LINK_LOOP_FORWARD; }

// The stages that a link of this kind joins, from a stage on; -1: none.
static int stage_after(const grid *g, link_kind k, int stage) {
    if (g->pipeline == 1) return -1;
    if (over_the_end(k)) return stage == g->pipeline - 1 ? 0 : -1;
    return stage + 1 < g->pipeline ? stage + 1 : -1;
}

static void neighbours(const grid *g) {
    channel_plan plan = grid_channels(g);
    for (int k = 0; k < LINK_KINDS; k++)
        for (int a = 0; a < grid_world(g); a++) {
            grid_place p = grid_at(g, a);
            int peer = grid_link_peer(g, (link_kind)k, a, true), stage = stage_after(g, (link_kind)k, p.stage),
                channel = 0, met = 0;
            assert_int_equal(peer, stage < 0 ? -1
                                             : grid_rank(g, (grid_place){.stage = stage,
                                                                         .island = p.island,
                                                                         .data = p.data,
                                                                         .tensor = p.tensor,
                                                                         .context = p.context}));
            if (peer >= 0) assert_int_equal(grid_link_peer(g, (link_kind)k, peer, false), a);
            for (int half = 0; half < 2; half++) {
                grid_split mine = grid_link_split(g, (link_kind)k, half, a);
                channel = mine.channel;
                for (int b = 0; b < grid_world(g); b++) {
                    grid_split its = grid_link_split(g, (link_kind)k, half, b);
                    if (b == a || its.color < 0 || its.color != mine.color) continue;
                    assert_true(b == peer || grid_link_peer(g, (link_kind)k, b, true) == a);
                    assert_int_equal(its.key, b > a);
                    assert_int_equal(grid_at(g, a < b ? a : b).stage % 2, half);
                    met++;
                }
            }
            assert_int_equal(met, (peer >= 0) + (grid_link_peer(g, (link_kind)k, a, false) >= 0));
            for (int b = a + 1; b < grid_world(g) && plan.channels; b++)
                assert_int_equal(plan.needs(plan.ctx, channel, a, b),
                                 peer == b || grid_link_peer(g, (link_kind)k, b, true) == a);
        }
}

static void links_join_neighbours(void **state) {
    (void)state;
    each_layout(neighbours);
    grid g;
    assert_int_equal(grid_of(&g, 4, &(grid){.data = 1, .tensor = 1, .pipeline = 4, .links = LINKS_PLAIN}), ERR_OK);
    assert_int_equal(grid_link_peer(&g, LINK_LOOP_FORWARD, 3, true), -1);  // not asked for
}

// The most communicators of one rank, counted from the splits.
static void seats_with(const grid *g, unsigned links) {
    // spare: a rank is in the middle of the line or at an end, and ends alone have links over the end
    int most = 0, spare = 0;
    for (int k = LINK_LOOP_FORWARD; k < LINK_KINDS && g->pipeline > 2; k++) spare += links >> k & 1;
    if (!(links & ~(~0u << LINK_LOOP_FORWARD))) spare = 0;
    for (int a = 0; a < grid_world(g); a++) {
        int n = 0;
        for (int k = 0; k < GROUP_KINDS; k++) n += grid_group_size(g, (group_kind)k) > 1;
        for (int k = 0; k < LINK_KINDS; k++)
            for (int half = 0; half < 2; half++) n += grid_link_split(g, (link_kind)k, half, a).color >= 0;
        if (n > most) most = n;
    }
    bool plain = g->tensor == 1 && g->pipeline == 1 && g->context <= 1 && g->islands <= 1;
    assert_in_range(grid_channels(g).seats, plain ? 0 : most, plain ? 0 : most + spare);
    assert_int_equal(grid_channels(g).channels, plain ? 0 : GROUP_KINDS + LINK_KINDS);
}

static void seats(const grid *g) {
    static const unsigned links[] = {
        0, LINKS_PLAIN, LINKS_V, LINKS_LOOP, LINKS_PLAIN | 1 << LINK_TIED, 1 << LINK_TIED, ALL_LINKS};
    for (size_t k = 0; k < sizeof links / sizeof *links; k++) {
        grid with = *g;
        with.links = links[k];
        seats_with(&with, links[k]);
    }
}

static void there_is_a_seat_for_each_communicator(void **state) {
    (void)state;
    each_layout(seats);
}

static void channels_differ(void **state) {
    (void)state;
    grid g;
    bool used[COMM_CHANNELS + 1] = {true};
    assert_int_equal(grid_of(&g, 8, &(grid){.data = 2, .tensor = 2, .pipeline = 2, .links = ALL_LINKS}), ERR_OK);
    for (int k = 0; k < GROUP_KINDS + LINK_KINDS; k++) {
        int channel = k < GROUP_KINDS ? grid_group_split(&g, (group_kind)k, 0).channel
                                      : grid_link_split(&g, (link_kind)(k - GROUP_KINDS), 0, 0).channel;
        assert_in_range(channel, 1, COMM_CHANNELS);
        assert_false(used[channel]);
        used[channel] = true;
    }
}

static void refused_with(int context, int world, int data, int tensor, int pipeline, const char *says) {
    grid g;
    assert_int_equal(
        grid_of(&g, world, &(grid){.data = data, .tensor = tensor, .pipeline = pipeline, .context = context}),
        ERR_CONFIG);
    if (!strstr(err_last()->text, says)) fail_msg("\"%s\" does not say \"%s\"", err_last()->text, says);
}

static void refused(int world, int data, int tensor, int pipeline, const char *says) {
    refused_with(1, world, data, tensor, pipeline, says);
}

// What would fit depends on more than the grid: see test/test_proposals.c.
static void a_layout_that_does_not_fit_is_refused(void **state) {
    (void)state;
    refused(
        8, 0, 3, 1,
        "[parallel] data = the rest, tensor = 3, pipeline = 1 does not divide 8 ranks: their product must be that number");
    refused(8, 2, 2, 1, "data = 2, tensor = 2, pipeline = 1 are not 8 ranks: their product must be that number");
    refused(7, 0, 2, 2, "tensor = 2, pipeline = 2 does not divide 7 ranks");
    refused(6, 0, 1, 4, "data = the rest, pipeline = 4 does not divide 6 ranks");
    refused(1, 0, 2, 1, "does not divide 1 rank:");
    refused(4, 1000000, 1000000, 1000000, "data = 1000000, tensor = 1000000, pipeline = 1000000 are not 4 ranks");
    refused(4, 0, 0, 1, "expected 0 or more, and 1 or more");
    refused(4, -1, 1, 1, "expected 0 or more, and 1 or more");
    refused(4, 0, 1, 0, "expected 0 or more, and 1 or more");
    refused(0, 0, 1, 1, "expected 0 or more, and 1 or more");
    refused_with(-1, 4, 0, 1, 1, "expected 0 or more, and 1 or more");
    refused_with(2, 12, 0, 4, 1, "context = 2, tensor = 4, pipeline = 1 does not divide 12 ranks");
    refused_with(3, 8, 0, 1, 1, "context = 3, pipeline = 1 does not divide 8 ranks");
    grid g;
    assert_int_equal(grid_of(&g, 6, &(grid){.tensor = 1, .pipeline = 1, .islands = 4}), ERR_CONFIG);
    assert_string_equal(err_last()->text, "[parallel] data = the rest, pipeline = 1 and [outer] islands = 4 does not "
                                          "divide 6 ranks: their product must be that number");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_is_a_place),
        cmocka_unit_test(a_role_says_what_there_is_more_than_one_of),
        cmocka_unit_test(a_shape_says_what_is_divided),
        cmocka_unit_test(a_launch_knows_the_roles),
        cmocka_unit_test(parts_name_ranks_of_the_world),
        cmocka_unit_test(groups_partition_the_ranks),
        cmocka_unit_test(links_join_neighbours),
        cmocka_unit_test(there_is_a_seat_for_each_communicator),
        cmocka_unit_test(channels_differ),
        cmocka_unit_test(a_layout_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
