// trainer/config/periods.c: the rule of runs whose ranks hold the same after some steps only (config_period): islands,
// and servers that do not wait for all of a step.
#include "trainer/config/judge.h"

#include <inttypes.h>

// What shows or keeps the weights does so where all ranks hold the same.
err_t judge_periods(judge *j) {
    const config *c = j->c;
    const struct {
        int row;
        int64_t every;
    } due[] = {{ROW(run, steps), c->run.epochs > 0 ? 0 : c->run.steps},
               {ROW(checkpoint, every), c->checkpoint.every},
               {ROW(eval, every), c->eval.every},
               {ROW(sample, every), c->sample.tokens ? c->sample.every : 0},
               {ROW(snapshot, every), c->cluster.elastic ? c->snapshot.every : 0},
               {ROW(log, hash_every), c->log.hash_every}};
    const bool served = config_is_served(c);
    const int64_t period = config_period(c);
    for (size_t k = 0; k < sizeof due / sizeof *due; k++) {
        if (due[k].every % period == 0) continue;
        const setting *s = config_key(due[k].row);
        judge_number(j, (double)((due[k].every / period + 1) * period));
        if (due[k].every > period) judge_number(j, (double)(due[k].every / period * period));
        return judge_refuse(j, ROWS(due[k].row, served ? ROW(server, every) : ROW(outer, every)),
                            "[%s] %s = %" PRId64 " is no multiple of [%s] every = %" PRId64
                            ", and only then do %s hold the same weights",
                            s->section, s->key, due[k].every, served ? "server" : "outer", period,
                            served ? "all ranks" : "the islands");
    }
    return ERR_OK;
}
