// test/test_pack_bytes.c: text to shards, a token for each byte: which files are taken, where shards and validation
// begin, what of an old set stays, and files that change meanwhile.
#include "base/io.h"
#include "data/text/dataset.h"
#include "data/text/pack.h"
#include "test/support/expect.h"
#include "test/support/place.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void put_file(place *p, const char *name, const void *bytes, size_t n) {
    assert_ok(io_replace_file(at(p, name), bytes, n));
}
static void put_text(place *p, const char *name, const char *text) { put_file(p, name, text, strlen(text)); }

#define PACK(in, out, tokens, val, zip) \
    (&(pack_options){ \
        .input = (in), .output = (out), .shard_tokens = (tokens), .val_fraction = (val), .compress = (zip)})

static pack_report pack(place *p, const char *input, const char *output, int64_t shard_tokens, double val,
                        bool compress) {
    char in[IO_PATH], out[IO_PATH];
    pack_report r;
    snprintf(in, sizeof in, "%s", at(p, input));
    snprintf(out, sizeof out, "%s", at(p, output));
    assert_ok(pack_run(PACK(in, out, shard_tokens, val, compress), &r));
    return r;
}

static void expect_tokens(place *p, const char *files, const char *text) {
    dataset *d;
    int32_t t[256];
    assert_ok(dataset_open(&d, &(dataset_options){.files = at(p, files), .format = FORMAT_LOCKSTEP, .vocab = 256}));
    int64_t n = (int64_t)strlen(text);
    assert_int_equal(dataset_about(d).tokens, n);
    assert_ok(dataset_read(d, 0, n, t));
    for (int64_t i = 0; i < n; i++) assert_int_equal(t[i], (uint8_t)text[i]);
    dataset_close(d);
}

static void test_pack_walk(void **state) {
    place *p = *state;
    char in[4 * IO_PATH], out[IO_PATH];
    pack_report r;
    assert_ok(io_mkdirs(at(p, "src/sub")));
    assert_ok(io_mkdirs(at(p, "src/.git")));
    put_text(p, "src/b.c", "bb\n");
    put_text(p, "src/Z", "zz");  // upper case is first, and lacks its line end
    put_text(p, "src/sub/a", "\xc3\xa9\n");
    put_text(p, "src/.hidden", "no\n");
    put_text(p, "src/.git/x", "no\n");
    put_text(p, "src/empty", "");
    put_file(p, "src/c.o",
             "\x7f"
             "ELF\0\0\1",
             7);
    assert_int_equal(symlink("b.c", at(p, "src/link")), 0);
    assert_int_equal(symlink("..", at(p, "src/up")), 0);
    put_text(p, "1.txt", "one");
    put_text(p, "2.txt", "two");
    snprintf(in, sizeof in, "%s/src  %s/?.txt", p->dir, p->dir);
    snprintf(out, sizeof out, "%s/out/deep/t", p->dir);
    assert_ok(pack_run(PACK(in, out, 1000, 0, false), &r));
    expect_tokens(p, "out/deep/t-train-00000.bin", "zz\nbb\n\xc3\xa9\none\ntwo");
    assert_int_equal(r.files_in, 5);
    assert_int_equal(r.files_skipped, 4);
    assert_int_equal(r.bytes_in, 14);
    assert_int_equal(r.train_tokens, 16);
    assert_int_equal(r.val_tokens, 0);
    assert_int_equal(r.shards_out, 1);
}

static void test_pack_split(void **state) {
    place *p = *state;
    pack_report r;
    char in[IO_PATH], out[IO_PATH];
    put_text(p, "text", "0123456789abcdefghi");
    r = pack(p, "text", "t", 5, 0.1, true);  // 19 * 0.9 = 17.1
    assert_int_equal(r.train_tokens, 17);
    assert_int_equal(r.val_tokens, 2);
    assert_int_equal(r.shards_out, 5);
    expect_tokens(p, "t-train-*.bin", "0123456789abcdefg");
    expect_tokens(p, "t-val-*.bin", "hi");
    expect_tokens(p, "t-train-00003.bin", "fg");

    // A new set: fewer files, no validation. Only old shards of this prefix go.
    put_text(p, "t-train-00003.bin.tmp", "left by a crash");
    put_text(p, "t-train-old.bin", "mine");
    put_text(p, "t2-train-00009.bin", "another's");
    put_text(p, "t-train-00009.txt", "mine");
    r = pack(p, "text", "t", 10, 0, false);
    assert_int_equal(r.shards_out, 2);
    expect_tokens(p, "t-train-0*.bin", "0123456789abcdefghi");
    assert_int_equal(access(at(p, "t-train-00002.bin"), F_OK), -1);
    assert_int_equal(access(at(p, "t-val-00000.bin"), F_OK), -1);
    assert_int_equal(access(at(p, "t-train-00003.bin.tmp"), F_OK), -1);
    assert_int_equal(access(at(p, "t-train-old.bin"), F_OK), 0);
    assert_int_equal(access(at(p, "t2-train-00009.bin"), F_OK), 0);
    assert_int_equal(access(at(p, "t-train-00009.txt"), F_OK), 0);

    snprintf(in, sizeof in, "%s", at(p, "text"));
    snprintf(out, sizeof out, "%s", at(p, "t"));
    assert_error(pack_run(PACK(in, out, 0, 0, false), &r), ERR_CONFIG, "shard_tokens");
    assert_error(pack_run(PACK(in, out, 5, 1, false), &r), ERR_CONFIG, "val_fraction");
    assert_error(pack_run(PACK("", out, 5, 0, false), &r), ERR_CONFIG, "no text");
    assert_error(pack_run(PACK(at(p, "t-train-00000.bin"), out, 5, 0, false), &r), ERR_CONFIG, "no text",
                 "1 files skipped");
    assert_error(pack_run(PACK(at(p, "nothing"), out, 5, 0, false), &r), ERR_CONFIG, "nothing");
    put_text(p, "file", "x");
    snprintf(out, sizeof out, "%s", at(p, "one"));
    assert_ok(pack_run(PACK(at(p, "file"), out, 1, 0, false), &r));
    assert_int_equal(mkdir(at(p, "one-train-00007.bin"), 0755), 0);  // old shards go before new ones get their names
    assert_error(pack_run(PACK(in, out, 5, 0, false), &r), ERR_IO, "one-train-00007.bin", "can't be removed");
    assert_int_equal(access(at(p, "one-train-00001.bin"), F_OK), -1);
    snprintf(out, sizeof out, "%s/file/t", p->dir);
    assert_error(pack_run(PACK(in, out, 5, 0, false), &r), ERR_IO, "/file");
    char root[300] = "/~";  // in the root directory, under a name that it can't have: nothing else is made there
    memset(root + 2, 'x', sizeof root - 3);
    assert_error(pack_run(PACK(in, root, 5, 0, false), &r), ERR_IO, "too long");
    assert_int_equal(access("/~", F_OK), -1);
    expect_tokens(p, "t-train-0*.bin", "0123456789abcdefghi");
}

// What is no regular file, or says that it is empty, is passed over and does not hang; a file that changes between the
// passes is an error that leaves the old shards as they were.
static void test_pack_changing_input(void **state) {
    place *p = *state;
    char in[3 * IO_PATH], out[2 * IO_PATH];
    pack_report r;
    assert_int_equal(mkfifo(at(p, "fifo"), 0600), 0);
    put_text(p, "a", "text\n");
    snprintf(in, sizeof in, "%s/fifo /proc/self/io %s/a", p->dir, p->dir);
    snprintf(out, sizeof out, "%s/t", p->dir);
    assert_ok(pack_run(PACK(in, out, 100, 0, false), &r));
    assert_int_equal(r.files_skipped, 2);
    // The temporary shard of a crashed run, made text and taken as input, is cut to nothing by the new run.
    snprintf(in, sizeof in, "%s/t-train-00000.bin.tmp", p->dir);
    char *text = malloc(600000);  // read in more than one piece: found at the next
    memset(text, 'x', 600000);
    put_file(p, "t-train-00000.bin.tmp", text, 600000);
    free(text);
    assert_error(pack_run(PACK(in, out, 1 << 20, 0, false), &r), ERR_DATA, "had 600000 bytes at first and has ");
    put_text(p, "t-train-00000.bin.tmp", "some text that is longer\n");
    assert_error(pack_run(PACK(in, out, 10, 0, false), &r), ERR_DATA,
                 "t-train-00000.bin.tmp: had 25 bytes at first "
                 "and has ",
                 "run pack again");
    assert_int_equal(access(at(p, "t-train-00000.bin.tmp"), F_OK), -1);
    // So is JSONL, whose size is that of its texts: lines of 64 bytes, so that what is read at a time ends with one.
    enum { LINES = 10000, LINE = 64 };
    char *lines = malloc(LINES * LINE + 1);
    for (int i = 0; i < LINES; i++) sprintf(lines + i * LINE, "{\"text\": \"%051d\"}\n", i);
    put_file(p, "t-train-00000.bin.tmp", lines, LINES * LINE);
    free(lines);
    assert_int_equal(symlink("t-train-00000.bin.tmp", at(p, "b.jsonl")), 0);
    snprintf(in, sizeof in, "%s/b.jsonl", p->dir);
    assert_error(pack_run(PACK(in, out, 1 << 20, 0, false), &r), ERR_DATA,
                 "/b.jsonl: had 530000 bytes at first and has ", "run pack again");
    expect_tokens(p, "t-train-00000.bin", "text\n");  // what was there before
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, place_enter, place_leave)
    const struct CMUnitTest tests[] = {TEST(test_pack_walk), TEST(test_pack_split), TEST(test_pack_changing_input)};
    return cmocka_run_group_tests_name("pack_bytes", tests, NULL, NULL);
}
