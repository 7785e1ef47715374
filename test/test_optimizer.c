// test/test_optimizer.c: what every optimizer promises, gradient descent against PyTorch (test/golden/make_sgd.py), and
// LARS, which PyTorch does not have, against the paper in double: what is kept, under which names, whatever the
// device's width, with a stop in the middle or without one. (AdamW against PyTorch: test_trainer.c; ranks:
// test_ranks.c, test_slices.sh.)
#include "test/support/golden.h"
#include "test/support/square.h"
#include "trainer/step/optimizer.h"

#include <stdlib.h>

static const char small_model[] =
    "[data]\nformat = raw16\n[model]\nlayers = 2\nheads = 3\nembed = 36\ncontext = 24\nvocab = 128\n"
    "[batch]\nglobal = 12\nmicro = 3\nlanes = 4\n[run]\nsteps = 6\n[schedule]\nwarmup = 2\n[device]\nthreads = 1\n";

// What an optimizer is asked for, and what it then keeps.
static const struct {
    const char *settings;
    int type, arrays;
    const char *names[2];
} kinds[] = {
    {"[optimizer]\ntype = adamw\n", OPTIMIZER_ADAMW, 2, {"m", "v"}},
    {"[optimizer]\ntype = adamw\nmomentum = 0.9\n", OPTIMIZER_ADAMW, 2, {"m", "v"}},  // not its own
    {"[optimizer]\ntype = sgd\nlr = 0.1\n", OPTIMIZER_SGD, 0, {NULL}},
    {"[optimizer]\ntype = sgd\nlr = 0.1\nmomentum = 0.9\n", OPTIMIZER_SGD, 1, {"momentum"}},
    {"[optimizer]\ntype = sgd\nlr = 0.1\nmomentum = 0.5\nnesterov = yes\n[precision]\ncompute = bf16\nrounding = stochastic\n",
     OPTIMIZER_SGD,
     1,
     {"momentum"}},
    {"[optimizer]\ntype = lars\nlr = 2\nmomentum = 0.9\n", OPTIMIZER_LARS, 1, {"momentum"}},
    {"[optimizer]\ntype = lars\nlr = 2\n[precision]\ncompute = bf16\nrounding = stochastic\n",
     OPTIMIZER_LARS,
     0,
     {NULL}},
    {"[optimizer]\ntype = muon\n", OPTIMIZER_MUON, 2, {"m", "v"}},
    {"[optimizer]\ntype = muon\n[precision]\ncompute = bf16\nrounding = stochastic\n", OPTIMIZER_MUON, 2, {"m", "v"}},
};
enum { KINDS = sizeof kinds / sizeof *kinds, DESCENT = 2, MOMENTUM = 3, LARS = 5, STEPS = 6 };

static void begin(session *x, config *c, const char *dir, const char *more) {
    load_config(c, dir, small_model, more);
    OK(session_open(x, c, SESSION_TRAIN, NULL));
}

// --- against PyTorch -------------------------------------------------------------------------------------------------

static void like_pytorch(const char *kind, const char *settings) {
    char *dir = make_dir(), more[256];
    config c;
    session x;
    snprintf(more, sizeof more, "[optimizer]\ntype = sgd\nlr = 0.05\n%s", settings);
    golden_open(&x, &c, dir, more);
    golden_losses_of(&x, "test/golden/sgd-golden.safetensors", kind);
    session_close(&x);
    drop_dir(dir);
}

static void descent_is_like_pytorch(void **state) {
    (void)state;
    like_pytorch("plain/", "");
}
static void momentum_is_like_pytorch(void **state) {
    (void)state;
    like_pytorch("momentum/", "momentum = 0.9\n");
}
static void nesterov_is_like_pytorch(void **state) {
    (void)state;
    like_pytorch("nesterov/", "momentum = 0.9\nnesterov = yes\n");
}

// --- LARS against the paper ------------------------------------------------------------------------------------------

// Masters, their momentum and where they were, in double, as they lie in the run's.
typedef struct in_double {
    double *w, *buf, *first;
} in_double;

static double norm_of(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

// The gradient that the run's last step used: of a piece, unscaled, before clipping.
static void read_gradient(const session *x, const zero_piece *p, double *to) {
    const float *grad = state_gradient(&x->state, p).data;
    for (int64_t i = 0; i < p->count; i++) to[i] = (double)grad[i] / (double)state_step(&x->state)->loss_scale;
}

// You, Gitman & Ginsburg 2017, equation 6, and a momentum as PyTorch's SGD has it. Counts the rows whose weights are
// all zero, and those whose gradient is.
static void piece_in_double(const session *x, const zero_piece *p, double *g, double factor, double lr, in_double *d,
                            int zero[2]) {
    const optimizer_keys *o = &x->cfg->optimizer;
    const param *row = &x->net->param[p->row];
    double *w = d->w + p->slab, *buf = d->buf + p->slab, decay = row->decay ? o->weight_decay : 0, ratio = 1;
    for (int64_t i = 0; i < p->count; i++) g[i] *= factor;
    double size = norm_of(w, p->count), slope = norm_of(g, p->count);
    zero[0] += row->decay && size == 0, zero[1] += row->decay && slope == 0;
    if (row->decay && size > 0 && slope > 0) ratio = o->trust * size / (slope + decay * size + o->eps);
    for (int64_t i = 0; i < p->count; i++) {
        double step = ratio * (g[i] + decay * w[i]);
        buf[i] = o->momentum * buf[i] + step;
        w[i] -= lr * (o->nesterov ? step + o->momentum * buf[i] : buf[i]);
    }
}

// The same step from the same gradient, whose norm is that of all rows.
static void step_in_double(const session *x, double lr, in_double *d, int zero[2]) {
    int count;
    const zero_piece *p = state_pieces(&x->state, &count);
    double *g = calloc(x->state.zero.slab, sizeof *g), clip = x->cfg->optimizer.grad_clip, sum = 0;
    assert_non_null(g);
    for (int i = 0; i < count; i++) {
        if (x->net->param[p[i].row].tied >= 0) continue;
        read_gradient(x, &p[i], g + p[i].slab);
        sum += square(norm_of(g + p[i].slab, p[i].count));
    }
    double factor = clip > 0 && sqrt(sum) > clip ? clip / sqrt(sum) : 1;
    for (int i = 0; i < count; i++)
        if (x->net->param[p[i].row].tied < 0) piece_in_double(x, &p[i], g + p[i].slab, factor, lr, d, zero);
    free(g);
}

static in_double as_it_begins(const session *x) {
    size_t n = (size_t)tensor_count(&x->state.masters.t);
    const float *w = x->state.masters.t.data;
    in_double d = {calloc(n, sizeof(double)), calloc(n, sizeof(double)), calloc(n, sizeof(double))};
    assert_true(d.w && d.buf && d.first);
    for (size_t i = 0; i < n; i++) d.w[i] = d.first[i] = (double)w[i];
    return d;
}

// How far each row has moved: to a hundred-thousandth of it, and what FP32 masters round in each step.
static void expect_moves(const session *x, const in_double *d, const char *settings) {
    int count;
    const zero_piece *p = state_pieces(&x->state, &count);
    const float *w = x->state.masters.t.data;
    for (int i = 0; i < count; i++) {
        double off = 0, moved = 0, size = 0;
        if (x->net->param[p[i].row].tied >= 0) continue;
        for (size_t e = p[i].slab; e < p[i].slab + (size_t)p[i].count; e++)
            off += square((double)w[e] - d->w[e]), moved += square(d->w[e] - d->first[e]), size += square(d->w[e]);
        if (!(moved > 0 && off <= 1e-10 * moved + STEPS * 0x1p-48 * size))
            fail_msg("%s%s has moved by %.9g, and is %.3g away from where it should be", settings,
                     x->net->param[p[i].row].name, sqrt(moved), sqrt(off));
    }
}

// All weights of a row are zero at first, so that in the first step the gradient of the matrix before it is zero, too.
static void make_zero(session *x, const char *name) {
    int row = 0;
    while (row < x->net->params && strcmp(x->net->param[row].name, name)) row++;
    assert_true(row < x->net->params);
    memset((float *)x->state.masters.t.data + x->state.zero.row_at[row], 0, tensor_bytes(&x->state.master[row]));
    OK(state_publish(&x->state));
}

static void lars_is_as_in_the_paper(void **state) {
    (void)state;
    static const char *const settings[] = {
        "lr = 0.5\ntrust = 0.02\nmomentum = 0.9\n", "lr = 3\nweight_decay = 0.01\ngrad_clip = 0\n",
        "lr = 0.5\ntrust = 0.01\neps = 0.1\nmomentum = 0.8\nnesterov = yes\n[precision]\ncompute = fp16\nloss_scale = 1024\n"};
    for (int k = 0; k < 3; k++) {
        char *dir = data_dir(), text[256];
        int zero[2] = {0, 0};
        config c;
        session x;
        snprintf(text, sizeof text, "[optimizer]\ntype = lars\n%s", settings[k]);
        begin(&x, &c, dir, text);
        OK(session_init(&x));
        make_zero(&x, "h.1.mlp.c_proj.weight");
        in_double d = as_it_begins(&x);
        OK(session_feed(&x, STEPS));
        for (int i = 0; i < STEPS; i++) {
            step_result s;
            OK(session_step(&x, &s));
            assert_true(s.applied && isfinite(s.loss));
            step_in_double(&x, s.lr, &d, zero);
        }
        assert_true(zero[0] == 1 && zero[1] == 1);
        expect_moves(&x, &d, settings[k]);
        session_close(&x);
        free(d.w), free(d.buf), free(d.first);
        drop_dir(dir);
    }
}

// --- what is kept ----------------------------------------------------------------------------------------------------

// Names become names in files: plain, and each once.
static void every_optimizer_names_what_it_keeps(void **state) {
    (void)state;
    char *dir = data_dir();
    for (int k = 0; k < KINDS; k++) {
        config c;
        session x;
        begin(&x, &c, dir, kinds[k].settings);
        assert_int_equal(c.optimizer.type, kinds[k].type);
        assert_int_equal(x.state.arrays, kinds[k].arrays);
        assert_int_equal(x.state.ckpt.groups, 1 + kinds[k].arrays);
        for (int i = 0; i < kinds[k].arrays; i++) {
            const char *name = x.state.array[i].name;
            assert_string_equal(name, kinds[k].names[i]);
            assert_true(*name && strlen(name) < CKPT_GROUP_NAME && !strchr(name, '/'));
            assert_string_equal(x.state.ckpt.group[1 + i].name, name);
            assert_int_equal(tensor_count(&x.state.array[i].t), tensor_count(&x.state.masters.t));
        }
        session_close(&x);
    }
    drop_dir(dir);
}

static void expect_files(const session *x, int kind) {
    char path[1200], name[CKPT_NAME];
    snprintf(path, sizeof path, "%s/ckpt/step-%08d/optimizer.safetensors", x->dir, (int)x->progress.step);
    st_file f;
    if (!kinds[kind].arrays) {
        assert_int_equal(access(path, F_OK), -1);
        return;
    }
    OK(st_open(&f, path));
    assert_int_equal(f.count, kinds[kind].arrays * x->state.ckpt.params);
    for (int i = 0; i < kinds[kind].arrays; i++) {
        snprintf(name, sizeof name, "%s/wte.weight", kinds[kind].names[i]);
        assert_non_null(st_find(&f, name));
    }
    st_close(&f);
}

// --- the same bits ---------------------------------------------------------------------------------------------------

typedef struct ending {
    char hash[17], state_hash[17];
    double loss;
} ending;

// Goes on from what `dir` has to step `last`, saves, and checks what was saved.
static ending run_to(const char *dir, int kind, const char *more, int64_t last) {
    char text[512], path[1200], saved[2][17];
    config c;
    session x;
    bool found;
    step_result s = {0};
    ending e;
    monitor m = {0};
    snprintf(text, sizeof text, "%s%s", kinds[kind].settings, more);
    begin(&x, &c, dir, text);
    OK(session_resume(&x, &found, &m));
    if (!found) OK(session_init(&x));
    OK(session_feed(&x, STEPS));
    while (x.progress.step < last) OK(session_step(&x, &s));
    OK(session_fetch(&x));
    OK(ckpt_save(x.dir, &x.state.ckpt, &x.progress, 1, NULL));
    OK(ckpt_hash(&x.state.ckpt, e.hash));
    OK(ckpt_state_hash(&x.state.ckpt, &x.progress, e.state_hash));
    e.loss = s.loss;
    expect_files(&x, kind);
    snprintf(path, sizeof path, "%s/ckpt/step-%08d", x.dir, (int)last);
    OK(ckpt_hash_dir(path, saved[0], saved[1]));
    assert_string_equal(saved[0], e.hash);
    assert_string_equal(saved[1], e.state_hash);
    session_close(&x);
    return e;
}

static void expect_same(int kind, const char *how, ending a, ending b) {
    if (strcmp(a.hash, b.hash) != 0 || strcmp(a.state_hash, b.state_hash) != 0 || a.loss != b.loss)
        fail_msg("%s, %s: hash %s, state %s, loss %.17g; expected %s, %s, %.17g", kinds[kind].settings, how, b.hash,
                 b.state_hash, b.loss, a.hash, a.state_hash, a.loss);
}

static void stops_widths_and_offload_do_not_matter(void **state) {
    (void)state;
    for (int k = DESCENT; k < KINDS; k++) {
        char *whole = data_dir(), *parts = data_dir(), *other = data_dir();
        ending one = run_to(whole, k, "", STEPS);
        run_to(parts, k, "", 1);
        run_to(parts, k, "[parallel]\noffload = yes\n", 4);
        expect_same(k, "stopped twice", one, run_to(parts, k, "", STEPS));
        expect_same(k, "portable, three threads", one,
                    run_to(other, k, "[device]\nsimd = portable\nthreads = 3\n", STEPS));
        drop_dir(whole), drop_dir(parts), drop_dir(other);
    }
}

static void every_setting_changes_the_bits(void **state) {
    (void)state;
    static const char *const more[] = {"sgd\n",
                                       "sgd\nlr = 0.1\n",
                                       "sgd\nweight_decay = 0\n",
                                       "sgd\nmomentum = 0.9\n",
                                       "sgd\nmomentum = 0.8\n",
                                       "sgd\nmomentum = 0.9\nnesterov = yes\n",
                                       "lars\n",
                                       "lars\ntrust = 0.01\n",
                                       "lars\neps = 0.1\n",
                                       "lars\nweight_decay = 0\n",
                                       "lars\nmomentum = 0.9\n",
                                       "adamw\n",
                                       "muon\n",
                                       "muon\nmuon_momentum = 0.9\n",
                                       "muon\nweight_decay = 0\n",
                                       "muon\nbeta1 = 0.8\n",
                                       "muon\ngroups = *.mlp.*: type=adamw\n"};
    enum { SETTINGS = sizeof more / sizeof *more };
    char *dir = data_dir(), hash[SETTINGS][17], text[128];
    for (int i = 0; i < SETTINGS; i++) {
        config c;
        session x;
        step_result s;
        snprintf(text, sizeof text, "[optimizer]\ntype = %s", more[i]);
        begin(&x, &c, dir, text);
        OK(session_init(&x));
        OK(session_feed(&x, STEPS));
        for (int step = 0; step < 2; step++) OK(session_step(&x, &s));
        OK(ckpt_hash(&x.state.ckpt, hash[i]));
        session_close(&x);
        for (int k = 0; k < i; k++)
            if (strcmp(hash[i], hash[k]) == 0) fail_msg("\"%s\" and \"%s\" give the same bits", more[i], more[k]);
    }
    drop_dir(dir);
}

static void refuses(const char *dir, const char *settings, const char *key, const char *value) {
    config c;
    session x;
    bool found;
    monitor m = {0};
    begin(&x, &c, dir, settings);
    assert_int_equal(session_resume(&x, &found, &m), ERR_CONFIG);
    if (!strstr(err_last()->text, key) || !strstr(err_last()->text, value)) fail_msg("%s", err_last()->text);
    session_close(&x);
}

static void another_optimizer_does_not_go_on(void **state) {
    (void)state;
    char *dir = data_dir();
    run_to(dir, MOMENTUM, "", 2);
    refuses(dir, "[optimizer]\ntype = adamw\nlr = 0.1\nmomentum = 0.9\n", "optimizer.type", "sgd");
    refuses(dir, "[optimizer]\ntype = sgd\nlr = 0.1\n", "optimizer.momentum", "0.9");
    refuses(dir, "[optimizer]\ntype = sgd\nlr = 0.1\nmomentum = 0.9\nnesterov = yes\n", "optimizer.nesterov", "yes");
    refuses(dir, "[optimizer]\ntype = lars\nlr = 0.1\nmomentum = 0.9\n", "optimizer.type", "sgd");
    drop_dir(dir);
    dir = data_dir();
    run_to(dir, LARS, "", 2);
    refuses(dir, "[optimizer]\ntype = sgd\nlr = 2\nmomentum = 0.9\n", "optimizer.type", "lars");
    refuses(dir, "[optimizer]\ntype = adamw\nlr = 2\nmomentum = 0.9\n", "optimizer.type", "lars");
    refuses(dir, "[optimizer]\ntype = lars\nlr = 2\nmomentum = 0.9\ntrust = 0.002\n", "optimizer.trust", "0.001");
    drop_dir(dir);
}

// Loading for inference reads the weights only, whatever else the checkpoint has.
static void looking_reads_no_optimizer_state(void **state) {
    (void)state;
    char *dir = data_dir(), path[1200];
    config c;
    session x;
    run_to(dir, MOMENTUM, "", 2);
    load_config(&c, dir, small_model, kinds[0].settings);
    OK(session_open(&x, &c, SESSION_INFERENCE, NULL));
    snprintf(path, sizeof path, "%s/ckpt/step-%08d/optimizer.safetensors", x.dir, 2);
    assert_int_equal(unlink(path), 0);
    OK(session_load(&x, NULL));
    assert_int_equal(x.state.arrays, 0);
    assert_int_equal(x.progress.step, 2);
    session_close(&x);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descent_is_like_pytorch),
        cmocka_unit_test(momentum_is_like_pytorch),
        cmocka_unit_test(nesterov_is_like_pytorch),
        cmocka_unit_test(lars_is_as_in_the_paper),
        cmocka_unit_test(every_optimizer_names_what_it_keeps),
        cmocka_unit_test(stops_widths_and_offload_do_not_matter),
        cmocka_unit_test(every_setting_changes_the_bits),
        cmocka_unit_test(another_optimizer_does_not_go_on),
        cmocka_unit_test(looking_reads_no_optimizer_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
