// test/test_groups_open.c: the communicators of a layout as they are made (comm/groups.c), by ranks that are run one
// after the other over a world that only writes down what it is asked for: all ranks ask for the same, who belongs
// together comes together, and to make or close them nobody waits for one who waits for him. And those of a plan, which
// are imaginary.
#include "comm/cost.h"
#include "comm/groups.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 16, CALLS = 64, ALL_LINKS = (1 << LINK_KINDS) - 1 };

// --- a world that writes down ----------------------------------------------------------------------------------------

typedef struct made {
    int call, color;
} made;

typedef struct notes {
    comm c;  // the world, as this rank sees it
    grid_split split[CALLS];
    int splits, fails_at;
    made closed[CALLS];
    int closings, open;
} notes;

typedef struct part {
    comm c;
    notes *of;
    made id;
} part;

static void note_closed(comm *c) {
    part *p = (part *)c;
    p->of->closed[p->of->closings++] = p->id;
    p->of->open--;
    free(p);
}

static const comm_table part_table = {.name = "part", .close = note_closed};

static err_t note_split(comm *c, int color, int key, int channel, comm **out) {
    notes *n = (notes *)c;
    assert_true(n->splits < CALLS);
    *out = NULL;
    if (n->splits == n->fails_at) return err_set(ERR_UNAVAILABLE, "rank 3 is lost");
    made id = {n->splits, color};
    n->split[n->splits++] = (grid_split){color, key, channel};
    if (color < 0) return ERR_OK;
    part *p = calloc(1, sizeof *p);
    assert_non_null(p);
    *p = (part){.c = {.table = &part_table}, .of = n, .id = id};
    n->open++;
    *out = &p->c;
    return ERR_OK;
}

static void never(comm *c) {
    (void)c;
    fail_msg("the world is not ours to close");
}

static const comm_table world_table = {.name = "notes", .split = note_split, .close = never};

static void begin(notes *n, const grid *g, int rank) {
    *n = (notes){.c = {.table = &world_table, .rank = rank, .world = grid_world(g)}, .fails_at = -1};
}

// --- layouts ---------------------------------------------------------------------------------------------------------

typedef void check(const grid *g);

static void each_layout(check *f) {
    static const unsigned links[] = {0, LINKS_PLAIN, LINKS_V, LINKS_LOOP, LINKS_PLAIN | 1 << LINK_TIED, ALL_LINKS};
    for (int p = 1; p <= MOST; p++)
        for (int t = 1; t <= 3; t++)
            for (int d = 1; d <= 4; d++)
                for (int c = 1; c <= 3; c++) {
                    if (p * t * d * c > MOST) continue;
                    for (size_t k = 0; k < sizeof links / sizeof *links; k++)
                        for (int i = 0; i <= 3 && p * t * d * c * i <= MOST; i++) {
                            grid g = {
                                .data = d, .tensor = t, .pipeline = p, .context = c, .islands = i, .links = links[k]};
                            f(&g);
                        }
                }
}

// Rank `rank` is in this communicator with just these, in this order. NULL: it is alone.
static void holds(const notes *all, int world, int rank, const comm *c, const int *member, int n) {
    const part *p = (const part *)c;
    int found = 0;
    assert_true(c && p->of == &all[rank]);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < world; r++) {
            const grid_split *s = &all[r].split[p->id.call];
            if (s->color != p->id.color || s->key != i) continue;
            assert_int_equal(r, member[i]);
            found++;
        }
    assert_int_equal(found, n);
    for (int r = 0; r < world; r++) found -= all[r].split[p->id.call].color == p->id.color;
    assert_int_equal(found, 0);
}

static void right_groups(const grid *g, const notes *all, const groups *x, int rank) {
    int world = grid_world(g), member[MOST];
    for (int k = 0; k < GROUP_KINDS; k++) {
        int n = grid_group_size(g, (group_kind)k);
        for (int i = 0; i < n; i++) member[i] = grid_group_member(g, (group_kind)k, rank, i);
        if (n == 1) assert_true(x->group[k]->world == 1 && x->group[k]->rank == 0);
        else holds(all, world, rank, x->group[k], member, n);
    }
    for (int k = 0; k < 2 * LINK_KINDS; k++) {
        const comm *c = k % 2 ? x->after[k / 2] : x->before[k / 2];
        int peer = grid_link_peer(g, (link_kind)(k / 2), rank, k % 2);
        member[0] = rank < peer ? rank : peer, member[1] = rank < peer ? peer : rank;
        if (peer < 0) assert_null(c);
        else holds(all, world, rank, c, member, 2);
    }
}

// Closing is a call of all members. Each rank goes on when those of its next communicator have come to it, too.
static void closes(const notes *all, int world) {
    int at[MOST] = {0}, left = 0;
    for (int r = 0; r < world; r++) left += all[r].closings;
    for (bool moved = true; left && moved;) {
        moved = false;
        for (int r = 0; r < world; r++) {
            if (at[r] == all[r].closings) continue;
            made next = all[r].closed[at[r]];
            bool there = true;
            for (int o = 0; o < world; o++) {
                if (all[o].split[next.call].color != next.color) continue;
                made its = at[o] < all[o].closings ? all[o].closed[at[o]] : (made){-1, -1};
                there = there && its.call == next.call && its.color == next.color;
            }
            for (int o = 0; there && o < world; o++)
                if (all[o].split[next.call].color == next.color) at[o]++, left--;
            moved |= there;
        }
    }
    if (left) fail_msg("%d closings wait for each other", left);
}

static void made_and_closed(const grid *g) {
    static notes all[MOST];
    static groups x[MOST];
    int world = grid_world(g);
    for (int r = 0; r < world; r++) {
        begin(&all[r], g, r);
        assert_int_equal(groups_open(&x[r], g, &all[r].c), ERR_OK);
    }
    for (int r = 0; r < world; r++) {  // the same calls on all
        assert_int_equal(all[r].splits, all[0].splits);
        for (int i = 0; i < all[0].splits; i++) assert_int_equal(all[r].split[i].channel, all[0].split[i].channel);
        if (grid_is_divided(g)) right_groups(g, all, &x[r], r);
        else
            assert_true(all[r].splits == 0 && x[r].group[GROUP_DATA] == &all[r].c &&
                        x[r].group[GROUP_STAGE] == &all[r].c);
    }
    for (int i = 0; i < all[0].splits; i++) {  // none is for nobody
        int somebody = 0;
        for (int r = 0; r < world; r++) somebody += all[r].split[i].color >= 0;
        assert_true(somebody > 0);
    }
    for (int r = 0; r < world; r++) {
        int open = all[r].open;
        groups_close(&x[r]);
        assert_true(all[r].open == 0 && all[r].closings == open);
        for (int k = 0; k < GROUP_KINDS; k++) assert_null(x[r].group[k]);
        groups_close(&x[r]);
    }
    closes(all, world);
}

static void all_ranks_make_and_close_alike(void **state) {
    (void)state;
    each_layout(made_and_closed);
}

// Whichever call fails: what was made is closed, and the reason is that call's.
static void fails_anywhere(const grid *g) {
    static notes n;
    groups x;
    int world = grid_world(g), splits = 0;
    for (int rank = 0; rank<world; rank += world> 1 ? world - 1 : 1) {
        begin(&n, g, rank);
        assert_int_equal(groups_open(&x, g, &n.c), ERR_OK);
        splits = n.splits;
        groups_close(&x);
        for (int at = 0; at < splits; at++) {
            begin(&n, g, rank);
            n.fails_at = at;
            assert_int_equal(groups_open(&x, g, &n.c), ERR_UNAVAILABLE);
            assert_string_equal(err_last()->text, "rank 3 is lost");
            assert_true(n.splits == at && n.open == 0);
            groups_close(&x);
        }
    }
    begin(&n, g, 0);
    n.c.world++;
    assert_int_equal(groups_open(&x, g, &n.c), ERR_INTERNAL);
    assert_int_equal(n.splits, 0);
}

static void a_failure_leaves_nothing(void **state) {
    (void)state;
    each_layout(fails_anywhere);
}

// --- of a plan -------------------------------------------------------------------------------------------------------

// A part of the world with these members: nodes and the ranks of each are counted anew, the rest is as in the world.
static void imagined(const comm *c, const comm *world, const int *member, int n) {
    assert_int_equal(c->world, n);
    for (int i = 0, node = 0, local = 0; i < n; i++) {
        const comm_place *p = &c->place[i], *w = &world->place[member[i]];
        bool other = i > 0 && w->node != world->place[member[i - 1]].node;
        node += other;
        local = i == 0 || other ? 0 : local + 1;
        assert_true(p->rank == member[i] && p->node == node && p->local == local);
        assert_string_equal(p->host, w->host);
        assert_true((member[i] == world->rank) == (i == c->rank));
    }
}

// Where the ranks of a part are does not depend on whether the world keeps places or computes them.
static void same_spots(const comm *a, const comm *b) {
    assert_int_equal(!a, !b);
    for (int i = 0; a && i < a->world; i++) {
        comm_spot x = comm_where(a, i), y = comm_where(b, i);
        assert_true(x.node == y.node && x.local == y.local && x.rack == y.rack && x.join == y.join);
    }
}

static void computed(const groups *x, int node) {
    comm_even even = {.node = node, .rack = 2 * node, .join = 2};
    comm *world;
    groups y;
    assert_int_equal(comm_even_open(&world, x->world->rank, x->world->world, &even), ERR_OK);
    assert_int_equal(groups_imagine(&y, &x->shape, world), ERR_OK);
    same_spots(x->world, world);
    for (int kind = 0; kind < GROUP_KINDS; kind++) same_spots(x->group[kind], y.group[kind]);
    for (int kind = 0; kind < LINK_KINDS; kind++) {
        same_spots(x->before[kind], y.before[kind]);
        same_spots(x->after[kind], y.after[kind]);
    }
    groups_close(&y);
    world->table->close(world);
}

static void planned(const grid *g) {
    static const int a_node[] = {1, 3, 4, MOST};
    int count = grid_world(g), member[MOST];
    for (size_t k = 0; k < sizeof a_node / sizeof *a_node; k++)
        for (int rank = 0; rank < count; rank++) {
            comm_place place[MOST];
            comm *world;
            groups x;
            for (int r = 0; r < count; r++) {
                place[r] = (comm_place){.node = r / a_node[k], .local = r % a_node[k], .rank = r};
                place[r].rack = place[r].node / 2, place[r].join = place[r].local / 2;
                snprintf(place[r].host, sizeof place[r].host, "host %d", r / a_node[k]);
            }
            assert_int_equal(comm_imaginary_open(&world, rank, count, place), ERR_OK);
            assert_int_equal(groups_imagine(&x, g, world), ERR_OK);
            for (int kind = 0; kind < GROUP_KINDS; kind++) {
                int n = grid_group_size(g, (group_kind)kind);
                for (int i = 0; i < n; i++) member[i] = grid_group_member(g, (group_kind)kind, rank, i);
                imagined(x.group[kind], world, member, n);
            }
            for (int kind = 0; kind < 2 * LINK_KINDS; kind++) {
                const comm *c = kind % 2 ? x.after[kind / 2] : x.before[kind / 2];
                int peer = grid_link_peer(g, (link_kind)(kind / 2), rank, kind % 2);
                member[0] = rank < peer ? rank : peer, member[1] = rank < peer ? peer : rank;
                if (peer < 0) assert_null(c);
                else imagined(c, world, member, 2);
            }
            computed(&x, a_node[k]);
            groups_close(&x);
            world->table->close(world);
        }
}

static void parts_of_a_plan_are_where_their_ranks_are(void **state) {
    (void)state;
    each_layout(planned);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_make_and_close_alike),
        cmocka_unit_test(a_failure_leaves_nothing),
        cmocka_unit_test(parts_of_a_plan_are_where_their_ranks_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
