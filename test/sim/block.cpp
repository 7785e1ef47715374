// test/sim/block.cpp: a grid's blocks, one after another in an order that the seed decides; the block barrier; shared
// memory.
//
// Barriers are strict: every thread of the block must come to the same __syncthreads. Hardware forgives threads that
// have ended and barriers of another line; a kernel that needs this cannot be read, so both are findings.
#include "test/sim/device.h"

#include <map>
#include <numeric>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

namespace simt {

block_state block;
uint3 block_index;
dim3 block_size, grid_size;

// --- shared memory ---------------------------------------------------------------------------------------------------
//
// Every array lies between red zones and begins as NaN in every block. Its address has the alignment that the hardware
// promises and no more: 16 bytes for static arrays, 128 for the dynamic one.

enum { RED_ZONE = 64 };

struct shared_array {
    const void *key;
    const char *name;
    place at;
    size_t begin, end;
};

char *shared;
size_t near_begin, near_end;
static std::vector<shared_array> arrays;
static size_t used, static_bytes;

const char *shared_name(const void *p, size_t n) {
    size_t at = (size_t)((const char *)p - shared);
    for (const shared_array &a : arrays)
        if (at >= a.begin && at + n <= a.end) return near_begin = a.begin, near_end = a.end, a.name;
    return nullptr;
}

std::string shared_near(const void *p) {
    const shared_array *near = nullptr;
    size_t at = (size_t)((const char *)p - shared);
    for (const shared_array &a : arrays)
        if (!near || (a.begin <= at && a.begin > near->begin)) near = &a;
    if (!near) return "shared memory of a kernel that has none";
    char text[200];
    snprintf(text, sizeof text, "%s%+zd (%zu bytes)", near->name, (ssize_t)(at - near->begin), near->end - near->begin);
    return text;
}

static void *shared_array_new(const void *key, const char *name, place at, size_t bytes, size_t align) {
    size_t begin = (used + RED_ZONE + 2 * align - 1) / (2 * align) * (2 * align) + align;
    if (begin + bytes + RED_ZONE > SHARED_ROOM) {
        fprintf(stderr, "simulator: kernel %s: %zu bytes for %s at %s:%d: shared memory ends\n", block.kernel, bytes,
                name, at.file, at.line);
        abort();
    }
    if (SIM_ASAN) UNPOISON(shared + begin, bytes);
    memset(shared + (SIM_ASAN ? begin : begin - RED_ZONE), 0xFF, SIM_ASAN ? bytes : bytes + 2 * RED_ZONE);
    arrays.push_back({key, name, at, begin, begin + bytes});
    used = begin + bytes;
    if (static_bytes + block.shared > block.most)
        check_msg("shared-size", "%zu bytes of static and %zu of dynamic shared memory, %zu at most", static_bytes,
                  block.shared, block.most);
    return shared + begin;
}

void *static_shared(const void *key, const char *name, const char *file, int line, size_t bytes) {
    for (const shared_array &a : arrays)
        if (a.key == key) return shared + a.begin;
    static_bytes += bytes;
    if (static_bytes > SHARED_STATIC)
        check_msg("shared-size", "%zu bytes of static shared memory, %d at most", static_bytes, (int)SHARED_STATIC);
    return shared_array_new(key, name, {file, line}, bytes, 16);
}

void *dynamic_shared(const char *name, const char *file, int line) {
    for (const shared_array &a : arrays)
        if (!a.key) return shared + a.begin;
    return shared_array_new(nullptr, name, {file, line}, block.shared, 128);
}

static bool untouched(size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        if ((unsigned char)shared[i] != 0xFF) return false;
    return true;
}

static void shared_begin() {
    if (!shared) {
        shared = (char *)mmap(nullptr, SHARED_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED) {
            perror("simulator: shared memory");
            abort();
        }
        POISON(shared, SHARED_ROOM);
    }
    arrays.clear();
    used = static_bytes = near_begin = near_end = 0;
}

// In a plain build, writes a little past an array are seen here, when the block has ended; the other builds see the
// access itself.
static void shared_end() {
    for (const shared_array &a : arrays) {
        if (SIM_ASAN) POISON(shared + a.begin, a.end - a.begin);
        else if (race_on) continue;
        else if (!untouched(a.begin - RED_ZONE, a.begin) || !untouched(a.end, a.end + RED_ZONE))
            check_msg("shared-bounds", "kernel %s wrote past the bounds of %s (%s:%d)", block.kernel, a.name, a.at.file,
                      a.at.line);
    }
}

// --- barrier ---------------------------------------------------------------------------------------------------------

static void barrier_try() {
    barrier_state *b = &block.barrier;
    if (!b->arrived || b->arrived < block.live) return;
    if (block.live < block.threads)
        check_msg("barrier", "%d threads meet at %s:%d after %d have ended", block.live, b->at.file, b->at.line,
                  block.threads - block.live);
    b->result_any = b->any, b->result_all = b->all, b->result_count = b->count;
    b->any = b->count = 0;
    b->all = 1;
    b->arrived = 0;
    stats.barriers++;
    race_barrier();
    for (int i = 0; i < block.threads; i++)
        if (!block.fibers[i].done && block.fibers[i].waits == AT_BARRIER) make_ready(&block.fibers[i]);
}

void syncthreads(const char *file, int line) {
    fiber *me = running;
    barrier_state *b = &block.barrier;
    if (b->arrived && (b->at.line != line || (b->at.file != file && strcmp(b->at.file, file))))
        check_msg("barrier", "threads of one block meet at different barriers: %s:%d and %s:%d", b->at.file, b->at.line,
                  file, line);
    b->at = me->at = {file, line};
    b->arrived++;
    me->waits = AT_BARRIER;
    barrier_try();
    give_way();
}

static void syncthreads_vote(int predicate, const char *file, int line) {
    block.barrier.any |= !!predicate;
    block.barrier.all &= !!predicate;
    block.barrier.count += !!predicate;
    syncthreads(file, line);
}
int syncthreads_or(int predicate, const char *file, int line) {
    return syncthreads_vote(predicate, file, line), block.barrier.result_any;
}
int syncthreads_and(int predicate, const char *file, int line) {
    return syncthreads_vote(predicate, file, line), block.barrier.result_all;
}
int syncthreads_count(int predicate, const char *file, int line) {
    return syncthreads_vote(predicate, file, line), block.barrier.result_count;
}

void threadfence() { running->fenced = true; }

// --- blocks ----------------------------------------------------------------------------------------------------------

void thread_ends(fiber *f) {
    if (!f->copies.empty()) {
        check_msg("cp.async", "thread ends with %zu copies never waited for, the first from %s:%d", f->copies.size(),
                  f->copies[0].at.file, f->copies[0].at.line);
        f->copies.clear();
    }
    block.live--;
    lane_ends(f);
    barrier_try();
}

static void deadlock() {
    std::map<std::string, int> waiting;
    for (int i = 0; i < block.threads; i++) {
        const fiber *f = &block.fibers[i];
        if (f->done) continue;
        char text[300];
        snprintf(text, sizeof text, "%s at %s:%d", f->waits == AT_BARRIER ? "__syncthreads" : "a warp operation",
                 f->at.file, f->at.line);
        waiting[text]++;
    }
    std::string list;
    for (const auto &w : waiting) list += std::to_string(w.second) + " wait in " + w.first + ", ";
    check_msg("deadlock", "kernel %s, block (%u,%u,%u), seed %llu: %s%d have ended", block.kernel, block_index.x,
              block_index.y, block_index.z, (unsigned long long)seed(), list.c_str(), block.threads - block.live);
    abandon_fibers();
}

static void threads_begin() {
    int n = block.live = block.threads;
    stats.threads += (uint64_t)n;
    memset(block.warps, 0, sizeof block.warps);
    fiber *order[THREADS];
    for (int i = 0; i < n; i++) {
        fiber *f = order[i] = &block.fibers[i];
        unsigned u = (unsigned)i;
        f->index = i, f->warp = i / LANES, f->lane = i % LANES;
        f->tid = {u % block_size.x, u / block_size.x % block_size.y, u / block_size.x / block_size.y};
        f->started = f->done = f->fenced = false;
        f->group = 0;
        f->copies.clear();
        block.warps[f->warp].exist |= 1u << f->lane;
    }
    fibers_begin();
    if (seed() >= 2)
        for (int i = n - 1; i > 0; i--) std::swap(order[i], order[rnd() % (unsigned)(i + 1)]);
    for (int i = 0; i < n; i++) make_ready(order[i]);
}

static bool run_block(uint64_t index) {
    block_index = {(unsigned)(index % grid_size.x), (unsigned)(index / grid_size.x % grid_size.y),
                   (unsigned)(index / grid_size.x / grid_size.y)};
    block.barrier = {};
    block.barrier.all = 1;
    stats.blocks++;
    shared_begin();
    race_block();
    threads_begin();
    run_fibers();
    if (block.live) deadlock();
    shared_end();
    return block.live == 0;
}

void run_grid(const char *name, uint32_t op, dim3 grid, dim3 size, size_t dynamic, const Body &body, size_t most) {
    block.kernel = name, block.op = op, block.body = &body;
    block.threads = (int)(size.x * size.y * size.z);
    block.shared = dynamic, block.most = most;
    block_size = size, grid_size = grid;
    race_grid(op);
    // Random order: index -> (index * factor + start) mod blocks, a permutation where factor and blocks have no common
    // divisor.
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z, factor = 1, start = 0;
    if (seed() >= 2 && blocks > 1) {
        do factor = 1 + rnd() % blocks;
        while (std::gcd(factor, blocks) != 1);
        start = rnd() % blocks;
    }
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t index = seed() == 1 ? blocks - 1 - i : (uint64_t)(((unsigned __int128)i * factor + start) % blocks);
        if (!run_block(index)) break;
    }
}

}  // namespace simt
