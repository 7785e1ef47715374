// test/fuzz/fuzz_checkpoint.c: any bytes at all as a checkpoint's files. The first byte picks the target: a safetensors
// file, plain or in blocks (opened and read); one in blocks, after its checksums were made to fit; or the manifest of a
// small valid checkpoint (loaded, peeked at, hashed and resumed), as it is or after a digest made to fit, since hardly
// any mutation would get past the real one. The answer is a whole state, ERR_DATA, or ERR_CONFIG for a state of another
// run.
#include "base/io.h"
#include "base/le.h"
#include "model/blocks.h"
#include "model/safetensors.h"
#include "test/support/fake_device.h"
#include "trainer/checkpoint/describe.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

enum { TARGET_FILE, TARGET_MANIFEST, TARGET_DIGESTED, TARGET_BLOCKS, TARGETS };

static void expect(bool truth) {
    if (!truth) abort();
}

// --- safetensors -----------------------------------------------------------------------------------------------------

static void read_all(const st_file *f) {
    int64_t at = f->count ? f->tensors[0].offset : f->file_bytes;
    for (int i = 0; i < f->count; i++) {
        const st_tensor *t = &f->tensors[i];
        expect(t->offset == at && st_find(f, t->name) != NULL);
        at += t->bytes;
        char *raw = malloc((size_t)t->bytes + 1);
        float *x = malloc(2 * (size_t)t->bytes + 4);  // the smallest element has two bytes
        expect(raw && x && st_read(f, t, raw) == ERR_OK);
        expect(st_read_f32(f, t, x) == (st_floating(t->type) ? ERR_OK : ERR_DATA));
        free(raw), free(x);
    }
    expect(at == f->file_bytes);
}

// Some of each tensor: what a file in blocks says that it holds may be larger than any memory.
static void read_some(const st_file *f) {
    enum { MOST = 1 << 20 };
    float *x = malloc(MOST * sizeof *x);
    expect(x != NULL);
    for (int i = 0; i < f->count; i++) {
        const st_tensor *t = &f->tensors[i];
        int64_t n = t->bytes / 4, some = n < MOST ? n : MOST;
        expect(t->type == ST_F32 && st_find(f, t->name) != NULL);
        for (int64_t first = 0; first >= 0; first = first ? -1 : n - some) {
            err_t rc = st_read_f32_part(f, t, first, some, x);
            expect(rc == ERR_OK || (rc == ERR_DATA && strstr(err_last()->text, f->path)));
            if (first == n - some) break;
        }
    }
    free(x);
}

static bool try_file(const uint8_t *data, size_t size) {
    char path[64];
    st_file f;
    int fd = memfd_create("tensors", MFD_CLOEXEC);
    bool whole = false;
    if (fd < 0) return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, data, size) == (ssize_t)size) {
        err_t rc = st_open(&f, path);
        expect(rc == ERR_OK || (rc == ERR_DATA && strstr(err_last()->text, path)));
        whole = rc == ERR_OK;
        if (whole) f.blocks ? read_some(&f) : read_all(&f), st_close(&f);
    }
    close(fd);
    return whole;
}

// With the checksums that its head and blocks should have, where they can be found.
static bool try_blocks(const uint8_t *data, size_t size) {
    enum { HEAD = 36, ENTRY = 8 };
    uint8_t *all = malloc(size + 1);
    expect(all != NULL);
    memcpy(all, data, size);
    uint64_t header = size < HEAD ? 0 : le64_get(all + 8), count = size < HEAD ? 0 : le64_get(all + 24), rest = size;
    if (size >= HEAD && count <= (rest -= HEAD) / ENTRY && header <= rest - count * ENTRY) {
        size_t at = HEAD + (size_t)count * ENTRY + (size_t)header, head = at;
        for (uint8_t *entry = all + HEAD; entry < all + HEAD + count * ENTRY; entry += ENTRY) {
            uint32_t n = le32_get(entry);
            if (n > size - at) break;
            le32_put(entry + 4, (uint32_t)crc32_z(0, all + at, n));
            at += n;
        }
        le32_put(all + 32, (uint32_t)crc32_z(crc32_z(0, all, 32), all + HEAD, head - HEAD));
    }
    bool whole = try_file(all, size);
    free(all);
    return whole;
}

// --- a checkpoint ----------------------------------------------------------------------------------------------------

typedef struct world {
    char dir[256], ckpt[300], manifest[320];
    int fd;  // of the shared world's manifest.json, an unnamed file in memory: no disk is waited for
    float data[3][8];
    ckpt_tensor tensor[3][2];
    ckpt_group group[3];
    double numbers[2];
    ckpt_scalar scalar[2];
    ckpt_state s;
    run_progress at;
} world;

static void init(world *w) {
    for (int g = 0; g < 3; g++) {
        w->tensor[g][0] = (ckpt_tensor){.name = "wte", .dims = 2, .size = {2, 3}, .count = 6, .data = w->data[g]};
        w->tensor[g][1] = (ckpt_tensor){.name = "bias", .dims = 1, .size = {2}, .count = 2, .data = w->data[g] + 6};
        w->group[g] = (ckpt_group){g == 0 ? "" : g == 1 ? "m" : "v", w->tensor[g]};
    }
    w->numbers[0] = 3, w->numbers[1] = -0.1;
    w->scalar[0] = (ckpt_scalar){"count", &w->numbers[0]}, w->scalar[1] = (ckpt_scalar){"mean", &w->numbers[1]};
    w->s = (ckpt_state){.compress = w->s.compress,
                        .params = 2,
                        .groups = 3,
                        .group = w->group,
                        .scalars = 2,
                        .scalar = w->scalar,
                        .keys = 1,
                        .data_hash = "0011223344556677"};
    w->s.key[0] = (ckpt_key){.key = "batch.global", .value = "24"};
    w->at = (run_progress){.step = 3, .updates = 3, .loss_scale = 1, .best_loss = 2.5};
}

static bool make(world *w) {
    const char *base = getenv("TMPDIR");
    snprintf(w->dir, sizeof w->dir, "%s/fuzz-ckpt-XXXXXX", base ? base : "/tmp");
    init(w);
    for (int g = 0; g < 3; g++) w->tensor[g][0].axis = 1, w->tensor[g][0].slices = 3;  // and loaded without slices
    if (!mkdtemp(w->dir) || ckpt_save(w->dir, &w->s, &w->at, 1, NULL) != ERR_OK) return false;
    snprintf(w->ckpt, sizeof w->ckpt, "%s/ckpt/step-00000003", w->dir);
    snprintf(w->manifest, sizeof w->manifest, "%s/manifest.json", w->ckpt);
    return true;
}

// Made by the first input that needs it, removed at exit.
static world *shared;

static void drop(void) {
    close(shared->fd);
    io_remove_tree(shared->dir);
    free(shared);
}

static world *get(void) {
    if (shared) return shared;
    world *w = calloc(1, sizeof *w);
    char target[64];
    expect(w && make(w));
    w->fd = memfd_create("manifest", MFD_CLOEXEC);
    snprintf(target, sizeof target, "/proc/self/fd/%d", w->fd);
    expect(w->fd >= 0 && unlink(w->manifest) == 0 && symlink(target, w->manifest) == 0);
    shared = w;
    atexit(drop);
    return w;
}

static void count(void *ctx, const err_record *why) {
    expect(why->text[0] != 0);
    ++*(int *)ctx;
}

// Can the manifest be read?
static bool ask(world *w) {
    char hash[17], state_hash[17];
    bool found;
    int complaints = 0;
    ckpt_state *seen = malloc(sizeof *seen);
    run_progress at;
    expect(seen != NULL);
    init(w);
    err_t peek = ckpt_peek(w->ckpt, seen, &at), whole = ckpt_hash_dir(w->ckpt, hash, state_hash),
          load = ckpt_load(w->ckpt, &w->s, &w->at, true);
    expect(peek == ERR_OK || peek == ERR_DATA || peek == ERR_CONFIG);
    expect(whole == ERR_OK || whole == ERR_DATA || whole == ERR_CONFIG);
    expect(load == ERR_OK || load == ERR_DATA || load == ERR_CONFIG);
    expect(peek == ERR_OK || (whole == peek && load == peek));
    if (whole == ERR_OK) expect(strlen(hash) == 16 && strlen(state_hash) == 16);
    if (peek == ERR_OK) expect(seen->keys <= CKPT_KEYS_MAX && at.step >= 0);
    err_t resume = ckpt_resume(w->dir, &w->s, &w->at, &found, count, &complaints);
    expect(resume == ERR_OK || resume == ERR_DATA || resume == ERR_CONFIG);
    expect(found == (resume == ERR_OK) && complaints == (resume == ERR_DATA));
    free(seen);
    return peek == ERR_OK;
}

static bool try_manifest(const uint8_t *data, size_t size) {
    world *w = get();
    expect(ftruncate(w->fd, 0) == 0 && pwrite(w->fd, data, size, 0) == (ssize_t)size);
    return ask(w);
}

// Everything before the digest is the input's.
static bool try_digested(const uint8_t *data, size_t size) {
    uint8_t d[32];
    char hex[65], *text = malloc(size + 200);
    expect(text != NULL);
    memcpy(text, data, size);
    crypto_generichash(d, sizeof d, data, size, NULL, 0);
    int tail = sprintf(text + size, ",\n \"digest\": \"%s\"\n}\n", sodium_bin2hex(hex, sizeof hex, d, sizeof d));
    bool read = try_manifest((uint8_t *)text, size + (size_t)tail);
    free(text);
    return read;
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    if (size == 0) return false;
    switch (data[0] % TARGETS) {
    case TARGET_FILE: return try_file(data + 1, size - 1);
    case TARGET_MANIFEST: return try_manifest(data + 1, size - 1);
    case TARGET_BLOCKS: return try_blocks(data + 1, size - 1);
    default: return try_digested(data + 1, size - 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

// --- seeds: a valid file for each target -----------------------------------------------------------------------------

static bool seed_file(const char *path, uint8_t target, size_t cut, void (*seed)(void *, const uint8_t *, size_t),
                      void *ctx) {
    char *text;
    size_t n;
    if (io_read_file(path, 1 << 20, &text, &n) != ERR_OK) return false;
    uint8_t *bytes = malloc(n + 1);
    if (bytes) {
        bytes[0] = target;
        memcpy(bytes + 1, text, n);
        seed(ctx, bytes, n + 1 - cut);
    }
    free(bytes);
    free(text);
    return bytes != NULL;
}

// The manifest of two ranks, one of which has a part of a tensor, and the other all else, on devices with plans.
static bool seed_parts(size_t cut, void (*seed)(void *, const uint8_t *, size_t), void *ctx) {
    world *w = calloc(1, sizeof *w);
    ckpt_span span[3][2][2];
    ckpt_order order[2];
    ckpt_turn turn[2];
    ckpt_work work = {.world = 2, .groups = 3, .params = 2, .order = order, .span = span[0][0], .turn = turn};
    manifest m = {0};
    char *text = NULL;
    size_t n = 0;
    if (!w) return false;
    init(w);
    fake_device gpu = fake_open("cuda sm_90 4 SMs cuBLASLt 13.1.0");
    strcpy(gpu.plan[gpu.plans++], "matmul 1: m 0 n 2"), strcpy(gpu.plan[gpu.plans++], "\"quoted\\");
    w->s.dev = &gpu.head;
    for (int g = 0; g < 3; g++) {
        w->tensor[g][0].size[1] = CHUNK;
        span[g][0][0] = (ckpt_span){0, CHUNK}, span[g][1][0] = (ckpt_span){CHUNK, CHUNK};
        span[g][0][1] = (ckpt_span){0, 0}, span[g][1][1] = (ckpt_span){0, 2};
    }
    for (int i = 0; i < 2; i++) order[i] = ckpt_order_of(&w->tensor[0][i]);
    uint8_t *bytes = NULL;
    if (manifest_open(&m, &w->s, &w->at, &work) == ERR_OK && manifest_print(&m, &text, &n) == ERR_OK &&
        (bytes = malloc(n + 1))) {
        bytes[0] = TARGET_DIGESTED;
        memcpy(bytes + 1, text, n);
        seed(ctx, bytes, n + 1 - cut);
    }
    bool made = bytes != NULL;
    free(bytes), free(text), free(w);
    manifest_close(&m);
    return made;
}

// A checkpoint in blocks: its optimizer's file, and its manifest.
static bool seed_blocks(size_t cut, void (*seed)(void *, const uint8_t *, size_t), void *ctx) {
    world *w = calloc(1, sizeof *w);
    char path[IO_PATH] = "";
    if (w) w->s.compress = 1;
    bool made = w && make(w);
    if (made) snprintf(path, sizeof path, "%s/optimizer.safetensors.blocks", w->ckpt);
    made = made && seed_file(path, TARGET_FILE, 0, seed, ctx) && seed_file(path, TARGET_BLOCKS, 0, seed, ctx) &&
           seed_file(w->manifest, TARGET_DIGESTED, cut, seed, ctx);
    if (w) io_remove_tree(w->dir);
    free(w);
    return made;
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    world *w = calloc(1, sizeof *w);
    const size_t tail = strlen(",\n \"digest\": \"\"\n}\n") + 64;
    bool made = w && make(w);
    char model[IO_PATH] = "";
    if (made) snprintf(model, sizeof model, "%s/model.safetensors", w->ckpt);
    made = made && seed_file(model, TARGET_FILE, 0, seed, ctx) &&
           seed_file(w->manifest, TARGET_MANIFEST, 0, seed, ctx) &&
           seed_file(w->manifest, TARGET_DIGESTED, tail, seed, ctx) && seed_parts(tail, seed, ctx) &&
           seed_blocks(tail, seed, ctx);
    if (w) io_remove_tree(w->dir);
    free(w);
    return made ? 0 : -1;
}
