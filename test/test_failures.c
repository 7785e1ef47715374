// test/test_failures.c: a cluster whose parts fail: events against the closed form, the rates that were published of
// one large run, spares, stragglers, and files with mistakes.
#include "test/support/run.h"
#include "trainer/costs/failures_drawn.h"

#include <math.h>

static const failure_rules plain = {.nodes = 100,
                                    .devices = 8,
                                    .gpu_mtbf_h = 4000,
                                    .detect_s = 30,
                                    .restart_s = 300,
                                    .every_s = 900,
                                    .save_s = 20,
                                    .slow_factor = 1,
                                    .spares = 1000,
                                    .days = 60,
                                    .runs = 200,
                                    .seed = 7};

static double share(const failure_rules *r, double s) { return 100 * s / (r->days * 86400); }

// All of the time is for something.
static void adds_up(const failure_rules *r, const failure_times *t) {
    double all = t->useful + t->saving + t->lost + t->down + t->waiting + t->slow;
    assert_true(fabs(share(r, all) - 100) < 0.01);
}

static void events_are_as_the_closed_form(void **state) {
    (void)state;
    static const double every[] = {30, 300, 900, 3600, 14400}, gpu[] = {500, 4000, 50000}, restart[] = {0, 300, 3000};
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 3; b++)
            for (int c = 0; c < 3; c++) {
                failure_rules r = plain;
                failure_times t;
                r.every_s = every[a], r.gpu_mtbf_h = gpu[b], r.restart_s = restart[c];
                r.spares = 1000000;
                OK(failures_simulate(&r, &t));
                adds_up(&r, &t);
                double found = share(&r, t.useful), wanted = 100 * failures_useful(&r, r.every_s);
                if (fabs(found - wanted) > 0.5)
                    fail_msg("every %g s, a GPU every %g h, restart %g s: %.2f %%, closed form %.2f %%", every[a],
                             gpu[b], restart[c], found, wanted);
                assert_true(t.waiting == 0);
            }
}

// Meta, "The Llama 3 Herd of Models" (2024, section 3.3.4): 419 unexpected interruptions of 16,384 GPUs in 54 days. The
// rates are of its table 5.
static void rates_of_a_large_run(void **state) {
    (void)state;
    failure_rules r = plain;
    failure_times t;
    r.nodes = 2048, r.gpu_mtbf_h = 79000, r.node_mtbf_h = 50000, r.network_mtbf_h = 37, r.job_mtbf_h = 21;
    r.days = 54, r.runs = 400, r.spares = 1000000;
    OK(failures_simulate(&r, &t));
    assert_true(fabs(t.interruptions - 419) < 5);
    assert_true(2 * t.deviation > 35 && 2 * t.deviation < 47);
    r.every_s = 600, r.save_s = 0, r.detect_s = 0, r.restart_s = 600;
    OK(failures_simulate(&r, &t));
    assert_true(fabs(share(&r, t.useful) - 92) < 1);
}

static void the_best_interval_is_best(void **state) {
    (void)state;
    failure_rules r = plain;
    double best = failures_best(&r), young = sqrt(2 * r.save_s / failures_rate(&r));
    assert_true(fabs(best / young - 1) < 0.1);
    for (double f = 0.5; f < 2; f *= 1.1) assert_true(failures_useful(&r, best) >= failures_useful(&r, best * f));
}

static void spares_run_out(void **state) {
    (void)state;
    failure_rules r = plain;
    failure_times none, few, many, again;
    r.repair_h = 48;
    r.spares = 0;
    OK(failures_simulate(&r, &none));
    r.spares = 12;
    OK(failures_simulate(&r, &few));
    r.spares = 64;
    OK(failures_simulate(&r, &many));
    OK(failures_simulate(&r, &again));
    assert_memory_equal(&many, &again, sizeof many);  // seeded
    adds_up(&r, &none), adds_up(&r, &few), adds_up(&r, &many);
    assert_true(none.waiting > 3 * few.waiting && few.waiting > many.waiting && share(&r, many.waiting) < 0.5);
    assert_true(none.useful < few.useful && few.useful < many.useful);
    // with no spares each failure waits for a repair: 48 h for each of them
    assert_true(share(&r, none.waiting) > 85);
    r.gpu_mtbf_h = 0, r.job_mtbf_h = 5, r.spares = 0;  // takes no node out
    OK(failures_simulate(&r, &none));
    assert_true(none.waiting == 0 && none.interruptions > 200);
}

// Most of these failures come while the run starts again from another one; each of them takes a node. With 30 spares,
// and no repair in time, the 31st is the last.
static void each_failure_takes_a_node(void **state) {
    (void)state;
    failure_rules r = plain;
    failure_times t;
    r.gpu_mtbf_h = 800, r.restart_s = 3000, r.spares = 30, r.repair_h = 1e5;
    OK(failures_simulate(&r, &t));
    assert_true(fabs(t.interruptions - 31) < 1e-9 && t.deviation < 1e-4);
    adds_up(&r, &t);
}

static void stragglers_slow_all(void **state) {
    (void)state;
    failure_rules r = plain;
    failure_times fast, slow;
    OK(failures_simulate(&r, &fast));
    r.slow_share = 0.5, r.slow_factor = 3;
    OK(failures_simulate(&r, &slow));
    adds_up(&r, &slow);
    assert_true(fabs(slow.useful - fast.useful / 2) < 1 && fabs(slow.slow - slow.useful) < 1);
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } wrong[] = {{"[cluster]\nnodes = 0\n", ":2: [cluster] nodes: expected a whole number from 1"},
                 {"[cluster]\nnodes = 2.5\n", ":2: [cluster] nodes: expected a whole number"},
                 {"[failures]\n\nsave_s = -1\n", ":3: [failures] save_s: expected a number from 0"},
                 {"[failures]\nsave_s = 1 s\n", ":2: [failures] save_s: expected a number"},
                 {"[failures]\nnodes = 3\n", ":2: [failures] nodes: no such key"},
                 {"[weather]\nrain = 1\n", ":1: [weather] : no such key"},
                 {"[failures]\nevery_s = 0\n", ":2: [failures] every_s: expected a number from 0.001"},
                 {"[cluster]\nnodes = 3\n", "nothing fails"}};
    char *dir = make_dir(), path[1024];
    failure_rules r;
    snprintf(path, sizeof path, "%s/c.ini", dir);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_text(dir, "c.ini", wrong[i].text);
        assert_int_equal(failures_read(&r, path), ERR_CONFIG);
        if (!strstr(err_last()->text, wrong[i].says)) fail_msg("`%s`: %s", wrong[i].text, err_last()->text);
    }
    write_text(dir, "c.ini", "[cluster]\nnodes = 12\nspares = 3\n[failures]\njob_mtbf_h = 2.5\n");
    OK(failures_read(&r, path));
    assert_true(r.nodes == 12 && r.devices == 8 && r.spares == 3 && r.job_mtbf_h == 2.5 && r.every_s == 600);
    assert_int_equal(failures_read(&r, "/nowhere.ini"), ERR_CONFIG);
    drop_dir(dir);
}

// A plan says how much a save copies; what the file says counts before it.
static void saves_are_as_planned(void **state) {
    (void)state;
    cluster_file f = {.fails = plain, .save_gb_s = 4};
    failure_rules r;
    failures_of_plan(&r, &f, 8e9, 0.5);
    assert_true(r.save_s == plain.save_s && r.every_s == plain.every_s);
    f.fails.save_s = f.fails.every_s = -1;
    failures_of_plan(&r, &f, 8e9, 0.5);
    assert_true(r.save_s == 2 && fabs(r.every_s / failures_best(&r) - 1) < 1e-12);
    for (double k = 0.5; k < 2; k *= 1.1)
        assert_true(failures_useful(&r, r.every_s) >= failures_useful(&r, k * r.every_s));
    failures_of_plan(&r, &f, 8, 1000);  // no save without a step between
    assert_true(r.every_s == 1000);
}

typedef struct walked {
    double s[FAILURE_SPANS], until;
    int spans;
} walked;

// One span after the other, without a gap.
static void add_span(void *ctx, failure_span what, double from_s, double to_s) {
    walked *w = ctx;
    assert_true(fabs(from_s - w->until) < 1e-6 && to_s > from_s);
    w->s[what] += to_s - from_s, w->until = to_s, w->spans++;
}

static void a_walk_is_the_first_run(void **state) {
    (void)state;
    failure_rules r = plain;
    failure_times t;
    walked w = {0};
    r.runs = 1, r.spares = 5, r.repair_h = 60;
    OK(failures_simulate(&r, &t));
    OK(failures_walk(&r, add_span, &w));
    assert_true(w.spans > 100 && fabs(w.until - 86400 * r.days) < 1e-3);
    assert_true(t.waiting > 0 && fabs(w.s[FAILURE_WAITING] - t.waiting) < 1e-3);
    assert_true(fabs(w.s[FAILURE_WORK] - t.useful - t.saving) < 1e-3);
    assert_true(fabs(w.s[FAILURE_LOST] - t.lost) < 1e-3 && fabs(w.s[FAILURE_DOWN] - t.down) < 1e-3);
}

// What the parts of a drawing add up to, by the number after `key` of those with this name. A picture's bars are cut at
// the ends of rows.
static double drawn(const char *text, const char *name, const char *key) {
    double sum = 0;
    for (const char *p = text; (p = strstr(p, name)); p++) {
        const char *end = strchr(p, '\n'), *at = strstr(p, key);
        if (at && at < end) sum += strtod(at + strlen(key), NULL);
    }
    return sum;
}

// The bars of a row follow each other, and are as long as the page says that a row is: `row` days.
static void check_bars(const char *svg, double row, double days) {
    double x, y, wide, at, hours, end = 0, last = -1;
    int rows = 0, labels = 0;
    for (const char *p = svg; (p = strstr(p, "<rect x=\"")); p++) {
        if (sscanf(
                p,
                "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"10\" fill=\"%*[^\"]\"><title>%*[a-z ]: day %lf, for %lf h",
                &x, &y, &wide, &at, &hours) != 5)
            continue;
        if (y != last) end = 70, rows++, last = y;
        assert_true(fabs(x - end) < 0.03 && fabs(wide - hours / 24 / row * 1010) < 0.05);
        end = x + wide;
    }
    for (const char *p = svg; (p = strstr(p, "\">day ")); p++, labels++)
        assert_true(strtod(p + 6, NULL) == floor(5 * labels * row + 0.5));
    assert_int_equal(rows, (int)ceil(days / row));
    assert_int_equal(labels, (rows + 4) / 5);
}

static void drawings_have_all_of_it(void **state) {
    (void)state;
    static const char *const name[] = {"work and saves", "work that is lost", "noticing and restarting",
                                       "waiting for a spare"};
    failure_rules r = plain;
    walked w = {0};
    r.spares = 5, r.repair_h = 60;
    OK(failures_walk(&r, add_span, &w));
    for (int svg = 0; svg < 2; svg++)
        for (int days = 0; days < 2; days++) {
            text t = {0};
            r.days = days ? 250.5 : 60;  // rows of 3 days
            w = (walked){0};
            OK(failures_walk(&r, add_span, &w));
            OK((svg ? failures_svg : failures_json)(&t, &r));
            assert_false(t.full);
            if (svg) check_bars(t.at, days ? 3 : 1, r.days);
            for (int k = 0; k < FAILURE_SPANS; k++) {
                double s = svg ? 3600 * drawn(t.at, name[k], ", for ") : 1e-6 * drawn(t.at, name[k], "\"dur\":");
                if (fabs(s / w.s[k] - 1) > 0.01) fail_msg("%s: %.0f s are drawn of %.0f s", name[k], s, w.s[k]);
            }
            text_free(&t);
        }
    assert_int_equal(drawing_name("x.png"), ERR_USAGE);
    OK(drawing_name("x.svg"));
    OK(drawing_name("a/x.json"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(events_are_as_the_closed_form),
                                       cmocka_unit_test(rates_of_a_large_run),
                                       cmocka_unit_test(the_best_interval_is_best),
                                       cmocka_unit_test(spares_run_out),
                                       cmocka_unit_test(each_failure_takes_a_node),
                                       cmocka_unit_test(stragglers_slow_all),
                                       cmocka_unit_test(mistakes_are_named),
                                       cmocka_unit_test(saves_are_as_planned),
                                       cmocka_unit_test(a_walk_is_the_first_run),
                                       cmocka_unit_test(drawings_have_all_of_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
