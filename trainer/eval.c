// trainer/eval.c: the verb `eval`: what a model knows, of its validation data, of a text, of questions. With one rank
// in the calling process, with several in each of them; the numbers are the same.
#include "base/fmath.h"
#include "trainer/answers.h"
#include "trainer/session/evaluate.h"
#include "trainer/session/machine.h"
#include "trainer/replies.h"
#include "trainer/session/restore.h"
#include "trainer/verbs.h"
#include "trainer/waiting.h"

#include <inttypes.h>

static void print_counts(const source *from, const evaluation *e, FILE *out) {
    source_info v = source_about(from);
    if (v.units_per_sample > 1)
        fprintf(out, "  %" PRId64 " windows of %" PRId64 " %s\n", e->samples, v.units_per_sample, v.unit);
    else fprintf(out, "  %" PRId64 " %s\n", e->samples, v.unit);
}

// Answers, once, by the rank that prints.
static err_t write_answers(const session *x, const evaluation *e, FILE *out) {
    const char *dir = x->cfg->eval_answers;
    if (!dir || x->ranks->rank != 0) return ERR_OK;
    TRY(answers_write(x, e, dir));
    fprintf(out, "%s/answers.json: what it says of them; `lockstep report %s` shows it\n", dir, dir);
    return ERR_OK;
}

static void print_losses(const session *x, const evaluation *e, double possible, FILE *out) {
    fprintf(out, "  loss %.6f", e->loss);
    if (x->net->vocab) fprintf(out, "  perplexity %.4f", fm_exp(e->loss));
    if (exam_of_bytes(x->cfg, x->words, x->net)) fprintf(out, "  bits per byte %.6f", exam_bits(e->loss));
    if (possible > 0) fprintf(out, "  best possible %.6f", possible);
    for (int i = 0; i < x->net->metrics; i++) fprintf(out, "  %s %.6f", x->net->metric[i], e->metric[i]);
    if (x->net->ranks) fprintf(out, "  auc %.6f", e->auc);
    if (x->net->root) fprintf(out, "  rmse %.6f", e->rmse);
}

static err_t eval_validation(session *x, FILE *out) {
    evaluation e;
    double f1;
    bool known = x->answers != NULL;
    TRY(x->replies ? evaluate_texts(&x->evaluator, x->val, x->cfg->eval.batches, x->replies, &e)
                   : evaluate_classes(&x->evaluator, x->val, x->cfg->eval.batches, x->answers, &e));
    fprintf(out, "step %" PRId64, x->progress.step);
    print_losses(x, &e, x->possible, out);
    if (x->answers) TRY(answers_f1(x, &e, &f1));
    if (x->replies) TRY(replies_f1(x, &e, &f1, &known));
    if (known) fprintf(out, "  macro F1 %.6f", f1);
    print_counts(x->val, &e, out);
    return write_answers(x, &e, out);
}

static err_t eval_named(session *x, const named_set *s, FILE *out) {
    evaluation e;
    TRY(evaluate(&x->evaluator, s->from, x->cfg->eval.batches, &e));
    fprintf(out, "step %" PRId64 "  set %s", x->progress.step, s->name);
    print_losses(x, &e, 0, out);
    print_counts(s->from, &e, out);
    return ERR_OK;
}

static err_t eval_text(session *x, FILE *out) {
    const passage *p = &x->exam.text;
    text_marks m;
    TRY(exam_text(&x->exam, &x->evaluator, &m));
    fprintf(out,
            "step %" PRId64 "  text %s  loss %.6f  perplexity %.4f  bits per byte %.6f  %" PRId64 " tokens, %" PRId64
            " bytes",
            x->progress.step, x->cfg->eval.text, m.loss, fm_exp(m.loss), m.bits_per_byte, p->tokens, p->bytes);
    if (p->documents > 1) fprintf(out, " in %" PRId64 " documents", p->documents);
    if (p->prefix < 0)
        fprintf(out, ", without the first token%s, which has nothing before it", p->documents > 1 ? " of each" : "");
    fprintf(out, "\n");
    return ERR_OK;
}

static err_t eval_choices(session *x, FILE *out) {
    static const char *const protocol[] = {PROTOCOL_WORDS(WORD_NAME)};
    answers a;
    questions_info about = questions_about(x->exam.questions);
    TRY(exam_questions(&x->exam, &x->evaluator, &a));
    fprintf(out, "step %" PRId64 "  choices %s  acc %.6f  acc_norm %.6f  %" PRId64 " question%s, protocol %s",
            x->progress.step, x->cfg->eval.choices, exam_acc(&a), exam_acc_norm(&a), a.questions,
            a.questions == 1 ? "" : "s", protocol[x->cfg->eval.protocol]);
    if (about.cut)
        fprintf(out, "; %" PRId64 " of %" PRId64 " rows lost their beginning, for the context", about.cut, about.rows);
    fprintf(out, "\n");
    return ERR_OK;
}

static err_t eval_session(session *x, FILE *out) {
    bool initial;
    if (!x->val && !x->sets && exam_is_empty(&x->exam))
        return err_set(ERR_CONFIG,
                       "[data] val is empty, and [eval] sets too: nothing to evaluate on; --text and --choices name "
                       "something else");
    if (x->cfg->eval_answers && !x->answers)
        return err_set(ERR_CONFIG,
                       "--answers: a model of type %s does not say to which class a sample belongs, or there is no "
                       "[data] val: leave --answers out",
                       x->net->type->name);
    TRY(session_weights(x, x->cfg->eval_ckpt, &initial));
    if (initial) fprintf(out, "weights of %s: the run has no checkpoint yet\n", x->cfg->model.init_from);
    if (x->val) TRY(eval_validation(x, out));
    for (int i = 0; i < x->sets; i++) TRY(eval_named(x, &x->set[i], out));
    if (x->exam.text.from) TRY(eval_text(x, out));
    return x->exam.questions ? eval_choices(x, out) : ERR_OK;
}

err_t verb_eval(const config *c, FILE *out) {
    session x;
    err_t rc = session_open(&x, c, SESSION_INFERENCE, NULL);
    if (rc == ERR_OK) rc = eval_session(&x, out);
    session_close(&x);
    return rc;
}

// Only rank 0 prints.
err_t eval_rank(const config *c, const launch *at, board *b) {
    session x = {0};
    FILE *out = at->rank == 0 ? stdout : fopen("/dev/null", "we");
    err_t rc =
        out ? session_machine(&x, c, SESSION_INFERENCE, at->local) : err_set(ERR_IO, "/dev/null can't be opened");
    if (rc == ERR_OK) rc = waiting_enter(&x, at, b, false);
    if (rc == ERR_OK) rc = eval_session(&x, out);
    if (rc == ERR_OK) rc = session_settle(&x);
    session_abort(&x, rc);
    session_close(&x);
    if (out && out != stdout) fclose(out);
    return rc;
}
