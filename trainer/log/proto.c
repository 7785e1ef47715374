// trainer/log/proto.c: see trainer/log/proto.h.
#include "trainer/log/proto.h"

#include <string.h>

enum { WHOLE = 0, DOUBLE = 1, BYTES = 2, FLOAT = 5 };  // kinds of fields
enum { VARINT = 10 };                                  // most bytes of a whole number

// Returns how many bytes the number has.
static size_t varint(uint8_t dst[VARINT], uint64_t value) {
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) dst[n++] = (uint8_t)(value | 0x80);
    dst[n++] = (uint8_t)value;
    return n;
}

void proto_raw(proto *p, const void *bytes, size_t n) {
    p->full |= n > p->room - p->n;
    if (p->full) return;
    memcpy(p->at + p->n, bytes, n);
    p->n += n;
}

static void put_varint(proto *p, uint64_t value) {
    uint8_t bytes[VARINT];
    proto_raw(p, bytes, varint(bytes, value));
}

static void put_key(proto *p, int field, int kind) { put_varint(p, (uint64_t)field << 3 | (uint64_t)kind); }

// Lowest byte first, whatever this machine does.
static void put_bits(proto *p, uint64_t bits, size_t n) {
    uint8_t bytes[8];
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)(bits >> 8 * i);
    proto_raw(p, bytes, n);
}

void proto_whole(proto *p, int field, uint64_t value) {
    put_key(p, field, WHOLE);
    put_varint(p, value);
}

void proto_double(proto *p, int field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(p, field, DOUBLE);
    put_bits(p, bits, sizeof bits);
}

void proto_float(proto *p, int field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(p, field, FLOAT);
    put_bits(p, bits, sizeof bits);
}

void proto_bytes(proto *p, int field, const void *bytes, size_t n) {
    put_key(p, field, BYTES);
    put_varint(p, n);
    proto_raw(p, bytes, n);
}

void proto_text(proto *p, int field, const char *text) { proto_bytes(p, field, text, strlen(text)); }

size_t proto_begin(proto *p, int field) {
    put_key(p, field, BYTES);
    return p->n;
}

// The length takes as few bytes as it can, so what it is the length of moves to make room for it.
void proto_end(proto *p, size_t begun) {
    uint8_t length[VARINT];
    if (p->full) return;
    size_t bytes = p->n - begun, n = varint(length, bytes);
    proto_raw(p, length, n);  // is there room?
    if (p->full) return;
    memmove(p->at + begun + n, p->at + begun, bytes);
    memcpy(p->at + begun, length, n);
}
