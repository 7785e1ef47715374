// test/sim/launch.h: what a kernel's file, the device side and the host side of the simulator all know: a launch that
// waits in a queue.
#ifndef TEST_SIM_LAUNCH_H
#define TEST_SIM_LAUNCH_H

#include <cuda_runtime.h>
#include <memory>
#include <stddef.h>

namespace simt {

// A kernel with its arguments, evaluated when it was launched. call(args) runs one thread of it, with copies of the
// arguments of its own.
struct Body {
    void (*call)(void *);
    std::shared_ptr<void> args;
};

// Host side: queues a grid on a stream; what is wrong with the launch is the answer of cudaGetLastError(), and a
// finding.
void enqueue_kernel(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                    const Body &body);

}  // namespace simt
#endif
