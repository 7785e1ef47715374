// data/text/chat.c: see data/text/chat.h.
#include "data/text/chat.h"

#include "data/text/chat_find.h"
#include "data/text/strip.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct form {
    const char *begin;           // before the first turn
    const char *open, *head;     // before and after the role; open NULL: roles are not written
    const char *end, *after;     // after an answer, marked, and not marked
    const char *end_of_another;  // after other turns
    bool trims;
} form;

static const form forms[] = {
    [CHAT_CHATML] = {.begin = "",
                     .open = "<|im_start|>",
                     .head = "\n",
                     .end = "<|im_end|>",
                     .after = "\n",
                     .end_of_another = "<|im_end|>\n"},
    [CHAT_LLAMA3] = {.begin = "<|begin_of_text|>",
                     .open = "<|start_header_id|>",
                     .head = "<|end_header_id|>\n\n",
                     .end = "<|eot_id|>",
                     .after = "",
                     .end_of_another = "<|eot_id|>",
                     .trims = true},
    [CHAT_PLAIN] = {.begin = "", .end = "\n", .after = "", .end_of_another = "\n"},
};

struct chat {
    form form;
    char *begin, *end;  // of plain: what the tokenizer has
    encoder *e;         // NULL: a token is a byte
    bytes text, marks, content;
    id_list ids;
};

// The text of a token of the tokenizer, as a string of ours.
static err_t text_of(char **out, const tokenizer *words, int32_t id) {
    const uint8_t *text;
    int64_t n;
    TRY(tokenizer_piece(words, id, &text, &n));
    *out = strndup((const char *)text, (size_t)n);
    return *out ? ERR_OK : err_set(ERR_INTERNAL, "no memory for the text of a token");
}

static err_t find_plain(chat *c, const tokenizer *words) {
    tokenizer_info about = tokenizer_about(words);
    if (about.bos >= 0) {
        TRY(text_of(&c->begin, words, about.bos));
        c->form.begin = c->begin;
    }
    if (about.end_of_text >= 0) {
        TRY(text_of(&c->end, words, about.end_of_text));
        c->form.end = c->end;
    }
    return ERR_OK;
}

static err_t open_form(chat *c, chat_template kind, const char *path, const tokenizer *words) {
    if (kind == CHAT_LABELS || kind == CHAT_NUMBERS || kind == CHAT_TEXT)
        return err_set(ERR_CONFIG, "%s is for [pack]: expected auto, chatml, llama3 or plain",
                       kind == CHAT_LABELS    ? "labels"
                       : kind == CHAT_NUMBERS ? "numbers"
                                              : "text");
    if (kind == CHAT_AUTO && !words)
        return err_set(ERR_CONFIG,
                       "where a token is a byte, no file says which template there is: name it: chatml, llama3 or "
                       "plain");
    if (kind == CHAT_AUTO) TRY(chat_find(&kind, path));
    c->form = forms[kind];
    if (!words) return ERR_OK;
    if (kind == CHAT_PLAIN) TRY(find_plain(c, words));
    return encoder_open(&c->e, words);
}

err_t chat_open(chat **out, chat_template kind, const char *path, const tokenizer *words) {
    chat *c = *out = calloc(1, sizeof *c);
    if (!c) return err_set(ERR_INTERNAL, "no memory for a template");
    err_t rc = open_form(c, kind, path, words);
    if (rc != ERR_OK) chat_close(c), *out = NULL;
    return rc;
}

void chat_close(chat *c) {
    if (!c) return;
    if (c->e) encoder_close(c->e);
    free(c->begin), free(c->end);
    free(c->text.at), free(c->marks.at), free(c->content.at), free(c->ids.at);
    free(c);
}

const char *chat_end(const chat *c) { return c->form.end; }

// --- what is written -------------------------------------------------------------------------------------------------

static err_t append(bytes *to, const void *text, int64_t n) {
    ROOM_FOR(to, to->n + n + 1);
    if (n) memcpy(to->at + to->n, text, (size_t)n);
    to->n += n;
    return ERR_OK;
}

static err_t put_bytes(chat *c, const uint8_t *text, int64_t n) {
    ROOM_FOR(&c->ids, c->ids.n + n);
    for (int64_t i = 0; i < n; i++) c->ids.at[c->ids.n++] = text[i];
    return ERR_OK;
}

static err_t put_words(chat *c, const uint8_t *text, int64_t n, int how) {
    const int32_t *ids;
    int64_t count;
    TRY(encoder_encode(c->e, text, n, how, &ids, &count));
    ROOM_FOR(&c->ids, c->ids.n + count);
    if (count) memcpy(c->ids.at + c->ids.n, ids, (size_t)count * sizeof *ids);
    c->ids.n += count;
    return ERR_OK;
}

// Text that is encoded by itself.
static err_t put(chat *c, const void *text, int64_t n, int how, bool answer) {
    int64_t before = c->ids.n;
    if (n == 0) return ERR_OK;
    TRY(append(&c->text, text, n));
    TRY(c->e ? put_words(c, text, n, how) : put_bytes(c, text, n));
    ROOM_FOR(&c->marks, c->ids.n);
    memset(c->marks.at + before, answer, (size_t)(c->ids.n - before));
    c->marks.n = c->ids.n;
    return ERR_OK;
}

static err_t put_form(chat *c, const char *text, bool answer) {
    return put(c, text, (int64_t)strlen(text), ENCODE_SPECIAL, answer);
}

static err_t begin(chat *c) {
    c->text.n = c->marks.n = c->ids.n = 0;
    return put_form(c, c->form.begin, false);
}

// What is before a content.
static err_t put_head(chat *c, const char *role) {
    char head[96];
    if (!c->form.open) return ERR_OK;
    snprintf(head, sizeof head, "%s%s%s", c->form.open, role, c->form.head);
    return put_form(c, head, false);
}

static bool is_answer(const char *role) { return strcmp(role, "assistant") == 0; }

// The content is in c->content.
static err_t put_turn(chat *c, const char *role) {
    bool answer = is_answer(role);
    if (c->form.trims) strip_both(&c->content);
    TRY(put_head(c, role));
    TRY(put(c, c->content.at, c->content.n, ENCODE_TEXT, answer));
    if (!answer) return put_form(c, c->form.end_of_another, false);
    TRY(put_form(c, c->form.end, true));
    return put_form(c, c->form.after, false);
}

static void give(const chat *c, chat_tokens *out) {
    *out = (chat_tokens){c->ids.at, c->marks.at, c->ids.n, c->text.at, c->text.n};
}

// --- samples ---------------------------------------------------------------------------------------------------------

static bool is_blank(const bytes *x) {
    int64_t n = strip_end(x);
    return n == 0;
}

static err_t take_turn(chat *c, const char *role, const json_t *content, const char *what) {
    if (!json_is_string(content)) return err_set(ERR_DATA, "%s %s", what, content ? "is not a string" : "is missing");
    c->content.n = 0;
    TRY(append(&c->content, json_string_value(content), (int64_t)json_string_length(content)));
    if (is_answer(role) && is_blank(&c->content))
        return err_set(ERR_DATA, "%s is empty: there is nothing to learn from it; leave the sample out", what);
    return put_turn(c, role);
}

static err_t take_message(chat *c, const json_t *message, int64_t number, bool *answered) {
    static const char *const roles[] = {"system", "user", "assistant"};
    const char *role = json_string_value(json_object_get(message, "role"));
    char what[64];
    int k = 0;
    snprintf(what, sizeof what, "the content of message %" PRId64, number);
    if (!role) return err_set(ERR_DATA, "message %" PRId64 " has no role: system, user or assistant", number);
    while (k < 3 && strcmp(role, roles[k]) != 0) k++;
    if (k == 3)
        return err_set(ERR_DATA, "message %" PRId64 " has the role \"%.40s\", expected system, user or assistant",
                       number, role);
    *answered |= is_answer(role);
    return take_turn(c, role, json_object_get(message, "content"), what);
}

static err_t take_messages(chat *c, const json_t *messages) {
    const json_t *one;
    size_t i;
    bool answered = false;
    if (!json_is_array(messages)) return err_set(ERR_DATA, "its messages are not a list");
    json_array_foreach(messages, i, one) TRY(take_message(c, one, (int64_t)i + 1, &answered));
    return answered ? ERR_OK : err_set(ERR_DATA, "no message is the assistant's: there is nothing to learn from it");
}

err_t chat_encode(chat *c, const json_t *sample, chat_tokens *out) {
    const json_t *messages = json_object_get(sample, "messages"), *prompt = json_object_get(sample, "prompt");
    if (!json_is_object(sample) || (!messages && !prompt))
        return err_set(
            ERR_DATA, "expected an object with \"prompt\" and \"response\", or with \"messages\", such as {\"prompt\": "
                      "\"2+2?\", \"response\": \"4\"}");
    TRY(begin(c));
    if (messages) TRY(take_messages(c, messages));
    else {
        TRY(take_turn(c, "user", prompt, "its prompt"));
        TRY(take_turn(c, "assistant", json_object_get(sample, "response"), "its response"));
    }
    give(c, out);
    return ERR_OK;
}

err_t chat_ask(chat *c, const char *prompt, chat_tokens *out) {
    TRY(begin(c));
    c->content.n = 0;
    TRY(append(&c->content, prompt, (int64_t)strlen(prompt)));
    TRY(put_turn(c, "user"));
    TRY(put_head(c, "assistant"));
    give(c, out);
    return ERR_OK;
}
