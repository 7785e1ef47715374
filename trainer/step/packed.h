// trainer/step/packed.h: [reduce] compress. A lane's gradient goes to its owners in codes of 4 to 16 bits, and the
// owners add what the codes say along the tree of lanes. What a code leaves out stays with the lane, as its residual,
// and is added to the lane's next gradient. Both depend on lanes and chunks only, so the bits are the same in every
// layout.
//
// Sums of lanes are never coded on their way to the owners: lanes are dealt in turns, and each travels by itself, from
// its rank to all owners, also between nodes. With [reduce] compress_back the sum of all lanes is coded once more, by
// its owner, whose residual it has; all ranks, owners too, use what those codes say.
//
// Rows of one dimension (gains, biases) and running statistics travel as they are.
//
// compress = topk sends the largest elements of a lane alone, with the momentum of that lane; see packed_sparse.
#ifndef TRAINER_STEP_PACKED_H
#define TRAINER_STEP_PACKED_H

#include "comm/ordered.h"
#include "gpu/ops.h"
#include "trainer/step/zero.h"

// Part of a slice of a row, all of which has one owner.
typedef struct packed_piece {
    int owner;
    bool codes;    // else it travels as it is
    size_t slab;   // where it begins in a slab, and in a lane's residual, floats
    size_t shard;  // where its owner has it; of other owners' pieces without meaning
    int64_t count;
    size_t there, back;  // where it begins in its bucket's message to owners, and in the one from them, bytes
} packed_piece;

// [reduce] compress = topk: of each chunk the largest elements are sent (gpu/ops.h: encode_sparse), and all lanes are
// added to zeros in their order, so that no lane waits in a buffer for its sibling.
typedef struct packed_sparse {
    int64_t kept;  // of CHUNK; 0: no topk
    // ZeRO 0: all ranks get all lanes' codes and add them themselves. A sum of few lanes is sparse, too, so this is
    // less than sums in FP32 that come back from the owners.
    bool all;
} packed_sparse;

typedef struct packed {
    packed_sparse sparse;
    codec to, from;  // towards owners; from them, CODEC_NONE: sums are not coded
    int world;
    packed_piece *piece;   // by bucket, and in it by owner
    int *first;            // (buckets, world+1): a bucket's pieces of owner r are first[r] .. first[r+1]
    size_t *there, *back;  // (buckets, world+1): where an owner's part of a message begins, bytes
    size_t most_there, most_back, most_own;  // the longest messages, and the longest part of one to this rank
} packed;

// Messages of all steps. With [reduce] density_warmup the first steps send more (Lin et al. 2018, section 3.3): a
// quarter of each chunk, a sixteenth, and so on, each for an equal share of them, until that is no more than what later
// steps send. So all counts are powers of two, and the same on every machine.
//
//     density = 0.01, density_warmup = 300      steps  1-100  101-200  201-300  301-
//                                               of a chunk's 16,384    4,096    1,024      256   164
enum { PACKED_STAGES = 8 };
typedef struct packed_stages {
    packed of[PACKED_STAGES];  // the last one is that of all later steps
    int count;
    int64_t warmup;                          // steps before that
    size_t most_there, most_back, most_own;  // of all
} packed_stages;

// What stage a step (from 1 on) is in.
int packed_stage_of(const packed_stages *x, int64_t step);
static inline const packed *packed_at(const packed_stages *x, int64_t step) { return &x->of[packed_stage_of(x, step)]; }
static inline const packed *packed_last(const packed_stages *x) { return &x->of[x->count - 1]; }

err_t packed_open(packed_stages *x, const zero_layout *z, const model *net, codec to, codec from, packed_sparse sparse,
                  int64_t warmup);
void packed_close(packed_stages *x);

// Of a bucket: (world+1) numbers, as above.
static inline const int *packed_first(const packed *x, int bucket) { return x->first + bucket * (x->world + 1); }
static inline const size_t *packed_there(const packed *x, int bucket) { return x->there + bucket * (x->world + 1); }
static inline const size_t *packed_back(const packed *x, int bucket) { return x->back + bucket * (x->world + 1); }

// The bytes of a piece in a message.
size_t packed_bytes(const packed_piece *p, codec c, int64_t kept);

// Lanes that end before a turn: the first lane that anyone runs in it.
int64_t packed_before(const lane_table *lanes, int64_t turn);

#endif
