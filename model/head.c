// model/head.c: see model/head.h.
#include "model/head.h"

// A share smaller than a tile is not rounded up.
int64_t head_rows(int64_t rows, int64_t chunks) {
    int64_t share = (rows + chunks - 1) / chunks, whole = (share + HEAD_TILE - 1) / HEAD_TILE * HEAD_TILE;
    return share < HEAD_TILE ? share : whole < rows ? whole : rows;
}

int64_t head_chunks(int64_t rows, int64_t vocab, bool gpu) {
    int64_t most = HEAD_LOGITS / head_rows_in_memory(vocab);
    if (gpu && most < HEAD_ROWS_GPU) most = HEAD_ROWS_GPU;
    if (most >= rows) return 1;
    if (most > HEAD_TILE) most = most / HEAD_TILE * HEAD_TILE;
    return most > 1 ? (rows + most - 1) / most : rows;
}

err_t head_plan(head *h, arena *a, dtype compute, int64_t rows, int64_t chunks) {
    h->rows = head_rows(rows, chunks);
    return arena_2d(a, &h->logits, compute, h->rows, h->Vp);
}

// A weight, a bias or a gradient of theirs, with the zeros after it.
static tensor with_padding(const head *h, const tensor *t) {
    tensor whole = *t;
    whole.size[0] = h->Vp;
    return whole;
}

static err_t logits_of(const head *h, const pass *p, tensor *logits, const tensor *x) {
    tensor w = with_padding(h, &p->w[h->at.w]), b = h->at.b < 0 ? (tensor){0} : with_padding(h, &p->w[h->at.b]);
    return p->ops->matmul(
        &(matmul_args){
            .d = logits, .a = x, .b = &w, .tb = true, .bias = h->at.b < 0 ? NULL : &b, .rows = h->rows, .epilogue = h->at.b < 0 ? 0 : MATMUL_BIAS},
        p->s);
}

// dlogits gives the gradients of W and b, and then of x. The first chunk overwrites a fresh gradient, the others add to it.
static err_t chunk_backward(const head *h, const pass *p, const tensor *dx, int64_t first, const tensor *dlogits, const tensor *x) {
    tensor w = with_padding(h, &p->w[h->at.w]), dw = with_padding(h, &p->dw[h->at.w]);
    bool fresh = p->fresh && first == 0;
    TRY(p->ops->matmul(&(matmul_args){.d = &dw, .a = dlogits, .ta = true, .b = x, .epilogue = fresh ? 0 : MATMUL_ACCUMULATE}, p->s));
    if (h->at.b >= 0) {
        tensor db = with_padding(h, &p->dw[h->at.b]);
        TRY(p->ops->bias_backward(&(bias_backward_args){.dbias = &db, .dy = dlogits, .fresh = fresh}, p->s));
    }
    if (!dx) return ERR_OK;
    tensor out = tensor_rows(dx, first, x->size[0]);
    return p->ops->matmul(&(matmul_args){.d = &out, .a = dlogits, .b = &w, .rows = h->rows}, p->s);
}

err_t head_losses(head *h, pass *p, const tensor *losses, const tensor *hits, const tensor *dx, const tensor *x, const tensor *targets) {
    int64_t N = x->size[0];
    for (int64_t first = 0; first < N; first += h->rows) {
        int64_t n = N - first < h->rows ? N - first : h->rows;
        tensor in = tensor_rows(x, first, n), loss = tensor_rows(losses, first, n), target = tensor_rows(targets, first, n),
               logits = view2(&h->logits, n, h->Vp);
        TRY(logits_of(h, p, &logits, &in));
        if (hits) {
            tensor hit = tensor_rows(hits, first, n);
            TRY(p->ops->top_1(&(top_1_args){.hits = &hit, .logits = &logits, .targets = &target, .classes = h->classes}, p->s));
        }
        TRY(p->ops->cross_entropy(&(cross_entropy_args){.losses = &loss,
                                                        .logits = &logits,
                                                        .targets = &target,
                                                        .classes = h->classes,
                                                        .scale = p->dw ? &p->loss_factor : NULL,
                                                        .state = p->state},
                                  p->s));
        if (p->dw) TRY(chunk_backward(h, p, dx, first, &logits, &in));
    }
    return ERR_OK;
}

err_t head_scores(head *h, pass *p, const tensor *x) {
    for (int64_t first = 0, N = x->size[0]; first < N; first += h->rows) {
        int64_t n = N - first < h->rows ? N - first : h->rows;
        tensor in = tensor_rows(x, first, n), logits = view2(&h->logits, n, h->Vp);
        TRY(logits_of(h, p, &logits, &in));
        for (int64_t i = 0; i < n; i++) {
            tensor to = tensor_rows(&p->scores, first + i, 1), row = tensor_rows(&logits, i, 1);
            row.size[1] = h->classes;
            TRY(p->ops->cast(&(cast_args){.y = &to, .x = &row}, p->s));
        }
    }
    return ERR_OK;
}
