// trainer/config/demand.c: the rules of a model whose tables have rows on demand ([model] demand): they are in the
// memory of CPUs, divided among all ranks by their ids, and no tensors of the run, so what works on those leaves them
// out.
#include "trainer/config/judge.h"

// What does not know such rows: a key, and whether it is set so; and why it can't be.
typedef struct stranger {
    int row;
    bool is;
    const char *why;
} stranger;

err_t judge_demand(judge *j) {
    const config *c = j->c;
    if (!j->demand) return ERR_OK;
    const stranger all[] = {
        {ROW(device, backend), c->resolved.kind == DEVICE_CUDA,
         "are in the memory of CPUs: set [device] backend = cpu"},
        {ROW(precision, compute), c->precision.compute != FP32, "are FP32: set [precision] compute = fp32"},
        {ROW(parallel, pipeline), c->parallel.pipeline > 1,
         "are fetched for a micro-batch from its first block to its last: set [parallel] pipeline = 1"},
        {ROW(parallel, offload), c->parallel.offload != OFFLOAD_NONE,
         "are in host memory already: set [parallel] offload = none"},
        {ROW(parallel, balance), c->parallel.balance != BALANCE_NONE,
         "are merged for the lanes that a run begins with: set [parallel] balance = none, and deal for uneven ranks"},
        {ROW(server, count), c->server.count > 0, "are owned by all ranks alike: set [server] count = 0"},
        {ROW(outer, islands), c->outer.islands > 1,
         "are in one place only, and no mean is taken of them: set [outer] islands = 1"},
        {ROW(reduce, compress), c->reduce.compress != SEND_ALL,
         "travel as they are, few of them anyway: set [reduce] compress = none"},
        {ROW(reduce, order), c->reduce.order != ORDER_FIXED,
         "are added along the tree of lanes: set [reduce] order = fixed"},
        {ROW(cluster, elastic), c->cluster.elastic,
         "are in no snapshot, so ranks that are lost take them along: set [cluster] elastic = no, and [checkpoint] every"},
        {ROW(checkpoint, async), c->checkpoint.async,
         "are saved from where they are, not from a copy: set [checkpoint] async = no"},
        {ROW(checkpoint, compress), c->checkpoint.compress != COMPRESS_NONE,
         "are saved as they are: set [checkpoint] compress = none"},
        {ROW(optimizer, ema), c->optimizer.ema > 0, "have no mean beside them: set [optimizer] ema = 0"},
        {ROW(lora, rank), c->lora.rank > 0, "have no adapters: set [lora] rank = 0"},
        {ROW(model, init_from), c->model.init_from[0] != 0,
         "are in no file of weights: leave out [model] init_from; a run goes on from its own checkpoints"},
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (all[k].is)
            return judge_refuse(j, ROWS(all[k].row, config_find(c, "model", "demand")), "rows on demand %s",
                                all[k].why);
    return ERR_OK;
}
