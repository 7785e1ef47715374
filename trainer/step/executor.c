// trainer/step/executor.c: see trainer/step/executor.h. Compute is queued on one stream, communication on another
// (trainer/step/parallel.h). A micro-batch during which nothing is sent is recorded once, where the device can, and
// from then on queued as a whole. So is what a pipeline's rank computes of one between two messages
// (trainer/step/recorded.h).
#include "trainer/step/executor.h"

#include "base/clock.h"
#include "base/fault.h"
#include "model/slices.h"

#include <inttypes.h>
#include <signal.h>
#include <unistd.h>

// The micro-batch under way; of a pipeline the one that the last action was of.
typedef struct micro {
    step_runner *r;
    batch b;
    pass p;
    int buffer;
    // a buffer that starts from zero and still holds what it held: the next micro-batch overwrites it; -1: none
    int fresh;
    bool works;         // it has samples
    int64_t number;     // of it in the step, for the board
    const action *add;  // the last micro-batch of a rank alone: the siblings that its lane completes, `adds` of them
    int adds;
    // Of a pipeline:
    const action *blocks;  // what is to be run of them
    pass_part part;
    bool losses;  // formed with these blocks
} micro;

action_layout executor_layout(const step_runner *r) {
    const train_state *t = r->state;
    return (action_layout){.world = t->ranks->world,
                           .lanes = t->o.lanes,
                           .tables = t->tables,
                           .table = t->table,
                           .micros = t->o.micros,
                           .fixed = t->o.fixed,
                           .once = t->o.once,
                           .shards_gradients = t->shards.gradients,
                           .shards_weights = t->shards.weights,
                           .spreads = t->shards.masters && !t->shards.weights,
                           .slots = t->slots > 0,
                           .blocks = r->net->blocks,
                           .buckets = t->zero.buckets,
                           .bucket = r->bucket,
                           .pipe = r->pipelined ? r->stages : NULL};
}

pass executor_pass(step_runner *r, int64_t B) {
    pass p = {.ops = device_ops(r->dev),
              .s = r->s,
              .B = B,
              .whole = r->cfg->batch.micro,
              .w = r->state->w,
              .state = state_step(r->state),
              .losses = view2(&r->losses, B, r->net->losses),
              .merge = r->merge.merge.ctx ? &r->merge.merge : NULL,
              .swap = r->swap.swap.merge.ctx ? &r->swap.swap : NULL};
    for (int i = 0; i < r->net->inputs; i++) {
        p.in[i] = r->in[r->place][i];
        p.in[i].size[0] = B;
    }
    flow_use(&r->flow, &p);
    return p;
}

// What it computes, for the board.
static void show(const micro *m, const char *what) { board_doing(m->r->board, what, m->number, m->r->together.step); }

static const char *const part_text[] = {[PASS_FORWARD] = "forward",
                                        [PASS_BACKWARD] = "backward",
                                        [PASS_INPUTS] = "backward of inputs",
                                        [PASS_WEIGHTS] = "backward of weights"};

// --- samples ---------------------------------------------------------------------------------------------------------

// From the loader's ring to a place that no micro-batch uses. Where there is nothing in the ring: zeros.
static err_t bring_batch(step_runner *r, const batch *b, int to) {
    r->place = r->loaded = to;
    TRY(stream_wait_event(r->copies, r->used[to]));
    for (int i = 0; i < r->net->inputs; i++) {
        const tensor *in = &r->in[to][i];
        TRY(b->in[i] ? stream_copy(r->copies, in->data, b->in[i], tensor_bytes(in))
                     : stream_zero(r->copies, in->data, tensor_bytes(in)));
    }
    uint32_t *draw = r->host_draw[to].data;
    draw[0] = (uint32_t)b->step, draw[1] = (uint32_t)b->first;
    TRY(stream_copy(r->copies, r->draw[to].data, draw, 2 * sizeof *draw));
    TRY(event_record(r->copied[to], r->copies));
    TRY(stream_wait_event(r->s, r->copied[to]));
    return stopwatch_end(&r->together.watch, SPAN_DATA, r->s);
}

// A failure to read is noted in data_failed.
static err_t next_batch(step_runner *r, loader *data, int64_t step, const action *a, batch *b) {
    TRY(stopwatch_begin(&r->together.watch, SPAN_DATA, r->s));
    TRY(event_wait(r->copied[r->loaded]));  // the loader may fill the last batch's buffer again
    double since = clock_now();
    err_t rc = loader_next(data, b);
    r->data_s += clock_now() - since;
    if (rc == ERR_DATA || rc == ERR_IO) return r->data_failed = *err_last(), ERR_OK;
    TRY(rc);
    int64_t lane = a->lane / step_contexts(r);
    if (b->step == step && b->lane == lane && b->micro == a->micro) return ERR_OK;
    return err_set(ERR_INTERNAL,
                   "loader gave step %" PRId64 " lane %" PRId64 " micro-batch %" PRId64 ", expected %" PRId64
                   ", %" PRId64 ", %" PRId64,
                   b->step, b->lane, b->micro, step, lane, a->micro);
}

// A pass of the micro-batch at this place, with gradients.
static pass micro_pass(step_runner *r, int place, int buffer) {
    const batch *b = &r->flight[place].b;
    r->place = place;
    pass p = executor_pass(r, r->cfg->batch.micro);
    p.dw = &r->state->grad[buffer * r->net->params];
    p.more_dw = r->state->tables > 1 ? &r->state->grad[r->state->table * r->net->params] : NULL;
    p.loss_factor = (float)(1.0 / ((double)r->cfg->batch.global * (double)r->net->losses));
    p.drop = (dropout_key){.seed = (uint64_t)r->cfg->run.seed,
                           .step = (uint32_t)b->step,
                           .first_sample = (uint32_t)b->first,
                           .p = (float)r->net->dropout,
                           .at = r->draw[place].data};
    return p;
}

static err_t load(micro *m, loader *data, int64_t step, const action *a) {
    step_runner *r = m->r;
    int place = r->pipelined ? a->place : (r->place + 1) % r->places;
    step_flight *f = &r->flight[place];
    bool failed = r->data_failed.code != ERR_OK;  // reported to the others at the step's end
    m->buffer = a->buffer;
    m->number = f->number = a->lane / step_contexts(r) * r->state->o.micros + a->micro;
    board_waiting(r->board, WAIT_DATA, "wait for data", m->number, r->together.step);
    TRY(failed ? stopwatch_begin(&r->together.watch, SPAN_DATA, r->s) : next_batch(r, data, step, a, &f->b));
    failed = r->data_failed.code != ERR_OK;
    f->works = m->works = !failed || step_shares(r);
    if (!m->works) return ERR_OK;
    // those who share its layers go on, and wait for it: zeros for a step that is void
    if (failed) f->b = (batch){.step = step};
    m->b = f->b;
    TRY(bring_batch(r, &m->b, place));
    m->p = micro_pass(r, place, m->buffer);
    m->p.fresh = m->fresh == m->buffer;
    m->fresh = m->p.fresh ? -1 : m->fresh;
    return ERR_OK;
}

// --- blocks ----------------------------------------------------------------------------------------------------------

static err_t see_others(step_runner *r) {
    r->ranks->table->alive(r->ranks);
    return r->ranks->table->query(r->ranks);
}

// A lost rank is noticed between two blocks, not at the end of a long step.
static err_t run_blocks(step_runner *r, pass *p, pass_part part, int first, int last) {
    for (int i = first; i <= last; i++) {
        int b = part == PASS_FORWARD ? i : first + last - i;
        if (p) TRY(model_run(r->net, part, b, b, p));
        TRY(see_others(r));
    }
    return ERR_OK;
}

// What is said of each sample of the micro-batch: its mean loss, and how many of its losses count.
static err_t queue_means(micro *m) {
    step_runner *r = m->r;
    const ops *o = m->p.ops;
    TRY(o->loss_means(&(loss_means_args){.means = &r->micro_loss, .losses = &m->p.losses}, r->s));
    return step_weighs(r)
               ? o->count_targets(
                     &(count_targets_args){.counts = &r->micro_counts, .targets = &m->p.in[r->net->targets]}, r->s)
               : ERR_OK;
}

// --- a pipeline's ----------------------------------------------------------------------------------------------------

// Which boundaries the gradients at both ends of a stage are in.
static void cross(step_runner *r, const action *a) {
    const stages *x = r->stages;
    int s = stages_with(x, a->first);
    if (s > 0) flow_cross(&r->flow, x->cut[s] - 1, a->out);
    if (s + 1 < x->count) flow_cross(&r->flow, x->cut[s + 1] - 1, a->in);
}

// A unit may be several actions: one for each block where weights are gathered or buckets reduced.
static bool begins_unit(const step_runner *r, const action *a, pass_part part) {
    const int *cut = &r->stages->cut[stages_with(r->stages, a->first)];
    return part == PASS_FORWARD ? a->first == cut[0] : a->last == cut[1] - 1;
}

static err_t queue_part(void *ctx) {
    micro *m = ctx;
    TRY(run_blocks(m->r, &m->p, m->part, m->blocks->first, m->blocks->last));
    return m->losses ? queue_means(m) : ERR_OK;
}

// Does backward find values of its own in the memory that layers share?
static bool finds_own(const micro *m) {
    const model_held *h = &m->r->net->held;
    return m->part != PASS_FORWARD && h->slot == m->p.slot && m->blocks->first <= h->block &&
           h->block <= m->blocks->last;
}

// From its second time on it is queued as a whole. The host is then where it would be, had it run the blocks.
static err_t run_part(micro *m) {
    step_runner *r = m->r;
    model_held *held = &r->net->held, before = *held;
    bool finds = finds_own(m);
    recorded_part *x = recorded_at(&r->recorded_parts, (int)(m->blocks - r->actions.at), finds);
    if (!x) return queue_part(m);
    if (!finds) held->block = RECORDED_NOTHING;
    if (x->ran) {
        TRY(see_others(r));
        TRY(replay_run(&x->calls, r->s, queue_part, m));
    } else {
        TRY(queue_part(m));
        x->ran = true, x->left = *held;
    }
    *held = x->left.block == RECORDED_NOTHING ? before : x->left;
    return ERR_OK;
}

// The action's micro-batch, one of those that are on their way.
static err_t run_stage(micro *m, const action *a, pass_part part) {
    step_runner *r = m->r;
    const step_flight *f = &r->flight[a->place];
    m->blocks = a, m->part = part, m->losses = recorded_losses(a);
    m->works = f->works, m->b = f->b, m->number = f->number;
    show(m, part_text[part]);
    if (begins_unit(r, a, part) && fault_hit(r->faults, FAULT_UNIT)) kill(getpid(), SIGKILL);
    if (m->works) {
        m->p = micro_pass(r, a->place, a->buffer);
        m->p.slot = a->slot;
        m->p.fresh = a->fresh;
        flow_use(&r->flow, &m->p);
        if (part != PASS_FORWARD) cross(r, a);
    }
    int last = r->stages->cut[stages_with(r->stages, a->first) + 1] - 1;
    if (flow_ends(&r->flow, last)) flow_leave(&r->flow, last, a->slot, true);
    err_t rc = m->works ? run_part(m) : run_blocks(r, NULL, part, a->first, a->last);
    if (flow_ends(&r->flow, last)) flow_leave(&r->flow, last, a->slot, false);
    return rc == ERR_OK ? event_record(r->used[a->place], r->s) : rc;
}

// Where a message comes from or goes to.
static tensor *message_memory(step_runner *r, const message *x) {
    int b = r->stages->cut[x->stage] - 1;
    if (x->kind == MESSAGE_ACTIVATIONS) return flow_x(&r->flow, b, x->buffer);
    flow_cross(&r->flow, b, x->buffer);
    return &r->flow.dx[b];
}

static err_t post(step_runner *r, int i, int64_t step) {
    const tensor *t = message_memory(r, &r->stages->table.message[i]);
    return links_post(&r->links, i, t->data, tensor_bytes(t), step);
}

// What comes from the stage before, or goes there: the neighbour's time decides. A loss that is noticed from here on is
// reported with the message's name.
static err_t await(step_runner *r, int i, int64_t step) {
    static const char *const what[2][2] = {
        {"wait for activations of stage", "wait for gradients of stage"},
        {"wait until activations have left for stage", "wait until gradients have left stage"}};
    const message *m = &r->stages->table.message[i];
    bool before = (m->kind == MESSAGE_ACTIVATIONS) != m->sends;
    r->ranks->phase = (comm_phase){what[m->sends][m->kind], step, m->stage};
    board_waiting(r->board, WAIT_RANKS, r->ranks->phase.what, m->stage, step);
    TRY(parallel_wait_as(&r->together, before ? SPAN_BEFORE : SPAN_AFTER, links_done(&r->links, i)));
    return links_left(&r->links, i);
}

static err_t hand(step_runner *r, const action *a) {
    const tensor *to = flow_x(&r->flow, a->first, a->slot);
    void *into = to->data;
    flow_leave(&r->flow, a->first, a->from, true);
    const void *from = flow_x(&r->flow, a->first, a->from)->data;
    flow_leave(&r->flow, a->first, a->from, false);
    return stream_copy(r->s, into, from, tensor_bytes(to));
}

// Bytes of what a pass of fewer samples, or of a part of their positions, leaves behind block b.
static size_t bytes_of(const step_runner *r, const pass *p, int b) {
    return (size_t)model_left(r->net, b, p->B, r->net->vocab ? p->in[0].size[1] : 0) * dtype_bytes(r->state->o.compute);
}

static err_t pass_on(step_runner *r, const pass *p, const action *a) {
    if (!p) return ERR_OK;
    return links_pass(&r->links, a->message, a->kind == ACTION_SEND, flow_x(&r->flow, a->first, 0)->data,
                      bytes_of(r, p, a->first));
}

// --- whole micro-batches ---------------------------------------------------------------------------------------------

// For those who read a buffer that no micro-batch has overwritten.
static err_t zero_now(micro *m) {
    int buffer = m->fresh;
    const train_state *t = m->r->state;
    m->fresh = -1;
    if (buffer < 0) return ERR_OK;
    for (int k = 1; k < t->tables; k++)
        TRY(stream_zero(m->r->s, t->slab[t->table + k - 1].data, tensor_bytes(&t->slab[0])));
    return stream_zero(m->r->s, t->slab[buffer].data, tensor_bytes(&t->slab[buffer]));
}

static err_t add_siblings(micro *m) {
    TRY(zero_now(m));
    for (int i = 0; i < m->adds; i++)
        TRY(parallel_add(&m->r->together, m->add[i].bucket, m->add[i].buffer, m->add[i].from));
    return ERR_OK;
}

static err_t queue_whole(void *ctx) {
    micro *m = ctx;
    show(m, part_text[PASS_FORWARD]);
    TRY(run_blocks(m->r, &m->p, PASS_FORWARD, 0, m->r->net->blocks - 1));
    show(m, part_text[PASS_BACKWARD]);
    TRY(run_blocks(m->r, &m->p, PASS_BACKWARD, 0, m->r->net->blocks - 1));
    TRY(queue_means(m));
    return add_siblings(m);
}

// For micro-batches during which nothing is sent: action_is_quiet.
static err_t run_whole(micro *m) {
    step_runner *r = m->r;
    if (!m->works) return add_siblings(m);
    if (!r->records || !r->ran) return queue_whole(m);
    r->ranks->table->alive(r->ranks);
    show(m, "forward and backward");
    return replay_run(&r->recorded_micro[8 * m->buffer + 4 * m->p.fresh + 2 * (m->adds > 0) + r->place], r->s,
                      queue_whole, m);
}

static err_t tell_losses(micro *m) {
    step_runner *r = m->r;
    int64_t first = m->b.first;
    TRY(stream_copy(r->s, (double *)r->sample_loss.data + first, r->micro_loss.data, tensor_bytes(&r->micro_loss)));
    if (!step_weighs(r)) return ERR_OK;
    return stream_copy(r->s, (double *)r->sample_counts.data + first, r->micro_counts.data,
                       tensor_bytes(&r->micro_counts));
}

static err_t keep_losses(micro *m) {
    step_runner *r = m->r;
    if (!m->works) return ERR_OK;
    r->ran = true;
    if (step_tells(r)) TRY(tell_losses(m));
    return event_record(r->used[r->place], r->s);
}

// --- the list --------------------------------------------------------------------------------------------------------

static err_t run_action(micro *m, const action *a, loader *data, int64_t step) {
    step_runner *r = m->r;
    parallel *x = &r->together;
    switch (a->kind) {
    case ACTION_LOAD: return load(m, data, step, a);
    case ACTION_ZERO:
        TRY(zero_now(m));
        m->fresh = a->buffer;
        return ERR_OK;
    case ACTION_GATHER: return parallel_gather(x, a->first);
    case ACTION_NEED: return parallel_need(x, a->first);
    case ACTION_FORWARD:
        if (r->pipelined) return run_stage(m, a, PASS_FORWARD);
        show(m, part_text[PASS_FORWARD]);
        return run_blocks(r, m->works ? &m->p : NULL, PASS_FORWARD, a->first, a->last);
    case ACTION_TAKE: return parallel_take(x, a->bucket);
    case ACTION_BACKWARD:
        if (r->pipelined) return run_stage(m, a, PASS_BACKWARD);
        show(m, part_text[PASS_BACKWARD]);
        return run_blocks(r, m->works ? &m->p : NULL, PASS_BACKWARD, a->first, a->last);
    case ACTION_INPUTS: return run_stage(m, a, PASS_INPUTS);
    case ACTION_WEIGHTS: return run_stage(m, a, PASS_WEIGHTS);
    case ACTION_POST: return post(r, a->message, step);
    case ACTION_AWAIT: return await(r, a->message, step);
    case ACTION_HAND: return hand(r, a);
    case ACTION_LOSSES:
        if (m->works && !m->losses) TRY(queue_means(m));
        return keep_losses(m);
    case ACTION_ADD: TRY(zero_now(m)); return parallel_add(x, a->bucket, a->buffer, a->from);
    case ACTION_REDUCE: TRY(zero_now(m)); return parallel_reduce(x, a->bucket, a->turn);
    case ACTION_SETTLE: return parallel_settle(x);
    default: return err_set(ERR_INTERNAL, "action %d is of a step's end, which trainer/step/step.c does", (int)a->kind);
    }
}

// What ends this rank's lanes goes with its last micro-batch.
static void take_adds(micro *m, const action_list *a, int i) {
    int end = i;
    while (end < a->count && a->at[end].kind == ACTION_ADD) end++;
    bool last = end < a->count && a->at[end].kind == ACTION_SETTLE;
    m->add = &a->at[i];
    m->adds = last ? end - i : 0;
}

err_t executor_run(step_runner *r, const action_list *a, action_kind until, loader *data, int64_t step) {
    enum { MICRO = 4 };  // LOAD, FORWARD, BACKWARD, LOSSES
    action_layout l = executor_layout(r);
    micro m = {.r = r, .fresh = -1};
    merge_begin(&r->merge, step);
    merge_begin(&r->swap.at, step);
    for (int i = 0; i < a->count && a->at[i].kind != until; i++) {
        bool quiet = action_is_quiet(&l, a, i);
        TRY(run_action(&m, &a->at[i], data, step));
        if (!quiet) continue;
        take_adds(&m, a, i + MICRO);
        TRY(run_whole(&m));
        TRY(keep_losses(&m));
        i += MICRO - 1 + m.adds;
    }
    return zero_now(&m);
}

err_t executor_look(step_runner *r, pass *p) {
    merge_begin(&r->merge, -1);
    merge_begin(&r->swap.at, -1);
    for (int i = 0; i < r->look.count; i++) {
        const action *a = &r->look.at[i];
        if (a->kind == ACTION_GATHER) TRY(parallel_gather(&r->together, a->first));
        else if (a->kind == ACTION_NEED) TRY(parallel_need(&r->together, a->first));
        else if (a->kind != ACTION_FORWARD) TRY(pass_on(r, p, a));
        else TRY(run_blocks(r, p, PASS_FORWARD, a->first, a->last));
    }
    return ERR_OK;
}
