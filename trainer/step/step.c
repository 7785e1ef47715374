// trainer/step/step.c: see trainer/step/step.h. Opens what a step needs, and runs its list (trainer/step/executor.h).
// The host waits once, after everything is queued.
#include "trainer/step/step.h"

#include "base/clock.h"
#include "gpu/paper.h"
#include "model/slices.h"
#include "trainer/step/executor.h"
#include "trainer/step/finish.h"
#include "trainer/step/schedule.h"
#include "trainer/step/sync.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// --- opening ---------------------------------------------------------------------------------------------------------

// A run writes one sample after the other. New positions of all texts go through the blocks as rows of one micro-batch.
static int growing_texts(const step_runner *r) {
    if (!r->net->vocab || !r->cfg->sample.tokens || r->state->o.passes) return 0;
    int64_t rows = r->cfg->resolved.micro * (r->net->context - r->net->reads),
            texts = r->state->o.training ? 1 : r->cfg->sample.batch;
    return (int)(texts < rows ? texts : rows);
}

// One that only passes weights on runs no pass; the least that a model can be declared for.
static int64_t most_samples(const step_runner *r) {
    const state_options *o = &r->state->o;
    return o->passes && o->tokens.of <= 1 ? 1 : r->cfg->resolved.micro;
}

static err_t plan_activations(step_runner *r) {
    const config *c = r->cfg;
    r->texts = growing_texts(r);
    model_plan o = {.compute = r->state->o.compute,
                    .B = most_samples(r),
                    .slots = r->stages->slots,
                    .range = r->stages->chunk,
                    .boundaries = r->stages->table.gradients,
                    .forward_only = !r->state->o.training || r->state->o.serves,
                    .halves = pipeline_halves(r->stages->pipe.kind),
                    .recompute = (recomputation)c->parallel.recompute,
                    .kv_slots = r->texts,
                    .slice_first = r->state->o.here.first,
                    .slice_count = r->state->o.here.count,
                    .slice_rows = r->state->o.here.rows,
                    .token_first = r->state->o.tokens.first,
                    .token_count = r->state->o.tokens.count};
    TRY(model_declare(r->net, &r->memory, &o));
    TRY(flow_declare(&r->flow, r->net, &r->memory, &o));
    return arena_2d(&r->memory, &r->losses, FP32, o.B, r->net->losses);
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
    TRY(action_forward(&l, &r->forward));
    return r->state->o.training ? action_step(&l, r->state->ranks->rank, &r->actions) : ERR_OK;
}

// Runs the blocks of the list's actions, in its order.
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
        p->slot = a->slot;
        flow_use(&r->flow, p);
        TRY(model_run(r->net, part[a->kind], a->first, a->last, p));
    }
    return ERR_OK;
}

// Counts what ranks that share layers or positions send in a step. An evaluation is counted too, since its small sums
// need memory.
static err_t count_merges(step_runner *r, pass *p) {
    TRY(walk(r, p->dw ? &r->actions : &r->forward, p));
    comm_cost merged = r->merge.sent, swapped = r->swap.at.sent;
    int merges = r->merge.calls, swaps = r->swap.at.calls;
    p->dw = NULL, p->drop.p = 0, p->drop_adapted = 0;
    TRY(walk(r, &r->forward, p));
    r->merge.sent = merged, r->swap.at.sent = swapped;
    r->merge.calls = merges, r->swap.at.calls = swaps;
    return ERR_OK;
}

// A pass with fake addresses. row (=) its tables of parameters and gradients, to be freed.
static err_t pass_on_paper(step_runner *r, pass *p, tensor **table) {
    size_t n = (size_t)r->net->params;
    int tables = r->state->o.training ? r->state->tables : 0;
    arena_imagine(&r->memory);
    flow_link(&r->flow);
    tensor *row = *table = malloc((size_t)(1 + tables) * n * sizeof *row);
    if (!row) return err_set(ERR_INTERNAL, "no memory for the tables of %zu parameters", n);
    for (size_t i = 0; i < n; i++) {
        row[i] = r->state->w[i], row[i].data = r->losses.data;
        for (size_t k = 1; k <= (size_t)tables; k++)
            row[k * n + i] = r->state->grad[i], row[k * n + i].data = r->losses.data;
    }
    *p = executor_pass(r, r->cfg->resolved.micro);
    p->w = row;
    p->dw = tables ? row + n : NULL;
    p->more_dw = tables > 1 ? row + 2 * n : NULL;
    p->drop.p = tables ? (float)r->net->dropout : 0;
    p->drop_adapted = tables ? (float)model_adapts(r->net)->dropout : 0;
    p->ops = &ops_on_paper;
    return ERR_OK;
}

// Dry run: counts the calls and bytes of tensor- and context-parallel ranks.
static err_t plan_merges(step_runner *r) {
    slice_merge paper;
    row_swap swapped;
    tensor *row;
    pass p;
    if (!step_shares(r)) return ERR_OK;
    TRY(pass_on_paper(r, &p, &row));
    if (step_shares_layers(r)) merge_on_paper(&r->merge, &p, &paper);
    if (step_contexts(r) > 1) swap_on_paper(&r->swap, &p, &swapped);
    err_t rc = count_merges(r, &p);
    free(row);
    TRY(rc);
    TRY(merge_declare(&r->merge, &r->memory));
    return merge_declare(&r->swap.at, &r->memory);
}

// Has the step's list this part of the block?
static bool runs(const step_runner *r, action_kind kind, int block) {
    for (int i = 0; i < r->actions.count; i++) {
        const action *a = &r->actions.at[i];
        if (a->kind == kind && a->first <= block && block <= a->last) return true;
    }
    return false;
}

typedef struct paper_part {
    action_kind kind;
    pass_part part;
} paper_part;

static err_t walk_once(step_runner *r, pass *p, const step_paper *paper, int b, paper_part k, bool found) {
    comm_cost merged = r->merge.sent, swapped = r->swap.at.sent;
    int merges = r->merge.calls, swaps = r->swap.at.calls;
    TRY(model_run(r->net, k.part, b, b, p));
    step_part seen = {.kind = k.kind,
                      .block = b,
                      .found = found,
                      .merged = r->merge.sent.sent - merged.sent,
                      .merges = r->merge.calls - merges,
                      .swapped = r->swap.at.sent.sent - swapped.sent,
                      .swaps = r->swap.at.calls - swaps};
    paper->done(paper->ctx, &seen);
    return ERR_OK;
}

static err_t walk_part(step_runner *r, pass *p, const step_paper *paper, int b, paper_part k) {
    const model_held has = {p->slot, b}, none = {p->slot, -1}, *held = &r->net->held;
    bool back = k.kind == ACTION_BACKWARD || k.kind == ACTION_INPUTS,
         twice = paper->both && back && block_recomputes(&r->net->block[b], r->cfg->parallel.recompute),
         found = back && held->slot == has.slot && held->block == b;
    if (!runs(r, k.kind, b)) return ERR_OK;
    TRY(walk_once(r, p, paper, b, k, found));
    if (!twice) return ERR_OK;
    r->net->held = found ? none : has;
    return walk_once(r, p, paper, b, k, !found);
}

// All blocks forward first: one that comes back at once has what it would else compute again.
static err_t walk_parts(step_runner *r, pass *p, const step_paper *paper) {
    static const paper_part back[] = {
        {ACTION_BACKWARD, PASS_BACKWARD}, {ACTION_INPUTS, PASS_INPUTS}, {ACTION_WEIGHTS, PASS_WEIGHTS}};
    for (int b = 0; b < r->net->blocks; b++) TRY(walk_part(r, p, paper, b, (paper_part){ACTION_FORWARD, PASS_FORWARD}));
    for (int b = r->net->blocks - 1; b >= 0; b--)
        for (size_t k = 0; k < sizeof back / sizeof *back; k++) TRY(walk_part(r, p, paper, b, back[k]));
    return ERR_OK;
}

err_t step_on_paper(step_runner *r, const step_paper *paper) {
    slice_merge merge;
    row_swap swap;
    tensor *row;
    pass p;
    comm_cost merged = r->merge.sent, swapped = r->swap.at.sent;
    int merges = r->merge.calls, swaps = r->swap.at.calls;
    TRY(pass_on_paper(r, &p, &row));
    p.ops = paper->ops, p.s = paper->s;
    p.fresh = r->state->o.micros == 1;  // as most micro-batches are
    if (step_shares_layers(r)) merge_on_paper(&r->merge, &p, &merge);
    if (step_contexts(r) > 1) swap_on_paper(&r->swap, &p, &swap);
    err_t rc = walk_parts(r, &p, paper);
    free(row);
    r->merge.sent = merged, r->swap.at.sent = swapped, r->merge.calls = merges, r->swap.at.calls = swaps;
    return rc;
}

// Of a server that applies gradients one by one: room for one of each worker.
static err_t declare_pushed(step_runner *r) {
    const train_state *t = r->state;
    int64_t elements = (int64_t)(t->zero.shard ? t->zero.shard : 1);
    if (!t->o.servers || !t->o.serves) return ERR_OK;
    return arena_2d(&r->memory, &r->pushed, FP32, grid_workers(&r->groups->shape), elements);
}

static err_t open_tensors(step_runner *r, const config *cfg, const model *net) {
    int64_t B = cfg->resolved.micro;
    sample_range own = model_own_samples(net, &r->state->o.tokens, B);
    arena_open(&r->memory, r->dev, MEMORY_DEVICE);
    arena_open(&r->staging, r->dev, MEMORY_PINNED);
    TRY(inputs_open(&r->inputs, net,
                    &(input_options){.slots = r->stages->input_slots,
                                     .spare = !r->pipelined && step_runs_ahead(r),
                                     .B = B,
                                     .first = own.first,
                                     .count = own.count,
                                     .memory = &r->memory,
                                     .staging = &r->staging}));
    return results_open(&r->results, cfg, net,
                        &(result_options){.world = r->ranks->world,
                                          .islands = grid_islands(&r->groups->shape),
                                          .slots = r->ahead,
                                          .words = tensor_count(&r->state->step),
                                          .buckets = r->net->table.width ? ROW_BUCKETS : 0,
                                          .rows = state_has_rows(r->state),
                                          .on_host = r->state->o.offload,
                                          .memory = &r->memory,
                                          .staging = &r->staging});
}

err_t step_open(step_runner *r, const config *cfg, device *dev, stream *s, const step_ranks *ranks, model *net,
                train_state *state) {
    comm *context = ranks->groups->group[GROUP_CONTEXT];
    *r = (step_runner){.cfg = cfg,
                       .dev = dev,
                       .s = s,
                       .ranks = ranks->all,
                       .groups = ranks->groups,
                       .stages = ranks->stages,
                       .pipelined = ranks->stages->pipe.ranks > 1,
                       .net = net,
                       .state = state,
                       .shares = state->o.servers ? grid_workers(&ranks->groups->shape) : 1,
                       .ahead = device_about(dev)->kind == DEVICE_CPU ? 1 : 2};
    finish_open(r);
    TRY(open_tensors(r, cfg, net));
    TRY(step_rows_open(&r->rows, r->state, r->ranks, cfg->resolved.micro, &r->memory));
    for (int k = 0; r->rows.of && k < 2 && k < r->inputs.slots; k++)
        r->rows.set[k].ids = &r->inputs.slot[k].in[net->table.input];
    TRY(merge_open(&r->merge, ranks->groups->group[GROUP_TENSOR], ranks->all, device_ops(dev), state->o.fixed));
    TRY(swap_open(&r->swap, context, ranks->all, device_ops(dev), state->o.here.count / context->world));
    TRY(plan_activations(r));
    TRY(declare_pushed(r));
    TRY(make_lists(r));
    return plan_merges(r);
}

// [device] check must name the call that failed, which can't be done inside a recording. Nor can sends of ranks that
// share layers be recorded, in the middle of a pass.
static bool wants_recordings(const step_runner *r) {
    return r->cfg->device.graph && !r->cfg->device.check && device_records(r->dev) && !step_shares(r);
}

// Each is made in the first steps that run it.
static err_t open_recordings(step_runner *r) {
    if (!wants_recordings(r)) return ERR_OK;
    return recorded_open(&r->recorded, r->actions.recordings, r->inputs.spare < 0 ? 1 : r->inputs.slots);
}

err_t step_deal(step_runner *r) {
    action_layout l = executor_layout(r);
    TRY(parallel_wait(&r->together));
    TRY(stream_wait(r->s));
    recorded_close(&r->recorded);
    finish_close(r);
    finish_open(r);
    action_list_free(&r->actions);
    TRY(action_step(&l, r->state->ranks->rank, &r->actions));
    return open_recordings(r);
}

// Of a step, with the lanes that this rank has, or may have.
static int most_merges(const step_runner *r) {
    const train_state *t = r->state;
    int calls = r->merge.calls + r->swap.at.calls;
    int64_t own = t->reduce ? reduce_lane_count(t->reduce, t->ranks->rank) : 0;
    return t->o.moves && own ? (int)((calls * t->o.lanes + own - 1) / own) : calls;
}

err_t step_commit(step_runner *r) {
    TRY(arena_commit(&r->memory));
    TRY(arena_commit(&r->staging));
    TRY(model_fill(r->net, r->s));
    flow_link(&r->flow);
    TRY(inputs_commit(&r->inputs, r->dev, r->s));
    TRY(results_commit(&r->results, r->dev, r->s));
    if (r->results.revoked.data) comm_revoke_at(r->ranks, r->results.revoked.data);
    TRY(open_recordings(r));
    if (r->pipelined) TRY(links_open(&r->links, r->stages, r->groups, r->dev, r->s, r->state->o.training));
    if (step_runs_ahead(r)) r->merge.watch = r->swap.at.watch = &r->together.watch;
    TRY(parallel_open(&r->together, r->state, sync_gradients(r->state), sync_weights(r->state),
                      &(parallel_spans){.messages = r->stages->table.messages,
                                        .chunks = r->stages->pipe.chunks,
                                        .merges = most_merges(r)}));
    r->together.rows = &r->rows;
    return ERR_OK;
}

void step_show(step_runner *r, board_rank *board) {
    r->board = r->together.board = r->merge.board = r->swap.at.board = board;
}

void step_close(step_runner *r) {
    if (r->results.revoked.data) comm_revoke_at(r->ranks, NULL);
    parallel_close(&r->together);
    if (r->net) model_forget(r->net);
    arena_close(&r->memory);
    arena_close(&r->staging);
    flow_close(&r->flow);
    inputs_close(&r->inputs);
    results_close(&r->results);
    links_close(&r->links);
    step_rows_close(&r->rows);
    merge_close(&r->merge);
    swap_close(&r->swap);
    recorded_close(&r->recorded);
    finish_close(r);
    action_list_free(&r->actions);
    action_list_free(&r->forward);
    free(r->bucket);
    *r = (step_runner){0};
}

// --- a step ----------------------------------------------------------------------------------------------------------

static err_t begin(step_runner *r, int64_t step) {
    r->end.began = clock_now();
    TRY(stopwatch_begin(&r->together.watch, SPAN_STEP, r->s));
    r->inputs.waited_s = 0;
    if (!r->uncollected) r->inputs.failed.code = ERR_OK;
    r->together.step = step;
    step_rows_begin(&r->rows);
    return stream_zero(r->s, r->results.shared.data, tensor_bytes(&r->results.shared));
}

err_t step_gradient(step_runner *r, loader *data, int64_t step) {
    TRY(begin(r, step));
    TRY(executor_run(r, ACTION_SQUARES, data, step));
    return finish_tied(r);
}

static void read_reports(const step_runner *r, const result_slot *from, bool *failed, step_wish *wish, bool *written) {
    *failed = false, *wish = STEP_GO_ON, *written = true;
    for (int k = 0; k < r->ranks->world; k++) {
        const double *report = results_report(&r->results, from, k);
        *failed |= report[REPORT_FAILED] != 0;
        if (report[REPORT_WISH] - 1 > *wish) *wish = (step_wish)(report[REPORT_WISH] - 1);
        *written &= report[REPORT_WRITTEN] != 0;
    }
}

static void collect(const step_runner *r, const result_slot *from, step_result *out) {
    const step_state *s = from->state[1].data;
    double loss = results_loss(&r->results, from, r->net->losses);
    // Both are printed: NAN has no sign, and what comes out of arithmetic may have one.
    *out = (step_result){.step = from->step,
                         .loss = isnan(loss) ? NAN : loss,
                         .grad_norm = isnan(s->grad_norm) ? NAN : s->grad_norm,
                         .lr = schedule_lr(r->cfg, from->step),
                         .loss_scale = s->loss_scale,
                         .rows = results_row_count(&r->results, from, s->apply),
                         .cold_rows = results_cold_rows(&r->results, from),
                         .norm_mean = s->norm_mean,
                         .applied = s->apply,
                         .updates = s->updates,
                         .good_steps = s->good_steps,
                         .skipped = s->skipped,
                         .reports = results_report(&r->results, from, 0)};
}

// Some rank had no data. This step and those after it were not applied; the step_state and the optimizer's scalars are
// set back to before this step.
static err_t end_void(step_runner *r, const result_slot *from) {
    r->uncollected = 0;
    TRY(stream_copy(r->s, r->state->step.data, from->state[0].data, tensor_bytes(&r->state->step)));
    TRY(stream_wait(r->s));
    TRY(parallel_wait(&r->together));
    return comm_agree_ok(r->ranks, r->inputs.failed.code == ERR_OK ? ERR_OK : err_restore(&r->inputs.failed), r->s);
}

err_t step_queue(step_runner *r, loader *data, int64_t step) {
    if (r->uncollected == r->ahead)
        return err_set(ERR_INTERNAL, "step %" PRId64 " is queued before step %" PRId64 " is collected", step,
                       r->oldest);
    results_of(&r->results, step)->step = step;
    stopwatch_start(&r->together.watch);
    TRY(begin(r, step));
    TRY(executor_run(r, ACTION_KINDS, data, step));
    stopwatch_stop(&r->together.watch);
    r->end.ran = true;
    if (!r->uncollected++) r->oldest = step;
    return ERR_OK;
}

err_t step_collect(step_runner *r, step_result *out) {
    bool failed, written;
    step_wish wish;
    if (!r->uncollected) return err_set(ERR_INTERNAL, "no step is queued that could be collected");
    const result_slot *from = results_of(&r->results, r->oldest);
    board_waiting(r->board, WAIT_DEVICE, "wait for the step's end", -1, from->step);
    TRY(event_wait(from->done));
    TRY(r->ranks->table->query(r->ranks));  // an aborted transport ends with wrong numbers: don't use them
    read_reports(r, from, &failed, &wish, &written);
    if (failed) return end_void(r, from);
    r->uncollected--;
    r->oldest++;
    collect(r, from, out);
    out->wish = wish, out->written = written;
    return ERR_OK;
}
