// trainer/step.c: see trainer/step.h. Everything between loader_next and the last line of step_run is queued on one stream; the
// host decides nothing in between: overflow, clipping and the loss scale are decided on the device (ops.h: step_decide).
#include "trainer/step.h"

#include "trainer/schedule.h"

#include <stddef.h>

err_t step_open(step_runner *r, const config *cfg, device *dev, stream *s, comm *ranks, model *net, train_state *state) {
    *r = (step_runner){.cfg = cfg, .dev = dev, .s = s, .ranks = ranks, .net = net, .state = state};
    int64_t B = cfg->batch.micro, T = cfg->model.context, G = cfg->batch.global;
    bool dynamic = cfg->precision.compute == COMPUTE_FP16 && cfg->precision.loss_scale == 0;
    r->rules = (step_rules){.grad_clip = cfg->optimizer.grad_clip, .beta1 = cfg->optimizer.beta1, .beta2 = cfg->optimizer.beta2,
                            .dynamic_scale = dynamic, .scale_window = cfg->precision.scale_window};
    arena_open(&r->memory, dev, MEMORY_DEVICE);
    TRY(arena_2d(&r->memory, &r->tokens, INT32, B, T));
    TRY(arena_2d(&r->memory, &r->targets, INT32, B, T));
    TRY(arena_1d(&r->memory, &r->sample_loss, FP64, G));
    TRY(arena_1d(&r->memory, &r->logits, FP32, cfg->model.vocab));
    TRY(net->type->plan(net, &r->memory, state->compute, B, T, state->buffers == 0));
    TRY(arena_commit(&r->memory));
    arena_open(&r->staging, dev, MEMORY_PINNED);
    TRY(arena_1d(&r->staging, &r->host_loss, FP64, G));
    TRY(arena_2d(&r->staging, &r->windows, INT32, 2 * B + 1, T + 1));
    TRY(arena_2d(&r->staging, &r->host_logits, FP32, 2, cfg->model.vocab));
    TRY(arena_1d(&r->staging, &r->context, INT32, T));
    TRY(arena_commit(&r->staging));
    return event_open(dev, &r->copied);
}

void step_close(step_runner *r) {
    arena_close(&r->memory);
    arena_close(&r->staging);
    event_close(r->copied);
    *r = (step_runner){0};
}

// Gradients of one micro-batch, added to buffer's rows.
static err_t micro_batch(step_runner *r, const batch *b, int buffer) {
    int64_t B = r->cfg->batch.micro, T = r->cfg->model.context, G = r->cfg->batch.global;
    const ops *o = device_ops(r->dev);
    TRY(stream_copy(r->s, r->tokens.data, b->tokens, tensor_bytes(&r->tokens)));
    TRY(stream_copy(r->s, r->targets.data, b->targets, tensor_bytes(&r->targets)));
    TRY(event_record(r->copied, r->s));
    pass p = {
        .ops = o, .s = r->s, .B = B, .T = T, .tokens = r->tokens, .targets = r->targets,
        .w = r->state->w, .dw = &r->state->grad[buffer * r->net->params], .state = state_step(r->state),
        .loss_factor = (float)(1.0 / ((double)G * (double)T)),
        .drop = {.seed = (uint64_t)r->cfg->run.seed, .step = (uint32_t)b->step, .first_sample = (uint32_t)b->first,
                 .p = (float)r->cfg->model.dropout},
    };
    TRY(model_forward(r->net, &p));
    tensor means = view1(&r->sample_loss, B);
    means.data = (double *)r->sample_loss.data + b->first;
    TRY(o->loss_means(&means, &p.losses, r->s));
    return model_backward(r->net, &p);
}

err_t step_lanes(step_runner *r, loader *data, int64_t step, int64_t first, int64_t count, lane_counter *c) {
    int64_t per_lane = r->cfg->batch.global / r->cfg->batch.lanes / r->cfg->batch.micro;
    tensor *slab = r->state->slab;
    for (int64_t lane = first; lane < first + count; lane++) {
        int buffer = lane_counter_free(c);
        TRY(stream_zero(r->s, slab[buffer].data, tensor_bytes(&slab[buffer])));
        for (int64_t k = 0; k < per_lane; k++) {
            batch b;
            TRY(loader_next(data, &b));
            if (b.step != step || b.lane != lane || b.micro != k)
                return err_set(ERR_INTERNAL, "loader gave step %lld lane %lld micro-batch %lld, expected %lld, %lld, %lld", (long long)b.step,
                               (long long)b.lane, (long long)b.micro, (long long)step, (long long)lane, (long long)k);
            TRY(micro_batch(r, &b, buffer));
            TRY(event_wait(r->copied));  // the loader may fill b's buffer again
        }
        lane_counter_push(c, (lane_span){lane, 1, buffer});
        for (int into, from; lane_counter_merge(c, &into, &from);)
            TRY(device_ops(r->dev)->add(&slab[into], &slab[into], &slab[from], r->s));
    }
    return ERR_OK;
}

// A shared row's values take the gradients of all their uses.
static err_t add_tied(step_runner *r, tensor *grad) {
    for (int i = 0; i < r->net->params; i++) {
        int of = r->net->param[i].tied;
        if (of >= 0) TRY(device_ops(r->dev)->add(&grad[of], &grad[of], &grad[i], r->s));
    }
    return ERR_OK;
}

static err_t square_sums(step_runner *r, const tensor *grad) {
    train_state *t = r->state;
    for (int i = 0; i < r->net->params; i++) {
        if (r->net->param[i].tied >= 0) continue;
        tensor sums = view1(&t->sums, (tensor_count(&grad[i]) + CHUNK - 1) / CHUNK);
        sums.data = (double *)t->sums.data + t->sums_at[i];
        TRY(device_ops(r->dev)->sum_squares(&sums, &grad[i], r->s));
    }
    return ERR_OK;
}

err_t step_update(step_runner *r, int64_t step, int sum) {
    train_state *t = r->state;
    const ops *o = device_ops(r->dev);
    tensor *grad = &t->grad[sum * r->net->params];
    float lr = (float)schedule_lr(r->cfg, step);
    TRY(add_tied(r, grad));
    TRY(square_sums(r, grad));
    TRY(stream_copy(r->s, (char *)t->step.data + offsetof(step_state, lr), &lr, sizeof lr));
    TRY(o->step_decide(state_step(t), &t->sums, &r->rules, r->s));
    for (int i = 0; i < r->net->params; i++) {
        const param *p = &r->net->param[i];
        if (p->tied >= 0) continue;
        adamw_rules rules = {r->cfg->optimizer.beta1, r->cfg->optimizer.beta2, r->cfg->optimizer.eps,
                             p->decay ? r->cfg->optimizer.weight_decay : 0};
        TRY(o->adamw(t->compute == FP32 ? NULL : &t->w[i], &t->master[i], &t->m[i], &t->v[i], &grad[i], state_step(t), &rules, r->s));
    }
    return ERR_OK;
}

static err_t collect(step_runner *r, int64_t step, step_result *out) {
    int64_t G = r->cfg->batch.global;
    step_state s;
    const double *each = r->host_loss.data;
    TRY(stream_copy(r->s, r->host_loss.data, r->sample_loss.data, (size_t)G * sizeof *each));
    TRY(state_get_step(r->state, &s));
    double loss = 0;
    for (int64_t i = 0; i < G; i++) loss += each[i];
    *out = (step_result){.loss = loss / (double)G, .grad_norm = s.grad_norm, .lr = schedule_lr(r->cfg, step), .loss_scale = s.loss_scale, .applied = s.apply,
                         .adam_t = s.adam_t, .good_steps = s.good_steps, .skipped = s.skipped};
    return ERR_OK;
}

err_t step_run(step_runner *r, loader *data, int64_t step, step_result *out) {
    lane_counter c = {0};
    int sum;
    TRY(step_lanes(r, data, step, 0, r->cfg->batch.lanes, &c));
    TRY(r->ranks->table->sum_lanes(r->ranks, &c, r->state->slab, r->cfg->batch.lanes, &sum, r->s));
    TRY(step_update(r, step, sum));
    return collect(r, step, out);
}
