// trainer/prompts.c: the verb `sample`: continues a prompt of the command line, as it is read, or the prompts of a
// file, as lines of JSON.
#include "base/clock.h"
#include "base/utf8.h"
#include "data/text/document.h"
#include "model/predict.h"
#include "trainer/session/machine.h"
#include "trainer/session/restore.h"
#include "trainer/sample.h"
#include "trainer/verbs.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// --- one prompt: text as it grows ------------------------------------------------------------------------------------

typedef struct screen {
    FILE *out;
    bool terminal;
    bool full;  // it could not be written
} screen;

static void show(screen *s, const char *bytes, size_t n) {
    char *safe = s->terminal ? malloc(n + 6) : NULL;
    if (safe) {
        memcpy(safe, bytes, n), safe[n] = 0;
        utf8_printable(safe, n + 6, safe);  // in place: never grows
        s->full |= fputs(safe, s->out) < 0;
    } else if (n) s->full |= fwrite(bytes, 1, n, s->out) != n;
    if (s->terminal) s->full |= fflush(s->out) != 0;
    free(safe);
}

static void show_grown(void *ctx, int number, const char *bytes, size_t n) {
    (void)number;
    show(ctx, bytes, n);
}

// For the person who waits: how long the prompt took, and the tokens after it.
static void print_pace(const sample_text *t, double began) {
    double prompt = t->first_s - began, rest = t->last_s - t->first_s;
    if (!isatty(STDERR_FILENO) || t->tokens < 1) return;
    fprintf(stderr, "%" PRId64 " tokens of prompt in %.2f s, %" PRId64 " after it", t->prompt_tokens, prompt,
            t->tokens);
    if (t->tokens > 1 && rest > 0) fprintf(stderr, " at %.1f tokens/s", (double)(t->tokens - 1) / rest);
    fprintf(stderr, "\n");
}

static err_t sample_one(session *x, const char *prompt, FILE *out) {
    screen s = {.out = out, .terminal = isatty(fileno(out))};
    sample_text one = {.prompt = prompt};
    double began = clock_now();
    s.full = fputs(prompt, out) < 0 || (x->chat && fputs("\n", out) < 0);
    err_t rc = session_samples(x, &one, 1, &(sample_listener){show_grown, &s});
    if (rc == ERR_OK) s.full |= fputs("\n", out) < 0;
    if (rc == ERR_OK) print_pace(&one, began);
    free(one.text);
    if (rc == ERR_OK && s.full) return err_set(ERR_IO, "standard output: could not be written");
    return rc;
}

// --- a file of prompts -----------------------------------------------------------------------------------------------

// They are kept in memory, and so is what is written for them.
enum { PROMPTS = 1 << 20, PROMPTS_BYTES = 256 << 20 };

typedef struct prompt_list {
    sample_text *at;  // with prompts that are ours
    int count, room;
    int64_t bytes;  // of the prompts
    int printed;
    FILE *out;
    err_t failed;
} prompt_list;

static err_t add_prompt(prompt_list *l, const uint8_t *text, int64_t n) {
    if (memchr(text, 0, (size_t)n))
        return err_set(ERR_DATA, "prompt %d has a NUL byte, which no prompt can have", l->count + 1);
    if (l->count == PROMPTS || (l->bytes += n) > PROMPTS_BYTES)
        return err_set(ERR_DATA, "prompt %d: a file may have %d prompts of %d MiB in all: divide it", l->count + 1,
                       PROMPTS, PROMPTS_BYTES >> 20);
    if (l->count == l->room) {
        int room = l->room ? 2 * l->room : 64;
        sample_text *more = realloc(l->at, (size_t)room * sizeof *more);
        if (!more) return err_set(ERR_INTERNAL, "no memory for %d prompts", room);
        l->at = more, l->room = room;
    }
    char *own = strndup((const char *)text, (size_t)n);
    if (!own) return err_set(ERR_INTERNAL, "no memory for prompt %d", l->count + 1);
    l->at[l->count++] = (sample_text){.prompt = own};
    return ERR_OK;
}

static err_t read_lines(prompt_list *l, document_reader *d) {
    const uint8_t *line;
    int64_t n;
    for (bool more = true; more;) {
        TRY(document_line(d, &line, &n, &more));
        if (more) TRY(add_prompt(l, line, n > 0 && line[n - 1] == '\r' ? n - 1 : n));
    }
    return ERR_OK;
}

static err_t read_documents(prompt_list *l, document_reader *d, bytes *b) {
    bool ends, more;
    for (;; b->n = 0) {
        TRY(document_read(d, b, 1, &ends, &more));
        if (!more) return ERR_OK;
        TRY(add_prompt(l, b->at, b->n));
    }
}

static err_t read_prompts(prompt_list *l, const char *path) {
    document_reader *d;
    bytes b = {0};
    TRY(document_open(&d, path, "prompt"));
    err_t rc = document_is_jsonl(d) ? read_documents(l, d, &b) : read_lines(l, d);
    document_close(d);
    free(b.at);
    if (rc == ERR_OK && l->count == 0)
        rc = err_set(ERR_DATA, "%s: no prompt in it; expected a prompt a line, or JSONL with \"prompt\"", path);
    return rc;
}

static json_t *as_json(const char *text) {
    char *valid = malloc(3 * strlen(text) + 1);
    json_t *j = NULL;
    if (valid) utf8_replace(valid, text), j = json_string(valid);
    free(valid);
    return j;
}

static err_t print_sample(const sample_text *t, FILE *out) {
    json_t *line =
        json_pack("{s:o*,s:o*,s:I,s:I,s:s}", "prompt", as_json(t->prompt), "text", as_json(t->text), "prompt_tokens",
                  (json_int_t)t->prompt_tokens, "tokens", (json_int_t)t->tokens, "ended", t->ended);
    if (!line) return err_set(ERR_INTERNAL, "no memory for a line of JSON");
    bool ok =
        json_dumpf(line, out, JSON_COMPACT | JSON_PRESERVE_ORDER) == 0 && fputc('\n', out) != EOF && fflush(out) == 0;
    json_decref(line);
    return ok ? ERR_OK : err_set(ERR_IO, "standard output: could not be written");
}

// In the order of the prompts, each as soon as those before it have ended: what is written stays, whatever comes.
static void print_ended(void *ctx, int number, const char *bytes, size_t n) {
    prompt_list *l = ctx;
    (void)number, (void)bytes, (void)n;
    while (l->failed == ERR_OK && l->printed < l->count && l->at[l->printed].ended)
        l->failed = print_sample(&l->at[l->printed++], l->out);
}

static void prompts_close(prompt_list *l) {
    for (int i = 0; i < l->count; i++) free((void *)l->at[i].prompt), free(l->at[i].text);
    free(l->at);
}

// --- the verb --------------------------------------------------------------------------------------------------------

static err_t sample_session(session *x, const char *ckpt, const char *prompt, prompt_list *l) {
    bool initial;
    TRY(predict_can(x->net));  // before anything is written or read
    if (!l->count) TRY(session_check_prompt(x, prompt));
    for (int i = 0; i < l->count; i++)
        if (session_check_prompt(x, l->at[i].prompt) != ERR_OK) return err_prefix("prompt %d of the file", i + 1);
    TRY(session_weights(x, ckpt, &initial));
    if (initial) fprintf(stderr, "weights of %s: the run has no checkpoint yet\n", x->cfg->model.init_from);
    if (!l->count) return sample_one(x, prompt, l->out);
    TRY(session_samples(x, l->at, l->count, &(sample_listener){print_ended, l}));
    return l->failed;
}

err_t verb_sample(const config *c, const char *ckpt, const char *prompt, const char *prompts, FILE *out) {
    prompt_list l = {.out = out};
    session x = {0};
    config alone = *c;  // no data is needed
    alone.data.val[0] = 0;
    alone.data.holdout = 0;
    alone.eval.text[0] = alone.eval.choices[0] = alone.eval.sets[0] = 0;
    if (prompt && prompts) return err_set(ERR_USAGE, "--prompt and --prompts: expected one of them");
    err_t rc = prompts ? read_prompts(&l, prompts) : ERR_OK;
    if (rc != ERR_OK) err_prefix("--prompts");
    if (alone.sample.batch > l.count) alone.sample.batch = l.count ? l.count : 1;
    if (rc == ERR_OK) rc = session_open(&x, &alone, SESSION_INFERENCE, NULL);
    if (rc == ERR_OK) rc = sample_session(&x, ckpt, prompt ? prompt : c->sample.prompt, &l);
    session_close(&x);
    prompts_close(&l);
    return rc;
}
