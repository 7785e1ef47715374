// test/test_words.c: what the tokens of a run are: bytes, what its shards say, or what its settings say; which of them
// fit the model and the shards; and where they were found. The shards are headers, of which no more is looked at.
#include "data/text/about.h"
#include "test/support/config_file.h"
#include "test/support/expect.h"
#include "trainer/session/exam.h"

#include <inttypes.h>

#define GPT2 "test/golden/tokenizer/gpt2.json"
#define OTHER "test/golden/tokenizer/smollm.json"

static const char *in(const fixture *x, const char *name) {
    static char path[4][IO_PATH];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, IO_PATH, "%s/%s", x->dir, name);
    return p;
}

static int32_t size_of(const char *path, char hash[17]) {
    tokenizer *t;
    assert_ok(tokenizer_open(&t, path));
    tokenizer_hash(t, hash);
    int32_t n = tokenizer_about(t).vocab;
    tokenizer_close(t);
    return n;
}

static void put_shards(const fixture *x, const char *prefix, const char *tokenizer, const char *vocabulary) {
    uint8_t header[64] = {0};
    char name[200];
    about a = {.known = true};
    about_writer *w;
    snprintf(a.tokenizer, sizeof a.tokenizer, "%s", tokenizer),
        snprintf(a.vocabulary, sizeof a.vocabulary, "%s", vocabulary);
    snprintf(name, sizeof name, "%s-train-00000.bin", prefix);
    write_bytes(in(x, name), header, sizeof header);
    assert_ok(about_write_open(&w));
    about_write_shard(w, in(x, name), 0);
    assert_ok(about_write(w, in(x, prefix), &a));
    about_write_close(w);
}

static void copy(const fixture *x, const char *from, const char *to) {
    char *text;
    size_t n;
    assert_ok(io_read_file(from, 1 << 24, &text, &n));
    write_bytes(in(x, to), text, n);
    free(text);
}

typedef struct row {
    const char *shards, *tokenizer;  // tokenizer: of [sample]
    int more;                        // the model knows so many tokens more than it has
    bool trains;
    const char *at, *of;  // at "%": in the directory; of: the file whose vocabulary it has, NULL: bytes
    err_t code;
    const char *says, *also;
} row;

static const row cases_of_words[] = {
    // nobody says anything
    {"none", "bytes", 0, true, "", NULL, ERR_OK, NULL, NULL},
    {"none", GPT2, 0, true, GPT2, GPT2, ERR_OK, NULL, NULL},
    {"none", GPT2, 100, false, GPT2, GPT2, ERR_OK, NULL, NULL},
    {"none", GPT2, -1, true, NULL, NULL, ERR_CONFIG, "[sample] tokenizer = " GPT2 " has ids up to ",
     "and the model knows "},
    {"none", GPT2, -1, false, NULL, NULL, ERR_CONFIG, "[sample] tokenizer = " GPT2 " has ids up to ",
     "and the model knows "},
    // the shards have one
    {"there", "bytes", 0, true, GPT2, GPT2, ERR_OK, NULL, NULL},
    {"there", "bytes", 0, false, GPT2, GPT2, ERR_OK, NULL, NULL},
    {"beside", "bytes", 0, true, "%/beside.json", GPT2, ERR_OK, NULL, NULL},
    {"there", "bytes", -1, true, NULL, NULL, ERR_CONFIG, "[sample] tokenizer = " GPT2 " has ids up to ",
     "and the model knows "},
    {"lost", "bytes", 0, true, NULL, NULL, ERR_CONFIG, "[sample] tokenizer = bytes: the shards in ",
     "/nowhere/lost.json"},
    {"lost", "bytes", 0, false, NULL, NULL, ERR_CONFIG, "[sample] tokenizer = bytes: the shards in ",
     "/nowhere/lost.json"},
    // and so have the settings
    {"there", GPT2, 0, true, GPT2, GPT2, ERR_OK, NULL, NULL},
    {"lost", GPT2, 0, true, GPT2, GPT2, ERR_OK, NULL, NULL},
    {"there", OTHER, 0, true, NULL, NULL, ERR_CONFIG, "[sample] tokenizer = " OTHER ": its vocabulary (",
     "made with (" GPT2 ", "},
    {"there", OTHER, 0, false, OTHER, OTHER, ERR_OK, NULL, NULL},
    {"there", OTHER, -1, false, NULL, NULL, ERR_CONFIG, "[sample] tokenizer = " OTHER " has ids up to ", NULL},
    {"letters", "bytes", 0, true, "", NULL, ERR_OK, NULL, NULL},
    {"letters", GPT2, 0, true, NULL, NULL, ERR_CONFIG, "its vocabulary (",
     "made with (bytes, a token is a byte): leave the key out to use theirs"},
    {"letters", GPT2, 0, false, GPT2, GPT2, ERR_OK, NULL, NULL},
    // what can't be read
    {"there", "/nowhere/none.json", 0, true, NULL, NULL, ERR_IO, "/c.ini:2: [sample] tokenizer: /nowhere/none.json",
     NULL},
    {"damaged", "bytes", 0, false, NULL, NULL, ERR_DATA, "/damaged-about.json: ", NULL},
    {"damaged", GPT2, 0, false, NULL, NULL, ERR_DATA, "/damaged-about.json: ", NULL},
};

static void expect_row(fixture *x, const row *r) {
    char text[1200], hash[17], found[17], at[IO_PATH] = "?", want[IO_PATH];
    const char *meant = strcmp(r->tokenizer, OTHER) == 0 ? OTHER : GPT2;
    tokenizer *t = NULL;
    model net = {.vocab = size_of(meant, hash) + r->more};
    snprintf(text, sizeof text, "[sample]\ntokenizer = %s\n[data]\ntrain = %s/%s-train-*.bin\n", r->tokenizer, x->dir,
             r->shards);
    assert_int_equal(load_text(x, text), ERR_OK);
    for (int k = 0; k < (r->trains ? 1 : 2); k++) {  // those who ask where it is don't train
        err_t rc = exam_words(&t, k ? at : NULL, &x->c, &net, r->trains);
        if (rc != r->code) fail_msg("%s %s: %d %s", r->shards, r->tokenizer, (int)rc, rc ? err_last()->text : "");
        if (rc != ERR_OK && (!strstr(err_last()->text, r->says) || (r->also && !strstr(err_last()->text, r->also))))
            fail_msg("%s; expected %s %s", err_last()->text, r->says, r->also ? r->also : "");
        snprintf(want, sizeof want, "has ids up to %" PRId64 ", and the model knows %" PRId64 " tokens",
                 net.vocab - r->more - 1, net.vocab);
        if (rc != ERR_OK && strstr(r->says, "has ids up to")) assert_non_null(strstr(err_last()->text, want));
        if (rc == ERR_OK) assert_int_equal(t != NULL, r->of != NULL);
        if (rc == ERR_OK && t) {
            size_of(r->of, hash), tokenizer_hash(t, found);
            assert_string_equal(found, hash);
        }
        snprintf(want, sizeof want, "%s%s", r->at && *r->at == '%' ? x->dir : "",
                 r->at && *r->at == '%' ? r->at + 1
                 : r->at                ? r->at
                                        : "");
        if (rc == ERR_OK && k) assert_string_equal(at, want);
        tokenizer_close(t), t = NULL;
    }
}

static void words_are_those_of_the_shards_and_fit(void **state) {
    fixture *x = *state;
    char hash[17];
    size_of(GPT2, hash);
    put_shards(x, "there", GPT2, hash), put_shards(x, "beside", "/nowhere/beside.json", hash),
        put_shards(x, "lost", "/nowhere/lost.json", hash);
    put_shards(x, "letters", "bytes", ""), put_shards(x, "damaged", "bytes", "");
    write_text(in(x, "damaged-about.json"), "[");
    copy(x, GPT2, "beside.json");
    for (size_t i = 0; i < COUNT(cases_of_words); i++) expect_row(x, &cases_of_words[i]);
    for (size_t i = 0; i < COUNT(cases_of_words); i++) {  // what fits a run that trains fits one that looks
        row looks = cases_of_words[i];
        looks.trains = false;
        if (looks.code == ERR_OK) expect_row(x, &looks);
    }
}

// A token is a byte where nothing else is said, and the model has no more of them.
static void tokens_that_are_bytes(void **state) {
    fixture *x = *state;
    tokenizer *t;
    assert_ok(tokenizer_open(&t, GPT2));
    static const struct {
        int vocab;
        const char *tokenizer;
        bool words, bytes;
    } cases[] = {{256, "bytes", false, true}, {128, "bytes", false, true}, {257, "bytes", false, false},
                 {0, "bytes", false, false},  {256, "bytes", true, false}, {256, GPT2, false, false}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[200];
        model net = {.vocab = cases[i].vocab};
        snprintf(text, sizeof text, "[sample]\ntokenizer = %s\n", cases[i].tokenizer);
        assert_int_equal(load_text(x, text), ERR_OK);
        assert_int_equal(exam_of_bytes(&x->c, cases[i].words ? t : NULL, &net), cases[i].bytes);
    }
    tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(words_are_those_of_the_shards_and_fit), TEST(tokens_that_are_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
