// trainer/report/page.c: the page itself: what is written around the charts. Whatever a run says (samples, settings,
// events, its name) goes through text_html.
#include "trainer/report/answers.h"
#include "trainer/report/parting.h"
#include "trainer/report/plots.h"
#include "trainer/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LIVE_SECONDS = 10 };

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--ink:#1a1a1a;--dim:#5a5a5a;--line:#e4e4e4;--axis:#868686}"
    "@media(prefers-color-scheme:dark){:root{--bg:#121212;--ink:#e8e8e8;--dim:#a9a9a9;--line:#2d2d2d;--axis:#7c7c7c}.q{fill-opacity:.5}}"
    "*{box-sizing:border-box}"
    "body{margin:0 auto;max-width:1360px;padding:28px 20px 48px;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,"
    "'Noto Sans','DejaVu Sans',sans-serif;overflow-wrap:anywhere}"
    "h1{font-size:27px;line-height:1.2;font-weight:650;margin:0 0 4px}h2{font-size:18px;font-weight:650;margin:44px 0 12px}p{margin:0 0 8px}.d{color:var(--dim)}"
    "dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(max(138px,(100% - (var(--c) - 1)*24px)/var(--c)),1fr));gap:16px 24px;margin:22px 0 34px}"
    "dl div{border-top:1px solid var(--line);padding-top:7px}dt{font-size:12.5px;color:var(--dim)}"
    "dd{margin:0;font-size:22px;line-height:1.25;font-variant-numeric:tabular-nums}dd code{font-size:14px}dd small{display:block;font-size:12.5px;line-height:1.4;color:var(--dim)}"
    ".c{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,380px),1fr));grid-auto-flow:dense;gap:34px 40px}figure{margin:0;min-width:0}.w{grid-column:1/-1}"
    "figcaption b{font-weight:600}figcaption small{color:var(--dim);font-size:13px;margin-left:4px}"
    ".l{display:flex;flex-wrap:wrap;gap:0 16px;font-size:13px;color:var(--dim)}.s{margin-right:5px;vertical-align:-1px}"
    "svg.p{display:block;overflow:visible;width:calc(100% - 62px);margin:12px 8px 40px 54px;font-size:11.5px;font-variant-numeric:tabular-nums}"
    "svg text{fill:var(--dim)}svg .n,svg .r{paint-order:stroke;stroke:var(--bg);stroke-width:3px;stroke-linejoin:round}svg .r{fill:var(--ink)}"
    ".g{stroke:var(--line)}.b,.m{stroke:var(--axis)}.m{stroke-dasharray:2 3}.a{stroke:var(--bg);stroke-width:1}.f{stroke:var(--axis)}.e{stroke:var(--dim);stroke-width:.5}"
    "details{font-size:13px}summary{cursor:pointer;color:var(--dim);width:max-content;max-width:100%}figure details{margin:-10px 0 0 54px}"
    ".o{overflow-x:auto}table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums}details table{font-size:12.5px;margin-top:4px}"
    "th,td{padding:5px 18px 5px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}th{font-weight:600}tr th[scope=row]{font-weight:400}"
    "thead th,tr:first-child th[scope=col]{color:var(--dim);font-weight:600}.o td,.o th{overflow-wrap:normal}.v{overflow-wrap:anywhere;min-width:110px}.x{white-space:nowrap}"
    "code,pre{font-family:ui-monospace,'Cascadia Mono',Menlo,'DejaVu Sans Mono',monospace;font-size:12.5px}"
    "pre{margin:6px 0 18px;padding:10px 14px;border-left:3px solid var(--line);white-space:pre-wrap;line-height:1.5}pre b{font-weight:600}pre span{color:var(--dim)}"
    ".k{margin:14px 0 0;padding:6px 14px;border-left:4px solid #d55e00}"
    "footer{margin-top:48px;font-size:13px;color:var(--dim)}"
    "@media(max-width:620px){body{padding:18px 12px 32px}.n[dx]{display:none}dl{grid-template-columns:repeat(auto-fill,minmax(118px,1fr));gap:12px 16px}"
    "svg.p{width:calc(100% - 56px);margin-left:50px;margin-right:6px}figure details{margin-left:0}}"
    "@media print{:root{color-scheme:light;--bg:#fff;--ink:#000;--dim:#444;--line:#ddd;--axis:#777}body{max-width:none;padding:0 8px;font-size:12px}.q{fill-opacity:.3}"
    "figure details{display:none}figure,tr,pre{break-inside:avoid}.c{grid-template-columns:1fr 1fr;gap:20px}h2{break-after:avoid}}";

// --- head ------------------------------------------------------------------------------------------------------------

// pictures: the page has some beside its charts.
static void head(text *h, runlog *const *runs, int n, bool live, bool pictures) {
    text_put(h,
             "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'%s\">"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">",
             live || pictures ? "; img-src data:" : "");
    // Of a page that is served, a browser would ask for an icon as well.
    if (live)
        text_put(h, "<meta http-equiv=\"refresh\" content=\"%d\"><link rel=\"icon\" href=\"data:,\">", LIVE_SECONDS);
    text_put(h, "<title>");
    for (int i = 0; i < n; i++) {
        if (i) text_put(h, ", ");
        text_html(h, runs[i]->name);
    }
    text_put(h, " – lockstep</title>\n<style>%s%s</style></head>\n<body>\n", style, pictures ? answers_style : "");
}

static void fact(text *h, const char *name, const char *value, const char *more) {
    text_put(h, "<div><dt>%s</dt><dd>", name);
    text_html(h, value);
    if (more && *more) {
        text_put(h, "<small>");
        text_html(h, more);
        text_put(h, "</small>");
    }
    text_put(h, "</dd></div>");
}

static double steps_of(const runlog *r) { return runlog_number(r, "run.steps"); }

static const char *state_of(const runlog *r) {
    if (r->state[0]) return r->state;
    if (!r->records) return "no step is logged";
    return (double)r->last_step >= steps_of(r) ? "done" : "not at its end";
}

// Of each named set its loss, and what else was measured on it.
static void set_facts(text *h, const runlog *r) {
    char a[FIGURE_TEXT], name[SET_NAME + 16], more[256];
    for (int k = 0; k < r->sets; k++) {
        double loss = NAN;
        text l = {.at = more, .room = sizeof more};
        *more = 0;
        for (int i = 0; i < r->figures; i++) {
            const runlog_figure *f = &r->figure[i];
            if (strcmp(f->set, r->set[k]) != 0) continue;
            if (strcmp(f->name, "loss") == 0) loss = f->value;
            else text_put(&l, "%s%s %s", l.n ? ", " : "", f->name, figure_text(a, FIGURE_PLAIN, f->value, 4));
        }
        snprintf(name, sizeof name, "Loss on %s", r->set[k]);
        fact(h, name, figure_text(a, FIGURE_PLAIN, loss, 4), more);
    }
}

static void loss_facts(text *h, const runlog *r) {
    char a[FIGURE_TEXT], b[FIGURE_TEXT], s[FIGURE_TEXT], more[128];
    snprintf(more, sizeof more, "lowest %s at step %s", figure_text(b, FIGURE_PLAIN, r->lowest_loss, 4),
             figure_text(s, FIGURE_WHOLE, (double)r->lowest_step, 0));
    fact(h, "Training loss", figure_text(a, FIGURE_PLAIN, r->loss, 4), isnan(r->lowest_loss) ? "" : more);
    set_facts(h, r);
    if (!r->evals) return;
    snprintf(more, sizeof more, "best%s%s %s at step %s", *r->best_of ? " on " : "", r->best_of,
             figure_text(b, FIGURE_PLAIN, r->best, 4), figure_text(s, FIGURE_WHOLE, (double)r->best_step, 0));
    fact(h, "Validation loss", figure_text(a, FIGURE_PLAIN, r->eval_loss, 4), more);
}

// A quantile of all that was logged.
static double all_of(const spread *s, double q) { return spread_quantile(s, 0, SPREAD_COLUMNS, q); }

static void facts(text *h, const runlog *r) {
    char a[FIGURE_TEXT], b[FIGURE_TEXT], c[FIGURE_TEXT], more[128], name[RUNLOG_WORD + 16];
    snprintf(more, sizeof more, "of %s", figure_text(b, FIGURE_WHOLE, steps_of(r), 0));
    fact(h, "Steps", figure_text(a, FIGURE_WHOLE, (double)r->last_step, 0), isnan(steps_of(r)) ? "" : more);
    if (r->records) loss_facts(h, r);
    snprintf(more, sizeof more, "%ss", r->unit);
    if (isfinite(r->units)) fact(h, "Data", figure_text(a, FIGURE_PLAIN, r->units, 3), more);
    snprintf(name, sizeof name, "%ss per second", r->unit);
    name[0] = (char)(name[0] >= 'a' && name[0] <= 'z' ? name[0] - 32 : name[0]);
    snprintf(more, sizeof more, "10 to 90 %%: %s to %s", figure_text(a, FIGURE_PLAIN, all_of(&r->rate, 0.1), 3),
             figure_text(b, FIGURE_PLAIN, all_of(&r->rate, 0.9), 3));
    double median = all_of(&r->rate, 0.5);
    if (isfinite(median)) fact(h, name, figure_text(c, FIGURE_PLAIN, median, 3), more);
    snprintf(more, sizeof more, "model FLOPs; 10 to 90 %%: %s to %s",
             figure_text(a, FIGURE_SHARE, all_of(&r->mfu, 0.1), 3),
             figure_text(b, FIGURE_SHARE, all_of(&r->mfu, 0.9), 3));
    median = all_of(&r->mfu, 0.5);
    if (isfinite(median)) fact(h, "Share of the peak", figure_text(c, FIGURE_SHARE, median, 3), more);
    if (r->trained_s > 0) fact(h, "Time in steps", figure_text(a, FIGURE_SECONDS, r->trained_s, 3), "");
    if (r->skipped) fact(h, "Skipped steps", figure_text(a, FIGURE_WHOLE, (double)r->skipped, 0), "");
    if (r->world > 1) fact(h, "Ranks", figure_text(a, FIGURE_WHOLE, r->world, 0), "");
}

static void hash_fact(text *h, const runlog *r) {
    char a[FIGURE_TEXT], more[64];
    snprintf(more, sizeof more, "of step %s", figure_text(a, FIGURE_WHOLE, (double)r->hash_step, 0));
    if (!r->hash[0]) return;
    text_put(h, "<div><dt>Hash of the weights</dt><dd><code>");
    text_html(h, r->hash);
    text_put(h, "</code><small>%s</small></dd></div>", more);
}

// Rows of equal length where the window is 1280 pixels wide or wider: none has one tile alone.
static void put_tiles(text *h, text *tiles) {
    enum { MOST = 7 };
    int n = 0;
    for (const char *at = tiles->at; at && (at = strstr(at, "<dt>")) != NULL; at++) n++;
    int rows = (n + MOST - 1) / MOST;
    text_put(h, "<dl style=\"--c:%d\">", rows > 1 ? (n + rows - 1) / rows : n);
    if (tiles->at) text_put(h, "%s", tiles->at);
    text_put(h, "</dl>\n");
    h->full |= tiles->full;
    text_free(tiles);
}

static void title_one(text *h, const runlog *r, bool live) {
    char when[FIGURE_TEXT];
    text_put(h, "<header><h1>");
    text_html(h, r->name);
    text_put(h, "</h1><p class=\"d\">");
    text_html(h, state_of(r));
    if (isfinite(r->last_time)) text_put(h, ", last step %s", figure_text(when, FIGURE_DATE, r->last_time, 0));
    if (live) text_put(h, ", live: this page is loaded anew every %d seconds", LIVE_SECONDS);
    if (r->log.damaged) text_put(h, "; %" PRId64 " damaged lines of log.jsonl were passed over", r->log.damaged);
    text_put(h, "</p>");
    for (int i = 0; i < r->alarms; i++) {
        text_put(h, "<p class=\"k\" role=\"alert\">");
        text_html(h, r->alarm[i]);
        text_put(h, "</p>");
    }
    text_put(h, "</header>\n");
    text tiles = {0};
    facts(&tiles, r);
    hash_fact(&tiles, r);
    put_tiles(h, &tiles);
}

// --- several runs ----------------------------------------------------------------------------------------------------

static void cell(text *h, const char *text) {
    text_put(h, "<td>");
    text_html(h, text);
    text_put(h, "</td>");
}

static void run_row(text *h, const runlog *r, int i) {
    char a[FIGURE_TEXT];
    text_put(h, "<tr><th scope=\"row\">");
    chart_swatch(h, LAYER_LINE, i, false);
    text_html(h, r->name);
    text_put(h, "</th>");
    cell(h, state_of(r));
    cell(h, figure_text(a, FIGURE_WHOLE, (double)r->last_step, 0));
    cell(h, figure_text(a, FIGURE_PLAIN, r->loss, 4));
    cell(h, figure_text(a, FIGURE_PLAIN, r->lowest_loss, 4));
    cell(h, figure_text(a, FIGURE_PLAIN, r->eval_loss, 4));
    cell(h, figure_text(a, FIGURE_PLAIN, r->best, 4));
    cell(h, figure_text(a, FIGURE_PLAIN, all_of(&r->rate, 0.5), 3));
    cell(h, figure_text(a, FIGURE_SHARE, all_of(&r->mfu, 0.5), 3));
    cell(h, figure_text(a, FIGURE_SECONDS, r->trained_s, 3));
    text_put(h, "<td><code>");
    text_html(h, r->hash);
    text_put(h, "</code></td></tr>");
}

static void title_many(text *h, runlog *const *runs, int n) {
    static const char *const columns[] = {"run",
                                          "state",
                                          "steps",
                                          "loss",
                                          "lowest",
                                          "validation",
                                          "best",
                                          "median per second",
                                          "median share of the peak",
                                          "time in steps",
                                          "last hash"};
    text_put(h, "<header><h1>%d runs</h1></header>\n<div class=\"o\"><table><tr>", n);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) text_put(h, "<th scope=\"col\">%s</th>", columns[i]);
    text_put(h, "</tr>");
    for (int i = 0; i < n; i++) run_row(h, runs[i], i);
    text_put(h, "</table></div>\n");
}

static err_t partings(text *h, runlog *const *runs, int n) {
    text_put(
        h, "<h2>Where they part</h2>\n<div class=\"o\"><table><tr><th scope=\"col\">run</th><th scope=\"col\">beside ");
    text_html(h, runs[0]->name);
    text_put(h, "</th></tr>");
    for (int i = 1; i < n; i++) {
        parting p;
        char text[PARTING_TEXT];
        TRY(parting_of(&p, runs[0]->dir, runs[i]->dir));
        text_put(h, "<tr><th scope=\"row\">");
        text_html(h, runs[i]->name);
        text_put(h, "</th>");
        cell(h, parting_text(text, &p));
        text_put(h, "</tr>");
    }
    text_put(h, "</table></div>\n");
    return ERR_OK;
}

typedef struct differences {
    text *h;
    runlog *const *runs;
    int n, count, class;  // class of the row before, -1: none
} differences;

static void add_difference(void *ctx, key_class class, const char *name, const char *const *value) {
    differences *d = ctx;
    text *h = d->h;
    if (d->count++ == 0) {
        text_put(h, "<div class=\"o\"><table><tr><th scope=\"col\">setting</th>");
        for (int i = 0; i < d->n; i++) {
            text_put(h, "<th scope=\"col\">");
            text_html(h, d->runs[i]->name);
            text_put(h, "</th>");
        }
        text_put(h, "</tr>");
    }
    if (d->class != (int)class)
        text_put(h, "<tr><td colspan=\"%d\" class=\"d\">%s</td></tr>", d->n + 1, parting_classes[class]);
    d->class = class;
    text_put(h, "<tr><th scope=\"row\" class=\"x\"><code>");
    text_html(h, name);
    text_put(h, "</code></th>");
    for (int i = 0; i < d->n; i++) {
        text_put(h, "<td class=\"v\"><code>");
        text_html(h, value[i] ? value[i] : "–");
        text_put(h, "</code></td>");
    }
    text_put(h, "</tr>");
}

static void settings_many(text *h, runlog *const *runs, int n) {
    differences d = {.h = h, .runs = runs, .n = n, .class = -1};
    text_put(h, "<h2>Settings that differ</h2>\n");
    parting_settings(runs, n, add_difference, &d);
    text_put(h, d.count ? "</table></div>\n" : "<p class=\"d\">None.</p>\n");
}

// --- one run ---------------------------------------------------------------------------------------------------------

static void samples(text *h, const runlog *r) {
    int64_t first = r->samples > RUNLOG_SAMPLES ? r->samples - RUNLOG_SAMPLES : 0;
    char step[FIGURE_TEXT];
    if (!r->samples) return;
    text_put(h, "<h2>What the model wrote</h2>\n");
    for (int64_t i = r->samples - 1; i >= first; i--) {
        const runlog_sample *s = &r->sample[i % RUNLOG_SAMPLES];
        text_put(h,
                 i == r->samples - 1 ? "<p class=\"d\">after step %s</p><pre><b>"
                                     : "<details><summary>after step %s</summary><pre><b>",
                 figure_text(step, FIGURE_WHOLE, (double)s->step, 0));
        text_html(h, s->prompt);
        text_put(h, "</b>");
        text_html(h, s->text);
        text_put(h, i == r->samples - 1 ? "</pre>\n" : "</pre></details>\n");
    }
}

static void events(text *h, const runlog *r) {
    int64_t first = r->events_seen > RUNLOG_EVENTS ? r->events_seen - RUNLOG_EVENTS : 0;
    char text[FIGURE_TEXT];
    if (!r->events_seen) return;
    text_put(h, "<h2>Events</h2>\n");
    if (first) text_put(h, "<p class=\"d\">the last %d of %" PRId64 "</p>", RUNLOG_EVENTS, r->events_seen);
    text_put(
        h,
        "<div class=\"o\"><table><tr><th scope=\"col\">when</th><th scope=\"col\">step</th><th scope=\"col\">what</th><th scope=\"col\"></th></tr>");
    for (int64_t i = r->events_seen - 1; i >= first; i--) {
        const runlog_event *e = &r->event[i % RUNLOG_EVENTS];
        text_put(h, "<tr><td class=\"x\">%s</td>", figure_text(text, FIGURE_DATE, e->time, 0));
        text_put(h, "<td>%s</td><td class=\"x\">", figure_text(text, FIGURE_WHOLE, (double)e->step, 0));
        text_html(h, e->kind);
        text_put(h, "</td><td class=\"v\">");
        text_html(h, e->text);
        text_put(h, "</td></tr>");
    }
    text_put(h, "</table></div>\n");
}

static void settings_one(text *h, const runlog *r) {
    static const char *const classes[] = {[CLASS_BITS] = "bits", [CLASS_LAYOUT] = "layout", [CLASS_LOCAL] = "local"};
    int count = 0;
    for (int i = 0; i < r->settings; i++) {
        const runlog_setting *s = &r->setting[i];
        if (!s->differs) continue;
        if (count++ == 0)
            text_put(
                h,
                "<h2>Settings that differ from the defaults</h2>\n<div class=\"o\"><table><tr><th scope=\"col\">setting</th><th scope=\"col\">value</th>"
                "<th scope=\"col\">default</th><th scope=\"col\">class</th></tr>");
        text_put(h, "<tr><th scope=\"row\" class=\"x\"><code>");
        text_html(h, s->name);
        text_put(h, "</code></th><td class=\"v\"><code>");
        text_html(h, s->value);
        text_put(h, "</code></td><td class=\"v d\"><code>");
        text_html(h, s->fallback ? s->fallback : "–");
        text_put(h, "</code></td><td>%s</td></tr>", classes[s->class]);
    }
    if (count) text_put(h, "</table></div>\n");
    else if (r->settings) text_put(h, "<h2>Settings</h2>\n<p class=\"d\">All have their defaults.</p>\n");
}

static void pair(text *h, const char *name, const char *value) {
    if (!value || !*value) return;
    text_put(h, "<tr><th scope=\"row\">%s</th><td class=\"v\">", name);
    text_html(h, value);
    text_put(h, "</td></tr>");
}

static const char *setting_value(const runlog *r, const char *name) {
    const runlog_setting *s = runlog_find(r, name);
    return s ? s->value : NULL;
}

// Runs of older builds have no [precision] products.
static void compute_type(text *h, const runlog *r) {
    const char *type = setting_value(r, "precision.compute"), *products = setting_value(r, "precision.products");
    char text[80];
    if (!type || !products || strcmp(products, "fp32") == 0) {
        pair(h, "compute type", type);
        return;
    }
    snprintf(text, sizeof text, "%.30s, products %.30s", type, products);
    pair(h, "compute type", text);
}

static void hardware(text *h, const runlog *r) {
    char text[160], world[16];
    text_put(h, "<h2>Hardware and build</h2>\n<div class=\"o\"><table>");
    pair(h, "machine", r->computer[0] ? r->computer : r->host);
    if (r->world) snprintf(world, sizeof world, "%d", r->world), pair(h, "ranks", world);
    for (int i = 0; i < r->devices; i++) {
        const runlog_device *d = &r->device[i];
        if (!d->device[0] && r->devices == 1) continue;
        snprintf(text, sizeof text, "%s on %s", d->device[0] ? d->device : "CPU", d->host);
        snprintf(world, sizeof world, "rank %d", d->rank);
        pair(h, world, text);
    }
    pair(h, "device", r->runs_on[0] ? r->runs_on : setting_value(r, "device.backend"));
    compute_type(h, r);
    pair(h, "nodes", setting_value(r, "cluster.nodes"));
    pair(h, "build, hash of the settings, hash of the data", r->about);
    if (r->forked[0]) pair(h, "forked from", r->forked);
    pair(h, "directory", r->dir);
    text_put(h, "</table></div>\n");
}

// --- the whole -------------------------------------------------------------------------------------------------------

static bool any_curve(runlog *const *runs, int n) {
    for (int i = 0; i < n; i++)
        if (runs[i]->records || runs[i]->seconds.used) return true;
    return false;
}

// Of a model of classes the log has accuracies.
static bool has_answered(const runlog *r) { return sheet_total(&r->steps, CURVE_ACCURACY).n > 0; }

err_t report_render(runlog *const *runs, int n, bool live, char **out, size_t *bytes) {
    text h = {0};
    err_t rc = ERR_OK;
    answers_file answers = {0};
    *out = NULL, *bytes = 0;
    if (n < 1 || n > REPORT_RUNS) return err_set(ERR_USAGE, "a report of %d runs: expected 1 to %d", n, REPORT_RUNS);
    if (n == 1) answers_read(&answers, runs[0]->dir);
    head(&h, runs, n, live, answers.all != NULL);
    text_put(&h, "<main>\n");
    if (n == 1) title_one(&h, runs[0], live);
    else {
        title_many(&h, runs, n);
        rc = partings(&h, runs, n);
        settings_many(&h, runs, n);
        text_put(&h, "<h2>Curves</h2>\n");
    }
    if (any_curve(runs, n)) {
        text_put(&h, "<div class=\"c\">\n");
        plots_draw(&h, runs, n);
        text_put(&h, "</div>\n");
    }
    if (n == 1) answers_draw(&h, &answers, has_answered(runs[0]));
    answers_close(&answers);
    if (n == 1) samples(&h, runs[0]), events(&h, runs[0]), settings_one(&h, runs[0]), hardware(&h, runs[0]);
    text_put(
        &h,
        "</main>\n<footer>Curves of long runs are drawn in buckets of steps: a line is the mean, a band reaches from the least to the most, so that "
        "no value is lost. Dotted verticals are events.</footer>\n</body></html>\n");
    if (rc == ERR_OK && h.full) rc = err_set(ERR_INTERNAL, "no memory for the report");
    if (rc != ERR_OK) text_free(&h);
    else *out = h.at, *bytes = h.n;
    return rc;
}
