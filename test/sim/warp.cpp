// test/sim/warp.cpp: operations of a warp: lanes wait until all lanes of the mask have come, and the last one computes
// for all.
#include "test/sim/device.h"

#include <string.h>

namespace simt {

// --- meeting ---------------------------------------------------------------------------------------------------------

static uint32_t checked_mask(const fiber *me, const warp_state *w, uint32_t mask, place at) {
    if (!(mask >> me->lane & 1))
        check_msg("warp", "lane %d is not in its own mask 0x%08x at %s:%d", me->lane, mask, at.file, at.line);
    if (mask & ~w->exist)
        check_msg("warp", "mask 0x%08x at %s:%d names lanes that do not exist", mask, at.file, at.line);
    if (mask & w->done)
        check_msg("warp", "mask 0x%08x at %s:%d names lanes that have ended: 0x%08x", mask, at.file, at.line,
                  mask & w->done);
    return (mask & w->exist & ~w->done) | 1u << me->lane;
}

static void check_same(const fiber *lanes, const warp_state *w, warp_op op, uint32_t mask, place at) {
    for (uint32_t others = w->waiting & mask; others; others &= others - 1) {
        const fiber *f = &lanes[__builtin_ctz(others)];
        if (f->op == op && (f->mask & ~w->done) == mask) continue;
        check_msg("warp",
                  "lanes of one warp meet in different operations: %s:%d with mask 0x%08x and %s:%d with mask 0x%08x",
                  f->at.file, f->at.line, f->mask, at.file, at.line, mask);
        return;
    }
}

// All lanes of the mask wait in the operation of `one` of them.
static void complete(const fiber *one, uint32_t mask) {
    fiber *lanes = &block.fibers[one->warp * LANES];
    block.warps[one->warp].waiting &= ~mask;
    if (one->all && (one->op < OP_MMA_F16 || mask == ~0u)) one->all(lanes, mask);
    if (one->op == OP_SYNC) race_meet(one->warp, mask);
    for (uint32_t m = mask; m; m &= m - 1) make_ready(&lanes[__builtin_ctz(m)]);
}

void meet(warp_op op, uint32_t mask, void *operands, warp_function fn, place at) {
    fiber *me = running, *lanes = &block.fibers[me->warp * LANES];
    warp_state *w = &block.warps[me->warp];
    stats.warp_ops++;
    mask = checked_mask(me, w, mask, at);
    if (!w->waiting) w->agreed = true, w->op = op, w->mask = mask;
    if (!w->agreed || w->op != (int)op || w->mask != mask) {
        check_same(lanes, w, op, mask, at);
        w->agreed = false;
    }
    me->waits = IN_WARP, me->op = op, me->mask = mask, me->operands = operands, me->all = fn, me->at = at;
    w->waiting |= 1u << me->lane;
    if ((w->waiting & mask) == mask) complete(me, mask);
    give_way();
}

// A lane that ends while others wait for it: they go on without it, as on hardware, and it is a finding.
void lane_ends(fiber *f) {
    warp_state *w = &block.warps[f->warp];
    w->done |= 1u << f->lane;
    for (uint32_t m = w->waiting; m; m &= m - 1) {
        fiber *other = &block.fibers[f->warp * LANES + __builtin_ctz(m)];
        uint32_t left = other->mask & ~w->done;
        if (!(w->waiting >> other->lane & 1) || !(other->mask >> f->lane & 1)) continue;
        check_msg("warp", "lane %d ends and is in mask 0x%08x of %s:%d, where lane %d waits", f->lane, other->mask,
                  other->at.file, other->at.line, other->lane);
        if ((w->waiting & left) == left) complete(other, left);
    }
}

void syncwarp(uint32_t mask, const char *file, int line) {
    meet(OP_SYNC, mask & block.warps[running->warp].exist, nullptr, nullptr, {file, line});
}

// --- shuffles --------------------------------------------------------------------------------------------------------

struct shuffle_operands {
    const void *in;
    int bytes, by, width;
    unsigned char out[16];
};

// From which lane does lane l take its value? Out of range: from itself.
static int source_lane(int op, int l, int by, int width) {
    int first = l & ~(width - 1), last = first + width - 1;
    int s = op == OP_SHUFFLE        ? first + (by & (width - 1))
            : op == OP_SHUFFLE_XOR  ? l ^ by
            : op == OP_SHUFFLE_DOWN ? l + by
                                    : l - by;
    return s > last || (op == OP_SHUFFLE_UP && s < first) ? l : s;
}

// Nearly all values are words: no call for those.
static inline void copy(void *to, const void *from, int bytes) {
    if (bytes == 4) memcpy(to, from, 4);
    else memcpy(to, from, (size_t)bytes);
}

static void shuffle_all(fiber *lanes, uint32_t mask) {
    for (uint32_t m = mask; m; m &= m - 1) {
        const fiber *f = &lanes[__builtin_ctz(m)];
        shuffle_operands *o = (shuffle_operands *)f->operands;
        int s = source_lane(f->op, f->lane, o->by, o->width);
        if (mask >> s & 1) {
            copy(o->out, ((shuffle_operands *)lanes[s].operands)->in, o->bytes);
            continue;
        }
        check_msg("warp", "lane %d reads lane %d, which does not take part, mask 0x%08x at %s:%d", f->lane, s, mask,
                  f->at.file, f->at.line);
        memset(o->out, 0xFF, sizeof o->out);
    }
}

void shuffle(int mode, uint32_t mask, void *value, int bytes, int by, int width, const char *file, int line) {
    shuffle_operands o = {value, bytes, by, width, {}};
    meet((warp_op)(OP_SHUFFLE + mode), mask, &o, shuffle_all, {file, line});
    copy(value, o.out, bytes);
}

// --- votes -----------------------------------------------------------------------------------------------------------

struct vote_operands {
    int predicate;
    uint32_t out;
};

static void vote_all(fiber *lanes, uint32_t mask) {
    uint32_t votes = 0;
    for (uint32_t m = mask; m; m &= m - 1) {
        const fiber *f = &lanes[__builtin_ctz(m)];
        if (((vote_operands *)f->operands)->predicate) votes |= 1u << f->lane;
    }
    for (uint32_t m = mask; m; m &= m - 1) ((vote_operands *)lanes[__builtin_ctz(m)].operands)->out = votes;
}

uint32_t ballot(uint32_t mask, int predicate, const char *file, int line) {
    vote_operands o = {predicate, 0};
    meet(OP_BALLOT, mask, &o, vote_all, {file, line});
    return o.out;
}

}  // namespace simt
