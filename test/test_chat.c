// test/test_chat.c: conversations (data/text/chat.h): what is written of them, which tokens are marked, what `pack`
// makes of them, and which losses a run on them has.
#include "data/source.h"
#include "data/text/chat.h"
#include "data/text/chat_find.h"
#include "data/text/dataset.h"
#include "data/text/document.h"
#include "data/text/pack.h"
#include "data/text/shard.h"
#include "test/support/expect.h"
#include "test/support/golden.h"

#include <inttypes.h>
#include <math.h>

enum { LINES_MOST = 1 << 20 };

static json_t *json_of(const char *text) {
    char why[200];
    json_t *j = document_parse((const uint8_t *)text, (int64_t)strlen(text), why);
    if (!j) fail_msg("%s: %s", why, text);
    return j;
}

static chat *chat_of(chat_template kind, const char *path, const tokenizer *words) {
    chat *c;
    OK(chat_open(&c, kind, path, words));
    return c;
}

static chat_tokens encoded(chat *c, const char *sample) {
    chat_tokens t;
    json_t *j = json_of(sample);
    OK(chat_encode(c, j, &t));
    json_decref(j);
    return t;
}

static void expect_text(const chat_tokens *t, const char *text) {
    int64_t n = (int64_t)strlen(text);
    if (t->bytes != n || memcmp(t->text, text, (size_t)n) != 0)
        fail_msg("\"%.*s\", expected \"%s\"", (int)t->bytes, (const char *)t->text, text);
}

// --- what is written -------------------------------------------------------------------------------------------------

// Each line of test/golden/chat.jsonl has what transformers wrote.
static void templates_write_what_transformers_writes(void **state) {
    (void)state;
    char *text, *line, *rest;
    size_t n;
    int lines = 0;
    OK(io_read_file("test/golden/chat.jsonl", LINES_MOST, &text, &n));
    for (rest = text; (line = strtok_r(rest, "\n", &rest)); lines++) {
        json_t *j = json_of(line), *ask = json_object_get(j, "ask"), *sample = json_object_get(j, "sample");
        const char *kind = json_string_value(json_object_get(j, "template"));
        chat_template found = chat_recognise(json_string_value(json_object_get(j, "source")));
        assert_int_equal(found, strcmp(kind, "chatml") == 0 ? CHAT_CHATML : CHAT_LLAMA3);
        chat *c = chat_of(found, "bytes", NULL);
        chat_tokens t;
        OK(chat_encode(c, sample, &t));
        expect_text(&t, json_string_value(json_object_get(j, "text")));
        for (int64_t i = 0; i < t.count; i++) assert_int_equal(t.ids[i], t.text[i]);
        const json_t *first = json_array_get(json_object_get(sample, "messages"), 0);
        const json_t *prompt = first ? json_object_get(first, "content") : json_object_get(sample, "prompt");
        if (ask) {
            OK(chat_ask(c, json_string_value(prompt), &t));
            expect_text(&t, json_string_value(ask));
            for (int64_t i = 0; i < t.count; i++) assert_int_equal(t.marks[i], 0);
        }
        chat_close(c);
        json_decref(j);
    }
    assert_true(lines >= 16);
    free(text);
}

// `text` has a \1 before what is marked and a \2 after it.
static void expect_marked(chat_template kind, const char *sample, const char *text) {
    chat *c = chat_of(kind, "bytes", NULL);
    chat_tokens t = encoded(c, sample);
    int64_t i = 0;
    bool marked = false;
    for (const char *p = text; *p; p++) {
        if (*p == '\1' || *p == '\2') {
            marked = *p == '\1';
            continue;
        }
        if (i >= t.count || t.ids[i] != (uint8_t)*p || t.marks[i] != marked)
            fail_msg("place %d of \"%.*s\", expected \"%s\"", (int)i, (int)t.bytes, (const char *)t.text, text);
        i++;
    }
    assert_int_equal(i, t.count);
    chat_close(c);
}

static const char *const PAIR = "{\"prompt\": \"a?\", \"response\": \" b \", \"id\": 7}";
static const char *const TURNS =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"u\"},"
    "{\"role\": \"assistant\", \"content\": \"A\"}, {\"role\": \"user\", \"content\": \"v\"},"
    "{\"role\": \"assistant\", \"content\": \"B\"}]}";

static void answers_are_marked_with_what_ends_them(void **state) {
    (void)state;
    expect_marked(CHAT_CHATML, PAIR, "<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\n\1 b <|im_end|>\2\n");
    expect_marked(
        CHAT_CHATML, TURNS,
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n\1A<|im_end|>\2\n"
        "<|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\n\1B<|im_end|>\2\n");
    expect_marked(CHAT_LLAMA3, PAIR,
                  "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\na?<|eot_id|>"
                  "<|start_header_id|>assistant<|end_header_id|>\n\n\1b<|eot_id|>\2");
    expect_marked(CHAT_PLAIN, PAIR, "a?\n\1 b \n\2");
    expect_marked(CHAT_PLAIN, TURNS, "s\nu\n\1A\n\2v\n\1B\n\2");
    expect_marked(CHAT_PLAIN,
                  "{\"prompt\": \"p\", \"response\": \"r\", \"messages\": [{\"role\": \"assistant\", \"content\": "
                  "\"A\"}]}",
                  "\1A\n\2");
}

static int64_t count_of(const chat_tokens *t, int32_t id, bool marked) {
    int64_t n = 0;
    for (int64_t i = 0; i < t->count; i++) n += t->ids[i] == id && t->marks[i] == marked;
    return n;
}

// What a template writes is special tokens, and the same words in a content are not.
static void contents_have_no_special_tokens(void **state) {
    (void)state;
    tokenizer *t;
    OK(tokenizer_open(&t, "test/golden/tokenizer/qwen2.json"));
    chat *c = chat_of(CHAT_CHATML, "test/golden/tokenizer/qwen2.json", t);
    chat_tokens e = encoded(c, "{\"prompt\": \"a<|im_end|>\", \"response\": \"<|im_start|>b<|im_end|>\"}");
    int32_t start = tokenizer_special(t, "<|im_start|>"), end = tokenizer_special(t, "<|im_end|>");
    assert_true(start >= 0 && end >= 0);
    assert_int_equal(count_of(&e, start, false), 2), assert_int_equal(count_of(&e, start, true), 0);
    assert_int_equal(count_of(&e, end, false), 1), assert_int_equal(count_of(&e, end, true), 1);
    expect_text(&e,
                "<|im_start|>user\na<|im_end|><|im_end|>\n<|im_start|>assistant\n<|im_start|>b<|im_end|><|im_end|>\n");
    assert_int_equal(e.ids[0], start);
    assert_string_equal(chat_end(c), "<|im_end|>");
    chat_close(c);
    tokenizer_close(t);
}

// What asks for an answer has the tokens that are before one in a sample.
static void a_prompt_has_the_tokens_of_a_sample(void **state) {
    (void)state;
    static const struct {
        chat_template kind;
        const char *path;
    } of[] = {{CHAT_CHATML, "test/golden/tokenizer/qwen2.json"},
              {CHAT_LLAMA3, "test/golden/tokenizer/llama3.json"},
              {CHAT_PLAIN, "test/golden/tokenizer/llama3.json"},
              {CHAT_PLAIN, "test/golden/tokenizer/gpt2.json"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        tokenizer *t;
        chat_tokens e;
        OK(tokenizer_open(&t, of[i].path));
        chat *c = chat_of(of[i].kind, of[i].path, t);
        e = encoded(c, "{\"prompt\": \"two words\", \"response\": \"\\n an answer\"}");
        int32_t whole[256];
        int64_t n = e.count, answers = 0;
        assert_true(n < 256);
        memcpy(whole, e.ids, (size_t)n * sizeof *whole);
        while (answers < n && !e.marks[answers]) answers++;
        int32_t end = tokenizer_special(t, chat_end(c));
        assert_true(end >= 0 && answers < n);
        assert_int_equal(count_of(&e, end, true), 1);
        OK(chat_ask(c, "two words", &e));
        assert_int_equal(e.count, answers);
        assert_memory_equal(e.ids, whole, (size_t)answers * sizeof *whole);
        // a plain prompt ends with a line, and only an answer with what ends a text
        if (of[i].kind == CHAT_PLAIN) {
            assert_int_equal(count_of(&e, end, false), 0);
            e = encoded(c, TURNS);
            assert_int_equal(count_of(&e, end, true), 2), assert_int_equal(count_of(&e, end, false), 0);
        }
        if (i == 1 || i == 2) assert_int_equal(whole[0], tokenizer_special(t, "<|begin_of_text|>"));
        chat_close(c);
        tokenizer_close(t);
    }
}

// --- which template --------------------------------------------------------------------------------------------------

#define ML \
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\\\n' + message['content'] + '<|im_end|>' + '\\\\n'}}{% endfor %}"

#define L3 \
    "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>'"
#define L3_ASKS "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"

// Each form of a template that is known, and none that says a little more or less.
static void forms_of_templates_are_known(void **state) {
    (void)state;
    static const char turns[] = "{%- for message in messages -%}{{- \"<|im_start|>\" + message.role + '\\n' + "
                                "message[\"content\"] + '<|im_end|>' + '\\n' -}}{%- endfor -%}";
    static const char asks[] = "\n{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
    static const char not [] =
        "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}";
    static const char loop[] =
        "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = " L3
        " %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
        "{{ content }}{% endfor %}" L3_ASKS;
    static const char short_loop[] = "{{ bos_token }}{% for message in messages %}{{ " L3 " }}{% endfor %}" L3_ASKS;
    static const struct {
        const char *parts[3];
        chat_template is;
    } all[] = {{{turns, "", ""}, CHAT_CHATML},
               {{turns, asks, ""}, CHAT_CHATML},
               {{not, turns, asks}, CHAT_CHATML},
               {{loop, "", ""}, CHAT_LLAMA3},
               {{short_loop, "", ""}, CHAT_LLAMA3},
               {{not, turns, ""}, CHAT_NO},
               {{turns, asks, "."}, CHAT_NO},
               {{asks, "", ""}, CHAT_NO},
               {{"x", turns, asks}, CHAT_NO},
               {{short_loop, L3_ASKS, ""}, CHAT_NO},
               {{"", "", ""}, CHAT_NO}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[2048];
        snprintf(text, sizeof text, "%s%s%s", all[i].parts[0], all[i].parts[1], all[i].parts[2]);
        if (chat_recognise(text) != all[i].is) fail_msg("%s is %d", text, (int)chat_recognise(text));
    }
}

static void files_say_which_template(void **state) {
    (void)state;
    char *dir = make_dir(), path[1100];
    chat_template k;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    assert_error(chat_find(&k, path), ERR_CONFIG, "no tokenizer_config.json", "chatml, llama3 or plain");
    write_text(dir, "tokenizer_config.json", "{\"chat_template\": \"" ML "\"}");
    OK(chat_find(&k, path));
    assert_int_equal(k, CHAT_CHATML);
    OK(chat_find(&k, dir));
    assert_int_equal(k, CHAT_CHATML);
    write_text(
        dir, "tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"tool\", \"template\": \"x\"}, {\"name\": \"default\", \"template\": \"" ML
        "\"}]}");
    OK(chat_find(&k, path));
    write_text(dir, "tokenizer_config.json", "{\"chat_template\": \"{{ 'You are a robot' }}" ML "\"}");
    assert_error(chat_find(&k, path), ERR_CONFIG, "tokenizer_config.json", "ChatML's, with more in it",
                 "chatml, llama3 or plain");
    write_text(dir, "tokenizer_config.json",
               "{\"chat_template\": \"{{ date }}<|start_header_id|>{{ x }}<|end_header_id|>\"}");
    assert_error(chat_find(&k, path), ERR_CONFIG, "Llama 3's, with more in it", "chatml, llama3 or plain");
    write_text(dir, "tokenizer_config.json", "{\"chat_template\": \"[INST] {{ x }}\"}");
    assert_error(chat_find(&k, path), ERR_CONFIG, "none that is known here");
    write_text(dir, "tokenizer_config.json", "{}");
    assert_error(chat_find(&k, path), ERR_CONFIG, "has no chat_template");
    write_text(dir, "tokenizer_config.json", "{\"chat");
    assert_error(chat_find(&k, path), ERR_CONFIG, "not valid JSON");
    write_text(
        dir, "chat_template.jinja",
        "{% for message in messages %}{{'<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n'}}{% endfor %}\n");
    OK(chat_find(&k, path));
    assert_int_equal(k, CHAT_CHATML);
    chat *c;
    assert_error(chat_open(&c, CHAT_AUTO, "bytes", NULL), ERR_CONFIG, "chatml, llama3 or plain");
    drop_dir(dir);
}

// --- pack ------------------------------------------------------------------------------------------------------------

typedef struct job {
    char *dir, input[1100], output[1100], files[1200];
} job;

static job job_of(const char *text) {
    job j = {.dir = make_dir()};
    write_text(j.dir, "in.jsonl", text);
    snprintf(j.input, sizeof j.input, "%s/in.jsonl", j.dir);
    snprintf(j.output, sizeof j.output, "%s/x", j.dir);
    snprintf(j.files, sizeof j.files, "%s/x-train-*.bin", j.dir);
    return j;
}

static err_t pack_job(const job *j, chat_template kind, int64_t context, int64_t shard, double val, bool compress,
                      pack_report *r) {
    return pack_run(&(pack_options){.input = j->input,
                                    .output = j->output,
                                    .shard_tokens = shard,
                                    .val_fraction = val,
                                    .compress = compress,
                                    .template = kind,
                                    .context = context},
                    r);
}

static err_t open_rows(source **s, const char *files, int64_t T, bool answers) {
    tensor_spec wanted[] = {{.name = "tokens", .type = INT32, .dims = 1, .size = {T, 1, 1}, .limit = 256},
                            {.name = "targets", .type = INT32, .dims = 1, .size = {T, 1, 1}, .limit = 256}};
    return source_open(s, &(source_options){.files = files, .wanted = wanted, .inputs = 2, .answers = answers});
}

// Sample k is this text, with a \1 where the answer begins, in T+1 tokens.
static void expect_row(source *s, int64_t k, int64_t T, const char *text) {
    int32_t tokens[64], targets[64];
    const char *answer = strchr(text, '\1');
    int64_t first = answer - text, n = (int64_t)strlen(text) - 1;
    assert_true(T <= 64);
    OK(source_look(s, k, (void *[]){tokens, targets}));
    for (int64_t t = 0; t < T; t++) {
        int64_t next = t + 1;
        int32_t token = t >= n ? 0 : (uint8_t)text[t < first ? t : t + 1],
                target = next < n && next >= first ? (uint8_t)text[next + 1] : -1;
        if (tokens[t] != token || targets[t] != target)
            fail_msg("sample %d, place %d: %d and %d, expected %d and %d", (int)k, (int)t, tokens[t], targets[t], token,
                     target);
    }
}

static const char *const FIVE = "{\"prompt\": \"p\", \"response\": \"one\"}\n"
                                "{\"prompt\": \"exactly\", \"response\": \"12\"}\n\n  \r\n"
                                "{\"prompt\": \"cut\", \"response\": \"0123456789\"}\n"
                                "{\"prompt\": \"all is a prompt\", \"response\": \"lost\"}\n"
                                "{\"prompt\": \"\", \"response\": \"r\"}";

// Eleven tokens a row, two rows a shard.
static void samples_become_rows(void **state) {
    (void)state;
    enum { T = 10 };
    for (int compress = 0; compress < 2; compress++) {
        job j = job_of(FIVE);
        pack_report r;
        source *s;
        OK(pack_job(&j, CHAT_PLAIN, T, 30, 0, compress, &r));
        assert_int_equal(r.documents, 4), assert_int_equal(r.cut, 1), assert_int_equal(r.left_out, 1);
        assert_int_equal(r.answers, 4 + 3 + 7 + 2);
        assert_int_equal(r.train_tokens, 4 * (T + 1)), assert_int_equal(r.shards_out, 2);
        OK(open_rows(&s, j.files, T, true));
        assert_int_equal(source_about(s).samples, 4);
        expect_row(s, 0, T, "p\n\1one\n");
        expect_row(s, 1, T, "exactly\n\00112\n");
        expect_row(s, 2, T, "cut\n\0010123456");
        expect_row(s, 3, T, "\n\1r\n");
        source_close(s);
        drop_dir(j.dir);
    }
}

// The first token of a row is no target: of what begins with an answer it does not count.
static void the_first_token_is_no_target(void **state) {
    (void)state;
    job j = job_of("{\"messages\": [{\"role\": \"assistant\", \"content\": \"abc\"}, {\"role\": \"user\", \"content\": "
                   "\"d\"}]}\n");
    pack_report r;
    source *s;
    int32_t tokens[10], targets[10];
    static const int32_t want[] = {'b', 'c', '\n', -1, -1, -1};
    OK(pack_job(&j, CHAT_PLAIN, 10, 1000, 0, false, &r));
    assert_int_equal(r.answers, 3);
    OK(open_rows(&s, j.files, 10, true));
    OK(source_look(s, 0, (void *[]){tokens, targets}));
    assert_memory_equal(targets, want, sizeof want);
    source_close(s);
    drop_dir(j.dir);
}

// A row is never divided, neither between shards nor between training and validation.
static void rows_stay_whole(void **state) {
    (void)state;
    job j = job_of(FIVE);
    pack_report r;
    OK(pack_job(&j, CHAT_PLAIN, 10, 1, 0.3, false, &r));
    assert_int_equal(r.train_tokens, 2 * 11), assert_int_equal(r.val_tokens, 2 * 11), assert_int_equal(r.shards_out, 4);
    drop_dir(j.dir);
}

static void what_is_wrong_is_said_with_its_line(void **state) {
    (void)state;
    static const struct {
        const char *line, *says;
    } bad[] = {
        {"{\"prompt\": \"a\"}", "its response is missing"},
        {"{\"prompt\": \"a\", \"response\": \" \\n\"}", "its response is empty"},
        {"{\"prompt\": \"a\", \"response\": 7}", "its response is not a string"},
        {"{\"prompt\": [], \"response\": \"b\"}", "its prompt is not a string"},
        {"{\"response\": \"b\"}", "expected an object with \"prompt\" and \"response\""},
        {"[1]", "expected an object"},
        {"{\"prompt\": ", "not valid JSON"},
        {"{\"messages\": {}}", "not a list"},
        {"{\"messages\": []}", "no message is the assistant's"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", "no message is the assistant's"},
        {"{\"messages\": [{\"content\": \"a\"}]}", "message 1 has no role"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"tool\", \"content\": \"\"}]}",
         "message 2 has the role \"tool\""},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"\"}]}", "the content of message 1 is empty"},
        {"{\"messages\": [{\"role\": \"assistant\"}]}", "the content of message 1 is missing"},
        {"{\"messages\": [7]}", "message 1 has no role"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[400];
        snprintf(text, sizeof text, "%s\n\n%s\n", PAIR, bad[i].line);
        job j = job_of(text);
        pack_report r;
        assert_error(pack_job(&j, CHAT_CHATML, 200, 1000, 0, false, &r), ERR_DATA, "in.jsonl: line 3: ", bad[i].says);
        drop_dir(j.dir);
    }
}

static void what_cannot_be_packed_is_refused(void **state) {
    (void)state;
    pack_report r;
    job j = job_of(PAIR);
    assert_error(pack_job(&j, CHAT_CHATML, 20, 1000, 0, false, &r), ERR_DATA, "no sample has an answer",
                 "1 were left out", "raise [model] context");
    assert_error(pack_job(&j, CHAT_AUTO, 20, 1000, 0, false, &r), ERR_CONFIG, "[pack] template", "name it");
    snprintf(j.input, sizeof j.input, "stories:1:100");
    assert_error(pack_job(&j, CHAT_PLAIN, 20, 1000, 0, false, &r), ERR_DATA, "stories:1:100", ".jsonl");
    drop_dir(j.dir);
}

// --- the run's side --------------------------------------------------------------------------------------------------

static void a_run_must_ask_for_answers(void **state) {
    (void)state;
    job j = job_of(FIVE);
    char other[1200];
    pack_report r;
    source *s;
    OK(pack_job(&j, CHAT_PLAIN, 10, 1000, 0, false, &r));
    assert_error(open_rows(&s, j.files, 10, false), ERR_CONFIG, "set [data] answers = yes");
    assert_error(open_rows(&s, j.files, 9, true), ERR_CONFIG, "context = 10", "reads 9");
    snprintf(j.output, sizeof j.output, "%s/y", j.dir);
    OK(pack_run(&(pack_options){.input = "LICENSE", .output = j.output, .shard_tokens = 100000}, &r));
    snprintf(other, sizeof other, "%s/y-train-00000.bin", j.dir);
    assert_error(open_rows(&s, other, 10, true), ERR_CONFIG, "[data] answers = yes", "[pack] template");
    snprintf(other, sizeof other, "%s %s/y-train-00000.bin", j.files, j.dir);
    assert_error(open_rows(&s, other, 10, true), ERR_DATA, "answers are marked in it, and not in");
    snprintf(j.output, sizeof j.output, "%s/z", j.dir);
    OK(pack_job(&j, CHAT_PLAIN, 12, 1000, 0, false, &r));
    snprintf(other, sizeof other, "%s %s/z-train-00000.bin", j.files, j.dir);
    assert_error(open_rows(&s, other, 10, true), ERR_DATA, "have 13 tokens", "11");
    drop_dir(j.dir);
}

// A header that agrees with its checksum and not with itself.
static void rows_of_a_header_are_checked(void **state) {
    (void)state;
    static const struct {
        int at, bytes;
        uint32_t value;
        const char *says;
    } lies[] = {{52, 4, 1, "offset 52"}, {52, 4, 0, "offset 52"}, {52, 4, 5, "offset 24"}, {56, 4, 1, "offset 56"},
                {16, 4, 0, "offset 52"}, {16, 4, 4, "offset 16"}, {16, 4, 8, "offset 16"}, {12, 4, 1, "offset 12"}};
    job j = job_of(FIVE);
    pack_report r;
    char path[1200], *good;
    size_t n;
    OK(pack_job(&j, CHAT_PLAIN, 10, 1000, 0, false, &r));
    snprintf(path, sizeof path, "%s/x-train-00000.bin", j.dir);
    OK(io_read_file(path, LINES_MOST, &good, &n));
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        uint8_t *copy = malloc(n);
        memcpy(copy, good, n);
        le32_put(copy + lies[i].at, lies[i].value);
        le32_put(copy + 60, (uint32_t)crc32(0, copy, 60));
        OK(io_write_file(path, copy, n, NULL));
        dataset *d;
        assert_error(dataset_open(&d, &(dataset_options){.files = path}), ERR_DATA, "x-train", lies[i].says);
        free(copy);
    }
    free(good);
    drop_dir(j.dir);
}

// The hash of the data knows the marks, and not how the blocks are stored.
static void the_hash_knows_the_marks(void **state) {
    (void)state;
    char hash[4][17];
    const char *texts[] = {
        "{\"prompt\": \"ab\", \"response\": \"c\"}", "{\"prompt\": \"ab\", \"response\": \"c\"}",
        "{\"messages\": [{\"role\": \"assistant\", \"content\": \"ab\"}, {\"role\": \"assistant\", \"content\": \"c\"}]}"};
    for (int i = 0; i < 3; i++) {
        job j = job_of(texts[i]);
        pack_report r;
        source *s;
        OK(pack_job(&j, CHAT_PLAIN, 60, 1000, 0, i == 1, &r));
        OK(open_rows(&s, j.files, 60, true));
        strcpy(hash[i], source_about(s).hash);
        source_close(s);
        drop_dir(j.dir);
    }
    assert_string_equal(hash[0], hash[1]);
    assert_string_not_equal(hash[0], hash[2]);
}

// --- losses ----------------------------------------------------------------------------------------------------------

// The ten steps of test/golden/make_masked.py: the mean over the answers of a step, however many there are.
static void losses_agree_with_ignore_index_of_pytorch(void **state) {
    (void)state;
    static const char *const batches[] = {"[batch]\nmicro = 6\nlanes = 1\n", "[batch]\nmicro = 1\nlanes = 2\n",
                                          "[batch]\nmicro = 3\nlanes = 2\n"};
    for (int b = 0; b < 3; b++) {
        job j = job_of("");
        session x;
        config c;
        pack_report r;
        char more[1600], *text, *line, *rest;
        size_t n;
        snprintf(j.input, sizeof j.input, "test/golden/masked.jsonl");
        OK(pack_job(&j, CHAT_PLAIN, 32, 100000, 0, false, &r));
        assert_int_equal(r.documents, 60), assert_int_equal(r.left_out, 1);
        snprintf(more, sizeof more, "[data]\ntrain = %s/x-train-00000.bin\nformat = auto\nanswers = yes\n%s", j.dir,
                 batches[b]);
        golden_open(&x, &c, j.dir, more);
        OK(io_read_file("test/golden/masked.txt", LINES_MOST, &text, &n));
        int64_t steps = 0, counted = 0;
        for (rest = text; (line = strtok_r(rest, "\n", &rest)); steps++) {
            double step, loss, norm, count;
            step_result s;
            assert_int_equal(sscanf(line, "%lf %lf %lf %lf", &step, &loss, &norm, &count), 4);
            OK(session_step(&x, &s));
            if (!(fabs(s.loss - loss) <= 1e-6 * loss && fabs(s.grad_norm - norm) <= 1e-5 * norm))
                fail_msg("batch %d, step %.0f: loss %.9f, norm %.9f, PyTorch %.9f, %.9f", b, step, s.loss, s.grad_norm,
                         loss, norm);
            counted += (int64_t)count;
        }
        assert_int_equal(steps, 10);
        assert_int_equal(counted, r.answers);
        free(text);
        session_close(&x);
        drop_dir(j.dir);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_write_what_transformers_writes),
        cmocka_unit_test(answers_are_marked_with_what_ends_them),
        cmocka_unit_test(contents_have_no_special_tokens),
        cmocka_unit_test(a_prompt_has_the_tokens_of_a_sample),
        cmocka_unit_test(forms_of_templates_are_known),
        cmocka_unit_test(files_say_which_template),
        cmocka_unit_test(samples_become_rows),
        cmocka_unit_test(the_first_token_is_no_target),
        cmocka_unit_test(rows_stay_whole),
        cmocka_unit_test(what_is_wrong_is_said_with_its_line),
        cmocka_unit_test(what_cannot_be_packed_is_refused),
        cmocka_unit_test(a_run_must_ask_for_answers),
        cmocka_unit_test(rows_of_a_header_are_checked),
        cmocka_unit_test(the_hash_knows_the_marks),
        cmocka_unit_test(losses_agree_with_ignore_index_of_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
