// comm/tcp/wires.c: see comm/tcp/wires.h.
#include "comm/tcp/wires.h"

#include <stdlib.h>

enum { LINE = 64 };

err_t wires_open(wires **out, team *t, link_engine *engine) {
    const launch *at = team_at(t);
    wires *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w && engine) engine->leave(engine), engine->close(engine);
    if (!w) return err_set(ERR_INTERNAL, "no memory for the connections of %d ranks", at->world);
    *w = (wires){.team = t, .at = at, .users = 1, .next_id = 1, .engine = engine};
    w->wire = calloc((size_t)(1 + at->plan.channels) * (size_t)at->world, sizeof *w->wire);
    w->taken = calloc((size_t)at->plan.seats + 1, sizeof *w->taken);
    *out = w;
    if (w->wire && w->taken) return ERR_OK;
    wires_close(w);
    *out = NULL;
    return err_set(ERR_INTERNAL, "no memory for the connections of %d ranks", at->world);
}

wires *wires_share(wires *w) {
    w->users++;
    return w;
}

void wires_close(wires *w) {
    if (!w || --w->users > 0) return;
    if (w->engine) w->engine->leave(w->engine);
    for (int i = 0; w->wire && i < (1 + w->at->plan.channels) * w->at->world; i++) {
        if (w->wire[i] && w->wire[i]->far.fd >= 0) link_close(&w->wire[i]->far);
        free(w->wire[i]);
    }
    if (w->engine) w->engine->close(w->engine);
    free(w->wire), free(w->taken), free(w);
}

static err_t open_far(wire *x, const wires *w, int channel, int rank) {
    team_link l;
    char name[COMM_NAME];
    TRY(team_take_link(w->team, channel, rank, &l));
    if (l.fd < 0)
        return err_set(ERR_INTERNAL, "no data connection to %s: the team was joined without links",
                       comm_place_text(&w->at->place[rank], name));
    err_t rc = link_open(&x->far, &l);
    sodium_memzero(&l, sizeof l);
    if (rc == ERR_OK && w->engine) rc = w->engine->attach(w->engine, &x->far, channel, rank);
    if (rc != ERR_OK) link_close(&x->far);
    return rc;
}

// On lines of their own: threads that use other wires at the same time write to them all the time.
err_t wires_connect(wires *w, int channel, int rank) {
    wire **to = &w->wire[channel * w->at->world + rank], *x;
    if (*to) return ERR_OK;
    x = calloc(1, sizeof *x + LINE);
    if (!x) return err_set(ERR_INTERNAL, "no memory for the connection to rank %d", rank);
    x->far.fd = -1;
    const comm_place *p = &w->at->place[rank];
    err_t rc =
        p->node == w->at->node ? shm_rings(w->at, channel, p->local, &x->out, &x->in) : open_far(x, w, channel, rank);
    if (rc == ERR_OK) *to = x;
    else free(x);
    return rc;
}

err_t wires_meet(wires *w, int channel, int rank) {
    wire *x = wires_to(w, channel, rank);
    if (x->met || x->far.fd < 0 || !w->engine) return ERR_OK;
    TRY(w->engine->meet(w->engine, &x->far));
    x->met = true;
    return ERR_OK;
}

int wires_take_seat(wires *w) {
    for (int i = 0; w->at->more && i < w->at->plan.seats; i++) {
        if (w->taken[i]) continue;
        w->taken[i] = true;
        return i;
    }
    return -1;
}

void wires_leave_seat(wires *w, int seat) {
    if (seat >= 0) w->taken[seat] = false;
}
