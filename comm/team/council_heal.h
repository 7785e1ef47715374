// comm/team/council_heal.h: decisions about state: whether a step is applied, when a snapshot is taken, from which step
// and whom a world continues, which checkpoint may be removed. Plain numbers in, a decision out.
#ifndef COMM_TEAM_COUNCIL_HEAL_H
#define COMM_TEAM_COUNCIL_HEAL_H

#include "comm/team/council_record.h"

// --- the end of a step -----------------------------------------------------------------------------------------------

// Is the step applied? ok_sum: of the words that ride in the all_reduce which ends it, each 1 if its rank was not
// revoked after its gradient's sums. revoked: is this rank now? Both are needed: an aborted sum may be anything, and a
// rank that was revoked later may already hold garbage.
bool council_commit(int64_t ok_sum, int world, bool revoked);

// --- snapshots -------------------------------------------------------------------------------------------------------

enum { VAULT_SLOTS = 2 };

// The newest generation that is known to be sealed by all: what was known, or what these reports, one a rank, say.
int64_t council_sealed(int64_t known, const int64_t *sealed, int ranks);

// Into which slot goes a snapshot of `step`; -1: none is due, or the newest is not sealed by all yet. generation: the
// steps that the slots hold, -1: none. sealed: of council_sealed. The same on all ranks, as all read the same reports.
int council_snap(const int64_t generation[VAULT_SLOTS], int64_t sealed, int64_t step, int64_t every);

// --- healing ---------------------------------------------------------------------------------------------------------

enum { HEAL_STEPS = 64 };

// Parts `first` .. `first + count - 1` of the state at `step` that `holder` has: in use by its rank (live), or a copy.
typedef struct heal_holding {
    int holder, first, count;
    int64_t step;
    bool live;
    bool torn;    // it was being overwritten, and its digest has not agreed since
    bool sealed;  // a copy of which it has
} heal_holding;

// What `holder` of the world to come needs.
typedef struct heal_want {
    int holder, first, count;
} heal_want;

typedef struct heal_move {
    int part, from, to;  // from = to: it has it already, in a copy or in use
} heal_move;

typedef struct heal_plan {
    int64_t step;  // -1: no step is whole, so all load from disk
    bool twice;    // the loss of any one holder would leave all parts
    int moves;
    char why[COUNCIL_WHY];
} heal_plan;

// Of the steps whose parts are all there: the newest that survives the loss of any one holder, else the newest, else
// disk. move (=) who sends what, in the order of the wants; each part comes from its receiver if that has it, else from
// the holder that sends least so far. ERR_INTERNAL: `room` moves or HEAL_STEPS steps are too few, or numbers are out of
// range.
err_t heal_choose(heal_plan *out, heal_move *move, int room, const heal_holding *of, int holdings, int parts,
                  const heal_want *wants, int n);

// --- checkpoints -----------------------------------------------------------------------------------------------------

// Parts of the checkpoint of `step` on node `holder`'s disk: heal_holding with `sealed` for verified.
// May the checkpoint of `step` be removed? Only when a newer one is complete over the present members.
bool council_prune(const heal_holding *of, int holdings, int parts, const node_set *members, int64_t step);

#endif
