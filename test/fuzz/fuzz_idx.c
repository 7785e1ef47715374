// test/fuzz/fuzz_idx.c: any bytes at all as an IDX file, plain or gzip, of images beside labels that are in order, and
// of labels beside such images. The bytes become unnamed files in memory, which are opened, read and verified; and
// again with the checksum of the gzip file put right. Whatever they are, the answer is values in range or ERR_DATA.
#include "data/source.h"
#include "test/support/idx.h"

#include <stdio.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

enum { ITEMS = 6, CLASSES = 10, MOST = 1 << 20 };

static void expect(bool truth) {
    if (!truth) abort();
}

static void count_report(void *ctx, const char *text) {
    expect(text[0] != 0);
    ++*(int *)ctx;
}

static int memory_file(const uint8_t *bytes, size_t n, char path[32]) {
    int fd = memfd_create("idx", MFD_CLOEXEC);
    expect(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

static void read_sample(source *s, int64_t sample, float *pixels) {
    int32_t label = -1;
    int64_t n = shape_count(s->tensor[0].dims, s->tensor[0].size);
    expect(s->type->read(s, &(source_draw){.sample = sample}, (void *[]){pixels, &label}) == ERR_OK);
    for (int64_t i = 0; i < n; i++) expect(pixels[i] >= 0 && pixels[i] <= 1);
    expect(label >= 0 && label < CLASSES);
}

// Were both files accepted?
static bool try_pair(const char *a, const char *b) {
    const tensor_spec wanted[] = {{.name = "label", .type = INT32, .size = {1, 1, 1}, .limit = CLASSES}};
    char files[80];
    source *s;
    snprintf(files, sizeof files, "%s %s", a, b);
    err_t rc = idx_open(&s, &(source_options){.files = files, .format = FORMAT_IDX, .wanted = wanted, .inputs = 1});
    if (rc != ERR_OK) {
        expect(rc == ERR_DATA && strstr(err_last()->text, "/proc/self/fd/"));
        return false;
    }
    int64_t samples = s->about.samples;
    size_t bytes = spec_bytes(&s->tensor[0]);
    int reports = 0;
    expect(samples > 0 && s->about.files == 2);
    float *pixels = bytes <= MOST ? malloc(bytes) : NULL;
    for (int64_t i = 0; pixels && i < 4; i++) read_sample(s, (samples - 1) * i / 3, pixels);
    expect(s->type->verify(s, count_report, &reports) == ERR_OK && reports == 0);
    free(pixels);
    s->type->close(s);
    return true;
}

// The number of items that a plain file claims, if it is a number for a test.
static uint32_t items_of(const uint8_t *data, size_t size) {
    uint32_t n = size < 8 || data[0] ? ITEMS : (uint32_t)data[4] << 24 | data[5] << 16 | data[6] << 8 | data[7];
    return n >= 1 && n <= 4096 ? n : ITEMS;
}

static bool try_file(const uint8_t *data, size_t size) {
    static const uint8_t values[4 * 4096];
    uint8_t other[16 + sizeof values];
    char path[32], images[32], labels[32];
    uint32_t n = items_of(data, size);
    int fd = memory_file(data, size, path);
    int a = memory_file(other, idx_bytes(other, 3, (uint32_t[]){n, 2, 2}, values), images);
    int b = memory_file(other, idx_bytes(other, 1, (uint32_t[]){n}, values), labels);
    bool whole = try_pair(path, labels);
    whole |= try_pair(images, path);
    close(fd), close(a), close(b);
    return whole;
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    bool whole = try_file(data, size), gzip = size >= 2 && data[0] == 0x1f && data[1] == 0x8b;
    size_t n = 0, room = 1 << 16;
    if (!gzip) return whole;
    // The damaged values in a gzip file that is valid, so that the code after its checksum is reached too.
    uint8_t *plain = malloc(room), *packed = malloc(compressBound(room) + 32);
    z_stream z = {.next_in = (uint8_t *)data, .avail_in = (uInt)size, .next_out = plain, .avail_out = (uInt)room};
    if (inflateInit2(&z, 16 + MAX_WBITS) == Z_OK) {
        inflate(&z, Z_SYNC_FLUSH);
        n = room - z.avail_out;
        inflateEnd(&z);
    }
    if (n > 0) try_file(packed, gzip_bytes(packed, compressBound(room) + 32, plain, n));
    free(plain), free(packed);
    return whole;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

// --- seeds: small valid files of each kind ---------------------------------------------------------------------------

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    static const struct {
        int dims;
        uint32_t size[4];
    } kinds[] = {
        {1, {ITEMS}}, {2, {ITEMS, 7}}, {3, {ITEMS, 5, 4}}, {4, {ITEMS, 3, 8, 8}}, {3, {ITEMS, 64, 64}},
    };
    static uint8_t values[1 << 15], plain[1 << 15], packed[1 << 16];
    for (size_t i = 0; i < sizeof values; i++) values[i] = (uint8_t)(i * i / 7 % CLASSES);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        size_t n = idx_bytes(plain, kinds[k].dims, kinds[k].size, values);
        seed(ctx, plain, n);
        seed(ctx, packed, gzip_bytes(packed, sizeof packed, plain, n));
    }
    size_t n = idx_bytes(plain, 3, kinds[2].size, values), first = gzip_bytes(packed, sizeof packed, plain, 40);
    seed(ctx, packed, first + gzip_bytes(packed + first, sizeof packed - first, plain + 40, n - 40));  // two members
    return 0;
}
