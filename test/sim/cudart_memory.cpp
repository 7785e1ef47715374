// test/sim/cudart_memory.cpp: the device's memory. An arena at a fixed address, the lower part for the device, the
// upper one for pinned memory.
//
//   protection  Host code cannot touch device memory: while an operation runs it is made accessible, chunk by chunk as
//               the operation touches it, and closed before the call returns
//   contents    Fresh memory is all ones (a NaN in every floating type): a private mapping of one small file, so that
//               nothing is written
//   borders     A block ends where its last page does, but for the alignment of 256 bytes; after it is a page that
//               belongs to nobody. An operation that touches it, or memory that was freed, is reported and reads NaN.
//               What is nearer only the race build sees
//   addresses   are used again only when there are no more of them
//   pinned      is in the arena so that races on it are found as on device memory. A source that the host changes while
//               its copy is queued is found by a sum over its bytes
#include "test/sim/cudart.h"

#include <algorithm>
#include <map>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define POISON(p, n) __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define POISON(p, n) (void)(p), (void)(n)
#define UNPOISON(p, n) (void)(p), (void)(n)
#endif

extern "C" char __executable_start, _end;  // of the program: its constants and variables

namespace simt {

char *arena, *arena_end;
size_t arena_size = (size_t)64 << 30;

static char *const ARENA_AT = (char *)0x200000000000;
enum : size_t { PAGE = 4096, ALIGN = 256, PATTERN = 4 << 20, CHUNK = 256 << 10 };

struct Block {
    size_t bytes;
    char *base, *end;
    bool live;
    int number;
};  // base and end are of whole pages
typedef std::map<char *, Block> Blocks;

static struct Memory {
    Blocks *blocks;                                   // by address, freed ones too
    std::map<char *, char *> *spans;                  // base and end of the device's blocks that are not freed
    std::vector<std::pair<char *, char *>> *touched;  // chunks of them that are accessible now
    std::map<char *, size_t> *foreign;                // host memory that was registered
    std::vector<char *> *patched;                     // pages that nobody owns, opened for an operation that went there
    std::vector<std::pair<char *, size_t>> *targets;  // of copies to pinned memory
    char *top, *pinned, *pinned_top;                  // the first address never used; where pinned memory begins
    size_t used, limit;
    int pattern, number;
    bool open;
    pthread_t opened_by;
    struct sigaction before, outside;  // what handled faults before this did; while no operation runs
} mem;

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }
static bool in_arena(const void *p) { return arena && (const char *)p >= arena && (const char *)p < arena_end; }
bool is_device(const void *p) { return in_arena(p) && (const char *)p < mem.pinned; }

static bool is_pinned(const void *p) {
    if (in_arena(p)) return !is_device(p);
    if (!mem.foreign) return false;
    auto it = mem.foreign->upper_bound((char *)p);
    if (it == mem.foreign->begin()) return false;
    --it;
    return (const char *)p < it->first + it->second;
}

// The block at or before p.
static const Blocks::value_type *block_before(const void *p) {
    auto it = mem.blocks->upper_bound((char *)p);
    return it == mem.blocks->begin() ? nullptr : &*--it;
}

static void describe(const void *p, size_t n, char *why, size_t room) {
    const Blocks::value_type *b = block_before(p);
    const char *last = (const char *)p + n;
    const char *what = is_device(p) ? "device" : "pinned";
    if (!b) snprintf(why, room, "outside every %s allocation", what);
    else if (!b->second.live && last <= b->first + b->second.bytes)
        snprintf(why, room, "in %s allocation %d (%zu bytes), which was freed", what, b->second.number,
                 b->second.bytes);
    else
        snprintf(why, room, "%zu bytes past the end of %s allocation %d (%zu bytes)",
                 (size_t)(last - b->first) - b->second.bytes, what, b->second.number, b->second.bytes);
}

int mem_class(const void *p, size_t n, bool write, char *why, size_t room) {
    (void)write;
    if (in_arena(p)) {
        const Blocks::value_type *b = block_before(p);
        if (b && b->second.live && (const char *)p + n <= b->first + b->second.bytes) return 0;
        describe(p, n, why, room);
        return 1;
    }
    const char *a = (const char *)p;
    if (is_pinned(p) || (a >= &__executable_start && a < &_end)) return 0;
    snprintf(why, room, "pageable host memory used by a kernel");
    return 1;
}

// --- access ----------------------------------------------------------------------------------------------------------

static void on_fault(int sig, siginfo_t *info, void *context);

static struct sigaction handle_faults() {
    struct sigaction before, a = {};
    a.sa_sigaction = on_fault;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &a, &before);
    return before;
}

// cmocka has a handler of its own while a test runs.
void open_device() {
    if (mem.open) return;
    mem.outside = handle_faults();
    if (mem.outside.sa_sigaction != on_fault) mem.before = mem.outside;
    mem.open = true;
    mem.opened_by = pthread_self();
}

// The chunk of a block that p lies in is made accessible. False: it lies in none.
static bool open_chunk(char *p) {
    auto it = mem.spans->upper_bound(p);
    if (it == mem.spans->begin() || p >= (--it)->second) return false;
    char *from = it->first + (size_t)(p - it->first) / CHUNK * CHUNK, *to = std::min(from + CHUNK, it->second);
    if (mprotect(from, (size_t)(to - from), PROT_READ | PROT_WRITE)) return false;
    mem.touched->push_back({from, to});
    return true;
}

void open_range(const void *p, size_t n) {
    for (char *at = (char *)p, *end = at + n; at < end && open_chunk(at);) at = mem.touched->back().second;
}

static void unmap(char *base, char *end) {
    mmap(base, (size_t)(end - base), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void close_device() {
    if (!mem.open) return;
    for (auto &c : *mem.touched) mprotect(c.first, (size_t)(c.second - c.first), PROT_NONE);
    mem.touched->clear();
    sigaction(SIGSEGV, &mem.outside, nullptr);
    for (char *p : *mem.patched) unmap(p, p + PAGE);
    mem.patched->clear();
    mem.open = false;
}

static bool map_pattern(char *base, char *end, int how) {
    for (char *p = base; p < end; p += PATTERN) {
        size_t n = (size_t)(end - p) < PATTERN ? (size_t)(end - p) : (size_t)PATTERN;
        if (mmap(p, n, how, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, mem.pattern, 0) == MAP_FAILED) return false;
    }
    return true;
}

// An operation comes here once for each chunk of memory that it touches. A bad address of it is reported, and reads
// NaN. One of the host's ends the process, as do all others: by the handler that was there.
static void on_fault(int sig, siginfo_t *info, void *context) {
    (void)context;
    char *at = (char *)info->si_addr, why[200];
    bool by_device = mem.open && pthread_equal(mem.opened_by, pthread_self());
    if (by_device && in_arena(at) && open_chunk(at)) return;
    if (in_arena(at)) {
        describe(at, 1, why, sizeof why);
        const Blocks::value_type *b = block_before(at);
        bool owned = b && b->second.live && at < b->first + b->second.bytes;
        if (by_device && !owned) {
            char *page = (char *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1));
            check_msg("memory", "%s touches %p, %s", host().running ? op_name(host().running) : "an operation",
                      (void *)at, why);
            if (map_pattern(page, page + PAGE, PROT_READ | PROT_WRITE)) {
                mem.patched->push_back(page);
                return;
            }
        }
        if (owned) {
            size_t byte = (size_t)(at - b->first);
            snprintf(why, sizeof why, "byte %zu of device allocation %d (%zu bytes)", byte, b->second.number,
                     b->second.bytes);
        }
        check_msg("host-deref", "host code touches memory that is not its own at %p, %s", (void *)at, why);
    } else if (by_device && host().running) {
        fprintf(stderr, "simulator: %s touches %p, which is no memory (a wild pointer, or a thread's stack is full)\n",
                op_name(host().running), (void *)at);
    }
    sigaction(sig, &mem.before, nullptr);  // and again
}

void thread_stack() {
    enum : size_t { ROOM = 256 << 10 };
    stack_t s = {};
    s.ss_size = ROOM;
    s.ss_sp = mmap(nullptr, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s.ss_sp != MAP_FAILED) sigaltstack(&s, nullptr);
}

static void fatal(const char *what) {
    perror(what);
    abort();
}

static void make_pattern() {
    static char ones[1 << 16];
    memset(ones, 0xFF, sizeof ones);
    mem.pattern = memfd_create("simulated-device-memory", MFD_CLOEXEC);
    if (mem.pattern < 0) fatal("memfd_create");
    for (size_t n = 0; n < PATTERN; n += sizeof ones)
        if (write(mem.pattern, ones, sizeof ones) != (ssize_t)sizeof ones) fatal("write");
}

void open_arena() {
    if (arena) return;
    mem.blocks = new Blocks;
    mem.spans = new std::map<char *, char *>;
    mem.touched = new std::vector<std::pair<char *, char *>>;
    mem.foreign = new std::map<char *, size_t>;
    mem.patched = new std::vector<char *>;
    mem.targets = new std::vector<std::pair<char *, size_t>>;
    mem.limit = (size_t)setting("SIM_MEMORY", 1024) << 20;
    make_pattern();
    arena = (char *)mmap(ARENA_AT, arena_size, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (arena == MAP_FAILED) fatal("the simulated device's memory");
    arena_end = arena + arena_size;
    mem.top = arena;
    mem.pinned = mem.pinned_top = arena + arena_size / 2;
    thread_stack();
    mem.before = handle_faults();
}

// --- allocation ------------------------------------------------------------------------------------------------------

// Addresses for a block: new ones while there are some, then those of the first freed block that is large enough.
static bool find_room(bool device, size_t span, char **base) {
    char **top = device ? &mem.top : &mem.pinned_top, *limit = device ? mem.pinned : arena_end;
    if ((size_t)(limit - *top) >= span + PAGE) {
        *base = *top;
        *top += span + PAGE;
        return true;
    }
    for (auto it = mem.blocks->begin(); it != mem.blocks->end(); ++it) {
        Block b = it->second;
        if (b.live || is_device(b.base) != device || (size_t)(b.end - b.base) < span) continue;
        mem.blocks->erase(it);
        *base = b.base;
        return true;
    }
    return false;
}

static char *add_block(bool device, size_t bytes) {
    size_t span = round_up(round_up(bytes, ALIGN), PAGE), room = round_up(bytes, device ? (size_t)ALIGN : (size_t)PAGE);
    char *base;
    if (!find_room(device, span, &base)) return nullptr;
    if (!map_pattern(base, base + span, device ? PROT_NONE : PROT_READ | PROT_WRITE)) return nullptr;
    char *p = base + span - room;
    POISON(base, span);
    UNPOISON(p, bytes);
    (*mem.blocks)[p] = Block{bytes, base, base + span, true, ++mem.number};
    if (device) (*mem.spans)[base] = base + span;
    return p;
}

static cudaError_t drop_block(void *p, const char *call, bool device) {
    auto it = mem.blocks->find((char *)p);
    if (it == mem.blocks->end() || !it->second.live || is_device(p) != device) {
        check_msg("memory", "%s(%p): not the address of a live allocation", call, p);
        return failed(cudaErrorInvalidValue);
    }
    Block &b = it->second;
    wait_for((CUstream_st *)nullptr);
    unmap(b.base, b.end);
    POISON(b.base, (size_t)(b.end - b.base));
    if (race_build() && range_forget) range_forget(b.base, (size_t)(b.end - b.base));
    b.live = false;
    mem.spans->erase(b.base);
    if (device) mem.used -= round_up(b.bytes, ALIGN);
    return cudaSuccess;
}

// --- copies ----------------------------------------------------------------------------------------------------------

static bool outside(const char *call, const char *side, const void *p, size_t n) {
    char why[200];
    if (!in_arena(p) || !mem_class(p, n, false, why, sizeof why)) return false;
    check_msg("memory", "%s of %zu bytes: its %s at %p is %s", call, n, side, p, why);
    return true;
}

static uint64_t sum_of(const void *p, size_t n) {
    const unsigned char *at = (const unsigned char *)p;
    uint64_t h = 14695981039346656037u, w = 0;  // FNV-1a over words
    for (; n >= 8; n -= 8, at += 8) {
        memcpy(&w, at, 8);
        h = (h ^ w) * 1099511628211u;
    }
    for (; n; n--, at++) h = (h ^ *at) * 1099511628211u;
    return h;
}

static void copy_now(uint32_t op, void *dst, const void *src, size_t n) {
    if (outside("a copy", "source", src, n) || outside("a copy", "destination", dst, n)) return;
    range_access(op, src, n, false);
    range_access(op, dst, n, true);
    memmove(dst, src, n);
}

static bool fits(const void *dst, const void *src, cudaMemcpyKind kind) {
    switch (kind) {
    case cudaMemcpyHostToHost: return !is_device(dst) && !is_device(src);
    case cudaMemcpyHostToDevice: return is_device(dst) && !is_device(src);
    case cudaMemcpyDeviceToHost: return !is_device(dst) && is_device(src);
    case cudaMemcpyDeviceToDevice: return is_device(dst) && is_device(src);
    case cudaMemcpyDefault: return true;
    }
    return false;
}

// Does a copy that is queued, or one of a graph, write there?
static bool is_target(const void *p, size_t n) {
    for (auto &t : *mem.targets)
        if ((const char *)p < t.first + t.second && t.first < (const char *)p + n) return true;
    return false;
}

static void drop_target(void *p, size_t n) {
    auto it = std::find(mem.targets->begin(), mem.targets->end(), std::pair<char *, size_t>((char *)p, n));
    if (it != mem.targets->end()) mem.targets->erase(it);
}

// From pinned memory, which the host must leave alone until the copy is done.
static uint32_t copy_pinned(CUstream_st *s, void *dst, const void *src, size_t n) {
    bool to_host = !is_device(dst), captured = s->capture, watched = !is_device(src) && !captured && !is_target(src, n);
    uint64_t sum = watched ? sum_of(src, n) : 0;
    if (to_host) mem.targets->push_back({(char *)dst, n});
    return enqueue(
        s, {NODE_COPY,
            "a copy",
            nullptr,
            [=](uint32_t op) {
                if (to_host && !captured) drop_target(dst, n);
                if (watched && sum_of(src, n) != sum)
                    check_msg("host-race",
                              "the host changed pinned memory at %p while a copy of %zu bytes from there was queued",
                              src, n);
                copy_now(op, dst, src, n);
            },
            nullptr,
            {},
            nullptr});
}

static cudaError_t copy(CUstream_st *s, void *dst, const void *src, size_t n, cudaMemcpyKind kind) {
    if (n == 0) return cudaSuccess;
    if (!fits(dst, src, kind)) {
        check_msg("memory", "a copy of %zu bytes from %p to %p: the pointers do not fit its kind (%d)", n, src, dst,
                  (int)kind);
        return failed(cudaErrorInvalidValue);
    }
    if (outside("a copy", "source", src, n) || outside("a copy", "destination", dst, n))
        return failed(cudaErrorInvalidValue);
    bool pageable_dst = !is_device(dst) && !is_pinned(dst), pageable_src = !is_device(src) && !is_pinned(src);
    if (!pageable_dst && !pageable_src) {
        copy_pinned(s, dst, src, n);
        return cudaSuccess;
    }
    if (s->capture) {
        check_msg("capture", "a copy from or to pageable memory while its stream is captured");
        s->capture->invalid = true;
        return failed(cudaErrorStreamCaptureUnsupported);
    }
    if (is_device(dst)) {  // the source is staged before the call returns
        auto staged = std::make_shared<std::vector<char>>((const char *)src, (const char *)src + n);
        Run run = [=](uint32_t op) { copy_now(op, dst, staged->data(), n); };
        enqueue(s, {NODE_COPY, "a copy from pageable memory", nullptr, run, nullptr, {}, nullptr});
        return cudaSuccess;
    }
    Run run = [=](uint32_t op) { copy_now(op, dst, src, n); };
    wait_for(enqueue(s, {NODE_COPY, "a copy with pageable memory", nullptr, run, nullptr, {}, nullptr}));
    return failed(host().lost);
}

static cudaError_t set(CUstream_st *s, void *dst, int value, size_t n) {
    if (n == 0) return cudaSuccess;
    char why[200];
    if (!in_arena(dst) && !is_pinned(dst)) {
        check_msg("memory", "cudaMemset of pageable memory at %p", dst);
        return failed(cudaErrorInvalidValue);
    }
    if (mem_class(dst, n, true, why, sizeof why)) {
        check_msg("memory", "cudaMemset of %zu bytes at %p, %s", n, dst, why);
        return failed(cudaErrorInvalidValue);
    }
    enqueue(s, {NODE_SET,
                "cudaMemset",
                nullptr,
                [=](uint32_t op) {
                    if (outside("cudaMemset", "destination", dst, n)) return;
                    range_access(op, dst, n, true);
                    memset(dst, value, n);
                },
                nullptr,
                {},
                nullptr});
    return cudaSuccess;
}

}  // namespace simt

using namespace simt;

extern "C" {

cudaError_t CUDARTAPI cudaMalloc(void **p, size_t n) {
    CALL;
    if (cudaError_t e = not_in_capture("cudaMalloc")) return e;
    *p = nullptr;
    if (n == 0) return cudaSuccess;
    size_t room = round_up(n, ALIGN);
    if (n > mem.limit || room > mem.limit - mem.used || !(*p = add_block(true, n)))
        return failed(cudaErrorMemoryAllocation);
    mem.used += room;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaFree(void *p) {
    CALL;
    if (!p) return cudaSuccess;
    if (cudaError_t e = not_in_capture("cudaFree")) return e;
    return drop_block(p, "cudaFree", true);
}

cudaError_t CUDARTAPI cudaMallocHost(void **p, size_t n) {
    CALL;
    *p = nullptr;
    if (n == 0) return cudaSuccess;
    *p = add_block(false, n);
    return *p ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t CUDARTAPI cudaHostAlloc(void **p, size_t n, unsigned) { return cudaMallocHost(p, n); }

cudaError_t CUDARTAPI cudaFreeHost(void *p) {
    CALL;
    return p ? drop_block(p, "cudaFreeHost", false) : cudaSuccess;
}

cudaError_t CUDARTAPI cudaHostRegister(void *p, size_t n, unsigned) {
    CALL;
    if (!p || !n || in_arena(p)) return failed(cudaErrorInvalidValue);
    if (is_pinned(p)) return failed(cudaErrorHostMemoryAlreadyRegistered);
    (*mem.foreign)[(char *)p] = n;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaHostUnregister(void *p) {
    CALL;
    wait_for((CUstream_st *)nullptr);
    return mem.foreign->erase((char *)p) ? cudaSuccess : failed(cudaErrorHostMemoryNotRegistered);
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind,
                                      cudaStream_t stream) {
    CALL;
    CUstream_st *s = stream_of(stream);
    return s ? copy(s, dst, src, n, kind) : failed(cudaErrorInvalidResourceHandle);
}

cudaError_t CUDARTAPI cudaMemcpy(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind) {
    CALL;
    if (cudaError_t e = not_in_capture("cudaMemcpy")) return e;
    if (cudaError_t e = copy(stream_of(nullptr), dst, src, n, kind)) return e;
    wait_for(stream_of(nullptr));
    return failed(host().lost);
}

cudaError_t CUDARTAPI cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t stream) {
    CALL;
    CUstream_st *s = stream_of(stream);
    return s ? set(s, p, value, n) : failed(cudaErrorInvalidResourceHandle);
}

cudaError_t CUDARTAPI cudaMemset(void *p, int value, size_t n) {
    CALL;
    if (cudaError_t e = not_in_capture("cudaMemset")) return e;
    return set(stream_of(nullptr), p, value, n);
}

cudaError_t CUDARTAPI cudaMemGetInfo(size_t *unused, size_t *all) {
    CALL;
    *unused = mem.limit - mem.used;
    *all = mem.limit;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
    CALL;
    *a = {};
    a->type = is_device(p) ? cudaMemoryTypeDevice : is_pinned(p) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    if (a->type != cudaMemoryTypeUnregistered) a->devicePointer = (void *)p;
    if (a->type != cudaMemoryTypeDevice) a->hostPointer = (void *)p;
    return cudaSuccess;
}
}
