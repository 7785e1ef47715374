// test/sim/simt_rt.h: the interface between the two halves of the simulator.
//
//   device side   block.cpp fiber.cpp warp.cpp tensor.cpp race.cpp report.cpp   executes grids and looks for mistakes
//                 in them
//   host side     cudart.cpp and its neighbours                              memory, streams, events, graphs, libraries
#ifndef TEST_SIM_SIMT_RT_H
#define TEST_SIM_SIMT_RT_H

#include "test/sim/launch.h"

#include <functional>
#include <stdint.h>
#include <string>

namespace simt {

// --- device side -----------------------------------------------------------------------------------------------------

// bytes of shared memory: without and with cudaFuncSetAttribute
enum { SHARED_STATIC = 48 << 10, SHARED_OPTIN = 227 << 10 };

// Executes all blocks of a grid, as operation `op`, with `shared` bytes of dynamic shared memory. Static and dynamic
// shared memory together may take `most` bytes. One grid at a time: callers on several threads hold a lock.
void run_grid(const char *name, uint32_t op, dim3 grid, dim3 block, size_t shared, const Body &body,
              size_t most = SHARED_OPTIN);

// Tells the race detector that op reads or writes n bytes (copies, fills, library calls).
void range_access(uint32_t op, const void *p, size_t n, bool write);
bool race_build();  // are there instrumented kernels in this program?

// A finding is a mistake of the simulated program: printed once, with the place in the kernel if one runs; the exit
// status becomes 99.
void check_msg(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
int findings();           // distinct ones so far
const char *last_kind();  // of the last one
const char *last_text();  // all of its line
void clear_findings();    // what was found until now was expected
std::string where();      // "kernel k, block (0,0,0), thread (1,0,0), seed 2", or nothing outside of kernels

// Everything that the hardware leaves open is decided by the seed: SIM_SEED, read once, or set_seed().
// 0: index order, eager streams  1: the last one first, so that a warp runs far ahead, lazy streams  2 and more: random
void set_seed(uint64_t seed);
uint64_t seed();
uint64_t rnd();

struct Stats {
    uint64_t threads, blocks, switches, barriers, warp_ops, mma, checked;
};
extern Stats stats;

// --- host side -------------------------------------------------------------------------------------------------------

extern char *arena, *arena_end;  // device memory; fixed once the first kernel runs
extern size_t arena_size;
// 0: a kernel may touch these bytes; else why not
int mem_class(const void *p, size_t n, bool write, char *why, size_t room);
// does a end before b begins, by streams and events?
bool op_before(uint32_t a, uint32_t b);
const char *op_name(uint32_t a);

bool is_device(const void *p);  // in the device's part of the arena, whether allocated or not

// Makes these bytes accessible, for an operation that hands them to the kernel: to it, memory that is not accessible
// yet is an error. What operations touch themselves needs no call.
void open_range(const void *p, size_t n);

// The memory was freed: what is known of accesses to it may go.
void range_forget(const void *p, size_t n) __attribute__((weak));

// From now on operations with a poll, and those before them, go on while the host is away in calls that are not CUDA's:
// a second thread runs them, grids too, under the lock that every call takes.
void keep_going();

// Queues an operation that runs when poll says so (collectives of several processes); a poll that is empty always says
// so.
void enqueue_poll(cudaStream_t stream, const std::string &name, std::function<bool(uint32_t)> poll,
                  std::function<void(uint32_t)> run);

}  // namespace simt
#endif
