// trainer/plan/search_table.c: see trainer/plan/search.h: the layouts that were found, for people, for an INI, and as
// JSON.
#include "base/io.h"
#include "base/text.h"
#include "trainer/config/table.h"
#include "trainer/costs/failures_drawn.h"
#include "trainer/plan/plan_ranks.h"
#include "trainer/plan/search.h"
#include "trainer/costs/sheets.h"
#include "trainer/step/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *word_of(const char *section, const char *key, int value, char dst[CONFIG_WORD]) {
    config_word(config_key(config_find(NULL, section, key))->words, value, dst);
    return dst;
}

// --- to paste --------------------------------------------------------------------------------------------------------

// What the INI says of its own layout alone is taken back.
const char *search_lines(const config *c, const search_found *f, char dst[SEARCH_LINES]) {
    const search_choice *x = &f->is;
    char word[CONFIG_WORD];
    text t = {.at = dst, .room = SEARCH_LINES};
    bool batch = x->micro != c->resolved.micro || x->lanes != c->resolved.lanes;
    if (batch)
        text_put(&t, "[batch]\nmicro = %" PRId64 "\nlanes = %" PRId64 "\n", search_micro(c, x), search_lanes(c, x));
    text_put(&t, "[parallel]\ntensor = %d\npipeline = %d\n", x->tensor, x->pipeline);
    if (x->context > 1 || c->parallel.context > 1) text_put(&t, "context = %d\n", x->context);
    if (c->parallel.data) text_put(&t, "data = %d\n", x->data);
    if (x->slices != c->parallel.slices) text_put(&t, "slices = %" PRId64 "\n", x->slices);
    if (x->pipeline > 1) text_put(&t, "schedule = %s\n", word_of("parallel", "schedule", x->schedule, word));
    bool chunks = x->pipeline > 1 && x->schedule == PIPELINE_INTERLEAVED;
    if (chunks || c->parallel.chunks > 1) text_put(&t, "chunks = %d\n", chunks ? x->chunks : 1);
    if (*f->stages || *c->parallel.stages) text_put(&t, "stages = %s\n", f->stages);
    if (*c->parallel.deal) text_put(&t, "deal = %s\n", f->given ? c->parallel.deal : "");
    text_put(&t, "zero = %d\nrecompute = %s\n", x->zero, word_of("parallel", "recompute", x->recompute, word));
    if (x->offload || c->parallel.offload)
        text_put(&t, "offload = %s\n", word_of("parallel", "offload", x->offload, word));
    if (x->tensor > 1 || c->parallel.sequence) text_put(&t, "sequence = %s\n", x->sequence ? "yes" : "no");
    return dst;
}

// --- for people ------------------------------------------------------------------------------------------------------

static void print_shape(const search_choice *x, FILE *out) {
    char word[CONFIG_WORD];
    fprintf(out, "tensor %d x ", x->tensor);
    if (x->context > 1) fprintf(out, "context %d x ", x->context);
    fprintf(out, "pipeline %d x data %d, zero %d", x->pipeline, x->data, x->zero);
    if (x->pipeline > 1) fprintf(out, ", %s", word_of("parallel", "schedule", x->schedule, word));
    if (x->chunks > 1) fprintf(out, " of %d chunks", x->chunks);
    if (x->recompute) fprintf(out, ", recompute %s", word_of("parallel", "recompute", x->recompute, word));
    if (x->sequence) fprintf(out, ", sequence");
    if (x->offload) fprintf(out, ", offload %s", word_of("parallel", "offload", x->offload, word));
}

static double mfu(const search_result *r, const search_found *f, const costs *k, const config *c, int world) {
    double peak = k->peak[c->precision.compute].is;
    return peak > 0 ? r->flops / f->step_s / peak / world : 0;
}

// What makes it faster than the next one: the largest of the differences.
static void print_why(const search_found *f, const search_found *next, FILE *out) {
    const struct {
        double less;
        const char *what;
    } why[] = {{next->compute_s - f->compute_s, "its busiest rank computes %.2f ms less"},
               {next->waits_s - f->waits_s, "its stages wait %.2f ms less for each other"},
               {next->exposed_s - f->exposed_s, "%.2f ms less of its communication is left over"}};
    int best = 0;
    for (int i = 1; i < 3; i++)
        if (why[i].less > why[best].less) best = i;
    fprintf(out, "     before the next: ");
    if (next->step_s - f->step_s < 0.001 * f->step_s && why[best].less < 0.001 * f->step_s) {
        if (f->memory < next->memory)
            fprintf(out, "as fast, with %.1f MB less memory\n", 1e-6 * (double)(next->memory - f->memory));
        else fprintf(out, "as fast, and as large\n");
        return;
    }
    fprintf(out, why[best].what, 1e3 * why[best].less);
    fprintf(out, "%s\n", next->step_s - f->step_s < f->error_s ? "; both are within the error" : "");
}

// By all ranks.
static void print_sent(const search_found *f, const plan_world *w, FILE *out) {
    static const char *const where[] = {"within nodes", "between nodes", "between racks"};
    int levels = w->world == 1 ? 0 : w->nodes == 1 ? 1 : w->racks == 1 ? 2 : 3;
    for (int i = 0; i < levels; i++)
        fprintf(out, "%s%.1f MB %s", i ? ", " : "     sent in a step: ", 1e-6 * (double)f->sent[i], where[i]);
    if (levels) fprintf(out, "\n");
}

static void print_found(const search_result *r, int i, const config *c, const costs *k, const plan_world *w,
                        FILE *out) {
    int world = w->world;
    const search_found *f = &r->at[i];
    char lines[SEARCH_LINES];
    fprintf(out, "\n%3d  ", i + 1);
    print_shape(&f->is, out);
    fprintf(out, "%s\n     %.2f ms +- %.0f %%   %.0f %s/s", f->given ? "   this INI" : "", 1e3 * f->step_s,
            100 * f->error_s / f->step_s, r->units / f->step_s, r->unit);
    double used = mfu(r, f, k, c, world);
    if (used > 0) fprintf(out, "   mfu %.1f %%", 100 * used);
    fprintf(out, "   memory %.1f MB   bubble %.1f %%   communication left over %.2f ms\n", 1e-6 * (double)f->memory,
            100 * f->bubble, 1e3 * f->exposed_s);
    if (f->host) fprintf(out, "     of the host's memory: %.1f MB\n", 1e-6 * (double)f->host);
    if (f->disk) fprintf(out, "     of the disk: %.1f MB\n", 1e-6 * (double)f->disk);
    print_sent(f, w, out);
    if (f->slow)
        fprintf(out, "     %d of %d devices compute %g times as long: %.2f ms of the step\n", f->slow, world,
                k->stragglers.slower, 1e3 * f->slowed_s);
    if (i + 1 < r->found) print_why(f, &r->at[i + 1], out);
    search_lines(c, f, lines);
    for (const char *p = lines; *p; p += strcspn(p, "\n") + 1) fprintf(out, "       %.*s\n", (int)strcspn(p, "\n"), p);
}

static void print_source(const search_result *r, const costs *k, const char *name, FILE *out) {
    int64_t all = r->looked[FROM_LINE] + r->looked[FROM_NEAR] + r->looked[FROM_ROOFLINE];
    fprintf(out,
            "times   of %" PRId64 " operations looked up, %.0f %% are in the table, %.0f %% are scaled from near "
            "shapes, %.0f %% are a roofline's\n",
            all, 100.0 * (double)r->looked[FROM_LINE] / (double)all, 100.0 * (double)r->looked[FROM_NEAR] / (double)all,
            100.0 * (double)r->looked[FROM_ROOFLINE] / (double)all);
    if (r->slower > 1)
        fprintf(out, "        ranks share cores: computing is taken for %.2g times as long as in the table\n",
                r->slower);
    if (k->sheet) fprintf(out, "from    the sheet %s: all figures are published ones, none was measured here\n", name);
    else fprintf(out, "from    %s: measured on \"%s\"\n", name, k->device);
}

// The cluster's file, if there is one, and what fails on it while the fastest layout runs.
typedef struct on_cluster {
    const char *path;  // NULL: no file
    cluster_file file;
    bool fails;
    failure_rules rules;
    failure_times times;
} on_cluster;

static err_t fail_on_cluster(on_cluster *x, const search_found *f) {
    x->fails = x->path && failures_rate(&x->file.fails) > 0;
    if (!x->fails) return ERR_OK;
    failures_of_plan(&x->rules, &x->file, (double)f->state, f->step_s);
    return failures_simulate(&x->rules, &x->times);
}

static double useful(const on_cluster *x) { return x->times.useful / (FAILURES_DAY * x->rules.days); }

static void print_cluster(const search_result *r, const on_cluster *x, FILE *out) {
    const search_found *f = &r->at[0];
    fprintf(out, "\n%s runs on a cluster whose parts fail:\n", r->free.own ? "the layout" : "the fastest layout");
    failures_print(out, &x->rules, &x->times);
    if (x->file.fails.save_s < 0)
        fprintf(out, "        a save copies the fullest rank's %.1f MB of state in %.3f s: save_gb_s = %g\n",
                1e-6 * (double)f->state, x->rules.save_s, x->file.save_gb_s);
    fprintf(out, "in all  %.0f steps a day and %.0f %s/s, where a run without failures has %.0f and %.0f\n",
            useful(x) * FAILURES_DAY / f->step_s, useful(x) * r->units / f->step_s, r->unit, FAILURES_DAY / f->step_s,
            r->units / f->step_s);
}

static void print_table(const search_result *r, const config *c, const plan_world *w, const costs *k, const char *name,
                        const on_cluster *x, FILE *out) {
    if (r->free.own)
        fprintf(out, "layout  this INI's own, %d ranks on %d node%s\n", w->world, w->nodes, w->nodes == 1 ? "" : "s");
    else
        fprintf(out, "search  %d ranks on %d node%s: %d layouts, of which %d are refused, %d too large, %d simulated\n",
                w->world, w->nodes, w->nodes == 1 ? "" : "s", r->layouts, r->refused, r->too_large, r->simulated);
    if (c->parallel.slices == 1 && !r->free.slices && !r->free.own)
        fprintf(out, "        layers stay whole, as slices = 1 decides the run's bits: --free slices looks further\n");
    int shown = 0;
    for (; shown < r->found && shown < SEARCH_SHOWN; shown++) print_found(r, shown, c, k, w, out);
    for (int i = shown; i < r->found; i++)
        if (r->at[i].given) print_found(r, i, c, k, w, out);
    if (!r->fits) fprintf(out, "\nthis INI's own layout needs more memory than a device has, or is refused\n");
    if (x->fails) print_cluster(r, x, out);
    fprintf(out, "\n");
    print_source(r, k, name, out);
    if (x->path) fprintf(out, "        links and slow devices: %s\n", x->path);
}

// --- JSON ------------------------------------------------------------------------------------------------------------

static void put_choice(const config *c, const search_found *f, FILE *out) {
    const search_choice *x = &f->is;
    char word[CONFIG_WORD];
    fprintf(out, "\"tensor\":%d,\"context\":%d,\"pipeline\":%d,\"data\":%d,\"zero\":%d,\"chunks\":%d,", x->tensor,
            x->context, x->pipeline, x->data, x->zero, x->chunks);
    fprintf(out, "\"schedule\":\"%s\",", word_of("parallel", "schedule", x->schedule, word));
    fprintf(out, "\"recompute\":\"%s\",", word_of("parallel", "recompute", x->recompute, word));
    fprintf(out, "\"offload\":\"%s\",", word_of("parallel", "offload", x->offload, word));
    fprintf(out, "\"sequence\":%s,\"micro\":%" PRId64 ",\"lanes\":%" PRId64 ",\"slices\":%" PRId64 ",\"stages\":\"%s\"",
            x->sequence ? "true" : "false", search_micro(c, x), search_lanes(c, x), x->slices, f->stages);
}

static void json_failures(const search_result *r, const on_cluster *x, FILE *out) {
    const failure_times *t = &x->times;
    double all = FAILURES_DAY * x->rules.days;
    fprintf(out,
            "\"failures\":{\"interruptions\":%.6g,\"days\":%g,\"useful\":%.6g,\"saving\":%.6g,\"lost\":%.6g,"
            "\"down\":%.6g,\"waiting\":%.6g,\"slow\":%.6g,",
            t->interruptions, x->rules.days, t->useful / all, t->saving / all, t->lost / all, t->down / all,
            t->waiting / all, t->slow / all);
    fprintf(out, "\"every_s\":%.6g,\"save_s\":%.6g,\"best_s\":%.6g,\"units_per_s\":%.6g},", x->rules.every_s,
            x->rules.save_s, failures_best(&x->rules), useful(x) * r->units / r->at[0].step_s);
}

static void print_json(const search_result *r, const config *c, const plan_world *w, const costs *k, const char *name,
                       const on_cluster *x, FILE *out) {
    fprintf(out, "{\"ranks\":%d,\"nodes\":%d,\"layouts\":%d,\"refused\":%d,\"too_large\":%d,\"simulated\":%d,",
            w->world, w->nodes, r->layouts, r->refused, r->too_large, r->simulated);
    if (x->fails) json_failures(r, x, out);
    fprintf(out, "\"costs\":\"%s\",\"sheet\":%s,\"fits\":%s,\"found\":[", name, k->sheet ? "true" : "false",
            r->fits ? "true" : "false");
    for (int i = 0; i < r->found; i++) {
        const search_found *f = &r->at[i];
        fprintf(out, "%s\n{", i ? "," : "");
        put_choice(c, f, out);
        fprintf(out, ",\"given\":%s,\"ms\":%.6g,\"error_ms\":%.6g,\"units_per_s\":%.6g,\"mfu\":%.4g,",
                f->given ? "true" : "false", 1e3 * f->step_s, 1e3 * f->error_s, r->units / f->step_s,
                mfu(r, f, k, c, w->world));
        fprintf(out,
                "\"memory\":%zu,\"host\":%zu,\"disk\":%" PRId64
                ",\"compute_ms\":%.6g,\"bubble\":%.4g,\"exposed_ms\":%.6g,",
                f->memory, f->host, f->disk, 1e3 * f->compute_s, f->bubble, 1e3 * f->exposed_s);
        fprintf(out, "\"slow_devices\":%d,\"slowed_ms\":%.6g,", f->slow, 1e3 * f->slowed_s);
        fprintf(out, "\"sent\":[%" PRId64 ",%" PRId64 ",%" PRId64 "]}", f->sent[COSTS_NODE], f->sent[COSTS_RACK],
                f->sent[COSTS_SPINE]);
    }
    fprintf(out, "]}\n");
}

// --- a step to look at -----------------------------------------------------------------------------------------------

typedef struct shown {
    const char *path, *title;
    bool svg;
} shown;

static err_t write_trace(void *ctx, const simulate_lists *lists, const simulation *s) {
    const shown *x = ctx;
    char names[s->ranks][24];
    const char *name[s->ranks];
    text t = {0};
    for (int i = 0; i < s->ranks; i++) {
        snprintf(names[i], sizeof names[i], s->ranks > 1 ? "stage %d" : "each rank", i);
        name[i] = names[i];
    }
    (x->svg ? trace_svg : trace_json)(&t, lists, s, x->title, name);
    err_t rc =
        t.full ? err_set(ERR_INTERNAL, "no memory for a drawing of a step") : io_write_file(x->path, t.at, t.n, NULL);
    text_free(&t);
    return rc;
}

static err_t draw_fastest(const search_result *r, const config *c, const plan_world *w, const costs *k,
                          const char *path) {
    const search_found *f = &r->at[0];
    char title[256], word[CONFIG_WORD];
    snprintf(title, sizeof title,
             "tensor %d, context %d, pipeline %d (%s), data %d, zero %d: a step of %.2f ms, simulated", f->is.tensor,
             f->is.context, f->is.pipeline, word_of("parallel", "schedule", f->is.schedule, word), f->is.data,
             f->is.zero, 1e3 * (f->step_s - f->slowed_s));
    shown x = {.path = path, .title = title, .svg = drawing_is_svg(path)};
    return search_walk(f, c, w, k, write_trace, &x);
}

// --- the verb --------------------------------------------------------------------------------------------------------

static err_t search_places(const config *c, const search_asked *asked, const plan_world *w, costs *k, FILE *out) {
    search_free keys;
    on_cluster x = {.path = asked->cluster && cluster_is_file(asked->cluster) ? asked->cluster : NULL};
    if (x.path) TRY(cluster_file_read(&x.file, x.path));
    if (x.path) TRY(cluster_file_costs(k, &x.file, x.path));
    TRY(search_free_of(&keys, asked->free));
    keys.own = asked->own;
    if (keys.own) TRY(config_fits(c, w->world));
    search_result *r = malloc(sizeof *r);
    if (!r) return err_set(ERR_INTERNAL, "no memory for a search");
    err_t rc = search_run(r, c, w, k, &keys);
    if (rc == ERR_OK) rc = fail_on_cluster(&x, &r->at[0]);
    if (rc == ERR_OK) (asked->json ? print_json : print_table)(r, c, w, k, asked->costs, &x, out);
    if (rc == ERR_OK && asked->trace) rc = draw_fastest(r, c, w, k, asked->trace);
    free(r);
    return rc;
}

err_t verb_search(const config *c, const search_asked *asked, FILE *out) {
    costs k;
    plan_world w;
    if (!asked->costs)
        return err_set(ERR_USAGE,
                       "plan --search wants --costs: a file that `lockstep bench step CONFIG.ini --save FILE` and "
                       "`lockstep bench comm CONFIG.ini --save FILE` have measured, or a sheet: %s",
                       sheet_names);
    if (asked->trace) TRY(drawing_name(asked->trace));
    TRY(sheet_or_file(&k, asked->costs));
    err_t rc = asked->cluster ? plan_world_any(&w, asked->cluster) : plan_world_open(&w, c);
    if (rc == ERR_OK) {
        rc = search_places(c, asked, &w, &k, out);
        plan_world_close(&w);
    }
    costs_free(&k);
    return rc;
}
