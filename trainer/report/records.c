// trainer/report/records.c: what a line of each file means. A line counts as a whole or not at all: steps, of which
// there are a million, are read once into a struct that is then added; the others are checked first.
#include "comm/groups.h"
#include "comm/ordered.h"
#include "trainer/report/runlog.h"
#include "trainer/report/scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// --- log.jsonl: steps ------------------------------------------------------------------------------------------------

typedef struct step_line {
    double field[STEP_CURVES], step, time, units, rate;
    scan_text hash, unit;  // unit: of a rate that is not the known one, "samples_per_s"
} step_line;

typedef struct name {
    const char *text;
    size_t n;
} name;

static const name fields[STEP_CURVES] = {
#define CURVE_KEY(name, curve, board, member, key, ...) IF_##curve({key, sizeof key - 1}, )
    STEP_FIELDS(CURVE_KEY)
#undef CURVE_KEY
};

// The keys of a log come in one order: the search begins after the one before.
static int field_of(const scan_text *key, int *next) {
    for (int k = 0; k < STEP_CURVES; k++) {
        int i = *next + k < STEP_CURVES ? *next + k : *next + k - STEP_CURVES;
        if (fields[i].n == key->n && memcmp(fields[i].text, key->at, key->n) == 0) return *next = i + 1, i;
    }
    return -1;
}

static bool ends_with(const scan_text *t, const char *end) {
    size_t n = strlen(end);
    return t->n > n && memcmp(t->at + t->n - n, end, n) == 0;
}

static bool read_step(const runlog *r, const char *line, size_t n, step_line *x) {
    scan s = scan_of(line, n);
    scan_text key;
    int next = 0, field;
    *x = (step_line){.step = NAN, .time = NAN, .units = NAN, .rate = NAN};
    for (int i = 0; i < STEP_CURVES; i++) x->field[i] = NAN;
    for (bool more = scan_begin(&s, '{'); more && scan_key(&s, &key); more = scan_more(&s, '}')) {
        if ((field = field_of(&key, &next)) >= 0) x->field[field] = scan_real(&s);
        else if (scan_is(&key, "step")) x->step = scan_real(&s);
        else if (scan_is(&key, r->units_key)) x->units = scan_real(&s);
        else if (scan_is(&key, r->rate_key)) x->rate = scan_real(&s);
        else if (scan_is(&key, "time")) x->time = scan_real(&s);
        else if (scan_is(&key, "hash")) x->hash = scan_string(&s);
        else {
            if (ends_with(&key, "s_per_s")) x->unit = (scan_text){key.at, key.n - strlen("s_per_s")};
            scan_skip(&s);
        }
    }
    return scan_end(&s) && x->step >= 1 && x->step <= 1e15;
}

// What is counted has its name in two keys. It is learned from the first record. It becomes a part of titles, so it
// must be a word.
static bool learn_unit(runlog *r, const scan_text *unit) {
    if (!unit->n || unit->n >= sizeof r->unit || r->records) return false;
    for (size_t i = 0; i < unit->n; i++)
        if (!((unit->at[i] >= 'a' && unit->at[i] <= 'z') || unit->at[i] == '_')) return false;
    snprintf(r->unit, sizeof r->unit, "%.*s", (int)unit->n, unit->at);
    snprintf(r->units_key, sizeof r->units_key, "%ss", r->unit);
    snprintf(r->rate_key, sizeof r->rate_key, "%ss_per_s", r->unit);
    return true;
}

static int bucket_at(runlog *r, double step) {
    int merged, i = sheet_find(&r->steps, step, &merged);
    while (merged--) spread_merge(&r->rate), spread_merge(&r->mfu);
    return i;
}

static void keep_hash(runlog *r, scan_text hash, int64_t step) {
    if (!hash.n || hash.n >= sizeof r->hash) return;
    scan_plain(r->hash, sizeof r->hash, hash);
    r->hash_step = step;
}

// Seconds since the first step began: by the clock where the log has it, else as the steps add up.
static double elapsed(runlog *r, const step_line *x, double took) {
    if (isnan(r->first_time) && !isnan(x->time) && r->records == 0) r->first_time = x->time - took;
    if (!isnan(x->time)) r->measured = true, r->last_time = x->time;
    return !isnan(x->time) && !isnan(r->first_time) ? x->time - r->first_time : r->trained_s;
}

static void add_step(runlog *r, const step_line *x) {
    const double *f = x->field;
    int64_t step = (int64_t)x->step;
    int i = bucket_at(r, x->step), e = sheet_find(&r->early, x->step, NULL);
    double took = isfinite(f[CURVE_MS]) ? 1e-3 * f[CURVE_MS] * (r->records ? x->step - (double)r->last_step : 1) : 0;
    r->trained_s += took;
    double since = elapsed(r, x, took);
    for (int k = 0; k < STEP_CURVES; k++) sheet_add(&r->steps, k, i, f[k]);
    sheet_add(&r->steps, CURVE_UNITS, i, x->units);
    sheet_add(&r->steps, CURVE_RATE, i, x->rate);
    sheet_add(&r->steps, CURVE_ELAPSED, i, since);
    spread_add(&r->rate, i, x->rate);
    spread_add(&r->mfu, i, f[CURVE_MFU]);
    sheet_add(&r->early, EARLY_LOSS, e, f[CURVE_LOSS]);
    sheet_add(&r->early, EARLY_UNITS, e, x->units);
    if (!r->records++) r->first_step = step;
    r->last_step = step;
    r->skipped += f[CURVE_SKIPPED] > 0;
    if (isfinite(f[CURVE_LOSS]) && !(f[CURVE_LOSS] >= r->lowest_loss))
        r->lowest_loss = f[CURVE_LOSS], r->lowest_step = step;
    r->loss = f[CURVE_LOSS];
    if (isfinite(x->units)) r->units = x->units;
    keep_hash(r, x->hash, step);
}

static bool take_step(runlog *r, const char *line, size_t n, bool *back) {
    step_line x;
    if (!read_step(r, line, n, &x)) return false;
    if (x.unit.n && isnan(x.rate) && learn_unit(r, &x.unit) && !read_step(r, line, n, &x)) return false;
    *back = r->records && x.step <= (double)r->last_step;
    if (!*back) add_step(r, &x);
    return true;
}

// --- log.jsonl: the others -------------------------------------------------------------------------------------------

// Which of the named sets; -1: it is no name, or there are too many.
static int set_at(runlog *r, const char *name, size_t n) {
    if (!n || n >= SET_NAME) return -1;
    for (int k = 0; k < r->sets; k++)
        if (strlen(r->set[k]) == n && memcmp(r->set[k], name, n) == 0) return k;
    if (r->sets == SETS_MOST) return -1;
    snprintf(r->set[r->sets], SET_NAME, "%.*s", (int)n, name);
    return r->sets++;
}

// "code.loss" of a named set; loss[k]: of set k.
static void take_of_set(runlog *r, const scan_text *key, double x, double loss[SETS_MOST]) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const char *dot = memchr(key->at, '.', key->n), *end = key->at + key->n;
    for (const char *at = key->at; dot && at < end; at++)
        if (at != dot && (!*at || !strchr(letters, *at))) return;
    if (!dot || end - dot < 2 || end - dot > RUNLOG_WORD) return;
    int k = set_at(r, key->at, (size_t)(dot - key->at)), i = 0;
    if (k < 0) return;
    if (scan_is(&(scan_text){dot + 1, (size_t)(end - dot - 1)}, "loss")) loss[k] = x;
    runlog_figure now = {.value = x};
    snprintf(now.set, sizeof now.set, "%s", r->set[k]);
    snprintf(now.name, sizeof now.name, "%.*s", (int)(end - dot - 1), dot + 1);
    while (i < r->figures && (strcmp(r->figure[i].set, now.set) != 0 || strcmp(r->figure[i].name, now.name) != 0)) i++;
    if (i < RUNLOG_FIGURES) r->figure[i] = now;
    if (i == r->figures && i < RUNLOG_FIGURES) r->figures++;
}

static void take_eval(runlog *r, scan s) {
    enum { NAMED = CURVE_RMSE - CURVE_ACCURACY + 1 };
    static const char *const named[NAMED] = {"accuracy", "bits_per_byte", "acc", "acc_norm", "rmse"};
    double value[NAMED] = {NAN, NAN, NAN, NAN, NAN}, step = NAN, loss = NAN, best = NAN, best_step = NAN;
    double of_set[SETS_MOST];
    scan_text key, best_of = {"", 0};
    for (int k = 0; k < SETS_MOST; k++) of_set[k] = NAN;
    for (bool more = scan_begin(&s, '{'); more && scan_key(&s, &key); more = scan_more(&s, '}')) {
        if (scan_is(&key, "step")) step = scan_real(&s);
        else if (scan_is(&key, "loss")) loss = scan_real(&s);
        else if (scan_is(&key, "best")) best = scan_real(&s);
        else if (scan_is(&key, "best_step")) best_step = scan_real(&s);
        else if (scan_is(&key, "best_of")) best_of = scan_string(&s);
        else {
            double x = scan_real(&s);
            for (int k = 0; k < NAMED; k++)
                if (scan_is(&key, named[k])) value[k] = x;
            take_of_set(r, &key, x, of_set);
        }
    }
    int i = step >= 0 ? bucket_at(r, step) : -1;
    if (i < 0) return;
    sheet_add(&r->steps, CURVE_EVAL, i, loss);
    sheet_add(&r->early, EARLY_EVAL, sheet_find(&r->early, step, NULL), loss);
    for (int k = 0; k < NAMED; k++) sheet_add(&r->steps, CURVE_ACCURACY + k, i, value[k]);
    for (int k = 0; k < SETS_MOST; k++) sheet_add(&r->steps, CURVE_SET + k, i, of_set[k]);
    scan_plain(r->best_of, sizeof r->best_of, best_of);
    if (!isfinite(loss) && !best_of.n) return;
    r->evals++, r->eval_loss = loss;
    if (isfinite(best) && best_step >= 0 && best_step <= 1e15) r->best = best, r->best_step = (int64_t)best_step;
    else if (!(loss >= r->best)) r->best = loss, r->best_step = (int64_t)step;
}

static void take_checkpoint(runlog *r, scan s) {
    double step = NAN;
    scan_text key, hash = {"", 0};
    for (bool more = scan_begin(&s, '{'); more && scan_key(&s, &key); more = scan_more(&s, '}')) {
        if (scan_is(&key, "step")) step = scan_real(&s);
        else if (scan_is(&key, "hash")) hash = scan_string(&s);
        else scan_skip(&s);
    }
    if (!(step >= 0 && step <= 1e15)) return;
    keep_hash(r, hash, (int64_t)step);
}

static void take_sample(runlog *r, scan s) {
    runlog_sample *to = &r->sample[r->samples % RUNLOG_SAMPLES];
    scan_text key;
    *to = (runlog_sample){0};
    for (bool more = scan_begin(&s, '{'); more && scan_key(&s, &key); more = scan_more(&s, '}')) {
        if (scan_is(&key, "step")) {
            double step = scan_real(&s);
            to->step = step >= 0 && step <= 1e15 ? (int64_t)step : 0;
        } else if (scan_is(&key, "prompt")) scan_plain(to->prompt, sizeof to->prompt, scan_string(&s));
        else if (scan_is(&key, "text")) scan_plain(to->text, sizeof to->text, scan_string(&s));
        else scan_skip(&s);
    }
    r->samples++;
}

// The members of one device that are curves: `named` into `curve` of a sheet.
typedef struct device_field {
    const char *key;
    int curve;
    bool most;  // only the most counts
} device_field;

static void take_devices(sheet *to, int bucket, const device_field *f, int count, scan *s, int *ranks) {
    scan_text key;
    if (!scan_opens(s, '[')) return;
    for (bool more = scan_begin(s, '['); more; more = scan_more(s, ']')) {
        if (!scan_opens(s, '{')) continue;
        for (bool inner = scan_begin(s, '{'); inner && scan_key(s, &key); inner = scan_more(s, '}')) {
            double x = scan_real(s);
            if (scan_is(&key, "rank") && x >= *ranks && x < 1e6) *ranks = (int)x + 1;
            for (int k = 0; k < count; k++) {
                if (!scan_is(&key, f[k].key)) continue;
                if (f[k].most) sheet_widen(to, f[k].curve, bucket, x);
                else sheet_add(to, f[k].curve, bucket, x);
            }
        }
    }
}

// The value of one member, wherever it stands.
static double member(scan s, const char *name) {
    scan_text key;
    double x = NAN;
    for (bool more = scan_begin(&s, '{'); more && scan_key(&s, &key); more = scan_more(&s, '}'))
        if (scan_is(&key, name)) x = scan_real(&s);
        else scan_skip(&s);
    return x;
}

static void take_power(runlog *r, scan s) {
    static const device_field of[] = {
        {"watts", CURVE_WATTS, false}, {"celsius", CURVE_CELSIUS, false}, {"mhz", CURVE_MHZ, false}};
    double step = member(s, "step");
    int i = step >= 0 ? bucket_at(r, step) : -1;
    scan_text key;
    for (bool more = scan_begin(&s, '{'); more && scan_key(&s, &key); more = scan_more(&s, '}')) {
        if (scan_is(&key, "devices")) take_devices(&r->steps, i, of, 3, &s, &r->world);
        else if (key.n > 11 && memcmp(key.at, "joules_per_", 11) == 0)
            sheet_add(&r->steps, CURVE_JOULES, i, scan_real(&s));
        else scan_skip(&s);
    }
}

// --- ranks -----------------------------------------------------------------------------------------------------------

static int whole_number(const runlog *r, const char *name, int least) {
    double v = runlog_number(r, name);
    return v >= least && v <= 1e6 ? (int)v : least;
}

// The layout of `world` ranks, by the settings. data 0: no such layout has as many ranks.
static grid grid_here(const runlog *r, int world) {
    grid g = {.tensor = whole_number(r, "parallel.tensor", 1),
              .pipeline = whole_number(r, "parallel.pipeline", 1),
              .context = whole_number(r, "parallel.context", 1)};
    int64_t model = (int64_t)g.tensor * g.pipeline * g.context;  // ranks that hold the model once
    g.data = world % model == 0 ? (int)(world / model) : 0;
    return g;
}

// Lanes that a rank runs, as the record says; NAN: none. Where it says nothing, in turns from ZeRO stage 2 on, else a
// range. Ranks that share layers, positions or a pipeline run the same lanes.
static double lanes_of(const runlog *r, const grid *g, int rank) {
    if (rank < r->lane_count) return r->rank_lanes[rank] > 0 ? r->rank_lanes[rank] : NAN;
    if (g->data < 1) return 1;
    bool turns = whole_number(r, "parallel.zero", 0) >= 2;
    int64_t n = lane_deal_of(whole_number(r, "batch.lanes", 1), g->data, grid_at(g, rank).data, turns).count;
    return n > 0 ? (double)n : 1;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void heat_rows(heat *h) {
    for (int row = 0; row < HEAT_ROWS / 2; row++)
        for (int c = 0; c < HEAT_COLUMNS; c++) {
            h->sum[row][c] = h->sum[2 * row][c] + h->sum[2 * row + 1][c];
            h->n[row][c] = h->n[2 * row][c] + h->n[2 * row + 1][c];
        }
    memset(h->sum[HEAT_ROWS / 2], 0, sizeof h->sum / 2);
    memset(h->n[HEAT_ROWS / 2], 0, sizeof h->n / 2);
    h->ranks *= 2, h->rows = (h->rows + 1) / 2;
}

static void heat_columns(heat *h) {
    for (int row = 0; row < HEAT_ROWS; row++)
        for (int c = 0; c < HEAT_COLUMNS; c++) {
            bool kept = c < HEAT_COLUMNS / 2;
            h->sum[row][c] = kept ? h->sum[row][2 * c] + h->sum[row][2 * c + 1] : 0;
            h->n[row][c] = kept ? h->n[row][2 * c] + h->n[row][2 * c + 1] : 0;
        }
    h->width *= 2, h->columns = (h->columns + 1) / 2;
}

static void heat_add(heat *h, int rank, double step, double ratio) {
    if (!isfinite(ratio) || !(step >= 1)) return;
    while (rank >= h->ranks * HEAT_ROWS) heat_rows(h);
    while (step - 1 >= h->width * HEAT_COLUMNS) heat_columns(h);
    int row = rank / h->ranks, c = (int)((step - 1) / h->width);
    if (row >= h->rows) h->rows = row + 1;
    if (c >= h->columns) h->columns = c + 1;
    h->sum[row][c] += (float)ratio;
    h->n[row][c]++;
}

// Ranks of one stage of a pipeline do the same work, each for as many lanes as it has.
void runlog_flush_ranks(runlog *r) {
    int world = r->rank_count;
    double stages = runlog_number(r, "parallel.pipeline"),
           *sorted = world ? malloc((size_t)world * sizeof *sorted) : NULL;
    int each = stages >= 1 && stages <= world && world % (int)stages == 0 ? world / (int)stages : world;
    r->rank_count = 0;
    if (!sorted) return;
    if (world > r->world) r->world = world;
    const grid g = grid_here(r, world);
    for (int rank = 0; rank < world; rank++) r->rank_ms[rank] /= lanes_of(r, &g, rank);
    r->lane_count = 0;
    for (int first = 0; first < world; first += each) {
        int n = 0;
        for (int rank = first; rank < first + each; rank++)
            if (isfinite(r->rank_ms[rank])) sorted[n++] = r->rank_ms[rank];
        qsort(sorted, (size_t)n, sizeof *sorted, by_value);
        double median = n ? sorted[n / 2] : 0;
        for (int rank = first; median > 0 && rank < first + each; rank++)
            heat_add(&r->heat, rank, (double)r->rank_step, r->rank_ms[rank] / median);
    }
    free(sorted);
}

// An array of a ranks record: its mean, and its values into ms[first..], NULL: nowhere.
static double take_array(scan *s, double *ms, int first, int *count) {
    double sum = 0;
    int n = 0, at = first;
    if (!scan_opens(s, '[')) return NAN;
    for (bool more = scan_begin(s, '['); more; more = scan_more(s, ']'), at++) {
        double x = scan_real(s);
        if (ms && at < RUNLOG_RANKS) ms[at] = x, *count = at + 1;
        if (isfinite(x)) sum += x, n++;
    }
    return n ? sum / n : NAN;
}

static void take_ranks(runlog *r, scan s) {
    double step = member(s, "step"), first = member(s, "first"), before = NAN, after = NAN;
    if (!(step >= 1 && step <= 1e15) || !(isnan(first) || (first >= 0 && first < RUNLOG_RANKS))) return;
    int from = isnan(first) ? 0 : (int)first, i = bucket_at(r, step);
    if ((int64_t)step != r->rank_step || from != r->rank_count) runlog_flush_ranks(r);
    if (from != r->rank_count) return;  // its beginning is missing
    r->rank_step = (int64_t)step;
    scan_text key;
    for (bool more = scan_begin(&s, '{'); more && scan_key(&s, &key); more = scan_more(&s, '}')) {
        if (scan_is(&key, "compute_ms"))
            sheet_add(&r->steps, CURVE_R_COMPUTE, i, take_array(&s, r->rank_ms, from, &r->rank_count));
        else if (scan_is(&key, "lanes")) take_array(&s, r->rank_lanes, from, &r->lane_count);
        else if (scan_is(&key, "data_ms")) sheet_add(&r->steps, CURVE_R_DATA, i, take_array(&s, NULL, 0, NULL));
        else if (scan_is(&key, "wait_ms")) sheet_add(&r->steps, CURVE_R_WAIT, i, take_array(&s, NULL, 0, NULL));
        else if (scan_is(&key, "before_ms")) before = take_array(&s, NULL, 0, NULL);
        else if (scan_is(&key, "after_ms")) after = take_array(&s, NULL, 0, NULL);
        else if (scan_is(&key, "tensor_ms")) sheet_add(&r->steps, CURVE_R_TENSOR, i, take_array(&s, NULL, 0, NULL));
        else scan_skip(&s);
    }
    if (isfinite(before) || isfinite(after))
        sheet_add(&r->steps, CURVE_R_STAGES, i, (isfinite(before) ? before : 0) + (isfinite(after) ? after : 0));
}

// --- which record it is ----------------------------------------------------------------------------------------------

static bool is_whole(scan s) {
    scan_text key;
    for (bool more = scan_begin(&s, '{'); more && scan_key(&s, &key); more = scan_more(&s, '}')) scan_skip(&s);
    return scan_end(&s);
}

static scan_text kind_of(scan s) {
    scan_text key, kind = {"", 0};
    for (bool more = scan_begin(&s, '{'); more && scan_key(&s, &key); more = scan_more(&s, '}')) {
        if (scan_is(&key, "t")) return scan_string(&s);
        scan_skip(&s);
    }
    return kind;
}

bool runlog_take_log(runlog *r, const char *line, size_t n, bool *back) {
    static const struct {
        const char *kind;
        void (*take)(runlog *r, scan s);
    } others[] = {{"eval", take_eval},
                  {"checkpoint", take_checkpoint},
                  {"sample", take_sample},
                  {"power", take_power},
                  {"ranks", take_ranks}};
    scan s = scan_of(line, n);
    scan_text kind = kind_of(s);
    *back = false;
    if (scan_is(&kind, "step")) return take_step(r, line, n, back);
    if (!kind.n || !is_whole(s)) return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (scan_is(&kind, others[i].kind)) others[i].take(r, s);
    return true;  // a kind that is not known is another version's
}

void runlog_forget(runlog *r) {
    sheet_clear(&r->steps, 1, 1);
    sheet_clear(&r->early, 1, 1);
    spread_clear(&r->rate);
    spread_clear(&r->mfu);
    r->heat = (heat){.ranks = 1, .width = 1};
    r->records = r->first_step = r->last_step = r->skipped = r->lowest_step = 0;
    r->first_time = r->last_time = NAN;
    r->trained_s = 0;
    r->loss = r->lowest_loss = r->units = r->eval_loss = r->best = NAN;
    r->best_step = r->evals = r->hash_step = r->samples = 0;
    r->sets = r->figures = 0;
    r->hash[0] = 0;
    r->measured = false;
    r->rank_step = r->rank_count = 0;
    learn_unit(r, &(scan_text){"token", 5});
}

// --- events.jsonl ----------------------------------------------------------------------------------------------------

// "2026-11-24T12:00:00Z"; NaN: it is none.
static double time_of(const char *at) {
    struct tm t = {0};
    const char *end = strptime(at, "%Y-%m-%dT%H:%M:%S", &t);
    return end && *end == 'Z' ? (double)timegm(&t) : NAN;
}

static void add_mark(runlog *r, const runlog_event *e) {
    if (r->marks == RUNLOG_MARKS) {
        for (int i = 0; i < RUNLOG_MARKS / 2; i++) r->mark[i] = r->mark[2 * i + 1];
        r->marks = RUNLOG_MARKS / 2;
    }
    runlog_mark *m = &r->mark[r->marks++];
    m->step = e->step, m->time = e->time;
    memcpy(m->kind, e->kind, sizeof m->kind);
}

bool runlog_take_event(runlog *r, const char *line, size_t n) {
    runlog_event e = {.time = NAN};
    char at[40] = "";
    scan s = scan_of(line, n);
    scan_text key;
    for (bool more = scan_begin(&s, '{'); more && scan_key(&s, &key); more = scan_more(&s, '}')) {
        if (scan_is(&key, "step")) {
            double step = scan_real(&s);
            e.step = step >= 0 && step <= 1e15 ? (int64_t)step : 0;
        } else if (scan_is(&key, "at")) scan_plain(at, sizeof at, scan_string(&s));
        else if (scan_is(&key, "kind")) scan_plain(e.kind, sizeof e.kind, scan_string(&s));
        else if (scan_is(&key, "text")) scan_plain(e.text, sizeof e.text, scan_string(&s));
        else scan_skip(&s);
    }
    if (!scan_end(&s) || !e.kind[0]) return false;
    e.time = time_of(at);
    if (strcmp(e.kind, "forked") == 0)
        snprintf(r->forked, sizeof r->forked, "%s", e.text + (strncmp(e.text, "from ", 5) == 0 ? 5 : 0));
    r->event[r->events_seen++ % RUNLOG_EVENTS] = e;
    add_mark(r, &e);
    return true;
}

// --- machine.jsonl, status.json --------------------------------------------------------------------------------------

bool runlog_take_machine(runlog *r, const char *line, size_t n) {
    static const device_field of[] = {
        {"watts", MACHINE_WATTS, false},       {"watts_max", MACHINE_WATTS, true},
        {"celsius", MACHINE_CELSIUS, false},   {"mhz", MACHINE_MHZ, false},
        {"utilisation", MACHINE_BUSY, false},  {"starved", MACHINE_STARVED, false},
        {"resident", MACHINE_RESIDENT, false}, {"device_used", MACHINE_DEVICE_USED, false}};
    static const device_field own[] = {{"disk_free", MACHINE_DISK_FREE, false},
                                       {"disk_read_per_s", MACHINE_READ, false},
                                       {"disk_written_per_s", MACHINE_WRITTEN, false},
                                       {"cpu", MACHINE_CPU, false}};
    scan s = scan_of(line, n);
    scan_text key;
    if (!is_whole(s)) return false;
    double time = member(s, "time");
    if (!(time >= 0 && time <= 1e12)) return false;
    if (isnan(r->seconds.origin)) sheet_clear(&r->seconds, floor(time), 1);
    int i = sheet_find(&r->seconds, time, NULL);
    for (bool more = scan_begin(&s, '{'); more && scan_key(&s, &key); more = scan_more(&s, '}')) {
        if (scan_is(&key, "ranks")) {
            take_devices(&r->seconds, i, of, sizeof of / sizeof *of, &s, &r->world);
            continue;
        }
        double x = scan_real(&s);
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            if (scan_is(&key, own[k].key)) sheet_add(&r->seconds, own[k].curve, i, x);
    }
    return true;
}

static void take_rank(runlog *r, scan *s) {
    runlog_device d = {.rank = r->devices};
    scan_text key;
    for (bool more = scan_begin(s, '{'); more && scan_key(s, &key); more = scan_more(s, '}')) {
        if (scan_is(&key, "rank")) {
            double x = scan_real(s);
            d.rank = x >= 0 && x < 1e6 ? (int)x : d.rank;
        } else if (scan_is(&key, "host")) scan_plain(d.host, sizeof d.host, scan_string(s));
        else if (scan_is(&key, "device")) scan_plain(d.device, sizeof d.device, scan_string(s));
        else scan_skip(s);
    }
    if (r->devices < RUNLOG_DEVICES) r->device[r->devices++] = d;
}

static void take_ranks_of(runlog *r, scan *s) {
    if (!scan_opens(s, '[')) return;
    for (bool more = scan_begin(s, '['); more; more = scan_more(s, ']'))
        if (scan_opens(s, '{')) take_rank(r, s);
}

static void take_alarms(runlog *r, scan *s) {
    scan_text key;
    if (!scan_opens(s, '[')) return;
    for (bool more = scan_begin(s, '['); more; more = scan_more(s, ']')) {
        char text[RUNLOG_EVENT] = "";
        if (!scan_opens(s, '{')) continue;
        for (bool on = scan_begin(s, '{'); on && scan_key(s, &key); on = scan_more(s, '}')) {
            if (scan_is(&key, "text")) scan_plain(text, sizeof text, scan_string(s));
            else scan_skip(s);
        }
        if (*text && r->alarms < RUNLOG_ALARMS) memcpy(r->alarm[r->alarms++], text, sizeof text);
    }
}

void runlog_take_status(runlog *r, const char *text, size_t n) {
    scan s = scan_of(text, n);
    scan_text key;
    if (!is_whole(s)) return;
    r->devices = r->alarms = 0;
    for (bool more = scan_begin(&s, '{'); more && scan_key(&s, &key); more = scan_more(&s, '}')) {
        if (scan_is(&key, "state")) scan_plain(r->state, sizeof r->state, scan_string(&s));
        else if (scan_is(&key, "host")) scan_plain(r->host, sizeof r->host, scan_string(&s));
        else if (scan_is(&key, "world")) {
            double x = scan_real(&s);
            if (x >= 1 && x < 1e6 && x > r->world) r->world = (int)x;
        } else if (scan_is(&key, "ranks")) take_ranks_of(r, &s);
        else if (scan_is(&key, "alarms")) take_alarms(r, &s);
        else scan_skip(&s);
    }
}
