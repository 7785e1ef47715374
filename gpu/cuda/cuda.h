// gpu/cuda/cuda.h: the CUDA device from inside. Host code in C (device.c, stream.c, memory.c, matmul.c), kernels in .cu
// files: one for each family of operations, each with its launches, which are the entries of the table (table.c).
//
//   order     A compute stream and a queue stream are both a non-blocking cudaStream_t; nothing here uses the default
//             stream
//   scratch   Every stream has CUDA_SCRATCH bytes of device memory for the operations queued on it: partial sums. It
//             belongs to one operation at a time; the next one overwrites it. Reductions size their grids so that they
//             fit. A compute stream has more for matrix products: cuBLASLt's workspace, and room beside it
//   bits      No float atomics. Grids, block sizes and the split of sums follow from shapes alone, never from the
//             device's load
//   failures  CUDA(call) turns a status into a record with the call, file and line. A kernel's launch is noted
//             (LAUNCH). When the device fails later on, the message names the last launches; [device] check = yes finds
//             the one that failed
#ifndef GPU_CUDA_CUDA_H
#define GPU_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "gpu/backend.h"

#include <assert.h>

enum { CUDA_SCRATCH = 32 << 20 };  // bytes
enum {
    CUDA_WORKSPACE = 96 << 20,  // for cuBLASLt: as FP32, four partial sums of 8,192 rows of 768
    CUDA_ROOM = 32 << 20,       // for a sum that comes in parts, or a bias as FP32
};
enum { CUDA_LAUNCHES = 16 };  // remembered for a message

typedef struct launch_note {
    const char *kernel, *file;
    int line;
} launch_note;

typedef struct cuda_device cuda_device;

struct stream {
    device *dev;
    cudaStream_t native;
    void *scratch;    // CUDA_SCRATCH bytes on the device
    void *workspace;  // CUDA_WORKSPACE + CUDA_ROOM bytes; NULL: a queue stream
    bool recording;   // launches are recorded and do not run
};

struct event {
    device *dev;
    cudaEvent_t native;
    stream *on;  // where it was recorded last, for messages
    bool timed;
};

typedef struct matmul_plans matmul_plans;  // matmul.c

struct cuda_device {
    device head;
    int index;   // device number
    bool check;  // wait after every launch, to name the one that failed
    // the last launches, on whatever stream: a failure on one of them is returned by any
    launch_note note[CUDA_LAUNCHES];
    int64_t launches;
    matmul_plans *plans;
    struct nvml *sensors;  // opened at the first reading
    char arithmetic[DEVICE_ARITHMETIC];
};

// ERR_OK, or the record of a failed call: code by kind (no memory and a lost device are ERR_UNAVAILABLE), text with the
// call, CUDA's name and description of the error, and a hint.
err_t cuda_status(cudaError_t e, const char *call, const char *file, int line);
#define CUDA(call) TRY(cuda_status((call), #call, __FILE__, __LINE__))

// ", held by process ...", or "" where that is not known. Returns dst.
enum { CUDA_HOLDERS = 320 };
const char *cuda_holders(int index, char dst[CUDA_HOLDERS]);

// Device memory, not cleared. ERR_UNAVAILABLE says how much there is, and which processes hold the rest.
err_t cuda_malloc(device *d, size_t bytes, void **out);

// Call after a launch: notes it, and returns an error that is already known (with check: any error of it).
err_t cuda_launched(stream *s, const char *kernel, const char *file, int line);

// Waits for the host's side; e is what a synchronising call on s returned.
err_t cuda_finished(stream *s, cudaError_t e, const char *file, int line);

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// --- backend ---------------------------------------------------------------------------------------------------------

err_t cuda_sense(device *d, device_sensors *out);
err_t cuda_memory(device *d, int64_t *used, int64_t *total);
err_t cuda_alloc(device *d, memory_kind kind, size_t bytes, void **out);
void cuda_free(device *d, memory_kind kind, void *p, size_t bytes);
err_t cuda_stream_open(device *d, stream **out);
err_t cuda_stream_open_queue(device *d, stream **out);
void cuda_stream_close(stream *s);
err_t cuda_stream_call(stream *s, stream_function fn, const void *ctx, size_t bytes);
void *cuda_stream_native(stream *s);
err_t cuda_stream_wait(stream *s);
err_t cuda_event_open(device *d, event **out);
err_t cuda_event_open_timed(device *d, event **out);
void cuda_event_close(event *e);
err_t cuda_event_record(event *e, stream *s);
err_t cuda_event_wait(event *e);
err_t cuda_stream_wait_event(stream *s, event *e);
err_t cuda_event_elapsed(event *from, event *to, double *ms);
err_t cuda_copy(stream *s, void *dst, const void *src, size_t bytes);
err_t cuda_zero(stream *s, void *dst, size_t bytes);
err_t cuda_record_begin(stream *s);
err_t cuda_record_end(stream *s, recording **out);
err_t cuda_recording_run(recording *r, stream *s);
void cuda_recording_close(recording *r);

// --- operations: gpu/ops.h says what they compute --------------------------------------------------------------------

#define CUDA_DECLARATION(op) err_t cuda_##op(const op##_args *args, stream *s);
OPS(CUDA_DECLARATION)
#undef CUDA_DECLARATION

// --- matrix products -------------------------------------------------------------------------------------------------

err_t matmul_plans_open(matmul_plans **out, cuda_device *d);
void matmul_plans_close(matmul_plans *p);
size_t matmul_plans_library(const matmul_plans *p);  // its version, as cublasLtGetVersion says it
bool cuda_plans_get(const device *d, int index, char text[DEVICE_PLAN]);
err_t cuda_plans_set(device *d, const char *text);
err_t cuda_plans_tune(device *d, stream *s, const char *text, plan_tuning *out);

// --- machine code ----------------------------------------------------------------------------------------------------

// For this binary's kernels as the driver has loaded them: the compute capability (90: 9.0) of their machine code, and
// that of the PTX from which it was made.
err_t cuda_kernel_code(int *machine, int *ptx);  // elementwise.cu

#ifdef __cplusplus
}
#endif
#endif
