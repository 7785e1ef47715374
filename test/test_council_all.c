// test/test_council_all.c: all histories of three nodes to 12 events, as the Promela model of the votes has them:
// messages that were sent are a set that only grows, so loss, delay, repetition and every order are all "not received
// yet"; anybody proposes anything at any time; a council is killed and goes on with its vote page; a supervisor starts
// anew. The councils are the product's. A state that was met before, after as few events, is not looked at again.
//
// LOCKSTEP_TEST_EVENTS=14 goes further.
#include "comm/team/council.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NODES = 3, RECORDS = 4096, MESSAGES = 32768, SENT = 40, LAST = 3, ROUNDS = 2 };

// A node in a state: numbers of records in `table.record`; 0: none.
typedef struct small_node {
    uint8_t birth, open, asked, bid_promised, bid_accepted, promised[2], accepted[2], ballot[2], highest[2], refused;
    uint16_t record, value, bid;
} small_node;

typedef struct small_state {
    small_node node[NODES];
    uint16_t decided[LAST + 1];
    uint8_t kills, crashes, sents, stepped;  // stepped: the newest epoch that could apply a step
    uint16_t sent[SENT];                     // ascending, zeros after them
} small_state;

typedef struct known_message {
    uint8_t type, from, birth;
    int8_t to;
    uint16_t newest, value;
    uint8_t ballot[2], accepted[2];
} known_message;

typedef struct table {
    council_record record[RECORDS];
    int records;
    known_message message[MESSAGES];
    int messages;
    uint64_t *met;  // hashes; 0: free
    size_t met_room, met_count;
    small_state *layer[2];
    size_t count[2], room;
    long events;
} table;

typedef struct limits {
    int events, kills, crashes;
    bool forgets,
        votes_on;  // what must be found out: a council without its page; a new life that votes for its old one
    bool found;
} limits;

static uint64_t life_of(int node, int birth) { return (uint64_t)(100 * birth + node + 1); }

// --- records and messages have numbers -------------------------------------------------------------------------------

static uint16_t record_number(table *t, const council_record *r) {
    for (int i = 1; i < t->records; i++) {
        const council_record *x = &t->record[i];
        if (x->k == r->k && x->members.word[0] == r->members.word[0] && x->voters.word[0] == r->voters.word[0] &&
            memcmp(x->life, r->life, NODES * sizeof *r->life) == 0 && x->epoch == r->epoch)
            return (uint16_t)i;
    }
    assert_true(t->records < RECORDS);
    t->record[t->records] = *r;
    return (uint16_t)t->records++;
}

static uint16_t message_number(table *t, const known_message *m) {
    for (int i = 0; i < t->messages; i++)
        if (memcmp(&t->message[i], m, sizeof *m) == 0) return (uint16_t)i;
    assert_true(t->messages < MESSAGES);
    t->message[t->messages] = *m;
    return (uint16_t)t->messages++;
}

static void put_ballot(uint8_t to[2], council_ballot b) { to[0] = (uint8_t)b.round, to[1] = (uint8_t)b.node; }
static council_ballot get_ballot(const uint8_t from[2]) { return (council_ballot){from[0], from[1]}; }

// --- a node of a state as a council, and back ------------------------------------------------------------------------

// Of three nodes' records all that decides: to copy the rest would take most of the time.
static void copy(council_record *to, const council_record *from) {
    memcpy(to, from, offsetof(council_record, life));
    memcpy(to->life, from->life, NODES * sizeof *to->life);
    memcpy(to->weight, from->weight, NODES * sizeof *to->weight);
    memcpy(to->slots, from->slots, NODES * sizeof *to->slots);
}

// What the scratch councils hold now, so that a record is copied only when it is another one.
typedef struct scratch {
    council c;
    int record, value, bid;
} scratch;

static void expand(const table *t, scratch *s, const small_node *n, int node) {
    council *c = &s->c;
    if (s->record != n->record) copy(&c->page.record, &t->record[n->record]), s->record = n->record;
    if (s->value != n->value) copy(&c->page.value, &t->record[n->value]), s->value = n->value;
    if (s->bid != n->bid) copy(&c->bid.value, &t->record[n->bid]), s->bid = n->bid;
    c->page.has_record = n->record != 0, c->page.has_value = n->value != 0;
    c->page.promised = get_ballot(n->promised), c->page.accepted = get_ballot(n->accepted);
    c->view.life = c->view.of[node].life = life_of(node, n->birth);
    c->bid.open = n->open, c->bid.asked = n->asked, c->bid.ballot = get_ballot(n->ballot);
    c->bid.highest = get_ballot(n->highest), c->bid.refused = n->refused;
    c->bid.promised.word[0] = n->bid_promised, c->bid.accepted.word[0] = n->bid_accepted;
}

static void compress(table *t, scratch *s, small_node *n) {
    const council *c = &s->c;
    n->record = c->page.has_record ? record_number(t, &c->page.record) : 0;
    n->value = c->page.has_value ? record_number(t, &c->page.value) : 0;
    put_ballot(n->promised, c->page.promised), put_ballot(n->accepted, c->page.accepted);
    n->open = c->bid.open, n->refused = (uint8_t)c->bid.refused;
    if (!c->bid.open) n->asked = n->bid_promised = n->bid_accepted = 0, n->bid = 0;
    if (!c->bid.open) memset(n->ballot, 0, 2), memset(n->highest, 0, 2);
    if (c->bid.open) {
        n->asked = c->bid.asked, n->bid = record_number(t, &c->bid.value);
        n->bid_promised = (uint8_t)c->bid.promised.word[0], n->bid_accepted = (uint8_t)c->bid.accepted.word[0];
        put_ballot(n->ballot, c->bid.ballot), put_ballot(n->highest, c->bid.highest);
    }
    s->record = s->value = s->bid = -1;
    if (n->record) s->record = n->record;
    if (n->value) s->value = n->value;
    if (n->bid) s->bid = n->bid;
}

// --- events ----------------------------------------------------------------------------------------------------------

static void send(small_state *s, uint16_t number) {
    int at = 0;
    while (at < s->sents && s->sent[at] < number) at++;
    if (at < s->sents && s->sent[at] == number) return;
    assert_true(s->sents < SENT);
    memmove(s->sent + at + 1, s->sent + at, (size_t)(s->sents - at) * sizeof *s->sent);
    s->sent[at] = number, s->sents++;
}

static void sends(table *t, small_state *s, int node, const council_outbox *out) {
    for (int i = 0; i < out->count; i++) {
        const council_message *m = &out->out[i].m;
        if (m->type == COUNCIL_REPORT || m->type == COUNCIL_REFUSED) continue;  // `learn` stands for all reports
        known_message k = {.type = (uint8_t)m->type, .from = (uint8_t)node, .birth = s->node[node].birth};
        k.to = (int8_t)out->out[i].to;
        k.newest = m->newest ? record_number(t, m->newest) : 0;
        k.value = m->value ? record_number(t, m->value) : 0;
        put_ballot(k.ballot, m->ballot), put_ballot(k.accepted, m->accepted);
        send(s, message_number(t, &k));
    }
}

// The node's newest record is decided: there is no other of its number.
static void check(const table *t, small_state *s, int node, limits *l) {
    uint16_t is = s->node[node].record;
    if (!is) return;
    uint16_t *was = &s->decided[t->record[is].k];
    if (*was && *was != is) {
        l->found = true;
        if (!l->forgets && !l->votes_on)
            fail_msg("two records %llu after %ld events", (unsigned long long)t->record[is].k, t->events);
    }
    *was = is;
}

// Has every member of the node's newest record taken it, in the life that it names? Then it may apply a step, unless a
// later epoch already could.
static void check_step(const table *t, small_state *s, int node) {
    const council_record *r = &t->record[s->node[node].record];
    FOR_NODES(j, &r->members)
        if (s->node[j].record != s->node[node].record || r->life[j] != life_of(j, s->node[j].birth)) return;
    if (r->k < s->stepped)
        fail_msg("epoch %llu may apply a step after epoch %d could", (unsigned long long)r->k, s->stepped);
    s->stepped = (uint8_t)r->k;
}

static void after(table *t, scratch *x, small_state *s, int node, const council_outbox *out, limits *l) {
    compress(t, x, &s->node[node]);
    sends(t, s, node, out);
    check(t, s, node, l);
    if (s->node[node].record && !l->forgets && !l->votes_on) check_step(t, s, node);
}

static void hear(table *t, scratch *x, small_state *s, int node, const known_message *k, limits *l) {
    council_outbox out;
    council_message m = {.type = (council_type)k->type, .node = k->from, .life = life_of(k->from, k->birth)};
    m.newest = k->newest ? &t->record[k->newest] : NULL, m.value = k->value ? &t->record[k->value] : NULL;
    m.ballot = get_ballot(k->ballot), m.accepted = get_ballot(k->accepted);
    if (l->votes_on && m.newest) m.life = m.newest->life[k->from];
    expand(t, x, &s->node[node], node);
    if (l->votes_on && x->c.page.has_record) x->c.view.life = x->c.page.record.life[node];
    council_take(&x->c, &out, 0, &m);
    after(t, x, s, node, &out, l);
}

// What is proposed: a world without one node, or of all in the lives that they have now. Odd records keep the voters,
// as a HEAL does; even ones let them follow.
static void propose(table *t, scratch *x, small_state *s, int node, int without, limits *l) {
    council_outbox out = {.count = 0};
    static council_record want;
    expand(t, x, &s->node[node], node);
    copy(&want, &x->c.page.record);
    want.k++, want.epoch = want.k;
    want.members.word[0] = 7 & ~(without < NODES ? 1u << without : 0);
    if (want.k % 2 == 1) want.voters = want.members;
    FOR_NODES(j, &want.members) want.life[j] = life_of(j, s->node[j].birth);
    council_propose(&x->c, &out, 0, &want);
    after(t, x, s, node, &out, l);
}

static void crash(table *t, scratch *x, small_state *s, int node, limits *l) {
    council_outbox none = {.count = 0};
    expand(t, x, &s->node[node], node);
    x->c.bid = (council_bid){.open = false};
    if (l->forgets) x->c.page.promised = x->c.page.accepted = (council_ballot){0, 0}, x->c.page.has_value = false;
    s->crashes++;
    after(t, x, s, node, &none, l);
    s->node[node].refused = 0;
}

static void starts_anew(small_state *s, int node, bool votes_on) {
    uint16_t record = s->node[node].record;
    s->kills++;
    s->node[node] = (small_node){.birth = (uint8_t)(s->node[node].birth + 1), .record = votes_on ? record : 0};
}

// --- all of them -----------------------------------------------------------------------------------------------------

static bool meet(table *t, const small_state *s) {
    uint64_t h = 1469598103934665603u, word;
    size_t n = offsetof(small_state, sent) + s->sents * sizeof *s->sent;
    for (size_t i = 0; i < n; i += 8) {  // what is sent is zero after `sents`
        memcpy(&word, (const uint8_t *)s + i, 8);
        h = (h ^ word) * 0x9E3779B97F4A7C15u, h ^= h >> 32;
    }
    h |= h == 0;
    for (size_t at = h % t->met_room;; at = (at + 1) % t->met_room) {
        if (t->met[at] == h) return false;
        if (t->met[at]) continue;
        t->met[at] = h;
        assert_true(++t->met_count < t->met_room);
        return true;
    }
}

static void keep(table *t, int to, const small_state *s, bool last) {
    t->events++;
    if (last || !meet(t, s)) return;
    assert_true(t->count[to] < t->room);
    t->layer[to][t->count[to]++] = *s;
}

static void proposals(table *t, scratch *x, const small_state *from, int node, int to, limits *l, bool last) {
    const small_node *n = &from->node[node];
    const council_record *r = &t->record[n->record];
    if (!n->record || r->k >= LAST || n->promised[0] >= ROUNDS || n->refused >= ROUNDS) return;
    if (!l->votes_on && (!set_has(&r->voters, node) || r->life[node] != life_of(node, n->birth))) return;
    for (int without = (node + 1) % NODES, i = 0; i < 2; i++, without = i == 1 ? NODES : without) {
        small_state s = *from;
        propose(t, x, &s, node, without, l);
        keep(t, to, &s, last);
    }
}

static void deliveries(table *t, scratch *x, const small_state *from, int node, int to, limits *l, bool last) {
    for (int i = 0; i < from->sents; i++) {
        const known_message *k = &t->message[from->sent[i]];
        if (k->from == node || (k->to >= 0 && k->to != node)) continue;
        small_state s = *from;
        hear(t, x, &s, node, k, l);
        keep(t, to, &s, last);
    }
    for (int j = 0; j < NODES; j++) {  // a report of j
        const small_node *n = &from->node[j];
        if (j == node || !n->record) continue;
        if (from->node[node].record && t->record[n->record].k <= t->record[from->node[node].record].k) continue;
        small_state s = *from;
        hear(t, x, &s, node,
             &(known_message){.type = COUNCIL_REPORT, .from = (uint8_t)j, .birth = n->birth, .newest = n->record}, l);
        keep(t, to, &s, last);
    }
}

static void faults(table *t, scratch *x, const small_state *from, int node, int to, limits *l, bool last) {
    if (from->crashes < l->crashes && from->node[node].record) {
        small_state s = *from;
        crash(t, x, &s, node, l);
        keep(t, to, &s, last);
    }
    if (from->kills < l->kills) {
        small_state s = *from;
        starts_anew(&s, node, l->votes_on);
        keep(t, to, &s, last);
    }
}

static void first_state(table *t, small_state *s) {
    council_record r = {.k = 1, .epoch = 1, .nodes = NODES, .members = {{7}}, .voters = {{7}}, .run = {1}};
    for (int j = 0; j < NODES; j++) r.life[j] = life_of(j, 0), r.weight[j] = r.slots[j] = 1;
    memset(s, 0, sizeof *s);
    t->records = 1;
    for (int j = 0; j < NODES; j++) s->node[j].record = record_number(t, &r);
    s->decided[1] = s->node[0].record;
}

static void all_histories(limits *l) {
    static scratch x[NODES];
    static const council_rules rules = {.dead_s = 2, .give_up_s = 40, .grid = {0, 1, 1, 1}, .lanes = 8, .fits = {15}};
    table *t = calloc(1, sizeof *t);
    t->met_room = (size_t)1 << (l->events > 12 ? 26 : 22), t->room = t->met_room / 4;
    t->met = calloc(t->met_room, sizeof *t->met);
    for (int i = 0; i < 2; i++) t->layer[i] = malloc(t->room * sizeof **t->layer);
    assert_true(t && t->met && t->layer[0] && t->layer[1]);
    for (int j = 0; j < NODES; j++) {
        council_open(&x[j].c, &rules, j, NODES, life_of(j, 0), NULL, 0);
        x[j].record = x[j].value = x[j].bid = -1;
    }
    first_state(t, &t->layer[0][0]);
    t->count[0] = 1;
    for (int event = 1; event <= l->events && !l->found; event++) {
        int is = (event + 1) % 2, to = event % 2;
        bool last = event == l->events;
        t->count[to] = 0;
        for (size_t i = 0; i < t->count[is] && !l->found; i++)
            for (int node = 0; node < NODES; node++) {
                const small_state *s = &t->layer[is][i];
                proposals(t, &x[node], s, node, to, l, last);
                deliveries(t, &x[node], s, node, to, l, last);
                faults(t, &x[node], s, node, to, l, last);
            }
    }
    printf("%zu states, %ld events, %d records, %d messages\n", t->met_count, t->events, t->records - 1, t->messages);
    for (int i = 0; i < 2; i++) free(t->layer[i]);
    free(t->met);
    free(t);
}

static int events(int most) {
    const char *n = getenv("LOCKSTEP_TEST_EVENTS");
    return n ? atoi(n) : most;
}

static void one_record_for_each_number(void **state) {
    (void)state;
    limits l = {.events = events(12), .kills = 1, .crashes = 1};
    all_histories(&l);
}

// The search finds what it must find.
static void a_council_that_forgets(void **state) {
    (void)state;
    limits l = {.events = 12, .crashes = 1, .forgets = true};
    all_histories(&l);
    assert_true(l.found);
}

static void a_life_that_votes_for_another(void **state) {
    (void)state;
    limits l = {.events = 12, .kills = 1, .votes_on = true};
    all_histories(&l);
    assert_true(l.found);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_record_for_each_number),
        cmocka_unit_test(a_council_that_forgets),
        cmocka_unit_test(a_life_that_votes_for_another),
    };
    return cmocka_run_group_tests_name("council, all histories", tests, NULL, NULL);
}
