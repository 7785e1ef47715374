// trainer/session/evaluate.h: the loss on validation data, and sampling.
#ifndef TRAINER_SESSION_EVALUATE_H
#define TRAINER_SESSION_EVALUATE_H

#include "data/source.h"
#include "model/predict.h"
#include "trainer/step/step.h"

// Buffers for evaluating and sampling, in addition to the runner's.
typedef struct evaluator {
    step_runner *r;
    tensor host_in[MODEL_INPUTS];  // (B, ...): an evaluation batch
    tensor metrics;                // (metrics, B) FP64 on the device: beside the losses of a batch
    // (rows, world*B) FP64 on the device, of a round: a row of losses, one for each metric, where some targets are
    // ignored one of how many targets of each sample count, and of a model of classes two: which it says, and how sure
    // it is; of one that ranks the label, too. Of a model that says answers two: the first wrong place, and the token
    // that is said there
    tensor results;
    tensor host_results;  // the same on the host
    tensor host_answers;  // (2 or 3,B) FP64, of a model of classes or answers: what it says of the samples of a batch
    tensor said;          // (B,losses) FP32 on the device, of a model that says answers (model/pass.h)
    tensor host_said;     // the same on the host
    tensor buckets;       // (2,AUC_BUCKETS) of 64 bits, whole numbers, of a model that ranks (trainer/session/auc.h)
    // Of a model of classes: (B,classes) FP32, on the device and on the host. Else for sampling; texts: how many can
    // grow at the same time
    tensor scores;       // (texts,V) FP32 on the device: of the next token
    tensor host_scores;  // (texts+1,V) FP32: the same on the host, and a copy for selection
    tensor context;      // (texts,T) INT32: the tokens of each text
    tensor latest;       // (texts) INT32: the newest token of each
} evaluator;

// Call it between step_open and step_commit, which allocates these buffers with the runner's.
err_t evaluator_declare(evaluator *k, step_runner *r);

typedef struct evaluation {
    // means over the losses that count, and over the samples; metrics in the order of model.metric. Of a model of
    // numbers (model.numbers) the metrics are the correlations of what it says and what is right
    // (trainer/session/correlate.h)
    double loss, metric[MODEL_METRICS];
    double rmse;  // of a model whose loss is a squared error that is looked at (model.root): the root of the loss
    double auc;   // of a model that ranks (model.ranks); NaN: one class has no samples, or a logit is NaN
    int64_t samples;
} evaluation;

// Over the first `batches` micro-batches of the source, in order (0: all of them; the last may be smaller). The
// samples' losses are added as doubles, in order. Uses the runner's activations.
err_t evaluate(evaluator *k, source *val, int64_t batches, evaluation *out);

// What a model of classes says of a sample: the class with the first largest logit, and its probability by softmax, NaN
// if a logit is NaN.
typedef struct class_answer {
    int32_t class;
    double sure;
} class_answer;

// The same, and what a model of classes says of each of the samples: `answers` has room for all of the source; NULL: it
// is not asked. One rank computes a sample's answer, so all ranks of every world have the same.
err_t evaluate_classes(evaluator *k, source *val, int64_t batches, class_answer *answers, evaluation *out);

// What a model that says answers (model.says) says of a sample: the first place at which another token than the
// answer's is the likeliest, and that token. at -1: there is none, and so it is what the model says greedily.
typedef struct text_answer {
    int32_t at, token;
} text_answer;

// The same, and what such a model says of each of the samples, as above.
err_t evaluate_texts(evaluator *k, source *val, int64_t batches, text_answer *answers, evaluation *out);

// Of a model of tokens: sums[k] (double) = the sum of the losses of sample k, for all samples of the source; the same
// on all ranks. Rows of the source may be shorter than the model's context. (data/text/rows.h: a target of -1 has loss
// 0.)
err_t evaluate_each(evaluator *k, source *from, double *sums);

// ask->scores (V, host) (=) those of the token that follows (model/predict.h), by one pass over all tokens, which keeps
// nothing. Waits for the device.
err_t evaluator_scores(evaluator *k, const predict_ask *ask);

// The same for several growing texts, each into its own row on the host. Computes only new tokens: of a model that says
// another text than it reads, that one when the text begins.
err_t evaluator_ask(evaluator *k, const predict_ask *ask, int asks);

// Continues texts (model/predict.h): [sample] batch of them at a time, while training one. Keys and values of earlier
// positions are cached, so that a token costs one position, until the context is full: then each token costs the whole
// context. A text that a model reads before it says another one costs a pass of its own. The bits are those of
// evaluator_scores over all the text.
err_t evaluator_predict(evaluator *k, const predict_options *o, const predict_text *text, int count);

#endif
