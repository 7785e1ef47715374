// test/test_search_by_hand.c: what a search looks at, counted by hand; what it takes a machine for; what a step's time
// is made of; and that what is fastest, or fits, is among what it simulates.
#include "test/support/search.h"

static void close_to(const char *what, double found, double wanted) {
    if (!(fabs(found - wanted) <= 1e-9 * fabs(wanted) + 1e-15))
        fail_msg("%s: %.12g, expected %.12g", what, found, wanted);
}

// --- how many layouts ------------------------------------------------------------------------------------------------

// A rank alone: one ZeRO stage, and three ways to compute again. Ranks that share lanes alone: four stages. A pipeline:
// six schedules, interleaved ones in 2, 4 and 8 chunks. Ranks that share layers may divide rows, too. Ranks that share
// positions have stages 2 and 3. And always the INI's own one.
static void layouts_are_counted(void **state) {
    (void)state;
    enum { AGAIN = 3, ZERO = 4, SCHEDULES = 6, ALONE = AGAIN, LANES = ZERO * AGAIN, PIPE = SCHEDULES * AGAIN };
    static const struct {
        const char *more, *world, *free;
        bool host, disk;
        int layouts;
    } of[] = {
        {"", "1x1", NULL, false, false, 1 + ALONE},
        {"", "1x2", NULL, false, false, 1 + LANES + PIPE},
        {"", "3x1", NULL, false, false, 1 + LANES + PIPE},
        {"", "2x2", NULL, false, false, 1 + LANES + ZERO * PIPE + PIPE},
        {"[batch]\nlanes = 2\n", "1x4", NULL, false, false, 1 + ZERO * PIPE + PIPE},
        {"[parallel]\nslices = 2\n", "1x2", NULL, false, false, 1 + LANES + PIPE + 2 * ALONE},
        {"[parallel]\nslices = 2\ntoken_slices = 2\n", "1x2", NULL, false, false,
         1 + LANES + PIPE + 2 * ALONE + 2 * AGAIN},
        // ranks that share layers and positions divide no rows
        {"[parallel]\nslices = 2\ntoken_slices = 2\n", "1x4", NULL, false, false,
         1 + LANES + ZERO * PIPE + PIPE + 2 * AGAIN + 2 * PIPE + 2 * LANES + 2 * PIPE + 2 * AGAIN},
        {"[batch]\nlanes = 2\n[outer]\nislands = 2\nevery = 5\n", "1x4", NULL, false, false, 1 + PIPE},
        {"[outer]\nislands = 2\nevery = 5\n", "1x4", NULL, false, false, 1 + LANES + PIPE},
        {"", "1x1", NULL, true, false, 1 + 2 * ALONE},
        {"", "1x1", NULL, false, true, 1 + 2 * ALONE},
        {"", "1x1", NULL, true, true, 1 + 3 * ALONE},
        {"[parallel]\noffload = host\n", "1x1", NULL, false, false, 1 + ALONE},
        {"[parallel]\noffload = host\n", "1x1", NULL, false, true, 1 + 3 * ALONE},
        {"", "1x1", "lanes", false, false, 1 + 5 * ALONE},                        // 1 to 16 of 16 samples
        {"[batch]\nglobal = 64\n", "1x1", "micro", false, false, 1 + 3 * ALONE},  // 1, 2, 4 of 4 samples of a lane
        {"[batch]\nglobal = 64\n", "1x1", "micro,lanes", false, false, 1 + (7 + 6 + 5 + 4 + 3 + 2 + 1) * ALONE},
        {"", "1x2", "slices", false, false, 1 + 4 * (LANES + PIPE) + 3 * 2 * ALONE},
    };
    char *dir = rank_dir();
    search_result *r = malloc(sizeof *r);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        config c;
        costs k;
        plan_world w;
        search_free keys;
        table_of(&k, 1e9, 1);
        if (of[i].host) k.host_link = k.host_copy = (costs_figure){1e9, 0.1};
        if (of[i].disk) k.disk_copy = (costs_figure){1e9, 0.1};
        rank_config(&c, dir, gpt, of[i].more);
        world_of(&w, of[i].world);
        OK(search_free_of(&keys, of[i].free));
        OK(search_run(r, &c, &w, &k, &keys));
        if (r->layouts != of[i].layouts)
            fail_msg("%s on %s, %s: %d layouts, expected %d", of[i].more, of[i].world, of[i].free ? of[i].free : "",
                     r->layouts, of[i].layouts);
        assert_true(r->simulated <= SEARCH_SIMULATED + 1 && r->simulated >= r->found);
        // the INI's own layout, if it is possible, comes once more among the others, and is simulated once
        int possible = r->layouts - r->refused - r->too_large - r->fits;
        if (possible <= SEARCH_SIMULATED) assert_int_equal(r->simulated, possible);
        costs_free(&k), plan_world_close(&w);
    }
    free(r);
    drop_dir(dir);
}

// The INI's own layout is looked at as the INI has it.
static void the_own_layout_is_the_inis(void **state) {
    (void)state;
    static const char *const schedules[] = {"1f1b", "interleaved\nchunks = 2", "zb-h1", "zb-v\nchunks = 2", "gpipe"};
    static const char *const again[] = {"none", "selective", "block"};
    char *dir = rank_dir(), more[256];
    search_result *r = malloc(sizeof *r);
    for (int i = 0; i < 5; i++) {
        config c;
        costs k;
        plan_world w;
        table_of(&k, 1e9, 1);
        snprintf(more, sizeof more,
                 "[parallel]\npipeline = 2\ntensor = 2\nzero = %d\nsequence = %s\nschedule = %s\n"
                 "recompute = %s\n",
                 i % 3, i % 2 ? "yes" : "no", schedules[i], again[i % 3]);
        rank_config(&c, dir, llama, more);
        world_of(&w, "1x8");
        OK(search_run(r, &c, &w, &k, &(search_free){.own = true}));
        const search_choice *is = &r->at[0].is;
        assert_true(r->found == 1 && r->at[0].given && is->pipeline == 2 && is->tensor == 2 && is->context == 1);
        assert_true(is->data == 2 && is->zero == i % 3 && is->sequence == i % 2 && (int)is->recompute == i % 3);
        assert_true(is->schedule == c.parallel.schedule && is->chunks == (i == 1 || i == 3 ? 2 : 1));
        assert_true(is->micro == 2 && is->lanes == 16 && is->slices == 4 && is->offload == OFFLOAD_NONE);
        costs_free(&k), plan_world_close(&w);
    }
    free(r);
    drop_dir(dir);
}

// One layout is listed once, and one that differs from the INI's own in a single setting is another one.
static void layouts_that_differ_are_others(void **state) {
    (void)state;
    char *dir = rank_dir(), more[128];
    search_result *r = malloc(sizeof *r);
    for (int own = 0; own < 2; own++) {
        config c;
        costs k;
        plan_world w;
        int with[2] = {0}, given = 0;
        table_of(&k, 1e9, 1);
        snprintf(more, sizeof more, "[batch]\nlanes = 1\n[parallel]\ntensor = 2\nsequence = %s\n", own ? "yes" : "no");
        rank_config(&c, dir, llama, more);
        world_of(&w, "1x2");
        OK(search_run(r, &c, &w, &k, &(search_free){0}));
        for (int i = 0; i < r->found; i++) {
            const search_found *f = &r->at[i];
            if (f->is.tensor == 2 && f->is.recompute == RECOMPUTE_NONE) with[f->is.sequence]++;
            given += f->given && f->is.sequence == own;
        }
        assert_true(with[0] == 1 && with[1] == 1 && given == 1);
        costs_free(&k), plan_world_close(&w);
    }
    free(r);
    drop_dir(dir);
}

// --- the machine -----------------------------------------------------------------------------------------------------

// Ranks of a CPU share a node's cores if they have more threads than it: how long each computes, and not where a
// table is of something else. What so many ranks have measured together says that already.
static void ranks_of_a_cpu_share_its_cores(void **state) {
    (void)state;
    const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    static const char of_cpu[] = "lockstep costs 2\ndevice %s\nmemory 1e9 bytes\ncopy 1e6 bytes/s 0 spread\n%s"
                                 "beside 1 0 spread\nlink node 1e6 bytes/s 0 us 0 spread\n"
                                 "link rack 1e30 bytes/s 0 us 0 spread\nend %d\n";
    static const struct {
        const char *device;
        bool tiles;
        int threads;  // of a rank, in halves of all cores
        const char *world;
        double slower;
    } of[] = {{"cpu x", false, 2, "1x1", 1}, {"cpu x", false, 2, "1x3", 3}, {"cpu x", false, 2, "2x3", 3},
              {"cpu x", false, 4, "1x3", 6}, {"other", false, 2, "1x3", 1}, {"cpu x", true, 2, "1x3", 1},
              {"cpu x", false, 2, "3x1", 1}};
    char *dir = rank_dir(), text[512], more[128];
    search_result *r = malloc(sizeof *r);
    double alone = 0;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        config c;
        costs k;
        plan_world w;
        snprintf(text, sizeof text, of_cpu, of[i].device, of[i].tiles ? "tiles 1 1 1 0\n" : "", of[i].tiles ? 6 : 5);
        snprintf(more, sizeof more, "[batch]\nglobal = 24\nlanes = 8\nmicro = 1\n[device]\nthreads = %d\n",
                 of[i].threads * cores / 2);
        OK(costs_parse(&k, "test", text));
        rank_config(&c, dir, gpt, more);
        world_of(&w, of[i].world);
        OK(search_run(r, &c, &w, &k, &(search_free){.own = true}));
        close_to(of[i].world, r->slower, of[i].slower);
        if (w.world == 3 && i == 1) alone = r->at[0].compute_s / 3;
        if (w.world == 3) close_to("computing", r->at[0].compute_s, of[i].slower * alone);
        costs_free(&k), plan_world_close(&w);
    }
    free(r);
    drop_dir(dir);
}

// Of a call that three ranks have measured, on as many cores as one needs: three wait for as long as was measured.
static void lines_of_all_ranks_are_as_they_were(void **state) {
    (void)state;
    const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    char *dir = rank_dir(), text[512], more[128];
    search_result *r = malloc(sizeof *r);
    double step[3];
    for (int i = 0; i < 3; i++) {  // alone on its cores; three ranks, measured by three, and by two
        config c;
        costs k;
        plan_world w;
        snprintf(text, sizeof text,
                 "lockstep costs 2\ndevice %s\nmemory 1e9 bytes\ncopy 1e30 bytes/s 0 spread\nbeside 1 0 spread\n"
                 "link node 1e30 bytes/s 0 us 0 spread\ncomm all_to_all node %d 1 1e6 us 0 spread\nend 5\n",
                 i ? "cpu x" : "other", i == 2 ? 2 : 3);
        snprintf(more, sizeof more, "[device]\nthreads = %d\n", 2 * cores);
        OK(costs_parse(&k, "test", text));
        rank_config(&c, dir, gpt, more);
        world_of(&w, "1x3");
        OK(search_run(r, &c, &w, &k, &(search_free){.own = true}));
        assert_true(r->slower == (i ? 6 : 1));
        step[i] = r->at[0].step_s;
        costs_free(&k), plan_world_close(&w);
    }
    close_to("measured by three", step[1], step[0]);
    close_to("measured by two, of whom each had half of a core", step[2], 1.5 * step[0]);
    free(r);
    drop_dir(dir);
}

// --- a step ----------------------------------------------------------------------------------------------------------

// What one rank of a pipeline computes in a step, by its actions.
static double computed(const config *c, const plan_world *w, int rank, const costs *k, plan_rank *p) {
    const price_machine m = {k, 1, 1};
    session s = {0};
    price_blocks b;
    double sum = 0;
    OK(plan_begin(&s, c, rank, w));
    OK(plan_count(&s, p));
    price_time *time = calloc((size_t)s.runner.actions.count, sizeof *time);
    OK(price_open(&b, &s, &m));
    OK(price_list(&s, &m, &b, time));
    for (int i = 0; i < s.runner.actions.count; i++) sum += time[i].compute.s;
    price_close(&b), session_close(&s);
    free(time);
    return sum;
}

// Two pipelines of two stages that have not as much to do: the larger one's work, the share of both in which they wait,
// what all ranks send, and the state of the rank that has most.
static void a_step_has_parts(void **state) {
    (void)state;
    static const struct {
        const char *more, *world;
    } of[] = {{"stages = 1 5\n", "2x2"},
              {"stages = 5 1\n", "2x2"},
              {"stages = 3 3\n[checkpoint]\nasync = yes\n", "2x2"},
              {"stages = 3 3\n[batch]\nlanes = 8\n", "4x1x2"},
              {"stages = 3 3\ntensor = 2\nslices = 2\n", "2x4"}};
    char *dir = rank_dir(), more[128];
    search_result *r = malloc(sizeof *r);
    costs k;
    table_of(&k, 1e9, 1);
    for (int i = 0; i < 5; i++) {
        config c;
        plan_rank p[2];
        plan_world w;
        double work[2];
        snprintf(more, sizeof more, "[parallel]\npipeline = 2\nzero = 1\n%s", of[i].more);
        rank_config(&c, dir, gpt, more);
        world_of(&w, of[i].world);
        grid g = config_grid(&c, w.world);
        OK(search_run(r, &c, &w, &k, &(search_free){.own = true}));
        const search_found *f = &r->at[0];
        for (int s = 0; s < 2; s++) work[s] = computed(&c, &w, grid_rank(&g, (grid_place){.stage = s}), &k, &p[s]);
        close_to("work", f->compute_s, fmax(work[0], work[1]));
        double alone = f->compute_s + f->waits_s;
        close_to("bubble", f->bubble, 1 - (work[0] + work[1]) / (2 * alone));
        close_to("left over", f->exposed_s, f->step_s - alone);
        assert_true(f->waits_s >= 0 && f->exposed_s > 0 && f->slowed_s == 0);
        int64_t sent[COSTS_LEVELS] = {0};
        size_t state = 0, memory = 0;
        for (int s = 0; s < 2; s++) {
            int64_t others = w.world / 2;
            sent[0] += others * (p[s].sent - p[s].sent_far), sent[1] += others * (p[s].sent_far - p[s].sent_racks);
            sent[2] += others * p[s].sent_racks;
            size_t own = p[s].masters + p[s].moments, all = plan_bytes(&p[s]) - p[s].ring - p[s].snapshots;
            state = own > state ? own : state, memory = all > memory ? all : memory;
        }
        for (int level = 0; level < COSTS_LEVELS; level++) assert_int_equal(f->sent[level], sent[level]);
        assert_true(i == 3 ? sent[0] == 0 && sent[1] > 0 && sent[2] > 0 : sent[0] > 0 && sent[1] > 0 && sent[2] == 0);
        assert_true((p[0].snapshots > 0) == (i == 2));
        assert_true(f->state == state && f->memory == memory && f->host == 0 && f->disk == 0);
        model *net;
        OK(model_open(&net, model_types[c.model.type], &c.model.of));
        close_to("flops", r->flops, 16 * net->flops), close_to("tokens", r->units, 16 * 16);
        assert_string_equal(r->unit, "tok");
        model_close(net), plan_world_close(&w);
    }
    costs_free(&k);
    free(r);
    drop_dir(dir);
}

// Ranks that share layers wait for each other, so nothing hides: the error is that of each part, as much as it is long.
static void errors_are_of_their_parts(void **state) {
    (void)state;
    char *dir = rank_dir();
    search_result *r = malloc(sizeof *r);
    plan_rank p;
    costs k;
    OK(costs_parse(&k, "test",
                   "lockstep costs 2\ndevice test\nmemory 1e9 bytes\ncopy 1e10 bytes/s 0.125 spread\n"
                   "link node 1e9 bytes/s 1 us 0.5 spread\nend 3\n"));
    layout_of(r, &p, dir, llama, "[parallel]\ntensor = 2\n", &k, "1x2");
    const search_found *f = &r->at[0];
    double sends = f->step_s - f->compute_s;
    assert_true(sends > 0.1 * f->step_s && f->compute_s > 0.1 * f->step_s);
    close_to("error", f->error_s, 0.125 * f->compute_s + 0.5 * sends);
    costs_free(&k);
    free(r);
    drop_dir(dir);
}

// What a rank needs at least is no more than what it takes: of models with small activations, each layout
// fits into just the bytes that it takes, and not into one less.
static void what_fits_is_not_left_out(void **state) {
    (void)state;
    static const char wide[] = "[model]\ntype = gpt\nlayers = 8\nheads = 1\nembed = 96\ncontext = 8\nvocab = 131\n"
                               "[batch]\nglobal = 8\nmicro = 1\nlanes = 8\n[reduce]\nbucket_mb = 0.05\n";
    static const char *const kinds[] = {"", "[precision]\ncompute = bf16\n"}, *const away[] = {"no", "host", "nvme"};
    char *dir = rank_dir(), more[256];
    search_result *r = malloc(sizeof *r);
    for (int i = 0; i < 2 * 3 * 4 * 2; i++) {
        int zero = i % 4, pipeline = 1 + i / 4 % 2, kind = i / 8 % 2, off = i / 16;
        config c;
        costs k;
        plan_world w;
        if (off == 2 && (zero == 0 || pipeline > 1)) continue;
        table_of(&k, 1e12, 1);
        k.host_link = k.host_copy = k.disk_copy = (costs_figure){1e9, 0.1};
        snprintf(more, sizeof more, "%s[parallel]\nzero = %d\npipeline = %d\noffload = %s\n", kinds[kind], zero,
                 pipeline, away[off]);
        rank_config(&c, dir, wide, more);
        world_of(&w, pipeline == 2 ? "1x16" : "1x8");
        OK(search_run(r, &c, &w, &k, &(search_free){.own = true}));
        size_t memory = r->at[0].memory;
        k.memory = (double)memory;
        if (search_run(r, &c, &w, &k, &(search_free){.own = true}) != ERR_OK)
            fail_msg("%s: takes %zu bytes, and does not fit into them", more, memory);
        k.memory = (double)memory - 1;
        assert_int_equal(search_run(r, &c, &w, &k, &(search_free){.own = true}), ERR_CONFIG);
        costs_free(&k), plan_world_close(&w);
    }
    free(r);
    drop_dir(dir);
}

// A pipeline is cut where its slowest stage has least to do, of all places, by the time of both passes.
static void stages_are_cut_by_time(void **state) {
    (void)state;
    char *dir = rank_dir();
    search_result *r = malloc(sizeof *r);
    config c, one;
    costs k;
    plan_world w, alone;
    session s = {0};
    price_blocks b;
    int cuts = 0;
    // layers take long in backward alone, and what makes words in both passes
    OK(costs_parse(&k, "test",
                   "lockstep costs 2\ndevice test\nmemory 1e9 bytes\ncopy 1e9 bytes/s 0 spread\n"
                   "link node 1e9 bytes/s 0 us 0 spread\nreach attention_backward 1e-4 0 spread\nend 4\n"));
    rank_config(&c, dir, gpt, "[model]\nvocab = 2048\n");
    rank_config(&one, dir, gpt, "[model]\nvocab = 2048\n[batch]\nglobal = 1\nlanes = 1\n");
    world_of(&w, "1x2"), world_of(&alone, "1x1");
    OK(plan_begin(&s, &one, 0, &alone));
    const price_machine m = {&k, 1, 1};
    OK(price_open(&b, &s, &m));
    assert_int_equal(b.blocks, 6);
    OK(search_run(r, &c, &w, &k, &(search_free){0}));
    double least = INFINITY;
    for (int cut = 1; cut < 6; cut++) {
        double part[2] = {0};
        for (int i = 0; i < 6; i++) part[i >= cut] += b.part[0][i].compute.s + b.part[1][i].compute.s;
        least = fmin(least, fmax(part[0], part[1]));
    }
    for (int i = 0; i < r->found; i++) {
        const search_found *f = &r->at[i];
        if (f->is.pipeline != 2 || f->is.chunks > 1 || f->is.recompute != RECOMPUTE_NONE) continue;
        int first = atoi(f->stages);
        double part[2] = {0};
        for (int n = 0; n < 6; n++) part[n >= first] += b.part[0][n].compute.s + b.part[1][n].compute.s;
        close_to(f->stages, fmax(part[0], part[1]), least);
        cuts++;
    }
    assert_true(cuts > 0);
    price_close(&b), session_close(&s);
    costs_free(&k), plan_world_close(&w), plan_world_close(&alone);
    free(r);
    drop_dir(dir);
}

static err_t keep_total(void *ctx, const simulate_lists *lists, const simulation *s) {
    assert_int_equal(lists->pipeline, s->ranks);
    *(double *)ctx = s->total;
    return ERR_OK;
}

// A layout that was found, and one that is the INI's own with its cuts and its deal, is drawn as it was simulated.
static void what_is_drawn_is_what_was_found(void **state) {
    (void)state;
    static const char *const own[] = {NULL, "[parallel]\npipeline = 2\nstages = 1 5\n",
                                      "[parallel]\npipeline = 2\ndeal = 12,4\n",
                                      "[parallel]\nzero = 2\ndeal = 7,1,4,4\n"};
    char *dir = rank_dir(), more[256];
    search_result *r = malloc(sizeof *r);
    for (int i = 0; i < 4; i++) {
        config c;
        costs k;
        plan_world w;
        int cuts = 0;
        OK(costs_parse(&k, "test",
                       "lockstep costs 2\ndevice test\nmemory 1e9 bytes\ncopy 1e9 bytes/s 0 spread\n"
                       "link node 1e9 bytes/s 0 us 0 spread\nreach attention_backward 1e-4 0 spread\nend 4\n"));
        snprintf(more, sizeof more, "[model]\nvocab = 2048\n%s", own[i] ? own[i] : "");
        rank_config(&c, dir, gpt, more);
        world_of(&w, "1x4");
        OK(search_run(r, &c, &w, &k, &(search_free){.own = own[i] != NULL}));
        for (int n = 0; n < r->found; n++) {
            double total = 0;
            OK(search_walk(&r->at[n], &c, &w, &k, keep_total, &total));
            close_to(r->at[n].stages, total, r->at[n].step_s);
            cuts += *r->at[n].stages != 0;
        }
        assert_true(r->found > 0 && (cuts > 0 || i > 1));
        costs_free(&k), plan_world_close(&w);
    }
    free(r);
    drop_dir(dir);
}

// All layouts of these ranks, each simulated as an own one: the fastest one's time, and how many fit.
static double simulate_all(const config *given, const plan_world *w, const costs *k, search_result *r, int *fit) {
    static const struct {
        pipeline_kind kind;
        int chunks;
    } schedules[] = {{PIPELINE_1F1B, 1},        {PIPELINE_INTERLEAVED, 2}, {PIPELINE_INTERLEAVED, 4},
                     {PIPELINE_INTERLEAVED, 8}, {PIPELINE_ZB_H1, 1},       {PIPELINE_ZB_V, 1}};
    double best = INFINITY;
    *fit = 0;
    for (int i = 0; i < 4 * 3 * 4 * 6 * 2 * 3; i++) {
        config c = *given;
        int pipeline = 1 << i % 4, tensor = 1 << i / 4 % 3, zero = i / 12 % 4, schedule = i / 48 % 6;
        bool rows = i / 288 % 2;
        if ((pipeline == 1 && schedule) || (tensor == 1 && rows) || (zero && pipeline * tensor >= w->world)) continue;
        c.parallel.pipeline = pipeline, c.parallel.tensor = tensor, c.parallel.zero = zero;
        c.parallel.schedule = schedules[schedule].kind, c.parallel.chunks = schedules[schedule].chunks;
        c.parallel.sequence = rows, c.parallel.recompute = (recomputation)(i / 576);
        if (!config_would(&c, w->world)) continue;
        err_t rc = search_run(r, &c, w, k, &(search_free){.own = true});
        assert_true(rc == ERR_OK || rc == ERR_CONFIG);
        if (rc != ERR_OK) continue;
        best = fmin(best, r->at[0].step_s), ++*fit;
    }
    return best;
}

// Of 24 layouts of two ranks those are simulated that fit into a device's memory, however much it has.
static void all_that_fit_are_simulated(void **state) {
    (void)state;
    char *dir = rank_dir();
    search_result *r = malloc(sizeof *r);
    config c;
    costs k;
    plan_world w;
    int fit, seen = 0, before = -1;
    table_of(&k, 1e12, 1);
    rank_config(&c, dir, gpt, "[model]\nembed = 64\ncontext = 32\n[batch]\nglobal = 32\nmicro = 2\n");
    world_of(&w, "1x2");
    for (k.memory = 3.6e6; k.memory < 7.5e6; k.memory *= 1.05) {
        simulate_all(&c, &w, &k, r, &fit);
        err_t rc = search_run(r, &c, &w, &k, &(search_free){0});
        assert_int_equal(rc, fit ? ERR_OK : ERR_CONFIG);
        if (fit) assert_int_equal(r->simulated, fit);
        assert_true(fit >= before);
        seen += fit != before, before = fit;
    }
    assert_true(seen >= 8 && before == 24);
    costs_free(&k), plan_world_close(&w);
    free(r);
    drop_dir(dir);
}

// Few layouts are simulated, those that a guess puts first. The fastest of all is among them, on machines where
// computing, or links of one level or another, or their latency, take most of the time.
static void the_guess_keeps_the_fastest(void **state) {
    (void)state;
    static const char even[] = "link node 1e9 bytes/s 2 us 0 spread\nlink rack 1e9 bytes/s 2 us 0 spread\n",
                      slow[] = "link node 2e7 bytes/s 2 us 0 spread\nlink rack 2e7 bytes/s 2 us 0 spread\n",
                      late[] = "link node 1e9 bytes/s 100 us 0 spread\nlink rack 1e9 bytes/s 100 us 0 spread\n",
                      slow_racks[] = "link node 1e9 bytes/s 2 us 0 spread\nlink rack 1e7 bytes/s 20 us 0 spread\n",
                      late_racks[] = "link node 1e10 bytes/s 1 us 0 spread\nlink rack 1e8 bytes/s 200 us 0 spread\n",
                      slow_spine[] = "link node 1e10 bytes/s 0 us 0 spread\nlink rack 1e10 bytes/s 0 us 0 spread\n"
                                     "link spine 2e7 bytes/s 0 us 0 spread\n";
    static const struct {
        const char *model, *world, *links;
    } of[] = {{gpt, "1x8", even},         {gpt, "1x8", slow},           {llama, "1x8", slow},
              {gpt, "2x4", late},         {gpt, "2x4", late_racks},     {gpt, "4x2", slow_racks},
              {llama, "2x4", slow_racks}, {llama, "8x1", late_racks},   {gpt, "8x1x8", slow_spine},
              {llama, "1x4", slow_spine}, {llama, "8x1x8", slow_spine}, {llama, "4x2x2", slow_spine}};
    char *dir = rank_dir(), text[512];
    search_result *r = malloc(sizeof *r);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        config c;
        costs k;
        plan_world w;
        snprintf(text, sizeof text,
                 "lockstep costs 2\ndevice t\nmemory 1e9 bytes\ncopy 2e9 bytes/s 0 spread\n%send %d\n", of[i].links,
                 of[i].links == slow_spine ? 5 : 4);
        OK(costs_parse(&k, "test", text));
        world_of(&w, of[i].world);
        rank_config(&c, dir, of[i].model, "");
        OK(search_run(r, &c, &w, &k, &(search_free){0}));
        int fit;
        double found = r->at[0].step_s, best = simulate_all(&c, &w, &k, r, &fit);
        if (found > 1.000001 * best)
            fail_msg("%zu, on %s: the fastest found takes %g s, and one %g s", i, of[i].world, found, best);
        costs_free(&k), plan_world_close(&w);
    }
    free(r);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_are_counted),
                                       cmocka_unit_test(the_own_layout_is_the_inis),
                                       cmocka_unit_test(layouts_that_differ_are_others),
                                       cmocka_unit_test(ranks_of_a_cpu_share_its_cores),
                                       cmocka_unit_test(lines_of_all_ranks_are_as_they_were),
                                       cmocka_unit_test(a_step_has_parts),
                                       cmocka_unit_test(errors_are_of_their_parts),
                                       cmocka_unit_test(what_fits_is_not_left_out),
                                       cmocka_unit_test(stages_are_cut_by_time),
                                       cmocka_unit_test(what_is_drawn_is_what_was_found),
                                       cmocka_unit_test(all_that_fit_are_simulated),
                                       cmocka_unit_test(the_guess_keeps_the_fastest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
