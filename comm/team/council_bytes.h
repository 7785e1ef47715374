// comm/team/council_bytes.h: what is written and read one number after the other. Nobody asks after each number whether
// it found room or was there: `bad` says at the end whether all of it was.
#ifndef COMM_TEAM_COUNCIL_BYTES_H
#define COMM_TEAM_COUNCIL_BYTES_H

#include "base/le.h"
#include "comm/team/council_set.h"

#include <string.h>

typedef struct byte_writer {
    uint8_t *at;
    size_t n, room;
    bool bad;
} byte_writer;

typedef struct byte_reader {
    const uint8_t *at;
    size_t n, size;
    bool bad;
} byte_reader;

static inline void write_bytes(byte_writer *w, const void *src, size_t n) {
    if (w->bad || n > w->room - w->n) w->bad = true;
    else memcpy(w->at + w->n, src, n), w->n += n;
}

// The low `bytes` bytes of v.
static inline void write_number(byte_writer *w, uint64_t v, size_t bytes) {
    uint8_t le[8];
    le64_put(le, v);
    write_bytes(w, le, bytes);
}

static inline void write_set(byte_writer *w, const node_set *s) {
    for (int i = 0; i < SET_WORDS; i++) write_number(w, s->word[i], 8);
}

static inline void read_bytes(byte_reader *r, void *dst, size_t n) {
    if (r->bad || n > r->size - r->n) memset(dst, 0, n), r->bad = true;
    else memcpy(dst, r->at + r->n, n), r->n += n;
}

static inline uint64_t read_number(byte_reader *r, size_t bytes) {
    uint8_t le[8] = {0};
    read_bytes(r, le, bytes);
    return le64_get(le);
}

// A number of which only 0 .. most is right.
static inline int read_upto(byte_reader *r, size_t bytes, int most) {
    uint64_t v = read_number(r, bytes);
    if (v > (uint64_t)most) r->bad = true;
    return r->bad ? 0 : (int)v;
}

static inline void read_set(byte_reader *r, node_set *s) {
    for (int i = 0; i < SET_WORDS; i++) s->word[i] = read_number(r, 8);
}

#endif
