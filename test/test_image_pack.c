// test/test_image_pack.c: what becomes of pictures in folders, archives and files of many. Labels are the places of
// names in byte order; what is written does not depend on threads; what can't be read is named, and too much of it
// leaves nothing behind.
#include "base/io.h"
#include "data/image/decode.h"
#include "data/image/pack.h"
#include "data/image/shard.h"
#include "data/shard_set.h"
#include "data/source.h"
#include "test/support/expect.h"
#include "test/support/idx.h"
#include "test/support/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

// --- pictures: those of test/golden/images.tar.gz --------------------------------------------------------------------

enum { TAR_MOST = 1 << 20, BLOCK = 512 };

typedef struct golden {
    uint8_t *at;
    int n;
} golden;

static golden read_golden(void) {
    golden g = {malloc(TAR_MOST), 0};
    gzFile z = gzopen("test/golden/images.tar.gz", "rb");
    assert_non_null(z);
    g.n = gzread(z, g.at, TAR_MOST);
    gzclose(z);
    assert_true(g.n > BLOCK);
    return g;
}

// Picture `number` as a file.
static void put_picture(place *p, const golden *g, int number, const char *name) {
    for (int at_ = 0; at_ + BLOCK <= g->n && g->at[at_];) {
        const char *member = (const char *)g->at + at_;
        int bytes = (int)strtol(member + 124, NULL, 8);
        if (atoi(member) == number && !strstr(member, ".cls")) {
            write_bytes(at(p, name), g->at + at_ + BLOCK, (size_t)bytes);
            return;
        }
        at_ += BLOCK + (bytes + BLOCK - 1) / BLOCK * BLOCK;
    }
    fail_msg("no picture %d", number);
}

static void put_folder(place *p, const char *name) { assert_ok(io_mkdirs(at(p, name))); }

// pictures/{b,a,Z}, of which a has a folder inside.
static void put_folders(place *p, const golden *g) {
    static const char *const folders[] = {"pictures/b", "pictures/a/deep", "pictures/Z", "pictures/.hidden"};
    char name[64];
    for (int k = 0; k < 4; k++) put_folder(p, folders[k]);
    for (int k = 0; k < 30; k++) {
        snprintf(name, sizeof name, "%s/%02d.%s", folders[k % 4], k, k % 3 ? "jpg" : "PNG");
        put_picture(p, g, k * 3, name);
    }
    write_bytes(at(p, "pictures/README"), (const uint8_t *)"x", 1);
    write_bytes(at(p, "pictures/b/notes.txt"), (const uint8_t *)"x", 1);
}

// --- packing ---------------------------------------------------------------------------------------------------------

typedef struct bad_list {
    int count;
    char text[4][512];
} bad_list;

static void note_bad(void *ctx, const char *text) {
    bad_list *b = ctx;
    if (b->count < 4) snprintf(b->text[b->count], sizeof *b->text, "%s", text);
    b->count++;
}

typedef struct job {
    image_pack_options o;
    char input[IO_PATH], val[IO_PATH], output[IO_PATH];
    image_pack_report r;
    bad_list bad;
} job;

static err_t pack_of(job *j, place *p, image_kind kind, const char *input, const char *output) {
    snprintf(j->input, sizeof j->input, "%s", at(p, input));
    snprintf(j->output, sizeof j->output, "%s", at(p, output));
    j->o.kind = kind, j->o.input = j->input, j->o.output = j->output, j->o.bad = note_bad, j->o.ctx = &j->bad;
    j->o.val_input = j->val;
    if (!j->o.shard_images) j->o.shard_images = 1000;
    j->bad.count = 0;
    return image_pack_run(&j->o, &j->r);
}

static bool same_files(place *p, const char *a, const char *b) {
    char *x, *y;
    size_t n, m;
    assert_ok(io_read_file(at(p, a), 1 << 26, &x, &n));
    assert_ok(io_read_file(at(p, b), 1 << 26, &y, &m));
    bool same = n == m && memcmp(x, y, n) == 0;
    free(x), free(y);
    return same;
}

static bool is_there(place *p, const char *name) {
    struct stat st;
    return stat(at(p, name), &st) == 0;
}

static void open_shard(image_shard *s, reader *r, place *p, const char *name) {
    *s = (image_shard){.file.fd = -1};
    *r = (reader){0};
    reader_open(r, 0, NULL);
    assert_ok(image_shard_open(s, r, at(p, name)));
}

static void close_shard(image_shard *s, reader *r) {
    image_shard_close(s, r);
    reader_close(r);
}

// --- folders ---------------------------------------------------------------------------------------------------------

static void test_folders(void **state) {
    static const int label[] = {2, 1, 0};  // of b, a, Z
    place *p = *state;
    golden g = read_golden();
    job j = {0};
    image_shard s;
    reader r;
    picture want = {0}, got = {0};
    put_folders(p, &g);
    assert_ok(pack_of(&j, p, IMAGES_FOLDERS, "pictures", "out/set"));
    assert_true(j.r.train == 23 && j.r.val == 0 && j.r.classes == 3 && j.r.bad == 0 && j.r.skipped == 2);
    open_shard(&s, &r, p, "out/set-train-00000.bin");
    assert_true(s.images == 23 && s.channels == 3 && s.classes == 3 && memcmp(s.names, "Z\0a\0b", 6) == 0);
    int64_t k = 0;
    for (int c = 2; c >= 0; c--)  // Z, a, b; in each by name
        for (int i = c; i < 30; i += 4, k++) {
            char name[64], *bytes;
            size_t n;
            static const char *const folders[] = {"b", "a/deep", "Z"};
            snprintf(name, sizeof name, "pictures/%s/%02d.%s", folders[c], i, i % 3 ? "jpg" : "PNG");
            assert_ok(io_read_file(at(p, name), 1 << 20, &bytes, &n));
            assert_ok(picture_decode(&want, (uint8_t *)bytes, n));
            free(bytes);
            assert_ok(image_shard_read(&s, &r, &s.file, k, false, &got));
            assert_true(s.entry[k].label == label[c] && got.h == want.h && got.w == want.w);
            assert_memory_equal(got.at, want.at, picture_bytes(&got));
        }
    assert_int_equal(k, 23);
    close_shard(&s, &r);
    picture_free(&want), picture_free(&got);
    free(g.at);
}

// With any number of threads, shards of any size, a share for validation: the same bytes.
static void test_threads(void **state) {
    static const char *const files[] = {"train-00000", "train-00001", "train-00004", "val-00000", "val-00001"};
    place *p = *state;
    golden g = read_golden();
    char out[16], one[64], other[64];
    put_folders(p, &g);
    for (int threads = 1; threads <= 9; threads += 4) {
        job j = {.o = {.threads = threads, .shard_images = 4, .val_fraction = 0.25, .size = 20}};
        snprintf(out, sizeof out, "t%d", threads);
        assert_ok(pack_of(&j, p, IMAGES_FOLDERS, "pictures", out));
        assert_true(j.r.train == 17 && j.r.val == 6 && j.r.shards_out == 7);
        for (int k = 0; k < 5; k++) {
            snprintf(one, sizeof one, "t1-%s.bin", files[k]);
            snprintf(other, sizeof other, "%s-%s.bin", out, files[k]);
            assert_true(same_files(p, one, other));
        }
    }
    // the sums are of the training images of all shards, and those of the validation files say the same
    image_shard s;
    reader r;
    picture image = {0};
    image_sums sums = {0};
    for (int k = 0; k < 5; k++) {
        snprintf(one, sizeof one, "t1-train-%05d.bin", k);
        open_shard(&s, &r, p, one);
        for (int64_t i = 0; i < s.images; i++) {
            assert_ok(image_shard_read(&s, &r, &s.file, i, false, &image));
            assert_true(image.h == 20 ? image.w >= 20 : image.w == 20 && image.h > 20);
            image_sums_add(&sums, &image);
        }
        close_shard(&s, &r);
    }
    open_shard(&s, &r, p, "t1-val-00001.bin");
    assert_true(s.size == 20 && memcmp(&s.sums, &sums, sizeof sums) == 0);
    close_shard(&s, &r);
    picture_free(&image);
    free(g.at);
}

// Classes are those of both inputs; a new set takes the place of an old one.
static void test_val_input(void **state) {
    place *p = *state;
    golden g = read_golden();
    job j = {.o = {.shard_images = 2}};
    image_shard s;
    reader r;
    put_folder(p, "one/m"), put_folder(p, "one/z"), put_folder(p, "two/b"), put_folder(p, "two/z");
    put_picture(p, &g, 3, "one/m/1.jpg"), put_picture(p, &g, 4, "one/z/1.jpg"), put_picture(p, &g, 5, "one/z/2.jpg");
    put_picture(p, &g, 6, "two/b/1.jpg"), put_picture(p, &g, 7, "two/z/1.jpg");
    snprintf(j.val, sizeof j.val, "%s", at(p, "two"));
    j.o.val_fraction = 0.5;  // does not matter then
    assert_ok(pack_of(&j, p, IMAGES_FOLDERS, "one", "s"));
    assert_true(j.r.train == 3 && j.r.val == 2 && j.r.classes == 3);
    open_shard(&s, &r, p, "s-train-00000.bin");
    assert_true(s.images == 2 && s.entry[0].label == 1 && s.entry[1].label == 2 && memcmp(s.names, "b\0m\0z", 6) == 0);
    close_shard(&s, &r);
    open_shard(&s, &r, p, "s-val-00000.bin");
    assert_true(s.images == 2 && s.entry[0].label == 0 && s.entry[1].label == 2);
    close_shard(&s, &r);
    assert_true(is_there(p, "s-train-00001.bin"));
    write_bytes(at(p, "s-train-00007.bin.tmp"), (const uint8_t *)"x", 1);
    j.val[0] = 0, j.o.val_fraction = 0, j.o.shard_images = 10;
    assert_ok(pack_of(&j, p, IMAGES_FOLDERS, "two", "s"));
    assert_true(j.r.train == 2 && !is_there(p, "s-train-00001.bin") && !is_there(p, "s-val-00000.bin") &&
                !is_there(p, "s-train-00007.bin.tmp"));
    free(g.at);
}

// --- what can't be read ----------------------------------------------------------------------------------------------

static void test_bad(void **state) {
    place *p = *state;
    golden g = read_golden();
    job j = {.o = {.threads = 3, .shard_images = 2}};
    put_folder(p, "f/a");
    put_picture(p, &g, 1, "f/a/1.jpg"), put_picture(p, &g, 2, "f/a/3.jpg"), put_picture(p, &g, 8, "f/a/5.jpg");
    write_bytes(at(p, "f/a/2.jpg"), (const uint8_t *)"GIF89a", 6);
    write_bytes(at(p, "f/a/4.jpg"), (const uint8_t *)"", 0);
    assert_error(pack_of(&j, p, IMAGES_FOLDERS, "f", "bad"), ERR_DATA, "1 picture can't be read", "bad_most = 0",
                 "f/a/2.jpg: begins with 0x474946", "raise bad_most");
    j.o.bad_most = 1;
    assert_error(pack_of(&j, p, IMAGES_FOLDERS, "f", "bad"), ERR_DATA, "2 pictures can't be read", "f/a/2.jpg");
    assert_true(!is_there(p, "bad-train-00000.bin.tmp") && !is_there(p, "bad-train-00000.bin"));
    j.o.bad_most = 2;
    assert_ok(pack_of(&j, p, IMAGES_FOLDERS, "f", "bad"));
    assert_true(j.r.train == 3 && j.r.bad == 2 && j.bad.count == 2 && strstr(j.bad.text[1], "f/a/4.jpg: "));
    // a pack that fails leaves the old set alone
    j.o.bad_most = 0;
    assert_error(pack_of(&j, p, IMAGES_FOLDERS, "f", "bad"), ERR_DATA, "can't be read");
    assert_true(is_there(p, "bad-train-00000.bin") && is_there(p, "bad-train-00001.bin"));
    assert_error(pack_of(&j, p, IMAGES_FOLDERS, "nothing", "bad"), ERR_CONFIG, "nothing");
    put_folder(p, "empty");
    assert_error(pack_of(&j, p, IMAGES_FOLDERS, "empty", "bad"), ERR_CONFIG, "no picture in it");
    put_folder(p, "worse/a");
    write_bytes(at(p, "worse/a/1.png"), (const uint8_t *)"GIF89a", 6);
    j.o.bad_most = 9;
    assert_error(pack_of(&j, p, IMAGES_FOLDERS, "worse", "bad"), ERR_DATA, "no image is left for training");
    free(g.at);
}

// --- archives --------------------------------------------------------------------------------------------------------

static void test_tar(void **state) {
    place *p = *state;
    golden g = read_golden();
    job j = {0};
    image_shard s;
    reader r;
    write_bytes(at(p, "g.tar"), g.at, (size_t)g.n);
    assert_ok(pack_of(&j, p, IMAGES_TAR, "g.tar", "t"));
    assert_true(j.r.train == 142 && j.r.classes == 142 && j.r.bad == 0);
    open_shard(&s, &r, p, "t-train-00000.bin");
    for (int k = 0; k < 142; k++) assert_int_equal(s.entry[k].label, k);
    close_shard(&s, &r);
    // without the first label, and with one that is no number
    int first = (int)strtol((const char *)g.at + 124, NULL, 8), cls = BLOCK + (first + BLOCK - 1) / BLOCK * BLOCK;
    assert_non_null(strstr((const char *)g.at + cls, ".cls"));
    g.at[cls + BLOCK] = 'x';
    write_bytes(at(p, "g.tar"), g.at, (size_t)g.n);
    assert_error(pack_of(&j, p, IMAGES_TAR, "g.tar", "t"), ERR_DATA,
                 "g.tar: 0000.jpg: the file .cls beside it holds no number");
    memmove(g.at + cls, g.at + cls + 2 * BLOCK, (size_t)(g.n - cls - 2 * BLOCK));
    write_bytes(at(p, "g.tar"), g.at, (size_t)g.n - 2 * BLOCK);
    assert_error(pack_of(&j, p, IMAGES_TAR, "g.tar", "t"), ERR_DATA, "0000.jpg: no file of the same name", ".cls");
    for (size_t n = BLOCK; n < 6000; n += 900) {
        write_bytes(at(p, "g.tar"), g.at, n);
        assert_error(pack_of(&j, p, IMAGES_TAR, "g.tar", "t"), ERR_DATA, "g.tar: offset", "tar archive");
    }
    write_bytes(at(p, "g.tar"), g.at, 3000);
    assert_error(pack_of(&j, p, IMAGES_TAR, "g.tar", "t"), ERR_DATA, "g.tar: offset", "tar archive");
    g.at[3]++;
    write_bytes(at(p, "g.tar"), g.at, (size_t)g.n - 2 * BLOCK);
    assert_error(pack_of(&j, p, IMAGES_TAR, "g.tar", "t"), ERR_DATA, "offset 0: a header with a wrong checksum",
                 "not compressed");
    free(g.at);
}

// Appends a member; its header says that it has `said` bytes.
static void put_member(golden *to, char type, const char *name, const void *bytes, int count, int said) {
    uint8_t *h = to->at + to->n;
    int sum = 0;
    memset(h, 0, BLOCK);
    snprintf((char *)h, 100, "%s", name);
    snprintf((char *)h + 124, 12, "%011o", (unsigned)said);
    memset(h + 148, ' ', 8);
    h[156] = (uint8_t)type;
    memcpy(h + 257, "ustar\00000", 8);
    for (int i = 0; i < BLOCK; i++) sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", (unsigned)sum);
    memcpy(h + BLOCK, bytes, (size_t)count);
    to->n += BLOCK + (count + BLOCK - 1) / BLOCK * BLOCK;
}

// A pax header says of one member what it is called and how large it is, whatever its own header says; of those after
// it, it says nothing.
static void test_pax(void **state) {
    place *p = *state;
    golden g = read_golden(), made = {calloc(1, TAR_MOST), 0};
    job j = {0};
    image_shard s;
    reader r;
    char *bytes, pax[128], size[32];
    size_t n;
    assert_non_null(made.at);
    put_picture(p, &g, 1, "one.jpg");
    assert_ok(io_read_file(at(p, "one.jpg"), 1 << 20, &bytes, &n));
    assert_true(n >= 100 && n < 10000);
    snprintf(size, sizeof size, "size=%zu\n", n);
    snprintf(pax, sizeof pax, "%zu %s16 path=x/a.jpg\n", strlen(size) + 3, size);
    put_member(&made, 'x', "PaxHeaders/a", pax, (int)strlen(pax), (int)strlen(pax));
    put_member(&made, '0', "x/b.txt", bytes, (int)n, 0);
    put_member(&made, '0', "x/a.cls", "3", 1, 1);
    put_member(&made, '0', "x/c.jpg", bytes, (int)n, (int)n);
    put_member(&made, '0', "x/c.cls", "1\n", 2, 2);
    write_bytes(at(p, "p.tar"), made.at, (size_t)made.n + 2 * BLOCK);
    assert_ok(pack_of(&j, p, IMAGES_TAR, "p.tar", "p"));
    assert_true(j.r.train == 2 && j.r.classes == 4 && j.r.bad == 0 && j.r.skipped == 0);
    open_shard(&s, &r, p, "p-train-00000.bin");
    assert_true(s.entry[0].label == 3 && s.entry[1].label == 1 && s.entry[0].crc == s.entry[1].crc);
    close_shard(&s, &r);
    free(bytes), free(g.at), free(made.at);
}

// --- files of many images --------------------------------------------------------------------------------------------

static void test_cifar(void **state) {
    enum { N = 5, PIXELS = 3072 };
    place *p = *state;
    static uint8_t ten[N * (1 + PIXELS)], hundred[N * (2 + PIXELS)];
    picture image = {0};
    for (int k = 0; k < N; k++) {
        ten[k * (1 + PIXELS)] = (uint8_t)(9 - k);
        hundred[k * (2 + PIXELS)] = 19, hundred[k * (2 + PIXELS) + 1] = (uint8_t)(90 + k);
        for (int i = 0; i < PIXELS; i++)
            ten[k * (1 + PIXELS) + 1 + i] = hundred[k * (2 + PIXELS) + 2 + i] = (uint8_t)(i * 7 + k + i / 100);
    }
    write_bytes(at(p, "ten.bin"), ten, sizeof ten);
    write_bytes(at(p, "hundred.bin"), hundred, sizeof hundred);
    for (int kind = 0; kind < 2; kind++) {
        job j = {0};
        image_shard s;
        reader r;
        assert_ok(pack_of(&j, p, kind ? IMAGES_CIFAR100 : IMAGES_CIFAR10, kind ? "hundred.bin" : "ten.bin", "c"));
        assert_true(j.r.train == N && j.r.classes == (kind ? 100 : 10) && j.r.channels == 3);
        open_shard(&s, &r, p, "c-train-00000.bin");
        for (int k = 0; k < N; k++) {
            assert_int_equal(s.entry[k].label, kind ? 90 + k : 9 - k);
            assert_ok(image_shard_read(&s, &r, &s.file, k, false, &image));
            for (int i = 0; i < PIXELS; i++)
                assert_int_equal(image.at[i], (uint8_t)((i % 3 * 1024 + i / 3) * 7 + k + (i % 3 * 1024 + i / 3) / 100));
        }
        close_shard(&s, &r);
    }
    job j = {0};
    assert_error(pack_of(&j, p, IMAGES_CIFAR10, "hundred.bin", "c"), ERR_DATA, "expected records of 3073");
    ten[3073] = 10;
    write_bytes(at(p, "ten.bin"), ten, sizeof ten);
    assert_error(pack_of(&j, p, IMAGES_CIFAR10, "ten.bin", "c"), ERR_DATA, "offset 3073: label 10");
    picture_free(&image);
}

// (N,H,W) and (N,C,H,W), plain and compressed.
static void test_idx(void **state) {
    enum { N = 7, H = 4, W = 5 };
    place *p = *state;
    static uint8_t values[N * 3 * H * W], labels[N];
    picture image = {0};
    for (int i = 0; i < N * 3 * H * W; i++) values[i] = (uint8_t)(i * 13 + i / 256);
    for (int i = 0; i < N; i++) labels[i] = (uint8_t)(i % 4);
    for (int kind = 0; kind < 2; kind++) {
        int c = kind ? 3 : 1;
        job j = {0};
        image_shard s;
        reader r;
        if (kind) write_idx(at(p, "i"), 4, (uint32_t[]){N, 3, H, W}, values, true);
        else write_idx(at(p, "i"), 3, (uint32_t[]){N, H, W}, values, false);
        write_idx(at(p, "l"), 1, (uint32_t[]){N}, labels, kind);
        assert_ok(pack_of(&j, p, IMAGES_IDX, "[il]", "x"));
        assert_true(j.r.train == N && j.r.classes == 4 && j.r.channels == c);
        open_shard(&s, &r, p, "x-train-00000.bin");
        for (int k = 0; k < N; k++) {
            assert_int_equal(s.entry[k].label, k % 4);
            assert_ok(image_shard_read(&s, &r, &s.file, k, false, &image));
            assert_true(image.h == H && image.w == W && image.c == c);
            for (int i = 0; i < H * W * c; i++)
                assert_int_equal(image.at[i], values[k * H * W * c + i % c * H * W + i / c]);
        }
        close_shard(&s, &r);
    }
    job j = {.o.val_fraction = 0.3};
    assert_ok(pack_of(&j, p, IMAGES_IDX, "[il]", "part"));
    assert_true(j.r.train == 5 && j.r.val == 2);
    write_idx(at(p, "i"), 2, (uint32_t[]){N, 9}, values, false);
    assert_error(pack_of(&j, p, IMAGES_IDX, "[il]", "x"), ERR_DATA, "images of 1 dimensions");
    picture_free(&image);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, place_enter, place_leave)
    const struct CMUnitTest tests[] = {
        TEST(test_folders), TEST(test_threads), TEST(test_val_input), TEST(test_bad),
        TEST(test_tar),     TEST(test_pax),     TEST(test_cifar),     TEST(test_idx),
    };
    return cmocka_run_group_tests_name("image_pack", tests, NULL, NULL);
}
