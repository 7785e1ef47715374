// test/test_wires.c: who meets whom when links are measured, and which of them are said to be slow.
#include "trainer/wires.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// In each round everybody has one partner at most, and is the partner of that one.
static void everybody_meets_everybody_once(void **state) {
    (void)state;
    for (int n = 0; n <= 33; n++) {
        int met[33][33] = {{0}};
        for (int r = 0; r < wires_rounds(n); r++)
            for (int i = 0; i < n; i++) {
                int k = wires_partner(i, r, n);
                assert_true(k >= -1 && k < n && k != i);
                if (k < 0) continue;
                if (wires_partner(k, r, n) != i) fail_msg("of %d, round %d: %d meets %d, but not it", n, r, i, k);
                met[i][k]++;
            }
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n; k++)
                if (met[i][k] != (i != k)) fail_msg("of %d: %d and %d meet %d times", n, i, k, met[i][k]);
        assert_int_equal(wires_rounds(n), n < 2 ? 0 : n % 2 ? n : n - 1);
    }
}

static const char *letter(const void *of, int player, char to[WIRES_NAME]) {
    (void)of;
    to[0] = (char)('a' + player), to[1] = 0;
    return to;
}

// rates: of the pairs ab, ac, ad, bc, bd, cd, in MB/s.
static void says(int n, const double *rates, const char *expected) {
    double bytes_s[16] = {0}, seconds[16] = {0};
    char *text;
    size_t size;
    for (int i = 0, at = 0; i < n; i++)
        for (int k = i + 1; k < n; k++) bytes_s[i * n + k] = 1e6 * rates[at++], seconds[i * n + k] = 5e-5;
    FILE *out = open_memstream(&text, &size);
    wires_print(out, &(wires){"machines", n, letter, NULL, bytes_s, seconds});
    fclose(out);
    const char *slow = strstr(text, "slow");
    if (strcmp(slow ? slow : "", expected) != 0) fail_msg("it says\n%sexpected\n%s", text, expected);
    if (n > 1 && !strstr(text, "a                        b           ")) fail_msg("no link is listed:\n%s", text);
    free(text);
}

static void slow_links_are_named(void **state) {
    (void)state;
    says(1, (double[]){0}, "");
    says(2, (double[]){3}, "");
    says(4, (double[]){100, 110, 105, 103, 108, 99}, "");
    says(4, (double[]){100, 110, 70, 103, 108, 78}, "slow    a - d: 70.0 MB/s, 0.65 of what its equals carry\n");
    says(4, (double[]){100, 110, 11, 103, 12, 10},
         "slow    all links of d: look at its cable, its port, its card and its settings\n");
    says(3, (double[]){100, 12, 11},
         "slow    all links of c: look at its cable, its port, its card and its settings\n");
    double bytes_s[9] = {0, 4, 1, 0, 0, 3, 0, 0, 0};
    assert_true(wires_equal(&(wires){"", 3, letter, NULL, bytes_s, bytes_s}) == 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(everybody_meets_everybody_once),
                                       cmocka_unit_test(slow_links_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
