// test/test_scribe.c: flight recordings as a supervisor writes them, of ranks that the test makes up: when what
// happened, and who has ended.
#include "trainer/node/crew.h"

#include "base/clock.h"
#include "base/io.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3 };

typedef struct rig {
    crew w;
    config c;
    char dir[256];
} rig;

static rig *open_rig(void) {
    rig *x = calloc(1, sizeof *x);
    assert_non_null(x);
    crew *w = &x->w;
    const char *base = getenv("TMPDIR");
    char path[512];
    assert_int_equal(config_load(&x->c, NULL, 0), ERR_OK);
    snprintf(x->dir, sizeof x->dir, "%s/scribe-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(x->dir));
    snprintf(x->c.run.dir, sizeof x->c.run.dir, "%s", x->dir);
    snprintf(path, sizeof path, "%s/%s", x->dir, x->c.run.name);
    assert_int_equal(mkdir(path, 0755), 0);
    w->locals = w->seats = w->world = w->left = RANKS, w->nodes = 1, w->over = -1, w->root = -1;
    w->d.fd = w->own_delegate = w->own_yard = w->vault = w->voice.fd = -1;
    w->b = calloc(1, board_bytes(RANKS)), w->place = calloc(RANKS, sizeof *w->place);
    w->exit = calloc(RANKS, sizeof *w->exit), w->yard = malloc(RANKS * sizeof *w->yard);
    w->pid = calloc(RANKS, sizeof *w->pid);
    assert_true(w->b && w->place && w->exit && w->yard && w->pid);
    board_init(w->b, RANKS);
    for (int i = 0; i < RANKS; i++) {
        w->yard[i] = -1;
        w->place[i] = (comm_place){.rank = i, .local = i, .host = "localhost"};
        flight_begin(&w->b->rank[i].flight, 0);
    }
    w->records = w->began = true;
    return x;
}

static void close_rig(rig *x) {
    crew *w = &x->w;
    free(w->b), free(w->place), free(w->exit), free(w->yard), free(w->pid);
    assert_int_equal(io_remove_tree(x->dir), ERR_OK);
    free(x);
}

// What was written; free it.
static char *written(rig *x, double failed_at) {
    char *text;
    size_t n;
    scribe_start(&x->w, &x->c, failed_at);
    const char *path = scribe_end(&x->w);
    assert_non_null(path);
    assert_int_equal(io_read_file(path, 1 << 24, &text, &n), ERR_OK);
    return text;
}

// The time of the first line with this word in rank's calls, in the recording's seconds.
static double time_of(const char *text, int rank, const char *word) {
    char title[64];
    snprintf(title, sizeof title, "\nrank %d (localhost): its last", rank);
    const char *at = strstr(text, title), *found = at ? strstr(at, word) : NULL;
    if (!found) fail_msg("nothing of \"%s\" of rank %d:\n%s", word, rank, text);
    while (found > at && found[-1] != '\n') found--;
    return strtod(found, NULL);
}

// Seconds count up to the first failure of a rank, whichever it is, or to what the supervisor saw where that came
// first.
static void times_count_up_to_the_first_failure(void **state) {
    (void)state;
    static const struct {
        double failed[RANKS], seen, first;  // seconds after the phase; 0: has not failed
    } of[] = {{{2, 4, 3}, 5, 2}, {{4, 2, 3}, 5, 2}, {{0, 4, 3}, 5, 3}, {{4, 3, 0}, 1, 1}, {{0, 0, 0}, 7, 7}};
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        rig *x = open_rig();
        double now = clock_now();
        for (int i = 0; i < RANKS; i++) {
            flight_rank *f = &x->w.b->rank[i].flight;
            flight_phase(f, "save", 5);
            if (of[k].failed[i]) atomic_store(&f->failed_ns, (uint64_t)((now + of[k].failed[i]) * 1e9));
        }
        char *text = written(x, now + of[k].seen);
        for (int i = 0; i < RANKS; i++) {
            double at = time_of(text, i, "save of step 5");
            if (at < -of[k].first - 0.001 || at > -of[k].first + 0.5)
                fail_msg("case %zu: rank %d: %.3f, expected %.3f", k, i, at, -of[k].first);
        }
        free(text);
        close_rig(x);
    }
}

static int count_of(const char *text, const char *word) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word)) n++;
    return n;
}

// One that was killed is said to have been, until its place has a process again.
static void who_lives_again_has_not_ended(void **state) {
    (void)state;
    rig *x = open_rig();
    x->w.exit[1] = (crew_exit){.ended = true, .status = SIGKILL};
    char *text = written(x, clock_now());
    assert_true(count_of(text, "rank 1 (localhost) was killed by signal 9 (Killed)") > 0);
    free(text);
    fflush(NULL);
    pid_t pid = crew_fork_one(&x->w, 1);
    if (pid == 0) prctl(PR_SET_PDEATHSIG, SIGKILL), pause(), _exit(0);
    assert_true(pid > 0);
    x->w.exit[2] = (crew_exit){.ended = true, .status = SIGSEGV};
    text = written(x, clock_now());
    kill(pid, SIGKILL), waitpid(pid, NULL, 0);
    assert_int_equal(count_of(text, "rank 1 (localhost) was killed"), 0);
    assert_true(count_of(text, "rank 2 (localhost) was killed by signal 11") > 0);
    free(text);
    close_rig(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(times_count_up_to_the_first_failure),
                                       cmocka_unit_test(who_lives_again_has_not_ended)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
