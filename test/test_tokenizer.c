// test/test_tokenizer.c: tokenizers. The ids are those that Hugging Face's `tokenizers` and tiktoken give
// (golden/tokenizer, and GPT-2's own files where they are); bytes come back; a text may be cut where tokenizer_cut
// says; what is damaged or not implemented is refused by its name.
#include "base/philox.h"
#include "base/thread.h"
#include "data/tokenizer/split.h"
#include "data/tokenizer/stream.h"
#include "data/tokenizer/unicode.h"
#include "test/support/tokenizer.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

// --- golden ids ------------------------------------------------------------------------------------------------------

static int64_t from_hex(const char *hex, uint8_t *out) {
    unsigned byte;
    int64_t n = 0;
    for (; sscanf(hex, "%2x", &byte) == 1; hex += 2) out[n++] = (uint8_t)byte;
    return n;
}

// A line "FAMILY HOW HEX ID ID ...".
static void check_answer(const pair *p, char *line) {
    static uint8_t text[MOST];
    const int32_t *ids;
    int64_t count, n, i = 0;
    char *at = NULL;
    strtok_r(line, " \n", &at);
    int how = atoi(strtok_r(NULL, " \n", &at));
    n = from_hex(strtok_r(NULL, " \n", &at), text);
    assert_ok(encoder_encode(p->e, text, n, how, &ids, &count));
    for (char *word; (word = strtok_r(NULL, " \n", &at)); i++)
        if (i >= count || ids[i] != atoi(word))
            fail_msg("%s, how %d, \"%.*s\": id %" PRId64 " is %d, expected %s", line, how, (int)n, (char *)text, i,
                     i < count ? ids[i] : -1, word);
    if (i != count)
        fail_msg("%s, how %d, \"%.*s\": %" PRId64 " ids, expected %" PRId64, line, how, (int)n, (char *)text, count, i);
}

// Twice, so that the second time pieces come from the cache.
static void test_answers(void **state) {
    static const char *const families[] = {"gpt2", "llama3", "qwen2",  "smollm", "added",
                                           "bert", "t5",     "albert", "llama"};
    char *text, *copy;
    size_t n;
    int answers = 0;
    (void)state;
    for (int f = 0; f < 5; f++) {
        assert_ok(io_read_file(GOLDEN "answers.txt", LONG, &text, &n));
        size_t length = strlen(families[f]);
        char path[IO_PATH], *at = NULL;
        assert_ok(io_path(path, GOLDEN "%s.json", families[f]));
        pair p = open_pair(path);
        for (int twice = 0; twice < 2; twice++) {
            assert_non_null(copy = strdup(text));
            for (char *line = strtok_r(copy, "\n", &at); line; line = strtok_r(NULL, "\n", &at))
                if (strncmp(line, families[f], length) == 0 && line[length] == ' ') check_answer(&p, line), answers++;
            free(copy);
        }
        close_pair(&p);
        free(text);
    }
    assert_int_equal(answers, 2 * 5 * 2 * 43);
}

static void expect_ids(const pair *p, const char *text, int how, int n, const int32_t *want) {
    const int32_t *ids;
    int64_t count;
    assert_ok(encoder_encode(p->e, text, (int64_t)strlen(text), how, &ids, &count));
    assert_int_equal(count, n);
    assert_memory_equal(ids, want, (size_t)n * sizeof *ids);
}
#define EXPECT_IDS(p, text, how, ...) \
    expect_ids(p, text, how, (int)(sizeof(int32_t[]){__VA_ARGS__} / sizeof(int32_t)), (const int32_t[]){__VA_ARGS__})

static void test_about(void **state) {
    static const struct {
        const char *path;
        tokenizer_info want;
    } all[] = {
        {"bytes", {256, -1, -1, true}},
        {GOLDEN "gpt2.json", {601, 600, -1, true}},
        {GOLDEN "llama3.json", {607, 603, 602, true}},
        {GOLDEN "qwen2.json", {605, 600, -1, false}},
        {GOLDEN "smollm.json", {600, 0, -1, true}},
        {GOLDEN "added.json", {411, 400, -1, false}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tokenizer *t;
        assert_ok(tokenizer_open(&t, all[i].path));
        tokenizer_info a = tokenizer_about(t), b = all[i].want;
        if (a.vocab != b.vocab || a.end_of_text != b.end_of_text || a.bos != b.bos || a.exact != b.exact)
            fail_msg("%s: vocab %d, end of text %d, bos %d, exact %d", all[i].path, a.vocab, a.end_of_text, a.bos,
                     a.exact);
        if (a.end_of_text >= 0)
            assert_int_equal(tokenizer_special(t, i == 2 ? "<|end_of_text|>" : "<|endoftext|>"), a.end_of_text);
        assert_int_equal(tokenizer_special(t, "the"), -1);
        tokenizer_close(t);
    }
}

static void test_bytes(void **state) {
    (void)state;
    pair p = open_pair("bytes");
    EXPECT_IDS(&p, "a\xff\n", ENCODE_TEXT, 97, 255, 10);
    EXPECT_IDS(&p, "<|endoftext|>" + 11, ENCODE_SPECIAL | ENCODE_TEMPLATE, '|', '>');
    assert_int_equal(tokenizer_cut(p.t, "abc", 3, ENCODE_TEXT), 3);
    close_pair(&p);
}

// --- GPT-2's own files -----------------------------------------------------------------------------------------------

static bool own_files(char path[IO_PATH]) {
    const char *data = getenv("LOCKSTEP_TEST_DATA");
    struct stat st;
    return data && io_path(path, "%s/gpt2-bpe", data) == ERR_OK && stat(path, &st) == 0;
}

static void test_gpt2_files(void **state) {
    char path[IO_PATH];
    (void)state;
    if (!own_files(path)) {
        print_message("skipped: LOCKSTEP_TEST_DATA has no gpt2-bpe\n");
        skip();
    }
    pair p = open_pair(path);
    tokenizer_info about = tokenizer_about(p.t);
    assert_int_equal(about.vocab, 50257);
    assert_int_equal(about.end_of_text, 50256);
    assert_true(about.exact);
    EXPECT_IDS(&p, "Hello, world! It's 2024.", ENCODE_TEXT, 15496, 11, 995, 0, 632, 338, 48609, 13);
    EXPECT_IDS(&p, "  naïve\n\n中文<|endoftext|>", ENCODE_SPECIAL, 220, 41492, 198, 198, 40792, 23877, 229, 50256);
    EXPECT_IDS(&p, "<|endoftext|>", ENCODE_TEXT, 27, 91, 437, 1659, 5239, 91, 29);
    close_pair(&p);
}

// --- bytes come back -------------------------------------------------------------------------------------------------

// Text of words, spaces, digits, marks, whole characters and stray bytes.
static int64_t make_text(uint8_t *out, int64_t room, uint32_t seed) {
    static const char *const parts[] = {" ",
                                        "the",
                                        " of",
                                        "\n",
                                        "'s",
                                        "'LL",
                                        "12345",
                                        "  ",
                                        "\r\n",
                                        "中文",
                                        "é",
                                        "e\xcc\x81",
                                        "\xcc\xa3",
                                        "한",
                                        "\xff",
                                        "\xe4\xb8",
                                        "\xf0\x9f\x98\x80",
                                        "!?",
                                        "x",
                                        "\t",
                                        "\xc0\x80",
                                        "<|endoftext|>",
                                        "<r>",
                                        "solo",
                                        "\xe3\x80\x80"};
    int64_t n = 0;
    for (uint32_t i = 0;; i++) {
        uint32_t word[4];
        philox4x32(word, seed, i, SITE_FAULT, 0, 0);
        const char *part = parts[word[0] % (sizeof parts / sizeof *parts)];
        for (uint32_t k = 0; k < (word[1] % 16 ? 1 : 1 + word[2] % 60); k++) {
            if (n + 16 > room) return n;
            memcpy(out + n, part, strlen(part));
            n += (int64_t)strlen(part);
        }
    }
}

static void check_round(const pair *p, const uint8_t *text, int64_t n) {
    const int32_t *ids;
    const uint8_t *piece;
    int64_t count, at = 0, bytes;
    assert_ok(encoder_encode(p->e, text, n, ENCODE_TEXT, &ids, &count));
    for (int64_t i = 0; i < count; i++) {
        assert_ok(tokenizer_piece(p->t, ids[i], &piece, &bytes));
        assert_true(at + bytes <= n);
        assert_memory_equal(piece, text + at, (size_t)bytes);
        at += bytes;
    }
    assert_int_equal(at, n);
}

static void test_round_trip(void **state) {
    static const char *const exact[] = {"bytes", GOLDEN "gpt2.json", GOLDEN "llama3.json", GOLDEN "smollm.json"};
    static uint8_t text[MOST];
    (void)state;
    for (int k = 0; k < 4; k++) {
        pair p = open_pair(exact[k]);
        for (uint32_t seed = 0; seed < 50; seed++) check_round(&p, text, make_text(text, MOST - 40 * seed, seed));
        for (int b = 0; b < 256; b++) {
            memset(text, b, 300);
            check_round(&p, text, 1 + b);
        }
        close_pair(&p);
    }
}

// An invalid byte is a character of its own, neither letter, number nor white space: pieces are cut as if a "!" stood
// there.
static void test_invalid(void **state) {
    static const char *const bad[] = {"\xff",     "\x80",         "\xc0\xaf",    "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "\xe4\xb8", "\xf0\x9f\x98", "\xe0\x80\xaf"};
    uint8_t *table = unicode_table();
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (split_pattern pattern = SPLIT_GPT2; pattern <= SPLIT_QWEN2; pattern++) {
            char text[32], marks[32];
            int64_t n = snprintf(text, sizeof text, "ab%s12%s  %sx \n%s", bad[i], bad[i], bad[i], bad[i]);
            snprintf(marks, sizeof marks, "%s", text);
            for (int64_t k = 0; k < n; k++)
                if (marks[k] & 0x80) marks[k] = '!';
            for (int64_t at = 0, piece; at < n; at += piece) {
                piece = split_piece(table, pattern, (uint8_t *)text + at, n - at);
                assert_true(piece >= 1 && piece <= n - at);
                assert_int_equal(piece, split_piece(table, pattern, (uint8_t *)marks + at, n - at));
            }
        }
    free(table);
}

// --- threads ---------------------------------------------------------------------------------------------------------

enum { THREADS = 4 };

static void *encode_alone(void *arg) {
    pair *p = arg;
    uint8_t text[MOST];
    const int32_t *ids;
    int64_t count, sum = 0, n = make_text(text, MOST, 77);
    for (int round = 0; round < 50; round++) {
        if (encoder_encode(p->e, text, n, ENCODE_TEXT, &ids, &count) != ERR_OK) return NULL;
        for (int64_t i = 0; i < count; i++) sum = 31 * sum % 1000003 + ids[i];
    }
    return (void *)(intptr_t)(sum + 1);
}

// One tokenizer, an encoder in each thread.
static void test_threads(void **state) {
    pthread_t thread[THREADS];
    pair p[THREADS];
    void *sum[THREADS];
    (void)state;
    assert_ok(tokenizer_open(&p[0].t, GOLDEN "qwen2.json"));
    for (int i = 0; i < THREADS; i++) {
        p[i].t = p[0].t;
        assert_ok(encoder_open(&p[i].e, p[i].t));
    }
    for (int i = 0; i < THREADS; i++) assert_ok(thread_start(&thread[i], "encode", encode_alone, &p[i]));
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], &sum[i]);
    for (int i = 0; i < THREADS; i++) {
        assert_non_null(sum[i]);
        assert_ptr_equal(sum[i], sum[0]);
        encoder_close(p[i].e);
    }
    tokenizer_close(p[0].t);
}

// --- long pieces -----------------------------------------------------------------------------------------------------

// A megabyte of one letter, and of a few, is one piece: quadratic time would be minutes.
static void test_long(void **state) {
    static uint8_t text[LONG];
    (void)state;
    pair p = open_pair(GOLDEN "gpt2.json");
    clock_t begin = clock();
    for (int kinds = 1; kinds < 4; kinds++) {
        for (int64_t i = 0; i < LONG; i++) text[i] = (uint8_t) "aht"[i * i % 7 % kinds];
        check_round(&p, text, LONG);
    }
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 60);
    for (int64_t i = 0; i < LONG; i += 2) memcpy(text + i, "\xcc\xa3", 2);  // marks: all of one class
    memcpy(text + 1000, "\xcc\x81", 2);
    close_pair(&p);
    p = open_pair(GOLDEN "qwen2.json");
    const int32_t *ids;
    int64_t count;
    assert_ok(encoder_encode(p.e, text, LONG, ENCODE_TEXT, &ids, &count));
    assert_true(count > 0 && (double)(clock() - begin) / CLOCKS_PER_SEC < 120);
    close_pair(&p);
}

// Whether a piece is short, long, or in the cache, it has the same ids: those of the heap alone are found by a piece
// that is a byte longer.
static void test_lengths(void **state) {
    char text[256];
    (void)state;
    pair p = open_pair(GOLDEN "gpt2.json");
    for (int n = 1; n < 200; n++) {
        const int32_t *ids;
        int64_t count, longer;
        int32_t first[256];
        for (int i = 0; i < n; i++) text[i] = "thehthaofndist"[i % 14];
        assert_ok(encoder_encode(p.e, text, n, ENCODE_TEXT, &ids, &count));
        memcpy(first, ids, (size_t)count * sizeof *ids);
        memset(text + n, 'Q', (size_t)(200 - n) + 20);  // merges with nothing
        assert_ok(encoder_encode(p.e, text, 220, ENCODE_TEXT, &ids, &longer));
        assert_int_equal(longer, count + 220 - n);
        assert_memory_equal(first, ids, (size_t)count * sizeof *ids);
    }
    close_pair(&p);
}

// --- cuts ------------------------------------------------------------------------------------------------------------

// The ids of a text in parts are those of the whole.
static void check_cuts(const pair *p, const uint8_t *text, int64_t n, int64_t window, int how, int64_t *cuts) {
    static int32_t parts[MOST];
    const int32_t *ids;
    int64_t count, kept = 0;
    for (int64_t at = 0; at < n;) {
        int64_t part = n - at, cut = at + window < n ? tokenizer_cut(p->t, text + at, window, how) : 0;
        assert_true(cut >= 0 && cut <= window);
        if (cut > 0) part = cut, ++*cuts;
        assert_ok(encoder_encode(p->e, text + at, part, how, &ids, &count));
        memcpy(parts + kept, ids, (size_t)count * sizeof *ids);
        kept += count;
        at += part;
    }
    assert_ok(encoder_encode(p->e, text, n, how, &ids, &count));
    if (kept != count || memcmp(ids, parts, (size_t)count * sizeof *ids) != 0)
        fail_msg("window %d, how %d: the ids of the parts differ", (int)window, how);
}

static void test_cuts(void **state) {
    static const char *const all[] = {GOLDEN "gpt2.json",   GOLDEN "llama3.json", GOLDEN "qwen2.json",
                                      GOLDEN "smollm.json", GOLDEN "added.json",  GOLDEN "bert.json",
                                      GOLDEN "albert.json"};
    static uint8_t text[MOST];
    int64_t cuts = 0;
    (void)state;
    for (int k = 0; k < 7; k++) {
        pair p = open_pair(all[k]);
        for (uint32_t seed = 0; seed < 60; seed++) {
            int64_t n = make_text(text, MOST, 1000 + seed);
            for (int how = 0; how < 2; how++) check_cuts(&p, text, n, 40 + 9 * (int64_t)seed, how, &cuts);
        }
        close_pair(&p);
    }
    assert_true(cuts > 3000);
}

// The texts of a tokenizer's added tokens. The caller drops *json.
static int added_tokens(const char *path, json_t **json, const char *texts[16]) {
    json_error_t why;
    int n = 0;
    assert_non_null(*json = json_load_file(path, 0, &why));
    const json_t *list = json_object_get(*json, "added_tokens");
    for (; n < (int)json_array_size(list) && n < 16; n++)
        texts[n] = json_string_value(json_object_get(json_array_get(list, (size_t)n), "content"));
    return n;
}

// Added tokens and parts of them, side by side, with and without words and spaces between them.
static int64_t make_added(uint8_t *out, int64_t room, uint32_t seed, const char *const *texts, int count) {
    static const char *const between[] = {"", "", " ", "the", " of", "x", "\n", "é"};
    int64_t n = 0;
    for (uint32_t i = 0; n + 64 < room; i++) {
        uint32_t word[4];
        philox4x32(word, seed, i, SITE_FAULT, 1, 0);
        const char *text = texts[word[0] % (uint32_t)count];
        size_t length = strlen(text), first = word[1] % 3 ? 0 : word[2] % length,
               kept = word[1] % 5 ? length - first : word[3] % (length - first + 1);
        memcpy(out + n, text + first, kept);
        n += (int64_t)kept;
        n += sprintf((char *)out + n, "%s", between[word[2] >> 8 & 7]);
    }
    return n;
}

// Each place where a beginning of the text may be cut, whatever its length: the ids of both sides are those of the
// whole.
static int check_each_cut(const pair *p, const uint8_t *text, int64_t n, int how) {
    static int32_t whole[MOST], parts[MOST];
    int64_t count, first, second, before = 0;
    const int32_t *ids;
    int cuts = 0;
    assert_ok(encoder_encode(p->e, text, n, how, &ids, &count));
    memcpy(whole, ids, (size_t)count * sizeof *ids);
    for (int64_t window = 1; window <= n; window++) {
        int64_t cut = tokenizer_cut(p->t, text, window, how);
        if (cut == before) continue;
        assert_ok(encoder_encode(p->e, text, cut, how, &ids, &first));
        memcpy(parts, ids, (size_t)first * sizeof *ids);
        assert_ok(encoder_encode(p->e, text + cut, n - cut, how, &ids, &second));
        memcpy(parts + first, ids, (size_t)second * sizeof *ids);
        if (first + second != count || memcmp(parts, whole, (size_t)count * sizeof *ids) != 0)
            fail_msg("how %d: \"%.*s\" cut before \"%.*s\" has other ids", how, (int)cut, (const char *)text,
                     (int)(n - cut), (const char *)text + cut);
        before = cut, cuts++;
    }
    return cuts;
}

static void cuts_at_added_tokens(const char *path) {
    static uint8_t text[300];
    for (int how = ENCODE_TEXT; how <= ENCODE_SPECIAL; how++) {
        pair p = open_pair(path);
        const char *texts[16];
        json_t *json;
        int count = added_tokens(path, &json, texts), cuts = 0;
        for (uint32_t seed = 0; seed < 40; seed++)
            cuts += check_each_cut(&p, text, make_added(text, sizeof text, seed, texts, count), how);
        if (cuts < 20) fail_msg("%s, how %d: %d cuts", path, how, cuts);
        json_decref(json);
        close_pair(&p);
    }
}

// The same tokenizer with letters for the signs in its added tokens: where a word may end, one of them may.
static void write_with_letters(place *p, const char *from, const char *to) {
    json_error_t why;
    json_t *all = json_load_file(from, 0, &why), *list = json_object_get(all, "added_tokens");
    assert_non_null(all);
    for (size_t i = 0; i < json_array_size(list); i++) {
        char text[64];
        json_t *token = json_array_get(list, i);
        snprintf(text, sizeof text, "%s", json_string_value(json_object_get(token, "content")));
        for (char *c = text; *c; c++)
            if (strchr("<|>", *c)) *c = 'Q';
        json_object_set_new(token, "content", json_string(text));
    }
    assert_int_equal(json_dump_file(all, at(p, to), 0), 0);
    json_decref(all);
}

static void test_cuts_at_added_tokens(void **state) {
    static const char *const all[] = {GOLDEN "gpt2.json", GOLDEN "llama3.json", GOLDEN "qwen2.json",
                                      GOLDEN "smollm.json", GOLDEN "added.json"};
    place *p = *state;
    for (int k = 0; k < 5; k++) cuts_at_added_tokens(all[k]);
    write_with_letters(p, GOLDEN "added.json", "letters.json");
    cuts_at_added_tokens(at(p, "letters.json"));
}

// More than a buffer's worth through the streams, and back.
static void test_stream(void **state) {
    place *p = *state;
    static uint8_t text[3 * LONG], again[3 * LONG];
    char ids_path[IO_PATH];
    pair x = open_pair(GOLDEN "llama3.json");
    int64_t n = make_text(text, sizeof text, 7);
    const int32_t *ids;
    int64_t count, lines = 0;
    FILE *in = fopen(at(p, "text"), "w+b"), *out = fopen(at(p, "ids"), "w+b"), *back = fopen(at(p, "back"), "w+b");
    assert_true(in && out && back);
    snprintf(ids_path, sizeof ids_path, "%s", at(p, "ids"));
    assert_int_equal(fwrite(text, 1, (size_t)n, in), n);
    rewind(in);
    assert_ok(tokenize_stream(x.t, ENCODE_BEGIN, in, out));
    rewind(out);
    assert_ok(encoder_encode(x.e, text, n, ENCODE_BEGIN, &ids, &count));
    for (int id; fscanf(out, "%d", &id) == 1; lines++)
        if (lines >= count || ids[lines] != id) fail_msg("id %d is %d", (int)lines, id);
    assert_int_equal(lines, count);
    rewind(out);
    assert_ok(detokenize_stream(x.t, out, back));
    rewind(back);
    assert_int_equal(fread(again, 1, sizeof again, back),
                     n + 17 > (int64_t)sizeof again ? sizeof again : (size_t)n + 17);
    assert_memory_equal(again, "<|begin_of_text|>", 17);
    assert_memory_equal(again + 17, text, (size_t)n - 17);
    fclose(in), fclose(out), fclose(back);
    close_pair(&x);
}

static void test_bad_ids(void **state) {
    place *p = *state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"97 98\n607", "word 3: token 607"},
        {"97 x", "word 2 is not"},
        {"9a", "word 1 is not"},
        {"-1", "word 1 is not"},
        {"99999999999", "word 1 is not"},
        {"4294967297", "word 1: token"},
    };
    pair x = open_pair(GOLDEN "llama3.json");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        FILE *f = fopen(at(p, "ids"), "w+b"), *out = fopen(at(p, "out"), "wb");
        fputs(bad[i].text, f);
        rewind(f);
        assert_error(detokenize_stream(x.t, f, out), ERR_DATA, bad[i].says);
        fclose(f), fclose(out);
    }
    close_pair(&x);
}

// --- what is refused -------------------------------------------------------------------------------------------------

// A file that others saved with them set has the golden file's tokens, all of them.
static void lengths_of_batches_change_no_token(void **state) {
    static const char *const families[] = {"gpt2", "llama3", "qwen2", "smollm"};
    static const char *const set[][2] = {
        {"\"truncation\":null",
         "\"truncation\":{\"direction\":\"Right\",\"max_length\":4,\"strategy\":\"LongestFirst\",\"stride\":0}"},
        {"\"padding\":null",
         "\"padding\":{\"strategy\":{\"Fixed\":9},\"direction\":\"Left\",\"pad_to_multiple_of\":null,\"pad_id\":0,\"pad_type_id\":0,\"pad_token\":\"!\"}"},
    };
    static const char text[] = "As long as it is: three words, 12345 digits, and an end.";
    (void)state;
    for (int f = 0; f < 4; f++) {
        char path[IO_PATH];
        const int32_t *ids, *want;
        int64_t count, n;
        assert_ok(io_path(path, GOLDEN "%s.json", families[f]));
        pair golden = open_pair(path);
        assert_ok(encoder_encode(golden.e, text, sizeof text - 1, ENCODE_TEMPLATE, &want, &n));
        for (int i = 0; i < 2; i++) {
            char *changed = change(path, set[i][0], set[i][1]);
            pair p;
            assert_ok(tokenizer_parse(&p.t, "t.json", changed, (int64_t)strlen(changed)));
            assert_ok(encoder_open(&p.e, p.t));
            assert_ok(encoder_encode(p.e, text, sizeof text - 1, ENCODE_TEMPLATE, &ids, &count));
            assert_int_equal(count, n);
            assert_memory_equal(ids, want, (size_t)n * sizeof *ids);
            close_pair(&p);
            free(changed);
        }
        close_pair(&golden);
    }
}

static void test_refused(void **state) {
    static const struct {
        const char *file, *from, *to, *says;
    } all[] = {
        {"gpt2", "\"dropout\":null", "\"dropout\":0.1", "model: dropout: 0.1 is not implemented"},
        {"gpt2", "\"type\":\"BPE\"", "\"type\":\"WordLevel\"",
         "\"WordLevel\" is not implemented: expected BPE, WordPiece or Unigram"},
        {"gpt2", "\"type\":\"BPE\"", "\"type\":\"Unigram\"", "pre_tokenizer: {\"type\":\"ByteLevel\""},
        {"gpt2", "\"byte_fallback\":false", "\"byte_fallback\":true", "byte_fallback"},
        {"gpt2", "\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", "end_of_word_suffix: \"</w>\""},
        {"gpt2", "\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"##\"",
         "continuing_subword_prefix: \"##\""},
        {"gpt2", "\"truncation\":null", "\"truncation\":9",
         "truncation: 9 is not implemented: expected null or an object"},
        {"gpt2", "\"padding\":null", "\"padding\":\"max_length\"", "padding"},
        {"gpt2", "\"normalizer\":null", "\"normalizer\":{\"type\":\"Lowercase\"}",
         "normalizer: {\"type\":\"Lowercase\"}"},
        {"gpt2", "\"normalizer\":null",
         "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"NFKC\"}]}", "NFKC"},
        {"gpt2", "\"add_prefix_space\":false", "\"add_prefix_space\":true", "add_prefix_space"},
        {"gpt2", "\"pre_tokenizer\":{\"type\":\"ByteLevel\"", "\"pre_tokenizer\":{\"type\":\"Whitespace\"",
         "pre_tokenizer: {\"type\":\"Whitespace\""},
        {"gpt2", "\"use_regex\":true", "\"use_regex\":false", "expected a pattern"},
        {"llama3", "{1,3}", "{1,4}", "the patterns that this build knows are GPT-2's, Llama 3's, Qwen 2's"},
        {"llama3", "\"behavior\":\"Isolated\"", "\"behavior\":\"Removed\"", "expected the behavior Isolated"},
        {"llama3", "\"invert\":false", "\"invert\":true", "invert"},
        {"llama3", "\"use_regex\":false", "\"use_regex\":true", "two patterns"},
        {"smollm", "\"type\":\"Digits\"", "\"type\":\"Punctuation\"", "Punctuation"},
        {"llama3", "\"Sequence\":{\"id\":\"A\"", "\"Other\":{\"id\":\"A\"", "post_processor"},
        {"llama3", "\"ids\":[602]", "\"ids\":[60200]", "the template has the id 60200"},
        {"llama3", "\"ids\":[602]", "\"ids\":[-1]", "post_processor"},
        {"gpt2", "\"post_processor\":{\"type\":\"ByteLevel\"", "\"post_processor\":{\"type\":\"BertProcessing\"",
         "BertProcessing"},
        {"gpt2", "\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"Metaspace\"",
         "decoder: {\"type\":\"Metaspace\""},
        {"gpt2", "\"!\":0", "\"!!\":0", "is the byte 0x21"},
        {"gpt2", "\"!\":0", "\"!\":1", "two tokens have the id 1"},
        {"gpt2", "\"!\":0", "\"!\":-1", "no id from 0"},
        {"gpt2", "\"!\":0", "\"!\":16777216", "no id from 0 to 16777215"},
        {"gpt2", "\"!\":0", "\"!\":\"0\"", "no id from 0"},
        {"gpt2", "\"merges\":[[\"", "\"merges\":[[\"~~~", "merge 0, \"~~~"},
        {"gpt2", "\"merges\":[", "\"merges\":[7,", "merge 0 is neither"},
        {"gpt2", "\"merges\":[", "\"merges\":[\"a b c\",", "expected two tokens with a space"},
        {"gpt2", "\"merges\":[", "\"merges\":[\"! !\",", "\"!!\" is not in the vocabulary"},
        {"gpt2", "\"id\":600", "\"id\":5", "the vocabulary has another"},
        {"gpt2", "\"id\":600", "\"id\":-5", "added_tokens"},
        {"gpt2", "\"vocab\":{", "\"vocab\":[{", "line 1"},
        {"gpt2", "\"model\":{", "\"madel\":{", "no \"model\""},
        {"gpt2", "\"vocab\":{", "\"vacab\":{", "no vocabulary"},
        {"gpt2", "\"merges\":", "\"marges\":", "no merges"},
        {"gpt2", "{", "[", "expected JSON"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char file[IO_PATH];
        assert_ok(io_path(file, GOLDEN "%s.json", all[i].file));
        assert_error(open_changed(file, all[i].from, all[i].to), ERR_DATA, "t.json: ", all[i].says);
    }
}

// What is written otherwise and means the same.
static void test_accepted(void **state) {
    static const char *const all[][2] = {
        {"\"dropout\":null", "\"dropout\":0.0"},
        {"\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"\""},
        {"\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"\""},
        {"\"type\":\"BPE\",", ""},
        {",\"use_regex\":true", ""},
        {"\"unk_token\":null", "\"unk_token\":\"<|endoftext|>\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_ok(open_changed(GOLDEN "gpt2.json", all[i][0], all[i][1]));
}

// --- files -----------------------------------------------------------------------------------------------------------

// GPT-2's older pair, made here: bytes and three merges.
static void put_pair(place *p, const char *vocab, const char *merges) {
    char text[8192], *to = text + sprintf(text, "{\"<|endoftext|>\":259,\"ab\":256,\"abc\":257,\"\\u0120a\":258");
    int spare = 0x100;
    for (int b = 0; b < 256; b++) {
        bool itself = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        to += sprintf(to, ",\"\\u%04x\":%d", itself ? b : spare++, b);
    }
    strcpy(to, "}");
    put_file(p, vocab, text);
    put_file(p, merges, "#version: 0.2\na b\r\nab c\n\n\xc4\xa0 a\n");
}

static void test_folders(void **state) {
    place *p = *state;
    tokenizer *t;
    assert_error(tokenizer_open(&t, at(p, "none")), ERR_IO, "none: ");
    assert_error(tokenizer_open(&t, p->dir), ERR_DATA, "no tokenizer in it", "tokenizer.json");
    put_pair(p, "vocab.json", "merges.txt");
    pair x = open_pair(p->dir);
    EXPECT_IDS(&x, "abcab a<|endoftext|>", ENCODE_SPECIAL, 257, 256, 258, 259);
    EXPECT_IDS(&x, "<|e", ENCODE_SPECIAL, '<', '|', 'e');
    assert_int_equal(tokenizer_about(x.t).end_of_text, 259);
    close_pair(&x);
    put_file(p, "tokenizer_config.json", "{\"tokenizer_class\": \"Qwen2Tokenizer\"}");
    assert_error(tokenizer_open(&t, p->dir), ERR_DATA, "tokenizer_class", "no tokenizer.json");
    put_file(p, "tokenizer_config.json", "{\"tokenizer_class\": \"GPT2TokenizerFast\"}");
    assert_ok(tokenizer_open(&t, p->dir));
    tokenizer_close(t);
    put_file(p, "merges.txt", "#version: 0.2\na b\nb z\n");
    assert_error(tokenizer_open(&t, p->dir), ERR_DATA, "merges.txt: merge 1, \"b z\": \"bz\" is not in the vocabulary");
    char *text;
    size_t n;
    assert_ok(io_read_file(GOLDEN "llama3.json", LONG, &text, &n));
    put_file(p, "tokenizer.json", text);  // comes before the pair
    free(text);
    assert_ok(tokenizer_open(&t, p->dir));
    assert_int_equal(tokenizer_about(t).bos, 602);
    tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_about),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_gpt2_files),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test_setup_teardown(test_cuts_at_added_tokens, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_stream, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_bad_ids, place_enter, place_leave),
        cmocka_unit_test(lengths_of_batches_change_no_token),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_accepted),
        cmocka_unit_test_setup_teardown(test_folders, place_enter, place_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
