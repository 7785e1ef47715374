// trainer/step/mean_shown.c: see trainer/step/mean_shown.h.
#include "trainer/step/mean_shown.h"

#include "trainer/step/tied.h"

// What the masters are computed on.
typedef struct place {
    const ops *on;
    stream *s;
} place;

static place place_of(const train_state *t) {
    return t->o.offload ? (place){device_ops(t->host_dev), t->host_s} : (place){device_ops(t->dev), t->s};
}

// From zero, so that a running mean with this momentum is one product for each element.
static err_t put_mean(train_state *t, const zero_piece *p, float factor) {
    place at = place_of(t);
    tensor master = store_view(&t->masters, p), aside = store_view(&t->aside, p),
           mean = store_view(&t->array[state_moments(t) - 1], p);
    TRY(stream_copy(at.s, aside.data, master.data, tensor_bytes(&master)));
    TRY(stream_zero(at.s, master.data, tensor_bytes(&master)));
    return at.on->average(
        &(average_args){
            .x = &master, .sum = &mean, .count = 1, .momentum = factor, .state = (const step_state *)t->mean_step.data},
        at.s);
}

static err_t put_back(train_state *t, const zero_piece *p) {
    tensor master = store_view(&t->masters, p), aside = store_view(&t->aside, p);
    return stream_copy(place_of(t).s, master.data, aside.data, tensor_bytes(&master));
}

// What follows from the masters, here and elsewhere.
static err_t follow(train_state *t) {
    TRY(stream_wait(place_of(t).s));
    TRY(state_derive(t));
    return tied_values(t, t->s);
}

err_t mean_show(train_state *t) {
    const step_state applied = {.apply = 1};
    step_state here;
    int count;
    const zero_piece *p = state_pieces(t, &count);
    if (!t->o.shows_mean) return ERR_OK;
    TRY(state_get_step(t, &here));
    if (here.updates == 0) return ERR_OK;
    stream *s = place_of(t).s;
    TRY(stream_copy(s, t->mean_step.data, &applied, sizeof applied));
    TRY(stream_wait(s));  // `applied` goes
    for (int i = 0; i < count; i++)
        if (t->net->param[p[i].row].tied < 0) TRY(put_mean(t, &p[i], mean_factor(t->o.keys->ema, here.updates)));
    t->mean_is_shown = true;
    return follow(t);
}

err_t mean_hide(train_state *t) {
    int count;
    const zero_piece *p = state_pieces(t, &count);
    if (!t->mean_is_shown) return ERR_OK;
    t->mean_is_shown = false;
    for (int i = 0; i < count; i++)
        if (t->net->param[p[i].row].tied < 0) TRY(put_back(t, &p[i]));
    return follow(t);
}
