// test/test_rows_ahead.c: what a run's steps look for ahead are the rows that the next step begins with.
#include "test/support/golden.h"

#include "data/click/pack.h"

#include <string.h>

static const char small_model[] =
    "[model]\ntype = dlrm\nrows = 5\nembed = 4\nbottom =\ntop =\ndemand = yes\ndemand_mb = 0.02\n"
    "[batch]\nglobal = 8\nmicro = 8\nlanes = 1\n[optimizer]\nlr = 0.01\nweight_decay = 0\n[device]\nthreads = 1\n"
    "[run]\nsteps = 500\n";

// A batch that is not loaded yet is not waited for, so some steps may look for nothing.
static void the_next_step_begins_with_what_was_looked_for(void **state) {
    (void)state;
    char *dir = data_dir(), files[600], more[800];
    config c;
    session x;
    step_result s;
    click_pack_report packed;
    int64_t n = 0, found = 0;
    snprintf(files, sizeof files, "%s/clicks", dir);
    OK(click_pack_run(
        &(click_pack_options){
            .kind = CLICKS_PLANTED, .input = "planted:1:6000:200", .output = files, .shard_records = 10000},
        &packed));
    snprintf(more, sizeof more, "[data]\ntrain = %s-train-*.bin\nval =\n", files);
    load_config(&c, dir, small_model, more);
    OK(session_open(&x, &c, SESSION_TRAIN, NULL));
    OK(session_init(&x));
    OK(session_feed(&x, c.run.steps));
    const step_rows *rows = &x.runner.rows;
    row_key *ahead = malloc((size_t)rows->most * sizeof *ahead);
    for (int step = 0; step < 500 && found < 20; step++) {
        OK(session_step(&x, &s));
        // its micro-batch was in set 0, and what it looked for is in set 1
        if (n) {
            assert_int_equal(rows->set[0].keys, n);
            assert_memory_equal(rows->set[0].key.data, ahead, (size_t)n * sizeof *ahead);
            found++;
        }
        n = rows->set[1].keys;
        if (n) memcpy(ahead, rows->set[1].key.data, (size_t)n * sizeof *ahead);
    }
    assert_true(found > 0 && s.cold_rows > 0);
    free(ahead);
    session_close(&x);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_step_begins_with_what_was_looked_for),
    };
    return cmocka_run_group_tests_name("rows_ahead", tests, NULL, NULL);
}
