// test/test_about.c: what is known of shards beside them: of which it is believed, what several sets have in common,
// and where their tokenizer is found. Only a shard's name and the checksum at the end of its header are looked at, so
// shards here are headers.
#include "data/text/about.h"
#include "data/text/pack.h"
#include "test/support/expect.h"
#include "test/support/place.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define GPT2 "test/golden/tokenizer/gpt2.json"
#define OTHER "test/golden/tokenizer/smollm.json"

static void put_shard(place *p, const char *name, uint32_t crc) {
    uint8_t header[64] = {0};
    for (int i = 0; i < 4; i++) header[60 + i] = (uint8_t)(crc >> 8 * i);
    assert_ok(io_write_file(at(p, name), (const char *)header, sizeof header, NULL));
}

// PREFIX-train-00000.bin and PREFIX-val-00000.bin, and what is known of them.
static void put_set(place *p, const char *prefix, const char *tokenizer, const char *vocabulary, double best) {
    static const char *const splits[] = {"train", "val"};
    about a = {.best_loss = best};
    about_writer *w;
    char name[200];
    snprintf(a.tokenizer, sizeof a.tokenizer, "%s", tokenizer),
        snprintf(a.vocabulary, sizeof a.vocabulary, "%s", vocabulary);
    assert_ok(about_write_open(&w));
    for (int i = 0; i < 2; i++) {
        uint32_t crc = 0xfffffff0u + (uint32_t)i + (uint32_t)prefix[0] % 8;
        snprintf(name, sizeof name, "%s-%s-00000.bin", prefix, splits[i]);
        put_shard(p, name, crc);
        about_write_shard(w, at(p, name), crc);
    }
    assert_ok(about_write(w, at(p, prefix), &a));
    about_write_close(w);
}

// Files of the place, space between: "%" stands for its directory.
static const char *files(const place *p, const char *pattern, char dst[4 * IO_PATH]) {
    size_t n = 0;
    for (; *pattern; pattern++) {
        if (*pattern == '%') n += (size_t)snprintf(dst + n, 4 * IO_PATH - n, "%s", p->dir);
        else dst[n++] = *pattern;
    }
    dst[n] = 0;
    return dst;
}

static about find(const place *p, const char *pattern) {
    char text[4 * IO_PATH];
    about a;
    assert_ok(about_find(&a, files(p, pattern, text)));
    if (!a.known) assert_true(!a.tokenizer[0] && !a.vocabulary[0] && !a.beside[0] && !(a.best_loss > 0));
    return a;
}

static void several_sets_have_one_vocabulary_and_perhaps_one_loss(void **state) {
    place *p = *state;
    static const struct {
        const char *files;
        bool known;
        double best;
    } rows[] = {
        {"%/a-train-*.bin", true, 0.7310585786},
        {"%/a-*.bin", true, 0.7310585786},
        {"%/a-train-*.bin %/b-train-*.bin", true, 0.7310585786},
        {"%/b-train-*.bin %/c-train-*.bin", true, 0},
        {"%/c-train-*.bin %/b-train-*.bin", true, 0},
        {"%/c-train-*.bin %/d-train-*.bin", true, 0},
        {"%/d-train-*.bin %/c-train-*.bin", true, 0},
        {"%/a-train-*.bin %/c-train-*.bin %/a-val-*.bin", true, 0},
        {"%/a-train-*.bin@0.5 %/b-train-*.bin@0.5", true, 0.7310585786},
        {"%/a-train-*.bin@0.5 %/b-train-*.bin@0.3 %/c-val-*.bin@0.2", true, 0},
        // one that is not known, wherever it stands
        {"%/u-train-*.bin", false, 0},
        {"%/a-train-*.bin %/u-train-*.bin", false, 0},
        {"%/u-train-*.bin %/a-train-*.bin", false, 0},
        {"%/a-train-*.bin@0.5 %/u-train-*.bin@0.5", false, 0},
        {"%/u-train-*.bin@0.5 %/a-train-*.bin@0.5", false, 0},
        {"%/a-train-*.bin@0.5 %/none-*.bin@0.5", false, 0},
        {"%/none-*.bin", false, 0},
        {"%/a-train-*.bin %/b-train-*.bin@0.5", false, 0},
        // one of another vocabulary after it is not reached
        {"%/u-train-*.bin %/x-train-*.bin", false, 0},
    };
    put_set(p, "a", "a.json", "0123456789abcdef", 0.7310585786),
        put_set(p, "b", "moved/a.json", "0123456789abcdef", 0.7310585786);
    put_set(p, "c", "a.json", "0123456789abcdef", 0.8), put_set(p, "d", "a.json", "0123456789abcdef", 0);
    put_set(p, "x", "x.json", "fedcba9876543210", 0.7310585786);
    put_shard(p, "u-train-00000.bin", 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        about a = find(p, rows[i].files);
        if (a.known != rows[i].known || fabs(a.best_loss - rows[i].best) > 1e-9)
            fail_msg("%s: known %d, best loss %.10f; expected %d, %.10f", rows[i].files, a.known, a.best_loss,
                     rows[i].known, rows[i].best);
        if (a.known) assert_string_equal(a.vocabulary, "0123456789abcdef"), assert_string_equal(a.beside, p->dir);
    }
    assert_string_equal(find(p, "%/b-train-*.bin@0.5 %/a-train-*.bin@0.5").tokenizer, "moved/a.json");  // the first
}

static void other_vocabularies_are_refused(void **state) {
    place *p = *state;
    static const char *const both[] = {"%/a-train-*.bin %/x-train-*.bin", "%/a-train-*.bin@0.5 %/x-train-*.bin@0.5",
                                       "%/a-train-*.bin %/a-val-*.bin %/x-train-*.bin",
                                       "%/a-train-*.bin@0.5 %/a-val-*.bin@0.3 %/x-train-*.bin@0.2"};
    char text[4 * IO_PATH];
    about a;
    put_set(p, "a", "a.json", "0123456789abcdef", 1), put_set(p, "x", "x.json", "fedcba9876543210", 1),
        put_set(p, "y", "bytes", "", 1);
    for (int i = 0; i < 4; i++)
        assert_error(about_find(&a, files(p, both[i], text)), ERR_DATA,
                     "/a-train-00000.bin was made with the tokenizer a.json, and ",
                     "/x-train-00000.bin with x.json: expected one vocabulary");
    assert_error(about_find(&a, files(p, "%/y-val-*.bin@0.5 %/x-train-*.bin@0.5", text)), ERR_DATA,
                 "/y-val-00000.bin was made with the tokenizer bytes, ");
    assert_false(a.known);
}

// Of shards of the same name elsewhere, of others under this name, and of other names nothing is said.
static void it_is_of_these_very_shards(void **state) {
    place *p = *state;
    static const char *const names[] = {"a-train-0000.bin",  "a-train-000000.bin", "a-train-0000x.bin",
                                        "a-test-00000.bin",  "-train-00000.bin",   "a-train-00000.bin2",
                                        "a_train-00000.bin", "a-train-00001.bin",  "a-val-00001.bin"};
    char pattern[100];
    put_set(p, "a", "a.json", "0123456789abcdef", 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        put_shard(p, names[i], 0xfffffff1u);
        snprintf(pattern, sizeof pattern, "%%/%s", names[i]);
        if (find(p, pattern).known) fail_msg("%s is known", names[i]);
        assert_ok(io_remove_tree(at(p, names[i])));
    }
    assert_ok(io_mkdirs(at(p, "copy")));
    put_shard(p, "copy/a-train-00000.bin", 0xfffffff1u);
    assert_true(find(p, "%/a-train-00000.bin").known);
    assert_false(find(p, "%/copy/a-train-00000.bin").known);
    assert_false(find(p, "%/a-train-00000.bin %/copy/a-train-00000.bin").known);
    put_shard(p, "a-train-00000.bin", 0x7ffffff1u);
    assert_false(find(p, "%/a-train-00000.bin").known);
    assert_true(find(p, "%/a-val-00000.bin").known);
    assert_ok(io_write_file(at(p, "a-val-00000.bin"), "short", 5, NULL));
    assert_false(find(p, "%/a-val-00000.bin").known);
}

// All shards of a set, whatever digits their numbers have.
static void all_numbers_are_known(void **state) {
    place *p = *state;
    char out[IO_PATH];
    pack_report r;
    snprintf(out, sizeof out, "%s", at(p, "t"));
    assert_ok(
        pack_run(&(pack_options){.input = "stories:3:230", .output = out, .shard_tokens = 2, .val_fraction = 0.1}, &r));
    assert_true(r.shards_out > 100);
    about a = find(p, "%/t-train-*.bin %/t-val-*.bin");
    assert_true(a.known && fabs(a.best_loss / r.best_loss - 1) < 1e-8);
    put_shard(p, "t-train-00099.bin", 1);
    assert_false(find(p, "%/t-train-*.bin").known);
}

static void damage_is_named(void **state) {
    place *p = *state;
    static const char *const damaged[] = {
        "",
        "{",
        "[]",
        "\"text\"",
        "{\"tokenizer\": \"a\", \"tokenizer\": \"a\", \"vocabulary\": \"\", \"shards\": {}}",
        "{\"vocabulary\": \"\", \"shards\": {\"a-train-00000.bin\": \"00000007\"}}",
        "{\"tokenizer\": \"a\", \"shards\": {\"a-train-00000.bin\": \"00000007\"}}",
        "{\"tokenizer\": 1, \"vocabulary\": \"\", \"shards\": {\"a-train-00000.bin\": \"00000007\"}}",
        "{\"tokenizer\": \"a\", \"vocabulary\": 1, \"shards\": {\"a-train-00000.bin\": \"00000007\"}}",
        "{\"tokenizer\": \"a\", \"vocabulary\": \"0123456789abcdef0\", \"shards\": {\"a-train-00000.bin\": \"00000007\"}}",
    };
    char text[4 * IO_PATH];
    about a;
    put_shard(p, "a-train-00000.bin", 7);
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        assert_ok(io_write_file(at(p, "a-about.json"), damaged[i], strlen(damaged[i]), NULL));
        assert_error(about_find(&a, files(p, "%/a-train-*.bin", text)), ERR_DATA,
                     "/a-about.json: ", "`lockstep pack` writes it anew");
    }
    // what is not there, or is of another type than what is meant, says nothing
    static const char *const silent[] = {"{}", "{\"shards\": []}", "{\"shards\": {\"a-train-00000.bin\": 7}}"};
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        assert_ok(io_write_file(at(p, "a-about.json"), silent[i], strlen(silent[i]), NULL));
        assert_false(find(p, "%/a-train-*.bin").known);
    }
}

// --- the tokenizer ---------------------------------------------------------------------------------------------------

static void copy(place *p, const char *from, const char *to) {
    char *text;
    size_t n;
    assert_ok(io_read_file(from, 1 << 24, &text, &n));
    assert_ok(io_write_file(at(p, to), text, n, NULL));
    free(text);
}

static void expect_tokenizer(const about *a, const char *where) {
    tokenizer *t;
    char hash[17], there[IO_PATH] = "";
    assert_ok(about_tokenizer(a, &t, there));
    tokenizer_hash(t, hash);
    assert_string_equal(hash, a->vocabulary);
    assert_string_equal(there, where);
    tokenizer_close(t);
    assert_ok(about_tokenizer(a, &t, NULL));
    tokenizer_close(t);
}

// Where it was, or beside the shards, if it has the vocabulary: another file of that name is passed over.
static void the_tokenizer_is_found(void **state) {
    place *p = *state;
    char hash[17], there[IO_PATH], beside[IO_PATH], says[2 * IO_PATH];
    tokenizer *t;
    about a;
    assert_ok(tokenizer_open(&t, GPT2));
    tokenizer_hash(t, hash);
    tokenizer_close(t);
    assert_ok(io_mkdirs(at(p, "far")));
    snprintf(there, sizeof there, "%s", at(p, "far/a.json")), snprintf(beside, sizeof beside, "%s", at(p, "a.json"));
    put_set(p, "s", there, hash, 0);
    a = find(p, "%/s-val-*.bin");
    copy(p, GPT2, "far/a.json"), copy(p, GPT2, "a.json");
    expect_tokenizer(&a, there);
    copy(p, OTHER, "a.json");
    expect_tokenizer(&a, there);
    copy(p, OTHER, "far/a.json"), copy(p, GPT2, "a.json");
    expect_tokenizer(&a, beside);
    assert_ok(io_remove_tree(at(p, "far")));
    expect_tokenizer(&a, beside);
    snprintf(a.tokenizer, sizeof a.tokenizer, "a.json");  // a name alone: from here, or beside them
    expect_tokenizer(&a, beside);
    copy(p, OTHER, "a.json");
    snprintf(says, sizeof says, "which is neither there nor at %s: put it there, or name it in [sample] tokenizer",
             beside);
    assert_error(about_tokenizer(&a, &t, NULL), ERR_CONFIG, a.vocabulary, says);
    assert_null(t);
}

// Shards of the directory where one is, whose names have no slash.
static void it_is_found_from_here(void **state) {
    place *p = *state;
    char here[IO_PATH], hash[17], files[] = "s-train-*.bin";
    tokenizer *t;
    about a;
    assert_ok(tokenizer_open(&t, GPT2));
    tokenizer_hash(t, hash);
    tokenizer_close(t);
    put_set(p, "s", "/nowhere/a.json", hash, 0);
    copy(p, GPT2, "a.json");
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(p->dir), 0);
    err_t rc = about_find(&a, files);
    if (rc == ERR_OK && a.known) expect_tokenizer(&a, "./a.json");
    assert_int_equal(chdir(here), 0);
    assert_ok(rc);
    assert_true(a.known);
    assert_string_equal(a.beside, ".");
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, place_enter, place_leave)
    const struct CMUnitTest tests[] = {
        TEST(several_sets_have_one_vocabulary_and_perhaps_one_loss),
        TEST(other_vocabularies_are_refused),
        TEST(it_is_of_these_very_shards),
        TEST(all_numbers_are_known),
        TEST(damage_is_named),
        TEST(the_tokenizer_is_found),
        TEST(it_is_found_from_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
