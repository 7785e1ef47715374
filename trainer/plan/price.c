// trainer/plan/price.c: see trainer/plan/price.h.
#include "trainer/plan/price.h"

#include "gpu/paper.h"
#include "trainer/plan/plan.h"
#include "trainer/step/muon.h"
#include "trainer/step/outer.h"
#include "trainer/step/sync.h"
#include "trainer/step/tied.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const action_kind parts[PRICE_PARTS] = {[PASS_FORWARD] = ACTION_FORWARD,
                                               [PASS_BACKWARD] = ACTION_BACKWARD,
                                               [PASS_INPUTS] = ACTION_INPUTS,
                                               [PASS_WEIGHTS] = ACTION_WEIGHTS};

static costs_time times(costs_time t, double n) { return (costs_time){t.s * n, t.error * n, t.from}; }

typedef struct pricer {
    session *x;
    const price_machine *m;
    price_blocks *out;
    costs_time now;      // of the part that is walked
    costs_time *gather;  // [blocks] of each block's weights; below 0: not known yet
    model_held held;     // as the list goes on
} pricer;

// --- what is sent ---------------------------------------------------------------------------------------------------

costs_time price_call(const price_machine *m, costs_call call, costs_level level, int ranks, double bytes) {
    double measured = m->slower > 1 ? fmax(1, costs_called(m->c, call, level, ranks) / m->room) : 1;
    double slower = fmax(1, m->slower / measured);
    return times(costs_of_call(m->c, call, level, ranks, bytes), 1 + (slower - 1) * fmin(1, m->c->beside.is));
}

// Inside a node first, then between nodes, then between racks.
static costs_time call_time(const pricer *p, const comm *group, costs_call call, comm_cost sent) {
    costs_time t = {0};
    double near = (double)(sent.sent - sent.sent_far), far = (double)(sent.sent_far - sent.sent_racks);
    if (near > 0) t = costs_add(t, price_call(p->m, call, COSTS_NODE, comm_near(group), near));
    if (far > 0) t = costs_add(t, price_call(p->m, call, COSTS_RACK, group->world, far));
    if (sent.sent_racks) t = costs_add(t, price_call(p->m, call, COSTS_SPINE, group->world, (double)sent.sent_racks));
    return t;
}

static costs_time message_time(const pricer *p, comm_cost sent) {
    costs_level level = sent.sent_racks ? COSTS_SPINE : sent.sent_far ? COSTS_RACK : COSTS_NODE;
    return price_call(p->m, CALL_MESSAGE, level, 2, (double)sent.sent);
}

// --- blocks ----------------------------------------------------------------------------------------------------------

static void see(void *ctx, const char *op, const op_cost *cost) {
    pricer *p = ctx;
    costs_time t = costs_of_op(p->m->c, op, cost);
    p->out->looked[t.from]++;
    p->now = costs_add(p->now, times(t, p->m->slower));
}

// Of so many calls that together send so much.
static costs_time merges(const pricer *p, group_kind kind, int64_t sent, int calls) {
    if (!calls) return (costs_time){0};
    comm *c = p->x->groups.group[kind];
    int64_t one = sent / calls;
    comm_cost each = {.sent = one, .sent_far = comm_nodes(c) > 1 ? one : 0, .sent_racks = comm_racks(c) > 1 ? one : 0};
    return times(call_time(p, c, CALL_MERGE, each), calls);
}

static void done(void *ctx, const step_part *part) {
    pricer *p = ctx;
    int k = 0;
    while (parts[k] != part->kind) k++;
    price_time *to = &(part->found ? p->out->found : p->out->part)[k][part->block];
    to->compute = p->now;
    to->merge = costs_add(merges(p, GROUP_TENSOR, part->merged, part->merges),
                          merges(p, GROUP_CONTEXT, part->swapped, part->swaps));
    p->now = (costs_time){0};
}

void price_close(price_blocks *p) {
    for (int k = 0; k < PRICE_PARTS; k++) free(p->part[k]), free(p->found[k]);
    *p = (price_blocks){0};
}

err_t price_open(price_blocks *p, session *x, const price_machine *m) {
    pricer by = {.x = x, .m = m, .out = p};
    stream *paper = NULL;
    bool room = true;
    *p = (price_blocks){.blocks = x->net->blocks};
    for (int k = 0; k < PRICE_PARTS; k++) {
        p->part[k] = calloc((size_t)p->blocks, sizeof *p->part[k]);
        p->found[k] = calloc((size_t)p->blocks, sizeof *p->found[k]);
        room = room && p->part[k] && p->found[k];
    }
    err_t rc = room ? paper_open(&paper, see, &by) : err_set(ERR_INTERNAL, "no memory for times of blocks");
    if (rc == ERR_OK) rc = step_on_paper(&x->runner, &(step_paper){&ops_counted, paper, done, &by, true});
    paper_close(paper);
    if (rc != ERR_OK) price_close(p);
    return rc;
}

// --- a list ----------------------------------------------------------------------------------------------------------

static costs_time op_time(pricer *p, const char *op, op_cost cost) {
    p->now = (costs_time){0};
    see(p, op, &cost);
    return p->now;
}

// A row that is tied to another one has no values of its own.
static double updated(const pricer *p, const zero_piece *piece) {
    return p->x->net->param[piece->row].tied < 0 ? (double)piece->count : 0;
}

// Rows of the state that are updated here: all, those that Muon turns as whole matrices, or those that it does not.
typedef enum rows_of { ROWS_ALL, ROWS_TURNED, ROWS_OTHER } rows_of;

static bool is_of(const pricer *p, rows_of which, const zero_piece *piece) {
    return updated(p, piece) > 0 && (which == ROWS_ALL || p->x->state.rule[piece->row].muon == (which == ROWS_TURNED));
}

// Of each of their pieces: an operation each.
static costs_time pieces_time(pricer *p, rows_of which, const char *op, dtype type, double bytes) {
    costs_time sum = {0};
    int count;
    const zero_piece *piece = state_pieces(&p->x->state, &count);
    for (int i = 0; i < count; i++)
        if (is_of(p, which, &piece[i]))
            sum =
                costs_add(sum, op_time(p, op, (op_cost){type, {piece[i].count}, 0, bytes * (double)piece[i].count, 0}));
    return sum;
}

// offload: gradients come from the device, the host updates, and weights go back, one after the other. copied: bytes of
// each element on the way; moved: in the host's memory.
static costs_time host_time(const pricer *p, rows_of which, double copied, double moved) {
    const costs_figure *link = &p->m->c->host_link, *copy = &p->m->c->host_copy;
    double n = 0, there, here;
    int count;
    const zero_piece *piece = state_pieces(&p->x->state, &count);
    for (int i = 0; i < count; i++) n += is_of(p, which, &piece[i]) ? (double)piece[i].count : 0;
    there = n * copied / link->is, here = n * moved / copy->is;
    return (costs_time){there + here, there * link->spread + here * copy->spread, FROM_ROOFLINE};
}

static bool on_host(const pricer *p) { return p->x->state.o.offload && p->m->c->host_link.is > 0; }

// offload = nvme: all of the file, `ways` 1 where it is read, 2 where it is written, too. What is done with a window
// goes on beside others on their way to the disk and back.
static costs_time walk_time(const pricer *p, int ways, costs_time done) {
    const train_state *t = &p->x->state;
    const costs_figure *disk = &p->m->c->disk_copy;
    if (!state_spills(t) || disk->is <= 0) return done;
    double s = ways * (double)spilled_bytes(&t->spilled) / disk->is;
    return s > done.s ? (costs_time){s, s * disk->spread, FROM_ROOFLINE} : done;
}

static costs_time masters_time(pricer *p) {
    return walk_time(p, 1,
                     on_host(p) ? host_time(p, ROWS_ALL, 0, 4) : pieces_time(p, ROWS_ALL, "sum_squares", FP32, 4));
}

// What Muon does with all slices of each matrix that are here, and what ranks that share a layer send meanwhile: the
// very operations, on paper.
static err_t matrices_time(pricer *p, price_time *out) {
    train_state *t = &p->x->state;
    stream *paper;
    int count;
    const zero_piece *piece = state_pieces(t, &count);
    TRY(paper_open(&paper, see, p));
    p->now = (costs_time){0};
    err_t rc = ERR_OK;
    for (int i = 0, n; i < count && rc == ERR_OK; i += n) {
        const param *row = &p->x->net->param[piece[i].row];
        for (n = 1; i + n < count && piece[i + n].row == piece[i].row;) n++;
        if (!is_of(p, ROWS_TURNED, &piece[i])) continue;
        rc = muon_orthogonalize(&t->muon, row, piece[i].slice, n, &ops_counted, paper);
        comm_cost sent = muon_gather_cost(&t->muon, row, t->o.tensor);
        if (sent.sent) out->merge = costs_add(out->merge, call_time(p, t->o.tensor, CALL_ALL_GATHER, sent));
    }
    out->compute = costs_add(out->compute, p->now);
    paper_close(paper);
    return rc;
}

// A matrix goes its own way: its direction, what Muon makes of it, and a step along that.
static err_t update_time(pricer *p, price_time *out) {
    static const char *const name[] = {
        [OPTIMIZER_ADAMW] = "adamw", [OPTIMIZER_SGD] = "sgd", [OPTIMIZER_LARS] = "sgd", [OPTIMIZER_MUON] = "adamw"};
    const train_state *t = &p->x->state;
    bool apart = !state_shares_masters(t);
    double element = (double)dtype_bytes(t->o.compute), weights = 8 + (apart ? element : 0);
    double bytes = 4 + weights + 8.0 * state_moments(t);
    dtype type = apart ? t->o.compute : FP32;
    if (on_host(p)) {
        // directions go to the device, and come back
        out->compute = costs_add(walk_time(p, 2, host_time(p, ROWS_OTHER, 4 + element, bytes)),
                                 host_time(p, ROWS_TURNED, 12 + element, 20 + weights));
    } else {
        out->compute = walk_time(p, 2, pieces_time(p, ROWS_OTHER, name[p->x->cfg->optimizer.type], type, bytes));
        out->compute = costs_add(out->compute, pieces_time(p, ROWS_TURNED, "muon_direction", FP32, 16));
        out->compute = costs_add(out->compute, pieces_time(p, ROWS_TURNED, "sgd", type, 4 + weights));
    }
    return matrices_time(p, out);
}

static int64_t bucket_floats(const pricer *p, int bucket) {
    const zero_layout *z = &p->x->state.zero;
    return bucket < 0 ? (int64_t)z->slab : (int64_t)z->bucket[bucket].floats;
}

static costs_time floats_time(pricer *p, const char *op, int64_t floats, double each) {
    if (strcmp(op, "zero") == 0)
        return op_time(p, op, (op_cost){INT32, {4 * floats}, COST_BYTES, each * (double)floats, 0});
    return op_time(p, op, (op_cost){FP32, {floats}, 0, each * (double)floats, 0});
}

// To the owners, who add up what arrives.
static err_t reduce_time(pricer *p, const action *a, price_time *out) {
    train_state *t = &p->x->state;
    comm_cost sent;
    TRY(sync_gradients(t)->cost(t, a->bucket, a->turn, &sent));
    out->send = call_time(p, t->ranks, CALL_ALL_TO_ALL, sent);
    if (sent.sent) out->send = costs_add(out->send, floats_time(p, "add", sent.sent / 4, 12));
    return ERR_OK;
}

// To the rest of a block's weights; what is this rank's own of them is copied. A list has it for each micro-batch.
static costs_time gather_time(const pricer *p, int block) {
    train_state *t = &p->x->state;
    const costs_figure *copy = &p->m->c->copy;
    if (p->gather[block].s >= 0) return p->gather[block];
    size_t own = 0;
    for (int g = 0; g < t->zero.segments; g++)
        if (state_uses(t, block, g)) own += zero_range(&t->zero, g, t->zero.rank) * dtype_bytes(t->o.compute);
    double s = copy->is > 0 ? p->m->slower * 2 * (double)own / copy->is : 0;
    return p->gather[block] = costs_add(call_time(p, t->ranks, CALL_ALL_GATHER, sync_weights(t)->gather_cost(t, block)),
                                        (costs_time){s, s * copy->spread, FROM_LINE});
}

static comm_cost half(comm_cost c) {
    return (comm_cost){.sent = c.sent / 2, .sent_far = c.sent_far / 2, .sent_racks = c.sent_racks / 2};
}

// Of islands, in the mean of all steps: what is sent to others there and back, and then inside. With overlap the first
// travels beside the steps that follow.
static costs_time mixing_time(const pricer *p) {
    train_state *t = &p->x->state;
    const int64_t cycle = outer_cycle(t);
    costs_time sum = {0};
    for (int64_t step = 1; step <= cycle; step++) {
        if (!outer_is_due(t, step)) continue;
        comm_cost out = half(outer_cost(t, step)), in = outer_cost_inside(t, step);
        if (out.sent && !t->o.overlap) {
            sum = costs_add(sum, call_time(p, t->o.islands, CALL_ALL_TO_ALL, out));
            sum = costs_add(sum, call_time(p, t->o.islands, CALL_ALL_GATHER, out));
        }
        if (in.sent) sum = costs_add(sum, call_time(p, t->ranks, CALL_ALL_GATHER, in));
    }
    return times(sum, 1.0 / (double)cycle);
}

// As model_run would: does backward find the block's values?
static bool note_pass(pricer *p, const action *a, pass_part part, int block) {
    const session *x = p->x;
    return block_recomputes(&x->net->block[block], x->cfg->parallel.recompute) &&
           model_held_pass(&p->held, part, a->slot, block);
}

static price_time blocks_time(pricer *p, const action *a) {
    price_time sum = {0};
    int k = 0;
    while (parts[k] != a->kind) k++;
    for (int i = 0; i <= a->last - a->first; i++) {
        int b = a->kind == ACTION_FORWARD ? a->first + i : a->last - i;
        const price_time *t = &(note_pass(p, a, (pass_part)k, b) ? p->out->found : p->out->part)[k][b];
        sum.compute = costs_add(sum.compute, t->compute);
        sum.merge = costs_add(sum.merge, t->merge);
    }
    return sum;
}

static err_t price_action(pricer *p, const action *a, price_time *out) {
    session *x = p->x;
    train_state *t = &x->state;
    bool alone = x->ranks->world == 1;
    *out = (price_time){0};
    switch (a->kind) {
    case ACTION_FORWARD:
    case ACTION_BACKWARD:
    case ACTION_INPUTS:
    case ACTION_WEIGHTS: *out = blocks_time(p, a); break;
    case ACTION_ZERO:
    case ACTION_TAKE: out->compute = floats_time(p, "zero", bucket_floats(p, a->bucket), 4); break;
    case ACTION_ADD: out->compute = floats_time(p, "add", bucket_floats(p, a->bucket), 12); break;
    case ACTION_MASTERS: out->compute = masters_time(p); break;
    case ACTION_SQUARES: out->compute = pieces_time(p, ROWS_ALL, "sum_squares", FP32, 4); break;
    case ACTION_UPDATE: return update_time(p, out);
    case ACTION_REDUCE: return alone ? ERR_OK : reduce_time(p, a, out);
    case ACTION_GATHER: out->send = gather_time(p, a->first); break;
    case ACTION_SPREAD: out->send = call_time(p, t->ranks, CALL_ALL_GATHER, sync_weights(t)->spread_cost(t)); break;
    case ACTION_SHARE:
        out->send =
            call_time(p, x->ranks, CALL_ALL_REDUCE,
                      cost_all_reduce(x->ranks, (size_t)tensor_count(&x->runner.results.shared), sizeof(double)));
        break;
    case ACTION_POST: {
        const message *m = &x->stages.table.message[a->message];
        if (m->sends) out->send = message_time(p, plan_message(x, m));
        break;
    }
    case ACTION_OUTER: out->send = mixing_time(p); break;
    case ACTION_TIE_GRADIENTS: out->send = message_time(p, tied_cost(t).link); break;
    default: break;
    }
    return ERR_OK;
}

err_t price_list(session *x, const price_machine *m, price_blocks *b, price_time *time) {
    pricer p = {.x = x, .m = m, .out = b, .gather = calloc((size_t)b->blocks, sizeof *p.gather)};
    p.held.block = -1;
    const action_list *l = &x->runner.actions;
    err_t rc = p.gather ? ERR_OK : err_set(ERR_INTERNAL, "no memory for the gathers of %d blocks", b->blocks);
    for (int i = 0; i < b->blocks && rc == ERR_OK; i++) p.gather[i].s = -1;
    for (int i = 0; i < l->count && rc == ERR_OK; i++) rc = price_action(&p, &l->at[i], &time[i]);
    free(p.gather);
    return rc;
}
