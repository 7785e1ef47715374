// trainer/plan/choice.h: a layout of a run, as numbers: what a search varies.
#ifndef TRAINER_PLAN_CHOICE_H
#define TRAINER_PLAN_CHOICE_H

#include "trainer/config/config.h"

typedef struct search_choice {
    int tensor, context, pipeline, data, zero, chunks;
    pipeline_kind schedule;
    recomputation recompute;
    offload_kind offload;
    bool sequence;
    int64_t micro, lanes, slices;
} search_choice;

// [batch] micro and lanes of a choice, as an INI has them: the lanes of a span ([batch] bn_span) are computed as one.
static inline int64_t search_micro(const config *c, const search_choice *x) { return x->micro / c->resolved.span; }
static inline int64_t search_lanes(const config *c, const search_choice *x) { return x->lanes * c->resolved.span; }

#endif
