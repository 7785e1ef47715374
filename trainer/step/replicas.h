// trainer/step/replicas.h: do the ranks still hold the same? What several ranks have, each computes from the same
// numbers by the same steps, so it is equal to the last bit. If it is not, a bit has flipped in somebody's memory, or
// somebody computes wrongly: a rank lies, and nobody else notices, since sums are the sums of all.
//
//   members of a data group     masters, the optimizer's arrays and the weights in use, as far as the ZeRO stage keeps
//                               them whole; the counts of steps, and the loss scale
//   members of a tensor group   the rows that are not divided, as far as each keeps them
//
// Of three or more that should have the same, most are right. Where only two should, it is the one who differs from its
// data group and from its tensor group, if it has both; else it can't be known. What one rank alone has (a shard of
// ZeRO 1 to 3) is not covered, nor are weights in use that the next update overwrites before somebody looks.
#ifndef TRAINER_STEP_REPLICAS_H
#define TRAINER_STEP_REPLICAS_H

#include "trainer/step/state.h"

enum { REPLICA_NAME = 128 };

typedef struct replica_verdict {
    bool differ;
    int liar;                   // rank of all; -1: not known
    int rank[2];                // the first two of the suspects, where it is not known
    int tensors;                // how many differ, of those that the lowest suspect has
    char tensor[REPLICA_NAME];  // the first of them, and its number for replica_keep
    int index;
} replica_verdict;

// Collective among all ranks, which all get the same verdict. Between steps, when nothing is queued.
err_t replicas_compare(train_state *t, replica_verdict *out);

// A sum over a tensor of FP32 masters (set 0) or of an array (1 on): another sum, if any one of its words is another.
// Not collective.
err_t replicas_sum(train_state *t, const tensor *of, int set, uint64_t *sum);

// Of two that differ, nobody can say who is right, until the steps are computed again: both have gone wrong since, as
// their sums are those of both, but only one has a number that is far off. So each keeps its copy of the tensor, and
// measures later how far it was from what is then there. Of 16 bits, and of what it does not hold, nothing is kept.
typedef struct replica_copy {
    float *at;  // NULL: none
    int index;
} replica_copy;
err_t replica_keep(train_state *t, int index, replica_copy *to);
err_t replica_far(train_state *t, const replica_copy *of, double *far);  // sum of squares; 0 without a copy
void replica_drop(replica_copy *c);

// For rehearsals: one bit of one number of which others have a copy, or, if there is none, of a master, or of a weight
// in use where the masters are in a file.
err_t replicas_flip(train_state *t);

#endif
