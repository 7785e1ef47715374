// comm/fabric/absent.c: stands in for comm/fabric where the headers of libfabric were missing when lockstep was built.
// Ranks of one machine need none of it.
#include "comm/transport.h"

err_t comm_fabric_open(comm **out, team *t, const transport_options *o) {
    *out = NULL;
    if (team_at(t)->nodes == 1) return comm_tcp_open(out, t, o);
    return err_set(
        ERR_UNAVAILABLE,
        "fabric: this lockstep was built without the headers of libfabric. Install them (Debian: apt-get install libfabric-dev) and build it again, or set [reduce] transport = tcp");
}
