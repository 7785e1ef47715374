// test/support/foreign.h: directories as others have them: config.json, and weights that lie elsewhere, for what
// test/golden/families/make_configs.py wrote.
#ifndef TEST_SUPPORT_FOREIGN_H
#define TEST_SUPPORT_FOREIGN_H

#include "test/support/run.h"

#include "model/safetensors.h"
#include "trainer/verbs.h"

#include <dirent.h>
#include <jansson.h>
#include <limits.h>

#define FAMILIES "test/golden/families/"

static inline json_t *read_json_file(const char *path) {
    json_error_t why;
    json_t *all = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!all) fail_msg("%s: line %d: %s", path, why.line, why.text);
    return all;
}

// Makes the directory `to` with this config.json and links to all files of weights in FAMILIES/weights.
static inline void foreign_directory(const char *to, const char *weights, const json_t *config) {
    char path[PATH_MAX], from[PATH_MAX], name[1024];
    snprintf(path, sizeof path, "%s%s", FAMILIES, weights);
    assert_non_null(realpath(path, from));
    OK(io_mkdirs(to));
    snprintf(name, sizeof name, "%s/config.json", to);
    assert_int_equal(json_dump_file(config, name, 0), 0);
    DIR *d = opendir(from);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, "model", 5) != 0) continue;
        snprintf(path, sizeof path, "%s/%s", from, e->d_name);
        snprintf(name, sizeof name, "%s/%s", to, e->d_name);
        assert_int_equal(symlink(path, name), 0);
    }
    closedir(d);
}

// The [model] section that `lockstep inspect` prints of weights. The caller frees it.
static inline char *inspected(const char *path) {
    char *text = NULL, *argv[] = {(char *)path};
    size_t n;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    OK(verb_inspect(1, argv, out));
    fclose(out);
    return text;
}

// All elements are 0.5.
static inline void write_tensors(const char *path, st_tensor *table, int count) {
    st_writer w;
    OK(st_create(&w, path, table, count, NULL, NULL));
    for (int i = 0; i < count; i++) {
        float *x = calloc(1, (size_t)table[i].bytes + 1);
        for (int64_t k = 0; k < table[i].bytes / 4; k++) x[k] = 0.5f;
        OK(st_put(&w, x, (size_t)table[i].bytes));
        free(x);
    }
    OK(st_finish(&w, NULL));
}

#endif
