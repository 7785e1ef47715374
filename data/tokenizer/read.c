// data/tokenizer/read.c: tokenizer.json, and GPT-2's older pair of files. Every member that could change an id is
// looked at; what is not implemented is an error that names it.
#include "base/io.h"
#include "data/tokenizer/reader.h"

#include <string.h>

enum { FILE_MOST = 1 << 30 };

// --- bytes and the characters that stand for them --------------------------------------------------------------------

static bool is_itself(int b) { return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; }

uint32_t byte_character(uint8_t byte) {
    uint32_t n = 0x100;
    if (is_itself(byte)) return byte;
    for (int b = 0; b < byte; b++) n += !is_itself(b);
    return n;
}

// Of a token as it is written, the bytes: true. False: it has another character, and stands for itself.
static bool plain_bytes(const reader *r, const char *token, size_t n, bytes *out) {
    uint32_t c;
    out->n = 0;
    for (size_t i = 0; i < n;) {
        int k = utf8_next((const uint8_t *)token + i, (int64_t)(n - i), &c);
        if (!k || c >= 0x180 || r->byte_of[c] < 0) return false;
        out->at[out->n++] = (uint8_t)r->byte_of[c];
        i += (size_t)k;
    }
    return true;
}

// --- the model -------------------------------------------------------------------------------------------------------

static err_t read_token(reader *r, const char *text, const json_t *value, bytes *work) {
    size_t n = strlen(text);
    json_int_t id = json_integer_value(value);
    bool taken;
    if (!json_is_integer(value) || id < 0 || id >= VOCAB_MOST)
        return err_set(ERR_DATA, "%s: the token \"%.100s\" has no id from 0 to %d", r->path, text, VOCAB_MOST - 1);
    ROOM_FOR(work, (int64_t)n);
    bool plain = plain_bytes(r, text, n, work);
    TRY(vocab_add(&r->t->v, (int32_t)id, plain ? (const void *)work->at : text, plain ? work->n : (int64_t)n,
                  plain && n > 0, &taken));
    if (taken)
        return err_set(ERR_DATA, "%s: two tokens have the id %d, one of them \"%.100s\"", r->path, (int)id, text);
    if (plain && work->n == 1) r->t->v.byte_id[work->at[0]] = (int32_t)id;
    return ERR_OK;
}

static err_t read_vocab(reader *r) {
    const char *text;
    json_t *value;
    bytes work = {0};
    err_t rc = ERR_OK;
    if (!json_is_object(r->vocab))
        return err_set(ERR_DATA, "%s: no vocabulary, expected an object of tokens and their ids", r->path);
    for (int b = 0; b < 256; b++) r->t->v.byte_id[b] = -1;
    json_object_foreach(r->vocab, text, value) if ((rc = read_token(r, text, value, &work)) != ERR_OK) break;
    free(work.at);
    TRY(rc);
    for (int b = 0; b < 256; b++)
        if (r->t->v.byte_id[b] < 0)
            return err_set(
                ERR_DATA,
                "%s: no token of the vocabulary is the byte 0x%02x, so that not every text can be encoded; expected all 256",
                r->path, b);
    return ERR_OK;
}

static err_t add_merge(reader *r, int32_t rank, const char *left, const char *right, bytes *work) {
    size_t a = strlen(left), b = strlen(right);
    int32_t l = reader_id(r, left), h = reader_id(r, right);
    ROOM_FOR(work, (int64_t)(a + b + 1));
    memcpy(work->at, left, a);
    memcpy(work->at + a, right, b + 1);
    int32_t id = reader_id(r, (const char *)work->at);
    if (l < 0 || h < 0 || id < 0)
        return err_set(ERR_DATA, "%s: merge %d, \"%.100s %.100s\": \"%.200s\" is not in the vocabulary", r->path, rank,
                       left, right,
                       l < 0   ? left
                       : h < 0 ? right
                               : (const char *)work->at);
    vocab_merge(&r->t->v, l, h, rank, id);
    return ERR_OK;
}

// "left right", which is changed.
static err_t add_merge_line(reader *r, int32_t rank, char *line, bytes *work) {
    char *space = strchr(line, ' ');
    if (!space || space == line || !space[1] || strchr(space + 1, ' '))
        return err_set(ERR_DATA, "%s: merge %d is \"%.100s\", expected two tokens with a space between them", r->path,
                       rank, line);
    *space = 0;
    return add_merge(r, rank, line, space + 1, work);
}

static err_t read_merge(reader *r, int32_t rank, const json_t *merge, bytes *work) {
    const char *left = json_string_value(json_array_get(merge, 0)),
               *right = json_string_value(json_array_get(merge, 1));
    if (json_array_size(merge) == 2 && left && right) return add_merge(r, rank, left, right, work);
    if (!json_is_string(merge))
        return err_set(ERR_DATA, "%s: merge %d is neither a string nor two strings", r->path, rank);
    char *line = strdup(json_string_value(merge));
    if (!line) return err_set(ERR_INTERNAL, "%s: no memory for a merge", r->path);
    err_t rc = add_merge_line(r, rank, line, work);
    free(line);
    return rc;
}

static err_t read_merges(reader *r, const json_t *merges) {
    bytes work = {0};
    err_t rc = ERR_OK;
    if (!json_is_array(merges)) return err_set(ERR_DATA, "%s: no merges, expected an array of them", r->path);
    TRY(vocab_pairs(&r->t->v, (int64_t)json_array_size(merges)));
    for (size_t i = 0; rc == ERR_OK && i < json_array_size(merges); i++)
        rc = read_merge(r, (int32_t)i, json_array_get(merges, i), &work);
    free(work.at);
    return rc;
}

// dropout 0 and empty prefixes are as if absent. unk_token has no effect: every byte has a token.
static err_t check_model(const reader *r, const json_t *model) {
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *dropout = json_object_get(model, "dropout");
    const json_t *type = json_object_get(model, "type");
    if (!json_is_object(model)) return err_set(ERR_DATA, "%s: no \"model\", expected a tokenizer.json", r->path);
    if (type && !node_is(model, "BPE"))
        return reader_refuse(r, "model: type", type, "expected BPE, WordPiece or Unigram");
    if (node_given(dropout) && json_number_value(dropout) != 0)
        return reader_refuse(r, "model: dropout", dropout, "expected none");
    for (int i = 0; i < 2; i++) {
        const json_t *text = json_object_get(model, texts[i]);
        if (node_given(text) && (!json_is_string(text) || json_string_length(text)))
            return reader_refuse(r, texts[i], text, "expected none");
    }
    if (json_is_true(json_object_get(model, "byte_fallback")))
        return reader_refuse(r, "model: byte_fallback", json_true(), "expected false");
    return ERR_OK;
}

static err_t read_model(reader *r, const json_t *model) {
    TRY(check_model(r, model));
    r->vocab = json_object_get(model, "vocab");
    TRY(read_vocab(r));
    return read_merges(r, json_object_get(model, "merges"));
}

// --- what stands before it and after it ------------------------------------------------------------------------------

static err_t read_normalizer(reader *r, const json_t *node) {
    if (!node_given(node)) return ERR_OK;
    if (node_is(node, "NFC")) return r->t->nfc = true, ERR_OK;
    const json_t *all = json_object_get(node, "normalizers");
    if (!node_is(node, "Sequence") || !json_is_array(all))
        return reader_refuse(r, "normalizer", node, "expected NFC or none");
    for (size_t i = 0; i < json_array_size(all); i++) {
        if (!node_is(json_array_get(all, i), "NFC"))
            return reader_refuse(r, "normalizer", json_array_get(all, i), "expected NFC or none");
        r->t->nfc = true;
    }
    return ERR_OK;
}

static err_t read_split(reader *r, const json_t *node) {
    const char *regex = json_string_value(json_object_get(json_object_get(node, "pattern"), "Regex"));
    const char *behavior = json_string_value(json_object_get(node, "behavior"));
    char why[96];
    if (!behavior || strcmp(behavior, "Isolated") != 0)
        return reader_refuse(r, "pre_tokenizer", node, "expected the behavior Isolated");
    if (!json_is_false(json_object_get(node, "invert")))
        return reader_refuse(r, "pre_tokenizer", node, "expected \"invert\": false");
    split_pattern found = regex ? split_find(regex) : SPLIT_WHOLE;
    snprintf(why, sizeof why, "the patterns that this build knows are %s", split_names);
    if (found == SPLIT_WHOLE) return reader_refuse(r, "pre_tokenizer", node, why);
    if (r->t->pattern != SPLIT_WHOLE) return reader_refuse(r, "pre_tokenizer", node, "a text is split by two patterns");
    r->t->pattern = found;
    return ERR_OK;
}

static err_t read_level(reader *r, const json_t *node) {
    const json_t *regex = json_object_get(node, "use_regex");
    if (!json_is_false(json_object_get(node, "add_prefix_space")))
        return reader_refuse(r, "pre_tokenizer", node, "expected \"add_prefix_space\": false");
    r->level = true;
    if (json_is_false(regex)) return ERR_OK;
    if (r->t->pattern != SPLIT_WHOLE) return reader_refuse(r, "pre_tokenizer", node, "a text is split by two patterns");
    r->t->pattern = SPLIT_GPT2;
    return ERR_OK;
}

// Digits, then Split, then ByteLevel: any of them may be absent but the last.
static err_t read_step(reader *r, const json_t *node) {
    tokenizer *t = r->t;
    if (r->level) return reader_refuse(r, "pre_tokenizer", node, "expected nothing after ByteLevel");
    if (node_is(node, "ByteLevel")) return read_level(r, node);
    if (node_is(node, "Split")) return read_split(r, node);
    if (!node_is(node, "Digits")) return reader_refuse(r, "pre_tokenizer", node, "expected Digits, Split or ByteLevel");
    if (t->digits != DIGITS_ANY || t->pattern != SPLIT_WHOLE)
        return reader_refuse(r, "pre_tokenizer", node, "expected Digits first");
    t->digits = json_is_true(json_object_get(node, "individual_digits")) ? DIGITS_EACH : DIGITS_RUNS;
    return ERR_OK;
}

static err_t read_pre_tokenizer(reader *r, const json_t *node) {
    const json_t *all = json_object_get(node, "pretokenizers");
    if (node_is(node, "Sequence") && json_is_array(all))
        for (size_t i = 0; i < json_array_size(all); i++) TRY(read_step(r, json_array_get(all, i)));
    else TRY(read_step(r, node));
    if (!r->level) return reader_refuse(r, "pre_tokenizer", node, "expected ByteLevel at its end");
    if (r->t->pattern == SPLIT_WHOLE)
        return reader_refuse(r, "pre_tokenizer", node, "expected a pattern that splits the text");
    return ERR_OK;
}

// One token of a template: the ids that it stands for.
static err_t read_template_token(reader *r, const json_t *post, const json_t *token, id_list *to) {
    const char *name = json_string_value(json_object_get(token, "id"));
    const json_t *ids =
        name ? json_object_get(json_object_get(json_object_get(post, "special_tokens"), name), "ids") : NULL;
    if (!json_is_array(ids))
        return err_set(ERR_DATA, "%s: post_processor: the template has a token without ids", r->path);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        json_int_t id = json_integer_value(json_array_get(ids, i));
        if (!json_is_integer(json_array_get(ids, i)) || id < 0 || id >= VOCAB_MOST)
            return err_set(ERR_DATA, "%s: post_processor: \"%.100s\" has an id that is no number from 0 to %d", r->path,
                           name, VOCAB_MOST - 1);
        TRY(ids_add(to, (int32_t)id));
    }
    return ERR_OK;
}

static err_t read_template(reader *r, const json_t *post) {
    const json_t *single = json_object_get(post, "single");
    id_list *to = &r->t->before;
    if (r->t->before.n + r->t->after.n) return reader_refuse(r, "post_processor", post, "expected one template");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *part = json_array_get(single, i), *token = json_object_get(part, "SpecialToken");
        if (token) TRY(read_template_token(r, post, token, to));
        else if (json_object_get(part, "Sequence") && to == &r->t->before) to = &r->t->after;
        else return reader_refuse(r, "post_processor", part, "expected special tokens and one sequence");
    }
    return to == &r->t->after ? ERR_OK
                              : reader_refuse(r, "post_processor", post, "expected special tokens and one sequence");
}

// BertProcessing and RobertaProcessing: "cls" is a token and its id, put first; "sep" one put last.
static err_t read_ends(reader *r, const json_t *node) {
    static const char *const names[] = {"cls", "sep"};
    for (int i = 0; i < 2; i++) {
        const json_t *id = json_array_get(json_object_get(node, names[i]), 1);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= VOCAB_MOST)
            return reader_refuse(r, "post_processor", node, "expected cls and sep, each a token and its id");
        TRY(ids_add(i ? &r->t->after : &r->t->before, (int32_t)json_integer_value(id)));
    }
    return ERR_OK;
}

static err_t read_post(reader *r, const json_t *node) {
    const json_t *all = json_object_get(node, "processors");
    if (!node_given(node) || node_is(node, "ByteLevel")) return ERR_OK;
    if (node_is(node, "TemplateProcessing")) return read_template(r, node);
    if (r->t->kind != KIND_BPE && (node_is(node, "BertProcessing") || node_is(node, "RobertaProcessing")))
        return read_ends(r, node);
    if (!node_is(node, "Sequence") || !json_is_array(all))
        return reader_refuse(r, "post_processor", node, "expected ByteLevel or TemplateProcessing");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *each = json_array_get(all, i);
        if (node_is(each, "TemplateProcessing")) TRY(read_template(r, each));
        else if (!node_is(each, "ByteLevel"))
            return reader_refuse(r, "post_processor", each, "expected ByteLevel or TemplateProcessing");
    }
    return ERR_OK;
}

static err_t check_decoder(const reader *r, const json_t *node) {
    const json_t *all = json_object_get(node, "decoders");
    if (node_is(node, "Sequence") && json_array_size(all) == 1) node = json_array_get(all, 0);
    return !node_given(node) || node_is(node, "ByteLevel") ? ERR_OK
                                                           : reader_refuse(r, "decoder", node, "expected ByteLevel");
}

// --- added tokens ----------------------------------------------------------------------------------------------------

// What an added token is written as is what it decodes to.
static err_t add_special(reader *r, added_token *a, const char *text, size_t n) {
    vocab *v = &r->t->v;
    bool taken;
    a->text = malloc(n + 1);
    if (!a->text) return err_set(ERR_INTERNAL, "%s: no memory for an added token", r->path);
    memcpy(a->text, text, n);
    a->text[n] = 0;
    a->bytes = (int32_t)n;
    int32_t id = strlen(text) == n ? reader_id(r, text) : -1;
    if (r->t->kind != KIND_BPE && id == a->id) return ERR_OK;
    if (r->t->kind != KIND_BPE && id < 0 && (a->id >= v->size || v->token[a->id].at < 0))
        return read_words_added(r, a->id, text, n);
    TRY(vocab_add(v, a->id, text, (int64_t)n, false, &taken));
    if ((id >= 0 && id != a->id) || (taken && id < 0))
        return err_set(ERR_DATA,
                       "%s: added_tokens: \"%.100s\" has the id %d, and the vocabulary has another token or id for it",
                       r->path, text, a->id);
    vocab_token *token = &v->token[a->id];
    if (!taken || (token->bytes == a->bytes && memcmp(v->text.at + token->at, text, n) == 0)) return ERR_OK;
    ROOM_FOR(&v->text, v->text.n + (int64_t)n + 1);
    memcpy(v->text.at + v->text.n, text, n);
    *token = (vocab_token){v->text.n, a->bytes, false};
    v->text.n += (int64_t)n;
    return ERR_OK;
}

static err_t read_added_token(reader *r, const json_t *node) {
    const json_t *content = json_object_get(node, "content"), *id = json_object_get(node, "id");
    added_token *a = &r->t->added[r->t->added_count];
    if (!json_is_string(content) || !json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) >= VOCAB_MOST)
        return reader_refuse(r, "added_tokens", node, "expected a string as content, and an id");
    r->t->added_count++;
    *a = (added_token){.id = (int32_t)json_integer_value(id),
                       .special = json_is_true(json_object_get(node, "special")),
                       .left = json_is_true(json_object_get(node, "lstrip")),
                       .right = json_is_true(json_object_get(node, "rstrip")),
                       .single_word = json_is_true(json_object_get(node, "single_word")),
                       .after_normal = json_is_true(json_object_get(node, "normalized"))};
    return add_special(r, a, json_string_value(content), json_string_length(content));
}

// An added token as the normalizer leaves it.
static err_t put_normal(tokenizer *t, int32_t k, normal_work *work) {
    const uint8_t *text;
    int64_t n;
    TRY(normal_apply(&t->words.steps, &t->pairs, t->table, t->words.table, t->added[k].text, t->added[k].bytes, work,
                     &text, &n));
    return added_put(&t->normal, t->added, k, text, n);
}

static err_t build_sets(tokenizer *t) {
    nfc_points work = {0};
    normal_work words = {0};
    bytes normal = {0};
    err_t rc = ERR_OK;
    if (t->nfc || t->kind != KIND_BPE) nfc_fill(&t->pairs);
    for (int32_t k = 0; k < t->added_count && rc == ERR_OK; k++) {
        const added_token *a = &t->added[k];
        if (a->bytes > t->longest) t->longest = a->bytes;
        if (!a->after_normal) rc = added_put(&t->raw, t->added, k, a->text, a->bytes);
        else if (t->kind != KIND_BPE) rc = put_normal(t, k, &words);
        else if (!t->nfc) rc = added_put(&t->normal, t->added, k, a->text, a->bytes);
        else if ((rc = nfc_apply(&t->pairs, t->table, a->text, a->bytes, &work, &normal)) == ERR_OK)
            rc = added_put(&t->normal, t->added, k, normal.at, normal.n);
    }
    free(work.at);
    free(normal.at);
    normal_work_free(&words);
    return rc;
}

static err_t read_added(reader *r, const json_t *all) {
    if (node_given(all) && !json_is_array(all)) return reader_refuse(r, "added_tokens", all, "expected an array");
    r->t->added = calloc(json_array_size(all) + 1, sizeof *r->t->added);
    if (!r->t->added) return err_set(ERR_INTERNAL, "%s: no memory for added tokens", r->path);
    for (size_t i = 0; i < json_array_size(all); i++) TRY(read_added_token(r, json_array_get(all, i)));
    return ERR_OK;
}

int32_t tokenizer_special(const tokenizer *t, const char *text) {
    for (int32_t k = 0; k < t->added_count; k++)
        if (t->added[k].special && strcmp((const char *)t->added[k].text, text) == 0) return t->added[k].id;
    return -1;
}

// --- whole files -----------------------------------------------------------------------------------------------------

static reader reader_of(tokenizer *t, const char *path) {
    reader r = {.t = t, .path = path};
    memset(r.byte_of, 0xFF, sizeof r.byte_of);
    for (int b = 0; b < 256; b++) r.byte_of[byte_character((uint8_t)b)] = (int16_t)b;
    return r;
}

static err_t finish(reader *r) {
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "[SEP]"};
    tokenizer *t = r->t;
    t->end_of_text = -1;
    for (int i = 0; i < 4 && t->end_of_text < 0; i++) t->end_of_text = tokenizer_special(t, ends[i]);
    for (int64_t i = 0; i < t->before.n + t->after.n; i++) {
        int32_t id = i < t->before.n ? t->before.at[i] : t->after.at[i - t->before.n];
        if (id >= t->v.size || t->v.token[id].at < 0)
            return err_set(ERR_DATA, "%s: post_processor: the template has the id %d, which no token has", r->path, id);
    }
    return build_sets(t);
}

static err_t read_bpe(reader *r, const json_t *root, const json_t *model) {
    TRY(check_model(r, model));
    TRY(read_normalizer(r, json_object_get(root, "normalizer")));
    TRY(read_pre_tokenizer(r, json_object_get(root, "pre_tokenizer")));
    TRY(check_decoder(r, json_object_get(root, "decoder")));
    TRY(read_model(r, model));
    return json_is_true(json_object_get(model, "ignore_merges")) ? vocab_words(&r->t->v) : ERR_OK;
}

static err_t read_root(reader *r, const json_t *root) {
    // How others cut texts to a length, and fill them up to it. Which tokens a text has does not depend on it, so
    // neither is done here.
    static const char *const lengths[] = {"truncation", "padding"};
    for (int i = 0; i < 2; i++) {
        const json_t *how = json_object_get(root, lengths[i]);
        if (node_given(how) && !json_is_object(how))
            return reader_refuse(r, lengths[i], how, "expected null or an object");
    }
    const json_t *model = json_object_get(root, "model");
    if (node_is(model, "WordPiece") || node_is(model, "Unigram")) TRY(read_words(r, root));
    else TRY(read_bpe(r, root, model));
    TRY(read_post(r, json_object_get(root, "post_processor")));
    TRY(read_added(r, json_object_get(root, "added_tokens")));
    return finish(r);
}

static err_t parse(const char *path, const char *text, int64_t n, json_t **root) {
    json_error_t why;
    *root = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (*root && json_is_object(*root)) return ERR_OK;
    if (*root) json_decref(*root), *root = NULL, strcpy(why.text, "not an object"), why.line = 1;
    return err_set(ERR_DATA, "%s: line %d: %s, expected JSON", path, why.line, why.text);
}

err_t read_json(tokenizer *t, const char *path, const char *text, int64_t n) {
    reader r = reader_of(t, path);
    json_t *root;
    TRY(parse(path, text, n, &root));
    err_t rc = read_root(&r, root);
    json_decref(r.names);
    json_decref(root);
    return rc;
}

// Lines of two tokens, after one that may say a version.
static err_t read_merge_lines(reader *r, char *text) {
    bytes work = {0};
    int64_t lines = 1;
    err_t rc;
    for (const char *p = text; *p; p++) lines += *p == '\n';
    TRY(vocab_pairs(&r->t->v, lines));
    rc = ERR_OK;
    for (int32_t rank = 0; *text && rc == ERR_OK;) {
        char *end = text + strcspn(text, "\n");
        char *next = *end ? end + 1 : end;
        *end = 0;
        if (end > text && end[-1] == '\r') end[-1] = 0;
        if (*text && strncmp(text, "#version", 8) != 0) rc = add_merge_line(r, rank++, text, &work);
        text = next;
    }
    free(work.at);
    return rc;
}

// The special token that GPT-2's files do not mark as one.
static err_t add_end_of_text(reader *r) {
    json_t *all = json_array();
    int32_t id = reader_id(r, "<|endoftext|>");
    if (id >= 0)
        json_array_append_new(all, json_pack("{s:i,s:s,s:b}", "id", id, "content", "<|endoftext|>", "special", 1));
    err_t rc = read_added(r, all);
    json_decref(all);
    return rc;
}

static err_t read_gpt2_texts(reader *r, const char *vocab, size_t n, char *merges, const char *merges_path) {
    json_t *root;
    TRY(parse(r->path, vocab, (int64_t)n, &root));
    r->vocab = root;
    r->t->pattern = SPLIT_GPT2;
    err_t rc = read_vocab(r);
    const char *path = r->path;
    r->path = merges_path;
    if (rc == ERR_OK) rc = read_merge_lines(r, merges);
    r->path = path;
    if (rc == ERR_OK) rc = add_end_of_text(r);
    if (rc == ERR_OK) rc = finish(r);
    json_decref(root);
    return rc;
}

err_t read_gpt2(tokenizer *t, const char *vocab_path, const char *merges_path) {
    reader r = reader_of(t, vocab_path);
    char *vocab, *merges = NULL;
    size_t n, m;
    TRY(io_read_file(vocab_path, FILE_MOST, &vocab, &n));
    err_t rc = io_read_file(merges_path, FILE_MOST, &merges, &m);
    if (rc == ERR_OK) rc = read_gpt2_texts(&r, vocab, n, merges, merges_path);
    free(vocab);
    free(merges);
    return rc;
}

err_t read_bytes(tokenizer *t) {
    bool taken;
    t->pattern = SPLIT_BYTES;
    for (int b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        TRY(vocab_add(&t->v, b, &byte, 1, true, &taken));
        t->v.byte_id[b] = b;
    }
    t->end_of_text = -1;
    return vocab_pairs(&t->v, 0);
}
