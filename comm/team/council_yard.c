// comm/team/council_yard.c: OVER, then KILL, then ENTER; and messages as bytes: length (4), type (1), what it needs.
#include "comm/team/council_yard.h"

#include "comm/team/council_bytes.h"

static bool old(const yard_rank *r, uint64_t epoch) {
    return r->state == YARD_KILLED || (r->state == YARD_IN_EPOCH && r->epoch != epoch);
}

bool council_yard(yard_action *action, double now, const yard_rank *rank, int n, uint64_t epoch, bool enters) {
    bool gone = true;
    for (int i = 0; i < n; i++) {
        action[i] = YARD_NOTHING;
        if (!old(&rank[i], epoch)) continue;
        gone = false;
        if (rank[i].state == YARD_KILLED) continue;
        if (rank[i].over_at < 0) action[i] = YARD_OVER;
        else if (now - rank[i].over_at >= COUNCIL_LEAVE_S) action[i] = YARD_KILL;
    }
    for (int i = 0; gone && enters && i < n; i++)
        if (rank[i].state == YARD_READY) action[i] = YARD_ENTER;
    return gone;
}

// --- bytes -----------------------------------------------------------------------------------------------------------

size_t yard_pack(uint8_t *dst, size_t room, const yard_message *m) {
    byte_writer w = {.at = dst, .room = room};
    write_number(&w, 0, 4), write_number(&w, m->type, 1);
    if (m->type == YARD_SAYS_LEFT || m->type == YARD_SAYS_OVER) write_number(&w, m->epoch, 8);
    if (m->type == YARD_SAYS_LEFT) write_number(&w, m->code, 1), write_number(&w, (uint64_t)m->applied, 8);
    if (m->type == YARD_SAYS_ENTER) {
        write_number(&w, (uint64_t)m->rank, 2);
        size_t n = w.bad ? 0 : record_pack(dst + w.n, room - w.n, m->record);
        w.n += n, w.bad |= n == 0;
    }
    if (w.bad) return 0;
    le32_put(dst, (uint32_t)w.n);
    return w.n;
}

err_t yard_unpack(yard_message *m, council_record *room, const uint8_t *src, size_t n) {
    byte_reader s = {.at = src, .size = n};
    *m = (yard_message){.rank = -1};
    if (read_number(&s, 4) != n)
        return err_set(ERR_DATA, "a message of the yard: %zu bytes, and it says another number", n);
    m->type = (yard_type)read_upto(&s, 1, YARD_TYPES - 1);
    if (m->type == YARD_SAYS_LEFT || m->type == YARD_SAYS_OVER) m->epoch = read_number(&s, 8);
    if (m->type == YARD_SAYS_LEFT) m->code = (err_t)read_upto(&s, 1, 255), m->applied = (int64_t)read_number(&s, 8);
    if (m->type == YARD_SAYS_ENTER) {
        size_t used;
        m->rank = read_upto(&s, 2, TEAM_RANKS_MAX - 1);
        TRY(record_unpack(room, src + s.n, n - s.n, &used));
        s.n += used, m->record = room, m->epoch = room->epoch;
        s.bad |= m->rank >= room->ranks;
    }
    if (s.bad || s.n != n || m->applied < 0) return err_set(ERR_DATA, "a message of the yard: %zu bytes do not fit", n);
    return ERR_OK;
}
