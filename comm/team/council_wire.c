// comm/team/council_wire.c: messages as bytes. What is read was sealed by somebody who knows the secret; it is checked
// all the same, so that a wrong build or a broken memory is refused with a reason.
#include "comm/team/council_wire.h"

#include "comm/team/council_bytes.h"

enum { HEAD_BYTES = 4 + 1 + 1 + 2 + 8 };

// --- writing ---------------------------------------------------------------------------------------------------------

static void write_record(byte_writer *w, const council_record *r) {
    write_number(w, r != NULL, 1);
    if (!r || w->bad) return;
    size_t n = record_pack(w->at + w->n, w->room - w->n, r);
    w->n += n;
    w->bad |= n == 0;
}

static void write_ballot(byte_writer *w, council_ballot b) { write_number(w, b.round, 8), write_number(w, b.node, 2); }

static void write_report(byte_writer *w, const council_report *r) {
    uint64_t flags =
        (uint64_t)r->ready | (uint64_t)r->leaving << 1 | (uint64_t)r->failed << 2 | (uint64_t)r->began << 3;
    write_set(w, &r->hears);
    write_number(w, r->state, 1), write_number(w, flags, 1), write_number(w, (uint64_t)r->slots, 2);
    write_number(w, (uint64_t)r->step, 8), write_number(w, (uint64_t)r->sealed, 8), write_number(w, r->lane_us, 4);
    write_number(w, r->slow, 2), write_number(w, r->data, 8);
}

static void write_why(byte_writer *w, const char *why) {
    size_t n = strnlen(why, COUNCIL_WHY - 1);
    write_number(w, n, 1), write_bytes(w, why, n);
}

static void write_settings(byte_writer *w, const char *text) {
    size_t n = strnlen(text, COUNCIL_SETTINGS_BYTES - 1);
    write_number(w, n, 4), write_bytes(w, text, n);
}

static bool has_ballot(council_type type) {
    return type != COUNCIL_REPORT && type != COUNCIL_FORMED && type != COUNCIL_SETTINGS;
}

size_t council_pack(uint8_t *dst, size_t room, const council_message *m) {
    byte_writer w = {.at = dst, .room = room};
    write_number(&w, 0, 4), write_number(&w, COUNCIL_VERSION, 1), write_number(&w, m->type, 1);
    write_number(&w, (uint64_t)m->node, 2), write_number(&w, m->life, 8);
    write_record(&w, m->newest);
    if (m->type == COUNCIL_REPORT) write_report(&w, &m->report);
    if (has_ballot(m->type)) write_ballot(&w, m->ballot);
    if (m->type == COUNCIL_PROMISE || m->type == COUNCIL_REFUSED) write_ballot(&w, m->accepted);
    if (m->type == COUNCIL_PROMISE || m->type == COUNCIL_ACCEPT) write_record(&w, m->value);
    if (m->type == COUNCIL_REFUSED) write_why(&w, m->why);
    if (m->type == COUNCIL_SETTINGS) write_settings(&w, m->settings);
    if (w.bad) return 0;
    le32_put(dst, (uint32_t)w.n);
    return w.n;
}

// --- reading ---------------------------------------------------------------------------------------------------------

// *at (=) the record, in `room`; NULL: there is none.
static err_t read_record(byte_reader *s, const council_record **at, council_record *room) {
    size_t used;
    *at = NULL;
    if (!read_upto(s, 1, 1)) return ERR_OK;
    TRY(record_unpack(room, s->at + s->n, s->size - s->n, &used));
    s->n += used;
    *at = room;
    return ERR_OK;
}

static council_ballot read_ballot(byte_reader *s) {
    council_ballot b;
    b.round = read_number(s, 8), b.node = (uint16_t)read_upto(s, 2, COUNCIL_NODES - 1);
    return b;
}

static void read_report(byte_reader *s, council_report *r) {
    read_set(s, &r->hears);
    r->state = (council_state)read_upto(s, 1, COUNCIL_STATES - 1);
    int flags = read_upto(s, 1, 15);
    r->ready = flags & 1, r->leaving = flags >> 1 & 1, r->failed = flags >> 2 & 1;
    r->began = flags >> 3 & 1;
    r->slots = read_upto(s, 2, TEAM_RANKS_MAX);
    r->step = (int64_t)read_number(s, 8), r->sealed = (int64_t)read_number(s, 8);
    r->lane_us = (uint32_t)read_number(s, 4), r->slow = (uint16_t)read_number(s, 2), r->data = read_number(s, 8);
    s->bad |= r->step < 0 || r->sealed < -1;
}

static void read_why(byte_reader *s, char why[COUNCIL_WHY]) {
    size_t n = (size_t)read_upto(s, 1, COUNCIL_WHY - 1);
    read_bytes(s, why, n);
    s->bad |= strnlen(why, COUNCIL_WHY) != n;
}

static const char *read_settings(byte_reader *s, char *text) {
    size_t n = (size_t)read_upto(s, 4, COUNCIL_SETTINGS_BYTES - 1);
    read_bytes(s, text, n);
    text[n] = 0;
    s->bad |= strlen(text) != n;
    return text;
}

// A value follows the newest record, and is of its run.
static bool value_follows(const council_message *m) {
    if (m->type == COUNCIL_ACCEPT && !m->value) return false;
    if (!m->value) return true;
    return m->newest && record_newer(m->value, m->newest) && m->value->k == m->newest->k + 1;
}

static err_t read_body(byte_reader *s, council_message *m, council_room *room) {
    TRY(read_record(s, &m->newest, &room->newest));
    if (m->type == COUNCIL_REPORT) read_report(s, &m->report);
    if (has_ballot(m->type)) m->ballot = read_ballot(s);
    if (m->type == COUNCIL_PROMISE || m->type == COUNCIL_REFUSED) m->accepted = read_ballot(s);
    if (m->type == COUNCIL_PROMISE || m->type == COUNCIL_ACCEPT) TRY(read_record(s, &m->value, &room->value));
    if (m->type == COUNCIL_REFUSED) read_why(s, m->why);
    if (m->type == COUNCIL_SETTINGS) m->settings = read_settings(s, room->settings);
    return ERR_OK;
}

err_t council_unpack(council_message *m, council_room *room, const uint8_t *src, size_t n) {
    byte_reader s = {.at = src, .size = n};
    memset(m, 0, sizeof *m);
    if (n < HEAD_BYTES || n > COUNCIL_MESSAGE_BYTES || read_number(&s, 4) != n)
        return err_set(ERR_DATA, "a message of the council: %zu bytes, and it says another number", n);
    int version = (int)read_number(&s, 1);
    if (version != COUNCIL_VERSION)
        return err_set(ERR_DATA, "a message of the council: version %d, expected %d", version, COUNCIL_VERSION);
    m->type = (council_type)read_upto(&s, 1, COUNCIL_TYPES - 1);
    m->node = read_upto(&s, 2, COUNCIL_NODES - 1), m->life = read_number(&s, 8);
    TRY(read_body(&s, m, room));
    if (s.bad || s.n != n || !m->life || (m->type == COUNCIL_FORMED && (!m->newest || m->newest->k != 1)))
        return err_set(ERR_DATA, "a message of the council: of %zu bytes %zu are read as numbers that fit", n, s.n);
    if (!value_follows(m)) return err_set(ERR_DATA, "a message of the council: its value does not follow its record");
    return ERR_OK;
}
