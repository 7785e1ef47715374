// test/test_council_vault.c: snapshots and steps: every order in which ranks give their part of a step, apply it, copy,
// send and seal, with one or two ranks killed at each point, and what the product's decisions then choose. Part r of
// the state belongs to rank r = m * D + d; its copy is with rank r + 1. LOCKSTEP_TEST_STATES=900000 looks at more.
#include "comm/team/council_heal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 4, EVERY = 2, LAST = 6, MET = 1 << 22 };

typedef struct generation {
    int8_t step;        // -1: none
    uint8_t own, copy;  // verified: the own part, and the copy of the rank before
} generation;

typedef struct vault_rank {
    int8_t applied, gave, known;  // known: the newest generation that is sealed by all
    generation slot[VAULT_SLOTS];
} vault_rank;

typedef struct vault_state {
    vault_rank of[RANKS];
    int8_t said[2][RANKS];  // what each rank said, beside its part of an even and an odd step, that it has sealed
} vault_state;

typedef struct layout {
    int data, model;
    bool zero;
} layout;

typedef struct search {
    int w;
    bool reuse, no_first;  // what must be found out: the own seal for everybody's; no seal before the first step
    vault_state *queue;
    size_t count, most;
    uint64_t *met;
    int disk_one, disk_two, disk_near;
    bool older;  // than what all have sealed was chosen
} search;

static int layouts(layout *of, int w) {
    int n = 0;
    for (int d = 1; d <= w; d++)
        for (int zero = 0; zero < 2; zero++)
            if (w % d == 0 && !(d == 1 && zero)) of[n++] = (layout){d, w / d, zero};
    return n;
}

static heal_holding live(int r, int step, const layout *l) {
    if (l->zero) return (heal_holding){r, r, 1, step, true, false, false};
    return (heal_holding){r, r / l->data * l->data, l->data, step, true, false, false};
}

static int inventory(heal_holding *of, const vault_state *s, const layout *l, int w, unsigned lost) {
    int n = 0;
    for (int r = 0; r < w; r++) {
        if (lost >> r & 1) continue;
        of[n++] = live(r, s->of[r].applied, l);
        for (int i = 0; i < VAULT_SLOTS; i++) {
            const generation *g = &s->of[r].slot[i];
            if (g->step < 0) continue;
            of[n++] = (heal_holding){r, r, 1, g->step, false, false, g->own};
            of[n++] = (heal_holding){r, (r + w - 1) % w, 1, g->step, false, false, g->copy};
        }
    }
    return n;
}

static int64_t choose(const heal_holding *of, int n, int parts) {
    heal_plan p;
    assert_int_equal(heal_choose(&p, NULL, 0, of, n, parts, NULL, 0), ERR_OK);
    return p.step;
}

// --- what can happen next --------------------------------------------------------------------------------------------

// The newest generation whose own part is with r and whose copy is with its buddy.
static int8_t sealed(const vault_state *s, int r, int w) {
    const generation *mine = s->of[r].slot, *his = s->of[(r + 1) % w].slot;
    int8_t best = -1;
    for (int i = 0; i < VAULT_SLOTS; i++)
        for (int j = 0; j < VAULT_SLOTS; j++)
            if (mine[i].own && his[j].copy && mine[i].step == his[j].step && mine[i].step > best) best = mine[i].step;
    return best;
}

static void meet(search *q, const vault_state *s) {
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

static bool sums_are_there(const vault_state *s, int r, int w) {
    for (int i = 0; i < w; i++)
        if (s->of[i].applied < s->of[r].applied || (s->of[i].applied == s->of[r].applied && !s->of[i].gave))
            return false;
    return true;
}

static void applies(search *q, vault_state s, int r) {
    vault_rank *x = &s.of[r];
    int64_t says[RANKS];
    for (int i = 0; i < VAULT_SLOTS; i++)
        if (x->slot[i].step >= 0 && !x->slot[i].own) return;  // an update waits for the copy
    for (int i = 0; i < q->w; i++) says[i] = s.said[(x->applied + 1) % 2][i];
    x->known = (int8_t)council_sealed(x->known, says, q->w);
    const int64_t generations[VAULT_SLOTS] = {x->slot[0].step, x->slot[1].step};
    int64_t by_all = q->reuse ? sealed(&s, r, q->w) : x->known;
    int slot = council_snap(generations, by_all, x->applied + 1, EVERY);
    x->applied++, x->gave = 0;
    if (slot >= 0) x->slot[slot] = (generation){x->applied, 0, 0};
    meet(q, &s);
}

static void copies(search *q, const vault_state *s, int r) {
    const generation *before = s->of[(r + q->w - 1) % q->w].slot;
    for (int i = 0; i < VAULT_SLOTS; i++) {
        const generation *g = &s->of[r].slot[i];
        vault_state t = *s;
        if (g->step < 0) continue;
        if (!g->own) t.of[r].slot[i].own = 1, meet(q, &t);
        t = *s;
        for (int j = 0; j < VAULT_SLOTS; j++)
            if (!g->copy && before[j].step == g->step && before[j].own) t.of[r].slot[i].copy = 1, meet(q, &t);
    }
}

static void goes_on(search *q, const vault_state *s, int r) {
    const vault_rank *x = &s->of[r];
    if (!x->gave && x->applied < LAST) {
        vault_state t = *s;
        t.of[r].gave = 1, t.said[(x->applied + 1) % 2][r] = sealed(s, r, q->w);
        meet(q, &t);
    }
    if (x->gave && sums_are_there(s, r, q->w)) applies(q, *s, r);
    copies(q, s, r);
}

// --- losses ----------------------------------------------------------------------------------------------------------

static void loses(search *q, const vault_state *s, unsigned lost, int by_all) {
    heal_holding of[RANKS * 5];
    layout l[8];
    int w = q->w, two = __builtin_popcount(lost) == 2;
    bool near = two && ((lost & lost << 1) || (lost & 1 && lost >> (w - 1) & 1));
    for (int i = layouts(l, w) - 1; i >= 0; i--) {
        int64_t at = choose(of, inventory(of, s, &l[i], w, lost), w);
        int *disk = !two ? &q->disk_one : near ? &q->disk_near : &q->disk_two;
        if (at < 0) ++*disk;
        else q->older |= at < by_all;
    }
}

static void explore(search *q) {
    vault_state s;
    memset(&s, 0, sizeof s);
    generation first = q->no_first ? (generation){-1, 0, 0} : (generation){0, 1, 1};
    for (int r = 0; r < q->w; r++) {
        s.of[r] = (vault_rank){0, 0, first.step, {first, {-1, 0, 0}}};
        s.said[0][r] = s.said[1][r] = first.step;
    }
    q->queue = malloc(q->most * sizeof *q->queue);
    q->met = calloc(MET, sizeof *q->met);
    assert_true(q->queue && q->met);
    meet(q, &s);
    for (size_t i = 0; i < q->count; i++) {
        const vault_state now = q->queue[i];
        int high = 0, low = LAST, by_all = LAST;
        for (int r = 0; r < q->w; r++) {
            if (now.of[r].applied > high) high = now.of[r].applied;
            if (now.of[r].applied < low) low = now.of[r].applied;
            if (sealed(&now, r, q->w) < by_all) by_all = sealed(&now, r, q->w);
        }
        assert_true(high - low <= 1);
        for (unsigned lost = 1; lost < 1u << q->w; lost++)
            if (__builtin_popcount(lost) <= 2 && __builtin_popcount(lost) < q->w) loses(q, &now, lost, by_all);
        for (int r = 0; r < q->w; r++) goes_on(q, &now, r);
    }
    printf("%d ranks: %zu states; disk: %d one, %d two, %d neighbours\n", q->w, q->count, q->disk_one, q->disk_two,
           q->disk_near);
    free(q->queue);
    free(q->met);
}

static size_t states(size_t most) {
    const char *n = getenv("LOCKSTEP_TEST_STATES");
    return n ? (size_t)atol(n) : most;
}

static void nothing_is_lost(int w, size_t most) {
    search q = {.w = w, .most = states(most)};
    explore(&q);
    assert_int_equal(q.disk_one, 0);
    assert_int_equal(q.disk_two, 0);
    assert_true(q.disk_near > 0 || w == 2);  // what is not promised
    assert_false(q.older);
    if (w == 3) assert_int_equal(q.count, 10814);  // as many as the model has
}

static void a_loss_at_any_point(void **state) {
    (void)state;
    nothing_is_lost(2, 200000);
    nothing_is_lost(3, 200000);
    nothing_is_lost(4, 100000);
}

static void what_must_be_found(void **state) {
    (void)state;
    search reuse = {.w = 3, .most = 200000, .reuse = true}, late = {.w = 3, .most = 200000, .no_first = true};
    explore(&reuse), explore(&late);
    assert_true(reuse.disk_one > 0);
    assert_true(late.disk_one > 0);
}

// --- a second loss while the first is healed -------------------------------------------------------------------------

typedef enum stage { MOVING, LOADED, SEALING, SEALED, STAGES } stage;

// What is left after x was lost, S chosen, and y is lost at this stage.
static int second_inventory(heal_holding *of, const int *steps, int x, int y, int64_t chosen, stage at,
                            const layout *l) {
    int n = 0, w = l->data * l->model;
    unsigned groups = 0;
    for (int r = 0; r < w; r++) {
        if (r == x || r == y) continue;
        of[n++] =
            (heal_holding){r, r, 1, 2, false, false, true};  // the old generation stays until the new one is sealed
        of[n++] = (heal_holding){r, (r + w - 1) % w, 1, 2, false, false, true};
        of[n] = live(r, steps[r], l);
        of[n].torn = steps[r] != chosen;  // whoever was not there is overwritten
        if (at == MOVING) n++;
        groups |= 1u << r / l->data;
    }
    for (int r = 0; r < w; r++) {
        if (r == x || r == y) continue;
        if (at == SEALED) of[n++] = (heal_holding){r, 0, w, chosen, false, false, true};
        else if (at != MOVING && !l->zero && l->data > 1 && groups == (1u << l->model) - 1)
            of[n++] = (heal_holding){r, 0, w, chosen, true, false, false};
    }
    return n;
}

static void a_second_loss(void **state) {
    (void)state;
    enum { W = 4 };
    layout l[8];
    int tried = 0, n = layouts(l, W);
    for (int i = 0; i < n; i++)
        for (int mixed = 0; mixed < 1 << W; mixed++)
            for (int x = 0; x < W; x++) {
                heal_holding of[RANKS * 8];
                int steps[W], held = 0;
                for (int r = 0; r < W; r++) steps[r] = 4 + (mixed >> r & 1);
                for (int r = 0; r < W; r++) {
                    if (r == x) continue;
                    of[held++] = live(r, steps[r], &l[i]);
                    of[held++] = (heal_holding){r, r, 1, 2, false, false, true};
                    of[held++] = (heal_holding){r, (r + W - 1) % W, 1, 2, false, false, true};
                }
                int64_t chosen = choose(of, held, W);
                assert_true(chosen >= 2);
                for (int y = 0; y < W; y++)
                    for (stage at = MOVING; y != x && at < STAGES; at++, tried++) {
                        bool near = (y - x + W) % W == 1 || (x - y + W) % W == 1;
                        int m = second_inventory(of, steps, x, y, chosen, at, &l[i]);
                        if (choose(of, m, W) < 0 && !(near && at != SEALED))
                            fail_msg("disk: data %d, zero %d, lost %d and then %d, stage %d", l[i].data, l[i].zero, x,
                                     y, at);
                    }
            }
    assert_int_equal(tried, n * (1 << W) * W * (W - 1) * STAGES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_at_any_point),
        cmocka_unit_test(what_must_be_found),
        cmocka_unit_test(a_second_loss),
    };
    return cmocka_run_group_tests_name("council vault", tests, NULL, NULL);
}
