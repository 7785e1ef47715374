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
// Where a run has several nodes, each rank sends its generation to a rank of the next node as well, whose file keeps it
// behind those of its own ranks: what is lost with a node is there. A step has one state, whoever computed it, so a
// copy of an earlier world is as good as one of this.
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
    int local;
    vault_area own[2];
    vault_area *copy;  // (copies, 2): of ranks of the node before
    int copies;
} vault;

// A file for the ranks of a node, which closes on exec; -1: there is none, err_last() says why.
int vault_make(void);

// This rank's. fd stays the caller's, and is kept open as long as the vault.
void vault_open(vault *v, int fd, int local);
void vault_close(vault *v);

// Bytes of memory that the generations of a rank take that owns so many values: beside a few kilobytes of tables.
int64_t vault_bytes(int64_t values);

// Writes this rank's parts of s, as they are in host memory (state_fetch), with the progress. saved: the step of the
// newest checkpoint on disk, -1: none.
err_t vault_save(vault *v, const ckpt_state *s, const run_progress *at, int64_t saved);

// Of how many ranks of the node before this one keeps a copy.
int vault_keeps(const comm *c);

// Collective: sends what vault_save has written last to the next node's file, and keeps what comes from the node
// before. One node: nothing.
err_t vault_mirror(vault *v, comm *c, stream *s);

// Collective, over several nodes: puts the newest step after `after` of which everything is on some node into the parts
// and scalars of s on all ranks, wherever it is. *step: -1 where there is none, and nothing is changed.
err_t vault_gather(const vault *v, ckpt_state *s, int64_t after, int64_t *step, run_progress *at, int64_t *saved);

// The newest step before `below` of which everything is there that this rank owns in s; -1: there is none.
int64_t vault_newest(const vault *v, const ckpt_state *s, int64_t below);

// Puts that step's values into the parts and scalars of s. ERR_DATA: something is not there. *saved: as it was given.
err_t vault_load(const vault *v, ckpt_state *s, int64_t step, run_progress *at, int64_t *saved);

#endif
