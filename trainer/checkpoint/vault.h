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
// Everything in a generation has a CRC-32: of each part's values, and of the rest. What does not agree when it is read,
// or arrives at the next node, is not there: the other copy is used, or the step before.
//
// All ranks write the snapshot of a step before any of them begins the next one after it, and nobody writes while the
// ranks look for one. So there is always a step of which every part is there.
//
// What ranks hold alike need not go back that far when some of them are lost: before they leave the world, those that
// are left may write their live state, each a share of it and that of the rank before, so that all of it is there
// whichever of them was lost. They say what all of it sums up to, too: a bit that flipped since the last snapshot is
// seen.
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
    int newest;        // of own: what was written last
    vault_area *copy;  // (copies, 2): of ranks of the node before
    int copies;
    fault_list *faults;  // NULL: none
    err_record *damage;  // (=) the newest damage that was found, where this is not NULL; its owner's
} vault;

// A file for the ranks of a node, which closes on exec; -1: there is none, err_last() says why.
int vault_make(void);

// This rank's. fd stays the caller's, and is kept open as long as the vault.
void vault_open(vault *v, int fd, int local);
void vault_close(vault *v);

// Bytes of memory that the generations of a rank take, beside a few kilobytes of tables, and rows on demand
// (vault_rows.h). values: that it owns; live: of its live state, 0: it keeps none.
int64_t vault_bytes(int64_t values, int64_t live);

// Writes this rank's parts of s, as they are in host memory (state_fetch), with the progress. saved: the step of the
// newest checkpoint on disk, -1: none.
err_t vault_save(vault *v, const ckpt_state *s, const run_progress *at, int64_t saved);

// Who keeps what rank r has: a rank of the next node, its ranks in turn; on one node, the next rank.
int vault_keeper(const comm *c, int r);

// Of how many ranks of the node before this one keeps a copy.
int vault_keeps(const comm *c);

// Collective: sends what vault_save has written last to the next node's file, and keeps what comes from the node
// before. One node: nothing.
err_t vault_mirror(vault *v, comm *c, stream *s);

// A range of one of s's tensors, as this rank holds it. of, sum: the first element of the larger range that it was cut
// from, all of which this rank holds, and a sum over that range.
typedef struct vault_range {
    int group, tensor;
    int64_t first, count, of;
    uint64_t sum;
    const float *data;  // where copies of `from` can read
} vault_range;

// Writes what this rank holds of a step that its world did not live to save: only if it is newer than what is there,
// and in place of the older generation. from: copies, and is waited for.
err_t vault_save_live(vault *v, const ckpt_state *s, const vault_range *range, int n, const run_progress *at,
                      int64_t saved, stream *from);

// What is wanted, and what was found.
typedef struct vault_recall {
    int64_t first;  // the oldest step of use
    int64_t live;   // the step whose live state is of use, -1: of none
    int64_t step;   // -1: there is none, and nothing was changed
    bool is_live;
    int64_t saved;   // as it was given with the step
    char torn[128];  // in which tensor live states of a newer step differ, so that it is not used; "": in none
} vault_recall;

// Collective: puts the newest step of which everything is on some node into the parts and scalars of s on all ranks,
// wherever it is.
err_t vault_gather(const vault *v, ckpt_state *s, vault_recall *r, run_progress *at);

#endif
