// trainer/session/exam.c: see trainer/session/exam.h.
#include "trainer/session/exam.h"

#include "data/text/about.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static err_t open_of_shards(tokenizer **out, const about *a, char at[IO_PATH]) {
    if (!a->known || !a->vocabulary[0] || about_tokenizer(a, out, at) == ERR_OK) return ERR_OK;
    return err_prefix("[sample] tokenizer = bytes"), ERR_CONFIG;
}

static err_t check_vocab(const tokenizer *words, const char *path, const model *net) {
    int32_t vocab = tokenizer_about(words).vocab;
    if (vocab <= net->vocab) return ERR_OK;
    return err_set(ERR_CONFIG, "[sample] tokenizer = %s has ids up to %d, and the model knows %" PRId64 " tokens", path,
                   vocab - 1, net->vocab);
}

static err_t check_vocabulary(const tokenizer *words, const char *path, const about *a) {
    char hash[17];
    tokenizer_hash(words, hash);
    if (!a->known || strcmp(hash, a->vocabulary) == 0) return ERR_OK;
    return err_set(
        ERR_CONFIG,
        "[sample] tokenizer = %s: its vocabulary (%s) is not the one that the shards of [data] train were made with (%s, %s): leave the key out "
        "to use theirs",
        path, hash, a->tokenizer, a->vocabulary[0] ? a->vocabulary : "a token is a byte");
}

err_t exam_words(tokenizer **out, char at[IO_PATH], const config *c, const model *net, bool trains) {
    const char *path = c->sample.tokenizer;
    bool bytes = strcmp(path, "bytes") == 0;
    about a;
    *out = NULL;
    TRY(about_find(&a, c->data.train));
    if (at) TRY(io_path(at, "%s", bytes ? "" : path));
    if (bytes) TRY(open_of_shards(out, &a, at));
    else if (tokenizer_open(out, path) != ERR_OK) return config_blame(c, "sample", "tokenizer");
    if (*out) TRY(check_vocab(*out, bytes ? a.tokenizer : path, net));
    return *out && trains ? check_vocabulary(*out, path, &a) : ERR_OK;
}

err_t exam_fits(const config *c, const model *net) {
    const char *key = c->eval.text[0] ? "text" : "choices";
    if (!c->eval.text[0] && !c->eval.choices[0]) return ERR_OK;
    if (!net->vocab)
        return err_set(ERR_CONFIG,
                       "[eval] %s: a model of type %s predicts no tokens, so that there is no likelihood of a text",
                       key, net->type->name);
    if (net->reads)
        return err_set(
            ERR_CONFIG,
            "[eval] %s: a model of type %s says another text than it reads, and this asks how likely a text is "
            "to go on: leave it out",
            key, net->type->name);
    return ERR_OK;
}

static err_t open_words(exam *x, const config *c, const model *net) {
    TRY(exam_fits(c, net));
    TRY(exam_words(&x->words, NULL, c, net, false));
    return x->words ? ERR_OK : tokenizer_open(&x->words, "bytes");  // of bytes a text need not have all
}

static rows_from from_of(const exam *x, const config *c, const model *net, const char *path) {
    return (rows_from){
        .path = path, .words = x->words, .context = net->context, .vocab = net->vocab, .places = c->data.documents};
}

static err_t open_files(exam *x, const config *c, const model *net) {
    rows_from text = from_of(x, c, net, c->eval.text), choices = from_of(x, c, net, c->eval.choices);
    if (*text.path && passage_open(&x->text, &text, c->pack.text_key) != ERR_OK) return err_prefix("[eval] text");
    if (*choices.path && questions_open(&x->questions, &choices, c->eval.protocol) != ERR_OK)
        return err_prefix("[eval] choices");
    return ERR_OK;
}

err_t exam_open(exam *x, const config *c, const model *net) {
    *x = (exam){0};
    if (!c->eval.text[0] && !c->eval.choices[0]) return ERR_OK;
    TRY(open_words(x, c, net));
    TRY(open_files(x, c, net));
    int64_t rows = x->questions ? questions_about(x->questions).rows : 0;
    if (x->text.from && source_about(x->text.from).samples > rows) rows = source_about(x->text.from).samples;
    x->sums = malloc((size_t)rows * sizeof *x->sums);
    return x->sums ? ERR_OK : err_set(ERR_INTERNAL, "no memory for the losses of %" PRId64 " rows", rows);
}

void exam_close(exam *x) {
    passage_close(&x->text);
    questions_close(x->questions);
    tokenizer_close(x->words);
    free(x->sums);
    *x = (exam){0};
}

// Added in order of rows.
err_t exam_text(exam *x, evaluator *k, text_marks *out) {
    double sum = 0;
    int64_t rows = source_about(x->text.from).samples;
    TRY(evaluate_each(k, x->text.from, x->sums));
    for (int64_t i = 0; i < rows; i++) sum += x->sums[i];
    *out = (text_marks){.loss = sum / (double)x->text.tokens, .bits_per_byte = exam_bits(sum) / (double)x->text.bytes};
    return ERR_OK;
}

err_t exam_questions(exam *x, evaluator *k, answers *out) {
    TRY(evaluate_each(k, questions_source(x->questions), x->sums));
    *out = questions_mark(x->questions, x->sums);
    return ERR_OK;
}

bool exam_of_bytes(const config *c, const tokenizer *words, const model *net) {
    return net->vocab && net->vocab <= 256 && !words && strcmp(c->sample.tokenizer, "bytes") == 0;
}

double exam_bits(double loss) { return loss / M_LN2; }
