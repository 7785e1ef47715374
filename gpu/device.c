// gpu/device.c: chooses a device and passes each call on to the backend that made it.
#include "gpu/backend.h"

#include <stdio.h>
#include <string.h>

static err_t open_any(device **out, const device_options *o) {
    char why[sizeof(*out)->info.choice];
    snprintf(why, sizeof why, "%s", o->why ? o->why : "chosen by [device] backend");
    if (o->kind == DEVICE_CUDA) {
        TRY(cuda_device_open(out, o));
        if (o->why) memcpy((*out)->info.choice, why, sizeof why);
        return ERR_OK;
    }
    if (o->kind == DEVICE_AUTO) {
        if (cuda_device_open(out, o) == ERR_OK) {
            memcpy(why, (*out)->info.choice, sizeof why);
            snprintf((*out)->info.choice, sizeof why, "auto chose the GPU: %.*s", (int)sizeof why - 24, why);
            return ERR_OK;
        }
        const char *text = err_last()->text;  // without its hint: CUDA was not asked for
        snprintf(why, sizeof why, "auto chose the CPU (%.*s)", (int)strcspn(text, ";"), text);
    }
    TRY(cpu_device_open(out, o));
    memcpy((*out)->info.choice, why, sizeof why);
    return ERR_OK;
}

// What a GPU multiplies is never passed over in silence: its bits would be others.
static err_t check_products(const device *d, products p) {
    if (p == PRODUCTS_FP32 || d->backend->set_products) return ERR_OK;
    return err_set(
        ERR_UNAVAILABLE,
        "%s (%s): [precision] products = bf16-pairs is an arithmetic of CPUs, and this is a GPU: set [device] backend = cpu, or products = "
        "fp32 in a run of its own",
        d->info.name, d->info.choice);
}

err_t device_open(device **out, const device_options *o) {
    TRY(open_any(out, o));
    err_t rc = check_products(*out, o->products);
    if (rc == ERR_OK && o->profile) rc = profile_open(*out);
    if (rc == ERR_OK) return ERR_OK;
    device_close(*out);
    *out = NULL;
    return err_last()->code;
}

err_t device_set_products(device *d, products p) {
    TRY(check_products(d, p));
    return d->backend->set_products ? d->backend->set_products(d, p) : ERR_OK;
}

int device_count(device_kind kind) { return kind == DEVICE_CPU ? 1 : cuda_device_count(); }

bool device_bus(device_kind kind, int index, char dst[DEVICE_BUS]) {
    return kind != DEVICE_CPU && cuda_device_bus(index, dst);
}

#define STREAM_DEVICE(s) (((struct stream_head *)(s))->dev)
#define EVENT_DEVICE(e) (((struct event_head *)(e))->dev)

void device_close(device *d) {
    if (!d) return;
    profile_close(d);
    d->backend->close(d);
}
const device_info *device_about(const device *d) { return &d->info; }
const ops *device_ops(const device *d) { return d->profile ? &profile_ops : d->ops; }
err_t device_sense(device *d, device_sensors *out) { return d->backend->sense(d, out); }
err_t device_memory(device *d, int64_t *used, int64_t *total) {
    if (!d->backend->memory) return err_set(ERR_UNAVAILABLE, "%s has no memory of its own", d->info.name);
    return d->backend->memory(d, used, total);
}
err_t device_alloc(device *d, memory_kind kind, size_t bytes, void **out) {
    return d->backend->alloc(d, kind, bytes, out);
}
void device_free(device *d, memory_kind kind, void *p, size_t bytes) {
    if (p) d->backend->free(d, kind, p, bytes);
}
err_t stream_open(device *d, stream **out) { return d->backend->stream_open(d, out); }
err_t stream_open_queue(device *d, stream **out) { return d->backend->stream_open_queue(d, out); }
err_t stream_call(stream *s, stream_function fn, const void *ctx, size_t n) {
    return STREAM_DEVICE(s)->backend->stream_call(s, fn, ctx, n);
}
void *stream_native(stream *s) { return STREAM_DEVICE(s)->backend->stream_native(s); }
void stream_close(stream *s) {
    if (s) STREAM_DEVICE(s)->backend->stream_close(s);
}
err_t stream_wait(stream *s) { return STREAM_DEVICE(s)->backend->stream_wait(s); }
err_t event_open(device *d, event **out) { return d->backend->event_open(d, out); }
err_t event_open_timed(device *d, event **out) { return d->backend->event_open_timed(d, out); }
void event_close(event *e) {
    if (e) EVENT_DEVICE(e)->backend->event_close(e);
}
err_t event_record(event *e, stream *s) { return EVENT_DEVICE(e)->backend->event_record(e, s); }
err_t event_wait(event *e) { return EVENT_DEVICE(e)->backend->event_wait(e); }
err_t stream_wait_event(stream *s, event *e) { return STREAM_DEVICE(s)->backend->stream_wait_event(s, e); }
err_t event_elapsed(event *from, event *to, double *ms) {
    return EVENT_DEVICE(to)->backend->event_elapsed(from, to, ms);
}

err_t stream_copy(stream *s, void *dst, const void *src, size_t n) {
    return STREAM_DEVICE(s)->profile ? profile_copy(s, dst, src, n) : STREAM_DEVICE(s)->backend->copy(s, dst, src, n);
}

err_t stream_zero(stream *s, void *dst, size_t n) {
    return STREAM_DEVICE(s)->profile ? profile_zero(s, dst, n) : STREAM_DEVICE(s)->backend->zero(s, dst, n);
}

void device_arithmetic(const device *d, char *dst, size_t room) {
    if (d->backend->arithmetic) d->backend->arithmetic(d, dst, room);
    else snprintf(dst, room, "cpu");
}

bool device_plans_get(const device *d, int index, char text[DEVICE_PLAN]) {
    return d->backend->plans_get && d->backend->plans_get(d, index, text);
}

static err_t no_plans(const device *d, const char *text) {
    return err_set(ERR_UNAVAILABLE, "%s multiplies without plans, and is given one: \"%.80s...\"", d->info.name, text);
}

err_t device_plans_set(device *d, const char *text) {
    return d->backend->plans_set ? d->backend->plans_set(d, text) : no_plans(d, text);
}

err_t device_plans_tune(device *d, stream *s, const char *text, plan_tuning *out) {
    return d->backend->plans_tune ? d->backend->plans_tune(d, s, text, out) : no_plans(d, text);
}

bool device_records(const device *d) { return d->backend->record_begin != NULL && !d->profile; }
err_t stream_record_begin(stream *s) { return STREAM_DEVICE(s)->backend->record_begin(s); }
err_t stream_record_end(stream *s, recording **out) { return STREAM_DEVICE(s)->backend->record_end(s, out); }
err_t recording_run(recording *r, stream *s) { return STREAM_DEVICE(s)->backend->recording_run(r, s); }
void recording_close(recording *r) {
    if (r) ((struct recording_head *)r)->dev->backend->recording_close(r);
}

const char *device_limited_text(unsigned limited, char dst[LIMITED_TEXT]) {
    static const struct {
        unsigned bit;
        const char *word;
    } words[] = {
        {LIMITED_POWER, "power"}, {LIMITED_HEAT, "heat"}, {LIMITED_BRAKE, "brake"}, {LIMITED_HARDWARE, "hardware"}};
    size_t n = 0;
    dst[0] = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (limited & words[i].bit)
            n += (size_t)snprintf(dst + n, LIMITED_TEXT - n, "%s%s", n ? "+" : "", words[i].word);
    if (!limited) snprintf(dst, LIMITED_TEXT, "no");
    return dst;
}
