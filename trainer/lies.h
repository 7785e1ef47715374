// trainer/lies.h: what follows when ranks that should hold the same do not (trainer/step/replicas.h).
//
//   a run that heals          all go back to what was last compared, and compute the steps again. Of two that did not
//                             agree it is then known who was wrong. Who lies twice ends the run: it is broken.
//   a run that does not       it ends. What it has saved was compared before.
#ifndef TRAINER_LIES_H
#define TRAINER_LIES_H

#include "trainer/log/monitor.h"
#include "trainer/session/session.h"
#include "trainer/step/replicas.h"

enum { LIES_RANKS = 1024 };

// All zeros but `same` when a process begins; it outlives worlds.
typedef struct lies {
    int64_t same;                // the newest step after which all held the same; -1: not known
    uint8_t points[LIES_RANKS];  // 2 for each lie, 1 where another one may have lied as well
    // Of the last lie that two ranks may have told: who, after which step, and what this rank had then.
    int rank[2];
    int64_t step;  // 0: none, or it is settled
    replica_copy had;
} lies;

// Collective, between steps, as what follows. v: do they differ, and how? It counts against the suspects. An event of m
// says who of two it was, once that is known.
err_t lies_look(lies *l, session *x, monitor *m, replica_verdict *v);

// Before the ranks become others.
void lies_leave(lies *l);

// Is it once too often?
bool lies_are_enough(const lies *l, const replica_verdict *v);

// The event, by rank 0. goes_back: the run goes on.
void lies_say(const lies *l, const session *x, monitor *m, const replica_verdict *v, bool goes_back);

// How the run ends, the same on all ranks. saved: the step of the newest checkpoint, -1: none.
err_t lies_end(const lies *l, session *x, const replica_verdict *v, int64_t saved);

#endif
