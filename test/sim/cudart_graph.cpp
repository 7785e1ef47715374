// test/sim/cudart_graph.cpp: capture of streams, and graphs. A launch queues every node as an operation of its own: the
// nodes of a graph are split into chains, each a queue, so that branches go in any order that the edges allow, and
// among the work of other streams.
#include "test/sim/cudart.h"

#include <algorithm>

namespace simt {

static bool under_way(const Capture *c) { return c && !c->over; }

cudaError_t not_in_capture(const char *call) {
    for (Capture *c : host().captures) {
        if (c->mode == cudaStreamCaptureModeRelaxed) continue;
        check_msg("capture", "%s while a stream is captured", call);
        c->invalid = true;
        return failed(cudaErrorStreamCaptureUnsupported);
    }
    return cudaSuccess;
}

// Is every node that nothing comes after one that the captured stream comes after?
static bool is_joined(const Capture *c) {
    std::vector<char> reached(c->nodes.size());
    std::vector<int> todo = c->origin->tail;
    while (!todo.empty()) {
        int n = todo.back();
        todo.pop_back();
        if (reached[(size_t)n]) continue;
        reached[(size_t)n] = 1;
        todo.insert(todo.end(), c->nodes[(size_t)n].after.begin(), c->nodes[(size_t)n].after.end());
    }
    return std::find(reached.begin(), reached.end(), 0) == reached.end();
}

// As few in-order queues as a greedy search finds: a node is queued after one of its predecessors, where that is the
// last of its chain.
static void split_into_chains(CUgraphExec_st *g) {
    std::vector<int> last;
    for (size_t i = 0; i < g->nodes.size(); i++) {
        Node &n = g->nodes[i];
        n.chain = -1;
        for (int before : n.after)
            if (n.chain < 0 && last[(size_t)g->nodes[(size_t)before].chain] == before)
                n.chain = g->nodes[(size_t)before].chain;
        if (n.chain < 0) {
            n.chain = (int)last.size();
            last.push_back(0);
        }
        last[(size_t)n.chain] = (int)i;
    }
    while (g->chains.size() < last.size()) g->chains.push_back(new_line(false));
}

static void launch(CUgraphExec_st *g, CUstream_st *s) {
    std::vector<uint32_t> op(g->nodes.size()), all;
    std::vector<Clock> chain_clock;
    host().graphs++;
    host().launching = true;
    uint32_t begin = enqueue(s, {NODE_OTHER, "a graph's begin", nullptr, nullptr, nullptr, {g->last}, &g->clock});
    Clock known = s->clock;
    for (CUstream_st *c : g->chains) c->clock = known;
    chain_clock.assign(g->chains.size(), known);
    for (size_t i = 0; i < g->nodes.size(); i++) {
        Node &n = g->nodes[i];
        Clock before = known;
        std::vector<uint32_t> after{begin};
        for (int d : n.after) {
            after.push_back(op[(size_t)d]);
            join(before, clock_of(op[(size_t)d]));
        }
        op[i] = enqueue(g->chains[(size_t)n.chain], {n.kind, n.name, n.what, n.run, n.poll, std::move(after), &before});
        all.push_back(op[i]);
    }
    Clock end = known;
    for (uint32_t o : op) join(end, clock_of(o));
    g->last = enqueue(s, {NODE_OTHER, "a graph's end", nullptr, nullptr, nullptr, std::move(all), &end});
    g->clock = s->clock;
    host().launching = false;
}

}  // namespace simt

using namespace simt;

extern "C" {

cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    CALL;
    CUstream_st *s = stream_of(stream);
    if (!s) return failed(cudaErrorInvalidResourceHandle);
    if (s == host().streams[0]) return failed(cudaErrorStreamCaptureUnsupported);
    if (s->capture) return failed(cudaErrorIllegalState);
    s->capture = new Capture{{}, s, mode, false, false};
    s->tail.clear();
    host().captures.push_back(s->capture);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
    CALL;
    Host &h = host();
    CUstream_st *s = stream_of(stream);
    *out = nullptr;
    if (!s) return failed(cudaErrorInvalidResourceHandle);
    Capture *c = s->capture;
    if (!c) return failed(cudaErrorIllegalState);
    if (c->origin != s) return failed(cudaErrorStreamCaptureUnmatched);
    bool joined = is_joined(c);
    c->over = true;
    h.captures.erase(std::find(h.captures.begin(), h.captures.end(), c));
    for (CUstream_st *x : h.streams)
        if (x->capture == c) x->capture = nullptr;
    if (c->invalid) return failed(cudaErrorStreamCaptureInvalidated);
    if (!joined) {
        check_msg("capture", "a stream that joined the capture was not joined back before its end");
        return failed(cudaErrorStreamCaptureUnjoined);
    }
    *out = new CUgraph_st{c->nodes};
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    CALL;
    CUstream_st *s = stream_of(stream);
    if (!s) return failed(cudaErrorInvalidResourceHandle);
    *status = cudaStreamCaptureStatusNone;
    if (under_way(s->capture))
        *status = s->capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long) {
    CALL;
    *out = new CUgraphExec_st();
    (*out)->nodes = graph->nodes;
    split_into_chains(*out);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
    CALL;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    CALL;
    if (nodes) return failed(cudaErrorNotSupported);
    *count = graph->nodes.size();
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    CALL;
    CUstream_st *s = stream_of(stream);
    if (!s) return failed(cudaErrorInvalidResourceHandle);
    if (s->capture) {
        check_msg("capture", "a graph is launched on a captured stream: the simulator has no graphs in graphs");
        return failed(cudaErrorNotSupported);
    }
    launch(exec, s);
    return cudaSuccess;
}

static cudaGraphExecUpdateResult difference(const std::vector<Node> &a, const std::vector<Node> &b) {
    if (a.size() != b.size()) return cudaGraphExecUpdateErrorTopologyChanged;
    for (size_t i = 0; i < a.size(); i++) {
        if (a[i].after != b[i].after) return cudaGraphExecUpdateErrorTopologyChanged;
        if (a[i].kind != b[i].kind) return cudaGraphExecUpdateErrorNodeTypeChanged;
        if (a[i].what != b[i].what) return cudaGraphExecUpdateErrorFunctionChanged;
    }
    return cudaGraphExecUpdateSuccess;
}

cudaError_t CUDARTAPI cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                          cudaGraphExecUpdateResultInfo *info) {
    CALL;
    cudaGraphExecUpdateResult r = difference(exec->nodes, graph->nodes);
    if (info) *info = {r, nullptr, nullptr};
    if (r != cudaGraphExecUpdateSuccess) return failed(cudaErrorGraphExecUpdateFailure);
    exec->nodes = graph->nodes;
    split_into_chains(exec);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph) {
    CALL;
    delete graph;
    return cudaSuccess;
}

// A launch that is under way keeps its queues: they go back when they are empty.
cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t exec) {
    CALL;
    for (CUstream_st *c : exec->chains) {
        if (!c->queue.empty()) wait_for(c);
        host().spare.push_back(c);
    }
    delete exec;
    return cudaSuccess;
}
}
