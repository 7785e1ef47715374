// trainer/config/servers.c: the rules of [server]: ranks that have no lanes, and keep the optimizer's state for those
// that have.
#include "trainer/config/judge.h"

#include <inttypes.h>

// Keys that say how servers work, where there are none.
static err_t judge_no_servers(judge *j) {
    const config *c = j->c;
    if (c->server.weight == 0) return ERR_OK;
    return judge_refuse(j, ROWS(ROW(server, weight), ROW(server, count)),
                        "weight = %g is what others keep beside servers, and count = 0", c->server.weight);
}

// A stage of a pipeline waits for all others, also where it has nothing to compute.
static err_t judge_work(judge *j) {
    const config *c = j->c;
    if (c->parallel.pipeline == 1) return ERR_OK;
    return judge_refuse(j, ROWS(ROW(parallel, pipeline), ROW(server, count)),
                        "count = %" PRId64 " servers run no blocks, and each of pipeline = %" PRId64
                        " stages waits for the others",
                        c->server.count, c->parallel.pipeline);
}

err_t judge_servers(judge *j) {
    const config *c = j->c;
    int64_t count = c->server.count;
    if (!count) return judge_no_servers(j);
    if (c->parallel.zero == 0)
        return judge_refuse(j, ROWS(ROW(parallel, zero), ROW(server, count)),
                            "count = %" PRId64
                            " servers keep the optimizer's state for the others, and with zero = 0 each rank keeps all "
                            "of it: 1, 2 and 3 divide it",
                            count);
    if (c->outer.islands > 1)
        return judge_refuse(j, ROWS(ROW(server, count), ROW(outer, islands)),
                            "count = %" PRId64 " servers add the lanes of all ranks, and islands = %" PRId64
                            " take steps of their own",
                            count, c->outer.islands);
    if (c->reduce.order == ORDER_ANY)
        return judge_refuse(j, ROWS(ROW(reduce, order), ROW(server, count)),
                            "with order = any the transport adds what all ranks have, and count = %" PRId64
                            " servers have nothing to add",
                            count);
    return judge_work(j);
}
