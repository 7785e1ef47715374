// test/sim/device.h: the state of the simulated multiprocessor, shared by the files of the device side.
//
// One block runs at a time, on the OS thread that called run_grid(). Its threads are fibers: each has a stack and runs
// until it waits at a barrier or in a warp operation; then the next one that can run is taken, in an order that the
// seed decides.
#ifndef TEST_SIM_DEVICE_H
#define TEST_SIM_DEVICE_H

#include "test/sim/simt_rt.h"

#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SIM_ASAN 1
#define POISON(p, n) __asan_poison_memory_region((p), (n))
#define UNPOISON(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define SIM_ASAN 0
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

namespace simt {

enum { LANES = 32, THREADS = 1024 };
static const size_t STACK = SIM_ASAN ? 256 << 10 : 64 << 10;

struct place {
    const char *file;
    int line;
};  // in a kernel's source

enum wait_kind { RUNS, AT_BARRIER, IN_WARP };

struct async_copy {
    char *to;
    const char *from;
    int bytes, read, group;
    place at;
};

struct fiber {
    void *sp;     // saved stack pointer while it does not run
    char *stack;  // lowest address of STACK bytes, its own from its start to its end
    void *fake;   // AddressSanitizer's fake stack
    uint3 tid;
    int index, warp, lane;
    bool started, done, fenced;  // fenced: has executed __threadfence
    wait_kind waits;
    uint64_t mark;  // race.cpp: who and when, as an access has it
    place at;       // where it waits
    int op;         // warp operation: its mask, its operands, and what the last lane to come calls
    uint32_t mask;
    void *operands;
    void (*all)(fiber *lanes, uint32_t mask);
    std::vector<async_copy> copies;  // under way
    int group;                       // of the copies that come next
};

struct warp_state {
    uint32_t exist, done, waiting;  // lanes
    bool agreed;                    // all that wait came with this operation and this mask
    int op;
    uint32_t mask;
};

struct barrier_state {
    int arrived;
    place at;
    int any, all, count;  // of the predicates so far
    int result_any, result_all, result_count;
};

struct block_state {
    const char *kernel;
    uint32_t op;
    const Body *body;
    int threads, live;    // started with, not yet ended
    size_t shared, most;  // dynamic shared memory, limit of static and dynamic together
    barrier_state barrier;
    fiber fibers[THREADS];
    warp_state warps[THREADS / LANES];
};
extern block_state block;
extern __thread fiber *running;          // null in host code
extern uint3 thread_index, block_index;  // threadIdx and blockIdx of kernels, blockDim and gridDim
extern dim3 block_size, grid_size;

// fiber.cpp
void fibers_begin();  // of a new block: none can run yet, and they may run in another order than in the block before
void make_ready(fiber *f);
void run_fibers();      // from the host: until no fiber can run
void give_way();        // from a fiber that waits: returns when it was made ready
void abandon_fibers();  // of a block that cannot end

// block.cpp
void thread_ends(fiber *f);
const char *shared_name(const void *p, size_t n);  // of the array that holds these bytes, or null
std::string shared_near(const void *p);            // "array+0x40", for messages
enum { SHARED_ROOM = 512 << 10 };                  // bytes of address space after all arrays of a block
extern char *shared;                               // their first
// of the array that shared_name() found last; both 0 where none was found in this block
extern size_t near_begin, near_end;
static inline size_t shared_offset(const void *p) { return (size_t)((uintptr_t)p - (uintptr_t)shared); }
static inline bool in_shared(const void *p) { return shared_offset(p) < SHARED_ROOM; }

// warp.cpp
enum warp_op {
    OP_SYNC,
    OP_SHUFFLE,
    OP_SHUFFLE_XOR,
    OP_SHUFFLE_DOWN,
    OP_SHUFFLE_UP,
    OP_BALLOT,
    OP_MMA_F16,
    OP_MMA_BF16,
    OP_LDMATRIX,
    OP_LDMATRIX_TRANS
};
typedef void (*warp_function)(fiber *lanes, uint32_t mask);
// The calling lane meets the others of mask; the last one to come calls fn for all of them.
void meet(warp_op op, uint32_t mask, void *operands, warp_function fn, place at);
void lane_ends(fiber *f);

// race.cpp: who touched what. Only fed by kernels that were compiled with -fsanitize=thread.
extern bool race_on;
void race_grid(uint32_t op);
void race_block();
void race_barrier();
void race_meet(int warp, uint32_t mask);
void race_access(const fiber *f, const void *p, size_t n, bool write, const void *pc);
void race_copy_issued(const fiber *f, const async_copy *c, const void *pc);
void race_copy_done(const fiber *f, const async_copy *c);

}  // namespace simt
#endif
