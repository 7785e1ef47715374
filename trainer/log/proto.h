// trainer/log/proto.h: writes protocol buffers into a fixed buffer, without heap. It is what TensorBoard's files are
// made of, and no more of the format than they need; nothing here reads it.
//
//   message    field, field, ...       of text: 0a 03 'a' 'b' 'c'     field 1, 3 bytes
//   field      number * 8 + kind, value
//   kinds      0 whole number (7 bits a byte, lowest first), 1 double, 2 length and bytes, 5 float
//
// A message within a message is bytes to the outer one: its length stands before it, and is known when it ends.
#ifndef TRAINER_LOG_PROTO_H
#define TRAINER_LOG_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What does not fit is left out, and all that follows it: `full` says so, and the message is of no use.
typedef struct proto {
    uint8_t *at;
    size_t n, room;  // bytes written, and all there is
    bool full;
} proto;

// Appends these bytes as they are.
void proto_raw(proto *p, const void *bytes, size_t n);

void proto_whole(proto *p, int field, uint64_t value);
void proto_double(proto *p, int field, double value);
void proto_float(proto *p, int field, float value);
void proto_text(proto *p, int field, const char *text);
void proto_bytes(proto *p, int field, const void *bytes, size_t n);

// What is written between these two is the message, or the bytes, of the field. `begun` is what proto_begin returned.
size_t proto_begin(proto *p, int field);
void proto_end(proto *p, size_t begun);

#endif
