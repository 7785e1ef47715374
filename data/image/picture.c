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
    TRY(picture_reserve(p, h * w * c));
    p->h = (int)h, p->w = (int)w, p->c = c;
    return ERR_OK;
}

err_t picture_reserve(picture *p, int64_t bytes) {
    int64_t room = bytes + PICTURE_SPARE;
    if (room <= p->room) return ERR_OK;
    free(p->at);
    *p = (picture){.at = malloc((size_t)room)};
    if (!p->at) return err_set(ERR_INTERNAL, "no memory for a picture of %" PRId64 " bytes", bytes);
    p->room = room;
    return ERR_OK;
}

void picture_free(picture *p) {
    free(p->at);
    *p = (picture){0};
}
