// comm/reduce.h: the ordered reduction: the lanes' gradients are added along the tree of comm/ordered.h whatever the
// number of ranks and nodes, and every rank ends with the whole sum of what it owns.
//
// A rank holds the sums of a few subtrees. It sends each owner its ranges of them, and the owner merges pairs of
// siblings: the bytes of a reduce-scatter, added in place where they arrive. With several nodes there are two phases.
// Inside the node one collector for each owner merges what the node's ranks have. Then the collector sends only what is
// left to the owner, in one flow between nodes for each local rank. With several racks there is a phase between them:
// the collectors of a rack's nodes send to one of the rack, and only what that has left goes on. Only siblings are ever
// added, in any phase, so the bits are the same. Ranks of a node that are joined (NVLink) have one before all others.
//
// Ranks run their lanes in one of two ways. Contiguous ranges: each keeps its leftover subtrees until its last lane,
// then there is one reduction a step. Turns: at turn t rank r runs lane t*world + r, every turn is reduced, and the
// owner keeps a counter of subtrees over its own range only.
//
// Ranges      The gradient is a list of segments; segment g is cut into world ranges at cut[g*(world+1) ..], in floats
//             from its start. A job reduces some consecutive segments (a bucket).
#ifndef COMM_REDUCE_H
#define COMM_REDUCE_H

#include "comm/cost.h"
#include "comm/ordered.h"
#include "gpu/ops.h"

typedef struct reduce_options {
    comm *ranks;
    const ops *ops;
    int64_t lanes;
    bool turns;
    const int64_t *deal;  // [world] lanes of each rank; NULL: as equal as they can be (comm/ordered.h)
    int64_t span;         // in turns: lanes of a turn (comm/ordered.h); 0: one
    bool moves;           // in ranges: reduce_deal may follow, so what is planned is enough for any deal
    bool once;            // a lane adds to each element once (comm/ordered.h: joins)
    int segments;
    const size_t *cut;  // (segments, world+1) floats, cut[g][0] = 0; outlives the reducer
} reduce_options;

typedef struct reducer reducer;

err_t reduce_open(reducer **out, const reduce_options *o);
void reduce_close(reducer *r);

// Between two steps: another deal, the same on all ranks. Every job must be planned again. `moves` said that it may be.
err_t reduce_deal(reducer *r, const int64_t *deal);

const lane_table *reduce_lanes(const reducer *r);  // valid until the next reduce_deal
int64_t reduce_turns(const reducer *r);            // 1 when ranges are contiguous
int reduce_ranks(const reducer *r);
int64_t reduce_lane_count(const reducer *r, int rank);  // of any rank
int reduce_lane_buffers(const reducer *r);              // gradient buffers that this rank's lanes need, or may need
int reduce_kept(const reducer *r);                      // buffers for subtrees that an owner keeps between turns

typedef struct reduce_cost {
    size_t scratch;  // floats; where lanes may be dealt anew, of the deal that needs most
    comm_cost moves;
} reduce_cost;

// What one job will need and move. Also allocates its message lists: call it for every job before the first one runs.
err_t reduce_plan(reducer *r, int64_t turn, int first, int count, reduce_cost *out);

// For a plan of many ranks. ranges [world]: a number for each rank, equal where its ranges are as large in all
// segments. mark [world] (=) numbers that are equal for ranks that hold, send, collect and merge the same in all jobs,
// and send the same in an all_gather of the ranges.
err_t reduce_marks(const reducer *r, const uint64_t *ranges, uint64_t *mark);

typedef struct reduce_job {
    int64_t turn;           // 0 when ranges are contiguous
    int first, count;       // segments
    float *const *lane;     // this rank's gradient buffers, as its lane counter numbers them
    const size_t *lane_at;  // [segments] where segment g begins in each of them
    float *const *kept;     // reduce_kept() buffers over this rank's ranges
    // (=) this rank's ranges summed over all lanes, after the last turn. May be in a lane buffer
    float *out;
    const size_t *own_at;  // [segments] where this rank's range of segment g begins in out and in kept
    float *scratch;
} reduce_job;

// Collective: all ranks run the same jobs in the same order. Lane buffers are scratch afterwards. Queued on s, like the
// communicator's calls.
err_t reduce_run(reducer *r, const reduce_job *job, stream *s);

#endif
