// test/test_pipe_plan.c: `plan` says of models that ranks share what runs hold and send, to the byte and to the
// message, connection by connection: pipelines of every schedule, layers divided among ranks, both, with data parallel
// groups of any ZeRO stage, recomputation and offload, of three architectures, tied and not, on one node and on two.
// And it knows which layers run backward in halves, and so wait less.
#include "test/support/ranks.h"
#include "trainer/plan/plan.h"
#include "trainer/session/restore.h"
#include "trainer/step/outer.h"
#include "trainer/step/timeline.h"

#include <inttypes.h>
#include <math.h>

static const char gpt[] =
    "[model]\nlayers = 5\nheads = 3\nembed = 36\ncontext = 16\nvocab = 131\n"
    "[batch]\nglobal = 16\nmicro = 2\nlanes = 8\n[device]\nthreads = 1\n[reduce]\nbucket_mb = 0.02\n[cluster]\ntimeout = 20\n";
static const char llama[] =
    "[model]\ntype = llama\nlayers = 6\nheads = 4\nkv_heads = 2\nembed = 32\ncontext = 16\nvocab = 131\n"
    "[batch]\nglobal = 16\nmicro = 2\nlanes = 4\n[device]\nthreads = 1\n[reduce]\nbucket_mb = 0.02\n[cluster]\ntimeout = 20\n";
static const char mlp[] =
    "[model]\ntype = mlp\ninputs = 24\nhidden = 40 40 40 32 40 40 40\nclasses = 10\n[sample]\ntokens = 0\n"
    "[batch]\nglobal = 16\nmicro = 1\nlanes = 8\n[device]\nthreads = 1\n[reduce]\nbucket_mb = 0.02\n[cluster]\ntimeout = 20\n";

static const char dlrm[] =
    "[model]\ntype = dlrm\nrows = 40\nembed = 4\nbottom = 9\ntop = 12 7\n[sample]\ntokens = 0\n"
    "[batch]\nglobal = 16\nmicro = 2\nlanes = 4\n[device]\nthreads = 1\n[reduce]\nbucket_mb = 0.02\n[cluster]\ntimeout = 20\n";

static const char ratings[] =
    "[model]\ntype = dlrm\ntask = regress\ndense = 0\ntables = 2\nrows = 40\nembed = 4\nbottom =\ntop = 12\n[sample]\ntokens = 0\n"
    "[batch]\nglobal = 16\nmicro = 2\nlanes = 4\n[device]\nthreads = 1\n[reduce]\nbucket_mb = 0.02\n[cluster]\ntimeout = 20\n";

typedef struct layout {
    const char *model, *more;
    rank_world world;
} layout;

#define FOUR "[model]\nheads = 4\n"
#define BF16 "[precision]\ncompute = bf16\n"
#define ISLANDS(n) \
    "[run]\nsteps = 4\n[checkpoint]\nevery = 0\n[eval]\nevery = 0\n[sample]\ntokens = 0\n" \
    "[outer]\nevery = 2\nislands = " #n "\n"
static const layout layouts[] = {
    {gpt, "[parallel]\npipeline = 1\nzero = 2\n", ONE(2)},
    {gpt, "[parallel]\npipeline = 2\n", ONE(2)},
    {gpt, BF16 "[parallel]\npipeline = 2\nzero = 1\n", TWO(2, 2)},
    {gpt, BF16 "[parallel]\npipeline = 2\nzero = 2\nschedule = gpipe\nrecompute = block\n", ONE(4)},
    {gpt, "[parallel]\npipeline = 2\nzero = 3\nrecompute = selective\n", TWO(4, 2)},
    {gpt, "[parallel]\npipeline = 3\nschedule = zb-h1\n", TWO(1, 2)},
    {gpt, "[parallel]\npipeline = 3\nzero = 1\noffload = nvme\nstages = 1 1 5\n", ONE(6)},
    {gpt, BF16 "[parallel]\npipeline = 4\nschedule = gpipe\noffload = yes\n", ONE(4)},
    {gpt, BF16 "[parallel]\npipeline = 2\nschedule = interleaved\nchunks = 2\nzero = 2\n", ONE(4)},
    {gpt, "[parallel]\npipeline = 2\nschedule = zb-v\nzero = 3\n", ONE(4)},
    {gpt, BF16 "[parallel]\npipeline = 2\nschedule = zb-v\n[reduce]\norder = any\n", TWO(3, 3)},
    {llama, "[parallel]\npipeline = 2\nzero = 3\n", ONE(4)},
    {llama, BF16 "[model]\ntied = yes\n[parallel]\npipeline = 4\nzero = 1\n", TWO(4, 4)},
    {llama, "[model]\ntied = yes\n[parallel]\npipeline = 2\nschedule = interleaved\nchunks = 3\n", TWO(1, 1)},
    {llama, BF16 "[parallel]\npipeline = 4\nschedule = zb-v\nrecompute = block\n", ONE(4)},
    {llama, "[parallel]\npipeline = 3\nschedule = zb-h1\nzero = 2\noffload = nvme\n", ONE(6)},
    {llama, BF16 "[parallel]\npipeline = 1\nzero = 3\n", TWO(1, 2)},
    {mlp, "[parallel]\npipeline = 2\nschedule = zb-h1\n", ONE(4)},
    {mlp, BF16 "[parallel]\npipeline = 4\nschedule = zb-v\nzero = 1\n", ONE(8)},
    {mlp, BF16 "[parallel]\npipeline = 3\nzero = 3\n", TWO(3, 3)},
    {mlp, "[parallel]\npipeline = 4\nschedule = interleaved\nchunks = 2\noffload = yes\n", TWO(2, 2)},
    {mlp, "[parallel]\npipeline = 2\nschedule = gpipe\nzero = 2\nstages = 3 5\n", TWO(2, 4)},
    {mlp, "[parallel]\npipeline = 4\n[reduce]\norder = any\n", ONE(8)},
    {dlrm, "[parallel]\npipeline = 2\nschedule = zb-h1\n", ONE(4)},
    {dlrm, BF16 "[parallel]\npipeline = 3\nzero = 3\nrecompute = block\n", ONE(6)},
    {ratings, "[parallel]\npipeline = 2\nzero = 1\n", ONE(4)},
    {gpt, FOUR "[parallel]\nslices = 4\ntensor = 2\n", ONE(2)},
    {gpt, FOUR BF16 "[parallel]\nslices = 4\ntensor = 4\nzero = 1\n", TWO(4, 4)},
    {gpt, FOUR "[parallel]\nslices = 4\ntensor = 2\npipeline = 2\nzero = 3\n", ONE(8)},
    {gpt, FOUR BF16 "[parallel]\nslices = 4\ntensor = 4\npipeline = 2\nrecompute = block\n", TWO(3, 5)},
    {gpt, FOUR "[parallel]\nslices = 2\ntensor = 2\nrecompute = selective\noffload = nvme\nzero = 2\n", ONE(6)},
    {gpt, FOUR BF16 "[parallel]\nslices = 2\ntensor = 2\n[reduce]\norder = any\n", TWO(1, 1)},
    {gpt, FOUR "[parallel]\nslices = 4\ntensor = 4\nsequence = yes\n", ONE(8)},
    {gpt,
     FOUR BF16
     "[model]\ncontext = 15\n[batch]\nmicro = 1\n[parallel]\nslices = 4\ntensor = 4\nsequence = yes\npipeline = 2\n",
     TWO(3, 5)},
    {llama, BF16 "[parallel]\nslices = 2\ntensor = 2\nsequence = yes\npipeline = 2\nschedule = zb-v\n", ONE(4)},
    {llama, BF16 "[parallel]\nslices = 2\ntensor = 2\npipeline = 2\nschedule = zb-v\n", ONE(4)},
    {llama, "[model]\nqk_norm = yes\ntied = yes\n[parallel]\nslices = 2\ntensor = 2\nzero = 2\n", TWO(2, 2)},
    {gpt, FOUR "[parallel]\nslices = 4\ntoken_slices = 4\n", ONE(2)},
    {gpt, FOUR "[parallel]\nslices = 2\ntoken_slices = 2\ncontext = 2\nzero = 2\n", ONE(4)},
    {gpt, FOUR BF16 "[parallel]\nslices = 4\ntoken_slices = 4\ncontext = 4\nzero = 3\nrecompute = block\n", TWO(3, 5)},
    {gpt,
     FOUR BF16
     "[batch]\nlanes = 4\n[parallel]\nslices = 4\ntoken_slices = 4\ncontext = 2\nzero = 2\ntensor = 2\npipeline = 2\n",
     ONE(8)},
    {gpt,
     FOUR
     "[model]\ncontext = 15\n[batch]\nmicro = 1\n[parallel]\nslices = 4\ntoken_slices = 4\ncontext = 4\nzero = 2\npipeline = 2\nschedule = zb-v\n",
     TWO(4, 4)},
    {llama,
     BF16
     "[model]\nqk_norm = yes\nkv_heads = 4\n[parallel]\nslices = 4\ntoken_slices = 4\ncontext = 2\nzero = 2\nrecompute = selective\n",
     ONE(4)},
    {llama,
     "[model]\nbias = all\n[parallel]\nslices = 2\ntoken_slices = 2\ncontext = 2\nzero = 3\npipeline = 2\nschedule = zb-h1\n",
     TWO(2, 2)},
    {llama, "[parallel]\nslices = 2\ntoken_slices = 2\ncontext = 2\nzero = 2\n[reduce]\norder = any\n", TWO(1, 1)},
    {mlp, "[parallel]\nslices = 8\ntensor = 4\npipeline = 2\nschedule = zb-h1\n", ONE(8)},
    {mlp, BF16 "[parallel]\nslices = 4\ntensor = 2\nzero = 3\n", ONE(4)},
    {gpt, "[parallel]\npipeline = 2\nzero = 3\n", RACKS(1, 1, 2, 2)},
    {gpt, FOUR "[parallel]\nslices = 4\ntensor = 2\nzero = 1\n", RACKS(2, 2, 2, 2)},
    // what Muon sends of its directions
    {gpt, FOUR "[optimizer]\ntype = muon\n[parallel]\nslices = 4\ntensor = 2\nzero = 2\n", TWO(2, 2)},
    {gpt, FOUR "[optimizer]\ntype = muon\n[parallel]\nslices = 4\ntensor = 4\noffload = host\n", ONE(4)},
    {llama,
     BF16 "[optimizer]\ntype = muon\ngroups = *norm*: frozen\n[parallel]\nslices = 2\ntensor = 2\npipeline = 2\n",
     ONE(4)},
    {llama, BF16 "[parallel]\npipeline = 1\nzero = 2\n", RACKS(1, 1, 1, 1)},
    {gpt, "[parallel]\npipeline = 1\nzero = 1\n[reduce]\norder = any\n", RACKS(1, 1, 1, 1)},
    {gpt, ISLANDS(2) "type = nesterov\n[parallel]\nzero = 1\n", RACKS(2, 1, 2, 1)},
    // steps 2 and 3: a boundary, and none
    {gpt, ISLANDS(2), ONE(2)},
    {gpt, ISLANDS(2) "type = nesterov\n" BF16 "[parallel]\nzero = 1\n", TWO(2, 4)},
    {gpt, ISLANDS(4) "type = nesterov\n[parallel]\nzero = 2\n", TWO(3, 5)},
    {gpt, ISLANDS(2) BF16 "[parallel]\nzero = 3\n", ONE(6)},
    {gpt, ISLANDS(2) "compress = int8\n", ONE(2)},
    {gpt, ISLANDS(4) "type = nesterov\ncompress = int8\n" BF16 "[parallel]\nzero = 1\n", TWO(3, 5)},
    {gpt, FOUR ISLANDS(2) "compress = fp16\nmoments = own\n[parallel]\nslices = 2\ntensor = 2\nzero = 2\n", ONE(8)},
    {llama, ISLANDS(2) "compress = int8\nmoments = own\n[model]\ntied = yes\n[parallel]\npipeline = 2\n", TWO(2, 2)},
    {gpt, FOUR ISLANDS(2) "type = nesterov\n" BF16 "[parallel]\nslices = 4\ntensor = 2\npipeline = 2\n", ONE(8)},
    {llama, ISLANDS(2) "[model]\ntied = yes\n[parallel]\npipeline = 2\nzero = 1\n", TWO(4, 4)},
    // after steps 2 and 3 other tensors leave, or arrive
    {gpt, ISLANDS(4) "fragments = h.0.*:2+1 w?e.*:3\n", TWO(3, 5)},
    {gpt,
     ISLANDS(2) "type = nesterov\ncompress = int8\nmoments = own\noverlap = 1\nfragments = h.0.*:3\n" BF16
                "[parallel]\nzero = 2\n",
     TWO(2, 2)},
    {gpt, FOUR ISLANDS(2) "moments = own\noverlap = 1\n[parallel]\nslices = 2\ntensor = 2\n", ONE(4)},
};

// --- a rank ----------------------------------------------------------------------------------------------------------

static void add_traffic(comm_cost *to, const comm *c) {
    if (c) *to = cost_add(*to, cost_between(&(comm_traffic){0}, &c->traffic));
}

// Since the communicators were opened.
static void sent_so_far(const session *x, comm_cost to[PLAN_GROUPS]) {
    const groups *g = &x->groups;
    memset(to, 0, PLAN_GROUPS * sizeof *to);
    add_traffic(&to[PLAN_ALL], x->ranks);
    for (int k = 0; k < GROUP_KINDS; k++)
        if (g->group[k] != x->ranks)
            add_traffic(&to[k == GROUP_TENSOR    ? PLAN_TENSOR
                            : k == GROUP_CONTEXT ? PLAN_CONTEXT
                            : k == GROUP_ISLANDS ? PLAN_ISLANDS
                                                 : PLAN_DATA],
                        g->group[k]);
    for (int k = 0; k < LINK_KINDS; k++)
        add_traffic(&to[PLAN_STAGES], g->after[k]), add_traffic(&to[PLAN_STAGES], g->before[k]);
}

// A message counts once its call is over, at both ends.
static err_t settle(session *x) {
    TRY(session_settle(x));
    TRY(outer_wait(&x->state));
    for (int k = 0; k < LINKS_MOST; k++)
        if (x->runner.links.side[k]) TRY(stream_wait(x->runner.links.side[k]));
    return ERR_OK;
}

static err_t expect(const char *what, const char *unit, int64_t found, int64_t planned) {
    return found == planned ? ERR_OK
                            : err_set(ERR_INTERNAL, "%s: %" PRId64 " %s, planned %" PRId64, what, found, unit, planned);
}

static err_t expect_sent(const char *what, const comm_cost *before, const comm_cost *after, const comm_cost *planned) {
    char far[64], racks[64];
    snprintf(far, sizeof far, "%s on other nodes", what);
    snprintf(racks, sizeof racks, "%s in other racks", what);
    TRY(expect(what, "bytes", after->sent - before->sent, planned->sent));
    TRY(expect(far, "bytes", after->sent_far - before->sent_far, planned->sent_far));
    TRY(expect(racks, "bytes", after->sent_racks - before->sent_racks, planned->sent_racks));
    TRY(expect(what, "messages", after->messages - before->messages, planned->messages));
    TRY(expect(far, "messages", after->messages_far - before->messages_far, planned->messages_far));
    return expect(racks, "messages", after->messages_racks - before->messages_racks, planned->messages_racks);
}

// What is planned of a step after which islands mix. Of such that are apart, it depends on the step.
static void mix_plan(session *x, plan_rank *p) {
    if (config_is_apart(x->cfg))
        p->mixed[PLAN_ISLANDS] = outer_cost(&x->state, x->progress.step),
        p->mixed[PLAN_DATA] = outer_cost_inside(&x->state, x->progress.step);
    for (int g = 0; g < PLAN_GROUPS; g++) {
        p->to[g] = cost_add(p->to[g], p->mixed[g]);
        p->sent += p->mixed[g].sent, p->sent_far += p->mixed[g].sent_far, p->sent_racks += p->mixed[g].sent_racks;
    }
}

static err_t compare_traffic(session *x, const comm_cost before[PLAN_GROUPS], const comm_cost after[PLAN_GROUPS],
                             plan_rank p) {
    static const char *const name[] = {
        [PLAN_DATA] = "sent to the data group",       [PLAN_TENSOR] = "sent to the tensor group",
        [PLAN_CONTEXT] = "sent to the context group", [PLAN_STAGES] = "sent to stages",
        [PLAN_ISLANDS] = "sent to islands",           [PLAN_ALL] = "sent to all"};
    if (!grid_is_divided(&x->shape))
        p.to[PLAN_ALL] = cost_add(p.to[PLAN_ALL], p.to[PLAN_DATA]), p.to[PLAN_DATA] = (comm_cost){0};
    comm_cost all = {0};
    bool mixed = x->shape.islands > 1 && outer_is_due(&x->state, x->progress.step);
    if (mixed) mix_plan(x, &p);
    for (int g = 0; g < PLAN_GROUPS; g++) {
        TRY(expect_sent(name[g], &before[g], &after[g], &p.to[g]));
        all = cost_add(all, p.to[g]);
    }
    TRY(expect("sent", "bytes", all.sent, p.sent));
    TRY(expect("sent to other nodes", "bytes", all.sent_far, p.sent_far));
    return expect("sent to other racks", "bytes", all.sent_racks, p.sent_racks);
}

static err_t compare_memory(const session *x, const plan_rank *p) {
    size_t held = state_bytes(&x->state) + x->runner.memory.bytes + x->runner.staging.bytes + x->ring_bytes;
    return expect("memory", "bytes", (int64_t)held, (int64_t)plan_bytes(p));
}

// What a rank holds at once, by the schedule run on paper.
static err_t compare_slots(const session *x, const plan_rank *p) {
    const stages *s = &x->stages;
    bool halves = x->runner.pipelined && (s->pipe.kind == PIPELINE_ZB_H1 || s->pipe.kind == PIPELINE_ZB_V);
    if (x->runner.flow.plan.halves != halves)
        return err_set(ERR_INTERNAL, "halves planned: %d, expected %d", !halves, halves);
    static const double each[PLAN_CHUNKS][UNIT_KINDS] = {[0 ... PLAN_CHUNKS - 1] = {1, 2, 1, 1}};
    timeline t;
    if (!x->runner.pipelined) return ERR_OK;
    TRY(timeline_of(&s->pipe, &(timeline_costs){.unit = each}, &t));
    int most = t.rank[s->rank].held, sum = 0;
    timeline_free(&t);
    for (int c = 0; c < s->pipe.chunks; c++) {
        sum += p->held[c];
        for (int b = p->first[c]; b <= p->last[c]; b++)
            if (x->runner.flow.slots[b] != p->held[c])
                return err_set(ERR_INTERNAL, "block %d has %d slots", b, x->runner.flow.slots[b]);
    }
    // what one stage frees fits no other
    if (s->pipe.chunks == 1 ? sum == most && s->table.slots == most : sum >= most) return ERR_OK;
    return err_set(ERR_INTERNAL, "memory for %d activations, and the schedule holds %d", sum, most);
}

static err_t measure(session *x) {
    enum { STEPS = 3 };
    comm_cost before[PLAN_GROUPS], after[PLAN_GROUPS];
    step_result r;
    plan_rank p;
    TRY(session_init(x));
    TRY(session_feed(x, STEPS));
    TRY(plan_one(x->cfg, x->ranks->rank, x->ranks->world, x->ranks->place, &p));
    TRY(compare_memory(x, &p));
    TRY(compare_slots(x, &p));
    TRY(session_step(x, &r));
    while (x->progress.step < STEPS) {
        TRY(settle(x));
        sent_so_far(x, before);
        TRY(session_step(x, &r));
        TRY(settle(x));
        sent_so_far(x, after);
        TRY(compare_traffic(x, before, after, p));
    }
    return ERR_OK;
}

// Two halves of the model, at the same step or not: as much in all, and half as much at once.
static void fragments_share_the_wire(void **state) {
    (void)state;
    static const char *const more[] = {ISLANDS(2) "moments = own\nfragments = h.*:2\n",
                                       ISLANDS(2) "moments = own\nfragments = h.0.*:2 h.1.*:2+1\n"};
    const char *model = "[model]\nvocab = 16\ncontext = 4\nlayers = 2\n";
    char *dir = rank_dir(), all[512];
    plan_rank p[2];
    for (int k = 0; k < 2; k++) {
        const comm_place place[2] = {{0}, {0}};
        config c;
        snprintf(all, sizeof all, "%s%s[device]\nranks = 2\n", model, more[k]);
        rank_config(&c, dir, gpt, all);
        OK(plan_one(&c, 0, 2, place, &p[k]));
    }
    int64_t whole = p[0].mixed[PLAN_ISLANDS].sent, half = p[1].mixed[PLAN_ISLANDS].sent;
    assert_true(p[0].busiest == 2 && p[1].busiest == 2);
    assert_true(half > whole / 2 && half < whole * 6 / 10);
    assert_true(fabs(p[1].mixed_each / p[0].mixed_each - 1) < 0.01 && p[0].mixed_each * 2 == (double)whole);
    drop_dir(dir);
}

// What leaves an island is mixed in `overlap` steps later, and as much is sent inside then as if it were at once.
static void what_arrives_later_is_counted(void **state) {
    (void)state;
    const char *model = "[model]\nvocab = 16\ncontext = 4\nlayers = 2\n[parallel]\nzero = 1\n[device]\nranks = 4\n"
                        "[outer]\nislands = 2\nevery = 8\nmoments = own\nfragments = h.0.*:8+4\n";
    char *dir = rank_dir(), all[512];
    int64_t sent[4];
    for (int overlap = 0; overlap < 4; overlap++) {
        const comm_place place[4] = {{0}};
        config c;
        plan_rank p;
        snprintf(all, sizeof all, "%soverlap = %d\n", model, overlap);
        rank_config(&c, dir, gpt, all);
        OK(plan_one(&c, 0, 4, place, &p));
        sent[overlap] = p.mixed[PLAN_DATA].sent;
        assert_true(sent[overlap] > 0 && p.mixed[PLAN_ISLANDS].sent > 0);
        assert_int_equal(sent[overlap], sent[0]);
    }
    drop_dir(dir);
}

static err_t run_rank(const config *c, const launch *at, void *ctx) {
    session x;
    (void)ctx;
    err_t rc = session_open(&x, c, SESSION_BENCH, at);
    if (rc == ERR_OK) rc = measure(&x);
    session_abort(&x, rc);
    session_close(&x);
    return rc;
}

// --- on paper --------------------------------------------------------------------------------------------------------

// The share of a step in which the ranks of a pipeline wait.
static double idle(const char *dir, const char *text, pipeline_kind kind, recomputation again) {
    pipeline_layout l = {.kind = kind, .ranks = 3, .micros = 8, .chunks = kind == PIPELINE_ZB_V ? 2 : 1};
    config c;
    model *net;
    timeline t;
    int cut[7];
    rank_config(&c, dir, text, "");
    OK(model_open(&net, model_types[c.model.type], &c.model.of));
    stages_balance(net, pipeline_stages(&l), cut);
    OK(timeline_of_flops(&l, net, cut, again, &t));
    double share = t.idle;
    model_close(net);
    timeline_free(&t);
    return share;
}

// What recomputes has no halves, so the schedule gains nothing.
static void halves_wait_less(void **state) {
    (void)state;
    static const char *const models[] = {gpt, llama, mlp};
    char *dir = rank_dir();
    for (int i = 0; i < 3; i++)
        for (int again = RECOMPUTE_NONE; again <= RECOMPUTE_SELECTIVE; again++) {
            double whole = idle(dir, models[i], PIPELINE_1F1B, (recomputation)again);
            double later = idle(dir, models[i], PIPELINE_ZB_H1, (recomputation)again);
            bool gains = again == RECOMPUTE_NONE || models[i] == mlp;
            if (gains ? later > 0.75 * whole : later < whole - 1e-9)
                fail_msg("model %d, recompute %d: %.1f %% idle with zb-h1, %.1f with 1f1b", i, again, 100 * later,
                         100 * whole);
        }
    drop_dir(dir);
}

// The flops of a block by the passes that run it: forward once, its two gradients, and forward again where it is
// recomputed. The last block, which has the loss, does all of it backward.
static double passes(const model *net, int b, recomputation again) {
    const block *k = &net->block[b];
    return k->flops / 3 * (again == RECOMPUTE_BLOCK && k->recomputes && b + 1 < net->blocks ? 4 : 3);
}

// A rank is busy for as long as its blocks' passes take, whatever the schedule: what is recomputed is work, not
// waiting.
static void ranks_are_busy_with_their_passes(void **state) {
    (void)state;
    static const char *const models[] = {gpt, llama, mlp};
    enum { RANKS = 3, MICROS = 4 };
    char *dir = rank_dir();
    for (int i = 0; i < 3; i++)
        for (int again = RECOMPUTE_NONE; again <= RECOMPUTE_BLOCK; again++)
            for (int kind = PIPELINE_GPIPE; kind <= PIPELINE_ZB_H1; kind++) {
                pipeline_layout l = {.kind = (pipeline_kind)kind, .ranks = RANKS, .micros = MICROS, .chunks = 1};
                config c;
                model *net;
                timeline t;
                int cut[RANKS + 1];
                if (kind == PIPELINE_INTERLEAVED) continue;  // two chunks a rank, or it is 1f1b
                rank_config(&c, dir, models[i], "");
                OK(model_open(&net, model_types[c.model.type], &c.model.of));
                stages_balance(net, RANKS, cut);
                OK(timeline_of_flops(&l, net, cut, (recomputation)again, &t));
                for (int r = 0; r < RANKS; r++) {
                    double work = 0, first = 0, busy = (1 - t.rank[r].idle) * t.makespan, forward = 0;
                    for (int b = cut[r]; b < cut[r + 1]; b++) {
                        work += MICROS * passes(net, b, (recomputation)again);
                        first += b + 1 < net->blocks ? MICROS * net->block[b].flops / 3 : 0;
                    }
                    for (int k = 0; k < t.rank[r].bars; k++)
                        if (t.rank[r].bar[k].kind == UNIT_FORWARD)
                            forward += t.rank[r].bar[k].end - t.rank[r].bar[k].start;
                    if (!(fabs(busy - work) <= 1e-6 * work && fabs(forward - first) <= 1e-6 * work))
                        fail_msg(
                            "model %d, recompute %d, %s: rank %d is busy for %g, of these %g forward, expected %g and %g",
                            i, again, pipeline_name(l.kind), r, busy, forward, work, first);
                }
                model_close(net);
                timeline_free(&t);
            }
    drop_dir(dir);
}

// Buckets that are filled at once, by the list of actions.
static int filled_at_once(const action_list *a) {
    int now = 0, most = 0;
    for (int i = 0; i < a->count; i++) {
        now += (a->at[i].kind == ACTION_TAKE) - (a->at[i].kind == ACTION_REDUCE);
        most = now > most ? now : most;
    }
    return most;
}

// ZeRO 2 and 3: one more slot than buckets are filled at once, so that one may be on its way while the next block runs;
// never more slots than buckets.
static void one_bucket_is_on_its_way(void **state) {
    (void)state;
    static const char *const sizes[] = {"0.001", "0.004", "0.01", "0.03", "1"};
    static const comm_place place[2] = {{.rank = 0}, {.local = 1, .rank = 1}};
    char *dir = rank_dir(), more[128];
    int several = 0, all = 0;
    for (int i = 0; i < 5; i++)
        for (int zero = 2; zero <= 3; zero++) {
            config c;
            session x = {0};
            comm *ranks;
            snprintf(more, sizeof more,
                     "[batch]\nmicro = 2\nlanes = 8\n[parallel]\nzero = %d\n[reduce]\nbucket_mb = %s\n", zero,
                     sizes[i]);
            rank_config(&c, dir, gpt, more);
            OK(comm_imaginary_open(&ranks, 0, 2, place));
            OK(session_plan(&x, &c, ranks));
            int filled = filled_at_once(&x.runner.actions), buckets = x.state.zero.buckets,
                want = filled + 1 < buckets ? filled + 1 : buckets;
            if (x.state.slots != want)
                fail_msg("bucket_mb = %s: %d slots, %d filled at once of %d buckets", sizes[i], x.state.slots, filled,
                         buckets);
            for (int slot = 0; slot < want; slot++) {  // as large as the largest bucket that takes its turn there
                size_t most = 0;
                for (int k = slot; k < buckets; k += want)
                    most = x.state.zero.bucket[k].floats > most ? x.state.zero.bucket[k].floats : most;
                assert_int_equal(x.state.slot[slot].size[0], most);
            }
            several += filled > 1, all += want == buckets;
            session_close(&x);
        }
    assert_true(several > 0 && all > 0 && all < 10);
    drop_dir(dir);
}

// --- tests -----------------------------------------------------------------------------------------------------------

static void plan_says_what_runs_hold_and_send(void **state) {
    (void)state;
    char *dir = rank_dir();
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const layout *l = &layouts[i];
        config c;
        char name[512];
        rank_config(&c, dir, l->model, l->more);
        snprintf(name, sizeof name, "layout %zu, %s on %d ranks, %s", i, model_types[c.model.type]->name,
                 rank_count(&l->world), l->more);
        OK(config_fits(&c, rank_count(&l->world)));
        run_ranks(name, &l->world, &c, run_rank, NULL);
    }
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_says_what_runs_hold_and_send), cmocka_unit_test(fragments_share_the_wire),
        cmocka_unit_test(what_arrives_later_is_counted),     cmocka_unit_test(halves_wait_less),
        cmocka_unit_test(ranks_are_busy_with_their_passes),  cmocka_unit_test(one_bucket_is_on_its_way)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
