// test/test_cluster_file.c: a cluster in an INI: what it says of places, links and slow devices; where slow devices
// are; and files with mistakes.
#include "test/support/run.h"
#include "trainer/costs/failures.h"
#include "trainer/plan/plan_ranks.h"
#include "trainer/costs/stragglers.h"

#include <math.h>

static const char whole[] =
    "[cluster]\nnodes = 12\ndevices = 4\nracks = 3\nspares = 2\ncard_devices = 2\n[links]\nnode_gb_s = 300\nnode_us = 5\n"
    "rack_gb_s = 40\nrack_us = 10\nspine_gb_s = 10\nspine_us = 20\nspread = 0.3\n[stragglers]\nshare = 0.25\n"
    "slower = 1.5\n[failures]\njob_mtbf_h = 21\nsave_gb_s = 8\nseed = 9\n";

// With a figure of each level that was measured.
static const char table[] =
    "lockstep costs 2\ndevice test\ncopy 1e12 bytes/s 0.1 spread\nlink node 200e9 bytes/s 3 us 0.1 spread\n"
    "link rack 20e9 bytes/s 30 us 0.2 spread\nlink spine 20e9 bytes/s 60 us 0.2 spread\n"
    "comm all_reduce node 2 1e6 100 us 0.1 spread\ncomm all_reduce rack 2 1e6 200 us 0.1 spread\n"
    "comm all_reduce spine 2 1e6 300 us 0.1 spread\nend 7\n";

static void read_text(cluster_file *f, const char *text) {
    char *dir = make_dir(), path[1024];
    write_text(dir, "c.ini", text);
    snprintf(path, sizeof path, "%s/c.ini", dir);
    OK(cluster_file_read(f, path));
    drop_dir(dir);
}

static double call(const costs *k, costs_level level, double bytes) {
    return costs_of_call(k, CALL_ALL_REDUCE, level, 2, bytes).s;
}

static void near(double found, double wanted) {
    if (!(fabs(found / wanted - 1) < 1e-9)) fail_msg("%.12g, expected %.12g", found, wanted);
}

// --- what a file says ------------------------------------------------------------------------------------------------

static void places_are_of_the_file(void **state) {
    (void)state;
    char *dir = make_dir(), path[1024];
    plan_world w, same;
    write_text(dir, "c.ini", whole);
    snprintf(path, sizeof path, "%s/c.ini", dir);
    OK(plan_world_any(&w, path));
    OK(plan_world_any(&same, "12x4x3"));
    assert_true(w.world == 48 && w.nodes == 12 && w.racks == 3);
    for (int r = 0; r < 48; r++) {
        comm_spot a = plan_where(&w, r), b = plan_where(&same, r);
        assert_true(a.node == b.node && a.local == b.local && a.rack == b.rack && a.join == b.join);
        assert_true(a.node == r / 4 && a.local == r % 4 && a.rack == r / 16);
    }
    plan_world_close(&w), plan_world_close(&same);
    write_text(dir, "c.ini", "[cluster]\nnodes = 1000000\n");
    assert_int_equal(plan_world_any(&w, path), ERR_CONFIG);
    assert_non_null(strstr(err_last()->text, "are 8000000 devices: a plan has at most 131072"));
    assert_true(cluster_is_file("./c") && cluster_is_file("c.ini") && !cluster_is_file("12x4x3"));
    drop_dir(dir);
}

// Devices that share a card have a share of its rate; what was measured of a level that the file describes is left out.
static void links_are_of_the_file(void **state) {
    (void)state;
    cluster_file f;
    costs k;
    read_text(&f, whole);
    OK(costs_parse(&k, "test", table));
    OK(cluster_file_costs(&k, &f, "c.ini"));
    near(call(&k, COSTS_NODE, 3e9), 3e9 / 300e9 + 5e-6);
    near(call(&k, COSTS_RACK, 2e9), 2e9 / 20e9 + 10e-6);
    near(call(&k, COSTS_SPINE, 1e9), 1e9 / 5e9 + 20e-6);
    near(costs_of_call(&k, CALL_ALL_REDUCE, COSTS_SPINE, 2, 1e9).error, 0.3 * call(&k, COSTS_SPINE, 1e9));
    assert_true(k.stragglers.share == 0.25 && k.stragglers.slower == 1.5 && k.stragglers.seed == 9);
    costs_free(&k);

    read_text(&f, "[links]\nrack_us = 70\n");  // only that level
    OK(costs_parse(&k, "test", table));
    OK(cluster_file_costs(&k, &f, "c.ini"));
    near(call(&k, COSTS_NODE, 1e6), 100e-6);
    near(call(&k, COSTS_RACK, 2e9), 2e9 / 20e9 + 70e-6);
    near(call(&k, COSTS_SPINE, 1e6), 300e-6);
    costs_free(&k);

    read_text(&f, "[links]\nrack_gb_s = 4\n");  // a slow network is no faster between racks
    OK(costs_parse(&k, "test", table));
    OK(cluster_file_costs(&k, &f, "c.ini"));
    near(call(&k, COSTS_RACK, 2e9), 2e9 / 4e9 + 30e-6);
    near(call(&k, COSTS_SPINE, 2e9), 2e9 / 4e9 + 60e-6);
    costs_free(&k);

    read_text(&f, "[cluster]\ncard_devices = 2\n");  // both have their shares: a slower spine stays slower
    OK(costs_parse(&k, "test", table));
    k.link[COSTS_SPINE].rate.is = 12e9;
    OK(cluster_file_costs(&k, &f, "c.ini"));
    near(call(&k, COSTS_NODE, 1e6), 100e-6);
    near(call(&k, COSTS_RACK, 2e9), 2e9 / 10e9 + 30e-6);
    near(call(&k, COSTS_SPINE, 2e9), 2e9 / 6e9 + 60e-6);
    costs_free(&k);

    read_text(&f, "[links]\nnode_gb_s = 0.5\nnode_us = 0\nspine_us = 0.5\n");  // small numbers are numbers
    OK(costs_parse(&k, "test", table));
    OK(cluster_file_costs(&k, &f, "c.ini"));
    near(call(&k, COSTS_NODE, 1e9), 2);
    near(call(&k, COSTS_RACK, 1e6), 200e-6);
    near(call(&k, COSTS_SPINE, 1e9), 1e9 / 20e9 + 0.5e-6);
    costs_free(&k);

    read_text(&f, "[cluster]\nnodes = 2\n");  // says nothing of links
    OK(costs_parse(&k, "test", table));
    OK(cluster_file_costs(&k, &f, "c.ini"));
    for (int level = 0; level < COSTS_LEVELS; level++) near(call(&k, (costs_level)level, 1e6), 100e-6 * (level + 1));
    assert_true(k.stragglers.share == 0);
    costs_free(&k);
}

static void a_rate_must_be_known(void **state) {
    (void)state;
    cluster_file f;
    costs k;
    read_text(&f, "[cluster]\ncard_devices = 8\n");
    OK(costs_parse(&k, "test", "lockstep costs 2\ndevice test\ncopy 1e12 bytes/s 0.1 spread\nend 1\n"));
    assert_int_equal(cluster_file_costs(&k, &f, "c.ini"), ERR_CONFIG);
    assert_non_null(strstr(err_last()->text, "c.ini: [links] rack_gb_s: expected GB/s"));
    read_text(&f, "[cluster]\ncard_devices = 8\n[links]\nrack_gb_s = 8\n");
    OK(cluster_file_costs(&k, &f, "c.ini"));
    near(call(&k, COSTS_RACK, 1e9), 1);
    near(call(&k, COSTS_SPINE, 1e9), 1);
    costs_free(&k);
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"[cluster]\nnodes = 10\nracks = 3\n", "racks = 3, and there are 10 nodes: expected a number that"},
        {"[cluster]\ncard_devices = 3\n", "card_devices = 3, and a node has 8 devices: expected"},
        {"[links]\nnode_gb_s = 0\n", ":2: [links] node_gb_s: expected a number from 1e-06 to 1e+09, found `0`"},
        {"[links]\nrack_gb_s = fast\n", ":2: [links] rack_gb_s: expected a number"},
        {"[links]\nsocket_us = 1\n", ":2: [links] socket_us: no such key; a cluster's file has [cluster] nodes"},
        {"[links]\nsocket_us = 1\n", "card_devices; [links] node_gb_s, node_us, rack_gb_s, rack_us, spine_gb_s"},
        {"[stragglers]\nshare = 1.5\n", ":2: [stragglers] share: expected a number from 0 to 1"},
        {"[stragglers]\nslower = 0.5\n", ":2: [stragglers] slower: expected a number from 1"},
        {"[failures]\nsave_gb_s = 0\n", ":2: [failures] save_gb_s: expected a number from"},
        {"[cluster]\nnodes = 1\nnodes = 2\n", ":3"}};
    char *dir = make_dir(), path[1024];
    cluster_file f;
    snprintf(path, sizeof path, "%s/c.ini", dir);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_text(dir, "c.ini", wrong[i].text);
        assert_int_equal(cluster_file_read(&f, path), ERR_CONFIG);
        if (!strstr(err_last()->text, wrong[i].says)) fail_msg("`%s`: %s", wrong[i].text, err_last()->text);
    }
    drop_dir(dir);
}

// --- slow devices ----------------------------------------------------------------------------------------------------

static bool is_part(const bool *a, const bool *b, int n) {
    for (int i = 0; i < n; i++)
        if (a[i] && !b[i]) return false;
    return true;
}

static void sets_are_the_worst(void **state) {
    (void)state;
    const grid g = {.data = 20, .tensor = 2, .pipeline = 6};
    for (uint64_t seed = 0; seed < 50; seed++) {
        straggler_sets s;
        OK(stragglers_draw(&s, &g, 0.1, seed));
        assert_int_equal(s.devices, 24);
        assert_true(s.count >= 1 && s.count <= STRAGGLER_SETS && s.stages == 6);
        for (int i = 0; i < s.count; i++)
            for (int k = 0; k < s.count; k++) {
                bool part = is_part(&s.slow[i * 6], &s.slow[k * 6], 6);
                if (part != (i == k)) fail_msg("seed %d: set %d is part of set %d", (int)seed, i, k);
            }
        stragglers_free(&s);
    }
}

static void as_many_as_the_share(void **state) {
    (void)state;
    const grid g = {.data = 4, .tensor = 1, .pipeline = 3};
    straggler_sets s;
    int of_stage[3] = {0};
    OK(stragglers_draw(&s, &g, 0, 1));
    assert_true(s.devices == 0 && s.count == 0);
    stragglers_free(&s);
    OK(stragglers_draw(&s, &g, 1, 1));
    assert_true(s.devices == 12 && s.count == 1 && s.slow[0] && s.slow[1] && s.slow[2]);
    stragglers_free(&s);
    for (uint64_t seed = 0; seed < 3000; seed++) {  // one device: each stage is as likely
        OK(stragglers_draw(&s, &g, 1.0 / 12, seed));
        assert_true(s.devices == 1 && s.count == 1 && s.slow[0] + s.slow[1] + s.slow[2] == 1);
        for (int k = 0; k < 3; k++) of_stage[k] += s.slow[k];
        stragglers_free(&s);
    }
    for (int k = 0; k < 3; k++) assert_in_range(of_stage[k], 1000 - 110, 1000 + 110);  // 4 deviations of 26
}

// Two slow devices of four, which are two pipelines of two islands: in a third of all draws they are in stages that
// differ of pipelines that differ, and no pipeline has both.
static void islands_have_pipelines_of_their_own(void **state) {
    (void)state;
    const grid g = {.data = 1, .tensor = 1, .pipeline = 2, .islands = 2};
    int apart = 0;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        straggler_sets s;
        OK(stragglers_draw(&s, &g, 0.5, seed));
        assert_true(s.devices == 2 && (s.count == 1 || s.count == 2));
        if (s.count == 2) assert_true(s.slow[0] + s.slow[1] == 1 && s.slow[2] + s.slow[3] == 1);
        apart += s.count == 2;
        stragglers_free(&s);
    }
    assert_in_range(apart, 1000 - 110, 1000 + 110);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(places_are_of_the_file),
                                       cmocka_unit_test(links_are_of_the_file),
                                       cmocka_unit_test(a_rate_must_be_known),
                                       cmocka_unit_test(mistakes_are_named),
                                       cmocka_unit_test(sets_are_the_worst),
                                       cmocka_unit_test(as_many_as_the_share),
                                       cmocka_unit_test(islands_have_pipelines_of_their_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
