// model/past.c: see model/past.h.
#include "model/past.h"

#include <stdlib.h>

err_t past_plan(past *k, arena *a, const model_plan *o, int first, int layers, int64_t T, int64_t head) {
    free(k->layer);
    k->layer = NULL;
    k->layers = layers;
    if (!o->places) return ERR_OK;
    k->layer = calloc((size_t)layers, sizeof *k->layer);
    if (!k->layer) return err_set(ERR_INTERNAL, "no memory for a table of %d layers", layers);
    for (int l = 0; l < layers; l++)
        if (o->slots[first + l]) TRY(arena_3d(a, &k->layer[l], o->compute, o->places, T, 2 * k->kv_heads * head));
    return ERR_OK;
}

void past_close(past *k) {
    free(k->layer);
    k->layer = NULL;
}

err_t past_attend(const past *k, const pass *p, int layer, const tensor *y, const tensor *qkv) {
    int64_t n = qkv->size[0] / p->B;
    for (int64_t b = 0; b < p->B; b++) {
        tensor all = tensor_rows(&k->layer[layer], p->past[b].place, 1), kept = view2(&all, all.size[1], all.size[2]);
        tensor out = tensor_rows(y, b * n, n), in = tensor_rows(qkv, b * n, n);
        TRY(p->ops->attention_past(
            &(attention_past_args){
                .y = &out, .past = &kept, .qkv = &in, .heads = k->heads, .kv_heads = k->kv_heads, .window = k->window, .first = p->past[b].first},
            p->s));
    }
    return ERR_OK;
}
