// comm/transport.c: see comm/transport.h.
#include "comm/transport.h"

#include "comm/nccl_api.h"

#include <stdio.h>
#include <string.h>

err_t transport_open(comm **out, team *t, const transport_options *o, stream *s) {
    *out = NULL;
    if (team_at(t)->world == 1) return comm_self_open(out);
    if (o->kind == TRANSPORT_TCP) return comm_tcp_open(out, t, o);
    comm *over;
    TRY(comm_tcp_open(&over, t, o));
    err_t rc = comm_nccl_open(out, t, over, o, s);
    if (rc == ERR_OK) return ERR_OK;
    err_record why = *err_last();
    over->table->close(over);
    return err_restore(&why);
}

err_t transport_register(comm *c, void *base, size_t bytes) {
    return strcmp(c->table->name, "nccl") == 0 ? nccl_register(c, base, bytes) : ERR_OK;
}

void transport_describe(const comm *c, char *dst, size_t room) {
    bool near = false, far = comm_nodes(c) > 1;
    for (int r = 1; r < c->world; r++) near |= c->place[r].node == c->place[r - 1].node;
    if (strcmp(c->table->name, "nccl") == 0) nccl_describe(c, dst, room);
    else if (strcmp(c->table->name, "tcp") != 0) snprintf(dst, room, "%s: nobody to talk to", c->table->name);
    else snprintf(dst, room, "%s%s%s", near ? "shared memory" : "", near && far ? " and " : "", far ? "TCP" : "");
}
