// test/support/carrier.h: the transport between hosts that a test of transports runs over: tcp, or with
// LOCKSTEP_TEST_FABRIC=PROVIDER libfabric with that provider, every payload registered ("PROVIDER registered") or not.
// Of "PROVIDER,PROVIDER,..." each rank takes its own. So the same tests, as they are, hold for each.
#ifndef TEST_SUPPORT_CARRIER_H
#define TEST_SUPPORT_CARRIER_H

#include "comm/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline bool carrier_is_fabric(void) { return getenv("LOCKSTEP_TEST_FABRIC") != NULL; }

static inline err_t carrier_open(comm **out, team *t, const transport_options *from) {
    static const char registered[] = " registered";
    const char *wanted = getenv("LOCKSTEP_TEST_FABRIC");
    char provider[64];
    transport_options o = *from;
    if (!wanted) return comm_tcp_open(out, t, &o);
    for (int r = 0; r < team_at(t)->rank && strchr(wanted, ','); r++) wanted = strchr(wanted, ',') + 1;
    snprintf(provider, sizeof provider, "%.*s", (int)strcspn(wanted, ","), wanted);
    char *more = strstr(provider, registered);
    if (more) *more = 0;
    o.provider = provider;
    o.registers = more != NULL;
    return comm_fabric_open(out, t, &o);
}

#endif
