// trainer/checkpoint/vault.h: the state of a run in memory that outlives the processes of its ranks.
//
// It is one file without a name, made by a node's supervisor before it forks: for each of the node's ranks so many
// addresses that none is ever short of them, of which only what is written takes memory. A rank writes snapshots of the
// parts that it owns, in turn into two generations, so that one is always whole. When ranks were lost, each rank of the
// next world reads what it owns from wherever it is, however the parts are dealt by then.
//
//   rank 0   [ head | table of parts | parts ]  [ head | table of parts | parts ]     two generations
//   rank 1   [ ...
//
// All ranks write the snapshot of a step before any of them begins the next one after it, and nobody writes while the
// ranks look for one. So there is always a step of which every part is there.
#ifndef TRAINER_CHECKPOINT_VAULT_H
#define TRAINER_CHECKPOINT_VAULT_H

#include "trainer/checkpoint/checkpoint.h"

typedef struct vault_area {
    char *at;  // NULL: not mapped
    size_t bytes;
} vault_area;

typedef struct vault {
    int fd;  // -1: there is none
    int local, locals;
    vault_area own[2];
} vault;

// A file for so many ranks, which closes on exec; -1: there is none, err_last() says why.
int vault_make(int locals);

// This rank's. fd stays the caller's, and is kept open as long as the vault.
void vault_open(vault *v, int fd, int local, int locals);
void vault_close(vault *v);

// Bytes of memory that the generations of a rank take that owns so many values: beside a few kilobytes of tables.
int64_t vault_bytes(int64_t values);

// Writes this rank's parts of s, as they are in host memory (state_fetch), with the progress. saved: the step of the
// newest checkpoint on disk, -1: none.
err_t vault_save(vault *v, const ckpt_state *s, const run_progress *at, int64_t saved);

// The newest step before `below` of which everything is there that this rank owns in s; -1: there is none.
int64_t vault_newest(const vault *v, const ckpt_state *s, int64_t below);

// Puts that step's values into the parts and scalars of s. ERR_DATA: something is not there. *saved: as it was given.
err_t vault_load(const vault *v, ckpt_state *s, int64_t step, run_progress *at, int64_t *saved);

#endif
