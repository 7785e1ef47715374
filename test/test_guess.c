// test/test_guess.c: a guess of a layout's step, by hand, on machines where one thing alone takes time: computing,
// bytes on links of each level, starting a call; and what is least of a rank's memory.
#include "test/support/search.h"
#include "trainer/plan/guess.h"

static void close_to(const char *what, double found, double wanted) {
    if (!(fabs(found - wanted) <= 1e-9 * fabs(wanted) + 1e-15))
        fail_msg("%s: %.12g, expected %.12g", what, found, wanted);
}

enum { BLOCKS = 6 };

typedef struct stage {
    config c;
    plan_world w;
    costs k;
    guesser g;
    double forward[BLOCKS], backward[BLOCKS];
    block_times b;
} stage;

// links: lines of a table. values: of the model.
static void open_stage(stage *x, const char *dir, const char *more, const char *world, const char *links, int lines,
                       double values) {
    char text[512];
    *x = (stage){0};
    rank_config(&x->c, dir, gpt, more);
    world_of(&x->w, world);
    snprintf(text, sizeof text, "lockstep costs 2\ndevice t\nmemory 1e9 bytes\n%send %d\n", links, 1 + lines);
    OK(costs_parse(&x->k, "test", text));
    x->g = (guesser){.c = &x->c, .w = &x->w, .k = &x->k, .m = {&x->k, 1, 1}, .values = values};
    x->b = (block_times){BLOCKS, x->forward, x->backward, 0};
}

static void close_stage(stage *x) { costs_free(&x->k), plan_world_close(&x->w); }

static search_choice shape(const stage *x, int tensor, int pipeline, int data) {
    return (search_choice){.tensor = tensor,
                           .context = 1,
                           .pipeline = pipeline,
                           .data = data,
                           .chunks = 1,
                           .schedule = PIPELINE_1F1B,
                           .micro = x->c.resolved.micro,
                           .lanes = x->c.resolved.lanes,
                           .slices = 4};
}

static const char quick[] = "link node 1e30 bytes/s 0 us 0 spread\nlink rack 1e30 bytes/s 0 us 0 spread\n";

// --- computing -------------------------------------------------------------------------------------------------------

// Blocks of 1 to 6 s forward and twice that backward, 63 s in all: cut in two at best 30 and 33 s, in three 18, 27, 18.
static void work_is_the_slowest_ranks(void **state) {
    (void)state;
    static const struct {
        int pipeline, chunks, data;
        pipeline_kind kind;
        double one, fills;  // of the slowest rank, and how many of them a pipeline waits
    } of[] = {{1, 1, 1, PIPELINE_1F1B, 63, 0},        {1, 1, 4, PIPELINE_1F1B, 63, 0},
              {2, 1, 1, PIPELINE_1F1B, 33, 1},        {2, 1, 1, PIPELINE_GPIPE, 33, 1},
              {3, 1, 1, PIPELINE_1F1B, 27, 2},        {3, 1, 2, PIPELINE_ZB_H1, 27, 2 / 3.0},
              {3, 2, 1, PIPELINE_INTERLEAVED, 27, 1}, {3, 2, 1, PIPELINE_ZB_V, 21, 0.2}};
    char *dir = rank_dir();
    stage x;
    int cut[BLOCKS + 1];
    open_stage(&x, dir, "[batch]\nglobal = 64\nmicro = 2\nlanes = 16\n", "1x1", quick, 2, 1000);
    for (int i = 0; i < BLOCKS; i++) x.forward[i] = i + 1, x.backward[i] = 2 * (i + 1);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        search_choice is = shape(&x, 1, of[i].pipeline, of[i].data);
        is.chunks = of[i].chunks, is.schedule = of[i].kind;
        double micros = 16.0 / of[i].data * 2;
        close_to("slowest", guess_slowest_rank(&x.b, &is, cut), of[i].one);
        assert_true(cut[0] == 0 && cut[of[i].pipeline * of[i].chunks] == BLOCKS);
        close_to("step", guess_step(&x.g, &is, &x.b), of[i].one * (micros + of[i].fills));
    }
    search_choice three = shape(&x, 1, 1, 3);  // six lanes for one of them
    close_to("uneven lanes", guess_step(&x.g, &three, &x.b), 63 * 12);
    x.c.server.count = 1;
    search_choice four = shape(&x, 1, 1, 4);
    assert_int_equal(guess_workers(&x.g, &four), 3);
    close_to("servers have none", guess_step(&x.g, &four, &x.b), 63 * 12);
    four.data = 1;
    assert_int_equal(guess_workers(&x.g, &four), 1);
    x.c.server.count = 0, x.c.outer.islands = 2;  // each has half of the lanes
    close_to("islands", guess_step(&x.g, &four, &x.b), 63 * 16);
    close_stage(&x);
    drop_dir(dir);
}

// --- what is sent ----------------------------------------------------------------------------------------------------

// A byte on a link takes 1, 1e3, 1e6 s within nodes, racks, and between racks; nothing is computed, so nothing hides.
// 1,200 values of 4 bytes; a piece is a member's share. What collectives send on each level is theirs (comm/cost.h).
static void bytes_go_by_level(void **state) {
    (void)state;
    static const char levels[] = "link node 1 bytes/s 0 us 0 spread\nlink rack 1e-3 bytes/s 0 us 0 spread\n"
                                 "link spine 1e-6 bytes/s 0 us 0 spread\n";
    static const struct {
        const char *world;
        int tensor, pipeline, data, context;
    } of[] = {{"1x4", 1, 1, 4, 1},    {"2x2", 1, 1, 4, 1},   {"4x1", 1, 1, 4, 1}, {"4x1x2", 1, 1, 4, 1},
              {"4x2x2", 1, 1, 8, 1},  {"2x4", 4, 1, 2, 1},   {"2x4", 2, 1, 4, 1}, {"2x4", 1, 2, 4, 1},
              {"8x2x4", 1, 1, 16, 1}, {"8x2x2", 2, 1, 8, 1}, {"2x4", 1, 1, 4, 2}, {"4x2x2", 1, 1, 2, 4}};
    static const double base[] = {1, 1e3, 1e6};
    char *dir = rank_dir();
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        stage x;
        groups all = {0};
        comm *world;
        open_stage(&x, dir, "[reduce]\nbucket_mb = 1\n", of[i].world, levels, 3, 1200);
        const grid g = {
            .tensor = of[i].tensor, .pipeline = of[i].pipeline, .data = of[i].data, .context = of[i].context};
        OK(plan_comm(&world, &x.w, 0));
        OK(groups_imagine(&all, &g, world));
        const comm *group = all.group[GROUP_DATA];
        double piece = 1200.0 / of[i].tensor / of[i].pipeline / group->world, scatter = 0, gather = 0;
        size_t cut[65];
        for (int r = 0; r <= group->world; r++) cut[r] = (size_t)r * 1000;
        comm_cost sent = cost_all_gather(group, cut);
        const int64_t up[] = {sent.sent - sent.sent_far, sent.sent_far - sent.sent_racks, sent.sent_racks};
        for (int level = 0; level < 3; level++) gather += base[level] * 4 * piece * (double)up[level] / 1000;
        for (int r = 1; r < group->world; r++) {
            comm_spot a = comm_where(group, 0), b = comm_where(group, r);
            scatter += base[a.rack != b.rack ? 2 : a.node != b.node ? 1 : 0] * 4 * piece;
        }
        for (int zero = 0; zero < 4; zero++) {
            search_choice is = shape(&x, of[i].tensor, of[i].pipeline, of[i].data), alone = shape(&x, 1, 1, 1);
            is.zero = zero, is.context = of[i].context;
            close_to("a rank alone", guess_step(&x.g, &alone, &x.b), 0);  // between two groups of the same kind
            double turns = zero < 2 ? 1 : 16.0 / of[i].data, gathers = zero < 3 ? 1 : 2 * 16.0 / of[i].data;
            close_to(of[i].world, guess_step(&x.g, &is, &x.b), turns * scatter + gathers * gather);
        }
        x.c.precision.compute = BF16;  // weights are half as large, sums are not
        search_choice is = shape(&x, of[i].tensor, of[i].pipeline, of[i].data);
        is.context = of[i].context;
        close_to("sums", guess_step(&x.g, &is, &x.b), scatter + gather);
        is.zero = 1;
        close_to("weights", guess_step(&x.g, &is, &x.b), scatter + gather / 2);
        groups_close(&all), world->table->close(world), close_stage(&x);
    }
    drop_dir(dir);
}

// A call takes a second to begin, and its bytes nothing: gradients of 4,000 bytes in buckets of 1,000; weights at once,
// or, for each micro-batch forward and backward, block after block.
static void calls_have_a_start(void **state) {
    (void)state;
    static const char late[] = "link node 1e30 bytes/s 1e6 us 0 spread\nlink rack 1e30 bytes/s 1e6 us 0 spread\n";
    char *dir = rank_dir();
    stage x;
    open_stage(&x, dir, "[reduce]\nbucket_mb = 0.001\n", "1x2", late, 2, 1000);
    for (int zero = 0; zero < 4; zero++) {
        search_choice is = shape(&x, 1, 1, 2);
        is.zero = zero;
        double turns = zero < 2 ? 1 : 8, gathers = zero < 3 ? 1 : 2 * 8 * BLOCKS;
        close_to("starts", guess_step(&x.g, &is, &x.b), turns * 4 + gathers);
    }
    search_choice half = shape(&x, 1, 2, 2);  // of the values; one chunk's messages, of nothing, take no time
    close_to("half of the model", guess_step(&x.g, &half, &x.b), 2 + 1);
    close_stage(&x);
    drop_dir(dir);
}

// Gradients hide beside the last backward pass, weights beside the first forward pass, those of stage 3 beside all
// work: 0.9 of them in 0.7 of that. Where a call takes the rank's own time, nothing hides.
static void some_of_it_hides(void **state) {
    (void)state;
    static const char slow[] = "link node 1 bytes/s 0 us 0 spread\nlink rack 1 bytes/s 0 us 0 spread\n";
    char *dir = rank_dir();
    for (int quicker = 0; quicker < 2; quicker++)
        for (int beside = 0; beside < 3; beside++) {
            stage x;
            open_stage(&x, dir, "[reduce]\nbucket_mb = 1\n", "1x2", slow, 2, quicker ? 3 : 3000);
            x.k.beside = (costs_figure){beside / 2.0, 0};
            for (int i = 0; i < BLOCKS; i++)
                x.forward[i] = 5, x.backward[i] = 10;  // 90 s; 60 of backward, 30 of forward
            double n = 4 * x.g.values / 2, kept = 1 - beside / 2.0, all = 8 * 90;  // n: bytes, and seconds
            double sums = n - kept * fmin(0.9 * n, 0.7 * 60), weights = n - kept * fmin(0.9 * n, 0.7 * 30),
                   third = 16 * n - kept * fmin(0.9 * 16 * n, 0.7 * all);
            const double wanted[] = {sums + n, sums + weights, 8 * sums + weights, 8 * sums + third};
            for (int zero = 0; zero < 4; zero++) {
                search_choice is = shape(&x, 1, 1, 2);
                is.zero = zero;
                close_to("left over", guess_step(&x.g, &is, &x.b), all + wanted[zero]);
            }
            close_stage(&x);
        }
    drop_dir(dir);
}

// --- messages between stages -----------------------------------------------------------------------------------------

// A message takes a second within a node, 100 between nodes; nothing is computed. The slowest link counts.
static void messages_are_waited_for(void **state) {
    (void)state;
    static const char links[] = "link node 1000 bytes/s 0 us 0 spread\nlink rack 10 bytes/s 0 us 0 spread\n";
    static const struct {
        const char *world;
        int pipeline, chunks;
        pipeline_kind kind;
        double waits, message;  // of a micro-batch
    } of[] = {{"1x2", 2, 1, PIPELINE_1F1B, 1, 1},
              {"1x4", 4, 1, PIPELINE_1F1B, 1.5, 1},
              {"1x4", 4, 1, PIPELINE_GPIPE, 1.5, 1},
              {"1x4", 4, 1, PIPELINE_ZB_H1, 0.75, 1},
              {"1x2", 2, 2, PIPELINE_ZB_V, 0.5, 1},
              {"1x2", 2, 2, PIPELINE_INTERLEAVED, 1.25, 1},
              {"2x1", 2, 1, PIPELINE_1F1B, 1, 100},
              {"2x2", 4, 1, PIPELINE_1F1B, 1.5, 100},
              {"1x3", 3, 2, PIPELINE_INTERLEAVED, 1.25 * 2 * 2 / 3, 1}};
    char *dir = rank_dir();
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        stage x;
        open_stage(&x, dir, "", of[i].world, links, 2, 1000);
        x.b.left = 1000;
        search_choice is = shape(&x, 1, of[i].pipeline, 1);
        is.chunks = of[i].chunks, is.schedule = of[i].kind;
        double most = fmax(2 * (of[i].pipeline - 1) + 16 * of[i].waits, 16 * of[i].chunks);
        close_to(of[i].world, guess_step(&x.g, &is, &x.b), most * of[i].message);
        for (int k = 0; k < BLOCKS; k++) x.forward[k] = 1;
        int cut[BLOCKS + 1];
        double one = guess_slowest_rank(&x.b, &is, cut);
        assert_true(guess_step(&x.g, &is, &x.b) >= 16 * one + of[i].message * (2 * (of[i].pipeline - 1)));
        close_stage(&x);
    }
    // of two pipelines whose stages are a node each, the next stage is in another one; as where ranks share positions
    stage x;
    open_stage(&x, dir, "", "2x2", links, 2, 0);
    x.b.left = 1000;
    search_choice is = shape(&x, 1, 2, 2);
    close_to("beside another pipeline", guess_step(&x.g, &is, &x.b), 100 * (2 + 8 * 1.0));
    is.data = 1, is.context = 2;
    close_to("positions", guess_step(&x.g, &is, &x.b), 100 * (2 + 16 * 1.0));
    close_stage(&x);
    drop_dir(dir);
}

// --- memory ----------------------------------------------------------------------------------------------------------

// Of an element: three numbers of the state, which stages 1 to 3 divide; a weight in use, where it is not the master,
// which stage 3 divides; a gradient, of which stages 2 and 3 keep at least half of a share.
static void memory_is_the_least(void **state) {
    (void)state;
    static const char *const none = "";
    static const double fp32[] = {16, 12 / 4.0 + 4 + 4, 12 / 4.0 + 4 + 0.5, 12 / 4.0 + 1 + 0.5},
                        bf16[] = {18, 12 / 4.0 + 2 + 4, 12 / 4.0 + 2 + 0.5, 12 / 4.0 + 0.5 + 0.5};
    char *dir = rank_dir();
    stage x;
    open_stage(&x, dir, none, "1x4", quick, 2, 8000);
    for (int zero = 0; zero < 4; zero++) {
        search_choice is = shape(&x, 1, 1, 4), cut = shape(&x, 2, 2, 4), wide = shape(&x, 1, 1, 2);
        is.zero = cut.zero = wide.zero = zero, wide.context = 2;
        x.c.precision.compute = FP32;
        close_to("fp32", guess_least_bytes(&x.g, &is), 8000 * fp32[zero]);
        close_to("a quarter of the model", guess_least_bytes(&x.g, &cut), 2000 * fp32[zero]);
        close_to("ranks that share positions", guess_least_bytes(&x.g, &wide), 8000 * fp32[zero]);
        x.c.precision.compute = BF16;
        close_to("bf16", guess_least_bytes(&x.g, &is), 8000 * bf16[zero]);
        is.offload = OFFLOAD_HOST;
        close_to("state elsewhere", guess_least_bytes(&x.g, &is), 8000 * (bf16[zero] - (zero ? 3 : 12)));
    }
    close_stage(&x);
    drop_dir(dir);
}

// An element takes 6 bytes of the link to the host and 34 of its memory, or 24 of the disk beside that; only where it
// is kept there, and where that is known.
static void an_update_elsewhere_takes_time(void **state) {
    (void)state;
    char *dir = rank_dir();
    stage x;
    open_stage(&x, dir, "", "1x4", quick, 2, 1000);
    search_choice is = shape(&x, 1, 2, 1), shared = shape(&x, 1, 1, 2), four = shape(&x, 1, 1, 2);
    x.k.host_link.is = 2, x.k.host_copy.is = 10, x.k.disk_copy.is = 100;
    close_to("here", guess_step(&x.g, &is, &x.b), 0);
    is.offload = shared.offload = OFFLOAD_HOST;
    close_to("host", guess_step(&x.g, &is, &x.b), 500 * (3 + 3.4));
    shared.zero = 1;
    close_to("a share each", guess_step(&x.g, &shared, &x.b), 500 * (3 + 3.4));
    four.offload = OFFLOAD_HOST, four.zero = four.context = 2;
    close_to("of four", guess_step(&x.g, &four, &x.b), 250 * (3 + 3.4));
    shared.zero = 0;
    close_to("all each", guess_step(&x.g, &shared, &x.b), 1000 * (3 + 3.4));
    is.offload = OFFLOAD_NVME;
    close_to("a quick disk", guess_step(&x.g, &is, &x.b), 500 * (3 + 3.4));
    x.k.disk_copy.is = 1;
    close_to("a slow disk", guess_step(&x.g, &is, &x.b), 500 * 24);
    x.k.host_link.is = 0;
    is.offload = OFFLOAD_HOST;
    close_to("a host that is not known", guess_step(&x.g, &is, &x.b), 0);
    close_stage(&x);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(work_is_the_slowest_ranks),
                                       cmocka_unit_test(bytes_go_by_level),
                                       cmocka_unit_test(calls_have_a_start),
                                       cmocka_unit_test(some_of_it_hides),
                                       cmocka_unit_test(messages_are_waited_for),
                                       cmocka_unit_test(memory_is_the_least),
                                       cmocka_unit_test(an_update_elsewhere_takes_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
