// comm/team/council.c: what one node does with a message, and with the time.
#include "comm/team/council.h"

#include <stdio.h>
#include <string.h>

void council_open(council *c, const council_rules *rules, int node, int nodes, uint64_t life, const vote_page *page,
                  double now) {
    c->rules = *rules;
    c->bid = (council_bid){.open = false};
    c->proposed_at = now;
    if (page) c->page = *page;
    else memset(&c->page, 0, sizeof c->page);
    council_view_open(&c->view, node, nodes, life, now);
    if (!page || !page->has_record) return;
    council_taken(&c->view, now, &c->page.record, 0, false);
}

static void post(council *c, council_outbox *out, int to, const council_message *m) {
    if (out->count == COUNCIL_OUTBOX) return;  // never: no call makes more
    out->out[out->count].m = *m;
    out->out[out->count].m.node = c->view.node, out->out[out->count].m.life = c->view.life;
    out->out[out->count].m.newest = council_newest(c);
    out->out[out->count++].to = to;
}

static void take_record(council *c, council_outbox *out, double now, const council_record *r) {
    const council_record *is = council_newest(c);
    bool was = council_member(&c->view, is, c->view.node);
    uint64_t epoch = is ? is->epoch : 0;
    if (!council_adopt(&c->page, r, c->view.node, c->view.life)) return;
    council_taken(&c->view, now, &c->page.record, epoch, was);
    c->bid.open = false, c->bid.refused = 0;
    c->proposed_at = COUNCIL_NEVER;  // what was proposed is decided: the next loss waits for nothing
    out->took = true;
}

static void report(council *c, council_outbox *out) {
    post(c, out, -1, &(council_message){.type = COUNCIL_REPORT, .report = c->view.of[c->view.node].says});
}

// --- voting ----------------------------------------------------------------------------------------------------------

// What an answer to the own bid brings; the own vote is one of them.
static void count(council *c, council_outbox *out, double now, const council_message *m) {
    council_message ask, own;
    bid_news news = bid_take(&c->bid, &c->page, &ask, m);
    if (news == BID_ASK) {
        post(c, out, -1, &ask);
        if (!council_vote(&c->page, &own, &ask, NULL)) return;
        own.node = c->view.node;
        news = bid_take(&c->bid, &c->page, &ask, &own);
    }
    if (news != BID_DECIDED) return;
    council_record decided = c->bid.value;
    take_record(c, out, now, &decided);
    out->count = 0;  // what was to be sent is of the record before
    report(c, out);
}

void council_propose(council *c, council_outbox *out, double now, const council_record *want) {
    council_message prepare, own;
    bid_open(&c->bid, &c->page, &prepare, &own, c->view.node, want);
    c->proposed_at = now;
    post(c, out, -1, &prepare);
    count(c, out, now, &own);
}

// Why this node would vote for no change; NULL: it would.
static const char *busy(const council *c, double now) {
    council_decision d;
    if (!council_works(now, &c->page.record, &c->view, &c->rules)) return NULL;
    epoch_next(&d, now, &c->page.record, &c->view, &c->rules);
    return d.action == COUNCIL_STAY ? "works, and all members with it" : NULL;
}

// One that works has not heard of the loss yet: the report of it was on its way on another connection. Then the next
// tick asks again, and does not wait as after a ballot that lost to a later one.
static void hear_refusal(council *c, const council_message *m) {
    bool own = c->bid.open && ballot_same(m->ballot, c->bid.ballot);
    if (m->type == COUNCIL_REFUSED && own && ballot_before(m->accepted, m->ballot)) c->proposed_at = COUNCIL_NEVER;
}

static void vote(council *c, council_outbox *out, double now, const council_message *m) {
    council_message answer;
    const council_record *r = &c->page.record;
    bool same =
        c->page.has_record && m->newest && m->newest->k == r->k && memcmp(m->newest->run, r->run, COUNCIL_RUN) == 0;
    if (!same || !council_votes(&c->view, r, m->node)) return;
    hear_refusal(c, m);
    if (m->type != COUNCIL_PREPARE && m->type != COUNCIL_ACCEPT) count(c, out, now, m);
    else if (council_votes(&c->view, r, c->view.node) &&
             council_vote(&c->page, &answer, m, m->type == COUNCIL_PREPARE ? busy(c, now) : NULL)) {
        post(c, out, m->node, &answer);
        if (answer.type == COUNCIL_PROMISE) c->proposed_at = now;  // two that propose in turns would get nowhere
    }
}

// --- messages and time -----------------------------------------------------------------------------------------------

void council_take(council *c, council_outbox *out, double now, const council_message *m) {
    out->count = 0, out->took = false;
    if (m->node >= c->view.nodes || m->node == c->view.node) return;
    council_woke(&c->view, now);
    council_hears(&c->view, now, m->node, m->life, m->newest);
    if (m->newest && m->newest->nodes == c->view.nodes) take_record(c, out, now, m->newest);
    if (m->type == COUNCIL_REPORT) council_said(&c->view, now, m->node, &m->report);
    else if (m->type != COUNCIL_FORMED && m->type != COUNCIL_SETTINGS) vote(c, out, now, m);
}

static void act(council *c, const council_decision *d, council_outbox *out, double now) {
    if (!d->proposes) c->view.need_at = now, c->bid.open = false;
    if (d->action == COUNCIL_FORM) {
        take_record(c, out, now, &d->next);
        post(c, out, -1, &(council_message){.type = COUNCIL_FORMED});
    } else if (council_proposes(d, now, c->proposed_at, council_newest(c), &c->view, &c->rules))
        council_propose(c, out, now, &d->next);
}

void council_tick(council *c, council_decision *d, council_outbox *out, double now, const council_report *own) {
    const council_record *r = council_newest(c);
    out->count = 0, out->took = false;
    council_woke(&c->view, now);
    council_own(&c->view, now, r, own, c->rules.dead_s);
    epoch_next(d, now, r, &c->view, &c->rules);
    if (council_member(&c->view, r, c->view.node) && d->action != COUNCIL_WAIT && d->action != COUNCIL_HEAL)
        c->view.worked_at = now;
    report(c, out);  // before a proposal: who has not heard of a loss refuses to vote on it
    act(c, d, out, now);
}
