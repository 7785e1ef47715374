// trainer/config/servers.c: the rules of [server]: ranks that have no lanes, and keep the optimizer's state for those
// that have.
#include "trainer/config/judge.h"

#include <inttypes.h>
#include <stdio.h>

static const char *mode_of(const config *c) {
    static const char *const text[] = {SERVER_WORDS(WORD_NAME)};
    return text[c->server.mode];
}

// Keys that say how servers work, where there are none.
static err_t judge_no_servers(judge *j) {
    const config *c = j->c;
    if (c->server.mode != SERVER_SYNC)
        return judge_refuse(j, ROWS(ROW(server, mode), ROW(server, count)),
                            "mode = %s is how servers apply gradients, and count = 0", mode_of(c));
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

// What does not know servers that apply each gradient when it comes.
static err_t judge_beside_served(judge *j) {
    const config *c = j->c;
    char mode[32];
    const judge_other all[] = {
        {ROW(device, backend), c->resolved.kind == DEVICE_CUDA, "works on CPUs: set [device] backend = cpu"},
        {ROW(precision, compute), c->precision.compute == FP16, "has no loss scale that all ranks agree on"},
        {ROW(parallel, zero), c->parallel.zero != 1, "has whole weights and gradients on each worker, as zero = 1"},
        {ROW(parallel, tensor), c->parallel.tensor > 1, "gives each worker samples of its own"},
        {ROW(parallel, token_slices), c->parallel.token_slices > 1, "adds all of a worker's gradient up as it comes"},
        {ROW(parallel, offload), c->parallel.offload != OFFLOAD_NONE, "has the state in the memory of servers"},
        {ROW(parallel, balance), c->parallel.balance != BALANCE_NONE, "lets fast workers do more by itself"},
        {ROW(parallel, deal), *c->parallel.deal != 0, "gives a worker the next share of a step"},
        {ROW(server, weight), c->server.weight > 0, "lets servers alone keep what is updated"},
        {ROW(reduce, compress), c->reduce.compress != SEND_ALL, "sends gradients as they are"},
        {ROW(optimizer, type), c->optimizer.type == OPTIMIZER_LARS, "knows no norm of a row that several servers have"},
        {ROW(optimizer, ema), c->optimizer.ema > 0, "has no mean of weights, whose steps overlap"},
        {ROW(optimizer, skip_norm), c->optimizer.skip_norm > 0, "has no mean of norms that servers agree on"},
        {ROW(optimizer, rollback), c->optimizer.rollback > 0, "has steps that overlap"},
        {ROW(batch, bn_span), c->resolved.span > 1, "has no lanes that meet"},
        {c->data.documents ? ROW(data, documents)
         : c->data.answers ? ROW(data, answers)
                           : ROW(data, ignore),
         config_weighs(c), "does not know how many losses of a step count"},
        {*c->server.replay ? ROW(server, replay) : ROW(server, record),
         c->cluster.elastic && (c->server.record || *c->server.replay),
         "has one order of one set of ranks in a record, and an elastic run may go on with others"},
        {ROW(snapshot, live), c->cluster.elastic && c->snapshot.live,
         "has no step of which all ranks hold the same but those where they meet"},
    };
    snprintf(mode, sizeof mode, "mode = %s", mode_of(c));
    return judge_others(j, all, sizeof all / sizeof *all, ROW(server, mode), mode);
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
    RULE(j, judge_work(j));
    return config_is_served(c) ? judge_beside_served(j) : ERR_OK;
}
