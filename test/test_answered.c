// test/test_answered.c: texts and what is said of them become rows (data/text/to_text.h) and come back as the two texts
// of a sample (data/text/answered.c): prompts and responses, texts with labels, pairs; what is too long loses its end.
// What is wrong, or of another kind, is refused: lines, shards, settings.
#include "test/support/expect.h"
#include "test/support/reports.h"
#include "test/support/run.h"

#include "data/text/pack.h"
#include "data/text/shard.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>

enum { READS = 10, SAYS = 5, BEGIN = 300, END = 301, VOCAB = 310 };

static err_t pack_with(const char *dir, const char *name, const char *text, const char *words, pack_report *r) {
    char input[PATH_MAX], output[PATH_MAX];
    write_text(dir, name, text);
    snprintf(input, sizeof input, "%s/%s", dir, name), snprintf(output, sizeof output, "%s/x", dir);
    return pack_run(&(pack_options){.input = input,
                                    .output = output,
                                    .shard_tokens = 1000,
                                    .tokenizer = words,
                                    .template = CHAT_TEXT,
                                    .context = READS,
                                    .says = SAYS,
                                    .end = words ? 1 : END},
                    r);
}

static err_t pack_bytes(const char *dir, const char *name, const char *text, pack_report *r) {
    return pack_with(dir, name, text, NULL, r);
}

// What a model with room for so many tokens reads, and settings of [data].
typedef struct model_of {
    int64_t reads, says, vocab;
    bool answers, ignores, documents;
} model_of;
static const model_of usual = {.reads = READS, .says = SAYS, .vocab = VOCAB, .answers = true};

static err_t open_with(source **s, const char *dir, model_of m) {
    char files[PATH_MAX];
    tensor_spec wanted[] = {
        {.name = "tokens", .type = INT32, .dims = 1, .size = {m.reads + m.says, 1, 1}, .limit = m.vocab},
        {.name = "length", .type = INT32, .size = {1, 1, 1}, .limit = m.reads},
        {.name = "targets", .type = INT32, .dims = 1, .size = {m.says, 1, 1}, .limit = m.vocab}};
    snprintf(files, sizeof files, "%s/x-train-*.bin", dir);
    return source_open(s, &(source_options){.files = files,
                                            .wanted = wanted,
                                            .inputs = 3,
                                            .begin = BEGIN,
                                            .end = END,
                                            .answers = m.answers,
                                            .ignores = m.ignores,
                                            .documents = m.documents,
                                            .document_end = -1});
}

// A token as a letter: bytes as they are, the end is |, the beginning is <, and what does not count is a space.
static char letter(int32_t token) {
    return token == END ? '|' : token == BEGIN ? '<' : token == -1 ? ' ' : (char)token;
}

static void expect_sample(source *s, int64_t sample, const char *text) {
    int32_t tokens[READS + SAYS], length, targets[SAYS];
    char found[READS + 2 * SAYS + 16], *at = found;
    OK(source_look(s, sample, (void *[]){tokens, &length, targets}));
    for (int t = 0; t < READS + SAYS; t++) {
        if (t == READS) *at++ = ' ';
        *at++ = letter(tokens[t]);
    }
    *at++ = ' ';
    for (int t = 0; t < SAYS; t++) *at++ = letter(targets[t]);
    snprintf(at, 8, " %d", length);
    if (strcmp(found, text) != 0) fail_msg("sample %d is \"%s\", expected \"%s\"", (int)sample, found, text);
}

static const char lines[] = "{\"prompt\": \"abc\", \"response\": \"de\", \"id\": 7}\n\n"
                            "{\"text\": \"ab\", \"text_b\": \"cd\", \"label\": \"yes\"}\n"
                            "{\"text\": \"\", \"label\": 3}\n"
                            "{\"prompt\": \"abcdefghijkl\", \"response\": \"vwxyz\"}\n"
                            "{\"text\": \"abcdefgh\", \"text_b\": \"xyz\", \"label\": \"no\"}\n";

static void expect_samples(const char *dir) {
    source *s;
    OK(open_with(&s, dir, usual));
    assert_int_equal(source_about(s).samples, 5);
    expect_sample(s, 0, "abc|<<<<<< <de<< de|   4");
    expect_sample(s, 1, "ab|cd|<<<< <yes< yes|  6");
    expect_sample(s, 2, "|<<<<<<<<< <3<<< 3|    1");
    expect_sample(s, 3, "abcdefghi| <vwxy vwxy| 10");
    expect_sample(s, 4, "abcde|xyz| <no<< no|   10");
    OK(source_verify(s, NULL, NULL));
    source_close(s);
}

static void both_texts_come_back(void **state) {
    (void)state;
    char *dir = make_dir();
    pack_report r;
    OK(pack_bytes(dir, "a.jsonl", lines, &r));
    assert_int_equal(r.documents, 5), assert_int_equal(r.cut, 2), assert_int_equal(r.answers, 3 + 4 + 2 + 5 + 3);
    assert_int_equal(r.text_bytes, 5 + 7 + 1 + 17 + 13);
    expect_samples(dir);
    OK(pack_bytes(dir, "a.tsv",
                  "id\tresponse\tprompt\ttext_b\n1\tde\tabc\n2\tyes\tab\tcd\r\n3\t3\t\n4\tvwxyz\tabcdefghijkl\n"
                  "5\tno\tabcdefgh\txyz\n",
                  &r));
    expect_samples(dir);
    OK(pack_bytes(
        dir, "b.tsv",
        "\n \nlabel\tsentence1\tsentence2\nde\tabc\nyes\tab\tcd\n3\t\nvwxyz\tabcdefghijkl\nno\tabcdefgh\txyz\n", &r));
    expect_samples(dir);
    // what is null is not there
    OK(pack_bytes(dir, "c.jsonl", "{\"prompt\": null, \"text\": \"ab\", \"label\": \"c\"}\n", &r));
    assert_int_equal(r.documents, 1);
    drop_dir(dir);
}

// `the` and `of` are tokens of this tokenizer, which ends a text with 1.
static void words_are_those_of_the_tokenizer(void **state) {
    (void)state;
    static const char words[] = "test/golden/tokenizer/t5.json";
    char *dir = make_dir(), output[PATH_MAX];
    pack_report r;
    source *s;
    tokenizer *t;
    encoder *e;
    const int32_t *ids;
    int64_t n;
    int32_t tokens[READS + SAYS], length, targets[SAYS];
    model_of m = usual;
    m.vocab = 440;
    OK(pack_with(dir, "a.jsonl", "{\"prompt\": \"the of\", \"response\": \"of\"}\n", words, &r));
    OK(open_with(&s, dir, m));
    OK(source_look(s, 0, (void *[]){tokens, &length, targets}));
    OK(tokenizer_open(&t, words));
    OK(encoder_open(&e, t));
    OK(encoder_encode(e, "the of", 6, ENCODE_TEXT | ENCODE_END, &ids, &n));
    assert_int_equal(length, n);
    for (int64_t i = 0; i < n; i++) assert_int_equal(tokens[i], ids[i]);
    OK(encoder_encode(e, "of", 2, ENCODE_TEXT | ENCODE_END, &ids, &n));
    for (int64_t i = 0; i < SAYS; i++) assert_int_equal(targets[i], i < n ? ids[i] : -1);
    encoder_close(e);
    tokenizer_close(t);
    source_close(s);
    snprintf(output, sizeof output, "%s/y", dir);
    assert_error(pack_run(&(pack_options){.input = "test/golden/t5/texts.jsonl",
                                          .output = output,
                                          .shard_tokens = 1000,
                                          .tokenizer = words,
                                          .template = CHAT_TEXT,
                                          .context = READS,
                                          .says = SAYS,
                                          .end = 7},
                          &r),
                 ERR_CONFIG, "[pack] tokenizer ends a text with token 1", "[model] end_token = 7: set end_token = 1");
    drop_dir(dir);
}

static void wrong_lines_are_named(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *says;
    } wrong[] = {
        {"a.jsonl", "{\"prompt\": \"a\", \"response\": \"b\"}\n{\"prompt\": \"a\"}\n",
         "a.jsonl: line 2: it has no response or label"},
        {"a.jsonl", "{\"label\": \"x\"}\n", "a.jsonl: line 1: it has no prompt or text"},
        {"a.jsonl", "{\"messages\": []}\n", "a.jsonl: line 1: it has no prompt or text"},
        {"a.jsonl", "{\"prompt\": 5, \"response\": \"b\"}\n", "line 1: its prompt is not a string"},
        {"a.jsonl", "{\"prompt\": \"a\", \"response\": 5}\n", "line 1: its response is not a string"},
        {"a.jsonl", "{\"text\": \"a\", \"label\": 1.5}\n", "line 1: its label is not a string or a whole number"},
        {"a.jsonl", "{\"prompt\": \"a\", \"response\": \"\"}\n", "line 1: its response or label is empty"},
        {"a.jsonl", "{\"prompt\": \n", "a.jsonl: line 1: "},
        {"a.tsv", "prompt\tanswer\na\tx\n", "a.tsv: line 1: its header names no column label"},
        {"a.tsv", "prompt\tresponse\na\n", "a.tsv: line 2: it has no response or label"},
        {"a.txt", "a\n", "a name that ends in .jsonl, .ndjson or .tsv"},
        {"a.jsonl", "\n", "there are no samples in it"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *dir = make_dir();
        pack_report r;
        if (pack_bytes(dir, wrong[i].name, wrong[i].text, &r) != ERR_DATA) fail_msg("case %d is taken", (int)i);
        if (!strstr(err_last()->text, wrong[i].says)) fail_msg("case %d: it says %s", (int)i, err_last()->text);
        drop_dir(dir);
    }
}

static void other_settings_are_refused(void **state) {
    (void)state;
    char *dir = make_dir();
    pack_report r;
    source *s;
    model_of m = usual;
    OK(pack_bytes(dir, "a.jsonl", lines, &r));
    m.answers = false;
    assert_error(open_with(&s, dir, m), ERR_CONFIG, "set [data] answers = yes");
    m = usual, m.ignores = true;
    assert_error(open_with(&s, dir, m), ERR_CONFIG, "leave out [data] ignore");
    m = usual, m.documents = true;
    assert_error(open_with(&s, dir, m), ERR_CONFIG, "set [data] documents = no");
    m = usual, m.says++;
    assert_error(open_with(&s, dir, m), ERR_CONFIG, "were packed for 15 tokens", "has room for 10 and 6");
    m = usual, m.vocab = 'y';
    OK(open_with(&s, dir, m));
    assert_error(source_look(s, 1, (void *[]){NULL, NULL, NULL}), ERR_DATA, "sample 1: token 301",
                 "[model] vocab = 121");
    source_close(s);
    m = usual, m.reads = 8, m.says = 7;  // as long together
    OK(open_with(&s, dir, m));
    OK(source_look(s, 0, (void *[]){NULL, NULL, NULL}));
    assert_error(source_look(s, 3, (void *[]){NULL, NULL, NULL}), ERR_DATA,
                 "sample 3: 10 tokens are read and 5 said, expected 1 to 8 and 1 to 7");
    source_close(s);
    drop_dir(dir);
}

// Also of what is said alone.
static void tokens_that_are_said_are_checked(void **state) {
    (void)state;
    char *dir = make_dir(), input[PATH_MAX], output[PATH_MAX];
    pack_report r;
    source *s;
    model_of m = usual;
    m.vocab = 'x';
    write_text(dir, "a.jsonl", "{\"prompt\": \"abc\", \"response\": \"vwx\"}\n");
    snprintf(input, sizeof input, "%s/a.jsonl", dir), snprintf(output, sizeof output, "%s/x", dir);
    OK(pack_run(&(pack_options){.input = input,
                                .output = output,
                                .shard_tokens = 1000,
                                .template = CHAT_TEXT,
                                .context = READS,
                                .says = SAYS,
                                .end = 1},
                &r));
    OK(open_with(&s, dir, m));
    assert_error(source_look(s, 0, (void *[]){NULL, NULL, NULL}), ERR_DATA, "sample 0: token 120",
                 "[model] vocab = 120");
    source_close(s);
    drop_dir(dir);
}

static void count_report(void *ctx, const char *text) {
    (void)text;
    ++*(int *)ctx;
}

// Conversations of several turns are rows with several answers, and plain text has none.
static void other_shards_are_refused(void **state) {
    (void)state;
    char *dir = make_dir(), input[PATH_MAX], output[PATH_MAX];
    pack_report r;
    source *s;
    write_text(
        dir, "c.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"},"
        " {\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", \"content\": \"d\"}]}\n");
    snprintf(input, sizeof input, "%s/c.jsonl", dir), snprintf(output, sizeof output, "%s/x", dir);
    pack_options o = {
        .input = input, .output = output, .shard_tokens = 1000, .template = CHAT_PLAIN, .context = READS + SAYS - 1};
    OK(pack_run(&o, &r));
    OK(open_with(&s, dir, usual));
    assert_error(source_look(s, 0, (void *[]){NULL, NULL, NULL}), ERR_DATA, "and later ones, too",
                 "[pack] template = text");
    int reported = 0;
    assert_error(source_verify(s, count_report, &reported), ERR_DATA, "and later ones, too");
    assert_int_equal(reported, 1);
    source_close(s);
    o.template = CHAT_NO, o.input = "LICENSE", o.shard_tokens = 100000;
    OK(pack_run(&o, &r));
    assert_error(open_with(&s, dir, usual), ERR_CONFIG, "with [pack] template = text");
    o.template = CHAT_TEXT, o.says = 1, o.end = END;
    assert_error(pack_run(&o, &r), ERR_CONFIG, "expected 2 or more each");
    drop_dir(dir);
}

// --- shards of other hands -------------------------------------------------------------------------------------------

// A row as text: what is marked is in capitals, a dot is nothing, # is token 309, and a digit is a marked 300 + digit.
static void put_rows(const char *dir, const char *const *rows, int n) {
    enum { T = READS + SAYS };
    char path[PATH_MAX];
    uint8_t bytes[16 * T * 2] = {0};
    shard_writer *w;
    assert_true(n <= 16);
    for (int k = 0; k < n; k++) {
        assert_int_equal(strlen(rows[k]), T);
        for (int t = 0; t < T; t++) {
            int c = rows[k][t], token = c == '.' ? 0 : c == '#' ? 309 : isdigit(c) ? 300 + c - '0' : tolower(c);
            bool marked = isdigit(c) || isupper(c);
            bytes[(k * T + t) * 2] = (uint8_t)token;
            bytes[(k * T + t) * 2 + 1] = (uint8_t)(token >> 8 | (marked ? 0x80 : 0));
        }
    }
    snprintf(path, sizeof path, "%s/x-train-00000.bin", dir);
    OK(shard_write_open(&w, path, 2, n * T, false));
    shard_write_rows(w, T, false);
    OK(shard_write(w, bytes, n * T));
    OK(shard_write_finish(w));
    shard_write_close(w);
}

// Wherever a row stands that no model could read, it is the one that is reported; of several the first.
static void every_row_is_verified(void **state) {
    (void)state;
    static const struct {
        const char *row, *says;
    } bad[] = {
        {"abcdefghijkVW..", "11 tokens are read and 2 said, expected 1 to 10 and 1 to 5"},
        {"abVWXYZV.......", "2 tokens are read and 6 said, expected 1 to 10"},
        {"VW.............", "0 tokens are read and 2 said, expected 1 to 10"},
        {"abc............", "15 tokens are read and 0 said, expected 1 to 10"},
        {"abVW..V........", "2 tokens are read and 2 said, and later ones, too, expected 1 to 10"},
        {"abVW..........V", "2 tokens are read and 2 said, and later ones, too, expected 1 to 10"},
        {"ab#VW..........", "token 309, and the model has [model] vocab = 309"},
        {"abV9...........", "token 309, and the model has [model] vocab = 309"},
    };
    enum { ROWS = 5 };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int at = 0; at <= ROWS; at++) {  // ROWS: the last two
            const char *row[ROWS],
                *right[] = {"aVWXYZ.........", "abcdefghijVWXYZ", "aV.............", "abc8V8........."};
            for (int k = 0; k < ROWS; k++) row[k] = right[k % 4];
            row[at < ROWS ? at : ROWS - 2] = bad[i].row;
            if (at == ROWS) row[ROWS - 1] = bad[i].row;
            char *dir = make_dir(), named[64];
            source *s;
            reports r = {.count = 0};
            model_of m = usual;
            m.vocab = 309;
            put_rows(dir, row, ROWS);
            OK(open_with(&s, dir, m));
            snprintf(named, sizeof named, "sample %d: ", at < ROWS ? at : ROWS - 2);
            assert_error(source_verify(s, keep_report, &r), ERR_DATA, named, bad[i].says);
            if (r.count != 1 || !strstr(r.last, named)) fail_msg("%d reports, of them %s", r.count, r.last);
            source_close(s);
            drop_dir(dir);
        }
}

// --- ends ------------------------------------------------------------------------------------------------------------

// An end token that leaves no room for the mark beside it makes tokens of four bytes.
static void any_token_may_be_the_end(void **state) {
    (void)state;
    static const int32_t ends[] = {32767, 32768, 65535, 65536, INT32_MAX - 1};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char *dir = make_dir(), input[PATH_MAX], output[PATH_MAX], *file;
        int32_t tokens[READS + SAYS], length, targets[SAYS];
        pack_report r;
        source *s;
        size_t n;
        model_of m = usual;
        m.vocab = (int64_t)ends[i] + 1;
        write_text(dir, "a.jsonl",
                   "{\"prompt\": \"ab\", \"response\": \"c\"}\n"
                   "{\"text\": \"a\", \"text_b\": \"bc\", \"label\": \"defghi\"}\n");
        snprintf(input, sizeof input, "%s/a.jsonl", dir), snprintf(output, sizeof output, "%s/x", dir);
        OK(pack_run(&(pack_options){.input = input,
                                    .output = output,
                                    .shard_tokens = 1000,
                                    .template = CHAT_TEXT,
                                    .context = READS,
                                    .says = SAYS,
                                    .end = ends[i]},
                    &r));
        snprintf(input, sizeof input, "%s/x-train-00000.bin", dir);
        OK(io_read_file(input, 4096, &file, &n));
        assert_int_equal(le32_get((uint8_t *)file + 12), ends[i] < 32768 ? 2 : 4);
        free(file);
        OK(open_with(&s, dir, m));
        for (int k = 0; k < 2; k++) {
            OK(source_look(s, k, (void *[]){tokens, &length, targets}));
            assert_int_equal(length, k ? 5 : 3);
            assert_int_equal(tokens[length - 1], ends[i]), assert_int_equal(tokens[k ? 1 : 2], ends[i]);
            assert_int_equal(targets[k ? 4 : 1], ends[i]), assert_int_equal(targets[0], k ? 'd' : 'c');
        }
        source_close(s);
        m.vocab--;
        OK(open_with(&s, dir, m));
        assert_error(source_look(s, 0, (void *[]){NULL, NULL, NULL}), ERR_DATA, "sample 0: token ", "[model] vocab = ");
        source_close(s);
        drop_dir(dir);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_texts_come_back),
        cmocka_unit_test(words_are_those_of_the_tokenizer),
        cmocka_unit_test(wrong_lines_are_named),
        cmocka_unit_test(other_settings_are_refused),
        cmocka_unit_test(tokens_that_are_said_are_checked),
        cmocka_unit_test(other_shards_are_refused),
        cmocka_unit_test(every_row_is_verified),
        cmocka_unit_test(any_token_may_be_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
