// test/test_heap.c: a step in steady state makes no heap call. malloc and its kin are replaced by ones that count, for
// this whole program: our code, the libraries' code, and every thread.
#include "test/support/run.h"

#include "base/clock.h"
#include "gpu/cpu/rapl.h"
#include "trainer/log/power.h"
#include "trainer/speed.h"

#include <sys/wait.h>

#if defined(__SANITIZE_ADDRESS__)  // the sanitizer has its own malloc in this place
int main(void) {
    puts("0 passed, 0 failed, 1 skipped");
    puts("skipped: test_heap (the sanitizer owns malloc)");
    return 0;
}
#else

#include "test/support/heap.h"
#include "trainer/session/restore.h"

static const char *const kinds[] = {"",
                                    "[precision]\ncompute = bf16\n[model]\ndropout = 0.1\n",
                                    "[precision]\ncompute = fp16\n[device]\nthreads = 1\n",
                                    "[parallel]\nrecompute = block\n",
                                    "[parallel]\noffload = nvme\n",
                                    "[log]\ntensorboard = yes\n",
                                    "[reduce]\ncompress = int8\ncompress_back = fp16\n"};

static const char small_model[] = SMALL_GPT(2, 2, 32, 32, 128) "[batch]\nglobal = 8\nmicro = 2\n";

// Steps with their log records and hashes, as the loop makes them; no checkpoint, no evaluation. Returns the heap calls
// of all but the first two.
static long steps_of(const config *c, const launch *at) {
    char hash[17];
    long calls_made = 0;
    session x;
    monitor m;
    step_result s;
    OK(session_open(&x, c, SESSION_TRAIN, at));
    OK(session_init(&x));
    OK(session_feed(&x, 40));
    OK(io_mkdirs(x.dir));
    board *b = calloc(1, board_bytes(1));
    rank_report shares;
    speed v;
    assert_non_null(b);
    board_init(b, 1);
    step_show(&x.runner, &b->rank[0]);
    OK(report_open(&shares, x.ranks->world));
    OK(speed_open(&v, &x, 0));
    OK(monitor_open(&m, &(log_setup){.dir = x.dir, .c = c, .quiet = true, .board = b}));
    for (int i = 1; i <= 40; i++) {
        long before = atomic_load(&heap_calls);
        OK(session_step(&x, &s));
        OK(session_settle(&x));
        OK(ckpt_hash(&x.state.ckpt, hash));
        monitor_log(&m, &(record){RECORD_STEP, .step = {.step = i,
                                                        .logged = true,
                                                        .loss = s.loss,
                                                        .grad_norm = s.grad_norm,
                                                        .lr = s.lr,
                                                        .ms = 1,
                                                        .mfu = speed_mfu(&v, 1),
                                                        .resident = speed_resident(&v),
                                                        .device_bytes = speed_device_bytes(&x),
                                                        .time = clock_wall(),
                                                        .hash = hash,
                                                        .world = x.ranks->world}});
        report_add(&shares, s.reports);
        if (i % 4 == 0) monitor_log(&m, &(record){RECORD_RANKS, .ranks = {i, shares.steps, shares.world, shares.sum}});
        assert_true(loader_about(x.data).bytes > 0);
        if (i > 2) calls_made += atomic_load(&heap_calls) - before;
    }
    monitor_close(&m);
    report_close(&shares);
    speed_close(&v);
    session_close(&x);
    free(b);
    return calls_made;
}

static void steady_steps_make_no_heap_call(void **state) {
    (void)state;
    for (int k = 0; k < (int)(sizeof kinds / sizeof *kinds); k++) {
        char *dir = make_dir();
        config c;
        write_tokens(dir, "text.bin", 20000);
        write_tokens(dir, "val.bin", 1500);
        load_config(&c, dir, small_model, kinds[k]);
        long made = steps_of(&c, NULL);
        if (made != 0) fail_msg("steps of kind %d made %ld heap calls, expected 0", k, made);
        drop_dir(dir);
    }
}

// Steps of so many ranks, each of which is a process and ends with 1 when it has made a call.
static void expect_no_call(const char *what, int ranks, const char *more) {
    char *dir = make_dir(), all[512];
    config c;
    launch l;
    write_tokens(dir, "text.bin", 20000);
    write_tokens(dir, "val.bin", 1500);
    snprintf(all, sizeof all, "%s\n[reduce]\nbucket_mb = 0.02\n[device]\nthreads = 1\n[cluster]\ntimeout = 20\n", more);
    load_config(&c, dir, small_model, all);
    OK(launch_open(&l, 1, &ranks, NULL, 0));
    grid shape = config_grid(&c, ranks);
    channel_plan plan = grid_channels(&shape);
    if (plan.channels) OK(launch_channels(&l, &plan));
    fflush(NULL);
    for (int i = 0; i < ranks; i++) {
        if (fork() != 0) continue;
        alarm(30);
        launch_become(&l, i);
        _exit(steps_of(&c, &l) != 0);
    }
    launch_close(&l);
    for (int i = 0, status; i < ranks; i++) {
        assert_true(wait(&status) > 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("%s: a rank made heap calls in steady steps, or failed (status %d)", what, status);
    }
    drop_dir(dir);
}

static void nor_do_those_of_several_ranks(void **state) {
    (void)state;
    for (int zero = 0; zero <= 3; zero++) {
        char more[64];
        snprintf(more, sizeof more, "[parallel]\nzero = %d\noffload = %s\n", zero, zero == 2 ? "nvme" : "none");
        expect_no_call(more, 3, more);
    }
}

// Two islands of two ranks, which mix after every second step.
static void nor_do_those_of_islands(void **state) {
    (void)state;
    for (int zero = 0; zero <= 3; zero++) {
        char more[256];
        snprintf(more, sizeof more,
                 "[run]\nsteps = 40\n[eval]\nevery = 40\n[checkpoint]\nevery = 40\n[sample]\nevery = 40\n"
                 "[outer]\nislands = 2\nevery = 2\ntype = %s\ncompress = %s\n[parallel]\nzero = %d\n",
                 zero % 2 ? "average" : "nesterov", zero < 2 ? "none" : "int8", zero);
        expect_no_call(more, 4, more);
    }
}

// Two pipelines of two ranks.
static void nor_do_those_of_pipelines(void **state) {
    (void)state;
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved\nchunks = 2", "zb-h1", "zb-v\nchunks = 2"};
    for (int k = 0; k < 5; k++) {
        char more[128];
        snprintf(more, sizeof more, "[parallel]\npipeline = 2\nzero = %d\nschedule = %s\n", k % 4, schedules[k]);
        expect_no_call(more, 4, more);
    }
}

// Ranks that share layers, alone, beside each other and as stages of a pipeline; with rows of their own or not.
static void nor_do_those_that_share_layers(void **state) {
    (void)state;
    static const struct {
        int ranks;
        const char *more;
    } layouts[] = {{2, ""},
                   {4, "zero = 2\nsequence = yes\n"},
                   {4, "pipeline = 2\n"},
                   {4, "pipeline = 2\nschedule = zb-h1\nsequence = yes\n"}};
    for (int k = 0; k < (int)(sizeof layouts / sizeof *layouts); k++) {
        char more[128];
        snprintf(more, sizeof more, "[parallel]\nslices = 2\ntensor = 2\n%s", layouts[k].more);
        expect_no_call(more, layouts[k].ranks, more);
    }
}

// Ranks that share positions: each with one token slice, with two, and as stages of a pipeline.
static void nor_do_those_that_share_positions(void **state) {
    (void)state;
    static const struct {
        int ranks;
        const char *more;
    } layouts[] = {{2, "token_slices = 2\nzero = 2\n"},
                   {2, "token_slices = 4\nzero = 3\n"},
                   {4, "token_slices = 4\nzero = 2\npipeline = 2\n"}};
    for (int k = 0; k < (int)(sizeof layouts / sizeof *layouts); k++) {
        char more[128];
        snprintf(more, sizeof more, "[parallel]\nslices = 4\ncontext = 2\n%s[model]\nheads = 4\n", layouts[k].more);
        expect_no_call(more, layouts[k].ranks, more);
    }
}

// Nor do readings of sensors, and what is logged of them.
static void nor_does_reading_energy(void **state) {
    (void)state;
    static const char *const files[] = {"name", "max_energy_range_uj", "energy_uj"};
    static const char *const texts[] = {"package-0\n", "65532610987\n", "12345678\n"};
    char *dir = make_dir(), zone[512];
    double report[REPORT_ITEMS] = {[REPORT_SENSED] = 1, [REPORT_WATTS] = 100, [REPORT_LIMITED] = LIMITED_HEAT},
           joules = 0;
    config c = {.run.steps = 40, .log.jsonl = true, .log.tensorboard = true};
    comm *alone;
    device *dev;
    monitor m;
    power p;
    rapl r;
    snprintf(zone, sizeof zone, "%s/intel-rapl:0", dir);
    OK(io_mkdirs(zone));
    for (int i = 0; i < 3; i++) write_text(zone, files[i], texts[i]);
    OK(rapl_open(&r, dir));
    OK(comm_self_open(&alone));
    OK(device_open(&dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    err_t rc = power_open(&p, dev, alone, 1, 0);
    assert_true(rc == ERR_OK || rc == ERR_UNAVAILABLE);  // as this machine has it
    OK(monitor_open(&m, &(log_setup){.dir = dir, .c = &c, .quiet = true}));
    long before = 0;
    for (int i = 1; i <= 40; i++) {
        double mine[REPORT_ITEMS];
        if (i == 3) before = atomic_load(&heap_calls);  // the first event makes the C library read its time zone
        OK(rapl_read(&r, &joules));
        power_report(&p, i, mine);
        power_log(&p, &m, i, report, 64);
    }
    long made = atomic_load(&heap_calls) - before;
    if (made != 0) fail_msg("readings made %ld heap calls, expected 0", made);
    assert_true(monitor_log_bytes(&m) > 0);
    monitor_close(&m);
    power_close(&p);
    device_close(dev);
    alone->table->close(alone);
    rapl_close(&r);
    drop_dir(dir);
}

// The counter counts: otherwise the test above could not fail.
static void the_counter_counts(void **state) {
    (void)state;
    long before = atomic_load(&heap_calls);
    char *volatile p = strdup("x");
    free(p);
    assert_int_equal(atomic_load(&heap_calls) - before, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_counter_counts),
                                       cmocka_unit_test(steady_steps_make_no_heap_call),
                                       cmocka_unit_test(nor_do_those_of_several_ranks),
                                       cmocka_unit_test(nor_do_those_of_islands),
                                       cmocka_unit_test(nor_do_those_of_pipelines),
                                       cmocka_unit_test(nor_do_those_that_share_layers),
                                       cmocka_unit_test(nor_do_those_that_share_positions),
                                       cmocka_unit_test(nor_does_reading_energy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
