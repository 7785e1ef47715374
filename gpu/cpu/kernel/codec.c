// gpu/cpu/kernel/codec.c: gradients in fewer bits, chunk by chunk. A chunk's scale is that of its largest element,
// which no order changes; all else is done to each element alone. So every width has the same bits.
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

// What a chunk's codes are multiplied by, and its elements before they become codes.
typedef struct chunk_scale {
    float scale, inverse;
} chunk_scale;

static chunk_scale scale_of(codec c, uint32_t most) {
    float m = of_bits(most);
    if (most > 0x7f7fffffu) return (chunk_scale){NAN, 0};
    if (m < CODEC_LEAST) return (chunk_scale){0, 0};
    if (c == CODEC_INT8) return (chunk_scale){m / 127.0f, 127.0f / m};
    uint32_t power = most & 0x7f800000u;  // 2^e
    return (chunk_scale){of_bits(power - (14u << 23)), of_bits((268u << 23) - power)};
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

BODY void write_codes(codec c, const encode_job *j, chunk_scale of, int64_t i, int64_t n) {
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
    memset((char *)j->code + (size_t)from * codec_each(c), 0, (size_t)(to - from) * codec_each(c));
}

BODY void encode_chunk(codec c, const encode_job *j, int64_t item) {
    int64_t from = item * CHUNK, to = from + CHUNK < j->count ? from + CHUNK : j->count;
    chunk_scale of = scale_of(c, largest(j, from, to));
    j->scale[item] = of.scale;
    if (of.scale == of.scale) EACH_VECTOR(from, to, write_codes, c, j, of);
    else write_nothing(c, j, from, to);
}

static void encode_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const encode_job j = *(const encode_job *)ctx;
    if (j.codec == CODEC_INT8) encode_chunk(CODEC_INT8, &j, item);
    else encode_chunk(CODEC_FP16, &j, item);
}

// What fills up scales and codes.
static void write_ends(char *wire, codec c, int64_t n) {
    size_t scales = (size_t)((n + CHUNK - 1) / CHUNK) * 4, codes = codec_scales(n) + (size_t)n * codec_each(c);
    memset(wire + scales, 0, codec_scales(n) - scales);
    memset(wire + codes, 0, codec_bytes(c, n) - codes);
}

// moves: x and residual are read twice, the second time from a cache; 13 or 14 bytes an element beside
err_t KERNEL(encode)(const encode_args *args, stream *s) {
    int64_t n = tensor_count(args->x);
    assert(args->codec != CODEC_NONE && args->x->type == FP32 && args->residual->type == FP32);
    assert(tensor_count(args->residual) == n && (size_t)tensor_count(args->wire) == codec_bytes(args->codec, n));
    float by = args->state ? args->state->loss_scale : 1.0f;
    encode_job j = {.codec = args->codec,
                    .scale = args->wire->data,
                    .code = (char *)args->wire->data + codec_scales(n),
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

static void decode_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const decode_job j = *(const decode_job *)ctx;
    if (j.codec == CODEC_INT8 && j.add) decode_chunk(CODEC_INT8, true, &j, item);
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
                    .code = (const char *)args->wire->data + codec_scales(n),
                    .count = n};
    pool_run(s->workers, (n + CHUNK - 1) / CHUNK, decode_item, &j);
    return ERR_OK;
}
