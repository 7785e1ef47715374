// test/fuzz/fuzz_images.c: any bytes at all as a shard of images and as a tar archive of pictures. Whatever they are,
// the answer is images and labels in range or an error that names the file; a shard is tried again with the checksums
// of its header and table put right, so that what they protect is reached too.
#include "base/le.h"
#include "data/image/list.h"
#include "data/image/shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

static void expect(bool truth) {
    if (!truth) abort();
}

static void count_report(void *ctx, const char *text) {
    expect(text[0] != 0);
    ++*(int *)ctx;
}

static bool try_shard(const char *path, bool checks) {
    reader r = {0};
    image_shard s = {.file.fd = -1};
    picture p = {0};
    int64_t faults = 0;
    int reports = 0;
    volatile uint32_t sum = 0;  // of all pixels, so that ASan sees each of them read
    reader_open(&r, 0, NULL);
    err_t rc = image_shard_open(&s, &r, path);
    bool whole = rc == ERR_OK;
    expect(whole || (rc == ERR_DATA && strstr(err_last()->text, path)));
    for (int64_t k = 0; whole && k < s.images; k++) {
        rc = image_shard_read(&s, &r, &s.file, k, false, &p);
        expect(rc == ERR_OK || (rc == ERR_DATA && strstr(err_last()->text, path)));
        expect(s.entry[k].label >= 0 && s.entry[k].label < s.classes);
        for (int64_t i = 0; rc == ERR_OK && i < picture_bytes(&p); i++) sum += p.at[i];
    }
    if (whole) expect(image_shard_verify(&s, &r, count_report, &reports, &faults) == ERR_OK && faults == reports);
    if (checks && faults) whole = false;
    picture_free(&p);
    image_shard_close(&s, &r);
    reader_close(&r);
    return whole;
}

static bool try_tar(const char *path, size_t size) {
    image_list l = {0};
    err_t rc = image_list_find(&l, IMAGES_TAR, path, "");
    expect(rc == ERR_OK || rc == ERR_DATA || rc == ERR_CONFIG);
    for (int64_t k = 0; k < l.count; k++) {
        const image_item *i = &l.item[k];
        char name[64];
        expect(i->offset >= 0 && i->bytes >= 0 && i->bytes <= (int64_t)size && i->offset <= (int64_t)size - i->bytes);
        expect(i->label >= 0 && i->label < 1 << 24);
        image_item_name(i, name, sizeof name);
    }
    image_list_free(&l);
    return rc == ERR_OK;
}

static bool try_file(const uint8_t *data, size_t size, bool is_tar) {
    char path[32];
    int fd = memfd_create("images", MFD_CLOEXEC);
    expect(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    bool whole = is_tar ? try_tar(path, size) : try_shard(path, true);
    close(fd);
    return whole;
}

// Puts right what covers the table and the header, and the sums of a tar's headers.
static void mend(uint8_t *d, size_t n) {
    uint64_t table = le64_get(d + 24);
    if (table >= IMAGES_HEADER && table < n) le32_put(d + 108, (uint32_t)crc32_z(0, d + table, n - table));
    le32_put(d + 124, (uint32_t)crc32(0, d, 124));
}

static void mend_tar(uint8_t *d, size_t n) {
    for (size_t at = 0; at + 512 <= n; at += 512) {
        if (memcmp(d + at + 257, "ustar", 5) != 0) continue;
        unsigned sum = 0;
        memset(d + at + 148, ' ', 8);
        for (int i = 0; i < 512; i++) sum += d[at + i];
        snprintf((char *)d + at + 148, 8, "%06o", sum);
    }
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    bool is_tar = size >= 512 && memcmp(data + 257, "ustar", 5) == 0, whole = try_file(data, size, is_tar);
    if (whole || size < IMAGES_HEADER) return whole;
    uint8_t *mended = malloc(size);
    memcpy(mended, data, size);
    if (is_tar) mend_tar(mended, size);
    else mend(mended, size);
    try_file(mended, size, is_tar);
    free(mended);
    return whole;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

// --- seeds -----------------------------------------------------------------------------------------------------------

// A shard of `images` of growing sizes.
static size_t make_shard(uint8_t *dst, size_t room, int images, int channels) {
    char path[32];
    image_writer *w;
    image_sums sums = {0};
    picture p = {0};
    int fd = memfd_create("shard", MFD_CLOEXEC);
    expect(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    image_about about = {.channels = channels, .size = 0, .classes = 3, .names = "cat\0dog\0owl", .name_bytes = 12};
    expect(image_write_open(&w, path, &about) == ERR_OK);
    for (int k = 0; k < images; k++) {
        expect(picture_make(&p, 3 + k, 5, channels) == ERR_OK);
        for (int64_t i = 0; i < picture_bytes(&p); i++) p.at[i] = (uint8_t)(i * 7 + k);
        image_sums_add(&sums, &p);
        expect(image_write(w, &p, k % 3) == ERR_OK);
    }
    expect(image_write_seal(w) == ERR_OK && image_write_finish(w, &sums) == ERR_OK);
    image_write_close(w);
    picture_free(&p);
    ssize_t n = pread(fd, dst, room, 0);
    expect(n > 0 && (size_t)n < room);
    close(fd);
    return (size_t)n;
}

static size_t put_member(uint8_t *at, const char *name, char type, const char *text) {
    size_t n = strlen(text);
    memset(at, 0, 512 + (n + 511) / 512 * 512);
    snprintf((char *)at, 100, "%s", name);
    snprintf((char *)at + 124, 12, "%011zo", n);
    at[156] = (uint8_t)type;
    memcpy(at + 257, "ustar\00000", 8);
    memcpy(at + 512, text, n);
    mend_tar(at, 512);
    return 512 + (n + 511) / 512 * 512;
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    static uint8_t b[1 << 16];
    seed(ctx, b, make_shard(b, sizeof b, 1, 1));
    seed(ctx, b, make_shard(b, sizeof b, 7, 3));
    size_t n = put_member(b, "1.jpg", '0', "a picture");
    n += put_member(b + n, "1.cls", '0', "17\n");
    n += put_member(b + n, "x", 'x', "26 path=longer/than/2.png\n");
    n += put_member(b + n, "2.png", '0', "another");
    n += put_member(b + n, "././@LongLink", 'L', "longer/than/2.cls");
    n += put_member(b + n, "cut", '0', "3");
    memset(b + n, 0, 1024);
    seed(ctx, b, n + 1024);
    return 0;
}
