// gpu/peak.c: see gpu/peak.h.
#include "gpu/peak.h"

#include "base/clock.h"
#include "gpu/chains.h"
#include "gpu/ops.h"

#include <pthread.h>

typedef struct spin {
    chain_kind kind;
    double done;  // multiply-adds
    float sum;
} spin;

static void *spin_run(void *p) {
    spin *s = p;
    s->done = chains_run(s->kind, 4000000, &s->sum);
    return NULL;
}

static double rate_of_chains(chain_kind kind, int threads) {
    enum { MOST = 256 };
    pthread_t id[MOST];
    spin s[MOST];
    double best = 0;
    if (threads > MOST) return 0;
    for (int round = 0; round < 20; round++) {
        int n = 0;
        double start = clock_now(), done = 0;
        for (; n < threads; n++) {
            s[n] = (spin){.kind = kind};
            if (pthread_create(&id[n], NULL, spin_run, &s[n])) break;
        }
        for (int i = 0; i < n; i++) pthread_join(id[i], NULL), done += s[i].done;
        double rate = 2 * done / (clock_now() - start);
        if (rate > best) best = rate;
    }
    return best;
}

double peak_fma(int threads) { return rate_of_chains(CHAIN_FMA, threads); }
double peak_pairs(int threads) { return cpu_native_pairs_pay() ? rate_of_chains(CHAIN_PAIRS, threads) : 0; }

// Best of several rounds of `calls` calls; negative when one failed.
static double best_seconds(const ops *o, stream *s, int rounds, int calls,
                           err_t (*call)(const ops *o, tensor *t, stream *s), tensor *t) {
    double best = 1e30;
    for (int k = 0; k < rounds; k++) {
        double start = clock_now();
        for (int i = 0; i < calls; i++)
            if (call(o, t, s) != ERR_OK) return -1;
        if (stream_wait(s) != ERR_OK) return -1;
        double spent = (clock_now() - start) / calls;
        if (spent < best) best = spent;
    }
    return best;
}

static err_t triad(const ops *o, tensor *t, stream *s) {
    return o->add(&(add_args){.y = &t[0], .a = &t[1], .b = &t[2]}, s);
}
static err_t copy(const ops *o, tensor *t, stream *s) {
    return (void)o, stream_copy(s, t[0].data, t[1].data, tensor_bytes(t));
}
static err_t product(const ops *o, tensor *t, stream *s) {
    return o->matmul(&(matmul_args){.d = &t[0], .a = &t[1], .b = &t[2], .tb = true}, s);
}

// t[0] and what is left out of it, t[1], in codes, t[2]; and back.
static tensor wire_of(const tensor *t, codec c) {
    return (tensor){t[2].data, UINT8, 1, {(int64_t)codec_bytes(c, tensor_count(&t[0])), 1, 1, 1}};
}
static err_t encode_as(codec c, const ops *o, tensor *t, stream *s) {
    tensor wire = wire_of(t, c);
    return o->encode(&(encode_args){.wire = &wire, .residual = &t[1], .x = &t[0], .codec = c}, s);
}
static err_t decode_as(codec c, const ops *o, tensor *t, stream *s) {
    tensor wire = wire_of(t, c);
    return o->decode(&(decode_args){.y = &t[0], .wire = &wire, .codec = c, .add = true}, s);
}
static err_t encode_int8(const ops *o, tensor *t, stream *s) { return encode_as(CODEC_INT8, o, t, s); }
static err_t encode_fp16(const ops *o, tensor *t, stream *s) { return encode_as(CODEC_FP16, o, t, s); }
static err_t decode_int8(const ops *o, tensor *t, stream *s) { return decode_as(CODEC_INT8, o, t, s); }
static err_t decode_fp16(const ops *o, tensor *t, stream *s) { return decode_as(CODEC_FP16, o, t, s); }

// Seconds of `call` on three tensors of random numbers of one shape; not positive when there is no memory for them or
// the call failed. On zeros a GPU's product runs a tenth faster than on any data: fewer bits change, and its clocks
// stay higher.
static double time_of(device *d, stream *s, int rounds, int calls, err_t (*call)(const ops *o, tensor *t, stream *s),
                      tensor shape) {
    tensor t[3] = {shape, shape, shape};
    bool ok = true;
    for (int i = 0; i < 3 && ok; i++)
        ok = device_alloc(d, MEMORY_DEVICE, tensor_bytes(&t[i]), &t[i].data) == ERR_OK &&
             device_ops(d)->random_fill(&(random_fill_args){.y = &t[i], .seed = (uint64_t)i + 1}, s) == ERR_OK;
    double best = ok ? best_seconds(device_ops(d), s, rounds, calls, call, t) : -1;
    for (int i = 0; i < 3; i++)
        if (t[i].data) device_free(d, MEMORY_DEVICE, t[i].data, tensor_bytes(&t[i]));
    return best;
}

// a = b + c moves 12 bytes an element, a copy 8.
double peak_bandwidth(device *d, stream *s, int64_t scale) {
    bool cuda = device_about(d)->kind == DEVICE_CUDA;
    int64_t n = ((1 << 25) + scale - 1) / scale;
    tensor shape = {NULL, FP32, 1, {cuda ? 2 * n : n, 1, 1, 1}};
    double best = cuda ? time_of(d, s, 5, 10, copy, shape) : time_of(d, s, 20, 1, triad, shape);
    return best > 0 ? (cuda ? 8.0 : 12.0) * (double)shape.size[0] / best : 0;
}

peak_codec peak_codes(device *d, stream *s, codec c, int64_t scale) {
    int64_t n = ((1 << 23) + scale - 1) / scale;
    tensor shape = {NULL, FP32, 1, {n, 1, 1, 1}};
    double encode = time_of(d, s, 10, 1, c == CODEC_INT8 ? encode_int8 : encode_fp16, shape),
           decode = time_of(d, s, 10, 1, c == CODEC_INT8 ? decode_int8 : decode_fp16, shape);
    if (!(encode > 0) || !(decode > 0)) return (peak_codec){0};
    return (peak_codec){(double)n / encode, (double)n / decode};
}

static double rate_of(double n, double seconds) { return seconds > 0 ? 2 * n * n * n / seconds : 0; }

// A large product is nearer to the peak, and a long one is timed better. A GPU's first product of a size chooses how to
// compute it, so there are two at least; several are queued at once, so that queueing them does not count.
double peak_matmul_within(device *d, stream *s, dtype type, double seconds) {
    enum { LEAST = 256, MOST = 4096 };
    bool cuda = device_about(d)->kind == DEVICE_CUDA;
    double start = clock_now(), best = 0, enough = cuda ? 1e-3 : 4e-4;
    for (int64_t n = LEAST; n <= MOST; n *= 2) {
        tensor shape = {NULL, type, 2, {n, n, 1, 1}};
        double took = time_of(d, s, 2, cuda ? 4 : 1, product, shape);
        if (!(took > 0)) break;
        best = rate_of((double)n, took) > best ? rate_of((double)n, took) : best;
        double spent = clock_now() - start;
        // the next one takes eight times as long, twice
        bool last = took > enough || 2 * n > MOST || spent + 20 * took > seconds;
        if (!last) continue;
        if (spent + 4 * took < seconds) took = time_of(d, s, 4, cuda ? 4 : 1, product, shape);
        return took > 0 && rate_of((double)n, took) > best ? rate_of((double)n, took) : best;
    }
    return best;
}

double peak_matmul(device *d, stream *s, dtype type, int64_t n) {
    double best = time_of(d, s, 3, 3, product, (tensor){NULL, type, 2, {n, n, 1, 1}});
    return best > 0 ? 2.0 * (double)n * (double)n * (double)n / best : 0;
}
