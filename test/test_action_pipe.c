// test/test_action_pipe.c: the lists of actions of pipelines, without a process. Small ones are written out. All others
// are followed action by action: what is in each slot, gradient buffer and lane buffer, which weights are here, which
// messages are on their way. Then all ranks' lists run against each other, as the streams and links would run them, and
// must end.
#include "trainer/step/simulate.h"
#include "trainer/step/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/ordered.h"

enum {
    PIPE = 4,
    DATA = 3,
    STAGES = 8,
    BLOCKS = 12,
    LANES = 8,
    MICROS = 24,
    BUCKETS = 14,
    BUFFERS = 8,
    SLOTS = 64,
    MESSAGES = 256,
    TEXT = 8192
};

// A layout of all ranks.
typedef struct layout {
    pipeline_kind kind;
    int p, chunks, data, lanes, micros, zero;
    bool fixed, once;
} layout;

// One rank of it.
typedef struct member {
    const layout *y;
    int stage, data;  // its place
    model net;
    block block[BLOCKS];
    stages x;
    action_bucket bucket[BUCKETS];
    action_layout l;
    action_list a;
} member;

static bool turns(const layout *y) { return y->data > 1 && y->zero >= 2; }

// Two blocks a bucket, each stage's from its last block on. Block 0 is in two buckets: its table is in one of its own.
static int fill_buckets(member *k) {
    int n = 0;
    for (int s = k->x.count - 1; s >= 0; s--) {
        int c = k->x.chunk[k->x.cut[s]];
        for (int b = k->x.cut[s + 1] - 1; c >= 0 && b >= k->x.cut[s]; b -= 2)
            k->bucket[n++] = (action_bucket){.highest = b, .lowest = b > k->x.cut[s] ? b - 1 : b, .chunk = c};
        if (s == 0 && c >= 0) k->bucket[n++] = (action_bucket){.highest = 0, .lowest = 0, .chunk = c};
    }
    return n;
}

// False: there is no such pipeline.
static bool open_member(member *k, const layout *y, int stage, int data) {
    *k = (member){.y = y, .stage = stage, .data = data};
    int blocks = y->p * y->chunks + (y->p * y->chunks <= 6 ? 4 : 3);
    for (int b = 0; b < blocks; b++) k->block[b].flops = b == 2 ? 0.5 : 1;
    k->net = (model){.blocks = blocks, .block = k->block};
    int64_t lanes = turns(y) ? lane_turns(y->lanes, y->data, true) : lane_deal_of(y->lanes, y->data, data, false).count;
    stage_options o = {.kind = y->kind, .ranks = y->p, .rank = stage, .chunks = y->chunks, .micros = lanes * y->micros};
    if (stages_open(&k->x, &k->net, &o) != ERR_OK) {
        stages_close(&k->x);
        return false;
    }
    int zero = y->data > 1 ? y->zero : 0;
    k->l = (action_layout){.world = y->data,
                           .lanes = y->lanes,
                           .micros = y->micros,
                           .fixed = y->fixed,
                           .once = y->once,
                           .turns = zero >= 2,
                           .shards_weights = zero == 3,
                           .spreads = zero == 1 || zero == 2,
                           .blocks = blocks,
                           .buckets = fill_buckets(k),
                           .bucket = k->bucket,
                           .pipe = &k->x};
    assert_int_equal(action_step(&k->l, data, &k->a), ERR_OK);
    return true;
}

static void close_member(member *k) {
    action_list_free(&k->a);
    stages_close(&k->x);
}

// --- lists that are written out --------------------------------------------------------------------------------------

static void expect_list(layout y, int stage, int data, const char *expected) {
    char text[TEXT] = "", one[ACTION_TEXT];
    member k;
    assert_true(open_member(&k, &y, stage, data));
    for (int i = 0; i < k.a.count; i++) strcat(strcat(text, i ? "; " : ""), action_text(&k.a.at[i], one));
    close_member(&k);
    if (strcmp(text, expected) != 0) fail_msg("stage %d, data %d:\n%s\nexpected:\n%s", stage, data, text, expected);
}

// Six blocks: 0-2 and 3-5. Messages of rank 0: 0 receives the first gradient, 1 and 3 send activations, 2 receives the
// second gradient.
static void two_stages_of_1f1b(void **state) {
    (void)state;
    layout y = {.kind = PIPELINE_1F1B, .p = 2, .chunks = 1, .data = 1, .lanes = 2, .micros = 1, .fixed = true};
    expect_list(
        y, 0, 0,
        "post 0; load 0.0; forward 0-2; post 1; load 1.0; forward 0-2; post 2; await 0; backward 2-0; post 3; await 3; backward 2-0; "
        "add 0 += 1; settle; squares; share; update; spread");
    expect_list(
        y, 1, 0,
        "post 0; await 0; load 0.0; forward 3-5; backward 5-3; means; losses; post 1; post 2; await 2; load 1.0; forward 3-5; await 1; "
        "backward 5-3; means; add 0 += 1; losses; post 3; settle; squares; share; update; spread");
}

// --- following a list ------------------------------------------------------------------------------------------------

enum { FREE = -1, COMING = -2 };
enum { HALVES = 2 };  // what INPUTS does, what WEIGHTS does; BACKWARD does both

// What a buffer has of a block in a bucket: how many micro-batches of each lane. A block writes some gradients in one
// half and some in the other.
typedef struct sums {
    bool valid;  // else it is garbage, which the next micro-batch overwrites
    int of[LANES];
} sums;

typedef struct account {
    const member *r;
    const action *now;
    int m;              // micro-batches of a step
    int place[MICROS];  // which micro-batch has it
    // FREE, COMING, a micro-batch; the same of boundaries, stage * m + micro-batch
    int slot[STAGES][SLOTS], gradient[SLOTS];
    int leaving[SLOTS];  // the message that takes a gradient away, FREE: none
    int forward[BLOCKS][MICROS], back[HALVES][BLOCKS][MICROS], losses[MICROS], loads[MICROS];
    bool posted[MESSAGES], arrived[MESSAGES];
    int next;   // message to be posted
    int means;  // the micro-batch whose losses are formed and not told, + 1
    sums sum[HALVES][BUFFERS][BUCKETS][BLOCKS];
    int reduced[BUCKETS];
    bool flying[BUCKETS];
    int gathered[2];  // the block in each place, + 1
    bool needed[BLOCKS];
    bool fresh[2];  // gathered since a block was last used
    int used;       // the place of that block, + 1
} account;

static void expect(const account *k, bool holds, const char *what) {
    char one[ACTION_TEXT];
    const layout *y = k->r->y;
    if (holds) return;
    fail_msg(
        "%s, p = %d, v = %d, data %d, lanes %d, micros %d, zero %d, %s%s, stage %d, data %d: at `%s` (action %d): %s",
        pipeline_name(y->kind), y->p, y->chunks, y->data, y->lanes, y->micros, y->zero, y->fixed ? "fixed" : "any",
        y->once ? ", once" : "", k->r->stage, k->r->data, action_text(k->now, one), (int)(k->now - k->r->a.at), what);
}

static int64_t lane_of(const account *k, int micro) {
    const layout *y = k->r->y;
    int64_t turn = micro / y->micros;
    return turns(y) ? turn * y->data + k->r->data : lane_deal_of(y->lanes, y->data, k->r->data, false).first + turn;
}

static bool works(const account *k, int micro) { return lane_of(k, micro) < k->r->y->lanes; }

static int stage_of(const account *k, int block) {
    int s = 0;
    while (k->r->x.cut[s + 1] <= block) s++;
    return s;
}

static bool here(const account *k, int stage) { return stages_rank(&k->r->x, stage) == k->r->stage; }

// The micro-batch of an action, and its stage.
static int micro_of(const account *k, const action *a, int *stage) {
    expect(k, a->input_slot >= 0 && a->input_slot < k->r->x.input_slots, "no such input slot");
    *stage = stage_of(k, a->first);
    expect(k, here(k, *stage) && stage_of(k, a->last) == *stage, "blocks of another rank");
    int micro = k->place[a->input_slot];
    expect(k, micro >= 0, "nothing was loaded into this input slot");
    expect(k, k->r->x.input_slot[micro] == a->input_slot, "the micro-batch has another input slot");
    return micro;
}

static bool last_half(const account *k, int stage, int micro) {
    int b = k->r->x.cut[stage];
    return k->back[0][b][micro] && k->back[1][b][micro];
}

static void follow_load(account *k, const action *a) {
    int micro = 0;
    while (micro < k->m && (lane_of(k, micro) != a->lane || micro % k->r->y->micros != a->micro)) micro++;
    expect(k, micro < k->m && k->loads[micro]++ == 0, "it was loaded before");
    expect(k, micro == 0 || !works(k, micro - 1) || k->loads[micro - 1], "the loader gives another one first");
    int before = k->place[a->input_slot];
    for (int c = 0; before >= 0 && c < k->r->x.pipe.chunks; c++)
        expect(k, last_half(k, stages_of(&k->r->x, c), before), "the input slot is in use");
    k->place[a->input_slot] = micro;
}

static void follow_forward(account *k, const action *a) {
    int s, micro = micro_of(k, a, &s), *slot = &k->slot[s][a->slot];
    expect(k, a->slot >= 0 && a->slot < k->r->x.slots[a->first], "no such slot");
    if (a->first == 0 && *slot == FREE) *slot = micro;
    expect(k, *slot == micro, a->first == 0 ? "the slot is in use" : "its input is not in the slot");
    for (int b = a->first; b <= a->last; b++) {
        expect(k, k->forward[b][micro]++ == 0, "it ran forward before");
        expect(k, b == k->r->x.cut[s] || k->forward[b - 1][micro], "the block before did not run");
        expect(k, !k->r->l.shards_weights || k->gathered[b % 2] == b + 1, "the block's weights are not here");
        expect(k, !(k->r->l.shards_weights || k->r->l.spreads) || k->needed[b],
               "nobody waited for the block's weights");
    }
}

static void follow_copy(account *k, const action *a) {
    int s = stage_of(k, a->first) + 1, micro = k->slot[s - 1][a->from];
    if (k->slot[s - 1][a->from] == FREE) return;  // no rank of this line has samples in this turn
    expect(k, micro >= 0 && k->forward[a->first][micro], "it is not there to be handed on");
    expect(k, k->slot[s][a->slot] == FREE, "the slot is in use");
    k->slot[s][a->slot] = micro;
}

// --- gradients of lanes ----------------------------------------------------------------------------------------------

static bool holds(const action_bucket *g, int block) { return g->highest >= block && block >= g->lowest; }

static bool complete(const account *k, const sums *x, int64_t first, int64_t count) {
    for (int64_t lane = 0; lane < k->r->y->lanes; lane++)
        if (x->of[lane] != (lane >= first && lane < first + count ? k->r->y->micros : 0)) return false;
    return x->valid;
}

static void accumulate(account *k, const action *a, int half, int block, int micro) {
    int64_t lane = lane_of(k, micro);
    for (int g = 0; g < k->r->l.buckets; g++) {
        sums *x = &k->sum[half][a->buffer][g][block];
        if (!holds(&k->r->bucket[g], block)) continue;
        expect(k, !k->flying[g], "the bucket is on its way");
        expect(k, x->valid != a->fresh, a->fresh ? "it overwrites gradients" : "it adds to garbage");
        if (a->fresh) *x = (sums){.valid = true};
        expect(k, x->of[lane]++ == micro % k->r->y->micros, "micro-batches are added out of order");
        for (int64_t later = lane + 1; later < k->r->y->lanes; later++)
            expect(k, x->of[later] == 0, "lanes are added out of order");
    }
}

// The sum is lanes first .. first + count - 1, all complete.
static int64_t lanes_of(const account *k, const sums *x, int64_t *first) {
    int64_t n = 0;
    *first = 0;
    while (*first < k->r->y->lanes && !x->of[*first]) ++*first;
    while (*first + n < k->r->y->lanes && x->of[*first + n]) n++;
    return complete(k, x, *first, n) ? n : 0;
}

static void follow_add(account *k, const action *a) {
    for (int g = 0; g < k->r->l.buckets; g++)
        for (int half = 0; half < HALVES; half++)
            for (int b = k->r->bucket[g].lowest; b <= k->r->bucket[g].highest; b++) {
                if (a->bucket >= 0 && a->bucket != g) continue;
                sums *into = &k->sum[half][a->buffer][g][b], *from = &k->sum[half][a->from][g][b];
                int64_t left, right, n = lanes_of(k, into, &left), more = lanes_of(k, from, &right);
                expect(k, !k->flying[g], "the bucket is on its way");
                expect(k, n > 0 && n == more && right == left + n && left % (2 * n) == 0, "they are not siblings");
                for (int64_t lane = right; lane < right + n; lane++) into->of[lane] = from->of[lane];
                *from = (sums){0};
            }
}

// The buffers have the rank's maximal subtrees, or its turn's lane, and nothing else.
static void expect_final(const account *k, int g, int64_t first, int64_t count) {
    lane_counter c = {.count = 1, .span = {{.first = first, .size = count}}};
    if (k->r->y->fixed && !turns(k->r->y)) c = lane_counter_of(first, count, k->r->y->once);
    for (int half = 0; half < HALVES; half++)
        for (int b = k->r->bucket[g].lowest; b <= k->r->bucket[g].highest; b++) {
            int valid = 0;
            for (int i = 0; i < BUFFERS; i++) valid += k->sum[half][i][g][b].valid;
            expect(k, valid == c.count, "there are more or fewer sums than subtrees");
            for (int i = 0; i < c.count; i++)
                expect(k, complete(k, &k->sum[half][c.span[i].buffer][g][b], c.span[i].first, c.span[i].size),
                       "a sum is not complete");
        }
}

// The transport adds the buffers of all ranks: one without a lane sends zeros. Every stage here makes its own.
static void follow_zero(account *k, const action *a) {
    expect(k, turns(k->r->y) && !k->r->y->fixed, "it wipes gradients");
    expect(k, !k->flying[a->bucket], "the bucket is on its way");
    for (int i = 0; i < HALVES; i++)
        for (int b = 0; b < BLOCKS; b++) {
            expect(k, !k->sum[i][0][a->bucket][b].valid, "it wipes gradients");
            k->sum[i][0][a->bucket][b] = (sums){.valid = true};
        }
}

// A bucket of nothing but zeros.
static void expect_zeros(const account *k, int g) {
    for (int half = 0; half < HALVES; half++)
        for (int b = k->r->bucket[g].lowest; b <= k->r->bucket[g].highest; b++)
            expect(k, complete(k, &k->sum[half][0][g][b], 0, 0), "it sends garbage");
}

static void follow_reduce(account *k, const action *a) {
    const layout *y = k->r->y;
    lane_deal d = lane_deal_of(y->lanes, y->data, k->r->data, false);
    expect(k, a->turn == k->reduced[a->bucket]++, "turns are out of order");
    expect(k, !k->flying[a->bucket], "the bucket is on its way already");
    int64_t lane = a->turn * y->data + k->r->data;
    if (!turns(y)) expect_final(k, a->bucket, d.first, d.count);
    else if (lane < y->lanes) expect_final(k, a->bucket, lane, 1);
    else if (!y->fixed) expect_zeros(k, a->bucket);
    k->flying[a->bucket] = true;
}

static void follow_settle(account *k) {
    for (int g = 0; g < k->r->l.buckets; g++) {
        if (k->flying[g])
            for (int i = 0; i < HALVES * BUFFERS; i++)
                for (int b = 0; b < BLOCKS; b++) k->sum[i % 2][i / 2][g][b] = (sums){0};
        k->flying[g] = false;
    }
}

// --- backward --------------------------------------------------------------------------------------------------------

static void leave_stage(account *k, const action *a, int s) {
    if (s + 1 < k->r->x.count) k->gradient[a->in] = FREE;
    k->slot[s][a->slot] = FREE;
}

// The gradient of the stage's inputs is made now.
static void make_gradient(account *k, const action *a, int s, int micro) {
    expect(k, a->out >= 0 && a->out < k->r->x.table.gradients, "no buffer for the gradient");
    if (k->leaving[a->out] != FREE) {
        expect(k, k->arrived[k->leaving[a->out]], "an earlier gradient has not left");
        k->gradient[a->out] = k->leaving[a->out] = FREE;
    }
    expect(k, k->gradient[a->out] == FREE, "the gradient's buffer is in use");
    k->gradient[a->out] = (s - 1) * k->m + micro;
}

static void follow_backward(account *k, const action *a) {
    int s, micro = micro_of(k, a, &s), first = k->r->x.cut[s], end = k->r->x.cut[s + 1];
    bool inputs = a->kind != ACTION_WEIGHTS, weights = a->kind != ACTION_INPUTS;
    expect(k, k->slot[s][a->slot] == micro, "its activations are not in the slot");
    if (s + 1 < k->r->x.count)
        expect(k, a->in >= 0 && k->gradient[a->in] == s * k->m + micro, "the gradient is not in its buffer");
    for (int b = a->last; b >= a->first; b--) {
        expect(k, k->forward[b][micro], "it did not run forward");
        for (int half = 0; half < HALVES; half++) {
            if (!(half ? weights : inputs)) continue;
            expect(k, k->back[half][b][micro]++ == 0, "it ran backward before");
            expect(k, b + 1 == end || k->back[half][b + 1][micro], "the block after did not run");
            expect(k, !micro || !works(k, micro - 1) || k->back[half][b][micro - 1], "micro-batches are out of order");
            accumulate(k, a, half, b, micro);
        }
        expect(k, !weights || k->back[0][b][micro], "the inputs' half comes later");
        expect(k, !inputs || !k->r->l.shards_weights || (k->gathered[b % 2] == b + 1 && k->needed[b]),
               "the block's weights are not here");
    }
    if (inputs && s > 0 && a->first == first) make_gradient(k, a, s, micro);
    if (weights && a->first == first) leave_stage(k, a, s);
}

static void follow_means(account *k, const action *a) {
    int micro = k->place[a->input_slot], s = k->r->x.count - 1;
    expect(k, here(k, s) && micro >= 0 && k->back[0][k->r->x.cut[s]][micro] && !k->means, "no losses, or not told");
    k->means = micro + 1;
}

static void follow_losses(account *k, const action *a) {
    int micro = k->place[a->input_slot];
    expect(k, micro >= 0 && k->means == micro + 1 && k->losses[micro]++ == 0, "no means, or the same twice");
    k->means = 0;
}

// --- messages --------------------------------------------------------------------------------------------------------

// Nothing is asked of what a rank without samples sends, but that it sends.
static void post_send(account *k, const message *m) {
    int stage = m->stage - 1, last = k->r->x.cut[m->stage] - 1;
    bool gradients = m->kind == MESSAGE_GRADIENTS;
    if (gradients && works(k, m->micro))
        expect(k, k->gradient[m->buffer] == stage * k->m + m->micro, "the gradient is not there yet");
    if (gradients) k->leaving[m->buffer] = (int)(m - k->r->x.table.message);
    else if (works(k, m->micro))
        expect(k, k->slot[stage][m->buffer] == m->micro && k->forward[last][m->micro],
               "the activations are not there yet");
}

static void post_receive(account *k, const message *m) {
    int *at = m->kind == MESSAGE_ACTIVATIONS ? &k->slot[m->stage][m->buffer] : &k->gradient[m->buffer];
    expect(k, *at == FREE, "it is received into memory that is in use");
    *at = COMING;
}

static void follow_post(account *k, const action *a) {
    expect(k, a->message == k->next++ && a->message < k->r->x.table.messages, "messages are posted out of order");
    const message *m = &k->r->x.table.message[a->message];
    k->posted[a->message] = true;
    if (m->sends) post_send(k, m);
    else post_receive(k, m);
}

// A micro-batch without samples leaves nothing behind.
static void follow_await(account *k, const action *a) {
    const message *m = &k->r->x.table.message[a->message];
    expect(k, k->posted[a->message], "it was not posted");
    k->arrived[a->message] = true;
    if (m->sends) return;
    int *at = m->kind == MESSAGE_ACTIVATIONS ? &k->slot[m->stage][m->buffer] : &k->gradient[m->buffer];
    expect(k, *at == COMING, "it comes into other memory");
    *at = !works(k, m->micro) ? FREE : m->kind == MESSAGE_ACTIVATIONS ? m->micro : (m->stage - 1) * k->m + m->micro;
}

// A block that is here is not gathered again, and none gives way before it was used.
static void follow_gather(account *k, const action *a) {
    int *place = &k->gathered[a->first % 2];
    expect(k, *place != a->first + 1, "the block is here already");
    expect(k, !*place || k->needed[*place - 1], "the block before it in this place was gathered in vain");
    *place = a->first + 1, k->needed[a->first] = false, k->fresh[a->first % 2] = true;
}

// It came while the block before was used, unless both have the same place.
static void follow_need(account *k, const action *a) {
    int place = a->first % 2;
    expect(k, !k->r->l.shards_weights || k->gathered[place] == a->first + 1, "the block was not gathered");
    expect(k, k->r->l.shards_weights || !k->needed[a->first], "the block was waited for before");
    expect(k, !k->fresh[place] || !k->used || k->used == place + 1,
           "it was not gathered while the block before was used");
    k->needed[a->first] = true;
    k->fresh[0] = k->fresh[1] = false, k->used = place + 1;
}

static void follow(account *k, const action *a) {
    k->now = a;
    switch (a->kind) {
    case ACTION_LOAD: follow_load(k, a); break;
    case ACTION_GATHER: follow_gather(k, a); break;
    case ACTION_NEED: follow_need(k, a); break;
    case ACTION_FORWARD: follow_forward(k, a); break;
    case ACTION_COPY: follow_copy(k, a); break;
    case ACTION_BACKWARD:
    case ACTION_INPUTS:
    case ACTION_WEIGHTS: follow_backward(k, a); break;
    case ACTION_LOSSES: follow_losses(k, a); break;
    case ACTION_POST: follow_post(k, a); break;
    case ACTION_AWAIT: follow_await(k, a); break;
    case ACTION_ZERO: follow_zero(k, a); break;
    case ACTION_MEANS: follow_means(k, a); break;
    case ACTION_ADD: follow_add(k, a); break;
    case ACTION_REDUCE: follow_reduce(k, a); break;
    case ACTION_SETTLE: follow_settle(k); break;
    default: expect(k, a->kind >= ACTION_SQUARES, "an action that has no place in a pipeline's step");
    }
}

static void expect_all(account *k) {
    const layout *y = k->r->y;
    const stages *x = &k->r->x;
    for (int micro = 0; micro < k->m; micro++) {
        int once = works(k, micro);
        expect(k, k->loads[micro] == once && k->losses[micro] == (once && here(k, x->count - 1)),
               "not each micro-batch was run once");
        for (int b = 0; b < k->r->net.blocks; b++) {
            int times = x->chunk[b] >= 0 ? once : 0;
            expect(k, k->forward[b][micro] == times && k->back[0][b][micro] == times && k->back[1][b][micro] == times,
                   "not each block was run once");
        }
    }
    for (int i = 0; i < 2; i++)
        expect(k, !k->gathered[i] || k->needed[k->gathered[i] - 1], "a block was gathered in vain");
    for (int i = 0; i < x->table.messages; i++)
        expect(k, k->posted[i] && (k->arrived[i] || x->table.message[i].sends), "a message is left out");
    for (int g = 0; g < k->r->l.buckets; g++) {
        expect(k, k->reduced[g] == (y->data > 1 ? lane_turns(y->lanes, y->data, turns(y)) : 0),
               "a bucket was not reduced once a turn");
        if (y->data == 1) expect_final(k, g, 0, y->lanes);
    }
}

static void check_list(const member *r) {
    account *k = calloc(1, sizeof *k);
    assert_non_null(k);
    k->r = r, k->m = r->x.pipe.micros;
    assert_true(k->m <= MICROS && r->x.table.messages <= MESSAGES && r->x.table.gradients <= SLOTS &&
                r->l.buckets <= BUCKETS);
    memset(k->place, -1, sizeof k->place);
    for (int i = 0; i < SLOTS; i++) {
        k->gradient[i] = k->leaving[i] = FREE;
        for (int s = 0; s < STAGES; s++) k->slot[s][i] = FREE;
    }
    for (int i = 0; i < r->a.count; i++) follow(k, &r->a.at[i]);
    expect(k, r->a.count > 4 && r->a.at[r->a.count - 5].kind == ACTION_SETTLE && k->now->kind == ACTION_SPREAD,
           "the end is missing");
    expect_all(k);
    free(k);
}

// --- what is recorded of a list --------------------------------------------------------------------------------------

static bool is_part(const action *a) {
    return a->kind == ACTION_FORWARD || a->kind == ACTION_BACKWARD || a->kind == ACTION_INPUTS ||
           a->kind == ACTION_WEIGHTS;
}

// Two that are queued from one recording use the same memory and numbers.
static bool alike(const member *r, const action *a, const action *b) {
    int s = 0;
    while (r->x.cut[s + 1] <= a->first) s++;
    bool same = a->kind == b->kind && a->first == b->first && a->last == b->last && a->input_slot == b->input_slot &&
                a->slot == b->slot && a->fresh == b->fresh;
    bool buffers = a->buffer == b->buffer && (a->first > r->x.cut[s] || a->out == b->out) &&
                   (a->last < r->x.cut[s + 1] - 1 || a->in == b->in);
    return same && buffers && (a[1].kind == ACTION_MEANS) == (b[1].kind == ACTION_MEANS);
}

// Each part of a unit is one, with the means of the losses that it has just formed.
static void check_recordings(const member *r) {
    account k = {.r = r};
    int *first = calloc((size_t)r->a.recordings + 1, sizeof *first), known = 0;
    assert_non_null(first);
    for (int i = 0; i < r->a.count; i++) {
        k.now = &r->a.at[i];
        expect(&k, k.now->covers == (is_part(k.now) ? 1 + (k.now[1].kind == ACTION_MEANS) : 0),
               "it has no recording of its own, or one of more");
        if (!k.now->covers) continue;
        expect(&k, k.now->recording >= 0 && k.now->recording < r->a.recordings, "there is no such recording");
        int *f = &first[k.now->recording];
        known += !*f;
        *f = *f ? *f : i + 1;
        expect(&k, alike(r, k.now, &r->a.at[*f - 1]), "it shares the recording of another action");
    }
    expect(&k, known == r->a.recordings, "a recording is of nothing");
    free(first);
}

// Nobody reads the inputs of a place after the action that says so, before another micro-batch comes there.
static void check_last_reads(const member *r) {
    account k = {.r = r};
    bool *left = calloc((size_t)r->x.input_slots, sizeof *left), *full = calloc((size_t)r->x.input_slots, sizeof *full);
    assert_true(left && full);
    for (int i = 0; i < r->a.count; i++) {
        const action *a = k.now = &r->a.at[i];
        bool reads = is_part(a) || a->kind == ACTION_MEANS || a->kind == ACTION_LOSSES;
        expect(&k, reads || !a->leaves, "it reads no inputs");
        if (reads) expect(&k, full[a->input_slot] && !left[a->input_slot], "the inputs have left");
        if (a->kind == ACTION_LOAD) expect(&k, !full[a->input_slot] || left[a->input_slot], "the inputs have not left");
        if (a->kind == ACTION_LOAD) full[a->input_slot] = true, left[a->input_slot] = false;
        left[a->input_slot] |= a->leaves;
    }
    for (int p = 0; p < r->x.input_slots; p++) expect(&k, !full[p] || left[p], "the inputs never leave");
    free(left), free(full);
}

// Of 4 stages and 24 micro-batches. With gpipe each has a slot of its own. With 1f1b the first stage has four, each
// with a forward and a backward pass, and the first micro-batch's gradients overwrite what was there; the last stage
// has one.
static void few_parts_are_recorded(void **state) {
    static const struct {
        pipeline_kind kind;
        int stage, expected;
    } of[] = {{PIPELINE_GPIPE, 0, 48}, {PIPELINE_GPIPE, 3, 48}, {PIPELINE_1F1B, 0, 9}, {PIPELINE_1F1B, 3, 3}};
    (void)state;
    for (int i = 0; i < 4; i++) {
        layout y = {.kind = of[i].kind, .p = 4, .chunks = 1, .data = 1, .lanes = 1, .micros = 24, .fixed = true};
        member k;
        assert_true(open_member(&k, &y, of[i].stage, 0));
        if (k.a.recordings != of[i].expected)
            fail_msg("%s, stage %d: %d recordings, expected %d", pipeline_name(of[i].kind), of[i].stage, k.a.recordings,
                     of[i].expected);
        close_member(&k);
    }
}

// --- all lists together ----------------------------------------------------------------------------------------------

static bool collective(const action *a) {
    return a->kind == ACTION_GATHER || a->kind == ACTION_REDUCE || a->kind >= ACTION_SHARE;
}

// The n-th collective action of a list. NULL: there are fewer.
static const action *collective_of(const action_list *a, int n) {
    for (int i = 0; i < a->count; i++)
        if (collective(&a->at[i]) && n-- == 0) return &a->at[i];
    return NULL;
}

// Ranks with the same part of the model communicate in the same order.
static void check_order(const member *first, const member *other) {
    account k = {.r = other, .now = other->a.at};
    for (int n = 0;; n++) {
        const action *x = collective_of(&first->a, n), *y = collective_of(&other->a, n);
        if (y) k.now = y;
        expect(&k, !x == !y, "the first rank of the group communicates more or less");
        if (!x) return;
        expect(&k, x->kind == y->kind && x->first == y->first && x->bucket == y->bucket && x->turn == y->turn,
               "the group communicates in another order");
    }
}

// All ranks of a layout.
typedef struct crowd {
    member of[PIPE][DATA];
    const action_list *list[PIPE * DATA];
    const stages *stages[PIPE * DATA];
    int opened;
} crowd;

// False: there is no such pipeline.
static bool open_crowd(crowd *x, const layout *y) {
    bool there = true;
    for (x->opened = 0; there && x->opened < y->p * y->data; x->opened += there) {
        int s = x->opened / y->data, d = x->opened % y->data;
        there = open_member(&x->of[s][d], y, s, d);
        x->list[x->opened] = &x->of[s][d].a, x->stages[x->opened] = &x->of[s][d].x;
    }
    return there;
}

static void close_crowd(crowd *x, const layout *y) {
    for (int i = 0; i < x->opened; i++) close_member(&x->of[i / y->data][i % y->data]);
}

static err_t run_crowd(const crowd *x, const layout *y, const simulate_costs *costs, simulation *out) {
    return simulate_run(&(simulate_lists){y->p, y->data, x->list, x->stages}, costs, out);
}

static void run_against_each_other(const crowd *x, const layout *y) {
    account k = {.r = &x->of[0][0], .now = x->list[0]->at};
    simulation out;
    expect(&k, run_crowd(x, y, NULL, &out) == ERR_OK, err_last()->text);
    simulation_free(&out);
}

// A unit of each kind is one action where nothing is sent in the middle of it; backward takes two.
static double unit_time(void *ctx, int rank, const action *a) {
    (void)rank;
    return is_part(a) ? (a->kind == ACTION_BACKWARD ? 2 : 1) : a->kind == ACTION_POST ? *(double *)ctx : 0;
}

// The lists say the same as the tables that they are made from.
static void lists_take_the_time_of_their_tables(void **state) {
    (void)state;
    static crowd x;
    double message = 0.25;
    for (int kind = 0; kind < PIPELINE_KINDS; kind++)
        for (int p = 2; p <= PIPE; p++) {
            int chunks = kind == PIPELINE_ZB_V || kind == PIPELINE_INTERLEAVED ? 2 : 1;
            layout y = {(pipeline_kind)kind, p, chunks, 1, 1, 12, 0, true, false};
            static const double each[STAGES][UNIT_KINDS] = {[0 ... STAGES - 1] = {1, 2, 1, 1}};
            simulation out;
            timeline t;
            assert_true(open_crowd(&x, &y));
            assert_int_equal(timeline_of(&x.stages[0]->pipe, &(timeline_costs){each, message, 0}, &t), ERR_OK);
            assert_int_equal(run_crowd(&x, &y, &(simulate_costs){.time = unit_time, .ctx = &message}, &out), ERR_OK);
            if (out.total != t.makespan)
                fail_msg("%s on %d ranks: the lists take %g, the tables %g", pipeline_name(y.kind), p, out.total,
                         t.makespan);
            for (int i = 0; i < p; i++) assert_float_equal(out.rank[i].busy, t.rank[i].busy, 1e-9);
            simulation_free(&out), timeline_free(&t);
            close_crowd(&x, &y);
        }
}

static void expect_stuck(crowd *x, const layout *y, const char *says) {
    simulation out;
    if (run_crowd(x, y, NULL, &out) != ERR_INTERNAL || !strstr(err_last()->text, says))
        fail_msg("%s\nexpected: %s", err_last()->text, says);
    assert_null(out.rank);
    close_crowd(x, y);
}

static action *find(const action_list *a, action_kind kind) {
    int i = 0;
    while (a->at[i].kind != kind) i++;
    return &a->at[i];
}

// Two stages: the first one waits for its gradient before it has sent anything. Two ranks: one leaves a bucket out.
static void who_waits_for_whom_is_said(void **state) {
    (void)state;
    static crowd x;
    layout y = {.kind = PIPELINE_GPIPE, .p = 2, .chunks = 1, .data = 1, .lanes = 1, .micros = 1, .fixed = true};
    assert_true(open_crowd(&x, &y));
    action_list *a = &x.of[0][0].a;
    action first = *find(a, ACTION_AWAIT);
    memmove(a->at + 1, a->at, (size_t)(find(a, ACTION_AWAIT) - a->at) * sizeof *a->at);
    a->at[0] = first;
    expect_stuck(
        &x, &y,
        "never end: rank 0 waits in `await 0` for `receive gradients 1.0 from 1 into buffer 0 at once` of rank 1; "
        "rank 1 waits in `await 0` for `receive activations 1.0 from 0 into slot 0 at once` of rank 0");
    layout two = {.kind = PIPELINE_GPIPE, .p = 2, .chunks = 1, .data = 2, .lanes = 2, .micros = 1, .fixed = true};
    assert_true(open_crowd(&x, &two));
    find(&x.of[0][1].a, ACTION_REDUCE)->kind = ACTION_LOSSES;
    expect_stuck(&x, &two,
                 "rank 1 does `reduce bucket 1 turn 0`, and the first rank of its group `reduce bucket 0 turn 0`");
}

// False: there is no such layout.
static bool check_layout(const layout *y) {
    static crowd x;
    bool there = open_crowd(&x, y);
    for (int i = 0; there && i < x.opened; i++) {
        const member *r = &x.of[i / y->data][i % y->data];
        check_list(r);
        check_recordings(r);
        check_last_reads(r);
    }
    for (int s = 0; there && s < y->p; s++)
        for (int d = 1; d < y->data; d++) check_order(&x.of[s][0], &x.of[s][d]);
    if (there) run_against_each_other(&x, y);
    close_crowd(&x, y);
    return there;
}

static void all_layouts_keep_the_laws(pipeline_kind kind) {
    int layouts = 0;
    for (int p = 2; p <= PIPE; p++)
        for (int chunks = 1; chunks <= 2; chunks++)
            for (int data = 1; data <= DATA; data++)
                for (int lanes = 1; lanes <= LANES; lanes *= 2)
                    for (int micros = 1; micros <= 3 && data <= lanes; micros++)
                        for (int zero = 0; zero <= (data > 1 ? 3 : 0); zero++)
                            for (int how = 0; how < 3; how++) {
                                if (how == 1 && micros > 1) continue;
                                layout y = {kind, p, chunks, data, lanes, micros, zero, how < 2, how == 1};
                                layouts += check_layout(&y);
                            }
    assert_true(layouts > 100);
}

static void lists_of_gpipe(void **state) { (void)state, all_layouts_keep_the_laws(PIPELINE_GPIPE); }
static void lists_of_1f1b(void **state) { (void)state, all_layouts_keep_the_laws(PIPELINE_1F1B); }
static void lists_of_interleaved(void **state) { (void)state, all_layouts_keep_the_laws(PIPELINE_INTERLEAVED); }
static void lists_of_zb_h1(void **state) { (void)state, all_layouts_keep_the_laws(PIPELINE_ZB_H1); }
static void lists_of_zb_v(void **state) { (void)state, all_layouts_keep_the_laws(PIPELINE_ZB_V); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_parts_are_recorded),
        cmocka_unit_test(two_stages_of_1f1b),
        cmocka_unit_test(lists_of_gpipe),
        cmocka_unit_test(lists_of_1f1b),
        cmocka_unit_test(lists_of_interleaved),
        cmocka_unit_test(lists_of_zb_h1),
        cmocka_unit_test(lists_of_zb_v),
        cmocka_unit_test(lists_take_the_time_of_their_tables),
        cmocka_unit_test(who_waits_for_whom_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
