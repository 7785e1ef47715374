// comm/team/council_vote.c: a voter's answers, a proposer's ballots, and the page that outlives a council.
#include "comm/team/council_vote.h"

#include "comm/team/council_bytes.h"

#include <stdatomic.h>
#include <stdio.h>

// --- voting ----------------------------------------------------------------------------------------------------------

static bool refuse(const vote_page *p, council_message *answer, const char *why) {
    answer->type = COUNCIL_REFUSED;
    answer->accepted = p->promised;
    snprintf(answer->why, sizeof answer->why, "%s", why);
    return true;
}

bool council_vote(vote_page *p, council_message *answer, const council_message *m, const char *busy) {
    *answer = (council_message){.ballot = m->ballot, .newest = &p->record};
    if (m->type == COUNCIL_PREPARE) {
        if (!ballot_before(p->promised, m->ballot)) return refuse(p, answer, "a later ballot is promised");
        if (busy) return refuse(p, answer, busy);
        p->promised = m->ballot;
        answer->type = COUNCIL_PROMISE, answer->accepted = p->accepted;
        answer->value = p->has_value ? &p->value : NULL;
        return true;
    }
    if (m->type != COUNCIL_ACCEPT) return false;
    if (ballot_before(m->ballot, p->promised)) return refuse(p, answer, "a later ballot is promised");
    p->promised = p->accepted = m->ballot;
    p->value = *m->value, p->has_value = true;
    answer->type = COUNCIL_ACCEPTED;
    return true;
}

bool council_adopt(vote_page *p, const council_record *r, int node, uint64_t life) {
    if (!record_newer(r, p->has_record ? &p->record : NULL)) return false;
    if (r->k == 1 && r->life[node] != life) return false;
    p->record = *r, p->has_record = true;
    p->has_value = false;
    p->promised = p->accepted = (council_ballot){0, 0};
    return true;
}

// --- proposing -------------------------------------------------------------------------------------------------------

// Promises say what was accepted: the value of the highest ballot must be proposed again, as it may be decided.
static void learn(council_bid *b, council_ballot accepted, const council_record *value) {
    if (!value || !ballot_before(b->highest, accepted)) return;
    b->highest = accepted;
    b->value = *value;
}

void bid_open(council_bid *b, vote_page *p, council_message *out, council_message *own, int node,
              const council_record *want) {
    uint64_t seen = b->refused > p->promised.round ? b->refused : p->promised.round;
    b->open = true, b->asked = false;
    b->ballot = (council_ballot){seen + 1, (uint16_t)node}, b->highest = (council_ballot){0, 0};
    b->promised = b->accepted = (node_set){{0}};
    b->value = *want;
    p->promised = b->ballot;
    *own = (council_message){.type = COUNCIL_PROMISE, .node = node, .ballot = b->ballot, .accepted = p->accepted};
    if (p->has_value) own->value = &p->value;
    *out = (council_message){.type = COUNCIL_PREPARE, .ballot = b->ballot, .newest = &p->record};
}

// Of a HEAL, all that are to be members and can vote have promised: who has just died, and is not missed yet, would
// take the state along.
static bool members_promised(const council_bid *b, const council_record *r) {
    if (b->highest.round || b->value.kind != DECREE_HEAL) return true;
    node_set asked = set_and(b->value.members, &r->voters);
    FOR_NODES(j, &asked)
        if (b->value.life[j] == r->life[j] && !set_has(&b->promised, j)) return false;
    return true;
}

bid_news bid_take(council_bid *b, const vote_page *p, council_message *out, const council_message *m) {
    if (m->type == COUNCIL_REFUSED && m->accepted.round > b->refused) b->refused = m->accepted.round;
    if (!b->open || !ballot_same(m->ballot, b->ballot)) return BID_NOTHING;
    if (m->type == COUNCIL_PROMISE && !b->asked) {
        set_add(&b->promised, m->node);
        learn(b, m->accepted, m->value);
        if (!council_enough(&b->promised, &p->record) || !members_promised(b, &p->record)) return BID_NOTHING;
        b->asked = true;
        *out = (council_message){.type = COUNCIL_ACCEPT, .ballot = b->ballot, .newest = &p->record, .value = &b->value};
        return BID_ASK;
    }
    if (m->type != COUNCIL_ACCEPTED || !b->asked) return BID_NOTHING;
    set_add(&b->accepted, m->node);
    return council_enough(&b->accepted, &p->record) ? BID_DECIDED : BID_NOTHING;
}

// --- the page in memory ----------------------------------------------------------------------------------------------

// One copy: flags (1), ballots (2 * 10), records as they are on the wire.
enum { COPY_BYTES = (VOTE_PAGE_BYTES - 8) / 2 };

static void write_ballot(byte_writer *w, council_ballot b) { write_number(w, b.round, 8), write_number(w, b.node, 2); }

static void write_record(byte_writer *w, bool has, const council_record *r) {
    if (has) w->n += record_pack(w->at + w->n, w->room - w->n, r);
}

void vote_page_write(uint8_t memory[VOTE_PAGE_BYTES], const vote_page *p) {
    uint64_t turn = le64_get(memory) + 1;
    byte_writer w = {.at = memory + 8 + turn % 2 * COPY_BYTES, .room = COPY_BYTES};
    write_number(&w, p->has_record | p->has_value << 1, 1);
    write_ballot(&w, p->promised), write_ballot(&w, p->accepted);
    write_record(&w, p->has_record, &p->record);
    write_record(&w, p->has_value, &p->value);
    atomic_thread_fence(memory_order_release);  // the copy is whole before it counts
    le64_put(memory, turn);
}

static void read_ballot(byte_reader *s, council_ballot *b) {
    b->round = read_number(s, 8), b->node = (uint16_t)read_upto(s, 2, COUNCIL_NODES - 1);
}

static err_t read_record(byte_reader *s, bool has, council_record *r) {
    size_t used = 0;
    if (has) TRY(record_unpack(r, s->at + s->n, s->size - s->n, &used));
    s->n += used;
    return ERR_OK;
}

err_t vote_page_read(vote_page *p, const uint8_t memory[VOTE_PAGE_BYTES]) {
    uint64_t turn = le64_get(memory);
    byte_reader s = {.at = memory + 8 + turn % 2 * COPY_BYTES, .size = COPY_BYTES};
    int flags = read_upto(&s, 1, 3);
    memset(p, 0, sizeof *p);
    p->has_record = flags & 1, p->has_value = flags >> 1 & 1;
    read_ballot(&s, &p->promised), read_ballot(&s, &p->accepted);
    TRY(read_record(&s, p->has_record, &p->record));
    TRY(read_record(&s, p->has_value, &p->value));
    if (s.bad || (p->has_value && (!p->has_record || p->value.k != p->record.k + 1)))
        return err_set(ERR_DATA, "the vote page of the council: turn %llu is damaged", (unsigned long long)turn);
    return ERR_OK;
}
