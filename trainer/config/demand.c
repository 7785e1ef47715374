// trainer/config/demand.c: the rules of a model whose tables have rows on demand ([model] demand): they are in the
// memory of CPUs, divided among ranks by their ids, and no tensors of the run, so what works on those leaves them
// out.
#include "trainer/config/judge.h"

// What does not know such rows.
err_t judge_demand(judge *j) {
    const config *c = j->c;
    if (!j->demand && c->model.demand_mb > 0)
        return judge_refuse(j, ROWS(ROW(model, demand_mb)),
                            "demand_mb is the memory of rows on demand, and this model has none");
    if (!j->demand) return ERR_OK;
    const judge_other all[] = {
        {ROW(device, backend), c->resolved.kind == DEVICE_CUDA,
         "are in the memory of CPUs: set [device] backend = cpu"},
        {ROW(precision, compute), c->precision.compute != FP32, "are FP32"},
        {ROW(parallel, pipeline), c->parallel.pipeline > 1,
         "are fetched for a micro-batch from its first block to its last"},
        {ROW(parallel, offload), c->parallel.offload != OFFLOAD_NONE, "are in host memory already"},
        {ROW(parallel, balance), c->parallel.balance != BALANCE_NONE,
         "are merged for the lanes that a run begins with"},
        {ROW(server, mode), c->server.count > 0 && c->server.mode != SERVER_SYNC,
         "are owned by servers that wait for all lanes"},
        {ROW(outer, islands), c->outer.islands > 1, "are in one place only, and no mean is taken of them"},
        {ROW(reduce, compress), c->reduce.compress != SEND_ALL, "travel as they are, few of them anyway"},
        {ROW(reduce, order), c->reduce.order != ORDER_FIXED, "are added along the tree of lanes"},
        {ROW(checkpoint, async), c->checkpoint.async, "are saved from where they are, not from a copy"},
        {ROW(checkpoint, compress), c->checkpoint.compress != COMPRESS_NONE, "are saved as they are"},
        {ROW(optimizer, ema), c->optimizer.ema > 0, "have no mean beside them"},
        {ROW(model, init_from), c->model.init_from[0] != 0,
         "are in no file of weights: leave out [model] init_from; a run goes on from its own checkpoints"},
    };
    return judge_others(j, all, sizeof all / sizeof *all, config_find(c, "model", "demand"), "rows on demand");
}
