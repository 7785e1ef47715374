// trainer/figures.c: see trainer/figures.h.
#include "trainer/figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void add_figure(figures *f, const char *name, double value) {
    f->name[f->count] = name;
    f->value[f->count++] = value;
}

static void add_of_set(figures *f, const named_set *s, const char *name, double value) {
    char *word = f->word[f->count];
    snprintf(word, FIGURE_NAME, "%s.%s", s->name, name);
    add_figure(f, word, value);
}

static err_t measure_set(session *x, const named_set *s, figures *f) {
    evaluation e;
    TRY(evaluate(&x->evaluator, s->from, x->cfg->eval.batches, &e));
    add_of_set(f, s, "loss", e.loss);
    for (int i = 0; i < x->net->metrics; i++) add_of_set(f, s, x->net->metric[i], e.metric[i]);
    if (x->net->ranks) add_of_set(f, s, "auc", e.auc);
    if (x->net->root) add_of_set(f, s, "rmse", e.rmse);
    if (strcmp(s->name, x->cfg->resolved.best_of) == 0) f->decides = e.loss;
    return ERR_OK;
}

err_t figures_measure(session *x, evaluation *e, figures *f) {
    text_marks text;
    answers a;
    *e = (evaluation){.loss = NAN};
    if (x->val) TRY(evaluate_classes(&x->evaluator, x->val, x->cfg->eval.batches, x->answers, e));
    f->decides = e->loss;
    for (int i = 0; x->val && i < x->net->metrics; i++) add_figure(f, x->net->metric[i], e->metric[i]);
    if (x->val && x->net->ranks) add_figure(f, "auc", e->auc);
    if (x->val && x->net->root) add_figure(f, "rmse", e->rmse);
    if (x->exam.text.from) {
        TRY(exam_text(&x->exam, &x->evaluator, &text));
        add_figure(f, "bits_per_byte", text.bits_per_byte);
    }
    if (x->exam.questions) {
        TRY(exam_questions(&x->exam, &x->evaluator, &a));
        add_figure(f, "acc", exam_acc(&a));
        add_figure(f, "acc_norm", exam_acc_norm(&a));
    }
    for (int i = 0; i < x->sets; i++) TRY(measure_set(x, &x->set[i], f));
    return ERR_OK;
}
