// test/ops/kinds_codec.c: gradients in fewer bits. The reference works in FP32 as the contract says, one element after
// the other; nothing of it may differ.
#include "test/ops/op_test.h"
#include "test/ops/reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EN_WIRE, EN_RESIDUAL, EN_X, EN_STATE };
enum { DE_Y, DE_WIRE };

static void traffic_cost(const op_run *r, double *bytes, double *flops) { *bytes = arg_traffic(r), *flops = 0; }

static codec codec_of(const op_run *r) { return r->row->size[1] ? (codec)r->row->size[1] : CODEC_INT8; }

static float largest(const float *v, int64_t n) {
    float most = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(v[i])) return NAN;
        if (fabsf(v[i]) > most) most = fabsf(v[i]);
    }
    return most;
}

// One span; v becomes what the codes say.
static float code_span(codec c, float *v, int64_t n, unsigned char *code) {
    float most = largest(v, n);
    int e;
    frexpf(most, &e);  // 2^(e-1) <= most < 2^e
    float values = c == CODEC_INT8 ? 127 : 7;
    float scale = c != CODEC_FP16 ? most / values : ldexpf(1, e - 15);
    float inverse = c != CODEC_FP16 ? values / most : ldexpf(1, 15 - e);
    if (most < CODEC_LEAST) scale = inverse = 0;
    if (isnan(most)) scale = NAN;
    for (int64_t i = 0; i < n; i++) {
        float scaled = v[i] * inverse;
        if (isnan(most)) scaled = 0;
        if (c == CODEC_INT8) {
            int8_t whole = (int8_t)nearbyintf(scaled);
            memcpy(code + i, &whole, 1);
            v[i] = (float)whole * scale;
        } else if (c == CODEC_INT4) {
            int whole = (int)nearbyintf(scaled);
            code[i / 2] |= (unsigned char)((whole < 0 ? 16 + whole : whole) << (i % 2 ? 4 : 0));
            v[i] = (float)whole * scale;
        } else {
            storage_set(code, FP16, i, (double)scaled);
            v[i] = (float)storage_get(code, FP16, i) * scale;
        }
    }
    return scale;
}

// wire (=) the codes of v[n], which becomes what they say.
static void code_all(codec c, float *v, int64_t n, unsigned char *wire) {
    unsigned char *code = wire + codec_scales(c, n);
    memset(wire, 0, codec_bytes(c, n));
    for (int64_t at = 0, span = c == CODEC_INT4 ? 64 : CHUNK; at < n; at += span) {
        int64_t some = n - at < span ? n - at : span;
        float scale = code_span(c, v + at, some, code + codec_codes(c, at));
        memcpy(wire + (size_t)(at / span) * sizeof scale, &scale, sizeof scale);
    }
}

// --- encode: n, codec (0: INT8) --------------------------------------------------------------------------------------

// A chunk each: not a number, infinite, largest numbers, denormal, just below and just above the least, zeros, one
// large among small, many magnitudes.
static void extreme(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double u = loss_weight(i);
        switch (i / CHUNK % 9) {
        case 0: x[i] = i == 77 ? NAN : u; break;
        case 1: x[i] = i == CHUNK + 99 ? -INFINITY : u; break;
        case 2: x[i] = u * 3.4e38; break;
        case 3: x[i] = u * 0x1p-130; break;
        case 4: x[i] = u * 0x1p-97; break;
        case 5: x[i] = i % CHUNK == 5 ? 0x1p-96 : u * 0x1p-97; break;
        case 6: x[i] = i % 2 ? 0.0 : -0.0; break;
        case 7: x[i] = i % CHUNK == 9 ? 1e6 : u; break;
        default: x[i] = u * exp2(60 * loss_weight(3 * i + 1)); break;
        }
    }
}

static void encode_setup(op_run *r) {
    int64_t n = r->row->size[0];
    bool hard = r->row->options & OPT_EXTREME;
    arg_add(r, "wire", OUT, UINT8, 1, (int64_t)codec_bytes(codec_of(r), n), 0, 0);
    arg *residual = arg_add(r, "residual", UPDATES, FP32, 1, n, 0, 0), *x = arg_add(r, "x", IN, FP32, 1, n, 0, 0);
    arg *state = arg_add(r, "state", IN, INT32, 1, sizeof(step_state) / 4, 0, 0);
    r->state = (step_state){.loss_scale = 1024};
    arg_fill_bytes(state, &r->state);
    state->absent = hard;
    if (hard && !r->bench) {
        double *values = calloc((size_t)n, sizeof *values);
        extreme(values, n);
        arg_fill_with(r, x, values);
        memset(values, 0, (size_t)n * sizeof *values);
        arg_fill_with(r, residual, values);
        free(values);
    } else {
        arg_fill(r, x, 3, 0);
        arg_fill(r, residual, 1e-5, 0);
    }
}

static err_t encode_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->encode(&(encode_args){.wire = t[EN_WIRE],
                                    .residual = t[EN_RESIDUAL],
                                    .x = t[EN_X],
                                    .codec = codec_of(r),
                                    .state = t[EN_STATE] ? (const step_state *)t[EN_STATE]->data : NULL},
                     s);
}

static void encode_reference(op_run *r) {
    int64_t n = r->row->size[0];
    size_t bytes = codec_bytes(codec_of(r), n);
    float *v = calloc((size_t)n, sizeof *v), *said = calloc((size_t)n, sizeof *said);
    unsigned char *wire = malloc(bytes);
    float by = r->arg[EN_STATE].absent ? 1 : 1024;
    for (int64_t i = 0; i < n; i++) {
        float fed = (float)r->arg[EN_RESIDUAL].value[i] * by;
        v[i] = (float)r->arg[EN_X].value[i] + fed;
    }
    memcpy(said, v, (size_t)n * sizeof *v);
    code_all(codec_of(r), said, n, wire);
    for (size_t i = 0; i < bytes; i++) r->arg[EN_WIRE].want[i] = wire[i];
    for (int64_t i = 0; i < n; i++) {
        float left = v[i] - said[i];
        r->arg[EN_RESIDUAL].want[i] = isnan(said[i]) ? r->arg[EN_RESIDUAL].value[i] : (double)(left / by);
    }
    free(v), free(said), free(wire);
}

static bool encode_exact(op_run *r, const outcome *got) {
    int64_t n = r->row->size[0];
    for (int64_t i = 0; i < (int64_t)codec_bytes(codec_of(r), n); i++)
        if (got->data[EN_WIRE][i] != (unsigned char)r->arg[EN_WIRE].want[i])
            return failed(r, "byte %" PRId64 " is %d, expected %g", i, got->data[EN_WIRE][i], r->arg[EN_WIRE].want[i]);
    for (int64_t i = 0; i < n; i++) {
        float now = ((const float *)got->data[EN_RESIDUAL])[i], want = (float)r->arg[EN_RESIDUAL].want[i];
        if (now != want || signbit(now) != signbit(want))
            return failed(r, "residual[%" PRId64 "] is %.9g, expected %.9g to the bit", i, (double)now, (double)want);
    }
    return true;
}
const op_kind kind_encode = {"encode", encode_setup, encode_call, encode_reference, NULL, encode_exact, traffic_cost};

// --- decode: n, codec (0: INT8), 1: added ----------------------------------------------------------------------------

static void decode_setup(op_run *r) {
    int64_t n = r->row->size[0];
    size_t bytes = codec_bytes(codec_of(r), n);
    float *v = calloc((size_t)n, sizeof *v);
    unsigned char *wire = calloc(1, bytes);
    for (int64_t i = 0; i < n; i++) v[i] = (float)(loss_weight(i) * (i / CHUNK % 2 ? 1e-20 : 7));
    code_all(codec_of(r), v, n, wire);
    arg_add(r, "y", r->row->size[2] ? ADDS : OUT, FP32, 1, n, 0, 0);
    arg_fill_bytes(arg_add(r, "wire", IN, UINT8, 1, (int64_t)bytes, 0, 0), wire);
    free(v), free(wire);
}

static err_t decode_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->decode(
        &(decode_args){.y = t[DE_Y], .wire = t[DE_WIRE], .codec = codec_of(r), .add = r->row->size[2] != 0}, s);
}

static int code_of_half(int half) { return half % 16 < 8 ? half % 16 : half % 16 - 16; }

static void decode_reference(op_run *r) {
    int64_t n = r->row->size[0];
    codec c = codec_of(r);
    const unsigned char *wire = r->arg[DE_WIRE].t.data, *code = wire + codec_scales(c, n);
    for (int64_t i = 0; i < n; i++) {
        float scale, is = c == CODEC_INT4   ? (float)code_of_half(code[i / 2] >> (i % 2 ? 4 : 0))
                          : c == CODEC_INT8 ? (float)(int8_t)code[i]
                                            : (float)storage_get(code, FP16, i);
        memcpy(&scale, wire + (size_t)(i / (c == CODEC_INT4 ? 64 : CHUNK)) * sizeof scale, sizeof scale);
        is *= scale;
        r->arg[DE_Y].want[i] = (double)is;
    }
}

static bool decode_exact(op_run *r, const outcome *got) {
    for (int64_t i = 0; i < r->row->size[0] && !r->row->size[2]; i++) {
        float now = ((const float *)got->data[DE_Y])[i], want = (float)r->arg[DE_Y].want[i];
        if (now != want)
            return failed(r, "y[%" PRId64 "] is %.9g, expected %.9g to the bit", i, (double)now, (double)want);
    }
    return true;
}
const op_kind kind_decode = {"decode", decode_setup, decode_call, decode_reference, NULL, decode_exact, traffic_cost};

// --- widen: n --------------------------------------------------------------------------------------------------------

enum { WI_Y, WI_CODES, WI_SCALES };

static void widen_setup(op_run *r) {
    int64_t n = r->row->size[0];
    unsigned char *codes = malloc((size_t)n);
    arg_add(r, "y", OUT, r->row->type, 1, n, 0, 0);
    for (int64_t i = 0; i < n; i++)
        codes[i] = (unsigned char)(signed char)(i % WIDEN_GROUP ? i * 37 % 255 - 127 : -127);
    arg_fill_bytes(arg_add(r, "codes", IN, UINT8, 1, n, 0, 0), codes);
    arg_fill(r, arg_add(r, "scales", IN, FP32, 1, n / WIDEN_GROUP, 0, 0), 0.01, 0.1);
    free(codes);
}

static err_t widen_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->widen(&(widen_args){.y = t[WI_Y], .codes = t[WI_CODES], .scales = t[WI_SCALES]}, s);
}

static void widen_reference(op_run *r) {
    const signed char *code = r->arg[WI_CODES].t.data;
    for (int64_t i = 0; i < r->row->size[0]; i++)
        r->arg[WI_Y].want[i] = (double)((float)code[i] * (float)r->arg[WI_SCALES].value[i / WIDEN_GROUP]);
}

static bool widen_exact(op_run *r, const outcome *got) {
    for (int64_t i = 0; i < r->row->size[0]; i++) {
        double now = storage_get(got->data[WI_Y], r->row->type, i),
               want = storage_round(r->row->type, r->arg[WI_Y].want[i]);
        if (now != want) return failed(r, "y[%" PRId64 "] is %.9g, expected %.9g to the bit", i, now, want);
    }
    return true;
}
const op_kind kind_widen = {"widen", widen_setup, widen_call, widen_reference, NULL, widen_exact, traffic_cost};
