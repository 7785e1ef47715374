// trainer/checkpoint/copy.h: copies files of a checkpoint from node to node.
#ifndef TRAINER_CHECKPOINT_COPY_H
#define TRAINER_CHECKPOINT_COPY_H

#include "base/io.h"
#include "trainer/checkpoint/manifest.h"

enum { CKPT_PIECE = 1 << 20 };  // bytes sent at a time

// A file that arrives in pieces, under a temporary name. After a failure further pieces are discarded, so that the
// sender never waits; the failure is returned at the end.
typedef struct ckpt_incoming {
    int fd;
    char path[IO_PATH];
    fault_list *faults;
    err_record why;
} ckpt_incoming;
void incoming_open(ckpt_incoming *in, const char *dir, const char *name, fault_list *faults);
void incoming_put(ckpt_incoming *in, const void *bytes, size_t n);
// Fsync, verify against the manifest, rename into place. Returns the first failure; the temporary file is then gone.
err_t incoming_close(ckpt_incoming *in, const manifest *m, int file);

// Collective. Copies each rank's files in `dir` to the next node, into its `dir`, under the same names, and verifies
// them.
err_t ckpt_copy_to_buddies(const char *dir, const manifest *m, const ckpt_state *s, fault_list *faults);

#endif
