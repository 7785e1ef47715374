// test/test_search.c: the search for the fastest layout: layouts that are found work as settings and take the memory
// that a plan says; times follow the table of costs; and what is too large, or changes bits, is left out.
#include "test/support/search.h"
#include "trainer/costs/stragglers.h"

// The lines to paste make settings that pass all rules, and whose fullest rank is as large as was said.
static void check_found(const char *dir, const char *model, const char *more, const config *c, const plan_world *w,
                        const search_found *f) {
    char lines[SEARCH_LINES], all[1024];
    config pasted;
    plan_ranks p;
    size_t most = 0;
    search_lines(c, f, lines);
    snprintf(all, sizeof all, "%s%s", model, more);
    rank_config(&pasted, dir, all, lines);
    OK(config_fits(&pasted, w->world));
    assert_int_equal(pasted.resolved.micro, f->is.micro);
    assert_int_equal(pasted.resolved.lanes, f->is.lanes);
    grid g = config_grid(&pasted, w->world);
    assert_int_equal(g.pipeline, f->is.pipeline);
    assert_int_equal(g.tensor, f->is.tensor);
    assert_int_equal(g.data, f->is.data);
    assert_int_equal(pasted.parallel.zero, f->is.zero);
    assert_int_equal(pasted.parallel.recompute, f->is.recompute);
    assert_int_equal(pasted.parallel.context, f->is.context);
    assert_int_equal(pasted.parallel.slices, f->is.slices);
    if (f->is.pipeline > 1) assert_int_equal(pasted.parallel.schedule, f->is.schedule);
    if (f->is.pipeline > 1) assert_int_equal(config_chunks(&pasted), f->is.chunks);
    int stages = 0, blocks = 0, one;
    for (const char *at = f->stages; sscanf(at, "%d", &one) == 1; at += strcspn(at, " "), at += *at == ' ')
        stages++, blocks += one;
    if (f->is.pipeline > 1 && !f->given) {  // cut by time, and all blocks are in a stage
        assert_int_equal(stages, f->is.pipeline * f->is.chunks);
        const char *layers = strstr(model, "layers = ");
        if (layers) assert_int_equal(blocks, 2 + atoi(layers + 9));
        assert_string_equal(pasted.parallel.stages, f->stages);
    }
    OK(plan_ranks_open(&p, &pasted, w, false));
    for (int k = 0; k < p.kinds; k++) {
        size_t n = plan_bytes(&p.kind[k]) - p.kind[k].ring - p.kind[k].snapshots;
        most = n > most ? n : most;
    }
    if (f->memory > most || (double)f->memory < 0.9 * (double)most)
        fail_msg("%s: found %zu bytes, planned %zu", lines, f->memory, most);
    plan_ranks_close(&p);
}

// Where the table knows the host: what is kept there leaves the device, and an update takes what the copies do.
static void state_may_be_kept_by_the_host(void **state) {
    (void)state;
    char *dir = rank_dir(), lines[SEARCH_LINES], more[512];
    config c, pasted;
    plan_world w;
    costs k;
    plan_ranks p;
    search_result *r = malloc(sizeof *r);
    const search_free own = {.own = true};
    bool without = false;
    model *net;
    double step[2];
    size_t memory[2];
    rank_config(&c, dir, llama, "");
    world_of(&w, "1x1");
    table_of(&k, 1e9, 1);
    OK(search_run(r, &c, &w, &k, &(search_free){0}));
    for (int i = 0; i < r->found; i++) assert_int_equal(r->at[i].is.offload, OFFLOAD_NONE);
    k.host_link = (costs_figure){1e6, 0.5}, k.host_copy = (costs_figure){3e6, 0.5};
    for (int host = 0; host < 2; host++) {
        rank_config(&c, dir, llama, host ? "[parallel]\noffload = host\n" : "");
        OK(search_run(r, &c, &w, &k, &own));
        OK(plan_ranks_open(&p, &c, &w, false));
        const plan_rank *x = &p.kind[0];
        const search_found *f = &r->at[0];
        step[host] = f->step_s, memory[host] = f->memory;
        assert_int_equal(f->host, host ? x->host : 0);
        if (host) assert_int_equal(f->memory, plan_bytes(x) - x->host);
        if (host) assert_true(f->host >= x->masters + x->moments && f->error_s > 0.4 * (step[1] - step[0]));
        plan_ranks_close(&p);
    }
    // FP32: gradients and weights 8 bytes over the link; 4 + 3 * 8 + 4 in the host's memory
    OK(model_open(&net, model_types[c.model.type], &c.model.of));
    double wanted = (double)model_elements(net) * (8 / 1e6 + 32 / 3e6), found = step[1] - step[0];
    model_close(net);
    if (fabs(found / wanted - 1) > 0.002) fail_msg("an update takes %g s longer, expected %g s", found, wanted);
    assert_true(memory[1] < memory[0]);

    // an INI that asks for it: the lines of a layout without it say that
    snprintf(more, sizeof more, "%s[parallel]\noffload = host\n", llama);
    rank_config(&c, dir, more, "");
    OK(search_run(r, &c, &w, &k, &(search_free){0}));
    for (int i = 0; i < r->found; i++) {
        rank_config(&pasted, dir, more, search_lines(&c, &r->at[i], lines));
        assert_int_equal(pasted.parallel.offload, r->at[i].is.offload);
        without |= pasted.parallel.offload == OFFLOAD_NONE;
    }
    assert_true(without);

    // only with it does anything fit, and the lines to paste say so; not, if the host is too small as well
    rank_config(&c, dir, llama, "");
    k.memory = (double)memory[1];
    OK(search_run(r, &c, &w, &k, &(search_free){0}));
    for (int i = 0; i < r->found; i++) assert_int_equal(r->at[i].is.offload, OFFLOAD_HOST);
    rank_config(&pasted, dir, llama, search_lines(&c, &r->at[0], lines));
    assert_int_equal(pasted.parallel.offload, OFFLOAD_HOST);
    k.host_memory = 1000;
    assert_int_equal(search_run(r, &c, &w, &k, &(search_free){0}), ERR_CONFIG);
    costs_free(&k), plan_world_close(&w);
    free(r);
    drop_dir(dir);
}

// Of a model whose state is larger than the windows: only with a file does it fit. The search finds that, and its lines
// say so; not where the disk is too small.
static void a_file_may_be_all_that_fits(void **state) {
    (void)state;
    static const char wide[] = "[model]\ntype = llama\nlayers = 4\nheads = 4\nembed = 256\ncontext = 16\nvocab = 131\n"
                               "[batch]\nglobal = 8\nmicro = 1\nlanes = 8\n";
    char *dir = rank_dir(), lines[SEARCH_LINES];
    config c, pasted;
    plan_world w;
    plan_rank p;
    costs k;
    search_result *r = malloc(sizeof *r);
    bool seen[3] = {0};
    table_of(&k, 1e9, 1);
    k.disk_copy = (costs_figure){1e9, 0.1};
    own_layout(r, &p, dir, wide, "[parallel]\noffload = nvme\n", &k);
    rank_config(&c, dir, wide, "");
    world_of(&w, "1x2");
    OK(search_run(r, &c, &w, &k, &(search_free){0}));
    for (int i = 0; i < r->found; i++) seen[r->at[i].is.offload] = true;
    assert_true(seen[OFFLOAD_NONE] && !seen[OFFLOAD_HOST]);
    plan_world_close(&w);
    world_of(&w, "1x1");
    k.memory = (double)plan_bytes(&p);
    OK(search_run(r, &c, &w, &k, &(search_free){0}));
    for (int i = 0; i < r->found; i++) assert_int_equal(r->at[i].is.offload, OFFLOAD_NVME);
    rank_config(&pasted, dir, wide, search_lines(&c, &r->at[0], lines));
    assert_int_equal(pasted.parallel.offload, OFFLOAD_NVME);
    k.disk = (double)p.disk - 1;
    assert_int_equal(search_run(r, &c, &w, &k, &(search_free){0}), ERR_CONFIG);
    k.disk++;
    OK(search_run(r, &c, &w, &k, &(search_free){0}));
    costs_free(&k), plan_world_close(&w);
    free(r);
    drop_dir(dir);
}

static void layouts_work_as_settings(void **state) {
    (void)state;
    static const char *const clusters[] = {"1x8", "2x4", "4x4x2"};
    char *dir = rank_dir();
    costs k;
    table_of(&k, 1e9, 1);
    for (int m = 0; m < 2; m++)
        for (size_t i = 0; i < sizeof clusters / sizeof *clusters; i++) {
            config c;
            plan_world w;
            search_result *r = malloc(sizeof *r);
            rank_config(&c, dir, m ? llama : gpt, "");
            world_of(&w, clusters[i]);
            OK(search_run(r, &c, &w, &k, &(search_free){0}));
            assert_true(r->found >= 5 && r->fits && r->simulated >= r->found);
            for (int n = 0; n < r->found; n++) {
                const search_found *f = &r->at[n];
                check_found(dir, m ? llama : gpt, "", &c, &w, f);
                assert_int_equal(f->is.tensor * f->is.context * f->is.pipeline * f->is.data, w.world);
                assert_true(f->step_s > 0 && f->error_s > 0.05 * f->step_s && f->error_s < 0.3 * f->step_s);
                assert_true(f->step_s * 1.000001 >= f->compute_s && f->bubble >= 0 && f->bubble < 1);
                assert_true(fabs(f->compute_s + f->waits_s + f->exposed_s - f->step_s) < 1e-9 + 1e-6 * f->step_s);
                if (n) assert_true(f->step_s >= r->at[n - 1].step_s);
                for (int k = 0; k < n && !f->given; k++) {  // none that only looks like one before
                    const search_found *b = &r->at[k];
                    assert_false(b->is.tensor == f->is.tensor && b->is.pipeline == f->is.pipeline &&
                                 b->is.micro == f->is.micro && b->is.schedule == f->is.schedule &&
                                 f->step_s < 1.002 * b->step_s && f->memory >= b->memory);
                }
                if (!m) assert_int_equal(f->is.tensor, 1);  // slices = 1 decides bits
            }
            plan_world_close(&w);
            free(r);
        }
    costs_free(&k);
    drop_dir(dir);
}

// What an INI says of its own layout alone is not said of others: their lines, read after all of that INI, pass all
// rules and make the layout that was found.
static void lines_take_back_what_was_of_another_layout(void **state) {
    (void)state;
    static const char *const own[] = {"deal = 2,2,4,8\n",
                                      "pipeline = 2\nstages = 3 5\ndeal = 7,9\n",
                                      "pipeline = 2\nschedule = interleaved\nchunks = 2\nstages = 1 2 3 2\n",
                                      "pipeline = 2\nschedule = zb-v\nchunks = 2\n",
                                      "token_slices = 2\ncontext = 2\nzero = 2\n",
                                      "tensor = 2\nsequence = yes\nrecompute = block\n",
                                      "pipeline = 2\ndata = 2\nzero = 1\noffload = host\n"};
    char *dir = rank_dir(), more[256], lines[SEARCH_LINES];
    costs k;
    plan_world w;
    search_result *r = malloc(sizeof *r);
    table_of(&k, 1e9, 1);
    k.host_link = k.host_copy = (costs_figure){1e10, 0.1};
    world_of(&w, "1x4");
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        config c, pasted;
        int others = 0;
        snprintf(more, sizeof more, "%s[parallel]\n%s", llama, own[i]);
        rank_config(&c, dir, more, "");
        OK(search_run(r, &c, &w, &k, &(search_free){0}));
        assert_true(r->fits);
        for (int n = 0; n < r->found; n++) {
            const search_found *f = &r->at[n];
            others += f->is.pipeline != c.parallel.pipeline;
            rank_config(&pasted, dir, more, search_lines(&c, f, lines));
            OK(config_fits(&pasted, w.world));
            grid g = config_grid(&pasted, w.world);
            assert_true(g.tensor == f->is.tensor && g.pipeline == f->is.pipeline && g.data == f->is.data);
            assert_true(grid_context(&g) == f->is.context && (int)pasted.parallel.zero == f->is.zero);
            assert_true(pasted.parallel.recompute == f->is.recompute && pasted.parallel.offload == f->is.offload);
            assert_true(f->is.tensor == 1 || pasted.parallel.sequence == f->is.sequence);
            if (f->is.pipeline > 1) assert_int_equal(config_chunks(&pasted), f->is.chunks);
            if (f->is.pipeline > 1) assert_int_equal(pasted.parallel.schedule, f->is.schedule);
            assert_string_equal(pasted.parallel.stages, f->stages);
            assert_string_equal(pasted.parallel.deal, f->given ? c.parallel.deal : "");
        }
        assert_true(others > 0);
    }
    costs_free(&k), plan_world_close(&w);
    free(r);
    drop_dir(dir);
}

// All costs twice as large: all times, and the same order. Slow links: fewer bytes between nodes win.
static void times_follow_the_table(void **state) {
    (void)state;
    char *dir = rank_dir();
    config c;
    plan_world w;
    costs k, twice;
    search_result *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    rank_config(&c, dir, llama, "");
    world_of(&w, "2x4");
    table_of(&k, 1e9, 1), table_of(&twice, 1e9, 2);
    OK(search_run(a, &c, &w, &k, &(search_free){0}));
    OK(search_run(b, &c, &w, &twice, &(search_free){0}));
    assert_int_equal(a->found, b->found);
    for (int i = 0; i < a->found; i++) {
        assert_true(fabs(b->at[i].step_s / a->at[i].step_s - 2) < 1e-9);
        assert_int_equal(a->at[i].is.pipeline, b->at[i].is.pipeline);
    }
    // a rank alone: no bubble, nothing is left over
    plan_world_close(&w);
    world_of(&w, "1x1");
    OK(search_run(a, &c, &w, &k, &(search_free){0}));
    assert_int_equal(a->at[0].is.recompute, RECOMPUTE_NONE);
    assert_true(a->at[0].bubble < 1e-12 && a->at[0].exposed_s < 1e-12 && a->at[0].sent[0] == 0);
    double whole = a->at[0].step_s;
    // two ranks whose links cost nothing share the lanes: half of it, but for the update
    plan_world_close(&w);
    world_of(&w, "1x2");
    k.link[COSTS_NODE].rate.is = 1e18, k.link[COSTS_NODE].s = 0;
    OK(search_run(a, &c, &w, &k, &(search_free){0}));
    assert_true(a->at[0].step_s > 0.4 * whole && a->at[0].step_s < 0.65 * whole);
    k.link[COSTS_NODE].rate.is = 1e3;  // such slow links: first is who sends least; both ways at once count once
    OK(search_run(a, &c, &w, &k, &(search_free){0}));
    for (int i = 1; i < a->found; i++) assert_true(2 * a->at[i].sent[0] >= a->at[0].sent[0]);
    costs_free(&k), costs_free(&twice), plan_world_close(&w);
    free(a), free(b);
    drop_dir(dir);
}

// Ranks that share no model wait for one slow device as for all of them; a pipeline whose stages are all slow takes as
// many times as long, but for what it sends.
static void slow_devices_slow_the_step(void **state) {
    (void)state;
    char *dir = rank_dir();
    config c;
    plan_world w;
    costs k;
    search_result *r = malloc(sizeof *r), *slow = malloc(sizeof *slow);
    const search_free own = {.own = true};
    for (int pipeline = 1; pipeline <= 4; pipeline *= 2) {
        char more[64];
        double step[3];
        snprintf(more, sizeof more, "[parallel]\npipeline = %d\n", pipeline);
        rank_config(&c, dir, llama, more);
        world_of(&w, "1x8");
        table_of(&k, 1e9, 1);
        k.link[COSTS_NODE].rate.is = 1e18, k.link[COSTS_NODE].s = 0;
        OK(search_run(r, &c, &w, &k, &own));
        assert_true(r->layouts == 1 && r->found == 1 && r->at[0].given && r->at[0].slow == 0 && r->at[0].slowed_s == 0);
        static const double share[] = {1.0 / 8, 0.5, 1};
        for (int i = 0; i < 3; i++) {
            k.stragglers.share = share[i], k.stragglers.slower = 3, k.stragglers.seed = 5;
            OK(search_run(slow, &c, &w, &k, &own));
            const search_found *f = &slow->at[0];
            step[i] = f->step_s;
            assert_int_equal(f->slow, (int)(8 * share[i]));
            assert_true(fabs(f->compute_s + f->waits_s + f->exposed_s + f->slowed_s - f->step_s) < 1e-6 * f->step_s);
            assert_true(f->compute_s == r->at[0].compute_s);
        }
        double whole = r->at[0].step_s;
        assert_true(step[2] < 3.000001 * whole && step[2] > 2.5 * whole);  // what it receives is added as before
        if (pipeline == 1) assert_true(step[0] == step[2]);
        else assert_true(step[0] > 1.2 * whole && step[0] < 0.99 * step[2] && step[0] <= step[1]);
        costs_free(&k), plan_world_close(&w);
    }
    free(r), free(slow);
    drop_dir(dir);
}

// The step with so many slow devices of 16. Returns how many pipelines count, with the stage that is slow in each; 0:
// some have several.
static int slowed(search_result *r, const config *c, const plan_world *w, costs *k, int devices, uint64_t seed,
                  int *stage) {
    const grid g = config_grid(c, w->world);
    straggler_sets sets;
    k->stragglers.share = devices / 16.0, k->stragglers.slower = 3, k->stragglers.seed = seed;
    OK(stragglers_draw(&sets, &g, k->stragglers.share, seed));
    OK(search_run(r, c, w, k, &(search_free){.own = true}));
    int n = 0, slow = 0;
    for (; n < sets.count; n++)
        for (int s = 0; s < sets.stages; s++)
            if (sets.slow[n * sets.stages + s]) slow++, stage[n] = s;
    stragglers_free(&sets);
    return slow == n ? n : 0;
}

// Pipelines with one slow stage each: the step is that of the one that is slowest, wherever it is among them.
static void the_slowest_pipeline_counts(void **state) {
    (void)state;
    enum { STAGES = 4, SEEDS = 40 };
    char *dir = rank_dir();
    search_result *r = malloc(sizeof *r);
    double step[STAGES] = {0};  // with one slow device, in this stage
    int stage[STRAGGLER_SETS], later = 0;
    config c;
    costs k;
    plan_world w;
    table_of(&k, 1e9, 1);
    rank_config(&c, dir, gpt, "[parallel]\npipeline = 4\nstages = 1 1 1 3\n");
    world_of(&w, "1x16");
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        assert_int_equal(slowed(r, &c, &w, &k, 1, seed, stage), 1);
        step[stage[0]] = r->at[0].step_s;
    }
    for (int s = 0; s < STAGES; s++) assert_true(step[s] > 0);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        double most = 0;
        int n = slowed(r, &c, &w, &k, 3, seed, stage);
        for (int i = 0; i < n; i++) most = fmax(most, step[stage[i]]);
        if (n) assert_true(fabs(r->at[0].step_s - most) < 1e-9 * most);
        later += n && most > step[stage[0]];
    }
    assert_true(later >= 2);
    costs_free(&k), plan_world_close(&w);
    free(r);
    drop_dir(dir);
}

// What one rank with one lane can't have is no reason to refuse a run of several. What ranks do together leaves the
// time of blocks as it is, and there are other layouts, too.
static void all_that_ranks_do_together_has_a_time(void **state) {
    (void)state;
    static const char resnet[] = "[model]\ntype = resnet\ndepth = 20\nwidth = 4\nimage = 8\nclasses = 10\n"
                                 "[batch]\nglobal = 16\nmicro = 1\nlanes = 16\n[sample]\ntokens = 0\n";
    static const struct {
        const char *model, *plain, *more;
        double most;  // of a span each lane has batch norms of its own, so there are more operations
    } runs[] = {
        {gpt, "", "[outer]\nislands = 2\n", 1.01},
        {gpt, "",
         "[outer]\nislands = 4\nevery = 6\ntype = nesterov\ncompress = int8\nmoments = own\noverlap = 2\n"
         "fragments = h.0.*:4\n",
         1.01},
        {gpt, "[reduce]\ncompress = int8\n", "[reduce]\ncompress = int8\ncompress_span = 2\n", 1.01},
        {resnet, "[batch]\nmicro = 4\nlanes = 4\n", "[batch]\nbn_span = 4\n", 3},
    };
    char *dir = rank_dir();
    config c;
    plan_world w;
    costs k;
    search_result *r = malloc(sizeof *r);
    table_of(&k, 1e9, 1);
    world_of(&w, "1x4");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        double compute[2];
        for (int with = 0; with < 2; with++) {
            rank_config(&c, dir, runs[i].model, with ? runs[i].more : runs[i].plain);
            OK(search_run(r, &c, &w, &k, &(search_free){.own = true}));
            compute[with] = r->at[0].compute_s;
        }
        if (compute[1] < compute[0] / 1.01 || compute[1] > runs[i].most * compute[0])
            fail_msg("%s: the busiest rank computes for %g s, and for %g s without", runs[i].more, compute[1],
                     compute[0]);
        OK(search_run(r, &c, &w, &k, &(search_free){0}));
        assert_true(r->fits && r->found > 2);
        for (int n = 0; n < r->found; n++) check_found(dir, runs[i].model, runs[i].more, &c, &w, &r->at[n]);
    }
    // a span's lanes are computed at once, so what is free is how many of each
    OK(search_run(r, &c, &w, &k, &(search_free){.micro = true, .lanes = true}));
    bool other = false;
    for (int n = 0; n < r->found; n++) {
        other |= r->at[n].is.micro != c.resolved.micro;
        check_found(dir, resnet, "[batch]\nbn_span = 4\n", &c, &w, &r->at[n]);
    }
    assert_true(other);
    costs_free(&k), plan_world_close(&w);
    free(r);
    drop_dir(dir);
}

// All ranks are taken to send what the first one of each stage does. That is near what a plan of each of them counts,
// at each level of the wires: the first one has most, by part of a bucket.
static void all_that_is_sent_is_said(void **state) {
    (void)state;
    static const char *const own[] = {"", "zero = 3\n", "pipeline = 2\n", "pipeline = 4\nzero = 1\n", "tensor = 2\n"};
    static const char *const clusters[] = {"1x8", "4x2", "2x4x2"};
    char *dir = rank_dir(), more[64];
    config c;
    costs k;
    search_result *r = malloc(sizeof *r);
    table_of(&k, 1e9, 1);
    for (int n = 0; n < 3 * 5; n++) {
        plan_ranks p;
        plan_world w;
        int64_t sent[3] = {0};
        world_of(&w, clusters[n / 5]);
        snprintf(more, sizeof more, "[parallel]\n%s", own[n % 5]);
        rank_config(&c, dir, llama, more);
        OK(search_run(r, &c, &w, &k, &(search_free){.own = true}));
        OK(plan_ranks_open(&p, &c, &w, false));
        for (int i = 0; i < w.world; i++) {
            const plan_rank *x = plan_of(&p, i);
            sent[COSTS_NODE] += x->sent - x->sent_far, sent[COSTS_RACK] += x->sent_far - x->sent_racks;
            sent[COSTS_SPINE] += x->sent_racks;
        }
        for (int level = 0; level < 3; level++) {
            int64_t found = r->at[0].sent[level];
            if (found < sent[level] || (double)found > 1.4 * (double)sent[level])
                fail_msg("%s%s: level %d: %lld bytes, expected %lld", clusters[n / 5], more, level, (long long)found,
                         (long long)sent[level]);
        }
        plan_ranks_close(&p), plan_world_close(&w);
    }
    costs_free(&k);
    free(r);
    drop_dir(dir);
}

// Who has most lanes decides how long a step takes: with 13 of 16 it is that of a rank that has 16, but for 3.
static void deals_are_simulated(void **state) {
    (void)state;
    static const char *const deal[] = {"", "deal = 1,1,1,13\n", "deal = 13,1,1,1\n"};
    char *dir = rank_dir(), more[64];
    config c;
    plan_world w;
    costs k;
    double compute[3];
    search_result *r = malloc(sizeof *r);
    table_of(&k, 1e9, 1);
    world_of(&w, "1x4");
    for (int i = 0; i < 3; i++) {
        snprintf(more, sizeof more, "[parallel]\n%s", deal[i]);
        rank_config(&c, dir, llama, more);
        OK(search_run(r, &c, &w, &k, &(search_free){.own = true}));
        compute[i] = r->at[0].compute_s;
    }
    // a part of the step is the update, which all have
    if (compute[1] < 2.5 * compute[0] || compute[1] > 13.0 / 4 * compute[0] || compute[2] != compute[1])
        fail_msg("the busiest rank computes for %g s, and with 13 lanes instead of 4 for %g s, %g s", compute[0],
                 compute[1], compute[2]);
    costs_free(&k), plan_world_close(&w);
    free(r);
    drop_dir(dir);
}

// A rank alone has a layout for each way to compute again, of which one is its own.
static void each_layout_is_tried_once(void **state) {
    (void)state;
    char *dir = rank_dir();
    config c;
    plan_world w;
    costs k;
    search_result *r = malloc(sizeof *r);
    table_of(&k, 1e9, 1);
    rank_config(&c, dir, llama, "[parallel]\nrecompute = selective\n");
    world_of(&w, "1x1");
    OK(search_run(r, &c, &w, &k, &(search_free){0}));
    assert_true(r->simulated == 3 && r->refused == 0 && r->too_large == 0);
    plan_world_close(&w);
    // islands divide the ranks before a layout does
    rank_config(&c, dir, llama, "[outer]\nislands = 2\nevery = 5\n");
    world_of(&w, "1x4");
    OK(search_run(r, &c, &w, &k, &(search_free){0}));
    for (int i = 0; i < r->found; i++) {
        const search_choice *x = &r->at[i].is;
        assert_int_equal(2 * x->tensor * x->context * x->pipeline * x->data, w.world);
    }
    assert_true(r->found > 2);
    costs_free(&k), plan_world_close(&w);
    free(r);
    drop_dir(dir);
}

// Of two layouts that cut the model alike and are as fast, within 0.2 %, both are shown where the slower one is
// smaller, as that of stage 1 is here beside that of stage 2, where products take nearly all of the time; else one of
// them is.
static void smaller_ones_are_no_twins(void **state) {
    (void)state;
    char *dir = rank_dir();
    config c;
    plan_world w;
    costs k;
    bool smaller = false;
    search_result *r = malloc(sizeof *r);
    rank_config(&c, dir, llama, "");
    world_of(&w, "1x2");
    table_of(&k, 1e9, 1);
    k.peak[FP32].is = 3e9;
    k.link[COSTS_NODE].rate.is = 1e18, k.link[COSTS_NODE].s = 0;
    OK(search_run(r, &c, &w, &k, &(search_free){0}));
    for (int i = 0; i < r->found; i++)
        for (int n = 0; n < i; n++) {
            const search_found *a = &r->at[n], *b = &r->at[i];
            if (a->is.pipeline > 1 || b->is.pipeline > 1 || b->step_s > 1.0019 * a->step_s) continue;
            smaller |= a->is.zero == 2 && b->is.zero == 1 && !b->given;
            assert_true(b->given || b->memory < a->memory);
        }
    assert_true(smaller);
    costs_free(&k), plan_world_close(&w);
    free(r);
    drop_dir(dir);
}

static void memory_is_a_limit(void **state) {
    (void)state;
    char *dir = rank_dir();
    config c;
    plan_world w;
    costs k;
    search_result *r = malloc(sizeof *r);
    rank_config(&c, dir, llama, "");
    world_of(&w, "1x8");
    table_of(&k, 1e9, 1);
    OK(search_run(r, &c, &w, &k, &(search_free){0}));
    size_t least = r->at[0].memory, own = 0;
    for (int i = 0; i < r->found; i++) {
        least = r->at[i].memory < least ? r->at[i].memory : least;
        if (r->at[i].given) own = r->at[i].memory;
    }
    k.memory = (double)least;  // only the smallest ones
    OK(search_run(r, &c, &w, &k, &(search_free){0}));
    assert_true(r->too_large > 0 && least < own && !r->fits);
    bool found = false;
    for (int i = 0; i < r->found; i++) {
        assert_true(r->at[i].memory <= least);
        found |= r->at[i].memory == least;
    }
    assert_true(found);
    k.memory = 1000;
    assert_int_equal(search_run(r, &c, &w, &k, &(search_free){0}), ERR_CONFIG);
    assert_non_null(strstr(err_last()->text, "none of"));
    costs_free(&k), plan_world_close(&w);
    free(r);
    drop_dir(dir);
}

// A layout that is too large says nothing of the same one that computes more again: only that one fits.
static void recomputing_may_fit(void **state) {
    (void)state;
    char *dir = rank_dir();
    config c;
    plan_world w;
    costs k;
    size_t memory[RECOMPUTE_BLOCK + 1] = {0};
    search_result *r = malloc(sizeof *r);
    rank_config(&c, dir, llama, "");
    world_of(&w, "1x1");
    table_of(&k, 1e9, 1);
    OK(search_run(r, &c, &w, &k, &(search_free){0}));
    for (int i = 0; i < r->found; i++) memory[r->at[i].is.recompute] = r->at[i].memory;
    assert_true(memory[RECOMPUTE_BLOCK] > 0 && memory[RECOMPUTE_BLOCK] < memory[RECOMPUTE_NONE]);
    k.memory = (double)memory[RECOMPUTE_BLOCK];
    OK(search_run(r, &c, &w, &k, &(search_free){0}));
    assert_int_equal(r->at[0].is.recompute, RECOMPUTE_BLOCK);
    assert_true(!r->fits && r->too_large > 0);
    costs_free(&k), plan_world_close(&w);
    free(r);
    drop_dir(dir);
}

// Nor does it say anything of smaller micro-batches: with those that may change, the fastest that fits has them.
static void smaller_micro_batches_may_fit(void **state) {
    (void)state;
    static const char wide[] = "[model]\ntype = llama\nlayers = 2\nheads = 4\nkv_heads = 4\nembed = 32\n"
                               "context = 256\nvocab = 131\n[batch]\nglobal = 4\nmicro = 2\nlanes = 2\n";
    char *dir = rank_dir();
    config c;
    plan_world w;
    costs k;
    size_t memory[3] = {0};
    bool found = false;
    search_result *r = malloc(sizeof *r);
    const search_free keys = {.micro = true};
    rank_config(&c, dir, wide, "");
    world_of(&w, "1x1");
    table_of(&k, 1e9, 1);
    OK(search_run(r, &c, &w, &k, &keys));
    for (int i = 0; i < r->found; i++) {
        const search_found *f = &r->at[i];
        if (f->is.recompute == RECOMPUTE_NONE) memory[f->is.micro] = f->memory;
    }
    assert_true(memory[1] > 0 && memory[1] < memory[2]);
    k.memory = (double)memory[1];
    OK(search_run(r, &c, &w, &k, &keys));
    for (int i = 0; i < r->found; i++) found |= r->at[i].is.micro == 1 && r->at[i].is.recompute == RECOMPUTE_NONE;
    assert_true(found && !r->fits);
    costs_free(&k), plan_world_close(&w);
    free(r);
    drop_dir(dir);
}

static void bits_change_only_where_they_may(void **state) {
    (void)state;
    char *dir = rank_dir();
    config c;
    plan_world w;
    costs k;
    search_free keys;
    bool other = false;
    search_result *r = malloc(sizeof *r);
    rank_config(&c, dir, gpt, "");
    world_of(&w, "1x8");
    table_of(&k, 1e9, 1);
    OK(search_free_of(&keys, "micro,slices"));
    assert_true(keys.micro && keys.slices && !keys.lanes);
    OK(search_run(r, &c, &w, &k, &keys));
    for (int i = 0; i < r->found; i++) {
        assert_int_equal(r->at[i].is.lanes, 16);
        other |= r->at[i].is.micro != 1 || r->at[i].is.slices != 1;
        check_found(dir, gpt, "", &c, &w, &r->at[i]);
    }
    assert_true(other);
    assert_int_equal(search_free_of(&keys, "micro,zero"), ERR_USAGE);
    assert_int_equal(search_free_of(&keys, "lane"), ERR_USAGE);
    OK(search_free_of(&keys, NULL));
    assert_false(keys.micro || keys.lanes || keys.slices);
    costs_free(&k), plan_world_close(&w);
    free(r);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(state_may_be_kept_by_the_host),
                                       cmocka_unit_test(a_file_may_be_all_that_fits),
                                       cmocka_unit_test(layouts_work_as_settings),
                                       cmocka_unit_test(lines_take_back_what_was_of_another_layout),
                                       cmocka_unit_test(times_follow_the_table),
                                       cmocka_unit_test(slow_devices_slow_the_step),
                                       cmocka_unit_test(the_slowest_pipeline_counts),
                                       cmocka_unit_test(all_that_ranks_do_together_has_a_time),
                                       cmocka_unit_test(all_that_is_sent_is_said),
                                       cmocka_unit_test(deals_are_simulated),
                                       cmocka_unit_test(each_layout_is_tried_once),
                                       cmocka_unit_test(smaller_ones_are_no_twins),
                                       cmocka_unit_test(memory_is_a_limit),
                                       cmocka_unit_test(recomputing_may_fit),
                                       cmocka_unit_test(smaller_micro_batches_may_fit),
                                       cmocka_unit_test(bits_change_only_where_they_may)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
