// test/test_stories.c: the stories are the same for ever, have one derivation each, and as much chance in them as is
// said; grammars that don't are refused.
#include "base/fmath.h"
#include "base/io.h"
#include "data/text/stories.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#define OK(call) \
    do { \
        err_t ok_ = (call); \
        if (ok_ != ERR_OK) fail_msg("%s: %d: %s", #call, ok_, err_last()->text); \
    } while (0)

enum { LONG = 10000000, CHOICES = 400 };
#define GOLDEN_CRC 0x9bac7e64u

static uint8_t *text_of(uint64_t seed, int64_t n) {
    stories *s;
    uint8_t *text = malloc((size_t)n);
    OK(stories_open(&s, seed));
    OK(stories_read(s, text, n));
    stories_close(s);
    return text;
}

// --- the same for ever -----------------------------------------------------------------------------------------------

// Whoever changes the grammar changes a text that others have figures of. It may be done before a release, with the
// page's figures.
static void the_text_is_what_it_always_was(void **state) {
    (void)state;
    char *golden;
    size_t n;
    uint8_t *text = text_of(1, LONG);
    OK(io_read_file("test/golden/stories-1.txt", 1 << 20, &golden, &n));
    assert_int_equal(n, 2048);
    assert_memory_equal(text, golden, n);
    assert_int_equal(crc32_z(0, text, LONG), GOLDEN_CRC);
    free(golden), free(text);
}

static void sizes_are_beginnings_of_each_other_and_seeds_differ(void **state) {
    (void)state;
    enum { N = 5000 };
    uint8_t *one = text_of(1, N), *two = text_of(2, N), piece[N];
    stories *s;
    OK(stories_open(&s, 1));
    for (int64_t at = 0, n = 1; at < N; at += n, n = n * 3 % 97 + 1) {
        if (n > N - at) n = N - at;
        OK(stories_read(s, piece + at, n));
    }
    stories_close(s);
    assert_memory_equal(piece, one, N);
    assert_memory_not_equal(one, two, 300);
    uint8_t *high = text_of((1ull << 32) + 1, N);  // all bits of a seed count
    assert_memory_not_equal(one, high, 300);
    free(one), free(two), free(high);
}

static void an_input_is_a_seed_and_a_size(void **state) {
    (void)state;
    static const char *const wrong[] = {"stories:",
                                        "stories:x",
                                        "stories:-1",
                                        "stories:1:",
                                        "stories:1:0",
                                        "stories:1:2x",
                                        "stories:1:2:3",
                                        "stories: 1",
                                        "stories:99999999999999999999",
                                        "stories:9223372036854775808",
                                        "stories:1:1000000000000001",
                                        "stories:1:-2",
                                        "stories:+1",
                                        "stories:1 "};
    bool is;
    uint64_t seed;
    int64_t size;
    OK(stories_parse("stories.txt", &is, &seed, &size));
    assert_false(is);
    OK(stories_parse("stories:7", &is, &seed, &size));
    assert_true(is && seed == 7 && size == STORIES_BYTES);
    OK(stories_parse("stories:0:123", &is, &seed, &size));
    assert_true(is && seed == 0 && size == 123);
    OK(stories_parse("stories:9223372036854775807:1000000000000000", &is, &seed, &size));
    assert_true(is && seed == INT64_MAX && size == 1000000000000000);
    OK(stories_parse("stories:4294967297:1", &is, &seed, &size));
    assert_true(is && seed == (1ull << 32) + 1 && size == 1);
    OK(stories_parse("./stories:x", &is, &seed, &size));
    assert_false(is);
    OK(stories_parse("Stories:1", &is, &seed, &size));
    assert_false(is);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(stories_parse(wrong[i], &is, &seed, &size), ERR_CONFIG);
        assert_non_null(strstr(err_last()->text, "expected stories:SEED or stories:SEED:BYTES"));
    }
}

// --- as much chance as is said ---------------------------------------------------------------------------------------

typedef struct sums {
    double n, nats, bytes, nats2, bytes2, both;
} sums;

// Four standard errors of what the sums give, so that a right figure fails for one seed in 16,000.
static void expect_near(const char *what, double counted, double expected, double variance) {
    double off = counted - expected;
    print_message("%s: %.6f counted, %.6f computed, standard error %.6f\n", what, counted, expected, sqrt(variance));
    if (off * off > 16 * variance) fail_msg("%s: %.6f counted, %.6f computed", what, counted, expected);
}

static void the_entropy_is_what_a_count_finds(void **state) {
    (void)state;
    stories *s;
    bytes text = {0};
    sums k = {0};
    OK(stories_open(&s, 20));
    double best = stories_best(s), nats = stories_best_story(s);
    for (double before = 0; k.bytes < LONG; k.n++) {
        text.n = 0;
        OK(stories_next(s, &text));
        double x = stories_surprise(s) - before, y = (double)text.n;
        before = stories_surprise(s);
        k.nats += x, k.bytes += y, k.nats2 += x * x, k.bytes2 += y * y, k.both += x * y;
    }
    stories_close(s);
    free(text.at);
    double x = k.nats / k.n, y = k.bytes / k.n, xx = k.nats2 / k.n - x * x, yy = k.bytes2 / k.n - y * y,
           xy = k.both / k.n - x * y;
    expect_near("nats of a story", x, nats, xx / k.n);
    expect_near("bytes of a story", y, nats / best, yy / k.n);
    expect_near("nats per byte", x / y, best, (xx - 2 * best * xy + best * best * yy) / (y * y) / k.n);
}

static void there_are_many_shapes_and_words(void **state) {
    (void)state;
    int shapes = 1, words = 0;
    for (int i = 0; i < story_rule_count; i++) {
        const grammar_rule *r = &story_rules[i];
        bool sentences = strchr(r->text, '[') != NULL;
        for (const char *at = r->text; *at; at++) {
            if (strcmp(r->name, "shape") == 0) shapes += *at == '|';
            else if (!sentences) words += *at == '|';
        }
        words += !sentences;
    }
    assert_true(shapes >= 25);
    assert_true(words >= 500);
}

// --- one derivation --------------------------------------------------------------------------------------------------

// A story told with choices that are given. The one after them is tried, and the story is left at the next.
typedef struct parser {
    const grammar *g;
    const uint8_t *text;
    int64_t n;
    int choice[CHOICES], ways[CHOICES], given;
    int at;
    bytes told;
    int found, first[CHOICES], choices;  // derivations of the whole text, and the choices of the first
} parser;

static err_t follow(void *ctx, int n, int *choice) {
    parser *p = ctx;
    if (p->at == CHOICES) return ERR_INTERNAL;
    p->ways[p->at] = n;
    if (p->at == p->given) return ERR_INTERRUPTED;
    *choice = p->choice[p->at++];
    return ERR_OK;
}

// Counts all derivations whose choices begin with those given: by trying each alternative, and going on where the text
// agrees.
static void count_derivations(parser *p) {
    p->at = 0, p->told.n = 0;
    err_t rc = grammar_tell(p->g, follow, p, &p->told);
    if (p->told.n > p->n || (p->told.n > 0 && memcmp(p->told.at, p->text, (size_t)p->told.n) != 0)) return;
    if (rc == ERR_OK) {
        if (p->told.n != p->n) return;
        if (p->found++ == 0) memcpy(p->first, p->choice, sizeof p->first), p->choices = p->given;
        return;
    }
    assert_int_equal(rc, ERR_INTERRUPTED);
    int mine = p->given++;
    for (int i = 0, n = p->ways[mine]; i < n; i++) {
        p->choice[mine] = i;
        count_derivations(p);
        p->given = mine + 1;
    }
    p->given = mine;
}

typedef struct recorder {
    uint32_t state;
    int choice[CHOICES], n;
} recorder;

static err_t record_choice(void *ctx, int n, int *choice) {
    recorder *r = ctx;
    r->state = r->state * 1664525u + 1013904223u;
    *choice = r->choice[r->n++] = (int)((uint64_t)r->state * (uint64_t)n >> 32);
    return ERR_OK;
}

static void a_story_is_read_back_in_one_way(void **state) {
    (void)state;
    grammar *g;
    OK(grammar_open(&g, story_rules, story_rule_count));
    for (uint32_t i = 0; i < 60; i++) {
        recorder r = {.state = 77 * i};
        bytes text = {0};
        OK(grammar_tell(g, record_choice, &r, &text));
        parser p = {.g = g, .text = text.at, .n = text.n};
        count_derivations(&p);
        assert_int_equal(p.found, 1);
        assert_int_equal(p.choices, r.n);
        assert_memory_equal(p.first, r.choice, (size_t)r.n * sizeof r.choice[0]);
        free(text.at), free(p.told.at);
    }
    grammar_close(g);
}

#define RULES(...) \
    ((const grammar_rule[]){__VA_ARGS__}), (int)(sizeof((const grammar_rule[]){__VA_ARGS__}) / sizeof(grammar_rule))

static void expect_refused(const grammar_rule *rules, int count, const char *why) {
    grammar *g = NULL;
    if (grammar_open(&g, rules, count) == ERR_OK) fail_msg("%s: taken, but expected: %s", rules[0].text, why);
    assert_null(g);
    if (!strstr(err_last()->text, why)) fail_msg("%s: %s; expected: %s", rules[0].text, err_last()->text, why);
}

static void expect_taken(const grammar_rule *rules, int count) {
    grammar *g;
    OK(grammar_open(&g, rules, count));
    grammar_close(g);
}

#define PET \
    { "pet", "sound", "cat/meow|dog/wuff|cow/moo" }
#define FOOD \
    { "food", "", "milk|corn|dates" }

static void texts_that_can_be_read_in_two_ways_are_refused(void **state) {
    (void)state;
    expect_refused(RULES({"s", "", "[w]"}, {"w", "", "an|ant"}), "alternatives 1 and 2 apart");
    expect_refused(RULES({"s", "", "[w]"}, {"w", "", "ant|bee|Ant"}), "alternatives 1 and 3 apart");
    expect_refused(RULES({"s", "", "[pet] x|[pet] x"}, PET), "alternatives 1 and 2 apart");
    expect_refused(RULES({"s", "", "[pet]s|[pet]"}, PET), "alternatives 1 and 2 apart");
    expect_refused(RULES({"s", "", "the [pet] x|the cow x"}, PET), "alternatives 1 and 2 apart");
    expect_refused(RULES({"s", "", "the [pet] x|the cow"}, PET), "alternatives 1 and 2 apart");
    expect_refused(RULES({"s", "", "[pet=X] [pet=Y] [t]"}, PET, {"t", "", "[X]|[Y]"}), "alternatives 1 and 2 apart");
    expect_refused(RULES({"s", "", "[pet=X] [pet=Y not X] [t]"}, PET, {"t", "", "[X.sound]|[Y.sound]"}),
                   "alternatives 1 and 2 apart");
    expect_refused(RULES({"s", "", "[t] x|[u] x"}, {"t", "", "a[pet]|b"}, {"u", "", "b[pet]|c"}, PET),
                   "alternatives 1 and 2 apart");
    expect_refused(RULES({"s", "", "[pet] [food] x|[food] x"}, {"pet", "", "corn|cow"}, FOOD),
                   "alternatives 1 and 2 apart");
    expect_refused(RULES({"s", "", "[pet=X] [pet=Y not X] [pet=X] [t]"}, PET, {"t", "", "[X]|[Y]"}),
                   "alternatives 1 and 2 apart");
    // what a letter stands for after an expansion is not what it stood for before
    expect_refused(RULES({"s", "", "[pet=X] [pet=Y not X] [u]"}, PET, {"u", "", "[t] [X]|[t] [Y]"},
                         {"t", "", "a[pet=X]|b[pet=X]"}),
                   "alternatives 1 and 2 apart");
    // an article or a capital letter makes another text, which a word may begin with itself
    expect_refused(RULES({"s", "", "[w=X] [w=Y not X] [t]"}, {"w", "", "bee|a bee"}, {"t", "", "[a X]|[Y]"}),
                   "alternatives 1 and 2 apart");
    expect_refused(RULES({"s", "", "[a pet]|[v]"}, PET, {"v", "", "a cat|xx"}), "alternatives 1 and 2 apart");
    expect_refused(RULES({"s", "", "[a pet] x|a cow x"}, PET), "alternatives 1 and 2 apart");
    expect_refused(RULES({"s", "", "[^pet] x|Cow x"}, PET), "alternatives 1 and 2 apart");
    expect_refused(RULES({"s", "", "[^a pet] x|A cow x"}, PET), "alternatives 1 and 2 apart");
    expect_refused(RULES({"s", "", "[pet=X] [t]"}, PET, {"t", "", "[X.sound]|[X.sound]"}),
                   "alternatives 1 and 2 apart");
    expect_refused(RULES({"s", "", "[pet] x|[u]"}, PET, {"u", "", "cow [food]|x"}, FOOD), "alternatives 1 and 2 apart");
    expect_taken(RULES({"s", "", "[pet] x|[u]"}, PET, {"u", "", "meow [food]|x"}, FOOD));
    expect_refused(RULES({"s", "", "[pet=X] [v]"}, PET, {"v", "", "[X.sound]|[u]"}, {"u", "", "meow [food]|x"}, FOOD),
                   "alternatives 1 and 2 apart");
    expect_taken(RULES({"s", "", "[pet=X] [v]"}, PET, {"v", "", "[X.sound]|[u]"}, {"u", "", "cow [food]|x"}, FOOD));
    // a draw that both begin with is known in both
    expect_taken(RULES({"s", "", "[pet=X] [pet=Y not X] [X]|[pet=X] [pet=Y not X] [Y]"}, PET));
    expect_refused(RULES({"s", "", "[pet=X] [pet=Y not X] [t]"}, PET, {"t", "", "[pet=X] [X]|[pet=X] [Y]"}),
                   "alternatives 1 and 2 apart");
    expect_taken(RULES({"s", "", "[a pet]x|[pet]x"}, PET));
    expect_taken(RULES({"s", "", "[^pet]x|[pet]x"}, PET));
    expect_taken(RULES({"s", "", "[^a pet]x|[a pet]x"}, PET));
    expect_taken(RULES({"s", "", "the [pet] x|the cob x"}, PET));
    expect_taken(RULES({"s", "", "[pet=X] [pet=Y not X] [t]"}, PET, {"t", "", "[X]|[Y]"}));
    expect_taken(RULES({"s", "", "[pet=X] [pet=Y] [pet=X not Y] [t]"}, PET, {"t", "", "[X]|[Y]"}));
    expect_taken(RULES({"s", "", "[pet] x|[food] x"}, PET, FOOD));
    expect_taken(RULES({"s", "", "[a pet] x|the [food] x"}, PET, FOOD));
}

static void grammars_that_make_no_sense_are_refused(void **state) {
    (void)state;
    expect_refused(RULES({"s", "", "[pat]"}, PET), "no such rule: \"pat\"");
    expect_refused(RULES({"s", "", "[pet"}, PET), "a bracket that is not closed");
    expect_refused(RULES({"s", "", "[X]"}, PET), "a letter that may stand for nothing: \"X\"");
    expect_refused(RULES({"s", "", "[t] [X]"}, {"t", "", "[pet=X]|no [pet]"}, PET),
                   "a letter that may stand for nothing");
    expect_refused(RULES({"s", "", "[pet=X] [X.colour]"}, PET), "no such field: \"colour\"");
    expect_refused(RULES({"s", "", "[pet=X] [food=Y not X]"}, PET, FOOD), "no word of that rule here: \"X\"");
    expect_refused(RULES({"s", "", "[pet=X] [pet=Y] [pet not X Y]"}, PET), "may be the same");
    // X is another one by now
    expect_refused(RULES({"s", "", "[pet=X] [pet=Y not X] [pet=X] [pet not X Y]"}, PET), "may be the same");
    expect_refused(RULES({"s", "", "[pet=X] [pet=Y not X] [pet=Z not X Y] [pet not X Y Z]"}, PET),
                   "no word is left to choose");
    expect_refused(RULES({"s", "", "[t] x"}, {"t", "", "a [s]|b"}), "it contains itself");
    expect_refused(RULES({"s", "", "[t=X] x"}, {"t", "", "a [pet]|b"}, PET), "only words can be remembered");
    expect_refused(RULES({"s", "", "[pet=XY]"}, PET), "expected a capital letter");
    expect_refused(RULES({"s", "", "[pet not x]"}, PET), "expected letters after \"not\"");
    expect_refused(RULES({"s", "", "[pet]"}, {"pet", "sound", "cat/meow|dog"}), "another number of fields");
    expect_refused(RULES({"s", "", "[pet]"}, {"pet", "", "cat||dog"}), "an empty word");
    // of alternatives only what all of them say is known after them
    expect_refused(RULES({"s", "", "[t] [X]"}, {"t", "", "a[pet=X]|b[food=X]"}, PET, FOOD),
                   "a letter that may stand for nothing: \"X\"");
    expect_refused(RULES({"s", "", "[t] [pet not X Y]"}, {"t", "", "a[pet=X] [pet=Y not X]|b[pet=X] [pet=Y]"}, PET),
                   "may be the same");
    expect_refused(RULES({"s", "", "[t] [pet not X Y]"}, {"t", "", "b[pet=X] [pet=Y]|a[pet=X] [pet=Y not X]"}, PET),
                   "may be the same");
    expect_taken(
        RULES({"s", "", "[t] [pet not X Y]"}, {"t", "", "a[pet=X] [pet=Y not X]|b[pet=Y] [pet=X not Y]"}, PET));
    // names and fields are whole ones
    expect_refused(RULES({"s", "", "[pe]"}, PET), "no such rule: \"pe\"");
    expect_refused(RULES({"s", "", "[pet=X] [X.sounds]"}, PET), "no such field: \"sounds\"");
    expect_refused(RULES({"s", "", "[pet=X] [X.soun]"}, PET), "no such field: \"soun\"");
    expect_taken(RULES({"s", "", "[w]"}, {"w", "a b c d", "x/1/2/3/4|y/1/2/3/4"}));
    expect_refused(RULES({"s", "", "[w]"}, {"w", "a b c d e", "x/1/2/3/4/5|y/1/2/3/4/5"}), "another number of fields");
}

// Rules in rules, up to a depth.
static void rules_have_a_depth(void **state) {
    (void)state;
    enum { MOST = 12 };
    static char name[MOST + 3][2], text[MOST + 3][8];
    for (int depth = MOST; depth <= MOST + 1; depth++) {
        grammar_rule rules[MOST + 3];
        for (int i = 0; i <= depth; i++) {
            snprintf(name[i], sizeof name[i], "%c", 'a' + i),
                snprintf(text[i], sizeof text[i], i < depth ? "<[%c]>" : "<[]", 'a' + i + 1);
            rules[i] = (grammar_rule){name[i], "", i < depth ? text[i] : "[z]|-"};
        }
        rules[depth + 1] = (grammar_rule){"z", "", "x|y"};
        if (depth == MOST) expect_taken(rules, depth + 2);
        else expect_refused(rules, depth + 2, "it contains itself, or is too deep");
    }
}

static void expect_average(const grammar_rule *rules, int count, double nats, double bytes) {
    grammar *g;
    OK(grammar_open(&g, rules, count));
    grammar_amount a = grammar_average(g);
    grammar_close(g);
    if (fabs(a.nats - nats) > 1e-12 || fabs(a.bytes - bytes) > 1e-12)
        fail_msg("%s: %.9f nats, %.9f bytes; expected %.9f, %.9f", rules[0].text, a.nats, a.bytes, nats, bytes);
}

// By hand: two alternatives, draws without replacement, fields and articles.
static void averages_are_those_of_a_small_grammar(void **state) {
    (void)state;
    double food = 4, with_article = 4 + 7.0 / 3;
    expect_average(RULES({"s", "", "[pet=X] [pet not X]|no: [a food=Y] [Y] [t]"}, {"pet", "", "ape|horse"},
                         {"food", "", "egg|rice|honey"}, {"t", "", "[Y]|?"}),
                   fm_log(2) + (fm_log(2) + fm_log(3) + fm_log(2)) / 2,
                   (4 + 1 + 4 + 4 + with_article + 1 + food + 1 + (food + 1) / 2) / 2);
    // an article before a word that comes again, and before its field
    expect_average(RULES({"s", "", "[pet=X] [a X] [^a X.sound]"}, {"pet", "sound", "ape/hoo|ox/a"}), fm_log(2),
                   2.5 + 1 + (2.5 + 3) + 1 + (2 + 2.5));
}

typedef struct given {
    const int *choice;
    int n;
} given;

static err_t take_given(void *ctx, int n, int *choice) {
    given *g = ctx;
    *choice = g->choice[g->n++];
    assert_in_range(*choice, 0, n - 1);
    return ERR_OK;
}

static void expect_told(const grammar_rule *rules, int count, const int *choice, int choices, const char *want) {
    grammar *g;
    bytes text = {0};
    given c = {choice, 0};
    OK(grammar_open(&g, rules, count));
    OK(grammar_tell(g, take_given, &c, &text));
    if (text.n != (int64_t)strlen(want) || memcmp(text.at, want, (size_t)text.n) != 0)
        fail_msg("%.*s; expected %s", (int)text.n, text.at, want);
    assert_int_equal(c.n, choices);  // of one alternative there is no choice
    free(text.at);
    grammar_close(g);
}
#define CHOOSE(...) ((const int[]){__VA_ARGS__}), (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

// With these choices, this text.
static void choices_make_the_text(void **state) {
    (void)state;
    static const char *const words = "ape|egg|ink|owl|urn|yak|Eel|Ulm|Zoo";
    static const char *const an[] = {"an ape", "an egg", "an ink", "an owl", "an urn",
                                     "a yak",  "an Eel", "an Ulm", "a Zoo"};
    for (int i = 0; i < 9; i++) {
        char want[80];
        snprintf(want, sizeof want, "%s, A%s.", an[i], an[i] + 1);
        expect_told(RULES({"s", "", "[a w=X], [^a X]."}, {"w", "", words}), CHOOSE(i), want);
    }
    // what is left out is passed over, wherever it stands among the words
    static const char *const four = "a|b|c|d";
    for (int x = 0; x < 4; x++)
        for (int y = 0; y < 3; y++)
            for (int z = 0; z < 2; z++) {
                int second = y + (y >= x), low = x < second ? x : second, high = x < second ? second : x,
                    third = z + (z >= low);
                third += third >= high;
                char want[40];
                snprintf(want, sizeof want, "%c%c%c.%c%c%c", 'a' + x, 'a' + second, 'a' + third, 'a' + third,
                         'a' + second, 'a' + x);
                expect_told(RULES({"s", "", "[w=X][w=Y not X][w=Z not Y X].[Z][Y][X]"}, {"w", "", four}),
                            CHOOSE(x, y, z), want);
            }
    // a letter stands for what it was given last, and may be unlike what it was; fields are the last word's
    expect_told(RULES({"s", "", "[pet=X][X.sound] [pet=X not X][X.sound]"}, PET), CHOOSE(1, 1), "dogwuff cowmoo");
    expect_told(RULES({"s", "", "[w=X][X.he][^X.her][X]"}, {"w", "he her", "Ada/she/hers|Ben/him/his"}), CHOOSE(1),
                "BenhimHisBen");
    expect_told(RULES({"s", "", "[^t]."}, {"t", "", "[pet] a|[food] b"}, PET, FOOD), CHOOSE(1, 2), "Dates b.");
    expect_average(RULES({"s", "", "[pet=X] [pet=X not X]"}, PET), fm_log(3) + fm_log(2), 7);
    expect_average(RULES({"s", "", "[w=X][w=Y not X][w=Z not X Y]"}, {"w", "", four}),
                   fm_log(4) + fm_log(3) + fm_log(2), 3);
    expect_average(RULES({"s", "", "[pet]"}, {"petal", "", "long|words"}, PET), fm_log(3), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_what_it_always_was),
        cmocka_unit_test(sizes_are_beginnings_of_each_other_and_seeds_differ),
        cmocka_unit_test(an_input_is_a_seed_and_a_size),
        cmocka_unit_test(the_entropy_is_what_a_count_finds),
        cmocka_unit_test(there_are_many_shapes_and_words),
        cmocka_unit_test(a_story_is_read_back_in_one_way),
        cmocka_unit_test(texts_that_can_be_read_in_two_ways_are_refused),
        cmocka_unit_test(grammars_that_make_no_sense_are_refused),
        cmocka_unit_test(rules_have_a_depth),
        cmocka_unit_test(choices_make_the_text),
        cmocka_unit_test(averages_are_those_of_a_small_grammar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
