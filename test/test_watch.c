// test/test_watch.c: what a watcher sees of a machine that is made of files, with a driver that is a stand-in. (What it
// writes down is in test/test_watch_status.c.)
#include "test/support/run.h"

#include "base/clock.h"
#include "gpu/cpu/rapl.h"
#include "trainer/watch/alarms.h"
#include "trainer/watch/machine.h"
#include "trainer/watch/sampler.h"
#include "trainer/watch/status_json.h"
#include "base/text.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <sys/statvfs.h>
#include <unistd.h>

// --- a disk ----------------------------------------------------------------------------------------------------------

// The disk that the sampler finds: made up where it has blocks, else that of this machine.
static struct statvfs disk;
static bool disk_is_gone;

int statvfs(const char *path, struct statvfs *out) {
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = fd < 0 || disk_is_gone ? -1 : disk.f_blocks ? 0 : fstatvfs(fd, out);
    if (rc == 0 && disk.f_blocks) *out = disk;
    if (fd >= 0) close(fd);
    return rc;
}

// --- a machine -------------------------------------------------------------------------------------------------------

typedef struct node {
    char *root;  // of its files; the run's directory is in it, too
    config *c;
    board *b;
    comm_place place[3];
    watch_start at;
    sampler *x;
} node;

static bool never_over(double until) { return (void)until, false; }

static void node_open(node *n, int locals) {
    *n = (node){.root = make_dir(),
                .c = calloc(1, sizeof *n->c),
                .b = aligned_alloc(128, (board_bytes(locals) + 127) / 128 * 128)};
    assert_true(n->c && n->b);
    memset(n->b, 0, board_bytes(locals));
    board_init(n->b, locals);
    n->c->resolved.kind = DEVICE_CUDA;
    snprintf(n->c->run.dir, sizeof n->c->run.dir, "%s", n->root);
    snprintf(n->c->run.name, sizeof n->c->run.name, "made");
    for (int i = 0; i < locals; i++) {
        n->place[i] = (comm_place){.node = 1, .local = i, .rank = 4 + i, .host = "10.0.0.2", .role = ", stage 1"};
        atomic_store(&n->b->rank[i].pid, 100 + i);
    }
    n->at = (watch_start){
        .b = n->b, .place = n->place, .node = 1, .nodes = 2, .world = 4 + locals, .starts = 1, .over = never_over};
    char dir[512];
    snprintf(dir, sizeof dir, "%s/made", n->root);
    OK(io_mkdirs(dir));
}

// The stand-in lies beside this program.
static const char *standin(void) {
    static char path[600];
    ssize_t n = readlink("/proc/self/exe", path, 480);
    assert_true(n > 0);
    path[n] = 0;
    char *slash = strrchr(path, '/');
    snprintf(slash ? slash + 1 : path, 64, "nvml/libnvidia-ml.so.1");
    return path;
}

static void node_watch(node *n) {
    OK(sampler_open(&n->x,
                    &(sampler_options){.c = n->c, .at = &n->at, .root = n->root, .nvml = standin(), .every_s = 1}));
}

static void node_close(node *n) {
    sampler_close(n->x);
    drop_dir(n->root);
    free(n->c), free(n->b);
}

// The fields of proc(5), of which those that are not looked at are made up.
static void process(const node *n, int pid, const char *name, char state, int user, int system, int pages, int64_t read,
                    int64_t written) {
    char dir[512], text[512];
    snprintf(dir, sizeof dir, "%s/proc/%d", n->root, pid);
    OK(io_mkdirs(dir));
    snprintf(text, sizeof text,
             "%d (%s) %c 1 2 3 0 -1 4 5 6 7 8 %d %d 9 10 20 0 5 0 11 1000000 %d 18446744073709551615 1 1\n", pid, name,
             state, user, system, pages);
    write_text(dir, "stat", text);
    snprintf(
        text, sizeof text,
        "rchar: 99\nwchar: 98\nsyscr: 1\nsyscw: 2\nread_bytes: %lld\nwrite_bytes: %lld\ncancelled_write_bytes: 7\n",
        (long long)read, (long long)written);
    if (read >= 0) write_text(dir, "io", text);
}

static void queued(const node *n, int pid, int64_t waited_ns) {
    char dir[512], text[128];
    snprintf(dir, sizeof dir, "%s/proc/%d", n->root, pid);
    snprintf(text, sizeof text, "123456789 %lld 42\n", (long long)waited_ns);
    write_text(dir, "schedstat", text);
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

// --- looking ---------------------------------------------------------------------------------------------------------

static void processes_and_disk(void **state) {
    (void)state;
    node n;
    node_open(&n, 2);
    double hz = (double)sysconf(_SC_CLK_TCK), page = (double)sysconf(_SC_PAGESIZE);
    process(&n, 100, "lockstep", 'R', 100, 20, 500, 4096, 8192);
    process(&n, 101, "odd ) name (", 'D', 10, 0, 300, 0, 0);
    queued(&n, 100, 5000000000);
    node_watch(&n);
    watch_state *s = sampler_look(n.x, 1000, 1700000000);
    assert_true(isnan(s->rank[0].starved) && isnan(s->rank[1].starved));
    assert_true(s->locals == 2 && s->world == 6 && s->node == 1 && !s->ready && !s->has_news);
    assert_string_equal(s->run, "made");
    assert_string_equal(s->host, "10.0.0.2");
    assert_true(s->rank[0].process == 'R' && s->rank[1].process == 'D');
    assert_true(s->rank[0].resident == (int64_t)(500 * page) && s->rank[1].resident == (int64_t)(300 * page));
    assert_true(isnan(s->rank[0].cpu) && isnan(s->disk_read_per_s));
    assert_true(s->disk_free > 0 && s->disk_total >= s->disk_free && isnan(s->disk_free_per_s));

    process(&n, 100, "lockstep", 'T', 100 + (int)(3 * hz), 20 + (int)hz, 600, 4096 + 2000, 8192);
    process(&n, 101, "odd ) name (", 'S', 10, 0, 300, 500, 1000);
    queued(&n, 100, 5500000000);  // half a second of two
    s = sampler_look(n.x, 1002, 1700000002);
    assert_true(near(s->rank[0].starved, 0.25) && isnan(s->rank[1].starved));
    assert_true(s->rank[0].process == 'T' && near(s->rank[0].cpu, 2) && s->rank[1].cpu == 0);
    assert_true(near(s->disk_read_per_s, 1250) && near(s->disk_written_per_s, 500));
    assert_true(s->time == 1700000002 && s->monotonic == 1002);

    // One of them is gone, another one is not the one it was.
    char gone[512];
    snprintf(gone, sizeof gone, "%s/proc/101", n.root);
    OK(io_remove_tree(gone));
    atomic_store(&n.b->rank[0].pid, 102);
    process(&n, 102, "lockstep", 'S', 1, 1, 50, -1, -1);
    s = sampler_look(n.x, 1003, 1700000003);
    assert_true(s->rank[1].process == 'X' && s->rank[1].resident == -1);
    assert_true(s->rank[0].process == 'S' && isnan(s->rank[0].cpu) && isnan(s->disk_read_per_s));
    node_close(&n);
}

static void what_the_board_says(void **state) {
    (void)state;
    node n;
    node_open(&n, 1);
    board_rank *r = &n.b->rank[0];
    board_news news = {.step = 12, .steps = 600, .loss = 2.5};
    node_watch(&n);
    atomic_store(&n.b->ready, 1);
    atomic_store(&n.b->step, 12);
    board_publish(n.b, &news);
    board_enter(r, PHASE_STEPPING, 12);
    board_doing(r, "forward", 3, 13);
    board_beside(r, "reduce gradients", 7);
    atomic_store(&r->read_bytes, 1000);
    atomic_store(&r->read_p99_ns, 2500000);
    double now = clock_now();
    watch_state *s = sampler_look(n.x, now + 5, 1);
    const watch_rank *w = &s->rank[0];
    assert_true(s->ready && s->has_news && s->news.loss == 2.5 && s->step == 12 && !s->ended);
    assert_true(w->phase == PHASE_STEPPING && w->number == 3 && w->step == 13);
    assert_string_equal(w->what, "forward");
    assert_string_equal(w->beside, "reduce gradients");
    assert_true(w->what_s >= 4.9 && w->what_s < 10 && w->phase_s >= w->what_s && w->beside_s > 4.9 &&
                w->beside_number == 7);
    assert_true(w->in_phase_s[PHASE_STEPPING] == w->phase_s);
    assert_true(near(w->read_p99_ms, 2.5) && isnan(w->read_p50_ms) && isnan(w->read_bytes_per_s));
    atomic_store(&r->read_bytes, 5000);
    atomic_store(&n.b->stop, 1);
    atomic_store(&n.b->end, RUN_STOPPED);
    s = sampler_look(n.x, now + 7, 3);
    assert_true(near(w->read_bytes_per_s, 2000) && s->stopping && s->ended && s->end == RUN_STOPPED);
    node_close(&n);
}

// Ranks 0 and 1 share a GPU, rank 2 has one that is not there.
static void gpus_over_the_driver(void **state) {
    (void)state;
    node n;
    setenv(
        "LOCKSTEP_NVML_41",
        "power=300000,300000,300000,100000,100000,400000 heat=60 clock=1900 reasons=0,64 load=97 used=1073741824 cap=700000",
        1);
    node_open(&n, 3);
    board_name_device(&n.b->rank[0], "0000:41:00.0");
    board_name_device(&n.b->rank[1], "0000:41:00.0");
    board_name_device(&n.b->rank[2], "0000:42:00.0");
    board_enter(&n.b->rank[0], PHASE_STEPPING, 1);
    node_watch(&n);
    watch_state *s = sampler_look(n.x, 100, 1);
    const watch_rank *r = s->rank;
    assert_true(r[0].sensors.watts == 300 && r[0].utilisation == 0.97 && r[0].device_used == 1 << 30 &&
                r[0].device_total == 80ll << 30);
    assert_true(r[0].limit_watts == 700 && r[0].sensors.limited == 0 && r[0].median_watts == 300);
    assert_true(r[1].sensors.watts == 300 && r[1].device_used == 1 << 30 && r[1].device_total == 80ll << 30);
    assert_true(r[1].limit_watts == 700 && r[1].utilisation == 0.97 && r[1].sensors.mhz == 1900);
    assert_string_equal(r[1].uuid, "GPU-00000041-0000-0000-0000-000000000000");
    assert_true(isnan(r[2].sensors.watts) && r[2].device_total == -1 && r[2].sensors.limited == LIMITED_UNKNOWN);
    assert_non_null(strstr(sampler_complaint(n.x), "0000:42:00.0"));
    for (int i = 1; i <= 2; i++) {
        atomic_store(&n.b->rank[0].step, 1 + i);
        sampler_look(n.x, 100 + i, 1 + i);
        assert_true(r[0].low_watts_s == 0 && r[0].sensors.limited == LIMITED_HEAT);
    }
    sampler_look(n.x, 103, 4);  // a third of the usual, and no step more
    assert_true(r[0].sensors.watts == 100 && r[0].median_watts == 300 && r[0].low_watts_s == 0);
    sampler_look(n.x, 104, 5);
    assert_true(r[0].low_watts_s == 1);
    sampler_look(n.x, 105, 6);
    assert_true(r[0].sensors.watts == 400 && r[0].low_watts_s == 0);
    node_close(&n);
    unsetenv("LOCKSTEP_NVML_41");
}

// A node of two CPU ranks with a counter of its processors' energy, at 1 joule; path: its file.
static void open_with_counter(node *n, char path[600]) {
    char zone[512];
    node_open(n, 2);
    n->c->resolved.kind = DEVICE_CPU;
    snprintf(zone, sizeof zone, "%s%s/intel-rapl:0", n->root, RAPL_DIR);
    OK(io_mkdirs(zone));
    write_text(zone, "name", "package-0\n");
    write_text(zone, "max_energy_range_uj", "65532610987\n");
    write_text(zone, "energy_uj", "1000000\n");
    snprintf(path, 600, "%s/energy_uj", zone);
    node_watch(n);
}

// In place: the kernel's files stay what they are.
static void set_counter(const char *path, double microjoules) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%.0f\n", microjoules);
    fclose(f);
}

// The node's first rank speaks for its processors.
static void processors_over_rapl(void **state) {
    (void)state;
    node n;
    char path[600];
    open_with_counter(&n, path);
    watch_state *s = sampler_look(n.x, 100, 1);
    assert_true(isnan(s->rank[0].sensors.watts));
    set_counter(path, 151e6);
    sampler_look(n.x, 102, 3);
    assert_true(near(s->rank[0].sensors.watts, 75) && isnan(s->rank[1].sensors.watts));
    node_close(&n);
}

// Each look is of the time since the one before: five of them, none as long as another, of two ranks that do not do the
// same. Of a process that is another one nothing is known at its first look.
static void looks_one_after_another(void **state) {
    (void)state;
    static const int seconds[] = {1, 2, 4, 1, 3};
    node n;
    char path[600];
    open_with_counter(&n, path);
    double hz = (double)sysconf(_SC_CLK_TCK), now = 1000, ticks = 0, waited = 0, read = 0, loaded = 0, joules = 1;
    for (int k = 0; k < 5; k++) {
        double s = seconds[k], f = k + 1;  // of rank 1 all is twice as much
        ticks += 0.5 * f * s * hz, waited += (k == 4 ? 1.5 : 0.1 * f) * s * 1e9, read += 100 * f * s,
            loaded += 1000 * f * s, joules += 10 * f * s;
        for (int i = 0; i < 2; i++) {
            int pid = 100 + i + (i == 1 && k >= 3 ? 10 : 0);
            atomic_store(&n.b->rank[i].pid, pid);
            process(&n, pid, "lockstep", 'R', (int)((i + 1) * ticks), 0, 1, (int64_t)((i + 1) * read),
                    (int64_t)((i + 1) * 3 * read));
            queued(&n, pid, (int64_t)((i + 1) * 0.5 * waited));
            atomic_store(&n.b->rank[i].read_bytes, (int64_t)((i + 1) * loaded));
        }
        set_counter(path, 1e6 * joules);
        now += s;
        watch_state *w = sampler_look(n.x, now, now);
        for (int i = 0; i < 2; i++) {
            const watch_rank *r = &w->rank[i];
            bool known = k > 0 && !(i == 1 && k == 3);
            double starved = (i + 1) * 0.5 * (k == 4 ? 1.5 : 0.1 * f), cpu = (i + 1) * 0.5 * f;
            assert_true(known ? fabs(r->starved - fmin(starved, 1)) < 1e-6 && fabs(r->cpu - cpu) < 0.02
                              : isnan(r->starved) && isnan(r->cpu));
            assert_true(k > 0 ? near(r->read_bytes_per_s, (i + 1) * 1000 * f) : true);
        }
        assert_true(isnan(w->rank[1].sensors.watts) && (k == 0 || near(w->rank[0].sensors.watts, 10 * f)));
        assert_true(k == 0 || (near(w->disk_read_per_s, 300 * f) && near(w->disk_written_per_s, 900 * f)));
    }
    node_close(&n);
}

// What each field is of: two ranks, of which no number is the same.
static void each_rank_of_the_board(void **state) {
    (void)state;
    node n;
    node_open(&n, 2);
    node_watch(&n);
    double now = clock_now();
    atomic_store(&n.b->ready, 1);
    watch_state *s = sampler_look(n.x, now, 1);
    assert_true(!s->ready && !s->has_news && !s->stopping && !s->ended && s->end == RUN_GOES_ON);
    board_news news = {.step = 3};
    board_publish(n.b, &news);
    atomic_store(&n.b->ready, 2);
    for (int i = 0; i < 2; i++) {
        board_rank *r = &n.b->rank[i];
        board_enter(r, PHASE_STEPPING, 1);
        board_enter(r, i ? PHASE_EVALUATING : PHASE_STEPPING, 5 + i);
        board_waiting(r, i ? WAIT_RANKS : WAIT_DEVICE, i ? "reduce" : "backward", 10 + i, 20 + i);
        for (int p = 0; p < BOARD_PHASES; p++) atomic_store(&r->in_phase_ns[p], (int64_t)(1 + p + 10 * i) * 1000000000);
        atomic_store(&r->phase_ns, (int64_t)(1e9 * (now - 100 - i)));
        atomic_store(&r->since_ns, (int64_t)(1e9 * (now - 50 - i)));
        atomic_store(&r->device_bytes, 30 + i), atomic_store(&r->lanes, 80 + i);
        atomic_store(&r->read_bytes, 40 + i), atomic_store(&r->read_retries, 50 + i);
        atomic_store(&r->read_p50_ns, 60000000 + i), atomic_store(&r->read_p99_ns, 70000000 + i);
    }
    board_beside(&n.b->rank[1], "gather", 9);
    atomic_store(&n.b->rank[1].beside_ns, (int64_t)(1e9 * (now - 7)));
    for (int look = 0; look < 2; look++) {  // the second finds the same
        s = sampler_look(n.x, now, 2);
        assert_true(s->ready && s->has_news && s->news.step == 3);
        for (int i = 0; i < 2; i++) {
            const watch_rank *r = &s->rank[i];
            board_phase phase = i ? PHASE_EVALUATING : PHASE_STEPPING;
            assert_true(r->place.rank == 4 + i && r->place.local == i && r->pid == 100 + i);
            assert_true(r->phase == phase && r->waits_for == (i ? WAIT_RANKS : WAIT_DEVICE));
            assert_string_equal(r->what, i ? "reduce" : "backward");
            assert_true(r->number == 10 + i && r->step == 20 + i);
            assert_true(fabs(r->what_s - 50 - i) < 1e-3 && fabs(r->phase_s - 100 - i) < 1e-3);
            for (int p = 0; p < BOARD_PHASES; p++)
                assert_true(fabs(r->in_phase_s[p] - (1 + p + 10 * i) - (p == (int)phase ? 100 + i : 0)) < 1e-3);
            assert_true(r->lanes == 80 + i && r->device_planned == 30 + i && r->read_bytes == 40 + i &&
                        r->read_retries == 50 + i);
            assert_true(near(r->read_p50_ms, 60 + 1e-6 * i) && near(r->read_p99_ms, 70 + 1e-6 * i));
        }
        assert_true(!s->rank[0].beside && s->rank[0].beside_s == 0);
        assert_true(s->rank[1].beside && s->rank[1].beside_number == 9 && fabs(s->rank[1].beside_s - 7) < 1e-3);
    }
    board_beside(&n.b->rank[1], NULL, -1);
    // rank 0 is writing, and does not come to an end: what it wrote before still counts
    atomic_store(&n.b->sequence, 1);
    s = sampler_look(n.x, now, 3);
    assert_true(!s->rank[1].beside && s->rank[1].beside_s == 0 && s->has_news && s->news.step == 3);
    node_close(&n);
}

// --- hours -----------------------------------------------------------------------------------------------------------

typedef struct hours {
    node n;
    watch_state *s;
    double now;
    int64_t step;
} hours;

// So many looks, a second apart, each `looks_a_step`-th of which finds one more step; `watts` of the first rank's
// device.
static void draw(hours *h, int looks, int looks_a_step, double watts) {
    char text[96];
    snprintf(text, sizeof text, watts > 0 ? "power=%.0f" : "power=!999", 1000 * watts);
    setenv("LOCKSTEP_NVML_41", text, 1);
    for (int i = 0; i < looks; i++) {
        if (i % looks_a_step == 0) h->step++;
        for (int k = 0; k < 2; k++) atomic_store(&h->n.b->rank[k].step, h->step);
        h->now++;
        h->s = sampler_look(h->n.x, h->now, h->now);
    }
}

// The median is of steps, not of looks: while nothing is finished a device draws what it likes. It is of the last 1024
// of them, and of each rank its own.
static void power_for_hours(void **state) {
    (void)state;
    hours h = {.now = 1000};
    node_open(&h.n, 2);
    setenv("LOCKSTEP_NVML_42", "power=200000", 1);
    for (int k = 0; k < 2; k++) {
        board_name_device(&h.n.b->rank[k], k ? "0000:42:00.0" : "0000:41:00.0");
        board_enter(&h.n.b->rank[k], PHASE_STEPPING, 1);
    }
    node_watch(&h.n);
    draw(&h, 100, 1, 300);
    const watch_rank *r = h.s->rank;
    assert_true(r[0].median_watts == 300 && r[0].low_watts_s == 0);
    draw(&h, 3600, 3600, 140);  // it hangs for an hour
    assert_true(r[0].median_watts == 300 && r[0].low_watts_s == 3599);
    draw(&h, 400, 40, 400);
    assert_true(r[0].median_watts == 300 && r[0].low_watts_s == 0);
    draw(&h, 10, 40, 149);  // again, and it counts from its own beginning
    assert_true(r[0].low_watts_s == 9);
    draw(&h, 2, 40, 0);  // its sensor fails: nothing is known
    assert_true(isnan(r[0].sensors.watts) && r[0].low_watts_s == 0 && r[0].median_watts == 300);
    draw(&h, 2, 40, 151);
    assert_true(r[0].sensors.watts == 151 && r[0].low_watts_s == 0);
    atomic_store(&h.n.b->rank[0].phase, PHASE_EVALUATING);
    draw(&h, 2000, 1, 650);
    assert_true(r[0].median_watts == 300);
    atomic_store(&h.n.b->rank[0].phase, PHASE_STEPPING);
    draw(&h, 513, 1, 500);
    assert_true(r[0].median_watts == 500);
    draw(&h, 1024, 1, 600);
    draw(&h, 511, 1, 100);
    assert_true(r[0].median_watts == 600 && r[0].low_watts_s == 510);
    draw(&h, 2, 1, 100);  // now most of the last 1024
    assert_true(r[0].median_watts == 100 && r[0].low_watts_s == 0);
    assert_true(r[1].median_watts == 200 && r[1].sensors.watts == 200 && r[1].low_watts_s == 0);
    node_close(&h.n);
    unsetenv("LOCKSTEP_NVML_41"), unsetenv("LOCKSTEP_NVML_42");
}

// Looks for so long, while the disk changes by so many blocks a second.
static void write_for(hours *h, int seconds, int64_t blocks_per_s) {
    for (int i = 0; i < seconds; i++) {
        disk.f_bfree += (uint64_t)blocks_per_s, disk.f_bavail += (uint64_t)blocks_per_s;
        h->now++;
        h->s = sampler_look(h->n.x, h->now, h->now);
    }
}

static void trend_is(const hours *h, double blocks_per_s) {
    double want = 4096 * blocks_per_s, got = h->s->disk_free_per_s;
    if (!(fabs(got - want) <= 0.02 * 4096 * 250)) fail_msg("%.0f bytes a second, expected %.0f", got, want);
}

// The mean of the last hour, also when more than one has passed; root's part of the disk is not ours.
static void disk_for_hours(void **state) {
    (void)state;
    hours h = {.now = 1000};
    node_open(&h.n, 1);
    disk = (struct statvfs){
        .f_bsize = 1 << 20, .f_frsize = 4096, .f_blocks = 1 << 26, .f_bfree = 40000000, .f_bavail = 30000000};
    node_watch(&h.n);
    write_for(&h, 1, 0);
    assert_true(h.s->disk_free == 30000000ll * 4096 && h.s->disk_total == ((1ll << 26) - 10000000) * 4096);
    assert_true(isnan(h.s->disk_free_per_s));
    write_for(&h, 9, -100);
    assert_true(isnan(h.s->disk_free_per_s));  // too short to say anything
    write_for(&h, 1, -100);
    assert_true(near(h.s->disk_free_per_s, -409600));
    write_for(&h, 1789, -100);
    trend_is(&h, -100);
    write_for(&h, 1800, -200);
    trend_is(&h, -150);
    write_for(&h, 1800, 0);  // the first half hour is forgotten
    trend_is(&h, -100);
    write_for(&h, 1800, 50);
    trend_is(&h, 25);
    write_for(&h, 3 * 3600, -250);
    trend_is(&h, -250);
    write_for(&h, 3600, 0);
    trend_is(&h, 0);
    disk_is_gone = true;
    write_for(&h, 1, 0);
    assert_true(h.s->disk_free == -1 && h.s->disk_total == -1 && isnan(h.s->disk_free_per_s));
    disk_is_gone = false;
    write_for(&h, 1, 0);
    trend_is(&h, 0);
    node_close(&h.n);
    disk = (struct statvfs){0};
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_and_disk),     cmocka_unit_test(what_the_board_says),
        cmocka_unit_test(gpus_over_the_driver),   cmocka_unit_test(processors_over_rapl),
        cmocka_unit_test(each_rank_of_the_board), cmocka_unit_test(power_for_hours),
        cmocka_unit_test(disk_for_hours),         cmocka_unit_test(looks_one_after_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
