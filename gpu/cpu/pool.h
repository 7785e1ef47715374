// gpu/cpu/pool.h: the threads of a CPU device. Work is cut into items whose size depends on shapes alone. A free thread
// takes the next item: which thread does what may vary, the bits do not.
#ifndef GPU_CPU_POOL_H
#define GPU_CPU_POOL_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

typedef struct pool pool;
typedef void (*pool_task)(void *ctx, int64_t item, int thread);  // thread: 0 .. pool_threads-1

// threads >= 1, the caller's included. Every thread runs with round-to-nearest, denormals on, and signals blocked.
err_t pool_open(pool **out, int threads);
void pool_close(pool *p);
int pool_threads(const pool *p);

// Runs task for items 0 .. items-1 and returns when all are done. Not reentrant.
void pool_run(pool *p, int64_t items, pool_task task, void *ctx);

// A thread's own memory, 64-byte aligned, kept until it must grow (by mmap, never the heap). NULL when there is no
// memory. The caller's thread may call it for every thread before pool_run; a task only for its own.
void *pool_scratch(pool *p, int thread, size_t bytes);

// Memory that all threads share, one block for the whole pool; the same rules, from the caller's thread only.
void *pool_shared(pool *p, size_t bytes);

#endif
