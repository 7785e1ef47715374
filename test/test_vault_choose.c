// test/test_vault_choose.c: snapshots in memory: every order in which ranks apply steps, write their generation and get
// the copy of the rank before; one or two of them killed at each point; and what the product's decisions then find. The
// state is one tensor, part r of which belongs to rank r, each a node of its own; rank r + 1 has its copy.
// LOCKSTEP_TEST_STATES=900000 looks at more.
#include "trainer/checkpoint/vault_choose.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 4, EVERY = 2, LAST = 6, MET = 1 << 22, PART = 12, PIECES = 64 };

// --- the ranks -------------------------------------------------------------------------------------------------------

// What a rank does at a step that is a multiple of EVERY, one after the other (session_snapshot, vault_mirror):
//   SAVES     marks a generation as not whole, and writes it
//   WRITTEN   waits until all have
//   PREPARES  marks the copy that it will replace as not whole
//   PREPARED  waits until all have
//   GETS      waits for what the rank before sends; then it trains on
typedef enum phase { TRAINS, SAVES, WRITTEN, PREPARES, PREPARED, GETS } phase;

typedef struct rank {
    int8_t applied, gave, phase;
    int8_t own[GENERATIONS], copy[GENERATIONS];  // the step that each holds; -1: it is not whole
} rank;

typedef struct ranks {
    rank of[RANKS];
} ranks;

typedef int overwrites(const int64_t of[GENERATIONS], int64_t step);

typedef struct search {
    int w;
    overwrites *slot;
    bool no_first;  // no generation is whole before the first step
    ranks *queue;
    size_t count, most;
    uint64_t *met;
    int none_one, none_two, none_near;  // nothing was found after the loss of one; of two; of two neighbours
    int older;                          // what was found is older than what all have
} search;

static void meet(search *q, const ranks *s) {
    uint64_t h = 88172645463325252u;
    for (size_t i = 0; i < sizeof *s; i++) h = (h ^ ((const uint8_t *)s)[i]) * 1099511628211u, h ^= h >> 31;
    h |= h == 0;
    size_t at = h % MET;
    for (; q->met[at]; at = (at + 1) % MET)
        if (q->met[at] == h) return;
    if (q->count == q->most) return;
    q->met[at] = h;
    q->queue[q->count++] = *s;
}

static int slot_for(const search *q, const int8_t of[GENERATIONS], int step) {
    return q->slot((const int64_t[GENERATIONS]){of[0], of[1]}, step);
}

// Has the rank come so far with the snapshot of `step`?
static bool has_come(const rank *x, int step, phase so_far) {
    return x->applied > step || (x->applied == step && (x->phase >= (int)so_far || x->phase == TRAINS));
}

static bool all_have_come(const search *q, const ranks *s, int step, phase so_far) {
    for (int i = 0; i < q->w; i++)
        if (!has_come(&s->of[i], step, so_far)) return false;
    return true;
}

static bool sums_are_there(const search *q, const ranks *s, int r) {
    for (int i = 0; i < q->w; i++)
        if (s->of[i].applied <= s->of[r].applied && !s->of[i].gave) return false;
    return true;
}

static void goes_on(search *q, ranks s, int r) {
    rank *x = &s.of[r];
    const rank *before = &s.of[(r + q->w - 1) % q->w];
    int step = x->applied;
    switch (x->phase) {
    case TRAINS:
        if (!x->gave && step == LAST) return;
        if (x->gave && !sums_are_there(q, &s, r)) return;
        x->applied = (int8_t)(step + x->gave), x->gave = !x->gave;
        if (!x->gave && x->applied % EVERY == 0) x->phase = SAVES, x->own[slot_for(q, x->own, x->applied)] = -1;
        break;
    case SAVES: x->own[slot_for(q, x->own, step)] = (int8_t)step, x->phase = WRITTEN; break;
    case WRITTEN:
        if (!all_have_come(q, &s, step, WRITTEN)) return;
        x->phase = PREPARES;
        break;
    case PREPARES: x->copy[slot_for(q, x->copy, step)] = -1, x->phase = PREPARED; break;
    case PREPARED:
        if (!all_have_come(q, &s, step, PREPARED)) return;
        x->phase = GETS;
        break;
    default:
        if (!has_come(before, step, GETS)) return;
        x->copy[slot_for(q, x->copy, step)] = (int8_t)step, x->phase = TRAINS;
    }
    meet(q, &s);
}

// --- losses ----------------------------------------------------------------------------------------------------------

static void put(vault_list *l, int owner, int part, int step, bool live) {
    static int area;
    if (step < 0) return;
    l->at[l->n++] = (vault_piece){.owner = owner,
                                  .live = live,
                                  .step = step,
                                  .first = part * PART,
                                  .count = PART,
                                  .area = area++,
                                  .of = live ? 0 : part * PART,
                                  .sum = 7};
}

static vault_list what_is_left(vault_piece at[PIECES], const ranks *s, int w, unsigned lost) {
    vault_list has = {.at = at};
    for (int r = 0; r < w; r++)
        for (int g = 0; g < GENERATIONS && !(lost >> r & 1); g++) {
            put(&has, r, r, s->of[r].own[g], false);
            put(&has, r, (r + w - 1) % w, s->of[r].copy[g], false);
        }
    vault_sort(&has);
    return has;
}

// The ranks of the next world cut the tensor anew.
static vault_list what_is_needed(vault_piece at[RANKS], int w, int next) {
    vault_list needs = {.at = at, .n = next};
    for (int r = 0; r < next; r++)
        at[r] = (vault_piece){
            .owner = r, .first = w * PART * r / next, .count = w * PART * (r + 1) / next - w * PART * r / next};
    return needs;
}

static int64_t found(const vault_list *has, int w, int next) {
    vault_piece at[RANKS];
    vault_list needs = what_is_needed(at, w, next);
    return vault_choose(has, &needs).step;
}

static bool are_neighbours(unsigned lost, int w) { return (lost & lost << 1) || (lost & 1 && lost >> (w - 1) & 1); }

// The newest step of which each rank has its own part, and the next one its copy.
static int by_all(const ranks *s, int w) {
    int newest = -1;
    for (int step = 0; step <= LAST; step++) {
        bool all = true;
        for (int r = 0; r < w; r++) {
            const rank *x = &s->of[r], *next = &s->of[(r + 1) % w];
            all &= (x->own[0] == step || x->own[1] == step) && (next->copy[0] == step || next->copy[1] == step);
        }
        if (all) newest = step;
    }
    return newest;
}

static void loses(search *q, const ranks *s, unsigned lost) {
    vault_piece at[PIECES];
    int n = __builtin_popcount(lost);
    vault_list has = what_is_left(at, s, q->w, lost);
    int64_t step = found(&has, q->w, q->w - n);
    int *none = n == 1 ? &q->none_one : are_neighbours(lost, q->w) ? &q->none_near : &q->none_two;
    if (step < 0) ++*none;
    else q->older += step < by_all(s, q->w);
}

static void explore(search *q) {
    ranks s;
    memset(&s, 0, sizeof s);
    const int8_t first = q->no_first ? -1 : 0;
    for (int r = 0; r < q->w; r++) s.of[r] = (rank){.own = {first, -1}, .copy = {first, -1}};
    q->queue = malloc(q->most * sizeof *q->queue);
    q->met = calloc(MET, sizeof *q->met);
    assert_true(q->queue && q->met);
    meet(q, &s);
    for (size_t i = 0; i < q->count; i++) {
        const ranks now = q->queue[i];
        for (unsigned lost = 1; lost < 1u << q->w; lost++)
            if (__builtin_popcount(lost) <= 2 && __builtin_popcount(lost) < q->w) loses(q, &now, lost);
        for (int r = 0; r < q->w; r++) goes_on(q, now, r);
    }
    printf("%d ranks: %zu states; nothing found after the loss of one %d, of two %d, of neighbours %d\n", q->w,
           q->count, q->none_one, q->none_two, q->none_near);
    free(q->queue), free(q->met);
}

static size_t states(size_t most) {
    const char *n = getenv("LOCKSTEP_TEST_STATES");
    return n ? (size_t)atol(n) : most;
}

static void a_loss_at_any_point(void **state) {
    (void)state;
    for (int w = 2; w <= RANKS; w++) {
        search q = {.w = w, .most = states(200000), .slot = vault_overwrites};
        explore(&q);
        assert_true(q.count > (w == 2 ? 40u : 400u));
        assert_int_equal(q.none_one, 0);
        assert_int_equal(q.none_two, 0);
        assert_true(q.none_near > 0 || w == 2);  // what is not promised
        assert_int_equal(q.older, 0);
    }
}

static int the_newest(const int64_t of[GENERATIONS], int64_t step) { return 1 - vault_overwrites(of, step); }
static int the_first(const int64_t of[GENERATIONS], int64_t step) { return (void)of, (void)step, 0; }

static void what_must_be_found(void **state) {
    (void)state;
    search newest = {.w = 3, .most = 200000, .slot = the_newest}, first = {.w = 3, .most = 200000, .slot = the_first},
           late = {.w = 3, .most = 200000, .slot = vault_overwrites, .no_first = true};
    explore(&newest), explore(&first), explore(&late);
    assert_true(newest.none_one > 0);
    assert_true(first.none_one > 0);
    assert_true(late.none_one > 0);
}

// --- live state, and a second loss while the first is healed ---------------------------------------------------------

// As vault_save_live: the share of this rank and that of the rank before, unless the rank has them already.
static void keeps(ranks *s, int live[RANKS][GENERATIONS], int r) {
    rank *x = &s->of[r];
    for (int g = 0; g < GENERATIONS; g++)
        if (x->own[g] >= x->applied) return;
    int g = vault_overwrites((const int64_t[GENERATIONS]){x->own[0], x->own[1]}, x->applied);
    x->own[g] = -1, live[r][g] = x->applied;
}

// at: the step whose live state is of use; -1: of none.
static int64_t found_with_live(const ranks *s, int live[RANKS][GENERATIONS], int w, unsigned lost, int64_t at_step) {
    vault_piece at[PIECES];
    vault_list has = what_is_left(at, s, w, lost);
    for (int r = 0; r < w; r++)
        for (int g = 0; g < GENERATIONS && !(lost >> r & 1); g++)
            if (live[r][g] >= 0 && live[r][g] == at_step)
                put(&has, r, r, live[r][g], true), put(&has, r, (r + w - 1) % w, live[r][g], true);
    vault_sort(&has);
    return found(&has, w, w - __builtin_popcount(lost));
}

// The step after which all but x have kept what they held; -1: there is none.
static int kept_by_all(const ranks *s, int w, int x, unsigned keepers) {
    int step = s->of[(x + 1) % w].applied;
    for (int r = 0; r < w; r++)
        if (r != x && (!(keepers >> r & 1) || s->of[r].applied != step)) return -1;
    return step;
}

// x is lost; of the others some keep their live state; then y is lost, too.
static void second_loss(const ranks *before, int w, int x, unsigned keepers, int *alive) {
    ranks s = *before;
    int live[RANKS][GENERATIONS], sealed = by_all(before, w), at = kept_by_all(before, w, x, keepers);
    bool whole = at >= 0;  // the live state is all there: no rank had a snapshot of that step instead
    memset(live, -1, sizeof live);
    for (int r = 0; r < w; r++) {
        if (r == x || !(keepers >> r & 1)) continue;
        keeps(&s, live, r);
        whole &= live[r][0] == at || live[r][1] == at;
    }
    int64_t step = found_with_live(&s, live, w, 1u << x, at);
    if (step < sealed || (whole && step != at)) fail_msg("after the loss of %d: step %d", x, (int)step);
    *alive += whole;
    for (int y = 0; y < w; y++) {
        unsigned lost = 1u << x | 1u << y;
        if (y == x || are_neighbours(lost, w)) continue;
        step = found_with_live(&s, live, w, lost, at);
        if (step < sealed) fail_msg("after the loss of %d and then of %d: step %d of %d", x, y, (int)step, sealed);
    }
}

static void a_second_loss(void **state) {
    (void)state;
    enum { W = 4 };
    search q = {.w = W, .most = 20000, .slot = vault_overwrites};
    ranks s;
    int alive = 0;
    memset(&s, 0, sizeof s);
    for (int r = 0; r < W; r++) s.of[r] = (rank){.own = {0, -1}, .copy = {0, -1}};
    q.queue = malloc(q.most * sizeof *q.queue), q.met = calloc(MET, sizeof *q.met);
    assert_true(q.queue && q.met);
    meet(&q, &s);
    for (size_t i = 0; i < q.count; i++) {
        const ranks now = q.queue[i];
        for (int x = 0; x < W; x++)
            for (unsigned keepers = 0; keepers < 1u << W; keepers++) second_loss(&now, W, x, keepers, &alive);
        for (int r = 0; r < W; r++) goes_on(&q, now, r);
    }
    assert_true(alive > 100);
    free(q.queue), free(q.met);
}

// --- which of several ------------------------------------------------------------------------------------------------

static void the_older_generation_goes(void **state) {
    (void)state;
    static const int64_t rows[][4] = {{-1, -1, 2, 1}, {2, -1, 4, 1}, {-1, 2, 4, 0}, {2, 4, 6, 0}, {4, 2, 6, 1},
                                      {6, 4, 6, 0},   {4, 6, 6, 1},  {8, 4, 6, 0},  {4, 8, 6, 1}, {0, 0, 2, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (vault_overwrites(rows[i], rows[i][2]) != rows[i][3]) fail_msg("row %zu", i);
}

// A node's own copy is read there, and else the lowest node's.
static void who_gives(void **state) {
    (void)state;
    vault_piece at[] = {{.owner = 2, .step = 4, .first = 0, .count = 8, .area = 1},
                        {.owner = 1, .step = 4, .first = 4, .count = 8},
                        {.owner = 0, .step = 6, .first = 0, .count = 4},
                        {.owner = 3, .step = 4, .first = 0, .count = 12},
                        {.owner = 0, .step = 4, .first = 0, .count = 12, .tensor = 1}};
    vault_list has = {at, sizeof at / sizeof *at};
    const vault_piece need = {.count = 12}, other = {.tensor = 1, .count = 12}, absent = {.group = 1};
    vault_sort(&has);
    assert_int_equal(vault_holder(&has, &need, 4, 0, -1)->owner, 2);
    assert_int_equal(vault_holder(&has, &need, 4, 3, 3)->owner, 3);
    assert_int_equal(vault_holder(&has, &need, 4, 4, -1)->owner, 1);
    assert_int_equal(vault_holder(&has, &need, 4, 7, 2)->owner, 2);
    assert_int_equal(vault_holder(&has, &need, 4, 8, 2)->owner, 1);
    assert_int_equal(vault_holder(&has, &need, 6, 3, 1)->owner, 0);
    assert_null(vault_holder(&has, &need, 6, 4, 0));
    assert_null(vault_holder(&has, &need, 5, 0, 0));
    assert_int_equal(vault_holder(&has, &other, 4, 11, 2)->owner, 0);
    assert_null(vault_holder(&has, &other, 4, 12, 2));
    assert_null(vault_holder(&has, &absent, 4, 0, 0));
}

// A step with a gap is not whole; and one whose live states differ is named and not used.
static void what_is_used(void **state) {
    (void)state;
    vault_piece at[] = {{.owner = 0, .step = 8, .first = 0, .count = 5},
                        {.owner = 1, .step = 8, .first = 6, .count = 6},
                        {.owner = 0, .step = 7, .live = 1, .first = 0, .count = 8, .sum = 5},
                        {.owner = 1, .step = 7, .live = 1, .first = 4, .count = 8, .sum = 6},
                        {.owner = 0, .step = 6, .live = 1, .first = 0, .count = 12, .of = 0, .sum = 1},
                        {.owner = 1, .step = 6, .live = 1, .first = 0, .count = 12, .of = 1, .sum = 2},
                        {.owner = 2, .step = 6, .first = 4, .count = 8},  // a snapshot has no sum to compare
                        {.owner = 1, .step = 4, .first = 0, .count = 12}};
    vault_list has = {at, sizeof at / sizeof *at};
    vault_piece need[] = {{.owner = 0, .first = 0, .count = 6}, {.owner = 1, .first = 6, .count = 6}};
    const vault_list needs = {need, 2};
    vault_sort(&has);
    vault_chosen chosen = vault_choose(&has, &needs);
    assert_int_equal(chosen.step, 6);  // sums of other ranges say nothing
    assert_non_null(chosen.torn);
    assert_int_equal(chosen.torn->step, 7);
    for (int i = 0; i < has.n; i++)
        if (at[i].step == 7) at[i].sum = 5;
    chosen = vault_choose(&has, &needs);
    assert_int_equal(chosen.step, 7);
    assert_null(chosen.torn);
    need[1].count = 7;
    chosen = vault_choose(&has, &needs);
    assert_int_equal(chosen.step, -1);
    assert_null(chosen.torn);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_older_generation_goes),
        cmocka_unit_test(who_gives),
        cmocka_unit_test(what_is_used),
        cmocka_unit_test(a_loss_at_any_point),
        cmocka_unit_test(what_must_be_found),
        cmocka_unit_test(a_second_loss),
    };
    return cmocka_run_group_tests_name("vault choose", tests, NULL, NULL);
}
