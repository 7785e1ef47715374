// data/text/chat_find.c: see data/text/chat_find.h. Templates are programs. One is recognised by its text alone, in
// which spaces, kinds of quotes and ways to name a member are made the same first.
#include "data/text/chat_find.h"

#include "base/io.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MOST = 1 << 26 };

#define CHATML_TURNS \
    "{%formessageinmessages%}{{'<|im_start|>'+message.role+'\\n'+message.content+'<|im_end|>\\n'}}{%endfor%}"
#define CHATML_ASKS "{%ifadd_generation_prompt%}{{'<|im_start|>assistant\\n'}}{%endif%}"
#define LLAMA3_HEAD "'<|start_header_id|>'+message.role+'<|end_header_id|>\\n\\n'+message.content|trim+'<|eot_id|>'"
#define LLAMA3_ASKS "{%ifadd_generation_prompt%}{{'<|start_header_id|>assistant<|end_header_id|>\\n\\n'}}{%endif%}"
#define ASKS_NOT "{%ifnotadd_generation_promptisdefined%}{%setadd_generation_prompt=false%}{%endif%}"

static const struct {
    chat_template is;
    const char *source;
} known[] = {
    {CHAT_CHATML, CHATML_TURNS},
    {CHAT_CHATML, CHATML_TURNS CHATML_ASKS},
    {CHAT_CHATML, ASKS_NOT CHATML_TURNS CHATML_ASKS},
    {CHAT_LLAMA3, "{%setloop_messages=messages%}{%formessageinloop_messages%}{%setcontent=" LLAMA3_HEAD
                  "%}{%ifloop.index0==0%}{%setcontent=bos_token+content%}{%endif%}{{content}}{%endfor%}" LLAMA3_ASKS},
    {CHAT_LLAMA3, "{{bos_token}}{%formessageinmessages%}{{" LLAMA3_HEAD "}}{%endfor%}" LLAMA3_ASKS},
};

// Replaces each `from` by `to`, which is not longer.
static void replace(char *text, const char *from, const char *to) {
    size_t n = strlen(from), m = strlen(to);
    char *put = text;
    for (const char *get = text; *get;) {
        if (strncmp(get, from, n) != 0) {
            *put++ = *get++;
            continue;
        }
        memcpy(put, to, m);
        put += m, get += n;
    }
    *put = 0;
}

// White space outside of strings goes.
static void join(char *text) {
    char *put = text;
    bool inside = false;
    for (const char *get = text; *get; get++) {
        inside ^= *get == '\'';
        if (inside || !strchr(" \n\r\t", *get)) *put++ = *get;
    }
    *put = 0;
}

static void same_way(char *text) {
    static const char *const pairs[][2] = {{"{%-", "{%"},
                                           {"-%}", "%}"},
                                           {"{{-", "{{"},
                                           {"-}}", "}}"},
                                           {"message['role']", "message.role"},
                                           {"message['content']", "message.content"},
                                           {"'+'", ""}};
    replace(text, "\"", "'");
    join(text);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) replace(text, pairs[i][0], pairs[i][1]);
}

chat_template chat_recognise(const char *source) {
    chat_template found = CHAT_NO;
    char *text = strdup(source);
    if (!text) return CHAT_NO;
    same_way(text);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i].source) == 0) found = known[i].is;
    free(text);
    return found;
}

// --- files -----------------------------------------------------------------------------------------------------------

// PATH/name, or where PATH is a file, name beside it.
static err_t beside(char out[IO_PATH], const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    TRY(io_path(out, "%s/%s", path, name));
    if (access(out, R_OK) == 0) return ERR_OK;
    return slash ? io_path(out, "%.*s/%s", (int)(slash - path), path, name) : io_path(out, "%s", name);
}

static const char *const choose = "name one in its place: chatml, llama3 or plain";

// The template in a tokenizer_config.json; NULL: it has none.
static const char *template_of(const json_t *config) {
    const json_t *said = json_object_get(config, "chat_template"), *one;
    size_t i;
    json_array_foreach(said, i, one) {
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && strcmp(name, "default") == 0) return json_string_value(json_object_get(one, "template"));
    }
    return json_string_value(said);
}

static err_t judge(chat_template *out, const char *path, const char *source) {
    *out = source ? chat_recognise(source) : CHAT_NO;
    if (*out != CHAT_NO) return ERR_OK;
    if (!source) return err_set(ERR_CONFIG, "%s has no chat_template: %s", path, choose);
    const char *like = strstr(source, "<|im_start|>")          ? "ChatML's, with more in it"
                       : strstr(source, "<|start_header_id|>") ? "Llama 3's, with more in it"
                                                               : "none that is known here";
    return err_set(ERR_CONFIG, "%s: its chat_template is %s: %s", path, like, choose);
}

static err_t judge_config(chat_template *out, const char *path, const char *text, size_t n) {
    json_error_t why;
    json_t *config = json_loadb(text, n, 0, &why);
    if (!config) return err_set(ERR_CONFIG, "%s: not valid JSON: %s", path, why.text);
    err_t rc = judge(out, path, template_of(config));
    json_decref(config);
    return rc;
}

err_t chat_find(chat_template *out, const char *path) {
    char at[IO_PATH], *text = NULL;
    size_t n;
    TRY(beside(at, path, "chat_template.jinja"));
    bool jinja = access(at, R_OK) == 0;
    if (!jinja) TRY(beside(at, path, "tokenizer_config.json"));
    if (!jinja && access(at, R_OK) != 0)
        return err_set(ERR_CONFIG, "there is no tokenizer_config.json beside the tokenizer %s: %s", path, choose);
    TRY(io_read_file(at, FILE_MOST, &text, &n));
    err_t rc = jinja ? judge(out, at, text) : judge_config(out, at, text, n);
    free(text);
    return rc;
}
