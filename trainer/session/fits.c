// trainer/session/fits.c: see trainer/session/fits.h.
#include "trainer/session/fits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// What all ranks of this rank's machine take of its memory.
static err_t add_up(comm *ranks, stream *s, int64_t mine, int64_t *sum, int *locals) {
    size_t world = (size_t)ranks->world;
    int64_t *all = calloc(world, sizeof *all);
    size_t *cut = calloc(world + 1, sizeof *cut);
    err_t rc = all && cut ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %zu ranks", world);
    rc = comm_agree_ok(ranks, rc, s);
    for (size_t r = 0; rc == ERR_OK && r <= world; r++) cut[r] = r * sizeof *all;
    if (rc == ERR_OK) all[ranks->rank] = mine;
    if (rc == ERR_OK) rc = ranks->host->table->all_gather(ranks->host, all, cut, s);
    if (rc == ERR_OK) rc = stream_wait(s);
    *sum = 0, *locals = 0;
    for (size_t r = 0; rc == ERR_OK && r < world; r++)
        if (ranks->place[r].node == ranks->place[ranks->rank].node) *sum += all[r], ++*locals;
    free(all), free(cut);
    return rc;
}

err_t memory_advise(err_t rc) {
    if (rc != ERR_CONFIG) return rc;
    err_record why = *err_last();
    return err_set(
        rc,
        "%.600s. `lockstep plan` shows what takes it; less is needed with a smaller [batch] micro, [parallel] recompute = block, zero = 3 "
        "over more ranks, a smaller [model], where [cluster] elastic = yes, with [snapshot] every = 0, or with [checkpoint] async = no",
        why.text);
}

err_t memory_judge(const memory_room *m, int64_t mine, int64_t sum, int locals) {
    char who[64] = "this run needs";
    if (locals > 1) snprintf(who, sizeof who, "the %d ranks on this machine need", locals);
    if (sum > m->most) return memory_refuse(who, sum, false, m);
    return mine > m->addresses ? memory_refuse(locals > 1 ? "this rank needs" : who, mine, true, m) : ERR_OK;
}

static err_t check_host(int64_t mine, int64_t sum, int locals) {
    memory_room m = memory_find("");
    return memory_judge(&m, mine, sum, locals);
}

static err_t check_device(device *dev, int64_t mine) {
    int64_t used, total;
    if (device_memory(dev, &used, &total) != ERR_OK || mine <= total) return ERR_OK;
    memory_room m = {.most = total, .available = total - used, .addresses = INT64_MAX, .what = device_about(dev)->name};
    return memory_refuse("this rank needs", mine, false, &m);
}

err_t memory_fits(comm *ranks, stream *s, device *dev, int64_t of_device, int64_t of_host) {
    bool apart = device_about(dev)->kind == DEVICE_CUDA;
    int64_t mine = of_host + (apart ? 0 : of_device), sum = mine;
    int locals = 1;
    if (ranks->world > 1) TRY(add_up(ranks, s, mine, &sum, &locals));
    err_t rc = check_host(mine, sum, locals);
    if (rc == ERR_OK && apart) rc = check_device(dev, of_device);
    return comm_agree_ok(ranks, memory_advise(rc), s);
}
