// data/image/exif.c: how a camera was held, as EXIF says it: see data/image/decode.h.
#include "data/image/decode.h"

#include <stdbool.h>

static uint32_t number(const uint8_t *at, int bytes, bool big) {
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint32_t)at[i] << 8 * (big ? bytes - 1 - i : i);
    return v;
}

// TIFF 6.0, section 2: the byte order, 42, where the first directory is; it has a count, and 12 bytes for each entry:
// tag, type, number of values, the value.
int exif_orientation(const uint8_t *tiff, size_t n) {
    enum { TAG = 0x0112, SHORT = 3, ENTRY = 12 };
    if (n < 8 || tiff[0] != tiff[1] || (tiff[0] != 'I' && tiff[0] != 'M')) return 1;
    bool big = tiff[0] == 'M';
    size_t at = number(tiff + 4, 4, big);
    if (number(tiff + 2, 2, big) != 42 || at > n - 2) return 1;
    uint32_t count = number(tiff + at, 2, big);
    at += 2;
    for (uint32_t i = 0; i < count && n - at >= ENTRY; i++, at += ENTRY) {
        if (number(tiff + at, 2, big) != TAG) continue;
        uint32_t value = number(tiff + at + 8, 2, big);
        return number(tiff + at + 2, 2, big) == SHORT && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}
