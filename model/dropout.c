// model/dropout.c: see model/dropout.h.
#include "model/dropout.h"

#include "base/philox.h"

const dropout_key *dropout_at(const pass *p, int block, int which, dropout_key *key) {
    if (p->drop.p == 0) return NULL;
    *key = p->drop;
    key->site = SITE_DROPOUT + 8 * (uint32_t)block + (uint32_t)which;
    return key;
}

err_t dropout_samples(const pass *p, int block, int which, const tensor *y, const tensor *x) {
    dropout_key key;
    if (!dropout_at(p, block, which, &key)) return ERR_OK;
    tensor to = view2(y, p->B, tensor_count(x) / p->B), from = view2(x, p->B, tensor_count(x) / p->B);
    return p->ops->dropout(&(dropout_args){.y = &to, .x = &from, .drop = &key}, p->s);
}
