// gpu/gpu.h: devices. A device provides memory, streams, events, and one table of operations (gpu/ops.h). The CPU is a
// device like any other: its compute streams work immediately, its pinned memory is page-aligned memory.
#ifndef GPU_GPU_H
#define GPU_GPU_H

#include "base/err.h"
#include "base/words.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// --- tensors ---------------------------------------------------------------------------------------------------------

typedef enum dtype { FP32, BF16, FP16, FP64, INT32, UINT8 } dtype;

enum { TENSOR_DIMS = 4 };

// Dense, row-major, no strides: a view is another tensor over the same data.
typedef struct tensor {
    void *data;
    dtype type;
    int dims;
    int64_t size[TENSOR_DIMS];
} tensor;

static inline const char *dtype_name(dtype t) {
    static const char *const name[] = {
        [FP32] = "fp32", [BF16] = "bf16", [FP16] = "fp16", [FP64] = "fp64", [INT32] = "int32", [UINT8] = "uint8"};
    return name[t];
}

static inline size_t dtype_bytes(dtype t) { return t == FP64 ? 8 : t == BF16 || t == FP16 ? 2 : t == UINT8 ? 1 : 4; }

// Elements of a shape.
static inline int64_t shape_count(int dims, const int64_t *size) {
    int64_t n = 1;
    for (int i = 0; i < dims; i++) n *= size[i];
    return n;
}

static inline int64_t tensor_count(const tensor *t) { return shape_count(t->dims, t->size); }

static inline size_t tensor_bytes(const tensor *t) { return (size_t)tensor_count(t) * dtype_bytes(t->type); }

// A view of t's first elements under another shape (never larger than t: asserted by users in debug builds).
static inline tensor tensor_view(const tensor *t, int dims, int64_t s0, int64_t s1, int64_t s2, int64_t s3) {
    return (tensor){t->data, t->type, dims, {s0, s1, s2, s3}};
}
#define view1(t, a) tensor_view((t), 1, (a), 1, 1, 1)
#define view2(t, a, b) tensor_view((t), 2, (a), (b), 1, 1)
#define view3(t, a, b, c) tensor_view((t), 3, (a), (b), (c), 1)

// Rows first .. first+count-1 of t: a view of part of dimension 0.
static inline tensor tensor_rows(const tensor *t, int64_t first, int64_t count) {
    tensor part = *t;
    part.data = (char *)t->data + (size_t)(first * shape_count(t->dims - 1, t->size + 1)) * dtype_bytes(t->type);
    part.size[0] = count;
    return part;
}

// One of the named values that a sample consists of: what a data source delivers and what a model reads.
enum { SPEC_NAME = 32 };
typedef struct tensor_spec {
    char name[SPEC_NAME];
    dtype type;  // INT32, FP32 or UINT8
    int dims;
    int64_t size[TENSOR_DIMS - 1];  // of one sample
    int64_t limit;                  // INT32: values are 0 .. limit-1; 0: any
} tensor_spec;

static inline size_t spec_bytes(const tensor_spec *x) {
    return (size_t)shape_count(x->dims, x->size) * dtype_bytes(x->type);
}

// --- devices ---------------------------------------------------------------------------------------------------------

typedef struct device device;
typedef struct stream stream;
typedef struct event event;
struct ops;

#define DEVICE_WORDS(X) \
    X(DEVICE_AUTO, "auto") \
    X(DEVICE_CPU, "cpu") \
    X(DEVICE_CUDA, "cuda")
typedef enum device_kind { DEVICE_WORDS(WORD_ENUM) } device_kind;

#define WIDTH_WORDS(X) \
    X(WIDTH_AUTO, "auto") \
    X(WIDTH_AVX512BF16, "avx512bf16") \
    X(WIDTH_AVX512, "avx512") \
    X(WIDTH_AVX2, "avx2") \
    X(WIDTH_NEON, "neon") \
    X(WIDTH_PORTABLE, "portable")
typedef enum vector_width { WIDTH_WORDS(WORD_ENUM) } vector_width;

// What matmul, attention and convolutions multiply: what is stored, widened to FP32; or, on CPUs, BF16 numbers in pairs
// (gpu/cpu/kernel/products.h).
#define PRODUCTS_WORDS(X) \
    X(PRODUCTS_FP32, "fp32") \
    X(PRODUCTS_BF16_PAIRS, "bf16-pairs")
typedef enum products { PRODUCTS_WORDS(WORD_ENUM) } products;
static inline const char *products_name(products p) {
    static const char *const names[] = {PRODUCTS_WORDS(WORD_STRING)};
    return names[p];
}

typedef struct device_options {
    device_kind kind;    // DEVICE_AUTO: CUDA where there is a driver and a device, else CPU
    int index;           // CUDA device
    int threads;         // CPU: 0 = every core this process may use
    vector_width width;  // CPU: WIDTH_AUTO = the widest this machine has. Bits do not depend on it
    products products;   // ... on this they do. A GPU has PRODUCTS_FP32 only
    bool check;          // CUDA: wait after every launch, so that a failure names its kernel; slow
    bool profile;        // measure every operation (gpu/profile.h)
    const char *why;     // why this kind, for device_about; NULL: as the INI says
} device_options;

enum { DEVICE_BUS = 32 };
typedef struct device_info {
    device_kind kind;
    char name[96];     // "cpu avx512 x2 threads"
    char choice[256];  // why this device: "auto: built without CUDA"
    int threads;
    char bus_id[DEVICE_BUS];  // a GPU's on the PCI bus: "0000:41:00.0"; "" of a CPU
} device_info;

// ERR_UNAVAILABLE says what is missing and what to do.
err_t device_open(device **out, const device_options *o);
void device_close(device *d);
// From the next call on matmul, attention and convolutions multiply these: for weights that were trained so. Call it
// while the device is idle. ERR_UNAVAILABLE: a device that has FP32 only.
err_t device_set_products(device *d, products p);
// How many devices of this kind this process sees: 1 CPU; as many GPUs as the driver shows, 0 without a driver. The
// call initialises CUDA: a process that will fork must call it in a child.
int device_count(device_kind kind);
// A GPU's address on the PCI bus, as device_info has it, without opening it. Initialises CUDA. False: no such device.
bool device_bus(device_kind kind, int index, char dst[DEVICE_BUS]);
// Whether this machine's CPU multiplies pairs of BF16 numbers by an instruction of its own.
bool cpu_has_native_pairs(void);
// And faster than by FMAs, which is measured (0.1 ms): products = bf16-pairs then has up to twice the rate of FP32.
bool cpu_native_pairs_pay(void);

// What DEVICE_AUTO means on this machine, found in a child process. ERR_UNAVAILABLE: there can be no child.
typedef struct device_found {
    device_kind kind;  // CPU or CUDA
    char why[256];     // "auto chose the CPU (...)"
    char gpu[64];      // a GPU on this machine's PCI bus, whether it can be used or not; "" where there is none
} device_found;
err_t device_find(device_found *out);
// device_found.gpu, of the machine whose files are under root ("" for this one)
void device_on_board(const char *root, char dst[64]);
const device_info *device_about(const device *d);
const struct ops *device_ops(const device *d);

// Readings of a device's sensors. NaN: not known.
enum { LIMITED_POWER = 1, LIMITED_HEAT = 2, LIMITED_BRAKE = 4, LIMITED_HARDWARE = 8, LIMITED_UNKNOWN = 16 };
typedef struct device_sensors {
    // power it draws, its temperature, clock of its processors: now, or over the last second
    double watts, celsius, mhz;
    double joules;  // used since some time in the past: use the difference of two readings
    // Why its clocks are lowered, bits: its power cap, heat, a brake of the power supply, its hardware without a reason
    // given. 0: they are not lowered; LIMITED_UNKNOWN, alone: not known.
    unsigned limited;
} device_sensors;

// A CUDA device: readings of the whole GPU, also where only a part of it (MIG) is used, from NVML. A CPU: joules of all
// processors of the machine, by all processes, from RAPL; that counter wraps in some minutes, so read it at least once
// a minute. Never waits for work queued on the device. The first call opens the source; later ones use no heap of ours
// and take up to some ms. ERR_UNAVAILABLE: nothing is known, and why.
err_t device_sense(device *d, device_sensors *out);

// Bytes of a GPU's memory that are in use, by anyone, and that it has. Never waits for work queued on the device.
// ERR_UNAVAILABLE: a device without memory of its own.
err_t device_memory(device *d, int64_t *used, int64_t *total);

// "power", "heat+hardware", "no" into dst; "" of LIMITED_UNKNOWN. Returns dst.
enum { LIMITED_TEXT = 32 };
const char *device_limited_text(unsigned limited, char dst[LIMITED_TEXT]);

typedef enum memory_kind { MEMORY_DEVICE, MEMORY_PINNED } memory_kind;

// Zero-filled, page-aligned. ERR_INTERNAL with the size when there is not enough.
err_t device_alloc(device *d, memory_kind kind, size_t bytes, void **out);
void device_free(device *d, memory_kind kind, void *p, size_t bytes);

// --- what bits depend on ---------------------------------------------------------------------------------------------

enum { DEVICE_ARITHMETIC = 160, DEVICE_PLAN = 1024 };  // bytes of a text, its NUL included

// What the bits of this device's results depend on, apart from the computation itself, as one line. "cpu" for every
// CPU. For a GPU: its architecture, its number of processors, the library that multiplies and, where the driver
// compiles the kernels, the driver: "cuda sm_90 132 SMs cuBLASLt 13.1.0". Two devices with the same line and the same
// plans compute the same bits.
void device_arithmetic(const device *d, char *dst, size_t room);

// When the device first meets a matrix shape it chooses how to multiply it, and keeps that choice: a plan, one line of
// ASCII, which can be stored and set on another device with the same device_arithmetic(). Gets plan `index` of the
// device, in arbitrary order; false past the last one. A CPU has none.
bool device_plans_get(const device *d, int index, char text[DEVICE_PLAN]);

// Adds the plan to the device, which uses it unchanged and keeps it until it is closed. Call it before the shape is
// met; after that it only confirms that the device has the same plan. ERR_DATA: the text is damaged; ERR_CONFIG:
// refused, by name: from another version, not possible on this device, or different from the plan that the device has
// already; ERR_UNAVAILABLE: a device without plans, or no room for more.
err_t device_plans_set(device *d, const char *text);

// Measures the algorithms that the device could use for this plan, on random operands of its own, and gives the fastest
// of those that compute the same bits again, and for a part of the rows the same as for all of them. Sets nothing.
// ERR_UNAVAILABLE: a device without plans, or too little memory; else as device_plans_set.
enum { PLAN_NAME = 256 };
typedef struct plan_tuning {
    char text[DEVICE_PLAN], name[PLAN_NAME];
    double first_ms, best_ms;  // of the heuristic's first choice (0: it has none), and of the plan in `text`
    double flops;
    int tried, refused;  // refused: other bits
} plan_tuning;
err_t device_plans_tune(device *d, stream *s, const char *text, plan_tuning *out);

// --- streams and events ----------------------------------------------------------------------------------------------

// A compute stream: operations (gpu/ops.h) are queued on it. On a CPU they are done when the call returns.
err_t stream_open(device *d, stream **out);
// A stream that runs in parallel with the compute stream on any device: on a CPU it has a thread of its own. Only
// stream_call, copies, zeroes and events are queued on it.
err_t stream_open_queue(device *d, stream **out);
void stream_close(stream *s);  // after what was queued is done
err_t stream_wait(stream *s);  // the host waits until all that was queued is done; returns the first failure of it

// Runs fn(copy of ctx, inner) in the order of the stream; fn may queue operations on `inner`. On a CPU's queue stream
// fn runs later, in the stream's thread, with a compute stream of one thread; otherwise it runs immediately, with s
// itself. After a failure nothing more is run; stream_wait and the waits for later events return the failure. Returns
// what is known now.
enum { STREAM_CALL = 96 };  // most bytes of ctx
typedef err_t (*stream_function)(void *ctx, stream *inner);
err_t stream_call(stream *s, stream_function fn, const void *ctx, size_t bytes);

// The stream as other libraries need it: a cudaStream_t; NULL on a CPU.
void *stream_native(stream *s);

err_t event_open(device *d, event **out);
void event_close(event *e);
err_t event_record(event *e, stream *s);
err_t event_wait(event *e);                    // the host waits
err_t stream_wait_event(stream *s, event *e);  // later work of s waits

// An event that also notes the time when it was reached, for measuring. It costs the stream a little more, and it can't
// be recorded inside a recording.
err_t event_open_timed(device *d, event **out);
// Milliseconds between two timed events, by the device's clock. Never waits: the caller must know that both are
// reached, by a later event; ERR_INTERNAL when one of them is not.
err_t event_elapsed(event *from, event *to, double *ms);

// Queued on s. Either side may be host (pinned) or device memory; a pageable host side makes the call wait.
err_t stream_copy(stream *s, void *dst, const void *src, size_t bytes);
err_t stream_zero(stream *s, void *dst, size_t bytes);

// --- recordings ------------------------------------------------------------------------------------------------------

// The work that a sequence of calls queued, which can be queued again as a whole: a CUDA graph. Addresses, sizes and
// numbers passed by value are those of the recorded calls; what changes from one run to the next is read from device
// memory. Only where device_records() is true.
typedef struct recording recording;

bool device_records(const device *d);
// Between begin and end nothing runs, and nothing may be waited for. After end the stream is as before; on failure
// nothing is recorded.
err_t stream_record_begin(stream *s);
err_t stream_record_end(stream *s, recording **out);
err_t recording_run(recording *r, stream *s);
void recording_close(recording *r);

// --- arenas ----------------------------------------------------------------------------------------------------------

enum { ARENA_ALIGN = 256 };  // bytes: where a tensor begins; what cudaMalloc promises, and four cache lines

// Memory that is planned before it is allocated: every tensor is declared, then one allocation gives all of them their
// data. After arena_commit nothing more is allocated. `lockstep plan` prints `bytes`.
typedef struct arena {
    device *dev;
    memory_kind kind;
    char *base;
    size_t bytes;  // planned so far, padding included
    int count, room;
    struct arena_item {
        tensor *t;
        size_t offset;
    } * items;
} arena;

void arena_open(arena *a, device *d, memory_kind kind);

// Declares t: its type and shape are set now, its data at commit. t must not move until then.
err_t arena_tensor(arena *a, tensor *t, dtype type, int dims, int64_t s0, int64_t s1, int64_t s2, int64_t s3);
#define arena_1d(a, t, type, n) arena_tensor((a), (t), (type), 1, (n), 1, 1, 1)
#define arena_2d(a, t, type, m, n) arena_tensor((a), (t), (type), 2, (m), (n), 1, 1)
#define arena_3d(a, t, type, l, m, n) arena_tensor((a), (t), (type), 3, (l), (m), (n), 1)

// Addresses as a commit would give, of memory that does not exist: for calls of ops_on_paper, which touch none. A
// commit may follow.
void arena_imagine(arena *a);
err_t arena_commit(arena *a);
void arena_close(arena *a);

#endif
