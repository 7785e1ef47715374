// test/test_frozen.c: weights beside adapters that are kept in 8 bits (trainer/step/frozen_values.h): what each code
// and each scale is, for chosen values and for others, in matrices of several chunks and of slices. The hash is of all
// of them, and what is no number is named.
#include "test/support/expect.h"
#include "test/support/foreign.h"

#include "model/weights.h"
#include "trainer/session/restore.h"

#include <math.h>

enum { KINDS = 10 };

static const char settings[] = "[data]\nformat = raw16\n[model]\ntype = llama\nlayers = 1\nheads = 2\nkv_heads = 2\n"
                               "embed = 128\ncontext = 8\nvocab = 128\n" SMALL_BATCH(4, 2, 2);

static void open_run(session *x, config *c, const char *dir, const char *more) {
    load_config(c, dir, settings, more);
    OK(session_open(x, c, SESSION_TRAIN, NULL));
}

static float random_value(int64_t e) {
    uint32_t word = (uint32_t)e * 2654435761u;
    word ^= word >> 15, word *= 2246822519u, word ^= word >> 13;
    return (float)word / 0x1p31f - 1;
}

// Element i of a group of WIDEN_GROUP.
static float value_of(int kind, int i, int64_t e) {
    switch (kind) {
    case 0: return i == 63 ? 127 : (float)i - 31.5f;             // halves, and the largest at the end
    case 1: return i == 0 ? -127 : (float)(2 * i - 64) + 0.75f;  // a negative one is the largest, at the beginning
    case 2: return i == 31 ? 127 : i % 2 ? 126.5f : -126.5f;     // halves beside the largest
    case 3: return i == 5 ? 127 : (float)(i % 8 - 4) * 0.249f;   // what is near zero
    case 4: return 0;
    case 5: return i == 7 ? 0x1.fffffep-97f : -0x1p-97f;  // too small for a scale
    case 6: return i == 9 ? -0x1p-96f : 0x1p-97f;         // the smallest that has one
    case 7: return i == 63 ? -5 : 0;                      // one alone
    case 8: return 3e30f * random_value(e);
    default: return 0.02f * random_value(e);
    }
}

// Files with the names and shapes of the run's rows. bad: the value of the last element of all; 0: as the others.
static void write_weights(const session *x, const char *path, float bad) {
    const model *m = x->net;
    st_tensor table[64] = {0};
    st_writer w;
    int n = 0, k = 0;
    for (int i = 0; i < m->params; i++) {
        weight_part part[WEIGHT_PARTS];
        int parts = m->param[i].tied >= 0 || strstr(m->param[i].name, ".lora_")
                        ? 0
                        : m->type->parts(m->options, &m->param[i], part);
        for (int p = 0; p < parts; p++, n++) {
            table[n] = (st_tensor){.type = ST_F32, .dims = m->param[i].dims};
            table[n].size[0] = part[p].rows, table[n].size[1] = m->param[i].size[1];
            snprintf(table[n].name, ST_NAME, "%s%s", part[p].prefixed ? m->type->prefix : "", part[p].name);
            assert_null(st_count_bytes(&table[n]));
        }
    }
    OK(st_create(&w, path, table, n, NULL, NULL));
    for (k = 0; k < n; k++) {
        int64_t count = table[k].bytes / 4;
        float *values = malloc((size_t)table[k].bytes);
        for (int64_t e = 0; e < count; e++)
            values[e] = value_of((int)(e / WIDEN_GROUP % KINDS), (int)(e % WIDEN_GROUP), e + k);
        if (bad != 0 && strstr(table[k].name, "down_proj")) values[count - 1] = bad;
        OK(st_put(&w, values, (size_t)table[k].bytes));
        free(values);
    }
    OK(st_finish(&w, NULL));
}

// Element e, of a group whose largest is `most`, as `code` times `scale`.
static void expect_code(const char *name, int64_t e, float value, float most, int code, float scale) {
    bool none = most < 0x1p-96f;
    double exact = none ? 0 : (double)value / (double)most * 127, off = fabs((double)code - exact);
    bool right = off <= 0.5 + 1e-4;
    if (most == 127) right = code == (int)nearbyint((double)value);  // halves to even
    if (fabs((double)value) >= (double)most && !none) right = code == (value < 0 ? -127 : 127);
    if (!right) fail_msg("%s[%lld] = %g: code %d, expected %g", name, (long long)e, (double)value, code, exact);
    if (scale != (none ? 0 : most / 127))
        fail_msg("%s[%lld]: scale %g, expected %g", name, (long long)e, (double)scale, (double)(most / 127));
}

// The codes of all rows that have some, beside the values of the file.
static int expect_codes(session *x, const weights_map *map) {
    int rows = 0;
    for (int i = 0; i < x->net->params; i++) {
        const param *p = &x->net->param[i];
        const tensor *w = &x->state.w[i];
        int64_t n = shape_count(p->dims, p->size), run;
        if (!p->int8) continue;
        assert_int_equal(w->type, UINT8);
        const int8_t *code = w->data;
        float *value = malloc((size_t)n * sizeof *value);
        OK(weights_read(map, i, 0, n, 7, value));
        const ckpt_order order = state_order(&x->state, i);
        for (int64_t e = 0; e < n; e++) {
            int64_t at = param_slices(p) == 1 ? e : order_stored(&order, e, &run);
            const float *group = value + e / WIDEN_GROUP * WIDEN_GROUP;
            float most = 0, scale;
            for (int k = 0; k < WIDEN_GROUP; k++) most = fmaxf(most, fabsf(group[k]));
            memcpy(&scale, (const char *)code + n + at / WIDEN_GROUP * 4, sizeof scale);
            expect_code(p->name, e, value[e], most, code[at], scale);
        }
        free(value);
        rows++;
    }
    return rows;
}

static const char adapters[] = "[lora]\nrank = 2\ntargets = o_proj\nweights = int8\n";

// hidden = 320: the last chunk of a matrix is a part of one. With slices each is as long as one chunk and a half.
static void expect_frozen(const char *shape) {
    char *dir = data_dir(), path[PATH_MAX], more[PATH_MAX + 256], hash[17];
    session x;
    config c;
    weights *w;
    weights_map *map;
    open_run(&x, &c, dir, shape);
    snprintf(path, sizeof path, "%s/theirs.safetensors", dir);
    write_weights(&x, path, 0);
    session_close(&x);
    snprintf(more, sizeof more, "%s%s[model]\ninit_from = %s\n", shape, adapters, path);
    open_run(&x, &c, dir, more);
    OK(session_freeze(&x));
    OK(weights_open(&w, path));
    OK(weights_match(&map, w, x.net, &c.model.of, 0));
    assert_int_equal(expect_codes(&x, map), 4);  // queries, keys and values; o; gate and up; down
    weights_map_close(map), weights_close(w);
    snprintf(hash, sizeof hash, "%s", x.state.frozen.hash);
    assert_int_equal(strlen(hash), 16);
    OK(session_freeze(&x));
    assert_string_equal(x.state.frozen.hash, hash);
    write_weights(&x, path, -1e-30f);  // too little for a code
    OK(session_freeze(&x));
    assert_string_not_equal(x.state.frozen.hash, hash);
    write_weights(&x, path, -INFINITY);
    assert_error(session_freeze(&x), ERR_DATA, "layers.0.mlp.down_proj.weight: -inf is no weight");
    write_weights(&x, path, NAN);
    assert_error(session_freeze(&x), ERR_DATA, "layers.0.mlp.down_proj.weight: ", "nan is no weight");
    session_close(&x);
    drop_dir(dir);
}

static void codes_are_the_nearest(void **state) {
    (void)state;
    expect_frozen("[model]\nhidden = 320\n");
    expect_frozen("[model]\nhidden = 384\n[parallel]\nslices = 2\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
