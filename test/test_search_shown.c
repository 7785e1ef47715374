// test/test_search_shown.c: every field that a search prints, as text and as JSON, beside what it found.
#include "test/support/search.h"
#include "trainer/config/table.h"
#include "trainer/costs/failures.h"

#include <jansson.h>

static const char table[] = "lockstep costs 2\ndevice a machine\nmemory 1e9 bytes\npeak fp32 1e10 flop/s 0.1 spread\n"
                            "copy 1e10 bytes/s 0.1 spread\nlink node 1e9 bytes/s 2 us 0.1 spread\n"
                            "link rack 1e8 bytes/s 20 us 0.2 spread\nlink spine 5e7 bytes/s 30 us 0.2 spread\n"
                            "host_link 1e9 bytes/s 0.1 spread\nhost_copy 1e9 bytes/s 0.1 spread\nend 8\n";
static const char cluster[] = "[cluster]\nnodes = 4\ndevices = 2\nracks = 2\nspares = 1\n[stragglers]\nshare = 0.25\n"
                              "slower = 2\n[failures]\ngpu_mtbf_h = 5\nruns = 20\ndays = 3\n";

typedef struct run {
    config c;
    costs k;
    plan_world w;
    cluster_file file;
    char costs_at[1024], cluster_at[1024];
    search_result *r;
} run;

static void open_run(run *x, const char *dir, const char *more, bool own) {
    x->r = malloc(sizeof *x->r);
    write_text(dir, "t.costs", table), write_text(dir, "c.ini", cluster);
    snprintf(x->costs_at, sizeof x->costs_at, "%s/t.costs", dir);
    snprintf(x->cluster_at, sizeof x->cluster_at, "%s/c.ini", dir);
    rank_config(&x->c, dir, llama, more);
    OK(costs_load(&x->k, x->costs_at));
    OK(cluster_file_read(&x->file, x->cluster_at));
    OK(cluster_file_costs(&x->k, &x->file, x->cluster_at));
    world_of(&x->w, x->cluster_at);
    OK(search_run(x->r, &x->c, &x->w, &x->k, &(search_free){.own = own}));
}

static void close_run(run *x) {
    costs_free(&x->k), plan_world_close(&x->w);
    free(x->r);
}

static char *printed(const run *x, bool own, bool json) {
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    const search_asked asked = {.cluster = x->cluster_at, .costs = x->costs_at, .json = json, .own = own};
    OK(verb_search(&x->c, &asked, f));
    fclose(f);
    return text;
}

static double used(const run *x, const search_found *f) { return x->r->flops / f->step_s / 1e10 / 8; }

static failure_times fails(const run *x, failure_rules *rules) {
    failure_times t;
    failures_of_plan(rules, &x->file, (double)x->r->at[0].state, x->r->at[0].step_s);
    OK(failures_simulate(rules, &t));
    return t;
}

// A number of an object, with as many digits as it is printed with.
static void number_is(const json_t *of, const char *key, double wanted) {
    const json_t *x = json_object_get(of, key);
    if (!json_is_number(x)) fail_msg("no number %s", key);
    double found = json_number_value(x);
    if (fabs(found - wanted) > 6e-4 * fabs(wanted)) fail_msg("%s is %g, expected %g", key, found, wanted);
}

static void word_is(const json_t *of, const char *key, const char *section, const char *name, int value) {
    char word[CONFIG_WORD];
    config_word(config_key(config_find(NULL, section, name))->words, value, word);
    assert_string_equal(json_string_value(json_object_get(of, key)), word);
}

static void json_has_every_field(void **state) {
    (void)state;
    char *dir = rank_dir(), *text;
    run x;
    json_error_t error;
    failure_rules rules;
    open_run(&x, dir, "[parallel]\npipeline = 2\n", false);
    text = printed(&x, false, true);
    json_t *all = json_loads(text, 0, &error), *found = json_object_get(all, "found");
    assert_non_null(all);
    number_is(all, "ranks", 8), number_is(all, "nodes", 4);
    number_is(all, "layouts", x.r->layouts), number_is(all, "refused", x.r->refused);
    number_is(all, "too_large", x.r->too_large), number_is(all, "simulated", x.r->simulated);
    assert_true(json_is_false(json_object_get(all, "sheet")) && json_is_true(json_object_get(all, "fits")));
    assert_string_equal(json_string_value(json_object_get(all, "costs")), x.costs_at);
    const failure_times t = fails(&x, &rules);
    const json_t *f = json_object_get(all, "failures");
    number_is(f, "interruptions", t.interruptions), number_is(f, "days", 3);
    number_is(f, "useful", t.useful / 259200), number_is(f, "saving", t.saving / 259200);
    number_is(f, "lost", t.lost / 259200), number_is(f, "down", t.down / 259200);
    number_is(f, "waiting", t.waiting / 259200), number_is(f, "slow", t.slow / 259200);
    number_is(f, "every_s", rules.every_s), number_is(f, "save_s", rules.save_s);
    number_is(f, "best_s", failures_best(&rules));
    number_is(f, "units_per_s", t.useful / 259200 * x.r->units / x.r->at[0].step_s);
    assert_int_equal(json_array_size(found), x.r->found);
    int cut = 0;
    for (int i = 0; i < x.r->found; i++) {
        const search_found *b = &x.r->at[i];
        const json_t *a = json_array_get(found, (size_t)i);
        number_is(a, "tensor", b->is.tensor), number_is(a, "context", b->is.context);
        number_is(a, "pipeline", b->is.pipeline), number_is(a, "data", b->is.data);
        number_is(a, "zero", b->is.zero), number_is(a, "chunks", b->is.chunks);
        word_is(a, "schedule", "parallel", "schedule", b->is.schedule);
        word_is(a, "recompute", "parallel", "recompute", b->is.recompute);
        word_is(a, "offload", "parallel", "offload", b->is.offload);
        assert_int_equal(json_is_true(json_object_get(a, "sequence")), b->is.sequence);
        number_is(a, "micro", 2), number_is(a, "lanes", 16), number_is(a, "slices", 4);
        assert_string_equal(json_string_value(json_object_get(a, "stages")), b->stages);
        assert_int_equal(json_is_true(json_object_get(a, "given")), b->given);
        number_is(a, "ms", 1e3 * b->step_s), number_is(a, "error_ms", 1e3 * b->error_s);
        number_is(a, "units_per_s", 32 * 16 / b->step_s), number_is(a, "mfu", used(&x, b));
        number_is(a, "memory", (double)b->memory), number_is(a, "host", (double)b->host);
        number_is(a, "disk", 0), number_is(a, "compute_ms", 1e3 * b->compute_s);
        number_is(a, "bubble", b->bubble), number_is(a, "exposed_ms", 1e3 * b->exposed_s);
        number_is(a, "slow_devices", 2), number_is(a, "slowed_ms", 1e3 * b->slowed_s);
        for (size_t k = 0; k < COSTS_LEVELS; k++)
            assert_int_equal(json_integer_value(json_array_get(json_object_get(a, "sent"), k)), b->sent[k]);
        cut += *b->stages != 0;
    }
    assert_true(cut > 0);
    json_decref(all);
    free(text);
    close_run(&x);
    drop_dir(dir);
}

// What is not yet of the text, and goes on from there.
static void next(const char **at, const char *wanted) {
    size_t n = strlen(wanted);
    if (strncmp(*at, wanted, n) != 0) fail_msg("found `%.160s`, expected `%s`", *at, wanted);
    *at += n;
}

static void say(const char **at, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(const char **at, const char *format, ...) {
    char wanted[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(wanted, sizeof wanted, format, args);
    va_end(args);
    next(at, wanted);
}

// One layout's lines, but for the comparison with the next one, and what is to be pasted.
static void layout_is(const char **at, const run *x, int i) {
    const search_found *f = &x->r->at[i];
    const search_choice *is = &f->is;
    char word[CONFIG_WORD];
    say(at, "\n%3d  tensor %d x pipeline %d x data %d, zero %d", i + 1, is->tensor, is->pipeline, is->data, is->zero);
    config_word(config_key(config_find(NULL, "parallel", "schedule"))->words, is->schedule, word);
    if (is->pipeline > 1) say(at, ", %s", word);
    if (is->chunks > 1) say(at, " of %d chunks", is->chunks);
    if (is->recompute) say(at, ", recompute %s", is->recompute == RECOMPUTE_BLOCK ? "block" : "selective");
    if (is->sequence) say(at, ", sequence");
    if (is->offload) say(at, ", offload host");
    say(at, "%s\n     %.2f ms +- %.0f %%   %.0f tok/s   mfu %.1f %%   memory %.1f MB   bubble %.1f %%   ",
        f->given ? "   this INI" : "", 1e3 * f->step_s, 100 * f->error_s / f->step_s, 512 / f->step_s, 100 * used(x, f),
        1e-6 * (double)f->memory, 100 * f->bubble);
    say(at, "communication left over %.2f ms\n", 1e3 * f->exposed_s);
    if (f->host) say(at, "     of the host's memory: %.1f MB\n", 1e-6 * (double)f->host);
    say(at, "     sent in a step: %.1f MB within nodes, %.1f MB between nodes, %.1f MB between racks\n",
        1e-6 * (double)f->sent[0], 1e-6 * (double)f->sent[1], 1e-6 * (double)f->sent[2]);
    say(at, "     2 of 8 devices compute 2 times as long: %.2f ms of the step\n", 1e3 * f->slowed_s);
}

// The reason that is said is the largest of three, and it is in doubt where the steps differ by less than the error.
static void reason_is(const char **at, const search_found *f, const search_found *next_one) {
    double work = next_one->compute_s - f->compute_s, waits = next_one->waits_s - f->waits_s,
           left = next_one->exposed_s - f->exposed_s, most = fmax(work, fmax(waits, left));
    say(at, "     before the next: ");
    if (next_one->step_s < 1.001 * f->step_s && most < 0.001 * f->step_s) {
        if (f->memory < next_one->memory)
            say(at, "as fast, with %.1f MB less memory\n", 1e-6 * (double)(next_one->memory - f->memory));
        else say(at, "as fast, and as large\n");
        return;
    }
    if (work == most) say(at, "its busiest rank computes %.2f ms less", 1e3 * most);
    else if (waits == most) say(at, "its stages wait %.2f ms less for each other", 1e3 * most);
    else say(at, "%.2f ms less of its communication is left over", 1e3 * most);
    say(at, "%s\n", next_one->step_s - f->step_s < f->error_s ? "; both are within the error" : "");
}

static void pasted(const char **at, const run *x, int i) {
    char lines[SEARCH_LINES];
    search_lines(&x->c, &x->r->at[i], lines);
    for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n")) say(at, "       %s\n", line);
}

static void failures_are(const char **at, const run *x, bool own) {
    failure_rules rules;
    const failure_times t = fails(x, &rules);
    const search_found *f = &x->r->at[0];
    double useful = t.useful / 259200;
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    failures_print(out, &rules, &t);
    fclose(out);
    say(at, "\n%s runs on a cluster whose parts fail:\n%s", own ? "the layout" : "the fastest layout", text);
    say(at, "        a save copies the fullest rank's %.1f MB of state in %.3f s: save_gb_s = 20\n",
        1e-6 * (double)f->state, (double)f->state / 20e9);
    say(at, "in all  %.0f steps a day and %.0f tok/s, where a run without failures has %.0f and %.0f\n",
        useful * 86400 / f->step_s, useful * 512 / f->step_s, 86400 / f->step_s, 512 / f->step_s);
    free(text);
}

static void text_has_every_field(void **state) {
    (void)state;
    char *dir = rank_dir(), *text;
    for (int own = 0; own < 2; own++) {
        run x;
        bool given = false;
        open_run(&x, dir, own ? "[parallel]\npipeline = 2\noffload = host\nzero = 1\n" : "", own);
        const char *at = text = printed(&x, own, false);
        const search_result *r = x.r;
        if (own) say(&at, "layout  this INI's own, 8 ranks on 4 nodes\n");
        else
            say(&at, "search  8 ranks on 4 nodes: %d layouts, of which %d are refused, %d too large, %d simulated\n",
                r->layouts, r->refused, r->too_large, r->simulated);
        for (int i = 0; i < r->found; i++) {
            given |= r->at[i].given && i < SEARCH_SHOWN;
            if (i >= SEARCH_SHOWN && !r->at[i].given) continue;
            layout_is(&at, &x, i);
            if (i + 1 < r->found) reason_is(&at, &r->at[i], &r->at[i + 1]);
            pasted(&at, &x, i);
        }
        assert_true(own ? given && r->at[0].host > 0 : r->found > SEARCH_SHOWN);
        failures_are(&at, &x, own);
        int64_t all = r->looked[0] + r->looked[1] + r->looked[2];
        assert_true(all > 0 && r->looked[FROM_ROOFLINE] == all);
        say(&at,
            "\ntimes   of %lld operations looked up, 0 %% are in the table, 0 %% are scaled from near shapes, 100 %% ",
            (long long)all);
        say(&at, "are a roofline's\nfrom    %s: measured on \"a machine\"\n        links and slow devices: %s\n",
            x.costs_at, x.cluster_at);
        assert_string_equal(at, "");
        free(text);
        close_run(&x);
    }
    drop_dir(dir);
}

// Of one node nothing goes between nodes, and of a rank alone nothing at all; whole layers are said to stay whole, and
// an own layout that does not fit is.
static void text_is_of_the_place(void **state) {
    (void)state;
    static const struct {
        const char *world, *sent;
        int commas;
    } of[] = {{"1x1", NULL, 0},
              {"1x2", " MB within nodes\n", 0},
              {"2x1", " MB between nodes\n", 1},
              {"2x1x2", " MB between racks\n", 2}};
    char *dir = rank_dir(), *text;
    run x;
    size_t n;
    open_run(&x, dir, "", true);
    config c;
    rank_config(&c, dir, gpt, "");
    for (int i = 0; i < 4; i++) {
        FILE *f = open_memstream(&text, &n);
        OK(verb_search(&c, &(search_asked){.cluster = of[i].world, .costs = x.costs_at}, f));
        fclose(f);
        const char *sent = strstr(text, "     sent in a step: ");
        assert_int_equal(sent != NULL, i > 0);
        int commas = 0;
        for (const char *p = sent; p && *p != '\n'; p++) commas += *p == ',';
        assert_int_equal(commas, of[i].commas);
        if (sent) assert_non_null(strstr(text, of[i].sent));
        assert_non_null(strstr(text, "        layers stay whole, as slices = 1 decides the run's bits: --free slices"));
        assert_non_null(strstr(text, i < 2 ? " on 1 node: " : " on 2 nodes: "));
        assert_null(strstr(text, "needs more memory"));
        assert_null(strstr(text, "links and slow devices"));
        assert_null(strstr(text, "whose parts fail"));
        free(text);
    }
    FILE *f = open_memstream(&text, &n);
    OK(verb_search(&c, &(search_asked){.cluster = "1x2", .costs = x.costs_at, .free = "slices"}, f));
    fclose(f);
    assert_null(strstr(text, "layers stay whole"));
    free(text);
    close_run(&x);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(json_has_every_field), cmocka_unit_test(text_has_every_field),
                                       cmocka_unit_test(text_is_of_the_place)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
