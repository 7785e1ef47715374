// base/le.h: little-endian numbers at any address, whatever the machine's own order.
#ifndef BASE_LE_H
#define BASE_LE_H

#include <stdint.h>

static inline uint32_t le16_get(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }
static inline uint32_t le32_get(const uint8_t *p) { return le16_get(p) | le16_get(p + 2) << 16; }
static inline uint64_t le64_get(const uint8_t *p) { return le32_get(p) | (uint64_t)le32_get(p + 4) << 32; }
static inline void le32_put(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> 8 * i);
}
static inline void le64_put(uint8_t *p, uint64_t v) {
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(v >> 8 * i);
}

#endif
