// test/support/checkpoint.h: what the tests of checkpoints share: a small state whose every bit follows from its step,
// a run directory to save it in, and what must hold of both.
#ifndef TEST_SUPPORT_CHECKPOINT_H
#define TEST_SUPPORT_CHECKPOINT_H

#include "base/io.h"
#include "base/philox.h"
#include "trainer/checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

// A test that includes another one with these defined asks the same of compressed files.
#ifndef CKPT_COMPRESS
#define CKPT_COMPRESS 0
#define CKPT_END ""
#endif

enum { PARAMS = 3 };

typedef struct world {
    char dir[256];  // the run's
    ckpt_tensor master[PARAMS], m[PARAMS], v[PARAMS];
    ckpt_group group[4];  // those three, and room for one more
    ckpt_state s;
    run_progress at;
} world;

static inline void make_group(ckpt_tensor *t, int64_t rows) {
    static const char *const names[PARAMS] = {"w", "b.bias", "s"};
    const int64_t sizes[PARAMS][2] = {{3, rows}, {4}, {0}};
    for (int i = 0; i < PARAMS; i++) {
        t[i] = (ckpt_tensor){.dims = 2 - i, .size = {sizes[i][0], sizes[i][1]}};
        strcpy(t[i].name, names[i]);
        t[i].count = i == 0 ? 3 * rows : i == 1 ? 4 : 1;
        t[i].data = calloc((size_t)t[i].count, sizeof(float));
    }
}

static inline void add_key(ckpt_state *s, const char *key, const char *value) {
    strcpy(s->key[s->keys].key, key);
    strcpy(s->key[s->keys++].value, value);
}

// `w` is (3,rows), b.bias (4), s a scalar.
static inline world *make_world(const char *dir, int64_t rows) {
    world *w = calloc(1, sizeof *w);
    strcpy(w->dir, dir);
    make_group(w->master, rows), make_group(w->m, rows), make_group(w->v, rows);
    w->group[0] = (ckpt_group){"", w->master}, w->group[1] = (ckpt_group){"m", w->m};
    w->group[2] = (ckpt_group){"v", w->v};
    w->s = (ckpt_state){
        .params = PARAMS, .groups = 3, .group = w->group, .data_hash = "0123456789abcdef", .build = "test-1"};
    w->s.compress = CKPT_COMPRESS;
    add_key(&w->s, "batch.global", "24");
    add_key(&w->s, "model.type", "gpt");
    add_key(&w->s, "optimizer.lr", "0.001 \"quoted\" \xc3\xa9");
    return w;
}

static inline void drop_world(world *w) {
    for (int i = 0; i < PARAMS; i++) free(w->master[i].data), free(w->m[i].data), free(w->v[i].data);
    free(w);
}

static inline int64_t count_of(const ckpt_tensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->dims; d++) n *= t->size[d];
    return n;
}

// Every bit of the state follows from `step`, NaNs with payloads, infinities and -0 among them.
static inline void fill_group(ckpt_tensor *t, uint32_t key) {
    for (int i = 0; i < PARAMS; i++)
        for (int64_t j = 0; j < count_of(&t[i]); j += 4) {
            uint32_t word[4];
            philox4x32(word, key, (uint32_t)j, 1, (uint32_t)i, 0);
            if (j % 12 == 4) word[0] = 0x80000000, word[1] = 0x7fc00123, word[2] = 0xff800001, word[3] = 0x7f800000;
            memcpy(t[i].data + j, word, 4 * (size_t)(count_of(&t[i]) - j < 4 ? count_of(&t[i]) - j : 4));
        }
}

static inline void fill(world *w, int64_t step, uint32_t salt) {
    uint32_t key = (uint32_t)step * 1000 + salt;
    fill_group(w->master, key), fill_group(w->m, key + 1), fill_group(w->v, key + 2);
    w->at = (run_progress){.step = step,
                           .updates = step - 1,
                           .skipped = 1,
                           .loss_scale = 32768,
                           .good_steps = 7,
                           .best_loss = 1.0 / 3 + salt,
                           .best_step = step,
                           .log_bytes = 1000 * step};
}

static inline void scramble(world *w) {
    fill_group(w->master, 1), fill_group(w->m, 1), fill_group(w->v, 1);
    memset(&w->at, 0x5a, sizeof w->at);
}

static inline bool group_equal(const ckpt_tensor *a, const ckpt_tensor *b) {
    for (int i = 0; i < PARAMS; i++)
        if (memcmp(a[i].data, b[i].data, 4 * (size_t)count_of(&a[i])) != 0) return false;
    return true;
}

static inline bool equal(const world *a, const world *b) {
    return group_equal(a->master, b->master) && group_equal(a->m, b->m) && group_equal(a->v, b->v) &&
           memcmp(&a->at, &b->at, sizeof a->at) == 0;
}

enum { CHUNKY_ROWS = 7000 };  // w: one whole chunk and a part of one

static inline int enter_with(void **state, int64_t rows) {
    const char *base = getenv("TMPDIR");
    char dir[256];
    snprintf(dir, sizeof dir, "%s/ckpt-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(dir)) return -1;
    *state = make_world(dir, rows);
    return 0;
}

static inline int enter(void **state) { return enter_with(state, 5); }
static inline int enter_chunky(void **state) { return enter_with(state, CHUNKY_ROWS); }

static inline int leave(void **state) {
    world *w = *state;
    int rc = io_remove_tree(w->dir) == ERR_OK ? 0 : -1;
    drop_world(w);
    return rc;
}

#define OK(call) \
    do { \
        err_t ok_ = (call); \
        if (ok_ != ERR_OK) fail_msg("%s: %d: %s", #call, ok_, err_last()->text); \
    } while (0)

#define FAILS(call, expected, ...) \
    do { \
        const char *const says_[] = {__VA_ARGS__}; \
        err_t rc_ = (call); \
        if (rc_ != (expected)) fail_msg("%s: %d, expected %d: %s", #call, rc_, expected, rc_ ? err_last()->text : ""); \
        for (size_t i_ = 0; i_ < sizeof says_ / sizeof *says_; i_++) \
            if (!strstr(err_last()->text, says_[i_])) \
                fail_msg("%s: \"%s\" says nothing of %s", #call, err_last()->text, says_[i_]); \
    } while (0)

typedef struct complaints {
    int count;
    char last[ERR_TEXT];
} complaints;

static inline void complain(void *ctx, const err_record *why) {
    complaints *c = ctx;
    c->count++;
    snprintf(c->last, sizeof c->last, "%s", why->text);
}

// The system refuses to open the file, to every user: a link that leads to itself. What it was is kept beside it.
static inline void make_unreadable(const char *path) {
    char kept[IO_PATH + 8];
    snprintf(kept, sizeof kept, "%s.kept", path);
    assert_int_equal(rename(path, kept) | symlink(path, path), 0);
}

static inline void make_readable(const char *path) {
    char kept[IO_PATH + 8];
    snprintf(kept, sizeof kept, "%s.kept", path);
    assert_int_equal(unlink(path) | rename(kept, path), 0);
}

// Resumes into scrambled memory, and compares with `expected`.
static inline void resumes_as(world *w, const world *expected, complaints *c) {
    bool found = false;
    *c = (complaints){0};
    scramble(w);
    OK(ckpt_resume(w->dir, &w->s, &w->at, &found, complain, c));
    assert_true(found);
    if (!equal(w, expected))
        fail_msg("resumed step %" PRId64 ", expected %" PRId64 ", or other bits", w->at.step, expected->at.step);
}

static inline void path_of(char *path, const world *w, int64_t step, const char *file) {
    snprintf(path, IO_PATH, "%s/ckpt/step-%08" PRId64 "%s%s", w->dir, step, *file ? "/" : "", file);
}

// All names in DIR/ckpt, sorted, with a space after each.
static inline void listing(const world *w, char text[1024]) {
    char path[IO_PATH];
    struct dirent **names;
    snprintf(path, sizeof path, "%s/ckpt", w->dir);
    int n = scandir(path, &names, NULL, alphasort);
    text[0] = 0;
    for (int i = 0; i < n; i++) {
        if (strcmp(names[i]->d_name, ".") != 0 && strcmp(names[i]->d_name, "..") != 0) {
            strcat(text, names[i]->d_name);
            strcat(text, " ");
        }
        free(names[i]);
    }
    if (n >= 0) free(names);
}

static inline void holds(const world *w, const char *expected) {
    char text[1024];
    listing(w, text);
    assert_string_equal(text, expected);
}

static inline void save_step(world *w, int64_t step, int keep) {
    fill(w, step, 0);
    OK(ckpt_save(w->dir, &w->s, &w->at, keep, NULL));
}

static inline err_t resume(world *w, complaints *c) {
    bool found;
    *c = (complaints){0};
    return ckpt_resume(w->dir, &w->s, &w->at, &found, complain, c);
}

typedef struct two {
    world *w, *first;
} two;  // steps 1 and 2 are saved, `first` is step 1

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)
#define CHUNKY(f) cmocka_unit_test_setup_teardown(f, enter_chunky, leave)

#endif
