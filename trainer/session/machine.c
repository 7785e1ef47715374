// trainer/session/machine.c: see trainer/session/machine.h.
#include "trainer/session/machine.h"

#include "base/io.h"
#include "base/version.h"
#include "data/text/about.h"
#include "model/predict.h"
#include "trainer/session/tuned.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// --- device and model ------------------------------------------------------------------------------------------------

err_t session_open_device(session *x, int number) {
    const config *c = x->cfg;
    TRY(device_open(&x->dev, &(device_options){.kind = c->resolved.kind,
                                               .index = number,
                                               .threads = (int)c->device.threads,
                                               .width = c->device.simd,
                                               .products = c->precision.products,
                                               .check = c->device.check,
                                               .profile = x->kind == SESSION_PROFILE,
                                               .why = c->resolved.why[0] ? c->resolved.why : NULL}));
    return stream_open(x->dev, &x->s);
}

err_t session_open_model(session *x) { return model_open(&x->net, model_types[x->cfg->model.type], &x->cfg->model.of); }

// --- data ------------------------------------------------------------------------------------------------------------

int session_readers(const session *x) {
    enum { MOST = 8, BESIDE_GPU = 4 };
    if (x->cfg->data.workers) return (int)x->cfg->data.workers;
    int threads = !x->dev ? 1 : device_about(x->dev)->kind == DEVICE_CUDA ? BESIDE_GPU : device_about(x->dev)->threads;
    return threads < 1 ? 1 : threads < MOST ? threads : MOST;
}

static source_options source_options_of(session *x, const char *files, bool held_out) {
    const config *c = x->cfg;
    return (source_options){.files = files,
                            .format = c->data.format,
                            .wanted = x->net->input,
                            .inputs = x->net->inputs,
                            .ignores = c->data.ignore >= 0,
                            .ignored = c->data.ignore,
                            .answers = c->data.answers,
                            .documents = c->data.documents,
                            .document_end = c->data.document_end,
                            .mask = x->net->mask,
                            .begin = x->net->begin,
                            .end = x->net->end,
                            .window = x->net->window,
                            .left_out = x->net->left_out,
                            .spans = x->net->spans,
                            .held_out = c->data.holdout,
                            .only_held_out = held_out,
                            .view = {c->data.crop, c->data.area, c->data.shift, c->data.flip},
                            .readers = session_readers(x),
                            .packed = c->pack.output[0] ? c->pack.output : NULL,
                            .retry = (int)c->data.retry,
                            .faults = &x->faults};
}

static err_t open_split(session *x, source **out, const char *key, const char *files, bool held_out) {
    source_options o = source_options_of(x, files, held_out);
    return source_open(out, &o) == ERR_OK ? ERR_OK : config_blame(x->cfg, "data", key);
}

// What is known of the tokens of these files. A loss would say nothing of tokens that are not those of training.
static err_t find_about(const session *x, const char *what, const char *files, about *a) {
    about t = {0};
    *a = (about){0};
    if (files[0] && x->net->vocab) TRY(about_find(a, files));
    if (a->known && x->kind == SESSION_TRAIN) TRY(about_find(&t, x->cfg->data.train));
    if (!t.known || strcmp(a->vocabulary, t.vocabulary) == 0) return ERR_OK;
    return err_set(
        ERR_CONFIG,
        "%s was made with the tokenizer %s, and [data] train with %s: expected one vocabulary for both. Pack one of them again",
        what, a->tokenizer, t.tokenizer);
}

// How low the validation loss can be is known of stories.
static err_t find_possible(session *x) {
    const config *c = x->cfg;
    about a;
    TRY(find_about(x, "[data] val", c->data.holdout ? c->data.train : c->data.val, &a));
    x->possible = a.best_loss;
    return ERR_OK;
}

static err_t open_set(session *x, const eval_set *s) {
    char what[SET_NAME + 32];
    about a;
    named_set *to = &x->set[x->sets];
    source_options o = source_options_of(x, s->files, false);
    o.held_out = 0;
    snprintf(what, sizeof what, "the set %s of [eval] sets", s->name);
    TRY(find_about(x, what, s->files, &a));
    snprintf(to->name, sizeof to->name, "%s", s->name);
    if (source_open(&to->from, &o) != ERR_OK) {
        err_prefix("%s", s->name);
        return config_blame(x->cfg, "eval", "sets");
    }
    x->sets++;
    return ERR_OK;
}

// [eval] sets, or the one of them that is asked.
static err_t open_sets(session *x) {
    const char *only = x->cfg->eval_set;
    eval_sets s;
    TRY(sets_parse(&s, x->cfg->eval.sets));
    for (int i = 0; i < s.count; i++)
        if (!only || strcmp(only, s.at[i].name) == 0) TRY(open_set(x, &s.at[i]));
    return ERR_OK;
}

static err_t open_data(session *x) {
    const config *c = x->cfg;
    source_options o = source_options_of(x, "", false);
    if (x->kind >= SESSION_BENCH) return made_up_open(&x->train, &o, (uint64_t)c->run.seed, 4 * c->batch.global);
    if (x->kind != SESSION_INFERENCE) TRY(open_split(x, &x->train, "train", c->data.train, false));
    TRY(find_possible(x));
    TRY(open_sets(x));
    if (c->data.holdout) return open_split(x, &x->val, "train", c->data.train, true);
    if (!c->data.val[0]) return ERR_OK;
    TRY(open_split(x, &x->val, "val", c->data.val, false));
    if (source_about(x->val).best > 0) x->possible = source_about(x->val).best;
    return ERR_OK;
}

void session_part(const session *x, int k, char dst[SESSION_PART]) {
    int parts;
    const source_part *p = &source_parts(x->train, &parts)[k];
    double drawn = p->share * (double)x->cfg->run.steps * (double)x->cfg->batch.global;
    snprintf(dst, SESSION_PART, "%.*s: %.4g %% of the samples, %.2f epochs of its %" PRId64 " %s in %d file%s",
             SESSION_PART - 128, p->text, 100 * p->share, drawn / (double)p->about.samples, p->about.units,
             p->about.unit, p->about.files, p->about.files == 1 ? "" : "s");
}

// What a model of classes says of each validation sample is kept from an evaluation for people (trainer/answers.h).
static err_t open_answers(session *x) {
    bool texts = x->net->context > 0;  // whose F1 is said, too
    bool asked = x->kind == SESSION_TRAIN || (x->kind == SESSION_INFERENCE && (texts || x->cfg->eval_answers));
    bool says = x->net->says && x->kind == SESSION_INFERENCE;
    if (!x->val || !(says || (asked && x->net->classes))) return ERR_OK;
    int64_t samples = source_about(x->val).samples;
    if (says) x->replies = malloc((size_t)samples * sizeof *x->replies);
    else x->answers = malloc((size_t)samples * sizeof *x->answers);
    return x->replies || x->answers
               ? ERR_OK
               : err_set(ERR_INTERNAL, "no memory for the answers to %" PRId64 " samples", samples);
}

// --- text ------------------------------------------------------------------------------------------------------------

// A sample ends before what ends an answer, too. In a list of texts to stop at, a bar is written as two.
static void stop_at_end(session *x) {
    size_t n = strlen(x->stop);
    if (n) x->stop[n++] = '|';
    for (const char *c = chat_end(x->chat); *c && n + 2 < sizeof x->stop; c++) {
        if (*c == '|') x->stop[n++] = '|';
        x->stop[n++] = *c;
    }
    x->stop[n] = 0;
}

// What samples are written with. That it fits the model and the shards is known before the run, not at its end.
static err_t open_words(session *x) {
    if (!x->net->vocab || !x->cfg->sample.tokens || x->kind >= SESSION_BENCH) return ERR_OK;
    char at[IO_PATH];
    const config *c = x->cfg;
    TRY(exam_words(&x->words, at, c, x->net, x->kind == SESSION_TRAIN));
    snprintf(x->stop, sizeof x->stop, "%s", c->sample.stop);
    if (c->sample.template == CHAT_NO) return ERR_OK;
    if (chat_open(&x->chat, c->sample.template, at, x->words) != ERR_OK) return config_blame(c, "sample", "template");
    stop_at_end(x);
    return ERR_OK;
}

err_t session_encode(const session *x, encoder *e, const char *prompt, const int32_t **ids, int64_t *count) {
    chat_tokens asked;
    *ids = NULL, *count = (int64_t)strlen(prompt);
    if (!x->chat && !e) return ERR_OK;
    if (!x->chat) return encoder_encode(e, prompt, *count, ENCODE_TEXT | ENCODE_BEGIN, ids, count);
    TRY(chat_ask(x->chat, prompt, &asked));
    *ids = asked.ids, *count = asked.count;
    return ERR_OK;
}

err_t session_check_prompt(const session *x, const char *prompt) {
    const int32_t *ids = NULL;
    int64_t count = 0;
    encoder *e = NULL;
    if (!x->net->vocab || !x->cfg->sample.tokens) return ERR_OK;
    if (x->words) TRY(encoder_open(&e, x->words));
    err_t rc = session_encode(x, e, prompt, &ids, &count);
    if (rc == ERR_OK && (!e || count > 0)) rc = predict_check(x->net, prompt, ids, count);
    if (e) encoder_close(e);
    return rc;
}

// What is asked beside the validation loss; not of made-up samples.
static err_t open_exam(session *x) { return x->kind < SESSION_BENCH ? exam_open(&x->exam, x->cfg, x->net) : ERR_OK; }

// --- all of it -------------------------------------------------------------------------------------------------------

err_t session_machine_of(session *x, const config *c, session_kind kind, int device, atomic_long *passed) {
    *x = (session){.cfg = c, .given = c, .kind = kind};
    TRY(fault_parse(&x->faults, c->run.faults));
    x->faults.shared = passed;
    TRY(io_path(x->dir, "%s/%s", c->run.dir, c->run.name));
    TRY(session_open_device(x, device));
    if (c->device.plans[0] && kind != SESSION_TUNE && tuned_load(x->dev, c->device.plans, x->plans) != ERR_OK)
        return config_blame(c, "device", "plans");
    TRY(session_open_model(x));
    TRY(open_words(x));
    TRY(open_exam(x));
    if (kind == SESSION_TRAIN) TRY(session_check_prompt(x, c->sample.prompt));  // not hours later, when it samples
    TRY(open_data(x));
    return open_answers(x);
}

err_t session_machine(session *x, const config *c, session_kind kind, int device) {
    return session_machine_of(x, c, kind, device, NULL);
}

err_t session_data(session *x, const config *c) {
    *x = (session){.cfg = c, .kind = SESSION_TRAIN};
    TRY(session_open_model(x));
    return open_split(x, &x->train, "train", c->data.train, false);
}

err_t session_write_config(const session *x, const char *dir) {
    char path[IO_PATH], *text = NULL, hash[17], name[HOST_NAME_MAX + 1] = "";
    size_t size = 0;
    TRY(io_path(path, "%s/config.ini", dir));
    FILE *out = open_memstream(&text, &size);
    if (!out) return err_set(ERR_INTERNAL, "no memory for the effective configuration");
    if (gethostname(name, sizeof name) != 0) snprintf(name, sizeof name, "unknown");
    config_hash(x->cfg, hash);
    fprintf(out, "# lockstep %s  sources %s  config %s  data %s\n", version_text(), version_sources(), hash,
            source_about(x->train).hash);
    if (x->dev) fprintf(out, "# machine %s  device %s\n", name, device_about(x->dev)->name);
    config_print(x->cfg, out);
    err_t rc = fclose(out) == 0 ? io_write_file(path, text, size, NULL)
                                : err_set(ERR_INTERNAL, "no memory for the effective configuration");
    free(text);
    return rc;
}

void session_close_machine(session *x) {
    if (x->train) source_close(x->train);
    if (x->val) source_close(x->val);
    for (int i = 0; i < x->sets; i++) source_close(x->set[i].from);
    free(x->answers), free(x->replies);
    if (x->net) model_close(x->net);
    chat_close(x->chat);
    tokenizer_close(x->words);
    exam_close(&x->exam);
    if (x->s) stream_close(x->s);
    if (x->dev) device_close(x->dev);
}
