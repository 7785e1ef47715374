// trainer/step/step.c: see trainer/step/step.h. Compute is queued on one stream, communication on another
// (trainer/step/parallel.h). The device decides overflow, clipping and the loss scale (ops.h: step_decide), and whether
// all ranks had their data: a rank without data puts NaN into the sums of squares, so the step is skipped. The host
// waits once, after everything is queued.
#include "trainer/step/step.h"

#include "base/clock.h"
#include "gpu/paper.h"
#include "trainer/step/executor.h"
#include "trainer/step/schedule.h"
#include "trainer/step/sync.h"
#include "trainer/step/tied.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// --- opening ---------------------------------------------------------------------------------------------------------

// Of numbers that the host reads: losses, reports, counts.
static int64_t told(const step_runner *r) {
    int64_t G = r->cfg->batch.global;
    return G + r->ranks->world * REPORT_ITEMS + (step_weighs(r) ? G : 0);
}

static err_t declare_shared(step_runner *r) {
    const model *net = r->net;
    int64_t chunks = 0, G = r->cfg->batch.global, world = r->ranks->world;
    r->sums_at = calloc((size_t)net->params, sizeof *r->sums_at);
    if (!r->sums_at) return err_set(ERR_INTERNAL, "no memory for the table of %d parameters", net->params);
    for (int i = 0; i < net->params; i++) {
        r->sums_at[i] = chunks;
        if (net->param[i].tied >= 0) continue;
        for (int c = 0; c < param_slices(&net->param[i]); c++)
            chunks += (param_slice_count(&net->param[i], c) + CHUNK - 1) / CHUNK;
    }
    r->sums = (tensor){NULL, FP64, 1, {chunks, 1, 1, 1}};
    r->sample_loss = (tensor){NULL, FP64, 1, {G, 1, 1, 1}};
    r->reports = (tensor){NULL, FP64, 2, {world, REPORT_ITEMS, 1, 1}};
    if (step_weighs(r)) r->sample_counts = (tensor){NULL, FP64, 1, {G, 1, 1, 1}};
    return arena_1d(&r->memory, &r->shared, FP64, chunks + told(r));
}

static err_t declare_staging(step_runner *r) {
    arena_open(&r->staging, r->dev, MEMORY_PINNED);
    for (step_slot *x = r->slot; x < r->slot + r->ahead; x++) {
        TRY(arena_1d(&r->staging, &x->loss, FP64, told(r)));
        TRY(arena_1d(&r->staging, &x->report, FP64, REPORT_ITEMS));
        for (int k = 0; k < 2; k++)
            TRY(arena_1d(&r->staging, &x->state[k], INT32, (int64_t)(sizeof(step_state) + 3) / 4));
        TRY(arena_1d(&r->staging, &x->lr, FP32, 1));
    }
    for (int k = 0; k < r->places; k++) TRY(arena_1d(&r->staging, &r->host_draw[k], INT32, 2));
    return arena_1d(&r->staging, &r->host_void, FP64, 1);
}

// A run writes one sample after the other. New positions of all texts go through the blocks as rows of one micro-batch.
static int growing_texts(const step_runner *r) {
    if (!r->net->vocab || !r->cfg->sample.tokens) return 0;
    int64_t rows = r->cfg->batch.micro * r->net->context, texts = r->state->o.training ? 1 : r->cfg->sample.batch;
    return (int)(texts < rows ? texts : rows);
}

static err_t plan_activations(step_runner *r) {
    const config *c = r->cfg;
    r->texts = growing_texts(r);
    model_plan o = {.compute = r->state->o.compute,
                    .B = c->batch.micro,
                    .slots = r->stages->slots,
                    .range = r->stages->chunk,
                    .boundaries = r->pipelined ? r->stages->table.gradients : 0,
                    .forward_only = !r->state->o.training,
                    .halves = r->pipelined && pipeline_halves(r->stages->pipe.kind),
                    .recompute = (recomputation)c->parallel.recompute,
                    .places = r->texts,
                    .slice_first = r->state->o.here.first,
                    .slice_count = r->state->o.here.count,
                    .slice_rows = r->state->o.here.rows,
                    .token_first = r->state->o.tokens.first,
                    .token_count = r->state->o.tokens.count};
    TRY(model_declare(r->net, &r->memory, &o));
    TRY(flow_declare(&r->flow, r->net, &r->memory, &o));
    return arena_2d(&r->memory, &r->losses, FP32, o.B, r->net->losses);
}

// Input k of B samples.
static err_t declare_input(step_runner *r, tensor *to, const tensor_spec *x, int64_t B) {
    return arena_tensor(&r->memory, to, x->type, 1 + x->dims, B, x->size[0], x->dims > 1 ? x->size[1] : 1,
                        x->dims > 2 ? x->size[2] : 1);
}

static err_t make_lists(step_runner *r) {
    const zero_layout *z = &r->state->zero;
    if (r->state->o.training) {
        r->bucket = calloc((size_t)z->buckets, sizeof *r->bucket);
        if (!r->bucket) return err_set(ERR_INTERNAL, "no memory for a table of %d buckets", z->buckets);
    }
    for (int k = 0; r->bucket && k < z->buckets; k++)
        r->bucket[k] = (action_bucket){.highest = z->segment[z->bucket[k].first + z->bucket[k].count - 1].block,
                                       .lowest = z->bucket[k].block,
                                       .chunk = z->bucket[k].chunk};
    action_layout l = executor_layout(r);
    TRY(action_look(&l, &r->look));
    return r->state->o.training ? action_step(&l, r->state->ranks->rank, &r->actions) : ERR_OK;
}

// The blocks of the list's actions, in its order.
static err_t walk(step_runner *r, const action_list *list, pass *p) {
    static const pass_part part[] = {[ACTION_FORWARD] = PASS_FORWARD,
                                     [ACTION_BACKWARD] = PASS_BACKWARD,
                                     [ACTION_INPUTS] = PASS_INPUTS,
                                     [ACTION_WEIGHTS] = PASS_WEIGHTS};
    for (int i = 0; i < list->count; i++) {
        const action *a = &list->at[i];
        if (a->kind != ACTION_FORWARD && a->kind != ACTION_BACKWARD && a->kind != ACTION_INPUTS &&
            a->kind != ACTION_WEIGHTS)
            continue;
        p->slot = r->pipelined ? a->slot : 0;
        flow_use(&r->flow, p);
        TRY(model_run(r->net, part[a->kind], a->first, a->last, p));
    }
    return ERR_OK;
}

// What ranks that share layers or positions send in a step. An evaluation, too, has to find room for its small sums.
static err_t count_meetings(step_runner *r, pass *p) {
    TRY(walk(r, p->dw ? &r->actions : &r->look, p));
    comm_cost merged = r->merge.sent, swapped = r->swap.at.sent;
    int merges = r->merge.calls, swaps = r->swap.at.calls;
    p->dw = NULL, p->drop.p = 0;
    TRY(walk(r, &r->look, p));
    r->merge.sent = merged, r->swap.at.sent = swapped;
    r->merge.calls = merges, r->swap.at.calls = swaps;
    return ERR_OK;
}

// Walks through it at addresses that nothing reads.
static err_t plan_merges(step_runner *r) {
    size_t n = (size_t)r->net->params;
    int tables = r->state->o.training ? r->state->tables : 0;
    slice_merge paper;
    row_swap swapped;
    if (!step_shares(r)) return ERR_OK;
    arena_imagine(&r->memory);
    flow_link(&r->flow);
    tensor *row = malloc((size_t)(1 + tables) * n * sizeof *row);
    if (!row) return err_set(ERR_INTERNAL, "no memory for the tables of %zu parameters", n);
    for (size_t i = 0; i < n; i++) {
        row[i] = r->state->w[i], row[i].data = r->losses.data;
        for (size_t k = 1; k <= (size_t)tables; k++)
            row[k * n + i] = r->state->grad[i], row[k * n + i].data = r->losses.data;
    }
    pass p = executor_pass(r, r->cfg->batch.micro);
    p.w = row;
    p.dw = tables ? row + n : NULL;
    p.more_dw = tables > 1 ? row + 2 * n : NULL;
    p.drop.p = tables ? (float)r->net->dropout : 0;
    p.ops = &ops_on_paper;
    if (step_shares_layers(r)) merge_on_paper(&r->merge, &p, &paper);
    if (step_contexts(r) > 1) swap_on_paper(&r->swap, &p, &swapped);
    err_t rc = count_meetings(r, &p);
    free(row);
    TRY(rc);
    TRY(merge_declare(&r->merge, &r->memory));
    return merge_declare(&r->swap.at, &r->memory);
}

static err_t allocate_places(step_runner *r) {
    size_t n = (size_t)r->places;
    r->in = calloc(n, sizeof *r->in);
    r->flight = calloc(n, sizeof *r->flight);
    r->draw = calloc(n, sizeof *r->draw);
    r->host_draw = calloc(n, sizeof *r->host_draw);
    r->copied = calloc(n, sizeof *r->copied);
    r->used = calloc(n, sizeof *r->used);
    bool ok = r->in && r->flight && r->draw && r->host_draw && r->copied && r->used;
    return ok ? ERR_OK : err_set(ERR_INTERNAL, "no memory for the inputs of %zu micro-batches", n);
}

err_t step_open(step_runner *r, const config *cfg, device *dev, stream *s, const step_ranks *ranks, model *net,
                train_state *state) {
    *r = (step_runner){.cfg = cfg,
                       .dev = dev,
                       .s = s,
                       .ranks = ranks->all,
                       .groups = ranks->groups,
                       .stages = ranks->stages,
                       .pipelined = ranks->stages->pipe.ranks > 1,
                       .net = net,
                       .state = state};
    int64_t B = cfg->batch.micro;
    bool dynamic = cfg->precision.compute == FP16 && cfg->precision.loss_scale == 0;
    r->rules = (step_rules){.grad_clip = cfg->optimizer.grad_clip,
                            .beta1 = cfg->optimizer.beta1,
                            .beta2 = cfg->optimizer.beta2,
                            .dynamic_scale = dynamic,
                            .scale_window = cfg->precision.scale_window};
    arena_open(&r->memory, dev, MEMORY_DEVICE);
    bool cpu = device_about(dev)->kind == DEVICE_CPU;
    r->ahead = cpu ? 1 : 2;
    r->places = r->pipelined ? ranks->stages->places : r->ahead;
    TRY(allocate_places(r));
    for (int k = 0; k < r->places; k++) {
        for (int i = 0; i < net->inputs; i++) TRY(declare_input(r, &r->in[k][i], &net->input[i], B));
        TRY(arena_1d(&r->memory, &r->draw[k], INT32, 2));
    }
    TRY(arena_1d(&r->memory, &r->micro_loss, FP64, B));
    if (step_weighs(r)) TRY(arena_1d(&r->memory, &r->micro_counts, FP64, B));
    TRY(declare_shared(r));
    TRY(merge_open(&r->merge, ranks->groups->group[GROUP_TENSOR], ranks->all, device_ops(dev), state->o.fixed));
    TRY(swap_open(&r->swap, ranks->groups->group[GROUP_CONTEXT], ranks->all, device_ops(dev),
                  state->o.here.count / ranks->groups->group[GROUP_CONTEXT]->world));
    TRY(plan_activations(r));
    TRY(make_lists(r));
    TRY(plan_merges(r));
    return declare_staging(r);
}

// A failure inside a recording can't be named, and [device] check needs the name. What ranks that share layers send in
// the middle of a pass can't be recorded.
static bool wants_recordings(const step_runner *r) {
    return r->cfg->device.graph && !r->cfg->device.check && device_records(r->dev) && !step_shares(r);
}

// For each gradient buffer and each of two places: of a micro-batch, and of the last.
static int micro_recordings(const step_runner *r) { return 8 * r->state->buffers; }

// The recordings themselves are made in the first steps that meet them.
static err_t plan_recordings(step_runner *r) {
    r->records = wants_recordings(r);
    if (!r->records) return ERR_OK;
    if (r->pipelined) return recorded_open(&r->recorded_parts, &r->actions, r->stages);
    r->recorded_micro = calloc((size_t)micro_recordings(r), sizeof *r->recorded_micro);
    return r->recorded_micro ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %d recordings", micro_recordings(r));
}

err_t step_commit(step_runner *r) {
    TRY(arena_commit(&r->memory));
    TRY(arena_commit(&r->staging));
    TRY(model_fill(r->net, r->s));
    flow_link(&r->flow);
    double *at = r->shared.data;
    r->sums.data = at;
    r->sample_loss.data = at + tensor_count(&r->sums);
    r->reports.data = at + tensor_count(&r->sums) + tensor_count(&r->sample_loss);
    if (step_weighs(r)) r->sample_counts.data = (double *)r->reports.data + tensor_count(&r->reports);
    *(double *)r->host_void.data = NAN;
    for (int k = 0; k < r->places; k++) {
        TRY(event_open(r->dev, &r->copied[k]));
        TRY(event_open(r->dev, &r->used[k]));
    }
    for (int k = 0; k < r->ahead; k++) TRY(event_open(r->dev, &r->slot[k].done));
    TRY(plan_recordings(r));
    r->copies = r->s;
    if (r->ahead > 1) TRY(stream_open_queue(r->dev, &r->copies));
    if (r->pipelined) TRY(links_open(&r->links, r->stages, r->groups, r->dev, r->s, r->state->o.training));
    int messages = r->pipelined ? r->stages->table.messages : 0, chunks = r->pipelined ? r->stages->pipe.chunks : 1;
    if (r->ahead > 1) r->merge.watch = r->swap.at.watch = &r->together.watch;
    return parallel_open(
        &r->together, r->state, sync_gradients(r->state), sync_weights(r->state),
        &(parallel_spans){.messages = messages, .chunks = chunks, .merges = r->merge.calls + r->swap.at.calls});
}

void step_show(step_runner *r, board_rank *board) {
    r->board = r->together.board = r->merge.board = r->swap.at.board = board;
}

void step_close(step_runner *r) {
    parallel_close(&r->together);
    if (r->net) model_forget(r->net);
    arena_close(&r->memory);
    arena_close(&r->staging);
    flow_close(&r->flow);
    if (r->copies && r->copies != r->s) stream_close(r->copies);
    links_close(&r->links);
    merge_close(&r->merge);
    swap_close(&r->swap);
    for (int k = 0; k < r->places; k++) {
        if (r->copied && r->copied[k]) event_close(r->copied[k]);
        if (r->used && r->used[k]) event_close(r->used[k]);
    }
    for (int k = 0; k < 2; k++)
        if (r->slot[k].done) event_close(r->slot[k].done);
    for (int k = 0; r->recorded_micro && k < micro_recordings(r); k++) replay_close(&r->recorded_micro[k]);
    recorded_close(&r->recorded_parts);
    replay_close(&r->recorded_squares);
    for (int k = 0; k < 2; k++) replay_close(&r->recorded_update[k]);
    action_list_free(&r->actions);
    action_list_free(&r->look);
    free(r->bucket);
    free(r->in), free(r->flight), free(r->draw), free(r->host_draw), free(r->copied), free(r->used);
    free(r->recorded_micro);
    free(r->sums_at);
    *r = (step_runner){0};
}

// --- the gradient ----------------------------------------------------------------------------------------------------

// A shared row gets the gradients of all its uses. Tied rows are cut alike, so a rank that owns a piece of one owns the
// same piece of the other.
static err_t add_tied(step_runner *r) {
    int count;
    if (r->state->zero.joined) return ERR_OK;  // backward has added them already
    const zero_piece *p = state_pieces(r->state, &count);
    for (int i = 0; i < count; i++) {
        int of = r->net->param[p[i].row].tied;
        for (int k = 0; of >= 0 && k < count; k++) {
            if (p[k].row != of || p[k].slice != p[i].slice) continue;
            tensor sum = state_gradient(r->state, &p[k]), more = state_gradient(r->state, &p[i]);
            TRY(device_ops(r->dev)->add(&(add_args){.y = &sum, .a = &sum, .b = &more}, r->s));
        }
    }
    return ERR_OK;
}

static err_t run_lanes(step_runner *r, loader *data, int64_t step) {
    r->began = clock_now();
    TRY(stopwatch_begin(&r->together.watch, SPAN_STEP, r->s));
    r->data_s = 0;
    if (!r->uncollected) r->data_failed.code = ERR_OK;
    r->together.step = step;
    TRY(stream_zero(r->s, r->shared.data, tensor_bytes(&r->shared)));
    return executor_run(r, &r->actions, ACTION_SQUARES, data, step);
}

err_t step_gradient(step_runner *r, loader *data, int64_t step) {
    TRY(run_lanes(r, data, step));
    TRY(tied_gradients(r->state, r->s));
    return add_tied(r);
}

// --- update ----------------------------------------------------------------------------------------------------------

// Sums of squares of what this rank owns. The places of other ranks stay zero.
static err_t square_sums(step_runner *r) {
    const zero_layout *z = &r->state->zero;
    for (int i = 0; i < z->owned; i++) {
        const zero_piece *p = &z->piece[i];
        const param *row = &r->net->param[p->row];
        if (row->tied >= 0 || (param_slices(row) == 1 && !step_tells_gradients(r))) continue;
        // chunks of earlier slices, which are full
        int64_t before = p->slice * ((param_slice_room(row) + CHUNK - 1) / CHUNK);
        tensor grad = state_gradient(r->state, p), sums = view1(&r->sums, (p->count + CHUNK - 1) / CHUNK);
        sums.data = (double *)r->sums.data + r->sums_at[p->row] + before + p->first / CHUNK;
        TRY(device_ops(r->dev)->sum_squares(&(sum_squares_args){.sums = &sums, .g = &grad}, r->s));
    }
    return ERR_OK;
}

// The last work on the gradient, without communication.
static err_t queue_squares(void *ctx) {
    TRY(add_tied(ctx));
    return square_sums(ctx);
}

// By the host's clock where the host computes; else by the device's clock, of two steps before.
static err_t take_times(step_runner *r, double *mine) {
    double total = clock_now() - r->began, wait[SPANS], busy, ms[SPANS];
    bool known;
    parallel_times(&r->together, wait, &busy);
    double waited = 0;
    wait[SPAN_TENSOR] = r->merge.waited_s + r->swap.at.waited_s, r->merge.waited_s = r->swap.at.waited_s = 0;
    for (int k = 0; k < SPANS; k++) waited += wait[k];
    mine[REPORT_DATA_MS] = 1e3 * r->data_s;
    mine[REPORT_COMPUTE_MS] = 1e3 * (total - r->data_s - waited);
    mine[REPORT_WAIT_MS] = 1e3 * (wait[SPAN_WAIT] + wait[SPAN_JOIN]);
    mine[REPORT_BEFORE_MS] = 1e3 * wait[SPAN_BEFORE];
    mine[REPORT_AFTER_MS] = 1e3 * wait[SPAN_AFTER];
    mine[REPORT_TENSOR_MS] = 1e3 * wait[SPAN_TENSOR];
    mine[REPORT_BUSY_MS] = 1e3 * busy;
    if (!step_runs_ahead(r)) return ERR_OK;
    TRY(stopwatch_read(&r->together.watch, ms, &known));  // all zero if not known
    mine[REPORT_COMPUTE_MS] =
        ms[SPAN_STEP] - ms[SPAN_DATA] - ms[SPAN_WAIT] - ms[SPAN_BEFORE] - ms[SPAN_AFTER] - ms[SPAN_TENSOR];
    mine[REPORT_WAIT_MS] = ms[SPAN_WAIT] + ms[SPAN_JOIN];
    mine[REPORT_BEFORE_MS] = ms[SPAN_BEFORE];
    mine[REPORT_AFTER_MS] = ms[SPAN_AFTER];
    mine[REPORT_TENSOR_MS] = ms[SPAN_TENSOR];
    mine[REPORT_BUSY_MS] = ms[SPAN_BUSY];
    return ERR_OK;
}

static err_t report(step_runner *r, const step_slot *to) {
    double *mine = to->report.data;
    mine[REPORT_STOP] = r->stop_wanted;
    mine[REPORT_FAILED] = r->data_failed.code != ERR_OK;
    TRY(take_times(r, mine));
    if (r->sense) r->sense(r->sense_ctx, to->step, mine);
    if (r->data_failed.code != ERR_OK) TRY(stream_copy(r->s, r->sums.data, r->host_void.data, sizeof(double)));
    return stream_copy(r->s, (double *)r->reports.data + r->ranks->rank * REPORT_ITEMS, mine,
                       REPORT_ITEMS * sizeof *mine);
}

// Gives all ranks the sums of squares, losses and reports of all ranks.
static err_t share(step_runner *r) {
    comm *c = r->ranks;
    if (c->world == 1) return ERR_OK;
    board_waiting(r->board, WAIT_RANKS, "share losses and norms", -1, r->together.step);
    if (r->pipelined) TRY(links_settle(&r->links));
    TRY(parallel_join(&r->together));
    c->phase.what = "share losses and norms", c->phase.step = r->together.step, c->phase.number = 0;
    return c->table->all_reduce(c, r->shared.data, (size_t)tensor_count(&r->shared), FP64, REDUCE_SUM, r->s);
}

// For calls that every step queues with the same arguments: the second step records them.
static err_t queue_or_replay(step_runner *r, replay *of, replay_calls calls, void *ctx) {
    return r->records && r->updated ? replay_run(of, r->s, calls, ctx) : calls(ctx);
}

// Everything of a piece that does not depend on the device that updates it.
static optimizer_piece piece_of(const step_runner *r, const zero_piece *p, rounding_key *key) {
    const train_state *t = r->state;
    optimizer_piece x = {
        .master = store_view(&t->masters, p), .round = state_rounding(t, p, key), .decay = r->net->param[p->row].decay};
    for (int k = 0; k < t->arrays; k++) x.array[k] = store_view(&t->array[k], p);
    return x;
}

static err_t call_optimizer(const step_runner *r, device *on, optimizer_piece *x, stream *s) {
    return optimizers[r->cfg->optimizer.type]->update(device_ops(on), &r->cfg->optimizer, x, s);
}

static err_t update_piece(step_runner *r, const zero_piece *p) {
    train_state *t = r->state;
    rounding_key key;
    optimizer_piece x = piece_of(r, p, &key);
    tensor w = store_view(&t->weights, p);
    if (w.data != x.master.data) x.w = w;
    x.grad = state_gradient(t, p);
    x.state = state_step(t);
    TRY(call_optimizer(r, r->dev, &x, r->s));
    return state_copy_exact(t, p, r->s);
}

// Offload: the gradient comes to the host, the CPU updates there, the new weights go back.
static err_t update_on_host(step_runner *r, const zero_piece *p, const step_state *decided) {
    train_state *t = r->state;
    rounding_key key;
    optimizer_piece x = piece_of(r, p, &key);
    tensor w = store_view(&t->weights, p), grad = state_gradient(t, p), host_w = view1(&t->stage_w, p->count);
    if (!decided->apply) return ERR_OK;
    if (host_w.type != FP32) x.w = host_w;
    x.grad = view1(&t->stage_g, p->count);
    x.state = decided;
    TRY(stream_copy(r->s, x.grad.data, grad.data, tensor_bytes(&grad)));
    TRY(stream_wait(r->s));
    TRY(call_optimizer(r, t->host_dev, &x, t->host_s));
    TRY(stream_wait(t->host_s));
    TRY(stream_copy(r->s, w.data, x.w.data ? x.w.data : x.master.data, tensor_bytes(&w)));
    TRY(state_copy_exact(t, p, r->s));
    return stream_wait(r->s);
}

// Queues the decision, and the copies of its results to the host.
static err_t decide(step_runner *r, const step_slot *to) {
    train_state *t = r->state;
    TRY(stream_copy(r->s, (char *)t->step.data + offsetof(step_state, lr), to->lr.data, sizeof(float)));
    TRY(stream_copy(r->s, to->state[0].data, t->step.data, sizeof(step_state)));
    step_decide_args args = {.state = state_step(t), .sums = &r->sums, .rules = &r->rules};
    if (step_weighs(r)) args.counts = &r->sample_counts, args.losses = r->cfg->batch.global * r->net->losses;
    TRY(device_ops(r->dev)->step_decide(&args, r->s));
    TRY(stream_copy(r->s, to->state[1].data, t->step.data, sizeof(step_state)));
    return stream_copy(r->s, to->loss.data, r->sample_loss.data, tensor_bytes(&to->loss));
}

// decided: NULL: on the device; else on the host (offload), as decided.
static err_t update_pieces(step_runner *r, const step_state *decided) {
    int count;
    const zero_piece *p = state_pieces(r->state, &count);
    for (int i = 0; i < count; i++)
        if (r->net->param[p[i].row].tied < 0) TRY(decided ? update_on_host(r, &p[i], decided) : update_piece(r, &p[i]));
    return ERR_OK;
}

typedef struct update_call {
    step_runner *r;
    const step_slot *to;
} update_call;

static err_t queue_update(void *ctx) {
    const update_call *c = ctx;
    TRY(decide(c->r, c->to));
    return update_pieces(c->r, NULL);
}

static err_t update(step_runner *r, const step_slot *to) {
    *(float *)to->lr.data = (float)schedule_lr(r->cfg, to->step);
    if (!r->state->o.offload) {
        TRY(queue_or_replay(r, &r->recorded_update[to - r->slot], queue_update, &(update_call){r, to}));
        return event_record(to->done, r->s);
    }
    step_state decided;
    TRY(decide(r, to));
    TRY(event_record(to->done, r->s));
    TRY(state_get_step(r->state, &decided));
    return update_pieces(r, &decided);
}

// --- a step ----------------------------------------------------------------------------------------------------------

static void read_reports(const step_runner *r, const step_slot *from, bool *failed, bool *stop) {
    const double *reports = (const double *)from->loss.data + r->cfg->batch.global;
    *failed = *stop = false;
    for (int k = 0; k < r->ranks->world; k++) {
        *failed |= reports[k * REPORT_ITEMS + REPORT_FAILED] != 0;
        *stop |= reports[k * REPORT_ITEMS + REPORT_STOP] != 0;
    }
}

// The mean of the losses that count; of none it is not a number.
static double mean_loss(const step_runner *r, const double *each) {
    int64_t G = r->cfg->batch.global;
    const double *count = each + G + r->ranks->world * REPORT_ITEMS;
    double loss = 0, counted = 0;
    for (int64_t i = 0; i < G; i++) loss += each[i];
    if (!step_weighs(r)) return loss / (double)G;
    for (int64_t i = 0; i < G; i++) counted += count[i];
    return loss * (double)r->net->losses / counted;
}

static void collect(const step_runner *r, const step_slot *from, step_result *out) {
    const step_state *s = from->state[1].data;
    const double *each = from->loss.data;
    double loss = mean_loss(r, each);
    // Both are printed: NAN has no sign, and what comes out of arithmetic may have one.
    *out = (step_result){.step = from->step,
                         .loss = isnan(loss) ? NAN : loss,
                         .grad_norm = isnan(s->grad_norm) ? NAN : s->grad_norm,
                         .lr = schedule_lr(r->cfg, from->step),
                         .loss_scale = s->loss_scale,
                         .applied = s->apply,
                         .adam_t = s->adam_t,
                         .good_steps = s->good_steps,
                         .skipped = s->skipped,
                         .reports = each + r->cfg->batch.global};
}

// Some rank had no data. This step and those after it were not applied; the step_state is set back to before this step.
static err_t end_void(step_runner *r, const step_slot *from) {
    step_state before;
    memcpy(&before, from->state[0].data, sizeof before);
    r->uncollected = 0;
    TRY(state_set_step(r->state, &before));
    TRY(parallel_wait(&r->together));
    return comm_agree_ok(r->ranks, r->data_failed.code == ERR_OK ? ERR_OK : err_restore(&r->data_failed), r->s);
}

// The last stage's ranks gather among each other, on the communicator that the spread weights use.
static err_t pass_tied(step_runner *r) {
    if (!r->pipelined || !r->state->o.tie) return ERR_OK;
    TRY(parallel_join(&r->together));
    return tied_values(r->state, r->s);
}

err_t step_queue(step_runner *r, loader *data, int64_t step) {
    step_slot *to = &r->slot[step % r->ahead];
    stopwatch *watch = &r->together.watch;
    if (r->uncollected == r->ahead)
        return err_set(ERR_INTERNAL, "step %" PRId64 " is queued before step %" PRId64 " is collected", step,
                       r->oldest);
    to->step = step;
    stopwatch_start(watch);
    TRY(run_lanes(r, data, step));
    board_doing(r->board, "add up the gradient", -1, step);
    TRY(tied_gradients(r->state, r->s));
    TRY(queue_or_replay(r, &r->recorded_squares, queue_squares, r));
    TRY(stopwatch_end(watch, SPAN_STEP, r->s));
    TRY(report(r, to));
    TRY(share(r));
    board_doing(r->board, "update", -1, step);
    TRY(update(r, to));
    // the weights travel while the next step begins, and may arrive after this step is collected
    stopwatch_turn(watch);
    TRY(parallel_spread(&r->together));
    TRY(pass_tied(r));
    stopwatch_stop(watch);
    r->updated = true;
    if (!r->uncollected++) r->oldest = step;
    return ERR_OK;
}

err_t step_collect(step_runner *r, step_result *out) {
    bool failed, stop;
    if (!r->uncollected) return err_set(ERR_INTERNAL, "no step is queued that could be collected");
    const step_slot *from = &r->slot[r->oldest % r->ahead];
    board_waiting(r->board, WAIT_DEVICE, "wait for the step's end", -1, from->step);
    TRY(event_wait(from->done));
    TRY(r->ranks->table->query(r->ranks));  // an aborted transport ends with wrong numbers: don't use them
    read_reports(r, from, &failed, &stop);
    if (failed) return end_void(r, from);
    r->uncollected--;
    r->oldest++;
    collect(r, from, out);
    out->stop = stop;
    return ERR_OK;
}
