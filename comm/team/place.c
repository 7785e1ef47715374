// comm/team/place.c: see comm/team/place.h.
#include "comm/team/place.h"

#include <stdio.h>

const char *comm_place_text(const comm_place *p, char dst[COMM_NAME]) {
    snprintf(dst, COMM_NAME, "rank %d (%s%s)", p->rank, p->host, p->role);
    return dst;
}

comm_spot comm_even_spot(const comm_even *e, int i) {
    int at = e->first + i, begins = at - at % e->node;
    return (comm_spot){.node = at / e->node - e->first / e->node,
                       .local = at - (begins > e->first ? begins : e->first),
                       .rack = at / e->rack - e->first / e->rack,
                       .join = e->join ? at % e->node / e->join : 0};
}
