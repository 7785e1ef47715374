// trainer/plan/guess.c: see trainer/plan/guess.h.
#include "trainer/plan/guess.h"

#include <math.h>

// --- what is computed ------------------------------------------------------------------------------------------------

double guess_slowest_rank(const block_times *b, const search_choice *is, int *cut) {
    pipeline_layout l = {.kind = is->schedule, .ranks = is->pipeline, .chunks = is->chunks};
    double work[b->blocks + 1], most = 0;
    for (int i = 0; i < b->blocks; i++) work[i] = b->forward[i] + b->backward[i];
    stages_cut(work, b->blocks, is->pipeline * is->chunks, cut);
    for (int r = 0; r < is->pipeline; r++) {
        double sum = 0;
        for (int c = 0; c < is->chunks; c++) {
            int s = is->pipeline > 1 ? pipeline_stage_of(&l, r, c) : 0;
            for (int i = cut[s]; i < cut[s + 1]; i++) sum += work[i];
        }
        most = fmax(most, sum);
    }
    return most;
}

// The share of a pipeline's filling that each schedule is left with.
static double filling(const search_choice *is) {
    switch (is->schedule) {
    case PIPELINE_INTERLEAVED: return 1.0 / is->chunks;
    case PIPELINE_ZB_H1: return 1.0 / 3;
    case PIPELINE_ZB_V: return 0.1;
    default: return 1;
    }
}

int guess_workers(const guesser *g, const search_choice *is) {
    int n = is->data - (int)g->c->server.count;
    return n > 1 ? n : 1;
}

// Of an island's, the most of one of its workers.
static double lanes_of_worker(const guesser *g, const search_choice *is) {
    return ceil((double)is->lanes / (double)g->c->outer.islands / guess_workers(g, is));
}

// With offload, of an element: its gradient and weight on the way, 4 + 2 bytes; masters and two moments, read and
// written, in the host's memory or beside that on the disk.
static double updating(const guesser *g, const search_choice *is) {
    double values = g->values / is->tensor / is->pipeline / (is->zero ? is->data * is->context : 1);
    bool host = is->offload != OFFLOAD_NONE && g->k->host_link.is > 0,
         disk = is->offload == OFFLOAD_NVME && g->k->disk_copy.is > 0;
    double there = host ? values * (6 / g->k->host_link.is + 34 / g->k->host_copy.is) : 0;
    return disk ? fmax(there, 24 * values / g->k->disk_copy.is) : there;
}

// --- what is sent ----------------------------------------------------------------------------------------------------

static costs_level level_between(const plan_world *w, int a, int b) {
    comm_spot p = plan_where(w, a), q = plan_where(w, b);
    return p.rack != q.rack ? COSTS_SPINE : p.node != q.node ? COSTS_RACK : COSTS_NODE;
}

static guess_group group_of(guesser *g, const search_choice *is) {
    int all = is->data * is->context;
    if (g->group.stride == is->tensor && g->group.all == all) return g->group;
    guess_group found = {is->tensor, 0, 0, all};
    for (int i = 0; i < all; i++) {
        costs_level to = level_between(g->w, 0, i * is->tensor);
        found.node += to == COSTS_NODE, found.rack += to != COSTS_SPINE;
    }
    return g->group = found;
}

// Of so many calls, which together send so many bytes on each level.
static double calls_time(const guesser *g, costs_call call, const guess_group *of, const double sent[COSTS_LEVELS],
                         double calls) {
    const int ranks[COSTS_LEVELS] = {of->node, of->all, of->all};
    double s = 0;
    for (int level = 0; level < COSTS_LEVELS; level++)
        if (sent[level] > 0)
            s += calls * price_call(&g->m, call, (costs_level)level, ranks[level], sent[level] / calls).s;
    return s;
}

// Each rank has a piece for every other one.
static double scatter_time(const guesser *g, const guess_group *of, double piece, double calls) {
    const double sent[] = {(of->node - 1) * piece, (of->rack - of->node) * piece, (of->all - of->rack) * piece};
    return calls_time(g, CALL_ALL_TO_ALL, of, sent, calls);
}

// A piece goes to each rack once, there to each node once, and there to each rank (comm/levels.h).
static double gather_time(const guesser *g, const guess_group *of, double piece, double calls) {
    double racks = ceil((double)of->all / of->rack), nodes = ceil((double)of->rack / of->node);
    const double sent[] = {(of->node - 1) * piece * of->all / of->node, (nodes - 1) * racks * piece,
                           (racks - 1) * piece};
    return calls_time(g, CALL_ALL_GATHER, of, sent, calls);
}

// Seconds of computing: of a step, and of one micro-batch.
typedef struct beside {
    double step, micro;
} beside;

// What is left of calls that go on beside so much work. Something is always last, and some work comes before the first
// call: at most so much of either lies beside the other. Where calls take a rank's own time, less does.
static double left_over(const guesser *g, double sends, double work) {
    const double SENDS = 0.9, WORK = 0.7;
    return sends - fmin(SENDS * sends, WORK * work) * (1 - fmin(1, g->k->beside.is));
}

// Of gradients and weights, what is not hidden. Gradients go in buckets beside the backward pass of the last
// micro-batch. Weights go beside the first forward pass after the step; at ZeRO stage 0 they are sums, which the step
// waits for; at stage 3 they go block after block, for each micro-batch forward and backward, beside all work.
static double sharing(guesser *g, const search_choice *is, const block_times *b, double micros, beside work) {
    const guess_group of = group_of(g, is);
    if (of.all == 1) return 0;
    double values = g->values / is->tensor / is->pipeline, piece = values / of.all;
    double element = (double)dtype_bytes(g->c->precision.compute);
    double turns = is->zero >= 2 ? lanes_of_worker(g, is) : 1;
    double buckets = fmax(1, ceil(4 * values / (1e6 * g->c->reduce.bucket_mb)));
    double sums = turns * left_over(g, scatter_time(g, &of, 4 * piece, buckets), 2 * work.micro / 3);
    if (is->zero == 0) return sums + gather_time(g, &of, 4 * piece, 1);
    if (is->zero < 3) return sums + left_over(g, gather_time(g, &of, element * piece, 1), work.micro / 3);
    double blocks = (double)b->blocks / is->pipeline;
    return sums + left_over(g, 2 * micros * gather_time(g, &of, element * piece, blocks), work.step);
}

// Seconds of the slowest message between two stages that follow each other.
static double hop(const guesser *g, const search_choice *is, const block_times *b) {
    int stride = is->data * is->context * is->tensor;
    double most = 0;
    for (int s = 1; s < is->pipeline; s++) {
        costs_level level = level_between(g->w, (s - 1) * stride, s * stride);
        most = fmax(most, price_call(&g->m, CALL_MESSAGE, level, 2, b->left).s);
    }
    return most;
}

// --- a step ----------------------------------------------------------------------------------------------------------

// How many messages a micro-batch waits for, beside those of the first one's way there and the last one's way back. A
// round of 1f1b takes the work of p micro-batches and 2 (p - 1) messages. Where halves of backward fill the gaps, half
// of these is left, and each chunk has messages of its own. Simulations of 2 to 8 stages waited 0.3 to 1.7 times as
// long.
static double waits(const search_choice *is) {
    double way = (is->pipeline - 1) / (double)is->pipeline;
    if (is->schedule == PIPELINE_INTERLEAVED) return 1.25 * is->chunks * way;
    return is->schedule == PIPELINE_ZB_H1 || is->schedule == PIPELINE_ZB_V ? way : 2 * way;
}

// Of a pipeline, without gradients and weights; one: the slowest rank's micro-batch. No link is faster than its
// messages.
static double pipeline_time(const guesser *g, const search_choice *is, const block_times *b, double micros,
                            double one) {
    int p = is->pipeline;
    double work = one * (micros + (p - 1) * filling(is));
    if (p == 1) return work;
    double message = hop(g, is, b);
    return fmax(work + message * (2 * (p - 1) + micros * waits(is)), micros * is->chunks * message);
}

double guess_step(guesser *g, const search_choice *is, const block_times *b) {
    int cut[is->pipeline * is->chunks + 1];
    double micros = lanes_of_worker(g, is) * (double)(g->c->batch.global / is->lanes / is->micro);
    double one = guess_slowest_rank(b, is, cut), work = pipeline_time(g, is, b, micros, one);
    return work + updating(g, is) + sharing(g, is, b, micros, (beside){work, one});
}

double guess_least_bytes(const guesser *g, const search_choice *is) {
    double values = g->values / is->tensor / is->pipeline, n = is->data * is->context,
           element = (double)dtype_bytes(g->c->precision.compute);
    bool apart = g->c->precision.compute != FP32;
    double state = is->offload == OFFLOAD_NONE ? 12 * values / (is->zero >= 1 ? n : 1) : 0;
    return state + (apart || is->zero >= 1 ? element * values / (is->zero == 3 ? n : 1) : 0) +
           4 * values / (is->zero >= 2 ? 2 * n : 1);
}
