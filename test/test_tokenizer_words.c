// test/test_tokenizer_words.c: tokenizers of words, WordPiece and Unigram. Ids and decoded texts are those that Hugging
// Face's `tokenizers` gives (golden/tokenizer/words.txt); time is linear in a word's length; vocab.txt is the same as
// the tokenizer.json; what is damaged or not implemented is refused by its name.
#include "test/support/tokenizer.h"

#include <string.h>
#include <sys/stat.h>
#include <time.h>

static const char *const families[] = {"bert", "t5", "albert", "llama"};
enum { FAMILIES = 4, TEXTS = 44, IDS = 1 << 10 };

static pair open_family(const char *name) {
    char path[IO_PATH];
    assert_ok(io_path(path, GOLDEN "%s.json", name));
    return open_pair(path);
}

// --- golden answers --------------------------------------------------------------------------------------------------

typedef struct answer {
    char family[16], how[8];
    uint8_t text[MOST];
    int64_t n;
    int32_t ids[IDS];
    int64_t count;
} answer;

// A line "FAMILY HOW HEX ID ID ...".
static void read_answer(answer *a, char *line) {
    char *at = NULL;
    unsigned byte;
    a->n = a->count = 0;
    snprintf(a->family, sizeof a->family, "%s", strtok_r(line, " \n", &at));
    snprintf(a->how, sizeof a->how, "%s", strtok_r(NULL, " \n", &at));
    for (const char *hex = strtok_r(NULL, " \n", &at); sscanf(hex, "%2x", &byte) == 1; hex += 2)
        a->text[a->n++] = (uint8_t)byte;
    for (char *word; (word = strtok_r(NULL, " \n", &at));) a->ids[a->count++] = atoi(word);
}

static void check_decoded(const pair *p, const answer *a) {
    const uint8_t *piece;
    int64_t n, at = 0;
    for (int64_t i = 0; i < a->count; i++) {
        assert_ok(i ? tokenizer_piece(p->t, a->ids[i], &piece, &n)
                    : tokenizer_first_piece(p->t, a->ids[i], &piece, &n));
        if (at + n > a->n || memcmp(piece, a->text + at, (size_t)n) != 0)
            fail_msg("%s: token %d, the %dth, is \"%.*s\", expected \"%.*s\"", a->family, a->ids[i], (int)i, (int)n,
                     (const char *)piece, (int)(a->n - at), (const char *)a->text + at);
        at += n;
    }
    assert_int_equal(at, a->n);
}

static void check_encoded(const pair *p, const answer *a) {
    const int32_t *ids;
    int64_t count;
    for (int twice = 0; twice < 2; twice++) {
        assert_ok(encoder_encode(p->e, a->text, a->n, atoi(a->how), &ids, &count));
        if (count != a->count || (count && memcmp(ids, a->ids, (size_t)count * sizeof *ids) != 0))
            fail_msg("%s, how %s: \"%.*s\" has other ids", a->family, a->how, (int)a->n, (const char *)a->text);
    }
}

static void test_answers(void **state) {
    static answer a;
    char *text, *at = NULL;
    size_t n;
    int lines = 0;
    pair p[FAMILIES];
    (void)state;
    for (int f = 0; f < FAMILIES; f++) p[f] = open_family(families[f]);
    assert_ok(io_read_file(GOLDEN "words.txt", LONG, &text, &n));
    for (char *line = strtok_r(text, "\n", &at); line; line = strtok_r(NULL, "\n", &at), lines++) {
        int f = 0;
        read_answer(&a, line);
        while (f < FAMILIES - 1 && strcmp(a.family, families[f]) != 0) f++;
        if (strcmp(a.how, "decode") == 0) check_decoded(&p[f], &a);
        else check_encoded(&p[f], &a);
    }
    assert_int_equal(lines, FAMILIES * TEXTS * 4);
    free(text);
    for (int f = 0; f < FAMILIES; f++) close_pair(&p[f]);
}

static void test_about(void **state) {
    static const tokenizer_info want[FAMILIES] = {
        {400, 3, 2, false}, {404, 1, -1, false}, {350, 3, 2, false}, {620, 1, -1, false}};
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        pair p = open_family(families[f]);
        tokenizer_info about = tokenizer_about(p.t);
        assert_int_equal(about.vocab, want[f].vocab);
        assert_int_equal(about.end_of_text, want[f].end_of_text);
        assert_int_equal(about.bos, want[f].bos);
        assert_int_equal(about.exact, want[f].exact);
        close_pair(&p);
    }
}

// --- long words, bytes, cuts -----------------------------------------------------------------------------------------

// A megabyte without white space, of known characters and of unknown ones: quadratic time would be minutes.
static void test_long(void **state) {
    static uint8_t text[LONG];
    const int32_t *ids;
    int64_t count;
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        pair p = open_family(families[f]);
        clock_t begin = clock();
        for (int kind = 0; kind < 4; kind++) {
            for (int64_t i = 0; i < LONG; i++) text[i] = (uint8_t) "aht\x01"[kind == 3 ? 3 : i * i % 7 % (kind + 1)];
            if (kind == 2)
                for (int64_t i = 0; i < LONG; i += 2) memcpy(text + i, "\xcc\xa3", 2);
            assert_ok(encoder_encode(p.e, text, LONG, ENCODE_TEXT, &ids, &count));
        }
        assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 60);
        close_pair(&p);
    }
}

// A byte that is no UTF-8 is U+FFFD.
static void test_invalid(void **state) {
    static const char bad[] = "the\xff of \xe4\xb8 and\xf0\x9f\x98";
    static const char good[] = "the\xef\xbf\xbd of \xef\xbf\xbd\xef\xbf\xbd and\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd";
    int32_t want[64];
    const int32_t *ids;
    int64_t n, count;
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        pair p = open_family(families[f]);
        assert_ok(encoder_encode(p.e, good, sizeof good - 1, ENCODE_TEXT, &ids, &n));
        memcpy(want, ids, (size_t)n * sizeof *ids);
        assert_ok(encoder_encode(p.e, bad, sizeof bad - 1, ENCODE_TEXT, &ids, &count));
        assert_int_equal(count, n);
        assert_memory_equal(ids, want, (size_t)n * sizeof *ids);
        close_pair(&p);
    }
}

// Every place where a beginning of the text may be cut: both sides have the ids of the whole. llama.json takes a text
// as one word, which has no such place; nor has t5.json, which looks for an added token in the normalized text.
static void test_cuts(void **state) {
    static const char text[] =
        "The water of Z\xc3\xbcrich, is  it\nlike <extra_id_0> made ones \xcc\x81 e\xcc\x81 "
        "\xce\x91\xcf\x83 \xef\xac\x81nd [MASK] \xe4\xb8\xad x two words find solo use.\n\nmay people";
    static const int least[FAMILIES] = {8, 0, 6, 0};
    int32_t whole[IDS], parts[IDS];
    const int32_t *ids;
    int64_t count, first, second, n = sizeof text - 1;
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        pair p = open_family(families[f]);
        int cuts = 0;
        for (int how = 0; how < 2; how++) {
            assert_ok(encoder_encode(p.e, text, n, how, &ids, &count));
            memcpy(whole, ids, (size_t)count * sizeof *ids);
            for (int64_t window = 1, before = 0; window <= n; window++) {
                int64_t cut = tokenizer_cut(p.t, text, window, how);
                if (cut == before) continue;
                assert_ok(encoder_encode(p.e, text, cut, how, &ids, &first));
                memcpy(parts, ids, (size_t)first * sizeof *ids);
                assert_ok(encoder_encode(p.e, text + cut, n - cut, how, &ids, &second));
                memcpy(parts + first, ids, (size_t)second * sizeof *ids);
                if (first + second != count || memcmp(parts, whole, (size_t)count * sizeof *ids) != 0)
                    fail_msg("%s, how %d: cut at %d has other ids", families[f], how, (int)cut);
                before = cut, cuts++;
            }
        }
        assert_true(cuts >= least[f]);
        assert_true(least[f] > 0 || cuts == 0);
        close_pair(&p);
    }
}

// Where a byte has no token, all of the run is the unknown token.
static void test_missing_byte(void **state) {
    static const char json[] = "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,"
                               "\"vocab\":[[\"<unk>\",0],[\"a\",-1],[\"<0x62>\",-2]]}}";
    static const int32_t want[] = {1, 2, 2, 1, 0};
    const int32_t *ids;
    int64_t count;
    pair p;
    (void)state;
    assert_ok(tokenizer_parse(&p.t, "t.json", json, sizeof json - 1));
    assert_ok(encoder_open(&p.e, p.t));
    assert_ok(encoder_encode(p.e, "abbabc", 6, ENCODE_TEXT, &ids, &count));
    assert_int_equal(count, 5);
    assert_memory_equal(ids, want, sizeof want);
    close_pair(&p);
}

// --- files -----------------------------------------------------------------------------------------------------------

static void copy(place *p, const char *from, const char *name) {
    char *text;
    size_t n;
    assert_ok(io_read_file(from, LONG, &text, &n));
    put_file(p, name, text);
    free(text);
}

static void expect_same(const char *path, const char *text, const pair *other) {
    int32_t want[64];
    const int32_t *ids;
    int64_t n, count;
    pair p = open_pair(path);
    assert_ok(encoder_encode(other->e, text, (int64_t)strlen(text), ENCODE_SPECIAL | ENCODE_TEMPLATE, &ids, &n));
    memcpy(want, ids, (size_t)n * sizeof *ids);
    assert_ok(encoder_encode(p.e, text, (int64_t)strlen(text), ENCODE_SPECIAL | ENCODE_TEMPLATE, &ids, &count));
    assert_int_equal(count, n);
    assert_memory_equal(ids, want, (size_t)n * sizeof *ids);
    close_pair(&p);
}

static void test_vocab_txt(void **state) {
    place *p = *state;
    tokenizer *t;
    pair bert = open_family("bert");
    copy(p, GOLDEN "vocab.txt", "vocab.txt");
    expect_same(GOLDEN "vocab.txt", "The [MASK] made it, \xc3\x85!", &bert);
    expect_same(p->dir, "The [MASK] made it, \xc3\x85!", &bert);
    put_file(p, "tokenizer_config.json", "{\"do_lower_case\": false, \"tokenizer_class\": \"BertTokenizer\"}");
    expect_same(at(p, "vocab.txt"), "the [MASK] made it", &bert);
    pair cased = open_pair(p->dir);
    const int32_t *ids;
    int64_t count;
    assert_ok(encoder_encode(cased.e, "QQ", 2, ENCODE_TEXT, &ids, &count));
    assert_int_equal(count, 1);
    assert_int_equal(ids[0], 1);  // [UNK]: there are no capital letters in it
    close_pair(&cased);
    put_file(p, "tokenizer_config.json", "{\"tokenizer_class\": \"ElectraTokenizer\"}");
    assert_error(tokenizer_open(&t, p->dir), ERR_DATA, "the tokenizer_class is ElectraTokenizer");
    put_file(p, "tokenizer_config.json", "{\"strip_accents\": false}");
    assert_error(tokenizer_open(&t, p->dir), ERR_DATA, "strip_accents is not implemented");
    put_file(p, "twice.txt", "[UNK]\na\nb\na\n");
    assert_error(tokenizer_open(&t, at(p, "twice.txt")), ERR_DATA, "tokenizer_config");
    put_file(p, "tokenizer_config.json", "{}");
    assert_error(tokenizer_open(&t, at(p, "twice.txt")), ERR_DATA, "line 4: the token \"a\" stands on line 2 too");
    put_file(p, "none.txt", "a\nb\n");
    assert_error(tokenizer_open(&t, at(p, "none.txt")), ERR_DATA, "unk_token is \"[UNK]\"");
    close_pair(&bert);
}

static void test_refused(void **state) {
    static const struct {
        const char *file, *from, *to, *says;
    } all[] = {
        {"bert", "\"BertNormalizer\"", "\"BertNormaliser\"", "normalizer: {\"type\":\"BertNormaliser\""},
        {"bert", "\"BertPreTokenizer\"", "\"Whitespace\"", "pre_tokenizer: {\"type\":\"Whitespace\"}"},
        {"bert", "\"type\":\"WordPiece\",\"prefix\"", "\"type\":\"CTC\",\"prefix\"", "decoder: {\"type\":\"CTC\""},
        {"bert", "\"unk_token\":\"[UNK]\"", "\"unk_token\":\"[unk]\"", "unk_token is \"[unk]\""},
        {"bert", "\"max_input_chars_per_word\":100", "\"max_input_chars_per_word\":-1", "max_input_chars_per_word"},
        {"bert", "\"continuing_subword_prefix\":\"##\"", "\"continuing_subword_prefix\":1",
         "continuing_subword_prefix"},
        {"bert", "\"[MASK]\":4", "\"[MASK]\":3", "two tokens have the id 3"},
        {"bert", "\"[MASK]\":4", "\"[MASK]\":-4", "no id from 0"},
        {"bert", "\"vocab\":{", "\"vacab\":{", "no vocabulary"},
        {"t5", "\"precompiled_charsmap\":\"", "\"precompiled_charsmap\":\"!", "expected base64"},
        {"t5", "\"precompiled_charsmap\":\"", "\"precompiled_charsmap\":\"////", "precompiled_charsmap"},
        {"t5", "\"Regex\":\" {2,}\"", "\"Regex\":\" {3,}\"", "the pattern \" {2,}\""},
        {"t5", "\"type\":\"Strip\"", "\"type\":\"Prepend\"", "normalizer: {\"type\":\"Prepend\""},
        {"t5", "\"prepend_scheme\":\"always\"", "\"prepend_scheme\":\"first\"", "expected no WhitespaceSplit"},
        {"t5", "\"prepend_scheme\":\"always\"", "\"prepend_scheme\":\"last\"", "prepend_scheme always, first or never"},
        {"t5", "\"unk_id\":2", "\"unk_id\":null", "model: unk_id: null"},
        {"t5", "\"unk_id\":2", "\"unk_id\":99999", "model: unk_id"},
        {"t5", "\"unk_id\":2", "\"unk_id\":2,\"alpha\":0.1", "alpha"},
        {"t5", "[\"</s>\",0.0]", "[\"<pad>\",0.0]", "two tokens are \"<pad>\""},
        {"t5", "[\"</s>\",0.0]", "[\"</s>\"]", "token 1 of the vocabulary"},
        {"albert", "\"type\":\"NFKD\"", "\"type\":\"ByteLevel\"", "normalizer: {\"type\":\"ByteLevel\"}"},
        {"albert", "\"type\":\"Metaspace\"", "\"type\":\"Digits\"", "Digits"},
        {"llama", "\"type\":\"NFC\"", "\"type\":\"Nmt\"", "with the prepend_scheme first"},
        {"llama", "\"type\":\"Fuse\"", "\"type\":\"Fuze\"", "decoder: {\"type\":\"Fuze\"}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char path[IO_PATH];
        assert_ok(io_path(path, GOLDEN "%s.json", all[i].file));
        assert_error(open_changed(path, all[i].from, all[i].to), ERR_DATA, "t.json: ", all[i].says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers), cmocka_unit_test(test_about),
        cmocka_unit_test(test_long),    cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_cuts),    cmocka_unit_test_setup_teardown(test_vocab_txt, place_enter, place_leave),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_missing_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
