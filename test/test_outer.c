// test/test_outer.c: islands that mix their weights every so many steps ([outer]). What they do is what forty lines say
// that mix the weights of plain runs; and whatever the layout of an island, its bits are the same, also after a
// checkpoint that other ranks continue.
#include "test/support/idx.h"
#include "test/support/ranks.h"
#include "trainer/session/restore.h"

#include <inttypes.h>
#include <math.h>

enum { STEPS = 6, EVERY = 3, EARLY = 4, MOST = 8 };

// --- forty lines -----------------------------------------------------------------------------------------------------

enum { ISLANDS = 2, GLOBAL = 8, SIDE = 10, PIXELS = SIDE * SIDE, ELEMENTS = 1 << 16 };

// Its first matrix has two chunks. Samples are read in their order, and gradients are not clipped: an island knows no
// norm but that of all of them.
static const char perceptron[] =
    "[model]\ntype = mlp\ninputs = 100\nhidden = 200\nclasses = 7\n[optimizer]\nlr = 3e-3\ngrad_clip = 0\n"
    "[data]\nshuffle = no\nval =\nholdout = 8\n[eval]\nevery = 0\n[schedule]\nwarmup = 2\n[sample]\ntokens = 0\n[device]\nthreads = 1\n"
    "[run]\nsteps = 6\n[checkpoint]\nevery = 6\n";

// Images `first`, first + 1, ... of each step: `each` of GLOBAL.
static void write_images(const char *dir, const char *name, int first, int each) {
    enum { IMAGES = GLOBAL * (STEPS + 1) };  // the last step's are held out
    static uint8_t pixels[IMAGES * PIXELS], label[IMAGES];
    char path[1024];
    uint32_t n = 0;
    for (int k = 0; k < IMAGES; k++) {
        bool out = k >= GLOBAL * STEPS;
        if (!out && (k % GLOBAL < first || k % GLOBAL >= first + each)) continue;
        label[n] = (uint8_t)(k * 5 % 7);
        for (int i = 0; i < PIXELS; i++)
            pixels[n * PIXELS + (uint32_t)i] = (uint8_t)(k * 37 + i * i * 11 + (i / 14 == label[n]) * 90);
        n++;
    }
    snprintf(path, sizeof path, "%s/%s-images", dir, name);
    write_idx(path, 3, (uint32_t[]){n, SIDE, SIDE}, pixels, false);
    snprintf(path, sizeof path, "%s/%s-labels", dir, name);
    write_idx(path, 1, (uint32_t[]){n}, label, false);
}

static void perceptron_config(config *c, const char *dir, const char *files, int global, int lanes, const char *more) {
    char all[1024];
    snprintf(all, sizeof all,
             "[data]\ntrain = %s/%s-images %s/%s-labels\n[batch]\nglobal = %d\nlanes = %d\nmicro = 1\n%s", dir, files,
             dir, files, global, lanes, more);
    rank_config(c, dir, perceptron, all);
}

typedef struct kind {
    const char *name, *more;
    bool nesterov, codes, own;
    bool apart;  // by FRAGMENTS
    int overlap;
    float keep;
} kind;

#define FRAGMENTS "fragments = fc.0.*:2 *.1.weight:3+1\n"

// What islands have beside their weights: rest[ISLANDS] is the owner's.
typedef struct beside {
    float anchor[ELEMENTS], momentum[ELEMENTS], rest[ISLANDS + 1][ELEMENTS], flight[ELEMENTS];
} beside;

static void step_outer(beside *of, int64_t i, float delta, bool nesterov) {
    float *momentum = &of->momentum[i], *anchor = &of->anchor[i];
    if (nesterov) *momentum = fmaf(0.9f, *momentum, delta);
    *anchor = nesterov ? fmaf(-0.7f, fmaf(0.9f, *momentum, delta), *anchor) : *anchor - delta;
}

// What optimizers keep becomes the mean of it, and so do the masters, or the anchor goes that way.
static void mix_islands(session x[ISLANDS], beside *of, const kind *how) {
    for (int k = how->codes ? 1 : 0; k < (how->own ? 1 : 3); k++) {
        float *a = state_store(&x[0].state, k)->t.data, *b = state_store(&x[1].state, k)->t.data;
        int64_t n = tensor_count(&state_store(&x[0].state, k)->t);
        assert_true(n <= ELEMENTS);
        for (int64_t i = 0; i < n; i++) {
            float mean = (a[i] + b[i]) / 2;
            if (k == 0 && how->nesterov) step_outer(of, i, of->anchor[i] - mean, true), mean = of->anchor[i];
            a[i] = b[i] = mean;
        }
    }
}

// v and what was left of it before becomes what its codes of 8 bits say, chunk by chunk.
static void code(float *v, float *rest, int64_t n) {
    for (int64_t first = 0; first < n; first += CHUNK) {
        int64_t end = first + CHUNK < n ? first + CHUNK : n;
        float most = 0;
        for (int64_t i = first; i < end; i++) v[i] += rest[i], most = fmaxf(most, fabsf(v[i]));
        assert_true(most > CODEC_LEAST);
        float scale = most / 127, back = 127 / most;
        for (int64_t i = first; i < end; i++) {
            float says = rintf(v[i] * back) * scale;
            rest[i] = v[i] - says, v[i] = says;
        }
    }
}

// Matrices only.
static void mix_codes(session x[ISLANDS], beside *of, const kind *how) {
    static float delta[ISLANDS][ELEMENTS];
    const train_state *t = &x[0].state;
    for (int row = 0; row < t->net->params; row++) {
        size_t at = t->zero.row_at[row];
        int64_t n = tensor_count(&t->master[row]);
        for (int k = 0; k < ISLANDS; k++) {
            const float *mine = x[k].state.master[row].data;
            for (int64_t i = 0; i < n; i++) delta[k][i] = of->anchor[at + (size_t)i] - mine[i];
            if (t->master[row].dims > 1) code(delta[k], of->rest[k] + at, n);
        }
        for (int64_t i = 0; i < n; i++) delta[0][i] += delta[1][i];
        if (t->master[row].dims > 1) code(delta[0], of->rest[ISLANDS] + at, n);
        for (int64_t i = 0; i < n; i++) {
            step_outer(of, (int64_t)at + i, delta[0][i] / 2, how->nesterov);
            for (int k = 0; k < ISLANDS; k++) ((float *)x[k].state.master[row].data)[i] = of->anchor[at + (size_t)i];
        }
    }
}

// As FRAGMENTS says; what it does not name, after every EVERY steps.
static bool is_due(const char *name, int step) {
    if (step < 1) return false;
    if (strncmp(name, "fc.0.", 5) == 0) return step % 2 == 0;
    return strcmp(name, "fc.1.weight") == 0 ? step % 3 == 1 : step % EVERY == 0;
}

static void land(session x[ISLANDS], beside *of, const kind *how, int row, int64_t i) {
    size_t at = x[0].state.zero.row_at[row] + (size_t)i;
    step_outer(of, (int64_t)at, of->flight[at], how->nesterov);
    for (int k = 0; k < ISLANDS; k++) {
        float *w = (float *)x[k].state.master[row].data + i;
        *w = how->overlap ? fmaf(-(1 - how->keep), *w - of->anchor[at], *w) : of->anchor[at];
    }
}

static void mix_fragments(session x[ISLANDS], beside *of, const kind *how, int step) {
    static float delta[ISLANDS][ELEMENTS];
    const train_state *t = &x[0].state;
    for (int row = 0; row < t->net->params; row++) {
        const char *name = t->net->param[row].name;
        size_t at = t->zero.row_at[row];
        int64_t n = tensor_count(&t->master[row]);
        bool coded = how->codes && t->master[row].dims > 1, leaves = is_due(name, step);
        for (int64_t i = 0; i < n && how->overlap && is_due(name, step - how->overlap); i++) land(x, of, how, row, i);
        if (!leaves) continue;
        for (int k = 0; k < ISLANDS; k++) {
            const float *mine = x[k].state.master[row].data;
            for (int64_t i = 0; i < n; i++) delta[k][i] = of->anchor[at + (size_t)i] - mine[i];
            if (coded) code(delta[k], of->rest[k] + at, n);
        }
        for (int64_t i = 0; i < n; i++) delta[0][i] += delta[1][i];
        if (coded) code(delta[0], of->rest[ISLANDS] + at, n);
        for (int64_t i = 0; i < n; i++) of->flight[at + (size_t)i] = delta[0][i] / 2;
        for (int64_t i = 0; i < n && !how->overlap; i++) land(x, of, how, row, i);
        for (int k = 1; k < (how->own ? 1 : 3); k++)
            for (int64_t i = 0; i < n; i++) {
                float *a = (float *)state_store(&x[0].state, k)->t.data + at + i,
                      *b = (float *)state_store(&x[1].state, k)->t.data + at + i;
                *a = *b = (*a + *b) / 2;
            }
    }
}

// The loss of the mean of their weights.
static double loss_of_mean(session x[ISLANDS], float *mean) {
    int64_t n = tensor_count(&x[0].state.masters.t), samples;
    float *a = x[0].state.masters.t.data, *b = x[1].state.masters.t.data, *own = malloc((size_t)n * sizeof *own);
    double loss;
    assert_non_null(own);
    memcpy(own, a, (size_t)n * sizeof *own);
    for (int64_t i = 0; i < n; i++) a[i] = mean[i] = (a[i] + b[i]) / 2;
    OK(eval_loss(&x[0], 0, &loss, &samples));
    memcpy(a, own, (size_t)n * sizeof *own);
    free(own);
    return loss;
}

// What a run ends with: each island's masters, the mean, and its loss after the last step and after one before.
typedef struct ending {
    float masters[ISLANDS][ELEMENTS], mean[ISLANDS][ELEMENTS];
    double early[ISLANDS], loss[ISLANDS];
} ending;

// Plain runs of half the samples each, beside each other.
static void run_plainly(const char *dir, const kind *how, ending *out, int64_t *count) {
    static const char *const files[ISLANDS] = {"first", "second"};
    session x[ISLANDS];
    config c[ISLANDS];
    beside *of = calloc(1, sizeof *of);
    assert_non_null(of);
    for (int k = 0; k < ISLANDS; k++) {
        perceptron_config(&c[k], dir, files[k], GLOBAL / ISLANDS, 2, "");
        OK(session_open(&x[k], &c[k], SESSION_TRAIN, NULL));
        OK(session_init(&x[k]));
        OK(session_feed(&x[k], STEPS));
    }
    const tensor *w = &x[0].state.masters.t;
    *count = tensor_count(w);
    memcpy(of->anchor, w->data, (size_t)*count * sizeof *of->anchor);
    for (int step = 1; step <= STEPS; step++) {
        step_result s;
        for (int k = 0; k < ISLANDS; k++) OK(session_step(&x[k], &s));
        for (int k = 0; k < ISLANDS; k++) OK(session_settle(&x[k]));
        if (how->apart) mix_fragments(x, of, how, step);
        else if (step % EVERY == 0) mix_islands(x, of, how);
        if (step % EVERY == 0 && how->codes && !how->apart) mix_codes(x, of, how);
        if (step == EVERY - 1 && !how->apart) assert_memory_not_equal(w->data, x[1].state.masters.t.data, 100);
        if (step == EARLY) out->early[0] = loss_of_mean(x, out->mean[0]);
    }
    out->loss[0] = loss_of_mean(x, out->mean[0]);
    for (int k = 0; k < ISLANDS; k++)
        memcpy(out->masters[k], x[k].state.masters.t.data, (size_t)*count * sizeof(float));
    for (int k = 0; k < ISLANDS; k++) session_close(&x[k]);
    free(of);
}

// Evaluated between two boundaries or not, islands go on as if they had not been.
static err_t play(session *x, int rank, ending *to) {
    step_result s;
    int64_t samples;
    TRY(session_init(x));
    TRY(session_feed(x, STEPS));
    while (x->progress.step < STEPS) {
        TRY(session_step(x, &s));
        if (x->progress.step == EARLY && config_is_apart(x->cfg)) TRY(eval_loss(x, 0, &to->early[rank], &samples));
    }
    TRY(session_settle(x));
    TRY(eval_loss(x, 0, &to->loss[rank], &samples));
    TRY(session_fetch(x));
    const store *shown = state_store(&x->state, state_shown(&x->state));
    memcpy(to->masters[rank], x->state.masters.t.data, tensor_bytes(&x->state.masters.t));
    memcpy(to->mean[rank], shown->t.data, tensor_bytes(&shown->t));
    return ERR_OK;
}

static err_t keep_masters(const config *c, const launch *at, void *ctx) {
    session x;
    err_t rc = session_open(&x, c, SESSION_TRAIN, at);
    if (rc == ERR_OK) rc = play(&x, at->rank, ctx);
    session_abort(&x, rc);
    session_close(&x);
    return rc;
}

static void compare_weights(const kind *how, int island, int64_t n, const float *found, const float *expected) {
    for (int64_t i = 0; i < n; i++)
        if (found[i] != expected[i])
            fail_msg("%s, island %d: weight %" PRId64 " is %.9g, expected %.9g", how->name, island, i, (double)found[i],
                     (double)expected[i]);
}

static void islands_do_what_forty_lines_say(void **state) {
    (void)state;
    static const kind kinds[] = {
        {"average", "type = average\n", .own = false},
        {"nesterov", "type = nesterov\n", .nesterov = true},
        {"average, codes", "type = average\ncompress = int8\n", .codes = true},
        {"nesterov, codes", "type = nesterov\ncompress = int8\n", .nesterov = true, .codes = true},
        {"nesterov, own", "type = nesterov\nmoments = own\n", .nesterov = true, .own = true},
        {"nesterov, codes, own", "type = nesterov\ncompress = int8\nmoments = own\n", .nesterov = true, .codes = true,
         .own = true},
        {"average, fragments", "type = average\n" FRAGMENTS, .apart = true},
        {"nesterov, fragments, codes, own", "type = nesterov\ncompress = int8\nmoments = own\n" FRAGMENTS,
         .nesterov = true, .codes = true, .own = true, .apart = true},
        {"average, fragments, overlap", "type = average\nmoments = own\noverlap = 1\n" FRAGMENTS, .own = true,
         .apart = true, .overlap = 1, .keep = 0.5f},
        {"nesterov, fragments, overlap, codes",
         "type = nesterov\ncompress = int8\nmoments = own\noverlap = 1\nkeep = 0.25\n" FRAGMENTS, .nesterov = true,
         .codes = true, .own = true, .apart = true, .overlap = 1, .keep = 0.25f},
    };
    char *dir = rank_dir(), more[256];
    ending *plain = calloc(1, sizeof *plain), *found = share_memory(sizeof *found);
    write_images(dir, "all", 0, GLOBAL);
    write_images(dir, "first", 0, GLOBAL / 2);
    write_images(dir, "second", GLOBAL / 2, GLOBAL / 2);
    for (const kind *how = kinds; how < kinds + sizeof kinds / sizeof *kinds; how++) {
        config c;
        int64_t n = 0;
        run_plainly(dir, how, plain, &n);
        assert_true(n > 20000);
        snprintf(more, sizeof more, "[outer]\nislands = 2\nevery = 3\n%s", how->more);
        perceptron_config(&c, dir, "all", GLOBAL, 4, more);
        run_ranks(how->name, &(rank_world){.nodes = 1, .ranks = {ISLANDS}}, &c, keep_masters, found);
        for (int k = 0; k < ISLANDS; k++) {
            compare_weights(how, k, n, found->masters[k], plain->masters[k]);
            compare_weights(how, k, n, found->mean[k], plain->mean[0]);
            if (found->loss[k] != plain->loss[0] || (how->apart && found->early[k] != plain->early[0]))
                fail_msg("%s, island %d: losses %.17g and %.17g, expected %.17g and %.17g", how->name, k,
                         found->early[k], found->loss[k], plain->early[0], plain->loss[0]);
        }
        bool same = memcmp(plain->masters[0], plain->masters[1], (size_t)n * sizeof(float)) == 0;
        assert_int_equal(same, !how->apart);
    }
    free(plain), munmap(found, sizeof *found);
    drop_dir(dir);
}

// --- layouts ---------------------------------------------------------------------------------------------------------

// Matrices of several chunks, and dropout, which is each sample's own.
static const char gpt[] =
    "[data]\nformat = raw16\n[model]\nlayers = 2\nheads = 2\nembed = 72\ncontext = 16\nvocab = 512\ndropout = 0.1\n"
    "[batch]\nglobal = 16\nmicro = 1\nlanes = 8\n[optimizer]\nlr = 3e-3\n[schedule]\nwarmup = 2\n[device]\nthreads = 1\n"
    "[run]\nsteps = 6\n[checkpoint]\nevery = 3\n[eval]\nevery = 3\n[sample]\ntokens = 0\n[reduce]\nbucket_mb = 0.05\n"
    "[cluster]\ntimeout = 20\n[outer]\nevery = 3\n[parallel]\nslices = 2\n";

typedef struct finding {
    char hash[17], state_hash[17];
    double loss[STEPS], norm[STEPS], eval;
    bool applied[STEPS];
} finding;

typedef struct trial {
    finding *all;
    int from, to;  // steps: resumed after the first, 0: begun; saved after the last one if that is not the end
} trial;

static err_t begin(session *x, int from) {
    bool found;
    monitor m = {0};
    if (from == 0) return session_init(x);
    TRY(session_resume(x, &found, &m));
    return found && x->progress.step == from ? ERR_OK : err_set(ERR_DATA, "%s: nothing of step %d", x->dir, from);
}

static err_t steps_of(session *x, const trial *t, finding *f) {
    step_result s;
    int64_t windows;
    TRY(begin(x, t->from));
    TRY(session_feed(x, STEPS));
    while (x->progress.step < t->to) {
        TRY(session_step(x, &s));
        f->loss[s.step - 1] = s.loss, f->norm[s.step - 1] = s.grad_norm, f->applied[s.step - 1] = s.applied;
    }
    TRY(session_settle(x));
    TRY(eval_loss(x, 0, &f->eval, &windows));
    TRY(session_settle(x));
    TRY(session_fetch(x));
    if (t->to < STEPS) TRY(ckpt_save(x->dir, &x->state.ckpt, &x->progress, 1, NULL));
    TRY(ckpt_hash(&x->state.ckpt, f->hash));
    return ckpt_state_hash(&x->state.ckpt, &x->progress, f->state_hash);
}

static err_t live(const config *c, const launch *at, void *ctx) {
    const trial *t = ctx;
    session x;
    err_t rc = session_open(&x, c, SESSION_TRAIN, at);
    if (rc == ERR_OK) rc = steps_of(&x, t, &t->all[at->rank]);
    session_abort(&x, rc);
    session_close(&x);
    return rc;
}

static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void compare(const char *what, int rank, const trial *t, const finding *one) {
    const finding *f = &t->all[rank];
    for (int i = t->from; i < t->to; i++)
        if (f->loss[i] != one->loss[i] || !same(f->norm[i], one->norm[i]) || f->applied[i] != one->applied[i])
            fail_msg("%s, rank %d, step %d: loss %.17g norm %.17g applied %d, expected %.17g, %.17g, %d", what, rank,
                     i + 1, f->loss[i], f->norm[i], f->applied[i], one->loss[i], one->norm[i], one->applied[i]);
    if (strlen(f->hash) != 16 || strcmp(f->hash, one->hash) != 0 || strcmp(f->state_hash, one->state_hash) != 0 ||
        f->eval != one->eval)
        fail_msg("%s, rank %d: hash %s state %s evaluation %.17g, expected %s, %s and %.17g", what, rank, f->hash,
                 f->state_hash, f->eval, one->hash, one->state_hash, one->eval);
}

// kind and more: settings. one: what all ranks must find; empty: what the first one found is left there.
static void try_layout(const char *dir, const char *kind, const char *more, rank_world w, trial t, finding *one) {
    char all[1024], what[1100];
    config c;
    snprintf(all, sizeof all, "%s%s", kind, more);
    snprintf(what, sizeof what, "%d ranks on %d nodes, steps %d to %d:\n%s", rank_count(&w), w.nodes, t.from, t.to,
             all);
    rank_config(&c, dir, gpt, all);
    t.all = share_memory(MOST * sizeof *t.all);
    run_ranks(what, &w, &c, live, &t);
    if (!one->hash[0]) *one = t.all[0];
    for (int k = 0; k < rank_count(&w); k++) compare(what, k, &t, one);
    munmap(t.all, MOST * sizeof *t.all);
}

typedef struct layout {
    const char *more;
    rank_world world;
} layout;

#define NESTEROV "[outer]\nislands = 2\ntype = nesterov\n"
#define CODED NESTEROV "compress = int8\n"
#define OWN NESTEROV "compress = int8\nmoments = own\n"
// Step 3, after which a checkpoint is made, is in the middle of all that can be: h.0 has left and not arrived.
#define APART NESTEROV "compress = int8\nmoments = own\noverlap = 1\nfragments = h.0.*:2+1 w?e.*:3+2 *.mlp.*:4\n"
#define DRIFTING "[outer]\nislands = 2\ncompress = int4\nfragments = h.0.*:2+1 *.mlp.*:4\n"

static const layout layouts[] = {
    {"", ONE(2)},
    {"[parallel]\nzero = 0\n", ONE(4)},
    {"[parallel]\nzero = 1\n", ONE(8)},
    {"[parallel]\nzero = 2\n", ONE(4)},
    {"[parallel]\nzero = 3\n", ONE(6)},  // an island's four lanes are dealt to three ranks
    {"[parallel]\npipeline = 2\nschedule = zb-h1\n", ONE(4)},
    {"[parallel]\ntensor = 2\nzero = 1\n", ONE(8)},
    {"[parallel]\ntensor = 2\npipeline = 2\n", ONE(8)},
    {"[parallel]\nzero = 1\n", TWO(1, 3)},
    {"[parallel]\nzero = 3\nrecompute = block\n", TWO(2, 2)},
};

// The matrices of several chunks have several owners, and those of a pipeline a stage each.
static void any_layout_of_an_island_gives_the_same_bits(void **state) {
    (void)state;
    static const char *const kinds[] = {NESTEROV, OWN};
    char *dir = rank_dir();
    for (int k = 0; k < 2; k++) {
        finding one = {.hash = ""};
        for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
            try_layout(dir, kinds[k], layouts[i].more, layouts[i].world, (trial){.to = STEPS}, &one);
    }
    drop_dir(dir);
}

// Those that never all hold the same are evaluated, hashed and saved as the mean and what each has.
static void islands_that_are_apart_have_the_same_bits(void **state) {
    (void)state;
    static const struct {
        const char *kind;
        int few[4];
    } kinds[] = {{APART, {0, 3, 6, 7}},
                 {DRIFTING "[precision]\ncompute = bf16\nrounding = stochastic\n", {0, 2, 4, 5}}};
    char *dir = rank_dir(), runs[1024];
    snprintf(runs, sizeof runs, "%s/runs", dir);
    for (int k = 0; k < 2; k++) {
        finding one = {.hash = ""}, saved = {.hash = ""};
        for (int i = 0; i < 4; i++) {
            const layout *from = &layouts[kinds[k].few[i]], *to = &layouts[kinds[k].few[(i + 1) % 4]];
            OK(io_remove_tree(runs));
            if (i < 2) try_layout(dir, kinds[k].kind, from->more, from->world, (trial){.to = STEPS}, &one);
            OK(io_remove_tree(runs));
            try_layout(dir, kinds[k].kind, from->more, from->world, (trial){.to = EVERY}, &saved);
            try_layout(dir, kinds[k].kind, to->more, to->world, (trial){.from = EVERY, .to = STEPS}, &one);
        }
    }
    finding four = {.hash = ""};
    try_layout(dir, "[outer]\nislands = 4\noverlap = 2\nmoments = own\n", "", (rank_world)ONE(4), (trial){.to = STEPS},
               &four);
    try_layout(dir, "[outer]\nislands = 4\noverlap = 2\nmoments = own\n", "[parallel]\nzero = 2\n",
               (rank_world)TWO(3, 5), (trial){.to = STEPS}, &four);
    drop_dir(dir);
}

// Ranks that share an embedding of 259 rows have 130 and 129 of them, and all norms. The second half of what leaves
// begins between two of these, and still all ranks of an island must give the same island a norm to add up.
static void unlike_slices_have_the_same_owners(void **state) {
    (void)state;
    static const char kind[] = "[outer]\nislands = 2\ncompress = int8\nmoments = own\noverlap = 1\n"
                               "fragments = h.0.*:2+1\n[model]\nembed = 32\nvocab = 259\n",
                      tensor[] = "[parallel]\ntensor = 2\nzero = 0\n";
    char *dir = rank_dir(), runs[1024];
    finding one = {.hash = ""}, saved = {.hash = ""};
    snprintf(runs, sizeof runs, "%s/runs", dir);
    try_layout(dir, kind, "", (rank_world)ONE(2), (trial){.to = STEPS}, &one);
    OK(io_remove_tree(runs));
    try_layout(dir, kind, tensor, (rank_world)ONE(4), (trial){.to = EVERY}, &saved);
    try_layout(dir, kind, tensor, (rank_world)ONE(4), (trial){.from = EVERY, .to = STEPS}, &one);
    drop_dir(dir);
}

// Four of them, the mean, boundaries after each step, other types, and losses that overflow: a step that one island
// can't take none takes.
static void kinds_of_islands_do_not_matter(void **state) {
    (void)state;
    static const struct {
        const char *kind;
        rank_world few, many;
    } kinds[] = {
        {"[outer]\nislands = 4\ntype = nesterov\nlr = 0.5\nmomentum = 0.8\n", ONE(4), ONE(8)},
        {"[outer]\nislands = 4\nevery = 1\n", ONE(4), TWO(4, 4)},
        {"[outer]\nislands = 2\ntype = nesterov\nmomentum = 0\n[optimizer]\ntype = sgd\nlr = 0.1\n", ONE(2), ONE(4)},
        {NESTEROV "[precision]\ncompute = bf16\nrounding = stochastic\n", ONE(2), ONE(4)},
        {NESTEROV
         "[precision]\ncompute = fp16\nscale_window = 1\n[model]\ncontext = 2\n[batch]\nglobal = 8\n[optimizer]\ntype = sgd\nlr = 0.1\nmomentum = 0.9\n",
         ONE(2), ONE(6)},
        {CODED "[precision]\ncompute = bf16\n", ONE(2), ONE(4)},
        {CODED "[model]\nvocab = 4096\n", ONE(2), ONE(6)},  // of more elements than OUTER_PIECE
        {"[outer]\nislands = 4\ncompress = int8\n", ONE(4), TWO(4, 4)},
        {"[outer]\nislands = 4\ntype = nesterov\ncompress = fp16\nmoments = own\n", ONE(4), ONE(8)},
        {"[outer]\nislands = 2\nmoments = own\n[optimizer]\ntype = sgd\nlr = 0.1\n", ONE(2), ONE(6)},
        {"[outer]\nislands = 8\nevery = 2\ncompress = int8\n[checkpoint]\nevery = 2\n[eval]\nevery = 2\n", ONE(8),
         TWO(3, 5)},
        {"[outer]\nislands = 8\nevery = 2\n[checkpoint]\nevery = 2\n[eval]\nevery = 2\n", ONE(8), TWO(3, 5)},
    };
    char *dir = rank_dir(), more[64];
    finding before = {.hash = ""};
    for (int k = 0; k < (int)(sizeof kinds / sizeof *kinds); k++) {
        finding one = {.hash = ""};
        try_layout(dir, kinds[k].kind, "", kinds[k].few, (trial){.to = STEPS}, &one);
        assert_string_not_equal(one.hash, before.hash);
        before = one;
        for (int zero = k % 2; zero <= 3; zero += 2) {
            snprintf(more, sizeof more, "[parallel]\nzero = %d\n", zero);
            try_layout(dir, kinds[k].kind, more, kinds[k].many, (trial){.to = STEPS}, &one);
        }
        bool all = true;
        for (int i = 0; i < STEPS; i++) all = all && one.applied[i];
        assert_int_equal(all, !strstr(kinds[k].kind, "compute = fp16"));
    }
    drop_dir(dir);
}

// Mixing after each step is no gradient of all, and what steps have learned alone is more than a plain run's rounding.
// But one island is a plain run.
static void islands_are_not_a_plain_run(void **state) {
    (void)state;
    char *dir = rank_dir();
    finding plain = {.hash = ""}, mean = {.hash = ""}, anchored = {.hash = ""};
    try_layout(dir, "[outer]\nevery = 1\n", "", (rank_world)ONE(1), (trial){.to = STEPS}, &plain);
    try_layout(dir, "[outer]\nislands = 1\nevery = 1\ntype = average\nlr = 0.1\n", "[parallel]\nzero = 1\n",
               (rank_world)ONE(2), (trial){.to = STEPS}, &plain);
    try_layout(dir, "[outer]\nislands = 2\n", "", (rank_world)ONE(2), (trial){.to = STEPS}, &mean);
    try_layout(dir, NESTEROV, "", (rank_world)ONE(2), (trial){.to = STEPS}, &anchored);
    assert_string_not_equal(plain.hash, mean.hash);
    assert_string_not_equal(plain.hash, anchored.hash);
    assert_string_not_equal(mean.hash, anchored.hash);
    // the first step begins from the same weights, with the same samples and the same dropout
    assert_true(plain.loss[0] == mean.loss[0] && plain.loss[0] == anchored.loss[0]);
    assert_true(plain.loss[STEPS - 1] != mean.loss[STEPS - 1]);
    drop_dir(dir);
}

// A checkpoint of a boundary is that of one island, with the outer momentum; the anchor is its masters. What codes left
// out, and moments of their own, are of all islands.
static void a_boundary_is_continued_by_other_ranks(void **state) {
    (void)state;
    static const char *const kinds[] = {NESTEROV, "[outer]\nislands = 2\ncompress = int8\n", OWN};
    char *dir = rank_dir(), runs[1024];
    const int few[] = {0, 3, 6, 2, 7, 4}, n = sizeof few / sizeof *few;
    snprintf(runs, sizeof runs, "%s/runs", dir);
    for (int k = 0; k < 3; k++) {
        finding one = {.hash = ""}, saved = {.hash = ""};
        try_layout(dir, kinds[k], "", (rank_world)ONE(2), (trial){.to = STEPS}, &one);
        for (int i = 0; i < n; i++) {
            const layout *from = &layouts[few[i]], *to = &layouts[few[(i + 1) % n]];
            OK(io_remove_tree(runs));
            try_layout(dir, kinds[k], from->more, from->world, (trial){.to = EVERY}, &saved);
            try_layout(dir, kinds[k], to->more, to->world, (trial){.from = EVERY, .to = STEPS}, &one);
        }
    }
    drop_dir(dir);
}

// test_outer [PATTERN]: the tests whose name it matches, as in a shell.
int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(islands_do_what_forty_lines_say),
        cmocka_unit_test(any_layout_of_an_island_gives_the_same_bits),
        cmocka_unit_test(islands_that_are_apart_have_the_same_bits),
        cmocka_unit_test(unlike_slices_have_the_same_owners),
        cmocka_unit_test(kinds_of_islands_do_not_matter),
        cmocka_unit_test(islands_are_not_a_plain_run),
        cmocka_unit_test(a_boundary_is_continued_by_other_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
