// trainer/session/exam.h: what else a model is asked than the loss of its validation data: the bits per byte of a text
// ([eval] text), and questions of multiple choice ([eval] choices). Both are rows of tokens (data/text/rows.h), shared
// out to the ranks like validation data: the numbers are those of one rank.
#ifndef TRAINER_SESSION_EXAM_H
#define TRAINER_SESSION_EXAM_H

#include "data/text/passage.h"
#include "data/text/questions.h"
#include "trainer/session/evaluate.h"

typedef struct exam {
    tokenizer *words;
    passage text;          // text.from NULL: none
    questions *questions;  // NULL: none
    double *sums;          // room for those of each row
} exam;

// What the tokens of this run are: [sample] tokenizer, or where that is "bytes", the tokenizer that the shards of
// [data] train name (data/text/about.h). *out NULL: bytes. ERR_CONFIG: it has ids that the model doesn't know, or is
// not found, or, where it trains on them, has another vocabulary than the shards. at, which may be NULL: where it was
// found; "" where a token is a byte.
err_t exam_words(tokenizer **out, char at[IO_PATH], const config *c, const model *net, bool trains);

// Can the model be asked what [eval] says? ERR_CONFIG: it predicts no tokens, or says another text than it reads.
err_t exam_fits(const config *c, const model *net);

// Reads and encodes the files as [eval] says, with the tokenizer of [sample]. Nothing is open if neither is set.
// ERR_CONFIG: as exam_fits, or the tokenizer has other tokens than the model.
err_t exam_open(exam *x, const config *c, const model *net);
void exam_close(exam *x);

static inline bool exam_is_empty(const exam *x) { return !x->text.from && !x->questions; }

// Both are collective, and allocate nothing.
typedef struct text_marks {
    double loss;           // mean of the asked tokens
    double bits_per_byte;  // sum of their losses / ln 2 / bytes of the text
} text_marks;
err_t exam_text(exam *x, evaluator *k, text_marks *out);
err_t exam_questions(exam *x, evaluator *k, answers *out);

static inline double exam_acc(const answers *a) { return (double)a->right / (double)a->questions; }
static inline double exam_acc_norm(const answers *a) { return (double)a->right_norm / (double)a->questions; }

// A token is a byte, so that bits per byte are bits per token.
bool exam_of_bytes(const config *c, const tokenizer *words, const model *net);
double exam_bits(double loss);  // from natural logarithms

#endif
