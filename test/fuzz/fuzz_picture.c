// test/fuzz/fuzz_picture.c: any bytes at all as a JPEG or PNG file. Whatever they are, the answer is pixels or
// ERR_DATA, and memory is as large as the picture says, not as a lie about it. A damaged PNG is tried again with the
// checksums of its chunks put right, so that what they protect is reached too.
#include "data/image/decode.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

static void expect(bool truth) {
    if (!truth) abort();
}

enum { PIXELS_MOST = 1 << 22 };  // more take too long to be tried often

static uint32_t be32(const uint8_t *p) { return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }

// How many pixels the file claims: where it is not so many that decoding it is all that the time is spent on.
static bool is_small(const uint8_t *d, size_t n) {
    if (n > 24 && d[0] == 0x89) return (uint64_t)be32(d + 16) * be32(d + 20) <= PIXELS_MOST;
    for (size_t i = 2; i + 9 < n; i++)
        if (d[i] == 0xff && d[i + 1] >= 0xc0 && d[i + 1] <= 0xcf &&
            (uint64_t)(d[i + 5] << 8 | d[i + 6]) * (uint64_t)(d[i + 7] << 8 | d[i + 8]) > PIXELS_MOST)
            return false;
    return true;
}

static bool try_file(const uint8_t *data, size_t size) {
    picture p = {0};
    if (!is_small(data, size)) return false;
    uint8_t *own = malloc(size + (size == 0));  // whose end ASan knows
    memcpy(own, data, size);
    err_t rc = picture_decode(&p, own, size);
    expect(rc == ERR_OK || (rc == ERR_DATA && err_last()->text[0]));
    uint32_t sum = 0;
    if (rc == ERR_OK) {
        expect(p.h >= 1 && p.w >= 1 && p.c == 3);
        for (int64_t i = 0; i < picture_bytes(&p); i++) sum += p.at[i];
    }
    expect(rc != ERR_OK || sum <= 255 * (uint64_t)picture_bytes(&p));
    picture_free(&p);
    free(own);
    return rc == ERR_OK;
}

// The checksum of each chunk of a PNG that is whole.
static void mend(uint8_t *d, size_t n) {
    for (size_t at = 8; at + 12 <= n;) {
        uint32_t length = be32(d + at);
        if (length > n - at - 12) return;
        uint32_t crc = (uint32_t)crc32(0, d + at + 4, length + 4);
        for (int i = 0; i < 4; i++) d[at + 8 + length + i] = (uint8_t)(crc >> 8 * (3 - i));
        at += 12 + length;
    }
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    bool whole = try_file(data, size);
    if (whole || size < 8 || data[0] != 0x89) return whole;
    uint8_t *mended = malloc(size);
    memcpy(mended, data, size);
    mend(mended, size);
    try_file(mended, size);
    free(mended);
    return whole;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

// --- seeds: pictures of test/golden, of each kind --------------------------------------------------------------------

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    // by their numbers in the archive: baseline with each sampling, progressive, grey, CMYK, EXIF, restarts; then PNGs
    static const int wanted[] = {0, 13, 25, 49, 72, 81, 87, 93, 96, 100, 110, 113, 116, 130, 135, 139};
    enum { ROOM = 1 << 20, BLOCK = 512 };
    uint8_t *tar = malloc(ROOM);
    gzFile z = gzopen("test/golden/images.tar.gz", "rb");
    if (!z) return free(tar), 1;
    int n = gzread(z, tar, ROOM);
    gzclose(z);
    for (int at = 0; at + BLOCK <= n && tar[at];) {
        int number = atoi((const char *)tar + at), bytes = (int)strtol((const char *)tar + at + 124, NULL, 8);
        bool label = strstr((const char *)tar + at, ".cls") != NULL;
        for (size_t k = 0; k < sizeof wanted / sizeof *wanted && !label; k++)
            if (wanted[k] == number) seed(ctx, tar + at + BLOCK, (size_t)bytes);
        at += BLOCK + (bytes + BLOCK - 1) / BLOCK * BLOCK;
    }
    free(tar);
    return 0;
}
