// data/image/decode.c: pictures out of files, and upright: see data/image/decode.h.
#include "data/image/decode.h"

#include <stdbool.h>
#include <string.h>

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
