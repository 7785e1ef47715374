// test/test_durable_pack.c: shards of texts, of images and of clicks are on disk before they get the names by which
// runs find them, and `pack` says that they are made: a power failure leaves no half of one under such a name.
#include "test/support/idx.h"
#include "test/support/journal.h"
#include "test/support/run.h"
#include "trainer/verbs.h"

// How many shards get their final names, each right after it is on disk as it was written, and before its directory is.
static int shards_on_disk(const journal *j) {
    int shards = 0;
    for (int i = 0; i < j->lines; i++) {
        char from[JOURNAL_LINE], to[JOURNAL_LINE], sync[JOURNAL_LINE + 8];
        const char *last = "nothing";
        if (sscanf(j->line[i], "rename %159s %159s", from, to) != 2 || !strstr(to, ".bin")) continue;
        for (int k = 0; k < i; k++)
            if (strstr(j->line[k], from)) last = j->line[k];
        snprintf(sync, sizeof sync, "sync %s", from);
        if (strcmp(last, sync) != 0 || i + 1 == j->lines || strcmp(j->line[i + 1], "sync .") != 0) {
            journal_print(j);
            fail_msg("%s: expected a sync of the file before, and of the directory after", j->line[i]);
        }
        shards++;
    }
    return shards;
}

static void pack(const char *dir, const char *what, const char *more, int shards) {
    char all[1024], line[1024] = "";
    config c;
    journal *j = journal_open(1);
    snprintf(all, sizeof all, "[pack]\noutput = %s/%s\n%s\n", dir, what, more);
    load_config(&c, dir, "[device]\nthreads = 1\n", all);
    FILE *out = fmemopen(line, sizeof line, "w");
    journal_begin(j, dir);
    err_t rc = verb_pack(&c, out);
    journal_end();
    OK(rc);
    fclose(out);
    int found = shards_on_disk(j);
    if (found != shards) fail_msg("%s: %d shards are on disk, expected %d; it says: %s", what, found, shards, line);
    journal_drop(j, 1);
}

// Several shards of training data, and one for validation.
static void shards_are_on_disk_when_they_are_made(void **state) {
    (void)state;
    char *dir = make_dir(), path[1024];
    pack(dir, "text", "input = stories:1\nshard_tokens = 500000\nval_fraction = 0.1\n", 5);
    pack(dir, "clicks", "clicks = planted\ninput = planted:1:100:4\nshard_records = 30\nval_fraction = 0\n", 4);

    enum { IMAGES = 40, SIDE = 4 };
    uint8_t pixels[IMAGES * SIDE * SIDE], label[IMAGES];
    for (int i = 0; i < IMAGES * SIDE * SIDE; i++) pixels[i] = (uint8_t)(i * 7);
    for (int i = 0; i < IMAGES; i++) label[i] = (uint8_t)(i % 3);
    snprintf(path, sizeof path, "%s/images.idx", dir);
    write_idx(path, 3, (uint32_t[]){IMAGES, SIDE, SIDE}, pixels, false);
    snprintf(path, sizeof path, "%s/labels.idx", dir);
    write_idx(path, 1, (uint32_t[]){IMAGES}, label, false);
    char more[2100];
    snprintf(more, sizeof more,
             "images = idx\ninput = %s/images.idx %s/labels.idx\nshard_images = 15\nval_fraction = 0\n", dir, dir);
    pack(dir, "images", more, 3);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shards_are_on_disk_when_they_are_made)};
    return cmocka_run_group_tests_name("durable_pack", tests, NULL, NULL);
}
