// comm/team/place.c: see comm/team/place.h.
#include "comm/team/place.h"

#include <stdio.h>

const char *comm_place_text(const comm_place *p, char dst[COMM_NAME]) {
    snprintf(dst, COMM_NAME, "rank %d (%s%s)", p->rank, p->host, p->role);
    return dst;
}
