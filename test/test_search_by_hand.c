// test/test_search_by_hand.c: what a search looks at, counted by hand; what it takes a machine for; what a step's time
// is made of; and every field that it prints, as text and as JSON.
#include "test/support/search.h"
#include "trainer/config/table.h"
#include "trainer/costs/failures.h"

#include <jansson.h>

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

// --- what is printed -------------------------------------------------------------------------------------------------

static const char table[] = "lockstep costs 2\ndevice a machine\nmemory 1e9 bytes\npeak fp32 1e10 flop/s 0.1 spread\n"
                            "copy 1e10 bytes/s 0.1 spread\nlink node 1e9 bytes/s 2 us 0.1 spread\n"
                            "link rack 1e8 bytes/s 20 us 0.2 spread\nlink spine 5e7 bytes/s 30 us 0.2 spread\n"
                            "host_link 1e9 bytes/s 0.1 spread\nhost_copy 1e9 bytes/s 0.1 spread\nend 8\n";
static const char cluster[] = "[cluster]\nnodes = 4\ndevices = 2\nracks = 2\nspares = 1\n[stragglers]\nshare = 0.25\n"
                              "slower = 2\n[failures]\ngpu_mtbf_h = 5\nruns = 20\ndays = 3\n";

typedef struct run {
    config c;
    costs k;
    plan_world w;
    cluster_file file;
    char costs_at[1024], cluster_at[1024];
    search_result *r;
} run;

static void open_run(run *x, const char *dir, const char *more, bool own) {
    x->r = malloc(sizeof *x->r);
    write_text(dir, "t.costs", table), write_text(dir, "c.ini", cluster);
    snprintf(x->costs_at, sizeof x->costs_at, "%s/t.costs", dir);
    snprintf(x->cluster_at, sizeof x->cluster_at, "%s/c.ini", dir);
    rank_config(&x->c, dir, llama, more);
    OK(costs_load(&x->k, x->costs_at));
    OK(cluster_file_read(&x->file, x->cluster_at));
    OK(cluster_file_costs(&x->k, &x->file, x->cluster_at));
    world_of(&x->w, x->cluster_at);
    OK(search_run(x->r, &x->c, &x->w, &x->k, &(search_free){.own = own}));
}

static void close_run(run *x) {
    costs_free(&x->k), plan_world_close(&x->w);
    free(x->r);
}

static char *printed(const run *x, bool own, bool json) {
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    const search_asked asked = {.cluster = x->cluster_at, .costs = x->costs_at, .json = json, .own = own};
    OK(verb_search(&x->c, &asked, f));
    fclose(f);
    return text;
}

static double used(const run *x, const search_found *f) { return x->r->flops / f->step_s / 1e10 / 8; }

static failure_times fails(const run *x, failure_rules *rules) {
    failure_times t;
    failures_of_plan(rules, &x->file, (double)x->r->at[0].state, x->r->at[0].step_s);
    OK(failures_simulate(rules, &t));
    return t;
}

// A number of an object, with as many digits as it is printed with.
static void number_is(const json_t *of, const char *key, double wanted) {
    const json_t *x = json_object_get(of, key);
    if (!json_is_number(x)) fail_msg("no number %s", key);
    double found = json_number_value(x);
    if (fabs(found - wanted) > 6e-4 * fabs(wanted)) fail_msg("%s is %g, expected %g", key, found, wanted);
}

static void word_is(const json_t *of, const char *key, const char *section, const char *name, int value) {
    char word[CONFIG_WORD];
    config_word(config_key(config_find(NULL, section, name))->words, value, word);
    assert_string_equal(json_string_value(json_object_get(of, key)), word);
}

static void json_has_every_field(void **state) {
    (void)state;
    char *dir = rank_dir(), *text;
    run x;
    json_error_t error;
    failure_rules rules;
    open_run(&x, dir, "[parallel]\npipeline = 2\n", false);
    text = printed(&x, false, true);
    json_t *all = json_loads(text, 0, &error), *found = json_object_get(all, "found");
    assert_non_null(all);
    number_is(all, "ranks", 8), number_is(all, "nodes", 4);
    number_is(all, "layouts", x.r->layouts), number_is(all, "refused", x.r->refused);
    number_is(all, "too_large", x.r->too_large), number_is(all, "simulated", x.r->simulated);
    assert_true(json_is_false(json_object_get(all, "sheet")) && json_is_true(json_object_get(all, "fits")));
    assert_string_equal(json_string_value(json_object_get(all, "costs")), x.costs_at);
    const failure_times t = fails(&x, &rules);
    const json_t *f = json_object_get(all, "failures");
    number_is(f, "interruptions", t.interruptions), number_is(f, "days", 3);
    number_is(f, "useful", t.useful / 259200), number_is(f, "saving", t.saving / 259200);
    number_is(f, "lost", t.lost / 259200), number_is(f, "down", t.down / 259200);
    number_is(f, "waiting", t.waiting / 259200), number_is(f, "slow", t.slow / 259200);
    number_is(f, "every_s", rules.every_s), number_is(f, "save_s", rules.save_s);
    number_is(f, "best_s", failures_best(&rules));
    number_is(f, "units_per_s", t.useful / 259200 * x.r->units / x.r->at[0].step_s);
    assert_int_equal(json_array_size(found), x.r->found);
    int cut = 0;
    for (int i = 0; i < x.r->found; i++) {
        const search_found *b = &x.r->at[i];
        const json_t *a = json_array_get(found, (size_t)i);
        number_is(a, "tensor", b->is.tensor), number_is(a, "context", b->is.context);
        number_is(a, "pipeline", b->is.pipeline), number_is(a, "data", b->is.data);
        number_is(a, "zero", b->is.zero), number_is(a, "chunks", b->is.chunks);
        word_is(a, "schedule", "parallel", "schedule", b->is.schedule);
        word_is(a, "recompute", "parallel", "recompute", b->is.recompute);
        word_is(a, "offload", "parallel", "offload", b->is.offload);
        assert_int_equal(json_is_true(json_object_get(a, "sequence")), b->is.sequence);
        number_is(a, "micro", 2), number_is(a, "lanes", 16), number_is(a, "slices", 4);
        assert_string_equal(json_string_value(json_object_get(a, "stages")), b->stages);
        assert_int_equal(json_is_true(json_object_get(a, "given")), b->given);
        number_is(a, "ms", 1e3 * b->step_s), number_is(a, "error_ms", 1e3 * b->error_s);
        number_is(a, "units_per_s", 32 * 16 / b->step_s), number_is(a, "mfu", used(&x, b));
        number_is(a, "memory", (double)b->memory), number_is(a, "host", (double)b->host);
        number_is(a, "disk", 0), number_is(a, "compute_ms", 1e3 * b->compute_s);
        number_is(a, "bubble", b->bubble), number_is(a, "exposed_ms", 1e3 * b->exposed_s);
        number_is(a, "slow_devices", 2), number_is(a, "slowed_ms", 1e3 * b->slowed_s);
        for (size_t k = 0; k < COSTS_LEVELS; k++)
            assert_int_equal(json_integer_value(json_array_get(json_object_get(a, "sent"), k)), b->sent[k]);
        cut += *b->stages != 0;
    }
    assert_true(cut > 0);
    json_decref(all);
    free(text);
    close_run(&x);
    drop_dir(dir);
}

// What is not yet of the text, and goes on from there.
static void next(const char **at, const char *wanted) {
    size_t n = strlen(wanted);
    if (strncmp(*at, wanted, n) != 0) fail_msg("found `%.160s`, expected `%s`", *at, wanted);
    *at += n;
}

static void say(const char **at, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(const char **at, const char *format, ...) {
    char wanted[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(wanted, sizeof wanted, format, args);
    va_end(args);
    next(at, wanted);
}

// One layout's lines, but for the comparison with the next one, and what is to be pasted.
static void layout_is(const char **at, const run *x, int i) {
    const search_found *f = &x->r->at[i];
    const search_choice *is = &f->is;
    char word[CONFIG_WORD];
    say(at, "\n%3d  tensor %d x pipeline %d x data %d, zero %d", i + 1, is->tensor, is->pipeline, is->data, is->zero);
    config_word(config_key(config_find(NULL, "parallel", "schedule"))->words, is->schedule, word);
    if (is->pipeline > 1) say(at, ", %s", word);
    if (is->chunks > 1) say(at, " of %d chunks", is->chunks);
    if (is->recompute) say(at, ", recompute %s", is->recompute == RECOMPUTE_BLOCK ? "block" : "selective");
    if (is->sequence) say(at, ", sequence");
    if (is->offload) say(at, ", offload host");
    say(at, "%s\n     %.2f ms +- %.0f %%   %.0f tok/s   mfu %.1f %%   memory %.1f MB   bubble %.1f %%   ",
        f->given ? "   this INI" : "", 1e3 * f->step_s, 100 * f->error_s / f->step_s, 512 / f->step_s, 100 * used(x, f),
        1e-6 * (double)f->memory, 100 * f->bubble);
    say(at, "communication left over %.2f ms\n", 1e3 * f->exposed_s);
    if (f->host) say(at, "     of the host's memory: %.1f MB\n", 1e-6 * (double)f->host);
    say(at, "     sent in a step: %.1f MB within nodes, %.1f MB between nodes, %.1f MB between racks\n",
        1e-6 * (double)f->sent[0], 1e-6 * (double)f->sent[1], 1e-6 * (double)f->sent[2]);
    say(at, "     2 of 8 devices compute 2 times as long: %.2f ms of the step\n", 1e3 * f->slowed_s);
}

// The reason that is said is the largest of three, and it is in doubt where the steps differ by less than the error.
static void reason_is(const char **at, const search_found *f, const search_found *next_one) {
    double work = next_one->compute_s - f->compute_s, waits = next_one->waits_s - f->waits_s,
           left = next_one->exposed_s - f->exposed_s, most = fmax(work, fmax(waits, left));
    say(at, "     before the next: ");
    if (next_one->step_s < 1.001 * f->step_s && most < 0.001 * f->step_s) {
        if (f->memory < next_one->memory)
            say(at, "as fast, with %.1f MB less memory\n", 1e-6 * (double)(next_one->memory - f->memory));
        else say(at, "as fast, and as large\n");
        return;
    }
    if (work == most) say(at, "its busiest rank computes %.2f ms less", 1e3 * most);
    else if (waits == most) say(at, "its stages wait %.2f ms less for each other", 1e3 * most);
    else say(at, "%.2f ms less of its communication is left over", 1e3 * most);
    say(at, "%s\n", next_one->step_s - f->step_s < f->error_s ? "; both are within the error" : "");
}

static void pasted(const char **at, const run *x, int i) {
    char lines[SEARCH_LINES];
    search_lines(&x->c, &x->r->at[i], lines);
    for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n")) say(at, "       %s\n", line);
}

static void failures_are(const char **at, const run *x, bool own) {
    failure_rules rules;
    const failure_times t = fails(x, &rules);
    const search_found *f = &x->r->at[0];
    double useful = t.useful / 259200;
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    failures_print(out, &rules, &t);
    fclose(out);
    say(at, "\n%s runs on a cluster whose parts fail:\n%s", own ? "the layout" : "the fastest layout", text);
    say(at, "        a save copies the fullest rank's %.1f MB of state in %.3f s: save_gb_s = 20\n",
        1e-6 * (double)f->state, (double)f->state / 20e9);
    say(at, "in all  %.0f steps a day and %.0f tok/s, where a run without failures has %.0f and %.0f\n",
        useful * 86400 / f->step_s, useful * 512 / f->step_s, 86400 / f->step_s, 512 / f->step_s);
    free(text);
}

static void text_has_every_field(void **state) {
    (void)state;
    char *dir = rank_dir(), *text;
    for (int own = 0; own < 2; own++) {
        run x;
        bool given = false;
        open_run(&x, dir, own ? "[parallel]\npipeline = 2\noffload = host\nzero = 1\n" : "", own);
        const char *at = text = printed(&x, own, false);
        const search_result *r = x.r;
        if (own) say(&at, "layout  this INI's own, 8 ranks on 4 nodes\n");
        else
            say(&at, "search  8 ranks on 4 nodes: %d layouts, of which %d are refused, %d too large, %d simulated\n",
                r->layouts, r->refused, r->too_large, r->simulated);
        for (int i = 0; i < r->found; i++) {
            given |= r->at[i].given && i < SEARCH_SHOWN;
            if (i >= SEARCH_SHOWN && !r->at[i].given) continue;
            layout_is(&at, &x, i);
            if (i + 1 < r->found) reason_is(&at, &r->at[i], &r->at[i + 1]);
            pasted(&at, &x, i);
        }
        assert_true(own ? given && r->at[0].host > 0 : r->found > SEARCH_SHOWN);
        failures_are(&at, &x, own);
        int64_t all = r->looked[0] + r->looked[1] + r->looked[2];
        assert_true(all > 0 && r->looked[FROM_ROOFLINE] == all);
        say(&at,
            "\ntimes   of %lld operations looked up, 0 %% are in the table, 0 %% are scaled from near shapes, 100 %% ",
            (long long)all);
        say(&at, "are a roofline's\nfrom    %s: measured on \"a machine\"\n        links and slow devices: %s\n",
            x.costs_at, x.cluster_at);
        assert_string_equal(at, "");
        free(text);
        close_run(&x);
    }
    drop_dir(dir);
}

// Of one node nothing goes between nodes, and of a rank alone nothing at all; whole layers are said to stay whole, and
// an own layout that does not fit is.
static void text_is_of_the_place(void **state) {
    (void)state;
    static const struct {
        const char *world, *sent;
        int commas;
    } of[] = {{"1x1", NULL, 0},
              {"1x2", " MB within nodes\n", 0},
              {"2x1", " MB between nodes\n", 1},
              {"2x1x2", " MB between racks\n", 2}};
    char *dir = rank_dir(), *text;
    run x;
    size_t n;
    open_run(&x, dir, "", true);
    config c;
    rank_config(&c, dir, gpt, "");
    for (int i = 0; i < 4; i++) {
        FILE *f = open_memstream(&text, &n);
        OK(verb_search(&c, &(search_asked){.cluster = of[i].world, .costs = x.costs_at}, f));
        fclose(f);
        const char *sent = strstr(text, "     sent in a step: ");
        assert_int_equal(sent != NULL, i > 0);
        int commas = 0;
        for (const char *p = sent; p && *p != '\n'; p++) commas += *p == ',';
        assert_int_equal(commas, of[i].commas);
        if (sent) assert_non_null(strstr(text, of[i].sent));
        assert_non_null(strstr(text, "        layers stay whole, as slices = 1 decides the run's bits: --free slices"));
        assert_non_null(strstr(text, i < 2 ? " on 1 node: " : " on 2 nodes: "));
        assert_null(strstr(text, "needs more memory"));
        assert_null(strstr(text, "links and slow devices"));
        assert_null(strstr(text, "whose parts fail"));
        free(text);
    }
    FILE *f = open_memstream(&text, &n);
    OK(verb_search(&c, &(search_asked){.cluster = "1x2", .costs = x.costs_at, .free = "slices"}, f));
    fclose(f);
    assert_null(strstr(text, "layers stay whole"));
    free(text);
    close_run(&x);
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
                                       cmocka_unit_test(the_guess_keeps_the_fastest),
                                       cmocka_unit_test(json_has_every_field),
                                       cmocka_unit_test(text_has_every_field),
                                       cmocka_unit_test(text_is_of_the_place)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
