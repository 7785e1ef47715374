// gpu/cuda/stream.c: streams, events and copies. A failure on the device is reported later, by an unrelated call, so
// launches are remembered.
#include "gpu/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cuda_device *device_of(const stream *s) { return (cuda_device *)s->dev; }

// --- what was launched -----------------------------------------------------------------------------------------------

static void describe_launches(const cuda_device *d, char *out, size_t size) {
    int64_t n = d->launches < CUDA_LAUNCHES ? d->launches : CUDA_LAUNCHES;
    int at = snprintf(out, size, n ? "" : "nothing");
    for (int64_t i = d->launches - 1; i >= d->launches - n && at < (int)size - 1; i--) {
        const launch_note *l = &d->note[i % CUDA_LAUNCHES];
        at += snprintf(out + at, size - (size_t)at, "%s%s (%s:%d)", at ? ", " : "", l->kernel, l->file, l->line);
    }
}

err_t cuda_finished(stream *s, cudaError_t e, const char *file, int line) {
    if (e == cudaSuccess) return ERR_OK;
    const cuda_device *d = device_of(s);
    const launch_note *last = &d->note[(d->launches + CUDA_LAUNCHES - 1) % CUDA_LAUNCHES];
    char text[640];
    (void)cudaGetLastError();
    if (d->check && d->launches)
        return err_set_at(file, line, __func__, ERR_INTERNAL, "cuda: %s (%s:%d) failed on the device: %s (%s)",
                          last->kernel, last->file, last->line, cudaGetErrorName(e), cudaGetErrorString(e));
    describe_launches(d, text, sizeof text);
    return err_set_at(
        file, line, __func__, ERR_INTERNAL,
        "cuda: the device failed: %s (%s); [device] check = yes finds the kernel. The last launches, the newest "
        "first: %s",
        cudaGetErrorName(e), cudaGetErrorString(e), text);
}

// Statuses that report a failure of work queued earlier, whichever call returns them.
static bool is_of_earlier_work(cudaError_t e) {
    static const cudaError_t late[] = {
        cudaErrorIllegalAddress,
        cudaErrorLaunchTimeout,
        cudaErrorAssert,
        cudaErrorHardwareStackError,
        cudaErrorIllegalInstruction,
        cudaErrorMisalignedAddress,
        cudaErrorInvalidAddressSpace,
        cudaErrorInvalidPc,
        cudaErrorLaunchFailure,
        cudaErrorECCUncorrectable,
        cudaErrorUnknown,
    };
    for (size_t i = 0; i < sizeof late / sizeof *late; i++)
        if (late[i] == e) return true;
    return false;
}

static err_t called(stream *s, cudaError_t e, const char *call, int line) {
    return is_of_earlier_work(e) ? cuda_finished(s, e, __FILE__, line) : cuda_status(e, call, __FILE__, line);
}
#define ON(s, call) TRY(called((s), (call), #call, __LINE__))

err_t cuda_launched(stream *s, const char *kernel, const char *file, int line) {
    cuda_device *d = device_of(s);
    cudaError_t e = cudaGetLastError();
    if (is_of_earlier_work(e)) return cuda_finished(s, e, file, line);
    d->note[d->launches++ % CUDA_LAUNCHES] = (launch_note){kernel, file, line};
    if (e != cudaSuccess)
        return err_set_at(file, line, kernel, ERR_INTERNAL, "cuda: %s was not launched: %s (%s)", kernel,
                          cudaGetErrorName(e), cudaGetErrorString(e));
    return d->check && !s->recording ? cuda_finished(s, cudaStreamSynchronize(s->native), file, line) : ERR_OK;
}

// --- streams ---------------------------------------------------------------------------------------------------------

static err_t fill_stream(stream *s, bool compute) {
    CUDA(cudaStreamCreateWithFlags(&s->native, cudaStreamNonBlocking));
    TRY(cuda_malloc(s->dev, CUDA_SCRATCH, &s->scratch));
    return compute ? cuda_malloc(s->dev, CUDA_WORKSPACE + CUDA_ROOM, &s->workspace) : ERR_OK;
}

static err_t open_stream(device *d, bool compute, stream **out) {
    *out = NULL;
    stream *s = calloc(1, sizeof *s);
    if (!s) return err_set(ERR_INTERNAL, "no memory for a stream");
    s->dev = d;
    err_t rc = fill_stream(s, compute);
    if (rc != ERR_OK) {
        cuda_stream_close(s);
        return err_pass(__FILE__, __LINE__, __func__, rc);
    }
    *out = s;
    return ERR_OK;
}

err_t cuda_stream_open(device *d, stream **out) { return open_stream(d, true, out); }
err_t cuda_stream_open_queue(device *d, stream **out) { return open_stream(d, false, out); }

void cuda_stream_close(stream *s) {
    if (s->native) {
        (void)cudaStreamSynchronize(s->native);
        (void)cudaStreamDestroy(s->native);
    }
    (void)cudaFree(s->scratch);
    (void)cudaFree(s->workspace);
    free(s);
}

err_t cuda_stream_call(stream *s, stream_function fn, const void *ctx, size_t bytes) {
    _Alignas(16) unsigned char copy[STREAM_CALL];
    assert(bytes <= sizeof copy);
    memcpy(copy, ctx, bytes);
    return fn(copy, s);
}

void *cuda_stream_native(stream *s) { return s->native; }
err_t cuda_stream_wait(stream *s) { return cuda_finished(s, cudaStreamSynchronize(s->native), __FILE__, __LINE__); }

// --- events ----------------------------------------------------------------------------------------------------------

static err_t open_event(device *d, bool timed, event **out) {
    *out = NULL;
    event *e = calloc(1, sizeof *e);
    if (!e) return err_set(ERR_INTERNAL, "no memory for an event");
    e->dev = d;
    e->timed = timed;
    unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming;
    err_t rc = cuda_status(cudaEventCreateWithFlags(&e->native, flags), "cudaEventCreateWithFlags", __FILE__, __LINE__);
    if (rc != ERR_OK) {
        free(e);
        return rc;
    }
    *out = e;
    return ERR_OK;
}

err_t cuda_event_open(device *d, event **out) { return open_event(d, false, out); }
err_t cuda_event_open_timed(device *d, event **out) { return open_event(d, true, out); }

void cuda_event_close(event *e) {
    (void)cudaEventDestroy(e->native);
    free(e);
}

// Inside a capture an event is an edge of the graph and has no time.
err_t cuda_event_record(event *e, stream *s) {
    if (e->timed && s->recording)
        return err_set(ERR_INTERNAL,
                       "cuda: a timed event inside a recording has no time; record it before or after it");
    ON(s, cudaEventRecord(e->native, s->native));
    e->on = s;
    return ERR_OK;
}

err_t cuda_event_wait(event *e) {
    if (!e->on) return ERR_OK;
    cudaError_t status = cudaEventSynchronize(e->native);
    return status == cudaSuccess ? ERR_OK : cuda_finished(e->on, status, __FILE__, __LINE__);
}

err_t cuda_stream_wait_event(stream *s, event *e) {
    if (e->on) ON(s, cudaStreamWaitEvent(s->native, e->native, 0));
    return ERR_OK;
}

err_t cuda_event_elapsed(event *from, event *to, double *ms) {
    float between = 0;
    *ms = 0;
    if (!from->timed || !to->timed)
        return err_set(ERR_INTERNAL,
                       "cuda: an event that is not timed was asked for its time; open it with event_open_timed");
    if (!from->on || !to->on)
        return err_set(ERR_INTERNAL, "cuda: an event was asked for its time before it was recorded; record it first");
    cudaError_t e = cudaEventElapsedTime(&between, from->native, to->native);
    if (e == cudaErrorNotReady) {
        (void)cudaGetLastError();  // else the next launch would find it
        return err_set(
            ERR_INTERNAL,
            "cuda: an event was asked for its time before it was reached; wait for one recorded after it first");
    }
    TRY(called(to->on, e, "cudaEventElapsedTime", __LINE__));
    *ms = between;
    return ERR_OK;
}

// --- copies ----------------------------------------------------------------------------------------------------------

err_t cuda_copy(stream *s, void *dst, const void *src, size_t bytes) {
    if (bytes) ON(s, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, s->native));
    return ERR_OK;
}

err_t cuda_zero(stream *s, void *dst, size_t bytes) {
    if (bytes) ON(s, cudaMemsetAsync(dst, 0, bytes, s->native));
    return ERR_OK;
}
