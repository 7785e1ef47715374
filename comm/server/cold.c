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

// PIECE: rows that a thread reads before it looks for more. GROUP: slots of which all that is known is one piece of
// memory. LOOK: blocks of which the one with most free slots is filled. SPARE: of so many slots one is free, or a new
// block comes.
enum { THREADS = 8, PIECE = 16, GROUP = 1 << 16, LOOK = 8, SPARE = 8 };
#define ANOTHER_DISK "start again from the newest checkpoint, in a directory on another disk"
#define MORE_ROOM "make room there, or use another directory, and start again from the newest checkpoint"
#define GROUPS (COLD_SLOTS / GROUP + 1)

typedef struct cold_row {
    uint32_t slot;
    row_key key;
    float *row, *sum;
} cold_row;

typedef struct slot_group {
    uint8_t writes[GROUP];  // how often each slot was written, modulo 256
    uint8_t used[GROUP];
} slot_group;

struct cold {
    cold_options o;
    scratch file;
    slot_group **group;   // [GROUPS]
    int64_t slots, free;  // slots of all blocks; those of them that are free
    // To be written:
    char *image;         // of the block that is filled
    int64_t open, hand;  // its number, -1: none is; the block that is looked at next
    int at, filled;      // the slot of it that is looked at next; how many were filled
    uint32_t first;      // of them, and of which row
    row_key first_key;
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

int64_t cold_batch_bytes(int64_t width) { return (void)width, (int64_t)sizeof(cold_row); }
int64_t cold_room_bytes(int64_t width) { return (THREADS + 1) * cold_slot_bytes(width); }
int64_t cold_bytes(const cold *x) { return x->slots * slot_bytes(x); }
int64_t cold_count_bytes(const cold *x) { return (x->slots + GROUP - 1) / GROUP * (int64_t)sizeof(slot_group); }
bool cold_is_lost(const cold *x) { return x->failed.code != ERR_OK; }

static uint8_t *writes_of(const cold *x, uint32_t slot) { return &x->group[slot / GROUP]->writes[slot % GROUP]; }
static uint8_t *used_of(const cold *x, uint32_t slot) { return &x->group[slot / GROUP]->used[slot % GROUP]; }

// --- what is said of a slot ------------------------------------------------------------------------------------------

// Word by word: sum = (sum ^ word) * odd, and its high half into its low one. Each turn is one to one in the sum and in
// the word, so what differs in one word has another sum of 64 bits; of these the folded 32 are kept.
static uint64_t add_word(uint64_t sum, uint64_t word) {
    sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
    return sum ^ sum >> 32;
}

static uint32_t checksum(const cold *x, const char *image, row_key k, uint8_t writes) {
    const size_t bytes = (size_t)slot_bytes(x) - sizeof(uint32_t);
    uint64_t sum = add_word(add_word(add_word(bytes, k.point), k.table), writes), word;
    uint32_t last;
    size_t at = 0;
    for (; at + sizeof word <= bytes; at += sizeof word) {
        memcpy(&word, image + at, sizeof word);
        sum = add_word(sum, word);
    }
    if (at < bytes) {
        memcpy(&last, image + at, sizeof last);
        sum = add_word(sum, last);
    }
    sum *= 0xd1342543de82ef95u;
    return (uint32_t)(sum >> 32);
}

// What the disk said, and which row it was about.
static err_t say_more(err_t rc, uint32_t slot, row_key k, const char *hint) {
    char text[ERR_TEXT / 2];
    snprintf(text, sizeof text, "%s", err_last()->text);
    return err_set(rc, "%s: slot %u, id %" PRIu64 " of table %" PRIu64 ": %s", text, slot, row_id(k), k.table, hint);
}

// --- the threads -----------------------------------------------------------------------------------------------------

static err_t read_row(const cold *x, const cold_row *r, char *room) {
    const size_t last = (size_t)slot_bytes(x) - sizeof(uint32_t);
    uint32_t found, wanted;
    err_t rc = scratch_read(&x->file, offset_of(x, r->slot), room, (size_t)slot_bytes(x));
    if (rc != ERR_OK) return say_more(rc, r->slot, r->key, ANOTHER_DISK);
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

static err_t read_rows(const cold *x, int from, int end, char *room) {
    for (; from < end; from++) TRY(read_row(x, &x->row[from], room));
    return ERR_OK;
}

// With the lock held, except while the disk works. room: of a slot.
static void do_piece(cold *x, char *room) {
    int from = x->taken, to = from + PIECE < x->begun ? from + PIECE : x->begun;
    bool skips = cold_is_lost(x);
    x->taken = to;
    pthread_mutex_unlock(&x->lock);
    err_t rc = skips ? ERR_OK : read_rows(x, from, to, room);
    pthread_mutex_lock(&x->lock);
    if (rc != ERR_OK && x->failed.code == ERR_OK) x->failed = *err_last();
    x->done += to - from;
    if (x->done == x->begun) pthread_cond_broadcast(&x->settled);
}

static void *body(void *arg) {
    cold *x = arg;
    pthread_mutex_lock(&x->lock);
    char *room = x->room + x->threads++ * slot_bytes(x);
    while (!x->ends) {
        if (x->taken < x->begun) do_piece(x, room);
        else pthread_cond_wait(&x->work, &x->lock);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

// --- reading ---------------------------------------------------------------------------------------------------------

bool cold_ask(cold *x, uint32_t slot, row_key k, float *row, float *sum) {
    assert(x->open < 0 && *used_of(x, slot));
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
    if (x->asked) {
        cold_begin(x);
        pthread_mutex_lock(&x->lock);
        while (x->taken < x->begun) do_piece(x, x->room + THREADS * slot_bytes(x));
        while (x->done < x->begun) pthread_cond_wait(&x->settled, &x->lock);
        x->asked = x->begun = x->taken = x->done = 0;
        pthread_mutex_unlock(&x->lock);
    }
    return cold_is_lost(x) ? err_restore(&x->failed) : ERR_OK;
}

// --- writing ---------------------------------------------------------------------------------------------------------

static int free_of(const cold *x, int64_t block) {
    int n = 0;
    for (int i = 0; i < x->o.block; i++) n += !*used_of(x, (uint32_t)(block * x->o.block + i));
    return n;
}

static err_t new_block(cold *x) {
    if (x->slots + x->o.block > COLD_SLOTS)
        return err_set(ERR_INTERNAL, "%s: a rank's file has %" PRId64 " slots, and that is the most", x->file.path,
                       x->slots);
    slot_group **group = &x->group[x->slots / GROUP];
    if (!*group && !(*group = calloc(1, sizeof **group)))
        return err_set(ERR_INTERNAL, "%s: no memory for %d more slots, after %" PRId64, x->file.path, GROUP, x->slots);
    x->open = x->slots / x->o.block;
    x->slots += x->o.block, x->free += x->o.block;
    memset(x->image, 0, (size_t)(x->o.block * slot_bytes(x)));
    return ERR_OK;
}

static size_t block_bytes(const cold *x) { return (size_t)(x->o.block * slot_bytes(x)); }

static err_t read_block(cold *x) {
    err_t rc = scratch_read(&x->file, x->open * (int64_t)block_bytes(x), x->image, block_bytes(x));
    if (rc == ERR_OK) return ERR_OK;
    char text[ERR_TEXT / 2];
    snprintf(text, sizeof text, "%s", err_last()->text);
    return err_set(rc, "%s: slots %" PRId64 " to %" PRId64 ": " ANOTHER_DISK, text, x->open * x->o.block,
                   (x->open + 1) * x->o.block - 1);
}

static err_t write_block(cold *x) {
    err_t rc = scratch_write(&x->file, x->open * (int64_t)block_bytes(x), x->image, block_bytes(x));
    x->open = -1;
    return rc == ERR_OK ? ERR_OK : say_more(rc, x->first, x->first_key, MORE_ROOM);
}

static err_t open_block(cold *x) {
    int64_t blocks = x->slots / x->o.block, best = -1;
    int most = x->o.block / (2 * SPARE);
    x->at = x->filled = 0;
    for (int i = 0; i < LOOK && i < blocks && x->free >= x->slots / SPARE; i++, x->hand++) {
        int n = free_of(x, x->hand % blocks);
        if (n > most) most = n, best = x->hand % blocks;
    }
    if (best < 0) return new_block(x);
    x->open = best;
    return read_block(x);
}

static err_t find_slot(cold *x, uint32_t *slot) {
    for (;; x->at++) {
        if (x->open >= 0 && x->at == x->o.block) TRY(write_block(x));
        if (x->open < 0) TRY(open_block(x));
        *slot = (uint32_t)(x->open * x->o.block + x->at);
        if (!*used_of(x, *slot)) return ERR_OK;
    }
}

static err_t keep_failure(cold *x, err_t rc) {
    if (rc != ERR_OK && !cold_is_lost(x)) x->failed = *err_last();
    return rc;
}

err_t cold_put(cold *x, row_key k, const float *row, float sum, uint32_t *slot) {
    assert(x->asked == 0);
    if (cold_is_lost(x)) return err_restore(&x->failed);
    TRY(keep_failure(x, find_slot(x, slot)));
    char *image = x->image + x->at++ * slot_bytes(x);
    uint8_t *writes = writes_of(x, *slot);
    if (x->filled++ == 0) x->first = *slot, x->first_key = k;
    *used_of(x, *slot) = 1, x->free--;
    ++*writes;
    memcpy(image, row, (size_t)x->o.width * sizeof *row);
    memcpy(image + x->o.width * (int64_t)sizeof *row, &sum, sizeof sum);
    uint32_t sums = checksum(x, image, k, *writes);
    memcpy(image + slot_bytes(x) - (int64_t)sizeof sums, &sums, sizeof sums);
    return ERR_OK;
}

err_t cold_flush(cold *x) {
    if (cold_is_lost(x)) return err_restore(&x->failed);
    return x->open < 0 ? ERR_OK : keep_failure(x, write_block(x));
}

void cold_free(cold *x, uint32_t slot) {
    *used_of(x, slot) = 0;
    x->free++;
}

// --- the whole -------------------------------------------------------------------------------------------------------

static err_t open_memory(cold *x) {
    size_t batch = (size_t)x->o.batch, slot = (size_t)slot_bytes(x);
    x->group = calloc(GROUPS, sizeof *x->group);
    x->image = malloc((size_t)x->o.block * slot);
    x->row = malloc(batch * sizeof *x->row);
    x->room = malloc((THREADS + 1) * slot);
    return x->group && x->image && x->row && x->room
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
    x->open = -1;
    assert(o->block >= 1 && o->block <= COLD_BLOCK && GROUP % o->block == 0);
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
    for (int64_t k = 0; x->group && k < GROUPS; k++) free(x->group[k]);
    free(x->group), free(x->image), free(x->row), free(x->room);
    free(x);
}

err_t cold_clear(cold *x) {
    TRY(cold_wait(x));
    for (int64_t k = 0; k < x->slots; k += GROUP) memset(x->group[k / GROUP]->used, 0, GROUP);
    x->slots = x->free = x->hand = 0, x->open = -1;
    if (ftruncate(x->file.fd, 0) == 0) return ERR_OK;
    return err_set(ERR_IO, "%s: truncate: %s", x->file.path, strerror(errno));
}
