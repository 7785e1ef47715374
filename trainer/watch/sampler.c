// trainer/watch/sampler.c: see trainer/watch/sampler.h. Files of /proc are read one by one, each with one call into a
// buffer of its own: no heap, and no library that could wait. A GPU is asked once, whichever ranks share it.
#include "trainer/watch/sampler.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/quantiles.h"
#include "base/version.h"
#include "gpu/sensors.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { DISK_POINTS = 60 };                                // of the free bytes, for their trend
static const double DISK_STEP_S = 60, DISK_LEAST_S = 10;  // between two of them; the shortest time that says something

typedef struct rank_memory {
    gpu_sensors *gpu;
    bool tried;    // to open it
    int pid;       // of which the numbers below are
    double ticks;  // processor time so far
    // nanoseconds that its first thread has waited for a processor so far, -1: the kernel does not say
    int64_t waited;
    int64_t read, written;      // bytes of files, so far
    int64_t loaded;             // by the loader, so far
    double cpu_joules, low_at;  // of all processors so far; since when it has drawn little, 0: it does not
    int64_t step;               // at the last look
    quantiles watts;            // of steps
} rank_memory;

struct sampler {
    sampler_options o;
    watch_state s;
    char dir[IO_PATH];
    rank_memory *memory;      // [locals]
    cpu_sensors *processors;  // NULL: the kernel does not show them
    bool looked;
    double last;  // when
    char complaint[ERR_TEXT];
    int points, next;
    struct disk_point {
        double at, free;
    } point[DISK_POINTS];
    long ticks_per_s, page;
};

// --- files of /proc --------------------------------------------------------------------------------------------------

// A file's text, cut to the room; false: it can't be read.
static bool read_text(const char *path, char *dst, size_t room) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, dst, room - 1);
    if (fd >= 0) close(fd);
    dst[n > 0 ? n : 0] = 0;
    return n > 0;
}

static bool read_proc(const sampler *x, int pid, const char *name, char *dst, size_t room) {
    char path[IO_PATH];
    int n = snprintf(path, sizeof path, "%s/proc/%d/%s", x->o.root, pid, name);
    return n > 0 && n < (int)sizeof path && read_text(path, dst, room);
}

// A command may have any character, so fields are counted from the last ')' on: state is the third of proc(5).
static bool parse_stat(const char *text, char *process, double *ticks, int64_t *pages) {
    enum { STATE = 3, UTIME = 14, STIME = 15, RSS = 24 };
    const char *at = strrchr(text, ')');
    unsigned long long value[RSS + 1] = {0};
    if (!at || sscanf(at + 1, " %c", process) != 1) return false;
    at = strchr(at, *process);
    for (int field = STATE + 1; field <= RSS; field++) {
        at = strchr(at, ' ');
        if (!at) return false;
        value[field] = strtoull(++at, NULL, 10);
    }
    *ticks = (double)(value[UTIME] + value[STIME]);
    *pages = (int64_t)value[RSS];
    return true;
}

static int64_t number_after(const char *text, const char *key) {
    const char *at = strstr(text, key);
    return at ? strtoll(at + strlen(key), NULL, 10) : -1;
}

// A difference per second; NaN where one of the two is not known, or the counter began anew.
static double rate(int64_t now, int64_t before, double seconds) {
    return now >= before && before >= 0 && seconds > 0 ? (double)(now - before) / seconds : NAN;
}

// A process's schedstat is that of its first thread, which computes with the others: "ran waited slices", in
// nanoseconds.
static void look_at_queue(sampler *x, watch_rank *r, rank_memory *m, bool same, double seconds) {
    char text[128];
    long long ran, waited = -1;
    if (!read_proc(x, r->pid, "schedstat", text, sizeof text) || sscanf(text, "%lld %lld", &ran, &waited) != 2)
        waited = -1;
    double part = same ? 1e-9 * rate(waited, m->waited, seconds) : NAN;
    r->starved = part > 1 ? 1 : part;
    m->waited = waited;
}

static void look_at_process(sampler *x, watch_rank *r, rank_memory *m, double seconds) {
    char text[4096];
    double ticks = NAN;
    int64_t pages = -1;
    bool same = m->pid == r->pid;
    r->process = 0, r->cpu = r->starved = NAN, r->resident = -1;
    if (r->pid == 0) return;
    m->pid = r->pid;
    look_at_queue(x, r, m, same, seconds);
    if (!read_proc(x, r->pid, "stat", text, sizeof text)) {
        r->process = 'X';
        return;
    }
    if (!parse_stat(text, &r->process, &ticks, &pages)) return;
    if (same && seconds > 0) r->cpu = (ticks - m->ticks) / (double)x->ticks_per_s / seconds;
    m->ticks = ticks;
    r->resident = pages * x->page;
}

// Adds what the rank read from disks and wrote there. Without the right to know, the node's sums are not known.
static void add_io(sampler *x, const watch_rank *r, rank_memory *m, double seconds) {
    char text[1024];
    bool known = r->pid && read_proc(x, r->pid, "io", text, sizeof text);
    int64_t read = known ? number_after(text, "\nread_bytes: ") : -1,
            written = known ? number_after(text, "\nwrite_bytes: ") : -1;
    x->s.disk_read_per_s += rate(read, m->read, seconds);
    x->s.disk_written_per_s += rate(written, m->written, seconds);
    m->read = read, m->written = written;
}

// --- the board -------------------------------------------------------------------------------------------------------

#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)

static double since(double now, int64_t ns) {
    double s = now - 1e-9 * (double)ns;
    return s > 0 ? s : 0;
}

static double ms_of(int64_t ns) { return ns > 0 ? 1e-6 * (double)ns : NAN; }

static void look_at_board(watch_rank *r, const board_rank *b, rank_memory *m, double now, double seconds) {
    r->pid = GET(b->pid);
    snprintf(r->device, sizeof r->device, "%s", board_device(b));
    r->phase = (board_phase)GET(b->phase);
    r->what = GET(b->what), r->waits_for = (board_wait)GET(b->waits_for), r->number = GET(b->number),
    r->step = GET(b->step);
    r->what_s = since(now, GET(b->since_ns)), r->phase_s = since(now, GET(b->phase_ns));
    r->beside = GET(b->beside), r->beside_number = GET(b->beside_number);
    r->beside_s = r->beside ? since(now, GET(b->beside_ns)) : 0;
    for (int p = 0; p < BOARD_PHASES; p++) r->in_phase_s[p] = 1e-9 * (double)GET(b->in_phase_ns[p]);
    r->in_phase_s[r->phase] += r->phase_s;
    r->device_planned = GET(b->device_bytes), r->lanes = GET(b->lanes);
    r->read_bytes = GET(b->read_bytes), r->read_retries = GET(b->read_retries);
    r->read_p50_ms = ms_of(GET(b->read_p50_ns)), r->read_p99_ms = ms_of(GET(b->read_p99_ns));
    r->read_bytes_per_s = rate(r->read_bytes, m->loaded, seconds);
    m->loaded = r->read_bytes;
}

// --- devices ---------------------------------------------------------------------------------------------------------

static void complain(sampler *x) {
    if (!*x->complaint) snprintf(x->complaint, sizeof x->complaint, "%s", err_last()->text);
}

static void ask_gpu(sampler *x, watch_rank *r, rank_memory *m) {
    gpu_reading found;
    if (!m->tried) {
        m->tried = true;
        if (gpu_sensors_open(&m->gpu, r->device, x->o.nvml) != ERR_OK) complain(x);
        if (m->gpu) snprintf(r->uuid, sizeof r->uuid, "%s", gpu_sensors_uuid(m->gpu));
    }
    if (!m->gpu || gpu_sensors_read(m->gpu, &found) != ERR_OK) return;
    r->sensors = found.of;
    r->utilisation = found.utilisation, r->limit_watts = found.limit_watts;
    r->device_used = found.used, r->device_total = found.total;
}

// Of processors only the energy is known, and from it the power since the last look.
static void ask_processors(sampler *x, watch_rank *r, rank_memory *m, double seconds) {
    double joules;
    if (!x->processors || cpu_sensors_joules(x->processors, &joules) != ERR_OK) return;
    r->sensors.joules = joules;
    if (seconds > 0) r->sensors.watts = (joules - m->cpu_joules) / seconds;
    m->cpu_joules = joules;
}

// Several ranks on one GPU see the same of it.
static const watch_rank *same_gpu(const sampler *x, int i) {
    for (int k = 0; k < i; k++)
        if (strcmp(x->s.rank[k].device, x->s.rank[i].device) == 0) return &x->s.rank[k];
    return NULL;
}

static void look_at_device(sampler *x, int i, double seconds) {
    watch_rank *r = &x->s.rank[i];
    const watch_rank *twin = r->device[0] ? same_gpu(x, i) : NULL;
    r->sensors = (device_sensors){.watts = NAN, .celsius = NAN, .mhz = NAN, .joules = NAN, .limited = LIMITED_UNKNOWN};
    r->utilisation = r->limit_watts = NAN;
    r->device_used = r->device_total = -1;
    if (twin) {
        r->sensors = twin->sensors, r->utilisation = twin->utilisation, r->limit_watts = twin->limit_watts;
        r->device_used = twin->device_used, r->device_total = twin->device_total;
        memcpy(r->uuid, twin->uuid, sizeof r->uuid);
    } else if (r->device[0]) ask_gpu(x, r, &x->memory[i]);
    else if (r->place.local == 0) ask_processors(x, r, &x->memory[i], seconds);
}

// What a rank draws while it makes steps, and how long it has drawn less than half of that.
static void judge_watts(watch_rank *r, rank_memory *m, double now) {
    double watts = r->sensors.watts;
    if (r->phase == PHASE_STEPPING && r->step != m->step) quantiles_add(&m->watts, watts);
    m->step = r->step;
    r->median_watts = m->watts.count ? quantiles_at(&m->watts, 0.5) : NAN;
    bool low = watts < 0.5 * r->median_watts;  // false of NaN
    if (!low) m->low_at = 0;
    else if (m->low_at == 0) m->low_at = now;
    r->low_watts_s = low ? now - m->low_at : 0;
}

// --- the disk --------------------------------------------------------------------------------------------------------

// Points a minute apart, the last hour of them: from the oldest to now.
static void trend(sampler *x, double now) {
    const struct disk_point *oldest = &x->point[x->points == DISK_POINTS ? x->next : 0];
    const struct disk_point *newest = &x->point[(x->next + DISK_POINTS - 1) % DISK_POINTS];
    double space = (double)x->s.disk_free;
    x->s.disk_free_per_s =
        x->points && now - oldest->at >= DISK_LEAST_S ? (space - oldest->free) / (now - oldest->at) : NAN;
    if (x->points && now - newest->at < DISK_STEP_S) return;
    x->point[x->next] = (struct disk_point){now, space};
    x->next = (x->next + 1) % DISK_POINTS;
    if (x->points < DISK_POINTS) x->points++;
}

static void look_at_disk(sampler *x, double now) {
    struct statvfs fs;
    x->s.disk_free = x->s.disk_total = -1;
    x->s.disk_free_per_s = NAN;
    if (statvfs(x->dir, &fs) != 0) return;
    x->s.disk_free = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
    x->s.disk_total = (int64_t)(fs.f_blocks - fs.f_bfree + fs.f_bavail) * (int64_t)fs.f_frsize;
    trend(x, now);
}

// --- all of it -------------------------------------------------------------------------------------------------------

static void look_at_run(sampler *x) {
    board *b = x->o.at->b;
    watch_state *s = &x->s;
    s->ready = board_ready(b);
    s->follows = s->nodes > 1 && !atomic_load(&b->first);
    s->stopping = atomic_load(&b->stop) != 0;
    s->end = (board_end)atomic_load(&b->end);
    s->ended = s->end != RUN_GOES_ON;
    s->step = atomic_load(&b->step);
    s->heals = atomic_load(&b->heals);
    s->evicted = atomic_load(&b->evicted);
    s->bad_steps = atomic_load(&b->bad_steps);
    s->rollbacks = atomic_load(&b->rollbacks);
    s->bad_limit = atomic_load(&b->bad_limit);
    s->has_news = board_read(b, &s->news) || s->has_news;
}

watch_state *sampler_look(sampler *x, double monotonic, double time) {
    watch_state *s = &x->s;
    double seconds = x->looked ? monotonic - x->last : 0;
    s->time = time, s->monotonic = monotonic;
    look_at_run(x);
    s->disk_read_per_s = s->disk_written_per_s = 0;
    for (int i = 0; i < s->locals; i++) {
        watch_rank *r = &s->rank[i];
        rank_memory *m = &x->memory[i];
        look_at_board(r, &x->o.at->b->rank[i], m, monotonic, seconds);
        look_at_process(x, r, m, seconds);
        add_io(x, r, m, seconds);
        look_at_device(x, i, seconds);
        judge_watts(r, m, monotonic);
    }
    look_at_disk(x, monotonic);
    x->last = monotonic;
    x->looked = true;
    return s;
}

const char *sampler_complaint(const sampler *x) { return x->complaint; }

// --- opening ---------------------------------------------------------------------------------------------------------

static void begin(sampler *x) {
    const config *c = x->o.c;
    const watch_start *at = x->o.at;
    x->s = (watch_state){.run = c->run.name,
                         .dir = x->dir,
                         .build = version_text(),
                         .supervisor = getppid(),
                         .every_s = x->o.every_s,
                         .began = clock_wall(),
                         .node = at->node,
                         .nodes = at->nodes,
                         .world = at->world,
                         .locals = at->b->locals,
                         .rank = x->s.rank};
    snprintf(x->s.host, sizeof x->s.host, "%s", at->place[0].host);
    for (int i = 0; i < x->s.locals; i++) {
        x->s.rank[i] = (watch_rank){.place = at->place[i]};
        x->memory[i] = (rank_memory){.read = -1, .written = -1, .loaded = -1};
    }
}

err_t sampler_open(sampler **out, const sampler_options *o) {
    *out = NULL;
    sampler *x = calloc(1, sizeof *x);
    size_t locals = (size_t)o->at->b->locals;
    if (x) x->s.rank = calloc(locals, sizeof *x->s.rank), x->memory = calloc(locals, sizeof *x->memory);
    if (!x || !x->s.rank || !x->memory) {
        sampler_close(x);
        return err_set(ERR_INTERNAL, "no memory to watch %zu ranks", locals);
    }
    x->o = *o;
    x->ticks_per_s = sysconf(_SC_CLK_TCK), x->page = sysconf(_SC_PAGESIZE);
    *out = x;
    TRY(io_path(x->dir, "%s/%s", o->c->run.dir, o->c->run.name));
    begin(x);
    // most kernels show them to root only: no complaint
    if (o->c->resolved.kind != DEVICE_CUDA) (void)cpu_sensors_open(&x->processors, o->root);
    return ERR_OK;
}

void sampler_close(sampler *x) {
    if (!x) return;
    for (int i = 0; x->memory && i < x->s.locals; i++) gpu_sensors_close(x->memory[i].gpu);
    cpu_sensors_close(x->processors);
    free(x->s.rank), free(x->memory);
    free(x);
}
