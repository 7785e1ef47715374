// test/test_lies.c: when a rank that lies has lied once too often: what the points of one or two suspects say.
#include "trainer/lies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(either_of_two_suspects_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
