// test/sim/cudart_stream.cpp: streams and events. A stream is a queue of operations, done one after another; which
// queue goes next is the seed's choice, so that an event that is missing shows in the results under some seed. Under
// the race build it shows under all: every operation has a vector clock (Fidge 1988, Mattern 1989), and two accesses to
// the same memory are a finding unless one operation's clock knows the other.
#include "test/sim/cudart.h"

#include <algorithm>
#include <pthread.h>
#include <set>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

namespace simt {

// --- clocks ----------------------------------------------------------------------------------------------------------

void join(Clock &a, const Clock &b) {
    if (a.size() < b.size()) a.resize(b.size());
    for (size_t i = 0; i < b.size(); i++) a[i] = std::max(a[i], b[i]);
}

static Operation &operation(uint32_t op) { return host().operations[op - host().first]; }
bool is_done(uint32_t op) { return op < host().first || operation(op).done; }
const char *op_name(uint32_t op) { return op < host().first ? "an operation" : operation(op).name; }

const Clock &clock_of(uint32_t op) {
    static const Clock none;
    return op < host().first ? none : operation(op).clock;
}

bool op_before(uint32_t a, uint32_t b) {
    if (a < host().first) return true;
    const Operation &x = operation(a), &y = operation(b);
    return y.clock.size() > x.line && y.clock[x.line] >= x.seq;
}

// A name that lives as long as the process.
static const char *keep(const std::string &name) {
    static auto *names = new std::set<std::string>;
    return names->insert(name).first->c_str();
}

// --- streams ---------------------------------------------------------------------------------------------------------

CUstream_st *new_line(bool blocking) {
    Host &h = host();
    CUstream_st *s;
    if (!blocking && !h.spare.empty()) {
        s = h.spare.back();
        h.spare.pop_back();
        return s;
    }
    s = new CUstream_st();
    s->blocking = blocking;
    if (h.free_lines.empty()) s->line = h.lines++;
    else {
        s->line = h.free_lines.back().first;
        s->seq = h.free_lines.back().second;
        h.free_lines.pop_back();
    }
    return s;
}

CUstream_st *stream_of(cudaStream_t s) {
    Host &h = host();
    if (h.streams.empty()) h.streams.push_back(new_line(true));
    if (s == nullptr || s == cudaStreamLegacy) return h.streams[0];
    if (std::find(h.streams.begin(), h.streams.end(), s) != h.streams.end() && !s->destroyed) return s;
    check_msg("handle", "%p is not a stream, or one that was destroyed", (void *)s);
    return nullptr;
}

// --- doing what is queued --------------------------------------------------------------------------------------------

static void do_first(CUstream_st *s) {
    Host &h = host();
    Queued q = std::move(s->queue.front());
    s->queue.pop_front();
    if (s->queue.empty()) {
        h.active.erase(std::find(h.active.begin(), h.active.end(), s));
        s->active = false;
    }
    if (q.poll) h.polls--;
    if (q.run && h.lost == cudaSuccess) {
        uint32_t outer = h.running;
        h.running = q.id;
        open_device();
        q.run(q.id);
        h.running = outer;
    }
    operation(q.id).done = true;
}

static bool can_go(CUstream_st *s) {
    if (s->queue.empty()) return false;
    Queued &q = s->queue.front();
    for (uint32_t op : q.after)
        if (!is_done(op)) return false;
    if (!q.poll || host().lost != cudaSuccess) return true;
    open_device();
    return q.poll(q.id);
}

// The least that brings the head of s forward.
static bool go_towards(CUstream_st *s, int depth) {
    enum { DEEP = 1000 };
    if (s->queue.empty() || depth > DEEP) return false;
    if (can_go(s)) {
        do_first(s);
        return true;
    }
    for (auto op = s->queue.front().after.rbegin(); op != s->queue.front().after.rend(); ++op) {
        if (is_done(*op)) continue;
        for (CUstream_st *x : host().active)
            if (x->line == operation(*op).line) return go_towards(x, depth + 1);
    }
    return false;
}

static bool go_anywhere(bool at_random) {
    std::vector<CUstream_st *> ready;
    for (CUstream_st *s : host().active)
        if (can_go(s)) ready.push_back(s);
    if (ready.empty()) return false;
    do_first(ready[at_random ? rnd() % ready.size() : 0]);
    return true;
}

static bool step(CUstream_st *wanted) {
    if (seed() == 1 && wanted && go_towards(wanted, 0)) return true;
    return go_anywhere(seed() >= 2);
}

void make_progress() {
    if (host().running) return;
    if (seed() == 0)
        while (go_anywhere(false)) {}
    else if (seed() >= 2 && rnd() % 4 == 0) go_anywhere(true);
}

static double now_ms() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

// Nothing can go: for another process to do its part, unless none is waited for, or it is for too long.
static void stall(double since) {
    Host &h = host();
    bool polled = false;
    for (CUstream_st *s : h.active) polled |= s->queue.front().poll != nullptr;
    if (polled && now_ms() - since < 1e3 * (double)setting("SIM_STALL", 120)) {
        usleep(100);
        return;
    }
    const char *name = "nothing";
    for (CUstream_st *s : h.active)
        if (s->queue.front().poll || !polled) name = op_name(s->queue.front().id);
    check_msg("stall", "the host waits for ever: %s cannot be done", name);
    h.lost = cudaErrorLaunchTimeout;
}

static void go_until(CUstream_st *wanted, const std::function<bool()> &reached) {
    for (double since = now_ms(); !reached();)
        if (step(wanted)) since = now_ms();
        else stall(since);
}

void wait_for(CUstream_st *s) {
    Host &h = host();
    go_until(s, [=] { return s ? s->queue.empty() : host().active.empty(); });
    if (s) {
        join(h.clock, s->clock);
        return;
    }
    join(h.clock, h.grave_clock);
    for (CUstream_st *x : h.streams) join(h.clock, x->clock);
}

void wait_for(uint32_t op) {
    if (op < host().first) return;
    CUstream_st *on = nullptr;
    for (CUstream_st *s : host().active)
        if (s->line == operation(op).line) on = s;
    go_until(on, [=] { return is_done(op); });
    join(host().clock, clock_of(op));
}

// --- a second thread, for the time that the host spends elsewhere ----------------------------------------------------

static void *helper(void *) {
    uint64_t seen = 0;
    thread_stack();
    for (;;) {
        usleep(20000);
        Call call;
        Host &h = host();
        bool idle = h.calls == seen + 1;  // this one
        seen = h.calls;
        for (int n = 0; idle && h.polls && n < 64 && go_anywhere(seed() >= 2); n++) {}
    }
    return nullptr;
}

static void hold_for_ever() {  // no operation is done while the process ends
    static Call *held = new Call;
    (void)held;
}

void keep_going() {
    Call call;
    static bool started;
    pthread_t t;
    if (started) return;
    started = true;
    atexit(hold_for_ever);
    if (pthread_create(&t, nullptr, helper, nullptr) == 0) pthread_detach(t);
}

// --- queueing --------------------------------------------------------------------------------------------------------

// Names and clocks are for findings: without them an operation that is done may be forgotten.
static void forget_done() {
    enum { MANY = 4096 };
    Host &h = host();
    if (race_build() || h.operations.size() < MANY || h.running) return;
    while (!h.operations.empty() && h.operations.front().done) {
        h.operations.pop_front();
        h.first++;
    }
}

// The legacy default stream comes after all blocking ones, and they after it.
static void order_blocking(CUstream_st *s, std::vector<uint32_t> *after) {
    Host &h = host();
    if (!s->blocking) return;
    for (CUstream_st *x : h.streams) {
        if (x == s || !x->blocking || (s != h.streams[0] && x != h.streams[0])) continue;
        join(s->clock, x->clock);
        if (x->last && !is_done(x->last)) after->push_back(x->last);
    }
}

static uint32_t add_node(CUstream_st *s, Task &t) {
    Capture *c = s->capture;
    c->nodes.push_back(Node{t.kind, t.name, t.what, std::move(t.run), std::move(t.poll), s->tail, 0});
    s->tail.assign(1, (int)c->nodes.size() - 1);
    return 0;
}

static bool breaks_capture(CUstream_st *s) {
    if (s != host().streams[0]) return false;
    for (CUstream_st *x : host().streams) {
        if (!x->capture || !x->blocking) continue;
        check_msg("capture", "work on the legacy default stream while a stream that waits for it is captured");
        x->capture->invalid = true;
        failed(cudaErrorStreamCaptureImplicit);
        return true;
    }
    return false;
}

uint32_t enqueue(CUstream_st *s, Task t) {
    Host &h = host();
    if (s->capture) return add_node(s, t);
    if (breaks_capture(s)) return 0;
    if (!h.launching) h.submitted[t.kind]++;
    forget_done();
    if (race_build()) join(s->clock, h.clock);
    if (race_build() && t.known) join(s->clock, *t.known);
    order_blocking(s, &t.after);
    if (race_build()) {
        if (s->clock.size() <= s->line) s->clock.resize(s->line + 1);
        s->clock[s->line] = s->seq + 1;
    }
    s->last = h.first + (uint32_t)h.operations.size();
    h.operations.push_back(Operation{t.name, s->line, ++s->seq, s->clock, false});
    if (t.poll) h.polls++;
    s->queue.push_back(Queued{s->last, std::move(t.run), std::move(t.poll), std::move(t.after)});
    if (!s->active) h.active.push_back(s);
    s->active = true;
    uint32_t op = s->last;
    make_progress();
    return op;
}

void enqueue_poll(cudaStream_t stream, const std::string &name, Poll poll, Run run) {
    Call call;
    CUstream_st *s = stream_of(stream);
    if (s && call.status == cudaSuccess)
        enqueue(s, {NODE_OTHER, keep(name), nullptr, std::move(run), std::move(poll), {}, nullptr});
}

// --- kernels ---------------------------------------------------------------------------------------------------------

static std::vector<std::pair<const void *, int>> &shared_asked() {  // cudaFuncSetAttribute
    static auto *v = new std::vector<std::pair<const void *, int>>;
    return *v;
}

static size_t shared_allowed(const void *kernel) {
    size_t most = SHARED_STATIC;
    for (auto &k : shared_asked())
        if (k.first == kernel) most = std::max(most, (size_t)k.second);
    return most;
}

static bool can_launch(const char *name, const void *kernel, dim3 g, dim3 b, size_t shared) {
    size_t threads = (size_t)b.x * b.y * b.z;
    if (!threads || threads > 1024 || b.z > 64 || !g.x || !g.y || !g.z || g.x > 0x7fffffff || g.y > 65535 ||
        g.z > 65535) {
        check_msg("launch", "%s: no grid (%u,%u,%u) of blocks (%u,%u,%u)", name, g.x, g.y, g.z, b.x, b.y, b.z);
        failed(cudaErrorInvalidConfiguration);
        return false;
    }
    if (shared > shared_allowed(kernel)) {
        check_msg("launch", "%s: %zu bytes of dynamic shared memory, %zu are allowed (cudaFuncSetAttribute)", name,
                  shared, shared_allowed(kernel));
        failed(cudaErrorInvalidValue);
        return false;
    }
    return true;
}

void enqueue_kernel(const char *name, const void *kernel, dim3 g, dim3 b, size_t shared, cudaStream_t stream,
                    const Body &body) {
    Call call;
    CUstream_st *s = stream_of(stream);
    plan p = planned(name);
    if (call.status != cudaSuccess || !can_launch(name, kernel, g, b, shared)) return;
    if (!s || p == NOT_LAUNCHED) {
        failed(s ? cudaErrorLaunchOutOfResources : cudaErrorInvalidResourceHandle);
        return;
    }
    const char *kept = keep(name);
    size_t most = shared_allowed(kernel);
    Run run = [=](uint32_t op) {
        if (unsigned us = slowness()) usleep(us);
        run_grid(kept, op, g, b, shared, body, most);
    };
    if (p == FAILS_LATER) run = [](uint32_t) { host().lost = cudaErrorIllegalAddress; };
    enqueue(s, {NODE_KERNEL, kept, kernel, std::move(run), nullptr, {}, nullptr});
}

}  // namespace simt

using namespace simt;

extern "C" {

cudaError_t CUDARTAPI cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute a, int value) {
    CALL;
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || value > shared_limit()) return failed(cudaErrorInvalidValue);
    shared_asked().push_back({kernel, value});
    return cudaSuccess;
}

// --- streams ---------------------------------------------------------------------------------------------------------

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    CALL;
    stream_of(nullptr);
    *out = new_line(!(flags & cudaStreamNonBlocking));
    host().streams.push_back(*out);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamCreate(cudaStream_t *out) { return cudaStreamCreateWithFlags(out, 0); }
cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int) {
    return cudaStreamCreateWithFlags(out, flags);
}

// What is queued will still be done. The object stays, so that its use can be reported.
cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream) {
    CALL;
    Host &h = host();
    CUstream_st *s = stream ? stream_of(stream) : nullptr;
    if (!s) return failed(cudaErrorInvalidResourceHandle);
    s->destroyed = true;
    h.graves.push_back(s);
    join(h.grave_clock, s->clock);
    if (!s->queue.empty()) return cudaSuccess;
    h.streams.erase(std::find(h.streams.begin(), h.streams.end(), s));
    h.free_lines.push_back({s->line, s->seq});
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream) {
    CALL;
    if (cudaError_t e = not_in_capture("cudaStreamSynchronize")) return e;
    CUstream_st *s = stream_of(stream);
    if (!s) return failed(cudaErrorInvalidResourceHandle);
    wait_for(s);
    return failed(host().lost);
}

cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t stream) {
    CALL;
    if (cudaError_t e = not_in_capture("cudaStreamQuery")) return e;
    CUstream_st *s = stream_of(stream);
    if (!s) return failed(cudaErrorInvalidResourceHandle);
    step(s);
    if (host().lost != cudaSuccess) return failed(host().lost);
    if (!s->queue.empty()) return cudaErrorNotReady;
    join(host().clock, s->clock);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaDeviceSynchronize(void) {
    CALL;
    if (cudaError_t e = not_in_capture("cudaDeviceSynchronize")) return e;
    wait_for((CUstream_st *)nullptr);
    return failed(host().lost);
}

cudaError_t CUDARTAPI cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *arg) {
    CALL;
    CUstream_st *s = stream_of(stream);
    if (!s) return failed(cudaErrorInvalidResourceHandle);
    enqueue(s, {NODE_HOST,
                "a host function",
                nullptr,
                [=](uint32_t) {
                    close_device();
                    host().in_host_function++;
                    fn(arg);
                    host().in_host_function--;
                },
                nullptr,
                {},
                nullptr});
    return cudaSuccess;
}

// --- events ----------------------------------------------------------------------------------------------------------

static cudaError_t bad_event(cudaEvent_t e) {
    if (e && !e->destroyed) return cudaSuccess;
    check_msg("handle", "%p is not an event, or one that was destroyed", (void *)e);
    return failed(cudaErrorInvalidResourceHandle);
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    CALL;
    *e = new CUevent_st();
    (*e)->untimed = flags & cudaEventDisableTiming;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t e) {
    CALL;
    if (cudaError_t bad = bad_event(e)) return bad;
    e->destroyed = true;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t e, cudaStream_t stream) {
    CALL;
    if (cudaError_t bad = bad_event(e)) return bad;
    CUstream_st *s = stream_of(stream);
    if (!s) return failed(cudaErrorInvalidResourceHandle);
    e->recorded = true;
    e->capture = s->capture;
    e->tail = s->tail;
    if (s->capture) return cudaSuccess;
    e->op = enqueue(s, {NODE_OTHER, "an event", nullptr, [e](uint32_t) { e->ms = now_ms(); }, nullptr, {}, nullptr});
    e->clock = s->clock;
    return cudaSuccess;
}

static cudaError_t wait_in_capture(CUstream_st *s, cudaEvent_t e) {
    if (!e->capture || e->capture->over || (s->capture && s->capture != e->capture)) {
        check_msg("capture", "a captured stream and an event that is not of its capture wait for each other");
        if (s->capture) s->capture->invalid = true;
        return failed(cudaErrorStreamCaptureIsolation);
    }
    if (!s->capture) s->tail.clear();
    s->capture = e->capture;
    s->tail.insert(s->tail.end(), e->tail.begin(), e->tail.end());
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t e, unsigned) {
    CALL;
    if (cudaError_t bad = bad_event(e)) return bad;
    CUstream_st *s = stream_of(stream);
    if (!s) return failed(cudaErrorInvalidResourceHandle);
    if (!e->recorded) {
        check_msg("event", "a stream is to wait for an event that was never recorded: it waits for nothing");
        return cudaSuccess;
    }
    if (s->capture || e->capture) return wait_in_capture(s, e);
    enqueue(s, {NODE_OTHER, "a wait for an event", nullptr, nullptr, nullptr, {e->op}, &e->clock});
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t e) {
    CALL;
    if (cudaError_t bad = bad_event(e)) return bad;
    if (cudaError_t bad = not_in_capture("cudaEventSynchronize")) return bad;
    if (e->capture) return failed(cudaErrorCapturedEvent);
    if (!e->recorded) return cudaSuccess;
    wait_for(e->op);
    join(host().clock, e->clock);
    return failed(host().lost);
}

cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t e) {
    CALL;
    if (cudaError_t bad = bad_event(e)) return bad;
    if (cudaError_t bad = not_in_capture("cudaEventQuery")) return bad;
    if (e->capture) return failed(cudaErrorCapturedEvent);
    if (!e->recorded) return cudaSuccess;
    if (!is_done(e->op)) step(nullptr);
    if (host().lost != cudaSuccess) return failed(host().lost);
    if (!is_done(e->op)) return cudaErrorNotReady;
    join(host().clock, e->clock);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    CALL;
    if (cudaError_t bad = bad_event(from)) return bad;
    if (cudaError_t bad = bad_event(to)) return bad;
    if (from->untimed || to->untimed || !from->recorded || !to->recorded) return failed(cudaErrorInvalidResourceHandle);
    if (from->capture || to->capture) return failed(cudaErrorCapturedEvent);
    if (!is_done(from->op) || !is_done(to->op)) return failed(cudaErrorNotReady);
    *ms = (float)(to->ms - from->ms);
    return cudaSuccess;
}
}
