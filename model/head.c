// model/head.c: see model/head.h.
#include "model/head.h"

// A share smaller than a tile is not rounded up.
int64_t head_rows(int64_t rows, int64_t chunks) {
    int64_t share = (rows + chunks - 1) / chunks, whole = (share + HEAD_TILE - 1) / HEAD_TILE * HEAD_TILE;
    return share < HEAD_TILE ? share : whole < rows ? whole : rows;
}

int64_t head_chunks(int64_t rows, int64_t vocab, bool gpu) {
    int64_t most = HEAD_LOGITS / head_rows_in_memory(vocab, 1);
    if (gpu && most < HEAD_ROWS_GPU) most = HEAD_ROWS_GPU;
    if (most >= rows) return 1;
    if (most > HEAD_TILE) most = most / HEAD_TILE * HEAD_TILE;
    return most > 1 ? (rows + most - 1) / most : rows;
}

// Are the classes divided?
static bool cuts_classes(const head *h) { return h->at.division == LINEAR_OUTPUTS; }

static bool merges(const head *h, const pass *p) { return p->merge && cuts_classes(h); }

// Columns of logits on this rank, padding included.
static int64_t columns(const head *h) { return cuts_classes(h) ? model_share(h->at.of, h->Vp) : h->Vp; }

err_t head_plan(head *h, arena *a, const model_plan *o, int64_t rows, int64_t chunks) {
    const model *m = h->at.of;
    int64_t slices = m ? m->tokens.of : 1;
    h->rows = head_rows((rows + slices - 1) / slices, (chunks + slices - 1) / slices);
    h->kept = h->last = (tensor){0};
    if (h->says || (cuts_classes(h) && m->slices.count < m->slices.of)) TRY(arena_2d(a, &h->kept, FP32, 3, h->rows));
    if (m && model_row_ranks(m) > 1 && o->kv_slots)
        TRY(arena_2d(a, &h->last, o->compute, o->kv_slots, m->param[h->at.w].size[1]));
    return arena_2d(a, &h->logits, o->compute, h->rows, columns(h));
}

// A weight, a bias or a gradient of theirs, with the zeros after it.
static tensor with_padding(const head *h, const tensor *t) {
    tensor whole = *t;
    if (h->at.division != LINEAR_INPUTS) whole.size[0] = columns(h);
    return whole;
}

static tensor logits_view(const head *h, int64_t n) {
    return cuts_classes(h) ? model_cut(h->at.of, &h->logits, n, h->Vp) : view2(&h->logits, n, h->Vp);
}

// Rows first .. first+n-1 of x (N,C), or of each slice of x (S,N,C/S), which are then all of them.
static tensor rows_of(const tensor *x, int64_t first, int64_t n) {
    return x->dims == 3 ? *x : tensor_rows(x, first, n);
}

static err_t logits_of(const head *h, const pass *p, tensor *logits, const tensor *x) {
    tensor w = with_padding(h, &p->w[h->at.w]), b = h->at.b < 0 ? (tensor){0} : with_padding(h, &p->w[h->at.b]);
    matmul_args args = {.d = logits,
                        .a = x,
                        .b = &w,
                        .tb = true,
                        .bias = h->at.b < 0 ? NULL : &b,
                        .rows = h->rows,
                        .epilogue = h->at.b < 0 ? 0 : MATMUL_BIAS};
    return h->at.division == LINEAR_INPUTS ? slices_sum(h->at.of, p, &args, false) : p->ops->matmul(&args, p->s);
}

// The first chunk overwrites a fresh gradient, the others add to it.
static err_t chunk_weights(const head *h, const pass *p, int64_t first, const tensor *dlogits, const tensor *x) {
    tensor dw = with_padding(h, &p->dw[h->at.w]);
    bool fresh = p->fresh && first == 0;
    TRY(p->ops->matmul(
        &(matmul_args){.d = &dw, .a = dlogits, .ta = true, .b = x, .epilogue = fresh ? 0 : MATMUL_ACCUMULATE}, p->s));
    if (h->at.b < 0) return ERR_OK;
    tensor db = with_padding(h, &p->dw[h->at.b]);
    return p->ops->bias_backward(&(bias_backward_args){.dbias = &db, .dy = dlogits, .fresh = fresh}, p->s);
}

// dlogits gives the gradients of W and b, and then of x.
static err_t chunk_backward(const head *h, const pass *p, const tensor *dx, int64_t first, const tensor *dlogits,
                            const tensor *x) {
    tensor w = with_padding(h, &p->w[h->at.w]);
    if (!h->frozen) TRY(chunk_weights(h, p, first, dlogits, x));
    if (!dx) return ERR_OK;
    tensor out = rows_of(dx, first, matrix_rows(x));
    matmul_args args = {.d = &out, .a = dlogits, .b = &w, .rows = h->rows};
    return cuts_classes(h) ? slices_sum(h->at.of, p, &args, false) : p->ops->matmul(&args, p->s);
}

// The first class that is here.
static int64_t first_class(const head *h) {
    return cuts_classes(h) ? h->at.of->slices.first * (h->Vp / h->at.of->slices.of) : 0;
}

// Result k of the softmax's stages, of n rows.
static tensor kept_row(const head *h, int64_t k, int64_t n) {
    tensor row = tensor_rows(&h->kept, k, 1);
    return view1(&row, n);
}

// Other ranks have some of the classes' slices: each stage's result is merged before the next stage.
static err_t losses_in_stages(const head *h, const pass *p, cross_entropy_args *args) {
    int64_t n = tensor_count(args->losses), here = first_class(h);
    tensor most = kept_row(h, 0, n), logit = kept_row(h, 1, n), sum = kept_row(h, 2, n);
    cross_entropy_part_args x = {.losses = args->losses,
                                 .most = &most,
                                 .logit = &logit,
                                 .sum = &sum,
                                 .logits = args->logits,
                                 .targets = args->targets,
                                 .classes = args->classes,
                                 .first = here,
                                 .scale = args->scale,
                                 .state = args->state};
    for (x.stage = LOGITS_TOP; x.stage <= LOGITS_LOSS; x.stage++) {
        TRY(p->ops->cross_entropy_part(&x, p->s));
        if (x.stage == LOGITS_TOP) TRY(slices_whole(p, MERGE_LARGEST, &most));
        if (x.stage == LOGITS_TOP) TRY(slices_whole(p, MERGE_PICK, &logit));
        if (x.stage == LOGITS_SUM) TRY(slices_whole(p, MERGE_SUM, &sum));
    }
    return ERR_OK;
}

// Positions of all samples.
static int64_t positions(const pass *p) { return p->B * p->in[0].size[1]; }

// Rows of the whole micro-batch.
static int64_t all_rows(const model *m, const pass *p) { return m->stream ? positions(p) : p->B; }

// Row i of logits, slice by slice. Slices of other ranks are zeros.
static err_t scores_row(const head *h, const pass *p, const tensor *logits, int64_t i, const tensor *to) {
    int64_t slices = matrix_slices(logits), width = logits->size[logits->dims - 1], n = matrix_rows(logits);
    int64_t before = cuts_classes(h) ? h->at.of->slices.first * width : 0;
    for (int64_t s = 0; s < slices; s++) {
        int64_t first = before + s * width, classes = h->classes - first < width ? h->classes - first : width;
        if (classes <= 0) break;
        tensor all = view2(logits, slices * n, width), row = tensor_rows(&all, s * n + i, 1),
               part = view2(to, 1, classes);
        row.size[1] = classes;
        part.data = (float *)to->data + first;
        TRY(p->ops->cast(&(cast_args){.y = &part, .x = &row}, p->s));
    }
    return ERR_OK;
}

// Rows `first` and on of p->scores.
static err_t scores_rows(const head *h, const pass *p, const tensor *logits, int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        tensor to = tensor_rows(&p->scores, first + i, 1);
        TRY(scores_row(h, p, logits, i, &to));
    }
    return ERR_OK;
}

// The likeliest class of each row: its logit is the largest of all, and it is the first of those.
static err_t likeliest_of(const head *h, const pass *p, tensor *logits, const tensor *targets, int64_t first) {
    int64_t n = matrix_rows(logits), here = first_class(h);
    tensor most = kept_row(h, 0, n), logit = kept_row(h, 1, n), sum = kept_row(h, 2, n),
           all = view1(&p->said, tensor_count(&p->said)), said = tensor_rows(&all, first, n);
    TRY(p->ops->cross_entropy_part(&(cross_entropy_part_args){.stage = LOGITS_TOP,
                                                              .most = &most,
                                                              .logit = &logit,
                                                              .sum = &sum,
                                                              .logits = logits,
                                                              .targets = targets,
                                                              .classes = h->classes,
                                                              .first = here},
                                   p->s));
    if (merges(h, p)) TRY(slices_whole(p, MERGE_LARGEST, &most));
    TRY(p->ops->first_equal(
        &(first_equal_args){.at = &said, .logits = logits, .values = &most, .classes = h->classes, .first = here},
        p->s));
    return merges(h, p) ? slices_whole(p, MERGE_LARGEST, &said) : ERR_OK;
}

static tensor hits_row(const tensor *hits, int64_t k, int64_t first, int64_t n) {
    tensor all = tensor_rows(hits, k, 1), row = view1(&all, hits->size[1]);
    return tensor_rows(&row, first, n);
}

static err_t squared_errors(const pass *p, const tensor *losses, const tensor *hits, tensor *logits,
                            const tensor *targets, int64_t first) {
    tensor loss = *losses, said, wanted;
    int64_t n = matrix_rows(logits);
    if (hits) said = hits_row(hits, 0, first, n), wanted = hits_row(hits, 1, first, n);
    return p->ops->squared_error(&(squared_error_args){.losses = &loss,
                                                       .said = hits ? &said : NULL,
                                                       .wanted = hits ? &wanted : NULL,
                                                       .outputs = logits,
                                                       .targets = targets,
                                                       .scale = p->dw ? &p->loss_factor : NULL,
                                                       .state = p->state},
                                 p->s);
}

static err_t cross_entropies(const head *h, const pass *p, const tensor *losses, const tensor *hits, tensor *logits,
                             const tensor *targets, int64_t first) {
    tensor loss = *losses;
    for (int64_t k = 0; hits && k < hits->size[0]; k++) {
        tensor hit = hits_row(hits, k, first, matrix_rows(logits));
        TRY(p->ops->top_k(
            &(top_k_args){
                .hits = &hit, .logits = logits, .targets = targets, .classes = h->classes, .k = k ? h->top : 0},
            p->s));
    }
    cross_entropy_args args = {.losses = &loss,
                               .logits = logits,
                               .targets = targets,
                               .classes = h->classes,
                               .scale = p->dw ? &p->loss_factor : NULL,
                               .state = p->state,
                               .smoothing = p->dw ? h->smoothing : 0};
    return merges(h, p) ? losses_in_stages(h, p, &args) : p->ops->cross_entropy(&args, p->s);
}

// The rows are those of one sum.
static err_t losses_of_rows(const head *h, const pass *p, const tensor *losses, const tensor *hits, const tensor *dx,
                            const tensor *x, const tensor *targets) {
    int64_t N = matrix_rows(x);
    for (int64_t first = 0; first < N; first += h->rows) {
        int64_t n = N - first < h->rows ? N - first : h->rows;
        tensor in = rows_of(x, first, n), loss = tensor_rows(losses, first, n), target = tensor_rows(targets, first, n),
               logits = logits_view(h, n);
        TRY(logits_of(h, p, &logits, &in));
        if (p->scores.data) TRY(scores_rows(h, p, &logits, first, n));
        if (p->said.data) TRY(likeliest_of(h, p, &logits, &target, first));
        TRY(h->squares ? squared_errors(p, &loss, hits, &logits, &target, first)
                       : cross_entropies(h, p, &loss, hits, &logits, &target, first));
        if (p->dw) TRY(chunk_backward(h, p, dx, first, &logits, &in));
    }
    return ERR_OK;
}

err_t head_losses(head *h, pass *p, const tensor *losses, const tensor *hits, const tensor *dx, const tensor *x,
                  const tensor *targets) {
    const model *m = h->at.of;
    if (!m || m->tokens.of == 1 || !p->dw) return losses_of_rows(h, p, losses, hits, dx, x, targets);
    for (int k = 0; k < m->tokens.count; k++) {
        token_part own = model_token_part(m, p, k, all_rows(m, p));
        tensor loss = tensor_rows(losses, own.first, own.n), in = tensor_rows(x, own.first, own.n),
               target = tensor_rows(targets, own.first, own.n);
        tensor to = dx ? tensor_rows(dx, own.first, own.n) : (tensor){0};
        TRY(losses_of_rows(h, &own.p, &loss, NULL, dx ? &to : NULL, &in, &target));
    }
    return ERR_OK;
}

err_t head_scores(head *h, pass *p, const tensor *x) {
    if (merges(h, p)) TRY(stream_zero(p->s, p->scores.data, (size_t)(x->size[0] * h->classes) * sizeof(float)));
    for (int64_t first = 0, N = x->size[0]; first < N; first += h->rows) {
        int64_t n = N - first < h->rows ? N - first : h->rows;
        tensor in = tensor_rows(x, first, n), logits = logits_view(h, n);
        TRY(logits_of(h, p, &logits, &in));
        TRY(scores_rows(h, p, &logits, first, n));
    }
    if (!merges(h, p)) return ERR_OK;
    tensor scores = view2(&p->scores, x->size[0], h->classes);
    return slices_whole(p, MERGE_PICK, &scores);
}

// --- of a residual stream --------------------------------------------------------------------------------------------

err_t head_stream_losses(head *h, pass *p, const tensor *x, const tensor *targets) {
    int64_t N = positions(p), first = h->at.of ? model_first_row(h->at.of, N) : 0, n = matrix_rows(x);
    tensor losses = view1(&p->losses, N), wanted = view1(targets, N);
    losses = tensor_rows(&losses, first, n), wanted = tensor_rows(&wanted, first, n);
    TRY(head_losses(h, p, &losses, NULL, x, x, &wanted));
    losses = view1(&p->losses, N);
    return slices_share_rows(p, &losses);
}

err_t head_stream_scores(head *h, pass *p, const tensor *x) {
    int64_t N = positions(p), first = p->B > 1 ? 0 : N - 1;
    tensor last = p->swap ? tensor_rows(&h->last, 0, N - first) : tensor_rows(x, first, N - first);
    if (p->swap) TRY(slices_pick_rows(h->at.of, p, &last, x, first, N));
    return head_scores(h, p, &last);
}
