// test/test_pool.c: every item once, whatever the number of threads; memory that grows; threads that leave no trace.
#include "gpu/cpu/pool.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 5000 };

typedef struct counts {
    atomic_int seen[MOST];
    atomic_int bad_thread;
    int threads;
    uint64_t plain[MOST];  // written by the item's owner, read by the caller: a race unless pool_run orders them
} counts;

static void count_item(void *ctx, int64_t item, int thread) {
    counts *c = ctx;
    atomic_fetch_add(&c->seen[item], 1);
    c->plain[item] += (uint64_t)item + 1;
    if (thread < 0 || thread >= c->threads) atomic_store(&c->bad_thread, 1);
}

static void every_item_once(void **state) {
    (void)state;
    counts *c = calloc(1, sizeof *c);
    for (int threads = 1; threads <= 9; threads++) {
        pool *p;
        assert_int_equal(pool_open(&p, threads), ERR_OK);
        assert_int_equal(pool_threads(p), threads);
        c->threads = threads;
        for (int64_t items = 0; items <= MOST; items = items < 40 ? items + 1 : items * 2 + 1) {
            memset(c->seen, 0, sizeof c->seen);
            memset(c->plain, 0, sizeof c->plain);
            for (int again = 0; again < 3; again++) pool_run(p, items, count_item, c);
            for (int64_t i = 0; i < MOST; i++) {
                assert_int_equal(atomic_load(&c->seen[i]), i < items ? 3 : 0);
                assert_int_equal(c->plain[i], i < items ? 3 * ((uint64_t)i + 1) : 0);
            }
        }
        assert_int_equal(atomic_load(&c->bad_thread), 0);
        pool_close(p);
    }
    free(c);
}

typedef struct relay {
    int64_t sum;
    int64_t parts[8];
    int round;
} relay;

static void relay_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    relay *r = ctx;
    r->parts[item] = r->sum + item * r->round;  // reads what the caller wrote between the jobs
}

// Many short jobs, each needing the results of the one before, with pauses in which the workers fall asleep.
static void jobs_follow_each_other(void **state) {
    (void)state;
    pool *p;
    assert_int_equal(pool_open(&p, 4), ERR_OK);
    relay r = {0};
    int64_t expected = 0;
    for (int round = 0; round < 20000; round++) {
        int64_t items = 2 + round % 7;
        r.round = round;
        pool_run(p, items, relay_item, &r);
        int64_t e = 0, s = 0;
        for (int64_t i = 0; i < items; i++) e += expected + i * round, s += r.parts[i];
        expected = e % 1000003;
        r.sum = s % 1000003;
        assert_int_equal(r.sum, expected);
        if (round % 1000 == 0) nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    pool_close(p);
}

static void slow_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    nanosleep(&(struct timespec){0, item == 1 ? 20000000 : 1000000}, NULL);
    atomic_fetch_add((atomic_int *)ctx, 1);
}

static void caller_waits_for_the_slow(void **state) {
    (void)state;
    pool *p;
    assert_int_equal(pool_open(&p, 3), ERR_OK);
    atomic_int done = 0;
    pool_run(p, 12, slow_item, &done);
    assert_int_equal(atomic_load(&done), 12);
    pool_close(p);
}

#if defined(__x86_64__)
typedef struct modes {
    _Atomic unsigned csr[64];
} modes;
static void mode_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    atomic_store(&((modes *)ctx)->csr[item], __builtin_ia32_stmxcsr());
    nanosleep(&(struct timespec){0, 200000}, NULL);  // so that every thread gets some
}

// A caller that flushes denormals and rounds down does not infect what the pool computes, nor do its workers inherit
// it.
static void floating_point_mode(void **state) {
    (void)state;
    unsigned dirty = 0x1f80 | 0x8040 | 0x2000;  // FTZ, DAZ, round down
    modes m;
    __builtin_ia32_ldmxcsr(dirty);
    pool *p;
    assert_int_equal(pool_open(&p, 3), ERR_OK);
    __builtin_ia32_ldmxcsr(dirty);
    pool_run(p, 64, mode_item, &m);
    unsigned after = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(dirty);
    pool_run(p, 1, mode_item, &m);
    unsigned single = __builtin_ia32_stmxcsr();
    pool_close(p);
    __builtin_ia32_ldmxcsr(0x1f80);
    assert_int_equal(after & 0xffc0, 0x1f80);
    assert_int_equal(single & 0xffc0, 0x1f80);
    for (int i = 0; i < 64; i++) assert_int_equal(m.csr[i] & 0xffc0, 0x1f80);
}
#endif

typedef struct masks {
    pthread_t caller;
    atomic_int workers, open;
} masks;
static void mask_item(void *ctx, int64_t item, int thread) {
    (void)item;
    masks *m = ctx;
    sigset_t s;
    pthread_sigmask(SIG_BLOCK, NULL, &s);
    if (thread > 0) {
        atomic_fetch_add(&m->workers, 1);
        if (!sigismember(&s, SIGTERM) || !sigismember(&s, SIGINT) || !sigismember(&s, SIGCHLD))
            atomic_fetch_add(&m->open, 1);
        if (pthread_equal(pthread_self(), m->caller)) atomic_fetch_add(&m->open, 1);
    }
    nanosleep(&(struct timespec){0, 200000}, NULL);
}

static void signals_are_the_callers(void **state) {
    (void)state;
    pool *p;
    assert_int_equal(pool_open(&p, 3), ERR_OK);
    masks m = {.caller = pthread_self()};
    pool_run(p, 100, mask_item, &m);
    assert_true(atomic_load(&m.workers) > 0);
    assert_int_equal(atomic_load(&m.open), 0);
    sigset_t s;
    pthread_sigmask(SIG_BLOCK, NULL, &s);
    assert_false(sigismember(&s, SIGTERM));
    pool_close(p);
}

static void scratch_item(void *ctx, int64_t item, int thread) {
    size_t bytes = 1000 * (size_t)(item + 1);
    unsigned char *s = pool_scratch(ctx, thread, bytes);
    assert_non_null(s);
    memset(s, thread + 1, bytes);
    for (size_t i = 0; i < bytes; i += 97)
        if (s[i] != thread + 1) abort();
}

static void scratch_grows(void **state) {
    (void)state;
    pool *p;
    assert_int_equal(pool_open(&p, 3), ERR_OK);
    const size_t sizes[] = {1, 64, 4096, 4097, 1 << 20, 2 << 20, (2 << 20) + 1, 9 << 20};
    for (int t = 0; t < 3; t++) {
        unsigned char *before = NULL;
        size_t had = 0;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            unsigned char *s = pool_scratch(p, t, sizes[i]);
            assert_non_null(s);
            assert_int_equal((uintptr_t)s % 64, 0);
            if (s != before)
                for (size_t k = had; k < sizes[i]; k += 511) assert_int_equal(s[k], 0);
            memset(s, 0xff, sizes[i]);
            before = s, had = sizes[i];
        }
        assert_ptr_equal(pool_scratch(p, t, 100), before);  // never shrinks, never moves without need
    }
    unsigned char *shared = pool_shared(p, 5 << 20);
    assert_non_null(shared);
    memset(shared, 1, 5 << 20);
    assert_ptr_equal(pool_shared(p, 4 << 20), shared);
    assert_null(pool_shared(p, SIZE_MAX / 2));  // refused, and the pool lives on
    assert_non_null(pool_shared(p, 1 << 20));
    pool_run(p, 300, scratch_item, p);
    pool_close(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_once),
        cmocka_unit_test(jobs_follow_each_other),
        cmocka_unit_test(caller_waits_for_the_slow),
#if defined(__x86_64__)
        cmocka_unit_test(floating_point_mode),
#endif
        cmocka_unit_test(signals_are_the_callers),
        cmocka_unit_test(scratch_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
