// test/fuzz/fuzz_codes.c: any bytes at all as what a lane sends in codes, or its largest elements. Whatever they say,
// decode and decode_sparse (gpu/ops.h) write what the contract has of them: strange scales and codes are numbers as
// others, and an index beyond its chunk adds nothing. Wire and output end where their memory does, so that the
// sanitizer sees a byte too far. An input is a head, and a wire as long as that wants it.
#include "gpu/gpu.h"
#include "gpu/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

typedef struct head {
    uint8_t codec, add;    // 0: the largest elements, which are always added
    uint16_t count, kept;  // elements; of a chunk
} head;
enum { CODECS = 4, HEAD = sizeof(head), MOST = CHUNK + 4000 };

static void expect(bool truth) {
    if (!truth) abort();
}

static size_t wire_bytes(const head *h) {
    return h->codec ? codec_bytes((codec)h->codec, h->count) : sparse_bytes(h->count, h->kept);
}

// What is in y before: no two neighbours are equal.
static float before(int64_t i) { return (float)(i % 77) - 33.25f; }

// --- what the contract says ------------------------------------------------------------------------------------------

static float from_half(uint16_t h) {
    int e = h >> 10 & 31, m = h & 1023;
    float size = e == 31 ? (m ? NAN : INFINITY) : e ? ldexpf((float)(1024 + m), e - 25) : ldexpf((float)m, -24);
    return h >> 15 ? -size : size;
}

static float code_at(const head *h, const uint8_t *codes, int64_t i) {
    uint16_t half;
    if (h->codec == CODEC_INT8) return (float)(int8_t)codes[i];
    int half_byte = codes[i / 2] / (i % 2 ? 16 : 1) % 16;
    if (h->codec == CODEC_INT4) return (float)(half_byte < 8 ? half_byte : half_byte - 16);
    memcpy(&half, codes + 2 * i, 2);
    return from_half(half);
}

static void want_codes(const head *h, const uint8_t *wire, float *y) {
    for (int64_t i = 0; i < h->count; i++) {
        float scale;
        memcpy(&scale, wire + i / (h->codec == CODEC_INT4 ? 64 : CHUNK) * 4, 4);
        float u = code_at(h, wire + codec_scales((codec)h->codec, h->count), i) * scale;
        y[i] = h->add ? before(i) + u : u;
    }
}

static void want_largest(const head *h, const uint8_t *wire, float *y) {
    int64_t sent = 0;
    for (int64_t i = 0; i < h->count; i++) y[i] = before(i);
    for (int64_t from = 0; from < h->count; from += CHUNK) {
        int64_t n = h->count - from < CHUNK ? h->count - from : CHUNK, end = sent + (n * h->kept + CHUNK - 1) / CHUNK;
        for (; sent < end; sent++) {
            float value;
            uint16_t at;
            memcpy(&value, wire + 4 * sent, 4);
            memcpy(&at, wire + sparse_values(h->count, h->kept) + 2 * sent, 2);
            if (at < n) y[from + at] += value;
        }
    }
}

// --- what a device does ----------------------------------------------------------------------------------------------

static tensor flat(void *data, dtype type, int64_t n) { return (tensor){data, type, 1, {n, 1, 1, 1}}; }

static void decode_on(device *d, stream *s, const head *h, uint8_t *wire, float *y) {
    tensor in = flat(wire, UINT8, (int64_t)wire_bytes(h)), out = flat(y, FP32, h->count);
    if (h->codec)
        expect(device_ops(d)->decode(&(decode_args){.y = &out, .wire = &in, .codec = (codec)h->codec, .add = h->add},
                                     s) == ERR_OK);
    else
        expect(device_ops(d)->decode_sparse(&(decode_sparse_args){.y = &out, .wire = &in, .kept = h->kept}, s) ==
               ERR_OK);
    expect(stream_wait(s) == ERR_OK);
}

static void same(const float *got, const float *want, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        expect(isnan(want[i]) ? isnan(got[i]) : memcmp(&got[i], &want[i], sizeof *got) == 0);
}

static void check(const head *h, const uint8_t *bytes, vector_width width) {
    size_t n = wire_bytes(h);
    device *d = NULL;
    stream *s = NULL;
    uint8_t *wire = aligned_alloc(16, n);
    float *y = malloc(h->count * sizeof *y), *want = malloc(h->count * sizeof *want);
    expect(device_open(&d, &(device_options){.kind = DEVICE_CPU, .threads = 1, .width = width}) == ERR_OK &&
           stream_open(d, &s) == ERR_OK && wire && y && want);
    memcpy(wire, bytes, n);
    for (int64_t i = 0; i < h->count; i++) y[i] = before(i);
    decode_on(d, s, h, wire, y);
    if (h->codec) want_codes(h, wire, want);
    else want_largest(h, wire, want);
    same(y, want, h->count);
    expect(memcmp(wire, bytes, n) == 0);
    stream_close(s), device_close(d);
    free(wire), free(y), free(want);
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    head h;
    if (size < HEAD) return false;
    memcpy(&h, data, HEAD);
    if (h.codec >= CODECS || h.count < 1 || h.count > MOST) return false;
    if (!h.codec && (h.kept < 1 || h.kept > CHUNK)) return false;
    if (size - HEAD != wire_bytes(&h)) return false;
    check(&h, data + HEAD, WIDTH_PORTABLE);
    check(&h, data + HEAD, WIDTH_AUTO);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

// Wires that an encoder could write, of one chunk and of more; then indices, scales and values that none does.
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    static const head kinds[] = {{0, 0, 77, 1600},         {0, 0, CHUNK + 1031, 164},     {0, 0, 333, CHUNK},
                                 {CODEC_INT8, 1, 515, 0},  {CODEC_FP16, 0, 129, 0},       {CODEC_INT8, 0, CHUNK + 7, 0},
                                 {CODEC_FP16, 1, 1031, 0}, {CODEC_INT4, 1, CHUNK + 67, 0}};
    static const float strange[] = {NAN, INFINITY, -0.0f, 0x1p-149f, 0x1.fffffep127f};
    static uint8_t bytes[HEAD + 4 * (size_t)MOST];
    for (size_t k = 0; k < 2 * sizeof kinds / sizeof *kinds; k++) {
        const head *h = &kinds[k / 2];
        size_t n = wire_bytes(h),
               numbers = h->codec ? codec_scales((codec)h->codec, h->count) : sparse_values(h->count, h->kept);
        memcpy(bytes, h, HEAD);
        for (size_t i = 0; i < n; i++) bytes[HEAD + i] = (uint8_t)(k % 2 ? 255 - i % 7 : i % 50);
        for (size_t i = 0; i < numbers / 4; i++) {
            float x = k % 2 ? strange[i % 5] : 0.5f * (float)(i % 9);
            memcpy(bytes + HEAD + 4 * i, &x, 4);
        }
        seed(ctx, bytes, HEAD + n);
    }
    return 0;
}
