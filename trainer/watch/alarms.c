// trainer/watch/alarms.c: see trainer/watch/alarms.h.
//
// Each rule keeps a time that grows while its condition holds. Where a condition may flicker, the time also shrinks
// while it does not: the alarm begins when it reaches the limit, and ends when it is back at zero.
#include "trainer/watch/alarms.h"

#include "base/text.h"
#include "trainer/watch/filling.h"
#include "trainer/watch/suspect.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double LONG_READ_S = 1;  // a wait for data that no busy processor explains
static const double LONG_PART = 0.5;  // of the waiting, in such waits
static const double STARVED = 0.2;    // of the time: then the loader's thread waits for a processor, too
static const double LONGEST_S = 5;    // a longer pause between two looks counts as this

watch_limits watch_limits_default(void) {
    return (watch_limits){
        .hang_s = 30,
        .hang_p99 = 5,
        .first_s = 300,
        .waits_s = 10,
        .dead_s = 2,
        .stopped_s = 10,
        .reader_s = 30,
        .reader_share = 1.0 / 3,
        .reader_well = 1.0 / 6,
        .reader_read = 0.01,
        .reader_retries = 5,
        .throttled_s = 30,
        .clock_share = 0.75,
        .disk_ahead_s = 86400,
        .disk_look_s = 600,
        .disk_least = 1000000000,
        .checkpoints_kept = 3,
    };
}

static const struct {
    const char *begins, *ends;
} words[ALARM_KINDS] = {
    [ALARM_HANG] = {"hang", "unhang"},
    [ALARM_STOPPED] = {"stopped", "continued"},
    [ALARM_READER] = {"slow_reader", "reader_well"},
    [ALARM_THROTTLED] = {"throttled", "unthrottled"},
    [ALARM_DISK] = {"disk_full", "disk_well"},
    [ALARM_DEAD] = {"dead", "alive"},
    [ALARM_BAD_STEPS] = {"bad_steps", "good_steps"},
};

const char *alarm_event(alarm_kind kind, bool began) {
    return (unsigned)kind >= ALARM_KINDS ? "unknown" : began ? words[kind].begins : words[kind].ends;
}

// --- memory ----------------------------------------------------------------------------------------------------------

typedef struct slot {
    bool on, told;
    double since;  // seconds since 1970
} slot;

// One look at a rank that was stepping.
typedef struct reading {
    double seconds, waited;  // since the look before, and the share of it that was waiting for data
    int64_t retries, steps;
    double longest;  // wait that was seen
} reading;

// Clocks, in a histogram whose old readings count less and less: a median of about the last half hour, in 1 KB.
enum { CLOCKS = 256, CLOCK_MHZ = 16, CLOCKS_LEAST = 60, CLOCKS_MOST = 1800 };

typedef struct rank_memory {
    slot dead, stopped, reader, throttled;
    bool seen;                                // its process was there
    double gone_s, stopped_s, hot_s, slow_s;  // the rules' times
    bool paused;                              // it was stopped at the last look
    reading look[ALARM_LOOKS];                // a ring
    int64_t looks, retries;                   // retries: at the last of them
    uint16_t clock[CLOCKS];
    int clocks;
} rank_memory;

// Steps longer than this are timed here too, for nodes without rank 0: where steps are shorter, hang_s decides.
static const double TIMED_S = 1.5;
enum { GAPS = 64 };

struct alarms {
    watch_limits l;
    int locals;
    bool began;
    double at;  // of the last look

    slot bad;
    slot hang;
    int64_t progress;   // last finished step
    int64_t finished;   // steps that were seen to be finished
    bool expected;      // steps were expected at the last look
    double quiet_from;  // since when no step was finished, and one is expected
    double gap[GAPS];   // between the last steps, a ring
    int64_t gaps;

    slot disk;
    filling fill;
    rank_memory rank[];
};

err_t alarms_open(alarms **out, const watch_limits *l, int locals) {
    *out = calloc(1, sizeof **out + (size_t)locals * sizeof(rank_memory));
    if (!*out) return err_set(ERR_INTERNAL, "no memory to watch %d ranks", locals);
    (*out)->l = *l;
    (*out)->locals = locals;
    (*out)->fill.kept = l->checkpoints_kept;
    return ERR_OK;
}

void alarms_close(alarms *a) { free(a); }

// --- alarms and news -------------------------------------------------------------------------------------------------

typedef struct look {
    alarms *a;
    watch_state *s;
    alarm_news *news;
    double passed;  // since the last one, seconds, at most LONGEST_S
    int64_t steps;  // finished since
} look;

static void tell(look *k, slot *x, alarm_kind kind, int rank, const char *text) {
    if (k->news->count == WATCH_ALARMS) return;  // with the next look
    alarm_change *c = &k->news->change[k->news->count++];
    *c = (alarm_change){.kind = kind, .began = x->on, .rank = rank};
    snprintf(c->text, sizeof c->text, "%s", text);
    x->told = x->on;
}

// The alarm's condition holds: begins the alarm, dated `age` seconds back, or keeps it. What concerns the whole run is
// told by one node: that of rank 0.
static void ring(look *k, slot *x, alarm_kind kind, int rank, double age, const char *text) {
    if (!x->on) x->since = k->s->time - age;
    x->on = true;
    bool elsewhere = k->s->follows && rank < 0 && kind != ALARM_DISK;
    if (!x->told && !elsewhere) tell(k, x, kind, rank, text);
    if (k->s->alarms == WATCH_ALARMS) return;
    watch_alarm *w = &k->s->alarm[k->s->alarms++];
    *w = (watch_alarm){.kind = kind, .rank = rank, .since = x->since};
    snprintf(w->text, sizeof w->text, "%s", text);
}

// The alarm's condition does not hold. If it was reported, reports its end: `who` and `now` say what is well again.
static void rest(look *k, slot *x, alarm_kind kind, int rank, const char *who, const char *now) {
    char text[ALARM_TEXT];
    x->on = false;
    if (!x->told) return;
    snprintf(text, sizeof text, "%s%s%s, after %.0f s", who, *who ? ": " : "", now, k->s->time - x->since);
    tell(k, x, kind, rank, text);
}

static double limited(double x, double least, double most) { return x < least ? least : x > most ? most : x; }

// A time that grows while `holds`, and shrinks while not.
static bool lasts(double *t, bool holds, double passed, double limit, bool on) {
    *t = limited(*t + (holds ? passed : -passed), 0, limit);
    return on ? *t > 0 : *t >= limit;
}

// --- hang ------------------------------------------------------------------------------------------------------------

static bool is_gone(const watch_rank *r) { return r->process == 'Z' || r->process == 'X'; }

// Are steps expected? Only while all ranks that are there say so: they evaluate and save together.
static bool expects_steps(const watch_state *s) {
    int stepping = 0;
    if (!s->ready || s->ended) return false;
    for (int i = 0; i < s->locals; i++) {
        if (is_gone(&s->rank[i]) || s->rank[i].phase == PHASE_ENDED) continue;
        if (s->rank[i].phase != PHASE_STEPPING) return false;
        stepping++;
    }
    return stepping > 0;
}

static double longest_gap(const alarms *a) {
    double most = 0;
    for (int i = 0; i < GAPS && i < a->gaps; i++)
        if (a->gap[i] > most) most = a->gap[i];
    return most;
}

// Rank 0 has counted them from the start; elsewhere they were seen to be finished.
static int64_t steps_of_process(const alarms *a, const watch_state *s) {
    int64_t known = s->has_news ? s->news.step - s->news.began_step : 0;
    return known > a->finished ? known : a->finished;
}

static double hang_limit(const alarms *a, const watch_state *s) {
    double p99 = s->has_news ? 1e-9 * (double)s->news.p99_ns : longest_gap(a), least = a->l.hang_s;
    if (steps_of_process(a, s) < ALARM_FIRST && a->l.first_s > least) least = a->l.first_s;
    return least > a->l.hang_p99 * p99 ? least : a->l.hang_p99 * p99;
}

static void note_progress(look *k) {
    alarms *a = k->a;
    const watch_state *s = k->s;
    int64_t step = s->step;
    bool expected = expects_steps(s);
    k->steps = a->began && step > a->progress && expected && a->expected ? step - a->progress : 0;
    if (k->steps > 0) {
        double gap = (s->monotonic - a->quiet_from) / (double)k->steps;
        a->finished += k->steps;
        if (gap > TIMED_S) a->gap[a->gaps++ % GAPS] = gap;
    }
    if (!a->began || step != a->progress || !expected) a->quiet_from = s->monotonic;
    a->progress = step;
    a->expected = expected;
}

static void judge_hang(look *k) {
    alarms *a = k->a;
    char text[ALARM_TEXT];
    note_progress(k);
    double quiet = k->s->monotonic - a->quiet_from;
    if (!(a->hang.on ? quiet > 0 : quiet >= hang_limit(a, k->s))) {
        snprintf(text, sizeof text,
                 expects_steps(k->s) ? "steps go on, with step %" PRId64
                                     : "no step is expected now, after step %" PRId64,
                 a->progress);
        rest(k, &a->hang, ALARM_HANG, -1, "", text);
        return;
    }
    suspect who = suspect_find(k->s);
    bool here = who.local >= 0 && who.why != SUSPECT_ELSEWHERE && who.why != SUSPECT_UNKNOWN;
    suspect_text(text, sizeof text, k->s, who, a->progress, quiet, a->l.waits_s);
    ring(k, &a->hang, ALARM_HANG, here ? k->s->rank[who.local].place.rank : -1, quiet, text);
}

// --- a rank's process ------------------------------------------------------------------------------------------------

static bool is_stopped(const watch_rank *r) { return r->process == 'T' || r->process == 't'; }

static void judge_dead(look *k, rank_memory *m, const watch_rank *r, const char *name) {
    char text[ALARM_TEXT];
    bool vanished = is_gone(r) || (m->seen && r->process == 0);
    if (r->process && !is_gone(r)) m->seen = true;
    bool over = r->phase == PHASE_ENDED || k->s->stopping;
    m->gone_s = vanished && !over ? m->gone_s + k->passed : 0;
    if (m->gone_s < k->a->l.dead_s || m->gone_s == 0)
        return rest(k, &m->dead, ALARM_DEAD, r->place.rank, name, "is there");
    snprintf(
        text, sizeof text,
        "%s: its process %d is gone, in phase %s of step %" PRId64
        ", and the run is not over. Next: dmesg (out of memory?), the last lines of events.jsonl and of the service's log",
        name, r->pid, board_phase_name(r->phase), r->step);
    ring(k, &m->dead, ALARM_DEAD, r->place.rank, m->gone_s, text);
}

static void judge_stopped(look *k, rank_memory *m, const watch_rank *r, const char *name) {
    char text[ALARM_TEXT];
    bool stopped = is_stopped(r);
    m->stopped_s = stopped ? m->stopped_s + k->passed : 0;
    if (!stopped || m->stopped_s < k->a->l.stopped_s)
        return rest(k, &m->stopped, ALARM_STOPPED, r->place.rank, name, "goes on");
    snprintf(text, sizeof text, "%s: its process %d is %s, for %.0f s. Next: kill -CONT %d", name, r->pid,
             r->process == 't' ? "held by a debugger" : "stopped by a signal", m->stopped_s, r->pid);
    ring(k, &m->stopped, ALARM_STOPPED, r->place.rank, m->stopped_s, text);
}

// --- a run that diverges ---------------------------------------------------------------------------------------------

// What to do is the trainer's to say: it knows the checkpoints (trainer/diverged.h), and its event says it.
static void judge_bad_steps(look *k) {
    const watch_state *s = k->s;
    slot *x = &k->a->bad;
    char text[ALARM_TEXT];
    bool many = s->bad_limit > 0 && s->bad_steps >= s->bad_limit;
    if (!many && !(x->on && s->bad_steps > 0))
        return rest(k, x, ALARM_BAD_STEPS, -1, "", "loss and gradient are finite again");
    snprintf(
        text, sizeof text,
        "the run diverges: the loss or the gradient of the last %" PRId64 " steps, up to step %" PRId64
        ", was not finite, and such a step is skipped. Next: the event `diverged` in %s/events.jsonl names the checkpoint to go back to",
        s->bad_steps, s->step, s->dir ? s->dir : "the run's");
    ring(k, x, ALARM_BAD_STEPS, -1, 0, text);
}

// --- the loader ------------------------------------------------------------------------------------------------------

static bool waits_for_data(const watch_rank *r) { return r->waits_for == WAIT_DATA; }

// The share of the last look that was waiting for data. Rank 0 says it of its last step; of the others one look is a
// sample of what they do.
static double waited(const look *k, const watch_rank *r) {
    const board_news *n = &k->s->news;
    bool told = r->place.rank == 0 && k->s->has_news && k->steps > 0 && n->ms > 0 && n->data_wait_ms >= 0;
    if (told) return limited(n->data_wait_ms / n->ms, 0, 1);
    return waits_for_data(r);
}

static double longest_wait(const look *k, const watch_rank *r) {
    if (r->starved > STARVED) return 0;
    double now = waits_for_data(r) ? r->what_s : 0,
           last = r->place.rank == 0 && k->s->has_news ? 1e-3 * k->s->news.data_wait_ms : 0;
    return last > now ? last : now;
}

typedef struct reading_sum {
    double seconds, waited;
    int64_t retries, steps;
    double step_ms;  // mean; infinite: none was finished
    double long_s;   // waited in waits of LONG_READ_S and more
    double wait_s;
} reading_sum;

static reading_sum sum_of(const rank_memory *m, double window) {
    reading_sum all = {0};
    for (int64_t i = m->looks; i > 0 && i > m->looks - ALARM_LOOKS && all.seconds < window; i--) {
        const reading *x = &m->look[(i - 1) % ALARM_LOOKS];
        all.seconds += x->seconds;
        all.wait_s += x->seconds * x->waited;
        if (x->longest >= LONG_READ_S) all.long_s += x->seconds * x->waited;
        all.retries += x->retries;
        all.steps += x->steps;
    }
    all.step_ms = all.steps > 0 ? 1e3 * all.seconds / (double)all.steps : INFINITY;
    all.waited = all.seconds > 0 ? all.wait_s / all.seconds : 0;
    return all;
}

// Is it reading that takes the time? Its latencies say so; but reads that are not done are not among them, and of the
// last thousand a few slow ones are too few to be seen. A loader that only waits for a processor waits for less, most
// of the time.
static bool reads_are_why(const reading_sum *all, const watch_rank *r, double share) {
    return all->steps == 0 || (all->long_s > 0 && all->long_s >= LONG_PART * all->wait_s) ||
           r->read_p99_ms >= share * all->step_ms;
}

static void say_reader(char text[ALARM_TEXT], const watch_rank *r, const reading_sum *all, const char *name) {
    char rate[48] = "";
    if (r->read_bytes_per_s >= 0) snprintf(rate, sizeof rate, ", %.1f MB/s", r->read_bytes_per_s / 1e6);
    snprintf(
        text, ALARM_TEXT,
        "%s: %.0f %% of the last %.0f s were waiting for data; reading a micro-batch takes %.3g ms (p50), %.3g ms (p99)%s; a step takes "
        "%.3g ms; %" PRId64 " reads were tried again. Next: iostat -x 1 there; copy [data] train to a faster disk",
        name, 100 * all->waited, all->seconds, r->read_p50_ms, r->read_p99_ms, rate, all->step_ms, all->retries);
}

static void judge_reader(look *k, rank_memory *m, const watch_rank *r, const char *name) {
    const watch_limits *l = &k->a->l;
    char text[ALARM_TEXT];
    int64_t retried = m->looks > 0 && r->read_retries > m->retries ? r->read_retries - m->retries : 0;
    bool stepping = r->phase == PHASE_STEPPING && k->s->ready, paused = is_stopped(r) || m->paused;
    m->paused = is_stopped(r);
    if (paused) m->looks = 0;  // what took long was not the loader's doing: the window begins anew
    if (stepping && !paused) {
        m->look[m->looks++ % ALARM_LOOKS] = (reading){k->passed, waited(k, r), retried, k->steps, longest_wait(k, r)};
        m->retries = r->read_retries;
    }
    reading_sum all = sum_of(m, l->reader_s);
    bool whole = all.seconds >= 0.9 * l->reader_s;
    bool slow = whole && (m->reader.on || reads_are_why(&all, r, l->reader_read)) &&
                all.waited >= (m->reader.on ? l->reader_well : l->reader_share);
    bool fails = m->reader.on ? all.retries > 0 : all.retries >= l->reader_retries;
    if (!slow && !fails) return rest(k, &m->reader, ALARM_READER, r->place.rank, name, "the loader keeps up");
    say_reader(text, r, &all, name);
    ring(k, &m->reader, ALARM_READER, r->place.rank, all.seconds, text);
}

// --- heat ------------------------------------------------------------------------------------------------------------

static void note_clock(rank_memory *m, double mhz) {
    int at = (int)limited(mhz / CLOCK_MHZ, 0, CLOCKS - 1);
    m->clock[at]++;
    if (++m->clocks < CLOCKS_MOST) return;
    m->clocks = 0;
    for (int i = 0; i < CLOCKS; i++) m->clocks += m->clock[i] /= 2;
}

// MHz; 0: too few readings.
static double median_clock(const rank_memory *m) {
    int below = 0, at = 0;
    if (m->clocks < CLOCKS_LEAST) return 0;
    while (at < CLOCKS - 1 && 2 * (below + m->clock[at]) <= m->clocks) below += m->clock[at++];
    return (at + 0.5) * CLOCK_MHZ;
}

// A device that is the only one, so that no other waits for it, is slow too when its watts are low and it is busy. What
// is usual is learned while nothing holds the clock down.
static bool is_slowed(const look *k, rank_memory *m, const watch_rank *r) {
    double usual = median_clock(m);
    bool busy = r->utilisation >= 0.9,
         low = r->sensors.mhz > 0 && usual > 0 && r->sensors.mhz < k->a->l.clock_share * usual;
    if (busy && r->sensors.mhz > 0 && !low && m->slow_s == 0 && m->hot_s == 0) note_clock(m, r->sensors.mhz);
    return busy && (low || (k->s->world == 1 && r->low_watts_s >= k->a->l.waits_s));
}

// `limits`: what limits it now.
static void say_throttled(char dst[ALARM_TEXT], const rank_memory *m, const watch_rank *r, unsigned limits, bool hot,
                          const char *name) {
    char why[LIMITED_TEXT];
    double usual = median_clock(m);
    text l = {.at = dst, .room = ALARM_TEXT};
    if (limits) text_put(&l, "%s: its clock is limited by %s", name, device_limited_text(limits, why));
    else
        text_put(&l, "%s: %s", name,
                 hot ? "its clock was limited until just now" : "it is slower than usual, and does not say why");
    if (r->sensors.mhz > 0) text_put(&l, "; %.0f MHz", r->sensors.mhz);
    if (r->sensors.mhz > 0 && usual > 0) text_put(&l, ", median %.0f MHz", usual);
    if (r->sensors.celsius > 0) text_put(&l, "; %.0f C", r->sensors.celsius);
    if (r->sensors.watts > 0) text_put(&l, "; %.0f W", r->sensors.watts);
    if (r->sensors.watts > 0 && r->median_watts > 0) text_put(&l, ", median %.0f W", r->median_watts);
    text_put(&l, ". Next: nvidia-smi -q -d PERFORMANCE,TEMPERATURE there; look at fans and power supply");
}

static void judge_throttled(look *k, rank_memory *m, const watch_rank *r, const char *name) {
    const watch_limits *l = &k->a->l;
    char text[ALARM_TEXT];
    unsigned limits = r->sensors.limited & LIMITED_UNKNOWN
                          ? 0
                          : r->sensors.limited & (LIMITED_HEAT | LIMITED_BRAKE | LIMITED_HARDWARE);
    bool stepping = r->phase == PHASE_STEPPING, on = m->throttled.on;
    // an idle device says nothing
    double passed = stepping || r->phase == PHASE_EVALUATING || r->phase == PHASE_SAMPLING ? k->passed : 0;
    bool hot = lasts(&m->hot_s, limits, passed, l->throttled_s, on);
    // What is usual is known of steps alone: an evaluation between them neither begins this nor ends it.
    bool slow = lasts(&m->slow_s, stepping && is_slowed(k, m, r), stepping ? passed : 0, l->throttled_s, on);
    if (!hot && !slow)
        return rest(k, &m->throttled, ALARM_THROTTLED, r->place.rank, name, "its clock is no longer limited");
    say_throttled(text, m, r, limits, hot, name);
    ring(k, &m->throttled, ALARM_THROTTLED, r->place.rank, l->throttled_s, text);
}

// --- the disk --------------------------------------------------------------------------------------------------------

static bool saves(const watch_state *s) {
    for (int i = 0; i < s->locals; i++)
        if (s->rank[i].phase == PHASE_SAVING) return true;
    return false;
}

// A checkpoint takes its room, and older ones give theirs back: what it leaves meanwhile is not judged, unless it is
// nothing.
static bool is_full(const alarms *a, const watch_state *s, double *need) {
    bool on = a->disk.on;
    double least = limited((double)s->disk_total / 50, 0, (double)a->l.disk_least), free = (double)s->disk_free;
    *need = (double)a->fill.save_bytes;
    return free < (on ? 2 : 1) * least || (free < (on ? 1.3 : 1.1) * *need && (on || !a->fill.saving));
}

static void judge_disk(look *k) {
    alarms *a = k->a;
    const watch_state *s = k->s;
    char says[ALARM_TEXT];
    const char *host = s->locals > 0 ? s->rank[0].place.host : "";
    text l = {.at = says, .room = sizeof says};
    double free = (double)s->disk_free, need;
    if (s->disk_free < 0 || s->disk_total <= 0) return;
    filling_look(&a->fill, s->monotonic, s->disk_free, saves(s));
    double rate = filling_rate(&a->fill, a->l.disk_look_s), left = rate > 0 ? free / rate : INFINITY;
    bool full = is_full(a, s, &need);
    if (!full && left > (a->disk.on ? 2 : 1) * a->l.disk_ahead_s)
        return rest(k, &a->disk, ALARM_DISK, -1, host, "there is room on the run's disk");
    text_put(&l, "%s: the run's disk has ", host);
    text_size(&l, free);
    text_put(&l, " free of ");
    text_size(&l, (double)s->disk_total);
    if (full && free < 1.3 * need) text_put(&l, ", and a checkpoint takes "), text_size(&l, need);
    if (isfinite(left))
        text_put(&l, ", "), text_size(&l, 3600 * rate), text_put(&l, " less each hour: full in %.1f h", left / 3600);
    text_put(&l, ". Next: make room there, or lower [checkpoint] keep");
    ring(k, &a->disk, ALARM_DISK, -1, 0, says);
}

// --- all -------------------------------------------------------------------------------------------------------------

static void forget(alarms *a) {
    watch_limits l = a->l;
    int locals = a->locals;
    memset(a, 0, sizeof *a + (size_t)locals * sizeof *a->rank);
    a->l = l;
    a->locals = locals;
    a->fill.kept = l.checkpoints_kept;
}

typedef void (*rank_rule)(look *k, rank_memory *m, const watch_rank *r, const char *name);

// One rule after the other, so that what is graver comes first.
static void judge_ranks(look *k, rank_rule rule) {
    char name[SUSPECT_NAME];
    for (int i = 0; i < k->a->locals && i < k->s->locals; i++)
        rule(k, &k->a->rank[i], &k->s->rank[i], suspect_name(&k->s->rank[i], name));
}

void alarms_judge(alarms *a, watch_state *s, alarm_news *news) {
    news->count = 0;
    s->alarms = 0;
    if (s->ended) {
        forget(a);
        return;
    }
    look k = {.a = a, .s = s, .news = news, .passed = a->began ? limited(s->monotonic - a->at, 0, LONGEST_S) : 0};
    judge_hang(&k);
    judge_ranks(&k, judge_dead);
    judge_ranks(&k, judge_stopped);
    judge_bad_steps(&k);
    judge_ranks(&k, judge_reader);
    judge_ranks(&k, judge_throttled);
    judge_disk(&k);
    a->began = true;
    a->at = s->monotonic;
}
