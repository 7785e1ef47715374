// test/ops/kinds_step.c: the operations of one optimizer step: sum_squares, step_decide, adamw, sgd, lars_ratio, and
// the rounding of their weights.
#include "base/philox.h"
#include "test/ops/op_test.h"
#include "test/ops/reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void traffic_cost(const op_run *r, double *bytes, double *flops) { *bytes = arg_traffic(r), *flops = 0; }

// --- sum_squares: n --------------------------------------------------------------------------------------------------

static void squares_setup(op_run *r) {
    int64_t n = r->row->size[0];
    arg_add(r, "sums", OUT, FP64, 1, (n + CHUNK - 1) / CHUNK, 0, 0);
    // Squares that FP32 has no room for
    arg_fill_wide(r, arg_add(r, "g", IN, FP32, 1, n, 0, 0), r->row->options & OPT_EXTREME ? 1e30 : 1);
}
static err_t squares_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->sum_squares(&(sum_squares_args){.sums = t[0], .g = t[1]}, s);
}

static void squares_reference(op_run *r) {  // the written-down order
    int64_t n = r->row->size[0];
    for (int64_t c = 0; c * CHUNK < n; c++) {
        double a[8] = {0};
        for (int64_t i = 0; i < CHUNK && c * CHUNK + i < n; i++)
            a[i % 8] += r->arg[1].value[c * CHUNK + i] * r->arg[1].value[c * CHUNK + i];
        r->arg[0].want[c] = ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
    }
}

static bool squares_exact(op_run *r, const outcome *got) {
    if (!memcmp(got->data[0], r->arg[0].want, tensor_bytes(&r->arg[0].t))) return true;
    return failed(r, "sums differ from 8 interleaved accumulators and their tree");
}

const op_kind kind_sum_squares = {"sum_squares", squares_setup, squares_call, squares_reference,
                                  NULL,          squares_exact, traffic_cost};

// --- step_decide: sums -----------------------------------------------------------------------------------------------

// Powers, a count, a mean.
enum { SCALARS = 4 };
static const step_scalar some_scalars[SCALARS] = {{0.9, 0.9, 0}, {0.99, 0.99, 0}, {1, 1, 1}, {0.125, 0.75, 0.25}};

static void decide_setup(op_run *r) {
    arg *state = arg_add(r, "state", UPDATES, INT32, 1, sizeof(step_state) / 4, 0, 0);
    arg *sums = arg_add(r, "sums", IN, FP64, 1, r->row->size[0], 0, 0);
    arg *scalars = arg_add(r, "scalars", UPDATES, FP64, 2, SCALARS, 3, 0);
    r->state = (step_state){.lr = 0.5f, .apply = -7, .loss_scale = 1024, .updates = 1, .good_steps = 1};
    r->step = (step_rules){.grad_clip = 1, .dynamic_scale = true, .scale_window = 100};
    arg_fill_bytes(state, &r->state);
    arg_fill_bytes(scalars, some_scalars);
    free(scalars->want);
    scalars->want = NULL;  // decide_exact
    arg_fill_wide(r, sums, 1e3);
    for (int64_t i = 0; i < r->row->size[0] && !r->bench; i++) {  // sums of squares are not negative
        sums->value[i] *= sums->value[i];
        storage_set(sums->t.data, FP64, i, sums->value[i]);
    }
}
static err_t decide_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->step_decide(&(step_decide_args){.state = (step_state *)t[0]->data,
                                              .sums = t[1],
                                              .rules = &r->step,
                                              .scalars = (step_scalar *)t[2]->data,
                                              .scalar_count = SCALARS},
                          s);
}
static void decide_reference(op_run *r) { (void)r; }  // the truth table is in special.c

static bool decide_exact(op_run *r, const outcome *got) {  // the norm's order is written down
    step_state s;
    double sum = 0;
    memcpy(&s, got->data[0], sizeof s);
    for (int64_t i = 0; i < r->row->size[0]; i++) sum += r->arg[1].value[i];
    double norm = sqrt(sum) / 1024;
    if (s.grad_norm != norm) return failed(r, "grad_norm is %.17g, expected %.17g to the bit", s.grad_norm, norm);
    if (s.apply != 1 || s.updates != 2 || s.good_steps != 2 || s.skipped != 0)
        return failed(r, "a good step was not counted");
    static const double after[SCALARS] = {0.9 * 0.9, 0.99 * 0.99, 2, 0.34375};
    for (int k = 0; k < SCALARS; k++) {
        step_scalar x = ((const step_scalar *)(const void *)got->data[2])[k];
        if (x.value != after[k] || x.factor != some_scalars[k].factor || x.addend != some_scalars[k].addend)
            return failed(r, "scalar %d is %.17g after %.17g, expected %.17g", k, x.value, some_scalars[k].value,
                          after[k]);
    }
    return true;
}

const op_kind kind_step_decide = {"step_decide", decide_setup, decide_call, decide_reference,
                                  NULL,          decide_exact, traffic_cost};

// --- adamw: n --------------------------------------------------------------------------------------------------------

enum { AW_W, AW_MASTER, AW_M, AW_V, AW_GRAD, AW_STATE, AW_POWER };

static void adamw_setup(op_run *r) {
    int64_t n = r->row->size[0], t = 3;
    unsigned o = r->row->options;
    arg *w = arg_add(r, "w", o & OPT_SKIP ? UPDATES : OUT, r->row->type, 1, n, 0, 0);
    arg *master = arg_add(r, "master", UPDATES, FP32, 1, n, 0, 0);
    arg *m = arg_add(r, "m", UPDATES, FP32, 1, n, 0, 0), *v = arg_add(r, "v", UPDATES, FP32, 1, n, 0, 0);
    arg *grad = arg_add(r, "grad", IN, FP32, 1, n, 0, 0);
    arg *state = arg_add(r, "state", IN, INT32, 1, sizeof(step_state) / 4, 0, 0);
    arg *powers = arg_add(r, "powers", IN, FP64, 2, 2, 3, 0);
    w->absent = o & OPT_NO_W;
    free(w->want);
    w->want = NULL;  // update_exact: the master, rounded one way or the other
    r->adamw = (adamw_rules){.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    if (o & OPT_FACTOR) r->adamw.lr_factor = 0.3;
    r->round = (rounding_key){.seed = 1337, .site = 0x60000007, .first = n > 64 ? 5 * CHUNK : 0};
    r->state = (step_state){
        .lr = 0.0123f, .apply = !(o & OPT_SKIP), .grad_factor = 0.0078125f, .loss_scale = 128, .updates = t};
    const step_scalar power[] = {{.value = 0.9 * 0.9 * 0.9}, {.value = 0.95 * 0.95 * 0.95}};
    arg_fill(r, master, 0.02, 0);
    arg_fill(r, m, 0.1, 0);
    arg_fill(r, v, 0.01, 0.05);
    arg_fill(r, grad, 30, 0);
    if (o & OPT_SKIP) arg_fill(r, w, 1, 0);
    arg_fill_bytes(state, &r->state);
    arg_fill_bytes(powers, power);
}

static err_t adamw_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->adamw(&(adamw_args){.w = t[AW_W],
                                  .master = t[AW_MASTER],
                                  .m = t[AW_M],
                                  .v = t[AW_V],
                                  .grad = t[AW_GRAD],
                                  .state = (const step_state *)t[AW_STATE]->data,
                                  .power = (const step_scalar *)t[AW_POWER]->data,
                                  .rules = &r->adamw,
                                  .round = r->row->options & OPT_STOCHASTIC ? &r->round : NULL},
                    s);
}

static void adamw_reference(op_run *r) {
    arg *a = r->arg;
    size_t bytes = (size_t)r->row->size[0] * sizeof(double);
    for (int i = AW_MASTER; i <= AW_V; i++) memcpy(a[i].want, a[i].value, bytes);
    if (r->state.apply)
        ref_adamw(a[AW_MASTER].want, a[AW_M].want, a[AW_V].want, a[AW_GRAD].value, (double)r->state.grad_factor,
                  (double)r->state.lr * (r->adamw.lr_factor > 0 ? r->adamw.lr_factor : 1), r->state.updates, &r->adamw,
                  r->row->size[0]);
}

// Of both optimizers, whose arguments begin with w and master: up to `last` they are updated. A skipped step changes
// nothing, and w is its master, rounded.
static bool update_exact(op_run *r, const outcome *got, int last) {
    const arg *w = &r->arg[AW_W];
    if (r->row->options & OPT_SKIP) {
        for (int i = AW_W; i <= last; i++)
            if (!r->arg[i].absent && memcmp(got->data[i], r->arg[i].t.data, tensor_bytes(&r->arg[i].t)))
                return failed(r, "a skipped step changed %s", r->arg[i].name);
        return true;
    }
    for (int64_t i = 0; i < r->row->size[0] && !w->absent; i++) {
        double master = storage_get(got->data[AW_MASTER], FP32, i), g = storage_get(got->data[AW_W], w->t.type, i);
        double want = r->row->options & OPT_STOCHASTIC
                          ? ref_stochastic(w->t.type, master, &r->round, i, r->state.updates)
                          : storage_round(w->t.type, master);
        if (g != want)
            return failed(r, "w[%" PRId64 "] is %.9g, not its master %.9g rounded: %.9g", i, g, master, want);
    }
    return true;
}

static bool adamw_exact(op_run *r, const outcome *got) { return update_exact(r, got, AW_V); }

const op_kind kind_adamw = {"adamw", adamw_setup, adamw_call, adamw_reference, NULL, adamw_exact, traffic_cost};

// --- sgd: n ----------------------------------------------------------------------------------------------------------

enum { SG_W = AW_W, SG_MASTER = AW_MASTER, SG_BUF, SG_GRAD, SG_STATE, SG_RATIO };

static void sgd_setup(op_run *r) {
    int64_t n = r->row->size[0];
    unsigned o = r->row->options;
    arg *w = arg_add(r, "w", o & OPT_SKIP ? UPDATES : OUT, r->row->type, 1, n, 0, 0);
    arg *master = arg_add(r, "master", UPDATES, FP32, 1, n, 0, 0), *buf = arg_add(r, "buf", UPDATES, FP32, 1, n, 0, 0);
    arg *grad = arg_add(r, "grad", IN, FP32, 1, n, 0, 0);
    arg *state = arg_add(r, "state", IN, INT32, 1, sizeof(step_state) / 4, 0, 0);
    arg *ratio = arg_add(r, "ratio", IN, FP32, 1, 1, 0, 0);
    w->absent = o & OPT_NO_W;
    buf->absent = o & OPT_NO_MOMENTUM;
    ratio->absent = !(o & OPT_RATIO);
    free(w->want);
    w->want = NULL;  // update_exact: the master, rounded one way or the other
    r->sgd = (sgd_rules){.momentum = o & OPT_NO_MOMENTUM ? 0 : 0.9, .weight_decay = 0.1, .nesterov = o & OPT_NESTEROV};
    if (o & OPT_FACTOR) r->sgd.lr_factor = 0.3, r->sgd.factor = 0.7;
    r->round = (rounding_key){.seed = 1337, .site = 0x60000007, .first = n > 64 ? 5 * CHUNK : 0};
    r->state = (step_state){
        .lr = 0.0123f, .apply = !(o & OPT_SKIP), .grad_factor = 0.0078125f, .loss_scale = 128, .updates = 3};
    arg_fill(r, master, 0.02, 0);
    arg_fill(r, buf, 0.1, 0);
    arg_fill(r, grad, 30, 0);
    if (o & OPT_SKIP) arg_fill(r, w, 1, 0);
    arg_fill_bytes(state, &r->state);
    arg_fill_with(r, ratio, &(double){0.3});
}

static err_t sgd_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->sgd(&(sgd_args){.w = t[SG_W],
                              .master = t[SG_MASTER],
                              .buf = t[SG_BUF],
                              .grad = t[SG_GRAD],
                              .state = (const step_state *)t[SG_STATE]->data,
                              .ratio = t[SG_RATIO] ? t[SG_RATIO]->data : NULL,
                              .rules = &r->sgd,
                              .round = r->row->options & OPT_STOCHASTIC ? &r->round : NULL},
                  s);
}

// The factor of the gradient, and the learning rate.
static float sgd_factor(const op_run *r) { return r->sgd.factor > 0 ? (float)r->sgd.factor : r->state.grad_factor; }
static float sgd_rate(const op_run *r) {
    return r->sgd.lr_factor > 0 ? (float)((double)r->state.lr * r->sgd.lr_factor) : r->state.lr;
}

static void sgd_reference(op_run *r) {
    arg *a = r->arg;
    for (int i = SG_MASTER; i <= SG_BUF; i++) memcpy(a[i].want, a[i].value, (size_t)r->row->size[0] * sizeof(double));
    if (r->state.apply)
        ref_sgd(a[SG_MASTER].want, a[SG_BUF].absent ? NULL : a[SG_BUF].want, a[SG_GRAD].value, (double)sgd_factor(r),
                a[SG_RATIO].absent ? 1 : a[SG_RATIO].value[0], (double)sgd_rate(r), &r->sgd, r->row->size[0]);
}

// Which products and sums are one FMA is promised, so that every bit is known.
static bool sgd_exact(op_run *r, const outcome *got) {
    const float decay = (float)r->sgd.weight_decay, momentum = (float)r->sgd.momentum;
    const float *ratio = r->arg[SG_RATIO].absent ? NULL : r->arg[SG_RATIO].t.data;
    const float *master = r->arg[SG_MASTER].t.data, *old = r->arg[SG_BUF].t.data, *grad = r->arg[SG_GRAD].t.data;
    for (int64_t i = 0; r->state.apply && i < r->row->size[0]; i++) {
        float g = grad[i] * sgd_factor(r), d = fmaf(decay, master[i], g);
        if (ratio) d *= *ratio;
        float buf = fmaf(momentum, old[i], d);
        if (!r->arg[SG_BUF].absent) d = r->sgd.nesterov ? fmaf(momentum, buf, d) : buf;
        float want = fmaf(-sgd_rate(r), d, master[i]);
        float now = ((const float *)got->data[SG_MASTER])[i], kept = ((const float *)got->data[SG_BUF])[i];
        if (now != want)
            return failed(r, "master[%" PRId64 "] is %.9g, expected %.9g to the bit", i, (double)now, (double)want);
        if (!r->arg[SG_BUF].absent && kept != buf)
            return failed(r, "buf[%" PRId64 "] is %.9g, expected %.9g to the bit", i, (double)kept, (double)buf);
    }
    return update_exact(r, got, SG_BUF);
}

const op_kind kind_sgd = {"sgd", sgd_setup, sgd_call, sgd_reference, NULL, sgd_exact, traffic_cost};

// --- muon_direction: n -----------------------------------------------------------------------------------------------

enum { MU_D, MU_M, MU_GRAD, MU_STATE };
static const double muon_momentum = 0.95;

static void direction_setup(op_run *r) {
    int64_t n = r->row->size[0];
    arg_add(r, "d", OUT, FP32, 1, n, 0, 0);
    arg *m = arg_add(r, "m", UPDATES, FP32, 1, n, 0, 0), *grad = arg_add(r, "grad", IN, FP32, 1, n, 0, 0);
    arg *state = arg_add(r, "state", IN, INT32, 1, sizeof(step_state) / 4, 0, 0);
    r->state = (step_state){.apply = !(r->row->options & OPT_SKIP), .grad_factor = 0.0078125f, .loss_scale = 128};
    arg_fill(r, m, 0.1, 0);
    arg_fill(r, grad, 30, 0);
    arg_fill_bytes(state, &r->state);
}
static err_t direction_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->muon_direction(&(muon_direction_args){.d = t[MU_D],
                                                    .m = t[MU_M],
                                                    .grad = t[MU_GRAD],
                                                    .state = (const step_state *)t[MU_STATE]->data,
                                                    .momentum = muon_momentum},
                             s);
}
static void direction_reference(op_run *r) {
    for (int64_t i = 0; i < r->row->size[0]; i++) {
        double m = r->arg[MU_M].value[i], g = (1 - muon_momentum) * r->arg[MU_GRAD].value[i] * 0.0078125;
        double next = muon_momentum * m + g;
        r->arg[MU_M].want[i] = r->state.apply ? next : m;
        r->arg[MU_D].want[i] = r->state.apply ? muon_momentum * next + g : 0;
    }
}
static bool direction_exact(op_run *r, const outcome *got) {
    const float momentum = (float)muon_momentum, rest = (float)(1 - muon_momentum);
    const float *m = r->arg[MU_M].t.data, *grad = r->arg[MU_GRAD].t.data;
    for (int64_t i = 0; i < r->row->size[0]; i++) {
        float g = grad[i] * r->state.grad_factor * rest, next = fmaf(momentum, m[i], g), d = fmaf(momentum, next, g);
        if (!r->state.apply) next = m[i], d = 0;
        if (((const float *)got->data[MU_M])[i] != next || ((const float *)got->data[MU_D])[i] != d)
            return failed(r, "m[%" PRId64 "] or d is not %.9g and %.9g to the bit", i, (double)next, (double)d);
    }
    return true;
}
const op_kind kind_muon_direction = {"muon_direction", direction_setup, direction_call, direction_reference, NULL,
                                     direction_exact,  traffic_cost};

// --- normalize: n ----------------------------------------------------------------------------------------------------

enum { NO_X, NO_SUMS };
static const double least_norm = 1e-7;

// OPT_EXTREME: of zeros.
static void normalize_setup(op_run *r) {
    int64_t n = r->row->size[0], chunks = (n + CHUNK - 1) / CHUNK;
    arg *x = arg_add(r, "x", UPDATES, FP32, 1, n, 0, 0), *sums = arg_add(r, "sums", IN, FP64, 1, chunks, 0, 0);
    arg_fill(r, x, r->row->options & OPT_EXTREME ? 0 : 3, 0);
    arg_fill_wide(r, sums, 1e3);
    for (int64_t i = 0; i < chunks && !r->bench; i++) {
        sums->value[i] *= r->row->options & OPT_EXTREME ? 0 : sums->value[i];
        storage_set(sums->t.data, FP64, i, sums->value[i]);
    }
}
static err_t normalize_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->normalize(&(normalize_args){.x = t[NO_X], .sums = t[NO_SUMS], .eps = least_norm}, s);
}
static float normal_factor(const op_run *r) {
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(&r->arg[NO_SUMS].t); i++) sum += r->arg[NO_SUMS].value[i];
    return (float)(1 / fmax(sqrt(sum), least_norm));
}
static void normalize_reference(op_run *r) {
    for (int64_t i = 0; i < r->row->size[0]; i++)
        r->arg[NO_X].want[i] = r->arg[NO_X].value[i] * (double)normal_factor(r);
}
static bool normalize_exact(op_run *r, const outcome *got) {
    float factor = normal_factor(r);
    const float *x = r->arg[NO_X].t.data;
    for (int64_t i = 0; i < r->row->size[0]; i++)
        if (((const float *)got->data[NO_X])[i] != x[i] * factor)
            return failed(r, "x[%" PRId64 "] is not %.9g to the bit", i, (double)(x[i] * factor));
    return true;
}
const op_kind kind_normalize = {"normalize", normalize_setup, normalize_call, normalize_reference,
                                NULL,        normalize_exact, traffic_cost};

// --- lars_ratio: rows, chunks of the largest -------------------------------------------------------------------------

enum { LR_RATIO, LR_AT, LR_GRADS, LR_WEIGHTS, LR_STATE };

static int64_t lars_chunks(const op_run *r, int64_t row) { return (row + 1) * 2357 % (r->row->size[1] + 1); }

// Positive, but for rows whose weights, or whose gradient, are all zero.
static void lars_sums(op_run *r, arg *sums, const int32_t *at, int zero) {
    arg_fill_wide(r, sums, 1e3);
    for (int64_t row = 0; row < r->row->size[0] && !r->bench; row++)
        for (int32_t i = at[row]; i < at[row + 1]; i++) {
            sums->value[i] *= row % 7 == zero ? 0 : sums->value[i];
            storage_set(sums->t.data, FP64, i, sums->value[i]);
        }
}

static void lars_setup(op_run *r) {
    int64_t R = r->row->size[0], chunks = 0;
    int32_t *first = calloc((size_t)R + 1, sizeof *first);
    for (int64_t i = 0; i < R; i++) first[i] = (int32_t)chunks, chunks += lars_chunks(r, i);
    first[R] = (int32_t)chunks;
    arg *ratio = arg_add(r, "ratio", r->row->options & OPT_SKIP ? UPDATES : OUT, FP32, 1, R, 0, 0);
    arg *at = arg_add(r, "at", IN, INT32, 1, R + 1, 0, 0), *grads = arg_add(r, "grads", IN, FP64, 1, chunks, 0, 0);
    arg *weights = arg_add(r, "weights", IN, FP64, 1, chunks, 0, 0);
    arg *state = arg_add(r, "state", IN, INT32, 1, sizeof(step_state) / 4, 0, 0);
    r->lars = (lars_rules){.trust = 0.02, .weight_decay = 0.1, .eps = 1e-3};
    r->state = (step_state){.apply = !(r->row->options & OPT_SKIP), .grad_factor = 0.0078125f, .loss_scale = 128};
    if (r->row->options & OPT_SKIP) arg_fill(r, ratio, 1, 0);
    arg_fill_bytes(at, first);
    lars_sums(r, grads, first, 2);
    lars_sums(r, weights, first, 4);
    arg_fill_bytes(state, &r->state);
    free(first);
}
static err_t lars_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->lars_ratio(&(lars_ratio_args){.ratio = t[LR_RATIO],
                                            .at = t[LR_AT],
                                            .grads = t[LR_GRADS],
                                            .weights = t[LR_WEIGHTS],
                                            .state = (const step_state *)t[LR_STATE]->data,
                                            .rules = &r->lars},
                         s);
}

static double lars_norm(const op_run *r, int sums, int64_t row) {
    const int32_t *at = r->arg[LR_AT].t.data;
    double sum = 0;
    for (int32_t i = at[row]; i < at[row + 1]; i++) sum += r->arg[sums].value[i];
    return sqrt(sum);
}
static void lars_reference(op_run *r) {
    const lars_rules *x = &r->lars;
    for (int64_t i = 0; i < r->row->size[0]; i++) {
        double w = lars_norm(r, LR_WEIGHTS, i), g = lars_norm(r, LR_GRADS, i) * 0.0078125;
        double ratio = w == 0 || g == 0 ? 1 : x->trust * w / (g + x->weight_decay * w + x->eps);
        r->arg[LR_RATIO].want[i] = r->state.apply ? ratio : r->arg[LR_RATIO].value[i];
    }
}
static bool lars_exact(op_run *r, const outcome *got) {  // double, and rounded once
    for (int64_t i = 0; i < r->row->size[0]; i++) {
        float now = ((const float *)got->data[LR_RATIO])[i], want = (float)r->arg[LR_RATIO].want[i];
        if (now != want)
            return failed(r, "ratio[%" PRId64 "] is %.9g, expected %.9g to the bit", i, (double)now, (double)want);
    }
    return true;
}
const op_kind kind_lars_ratio = {"lars_ratio", lars_setup, lars_call, lars_reference, NULL, lars_exact, traffic_cost};

// --- average: n, count of samples ------------------------------------------------------------------------------------

enum { AV_X, AV_SUM, AV_STATE };
static void average_setup(op_run *r) {
    int64_t n = r->row->size[0];
    arg *x = arg_add(r, "x", UPDATES, FP32, 1, n, 0, 0), *sum = arg_add(r, "sum", IN, FP32, 1, n, 0, 0);
    arg *state = arg_add(r, "state", IN, INT32, 1, sizeof(step_state) / 4, 0, 0);
    r->state = (step_state){.apply = !(r->row->options & OPT_SKIP), .grad_factor = 0.0078125f, .loss_scale = 128};
    arg_fill(r, x, 1, 0.5);
    arg_fill(r, sum, 3, 1);
    arg_fill_bytes(state, &r->state);
}
static err_t average_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->average(&(average_args){.x = t[AV_X],
                                      .sum = t[AV_SUM],
                                      .count = r->row->size[1],
                                      .momentum = 0.1f,
                                      .state = (const step_state *)t[AV_STATE]->data},
                      s);
}
static void average_reference(op_run *r) {
    for (int64_t i = 0; i < r->row->size[0]; i++) {
        double x = r->arg[AV_X].value[i], mean = r->arg[AV_SUM].value[i] / (double)r->row->size[1];
        r->arg[AV_X].want[i] = r->state.apply ? x + (double)0.1f * (mean - x) : x;
    }
}
static bool average_exact(op_run *r, const outcome *got) {
    const float *x = r->arg[AV_X].t.data, *sum = r->arg[AV_SUM].t.data, *now = (const float *)got->data[AV_X];
    const float share = (float)(1.0 / (double)r->row->size[1]);
    for (int64_t i = 0; i < r->row->size[0]; i++) {
        float want = r->state.apply ? fmaf(0.1f, sum[i] * share - x[i], x[i]) : x[i];
        if (now[i] != want)
            return failed(r, "x[%" PRId64 "] is %.9g, expected %.9g to the bit", i, (double)now[i], (double)want);
    }
    return true;
}
const op_kind kind_average = {"average", average_setup, average_call, average_reference,
                              NULL,      average_exact, traffic_cost};

// --- cast_stochastic: n ----------------------------------------------------------------------------------------------

// The smallest number above 1, or for `tiny` above 0, that the words of element i send away from zero, or the largest
// that they do not.
static double at_the_edge(const op_run *r, dtype type, int64_t i, bool tiny, bool goes) {
    uint64_t n = (uint64_t)(r->round.first + i);
    uint32_t word[4];
    philox4x32(word, r->round.seed, (uint32_t)(n / 4), r->round.site, (uint32_t)(n >> 34), (uint32_t)r->state.updates);
    double share = 1 - (word[n % 4] >> 8) * 0x1p-24, steps = tiny && type == FP16 ? 0x1p24
                                                             : type == FP16       ? 0x1p13
                                                                                  : 0x1p16;
    double gap = tiny ? type == FP16 ? 0x1p-24 : 0x1p-133 : type == FP16 ? 0x1p-10 : 0x1p-7;
    return (tiny ? 0 : 1) + gap * (ceil(share * steps) - !goes) / steps;
}

// Every magnitude of the type, from what is nothing to it to what is too much, in both signs; each third one is a
// number that it can hold, and some stand where their words decide by the last bit.
static void stochastic_fill(op_run *r, arg *x, dtype type) {
    int64_t n = r->row->size[0];
    int low = type == BF16 ? -140 : -36, high = type == BF16 ? 128 : 17;
    double *v = calloc((size_t)n, sizeof *v);
    arg_fill(r, x, 1, 0);
    for (int64_t i = 0; i < n; i++) {
        v[i] = ldexp(storage_get(x->t.data, FP32, i), low + (int)(i * 7 % (high - low + 1)));
        if (fabs(v[i]) > 0x1.fffffep127) v[i] = 0;
        if (i % 3 == 0) v[i] = storage_round(type, v[i]);
        if (i % 3 == 0 && isinf(v[i])) v[i] = -0.0;
        if (i % 8 == 1) v[i] = at_the_edge(r, type, i, i & 16, i & 32);
    }
    arg_fill_with(r, x, v);
    free(v);
}

static void stochastic_setup(op_run *r) {
    int64_t n = r->row->size[0];
    arg *y = arg_add(r, "y", OUT, r->row->type, 1, n, 0, 0), *x = arg_add(r, "x", IN, FP32, 1, n, 0, 0);
    arg *state = arg_add(r, "state", IN, INT32, 1, sizeof(step_state) / 4, 0, 0);
    free(y->want);
    y->want = NULL;  // stochastic_exact
    r->round = (rounding_key){.seed = 7ull << 32 | 99, .site = 0x60000003, .first = n > 64 ? (3ll << 34) + 7 * 64 : 0};
    r->state = (step_state){.updates = (5ll << 32) + 77};
    if (r->bench) arg_fill(r, x, 1, 0);
    else stochastic_fill(r, x, r->row->type);
    arg_fill_bytes(state, &r->state);
}

static err_t stochastic_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->cast_stochastic(
        &(cast_stochastic_args){.y = t[0], .x = t[1], .round = &r->round, .state = (const step_state *)t[2]->data}, s);
}
static void stochastic_reference(op_run *r) { (void)r; }  // stochastic_exact

static bool stochastic_exact(op_run *r, const outcome *got) {
    dtype type = r->row->type;
    for (int64_t i = 0; i < r->row->size[0]; i++) {
        double x = r->arg[1].value[i], g = storage_get(got->data[0], type, i),
               want = ref_stochastic(type, x, &r->round, i, r->state.updates);
        if (g != want || signbit(g) != signbit(want))
            return failed(r, "y[%" PRId64 "] of %a is %a, expected %a", i, x, g, want);
    }
    return true;
}

const op_kind kind_cast_stochastic = {"cast_stochastic", stochastic_setup, stochastic_call, stochastic_reference, NULL,
                                      stochastic_exact,  traffic_cost};
