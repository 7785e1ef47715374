// gpu/cpu/kernel/codec.c: gradients in fewer bits, chunk by chunk. A scale is that of the largest element of its span,
// a chunk or, with INT4, a part of one, which no order changes; all else is done to each element alone. So every width
// has the same bits.
#include "gpu/cpu/kernel/bytes.h"
#include "gpu/cpu/kernel/kernel.h"

#include <float.h>
#include <math.h>

typedef struct encode_job {
    codec codec;
    float *scale;
    void *code;
    float *residual;
    const float *x;
    int64_t count;
    float by, back;  // the loss scale, and 1 / that
} encode_job;

static float of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// What a span's codes are multiplied by, and its elements before they become codes.
typedef struct span_scale {
    float scale, inverse;
} span_scale;

static span_scale scale_of(codec c, uint32_t most) {
    float m = of_bits(most);
    if (most > 0x7f7fffffu) return (span_scale){NAN, 0};
    if (m < CODEC_LEAST) return (span_scale){0, 0};
    if (c == CODEC_INT8) return (span_scale){m / 127.0f, 127.0f / m};
    if (c == CODEC_INT4) return (span_scale){m / 7.0f, 7.0f / m};
    uint32_t power = most & 0x7f800000u;  // 2^e
    return (span_scale){of_bits(power - (14u << 23)), of_bits((268u << 23) - power)};
}

BODY vf element(const encode_job *j, int64_t i, int64_t n) {
    return vf_add(typed_load_n(j->x, FP32, i, n), vf_mul(typed_load_n(j->residual, FP32, i, n), vf_set1(j->by)));
}

BODY void look(const encode_job *j, vi *most, int64_t i, int64_t n) {
    vi size = vi_and(vf_bits(element(j, i, n)), vi_set1(0x7fffffff));
    *most = vi_select(vi_lt(*most, size), size, *most);
}

// The bits of the largest |v|, which are in its order; those of NaN are above all.
BODY uint32_t largest(const encode_job *j, int64_t from, int64_t to) {
    int32_t lane[VL], most = 0;
    vi all = vi_set1(0);
    EACH_VECTOR(from, to, look, j, &all);
    vi_store(lane, all);
    for (int k = 0; k < VL; k++) most = lane[k] > most ? lane[k] : most;
    return (uint32_t)most;
}

BODY void store_codes(int8_t *p, vi v, int64_t n) {
    int32_t lane[VL];
    vi_store(lane, v);
    if (n >= VL)
        for (int k = 0; k < VL; k++) p[k] = (int8_t)lane[k];
    else
        for (int64_t k = 0; k < n; k++) p[k] = (int8_t)lane[k];
}

BODY vf load_codes(const int8_t *p, int64_t n) {
    float lane[VL] = {0};
    if (n >= VL)
        for (int k = 0; k < VL; k++) lane[k] = (float)p[k];
    else
        for (int64_t k = 0; k < n; k++) lane[k] = (float)p[k];
    return vf_load(lane);
}

BODY void write_codes(codec c, const encode_job *j, span_scale of, int64_t i, int64_t n) {
    vf v = element(j, i, n), scaled = vf_mul(v, vf_set1(of.inverse)), code;
    if (c == CODEC_INT8) {
        vi whole = vf_round_int(scaled);
        store_codes((int8_t *)j->code + i, whole, n);
        code = vi_to_float(whole);
    } else {
        typed_store_n(j->code, FP16, i, scaled, n);
        code = typed_load_n(j->code, FP16, i, n);
    }
    vf left = vf_sub(v, vf_mul(code, vf_set1(of.scale)));
    typed_store_n(j->residual, FP32, i, vf_mul(left, vf_set1(j->back)), n);
}

BODY void write_nothing(codec c, const encode_job *j, int64_t from, int64_t to) {
    memset((char *)j->code + codec_codes(c, from), 0, codec_codes(c, to - from));
}

// Codes of a span, a byte each, and how far its elements are from them.
typedef struct span_codes {
    int8_t code[CODEC_INT4_SPAN];
    int64_t from;
} span_codes;

BODY void write_span(span_codes *to, const encode_job *j, span_scale of, int64_t i, int64_t n) {
    vf v = element(j, i, n);
    vi whole = vf_round_int(vf_mul(v, vf_set1(of.inverse)));
    store_codes(to->code + (i - to->from), whole, n);
    vf left = vf_sub(v, vf_mul(vi_to_float(whole), vf_set1(of.scale)));
    typed_store_n(j->residual, FP32, i, vf_mul(left, vf_set1(j->back)), n);
}

// Two codes a byte. Both are in -7 .. 7.
BODY void encode_span(const encode_job *j, int64_t from, int64_t to) {
    span_scale of = scale_of(CODEC_INT4, largest(j, from, to));
    span_codes all = {.from = from};
    uint8_t *out = (uint8_t *)j->code + from / 2;
    j->scale[from / CODEC_INT4_SPAN] = of.scale;
    if (of.scale == of.scale) EACH_VECTOR(from, to, write_span, &all, j, of);
    for (int64_t k = 0; k < (to - from + 1) / 2; k++)
        out[k] = (uint8_t)((all.code[2 * k] & 15) | (all.code[2 * k + 1] & 15) << 4);
}

BODY void encode_spans(const encode_job *j, int64_t item) {
    int64_t from = item * CHUNK, to = from + CHUNK < j->count ? from + CHUNK : j->count;
    for (int64_t k = from; k < to; k += CODEC_INT4_SPAN)
        encode_span(j, k, k + CODEC_INT4_SPAN < to ? k + CODEC_INT4_SPAN : to);
}

BODY void encode_chunk(codec c, const encode_job *j, int64_t item) {
    int64_t from = item * CHUNK, to = from + CHUNK < j->count ? from + CHUNK : j->count;
    span_scale of = scale_of(c, largest(j, from, to));
    j->scale[item] = of.scale;
    if (of.scale == of.scale) EACH_VECTOR(from, to, write_codes, c, j, of);
    else write_nothing(c, j, from, to);
}

static void encode_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const encode_job j = *(const encode_job *)ctx;
    if (j.codec == CODEC_INT8) encode_chunk(CODEC_INT8, &j, item);
    else if (j.codec == CODEC_INT4) encode_spans(&j, item);
    else encode_chunk(CODEC_FP16, &j, item);
}

// What fills up scales and codes.
static void write_ends(char *wire, codec c, int64_t n) {
    size_t scales = (size_t)((n + codec_span(c) - 1) / codec_span(c)) * 4,
           codes = codec_scales(c, n) + codec_codes(c, n);
    memset(wire + scales, 0, codec_scales(c, n) - scales);
    memset(wire + codes, 0, codec_bytes(c, n) - codes);
}

// moves: x and residual are read twice, the second time from a cache; 12 bytes an element and its code beside
err_t KERNEL(encode)(const encode_args *args, stream *s) {
    int64_t n = tensor_count(args->x);
    assert(args->codec != CODEC_NONE && args->x->type == FP32 && args->residual->type == FP32);
    assert(tensor_count(args->residual) == n && (size_t)tensor_count(args->wire) == codec_bytes(args->codec, n));
    float by = args->state ? args->state->loss_scale : 1.0f;
    encode_job j = {.codec = args->codec,
                    .scale = args->wire->data,
                    .code = (char *)args->wire->data + codec_scales(args->codec, n),
                    .residual = args->residual->data,
                    .x = args->x->data,
                    .count = n,
                    .by = by,
                    .back = 1.0f / by};
    write_ends(args->wire->data, args->codec, n);
    pool_run(s->workers, (n + CHUNK - 1) / CHUNK, encode_item, &j);
    return ERR_OK;
}

typedef struct decode_job {
    codec codec;
    bool add;
    float *y;
    const float *scale;
    const void *code;
    int64_t count;
} decode_job;

BODY void read_codes(codec c, bool add, const decode_job *j, vf scale, int64_t i, int64_t n) {
    vf code = c == CODEC_INT8 ? load_codes((const int8_t *)j->code + i, n) : typed_load_n(j->code, FP16, i, n);
    vf u = vf_mul(code, scale);
    typed_store_n(j->y, FP32, i, add ? vf_add(typed_load_n(j->y, FP32, i, n), u) : u, n);
}

BODY void decode_chunk(codec c, bool add, const decode_job *j, int64_t item) {
    int64_t from = item * CHUNK, to = from + CHUNK < j->count ? from + CHUNK : j->count;
    vf scale = vf_set1(j->scale[item]);
    EACH_VECTOR(from, to, read_codes, c, add, j, scale);
}

BODY void read_span(bool add, const decode_job *j, const span_codes *of, vf scale, int64_t i, int64_t n) {
    vf u = vf_mul(load_codes(of->code + (i - of->from), n), scale);
    typed_store_n(j->y, FP32, i, add ? vf_add(typed_load_n(j->y, FP32, i, n), u) : u, n);
}

BODY void decode_spans(bool add, const decode_job *j, int64_t item) {
    int64_t from = item * CHUNK, end = from + CHUNK < j->count ? from + CHUNK : j->count;
    for (int64_t to; from < end; from = to) {
        const int8_t *in = (const int8_t *)j->code + from / 2;
        span_codes all = {.from = from};
        to = from + CODEC_INT4_SPAN < end ? from + CODEC_INT4_SPAN : end;
        for (int64_t k = 0; k < (to - from + 1) / 2; k++)
            all.code[2 * k] = (int8_t)(((in[k] & 15) ^ 8) - 8), all.code[2 * k + 1] = (int8_t)(in[k] >> 4);
        vf scale = vf_set1(j->scale[from / CODEC_INT4_SPAN]);
        EACH_VECTOR(from, to, read_span, add, j, &all, scale);
    }
}

static void decode_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const decode_job j = *(const decode_job *)ctx;
    if (j.codec == CODEC_INT4 && j.add) decode_spans(true, &j, item);
    else if (j.codec == CODEC_INT4) decode_spans(false, &j, item);
    else if (j.codec == CODEC_INT8 && j.add) decode_chunk(CODEC_INT8, true, &j, item);
    else if (j.codec == CODEC_INT8) decode_chunk(CODEC_INT8, false, &j, item);
    else if (j.add) decode_chunk(CODEC_FP16, true, &j, item);
    else decode_chunk(CODEC_FP16, false, &j, item);
}

// moves: a code, and 4 bytes an element, 8 where it adds
err_t KERNEL(decode)(const decode_args *args, stream *s) {
    int64_t n = tensor_count(args->y);
    assert(args->codec != CODEC_NONE && args->y->type == FP32);
    assert((size_t)tensor_count(args->wire) == codec_bytes(args->codec, n));
    decode_job j = {.codec = args->codec,
                    .add = args->add,
                    .y = args->y->data,
                    .scale = args->wire->data,
                    .code = (const char *)args->wire->data + codec_scales(args->codec, n),
                    .count = n};
    pool_run(s->workers, (n + CHUNK - 1) / CHUNK, decode_item, &j);
    return ERR_OK;
}
