// test/test_muon.c: Muon against PyTorch (test/golden/make_muon.py) and, of matrices of any shape and however they are
// cut, against its formula in double; whole matrices for each owner; and what groups of parameters do. (Stops, widths
// and offload: test_optimizer.c; ranks: test_muon.sh.)
#include "test/support/golden.h"
#include "test/support/square.h"
#include "trainer/step/muon.h"

#include <stdlib.h>

static const char small_model[] =
    "[data]\nformat = raw16\n[model]\nlayers = 2\nheads = 3\nembed = 36\ncontext = 24\nvocab = 128\n"
    "[batch]\nglobal = 12\nmicro = 3\nlanes = 4\n[run]\nsteps = 6\n[schedule]\ntype = constant\nwarmup = -1\n"
    "[device]\nthreads = 1\n";

// --- against PyTorch -------------------------------------------------------------------------------------------------

enum { STEPS = 20 };

static void expect_near(int step, const char *what, double found, double wanted) {
    if (!(fabs(found - wanted) <= 2e-6 * wanted)) fail_msg("step %d: %s %.9f, PyTorch %.9f", step, what, found, wanted);
}

static void twenty_steps_are_like_pytorch(void **state) {
    (void)state;
    static const char file[] = "test/golden/muon-golden.safetensors";
    char *dir = make_dir();
    config c;
    session x;
    step_result s;
    double losses[STEPS], norms[STEPS], last;
    golden_read(file, "losses", STEPS, losses);
    golden_read(file, "norms", STEPS, norms);
    golden_read(file, "final_loss", 1, &last);
    golden_open(&x, &c, dir, "[optimizer]\ntype = muon\n");
    OK(session_feed(&x, STEPS));
    for (int i = 0; i < STEPS; i++) {
        OK(session_step(&x, &s));
        expect_near(i + 1, "loss", s.loss, losses[i]);
        expect_near(i + 1, "norm", s.grad_norm, norms[i]);
    }
    x.progress.step = 0;
    OK(session_feed(&x, 1));
    OK(session_step(&x, &s));
    expect_near(STEPS + 1, "loss", s.loss, last);
    session_close(&x);
    drop_dir(dir);
}

// --- the formula in double -------------------------------------------------------------------------------------------

// y (M,N) = a (M,K) b (K,N), or of the transposed of either.
static double *product(const double *a, bool ta, const double *b, bool tb, int64_t M, int64_t N, int64_t K) {
    double *y = calloc((size_t)(M * N), sizeof *y);
    assert_non_null(y);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++)
            for (int64_t k = 0; k < K; k++)
                y[i * N + j] += (ta ? a[k * M + i] : a[i * K + k]) * (tb ? b[j * K + k] : b[k * N + j]);
    return y;
}

// x (R,C) in place: what a matrix moves by.
static void in_double(double *x, int64_t R, int64_t C) {
    double norm = 0;
    for (int64_t i = 0; i < R * C; i++) norm += x[i] * x[i];
    for (int64_t i = 0; i < R * C; i++) x[i] /= fmax(sqrt(norm), 1e-7);
    for (int n = 0; n < 5; n++) {
        double *a = product(x, false, x, true, R, R, C), *aa = product(a, false, a, false, R, R, R);
        for (int64_t i = 0; i < R * R; i++) a[i] = -4.7750 * a[i] + 2.0315 * aa[i];
        double *y = product(a, false, x, false, R, C, R);
        for (int64_t i = 0; i < R * C; i++) x[i] = 3.4445 * x[i] + y[i];
        free(a), free(aa), free(y);
    }
    for (int64_t i = 0; i < R * C; i++) x[i] *= 0.2 * sqrt((double)(R > C ? R : C));
}

typedef struct shape {
    int64_t rows, columns, share[PARAM_SHARES];
    int slices, axis;
} shape;

// Where an element of the row is, of those that lie slice after slice.
static int64_t place(const shape *s, int64_t row, int64_t column) {
    int64_t room = s->rows * s->columns / s->slices, above = 0, within = 0;
    if (s->axis == 1) {
        int64_t width = s->columns / s->slices;
        return column / width * room + row * width + column % width;
    }
    int64_t part = s->share[0] ? s->share[0] : s->rows;
    for (int k = 0; row - above >= part; part = s->share[++k]) above += part, within += part / s->slices;
    int64_t each = part / s->slices, slice = (row - above) / each;
    return slice * room + (within + (row - above) % each) * s->columns + column;
}

static double some(int64_t i) { return (double)((i * 7919 + i * i % 104729) % 2003) / 1001.5 - 1; }

// By the rows' own order, whatever the slices.
static void orthogonalize(const shape *s, double scale, device *dev, stream *st, float *out) {
    param p = {.dims = 2, .size = {s->rows, s->columns, 1, 1}, .slices = s->slices, .axis = s->axis, .tied = -1};
    muon_room m = {0};
    arena a;
    memcpy(p.share, s->share, sizeof p.share);
    arena_open(&a, dev, MEMORY_DEVICE);
    muon_count(&m, &p);
    OK(muon_declare(&m, &a, NULL));
    OK(arena_commit(&a));
    float *d = m.d.data;
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->columns; j++) d[place(s, i, j)] = (float)(scale * some(i * s->columns + j));
    OK(muon_orthogonalize(&m, &p, 0, s->slices, device_ops(dev), st));
    OK(stream_wait(st));
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->columns; j++) out[i * s->columns + j] = d[place(s, i, j)];
    muon_close(&m);
    arena_close(&a);
}

static void expect_formula(const shape *s, double scale, const float *found) {
    int64_t at = 0;
    for (int k = 0; k < PARAM_SHARES && (k == 0 || s->share[k]); k++) {
        int64_t R = s->share[0] ? s->share[k] : s->rows, n = R * s->columns;
        double *x = malloc((size_t)n * sizeof *x), off = 0, all = 0;
        for (int64_t i = 0; i < n; i++) x[i] = (double)(float)(scale * some(at + i));
        in_double(x, R, s->columns);
        for (int64_t i = 0; i < n; i++) off += square((double)found[at + i] - x[i]), all += x[i] * x[i];
        if (!(off <= 1e-10 * all))
            fail_msg("%lld x %lld, matrix %d: %.3g away of %.3g", (long long)s->rows, (long long)s->columns, k,
                     sqrt(off), sqrt(all));
        free(x);
        at += n;
    }
}

static void any_matrix_is_as_the_formula_says(void **state) {
    (void)state;
    static const shape shapes[] = {{1, 1, {0}, 1, 0},          {1, 9, {0}, 1, 0},          {17, 5, {0}, 1, 0},
                                   {5, 33, {0}, 1, 0},         {150, 120, {0}, 1, 0},      {24, 16, {0}, 4, 0},
                                   {16, 24, {0}, 4, 1},        {96, 16, {0}, 2, 1},        {48, 20, {16, 16, 16}, 1, 0},
                                   {48, 20, {32, 8, 8}, 1, 0}, {48, 20, {32, 8, 8}, 4, 0}, {40, 12, {20, 20}, 2, 0}};
    device *dev;
    stream *s;
    OK(device_open(&dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    OK(stream_open(dev, &s));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        shape whole = shapes[i];
        size_t bytes = (size_t)(whole.rows * whole.columns) * sizeof(float);
        float *x = malloc(bytes), *y = malloc(bytes);
        // of a norm below 1e-7 the iteration begins with what it is in 1e-7
        orthogonalize(&shapes[i], 1e-11, dev, s, x);
        expect_formula(&shapes[i], 1e-11, x);
        orthogonalize(&shapes[i], 1, dev, s, x);
        expect_formula(&shapes[i], 1, x);
        whole.slices = 1, whole.axis = 0;
        orthogonalize(&whole, 1, dev, s, y);
        if (memcmp(x, y, bytes) != 0) fail_msg("shape %zu: slices change bits", i);
        free(x), free(y);
    }
    stream_close(s);
    device_close(dev);
}

// --- owners ----------------------------------------------------------------------------------------------------------

// Every matrix is with one owner, all floats are with some, and no owner has much more than the others; where there are
// more owners than matrices, none has much more than the largest matrix.
static void owners_have_whole_matrices_and_equal_shares(void **state) {
    (void)state;
    static const int worlds[] = {1, 2, 3, 4, 5, 6, 7, 8, 30, 64, 256};
    const double MATRIX = 4 * 256 * 256;
    char *dir = data_dir();
    config c;
    model *net;
    row_rule *r;
    load_config(&c, dir, small_model, "[model]\nlayers = 12\nheads = 4\nembed = 256\n[optimizer]\ntype = muon\n");
    OK(model_open(&net, model_types[c.model.type], &c.model.of));
    OK(row_rules_open(&r, net, &c.optimizer));
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        const int world = worlds[i];
        size_t largest = 0, all = 0;
        int *owner = malloc((size_t)net->params * sizeof *owner);
        for (int k = 0; k < net->params; k++) owner[k] = -1;
        for (int rank = 0; rank < world; rank++) {
            zero_layout z;
            OK(zero_open(&z, net, &(zero_options){.rank = rank, .world = world, .bucket_bytes = 1 << 20}));
            for (int k = 0; k < z.owned; k++) {
                int row = z.piece[k].row;
                if (!net->param[row].whole || net->param[row].tied >= 0) continue;
                if (owner[row] >= 0) fail_msg("%s: ranks %d and %d have it", net->param[row].name, owner[row], rank);
                owner[row] = rank;
                assert_int_equal(z.piece[k].count, shape_count(2, net->param[row].size));
            }
            largest = z.shard_values > largest ? z.shard_values : largest, all += z.shard_values;
            if (rank == world - 1) assert_int_equal(all, z.values);
            zero_close(&z);
        }
        for (int k = 0; k < net->params; k++) assert_true(owner[k] >= 0 || !net->param[k].whole);
        if ((double)largest > 1.2 * (double)all / world + (world > 8 ? MATRIX : 0))
            fail_msg("%d ranks: one has %zu of %zu floats", world, largest, all);
        free(owner);
    }
    free(r);
    model_close(net);
    drop_dir(dir);
}

// --- groups ----------------------------------------------------------------------------------------------------------

// The masters after a step, as they lie in the slab of stage 0.
typedef struct after {
    float *w;
    session x;
    config c;
} after;

static void train(after *a, const char *dir, const char *settings) {
    step_result s;
    load_config(&a->c, dir, small_model, settings);
    OK(session_open(&a->x, &a->c, SESSION_TRAIN, NULL));
    OK(session_freeze(&a->x));
    OK(session_init(&a->x));
    OK(session_feed(&a->x, 1));
    OK(session_step(&a->x, &s));
    a->w = a->x.state.masters.t.data;
}

static const float *row_at(const after *a, int row) { return a->w + a->x.state.zero.row_at[row]; }

// Of all rows but that of `name` a is like b; of that one like c.
static void expect_mixed(const after *a, const after *b, const after *c, const char *name) {
    const model *net = a->x.net;
    for (int i = 0; i < net->params; i++) {
        if (net->param[i].tied >= 0) continue;
        bool own = strcmp(net->param[i].name, name) == 0;
        size_t bytes = tensor_bytes(&a->x.state.master[i]);
        if (memcmp(row_at(a, i), row_at(own ? c : b, i), bytes) != 0)
            fail_msg("%s, %s: is not as expected", name, net->param[i].name);
        if (own && memcmp(row_at(a, i), row_at(b, i), bytes) == 0) fail_msg("%s: its group changes nothing", name);
    }
}

// One step from the same weights: what a group says of one row is what the run would do to all.
static void a_group_has_its_own_rate_and_decay(void **state) {
    (void)state;
    static const struct {
        const char *plain, *other, *group, *name;
    } rows[] = {{"lr = 0.004\n", "lr = 0.002\n", "groups = wpe.weight: lr=0.5\n", "wpe.weight"},
                {"lr = 0.004\n", "lr = 0.004\nweight_decay = 0\n", "groups = h.1.mlp.c_fc.weight: decay=0, h.*: lr=1\n",
                 "h.1.mlp.c_fc.weight"},
                {"type = sgd\nlr = 0.1\n", "type = sgd\nlr = 0.2\n", "groups = h.0.attn.c_attn.bias: lr=2\n",
                 "h.0.attn.c_attn.bias"},
                {"type = lars\nlr = 0.5\n", "type = lars\nlr = 0.25\n", "groups = wte.weight: lr=0.5\n", "wte.weight"},
                {"type = muon\nlr = 0.004\n", "type = muon\nlr = 0.002\n", "groups = h.0.attn.c_proj.*t: lr=0.5\n",
                 "h.0.attn.c_proj.weight"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *dir = data_dir(), text[256];
        after a, b, c;
        snprintf(text, sizeof text, "[run]\nsteps = 1\n[optimizer]\n%s%s", rows[i].plain, rows[i].group);
        train(&a, dir, text);
        snprintf(text, sizeof text, "[run]\nsteps = 1\n[optimizer]\n%s", rows[i].plain);
        train(&b, dir, text);
        snprintf(text, sizeof text, "[run]\nsteps = 1\n[optimizer]\n%s", rows[i].other);
        train(&c, dir, text);
        expect_mixed(&a, &b, &c, rows[i].name);
        session_close(&a.x), session_close(&b.x), session_close(&c.x);
        drop_dir(dir);
    }
}

// Frozen rows keep their values, and have no master; all others move as they do without them.
static void what_is_frozen_stays(void **state) {
    (void)state;
    char *dir = data_dir();
    after a, b;
    session first;
    config c;
    train(&a, dir, "[optimizer]\ngrad_clip = 0\ngroups = h.0.ln*: lr=1, w?e* h.0.*: frozen\n");
    train(&b, dir, "[optimizer]\ngrad_clip = 0\n");
    load_config(&c, dir, small_model, "");
    OK(session_open(&first, &c, SESSION_TRAIN, NULL));
    OK(session_init(&first));
    int frozen = 0;
    for (int i = 0; i < a.x.net->params; i++) {
        const param *p = &a.x.net->param[i];
        size_t bytes = tensor_bytes(&a.x.state.w[i]);
        bool is = p->name[0] == 'w' || strncmp(p->name, "h.0.a", 5) == 0 || strncmp(p->name, "h.0.m", 5) == 0;
        if (p->tied >= 0) continue;
        frozen += is;
        assert_true(zero_has(&a.x.state.zero, i) != is);
        const void *was = first.state.w[i].data, *now = b.x.state.w[i].data, *own = a.x.state.w[i].data;
        if (memcmp(own, is ? was : now, bytes) != 0) fail_msg("%s is not as expected", p->name);
    }
    assert_int_equal(frozen, 10);
    assert_true(a.x.state.zero.values < b.x.state.zero.values);
    session_close(&a.x), session_close(&b.x), session_close(&first);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twenty_steps_are_like_pytorch),
        cmocka_unit_test(any_matrix_is_as_the_formula_says),
        cmocka_unit_test(owners_have_whole_matrices_and_equal_shares),
        cmocka_unit_test(a_group_has_its_own_rate_and_decay),
        cmocka_unit_test(what_is_frozen_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
