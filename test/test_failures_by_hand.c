// test/test_failures_by_hand.c: clusters whose parts fail, by hand: every key of a cluster's file, runs that are short
// enough to be followed event by event, the interval that is best by its equation, and what is printed and drawn, to
// the byte.
#include "base/philox.h"
#include "test/support/run.h"
#include "trainer/costs/failures_drawn.h"
#include "trainer/costs/stragglers.h"

#include <math.h>

static void close_to(double found, double wanted) {
    if (!(fabs(found - wanted) <= 1e-9 * fabs(wanted) + 1e-9)) fail_msg("%.12g, expected %.12g", found, wanted);
}

// --- every key -------------------------------------------------------------------------------------------------------

typedef struct key {
    const char *section, *name;
    size_t at;
    bool whole;
    double without, least, most, other;  // other: one that no other key has
} key;

#define IN(field) offsetof(cluster_file, field)
static const key keys[] = {
    {"cluster", "nodes", IN(fails.nodes), true, 1, 1, 1e6, 24},
    {"cluster", "devices", IN(fails.devices), true, 8, 1, 1024, 16},
    {"cluster", "racks", IN(racks), true, 1, 1, 1e6, 1},
    {"cluster", "spares", IN(fails.spares), true, 0, 0, 1e6, 3},
    {"cluster", "card_devices", IN(card_devices), true, 1, 1, 1024, 4},
    {"links", "node_gb_s", IN(gb_s[0]), false, -1, 1e-6, 1e9, 5.5},
    {"links", "node_us", IN(us[0]), false, -1, 0, 1e9, 6.5},
    {"links", "rack_gb_s", IN(gb_s[1]), false, -1, 1e-6, 1e9, 7.5},
    {"links", "rack_us", IN(us[1]), false, -1, 0, 1e9, 8.5},
    {"links", "spine_gb_s", IN(gb_s[2]), false, -1, 1e-6, 1e9, 9.5},
    {"links", "spine_us", IN(us[2]), false, -1, 0, 1e9, 10.5},
    {"links", "spread", IN(spread), false, 0.1, 0, 10, 2.25},
    {"stragglers", "share", IN(slow_devices), false, 0, 0, 1, 0.375},
    {"stragglers", "slower", IN(slower), false, 1, 1, 1000, 2.75},
    {"failures", "gpu_mtbf_h", IN(fails.gpu_mtbf_h), false, 0, 0, 1e12, 100.5},
    {"failures", "node_mtbf_h", IN(fails.node_mtbf_h), false, 0, 0, 1e12, 101.5},
    {"failures", "network_mtbf_h", IN(fails.network_mtbf_h), false, 0, 0, 1e12, 102.5},
    {"failures", "job_mtbf_h", IN(fails.job_mtbf_h), false, 0, 0, 1e12, 103.5},
    {"failures", "detect_s", IN(fails.detect_s), false, 30, 0, 1e6, 104.5},
    {"failures", "restart_s", IN(fails.restart_s), false, 300, 0, 1e6, 105.5},
    {"failures", "repair_h", IN(fails.repair_h), false, 24, 0, 1e5, 106.5},
    {"failures", "every_s", IN(fails.every_s), false, -1, 0.001, 1e8, 107.5},
    {"failures", "save_s", IN(fails.save_s), false, -1, 0, 1e6, 108.5},
    {"failures", "save_gb_s", IN(save_gb_s), false, 20, 1e-6, 1e9, 109.5},
    {"failures", "slow_share", IN(fails.slow_share), false, 0, 0, 1, 0.625},
    {"failures", "slow_factor", IN(fails.slow_factor), false, 1, 1, 1000, 3.25},
    {"failures", "days", IN(fails.days), false, 54, 0.01, 1e5, 110.5},
    {"failures", "runs", IN(fails.runs), true, 400, 1, 1e5, 111},
    {"failures", "seed", IN(fails.seed), true, 1, 0, 1e15, 112},
};
enum { KEYS = sizeof keys / sizeof *keys };

static double value_of(const cluster_file *f, const key *k) {
    const char *at = (const char *)f + k->at;
    return k->whole ? (double)*(const int64_t *)at : *(const double *)at;
}

// So many nodes and devices that racks and cards divide them.
static err_t read_one(cluster_file *f, const char *dir, const key *k, double value) {
    char path[1024], text[512];
    bool racks = strcmp(k->name, "racks") == 0, cards = strcmp(k->name, "card_devices") == 0;
    snprintf(text, sizeof text, "[%s]\n%s%s%s = %.17g\n", k->section, racks ? "nodes = 1000000\n" : "",
             cards ? "devices = 1024\n" : "", k->name, value);
    write_text(dir, "c.ini", text);
    snprintf(path, sizeof path, "%s/c.ini", dir);
    return cluster_file_read(f, path);
}

static void each_key_is_read(void **state) {
    (void)state;
    char *dir = make_dir(), path[1024];
    cluster_file f;
    write_text(dir, "c.ini", "");
    snprintf(path, sizeof path, "%s/c.ini", dir);
    OK(cluster_file_read(&f, path));
    for (int i = 0; i < KEYS; i++)
        if (value_of(&f, &keys[i]) != keys[i].without)
            fail_msg("%s is %g, expected %g", keys[i].name, value_of(&f, &keys[i]), keys[i].without);
    for (int k = 0; k < KEYS; k++) {
        OK(read_one(&f, dir, &keys[k], keys[k].other));
        for (int i = 0; i < KEYS; i++) {
            double wanted = i == k ? keys[i].other : keys[i].without, found = value_of(&f, &keys[i]);
            bool helps = i < 2 && (strcmp(keys[k].name, i ? "card_devices" : "racks") == 0);
            if (found != wanted && !helps)
                fail_msg("with %s = %g, %s is %g, expected %g", keys[k].name, keys[k].other, keys[i].name, found,
                         wanted);
        }
    }
    drop_dir(dir);
}

static void each_key_has_bounds(void **state) {
    (void)state;
    char *dir = make_dir(), says[128];
    cluster_file f;
    for (int k = 0; k < KEYS; k++) {
        const key *x = &keys[k];
        const double step = x->whole ? 1 : 1e-9,
                     wrong[] = {x->least - step, x->most * (x->whole ? 1 : 1 + 1e-9) + step, 1.5};
        snprintf(says, sizeof says, "%s: expected a %snumber from %g to %g, found", x->name, x->whole ? "whole " : "",
                 x->least, x->most);
        OK(read_one(&f, dir, x, x->least));
        assert_true(value_of(&f, x) == x->least);
        OK(read_one(&f, dir, x, x->most));
        assert_true(value_of(&f, x) == x->most);
        for (int i = 0; i < (x->whole ? 3 : 2); i++) {
            assert_int_equal(read_one(&f, dir, x, wrong[i]), ERR_CONFIG);
            if (!strstr(err_last()->text, says)) fail_msg("%s: expected `%s`", err_last()->text, says);
        }
    }
    drop_dir(dir);
}

// Saves that take no time, every ten minutes, where a file says nothing of them and there is no plan that would.
static void a_file_alone_saves_now_and_then(void **state) {
    (void)state;
    char *dir = make_dir(), path[1024];
    failure_rules r;
    write_text(dir, "c.ini", "[failures]\nnetwork_mtbf_h = 5\n");
    snprintf(path, sizeof path, "%s/c.ini", dir);
    OK(failures_read(&r, path));
    assert_true(r.every_s == 600 && r.save_s == 0);
    write_text(dir, "c.ini", "[failures]\nnode_mtbf_h = 5\nevery_s = 7\nsave_s = 2\n");
    OK(failures_read(&r, path));
    assert_true(r.every_s == 7 && r.save_s == 2);
    drop_dir(dir);
}

// --- links -----------------------------------------------------------------------------------------------------------

// Only what leaves a node shares a card, also where the table says its rate. Then nothing counts that was measured
// between nodes. A rate of the file has the file's spread.
static void cards_are_shared_between_nodes(void **state) {
    (void)state;
    char *dir = make_dir();
    cluster_file f;
    costs k;
    static const char table[] = "lockstep costs 2\ndevice test\nlink node 80e9 bytes/s 1 us 0.01 spread\n"
                                "link rack 40e9 bytes/s 2 us 0.02 spread\nlink spine 20e9 bytes/s 3 us 0.03 spread\n"
                                "comm all_reduce node 2 1e6 100 us 0.1 spread\n"
                                "comm all_reduce rack 2 1e6 200 us 0.1 spread\nend 5\n";
    const key cards = {.section = "cluster", .name = "card_devices"};
    OK(read_one(&f, dir, &cards, 4));
    OK(costs_parse(&k, "test", table));
    OK(cluster_file_costs(&k, &f, "c.ini"));
    assert_int_equal(k.comms, 1);
    assert_int_equal(k.comm[0].level, COSTS_NODE);
    static const double rates[] = {80e9, 40e9 / 4, 20e9 / 4}, us[] = {1, 2, 3};
    for (int i = 0; i < COSTS_LEVELS; i++) {
        close_to(k.link[i].rate.is, rates[i]), close_to(1e6 * k.link[i].s, us[i]);
        assert_true(k.link[i].rate.spread == 0.01 * (i + 1));
    }
    costs_free(&k);
    write_text(dir, "c.ini", "[links]\nnode_gb_s = 8\nspread = 0.75\n");
    char path[1024];
    snprintf(path, sizeof path, "%s/c.ini", dir);
    OK(cluster_file_read(&f, path));
    OK(costs_parse(&k, "test", table));
    OK(cluster_file_costs(&k, &f, "c.ini"));
    assert_true(k.link[0].rate.is == 8e9 && k.link[0].rate.spread == 0.75 && k.link[1].rate.spread == 0.02);
    assert_true(k.comms == 1 && k.comm[0].level == COSTS_RACK);
    costs_free(&k);
    // of a table without links, a latency between racks alone says nothing
    write_text(dir, "c.ini", "[links]\nspine_us = 5\n");
    OK(cluster_file_read(&f, path));
    OK(costs_parse(&k, "test", "lockstep costs 2\ndevice test\ncopy 1 bytes/s 0 spread\nend 1\n"));
    OK(cluster_file_costs(&k, &f, "c.ini"));
    assert_true(k.link[COSTS_SPINE].rate.is == 0);
    costs_free(&k);
    drop_dir(dir);
}

// --- slow devices ----------------------------------------------------------------------------------------------------

// As many as the share, rounded; one that only keeps weights slows no pipeline.
static void slow_ones_are_rounded_and_compute(void **state) {
    (void)state;
    straggler_sets s;
    static const struct {
        double share;
        int devices;
    } of[] = {{0.2, 1}, {0.34, 2}, {0.3, 2}, {0.5, 3}, {0.09, 1}, {0.08, 0}};
    const grid six = {.data = 6, .tensor = 1, .pipeline = 1};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        OK(stragglers_draw(&s, &six, of[i].share, 1));
        assert_int_equal(s.devices, of[i].devices);
        stragglers_free(&s);
    }
    const grid served = {.data = 4, .tensor = 1, .pipeline = 1, .servers = 2};
    int none = 0;
    for (uint64_t seed = 0; seed < 64; seed++) {  // one of four devices, of which two serve
        OK(stragglers_draw(&s, &served, 0.25, seed));
        assert_int_equal(s.devices, 1);
        none += s.count == 0;
        stragglers_free(&s);
    }
    assert_in_range(none, 32 - 16, 32 + 16);  // 4 deviations of 4
}

// Which ranks are slow, drawn anew as the algorithm says (Knuth, 3.4.2S), and of each pipeline which stages: its set is
// part of one that is found, and each that is found is a pipeline's.
static void slow_ones_are_where_they_were_drawn(void **state) {
    (void)state;
    static const grid shapes[] = {{.data = 8, .tensor = 2, .pipeline = 5},
                                  {.data = 6, .tensor = 1, .pipeline = 3},
                                  {.data = 3, .tensor = 1, .pipeline = 4, .islands = 2}};
    for (int i = 0; i < 3; i++)
        for (uint64_t seed = 0; seed < 20; seed++) {
            const grid *g = &shapes[i];
            int world = grid_world(g), left = (int)floor(0.15 * world + 0.5), several = 0, n = g->pipeline;
            bool slow[512] = {0}, met[STRAGGLER_SETS] = {0};
            straggler_sets s;
            for (int r = 0; r < world; r++) {
                uint32_t w[4];
                philox4x32(w, seed, (uint32_t)r, SITE_FAULT, 0, 1);
                slow[r] = (double)w[0] / 4294967296.0 * (world - r) < left;
                left -= slow[r];
            }
            assert_int_equal(left, 0);
            OK(stragglers_draw(&s, g, 0.15, seed));
            for (int island = 0; island < grid_islands(g); island++)
                for (int d = 0; d < g->data; d++) {
                    bool set[8] = {0}, any = false, part = false;
                    for (int stage = 0; stage < n; stage++)
                        for (int t = 0; t < g->tensor; t++) {
                            grid_place at = {.island = island, .data = d, .stage = stage, .tensor = t};
                            set[stage] |= slow[grid_rank(g, at)], any |= set[stage];
                        }
                    for (int k = 0; k < s.count; k++) {
                        bool in = true;
                        for (int stage = 0; stage < n; stage++) in &= !set[stage] || s.slow[k * n + stage];
                        part |= in, met[k] |= memcmp(set, &s.slow[k * n], (size_t)n) == 0;
                    }
                    assert_true(!any || part || s.count == STRAGGLER_SETS);
                }
            for (int k = 0; k < s.count; k++) several += met[k];
            assert_int_equal(several, s.count);
            stragglers_free(&s);
        }
}

// --- events ----------------------------------------------------------------------------------------------------------

static const failure_rules plain = {.nodes = 3,
                                    .devices = 2,
                                    .gpu_mtbf_h = 6,
                                    .every_s = 600,
                                    .save_s = 20,
                                    .repair_h = 3,
                                    .slow_factor = 1,
                                    .spares = 1,
                                    .days = 40,
                                    .runs = 1,
                                    .seed = 5};

typedef struct span {
    failure_span what;
    double from, to;
} span;
typedef struct walked {
    int n;
    span at[20000];
} walked;

static void take_span(void *ctx, failure_span what, double from_s, double to_s) {
    walked *w = ctx;
    assert_true(w->n < (int)(sizeof w->at / sizeof *w->at));
    w->at[w->n++] = (span){what, from_s, to_s};
}

// What the end cuts off is useful, and not lost: a run of 864 seconds in which nothing fails has a part of 600, a save,
// and 244 of the next part.
static void what_the_end_cuts_off_is_useful(void **state) {
    (void)state;
    failure_rules r = plain;
    failure_times t;
    r.gpu_mtbf_h = 0, r.job_mtbf_h = 1e12, r.days = 0.01;
    OK(failures_simulate(&r, &t));
    close_to(t.useful, 844), close_to(t.saving, 20);
    assert_true(t.lost == 0 && t.down == 0 && t.waiting == 0 && t.slow == 0 && t.interruptions == 0);
    r.slow_share = 0.5, r.slow_factor = 3;  // half of the time three times as slow: half of the work
    OK(failures_simulate(&r, &t));
    close_to(t.useful, 422), close_to(t.slow, 422);
}

// Each failure takes a node, which is a spare again three hours later. With one spare, the n-th failure is over when
// n - 1 nodes have come back.
static void nodes_come_back_in_their_order(void **state) {
    (void)state;
    walked *w = calloc(1, sizeof *w);
    const double end = 86400 * plain.days;
    OK(failures_walk(&plain, take_span, w));
    double back[20000];  // in their order
    int away = 0, waits = 0, spared = 0;
    for (int i = 0; i < w->n; i++) {
        if (w->at[i].what != FAILURE_LOST) continue;
        double fails = w->at[i].to;
        int returned = 0;
        back[away++] = fails + 3 * 3600;
        for (int k = 0; k < away; k++) returned += back[k] <= fails;
        const span *next = i + 1 < w->n ? &w->at[i + 1] : NULL;
        if (away - returned <= 1) {  // of one spare
            assert_true(!next || next->what == FAILURE_WORK || next->what == FAILURE_LOST);
            spared++;
            continue;
        }
        assert_true(next && next->what == FAILURE_WAITING);
        close_to(next->from, fails), close_to(next->to, fmin(back[away - 2], end));
        waits++;
    }
    assert_true(waits > 50 && spared > 50);
    free(w);
}

// Each attempt to start again is a failure's, and takes as long as it should if no other failure ends it.
static void each_attempt_is_a_failure(void **state) {
    (void)state;
    failure_rules r = plain;
    failure_times t;
    walked *w = calloc(1, sizeof *w);
    r.gpu_mtbf_h = 0, r.network_mtbf_h = 1, r.detect_s = 500, r.restart_s = 1300;
    OK(failures_walk(&r, take_span, w));
    OK(failures_simulate(&r, &t));
    int attempts = 0, again = 0;
    for (int i = 0; i < w->n; i++) {
        const span *x = &w->at[i];
        if (x->what != FAILURE_DOWN) continue;
        double s = x->to - x->from;
        bool next = i + 1 < w->n && w->at[i + 1].what == FAILURE_DOWN;
        attempts++, again += next;
        if (next) assert_true(s < 1800);
        else if (x->to < 86400 * r.days - 1e-6) close_to(s, 1800);
    }
    assert_true(again > 100 && t.interruptions == attempts);
    free(w);
}

// Of as many runs, each with numbers of its own, from the seed.
static void runs_differ(void **state) {
    (void)state;
    failure_rules r = plain;
    failure_times one, two, both, other;
    r.detect_s = 10, r.spares = 1000;
    OK(failures_simulate(&r, &one));
    r.runs = 2;
    OK(failures_simulate(&r, &both));
    double second = 2 * both.interruptions - one.interruptions;
    assert_true(second != one.interruptions);
    close_to(both.deviation, fabs(one.interruptions - second) / 2);
    r.runs = 1, r.seed = 6;
    OK(failures_simulate(&r, &other));
    assert_true(other.lost != one.lost);
    OK(failures_simulate(&r, &two));
    assert_memory_equal(&two, &other, sizeof two);
}

// --- the best interval -----------------------------------------------------------------------------------------------

// Where the derivative of the useful share is zero: e^(L (t + s)) (1 - L t) = 1, by halves.
static double best_of(double rate, double save) {
    double low = 0, high = 1 / rate;
    for (int i = 0; i < 200; i++) {
        double t = (low + high) / 2;
        if (exp(rate * (t + save)) * (1 - rate * t) > 1) low = t;
        else high = t;
    }
    return low;
}

static double useful(const failure_rules *r, double every, double rate) {
    double part = every + r->save_s, takes = exp(rate * (r->detect_s + r->restart_s)) * expm1(rate * part) / rate;
    return every / takes;
}

static void the_best_interval_solves_its_equation(void **state) {
    (void)state;
    static const double saves[] = {1e-8, 1e-3, 1, 60, 3600};
    for (int i = 0; i < 5; i++) {
        failure_rules r = plain;
        r.save_s = saves[i];
        double rate = 3 * 2 / (6 * 3600.0), found = failures_best(&r), wanted = best_of(rate, saves[i]);
        if (fabs(found / wanted - 1) > 1e-2) fail_msg("a save of %g s: %g s, expected %g", saves[i], found, wanted);
        close_to(failures_useful(&r, 1000), useful(&r, 1000, rate));
    }
}

// --- what is printed -------------------------------------------------------------------------------------------------

static char *printed(const failure_rules *r, const failure_times *t) {
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    failures_print(f, r, t);
    fclose(f);
    return text;
}

// 16 devices of 400 h, 4 nodes of 200 h, a network and a job of 50 h each: 0.1 failures an hour.
static void what_is_printed(void **state) {
    (void)state;
    failure_rules r = {.nodes = 4,
                       .devices = 4,
                       .spares = 3,
                       .gpu_mtbf_h = 400,
                       .node_mtbf_h = 200,
                       .network_mtbf_h = 50,
                       .job_mtbf_h = 50,
                       .detect_s = 100,
                       .restart_s = 500,
                       .every_s = 1600,
                       .save_s = 30,
                       .slow_factor = 1,
                       .days = 10,
                       .runs = 70};
    const failure_times t = {.useful = 0.5 * 864000,
                             .saving = 0.2 * 864000,
                             .lost = 0.1 * 864000,
                             .down = 0.09 * 864000,
                             .waiting = 0.07 * 864000,
                             .slow = 0.04 * 864000,
                             .interruptions = 24,
                             .deviation = 5};
    const double rate = 1 / 36000.0, best = best_of(rate, 30);
    char wanted[2048], *text = printed(&r, &t);
    int n = snprintf(wanted, sizeof wanted,
                     "cluster 4 nodes of 4 devices, 3 spare: a failure every 10.00 h\n"
                     "failures in 10 days 24 +- 10 (two deviations of one such time; 70 were simulated)\n"
                     "time    of all of it\n"
                     "  useful                     50.00 %%\n"
                     "  saving                     20.00 %%\n"
                     "  lost work, done again      10.00 %%\n"
                     "  noticing and restarting     9.00 %%\n"
                     "  waiting for a spare         7.00 %%\n"
                     "  slowed by stragglers        4.00 %%\n"
                     "saves   every 1600 s; with a spare at hand always, by closed form (Daly 2006):\n"
                     "  best                     every %.0f s (Young 1974: %.0f s): %.2f %% useful\n",
                     best, sqrt(2 * 30 * 36000), 100 * useful(&r, best, rate));
    static const double every[] = {100, 400, 1600, 6400, 25600};
    for (int i = 0; i < 5; i++)
        n += snprintf(wanted + n, sizeof wanted - (size_t)n, "  %-24s every %.0f s: %.2f %% useful\n",
                      i == 2 ? "this" : "", every[i], 100 * useful(&r, every[i], rate));
    assert_string_equal(text, wanted);
    free(text);
    r.every_s = 8, r.save_s = 1e-3, text = printed(&r, &t);  // less than ten seconds: with two digits
    assert_non_null(strstr(text, "  this                     every 8.00 s: "));
    assert_non_null(strstr(text, "\n                           every 0.50 s: "));
    assert_non_null(strstr(text, "\n                           every 32 s: "));
    assert_non_null(strstr(text, "(Young 1974: 8.49 s)"));
    free(text);
    r.save_s = 0, text = printed(&r, &t);
    assert_non_null(
        strstr(text, "  best                     as often as possible, since a save takes no time (save_s"));
    free(text);
}

// --- what is drawn ---------------------------------------------------------------------------------------------------

static const char *const names[] = {"work and saves", "work that is lost", "noticing and restarting",
                                    "waiting for a spare"};
static const char title[] = "3 nodes of 2 devices, 1 spare, saves every 600 s: 40 days, simulated";

static failure_rules drawn_rules(void) {
    failure_rules r = plain;
    r.detect_s = 30, r.restart_s = 300;
    return r;
}

static void traces_are_written_out(void **state) {
    (void)state;
    walked *w = calloc(1, sizeof *w);
    const failure_rules r = drawn_rules();
    text found = {0}, wanted = {0};
    OK(failures_walk(&r, take_span, w));
    OK(failures_json(&found, &r));
    text_put(&wanted,
             "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,"
             "\"args\":{\"name\":\"%s\"}}",
             title);
    for (int k = 0; k < FAILURE_SPANS; k++)
        text_put(&wanted, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
                 k, names[k]);
    for (int i = 0; i < w->n; i++)
        text_put(&wanted,
                 ",\n{\"name\":\"%s\",\"cat\":\"cluster\",\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%.0f,\"dur\":%.0f}",
                 names[w->at[i].what], (int)w->at[i].what, 1e6 * w->at[i].from, 1e6 * (w->at[i].to - w->at[i].from));
    text_put(&wanted, "\n]}\n");
    assert_string_equal(found.at, wanted.at);
    text_free(&found), text_free(&wanted);
    free(w);
}

// The color of a bar is the legend's, each another one, and a bar lies in the row of its days.
static void bars_are_as_the_legend_says(void **state) {
    (void)state;
    failure_rules r = drawn_rules();
    r.days = 250;  // in rows of three
    text t = {0};
    char color[FAILURE_SPANS][8], what[64], found[8];
    double x, y, wide, day, hours;
    int bars[FAILURE_SPANS] = {0};
    OK(failures_svg(&t, &r));
    for (int k = 0; k < FAILURE_SPANS; k++) {
        char legend[128];
        snprintf(legend, sizeof legend, "<text x=\"%d\" y=\"40\">%s</text>", 70 + 200 * k + 18, names[k]);
        const char *at = strstr(t.at, legend);
        assert_non_null(at);
        memcpy(color[k], at - 10, 7), color[k][7] = 0;
        for (int i = 0; i < k; i++) assert_string_not_equal(color[i], color[k]);
    }
    for (const char *p = t.at; (p = strstr(p, "<rect x=\"")); p++) {
        if (sscanf(p,
                   "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"10\" fill=\"%7[^\"]\"><title>%63[a-z ]: day %lf, "
                   "for %lf h",
                   &x, &y, &wide, found, what, &day, &hours) != 7)
            continue;
        int k = 0;
        while (strcmp(names[k], what) != 0) k++;
        bars[k]++;
        assert_string_equal(found, color[k]);
        assert_true(y == 56 + 12 * floor((day - 0.0005) / 3) || y == 56 + 12 * floor(day / 3));
        assert_true(fabs(x - 70 - 1010 * (day / 3 - (y - 56) / 12)) < 1);
    }
    for (int k = 0; k < FAILURE_SPANS; k++) assert_true(bars[k] > 40);
    text_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_key_is_read),
                                       cmocka_unit_test(each_key_has_bounds),
                                       cmocka_unit_test(a_file_alone_saves_now_and_then),
                                       cmocka_unit_test(cards_are_shared_between_nodes),
                                       cmocka_unit_test(slow_ones_are_rounded_and_compute),
                                       cmocka_unit_test(slow_ones_are_where_they_were_drawn),
                                       cmocka_unit_test(what_the_end_cuts_off_is_useful),
                                       cmocka_unit_test(nodes_come_back_in_their_order),
                                       cmocka_unit_test(each_attempt_is_a_failure),
                                       cmocka_unit_test(runs_differ),
                                       cmocka_unit_test(the_best_interval_solves_its_equation),
                                       cmocka_unit_test(what_is_printed),
                                       cmocka_unit_test(traces_are_written_out),
                                       cmocka_unit_test(bars_are_as_the_legend_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
