// test/support/late.h: a transport whose transfers are as late as they can be, for programs that put it in the place of
// comm/transport.c: they define what that file defines, so the linker never looks for it.
//
// What a queue stream's thread asks of the tcp transport is first spoiled: every byte that will arrive becomes 0xff,
// which is NaN in every type. It is moved only when the rank's own thread sleeps, and so has nothing left to do but to
// wait. Who does not wait for what is under way reads NaN however fast the machine is, or is caught here: two calls at
// the same time, or a phase that changes under a call.
#ifndef TEST_SUPPORT_LATE_H
#define TEST_SUPPORT_LATE_H

#include "comm/transport.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// One of a process: a rank has one transport.
typedef struct late_ways {
    const comm_table *real;
    comm_table table;
    pthread_t opener;   // whose own calls are not late: it waits for them anyway
    pid_t task;         // its number
    atomic_int inside;  // calls
    atomic_bool broken;
} late_ways;

static late_ways late;

// Is the opener asleep? Not, if it would run and has no processor.
static inline bool late_opener_sleeps(void) {
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)late.task);
    FILE *f = fopen(path, "r");
    if (f && !fgets(line, sizeof line, f)) line[0] = 0;
    if (f) fclose(f);
    const char *state = strrchr(line, ')');
    return state && state[1] == ' ' && state[2] == 'S';
}

// In three looks in a row; or, if it never is, for some seconds.
static inline void late_wait(void) {
    for (int asleep = 0, looks = 0; asleep < 3 && looks < 10000; looks++) {
        nanosleep(&(struct timespec){0, 200000}, NULL);
        asleep = late_opener_sleeps() ? asleep + 1 : 0;
    }
}

static inline bool late_is_own(void) { return pthread_equal(pthread_self(), late.opener); }

typedef struct late_call {
    comm *c;
    const char *what;
    int64_t step, number;
} late_call;

// Before a call moves anything; what will arrive is spoiled already.
static inline err_t late_enter(late_call *k, comm *c) {
    *k = (late_call){c, c->phase.what ? c->phase.what : "", c->phase.step, c->phase.number};
    if (atomic_fetch_add(&late.inside, 1) != 0) {
        atomic_store(&late.broken, true);
        return err_set(ERR_INTERNAL, "two threads are in the transport at the same time, one in \"%s\"", k->what);
    }
    if (!late_is_own()) late_wait();
    return ERR_OK;
}

static inline err_t late_leave(const late_call *k, err_t rc) {
    const comm *c = k->c;
    atomic_fetch_sub(&late.inside, 1);
    TRY(rc);
    const char *what = c->phase.what ? c->phase.what : "";
    if (strcmp(what, k->what) == 0 && c->phase.step == k->step && c->phase.number == k->number) return ERR_OK;
    atomic_store(&late.broken, true);
    return err_set(ERR_INTERNAL, "\"%s\" %" PRId64 " was under way, and the rank said that it is in \"%s\" %" PRId64,
                   k->what, k->number, what, c->phase.number);
}

static inline err_t late_exchange(comm *c, const comm_part *send, int sends, const comm_part *recv, int recvs,
                                  stream *s) {
    late_call k;
    for (int i = 0; i < recvs && !late_is_own(); i++) memset(recv[i].data, 0xff, recv[i].bytes);
    TRY(late_enter(&k, c));
    return late_leave(&k, late.real->exchange(c, send, sends, recv, recvs, s));
}

static inline err_t late_all_gather(comm *c, void *data, const size_t *cut, stream *s) {
    late_call k;
    for (int r = 0; r < c->world && !late_is_own(); r++)
        if (r != c->rank) memset((char *)data + cut[r], 0xff, cut[r + 1] - cut[r]);
    TRY(late_enter(&k, c));
    return late_leave(&k, late.real->all_gather(c, data, cut, s));
}

static inline err_t late_all_reduce(comm *c, void *data, size_t count, dtype type, reduce_op op, stream *s) {
    late_call k;
    TRY(late_enter(&k, c));
    return late_leave(&k, late.real->all_reduce(c, data, count, type, op, s));
}

static inline err_t late_reduce_scatter(comm *c, void *data, const size_t *cut, dtype type, stream *s) {
    late_call k;
    TRY(late_enter(&k, c));
    return late_leave(&k, late.real->reduce_scatter(c, data, cut, type, s));
}

static inline err_t late_broadcast(comm *c, void *data, size_t bytes, int root, stream *s) {
    late_call k;
    TRY(late_enter(&k, c));
    return late_leave(&k, late.real->broadcast(c, data, bytes, root, s));
}

static inline err_t late_barrier(comm *c, stream *s) {
    late_call k;
    TRY(late_enter(&k, c));
    return late_leave(&k, late.real->barrier(c, s));
}

// --- in the place of comm/transport.c --------------------------------------------------------------------------------

err_t transport_open(comm **out, team *t, const transport_options *o, stream *s) {
    (void)s;
    TRY(comm_tcp_open(out, t, o));
    late.real = (*out)->table;
    late.table = *late.real;
    late.table.exchange = late_exchange;
    late.table.all_gather = late_all_gather;
    late.table.all_reduce = late_all_reduce;
    late.table.reduce_scatter = late_reduce_scatter;
    late.table.broadcast = late_broadcast;
    late.table.barrier = late_barrier;
    late.opener = pthread_self();
    late.task = gettid();
    (*out)->table = &late.table;
    return ERR_OK;
}

err_t transport_register(comm *c, void *base, size_t bytes) {
    (void)c, (void)base, (void)bytes;
    return ERR_OK;
}

void transport_describe(const comm *c, char *dst, size_t room) { snprintf(dst, room, "%s, late", c->table->name); }

#endif
