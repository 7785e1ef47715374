// test/test_lies.c: when a rank that lies has lied once too often: what the points of one or two suspects say; how far
// a suspect's numbers were from what all hold now; and which of two suspects gets a point for that.
#include "trainer/lies.h"

#include "test/support/ranks.h"

#include "trainer/session/machine.h"
#include "trainer/session/restore.h"

#include <math.h>

// Of two suspects either one's points are enough; nobody else's are.
static void either_of_two_suspects_counts(void **state) {
    (void)state;
    static const struct {
        int points[4], rank[2];
        bool enough;
    } of[] = {
        {{0, 0, 0, 0}, {0, -1}, false},
        {{3, 0, 0, 0}, {0, -1}, false},
        {{4, 0, 0, 0}, {0, -1}, true},
        {{0, 5, 0, 0}, {1, -1}, true},
        {{3, 3, 0, 0}, {0, 1}, false},
        {{4, 1, 0, 0}, {0, 1}, true},
        {{1, 4, 0, 0}, {0, 1}, true},
        {{0, 3, 0, 4}, {1, 3}, true},
        {{4, 3, 3, 4}, {1, 2}, false},
        {{9, 9, 9, 9}, {-1, -1}, false},
        {{9, 9, 9, 9}, {LIES_RANKS, LIES_RANKS + 7}, false},
    };
    lies *l = calloc(1, sizeof *l);
    assert_non_null(l);
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        for (int r = 0; r < 4; r++) l->points[r] = (uint8_t)of[k].points[r];
        const replica_verdict v = {.differ = true, .liar = -1, .rank = {of[k].rank[0], of[k].rank[1]}};
        if (lies_are_enough(l, &v) != of[k].enough) fail_msg("case %zu", k);
    }
    free(l);
}

// The sum of the squares. A bit that flipped in an exponent may have made a number that is none: nothing is farther.
static void how_far_a_copy_is(void **state) {
    (void)state;
    enum { COUNT = 3 };
    static const struct {
        float had[COUNT], now[COUNT];
        double far;
    } of[] = {
        {{1, 2, 3}, {1, 2, 3}, 0},
        {{1, 2, 3}, {1, 4, 0}, 13},
        {{1, 1e30f, 3}, {1, 0, 3}, 1e60},
        {{1, 2, NAN}, {1, 2, 3}, 1e300},
        {{-INFINITY, 2, 3}, {1, 2, 3}, 1e300},
    };
    param row = {.dims = 1, .size = {COUNT}, .tied = -1};
    model net = {.params = 1, .param = &row};
    zero_piece whole = {.count = COUNT};
    float values[COUNT];
    train_state *t = calloc(1, sizeof *t);
    assert_non_null(t);
    assert_int_equal(device_open(&t->dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}), ERR_OK);
    assert_int_equal(stream_open(t->dev, &t->s), ERR_OK);
    t->net = &net, t->zero.whole = &whole, t->zero.wholes = 1;
    t->masters.t = (tensor){.data = values, .type = FP32, .dims = 1, .size = {COUNT}};
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        replica_copy had = {0};
        double far;
        memcpy(values, of[k].had, sizeof values);
        assert_int_equal(replica_keep(t, 0, &had), ERR_OK);
        memcpy(values, of[k].now, sizeof values);
        assert_int_equal(replica_far(t, &had, &far), ERR_OK);
        if (!(fabs(far - of[k].far) <= 1e-6 * of[k].far)) fail_msg("case %zu: %g", k, far);
        replica_drop(&had);
    }
    stream_close(t->s);
    device_close(t->dev);
    free(t);
}

// --- of two ---------------------------------------------------------------------------------------------------------

static const char small_model[] =
    "[run]\nsteps = 4\n[data]\nformat = raw16\n[model]\nlayers = 1\nheads = 2\nembed = 24\ncontext = 16\nvocab = 130\n"
    "[batch]\nglobal = 8\nmicro = 2\nlanes = 4\n[optimizer]\nlr = 3e-3\n[schedule]\nwarmup = 4\n[device]\nthreads = 1\n";

// A number of the liar's is wrong when they are compared, and right once the steps were computed again.
static err_t differ_and_agree(session *x, lies *l, bool lies_here) {
    replica_verdict v;
    monitor m = {0};
    TRY(session_settle(x));
    float *at = x->state.masters.t.data, was = *at;
    if (lies_here) *at = was + 1000;
    TRY(lies_look(l, x, &m, &v));
    *at = was;
    if (!v.differ || v.liar >= 0) return err_set(ERR_INTERNAL, "differ %d, liar %d", v.differ, v.liar);
    if (l->points[0] != 1 || l->points[1] != 1) return err_set(ERR_INTERNAL, "a point for each was expected");
    TRY(lies_look(l, x, &m, &v));
    return v.differ ? err_set(ERR_INTERNAL, "they still differ") : ERR_OK;
}

static err_t lie(const config *c, const launch *at, void *ctx) {
    const int liar = *(const int *)ctx;
    launch own = *at;
    session x;
    step_result s;
    lies l = {.same = -1};
    TRY(session_machine(&x, c, SESSION_TRAIN, 0));
    TRY(session_enter(&x, &own));
    TRY(session_init(&x));
    TRY(session_feed(&x, 2));
    TRY(session_step(&x, &s));
    TRY(differ_and_agree(&x, &l, at->rank == liar));
    session_close(&x);
    if (l.points[liar] == 2 && l.points[1 - liar] == 1) return ERR_OK;
    return err_set(ERR_INTERNAL, "rank %d lied; the points are %d and %d", liar, l.points[0], l.points[1]);
}

// Who it was is known later, and counts then: the other one keeps the point that it had as a suspect.
static void the_liar_of_two_has_the_second_point(void **state) {
    (void)state;
    char *dir = rank_dir();
    config c;
    rank_config(&c, dir, small_model, "");
    for (int liar = 0; liar < 2; liar++) run_ranks("of two", &(rank_world)ONE(2), &c, lie, &liar);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(either_of_two_suspects_counts),
                                       cmocka_unit_test(how_far_a_copy_is),
                                       cmocka_unit_test(the_liar_of_two_has_the_second_point)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
