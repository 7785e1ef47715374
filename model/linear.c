// model/linear.c: see model/linear.h.
#include "model/linear.h"

void linear_divide(linear *l, model *m, linear_division d, int matrices, const int64_t *rows) {
    if (m->slices.of == 1) return;
    l->division = d, l->of = m;
    model_divide(m, l->w, d == LINEAR_INPUTS, matrices, rows);
    if (l->b >= 0 && d == LINEAR_OUTPUTS) model_divide(m, l->b, 0, matrices, rows);
}

// Rows of the micro-batch of which x is a part: those of p->B samples, or, of these, the ones of this rank's slices of
// rows.
static int64_t whole_rows(const pass *p, const linear *l, const tensor *x) {
    bool part = l->of && (l->of->tokens.count < l->of->tokens.of || (l->of->slices.rows && l->all_rows));
    if (p->rows) return p->rows;
    if (part) return (p->whole ? p->whole : p->B) * p->in[0].size[1];
    return p->whole ? matrix_rows(x) / p->B * p->whole : 0;
}

// W, of the type of what it is multiplied with. What is widened is there until the next product.
static err_t values_of(const pass *p, const linear *l, dtype type, tensor *w) {
    tensor codes = *w = p->w[l->w],
           scales = {.type = FP32, .dims = 1, .size = {tensor_count(w) / WIDEN_GROUP, 1, 1, 1}};
    if (w->type != UINT8) return ERR_OK;
    scales.data = (char *)codes.data + tensor_count(&codes);
    w->data = p->wide.data, w->type = type;
    return p->ops->widen(&(widen_args){.y = w, .codes = &codes, .scales = &scales}, p->s);
}

static bool has_own_rows(const linear *l) { return l->of->slices.rows && !l->all_rows; }

err_t linear_forward(const pass *p, const linear *l, const tensor *y, const tensor *x, const tensor *pre, bool erf,
                     const tensor *residual) {
    tensor d = *y, sum = pre ? *pre : (tensor){0}, w;
    unsigned epilogue = (l->b >= 0 ? MATMUL_BIAS : 0) | (pre ? MATMUL_GELU : 0);
    matmul_args args = {.d = &d,
                        .pre = pre ? &sum : NULL,
                        .a = x,
                        .b = &w,
                        .tb = true,
                        .bias = l->b >= 0 ? &p->w[l->b] : NULL,
                        .residual = residual,
                        .rows = whole_rows(p, l, x),
                        .epilogue = epilogue,
                        .erf = erf};
    if (!matrix_rows(x)) return ERR_OK;
    TRY(values_of(p, l, x->type, &w));
    return l->division == LINEAR_INPUTS ? slices_sum(l->of, p, &args, has_own_rows(l)) : p->ops->matmul(&args, p->s);
}

// Each token slice has its own sum, which the product does not form.
static bool forms_bias(const linear *l) { return !l->of || l->of->tokens.of == 1; }

err_t linear_inputs(const pass *p, const linear *l, const tensor *dx, const tensor *dy, const tensor *pre, bool erf,
                    const linear *before, const tensor *residual) {
    tensor d = *dx, sum = pre ? *pre : (tensor){0}, w;
    bool forms = pre && before && forms_bias(l);
    matmul_args args = {.d = &d,
                        .pre = pre ? &sum : NULL,
                        .a = dy,
                        .b = &w,
                        .residual = residual,
                        .dbias = forms ? linear_bias(p, before) : NULL,
                        .fresh = p->fresh,
                        .rows = whole_rows(p, l, dy),
                        .epilogue = pre ? MATMUL_DGELU : 0,
                        .erf = erf};
    TRY(values_of(p, l, dy->type, &w));
    TRY(l->division == LINEAR_OUTPUTS ? slices_sum(l->of, p, &args, has_own_rows(l)) : p->ops->matmul(&args, p->s));
    return pre && before && !forms ? linear_bias_only(p, before, dx) : ERR_OK;
}

// --- gradients of weights --------------------------------------------------------------------------------------------

typedef err_t (*weights_call)(const pass *p, const linear *l, const tensor *dw, const tensor *dy, const tensor *x);

static err_t multiply(const pass *p, const linear *l, const tensor *dw, const tensor *dy, const tensor *x) {
    tensor d = *dw;
    (void)l;
    return p->ops->matmul(
        &(matmul_args){.d = &d, .a = dy, .ta = true, .b = x, .epilogue = p->fresh ? 0 : MATMUL_ACCUMULATE}, p->s);
}

static err_t add_rows(const pass *p, const linear *l, const tensor *db, const tensor *dy, const tensor *x) {
    tensor to = *db;
    (void)l, (void)x;
    return p->ops->bias_backward(&(bias_backward_args){.dbias = &to, .dy = dy, .fresh = p->fresh}, p->s);
}

// Rows first .. first+n-1 of slice s of a matrix; a whole matrix is one slice.
static tensor part_of(const tensor *x, int64_t s, int64_t first, int64_t n) {
    int64_t slices = matrix_slices(x), N = matrix_rows(x);
    tensor all = view2(x, slices * N, x->size[x->dims - 1]);
    return tensor_rows(&all, (slices > 1 ? s * N : 0) + first, n);
}

// Slice s of a gradient: its share of the rows, or, where columns are divided, a matrix of its own. A bias of divided
// outputs has a share, too.
static tensor gradient_of(const tensor *dw, const linear *l, int64_t s, int64_t slices) {
    if (l->division == LINEAR_INPUTS && dw->dims == 3) {
        tensor one = tensor_rows(dw, s, 1);
        return view2(&one, dw->size[1], dw->size[2]);
    }
    return tensor_rows(dw, s * (dw->size[0] / slices), dw->size[0] / slices);
}

// Calls it for each token slice that is here, slice by slice: in a divided matrix the rows of a token slice are not
// contiguous.
static err_t each_token_slice(const pass *p, const linear *l, int row, const tensor *dy, const tensor *x,
                              weights_call call) {
    const model *m = l->of;
    int64_t N = p->B * p->in[0].size[1], slices = matrix_slices(dy);
    if (x && matrix_slices(x) > slices) slices = matrix_slices(x);
    for (int k = 0; k < m->tokens.count; k++) {
        token_part own = model_token_part(m, p, k, N);
        for (int64_t s = 0; s < slices; s++) {
            tensor dw = gradient_of(&own.p.dw[row], l, s, slices), dyk = part_of(dy, s, own.first, own.n), xk = {0};
            if (x) xk = part_of(x, s, own.first, own.n);
            TRY(call(&own.p, l, &dw, &dyk, &xk));
        }
    }
    return ERR_OK;
}

static bool several_token_slices(const linear *l) { return l->of && l->of->tokens.count > 1; }

err_t linear_weights_only(const pass *p, const linear *l, const tensor *dy, const tensor *x) {
    return several_token_slices(l) ? each_token_slice(p, l, l->w, dy, x, multiply)
                                   : multiply(p, l, &p->dw[l->w], dy, x);
}

tensor *linear_bias(const pass *p, const linear *l) { return l->b < 0 ? NULL : &p->dw[l->b]; }

err_t linear_bias_only(const pass *p, const linear *l, const tensor *dy) {
    if (l->b < 0) return ERR_OK;
    return several_token_slices(l) ? each_token_slice(p, l, l->b, dy, NULL, add_rows)
                                   : add_rows(p, l, &p->dw[l->b], dy, NULL);
}

err_t linear_weights(const pass *p, const linear *l, const tensor *dy, const tensor *x) {
    TRY(linear_weights_only(p, l, dy, x));
    return linear_bias_only(p, l, dy);
}
