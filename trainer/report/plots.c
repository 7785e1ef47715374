// trainer/report/plots.c: which charts a page has, and what is in them. A chart whose runs have no data for it is left
// out.
//
// One run is drawn as a band from the least to the most of each bucket and a line through the means; several as a line
// each.
#include "trainer/report/plots.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 480, FEWEST = 60, MOST_DOTS = 60 };
static const double STARVED = 0.05;  // the share of time without a processor that is worth a word

// How a curve is drawn: its line alone, with a band around it, or as what is noisy is, with the line smoothed.
typedef enum manner { BARE, BANDED, SMOOTHED } manner;

typedef struct drawing {
    text *h;
    runlog *const *runs;
    int n, drawn;  // drawn: charts so far
} drawing;

static int columns_of(const drawing *b) { return COLUMNS / b->n > FEWEST ? COLUMNS / b->n : FEWEST; }

// A noisy curve needs several values in a column before a band shows anything.
static int band_columns(const drawing *b, const bucket *all) {
    int most = columns_of(b), wanted = (int)(all->n / 3 > most ? most : all->n / 3);
    return wanted < 2 ? 2 : wanted;
}

static void draw(drawing *b, chart *c) {
    c->many = b->n > 1;
    for (int i = 0; i < b->n && c->x == FIGURE_WHOLE; i++) c->x_to = fmax(c->x_to, (double)b->runs[i]->last_step);
    if (chart_draw(c, b->h, b->drawn)) b->drawn++;
}

// Is there a bucket with different values?
static bool spans(const sheet *s, int curve) {
    for (int i = 0; i < s->used; i++)
        if (sheet_bucket(s, curve, i)->most > sheet_bucket(s, curve, i)->least) return true;
    return false;
}

// Of one run: a band, and a line through it. Of several: the line. `smooth`: the curve is noisy.
static void add_curve(drawing *b, chart *c, const sheet *s, int curve, int over, int run, manner how,
                      const char *name) {
    bucket all = sheet_total(s, curve);
    double last = s == &b->runs[run]->steps ? (double)b->runs[run]->last_step : INFINITY;
    if (!all.n) return;
    points line = points_of(s, curve, over, last, columns_of(b));
    bool smooth = how == SMOOTHED && all.n >= FEWEST && line.n >= FEWEST;
    if (smooth) {
        points soft = points_smooth(&line, s->log ? 2 : fmax(1.5, line.n / 75.0));
        points_free(&line);
        line = soft;
    }
    if (b->n == 1 && how != BARE && (smooth || spans(s, curve))) {
        points band = points_of(s, curve, over, last, smooth ? band_columns(b, &all) : columns_of(b));
        chart_add(c, LAYER_BAND, points_around(&band, &line), run, "least to most");
        points_free(&band);
    }
    chart_add(c, LAYER_LINE, line, run, b->n > 1 ? b->runs[run]->name : name);
    if (c->layers && b->n == 1) c->layer[c->layers - 1].solid = true;
}

// --- loss ------------------------------------------------------------------------------------------------------------

static void add_losses(drawing *b, chart *c, bool early, int over) {
    for (int i = 0; i < b->n; i++) {
        const runlog *r = b->runs[i];
        const sheet *s = early ? &r->early : &r->steps;
        bool smooth = sheet_total(s, early ? EARLY_LOSS : CURVE_LOSS).n >= FEWEST;
        add_curve(b, c, s, early ? EARLY_LOSS : CURVE_LOSS, over, i, SMOOTHED,
                  smooth ? "training, smoothed" : "training");
    }
    for (int i = 0; i < b->n; i++) {
        const runlog *r = b->runs[i];
        const sheet *s = early ? &r->early : &r->steps;
        points p = points_of(s, early ? EARLY_EVAL : CURVE_EVAL, over, (double)r->last_step, columns_of(b));
        chart_add(c, p.n > MOST_DOTS ? LAYER_LINE : LAYER_DOTS, p, b->n > 1 ? i : 1, b->n > 1 ? NULL : "validation");
    }
}

static bool same_unit(const drawing *b) {
    for (int i = 1; i < b->n; i++)
        if (strcmp(b->runs[i]->unit, b->runs[0]->unit) != 0) return false;
    return true;
}

static void draw_losses(drawing *b) {
    char of[RUNLOG_WORD + 8];
    const runlog *marks = b->n == 1 ? b->runs[0] : NULL;
    snprintf(of, sizeof of, "%ss", b->runs[0]->unit);
    chart *c = calloc(1, sizeof *c);
    if (!c) return;
    *c = (chart){.title = "Loss",
                 .note = b->n > 1 ? "lines: training, smoothed; dots: validation" : NULL,
                 .x_name = "step",
                 .x = FIGURE_WHOLE,
                 .log_y = true,
                 .wide = true,
                 .marks = marks,
                 .marks_from = NAN};
    add_losses(b, c, false, -1);
    draw(b, c);
    *c = (chart){.title = "Loss by amount of data",
                 .x_name = same_unit(b) ? of : "samples or tokens",
                 .log_y = true,
                 .log_x = true};
    add_losses(b, c, true, EARLY_UNITS);
    draw(b, c);
    *c = (chart){.title = "Loss by time",
                 .note = b->n == 1 && b->runs[0]->measured ? "by the clock" : NULL,
                 .x_name = "time",
                 .x = FIGURE_SECONDS,
                 .log_y = true};
    add_losses(b, c, false, CURVE_ELAPSED);
    draw(b, c);
    free(c);
}

// The losses on named sets, of one run.
static void draw_sets(drawing *b) {
    const runlog *r = b->runs[0];
    if (b->n > 1 || !r->sets) return;
    chart *c = calloc(1, sizeof *c);
    if (!c) return;
    *c = (chart){.title = "Loss on each evaluation set",
                 .x_name = "step",
                 .x = FIGURE_WHOLE,
                 .log_y = true,
                 .marks = r,
                 .marks_from = NAN};
    for (int k = 0; k < r->sets; k++)
        chart_add(c, LAYER_LINE, points_of(&r->steps, CURVE_SET + k, -1, (double)r->last_step, columns_of(b)), k,
                  r->set[k]);
    draw(b, c);
    free(c);
}

// --- simple ones -----------------------------------------------------------------------------------------------------

typedef struct plot {
    const char *title, *note, *name;
    int curve;
    figure y;
    bool of_machine;
    manner how;
    bool from_zero, log_y, stairs;
} plot;

static void draw_plot(drawing *b, const plot *p) {
    chart *c = calloc(1, sizeof *c);
    if (!c) return;
    *c = (chart){.title = p->title,
                 .note = p->note,
                 .x_name = p->of_machine ? "time" : "step",
                 .x = p->of_machine ? FIGURE_SECONDS : FIGURE_WHOLE,
                 .y = p->y,
                 .log_y = p->log_y,
                 .from_zero = p->from_zero,
                 .marks = b->n == 1 ? b->runs[0] : NULL,
                 .marks_from = NAN};
    for (int i = 0; i < b->n; i++) {
        sheet s = p->of_machine ? b->runs[i]->seconds : b->runs[i]->steps;
        if (!p->of_machine) add_curve(b, c, &b->runs[i]->steps, p->curve, -1, i, p->how, p->name);
        else {
            s.origin = 0;  // since the first record
            add_curve(b, c, &s, p->curve, -1, i, p->how, p->name);
            c->marks_from = b->runs[i]->seconds.origin;
        }
        if (c->layers && p->stairs) c->layer[c->layers - 1].kind = LAYER_STAIRS;
    }
    draw(b, c);
    free(c);
}

static bool has(const drawing *b, const plot *p) {
    for (int i = 0; i < b->n; i++)
        if (sheet_total(p->of_machine ? &b->runs[i]->seconds : &b->runs[i]->steps, p->curve).n) return true;
    return false;
}

static double clip_of(const drawing *b) {
    double clip = runlog_number(b->runs[0], "optimizer.grad_clip");
    for (int i = 1; i < b->n; i++)
        if (runlog_number(b->runs[i], "optimizer.grad_clip") != clip) return NAN;
    return clip > 0 ? clip : NAN;
}

static void draw_norm(drawing *b) {
    char label[48], text[FIGURE_TEXT];
    double clip = clip_of(b);
    chart *c = calloc(1, sizeof *c);
    if (!c) return;
    *c = (chart){.title = "Gradient norm",
                 .note = "before clipping",
                 .x_name = "step",
                 .x = FIGURE_WHOLE,
                 .marks = b->n == 1 ? b->runs[0] : NULL,
                 .marks_from = NAN};
    bucket all = {INFINITY, -INFINITY, 0, 0};
    for (int i = 0; i < b->n; i++) {
        bucket one = sheet_total(&b->runs[i]->steps, CURVE_GRAD_NORM);
        add_curve(b, c, &b->runs[i]->steps, CURVE_GRAD_NORM, -1, i, SMOOTHED, one.n >= FEWEST ? "smoothed" : "norm");
        all.least = fminf(all.least, one.least), all.most = fmaxf(all.most, one.most);
    }
    c->log_y = all.least > 0 && all.most > 8 * all.least;
    for (int i = 0; i < b->n; i++) {
        points p = points_of(&b->runs[i]->steps, CURVE_SKIPPED, -1, (double)b->runs[i]->last_step, columns_of(b));
        int n = 0;
        for (int k = 0; k < p.n; k++)
            if (p.at[k].high > 0) p.at[n++] = p.at[k];
        p.n = n;
        chart_add(c, LAYER_TICKS, p, b->n > 1 ? i : 1, "skipped steps");
    }
    snprintf(label, sizeof label, "clipped at %s", figure_text(text, FIGURE_PLAIN, clip, 3));
    chart_rule(c, clip, label);
    draw(b, c);
    free(c);
}

// --- speed -----------------------------------------------------------------------------------------------------------

// Quantiles of what was logged, over columns that have enough of it: 10, 50 and 90 %.
static points quantiles(const runlog *r, const spread *of) {
    int used = (r->steps.used + SPREAD_BUCKETS - 1) / SPREAD_BUCKETS,
        wanted = (int)(r->records / 8 > used ? used : r->records / 8);
    int group = wanted > 0 ? (used + wanted - 1) / wanted : used > 0 ? used : 1;
    points p = {malloc(((size_t)used + 1) * sizeof *p.at), 0};
    for (int from = 0; p.at && from < used; from += group) {
        int end = from + group < used ? from + group : used;
        double width = r->steps.width * SPREAD_BUCKETS, at = 1 + from * width + ((end - from) * width - 1) / 2;
        double m = spread_quantile(of, from, end, 0.5);
        if (isnan(m)) continue;
        if (at > (double)r->last_step) at = (1 + from * width + (double)r->last_step) / 2;
        p.at[p.n++] = (point){at, m, spread_quantile(of, from, end, 0.1), spread_quantile(of, from, end, 0.9)};
    }
    return p;
}

// A curve of speed with its median, and, of one run, the range in which most values lie: single steps are far off
// whenever the machine does something else.
static void draw_spread(drawing *b, chart *c, int curve, size_t spread_at) {
    for (int i = 0; i < b->n; i++) {
        const spread *of = (const spread *)((const char *)b->runs[i] + spread_at);
        if (!sheet_total(&b->runs[i]->steps, curve).n) continue;
        if (b->runs[i]->records < 4 * SPREAD_BUCKETS) {
            add_curve(b, c, &b->runs[i]->steps, curve, -1, i, BARE, "as logged");
            continue;
        }
        if (b->n == 1) chart_add(c, LAYER_BAND, quantiles(b->runs[i], of), i, "10 to 90 %");
        chart_add(c, LAYER_LINE, quantiles(b->runs[i], of), i, b->n > 1 ? b->runs[i]->name : "median");
        if (c->layers && b->n == 1) c->layer[c->layers - 1].solid = true;
    }
    draw(b, c);
}

static void draw_rate(drawing *b) {
    char title[RUNLOG_WORD + 24];
    chart *c = calloc(1, sizeof *c);
    if (!c) return;
    snprintf(title, sizeof title, "%c%ss per second",
             b->runs[0]->unit[0] - ('a' <= b->runs[0]->unit[0] && b->runs[0]->unit[0] <= 'z' ? 32 : 0),
             b->runs[0]->unit + 1);
    *c = (chart){.title = same_unit(b) ? title : "Speed",
                 .note = b->n > 1 ? "medians" : NULL,
                 .x_name = "step",
                 .x = FIGURE_WHOLE,
                 .from_zero = true,
                 .marks = b->n == 1 ? b->runs[0] : NULL,
                 .marks_from = NAN};
    draw_spread(b, c, CURVE_RATE, offsetof(runlog, rate));
    free(c);
}

static void draw_peak(drawing *b) {
    chart *c = calloc(1, sizeof *c);
    if (!c) return;
    *c = (chart){.title = "Share of the peak",
                 .note = b->n > 1 ? "model FLOP utilisation; medians" : "model FLOP utilisation",
                 .x_name = "step",
                 .x = FIGURE_WHOLE,
                 .y = FIGURE_SHARE,
                 .from_zero = true,
                 .marks = b->n == 1 ? b->runs[0] : NULL,
                 .marks_from = NAN};
    draw_spread(b, c, CURVE_MFU, offsetof(runlog, mfu));
    free(c);
}

static double in_column(const points *p, int i) { return i < p->n ? p->at[i].y : 0; }

// A rank that could run, but has no processor, is at its computation all the same: the steps can't tell the two apart,
// the watcher can.
static double starved_share(const runlog *r) {
    bucket all = sheet_total(&r->seconds, MACHINE_STARVED);
    return all.n ? all.sum / (double)all.n : 0;
}

static bool starves(const drawing *b) {
    for (int i = 0; i < b->n; i++)
        if (sheet_total(&b->runs[i]->seconds, MACHINE_STARVED).most >= STARVED) return true;
    return false;
}

static void note_parts(char *dst, size_t room, const runlog *r, bool told) {
    char share[FIGURE_TEXT];
    int n = snprintf(dst, room, told ? "milliseconds, mean over ranks" : "milliseconds");
    if (starved_share(r) < STARVED) return;
    snprintf(dst + n, room - (size_t)n, "; computing waits for a processor for %s of the time",
             figure_text(share, FIGURE_SHARE, starved_share(r), 2));
}

// Areas on each other: computing, waiting for data, for other ranks. From ranks records where there are any, because
// they tell more apart.
static void draw_parts(drawing *b) {
    static const struct {
        const char *name;
        int curve, colour;
    } ranks[] = {{"computing", CURVE_R_COMPUTE, 0},
                 {"data", CURVE_R_DATA, 1},
                 {"gradients and weights", CURVE_R_WAIT, 2},
                 {"stages", CURVE_R_STAGES, 3},
                 {"tensor ranks", CURVE_R_TENSOR, CHART_GREY}},
      steps[] = {
          {"computing", CURVE_MS, 0}, {"waiting for data", CURVE_DATA_MS, 1}, {"waiting for ranks", CURVE_WAIT_MS, 2}};
    const runlog *r = b->runs[0];
    points by_ranks = points_of(&r->steps, CURVE_R_COMPUTE, -1, (double)r->last_step, 160);
    bool told = by_ranks.n > 1;
    points_free(&by_ranks);
    int count = told ? 5 : 3;
    points of[5];
    char note[160];
    chart *c = calloc(1, sizeof *c);
    if (!c || b->n > 1 || sheet_total(&r->steps, CURVE_MS).n < 2) {
        free(c);
        return;
    }
    note_parts(note, sizeof note, r, told);
    *c = (chart){
        .title = "Where a step's time goes", .note = note, .x_name = "step", .x = FIGURE_WHOLE, .from_zero = true};
    for (int k = 0; k < count; k++)
        of[k] = points_of(&r->steps, told ? ranks[k].curve : steps[k].curve, -1, (double)r->last_step, 160);
    for (int i = 0; i < of[0].n; i++) {
        double base = 0, waits = told ? 0 : in_column(&of[1], i) + in_column(&of[2], i);
        for (int k = 0; k < count; k++) {
            if (i >= of[k].n) continue;
            point *p = &of[k].at[i];
            if (k == 0) p->y = fmax(0, p->y - waits);
            p->low = base, p->high = base += fmax(0, p->y);
        }
    }
    for (int k = 0; k < count; k++)
        if (k > 1 && r->world < 2 && sheet_total(&r->steps, told ? ranks[k].curve : steps[k].curve).most < 0.1)
            points_free(&of[k]);
        else if (k > 2 && sheet_total(&r->steps, ranks[k].curve).most <= 0) points_free(&of[k]);
        else
            chart_add(c, LAYER_AREA, of[k], told ? ranks[k].colour : steps[k].colour,
                      told ? ranks[k].name : steps[k].name);
    draw(b, c);
    free(c);
}

// --- memory and disk: two curves in a chart --------------------------------------------------------------------------

static void draw_pair(drawing *b, const plot *first, const plot *second) {
    chart *c = calloc(1, sizeof *c);
    const plot *both[] = {first, second};
    if (!c) return;
    *c = (chart){.title = first->title,
                 .note = first->note,
                 .x_name = first->of_machine ? "time" : "step",
                 .x = first->of_machine ? FIGURE_SECONDS : FIGURE_WHOLE,
                 .y = first->y,
                 .from_zero = true,
                 .marks = b->runs[0],
                 .marks_from = first->of_machine ? b->runs[0]->seconds.origin : NAN};
    for (int k = 0; k < 2; k++) {
        sheet s = first->of_machine ? b->runs[0]->seconds : b->runs[0]->steps;
        if (first->of_machine) s.origin = 0;
        points p = points_of(&s, both[k]->curve, -1, first->of_machine ? INFINITY : (double)b->runs[0]->last_step,
                             columns_of(b));
        chart_add(c, LAYER_LINE, p, k, both[k]->name);
    }
    draw(b, c);
    free(c);
}

// --- all of them -----------------------------------------------------------------------------------------------------

// In the order in which one asks: does it learn, is it sound, is it fast, is the machine well.
static const plot quality[] = {
    {"Accuracy", "of the validation data", "accuracy", CURVE_ACCURACY, FIGURE_SHARE, false, BANDED, false, false,
     false},
    {"RMSE", "of the validation data", "root of the mean squared error", CURVE_RMSE, FIGURE_PLAIN, false, BANDED, false,
     false, false},
    {"Bits per byte", NULL, "bits per byte", CURVE_BITS, FIGURE_PLAIN, false, BANDED, false, false, false},
    {"Choices", "accuracy", "accuracy", CURVE_ACC, FIGURE_SHARE, false, BANDED, false, false, false},
    {"Choices", "normalised accuracy", "accuracy", CURVE_ACC_NORM, FIGURE_SHARE, false, BANDED, false, false, false},
};
static const plot soundness[] = {
    {"Learning rate", NULL, "rate", CURVE_LR, FIGURE_SMALL, false, BARE, true, false, false},
    {"Loss scale", NULL, "scale", CURVE_LOSS_SCALE, FIGURE_PLAIN, false, BANDED, false, true, true},
};
static const plot hidden = {"Communication that is hidden",
                            "by computing",
                            "mean",
                            CURVE_HIDDEN,
                            FIGURE_SHARE,
                            false,
                            SMOOTHED,
                            true,
                            false,
                            false};
static const plot stale = {"Stale gradients",
                           "updates of others that a gradient had missed",
                           "mean",
                           CURVE_STALE,
                           FIGURE_PLAIN,
                           false,
                           BANDED,
                           true,
                           false,
                           false};
static const plot memory[] = {
    {"Memory", "of rank 0", "resident", CURVE_RESIDENT, FIGURE_BYTES, false, BANDED, true, false, false},
    {"Device memory", "of rank 0", "on the device", CURVE_DEVICE_BYTES, FIGURE_BYTES, false, BANDED, true, false,
     false}};
static const plot memories[] = {
    {"Memory", "of a rank, mean", "resident", MACHINE_RESIDENT, FIGURE_BYTES, true, BANDED, true, false, false},
    {"Memory", "of a rank, mean", "on the device", MACHINE_DEVICE_USED, FIGURE_BYTES, true, BANDED, true, false,
     false}};
static const plot watched[] = {
    {"Power", "watts of a device", "mean of the devices", MACHINE_WATTS, FIGURE_PLAIN, true, BANDED, true, false,
     false},
    {"Temperature", "degrees Celsius", "mean of the devices", MACHINE_CELSIUS, FIGURE_PLAIN, true, BANDED, false, false,
     false},
    {"Clock", "MHz", "mean of the devices", MACHINE_MHZ, FIGURE_WHOLE, true, BANDED, true, false, false},
    {"Utilisation", "of a device", "mean", MACHINE_BUSY, FIGURE_SHARE, true, BANDED, true, false, false},
    {"Processors in use", NULL, "mean", MACHINE_CPU, FIGURE_PLAIN, true, BANDED, true, false, false},
};
static const plot starved = {"Waiting for a processor",
                             "share of the time in which others had it",
                             "mean of the ranks",
                             MACHINE_STARVED,
                             FIGURE_SHARE,
                             true,
                             BANDED,
                             true,
                             false,
                             false};
static const plot logged[] = {
    {"Power", "watts of a device", "mean of the devices", CURVE_WATTS, FIGURE_PLAIN, false, BANDED, true, false, false},
    {"Temperature", "degrees Celsius", "mean of the devices", CURVE_CELSIUS, FIGURE_PLAIN, false, BANDED, false, false,
     false},
    {"Clock", "MHz", "mean of the devices", CURVE_MHZ, FIGURE_WHOLE, false, BANDED, true, false, false},
};
static const plot joules = {
    "Energy", "joules for each unit", "mean", CURVE_JOULES, FIGURE_PLAIN, false, BANDED, true, false, false};
static const plot disk = {"Free disk", NULL, "free", MACHINE_DISK_FREE, FIGURE_BYTES, true, BANDED, true, false, false};
static const plot traffic[] = {
    {"Disk traffic", "a second", "read", MACHINE_READ, FIGURE_BYTES, true, BANDED, true, false, false},
    {"Disk traffic", "a second", "written", MACHINE_WRITTEN, FIGURE_BYTES, true, BANDED, true, false, false}};

static void draw_machine(drawing *b) {
    bool one = b->n == 1;
    if (one && (has(b, &memories[0]) || has(b, &memories[1]))) draw_pair(b, &memories[0], &memories[1]);
    else if (one) draw_pair(b, &memory[0], &memory[1]);
    else draw_plot(b, &memory[0]), draw_plot(b, &memory[1]);
    for (int i = 0; i < 5; i++)
        if (i > 2 || has(b, &watched[i])) draw_plot(b, &watched[i]);
        else draw_plot(b, &logged[i]);
    if (starves(b)) draw_plot(b, &starved);
    draw_plot(b, &joules);
    draw_plot(b, &disk);
    if (one) draw_pair(b, &traffic[0], &traffic[1]);
}

// A loss scale that is always the same says nothing.
static bool varies(const drawing *b, int curve) {
    float least = INFINITY, most = -INFINITY;
    for (int i = 0; i < b->n; i++) {
        bucket all = sheet_total(&b->runs[i]->steps, curve);
        least = fminf(least, all.least), most = fmaxf(most, all.most);
    }
    return most > least;
}

void plots_draw(text *h, runlog *const *runs, int n) {
    drawing b = {.h = h, .runs = runs, .n = n};
    draw_losses(&b);
    draw_sets(&b);
    for (size_t i = 0; i < sizeof quality / sizeof *quality; i++) draw_plot(&b, &quality[i]);
    draw_norm(&b);
    draw_plot(&b, &soundness[0]);
    if (varies(&b, soundness[1].curve)) draw_plot(&b, &soundness[1]);
    draw_rate(&b);
    draw_parts(&b);
    draw_peak(&b);
    draw_plot(&b, &hidden);
    draw_plot(&b, &stale);
    if (n == 1 && chart_heat(h, &runs[0]->heat, runs[0]->world, runs[0]->last_step, b.drawn)) b.drawn++;
    draw_machine(&b);
}
