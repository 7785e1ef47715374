// trainer/step/executor.c: see trainer/step/executor.h. Compute is queued on one stream, communication on another
// (trainer/step/parallel.h). A micro-batch during which nothing is sent is recorded once, where the device can, and from
// then on queued as a whole.
#include "trainer/step/executor.h"

#include "base/clock.h"

#include <inttypes.h>

// The micro-batch under way.
typedef struct micro {
    step_runner *r;
    batch b;
    pass p;
    int buffer;
    int fresh;          // a buffer that starts from zero and still holds what it held: the next micro-batch overwrites it; -1: none
    bool works;         // it has samples
    const action *add;  // the last micro-batch of a rank alone: the siblings that its lane completes, `adds` of them
    int adds;
} micro;

action_layout executor_layout(const step_runner *r) {
    const train_state *t = r->state;
    return (action_layout){.world = r->ranks->world,
                           .lanes = t->o.lanes,
                           .micros = t->o.micros,
                           .fixed = t->o.fixed,
                           .once = t->o.once,
                           .shards_gradients = t->shards.gradients,
                           .shards_weights = t->shards.weights,
                           .spreads = t->shards.masters && !t->shards.weights,
                           .slots = t->slots > 0,
                           .blocks = r->net->blocks,
                           .buckets = t->zero.buckets,
                           .bucket = r->bucket};
}

pass executor_pass(step_runner *r, int64_t B) {
    pass p = {.ops = device_ops(r->dev),
              .s = r->s,
              .B = B,
              .whole = r->cfg->batch.micro,
              .w = r->state->w,
              .state = state_step(r->state),
              .losses = view2(&r->losses, B, r->net->losses)};
    for (int i = 0; i < r->net->inputs; i++) {
        p.in[i] = r->in[r->place][i];
        p.in[i].size[0] = B;
    }
    flow_use(&r->flow, &p, 0);
    return p;
}

// --- samples -----------------------------------------------------------------------------------------------------------

// From the loader's ring to the place that the previous micro-batch does not use.
static err_t bring_batch(step_runner *r, const batch *b) {
    int to = r->place = (r->place + 1) % r->places;
    TRY(stream_wait_event(r->copies, r->used[to]));
    for (int i = 0; i < r->net->inputs; i++) TRY(stream_copy(r->copies, r->in[to][i].data, b->in[i], tensor_bytes(&r->in[to][i])));
    uint32_t *draw = r->host_draw[to].data;
    draw[0] = (uint32_t)b->step, draw[1] = (uint32_t)b->first;
    TRY(stream_copy(r->copies, r->draw[to].data, draw, 2 * sizeof *draw));
    TRY(event_record(r->copied[to], r->copies));
    TRY(stream_wait_event(r->s, r->copied[to]));
    return stopwatch_end(&r->together.watch, SPAN_DATA, r->s);
}

static err_t next_batch(step_runner *r, loader *data, int64_t step, const action *a, batch *b) {
    TRY(stopwatch_begin(&r->together.watch, SPAN_DATA, r->s));
    TRY(event_wait(r->copied[r->place]));  // the loader may fill the last batch's buffer again
    double since = clock_now();
    err_t rc = loader_next(data, b);
    r->data_s += clock_now() - since;
    if (rc == ERR_DATA || rc == ERR_IO) r->data_failed = *err_last();
    TRY(rc);
    if (b->step == step && b->lane == a->lane && b->micro == a->micro) return ERR_OK;
    return err_set(ERR_INTERNAL, "loader gave step %" PRId64 " lane %" PRId64 " micro-batch %" PRId64 ", expected %" PRId64 ", %" PRId64 ", %" PRId64,
                   b->step, b->lane, b->micro, step, a->lane, a->micro);
}

static err_t load(micro *m, loader *data, int64_t step, const action *a) {
    step_runner *r = m->r;
    m->works = r->data_failed.code == ERR_OK;
    m->buffer = a->buffer;
    if (!m->works) return ERR_OK;
    err_t rc = next_batch(r, data, step, a, &m->b);
    m->works = rc == ERR_OK;
    if (r->data_failed.code != ERR_OK) return ERR_OK;  // reported to the others at the step's end
    TRY(rc);
    TRY(bring_batch(r, &m->b));
    m->p = executor_pass(r, r->cfg->batch.micro);
    m->p.dw = &r->state->grad[m->buffer * r->net->params];
    m->p.fresh = m->fresh == m->buffer;
    m->fresh = m->p.fresh ? -1 : m->fresh;
    m->p.loss_factor = (float)(1.0 / ((double)r->cfg->batch.global * (double)r->net->losses));
    m->p.drop = (dropout_key){.seed = (uint64_t)r->cfg->run.seed,
                              .step = (uint32_t)m->b.step,
                              .first_sample = (uint32_t)m->b.first,
                              .p = (float)r->net->dropout,
                              .at = r->draw[r->place].data};
    return ERR_OK;
}

// --- blocks ------------------------------------------------------------------------------------------------------------

// A lost rank is noticed between two blocks, not at the end of a long step.
static err_t run_blocks(step_runner *r, pass *p, pass_part part, int first, int last) {
    for (int i = first; i <= last; i++) {
        int b = part == PASS_FORWARD ? i : first + last - i;
        if (p) TRY(model_run(r->net, part, b, b, p));
        r->ranks->table->alive(r->ranks);
        TRY(r->ranks->table->query(r->ranks));
    }
    return ERR_OK;
}

static err_t queue_means(micro *m) { return m->p.ops->loss_means(&(loss_means_args){.means = &m->r->micro_loss, .losses = &m->p.losses}, m->r->s); }

// For those who read a buffer that no micro-batch has overwritten.
static err_t zero_now(micro *m) {
    int buffer = m->fresh;
    m->fresh = -1;
    return buffer < 0 ? ERR_OK : stream_zero(m->r->s, m->r->state->slab[buffer].data, tensor_bytes(&m->r->state->slab[buffer]));
}

static err_t add_siblings(micro *m) {
    TRY(zero_now(m));
    for (int i = 0; i < m->adds; i++) TRY(parallel_add(&m->r->together, m->add[i].bucket, m->add[i].buffer, m->add[i].from));
    return ERR_OK;
}

static err_t queue_whole(void *ctx) {
    micro *m = ctx;
    TRY(run_blocks(m->r, &m->p, PASS_FORWARD, 0, m->r->net->blocks - 1));
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
    return replay_run(&r->recorded_micro[8 * m->buffer + 4 * m->p.fresh + 2 * (m->adds > 0) + r->place], r->s, queue_whole, m);
}

static err_t keep_losses(micro *m) {
    step_runner *r = m->r;
    if (!m->works) return ERR_OK;
    r->ran = true;
    TRY(stream_copy(r->s, (double *)r->sample_loss.data + m->b.first, r->micro_loss.data, tensor_bytes(&r->micro_loss)));
    return event_record(r->used[r->place], r->s);
}

// --- the list ----------------------------------------------------------------------------------------------------------

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
    case ACTION_FORWARD: return run_blocks(r, m->works ? &m->p : NULL, PASS_FORWARD, a->first, a->last);
    case ACTION_TAKE: return parallel_take(x, a->bucket);
    case ACTION_BACKWARD: return run_blocks(r, m->works ? &m->p : NULL, PASS_BACKWARD, a->first, a->last);
    case ACTION_LOSSES:
        if (m->works) TRY(queue_means(m));
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
    for (int i = 0; i < r->look.count; i++) {
        const action *a = &r->look.at[i];
        if (a->kind == ACTION_GATHER) TRY(parallel_gather(&r->together, a->first));
        else if (a->kind == ACTION_NEED) TRY(parallel_need(&r->together, a->first));
        else TRY(run_blocks(r, p, PASS_FORWARD, a->first, a->last));
    }
    return ERR_OK;
}
