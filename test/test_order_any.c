// test/test_order_any.c: [reduce] order = any: the transport adds gradients in its own order. Whatever that order is, a
// sum of n floats c[1] + ... + c[n] lies within g * (|c[1]| + ... + |c[n]|) of the exact one, g = (n-1)u / (1 -
// (n-1)u), u = 2^-24 (Higham 2002, eq. 4.4).
//
// So the truth is made here: each micro-batch's gradient by itself, and their sum in double. Every stage, on any number
// of ranks and nodes, must lie within that bound of it; and since a step with eps = 1 carries an error of the gradient
// on without enlarging it, the weights and losses after several steps must lie within a bound of those of order =
// fixed. What a rank holds and sends is what `plan` says.
#include "test/support/ranks.h"
#include "test/support/square.h"

#include "trainer/session/restore.h"
#include "trainer/step/executor.h"
#include "trainer/plan/plan.h"

#include <inttypes.h>
#include <math.h>

static const char small_model[] = SMALL_GPT(
    2, 3, 36, 24, 131) "[batch]\nglobal = 16\nmicro = 2\n[optimizer]\nlr = 1e-3\neps = 1\ngrad_clip = 0\n[schedule]\n"
                       "type = constant\nwarmup = 0\n[device]\nthreads = 1\n[cluster]\ntimeout = 20\n";

enum { STEPS = 3, RANKS = 4, MICROS = 8 };  // micro-batches of a step

static const double roundoff = 0x1p-24, rate = 1e-3;

// What one rank found. Of the elements that it does not own, it says NaN.
typedef struct finding {
    double loss[STEPS], norm[STEPS];
    int64_t memory, planned, sent, planned_sent, sent_far, planned_far;
} finding;

typedef struct findings {
    size_t elements;  // of all rows that have values
    size_t *at;       // [params] where a row begins among them
    finding *rank;
    float *gradient, *weights;  // (RANKS, STEPS, elements), (RANKS, elements)
} findings;

// The exact sums of each step, at the weights of the start, and the sums of their terms' absolute values.
typedef struct truth {
    config c;
    size_t elements, *at;
    double *sum, *size;  // (STEPS, elements)
    bool *tied;          // (elements): twice as many terms
} truth;

// How far a sum of so many floats may be from the exact one, for each roundoff of their size.
static double gamma_of(int terms) { return (terms - 1) * roundoff / (1 - (terms - 1) * roundoff); }

// --- the truth -------------------------------------------------------------------------------------------------------

static err_t one_micro_batch(session *x, int64_t step) {
    step_runner *r = &x->runner;
    const config *c = x->cfg;
    batch b;
    TRY(loader_next(x->data, &b));
    assert_int_equal(b.step, step);
    TRY(stream_zero(x->s, x->state.slab[0].data, tensor_bytes(&x->state.slab[0])));
    for (int i = 0; i < x->net->inputs; i++)
        TRY(stream_copy(x->s, inputs_now(&r->inputs)[i].data, b.in[i], tensor_bytes(&inputs_now(&r->inputs)[i])));
    pass p = executor_pass(r, c->batch.micro);
    p.dw = x->state.grad;
    p.loss_factor = (float)(1.0 / ((double)c->batch.global * (double)x->net->losses));
    TRY(model_forward(x->net, &p));
    return model_backward(x->net, &p);
}

static void add_row(truth *t, const session *x, int step, int row) {
    int of = x->net->param[row].tied >= 0 ? x->net->param[row].tied : row;
    const float *g = x->state.grad[row].data;
    for (int64_t i = 0; i < tensor_count(&x->state.grad[row]); i++) {
        size_t k = (size_t)step * t->elements + t->at[of] + (size_t)i;
        t->sum[k] += g[i];
        t->size[k] += fabs((double)g[i]);
        if (of != row) t->tied[t->at[of] + (size_t)i] = true;
    }
}

static void number_elements(truth *t, const model *net) {
    t->at = calloc((size_t)net->params, sizeof *t->at);
    for (int i = 0; i < net->params; i++) {
        const param *p = &net->param[i];
        size_t n = 1;
        for (int d = 0; d < p->dims; d++) n *= (size_t)p->size[d];
        t->at[i] = t->elements;
        if (p->tied < 0) t->elements += n;
    }
    t->sum = calloc(STEPS * t->elements, sizeof *t->sum);
    t->size = calloc(STEPS * t->elements, sizeof *t->size);
    t->tied = calloc(t->elements, sizeof *t->tied);
}

static void find_truth(truth *t, const char *dir, const char *lanes) {
    session x;
    char more[128];
    *t = (truth){.elements = 0};
    snprintf(more, sizeof more, "%s[reduce]\norder = any\n", lanes);
    rank_config(&t->c, dir, small_model, more);
    OK(session_open(&x, &t->c, SESSION_TRAIN, NULL));
    OK(session_init(&x));
    OK(session_feed(&x, STEPS));
    number_elements(t, x.net);
    for (int step = 0; step < STEPS; step++)
        for (int k = 0; k < MICROS; k++) {
            OK(one_micro_batch(&x, step + 1));
            for (int i = 0; i < x.net->params; i++) add_row(t, &x, step, i);
        }
    session_close(&x);
}

static void drop_truth(truth *t) { free(t->at), free(t->sum), free(t->size), free(t->tied); }

// --- a rank ----------------------------------------------------------------------------------------------------------

// Which of them a piece's elements are.
static float *place_of(float *all, const findings *f, const zero_piece *p) { return all + f->at[p->row] + p->first; }

static err_t keep_gradient(session *x, const findings *f, float *to) {
    int count;
    const zero_piece *p = state_pieces(&x->state, &count);
    for (int i = 0; i < count; i++) {
        if (x->net->param[p[i].row].tied >= 0) continue;
        tensor g = state_gradient(&x->state, &p[i]);
        memcpy(place_of(to, f, &p[i]), g.data, tensor_bytes(&g));
    }
    return ERR_OK;
}

static void keep_weights(const session *x, const findings *f, float *to) {
    int count;
    const zero_piece *p = state_pieces(&x->state, &count);
    for (int i = 0; i < count; i++) {
        if (x->net->param[p[i].row].tied >= 0) continue;
        tensor w = store_view(&x->state.masters, &p[i]);
        memcpy(place_of(to, f, &p[i]), w.data, tensor_bytes(&w));
    }
}

static err_t take_steps(session *x, finding *me) {
    for (int k = 0; k < STEPS; k++) {
        step_result s;
        comm_traffic before = x->ranks->traffic;
        TRY(session_step(x, &s));
        TRY(session_settle(x));
        me->loss[k] = s.loss;
        me->norm[k] = s.grad_norm;
        me->sent = x->ranks->traffic.sent - before.sent;
        me->sent_far = x->ranks->traffic.sent_far - before.sent_far;
    }
    return ERR_OK;
}

static err_t ask_plan(session *x, finding *me) {
    plan_rank p;
    TRY(plan_one(x->cfg, x->ranks->rank, x->ranks->world, x->ranks->place, &p));
    me->memory = (int64_t)(state_bytes(&x->state) + x->runner.memory.bytes + x->runner.staging.bytes + x->ring_bytes);
    me->planned = (int64_t)plan_bytes(&p);
    me->planned_sent = p.sent;
    me->planned_far = p.sent_far;
    return ERR_OK;
}

// The gradients of all steps at the weights of the start; then the steps.
static err_t find_out(session *x, const findings *f, finding *me) {
    size_t rank = (size_t)x->ranks->rank;
    TRY(session_init(x));
    TRY(session_feed(x, STEPS));
    for (int k = 0; k < STEPS; k++) {
        TRY(step_gradient(&x->runner, x->data, k + 1));
        TRY(keep_gradient(x, f, f->gradient + (rank * STEPS + (size_t)k) * f->elements));
    }
    TRY(session_settle(x));
    TRY(session_feed(x, STEPS));
    TRY(take_steps(x, me));
    keep_weights(x, f, f->weights + rank * f->elements);
    return ask_plan(x, me);
}

static err_t rank_main(const config *c, const launch *at, void *ctx) {
    findings *f = ctx;
    session x;
    err_t rc = session_open(&x, c, SESSION_TRAIN, at);
    if (rc == ERR_OK) rc = find_out(&x, f, &f->rank[at->rank]);
    session_abort(&x, rc);
    session_close(&x);
    return rc;
}

// --- verdicts --------------------------------------------------------------------------------------------------------

// One array out of the ranks': who has an element agrees with all who have it, and somebody has it.
static void merge(const char *what, float *all, size_t stride, size_t elements, int ranks) {
    for (size_t i = 0; i < elements; i++) {
        float *found = NULL;
        for (int k = 0; k < ranks; k++) {
            float *its = all + (size_t)k * stride + i;
            if (isnan(*its)) continue;
            if (found && *its != *found)
                fail_msg("%s: element %zu is %.9g on rank %d, %.9g before it", what, i, *its, k, *found);
            found = its;
        }
        if (!found) fail_msg("%s: element %zu: no rank has a number there", what, i);
        all[i] = *found;
    }
}

static void run_findings(const char *what, findings *f, const truth *t, const rank_world *w, const config *c) {
    size_t n = t->elements, floats = (size_t)RANKS * (STEPS + 1) * n;
    *f = (findings){.elements = n, .at = t->at};
    f->rank = share_memory(RANKS * sizeof *f->rank);
    f->gradient = share_memory(floats * sizeof(float));
    f->weights = f->gradient + (size_t)RANKS * STEPS * n;
    for (size_t i = 0; i < floats; i++) f->gradient[i] = NAN;
    run_ranks(what, w, c, rank_main, f);
    for (int k = 0; k < STEPS; k++) merge(what, f->gradient + (size_t)k * n, STEPS * n, n, rank_count(w));
    merge(what, f->weights, n, n, rank_count(w));
}

static void drop_findings(findings *f) {
    munmap(f->rank, RANKS * sizeof *f->rank);
    munmap(f->gradient, (size_t)RANKS * (STEPS + 1) * f->elements * sizeof(float));
}

// How far element i of a step's gradient may be from the exact sum.
static double room_of(const truth *t, int step, size_t i) {
    return gamma_of(t->tied[i] ? 2 * MICROS : MICROS) * t->size[(size_t)step * t->elements + i];
}

static void expect_gradients(const char *what, const findings *f, const truth *t) {
    for (int k = 0; k < STEPS; k++)
        for (size_t i = 0; i < t->elements; i++) {
            size_t at = (size_t)k * t->elements + i;
            if (!(fabs((double)f->gradient[at] - t->sum[at]) <= room_of(t, k, i)))
                fail_msg("%s: step %d, element %zu of the gradient: %.9g, expected %.9g +- %.3g", what, k + 1, i,
                         f->gradient[at], t->sum[at], room_of(t, k, i));
        }
}

// Two steps from gradients that are at most d apart differ by at most rate * 2 d: m / (sqrt(v) + 1) follows its
// gradients no faster while they are below 1. Both are within room_of() of the exact sum; doubled for what other
// weights do to the gradients after them. Rounding: a step rounds a weight, and its change, a few times.
static void expect_weights(const char *what, const findings *f, const findings *fixed, const truth *t) {
    for (size_t i = 0; i < t->elements; i++) {
        double room = STEPS * 8 * roundoff * (fabs((double)fixed->weights[i]) + rate);
        for (int k = 0; k < STEPS; k++) room += 2 * 2 * rate * 2 * room_of(t, k, i);
        if (!(fabs((double)f->weights[i] - fixed->weights[i]) <= room))
            fail_msg("%s: weight %zu is %.9g, expected %.9g +- %.3g", what, i, f->weights[i], fixed->weights[i], room);
    }
}

// The first step's losses are of equal weights. What comes later is off by what the weights are off, which is next to
// nothing.
static void expect_losses(const char *what, const findings *f, const findings *fixed, const truth *t, int ranks) {
    for (int r = 0; r < ranks; r++)
        for (int k = 0; k < STEPS; k++) {
            const finding *me = &f->rank[r], *one = &fixed->rank[0];
            double room = 0;
            for (size_t i = 0; i < t->elements; i++) room += square(2 * room_of(t, k, i));
            if (!(fabs(me->loss[k] - one->loss[k]) <= (k ? 1e-6 * one->loss[k] : 0)))
                fail_msg("%s: rank %d, step %d: loss %.17g, expected %.17g", what, r, k + 1, me->loss[k], one->loss[k]);
            if (!(fabs(me->norm[k] - one->norm[k]) <= 2 * sqrt(room) + 8 * roundoff * one->norm[k]))
                fail_msg("%s: rank %d, step %d: norm %.17g, expected %.17g", what, r, k + 1, me->norm[k], one->norm[k]);
        }
}

static void expect_plan(const char *what, const findings *f, int ranks) {
    for (int r = 0; r < ranks; r++) {
        const finding *me = &f->rank[r];
        if (me->memory != me->planned)
            fail_msg("%s: rank %d holds %" PRId64 " bytes, planned %" PRId64, what, r, me->memory, me->planned);
        if (me->sent != me->planned_sent || me->sent_far != me->planned_far)
            fail_msg("%s: rank %d sent %" PRId64 " bytes in a step (%" PRId64 " far), planned %" PRId64 " (%" PRId64
                     ")",
                     what, r, me->sent, me->sent_far, me->planned_sent, me->planned_far);
        assert_true(ranks == 1 || me->sent > 0);
    }
}

static void try_any(const char *dir, const rank_world *w, int stage, const char *lanes, double bucket_mb,
                    const truth *t, const findings *fixed) {
    config c;
    findings f;
    char what[96], more[256];
    snprintf(what, sizeof what, "order any, %d ranks on %d nodes, zero %d, buckets of %g MB", rank_count(w), w->nodes,
             stage, bucket_mb);
    snprintf(more, sizeof more, "%s[reduce]\norder = any\nbucket_mb = %g\n[parallel]\nzero = %d\n", lanes, bucket_mb,
             stage);
    rank_config(&c, dir, small_model, more);
    run_findings(what, &f, t, w, &c);
    expect_gradients(what, &f, t);
    expect_weights(what, &f, fixed, t);
    expect_losses(what, &f, fixed, t, rank_count(w));
    expect_plan(what, &f, rank_count(w));
    drop_findings(&f);
}

// Against one rank with order = fixed, which lies within the same bound of the exact sums.
static void against_fixed(const char *lanes, const rank_world *w, int worlds, double bucket_mb) {
    truth t;
    config c;
    findings fixed;
    char *dir = rank_dir();
    find_truth(&t, dir, lanes);
    rank_config(&c, dir, small_model, lanes);
    run_findings("order fixed, one rank", &fixed, &t, &(rank_world){.nodes = 1, .ranks = {1}}, &c);
    expect_gradients("order fixed, one rank", &fixed, &t);
    for (int i = 0; i < worlds; i++)
        for (int stage = 0; stage <= (rank_count(&w[i]) == 1 ? 0 : 3); stage++)
            try_any(dir, &w[i], stage, lanes, bucket_mb, &t, &fixed);
    drop_findings(&fixed);
    drop_truth(&t);
    drop_dir(dir);
}

static const rank_world near[] = {
    {.nodes = 1, .ranks = {1}}, {.nodes = 1, .ranks = {2}}, {.nodes = 1, .ranks = {3}}, {.nodes = 1, .ranks = {4}}};
static const rank_world far[] = {
    {.nodes = 2, .ranks = {1, 1}}, {.nodes = 2, .ranks = {2, 1}}, {.nodes = 2, .ranks = {2, 2}}};

// Eight lanes of one micro-batch: three ranks have three turns, the last one without a lane on one of them.
static void lanes_of_one_micro_batch(void **state) {
    (void)state;
    against_fixed("[batch]\nlanes = 8\n", near, 4, 0.02);
}

// Four lanes of two: a slab is filled before it is reduced. One bucket: so large that an all_reduce goes the long way.
static void lanes_of_two_micro_batches(void **state) {
    (void)state;
    against_fixed("[batch]\nlanes = 4\n", near, 4, 1);
}

static void several_nodes(void **state) {
    (void)state;
    against_fixed("[batch]\nlanes = 8\n", far, 3, 0.02);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_of_one_micro_batch),
        cmocka_unit_test(lanes_of_two_micro_batches),
        cmocka_unit_test(several_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
