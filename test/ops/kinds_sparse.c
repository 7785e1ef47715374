// test/ops/kinds_sparse.c: the largest elements of what has gathered. The reference sorts a chunk's elements, and works
// in FP32 as the contract says, one after the other; nothing of it may differ.
#include "test/ops/op_test.h"
#include "test/ops/reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ES_WIRE, ES_VELOCITY, ES_RESIDUAL, ES_X, ES_STATE, ES_CLIP };
enum { DS_Y, DS_WIRE };
#define MOMENTUM 0.9f
#define CLIPPED 0.0003f  // of the gradient, its scale included

static int64_t chunk_end(int64_t from, int64_t n) { return from + CHUNK < n ? from + CHUNK : n; }

typedef struct candidate {
    float size;
    int64_t at;
} candidate;

static int larger_first(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? 1 : -1;
    return x->at < y->at ? -1 : 1;
}

static int lower_first(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

// first[k] = where the k largest of v[n] are, ascending. False: one of v is not finite once it is scaled.
static bool largest_of(const float *v, int64_t n, float by, int64_t k, candidate *first) {
    candidate *all = calloc((size_t)n, sizeof *all);
    bool finite = true;
    for (int64_t i = 0; i < n; i++) {
        finite = finite && isfinite(v[i] * by);
        all[i] = (candidate){fabsf(v[i]), i};
    }
    if (finite) qsort(all, (size_t)n, sizeof *all, larger_first);
    memcpy(first, all, (size_t)k * sizeof *all);
    if (finite) qsort(first, (size_t)k, sizeof *first, lower_first);
    free(all);
    return finite;
}

// --- encode_sparse: n, kept of a chunk -------------------------------------------------------------------------------

// A chunk each: not a number, infinite, too large once scaled, all equal, differing in the last bits, denormal, zeros,
// many magnitudes.
static void extreme(double *x, double *residual, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double u = loss_weight(i);
        residual[i] = u;
        switch (i / CHUNK % 9) {
        case 0: x[i] = i == 77 ? NAN : u; break;
        case 1: x[i] = i == CHUNK + 99 ? -INFINITY : u; break;
        case 2: residual[i] = i % CHUNK == 9 ? 1e36 : u; break;
        case 3: residual[i] = i % 3 ? 1 : -1; break;
        case 4: residual[i] = 1 + (double)(i * 7 % 64) * 0x1p-23; break;
        case 5: residual[i] = u * 0x1p-130; break;
        case 6: residual[i] = i % 2 ? 0.0 : -0.0; break;
        case 7: residual[i] = u * exp2(60 * loss_weight(3 * i + 1)); break;
        default: x[i] = u; break;
        }
    }
}

static void encode_sparse_setup(op_run *r) {
    int64_t n = r->row->size[0], kept = r->row->size[1];
    arg_add(r, "wire", OUT, UINT8, 1, (int64_t)sparse_bytes(n, kept), 0, 0);
    arg *velocity = arg_add(r, "velocity", UPDATES, FP32, 1, n, 0, 0),
        *residual = arg_add(r, "residual", UPDATES, FP32, 1, n, 0, 0), *x = arg_add(r, "x", IN, FP32, 1, n, 0, 0);
    arg *state = arg_add(r, "state", IN, INT32, 1, sizeof(step_state) / 4, 0, 0);
    r->state = (step_state){.loss_scale = 1024};
    arg_fill_bytes(state, &r->state);
    state->absent = kept == CHUNK;
    arg *clip = arg_add(r, "clip", IN, INT32, 1, sizeof(step_state) / 4, 0, 0);
    arg_fill_bytes(clip, &(step_state){.loss_scale = 2, .grad_factor = CLIPPED});
    clip->absent = !(r->row->options & OPT_FACTOR);
    if (r->row->options & OPT_EXTREME) {
        double *values = calloc((size_t)n * 3, sizeof *values);
        extreme(values, values + n, n);
        arg_fill_with(r, x, values);
        arg_fill_with(r, residual, values + n);
        arg_fill_with(r, velocity, values + 2 * n);
        free(values);
    } else {
        arg_fill(r, x, 3, 0);
        arg_fill(r, velocity, 3e-3, 0);
        arg_fill(r, residual, 5e-3, 0);
    }
}

static err_t encode_sparse_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->encode_sparse(&(encode_sparse_args){.wire = t[ES_WIRE],
                                                  .velocity = t[ES_VELOCITY],
                                                  .residual = t[ES_RESIDUAL],
                                                  .x = t[ES_X],
                                                  .kept = r->row->size[1],
                                                  .momentum = MOMENTUM,
                                                  .nesterov = (r->row->options & OPT_NESTEROV) != 0,
                                                  .state = t[ES_STATE] ? (const step_state *)t[ES_STATE]->data : NULL,
                                                  .clip = t[ES_CLIP] ? (const step_state *)t[ES_CLIP]->data : NULL},
                            s);
}

// u[n], v[n] (=) velocity and residual with the gradient, before anything is sent.
static void gather(const op_run *r, float by, float *u, float *v) {
    for (int64_t i = 0; i < r->row->size[0]; i++) {
        float x = (float)r->arg[ES_X].value[i], g = r->arg[ES_CLIP].absent ? x / by : x * CLIPPED,
              old = MOMENTUM * (float)r->arg[ES_VELOCITY].value[i];
        u[i] = old + g;
        float ahead = MOMENTUM * u[i], d = r->row->options & OPT_NESTEROV ? g + ahead : u[i];
        v[i] = (float)r->arg[ES_RESIDUAL].value[i] + d;
    }
}

// One chunk of the reference: what is sent, and what is left of u[n] and v[n].
static void send_chunk(op_run *r, int64_t from, int64_t n, float by, float *u, float *v, unsigned char *wire) {
    int64_t all = r->row->size[0], kept = r->row->size[1], k = sparse_of_chunk(n, kept), first = from / CHUNK * kept;
    candidate *sent = calloc((size_t)k, sizeof *sent);
    bool finite = largest_of(v, n, by, k, sent);
    for (int64_t i = 0; i < k; i++) {
        float value = finite ? v[sent[i].at] * by : NAN;
        uint16_t at = (uint16_t)(finite ? sent[i].at : i);
        memcpy(wire + (first + i) * 4, &value, 4);
        memcpy(wire + sparse_values(all, kept) + (first + i) * 2, &at, 2);
        if (finite) u[at] = v[at] = 0;
    }
    for (int64_t i = 0; i < n; i++) {
        r->arg[ES_VELOCITY].want[from + i] = finite ? (double)u[i] : r->arg[ES_VELOCITY].value[from + i];
        r->arg[ES_RESIDUAL].want[from + i] = finite ? (double)v[i] : r->arg[ES_RESIDUAL].value[from + i];
    }
    free(sent);
}

static void encode_sparse_reference(op_run *r) {
    int64_t n = r->row->size[0];
    size_t bytes = sparse_bytes(n, r->row->size[1]);
    float *u = calloc((size_t)n, sizeof *u), *v = calloc((size_t)n, sizeof *v), by = r->arg[ES_STATE].absent ? 1 : 1024;
    unsigned char *wire = calloc(1, bytes);
    gather(r, by, u, v);
    for (int64_t from = 0; from < n; from += CHUNK)
        send_chunk(r, from, chunk_end(from, n) - from, by, u + from, v + from, wire);
    for (size_t i = 0; i < bytes; i++) r->arg[ES_WIRE].want[i] = wire[i];
    free(u), free(v), free(wire);
}

static bool same_floats(op_run *r, const outcome *got, int which) {
    for (int64_t i = 0; i < r->row->size[0]; i++) {
        float now = ((const float *)got->data[which])[i], want = (float)r->arg[which].want[i];
        if (now != want || signbit(now) != signbit(want))
            return failed(r, "%s[%" PRId64 "] is %.9g, expected %.9g to the bit", r->arg[which].name, i, (double)now,
                          (double)want);
    }
    return true;
}

static bool encode_sparse_exact(op_run *r, const outcome *got) {
    for (int64_t i = 0; i < (int64_t)sparse_bytes(r->row->size[0], r->row->size[1]); i++)
        if (got->data[ES_WIRE][i] != (unsigned char)r->arg[ES_WIRE].want[i])
            return failed(r, "byte %" PRId64 " is %d, expected %g", i, got->data[ES_WIRE][i], r->arg[ES_WIRE].want[i]);
    return same_floats(r, got, ES_VELOCITY) && same_floats(r, got, ES_RESIDUAL);
}

static void encode_sparse_traffic(const op_run *r, double *bytes, double *flops) {
    *bytes = arg_traffic(r), *flops = 0;
}
const op_kind kind_encode_sparse = {
    "encode_sparse",     encode_sparse_setup,  encode_sparse_call, encode_sparse_reference, NULL,
    encode_sparse_exact, encode_sparse_traffic};

// --- decode_sparse: n, kept of a chunk -------------------------------------------------------------------------------

// Where the i-th of k sent ones is in a chunk of n: k different places, ascending.
static uint16_t place(int64_t i, int64_t n, int64_t k) { return (uint16_t)((i + 1) * n / k - 1); }

static void decode_sparse_setup(op_run *r) {
    int64_t n = r->row->size[0], kept = r->row->size[1];
    size_t bytes = sparse_bytes(n, kept);
    unsigned char *wire = calloc(1, bytes);
    for (int64_t from = 0, at = 0; from < n; from += CHUNK) {
        int64_t some = chunk_end(from, n) - from, k = sparse_of_chunk(some, kept);
        for (int64_t i = 0; i < k; i++, at++) {
            float value = (float)(7 * loss_weight(at));
            uint16_t index = place(i, some, k);
            memcpy(wire + at * 4, &value, 4), memcpy(wire + sparse_values(n, kept) + at * 2, &index, 2);
        }
    }
    arg_add(r, "y", ADDS, FP32, 1, n, 0, 0);
    arg_fill_bytes(arg_add(r, "wire", IN, UINT8, 1, (int64_t)bytes, 0, 0), wire);
    free(wire);
}

static err_t decode_sparse_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->decode_sparse(&(decode_sparse_args){.y = t[DS_Y], .wire = t[DS_WIRE], .kept = r->row->size[1]}, s);
}

static void decode_sparse_reference(op_run *r) {
    int64_t n = r->row->size[0], kept = r->row->size[1];
    for (int64_t from = 0, at = 0; from < n; from += CHUNK) {
        int64_t some = chunk_end(from, n) - from, k = sparse_of_chunk(some, kept);
        for (int64_t i = 0; i < k; i++, at++)
            r->arg[DS_Y].want[from + place(i, some, k)] = (double)(float)(7 * loss_weight(at));
    }
}

static void decode_sparse_traffic(const op_run *r, double *bytes, double *flops) {
    int64_t n = r->row->size[0], kept = r->row->size[1];
    *bytes = 8.0 * (double)sparse_kept(n, kept) + (double)sparse_bytes(n, kept), *flops = 0;
}
const op_kind kind_decode_sparse = {
    "decode_sparse",      decode_sparse_setup, decode_sparse_call, decode_sparse_reference, NULL, NULL,
    decode_sparse_traffic};
