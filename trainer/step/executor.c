// trainer/step/executor.c: see trainer/step/executor.h. Compute is queued on one stream, communication on others
// (trainer/step/parallel.h, trainer/step/links.h). What the list marks as a recording is queued as a whole, where the
// device can (trainer/step/recorded.h); all else action by action.
#include "trainer/step/executor.h"

#include "base/clock.h"
#include "model/slices.h"
#include "trainer/step/finish.h"
#include "trainer/step/outer.h"
#include "trainer/step/tied.h"

#include <time.h>
#include <unistd.h>

// The step under way.
typedef struct run {
    step_runner *r;
    loader *data;
    int64_t step;
    double began;            // when the micro-batch's samples were here
    const action *recorded;  // the first of those that are queued as a whole
} run;

action_layout executor_layout(const step_runner *r) {
    const train_state *t = r->state;
    return (action_layout){.world = t->ranks->world,
                           .lanes = t->o.lanes,
                           .deal = t->o.deal,
                           .tables = t->tables,
                           .table = t->table,
                           .micros = t->o.micros,
                           .fixed = t->o.fixed,
                           .once = t->o.once,
                           .turns = t->turns,
                           .span = t->o.compress_span,
                           .codes = state_codes(t),
                           .clips_lanes = t->o.lane_clip > 0,
                           .shards_weights = t->shards.weights,
                           .spreads = t->shards.masters && !t->shards.weights,
                           .slots = t->slots > 0,
                           .blocks = r->net->blocks,
                           .buckets = t->zero.buckets,
                           .bucket = r->bucket,
                           .tied = r->pipelined && t->o.tie,
                           .islands = t->o.islands != NULL,
                           .rows = r->net->table.width > 0,
                           .cold = t->o.rows_memory > 0,
                           .masters = state_has_rows(t),
                           .pipe = r->stages};
}

pass executor_pass(step_runner *r, int64_t B) {
    pass p = {.ops = device_ops(r->dev),
              .s = r->s,
              .B = B,
              .whole = r->cfg->resolved.micro,
              .w = r->state->w,
              .wide = r->state->frozen.wide,
              .state = state_step(r->state),
              .losses = view2(&r->losses, B, r->net->losses),
              .fetched = step_rows_of(&r->rows),
              .merge = r->merge.merge.ctx ? &r->merge.merge : NULL,
              .swap = r->swap.swap.merge.ctx ? &r->swap.swap : NULL};
    const tensor *in = inputs_now(&r->inputs);
    for (int i = 0; i < r->net->inputs; i++) {
        p.in[i] = in[i];
        p.in[i].size[0] = B;
    }
    flow_use(&r->flow, &p);
    return p;
}

// --- samples ---------------------------------------------------------------------------------------------------------

static err_t load(run *x, const action *a) {
    step_runner *r = x->r;
    inputs *in = &r->inputs;
    input_slot *p = inputs_turn(in, a->input_slot);
    stopwatch *watch = &r->together.watch;
    int64_t lane =
        step_island(r) * (r->cfg->resolved.lanes / step_islands(r)) + a->lane / step_contexts(r) + r->lane_shift;
    p->number = lane * r->state->o.micros + a->micro;
    board_waiting(r->board, WAIT_DATA, "wait for data", p->number, x->step);
    TRY(stopwatch_begin(watch, SPAN_DATA, r->s));
    if (in->failed.code == ERR_OK) TRY(inputs_next(in, x->data, &p->b, x->step, lane, a->micro));
    bool failed = in->failed.code != ERR_OK;  // reported to the others at the step's end
    p->works = !failed || step_shares(r);
    if (!p->works) return ERR_OK;
    // ranks that share its layers go on and wait for it, so it computes with zeros; the step is void
    if (failed) p->b = (batch){.step = x->step};
    x->began = clock_now();
    TRY(inputs_bring(in, &p->b));
    return stopwatch_end(watch, SPAN_DATA, r->s);
}

// --- blocks ----------------------------------------------------------------------------------------------------------

// The micro-batch's rows on demand begin to come; a rank without one gives others theirs.
static err_t fetch(step_runner *r, const action *a) {
    bool works = a->fresh && inputs_at(&r->inputs, a->input_slot)->works;
    return parallel_fetch(&r->together, a->input_slot, works ? r->cfg->resolved.micro : 0);
}

static err_t have(run *x, const action *a) {
    TRY(parallel_have(&x->r->together, a->input_slot));
    x->r->rows.now = a->input_slot;
    x->began = clock_now();
    return ERR_OK;
}

// What is not loaded yet is not waited for: its rows are read when they are fetched. A server loads nothing.
static err_t look_ahead(const run *x, const action *a) {
    step_runner *r = x->r;
    batch next;
    bool here = x->data && loader_peek(x->data, &next);
    r->rows.next = here ? next.in[r->net->table.input] : NULL;
    return parallel_ahead(&r->together, a->input_slot, here ? r->cfg->resolved.micro : 0);
}

static err_t send_rows(run *x) {
    step_runner *r = x->r;
    board_waiting(r->board, WAIT_RANKS, "add up gradients of rows", -1, x->step);
    TRY(parallel_join(&r->together));
    r->ranks->phase = (comm_phase){"add up gradients of rows", x->step, 0};
    return step_rows_send(&r->rows, r->s);
}

static bool is_part(const action *a) {
    return a->kind == ACTION_FORWARD || a->kind == ACTION_BACKWARD || a->kind == ACTION_INPUTS ||
           a->kind == ACTION_WEIGHTS;
}

static const pass_part part_of[] = {[ACTION_FORWARD] = PASS_FORWARD,
                                    [ACTION_BACKWARD] = PASS_BACKWARD,
                                    [ACTION_INPUTS] = PASS_INPUTS,
                                    [ACTION_WEIGHTS] = PASS_WEIGHTS};

static err_t see_others(step_runner *r) {
    r->ranks->table->alive(r->ranks);
    board_worked(r->board);
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

// A pass of the action's micro-batch, with gradients.
static pass micro_pass(step_runner *r, const action *a) {
    const input_slot *at = inputs_at(&r->inputs, a->input_slot);
    r->inputs.now = inputs_index(&r->inputs, a->input_slot);
    pass p = executor_pass(r, r->cfg->resolved.micro);
    p.slot = a->slot;
    p.fresh = a->fresh;
    p.dw = &r->state->grad[a->buffer * r->net->params];
    p.more_dw = r->state->tables > 1 ? &r->state->grad[r->state->table * r->net->params] : NULL;
    p.loss_factor = (float)(step_parts(r) / ((double)r->cfg->batch.global * (double)r->net->losses));
    p.drop = (dropout_key){.seed = (uint64_t)r->cfg->run.seed,
                           .step = (uint32_t)at->b.step,
                           .first_sample = (uint32_t)at->b.first,
                           .p = (float)r->net->dropout,
                           .at = at->draw.data};
    p.drop_adapted = (float)model_adapts(r->net)->dropout;
    flow_use(&r->flow, &p);
    return p;
}

// Sets the boundaries for the gradients at both ends of the stage.
static void cross(step_runner *r, const action *a, int s) {
    const stages *x = r->stages;
    if (s > 0) flow_cross(&r->flow, x->cut[s] - 1, a->out);
    if (s + 1 < x->count) flow_cross(&r->flow, x->cut[s + 1] - 1, a->in);
}

static err_t run_part(run *x, const action *a) {
    step_runner *r = x->r;
    pass_part part = part_of[a->kind];
    int s = stages_with(r->stages, a->first), last = r->stages->cut[s + 1] - 1;
    if (!inputs_at(&r->inputs, a->input_slot)->works) return run_blocks(r, NULL, part, a->first, a->last);
    pass p = micro_pass(r, a);
    if (part != PASS_FORWARD) cross(r, a, s);
    if (flow_ends(&r->flow, last)) flow_leave(&r->flow, last, a->slot, true);
    err_t rc = run_blocks(r, &p, part, a->first, a->last);
    if (flow_ends(&r->flow, last)) flow_leave(&r->flow, last, a->slot, false);
    return rc;
}

// For each sample of the micro-batch: its mean loss, and how many of its losses count.
static err_t queue_means(step_runner *r, const action *a) {
    const ops *o = device_ops(r->dev);
    const input_slot *at = inputs_at(&r->inputs, a->input_slot);
    results *x = &r->results;
    if (!at->works) return ERR_OK;
    TRY(o->loss_means(&(loss_means_args){.means = &x->micro_loss, .losses = &r->losses}, r->s));
    return step_weighs(r)
               ? o->count_targets(
                     &(count_targets_args){.counts = &x->micro_counts, .targets = &at->in[r->net->targets]}, r->s)
               : ERR_OK;
}

static err_t store_losses(step_runner *r, const action *a) {
    const input_slot *at = inputs_at(&r->inputs, a->input_slot);
    results *x = &r->results;
    int64_t first = at->b.first;
    if (!at->works || !step_contributes(r)) return ERR_OK;
    TRY(stream_copy(r->s, (double *)x->sample_loss.data + first, x->micro_loss.data, tensor_bytes(&x->micro_loss)));
    if (!step_weighs(r)) return ERR_OK;
    return stream_copy(r->s, (double *)x->sample_counts.data + first, x->micro_counts.data,
                       tensor_bytes(&x->micro_counts));
}

static void doze(double s) {
    struct timespec t = {(time_t)s, (long)(1e9 * (s - (double)(time_t)s))};
    nanosleep(&t, NULL);
}

// A rank that is slower than it is, for tests of what is done about that. Where the last block is.
static void be_slow(const run *x) {
    fault_list *f = x->r->faults;
    if (fault_hit(f, FAULT_DRAG)) doze(1e-3 * FAULT_DRAG_MS);
    if (fault_hit(f, FAULT_TWICE)) doze(clock_now() - x->began);
    if (fault_hit(f, FAULT_QUARTER)) doze(3 * (clock_now() - x->began));
}

// --- what goes between stages ----------------------------------------------------------------------------------------

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

// Waits for a message from or to the stage before or after; how long depends on the neighbour. If a rank is lost
// meanwhile, the error has the message's name.
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

static err_t copy_output(step_runner *r, const action *a) {
    const tensor *to = flow_x(&r->flow, a->first, a->slot);
    void *into = to->data;
    flow_leave(&r->flow, a->first, a->from, true);
    const void *from = flow_x(&r->flow, a->first, a->from)->data;
    flow_leave(&r->flow, a->first, a->from, false);
    return stream_copy(r->s, into, from, tensor_bytes(to));
}

// Bytes of block b's output in a pass of fewer samples, or of a part of their positions.
static size_t bytes_of(const step_runner *r, const pass *p, int b) {
    return (size_t)model_left(r->net, b, p->B, r->net->vocab ? p->in[0].size[1] : 0) * dtype_bytes(r->state->o.compute);
}

static err_t pass_on(step_runner *r, const pass *p, const action *a) {
    if (!p) return ERR_OK;
    return links_pass(&r->links, a->message, a->kind == ACTION_SEND, flow_x(&r->flow, a->first, 0)->data,
                      bytes_of(r, p, a->first));
}

// --- the step's end --------------------------------------------------------------------------------------------------

static err_t tie_gradients(step_runner *r) {
    board_doing(r->board, "add up the gradient", -1, r->together.step);
    return tied_gradients(r->state, r->s);
}

static err_t square(step_runner *r) {
    TRY(finish_squares(r));
    return stopwatch_end(&r->together.watch, SPAN_STEP, r->s);
}

// Weights that are still on their way between ranks of an island would overtake those that follow from the mean.
static err_t mix_islands(const run *x) {
    step_runner *r = x->r;
    if (!outer_is_due(r->state, x->step)) return ERR_OK;
    board_waiting(r->board, WAIT_RANKS, "mix weights of islands", -1, x->step);
    TRY(parallel_join(&r->together));
    comm *c = r->state->o.islands;
    c->phase = r->state->ranks->phase = (comm_phase){"mix weights of islands", x->step, 0};
    return outer_mix(r->state, x->step);
}

// The weights travel while the next step begins, and may arrive after this step is collected.
static err_t spread(step_runner *r) {
    stopwatch_turn(&r->together.watch);
    return parallel_spread(&r->together);
}

// The last stage's ranks gather among each other, on the communicator that the spread weights use.
static err_t tie_values(step_runner *r) {
    TRY(parallel_join(&r->together));
    return tied_values(r->state, r->s);
}

// --- the list --------------------------------------------------------------------------------------------------------

static err_t run_action(run *x, const action *a) {
    step_runner *r = x->r;
    parallel *p = &r->together;
    switch (a->kind) {
    case ACTION_LOAD: return load(x, a);
    case ACTION_ZERO: return parallel_zero(p, a->bucket);
    case ACTION_GATHER: return parallel_gather(p, a->first);
    case ACTION_NEED: return parallel_need(p, a->first);
    case ACTION_FETCH: return fetch(r, a);
    case ACTION_HAVE: return have(x, a);
    case ACTION_AHEAD: return look_ahead(x, a);
    case ACTION_KEEP: step_rows_keep(&r->rows, a->lane, a->micro, r->state->o.micros); return ERR_OK;
    case ACTION_ROWS: return send_rows(x);
    case ACTION_TAKE: return parallel_take(p, a->bucket);
    case ACTION_FORWARD:
    case ACTION_BACKWARD:
    case ACTION_INPUTS:
    case ACTION_WEIGHTS: return run_part(x, a);
    case ACTION_POST: return post(r, a->message, x->step);
    case ACTION_AWAIT: return await(r, a->message, x->step);
    case ACTION_COPY: return copy_output(r, a);
    case ACTION_MEANS: return queue_means(r, a);
    case ACTION_ADD: return parallel_add(p, a->bucket, a->buffer, a->from);
    case ACTION_LOSSES: be_slow(x); return store_losses(r, a);
    case ACTION_REDUCE: return parallel_reduce(p, a->bucket, a->turn);
    case ACTION_SETTLE: return parallel_settle(p);
    case ACTION_TIE_GRADIENTS: return tie_gradients(r);
    case ACTION_MASTERS: return finish_masters(r);
    case ACTION_SQUARES: return square(r);
    case ACTION_SHARE: return finish_share(r, results_of(&r->results, x->step));
    case ACTION_UPDATE: return finish_update(r, results_of(&r->results, x->step));
    case ACTION_OUTER: return mix_islands(x);
    case ACTION_SPREAD: return spread(r);
    case ACTION_TIE_VALUES: return tie_values(r);
    default: return err_set(ERR_INTERNAL, "action %d has no place in a step", (int)a->kind);
    }
}

// A unit may be several actions: one for each block where weights are gathered or buckets reduced.
static bool begins_unit(const step_runner *r, const action *a) {
    const int *cut = &r->stages->cut[stages_with(r->stages, a->first)];
    return a->kind == ACTION_FORWARD ? a->first == cut[0] : a->last == cut[1] - 1;
}

// Shows on the board what this rank computes next.
static void show(const run *x, const action *a, bool whole) {
    static const char *const text[] = {[PASS_FORWARD] = "forward",
                                       [PASS_BACKWARD] = "backward",
                                       [PASS_INPUTS] = "backward of inputs",
                                       [PASS_WEIGHTS] = "backward of weights"};
    step_runner *r = x->r;
    if (!is_part(a)) return;
    if (begins_unit(r, a)) fault_kill(r->faults, FAULT_UNIT);
    board_doing(r->board, whole && is_part(a + 1) ? "forward and backward" : text[part_of[a->kind]],
                inputs_at(&r->inputs, a->input_slot)->number, x->step);
}

// Does backward find its own values in the memory that layers share?
static bool finds_own(const step_runner *r, const action *a) {
    const model_held *h = &r->net->held;
    return a->kind != ACTION_FORWARD && h->slot == a->slot && a->first <= h->block && h->block <= a->last;
}

static err_t queue_recorded(void *ctx) {
    run *x = ctx;
    for (int i = 0; i < x->recorded->covers; i++) TRY(run_action(x, x->recorded + i));
    return ERR_OK;
}

static err_t play(run *x, const action *a) {
    step_runner *r = x->r;
    bool finds = finds_own(r, a);
    x->recorded = a;
    TRY(see_others(r));
    return recorded_play(recorded_at(&r->recorded, a->recording, inputs_index(&r->inputs, a->input_slot), finds),
                         &r->net->held, finds, r->s, queue_recorded, x);
}

// Is the action part of a recording, which is queued as a whole? A rank without samples computes nothing of it.
static bool plays(const step_runner *r, const action *a) {
    return a->covers && r->recorded.slots && inputs_at(&r->inputs, a->input_slot)->works;
}

err_t executor_run(step_runner *r, action_kind until, loader *data, int64_t step) {
    run x = {.r = r, .data = data, .step = step};
    merge_begin(&r->merge, step);
    merge_begin(&r->swap.at, step);
    for (const action *a = r->actions.at, *end = a + r->actions.count; a < end && a->kind != until;) {
        bool whole = plays(r, a);
        show(&x, a, whole);
        TRY(whole ? play(&x, a) : run_action(&x, a));
        for (const action *next = a + (whole ? a->covers : 1); a < next; a++)
            if (a->leaves) TRY(event_record(inputs_at(&r->inputs, a->input_slot)->used, r->s));
    }
    return ERR_OK;
}

err_t executor_forward(step_runner *r, pass *p) {
    merge_begin(&r->merge, -1);
    merge_begin(&r->swap.at, -1);
    for (int i = 0; i < r->forward.count; i++) {
        const action *a = &r->forward.at[i];
        bool brings = a->kind == ACTION_GATHER || a->kind == ACTION_NEED, one = p && p->text;
        if (brings && one && !model_reads_weights(r->net, a->first, p->text)) continue;
        if (a->kind == ACTION_GATHER) TRY(parallel_gather(&r->together, a->first));
        else if (a->kind == ACTION_NEED) TRY(parallel_need(&r->together, a->first));
        else if (a->kind != ACTION_FORWARD) TRY(pass_on(r, p, a));
        else TRY(run_blocks(r, p, PASS_FORWARD, a->first, a->last));
    }
    return ERR_OK;
}
