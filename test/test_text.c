// test/test_text.c: text that is put together piece by piece (base/text.h), where it has room and where it has none.
#include "base/io.h"
#include "base/text.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

// Of every room, the text is as much as fits of the whole, and says whether that is all.
static void cut_where_the_room_ends(void **state) {
    (void)state;
    static const char whole[] = "one 2 three,four";
    for (size_t room = 1; room <= sizeof whole + 2; room++) {
        char at[sizeof whole + 2];
        memset(at, 'x', sizeof at);
        text t = {.at = at, .room = room};
        text_put(&t, "one %d", 2);
        text_put(&t, " three");
        text_add(&t, ",four!", 5);
        bool fits = room >= sizeof whole;
        size_t n = fits ? sizeof whole - 1 : room - 1;
        assert_true(t.n == n && memcmp(at, whole, n) == 0 && at[n] == 0 && t.full == !fits);
        assert_int_equal(text_bytes(&t), fits ? n : 0);
        if (room < sizeof at) assert_int_equal(at[room], 'x');
    }
}

static void grows(void **state) {
    (void)state;
    text t = {0};
    assert_int_equal(text_bytes(&t), 0);
    for (int i = 0; i < 5000; i++) i % 2 ? text_put(&t, "%04d", i) : text_add(&t, "abcd", 4);
    assert_true(!t.full && text_bytes(&t) == 20000 && strlen(t.at) == 20000);
    assert_memory_equal(t.at + 19992, "abcd4999", 8);
    text_free(&t);
    assert_true(t.at == NULL && t.n == 0);
}

// In pieces of any size, and none of them twice; a piece that is longer than the room is missing, and that is said.
static void written_to_a_file(void **state) {
    (void)state;
    char path[] = "/tmp/lockstep-text-XXXXXX", *found;
    size_t n;
    for (size_t room = 8; room <= 64; room += 7) {
        char at[64], want[512] = "";
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        text t = {.at = at, .room = room, .to = fd, .path = path};
        for (int i = 0; i < 40; i++) text_put(&t, "%d,", i), sprintf(want + strlen(want), "%d,", i);
        assert_int_equal(text_flush(&t), ERR_OK);
        assert_false(t.full);
        assert_int_equal(io_read_file(path, 1 << 16, &found, &n), ERR_OK);
        assert_string_equal(found, want);
        free(found);
        text_put(&t, "%64s", "long");
        assert_true(t.full);
        close(fd);
        assert_int_equal(text_flush(&t), ERR_IO);
        assert_int_equal(text_flush(&t), ERR_IO);
        unlink(path);
        strcpy(path, "/tmp/lockstep-text-XXXXXX");
    }
}

// Room is left for what closes it, and the last character is whole.
static void escaped_text_leaves_room(void **state) {
    (void)state;
    static const text_escapes plain = {.invalid = "?"};
    for (size_t room = 12; room <= 40; room++) {
        char at[40];
        text t = {.at = at, .room = room, .spare = 8};
        text_put(&t, "[");
        text_escaped(&t, &plain, "\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC");
        bool all = t.n == 19;
        assert_true(t.full == !all && (t.n - 1) % 3 == 0 && t.n + 1 <= room);
        assert_true(all ? room - 16 > 8 : room - t.n <= 8 && room - (t.n - 3) > 8);
        t.full = false;
        text_put(&t, "]");
        assert_true(!t.full && at[t.n - 1] == ']');
    }
}

static void escapes(void **state) {
    (void)state;
    static const text_escapes how = {.special = {"a<b>", "\n\\n"}, .invalid = "?", .control = "{%d}"};
    static const text_escapes upper = {.control = "{%02x}", .upper_controls = true}, none = {0};
    char at[128];
    text t = {.at = at, .room = sizeof at};
    text_escaped(&t, &how, "xay\n\t\x7F\xFF\xC3\xA9\xC2\x85");
    assert_string_equal(at, "x<b>y\\n{9}{127}?\xC3\xA9\xC2\x85");
    t.n = 0;
    text_escaped(&t, &upper, "a\xC2\x85\xC2\xA0\xFF");
    assert_string_equal(at, "a{c2}\xC2\xA0\xFF");
    t.n = 0;
    text_escaped(&t, &none, "\x01\xFF");
    assert_string_equal(at, "\x01\xFF");
}

static void members(void **state) {
    (void)state;
    char at[256];
    text t = {.at = at, .room = sizeof at};
    text_put(&t, "{");
    text_real(&t, "a", 1.0 / 3, 3), text_real(&t, "b", NAN, 3), text_whole(&t, "c", 0), text_whole(&t, "d", -7);
    text_put(&t, ",\n ");
    text_word(&t, "e", "\"\\\n"), text_word(&t, "f", NULL);
    text_key(&t, "g"), text_put(&t, "["), text_number(&t, INFINITY, 5);
    text_put(&t, "]}");
    assert_string_equal(
        at, "{\"a\":0.333,\"b\":null,\"c\":0,\"d\":null,\n \"e\":\"\\\"\\\\\\u000a\",\"f\":null,\"g\":[null]}");
}

static void sizes_and_shapes(void **state) {
    (void)state;
    static const struct {
        double bytes;
        const char *text;
    } cases[] = {{0, "0 kB"}, {1234, "1.23 kB"}, {2e6, "2 MB"}, {61.2e9, "61.2 GB"}, {1e12, "1 TB"}};
    static const int64_t size[] = {60000, 28, 28};
    char at[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        text t = {.at = at, .room = sizeof at};
        text_size(&t, cases[i].bytes);
        assert_string_equal(at, cases[i].text);
    }
    assert_string_equal(text_shape(at, sizeof at, 3, size), "(60000,28,28)");
    assert_string_equal(text_shape(at, sizeof at, 1, size), "(60000)");
    assert_string_equal(text_shape(at, 6, 3, size), "(6000");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_where_the_room_ends),  cmocka_unit_test(grows),   cmocka_unit_test(written_to_a_file),
        cmocka_unit_test(escaped_text_leaves_room), cmocka_unit_test(escapes), cmocka_unit_test(members),
        cmocka_unit_test(sizes_and_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
