// trainer/figures.c: see trainer/figures.h.
#include "trainer/figures.h"

#include <math.h>

static void add_figure(figures *f, const char *name, double value) {
    f->name[f->count] = name;
    f->value[f->count++] = value;
}

err_t figures_measure(session *x, evaluation *e, figures *f) {
    text_marks text;
    answers a;
    *e = (evaluation){.loss = NAN};
    if (x->val) TRY(evaluate_classes(&x->evaluator, x->val, x->cfg->eval.batches, x->answers, e));
    for (int i = 0; x->val && i < x->net->metrics; i++) add_figure(f, x->net->metric[i], e->metric[i]);
    if (x->val && x->net->ranks) add_figure(f, "auc", e->auc);
    if (x->exam.text.from) {
        TRY(exam_text(&x->exam, &x->evaluator, &text));
        add_figure(f, "bits_per_byte", text.bits_per_byte);
    }
    if (!x->exam.questions) return ERR_OK;
    TRY(exam_questions(&x->exam, &x->evaluator, &a));
    add_figure(f, "acc", exam_acc(&a));
    add_figure(f, "acc_norm", exam_acc_norm(&a));
    return ERR_OK;
}
