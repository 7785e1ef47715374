// test/test_views.c: what is drawn of an image by chance. It is a function of (seed, n) alone and never changes from
// build to build; boxes have the shares and shapes that they should; halves are mirrored in turn; and what is cut is
// what stands there.
#include "data/image/view.h"
#include "test/support/expect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static source_draw position(int64_t n) {
    return (source_draw){.sample = n % 1000, .seed = 7, .n = n, .train = true, .epoch = n / 1000};
}

static void check_view(view v, int top, int left, int h, int w, bool flip) {
    if (v.top != top || v.left != left || v.h != h || v.w != w || v.flip != flip)
        fail_msg("(%d,%d) %d x %d %d, expected (%d,%d) %d x %d %d", v.top, v.left, v.h, v.w, v.flip, top, left, h, w,
                 flip);
}

// --- the middle ------------------------------------------------------------------------------------------------------

static void test_middle(void **state) {
    (void)state;
    check_view(view_middle(&(picture){.h = 256, .w = 340}, 224, 224), 16, 58, 224, 224, false);
    check_view(view_middle(&(picture){.h = 224, .w = 225}, 224, 224), 0, 0, 224, 224, false);
    // too small: the largest square, or the largest box of the sample's shape
    check_view(view_middle(&(picture){.h = 100, .w = 300}, 224, 224), 0, 100, 100, 100, false);
    check_view(view_middle(&(picture){.h = 300, .w = 100}, 224, 224), 100, 0, 100, 100, false);
    check_view(view_middle(&(picture){.h = 60, .w = 100}, 200, 100), 0, 35, 60, 30, false);
    check_view(view_middle(&(picture){.h = 1, .w = 1}, 10, 500), 0, 0, 1, 1, false);
}

// The six test-time views; what is enlarged stays inside of the picture.
static void test_test_time(void **state) {
    const picture large = {.h = 256, .w = 256}, tiny = {.h = 32, .w = 32}, small = {.h = 20, .w = 40};
    (void)state;
    for (int k = 0; k < VIEWS_TEST; k++) {
        int move = k < 2 ? 0 : k < 4 ? -1 : 1;
        check_view(view_test(&large, 224, 224, k), 16 + 7 * move, 16 + 7 * move, 224, 224, k % 2);
        check_view(view_test(&tiny, 32, 32, k), move, move, 32, 32, k % 2);
        check_view(view_test(&small, 32, 32, k), 0, 10 + move, 20, 20, k % 2);
    }
}

// --- random boxes ----------------------------------------------------------------------------------------------------

// 20,000 boxes: all inside, shares from `area` on and evenly spread, as many upright ones as wide ones.
static void test_boxes(void **state) {
    enum { DRAWS = 20000, TENTHS = 10 };
    const picture p = {.h = 300, .w = 400};
    const source_view o = {.area = 0.2};
    int tenth[TENTHS] = {0}, wide = 0, top = 0, left = 0;
    (void)state;
    for (int n = 0; n < DRAWS; n++) {
        source_draw d = position(n);
        view v = view_train(&o, &p, 224, 224, &d);
        double share = (double)v.h * v.w / (300 * 400), shape = (double)v.w / v.h;
        assert_true(v.h >= 1 && v.w >= 1 && v.top >= 0 && v.left >= 0 && v.top + v.h <= p.h && v.left + v.w <= p.w);
        assert_true(share > 0.197 && share <= 1 && shape > 0.74 && shape < 1.35 && !v.flip);
        tenth[(int)((share - 0.19) / 0.082)]++;
        wide += v.w > v.h;
        top += v.top == 0, left += v.left == 0;
    }
    // Large boxes that do not fit are drawn again, so there are fewer of them.
    for (int k = 0; k < 6; k++) assert_true(tenth[k] > DRAWS / 11 && tenth[k] < DRAWS / 6);
    assert_true(wide > DRAWS * 0.47 && wide < DRAWS * 0.62);
    assert_true(top > 0 && top < DRAWS / 3 && left > 0 && left < DRAWS / 3);
}

// A picture that no box fits in gives its middle.
static void test_fallback(void **state) {
    const source_view o = {.area = 0.9};
    source_draw d = position(5);
    (void)state;
    check_view(view_train(&o, &(picture){.h = 10, .w = 1000}, 8, 8, &d), 0, 493, 10, 13, false);
    check_view(view_train(&o, &(picture){.h = 1000, .w = 10}, 8, 8, &d), 493, 0, 13, 10, false);
}

// The bits of a run depend on these.
static void test_known(void **state) {
    const picture p = {.h = 256, .w = 341};
    const source_view box = {.area = 0.08, .flip = FLIP_RANDOM}, moved = {.shift = 4, .flip = FLIP_ALTERNATING};
    (void)state;
    source_draw d = position(0), later = position(INT64_C(1) << 33);
    check_view(view_train(&box, &p, 224, 224, &d), 32, 19, 186, 222, false);
    check_view(view_train(&box, &p, 224, 224, &later), 37, 40, 218, 238, false);
    check_view(view_train(&moved, &(picture){.h = 32, .w = 32}, 32, 32, &d), 1, 0, 32, 32, false);
    check_view(view_train(&moved, &(picture){.h = 32, .w = 32}, 32, 32, &later), 4, 1, 32, 32, false);
    d.seed = 8;
    check_view(view_train(&box, &p, 224, 224, &d), 127, 186, 106, 128, true);
}

// --- shifts and flips ------------------------------------------------------------------------------------------------

// Each of the 9 x 9 places comes about as often as any other.
static void test_shifts(void **state) {
    enum { DRAWS = 40500 };
    static int seen[9][9];
    const source_view o = {.area = 1, .shift = 4};
    (void)state;
    for (int n = 0; n < DRAWS; n++) {
        source_draw d = position(n);
        view v = view_train(&o, &(picture){.h = 40, .w = 32}, 32, 32, &d);
        assert_true(v.h == 32 && v.w == 32);
        seen[v.top][v.left + 4]++;
    }
    for (int k = 0; k < 81; k++) assert_true(seen[k / 9][k % 9] > 400 && seen[k / 9][k % 9] < 600);
}

static void test_flips(void **state) {
    enum { SAMPLES = 1000 };
    const picture p = {.h = 8, .w = 8};
    int random = 0, first = 0, again = 0;
    (void)state;
    for (int k = 0; k < SAMPLES; k++) {
        source_draw d = position(k), next = position(SAMPLES + (k * 7 + 2) % SAMPLES), third = d;
        next.sample = k, next.epoch = 1, third.n = 2 * SAMPLES + k, third.epoch = 2;
        source_view o = {.flip = FLIP_RANDOM};
        bool a = view_train(&o, &p, 8, 8, &d).flip, b = view_train(&o, &p, 8, 8, &next).flip;
        random += a, again += a == b;
        o.flip = FLIP_ALTERNATING;
        a = view_train(&o, &p, 8, 8, &d).flip;
        first += a;
        assert_true(view_train(&o, &p, 8, 8, &next).flip != a && view_train(&o, &p, 8, 8, &third).flip == a);
    }
    assert_true(random > 440 && random < 560 && first > 440 && first < 560 && again > 440 && again < 560);
}

// --- cutting ---------------------------------------------------------------------------------------------------------

static uint8_t value_at(int y, int x, int c) { return (uint8_t)(1 + (y * 31 + x * 7 + c * 3) % 255); }

// A box of the sample's size at every place around the picture, mirrored or not: what is outside is 0.
static void test_cut(void **state) {
    enum { H = 5, W = 6, SIDE = 4 };
    resizer r = {0};
    (void)state;
    for (int c = 1; c <= 3; c += 2) {
        picture p = {0};
        uint8_t out[SIDE * SIDE * 3];
        assert_ok(picture_make(&p, H, W, c));
        for (int i = 0; i < H * W * c; i++) p.at[i] = value_at(i / c / W, i / c % W, i % c);
        for (int i = 0; i < 2 * 15 * 15; i++) {
            view v = {.top = i % 15 - 6, .left = i / 15 % 15 - 6, .h = SIDE, .w = SIDE, .flip = i >= 225};
            assert_ok(view_cut(&r, out, SIDE, SIDE, &p, &v));
            for (int k = 0; k < SIDE * SIDE * c; k++) {
                int y = v.top + k / c / SIDE, of = k / c % SIDE, x = v.left + (v.flip ? SIDE - 1 - of : of);
                bool inside = y >= 0 && y < H && x >= 0 && x < W;
                assert_int_equal(out[k], inside ? value_at(y, x, k % c) : 0);
            }
        }
        picture_free(&p);
    }
    resizer_free(&r);
}

// A box of another size is resized alone: nothing outside of it has a share.
static void test_resized(void **state) {
    enum { SIDE = 9 };
    picture p = {0}, part = {0};
    resizer r = {0};
    uint8_t out[SIDE * SIDE * 3], want[SIDE * SIDE * 3];
    (void)state;
    assert_ok(picture_make(&p, 20, 30, 3));
    assert_ok(picture_make(&part, 6, 11, 3));
    for (int i = 0; i < 20 * 30 * 3; i++) p.at[i] = (uint8_t)(i * i / 3);
    for (int y = 0; y < 6; y++) memcpy(part.at + y * 33, p.at + ((4 + y) * 30 + 8) * 3, 33);
    assert_ok(view_cut(&r, out, SIDE, SIDE, &p, &(view){.top = 4, .left = 8, .h = 6, .w = 11}));
    assert_ok(resize(&r, want, SIDE, SIDE, &(region){part.at, 33, 6, 11, 3}));
    assert_memory_equal(out, want, sizeof out);
    picture_free(&p), picture_free(&part);
    resizer_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_middle),   cmocka_unit_test(test_test_time), cmocka_unit_test(test_boxes),
        cmocka_unit_test(test_fallback), cmocka_unit_test(test_known),     cmocka_unit_test(test_shifts),
        cmocka_unit_test(test_flips),    cmocka_unit_test(test_cut),       cmocka_unit_test(test_resized),
    };
    return cmocka_run_group_tests_name("views", tests, NULL, NULL);
}
