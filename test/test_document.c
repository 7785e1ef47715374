// test/test_document.c: texts taken apart into lines and documents: lines of any length beside the size of what is read
// at a time, the last one with and without its end, what a line may have at most; and made-up stories, as lines and as
// documents.
#include "base/io.h"
#include "data/text/document.h"
#include "data/text/stories.h"
#include "test/support/expect.h"
#include "test/support/place.h"

#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { BUFFER = 1 << 18 };  // document.c reads so much at a time

static void put(place *p, const char *name, const char *text, size_t n) {
    assert_ok(io_write_file(at(p, name), text, n, NULL));
}

// The lines of the file are those between line ends of the text, the last one if there is anything in it.
static void expect_lines(const char *path, const char *text, size_t size) {
    document_reader *d;
    const uint8_t *line;
    int64_t n;
    bool more;
    assert_ok(document_open(&d, path, NULL));
    assert_false(document_is_jsonl(d));
    for (size_t from = 0; from < size;) {
        const char *end = memchr(text + from, '\n', size - from);
        size_t length = (end ? (size_t)(end - text) : size) - from;
        assert_ok(document_line(d, &line, &n, &more));
        assert_true(more);
        assert_int_equal(n, length);
        assert_memory_equal(line, text + from, length);
        from += length + 1;
    }
    for (int i = 0; i < 2; i++) {
        assert_ok(document_line(d, &line, &n, &more));
        assert_false(more);
    }
    document_close(d);
}

static void lines_are_those_of_the_text(void **state) {
    place *p = *state;
    static const char *const texts[] = {
        "", "\n", "\n\n", "a", "a\n", "a\nb", "a\n\nb\n", "a\r\nb\r\n", "\na", " \n\t\n", "{\"text\": 1}\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        put(p, "a.jsonl", texts[i], strlen(texts[i]));
        expect_lines(at(p, "a.jsonl"), texts[i], strlen(texts[i]));
    }
    put(p, "nul", "a\0b\n\0", 5);
    expect_lines(at(p, "nul"), "a\0b\n\0", 5);
    char *text = malloc(8 * BUFFER);
    for (int around = -2; around <= 2; around++) {  // ends near those of what is read at a time
        size_t n = 0, lengths[] = {BUFFER, 0, BUFFER - 1, 3 * BUFFER, 1, BUFFER};
        for (int k = 0; k < 6; k++) {
            size_t length = lengths[k] + (size_t)(lengths[k] > 2 ? around : 0);
            memset(text + n, 'a' + k, length);
            n += length;
            if (k < 5) text[n++] = '\n';
        }
        put(p, "long", text, n);
        expect_lines(at(p, "long"), text, n);
    }
    free(text);
}

// A line that is too long is refused with its number before it is in memory; one that is nearly so is taken.
static void lines_have_a_limit(void **state) {
    place *p = *state;
    enum { PIECE = 1 << 20 };
    char *piece = malloc(PIECE);
    memset(piece, 'x', PIECE);
    for (int mib = 63; mib <= 66; mib += 3) {
        document_reader *d;
        const uint8_t *line;
        int64_t n;
        bool more;
        gzFile f = gzopen(at(p, "a.gz"), "wb1");
        assert_int_equal(gzwrite(f, "one\ntwo\n", 8), 8);
        for (int i = 0; i < mib; i++) assert_int_equal(gzwrite(f, piece, PIECE), PIECE);
        assert_int_equal(gzwrite(f, "\nlast", 5), 5);
        assert_int_equal(gzclose(f), Z_OK);
        assert_ok(document_open(&d, at(p, "a.gz"), NULL));
        for (int i = 0; i < 2; i++) assert_ok(document_line(d, &line, &n, &more));
        if (mib > DOCUMENT_LINE >> 20)
            assert_error(document_line(d, &line, &n, &more), ERR_DATA, "/a.gz: line 3 is longer than 64 MiB");
        else {
            assert_ok(document_line(d, &line, &n, &more));
            assert_int_equal(n, (int64_t)mib * PIECE);
            assert_ok(document_line(d, &line, &n, &more));
            assert_true(more && n == 4 && memcmp(line, "last", 4) == 0);
        }
        document_close(d);
    }
    free(piece);
}

// Values are counted outside of strings, and nothing in a string is one.
static void values_have_a_limit(void **state) {
    (void)state;
    static const struct {
        const char *before, *each, *after;
        int more;  // values beside those of the repeated part, in which one is one
    } rows[] = {
        {"[0", ",0", "]", 2},        {"[[]", ",[]", "]", 2},          {"[{}", ",{}", "]", 2},
        {"[[0]", ",0", "]", 3},      {"{\"a\":[0", ",0", "]}", 3},    {"[\"\\\",\"", ",0", "]", 2},
        {"[\"\\\\\"", ",0", "]", 2}, {"[\"[\",\"{,\"", ",0", "]", 3},
    };
    char why[200], *text = malloc(4 * DOCUMENT_VALUES + 64);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool pairs = rows[i].each[1] != '0';  // a comma and a bracket are two
        for (int over = 0; over < 2; over++) {
            // the first is one value; of pairs the count of brackets and commas is what is limited
            int repeats = (DOCUMENT_VALUES + over - rows[i].more - pairs) / (pairs ? 2 : 1) + (pairs ? over : 0);
            char *end = stpcpy(text, rows[i].before);
            for (int k = 0; k < repeats; k++) end = stpcpy(end, rows[i].each);
            end = stpcpy(end, rows[i].after);
            json_t *value = document_parse((const uint8_t *)text, end - text, why);
            if ((value != NULL) == over)
                fail_msg("row %d, %d repeats, %d over: %s", (int)i, repeats, over, value ? "taken" : why);
            if (over) assert_string_equal(why, "more than 1048576 values of JSON");
            json_decref(value);
        }
    }
    char *end = stpcpy(text, "[\"");
    for (int i = 0; i < DOCUMENT_VALUES; i++) *end++ = ",[{"[i % 3];
    end = stpcpy(end, "\"]");
    json_t *value = document_parse((const uint8_t *)text, end - text, why);
    assert_non_null(value);
    json_decref(value);
    free(text);
    static const char *const wrong[] = {"", "{", "{\"a\": 1, \"a\": 2}", "[1] 2", "nope"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_null(document_parse((const uint8_t *)wrong[i], (int64_t)strlen(wrong[i]), why));
        assert_int_equal(strncmp(why, "not valid JSON: ", 16), 0);
    }
}

static void names_of_jsonl(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool is;
    } rows[] = {
        {"a.jsonl", true},       {"a.ndjson", true},    {"d/a.jsonl.gz", true},
        {"a.jsonl.zst", true},   {"a.ndjson.gz", true}, {"a.ndjson.zst", true},
        {"a.json", false},       {"a.jsonl.xz", false}, {"jsonl", false},
        {"a.jsonl/b", false},    {"a.gz", false},       {"a.jsonl.gz.gz", false},
        {"a.jsonl.zstd", false}, {"", false},           {".gz", false},
        {"a.jsonlgz", false},    {"a_jsonl", false},    {"stories:1", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (document_names_jsonl(rows[i].name) != rows[i].is) fail_msg("%s", rows[i].name);
}

// As lines they are the text's, as documents its stories; either way what was told is counted, to the last byte.
static void stories_are_lines_and_documents(void **state) {
    (void)state;
    static const int sizes[] = {1, 200, 1000, 5000, 300000};
    for (int i = 0; i < 5; i++) {
        char name[40];
        stories *s;
        document_reader *d;
        bytes all = {0}, one = {0};
        int64_t before = 0;
        bool ends, more = true;
        uint8_t *text = malloc((size_t)sizes[i]);
        assert_ok(stories_open(&s, 4));
        assert_ok(stories_read(s, text, sizes[i]));
        stories_close(s);
        snprintf(name, sizeof name, "stories:4:%d", sizes[i]);
        expect_lines(name, (char *)text, (size_t)sizes[i]);
        assert_ok(document_open(&d, name, "text"));
        assert_false(document_is_jsonl(d));
        assert_int_equal(document_at(d), 0);
        for (int number = 0; more; number++) {
            one.n = 0;
            assert_ok(document_read(d, &one, 1, &ends, &more));
            if (!more) break;
            assert_true(ends && document_at(d) > before && document_at(d) <= sizes[i]);
            assert_true(one.n == 0 || one.at[one.n - 1] != '\n');
            assert_memory_equal(one.at, text + before, (size_t)one.n);
            for (int64_t k = before + one.n; k < document_at(d); k++) assert_int_equal(text[k], '\n');
            before = document_at(d);
        }
        assert_int_equal(before, sizes[i]);
        assert_int_equal(one.n, 0);
        document_close(d);
        free(text), free(all.at), free(one.at);
    }
    document_reader *d;
    assert_error(document_open(&d, "stories:", NULL), ERR_CONFIG,
                 "\"stories:\": expected stories:SEED or stories:SEED:BYTES", "is ./stories:");
    assert_null(d);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, place_enter, place_leave)
    const struct CMUnitTest tests[] = {TEST(lines_are_those_of_the_text), TEST(lines_have_a_limit),
                                       TEST(values_have_a_limit), TEST(names_of_jsonl),
                                       TEST(stories_are_lines_and_documents)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
