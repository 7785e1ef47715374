// trainer/checkpoint/writer.h: a thread of this rank that writes checkpoints while steps go on. The steps wait for one
// copy of what the rank owns; from then on they and the checkpoint have nothing in common.
//
//   steps     ... 100 [copy] 101  102  103  104 [prune, best, log] 105 ...
//   writer             [ write, sync, read back, copy to the next node, commit ]
//
// The writers of all ranks save together, over a communicator of their own, in the order that save.c has. That one has
// ended is known on each rank alone: the ranks agree on the step after which they call ckpt_writer_finish.
#ifndef TRAINER_CHECKPOINT_WRITER_H
#define TRAINER_CHECKPOINT_WRITER_H

#include "trainer/checkpoint/checkpoint.h"

typedef struct ckpt_writer ckpt_writer;

// What has been written.
typedef struct ckpt_written {
    run_progress at;
    char hash[17];             // as ckpt_hash
    double copy_ms, write_ms;  // for which the steps waited; from then on until it was written
} ckpt_written;

// Bytes of host memory that it takes on a rank that owns so many values: beside a few kilobytes of tables.
static inline int64_t ckpt_writer_bytes(int64_t values) { return values * (int64_t)sizeof(float); }

// Collective. beside: of all ranks of s, in the same order, of host memory, and nobody else's; NULL: alone. Everything
// given outlives the writer.
err_t ckpt_writer_open(ckpt_writer **out, const char *run_dir, const ckpt_state *s, comm *beside, fault_list *faults);
// Local. Waits for what is being written: when ranks are lost that ends soon, without cleaning up (ckpt_clean).
void ckpt_writer_close(ckpt_writer *w);

// Local. Copies the parts of s, which are in host memory (state_fetch), and returns; DIR/log.jsonl comes to disk before
// the checkpoint does. Nothing may be under way.
void ckpt_writer_begin(ckpt_writer *w, const ckpt_state *s, const run_progress *at);

// Of what was begun and is not finished. *at: its progress.
bool ckpt_writer_busy(const ckpt_writer *w);
const run_progress *ckpt_writer_at(const ckpt_writer *w);
// Has it been written, or failed?
bool ckpt_writer_ended(ckpt_writer *w);

// Local. Waits until it has. Returns what ckpt_save does, the same on all ranks.
err_t ckpt_writer_finish(ckpt_writer *w, ckpt_written *out);

#endif
