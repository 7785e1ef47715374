// base/scratch.h: a file for what memory has no room for. It loses its name as soon as it is made: it goes with the
// process, however that ends, no later run can take it for state, and two runs may share a directory.
#ifndef BASE_SCRATCH_H
#define BASE_SCRATCH_H

#include "base/io.h"

typedef struct scratch {
    char path[IO_PATH];  // as errors say it
    const char *dir;
    int fd;              // -1: it is not open
    fault_list *faults;  // FAULT_SPILL_READ, _WRITE, _FLIP; NULL: none
} scratch;

// Makes an empty file in `dir`, which is there already and outlives it; name: for people who read errors. ERR_IO: it
// can't be made; then x is closed.
err_t scratch_open(scratch *x, const char *dir, const char *name, fault_list *faults);
// Gives the disk's space back.
void scratch_close(scratch *x);

// Any threads, each at another place. ERR_IO names file, offset and errno; what was never written reads as zeros, or is
// ERR_DATA beyond the file's end. A fault that flips a bit writes another one than `data` has, and leaves `data` as it
// is in the end.
err_t scratch_read(const scratch *x, int64_t at, void *to, size_t n);
err_t scratch_write(const scratch *x, int64_t at, char *data, size_t n);

#endif
