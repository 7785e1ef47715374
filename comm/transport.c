// comm/transport.c: see comm/transport.h.
#include "comm/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// All ranks see all lines, so all reach the same result.
static err_t compare_lines(const comm *c, const char *line) {
    char first[COMM_NAME], other[COMM_NAME];
    for (int r = 1; r < c->world; r++) {
        const char *its = line + (size_t)r * DEVICE_ARITHMETIC;
        if (memcmp(line, its, DEVICE_ARITHMETIC) == 0) continue;
        err_set(
            ERR_CONFIG,
            "%s computes on \"%.159s\", %s on \"%.159s\": they give other bits, and a run has the bits of one. Give all ranks devices and "
            "libraries of one kind, or take those that differ out of [cluster] nodes; CPUs compute alike everywhere ([device] backend = cpu)",
            comm_rank_text(c, 0, first), line, comm_rank_text(c, r, other), its);
        return err_share();
    }
    return ERR_OK;
}

static err_t compare_devices(comm *over, const char *arithmetic, stream *s) {
    size_t world = (size_t)over->world, *cut = calloc(world + 1, sizeof *cut);
    char *line = calloc(world, DEVICE_ARITHMETIC);
    err_t rc = line && cut ? ERR_OK : err_set(ERR_INTERNAL, "no memory to compare the devices of %zu ranks", world);
    for (size_t r = 0; rc == ERR_OK && r < world; r++) cut[r + 1] = cut[r] + DEVICE_ARITHMETIC;
    if (rc == ERR_OK) snprintf(line + cut[over->rank], DEVICE_ARITHMETIC, "%s", arithmetic);
    if (rc == ERR_OK) rc = over->table->all_gather(over, line, cut, s);
    if (rc == ERR_OK) rc = stream_wait(s);
    if (rc == ERR_OK) rc = compare_lines(over, line);
    free(cut), free(line);
    return rc;
}

err_t transport_open(comm **out, team *t, const transport_options *o, stream *s) {
    *out = NULL;
    if (team_at(t)->world == 1) return comm_self_open(out);
    comm *over;
    TRY(o->kind == TRANSPORT_FABRIC ? comm_fabric_open(&over, t, o) : comm_tcp_open(&over, t, o));
    err_t rc = o->arithmetic ? compare_devices(over, o->arithmetic, s) : ERR_OK;
    if (rc == ERR_OK && o->kind != TRANSPORT_NCCL) *out = over;
    else if (rc == ERR_OK) rc = comm_nccl_open(out, t, over, o, s);
    if (rc == ERR_OK) return ERR_OK;
    err_record why = *err_last();
    over->table->close(over);
    return err_restore(&why);
}

err_t transport_register(comm *c, void *base, size_t bytes) {
    return c->table->register_memory ? c->table->register_memory(c, base, bytes) : ERR_OK;
}

void transport_describe(const comm *c, char *dst, size_t room) { c->table->describe(c, dst, room); }
