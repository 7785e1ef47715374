// test/test_checkpoint_slices.c: tensors that ranks divide along an axis: saved and loaded with the same and with other
// slices, by any ranks in any order, each element by its coordinates; damage is found, and forged slices are refused.
#include "model/safetensors.h"
#include "test/support/checkpoint_ranks.h"
#include "test/support/forge.h"
#include "trainer/checkpoint/order.h"

#include <inttypes.h>
#include <jansson.h>

// --- any slices, any ranks -------------------------------------------------------------------------------------------

static void test_any_slices(void **state) {
    enum { SLICINGS = sizeof slicings / sizeof *slicings };
    const nodes *n = *state;
    const int worlds[] = {1, 2, 4, 3};
    outcome expected[SLICINGS];
    for (int s = 0; s < SLICINGS; s++) {
        hashes_of(&expected[s], s, 7, 3);
        for (int k = 0; k < s; k++) assert_string_not_equal(expected[s].hash, expected[k].hash);
    }
    for (int from = 0; from < SLICINGS; from++)
        for (int k = 0; k < 2; k++) {
            int world = worlds[(from + 2 * k + 1) % 4];
            job save = {.where = n,
                        .nodes = 1,
                        .ranks = {world},
                        .deal = (uint32_t)k,
                        .slicing = from,
                        .turned = k ? world - 1 : 0,
                        .keep = 1};
            wipe(n);
            saves(&save, 7, 3);
            assert_string_equal(save.out->hash, expected[from].hash);
            assert_string_equal(save.out->state_hash, expected[from].state_hash);
            node_has(n, 0, 7, &expected[from]);
            for (int to = 0; to < SLICINGS; to++) {
                job load = {.where = n,
                            .nodes = 1,
                            .ranks = {worlds[(to + k) % 4]},
                            .deal = (uint32_t)(1 - k),
                            .slicing = to,
                            .turned = to,
                            .step = 7,
                            .salt = 3};
                const outcome *o = resumes_at(&load, 7, 3, 0);
                assert_string_equal(o->hash, expected[to].hash);
                assert_string_equal(o->state_hash, expected[to].state_hash);
                all_ranks_do(&load, body_load_masters);
                end_job(&load);
            }
            end_job(&save);
        }
}

// Which parts a rank reads: those with an element that it has, and no other. Against a table of who has what.
static void test_overlaps(void **state) {
    (void)state;
    enum { N = 24, ORDERS = 8 };
    const int64_t size[] = {6, 2, 2};
    static const struct {
        int axis, slices;
        ckpt_split split;
    } ways[ORDERS] = {{0, 1, {0}},
                      {0, 2, {0}},
                      {1, 2, {0}},
                      {0, 6, {0}},
                      {2, 2, {0}},
                      {0, 4, {.padded = 8}},
                      {0, 2, {.rows = {4, 2}}},
                      {0, 2, {.rows = {2, 2, 2}}}};
    for (int from = 0; from < ORDERS; from++)
        for (int to = 0; to < ORDERS; to++) {
            const ckpt_order o = order_of(3, size, ways[from].axis, ways[from].slices, &ways[from].split);
            ckpt_tensor t = {.dims = 3,
                             .size = {6, 2, 2},
                             .axis = ways[to].axis,
                             .slices = ways[to].slices,
                             .split = ways[to].split,
                             .first = 5,
                             .count = 6};
            const ckpt_order mine = ckpt_order_of(&t);
            bool has[N] = {false};
            int64_t run;
            for (int64_t k = t.first; k < t.first + t.count; k++) has[order_logical(&mine, k, &run)] = true;
            for (int64_t k = 0; k < N; k++) assert_int_equal(order_stored(&o, order_logical(&o, k, &run), &run), k);
            for (int64_t first = 0; first < N; first++)
                for (int64_t end = first + 1; end <= N; end++) {
                    bool any = false;
                    for (int64_t k = first; k < end; k++) any = any || has[order_logical(&o, k, &run)];
                    assert_int_equal(order_overlaps(&o, first, end - first, &t), any);
                }
        }
}

// Where rows of several matrices and of unequal slices are.
static void test_splits(void **state) {
    (void)state;
    static const struct {
        int slices;
        ckpt_split split;
        int row[8];  // of 8, as they are stored
        int64_t each, chunks;
    } ways[] = {
        {2, {.rows = {4, 2, 2}}, {0, 1, 4, 6, 2, 3, 5, 7}, 12, 2},
        {2, {.rows = {2, 6}}, {0, 2, 3, 4, 1, 5, 6, 7}, 12, 2},
        {4, {.padded = 12}, {0, 1, 2, 3, 4, 5, 6, 7}, 9, 3},
        {8, {.padded = 32}, {0, 1, 2, 3, 4, 5, 6, 7}, 12, 2},
    };
    const int64_t size[] = {8, 3};
    int64_t run;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        assert_true(order_is_possible(2, size, 0, ways[i].slices, &ways[i].split));
        const ckpt_order o = order_of(2, size, 0, ways[i].slices, &ways[i].split);
        assert_int_equal(o.each, ways[i].each);
        assert_int_equal(order_chunk(&o, o.all), ways[i].chunks);
        for (int64_t k = 0; k < 24; k++) {
            assert_int_equal(order_logical(&o, k, &run), ways[i].row[k / 3] * 3 + k % 3);
            assert_int_equal(order_stored(&o, ways[i].row[k / 3] * 3 + k % 3, &run), k);
            assert_true(order_left(&o, k) >= 1 && order_left(&o, k) <= o.each && k + order_left(&o, k) <= 24);
        }
    }
    static const struct {
        int axis, slices;
        ckpt_split split;
    } bad[] = {{0, 2, {.rows = {4, 2}}},
               {0, 2, {.rows = {3, 5}}},
               {0, 2, {.rows = {0, 8}}},
               {0, 2, {.rows = {4, 6, -2}}},
               {1, 3, {.rows = {4, 4}}},
               {0, 4, {.padded = 6}},
               {0, 4, {.padded = 10}},
               {1, 3, {.padded = 12}},
               {0, 1, {.padded = 12}},
               {0, 2, {8, {4, 4}}},
               {0, 4, {.padded = INT64_MAX - 3}},
               {0, 2, {.rows = {INT64_MAX - 1, 2, 8}}}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(order_is_possible(2, size, bad[i].axis, bad[i].slices, &bad[i].split));
}

// --- what is written -------------------------------------------------------------------------------------------------

static json_t *manifest_of(const nodes *n, int64_t step) {
    char path[IO_PATH];
    node_path(path, n, 0, step, "manifest.json");
    json_t *m = json_load_file(path, 0, NULL);
    assert_non_null(m);
    return m;
}

// A part for each slice that a rank has something of, under a name of its own; slices and version 4 only where there
// are any.
static void test_what_is_written(void **state) {
    const nodes *n = *state;
    char path[IO_PATH];
    st_file f;
    job j = {.where = n, .nodes = 1, .ranks = {2}, .slicing = 1, .keep = 1},
        plain = {.where = n, .nodes = 1, .ranks = {2}, .keep = 1};
    wipe(n);
    saves(&j, 1, 0);
    node_path(path, n, 0, 1, "model-00001-of-00002.safetensors");
    OK(st_open(&f, path));
    static const struct {
        const char *name;
        int64_t count;
    } parts[] = {
        {"emb@2:0", 95000}, {"emb@3:0", 95000}, {"w@1:0", CHUNK}, {"b.bias@1:0", 2},
        {"s", 1},           {"h@1:0", 7001},    {"h@2:0", 7001},
    };
    assert_int_equal(f.count, 7);
    for (int i = 0; i < 7; i++) {
        const st_tensor *t = st_find(&f, parts[i].name);
        if (!t || t->bytes != parts[i].count * 4)
            fail_msg("%s: no %s of %" PRId64 " elements", path, parts[i].name, parts[i].count);
    }
    st_close(&f);
    json_t *m = manifest_of(n, 1), *t = json_array_get(json_object_get(m, "tensors"), 0);
    assert_int_equal(json_integer_value(json_object_get(m, "version")), 4);
    assert_int_equal(json_integer_value(json_object_get(t, "axis")), 1);
    assert_int_equal(json_integer_value(json_object_get(t, "slices")), 4);
    for (int k = 0; k < 4; k++) {
        json_t *part = json_array_get(json_object_get(t, "parts"), (size_t)k);
        assert_int_equal(json_integer_value(json_object_get(part, "slice")), k);
        assert_int_equal(json_integer_value(json_object_get(part, "first")), 0);
        assert_int_equal(json_integer_value(json_object_get(part, "count")), 95000);
    }
    assert_null(json_object_get(json_array_get(json_object_get(m, "tensors"), 3), "slices"));  // of s there is one
    json_decref(m);
    saves(&plain, 2, 0);
    m = manifest_of(n, 2), t = json_array_get(json_object_get(m, "tensors"), 0);
    assert_int_equal(json_integer_value(json_object_get(m, "version")), 3);
    assert_null(json_object_get(t, "slices"));
    assert_null(json_object_get(json_array_get(json_object_get(t, "parts"), 0), "slice"));
    json_decref(m);
    end_job(&j), end_job(&plain);
}

// --- what can't be saved ---------------------------------------------------------------------------------------------

static void refused(rank_of *r, const char *why) {
    err_t rc = ckpt_prepare(&r->d.s);
    MUST(rc == ERR_INTERNAL && strstr(err_last()->text, why), "%d %s", rc, rc ? err_last()->text : "");
}

static void body_bad_slices(rank_of *r) {
    ckpt_tensor *t = r->d.tensor[0], *m = r->d.tensor[1], keep = t[0];
    ckpt_release(&r->d.s);
    t[0].slices = 3, refused(r, "divide dimension 1"), t[0] = keep;
    t[0].axis = 2, refused(r, "divide dimension 2"), t[0] = keep;
    t[0].axis = -1, refused(r, "divide dimension -1"), t[0] = keep;
    t[0].slices = -4, refused(r, "in -4 slices"), t[0] = keep;
    t[0].size[1] = 0, refused(r, "of 1 or more"), t[0] = keep;
    m[0].slices = 2, refused(r, "as its master"), m[0].slices = 4;
    // 16 chunks: 5 whole and a short one, twice, and 4. Two ranks may meet there, or where a slice ends, and nowhere
    // else.
    int64_t cut = 2 * 95000 + 4 * CHUNK, places[] = {12 * CHUNK, cut + 1, cut};
    for (int k = 0; k < 3; k++) {
        t[0].first = r->rank ? places[k] : 0, t[0].count = r->rank ? 380000 - places[k] : places[k];
        if (k < 2) refused(r, "tensor emb: rank 0 has");
        else DOES(ckpt_prepare(&r->d.s));
    }
    t[0].slices = 1;
    m[0].slices = 1;
    r->d.tensor[2][0].slices = 1;
    if (r->rank == 1) t[0].axis = 0;  // which means nothing without slices
    ckpt_release(&r->d.s);
    refused(r, "tensor emb: rank 0 has");  // no whole chunks of an unsliced tensor
    t[0] = keep, m[0].slices = 4, r->d.tensor[2][0].slices = 4;
    if (r->rank == 1) t[0].slices = m[0].slices = r->d.tensor[2][0].slices = 2;
    refused(r, "the same tensors");
    t[0].slices = m[0].slices = r->d.tensor[2][0].slices = 4;
    DOES(ckpt_prepare(&r->d.s));
}

static void test_bad_slices(void **state) {
    job j = {.where = *state, .nodes = 1, .ranks = {2}, .slicing = 1};
    wipe(j.where);
    all_ranks_do(&j, body_bad_slices);
    end_job(&j);
}

// --- damage ----------------------------------------------------------------------------------------------------------

// It is found by those who read with these slices, with others and with none.
static void test_damage(void **state) {
    const nodes *n = *state;
    static const struct {
        const char *file, *says;
        int64_t from_end;
    } damage[] = {
        {"model-00001-of-00002.safetensors", "tensor h (slice 2, elements 0 to 7000:", 10},
        {"model-00000-of-00002.safetensors", "tensor emb (slice 1, elements 0 to 94999:", (7001 + 2 + CHUNK + 1) * 4},
        {"optimizer-00001-of-00002.safetensors", "tensor v/s (4 bytes", 7001 * 8 + 2},
    };
    for (int i = 0; i < 3; i++) {
        char path[IO_PATH];
        size_t bytes;
        job j = {.where = n, .nodes = 1, .ranks = {2}, .slicing = 1, .keep = 3};
        wipe(n);
        saves(&j, 1, 0);
        saves(&j, 2, 0);
        node_path(path, n, 0, 2, damage[i].file);
        char *text = slurp(path, &bytes);
        text[bytes - (size_t)damage[i].from_end] ^= 8;
        spill(path, text, bytes);
        free(text);
        for (int to = 0; to < 3; to++) {
            job load = {.where = n, .nodes = 1, .ranks = {to + 1}, .deal = (uint32_t)to, .slicing = to};
            resumes_at(&load, 1, 0, 1);
            if (!strstr(load.out->complaint, damage[i].says) || !strstr(load.out->complaint, damage[i].file))
                fail_msg("\"%s\" does not name %s and %s", load.out->complaint, damage[i].file, damage[i].says);
            end_job(&load);
        }
        end_job(&j);
    }
}

// --- forged ----------------------------------------------------------------------------------------------------------

static void test_forged_slices(void **state) {
    const nodes *n = *state;
    static const char *const changes[][2] = {
        {"\"slices\": 4", "\"slices\": 0"},
        {"\"slices\": 4", "\"slices\": 3"},
        {"\"slices\": 4", "\"slices\": -4"},
        {"\"slices\": 4", "\"slices\": 4294967300"},
        {"\"slices\": 4", "\"slices\": 2"},
        {"\"slices\": 4", "\"slices\": \"4\""},
        {"\"axis\": 1", "\"axis\": 0"},
        {"\"axis\": 1", "\"axis\": 2"},
        {"\"axis\": 1", "\"axis\": 4294967297"},
        {"\"axis\": 1", "\"axes\": 1"},
        {"\"slice\": 1", "\"slice\": 2"},
        {"\"slice\": 1", "\"slice\": 0"},
        {"\"slice\": 1", "\"slice\": -1"},
        {"\"slice\": 1", "\"slice\": 4294967297"},
        // which knows no slices: the parts are too short
        {"\"slice\": 0", "\"slide\": 0"},
        {"\"version\": 4", "\"version\": 3"},
    };
    char path[IO_PATH];
    size_t bytes;
    job j = {.where = n, .nodes = 1, .ranks = {2}, .slicing = 1, .keep = 2};
    wipe(n);
    saves(&j, 1, 0);
    saves(&j, 2, 0);
    node_path(path, n, 0, 2, "manifest.json");
    char *text = slurp(path, &bytes);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        forge(path, text, changes[i][0], changes[i][1]);
        all_ranks_do(&j, body_resume);
        const outcome *o = same_on_all(&j);
        if (o->rc != ERR_OK || !o->found || o->step != 1 || o->complaints != 1)
            fail_msg("%s as %s was believed: %s", changes[i][0], changes[i][1], o->text);
    }
    free(text);
    end_job(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        NODES(test_any_slices),      cmocka_unit_test(test_overlaps), cmocka_unit_test(test_splits),
        NODES(test_what_is_written), NODES(test_bad_slices),          NODES(test_damage),
        NODES(test_forged_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
