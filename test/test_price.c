// test/test_price.c: how long a step's actions take by a table of costs: the operations are those of a real step, and
// updates, waits and what islands send are counted by hand.
#include "test/support/search.h"

// One on which only links take time, one byte a second.
static const char links_only[] = "lockstep costs 2\ndevice test\nmemory 1e9 bytes\ncopy 1e30 bytes/s 0 spread\n"
                                 "launch 1e-9 us 0 spread\nlink node 1 bytes/s 0 us 0 spread\nend 4\n";

typedef struct op_sum {
    char op[32];
    int64_t calls;
    double bytes, flops;
} op_sum;
typedef struct op_sums {
    int n;
    op_sum of[64];
} op_sums;

static op_sum *sum_of(op_sums *s, const char *op) {
    int i = 0;
    while (i < s->n && strcmp(s->of[i].op, op) != 0) i++;
    if (i == s->n) snprintf(s->of[s->n++].op, sizeof s->of[i].op, "%s", op);
    return &s->of[i];
}

static void add_up(void *ctx, const char *op, const op_cost *c) {
    op_sum *s = sum_of(ctx, op);
    s->calls++, s->bytes += c->bytes, s->flops += c->flops;
}

static void nothing(void *ctx, const step_part *part) { (void)ctx, (void)part; }

// How many operations of the real step are the update's: those of these kinds that no block asks for. Each matrix that
// is normalized was squared for that.
static int64_t updates_of(op_sums *blocks, op_sums *all) {
    static const char *const kinds[] = {"adamw", "muon_direction", "sgd", "scale_columns", "matmul", "normalize"};
    int64_t n = sum_of(all, "normalize")->calls;
    for (int k = 0; k < 6; k++) n += sum_of(all, kinds[k])->calls - sum_of(blocks, kinds[k])->calls;
    return n;
}

// With a table of all operations of the step, each of a millisecond, the whole list, updates and sums included, asks
// for nothing else, and for as many updates.
static void check_list(session *x, const profile_line *line, int lines, int64_t updates) {
    costs k;
    price_blocks b;
    price_time *time = calloc((size_t)x->runner.actions.count, sizeof *time);
    table_of(&k, 1e9, 1);
    for (int i = 0; i < lines; i++) {
        costs_op o = {.type = line[i].type, .options = line[i].options, .s = {1e-3, 0}, .calls = 1};
        snprintf(o.name, sizeof o.name, "%s", line[i].op);
        memcpy(o.size, line[i].size, sizeof o.size);
        OK(costs_set_op(&k, &o));
    }
    const price_machine m = {&k, 1, 1};
    OK(price_open(&b, x, &m));
    OK(price_list(x, &m, &b, time));
    assert_true(b.looked[FROM_LINE] > 50 && b.looked[FROM_NEAR] == 0 && b.looked[FROM_ROOFLINE] == 0);
    for (int i = 0; i < x->runner.actions.count; i++)
        if (x->runner.actions.at[i].kind == ACTION_UPDATE)
            assert_int_equal((int64_t)round(1e3 * time[i].compute.s), updates), updates = -1;
    assert_int_equal(updates, -1);
    price_close(&b), costs_free(&k);
    free(time);
}

// One micro-batch a step: on paper, and as the profile of a real step counts it.
static void operations_are_those_of_a_step(void **state) {
    (void)state;
    static const char *const more[] = {"",
                                       "[parallel]\nrecompute = block\n",
                                       "[precision]\ncompute = bf16\n",
                                       "[parallel]\nrecompute = selective\n",
                                       "[optimizer]\ntype = muon\n",
                                       "[optimizer]\ngroups = *.0.*weight: type=muon\n"};
    char *dir = rank_dir();
    for (size_t m = 0; m < 2 * sizeof more / sizeof *more; m++) {
        config c;
        session x = {0}, real = {0};
        comm *one;
        stream *paper;
        op_sums sums = {0}, found = {0};
        step_result r;
        profile_line *line = calloc(PROFILE_LINES, sizeof *line);
        char text[512];
        snprintf(text, sizeof text, "[batch]\nglobal = 2\nmicro = 2\nlanes = 1\n[device]\nthreads = 1\n%s",
                 more[m / 2]);
        rank_config(&c, dir, m % 2 ? llama : gpt, text);
        comm_place here = {0};
        OK(comm_imaginary_open(&one, 0, 1, &here));
        OK(session_plan(&x, &c, one));
        OK(paper_open(&paper, add_up, &sums));
        OK(step_on_paper(&x.runner, &(step_paper){&ops_counted, paper, nothing, NULL, false}));
        paper_close(paper);
        OK(session_open(&real, &c, SESSION_PROFILE, NULL));
        OK(session_init(&real));
        OK(session_feed(&real, 2));
        OK(session_step(&real, &r));
        profile_clear(device_profile(real.dev));
        OK(session_step(&real, &r));
        int lines = profile_read(device_profile(real.dev), line), same = 0;
        for (int i = 0; i < lines; i++) {
            op_sum *s = sum_of(&found, line[i].op);
            s->calls += line[i].calls, s->bytes += line[i].bytes, s->flops += line[i].flops;
        }
        for (int i = 0; i < sums.n; i++) {
            const op_sum *a = &sums.of[i], *b = sum_of(&found, a->op);
            if (strcmp(a->op, "zero") == 0 || strcmp(a->op, "copy") == 0) continue;
            if (strcmp(a->op, "matmul") == 0 && x.state.muon.row > 0) continue;  // updates have some, too
            same++;
            if (a->calls != b->calls || a->bytes != b->bytes || a->flops != b->flops)
                fail_msg("%s, %s: %s: %d calls of %.0f bytes and %.0f flops on paper, %d of %.0f and %.0f in a step",
                         m % 2 ? "llama" : "gpt", more[m / 2], a->op, (int)a->calls, a->bytes, a->flops, (int)b->calls,
                         b->bytes, b->flops);
        }
        assert_true(same >= 8);
        check_list(&x, line, lines, updates_of(&sums, &found));
        session_close(&real);
        session_close(&x);
        free(line);
    }
    drop_dir(dir);
}

// Where the table knows the disk: an update takes as long as all of the file takes to come and go, or as the work on
// it, if that is longer. An optimizer that asks for the masters' squares reads the file once more.
static void state_may_be_kept_in_a_file(void **state) {
    (void)state;
    char *dir = rank_dir(), more[256];
    costs k;
    plan_rank p;
    search_result *r = malloc(sizeof *r);
    const search_found *f = &r->at[0];
    static const char *const optimizers[] = {"adamw", "lars"};
    table_of(&k, 1e9, 1);
    k.host_link = (costs_figure){1e9, 0.1}, k.host_copy = (costs_figure){3e9, 0.1};
    for (int of = 0; of < 2; of++) {
        double step[4];
        int64_t disk = 0;
        for (int way = 0; way < 4; way++) {  // in memory; in the host's; in a slow file; in a quick one
            k.disk_copy = (costs_figure){way < 2 ? 0 : way == 2 ? 1e6 : 1e12, 0.5};
            snprintf(more, sizeof more, "[optimizer]\ntype = %s\n[parallel]\noffload = %s\n", optimizers[of],
                     way == 0   ? "no"
                     : way == 1 ? "host"
                                : "nvme");
            own_layout(r, &p, dir, llama, more, &k);
            step[way] = f->step_s, disk = p.disk;
            assert_int_equal(f->disk, way < 2 ? 0 : p.disk);
            assert_true((p.disk > 0) == (way > 1));
            if (way == 2) assert_true(f->error_s > 0.4 * (step[2] - step[0]));
        }
        double walks = of ? 3 : 2, wanted = walks * (double)disk / 1e6, before = step[2] - wanted;
        assert_true(p.disk_reads + 1 == walks);
        // without its update, a step takes less than one whose update is made in memory, by not as much as that takes
        if (before > step[0] || before < 0.5 * step[0])
            fail_msg("%s: a step takes %g s, of which the disk %g, and %g s in memory", optimizers[of], step[2], wanted,
                     step[0]);
        assert_true(step[3] == step[1]);
    }
    costs_free(&k);
    free(r);
    drop_dir(dir);
}

// On a machine where only starting an operation, and products, take time: what Muon does in place of AdamW, counted by
// hand. Of each of 4 layers q, k, v and the matrix after them are 32 x 32, those of the MLP 128 x 32 and 32 x 128.
static void muon_turns_matrices(void **state) {
    (void)state;
    const double START = 1e9, ITERATIONS = 5, n = 32, wide = 128;
    const double square = 6 * n * n * n, oblong = 2 * (2 * n * n * wide) + 2 * n * n * n;
    // to its place and back, the norm and its use; a direction and a step of each of 4 tensors, and AdamW's no more
    const double starts = 4 * (6 * (4 + ITERATIONS * 6) + 4), flops = 4 * ITERATIONS * (4 * square + 2 * oblong);
    char *dir = rank_dir();
    costs k;
    plan_rank p;
    search_result *r = malloc(sizeof *r);
    double step[2];
    OK(costs_parse(&k, "test",
                   "lockstep costs 2\ndevice test\nmemory 1e9 bytes\ncopy 1e30 bytes/s 0 spread\n"
                   "launch 1e15 us 0 spread\npeak fp32 1 flop/s 0 spread\nend 4\n"));
    for (int muon = 0; muon < 2; muon++) {
        own_layout(r, &p, dir, gpt, muon ? "[optimizer]\ntype = muon\n" : "", &k);
        step[muon] = r->at[0].step_s;
    }
    if (fabs(step[1] - step[0] - starts * START - flops) > 1)
        fail_msg("Muon takes %.0f more starts and %.0f flops, expected %.0f and %.0f",
                 floor((step[1] - step[0]) / START), fmod(step[1] - step[0], START), starts, flops);
    costs_free(&k);
    free(r);
    drop_dir(dir);
}

// Where only links take time, ranks that share layers, or positions, wait for each other for as long as what they send
// takes, and a step takes at most as long as all that is sent.
static void who_shares_a_block_waits(void **state) {
    (void)state;
    static const char model[] =
        "[model]\ntype = llama\nlayers = 2\nheads = 4\nkv_heads = 4\nembed = 32\ncontext = 512\n"
        "vocab = 131\n[batch]\nglobal = 2\nmicro = 2\nlanes = 1\n";
    static const char *const layout[] = {"tensor = 2\n", "context = 2\ntoken_slices = 2\nzero = 2\n",
                                         "tensor = 2\nsequence = yes\n"};
    char *dir = rank_dir(), more[256];
    costs k;
    search_result *r = malloc(sizeof *r);
    OK(costs_parse(&k, "test", links_only));
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
        plan_rank p;
        double all = 0;
        snprintf(more, sizeof more, "[parallel]\nslices = 2\n%s", layout[i]);
        layout_of(r, &p, dir, model, more, &k, "1x2");
        for (int to = 0; to < PLAN_GROUPS; to++) all += (double)p.to[to].sent;
        double shared = (double)p.to[i == 1 ? PLAN_CONTEXT : PLAN_TENSOR].sent, step = r->at[0].step_s;
        assert_true(shared > 0);
        if (step < shared || step > 1.000001 * all)
            fail_msg("%s: a step takes %.0f s, of %.0f bytes that ranks wait for, and %.0f in all", layout[i], step,
                     shared, all);
    }
    costs_free(&k);
    free(r);
    drop_dir(dir);
}

// Where only merges take time, a second for each byte, a step of ranks that share layers takes as long as what they
// send each other in them, and nothing else that they send.
static void merges_have_times_of_their_own(void **state) {
    (void)state;
    char *dir = rank_dir();
    costs k;
    plan_rank p;
    search_result *r = malloc(sizeof *r);
    OK(costs_parse(&k, "test",
                   "lockstep costs 2\ndevice test\ncopy 1e30 bytes/s 0 spread\nlink node 1e30 bytes/s 0 us 0 spread\n"
                   "link rack 1e30 bytes/s 0 us 0 spread\nlink spine 1e30 bytes/s 0 us 0 spread\n"
                   "comm merge node 2 1 1e6 us 0 spread\ncomm merge rack 2 1 2e6 us 0 spread\n"
                   "comm merge spine 2 1 4e6 us 0 spread\nend 7\n"));
    static const char *const world[] = {"1x2", "2x1", "2x1x2"};
    for (int level = 0; level < 3; level++) {
        layout_of(r, &p, dir, gpt, "[parallel]\nslices = 2\ntensor = 2\n", &k, world[level]);
        double step = r->at[0].step_s, sent = (double)p.to[PLAN_TENSOR].sent * (1 << level);
        if (sent <= 0 || step > sent || step < 0.99 * sent)
            fail_msg("%s: %.0f s, of %.0f bytes", world[level], step, sent);
    }
    costs_free(&k);
    free(r);
    drop_dir(dir);
}

// Where only measured collectives take time, and all between nodes is free: what goes within a node takes as long as
// among as many ranks as a node has, however many there are in all.
static void nodes_are_looked_up_by_their_ranks(void **state) {
    (void)state;
    static const char *const call[] = {"all_to_all", "all_gather", "all_reduce"};
    char *dir = rank_dir(), table[1024];
    costs k;
    plan_rank p;
    search_result *r = malloc(sizeof *r);
    int n = snprintf(table, sizeof table,
                     "lockstep costs 2\ndevice test\nmemory 1e9 bytes\ncopy 1e30 bytes/s 0 spread\n"
                     "link node 1e30 bytes/s 0 us 0 spread\nlink rack 1e30 bytes/s 0 us 0 spread\n");
    for (int i = 0; i < 3; i++)
        for (int ranks = 2; ranks <= 4; ranks += 2)  // a second for each byte, and three
            n += snprintf(table + n, sizeof table - (size_t)n, "comm %s node %d 1 %de6 us 0 spread\n", call[i], ranks,
                          ranks - 1);
    snprintf(table + n, sizeof table - (size_t)n, "end 10\n");
    OK(costs_parse(&k, "test", table));
    layout_of(r, &p, dir, gpt, "", &k, "2x2");
    double step = r->at[0].step_s, sent = (double)r->at[0].sent[COSTS_NODE] / 4;
    if (sent <= 0 || fabs(step / sent - 1) > 1e-6) fail_msg("%.0f s, of %.0f bytes", step, sent);
    costs_free(&k);
    free(r);
    drop_dir(dir);
}

// Where only links take time, islands that mix twice as often send for as much longer as the plan says that they send
// more, wherever they are. With overlap nothing waits for it.
static void islands_mix_now_and_then(void **state) {
    (void)state;
    static const char *const overlap[] = {"", "overlap = 2\nmoments = own\n"}, *const world[] = {"1x2", "2x1", "2x1x2"};
    char *dir = rank_dir(), more[256];
    costs k;
    search_result *r = malloc(sizeof *r);
    OK(costs_parse(&k, "test", links_only));
    k.link[COSTS_RACK].rate.is = 1e-2, k.link[COSTS_SPINE].rate.is = 1e-4;
    for (int i = 0; i < 2 * 3; i++) {
        const double byte[] = {1, 1e2, 1e4};  // on each level
        bool beside = i % 2;
        double step[2], sent[2];
        for (int often = 0; often < 2; often++) {
            plan_rank p;
            snprintf(more, sizeof more, "[outer]\nislands = 2\nevery = %d\n%s", often ? 5 : 10, overlap[beside]);
            layout_of(r, &p, dir, gpt, more, &k, world[i / 2]);
            step[often] = r->at[0].step_s, sent[often] = p.mixed_each;
        }
        assert_true(sent[0] > 0 && fabs(sent[1] / sent[0] - 2) < 1e-9);
        double wanted = beside ? 0 : byte[i / 2] * (sent[1] - sent[0]);
        if (fabs(step[1] - step[0] - wanted) > 1e-6 * step[0])
            fail_msg("every 5 steps costs %g s more than every 10, expected %g", step[1] - step[0], wanted);
    }
    costs_free(&k);
    free(r);
    drop_dir(dir);
}

// What the first gather of a block's weights takes, in ZeRO 3 over two ranks; or, of block -1, the first exchange of
// gradients. slower: ranks share cores.
static double first_send(const config *c, const plan_world *w, int rank, const costs *k, int block, double slower) {
    const price_machine m = {k, slower, w->world / slower};
    session s = {0};
    price_blocks b;
    OK(plan_begin(&s, c, rank, w));
    const action_list *l = &s.runner.actions;
    price_time *time = calloc((size_t)l->count, sizeof *time);
    OK(price_open(&b, &s, &m));
    OK(price_list(&s, &m, &b, time));
    int i = 0;
    while (block < 0 ? l->at[i].kind != ACTION_REDUCE : l->at[i].kind != ACTION_GATHER || l->at[i].first != block) i++;
    double send = time[i].send.s;
    price_close(&b), session_close(&s);
    free(time);
    return send;
}

// Where only memory takes time, a block's weights are gathered for as long as it takes to read and write those that are
// this rank's own: of a layer, 4 + 8 matrices of 32 x 32, what is added to the four products, and two norms of two rows
// each, every row in whole 64s. Twice as long where ranks share cores.
static void own_weights_are_copied(void **state) {
    (void)state;
    enum { LAYER = 12 * 32 * 32 + (128 + 64 + 128 + 64) + 4 * 64 };
    char *dir = rank_dir();
    costs k;
    config c;
    plan_world w;
    OK(costs_parse(&k, "test",
                   "lockstep costs 2\ndevice test\ncopy 1 bytes/s 0.1 spread\nlink node 1e30 bytes/s 0 us 0 "
                   "spread\nend 2\n"));
    rank_config(&c, dir, gpt, "[parallel]\nzero = 3\n");
    world_of(&w, "1x2");
    for (int slower = 1; slower <= 2; slower++) {
        double copied = first_send(&c, &w, 0, &k, 2, slower) + first_send(&c, &w, 1, &k, 2, slower);
        if (fabs(copied - slower * 2 * 4 * LAYER) > 1e-6)
            fail_msg("%g bytes, expected %d", copied, slower * 2 * 4 * LAYER);
    }
    plan_world_close(&w), costs_free(&k);
    drop_dir(dir);
}

// A call takes longer where ranks share cores, for what it takes of them: twice at most.
static void calls_share_cores(void **state) {
    (void)state;
    static const double beside[] = {0, 0.5, 1, 1.5}, wanted[] = {1, 1.5, 2, 2};
    char *dir = rank_dir();
    costs k;
    config c;
    plan_world w;
    OK(costs_parse(&k, "test", links_only));
    rank_config(&c, dir, gpt, "[parallel]\nzero = 3\n");
    world_of(&w, "1x2");
    for (int i = 0; i < 4; i++)
        for (int block = -1; block <= 2; block += 3) {
            k.beside.is = beside[i];
            double ratio = first_send(&c, &w, 0, &k, block, 2) / first_send(&c, &w, 0, &k, block, 1);
            if (fabs(ratio - wanted[i]) > 1e-6)
                fail_msg("%g: %g times as long, expected %g", beside[i], ratio, wanted[i]);
        }
    plan_world_close(&w), costs_free(&k);
    drop_dir(dir);
}

// Where only links take time, a step takes as long as all that a rank sends, at each stage of ZeRO: the new weights of
// ZeRO 1 and 2, too, which are on their way as the next step begins.
static void all_that_is_sent_takes_time(void **state) {
    (void)state;
    enum { RANKS = 4 };
    char *dir = rank_dir(), more[64];
    costs k;
    search_result *r = malloc(sizeof *r);
    OK(costs_parse(&k, "test", links_only));
    for (int zero = 0; zero < 4; zero++) {
        plan_rank p;
        snprintf(more, sizeof more, "[parallel]\nzero = %d\n", zero);
        layout_of(r, &p, dir, gpt, more, &k, "1x4");
        double sent = (double)r->at[0].sent[COSTS_NODE] / RANKS, step = r->at[0].step_s;
        if (sent <= 0 || fabs(step / sent - 1) > 1e-6) fail_msg("zero %d: %g s, of %g bytes", zero, step, sent);
    }
    costs_free(&k);
    free(r);
    drop_dir(dir);
}

// What all backward passes of a step take on a rank.
static double backward_of(const config *c, const plan_world *w, int rank, const costs *k) {
    const price_machine m = {k, 1, 2};
    session s = {0};
    price_blocks b;
    double sum = 0;
    OK(plan_begin(&s, c, rank, w));
    const action_list *l = &s.runner.actions;
    price_time *time = calloc((size_t)l->count, sizeof *time);
    OK(price_open(&b, &s, &m));
    OK(price_list(&s, &m, &b, time));
    for (int i = 0; i < l->count; i++)
        if (l->at[i].kind == ACTION_BACKWARD) sum += time[i].compute.s;
    price_close(&b), session_close(&s);
    free(time);
    return sum;
}

// Of two stages with two layers each, and recompute = block. On the second one a micro-batch comes back as soon as it
// has gone forward, so its upper layer is not computed again. On the first one others went forward meanwhile: both are.
// With gpipe all went forward before the first one comes back: on both stages both layers are, but for the last
// micro-batch if it comes back first.
static void layers_are_computed_again_where_others_came_between(void **state) {
    (void)state;
    static const char *const schedule[] = {"1f1b", "gpipe"}, *const again[] = {"none", "block"};
    char *dir = rank_dir(), more[256];
    costs k;
    plan_world w;
    OK(costs_parse(&k, "test", "lockstep costs 2\ndevice test\ncopy 1e6 bytes/s 0 spread\nend 1\n"));
    world_of(&w, "1x2");
    for (int i = 0; i < 2; i++) {
        double s[2][2];
        for (int r = 0; r < 2; r++)
            for (int n = 0; n < 2; n++) {
                config c;
                snprintf(more, sizeof more, "[parallel]\npipeline = 2\nstages = 3 3\nschedule = %s\nrecompute = %s\n",
                         schedule[i], again[n]);
                rank_config(&c, dir, gpt, more);
                s[r][n] = backward_of(&c, &w, r, &k);
            }
        double ratio = (s[0][1] - s[0][0]) / (s[1][1] - s[1][0]), wanted = i ? 1 : 2;
        if (s[1][1] <= s[1][0] || fabs(ratio - wanted) > 1e-9)
            fail_msg("%s: the first stage computes %g times as much again as the second, expected %g", schedule[i],
                     ratio, wanted);
    }
    plan_world_close(&w), costs_free(&k);
    drop_dir(dir);
}

// A line that was measured by more ranks than have a core each says already what sharing costs. Of two cores: two ranks
// have one each, unless there are four in the run; a line of four is of two a core; eight take twice as long as that.
static void lines_of_many_ranks_have_shared_cores(void **state) {
    (void)state;
    static const struct {
        int ranks;
        double slower, s;
    } of[] = {{2, 1, 1}, {2, 2, 2}, {4, 2, 10}, {8, 4, 20}, {3, 1.5, 3.16227766016838}};
    costs k;
    OK(costs_parse(&k, "test",
                   "lockstep costs 2\ndevice test\ncopy 1e30 bytes/s 0 spread\nbeside 1 0 spread\n"
                   "comm all_gather node 2 8 1e6 us 0 spread\ncomm all_gather node 4 8 10e6 us 0 spread\nend 4\n"));
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const price_machine m = {&k, of[i].slower, 2};
        double s = price_call(&m, CALL_ALL_GATHER, COSTS_NODE, of[i].ranks, 8).s;
        if (fabs(s - of[i].s) > 1e-9)
            fail_msg("%d ranks, slower %g: %g s, expected %g", of[i].ranks, of[i].slower, s, of[i].s);
    }
    costs_free(&k);
}

// A search hands on what collectives take of the work beside them. Of ZeRO 0, where sums of gradients travel beside the
// backward pass: a share of 1 takes twice as much of it as 1/2, and the spread of a share is in the error.
static void work_beside_collectives_is_in_a_search(void **state) {
    (void)state;
    char *dir = rank_dir(), text[512];
    double left[3], error[3];
    search_result *r = malloc(sizeof *r);
    for (int i = 0; i < 3; i++) {
        costs k;
        plan_rank p;
        snprintf(text, sizeof text,
                 "lockstep costs 2\ndevice test\ncopy 1e6 bytes/s 0 spread\nbeside %g 0.5 spread\n"
                 "link node 1e6 bytes/s 0 us 0 spread\nend 3\n",
                 i / 2.0);
        OK(costs_parse(&k, "test", text));
        layout_of(r, &p, dir, gpt, "", &k, "1x2");
        left[i] = r->at[0].exposed_s, error[i] = r->at[0].error_s;
        costs_free(&k);
    }
    double hidden = left[2] - left[0];
    if (hidden <= 0 || fabs(left[1] - left[0] - hidden / 2) > 1e-9 * hidden || error[0] > 1e-9 ||
        fabs(error[1] - hidden / 4) > 1e-9 * hidden)
        fail_msg("left over: %g, %g, %g s; errors: %g, %g", left[0], left[1], left[2], error[0], error[1]);
    free(r);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(operations_are_those_of_a_step),
                                       cmocka_unit_test(state_may_be_kept_in_a_file),
                                       cmocka_unit_test(muon_turns_matrices),
                                       cmocka_unit_test(who_shares_a_block_waits),
                                       cmocka_unit_test(islands_mix_now_and_then),
                                       cmocka_unit_test(own_weights_are_copied),
                                       cmocka_unit_test(calls_share_cores),
                                       cmocka_unit_test(all_that_is_sent_takes_time),
                                       cmocka_unit_test(layers_are_computed_again_where_others_came_between),
                                       cmocka_unit_test(lines_of_many_ranks_have_shared_cores),
                                       cmocka_unit_test(work_beside_collectives_is_in_a_search),
                                       cmocka_unit_test(merges_have_times_of_their_own),
                                       cmocka_unit_test(nodes_are_looked_up_by_their_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
