// data/reader.h: ranges of files that are large, far away and in use for days. A read that fails with an I/O error is
// tried again, with a new descriptor and a growing pause, so that a network file system may come back; a file that was
// replaced in between is refused. Reads use pread, never a mapping: a file that shrinks or a disk that fails must be an
// error, not a SIGBUS.
//
// One thread at a time reads; reader_cancel() and the counts may be used from others.
#ifndef DATA_READER_H
#define DATA_READER_H

#include "base/err.h"
#include "base/fault.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

enum { READER_OPEN_MAX = 128 };  // descriptors held: there may be more files than a process may open

typedef struct data_file {
    char *path;
    int fd;     // -1: not open now
    dev_t dev;  // these four identify the file when it is opened again
    ino_t ino;
    struct timespec mtime;
    int64_t size;  // in bytes
} data_file;

typedef struct reader {
    int retry;
    fault_list *faults;
    atomic_llong retries;  // reads that failed first and succeeded later
    atomic_llong bytes;    // that were read
    data_file *open[READER_OPEN_MAX];
    int hand;  // the next of open[] to be closed
    int most;  // of open[] are used
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool cancelled;
} reader;

// r must be zero. retry: how often a read that failed is tried again.
void reader_open(reader *r, int retry, fault_list *faults);
// So many readers share the descriptors that one would hold: call it before the first read.
void reader_share(reader *r, int readers);
void reader_close(reader *r);

// Reads that failed first and succeeded later, and the bytes that were read. Any thread.
void reader_counts(const reader *r, int64_t *retries, int64_t *read);

// true: a read that waits for its next retry fails now with ERR_INTERRUPTED, and so do later ones. false: retries work
// again.
void reader_cancel(reader *r, bool cancelled);

// Notes which file this is, and how large. It must be a regular one with something in it; `expected` says of what kind,
// for messages. *f must be zero; reader_forget() it in any case, before the reader is closed.
err_t reader_find(data_file *f, const char *path, const char *expected);
void reader_forget(reader *r, data_file *f);

// Opens f->fd if it is closed, and checks that it is still the same file: ERR_DATA if not.
err_t reader_hold(reader *r, data_file *f);
// Closes the descriptor until the next read.
void reader_drop(reader *r, data_file *f);

// Reads n bytes at offset. A read that failed with ERR_IO is retried after 10 ms, 20 ms, 40 ms, ...; returns the last
// failure. ERR_DATA: the file ends before.
err_t reader_read(reader *r, data_file *f, int64_t offset, void *dst, int64_t n);

#endif
