// test/support/pipelines.h: small pipelines whose units take the same time in every stage.
#ifndef TEST_SUPPORT_PIPELINES_H
#define TEST_SUPPORT_PIPELINES_H

#include "trainer/step/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { STAGES_MOST = 256, TEXT = 8192 };

// F = 1, B = 2, I = 1, W = 1 of every stage
typedef struct rows {
    double at[STAGES_MOST][UNIT_KINDS];
} rows;

static inline rows rows_of(double f, double i, double w) {
    rows r;
    for (int s = 0; s < STAGES_MOST; s++) {
        r.at[s][UNIT_FORWARD] = f, r.at[s][UNIT_BACKWARD] = i + w;
        r.at[s][UNIT_INPUTS] = i, r.at[s][UNIT_WEIGHTS] = w;
    }
    return r;
}

static inline bool halves(pipeline_kind kind) { return kind == PIPELINE_ZB_H1 || kind == PIPELINE_ZB_V; }

static inline pipeline_layout layout_of(pipeline_kind kind, int p, int m) {
    int v = kind == PIPELINE_ZB_V || kind == PIPELINE_INTERLEAVED ? 2 : 1;
    return (pipeline_layout){.kind = kind, .ranks = p, .micros = m, .chunks = v};
}

static inline timeline timeline_at(const pipeline_layout *l, const rows *r, double transfer, int depth) {
    timeline_costs c = {r->at, transfer, depth};
    timeline t;
    if (timeline_of(l, &c, &t) != ERR_OK)
        fail_msg("%s, p = %d, m = %d, v = %d, ahead %d, depth %d: %s", pipeline_name(l->kind), l->ranks, l->micros,
                 l->chunks, l->ahead, depth, err_last()->text);
    return t;
}

#endif
