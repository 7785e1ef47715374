// test/test_fork_says.c: forks of one small run, inside the test's process: what is said of each, to the letter, and
// what the new run's checkpoint has of the old one's. Manifests are amended to be of runs that take long to make:
// others' keys, losses far above the lowest, logs of many megabytes.
#include "test/support/train.h"

#include "gpu/revision.h"
#include "trainer/checkpoint/copy.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/fork.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>

static const char settings[] = "[run]\nname = a\nsteps = 12\n" SMALL_GPT(1, 2, 16, 24, 128) SMALL_BATCH(
    8, 1, 4) "[device]\nthreads = 1\n[optimizer]\nlr = 0.01\n[schedule]\ntype = constant\nwarmup = -1\n[log]\n"
             "every = 1\n[sample]\ntokens = 0\n[checkpoint]\nevery = 4\nkeep = 10\n";

static char *top;                    // its directory
static char said[8192];              // by the last fork; "~" for top, "H" for a hash, one blank for many
static const char *no_overrides[1];  // none

// --- forks -----------------------------------------------------------------------------------------------------------

static const char *at_top(char path[IO_PATH], const char *name) {
    OK(io_path(path, "%s/%s", top, name));
    return path;
}

static void keep_said(const char *text) {
    size_t n = 0, length = strlen(top);
    for (; *text && n < sizeof said - 8; text++) {
        if (strncmp(text, top, length) == 0) said[n++] = '~', text += length - 1;
        else if (strncmp(text, "hash ", 5) == 0 && strspn(text + 5, "0123456789abcdef") == 16)
            n += (size_t)sprintf(said + n, "hash H"), text += 20;
        else if (*text != ' ' || text[1] != ' ') said[n++] = *text;
    }
    said[n] = 0;
}

// from: below top, if it has no leading '.'
static err_t fork_with(const char *from, const char *name, const char *const *overrides) {
    char path[IO_PATH], *text;
    size_t size;
    int count = 0;
    while (overrides[count]) count++;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    err_t rc =
        fork_run(&(fork_options){*from == '.' ? from : at_top(path, from), name, NULL, 0, overrides, count}, out);
    fclose(out);
    keep_said(text);
    free(text);
    return rc;
}

static void refused(err_t code, const char *text) {
    if (err_last()->code != code || !strstr(err_last()->text, text))
        fail_msg("%d: %s; expected %d: %s", err_last()->code, err_last()->text, code, text);
}

static void remove_run(const char *name) {
    char path[IO_PATH];
    OK(io_remove_tree(at_top(path, name)));
}

static bool is_there(const char *name) {
    char path[IO_PATH];
    struct stat st;
    return lstat(at_top(path, name), &st) == 0;
}

static void read_manifest(manifest *m, const char *ckpt) {
    char path[IO_PATH];
    *m = (manifest){0};
    OK(manifest_read(m, at_top(path, ckpt)));
}

static void write_manifest(const manifest *m, const char *ckpt) {
    char path[IO_PATH], *text;
    size_t size;
    OK(manifest_print(m, &text, &size));
    OK(io_path(path, "%s/%s/manifest.json", top, ckpt));
    OK(io_write_file(path, text, size, NULL));
    free(text);
}

static void set_counters(int64_t step, const run_progress *at) {
    manifest m;
    char ckpt[64];
    snprintf(ckpt, sizeof ckpt, "runs/a/ckpt/step-%08" PRId64, step);
    read_manifest(&m, ckpt);
    m.at = *at;
    write_manifest(&m, ckpt);
    manifest_close(&m);
}

static run_progress counters_of(const char *ckpt) {
    manifest m;
    read_manifest(&m, ckpt);
    run_progress at = m.at;
    manifest_close(&m);
    return at;
}

// --- what is said ----------------------------------------------------------------------------------------------------

#define LOG "log begins with that of the other run, up to step "
#define NEXT "next lockstep ~/runs/b/config.ini\n"
#define SETTINGS "setting ~/runs/a ~/runs/b\n"
#define AS_BEFORE "settings all as in ~/runs/a\n"
#define DATA4 "data step 5 begins with sample 33 of 50 of epoch 1"
#define DATA8 "data step 9 begins with sample 15 of 50 of epoch 2"
#define ORDER "; their order is another: some of this epoch come again, some are left out\n"
#define WOULD "; with the old [batch] global it would be sample 65 of the run, not "

static const struct {
    int step;
    const char *overrides[4], *text;  // after the first line
} told[] = {
    {4, {NULL}, AS_BEFORE DATA4 ", as in ~/runs/a\n" LOG "4\n" NEXT},
    {8, {NULL}, AS_BEFORE DATA8 ", as in ~/runs/a\n" LOG "8\n" NEXT},
    {8,
     {"batch.global=4"},
     SETTINGS "batch.global 8 4\ndata step 9 begins with sample 33 of 50 of epoch 1" WOULD
              "33: those between are seen again\n" LOG "8\n" NEXT},
    {8,
     {"batch.global=16"},
     SETTINGS "batch.global 8 16\ndata step 9 begins with sample 29 of 50 of epoch 3" WOULD
              "129: those between are left out\n" LOG "8\n" NEXT},
    {8,
     {"run.seed=7", "batch.global=16"},
     SETTINGS "run.seed 1337 7\nbatch.global 8 16\ndata step 9 begins with sample 29 of 50 of epoch 3" ORDER LOG
              "8\n" NEXT},
    {4, {"data.shuffle=no"}, SETTINGS "data.shuffle yes no\n" DATA4 ORDER LOG "4\n" NEXT},
    {4,
     {"data.val=", "log.every=3"},
     SETTINGS "data.val ~/val.bin \"\"\nlog.every 1 3\n" DATA4 ", as in ~/runs/a\n" LOG "4\n" NEXT},
    {8,
     {"run.steps=8"},
     SETTINGS "run.steps 12 8\n" DATA8 ", as in ~/runs/a\n" LOG
              "8\nsteps all 8 of [run] steps are done: raise it\nnext lockstep ~/runs/b/config.ini -o run.steps=16\n"},
    {4,
     {"schedule.type=linear", "schedule.decay_steps=10", "schedule.final_fraction=0.5"},
     SETTINGS
     "schedule.type constant linear\nschedule.decay_steps 0 10\nschedule.final_fraction 0.1 0.5\n" DATA4
     ", as in ~/runs/a\n" LOG
     "4\nrate at its lowest from step 10 on, as [schedule] decay_steps says: raise it if the rate is to fall later\n" NEXT},
};

static void each_is_told(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        char from[32], want[sizeof said];
        snprintf(from, sizeof from, "runs/a@%d", told[i].step);
        OK(fork_with(from, "b", told[i].overrides));
        snprintf(want, sizeof want, "forked ~/runs/a, step %d, hash H -> ~/runs/b\n%s", told[i].step, told[i].text);
        assert_string_equal(said, want);
        remove_run("runs/b");
    }
}

// What is said first, of checkpoints that are passed over, or that are taken all the same.
static void ruined_weights_are_named(void **state) {
    (void)state;
    run_progress was[3], at;
    for (int k = 0; k < 3; k++) {
        char name[64];
        snprintf(name, sizeof name, "runs/a/ckpt/step-%08d", 4 * k + 4);
        was[k] = counters_of(name);
    }
    static const struct {
        double loss, least, best;
        int64_t bad, sound_step, best_step;  // of step 12, measured there or not
        const char *from, *begin;
    } rows[] = {
        {3, 3, 3, 0, 11, 4, "runs/a", "forked ~/runs/a, step 12,"},
        {3, 3, 3, 0, 11, 12, "runs/a@12", "forked ~/runs/a, step 12,"},
        {3, 3, 9, 0, 11, 12, "runs/a",
         "careful: the validation loss at step 12 was 9, and the lowest loss 3: these weights may be ruined\nforked ~/runs/a, step 12,"},
        {3, 3, 9, 0, 11, 12, "runs/a@12",
         "careful: the validation loss at step 12 was 9, and the lowest loss 3: these weights may be ruined\nforked ~/runs/a, step 12,"},
        {3, 3, 9, 0, 11, 8, "runs/a@12", "forked ~/runs/a, step 12,"},  // of other weights
        {9, 3, 3, 0, 11, 4, "runs/a",
         "passed over ~/runs/a/ckpt/step-00000012: it was saved when the run had diverged, or its loss of 9 is far above the lowest, 3\n"
         "forked ~/runs/a, step 8,"},
        {9, 3, 3, 0, 11, 4, "runs/a@12",
         "careful: the loss at step 12 was 9, and 3 at its lowest: these weights may be ruined\nforked ~/runs/a, step 12,"},
        {3, 3, 3, 2, 11, 4, "runs/a@12",
         "careful: the loss at step 12 was 3, and 3 at its lowest: these weights may be ruined\nforked ~/runs/a, step 12,"},
        {3, 3, 3, 2, 7, 4, "runs/a",  // step 8 is proven no more
         "passed over ~/runs/a/ckpt/step-00000012: it was saved when the run had diverged, or its loss of 3 is far above the lowest, 3\n"
         "passed over ~/runs/a/ckpt/step-00000008: no loss after it was near its own, "},
        {3, 3, 3, 2, 8, 4, "runs/a",
         "passed over ~/runs/a/ckpt/step-00000012: it was saved when the run had diverged, or its loss of 3 is far above the lowest, 3\n"
         "forked ~/runs/a, step 8,"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        at = was[2];
        at.loss = rows[i].loss, at.least_loss = rows[i].least, at.bad_steps = rows[i].bad,
        at.sound_step = rows[i].sound_step;
        at.best_step = rows[i].best_step, at.best_loss = rows[i].best;
        set_counters(12, &at);
        at = was[1], at.best_step = 4;
        set_counters(8, &at);
        OK(fork_with(rows[i].from, "b", no_overrides));
        if (strncmp(said, rows[i].begin, strlen(rows[i].begin)) != 0) fail_msg("row %zu: %s", i, said);
        remove_run("runs/b");
    }
    // what the newest one knows of the oldest counts, whatever was known between them
    at = was[2], at.bad_steps = 2, at.sound_step = 11;
    set_counters(12, &at);
    at = was[1], at.bad_steps = 1, at.sound_step = 3;
    set_counters(8, &at);
    OK(fork_with("runs/a", "b", no_overrides));
    assert_non_null(strstr(said, "\nforked ~/runs/a, step 4,"));
    remove_run("runs/b");
    for (int k = 0; k < 3; k++) {
        at = was[k];
        at.bad_steps = 1;
        set_counters(4 * k + 4, &at);
    }
    assert_int_equal(fork_with("runs/a", "b", no_overrides), ERR_DATA);
    refused(ERR_DATA, "none of its 3 checkpoints is sound");
    for (int k = 0; k < 3; k++) set_counters(4 * k + 4, &was[k]);
}

// --- what it has -----------------------------------------------------------------------------------------------------

// The best one is the run's own; what is bad is over; the rest is as it was.
static void counters_of_the_new_run(void **state) {
    (void)state;
    static const char *const outliers[] = {"optimizer.skip_norm=10", NULL};
    run_progress was = counters_of("runs/a/ckpt/step-00000008"), at = was;
    for (int own = 0; own < 2; own++) {
        at = was;
        at.bad_steps = 3, at.skipped = 5, at.best_step = own ? 8 : 4, at.best_loss = 2.25, at.sound_step = 6;
        if (own) at.norms = 20, at.norm_mean = 1.5;
        set_counters(8, &at);
        OK(fork_with("runs/a@8", "b", own ? outliers : no_overrides));
        run_progress got = counters_of("runs/b/ckpt/step-00000008");
        assert_true(got.bad_steps == 0 && got.skipped == 5 && got.sound_step == 6 && got.step == 8 &&
                    got.updates == was.updates);
        assert_true(got.norms == at.norms && got.norm_mean == at.norm_mean);
        assert_true(got.best_step == (own ? 8 : 0) && got.best_loss == (own ? 2.25 : INFINITY));
        assert_true(got.loss == was.loss && got.least_loss == was.least_loss && got.log_bytes == was.log_bytes);
        remove_run("runs/b");
    }
    set_counters(8, &was);
    manifest a, b;
    OK(fork_with("runs/a@8", "b", no_overrides));
    read_manifest(&a, "runs/a/ckpt/step-00000008"), read_manifest(&b, "runs/b/ckpt/step-00000008");
    assert_string_equal(b.state_hash, a.state_hash);
    assert_string_equal(b.data_hash, a.data_hash);
    assert_true(b.origin.step == 8 && strcmp(b.origin.hash, a.hash) == 0 && strstr(b.origin.run, "/runs/a") &&
                a.origin.step == 0);
    manifest_close(&a), manifest_close(&b);
    remove_run("runs/b");
}

// In the new run's directory is what a run has, and nothing that was of use on the way.
static void names_in(const char *name, char text[1024]) {
    char path[IO_PATH];
    struct dirent **names;
    int n = scandir(at_top(path, name), &names, NULL, alphasort);
    *text = 0;
    for (int i = 0; i < n; i++) {
        if (strcmp(names[i]->d_name, ".") != 0 && strcmp(names[i]->d_name, "..") != 0)
            strcat(strcat(text, names[i]->d_name), " ");
        free(names[i]);
    }
    if (n >= 0) free(names);
}

// Both runs have it in their events, with all that is changed.
static void both_runs_know(void **state) {
    (void)state;
    static const char *const overrides[][3] = {{NULL}, {"run.seed=7", "batch.global=16"}};
    static const char *const changes[] = {": all settings as they were", ": run.seed 1337 -> 7, batch.global 8 -> 16"};
    for (int k = 0; k < 2; k++) {
        char path[IO_PATH], want[200], *text;
        size_t size;
        OK(fork_with("runs/a@8", "b", overrides[k]));
        OK(io_read_file(at_top(path, "runs/b/events.jsonl"), 1 << 20, &text, &size));
        keep_said(text);
        snprintf(want, sizeof want, "\"kind\":\"forked\",\"step\":8,\"text\":\"from ~/runs/a, step 8, hash H%s\"",
                 changes[k]);
        if (!strstr(said, want)) fail_msg("%s", said);
        free(text);
        OK(io_read_file(at_top(path, "runs/a/events.jsonl"), 1 << 20, &text, &size));
        keep_said(strstr(text + (size > 500 ? size - 500 : 0), "\"kind\":\"fork\""));
        snprintf(want, sizeof want, "\"text\":\"step 8 begins ~/runs/b%s\"", changes[k]);
        if (!strstr(said, want)) fail_msg("%s", said);
        free(text);
        remove_run("runs/b");
    }
}

static void nothing_is_left_over(void **state) {
    (void)state;
    char names[1024], path[IO_PATH];
    OK(io_mkdirs(at_top(path, "runs/.b.fork/ckpt")));  // of one that was killed
    OK(io_write_file(at_top(path, "runs/.b.fork/log.jsonl"), "x", 1, NULL));
    OK(fork_with("runs/a@best", "b", no_overrides));
    names_in("runs", names);
    assert_string_equal(names, "a b ");
    names_in("runs/b", names);
    assert_string_equal(names, "ckpt config.ini events.jsonl lock log.jsonl ");
    names_in("runs/b/ckpt/step-00000012", names);
    assert_string_equal(names, "manifest.json model.safetensors optimizer.safetensors ");
    assert_int_equal(fork_with("runs/a", "b", no_overrides), ERR_USAGE);
    refused(ERR_USAGE, "/runs/b is there already: choose another name");
    remove_run("runs/b");
}

// The log up to the checkpoint, whatever its length; one that does not end there with a line is none.
static void the_log_is_copied_to_its_length(void **state) {
    (void)state;
    static const struct {
        int64_t n, there;  // as the checkpoint says, and of the file; -1: there is no file
        int newline;       // is the last of the n
        bool taken;
    } rows[] = {{CKPT_PIECE, CKPT_PIECE, 1, true},
                {CKPT_PIECE + 1, CKPT_PIECE + 9, 1, true},
                {CKPT_PIECE - 1, CKPT_PIECE + 9, 1, true},
                {2 * CKPT_PIECE + 7, 3 * CKPT_PIECE, 1, true},
                {2 * CKPT_PIECE, 2 * CKPT_PIECE, 1, true},
                {1, 20, 1, true},
                {20, 20, 0, false},
                {CKPT_PIECE + 5, CKPT_PIECE + 9, 0, false},
                {20, 19, 1, false},
                {0, 20, 1, false},
                {20, -1, 1, false}};
    char from[IO_PATH], kept[IO_PATH], to[IO_PATH], want[200], *text = malloc(3 * CKPT_PIECE), *got;
    run_progress was = counters_of("runs/a/ckpt/step-00000008"), at = was;
    size_t size;
    at_top(from, "runs/a/log.jsonl"), at_top(kept, "log.kept"), at_top(to, "runs/b/log.jsonl");
    assert_int_equal(rename(from, kept), 0);
    for (int i = 0; i < 3 * CKPT_PIECE; i++) text[i] = (char)('a' + i % 23 + i / CKPT_PIECE);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t n = rows[i].n;
        char last = n ? text[n - 1] : 0;
        if (n && rows[i].newline) text[n - 1] = '\n';
        unlink(from);
        if (rows[i].there >= 0) OK(io_write_file(from, text, (size_t)rows[i].there, NULL));
        at.log_bytes = n;
        set_counters(8, &at);
        OK(fork_with("runs/a@8", "b", no_overrides));
        snprintf(want, sizeof want, "\nlog begins with %s up to step 8\n",
                 rows[i].taken ? "that of the other run," : "this fork: that of the other run is not here");
        if (!strstr(said, want)) fail_msg("row %zu: %s", i, said);
        assert_int_equal(counters_of("runs/b/ckpt/step-00000008").log_bytes, rows[i].taken ? n : 0);
        assert_int_equal(is_there("runs/b/log.jsonl"), rows[i].taken);
        if (rows[i].taken) {
            OK(io_read_file(to, 4 * CKPT_PIECE, &got, &size));
            assert_true((int64_t)size == n && memcmp(got, text, size) == 0);
            free(got);
        }
        if (n) text[n - 1] = last;
        remove_run("runs/b");
    }
    assert_int_equal(rename(kept, from), 0);
    set_counters(8, &was);
    free(text);
}

// --- settings --------------------------------------------------------------------------------------------------------

static void set_config(const char *was, const char *now) {
    char path[IO_PATH], *text, *more = malloc(1 << 16);
    size_t size;
    OK(io_read_file(at_top(path, "runs/a/config.ini"), 1 << 16, &text, &size));
    char *at = strstr(text, was);
    assert_non_null(at);
    snprintf(more, 1 << 16, "%.*s%s%s", (int)(at - text), text, now, at + strlen(was));
    OK(io_write_file(path, more, strlen(more), NULL));
    free(text), free(more);
}

// Of what decides bits the checkpoint knows how it was, whatever somebody has written into config.ini since.
static void the_checkpoint_counts(void **state) {
    (void)state;
    set_config("\nlr = 0.01 ", "\nlr = 0.25 ");
    OK(fork_with("runs/a@8", "b", no_overrides));
    assert_non_null(strstr(said, SETTINGS "optimizer.lr 0.01 0.25\ndata "));
    remove_run("runs/b");
    OK(fork_with("runs/a@8", "b", (const char *[]){"optimizer.lr=0.01", NULL}));
    assert_non_null(strstr(said, AS_BEFORE));
    remove_run("runs/b");
    set_config("\nlr = 0.25 ", "\nlr = 0.01 ");
    set_config("\nlayers = 1 ", "\nlayers = 2 ");
    assert_int_equal(fork_with("runs/a@8", "b", no_overrides), ERR_CONFIG);
    refused(ERR_CONFIG, "model.layers is 1 in ");
    refused(
        ERR_CONFIG,
        "and would be 2 in the fork: the weights would have another shape. Leave it as it is; or take the weights alone");
    set_config("\nlayers = 2 ", "\nlayers = 1 ");
    assert_false(is_there("runs/b") || is_there("runs/.b.fork"));
}

static void of_another_build(void **state) {
    (void)state;
    manifest m;
    read_manifest(&m, "runs/a/ckpt/step-00000008");
    ckpt_key *keys = m.key, *more = calloc((size_t)m.keys + 1, sizeof *more);
    memcpy(more, keys, (size_t)m.keys * sizeof *more);
    strcpy(more[m.keys].key, "model.novelty"), strcpy(more[m.keys].value, "much");
    strcpy(m.build, "v99");
    m.key = more, m.keys++;
    write_manifest(&m, "runs/a/ckpt/step-00000008");
    assert_int_equal(fork_with("runs/a@8", "b", no_overrides), ERR_CONFIG);
    refused(ERR_CONFIG,
            "model.novelty = much, which build v99 wrote, is not known to this build: fork with that build");
    m.keys--;
    write_manifest(&m, "runs/a/ckpt/step-00000008");
    // a key that an older build did not have yet: what config.ini says of it counts
    for (int i = 0; i < m.keys; i++)
        if (strcmp(m.key[i].key, "optimizer.lr") == 0) m.key[i] = m.key[--m.keys];
    write_manifest(&m, "runs/a/ckpt/step-00000008");
    OK(fork_with("runs/a@8", "b", (const char *[]){"optimizer.lr=0.125", NULL}));
    assert_non_null(strstr(said, SETTINGS "optimizer.lr 0.01 0.125\ndata "));
    manifest b;
    read_manifest(&b, "runs/b/ckpt/step-00000008");
    assert_int_equal(b.keys, m.keys + 1);
    manifest_close(&b);
    remove_run("runs/b");
    m.key = keys, m.keys++;
    write_manifest(&m, "runs/a/ckpt/step-00000008");
    free(more);
    manifest_close(&m);
}

// Of plans the checkpoint says what they were, and config.ini where they are.
static void plans_are_kept(void **state) {
    (void)state;
    manifest whole, m;
    read_manifest(&whole, "runs/a/ckpt/step-00000008"), read_manifest(&m, "runs/a/ckpt/step-00000008");
    for (int i = 0; i < m.keys; i++)
        if (strcmp(m.key[i].key, "device.plans") == 0) strcpy(m.key[i].value, "0123abcd");
    write_manifest(&m, "runs/a/ckpt/step-00000008");
    manifest_close(&m);
    OK(fork_with("runs/a@8", "b", (const char *[]){"device.plans=some/plans", NULL}));
    assert_non_null(strstr(said, SETTINGS "device.plans \"\" some/plans\ndata "));
    read_manifest(&m, "runs/b/ckpt/step-00000008");
    for (int i = 0; i < m.keys; i++)
        if (strcmp(m.key[i].key, "device.plans") == 0) assert_string_equal(m.key[i].value, "0123abcd");
    manifest_close(&m);
    write_manifest(&whole, "runs/a/ckpt/step-00000008");
    manifest_close(&whole);
}

// The masters mean the same under any revision. Going on with the same compute type needs the bits of the one that
// wrote the checkpoint; of another type there are none before this build's.
static void revisions_are_kept(void **state) {
    (void)state;
    static const char *const types[] = {NULL, "precision.compute=fp32", "precision.compute=bf16",
                                        "precision.compute=fp16", "precision.products=bf16-pairs"};
    manifest whole, m;
    read_manifest(&whole, "runs/a/ckpt/step-00000008"), read_manifest(&m, "runs/a/ckpt/step-00000008");
    m.revision = 77;
    write_manifest(&m, "runs/a/ckpt/step-00000008");
    manifest_close(&m);
    for (int k = 0; k < 5; k++) {
        OK(fork_with("runs/a@8", "b", (const char *[]){k ? types[k] : "run.seed=7", NULL}));
        read_manifest(&m, "runs/b/ckpt/step-00000008");
        static const dtype then[] = {FP32, FP32, BF16, FP16, FP32};
        products multiplied = k == 4 ? PRODUCTS_BF16_PAIRS : PRODUCTS_FP32;
        int want = k < 2 ? 77 : arithmetic_revision(DEVICE_CPU, then[k], multiplied);
        if (m.revision != want) fail_msg("%s: revision %d, expected %d", k ? types[k] : "as it was", m.revision, want);
        assert_false(m.assumed);
        manifest_close(&m);
        remove_run("runs/b");
    }
    write_manifest(&whole, "runs/a/ckpt/step-00000008");
    manifest_close(&whole);
}

// As many arrays, but one of them is of another optimizer.
static void what_the_optimizer_keeps(void **state) {
    (void)state;
    manifest whole, m;
    read_manifest(&whole, "runs/a/ckpt/step-00000008");
    assert_int_equal(whole.groups, 3);
    for (int k = 1; k < 3; k++) {
        read_manifest(&m, "runs/a/ckpt/step-00000008");
        for (int t = k * m.params; t < (k + 1) * m.params; t++) m.tensor[t].name[0] = 'u';
        write_manifest(&m, "runs/a/ckpt/step-00000008");
        manifest_close(&m);
        assert_int_equal(fork_with("runs/a@8", "b", no_overrides), ERR_CONFIG);
        refused(
            ERR_CONFIG,
            "/runs/a/ckpt/step-00000008: holds no optimizer state of this optimizer, and training can't go on from it: take its "
            "weights into a new run with [model] init_from = ");
        write_manifest(&whole, "runs/a/ckpt/step-00000008");
    }
    manifest_close(&whole);
}

// It begins with a checkpoint, so it has to take it; it is in the directory that was asked for, which is no difference.
static void where_it_is(void **state) {
    (void)state;
    config *c = calloc(1, sizeof *c);
    char path[IO_PATH], dir[IO_PATH], here[IO_PATH];
    const char *file = path;
    snprintf(dir, sizeof dir, "run.dir=%.900s/other place/it's", top);
    OK(fork_with("runs/a@8", "b", (const char *[]){dir, "run.resume=never", NULL}));
    assert_non_null(strstr(said, "\nnext lockstep '~/other place/it'\\''s/b/config.ini'\n"));
    OK(config_load(c, (at_top(path, "other place/it's/b/config.ini"), &file), 1));
    assert_string_equal(c->run.dir, dir + 8);
    assert_string_equal(c->run.name, "b");
    assert_int_equal(c->run.resume, RESUME_AUTO);
    remove_run("other place");
    // a run that was moved: beside it, and its settings say so
    assert_int_equal(rename(at_top(path, "runs"), at_top(dir, "moved")), 0);
    OK(fork_with("moved/a@8", "b", no_overrides));
    OK(config_load(c, (at_top(path, "moved/b/config.ini"), &file), 1));
    assert_string_equal(c->run.dir, dir);
    remove_run("moved/b");
    assert_int_equal(rename(dir, at_top(path, "runs")), 0);
    // from other working directories: beside the run, wherever that is
    static const char *const from[][2] = {{"runs", "./a"},       {"runs/a", "."},        {"runs/a", "./"},
                                          {"runs/a/ckpt", ".."}, {"runs/a/ckpt", "../"}, {"runs/a/ckpt", "../../a///"}};
    assert_non_null(getcwd(here, sizeof here));
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        assert_int_equal(chdir(at_top(path, from[i][0])), 0);
        OK(fork_with(from[i][1], "b", no_overrides));
        assert_int_equal(chdir(here), 0);
        assert_true(is_there("runs/b/ckpt/step-00000012/manifest.json"));
        remove_run("runs/b");
    }
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(chdir(at_top(path, "runs")), 0);
    OK(fork_run(&(fork_options){.from = "a@8", .name = "b", .overrides = no_overrides}, out));  // of a name alone
    assert_int_equal(chdir(here), 0);
    fclose(out), free(text);
    remove_run("runs/b");
    free(c);
}

// --- refused ---------------------------------------------------------------------------------------------------------

static void steps_that_are_none(void **state) {
    (void)state;
    static const struct {
        const char *from;
        err_t code;
        const char *text;
    } rows[] = {
        {"runs/a@", ERR_USAGE, "/runs/a@: expected a step or `best` after the @"},
        {"runs/a@-4", ERR_USAGE, "/runs/a@-4: expected a step"},
        {"runs/a@+4", ERR_USAGE, "/runs/a@+4: expected a step"},
        {"runs/a@ 4", ERR_USAGE, "expected a step"},
        {"runs/a@4x", ERR_USAGE, "/runs/a@4x: expected a step"},
        {"runs/a@BEST", ERR_USAGE, "expected a step"},
        {"runs/a@99999999999999999999", ERR_USAGE, "expected a step"},
        {"runs/a@4@8", ERR_USAGE, "/runs/a@4"},
        {"runs/a@6", ERR_DATA, "/runs/a/ckpt/step-00000006: no such checkpoint. There are those of steps: 12, 8, 4"},
        {"runs/a/@6", ERR_DATA, "/runs/a/ckpt/step-00000006: no such checkpoint"},
        {"runs/none", ERR_USAGE, "/runs/none"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (fork_with(rows[i].from, "b", no_overrides) == ERR_OK) fail_msg("%s is taken", rows[i].from);
        refused(rows[i].code, rows[i].text);
        assert_false(is_there("runs/b") || is_there("runs/.b.fork"));
    }
    OK(fork_with("runs/a/@4", "b", no_overrides));
    remove_run("runs/b");
    char ckpt[IO_PATH], kept[IO_PATH];
    assert_int_equal(rename(at_top(ckpt, "runs/a/best"), at_top(kept, "kept")), 0);
    assert_int_equal(fork_with("runs/a@best", "b", no_overrides), ERR_DATA);
    refused(ERR_DATA, "/runs/a/best: this run has no best checkpoint: ");
    assert_int_equal(rename(kept, ckpt), 0);
    assert_int_equal(rename(at_top(ckpt, "runs/a/ckpt"), at_top(kept, "kept")), 0);
    assert_int_equal(fork_with("runs/a", "b", no_overrides), ERR_DATA);
    refused(ERR_DATA, "/runs/a/ckpt: no checkpoint yet");
    assert_int_equal(fork_with("runs/a@4", "b", no_overrides), ERR_DATA);
    refused(ERR_DATA, "no such checkpoint. There are those of steps: none");
    OK(io_mkdirs(ckpt));
    OK(io_remove_tree(ckpt));
    assert_int_equal(rename(kept, ckpt), 0);
}

// A request to stop that comes while it is made is answered by the fork, and is over with it; the caller's own mask is
// as it was.
static void a_request_to_stop(void **state) {
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT};
    char names[1024];
    sigset_t one, before, now;
    for (int k = 0; k < 2; k++) {
        sigemptyset(&one), sigaddset(&one, signals[k]);
        sigprocmask(SIG_BLOCK, &one, &before);
        raise(signals[k]);
        assert_int_equal(fork_with("runs/a@8", "b", no_overrides), ERR_INTERRUPTED);
        refused(ERR_INTERRUPTED, "stopped on request; nothing was made");
        names_in("runs", names);
        assert_string_equal(names, "a ");
        sigpending(&now);
        assert_false(sigismember(&now, signals[k]));
        sigprocmask(SIG_SETMASK, &before, &now);
        assert_true(sigismember(&now, signals[k]) && !sigismember(&now, signals[!k]));
    }
    OK(fork_with("runs/a@8", "b", no_overrides));
    sigprocmask(SIG_SETMASK, NULL, &now);
    assert_false(sigismember(&now, SIGTERM) || sigismember(&now, SIGINT));
    remove_run("runs/b");
}

// Two forks of one name: the one that has begun goes on.
static void two_of_one_name(void **state) {
    (void)state;
    char path[IO_PATH];
    OK(io_mkdirs(at_top(path, "runs/.b.fork")));
    OK(io_write_file(at_top(path, "runs/.b.fork/log.jsonl"), "x", 1, NULL));
    int fd = open(at_top(path, "runs/.b.fork"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(fork_with("runs/a@8", "b", no_overrides), ERR_UNAVAILABLE);
    refused(ERR_UNAVAILABLE, "/runs/.b.fork: another process makes this fork");
    assert_true(is_there("runs/.b.fork/log.jsonl"));
    close(fd);
    OK(fork_with("runs/a@8", "b", no_overrides));
    assert_false(is_there("runs/.b.fork"));
}

// As many files as there may be beside the run's own, the last of which wins.
static void many_files(void **state) {
    (void)state;
    const char *files[CONFIG_FILES_MAX];
    char own[IO_PATH], path[IO_PATH], last[IO_PATH];
    OK(io_write_file(at_top(path, "first.ini"), "[optimizer]\nlr = 0.5\n", 21, NULL));
    OK(io_write_file(at_top(last, "last.ini"), "[optimizer]\nlr = 0.25\n", 22, NULL));
    for (int i = 0; i < CONFIG_FILES_MAX; i++) files[i] = i < CONFIG_FILES_MAX - 2 ? path : last;
    for (int k = 0; k < 2; k++) {
        char *text;
        size_t size;
        FILE *out = open_memstream(&text, &size);
        err_t rc =
            fork_run(&(fork_options){at_top(own, "runs/a@8"), "b", files, CONFIG_FILES_MAX - k, no_overrides, 0}, out);
        fclose(out);
        keep_said(text), free(text);
        assert_int_equal(rc, k ? ERR_OK : ERR_USAGE);
        if (k) assert_non_null(strstr(said, SETTINGS "optimizer.lr 0.01 0.25\ndata "));
        else refused(ERR_USAGE, "more than ");
    }
}

// --- the run that they are of ----------------------------------------------------------------------------------------

static int train_one(void **state) {
    config *c = calloc(1, sizeof *c);
    (void)state;
    top = make_dir();
    write_tokens(top, "text.bin", 50 * 24 + 1);
    write_tokens(top, "val.bin", 400);
    load_config(c, top, settings, "[eval]\nevery = 12\nbatches = 1\n");
    err_t rc = train(c, top);
    free(c);
    return (int)rc;
}

static int remove_fork(void **state) {
    char path[IO_PATH];
    (void)state;
    return (int)io_remove_tree(at_top(path, "runs/b"));
}

static int drop_all(void **state) {
    (void)state;
    drop_dir(top);
    return 0;
}

#define TEST(f) cmocka_unit_test_teardown(f, remove_fork)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(each_is_told),
        TEST(ruined_weights_are_named),
        TEST(counters_of_the_new_run),
        TEST(both_runs_know),
        TEST(nothing_is_left_over),
        TEST(the_log_is_copied_to_its_length),
        TEST(the_checkpoint_counts),
        TEST(of_another_build),
        TEST(plans_are_kept),
        TEST(revisions_are_kept),
        TEST(what_the_optimizer_keeps),
        TEST(where_it_is),
        TEST(steps_that_are_none),
        TEST(a_request_to_stop),
        TEST(two_of_one_name),
        TEST(many_files),
    };
    return cmocka_run_group_tests_name("fork says", tests, train_one, drop_all);
}
