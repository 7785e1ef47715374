// test/test_step.c: what one step does, against formulas that are written down here once more: which learning rate
// moves the weights, what a fixed loss scale scales, which activations dropout takes. Bits are compared elsewhere
// (test_trainer.c, test_ranks.c): they say that something is as it was, and not that it is right.
#include "test/support/options.h"
#include "test/support/rate.h"
#include "test/support/run.h"

#include "base/philox.h"
#include "trainer/session/restore.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const char small_model[] =
    "[data]\nformat = raw16\nshuffle = no\n[model]\nlayers = 2\nheads = 3\nembed = 36\ncontext = 24\nvocab = 128\n"
    "[batch]\nglobal = 12\nmicro = 3\nlanes = 4\n[device]\nthreads = 1\n";

enum { T = 24, C = 36, H = 3, V = 128, LAYERS = 2, SAMPLES = 12 };

typedef struct rig {
    char *dir;
    config c;
    session x;
} rig;

static void rig_open(rig *r, const char *more) {
    r->dir = data_dir();
    load_config(&r->c, r->dir, small_model, more);
    OK(session_open(&r->x, &r->c, SESSION_TRAIN, NULL));
    OK(session_init(&r->x));
    OK(session_feed(&r->x, r->c.run.steps));
}

static void rig_close(rig *r) {
    session_close(&r->x);
    drop_dir(r->dir);
}

static tensor *row(rig *r, tensor *of, const char *name) { return &of[model_find(r->x.net, name)]; }
static tensor *gradients(rig *r) { return &r->x.state.grad[r->x.state.sum_buffer * r->x.net->params]; }

static void set_scale(rig *r, float scale) {
    step_state s;
    OK(state_get_step(&r->x.state, &s));
    s.loss_scale = scale;
    OK(state_set_step(&r->x.state, &s));
}

// --- the learning rate -----------------------------------------------------------------------------------------------

static const rate rates = {.lr = 4e-3, .warmup = 3, .end = 10, .final = 0.1};
static const double BETA1 = 0.9, BETA2 = 0.99, EPS = 1e-8;

// AdamW in double over the gradients that the steps leave, for one tensor of a model that runs beside it.
typedef struct adam {
    int64_t n, t;
    double *w, *m, *v;
} adam;

static adam adam_open(const tensor *master) {
    adam a = {.n = tensor_count(master)};
    a.w = calloc(3 * (size_t)a.n, sizeof *a.w);
    assert_non_null(a.w);
    a.m = a.w + a.n, a.v = a.m + a.n;
    for (int64_t i = 0; i < a.n; i++) a.w[i] = ((float *)master->data)[i];
    return a;
}

static void adam_step(adam *a, const tensor *grad, double lr) {
    a->t++;
    for (int64_t i = 0; i < a->n; i++) {
        double g = ((float *)grad->data)[i];
        a->m[i] = BETA1 * a->m[i] + (1 - BETA1) * g;
        a->v[i] = BETA2 * a->v[i] + (1 - BETA2) * g * g;
        double m = a->m[i] / (1 - pow(BETA1, (double)a->t)), v = a->v[i] / (1 - pow(BETA2, (double)a->t));
        a->w[i] -= lr * m / (sqrt(v) + EPS);
    }
}

// How far the masters are from the double's, in the L2 norm, as a share of the way that the step went.
static double adam_error(const adam *a, const tensor *master, const float *before) {
    double off = 0, way = 0;
    for (int64_t i = 0; i < a->n; i++) {
        double now = ((float *)master->data)[i];
        off += (now - a->w[i]) * (now - a->w[i]), way += (now - before[i]) * (now - before[i]);
    }
    return sqrt(off) / sqrt(way);
}

// Steps 4 and 5 overflow: they take their turn in the schedule, but are no updates of Adam's. A scale of infinity makes
// a step overflow.
static void every_step_moves_the_weights_at_its_own_rate(void **state) {
    (void)state;
    for (int type = 0; type < 4; type++) {
        char more[256];
        rig r;
        step_result out;
        snprintf(more, sizeof more,
                 "[run]\nsteps = 12\n[optimizer]\nlr = 4e-3\nweight_decay = 0\ngrad_clip = 0\n"
                 "[schedule]\ntype = %s\nwarmup = 3\ndecay_steps = 10\nfinal_fraction = 0.1\n",
                 rate_types[type]);
        rig_open(&r, more);
        tensor *master = row(&r, r.x.state.master, "h.1.mlp.c_fc.weight");
        adam a = adam_open(master);
        float *before = malloc(tensor_bytes(master));
        assert_non_null(before);
        for (int step = 1; step <= 12; step++) {
            bool skipped = step == 4 || step == 5;
            double lr = rate_at(&rates, type, step);
            memcpy(before, master->data, tensor_bytes(master));
            if (skipped) set_scale(&r, INFINITY);
            OK(session_step(&r.x, &out));
            if (skipped) set_scale(&r, 1);
            assert_int_equal(out.applied, !skipped);
            if (!skipped) adam_step(&a, row(&r, gradients(&r), "h.1.mlp.c_fc.weight"), lr);
            assert_int_equal(out.updates, a.t);
            if (!(fabs(out.lr - lr) <= 1e-12))
                fail_msg("%s, step %d: lr %.12f, expected %.12f", rate_types[type], step, out.lr, lr);
            if (skipped) assert_memory_equal(before, master->data, tensor_bytes(master));
            double error = skipped ? 0 : adam_error(&a, master, before);
            if (!(error < 1e-3))
                fail_msg("%s, step %d: the weights moved otherwise, by %.2g of the way", rate_types[type], step, error);
        }
        free(before);
        free(a.w);
        rig_close(&r);
    }
}

// --- a fixed loss scale ----------------------------------------------------------------------------------------------

// In FP32 a power of two changes exponents only: the gradient is 1,024 times as large, the update and all else the
// same.
static void a_fixed_scale_scales_the_gradient_and_nothing_else(void **state) {
    (void)state;
    rig one, scaled;
    step_result a, b;
    rig_open(&one, "");
    rig_open(&scaled, "[precision]\nloss_scale = 1024\n");
    for (int step = 1; step <= 3; step++) {
        OK(session_step(&one.x, &a));
        OK(session_step(&scaled.x, &b));
        assert_true(a.loss_scale == 1 && b.loss_scale == 1024);
        assert_true(a.loss == b.loss && fabs(a.grad_norm - b.grad_norm) <= 1e-12 * a.grad_norm);
        const tensor *w = row(&one, one.x.state.master, "wpe.weight");
        const float *g = row(&one, gradients(&one), "wpe.weight")->data;
        const float *s = row(&scaled, gradients(&scaled), "wpe.weight")->data;
        for (int64_t i = 0; i < tensor_count(w); i++)
            if (s[i] != 1024 * g[i]) fail_msg("step %d: gradient %g, without a scale of 1024 %g", step, s[i], g[i]);
        assert_memory_equal(w->data, row(&scaled, scaled.x.state.master, "wpe.weight")->data, tensor_bytes(w));
    }
    rig_close(&one);
    rig_close(&scaled);
}

// FP16 can't hold logits' gradients of such a scale, and each step is skipped: nothing looks for a better one.
static void a_fixed_scale_stays(void **state) {
    (void)state;
    rig r;
    step_result out;
    rig_open(&r, "[precision]\ncompute = fp16\nloss_scale = 16777216\n[batch]\nglobal = 3\nlanes = 1\n");
    for (int step = 1; step <= 3; step++) {
        OK(session_step(&r.x, &out));
        assert_false(out.applied);
        assert_true(out.loss_scale == 16777216);
    }
    rig_close(&r);
    rig_open(&r, "[precision]\ncompute = fp16\nloss_scale = 256\nscale_window = 1\n");
    for (int step = 1; step <= 3; step++) {
        OK(session_step(&r.x, &out));
        assert_true(out.applied && out.loss_scale == 256);
    }
    rig_close(&r);
}

// --- dropout ---------------------------------------------------------------------------------------------------------

static const char with_dropout[] = "[model]\ndropout = 0.3\n";
enum { EMBED, ATTENTION, MID, OUT };  // after the embedding (block 0); in block 1 + l: probabilities, and both branches

// 0, or what is left is multiplied by: element e of a tensor of one sample (gpu/ops.h: dropout_key).
static double kept(const rig *r, int64_t step, int sample, int block, int which, int64_t e) {
    uint32_t word[4];
    double p = (float)options_of(&r->c.model.of)->gpt.dropout;
    uint32_t site = SITE_DROPOUT + 8 * (uint32_t)block + (uint32_t)which;
    philox4x32(word, (uint64_t)r->c.run.seed, (uint32_t)(e / 4), site, (uint32_t)sample, (uint32_t)step);
    return word[e % 4] < p * 0x1p32 ? 0 : 1 / (1 - p);
}

static void fill(rig *r, const char *name, double (*value)(int64_t i)) {
    tensor *t = row(r, r->x.state.master, name);
    for (int64_t i = 0; i < tensor_count(t); i++) ((float *)t->data)[i] = (float)value(i);
}

static double zero(int64_t i) { return 0 * (double)i; }
static double identity(int64_t i) { return i / C == i % C; }
static double wave(int64_t i) { return 0.5 * sin(0.7 * (double)i + 0.3); }
static double values(int64_t i) { return i < 2 * C ? 0 : wave(i); }  // q and k are zero: attention is even

// A model that can be computed by hand, whose four dropouts are all there is to its layers.
static void simplify(rig *r) {
    char name[64];
    fill(r, "wte.weight", wave);
    for (int l = 0; l < LAYERS; l++) {
        static const struct {
            const char *row;
            double (*value)(int64_t);
        } rows[] = {{"attn.c_attn.weight", zero}, {"attn.c_attn.bias", values}, {"attn.c_proj.weight", identity},
                    {"attn.c_proj.bias", wave},   {"mlp.c_proj.weight", zero},  {"mlp.c_proj.bias", wave}};
        for (int i = 0; i < 6; i++) {
            snprintf(name, sizeof name, "h.%d.%s", l, rows[i].row);
            fill(r, name, rows[i].value);
        }
    }
}

// What layer l adds to position t.
static void add_layer(const rig *r, int64_t step, int sample, int l, int t, double x[C]) {
    double seen[H] = {0};
    for (int h = 0; h < H; h++)
        for (int j = 0; j <= t; j++) seen[h] += kept(r, step, sample, 1 + l, ATTENTION, (h * T + t) * T + j) / (t + 1);
    for (int c = 0; c < C; c++) {
        double attended = seen[c / (C / H)] * values(2 * C + c);
        x[c] += kept(r, step, sample, 1 + l, MID, t * C + c) * (attended + wave(c));
        x[c] += kept(r, step, sample, 1 + l, OUT, t * C + c) * wave(c);
    }
}

static double position_loss(const double x[C], int32_t target) {
    double mean = 0, square = 0, sum = 0, logit[V];
    for (int c = 0; c < C; c++) mean += x[c] / C;
    for (int c = 0; c < C; c++) square += (x[c] - mean) * (x[c] - mean) / C;
    for (int v = 0; v < V; v++) {
        logit[v] = 0;
        for (int c = 0; c < C; c++) logit[v] += (x[c] - mean) / sqrt(square + 1e-5) * wave((int64_t)v * C + c);
        sum += exp(logit[v]);
    }
    return log(sum) - logit[target];
}

static double sample_loss(rig *r, int64_t step, int sample) {
    int32_t tokens[T], targets[T];
    const float *wpe = row(r, r->x.state.master, "wpe.weight")->data;
    double loss = 0;
    OK(source_look(r->x.train, (step - 1) * SAMPLES + sample, (void *[]){tokens, targets}));
    for (int t = 0; t < T; t++) {
        double x[C];
        for (int c = 0; c < C; c++)
            x[c] = kept(r, step, sample, 0, EMBED, t * C + c) * (wave((int64_t)tokens[t] * C + c) + wpe[t * C + c]);
        for (int l = 0; l < LAYERS; l++) add_layer(r, step, sample, l, t, x);
        loss += position_loss(x, targets[t]) / T;
    }
    return loss;
}

// Every sample of two steps: whatever a mask depends on, or does not, shows in somebody's loss.
static void dropout_takes_what_its_key_says(void **state) {
    (void)state;
    rig r;
    rig_open(&r, with_dropout);
    simplify(&r);
    for (int64_t step = 1; step <= 4; step += 3) {
        r.x.progress.step = step - 1;
        OK(session_feed(&r.x, step));
        OK(step_gradient(&r.x.runner, r.x.data, step));
        for (int i = 0; i < SAMPLES; i++) {
            double ours = ((double *)r.x.runner.results.sample_loss.data)[i], expected = sample_loss(&r, step, i);
            if (!(fabs(ours - expected) <= 1e-5 * expected))
                fail_msg("step %d, sample %d: loss %.7f, by hand %.7f", (int)step, i, ours, expected);
        }
    }
    rig_close(&r);
}

// With p = 1 nothing is left that 1 / (1-p) could scale up: a caller that asks for it has made a mistake.
static void expect_abort(rig *r, bool attention, float p) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        float room[2 * 4 * 12] = {0}, out[2 * 4 * 4], lse[2 * 4];
        tensor x = {room, FP32, 3, {2, 4, attention ? 12 : 4, 1}}, y = {out, FP32, 3, {2, 4, 4, 1}};
        tensor sums = {lse, FP32, 3, {2, 1, 4, 1}};
        const ops *o = device_ops(r->x.dev);
        dropout_key key = {.p = p};
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO);
        if (attention)
            o->attention_forward(&(attention_forward_args){.y = &y, .lse = &sums, .qkv = &x, .heads = 1, .drop = &key},
                                 r->x.s);
        else o->dropout(&(dropout_args){.y = &y, .x = &x, .drop = &key}, r->x.s);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    bool aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, wanted = !(p >= 0 && p < 1);
    if (aborted != wanted || (!aborted && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)))
        fail_msg("%s with p = %g: status 0x%x", attention ? "attention" : "dropout", (double)p, (unsigned)status);
}

static void no_operation_drops_everything(void **state) {
    (void)state;
    static const float wrong[] = {5, 1, -0.5f, NAN, 0.5f};  // and one that is right
    rig r;
    rig_open(&r, "");
    for (int i = 0; i < 5; i++)
        for (int attention = 0; attention <= 1; attention++) expect_abort(&r, attention, wrong[i]);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_moves_the_weights_at_its_own_rate),
        cmocka_unit_test(a_fixed_scale_scales_the_gradient_and_nothing_else),
        cmocka_unit_test(a_fixed_scale_stays),
        cmocka_unit_test(dropout_takes_what_its_key_says),
        cmocka_unit_test(no_operation_drops_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
