// test/sim/cudart.h: the simulator's stand-in for the CUDA runtime, from inside. One process sees one device; its
// memory is an arena at a fixed address that host code can neither read nor write. Its streams are queues that are
// emptied, at the latest, when the host or another stream waits for them.
//
//   cudart_memory.cpp   device memory, pinned memory, copies, what a bad address means
//   cudart_stream.cpp   streams, events, who goes next, what is ordered after what
//   cudart_graph.cpp    capture and graphs
//   cudart.cpp          devices, their properties, errors, and those that a test asks for
//
// SIM_SEED   0: everything is done when it is queued; 1: nothing is done before the host waits for it; else: at random,
//            by this number
// SIM_MEMORY of the device in MB (1024)
// SIM_STALL  seconds after which a collective that some rank has not joined is a finding (120)
// cudart.cpp explains SIM_DEVICES, SIM_CAPABILITY, SIM_DRIVER, SIM_BUSY, SIM_SLOW and SIM_FAIL.
//
// Every call takes one lock. A second thread empties queues while the host is away in calls that are not CUDA's, but
// only where a queue has something that waits for another process: else laziness would make ranks wait for each other
// that a GPU would not.
#ifndef TEST_SIM_CUDART_H
#define TEST_SIM_CUDART_H

#include "test/sim/simt_rt.h"

#include <cuda_runtime_api.h>
#include <deque>
#include <vector>

namespace simt {

typedef std::function<void(uint32_t)> Run;   // does an operation; its number is for range_access
typedef std::function<bool(uint32_t)> Poll;  // may it be done now? Asked when it is the first of its queue
// for each line (a stream, a chain of a graph): how many of its operations come before
typedef std::vector<uint32_t> Clock;

struct Operation {
    const char *name;
    uint32_t line, seq;
    Clock clock;
    bool done;
};
struct Queued {
    uint32_t id;
    Run run;
    Poll poll;
    std::vector<uint32_t> after;
};

enum node_kind { NODE_KERNEL, NODE_COPY, NODE_SET, NODE_HOST, NODE_OTHER, NODE_KINDS };

struct Node {
    node_kind kind;
    const char *name;
    const void *what;  // of a kernel: its function
    Run run;
    Poll poll;
    std::vector<int> after;  // nodes
    int chain;
};

struct Capture {
    std::vector<Node> nodes;
    CUstream_st *origin;
    cudaStreamCaptureMode mode;
    bool invalid, over;
};

}  // namespace simt

struct CUstream_st {
    uint32_t line, seq, last;  // its component of the clocks, its operations so far, the last one's number
    bool blocking, destroyed, active;
    simt::Clock clock;
    std::deque<simt::Queued> queue;
    simt::Capture *capture;
    std::vector<int> tail;  // while it is captured: the nodes that the next one comes after
};

struct CUevent_st {
    uint32_t op;
    simt::Clock clock;
    bool recorded, untimed, destroyed;
    double ms;               // when it was done
    simt::Capture *capture;  // it was recorded in
    std::vector<int> tail;
};

struct CUgraph_st {
    std::vector<simt::Node> nodes;
};

struct CUgraphExec_st {
    std::vector<simt::Node> nodes;
    std::vector<CUstream_st *> chains;  // its nodes in as few in-order queues as were found
    uint32_t last;                      // operation that ended its last launch
    simt::Clock clock;
};

namespace simt {

// Of a whole process. Made at the first call and never destroyed: a thread may still be at work when the process ends.
struct Host {
    // all but those of graphs, the first is the legacy default stream; of graphs and free again
    std::vector<CUstream_st *> streams, spare;
    std::vector<CUstream_st *> active;                      // with something queued
    std::deque<Operation> operations;                       // number n is at n - first
    std::vector<CUstream_st *> graves;                      // destroyed
    std::vector<std::pair<uint32_t, uint32_t>> free_lines;  // of those, with the operations so far
    uint32_t first, lines, running;
    Clock clock, grave_clock;         // what the host has waited for; what destroyed streams have done
    std::vector<Capture *> captures;  // under way
    cudaError_t last_error, lost;     // lost: what the device ended of; every call returns it from then on
    int in_host_function;
    uint64_t calls, polls;
    // by the host, outside of captures; what a graph is made of counts as the one graph
    uint64_t submitted[NODE_KINDS], graphs;
    bool launching;  // a graph
};
Host &host();

// Every function of the runtime begins with one: takes the lock, and finds out whether there is a device.
struct Call {
    explicit Call(bool asks = true);  // false: about nothing but what is known
    ~Call();                          // the outermost one closes device memory
    cudaError_t status;
};
#define CALL \
    simt::Call call_here; \
    if (call_here.status != cudaSuccess) return call_here.status

cudaError_t failed(cudaError_t e);  // also what cudaGetLastError returns
bool given(const char *name);       // an environment variable that is not empty
long setting(const char *name, long otherwise);

// --- cudart_memory.cpp -----------------------------------------------------------------------------------------------

void open_arena();
void open_device();   // device memory can be read and written from here, by this thread
void close_device();  // to here
void thread_stack();  // for the signal handler: once in each thread that runs kernels

// --- cudart_stream.cpp -----------------------------------------------------------------------------------------------

CUstream_st *stream_of(cudaStream_t s);  // NULL, and a finding: it was destroyed
CUstream_st *new_line(bool blocking);
void join(Clock &a, const Clock &b);
bool is_done(uint32_t op);
const Clock &clock_of(uint32_t op);

struct Task {
    node_kind kind;
    const char *name;
    const void *what;
    Run run;
    Poll poll;
    std::vector<uint32_t> after;  // operations of any queue
    const Clock *known;           // and what they know
};
uint32_t enqueue(CUstream_st *s, Task t);
void make_progress();           // some of what is queued may be done now: SIM_SEED says whether
void wait_for(CUstream_st *s);  // until its queue is empty; NULL: until all are
void wait_for(uint32_t op);

// --- cudart_graph.cpp ------------------------------------------------------------------------------------------------

// A call that makes the host wait, or one that is as bad, while a stream is captured.
cudaError_t not_in_capture(const char *call);

// --- cudart.cpp ------------------------------------------------------------------------------------------------------

enum plan { GOES_WELL, NOT_LAUNCHED, FAILS_LATER };
plan planned(const char *kernel);  // SIM_FAIL
int shared_limit();
unsigned slowness();  // SIM_SLOW

}  // namespace simt

// How much the host has submitted so far: "kernels", "copies", "sets", "graphs", or "others": events, waits for them,
// and calls of other libraries. A program that may run on a GPU too declares it weak.
extern "C" long sim_submitted(const char *what);

#endif
