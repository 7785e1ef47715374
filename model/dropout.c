// model/dropout.c: see model/dropout.h.
#include "model/dropout.h"

#include "base/philox.h"
#include "model/slices.h"

const dropout_key *dropout_at(const pass *p, int block, int which, dropout_key *key) {
    if (p->drop.p == 0) return NULL;
    *key = p->drop;
    key->site = SITE_DROPOUT + 8 * (uint32_t)block + (uint32_t)which;
    return key;
}

// Of the samples that begin before these rows or end after them, a part. All rows are those of whole samples.
static err_t drop_rows(const model *m, const pass *p, const dropout_key *key, const tensor *y, const tensor *x) {
    int64_t T = p->in[0].size[1], C = matrix_columns(x);
    int64_t first = m->slices.rows ? model_row(m, m->slices.first, p->B * T) : model_first_row(m, p->B * T);
    if (!model_divides_rows(m) || matrix_rows(x) == p->B * T) {
        tensor to = view2(y, p->B, tensor_count(x) / p->B), from = view2(x, p->B, tensor_count(x) / p->B);
        return p->ops->dropout(&(dropout_args){.y = &to, .x = &from, .drop = key}, p->s);
    }
    for (int64_t row = first, end = first + matrix_rows(x), n; row < end; row += n) {
        n = T - row % T < end - row ? T - row % T : end - row;
        tensor to = tensor_rows(y, row - first, n), from = tensor_rows(x, row - first, n);
        to = view2(&to, 1, n * C), from = view2(&from, 1, n * C);
        TRY(p->ops->dropout(
            &(dropout_args){.y = &to, .x = &from, .drop = key, .sample = (uint32_t)(row / T), .first = row % T * C},
            p->s));
    }
    return ERR_OK;
}

err_t dropout_rows(const model *m, const pass *p, int block, int which, const tensor *y, const tensor *x) {
    dropout_key key;
    return dropout_at(p, block, which, &key) ? drop_rows(m, p, &key, y, x) : ERR_OK;
}

// A slice of a matrix, (rows,columns of a slice).
static tensor slice_of(const tensor *x, int64_t s) {
    int64_t N = matrix_rows(x), C = x->size[x->dims - 1];
    tensor all = view2(x, matrix_slices(x) * N, C);
    return tensor_rows(&all, s * N, N);
}

// Each slice as a matrix of its own, with a site of its own.
static err_t drop_slices(const model *m, const pass *p, int block, int which, float chance, const tensor *y,
                         const tensor *x) {
    dropout_key key = p->drop;
    int64_t slices = matrix_slices(x), first = x->dims == 3 ? m->slices.first : 0;
    key.p = chance;
    for (int64_t s = 0; s < slices; s++) {
        tensor to = slice_of(y, s), from = slice_of(x, s);
        key.site = SITE_ADAPTER + (64 * (uint32_t)block + (uint32_t)which) * 1024 + (uint32_t)(first + s);
        TRY(drop_rows(m, p, &key, &to, &from));
    }
    return ERR_OK;
}

err_t dropout_adapted(const model *m, const pass *p, int block, int which, const tensor *y, const tensor *x) {
    return drop_slices(m, p, block, which, p->drop_adapted, y, x);
}

err_t dropout_slices(const model *m, const pass *p, int block, int which, const tensor *y, const tensor *x) {
    return p->drop.p > 0 ? drop_slices(m, p, block, which, p->drop.p, y, x) : ERR_OK;
}
