// test/test_tokenizer_train.c: tokenizers that are trained on a text: the merges are those of `tokenizers`;
// training ends where nothing more can be merged.
#include "base/philox.h"
#include "data/tokenizer/stream.h"
#include "data/tokenizer/train.h"
#include "test/support/tokenizer.h"

#include <inttypes.h>
#include <jansson.h>
#include <sys/stat.h>

static tokenizer *train(place *p, const char *kind, int64_t vocab, const char *text_path, json_t **root) {
    json_error_t why;
    tokenizer *t;
    FILE *in = fopen(text_path, "rb"), *out = fopen(at(p, "tokenizer.json"), "wb");
    assert_true(in && out);
    assert_ok(train_stream(kind, vocab, in, out));
    fclose(in), fclose(out);
    assert_non_null(*root = json_load_file(at(p, "tokenizer.json"), 0, &why));
    assert_ok(tokenizer_open(&t, p->dir));
    return t;
}

// Each merge is BpeTrainer's. The ids are special tokens, bytes and merges, and nothing else.
static void test_training(void **state) {
    static const char *const kind[] = {"gpt2", "llama3", "qwen2", "smollm"};
    place *p = *state;
    char *text, *at_line = NULL;
    size_t n;
    assert_ok(io_read_file(GOLDEN "trained.txt", LONG, &text, &n));
    char *line = strtok_r(text, "\n", &at_line);
    for (int k = 0; k < 4; k++) {
        json_t *root, *pair;
        size_t i;
        tokenizer *t = train(p, kind[k], 450, GOLDEN "train.txt", &root);
        const json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
        json_array_foreach(merges, i, pair) {
            char got[256];
            snprintf(got, sizeof got, "%s %s %s", kind[k], json_string_value(json_array_get(pair, 0)),
                     json_string_value(json_array_get(pair, 1)));
            assert_non_null(line);
            if (strcmp(got, line) != 0) fail_msg("merge %d is \"%s\", expected \"%s\"", (int)i, got, line);
            line = strtok_r(NULL, "\n", &at_line);
        }
        tokenizer_info about = tokenizer_about(t);
        assert_int_equal(about.vocab, 450);
        assert_int_equal(about.end_of_text, k == 1);
        assert_int_equal(about.bos, k == 1 ? 0 : -1);
        assert_int_equal(about.exact, k != 2);
        const json_t *post = json_object_get(root, "post_processor");
        assert_int_equal(json_array_size(json_object_get(post, "single")), k == 1 ? 2 : 0);
        assert_int_equal(json_array_size(json_object_get(post, "pair")), k == 1 ? 4 : 0);
        assert_int_equal(json_array_size(merges), 450 - 256 - 1 - (k == 1));
        json_decref(root);
        tokenizer_close(t);
    }
    assert_null(line);
    free(text);
}

// When nothing is left to merge, there are fewer tokens. An empty text gives those of bytes.
static void test_training_ends(void **state) {
    place *p = *state;
    bpe_trainer *b;
    json_t *root;
    put_file(p, "text", "abab abab\n");
    tokenizer *t = train(p, "gpt2", 1000, at(p, "text"), &root);
    assert_int_equal(tokenizer_about(t).vocab, 257 + 3);  // ab abab " abab"
    json_decref(root);
    tokenizer_close(t);
    put_file(p, "text", "");
    t = train(p, "smollm", 257, at(p, "text"), &root);
    assert_int_equal(tokenizer_about(t).vocab, 257);
    json_decref(root);
    tokenizer_close(t);
    assert_error(bpe_trainer_open(&b, "gpt2", 256), ERR_USAGE, "256 tokens: expected 257 to");
    assert_error(bpe_trainer_open(&b, "llama3", 257), ERR_USAGE, "expected 258");
    assert_error(bpe_trainer_open(&b, "gpt2", (1 << 24) + 1), ERR_USAGE, "16777217 tokens");
    assert_error(bpe_trainer_open(&b, "llama2", 1000), ERR_USAGE, "llama2: no such kind",
                 "gpt2, llama3, qwen2 or smollm");
    assert_null(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_training, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_training_ends, place_enter, place_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
