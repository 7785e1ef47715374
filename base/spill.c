// base/spill.c: see base/spill.h. A window has a slot of the memory: window k has slot k mod windows. A slot is read,
// visited, written, and then read again for its next window by whichever thread wrote its last block, so that the disk
// never waits for the thread that walks.
#include "base/spill.h"

#include "base/scratch.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>

typedef enum slot_state { SLOT_FREE, SLOT_READS, SLOT_READY, SLOT_WRITES } slot_state;

typedef struct slot {
    slot_state state;
    int64_t window;
    int64_t first, count;  // blocks
    int64_t taken, done;   // of them, by the threads, while it is read or written
} slot;

struct spill {
    spill_options o;
    scratch file;
    bool direct;
    char *memory;
    uint32_t *crc;  // [blocks] of what was written last
    pthread_mutex_t lock;
    pthread_cond_t work, settled;  // a slot is queued; a slot has been read or written
    bool ends;
    int threads;  // that run
    pthread_t thread[SPILL_THREADS];
    slot slot[SPILL_WINDOWS];
    int queued, queue[SPILL_WINDOWS];  // slots with blocks that no thread has taken, oldest first
    err_record failed;                 // the first failure; from then on nothing is read or written
    int64_t failed_at;                 // its block, -1: there is none, or a visit failed
    // the walk
    spill_mode mode;
    int64_t from, count, windows;
};

// --- the file --------------------------------------------------------------------------------------------------------

static err_t check(const spill_options *o, const void *memory) {
    if (o->block_bytes < 1 || o->block_bytes % SPILL_ALIGN || o->blocks < 1 || o->window_blocks < 1)
        return err_set(ERR_CONFIG,
                       "%s: %" PRId64 " blocks of %zu bytes, %" PRId64
                       " in a window: expected at least 1 of each, of a multiple of %d bytes",
                       o->name, o->blocks, o->block_bytes, o->window_blocks, SPILL_ALIGN);
    if (o->windows < 2 || o->windows > SPILL_WINDOWS || o->threads < 1 || o->threads > SPILL_THREADS)
        return err_set(ERR_CONFIG, "%s: %d windows, %d threads: expected 2 to %d and 1 to %d", o->name, o->windows,
                       o->threads, SPILL_WINDOWS, SPILL_THREADS);
    if ((uintptr_t)memory % SPILL_ALIGN)
        return err_set(ERR_INTERNAL, "%s: windows at %p, expected a multiple of %d", o->name, memory, SPILL_ALIGN);
    return ERR_OK;
}

static err_t too_full(const spill *x, int why, uint64_t free_bytes) {
    return err_set(ERR_IO,
                   "%s: %s: it needs %" PRId64 " bytes and %" PRIu64
                   " are free in %s: make room there, or use another directory",
                   x->file.path, strerror(why), spill_file(&x->o), free_bytes, x->o.dir);
}

// Asked first, so that a file that can't fit does not fill the disk before it fails. Reserved before O_DIRECT is set:
// where the file system can't reserve, the C library writes single bytes.
static err_t reserve(spill *x) {
    struct statvfs fs;
    int64_t bytes = spill_file(&x->o);
    if (fstatvfs(x->file.fd, &fs) != 0) return err_set(ERR_IO, "%s: free space: %s", x->file.path, strerror(errno));
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    if ((uint64_t)bytes > free_bytes) return too_full(x, ENOSPC, free_bytes);
    int why;
    do why = posix_fallocate(x->file.fd, 0, bytes);
    while (why == EINTR);
    if (why == ENOSPC || why == EDQUOT) return too_full(x, why, free_bytes);
    if (why == EFBIG)
        return err_set(ERR_IO, "%s: %s: %" PRId64 " bytes: raise the limit of a file's size (ulimit -f, LimitFSIZE)",
                       x->file.path, strerror(why), bytes);
    return why ? err_set(ERR_IO, "%s: %" PRId64 " bytes: %s", x->file.path, bytes, strerror(why)) : ERR_OK;
}

static err_t open_file(spill *x) {
    TRY(scratch_open(&x->file, x->o.dir, x->o.name, x->o.faults));
    TRY(reserve(x));
    int flags = fcntl(x->file.fd, F_GETFL);
    x->direct = flags >= 0 && fcntl(x->file.fd, F_SETFL, flags | O_DIRECT) == 0;
    return ERR_OK;
}

static uint32_t crc_of(const spill *x, const void *data) { return (uint32_t)crc32_z(0, data, x->o.block_bytes); }

static err_t open_sums(spill *x) {
    x->crc = malloc((size_t)x->o.blocks * sizeof *x->crc);
    if (!x->crc) return err_set(ERR_INTERNAL, "%s: no memory for %" PRId64 " checksums", x->file.path, x->o.blocks);
    memset(x->memory, 0, x->o.block_bytes);
    uint32_t zeros = crc_of(x, x->memory);
    for (int64_t i = 0; i < x->o.blocks; i++) x->crc[i] = zeros;
    return ERR_OK;
}

static int64_t offset_of(const spill *x, int64_t block) { return block * (int64_t)x->o.block_bytes; }

static err_t get_block(spill *x, int64_t block, void *data) {
    int64_t at = offset_of(x, block);
    TRY(scratch_read(&x->file, at, data, x->o.block_bytes));
    uint32_t is = crc_of(x, data);
    if (is == x->crc[block]) return ERR_OK;
    return err_set(ERR_DATA,
                   "%s: block %" PRId64 " at offset %" PRId64
                   ": checksum 0x%08x, expected 0x%08x: the disk did not return what was written last. Start again "
                   "from the newest checkpoint, in a directory on another disk",
                   x->file.path, block, at, is, x->crc[block]);
}

static err_t put_block(spill *x, int64_t block, char *data) {
    x->crc[block] = crc_of(x, data);
    return scratch_write(&x->file, offset_of(x, block), data, x->o.block_bytes);
}

// --- the threads; with the lock held, except for what the disk does --------------------------------------------------

static char *memory_of(const spill *x, const slot *s) {
    return x->memory + (size_t)(s - x->slot) * (size_t)x->o.window_blocks * x->o.block_bytes;
}

static void assign(spill *x, slot *s, int64_t window) {
    int64_t skip = window * x->o.window_blocks, left = x->count - skip;
    s->window = window;
    s->first = x->from + skip;
    s->count = left < x->o.window_blocks ? left : x->o.window_blocks;
}

static void enqueue(spill *x, slot *s, slot_state state) {
    s->state = state;
    s->taken = s->done = 0;
    x->queue[x->queued++] = (int)(s - x->slot);
    pthread_cond_broadcast(&x->work);
}

// The slot's next window, if there is one.
static void read_next(spill *x, slot *s) {
    int64_t next = s->window + x->o.windows;
    s->state = SLOT_FREE;
    if (next >= x->windows || x->failed.code != ERR_OK) return;
    assign(x, s, next);
    enqueue(x, s, SLOT_READS);
}

static void settle(spill *x, slot *s) {
    if (s->state == SLOT_READS) s->state = SLOT_READY;
    else if (x->mode == SPILL_UPDATE) read_next(x, s);
    else s->state = SLOT_FREE;
    pthread_cond_broadcast(&x->settled);
}

static void do_block(spill *x) {
    slot *s = &x->slot[x->queue[0]];
    int64_t k = s->taken++;
    if (s->taken == s->count) memmove(x->queue, x->queue + 1, (size_t)--x->queued * sizeof *x->queue);
    char *data = memory_of(x, s) + (size_t)k * x->o.block_bytes;
    bool writes = s->state == SLOT_WRITES, skips = x->failed.code != ERR_OK;
    pthread_mutex_unlock(&x->lock);
    err_t rc = skips ? ERR_OK : writes ? put_block(x, s->first + k, data) : get_block(x, s->first + k, data);
    pthread_mutex_lock(&x->lock);
    if (rc != ERR_OK && x->failed.code == ERR_OK) x->failed = *err_last(), x->failed_at = s->first + k;
    if (++s->done == s->count) settle(x, s);
}

static void *body(void *arg) {
    spill *x = arg;
    pthread_mutex_lock(&x->lock);
    while (!x->ends) {
        if (x->queued) do_block(x);
        else pthread_cond_wait(&x->work, &x->lock);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

// --- from outside ----------------------------------------------------------------------------------------------------

static err_t open_threads(spill *x) {
    for (; x->threads < x->o.threads; x->threads++) TRY(thread_start(&x->thread[x->threads], "spill", body, x));
    return ERR_OK;
}

err_t spill_open(spill **out, const spill_options *o, void *memory) {
    *out = NULL;
    TRY(check(o, memory));
    spill *x = calloc(1, sizeof *x);
    if (!x) return err_set(ERR_INTERNAL, "%s: no memory for %zu bytes", o->name, sizeof *x);
    x->o = *o;
    x->memory = memory;
    x->file.fd = -1;  // before it is open
    x->failed_at = -1;
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->work, NULL);
    pthread_cond_init(&x->settled, NULL);
    err_t rc;
    TRY_GOTO(open_file(x), failed);
    TRY_GOTO(open_sums(x), failed);
    TRY_GOTO(open_threads(x), failed);
    *out = x;
    return ERR_OK;
failed:
    spill_close(x);
    return rc;
}

void spill_close(spill *x) {
    if (!x) return;
    pthread_mutex_lock(&x->lock);
    x->ends = true;
    pthread_cond_broadcast(&x->work);
    pthread_mutex_unlock(&x->lock);
    for (int i = 0; i < x->threads; i++) pthread_join(x->thread[i], NULL);
    pthread_cond_destroy(&x->settled);
    pthread_cond_destroy(&x->work);
    pthread_mutex_destroy(&x->lock);
    scratch_close(&x->file);
    free(x->crc);
    free(x);
}

bool spill_is_direct(const spill *x) { return x->direct; }

bool spill_failed(const spill *x, int64_t *block) {
    *block = x->failed_at;
    return x->failed.code != ERR_OK;
}

// False: something failed.
static bool wait_for(spill *x, const slot *s, slot_state state) {
    while (s->state != state && x->failed.code == ERR_OK) pthread_cond_wait(&x->settled, &x->lock);
    return x->failed.code == ERR_OK;
}

// A window, with the lock held, except for the visit.
static err_t walk_window(spill *x, int64_t k, spill_visit visit, void *ctx) {
    slot *s = &x->slot[k % x->o.windows];
    if (!wait_for(x, s, x->mode == SPILL_FILL ? SLOT_FREE : SLOT_READY)) return err_restore(&x->failed);
    assign(x, s, k);
    pthread_mutex_unlock(&x->lock);
    err_t rc = visit(ctx, s->first, s->count, memory_of(x, s));
    pthread_mutex_lock(&x->lock);
    if (rc != ERR_OK) {
        if (x->mode != SPILL_READ && x->failed.code == ERR_OK) x->failed = *err_last();
        return err_pass(__FILE__, __LINE__, __func__, rc);
    }
    if (x->mode == SPILL_READ) read_next(x, s);
    else enqueue(x, s, SLOT_WRITES);
    return ERR_OK;
}

// What was visited, or no longer will be, leaves its slot.
static void drain(spill *x) {
    for (int i = 0; i < x->o.windows; i++) {
        slot *s = &x->slot[i];
        while (s->state == SLOT_READS || s->state == SLOT_WRITES) pthread_cond_wait(&x->settled, &x->lock);
        s->state = SLOT_FREE;
    }
}

err_t spill_walk(spill *x, spill_mode mode, int64_t first, int64_t count, spill_visit visit, void *ctx) {
    if (first < 0 || count < 0 || first > x->o.blocks - count)
        return err_set(ERR_INTERNAL, "%s: %" PRId64 " blocks from %" PRId64 " on, and it has %" PRId64, x->file.path,
                       count, first, x->o.blocks);
    pthread_mutex_lock(&x->lock);
    err_t rc = x->failed.code == ERR_OK ? ERR_OK : err_restore(&x->failed);
    x->mode = mode, x->from = first, x->count = count;
    x->windows = rc == ERR_OK ? (count + x->o.window_blocks - 1) / x->o.window_blocks : 0;
    for (int k = 0; mode != SPILL_FILL && k < x->o.windows && k < x->windows; k++) {
        assign(x, &x->slot[k], k);
        enqueue(x, &x->slot[k], SLOT_READS);
    }
    for (int64_t k = 0; k < x->windows && rc == ERR_OK; k++) rc = walk_window(x, k, visit, ctx);
    drain(x);
    if (rc == ERR_OK && x->failed.code != ERR_OK) rc = err_restore(&x->failed);
    pthread_mutex_unlock(&x->lock);
    return rc;
}
