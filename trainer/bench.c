// trainer/bench.c: the speed of training steps, whole and in parts, on made-up samples.
#include "trainer/bench.h"

#include "base/clock.h"
#include "gpu/peak.h"
#include "gpu/profile.h"
#include "trainer/costs/costs.h"
#include "trainer/log/report.h"
#include "trainer/session/machine.h"
#include "trainer/session/restore.h"
#include "trainer/step/timeline.h"
#include "trainer/waiting.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

enum { WARM = 2 };  // steps that are not counted: page faults, plans, caches

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double step_units(const session *x) { return (double)(x->cfg->batch.global * x->net->units); }

static double step_flops(const session *x) { return (double)x->cfg->batch.global * x->net->flops; }

static void print_shape(const session *x) {
    const config *c = x->cfg;
    char shape[256];
    x->net->type->describe(x->net->options, shape, sizeof shape);
    printf("%s  %s  %" PRId64 " x %" PRId64 " %ss  %" PRId64 " steps: ", device_about(x->dev)->name, shape,
           c->batch.global, x->net->units, x->net->unit, c->run.steps);
}

// --- whole steps -----------------------------------------------------------------------------------------------------

// The peak resident memory of this process, a rank, in bytes.
static double peak_resident(void) {
    struct rusage used = {0};
    getrusage(RUSAGE_SELF, &used);
    return 1024.0 * (double)used.ru_maxrss;
}

// Rank 0 prints the timed steps; ms is sorted.
static void print_times(const session *x, const double *ms) {
    int64_t steps = x->cfg->run.steps;
    double median = ms[steps / 2];
    print_shape(x);
    printf("median %.2f ms (min %.2f, max %.2f)  %.0f %s/s  %.1f GFLOP/s  resident at most %.1f MB\n", median, ms[0],
           ms[steps - 1], step_units(x) / median * 1e3, x->net->short_unit, step_flops(x) / median * 1e-6,
           1e-6 * peak_resident());
}

static void print_communication(const session *x, rank_report *times) {
    rank_summary t = report_take(times, x->state.reduce);
    if (x->ranks->world == 1) return;
    printf("%d ranks  zero %d  order %s  communication %.2f ms a step, waited for %.2f ms: %.0f %% hidden\n",
           x->ranks->world, x->state.o.stage, x->state.o.fixed ? "fixed" : "any", t.comm_ms, t.wait_ms, 100 * t.hidden);
}

// Idle time of the rank's stage by the schedule and the blocks' flops; all of a model that is not cut into stages work
// all the time.
static err_t predicted_idle(const session *x, double *idle) {
    timeline paper;
    for (int k = 0; k < x->ranks->world; k++) idle[k] = 0;
    if (!x->runner.pipelined) return ERR_OK;
    TRY(timeline_of_flops(&x->stages.pipe, x->net, x->stages.cut, x->cfg->parallel.recompute, &paper));
    for (int k = 0; k < x->ranks->world; k++) idle[k] = paper.rank[grid_at(&x->shape, k).stage].idle;
    timeline_free(&paper);
    return ERR_OK;
}

// Of ranks that share a model: what each computes in a step, and whom it waits for. step_ms: the mean of the timed
// steps.
static err_t print_ranks(const session *x, const rank_report *t, double step_ms) {
    double steps = t->steps ? (double)t->steps : 1, idle[t->world];
    if (!grid_is_divided(&x->shape)) return ERR_OK;
    TRY(predicted_idle(x, idle));
    printf("%-36s %9s %9s %9s %9s %9s %9s %9s %7s %9s\n", "ms of a step", "compute", "tensor", "before", "after",
           "data", "loader", "the end", "idle", "predicted");
    for (int k = 0; k < t->world; k++) {
        static const int waits[] = {REPORT_TENSOR_MS, REPORT_BEFORE_MS, REPORT_AFTER_MS, REPORT_WAIT_MS,
                                    REPORT_DATA_MS};
        char name[GRID_TEXT];
        const double *of = &t->sum[k * REPORT_ITEMS];
        double compute = of[REPORT_COMPUTE_MS] / steps, end = step_ms - compute;
        printf("%-36s %9.2f", grid_text(&x->shape, k, name), compute);
        for (size_t w = 0; w < sizeof waits / sizeof *waits; w++) {
            printf(" %9.2f", of[waits[w]] / steps);
            end -= of[waits[w]] / steps;
        }
        printf(" %9.2f %5.1f %% %7.1f %%\n", end > 0 ? end : 0, 100 * (1 - compute / step_ms), 100 * idle[k]);
    }
    printf(
        "waiting for ranks that share layers or positions (tensor), for the stages before and after, for ranks with the same stage and\n"
        "slices (data), for samples, until all have ended; predicted: idle by the schedule and the blocks' flops\n");
    return ERR_OK;
}

static double mean_of(const double *ms, int64_t steps) {
    double sum = 0;
    for (int64_t i = 0; i < steps; i++) sum += ms[i];
    return sum / (double)steps;
}

// Runs WARM steps and then the steps to be timed. ms (=) the time of each; *times (+=) what the ranks reported.
static err_t run_steps(session *x, double *ms, rank_report *times) {
    int64_t steps = x->cfg->run.steps;
    step_result s = {0};
    double start = 0;
    for (int64_t i = -WARM; i < steps; i++) {
        if (!x->runner.uncollected) start = clock_now();
        TRY(session_queue(x));
        if (i == -1 && device_profile(x->dev)) profile_clear(device_profile(x->dev));
        while (x->runner.uncollected > (step_runs_ahead(&x->runner) && i + 1 < steps ? 1 : 0)) {
            TRY(session_collect(x, &s));
            double now = clock_now();
            if (s.step > WARM) ms[s.step - WARM - 1] = 1e3 * (now - start);
            if (s.step >= WARM) report_add(times, s.reports);  // which leaves out the first one
            start = now;
        }
    }
    TRY(session_settle(x));
    return isfinite(s.loss) ? ERR_OK : err_set(ERR_INTERNAL, "the loss is not finite after %" PRId64 " steps", steps);
}

// Of the timed steps; ms is sorted.
static err_t print_all(const session *x, const double *ms, rank_report *times) {
    print_times(x, ms);
    TRY(print_ranks(x, times, mean_of(ms, x->cfg->run.steps)));
    print_communication(x, times);
    return ERR_OK;
}

static err_t whole_steps(session *x, double *ms) {
    rank_report times;
    err_t rc = report_open(&times, x->ranks->world);
    if (rc == ERR_OK) rc = run_steps(x, ms, &times);
    if (rc == ERR_OK) {
        qsort(ms, (size_t)x->cfg->run.steps, sizeof *ms, by_value);
        if (x->ranks->rank == 0) rc = print_all(x, ms, &times);
    }
    report_close(&times);
    return rc;
}

// --- parts of a step -------------------------------------------------------------------------------------------------

typedef struct ceilings {
    bool cuda;
    const char *unit;  // of a CPU: the instruction that multiplies
    double bandwidth, flops[INT32];
    double disk, disk_least;  // offload = nvme: of both walks the quicker one, and the slower
} ceilings;

static err_t leave(void *ctx, const zero_piece *part, tensor *value) {
    (void)ctx, (void)part, (void)value;
    return ERR_OK;
}

// offload = nvme: a walk over this rank's file as an update's, which leaves all as it is; the other ranks' walks go on
// beside it. bytes/s, read and written together.
static err_t measure_disk(session *x, ceilings *to) {
    train_state *t = &x->state;
    if (!state_spills(t) || !spilled_bytes(&t->spilled)) return ERR_OK;
    double began = clock_now();
    TRY(spilled_walk(&t->spilled, SPILL_UPDATE, leave, NULL));
    double rate = 2 * (double)spilled_bytes(&t->spilled) / (clock_now() - began);
    to->disk = fmax(to->disk, rate);
    to->disk_least = to->disk_least > 0 ? fmin(to->disk_least, rate) : rate;
    return ERR_OK;
}

// Keeps the maximum over several calls: a shared machine reaches its peak only now and then.
static err_t measure(session *x, ceilings *to) {
    to->cuda = device_about(x->dev)->kind == DEVICE_CUDA;
    to->bandwidth = fmax(to->bandwidth, peak_bandwidth(x->dev, x->s, 1));
    int threads = device_about(x->dev)->threads;
    double pairs = !to->cuda && x->cfg->precision.products == PRODUCTS_BF16_PAIRS ? peak_pairs(threads) : 0;
    // pairs without an instruction of their own are multiplied by FMA
    double fma = pairs > 0 ? pairs : to->cuda ? 0 : peak_fma(threads);
    to->unit = pairs > 0 ? "BF16 pairs" : "FMA";
    for (int t = FP32; t <= FP16; t++)
        to->flops[t] = fmax(to->flops[t], to->cuda ? peak_matmul(x->dev, x->s, (dtype)t, 8192) : fma);
    return measure_disk(x, to);
}

// Prints time, share of the step, speed, and the larger of the shares of the two ceilings. l: of one step.
static void print_line(const char *name, const profile_line *l, double step, const ceilings *top) {
    double peak = l->type <= FP16 ? top->flops[l->type] : 0, of_flops = peak > 0 ? l->flops / l->seconds / peak : 0;
    double of_bytes = top->bandwidth > 0 ? l->bytes / l->seconds / top->bandwidth : 0;
    char calls[24] = "", bytes[24] = "", flops[24] = "", share[24] = "";
    if (l->calls > 0) snprintf(calls, sizeof calls, "%" PRId64, l->calls);
    if (l->bytes > 0) snprintf(bytes, sizeof bytes, "%.1f", 1e-9 * l->bytes / l->seconds);
    if (l->flops > 0) snprintf(flops, sizeof flops, "%.1f", 1e-9 * l->flops / l->seconds);
    if (l->bytes > 0 || l->flops > 0)
        snprintf(share, sizeof share, "%.0f %%", 100 * (of_flops > of_bytes ? of_flops : of_bytes));
    printf("%-56s %6s %9.2f %6.1f %% %8s %9s %7s\n", name, calls, 1e3 * l->seconds, 100 * l->seconds / step, bytes,
           flops, share);
}

static void print_ceilings(const ceilings *top) {
    printf("ceilings: %s %.1f GB/s", top->cuda ? "copy" : "triad", 1e-9 * top->bandwidth);
    if (top->disk > 0) printf(", disk %.2f GB/s", 1e-9 * top->disk);
    if (!top->cuda) printf(", %s %.1f GFLOP/s", top->unit, 1e-9 * top->flops[FP32]);
    else
        printf(", matrix products fp32 %.1f, bf16 %.1f, fp16 %.1f GFLOP/s", 1e-9 * top->flops[FP32],
               1e-9 * top->flops[BF16], 1e-9 * top->flops[FP16]);
    printf("; a share is that of the ceiling which is nearer\n");
}

// Prints the mean over all steps. seconds: of a whole step; waited: the part of it that was spent waiting for other
// ranks.
static void print_parts(const session *x, const profile_line *line, int lines, double seconds, double waited,
                        const ceilings *top) {
    const double SMALL = 0.001;  // of a step: smaller ones share a line
    int64_t steps = x->cfg->run.steps;
    profile_line small = {.type = INT32}, wait = {.type = INT32, .seconds = waited},
                 rest = {.type = INT32, .seconds = seconds - waited};
    profile_line whole = {.type = x->state.o.compute, .seconds = seconds, .flops = step_flops(x)};
    print_shape(x);
    printf("mean %.2f ms\n", 1e3 * seconds);
    print_ceilings(top);
    printf("\n%-56s %6s %9s %8s %8s %9s %7s\n", "operations of a step", "calls", "ms", "share", "GB/s", "GFLOP/s",
           "ceiling");
    for (int i = 0; i < lines; i++) {
        char name[128];
        profile_line one = line[i];
        one.calls /= steps, one.seconds /= (double)steps, one.bytes /= (double)steps, one.flops /= (double)steps;
        rest.seconds -= one.seconds;
        snprintf(name, sizeof name, "%s %s", one.op, one.shape);
        if (one.seconds >= SMALL * seconds) print_line(name, &one, seconds, top);
        else small.calls += one.calls, small.seconds += one.seconds;
    }
    if (small.calls) print_line("those below 0.1 %", &small, seconds, top);
    if (x->ranks->world > 1) print_line("waiting for other ranks", &wait, seconds, top);
    if (rest.seconds > 0) print_line("between operations", &rest, seconds, top);
    print_line("a step: matrix products and attention by its whole time", &whole, seconds, top);
}

// The spread is the standard error of the mean, and no less than a percent: another day is another machine.
static costs_figure mean_call(const profile_line *l) {
    double n = (double)l->calls, mean = l->seconds / n, variance = fmax(l->squares / n - mean * mean, 0);
    return (costs_figure){mean, fmax(sqrt(variance / n) / mean, 0.01)};
}

// Before anything is measured: can it be saved?
static err_t check_save(const session *x) {
    costs c;
    if (!x->cfg->save || x->ranks->rank) return ERR_OK;
    TRY(costs_begin(&c, x->cfg->save, device_about(x->dev)->name));
    costs_free(&c);
    return ERR_OK;
}

// Bytes: what is free where this rank's file is, and what the files of this node's ranks have, divided among them.
static double disk_share(const session *x) {
    const spilled *f = &x->state.spilled;
    struct statvfs fs;
    if (statvfs(f->o.dir, &fs) != 0) return 0;
    return (double)fs.f_bavail * (double)fs.f_frsize / comm_near(x->ranks) + (double)spilled_bytes(f);
}

static err_t save_costs(const session *x, const profile_line *line, int lines, const ceilings *top) {
    const double PEAKS = 0.05;  // from one hour to another
    costs c;
    int64_t used, total;
    TRY(costs_begin(&c, x->cfg->save, device_about(x->dev)->name));
    err_t rc = ERR_OK;
    for (int t = FP32; t <= FP16; t++)
        if (top->flops[t] > 0) c.peak[t] = (costs_figure){top->flops[t], PEAKS};
    if (top->bandwidth > 0) c.copy = (costs_figure){top->bandwidth, PEAKS};
    if (top->disk > 0) {
        c.disk_copy = (costs_figure){top->disk, fmax(1 - top->disk_least / top->disk, PEAKS)};
        c.disk = disk_share(x);
    }
    if (top->cuda && device_memory(x->dev, &used, &total) == ERR_OK) c.memory = (double)total;
    for (int i = 0; i < lines && rc == ERR_OK; i++) {
        costs_op o = {.type = line[i].type, .options = line[i].options, .calls = line[i].calls};
        if (!line[i].size[0] || line[i].seconds <= 0) continue;  // "others"
        snprintf(o.name, sizeof o.name, "%s", line[i].op);
        memcpy(o.size, line[i].size, sizeof o.size);
        o.s = mean_call(&line[i]);
        rc = costs_set_op(&c, &o);
    }
    if (rc == ERR_OK) rc = costs_save(&c, x->cfg->save);
    if (rc == ERR_OK) printf("saved   %d shapes of operations are in %s\n", c.ops, x->cfg->save);
    costs_free(&c);
    return rc;
}

// Of rank 0: in all timed steps.
static double waited_ms(const rank_report *t) {
    return t->sum[REPORT_WAIT_MS] + t->sum[REPORT_BEFORE_MS] + t->sum[REPORT_AFTER_MS];
}

static err_t parts_of_steps(session *x, double *ms) {
    ceilings top = {0};
    rank_report times = {0};
    profile_line *line = calloc(PROFILE_LINES, sizeof *line);
    if (!line) return err_set(ERR_INTERNAL, "no memory for %d lines", PROFILE_LINES);
    err_t rc = check_save(x);
    if (rc == ERR_OK) rc = measure(x, &top);
    if (rc == ERR_OK) rc = report_open(&times, x->ranks->world);
    if (rc == ERR_OK) rc = run_steps(x, ms, &times);
    int lines = rc == ERR_OK ? profile_read(device_profile(x->dev), line) : 0;  // before more is measured
    if (rc == ERR_OK) rc = measure(x, &top);
    if (rc == ERR_OK && x->ranks->rank == 0) {
        double mean = mean_of(ms, x->cfg->run.steps), steps = times.steps ? (double)times.steps : 1;
        print_parts(x, line, lines, 1e-3 * mean, 1e-3 * waited_ms(&times) / steps, &top);
        rc = print_ranks(x, &times, mean);
        if (rc == ERR_OK && x->cfg->save) rc = save_costs(x, line, lines, &top);
    }
    report_close(&times);
    free(line);
    return rc == ERR_OK ? rc : err_pass(__FILE__, __LINE__, __func__, rc);
}

// --- a rank ----------------------------------------------------------------------------------------------------------

static err_t bench(const config *c, const launch *at, board *b, session_kind kind,
                   err_t (*body)(session *x, double *ms)) {
    session x = {0};
    double *ms = calloc((size_t)c->run.steps, sizeof *ms);
    err_t rc = ms ? session_machine(&x, c, kind, at->local)
                  : err_set(ERR_INTERNAL, "no memory for %" PRId64 " timings", c->run.steps);
    if (rc == ERR_OK) rc = waiting_enter(&x, at, b, false);
    if (rc == ERR_OK) {
        atomic_fetch_add(&b->ready, 1);
        rc = session_init(&x);
    }
    if (rc == ERR_OK) rc = session_feed(&x, c->run.steps + WARM);
    if (rc == ERR_OK) rc = body(&x, ms);
    session_abort(&x, rc);
    session_close(&x);
    free(ms);
    return rc;
}

err_t bench_rank(const config *c, const launch *at, board *b) { return bench(c, at, b, SESSION_BENCH, whole_steps); }
err_t bench_step_rank(const config *c, const launch *at, board *b) {
    return bench(c, at, b, SESSION_PROFILE, parts_of_steps);
}
