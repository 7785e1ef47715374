// test/ops/kinds_model.c: the operations that know of samples, positions and tokens: embedding, cross
// entropy, means.
#include "test/ops/op_test.h"
#include "test/ops/reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *doubles(int64_t n) { return calloc((size_t)n, sizeof(double)); }

// --- embedding: B T C V, rows of wpe where positions have places, else 0 ---------------------------------------------

enum { SPARE = 3 };  // positions of wpe past T: never read, their gradient never touched

static int64_t position_rows(const op_run *r) { return r->row->size[4] ? r->row->size[4] : r->row->size[1] + SPARE; }

// Any rows of the table, in no order.
static arg *add_any_places(op_run *r, int64_t rows) {
    arg *places = arg_add(r, "places", IN, INT32, 2, r->row->size[0], r->row->size[1], 0);
    places->absent = !r->row->size[4];
    arg_fill_index(r, places, rows, 0);
    return places;
}

// The row of wpe of position `row`.
static int64_t position_row(const op_run *r, int places, int64_t row) {
    return r->row->size[4] ? (int64_t)r->arg[places].value[row] : row % r->row->size[1];
}

// Of a number whose products are rounded: sqrt(768).
static float factor_of(const op_run *r) { return r->row->options & OPT_FACTOR ? 27.712812f : 1; }

static void embedding_setup(op_run *r) {
    int64_t B = r->row->size[0], T = r->row->size[1], C = r->row->size[2], V = r->row->size[3];
    arg *x = arg_add(r, "x", OUT, r->row->type, 3, B, T, C), *tokens = arg_add(r, "tokens", IN, INT32, 2, B, T, 0);
    arg *wte = arg_add(r, "wte", IN, r->row->type, 2, V, C, 0),
        *wpe = arg_add(r, "wpe", IN, r->row->type, 2, position_rows(r), C, 0);
    x->batch = tokens->batch = true;
    wpe->absent = r->row->options & OPT_NO_W;
    arg_fill_index(r, tokens, V, 0);
    arg_fill(r, wte, 1, 0);
    arg_fill(r, wpe, 1, 0);
    add_any_places(r, position_rows(r))->batch = true;
}

static err_t embedding_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->embedding_forward(
        &(embedding_forward_args){
            .x = t[0], .tokens = t[1], .wte = t[2], .wpe = t[3], .places = t[4], .factor = factor_of(r)},
        s);
}

static void embedding_reference(op_run *r) {
    int64_t C = r->row->size[2];
    for (int64_t i = 0, n = tensor_count(&r->arg[0].t); i < n; i++) {
        int64_t row = i / C, token = (int64_t)r->arg[1].value[row];
        r->arg[0].want[i] = (double)factor_of(r) * r->arg[2].value[token * C + i % C] +
                            (r->arg[3].absent ? 0 : r->arg[3].value[position_row(r, 4, row) * C + i % C]);
    }
}

static void embedding_cost(const op_run *r, double *bytes, double *flops) {  // x written, a row of each table read
    *bytes = (r->arg[3].absent ? 2.0 : 3.0) * (double)tensor_bytes(&r->arg[0].t) +
             (r->arg[4].absent ? 0 : (double)tensor_bytes(&r->arg[4].t)),
    *flops = 0;
}

const op_kind kind_embedding_forward = {
    "embedding_forward", embedding_setup, embedding_call, embedding_reference, NULL, NULL, embedding_cost};

enum { EB_DWTE, EB_DWPE, EB_SCRATCH, EB_DX, EB_TOKENS, EB_PLACES };

static void embedding_back_setup(op_run *r) {
    int64_t B = r->row->size[0], T = r->row->size[1], C = r->row->size[2], V = r->row->size[3];
    role role = r->row->options & OPT_FRESH ? OUT : ADDS;
    arg_add(r, "dwte", role, FP32, 2, V, C, 0);
    arg_add(r, "dwpe", role, FP32, 2, position_rows(r), C, 0)->absent = r->row->options & OPT_NO_W;
    int64_t sorted = r->row->size[4] > V ? r->row->size[4] : V;
    arg_add(r, "scratch", SCRATCH, INT32, 1, B * T + sorted + 1, 0, 0);
    arg_fill(r, arg_add(r, "dx", IN, r->row->type, 3, B, T, C), 1, 0);
    arg *tokens = arg_add(r, "tokens", IN, INT32, 2, B, T, 0);
    if (r->row->options & OPT_EXTREME) {  // one token everywhere: the longest sum there can be
        for (int64_t i = 0; i < B * T && !r->bench; i++) tokens->value[i] = 1;
        for (int64_t i = 0; i < B * T; i++) storage_set(tokens->t.data, INT32, i, 1);
    } else arg_fill_index(r, tokens, V, 0);
    add_any_places(r, position_rows(r));
}

static err_t embedding_back_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    bool fresh = r->row->options & OPT_FRESH;
    return o->embedding_backward(&(embedding_backward_args){.dwte = t[EB_DWTE],
                                                            .dwpe = t[EB_DWPE],
                                                            .scratch = t[EB_SCRATCH],
                                                            .dx = t[EB_DX],
                                                            .tokens = t[EB_TOKENS],
                                                            .places = t[EB_PLACES],
                                                            .factor = factor_of(r),
                                                            .fresh_wte = fresh,
                                                            .fresh_wpe = fresh},
                                 s);
}

static void embedding_back_reference(op_run *r) {
    int64_t C = r->row->size[2];
    for (int64_t i = 0, n = tensor_count(&r->arg[EB_DX].t); i < n; i++) {
        int64_t row = i / C, token = (int64_t)r->arg[EB_TOKENS].value[row];
        r->arg[EB_DWTE].want[token * C + i % C] += (double)factor_of(r) * r->arg[EB_DX].value[i];
        r->arg[EB_DWPE].want[position_row(r, EB_PLACES, row) * C + i % C] += r->arg[EB_DX].value[i];
    }
}

// The order of the sums is written down (position, sample), so plain float loops give the bits.
static bool embedding_back_exact(op_run *r, const outcome *got) {
    int64_t C = r->row->size[2], V = r->row->size[3];
    const arg *dx = &r->arg[EB_DX], *tokens = &r->arg[EB_TOKENS];
    float *te = calloc((size_t)(V * C), 4), *pe = calloc((size_t)(position_rows(r) * C), 4);
    for (int64_t i = 0, n = tensor_count(&dx->t); i < n; i++) {
        te[(int64_t)tokens->value[i / C] * C + i % C] += (float)dx->value[i];
        pe[position_row(r, EB_PLACES, i / C) * C + i % C] += (float)dx->value[i];
    }
    for (int64_t i = 0; i < V * C; i++) te[i] *= factor_of(r);
    bool ok = !memcmp(te, got->data[EB_DWTE], (size_t)(V * C) * 4) ||
              failed(r, "dwte is not the sum in the order of positions");
    bool same = r->arg[EB_DWPE].absent || !memcmp(pe, got->data[EB_DWPE], (size_t)(position_rows(r) * C) * 4);
    ok = ok && (same || failed(r, "dwpe is not the sum in the order of samples"));
    free(te), free(pe);
    return ok;
}

static double
embedding_loss(void *ctx) {  // of x = factor * wte[token] + wpe[t]; the tables stand in the gradients' own places
    op_run *r = ctx;
    int64_t C = r->row->size[2];
    double sum = 0;
    for (int64_t i = 0, n = tensor_count(&r->arg[EB_DX].t); i < n; i++)
        sum += r->arg[EB_DX].value[i] *
               ((double)factor_of(r) * r->arg[EB_DWTE].value[(int64_t)r->arg[EB_TOKENS].value[i / C] * C + i % C] +
                r->arg[EB_DWPE].value[position_row(r, EB_PLACES, i / C) * C + i % C]);
    return sum;
}

static bool embedding_back_gradient(op_run *r) {
    arg *te = &r->arg[EB_DWTE], *pe = &r->arg[EB_DWPE];
    te->value = doubles(tensor_count(&te->t));
    pe->value = doubles(tensor_count(&pe->t));
    return gradient_near(r, "dwte", embedding_loss, r, te->value, te->want, tensor_count(&te->t)) &&
           gradient_near(r, "dwpe", embedding_loss, r, pe->value, pe->want, tensor_count(&pe->t));
}

static void embedding_back_cost(const op_run *r, double *bytes,
                                double *flops) {  // dx read for each table; touched rows updated
    double rows = (double)(r->row->size[0] * r->row->size[1]), C = (double)r->row->size[2], V = (double)r->row->size[3];
    double touched = rows < V ? rows : V;
    bool places = !r->arg[EB_DWPE].absent;
    *bytes = (places ? 2 : 1) * (double)tensor_bytes(&r->arg[EB_DX].t) +
             8 * C * (touched + (places ? (double)r->row->size[1] : 0)) +
             (r->arg[EB_PLACES].absent ? 0 : (double)tensor_bytes(&r->arg[EB_PLACES].t)),
    *flops = 0;
}

const op_kind kind_embedding_backward = {"embedding_backward",     embedding_back_setup,    embedding_back_call,
                                         embedding_back_reference, embedding_back_gradient, embedding_back_exact,
                                         embedding_back_cost};

// --- cross_entropy: N V, Vp where it is not V, slices, hundredths of smoothing ---------------------------------------

enum { CE_LOSSES, CE_LOGITS, CE_TARGETS, CE_STATE };

static int64_t columns_of(const op_run *r) { return r->row->size[2] ? r->row->size[2] : r->row->size[1]; }

static double smoothing_of(const op_run *r) { return (double)((float)r->row->size[4] / 100); }

// What lies past the classes must not be looked at: it would show in every class.
static void entropy_padding(op_run *r, arg *logits) {
    int64_t V = r->row->size[1], Vp = columns_of(r);
    for (int64_t i = 0, n = r->row->size[0] * Vp; i < n; i++)
        if (i % Vp >= V) storage_set(logits->t.data, r->row->type, i, i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : 3e4);
}

static void entropy_setup(op_run *r) {
    int64_t N = r->row->size[0], V = r->row->size[1], Vp = columns_of(r);
    unsigned o = r->row->options;
    arg *losses = arg_add(r, "losses", OUT, FP32, 1, N, 0, 0);
    arg *logits = arg_add(r, "logits", o & OPT_LOSS_ONLY ? IN : UPDATES, r->row->type, 2, N, Vp, 0);
    arg *targets = arg_add(r, "targets", IN, INT32, 1, N, 0, 0);
    arg *state = arg_add(r, "state", IN, INT32, 1, sizeof(step_state) / 4, 0, 0);
    losses->batch = logits->batch = targets->batch = !(o & OPT_CUT_N);
    if (o & OPT_CUT_N) logits->slices = r->row->size[3];
    r->scale = 0.25f;
    r->state = (step_state){.loss_scale = 512};
    arg_fill_bytes(state, &r->state);
    arg_fill_index(r, targets, V, N > 2 ? 5 : 0);
    arg_fill(r, logits, 2, 0);
    for (int64_t i = 0; o & OPT_EXTREME && i < N * Vp; i++) {  // 1e4 apart, both signs
        double x = i * 7 % 13 == 0 ? 1e4 : i * 7 % 13 == 5 ? -1e4 : storage_get(logits->t.data, r->row->type, i);
        storage_set(logits->t.data, r->row->type, i, x);
        if (logits->value) logits->value[i] = storage_get(logits->t.data, r->row->type, i);
    }
    entropy_padding(r, logits);
}

static err_t entropy_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    const float *scale = r->row->options & OPT_LOSS_ONLY ? NULL : &r->scale;
    const step_state *state = (const step_state *)t[CE_STATE]->data;
    return o->cross_entropy(&(cross_entropy_args){.losses = t[CE_LOSSES],
                                                  .logits = t[CE_LOGITS],
                                                  .targets = t[CE_TARGETS],
                                                  .classes = r->row->size[1],
                                                  .scale = scale,
                                                  .state = state,
                                                  .smoothing = (float)smoothing_of(r)},
                            s);
}

static void entropy_reference(op_run *r) {
    arg *a = r->arg;
    ref_cross_entropy(a[CE_LOSSES].want, a[CE_LOGITS].want, a[CE_LOGITS].value, a[CE_TARGETS].value,
                      (double)r->scale * (double)r->state.loss_scale, smoothing_of(r), r->row->size[0], r->row->size[1],
                      columns_of(r));
}

static bool entropy_exact(op_run *r,
                          const outcome *got) {  // zeros where a target is ignored, and past the classes of every row
    int64_t V = r->row->size[1], Vp = columns_of(r);
    for (int64_t i = 0, n = r->row->size[0] * Vp; i < n; i++) {
        bool ignored = r->arg[CE_TARGETS].value[i / Vp] < 0;
        if (ignored && storage_get(got->data[CE_LOSSES], FP32, i / Vp) != 0)
            return failed(r, "loss of ignored row %" PRId64 " is not 0", i / Vp);
        if ((!ignored && i % Vp < V) || r->row->options & OPT_LOSS_ONLY) continue;
        double x = storage_get(got->data[CE_LOGITS], r->row->type, i);
        if (x != 0 || signbit(x))
            return failed(r, "gradient of row %" PRId64 ", column %" PRId64 " is %g, expected +0", i / Vp, i % Vp, x);
    }
    return true;
}

typedef struct entropy_ctx {
    op_run *r;
    double *losses;
} entropy_ctx;
static double entropy_loss(void *ctx) {
    entropy_ctx *c = ctx;
    int64_t N = c->r->row->size[0];
    double sum = 0;
    ref_cross_entropy(c->losses, NULL, c->r->arg[CE_LOGITS].value, c->r->arg[CE_TARGETS].value, 1, smoothing_of(c->r),
                      N, c->r->row->size[1], columns_of(c->r));
    for (int64_t n = 0; n < N; n++) sum += c->losses[n] * (double)c->r->scale * (double)c->r->state.loss_scale;
    return sum;
}

static bool entropy_gradient(op_run *r) {
    if (r->row->options & (OPT_LOSS_ONLY | OPT_EXTREME)) return true;
    int64_t N = r->row->size[0];
    entropy_ctx c = {r, doubles(N)};
    bool ok = gradient_near(r, "dlogits", entropy_loss, &c, r->arg[CE_LOGITS].value, r->arg[CE_LOGITS].want,
                            N * columns_of(r));
    free(c.losses);
    return ok;
}

static void traffic_cost(const op_run *r, double *bytes, double *flops) { *bytes = arg_traffic(r), *flops = 0; }

// --- cross_entropy_part: the same, all stages of all slices ----------------------------------------------------------

enum { CE_MOST = CE_STATE + 1, CE_LOGIT, CE_SUM };

static void entropy_part_setup(op_run *r) {
    entropy_setup(r);
    arg_add(r, "most", SCRATCH, FP32, 1, r->row->size[0], 0, 0);
    arg_add(r, "logit", SCRATCH, FP32, 1, r->row->size[0], 0, 0);
    arg_add(r, "sum", SCRATCH, FP32, 1, r->row->size[0], 0, 0);
}

static err_t entropy_part_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    cross_entropy_part_args x = {.losses = t[CE_LOSSES],
                                 .most = t[CE_MOST],
                                 .logit = t[CE_LOGIT],
                                 .sum = t[CE_SUM],
                                 .logits = t[CE_LOGITS],
                                 .targets = t[CE_TARGETS],
                                 .classes = r->row->size[1],
                                 .scale = r->row->options & OPT_LOSS_ONLY ? NULL : &r->scale,
                                 .state = (const step_state *)t[CE_STATE]->data};
    for (x.stage = LOGITS_TOP; x.stage <= LOGITS_LOSS; x.stage++) TRY(o->cross_entropy_part(&x, s));
    return ERR_OK;
}

// The first stage reads the logits. The others do so too, and write the gradient's parts, or the second reads them and
// there is no more.
static void entropy_part_cost(const op_run *r, double *bytes, double *flops) {
    double logits = (double)tensor_bytes(&r->arg[CE_LOGITS].t), rows = (double)tensor_count(&r->arg[CE_TARGETS].t);
    *bytes = (r->row->options & OPT_LOSS_ONLY ? 2 : 5) * logits + 3 * 4 * rows * (double)sizeof(float), *flops = 0;
}

const op_kind kind_cross_entropy_part = {
    "cross_entropy_part", entropy_part_setup, entropy_part_call, entropy_reference, NULL,
    entropy_exact,        entropy_part_cost};

const op_kind kind_cross_entropy = {"cross_entropy",  entropy_setup, entropy_call, entropy_reference,
                                    entropy_gradient, entropy_exact, traffic_cost};

// --- top_k: N V, Vp where it is not V, k ----------------------------------------------------------------------------

enum { TOP_HITS, TOP_LOGITS, TOP_TARGETS };

// Half of the rows are hits. In every third row the largest comes twice, in OPT_EXTREME rows it is infinite, or all are
// -inf.
static void top_rows(op_run *r, arg *logits, arg *targets) {
    int64_t N = r->row->size[0], V = r->row->size[1], Vp = columns_of(r);
    for (int64_t n = 0; n < N; n++) {
        void *x = (char *)logits->t.data + (size_t)(n * Vp) * dtype_bytes(r->row->type);
        int64_t top = n * 31 % V, twin = n % 3 == 2 ? n * 17 % V : top;
        bool all = r->row->options & OPT_EXTREME && n % 4 == 3;
        double most = r->row->options & OPT_EXTREME ? (double)INFINITY : 100;
        for (int64_t i = 0; all && i < V; i++) storage_set(x, r->row->type, i, -(double)INFINITY);
        if (!all) storage_set(x, r->row->type, top, most), storage_set(x, r->row->type, twin, most);
        ((int32_t *)targets->t.data)[n] = (int32_t)(n % 2 == 0   ? top
                                                    : n % 5 == 1 ? twin
                                                    : n % 5 == 2 ? -1
                                                                 : n * 13 % V);
        if (all && n % 8 == 3) ((int32_t *)targets->t.data)[n] = 0;
        if (r->row->options & OPT_EXTREME && n % 8 == 4) storage_set(x, r->row->type, n * 7 % V, NAN);
    }
    for (int64_t i = 0; logits->value && i < N * Vp; i++)
        logits->value[i] = storage_get(logits->t.data, r->row->type, i);
    for (int64_t n = 0; targets->value && n < N; n++) targets->value[n] = storage_get(targets->t.data, INT32, n);
}

static void top_setup(op_run *r) {
    int64_t N = r->row->size[0];
    arg *hits = arg_add(r, "hits", OUT, FP64, 1, N, 0, 0);
    arg *logits = arg_add(r, "logits", IN, r->row->type, 2, N, columns_of(r), 0);
    arg *targets = arg_add(r, "targets", IN, INT32, 1, N, 0, 0);
    hits->batch = logits->batch = targets->batch = true;
    arg_fill(r, logits, 2, 0);
    arg_fill_index(r, targets, r->row->size[1], 0);
    top_rows(r, logits, targets);
    entropy_padding(r, logits);
}

static err_t top_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->top_k(&(top_k_args){.hits = t[TOP_HITS],
                                  .logits = t[TOP_LOGITS],
                                  .targets = t[TOP_TARGETS],
                                  .classes = r->row->size[1],
                                  .k = r->row->size[3]},
                    s);
}

static void top_reference(op_run *r) {
    int64_t V = r->row->size[1], Vp = columns_of(r), k = r->row->size[3] ? r->row->size[3] : 1;
    for (int64_t n = 0; n < r->row->size[0]; n++) {
        const double *x = r->arg[TOP_LOGITS].value + n * Vp;
        int64_t target = (int64_t)r->arg[TOP_TARGETS].value[n], ahead = 0;
        bool nan = false, is_class = target >= 0 && target < V;
        for (int64_t i = 0; is_class && i < V; i++)
            nan |= isnan(x[i]), ahead += x[i] > x[target] || (x[i] == x[target] && i < target);
        r->arg[TOP_HITS].want[n] = is_class && !nan && ahead < k;
    }
}

static bool top_exact(op_run *r, const outcome *got) {
    for (int64_t n = 0; n < r->row->size[0]; n++) {
        double hit = storage_get(got->data[TOP_HITS], FP64, n);
        if (hit != r->arg[TOP_HITS].want[n])
            return failed(r, "hits[%" PRId64 "] is %g, expected %g", n, hit, r->arg[TOP_HITS].want[n]);
    }
    return true;
}
const op_kind kind_top_k = {"top_k", top_setup, top_call, top_reference, NULL, top_exact, traffic_cost};

// --- first_equal: N V, Vp where it is not V, slices -----------------------------------------------------------------

enum { FE_AT, FE_LOGITS, FE_VALUES };

// In every third row two columns are equal. Some values are in no column, some are NaN.
static void equal_values(op_run *r, arg *logits, arg *values) {
    int64_t N = r->row->size[0], V = r->row->size[1], Vp = columns_of(r);
    for (int64_t n = 0; n < N; n++) {
        double x = storage_get(logits->t.data, r->row->type, n * Vp + n * 31 % V);
        if (n % 3 == 2) storage_set(logits->t.data, r->row->type, n * Vp + n * 17 % V, x);
        if (n % 7 == 4) x = NAN;
        if (n % 7 == 6) x = 1e4;
        storage_set(values->t.data, FP32, n, x);
        if (values->value) values->value[n] = x;
    }
    for (int64_t i = 0; logits->value && i < N * Vp; i++)
        logits->value[i] = storage_get(logits->t.data, r->row->type, i);
}

static void equal_setup(op_run *r) {
    int64_t N = r->row->size[0];
    bool cut = r->row->options & OPT_CUT_N;
    arg *at = arg_add(r, "at", OUT, FP32, 1, N, 0, 0);
    arg *logits = arg_add(r, "logits", IN, r->row->type, 2, N, columns_of(r), 0);
    arg *values = arg_add(r, "values", IN, FP32, 1, N, 0, 0);
    at->batch = logits->batch = values->batch = !cut;
    if (cut) logits->slices = r->row->size[3];
    arg_fill(r, logits, 2, 0);
    arg_fill(r, values, 2, 0);
    equal_values(r, logits, values);
    entropy_padding(r, logits);
}

static err_t equal_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->first_equal(
        &(first_equal_args){.at = t[FE_AT], .logits = t[FE_LOGITS], .values = t[FE_VALUES], .classes = r->row->size[1]},
        s);
}

static void equal_reference(op_run *r) {
    int64_t V = r->row->size[1], Vp = columns_of(r);
    for (int64_t n = 0; n < r->row->size[0]; n++) {
        const double *x = r->arg[FE_LOGITS].value + n * Vp;
        int64_t k = 0;
        while (k < V && x[k] != r->arg[FE_VALUES].value[n]) k++;
        r->arg[FE_AT].want[n] = k < V ? 0 - (double)k : -(double)FIRST_EQUAL_NONE;
    }
}

static bool equal_exact(op_run *r, const outcome *got) {
    for (int64_t n = 0; n < r->row->size[0]; n++) {
        double at = storage_get(got->data[FE_AT], FP32, n);
        if (at != r->arg[FE_AT].want[n])
            return failed(r, "at[%" PRId64 "] is %g, expected %g", n, at, r->arg[FE_AT].want[n]);
    }
    return true;
}
const op_kind kind_first_equal = {"first_equal", equal_setup, equal_call,  equal_reference,
                                  NULL,          equal_exact, traffic_cost};

// --- squared_error: N Vp ---------------------------------------------------------------------------------------------

enum { SE_LOSSES, SE_OUTPUTS, SE_TARGETS, SE_STATE, SE_SAID, SE_WANTED };

static void squared_setup(op_run *r) {
    int64_t N = r->row->size[0], Vp = r->row->size[1];
    bool only = r->row->options & OPT_LOSS_ONLY;
    arg *losses = arg_add(r, "losses", OUT, FP32, 1, N, 0, 0);
    arg *outputs = arg_add(r, "outputs", only ? IN : UPDATES, r->row->type, 2, N, Vp, 0);
    arg *targets = arg_add(r, "targets", IN, FP32, 1, N, 0, 0);
    arg *state = arg_add(r, "state", IN, INT32, 1, sizeof(step_state) / 4, 0, 0);
    arg *said = arg_add(r, "said", OUT, FP64, 1, N, 0, 0), *wanted = arg_add(r, "wanted", OUT, FP64, 1, N, 0, 0);
    said->absent = wanted->absent = !only;
    losses->batch = outputs->batch = targets->batch = said->batch = wanted->batch = true;
    r->scale = 0.25f;
    r->state = (step_state){.loss_scale = 512};
    arg_fill_bytes(state, &r->state);
    arg_fill(r, outputs, 2, 0);
    arg_fill(r, targets, 2, 0);
    for (int64_t i = 0; r->row->options & OPT_EXTREME && i < N * Vp; i++) {  // what is no output is anything
        if (i % Vp) storage_set(outputs->t.data, r->row->type, i, NAN);
        if (i % Vp && outputs->value) outputs->value[i] = NAN;
    }
}

static err_t squared_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->squared_error(&(squared_error_args){.losses = t[SE_LOSSES],
                                                  .said = t[SE_SAID],
                                                  .wanted = t[SE_WANTED],
                                                  .outputs = t[SE_OUTPUTS],
                                                  .targets = t[SE_TARGETS],
                                                  .scale = r->row->options & OPT_LOSS_ONLY ? NULL : &r->scale,
                                                  .state = (const step_state *)t[SE_STATE]->data},
                            s);
}

static void squared_reference(op_run *r) {
    arg *a = r->arg;
    int64_t N = r->row->size[0], Vp = r->row->size[1];
    bool only = r->row->options & OPT_LOSS_ONLY;
    for (int64_t n = 0; n < N; n++) {
        double y = a[SE_OUTPUTS].value[n * Vp], d = y - a[SE_TARGETS].value[n];
        a[SE_LOSSES].want[n] = d * d;
        if (only) a[SE_SAID].want[n] = y, a[SE_WANTED].want[n] = a[SE_TARGETS].value[n];
        for (int64_t i = 0; !only && i < Vp; i++)
            a[SE_OUTPUTS].want[n * Vp + i] = i ? 0 : 2 * d * (double)r->scale * (double)r->state.loss_scale;
    }
}

static bool squared_exact(op_run *r, const outcome *got) {
    int64_t N = r->row->size[0], Vp = r->row->size[1];
    bool only = r->row->options & OPT_LOSS_ONLY;
    for (int64_t n = 0; n < N && only; n++)
        if (storage_get(got->data[SE_SAID], FP64, n) != r->arg[SE_SAID].want[n] ||
            storage_get(got->data[SE_WANTED], FP64, n) != r->arg[SE_WANTED].want[n])
            return failed(r, "row %" PRId64 ": not the output and its target", n);
    for (int64_t i = 0; i < N * Vp && !only; i++) {
        double x = storage_get(got->data[SE_OUTPUTS], r->row->type, i);
        if (i % Vp && (x != 0 || signbit(x)))
            return failed(r, "gradient of row %" PRId64 ", column %" PRId64 " is %g, expected +0", i / Vp, i % Vp, x);
    }
    return true;
}

typedef struct squared_ctx {
    op_run *r;
} squared_ctx;
static double squared_loss(void *ctx) {
    const op_run *r = ((squared_ctx *)ctx)->r;
    double sum = 0;
    for (int64_t n = 0; n < r->row->size[0]; n++) {
        double d = r->arg[SE_OUTPUTS].value[n * r->row->size[1]] - r->arg[SE_TARGETS].value[n];
        sum += d * d * (double)r->scale * (double)r->state.loss_scale;
    }
    return sum;
}

static bool squared_gradient(op_run *r) {
    if (r->row->options & (OPT_LOSS_ONLY | OPT_EXTREME)) return true;
    return gradient_near(r, "doutputs", squared_loss, &(squared_ctx){r}, r->arg[SE_OUTPUTS].value,
                         r->arg[SE_OUTPUTS].want, r->row->size[0] * r->row->size[1]);
}

// The state is a few words, however many rows there are.
static void squared_cost(const op_run *r, double *bytes, double *flops) {
    *bytes = arg_traffic(r) - (double)tensor_bytes(&r->arg[SE_STATE].t), *flops = 0;
}
const op_kind kind_squared_error = {"squared_error",  squared_setup, squared_call, squared_reference,
                                    squared_gradient, squared_exact, squared_cost};

// --- loss_means: B T -------------------------------------------------------------------------------------------------

static void means_setup(op_run *r) {
    arg *means = arg_add(r, "means", OUT, FP64, 1, r->row->size[0], 0, 0);
    arg *losses = arg_add(r, "losses", IN, FP32, 2, r->row->size[0], r->row->size[1], 0);
    means->batch = losses->batch = true;
    arg_fill_wide(r, losses, 3);
}
static err_t means_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->loss_means(&(loss_means_args){.means = t[0], .losses = t[1]}, s);
}
static void means_reference(op_run *r) {
    int64_t B = r->row->size[0], T = r->row->size[1];
    for (int64_t b = 0; b < B; b++) {
        double sum = 0;
        for (int64_t t = 0; t < T; t++) sum += r->arg[1].value[b * T + t];
        r->arg[0].want[b] = sum / (double)T;
    }
}
static bool means_exact(op_run *r, const outcome *got) {  // doubles, in order: to the bit
    if (!memcmp(got->data[0], r->arg[0].want, (size_t)r->row->size[0] * 8)) return true;
    return failed(r, "means differ from sums in double in the order of t");
}
const op_kind kind_loss_means = {"loss_means", means_setup, means_call,  means_reference,
                                 NULL,         means_exact, traffic_cost};

// --- count_targets: B T ----------------------------------------------------------------------------------------------

static void counts_setup(op_run *r) {
    arg *counts = arg_add(r, "counts", OUT, FP64, 1, r->row->size[0], 0, 0);
    arg *targets = arg_add(r, "targets", IN, INT32, 2, r->row->size[0], r->row->size[1], 0);
    counts->batch = targets->batch = true;
    for (int64_t i = 0, n = tensor_count(&targets->t); i < n && !r->bench;
         i++) {  // also 0, which counts, and a whole sample of which none does
        int64_t b = i / r->row->size[1];
        targets->value[i] = b % 3 == 2 ? -1 - i % 2 : i % 5 == 1 ? -1 : i % 7 == 0 ? 0 : (double)(i % 50257);
        storage_set(targets->t.data, INT32, i, targets->value[i]);
    }
}
static err_t counts_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->count_targets(&(count_targets_args){.counts = t[0], .targets = t[1]}, s);
}
static void counts_reference(op_run *r) {
    int64_t B = r->row->size[0], T = r->row->size[1];
    for (int64_t b = 0; b < B; b++) {
        r->arg[0].want[b] = 0;
        for (int64_t t = 0; t < T; t++) r->arg[0].want[b] += r->arg[1].value[b * T + t] > -0.5;
    }
}
static bool counts_exact(op_run *r, const outcome *got) {
    for (int64_t b = 0; b < r->row->size[0]; b++) {
        double count = storage_get(got->data[0], FP64, b);
        if (count != r->arg[0].want[b])
            return failed(r, "counts[%" PRId64 "] is %g, expected %g", b, count, r->arg[0].want[b]);
    }
    return true;
}
const op_kind kind_count_targets = {"count_targets", counts_setup, counts_call, counts_reference, NULL,
                                    counts_exact,    traffic_cost};

// --- gather_rows: B T C M, 1: the first M rows -----------------------------------------------------------------------

enum { GA_Y, GA_X, GA_AT };

// The row of x that row m of a sample's y is.
static int64_t gathered(const op_run *r, int at, int64_t b, int64_t m) {
    return r->row->size[4] ? m : (int64_t)r->arg[at].value[b * r->row->size[3] + m];
}

static void add_places(op_run *r) {
    arg *at = arg_add(r, "at", IN, INT32, 2, r->row->size[0], r->row->size[3], 0);
    at->absent = r->row->size[4];
    at->batch = true;
    arg_fill_index(r, at, r->row->size[1], 0);
}

static void gather_setup(op_run *r) {
    const int64_t *z = r->row->size;
    arg *y = arg_add(r, "y", OUT, r->row->type, 3, z[0], z[3], z[2]),
        *x = arg_add(r, "x", IN, r->row->type, 3, z[0], z[1], z[2]);
    y->batch = x->batch = true;
    arg_fill(r, x, 1, 0);
    add_places(r);
}
static err_t gather_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->gather_rows(&(gather_rows_args){.y = t[GA_Y], .x = t[GA_X], .at = t[GA_AT]}, s);
}
static void gather_reference(op_run *r) {
    int64_t B = r->row->size[0], T = r->row->size[1], C = r->row->size[2], M = r->row->size[3];
    for (int64_t b = 0; b < B; b++)
        for (int64_t m = 0; m < M; m++)
            for (int64_t c = 0; c < C; c++)
                r->arg[GA_Y].want[(b * M + m) * C + c] = r->arg[GA_X].value[(b * T + gathered(r, GA_AT, b, m)) * C + c];
}
static double places_bytes(const op_run *r) {
    return r->arg[GA_AT].absent ? 0 : (double)tensor_bytes(&r->arg[GA_AT].t);
}
static void gather_cost(const op_run *r, double *bytes, double *flops) {
    *bytes = 2 * (double)tensor_bytes(&r->arg[GA_Y].t) + places_bytes(r), *flops = 0;
}
const op_kind kind_gather_rows = {"gather_rows", gather_setup, gather_call, gather_reference, NULL, NULL, gather_cost};

static void scatter_setup(op_run *r) {
    const int64_t *z = r->row->size;
    arg *dx = arg_add(r, "dx", OUT, r->row->type, 3, z[0], z[1], z[2]),
        *dy = arg_add(r, "dy", IN, r->row->type, 3, z[0], z[3], z[2]);
    dx->batch = dy->batch = true;
    arg_fill(r, dy, 1, 0);
    add_places(r);
}
static err_t scatter_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->scatter_rows(&(scatter_rows_args){.dx = t[GA_Y], .dy = t[GA_X], .at = t[GA_AT]}, s);
}
static void scatter_reference(op_run *r) {
    int64_t B = r->row->size[0], T = r->row->size[1], C = r->row->size[2], M = r->row->size[3];
    memset(r->arg[GA_Y].want, 0, (size_t)(B * T * C) * sizeof(double));
    for (int64_t b = 0; b < B; b++)
        for (int64_t m = 0; m < M; m++)
            for (int64_t c = 0; c < C; c++)
                r->arg[GA_Y].want[(b * T + gathered(r, GA_AT, b, m)) * C + c] +=
                    r->arg[GA_X].value[(b * M + m) * C + c];
}
static void scatter_cost(const op_run *r, double *bytes, double *flops) { *bytes = arg_traffic(r), *flops = 0; }
const op_kind kind_scatter_rows = {"scatter_rows", scatter_setup, scatter_call, scatter_reference,
                                   NULL,           NULL,          scatter_cost};
