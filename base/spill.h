// base/spill.h: an array that is larger than memory: it is in a file, and a few windows of it are in memory. A walk
// visits it from front to back: while one window is visited, those after it are read and those before it are written.
//
//   window   k-1        k           k+1        k+2
//            written    visited     read       read      by threads, block by block
//
// The file goes with the process (base/scratch.h). A CRC-32 of each block is kept in memory, so that a block that comes
// back as anything but what was written last is found: a flipped bit, a torn or a lost write. O_DIRECT keeps the page
// cache out of it, where the file system has that.
#ifndef BASE_SPILL_H
#define BASE_SPILL_H

#include "base/err.h"
#include "base/fault.h"

#include <stddef.h>
#include <stdint.h>

enum { SPILL_ALIGN = 4096, SPILL_WINDOWS = 16, SPILL_THREADS = 64 };

typedef struct spill_options {
    const char *dir;        // is there already
    const char *name;       // of the file, for people who read errors
    size_t block_bytes;     // one request to the disk: a multiple of SPILL_ALIGN
    int64_t blocks;         // of the file
    int windows;            // 2 .. SPILL_WINDOWS; with 2 nothing is read while a window waits for its write
    int64_t window_blocks;  // blocks that are visited together
    int threads;            // requests at a time: 1 .. SPILL_THREADS
    fault_list *faults;     // FAULT_SPILL_READ, _WRITE, _FLIP; NULL: none
} spill_options;

typedef struct spill spill;

// Bytes of the windows, and of the file.
static inline size_t spill_memory(const spill_options *o) {
    return (size_t)o->windows * (size_t)o->window_blocks * o->block_bytes;
}
static inline int64_t spill_file(const spill_options *o) { return o->blocks * (int64_t)o->block_bytes; }

// Makes the file, all zeros, with all its bytes reserved, and starts the threads. memory: of spill_memory bytes at a
// multiple of SPILL_ALIGN; the caller's, until after spill_close. ERR_CONFIG: options out of range. ERR_IO: the file
// can't be made, or the disk is too full for it: names the bytes that it needs and those that are free. *out is NULL on
// failure.
err_t spill_open(spill **out, const spill_options *o, void *memory);

// Ends the threads and gives the disk's space back. NULL: nothing.
void spill_close(spill *x);

// Does the file bypass the page cache?
bool spill_is_direct(const spill *x);

// Has a walk failed for good? *block (=) where the disk did first; -1: it did not.
bool spill_failed(const spill *x, int64_t *block);

// SPILL_READ: what is visited stays as it is. SPILL_UPDATE: it is written back. SPILL_FILL: nothing is read, the visit
// sets all of it.
typedef enum spill_mode { SPILL_READ, SPILL_UPDATE, SPILL_FILL } spill_mode;

// data: blocks first .. first+count-1, valid during the call, on the thread that walks.
typedef err_t (*spill_visit)(void *ctx, int64_t first, int64_t count, void *data);

// Visits blocks first .. first+count-1 in order, a window at a time, and returns when all of it is read and written.
// One walk at a time. Makes no heap call. ERR_IO: the disk refused. ERR_DATA: a block is not what was written; names
// file, block and offset. What a visit returns ends the walk. After a failure, except of the visit of a SPILL_READ,
// some blocks are old and some new: every later walk returns the same failure.
err_t spill_walk(spill *x, spill_mode mode, int64_t first, int64_t count, spill_visit visit, void *ctx);

#endif
