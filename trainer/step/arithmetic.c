// trainer/step/arithmetic.c: see trainer/step/arithmetic.h.
//
// Each rank chooses a plan when it first meets a shape. On the same GPU with the same library the heuristic makes the
// same choice. This is confirmed once, after the first step and before anything is saved.
//
// To choose for all, rank 0 would have to go through a step before the first one. It can't do that alone: a step
// contains collectives, which the other ranks would not join. Nor in a capture: there, a library that is used for the
// first time is not allowed to load what it needs. A resumed run takes its plans from the checkpoint, on all ranks, and
// chooses nothing.
#include "trainer/step/arithmetic.h"

#include <string.h>

// Plan i of rank 0; empty after the last one.
static err_t bring(const device *d, int i, char text[DEVICE_PLAN], comm *ranks, stream *s) {
    comm *host = ranks->host;
    memset(text, 0, DEVICE_PLAN);
    if (ranks->rank == 0 && !device_plans_get(d, i, text)) text[0] = 0;
    if (ranks->world == 1) return ERR_OK;
    TRY(host->table->broadcast(host, text, DEVICE_PLAN, 0, s));
    return stream_wait(s);
}

err_t arithmetic_confirm(device *d, comm *ranks, stream *s) {
    char text[DEVICE_PLAN], first[COMM_NAME];
    err_record why = {0};
    if (device_about(d)->kind == DEVICE_CPU) return ERR_OK;  // as on all ranks
    ranks->phase.what = ranks->host->phase.what = "compare matmul plans";
    for (int i = 0;; i++) {
        TRY(bring(d, i, text, ranks, s));
        if (!*text) break;
        if (why.code != ERR_OK || device_plans_set(d, text) == ERR_OK) continue;
        err_prefix(
            "its plans are not those of %s, though both devices say the same of their arithmetic: look for variables that steer cuBLASLt on one of "
            "them",
            comm_rank_text(ranks, 0, first));
        why = *err_last();
    }
    return comm_agree_ok(ranks, why.code == ERR_OK ? ERR_OK : err_restore(&why), s);
}
