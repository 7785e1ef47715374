// trainer/config/pipes.c: see trainer/config/pipes.h.
#include "trainer/config/pipes.h"

#include "comm/ordered.h"

#include <stdlib.h>
#include <string.h>

enum { UNITS_MOST = 1 << 26 };  // of all ranks

bool pipe_has_chunks(pipeline_kind schedule, int64_t chunks, int *wanted) {
    *wanted = schedule == PIPELINE_ZB_V ? 2 : 1;
    return schedule == PIPELINE_INTERLEAVED ? chunks >= 1 : chunks == *wanted;
}

int64_t pipe_most_micros(int64_t ranks, int64_t chunks) { return UNITS_MOST / 3 / ranks / chunks; }

pipe_fault pipe_judge(pipeline_kind schedule, int64_t ranks, int64_t chunks, int64_t micros) {
    int wanted;
    if (ranks < 1 || micros < 1) return PIPE_EMPTY;
    if (!pipe_has_chunks(schedule, chunks, &wanted)) return PIPE_CHUNKS;
    if (schedule == PIPELINE_INTERLEAVED && micros % ranks) return PIPE_GROUPS;
    if (schedule == PIPELINE_ZB_V && micros < ranks) return PIPE_TOO_FEW;
    return micros > pipe_most_micros(ranks, chunks) ? PIPE_TOO_MANY : PIPE_FITS;
}

bool pipe_cuts(const char *text, int count, int blocks, int *cut) {
    const char *at = text;
    int stages = 0;
    int64_t sum = 0;
    if (cut) cut[0] = 0;
    for (at += strspn(at, " ,"); *at; at += strspn(at, " ,")) {
        char *end;
        long n = strtol(at, &end, 10);
        if (end == at || n < 1 || n > blocks || (*end && !strchr(" ,", *end)) || stages == count) return false;
        sum += n;
        stages++;
        if (cut) cut[stages] = (int)sum;
        at = end;
    }
    return stages == count && sum == blocks;
}

bool pipe_deal(const char *text, int ranks, int64_t lanes, int64_t *count) {
    const char *at = text;
    int found = 0;
    int64_t sum = 0;
    for (at += strspn(at, " ,"); *at; at += strspn(at, " ,")) {
        char *end;
        long n = strtol(at, &end, 10);
        if (end == at || n < 0 || n > lanes || (*end && !strchr(" ,", *end)) || found == ranks) return false;
        if (count) count[found] = n;
        sum += n;
        found++;
        at = end;
    }
    return found == ranks && sum == lanes;
}

bool pipe_lanes(const config *c, const grid *g, int64_t *count) {
    int workers = grid_workers(g);
    if (!*c->parallel.deal && !g->servers) return false;
    int64_t span = c->reduce.compress_span;
    for (int k = 0; k < g->data; k++)
        count[k] = k < workers ? lane_deal_of(c->resolved.lanes / span, workers, k, false).count * span : 0;
    return !*c->parallel.deal || pipe_deal(c->parallel.deal, workers, c->resolved.lanes, count);
}

int64_t pipe_micros_of(const config *c, int64_t lanes) {
    return (lanes ? lanes : 1) * (c->batch.global / c->resolved.lanes / c->resolved.micro);
}

int64_t pipe_micros(const config *c, const grid *g, int d) {
    // lanes take turns where ranks keep shares of gradients, and where each lane travels by itself
    bool turns = (grid_group_size(g, GROUP_DATA) > 1 && c->parallel.zero >= 2) || c->reduce.compress != SEND_ALL;
    int64_t deal[g->data + 1];
    bool dealt = pipe_lanes(c, g, deal);
    lane_table t = {c->resolved.lanes / grid_islands(g), g->data, turns, dealt ? deal : NULL, c->reduce.compress_span};
    return pipe_micros_of(c, turns ? lane_table_turns(&t) * lane_table_span(&t) : lane_table_count(&t, d));
}
