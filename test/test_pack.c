// test/test_pack.c: text to shards with a tokenizer: documents and what ends them, JSONL, gzip and zstd, good and bad;
// and that threads change nothing.
#include "base/io.h"
#include "data/text/about.h"
#include "data/text/dataset.h"
#include "data/text/pack.h"
#include "data/text/stories.h"
#include "data/tokenizer/tokenizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

#define GPT2 "test/golden/tokenizer/gpt2.json"
#define OK(call) \
    do { \
        err_t ok_ = (call); \
        if (ok_ != ERR_OK) fail_msg("%s: %d: %s", #call, ok_, err_last()->text); \
    } while (0)

typedef struct place {
    char dir[256], input[300], output[300];
    tokenizer *t;
    encoder *e;
} place;

static int enter(void **state) {
    place *p = calloc(1, sizeof *p);
    const char *base = getenv("TMPDIR");
    snprintf(p->dir, sizeof p->dir, "%s/pack-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(p->dir)) return -1;
    snprintf(p->output, sizeof p->output, "%s/o/x", p->dir);
    OK(tokenizer_open(&p->t, GPT2));
    OK(encoder_open(&p->e, p->t));
    *state = p;
    return 0;
}

static int leave(void **state) {
    place *p = *state;
    int rc = io_remove_tree(p->dir) == ERR_OK ? 0 : -1;
    encoder_close(p->e);
    tokenizer_close(p->t);
    free(p);
    return rc;
}

static char *path_of(const place *p, const char *name) {
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", p->dir, name);
    return path;
}

static void put(const place *p, const char *name, const void *bytes, size_t n) {
    OK(io_write_file(path_of(p, name), bytes, n, NULL));
}
static void put_text(const place *p, const char *name, const char *text) { put(p, name, text, strlen(text)); }

static void put_gzip(const place *p, const char *name, const char *mode, const char *text) {
    gzFile f = gzopen(path_of(p, name), mode);
    assert_non_null(f);
    assert_int_equal(gzwrite(f, text, (unsigned)strlen(text)), (int)strlen(text));
    assert_int_equal(gzclose(f), Z_OK);
}

// Its text as frames of `piece` bytes, with checksums.
static void put_zstd(const place *p, const char *name, const char *text, size_t piece) {
    uint8_t file[4096];
    size_t n = 0, length = strlen(text);
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    for (size_t at = 0; at < length; at += piece) {
        size_t got = ZSTD_compress2(c, file + n, sizeof file - n, text + at, length - at < piece ? length - at : piece);
        assert_false(ZSTD_isError(got));
        n += got;
    }
    ZSTD_freeCCtx(c);
    put(p, name, file, n);
}

// Packs the files of that name or glob.
static err_t pack(place *p, const char *name, const char *tokenizer, int threads, pack_report *r) {
    pack_report none;
    snprintf(p->input, sizeof p->input, "%s", path_of(p, name));
    return pack_run(&(pack_options){.input = p->input,
                                    .output = p->output,
                                    .shard_tokens = 1000,
                                    .val_fraction = 0.25,
                                    .tokenizer = tokenizer,
                                    .threads = threads},
                    r ? r : &none);
}

// All tokens, those of the validation shards last. The caller frees them.
static int32_t *tokens_of(const place *p, int64_t *train, int64_t *all) {
    int32_t *out = NULL;
    *all = 0;
    for (int s = 0; s < 2; s++) {
        char files[400];
        dataset *d;
        snprintf(files, sizeof files, "%s-%s-*.bin", p->output, s ? "val" : "train");
        OK(dataset_open(&d, &(dataset_options){.files = files, .vocab = 1 << 20}));
        int64_t n = dataset_about(d).tokens;
        out = realloc(out, (size_t)(*all + n) * sizeof *out);
        OK(dataset_read(d, 0, n, out + *all));
        *all += n;
        if (s == 0) *train = n;
        dataset_close(d);
    }
    return out;
}

// The ids of documents, each with what ends it.
static int32_t *expected(const place *p, const char *const *documents, int count, int64_t *n) {
    int32_t *out = NULL, end = tokenizer_about(p->t).end_of_text;
    *n = 0;
    for (int i = 0; i < count; i++) {
        const int32_t *ids;
        int64_t k;
        OK(encoder_encode(p->e, documents[i], (int64_t)strlen(documents[i]), ENCODE_TEXT, &ids, &k));
        out = realloc(out, (size_t)(*n + k + 1) * sizeof *out);
        memcpy(out + *n, ids, (size_t)k * sizeof *ids);
        *n += k;
        assert_true(end >= 0);
        out[(*n)++] = end;
    }
    return out;
}

static void holds(const place *p, const char *const *documents, int count) {
    int64_t want_n, n, train;
    int32_t *want = expected(p, documents, count, &want_n), *got = tokens_of(p, &train, &n);
    assert_int_equal(n, want_n);
    assert_memory_equal(got, want, (size_t)n * sizeof *got);
    assert_int_equal(train, (int64_t)((double)n * 0.75));
    free(want), free(got);
}

static void refused(place *p, const char *name, err_t code, const char *says, const char *and) {
    err_t rc = pack(p, name, GPT2, 1, NULL);
    if (rc != code || !strstr(err_last()->text, says) || !strstr(err_last()->text, and))
        fail_msg("%d, \"%s\", expected %d, \"%s\"", rc, err_last()->text, code, says);
    assert_int_not_equal(access(path_of(p, "o/x-train-00000.bin"), F_OK), 0);
    assert_int_not_equal(access(path_of(p, "o/x-tokens.tmp"), F_OK), 0);
}

// --- what is packed --------------------------------------------------------------------------------------------------

static void files_are_documents(void **state) {
    place *p = *state;
    pack_report r;
    static const char *const texts[] = {"Hello world.\n", "no end of line", "<|endoftext|> is text here\n"};
    put_text(p, "a.txt", texts[0]), put_text(p, "b.txt", texts[1]), put_text(p, "c.txt", texts[2]);
    OK(pack(p, "*.txt", GPT2, 2, &r));
    holds(p, texts, 3);
    assert_int_equal(r.documents, 3);
    assert_int_equal(r.text_bytes, (int)(strlen(texts[0]) + strlen(texts[1]) + strlen(texts[2])));
    assert_int_not_equal(access(path_of(p, "o/x-tokens.tmp"), F_OK), 0);
}

static void lines_are_documents(void **state) {
    place *p = *state;
    static const char *const texts[] = {"one", "two\nlines", "", "th\xC3\xA9 last"};
    const char *lines =
        "{\"text\": \"one\"}\n\r\n{\"id\": [1, {\"text\": 2}], \"text\": \"two\\nlines\"}\n{\"text\":\"\"}\n{\"text\":\"th\\u00e9 last\"}";
    put_text(p, "a.jsonl", lines);
    OK(pack(p, "a.jsonl", GPT2, 1, NULL));
    holds(p, texts, 4);
    put_gzip(p, "b.ndjson.gz", "wb", lines);
    OK(pack(p, "b.ndjson.gz", GPT2, 3, NULL));
    holds(p, texts, 4);
    put_zstd(p, "c.jsonl.zst", lines, 1000);
    OK(pack(p, "c.jsonl.zst", GPT2, 1, NULL));
    holds(p, texts, 4);
    put_zstd(p, "d.ndjson.zst", lines, 20);
    OK(pack(p, "d.ndjson.zst", GPT2, 1, NULL));
    holds(p, texts, 4);
    put_gzip(p, "e.jsonl", "wb", lines);
    OK(pack(p, "e.jsonl", GPT2, 1, NULL));
    holds(p, texts, 4);
}

static void compressed_files_are_read(void **state) {
    place *p = *state;
    static const char *const texts[] = {"the first member, and the second one"};
    put_gzip(p, "a.txt.gz", "wb", "the first member, ");
    put_gzip(p, "a.txt.gz", "ab", "and the second one");
    OK(pack(p, "a.txt.gz", GPT2, 1, NULL));
    holds(p, texts, 1);
    put_zstd(p, "b.txt.zst", texts[0], 7);
    OK(pack(p, "b.txt.zst", GPT2, 1, NULL));
    holds(p, texts, 1);
    put_zstd(p, "c.txt", texts[0], 1000);  // its name says nothing
    OK(pack(p, "c.txt", GPT2, 1, NULL));
    holds(p, texts, 1);
}

// Progress is in bytes of the files, and ends with all of them.
static void tell(void *ctx, int64_t done, int64_t all) {
    int64_t *last = ctx;
    assert_true(done >= *last && done <= all);
    *last = done;
}

static void progress_counts_stored_bytes(void **state) {
    place *p = *state;
    int64_t last = 0;
    pack_report r;
    char text[3001] = {0};
    for (size_t i = 0; i < sizeof text - 1; i++) text[i] = (char)('a' + i % 5);
    put_zstd(p, "a.zst", text, 1000), put_gzip(p, "b.gz", "wb", text), put_text(p, "c.txt", text);
    snprintf(p->input, sizeof p->input, "%s", path_of(p, "[abc].*"));
    OK(pack_run(&(pack_options){.input = p->input,
                                .output = p->output,
                                .shard_tokens = 1000,
                                .tokenizer = GPT2,
                                .threads = 1,
                                .progress = tell,
                                .ctx = &last},
                &r));
    assert_int_equal(last, r.bytes_in);
    assert_true(r.bytes_in < 3500);
    assert_int_equal(r.text_bytes, 9000);
}

// What is compressed in another way is refused where it was named, and like any binary file skipped in a directory.
// Bytes are packed of what is plain.
static void others_are_refused_or_skipped(void **state) {
    place *p = *state;
    pack_report r;
    static const char *const texts[] = {"text"};
    OK(io_mkdirs(path_of(p, "d")));
    put_text(p, "d/a.txt", texts[0]);
    put(p, "d/b.xz", "\xFD\x37zXZ\0rest", 10);
    put(p, "d/c.bz2", "BZh91AY&SYrest", 14);
    refused(p, "d/b.xz", ERR_DATA, "b.xz: compressed with xz", "xz -d");
    refused(p, "d/*.bz2", ERR_DATA, "c.bz2: compressed with bzip2", "bzip2 -d");
    OK(pack(p, "d", GPT2, 1, &r));
    holds(p, texts, 1);
    assert_int_equal(r.files_skipped, 2);
    put(p, "d/d.zst", "\x28\xB5\x2F\xFD\x20\x04\x21", 7);
    OK(pack(p, "d", "bytes", 1, &r));
    assert_int_equal(r.files_skipped, 3);
    assert_int_equal(r.train_tokens + r.val_tokens, 4);
}

// A text of 3 MB, more than a batch of one thread, and lines of all lengths: cut or not, by one thread or five, the
// tokens are those of the whole.
static void threads_change_nothing(void **state) {
    place *p = *state;
    enum { N = 3 << 20 };
    char *text = malloc(N + 1);
    uint32_t x = 1;
    for (int i = 0; i < N; i++) {
        x = x * 1664525 + 1013904223;
        text[i] = x >> 24 < 40   ? ' '
                  : x >> 24 < 44 ? '\n'
                  : x >> 24 < 50 ? (char)('0' + (x >> 16) % 10)
                                 : (char)('a' + (x >> 16) % 26);
    }
    text[N] = 0;
    put_text(p, "a.txt", text);
    const char *texts[] = {text};
    static const int threads[] = {1, 2, 5};
    for (int i = 0; i < 3; i++) {
        OK(pack(p, "a.txt", GPT2, threads[i], NULL));
        holds(p, texts, 1);
    }
    for (int i = 0; i < N; i++)  // nowhere to cut
        if (text[i] == ' ' || text[i] == '\n') text[i] = 'x';
    put_text(p, "a.txt", text);
    OK(pack(p, "a.txt", GPT2, 2, NULL));
    holds(p, texts, 1);
    free(text);
}

static void a_tokenizer_is_trained(void **state) {
    place *p = *state;
    static const char *const texts[] = {"the cat sat on the mat\nthe cat\n"};
    put_text(p, "a.txt", texts[0]);
    OK(pack(p, "a.txt", "train:264", 1, NULL));
    encoder_close(p->e), tokenizer_close(p->t);
    OK(tokenizer_open(&p->t, path_of(p, "o/x-tokenizer.json")));
    OK(encoder_open(&p->e, p->t));
    assert_int_equal(tokenizer_about(p->t).vocab, 264);
    holds(p, texts, 1);
    assert_int_equal(pack(p, "a.txt", "train:many", 1, NULL), ERR_CONFIG);
    assert_int_equal(pack(p, "a.txt", "train:300:nobody", 1, NULL), ERR_CONFIG);
    assert_int_equal(pack(p, "a.txt", "train:5", 1, NULL), ERR_CONFIG);
}

// --- bytes -----------------------------------------------------------------------------------------------------------

static err_t pack_bytes(place *p, const char *input, double val_fraction, pack_report *r) {
    pack_report none;
    return pack_run(&(pack_options){.input = input,
                                    .output = p->output,
                                    .shard_tokens = 1000,
                                    .val_fraction = val_fraction,
                                    .tokenizer = "bytes"},
                    r ? r : &none);
}

static void holds_bytes(const place *p, const char *text, size_t n) {
    int64_t train, all;
    int32_t *got = tokens_of(p, &train, &all);
    assert_int_equal(all, n);
    for (size_t i = 0; i < n; i++)
        if (got[i] != (uint8_t)text[i]) fail_msg("byte %zu is %d, expected %d", i, got[i], (uint8_t)text[i]);
    free(got);
}

// As with a tokenizer: what is trained on is the text, not the JSON around it. Other files beside them are packed as
// ever.
static void the_bytes_of_jsonl_are_its_texts(void **state) {
    place *p = *state;
    char input[1200];
    const char *lines = "{\"text\": \"one\"}\n\n{\"text\": \"\"}\n{\"id\": 7, \"text\": \"two\\nlines \\u0000\\n\"}";
    static const char want[] = "one\n\ntwo\nlines \0\n\n";
    put_text(p, "a.jsonl", lines);
    OK(pack_bytes(p, path_of(p, "a.jsonl"), 0.25, NULL));
    holds_bytes(p, want, sizeof want - 1);
    put_zstd(p, "b.ndjson.zst", lines, 20);
    OK(pack_bytes(p, path_of(p, "b.ndjson.zst"), 0.25, NULL));
    holds_bytes(p, want, sizeof want - 1);
    put_text(p, "c.txt", "plain {\"text\": 1}");
    snprintf(input, sizeof input, "%s/c.txt %s/a.jsonl %s/c.txt", p->dir, p->dir, p->dir);
    OK(pack_bytes(p, input, 0.25, NULL));
    static const char among[] = "plain {\"text\": 1}\none\n\ntwo\nlines \0\n\nplain {\"text\": 1}";
    holds_bytes(p, among, sizeof among - 1);
    put_text(p, "d.jsonl", "{\"text\": \"one\"}\n{\"body\": 1}\n");
    assert_int_equal(pack_bytes(p, path_of(p, "d.jsonl"), 0.25, NULL), ERR_DATA);
    assert_non_null(strstr(err_last()->text, "d.jsonl: line 2: it has no such member"));
}

static void stories_are_packed(void **state) {
    place *p = *state;
    enum { N = 3000 };
    char text[N + 6], input[700];
    stories *s;
    pack_report r;
    OK(stories_open(&s, 5));
    OK(stories_read(s, (uint8_t *)text, N));
    double best = stories_best(s);
    stories_close(s);
    OK(pack_bytes(p, "stories:5:3000", 0, &r));
    text[N] = '\n';
    assert_true(r.best_loss == best);
    char files[400];
    dataset *d;
    int32_t got[N];
    snprintf(files, sizeof files, "%s-train-*.bin", p->output);
    OK(dataset_open(&d, &(dataset_options){.files = files}));
    assert_int_equal(dataset_about(d).tokens, N);
    OK(dataset_read(d, 0, N, got));
    for (int i = 0; i < N; i++) assert_int_equal(got[i], text[i]);
    dataset_close(d);
    put_text(p, "a.txt", "more");
    snprintf(input, sizeof input, "stories:5:3000 %s", path_of(p, "a.txt"));
    OK(pack_bytes(p, input, 0.25, &r));
    memcpy(text + N + 1, "more", 5);
    holds_bytes(p, text, N + 5);
    assert_true(r.best_loss == 0);
    assert_int_equal(pack_bytes(p, "stories:one", 0, NULL), ERR_CONFIG);
}

// A story is a document, and the best loss of all bytes is that of all tokens.
static void stories_are_documents(void **state) {
    place *p = *state;
    pack_report r;
    OK(pack_run(&(pack_options){.input = "stories:5:3000",
                                .output = p->output,
                                .shard_tokens = 1000,
                                .val_fraction = 0.25,
                                .tokenizer = GPT2,
                                .threads = 2},
                &r));
    stories *s;
    bytes text = {0};
    OK(stories_open(&s, 5));
    const char *documents[40];
    int count = 0;
    for (int64_t told = 0; told < 3000; count++) {
        int64_t n = text.n;
        OK(stories_next(s, &text));
        int64_t left = 3000 - told, size = text.n - n < left ? text.n - n : left;
        told += size;
        documents[count] = strndup((char *)text.at + n, (size_t)(size == text.n - n ? size - 2 : size));
    }
    holds(p, documents, count);
    assert_int_equal(r.documents, count);
    assert_true(fabs(r.best_loss * (double)(r.train_tokens + r.val_tokens) - stories_best(s) * 3000) < 1e-9);
    for (int i = 0; i < count; i++) free((char *)documents[i]);
    stories_close(s);
    free(text.at);
}

// --- what is known of shards -----------------------------------------------------------------------------------------

static about about_of(const place *p, const char *split) {
    about a;
    char files[400];
    snprintf(files, sizeof files, "%s-%s-*.bin", p->output, split);
    OK(about_find(&a, files));
    return a;
}

static void shards_know_their_tokenizer(void **state) {
    place *p = *state;
    char hash[17], weighted[500];
    tokenizer *t;
    OK(pack_bytes(p, "stories:5:3000", 0.25, NULL));
    about a = about_of(p, "train");
    assert_true(a.known && a.best_loss > 0.1);
    assert_string_equal(a.tokenizer, "bytes");
    assert_string_equal(a.vocabulary, "");
    put_text(p, "a.txt", "the cat sat on the mat");
    OK(pack(p, "a.txt", GPT2, 1, NULL));
    a = about_of(p, "val");
    tokenizer_hash(p->t, hash);
    assert_true(a.known && a.best_loss == 0);
    assert_string_equal(a.tokenizer, GPT2);
    assert_string_equal(a.vocabulary, hash);
    OK(about_tokenizer(&a, &t, NULL));
    tokenizer_close(t);
    snprintf(weighted, sizeof weighted, "%s-train-*.bin@0.5 %s-val-*.bin@0.5", p->output, p->output);
    OK(about_find(&a, weighted));
    assert_string_equal(a.vocabulary, hash);
    OK(about_find(&a, "/nowhere-*.bin"));
    assert_false(a.known);
    OK(about_find(&a, "test/golden/gpt-tokens.bin"));
    assert_false(a.known);
}

// A shard that was packed by another build, or copied over, is not what is written there.
static void what_is_known_is_of_these_very_shards(void **state) {
    place *p = *state;
    char other[400], from[420], to[420];
    about a;
    OK(pack_bytes(p, "stories:5:3000", 0.25, NULL));
    snprintf(other, sizeof other, "%s", p->output);
    snprintf(p->output, sizeof p->output, "%s/o/y", p->dir);
    OK(pack_bytes(p, "stories:6:3000", 0.25, NULL));
    snprintf(from, sizeof from, "%s-train-00001.bin", other), snprintf(to, sizeof to, "%s-train-00001.bin", p->output);
    assert_true(about_of(p, "train").known);
    OK(io_rename(from, to, NULL));
    assert_false(about_of(p, "train").known);
    assert_true(about_of(p, "val").known);
    snprintf(to, sizeof to, "%s-about.json", p->output);
    OK(io_write_file(to, "{", 1, NULL));
    snprintf(from, sizeof from, "%s-val-*.bin", p->output);
    assert_int_equal(about_find(&a, from), ERR_DATA);
    assert_non_null(strstr(err_last()->text, "y-about.json"));
    assert_int_equal(unlink(to), 0);
    OK(about_find(&a, from));
    assert_false(a.known);
}

static void other_vocabularies_are_refused_and_moved_ones_found(void **state) {
    place *p = *state;
    char both[900], first[400], json[420], moved[420];
    about a;
    tokenizer *t;
    put_text(p, "a.txt", "the cat sat on the mat, and the cat ate the rat");
    OK(pack(p, "a.txt", GPT2, 1, NULL));
    snprintf(first, sizeof first, "%s", p->output);
    snprintf(p->output, sizeof p->output, "%s/o/y", p->dir);
    OK(pack(p, "a.txt", "train:264", 1, NULL));
    snprintf(both, sizeof both, "%s-train-*.bin %s-train-*.bin", first, p->output);
    assert_int_equal(about_find(&a, both), ERR_DATA);
    assert_non_null(strstr(err_last()->text, "expected one vocabulary for all"));
    a = about_of(p, "train");
    OK(about_tokenizer(&a, &t, NULL));
    tokenizer_close(t);
    snprintf(a.tokenizer, sizeof a.tokenizer, "/elsewhere/y-tokenizer.json");  // beside the shards it is too
    OK(about_tokenizer(&a, &t, NULL));
    tokenizer_close(t);
    snprintf(json, sizeof json, "%s-tokenizer.json", p->output), snprintf(moved, sizeof moved, "%s/z.json", p->dir);
    OK(io_rename(json, moved, NULL));
    assert_int_equal(about_tokenizer(&a, &t, NULL), ERR_CONFIG);
    assert_non_null(strstr(err_last()->text, "neither there nor at"));
}

// --- what is refused -------------------------------------------------------------------------------------------------

static void bad_lines_are_named(void **state) {
    place *p = *state;
    put_text(p, "a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"\n");
    refused(p, "a.jsonl", ERR_DATA, "a.jsonl: line 2: not valid JSON",
            "expected an object such as {\"text\": \"...\"}");
    put_text(p, "a.jsonl", "\n[1]\n");
    refused(p, "a.jsonl", ERR_DATA, "a.jsonl: line 2: not an object", "");
    put_text(p, "a.jsonl", "{\"body\": \"one\"}\n");
    refused(p, "a.jsonl", ERR_DATA, "a.jsonl: line 1: it has no such member", "");
    put_text(p, "a.jsonl", "{\"text\": 7}\n");
    refused(p, "a.jsonl", ERR_DATA, "a.jsonl: line 1: its text is not a string", "");
    put_text(p, "a.jsonl", "{\"text\": \"a\", \"text\": \"b\"}\n");
    refused(p, "a.jsonl", ERR_DATA, "a.jsonl: line 1: not valid JSON", "");
}

static void damaged_files_are_named(void **state) {
    place *p = *state;
    char text[20000], *bytes;
    size_t n;
    for (size_t i = 0; i < sizeof text - 1; i++) text[i] = (char)('a' + i * 7919 % 26);
    text[sizeof text - 1] = 0;
    put_gzip(p, "a.gz", "wb", text);
    OK(io_read_file(path_of(p, "a.gz"), 1 << 20, &bytes, &n));
    put(p, "cut.gz", bytes, n - 5);
    refused(p, "cut.gz", ERR_DATA, "cut.gz: damaged or cut off", "");
    bytes[n / 2] ^= 0x55;
    put(p, "flip.gz", bytes, n);
    refused(p, "flip.gz", ERR_DATA, "flip.gz: damaged or cut off", "");
    free(bytes);
    put_zstd(p, "a.zst", text, sizeof text);
    OK(io_read_file(path_of(p, "a.zst"), 1 << 20, &bytes, &n));
    put(p, "cut.zst", bytes, n - 5);
    refused(p, "cut.zst", ERR_DATA, "cut.zst: damaged or cut off near byte", "zstd frame");
    bytes[n / 2] ^= 0x55;
    put(p, "flip.zst", bytes, n);
    refused(p, "flip.zst", ERR_DATA, "flip.zst: damaged or cut off near byte", "");
    free(bytes);
    put_text(p, "b.txt", "text");
    assert_int_equal(pack(p, "b.txt", "/nowhere/tokenizer.json", 1, NULL), ERR_IO);
}

// A new set of shards takes the place of an old one, of any numbers: all old ones go before the first new one gets its
// name, so that a crash leaves too few files and never a mixture. What is known of the new set comes first, and is
// believed of these very shards alone. What happens in the directory, and in which order, the kernel says.
static void an_old_set_goes_first(void **state) {
    static const char *const old[] = {
        "t-train-00000.bin", "t-train-00001.bin", "t-train-00002.bin", "t-train-00003.bin", "t-train-00010.bin",
        "t-train-99999.bin", "t-val-00000.bin",   "t-val-00001.bin",   "t-val-00002.bin",   "t-val-99999.bin"};
    static const char *const fresh[] = {"t-about.json", "t-val-00000.bin", "t-train-00000.bin", "t-train-00001.bin"};
    enum { OLD = sizeof old / sizeof *old, FRESH = sizeof fresh / sizeof *fresh };
    place *p = *state;
    pack_report r = {0};
    char events[8192] __attribute__((aligned(8)));
    int gone = 0, came = 0, fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    put_text(p, "text", "0123456789abcdefghi");
    for (int i = 0; i < OLD; i++) put_text(p, old[i], "old");
    put_text(p, "t-train-00002.bin.tmp", "left by a crash"), put_text(p, "t-val-00007.bin.tmp", "left by a crash");
    put_text(p, "t-test-00000.bin", "mine"), put_text(p, "t-train-0000.bin", "mine");
    char input[400], output[400];
    snprintf(input, sizeof input, "%s", path_of(p, "text")), snprintf(output, sizeof output, "%s", path_of(p, "t"));
    pack_options o = {.input = input, .output = output, .shard_tokens = 10, .val_fraction = 0.1};
    assert_true(fd >= 0 && inotify_add_watch(fd, p->dir, IN_DELETE | IN_MOVED_TO) >= 0);
    OK(pack_run(&o, &r));
    assert_int_equal(r.shards_out, 3);
    ssize_t n = read(fd, events, sizeof events);
    for (ssize_t k = 0; k < n;
         k += (ssize_t)sizeof(struct inotify_event) + ((struct inotify_event *)(events + k))->len) {
        const struct inotify_event *e = (struct inotify_event *)(events + k);
        for (int i = 0; e->mask & IN_DELETE && i < OLD; i++)
            if (strcmp(e->name, old[i]) == 0) assert_int_equal(came, 0), gone++;
        if (e->mask & IN_MOVED_TO) assert_true(came < FRESH), assert_string_equal(e->name, fresh[came++]);
    }
    close(fd);
    assert_int_equal(gone, OLD);
    assert_int_equal(came, FRESH);
    for (int i = 0; i < OLD; i++) {
        bool again = false;
        for (int k = 0; k < FRESH; k++) again = again || strcmp(old[i], fresh[k]) == 0;
        assert_int_equal(access(path_of(p, old[i]), F_OK), again ? 0 : -1);
    }
    assert_int_equal(access(path_of(p, "t-train-00002.bin.tmp"), F_OK), -1),
        assert_int_equal(access(path_of(p, "t-val-00007.bin.tmp"), F_OK), -1);
    assert_int_equal(access(path_of(p, "t-test-00000.bin"), F_OK), 0),
        assert_int_equal(access(path_of(p, "t-train-0000.bin"), F_OK), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(files_are_documents),
        TEST(lines_are_documents),
        TEST(compressed_files_are_read),
        TEST(progress_counts_stored_bytes),
        TEST(others_are_refused_or_skipped),
        TEST(threads_change_nothing),
        TEST(a_tokenizer_is_trained),
        TEST(bad_lines_are_named),
        TEST(damaged_files_are_named),
        TEST(an_old_set_goes_first),
        TEST(the_bytes_of_jsonl_are_its_texts),
        TEST(stories_are_packed),
        TEST(stories_are_documents),
        TEST(shards_know_their_tokenizer),
        TEST(what_is_known_is_of_these_very_shards),
        TEST(other_vocabularies_are_refused_and_moved_ones_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
