// test/test_durable.c: what is on disk when. Every fsync, rename and read-back of a save is asked for by its place in
// the order of all calls, on one rank and on several nodes: whenever the power fails, a file that has its final name is
// on disk as it was written, and was read back.
#include "test/support/checkpoint_ranks.h"
#include "test/support/journal.h"

#include <inttypes.h>

// --- journals --------------------------------------------------------------------------------------------------------

// Lines of an expectation, in which %T is the temporary directory of the step, %F its final name and %O what is set
// aside.
static void spell(char out[JOURNAL_LINE], const char *line, int64_t step) {
    static const char *const names[] = {['T'] = ".tmp-step-", ['F'] = "step-", ['O'] = ".old-step-"};
    size_t n = 0;
    for (; *line; line++) {
        if (*line != '%') out[n++] = *line;
        else n += (size_t)sprintf(out + n, "ckpt/%s%08" PRId64, names[(int)*++line], step);
    }
    out[n] = 0;
}

static void expect_journal(const char *who, const journal *j, int64_t step, const char *const *lines, int count) {
    char want[JOURNAL_LINE];
    for (int i = 0; i < count || i < j->lines; i++) {
        spell(want, i < count ? lines[i] : "nothing more", step);
        const char *found = i < j->lines ? j->line[i] : "nothing more";
        if (strcmp(want, found) == 0) continue;
        journal_print(j);
        fail_msg("%s: call %d is \"%s\", expected \"%s\"", who, i + 1, found, want);
    }
}

#define EXPECT_JOURNAL(who, j, step, ...) \
    do { \
        static const char *const lines_[] = {__VA_ARGS__}; \
        expect_journal(who, j, step, lines_, (int)(sizeof lines_ / sizeof *lines_)); \
    } while (0)

// --- one rank --------------------------------------------------------------------------------------------------------

static void save_in(journal *j, world *w, int64_t step, uint32_t salt, int keep) {
    fill(w, step, salt);
    journal_begin(j, w->dir);
    err_t rc = ckpt_save(w->dir, &w->s, &w->at, keep, NULL);
    journal_end();
    OK(rc);
}

// Each file is on disk before it is read back, all of them before the manifest is written, and that before the
// directory gets its name.
#define WRITES_ALL_FILES \
    "mkdir %T", "write %T/model.safetensors", "sync %T/model.safetensors", "write %T/optimizer.safetensors", \
        "sync %T/optimizer.safetensors", "read %T/model.safetensors", "read %T/optimizer.safetensors", \
        "write %T/manifest.json.tmp", "sync %T/manifest.json.tmp", "rename %T/manifest.json.tmp %T/manifest.json", \
        "sync %T", "read %T/manifest.json"

static void test_save(void **state) {
    world *w = *state;
    journal *j = journal_open(1);
    save_in(j, w, 1, 0, 5);
    EXPECT_JOURNAL("the first save", j, 1, "mkdir ckpt", "sync .", "sync .", "sync ..", WRITES_ALL_FILES,
                   "rename %T %F", "sync ckpt");
    save_in(j, w, 2, 0, 5);
    EXPECT_JOURNAL("the next one", j, 2, WRITES_ALL_FILES, "rename %T %F", "sync ckpt");
    journal_drop(j, 1);
}

// What was there is removed when the new one has its name for good.
static void test_save_again(void **state) {
    world *w = *state;
    journal *j = journal_open(1);
    save_step(w, 1, 5);
    save_in(j, w, 1, 1, 5);
    EXPECT_JOURNAL("the same step", j, 1, WRITES_ALL_FILES, "rename %F %O", "sync ckpt", "rename %T %F", "sync ckpt",
                   "empty %O", "remove %O");
    journal_drop(j, 1);
}

static void test_prune(void **state) {
    world *w = *state;
    journal *j = journal_open(1);
    save_step(w, 1, 5);
    save_in(j, w, 2, 0, 1);
    EXPECT_JOURNAL("the next step alone", j, 2, WRITES_ALL_FILES, "rename %T %F", "sync ckpt",
                   "rename ckpt/step-00000001 ckpt/.tmp-step-00000001", "empty ckpt/.tmp-step-00000001",
                   "remove ckpt/.tmp-step-00000001");
    journal_drop(j, 1);
}

static void test_best(void **state) {
    world *w = *state;
    journal *j = journal_open(1);
    save_step(w, 1, 5);
    for (int again = 0; again < 2; again++) {
        journal_begin(j, w->dir);
        err_t rc = ckpt_mark_best(w->dir, NULL, 1, NULL);
        journal_end();
        OK(rc);
        EXPECT_JOURNAL("best", j, 1, "link .best %F", "rename .best best", "sync .");
    }
    journal_drop(j, 1);
}

// A crash between two renames left only what was set aside.
static void test_put_back(void **state) {
    world *w = *state;
    journal *j = journal_open(1);
    char path[IO_PATH], aside[IO_PATH];
    save_step(w, 1, 5);
    path_of(path, w, 1, "");
    snprintf(aside, sizeof aside, "%s/ckpt/.old-step-00000001", w->dir);
    assert_int_equal(rename(path, aside), 0);
    journal_begin(j, w->dir);
    err_t rc = ckpt_clean(w->dir, &w->s);
    journal_end();
    OK(rc);
    EXPECT_JOURNAL("cleaning up", j, 1, "rename %O %F", "sync ckpt");
    journal_drop(j, 1);
}

static void test_files_and_directories(void **state) {
    world *w = *state;
    journal *j = journal_open(1);
    char path[IO_PATH];
    snprintf(path, sizeof path, "%s/a/b/c", w->dir);
    journal_begin(j, w->dir);
    err_t rc = io_mkdirs(path);
    journal_end();
    OK(rc);
    EXPECT_JOURNAL("directories", j, 0, "mkdir a", "sync .", "mkdir a/b", "sync a", "mkdir a/b/c", "sync a/b");
    strcat(path, "/file");
    journal_begin(j, w->dir);
    rc = io_write_file(path, "text", 4, NULL);
    journal_end();
    OK(rc);
    EXPECT_JOURNAL("a file", j, 0, "write a/b/c/file.tmp", "sync a/b/c/file.tmp", "rename a/b/c/file.tmp a/b/c/file",
                   "sync a/b/c");
    journal_drop(j, 1);
}

// --- several nodes ---------------------------------------------------------------------------------------------------

// Two ranks on node a, one on b, one on c; each rank's files also lie on the next node.
enum { NODE_COUNT = 3, WORLD = 4 };
static journal *pages;  // one for each rank

static void body_write_journal(rank_of *r) {
    fill_dealt(&r->d, r->j->step, r->j->salt);
    journal_begin(&pages[r->rank], r->dir);
    r->out->rc = ckpt_save(r->dir, &r->d.s, &r->d.at, r->j->keep, NULL);
    journal_end();
}

typedef struct script {
    char line[JOURNAL_LINES][JOURNAL_LINE];
    int lines;
} script;

static void script_add(script *x, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    assert_true(x->lines < JOURNAL_LINES);
    vsnprintf(x->line[x->lines++], JOURNAL_LINE, fmt, ap);
    va_end(ap);
}

// One of the two files of a rank: kind 0 or 1.
static const char *file_of(char name[64], int kind, int rank) {
    snprintf(name, 64, "%s-%05d-of-%05d.safetensors", kind ? "optimizer" : "model", rank, WORLD);
    return name;
}

static const char *const opening[] = {"mkdir ckpt", "sync .", "sync .", "sync .."};

// A file that comes from another node: written under another name, and named when it was read back.
static void script_of_arrival(script *x, int kind, int rank) {
    char f[64];
    script_add(x, "write %%T/.part-%s", file_of(f, kind, rank));
    script_add(x, "sync %%T/.part-%s", f);
    script_add(x, "read %%T/.part-%s", f);
    script_add(x, "rename %%T/.part-%s %%T/%s", f, f);
    script_add(x, "sync %%T");
}

// What a rank of a save does: its files; those of two rounds that it sends, from its cache, and that come from others;
// and, where it is the first of its node, the directory, the manifest and the names.
static void script_of_save(script *x, int rank, bool first_save) {
    static const int sources[WORLD][2] = {{3, -1}, {-1, -1}, {0, 1}, {2, -1}};
    static const char *const closing[] = {"write %T/manifest.json.tmp",
                                          "sync %T/manifest.json.tmp",
                                          "rename %T/manifest.json.tmp %T/manifest.json",
                                          "sync %T",
                                          "read %T/manifest.json",
                                          "rename %T %F",
                                          "sync ckpt"};
    bool leads = rank != 1;
    char f[64];
    x->lines = 0;
    for (int i = 0; i < 4 && leads && first_save; i++) script_add(x, "%s", opening[i]);
    if (leads) script_add(x, "mkdir %%T");
    for (int kind = 0; kind < 2; kind++) {
        script_add(x, "write %%T/%s", file_of(f, kind, rank));
        script_add(x, "sync %%T/%s", f);
    }
    for (int kind = 0; kind < 2; kind++) script_add(x, "read %%T/%s", file_of(f, kind, rank));
    for (int kind = 0; kind < 2; kind++) {
        script_add(x, "read %%T/%s", file_of(f, kind, rank));
        for (int i = 0; i < 2 && sources[rank][i] >= 0; i++) script_of_arrival(x, kind, sources[rank][i]);
    }
    for (int i = 0; i < 7 && leads; i++) script_add(x, "%s", closing[i]);
}

static void expect_script(const char *who, const journal *j, int64_t step, const script *x) {
    const char *line[JOURNAL_LINES];
    for (int i = 0; i < x->lines; i++) line[i] = x->line[i];
    expect_journal(who, j, step, line, x->lines);
}

// The first or the last moment, on any rank, of a line that begins like this; -1: there is none.
static int moment(bool first, const char *line, int64_t step) {
    char want[JOURNAL_LINE];
    int found = -1;
    spell(want, line, step);
    for (int r = 0; r < WORLD; r++)
        for (int i = 0; i < pages[r].lines; i++) {
            int at = pages[r].when[i];
            if (strncmp(pages[r].line[i], want, strlen(want)) != 0) continue;
            if (found < 0 || (first ? at < found : at > found)) found = at;
        }
    return found;
}

// On all ranks the one before on any the other.
static void expect_before(const char *earlier, const char *later, int64_t step) {
    int a = moment(false, earlier, step), b = moment(true, later, step);
    if (a < 0 || b < 0 || a > b)
        fail_msg("\"%s\" at %d on the last rank, \"%s\" at %d on the first", earlier, a, later, b);
}

static void test_save_of_nodes(void **state) {
    const nodes *n = *state;
    job j = {.where = n, .nodes = NODE_COUNT, .ranks = {2, 1, 1}, .on = {0, 1, 2}, .keep = 5};
    script *x = malloc(sizeof *x);
    char who[64];
    pages = journal_open(WORLD);
    wipe(n);
    for (j.step = 1; j.step <= 2; j.step++) {
        all_ranks_do(&j, body_write_journal);
        for (int r = 0; r < WORLD; r++) {
            if (j.out[r].rc != ERR_OK) fail_msg("rank %d could not save", r);
            snprintf(who, sizeof who, "step %" PRId64 ", rank %d", j.step, r);
            script_of_save(x, r, j.step == 1);
            expect_script(who, &pages[r], j.step, x);
        }
    }
    free(x);
    journal_drop(pages, WORLD);
    end_job(&j);
}

// A manifest anywhere means that all files are everywhere for good, a name that all manifests are, and a removal that
// all names are.
static void test_nodes_wait_for_each_other(void **state) {
    const nodes *n = *state;
    job j = {.where = n, .nodes = NODE_COUNT, .ranks = {2, 1, 1}, .on = {0, 1, 2}, .keep = 1};
    pages = journal_open(WORLD);
    wipe(n);
    for (j.step = 1; j.step <= 4; j.step++) {
        all_ranks_do(&j, body_write_journal);
        for (int r = 0; r < WORLD; r++) assert_int_equal(j.out[r].rc, ERR_OK);
        expect_before("read %T/model-", "write %T/manifest.json.tmp", j.step);
        expect_before("read %T/.part-", "write %T/manifest.json.tmp", j.step);
        expect_before("rename %T/.part-", "write %T/manifest.json.tmp", j.step);
        expect_before("read %T/manifest.json", "rename %T %F", j.step);
        if (j.step > 1) expect_before("sync ckpt", "rename ckpt/step-", j.step);
    }
    journal_drop(pages, WORLD);
    end_job(&j);
}

static void body_resume_journal(rank_of *r) {
    bool found;
    fill_dealt(&r->d, 999, 0);
    journal_begin(&pages[r->rank], r->dir);
    r->out->rc = ckpt_resume(r->dir, &r->d.s, &r->d.at, &found, count_complaint, r->out);
    journal_end();
    MUST(found && dealt_is(&r->d, 1, 0), "step %" PRId64, r->d.at.step);
}

// A node that comes with nothing is sent every file, and has the step for good before anything is loaded.
static void test_resume_of_an_empty_node(void **state) {
    static const char *const closing[] = {"write %T/manifest.json.tmp",
                                          "sync %T/manifest.json.tmp",
                                          "rename %T/manifest.json.tmp %T/manifest.json",
                                          "sync %T",
                                          "rename %T %F",
                                          "sync ckpt"};
    const nodes *n = *state;
    job j = {.where = n, .nodes = NODE_COUNT, .ranks = {2, 1, 1}, .on = {0, 1, 2}, .keep = 1};
    script *x = calloc(1, sizeof *x);
    char f[64];
    pages = journal_open(WORLD);
    wipe(n);
    saves(&j, 1, 0);
    OK(io_remove_tree(n->dir[2]));
    assert_int_equal(mkdir(n->dir[2], 0755), 0);
    all_ranks_do(&j, body_resume_journal);
    for (int i = 0; i < 4; i++) script_add(x, "%s", opening[i]);
    script_add(x, "mkdir %%T");
    for (int kind = 0; kind < 2; kind++)
        for (int r = 0; r < WORLD; r++) script_of_arrival(x, kind, r);
    for (int i = 0; i < 6; i++) script_add(x, "%s", closing[i]);
    for (int kind = 0; kind < 2; kind++) script_add(x, "read %%F/%s", file_of(f, kind, 3));
    expect_script("the empty node", &pages[3], 1, x);
    free(x);
    journal_drop(pages, WORLD);
    end_job(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_save),
        TEST(test_save_again),
        TEST(test_prune),
        TEST(test_best),
        TEST(test_put_back),
        TEST(test_files_and_directories),
        NODES(test_save_of_nodes),
        NODES(test_nodes_wait_for_each_other),
        NODES(test_resume_of_an_empty_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
