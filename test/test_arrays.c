// test/test_arrays.c: an optimizer that lockstep does not have, with three arrays and three scalars: nothing outside
// its page knows how many there are, or their names. It is saved, loaded by other ranks that share its arrays, found by
// name, hashed, and refused where a name is another.
#include "test/support/ranks.h"
#include "trainer/session/restore.h"

#include <math.h>

static const char small_model[] =
    "[run]\nsteps = 6\n[data]\nformat = raw16\n[model]\nlayers = 2\nheads = 2\nembed = 24\ncontext = 16\nvocab = 130\n"
    "[batch]\nglobal = 8\nmicro = 2\nlanes = 4\n[optimizer]\nlr = 3e-3\n[schedule]\nwarmup = 2\n[checkpoint]\nkeep = 5\n";

enum { SAVED = 3, STEPS = 6 };

// --- the optimizer ---------------------------------------------------------------------------------------------------

enum { SLOW, FAST, PEAK, ARRAYS };
enum { COUNT, MEAN, POWER, SCALARS };
static const char *const array_names[ARRAYS] = {"slow", "fast", "peak"};
static const optimizer_scalar scalars[SCALARS] = {{"count", {0, 1, 1}, false},  // of updates
                                                  {"mean", {1, 0.75, 0.0625}, false},
                                                  {"power", {1, 0.5, 0}, true}};

static const char *array(const optimizer_keys *o, int k) {
    (void)o;
    return k < ARRAYS ? array_names[k] : NULL;
}

static bool scalar(const optimizer_keys *o, int k, optimizer_scalar *to) {
    (void)o;
    if (k < SCALARS) *to = scalars[k];
    return k < SCALARS;
}

// On a CPU, whose memory is the host's. The masters are what a pass reads.
static err_t update(const ops *on, const optimizer_keys *o, optimizer_piece *p, stream *s) {
    (void)on, (void)o;
    TRY(stream_wait(s));
    float *x = p->master.data, *slow = p->array[SLOW].data, *fast = p->array[FAST].data, *peak = p->array[PEAK].data;
    const float *grad = p->grad.data;
    float size = (float)(p->scalar[MEAN].value / p->scalar[COUNT].value + p->scalar[POWER].value);
    for (int64_t i = 0; i < tensor_count(&p->master) && p->state->apply; i++) {
        float g = grad[i] * p->state->grad_factor;
        slow[i] = 0.75f * slow[i] + 0.25f * g;
        fast[i] = 0.25f * fast[i] + g;
        peak[i] = fmaxf(peak[i], fabsf(g));
        x[i] -= p->state->lr * size * (slow[i] + fast[i]) / (peak[i] + 1e-3f);
    }
    return ERR_OK;
}

static const optimizer three = {array, scalar, update, NULL, NULL, NULL, 1};

// --- a session that trains with it -----------------------------------------------------------------------------------

// Makes state and runner again, with another optimizer.
static err_t use(session *x, const optimizer *with) {
    state_options o = x->state.o;
    step_ranks ranks = {x->ranks, &x->groups, &x->stages};
    o.optimizer = with;
    step_close(&x->runner);
    state_close(&x->state);
    TRY(state_open(&x->state, x->net, x->dev, x->s, x->groups.group[GROUP_DATA], &o));
    TRY(step_open(&x->runner, x->cfg, x->dev, x->s, &ranks, x->net, &x->state));
    x->runner.faults = &x->faults;
    TRY(evaluator_declare(&x->evaluator, &x->runner));
    TRY(state_commit(&x->state));
    TRY(step_commit(&x->runner));
    return session_describe(x);
}

static err_t open_with(session *x, const config *c, const launch *at, const optimizer *with) {
    TRY(session_open(x, c, SESSION_TRAIN, at));
    return use(x, with);
}

typedef struct finding {
    char hash[17], state_hash[17];
    double mean, count, power;
} finding;

static err_t find(session *x, finding *f) {
    TRY(session_settle(x));
    TRY(session_fetch(x));
    const step_scalar *of = x->state.scalar;
    f->count = of[COUNT].value, f->mean = of[MEAN].value, f->power = of[POWER].value;
    TRY(ckpt_hash(&x->state.ckpt, f->hash));
    return ckpt_state_hash(&x->state.ckpt, &x->progress, f->state_hash);
}

static err_t save(session *x) { return ckpt_save(x->dir, &x->state.ckpt, &x->progress, 5, NULL); }

static err_t run_to(session *x, int64_t last) {
    step_result s;
    while (x->progress.step < last) TRY(session_step(x, &s));
    return ERR_OK;
}

static err_t resume(session *x) {
    bool found;
    monitor m = {0};
    TRY(session_resume(x, &found, &m));
    return found ? ERR_OK : err_set(ERR_DATA, "there is no checkpoint");
}

static void expect_same(const char *what, const finding *a, const finding *b) {
    if (strcmp(a->hash, b->hash) || strcmp(a->state_hash, b->state_hash) || a->count != b->count ||
        a->mean != b->mean || a->power != b->power)
        fail_msg("%s: hash %s, state %s, %g %g %g; expected %s, %s, %g %g %g", what, a->hash, a->state_hash, a->count,
                 a->mean, a->power, b->hash, b->state_hash, b->count, b->mean, b->power);
}

// --- other ranks go on with it ---------------------------------------------------------------------------------------

// What two ranks find after loading, and at the end, where they save it.
typedef struct course {
    finding loaded, end;
    bool shared;
} course;

static err_t go_on(const config *c, const launch *at, void *ctx) {
    session x;
    course *k = ctx;
    finding loaded, end;
    TRY(open_with(&x, c, at, &three));
    TRY(resume(&x));
    TRY(find(&x, &loaded));
    TRY(session_feed(&x, STEPS));
    TRY(run_to(&x, STEPS));
    TRY(find(&x, &end));
    TRY(save(&x));
    bool shared = true;
    for (int i = 0; i < x.state.arrays; i++)
        shared = shared && x.state.array[i].sharded && x.state.zero.shard_values < x.state.zero.values;
    if (x.ranks->rank == 0) *k = (course){loaded, end, shared};
    session_close(&x);
    return ERR_OK;
}

static void other_layouts_go_on_with_it(void **state) {
    (void)state;
    static const char *const layouts[] = {"[parallel]\nzero = 2\n", "[parallel]\nzero = 1\noffload = yes\n"};
    course *k = share_memory(sizeof *k);
    for (int i = 0; i < 2; i++) {
        char *dir = rank_dir();
        config one, two;
        session x;
        finding saved, end, again;
        rank_config(&one, dir, small_model, "");
        OK(open_with(&x, &one, NULL, &three));
        OK(session_init(&x));
        OK(session_feed(&x, STEPS));
        OK(run_to(&x, SAVED));
        OK(find(&x, &saved));
        assert_true(saved.count == SAVED && saved.power == 0.125 && saved.mean < 1);
        OK(save(&x));
        OK(run_to(&x, STEPS));
        OK(find(&x, &end));
        session_close(&x);
        assert_string_not_equal(saved.state_hash, end.state_hash);

        rank_config(&two, dir, small_model, layouts[i]);
        run_ranks(layouts[i], &(rank_world){.nodes = 1, .ranks = {2}}, &two, go_on, k);
        assert_true(k->shared);
        expect_same("loaded by two ranks", &k->loaded, &saved);
        expect_same("trained on by two ranks", &k->end, &end);

        OK(open_with(&x, &one, NULL, &three));
        OK(resume(&x));
        assert_int_equal(x.progress.step, STEPS);
        OK(find(&x, &again));
        expect_same("loaded by one rank again", &again, &end);
        session_close(&x);
        drop_dir(dir);
    }
    munmap(k, sizeof *k);
}

// --- by name ---------------------------------------------------------------------------------------------------------

static bool renamed_scalar(const optimizer_keys *o, int k, optimizer_scalar *to) {
    bool more = scalar(o, k, to);
    if (k == MEAN) to->name = "median";
    return more;
}
static bool fewer_scalars(const optimizer_keys *o, int k, optimizer_scalar *to) { return k < MEAN && scalar(o, k, to); }
static const char *renamed_array(const optimizer_keys *o, int k) { return k == PEAK ? "crest" : array(o, k); }
static const char *fewer_arrays(const optimizer_keys *o, int k) { return k < PEAK ? array(o, k) : NULL; }

// The same names in another order: each array and scalar comes to where its name is.
static const char *turned_array(const optimizer_keys *o, int k) { return k < ARRAYS ? array(o, PEAK - k) : NULL; }
static bool turned_scalar(const optimizer_keys *o, int k, optimizer_scalar *to) {
    return k < SCALARS && scalar(o, POWER - k, to);
}

static void by_name_and_no_other(void **state) {
    (void)state;
    static const optimizer others[] = {
        {array, renamed_scalar, update, NULL, NULL, NULL, 1}, {array, fewer_scalars, update, NULL, NULL, NULL, 1},
        {array, NULL, update, NULL, NULL, NULL, 1},           {renamed_array, scalar, update, NULL, NULL, NULL, 1},
        {fewer_arrays, scalar, update, NULL, NULL, NULL, 1},  {NULL, NULL, NULL, NULL, NULL, NULL, 0}};
    char *dir = data_dir(), path[1200], text[1 << 16] = "";
    config c;
    session x;
    finding saved;
    load_config(&c, dir, small_model, "");
    OK(open_with(&x, &c, NULL, &three));
    OK(session_init(&x));
    OK(session_feed(&x, STEPS));
    OK(run_to(&x, 2));
    OK(find(&x, &saved));
    OK(save(&x));
    char hash[17], state_hash[17];
    snprintf(path, sizeof path, "%s/ckpt/step-%08d", x.dir, 2);
    OK(ckpt_hash_dir(path, hash, state_hash));
    assert_string_equal(state_hash, saved.state_hash);
    // what follows is in no checkpoint
    snprintf(path, sizeof path, "%s/ckpt/step-%08d/manifest.json", x.dir, 2);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_non_null(strstr(text, "\"scalars\": {\n  \"count\": 2.0,\n  \"mean\": 0.671875\n }"));
    float *peak = x.state.array[PEAK].t.data, *copy = malloc(tensor_bytes(&x.state.array[PEAK].t));
    assert_non_null(copy);
    memcpy(copy, peak, tensor_bytes(&x.state.array[PEAK].t));
    session_close(&x);

    static const optimizer turned = {turned_array, turned_scalar, update, NULL, NULL, NULL, 1};
    OK(open_with(&x, &c, NULL, &turned));
    OK(resume(&x));
    assert_true(x.state.scalar[POWER - COUNT].value == saved.count &&
                x.state.scalar[POWER - MEAN].value == saved.mean && x.state.scalar[0].value == saved.power);
    assert_memory_equal(x.state.array[0].t.data, copy, tensor_bytes(&x.state.array[0].t));
    free(copy);
    session_close(&x);

    for (const optimizer *o = others; o->update; o++) {
        OK(open_with(&x, &c, NULL, o));
        assert_int_equal(resume(&x), ERR_CONFIG);
        assert_non_null(strstr(err_last()->text, "holds no optimizer state of this optimizer"));
        session_close(&x);
    }
    // as it is, the run's optimizer is adamw
    OK(session_open(&x, &c, SESSION_TRAIN, NULL));
    assert_int_equal(resume(&x), ERR_CONFIG);
    assert_non_null(strstr(err_last()->text, "holds no optimizer state of this optimizer"));
    session_close(&x);
    // who only looks reads the weights
    OK(session_open(&x, &c, SESSION_INFERENCE, NULL));
    OK(session_load(&x, NULL));
    OK(ckpt_hash(&x.state.ckpt, hash));
    assert_string_equal(hash, saved.hash);
    session_close(&x);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_layouts_go_on_with_it),
        cmocka_unit_test(by_name_and_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
