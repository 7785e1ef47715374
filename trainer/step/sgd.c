// trainer/step/sgd.c: gradient descent (gpu/ops.h: sgd). With momentum it keeps the sum of all gradients, in which the
// older ones count less: 4 bytes a weight, where AdamW keeps 8. Without momentum it keeps nothing.
// Where each lane has a momentum ([reduce] compress = topk), it has none, and keeps nothing.
// Of [optimizer] it reads momentum, nesterov and weight_decay.
#include "trainer/step/optimizer.h"

static const char *array(const optimizer_keys *o, int k) {
    return k == 0 && o->momentum != 0 && !o->by_lanes ? "momentum" : NULL;
}

static err_t update(const ops *on, const optimizer_keys *o, optimizer_piece *p, stream *s) {
    const sgd_rules rules = {.momentum = o->by_lanes ? 0 : o->momentum,
                             .weight_decay = p->decay,
                             .nesterov = o->nesterov && !o->by_lanes,
                             .lr_factor = p->lr};
    return on->sgd(&(sgd_args){.w = piece_weights(p),
                               .master = &p->master,
                               .buf = o->momentum == 0 || o->by_lanes ? NULL : &p->array[0],
                               .grad = &p->grad,
                               .state = p->state,
                               .ratio = p->of_row,
                               .rules = &rules,
                               .round = p->round},
                   s);
}

const optimizer optimizer_sgd = {.array = array, .update = update, .highest_lr = 0.1};
