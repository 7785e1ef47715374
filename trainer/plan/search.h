// trainer/plan/search.h: `lockstep plan --search`: which layout of a run takes least time, by a table of costs
// (trainer/costs/costs.h). Layouts are enumerated, asked of the run's own rules, and put in order by a guess. Of those
// that come first the exact memory is planned, and the lists of actions that would run are simulated
// (trainer/step/simulate.h).
#ifndef TRAINER_PLAN_SEARCH_H
#define TRAINER_PLAN_SEARCH_H

#include "trainer/costs/costs.h"
#include "trainer/plan/choice.h"
#include "trainer/plan/plan.h"
#include "trainer/step/simulate.h"

// Keys of class `bits` that may be changed, too.
typedef struct search_free {
    bool micro, lanes, slices;
    bool own;  // nothing is: only the INI's own layout is looked at
} search_free;

// "micro,lanes": ERR_USAGE names what it is not.
err_t search_free_of(search_free *out, const char *keys);

enum { SEARCH_SIMULATED = 32, SEARCH_SHOWN = 5, SEARCH_CUTS = 256 };

typedef struct search_found {
    search_choice is;
    char stages[SEARCH_CUTS];  // where the blocks are cut, as [parallel] stages; "": by flops
    bool given;                // the INI's own
    double step_s, error_s;
    // the busiest rank's work; waiting for stages; communication left over: with slowed_s, the step
    double compute_s, waits_s, exposed_s;
    double bubble;               // the share of all ranks' time without communication in which they wait
    int slow;                    // devices that are slower than the others
    double slowed_s;             // how much longer a step takes because of them
    size_t memory, state;        // of the fullest rank: all; masters and what the optimizer keeps
    size_t host;                 // ... and what offload keeps in the host's memory, without it 0
    int64_t disk;                // ... and in a file
    int64_t sent[COSTS_LEVELS];  // by all ranks in a step
} search_found;

typedef struct search_result {
    int layouts, refused, too_large, simulated;
    search_free free;
    double memory;  // that a device has; 0: not known
    double slower;  // ranks that share a core, where some do; 1: none do
    int found;
    search_found at[SEARCH_SIMULATED + 1];  // the fastest first
    bool fits;                              // the INI's own layout is among them
    int64_t looked[FROMS];                  // how many times came from where
    double flops, units;                    // of a step
    char unit[16];                          // "tok"
} search_result;

// ERR_CONFIG: no layout fits.
err_t search_run(search_result *out, const config *c, const plan_world *w, const costs *k, const search_free *free);

// Plans and simulates a layout that was found once more, and shows it: its pipeline's ranks, of each the one with most
// lanes among those that have the same stages. What `see` returns is returned.
typedef err_t (*search_see)(void *ctx, const simulate_lists *lists, const simulation *s);
err_t search_walk(const search_found *f, const config *c, const plan_world *w, const costs *k, search_see see,
                  void *ctx);

// The INI lines of a choice, to paste. dst: SEARCH_LINES bytes. Returns dst.
enum { SEARCH_LINES = 1024 + CONFIG_TEXT };
const char *search_lines(const config *c, const search_found *f, char dst[SEARCH_LINES]);

// `lockstep plan --search`, or, with `own`, `plan --costs`: of the INI's own layout. cluster: as verb_plan's, and what
// a file says of links, slow devices and failures counts; costs: the table's name; free: NULL or as search_free_of.
typedef struct search_asked {
    const char *cluster, *costs, *free;
    const char *trace;  // NULL, or where the fastest layout's step is drawn: *.json (trainer/step/trace.h) or *.svg
    bool json, own;
} search_asked;
err_t verb_search(const config *c, const search_asked *asked, FILE *out);

#endif
