// trainer/step/inputs.c: see trainer/step/inputs.h.
#include "trainer/step/inputs.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdlib.h>

err_t inputs_open(inputs *x, const model *net, const input_options *o) {
    *x = (inputs){.net = net,
                  .first = o->first,
                  .count = o->count ? o->count : o->B,
                  .slots = o->slots + o->spare,
                  .spare = o->spare ? o->slots : -1};
    x->slot = calloc((size_t)x->slots, sizeof *x->slot);
    x->at = calloc((size_t)x->slots, sizeof *x->at);
    if (!x->slot || !x->at) return err_set(ERR_INTERNAL, "no memory for the inputs of %d micro-batches", x->slots);
    for (int k = 0; k < x->slots; k++) {
        input_slot *p = &x->slot[k];
        x->at[k] = k;
        for (int i = 0; i < net->inputs; i++) {
            const tensor_spec *t = &net->input[i];
            TRY(arena_tensor(o->memory, &p->in[i], t->type, 1 + t->dims, o->B, t->size[0], t->dims > 1 ? t->size[1] : 1,
                             t->dims > 2 ? t->size[2] : 1));
        }
        TRY(arena_1d(o->memory, &p->draw, INT32, 2));
        TRY(arena_1d(o->staging, &p->host_draw, INT32, 2));
    }
    return ERR_OK;
}

err_t inputs_commit(inputs *x, device *dev, stream *s) {
    x->s = s;
    for (int k = 0; k < x->slots; k++) {
        TRY(event_open(dev, &x->slot[k].copied));
        TRY(event_open(dev, &x->slot[k].used));
    }
    return device_about(dev)->kind == DEVICE_CPU ? ERR_OK : stream_open_queue(dev, &x->own);
}

void inputs_close(inputs *x) {
    if (x->own) stream_close(x->own);
    for (int k = 0; x->slot && k < x->slots; k++) {
        if (x->slot[k].copied) event_close(x->slot[k].copied);
        if (x->slot[k].used) event_close(x->slot[k].used);
    }
    free(x->slot), free(x->at);
    *x = (inputs){0};
}

input_slot *inputs_turn(inputs *x, int slot) {
    int before = x->at[slot];
    if (x->spare >= 0) x->at[slot] = x->spare, x->spare = before;
    x->now = x->at[slot];
    return &x->slot[x->now];
}

err_t inputs_next(inputs *x, loader *data, batch *b, int64_t step, int64_t lane, int64_t micro) {
    TRY(event_wait(x->slot[x->filled].copied));  // the loader may fill the last batch's buffer again
    double since = clock_now();
    err_t rc = loader_next(data, b);
    x->waited_s += clock_now() - since;
    if (rc == ERR_DATA || rc == ERR_IO) return x->failed = *err_last(), ERR_OK;
    TRY(rc);
    if (b->step == step && b->lane == lane && b->micro == micro) return ERR_OK;
    return err_set(ERR_INTERNAL,
                   "loader gave step %" PRId64 " lane %" PRId64 " micro-batch %" PRId64 ", expected %" PRId64
                   ", %" PRId64 ", %" PRId64,
                   b->step, b->lane, b->micro, step, lane, micro);
}

static err_t bring(const inputs *x, const tensor *in, const void *from, stream *copies) {
    tensor own = tensor_rows(in, x->first, x->count);
    size_t before = (size_t)((char *)own.data - (char *)in->data);
    return from ? stream_copy(copies, own.data, (const char *)from + before, tensor_bytes(&own))
                : stream_zero(copies, own.data, tensor_bytes(&own));
}

err_t inputs_bring(inputs *x, const batch *b) {
    input_slot *p = &x->slot[x->now];
    stream *copies = x->own ? x->own : x->s;
    x->filled = x->now;
    TRY(stream_wait_event(copies, p->used));
    for (int i = 0; i < x->net->inputs; i++) TRY(bring(x, &p->in[i], b->in[i], copies));
    uint32_t *draw = p->host_draw.data;
    draw[0] = (uint32_t)b->step, draw[1] = (uint32_t)b->first;
    TRY(stream_copy(copies, p->draw.data, draw, 2 * sizeof *draw));
    TRY(event_record(p->copied, copies));
    return stream_wait_event(x->s, p->copied);
}
