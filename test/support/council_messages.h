// test/support/council_messages.h: one message of each kind, with records that no rule would refuse.
#ifndef TEST_SUPPORT_COUNCIL_MESSAGES_H
#define TEST_SUPPORT_COUNCIL_MESSAGES_H

#include "comm/team/council_vote.h"

#include <stdio.h>
#include <string.h>

// Record 4, a HEAL of node 1: 0 and 2 with two slots each; data 3 over 8 lanes, and a spare.
static inline void example_record(council_record *r) {
    *r = (council_record){.run = "a run of sixteen", .k = 4, .epoch = 4, .kind = DECREE_HEAL, .nodes = 3};
    snprintf(r->why, sizeof r->why, "node 1 has not been heard for 2.1 s, neither its council nor its ranks");
    r->members.word[0] = 5, r->voters.word[0] = 7, r->evicted.word[0] = 2;
    r->high = 412, r->fruitless = 1;
    r->grid = (council_grid){3, 1, 1, 1}, r->lanes = 8, r->ranks = 3, r->spares = 1;
    for (int j = 0; j < 3; j++) r->life[j] = 1000 + (uint64_t)j, r->weight[j] = r->slots[j] = 2;
    for (int i = 0; i < 4; i++) r->seat[i] = (council_seat){(uint16_t)(i / 2 * 2), (uint16_t)(i % 2)};
    r->deal[0] = 2, r->deal[1] = r->deal[2] = 3;
}

// Record 5, which lets the members vote.
static inline void example_next(council_record *r) {
    example_record(r);
    council_fence(r->fence, r);
    r->k = 5, r->kind = DECREE_SETTLE;
    r->voters = r->members;
}

static inline void example_message(council_message *m, council_room *room, council_type type) {
    example_record(&room->newest), example_next(&room->value);
    *m = (council_message){.type = type, .node = 2, .life = 77, .newest = &room->newest};
    if (type == COUNCIL_FORMED) room->newest.k = room->newest.epoch = 1;
    if (type == COUNCIL_REPORT) {
        m->report = (council_report){.hears = {{7}}, .state = COUNCIL_WORKING, .ready = true, .failed = true};
        m->report.slots = 2, m->report.step = 412, m->report.sealed = 400, m->report.lane_us = 1500,
        m->report.slow = 34, m->report.data = 0x0123456789abcdef;
    } else if (type == COUNCIL_SETTINGS) m->settings = "optimizer.lr=0.01\nrun.seed=7\n";
    else if (type != COUNCIL_FORMED) m->ballot = (council_ballot){9, 2};
    if (type == COUNCIL_PROMISE || type == COUNCIL_REFUSED) m->accepted = (council_ballot){8, 1};
    if (type == COUNCIL_PROMISE || type == COUNCIL_ACCEPT) m->value = &room->value;
    if (type == COUNCIL_REFUSED) snprintf(m->why, sizeof m->why, "works, and all members with it");
}

static inline void example_page(vote_page *p) {
    memset(p, 0, sizeof *p);
    p->has_record = p->has_value = true;
    p->promised = (council_ballot){9, 2}, p->accepted = (council_ballot){8, 1};
    example_record(&p->record), example_next(&p->value);
}

#endif
