// trainer/plan/plan_ranks.h: a plan of all ranks of a run. Most of them do what others do, so that of each kind one is
// planned: thousands of ranks take as long as a few. A test compares with a plan of each.
#ifndef TRAINER_PLAN_PLAN_RANKS_H
#define TRAINER_PLAN_PLAN_RANKS_H

#include "trainer/plan/plan.h"

// As the INI says, for all nodes. ERR_CONFIG: its layout has no such ranks.
err_t plan_world_open(plan_world *w, const config *c);

// "128x8", or "128x8x4": nodes of so many devices each, in so many racks of as many nodes; or a file that says so
// (trainer/costs/cluster_file.h). None of them need exist. ERR_USAGE; ERR_CONFIG: a mistake in the file.
// plan_world_made: ERR_CONFIG, too, if the INI's layout has no such ranks.
err_t plan_world_any(plan_world *w, const char *text);
err_t plan_world_made(plan_world *w, const config *c, const char *text);
void plan_world_close(plan_world *w);

enum { PLAN_WORLD_MOST = 1 << 17 };

typedef struct plan_ranks {
    int world, kinds;
    plan_rank *kind;  // [kinds]
    int *of;          // [world] of each rank
} plan_ranks;

static inline const plan_rank *plan_of(const plan_ranks *p, int rank) { return &p->kind[p->of[rank]]; }

// each: every rank is planned.
err_t plan_ranks_open(plan_ranks *p, const config *c, const plan_world *w, bool each);
void plan_ranks_close(plan_ranks *p);

#endif
