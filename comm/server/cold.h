// comm/server/cold.h: rows that memory has no room for, each in a slot of a file. Slots are as large as each other:
//
//   slot   | row, D | sum | checksum |      4 (D + 2) bytes
//   block  as many slots as memory allows, at most 256
//
// A row that is written takes any free slot: its old one was freed when it changed. Writes are gathered by blocks: a
// block that has free slots is read, its free slots are filled, and all of it is written. So a write of one row is not
// one to the disk, nor a call of the system. Blocks take turns; of the next few the one with most free slots is filled.
// Where too few slots are free, an eighth, a new block comes to the end.
//
// The checksum is one of row, sum, the row's key, and how often the slot was written, which is kept in memory, a byte a
// slot: so a row that comes back as anything but what was written last is found, whether a bit is wrong, a write was
// lost, or the disk has mistaken the place. A block that is written again takes its other slots along as they were.
//
// Reads are many at a time, by threads: small ones, at places in no order, which a disk serves side by side. The file
// goes through the page cache: a page of it has dozens of rows, and what memory the system has to spare holds the
// warmer ones.
#ifndef COMM_SERVER_COLD_H
#define COMM_SERVER_COLD_H

#include "base/err.h"
#include "base/fault.h"
#include "comm/server/rows.h"

typedef struct cold cold;

typedef struct cold_options {
    const char *dir;  // is made if it is not there
    int number;       // of the rank, for the file's name, as errors say it
    int64_t width;    // of a row
    int batch;        // rows that are asked for at a time
    int block;        // slots of a block: 1 to COLD_BLOCK
    fault_list *faults;
} cold_options;

enum { COLD_BLOCK = 256 };
#define COLD_SLOTS (((int64_t)1 << 31) - COLD_BLOCK)

static inline int64_t cold_slot_bytes(int64_t width) { return 4 * (width + 2); }
// Memory that is taken for each row of a batch, and beside batches and blocks.
int64_t cold_batch_bytes(int64_t width);
int64_t cold_room_bytes(int64_t width);

// ERR_IO: the file can't be made.
err_t cold_open(cold **out, const cold_options *o);
void cold_close(cold *x);
// All slots are free; the disk's space is given back.
err_t cold_clear(cold *x);

// Asks for a row, which has been put and flushed: row (D) and sum (=) once cold_wait returns. It is read while the
// caller goes on, from cold_begin on. At most `batch` rows until cold_wait; false: there are as many.
bool cold_ask(cold *x, uint32_t slot, row_key k, float *row, float *sum);
void cold_begin(cold *x);
// ERR_IO: the disk refused. ERR_DATA: a row is not what was put last. Both name file, slot and row, and stay.
err_t cold_wait(cold *x);

// Puts a row into a slot, which reaches the file with cold_flush, or before. Nothing may be asked for meanwhile.
// ERR_IO: the disk refused. ERR_INTERNAL: no memory, or there are COLD_SLOTS.
err_t cold_put(cold *x, row_key k, const float *row, float sum, uint32_t *slot);
err_t cold_flush(cold *x);
// The row in this slot is wanted no longer.
void cold_free(cold *x, uint32_t slot);

// Has a read or a write failed? Then rows are lost.
bool cold_is_lost(const cold *x);
// Bytes of memory for what is known of slots; of the file.
int64_t cold_count_bytes(const cold *x);
int64_t cold_bytes(const cold *x);

#endif
