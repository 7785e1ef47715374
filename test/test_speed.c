// test/test_speed.c: model flops utilization. A model's own count of a step's flops is held against those that the operations
// of a real step declare (gpu/cost.c); the peak is measured, and measuring it changes nothing else.
#include "test/support/run.h"

#include "base/clock.h"
#include "gpu/peak.h"
#include "gpu/profile.h"
#include "trainer/speed.h"

#include <fcntl.h>
#include <math.h>

static const char common[] = "[data]\nformat = raw16\n[batch]\nglobal = 8\nmicro = 2\n[sample]\ntokens = 0\n[device]\nthreads = 1\n";
static const char *const models[] = {
    "[model]\nlayers = 2\nheads = 2\nembed = 64\ncontext = 64\nvocab = 256\n",
    "[model]\nlayers = 2\nheads = 2\nembed = 64\ncontext = 64\nvocab = 256\n[parallel]\nrecompute = selective\n",
    "[model]\ntype = llama\nlayers = 2\nheads = 4\nkv_heads = 2\nembed = 64\nhidden = 128\ncontext = 64\nvocab = 256\n",
    "[model]\ntype = llama\nlayers = 2\nheads = 4\nembed = 64\nhidden = 64\ncontext = 192\nwindow = 128\nvocab = 256\ntied = yes\n",
};

// Of a step: attention's backward computes the scores again, one of its five products, which is not the model's.
static double declared_flops(device *d) {
    static profile_line line[PROFILE_LINES];
    double sum = 0;
    int lines = profile_read(device_profile(d), line);
    for (int i = 0; i < lines; i++) sum += line[i].flops * (strcmp(line[i].op, "attention_backward") == 0 ? 0.8 : 1);
    return sum;
}

static void flops_are_those_of_the_operations(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        char *dir = make_dir();
        config c;
        session x;
        speed v;
        step_result r;
        write_tokens(dir, "text.bin", 20000);
        write_tokens(dir, "val.bin", 1500);
        load_config(&c, dir, common, models[k]);
        OK(session_open(&x, &c, SESSION_PROFILE, NULL));
        OK(session_init(&x));
        OK(session_feed(&x, 2));
        OK(session_step(&x, &r));
        profile_clear(device_profile(x.dev));
        OK(session_step(&x, &r));
        OK(speed_open(&v, &x, 0));
        double found = declared_flops(x.dev);
        if (fabs(v.flops / found - 1) > 0.02) fail_msg("model %zu: %.0f flops a step, and its operations declare %.0f", k, v.flops, found);
        speed_close(&v);
        session_close(&x);
        drop_dir(dir);
    }
}

static int open_files(void) {
    int n = 0;
    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

// In each type: a peak, within the time, and a share of it that a step can have.
static void the_peak_is_measured(void **state) {
    (void)state;
    static const char *const types[] = {"fp32", "bf16", "fp16"};
    for (int t = 0; t < 3; t++) {
        char *dir = make_dir(), more[256];
        config c;
        session x;
        speed v;
        int64_t used, total;
        write_tokens(dir, "text.bin", 20000);
        write_tokens(dir, "val.bin", 1500);
        snprintf(more, sizeof more, "%s[precision]\ncompute = %s\n", models[0], types[t]);
        load_config(&c, dir, common, more);
        OK(session_open(&x, &c, SESSION_TRAIN, NULL));
        int files = open_files();
        double start = clock_now();
        OK(speed_open(&v, &x, 0));
        double took = clock_now() - start;
        if (!(v.peak > 1e8 && v.peak < 1e14)) fail_msg("%s: a peak of %g FLOP/s", types[t], v.peak);
        if (took > 2) fail_msg("%s: it took %.3f s", types[t], took);  // 0.03 and a product, on a machine of its own
        assert_true(fabs(speed_mfu(&v, 1e3 * v.flops / v.peak) - 1) < 1e-9);
        assert_true(isnan(speed_mfu(&v, 0)) && isnan(speed_mfu(&(speed){.flops = 1}, 1)));
        assert_true(speed_resident(&v) > 1000000);
        assert_int_equal(speed_device_bytes(&x), 0);
        assert_int_equal(device_memory(x.dev, &used, &total), ERR_UNAVAILABLE);
        speed_close(&v);
        assert_int_equal(open_files(), files);
        assert_int_equal(speed_resident(&v), 0);
        speed_close(&v);
        session_close(&x);
        drop_dir(dir);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(flops_are_those_of_the_operations), cmocka_unit_test(the_peak_is_measured)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
