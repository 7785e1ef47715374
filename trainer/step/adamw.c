// trainer/step/adamw.c: Adam with decoupled weight decay (Loshchilov & Hutter 2019): means of the gradient and of its
// square.
#include "trainer/step/optimizer.h"

static const char *array(const optimizer_keys *o, int k) {
    (void)o;
    return k == 0 ? "m" : k == 1 ? "v" : NULL;
}

static err_t update(const ops *on, const optimizer_keys *o, optimizer_piece *p, stream *s) {
    const adamw_rules rules = {o->beta1, o->beta2, o->eps, p->decay ? o->weight_decay : 0};
    return on->adamw(&(adamw_args){.w = piece_weights(p),
                                   .master = &p->master,
                                   .m = &p->array[0],
                                   .v = &p->array[1],
                                   .grad = &p->grad,
                                   .state = p->state,
                                   .rules = &rules,
                                   .round = p->round},
                     s);
}

const optimizer optimizer_adamw = {array, update};
