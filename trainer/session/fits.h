// trainer/session/fits.h: can what a run is about to allocate be had at all?
#ifndef TRAINER_SESSION_FITS_H
#define TRAINER_SESSION_FITS_H

#include "base/memory.h"
#include "comm/comm.h"

// Collective. of_device, of_host: bytes that this rank will have and use, on the device and beside it. ERR_CONFIG, on
// all ranks: those of some machine need more than it has, or its control group allows, together; a process may not
// have as many; or a GPU is too small. That other programs have what is needed at the moment is no reason: it may be
// free, or swapped out, when the run needs it.
err_t memory_fits(comm *ranks, stream *s, device *dev, int64_t of_device, int64_t of_host);

// A part of it: is there room for what this rank and, with it, all ranks of its machine need?
err_t memory_judge(const memory_room *m, int64_t mine, int64_t sum, int locals);

// For what allocates after that: adds to its ERR_CONFIG, memory that can't be had, what would need less. Any other code
// passes. Returns the code.
err_t memory_advise(err_t rc);

#endif
