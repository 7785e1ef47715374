// test/test_trainer.c: steps against PyTorch, and bits against bits: threads, vector widths, repetition, resume.
// (Ranks: test_ranks.c.)
#include "test/support/fake_device.h"
#include "test/support/golden.h"
#include "test/support/square.h"

#include "base/philox.h"
#include "base/version.h"
#include "trainer/session/evaluate.h"
#include "trainer/sample.h"
#include "trainer/step/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>

static const char small_model[] =
    "[data]\nformat = raw16\n[model]\nlayers = 2\nheads = 3\nembed = 36\ncontext = 24\nvocab = 128\n"
    "[batch]\nglobal = 12\nmicro = 3\nlanes = 4\n[optimizer]\nlr = 3e-3\n[schedule]\nwarmup = 4\n";

typedef struct rig {
    char *dir;
    config c;
    session x;
} rig;

// A session over made-up text with weights at their start, fed from step 1. `more` are further INI lines.
static void rig_open(rig *r, const char *more, bool feed) {
    r->dir = data_dir();
    load_config(&r->c, r->dir, small_model, more);
    OK(session_open(&r->x, &r->c, SESSION_TRAIN, NULL));
    OK(session_init(&r->x));
    if (feed) OK(session_feed(&r->x, r->c.run.steps));
}

static void rig_close(rig *r) {
    session_close(&r->x);
    drop_dir(r->dir);
}

static void hash_after(const char *more, int steps, char hash[17], double *loss) {
    rig r;
    step_result s;
    rig_open(&r, more, true);
    for (int i = 0; i < steps; i++) OK(session_step(&r.x, &s));
    ckpt_hash(&r.x.state.ckpt, hash);
    if (loss) *loss = s.loss;
    rig_close(&r);
}

// --- against PyTorch: test/golden/make_gpt.py ------------------------------------------------------------------------

static void compare_gradient(const st_file *f, const param *p, const float *ours, int64_t n) {
    char name[128];
    snprintf(name, sizeof name, "grad/%s", p->name);
    const st_tensor *t = st_find(f, name);
    if (!t) fail_msg("golden file has no %s", name);
    float *theirs = malloc((size_t)n * 4);
    assert_int_equal(t->bytes, 4 * n);
    OK(st_read(f, t, theirs));
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) diff += square((double)ours[i] - theirs[i]), norm += square(theirs[i]);
    if (!(sqrt(diff / norm) < 1e-4)) fail_msg("gradient of %s is off by %g in relative L2", p->name, sqrt(diff / norm));
    free(theirs);
}

static void gradients_agree_with_pytorch(void **state) {
    (void)state;
    rig r;
    st_file f;
    r.dir = make_dir();
    golden_open(&r.x, &r.c, r.dir, "");
    OK(step_gradient(&r.x.runner, r.x.data, 1));
    OK(st_open(&f, "test/golden/gpt-golden.safetensors"));
    model *m = r.x.net;
    tensor *grad = &r.x.state.grad[r.x.state.sum_buffer * m->params];
    for (int i = 0; i < m->params; i++)
        if (m->param[i].tied < 0) compare_gradient(&f, &m->param[i], grad[i].data, tensor_count(&grad[i]));
    st_close(&f);
    rig_close(&r);
}

static void losses_agree_with_pytorch(void **state) {
    (void)state;
    rig r = {.dir = make_dir()};
    golden_open(&r.x, &r.c, r.dir, "");
    golden_losses(&r.x);
    rig_close(&r);
}

// --- dropout: the mask of the backward pass is that of the forward pass ----------------------------------------------

// Mean loss of step 1 as it stands; its summed gradient is left in the state.
static double loss_and_gradient(rig *r) {
    double total = 0;
    r->x.progress.step = 0;
    OK(session_feed(&r->x, 1));
    OK(step_gradient(&r->x.runner, r->x.data, 1));
    for (int i = 0; i < r->c.batch.global; i++) total += ((double *)r->x.runner.results.sample_loss.data)[i];
    return total / (double)r->c.batch.global;
}

// Adds h * direction to every master.
static void walk(rig *r, float *const *direction, double h) {
    for (int i = 0; i < r->x.net->params; i++)
        for (int64_t k = 0; direction[i] && k < tensor_count(&r->x.state.master[i]); k++)
            ((float *)r->x.state.master[i].data)[k] += (float)(h * direction[i][k]);
}

static void gradient_is_the_slope_of_the_loss(const char *more) {
    rig r;
    float *direction[64] = {0};
    double slope = 0, h = 2e-3, up, down;
    rig_open(&r, more, false);
    loss_and_gradient(&r);
    model *m = r.x.net;
    assert_true(m->params <= 64);
    tensor *grad = &r.x.state.grad[r.x.state.sum_buffer * m->params];
    for (int i = 0; i < m->params; i++) {  // each tensor's gradient at unit length, so that all of them count
        if (m->param[i].tied >= 0) continue;
        int64_t n = tensor_count(&grad[i]);
        double norm = 0;
        direction[i] = malloc((size_t)n * 4);
        for (int64_t k = 0; k < n; k++) norm += square(((float *)grad[i].data)[k]);
        for (int64_t k = 0; k < n; k++) direction[i][k] = (float)(((float *)grad[i].data)[k] / sqrt(norm));
        slope += sqrt(norm);
    }
    walk(&r, direction, h), up = loss_and_gradient(&r);
    walk(&r, direction, -2 * h), down = loss_and_gradient(&r);
    double measured = (up - down) / (2 * h);
    if (!(fabs(measured - slope) < 5e-3 * slope)) fail_msg("slope of the loss %g, gradient says %g", measured, slope);
    for (int i = 0; i < 64; i++) free(direction[i]);
    rig_close(&r);
}

static void gradient_with_dropout_is_the_slope_of_the_loss(void **state) {
    (void)state;
    gradient_is_the_slope_of_the_loss("[model]\ndropout = 0.3\n[data]\nshuffle = no\n");
    gradient_is_the_slope_of_the_loss("[model]\ndropout = 0.3\nhead_chunks = 5\n[data]\nshuffle = no\n");
}

// --- the same bits ---------------------------------------------------------------------------------------------------

// A width beside the portable one and, maybe, the widest.
#if defined(__x86_64__)
#define OTHER_WIDTH "avx2"
static bool has_other_width(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else  // aarch64
#define OTHER_WIDTH "neon"
static bool has_other_width(void) { return true; }
#endif

static void threads_and_widths_give_the_same_bits(void **state) {
    (void)state;
    static const char *const compute[] = {"fp32", "bf16", "fp16", "bf16\nrounding = stochastic",
                                          "fp16\nrounding = stochastic"};
    static const char *const device[] = {"threads = 1\nsimd = auto", "threads = 2\nsimd = auto",
                                         "threads = 4\nsimd = auto", "threads = 2\nsimd = " OTHER_WIDTH,
                                         "threads = 1\nsimd = portable"};
    for (int p = 0; p < 5; p++) {
        char first[17] = "", hash[17], more[512];
        for (int d = 0; d < 5; d++) {
            if (d == 3 && !has_other_width()) continue;
            snprintf(more, sizeof more, "[device]\n%s\n[precision]\ncompute = %s\n[model]\ndropout = 0.1\n", device[d],
                     compute[p]);
            hash_after(more, 6, hash, NULL);
            if (d == 0) strcpy(first, hash);
            if (strcmp(first, hash) != 0) fail_msg("%s, %s: hash %s, expected %s", compute[p], device[d], hash, first);
        }
    }
}

static void what_should_change_the_bits_does(void **state) {
    (void)state;
    char base[17], other[17];
    hash_after("", 3, base, NULL);
    static const char *const more[] = {"[run]\nseed = 2\n", "[optimizer]\nbeta2 = 0.95\n", "[data]\nshuffle = no\n",
                                       "[model]\ndropout = 0.1\n", "[batch]\nlanes = 1\n"};
    for (int i = 0; i < 5; i++) {
        hash_after(more[i], 3, other, NULL);
        if (strcmp(base, other) == 0) fail_msg("the hash does not see %s", more[i]);
    }
    hash_after("[precision]\ncompute = bf16\n", 3, base, NULL);
    hash_after("[precision]\ncompute = bf16\nrounding = stochastic\n", 3, other, NULL);
    if (strcmp(base, other) == 0) fail_msg("the hash does not see how weights are rounded");
}

// Hashes of a vocabulary of 131 from the time when memory, too, had 131 rows of it.
static void a_vocabulary_that_is_padded_keeps_its_bits(void **state) {
    (void)state;
    static const struct {
        const char *compute, *hash;
    } before[] = {{"fp32", "debf6aa6d1d3846c"}, {"bf16", "e1e6e61fddf1dc5c"}, {"fp16", "cff62d84fd96cdd7"}};
    for (int i = 0; i < 3; i++) {
        char hash[17], more[160];
        snprintf(more, sizeof more,
                 "[model]\nvocab = 131\ndropout = 0.1\n[precision]\ncompute = %s\n[schedule]\ndecay_steps = 1500\n",
                 before[i].compute);
        hash_after(more, 6, hash, NULL);
        if (strcmp(hash, before[i].hash) != 0)
            fail_msg("%s: hash %s, expected %s", before[i].compute, hash, before[i].hash);
    }
}

// --- precision -------------------------------------------------------------------------------------------------------

static void overflow_skips_the_step_and_the_scale_recovers(void **state) {
    (void)state;
    rig r;
    step_state s;
    step_result out;
    char before[17], after[17];
    rig_open(&r, "[precision]\ncompute = fp16\nscale_window = 3\n", true);
    OK(session_step(&r.x, &out));
    assert_true(out.applied);
    OK(state_get_step(&r.x.state, &s));
    assert_true(s.loss_scale == 32768);
    s.loss_scale = 0x1p30f;  // logit gradients beyond 65504
    OK(state_set_step(&r.x.state, &s));
    ckpt_hash(&r.x.state.ckpt, before);
    OK(session_step(&r.x, &out));
    ckpt_hash(&r.x.state.ckpt, after);
    assert_false(out.applied);
    assert_string_equal(before, after);
    assert_int_equal(out.updates, 1);
    assert_int_equal(out.skipped, 1);
    assert_true(out.loss_scale == 0x1p29);
    assert_int_equal(r.x.progress.step, 2);  // its data is consumed
    int tries = 0;
    do OK(session_step(&r.x, &out));
    while (!out.applied && ++tries < 40);
    assert_true(out.applied && tries > 0);
    double settled = out.loss_scale;
    for (int i = 0; i < 2; i++) OK(session_step(&r.x, &out));
    assert_true(out.loss_scale == 2 * settled);  // three good steps since the last change
    rig_close(&r);
}

// Counts the weights, and those that are not their masters rounded to nearest; where differ is NULL there may be none.
static void compare_weights(rig *r, int64_t *differ, int64_t *all) {
    for (int i = 0; i < r->x.net->params; i++) {
        const tensor *w = &r->x.state.w[i];
        tensor copy = *w;
        copy.data = malloc(tensor_bytes(&copy));
        OK(device_ops(r->x.dev)->cast(&(cast_args){.y = &copy, .x = &r->x.state.master[i]}, r->x.s));
        if (!differ) assert_memory_equal(copy.data, w->data, tensor_bytes(&copy));
        for (int64_t k = 0; differ && k < tensor_count(w); k++)
            *differ += ((uint16_t *)copy.data)[k] != ((uint16_t *)w->data)[k];
        if (all) *all += tensor_count(w);
        free(copy.data);
    }
}

static void sixteen_bit_weights_are_the_rounded_masters(void **state) {
    (void)state;
    rig r;
    step_result out;
    rig_open(&r, "[precision]\ncompute = bf16\n", true);
    for (int i = 0; i < 3; i++) OK(session_step(&r.x, &out));
    compare_weights(&r, NULL, NULL);
    rig_close(&r);
}

// A number that lies a share f of the way to the next one goes against the nearest in min(f, 1-f) of all cases: in a
// quarter of them in the mean.
static void stochastic_weights_are_near_their_masters(void **state) {
    (void)state;
    rig r;
    step_result out;
    int64_t differ = 0, all = 0;
    rig_open(&r, "[precision]\ncompute = bf16\nrounding = stochastic\n", true);
    compare_weights(&r, NULL, NULL);  // no update yet: to nearest
    for (int i = 0; i < 3; i++) OK(session_step(&r.x, &out));
    compare_weights(&r, &differ, &all);
    if (fabs((double)differ / (double)all - 0.25) > 0.01)
        fail_msg("%" PRId64 " of %" PRId64 " weights are not the nearest", differ, all);
    for (int i = 0; i < r.x.net->params;
         i++) {  // a master determines its weight: a key is the seed, the row and the number of updates
        int row = r.x.net->param[i].tied >= 0 ? r.x.net->param[i].tied : i;
        const rounding_key key = {.seed = (uint64_t)r.c.run.seed, .site = SITE_ROUND + (uint32_t)row};
        tensor copy = r.x.state.w[i];
        copy.data = malloc(tensor_bytes(&copy));
        OK(device_ops(r.x.dev)->cast_stochastic(
            &(cast_stochastic_args){
                .y = &copy, .x = &r.x.state.master[i], .round = &key, .state = &(step_state){.updates = 3}},
            r.x.s));
        assert_memory_equal(copy.data, r.x.state.w[i].data, tensor_bytes(&copy));
        free(copy.data);
    }
    rig_close(&r);
}

static void a_skipped_step_rounds_nothing_anew(void **state) {
    (void)state;
    rig r;
    step_state s;
    step_result out;
    rig_open(&r, "[precision]\ncompute = fp16\nrounding = stochastic\n", true);
    OK(session_step(&r.x, &out));
    tensor *w = &r.x.state.weights.t;
    void *before = malloc(tensor_bytes(w));
    memcpy(before, w->data, tensor_bytes(w));
    OK(state_get_step(&r.x.state, &s));
    s.loss_scale = 0x1p30f;
    OK(state_set_step(&r.x.state, &s));
    OK(session_step(&r.x, &out));
    assert_false(out.applied);
    assert_memory_equal(before, w->data, tensor_bytes(w));
    OK(session_fetch(&r.x));
    OK(state_publish(&r.x.state));  // as a restart here would
    assert_memory_equal(before, w->data, tensor_bytes(w));
    free(before);
    rig_close(&r);
}

// --- resume ----------------------------------------------------------------------------------------------------------

static void run_to(const char *dir, const char *more, int64_t stop_after, char hash[17], char state_hash[17]) {
    config c;
    session x;
    bool found;
    step_result s;
    monitor m = {0};
    load_config(&c, dir, small_model, more);
    OK(session_open(&x, &c, SESSION_TRAIN, NULL));
    OK(session_resume(&x, &found, &m));
    if (!found) OK(session_init(&x));
    if (x.progress.step < c.run.steps) OK(session_feed(&x, c.run.steps));
    while (x.progress.step < stop_after) OK(session_step(&x, &s));
    OK(session_fetch(&x));
    OK(ckpt_save(x.dir, &x.state.ckpt, &x.progress, 2, NULL));
    ckpt_hash(&x.state.ckpt, hash);
    ckpt_state_hash(&x.state.ckpt, &x.progress, state_hash);
    session_close(&x);
}

static void resume_continues_to_the_same_bits(void **state) {
    (void)state;
    static const char *const more[] = {
        "[run]\nsteps = 8\n", "[run]\nsteps = 8\n[precision]\ncompute = fp16\n[model]\ndropout = 0.2\n",
        "[run]\nsteps = 8\n[precision]\ncompute = bf16\nrounding = stochastic\n[model]\nhead_chunks = 5\n"};
    for (int i = 0; i < 3; i++) {
        char whole[17], whole_state[17], parts[17], parts_state[17];
        char *a = make_dir(), *b = make_dir();
        for (int k = 0; k < 2; k++) write_tokens(k ? a : b, "text.bin", 6000), write_tokens(k ? a : b, "val.bin", 1500);
        run_to(a, more[i], 8, whole, whole_state);
        for (int at = 1; at <= 8; at += 2) run_to(b, more[i], at, parts, parts_state);
        run_to(b, more[i], 8, parts, parts_state);
        assert_string_equal(whole, parts);
        assert_string_equal(whole_state, parts_state);
        drop_dir(a);
        drop_dir(b);
    }
}

// A run that is stopped after every second step: its losses and its weights in use are those of one that is not, and so
// are those of a session that only looks at the checkpoint. The part in the middle offloads: weights are rounded by the
// host too, and read by the step after that.
static void restarts_bring_back_stochastic_weights(void **state) {
    (void)state;
    enum { RUN = 6 };
    static const char settings[] = "[run]\nsteps = 6\n[precision]\ncompute = bf16\nrounding = stochastic\n";
    rig whole, part;
    double loss[RUN], eval[2];
    step_result s;
    int64_t windows;
    bool found;
    char more[256];
    monitor m = {0};
    rig_open(&whole, settings, true);
    rig_open(&part, settings, true);
    for (int i = 0; i < RUN; i++) {
        OK(session_step(&whole.x, &s));
        loss[i] = s.loss;
        OK(session_step(&part.x, &s));
        if (s.loss != loss[i]) fail_msg("step %d: loss %.17g, expected %.17g", i + 1, s.loss, loss[i]);
        if (i % 2 == 0) continue;
        OK(session_fetch(&part.x));
        OK(ckpt_save(part.x.dir, &part.x.state.ckpt, &part.x.progress, 1, NULL));
        session_close(&part.x);
        snprintf(more, sizeof more, "%s[parallel]\noffload = %s\n", settings, i == 1 ? "nvme" : "none");
        load_config(&part.c, part.dir, small_model, more);
        OK(session_open(&part.x, &part.c, SESSION_TRAIN, NULL));
        OK(session_resume(&part.x, &found, &m));
        assert_true(found);
        assert_memory_equal(part.x.state.weights.t.data, whole.x.state.weights.t.data,
                            tensor_bytes(&whole.x.state.weights.t));
        if (i + 1 < RUN) OK(session_feed(&part.x, RUN));
    }
    session_close(&part.x);
    OK(session_open(&part.x, &part.c, SESSION_INFERENCE, NULL));
    OK(session_load(&part.x, NULL));
    OK(eval_loss(&part.x, 0, &eval[0], &windows));
    OK(eval_loss(&whole.x, 0, &eval[1], &windows));
    assert_true(eval[0] == eval[1]);
    rig_close(&part);
    rig_close(&whole);
}

static void resume_refuses_other_settings_and_names_them(void **state) {
    (void)state;
    char hash[17], state_hash[17];
    char *dir = data_dir();
    run_to(dir, "[run]\nsteps = 4\n", 2, hash, state_hash);
    config c;
    session x;
    bool found;
    monitor m = {0};
    load_config(&c, dir, small_model, "[run]\nsteps = 4\n[optimizer]\nbeta2 = 0.5\n");
    OK(session_open(&x, &c, SESSION_TRAIN, NULL));
    assert_int_equal(session_resume(&x, &found, &m), ERR_CONFIG);
    assert_non_null(strstr(err_last()->text, "beta2"));
    assert_non_null(strstr(err_last()->text, "0.5"));
    session_close(&x);
    drop_dir(dir);
}

// A checkpoint of a GPU, which here only says that it is one.
static void resume_refuses_another_device(void **state) {
    (void)state;
    static const char gpu[] = "cuda sm_90 132 SMs cuBLASLt 13.1.0";
    char *dir = make_dir(), path[1100], *events;
    fake_device fake = fake_open(gpu);
    config c;
    session x;
    bool found;
    step_result s;
    size_t n;
    monitor m = {0};
    write_tokens(dir, "text.bin", 6000);
    write_tokens(dir, "val.bin", 1500);
    load_config(&c, dir, small_model, "[run]\nsteps = 4\n");
    OK(session_open(&x, &c, SESSION_TRAIN, NULL));
    OK(session_init(&x));
    OK(session_feed(&x, 4));
    for (int i = 0; i < 2; i++) OK(session_step(&x, &s));
    OK(session_fetch(&x));
    x.state.ckpt.dev = &fake.head;
    OK(ckpt_save(x.dir, &x.state.ckpt, &x.progress, 2, NULL));
    session_close(&x);
    OK(session_open(&x, &c, SESSION_TRAIN, NULL));
    assert_int_equal(session_resume(&x, &found, &m), ERR_CONFIG);
    for (int i = 0; i < 3; i++)
        assert_non_null(strstr(err_last()->text, ((const char *const[]){gpu, "\"cpu\"", "[device] match = no"})[i]));
    OK(session_load(&x, NULL));  // to look at
    assert_int_equal(x.progress.step, 2);
    session_close(&x);
    load_config(&c, dir, small_model, "[run]\nsteps = 4\n[device]\nmatch = no\n");
    OK(session_open(&x, &c, SESSION_TRAIN, NULL));
    OK(monitor_open(&m, &(log_setup){.dir = x.dir, .c = &c, .quiet = true}));
    OK(session_resume(&x, &found, &m));
    assert_true(found);
    OK(session_feed(&x, 4));
    while (x.progress.step < 4) OK(session_step(&x, &s));
    snprintf(path, sizeof path, "%s/events.jsonl", x.dir);
    OK(io_read_file(path, 1 << 20, &events, &n));
    assert_non_null(strstr(events, "\"device\""));
    assert_non_null(strstr(events, gpu));
    assert_non_null(strstr(events, "its bits are others from here on"));
    free(events);
    monitor_close(&m);
    session_close(&x);
    drop_dir(dir);
}

// What a session says of itself in its checkpoints, and takes of others, as the settings say.
static void checkpoints_name_their_build(void **state) {
    (void)state;
    static const struct {
        const char *more;
        bool any_bits, any_device;
    } rows[] = {
        {"", false, false},
        {"[run]\nresume = never\n", false, false},
        {"[run]\nresume = must\n", false, false},
        {"[run]\nresume = other-bits\n", true, false},
        {"[device]\nmatch = no\n", false, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rig r;
        rig_open(&r, rows[i].more, false);
        const ckpt_state *s = &r.x.state.ckpt;
        assert_string_equal(s->sources, version_sources());
        assert_string_equal(s->build, version_text());
        assert_int_equal(s->any_bits, rows[i].any_bits);
        assert_int_equal(s->any_device, rows[i].any_device);
        assert_string_equal(s->data_hash, source_about(r.x.train).hash);
        rig_close(&r);
    }
}

// A checkpoint of another build of the same revision goes on with the same bits, and that it does is an event, once.
static void another_build_goes_on(void **state) {
    (void)state;
    static const char *const others[] = {"", "0123456789abcdef"};
    for (int other = 0; other < 2; other++) {
        rig r;
        bool found;
        step_result s;
        char path[1100], says[300], *events = NULL;
        size_t n;
        monitor m = {0};
        rig_open(&r, "[run]\nsteps = 4\n", true);
        for (int i = 0; i < 2; i++) OK(session_step(&r.x, &s));
        OK(session_fetch(&r.x));
        if (other) strcpy(r.x.state.ckpt.sources, others[other]), strcpy(r.x.state.ckpt.build, "0.1.0 other");
        OK(ckpt_save(r.x.dir, &r.x.state.ckpt, &r.x.progress, 2, NULL));
        session_close(&r.x);
        OK(session_open(&r.x, &r.c, SESSION_TRAIN, NULL));
        OK(monitor_open(&m, &(log_setup){.dir = r.x.dir, .c = &r.c, .quiet = true}));
        OK(session_resume(&r.x, &found, &m));
        assert_true(found && r.x.progress.step == 2);
        monitor_close(&m);
        snprintf(path, sizeof path, "%s/events.jsonl", r.x.dir);
        if (io_read_file(path, 1 << 20, &events, &n) != ERR_OK) events = NULL;
        snprintf(says, sizeof says,
                 "0.1.0 other (sources 0123456789abcdef) wrote the checkpoint, %s (sources %s) goes on", version_text(),
                 version_sources());
        const char *at = events ? strstr(events, "wrote the checkpoint") : NULL;
        assert_int_equal(at != NULL, other);
        if (other && (!strstr(events, says) || !strstr(events, "\"build\"") || strstr(at + 1, "wrote the checkpoint")))
            fail_msg("%s; expected: %s", events, says);
        if (events) assert_null(strstr(events, "other_bits"));
        free(events);
        rig_close(&r);
    }
}

// --- evaluation, sampling, schedules ---------------------------------------------------------------------------------

static void training_lowers_the_validation_loss(void **state) {
    (void)state;
    rig r;
    step_result s;
    double first, last;
    int64_t windows;
    rig_open(&r, "[run]\nsteps = 60\n", true);
    OK(eval_loss(&r.x, 0, &first, &windows));
    assert_int_equal(windows, (1500 - 1) / 24);
    assert_true(fabs(first - log(128)) < 0.1);  // knows nothing yet
    for (int i = 0; i < 60; i++) OK(session_step(&r.x, &s));
    OK(eval_loss(&r.x, 0, &last, &windows));
    assert_true(last < 0.75 * first);
    rig_close(&r);
}

static void evaluation_does_not_touch_training(void **state) {
    (void)state;
    char hash[17], plain[17];
    rig r;
    step_result s;
    double loss;
    int64_t windows;
    hash_after("", 4, plain, NULL);
    rig_open(&r, "", true);
    for (int i = 0; i < 4; i++) {
        OK(session_step(&r.x, &s));
        OK(eval_loss(&r.x, 3, &loss, &windows));
        char *text;
        OK(session_sample(&r.x, "abc", &text));
        free(text);
    }
    ckpt_hash(&r.x.state.ckpt, hash);
    assert_string_equal(hash, plain);
    rig_close(&r);
}

static bool collect(void *ctx, int32_t token) {
    int32_t **next = ctx;
    *(*next)++ = token;
    return true;
}

static void samples_repeat_and_obey_top_k(void **state) {
    (void)state;
    rig r;
    int32_t a[64], b[64], greedy[64], *next;
    rig_open(&r, "", false);
    predict_options o = {.tokens = 64, .temperature = 1.2, .top_k = 0, .seed = 5};
    predict_text text = {.prompt = "7 bottles and", .put = collect, .ctx = &next};
    next = a;
    OK(evaluator_predict(&r.x.evaluator, &o, &text, 1));
    next = b;
    OK(evaluator_predict(&r.x.evaluator, &o, &text, 1));
    assert_memory_equal(a, b, sizeof a);
    o.seed = 6, next = b;
    OK(evaluator_predict(&r.x.evaluator, &o, &text, 1));
    assert_true(memcmp(a, b, sizeof a) != 0);
    o.temperature = 0, next = greedy;
    OK(evaluator_predict(&r.x.evaluator, &o, &text, 1));
    o.temperature = 1.2, o.top_k = 1, next = b;
    OK(evaluator_predict(&r.x.evaluator, &o, &text, 1));
    assert_memory_equal(greedy, b, sizeof b);
    rig_close(&r);
}

static void schedules_have_their_shapes(void **state) {
    (void)state;
    config c = {.optimizer.lr = 2, .schedule.final_fraction = 0.1, .resolved = {.warmup = 10, .decay_steps = 110}};
    for (int type = SCHEDULE_COSINE; type <= SCHEDULE_WSD; type++) {
        c.schedule.type = type;
        assert_true(fabs(schedule_lr(&c, 1) - 0.2) < 1e-15);
        assert_true(schedule_lr(&c, 10) == 2);
        assert_true(fabs(schedule_lr(&c, 110) - (type == SCHEDULE_CONSTANT ? 2 : 0.2)) < 1e-15);
        assert_true(schedule_lr(&c, 5000) == schedule_lr(&c, 110));
        for (int s = 11; s < 120; s++) assert_true(schedule_lr(&c, s) <= schedule_lr(&c, s - 1));
    }
    c.schedule.type = SCHEDULE_COSINE;
    assert_true(fabs(schedule_lr(&c, 60) - 1.1) < 1e-12);
    assert_true(fabs(schedule_lr(&c, 35) - (0.2 + 1.8 * 0.5 * (1 + cos(acos(-1) / 4)))) < 1e-12);
    c.schedule.type = SCHEDULE_LINEAR;
    assert_true(fabs(schedule_lr(&c, 60) - 1.1) < 1e-12);
    c.schedule.type = SCHEDULE_WSD;
    assert_true(schedule_lr(&c, 88) == 2 && schedule_lr(&c, 89) < 2);
    c.resolved.warmup = -1;
    assert_true(schedule_lr(&c, 1) == 2);
}

// --- lanes in codes --------------------------------------------------------------------------------------------------

static const char coded[] = "[reduce]\ncompress = int8\ncompress_back = int8\n";

// A rest is of the gradient itself: another loss scale, a power of two, changes no bit of what follows.
static void what_was_left_out_survives_another_loss_scale(void **state) {
    (void)state;
    char hash[2][17];
    for (int k = 0; k < 2; k++) {
        rig r;
        step_state s;
        step_result out;
        rig_open(&r, coded, true);
        for (int i = 0; i < 4; i++) {
            OK(session_step(&r.x, &out));
            OK(state_get_step(&r.x.state, &s));
            s.loss_scale = k && i % 2 == 0 ? 1024 : 1;
            OK(state_set_step(&r.x.state, &s));
        }
        ckpt_hash(&r.x.state.ckpt, hash[k]);
        rig_close(&r);
    }
    assert_string_equal(hash[0], hash[1]);
}

// A run that goes back to its beginning has the steps that it had from there: nothing is left of what it left out.
static void what_is_forgotten_was_never_left_out(void **state) {
    (void)state;
    char hash[2][17];
    rig r;
    step_result out;
    rig_open(&r, coded, true);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 3; i++) OK(session_step(&r.x, &out));
        OK(session_settle(&r.x));
        ckpt_hash(&r.x.state.ckpt, hash[k]);
        r.x.progress = progress_none();
        OK(state_forget(&r.x.state));
        OK(session_init(&r.x));
        OK(session_feed(&r.x, r.c.run.steps));
    }
    assert_string_equal(hash[0], hash[1]);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_pytorch),
        cmocka_unit_test(losses_agree_with_pytorch),
        cmocka_unit_test(gradient_with_dropout_is_the_slope_of_the_loss),
        cmocka_unit_test(threads_and_widths_give_the_same_bits),
        cmocka_unit_test(what_should_change_the_bits_does),
        cmocka_unit_test(a_vocabulary_that_is_padded_keeps_its_bits),
        cmocka_unit_test(overflow_skips_the_step_and_the_scale_recovers),
        cmocka_unit_test(sixteen_bit_weights_are_the_rounded_masters),
        cmocka_unit_test(stochastic_weights_are_near_their_masters),
        cmocka_unit_test(a_skipped_step_rounds_nothing_anew),
        cmocka_unit_test(resume_continues_to_the_same_bits),
        cmocka_unit_test(restarts_bring_back_stochastic_weights),
        cmocka_unit_test(resume_refuses_other_settings_and_names_them),
        cmocka_unit_test(resume_refuses_another_device),
        cmocka_unit_test(checkpoints_name_their_build),
        cmocka_unit_test(another_build_goes_on),
        cmocka_unit_test(training_lowers_the_validation_loss),
        cmocka_unit_test(evaluation_does_not_touch_training),
        cmocka_unit_test(samples_repeat_and_obey_top_k),
        cmocka_unit_test(schedules_have_their_shapes),
        cmocka_unit_test(what_was_left_out_survives_another_loss_scale),
        cmocka_unit_test(what_is_forgotten_was_never_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
