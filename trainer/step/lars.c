// trainer/step/lars.c: layer-wise adaptive rate scaling (You, Gitman & Ginsburg 2017, "Large batch training of
// convolutional networks"): gradient descent in which a row's step is as long, measured by its weights, as any other
// row's, however large its gradient is. The ratio of the norms multiplies gradient and decay before they enter the
// momentum, and the learning rate multiplies the momentum, as in sgd: a change of the rate holds for all that was
// gathered. (In the paper's algorithm 1 the rate enters the momentum, too. Both are the same while it is constant.)
// Rows that do not decay, biases and gains, keep the ratio 1.
// Of [optimizer] it reads trust, eps, and what sgd reads.
#include "trainer/step/optimizer.h"

static const char *array(const optimizer_keys *o, int k) { return optimizer_sgd.array(o, k); }

static err_t rows(const ops *on, const optimizer_keys *o, optimizer_rows *x, stream *s) {
    const lars_rules rules = {o->trust, o->weight_decay, o->eps};
    return on->lars_ratio(&(lars_ratio_args){.ratio = &x->of_row,
                                             .at = &x->at,
                                             .grads = &x->grads,
                                             .weights = &x->masters,
                                             .state = x->state,
                                             .rules = &rules},
                          s);
}

// By the row's ratio, which it takes from the piece.
static err_t update(const ops *on, const optimizer_keys *o, optimizer_piece *p, stream *s) {
    return optimizer_sgd.update(on, o, p, s);
}

const optimizer optimizer_lars = {.array = array, .update = update, .rows = rows, .highest_lr = 10};
