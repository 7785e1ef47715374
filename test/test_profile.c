// test/test_profile.c: a profiled device counts of each operation what the rows of test/ops say that it must move and
// compute, and computes the same bits as one that is not profiled.
#include "test/ops/op_test.h"

#include "gpu/profile.h"
#include "test/support/run.h"

#include <string.h>

typedef struct rig {
    device *dev;
    stream *s;
} rig;

static rig rig_open(bool profile) {
    rig r;
    OK(device_open(&r.dev, &(device_options){.kind = DEVICE_CPU, .threads = 1, .profile = profile}));
    OK(stream_open(r.dev, &r.s));
    return r;
}

static void rig_close(rig *r) {
    stream_close(r->s);
    device_close(r->dev);
}

// One call of a row whose arguments lie in host memory.
static void call_row(op_run *run, rig *r) {
    tensor *t[ARGS] = {0};
    for (int i = 0; i < run->count; i++)
        if (!run->arg[i].absent) t[i] = &run->arg[run->arg[i].alias ? run->arg[i].alias - 1 : i].t;
    OK(kind_of(run->row->op)->call(run, device_ops(r->dev), t, r->s));
    OK(stream_wait(r->s));
}

static double within(double got, double want) { return got >= want * (1 - 1e-12) && got <= want * (1 + 1e-12); }

// Of all lines, which are of this operation.
static profile_line sum_of(const profile_line *line, int count, const char *op) {
    profile_line sum = {0};
    for (int i = 0; i < count; i++) {
        assert_string_equal(line[i].op, op);
        assert_true(line[i].seconds > 0);
        sum.calls += line[i].calls, sum.bytes += line[i].bytes, sum.flops += line[i].flops;
    }
    return sum;
}

static void counts_what_the_rows_count(void **state) {
    (void)state;
    rig r = rig_open(true);
    profile_line line[PROFILE_LINES];
    int seen[OP_COUNT] = {0};
    for (int i = 0; i < test_row_count; i++) {
        const op_row *row = &test_rows[i];
        op_run run;
        double bytes, flops;
        char name[200];
        // only the device knows that a step was decided against
        if (row->options & OPT_SKIP || seen[row->op]++ > 8) continue;
        run_open(&run, row, true);
        row_name(name, sizeof name, row);
        profile_clear(device_profile(r.dev));
        call_row(&run, &r);
        kind_of(row->op)->cost(&run, &bytes, &flops);
        profile_line sum = sum_of(line, profile_read(device_profile(r.dev), line), kind_of(row->op)->name);
        assert_int_equal(sum.calls, row->op == OP_cross_entropy_part ? 3 : 1);  // its stages
        // Which rows of its tables an embedding's gradient touches follows from the tokens, which a profile does not
        // look at.
        bool near = row->op == OP_embedding_backward ? sum.bytes >= bytes : within(sum.bytes, bytes);
        if (!near || !within(sum.flops, flops))
            fail_msg("%s: %.0f bytes, %.0f flops; the row says %.0f and %.0f", name, sum.bytes, sum.flops, bytes,
                     flops);
        run_close(&run);
    }
    for (int k = 0; k < OP_COUNT; k++) assert_true(seen[k] > 0);
    rig_close(&r);
}

// Outputs of two devices, which began with the same content.
static void changes_no_bit(void **state) {
    (void)state;
    rig plain = rig_open(false), profiled = rig_open(true);
    assert_null(device_profile(plain.dev));
    int seen[OP_COUNT] = {0};
    for (int i = 0; i < test_row_count; i++) {
        op_run one, two;
        if (seen[test_rows[i].op]++ > 1) continue;
        run_open(&one, &test_rows[i], true);
        run_open(&two, &test_rows[i], true);
        call_row(&one, &plain);
        call_row(&two, &profiled);
        for (int k = 0; k < one.count; k++)
            assert_memory_equal(one.arg[k].t.data, two.arg[k].t.data, tensor_bytes(&one.arg[k].t));
        run_close(&one);
        run_close(&two);
    }
    rig_close(&plain);
    rig_close(&profiled);
}

static void lines_are_sums_by_shape(void **state) {
    (void)state;
    rig r = rig_open(true);
    profile_line line[PROFILE_LINES];
    static float a[4096], b[4096];
    tensor x = {a, FP32, 1, {4096, 1, 1, 1}}, y = {b, FP32, 1, {4096, 1, 1, 1}};
    const ops *o = device_ops(r.dev);
    OK(o->add(&(add_args){.y = &y, .a = &x, .b = &x}, r.s));
    OK(o->add(&(add_args){.y = &y, .a = &x, .b = &x}, r.s));
    tensor half = view1(&x, 2048), to = view1(&y, 2048);
    OK(o->add(&(add_args){.y = &to, .a = &half, .b = &half}, r.s));
    OK(stream_zero(r.s, b, 100));
    OK(stream_copy(r.s, b, a, 200));
    assert_int_equal(profile_read(device_profile(r.dev), line), 4);
    double bytes = 0;
    int64_t calls = 0;
    for (int i = 0; i < 4; i++) {
        bytes += line[i].bytes, calls += line[i].calls;
        if (i) assert_true(line[i - 1].seconds >= line[i].seconds);
        if (!strcmp(line[i].shape, "4096 fp32")) assert_int_equal(line[i].calls, 2);
        if (!strcmp(line[i].op, "zero")) assert_string_equal(line[i].shape, "100 bytes");
    }
    assert_int_equal(calls, 5);
    assert_true(bytes == 2 * 3 * 4 * 4096.0 + 3 * 4 * 2048.0 + 100 + 400);
    profile_clear(device_profile(r.dev));
    assert_int_equal(profile_read(device_profile(r.dev), line), 0);
    rig_close(&r);
}

// More shapes than there are lines: nothing is lost.
static void many_shapes_end_in_others(void **state) {
    (void)state;
    rig r = rig_open(true);
    static float a[PROFILE_LINES + 50], b[PROFILE_LINES + 50];
    static profile_line line[PROFILE_LINES];
    double bytes = 0, want = 0;
    int64_t calls = 0;
    for (int n = 1; n <= PROFILE_LINES + 50; n++) {
        OK(stream_copy(r.s, b, a, (size_t)n * sizeof *a));
        want += 2.0 * n * sizeof *a;
    }
    assert_int_equal(profile_read(device_profile(r.dev), line), PROFILE_LINES);
    bool others = false;
    for (int i = 0; i < PROFILE_LINES; i++) {
        bytes += line[i].bytes, calls += line[i].calls;
        if (strcmp(line[i].op, "others") == 0) others = true, assert_int_equal(line[i].calls, 51);
    }
    assert_true(others && bytes == want);
    assert_int_equal(calls, PROFILE_LINES + 50);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_what_the_rows_count),
        cmocka_unit_test(changes_no_bit),
        cmocka_unit_test(lines_are_sums_by_shape),
        cmocka_unit_test(many_shapes_end_in_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
