// test/test_questions.c: rows of tokens, texts and questions in them (data/text/rows.h, passage.h, questions.h). Tokens
// are bytes as a rule, so that what a row must be can be written down.
#include "data/text/case.h"
#include "data/text/passage.h"
#include "data/text/questions.h"
#include "test/support/run.h"

#include <math.h>
#include <zlib.h>

enum { CONTEXT = 96, VOCAB = 256 };

static const char *dir;  // of the test that runs
static tokenizer *of_bytes;

static void start(void) {
    dir = make_dir();
    OK(tokenizer_open(&of_bytes, "bytes"));
}

static void end(void) {
    tokenizer_close(of_bytes);
    drop_dir((char *)(uintptr_t)dir);
}

static const char *file(const char *name, const char *text) {
    static char path[1100];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    OK(io_write_file(path, text, strlen(text), NULL));
    return path;
}

static rows_from from_of(const char *path, int64_t context) {
    return (rows_from){.path = path, .words = of_bytes, .context = context, .vocab = VOCAB};
}

// Row `sample` is this text, of which the last `asked` bytes are asked.
static void expect_row(source *s, int64_t sample, const char *text, int64_t asked) {
    int64_t T = source_about(s).units_per_sample, n = (int64_t)strlen(text);
    int32_t *tokens = malloc((size_t)T * 4), *targets = malloc((size_t)T * 4);
    assert_true(tokens && targets);
    OK(source_look(s, sample, (void *[]){tokens, targets}));
    for (int64_t t = 0; t < T; t++) {
        int32_t token = t < n - 1 ? (uint8_t)text[t] : 0,
                target = t < n - 1 && t >= n - 1 - asked ? (uint8_t)text[t + 1] : -1;
        if (tokens[t] != token || targets[t] != target)
            fail_msg("row %d, place %d: token %d, target %d, expected %d and %d, of \"%s\"", (int)sample, (int)t,
                     tokens[t], targets[t], token, target, text);
    }
    free(tokens), free(targets);
}

// --- questions -------------------------------------------------------------------------------------------------------

static questions *open_text(const char *text, question_protocol protocol, int64_t context) {
    questions *q;
    rows_from o = from_of(file("q.jsonl", text), context);
    OK(questions_open(&q, &o, protocol));
    return q;
}

// One choice: its row is `query` and then what is asked.
static void expect_question(const char *line, question_protocol protocol, const char *whole, int64_t asked) {
    questions *q = open_text(line, protocol, CONTEXT);
    assert_int_equal(questions_about(q).rows, 1);
    expect_row(questions_source(q), 0, whole, asked);
    questions_close(q);
}

// White space at the query's end is asked with the choice by one protocol only.
static void the_protocols_ask_for_tokens_of_their_own(void **state) {
    (void)state;
    start();
    const char *plain = "{\"query\": \"ab\", \"choices\": [\"cd\"], \"gold\": 0}",
               *space = "{\"query\": \"ab \\n\", \"choices\": [\"c\"], \"gold\": \"0\"}";
    const char *wide = "{\"query\": \"a\\u3000\\u001f\", \"choices\": [\"c\"], \"gold\": 0}";
    expect_question(plain, PROTOCOL_LM_EVAL, "ab cd", 3);
    expect_question(plain, PROTOCOL_LLMC, "ab cd", 3);
    expect_question(space, PROTOCOL_LM_EVAL, "ab \n c", 4);
    expect_question(space, PROTOCOL_LLMC, "ab \n c", 2);
    expect_question(wide, PROTOCOL_LM_EVAL, "a\xE3\x80\x80\x1f c", 6);
    expect_question("{\"ctx\": \"ab\", \"endings\": [\"\"], \"label\": 0}", PROTOCOL_LLMC, "ab ", 1);
    end();
}

// In time that grows with its length, not with its square.
static void many_brackets(void **state) {
    (void)state;
    enum { MANY = 2000000 };
    char *line = malloc(MANY + 200);
    start();
    assert_non_null(line);
    int n = sprintf(line, "{\"activity_label\": \"\", \"ctx_a\": \"");
    memset(line + n, '[', MANY);
    strcpy(line + n + MANY, "\", \"ctx_b\": \"\", \"ctx\": \"\", \"endings\": [\"z\"], \"label\": 0}");
    questions *q = open_text(line, PROTOCOL_LM_EVAL, 4);
    expect_row(questions_source(q), 0, "[[[ z", 2);
    questions_close(q);
    free(line);
    end();
}

// What lm-evaluation-harness makes of the parts of a row; the wholes are what its preprocess gives.
static void hellaswag_is_cleaned(void **state) {
    (void)state;
    static const struct {
        const char *label, *a, *b, *ending, *whole;
        int64_t asked;
    } list[] = {
        {"Roof", "A man", "he THE End", "Goes.", "Roof: A man He the end Goes.", 6},
        {"Roof", "A [header] man", "", " x [step]  y ", "Roof: A man x  y", 5},
        {"R", "how [title] a [b", "c] d", "[substeps] z  [", "R: how. a d  z [", 5},
        {"R", "[a\\nb] c", "[]", "z", "R: [a\nb] c  z", 3},
        {"R", "  a", "\\u00e9T\\u00c9", "\\u3000z\\u0085", "R:  a \xC3\x89t\xC3\xA9 z", 2},
        {"R", "a", "\\u0391\\u03a3 \\u03a3\\u03a3.", "z", "R: a \xCE\x91\xCF\x82 \xCF\x83\xCF\x82. z", 2},
        {"R", "a", "\\u01c6", "z   z", "R: a \xC7\x85 z  z", 5},
    };
    start();
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char line[512];
        snprintf(
            line, sizeof line,
            "{\"activity_label\": \"%s\", \"ctx_a\": \"%s\", \"ctx_b\": \"%s\", \"ctx\": \"un clean\", \"endings\": [\"%s\"], \"label\": 0}",
            list[i].label, list[i].a, list[i].b, list[i].ending);
        expect_question(line, PROTOCOL_LM_EVAL, list[i].whole, list[i].asked);
    }
    expect_question(
        "{\"activity_label\": \"R\", \"ctx_a\": \"a\", \"ctx_b\": \"b\", \"ctx\": \"A [h] b\", \"endings\": [\"z [i]\"], \"label\": 0}",
        PROTOCOL_LLMC, "A [h] b z [i]", 6);
    expect_question("{\"ctx\": \"A [h] b\", \"endings\": [\"z\"], \"label\": 0}", PROTOCOL_LM_EVAL, "A [h] b z", 2);
    expect_question("{\"query\": \"A [h] b\", \"choices\": [\"z  [i]\"], \"gold\": 0, \"ctx\": 7}", PROTOCOL_LM_EVAL,
                    "A [h] b z  [i]", 7);
    end();
}

static void expect_marks(const questions *q, const double *sums, int64_t right, int64_t right_norm) {
    answers a = questions_mark(q, sums);
    if (a.right != right || a.right_norm != right_norm)
        fail_msg("%d right and %d divided, expected %d and %d", (int)a.right, (int)a.right_norm, (int)right,
                 (int)right_norm);
}

// A question of choices of 1, 4 and 2 characters (of 1, 4 and 3 bytes), and one of two.
static void the_least_sum_is_the_answer(void **state) {
    (void)state;
    const char *text =
        "{\"query\": \"q\", \"choices\": [\"a\", \"abcd\", \"a\\u00e9\"], \"gold\": 1}\n\n \t\r\n{\"query\": \"q\", \"choices\": [\"ab\", \"cd\"], \"gold\": 0}";
    start();
    questions *q = open_text(text, PROTOCOL_LM_EVAL, CONTEXT);
    assert_int_equal(questions_about(q).questions, 2);
    assert_int_equal(questions_about(q).rows, 5);
    expect_marks(q, (double[]){3, 2, 4, 1, 2}, 2, 2);
    expect_marks(q, (double[]){1, 8, 3, 5, 4}, 0, 0);          // divided: 1, 2, 1.5
    expect_marks(q, (double[]){3, 9.9, 5, 2, 3}, 1, 2);        // divided: 3, 2.475, 2.5
    expect_marks(q, (double[]){3, 10.1, 5, 2, 3}, 1, 1);       // divided by bytes the second would be less
    expect_marks(q, (double[]){2, 2, 2, 2, 2}, 1, 2);          // of equals the first; divided they are none
    expect_marks(q, (double[]){2, 8, 4, 3, 3}, 1, 1);          // divided: all equal
    expect_marks(q, (double[]){NAN, 2, NAN, NAN, NAN}, 1, 1);  // a NaN is no answer
    expect_marks(q, (double[]){INFINITY, INFINITY, 1, 1, INFINITY}, 1, 1);
    questions_close(q);
    // llmc: divided by tokens, which are bytes and the space before them: 2, 5 and 4.
    q = open_text(text, PROTOCOL_LLMC, CONTEXT);
    expect_marks(q, (double[]){4, 9.9, 8, 2, 3}, 1, 2);
    expect_marks(q, (double[]){4, 10.1, 8, 2, 3}, 1, 1);
    questions_close(q);
    end();
}

static void what_is_too_long_loses_its_beginning(void **state) {
    (void)state;
    start();
    questions *q = open_text(
        "{\"query\": \"0123456789\", \"choices\": [\"ab\", \"abcdefg\", \"x\"], \"gold\": 0}\n{\"query\": \"0123456\", \"choices\": [\"\"], \"gold\": 0}",
        PROTOCOL_LM_EVAL, 8);
    assert_int_equal(questions_about(q).cut, 3);
    assert_int_equal(source_about(questions_source(q)).units_per_sample, 8);
    expect_row(questions_source(q), 0, "456789 ab", 3);
    expect_row(questions_source(q), 1, "9 abcdefg", 8);
    expect_row(questions_source(q), 2, "3456789 x", 2);
    expect_row(questions_source(q), 3, "0123456 ", 1);
    questions_close(q);
    end();
}

static void refused_questions(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } list[] = {
        {"", "there is no question in it"},
        {"\n  \n", "there is no question in it"},
        {"{\"query\": \"q\", \"choices\": [\"a\"], \"gold\": 0}\n{\"query\": \"q\"", "line 2: not valid JSON"},
        {"\n\n[1]\n", "line 3: not an object"},
        {"{\"query\": \"q\", \"query\": \"q\"}", "line 1: not valid JSON: duplicate object key"},
        {"{\"text\": \"q\"}", "line 1: it has no choices; expected {\"query\""},
        {"{\"query\": \"q\", \"choices\": \"a\", \"gold\": 0}", "line 1: its choices are no list"},
        {"{\"query\": \"q\", \"choices\": [], \"gold\": 0}", "line 1: its list of choices is empty"},
        {"{\"query\": \"q\", \"choices\": [\"a\", 1], \"gold\": 0}", "line 1: a choice is no string"},
        {"{\"choices\": [\"a\"], \"gold\": 0}", "line 1: it has nothing that comes before"},
        {"{\"query\": 3, \"choices\": [\"a\"], \"gold\": 0}", "line 1: what comes before the choices is no string"},
        {"{\"query\": \"q\", \"choices\": [\"a\", \"b\"]}", "line 1: it does not say which choice is right"},
        {"{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"gold\": 2}",
         "line 1: which choice is right is no whole number from 0 to 1"},
        {"{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"gold\": -1}", "from 0 to 1"},
        {"{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"gold\": 0.5}", "from 0 to 1"},
        {"{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"gold\": \"1x\"}", "from 0 to 1"},
        {"{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"gold\": \" 1\"}", "from 0 to 1"},
        {"{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"gold\": 18446744073709551616}", "line 1: not valid JSON"},
        {"{\"query\": \"q\", \"choices\": [\"a\"], \"gold\": \"18446744073709551616\"}", "from 0 to 0"},
        {"{\"ctx\": \"q\", \"endings\": [\"a\"], \"label\": \"\"}", "line 1: the label is empty"},
        {"{\"query\": \"\", \"choices\": [\"a\"], \"gold\": 0}", "line 1: the query is empty"},
        {"{\"query\": \" \", \"choices\": [\"a\"], \"gold\": 0}", "line 1: the query is empty"},
        {"{\"query\": \"q\", \"choices\": [\"a\", \"0123456789012345\"], \"gold\": 0}",
         "line 1: choice 1, counted from 0: 17 tokens are asked, and the model reads 16"},
        {"{\"query\": \"q\", \"choices\": [\"\\u00e9\"], \"gold\": 0}",
         "line 1: choice 0, counted from 0: token 195, and the model knows 128 tokens"},
    };
    start();
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        questions *q;
        rows_from o = from_of(file("bad.jsonl", list[i].text), 16);
        o.vocab = 128;
        err_t rc = questions_open(&q, &o, PROTOCOL_LM_EVAL);
        if (rc != ERR_DATA || q || !strstr(err_last()->text, list[i].says) || !strstr(err_last()->text, "/bad.jsonl: "))
            fail_msg("%s: %d \"%s\", expected \"%s\"", list[i].text, rc, rc ? err_last()->text : "", list[i].says);
    }
    questions *q;
    rows_from none = from_of("nowhere/q.jsonl", 16);
    assert_int_equal(questions_open(&q, &none, PROTOCOL_LLMC), ERR_IO);
    end();
}

// An empty query begins with what the tokenizer begins a text with; a query that is not empty does so in one protocol
// only, if its template says so.
static void what_begins_a_text_is_before_it(void **state) {
    (void)state;
    static const struct {
        const char *path, *first;
        bool always;
    } list[] = {{"test/golden/tokenizer/gpt2.json", "<|endoftext|>", false},
                {"test/golden/tokenizer/llama3.json", "<|begin_of_text|>", true}};
    start();
    const char *path = file(
        "q.jsonl",
        "{\"query\": \"\", \"choices\": [\"a\"], \"gold\": 0}\n{\"query\": \"the\", \"choices\": [\"a\"], \"gold\": 0}\n");
    for (int i = 0; i < 2; i++)
        for (int p = 0; p < 2; p++) {
            tokenizer *t;
            questions *q;
            int32_t tokens[ROWS_TILE];
            OK(tokenizer_open(&t, list[i].path));
            rows_from o = {.path = path, .words = t, .context = CONTEXT, .vocab = tokenizer_about(t).vocab};
            OK(questions_open(&q, &o, (question_protocol)p));
            int32_t first = tokenizer_special(t, list[i].first);
            assert_true(first >= 0);
            OK(source_look(questions_source(q), 0, (void *[]){tokens, NULL}));
            assert_int_equal(tokens[0], first);
            OK(source_look(questions_source(q), 1, (void *[]){tokens, NULL}));
            assert_int_equal(tokens[0] == first, p == PROTOCOL_LM_EVAL && list[i].always);
            questions_close(q);
            tokenizer_close(t);
        }
    end();
}

static void compressed_questions_are_the_same(void **state) {
    (void)state;
    const char *text = "{\"query\": \"ab\", \"choices\": [\"cd\"], \"gold\": 0}\n";
    char path[1100];
    questions *q;
    start();
    questions *plain = open_text(text, PROTOCOL_LLMC, CONTEXT);
    snprintf(path, sizeof path, "%s/packed", dir);
    gzFile f = gzopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(gzwrite(f, text, (unsigned)strlen(text)), strlen(text));
    assert_int_equal(gzclose(f), Z_OK);
    rows_from o = from_of(path, CONTEXT);
    OK(questions_open(&q, &o, PROTOCOL_LLMC));
    assert_string_equal(source_about(questions_source(q)).hash, source_about(questions_source(plain)).hash);
    questions_close(q);
    questions_close(plain);
    end();
}

static void the_hash_is_of_what_is_asked(void **state) {
    (void)state;
    static const char *const others[] = {"{\"query\": \"ab\", \"choices\": [\"ce\"], \"gold\": 0}",
                                         "{\"query\": \"ab \", \"choices\": [\"d\"], \"gold\": 0}",
                                         "{\"query\": \"ab\", \"choices\": [\"cd\", \"cd\"], \"gold\": 0}"};
    char first[17];
    start();
    questions *q = open_text("{\"query\": \"ab\", \"choices\": [\"cd\"], \"gold\": 0}", PROTOCOL_LM_EVAL, CONTEXT);
    strcpy(first, source_about(questions_source(q)).hash);
    questions_close(q);
    for (int i = 0; i < 3; i++) {
        q = open_text(others[i], PROTOCOL_LM_EVAL, CONTEXT);
        assert_string_not_equal(first, source_about(questions_source(q)).hash);
        questions_close(q);
    }
    end();
}

// --- texts -----------------------------------------------------------------------------------------------------------

static void every_token_of_a_text_is_asked_once(void **state) {
    (void)state;
    passage p;
    start();
    rows_from o = from_of(file("a.txt", "abcdefghijk"), 4);
    OK(passage_open(&p, &o, "text"));
    assert_int_equal(source_about(p.from).samples, 3);
    expect_row(p.from, 0, "abcde", 4);
    expect_row(p.from, 1, "efghi", 4);
    expect_row(p.from, 2, "ghijk", 2);
    assert_true(p.prefix == -1 && p.tokens == 10 && p.bytes == 10 && p.documents == 1);
    passage_close(&p);
    o = from_of(file("a.jsonl", "{\"say\": \"abc\"}\n{\"say\": \"\"}\n{\"say\": \"x\"}\n{\"say\": \"abcde\"}\n"), 4);
    OK(passage_open(&p, &o, "say"));
    assert_int_equal(source_about(p.from).samples, 2);
    expect_row(p.from, 0, "abc", 2);
    expect_row(p.from, 1, "abcde", 4);
    assert_true(p.tokens == 6 && p.bytes == 6 && p.documents == 3);
    passage_close(&p);
    end();
}

static void refused_texts(void **state) {
    (void)state;
    static const char *const list[][3] = {{"a.txt", "", "0 documents"},
                                          {"a.txt", "x", "has none that begins a text"},
                                          {"a.txt", "a\xE9", "token 233"},
                                          {"a.jsonl", "{\"text\": \"abc\"}\n{\"txt\": 1}", "line 2"}};
    start();
    for (int i = 0; i < 4; i++) {
        passage p;
        rows_from o = from_of(file(list[i][0], list[i][1]), 4);
        o.vocab = 128;
        err_t rc = passage_open(&p, &o, "text");
        if (rc != ERR_DATA || p.from || !strstr(err_last()->text, list[i][2]) || !strstr(err_last()->text, dir))
            fail_msg("%s: %d \"%s\", expected \"%s\"", list[i][1], rc, err_last()->text, list[i][2]);
    }
    end();
}

// A text that is read in several pieces has the tokens that it has as a whole.
static void long_texts_are_encoded_as_a_whole(void **state) {
    (void)state;
    enum { BYTES = 2500000, T = 61 };
    char *text = malloc(BYTES + 64);
    tokenizer *t;
    encoder *e;
    passage p;
    const int32_t *ids;
    int64_t n = 0, count, at = 0;
    int32_t tokens[ROWS_TILE], targets[ROWS_TILE];
    start();
    assert_non_null(text);
    for (int i = 0; n < BYTES; i++)
        n += sprintf(text + n, "%s%d the caffè of %x%s", i % 7 ? " " : "\n\n  ", i, i * 7919, i % 5 ? "" : " don't");
    OK(tokenizer_open(&t, "test/golden/tokenizer/gpt2.json"));
    OK(encoder_open(&e, t));
    OK(encoder_encode(e, text, n, ENCODE_TEXT, &ids, &count));
    rows_from o = {.path = file("long.txt", text), .words = t, .context = T, .vocab = tokenizer_about(t).vocab};
    OK(passage_open(&p, &o, "text"));
    assert_true(p.tokens == count && p.bytes == n && p.documents == 1);
    for (int64_t k = 0; k < source_about(p.from).samples; k++) {
        OK(source_look(p.from, k, (void *[]){tokens, targets}));
        for (int i = 0; i < T; i++) {
            if (targets[i] < 0) continue;
            if (targets[i] != ids[at] || tokens[i] != (at ? ids[at - 1] : p.prefix))
                fail_msg("token %d is asked for wrongly in row %d", (int)at, (int)k);
            at++;
        }
    }
    assert_int_equal(at, count);
    passage_close(&p);
    encoder_close(e);
    tokenizer_close(t);
    free(text);
    end();
}

// --- case ------------------------------------------------------------------------------------------------------------

static void cases(void **state) {
    (void)state;
    static const uint32_t list[][3] = {{'a', 'a', 'A'},
                                       {'Z', 'z', 'Z'},
                                       {'[', '[', '['},
                                       {0xDF, 0xDF, 0xDF},
                                       {0xE9, 0xE9, 0xC9},
                                       {0x130, 0x130, 0x130},
                                       {0x101, 0x101, 0x100},
                                       {0x100, 0x101, 0x100},
                                       {0x1C4, 0x1C6, 0x1C5},
                                       {0x3A3, 0x3C3, 0x3A3},
                                       {0x410, 0x430, 0x410},
                                       {0x1F88, 0x1F80, 0x1F88},
                                       {0x10400, 0x10428, 0x10400},
                                       {0x1E943, 0x1E943, 0x1E921},
                                       {0x4E2D, 0x4E2D, 0x4E2D}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        assert_int_equal(case_lower(list[i][0]), list[i][1]);
        assert_int_equal(case_title(list[i][0]), list[i][2]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_protocols_ask_for_tokens_of_their_own),
        cmocka_unit_test(hellaswag_is_cleaned),
        cmocka_unit_test(many_brackets),
        cmocka_unit_test(the_least_sum_is_the_answer),
        cmocka_unit_test(what_is_too_long_loses_its_beginning),
        cmocka_unit_test(refused_questions),
        cmocka_unit_test(what_begins_a_text_is_before_it),
        cmocka_unit_test(compressed_questions_are_the_same),
        cmocka_unit_test(the_hash_is_of_what_is_asked),
        cmocka_unit_test(every_token_of_a_text_is_asked_once),
        cmocka_unit_test(refused_texts),
        cmocka_unit_test(long_texts_are_encoded_as_a_whole),
        cmocka_unit_test(cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
