// test/test_labels.c: texts with labels become rows and come back: classes by name and by number, numbers as FP32. What
// is wrong, or of the other kind, is refused: lines, and shards.
#include "test/support/reports.h"
#include "test/support/run.h"

#include "data/text/pack.h"
#include "data/text/shard.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <zlib.h>

enum { CONTEXT = 12 };

static err_t pack_as(chat_template template, const char *dir, const char *name, const char *text, pack_report *r) {
    char input[PATH_MAX], output[PATH_MAX];
    write_text(dir, name, text);
    snprintf(input, sizeof input, "%s/%s", dir, name), snprintf(output, sizeof output, "%s/x", dir);
    return pack_run(&(pack_options){.input = input,
                                    .output = output,
                                    .shard_tokens = 1000,
                                    .tokenizer = "test/golden/tokenizer/bert.json",
                                    .template = template,
                                    .context = CONTEXT},
                    r);
}

static err_t pack_text(const char *dir, const char *name, const char *text, pack_report *r) {
    return pack_as(CHAT_LABELS, dir, name, text, r);
}

// classes: 0: labels are numbers
static err_t try_labelled(source **s, const char *files, int64_t classes) {
    tensor_spec wanted[] = {{.name = "tokens", .type = INT32, .dims = 1, .size = {CONTEXT, 1, 1}, .limit = 400},
                            {.name = "length", .type = INT32, .size = {1, 1, 1}},
                            {.name = "types", .type = INT32, .dims = 1, .size = {CONTEXT, 1, 1}, .limit = 2},
                            {.name = "label", .type = classes ? INT32 : FP32, .size = {1, 1, 1}, .limit = classes}};
    return source_open(s, &(source_options){.files = files, .wanted = wanted, .inputs = 4});
}

static source *open_labelled(const char *dir, int64_t classes) {
    char files[PATH_MAX];
    source *s;
    snprintf(files, sizeof files, "%s/x-train-*.bin", dir);
    OK(try_labelled(&s, files, classes));
    return s;
}

// All of the samples, as text.
static void samples_as_text(const char *dir, int64_t classes, char dst[4096]) {
    source *s = open_labelled(dir, classes);
    size_t n = 0;
    for (int64_t k = 0; k < source_about(s).samples; k++) {
        int32_t tokens[CONTEXT], types[CONTEXT], length, label;
        OK(source_look(s, k, (void *[]){tokens, &length, types, &label}));
        for (int t = 0; t < CONTEXT; t++) n += (size_t)snprintf(dst + n, 4096 - n, "%d/%d ", tokens[t], types[t]);
        n += (size_t)snprintf(dst + n, 4096 - n, "%d %d\n", length, label);
    }
    source_close(s);
}

// The first of the rows that the model has not is reported, wherever it stands.
static void every_row_is_verified(void **state) {
    enum { ROWS = 4 };
    (void)state;
    for (int at = 0; at <= ROWS; at++) {
        char *dir = make_dir(), text[512] = "", says[64];
        pack_report r;
        reports found = {.count = 0};
        for (int k = 0; k < ROWS; k++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "{\"text\": \"a\", \"label\": %d}\n",
                     k == at || k == at + 2 ? 3 : k % 2);
        OK(pack_text(dir, "a.jsonl", text, &r));
        source *s = open_labelled(dir, 3);
        err_t rc = source_verify(s, keep_report, &found);
        snprintf(says, sizeof says, "sample %d is of class 3", at);
        if (rc != (at < ROWS ? ERR_DATA : ERR_OK) || found.count != (at < ROWS) ||
            (found.count && !strstr(found.last, says)))
            fail_msg("row %d: %d reports: %s", at, found.count, found.last);
        source_close(s);
        drop_dir(dir);
    }
}

static void tables_are_lines_of_json(void **state) {
    (void)state;
    char *dir = make_dir(), a[4096], b[4096];
    pack_report r;
    OK(pack_text(
        dir, "a.jsonl",
        "{\"text\": \"the \", \"label\": \"up\"}\n\n{\"label\": \"down\", \"text\": \"a b\", \"text_b\": \"the\"}\n"
        "{\"text\": \"the the the the the the the the\", \"text_b\": \"a a\", \"label\": \"down\"}\n",
        &r));
    assert_int_equal(r.classes, 2);
    assert_int_equal(r.cut, 1);
    samples_as_text(dir, 2, a);
    // [CLS] 2, [SEP] 3; "down" is before "up"; of the long pair 9 tokens stay, both of the short text
    assert_true(strncmp(a, "2/0 ", 4) == 0);
    assert_non_null(strstr(a, " 3 1\n"));
    assert_non_null(strstr(a, " 12 0\n"));
    OK(pack_text(
        dir, "a.tsv",
        "\nid\tlabel\tsentence1\tsentence2\n1\tup\tthe \n2\tdown\ta b\tthe\r\n3\tdown\tthe the the the the the the the\ta a\n",
        &r));
    samples_as_text(dir, 2, b);
    assert_string_equal(a, b);
    // whole numbers are classes as they are
    OK(pack_text(dir, "b.jsonl", "{\"text\": \"a\", \"label\": 3}\n{\"text\": \"a\", \"label\": \"1\"}\n", &r));
    assert_int_equal(r.classes, 4);
    samples_as_text(dir, 4, b);
    assert_non_null(strstr(b, " 3\n"));
    assert_non_null(strstr(b, " 1\n"));
    source *s = open_labelled(dir, 3);
    assert_int_equal(source_look(s, 0, (void *[]){NULL, NULL, NULL, NULL}), ERR_DATA);
    assert_non_null(strstr(err_last()->text, "sample 0 is of class 3, and the model has [model] classes = 3"));
    source_close(s);
    drop_dir(dir);
}

// Whole numbers of at most five digits, written as numbers are, are classes as they are; as soon as one is not, all are
// names, in the order of their bytes.
static void names_differ_from_numbers(void **state) {
    (void)state;
    static const struct {
        const char *labels[3];
        int64_t classes, class[3];
    } rows[] = {{{"9", "10", "0"}, 11, {9, 10, 0}},
                {{"10", "9", "9"}, 11, {10, 9, 9}},
                {{"99999", "1", "2"}, 100000, {99999, 1, 2}},
                {{"100000", "1", "2"}, 3, {1, 0, 2}},
                {{"01", "1", "2"}, 3, {0, 1, 2}},
                {{"1", "", "2"}, 0, {0}},
                {{"1", "-2", "3"}, 3, {1, 0, 2}},
                {{"1", "2 ", "10"}, 3, {0, 2, 1}},
                {{"b", "a", "B"}, 3, {2, 1, 0}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *dir = make_dir(), text[512] = "";
        pack_report r;
        for (int k = 0; k < 3; k++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "{\"text\": \"a\", \"label\": \"%s\"}\n",
                     rows[i].labels[k]);
        err_t rc = pack_text(dir, "a.jsonl", text, &r);
        assert_int_equal(rc, rows[i].classes ? ERR_OK : ERR_DATA);
        if (rc == ERR_OK) {
            if (r.classes != rows[i].classes)
                fail_msg("row %d: %d classes, expected %d", (int)i, (int)r.classes, (int)rows[i].classes);
            source *s = open_labelled(dir, rows[i].classes);
            for (int k = 0; k < 3; k++) {
                int32_t label;
                OK(source_look(s, k, (void *[]){NULL, NULL, NULL, &label}));
                if (label != rows[i].class[k])
                    fail_msg("row %d: %s is of class %d, expected %d", (int)i, rows[i].labels[k], label,
                             (int)rows[i].class[k]);
            }
            source_close(s);
        }
        drop_dir(dir);
    }
}

// Of one text ten tokens fit, of two nine.
static void texts_have_room_for_their_ends(void **state) {
    (void)state;
    for (int pair = 0; pair < 2; pair++)
        for (int n = 8; n <= 11; n++) {
            char *dir = make_dir(), text[512] = "{\"text\": \"";
            pack_report r;
            int a = pair ? n / 2 : n, b = n - a;
            for (int i = 0; i < a; i++) strcat(text, "the ");
            for (int i = 0; i < b; i++) strcat(text, i ? " the" : "\", \"text_b\": \"the");
            strcat(text, "\", \"label\": 0}\n");
            OK(pack_text(dir, "a.jsonl", text, &r));
            assert_int_equal(r.cut, n > (pair ? 9 : 10));
            assert_int_equal(r.text_bytes, 4 * n - pair);
            drop_dir(dir);
        }
}

// A vocabulary in which the last token has this id, and what packs with it.
static err_t pack_ids(const char *dir, int end, int64_t context, pack_report *r) {
    char words[PATH_MAX], input[PATH_MAX], output[PATH_MAX], json[1024];
    snprintf(
        json, sizeof json,
        "{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\"},"
        "\"added_tokens\":[{\"id\":1,\"content\":\"[CLS]\",\"special\":true},{\"id\":%d,\"content\":\"[SEP]\","
        "\"special\":true}],\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
        "\"continuing_subword_prefix\":\"##\",\"vocab\":{\"[UNK]\":0,\"[CLS]\":1,\"a\":2,\"[SEP]\":%d}}}",
        end, end);
    write_text(dir, "words.json", json);
    write_text(dir, "a.jsonl", "{\"text\": \"a a a a a a a a a a a\", \"label\": 1}\n");
    snprintf(words, sizeof words, "%s/words.json", dir);
    snprintf(input, sizeof input, "%s/a.jsonl", dir), snprintf(output, sizeof output, "%s/x", dir);
    return pack_run(&(pack_options){.input = input,
                                    .output = output,
                                    .shard_tokens = 100000,
                                    .tokenizer = words,
                                    .template = CHAT_LABELS,
                                    .context = context},
                    r);
}

static int bytes_of_a_token(const char *dir) {
    char path[PATH_MAX], *file;
    size_t size;
    snprintf(path, sizeof path, "%s/x-train-00000.bin", dir);
    OK(io_read_file(path, 1 << 20, &file, &size));
    int bytes = (int)le32_get((uint8_t *)file + 12);
    free(file);
    return bytes;
}

// Ids and lengths that leave no room for the mark in two bytes have four; and the last token of a row is looked at.
static void tokens_have_room(void **state) {
    (void)state;
    static const struct {
        int end;
        int64_t context;
        int bytes;
    } rows[] = {{3, 12, 2}, {32767, 12, 2}, {32768, 12, 4}, {65535, 12, 4}, {3, 32767, 2}, {3, 32768, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *dir = make_dir(), files[PATH_MAX];
        int64_t T = rows[i].context;
        int32_t *tokens = malloc((size_t)T * sizeof *tokens), *types = malloc((size_t)T * sizeof *types), length, label;
        pack_report r;
        source *s;
        tensor_spec wanted[] = {
            {.name = "tokens", .type = INT32, .dims = 1, .size = {T, 1, 1}, .limit = rows[i].end + 1},
            {.name = "length", .type = INT32, .size = {1, 1, 1}},
            {.name = "types", .type = INT32, .dims = 1, .size = {T, 1, 1}, .limit = 2},
            {.name = "label", .type = INT32, .size = {1, 1, 1}, .limit = 2}};
        OK(pack_ids(dir, rows[i].end, T, &r));
        assert_int_equal(bytes_of_a_token(dir), rows[i].bytes);
        snprintf(files, sizeof files, "%s/x-train-*.bin", dir);
        OK(source_open(&s, &(source_options){.files = files, .wanted = wanted, .inputs = 4}));
        OK(source_look(s, 0, (void *[]){tokens, &length, types, &label}));
        assert_int_equal(length, T == 12 ? 12 : 13), assert_int_equal(label, 1);
        assert_int_equal(tokens[length - 1], rows[i].end), assert_int_equal(types[length - 1], 0);
        source_close(s);
        free(tokens), free(types);
        if (T == 12 && rows[i].end == 3) {
            wanted[0].limit = 3;
            OK(source_open(&s, &(source_options){.files = files, .wanted = wanted, .inputs = 4}));
            assert_int_equal(source_look(s, 0, (void *[]){NULL, NULL, NULL, NULL}), ERR_DATA);
            assert_non_null(strstr(err_last()->text, "sample 0: token 3, and the model has [model] vocab = 3"));
            source_close(s);
            wanted[0].limit = 4, wanted[2].limit = 1;
            assert_int_equal(source_open(&s, &(source_options){.files = files, .wanted = wanted, .inputs = 4}),
                             ERR_CONFIG);
            assert_non_null(strstr(err_last()->text, "types of at least 2, found 1"));
        }
        drop_dir(dir);
    }
}

static void wrong_lines_are_named(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *says;
    } wrong[] = {
        {"a.jsonl", "{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"a\"}\n", "a.jsonl: line 2: it has no label"},
        {"a.jsonl", "{\"label\": \"x\"}\n", "a.jsonl: line 1: it has no text"},
        {"a.jsonl", "{\"text\": 5, \"label\": \"x\"}\n", "line 1: its text is not a string"},
        {"a.jsonl", "{\"text\": \"a\", \"label\": 1.5}\n", "line 1: its label is not a string or a whole number"},
        {"a.jsonl", "{\"text\": \"a\", \"label\": \"x\\u0000y\"}\n", "line 1: its label holds a NUL"},
        {"a.jsonl", "{\"text\": \n", "a.jsonl: line 1: "},
        {"a.tsv", "text\tclass\na\tx\n", "a.tsv: line 1: its header names no column label"},
        {"a.tsv", "text\tlabel\na\n", "a.tsv: line 2: it has no label"},
        {"a.txt", "a\n", "a name that ends in .jsonl, .ndjson or .tsv"},
        {"a.jsonl", "\n", "there are no samples in it"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *dir = make_dir();
        pack_report r;
        if (pack_text(dir, wrong[i].name, wrong[i].text, &r) != ERR_DATA) fail_msg("case %d is taken", (int)i);
        if (!strstr(err_last()->text, wrong[i].says)) fail_msg("case %d: it says %s", (int)i, err_last()->text);
        drop_dir(dir);
    }
}

// --- numbers ---------------------------------------------------------------------------------------------------------

// What is read back, number by number.
static void expect_numbers(const char *dir, const float *want, int64_t n) {
    source *s = open_labelled(dir, 0);
    assert_int_equal(source_about(s).samples, n);
    for (int64_t k = 0; k < n; k++) {
        int32_t tokens[CONTEXT], types[CONTEXT], length;
        float label;
        OK(source_look(s, k, (void *[]){tokens, &length, types, &label}));
        assert_true(tokens[0] == 2 && length >= 3 && length <= CONTEXT);
        if (memcmp(&label, &want[k], sizeof label) != 0)
            fail_msg("number %d is %.9g, expected %.9g", (int)k, (double)label, (double)want[k]);
    }
    source_close(s);
}

static void numbers_come_back_as_they_were(void **state) {
    (void)state;
    static const float want[] = {3.8f, -0.25f, 5, 1e-3f, -1e38f, 0.1f, -7, 0};
    char *dir = make_dir(), names[PATH_MAX];
    pack_report r;
    OK(pack_as(CHAT_NUMBERS, dir, "a.jsonl",
               "{\"text\": \"a\", \"label\": 3.8}\n{\"text\": \"a b\", \"text_b\": \"the\", \"label\": \"-0.25\"}\n"
               "{\"text\": \"a\", \"label\": 5}\n{\"text\": \"a\", \"label\": \"+1e-3\"}\n"
               "{\"text\": \"a\", \"label\": -1e38}\n{\"text\": \"a\", \"label\": 0.1}\n"
               "{\"text\": \"a\", \"label\": -7}\n{\"text\": \"a\", \"label\": \".0\"}\n",
               &r));
    assert_true(r.numbers && r.classes == 0 && r.documents == 8 && r.cut == 0);
    expect_numbers(dir, want, 8);
    snprintf(names, sizeof names, "%s/x-labels.json", dir);
    assert_int_equal(access(names, F_OK), -1);
    OK(pack_as(
        CHAT_NUMBERS, dir, "a.tsv",
        "sentence1\tsentence2\tscore\tlabel\na\tb\t9\t3.8\na\tb\t9\t-2.5e-1\na\tthe the the the the the the the the\t9\t5\r\n",
        &r));
    assert_int_equal(r.cut, 1);
    expect_numbers(dir, want, 3);
    drop_dir(dir);
}

static void wrong_numbers_are_named(void **state) {
    (void)state;
    static const struct {
        const char *label, *says;
    } wrong[] = {
        {"\"good\"", "a.jsonl: line 2: its label is not a number such as 3.8"},
        {"\"\"", "line 2: it has no label"},
        {"\"3.8x\"", "line 2: its label is not a number such as 3.8"},
        {"\"0x10\"", "line 2: its label is not a number such as 3.8"},
        {"\"inf\"", "line 2: its label is not a number such as 3.8"},
        {"\"nan\"", "line 2: its label is not a number such as 3.8"},
        {"\"-\"", "line 2: its label is not a number such as 3.8"},
        {"\"1 2\"", "line 2: its label is not a number such as 3.8"},
        {"\"1\\u00002\"", "line 2: "},
        {"true", "line 2: its label is not a string or a number"},
        {"3.5e38", "line 2: its label, 3.5e+38, is beyond the numbers of FP32"},
        {"\"-1e999\"", "line 2: its label, -1e999, is beyond the numbers of FP32"},
        {"null", "line 2: it has no label"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *dir = make_dir(), text[256];
        pack_report r;
        snprintf(text, sizeof text, "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\", \"label\": %s}\n",
                 wrong[i].label);
        if (pack_as(CHAT_NUMBERS, dir, "a.jsonl", text, &r) != ERR_DATA) fail_msg("%s is taken", wrong[i].label);
        if (!strstr(err_last()->text, wrong[i].says)) fail_msg("%s: it says %s", wrong[i].label, err_last()->text);
        drop_dir(dir);
    }
}

// --- shards of another kind, and damaged ones ------------------------------------------------------------------------

static void expect_refused(const char *files, int64_t classes, err_t rc, const char *says) {
    source *s;
    if (try_labelled(&s, files, classes) != rc || !strstr(err_last()->text, says))
        fail_msg("expected \"%s\", found: %s", says, err_last()->text);
}

static void kinds_of_labels_are_not_mixed(void **state) {
    (void)state;
    char *dir = make_dir(), files[PATH_MAX], both[2 * PATH_MAX];
    pack_report r;
    OK(pack_text(dir, "a.jsonl", "{\"text\": \"a\", \"label\": 1}\n", &r));
    snprintf(files, sizeof files, "%s/x-train-00000.bin", dir);
    expect_refused(files, 0, ERR_CONFIG,
                   "the labels of these files are classes: pack them with [pack] template = numbers");
    snprintf(both, sizeof both, "%s/w-train-00000.bin", dir);
    assert_int_equal(rename(files, both), 0);
    OK(pack_as(CHAT_NUMBERS, dir, "a.jsonl", "{\"text\": \"a\", \"label\": 1}\n", &r));
    expect_refused(files, 2, ERR_CONFIG,
                   "the labels of these files are numbers: pack them with [pack] template = labels");
    snprintf(both, sizeof both, "%s/?-train-00000.bin", dir);
    expect_refused(both, 0, ERR_DATA, "its labels are numbers, and those of");
    drop_dir(dir);
}

// Puts the checksums right, so that the checks after them are reached.
static void put_right(uint8_t *file, size_t size) {
    uint64_t at = le64_get(file + SHARD_HEADER);
    uint32_t crc = (uint32_t)crc32(0, file + at, (uInt)(size - at));
    le32_put(file + SHARD_HEADER + 12, crc), le32_put(file + SHARD_HEADER + 16, crc);
    le32_put(file + 48, (uint32_t)crc32(0, file + SHARD_HEADER, SHARD_ENTRY));
    le32_put(file + 60, (uint32_t)crc32(0, file, 60));
}

// One sample of numbers, and a word of its file set to something else: `at` from its end where it is below 0.
static void expect_damage(int64_t at, uint32_t value, const char *says) {
    char *dir = make_dir(), path[PATH_MAX], *file;
    size_t size;
    pack_report r;
    source *s;
    int32_t tokens[CONTEXT], types[CONTEXT], length;
    float label;
    OK(pack_as(CHAT_NUMBERS, dir, "a.jsonl", "{\"text\": \"a\", \"label\": 1.5}\n", &r));
    snprintf(path, sizeof path, "%s/x-train-00000.bin", dir);
    OK(io_read_file(path, 1 << 20, &file, &size));
    uint8_t *word = (uint8_t *)file + (at < 0 ? (int64_t)size + at : at);
    if (at == -4) assert_int_equal(le32_get(word), 0x3fc00000);  // 1.5
    le32_put(word, value);
    put_right((uint8_t *)file, size);
    FILE *to = fopen(path, "wb");
    assert_true(to && fwrite(file, 1, size, to) == size && fclose(to) == 0);
    err_t rc = try_labelled(&s, path, 0);
    bool opened = rc == ERR_OK;
    if (opened) rc = source_look(s, 0, (void *[]){tokens, &length, types, &label});
    if (rc != ERR_DATA || !strstr(err_last()->text, says))
        fail_msg("%" PRId64 " = %x: expected \"%s\", found %s", at, value, says,
                 rc == ERR_OK ? "nothing" : err_last()->text);
    if (opened) source_close(s);
    free(file);
    drop_dir(dir);
}

static void damaged_numbers_are_refused(void **state) {
    (void)state;
    expect_damage(-4, 0x7f800000, "sample 0: its number is infinite, or none");
    expect_damage(-4, 0xff800000, "sample 0: its number is infinite, or none");
    expect_damage(-4, 0x7fc00000, "sample 0: its number is infinite, or none");
    expect_damage(-8, 0, "sample 0: its length is 0, expected 1 to 12");
    expect_damage(-8, CONTEXT + 1, "sample 0: its length is 13, expected 1 to 12");
    expect_damage(16, 8, "offset 16: flags is 8");    // numbers that are no labels
    expect_damage(16, 10, "offset 16: flags is 10");  // of rows without labels
    expect_damage(16, 12, "offset 16: flags is 12");
    expect_damage(12, 2, "offset 12: bytes per token is 2, expected 4, where labels are numbers");
    expect_damage(16, 30, "offset 16: flags is 30");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_differ_from_numbers),
        cmocka_unit_test(texts_have_room_for_their_ends),
        cmocka_unit_test(tokens_have_room),
        cmocka_unit_test(every_row_is_verified),
        cmocka_unit_test(tables_are_lines_of_json),
        cmocka_unit_test(wrong_lines_are_named),
        cmocka_unit_test(numbers_come_back_as_they_were),
        cmocka_unit_test(wrong_numbers_are_named),
        cmocka_unit_test(kinds_of_labels_are_not_mixed),
        cmocka_unit_test(damaged_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
