// test/test_picture.c: pictures as Pillow sees them. 100 JPEG and 42 PNG files of every kind are decoded, and 1,000
// parts of them resized, byte for byte as Pillow did when test/golden/make_images.py wrote down the checksums. What is
// damaged, too large or no picture is an error, never a crash.
#include "base/io.h"
#include "data/image/decode.h"
#include "data/image/list.h"
#include "data/image/resize.h"
#include "data/shard_set.h"
#include "test/support/expect.h"
#include "test/support/idx.h"
#include "test/support/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <zlib.h>

#include <cmocka.h>

enum { PICTURES = 142, JPEGS = 100 };

// --- the golden pictures ---------------------------------------------------------------------------------------------

typedef struct album {
    char *tar;  // the archive
    size_t size;
    image_list list;
    picture picture[PICTURES];
} album;

static void inflate_golden(album *a, const char *path) {
    gzFile z = gzopen("test/golden/images.tar.gz", "rb");
    assert_non_null(z);
    a->tar = malloc(1 << 20);
    int n = gzread(z, a->tar, 1 << 20);
    assert_true(n > 0 && n < 1 << 20);
    a->size = (size_t)n;
    gzclose(z);
    write_bytes(path, (const uint8_t *)a->tar, a->size);
}

static void open_album(album *a, place *p) {
    *a = (album){0};
    inflate_golden(a, at(p, "images.tar"));
    assert_ok(image_list_find(&a->list, IMAGES_TAR, at(p, "images.tar"), ""));
    assert_int_equal(a->list.count, PICTURES);
    for (int k = 0; k < PICTURES; k++) {
        const image_item *i = &a->list.item[k];
        assert_true(i->label == k && !i->why && i->offset + i->bytes <= (int64_t)a->size);
    }
}

static const uint8_t *bytes_of(const album *a, int k, size_t *n) {
    *n = (size_t)a->list.item[k].bytes;
    return (const uint8_t *)a->tar + a->list.item[k].offset;
}

static void close_album(album *a) {
    for (int k = 0; k < PICTURES; k++) picture_free(&a->picture[k]);
    image_list_free(&a->list);
    free(a->tar);
}

static uint32_t crc_of(const uint8_t *at, int64_t n) { return (uint32_t)crc32_z(0, at, (size_t)n); }

static void check_picture(album *a, const char *line) {
    int k, h, w;
    size_t n;
    unsigned crc;
    assert_int_equal(sscanf(line, "picture %d %d %d %x", &k, &h, &w, &crc), 4);
    const uint8_t *bytes = bytes_of(a, k, &n);
    picture *p = &a->picture[k];
    assert_ok(picture_decode(p, bytes, n));
    if (p->h != h || p->w != w || p->c != 3 || crc_of(p->at, picture_bytes(p)) != crc)
        fail_msg("%s: %d x %d x %d, checksum %08x; Pillow has %s", a->list.item[k].member, p->h, p->w, p->c,
                 crc_of(p->at, picture_bytes(p)), line);
}

static void check_resized(const album *a, resizer *r, const char *line) {
    static uint8_t out[64 * 64 * 3];
    int k, top, left, h, w, to_h, to_w;
    unsigned crc;
    assert_int_equal(sscanf(line, "resized %d %d %d %d %d %d %d %x", &k, &top, &left, &h, &w, &to_h, &to_w, &crc), 8);
    const picture *p = &a->picture[k];
    region part = {p->at + ((int64_t)top * p->w + left) * 3, (int64_t)p->w * 3, h, w, 3};
    r->plain = !r->plain;  // both ways, with wide vectors and without
    assert_ok(resize(r, out, to_h, to_w, &part));
    uint32_t one = crc_of(out, (int64_t)to_h * to_w * 3);
    r->plain = !r->plain;
    assert_ok(resize(r, out, to_h, to_w, &part));
    assert_int_equal(one, crc);
    if (crc_of(out, (int64_t)to_h * to_w * 3) != crc) fail_msg("another checksum than Pillow's: %s", line);
}

static void test_pillow(void **state) {
    album a;
    resizer r = {0};
    int pictures = 0, resized = 0;
    open_album(&a, *state);
    FILE *f = fopen("test/golden/images.txt", "r");
    assert_non_null(f);
    for (char line[128]; fgets(line, sizeof line, f);) {
        if (line[0] == 'p') check_picture(&a, line), pictures++;
        else check_resized(&a, &r, line), resized++;
    }
    fclose(f);
    assert_true(pictures == PICTURES && resized == 1000);
    resizer_free(&r);
    close_album(&a);
}

// One channel gives what each of three equal ones gives, at any place in memory.
static void test_grey(void **state) {
    enum { H = 31, W = 45, TO_H = 64, TO_W = 20 };
    uint8_t grey[H * W + PICTURE_SPARE], three[H * W * 3 + PICTURE_SPARE], out[TO_H * TO_W], out3[TO_H * TO_W * 3];
    resizer r = {0};
    (void)state;
    for (int i = 0; i < H * W; i++) {
        grey[i] = (uint8_t)(i * i / 7 + i);
        for (int c = 0; c < 3; c++) three[3 * i + c] = grey[i];
    }
    assert_ok(resize(&r, out, TO_H, TO_W, &(region){grey, W, H, W, 1}));
    assert_ok(resize(&r, out3, TO_H, TO_W, &(region){three, 3 * W, H, W, 3}));
    for (int i = 0; i < TO_H * TO_W * 3; i++) assert_int_equal(out3[i], out[i / 3]);
    resizer_free(&r);
}

// --- what is no picture ----------------------------------------------------------------------------------------------

static void test_refused(void **state) {
    picture p = {0};
    (void)state;
    assert_error(picture_decode(&p, NULL, 0), ERR_DATA, "expected a JPEG", "PNG");
    assert_error(picture_decode(&p, (const uint8_t *)"GIF89a", 6), ERR_DATA, "begins with 0x474946");
    assert_error(picture_decode(&p, (const uint8_t *)"\xff\xd8\xff\xd9", 4), ERR_DATA, "not a whole JPEG picture");
    assert_error(picture_decode(&p, (const uint8_t *)"\x89PNG\r\n\x1a\nabc", 11), ERR_DATA, "not a whole PNG picture",
                 "too early");
    picture_free(&p);
}

// A file that ends anywhere is an error; so is a bit that is wrong in what a PNG has checksums of.
static void test_cut(void **state) {
    album a;
    picture p = {0};
    open_album(&a, *state);
    for (int k = 0; k < PICTURES; k += 9) {
        size_t n;
        const uint8_t *whole = bytes_of(&a, k, &n);
        for (size_t m = 0; m < n; m += 1 + n / 40) {
            uint8_t *part = malloc(m + 1);  // its end is where ASan sees it
            memcpy(part, whole, m);
            if (k < JPEGS && m >= n - 2) {
                free(part);
                continue;
            }
            err_t rc = picture_decode(&p, part, m);
            if (rc != ERR_DATA) fail_msg("picture %d cut to %zu of %zu bytes: %d", k, m, n, rc);
            free(part);
        }
        if (k < JPEGS) continue;
        uint8_t *other = malloc(n);
        for (size_t m = 0; m < n; m += 1 + n / 60) {
            memcpy(other, whole, n);
            other[m] ^= 4;
            err_t rc = picture_decode(&p, other, n);
            // the name of a chunk that may be missing may become another's
            if (rc != ERR_DATA && rc != ERR_OK) fail_msg("picture %d, byte %zu: %d", k, m, rc);
        }
        free(other);
    }
    picture_free(&p);
    close_album(&a);
}

// A few bytes that claim many pixels are refused before memory is taken for them.
static void test_bombs(void **state) {
    album a;
    picture p = {0};
    open_album(&a, *state);
    for (int k = 0; k < PICTURES; k += JPEGS) {
        size_t n, at = 0;
        const uint8_t *whole = bytes_of(&a, k, &n);
        uint8_t *large = malloc(n);
        memcpy(large, whole, n);
        if (k == 0) {
            while (large[at] != 0xff || (large[at + 1] & 0xfc) != 0xc0) at++;  // the frame: its height and width
            memcpy(large + at + 5, "\xff\x00\xff\x00", 4);
            assert_error(picture_decode(&p, large, n), ERR_DATA, "65280 x 65280 pixels", "100000000 in all");
        } else {
            memcpy(large + 16, "\x00\x00\xff\x00\x00\x00\xff\x00", 8);
            uint32_t crc = (uint32_t)crc32(0, large + 12, 17);
            for (int i = 0; i < 4; i++) large[29 + i] = (uint8_t)(crc >> 8 * (3 - i));
            assert_error(picture_decode(&p, large, n), ERR_DATA, "65280 x 65280 pixels", "100000000 in all");
            memcpy(large + 16, "\x7f\xff\xff\xff", 4);
            crc = (uint32_t)crc32(0, large + 12, 17);
            for (int i = 0; i < 4; i++) large[29 + i] = (uint8_t)(crc >> 8 * (3 - i));
            assert_error(picture_decode(&p, large, n), ERR_DATA, "not a whole PNG");
        }
        free(large);
    }
    assert_int_equal(p.room, 0);
    picture_free(&p);
    close_album(&a);
}

// The tag at any place, in both orders of bytes; and blocks that end too early.
static void test_orientation(void **state) {
    uint8_t little[] = "II*\0\x08\0\0\0\x02\0\x0f\x01\x02\0\x01\0\0\0\x41\0\0\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0";
    uint8_t big[] = "MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0";
    (void)state;
    assert_int_equal(exif_orientation(little, sizeof little - 1), 6);
    assert_int_equal(exif_orientation(big, sizeof big - 1), 8);
    for (size_t n = 0; n < 34; n++) assert_int_equal(exif_orientation(little, n), 1);
    big[19] = 9;
    assert_int_equal(exif_orientation(big, sizeof big - 1), 1);
    little[24] = 4;  // another type
    assert_int_equal(exif_orientation(little, sizeof little - 1), 1);
    memcpy(big + 4, "\xff\xff\xff\xff", 4);
    assert_int_equal(exif_orientation(big, sizeof big - 1), 1);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, place_enter, place_leave)
    const struct CMUnitTest tests[] = {
        TEST(test_pillow), cmocka_unit_test(test_grey),        cmocka_unit_test(test_refused), TEST(test_cut),
        TEST(test_bombs),  cmocka_unit_test(test_orientation),
    };
    return cmocka_run_group_tests_name("picture", tests, NULL, NULL);
}
