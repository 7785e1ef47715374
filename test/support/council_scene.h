// test/support/council_scene.h: what one node of a council has heard, for tests of its decisions.
#ifndef TEST_SUPPORT_COUNCIL_SCENE_H
#define TEST_SUPPORT_COUNCIL_SCENE_H

#include "comm/team/council.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// --- a scene: node `me` of n, all of which hear each other and work --------------------------------------------------

enum { ME_LIFE = 1000 };
#define NOW 100.0

typedef struct scene {
    council_record r;
    council_view v;
    council_rules k;
    council_decision d;
} scene;

static inline node_set first(int n) {
    node_set s = {{0}};
    for (int j = 0; j < n; j++) set_add(&s, j);
    return s;
}

static inline void begin(scene *s, int n, int me) {
    memset(s, 0, sizeof *s);
    s->k = (council_rules){.dead_s = 2, .give_up_s = 40, .drain_s = 20, .min_ranks = 1, .lanes = 8, .run = "another"};
    s->k.grid = (council_grid){0, 1, 1, 1}, s->k.fits[0] = 0x1FE;
    s->r = (council_record){.run = "a run", .k = 4, .epoch = 4, .kind = DECREE_HEAL, .nodes = n, .high = 50};
    s->r.members = s->r.voters = first(n);
    s->r.grid = (council_grid){(uint16_t)n, 1, 1, 1}, s->r.lanes = 8, s->r.ranks = n;
    council_view_open(&s->v, me, n, ME_LIFE + (uint64_t)me, 50);
    for (int j = 0; j < n; j++) {
        s->r.life[j] = ME_LIFE + (uint64_t)j, s->r.weight[j] = s->r.slots[j] = 1;
        council_report says = {.hears = first(n), .state = COUNCIL_WORKING, .ready = true, .began = true, .slots = 1};
        says.step = 60, says.sealed = 55;
        council_hears(&s->v, NOW - 0.1, j, s->r.life[j], &s->r);
        council_said(&s->v, NOW - 0.1, j, &says);
        s->v.of[j].ranks_at = NOW - 0.1;
    }
    s->v.entered = 50, s->v.sealed_at = 51, s->v.worked_at = s->v.ran_at = s->v.need_at = NOW - 0.3;
}

static inline council_action next(scene *s) {
    epoch_next(&s->d, NOW, &s->r, &s->v, &s->k);
    return s->d.action;
}

static inline void is(scene *s, council_action action, const char *why) {
    if (next(s) != action)
        fail_msg("%s, expected %s: %s", council_action_names[s->d.action], council_action_names[action], s->d.why);
    assert_string_equal(s->d.why, why);
    if (s->d.proposes && s->d.next.fruitless < COUNCIL_FRUITLESS) assert_string_equal(s->d.next.why, why);
}

static inline void cut(scene *s, int a, int b) { set_drop(&s->v.of[b].says.hears, a); }
static inline void silent(scene *s, int j, double since) {
    s->v.of[j].at = s->v.of[j].said_at = s->v.of[j].ranks_at = NOW - since;
    for (int i = 0; i < s->v.nodes; i++) cut(s, j, i);
}

#endif
