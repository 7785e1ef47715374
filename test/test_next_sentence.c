// test/test_next_sentence.c: pairs of texts for a model that learns whether the second one follows the first, against a
// search over all tokens: half of them follow, the others come from another document, from anywhere in the data, and
// never from samples that are held out. Which, the seed and the place in the run say, and nothing else.
#include "test/support/run.h"

#include "data/source.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>

// A token is its own place in the file, and FIRST more; so where a text comes from shows. Documents end with END.
enum { MASK = 4, BEGIN = 2, END = 3, FIRST = 10, T = 11, N = T - 3, HALF = N / 2, NEAR = 64, MOST = 8192 };

typedef struct text_file {
    char path[PATH_MAX];
    int32_t token[MOST];
    int64_t count;
} text_file;

static void add_document(text_file *f, int64_t n) {
    for (int64_t i = 0; i < n; i++, f->count++) f->token[f->count] = FIRST + (int32_t)f->count;
    f->token[f->count++] = END;
}

static void write_file(text_file *f, const char *dir) {
    snprintf(f->path, sizeof f->path, "%s/tokens.bin", dir);
    FILE *to = fopen(f->path, "wb");
    assert_true(to && fwrite(f->token, sizeof *f->token, (size_t)f->count, to) == (size_t)f->count && fclose(to) == 0);
}

// A long document among short ones, of which no end is near to most of its windows.
static void make_file(text_file *f, const char *dir) {
    f->count = 0;
    for (int64_t i = 0; i < 40; i++) add_document(f, 3 + i * 7 % 31);
    add_document(f, 300 * N);
    for (int64_t i = 0; i < 40; i++) add_document(f, 3 + i * 11 % 29);
    write_file(f, dir);
}

static err_t try_open(source **s, const text_file *f, int64_t held_out, bool only) {
    tensor_spec wanted[] = {{.name = "tokens", .type = INT32, .dims = 1, .size = {T, 1, 1}, .limit = FIRST + MOST},
                            {.name = "types", .type = INT32, .dims = 1, .size = {T, 1, 1}, .limit = 2},
                            {.name = "places", .type = INT32, .dims = 1, .size = {2, 1, 1}, .limit = T},
                            {.name = "targets", .type = INT32, .dims = 1, .size = {2, 1, 1}, .limit = FIRST + MOST},
                            {.name = "label", .type = INT32, .size = {1, 1, 1}, .limit = 2}};
    return source_open(s, &(source_options){.files = f->path,
                                            .format = FORMAT_RAW32,
                                            .wanted = wanted,
                                            .inputs = 5,
                                            .mask = MASK,
                                            .begin = BEGIN,
                                            .end = END,
                                            .held_out = held_out,
                                            .only_held_out = only});
}

typedef struct pair {
    int32_t token[T], types[T], places[2], targets[2], label;
} pair;

static pair read_pair(source *s, const source_draw *d) {
    pair p = {0};
    OK(source_read(s, d, (void *[]){p.token, p.types, p.places, p.targets, &p.label}));
    return p;
}

// Takes the masks off, and checks what stands around the texts.
static void unmask(pair *p) {
    for (int m = 0; m < 2; m++) {
        int32_t at = p->places[m];
        assert_true(at > 0 && at < T - 1 && at != HALF + 1);
        p->token[at] = p->targets[m];
    }
    assert_true(p->places[0] < p->places[1]);
    assert_true(p->token[0] == BEGIN && p->token[HALF + 1] == END && p->token[T - 1] == END);
    for (int t = 0; t < T; t++) assert_int_equal(p->types[t], t > HALF + 1);
    assert_true(p->label == 0 || p->label == 1);
}

static int64_t document_of(const text_file *f, int64_t at) {
    int64_t d = 0;
    for (int64_t i = 0; i < at; i++) d += f->token[i] == END;
    return d;
}

// The window whose second half this is; -1: none of them.
static int64_t window_of(const text_file *f, const int32_t *half) {
    for (int64_t w = 0; (w + 1) * N <= f->count; w++)
        if (memcmp(half, f->token + w * N + HALF, (N - HALF) * sizeof *half) == 0) return w;
    return -1;
}

// Where the second text of window k's pair comes from.
static int64_t check_pair(const text_file *f, pair *p, int64_t k) {
    unmask(p);
    assert_memory_equal(p->token + 1, f->token + k * N, HALF * sizeof *p->token);
    int64_t from = window_of(f, p->token + HALF + 2), own = document_of(f, k * N + HALF - 1);
    if (from < 0) fail_msg("window %" PRId64 ": its second text is none of the file's", k);
    if ((from == k) == p->label) fail_msg("window %" PRId64 " with label %d has window %" PRId64, k, p->label, from);
    bool apart = from - k > NEAR || k - from > NEAR;
    for (int64_t i = from * N; p->label && !apart && i < (from + 1) * N; i++)
        if (document_of(f, i) == own) fail_msg("windows %" PRId64 " and %" PRId64 " share a document", k, from);
    return from;
}

static void half_of_the_pairs_are_drawn_from_other_documents(void **state) {
    (void)state;
    static text_file f;
    static int64_t drawn[MOST / N];
    char *dir = make_dir();
    source *s;
    make_file(&f, dir);
    OK(try_open(&s, &f, 0, false));
    int64_t W = source_about(s).samples, others = 0, never = 0, far = 0, reads = 6 * W;
    assert_int_equal(W, f.count / N);
    memset(drawn, 0, sizeof drawn);
    for (int64_t n = 0; n < reads; n++) {
        source_draw d = {.seed = 5, .n = n, .sample = n % W, .train = true};
        pair p = read_pair(s, &d), again = read_pair(s, &d);
        assert_memory_equal(&p, &again, sizeof p);
        int64_t from = check_pair(&f, &p, d.sample);
        others += p.label, drawn[from] += p.label;
        far += p.label && document_of(&f, from * N) == document_of(&f, d.sample * N + HALF - 1);
    }
    // half of them, within four deviations; and from anywhere: of the long document from far away
    assert_true(fabs((double)others - (double)reads / 2) < 4 * sqrt((double)reads / 4));
    for (int64_t w = 0; w < W; w++) never += drawn[w] == 0;
    assert_true((double)never < 0.12 * (double)W && far > 20);
    source_close(s);
    drop_dir(dir);
}

static void seed_and_place_say_which(void **state) {
    (void)state;
    static text_file f;
    char *dir = make_dir();
    source *s;
    int differ[3] = {0};
    make_file(&f, dir);
    OK(try_open(&s, &f, 0, false));
    for (int64_t k = 0; k < 64; k++) {
        const source_draw draws[] = {{.seed = 5, .n = k, .sample = k, .train = true},
                                     {.seed = 6, .n = k, .sample = k, .train = true},
                                     {.seed = 5, .n = k + 4096, .sample = k, .train = true},
                                     {.seed = 5, .n = k + INT64_C(0x100000000), .sample = k, .train = true}};
        pair first = read_pair(s, &draws[0]);
        for (int i = 0; i < 3; i++) {
            pair other = read_pair(s, &draws[1 + i]);
            differ[i] += other.label != first.label;
        }
        // without chance a sample is always the same
        pair looked = read_pair(s, &(source_draw){.seed = 5, .sample = k}),
             later = read_pair(s, &(source_draw){.seed = 6, .n = 99, .epoch = 1, .sample = k});
        assert_memory_equal(&looked, &later, sizeof looked);
    }
    for (int i = 0; i < 3; i++) assert_true(differ[i] > 16 && differ[i] < 48);
    source_close(s);
    drop_dir(dir);
}

static void what_is_held_out_is_drawn_by_itself_alone(void **state) {
    (void)state;
    enum { HELD = 30 };
    static text_file f;
    char *dir = make_dir();
    make_file(&f, dir);
    for (int only = 0; only < 2; only++) {
        source *s;
        OK(try_open(&s, &f, HELD, only));
        int64_t W = source_about(s).samples, kept = f.count / N - HELD, others = 0;
        for (int64_t n = 0; n < 2 * W; n++) {
            source_draw d = {.seed = 5, .n = n, .sample = n % W, .train = true};
            pair p = read_pair(s, &d);
            int64_t from = check_pair(&f, &p, d.sample + (only ? kept : 0));
            if ((from >= kept) != only) fail_msg("window %" PRId64 " is on the other side of the holdout", from);
            others += p.label;
        }
        assert_true(others > 0);
        source_close(s);
    }
    source *s;  // one alone follows itself
    OK(try_open(&s, &f, 1, true));
    for (int64_t n = 0; n < 16; n++) {
        pair p = read_pair(s, &(source_draw){.seed = 5, .n = n, .train = true});
        assert_int_equal(p.label, 0);
    }
    source_close(s);
    drop_dir(dir);
}

// Where there is no other document, the second text is another window's.
static void one_document_is_drawn_from_too(void **state) {
    (void)state;
    static text_file f;
    char *dir = make_dir();
    source *s;
    int64_t others = 0;
    f.count = 0;
    add_document(&f, 4 * N);
    write_file(&f, dir);
    OK(try_open(&s, &f, 0, false));
    for (int64_t n = 0; n < 40; n++) {
        source_draw d = {.seed = 5, .n = n, .sample = n % 4, .train = true};
        pair p = read_pair(s, &d);
        unmask(&p);
        assert_int_equal(window_of(&f, p.token + HALF + 2) != d.sample, p.label);
        others += p.label;
    }
    assert_true(others > 8 && others < 32);
    source_close(s);
    f.count = 2 * N - 1;
    write_file(&f, dir);
    assert_int_equal(try_open(&s, &f, 0, false), ERR_DATA);
    assert_non_null(strstr(err_last()->text, "15 tokens, expected at least 16: the model reads 8 of them at once"));
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_of_the_pairs_are_drawn_from_other_documents),
        cmocka_unit_test(seed_and_place_say_which),
        cmocka_unit_test(what_is_held_out_is_drawn_by_itself_alone),
        cmocka_unit_test(one_document_is_drawn_from_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
