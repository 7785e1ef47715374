// data/tokenizer/room.h: arrays that grow.
#ifndef DATA_TOKENIZER_ROOM_H
#define DATA_TOKENIZER_ROOM_H

#include "base/err.h"

#include <stdint.h>
#include <stdlib.h>

typedef struct bytes {
    uint8_t *at;
    int64_t n, room;
} bytes;

typedef struct id_list {
    int32_t *at;
    int64_t n, room;
} id_list;

static inline void *room_grow(void *at, int64_t *room, int64_t want, size_t size) {
    int64_t more = want + want / 2 + 64;
    void *grown = realloc(at, (size_t)more * size);
    if (grown) *room = more;
    return grown;
}

// Makes `list` hold `want` items at least: a struct with at and room. The caller keeps what it had when this fails.
#define ROOM_FOR(list, want) \
    do { \
        int64_t want_ = (want); \
        if (want_ > (list)->room) { \
            void *grown_ = room_grow((list)->at, &(list)->room, want_, sizeof *(list)->at); \
            if (!grown_) \
                return err_set(ERR_INTERNAL, "no memory for %lld items of a text's tokens", (long long)want_); \
            (list)->at = grown_; \
        } \
    } while (0)

static inline err_t ids_add(id_list *list, int32_t id) {
    ROOM_FOR(list, list->n + 1);
    list->at[list->n++] = id;
    return ERR_OK;
}

#endif
