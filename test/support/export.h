// test/support/export.h: a short run, and what `lockstep export` makes of it.
#ifndef TEST_SUPPORT_EXPORT_H
#define TEST_SUPPORT_EXPORT_H

#include "test/support/foreign.h"
#include "test/support/train.h"
#include "trainer/verbs.h"

static const char short_run[] =
    "[data]\ntrain = " FAMILIES "tokens.bin\nval =\nformat = raw16\n[run]\nsteps = 1\n[optimizer]\nlr = 0\n"
    "[batch]\nglobal = 2\nmicro = 2\n[device]\nthreads = 1\n[sample]\ntokens = 0\n";

typedef struct rig {
    char *dir, from[600], run[600], to[600];
    config c;
} rig;

static inline void rig_open(rig *r) {
    r->dir = make_dir();
    snprintf(r->from, sizeof r->from, "%s/from", r->dir);
    snprintf(r->to, sizeof r->to, "%s/to", r->dir);
}

static inline void rig_train(rig *r, const char *text, const char *more) {
    load_config(&r->c, r->dir, text, more);
    OK(train(&r->c, r->dir));
    snprintf(r->run, sizeof r->run, "%s/%s", r->c.run.dir, r->c.run.name);
}

static inline void rig_close(rig *r) { drop_dir(r->dir); }

// lockstep export FROM TO [OPTION VALUE]...; what it printed is in said.
static inline void export(const char *from, const char *to, const char *const *options, char said[1024]) {
    char *argv[8] = {(char *)from, (char *)to}, *text = NULL;
    int argc = 2;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    for (; options && *options; options++) argv[argc++] = (char *)*options;
    OK(verb_export(argc, argv, out));
    fclose(out);
    if (said) snprintf(said, 1024, "%s", text);
    free(text);
}
#define EXPORT(from, to, said, ...) export(from, to, (const char *const[]){__VA_ARGS__, NULL}, said)

static inline bool is_there(const char *directory, const char *more) {
    char path[1024];
    snprintf(path, sizeof path, "%s%s", directory, more);
    return access(path, F_OK) == 0;
}

// Whether two exports have the same weights.
static inline bool same_file(const char *a, const char *b) {
    char path[2][1024], *text[2];
    size_t n[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/model.safetensors", i ? b : a);
        OK(io_read_file(path[i], 1 << 24, &text[i], &n[i]));
    }
    bool same = n[0] == n[1] && memcmp(text[0], text[1], n[0]) == 0;
    free(text[0]), free(text[1]);
    return same;
}

#endif
