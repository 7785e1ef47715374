// test/support/place.h: a directory for each test of a group: place_enter and place_leave are its set-up and tear-down.
#ifndef TEST_SUPPORT_PLACE_H
#define TEST_SUPPORT_PLACE_H

#include "base/io.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct place {
    char dir[IO_PATH], path[IO_PATH];
} place;  // path: the last of at()

static inline int place_enter(void **state) {
    place *p = calloc(1, sizeof *p);
    const char *tmp = getenv("TMPDIR");
    snprintf(p->dir, sizeof p->dir, "%.900s/lockstep-test-XXXXXX", tmp ? tmp : "/tmp");
    *state = p;
    return mkdtemp(p->dir) ? 0 : -1;
}

static inline int place_leave(void **state) {
    place *p = *state;
    err_t rc = io_remove_tree(p->dir);
    free(p);
    return (int)rc;
}

static inline const char *at(place *p, const char *name) {
    if (io_path(p->path, "%s/%s", p->dir, name) != ERR_OK) fail_msg("%s", err_last()->text);
    return p->path;
}

#endif
