// gpu/cpu/cpu.h: what the parts of the CPU device share.
#ifndef GPU_CPU_CPU_H
#define GPU_CPU_CPU_H

#include "gpu/cpu/pool.h"
#include "gpu/gpu.h"
#include "gpu/ops.h"

typedef struct queue queue;

struct stream {
    device *dev;
    pool *workers;  // NULL on a queue stream: operations are queued inside stream_call only
    queue *queue;   // NULL on a compute stream: work is done when the call returns
};

// gpu/cpu/stream.c
err_t cpu_stream_open(device *d, pool *workers, stream **out);
err_t cpu_stream_open_queue(device *d, stream **out);
void cpu_stream_close(stream *s);
err_t cpu_stream_wait(stream *s);
err_t cpu_stream_call(stream *s, stream_function fn, const void *ctx, size_t bytes);
void *cpu_stream_native(stream *s);
err_t cpu_event_open(device *d, event **out);
err_t cpu_event_open_timed(device *d, event **out);
void cpu_event_close(event *e);
err_t cpu_event_record(event *e, stream *s);
err_t cpu_event_wait(event *e);
err_t cpu_stream_wait_event(stream *s, event *e);
err_t cpu_event_elapsed(event *from, event *to, double *ms);
err_t cpu_copy(stream *s, void *dst, const void *src, size_t bytes);
err_t cpu_zero(stream *s, void *dst, size_t bytes);

// One table for each vector width, made by compiling gpu/cpu/kernel/ once for each: the same source, the same bits.
extern const ops cpu_ops_portable;

// With products = bf16-pairs these take the place of what is in that table. holds: compares this processor's steps with
// the written-down ones.
typedef struct cpu_pairs {
    err_t (*matmul)(const matmul_args *args, stream *s);
    err_t (*attention_forward)(const attention_forward_args *args, stream *s);
    err_t (*attention_backward)(const attention_backward_args *args, stream *s);
    err_t (*attention_past)(const attention_past_args *args, stream *s);
    err_t (*conv_forward)(const conv_forward_args *args, stream *s);
    err_t (*conv_inputs)(const conv_inputs_args *args, stream *s);
    err_t (*conv_weights)(const conv_weights_args *args, stream *s);
    bool (*holds)(void);
} cpu_pairs;
extern const cpu_pairs cpu_pairs_portable;

#if defined(__x86_64__)
extern const ops cpu_ops_avx2, cpu_ops_avx512;
extern const cpu_pairs cpu_pairs_avx2, cpu_pairs_avx512, cpu_pairs_avx512bf16;
#elif defined(__aarch64__)
extern const ops cpu_ops_neon;
extern const cpu_pairs cpu_pairs_neon;
#endif

#endif
