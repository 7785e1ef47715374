// test/test_council_vote.c: how the nodes of a council vote on the next record, and when one proposes it.
#include "comm/team/council.h"
#include "test/support/council_scene.h"

// --- votes -----------------------------------------------------------------------------------------------------------

static void a_voter_answers(void **state) {
    (void)state;
    static vote_page p;
    static council_record value;
    council_message answer, m = {.type = COUNCIL_PREPARE, .node = 1, .ballot = {2, 1}};
    memset(&p, 0, sizeof p);
    assert_true(council_vote(&p, &answer, &m, "works"));
    assert_int_equal(answer.type, COUNCIL_REFUSED);
    assert_string_equal(answer.why, "works");
    assert_int_equal(p.promised.round, 0);
    assert_true(council_vote(&p, &answer, &m, NULL));
    assert_true(answer.type == COUNCIL_PROMISE && !answer.value && ballot_same(p.promised, m.ballot));
    assert_true(council_vote(&p, &answer, &m, NULL));  // once only
    assert_true(answer.type == COUNCIL_REFUSED && ballot_same(answer.accepted, m.ballot));
    m.type = COUNCIL_ACCEPT, m.ballot = (council_ballot){2, 0}, m.value = &value, value.k = 9;
    assert_true(council_vote(&p, &answer, &m, "works"));
    assert_true(answer.type == COUNCIL_REFUSED && !p.has_value);
    m.ballot = (council_ballot){2, 1};
    assert_true(council_vote(&p, &answer, &m, "works"));  // once promised, it does not ask again
    assert_true(answer.type == COUNCIL_ACCEPTED && p.has_value && p.value.k == 9);
    m = (council_message){.type = COUNCIL_PREPARE, .ballot = {3, 0}};
    assert_true(council_vote(&p, &answer, &m, NULL));
    assert_true(answer.type == COUNCIL_PROMISE && answer.value == &p.value && answer.accepted.round == 2);
    m = (council_message){.type = COUNCIL_ACCEPT, .ballot = {7, 0}, .value = &value};  // without its promise
    assert_true(council_vote(&p, &answer, &m, NULL));
    assert_true(answer.type == COUNCIL_ACCEPTED && p.promised.round == 7 && p.accepted.round == 7);
    assert_false(council_vote(&p, &answer, &(council_message){.type = COUNCIL_ACCEPTED}, NULL));
}

static void a_proposer_counts(void **state) {
    (void)state;
    static vote_page p;
    static council_bid b;
    static council_record want, old[2];
    council_message out, own, m;
    memset(&p, 0, sizeof p), memset(&b, 0, sizeof b);
    p.has_record = true, p.record.voters = first(5), p.record.nodes = 5;
    for (int j = 0; j < 5; j++) p.record.weight[j] = 1;
    want.k = 2, old[0].k = 20, old[1].k = 21;
    p.promised = (council_ballot){3, 4}, b.refused = 5;
    m = (council_message){.type = COUNCIL_REFUSED, .node = 1, .accepted = {6, 1}};  // to an earlier ballot, and late
    assert_int_equal(bid_take(&b, &p, &out, &m), BID_NOTHING);
    m.node = 2, m.accepted = (council_ballot){4, 2};  // the highest counts, not the last
    assert_int_equal(bid_take(&b, &p, &out, &m), BID_NOTHING);
    bid_open(&b, &p, &out, &own, 0, &want);
    assert_true(out.type == COUNCIL_PREPARE && out.ballot.round == 7 && p.promised.round == 7);
    assert_int_equal(bid_take(&b, &p, &out, &own), BID_NOTHING);
    assert_int_equal(bid_take(&b, &p, &out, &own), BID_NOTHING);  // twice is once
    m = (council_message){.type = COUNCIL_PROMISE, .node = 1, .ballot = {6, 0}};
    assert_int_equal(bid_take(&b, &p, &out, &m), BID_NOTHING);
    m.ballot.round = 7, m.accepted = (council_ballot){5, 1}, m.value = &old[1];
    assert_int_equal(bid_take(&b, &p, &out, &m), BID_NOTHING);
    m.node = 2, m.accepted = (council_ballot){4, 4}, m.value = &old[0];
    assert_int_equal(bid_take(&b, &p, &out, &m), BID_ASK);
    assert_true(out.type == COUNCIL_ACCEPT && out.value->k == 21);         // the highest ballot's, not the own
    bid_open(&b, &p, &out, &own, 0, &want), bid_take(&b, &p, &out, &own);  // the other way round
    m = (council_message){.type = COUNCIL_PROMISE, .node = 2, .ballot = b.ballot, .accepted = {4, 4}, .value = &old[0]};
    bid_take(&b, &p, &out, &m), m.node = 1, m.accepted = (council_ballot){5, 1}, m.value = &old[1];
    assert_int_equal(bid_take(&b, &p, &out, &m), BID_ASK);
    assert_int_equal(out.value->k, 21);
    m.node = 3, m.accepted = (council_ballot){6, 0};
    assert_int_equal(bid_take(&b, &p, &out, &m), BID_NOTHING);
    assert_int_equal(b.value.k, 21);  // what was asked for stays
    m = (council_message){.type = COUNCIL_ACCEPTED, .node = 0, .ballot = {8, 0}};
    assert_int_equal(bid_take(&b, &p, &out, &m), BID_NOTHING);
    m.node = 4, assert_int_equal(bid_take(&b, &p, &out, &m), BID_NOTHING);
    m.node = 1, m.ballot.round = 7, assert_int_equal(bid_take(&b, &p, &out, &m), BID_NOTHING);
    m.ballot.round = 8, assert_int_equal(bid_take(&b, &p, &out, &m), BID_DECIDED);
    m = (council_message){.type = COUNCIL_REFUSED, .node = 4, .ballot = {8, 0}, .accepted = {99, 4}};
    bid_take(&b, &p, &out, &m), bid_open(&b, &p, &out, &own, 0, &want);
    assert_int_equal(b.ballot.round, 100);
    b.open = false, m = (council_message){.type = COUNCIL_PROMISE, .node = 1, .ballot = {100, 0}};
    assert_int_equal(bid_take(&b, &p, &out, &m), BID_NOTHING);
}

static void a_record_is_taken(void **state) {
    (void)state;
    static vote_page p;
    static council_record r;
    memset(&p, 0, sizeof p);
    r.k = 1, r.life[2] = 77;
    assert_false(council_adopt(&p, &r, 2, 78));  // record 1 names another life
    assert_true(council_adopt(&p, &r, 2, 77));
    p.has_value = true, p.promised = p.accepted = (council_ballot){4, 1};
    assert_false(council_adopt(&p, &r, 2, 77));
    r.k = 3, r.life[2] = 1;
    assert_true(council_adopt(&p, &r, 2, 77));
    assert_true(!p.has_value && p.promised.round == 0 && p.accepted.round == 0 && p.record.k == 3);
    r.k = 9, r.run[3] = 1;
    assert_false(council_adopt(&p, &r, 2, 77));
}

// A HEAL is not asked for before all that are to be members have promised, if they vote.
static void members_of_a_heal_promise(void **state) {
    (void)state;
    static vote_page p;
    static council_bid b;
    scene s;
    council_message out, own, m = {.type = COUNCIL_PROMISE, .node = 1};
    for (int i = 0; i < 4; i++) {
        begin(&s, 4, 0), silent(&s, 3, 3), next(&s);
        memset(&p, 0, sizeof p), memset(&b, 0, sizeof b);
        p.has_record = true, p.record = s.r;
        if (i == 1) s.d.next.life[2] = 7;         // not in that life
        if (i == 2) s.d.next.kind = DECREE_JOIN;  // all are heard anyway
        if (i == 3) s.d.next.members = first(2);  // no member
        bid_open(&b, &p, &out, &own, 0, &s.d.next);
        m.ballot = b.ballot;
        assert_int_equal(bid_take(&b, &p, &out, &own), BID_NOTHING);
        m.node = 1, assert_int_equal(bid_take(&b, &p, &out, &m), i ? BID_ASK : BID_NOTHING);
        m.node = 3, assert_int_equal(bid_take(&b, &p, &out, &m), BID_NOTHING);
        m.node = 2, assert_int_equal(bid_take(&b, &p, &out, &m), i ? BID_NOTHING : BID_ASK);
    }
    memset(&b, 0, sizeof b), next(&s);  // what may be decided already is asked for at once
    bid_open(&b, &p, &out, &own, 0, &s.d.next), bid_take(&b, &p, &out, &own);
    m = (council_message){
        .type = COUNCIL_PROMISE, .node = 1, .ballot = b.ballot, .accepted = {1, 1}, .value = &s.d.next};
    assert_int_equal(bid_take(&b, &p, &out, &m), BID_ASK);
}

// Only the lives that the record names vote; its only voter decides alone, and tells all.
static void votes_of_other_lives(void **state) {
    (void)state;
    static council c;
    static council_outbox out;
    static council_record want;
    scene s;
    vote_page page = {.has_record = true};
    begin(&s, 3, 0), page.record = s.r;
    council_open(&c, &s.k, 0, 3, ME_LIFE, &page, NOW);
    want = s.r, want.k = want.epoch = 5, want.members.word[0] = 3;
    out.count = 0, council_propose(&c, &out, NOW, &want);
    assert_int_equal(out.out[0].m.type, COUNCIL_PREPARE);
    council_message m = {.type = COUNCIL_PROMISE, .node = 1, .life = 7, .newest = &s.r, .ballot = c.bid.ballot};
    council_take(&c, &out, NOW, &m), assert_int_equal(out.count, 0);
    m.life = ME_LIFE + 1, council_take(&c, &out, NOW, &m);
    assert_true(out.count == 1 && out.out[0].to == -1 && out.out[0].m.type == COUNCIL_ACCEPT);
    m.type = COUNCIL_ACCEPTED, m.node = 2, m.life = 7;
    council_take(&c, &out, NOW, &m), assert_int_equal(council_newest(&c)->k, 4);
    m.life = ME_LIFE + 2, council_take(&c, &out, NOW, &m), assert_int_equal(council_newest(&c)->k, 5);
    assert_true(out.took && out.count == 1 && out.out[0].m.type == COUNCIL_REPORT && out.out[0].m.newest->k == 5);
    page.record.voters.word[0] = 1;
    council_open(&c, &s.k, 0, 3, ME_LIFE, &page, NOW);
    out.count = 0, council_propose(&c, &out, NOW, &want);
    assert_int_equal(council_newest(&c)->k, 5);
    assert_true(out.count == 1 && out.out[0].m.type == COUNCIL_REPORT);
    c.view.life = 3, m = (council_message){.type = COUNCIL_PREPARE, .node = 2, .life = ME_LIFE + 2, .newest = &want};
    m.ballot.round = 99, council_take(&c, &out, NOW, &m), assert_int_equal(out.count, 0);  // another life of its own
}

// Two that propose in turns would get nowhere: who has promised to vote for another one waits.
static void a_promise_holds_back(void **state) {
    (void)state;
    static council c;
    static council_outbox out;
    scene s;
    vote_page page = {.has_record = true};
    begin(&s, 3, 0), page.record = s.r;
    council_open(&c, &s.k, 0, 3, ME_LIFE, &page, NOW);
    council_message m = {.type = COUNCIL_PREPARE, .node = 1, .life = ME_LIFE + 1, .newest = &s.r, .ballot = {1, 1}};
    c.view.of[0].says.failed = true;
    council_take(&c, &out, NOW + 5, &m);
    assert_int_equal(out.out[0].m.type, COUNCIL_PROMISE);
    assert_true(c.proposed_at == NOW + 5);
    m.ballot.round = 0, council_take(&c, &out, NOW + 6, &m);
    assert_int_equal(out.out[0].m.type, COUNCIL_REFUSED);
    assert_true(c.proposed_at == NOW + 5);
}

// The pause is for a proposal that nobody answers. What has become a record is followed by the next one at once.
static void a_record_ends_the_pause(void **state) {
    (void)state;
    static council c;
    static council_outbox out;
    scene s;
    vote_page page = {.has_record = true};
    begin(&s, 3, 1), page.record = s.r;
    council_open(&c, &s.k, 1, 3, ME_LIFE + 1, &page, NOW);
    council_record after = s.r;
    after.k = after.epoch = 5;
    council_message m = {.type = COUNCIL_REPORT, .node = 0, .life = ME_LIFE, .newest = &s.r};
    m.report = s.v.of[0].says;
    council_take(&c, &out, NOW + 1, &m);
    assert_true(c.proposed_at == NOW);  // a record that it has already
    m.newest = &after;
    council_take(&c, &out, NOW + 1, &m);
    assert_true(out.took && c.proposed_at == COUNCIL_NEVER);
}

// The others refuse to vote while all works for them: so they hear of the loss first.
static void a_loss_is_reported_before_its_proposal(void **state) {
    (void)state;
    static council c;
    static council_outbox out;
    static council_decision d;
    scene s;
    vote_page page = {.has_record = true};
    begin(&s, 3, 0), page.record = s.r;
    council_open(&c, &s.k, 0, 3, ME_LIFE, &page, NOW - 5);
    s.v.entered = c.view.entered, c.view = s.v;
    council_report own = s.v.of[0].says;
    own.failed = true;
    council_tick(&c, &d, &out, NOW, &own);
    assert_int_equal(d.action, COUNCIL_HEAL);
    assert_int_equal(out.count, 2);
    assert_int_equal(out.out[0].m.type, COUNCIL_REPORT);
    assert_true(out.out[0].m.report.failed);
    assert_int_equal(out.out[1].m.type, COUNCIL_PREPARE);
}

// Nor is a loss work while no vote decides it: the wait counts, and the node gives up in the end.
static void a_heal_that_is_not_decided_is_no_work(void **state) {
    (void)state;
    static council c;
    static council_outbox out;
    static council_decision d;
    scene s;
    vote_page page = {.has_record = true};
    begin(&s, 3, 0), page.record = s.r;
    council_open(&c, &s.k, 0, 3, ME_LIFE, &page, NOW - 5);
    s.v.entered = s.v.worked_at = NOW - 5, c.view = s.v;
    council_report own = s.v.of[0].says;
    council_tick(&c, &d, &out, NOW, &own);
    assert_true(d.action == COUNCIL_STAY && c.view.worked_at == NOW);
    own.failed = true;
    for (int i = 1; i < 10; i++) {
        council_tick(&c, &d, &out, NOW + 0.1 * i, &own);
        assert_true(d.action == COUNCIL_HEAL && c.view.worked_at == NOW);
    }
}

// Does the node propose at once, when a ballot that it has just opened was refused, with this ballot promised? late: it
// was the one before.
static bool asks_again(council_ballot promised, bool late) {
    static council c;
    static council_outbox out;
    static council_decision d;
    scene s;
    vote_page page = {.has_record = true, .promised = {4, 1}};
    begin(&s, 3, 0), page.record = s.r;
    council_open(&c, &s.k, 0, 3, ME_LIFE, &page, NOW - 5);
    s.v.entered = c.view.entered, c.view = s.v;
    council_report own = s.v.of[0].says;
    own.failed = true;
    council_tick(&c, &d, &out, NOW, &own);
    council_ballot asked = out.out[1].m.ballot;
    council_tick(&c, &d, &out, NOW + 0.01, &own);
    assert_int_equal(out.count, 1);  // an answer is still to come
    council_message no = {.type = COUNCIL_REFUSED, .node = 1, .life = s.r.life[1], .newest = &s.r, .ballot = asked};
    no.accepted = promised.round ? promised : (council_ballot){asked.round - 1, 0};
    if (late) no.ballot.round -= 2, no.accepted.round -= 2;
    council_take(&c, &out, NOW + 0.02, &no);
    council_tick(&c, &d, &out, NOW + 0.03, &own);
    return out.count == 2 && out.out[1].m.type == COUNCIL_PREPARE && ballot_before(asked, out.out[1].m.ballot);
}

static void who_has_not_heard_of_the_loss_is_asked_again(void **state) {
    (void)state;
    assert_true(asks_again((council_ballot){0, 0}, false));
    assert_false(asks_again((council_ballot){9, 2}, false));  // somebody else proposes
    assert_false(asks_again((council_ballot){0, 0}, true));   // the newest one is still to be answered
}

// Node 0 of three has asked for a vote on a HEAL without node 2, which was silent, and may have heard it again since.
// Does a promise bring the HEAL about?
static bool promise_counts(bool heard_again) {
    static council c;
    static council_outbox out;
    static council_decision d;
    scene s;
    vote_page page = {.has_record = true};
    begin(&s, 3, 0), page.record = s.r;
    council_report own = s.v.of[0].says, its = s.v.of[2].says;
    council_open(&c, &s.k, 0, 3, ME_LIFE, &page, NOW - 5);
    silent(&s, 2, 3), s.v.entered = c.view.entered, c.view = s.v;
    council_tick(&c, &d, &out, NOW, &own);
    assert_true(d.action == COUNCIL_HEAL && out.count == 2 && out.out[1].m.type == COUNCIL_PREPARE);
    council_message m = {.type = COUNCIL_REPORT, .node = 2, .life = s.r.life[2], .newest = &s.r, .report = its};
    if (heard_again) council_take(&c, &out, NOW + 0.1, &m);
    council_tick(&c, &d, &out, NOW + 0.2, &own);
    assert_int_equal(d.action, heard_again ? COUNCIL_STAY : COUNCIL_HEAL);
    m = (council_message){.type = COUNCIL_PROMISE, .node = 1, .life = s.r.life[1], .newest = &s.r};
    m.ballot = c.bid.ballot;
    council_take(&c, &out, NOW + 0.3, &m);
    return out.count == 1 && out.out[0].m.type == COUNCIL_ACCEPT;
}

static void a_bid_ends_with_its_need(void **state) {
    (void)state;
    assert_true(promise_counts(false));
    assert_false(promise_counts(true));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_voter_answers),
        cmocka_unit_test(a_proposer_counts),
        cmocka_unit_test(a_record_is_taken),
        cmocka_unit_test(members_of_a_heal_promise),
        cmocka_unit_test(votes_of_other_lives),
        cmocka_unit_test(a_promise_holds_back),
        cmocka_unit_test(a_record_ends_the_pause),
        cmocka_unit_test(a_loss_is_reported_before_its_proposal),
        cmocka_unit_test(a_heal_that_is_not_decided_is_no_work),
        cmocka_unit_test(who_has_not_heard_of_the_loss_is_asked_again),
        cmocka_unit_test(a_bid_ends_with_its_need),
    };
    return cmocka_run_group_tests_name("council vote", tests, NULL, NULL);
}
