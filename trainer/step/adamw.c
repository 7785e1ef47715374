// trainer/step/adamw.c: Adam with decoupled weight decay (Loshchilov & Hutter 2019): means of the gradient and of its
// square. Of [optimizer] it reads beta1, beta2, eps and weight_decay.
#include "trainer/step/optimizer.h"

static const char *array(const optimizer_keys *o, int k) {
    (void)o;
    return k == 0 ? "m" : k == 1 ? "v" : NULL;
}

// beta^t, by repeated multiplication: they correct the means for their beginning as zeros. After a fork with another
// beta they are its powers.
static bool scalar(const optimizer_keys *o, int k, optimizer_scalar *to) {
    if (k == 0) *to = (optimizer_scalar){"beta1_power", {.value = 1, .factor = o->beta1}, .follows = true};
    if (k == 1) *to = (optimizer_scalar){"beta2_power", {.value = 1, .factor = o->beta2}, .follows = true};
    return k < 2;
}

static err_t update(const ops *on, const optimizer_keys *o, optimizer_piece *p, stream *s) {
    const adamw_rules rules = {o->beta1, o->beta2, o->eps, p->decay, p->lr};
    return on->adamw(&(adamw_args){.w = piece_weights(p),
                                   .master = &p->master,
                                   .m = &p->array[0],
                                   .v = &p->array[1],
                                   .grad = &p->grad,
                                   .state = p->state,
                                   .power = p->scalar,
                                   .rules = &rules,
                                   .round = p->round},
                     s);
}

const optimizer optimizer_adamw = {.array = array, .scalar = scalar, .update = update, .highest_lr = 1e-3};
