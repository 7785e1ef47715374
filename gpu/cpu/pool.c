// gpu/cpu/pool.c: the threads of a CPU device.
//
// One idea: a job is a countdown. The caller writes task, ctx and items, then stores `items` into `left`; the thread
// that decrements `left` from a value r > 0 owns item items - r. A job's description cannot change before all its items
// are done, so a thread that owns one may read it without a lock. A thread that wakes late, after the job or in the
// middle of the next one, needs no special case: it finds r <= 0 and goes back to sleep, or it finds an item and does
// it. The caller waits for items, never for threads: a worker that the kernel has not scheduled delays nothing.
//
// A wait spins first, for at most 0.4 ms, and not at all when there are more threads than cores; then it uses a futex.
// The time covers what one step does between two large operations. A shorter one is costly where an idle core is slow
// to wake (a virtual machine's halts): with 40 us a small GPT's step took 18.6 ms on two threads of one, with 400 us
// 12.7 ms. Who spins lets others that are ready go first, so that on a shared machine nothing is taken from them: two
// threads beside other work need a fifth less of the processors.
#include "gpu/cpu/pool.h"

#include "base/thread.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 64, SPIN_NS = 400000, HUGE = 2 << 20 };

typedef struct block {  // grow-only memory; each on a cache line of its own, since threads write their own
    _Alignas(LINE) char *p;
    size_t bytes;
} block;

typedef struct worker {
    pool *owner;
    int index;
    pthread_t thread;
} worker;

struct pool {
    // The job. Written by the caller between jobs only.
    pool_task task;
    void *ctx;
    int64_t items;

    _Alignas(LINE) atomic_llong left;        // items not yet taken; goes below zero as threads find nothing
    _Alignas(LINE) atomic_llong unfinished;  // items not yet done
    _Alignas(LINE) atomic_uint job;          // futex: counts jobs, workers sleep on it
    atomic_int sleepers;                     // workers that sleep or are about to
    atomic_bool closing;
    _Alignas(LINE) atomic_uint finished;  // futex: counts finished jobs, the caller sleeps on it
    atomic_bool caller_sleeps;

    _Alignas(LINE) int threads;
    int64_t spin_ns;
    worker *workers;  // threads - 1
    block *scratch;   // threads
    block shared;
};

// --- floating-point mode ---------------------------------------------------------------------------------------------

// Round to nearest even, denormals kept, exceptions masked: what the bits of every result assume. A library that was
// loaded into the process (or a -ffast-math object in it) may have set something else on the caller's thread.
static inline void float_mode(void) {
#if defined(__x86_64__)
    unsigned csr = __builtin_ia32_stmxcsr();
    if ((csr & 0xffc0) != 0x1f80) __builtin_ia32_ldmxcsr(0x1f80);  // all but the sticky flags: FTZ, RC, masks, DAZ
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    // RMode (23:22), FZ (24), FZ16 (19), DN (25: default NaN) and the trap enables (15, 12:8) all zero.
    if (fpcr & 0x03c89f00u) __asm__ volatile("msr fpcr, %0" : : "r"(fpcr & ~(uint64_t)0x03c89f00u));
#endif
}

// --- waiting ---------------------------------------------------------------------------------------------------------

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_on(atomic_uint *word, unsigned seen) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);  // returns at once when *word != seen
}

static void wake(atomic_uint *word, int count) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0); }

// Spins until *word > 0 (want_work) or *word == 0, or the time is up. The clock is read every few pauses: their length
// differs by a factor of ten between processors.
static bool spin_until(const pool *p, atomic_llong *word, bool want_work) {
    int64_t until = 0;
    do {
        for (int i = 0; i < 16; i++) {
            long long v = atomic_load_explicit(word, memory_order_acquire);
            if (want_work ? v > 0 : v == 0) return true;
            relax();
        }
        if (!p->spin_ns) return false;
        if (!until) until = now_ns() + p->spin_ns;
        sched_yield();  // others that are ready come first
    } while (now_ns() < until);
    return false;
}

// --- work ------------------------------------------------------------------------------------------------------------

// Takes items until there are none. `unfinished` is lowered once, at the end: until then the job is not over.
static void take_items(pool *p, int thread) {
    int64_t done = 0;
    for (;;) {
        long long r = atomic_fetch_sub_explicit(&p->left, 1, memory_order_acquire);
        if (r <= 0) break;
        p->task(p->ctx, p->items - r, thread);
        done++;
    }
    if (done && atomic_fetch_sub(&p->unfinished, done) == done) {
        atomic_fetch_add(&p->finished, 1);
        if (atomic_load(&p->caller_sleeps)) wake(&p->finished, 1);
    }
}

static void *worker_main(void *arg) {
    worker *w = arg;
    pool *p = w->owner;
    float_mode();
    for (;;) {
        if (!spin_until(p, &p->left, true)) {
            atomic_fetch_add(&p->sleepers, 1);
            unsigned seen = atomic_load(&p->job);
            // A job started before `seen` was read is seen here; one started later changes the word that the kernel
            // compares.
            while (atomic_load(&p->left) <= 0 && !atomic_load(&p->closing) && atomic_load(&p->job) == seen)
                sleep_on(&p->job, seen);
            atomic_fetch_sub(&p->sleepers, 1);
        }
        if (atomic_load(&p->closing)) return NULL;
        take_items(p, w->index);
    }
}

static void wait_for_items(pool *p) {
    if (spin_until(p, &p->unfinished, false)) return;
    atomic_store(&p->caller_sleeps, true);
    for (;;) {
        unsigned seen = atomic_load(&p->finished);
        if (atomic_load(&p->unfinished) == 0) break;
        sleep_on(&p->finished, seen);
    }
    atomic_store(&p->caller_sleeps, false);
}

void pool_run(pool *p, int64_t items, pool_task task, void *ctx) {
    if (items <= 0) return;
    float_mode();
    if (items == 1 || p->threads == 1) {
        for (int64_t i = 0; i < items; i++) task(ctx, i, 0);
        return;
    }
    p->task = task;
    p->ctx = ctx;
    p->items = items;
    atomic_store_explicit(&p->unfinished, items, memory_order_relaxed);
    atomic_store(&p->left, items);
    atomic_fetch_add(&p->job, 1);
    int sleepers = atomic_load(&p->sleepers);
    if (sleepers) wake(&p->job, items - 1 < sleepers ? (int)(items - 1) : sleepers);
    take_items(p, 0);
    wait_for_items(p);
}

// --- memory ----------------------------------------------------------------------------------------------------------

// Fresh zero pages; from 2 MB on aligned for huge pages, which save most TLB misses.
static char *map_pages(size_t bytes) {
    size_t extra = bytes >= HUGE ? HUGE : 0;
    char *p = mmap(NULL, bytes + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (!extra) return p;
    size_t head = (size_t)(-(uintptr_t)p) & (HUGE - 1);
    if (head) munmap(p, head);
    if (extra - head) munmap(p + head + bytes, extra - head);
    madvise(p + head, bytes, MADV_HUGEPAGE);  // advice only
    return p + head;
}

static void *grow(block *b, size_t bytes) {
    if (bytes <= b->bytes) return b->p;
    size_t unit = bytes >= HUGE ? HUGE : 4096;
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t whole = (bytes + unit - 1) / unit * unit;
    if (b->p) munmap(b->p, b->bytes);  // before the new one, so that both need not fit
    b->p = map_pages(whole);
    b->bytes = b->p ? whole : 0;
    return b->p;
}

void *pool_scratch(pool *p, int thread, size_t bytes) {
    assert(thread >= 0 && thread < p->threads);
    return grow(&p->scratch[thread], bytes);
}

void *pool_shared(pool *p, size_t bytes) { return grow(&p->shared, bytes); }

// --- opening and closing ---------------------------------------------------------------------------------------------

int pool_threads(const pool *p) { return p->threads; }

static int cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

void pool_close(pool *p) {
    if (!p) return;
    atomic_store(&p->closing, true);
    atomic_fetch_add(&p->job, 1);
    wake(&p->job, p->threads);
    for (int i = 0; i < p->threads - 1; i++) pthread_join(p->workers[i].thread, NULL);
    for (int i = 0; i < p->threads; i++)
        if (p->scratch[i].p) munmap(p->scratch[i].p, p->scratch[i].bytes);
    if (p->shared.p) munmap(p->shared.p, p->shared.bytes);
    free(p->workers);
    free(p->scratch);
    free(p);
}

static err_t start_worker(pool *p, int i) {
    char name[16];
    snprintf(name, sizeof name, "lockstep/%d", i + 1);
    p->workers[i] = (worker){.owner = p, .index = i + 1};
    return thread_start(&p->workers[i].thread, name, worker_main, &p->workers[i]);
}

err_t pool_open(pool **out, int threads) {
    assert(threads >= 1);
    *out = NULL;
    pool *p = aligned_alloc(LINE, sizeof *p);
    if (p) memset(p, 0, sizeof *p);
    block *scratch = aligned_alloc(LINE, (size_t)threads * sizeof *scratch);
    worker *workers = calloc((size_t)threads, sizeof *workers);
    if (!p || !scratch || !workers) {
        free(p), free(scratch), free(workers);
        return err_set(ERR_INTERNAL, "no memory for a pool of %d threads", threads);
    }
    memset(scratch, 0, (size_t)threads * sizeof *scratch);
    p->scratch = scratch;
    p->workers = workers;
    p->spin_ns = threads <= cores() ? SPIN_NS : 0;
    float_mode();
    p->threads = 1;  // how many to join if the next start fails
    for (int i = 0; i < threads - 1; i++) {
        err_t e = start_worker(p, i);
        if (e != ERR_OK) {
            err_record why = *err_last();
            pool_close(p);
            return err_restore(&why);
        }
        p->threads = i + 2;
    }
    *out = p;
    return ERR_OK;
}
