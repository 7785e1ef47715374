// trainer/session/evaluate.c: see trainer/session/evaluate.h.
#include "trainer/session/evaluate.h"

#include "base/fmath.h"
#include "trainer/session/auc.h"
#include "trainer/session/correlate.h"
#include "trainer/step/executor.h"
#include "trainer/step/outer.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Samples of a round: a micro-batch of each rank that has its own.
static int64_t round_samples(const evaluator *k) { return step_round(k->r); }

// Rows of results that hold what a model of classes says, and a model that says answers.
enum { ANSWER_CLASS, ANSWER_SURE, ANSWER_LABEL };
enum { ANSWER_AT, ANSWER_TOKEN, TEXT_ROWS };

// The label is needed of a model that ranks.
static int answer_rows(const step_runner *r) {
    if (r->net->says) return TEXT_ROWS;
    return r->net->ranks ? ANSWER_LABEL + 1 : r->net->classes ? ANSWER_SURE + 1 : 0;
}

static int results_rows(const step_runner *r) { return 1 + r->net->metrics + step_weighs(r) + answer_rows(r); }

static int first_answer_row(const step_runner *r) { return results_rows(r) - answer_rows(r); }

static err_t declare_scores(evaluator *k) {
    step_runner *r = k->r;
    int64_t V = r->net->vocab, texts = r->texts ? r->texts : 1, C = r->net->classes, B = r->cfg->resolved.micro;
    if (C) {
        TRY(arena_2d(&r->memory, &k->scores, FP32, B, C));
        TRY(arena_2d(&r->staging, &k->host_scores, FP32, B, C));
        if (r->net->ranks) TRY(arena_2d(&r->staging, &k->buckets, FP64, 2, AUC_BUCKETS));
        return arena_2d(&r->staging, &k->host_answers, FP64, answer_rows(r), B);
    }
    if (!V) return ERR_OK;
    if (r->net->says) {
        TRY(arena_2d(&r->memory, &k->said, FP32, B, r->net->losses));
        TRY(arena_2d(&r->staging, &k->host_said, FP32, B, r->net->losses));
        TRY(arena_2d(&r->staging, &k->host_answers, FP64, 1 + TEXT_ROWS, B));
    }
    TRY(arena_2d(&r->memory, &k->scores, FP32, texts, V));
    TRY(arena_2d(&r->staging, &k->host_scores, FP32, texts + 1, V));
    TRY(arena_2d(&r->staging, &k->context, INT32, texts, r->net->context));
    return arena_1d(&r->staging, &k->latest, INT32, texts);
}

err_t evaluator_declare(evaluator *k, step_runner *r) {
    int64_t B = r->cfg->resolved.micro, rows = results_rows(r);
    *k = (evaluator){.r = r};
    for (int i = 0; i < r->net->inputs; i++) {
        tensor x = r->inputs.slot[0].in[i];
        TRY(arena_tensor(&r->staging, &k->host_in[i], x.type, x.dims, x.size[0], x.size[1], x.size[2], x.size[3]));
    }
    if (r->net->metrics && !r->net->says) TRY(arena_2d(&r->memory, &k->metrics, FP64, r->net->metrics, B));
    TRY(arena_2d(&r->memory, &k->results, FP64, rows, round_samples(k)));
    TRY(arena_2d(&r->staging, &k->host_results, FP64, rows, round_samples(k)));
    return declare_scores(k);
}

// What is evaluated: the first `samples` of a source.
typedef struct job {
    source *from;
    int64_t samples;
    int64_t T;              // tokens of a sample, each with a loss; 0: the model has none
    int64_t losses;         // of a sample
    evaluation *sum;        // (+=) losses and metrics of samples
    double *each;           // (samples) (=) the mean loss of each; NULL: not wanted
    double counted;         // (+=) targets that count, where some are ignored
    class_answer *answers;  // (samples) (=) what the model says of each; NULL: not wanted
    text_answer *texts;     // (samples) (=) what a model of answers says of each; NULL: not wanted
    bool asks;              // what it says is wanted
    bool lost;              // a chance is NaN: nothing is ranked
    double *numbers;        // (metrics, samples) (=) the metrics of each; NULL: their sums are wanted
} job;

static job job_of(const evaluator *k, source *from) {
    int64_t T = k->r->net->vocab && !k->r->net->reads ? from->tensor[from->place[0]].size[0] : 0;
    return (job){.from = from, .samples = source_about(from).samples, .T = T, .losses = T ? T : k->r->net->losses};
}

// Bytes of input i of a sample, which the source may have in another shape.
static size_t input_bytes(const job *j, int i) { return spec_bytes(&j->from->tensor[j->from->place[i]]); }

// Reads B samples and brings them to the device.
static err_t load_samples(evaluator *k, const job *j, int64_t first, int64_t B) {
    step_runner *r = k->r;
    for (int64_t b = 0; b < B; b++) {
        void *to[MODEL_INPUTS];
        for (int i = 0; i < r->net->inputs; i++) to[i] = (char *)k->host_in[i].data + (size_t)b * input_bytes(j, i);
        TRY(source_look(j->from, first + b, to));
    }
    for (int i = 0; i < r->net->inputs; i++)
        TRY(stream_copy(r->s, inputs_now(&r->inputs)[i].data, k->host_in[i].data, (size_t)B * input_bytes(j, i)));
    return ERR_OK;
}

// Row `row` of `results`, on the host or on the device.
static double *results_row(const evaluator *k, const tensor *results, int row) {
    return (double *)results->data + row * round_samples(k);
}

// Softmax over n logits. Sums are doubles, in order of index.
static class_answer answer_of(const float *x, int64_t n) {
    int64_t best = 0;
    double total = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    for (int64_t i = 0; i < n; i++) total += fm_exp((double)x[i] - (double)x[best]);
    return (class_answer){(int32_t)best, 1 / total};
}

// From the scores of B samples, into this rank's columns of `results`.
static err_t answer_samples(evaluator *k, int64_t B) {
    step_runner *r = k->r;
    int64_t C = r->net->classes;
    double *host = k->host_answers.data;
    int64_t micro = r->cfg->resolved.micro;
    const float *scores = k->host_scores.data;
    const int32_t *label = k->host_in[r->net->targets].data;
    TRY(stream_copy(r->s, k->host_scores.data, k->scores.data, (size_t)(B * C) * sizeof(float)));
    TRY(stream_wait(r->s));
    for (int64_t b = 0; b < B; b++) {
        class_answer a = answer_of(scores + b * C, C);
        host[ANSWER_CLASS * micro + b] = a.class, host[ANSWER_SURE * micro + b] = a.sure;
        if (r->net->ranks) host[ANSWER_LABEL * micro + b] = label[b];
    }
    for (int i = 0; i < answer_rows(r); i++)
        TRY(stream_copy(r->s, results_row(k, &k->results, first_answer_row(r) + i) + step_share(r), host + i * micro,
                        (size_t)B * sizeof *host));
    return ERR_OK;
}

static text_answer text_answer_of(const int32_t *targets, const float *said, int64_t n) {
    for (int64_t t = 0; t < n; t++)
        if (targets[t] >= 0 && -said[t] != (float)targets[t])
            return (text_answer){(int32_t)t, -said[t] < FIRST_EQUAL_NONE ? (int32_t)-said[t] : -1};
    return (text_answer){-1, -1};
}

// From what is said of B samples, into this rank's columns of `results`: the metric, and the answers.
static err_t say_samples(evaluator *k, int64_t B) {
    step_runner *r = k->r;
    int64_t T = r->net->losses, micro = r->cfg->resolved.micro;
    const float *said = k->host_said.data;
    const int32_t *targets = k->host_in[r->net->targets].data;
    double *at = k->host_answers.data, *token = at + micro, *right = token + micro;
    TRY(stream_copy(r->s, k->host_said.data, k->said.data, (size_t)(B * T) * sizeof *said));
    TRY(stream_wait(r->s));
    for (int64_t b = 0; b < B; b++) {
        text_answer a = text_answer_of(targets + b * T, said + b * T, T);
        at[b] = a.at, token[b] = a.token, right[b] = a.at < 0;
    }
    for (int i = 0; i < TEXT_ROWS; i++)
        TRY(stream_copy(r->s, results_row(k, &k->results, first_answer_row(r) + i) + step_share(r), at + i * micro,
                        (size_t)B * sizeof *at));
    return stream_copy(r->s, results_row(k, &k->results, 1) + step_share(r), right, (size_t)B * sizeof *right);
}

// Losses and metrics of B samples, into this rank's columns of `results`.
static err_t run_samples(evaluator *k, const job *j, int64_t B) {
    step_runner *r = k->r;
    pass p = executor_pass(r, B);
    double *mine = (double *)k->results.data + step_share(r);
    tensor means = {mine, FP64, 1, {B, 1, 1, 1}};
    if (k->metrics.data) p.metrics = view2(&k->metrics, r->net->metrics, B);
    if (r->net->says) p.said = view2(&k->said, B, r->net->losses);
    for (int i = 0; j->T && i < r->net->inputs; i++) p.in[i] = view2(&p.in[i], B, j->T);
    if (j->T) p.losses = view2(&r->losses, B, j->T);
    if (j->asks) p.scores = view2(&k->scores, B, r->net->classes);
    TRY(executor_forward(r, &p));
    if (!step_ends(r) || !step_contributes(r)) return ERR_OK;
    if (j->asks) TRY(answer_samples(k, B));
    if (r->net->says) TRY(say_samples(k, B));
    TRY(p.ops->loss_means(&(loss_means_args){.means = &means, .losses = &p.losses}, r->s));
    for (int i = 0; p.metrics.data && i < r->net->metrics; i++)
        TRY(stream_copy(r->s, mine + (1 + i) * round_samples(k), (double *)p.metrics.data + i * B,
                        (size_t)B * sizeof(double)));
    if (!step_weighs(r)) return ERR_OK;
    tensor counts = {results_row(k, &k->results, 1 + r->net->metrics) + step_share(r), FP64, 1, {B, 1, 1, 1}};
    return p.ops->count_targets(&(count_targets_args){.counts = &counts, .targets = &p.in[r->net->targets]}, r->s);
}

// The ranks of a pipeline, and those that share layers or positions, have the same samples: none of them begins if
// another one can't read them. All ranks agree in one call: group by group, each would put its own rank's name before
// the reason, and the first name would not be that of the rank whose disk has failed.
static err_t agree_on_samples(evaluator *k, err_t rc) {
    const step_runner *r = k->r;
    bool whole = !step_shares(r) && !r->pipelined;  // a model on each rank
    return whole || (rc != ERR_OK && rc != ERR_DATA && rc != ERR_IO) ? rc : comm_agree_ok(r->ranks, rc, r->s);
}

// This rank's micro-batch of a round: B samples from `first`. B = 0: other ranks need its weights.
static err_t evaluate_batch(evaluator *k, const job *j, int64_t first, int64_t B) {
    step_runner *r = k->r;
    err_t rc = agree_on_samples(k, B ? load_samples(k, j, first, B) : ERR_OK);
    if (rc != ERR_OK && ((rc != ERR_DATA && rc != ERR_IO) || err_last()->shared)) return rc;  // no rank goes on
    err_record why = rc != ERR_OK ? *err_last() : (err_record){0};
    r->rows.now = r->inputs.now;
    TRY(step_rows_fetch(&r->rows, r->rows.now, rc == ERR_OK ? B : 0, r->s));
    if (B && rc == ERR_OK) return run_samples(k, j, B);
    TRY(executor_forward(r, NULL));
    return rc == ERR_OK ? ERR_OK : err_restore(&why);
}

static void take_answers(const evaluator *k, job *j, int64_t first, int64_t W) {
    const double *class = results_row(k, &k->host_results, first_answer_row(k->r)), *sure = class + round_samples(k);
    for (int64_t i = 0; i < W; i++) j->answers[first + i] = (class_answer){(int32_t) class[i], sure[i]};
}

static void take_texts(const evaluator *k, job *j, int64_t first, int64_t W) {
    const double *at = results_row(k, &k->host_results, first_answer_row(k->r)), *token = at + round_samples(k);
    for (int64_t i = 0; i < W; i++) j->texts[first + i] = (text_answer){(int32_t)at[i], (int32_t)token[i]};
}

// Of all ranks' samples, on every rank.
static void rank_samples(const evaluator *k, job *j, int64_t W) {
    const double *class = results_row(k, &k->host_results, first_answer_row(k->r)), *sure = class + round_samples(k),
                 *label = sure + round_samples(k);
    for (int64_t i = 0; i < W; i++) {
        double chance = class[i] > 0 ? sure[i] : 1 - sure[i];
        if (isnan(chance)) j->lost = true;
        else auc_add(k->buckets.data, label[i] > 0, chance);
    }
}

static void add_results(const evaluator *k, job *j, int64_t first, int64_t W) {
    const double *host = k->host_results.data, *counts = results_row(k, &k->host_results, 1 + k->r->net->metrics);
    for (int64_t i = 0; i < W; i++) j->sum->loss += host[i];
    for (int64_t i = 0; i < W && step_weighs(k->r); i++) j->counted += counts[i];
    for (int64_t i = 0; i < W && j->each; i++) j->each[first + i] = host[i];
    if (j->answers) take_answers(k, j, first, W);
    if (j->texts) take_texts(k, j, first, W);
    if (k->r->net->ranks && j->asks) rank_samples(k, j, W);
    for (int m = 0; m < k->r->net->metrics; m++)
        for (int64_t i = 0; i < W; i++) {
            double x = host[(1 + m) * round_samples(k) + i];
            if (j->numbers) j->numbers[m * j->samples + first + i] = x;
            else j->sum->metric[m] += x;
        }
}

// One micro-batch for each rank, W samples in all; their losses are added in order. All ranks but one hold zeros for a
// number, so the all-reduce rounds nothing.
static err_t evaluate_round(evaluator *k, job *j, int64_t first, int64_t W) {
    step_runner *r = k->r;
    comm *c = r->ranks;
    int64_t micro = r->cfg->resolved.micro, mine = W - step_share(r);
    TRY(stream_zero(r->s, k->results.data, tensor_bytes(&k->results)));
    err_t rc = evaluate_batch(k, j, first + step_share(r), mine < 0 ? 0 : mine < micro ? mine : micro);
    TRY(parallel_wait(&r->together));
    // can't be shared by agreement, or is
    if (rc != ERR_OK && ((rc != ERR_DATA && rc != ERR_IO) || err_last()->shared)) return rc;
    TRY(comm_agree_ok(c, rc, r->s));
    TRY(c->table->all_reduce(c, k->results.data, (size_t)tensor_count(&k->results), FP64, REDUCE_SUM, r->s));
    TRY(stream_copy(r->s, k->host_results.data, k->results.data, tensor_bytes(&k->results)));
    TRY(stream_wait(r->s));
    add_results(k, j, first, W);
    return ERR_OK;
}

static err_t evaluate_rounds(evaluator *k, job *j) {
    int64_t W = j->samples, round = round_samples(k);
    for (int64_t at = 0; at < W; at += round) TRY(evaluate_round(k, j, at, W - at < round ? W - at : round));
    return ERR_OK;
}

// Data that can't be read ends no run, so each island has its weights back then, too.
static err_t evaluate_all(evaluator *k, job *j) {
    step_runner *r = k->r;
    TRY(parallel_wait(&r->together));
    r->ranks->phase.what = r->ranks->host->phase.what = "evaluate";
    TRY(outer_show(r->state));
    err_t rc = evaluate_rounds(k, j);
    if (rc != ERR_OK && rc != ERR_DATA && rc != ERR_IO) return rc;
    err_record why = rc != ERR_OK ? *err_last() : (err_record){0};
    TRY(outer_hide(r->state));
    return rc == ERR_OK ? ERR_OK : err_restore(&why);
}

err_t evaluate(evaluator *k, source *val, int64_t batches, evaluation *out) {
    return evaluate_classes(k, val, batches, NULL, out);
}

// All ranks have all numbers of all samples, in order, and compute the same.
static err_t evaluate_numbers(evaluator *k, job *j) {
    int64_t n = j->samples;
    j->numbers = malloc((size_t)n * 2 * sizeof *j->numbers);
    if (!j->numbers) return err_set(ERR_INTERNAL, "no memory for the numbers of %" PRId64 " samples", n);
    err_t rc = evaluate_all(k, j);
    if (rc == ERR_OK) rc = correlate(j->numbers, j->numbers + n, n, &j->sum->metric[0], &j->sum->metric[1]);
    free(j->numbers);
    return rc;
}

static err_t evaluate_job(evaluator *k, job *j, int64_t batches, evaluation *out) {
    int64_t micro = k->r->cfg->batch.micro;
    if (batches > 0 && batches * micro < j->samples) j->samples = batches * micro;
    *out = (evaluation){.samples = j->samples};
    j->sum = out;
    j->asks = j->answers || k->r->net->ranks;
    if (k->r->net->ranks) memset(k->buckets.data, 0, tensor_bytes(&k->buckets));
    TRY(k->r->net->numbers ? evaluate_numbers(k, j) : evaluate_all(k, j));
    if (k->r->net->ranks) out->auc = j->lost ? NAN : auc_area(k->buckets.data);
    out->loss = step_weighs(k->r) ? out->loss * (double)j->losses / j->counted : out->loss / (double)j->samples;
    if (isnan(out->loss)) out->loss = NAN;  // printed: NAN has no sign
    out->rmse = k->r->net->root ? sqrt(out->loss) : NAN;
    for (int m = 0; m < k->r->net->metrics && !k->r->net->numbers; m++) out->metric[m] /= (double)j->samples;
    return ERR_OK;
}

err_t evaluate_classes(evaluator *k, source *val, int64_t batches, class_answer *answers, evaluation *out) {
    job j = job_of(k, val);
    j.answers = k->r->net->classes ? answers : NULL;
    return evaluate_job(k, &j, batches, out);
}

err_t evaluate_texts(evaluator *k, source *val, int64_t batches, text_answer *answers, evaluation *out) {
    job j = job_of(k, val);
    j.texts = k->r->net->says ? answers : NULL;
    return evaluate_job(k, &j, batches, out);
}

// A sample's sum is its mean times T. Which samples share a micro-batch follows from [batch] micro and the source, and
// one rank computes a micro-batch. The mean is one division there, the sum one multiplication on all ranks, both in
// double: the same numbers on every world.
err_t evaluate_each(evaluator *k, source *from, double *sums) {
    evaluation unused = {0};
    job j = job_of(k, from);
    j.sum = &unused, j.each = sums;
    TRY(evaluate_all(k, &j));
    for (int64_t i = 0; i < j.samples; i++) sums[i] *= (double)j.T;
    return ERR_OK;
}

// --- sampling --------------------------------------------------------------------------------------------------------

// A pass of B samples of n tokens each, that are all of the model's text, or of one of its two.
static err_t tokens_pass(evaluator *k, pass *p, const int32_t *tokens, int64_t B, int64_t n, pass_text text) {
    step_runner *r = k->r;
    const model *m = r->net;
    *p = executor_pass(r, B);
    TRY(stream_copy(r->s, inputs_now(&r->inputs)[0].data, tokens, (size_t)(B * n) * sizeof *tokens));
    p->in[0] = view2(&inputs_now(&r->inputs)[0], B, n);
    p->rows = r->cfg->resolved.micro * (text == TEXT_READ ? m->reads : m->context - m->reads);
    p->predict = true;
    p->text = text;
    return ERR_OK;
}

// The scores of the samples are rows `first` and on of k->scores.
static err_t score_pass(evaluator *k, const int32_t *tokens, int64_t B, int64_t n, const pass_past *past,
                        int64_t first) {
    pass p;
    TRY(tokens_pass(k, &p, tokens, B, n, k->r->net->reads ? TEXT_SAID : TEXT_BOTH));
    p.past = past;
    p.scores = tensor_rows(&k->scores, first, B);
    return executor_forward(k->r, &p);
}

// What is read, once for all that will be said of it.
static err_t read_text(evaluator *k, const predict_ask *a) {
    pass p;
    TRY(tokens_pass(k, &p, a->tokens, 1, a->read, TEXT_READ));
    p.past = &(pass_past){.kv_slot = a->kv_slot, .read = a->read};
    return executor_forward(k->r, &p);
}

// Only the last stage of a pipeline has them.
static err_t spread_scores(evaluator *k, int rows) {
    const step_runner *r = k->r;
    comm *line = r->groups->group[GROUP_LINE];
    if (!r->pipelined) return ERR_OK;
    line->phase = (comm_phase){"sample", -1, -1};
    return line->table->broadcast(line, k->scores.data, (size_t)rows * (size_t)r->net->vocab * sizeof(float),
                                  stages_rank(r->stages, r->stages->count - 1), r->s);
}

// Both texts of a model that says another one than it reads. `length` may be read until the pass is done.
static err_t score_both(evaluator *k, const predict_ask *a, int32_t *length) {
    step_runner *r = k->r;
    pass p = executor_pass(r, 1);
    int at = model_input(r->net, "length");
    tensor *in = inputs_now(&r->inputs);
    *length = (int32_t)a->read;
    TRY(stream_copy(r->s, in[0].data, a->tokens, (size_t)r->net->context * sizeof *a->tokens));
    TRY(stream_copy(r->s, in[at].data, length, sizeof *length));
    p.in[0] = view2(&in[0], 1, r->net->context), p.in[at] = view1(&in[at], 1);
    p.predict = true;
    p.row = a->count - 1 - r->net->reads;
    p.scores = tensor_rows(&k->scores, 0, 1);
    return executor_forward(r, &p);
}

err_t evaluator_scores(evaluator *k, const predict_ask *a) {
    stream *s = k->r->s;
    TRY(k->r->net->reads ? score_both(k, a, k->latest.data) : score_pass(k, a->tokens, 1, a->count, NULL, 0));
    TRY(spread_scores(k, 1));
    TRY(stream_copy(s, a->scores, k->scores.data, (size_t)k->r->net->vocab * sizeof *a->scores));
    return stream_wait(s);
}

// Where a text's new tokens are, counted in the text that grows: after those that were scored before.
static pass_past past_of(const evaluator *k, const predict_ask *a) {
    return (pass_past){.kv_slot = a->kv_slot, .first = a->kept ? a->kept - k->r->net->reads : 0, .read = a->read};
}

static const int32_t *new_tokens(const evaluator *k, const predict_ask *a, int64_t *n) {
    int64_t before = k->r->net->reads + past_of(k, a).first;
    *n = a->count - before;
    return a->tokens + before;
}

// The device may read `latest` until the pass is done.
static err_t score_latest(evaluator *k, const predict_ask *ask, const int *one, int count, int64_t first) {
    pass_past past[SAMPLE_BATCH_MOST];
    int32_t *latest = k->latest.data;
    for (int i = 0; i < count; i++) {
        const predict_ask *a = &ask[one[i]];
        latest[i] = a->tokens[a->count - 1];
        past[i] = past_of(k, a);
    }
    return score_pass(k, latest, count, 1, past, first);
}

// A prompt, which has more than one new token, is a pass of its own, and so is a text that is read. Texts that grew by
// one token are one pass: weights are read once for all of them.
err_t evaluator_ask(evaluator *k, const predict_ask *ask, int asks) {
    int one[SAMPLE_BATCH_MOST], ones = 0, row[SAMPLE_BATCH_MOST], rows = 0;
    size_t bytes = (size_t)k->r->net->vocab * sizeof(float);
    assert(asks <= SAMPLE_BATCH_MOST);
    for (int i = 0; i < asks; i++) {
        const predict_ask *a = &ask[i];
        int64_t n;
        const int32_t *tokens = new_tokens(k, a, &n);
        pass_past past = past_of(k, a);
        if (k->r->net->reads && !a->kept) TRY(read_text(k, a));
        if (n == 1) {
            one[ones++] = i;
            continue;
        }
        TRY(score_pass(k, tokens, 1, n, &past, rows));
        row[rows++] = i;
    }
    if (ones) TRY(score_latest(k, ask, one, ones, rows));
    for (int i = 0; i < ones; i++) row[rows++] = one[i];
    TRY(spread_scores(k, rows));
    for (int i = 0; i < rows; i++)
        TRY(stream_copy(k->r->s, ask[row[i]].scores, (char *)k->scores.data + (size_t)i * bytes, bytes));
    return stream_wait(k->r->s);
}

static err_t score(void *ctx, const predict_ask *ask, int asks) { return evaluator_ask(ctx, ask, asks); }

err_t evaluator_predict(evaluator *k, const predict_options *o, const predict_text *text, int count) {
    float *scores = k->host_scores.data;
    int kv_slots = k->r->texts;
    if (!kv_slots && k->r->net->vocab)
        return err_set(ERR_CONFIG, "[sample] tokens = 0: there is no memory for a text that grows");
    return predict(k->r->net, o, text, count,
                   &(predict_with){.kv_slots = kv_slots,
                                   .tokens = k->context.data,
                                   .scores = scores,
                                   .copy = scores + kv_slots * k->r->net->vocab,
                                   .score = score,
                                   .ctx = k});
}
