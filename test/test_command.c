// test/test_command.c: the command line, taken apart as the pages of the verbs say, for each verb and each of its
// options: what is an option, what is its value, what is neither; which help each page is; and how far a name is from
// another one, against another way to count.
#include "base/edits.h"
#include "trainer/command.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORDS = 40 };

// --- names -----------------------------------------------------------------------------------------------------------

// The definition, without a table: the first characters are the same, or are replaced, inserted, deleted or exchanged.
static int edits_of(const char *a, const char *b) {
    if (!*a || !*b) return (int)(strlen(a) + strlen(b));
    bool same = tolower((unsigned char)a[0]) == tolower((unsigned char)b[0]);
    int least = edits_of(a + 1, b + 1) + !same, deleted = 1 + edits_of(a + 1, b), inserted = 1 + edits_of(a, b + 1);
    if (deleted < least) least = deleted;
    if (inserted < least) least = inserted;
    bool crossed = a[1] && b[1] && tolower((unsigned char)a[0]) == tolower((unsigned char)b[1]) &&
                   tolower((unsigned char)a[1]) == tolower((unsigned char)b[0]);
    int swapped = crossed ? 1 + edits_of(a + 2, b + 2) : least;
    return swapped < least ? swapped : least;
}

static void edits_are_counted(void **state) {
    (void)state;
    enum { MOST = 4, LETTERS = 3 };
    char word[121][MOST + 1], other[121][MOST + 1];  // the same in other cases
    int n = 0;
    for (int length = 0, all = 1; length <= MOST; length++, all *= LETTERS)
        for (int i = 0; i < all; i++, n++) {
            for (int k = 0, rest = i; k < length; k++, rest /= LETTERS)
                word[n][k] = "abC"[rest % LETTERS], other[n][k] = "aBc"[rest % LETTERS];
            word[n][length] = other[n][length] = 0;
        }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            if (edits_between(word[i], other[k]) != edits_of(word[i], other[k]))
                fail_msg("%s %s: %d", word[i], other[k], edits_between(word[i], other[k]));
    assert_int_equal(edits_between("ABc", "abC"), 0);
    assert_int_equal(edits_between("\xc4", "\xe4"), 1);  // of ASCII alone
}

// Of long names only the beginning counts, on both sides, and is all that is read.
static void long_names_are_cut(void **state) {
    (void)state;
    char a[200], b[200];
    memset(a, 'x', sizeof a), memset(b, 'x', sizeof b);
    a[sizeof a - 1] = b[EDITS_NAME - 1] = 0;
    assert_int_equal(edits_between(a, b), 0);
    assert_int_equal(edits_between(b, a), 0);
    a[EDITS_NAME - 2] = 'y';
    assert_int_equal(edits_between(a, b), 1);
    a[EDITS_NAME - 2] = 'x', a[EDITS_NAME - 1] = 'y';
    assert_int_equal(edits_between(a, b), 0);
    assert_int_equal(edits_between(a, ""), EDITS_NAME - 1);
    assert_int_equal(edits_between("", a), EDITS_NAME - 1);
}

static void one_in_three_is_near(void **state) {
    (void)state;
    static const struct {
        const char *found;
        int most;
    } rows[] = {{"", 1}, {"ab", 1}, {"abc", 1}, {"abcde", 1}, {"abcdef", 2}, {"abcdefgh", 2}, {"abcdefghi", 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int edits = 0; edits < 5; edits++)
            assert_int_equal(edits_near(rows[i].found, edits), edits <= rows[i].most);
}

static void a_misspelt_verb_is_known(void **state) {
    (void)state;
    char word[100];
    for (int v = 0; v < VERB_COUNT; v++) {
        const char *name = verb_pages[v].name;
        assert_int_equal(command_verb(name), v);
        assert_string_equal(command_nearest(name), name);
        snprintf(word, sizeof word, "%sx", name);
        assert_int_equal(command_verb(word), -1);
        assert_string_equal(command_nearest(word), name);
        snprintf(word, sizeof word, "%.*s", (int)strlen(name) - 1, name);
        assert_int_equal(command_verb(word), -1);
        assert_string_equal(command_nearest(word), name);
        snprintf(word, sizeof word, "%c%s", toupper((unsigned char)*name), name + 1);
        assert_int_equal(command_verb(word), -1);
        assert_string_equal(command_nearest(word), name);
    }
    memset(word, 'q', sizeof word), word[sizeof word - 1] = 0;
    assert_null(command_nearest(word));
    assert_null(command_nearest(""));
    assert_null(command_nearest("xy"));
}

// --- what stands after a verb ----------------------------------------------------------------------------------------

typedef struct line {
    char *at[WORDS];
    int n;
} line;

static void add(line *l, const char *word) {
    assert_true(l->n < WORDS);
    l->at[l->n++] = (char *)(uintptr_t)word;
}

static int options_of(const verb_page *p) {
    int n = 0;
    while (n < VERB_OPTIONS && p->option[n].name) n++;
    return n;
}

// Its value may be left out.
static bool is_open(const verb_option *o) { return o->value && o->value[0] == '['; }

// A value that looks like an option, if it may.
static const char *value_for(const verb_page *p, int i) {
    return is_open(&p->option[i]) ? "block" : p->option[(i + 1) % options_of(p)].name;
}

// All options of the page but `without`, each with a value that looks like an option, words between them; and, of a
// verb with files, overrides. Everything is found where it belongs.
static void expect_apart(const verb_page *p, int without) {
    static const char *const word[] = {"a.ini", "-", "b", "", "-", "c", "d", "e"}, *const over[] = {"-o", "a.b=1",
                                                                                                    "--help"};
    line l = {.n = 0};
    command c;
    int n = options_of(p), words = 0, overrides = 0;
    for (int i = 0; i < n; i++) {
        if (i == without) continue;
        add(&l, p->option[i].name);
        if (p->option[i].value) add(&l, value_for(p, i));
        add(&l, word[words++]);
        if (p->files && overrides < 2) add(&l, "-o"), add(&l, over[overrides++]);
    }
    if (p->files) add(&l, "-o"), add(&l, over[overrides++]);
    add(&l, "last");
    assert_int_equal(command_parse(&c, p, l.n, l.at), ERR_OK);
    assert_ptr_equal(c.page, p);
    assert_int_equal(c.count, words + 1);
    for (int i = 0; i < words; i++) assert_string_equal(c.words[i], word[i]);
    assert_string_equal(c.words[words], "last");
    assert_int_equal(c.override_count, overrides);
    for (int i = 0; i < overrides; i++) assert_string_equal(c.overrides[i], over[i]);
    for (int i = 0; i < n; i++) {
        const char *found = command_value(&c, p->option[i].name);
        if (i == without) assert_null(found);
        else assert_string_equal(found, p->option[i].value ? value_for(p, i) : p->option[i].name);
    }
    assert_null(command_value(&c, "--none"));
    command_free(&c);
    assert_null(c.words);
}

static void expect_refused(const verb_page *p, line *l, const char *says, const char *more) {
    command c;
    assert_int_equal(command_parse(&c, p, l->n, l->at), ERR_USAGE);
    assert_null(c.words);
    if (!strstr(err_last()->text, says) || !strstr(err_last()->text, more))
        fail_msg("%s: %s; expected %s %s", p->name, err_last()->text, says, more);
}

// However many words stand before an override, between two and after them.
static void expect_all_words(const verb_page *p) {
    for (int before = 0; before < 8; before++)
        for (int after = 0; after < 8; after++) {
            line l = {.n = 0};
            command c;
            for (int i = 0; i < before; i++) add(&l, "b");
            add(&l, "-o"), add(&l, "x");
            for (int i = 0; i < after; i++) add(&l, "a");
            add(&l, "-o"), add(&l, "y");
            assert_int_equal(command_parse(&c, p, l.n, l.at), ERR_OK);
            assert_int_equal(c.count, before + after);
            for (int i = 0; i < before + after; i++) assert_string_equal(c.words[i], i < before ? "b" : "a");
            assert_int_equal(c.override_count, 2);
            assert_string_equal(c.overrides[0], "x"), assert_string_equal(c.overrides[1], "y");
            command_free(&c);
        }
}

static void every_option_is_taken(void **state) {
    (void)state;
    for (int v = 0; v < VERB_COUNT; v++) {
        const verb_page *p = &verb_pages[v];
        command c;
        assert_int_equal(command_parse(&c, p, 0, NULL), ERR_OK);
        assert_int_equal(c.count + c.override_count, 0);
        command_free(&c);
        if (p->files) expect_all_words(p);
        for (int without = -1; without < options_of(p); without++) expect_apart(p, without);
        for (int i = 0; i < options_of(p); i++) {
            const verb_option *o = &p->option[i];
            line first = {{(char *)(uintptr_t)o->name, "one", (char *)(uintptr_t)o->name, "two"}, 4};
            assert_int_equal(command_parse(&c, p, first.n, first.at), ERR_OK);
            assert_string_equal(command_value(&c, o->name), o->value ? "two" : o->name);  // the last one counts
            assert_int_equal(c.count, o->value ? 0 : 2);
            command_free(&c);
        }
    }
}

// At the end, before an option, a file or a folder it has no value; a name or a number is one.
static void a_value_may_be_left_out(void **state) {
    (void)state;
    static const struct {
        const char *next, *value;
        int words;
    } cases[] = {{NULL, "", 0},  {"--draw", "", 0}, {"-", "", 1},          {"a.ini", "", 1}, {"runs/a", "", 1},
                 {"./a", "", 1}, {".", "", 1},      {"layer", "layer", 0}, {"12", "12", 0},  {"", "", 0}};
    const verb_page *p = &verb_pages[VERB_plan];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        command c;
        line l = {{"--graph"}, 1};
        if (cases[i].next) add(&l, cases[i].next);
        assert_int_equal(command_parse(&c, p, l.n, l.at), ERR_OK);
        assert_string_equal(command_value(&c, "--graph"), cases[i].value);
        assert_int_equal(c.count, cases[i].words);
        assert_int_equal(command_value(&c, "--draw") != NULL, i == 1);
        command_free(&c);
    }
}

static void others_are_refused(void **state) {
    (void)state;
    char help[100], near[100];
    for (int v = 0; v < VERB_COUNT; v++) {
        const verb_page *p = &verb_pages[v];
        snprintf(help, sizeof help, "`lockstep %s --help` lists them", p->name);
        expect_refused(p, &(line){{"a", "--nonsense"}, 2}, "--nonsense: no such option here; ", help);
        expect_refused(p, &(line){{"-x", "a"}, 2}, "-x: no such option here", help);
        expect_refused(p, &(line){{"--"}, 1}, "--: no such option here", help);
        if (p->files)
            expect_refused(p, &(line){{"a", "-o"}, 2}, "-o: expected a value after it, SECTION.KEY=VALUE", "");
        else expect_refused(p, &(line){{"-o", "a.b=1"}, 2}, "-o: no such option here", help);
        for (int i = 0; i < options_of(p); i++) {
            const verb_option *o = &p->option[i];
            snprintf(near, sizeof near, "%sx", o->name);
            line misspelt = {{"a", near, "b"}, 3};
            char meant[100];
            snprintf(meant, sizeof meant, "%s: no such option here (did you mean `%s`?); ", near, o->name);
            expect_refused(p, &misspelt, meant, help);
            line bare = {{"a", (char *)(uintptr_t)o->name}, 2};
            snprintf(meant, sizeof meant, "%s: expected a value after it, ", o->name);
            if (o->value && !is_open(o)) expect_refused(p, &bare, meant, o->value);
        }
    }
}

static bool asks(const verb_page *p, line l) { return command_asks_help(p, l.n, l.at); }

static void help_is_asked_anywhere_but_as_a_value(void **state) {
    (void)state;
    static const char *const ask[] = {"--help", "-h"};
    for (int v = 0; v < VERB_COUNT; v++) {
        const verb_page *p = &verb_pages[v];
        assert_false(asks(p, (line){.n = 0}));
        assert_false(asks(p, (line){{"a", "help", "--helpx", "-"}, 4}));
        for (int k = 0; k < 2; k++) {
            char *a = (char *)(uintptr_t)ask[k];
            assert_true(asks(p, (line){{a}, 1}));
            assert_true(asks(p, (line){{"a", "--nonsense", a}, 3}));
            assert_int_equal(asks(p, (line){{"x", "-o", a}, 3}), !p->files);
            assert_true(asks(p, (line){{"-o", "a.b=1", a}, 3}));
            for (int i = 0; i < options_of(p); i++) {
                const verb_option *o = &p->option[i];
                char *name = (char *)(uintptr_t)o->name;
                assert_int_equal(asks(p, (line){{name, a}, 2}), !o->value || is_open(o));
                assert_true(!is_open(o) || asks(p, (line){{name, "block", a}, 3}));
                assert_int_equal(asks(p, (line){{name, name, a}, 3}), 1);
                assert_int_equal(asks(p, (line){{name, a, a}, 3}), 1);
            }
        }
    }
}

// --- pages -----------------------------------------------------------------------------------------------------------

static void expect_option(const char *page, const verb_option *o) {
    char start[200];
    int n = snprintf(start, sizeof start, "\n  %s%s%s ", o->name, o->value ? " " : "", o->value ? o->value : "");
    const char *at = strstr(page, start);
    if (!at) fail_msg("no line of %s in\n%s", o->name, page);
    for (at += n; *at == ' '; at++) n++;
    assert_true(strncmp(at, o->does, strlen(o->does)) == 0 && at[strlen(o->does)] == '\n');
    assert_true(n == 1 + 24 || (n > 1 + 24 && at[-2] == ' ' && at[-3] != ' '));  // in a column, or after two blanks
}

static void pages_list_their_options_and_no_others(void **state) {
    (void)state;
    static const verb_option over = {"-o", "SECTION.KEY=VALUE",
                                     "set a key, in place of what the files say; may be repeated: the last one counts"};
    for (int v = 0; v < VERB_COUNT; v++) {
        const verb_page *p = &verb_pages[v];
        char *page, usage[300];
        size_t n;
        int lines = 0, options = options_of(p) + (p->files != 0);
        FILE *f = open_memstream(&page, &n);
        assert_non_null(f);
        command_print_help(p, f);
        assert_int_equal(fclose(f), 0);
        bool placed = strstr(p->usage, "[OPTION]") != NULL;
        snprintf(usage, sizeof usage, "usage: lockstep %s %s%s\n\n%s", p->name, p->usage,
                 options && !placed ? " [OPTION]..." : "", p->does);
        assert_int_equal(strncmp(page, usage, strlen(usage)), 0);
        for (int i = 0; i < options_of(p); i++) expect_option(page, &p->option[i]);
        if (p->files) expect_option(page, &over);
        for (const char *at = page; (at = strstr(at, "\n  -")); at++) lines++;
        assert_int_equal(lines, options);
        snprintf(usage, sizeof usage, "\n\nExample:\n  %s\n", p->example);
        assert_string_equal(page + n - strlen(usage), usage);
        free(page);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edits_are_counted),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(one_in_three_is_near),
        cmocka_unit_test(a_misspelt_verb_is_known),
        cmocka_unit_test(every_option_is_taken),
        cmocka_unit_test(a_value_may_be_left_out),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(help_is_asked_anywhere_but_as_a_value),
        cmocka_unit_test(pages_list_their_options_and_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
