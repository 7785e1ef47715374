// test/test_checkpoint.c: what is saved is what is loaded, bit for bit; hashes see everything; and every byte of a
// checkpoint is flipped, every file cut, lengthened, swapped and forged: the damage is named and the checkpoint before
// it is used. (test_checkpoint_crash.c: while saving. test_checkpoint_fit.c: from which of them a run may go on.)
#include "model/safetensors.h"
#include "test/support/forge.h"
#include "trainer/checkpoint/manifest.h"

#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>

// --- what is saved is what is loaded ---------------------------------------------------------------------------------

static void test_round_trip(void **state) {
    world *w = *state, *same = make_world(w->dir, CHUNKY_ROWS);
    complaints c;
    bool found = true;
    OK(ckpt_resume(w->dir, &w->s, &w->at, &found, complain, &c));
    assert_false(found);
    OK(ckpt_clean(w->dir, NULL));
    for (int step = 1; step <= 3; step++) {
        save_step(w, step, 10);
        fill(same, step, 0);
        resumes_as(w, same, &c);
        assert_int_equal(c.count, 0);
    }
    holds(w, "step-00000001 step-00000002 step-00000003 ");
    fill(same, 2, 0);
    scramble(w);
    char path[IO_PATH];
    path_of(path, w, 2, "");
    OK(ckpt_load(path, &w->s, &w->at, false));
    assert_true(equal(w, same));
    drop_world(same);
}

static void test_counters(void **state) {
    world *w = *state;
    char path[IO_PATH];
    const double losses[] = {INFINITY, 0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, 1.8812345678901234};
    for (int i = 0; i < 6; i++) {
        fill(w, 1, 0);
        w->at.best_loss = losses[i];
        w->at.loss_scale = i ? losses[i] : 1;
        w->at.log_bytes = INT64_MAX - i;
        run_progress at = w->at;
        OK(ckpt_save(w->dir, &w->s, &w->at, 3, NULL));
        scramble(w);
        path_of(path, w, 1, "");
        OK(ckpt_load(path, &w->s, &w->at, false));
        assert_memory_equal(&w->at, &at, sizeof at);
    }
    w->at.loss_scale = NAN;
    FAILS(ckpt_save(w->dir, &w->s, &w->at, 3, NULL), ERR_INTERNAL, "loss scale");
    w->at = (run_progress){.step = -1, .loss_scale = 1};
    FAILS(ckpt_save(w->dir, &w->s, &w->at, 3, NULL), ERR_INTERNAL, "step -1");
    holds(w, "step-00000001 ");
    w->at.step = 0;  // stopped before the first step
    OK(ckpt_save(w->dir, &w->s, &w->at, 3, NULL));
    path_of(path, w, 0, "");
    OK(ckpt_load(path, &w->s, &w->at, false));
    assert_int_equal(w->at.step, 0);
}

// Others read the files too: plain safetensors with the model's own names.
static void test_files(void **state) {
    world *w = *state;
    char path[IO_PATH];
    st_file f;
    save_step(w, 123456789, 1);
    holds(w, "step-123456789 ");
    path_of(path, w, 123456789, "model.safetensors" CKPT_END);
    OK(st_open(&f, path));
    assert_int_equal(f.count, PARAMS);
    float *x = malloc((size_t)st_find(&f, "w")->bytes);
    OK(st_read(&f, st_find(&f, "w"), x));
    assert_memory_equal(x, w->master[0].data, (size_t)st_find(&f, "w")->bytes);
    free(x);
    st_close(&f);
    path_of(path, w, 123456789, "optimizer.safetensors" CKPT_END);
    OK(st_open(&f, path));
    assert_int_equal(f.count, 2 * PARAMS);
    float b[4];
    OK(st_read(&f, st_find(&f, "v/b.bias"), b));
    assert_memory_equal(b, w->v[1].data, sizeof b);
    OK(st_read(&f, st_find(&f, "m/b.bias"), b));
    assert_memory_equal(b, w->m[1].data, sizeof b);
    st_close(&f);
}

static void test_peek(void **state) {
    world *w = *state;
    char path[IO_PATH], hash[17], state_hash[17], expected[17];
    ckpt_state *s = malloc(sizeof *s);
    run_progress at;
    save_step(w, 7, 1);
    path_of(path, w, 7, "");
    OK(ckpt_peek(path, s, &at));
    assert_memory_equal(&at, &w->at, sizeof at);
    assert_int_equal(s->keys, w->s.keys);
    for (int i = 0; i < s->keys; i++) {
        assert_string_equal(s->key[i].key, w->s.key[i].key);
        assert_string_equal(s->key[i].value, w->s.key[i].value);
    }
    assert_string_equal(s->data_hash, w->s.data_hash);
    assert_string_equal(s->build, w->s.build);
    assert_int_equal(s->params, 0);
    free(s);
    OK(ckpt_hash_dir(path, hash, state_hash));
    ckpt_hash(&w->s, expected);
    assert_string_equal(hash, expected);
    ckpt_state_hash(&w->s, &w->at, expected);
    assert_string_equal(state_hash, expected);
}

static void test_inference(void **state) {
    world *w = *state, *same = make_world(w->dir, 5);
    char path[IO_PATH], optimizer[IO_PATH], hash[17], state_hash[17], expected[17];
    save_step(w, 7, 1);
    fill(same, 7, 0);
    path_of(path, w, 7, "");
    path_of(optimizer, w, 7, "optimizer.safetensors" CKPT_END);
    assert_int_equal(unlink(optimizer), 0);
    scramble(w);
    w->s.groups = 1;
    OK(ckpt_load(path, &w->s, &w->at, true));
    assert_true(group_equal(w->master, same->master));
    FAILS(ckpt_hash_dir(path, hash, state_hash), ERR_DATA, "optimizer.safetensors", "missing");
    fill(w, 8, 0);
    OK(ckpt_save(w->dir, &w->s, &w->at, 1, NULL));  // a state of masters alone is one file
    path_of(path, w, 8, "");
    OK(ckpt_hash_dir(path, hash, state_hash));
    ckpt_state_hash(&w->s, &w->at, expected);
    assert_string_equal(state_hash, expected);
    w->s.groups = 3;
    FAILS(ckpt_load(path, &w->s, &w->at, false), ERR_CONFIG, "no optimizer state");
    drop_world(same);
}

// --- hashes ----------------------------------------------------------------------------------------------------------

static void ramp(ckpt_tensor *t, int k) {
    for (int i = 0; i < PARAMS; i++)
        for (int64_t j = 0; j < count_of(&t[i]); j++) t[i].data[j] = (float)((k + i) * j - 5);
}

// The figures come from another implementation of the definition in trainer/checkpoint/checkpoint.h and
// trainer/checkpoint/digest.h (Python's hashlib).
static void test_hash_value(void **state) {
    world *w = *state;
    char hash[17];
    ramp(w->master, 1), ramp(w->m, 10), ramp(w->v, 20);
    w->at = (run_progress){.step = 12, .updates = 11, .skipped = 1, .good_steps = 7, .loss_scale = 32768};
    ckpt_hash(&w->s, hash);
    assert_string_equal(hash, "3ba80e5a08470c60");
    ckpt_state_hash(&w->s, &w->at, hash);
    assert_string_equal(hash, "baf6a37bc2861b74");
}

// Both hashes now against both before; `masters` and `all` say which must have changed. They become the new "before".
static void hashes_change(const world *w, char before[2][17], bool masters, bool all) {
    char now[2][17];
    ckpt_hash(&w->s, now[0]);
    ckpt_state_hash(&w->s, &w->at, now[1]);
    assert_int_equal(strcmp(now[0], before[0]) != 0, masters);
    assert_int_equal(strcmp(now[1], before[1]) != 0, all);
    memcpy(before, now, sizeof now);
}

static void flip_element(ckpt_tensor *t, int64_t i) {
    uint32_t bits;
    memcpy(&bits, t->data + i, 4);
    bits ^= 1u << i % 32;
    memcpy(t->data + i, &bits, 4);
}

static void test_hash_sees_everything(void **state) {
    world *w = *state;
    char h[2][17] = {"", ""};
    const int64_t picks[] = {0, 1, 16383, 16384, 16385, 20999};
    fill(w, 5, 0);
    hashes_change(w, h, true, true);
    hashes_change(w, h, false, false);
    for (int i = 0; i < 6; i++) {
        flip_element(&w->master[0], picks[i]), hashes_change(w, h, true, true);
        flip_element(&w->m[0], picks[i]), hashes_change(w, h, false, true);
        flip_element(&w->v[0], picks[i]), hashes_change(w, h, false, true);
    }
    for (int i = 0; i < 4; i++) flip_element(&w->master[1], i), hashes_change(w, h, true, true);
    flip_element(&w->master[2], 0), hashes_change(w, h, true, true);
    strcpy(w->master[1].name, "b.biat"), hashes_change(w, h, true, true);
    w->master[0].size[0] = 7000, w->master[0].size[1] = 3, hashes_change(w, h, true, true);
    w->master[2].dims = 1, w->master[2].size[0] = 1, hashes_change(w, h, true, true);
    ckpt_tensor other = w->master[1];
    w->master[1] = w->master[2], w->master[2] = other, hashes_change(w, h, true, true);
    w->s.params--, hashes_change(w, h, true, true);
    w->s.group[1].tensor = w->v, w->s.group[2].tensor = w->m, hashes_change(w, h, false, true);
    w->at.step++, hashes_change(w, h, false, true);
    w->at.updates++, hashes_change(w, h, false, true);
    w->at.skipped++, hashes_change(w, h, false, true);
    w->at.good_steps++, hashes_change(w, h, false, true);
    w->at.loss_scale *= 2, hashes_change(w, h, false, true);
    w->at.norm_mean = 2, hashes_change(w, h, false, false);  // of nothing
    w->at.norms = 20, hashes_change(w, h, false, true);
    w->at.norm_mean = 3, hashes_change(w, h, false, true);
    w->at.best_loss++, w->at.best_step++, w->at.log_bytes++, hashes_change(w, h, false, false);
}

// --- keeping and pruning ---------------------------------------------------------------------------------------------

static void test_prune(void **state) {
    world *w = *state;
    char best[IO_PATH], target[64] = "";
    FAILS(ckpt_mark_best(w->dir, NULL, 1, NULL), ERR_IO, "step-00000001");
    save_step(w, 1, 2);
    save_step(w, 2, 2);
    OK(ckpt_mark_best(w->dir, NULL, 1, NULL));
    snprintf(best, sizeof best, "%s/best", w->dir);
    assert_int_equal(readlink(best, target, sizeof target - 1), 18);
    assert_string_equal(target, "ckpt/step-00000001");
    save_step(w, 3, 2);
    save_step(w, 4, 2);
    holds(w, "step-00000001 step-00000003 step-00000004 ");  // best is kept beyond `keep`
    OK(ckpt_mark_best(w->dir, NULL, 4, NULL));
    save_step(w, 5, 2);
    holds(w, "step-00000004 step-00000005 ");
    save_step(w, 6, 1);
    save_step(w, 7, 1);
    holds(w, "step-00000004 step-00000007 ");
    char path[IO_PATH];
    run_progress at = w->at;
    snprintf(path, sizeof path, "%s/best", w->dir);
    OK(ckpt_load(path, &w->s, &w->at, false));
    assert_int_equal(w->at.step, 4);
    w->at = at;
    save_step(w, 5, 1);  // after a return to an earlier one: what lies ahead is not this run's to remove
    holds(w, "step-00000004 step-00000005 step-00000007 ");
    save_step(w, 8, 0);  // 0 keeps all
    holds(w, "step-00000004 step-00000005 step-00000007 step-00000008 ");
}

// With which checkpoint of another run a run began is in each of its own.
static void test_origin(void **state) {
    world *w = *state;
    complaints c;
    save_step(w, 1, 0);
    OK(resume(w, &c));
    assert_int_equal(w->s.origin.step, 0);
    w->s.origin = (ckpt_origin){"runs/\"a\" b", 7, "0123456789abcdef"};
    save_step(w, 2, 0);
    w->s.origin = (ckpt_origin){0};
    OK(resume(w, &c));
    assert_string_equal(w->s.origin.run, "runs/\"a\" b");
    assert_int_equal(w->s.origin.step, 7);
    assert_string_equal(w->s.origin.hash, "0123456789abcdef");
}

// Saves `step`, the last of `bad` steps, and prunes: with the save, or after it.
static void save_bad_step(world *w, int64_t step, int64_t bad, bool after) {
    fill(w, step, 0);
    w->at.bad_steps = bad;
    OK(ckpt_save(w->dir, &w->s, &w->at, after ? 0 : 2, NULL));
    if (after) OK(ckpt_prune(w->dir, &w->s, &w->at, step, 2));
}

// What is saved in steps whose loss is not finite counts apart.
static void test_prune_in_bad_steps(void **state) {
    world *w = *state;
    for (int64_t step = 1; step <= 3; step++) save_step(w, step, 2);
    for (int64_t step = 4; step <= 7; step++) {
        save_bad_step(w, step, step - 3, step % 2);
        if (step == 5) holds(w, "step-00000002 step-00000003 step-00000005 ");
    }
    holds(w, "step-00000002 step-00000003 step-00000007 ");
    complaints c;
    w->at.bad_steps = 0;
    OK(resume(w, &c));
    assert_int_equal(w->at.bad_steps, 4);
    assert_false(progress_is_sound(&w->at));
    fill(w, 8, 0);
    w->at.bad_steps = 0;
    OK(ckpt_save(w->dir, &w->s, &w->at, 2, NULL));  // it recovered
    holds(w, "step-00000007 step-00000008 ");
}

// The loss of a step is of the weights before it: what was saved is good if a later loss says so, or an evaluation.
static void test_proven(void **state) {
    world *w = *state;
    complaints c;
    fill(w, 3, 0);
    w->at.loss = 2, w->at.least_loss = 1.9, w->at.sound_step = 2, w->at.bad_steps = 0;
    w->at.best_step = 2, w->at.best_loss = 2, w->at.norms = 17, w->at.norm_mean = 1.0 / 3;
    strcpy(w->at.best_of, "code");
    OK(ckpt_save(w->dir, &w->s, &w->at, 2, NULL));
    w->at.sound_step = w->at.norms = 0, w->at.norm_mean = 0, w->at.best_of[0] = 0;
    OK(resume(w, &c));
    assert_int_equal(w->at.sound_step, 2);
    assert_true(w->at.norms == 17 && w->at.norm_mean == 1.0 / 3);
    assert_string_equal(w->at.best_of, "code");
    run_progress at = w->at;
    at.step = 3;
    assert_true(progress_is_sound(&at));
    assert_false(progress_is_proven(&at, 2));
    assert_true(progress_is_proven(&at, 3));
    assert_true(progress_is_proven(&at, -1));  // of a build that did not count
    at.best_step = 3;
    assert_true(progress_is_proven(&at, 2));
    at.best_loss = 10.5;
    assert_false(progress_is_proven(&at, 2));
    at.loss = 10.5;
    assert_false(progress_is_proven(&at, 3));
    fill(w, 4, 0);
    w->at.sound_step = -1;
    OK(ckpt_save(w->dir, &w->s, &w->at, 2, NULL));
    w->at.sound_step = 0;
    OK(resume(w, &c));
    assert_int_equal(w->at.sound_step, -1);
}

static void test_strangers_stay(void **state) {
    world *w = *state;
    char path[IO_PATH];
    static const char *const names[] = {"step-1", "step-00000000x", "notes",
                                        "step-",  "step-000000001", "step-99999999999999999999"};
    save_step(w, 1, 1);
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s/ckpt/%s", w->dir, names[i]);
        assert_int_equal(mkdir(path, 0755), 0);
    }
    world *same = make_world(w->dir, 5);
    complaints c;
    fill(same, 1, 0);
    resumes_as(w, same, &c);
    assert_int_equal(c.count, 0);
    save_step(w, 2, 1);
    OK(ckpt_clean(w->dir, NULL));
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s/ckpt/%s", w->dir, names[i]);
        assert_int_equal(rmdir(path), 0);
    }
    holds(w, "step-00000002 ");
    drop_world(same);
}

// The states that a crash between two renames can leave.
static void test_clean(void **state) {
    world *w = *state, *same = make_world(w->dir, 5);
    char from[IO_PATH], old[IO_PATH], tmp[IO_PATH];
    complaints c;
    save_step(w, 3, 5);
    save_step(w, 4, 5);
    fill(same, 4, 0);
    path_of(from, w, 4, "");
    snprintf(old, sizeof old, "%s/ckpt/.old-step-00000004", w->dir);
    snprintf(tmp, sizeof tmp, "%s/ckpt/.tmp-step-00000004", w->dir);
    assert_int_equal(rename(from, old), 0);  // set aside, and the new one not there yet
    assert_int_equal(mkdir(tmp, 0755), 0);
    OK(ckpt_clean(w->dir, NULL));
    holds(w, "step-00000003 step-00000004 ");
    resumes_as(w, same, &c);
    assert_int_equal(c.count, 0);
    assert_int_equal(mkdir(old, 0755), 0);  // the new one is there, the old one not removed yet
    OK(ckpt_clean(w->dir, NULL));
    holds(w, "step-00000003 step-00000004 ");
    resumes_as(w, same, &c);
    drop_world(same);
}

// --- what cannot be saved --------------------------------------------------------------------------------------------

static void test_unsaveable(void **state) {
    world *w = *state;
    fill(w, 1, 0);
    add_key(&w->s, "batch.global", "24");
    FAILS(ckpt_save(w->dir, &w->s, &w->at, 1, NULL), ERR_INTERNAL, "batch.global", "twice");
    w->s.keys--;
    strcpy(w->s.key[0].value, "\xff");
    FAILS(ckpt_save(w->dir, &w->s, &w->at, 1, NULL), ERR_CONFIG, "batch.global", "UTF-8");
    strcpy(w->s.key[0].value, "24");
    memset(w->master[0].name, 'n', CKPT_NAME - 1), memset(w->m[0].name, 'n', CKPT_NAME - 1);
    FAILS(ckpt_save(w->dir, &w->s, &w->at, 1, NULL), ERR_INTERNAL, "can't be saved");  // "m/" does not fit in front
    strcpy(w->master[0].name, "b.bias"), strcpy(w->m[0].name, "w");
    FAILS(ckpt_save(w->dir, &w->s, &w->at, 1, NULL), ERR_INTERNAL, "b.bias", "twice");
    holds(w, "");
}

// --- damage ----------------------------------------------------------------------------------------------------------

#if CKPT_COMPRESS
#define VERSION "5"
#else
#define VERSION "3"
#endif
static const char *const files[] = {"model.safetensors" CKPT_END, "optimizer.safetensors" CKPT_END, "manifest.json"};

// Step 2 must be found damaged, its file (and tensor) be named, and step 1 be used.
static void falls_back(two *t, const char *file, const char *names) {
    complaints c;
    char path[IO_PATH], hash[17], state_hash[17];
    path_of(path, t->w, 2, "");
    resumes_as(t->w, t->first, &c);
    assert_int_equal(c.count, 1);
    if (!strstr(c.last, "step-00000002") || !strstr(c.last, file) || !strstr(c.last, names))
        fail_msg("\"%s\" does not name %s %s", c.last, file, names);
    FAILS(ckpt_hash_dir(path, hash, state_hash), ERR_DATA, file, names);
}

static const char *tensor_at(const st_file *f, int64_t offset) {
    for (int i = 0; i < f->count; i++)
        if (offset >= f->tensors[i].offset && (i + 1 == f->count || offset < f->tensors[i + 1].offset))
            return f->tensors[i].name;
    return "";
}

static void test_every_byte(void **state) {
    two t = two_steps(state);
    for (int i = 0; i < 3; i++) {
        char path[IO_PATH], names[CKPT_NAME + 16];
        size_t n;
        st_file f = {.fd = -1};
        path_of(path, t.w, 2, files[i]);
        char *bytes = slurp(path, &n);
        if (i < 2) OK(st_open(&f, path));
        assert_true(n > 200);
        for (size_t at = 0; at < n; at++) {
            int fd = open(path, O_WRONLY);
            char flipped = (char)(bytes[at] ^ 1 << at % 8);
            assert_int_equal(pwrite(fd, &flipped, 1, (off_t)at), 1);
            const char *tensor = tensor_at(&f, (int64_t)at);
            snprintf(names, sizeof names, "%s%s%s", *tensor ? "tensor " : "", tensor,
                     !*tensor        ? ""
                     : CKPT_COMPRESS ? ": "
                                     : " (");
            falls_back(&t, files[i], names);
            assert_int_equal(pwrite(fd, bytes + at, 1, (off_t)at), 1);
            close(fd);
        }
        if (i < 2) st_close(&f);
        free(bytes);
    }
    complaints c;
    OK(resume(t.w, &c));
    assert_int_equal(t.w->at.step, 2);  // and put back it is whole again
    drop_world(t.first);
}

static void test_other_lengths(void **state) {
    two t = two_steps(state);
    static const char junk[5000] = "lockstep";
    for (int i = 0; i < 3; i++) {
        char path[IO_PATH];
        size_t n;
        path_of(path, t.w, 2, files[i]);
        char *bytes = slurp(path, &n), *longer = calloc(1, n + sizeof junk);
        memcpy(longer, bytes, n);
        for (size_t length = 0; length < n; length += length < 80 || length + 80 > n ? 1 : 23) {
            assert_int_equal(truncate(path, (off_t)length), 0);
            falls_back(&t, files[i], "");
            spill(path, bytes, n);
        }
        for (size_t more = 1; more <= sizeof junk; more += more < 10 ? 1 : 499) {
            spill(path, longer, n + more);
            falls_back(&t, files[i], "");
        }
        spill(path, junk, sizeof junk);
        falls_back(&t, files[i], "");
        memset(longer, 0xff, n);
        spill(path, longer, n);
        falls_back(&t, files[i], "");
        unlink(path);
        falls_back(&t, files[i], "missing");
        assert_int_equal(mkdir(path, 0755), 0);
        complaints c;
        resumes_as(t.w, t.first, &c);  // a directory in the place of a file
        assert_int_equal(c.count, 1);
        rmdir(path);
        spill(path, bytes, n);
        free(bytes), free(longer);
    }
    drop_world(t.first);
}

// Whole files, of another checkpoint.
static void test_foreign_files(void **state) {
    two t = two_steps(state);
    static const char *const names[] = {CKPT_COMPRESS ? "header" : "tensor w", CKPT_COMPRESS ? "header" : "tensor m/w",
                                        "step-00000002"};
    char path[IO_PATH], other[IO_PATH];
    for (int i = 0; i < 3; i++) {
        size_t n, m;
        path_of(path, t.w, 2, files[i]);
        path_of(other, t.w, 1, files[i]);
        char *mine = slurp(path, &n), *foreign = slurp(other, &m);
        spill(path, foreign, m);
        if (i < 2) falls_back(&t, files[i], names[i]);
        else falls_back(&t, "model.safetensors", names[0]);  // the manifest is whole, but not of these tensors
        spill(path, mine, n);
        free(mine), free(foreign);
    }
    complaints c;
    path_of(path, t.w, 2, "");
    OK(io_remove_tree(path));
    save_step(t.w, 1, 5);
    path_of(other, t.w, 1, "");
    assert_int_equal(rename(other, path), 0);  // step 1 under the name of step 2
    FAILS(resume(t.w, &c), ERR_DATA, "none of its 1", "renamed");
    drop_world(t.first);
}

static void test_all_damaged(void **state) {
    two t = two_steps(state);
    char path[IO_PATH];
    complaints c;
    for (int step = 1; step <= 2; step++) {
        path_of(path, t.w, step, "model.safetensors" CKPT_END);
        assert_int_equal(truncate(path, 100), 0);
    }
    FAILS(resume(t.w, &c), ERR_DATA, "none of its 2", "step-00000001/model.safetensors");
    assert_int_equal(c.count, 2);
    save_step(t.w, 2, 5);  // reaching the step again replaces the damaged one
    OK(resume(t.w, &c));
    assert_int_equal(c.count, 0);
    drop_world(t.first);
}

// What can't be read may be whole: no reason to give it up for good, whatever the others are.
static void test_unreadable(void **state) {
    for (int i = 0; i < 3; i++) {
        two t = two_steps(state);
        complaints c;
        char path[2][IO_PATH];
        for (int k = 0; k < 2; k++) path_of(path[k], t.w, k + 1, files[i]), make_unreadable(path[k]);
        FAILS(resume(t.w, &c), ERR_IO, "of 2 checkpoints 2 could not be read. ", "leave it where it is",
              "step-00000002", files[i], strerror(ELOOP));
        assert_null(strstr(err_last()->text, "move the directory away"));
        assert_int_equal(c.count, 2);
        make_readable(path[0]);
        resumes_as(t.w, t.first, &c);
        assert_int_equal(c.count, 1);
        assert_int_equal(truncate(path[0], 100), 0);
        FAILS(resume(t.w, &c), ERR_IO, "of 2 checkpoints 1 could not be read, and 1 is damaged. ", "step-00000002",
              strerror(ELOOP));
        make_readable(path[1]);
        OK(resume(t.w, &c));
        assert_int_equal(c.count, 0);
        drop_world(t.first);
    }
}

// One descriptor is left: enough to list the directory and to read a manifest, not for the two files that stay open.
static void test_no_descriptors(void **state) {
    two t = two_steps(state);
    complaints c;
    struct rlimit was, few;
    int next = dup(0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was) | close(next), 0);
    few = (struct rlimit){(rlim_t)next + 1, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    err_t rc = resume(t.w, &c);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    if (rc != ERR_IO || !strstr(err_last()->text, strerror(EMFILE))) fail_msg("%d: %s", rc, err_last()->text);
    assert_int_equal(c.count, 2);
    OK(resume(t.w, &c));
    drop_world(t.first);
}

static void test_forged_manifests(void **state) {
    two t = two_steps(state);
    static const char *const changes[][2] = {
        {"\"step\": 2", "\"step\": 3"},  // every counter the future depends on is under state_hash
        {"\"adam_t\": 1", "\"adam_t\": 2"},
        {"\"loss_scale\": 32768.0", "\"loss_scale\": 32768.5"},
        {"\"good_steps\": 7", "\"good_steps\": 8"},
        {"\"skipped\": 1", "\"skipped\": 0"},
        {"\"step\": 2", "\"step\": -2"},
        {"\"step\": 2", "\"step\": 2.0"},
        {"\"step\": 2", "\"stop\": 2"},
        {"\"loss_scale\": 32768.0", "\"loss_scale\": \"x\""},
        {"\"best_loss\": ", "\"best_loss\": true, \"x\": "},
        {"\"format\": \"lockstep checkpoint\"", "\"format\": \"other\""},
        {"\"version\": " VERSION, "\"version\": \"3\""},
        {"\"name\": \"model.safetensors" CKPT_END "\"", "\"name\": \"../../model.safetensors\""},
        {"\"name\": \"w\"", "\"name\": \"\""},
        {"\"name\": \"w\"", "\"name\": \"b.bias\""},
        {"\"name\": \"m/w\"", "\"name\": \"m/x\""},
        {"\"name\": \"m/w\"", "\"name\": \"w\""},
        {"\"name\": \"m/w\"", "\"name\": \"/w\""},
        {"\"name\": \"m/w\"", "\"name\": \"v/w\""},
        {"\"name\": \"m/w\"", "\"name\": \"sixteen.letters./w\""},
        {"\"name\": \"v/s\"", "\"name\": \"m/s\""},
        {"\"file\": \"model", "\"file\": \"optimizer"},
        {"\"name\": \"b.bias\"", "\"name\": \"s\""},
        {"\"hash\": \"", "\"hash\": \"0000000000000000\", \"x\": \""},
        {"\"state_hash\": \"", "\"state_hash\": \"00000\", \"x\": \""},
        {"3,\n    5", "5,\n    3"},
        {"3,\n    5", "4611686018427387904,\n    5"},
        {"3,\n    5", "0,\n    5"},
        {"3,\n    5", "3,\n    5, 1, 1, 1"},
        {"\"bits\": {", "\"bits\": [], \"x\": {"},
        {"\"files\": [", "\"files\": [], \"x\": ["},
        {"\"tensors\": [", "\"tensors\": [1, "},
        {"\"data_hash\": \"", "\"data_hash\": \"00000000000000000"},
        {"\"batch.global\": \"24\"", "\"batch.global\": 24"},
        {"\"bytes\": ", "\"bytes\": 1"},
        {"\"header_blake2b\": \"", "\"header_blake2b\": \"zz"},
        {"\"blake2b\": \"", "\"blake2b\": \"0"},
        {"\"version\": " VERSION, "\"version\": " VERSION ", \"version\": " VERSION},
        {"\"version\": " VERSION, "\"version\": 1"},
        {"\"device\": {", "\"divice\": {"},
        {"\"device\": {", "\"device\": [], \"x\": {"},
        {"\"arithmetic\": \"\"", "\"arithmetic\": 7"},
        {"\"arithmetic\": \"\"", "\"arithmetic\": \"\\u001b[2J\""},
        {"\"arithmetic\": \"\"",
         "\"arithmetic\": \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
         "012345678901234567890123456789012345678901234567890123456789\""},
        {"\"plans\": []", "\"plans\": {}"},
        {"\"plans\": []", "\"plans\": [7]"},
        {"\"plans\": []", "\"plans\": [\"a\\nb\"]"},
        {"\"plans\": []", "\"plans\": [\"\u00e9\"]"},
        {"\"plans\": []", "\"x\": []"},
        {"\"world\": 1", "\"world\": 2"},
        {"\"world\": 1", "\"world\": 0"},
        {"\"world\": 1", "\"world\": 4294967297"},
        {"\"rank\": 0", "\"rank\": 1"},
        {"\"host\": \"", "\"host\": 7, \"x\": \""},
        {"\"first\": 0", "\"first\": 1"},
        {"\"first\": 0", "\"first\": -1"},
        {"\"count\": 15", "\"count\": 14"},
        {"\"count\": 15", "\"count\": 16"},
        {"\"count\": 15", "\"count\": 9223372036854775807"},
        {"\"parts\": [", "\"parts\": [], \"x\": ["},
        {"\"parts\": [", "\"parts\": [{}, "},
        {"{", "["},
    };
    char path[IO_PATH];
    size_t n;
    path_of(path, t.w, 2, "manifest.json");
    char *text = slurp(path, &n);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        complaints c;
        forge(path, text, changes[i][0], changes[i][1]);
        resumes_as(t.w, t.first, &c);
        if (c.count != 1 || !strstr(c.last, "step-00000002"))
            fail_msg("%s as %s was believed", changes[i][0], changes[i][1]);
    }
    complaints c;
    forge(path, text, "\"version\": " VERSION, "\"version\": 7");
    FAILS(resume(t.w, &c), ERR_CONFIG, "version 7", "reads 1 to 6");
    forge(path, text, "\"build\": \"test-1\"", "\"build\": \"test-2\"");  // informative: may be anything
    OK(resume(t.w, &c));
    assert_int_equal(t.w->at.step, 2);
    free(text);
    drop_world(t.first);
}

// A manifest of two ranks with rows on demand, 60 of them, of which the second rank has 25.
static char *manifest_of_rows(const char *dir, size_t *size) {
    manifest m;
    char *text;
    OK(manifest_read(&m, dir));
    manifest_file *f = calloc((size_t)m.files + 2, sizeof *f);
    if (!f) abort();
    memcpy(f, m.file, (size_t)m.files * sizeof *f);
    free(m.file);
    m.file = f, m.world = 2;
    for (int i = 0; i < m.files; i++) manifest_file_name(f[i].name, f[i].kind, 0, 2, f[i].blocks);
    m.rows =
        (manifest_rows){.name = "tables", .width = 3, .rows = 60, .parts = 2, .part = calloc(2, sizeof *m.rows.part)};
    for (int r = 0; r < 2; r++) {
        m.rows.part[r] = (manifest_rows_part){.file = m.files, .first = 2048 * r, .buckets = 2048, .rows = r ? 25 : 35};
        f[m.files] = (manifest_file){.kind = FILE_TABLE, .rank = r, .bytes = 5000};
        snprintf(f[m.files].host, sizeof f->host, "localhost");
        manifest_file_name(f[m.files++].name, FILE_TABLE, r, 2, false);
    }
    OK(manifest_print(&m, &text, size));
    manifest_close(&m);
    return text;
}

// A manifest that says something wrong of rows is refused before a file is read.
static void test_forged_rows(void **state) {
    static const struct {
        const char *from, *to, *says;
    } of[] = {
        {"", "", NULL},
        {"\"width\": 3", "\"width\": 0", "1 to 4096"},
        {"\"width\": 3", "\"width\": 4096", NULL},
        {"\"width\": 3", "\"width\": 4097", "1 to 4096"},
        {"\"rows\": 60", "\"rows\": 61", "the sum of the parts' rows"},
        {"\"rows\": 35", "\"rows\": 36", "the sum of the parts' rows"},
        {"\"rows\": 35", "\"rows\": 0", "at least one row in each"},
        {"\"buckets\": 2048", "\"buckets\": 0", "one part after the other"},
        {"\"buckets\": 2048", "\"buckets\": 2047", NULL},  // the bucket between has no row
        {"\"buckets\": 2048", "\"buckets\": 2049", "one part after the other"},
        {"\"first\": 2048", "\"first\": 2047", "one part after the other"},
        {"\"first\": 2048", "\"first\": 2049", "one part after the other"},  // one bucket too many
        {"\"first\": 2048", "\"first\": 4096", "one part after the other"},
        {"\"first\": 0", "\"first\": -1", "first"},
        {"\"file\": \"table", "\"file\": \"model", "of the kind that has rows"},
        {"\"parts\": [", "\"parts\": [{}, ", "as many as there are files of rows"},
        {"\"parts\": [", "\"parts\": [], \"x\": [", "as many as there are files of rows"},
        {"\"blake2b\": \"", "\"blake2b\": \"0", "blake2b"},
        {"\"table\": {", "\"tables\": {", "name"},
    };
    two t = two_steps(state);
    char dir[IO_PATH], path[IO_PATH];
    size_t size;
    path_of(dir, t.w, 2, "");
    path_of(path, t.w, 2, "manifest.json");
    char *text = manifest_of_rows(dir, &size), *forged = calloc(2, size + 100);
    if (!forged) abort();
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        manifest m;
        char *table = strstr(text, "\"table\": {"), *at = strstr(table, of[i].from);
        if (!at) fail_msg("no %s in %s", of[i].from, table);
        sprintf(forged, "%.*s%s%s", (int)(at - text), text, of[i].to, at + strlen(of[i].from));
        forge(path, forged, "", "");
        err_t rc = manifest_read(&m, dir);
        if (rc != (of[i].says ? ERR_DATA : ERR_OK) || (of[i].says && !strstr(err_last()->text, of[i].says)))
            fail_msg("%s as %s: %d, %s", of[i].from, of[i].to, rc, rc ? err_last()->text : "believed");
        if (!of[i].says) assert_true(m.rows.parts == 2 && m.rows.rows == 60 && m.rows.part[1].rows == 25);
        manifest_close(&m);
    }
    free(text), free(forged);
    drop_world(t.first);
}

// Without optimizer state nothing in the manifest repeats its names and shapes: they are held against the file.
static void test_forged_masters(void **state) {
    world *w = *state;
    static const char *const changes[][3] = {
        {"\"name\": \"w\"", "\"name\": \"x\"", "tensor x is missing"},
        {"3,\n    5", "5,\n    3", "tensor w has another"},
        {"3,\n    5", "15", "tensor w has another"},
        {"\"hash\": \"", "\"hash\": \"0000000000000000\", \"x\": \"", "hash is"},
    };
    char path[IO_PATH], dir[IO_PATH], hash[17], state_hash[17];
    size_t n;
    w->s.groups = 1;
    save_step(w, 1, 1);
    path_of(dir, w, 1, "");
    path_of(path, w, 1, "manifest.json");
    char *text = slurp(path, &n);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        forge(path, text, changes[i][0], changes[i][1]);
        FAILS(ckpt_hash_dir(dir, hash, state_hash), ERR_DATA, changes[i][2]);
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CHUNKY(test_round_trip),
        TEST(test_counters),
        TEST(test_files),
        TEST(test_peek),
        TEST(test_inference),
        CHUNKY(test_hash_value),
        CHUNKY(test_hash_sees_everything),
        TEST(test_prune),
        TEST(test_prune_in_bad_steps),
        TEST(test_proven),
        TEST(test_origin),
        TEST(test_strangers_stay),
        TEST(test_clean),
        TEST(test_unsaveable),
        TEST(test_every_byte),
        TEST(test_other_lengths),
        TEST(test_foreign_files),
        TEST(test_all_damaged),
        TEST(test_unreadable),
        TEST(test_no_descriptors),
        TEST(test_forged_manifests),
        TEST(test_forged_rows),
        TEST(test_forged_masters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
