// trainer/watch/status_json.c: see trainer/watch/status_json.h. One line for each part, rank and alarm, so that people
// can read it too.
#include "trainer/watch/status_json.h"

#include "trainer/watch/alarms.h"
#include "base/text.h"

#include <math.h>
#include <string.h>

const char *status_word(const watch_state *s) {
    static const char *const ends[] = {
        [RUN_DONE] = "done", [RUN_STOPPED] = "stopped", [RUN_FAILED] = "failed", [RUN_DIVERGED] = "diverged"};
    static const char *const phases[BOARD_PHASES] = {
        [PHASE_STARTING] = "starting", [PHASE_STEPPING] = "training", [PHASE_EVALUATING] = "evaluating",
        [PHASE_SAMPLING] = "sampling", [PHASE_SAVING] = "saving",     [PHASE_ENDED] = "stopping"};
    if (s->ended) return ends[s->end];
    if (s->stopping) return "stopping";
    int local = 0;  // the first one that is left: others may have been put out
    while (local + 1 < s->locals && s->rank[local].phase == PHASE_ENDED) local++;
    return s->ready && s->locals > 0 ? phases[s->rank[local].phase] : "starting";
}

size_t status_json_room(int locals) { return 12288 + (size_t)locals * 1536 + WATCH_ALARMS * (6 * ALARM_TEXT + 128); }

// NaN for what a step has not said yet.
static double known(const watch_state *s, double x) { return s->has_news && s->news.step > 0 ? x : NAN; }
static int64_t since(const watch_state *s, int64_t n) { return s->has_news && n > 0 ? n : -1; }

static void put_time(text *t, const char *key, double x) {
    text_real(t, key, isfinite(x) ? round(1e3 * x) / 1e3 : x, 14);
}

static void put_run(text *t, const watch_state *s) {
    text_put(t, "{\"t\":\"status\"");
    put_time(t, "time", s->time);
    put_time(t, "began", s->began);
    text_real(t, "every_s", s->every_s, 6);
    text_whole(t, "pid", s->supervisor);
    text_word(t, "build", s->build);
    text_put(t, ",\n ");
    text_word(t, "run", s->run);
    text_word(t, "dir", s->dir);
    text_whole(t, "node", s->node);
    text_whole(t, "nodes", s->nodes);
    text_word(t, "host", s->host);
    text_whole(t, "world", s->world);
    text_put(t, ",\n ");
    text_word(t, "state", status_word(s));
}

// Of named sets, as "code.loss".
static void put_sets(text *t, const watch_state *s) {
    const board_news *n = &s->news;
    if (!s->has_news || !n->eval_step || !n->figures) return;
    text_key(t, "eval_sets");
    text_put(t, "{");
    for (int i = 0; i < n->figures && i < BOARD_FIGURES; i++) text_real(t, n->figure[i], n->figure_value[i], 9);
    text_put(t, "}");
}

static void put_steps(text *t, const watch_state *s) {
    const board_news *n = &s->news;
    text_whole(t, "step", s->step);
    text_whole(t, "steps", since(s, n->steps));
    text_whole(t, "began_step", s->has_news ? n->began_step : -1);
    put_time(t, "step_time", known(s, n->step_time));
    text_real(t, "p50_ms", n->p50_ns > 0 ? known(s, 1e-6 * (double)n->p50_ns) : NAN, 6);
    text_real(t, "p99_ms", n->p99_ns > 0 ? known(s, 1e-6 * (double)n->p99_ns) : NAN, 6);
    text_put(t, ",\n ");
    text_real(t, "loss", known(s, n->loss), 9);
    text_real(t, "grad_norm", known(s, n->grad_norm), 9);
    text_real(t, "lr", known(s, n->lr), 9);
    text_real(t, "loss_scale", known(s, n->loss_scale), 9);
    text_word(t, "unit", s->has_news ? n->unit : NULL);
    text_whole(t, "tokens", s->has_news ? n->units : -1);
    text_real(t, "tokens_per_s", known(s, n->units_per_s), 6);
    text_real(t, "mfu", known(s, n->mfu), 4);
    text_whole(t, "skipped", s->has_news ? n->skipped : -1);
    if (s->has_news && n->rows > 0) text_whole(t, "rows", n->rows);
    if (s->has_news && n->cold_rows > 0) text_whole(t, "cold_rows", n->cold_rows);
    if (s->has_news && !isnan(n->stale)) {
        text_real(t, "stale", n->stale, 4);
        text_real(t, "late", n->late, 9);
        text_real(t, "waiting", n->waiting, 4);
    }
    text_whole(t, "heals", s->heals);
    text_whole(t, "evicted", s->evicted);
    text_whole(t, "rollbacks", s->rollbacks);
    text_whole(t, "bad_steps", s->bad_steps);
    text_put(t, ",\n ");
    text_real(t, "eval_loss", n->eval_step > 0 ? known(s, n->eval_loss) : NAN, 9);
    text_whole(t, "eval_step", since(s, n->eval_step));
#define PUT_FIGURE(name, help) \
    if (n->eval_step > 0 && isfinite(n->eval_##name)) text_real(t, "eval_" #name, known(s, n->eval_##name), 9);
    BOARD_MEASURES(PUT_FIGURE)
#undef PUT_FIGURE
    put_sets(t, s);
    text_real(t, "best", n->eval_step > 0 ? known(s, n->best) : NAN, 9);
    text_whole(t, "best_step", since(s, n->best_step));
    text_whole(t, "checkpoint_step", since(s, n->checkpoint_step));
    put_time(t, "checkpoint_time", n->checkpoint_step > 0 && s->has_news ? n->checkpoint_time : NAN);
    text_word(t, "checkpoint_hash", n->checkpoint_step > 0 && s->has_news ? n->hash : NULL);
}

static void put_device(text *t, const watch_rank *r) {
    char why[LIMITED_TEXT];
    bool unknown = r->sensors.limited == LIMITED_UNKNOWN;
    text_whole(t, "device_used", r->device_used);
    text_whole(t, "device_total", r->device_total);
    text_whole(t, "device_planned", r->device_planned);
    text_real(t, "watts", r->sensors.watts, 5);
    text_real(t, "median_watts", r->median_watts, 5);
    text_real(t, "limit_watts", r->limit_watts, 5);
    text_real(t, "celsius", r->sensors.celsius, 4);
    text_real(t, "mhz", r->sensors.mhz, 5);
    text_real(t, "utilisation", r->utilisation, 3);
    text_word(t, "limited", unknown ? NULL : device_limited_text(r->sensors.limited, why));
}

static void put_rank(text *t, const watch_rank *r) {
    char process[2] = {r->process, 0};
    text_put(t, "{\"rank\":%d", r->place.rank);
    text_word(t, "host", r->place.host);
    text_whole(t, "local", r->place.local);
    text_word(t, "role", r->place.role + strspn(r->place.role, ", "));
    text_word(t, "device", r->device);
    text_word(t, "uuid", r->uuid[0] ? r->uuid : NULL);
    text_whole(t, "pid", r->pid > 0 ? r->pid : -1);
    text_word(t, "process", r->process ? process : NULL);
    text_word(t, "phase", board_phase_name(r->phase));
    text_word(t, "doing", r->what);
    text_whole(t, "number", r->number);
    text_whole(t, "step", r->step);
    text_whole(t, "lanes", r->lanes);
    text_real(t, "doing_s", r->what_s, 6);
    text_real(t, "phase_s", r->phase_s, 6);
    text_word(t, "beside", r->beside);
    text_whole(t, "beside_number", r->beside_number);
    text_real(t, "beside_s", r->beside ? r->beside_s : NAN, 6);
    text_real(t, "cpu", r->cpu, 4);
    text_whole(t, "resident", r->resident);
    put_device(t, r);
    text_real(t, "low_watts_s", r->low_watts_s, 6);
    text_real(t, "read_p50_ms", r->read_p50_ms, 5);
    text_real(t, "read_p99_ms", r->read_p99_ms, 5);
    text_real(t, "read_bytes_per_s", r->read_bytes_per_s, 6);
    text_whole(t, "read_retries", r->read_retries);
    text_put(t, "}");
}

static void put_disk(text *t, const watch_state *s) {
    text_put(t, ",\n \"disk\":{");
    text_whole(t, "free", s->disk_free);
    text_whole(t, "total", s->disk_total);
    text_real(t, "free_per_s", s->disk_free_per_s, 6);
    text_real(t, "read_per_s", s->disk_read_per_s, 6);
    text_real(t, "written_per_s", s->disk_written_per_s, 6);
    text_put(t, "}");
}

static void put_alarm(text *t, const watch_alarm *a) {
    text_put(t, "{");
    text_word(t, "kind", alarm_event(a->kind, true));
    text_whole(t, "rank", a->rank);
    put_time(t, "since", a->since);
    text_word(t, "text", a->text);
    text_put(t, "}");
}

size_t status_json(const watch_state *s, char *dst, size_t room) {
    text t = {.at = dst, .room = room};
    put_run(&t, s);
    put_steps(&t, s);
    text_put(&t, ",\n \"ranks\":[");
    for (int i = 0; i < s->locals; i++) {
        text_put(&t, i ? ",\n  " : "\n  ");
        put_rank(&t, &s->rank[i]);
    }
    text_put(&t, "]");
    put_disk(&t, s);
    text_put(&t, ",\n \"alarms\":[");
    for (int i = 0; i < s->alarms; i++) {
        text_put(&t, i ? ",\n  " : "\n  ");
        put_alarm(&t, &s->alarm[i]);
    }
    text_put(&t, "]}\n");
    return text_bytes(&t);
}
