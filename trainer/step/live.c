// trainer/step/live.c: see trainer/step/live.h.
#include "trainer/step/live.h"

#include "trainer/step/replicas.h"

#include <stdlib.h>

// What was left out of lanes is a rank's alone.
bool live_is_shared(const train_state *t) {
    return !t->shards.masters && !state_codes(t) && !t->row_cut && t->ranks && t->ranks->world > 1;
}

stream *live_stream(const train_state *t) {
    return t->o.offload || device_about(t->dev)->kind == DEVICE_CPU ? NULL : t->s;
}

// Elements of a slice that are in the first `shares` of all.
static int64_t cut(const train_state *t, const zero_piece *p, int shares) {
    return p->count * shares / t->ranks->world;
}

static bool gives(const train_state *t, int share) {
    return share == t->ranks->rank || vault_keeper(t->ranks, share) == t->ranks->rank;
}

int64_t live_values(const train_state *t) {
    int64_t n = 0;
    for (int i = 0; live_is_shared(t) && i < t->zero.wholes; i++)
        for (int k = 0; k < t->ranks->world; k++)
            if (gives(t, k)) n += cut(t, &t->zero.whole[i], k + 1) - cut(t, &t->zero.whole[i], k);
    return n * (1 + t->arrays);
}

// As rows are counted in a checkpoint, which has none that are tied or frozen.
static int tensor_of(const train_state *t, int row) {
    int n = 0;
    for (int i = 0; i < row; i++) n += param_is_saved(&t->net->param[i]);
    return n;
}

// The shares that this rank gives of one slice of a row, in one of the stores.
static err_t give(train_state *t, int group, const zero_piece *p, vault_range **to) {
    const param *row = &t->net->param[p->row];
    tensor all = store_view(group == 0 ? &t->masters : &t->array[group - 1], p);
    int64_t first = p->slice * param_slice_room(row) + p->first;
    uint64_t sum;
    TRY(replicas_sum(t, &all, group, &sum));
    for (int k = 0; k < t->ranks->world; k++) {
        int64_t from = cut(t, p, k), end = cut(t, p, k + 1);
        if (!gives(t, k) || from == end) continue;
        *(*to)++ = (vault_range){.group = group,
                                 .tensor = tensor_of(t, p->row),
                                 .first = first + from,
                                 .count = end - from,
                                 .of = first,
                                 .sum = sum,
                                 .data = (const float *)all.data + from};
    }
    return ERR_OK;
}

err_t live_ranges(train_state *t, vault_range **range, int *n) {
    int shares = 0;
    for (int k = 0; k < t->ranks->world; k++) shares += gives(t, k);
    vault_range *at = calloc((size_t)(shares * t->zero.wholes * (1 + t->arrays)) + 1, sizeof *at);
    *range = at, *n = 0;
    if (!at) return err_set(ERR_INTERNAL, "no memory for a list of what %d ranks share", t->ranks->world);
    err_t rc = ERR_OK;
    for (int group = 0; group <= t->arrays; group++)
        for (int i = 0; rc == ERR_OK && i < t->zero.wholes; i++)
            if (t->net->param[t->zero.whole[i].row].tied < 0) rc = give(t, group, &t->zero.whole[i], &at);
    *n = (int)(at - *range);
    if (rc != ERR_OK) free(*range), *range = NULL, *n = 0;
    return rc;
}
