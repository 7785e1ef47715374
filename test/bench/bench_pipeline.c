// test/bench/bench_pipeline.c: the bubble of pipeline schedules, measured: the real trainer, processes and links on a
// device that computes nothing.
//
//     bench_pipeline [MS [STEPS [SCHEDULE]]]      a forward pass of a stage takes MS milliseconds (10); the median of
//     STEPS steps (11)
//
// Four ranks train a perceptron. A product of one of its hidden layers sleeps, so a layer takes as long forward as in
// each half of backward, however few cores there are; all other operations do nothing. A sleep ends at a time of the
// clock. Who wakes late sleeps that much less the next time, unless waiting for another rank took up the delay: errors
// of sleeping do not add up. All else takes the time that it takes: the trainer's own work, messages, the step's end.
//
// A line of the table: how long a step takes by trainer/step/timeline.h with the same times, by the schedule's table
// and with its halves for weights moved to before the end of their lane, as the trainer runs them; how long it took;
// and the share in which the ranks ran no product. 8 lanes of 1 are 8 micro-batches of which each is a lane.
#include "base/clock.h"
#include "base/io.h"
#include "gpu/backend.h"
#include "trainer/session/machine.h"
#include "trainer/session/restore.h"
#include "trainer/step/timeline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, LAYERS = 8, WIDTH = 48, WARM = 2, STEPS_MOST = 1001, LIMIT_S = 300 };

typedef struct layout {
    const char *schedule;
    int chunks, lanes, micros;  // micros: of a lane
} layout;

static const layout layouts[] = {
    {"gpipe", 1, 1, 8},       {"gpipe", 1, 8, 1}, {"gpipe", 1, 8, 2},       {"1f1b", 1, 1, 8},
    {"1f1b", 1, 8, 1},        {"1f1b", 1, 8, 2},  {"interleaved", 2, 1, 8}, {"interleaved", 2, 8, 1},
    {"interleaved", 2, 8, 2}, {"zb-h1", 1, 1, 8}, {"zb-h1", 1, 8, 1},       {"zb-h1", 1, 1, 16},
    {"zb-h1", 1, 8, 2},       {"zb-v", 2, 1, 8},  {"zb-v", 2, 8, 1},        {"zb-v", 2, 1, 16},
    {"zb-v", 2, 8, 2},
};

// What a run leaves, in memory that its processes share.
typedef struct outcome {
    double s[STEPS_MOST];  // of each step, on rank 0
    char error[RANKS][ERR_TEXT];
} outcome;

// --- a device that sleeps --------------------------------------------------------------------------------------------

// Of this process, which is one rank.
static struct {
    double product;       // seconds that one takes
    double late;          // of the last one: how much later than it should it ended
    double waited;        // of `run`, when it ended
    const parallel *run;  // whose waiting it is
} pace;

#define NOTHING(op) \
    static err_t no_##op(const op##_args *args, stream *s) { return (void)args, (void)s, ERR_OK; }
OPS(NOTHING)
#define ENTRY(op) .op = no_##op,

// Of the inner layers, which are square; the first one and the head take no time.
static bool is_counted(const matmul_args *a) {
    return (a->d->size[0] == WIDTH) + (a->d->size[1] == WIDTH) + (a->a->size[!a->ta] == WIDTH) == 2;
}

static err_t sleep_until(double end) {
    struct timespec t = {.tv_sec = (time_t)end};
    t.tv_nsec = (long)(1e9 * (end - (double)t.tv_sec));
    int rc;
    while ((rc = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL)) == EINTR) {}
    return rc ? err_set(ERR_INTERNAL, "clock_nanosleep: %s", strerror(rc)) : ERR_OK;
}

// In this step.
static double waited_so_far(void) {
    double sum = 0;
    for (int k = 0; k < SPANS; k++) sum += pace.run->wait_s[k];
    return sum;
}

static err_t sleep_matmul(const matmul_args *args, stream *s) {
    (void)s;
    if (!is_counted(args)) return ERR_OK;
    double waited = waited_so_far() - pace.waited, late = pace.late - (waited > 0 ? waited : 0);
    double end = clock_now() - (late > 0 ? late : 0) + pace.product;
    TRY(sleep_until(end));
    pace.late = clock_now() - end;
    pace.waited = waited_so_far();
    return ERR_OK;
}

static const ops nothing = {OPS(ENTRY)};

// --- a rank ----------------------------------------------------------------------------------------------------------

static err_t train(session *x, int steps, outcome *out) {
    step_result r;
    TRY(session_init(x));
    TRY(session_feed(x, steps + WARM));
    for (int i = -WARM; i < steps; i++) {
        double since = clock_now();
        pace.late = 0;
        TRY(session_step(x, &r));
        if (i >= 0 && x->ranks->rank == 0) out->s[i] = clock_now() - since;
    }
    return session_settle(x);
}

// The device's own operations would be those of the CPU.
static err_t run_rank(const config *c, const launch *at, int steps, outcome *out) {
    session x;
    ops sleeping = nothing;
    sleeping.matmul = sleep_matmul;
    err_t rc = session_machine(&x, c, SESSION_BENCH, at->local);
    if (rc == ERR_OK) x.dev->ops = &sleeping;
    if (rc == ERR_OK) rc = session_enter(&x, at);
    pace.run = &x.runner.together;
    if (rc == ERR_OK) rc = train(&x, steps, out);
    if (rc != ERR_OK) snprintf(out->error[at->rank], ERR_TEXT, "%s", err_last()->text);
    session_abort(&x, rc);
    session_close(&x);
    return rc;
}

static err_t run_ranks(const config *c, int steps, outcome *out) {
    launch l;
    int ranks = RANKS, status, bad = 0;
    grid shape = config_grid(c, ranks);
    channel_plan plan = grid_channels(&shape);
    TRY(launch_open(&l, 1, &ranks, NULL, 0));
    TRY(launch_channels(&l, &plan));
    fflush(NULL);
    for (int i = 0; i < ranks; i++) {
        if (fork() != 0) continue;
        alarm(LIMIT_S);
        prctl(PR_SET_TIMERSLACK, 1L);
        launch_become(&l, i);
        err_t rc = run_rank(c, &l, steps, out);
        launch_close(&l);
        _exit(rc);
    }
    launch_close(&l);
    for (int i = 0; i < ranks; i++) bad += wait(&status) < 0 || status != 0;
    for (int i = 0; i < ranks; i++)
        if (out->error[i][0]) return err_set(ERR_INTERNAL, "rank %d: %s", i, out->error[i]);
    return bad ? err_set(ERR_INTERNAL, "a rank was lost") : ERR_OK;
}

// --- a layout --------------------------------------------------------------------------------------------------------

// The first stage has the first layer too and the last stage the head, which take no time.
static int write_stages(char *dst, size_t room, int stages) {
    int n = 0, each = LAYERS / stages;
    for (int s = 0; s < stages; s++)
        n += snprintf(dst + n, room - (size_t)n, "%d ", each + (s == 0) + (s == stages - 1));
    return n;
}

static err_t make_config(config *c, const layout *l, const char *dir) {
    char text[2048], path[1024], stages[256], hidden[256];
    int n = 0;
    for (int i = 0; i <= LAYERS; i++) n += snprintf(hidden + n, sizeof hidden - (size_t)n, "%d ", WIDTH);
    write_stages(stages, sizeof stages, RANKS * l->chunks);
    snprintf(
        text, sizeof text,
        "[run]\ndir = %s/runs\nsteps = %d\n[device]\nbackend = cpu\nthreads = 1\nranks = %d\n[model]\ntype = mlp\ninputs = 8\nclasses = 4\n"
        "hidden = %s\n[batch]\nglobal = %d\nmicro = 1\nlanes = %d\n[sample]\ntokens = 0\n[checkpoint]\nevery = 0\n"
        "[parallel]\npipeline = %d\nschedule = %s\nchunks = %d\nstages = %s\n",
        dir, STEPS_MOST + WARM, RANKS, hidden, l->lanes * l->micros, l->lanes, RANKS, l->schedule,
        strcmp(l->schedule, "interleaved") == 0 ? l->chunks : 1, stages);
    TRY(io_path(path, "%s/bench.ini", dir));
    TRY(io_write_file(path, text, strlen(text), NULL));
    const char *files[] = {path};
    return config_load(c, files, 1);
}

// Halves for weights that the schedule puts off past the end of their lane come before the next lane's gradients of the
// stage: as in trainer/step/action.c.
static err_t end_lanes(unit_table *t, int micros) {
    int n = 0, *to = malloc(2 * (size_t)t->units * sizeof *to),
        *reached = to + t->units;  // where a unit comes; the last one that has run at this place
    unit *in = malloc((size_t)t->units * sizeof *in);
    if (!to || !in) return free(to), free(in), err_set(ERR_INTERNAL, "no memory for %d units", t->units);
    for (int i = 0; i < t->units; i++) to[i] = -1;
    for (int i = 0; i < t->units; i++) {
        const unit *u = &t->unit[i];
        for (int j = i + 1; u->kind == UNIT_INPUTS && j < t->units; j++) {
            const unit *w = &t->unit[j];
            if (to[j] < 0 && w->kind == UNIT_WEIGHTS && w->stage == u->stage && w->micro / micros < u->micro / micros)
                to[j] = n, in[n++] = *w;
        }
        if (to[i] < 0) to[i] = n, in[n++] = *u;
        reached[i] = n - 1;
    }
    memcpy(t->unit, in, (size_t)t->units * sizeof *in);
    for (int i = 0; i < t->messages; i++) {
        message *m = &t->message[i];
        m->unit = to[m->unit];
        if (m->after >= 0) m->after = reached[m->after];
    }
    free(to), free(in);
    return ERR_OK;
}

// micros: of a lane; 0: as if all were one.
static err_t run_on_paper(const config *c, const layout *l, double forward, int micros, double *makespan,
                          double *idle) {
    double each[RANKS * 2][UNIT_KINDS], f = forward / l->chunks;
    unit_table table[RANKS] = {{0}};
    timeline t = {0};
    err_t rc = ERR_OK;
    for (int s = 0; s < RANKS * l->chunks; s++)
        each[s][UNIT_FORWARD] = each[s][UNIT_INPUTS] = each[s][UNIT_WEIGHTS] = f, each[s][UNIT_BACKWARD] = 2 * f;
    pipeline_layout p = {
        .kind = c->parallel.schedule, .ranks = RANKS, .micros = l->lanes * l->micros, .chunks = l->chunks};
    for (int r = 0; r < RANKS && rc == ERR_OK; r++) {
        rc = pipeline_units(&p, r, &table[r]);
        if (rc == ERR_OK && micros) rc = end_lanes(&table[r], micros);
    }
    if (rc == ERR_OK) rc = timeline_run(&p, table, &(timeline_costs){.unit = (const double(*)[UNIT_KINDS])each}, &t);
    *makespan = t.makespan, *idle = t.idle;
    timeline_free(&t);
    for (int r = 0; r < RANKS; r++) unit_table_free(&table[r]);
    return rc;
}

static int by_value(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static err_t measure(const layout *l, double forward, int steps, const char *dir) {
    static config c;
    outcome *out = mmap(NULL, sizeof *out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (out == MAP_FAILED) return err_set(ERR_INTERNAL, "no memory for %zu bytes", sizeof *out);
    double schedule, lanes, idle, idle_lanes;
    pace.product = forward * RANKS / LAYERS;
    TRY(make_config(&c, l, dir));
    TRY(run_on_paper(&c, l, forward, 0, &schedule, &idle));
    TRY(run_on_paper(&c, l, forward, l->micros, &lanes, &idle_lanes));
    TRY(run_ranks(&c, steps, out));
    qsort(out->s, (size_t)steps, sizeof *out->s, by_value);
    double s = out->s[steps / 2], work = 3 * forward * l->lanes * l->micros;
    char name[32];
    snprintf(name, sizeof name, l->chunks > 1 ? "%s, %d stages a rank" : "%s", l->schedule, l->chunks);
    printf("| %s | %d of %d | %.1f | %.1f | %.1f | %.1f | %.3f | %.3f | %.1f %% | %.1f %% |\n", name, l->lanes,
           l->micros, 1e3 * schedule, 1e3 * lanes, 1e3 * s, 1e3 * out->s[0], s / schedule, s / lanes, 100 * idle,
           100 * (1 - work / s));
    fflush(stdout);
    munmap(out, sizeof *out);
    return ERR_OK;
}

static err_t measure_all(double forward, int steps, const char *only) {
    char dir[] = "/tmp/lockstep-bench-XXXXXX";
    double load[2][3] = {{0}};
    if (!mkdtemp(dir)) return err_set(ERR_IO, "%s: %s", dir, strerror(errno));
    getloadavg(load[0], 3);
    printf("%d ranks, a forward unit of a whole rank %.1f ms, median of %d steps\n\n", RANKS, 1e3 * forward, steps);
    printf(
        "| schedule | lanes of micro-batches | by the schedule, ms | by lanes, ms | median ms | least ms | / schedule | / lanes | idle by the schedule | measured |\n");
    printf("|---|---|---|---|---|---|---|---|---|---|\n");
    err_t rc = ERR_OK;
    for (size_t i = 0; rc == ERR_OK && i < sizeof layouts / sizeof *layouts; i++)
        if (!only || strcmp(only, layouts[i].schedule) == 0) rc = measure(&layouts[i], forward, steps, dir);
    getloadavg(load[1], 3);
    printf("\nload of the last minute: %.1f before, %.1f after, on %ld cores\n", load[0][0], load[1][0],
           sysconf(_SC_NPROCESSORS_ONLN));
    err_t gone = io_remove_tree(dir);
    return rc == ERR_OK ? gone : rc;
}

int main(int argc, char **argv) {
    double ms = argc > 1 ? atof(argv[1]) : 10;
    int steps = argc > 2 ? atoi(argv[2]) : 11;
    if (ms <= 0 || steps < 1 || steps > STEPS_MOST)
        return fprintf(stderr, "bench_pipeline [MS [STEPS [SCHEDULE]]]: expected MS > 0, STEPS of 1 to %d\n",
                       STEPS_MOST),
               64;
    err_t rc = measure_all(1e-3 * ms, steps, argc > 3 ? argv[3] : NULL);
    if (rc != ERR_OK) fprintf(stderr, "bench_pipeline: %s\n", err_last()->text);
    return rc;
}
