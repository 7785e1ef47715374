// model/past.c: see model/past.h.
#include "model/past.h"

#include <stdlib.h>

err_t past_plan(past *k, arena *a, const model_plan *o, int first, int layers, int64_t T, int64_t head) {
    free(k->layer);
    k->layer = NULL;
    k->layers = layers;
    if (!o->kv_slots) return ERR_OK;
    k->layer = calloc((size_t)layers, sizeof *k->layer);
    if (!k->layer) return err_set(ERR_INTERNAL, "no memory for a table of %d layers", layers);
    if (!k->slices) k->slices = 1;
    for (int l = 0; l < layers; l++)
        if (o->slots[first + l])
            TRY(arena_3d(a, &k->layer[l], o->compute, k->slices * o->kv_slots, T, 2 * k->kv_heads * head));
    return ERR_OK;
}

void past_close(past *k) {
    free(k->layer);
    k->layer = NULL;
}

tensor past_slot(const past *k, int layer, int64_t slice, int kv_slot) {
    const tensor *of = &k->layer[layer];
    tensor one = tensor_rows(of, slice * (of->size[0] / k->slices) + kv_slot, 1);
    return view2(&one, of->size[1], of->size[2]);
}

err_t past_keep(const past *k, const pass *p, int layer, const tensor *kv) {
    int64_t N = matrix_rows(kv), n = N / p->B;
    tensor all = view2(kv, k->slices * N, kv->size[kv->dims - 1]);
    for (int64_t i = 0; i < k->slices * p->B; i++) {
        int64_t slice = i / p->B, b = i % p->B;
        tensor slot = past_slot(k, layer, slice, p->past[b].kv_slot), to = tensor_rows(&slot, p->past[b].first, n),
               from = tensor_rows(&all, slice * N + b * n, n);
        TRY(p->ops->cast(&(cast_args){.y = &to, .x = &from}, p->s));
    }
    return ERR_OK;
}

err_t past_attend(const past *k, const pass *p, int layer, int window, const tensor *y, const tensor *qkv) {
    int64_t N = matrix_rows(qkv), n = N / p->B;
    tensor ys = view2(y, k->slices * N, y->size[y->dims - 1]),
           qkvs = view2(qkv, k->slices * N, qkv->size[qkv->dims - 1]);
    for (int64_t i = 0; i < k->slices * p->B; i++) {
        int64_t slice = i / p->B, b = i % p->B;
        tensor kept = past_slot(k, layer, slice, p->past[b].kv_slot);
        tensor out = tensor_rows(&ys, slice * N + b * n, n), in = tensor_rows(&qkvs, slice * N + b * n, n);
        TRY(p->ops->attention_past(&(attention_past_args){.y = &out,
                                                          .past = &kept,
                                                          .qkv = &in,
                                                          .heads = k->heads,
                                                          .kv_heads = k->kv_heads,
                                                          .window = window,
                                                          .first = p->past[b].first},
                                   p->s));
    }
    return ERR_OK;
}
