// trainer/state.c: see trainer/state.h. Masters, moments and gradients are FP32 whatever the compute type.
#include "trainer/state.h"

#include "model/safetensors.h"

#include <stdlib.h>
#include <string.h>

static int64_t param_count(const param *p) {
    int64_t n = 1;
    for (int d = 0; d < p->dims; d++) n *= p->size[d];
    return n;
}

static err_t declare_like(arena *a, tensor *t, dtype type, const param *p) {
    return arena_tensor(a, t, type, p->dims, p->size[0], p->size[1], p->size[2], p->size[3]);
}

static err_t allocate_tables(train_state *t, int buffers) {
    size_t n = (size_t)t->net->params;
    t->master = calloc(n, sizeof(tensor));
    t->m = calloc(n, sizeof(tensor));
    t->v = calloc(n, sizeof(tensor));
    t->w = calloc(n, sizeof(tensor));
    t->sums_at = calloc(n + 1, sizeof(int64_t));
    t->slab = calloc((size_t)buffers + 1, sizeof(tensor));
    t->grad = calloc(((size_t)buffers + 1) * n, sizeof(tensor));
    t->ckpt.master = calloc(3 * n, sizeof(ckpt_tensor));
    if (!t->master || !t->m || !t->v || !t->w || !t->sums_at || !t->slab || !t->grad || !t->ckpt.master)
        return err_set(ERR_INTERNAL, "no memory for the tables of %zu parameters", n);
    return ERR_OK;
}

static err_t declare_params(train_state *t, bool training) {
    for (int i = 0; i < t->net->params; i++) {
        const param *p = &t->net->param[i];
        if (p->tied >= 0) continue;
        TRY(declare_like(&t->memory, &t->master[i], FP32, p));
        if (t->compute != FP32) TRY(declare_like(&t->memory, &t->w[i], t->compute, p));
        if (!training) continue;
        TRY(declare_like(&t->memory, &t->m[i], FP32, p));
        TRY(declare_like(&t->memory, &t->v[i], FP32, p));
    }
    return ERR_OK;
}

enum { ROW_ALIGN = 64 };  // floats: rows of a slab start on 256 bytes; the padding stays zero

static int64_t slab_elements(const model *net) {
    int64_t n = 0;
    for (int i = 0; i < net->params; i++) n += (param_count(&net->param[i]) + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
    return n;
}

static err_t declare_gradients(train_state *t) {
    int64_t chunks = 0;
    for (int i = 0; i < t->net->params; i++) {
        t->sums_at[i] = chunks;
        if (t->net->param[i].tied < 0) chunks += (param_count(&t->net->param[i]) + CHUNK - 1) / CHUNK;
    }
    for (int b = 0; b < t->buffers; b++) TRY(arena_1d(&t->memory, &t->slab[b], FP32, slab_elements(t->net)));
    return arena_1d(&t->memory, &t->sums, FP64, chunks);
}

// What could not be pointed at before the memory was there: views of gradients, and shared rows.
static void link_views(train_state *t) {
    for (int b = 0; b < t->buffers; b++) {
        float *at = t->slab[b].data;
        for (int i = 0; i < t->net->params; i++) {
            const param *p = &t->net->param[i];
            t->grad[b * t->net->params + i] = (tensor){at, FP32, p->dims, {p->size[0], p->size[1], p->size[2], p->size[3]}};
            at += (param_count(p) + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
        }
    }
    for (int i = 0; i < t->net->params; i++) {
        int of = t->net->param[i].tied;
        if (of >= 0) t->master[i] = t->master[of], t->m[i] = t->m[of], t->v[i] = t->v[of], t->w[i] = t->w[of];
        if (t->compute == FP32) t->w[i] = t->master[i];
    }
}

static void fill_ckpt_tensor(ckpt_tensor *c, const char *name, const tensor *t) {
    *c = (ckpt_tensor){.dims = t->dims, .size = {t->size[0], t->size[1], t->size[2], t->size[3]}, .data = t->data};
    memcpy(c->name, name, strnlen(name, CKPT_NAME - 1));
}

// The device's memory is the host's on a CPU. (A device with memory of its own puts pinned mirrors here.)
static void link_checkpoint(train_state *t, bool training) {
    ckpt_state *c = &t->ckpt;
    c->m = training ? c->master + t->net->params : NULL;
    c->v = training ? c->master + 2 * t->net->params : NULL;
    for (int i = 0; i < t->net->params; i++) {
        const param *p = &t->net->param[i];
        if (p->tied >= 0) continue;
        fill_ckpt_tensor(&c->master[c->params], p->name, &t->master[i]);
        if (training) fill_ckpt_tensor(&c->m[c->params], p->name, &t->m[i]);
        if (training) fill_ckpt_tensor(&c->v[c->params], p->name, &t->v[i]);
        c->params++;
    }
}

err_t state_open(train_state *t, model *net, device *dev, stream *s, dtype compute, int buffers) {
    *t = (train_state){.net = net, .dev = dev, .s = s, .compute = compute, .buffers = buffers};
    bool training = buffers > 0;
    arena_open(&t->memory, dev, MEMORY_DEVICE);
    TRY(allocate_tables(t, buffers));
    TRY(declare_params(t, training));
    if (training) TRY(declare_gradients(t));
    TRY(arena_1d(&t->memory, &t->step, INT32, (int64_t)(sizeof(step_state) + 3) / 4));
    TRY(arena_commit(&t->memory));
    link_views(t);
    link_checkpoint(t, training);
    return ERR_OK;
}

void state_close(train_state *t) {
    arena_close(&t->memory);
    free(t->master), free(t->m), free(t->v), free(t->w);
    free(t->sums_at), free(t->slab), free(t->grad), free(t->ckpt.master);
    *t = (train_state){0};
}

err_t state_publish(train_state *t) {
    if (t->compute == FP32) return ERR_OK;
    for (int i = 0; i < t->net->params; i++)
        if (t->net->param[i].tied < 0) TRY(device_ops(t->dev)->cast(&t->w[i], &t->master[i], t->s));
    return ERR_OK;
}

err_t state_init(train_state *t, uint64_t seed) {
    for (int i = 0, c = 0; i < t->net->params; i++)
        if (t->net->param[i].tied < 0) model_init(t->net, i, seed, t->ckpt.master[c++].data);
    return state_publish(t);
}

static err_t read_one(const st_file *f, const ckpt_tensor *to) {
    const st_tensor *from = st_find(f, to->name);
    if (!from) return err_set(ERR_DATA, "%s: no tensor %s, which the model needs", f->path, to->name);
    bool same = from->dims == to->dims;
    for (int d = 0; same && d < to->dims; d++) same = from->size[d] == to->size[d];
    if (!same)
        return err_set(ERR_DATA, "%s: tensor %s is (%lld,%lld), expected (%lld,%lld): the [model] section describes another model",
                       f->path, to->name, (long long)from->size[0], (long long)(from->dims > 1 ? from->size[1] : 1),
                       (long long)to->size[0], (long long)(to->dims > 1 ? to->size[1] : 1));
    return st_read_f32(f, from, to->data);
}

err_t state_init_from(train_state *t, const char *path) {
    st_file f;
    TRY(st_open(&f, path));
    err_t rc = ERR_OK;
    for (int c = 0; c < t->ckpt.params && rc == ERR_OK; c++) rc = read_one(&f, &t->ckpt.master[c]);
    st_close(&f);
    TRY(rc);
    return state_publish(t);
}

err_t state_set_step(train_state *t, const step_state *from) {
    TRY(stream_copy(t->s, t->step.data, from, sizeof *from));
    return stream_wait(t->s);
}

err_t state_get_step(train_state *t, step_state *to) {
    TRY(stream_copy(t->s, to, t->step.data, sizeof *to));
    return stream_wait(t->s);
}

static const double FP16_FIRST_SCALE = 32768;

void state_from_counters(step_state *to, const ckpt_counters *at, const config *c) {
    bool scaled = c->precision.compute == COMPUTE_FP16 || c->precision.loss_scale > 0;
    double first = c->precision.loss_scale > 0 ? c->precision.loss_scale : FP16_FIRST_SCALE;
    *to = (step_state){.adam_t = at->adam_t, .good_steps = at->good_steps, .skipped = at->skipped, .beta1_power = 1, .beta2_power = 1};
    to->loss_scale = at->step > 0 ? (float)at->loss_scale : scaled ? (float)first : 1.0f;
    for (int64_t t = 0; t < at->adam_t; t++) {
        double one = to->beta1_power * c->optimizer.beta1, two = to->beta2_power * c->optimizer.beta2;
        if (one == to->beta1_power && two == to->beta2_power) break;  // both have come to rest: no later t changes them
        to->beta1_power = one, to->beta2_power = two;
    }
}
