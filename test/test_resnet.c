// test/test_resnet.c: residual networks as runs, from the inside. Five steps of each kind of unit are PyTorch's
// (test/golden/make_resnet.py), down to each weight and running statistic; and whatever the ranks, the stages, the
// precision and what is computed again, a run holds and sends what its plan says and comes to the same bits.
#include "test/support/classifiers.h"
#include "test/support/export.h"
#include "test/support/square.h"

#include "model/families.h"
#include "model/foreign.h"
#include "model/resnet/resnet.h"
#include "model/weights.h"

// --- PyTorch ---------------------------------------------------------------------------------------------------------

enum { GOLDEN_STEPS = 5, GOLDEN_BATCH = 8 };

static const char golden[] = "test/golden/resnet.txt";
static const char golden_run[] =
    "[model]\ntype = resnet\nwidth = 6\nclasses = 12\nmean = 0.5 0.4 0.3\ndeviation = 0.25 0.2 0.3\nsmoothing = 0.1\n"
    "[data]\nshuffle = no\n[batch]\nglobal = 8\nmicro = 8\nlanes = 1\n"
    "[optimizer]\ntype = sgd\nlr = 0.01\nmomentum = 0.9\nweight_decay = 0.01\ngrad_clip = 0\n"
    "[schedule]\ntype = constant\nwarmup = -1\n";

static const struct golden_net {
    const char *name, *settings;
} nets[] = {{"basic", "depth = 20\nunits = 1 2 1\nimage = 16"}, {"bottleneck", "depth = 50\nunits = 1 2\nimage = 24"}};

// A row, from a file of torchvision's names and orders.
static float *golden_row(const session *x, const char *path, int row, int64_t count) {
    weights *w;
    weights_map *map;
    float *to = malloc((size_t)count * sizeof *to);
    assert_non_null(to);
    OK(weights_open(&w, path));
    OK(weights_match(&map, w, x->net, x->net->options, false));
    OK(weights_read(map, row, 0, count, 0, to));
    weights_map_close(map), weights_close(w);
    return to;
}

// What five steps did to each row, against what PyTorch did in double.
static void rows_are_those_of_pytorch(const session *x, const char *name) {
    char begin[128], end[128];
    snprintf(begin, sizeof begin, "test/golden/resnet-%s.safetensors", name);
    snprintf(end, sizeof end, "test/golden/resnet-%s-end.safetensors", name);
    for (int i = 0; i < x->net->params; i++) {
        const param *p = &x->net->param[i];
        int64_t n = shape_count(p->dims, p->size);
        float *from = golden_row(x, begin, i, n), *to = golden_row(x, end, i, n);
        const float *found = x->state.master[i].data;
        double off = 0, moved = 0;
        for (int64_t k = 0; k < n; k++)
            off += square((double)found[k] - (double)to[k]), moved += square((double)to[k] - (double)from[k]);
        if (!(moved > 0 && off <= 1e-8 * moved))
            fail_msg("%s, %s: nmse %.2g of what five steps changed", name, p->name, off / moved);
        free(from), free(to);
    }
}

// The settings of the net, and the images and weights of the golden files, or weights that are elsewhere.
static void golden_settings(char *to, size_t room, int k, const char *weights_at) {
    const char *name = nets[k].name;
    char path[128], data[256];
    snprintf(path, sizeof path, "test/golden/resnet-%s.safetensors", name);
    snprintf(data, sizeof data, "test/golden/resnet-%s-images.idx test/golden/resnet-%s-labels.idx", name, name);
    snprintf(to, room, "[model]\n%s\ninit_from = %s\n[data]\ntrain = %s\nval = %s\n", nets[k].settings,
             weights_at ? weights_at : path, data, data);
}

static void run_five_steps(const char *batch) {
    for (int k = 0; k < 2; k++) {
        const char *name = nets[k].name;
        char *dir = make_dir(), more[2048];
        double losses[GOLDEN_STEPS] = {0}, after[3] = {0};
        session x;
        config c;
        step_result s;
        evaluation e = {0};
        golden_settings(more, sizeof more, k, NULL);
        strcat(more, batch);
        load_config(&c, dir, golden_run, more);
        golden_line(golden, name, "losses", losses, GOLDEN_STEPS);
        golden_line(golden, name, "after", after, 3);
        OK(session_open(&x, &c, SESSION_TRAIN, NULL));
        OK(session_init(&x));
        OK(session_feed(&x, GOLDEN_STEPS));
        for (int i = 0; i < GOLDEN_STEPS; i++) {
            OK(session_step(&x, &s));
            is_near(name, "loss of step", i + 1, s.loss, losses[i]);
        }
        OK(session_settle(&x));
        rows_are_those_of_pytorch(&x, name);
        OK(evaluate(&x.evaluator, x.val, 0, &e));
        is_near(name, "loss after step", GOLDEN_STEPS, e.loss, after[0]);
        assert_int_equal(e.samples, GOLDEN_STEPS * GOLDEN_BATCH);
        assert_string_equal(x.net->metric[1], "top_5");
        for (int i = 0; i < 2; i++) assert_true(fabs(e.metric[i] - after[1 + i]) < 1e-8);  // of 40 images
        session_close(&x);
        drop_dir(dir);
    }
}

// As one micro-batch, and as four of which batch norms take moments together.
static void five_steps_are_those_of_pytorch(void **state) {
    (void)state;
    run_five_steps("");
    run_five_steps("[batch]\nmicro = 2\nlanes = 4\nbn_span = 0\n");
}

// --- files -----------------------------------------------------------------------------------------------------------

// A run is exported in torchvision's order; what begins with that has the run's weights and statistics, to the bit.
static void weights_go_there_and_back(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        rig r;
        session end, begin;
        config c;
        char more[2048], path[700];
        rig_open(&r);
        golden_settings(more, sizeof more, k, NULL);
        strcat(more, "[run]\nsteps = 3\n");
        rig_train(&r, golden_run, more);
        export(r.run, r.to, NULL, NULL);
        snprintf(path, sizeof path, "%s/ckpt/step-00000003", r.run);
        OK(session_open(&end, &r.c, SESSION_TRAIN, NULL));
        OK(session_load(&end, path));
        golden_settings(more, sizeof more, k, r.to);
        load_config(&c, r.dir, golden_run, more);
        OK(session_open(&begin, &c, SESSION_TRAIN, NULL));
        OK(session_init(&begin));
        for (int i = 0; i < end.net->params; i++) {
            const tensor *a = &end.state.master[i], *b = &begin.state.master[i];
            if (memcmp(a->data, b->data, tensor_bytes(a)) != 0)
                fail_msg("%s: %s is another one when it comes back", nets[k].name, end.net->param[i].name);
        }
        session_close(&begin), session_close(&end);
        rig_close(&r);
    }
}

static void refuses(int k, const char *path, const char *more_of_model, const char *why) {
    char *dir = make_dir(), more[2048];
    session x;
    config c;
    golden_settings(more, sizeof more, k, path);
    snprintf(more + strlen(more), sizeof more - strlen(more), "[model]\n%s", more_of_model);
    load_config(&c, dir, golden_run, more);
    OK(session_open(&x, &c, SESSION_TRAIN, NULL));
    assert_int_equal(session_init(&x), ERR_DATA);
    if (!strstr(err_last()->text, why)) fail_msg("expected \"%s\" in: %s", why, err_last()->text);
    session_close(&x);
    drop_dir(dir);
}

// Of a file of torchvision, names and shapes tell the net; what is missing or of another shape is named.
static void files_are_known_by_their_tensors(void **state) {
    static const char *const said[] = {"depth = 20\nunits = 1 2 1\n", "depth = 50\nunits = 1 2\n"};
    (void)state;
    for (int k = 0; k < 2; k++) {
        char path[128], *text = NULL, *argv[] = {path};
        size_t n;
        FILE *out = open_memstream(&text, &n);
        snprintf(path, sizeof path, "test/golden/resnet-%s.safetensors", nets[k].name);
        OK(verb_inspect(1, argv, out));
        fclose(out);
        if (!strstr(text, said[k]) || !strstr(text, "width = 6\n") || !strstr(text, "classes = 12\n"))
            fail_msg("inspect says of %s:\n%s", path, text);
        free(text);
    }
    refuses(0, "test/golden/resnet-bottleneck.safetensors", "", "layer3.0.conv1.weight is missing");
    refuses(1, "test/golden/resnet-bottleneck.safetensors", "width = 5\n",
            "conv1.weight is (6,3,7,7), expected (5,3,7,7)");
}

// Shapes of a net that no file is of: so many units in each stage, 0 at its end.
static bool find_made_up(const void *of, const char *name, int *dims, const int64_t **size) {
    static const int64_t filters[] = {16, 3, 3, 3}, head[] = {10, 64};
    const int *units = of;
    int stage, unit, length = 0;
    bool stem = strcmp(name, "conv1.weight") == 0, fc = strcmp(name, "fc.weight") == 0;
    sscanf(name, "layer%d.%d.conv1.weight%n", &stage, &unit, &length);
    *dims = fc ? 2 : 4, *size = fc ? head : filters;
    return stem || fc || (length > 0 && !name[length] && unit < units[stage - 1]);
}

// Units of all stages, also of those that have as many as a depth that has a name; and none where all do.
static void units_are_those_of_the_file(void **state) {
    static const struct {
        int units[RESNET_STAGES];
        int64_t depth;
        const char *said;
    } nets[] = {{{3, 3, 3}, 20, ""}, {{5, 5, 5}, 32, ""}, {{3, 1, 2}, 20, "3 1 2"}, {{1, 3}, 20, "1 3"}};
    (void)state;
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        resnet_options o = {0};
        assert_true(resnet_from_tensors(&o, &(tensor_shapes){nets[i].units, find_made_up}));
        if (o.depth != nets[i].depth || strcmp(o.units, nets[i].said) != 0)
            fail_msg("depth %d and units \"%s\", expected %d and \"%s\"", (int)o.depth, o.units, (int)nets[i].depth,
                     nets[i].said);
        assert_true(o.width == 16 && o.channels == 3 && o.classes == 10);
    }
}

// --- settings --------------------------------------------------------------------------------------------------------

static void settings_are_refused_in_words(void **state) {
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"[model]\ntype = resnet\ndepth = 51\n", "[model] depth: expected 18, 34, 50, 101, 20, 32 or 56, found 51"},
        {"[model]\ntype = resnet\nunits = 2 x\n", "[model] units: expected at most 4 whole numbers from 1 to 1000"},
        {"[model]\ntype = resnet\nunits = 1 1 1 1 1\n", "[model] units: expected at most 4 whole numbers"},
        {"[model]\ntype = resnet\nunits = 2 1.5\n", "[model] units: expected whole numbers"},
        {"[model]\ntype = resnet\nmean = 0.5 0.5\n",
         "[model] mean: expected a number from 0 to 1 for each of 3 channels"},
        {"[model]\ntype = resnet\ndeviation = 0 1 1\n", "[model] deviation: expected a number from 0.001 to 1"},
        {"[model]\ntype = resnet\nimage = 31\n",
         "[model] image: images of 31 x 31 pixels are too small: 4 stages want at least 32"},
        {"[model]\ntype = resnet20\nimage = 3\n",
         "[model] image: images of 3 x 3 pixels are too small: 3 stages want at least 4"},
        {"[model]\ntype = resnet\n[parallel]\nslices = 2\n",
         "[parallel] slices: the layers of a residual network can't be divided"},
        {"[model]\ntype = resnet\n[parallel]\nsequence = yes\n", "a residual network has no residual stream to divide"},
        {"[model]\ntype = resnet\n[batch]\nbn_span = 3\n", "[batch] bn_span: bn_span = 3 is not a power of two"},
        {"[model]\ntype = resnet\n[batch]\nbn_span = 4\n", "bn_span = 4 is more than the lanes = 2 of a step"},
        {"[model]\ntype = resnet\n[batch]\nglobal = 48\nmicro = 8\nlanes = 2\nbn_span = 0\n",
         "each of the lanes = 2 computes 3 micro-batches one after the other"},
        {"[model]\ntype = resnet\n[batch]\nbn_span = 0\n[reduce]\ncompress = int8\n",
         "compress = int8 codes each lane by itself, and bn_span computes 2 of them at once"},
        {"[batch]\nbn_span = 0\n", "and this model has none: expected 1"},
        {"[model]\ntype = mlp\n[batch]\nbn_span = 2\n", "and this model has none: expected 1"},
        {"[model]\ntype = resnet\n[parallel]\ntoken_slices = 2\nslices = 2\n",
         "a residual network has no residual stream to divide"},
        {"[model]\ntype = resnet\n[batch]\nbn_span = 0\n[parallel]\ncontext = 4\nzero = 2\n",
         "context = 4 ranks can't have equal shares of a span of 2 lanes"},
        {"[model]\ntype = resnet\n[batch]\nglobal = 8\nmicro = 2\nlanes = 4\nbn_span = 0\n[parallel]\ncontext = 3\nzero = 2\n",
         "context = 3 ranks can't have equal shares of a span of 4 lanes"},
        {"[model]\ntype = resnet\n[batch]\nbn_span = 0\n[parallel]\ncontext = 2\n", "and here zero = 0"},
        {"[model]\ntype = resnet\n[batch]\nbn_span = 0\n[device]\nranks = 2\n",
         "2 ranks ([device] ranks) are too many for the 1 span of lanes (bn_span = 0) of a step: several share one by "
         "[parallel] context, found 1"}};
    (void)state;
    char *dir = make_dir(), path[1024];
    const char *file = path;
    snprintf(path, sizeof path, "%s/wrong.ini", dir);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        config c;
        write_text(dir, "wrong.ini", rows[i].text);
        assert_int_equal(config_load(&c, &file, 1), ERR_CONFIG);
        if (!strstr(err_last()->text, rows[i].why)) fail_msg("expected \"%s\" in: %s", rows[i].why, err_last()->text);
    }
    drop_dir(dir);
}

// With a pixel less of each side the first two are refused above.
static void the_smallest_images_are_taken(void **state) {
    static const char *const nets[] = {"type = resnet\nimage = 32\n", "type = resnet20\nimage = 4\n",
                                       "type = resnet20\nunits = 1\nimage = 1\n"};
    (void)state;
    char *dir = make_dir();
    for (int i = 0; i < 3; i++) {
        char more[128];
        config c;
        snprintf(more, sizeof more, "[model]\n%s", nets[i]);
        load_config(&c, dir, "", more);
    }
    drop_dir(dir);
}

// --- ranks -----------------------------------------------------------------------------------------------------------

enum { IMAGES = 50, SIDE = 9, COLOURS = 3 };

// Ragged sizes; a weight of more than one chunk of 16384, so that owners cut it.
static const char small_run[] =
    "[model]\ntype = resnet\ndepth = 20\nunits = 1 2 1\nwidth = 11\nimage = 9\nclasses = 7\n[batch]\nglobal = 24\nmicro = 3\nlanes = 8\n"
    "[optimizer]\ntype = sgd\nlr = 0.1\nweight_decay = 1e-3\n[schedule]\nwarmup = 2\n[device]\nthreads = 1\n[reduce]\nbucket_mb = 0.05\n"
    "[cluster]\ntimeout = 20\n";

static void write_images(const char *dir) {
    static uint8_t pixels[IMAGES * COLOURS * SIDE * SIDE], label[IMAGES];
    char path[1024];
    for (int n = 0; n < IMAGES; n++) {
        label[n] = (uint8_t)(n * 5 % 7);
        for (int i = 0; i < COLOURS * SIDE * SIDE; i++)
            pixels[n * COLOURS * SIDE * SIDE + i] = (uint8_t)(n * 37 + i * i * 11 + (i / 35 == label[n]) * 90);
    }
    snprintf(path, sizeof path, "%s/images", dir);
    write_idx(path, 4, (uint32_t[]){IMAGES, COLOURS, SIDE, SIDE}, pixels, false);
    snprintf(path, sizeof path, "%s/labels", dir);
    write_idx(path, 1, (uint32_t[]){IMAGES}, label, true);
}

// Data-parallel ranks in each stage of ZeRO, pipelines with and without halves, what is computed again, and the update
// on the host.
static void any_layout_has_the_same_bits(void **state) {
    static const struct layout_case {
        int ranks;
        const char *how;
    } layouts[] = {{1, "zero = 0"},
                   {1, "recompute = selective"},
                   {1, "recompute = block"},
                   {1, "offload = yes"},
                   {2, "zero = 0"},
                   {2, "zero = 3\nrecompute = block"},
                   {3, "zero = 1"},
                   {3, "zero = 2\noffload = nvme"},
                   {4, "zero = 3"},
                   {8, "zero = 2"},
                   {2, "pipeline = 2"},
                   {2, "pipeline = 2\nschedule = zb-h1"},
                   {3, "pipeline = 3\nschedule = gpipe\nrecompute = selective"},
                   {4, "pipeline = 2\nschedule = interleaved\nzero = 1"}};
    static const char *const kinds[] = {"", "[precision]\ncompute = bf16\nrounding = stochastic",
                                        "[precision]\nproducts = bf16-pairs",
                                        "[optimizer]\ntype = lars\nlr = 10\nmomentum = 0.9"};
    (void)state;
    char *dir = rank_dir();
    write_images(dir);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        finding one = {.hash = ""};
        for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
            try_world(dir, small_run, kinds[k], layouts[i].ranks, layouts[i].how, &one);
        assert_true(one.eval.loss > 0 && isfinite(one.eval.loss));
    }
    drop_dir(dir);
}

// Filters are coded as all weights are, and are most of what a rank sends: in bytes that is about a quarter of floats.
static void filters_go_in_codes(void **state) {
    static const char *const kinds[] = {"", "[reduce]\ncompress = int8\ncompress_back = int8\n"};
    static const comm_place place[] = {{.rank = 0}, {.local = 1, .rank = 1}};
    (void)state;
    char *dir = rank_dir(), more[256];
    int64_t sent[2];
    write_images(dir);
    for (int k = 0; k < 2; k++) {
        config c;
        plan_rank p;
        snprintf(more, sizeof more, "%s[batch]\nlanes = 2\nmicro = 12\n", kinds[k]);
        load_config(&c, dir, small_run, more);
        OK(plan_one(&c, 0, 2, place, &p));
        sent[k] = p.to[PLAN_DATA].sent;
    }
    if (sent[1] >= 3 * sent[0] / 10) fail_msg("%" PRId64 " bytes in codes, %" PRId64 " without", sent[1], sent[0]);
    drop_dir(dir);
}

// Batch norms over several lanes: a span's samples on one rank, which has a gradient for each lane, or on several,
// which exchange sums. 13 samples are held out, so in its last round some rank has none. With 12 classes an evaluation
// has a second figure, top_5.
static void spans_have_the_same_bits(void **state) {
    static const struct span_case {
        int ranks;
        const char *span, *how;
    } layouts[] = {{1, "4", "zero = 0"},
                   {1, "4", "recompute = block"},
                   {2, "4", "zero = 1"},
                   {2, "4", "zero = 3\nrecompute = selective"},
                   {2, "4", "context = 2\nzero = 2"},
                   {4, "4", "context = 4\nzero = 3"},
                   {4, "4", "context = 2\nzero = 2\noffload = yes"},
                   {8, "4", "context = 4\nzero = 2\nrecompute = block"},
                   {4, "4", "context = 2\npipeline = 2\nzero = 2"},
                   {4, "4", "context = 2\npipeline = 2\nschedule = zb-h1\nzero = 3"},
                   {1, "0", "zero = 0"},
                   {2, "0", "context = 2\nzero = 3"},
                   {8, "0", "context = 8\nzero = 2"},
                   {1, "2", "zero = 0\n[batch]\nlanes = 4"},
                   {2, "2", "zero = 2\n[batch]\nlanes = 4"},
                   {4, "2", "context = 2\nzero = 2\n[batch]\nlanes = 4"}};
    static const char *const kinds[] = {"",
                                        "[precision]\ncompute = bf16\nrounding = stochastic\n[model]\nclasses = 12\n"};
    (void)state;
    char *dir = rank_dir(), kind[256];
    write_images(dir);
    for (int k = 0; k < 2; k++) {
        finding one = {.hash = ""}, before = {.hash = ""};
        for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
            if (i && strcmp(layouts[i].span, layouts[i - 1].span) != 0) before = one, one = (finding){.hash = ""};
            snprintf(kind, sizeof kind, "%s[batch]\nbn_span = %s\n", kinds[k], layouts[i].span);
            try_world(dir, small_run, kind, layouts[i].ranks, layouts[i].how, &one);
            assert_string_not_equal(one.hash, before.hash);
        }
    }
    drop_dir(dir);
}

// One lane that is clipped by itself, and sent whole, is a gradient that is clipped. The running statistics that travel
// with it are no part of its norm.
static void statistics_are_not_clipped(void **state) {
    static const char *const kinds[] = {
        "grad_clip = 0.05\n", "grad_clip = 0.05\n[reduce]\ncompress = topk\ndensity = 1\n", "grad_clip = 0\n"};
    (void)state;
    char *dir = rank_dir(), kind[256];
    finding found[3] = {{.hash = ""}};
    write_images(dir);
    for (int k = 0; k < 3; k++) {
        snprintf(kind, sizeof kind, "[batch]\nlanes = 1\n[optimizer]\nmomentum = 0\n%s", kinds[k]);
        try_world(dir, small_run, kind, 1, "zero = 0", &found[k]);
    }
    assert_string_equal(found[0].hash, found[1].hash);
    assert_string_not_equal(found[0].hash, found[2].hash);
    drop_dir(dir);
}

// [eval] batches counts micro-batches as [batch] micro has them, however many lanes are computed at once: the same
// samples, and so, as moments are not taken then, the same loss.
static void evaluations_count_micro_batches(void **state) {
    static const char *const spans[] = {"1", "2", "0"};
    (void)state;
    char *dir = rank_dir(), more[IO_PATH];
    double loss = 0, first = 0;
    int64_t samples;
    write_images(dir);
    for (int i = 0; i < 3; i++) {
        config c;
        session x;
        snprintf(more, sizeof more, "[data]\ntrain = %s/images %s/labels\nval =\nholdout = 13\n[batch]\nbn_span = %s\n",
                 dir, dir, spans[i]);
        load_config(&c, dir, small_run, more);
        OK(session_open(&x, &c, SESSION_INFERENCE, NULL));
        OK(session_init(&x));
        for (int64_t batches = 1; batches <= 6; batches++) {
            OK(eval_loss(&x, batches, &loss, &samples));
            assert_int_equal(samples, batches * 3 < 13 ? batches * 3 : 13);
        }
        if (i == 0) first = loss;
        assert_true(loss == first);
        session_close(&x);
    }
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_steps_are_those_of_pytorch),
        cmocka_unit_test(weights_go_there_and_back),
        cmocka_unit_test(files_are_known_by_their_tensors),
        cmocka_unit_test(units_are_those_of_the_file),
        cmocka_unit_test(settings_are_refused_in_words),
        cmocka_unit_test(the_smallest_images_are_taken),
        cmocka_unit_test(filters_go_in_codes),
        cmocka_unit_test(any_layout_has_the_same_bits),
        cmocka_unit_test(spans_have_the_same_bits),
        cmocka_unit_test(statistics_are_not_clipped),
        cmocka_unit_test(evaluations_count_micro_batches),
    };
    return cmocka_run_group_tests_name("resnet", tests, NULL, NULL);
}
