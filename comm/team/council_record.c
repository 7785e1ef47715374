// comm/team/council_record.c: the weight of a set of voters; a record as bytes, and their digest.
#include "comm/team/council_record.h"

#include "comm/team/council_bytes.h"

#include <sodium.h>

_Static_assert((int)COUNCIL_NODES == (int)TEAM_NODES_MAX, "a set has a place for every node");

const char *const decree_names[DECREES] = {DECREE_WORDS(WORD_NAME)};

bool council_enough(const node_set *who, const council_record *r) {
    int64_t all = 0, with = 0;
    FOR_NODES(j, &r->voters) {
        all += r->weight[j];
        if (set_has(who, j)) with += r->weight[j];
    }
    int lowest = set_lowest(&r->voters);
    return 2 * with > all || (2 * with == all && lowest >= 0 && set_has(who, lowest));
}

bool record_newer(const council_record *a, const council_record *b) {
    return a && (!b || (memcmp(a->run, b->run, COUNCIL_RUN) == 0 && a->k > b->k));
}

void council_fence(uint8_t fence[COUNCIL_FENCE], const council_record *r) {
    uint8_t bytes[COUNCIL_RECORD_BYTES];
    if (r->epoch < r->k) memcpy(fence, r->fence, COUNCIL_FENCE);
    else crypto_generichash(fence, COUNCIL_FENCE, bytes, record_pack(bytes, sizeof bytes, r), NULL, 0);
}

// --- bytes -----------------------------------------------------------------------------------------------------------

size_t record_pack(uint8_t *dst, size_t room, const council_record *r) {
    byte_writer w = {.at = dst, .room = room};
    size_t why = strnlen(r->why, COUNCIL_WHY - 1);
    write_bytes(&w, r->run, COUNCIL_RUN);
    write_number(&w, r->k, 8), write_number(&w, r->epoch, 8);
    write_bytes(&w, r->fence, COUNCIL_FENCE);
    write_number(&w, r->kind, 1), write_number(&w, why, 1), write_bytes(&w, r->why, why);
    write_number(&w, (uint64_t)r->nodes, 2), write_set(&w, &r->members), write_set(&w, &r->voters);
    write_set(&w, &r->evicted);
    write_number(&w, (uint64_t)r->high, 8), write_number(&w, (uint64_t)r->fruitless, 1);
    write_number(&w, r->grid.data, 2), write_number(&w, r->grid.tensor, 2);
    write_number(&w, r->grid.pipeline, 2), write_number(&w, r->grid.context, 2);
    write_number(&w, (uint64_t)r->lanes, 4), write_number(&w, (uint64_t)r->spares, 2);
    for (int j = 0; j < r->nodes; j++)
        write_number(&w, r->life[j], 8), write_number(&w, r->weight[j], 2), write_number(&w, r->slots[j], 2);
    for (int i = 0; i < r->ranks + r->spares; i++)
        write_number(&w, r->seat[i].node, 2), write_number(&w, r->seat[i].slot, 2);
    for (int i = 0; i < r->grid.data; i++) write_number(&w, r->deal[i], 2);
    return w.bad ? 0 : w.n;
}

static bool set_below(const node_set *s, int nodes) { return nodes == COUNCIL_NODES || set_next(s, nodes) < 0; }

static void read_head(byte_reader *s, council_record *r) {
    read_bytes(s, r->run, COUNCIL_RUN);
    r->k = read_number(s, 8), r->epoch = read_number(s, 8);
    read_bytes(s, r->fence, COUNCIL_FENCE);
    r->kind = (decree_kind)read_upto(s, 1, DECREES - 1);
    size_t why = (size_t)read_upto(s, 1, COUNCIL_WHY - 1);
    read_bytes(s, r->why, why);
    if (strlen(r->why) != why) s->bad = true;
    r->nodes = read_upto(s, 2, COUNCIL_NODES);
    read_set(s, &r->members), read_set(s, &r->voters), read_set(s, &r->evicted);
    r->high = (int64_t)read_number(s, 8), r->fruitless = read_upto(s, 1, COUNCIL_FRUITLESS);
}

static void read_layout(byte_reader *s, council_record *r) {
    int64_t ranks = 1;
    uint16_t *const width[4] = {&r->grid.data, &r->grid.tensor, &r->grid.pipeline, &r->grid.context};
    for (int i = 0; i < 4; i++) ranks *= *width[i] = (uint16_t)read_upto(s, 2, TEAM_RANKS_MAX);
    r->lanes = read_upto(s, 4, INT32_MAX), r->spares = read_upto(s, 2, TEAM_RANKS_MAX);
    if (ranks < 1 || ranks + r->spares > TEAM_RANKS_MAX) s->bad = true;
    r->ranks = s->bad ? 0 : (int)ranks;
    for (int j = 0; j < r->nodes; j++) {
        r->life[j] = read_number(s, 8);
        r->weight[j] = (uint16_t)read_number(s, 2), r->slots[j] = (uint16_t)read_number(s, 2);
    }
    for (int i = 0; i < r->ranks + r->spares; i++)
        r->seat[i].node = (uint16_t)read_number(s, 2), r->seat[i].slot = (uint16_t)read_number(s, 2);
    for (int i = 0; !s->bad && i < r->grid.data; i++) r->deal[i] = (uint16_t)read_number(s, 2);
}

// Is each seat one of a member, and none given twice?
static bool seats_right(const council_record *r) {
    for (int i = 0; i < r->ranks + r->spares; i++) {
        council_seat a = r->seat[i], b = i ? r->seat[i - 1] : a;
        if (a.node >= r->nodes || !set_has(&r->members, a.node) || a.slot >= r->slots[a.node]) return false;
        if (i && (a.node < b.node || (a.node == b.node && a.slot <= b.slot))) return false;
    }
    return true;
}

static bool record_right(const council_record *r) {
    int64_t lanes = 0;
    bool own = r->epoch == r->k, fenced = !sodium_is_zero(r->fence, COUNCIL_FENCE);
    for (int i = 0; i < r->grid.data; i++) lanes += r->deal[i];
    return r->k >= 1 && r->epoch >= 1 && r->epoch <= r->k && own != fenced && r->high >= 0 && lanes == r->lanes &&
           set_below(&r->members, r->nodes) && set_below(&r->voters, r->nodes) && set_below(&r->evicted, r->nodes) &&
           !set_empty(&r->members) && !set_empty(&r->voters) && seats_right(r);
}

err_t record_unpack(council_record *r, const uint8_t *src, size_t n, size_t *used) {
    byte_reader s = {.at = src, .size = n};
    memset(r, 0, sizeof *r);
    read_head(&s, r);
    read_layout(&s, r);
    *used = s.n;
    if (s.bad) return err_set(ERR_DATA, "a record of the council: expected more than %zu bytes, or smaller numbers", n);
    if (!record_right(r))
        return err_set(ERR_DATA, "record %llu: its members, seats or lanes do not fit together",
                       (unsigned long long)r->k);
    return ERR_OK;
}
