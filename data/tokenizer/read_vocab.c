// data/tokenizer/read_vocab.c: BERT's vocab.txt, a token a line, whose line is its id. What it does not say is as BERT
// has it, and so it is read as the tokenizer.json that says so.
#include "base/io.h"
#include "data/tokenizer/inside.h"

#include <jansson.h>
#include <string.h>

enum { FILE_MOST = 1 << 28 };

static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

static void trim(char *line, char *end) {
    while (end > line && (end[-1] == '\r' || end[-1] == ' ' || end[-1] == '\t')) end--;
    *end = 0;
}

// Two tokens that are the same would be one without a trace, so they are an error.
static err_t read_lines(const char *path, char *text, json_t *vocab) {
    char *line = text;
    for (json_int_t id = 0; *line; id++) {
        char *end = line + strcspn(line, "\n"), *next = *end ? end + 1 : end;
        trim(line, end);
        if (json_object_get(vocab, line))
            return err_set(ERR_DATA, "%s: line %lld: the token \"%.100s\" stands on line %lld too", path,
                           (long long)id + 1, line, (long long)json_integer_value(json_object_get(vocab, line)) + 1);
        if (json_object_set_new(vocab, line, json_integer(id)) != 0)
            return err_set(ERR_DATA, "%s: line %lld is not UTF-8", path, (long long)id + 1);
        line = next;
    }
    return ERR_OK;
}

static json_t *added_of(const json_t *vocab) {
    json_t *all = json_array();
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (json_object_get(vocab, special[i]))
            json_array_append_new(all, json_pack("{s:O, s:s, s:b, s:b}", "id", json_object_get(vocab, special[i]),
                                                 "content", special[i], "special", 1, "normalized", 0));
    return all;
}

// Takes `vocab`.
static json_t *root_of(json_t *vocab, bool lower) {
    json_t *cls = json_object_get(vocab, "[CLS]"), *sep = json_object_get(vocab, "[SEP]");
    json_t *post = cls && sep ? json_pack("{s:s, s:[s,O], s:[s,O]}", "type", "BertProcessing", "cls", "[CLS]", cls,
                                          "sep", "[SEP]", sep)
                              : json_null();
    return json_pack("{s:o, s:{s:s, s:b}, s:{s:s}, s:o, s:{s:s, s:s, s:b}, s:{s:s, s:s, s:s, s:i, s:o}}",
                     "added_tokens", added_of(vocab), "normalizer", "type", "BertNormalizer", "lowercase", lower,
                     "pre_tokenizer", "type", "BertPreTokenizer", "post_processor", post, "decoder", "type",
                     "WordPiece", "prefix", "##", "cleanup", 1, "model", "type", "WordPiece", "unk_token", "[UNK]",
                     "continuing_subword_prefix", "##", "max_input_chars_per_word", 100, "vocab", vocab);
}

err_t read_bert_vocab(tokenizer *t, const char *path, bool lower) {
    char *text;
    size_t n;
    TRY(io_read_file(path, FILE_MOST, &text, &n));
    json_t *vocab = json_object(), *root;
    err_t rc = strlen(text) == n ? read_lines(path, text, vocab)
                                 : err_set(ERR_DATA, "%s: a zero byte at %zu, expected text", path, strlen(text));
    free(text);
    if (rc != ERR_OK) return json_decref(vocab), rc;
    char *json = (root = root_of(vocab, lower)) ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!json) return err_set(ERR_INTERNAL, "%s: no memory for a tokenizer", path);
    rc = read_json(t, path, json, (int64_t)strlen(json));
    free(json);
    return rc;
}
