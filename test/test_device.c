// test/test_device.c: the trainer on a GPU, or on the simulated one of `make sim`, against the trainer on this
// machine's processor: the same losses, as closely as the storage type allows, and on one kind of device the same bits.
// Skipped by name where there is no such device.
#include "test/support/golden.h"

#include "gpu/profile.h"
#include "trainer/session/evaluate.h"
#include "trainer/sample.h"

#include <inttypes.h>

static const char tiny_model[] =
    "[data]\nformat = raw16\n[model]\nlayers = 2\nheads = 2\nembed = 32\ncontext = 24\nvocab = 128\n"
    "[batch]\nglobal = 8\nmicro = 2\nlanes = 4\n[optimizer]\nlr = 3e-3\n[schedule]\nwarmup = 4\n[device]\nthreads = 2\n";

typedef struct rig {
    char *dir;
    config c;
    session x;
} rig;

static void rig_open(rig *r, const char *backend, const char *more) {
    char text[1024];
    r->dir = data_dir();
    snprintf(text, sizeof text, "%s[device]\nbackend = %s\n", more, backend);
    load_config(&r->c, r->dir, tiny_model, text);
    OK(session_open(&r->x, &r->c, SESSION_TRAIN, NULL));
    OK(session_init(&r->x));
    OK(session_feed(&r->x, r->c.run.steps));
}

static void rig_close(rig *r) {
    session_close(&r->x);
    drop_dir(r->dir);
}

static void need_gpu(void **state) {
    (void)state;
    device *d;
    if (device_open(&d, &(device_options){.kind = DEVICE_CUDA}) == ERR_OK) device_close(d);
    else if (err_last()->code == ERR_UNAVAILABLE) {
        print_message("skipped: %s\n", err_last()->text);
        skip();
    } else fail_msg("%s", err_last()->text);
}

enum { LONG = 20, SHORT = 5, BRIEF = 2 };

typedef struct course {
    double loss[LONG], norm[LONG], eval;
    char hash[17], state_hash[17];
} course;

static course run_steps(const char *backend, const char *more, int steps) {
    rig r;
    course k = {0};
    int64_t windows;
    rig_open(&r, backend, more);
    for (int i = 0; i < steps; i++) {
        step_result s;
        OK(session_step(&r.x, &s));
        k.loss[i] = s.loss, k.norm[i] = s.grad_norm;
    }
    OK(eval_loss(&r.x, 2, &k.eval, &windows));
    OK(session_fetch(&r.x));
    OK(ckpt_hash(&r.x.state.ckpt, k.hash));
    OK(ckpt_state_hash(&r.x.state.ckpt, &r.x.progress, k.state_hash));
    rig_close(&r);
    return k;
}

// --- against the CPU -------------------------------------------------------------------------------------------------

static void compare(const char *more, int steps, double tolerance) {
    course cpu = run_steps("cpu", more, steps), gpu = run_steps("cuda", more, steps);
    for (int i = 0; i < steps; i++) {
        if (!(fabs(gpu.loss[i] - cpu.loss[i]) <= tolerance * cpu.loss[i]))
            fail_msg("step %d: loss %.9f, on the CPU %.9f", i + 1, gpu.loss[i], cpu.loss[i]);
        if (!(fabs(gpu.norm[i] - cpu.norm[i]) <= 10 * tolerance * cpu.norm[i]))
            fail_msg("step %d: norm %.9f, on the CPU %.9f", i + 1, gpu.norm[i], cpu.norm[i]);
    }
    if (!(fabs(gpu.eval - cpu.eval) <= tolerance * cpu.eval))
        fail_msg("evaluation: %.9f, on the CPU %.9f", gpu.eval, cpu.eval);
}

static void fp32_is_like_the_cpu(void **state) {
    need_gpu(state);
    compare("", LONG, 1e-5);
}
static void fp32_with_dropout_is_like_the_cpu(void **state) {
    need_gpu(state);
    compare("[model]\ndropout = 0.2\n", SHORT, 1e-5);
}

// Storage rounds activations by up to 2^-9 and 2^-12; a loss is a mean over many of them.
static void bf16_is_like_the_cpu(void **state) {
    need_gpu(state);
    compare("[precision]\ncompute = bf16\n[model]\ndropout = 0.1\n", SHORT, 0x1p-9);
}
static void fp16_is_like_the_cpu(void **state) {
    need_gpu(state);
    compare("[precision]\ncompute = fp16\n[model]\ndropout = 0.1\n", SHORT, 0x1p-12);
}

// The keys are the same there and here, so that only masters that differ can fall on another side.
static void stochastic_rounding_is_like_the_cpu(void **state) {
    need_gpu(state);
    compare("[precision]\ncompute = bf16\nrounding = stochastic\n", BRIEF + 1, 0x1p-9);
}

static void a_head_in_chunks_is_like_the_cpu(void **state) {
    need_gpu(state);
    compare("[model]\nhead_chunks = 5\n", SHORT, 1e-5);
}

static void gradient_descent_is_like_the_cpu(void **state) {
    need_gpu(state);
    compare("[optimizer]\ntype = sgd\nlr = 0.05\nmomentum = 0.9\nnesterov = yes\n", BRIEF + 1, 1e-5);
    compare("[optimizer]\ntype = sgd\nlr = 0.05\n[precision]\ncompute = bf16\n", BRIEF, 0x1p-9);
    compare("[optimizer]\ntype = lars\nlr = 0.5\ntrust = 0.02\nmomentum = 0.9\n", BRIEF + 1, 1e-5);
    compare(
        "[optimizer]\ntype = lars\nlr = 0.5\ntrust = 0.02\n[precision]\ncompute = fp16\n[parallel]\noffload = yes\n",
        BRIEF, 0x1p-12);
}

static void fp32_is_like_pytorch(void **state) {
    need_gpu(state);
    rig r = {.dir = make_dir()};
    golden_open(&r.x, &r.c, r.dir, "[device]\nbackend = cuda\n");
    golden_losses(&r.x);
    rig_close(&r);
}

// --- a vocabulary that is odd ----------------------------------------------------------------------------------------

static void expect_zeros(session *x, const char *what, const tensor *t, size_t from, size_t count) {
    size_t each = dtype_bytes(t->type);
    unsigned char *host = malloc(count * each);
    OK(stream_copy(x->s, host, (const char *)t->data + from * each, count * each));
    OK(stream_wait(x->s));
    for (size_t i = 0; i < count * each; i++)
        if (host[i]) fail_msg("the padding of %s is not zero: byte %zu is 0x%02x", what, i, host[i]);
    free(host);
}

// What lies past the 131 rows of 256.
static void expect_padding(session *x) {
    const train_state *t = &x->state;
    int wte = model_find(x->net, "wte.weight"), head = model_find(x->net, "lm_head.weight");
    size_t rows = 131 * 32, count = (256 - 131) * 32;
    expect_zeros(x, "the weights", &t->w[head], rows, count);
    expect_zeros(x, "the masters", &t->master[wte], rows, count);
    assert_int_equal(t->arrays, 2);
    for (int k = 0; k < t->arrays; k++)
        expect_zeros(x, t->array[k].name, &t->array[k].t, t->zero.row_at[wte] + rows, count);
    for (int b = 0; b < t->buffers; b++) {
        expect_zeros(x, "the embedding's gradient", &t->grad[b * x->net->params + wte], rows, count);
        expect_zeros(x, "the head's gradient", &t->grad[b * x->net->params + head], rows, count);
    }
}

// Plans whose shapes say so; the algorithms after them are hexadecimal digits, which may say anything.
static int plans(const session *x, const char *with) {
    char text[DEVICE_PLAN];
    int count = 0;
    for (int i = 0; device_plans_get(x->dev, i, text); i++) {
        text[strcspn(text, ":") + 1 + strcspn(strchr(text, ':') + 1, ":")] = 0;
        count += strstr(text, with) != NULL;
    }
    return count;
}

static void an_odd_vocabulary_is_like_the_cpu_and_aligned(void **state) {
    need_gpu(state);
    static const char odd[] =
        "[model]\nvocab = 131\ndropout = 0.1\n[precision]\ncompute = bf16\n[sample]\ntokens = 4\n";
    static const char *const head[] = {
        // logits, and the gradients of what goes in and of the weight
        "m 48 n 256 k 32 lda 32 ldb 32 bf16 to bf16 ta 0 tb 1 bias 0 split 0 align 16 16 16",
        "m 48 n 32 k 256 lda 256 ldb 32 bf16 to bf16 ta 0 tb 0 bias 0 split 0 align 16 16 16",
        "m 256 n 32 k 48 lda 256 ldb 32 bf16 to fp32 ta 1 tb 0 bias 0 split 1 align 16 16 16"};
    course cpu = run_steps("cpu", odd, SHORT);
    rig r;
    char *text;
    rig_open(&r, "cuda", odd);
    for (int i = 0; i < SHORT; i++) {
        step_result s;
        OK(session_step(&r.x, &s));
        if (!(fabs(s.loss - cpu.loss[i]) <= 0x1p-9 * cpu.loss[i]))
            fail_msg("step %d: loss %.9f, on the CPU %.9f", i + 1, s.loss, cpu.loss[i]);
    }
    for (int i = 0; i < 3; i++)
        if (plans(&r.x, head[i]) != 1) fail_msg("%d plans say %s", plans(&r.x, head[i]), head[i]);
    assert_int_equal(plans(&r.x, "131"), 0);
    expect_padding(&r.x);
    OK(session_sample(&r.x, "7 bottles", &text));
    free(text);
    rig_close(&r);
}

// --- bits ------------------------------------------------------------------------------------------------------------

static void same(const course *a, const course *b, const char *what) {
    if (strcmp(a->hash, b->hash) || strcmp(a->state_hash, b->state_hash))
        fail_msg("%s: hashes %s %s, expected %s %s", what, b->hash, b->state_hash, a->hash, a->state_hash);
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
}

static void the_same_again(void **state) {
    need_gpu(state);
    static const char *const types[] = {"fp32", "bf16", "fp16"};
    for (int i = 0; i < 3; i++) {
        char more[128];
        snprintf(more, sizeof more, "[model]\ndropout = 0.1\n[precision]\ncompute = %s\n", types[i]);
        course one = run_steps("cuda", more, SHORT), two = run_steps("cuda", more, SHORT);
        same(&one, &two, types[i]);
    }
}

// Ratios that come to the host, squares that go to the device.
static const char lars[] =
    "[optimizer]\ntype = lars\nlr = 0.5\ntrust = 0.02\nmomentum = 0.9\n[precision]\ncompute = bf16\n";

static void lars_is_the_same(const char *what, const char *more) {
    char other[512];
    snprintf(other, sizeof other, "%s%s", lars, more);
    course one = run_steps("cuda", lars, SHORT), two = run_steps("cuda", other, SHORT);
    same(&one, &two, what);
}

// The CPU updates host memory with the bits that the device makes of its own.
static void offload_changes_nothing(void **state) {
    need_gpu(state);
    course one = run_steps("cuda", "[precision]\ncompute = bf16\n", SHORT),
           two = run_steps("cuda", "[precision]\ncompute = bf16\n[parallel]\noffload = yes\n", SHORT);
    same(&one, &two, "offload");
    two = run_steps("cuda", "[precision]\ncompute = bf16\n[parallel]\noffload = nvme\n", SHORT);
    same(&one, &two, "offload to files");
    one = run_steps("cuda", "[precision]\ncompute = fp16\nrounding = stochastic\n", BRIEF);
    two = run_steps("cuda", "[precision]\ncompute = fp16\nrounding = stochastic\n[parallel]\noffload = yes\n", BRIEF);
    same(&one, &two, "offload with stochastic rounding");
    lars_is_the_same("offload with lars", "[parallel]\noffload = yes\n");
    lars_is_the_same("offload to files with lars", "[parallel]\noffload = nvme\n");
}

// What is computed again is part of the recording, where there is one; each mode runs both ways. Two steps are eight
// micro-batches.
static void recomputation_changes_nothing(void **state) {
    need_gpu(state);
    static const struct {
        const char *type, *mode, *graph;
    } kinds[] = {{"fp32", "none", "yes"}, {"fp32", "selective", "yes"}, {"fp32", "block", "no"},
                 {"bf16", "none", "no"},  {"bf16", "selective", "no"},  {"bf16", "block", "yes"}};
    course kept = {0};
    for (int i = 0; i < 6; i++) {
        char more[256];
        snprintf(
            more, sizeof more,
            "[model]\nlayers = 3\ndropout = 0.1\nhead_chunks = %d\n[precision]\ncompute = %s\n[parallel]\nrecompute = %s\n"
            "[device]\ngraph = %s\n",
            i < 3 ? 1 : 5, kinds[i].type, kinds[i].mode, kinds[i].graph);
        course k = run_steps("cuda", more, 2);
        if (i % 3 == 0) kept = k;
        same(&kept, &k, more);
    }
}

static void recordings_change_nothing(void **state) {
    need_gpu(state);
    course one =
        run_steps("cuda", "[model]\ndropout = 0.1\n[precision]\ncompute = fp16\nrounding = stochastic\n", SHORT);
    course two = run_steps(
        "cuda", "[model]\ndropout = 0.1\n[precision]\ncompute = fp16\nrounding = stochastic\n[device]\ngraph = no\n",
        SHORT);
    same(&one, &two, "graph");
    lars_is_the_same("graph with lars", "[device]\ngraph = no\n");
}

// Whatever happens between steps and to them, what was recorded in the first ones is still what is to be queued:
// evaluations, overflows, a checkpoint.
typedef struct eventful {
    double loss[LONG], eval[2];
    int64_t skipped;
    char hash[2][17];
} eventful;

static void hash_now(session *x, char hash[17]) {
    OK(session_fetch(x));
    OK(ckpt_state_hash(&x->state.ckpt, &x->progress, hash));
}

static err_t steps_ahead(session *x, int count, double *loss) {
    step_result s;
    for (int i = 0; i < count; i++) {
        TRY(session_queue(x));
        if (x->runner.uncollected < 2 && i + 1 < count) continue;
        TRY(session_collect(x, &s));
        loss[s.step - 1] = s.loss;
    }
    while (x->runner.uncollected) {
        TRY(session_collect(x, &s));
        loss[s.step - 1] = s.loss;
    }
    return ERR_OK;
}

static eventful run_eventful(const char *more) {
    rig r;
    eventful e = {.skipped = 0};
    int64_t windows;
    step_state now;
    rig_open(&r, "cuda", more);
    OK(steps_ahead(&r.x, 4, e.loss));
    OK(eval_loss(&r.x, 2, &e.eval[0], &windows));
    OK(steps_ahead(&r.x, 1, e.loss));
    OK(state_get_step(&r.x.state, &now));
    now.loss_scale = 0x1p22f;  // logit gradients beyond 65504
    OK(state_set_step(&r.x.state, &now));
    OK(steps_ahead(&r.x, 3, e.loss));
    OK(state_get_step(&r.x.state, &now));
    e.skipped = now.skipped;
    hash_now(&r.x, e.hash[0]);
    OK(ckpt_save(r.x.dir, &r.x.state.ckpt, &r.x.progress, 1, NULL));
    OK(steps_ahead(&r.x, 2, e.loss));
    hash_now(&r.x, e.hash[1]);
    OK(eval_loss(&r.x, 2, &e.eval[1], &windows));
    rig_close(&r);
    return e;
}

static void plain_and_recorded(char plain[256], char graph[256], const char *more) {
    snprintf(graph, 256,
             "[batch]\nglobal = 6\nmicro = 1\nlanes = 2\n[model]\ndropout = 0.1\n[precision]\ncompute = fp16\n%s",
             more);
    snprintf(plain, 256, "%s[device]\ngraph = no\n", graph);
}

static void recordings_outlast_what_happens(void **state) {
    need_gpu(state);
    char plain[256], graph[256];
    plain_and_recorded(plain, graph, "");
    eventful one = run_eventful(plain), two = run_eventful(graph);
    if (one.skipped < 1 || one.skipped > 2) fail_msg("%" PRId64 " steps were skipped, expected 1 or 2", one.skipped);
    assert_memory_equal(&one, &two, sizeof one);
}

// A step without data, with another one queued after it, leaves the weights of the step before.
static void void_steps_are_void_when_recorded(void **state) {
    need_gpu(state);
    char plain[256], graph[256], hash[3][17] = {0};
    int64_t last[2];
    plain_and_recorded(plain, graph, "[run]\nfaults = read@40x1000\n[data]\nretry = 0\n");
    for (int i = 0; i < 3; i++) {
        rig r;
        double loss[2 * LONG];
        rig_open(&r, "cuda", i == 1 ? graph : plain);
        if (i < 2) assert_int_equal(steps_ahead(&r.x, 2 * LONG, loss), ERR_IO);
        if (i < 2) last[i] = r.x.progress.step;
        else OK(steps_ahead(&r.x, (int)last[0], loss));
        hash_now(&r.x, hash[i]);
        rig_close(&r);
    }
    assert_true(last[0] == last[1] && last[0] > 4);
    assert_string_equal(hash[0], hash[2]);
    assert_string_equal(hash[1], hash[2]);
}

static void waiting_changes_nothing(void **state) {
    need_gpu(state);
    course one = run_steps("cuda", "", SHORT), two = run_steps("cuda", "[device]\ncheck = yes\n", SHORT);
    same(&one, &two, "check");
}

// --- what the host does ----------------------------------------------------------------------------------------------

extern long sim_submitted(const char *what) __attribute__((weak));  // test/sim/cudart.h; not there on a GPU

typedef struct submissions {
    long kernels, graphs, copies, sets, others;
} submissions;

static submissions submitted_so_far(void) {
    return (submissions){sim_submitted("kernels"), sim_submitted("graphs"), sim_submitted("copies"),
                         sim_submitted("sets"), sim_submitted("others")};
}

// Of the sixth step.
static submissions submitted_in_a_step(const char *more) {
    rig r;
    step_result s;
    submissions before = {0}, after;
    rig_open(&r, "cuda", more);
    for (int i = 0; i < 6; i++) {
        before = submitted_so_far();
        OK(session_step(&r.x, &s));
    }
    after = submitted_so_far();
    rig_close(&r);
    return (submissions){after.kernels - before.kernels, after.graphs - before.graphs, after.copies - before.copies,
                         after.sets - before.sets, after.others - before.others};
}

static void is_submitted(const char *what, long found, long expected) {
    if (found != expected) fail_msg("%s that the host submits for a step: %ld, expected %ld", what, found, expected);
}

// Every micro-batch is one graph, of four copies (tokens, targets, where dropout is, losses), and six events or waits
// for events: its data came, its place is free again, and how long that took. The update is two more, of one copy (this
// rank's report), and three events.
static void a_step_is_a_few_submissions(void **state) {
    need_gpu(state);
    submissions one = submitted_in_a_step("[model]\ndropout = 0.1\n");
    is_submitted("graphs", one.graphs, 4 + 2);
    is_submitted("kernels", one.kernels, 0);
    is_submitted("copies", one.copies, 4 * 4 + 1);
    is_submitted("sets", one.sets, 1);  // what the ranks share: the lanes' buffers are overwritten
    is_submitted("events", one.others, 6 * 4 + 3);
    // three micro-batches, in two places that change from step to step
    submissions two = submitted_in_a_step("[batch]\nglobal = 6\nlanes = 1\n");
    is_submitted("graphs", two.graphs, 3 + 2);
    is_submitted("kernels", two.kernels, 0);
    is_submitted("copies", two.copies, 4 * 3 + 1);
    is_submitted("sets", two.sets, 1);
    is_submitted("events", two.others, 6 * 3 + 3);
    submissions plain = submitted_in_a_step("[device]\ngraph = no\n");
    is_submitted("graphs", plain.graphs, 0);
    assert_true(plain.kernels > 100);
}

// --- times -----------------------------------------------------------------------------------------------------------

static double compute_ms(const step_result *s) { return s->reports[REPORT_COMPUTE_MS]; }

// They are those of two steps before, and there is none in the first two; evaluations are nobody's. On a CPU every step
// has its own.
static void times_come_two_steps_late(void **state) {
    need_gpu(state);
    static const char *const backends[] = {"cpu", "cuda"};
    for (int i = 0; i < 2; i++) {
        rig r;
        step_result s;
        double loss;
        int64_t windows;
        rig_open(&r, backends[i], "");
        for (int k = 1; k <= 4; k++) {
            OK(session_step(&r.x, &s));
            if (i == 1 && k <= 2) assert_true(compute_ms(&s) == 0);
            else assert_true(compute_ms(&s) > 0 && compute_ms(&s) < 1e6);
            assert_true(s.reports[REPORT_WAIT_MS] == 0 || i == 0);
            assert_true(s.reports[REPORT_BUSY_MS] == 0);
            OK(eval_loss(&r.x, 1, &loss, &windows));
        }
        rig_close(&r);
    }
}

static void timed_events_tell_when_they_were_reached(void **state) {
    need_gpu(state);
    for (int i = 0; i < 2; i++) {
        device *d;
        stream *s[2];
        event *a, *b, *plain;
        double ms = -1;
        OK(device_open(&d, &(device_options){.kind = i ? DEVICE_CUDA : DEVICE_CPU, .threads = 1}));
        OK(stream_open(d, &s[0]));
        OK(stream_open_queue(d, &s[1]));
        OK(event_open_timed(d, &a));
        OK(event_open_timed(d, &b));
        OK(event_open(d, &plain));
        assert_int_equal(event_elapsed(a, b, &ms), ERR_INTERNAL);
        for (int k = 0; k < 2; k++) {
            OK(event_record(a, s[k]));
            assert_int_equal(k ? ERR_OK : event_elapsed(a, b, &ms), k ? ERR_OK : ERR_INTERNAL);
            OK(stream_wait_event(s[1 - k], a));
            OK(event_record(b, s[1 - k]));
            OK(event_record(plain, s[1 - k]));
            OK(event_wait(b));
            OK(event_elapsed(a, b, &ms));
            assert_true(ms >= 0 && ms < 1e6);
            assert_int_equal(event_elapsed(a, plain, &ms), ERR_INTERNAL);
        }
        if (device_records(d)) {
            recording *none;
            OK(stream_record_begin(s[0]));
            assert_int_equal(event_record(a, s[0]), ERR_INTERNAL);
            OK(stream_record_end(s[0], &none));
            recording_close(none);
        }
        event_close(a), event_close(b), event_close(plain);
        stream_close(s[0]), stream_close(s[1]);
        device_close(d);
    }
}

// --- checkpoints -----------------------------------------------------------------------------------------------------

static void goes_on(const char *more, int steps) {
    course whole = run_steps("cuda", more, 2 * steps);
    rig r;
    step_result s;
    char hash[17];
    rig_open(&r, "cuda", more);
    for (int i = 0; i < steps; i++) OK(session_step(&r.x, &s));
    OK(session_fetch(&r.x));
    OK(ckpt_save(r.x.dir, &r.x.state.ckpt, &r.x.progress, 1, NULL));
    session_close(&r.x);
    bool found;
    monitor m = {0};
    OK(session_open(&r.x, &r.c, SESSION_TRAIN, NULL));
    OK(session_resume(&r.x, &found, &m));
    assert_true(found);
    OK(session_feed(&r.x, r.c.run.steps));
    for (int i = steps; i < 2 * steps; i++) {
        OK(session_step(&r.x, &s));
        assert_true(s.loss == whole.loss[i]);
    }
    OK(session_fetch(&r.x));
    OK(ckpt_state_hash(&r.x.state.ckpt, &r.x.progress, hash));
    assert_string_equal(hash, whole.state_hash);
    rig_close(&r);
}

static void a_checkpoint_goes_on(void **state) {
    need_gpu(state);
    goes_on("[model]\ndropout = 0.1\n", SHORT);
    goes_on("[precision]\ncompute = bf16\nrounding = stochastic\n", BRIEF);
}

// Each call is measured by the device's own clock and computes what it would; nothing is recorded.
static void a_profile_measures_every_call(void **state) {
    need_gpu(state);
    enum { N = 4096 };
    float host[N];
    device *d;
    stream *s;
    profile_line line[PROFILE_LINES];
    OK(device_open(&d, &(device_options){.kind = DEVICE_CUDA, .profile = true}));
    OK(stream_open(d, &s));
    assert_false(device_records(d));
    tensor x = {.type = FP32, .dims = 1, .size = {N, 1, 1, 1}};
    OK(device_alloc(d, MEMORY_DEVICE, sizeof host, &x.data));
    for (int i = 0; i < N; i++) host[i] = (float)i;
    OK(stream_copy(s, x.data, host, sizeof host));
    for (int k = 0; k < 3; k++) OK(device_ops(d)->add(&(add_args){.y = &x, .a = &x, .b = &x}, s));
    OK(stream_copy(s, host, x.data, sizeof host));
    OK(stream_wait(s));
    for (int i = 0; i < N; i++) assert_true(host[i] == 8.0f * (float)i);
    assert_int_equal(profile_read(device_profile(d), line), 2);
    for (int k = 0; k < 2; k++) {
        bool sums = strcmp(line[k].op, "add") == 0;
        assert_string_equal(line[k].op, sums ? "add" : "copy");
        assert_int_equal(line[k].calls, sums ? 3 : 2);
        assert_true(line[k].bytes == (sums ? 3 * 3 : 2 * 2) * (double)sizeof host);
        assert_true(line[k].seconds >= 0 && line[k].seconds < 60);
    }
    device_free(d, MEMORY_DEVICE, x.data, sizeof host);
    stream_close(s);
    device_close(d);
}

// Which sensors there are is the machine's business; what they say must be possible. The simulated GPU has none.
static void sensors_say_what_can_be(void **state) {
    need_gpu(state);
    device *d;
    device_sensors s[2];
    OK(device_open(&d, &(device_options){.kind = DEVICE_CUDA}));
    err_t rc = device_sense(d, &s[0]);
    if (rc != ERR_OK) {
        assert_int_equal(rc, ERR_UNAVAILABLE);
        print_message("no sensors: %s\n", err_last()->text);
        device_close(d);
        return;
    }
    OK(device_sense(d, &s[1]));
    for (int k = 0; k < 2; k++) {
        print_message("%.1f W, %.0f C, %.0f MHz, %.3f J, limited %u\n", s[k].watts, s[k].celsius, s[k].mhz, s[k].joules,
                      s[k].limited);
        assert_false(s[k].watts <= 0 || s[k].watts > 3000 || s[k].celsius <= 0 || s[k].celsius > 120);
        assert_false(s[k].mhz <= 0 || s[k].mhz > 5000);
    }
    assert_false(s[1].joules < s[0].joules);
    device_close(d);
}

// test_device [PATTERN]: the tests whose name it matches, as in a shell.
int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_is_like_the_cpu),
        cmocka_unit_test(fp32_with_dropout_is_like_the_cpu),
        cmocka_unit_test(bf16_is_like_the_cpu),
        cmocka_unit_test(fp16_is_like_the_cpu),
        cmocka_unit_test(stochastic_rounding_is_like_the_cpu),
        cmocka_unit_test(a_head_in_chunks_is_like_the_cpu),
        cmocka_unit_test(gradient_descent_is_like_the_cpu),
        cmocka_unit_test(fp32_is_like_pytorch),
        cmocka_unit_test(an_odd_vocabulary_is_like_the_cpu_and_aligned),
        cmocka_unit_test(the_same_again),
        cmocka_unit_test(offload_changes_nothing),
        cmocka_unit_test(recomputation_changes_nothing),
        cmocka_unit_test(recordings_change_nothing),
        cmocka_unit_test(recordings_outlast_what_happens),
        cmocka_unit_test(void_steps_are_void_when_recorded),
        cmocka_unit_test(waiting_changes_nothing),
        cmocka_unit_test(times_come_two_steps_late),
        cmocka_unit_test(timed_events_tell_when_they_were_reached),
        cmocka_unit_test(a_checkpoint_goes_on),
        cmocka_unit_test(a_profile_measures_every_call),
        cmocka_unit_test(sensors_say_what_can_be),
    };
    const struct CMUnitTest only_simulated[] = {cmocka_unit_test(a_step_is_a_few_submissions)};
    device *d;
    if (device_open(&d, &(device_options){.kind = DEVICE_CUDA}) == ERR_OK) device_close(d);
    else if (getenv("LOCKSTEP_NEED_GPU")) {
        fprintf(stderr, "test_device: %s\n", err_last()->text);
        return ERR_UNAVAILABLE;
    }
    int failed = sim_submitted ? cmocka_run_group_tests(only_simulated, NULL, NULL) : 0;
    return cmocka_run_group_tests(tests, NULL, NULL) + failed;
}
