// trainer/step/finish.c: see trainer/step/finish.h. The device decides (ops.h: step_decide), also whether all ranks had
// their data: a rank without data puts NaN into the sums of squares, so the step is skipped.
#include "trainer/step/finish.h"

#include "base/clock.h"
#include "model/slices.h"
#include "trainer/step/schedule.h"

#include <math.h>
#include <stddef.h>

void finish_open(step_runner *r) {
    const config *c = r->cfg;
    // with topk lanes were clipped, and what they send has gathered over many steps
    bool whole = r->state->o.lane_clip <= 0;
    r->end = (step_end){.rules = {.grad_clip = whole ? c->optimizer.grad_clip : 0,
                                  .dynamic_scale = c->precision.compute == FP16 && c->precision.loss_scale == 0,
                                  .scale_window = c->precision.scale_window,
                                  .islands = grid_islands(&r->groups->shape),
                                  .skip_norm = c->optimizer.skip_norm}};
}

void finish_close(step_runner *r) {
    replay_close(&r->end.masters);
    replay_close(&r->end.squares);
    for (int k = 0; k < 2; k++) replay_close(&r->end.update[k]);
}

// For calls that every step queues with the same arguments: the second step records them.
static err_t queue_or_replay(step_runner *r, replay *of, replay_calls calls, void *ctx) {
    return r->recorded.slots && r->end.ran ? replay_run(of, r->s, calls, ctx) : calls(ctx);
}

// --- the gradient ----------------------------------------------------------------------------------------------------

// A shared row gets the gradients of all its uses. Tied rows are cut alike, so a rank that owns a piece of one owns the
// same piece of the other.
err_t finish_tied(step_runner *r) {
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

// Does the piece count in the sums of squares, and from this rank?
static bool counts(const step_runner *r, const zero_piece *p) {
    const param *row = &r->net->param[p->row];
    if (row->rule == PARAM_AVERAGE || row->tied >= 0) return false;  // what the first has is no gradient
    return param_slices(row) > 1 || step_contributes_gradients(r);
}

// The sums of a piece's chunks, among those of all chunks.
static tensor sums_of(const step_runner *r, const tensor *all, const zero_piece *p) {
    const param *row = &r->net->param[p->row];
    // chunks of earlier slices, which are full
    int64_t before = p->slice * ((param_slice_room(row) + CHUNK - 1) / CHUNK);
    tensor sums = view1(all, (p->count + CHUNK - 1) / CHUNK);
    if (all == &r->results.sums) before += step_island(r) * r->results.sums_at[r->net->params];
    sums.data = (double *)all->data + r->results.sums_at[p->row] + before + p->first / CHUNK;
    return sums;
}

// Sums of squares of what this rank owns. Those of other ranks stay zero.
static err_t square_sums(step_runner *r) {
    const zero_layout *z = &r->state->zero;
    for (int i = 0; i < z->owned; i++) {
        const zero_piece *p = &z->piece[i];
        if (!counts(r, p)) continue;
        tensor grad = state_gradient(r->state, p), sums = sums_of(r, &r->results.sums, p);
        TRY(device_ops(r->dev)->sum_squares(&(sum_squares_args){.sums = &sums, .g = &grad}, r->s));
    }
    return ERR_OK;
}

// Does the piece have masters whose squares the optimizer reads?
static bool counts_masters(const step_runner *r, const zero_piece *p) {
    return counts(r, p) && r->net->param[p->row].decay;
}

// ... of the masters of a piece, which are at w, into these sums, by the device in whose memory both are.
static err_t master_sum_on(step_runner *r, const zero_piece *p, const tensor *w, const tensor *all, device *dev,
                           stream *s) {
    if (!counts_masters(r, p)) return ERR_OK;
    tensor sums = sums_of(r, all, p);
    return device_ops(dev)->sum_squares(&(sum_squares_args){.sums = &sums, .g = w}, s);
}

static err_t master_sums_on(step_runner *r, const tensor *all, device *dev, stream *s) {
    const train_state *t = r->state;
    for (int i = 0; i < t->zero.owned; i++) {
        const zero_piece *p = &t->zero.piece[i];
        tensor w = store_view(&t->masters, p);
        TRY(master_sum_on(r, p, &w, all, dev, s));
    }
    return ERR_OK;
}

// The masters' place in the windows is used again when this returns.
static err_t master_sum_of_chunk(void *ctx, const zero_piece *p, tensor *value) {
    step_runner *r = ctx;
    const train_state *t = r->state;
    TRY(master_sum_on(r, p, &value[0], &r->results.host_masters, t->host_dev, t->host_s));
    return stream_wait(t->host_s);
}

static err_t master_sums(void *ctx) {
    step_runner *r = ctx;
    return master_sums_on(r, &r->results.masters, r->dev, r->s);
}

// The host waits once for all of them.
static err_t master_sums_on_host(step_runner *r) {
    train_state *t = r->state;
    const results *x = &r->results;
    TRY(state_spills(t) ? spilled_walk(&t->spilled, SPILL_READ, master_sum_of_chunk, r)
                        : master_sums_on(r, &x->host_masters, t->host_dev, t->host_s));
    TRY(stream_wait(t->host_s));
    for (int i = 0; i < t->zero.owned; i++) {
        const zero_piece *p = &t->zero.piece[i];
        if (!counts_masters(r, p)) continue;
        tensor sums = sums_of(r, &x->masters, p), from = sums_of(r, &x->host_masters, p);
        TRY(stream_copy(r->s, sums.data, from.data, tensor_bytes(&sums)));
    }
    return ERR_OK;
}

// With offload the host does the work, which can't be recorded. What it writes has left: a step that updates
// on the host has waited for its device.
err_t finish_masters(step_runner *r) {
    board_doing(r->board, "add up squares of weights", -1, r->together.step);
    return r->state->o.offload ? master_sums_on_host(r) : queue_or_replay(r, &r->end.masters, master_sums, r);
}

// The last work on the gradient, without communication.
static err_t queue_squares(void *ctx) {
    TRY(finish_tied(ctx));
    return square_sums(ctx);
}

static err_t poison(step_runner *r) {
    const zero_layout *z = &r->state->zero;
    const float nan = NAN;
    if (!z->owned) return ERR_OK;
    tensor grad = state_gradient(r->state, &z->piece[0]);
    TRY(stream_copy(r->s, grad.data, &nan, sizeof nan));
    return stream_wait(r->s);
}

err_t finish_squares(step_runner *r) {
    if (fault_hit(r->faults, FAULT_NAN)) TRY(poison(r));
    board_doing(r->board, "add up the gradient", -1, r->together.step);
    TRY(queue_or_replay(r, &r->end.squares, queue_squares, r));
    // after the sums of all chunks: those of other ranks' buckets stay zero
    step_rows_squares(&r->rows, &r->results.sums);
    step_rows_count(&r->rows, &r->results.row_counts);
    return ERR_OK;
}

// --- what all ranks share --------------------------------------------------------------------------------------------

// By the host's clock where the host computes; else by the device's clock, of two steps before.
static err_t read_times(step_runner *r, double *mine) {
    double total = clock_now() - r->end.began, wait[SPANS], busy, ms[SPANS];
    bool known;
    parallel_times(&r->together, wait, &busy);
    double waited = 0;
    wait[SPAN_TENSOR] = r->merge.waited_s + r->swap.at.waited_s, r->merge.waited_s = r->swap.at.waited_s = 0;
    for (int k = 0; k < SPANS; k++) waited += wait[k];
    mine[REPORT_DATA_MS] = 1e3 * r->inputs.waited_s;
    mine[REPORT_COMPUTE_MS] = 1e3 * (total - r->inputs.waited_s - waited);
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

static err_t send_times(step_runner *r, const result_slot *to) {
    double *mine = to->report.data;
    mine[REPORT_WISH] = r->wish + 1;
    mine[REPORT_WRITTEN] = r->written;
    mine[REPORT_FAILED] = r->inputs.failed.code != ERR_OK;
    TRY(read_times(r, mine));
    if (r->sense) r->sense(r->sense_ctx, to->step, mine);
    if (r->inputs.failed.code != ERR_OK)
        TRY(stream_copy(r->s, r->results.sums.data, r->results.host_void.data, sizeof(double)));
    return stream_copy(r->s, (double *)r->results.reports.data + r->ranks->rank * REPORT_ITEMS, mine,
                       REPORT_ITEMS * sizeof *mine);
}

// Gives all ranks the sums of squares, losses and times of all ranks.
static err_t share(step_runner *r) {
    comm *c = r->ranks;
    if (c->world == 1) return ERR_OK;
    board_waiting(r->board, WAIT_RANKS, "share losses and norms", -1, r->together.step);
    if (r->pipelined) TRY(links_settle(&r->links));
    TRY(parallel_join(&r->together));
    c->phase.what = "share losses and norms", c->phase.step = r->together.step, c->phase.number = 0;
    return c->table->all_reduce(c, r->results.shared.data, (size_t)tensor_count(&r->results.shared), FP64, REDUCE_SUM,
                                r->s);
}

err_t finish_share(step_runner *r, const result_slot *to) {
    TRY(send_times(r, to));
    return share(r);
}

// --- update ----------------------------------------------------------------------------------------------------------

// Everything of a piece that does not depend on the device that updates it. value: its master and arrays, where they
// are in windows of a file; NULL: they are in memory.
static optimizer_piece piece_of(const step_runner *r, const zero_piece *p, const tensor *value, rounding_key *key) {
    const train_state *t = r->state;
    optimizer_piece x = {.master = value ? value[0] : store_view(&t->masters, p),
                         .array = t->of_piece,
                         .round = state_rounding(t, p, key),
                         .lr = t->rule[p->row].lr,
                         .decay = t->rule[p->row].decay};
    const tensor *of_row = t->o.offload ? &r->results.host_of_row : &r->results.of_row;
    if (of_row->data) x.of_row = (const float *)of_row->data + p->row;
    for (int k = 0; k < t->arrays; k++) x.array[k] = value ? value[k + 1] : store_view(&t->array[k], p);
    return x;
}

// Of each span of samples BatchNorm takes moments: a micro-batch is one.
static int64_t spans(const step_runner *r) { return r->cfg->batch.global / r->cfg->resolved.micro / step_parts(r); }

static err_t average(const step_runner *r, const param *row, const ops *on, optimizer_piece *x, stream *s) {
    TRY(on->average(
        &(average_args){
            .x = &x->master, .sum = &x->grad, .count = spans(r), .momentum = row->momentum, .state = x->state},
        s));
    return x->w.data ? on->cast(&(cast_args){.y = &x->w, .x = &x->master}, s) : ERR_OK;
}

// After the piece's masters were changed: their mean, the last of the arrays.
static err_t follow(const step_runner *r, const ops *on, const optimizer_piece *x, stream *s) {
    double ema = r->cfg->optimizer.ema;
    if (ema == 0) return ERR_OK;
    return on->average(&(average_args){.x = &x->array[state_moments(r->state) - 1],
                                       .sum = &x->master,
                                       .count = 1,
                                       .momentum = mean_share(ema),
                                       .state = x->state},
                       s);
}

// By the rule of the row.
static err_t update(const step_runner *r, const zero_piece *p, device *on, optimizer_piece *x, stream *s) {
    const param *row = &r->net->param[p->row];
    if (row->rule == PARAM_AVERAGE) TRY(average(r, row, device_ops(on), x, s));
    else TRY(r->state->o.optimizer->update(device_ops(on), &r->cfg->optimizer, x, s));
    return follow(r, device_ops(on), x, s);
}

// On the device.
static optimizer_piece piece_here(step_runner *r, const zero_piece *p, rounding_key *key) {
    train_state *t = r->state;
    optimizer_piece x = piece_of(r, p, NULL, key);
    tensor w = store_view(&t->weights, p);
    if (w.data != x.master.data) x.w = w;
    x.grad = state_gradient(t, p);
    x.state = state_step(t);
    x.scalar = state_scalars(x.state);
    return x;
}

static err_t update_piece(step_runner *r, const zero_piece *p) {
    rounding_key key;
    optimizer_piece x = piece_here(r, p, &key);
    TRY(update(r, p, r->dev, &x, r->s));
    return state_copy_exact(r->state, p, &x.master, r->s);
}

// Offload: the gradient comes to the host, the CPU updates there, the new weights go back.
static optimizer_piece piece_on_host(step_runner *r, const zero_piece *p, const tensor *value,
                                     const step_state *decided, rounding_key *key) {
    train_state *t = r->state;
    optimizer_piece x = piece_of(r, p, value, key);
    tensor host_w = view1(&t->stage_w, p->count);
    if (host_w.type != FP32) x.w = host_w;
    x.grad = view1(&t->stage_g, p->count);
    x.state = decided;
    x.scalar = state_scalars(decided);
    return x;
}

static err_t gradient_to_host(step_runner *r, const zero_piece *p, const tensor *to) {
    tensor grad = state_gradient(r->state, p);
    TRY(stream_copy(r->s, to->data, grad.data, tensor_bytes(&grad)));
    return stream_wait(r->s);
}

static err_t weights_to_device(step_runner *r, const zero_piece *p, const optimizer_piece *x) {
    train_state *t = r->state;
    tensor w = store_view(&t->weights, p);
    TRY(stream_wait(t->host_s));
    TRY(stream_copy(r->s, w.data, x->w.data ? x->w.data : x->master.data, tensor_bytes(&w)));
    TRY(state_copy_exact(t, p, &x->master, r->s));
    return stream_wait(r->s);
}

static err_t update_on_host(step_runner *r, const zero_piece *p, const tensor *value, const step_state *decided) {
    train_state *t = r->state;
    rounding_key key;
    optimizer_piece x = piece_on_host(r, p, value, decided, &key);
    if (!decided->apply) return ERR_OK;
    TRY(gradient_to_host(r, p, &x.grad));
    TRY(update(r, p, t->host_dev, &x, t->host_s));
    return weights_to_device(r, p, &x);
}

// --- update of whole matrices ----------------------------------------------------------------------------------------

// All slices of a row that are here, n pieces. Ranks that share the layer own the same rows and meet here.
static err_t turn_matrix(step_runner *r, const zero_piece *p, int n) {
    train_state *t = r->state;
    const param *row = &r->net->param[p->row];
    const optimizer *by = t->o.optimizer;
    const ops *on = device_ops(r->dev);
    rounding_key key;
    for (int i = 0; i < n; i++) {
        optimizer_piece x = piece_here(r, &p[i], &key);
        tensor d = muon_slice(&t->muon, row, p[i].slice, p[i].count);
        TRY(by->direct(on, &r->cfg->optimizer, &x, &d, r->s));
    }
    TRY(muon_gather(&t->muon, row, t->o.tensor, r->s));
    TRY(muon_orthogonalize(&t->muon, row, p->slice, n, on, r->s));
    for (int i = 0; i < n; i++) {
        optimizer_piece x = piece_here(r, &p[i], &key);
        tensor d = muon_slice(&t->muon, row, p[i].slice, p[i].count);
        TRY(by->turn(on, &r->cfg->optimizer, &x, &d, r->s));
        TRY(follow(r, on, &x, r->s));
        TRY(state_copy_exact(t, &p[i], &x.master, r->s));
    }
    return ERR_OK;
}

// What is turned on the device is directed, and used, on the host: `staged` is the piece's place in both.
static err_t direct_on_host(step_runner *r, const zero_piece *p, const step_state *decided) {
    train_state *t = r->state;
    const param *row = &r->net->param[p->row];
    rounding_key key;
    optimizer_piece x = piece_on_host(r, p, NULL, decided, &key);
    tensor staged = x.grad, d = muon_slice(&t->muon, row, p->slice, p->count);
    TRY(gradient_to_host(r, p, &x.grad));
    TRY(t->o.optimizer->direct(device_ops(t->host_dev), &r->cfg->optimizer, &x, &staged, t->host_s));
    TRY(stream_wait(t->host_s));
    TRY(stream_copy(r->s, d.data, staged.data, tensor_bytes(&d)));
    return stream_wait(r->s);
}

static err_t turn_on_host(step_runner *r, const zero_piece *p, const step_state *decided) {
    train_state *t = r->state;
    const param *row = &r->net->param[p->row];
    rounding_key key;
    optimizer_piece x = piece_on_host(r, p, NULL, decided, &key);
    tensor staged = x.grad, d = muon_slice(&t->muon, row, p->slice, p->count);
    TRY(stream_copy(r->s, staged.data, d.data, tensor_bytes(&d)));
    TRY(stream_wait(r->s));
    TRY(t->o.optimizer->turn(device_ops(t->host_dev), &r->cfg->optimizer, &x, &staged, t->host_s));
    TRY(follow(r, device_ops(t->host_dev), &x, t->host_s));
    return weights_to_device(r, p, &x);
}

// Products on the host would have other bits than a GPU's.
static err_t turn_matrix_on_host(step_runner *r, const zero_piece *p, int n, const step_state *decided) {
    train_state *t = r->state;
    const param *row = &r->net->param[p->row];
    if (!decided->apply) return ERR_OK;
    for (int i = 0; i < n; i++) TRY(direct_on_host(r, &p[i], decided));
    TRY(muon_gather(&t->muon, row, t->o.tensor, r->s));
    TRY(muon_orthogonalize(&t->muon, row, p->slice, n, device_ops(r->dev), r->s));
    for (int i = 0; i < n; i++) TRY(turn_on_host(r, &p[i], decided));
    return ERR_OK;
}

// Queues the decision, and the copies of its results to the host.
static err_t decide(step_runner *r, const result_slot *to) {
    train_state *t = r->state;
    TRY(stream_copy(r->s, (char *)t->step.data + offsetof(step_state, lr), to->lr.data, sizeof(float)));
    TRY(stream_copy(r->s, to->state[0].data, t->step.data, tensor_bytes(&t->step)));
    if (r->results.seen.data) TRY(stream_copy(r->s, r->results.seen.data, r->results.revoked.data, sizeof(int32_t)));
    step_decide_args args = {.state = state_step(t),
                             .sums = &r->results.sums,
                             .rules = &r->end.rules,
                             .scalars = state_scalars(state_step(t)),
                             .scalar_count = t->scalars};
    if (r->ranks->world > 1)
        args.ranks = r->ranks->world, args.apart = REPORT_ITEMS,
        args.ended = (double *)r->results.reports.data + REPORT_WISH;
    if (r->results.seen.data) args.revoked = r->results.seen.data;
    if (step_weighs(r)) args.counts = &r->results.sample_counts, args.losses = r->cfg->batch.global * r->net->losses;
    TRY(device_ops(r->dev)->step_decide(&args, r->s));
    TRY(stream_copy(r->s, to->state[1].data, t->step.data, tensor_bytes(&t->step)));
    return stream_copy(r->s, to->loss.data, r->results.sample_loss.data, tensor_bytes(&to->loss));
}

// What the optimizer makes of whole rows, which needs the decision.
static err_t look_at_rows(step_runner *r) {
    const results *x = &r->results;
    const optimizer *of = r->state->o.optimizer;
    if (!state_has_rows(r->state)) return ERR_OK;
    optimizer_rows rows = {
        .of_row = x->of_row, .at = x->rows_at, .grads = x->sums, .masters = x->masters, .state = state_step(r->state)};
    TRY(of->rows(device_ops(r->dev), &r->cfg->optimizer, &rows, r->s));
    if (!x->host_of_row.data) return ERR_OK;
    return stream_copy(r->s, x->host_of_row.data, x->of_row.data, tensor_bytes(&x->of_row));
}

// decided: NULL: on the device; else on the host (offload), as decided, with its scalars.
static err_t update_pieces(step_runner *r, const step_state *decided) {
    int count;
    const zero_piece *p = state_pieces(r->state, &count);
    for (int i = 0, n = 1; i < count; i += n, n = 1) {
        fault_kill(r->faults, FAULT_UPDATE);
        if (r->net->param[p[i].row].tied >= 0) continue;
        if (!r->state->rule[p[i].row].muon) {
            TRY(decided ? update_on_host(r, &p[i], NULL, decided) : update_piece(r, &p[i]));
            continue;
        }
        while (i + n < count && p[i + n].row == p[i].row) n++;
        TRY(decided ? turn_matrix_on_host(r, &p[i], n, decided) : turn_matrix(r, &p[i], n));
    }
    return ERR_OK;
}

// offload = nvme: chunk by chunk, as they come from the file. A step that is skipped reads nothing.
typedef struct chunk_update {
    step_runner *r;
    const step_state *decided;
} chunk_update;

static err_t update_chunk(void *ctx, const zero_piece *p, tensor *value) {
    const chunk_update *c = ctx;
    fault_kill(c->r->faults, FAULT_UPDATE);
    return update_on_host(c->r, p, value, c->decided);
}

static err_t update_spilled(step_runner *r, const step_state *decided) {
    chunk_update c = {r, decided};
    return decided->apply ? spilled_walk(&r->state->spilled, SPILL_UPDATE, update_chunk, &c) : ERR_OK;
}

typedef struct update_call {
    step_runner *r;
    const result_slot *to;
} update_call;

static err_t queue_update(void *ctx) {
    const update_call *c = ctx;
    TRY(decide(c->r, c->to));
    TRY(look_at_rows(c->r));
    return update_pieces(c->r, NULL);
}

err_t finish_pushed_squares(step_runner *r, double *out) {
    const tensor *sums = &r->results.sums;
    if (fault_hit(r->faults, FAULT_NAN)) TRY(poison(r));
    TRY(stream_zero(r->s, sums->data, tensor_bytes(sums)));
    TRY(queue_squares(r));
    TRY(stream_wait(r->s));
    *out = 0;
    for (int64_t i = 0; i < tensor_count(sums); i++) *out += ((const double *)sums->data)[i];
    return ERR_OK;
}

err_t finish_pushed(step_runner *r, double squares, double lr) {
    step_state *at = state_step(r->state);
    tensor sums = {&squares, FP64, 1, {1, 1, 1, 1}};
    at->lr = (float)lr;
    TRY(device_ops(r->dev)->step_decide(&(step_decide_args){.state = at,
                                                            .sums = &sums,
                                                            .rules = &r->end.rules,
                                                            .scalars = state_scalars(at),
                                                            .scalar_count = r->state->scalars},
                                        r->s));
    TRY(update_pieces(r, NULL));
    return stream_wait(r->s);
}

err_t finish_update(step_runner *r, const result_slot *to) {
    board_doing(r->board, "update", -1, to->step);
    *(float *)to->lr.data = (float)schedule_lr(r->cfg, to->step);
    if (!r->state->o.offload) {
        TRY(queue_or_replay(r, &r->end.update[to - r->results.slot], queue_update, &(update_call){r, to}));
        TRY(step_rows_update(&r->rows, state_step(r->state)));
        return event_record(to->done, r->s);
    }
    TRY(decide(r, to));
    TRY(look_at_rows(r));
    TRY(event_record(to->done, r->s));
    TRY(stream_wait(r->s));
    return state_spills(r->state) ? update_spilled(r, to->state[1].data) : update_pieces(r, to->state[1].data);
}
