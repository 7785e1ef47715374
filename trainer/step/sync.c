// trainer/step/sync.c: which policies a layout has.
#include "trainer/step/sync.h"

const gradient_policy *sync_gradients(const train_state *t) {
    if (t->o.servers) return &gradients_pushed;
    if (state_codes(t)) return &gradients_packed;
    return t->o.fixed ? &gradients_fixed : &gradients_any;
}

const weight_policy *sync_weights(const train_state *t) {
    if (t->o.servers) return &weights_pulled;
    if (t->shards.weights) return &weights_gathered;
    return t->shards.masters && t->ranks->world > 1 ? &weights_spread : &weights_whole;
}
