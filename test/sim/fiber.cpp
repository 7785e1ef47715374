// test/sim/fiber.cpp: threads of a block as fibers: stacks, the switch between them, and the order in which they run.
//
// A thread gets a stack when it first runs, and a thread that ends without ever waiting hands its stack on to the next
// one without any switch: a kernel that never synchronises costs a function call a thread.
#include "test/sim/device.h"

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

namespace simt {

__thread fiber *running;
uint3 thread_index;

// --- the switch ------------------------------------------------------------------------------------------------------

// Saves the registers that a call must keep, and the stack pointer in *save; continues where `load` was saved.
extern "C" void simt_switch(void **save, void *load);
#if defined(__x86_64__)
enum { SAVED = 6 };
asm(R"(
.text
.globl simt_switch
.type simt_switch,@function
simt_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp,(%rdi)
    movq %rsi,%rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size simt_switch,.-simt_switch
)");
#else
#error "the simulator needs a stack switch for this processor"
#endif

static void *host_sp;  // of run_fibers() while fibers run
#if SIM_ASAN
static void *host_fake;
static const void *host_stack;
static size_t host_bytes;
static bool from_host;
#endif

// What the sanitizer must know: before leaving a stack, and on arriving on one.
static void leaving(fiber *from, fiber *to, bool for_good) {
#if SIM_ASAN
    from_host = !from;
    void **fake = for_good ? nullptr : from ? &from->fake : &host_fake;
    __sanitizer_start_switch_fiber(fake, to ? to->stack : host_stack, to ? STACK : host_bytes);
#else
    (void)from, (void)to, (void)for_good;
#endif
}
static void arrived(void *fake) {
#if SIM_ASAN
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fake, &bottom, &bytes);
    if (from_host) host_stack = bottom, host_bytes = bytes;
#else
    (void)fake;
#endif
}

// --- stacks ----------------------------------------------------------------------------------------------------------

enum { GUARD = 4096 };
static std::vector<char *> unused;  // stacks

static char *take_stack() {
    if (unused.empty()) {
        char *p = (char *)mmap(nullptr, GUARD + STACK, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED || mprotect(p, GUARD, PROT_NONE)) {
            perror("simulator: stack of a thread");
            abort();
        }
        return p + GUARD;
    }
    char *p = unused.back();
    unused.pop_back();
    return p;
}

static void fiber_main();

// A first frame that the switch returns into. The tops of the stacks are staggered so that they do not all fall into
// the same cache sets.
static void give_stack(fiber *f) {
    f->started = true;
    f->stack = take_stack();
    UNPOISON(f->stack, STACK);  // frames that were left for good
    void **sp = (void **)((uintptr_t)(f->stack + STACK - 64 - f->index * 192 % 3072) & ~(uintptr_t)15);
    *--sp = nullptr;
    *--sp = (void *)fiber_main;
    for (int i = 0; i < SAVED; i++) *--sp = nullptr;
    f->sp = sp;
}

// --- order -----------------------------------------------------------------------------------------------------------

enum policy { FIRST, LAST, ANY };
static policy pick;
static fiber *queue[THREADS];  // ring of those that can run
static unsigned head, length;

void fibers_begin() {
    head = length = 0;
    // at random: level, one warp far ahead, or anything
    pick = seed() == 0 ? FIRST : seed() == 1 ? LAST : (policy)(rnd() % 3);
}

void make_ready(fiber *f) {
    f->waits = RUNS;
    queue[(head + length++) % THREADS] = f;
}

static fiber *next() {
    if (pick == LAST) return queue[(head + --length) % THREADS];
    if (pick == ANY && length > 1) std::swap(queue[head], queue[(head + ((rnd() >> 32) * length >> 32)) % THREADS]);
    fiber *f = queue[head];
    head = (head + 1) % THREADS;
    length--;
    return f;
}

// --- running ---------------------------------------------------------------------------------------------------------

static void switch_to(fiber *to, bool for_good) {  // null: the host
    fiber *me = running;
    stats.switches++;
    running = to;
    if (to) {
        thread_index = to->tid;
        if (!to->started) give_stack(to);
    }
    leaving(me, to, for_good);
    simt_switch(me ? &me->sp : &host_sp, to ? to->sp : host_sp);
#if SIM_ASAN
    arrived(me ? me->fake : host_fake);
#endif
}

void give_way() {
    if (!length) return switch_to(nullptr, false);  // nobody can run: the host finds out why
    fiber *f = next();
    if (f != running) switch_to(f, false);
}

static void fiber_main() {
    arrived(nullptr);
    for (;;) {
        block.body->call(block.body->args.get());
        fiber *me = running;
        me->done = true;
        thread_ends(me);
        fiber *f = length ? next() : nullptr;
        if (!f || f->started) {
            unused.push_back(me->stack);  // nobody takes it before the switch has left it
            switch_to(f, true);
        }
        f->started = true;
        f->stack = me->stack;
        running = f;
        thread_index = f->tid;
    }
}

void run_fibers() {
    if (length) switch_to(next(), false);
}

void abandon_fibers() {
    for (int i = 0; i < block.threads; i++) {
        fiber *f = &block.fibers[i];
        if (f->started && !f->done) unused.push_back(f->stack);
    }
}

}  // namespace simt
