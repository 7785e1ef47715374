// comm/server/cold.c: see comm/server/cold.h.
#include "comm/server/cold.h"

#include "base/scratch.h"
#include "base/thread.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

// PIECE: rows that a thread reads before it looks for more. GROUP: slots whose counts are one piece of memory.
enum { THREADS = 8, PIECE = 16, GROUP = 1 << 16 };
#define GROUPS (COLD_SLOTS / GROUP)

typedef struct cold_row {
    uint32_t slot;
    row_key key;
    float *row, *sum;
} cold_row;

struct cold {
    cold_options o;
    scratch file;
    int64_t slots;
    uint8_t **writes;  // [GROUPS][GROUP] how often each slot was written, modulo 255, plus 1; 0: never
    // To be written: images of slots, one after the other.
    int puts;
    char *image;    // (batch, slot)
    uint32_t *put;  // [batch] which
    row_key *put_key;
    // To be read:
    cold_row *row;  // [batch]
    int asked;
    char *room;  // (THREADS + 1, slot)
    pthread_mutex_t lock;
    pthread_cond_t work, settled;  // there are rows to read; all of them have been
    int begun, taken, done;        // of `asked`
    bool ends;
    int started, threads;  // how many were, and how many run
    pthread_t thread[THREADS];
    err_record failed;  // the first failure; from then on nothing is read or written
};

static int64_t slot_bytes(const cold *x) { return cold_slot_bytes(x->o.width); }
static int64_t offset_of(const cold *x, uint32_t slot) { return slot * slot_bytes(x); }

int64_t cold_batch_bytes(int64_t width) {
    return cold_slot_bytes(width) + (int64_t)(sizeof(cold_row) + sizeof(row_key) + sizeof(uint32_t));
}

int64_t cold_room_bytes(int64_t width) { return (THREADS + 1) * cold_slot_bytes(width); }

// --- slots -----------------------------------------------------------------------------------------------------------

static uint8_t *writes_of(const cold *x, uint32_t slot) { return &x->writes[slot / GROUP][slot % GROUP]; }

err_t cold_new(cold *x, uint32_t *slot) {
    if (x->slots == COLD_SLOTS)
        return err_set(ERR_INTERNAL, "%s: a rank's file has %" PRId64 " slots, and that is the most", x->file.path,
                       x->slots);
    uint8_t **group = &x->writes[x->slots / GROUP];
    if (!*group && !(*group = calloc(GROUP, 1)))
        return err_set(ERR_INTERNAL, "%s: no memory for %d more slots, after %" PRId64, x->file.path, GROUP, x->slots);
    *slot = (uint32_t)x->slots++;
    return ERR_OK;
}

int64_t cold_slots(const cold *x) { return x->slots; }
bool cold_has(const cold *x, uint32_t slot) { return *writes_of(x, slot) != 0; }
int64_t cold_bytes(const cold *x) { return x->slots * slot_bytes(x); }
bool cold_is_lost(const cold *x) { return x->failed.code != ERR_OK; }

int64_t cold_count_bytes(const cold *x) { return (x->slots + GROUP - 1) / GROUP * GROUP; }

static uint32_t checksum(const cold *x, const char *image, row_key k, uint8_t writes) {
    const uint64_t name[3] = {k.point, k.table, writes};
    uLong sum = crc32_z(0, (const void *)image, (size_t)slot_bytes(x) - sizeof(uint32_t));
    return (uint32_t)crc32_z(sum, (const void *)name, sizeof name);
}

// What the disk said, and which row it was about.
static err_t say_more(err_t rc, uint32_t slot, row_key k, const char *hint) {
    char text[ERR_TEXT / 2];
    snprintf(text, sizeof text, "%s", err_last()->text);
    return err_set(rc, "%s: slot %u, id %" PRIu64 " of table %" PRIu64 ": %s", text, slot, row_id(k), k.table, hint);
}

// With the lock held, where threads read.
static void fail(cold *x) {
    if (x->failed.code == ERR_OK) x->failed = *err_last();
}

// --- reading ---------------------------------------------------------------------------------------------------------

static err_t read_row(const cold *x, const cold_row *r, char *room) {
    const size_t last = (size_t)slot_bytes(x) - sizeof(uint32_t);
    uint32_t found, wanted;
    err_t rc = scratch_read(&x->file, offset_of(x, r->slot), room, (size_t)slot_bytes(x));
    if (rc != ERR_OK)
        return say_more(rc, r->slot, r->key, "start again from the newest checkpoint, in a directory on another disk");
    memcpy(&found, room + last, sizeof found);
    wanted = checksum(x, room, r->key, *writes_of(x, r->slot));
    if (found != wanted)
        return err_set(ERR_DATA,
                       "%s: slot %u at offset %" PRId64 ", id %" PRIu64 " of table %" PRIu64
                       ": checksum 0x%08x, expected 0x%08x: the disk did not return what was written last. Start again "
                       "from the newest checkpoint, in a directory on another disk",
                       x->file.path, r->slot, offset_of(x, r->slot), row_id(r->key), r->key.table, found, wanted);
    memcpy(r->row, room, (size_t)x->o.width * sizeof *r->row);
    memcpy(r->sum, room + x->o.width * (int64_t)sizeof *r->row, sizeof *r->sum);
    return ERR_OK;
}

// With the lock held, except while the disk reads. room: of a slot.
static void read_piece(cold *x, char *room) {
    int from = x->taken, to = from + PIECE < x->begun ? from + PIECE : x->begun;
    bool skips = cold_is_lost(x);
    err_t rc = ERR_OK;
    x->taken = to;
    pthread_mutex_unlock(&x->lock);
    for (int i = from; i < to && !skips && rc == ERR_OK; i++) rc = read_row(x, &x->row[i], room);
    pthread_mutex_lock(&x->lock);
    if (rc != ERR_OK) fail(x);
    x->done += to - from;
    if (x->done == x->begun) pthread_cond_broadcast(&x->settled);
}

static void *body(void *arg) {
    cold *x = arg;
    pthread_mutex_lock(&x->lock);
    char *room = x->room + x->threads++ * slot_bytes(x);
    while (!x->ends) {
        if (x->taken < x->begun) read_piece(x, room);
        else pthread_cond_wait(&x->work, &x->lock);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

bool cold_ask(cold *x, uint32_t slot, row_key k, float *row, float *sum) {
    assert(x->puts == 0 && cold_has(x, slot));
    if (x->asked == x->o.batch) return false;
    x->row[x->asked++] = (cold_row){slot, k, row, sum};
    return true;
}

void cold_begin(cold *x) {
    if (x->begun == x->asked) return;
    pthread_mutex_lock(&x->lock);
    x->begun = x->asked;
    pthread_cond_broadcast(&x->work);
    pthread_mutex_unlock(&x->lock);
}

// The caller reads, too: of a few rows that are in the page cache most, before a thread has woken up.
err_t cold_wait(cold *x) {
    if (x->asked == 0) return cold_is_lost(x) ? err_restore(&x->failed) : ERR_OK;
    cold_begin(x);
    pthread_mutex_lock(&x->lock);
    while (x->taken < x->begun) read_piece(x, x->room + THREADS * slot_bytes(x));
    while (x->done < x->begun) pthread_cond_wait(&x->settled, &x->lock);
    x->asked = x->begun = x->taken = x->done = 0;
    pthread_mutex_unlock(&x->lock);
    return cold_is_lost(x) ? err_restore(&x->failed) : ERR_OK;
}

// --- writing ---------------------------------------------------------------------------------------------------------

err_t cold_put(cold *x, uint32_t slot, row_key k, const float *row, float sum) {
    assert(x->asked == 0);
    if (x->puts == x->o.batch) TRY(cold_flush(x));
    char *image = x->image + x->puts * slot_bytes(x);
    uint8_t *writes = writes_of(x, slot);
    *writes = *writes == UINT8_MAX ? 1 : (uint8_t)(*writes + 1);
    memcpy(image, row, (size_t)x->o.width * sizeof *row);
    memcpy(image + x->o.width * (int64_t)sizeof *row, &sum, sizeof sum);
    uint32_t crc = checksum(x, image, k, *writes);
    memcpy(image + slot_bytes(x) - (int64_t)sizeof crc, &crc, sizeof crc);
    x->put[x->puts] = slot, x->put_key[x->puts++] = k;
    return ERR_OK;
}

static err_t write_run(cold *x, int from, int to) {
    err_t rc = scratch_write(&x->file, offset_of(x, x->put[from]), x->image + from * slot_bytes(x),
                             (size_t)((to - from) * slot_bytes(x)));
    if (rc == ERR_OK) return ERR_OK;
    return say_more(rc, x->put[from], x->put_key[from],
                    "make room there, or use another directory, and start again from the newest checkpoint");
}

err_t cold_flush(cold *x) {
    int from = 0, to;
    if (cold_is_lost(x)) return err_restore(&x->failed);
    for (; from < x->puts; from = to) {
        for (to = from + 1; to < x->puts && x->put[to] == x->put[to - 1] + 1; to++) {}
        err_t rc = write_run(x, from, to);
        if (rc != ERR_OK) return fail(x), rc;
    }
    x->puts = 0;
    return ERR_OK;
}

// --- the whole -------------------------------------------------------------------------------------------------------

static err_t open_memory(cold *x) {
    size_t batch = (size_t)x->o.batch, slot = (size_t)slot_bytes(x);
    x->writes = calloc(GROUPS, sizeof *x->writes);
    x->image = malloc(batch * slot);
    x->put = malloc(batch * sizeof *x->put);
    x->put_key = malloc(batch * sizeof *x->put_key);
    x->row = malloc(batch * sizeof *x->row);
    x->room = malloc((THREADS + 1) * slot);
    return x->writes && x->image && x->put && x->put_key && x->row && x->room
               ? ERR_OK
               : err_set(ERR_INTERNAL, "no memory for batches of %zu rows of %" PRId64, batch, x->o.width);
}

static err_t open_file(cold *x) {
    char name[64];
    snprintf(name, sizeof name, "rows-of-rank-%d", x->o.number);
    TRY(io_mkdirs(x->o.dir));
    TRY(scratch_open(&x->file, x->o.dir, name, x->o.faults));
    posix_fadvise(x->file.fd, 0, 0, POSIX_FADV_RANDOM);  // a hint
    return ERR_OK;
}

static err_t start_threads(cold *x) {
    for (int k = 0; k < THREADS; k++) {
        err_t rc = thread_start(&x->thread[k], "lockstep/rows", body, x);
        if (rc != ERR_OK) return rc;
        x->started = k + 1;
    }
    return ERR_OK;
}

err_t cold_open(cold **out, const cold_options *o) {
    cold *x = *out = calloc(1, sizeof *x);
    if (!x) return err_set(ERR_INTERNAL, "no memory for a file of rows");
    x->o = *o;
    x->file.fd = -1;
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->work, NULL);
    pthread_cond_init(&x->settled, NULL);
    err_t rc;
    TRY_GOTO(open_memory(x), failed);
    TRY_GOTO(open_file(x), failed);
    TRY_GOTO(start_threads(x), failed);
    return ERR_OK;
failed:
    cold_close(x);
    *out = NULL;
    return rc;
}

void cold_close(cold *x) {
    if (!x) return;
    pthread_mutex_lock(&x->lock);
    x->ends = true;
    pthread_cond_broadcast(&x->work);
    pthread_mutex_unlock(&x->lock);
    for (int k = 0; k < x->started; k++) pthread_join(x->thread[k], NULL);
    pthread_cond_destroy(&x->settled);
    pthread_cond_destroy(&x->work);
    pthread_mutex_destroy(&x->lock);
    scratch_close(&x->file);
    for (int64_t k = 0; x->writes && k < GROUPS; k++) free(x->writes[k]);
    free(x->writes), free(x->image), free(x->put), free(x->put_key), free(x->row), free(x->room);
    free(x);
}

err_t cold_clear(cold *x) {
    TRY(cold_wait(x));
    for (int64_t k = 0; k < x->slots; k += GROUP) memset(x->writes[k / GROUP], 0, GROUP);
    x->slots = x->puts = 0;
    if (ftruncate(x->file.fd, 0) == 0) return ERR_OK;
    return err_set(ERR_IO, "%s: truncate: %s", x->file.path, strerror(errno));
}
