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

// What is timed, on so many tensors of random numbers of one shape; before: prepares them, once.
typedef struct timed {
    err_t (*call)(const struct timed *x, const ops *o, tensor *t, stream *s);
    err_t (*before)(const struct timed *x, const ops *o, tensor *t, stream *s);
    int tensors;
    codec codec;
    int64_t kept;
} timed;
enum { TENSORS = 4 };

// Best of several rounds of `calls` calls; negative when one failed.
static double best_seconds(const ops *o, stream *s, int rounds, int calls, const timed *x, tensor *t) {
    double best = 1e30;
    for (int k = 0; k < rounds; k++) {
        double start = clock_now();
        for (int i = 0; i < calls; i++)
            if (x->call(x, o, t, s) != ERR_OK) return -1;
        if (stream_wait(s) != ERR_OK) return -1;
        double spent = (clock_now() - start) / calls;
        if (spent < best) best = spent;
    }
    return best;
}

static err_t triad(const timed *x, const ops *o, tensor *t, stream *s) {
    return (void)x, o->add(&(add_args){.y = &t[0], .a = &t[1], .b = &t[2]}, s);
}
static err_t copy(const timed *x, const ops *o, tensor *t, stream *s) {
    return (void)x, (void)o, stream_copy(s, t[0].data, t[1].data, tensor_bytes(t));
}
static err_t product(const timed *x, const ops *o, tensor *t, stream *s) {
    return (void)x, o->matmul(&(matmul_args){.d = &t[0], .a = &t[1], .b = &t[2], .tb = true}, s);
}

// t[0] and what is left out of it, t[1], in codes, t[2]; and back.
static tensor wire_of(const timed *x, const tensor *t) {
    int64_t n = tensor_count(&t[0]);
    size_t bytes = x->kept ? sparse_bytes(n, x->kept) : codec_bytes(x->codec, n);
    return (tensor){t[2].data, UINT8, 1, {(int64_t)bytes, 1, 1, 1}};
}
static err_t encode(const timed *x, const ops *o, tensor *t, stream *s) {
    tensor wire = wire_of(x, t);
    return o->encode(&(encode_args){.wire = &wire, .residual = &t[1], .x = &t[0], .codec = x->codec}, s);
}
static err_t decode(const timed *x, const ops *o, tensor *t, stream *s) {
    tensor wire = wire_of(x, t);
    return o->decode(&(decode_args){.y = &t[0], .wire = &wire, .codec = x->codec, .add = true}, s);
}

// With t[3], the velocity.
static err_t encode_largest(const timed *x, const ops *o, tensor *t, stream *s) {
    tensor wire = wire_of(x, t);
    return o->encode_sparse(
        &(encode_sparse_args){
            .wire = &wire, .velocity = &t[3], .residual = &t[1], .x = &t[0], .kept = x->kept, .momentum = 0.9f},
        s);
}
static err_t decode_largest(const timed *x, const ops *o, tensor *t, stream *s) {
    tensor wire = wire_of(x, t);
    return o->decode_sparse(&(decode_sparse_args){.y = &t[0], .wire = &wire, .kept = x->kept}, s);
}

// Seconds; not positive when there is no memory, or the call failed. On zeros a GPU's product runs a tenth faster than
// on any data: fewer bits change, and its clocks stay higher.
static double time_of(device *d, stream *s, int rounds, int calls, timed x, tensor shape) {
    tensor t[TENSORS] = {shape, shape, shape, shape};
    bool ok = true;
    for (int i = 0; i < x.tensors && ok; i++)
        ok = device_alloc(d, MEMORY_DEVICE, tensor_bytes(&t[i]), &t[i].data) == ERR_OK &&
             device_ops(d)->random_fill(&(random_fill_args){.y = &t[i], .seed = (uint64_t)i + 1}, s) == ERR_OK;
    if (ok && x.before) ok = x.before(&x, device_ops(d), t, s) == ERR_OK;
    double best = ok ? best_seconds(device_ops(d), s, rounds, calls, &x, t) : -1;
    for (int i = 0; i < x.tensors; i++)
        if (t[i].data) device_free(d, MEMORY_DEVICE, t[i].data, tensor_bytes(&t[i]));
    return best;
}

// a = b + c moves 12 bytes an element, a copy 8.
double peak_bandwidth(device *d, stream *s, int64_t scale) {
    bool cuda = device_about(d)->kind == DEVICE_CUDA;
    int64_t n = ((1 << 25) + scale - 1) / scale;
    tensor shape = {NULL, FP32, 1, {cuda ? 2 * n : n, 1, 1, 1}};
    double best = cuda ? time_of(d, s, 5, 10, (timed){.call = copy, .tensors = 3}, shape)
                       : time_of(d, s, 20, 1, (timed){.call = triad, .tensors = 3}, shape);
    return best > 0 ? (cuda ? 8.0 : 12.0) * (double)shape.size[0] / best : 0;
}

static peak_codec both_ways(device *d, stream *s, timed there, timed back, int64_t scale) {
    int64_t n = ((1 << 23) + scale - 1) / scale;
    tensor shape = {NULL, FP32, 1, {n, 1, 1, 1}};
    double coded = time_of(d, s, 10, 1, there, shape), read = time_of(d, s, 10, 1, back, shape);
    if (!(coded > 0) || !(read > 0)) return (peak_codec){0};
    return (peak_codec){(double)n / coded, (double)n / read};
}

peak_codec peak_codes(device *d, stream *s, codec c, int64_t scale) {
    timed there = {.call = encode, .tensors = 3, .codec = c}, back = {.call = decode, .tensors = 3, .codec = c};
    return both_ways(d, s, there, back, scale);
}

peak_codec peak_largest(device *d, stream *s, int64_t kept, int64_t scale) {
    timed there = {.call = encode_largest, .tensors = TENSORS, .kept = kept},
          back = {.call = decode_largest, .before = encode_largest, .tensors = TENSORS, .kept = kept};
    return both_ways(d, s, there, back, scale);
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
        double took = time_of(d, s, 2, cuda ? 4 : 1, (timed){.call = product, .tensors = 3}, shape);
        if (!(took > 0)) break;
        best = rate_of((double)n, took) > best ? rate_of((double)n, took) : best;
        double spent = clock_now() - start;
        // the next one takes eight times as long, twice
        bool last = took > enough || 2 * n > MOST || spent + 20 * took > seconds;
        if (!last) continue;
        if (spent + 4 * took < seconds)
            took = time_of(d, s, 4, cuda ? 4 : 1, (timed){.call = product, .tensors = 3}, shape);
        return took > 0 && rate_of((double)n, took) > best ? rate_of((double)n, took) : best;
    }
    return best;
}

double peak_matmul(device *d, stream *s, dtype type, int64_t n) {
    double best = time_of(d, s, 3, 3, (timed){.call = product, .tensors = 3}, (tensor){NULL, type, 2, {n, n, 1, 1}});
    return best > 0 ? 2.0 * (double)n * (double)n * (double)n / best : 0;
}
