// test/test_pieces.c: WordPiece and Unigram by vocabularies of a few tokens, so that what a text must become can be
// worked out by hand: the longest word, equal scores, characters that no token has, and what members of a
// tokenizer.json stand for where they are not there. (Real vocabularies: test_tokenizer_words.c.)
#include "test/support/tokenizer.h"

#include <inttypes.h>

enum { TEXT = 4096 };

static pair parse(const char *json) {
    pair p;
    if (tokenizer_parse(&p.t, "t.json", json, (int64_t)strlen(json)) != ERR_OK)
        fail_msg("%s: %s", json, err_last()->text);
    assert_ok(encoder_open(&p.e, p.t));
    return p;
}

// want: ids with a space before each.
static void expect_ids(const char *json, const char *text, const char *want) {
    const int32_t *ids;
    int64_t count;
    char found[TEXT] = "";
    pair p = parse(json);
    assert_ok(encoder_encode(p.e, text, (int64_t)strlen(text), ENCODE_TEXT, &ids, &count));
    for (int64_t i = 0; i < count; i++)
        snprintf(found + strlen(found), sizeof found - strlen(found), " %d", (int)ids[i]);
    if (strcmp(found, want) != 0) fail_msg("%s: \"%s\" is%s, expected%s", json, text, found, want);
    close_pair(&p);
}

// --- WordPiece -------------------------------------------------------------------------------------------------------

#define WORDPIECE(normalizer, members, vocab) \
    "{\"normalizer\":" normalizer ",\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}," \
    "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\"},\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"?\"," \
    "\"continuing_subword_prefix\":\"##\"," members "\"vocab\":{\"?\":0," vocab "}}}"
#define ACUTE "\xc3\xa9"

// In characters, not in bytes: a longer word is unknown.
static void words_have_a_most(void **state) {
    (void)state;
    static const char vocab[] =
        WORDPIECE("null", "\"max_input_chars_per_word\":4,", "\"" ACUTE "\":1,\"##" ACUTE "\":2,\"a\":3,\"##a\":4");
    static const char usual[] = WORDPIECE("null", "", "\"" ACUTE "\":1,\"##" ACUTE "\":2"),
                      null[] =
                          WORDPIECE("null", "\"max_input_chars_per_word\":null,", "\"" ACUTE "\":1,\"##" ACUTE "\":2");
    expect_ids(vocab, ACUTE ACUTE ACUTE ACUTE, " 1 2 2 2");
    expect_ids(vocab, ACUTE ACUTE ACUTE ACUTE ACUTE, " 0");
    expect_ids(vocab, "aaaa aaaaa a" ACUTE, " 3 4 4 4 0 3 2");
    expect_ids(vocab, "ab a", " 0 3");  // the end of the word has no token
    for (int n = 100; n <= 101; n++) {
        char text[TEXT] = "", want[TEXT] = " 1";
        for (int i = 0; i < n; i++) strcat(text, ACUTE);
        for (int i = 1; i < n; i++) strcat(want, " 2");
        expect_ids(usual, text, n > 100 ? " 0" : want);
        expect_ids(null, text, n > 100 ? " 0" : want);
    }
}

#define BERTS(members) \
    WORDPIECE("{\"type\":\"BertNormalizer\"" members "}", "", \
              "\"ab\":1,\"\xe4\xb8\xad\":2,\"cd\":3,\"\xc3\x80" \
              "B\":4,\"AB\":5,\"\xc3\xa0" \
              "b\":6,\"ab\xe4\xb8\xad" \
              "cd\":7,\"c\\u0001d\":8")

static void a_normalizer_of_bert_does_what_is_usual(void **state) {
    (void)state;
    static const char *const all[][2] = {
        {BERTS(""), " 1 2 3"},
        {BERTS(",\"clean_text\":null,\"handle_chinese_chars\":null,\"strip_accents\":null,\"lowercase\":null"),
         " 1 2 3"},
        {BERTS(",\"lowercase\":false"), " 4 2 3"},  // accents go with capitals
        {BERTS(",\"lowercase\":false,\"strip_accents\":true"), " 5 2 3"},
        {BERTS(",\"strip_accents\":false"), " 6 2 3"},
        {BERTS(",\"handle_chinese_chars\":false"), " 7"},
        {BERTS(",\"clean_text\":false"), " 1 2 8"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect_ids(all[i][0],
                   "\xc3\x80"
                   "B\xe4\xb8\xad"
                   "c\x01"
                   "d",
                   all[i][1]);
}

// In a text, not at its beginning.
static void expect_decoded(const char *json, int32_t id, const char *want) {
    const uint8_t *piece;
    int64_t n;
    pair p = parse(json);
    assert_ok(tokenizer_piece(p.t, id, &piece, &n));
    if (n != (int64_t)strlen(want) || memcmp(piece, want, (size_t)n) != 0)
        fail_msg("token %d is \"%.*s\", expected \"%s\"", id, (int)n, (const char *)piece, want);
    close_pair(&p);
}

#define DECODED(cleanup) \
    "{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\"" cleanup \
    "},\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"a\",\"continuing_subword_prefix\":\"##\",\"vocab\":{" \
    "\"a\":0,\"##a\":1,\".\":2,\"?\":3,\"!\":4,\",\":5,\"' b\":6,\"n't\":7,\"'m\":8,\"do not\":9,\"'s\":10," \
    "\"'ve\":11,\"'re\":12,\"##\":13,\"#\":14}}}"

static void spaces_before_marks_are_left_out(void **state) {
    (void)state;
    static const char *const clean[] = {" a", "a",      ".",  "?",   "!",   ",", "'b", "n't",
                                        "'m", " don't", "'s", "'ve", "'re", "",  " #"};
    static const char *const plain[] = {" a",  "a",       " .",  " ?",   " !",   " ,", " ' b", " n't",
                                        " 'm", " do not", " 's", " 've", " 're", "",   " #"};
    for (int32_t id = 0; id < 15; id++) {
        expect_decoded(DECODED(""), id, clean[id]);
        expect_decoded(DECODED(",\"cleanup\":true"), id, clean[id]);
        expect_decoded(DECODED(",\"cleanup\":false"), id, plain[id]);
    }
}

static void a_prefix_has_32_bytes_at_most(void **state) {
    (void)state;
    for (int n = 31; n <= 33; n++) {
        char json[TEXT], prefix[64] = "";
        tokenizer *t;
        for (int i = 0; i < n; i++) strcat(prefix, "#");
        snprintf(json, sizeof json,
                 "{\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"%s\"},\"model\":{\"type\":\"WordPiece\","
                 "\"unk_token\":\"a\",\"continuing_subword_prefix\":\"%s\",\"vocab\":{\"a\":0,\"%sa\":1}}}",
                 prefix, prefix, prefix);
        err_t rc = tokenizer_parse(&t, "t.json", json, (int64_t)strlen(json));
        if (n > 32) assert_error(rc, ERR_DATA, "decoder: ", "expected a prefix of at most 32 bytes");
        else assert_ok(rc);
        tokenizer_close(t);
        if (n <= 32) expect_decoded(json, 1, "a");
    }
}

// --- Unigram ---------------------------------------------------------------------------------------------------------

#define UNIGRAM(members, vocab) \
    "{" members "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",0]," vocab "]}}"
#define BYTES(vocab) \
    "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"?\",0]," vocab "]}}"

static void the_best_division_is_taken(void **state) {
    (void)state;
    static const char *const all[][3] = {
        // of equal scores the division whose last token begins first
        {UNIGRAM("", "[\"a\",-1],[\"b\",-1],[\"ab\",-2]"), "ab", " 3"},
        {UNIGRAM("", "[\"ab\",-2],[\"b\",-1],[\"a\",-1]"), "ab", " 1"},
        {UNIGRAM("", "[\"a\",-1],[\"b\",-1],[\"ab\",-2.25]"), "ab", " 1 2"},
        {UNIGRAM("", "[\"ab\",-1],[\"c\",-2],[\"a\",-2],[\"bc\",-1]"), "abc", " 3 4"},
        // a character without a token of its own may begin one, and has the score of an unknown one beside it
        {UNIGRAM("", "[\"ab\",-50],[\"b\",-1]"), "ab", " 1"},
        {UNIGRAM("", "[\"ab\",-50],[\"b\",-1]"), "abb", " 1 2"},
        {UNIGRAM("", "[\"ab\",-50],[\"b\",-1]"), "aab", " 0 1"},
        // an unknown one is 10 below the least
        {UNIGRAM("", "[\"xa\",-12],[\"a\",9.5]"), "xa", " 1"},
        {UNIGRAM("", "[\"xa\",-12],[\"a\",10.5]"), "xa", " 0 2"},
        {UNIGRAM("", "[\"a\",-1]"), "xyaxy", " 0 1 0"},
        // scores are doubles, to their last digit
        {UNIGRAM("", "[\"ab\",-0.3],[\"c\",0],[\"a\",-0.30000000000000004],[\"bc\",0]"), "abc", " 1 2"},
        {UNIGRAM("", "[\"ab\",-0.30000000000000004],[\"c\",0],[\"a\",-0.3],[\"bc\",0]"), "abc", " 3 4"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) expect_ids(all[i][0], all[i][1], all[i][2]);
}

// Of an unknown character, where there are all of them, by their names in capitals.
static void bytes_are_named_in_capitals(void **state) {
    (void)state;
    expect_ids(BYTES("[\"a\",-1],[\"<0xC3>\",-2],[\"<0xA9>\",-2]"), "a" ACUTE, " 1 2 3");
    expect_ids(BYTES("[\"a\",-1],[\"<0xc3>\",-2],[\"<0xA9>\",-2]"), "a" ACUTE, " 1 0");
    expect_ids(BYTES("[\"a\",-1],[\"<0xC3>\",-2],[\"<0xa9>\",-2]"), "a" ACUTE, " 1 0");
    expect_ids(BYTES("[\"a\",-1],[\"<0xC5>\",-2],[\"<0x9A>\",-2]"), "a\xc5\x9a", " 1 2 3");
    expect_ids(BYTES("[\"a\",-1],[\"<0xC5>\",-2],[\"<0x9a>\",-2]"), "a\xc5\x9a", " 1 0");
    expect_ids(UNIGRAM("", "[\"a\",-1],[\"<0xC3>\",-2],[\"<0xA9>\",-2]"), "a" ACUTE, " 1 0");
}

static void spaces_are_what_is_usual(void **state) {
    (void)state;
#define STRIP(members) \
    UNIGRAM("\"normalizer\":{\"type\":\"Strip\"" members "},", "[\"a\",-1],[\" a\",-1],[\"a \",-1],[\" a \",-1]")
    expect_ids(STRIP(""), " a ", " 1");
    expect_ids(STRIP(",\"strip_right\":true"), " a ", " 1");
    expect_ids(STRIP(",\"strip_left\":false"), " a ", " 2");
    expect_ids(STRIP(",\"strip_right\":false"), " a ", " 3");
    expect_ids(STRIP(",\"strip_left\":false,\"strip_right\":false"), " a ", " 4");
#define MARK "\xe2\x96\x81"
#define META(members) \
    UNIGRAM("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\"" members "},", \
            "[\"" MARK "a\",-1],[\"a\",-1],[\"" MARK "\",-9],[\"" MARK "a" MARK "a\",-1]")
    expect_ids(META(""), "a a", " 1 1");
    expect_ids(META(",\"add_prefix_space\":true"), "a a", " 1 1");
    expect_ids(META(",\"add_prefix_space\":false"), "a a", " 2 1");
    expect_ids(META(",\"add_prefix_space\":true,\"prepend_scheme\":\"never\""), "a a", " 2 1");
    expect_ids(META(",\"add_prefix_space\":false,\"prepend_scheme\":\"always\""), "a a", " 1 1");
    expect_ids(META(",\"split\":false"), "a a", " 4");
    expect_ids(META(",\"split\":null"), "a a", " 1 1");
}

// Characters at the ends of ranges, and of several bytes.
static void steps_change_what_they_should(void **state) {
    (void)state;
#define NMT UNIGRAM("\"normalizer\":{\"type\":\"Nmt\"},", "[\"ab\",-1],[\"a b\",-1]")
    static const char *const gone[] = {"\x01", "\x08", "\x0b", "\x0e", "\x1f", "\x7f", "\xc2\x8f", "\xc2\x9f"};
    static const char *const spaces[] = {"\t",           "\n",           "\f",           "\r",
                                         "\xe1\x9a\x80", "\xe2\x80\x8b", "\xe2\x80\x8f", "\xe2\x80\xa8",
                                         "\xe2\x80\xa9", "\xe2\x96\x81", "\xef\xbb\xbf", "\xef\xbf\xbd"};
    static const char *const others[] = {"\xe2\x80\x90", "\xe2\x80\x8a", "\xc2\x90", "!"};
    char text[16];
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        snprintf(text, sizeof text, "a%sb", gone[i]), expect_ids(NMT, text, " 1");
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        snprintf(text, sizeof text, "a%sb", spaces[i]), expect_ids(NMT, text, " 2");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        snprintf(text, sizeof text, "a%sb", others[i]), expect_ids(NMT, text, " 0");
    // the capital I with a dot has two small characters
    expect_ids(UNIGRAM("\"normalizer\":{\"type\":\"Lowercase\"},", "[\"i\",-1],[\"i\xcc\x87\",-1]"), "\xc4\xb0", " 2");
#define SPACES \
    UNIGRAM("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\"_\"},", \
            "[\"a b\",-1],[\"a_b\",-1],[\"_\",-1]")
    expect_ids(SPACES, "a b", " 1");
    expect_ids(SPACES, "a  b", " 2");
    expect_ids(SPACES, "a   b   ", " 2 3");
    expect_ids(STRIP(""), "\xc2\xa0 a\xc2\xa0\xe3\x80\x80", " 1");
    expect_ids(UNIGRAM("\"normalizer\":{\"type\":\"Strip\"},", "[\"" ACUTE "\",-1]"), " " ACUTE "\xc2\xa0", " 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_have_a_most),
        cmocka_unit_test(a_normalizer_of_bert_does_what_is_usual),
        cmocka_unit_test(spaces_before_marks_are_left_out),
        cmocka_unit_test(a_prefix_has_32_bytes_at_most),
        cmocka_unit_test(the_best_division_is_taken),
        cmocka_unit_test(bytes_are_named_in_capitals),
        cmocka_unit_test(spaces_are_what_is_usual),
        cmocka_unit_test(steps_change_what_they_should),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
