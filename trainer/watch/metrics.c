// trainer/watch/metrics.c: see metrics.h. One function writes all families in order, into a text that is in memory, or
// goes to a file in pieces.
#include "trainer/watch/metrics.h"

#include "base/io.h"
#include "base/text.h"
#include "base/version.h"
#include "trainer/watch/alarms.h"
#include "trainer/watch/health.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// --- families --------------------------------------------------------------------------------------------------------

enum { LABELS = 512, PIECE = 16384 };

// What a family is. Its HELP and TYPE are written with its first sample: a family without any is left out.
typedef struct family {
    const char *name, *type, *help;
    bool begun;
} family;

static void begin(text *w, family *f) {
    if (!f->begun) text_put(w, "# HELP lockstep_%s %s\n# TYPE lockstep_%s %s\n", f->name, f->help, f->name, f->type);
    f->begun = true;
}

// name{labels} value. labels: "" or "{...}"
static void sample(text *w, family *f, const char *labels, double x) {
    if (!isfinite(x)) return;
    begin(w, f);
    text_put(w, "lockstep_%s%s %.15g\n", f->name, labels, x);
}

static void whole(text *w, family *f, const char *labels, int64_t x) {
    begin(w, f);
    text_put(w, "lockstep_%s%s %" PRId64 "\n", f->name, labels, x);
}

static void gauge(text *w, const char *name, const char *help, double x) {
    sample(w, &(family){name, "gauge", help, false}, "", x);
}
static void count(text *w, const char *name, const char *help, int64_t x) {
    whole(w, &(family){name, "counter", help, false}, "", x);
}

// A whole number that is known where it is not negative.
static double known(int64_t x) { return x >= 0 ? (double)x : NAN; }

// A label's value: what the format reserves is escaped.
static void put_label(text *l, const char *value) {
    static const text_escapes how = {.special = {"\\\\\\", "\"\\\"", "\n\\n"}};
    text_escaped(l, &how, value);
}

// --- the run ---------------------------------------------------------------------------------------------------------

static void put_build(text *w) {
    char version[64], labels[LABELS];
    snprintf(version, sizeof version, "%s", version_text());
    char *revision = strchr(version, ' ');
    if (revision) *revision++ = 0;
    text l = {.at = labels, .room = sizeof labels};
    text_put(&l, "{version=\"%s\",revision=\"", version);
    put_label(&l, revision ? revision : "");
    text_put(&l, "\"}");
    whole(w, &(family){"build_info", "gauge", "The build that runs, as labels.", false}, labels, 1);
}

static double news_value(const board_news *n, step_field f) {
    switch (f) {
#define ON_BOARD(name, curve, board, member, ...) IF_##board(case STEP_##name : return n->member;)
        STEP_FIELDS(ON_BOARD)
#undef ON_BOARD
    default: return NAN;
    }
}

// A number of the last step's.
static void put_field(text *w, const board_news *n, step_field f) {
    const field_about *a = &step_about[f];
    char name[64], help[128];
    if (!a->metric || (f >= STEP_STALE && isnan(news_value(n, f)))) return;
    snprintf(name, sizeof name, a->metric, n->unit);
    snprintf(help, sizeof help, a->help, n->unit);
    gauge(w, name, help, news_value(n, f) / a->per);
}

static void put_steps(text *w, const board_news *n) {
    int64_t done = n->step - n->began_step;
    char name[64], help[96];
    gauge(w, "step_target", "Steps that the run has in all.", (double)n->steps);
    count(w, "steps_total", "Steps finished since the process began.", done);
    count(w, "skipped_steps_total",
          "Steps since the process began whose update was left out, as a gradient was not finite, or an outlier.",
          n->skipped);
    // Each step has the same number of them, so those of this process are a share of the run's.
    if (*n->unit) {
        snprintf(name, sizeof name, "%ss_total", n->unit);
        snprintf(help, sizeof help, "Training %ss since the process began.", n->unit);
        count(w, name, help, n->step > 0 ? n->units / n->step * done : 0);
        put_field(w, n, STEP_RATE);
    }
    if (n->step_time > 0)
        gauge(w, "last_step_timestamp_seconds", "When the last step was finished, since 1970.", n->step_time);
}

// "code.loss" of a named set.
static void put_sets(text *w, const board_news *n) {
    char labels[LABELS];
    family f = {"eval_set", "gauge", "Of the last evaluation: what was measured on a named set of [eval] sets.", false};
    for (int i = 0; i < n->figures && i < BOARD_FIGURES; i++) {
        text l = {.at = labels, .room = sizeof labels};
        const char *dot = strchr(n->figure[i], '.');
        if (!dot) continue;
        text_put(&l, "{set=\"%.*s\",figure=\"%s\"}", (int)(dot - n->figure[i]), n->figure[i], dot + 1);
        sample(w, &f, labels, n->figure_value[i]);
    }
}

static void put_values(text *w, const board_news *n) {
    for (int i = 0; i < STEP_COUNT; i++)
        if (step_metric[i] != STEP_RATE) put_field(w, n, step_metric[i]);
    if (n->step > 0 && n->rows > 0) gauge(w, "rows", "Rows of tables that were made on demand.", (double)n->rows);
    if (n->step > 0 && n->cold_rows > 0)
        gauge(w, "cold_rows", "Of these, rows that are in files alone.", (double)n->cold_rows);
    if (n->eval_step > 0) {
        gauge(w, "eval_loss", "Validation loss of the last evaluation.", n->eval_loss);
        gauge(w, "eval_step", "Step of the last evaluation.", (double)n->eval_step);
#define PUT_FIGURE(name, help) \
    if (isfinite(n->eval_##name)) gauge(w, "eval_" #name, help ", of the last evaluation.", n->eval_##name);
        BOARD_MEASURES(PUT_FIGURE)
#undef PUT_FIGURE
        put_sets(w, n);
    }
    if (n->best_step > 0) {
        gauge(w, "best_eval_loss", "Lowest validation loss of the run.", n->best);
        gauge(w, "best_eval_step", "Step of the lowest validation loss.", (double)n->best_step);
    }
    if (n->checkpoint_step > 0) {
        gauge(w, "checkpoint_step", "Step of the newest checkpoint.", (double)n->checkpoint_step);
        gauge(w, "checkpoint_timestamp_seconds",
              "When the newest checkpoint was complete, since 1970, if this process wrote it.", n->checkpoint_time);
        gauge(w, "checkpoint_duration_seconds", "How long it took to save the newest checkpoint.",
              n->checkpoint_ms / 1e3);
    }
}

// Buckets of the format are cumulative; the last one has all.
static void put_durations(text *w, const board_news *n) {
    family f = {"step_duration_seconds", "histogram", "Duration of steps since the process began.", false};
    int64_t sum = 0;
    begin(w, &f);
    for (int i = 0; i < BOARD_BUCKETS - 1; i++) {
        sum += n->bucket[i];
        text_put(w, "lockstep_%s_bucket{le=\"%g\"} %" PRId64 "\n", f.name, board_bucket_s[i], sum);
    }
    sum += n->bucket[BOARD_BUCKETS - 1];
    text_put(w, "lockstep_%s_bucket{le=\"+Inf\"} %" PRId64 "\n", f.name, sum);
    text_put(w, "lockstep_%s_sum %.15g\nlockstep_%s_count %" PRId64 "\n", f.name, n->timed_s, f.name, sum);
}

static void put_run(text *w, const watch_state *s) {
    char why[HEALTH_TEXT];
    put_build(w);
    gauge(w, "start_time_seconds", "When the process began, since 1970.", s->began);
    gauge(w, "ready", "1 when all ranks of this node have joined and loaded.", s->ready);
    gauge(w, "healthy", "1 while steps advance or none is expected, as /health says.", health(s, why, sizeof why));
    gauge(w, "step", "Last finished step.", known(s->step));
    count(w, "heals_total", "Losses of ranks after which the run went on.", s->heals);
    count(w, "evicted_total", "Ranks or nodes without which the run went on because they stayed slow.", s->evicted);
    count(w, "rollbacks_total", "Times that the run went back before steps that it then left out.", s->rollbacks);
    gauge(w, "bad_steps", "Steps in a row, up to the last one, whose values were not finite.", (double)s->bad_steps);
    if (!s->has_news) return;
    put_steps(w, &s->news);
    put_values(w, &s->news);
    put_durations(w, &s->news);
}

// --- ranks -----------------------------------------------------------------------------------------------------------

// Writes a family with a sample of each rank. value: NaN where it is not known.
typedef double (*rank_value)(const watch_rank *r);
static void of_ranks(text *w, const watch_state *s, family f, rank_value value) {
    char labels[LABELS];
    for (int i = 0; i < s->locals; i++) {
        snprintf(labels, sizeof labels, "{rank=\"%d\"}", s->rank[i].place.rank);
        sample(w, &f, labels, value(&s->rank[i]));
    }
}

static double rank_step(const watch_rank *r) { return known(r->step); }
static double rank_operation_s(const watch_rank *r) { return r->what_s; }
static double rank_cpu(const watch_rank *r) { return r->cpu; }
static double rank_resident(const watch_rank *r) { return known(r->resident); }
static double rank_read_bytes(const watch_rank *r) { return known(r->read_bytes); }
static double rank_lanes(const watch_rank *r) { return known(r->lanes); }
static double rank_read_retries(const watch_rank *r) { return known(r->read_retries); }
static double rank_read_p50(const watch_rank *r) { return r->read_p50_ms / 1e3; }
static double rank_read_p99(const watch_rank *r) { return r->read_p99_ms / 1e3; }

static void put_phases(text *w, const watch_state *s) {
    family f = {"rank_phase_seconds_total", "counter", "Time that a rank has spent in each phase.", false};
    char labels[LABELS];
    for (int i = 0; i < s->locals; i++)
        for (int p = 0; p < BOARD_PHASES; p++) {
            snprintf(labels, sizeof labels, "{rank=\"%d\",phase=\"%s\"}", s->rank[i].place.rank,
                     board_phase_name((board_phase)p));
            sample(w, &f, labels, s->rank[i].in_phase_s[p]);
        }
}

static void put_ranks(text *w, const watch_state *s) {
    put_phases(w, s);
    of_ranks(w, s, (family){"rank_step", "gauge", "Step that a rank works at.", false}, rank_step);
    of_ranks(w, s, (family){"rank_lanes", "gauge", "Lanes of a step that a rank runs.", false}, rank_lanes);
    of_ranks(w, s,
             (family){"rank_operation_age_seconds", "gauge", "For how long a rank has been at its present operation.",
                      false},
             rank_operation_s);
    of_ranks(w, s, (family){"rank_busy_processors", "gauge", "Processors that a rank keeps busy.", false}, rank_cpu);
    of_ranks(w, s, (family){"process_resident_bytes", "gauge", "Memory of a rank's process.", false}, rank_resident);
    of_ranks(w, s, (family){"read_bytes_total", "counter", "Bytes that a rank's loader has read.", false},
             rank_read_bytes);
    of_ranks(w, s, (family){"read_retries_total", "counter", "Reads that a rank's loader had to repeat.", false},
             rank_read_retries);
    of_ranks(w, s, (family){"read_median_seconds", "gauge", "Median time to read a micro-batch, lately.", false},
             rank_read_p50);
    of_ranks(w, s,
             (family){"read_p99_seconds", "gauge", "99th percentile of the time to read a micro-batch, lately.", false},
             rank_read_p99);
}

// --- devices ---------------------------------------------------------------------------------------------------------

// gpu and UUID as NVIDIA's dcgm-exporter has them; of CPUs rank 0 of a node stands for all of its processors.
static void device_labels(char dst[LABELS], const watch_rank *r, const char *more) {
    text l = {.at = dst, .room = LABELS};
    text_put(&l, "{");
    if (*r->device) {
        text_put(&l, "gpu=\"%d\",UUID=\"", r->place.local);
        put_label(&l, r->uuid);
        text_put(&l, "\",pci_bus_id=\"");
        put_label(&l, r->device);
        text_put(&l, "\",");
    }
    text_put(&l, "rank=\"%d\"%s}", r->place.rank, more);
}

static void of_devices(text *w, const watch_state *s, family f, rank_value value) {
    char labels[LABELS];
    for (int i = 0; i < s->locals; i++) {
        device_labels(labels, &s->rank[i], "");
        sample(w, &f, labels, value(&s->rank[i]));
    }
}

static double device_watts(const watch_rank *r) { return r->sensors.watts; }
static double device_limit(const watch_rank *r) { return r->limit_watts; }
static double device_joules(const watch_rank *r) { return r->sensors.joules; }
static double device_celsius(const watch_rank *r) { return r->sensors.celsius; }
static double device_hertz(const watch_rank *r) { return r->sensors.mhz * 1e6; }
static double device_utilisation(const watch_rank *r) { return r->utilisation; }
static double device_used(const watch_rank *r) { return known(r->device_used); }
static double device_total(const watch_rank *r) { return known(r->device_total); }
static double device_planned(const watch_rank *r) { return known(r->device_planned); }

// 1 for each reason for which its clocks are lowered, 0 for the others.
static void put_limits(text *w, const watch_state *s) {
    static const struct {
        unsigned bit;
        const char *label;
    } reasons[] = {{LIMITED_POWER, ",reason=\"power\""},
                   {LIMITED_HEAT, ",reason=\"heat\""},
                   {LIMITED_BRAKE, ",reason=\"brake\""},
                   {LIMITED_HARDWARE, ",reason=\"hardware\""}};
    family f = {"device_clock_limited", "gauge", "1 while a device's clock is held down for this reason.", false};
    char labels[LABELS];
    for (int i = 0; i < s->locals; i++)
        for (size_t k = 0; k < sizeof reasons / sizeof *reasons && s->rank[i].sensors.limited != LIMITED_UNKNOWN; k++) {
            device_labels(labels, &s->rank[i], reasons[k].label);
            whole(w, &f, labels, (s->rank[i].sensors.limited & reasons[k].bit) != 0);
        }
}

static void put_devices(text *w, const watch_state *s) {
    of_devices(w, s, (family){"device_power_watts", "gauge", "Power that a device draws.", false}, device_watts);
    of_devices(w, s, (family){"device_power_limit_watts", "gauge", "Power that a device may draw.", false},
               device_limit);
    of_devices(w, s, (family){"device_energy_joules_total", "counter", "Energy that a device has used.", false},
               device_joules);
    of_devices(w, s, (family){"device_temperature_celsius", "gauge", "Temperature of a device.", false},
               device_celsius);
    of_devices(w, s, (family){"device_clock_hertz", "gauge", "Clock of a device's processors.", false}, device_hertz);
    put_limits(w, s);
    of_devices(
        w, s,
        (family){"device_utilization_ratio", "gauge", "Share of the last second in which a device computed.", false},
        device_utilisation);
    of_devices(w, s,
               (family){"device_memory_used_bytes", "gauge", "Memory of a device that is in use, by anybody.", false},
               device_used);
    of_devices(w, s, (family){"device_memory_size_bytes", "gauge", "Memory of a device.", false}, device_total);
    of_devices(w, s,
               (family){"device_memory_planned_bytes", "gauge",
                        "Memory of a device that the run has planned for its rank.", false},
               device_planned);
}

// --- the node --------------------------------------------------------------------------------------------------------

static void put_node(text *w, const watch_state *s) {
    family f = {"alarms", "gauge", "What a person should look at now, by kind.", false};
    gauge(w, "filesystem_avail_bytes", "Space that is left for the run on the disk of its directory.",
          known(s->disk_free));
    gauge(w, "filesystem_size_bytes", "Size of that disk.", known(s->disk_total));
    gauge(w, "disk_read_bytes_per_second", "What the ranks of this node read from disks.", s->disk_read_per_s);
    gauge(w, "disk_written_bytes_per_second", "What the ranks of this node write to disks.", s->disk_written_per_s);
    for (int k = 0; k < ALARM_KINDS; k++) {
        int n = 0;
        char labels[LABELS];
        for (int i = 0; i < s->alarms; i++) n += s->alarm[i].kind == (alarm_kind)k;
        snprintf(labels, sizeof labels, "{kind=\"%s\"}", alarm_event((alarm_kind)k, true));
        whole(w, &f, labels, n);
    }
}

static void put_all(text *w, const watch_state *s) {
    put_run(w, s);
    put_ranks(w, s);
    put_devices(w, s);
    put_node(w, s);
}

size_t metrics_room(int locals) { return 16384 + 6144 * (size_t)locals; }

size_t metrics_write(const watch_state *s, char *dst, size_t room) {
    if (room == 0) return 0;
    text w = {.at = dst, .room = room};
    put_all(&w, s);
    if (w.full) *dst = 0;
    return text_bytes(&w);
}

err_t metrics_file(const watch_state *s, const char *path) {
    char beside[IO_PATH], piece[PIECE];
    TRY(io_path(beside, "%s.new", path));  // not *.prom: the collector does not take it for another one
    int fd;
    TRY(io_open(beside, O_WRONLY | O_CREAT | O_TRUNC, &fd));
    text w = {.at = piece, .room = sizeof piece, .to = fd, .path = beside};
    put_all(&w, s);
    err_t rc = text_flush(&w);
    if (rc == ERR_OK && w.full) rc = err_set(ERR_INTERNAL, "%s: a line has more than %d bytes", beside, PIECE);
    if (close(fd) != 0 && rc == ERR_OK) rc = err_set(ERR_IO, "%s: %s", beside, strerror(errno));
    if (rc == ERR_OK && rename(beside, path) != 0) rc = err_set(ERR_IO, "%s: %s", path, strerror(errno));
    if (rc != ERR_OK) unlink(beside);
    return rc;
}
