// comm/team/shm.c: see comm/team/shm.h.
//
// Layout of the area: one line for each rank, two lines (head, tail) for each ring, then the rings' bytes. Rings are
// ordered by reader, then writer. Pages are touched only when used: a pair that never communicates costs only address
// space. The area of the further channels is the same, with `seats` lines for each rank, and rings only for the pairs
// that some channel connects.
#include "comm/team/shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 64, PAGE = 4096, RING_LEAST = 16 << 10, RING_MOST = 1 << 20, AREA_BUDGET = 64 << 20 };

struct shm_seat {
    _Alignas(LINE) atomic_uint asleep;
    _Atomic uint64_t entered;
};

typedef struct counters {
    _Alignas(LINE) _Atomic uint64_t head;
    _Alignas(LINE) _Atomic uint64_t tail;
} counters;

// --- where everything lies -------------------------------------------------------------------------------------------

// The largest power of two within the budget: two ranks need room to run ahead of each other, sixty-four must not fill
// the memory.
static size_t ring_room(int locals) {
    size_t rings = (size_t)locals * (size_t)(locals - 1), room = RING_MOST;
    while (room > RING_LEAST && room * rings > AREA_BUDGET) room /= 2;
    return room;
}

static size_t control_bytes(size_t seats, size_t rings) {
    size_t bytes = seats * sizeof(shm_seat) + rings * sizeof(counters);
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static size_t area_bytes(size_t seats, size_t rings, size_t room) { return control_bytes(seats, rings) + rings * room; }

size_t team_area_bytes(int locals) {
    return area_bytes((size_t)locals, (size_t)locals * (size_t)locals, ring_room(locals));
}

size_t team_more_bytes(int locals, int seats, int rings) {
    return area_bytes((size_t)locals * (size_t)seats, (size_t)rings, ring_room(locals));
}

// How many rings an area of the further channels has.
static int more_rings(const launch *at) {
    int n = at->plan.channels * at->locals * at->locals;
    while (n > 0 && at->ring[n - 1] < 0) n--;
    return n ? at->ring[n - 1] + 1 : 0;
}

typedef struct area {
    char *base;
    size_t seats, rings, room;
} area;

static area area_of(const launch *at, int channel) {
    size_t n = (size_t)at->locals, room = ring_room(at->locals);
    if (channel == 0) return (area){at->area, n, n * n, room};
    return (area){at->more, n * (size_t)at->plan.seats, (size_t)more_rings(at), room};
}

static ring ring_at(const area *a, size_t index, bool writes) {
    counters *c = (counters *)(a->base + a->seats * sizeof(shm_seat)) + index;
    ring r = {.mine = writes ? &c->head : &c->tail, .theirs = writes ? &c->tail : &c->head, .room = a->room};
    r.data = a->base + control_bytes(a->seats, a->rings) + index * a->room;
    r.at = atomic_load(r.mine);
    r.seen = atomic_load(r.theirs);
    return r;
}

static int index_of(const launch *at, int channel, int from, int to) {
    int cell = to * at->locals + from;
    return channel == 0 ? cell : at->ring[(channel - 1) * at->locals * at->locals + cell];
}

err_t shm_rings(const launch *at, int channel, int peer, ring *out, ring *in) {
    area a = area_of(at, channel);
    size_t have = channel ? at->more_bytes : at->area_bytes, need = area_bytes(a.seats, a.rings, a.room);
    if (!a.base || have < need)
        return err_set(ERR_INTERNAL, "%zu bytes of shared memory for %d ranks, expected %zu", have, at->locals, need);
    *out = ring_at(&a, (size_t)index_of(at, channel, at->local, peer), true);
    *in = ring_at(&a, (size_t)index_of(at, channel, peer, at->local), false);
    return ERR_OK;
}

// --- seats -----------------------------------------------------------------------------------------------------------

err_t shm_attach_none(shm *s, const launch *at) {
    *s = (shm){.me = at->local, .locals = at->locals};
    if (at->locals == 1) return ERR_OK;
    s->seat = calloc((size_t)at->locals, sizeof *s->seat);
    s->bell = malloc((size_t)at->locals * sizeof *s->bell);
    if (!s->seat || !s->bell) {
        shm_detach(s);
        return err_set(ERR_INTERNAL, "no memory for the seats of %d ranks", at->locals);
    }
    for (int i = 0; i < at->locals; i++) s->bell[i] = -1;
    return ERR_OK;
}

err_t shm_attach(shm *s, const launch *at) {
    TRY(shm_attach_none(s, at));
    for (int i = 0; s->seat && i < at->locals; i++) {
        s->seat[i] = (shm_seat *)at->area + i;
        s->bell[i] = at->doorbell[i];
    }
    return ERR_OK;
}

void shm_sit(shm *s, const launch *at, int i, int seat) {
    int place = i * at->plan.seats + seat;
    s->seat[i] = (shm_seat *)at->more + place;
    s->bell[i] = at->bell[place];
}

void shm_detach(shm *s) {
    free(s->seat);
    free(s->bell);
    *s = (shm){0};
}

// --- sleeping --------------------------------------------------------------------------------------------------------

// This side publishes, then loads `asleep`; the other side sets `asleep`, then loads the counters. Each stores first
// and loads second, and with the two fences they cannot both load the old value (Dekker). So one of them notices:
// either this rank rings, or the other one does not sleep.
bool shm_wake(shm *s, int local) {
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&s->seat[local]->asleep, memory_order_relaxed)) return false;
    if (!atomic_exchange_explicit(&s->seat[local]->asleep, 0, memory_order_relaxed)) return false;
    uint64_t one = 1;
    while (write(s->bell[local], &one, sizeof one) < 0 && errno == EINTR) {}
    return true;
}

static shm_seat *own_seat(const shm *s) { return s->seat ? s->seat[s->me] : NULL; }

void shm_doze(shm *s) {
    if (!own_seat(s)) return;
    atomic_store_explicit(&own_seat(s)->asleep, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

// A neighbour that has seen the announcement may ring only after this: the next poll() then wakes once for nothing.
void shm_rise(shm *s, bool rang) {
    if (!own_seat(s)) return;
    atomic_store_explicit(&own_seat(s)->asleep, 0, memory_order_relaxed);
    uint64_t count;
    while (rang && read(s->bell[s->me], &count, sizeof count) < 0 && errno == EINTR) {}
}

void shm_enter(shm *s, uint64_t call) {
    if (own_seat(s)) atomic_store_explicit(&own_seat(s)->entered, call, memory_order_relaxed);
}

uint64_t shm_entered(const shm *s, int local) {
    return s->seat && s->seat[local] ? atomic_load_explicit(&s->seat[local]->entered, memory_order_relaxed) : 0;
}
