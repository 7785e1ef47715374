// base/fault.h: failures on demand, so that recovery is tested.
//
// `[run] faults = write@3, read@5x2` makes the third write fail, and the fifth and sixth read; `unit@17:2` is for rank
// 2 alone. Code that can fail calls fault_hit() where the operating system would report the error; a list that is NULL
// or empty costs one load.
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include "base/err.h"
#include "base/words.h"

#include <stdatomic.h>
#include <stdbool.h>

// Where something fails, or is slow:
#define FAULT_WORDS(X) \
    X(FAULT_READ, "read")       /* a dataset read returns EIO */ \
    X(FAULT_WRITE, "write")     /* a checkpoint write returns ENOSPC */ \
    X(FAULT_SYNC, "sync")       /* an fsync returns EIO */ \
    X(FAULT_RENAME, "rename")   /* a commit rename returns EIO */ \
    X(FAULT_FLIP, "flip")       /* a checkpoint write succeeds, and a bit of what it wrote is wrong */ \
    X(FAULT_SLOW, "slow")       /* a dataset read takes FAULT_SLOW_MS longer */ \
    X(FAULT_LIE, "lie")         /* a step is over, and a bit of what the rank holds of the weights is wrong */ \
    X(FAULT_NAN, "nan")         /* a step's gradient is summed, and a number of what this rank owns of it is NaN */ \
    X(FAULT_DRAG, "drag")       /* a micro-batch takes FAULT_DRAG_MS longer to compute */ \
    X(FAULT_TWICE, "twice")     /* a micro-batch takes as long again: of a rank at half speed */ \
    X(FAULT_QUARTER, "quarter") /* ... and three times as long: at a quarter of it */ \
    X(FAULT_SPILL_READ, "spill_read")   /* a read of what memory has no room for returns EIO (base/spill.h) */ \
    X(FAULT_SPILL_WRITE, "spill_write") /* a write of it returns ENOSPC */ \
    X(FAULT_SPILL_FLIP, "spill_flip")   /* a write of it succeeds, and a bit of what it wrote is wrong */ \
    FAULT_KILLS(X)
// ... and where the process is killed. Of a rank:
#define FAULT_KILLS(X) \
    X(FAULT_UNIT, "unit")         /* before it computes a unit of a pipeline's table */ \
    X(FAULT_UPDATE, "update")     /* before it updates a piece of the weights: what was agreed is half done */ \
    X(FAULT_SAVE, "save")         /* a checkpoint: at its begin, with its files, its manifest, and committed */ \
    X(FAULT_BEST, "best")         /* between the two links to the best checkpoint */ \
    X(FAULT_PRUNE, "prune")       /* before older checkpoints are removed */ \
    X(FAULT_SNAPSHOT, "snapshot") /* before a tensor of a snapshot in memory is written */ \
    X(FAULT_MIRROR, "mirror")     /* its copy for the next node: before it comes, and before it counts */ \
    X(FAULT_LEAVE, "leave")       /* another rank was lost: before the world is left, and after */ \
    X(FAULT_KEEP, "keep")         /* ... and what it held alike with others is half written */ \
    X(FAULT_LEFT, "left")         /* it has said so, and waits */ \
    X(FAULT_MEET, "meet")         /* before the ranks of a world meet */ \
    X(FAULT_MET, "met")           /* and after */ \
    X(FAULT_RECALL, "recall")     /* before it reads a snapshot of its node */ \
    X(FAULT_GATHER, "gather")     /* one of several nodes: before what it lacks comes, and after */ \
    X(FAULT_BEGIN, "begin")       /* it has the state: before, and after, the first snapshot of its world */ \
    X(FAULT_TURN, "turn")         /* a node comes or goes: after the step that is saved for it */ \
    FAULT_KILLS_OF_NODES(X)
// ... of a node's council, and of its supervisor: `:1` is for node 1.
#define FAULT_KILLS_OF_NODES(X) \
    X(FAULT_TICK, "tick")     /* the council, before it judges */ \
    X(FAULT_VOTE, "vote")     /* the council has voted, and its supervisor's memory does not have it yet */ \
    X(FAULT_VOTED, "voted")   /* ... has it, and the others have not heard it */ \
    X(FAULT_RULE, "rule")     /* the council has a new record, and its supervisor has not */ \
    X(FAULT_FOLLOW, "follow") /* the supervisor hears of a new epoch */ \
    X(FAULT_GIVE, "give")     /* the supervisor, before it gives a world to its ranks */

typedef enum fault_point { FAULT_WORDS(WORD_ENUM) FAULT_POINTS } fault_point;

enum { FAULT_SLOW_MS = 250, FAULT_DRAG_MS = 10 };

typedef struct fault_list {
    atomic_long seen[FAULT_POINTS];                 // how often the point was passed
    atomic_long *shared;                            // counted there instead: by all processes of a rank. NULL: here
    long first[FAULT_POINTS], count[FAULT_POINTS];  // fail passes first .. first+count-1 (from 1); first = 0: never
    int only[FAULT_POINTS];                         // the rank that it is for; -1: all
    // this process's, -1 until it is known: what is for one rank is not counted before
    int rank;
} fault_list;

// Parses "point@first[xcount][:rank], ..." into *list. ERR_CONFIG with the valid points on anything else.
err_t fault_parse(fault_list *list, const char *text);

// Counts one pass of the point and returns whether it must fail. Any thread.
bool fault_hit(fault_list *list, fault_point point);

// ... and where it must, kills this process.
void fault_kill(fault_list *list, fault_point point);

#endif
