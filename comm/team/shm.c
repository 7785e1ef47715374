// comm/team/shm.c: see comm/team/shm.h.
//
// Layout of the area: one line for each rank, two lines (head, tail) for each ring, then the rings' bytes. Rings are
// ordered by reader, then writer. Pages are touched only when used: a pair that never communicates costs only address
// space.
#include "comm/team/shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 64, PAGE = 4096, RING_LEAST = 16 << 10, RING_MOST = 1 << 20, AREA_BUDGET = 64 << 20 };

struct shm_rank {
    _Alignas(LINE) atomic_uint asleep;
    _Atomic uint64_t entered;
};

typedef struct counters {
    _Alignas(LINE) _Atomic uint64_t head;
    _Alignas(LINE) _Atomic uint64_t tail;
} counters;

// The largest power of two within the budget: two ranks need room to run ahead of each other, sixty-four must not fill
// the memory.
static size_t ring_room(int locals) {
    size_t rings = (size_t)locals * (size_t)(locals - 1), room = RING_MOST;
    while (room > RING_LEAST && room * rings > AREA_BUDGET) room /= 2;
    return room;
}

static size_t control_bytes(int locals) {
    size_t n = (size_t)locals, bytes = n * sizeof(shm_rank) + n * n * sizeof(counters);
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

size_t team_area_bytes(int locals) { return control_bytes(locals) + (size_t)locals * (size_t)locals * ring_room(locals); }

static ring ring_at(const launch *at, int from, int to, bool writes) {
    char *base = at->area;
    size_t room = ring_room(at->locals), index = (size_t)to * (size_t)at->locals + (size_t)from;
    counters *c = (counters *)(base + (size_t)at->locals * sizeof(shm_rank)) + index;
    ring r = {.mine = writes ? &c->head : &c->tail, .theirs = writes ? &c->tail : &c->head, .room = room};
    r.data = base + control_bytes(at->locals) + index * room;
    r.at = atomic_load(r.mine);
    r.seen = atomic_load(r.theirs);
    return r;
}

err_t shm_attach(shm *s, const launch *at) {
    *s = (shm){.me = at->local, .locals = at->locals, .bell = at->doorbell};
    if (at->locals == 1) return ERR_OK;
    if (at->area_bytes < team_area_bytes(at->locals))
        return err_set(ERR_INTERNAL, "%zu bytes of shared memory for %d ranks, expected %zu", at->area_bytes, at->locals,
                       team_area_bytes(at->locals));
    s->rank = at->area;
    s->out = calloc((size_t)at->locals, sizeof *s->out);
    s->in = calloc((size_t)at->locals, sizeof *s->in);
    if (!s->out || !s->in) {
        shm_detach(s);
        return err_set(ERR_INTERNAL, "no memory for the rings of %d ranks", at->locals);
    }
    for (int i = 0; i < at->locals; i++) s->out[i] = ring_at(at, at->local, i, true), s->in[i] = ring_at(at, i, at->local, false);
    return ERR_OK;
}

void shm_detach(shm *s) {
    free(s->out);
    free(s->in);
    *s = (shm){0};
}

// This side publishes, then loads `asleep`; the other side sets `asleep`, then loads the counters. Each stores first
// and loads second, and with the two fences they cannot both load the old value (Dekker). So one of them notices:
// either this rank rings, or the other one does not sleep.
bool shm_wake(shm *s, int local) {
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&s->rank[local].asleep, memory_order_relaxed)) return false;
    if (!atomic_exchange_explicit(&s->rank[local].asleep, 0, memory_order_relaxed)) return false;
    uint64_t one = 1;
    while (write(s->bell[local], &one, sizeof one) < 0 && errno == EINTR) {}
    return true;
}

void shm_doze(shm *s) {
    if (s->locals == 1) return;
    atomic_store_explicit(&s->rank[s->me].asleep, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

// A neighbour that has seen the announcement may ring only after this: the next poll() then wakes once for nothing.
void shm_rise(shm *s, bool rang) {
    if (s->locals == 1) return;
    atomic_store_explicit(&s->rank[s->me].asleep, 0, memory_order_relaxed);
    uint64_t count;
    while (rang && read(s->bell[s->me], &count, sizeof count) < 0 && errno == EINTR) {}
}

void shm_enter(shm *s, uint64_t call) {
    if (s->locals > 1) atomic_store_explicit(&s->rank[s->me].entered, call, memory_order_relaxed);
}

uint64_t shm_entered(const shm *s, int local) { return atomic_load_explicit(&s->rank[local].entered, memory_order_relaxed); }
