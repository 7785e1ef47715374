// test/support/search.h: models, tables of costs and worlds for tests of the planner.
#ifndef TEST_SUPPORT_SEARCH_H
#define TEST_SUPPORT_SEARCH_H

#include "gpu/paper.h"
#include "gpu/profile.h"
#include "test/support/ranks.h"
#include "trainer/costs/sheets.h"
#include "trainer/plan/plan_ranks.h"
#include "trainer/plan/price.h"
#include "trainer/plan/search.h"
#include "trainer/session/restore.h"

#include <math.h>

static const char gpt[] = "[model]\nlayers = 4\nheads = 4\nembed = 32\ncontext = 16\nvocab = 131\n"
                          "[batch]\nglobal = 16\nmicro = 1\nlanes = 16\n[reduce]\nbucket_mb = 0.02\n";
static const char llama[] =
    "[model]\ntype = llama\nlayers = 6\nheads = 4\nkv_heads = 4\nembed = 64\ncontext = 16\nvocab = 131\ntied = yes\n"
    "[batch]\nglobal = 32\nmicro = 2\nlanes = 16\n[parallel]\nslices = 4\n";

// A machine on which everything takes as long as its bytes.
static const char bytes_only[] =
    "lockstep costs 2\ndevice test\nmemory %g bytes\ncopy %g bytes/s 0.1 spread\nlaunch %g us 0.1 spread\n"
    "link node %g bytes/s %g us 0.1 spread\nlink rack %g bytes/s %g us 0.2 spread\nend 5\n";

static inline void table_of(costs *k, double memory, double slower) {
    char text[1024];
    snprintf(text, sizeof text, bytes_only, memory, 1e10 / slower, 1 * slower, 1e9 / slower, 2 * slower, 1e8 / slower,
             20 * slower);
    OK(costs_parse(k, "test", text));
}

static inline void world_of(plan_world *w, const char *text) { OK(plan_world_any(w, text)); }

// The INI's own layout by this table; *p: the first kind of its ranks.
static inline void layout_of(search_result *r, plan_rank *p, const char *dir, const char *model, const char *more,
                             const costs *k, const char *world) {
    config c;
    plan_world w;
    plan_ranks all;
    rank_config(&c, dir, model, more);
    world_of(&w, world);
    OK(search_run(r, &c, &w, k, &(search_free){.own = true}));
    OK(plan_ranks_open(&all, &c, &w, false));
    *p = all.kind[0];
    plan_ranks_close(&all), plan_world_close(&w);
}

static inline void own_layout(search_result *r, plan_rank *p, const char *dir, const char *model, const char *more,
                              const costs *k) {
    layout_of(r, p, dir, model, more, k, "1x1");
}

#endif
