// data/tokenizer/open.c: which files a name stands for, and what is in an open tokenizer.
#include "base/io.h"
#include "data/tokenizer/inside.h"

#include <jansson.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MOST = 1 << 30 };

static err_t open_json(tokenizer *t, const char *path) {
    char *text;
    size_t n;
    TRY(io_read_file(path, FILE_MOST, &text, &n));
    err_t rc = read_json(t, path, text, (int64_t)n);
    free(text);
    return rc;
}

static bool file_in(char path[IO_PATH], const char *dir, const char *name) {
    return io_path(path, "%s/%s", dir, name) == ERR_OK && access(path, R_OK) == 0;
}

// vocab.json and merges.txt are not GPT-2's alone, and do not say how a text is split. What lies beside them may.
static err_t check_class(const char *dir) {
    char path[IO_PATH], *text, *at;
    size_t n;
    if (!file_in(path, dir, "tokenizer_config.json")) return ERR_OK;
    TRY(io_read_file(path, FILE_MOST, &text, &n));
    bool other = (at = strstr(text, "\"tokenizer_class\"")) && !strstr(at, "\"GPT2Tokenizer");
    free(text);
    if (!other) return ERR_OK;
    return err_set(
        ERR_DATA,
        "%s: the tokenizer_class is not GPT2Tokenizer, and %s has no tokenizer.json that says how texts are split",
        path, dir);
}

// What a tokenizer_config.json in `dir` says of BERT's vocab.txt.
static err_t read_case(tokenizer_files *f, const char *dir) {
    static const char *const names[] = {"strip_accents", "tokenize_chinese_chars"};
    char path[IO_PATH];
    json_error_t why;
    f->lower = true;
    if (!file_in(path, dir, "tokenizer_config.json")) return ERR_OK;
    json_t *root = json_load_file(path, 0, &why);
    if (!root) return err_set(ERR_DATA, "%s: line %d: %s, expected JSON", path, why.line, why.text);
    const char *class = json_string_value(json_object_get(root, "tokenizer_class"));
    err_t rc = ERR_OK;
    if (class && strncmp(class, "Bert", 4) != 0)
        rc = err_set(ERR_DATA, "%s: the tokenizer_class is %.60s; a vocab.txt alone is read as BertTokenizer's", path,
                     class);
    for (int i = 0; i < 2; i++) {
        const json_t *value = json_object_get(root, names[i]);
        if (rc == ERR_OK && value && !json_is_null(value) && !(i && json_is_true(value)))
            rc = err_set(ERR_DATA, "%s: %s is not implemented for a vocab.txt: a tokenizer.json can say it", path,
                         names[i]);
    }
    if (json_is_false(json_object_get(root, "do_lower_case"))) f->lower = false;
    json_decref(root);
    return rc;
}

// A file NAME.txt, and what lies beside it.
static err_t find_words(tokenizer_files *f, const char *path) {
    char dir[IO_PATH];
    TRY(io_path(f->words, "%s", path));
    TRY(io_path(dir, "%s", path));
    char *slash = strrchr(dir, '/');
    if (slash) slash[slash == dir] = 0;
    return read_case(f, slash ? dir : ".");
}

static bool ends_in_txt(const char *path) {
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".txt") == 0;
}

static err_t find_in_folder(tokenizer_files *f, const char *dir) {
    if (file_in(f->json, dir, "tokenizer.json")) return ERR_OK;
    f->json[0] = 0;
    bool both = (file_in(f->vocab, dir, "encoder.json") || file_in(f->vocab, dir, "vocab.json")) &&
                (file_in(f->merges, dir, "vocab.bpe") || file_in(f->merges, dir, "merges.txt"));
    if (!both && file_in(f->words, dir, "vocab.txt")) return f->vocab[0] = f->merges[0] = 0, read_case(f, dir);
    f->words[0] = 0;
    if (!both)
        return err_set(
            ERR_DATA,
            "%s: no tokenizer in it; expected tokenizer.json, or encoder.json or vocab.json and vocab.bpe or merges.txt,"
            " or vocab.txt",
            dir);
    return check_class(dir);
}

err_t tokenizer_find(tokenizer_files *f, const char *path) {
    struct stat st;
    *f = (tokenizer_files){0};
    if (strcmp(path, "bytes") == 0) return ERR_OK;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return find_in_folder(f, path);
    return ends_in_txt(path) ? find_words(f, path) : io_path(f->json, "%s", path);
}

static err_t read_path(tokenizer *t, const char *path) {
    tokenizer_files f;
    TRY(tokenizer_find(&f, path));
    if (f.json[0]) return open_json(t, f.json);
    if (f.words[0]) return read_bert_vocab(t, f.words, f.lower);
    return f.vocab[0] ? read_gpt2(t, f.vocab, f.merges) : read_bytes(t);
}

// text NULL: what `path` names.
static err_t open_any(tokenizer **out, const char *path, const char *text, int64_t n) {
    tokenizer *t = calloc(1, sizeof *t);
    *out = NULL;
    if (t) t->table = unicode_table();
    if (!t || !t->table) {
        free(t);
        return err_set(ERR_INTERNAL, "%s: no memory for a tokenizer", path);
    }
    err_t rc = text ? read_json(t, path, text, n) : read_path(t, path);
    if (rc == ERR_OK) *out = t;
    else tokenizer_close(t);
    return rc;
}

err_t tokenizer_open(tokenizer **out, const char *path) { return open_any(out, path, NULL, 0); }
err_t tokenizer_parse(tokenizer **out, const char *name, const char *text, int64_t n) {
    return open_any(out, name, text, n);
}

void tokenizer_close(tokenizer *t) {
    if (!t) return;
    for (int32_t k = 0; k < t->added_count; k++) free(t->added[k].text);
    free(t->added);
    added_free(&t->raw);
    added_free(&t->normal);
    vocab_free(&t->v);
    piece_model_free(&t->words.model);
    normal_steps_free(&t->words.steps);
    free(t->words.first);
    free(t->words.table);
    free(t->before.at);
    free(t->after.at);
    free(t->table);
    free(t);
}

tokenizer_info tokenizer_about(const tokenizer *t) {
    bool exact = t->kind == KIND_BPE && !t->nfc;
    for (int32_t k = 0; k < t->added_count; k++)
        exact &= t->added[k].special || !(t->added[k].left || t->added[k].right);
    return (tokenizer_info){
        .vocab = t->v.size, .end_of_text = t->end_of_text, .bos = t->before.n ? t->before.at[0] : -1, .exact = exact};
}

err_t tokenizer_piece(const tokenizer *t, int32_t id, const uint8_t **text, int64_t *n) {
    if (id < 0 || id >= t->v.size || t->v.token[id].at < 0)
        return err_set(ERR_DATA, "token %d: the tokenizer has no such id; its ids are below %d", id, t->v.size);
    *text = t->v.text.at + t->v.token[id].at;
    *n = t->v.token[id].bytes;
    return ERR_OK;
}

err_t tokenizer_first_piece(const tokenizer *t, int32_t id, const uint8_t **text, int64_t *n) {
    TRY(tokenizer_piece(t, id, text, n));
    if (t->kind == KIND_BPE || id >= t->words.first_room || t->words.first[id].at < 0) return ERR_OK;
    *text = t->v.text.at + t->words.first[id].at;
    *n = t->words.first[id].bytes;
    return ERR_OK;
}

void tokenizer_hash(const tokenizer *t, char hash[17]) {
    crypto_generichash_state state;
    uint8_t digest[32];
    crypto_generichash_init(&state, NULL, 0, sizeof digest);
    for (int32_t id = 0; id < t->v.size; id++) {
        const vocab_token *k = &t->v.token[id];
        uint8_t head[8];
        if (k->at < 0) continue;
        for (int i = 0; i < 4; i++) head[i] = (uint8_t)(id >> 8 * i), head[4 + i] = (uint8_t)(k->bytes >> 8 * i);
        crypto_generichash_update(&state, head, sizeof head);
        crypto_generichash_update(&state, t->v.text.at + k->at, (size_t)k->bytes);
    }
    crypto_generichash_final(&state, digest, sizeof digest);
    sodium_bin2hex(hash, 17, digest, 8);
}
