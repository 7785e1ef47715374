// test/test_checkpoint_fit.c: from which checkpoints a run may go on: of other settings, of another optimizer, of older
// builds, of other devices. What fits is read to the bit, and what does not fit is refused by name.
#include "gpu/revision.h"
#include "model/safetensors.h"
#include "test/support/fake_device.h"
#include "test/support/forge.h"

#include <jansson.h>

// --- does it fit -----------------------------------------------------------------------------------------------------

// A checkpoint of a build for which `warmup = 0` meant none.
static void test_no_warmup(void **state) {
    world *w = *state;
    complaints c;
    ckpt_state keep = w->s;
    add_key(&w->s, "schedule.warmup", "0");
    save_step(w, 1, 5);
    w->s = keep;
    add_key(&w->s, "schedule.warmup", "-1");
    OK(resume(w, &c));
    strcpy(w->s.key[w->s.keys - 1].value, "10");
    FAILS(resume(w, &c), ERR_CONFIG, "schedule.warmup", "-1", "10");
}

// A key that nobody set takes the checkpoint's value, also into the next checkpoint; one that was set must agree, and
// all that don't are named at once.
static void test_open_keys(void **state) {
    world *w = *state;
    complaints c;
    add_key(&w->s, "schedule.decay_steps", "40");
    add_key(&w->s, "schedule.warmup", "4");
    save_step(w, 1, 5);
    ckpt_key *decay = &w->s.key[w->s.keys - 2], *warmup = &w->s.key[w->s.keys - 1];
    strcpy(decay->value, "60"), strcpy(warmup->value, "6");
    FAILS(resume(w, &c), ERR_CONFIG, "2 settings", "schedule.decay_steps is 40 in the checkpoint and 60 now",
          "schedule.warmup is 4 in the checkpoint and 6 now");
    decay->open = true;
    FAILS(resume(w, &c), ERR_CONFIG, "schedule.warmup is 4 in the checkpoint and 6 now, and the bits depend on it");
    assert_string_equal(decay->value, "60");
    warmup->open = true;
    OK(resume(w, &c));
    assert_true(decay->adopted && warmup->adopted);
    assert_string_equal(decay->value, "40");
    assert_string_equal(warmup->value, "4");
    save_step(w, 2, 5);
    decay->open = warmup->open = false;
    OK(resume(w, &c));
    assert_false(decay->adopted || warmup->adopted);
}

// An optimizer of one array, and one of three: what it keeps is saved under its own names, and is refused under any
// others.
static void test_groups(void **state) {
    world *w = *state, *same = make_world(w->dir, 5);
    ckpt_state adam = w->s, keep;
    ckpt_tensor third[PARAMS];
    char path[IO_PATH], hash[17], state_hash[2][17], expected[17];
    st_file f;
    w->s.groups = 2, w->s.group[1].name = "momentum";
    save_step(w, 1, 5);
    keep = w->s;
    path_of(path, w, 1, "optimizer.safetensors");
    OK(st_open(&f, path));
    assert_int_equal(f.count, PARAMS);
    assert_non_null(st_find(&f, "momentum/b.bias"));
    st_close(&f);
    path_of(path, w, 1, "");
    OK(ckpt_hash_dir(path, hash, state_hash[0]));
    OK(ckpt_state_hash(&w->s, &w->at, expected));
    assert_string_equal(state_hash[0], expected);
    scramble(w);
    OK(ckpt_load(path, &w->s, &w->at, false));
    fill(same, 1, 0);
    assert_true(group_equal(w->master, same->master) && group_equal(w->m, same->m) && !group_equal(w->v, same->v));
    w->s = adam, w->s.group[1].name = "m";
    FAILS(ckpt_load(path, &w->s, &w->at, false), ERR_CONFIG, "no optimizer state of this optimizer", "init_from");
    w->s = keep, w->s.group[1].name = "m";
    FAILS(ckpt_load(path, &w->s, &w->at, false), ERR_CONFIG, "no optimizer state of this optimizer");
    make_group(third, 5);
    fill_group(third, 99);
    w->s = adam, w->s.groups = 4, w->s.group[3] = (ckpt_group){"third", third};
    save_step(w, 2, 5);
    path_of(path, w, 2, "");
    OK(ckpt_hash_dir(path, hash, state_hash[0]));
    w->s.groups = 3;
    OK(ckpt_state_hash(&w->s, &w->at, state_hash[1]));
    assert_string_not_equal(state_hash[0], state_hash[1]);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"", "sixteen.letters.", "m"};
        static const char *const says[] = {"named \"\"", "1 to 15 letters", "tensor m/w"};
        w->s.group[2].name = names[i];
        FAILS(ckpt_save(w->dir, &w->s, &w->at, 5, NULL), ERR_INTERNAL, says[i]);
    }
    holds(w, "step-00000001 step-00000002 ");
    for (int i = 0; i < PARAMS; i++) free(third[i].data);
    drop_world(same);
}

// However many groups there are, and in whichever order a build names them: each is loaded from that of its name.
static void test_names(void **state) {
    enum { MANY = 9 };
    static const char *const names[MANY] = {"", "m", "v", "buf", "slow", "row", "column", "residual", "mean"};
    world *w = *state;
    ckpt_tensor tensor[MANY][PARAMS], was[MANY][PARAMS];
    ckpt_group group[MANY];
    char path[IO_PATH], hash[17], state_hash[17], now[17];
    for (int g = 0; g < MANY; g++) {
        make_group(tensor[g], 5), make_group(was[g], 5);
        fill_group(tensor[g], 10 + (uint32_t)g), fill_group(was[g], 10 + (uint32_t)g);
        group[g] = (ckpt_group){names[g], tensor[g]};
    }
    w->s.groups = MANY, w->s.group = group;
    save_step(w, 1, 5);
    OK(ckpt_state_hash(&w->s, &w->at, now));
    path_of(path, w, 1, "");
    OK(ckpt_hash_dir(path, hash, state_hash));
    assert_string_equal(state_hash, now);
    for (int g = 0; g < MANY; g++) fill_group(tensor[g], 1);
    for (int g = 1; g < MANY; g++) group[g] = (ckpt_group){names[MANY - g], tensor[MANY - g]};
    OK(ckpt_load(path, &w->s, &w->at, false));
    for (int g = 0; g < MANY; g++)
        if (!group_equal(tensor[g], was[g])) fail_msg("group %s is not as it was saved", names[g]);
    group[MANY - 1].name = "max";
    FAILS(ckpt_load(path, &w->s, &w->at, false), ERR_CONFIG, "no optimizer state of this optimizer");
    group[MANY - 1].name = names[1], w->s.groups = MANY - 1;
    FAILS(ckpt_load(path, &w->s, &w->at, false), ERR_CONFIG, "no optimizer state of this optimizer");
    for (int g = 0; g < MANY; g++)
        for (int i = 0; i < PARAMS; i++) free(tensor[g][i].data), free(was[g][i].data);
}

// Scalars come back to the bit, count in state_hash with name and value, and are refused under any other name; a forged
// manifest does not make the reader go wrong.
static void test_scalars(void **state) {
    world *w = *state;
    static const char *const changes[][3] = {
        {"\"mean\": 0.10000000000000001", "\"mean\": \"0.1\"", "member \"scalars\""},
        {"\"mean\": 0.10000000000000001", "\"mean\": 0.25", "state_hash is"},
        {"\"mean\"", "\"mode\"", "state_hash is"},
        {"\"mean\"", "\"\"", "member \"scalars\""},
        {"\"mean\"", "\"sixteen.letters.\"", "member \"scalars\""},
        {"\"scalars\": {", "\"scalars\": 3, \"x\": {", "member \"scalars\""},
    };
    double is[3] = {0.1, -0.0, 0x1.fffffffffffffp-1030}, was[3];
    ckpt_scalar scalar[] = {{"mean", &is[0]}, {"zero", &is[1]}, {"small", &is[2]}};
    char dir[IO_PATH], path[IO_PATH], hash[17], state_hash[17], now[17];
    size_t n;
    w->s.scalars = 3, w->s.scalar = scalar;
    memcpy(was, is, sizeof was);
    save_step(w, 1, 5);
    path_of(dir, w, 1, ""), path_of(path, w, 1, "manifest.json");
    OK(ckpt_hash_dir(dir, hash, state_hash));
    OK(ckpt_state_hash(&w->s, &w->at, now));
    assert_string_equal(state_hash, now);
    memset(is, 0x5a, sizeof is);
    OK(ckpt_load(dir, &w->s, &w->at, false));
    assert_memory_equal(is, was, sizeof is);
    for (int k = 0; k < 4; k++) {
        if (k < 3) is[k] += 1;
        else scalar[2].name = "tiny";
        OK(ckpt_state_hash(&w->s, &w->at, now));
        assert_string_not_equal(state_hash, now);
        strcpy(state_hash, now);
    }
    FAILS(ckpt_load(dir, &w->s, &w->at, false), ERR_CONFIG, "no optimizer state of this optimizer");
    w->s.scalars = 2;
    FAILS(ckpt_load(dir, &w->s, &w->at, false), ERR_CONFIG, "no optimizer state of this optimizer");
    w->s.groups = 1;  // an optimizer without arrays
    FAILS(ckpt_load(dir, &w->s, &w->at, false), ERR_CONFIG, "no optimizer state of this optimizer");
    is[0] = 0.25, is[1] = 3;
    OK(ckpt_state_hash(&w->s, &w->at, now));
    assert_string_equal(now, "66c7354bebdcf3cc");  // as they enter it (digest.h): recorded once
    w->s.scalars = 0;
    OK(ckpt_load(dir, &w->s, &w->at, false));  // the masters alone
    w->s.groups = 3, w->s.scalars = 2;
    scalar[1].name = "mean";
    FAILS(ckpt_save(w->dir, &w->s, &w->at, 5, NULL), ERR_INTERNAL, "a scalar named \"mean\"");
    scalar[1].name = "sixteen.letters.";
    FAILS(ckpt_save(w->dir, &w->s, &w->at, 5, NULL), ERR_INTERNAL, "1 to 15 letters");
    w->s.scalars = 1, is[0] = NAN;
    FAILS(ckpt_save(w->dir, &w->s, &w->at, 5, NULL), ERR_INTERNAL, "a finite number");
    char *text = slurp(path, &n);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        forge(path, text, changes[i][0], changes[i][1]);
        FAILS(ckpt_hash_dir(dir, hash, state_hash), ERR_DATA, changes[i][2]);
    }
    free(text);
}

static void test_mismatches(void **state) {
    world *w = *state;
    complaints c;
    char path[IO_PATH];
    save_step(w, 1, 5);
    save_step(w, 2, 5);
    ckpt_state keep = w->s;
    strcpy(w->s.key[0].value, "12");
    FAILS(resume(w, &c), ERR_CONFIG, "step-00000002", "batch.global", "24", "12", "[run] name");
    assert_int_equal(c.count, 0);  // it is not damaged, and the one before is not tried
    w->s = keep;
    w->s.keys--;
    FAILS(resume(w, &c), ERR_CONFIG, "optimizer.lr", "test-1");
    w->s = keep;
    add_key(&w->s, "model.new", "x");
    strcpy(w->s.key[w->s.keys - 1].usual, "old");  // what builds did that did not know it
    FAILS(resume(w, &c), ERR_CONFIG, "model.new = x", "test-1", "what old means");
    strcpy(w->s.key[w->s.keys - 1].value, "old");
    OK(resume(w, &c));
    w->s = keep;
    strcpy(w->s.data_hash, "fedcba9876543210");
    FAILS(resume(w, &c), ERR_CONFIG, "0123456789abcdef", "fedcba9876543210", "[data] train");
    path_of(path, w, 2, "");
    OK(ckpt_load(path, &w->s, &w->at, true));
    w->s.data_hash[0] = 0;  // no dataset is open: nothing to compare
    OK(resume(w, &c));
    w->s = keep;
    w->master[0].size[0] = 5, w->master[0].size[1] = 3;
    FAILS(resume(w, &c), ERR_CONFIG, "tensor w", "(3,5)", "(5,3)", "[model]");
    FAILS(ckpt_load(path, &w->s, &w->at, true), ERR_CONFIG, "tensor w", "(3,5)", "(5,3)");
    w->master[0].size[0] = 3, w->master[0].size[1] = 5;
    strcpy(w->master[1].name, "c.bias");
    FAILS(resume(w, &c), ERR_CONFIG, "b.bias", "c.bias");
    strcpy(w->master[1].name, "b.bias");
    w->s.params = 2;
    FAILS(resume(w, &c), ERR_CONFIG, "absent");
    w->s = keep;
    OK(resume(w, &c));
}

// --- as it was -------------------------------------------------------------------------------------------------------

// With its digest.
static void spill_json(const char *path, const json_t *then) {
    char *old = json_dumps(then, JSON_INDENT(1)), *end = strrchr(old, '\n'), *whole = calloc(1, strlen(old) + 200),
         hex[65];
    unsigned char d[32];
    crypto_generichash(d, sizeof d, (unsigned char *)old, (size_t)(end - old), NULL, 0);
    sprintf(whole, "%.*s,\n \"digest\": \"%s\"\n}\n", (int)(end - old), old,
            sodium_bin2hex(hex, sizeof hex, d, sizeof d));
    spill(path, whole, strlen(whole));
    free(whole), free(old);
}

// The manifest of version 1: one rank, files without rank and host, tensors with "file" in the place of parts.
static void write_version_1(const char *path) {
    size_t n;
    char *text = slurp(path, &n);
    json_t *now = json_loadb(text, n, 0, NULL), *then = json_object(), *value;
    const char *key;
    json_object_foreach(now, key, value) if (strcmp(key, "world") != 0 && strcmp(key, "device") != 0 &&
                                             strcmp(key, "digest") != 0) json_object_set(then, key, value);
    json_object_set_new(then, "version", json_integer(1));
    for (size_t i = 0; i < json_array_size(json_object_get(then, "files")); i++) {
        json_t *file = json_array_get(json_object_get(then, "files"), i);
        assert_int_equal(json_object_del(file, "rank"), 0);
        assert_int_equal(json_object_del(file, "host"), 0);
    }
    for (size_t i = 0; i < json_array_size(json_object_get(then, "tensors")); i++) {
        json_t *tensor = json_array_get(json_object_get(then, "tensors"), i);
        json_object_set(tensor, "file", json_object_get(json_array_get(json_object_get(tensor, "parts"), 0), "file"));
        assert_int_equal(json_object_del(tensor, "parts"), 0);
    }
    spill_json(path, then);
    free(text);
    json_decref(now), json_decref(then);
}

// The manifest of version 2: of what it was computed on it knew the kind, as one of the bits keys.
static void write_version_2(const char *path, const char *kind) {
    size_t n;
    char *text = slurp(path, &n);
    json_t *then = json_loadb(text, n, 0, NULL), *keys = json_object(), *value;
    const char *key;
    json_object_del(then, "device"), json_object_del(then, "digest");
    json_object_set_new(then, "version", json_integer(2));
    json_object_set_new(keys, "device.kind", json_string(kind));  // in front: its place must not matter
    json_object_foreach(json_object_get(then, "bits"), key, value) json_object_set(keys, key, value);
    json_object_set_new(then, "bits", keys);
    spill_json(path, then);
    free(text);
    json_decref(then);
}

static void test_version_1(void **state) {
    two t = two_steps(state);
    static const char *const changes[][2] = {
        {"\"file\": \"model.", "\"file\": \"optimizer."},
        {"\"file\": \"model.safetensors\"", "\"file\": \"other\""},
        {"3,\n    5", "5,\n    3"},
        {"\"name\": \"model.safetensors\"", "\"name\": \"model-00000-of-00001.safetensors\""},
        {"\"blake2b\": \"", "\"blake2b\": \"00"},
    };
    char path[IO_PATH], dir[IO_PATH], hash[17], state_hash[17], expected[17];
    complaints c;
    path_of(path, t.w, 2, "manifest.json");
    path_of(dir, t.w, 2, "");
    write_version_1(path);
    world *same = make_world("", 5);
    fill(same, 2, 0);
    resumes_as(t.w, same, &c);
    assert_int_equal(c.count, 0);
    OK(ckpt_hash_dir(dir, hash, state_hash));
    ckpt_state_hash(&same->s, &same->at, expected);
    assert_string_equal(state_hash, expected);
    size_t n;
    char *text = slurp(path, &n);
    assert_null(strstr(text, "parts"));
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        forge(path, text, changes[i][0], changes[i][1]);
        resumes_as(t.w, t.first, &c);
        if (c.count != 1 || !strstr(c.last, "step-00000002"))
            fail_msg("%s as %s was believed", changes[i][0], changes[i][1]);
    }
    free(text);
    drop_world(same), drop_world(t.first);
}

static void test_version_2(void **state) {
    world *w = *state, *same = make_world("", 5);
    char path[IO_PATH];
    complaints c;
    fake_device gpu = fake_open("cuda sm_90 132 SMs cuBLASLt 13.1.0"), cpu = fake_open("cpu");
    static const char *const kinds[] = {"cpu", "cuda"};
    for (int k = 0; k < 2; k++) {
        w->s.dev = NULL;
        save_step(w, 1, 5);
        fill(same, 1, 0);
        path_of(path, w, 1, "manifest.json");
        write_version_2(path, kinds[k]);
        resumes_as(w, same, &c);  // nothing to compare with
        w->s.dev = k ? &gpu.head : &cpu.head;
        resumes_as(w, same, &c);
        assert_int_equal(c.count, 0);
        w->s.dev = k ? &cpu.head : &gpu.head;
        FAILS(resume(w, &c), ERR_CONFIG, k ? "\"cuda\"" : "\"cpu\"", k ? "\"cpu\"" : "132 SMs", "match = no");
    }
    w->s.dev = NULL;
    w->s.keys--;
    FAILS(resume(w, &c), ERR_CONFIG, "optimizer.lr");  // the other keys are compared as ever
    drop_world(same);
}

// --- what it was computed on -----------------------------------------------------------------------------------------

static void test_device(void **state) {
    world *w = *state;
    char path[IO_PATH], hash[17], state_hash[17], again[17];
    complaints c;
    fake_device gpu = fake_open("cuda sm_90 132 SMs cuBLASLt 13.1.0"),
                other = fake_open("cuda sm_90 78 SMs cuBLASLt 13.1.0"), cpu = fake_open("cpu");
    strcpy(gpu.plan[0], "first: 00 \"\\"), strcpy(gpu.plan[1], "");
    memset(gpu.plan[2], 'p', DEVICE_PLAN - 1);
    gpu.plans = 3;
    w->s.dev = &gpu.head;
    save_step(w, 1, 5);
    path_of(path, w, 1, "");
    OK(ckpt_hash_dir(path, hash, state_hash));
    fake_device fresh = fake_open(gpu.arithmetic);
    w->s.dev = &fresh.head;
    OK(resume(w, &c));
    assert_int_equal(fresh.plans, 3);
    assert_memory_equal(fresh.plan, gpu.plan, sizeof gpu.plan);
    assert_string_equal(w->s.other, "");
    fresh.plans = 0, fresh.refuses = "ppp";
    w->at.step = 77;
    FAILS(resume(w, &c), ERR_CONFIG, "step-00000001", "plan 3 of 3", "refused: pppp");
    assert_int_equal(w->at.step, 77);
    fresh.plans = 0;
    w->s.any_device = true;
    OK(resume(w, &c));
    assert_string_equal(w->s.other, "cuda sm_90 132 SMs cuBLASLt 13.1.0 (not all of its plans can be used)");
    assert_int_equal(fresh.plans, 2);
    w->s.any_device = false;
    w->s.dev = &other.head;
    FAILS(resume(w, &c), ERR_CONFIG, "132 SMs", "78 SMs", "[device] match = no");
    assert_int_equal(c.count, 0);
    OK(ckpt_load(path, &w->s, &w->at, true));
    assert_int_equal(other.plans, 0);
    w->s.any_device = true;
    OK(resume(w, &c));
    assert_string_equal(w->s.other, "cuda sm_90 132 SMs cuBLASLt 13.1.0");
    assert_int_equal(other.plans, 0);  // they are of another device
    w->s.dev = &cpu.head;
    OK(resume(w, &c));
    assert_string_equal(w->s.other, "cuda sm_90 132 SMs cuBLASLt 13.1.0");
    fresh.plans = 0, fresh.refuses = NULL;
    w->s.dev = &fresh.head;
    OK(resume(w, &c));  // of the same: the bits are the same, and there is nothing to report
    assert_int_equal(fresh.plans, 3);
    assert_string_equal(w->s.other, "");
    w->s.dev = &cpu.head;
    save_step(w, 1, 5);
    OK(ckpt_hash_dir(path, again, state_hash));
    assert_string_equal(again, hash);  // of the weights
    w->s.any_device = false;
    OK(resume(w, &c));
    w->s.dev = NULL;
    OK(resume(w, &c));
    w->s.dev = &gpu.head;
    FAILS(resume(w, &c), ERR_CONFIG, "\"cpu\"", "132 SMs");
}

// --- which bits ------------------------------------------------------------------------------------------------------

// The newest manifest as a build wrote it that did not record its revision; `plans`: with the key that came
// shortly before 16 bits changed.
static void make_old(const char *path, const char *build, const char *compute, bool plans, int64_t revision) {
    size_t n;
    char *text = slurp(path, &n);
    json_t *then = json_loadb(text, n, 0, NULL), *keys = json_object_get(then, "bits"),
           *device = json_object_get(then, "device");
    json_object_del(then, "digest"), json_object_del(then, "sources"), json_object_del(device, "revision");
    json_object_set_new(then, "build", json_string(build));
    json_object_set_new(keys, "precision.compute", json_string(compute));
    if (plans) json_object_set_new(keys, "device.plans", json_string(""));
    else json_object_del(keys, "device.plans");
    if (revision) json_object_set_new(device, "revision", json_integer(revision));
    spill_json(path, then);
    free(text);
    json_decref(then);
}

static void test_revisions(void **state) {
    world *w = *state;
    static const struct {
        const char *device, *build, *compute;
        bool plans;
        int64_t recorded, revision;
    } rows[] = {
        {"cpu", "0.1.0 b86639b", "fp32", false, 0, 1},        {"cpu", "0.1.0 b86639b", "bf16", false, 0, 1},
        {"cpu", "0.1.0 b86639b", "fp16", false, 0, 1},        {"cpu", "unknown", "bf16", false, 0, 1},
        {"cpu", "0.1.0 e3f1396", "bf16", true, 0, 1},         {"cpu", "0.1.0 1ca4eb2-dirty", "fp16", true, 0, 1},
        {"cpu", "0.1.0 7eca9e8", "bf16", true, 0, 2},         {"cpu", "0.1.0 b550c6f", "fp16", true, 0, 2},
        {"cpu", "0.1.0 b550c6f", "fp32", true, 0, 1},         {"cpu", "0.1.0 b550c6f", "bf16", true, 1, 1},
        {"cpu", "0.1.0 b550c6f", "bf16", true, 2, 2},         {"cpu", "0.1.0 f00f00f", "fp32", true, 7, 7},
        {"cuda sm_90", "0.1.0 b86639b", "fp32", false, 0, 1}, {"cuda sm_90", "0.1.0 7eca9e8", "bf16", true, 0, 1},
        {"cuda sm_90", "0.1.0 b550c6f", "fp32", true, 0, 2},  {"cpu", "0.1.0 761a6ff", "bf16-pairs", true, 1, 1},
        {"cpu", "0.1.0 f00f00f", "bf16-pairs", true, 7, 7},
    };
    char path[IO_PATH], dir[IO_PATH], then[64], here[64];
    complaints c;
    path_of(path, w, 1, "manifest.json");
    path_of(dir, w, 1, "");
    strcpy(w->s.key[w->s.keys].key, "precision.compute");
    strcpy(w->s.key[w->s.keys + 1].key, "device.plans");
    strcpy(w->s.key[w->s.keys + 2].key, "precision.products");
    w->s.keys += 3;
    strcpy(w->s.sources, "0123456789abcdef");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fake_device dev = fake_open(rows[i].device);
        bool cuda = strcmp(rows[i].device, "cpu") != 0, pairs = strcmp(rows[i].compute, "bf16-pairs") == 0;
        const char *compute = pairs ? "bf16" : rows[i].compute;
        dtype type = strcmp(compute, "fp32") == 0 ? FP32 : strcmp(compute, "bf16") == 0 ? BF16 : FP16;
        int now =
            arithmetic_revision(cuda ? DEVICE_CUDA : DEVICE_CPU, type, pairs ? PRODUCTS_BF16_PAIRS : PRODUCTS_FP32);
        strcpy(w->s.key[w->s.keys - 3].value, compute);
        strcpy(w->s.key[w->s.keys - 1].value, pairs ? "bf16-pairs" : "fp32");
        w->s.dev = &dev.head;
        w->s.any_bits = false;
        save_step(w, 1, 5);
        OK(resume(w, &c));
        assert_string_equal(w->s.other_build, "");
        make_old(path, rows[i].build, compute, rows[i].plans, rows[i].recorded);
        if (rows[i].revision != now) {
            snprintf(then, sizeof then, "revision %d of the arithmetic of %s on %s", (int)rows[i].revision,
                     rows[i].compute, cuda ? "cuda" : "cpu");
            snprintf(here, sizeof here, "has revision %d", now);
            FAILS(resume(w, &c), ERR_CONFIG, then, rows[i].build, here, "resume = other-bits");
            if (!strstr(err_last()->text, "did not record") != (rows[i].recorded != 0))
                fail_msg("%s", err_last()->text);
            OK(ckpt_load(dir, &w->s, &w->at, true));  // to look at it, any will do
            w->s.any_bits = true;
        }
        OK(resume(w, &c));
        assert_int_equal(c.count, 0);
        assert_int_equal(w->s.other_bits[0] != 0, rows[i].revision != now);
        assert_non_null(strstr(w->s.other_build, rows[i].build));
    }
    make_old(path, "0.1.0 b550c6f", "fp32", true, -1);
    FAILS(resume(w, &c), ERR_DATA, "\"revision\"", "a whole number");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_groups),    TEST(test_names),     TEST(test_scalars),   TEST(test_mismatches), TEST(test_no_warmup),
        TEST(test_open_keys), TEST(test_version_1), TEST(test_version_2), TEST(test_device),     TEST(test_revisions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
