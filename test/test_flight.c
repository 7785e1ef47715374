// test/test_flight.c: the flight recorder's memory: what a rank writes is what a reader sees, also while it is written.
#include "comm/flight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static flight_rank *new_rank(void) {
    flight_rank *f = aligned_alloc(64, sizeof *f);
    assert_non_null(f);
    memset(f, 0, sizeof *f);
    return f;
}

// A transport that answers as it is told.
typedef struct made_up {
    comm c;
    comm_place place[3];
    err_t answer;
    flight_rank *seen;  // by the call, while it is in it
    flight_standing inside;
} made_up;

static err_t answer(comm *c) {
    made_up *m = (made_up *)c;
    if (m->seen) assert_true(flight_stands(m->seen, 0, &m->inside));
    return m->answer == ERR_OK ? ERR_OK : err_set(m->answer, "as it was told");
}
static err_t reduces(comm *c, void *data, size_t count, dtype type, reduce_op op, stream *s) {
    (void)data, (void)count, (void)type, (void)op, (void)s;
    return answer(c);
}
static err_t exchanges(comm *c, const comm_part *send, int sends, const comm_part *recv, int recvs, stream *s) {
    (void)send, (void)sends, (void)recv, (void)recvs, (void)s;
    return answer(c);
}
static void closes(comm *c) { c->world = 0; }
static err_t splits(comm *c, int color, int key, int channel, comm **out);
static void aborts(comm *c, const char *why) { (void)c, (void)why; }

static const comm_table table = {
    .name = "made up", .all_reduce = reduces, .exchange = exchanges, .split = splits, .abort = aborts, .close = closes};

static void make(made_up *m, int first, int world) {
    *m = (made_up){.c = {.table = &table, .world = world, .place = m->place, .host = &m->c}};
    for (int r = 0; r < world; r++) m->place[r] = (comm_place){.rank = first + r};
}

static made_up part;
static err_t splits(comm *c, int color, int key, int channel, comm **out) {
    (void)c, (void)key, (void)channel;
    make(&part, 1, 2);
    *out = color < 0 ? NULL : &part.c;
    return ERR_OK;
}

static void a_call_is_recorded_in_and_out(void **state) {
    (void)state;
    flight_rank *f = new_rank();
    made_up m;
    flight_seen x[FLIGHT_CALLS];
    flight_standing at;
    make(&m, 0, 3);
    flight_watch(f, &m.c);
    m.seen = f;
    m.c.phase = (comm_phase){"reduce gradients", 41, 3};
    assert_int_equal(m.c.table->all_reduce(&m.c, NULL, 10, FP64, REDUCE_SUM, NULL), ERR_OK);
    assert_int_equal(m.inside.state, FLIGHT_IN);
    assert_int_equal(m.inside.calls, 1);
    assert_int_equal(m.inside.bytes, 80);
    assert_string_equal(m.inside.what, "reduce gradients");
    assert_true(m.inside.step == 41 && m.inside.part == 3);
    assert_true(flight_stands(f, 0, &at));
    assert_int_equal(at.state, FLIGHT_DONE);
    assert_true(at.member[0] == 7 && at.world == 3 && !at.torn);
    assert_int_equal(flight_calls(f, x), 1);
    assert_true(x[0].op == FLIGHT_ALL_REDUCE && x[0].number == 1 && x[0].bytes == 80 && x[0].state == FLIGHT_DONE);
    comm_part to = {.peer = 2, .bytes = 5};
    assert_int_equal(m.c.table->exchange(&m.c, &to, 1, NULL, 0, NULL), ERR_OK);
    assert_true(m.inside.calls == 1 && m.inside.exchanges == 1 && m.inside.peer[0] == 4);
    m.c.table->close(&m.c);
    assert_false(flight_stands(f, 0, &at));
    assert_int_equal(m.c.world, 0);
    free(f);
}

static void nobody_watches_without_memory(void **state) {
    (void)state;
    made_up m;
    make(&m, 0, 2);
    flight_watch(NULL, &m.c);
    flight_phase(NULL, "save", 1), flight_freeze(NULL), flight_begin(NULL, 1);
    assert_ptr_equal(m.c.table, &table);
}

// Those of one split differ by color, and splits from each other; the same on all ranks.
static void parts_are_watched_too(void **state) {
    (void)state;
    uint32_t id[2][3];
    for (int rank = 0; rank < 2; rank++) {
        flight_rank *f = new_rank();
        made_up m;
        flight_standing at;
        make(&m, 0, 3);
        flight_watch(f, &m.c);
        for (int k = 0; k < 3; k++) {
            comm *out;
            assert_int_equal(m.c.table->split(&m.c, k == 1, 0, 4, &out), ERR_OK);
            assert_true(flight_stands(f, 1, &at));
            id[rank][k] = at.id;
            assert_true(at.channel == 4 && at.world == 2 && at.member[0] == 6);
            out->table->close(out);
            assert_int_equal(m.c.table->split(&m.c, -1, 0, 4, &out), ERR_OK);
            assert_null(out);
        }
        free(f);
    }
    assert_memory_equal(id[0], id[1], sizeof id[0]);
    assert_true(id[0][0] != id[0][1] && id[0][1] != id[0][2] && id[0][0] != id[0][2] && id[0][0] > 2);
}

static void the_ring_keeps_the_last(void **state) {
    (void)state;
    flight_rank *f = new_rank();
    flight_seen x[FLIGHT_CALLS];
    for (int i = 1; i <= 1000; i++) {
        flight_phase(f, "step", i);
        int n = flight_calls(f, x);
        assert_int_equal(n, i < FLIGHT_CALLS ? i : FLIGHT_CALLS);
        assert_int_equal(x[n - 1].step, i);
        assert_int_equal(x[0].step, i - n + 1);
    }
    free(f);
}

// As of a process that was killed while it wrote: the call is left out, and the place is read as it is.
static void torn_entries_are_left_out(void **state) {
    (void)state;
    flight_rank *f = new_rank();
    made_up m;
    flight_seen x[FLIGHT_CALLS];
    flight_standing at;
    make(&m, 0, 2);
    flight_watch(f, &m.c);
    for (int i = 0; i < 3; i++) m.c.table->all_reduce(&m.c, NULL, 1, FP32, REDUCE_SUM, NULL);
    atomic_store(&f->ring[1].stamp, 0);
    assert_int_equal(flight_calls(f, x), 2);
    assert_true(x[0].number == 1 && x[1].number == 3);
    atomic_store(&f->ring[1].stamp, 2 + FLIGHT_CALLS);  // another lap's
    assert_int_equal(flight_calls(f, x), 2);
    atomic_fetch_add(&f->at[0].sequence, 1);
    assert_true(flight_stands(f, 0, &at) && at.calls == 3 && at.torn);
    flight_begin(f, 1);
    assert_int_equal(atomic_load(&f->at[0].sequence) % 2, 0);
    free(f);
}

// A thread that sleeps in the middle of a record, while others go once round the ring, has its place for itself; and
// when it wakes only after it has drawn its number, a newer record stays.
static void a_place_has_one_writer(void **state) {
    (void)state;
    flight_rank *f = new_rank();
    made_up m;
    flight_seen x[FLIGHT_CALLS];
    make(&m, 0, 2);
    flight_watch(f, &m.c);
    atomic_store(&f->ring[1].stamp, UINT64_MAX);
    atomic_store(&f->ring[1].bytes, 77);
    atomic_store(&f->ring[2].stamp, 3 + FLIGHT_CALLS);
    atomic_store(&f->ring[2].bytes, 78);
    for (int i = 0; i < 4; i++) m.c.table->all_reduce(&m.c, NULL, 1, FP32, REDUCE_SUM, NULL);
    assert_int_equal(flight_calls(f, x), 2);
    assert_true(x[0].number == 1 && x[1].number == 4);
    assert_true(atomic_load(&f->ring[1].bytes) == 77 && atomic_load(&f->ring[2].bytes) == 78);
    flight_begin(f, 1);  // of who was killed while it wrote
    assert_true(atomic_load(&f->ring[1].stamp) == 0);
    free(f);
}

// What led to a failure stays, whatever unwinding does; the next world begins anew.
static void a_failure_freezes(void **state) {
    (void)state;
    flight_rank *f = new_rank();
    made_up m, other;
    flight_standing at;
    flight_seen x[FLIGHT_CALLS];
    make(&m, 0, 2);
    flight_watch(f, &m.c);
    m.c.table->all_reduce(&m.c, NULL, 1, FP32, REDUCE_SUM, NULL);
    m.answer = ERR_UNAVAILABLE;
    assert_int_equal(m.c.table->all_reduce(&m.c, NULL, 1, FP32, REDUCE_SUM, NULL), ERR_UNAVAILABLE);
    for (int i = 0; i < 9; i++) m.c.table->all_reduce(&m.c, NULL, 1, FP32, REDUCE_SUM, NULL);
    flight_phase(f, "starting", 0);
    m.c.table->abort(&m.c, "over");
    m.c.table->close(&m.c);
    assert_true(flight_stands(f, 0, &at));
    assert_true(at.calls == 2 && at.state == FLIGHT_FAILED);
    assert_int_equal(flight_calls(f, x), 2);
    assert_int_equal(x[1].state, FLIGHT_FAILED);
    assert_true(atomic_load(&f->failed_ns) > 0);
    flight_begin(f, 1);
    assert_false(flight_stands(f, 0, &at));
    make(&other, 0, 2);
    flight_watch(f, &other.c);
    other.c.table->all_reduce(&other.c, NULL, 1, FP32, REDUCE_SUM, NULL);
    assert_true(flight_stands(f, 0, &at) && at.calls == 1 && at.state == FLIGHT_DONE);
    assert_int_equal(flight_calls(f, x), 4);  // with the mark between
    free(f);
}

static void more_communicators_than_places(void **state) {
    (void)state;
    flight_rank *f = new_rank();
    static made_up m[FLIGHT_COMMS + 2];
    flight_seen x[FLIGHT_CALLS];
    for (int i = 0; i < FLIGHT_COMMS + 2; i++) {
        make(&m[i], 0, 2);
        flight_watch(f, &m[i].c);
        assert_int_equal(m[i].c.table->all_reduce(&m[i].c, NULL, 1, FP32, REDUCE_SUM, NULL), ERR_OK);
    }
    assert_int_equal(flight_calls(f, x), FLIGHT_COMMS + 2);
    for (int i = 0; i < FLIGHT_COMMS + 2; i++) m[i].c.table->close(&m[i].c);
    free(f);
}

// --- read while it is written ----------------------------------------------------------------------------------------

enum { WRITERS = 2, ROUNDS = 30000 };

typedef struct writer {
    flight_rank *f;
    made_up m;
    atomic_int *over;
} writer;

// Each call says its number in all its fields.
static void *write_calls(void *ctx) {
    writer *w = ctx;
    for (int i = 1; i <= ROUNDS; i++) {
        w->m.c.phase = (comm_phase){"write", i, i};
        w->m.c.table->all_reduce(&w->m.c, NULL, (size_t)i, FP32, REDUCE_SUM, NULL);
    }
    atomic_fetch_add(w->over, 1);
    return NULL;
}

static void look(const flight_rank *f, long *seen) {
    flight_seen x[FLIGHT_CALLS];
    int n = flight_calls(f, x);
    for (int i = 0; i < n; i++) {
        bool whole = x[i].bytes == 4 * (uint64_t)x[i].number && x[i].step == (int32_t)x[i].number &&
                     x[i].part == x[i].step && strcmp(x[i].what, "write") == 0 && x[i].op == FLIGHT_ALL_REDUCE;
        if (!whole) fail_msg("a torn call: number %u, %llu bytes", x[i].number, (unsigned long long)x[i].bytes);
    }
    *seen += n;
    for (int k = 0; k < WRITERS; k++) {
        flight_standing at;
        if (!flight_stands(f, k, &at) || at.calls == 0 || at.torn) continue;
        if (at.bytes != 4 * (uint64_t)at.calls || at.step != (int32_t)at.calls)
            fail_msg("a torn place: call %u, %llu bytes", at.calls, (unsigned long long)at.bytes);
    }
}

static void readers_see_whole_entries(void **state) {
    (void)state;
    flight_rank *f = new_rank();
    atomic_int over = 0;
    static writer w[WRITERS];
    pthread_t thread[WRITERS];
    long seen = 0;
    for (int k = 0; k < WRITERS; k++) {
        w[k] = (writer){.f = f, .over = &over};
        make(&w[k].m, 0, 2);
        flight_watch(f, &w[k].m.c);
    }
    for (int k = 0; k < WRITERS; k++) assert_int_equal(pthread_create(&thread[k], NULL, write_calls, &w[k]), 0);
    while (atomic_load(&over) < WRITERS) look(f, &seen);
    for (int k = 0; k < WRITERS; k++) pthread_join(thread[k], NULL);
    look(f, &seen);
    assert_true(seen >= FLIGHT_CALLS);
    free(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_is_recorded_in_and_out), cmocka_unit_test(nobody_watches_without_memory),
        cmocka_unit_test(parts_are_watched_too),         cmocka_unit_test(the_ring_keeps_the_last),
        cmocka_unit_test(torn_entries_are_left_out),     cmocka_unit_test(a_failure_freezes),
        cmocka_unit_test(a_place_has_one_writer),        cmocka_unit_test(more_communicators_than_places),
        cmocka_unit_test(readers_see_whole_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
