// data/tokenizer/read_words.c: the parts of a tokenizer.json of BERT's kind (WordPiece) and of sentencepiece's
// (Unigram): T5, ALBERT, XLM-R. Each type is a few lines; any other is refused by its name.
#include "data/tokenizer/reader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool flag(const json_t *node, const char *name, bool otherwise) {
    const json_t *value = json_object_get(node, name);
    return node_given(value) ? json_is_true(value) : otherwise;
}

static err_t no_memory(const reader *r) { return err_set(ERR_INTERNAL, "%s: no memory for a tokenizer", r->path); }

static err_t copy_text(const reader *r, const json_t *text, uint8_t **out, int64_t *n) {
    *n = (int64_t)json_string_length(text);
    *out = malloc((size_t)*n + 1);
    if (!*out) return no_memory(r);
    memcpy(*out, json_string_value(text), (size_t)*n + 1);
    return ERR_OK;
}

// --- normalizers -----------------------------------------------------------------------------------------------------

static err_t add_step(reader *r, normal_kind kind, normal_step **step) {
    normal_steps *all = &r->t->words.steps;
    ROOM_FOR(all, all->n + 1);
    *step = &all->at[all->n++];
    **step = (normal_step){.kind = kind};
    return ERR_OK;
}

static err_t add_form(reader *r, nfc_form form) {
    normal_step *s;
    TRY(add_step(r, NORMAL_FORM, &s));
    s->form = form;
    return ERR_OK;
}

static err_t read_bert(reader *r, const json_t *node) {
    bool lower = flag(node, "lowercase", true);
    normal_step *s;
    if (flag(node, "clean_text", true)) TRY(add_step(r, NORMAL_CLEAN, &s));
    if (flag(node, "handle_chinese_chars", true)) TRY(add_step(r, NORMAL_CHINESE, &s));
    if (flag(node, "strip_accents", lower)) {
        TRY(add_form(r, FORM_D));
        TRY(add_step(r, NORMAL_BERT_ACCENTS, &s));
    }
    return lower ? add_step(r, NORMAL_LOWER, &s) : ERR_OK;
}

static err_t read_replace(reader *r, const json_t *node) {
    const json_t *pattern = json_object_get(node, "pattern"), *text = json_object_get(pattern, "String"),
                 *content = json_object_get(node, "content");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    bool spaces = regex && strcmp(regex, " {2,}") == 0;
    normal_step *s;
    if (!json_is_string(content) || (!spaces && json_string_length(text) == 0))
        return reader_refuse(r, "normalizer", node, "expected a string that is replaced, or the pattern \" {2,}\"");
    TRY(add_step(r, spaces ? NORMAL_SPACES : NORMAL_REPLACE, &s));
    TRY(copy_text(r, content, &s->to, &s->to_n));
    if (spaces) return ERR_OK;
    TRY(copy_text(r, text, &s->from, &s->from_n));
    r->t->words.uncut |= memchr(s->from, ' ', (size_t)s->from_n) || memchr(s->to, ' ', (size_t)s->to_n);
    return ERR_OK;
}

static err_t read_charsmap(reader *r, const json_t *node) {
    const json_t *map = json_object_get(node, "precompiled_charsmap");
    normal_step *s;
    if (!json_is_string(map)) return reader_refuse(r, "normalizer", node, "expected a precompiled_charsmap in base64");
    TRY(add_step(r, NORMAL_CHARSMAP, &s));
    err_t rc = charsmap_read(&s->map, json_string_value(map), (int64_t)json_string_length(map));
    if (rc != ERR_OK) return err_prefix("%s: normalizer", r->path);
    r->t->words.uncut |= charsmap_has(&s->map, (const uint8_t *)" ", 1);
    return ERR_OK;
}

static err_t read_strip(reader *r, const json_t *node) {
    normal_step *s;
    TRY(add_step(r, NORMAL_STRIP, &s));
    s->left = flag(node, "strip_left", true);
    s->right = flag(node, "strip_right", true);
    return ERR_OK;
}

static err_t read_step(reader *r, const json_t *node) {
    static const char *const forms[] = {[FORM_C] = "NFC", [FORM_D] = "NFD", [FORM_KC] = "NFKC", [FORM_KD] = "NFKD"};
    normal_step *s;
    for (int form = FORM_C; form <= FORM_KD; form++)
        if (node_is(node, forms[form])) return add_form(r, (nfc_form)form);
    if (node_is(node, "BertNormalizer")) return read_bert(r, node);
    if (node_is(node, "Replace")) return read_replace(r, node);
    if (node_is(node, "Precompiled")) return read_charsmap(r, node);
    if (node_is(node, "Strip")) return read_strip(r, node);
    if (node_is(node, "StripAccents")) return add_step(r, NORMAL_ACCENTS, &s);
    if (node_is(node, "Lowercase")) return add_step(r, NORMAL_LOWER, &s);
    if (node_is(node, "Nmt")) return add_step(r, NORMAL_NMT, &s);
    return reader_refuse(r, "normalizer", node,
                         "expected BertNormalizer, NFC, NFD, NFKC, NFKD, Nmt, Lowercase, StripAccents, Strip, Replace, "
                         "Precompiled, or a Sequence of them");
}

static err_t read_normalizer(reader *r, const json_t *node) {
    const json_t *all = json_object_get(node, "normalizers");
    if (!node_given(node)) return ERR_OK;
    if (!node_is(node, "Sequence") || !json_is_array(all)) return read_step(r, node);
    for (size_t i = 0; i < json_array_size(all); i++) TRY(read_normalizer(r, json_array_get(all, i)));
    return ERR_OK;
}

// --- pre-tokenizers --------------------------------------------------------------------------------------------------

// "replacement" is one character.
static bool one_character(const json_t *node, uint8_t mark[4], int *n) {
    const json_t *text = json_object_get(node, "replacement");
    uint32_t c;
    int64_t bytes = (int64_t)json_string_length(text);
    *n = bytes > 0 ? utf8_next((const uint8_t *)json_string_value(text), bytes, &c) : 0;
    if (*n == 0 || *n != bytes || c == ' ') return false;
    memcpy(mark, json_string_value(text), (size_t)*n);
    return true;
}

static bool scheme_of(const json_t *node, space_before *before) {
    static const char *const names[] = {[SPACE_NEVER] = "never", [SPACE_FIRST] = "first", [SPACE_ALWAYS] = "always"};
    const json_t *scheme = json_object_get(node, "prepend_scheme");
    *before = flag(node, "add_prefix_space", true) ? SPACE_ALWAYS : SPACE_NEVER;  // as it was written until 2023
    if (!node_given(scheme)) return true;
    for (int k = SPACE_NEVER; k <= SPACE_ALWAYS; k++)
        if (json_is_string(scheme) && strcmp(json_string_value(scheme), names[k]) == 0)
            return *before = (space_before)k, true;
    return false;
}

static err_t read_metaspace(reader *r, const json_t *node) {
    word_parts *w = &r->t->words;
    if (!one_character(node, w->mark, &w->mark_n) || !scheme_of(node, &w->before))
        return reader_refuse(r, "pre_tokenizer", node,
                             "expected a replacement of one character, and the prepend_scheme always, first or never");
    w->by_mark = true;
    w->split = flag(node, "split", true);
    if (w->before == SPACE_FIRST && w->by_space)
        return reader_refuse(r, "pre_tokenizer", node, "expected no WhitespaceSplit with the prepend_scheme first");
    return ERR_OK;
}

// WhitespaceSplit, then Metaspace: either may be absent. Or BertPreTokenizer.
static err_t read_pre_step(reader *r, const json_t *node) {
    word_parts *w = &r->t->words;
    bool any = w->by_space || w->by_bert || w->by_mark;
    if (node_is(node, "Metaspace") && !w->by_mark && !w->by_bert) return read_metaspace(r, node);
    if (node_is(node, "WhitespaceSplit") && !any) return w->by_space = true, ERR_OK;
    if (node_is(node, "BertPreTokenizer") && !any) return w->by_bert = true, ERR_OK;
    return reader_refuse(r, "pre_tokenizer", node,
                         "expected BertPreTokenizer, or WhitespaceSplit, Metaspace or the one after the other");
}

static err_t read_pre_tokenizer(reader *r, const json_t *node) {
    const json_t *all = json_object_get(node, "pretokenizers");
    if (!node_given(node)) return ERR_OK;
    if (!node_is(node, "Sequence") || !json_is_array(all)) return read_pre_step(r, node);
    for (size_t i = 0; i < json_array_size(all); i++) TRY(read_pre_step(r, json_array_get(all, i)));
    return ERR_OK;
}

// "first" asks whether a text's first character is still there. Only steps that never take it out go with it.
static err_t check_first(const reader *r, const json_t *node) {
    const normal_steps *steps = &r->t->words.steps;
    bool may_go = false;
    for (int64_t i = 0; i < steps->n; i++)
        may_go |= steps->at[i].kind != NORMAL_FORM && steps->at[i].kind != NORMAL_LOWER;
    if (r->t->words.before != SPACE_FIRST || !may_go) return ERR_OK;
    return reader_refuse(r, "normalizer", node,
                         "with the prepend_scheme first, expected no more than NFC, NFD, NFKC, NFKD and Lowercase");
}

// Where words do not depend on their neighbours, a text may be cut.
static void find_uncut(word_parts *w) {
    w->uncut |= !(w->by_space || w->by_bert || (w->by_mark && w->split));
    for (int64_t i = 0; i < w->steps.n; i++)
        w->uncut |= w->steps.at[i].kind == NORMAL_STRIP && w->steps.at[i].left && w->by_mark && !w->by_space &&
                    w->before != SPACE_ALWAYS;
}

// --- decoders --------------------------------------------------------------------------------------------------------

static err_t read_word_decoder(reader *r, const json_t *node) {
    const json_t *prefix = json_object_get(node, "prefix");
    r->prefix_n = (int)json_string_length(prefix);
    if (!json_is_string(prefix) || r->prefix_n > (int)sizeof r->prefix)
        return reader_refuse(r, "decoder", node, "expected a prefix of at most 32 bytes");
    memcpy(r->prefix, json_string_value(prefix), (size_t)r->prefix_n);
    r->cleanup = flag(node, "cleanup", true);
    return ERR_OK;
}

// Replaces the mark by a space: Metaspace, or Replace.
static err_t read_mark_decoder(reader *r, const json_t *node) {
    const json_t *from = json_object_get(json_object_get(node, "pattern"), "String"),
                 *to = json_object_get(node, "content");
    space_before before = SPACE_NEVER;
    if (node_is(node, "Metaspace")) {
        if (!one_character(node, r->mark, &r->mark_n) || !scheme_of(node, &before))
            return reader_refuse(r, "decoder", node, "expected a replacement of one character, and a prepend_scheme");
        r->first = before == SPACE_NEVER ? FIRST_SAME : FIRST_SPACES;
        return ERR_OK;
    }
    r->mark_n = (int)json_string_length(from);
    bool space = json_string_length(to) == 1 && json_string_value(to)[0] == ' ';
    if (!node_is(node, "Replace") || !space || r->mark_n < 1 || r->mark_n > (int)sizeof r->mark)
        return reader_refuse(r, "decoder", node, "expected a character to be replaced by a space");
    memcpy(r->mark, json_string_value(from), (size_t)r->mark_n);
    return ERR_OK;
}

// After it ByteFallback, Fuse and a Strip of the space that begins the text, or some of them.
static err_t read_decoders(reader *r, const json_t *all) {
    bool fused = false;
    if (json_array_size(all) == 0) return reader_refuse(r, "decoder", all, "expected a decoder");
    TRY(read_mark_decoder(r, json_array_get(all, 0)));
    for (size_t i = 1; i < json_array_size(all); i++) {
        const json_t *node = json_array_get(all, i), *content = json_object_get(node, "content");
        bool space = json_string_length(content) == 1 && json_string_value(content)[0] == ' ' &&
                     json_integer_value(json_object_get(node, "start")) == 1 &&
                     json_integer_value(json_object_get(node, "stop")) == 0;
        if (node_is(node, "ByteFallback") && !fused) r->byte_tokens = true;
        else if (node_is(node, "Fuse") && !fused) fused = true;
        else if (node_is(node, "Strip") && fused && space && r->first == FIRST_SAME) r->first = FIRST_SPACE;
        else
            return reader_refuse(r, "decoder", node,
                                 "expected ByteFallback, Fuse and Strip of one space, in this order");
    }
    return ERR_OK;
}

static err_t read_decoder(reader *r, const json_t *node) {
    const json_t *all = json_object_get(node, "decoders");
    if (!node_given(node)) return r->joined = true, ERR_OK;
    if (node_is(node, "WordPiece")) return read_word_decoder(r, node);
    if (node_is(node, "Metaspace")) return read_mark_decoder(r, node);
    if (node_is(node, "Sequence") && json_is_array(all)) return read_decoders(r, all);
    return reader_refuse(r, "decoder", node, "expected WordPiece, Metaspace, or a Sequence that begins with Replace");
}

// --- what a token decodes to -----------------------------------------------------------------------------------------

// What "cleanup" means in the package `tokenizers`, in place, in its order.
static int64_t clean_up(char *text, int64_t n) {
    static const struct {
        const char *from, *to;
    } rules[] = {{" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
                 {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
        int64_t from = (int64_t)strlen(rules[k].from), to = (int64_t)strlen(rules[k].to), kept = 0;
        for (int64_t i = 0; i < n;) {
            if (n - i < from || memcmp(text + i, rules[k].from, (size_t)from) != 0) {
                text[kept++] = text[i++];
                continue;
            }
            memcpy(text + kept, rules[k].to, (size_t)to);
            kept += to;
            i += from;
        }
        n = kept;
    }
    return n;
}

static int hex(char c) {
    const char *digits = "0123456789abcdefABCDEF", *at = c ? strchr(digits, c) : NULL;
    return !at ? -1 : at - digits < 16 ? (int)(at - digits) : (int)(at - digits) - 6;
}

// Of "<0x0A>" the byte; -1: it is none.
static int byte_of(const char *text, size_t n) {
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || hex(text[3]) < 0 || hex(text[4]) < 0) return -1;
    return hex(text[3]) << 4 | hex(text[4]);
}

// The bytes of a token in a text, or as its first: at most n + 1.
static int64_t decode(const reader *r, const char *text, size_t n, bool first, char *out) {
    int byte = r->byte_tokens ? byte_of(text, n) : -1;
    int64_t size = 0;
    if (byte >= 0) return out[0] = (char)byte, 1;
    if (r->mark_n == 0) {
        bool inner =
            !r->joined && !first && n >= (size_t)r->prefix_n && memcmp(text, r->prefix, (size_t)r->prefix_n) == 0;
        size_t skip = inner ? (size_t)r->prefix_n : 0;
        if (!first && !inner) out[size++] = ' ';
        memcpy(out + size, text + skip, n - skip);
        size += (int64_t)(n - skip);
        return r->cleanup ? clean_up(out, size) : size;
    }
    for (size_t i = 0; i < n;) {
        bool mark = n - i >= (size_t)r->mark_n && memcmp(text + i, r->mark, (size_t)r->mark_n) == 0;
        if (!mark) out[size++] = text[i];
        else if (!first || r->first != FIRST_SPACES) out[size++] = ' ';
        i += mark ? (size_t)r->mark_n : 1;
    }
    if (first && r->first == FIRST_SPACE && size && out[0] == ' ') memmove(out, out + 1, (size_t)--size);
    return size;
}

static err_t grow_first(reader *r, int32_t id) {
    word_parts *w = &r->t->words;
    vocab_token *grown = realloc(w->first, (size_t)r->t->v.room * sizeof *grown);
    if (!grown) return no_memory(r);
    w->first = grown;
    for (int64_t i = w->first_room; i < r->t->v.room; i++) grown[i] = (vocab_token){.at = -1};
    w->first_room = r->t->v.room;
    return id < w->first_room ? ERR_OK : no_memory(r);
}

static err_t put_token(reader *r, int32_t id, const char *text, size_t n, char *room) {
    vocab *v = &r->t->v;
    bool taken;
    int64_t size = decode(r, text, n, false, room);
    TRY(vocab_add(v, id, room, size, false, &taken));
    if (taken)
        return err_set(ERR_DATA, "%s: two tokens have the id %d, one of them \"%.100s\"", r->path, (int)id, text);
    if (id >= r->t->words.first_room) TRY(grow_first(r, id));
    size = decode(r, text, n, true, room);
    ROOM_FOR(&v->text, v->text.n + size + 1);
    memcpy(v->text.at + v->text.n, room, (size_t)size);
    r->t->words.first[id] = (vocab_token){v->text.n, (int32_t)size, false};
    v->text.n += size;
    return ERR_OK;
}

err_t read_words_added(reader *r, int32_t id, const char *text, size_t n) {
    char *room = malloc(n + 2);
    if (!room) return no_memory(r);
    err_t rc = put_token(r, id, text, n, room);
    free(room);
    return rc;
}

// --- models ----------------------------------------------------------------------------------------------------------

static err_t add_word(reader *r, const char *text, size_t n, int64_t id) {
    bool taken = false;
    if (id < 0 || id >= VOCAB_MOST)
        return err_set(ERR_DATA, "%s: the token \"%.100s\" has no id from 0 to %d", r->path, text, VOCAB_MOST - 1);
    if (n > 0) TRY(trie_put(&r->t->words.model.words, text, (int64_t)n, (int32_t)id, &taken));
    if (taken) return err_set(ERR_DATA, "%s: two tokens are \"%.100s\"", r->path, text);
    return read_words_added(r, (int32_t)id, text, n);
}

static err_t unknown_token(reader *r, const json_t *model) {
    const char *unknown = json_string_value(json_object_get(model, "unk_token"));
    r->t->words.model.unknown = unknown ? reader_id(r, unknown) : -1;
    if (r->t->words.model.unknown >= 0) return ERR_OK;
    return err_set(ERR_DATA, "%s: model: unk_token is \"%.100s\", expected a token of the vocabulary", r->path,
                   unknown ? unknown : "");
}

static err_t read_wordpiece(reader *r, const json_t *model) {
    piece_model *m = &r->t->words.model;
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix"),
                 *most = json_object_get(model, "max_input_chars_per_word");
    const char *text;
    json_t *id;
    if (!json_is_object(r->vocab) || json_object_size(r->vocab) == 0)
        return err_set(ERR_DATA, "%s: no vocabulary, expected an object of tokens and their ids", r->path);
    if (!json_is_string(prefix)) return reader_refuse(r, "continuing_subword_prefix", prefix, "expected a string");
    if (node_given(most) && (!json_is_integer(most) || json_integer_value(most) < 0))
        return reader_refuse(r, "max_input_chars_per_word", most, "expected a number of characters");
    m->most = node_given(most) ? json_integer_value(most) : 100;
    json_object_foreach(r->vocab, text, id)
        TRY(add_word(r, text, strlen(text), json_is_integer(id) ? json_integer_value(id) : -1));
    m->inner = trie_walk(&m->words, (const uint8_t *)json_string_value(prefix), (int64_t)json_string_length(prefix));
    return unknown_token(r, model);
}

// A number as the package `tokenizers` reads it (serde_json, without float_roundtrip): the shortest digits that mean it
// as one integer, and that multiplied or divided by a power of ten, each rounded. It may be the neighbour of the
// nearest double, and so decide between two divisions of a word that have the same tokens in another order.
static double as_serde_reads(double x) {
    char text[40], power[16];
    int digits = 1, after = -1;
    uint64_t n = 0;
    while (snprintf(text, sizeof text, "%.*e", digits - 1, fabs(x)) > 0 && digits < 17 && strtod(text, NULL) != fabs(x))
        digits++;
    char *e = strchr(text, 'e');
    if (!e || !isfinite(x)) return x;
    for (const char *c = text; c < e; c++)
        if (*c >= '0' && *c <= '9') n = 10 * n + (uint64_t)(*c - '0'), after++;
    int exponent = (int)strtol(e + 1, NULL, 10) - after;
    for (; n && n % 10 == 0 && exponent < 0; n /= 10) exponent++;
    if (abs(exponent) > 300) return x;
    snprintf(power, sizeof power, "1e%d", abs(exponent));
    double y = exponent < 0 ? (double)n / strtod(power, NULL) : (double)n * strtod(power, NULL);
    return x < 0 ? -y : y;
}

static err_t read_score(reader *r, size_t id, const json_t *each, double *least) {
    const json_t *text = json_array_get(each, 0), *score = json_array_get(each, 1);
    if (json_array_size(each) != 2 || !json_is_string(text) || !json_is_number(score))
        return err_set(ERR_DATA, "%s: token %zu of the vocabulary: expected a string and its score", r->path, id);
    r->t->words.model.score[id] = as_serde_reads(json_number_value(score));
    *least = fmin(*least, r->t->words.model.score[id]);
    TRY(add_word(r, json_string_value(text), json_string_length(text), (int64_t)id));
    int byte = byte_of(json_string_value(text), json_string_length(text));
    if (byte >= 0 && json_string_value(text)[3] < 'a' && json_string_value(text)[4] < 'a')
        r->t->words.model.byte_id[byte] = (int32_t)id;
    if (json_string_length(text) == strlen(json_string_value(text)))
        json_object_set_new(r->names, json_string_value(text), json_integer((json_int_t)id));
    return ERR_OK;
}

static err_t read_unigram(reader *r, const json_t *model) {
    static const char *const sampling[] = {"alpha", "nbest_size"};
    enum { UNKNOWN_PENALTY = 10 };
    piece_model *m = &r->t->words.model;
    const json_t *unknown = json_object_get(model, "unk_id"), *all = json_object_get(model, "vocab");
    double least = INFINITY;
    size_t n = json_array_size(all);
    for (int i = 0; i < 2; i++)
        if (node_given(json_object_get(model, sampling[i])))
            return reader_refuse(r, sampling[i], json_object_get(model, sampling[i]), "a text's tokens are not drawn");
    if (n == 0 || n >= VOCAB_MOST)
        return err_set(ERR_DATA, "%s: no vocabulary, expected an array of tokens and their scores", r->path);
    if (!json_is_integer(unknown) || json_integer_value(unknown) < 0 || json_integer_value(unknown) >= (json_int_t)n)
        return reader_refuse(r, "model: unk_id", unknown, "expected the id of a token");
    m->unknown = (int32_t)json_integer_value(unknown);
    m->score = malloc(n * sizeof *m->score);
    r->names = json_object();
    if (!m->score || !r->names) return no_memory(r);
    for (int b = 0; b < 256; b++) m->byte_id[b] = -1;
    for (size_t i = 0; i < n; i++) TRY(read_score(r, i, json_array_get(all, i), &least));
    m->no_score = least - UNKNOWN_PENALTY;
    m->bytes_known = json_is_true(json_object_get(model, "byte_fallback"));
    return ERR_OK;
}

err_t read_words(reader *r, const json_t *root) {
    const json_t *model = json_object_get(root, "model");
    tokenizer *t = r->t;
    t->kind = node_is(model, "WordPiece") ? KIND_WORDPIECE : KIND_UNIGRAM;
    t->words.table = unicode_word_table();
    if (!t->words.table) return no_memory(r);
    TRY(read_normalizer(r, json_object_get(root, "normalizer")));
    TRY(read_pre_tokenizer(r, json_object_get(root, "pre_tokenizer")));
    TRY(check_first(r, json_object_get(root, "normalizer")));
    find_uncut(&t->words);
    TRY(read_decoder(r, json_object_get(root, "decoder")));
    r->vocab = json_object_get(model, "vocab");
    if (t->kind == KIND_WORDPIECE) return read_wordpiece(r, model);
    err_t rc = read_unigram(r, model);
    r->vocab = r->names;
    return rc;
}
