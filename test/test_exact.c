// test/test_exact.c: rows whose values are FP32 in 16-bit passes. Here every gain of a norm is such a row, and the
// norms, which know 16-bit gains alone, get it rounded: the bits of a run whose gains are 16-bit rows, in every stage
// and layout, and after a restart. A copy that is wrong, old or missing shows.
#include "model/graph.h"
#include "test/support/ranks.h"
#include "trainer/session/evaluate.h"
#include "trainer/plan/plan.h"
#include "trainer/session/restore.h"

#include <inttypes.h>

static bool exact;  // gains are FP32 rows

// --- in place of the trainer's own -----------------------------------------------------------------------------------

int __real_graph_param(graph *g, const char *name, const char *suffix, int64_t rows, int64_t cols, double std,
                       float initial);
int __wrap_graph_param(graph *g, const char *name, const char *suffix, int64_t rows, int64_t cols, double std,
                       float initial);
const ops *__real_device_ops(const device *dev);
const ops *__wrap_device_ops(const device *dev);

int __wrap_graph_param(graph *g, const char *name, const char *suffix, int64_t rows, int64_t cols, double std,
                       float initial) {
    int row = __real_graph_param(g, name, suffix, rows, cols, std, initial);
    if (exact && !cols && strstr(name, "norm")) graph_fp32(g, row);
    return row;
}

static const ops *real;
static int64_t gains_seen;  // in FP32

// The gain as a norm knows it.
static tensor rounded(const tensor *w, dtype type, stream *s) {
    static uint16_t room[256];
    tensor e = {room, type, 1, {w->size[0], 1, 1, 1}};
    assert_true(w->type == FP32 && w->dims == 1 && w->size[0] <= 256 && type != FP32);
    if (real->cast(&(cast_args){.y = &e, .x = w}, s) != ERR_OK) fail_msg("%s", err_last()->text);
    gains_seen++;
    return e;
}

static err_t norm_forward(const rms_norm_forward_args *args, stream *s) {
    rms_norm_forward_args own = *args;
    tensor w = args->w->type == args->x->type ? *args->w : rounded(args->w, args->x->type, s);
    own.w = &w;
    return real->rms_norm_forward(&own, s);
}

static err_t norm_backward(const rms_norm_backward_args *args, stream *s) {
    rms_norm_backward_args own = *args;
    tensor w = args->w->type == args->x->type ? *args->w : rounded(args->w, args->x->type, s);
    own.w = &w;
    return real->rms_norm_backward(&own, s);
}

const ops *__wrap_device_ops(const device *dev) {
    static ops own;
    real = __real_device_ops(dev);
    own = *real, own.rms_norm_forward = norm_forward, own.rms_norm_backward = norm_backward;
    return &own;
}

// --- runs ------------------------------------------------------------------------------------------------------------

static const char small[] =
    "[data]\nformat = raw16\n[model]\ntype = llama\nlayers = 3\nheads = 4\nembed = 36\nhead_dim = 10\nhidden = 48\ncontext = 24\nvocab = 131\n"
    "[batch]\nglobal = 16\nmicro = 2\nlanes = 8\n[optimizer]\nlr = 3e-2\n[schedule]\nwarmup = 1\n[device]\nthreads = 1\n[reduce]\nbucket_mb = 0.02\n"
    "[cluster]\ntimeout = 20\n[parallel]\nslices = 4\ntoken_slices = 2\n[precision]\ncompute = bf16\n";

enum { STEPS = 4 };

typedef struct finding {
    char state_hash[17];
    double loss, eval, eval_published;
    bool alone;  // the ranks share no layers, positions or blocks, so one communicator carries all traffic
    int64_t memory, planned, exact_bytes, sent, planned_sent;
} finding;

typedef struct work {
    bool resumes;
    int last;
    finding *found;  // [ranks]
} work;

// Every value that a pass reads of a gain is the master's, to the last bit.
static err_t compare_values(const session *x) {
    const train_state *t = &x->state;
    int count;
    const zero_piece *p = state_pieces(t, &count);
    for (int i = 0; i < count; i++) {
        if (!x->net->param[p[i].row].fp32) continue;
        tensor master = store_view(&t->masters, &p[i]), *w = &t->w[p[i].row];
        const float *at = (const float *)w->data + (p[i].slab - t->zero.row_at[p[i].row]);
        if (w->type != FP32 || memcmp(at, master.data, tensor_bytes(&master)) != 0)
            return err_set(ERR_INTERNAL, "%s is not its master", x->net->param[p[i].row].name);
    }
    return ERR_OK;
}

static err_t measure(session *x, const config *c, const work *w, finding *f) {
    step_result s = {0};
    int64_t windows, before = 0;
    bool found = true;
    monitor m = {0};
    TRY(w->resumes ? session_resume(x, &found, &m) : session_init(x));
    if (!found) return err_set(ERR_DATA, "%s: no checkpoint to go on from", x->dir);
    TRY(session_feed(x, STEPS));
    while (x->progress.step < w->last) {
        TRY(session_settle(x));
        before = x->ranks->traffic.sent;
        TRY(session_step(x, &s));
        TRY(session_settle(x));
    }
    f->loss = s.loss, f->sent = x->ranks->traffic.sent - before;
    TRY(eval_loss(x, 0, &f->eval, &windows));
    TRY(session_settle(x));
    bool used = exact && x->state.o.compute != FP32;
    if (used) TRY(compare_values(x));
    if (used && !gains_seen) return err_set(ERR_INTERNAL, "no norm has seen a gain in FP32");
    TRY(session_fetch(x));
    if (w->last < STEPS) TRY(ckpt_save(x->dir, &x->state.ckpt, &x->progress, 1, NULL));
    TRY(ckpt_state_hash(&x->state.ckpt, &x->progress, f->state_hash));
    TRY(state_publish(&x->state));
    TRY(eval_loss(x, 0, &f->eval_published, &windows));
    plan_rank p;
    TRY(plan_one(c, x->ranks->rank, x->ranks->world, x->ranks->place, &p));
    f->memory = (int64_t)(state_bytes(&x->state) + x->runner.memory.bytes + x->runner.staging.bytes + x->ring_bytes);
    f->planned = (int64_t)plan_bytes(&p), f->planned_sent = (int64_t)p.sent;
    f->alone = c->parallel.tensor == 1 && c->parallel.context == 1 && c->parallel.pipeline == 1;
    f->exact_bytes = x->state.exact.dims ? (int64_t)tensor_bytes(&x->state.exact) : 0;
    return session_settle(x);
}

static err_t one_rank(const config *c, const launch *at, void *ctx) {
    const work *w = ctx;
    session x;
    err_t rc = session_open(&x, c, SESSION_TRAIN, at);
    if (rc == ERR_OK) rc = measure(&x, c, w, &w->found[at->rank]);
    if (rc != ERR_OK && x.ranks) x.ranks->table->abort(x.ranks, err_last()->text);
    session_close(&x);
    return rc;
}

static finding run(char *dir, int ranks, const char *more, work w) {
    static finding all[8];
    rank_world world = {.nodes = 1, .ranks = {ranks}};
    config *c = calloc(1, sizeof *c);
    w.found = share_memory(sizeof all);
    rank_config(c, dir, small, more);
    run_ranks(more, &world, c, one_rank, &w);
    memcpy(all, w.found, sizeof all);
    munmap(w.found, sizeof all);
    free(c);
    for (int i = 0; i < ranks; i++) {
        const finding *f = &all[i];
        if (f->memory != f->planned)
            fail_msg("%s: rank %d has %" PRId64 " bytes, %" PRId64 " planned", more, i, f->memory, f->planned);
        if (f->alone && f->sent != f->planned_sent)
            fail_msg("%s: rank %d sent %" PRId64 " bytes, %" PRId64 " planned", more, i, f->sent, f->planned_sent);
        if (f->eval != f->eval_published)
            fail_msg("%s: %.17g after steps, %.17g after a restart", more, f->eval, f->eval_published);
        assert_string_equal(f->state_hash, all[0].state_hash);
    }
    return all[0];
}

static const struct {
    int ranks;
    bool copies;  // masters are elsewhere
    const char *more;
} layouts[] = {
    {1, false, "zero = 0"},
    {1, true, "offload = yes"},
    {2, false, "zero = 0"},
    {3, true, "zero = 1"},
    {2, true, "zero = 2\noffload = yes"},
    {2, true, "zero = 3\nrecompute = block"},
    {3, true, "zero = 3"},
    {4, true, "zero = 3\ntensor = 2"},
    {4, true, "zero = 2\ntensor = 1\ncontext = 2"},
    {2, false, "pipeline = 2\nzero = 0"},
    {4, true, "pipeline = 2\nzero = 1\nschedule = zb-h1"},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void every_layout(void **state) {
    char *dir = rank_dir(), more[200];
    (void)state;
    exact = false;
    finding plain = run(dir, 1, "[parallel]\nzero = 0\n", (work){.last = STEPS});
    exact = true;
    for (int i = 0; i < LAYOUTS; i++) {
        snprintf(more, sizeof more, "[parallel]\n%s\n", layouts[i].more);
        finding f = run(dir, layouts[i].ranks, more, (work){.last = STEPS});
        if (strcmp(f.state_hash, plain.state_hash) != 0 || f.loss != plain.loss || f.eval != plain.eval)
            fail_msg("%d ranks, %s: %s, loss %.17g, %.17g; expected %s, %.17g, %.17g", layouts[i].ranks, more,
                     f.state_hash, f.loss, f.eval, plain.state_hash, plain.loss, plain.eval);
        assert_int_equal(f.exact_bytes > 0, layouts[i].copies);
    }
    drop_dir(dir);
}

// A run that goes on in another layout.
static void goes_on(void **state) {
    char *dir = rank_dir();
    (void)state;
    exact = false;
    finding plain = run(dir, 1, "[parallel]\nzero = 0\n", (work){.last = STEPS});
    exact = true;
    run(dir, 3, "[run]\nname = parts\n[parallel]\nzero = 3\n", (work){.last = 2});
    finding f =
        run(dir, 2, "[run]\nname = parts\n[parallel]\nzero = 1\ntensor = 2\n", (work){.last = STEPS, .resumes = true});
    assert_string_equal(f.state_hash, plain.state_hash);
    drop_dir(dir);
}

// In FP32 the row is like any other.
static void in_fp32(void **state) {
    char *dir = rank_dir();
    (void)state;
    exact = false;
    finding plain = run(dir, 1, "[precision]\ncompute = fp32\n", (work){.last = STEPS});
    exact = true;
    finding f = run(dir, 2, "[precision]\ncompute = fp32\n[parallel]\nzero = 3\n", (work){.last = STEPS});
    assert_string_equal(f.state_hash, plain.state_hash);
    assert_int_equal(f.exact_bytes, 0);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout),
        cmocka_unit_test(goes_on),
        cmocka_unit_test(in_fp32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
