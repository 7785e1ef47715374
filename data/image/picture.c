// data/image/picture.c: see data/image/picture.h.
#include "data/image/picture.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

err_t picture_make(picture *p, int64_t h, int64_t w, int c) {
    if (h < 1 || w < 1 || h > PICTURE_SIDE || w > PICTURE_SIDE || h * w > PICTURE_PIXELS)
        return err_set(ERR_DATA,
                       "%" PRId64 " x %" PRId64 " pixels, expected at least one, at most %d on a side and %d in all", w,
                       h, PICTURE_SIDE, PICTURE_PIXELS);
    int64_t bytes = h * w * c + PICTURE_SPARE;
    if (bytes > p->room) {
        free(p->at);
        *p = (picture){.at = malloc((size_t)bytes)};
        if (!p->at) return err_set(ERR_INTERNAL, "no memory for a picture of %" PRId64 " x %" PRId64 " pixels", w, h);
        p->room = bytes;
    }
    p->h = (int)h, p->w = (int)w, p->c = c;
    return ERR_OK;
}

void picture_free(picture *p) {
    free(p->at);
    *p = (picture){0};
}

// --- orientation -----------------------------------------------------------------------------------------------------

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

// Pixel (y,x) of the upright picture is this one of p: its place in the order of p. The names are Pillow's.
static int64_t place_of(const picture *p, int orientation, int y, int x) {
    int64_t down = p->h - 1, right = p->w - 1, w = p->w;
    switch (orientation) {
    case 2: return y * w + right - x;           // FLIP_LEFT_RIGHT
    case 3: return (down - y) * w + right - x;  // ROTATE_180
    case 4: return (down - y) * w + x;          // FLIP_TOP_BOTTOM
    case 5: return x * w + y;                   // TRANSPOSE
    case 6: return (down - x) * w + y;          // ROTATE_270
    case 7: return (down - x) * w + right - y;  // TRANSVERSE
    case 8: return x * w + right - y;           // ROTATE_90
    default: return y * w + x;
    }
}

static err_t stand_up(picture *p, int orientation) {
    picture upright = {0};
    bool lies = orientation >= 5;
    if (orientation == 1) return ERR_OK;
    TRY(picture_make(&upright, lies ? p->w : p->h, lies ? p->h : p->w, p->c));
    uint8_t *to = upright.at;
    for (int y = 0; y < upright.h; y++)
        for (int x = 0; x < upright.w; x++, to += p->c)
            memcpy(to, p->at + place_of(p, orientation, y, x) * p->c, (size_t)p->c);
    picture_free(p);
    *p = upright;
    return ERR_OK;
}

// --- decoding --------------------------------------------------------------------------------------------------------

err_t picture_decode(picture *out, const uint8_t *bytes, size_t n) {
    static const uint8_t jpeg[] = {0xff, 0xd8, 0xff}, png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    int orientation = 1;
    if (n >= sizeof jpeg && memcmp(bytes, jpeg, sizeof jpeg) == 0) TRY(jpeg_decode(out, &orientation, bytes, n));
    else if (n >= sizeof png && memcmp(bytes, png, sizeof png) == 0) TRY(png_decode(out, &orientation, bytes, n));
    else
        return err_set(ERR_DATA, "begins with 0x%02x%02x%02x, expected a JPEG (0xffd8ff) or PNG (0x89504e) file",
                       n > 0 ? bytes[0] : 0, n > 1 ? bytes[1] : 0, n > 2 ? bytes[2] : 0);
    return stand_up(out, orientation);
}
