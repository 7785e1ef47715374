// test/test_slow_disk.c: checkpoints that are written beside the steps, on a disk that takes its time: the steps go on,
// at each checkpoint, not only at the first.
#include "test/support/train.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 160, EVERY = 40, SYNC_MS = 20 };

static const char small_model[] = SMALL_GPT(1, 2, 16, 24, 128) SMALL_BATCH(
    2, 2,
    1) "[device]\nthreads = 1\n[sample]\ntokens = 0\n[run]\nseed = 2\nsteps = 160\nfaults = drag@1x100000\n[eval]\nevery = 0\n"
       "[checkpoint]\nevery = 40\nkeep = 100\nkeep_best = no\nasync = yes\n[log]\nhash_every = 0\n";

// The disk: it takes the place of the C library's.
int fsync(int fd) {
    nanosleep(&(struct timespec){.tv_nsec = SYNC_MS * 1000000L}, NULL);
    return (int)syscall(SYS_fsync, fd);
}

// The last step that was logged before the record of the checkpoint of each `EVERY` steps.
static void read_order(const config *c, int last[STEPS / EVERY + 1]) {
    char path[2048], *text, *rest;
    size_t n;
    int step = 0, number;
    snprintf(path, sizeof path, "%s/%s/log.jsonl", c->run.dir, c->run.name);
    OK(io_read_file(path, 1 << 24, &text, &n));
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (sscanf(line, "{\"t\":\"step\",\"step\":%d", &number) == 1) step = number;
        if (sscanf(line, "{\"t\":\"checkpoint\",\"step\":%d", &number) != 1) continue;
        assert_in_range(number, EVERY, STEPS);
        assert_int_equal(number % EVERY, 0);
        last[number / EVERY] = step;
    }
    free(text);
}

// A step takes 10 ms and a checkpoint some times as long, but less than the steps up to the next one: that they find it
// written once is forgotten when the next one begins.
static void steps_go_on_while_each_checkpoint_is_written(void **state) {
    (void)state;
    config c;
    int last[STEPS / EVERY + 1] = {0};
    char *dir = data_dir();
    load_config(&c, dir, small_model, "");
    OK(train(&c, dir));
    read_order(&c, last);
    for (int k = 1; k < STEPS / EVERY; k++)
        if (last[k] < k * EVERY + 2)
            fail_msg("checkpoint %d was waited for: the last step before its record is %d", k * EVERY, last[k]);
    if (last[1] >= 2 * EVERY) fail_msg("the first checkpoint was written only after step %d", last[1]);
    assert_int_equal(last[STEPS / EVERY], STEPS);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_go_on_while_each_checkpoint_is_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
