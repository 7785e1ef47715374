// test/sim/race.cpp: who touched what, and was it ordered? Kernels are compiled with -fsanitize=thread, which calls
// __tsan_read4() and the like before every access; this file is what they call, in place of the sanitizer's own
// library.
//
// Happens-before, checked at every access against the last write and the last two readers of the same bytes:
//   threads      a barrier of the block orders everything before it with everything after it: barriers cut a block into
//                segments, which are numbered from the start of the program. __syncwarp orders the lanes of its mask (a
//                vector clock a lane)
//   blocks       of one grid are not ordered, but by an atomic: what a block did before __threadfence and an atomic
//                happened before what another block does after its own atomic on the same address
//   operations   of streams: op_before() of the host side. Copies and library calls touch ranges: kept by page, not by
//                byte
// Two atomics never race. Bytes written by cp.async are nobody's until it was waited for.
#include "test/sim/device.h"

#include <algorithm>
#include <elf.h>
#include <map>
#include <set>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern "C" const char __executable_start[], _end[];  // of the program's image

namespace simt {

bool race_on;
bool race_build() { return race_on; }

enum { OPERATION = THREADS };  // in place of a thread: the whole operation

// id, from its high bits on: segment (32 bits), thread (11), epoch (17), bytes (2: which of the cell's two), atomic,
// pending; 0: there was no access. It is one word and no bit fields: it is compared and stored whole, millions of times
// a second.
struct access {
    uint64_t id;
    uint32_t pc;  // from the start of the image
    uint32_t segment() const { return (uint32_t)(id >> 32); }
    uint32_t thread() const { return (uint32_t)(id >> 21) & 0x7ff; }
    uint32_t epoch() const { return (uint32_t)(id >> 4) & 0x1ffff; }
} __attribute__((packed, aligned(4)));
enum { BYTES = 12, ATOMIC_BIT = 2, PENDING = 1 };

static uint64_t mark_of(uint32_t thread, uint32_t epoch) {
    return (uint64_t)thread << 21 | (uint64_t)(epoch & 0x1ffff) << 4;
}

// A cell is of two bytes. Most accesses are of four or more: a word's two cells are equal until one of them is accessed
// alone, and until then only the first is kept.
struct cell {
    access write, read, read2;
};
struct word {
    cell low;
    uint32_t halves;
};  // halves: the second cell is kept on its own
struct shadow {
    word *words;
    cell *highs;
};

enum { CELL = 2, WORD = 4, PAGE = 1024 };
struct page {
    access write, read, read2;  // by operations that took all of it
    uint32_t after;             // operation, by its first segment, that comes after all three
    uint32_t valid_for;         // operation that knows that all of it is allocated
    bool cells;                 // has any cell been used since?
};

static shadow of_shared, of_arena;
static page *pages;

// --- time ------------------------------------------------------------------------------------------------------------

struct run {
    uint32_t first, op;
};  // from this segment on
static std::vector<run> runs;
static uint32_t segment, block_first, op_first;
// segments of an operation before this one: the last that was found to be one
static uint32_t before_first, before_count;
static uint32_t clocks[THREADS][LANES];  // what a lane knows of the lanes of its warp

struct span {
    uint32_t first, last;
    int thread;
};  // of a block, up to an atomic by this thread after a fence
static std::map<const void *, std::vector<span>> released;
static std::map<const void *, size_t> acquired;  // by the block that runs: how many of them

static void *lazy(size_t n) {
    void *p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("simulator: shadow memory");
        abort();
    }
    return p;
}

static shadow lazy_shadow(size_t n) {
    return {(word *)lazy((n / WORD + 1) * sizeof(word)), (cell *)lazy((n / WORD + 1) * sizeof(cell))};
}

static void operation_begins(uint32_t op) {
    if (!pages) {
        pages = (page *)lazy((arena_size / PAGE + 1) * sizeof(page));
        of_arena = lazy_shadow(arena_size);
        of_shared = lazy_shadow(SHARED_ROOM);
    }
    if (!runs.empty() && runs.back().op == op) return;
    op_first = block_first = ++segment;
    before_count = 0;
    runs.push_back({segment, op});
}

static uint32_t operation_of(uint32_t s) {
    auto next = std::upper_bound(runs.begin(), runs.end(), s, [](uint32_t v, const run &r) { return v < r.first; });
    return (next - 1)->op;
}

void race_grid(uint32_t op) {
    if (!race_on) return;
    operation_begins(op);
    released.clear();
}

void race_block() {
    if (!race_on) return;
    block_first = ++segment;
    acquired.clear();
    memset(clocks, 0, (size_t)block.threads * sizeof clocks[0]);
    for (int i = 0; i < block.threads; i++) {
        clocks[i][i % LANES] = 1;
        block.fibers[i].mark = mark_of((uint32_t)i, 1);
    }
}

void race_barrier() {
    if (race_on) segment++;
}

void race_meet(int warp, uint32_t mask) {
    if (!race_on) return;
    uint32_t all[LANES] = {}, (*lane)[LANES] = &clocks[warp * LANES];
    for (uint32_t m = mask; m; m &= m - 1)
        for (int i = 0; i < LANES; i++) all[i] = std::max(all[i], lane[__builtin_ctz(m)][i]);
    for (uint32_t m = mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        memcpy(lane[l], all, sizeof all);
        block.fibers[warp * LANES + l].mark = mark_of((uint32_t)(warp * LANES + l), ++lane[l][l]);
    }
}

// Is an access of an earlier operation ordered before this operation? The last few answers are kept.
static bool operation_ordered(uint32_t s) {
    static struct {
        uint32_t first, last, now;
        bool yes;
    } memo[8];
    static unsigned turn;
    for (auto &m : memo)
        if (m.now == op_first && s >= m.first && s < m.last) {
            if (m.yes) before_first = m.first, before_count = m.last - m.first;
            return m.yes;
        }
    auto next = std::upper_bound(runs.begin(), runs.end(), s, [](uint32_t v, const run &r) { return v < r.first; });
    bool yes = op_before((next - 1)->op, runs.back().op);
    memo[turn++ % 8] = {(next - 1)->first, next == runs.end() ? segment + 1 : next->first, op_first, yes};
    return yes;
}

// Has the block that runs met the block of this access at an atomic?
static bool block_ordered(const access &a) {
    for (const auto &met : acquired) {
        const std::vector<span> &list = released[met.first];
        auto end = list.begin() + (ptrdiff_t)met.second;
        auto next =
            std::upper_bound(list.begin(), end, a.segment(), [](uint32_t v, const span &s) { return v < s.first; });
        for (auto s = next; s != list.begin() && (s - 1)->first == (next - 1)->first; s--)
            if (a.segment() < (s - 1)->last || (a.segment() == (s - 1)->last && (int)a.thread() == (s - 1)->thread))
                return true;
    }
    return false;
}

static bool ordered(const access &then, const access &now) {
    if (!then.id) return true;
    if (then.segment() < op_first) return operation_ordered(then.segment());
    if (then.segment() < block_first) return block_ordered(then);
    if (then.segment() != now.segment() || then.thread() == now.thread()) return true;
    if (then.thread() == OPERATION || now.thread() == OPERATION) return true;
    return then.thread() / LANES == now.thread() / LANES && clocks[now.thread()][then.thread() % LANES] >= then.epoch();
}

// --- reports ---------------------------------------------------------------------------------------------------------

// "norm.cu:120", and the line that called it where it was inlined.
static std::string line_of(uint32_t pc) {
    static std::map<uint32_t, std::string> known;
    if (!pc) return "";
    auto old = known.find(pc);
    if (old != known.end()) return old->second;
    const Elf64_Ehdr *image = (const Elf64_Ehdr *)__executable_start;
    uint64_t address = pc - 1 + (image->e_type == ET_EXEC ? (uint64_t)image : 0);
    char command[100], line[1000];
    snprintf(command, sizeof command, "addr2line -i -e /proc/%d/exe 0x%llx 2>/dev/null", (int)getpid(),
             (unsigned long long)address);
    std::vector<std::string> frames;
    FILE *f = popen(command, "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, " \n")] = 0;
        const char *name = strrchr(line, '/');
        name = name ? name + 1 : line;
        if (strncmp(name, "simt.h:", 7)) frames.push_back(name);
    }
    if (f) pclose(f);
    std::string text = frames.empty() ? "?" : frames[0];
    if (frames.size() > 1 && frames.back() != text) text += " (from " + frames.back() + ")";
    return known[pc] = text;
}

static std::string position(const void *p) {
    if (in_shared(p)) return shared_near(p);
    char text[64];
    snprintf(text, sizeof text, "device memory +0x%zx", (size_t)((const char *)p - arena));
    return text;
}

static void describe(char *out, size_t room, const access &a, bool write) {
    const char *what = a.id & PENDING ? "cp.async" : a.id & ATOMIC_BIT ? "atomic" : write ? "write" : "read";
    std::string line = a.pc ? " at " + line_of(a.pc) : "";
    if (a.segment() < op_first)
        snprintf(out, room, "%s by operation '%s'%s", what, op_name(operation_of(a.segment())), line.c_str());
    else if (a.thread() == OPERATION) snprintf(out, room, "%s by operation '%s'", what, op_name(block.op));
    else
        snprintf(out, room, "%s by thread %u%s%s", what, a.thread(),
                 a.segment() < block_first ? " of another block" : "", line.c_str());
}

static void conflict(const access &then, bool then_write, const access &now, bool now_write, const void *p) {
    static std::set<std::pair<uint64_t, int>> known;
    int relation = then.id & PENDING ? 0 : then.segment() < op_first ? 1 : then.segment() < block_first ? 2 : 3;
    if (findings() == 0) known.clear();
    if (!known.insert({(uint64_t)then.pc << 32 | now.pc, relation * 4 + then_write * 2 + now_write}).second) return;
    static const char *why[] = {"the copy was not waited for", "no stream or event orders them",
                                "nothing orders blocks", "no barrier between"};
    char first[400], second[400];
    describe(first, sizeof first, then, then_write);
    if (now.thread() == OPERATION)
        snprintf(second, sizeof second, "%s by operation '%s'", now_write ? "write" : "read", op_name(runs.back().op));
    else describe(second, sizeof second, now, now_write);
    check_msg("race", "%s: %s, then %s: %s", position(p).c_str(), first, second, why[relation]);
}

// --- cells and pages -------------------------------------------------------------------------------------------------

// `a` is a write, or a read when now is a write.
static __attribute__((noinline)) void against_slow(const access &a, bool a_write, const access &now, bool now_write,
                                                   const void *p) {
    if (!(a.id & now.id & BYTES) || a.id == now.id) return;
    if (a.id & PENDING ? now.id & PENDING && a.thread() == now.thread()
                       : ordered(a, now) || (a.id & now.id & ATOMIC_BIT))
        return;
    conflict(a, a_write, now, now_write, p);
}

// Nearly all are of a segment before this one: of the block that runs, or of the operation that wrote what this one
// reads.
static inline __attribute__((always_inline)) void against(const access &a, bool a_write, const access &now,
                                                          bool now_write, const void *p) {
    uint32_t s = a.segment();
    if (!a.id || (!(a.id & PENDING) && (s - block_first < segment - block_first || s - before_first < before_count)))
        return;
    against_slow(a, a_write, now, now_write, p);
}

static inline void push_reader(access *read, access *read2, const access &now) {
    if ((read->id ^ now.id) >> 21) *read2 = *read;  // another segment or thread
    *read = now;
}

// now.id says which of the cell's bytes.
static inline __attribute__((always_inline)) void touch_cell(cell *c, const char *p, const access &now, bool write,
                                                             bool of_block) {
    if (!write && c->read.id == now.id) return;  // nothing new: a write since then would have removed that read
    if (of_block) {                              // what other blocks left
        uint64_t oldest = (uint64_t)block_first << 32;
        if (c->write.id < oldest) c->write.id = 0;
        if (c->read.id < oldest) c->read.id = 0;
        if (c->read2.id < oldest) c->read2.id = 0;
    }
    against(c->write, true, now, write, p);
    if (!write) return push_reader(&c->read, &c->read2, now);
    against(c->read, false, now, true, p);
    against(c->read2, false, now, true, p);
    c->write = now;
    if ((now.id & BYTES) == BYTES) c->read.id = c->read2.id = 0;  // what comes after this write comes after them
}

// The first or second cell of a word, from now on on its own.
static inline cell *half(shadow s, size_t cells) {
    word *w = &s.words[cells / 2];
    if (!w->halves) {
        s.highs[cells / 2] = w->low;
        w->halves = 1;
    }
    return cells % 2 ? &s.highs[cells / 2] : &w->low;
}

// At any address: by cells.
static __attribute__((noinline)) void touch_halves(shadow s, size_t offset, const char *p, size_t n, access now,
                                                   bool write, bool of_block) {
    uint64_t id = now.id;
    for (size_t at = offset, end = offset + n; at < end; at = (at | 1) + 1) {
        now.id = id | (at % 2 ? 2 << 2 : at + 1 == end ? 1 << 2 : BYTES);
        touch_cell(half(s, at / CELL), p + (at - offset), now, write, of_block);
    }
}

// Both cells of a word that are not equal; a write makes them equal.
static __attribute__((noinline)) void touch_both(word *w, cell *high, const char *p, const access &now, bool write,
                                                 bool of_block) {
    touch_cell(&w->low, p, now, write, of_block);
    touch_cell(high, p + CELL, now, write, of_block);
    if (write) w->halves = 0;
}

// `offset` of p from the start of what the shadow is of; words: this is whole ones.
static inline __attribute__((always_inline)) void touch_bytes(const shadow &s, size_t offset, const char *p, size_t n,
                                                              access now, bool write, bool of_block, bool words) {
    if (!words) return touch_halves(s, offset, p, n, now, write, of_block);
    now.id |= BYTES;
    for (size_t i = 0; i < n / WORD; i++) {
        word *w = &s.words[offset / WORD + i];
        if (w->halves) touch_both(w, &s.highs[offset / WORD + i], p + i * WORD, now, write, of_block);
        else touch_cell(&w->low, p + i * WORD, now, write, of_block);
    }
}

static void touch_page(page *g, const char *p, access now, bool write) {
    if (g->after == op_first) return;
    now.id |= BYTES;
    against(g->write, true, now, write, p);
    if (write) {
        against(g->read, false, now, true, p);
        against(g->read2, false, now, true, p);
    }
    if (ordered(g->write, now) && ordered(g->read, now) && ordered(g->read2, now)) g->after = op_first;
}

static inline __attribute__((always_inline)) void touch_arena(const char *p, size_t n, const access &now, bool write,
                                                              bool words) {
    page *g = &pages[(p - arena) / PAGE];
    for (page *e = &pages[(p + n - 1 - arena) / PAGE]; g <= e; g++) {
        if (g->after != op_first) touch_page(g, p, now, write);
        g->cells = true;
    }
    touch_bytes(of_arena, (size_t)(p - arena), p, n, now, write, false, words);
}

// All of a page by one operation.
static void take_page(page *g, access now, bool write) {
    const char *p = arena + (g - pages) * PAGE;
    size_t first = (size_t)(p - arena) / WORD;
    now.id |= BYTES;
    touch_page(g, p, now, write);
    for (size_t i = 0; g->cells && i < PAGE / CELL; i++) {
        const word *w = &of_arena.words[first + i / 2];
        if (i % 2 && !w->halves) continue;
        const cell *c = i % 2 ? &of_arena.highs[first + i / 2] : &w->low;
        against(c->write, true, now, write, p + i * CELL);
        if (!write) continue;
        against(c->read, false, now, true, p + i * CELL);
        against(c->read2, false, now, true, p + i * CELL);
    }
    g->after = 0;
    if (!write) return push_reader(&g->read, &g->read2, now);
    if (g->cells) memset((void *)&of_arena.words[first], 0, PAGE / WORD * sizeof(word));
    *g = {};
    g->write = now;
}

void range_access(uint32_t op, const void *start, size_t n, bool write) {
    const char *p = (const char *)start, *end = p + n;
    if (!race_on || p < arena || p >= arena_end || n == 0) return;
    operation_begins(op);
    access now = {(uint64_t)segment << 32 | mark_of(OPERATION, 0), 0};
    while (p < end) {
        size_t step = std::min((size_t)(end - p), PAGE - (size_t)(p - arena) % PAGE);
        if (step == PAGE) take_page(&pages[(p - arena) / PAGE], now, write);
        else touch_arena(p, step, now, write, ((uintptr_t)p | step) % WORD == 0);
        p += step;
    }
}

void range_forget(const void *start, size_t n) {
    const char *p = (const char *)start, *end = p + n;
    if (!race_on || !pages || p < arena || p >= arena_end) return;
    while (p < end) {
        size_t step = std::min((size_t)(end - p), PAGE - (size_t)(p - arena) % PAGE);
        page *g = &pages[(p - arena) / PAGE];
        size_t first = (size_t)(p - arena) / CELL, last = ((size_t)(p - arena) + step + CELL - 1) / CELL;
        for (size_t i = first; g->cells && i < last; i++) {
            if (i % 2 == 0 && i + 1 < last) of_arena.words[i++ / 2] = {};
            else *half(of_arena, i) = {};
        }
        if (step == PAGE) *g = {};
        p += step;
    }
}

// --- accesses of kernels ---------------------------------------------------------------------------------------------

static uint32_t image_offset(const void *pc) { return (uint32_t)((const char *)pc - __executable_start); }

// May the kernel touch these bytes at all?
static bool in_bounds(const char *p, size_t n, bool write, const void *pc) {
    char why[200];
    const char *verb = write ? "write" : "read";
    if (in_shared(p)) {
        if (shared_name(p, n)) return true;
        check_msg("shared-bounds", "%s of %zu bytes at %s: %s", verb, n, line_of(image_offset(pc)).c_str(),
                  ("at " + shared_near(p)).c_str());
        return false;
    }
    page *g = p >= arena && p < arena_end ? &pages[(p - arena) / PAGE] : nullptr;
    if (g && g->valid_for == block.op && (p - arena) % PAGE + n <= PAGE) return true;
    if (g && g->valid_for != block.op && mem_class(arena + (g - pages) * PAGE, PAGE, write, why, sizeof why) == 0)
        g->valid_for = block.op;
    if (mem_class(p, n, write, why, sizeof why) == 0) return true;
    check_msg("memory", "%s of %zu bytes at %s: %s", verb, n, line_of(image_offset(pc)).c_str(), why);
    return false;
}

static inline __attribute__((always_inline)) void touch(const fiber *f, const void *start, size_t n, bool write,
                                                        uint64_t flags, const void *pc, bool words) {
    const char *p = (const char *)start;
    access now = {(uint64_t)segment << 32 | f->mark | flags, image_offset(pc)};
    size_t at = shared_offset(p);
    if (at < SHARED_ROOM) {
        stats.checked++;
        if ((at >= near_begin && at + n <= near_end) || in_bounds(p, n, write, pc))
            touch_bytes(of_shared, at, p, n, now, write, true, words);
        return;
    }
    // local
    if ((uintptr_t)p - (uintptr_t)f->stack < STACK) return;
    // constants, threadIdx
    if ((uintptr_t)p - (uintptr_t)__executable_start < (uintptr_t)_end - (uintptr_t)__executable_start) return;
    stats.checked++;
    if (in_bounds(p, n, write, pc) && p >= arena && p < arena_end) touch_arena(p, n, now, write, words);
}

static __attribute__((noinline)) void touch_any(const fiber *f, const void *p, size_t n, bool write, uint64_t flags,
                                                const void *pc) {
    touch(f, p, n, write, flags, pc, ((uintptr_t)p | n) % WORD == 0);
}

void race_access(const fiber *f, const void *p, size_t n, bool write, const void *pc) {
    if (race_on) touch_any(f, p, n, write, 0, pc);
}
void race_copy_issued(const fiber *f, const async_copy *c, const void *pc) {
    if (!race_on) return;
    touch_any(f, c->to, (size_t)c->bytes, true, PENDING, pc);
    if (c->read) touch_any(f, c->from, (size_t)c->read, false, 0, pc);
}
static void write_is_done(access *w, const fiber *f) {
    w->id = (uint64_t)segment << 32 | mark_of(w->thread(), (uint32_t)(f->mark >> 4)) | (w->id & (BYTES | ATOMIC_BIT));
}
void race_copy_done(const fiber *f, const async_copy *c) {
    if (!race_on) return;
    for (size_t i = shared_offset(c->to) / WORD, end = i + (size_t)c->bytes / WORD; i < end; i++) {
        write_is_done(&of_shared.words[i].low.write, f);
        if (of_shared.words[i].halves) write_is_done(&of_shared.highs[i].write, f);
    }
}

// An atomic access: it may hand over what the block did, and take over what others did.
void atomic_touch(const void *p, size_t n, const void *pc) {
    if (!race_on || !running) return;
    touch_any(running, p, n, true, ATOMIC_BIT, pc);
    if (in_shared(p)) return;
    auto list = released.find(p);
    if (list != released.end()) acquired[p] = list->second.size();
    if (running->fenced) released[p].push_back({block_first, segment, running->index});
}

static __attribute__((noinline)) void misaligned(const void *p, size_t n, bool write, const void *pc) {
    check_msg("misaligned", "%s of %zu bytes at %s: address %p", write ? "write" : "read", n,
              line_of(image_offset(pc)).c_str(), p);
}

static inline __attribute__((always_inline)) void plain(const void *p, size_t n, bool write, bool aligned,
                                                        const void *pc) {
    const fiber *f = running;
    if (!f) return;
    if (aligned && n > 1 && (uintptr_t)p % n) misaligned(p, n, write, pc);
    else if (aligned) return touch(f, p, n, write, 0, pc, n >= WORD);  // of a size that the compiler knows
    touch_any(f, p, n, write, 0, pc);
}

}  // namespace simt

// --- what the compiler calls -----------------------------------------------------------------------------------------

// clang-format off
#define ACCESS(n)                                                                                                                     \
    void __tsan_read##n(void *p) { simt::plain(p, n, false, true, __builtin_return_address(0)); }                                     \
    void __tsan_write##n(void *p) { simt::plain(p, n, true, true, __builtin_return_address(0)); }                                     \
    void __tsan_unaligned_read##n(void *p) { simt::plain(p, n, false, false, __builtin_return_address(0)); }                          \
    void __tsan_unaligned_write##n(void *p) { simt::plain(p, n, true, false, __builtin_return_address(0)); }
#define ATOMIC(bits, T)                                                                                                               \
    T __tsan_atomic##bits##_load(const volatile T *p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }                           \
    void __tsan_atomic##bits##_store(volatile T *p, T v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }                           \
    T __tsan_atomic##bits##_fetch_add(volatile T *p, T v, int) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
extern "C" {
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
void __tsan_read_range(void *p, size_t n) { simt::plain(p, n, false, false, __builtin_return_address(0)); }
void __tsan_write_range(void *p, size_t n) { simt::plain(p, n, true, false, __builtin_return_address(0)); }
void __tsan_vptr_update(void **, void *) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_init() { simt::race_on = true; }
ATOMIC(8, char) ATOMIC(32, int) ATOMIC(64, long)  // of the C++ library, in host code of the same files
// clang-format on

#if !SIM_ASAN  // with -fsanitize=alignment: an access that its type does not allow
    struct sanitizer_place {
    const char *file;
    uint32_t line, column;
};
struct mismatch {
    sanitizer_place at;
    const void *type;
    unsigned char log_alignment, kind;
};
void __ubsan_handle_type_mismatch_v1(mismatch *m, uintptr_t p) {
    if (!simt::running) return;
    const char *name = strrchr(m->at.file, '/');
    simt::check_msg("misaligned", "access at %s:%u: address %p is not aligned to %d bytes",
                    name ? name + 1 : m->at.file, m->at.line, (void *)p, 1 << m->log_alignment);
}
#endif
}
