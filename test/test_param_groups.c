// test/test_param_groups.c: [optimizer] groups (trainer/config/groups.h), apart from any model: how many there may be,
// which one a name belongs to, and which parameters are frozen, as globs in the order in which they decide.
#include "test/support/expect.h"
#include "trainer/config/groups.h"

#include <stdio.h>

static param_groups parsed(const char *text) {
    param_groups g;
    if (groups_parse(&g, text) != ERR_OK) fail_msg("%s: %s", text, err_last()->text);
    return g;
}

static void so_many_there_may_be(void **state) {
    (void)state;
    for (int n = 0; n <= GROUPS_MOST + 1; n++) {
        char text[1024] = "", name[32];
        param_groups g;
        for (int i = 0; i < n; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%sw%d.*: lr=%d", i ? ", " : "", i, i + 1);
        if (n > GROUPS_MOST) assert_error(groups_parse(&g, text), ERR_CONFIG, "there are more than 16 groups");
        else assert_ok(groups_parse(&g, text));
        for (int i = 0; i < n && n <= GROUPS_MOST; i++) {
            snprintf(name, sizeof name, "w%d.x", i);
            assert_int_equal(groups_find(&g, name), i);
            assert_true(g.at[i].lr == i + 1 && g.at[i].decay < 0 && g.at[i].type == -1 && !g.at[i].frozen);
        }
        if (n <= GROUPS_MOST) assert_int_equal(g.count, n), assert_int_equal(groups_find(&g, "w16.x"), -1);
    }
}

// A glob may be as long as all of a group's together.
static void globs_have_room(void **state) {
    (void)state;
    for (int n = GROUP_GLOB - 2; n <= GROUP_GLOB; n++)
        for (int words = 1; words <= 2; words++) {
            char text[256];
            param_groups g;
            memset(text, 'a', (size_t)n);
            if (words == 2) text[n / 2] = ' ';
            strcpy(text + n, ": frozen");
            if (n < GROUP_GLOB) assert_ok(groups_parse(&g, text));
            else assert_error(groups_parse(&g, text), ERR_CONFIG, "the globs of a group have 127 letters at most");
        }
}

static void the_first_group_decides(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int group;
    } rows[] = {{"wte.weight", 0},      {"wpe.weight", 0}, {"h.1.ln.bias", 1}, {"h.1.ln.weight", 2},
                {"h.10.ln.weight", -1}, {"h.2.bias", 1},   {"bias", -1},       {"x.weight", 3},
                {"h.1x", -1},           {"xh.1.x", -1},    {"wte", -1}};
    param_groups g = parsed("wte.* \twpe.*:lr=0.5  decay=0.25, *.bias: frozen,h.1.*  : type=muon decay=0 ,"
                            "[x-z].weight: lr=1000 type=adamw");
    assert_int_equal(g.count, 4);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (groups_find(&g, rows[i].name) != rows[i].group)
            fail_msg("%s: group %d, expected %d", rows[i].name, groups_find(&g, rows[i].name), rows[i].group);
    assert_true(g.at[0].lr == 0.5 && g.at[0].decay == 0.25 && g.at[0].type == -1 && !g.at[0].frozen);
    assert_true(g.at[1].lr == 1 && g.at[1].decay < 0 && g.at[1].type == -1 && g.at[1].frozen);
    assert_true(g.at[2].lr == 1 && g.at[2].decay == 0 && g.at[2].type == OPTIMIZER_MUON && !g.at[2].frozen);
    assert_true(g.at[3].lr == 1000 && g.at[3].decay < 0 && g.at[3].type == OPTIMIZER_ADAMW);
    assert_int_equal(groups_find(&(param_groups){0}, "wte.weight"), -1);
}

static void types_of_any_group_are_found(void **state) {
    (void)state;
    assert_true(groups_have("a: type=muon, b: lr=2", OPTIMIZER_MUON));
    assert_true(groups_have("a: lr=2, b: frozen, c: type=muon", OPTIMIZER_MUON));
    assert_false(groups_have("a: lr=2, c: type=muon", OPTIMIZER_ADAMW));
    assert_false(groups_have("a: lr=2", OPTIMIZER_MUON));
    assert_false(groups_have("", OPTIMIZER_MUON));
    assert_false(groups_have("a: type=", OPTIMIZER_MUON));
}

static void frozen_ones_stand_among_the_others(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"", ""},
        {"a*: lr=2, b: decay=1", ""},
        {"a*: frozen", "-a*"},
        {"a* b: frozen, c: lr=2", "-a* -b +c"},
        {"a: lr=2 decay=0, b* c: type=adamw, d: frozen", "+a +b* +c -d"},
        {"a: frozen, b: lr=1, c: frozen", "-a +b -c"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        param_groups g = parsed(rows[i][0]);
        size_t n = strlen(rows[i][1]);
        char found[64];
        for (size_t size = 1; size <= n + 2; size++) {
            memset(found, '#', sizeof found);
            bool fits = groups_frozen(&g, found, size);
            if (fits != (size > n)) fail_msg("%s: with %zu bytes it %s", rows[i][0], size, fits ? "fits" : "fits not");
            if (fits) assert_string_equal(found, rows[i][1]);
            assert_true(found[size] == '#');
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_many_there_may_be),
        cmocka_unit_test(globs_have_room),
        cmocka_unit_test(the_first_group_decides),
        cmocka_unit_test(types_of_any_group_are_found),
        cmocka_unit_test(frozen_ones_stand_among_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
