// trainer/checkpoint/vault_choose.h: decisions about state in memory: which of two generations a snapshot overwrites;
// from which step the ranks that are left go on, and whose copies they read. Plain lists in, a decision out, so that a
// test can walk through all that may happen (test/test_vault_choose.c).
#ifndef TRAINER_CHECKPOINT_VAULT_CHOOSE_H
#define TRAINER_CHECKPOINT_VAULT_CHOOSE_H

#include <stdint.h>

enum { GENERATIONS = 2 };

// Into which of a place's generations goes the snapshot of `step`: the newest of an earlier step stays, as the ranks
// may have no other one in common. of: the steps that they hold, -1: none that is whole.
int vault_overwrites(const int64_t of[GENERATIONS], int64_t step);

// A range of a tensor: that a generation of a node holds; or that a rank needs, and then step and the rest are unused.
typedef struct vault_piece {
    int32_t group, tensor, owner, live;  // owner: a node; or a rank
    int64_t step, first, count;
    int64_t area, offset;  // in the node's set; of the values in it
    int64_t of;            // of live state, as in vault_range
    uint64_t sum;
} vault_piece;

typedef struct vault_list {
    vault_piece *at;
    int n;
} vault_list;

// Into the order that the other functions read: the newest step first.
void vault_sort(vault_list *has);

// What holds element `first` of the tensor that is needed, at that step: the node's own, or else the lowest node's;
// NULL: nothing does.
const vault_piece *vault_holder(const vault_list *has, const vault_piece *need, int64_t step, int64_t first, int node);

typedef struct vault_chosen {
    int64_t step;             // the newest of which all that is needed is there; -1: there is none
    const vault_piece *torn;  // of a newer one that is all there, and not used: its live states differ; NULL: none is
} vault_chosen;

// The same on all ranks, as all have the same lists.
vault_chosen vault_choose(const vault_list *has, const vault_list *needs);

#endif
