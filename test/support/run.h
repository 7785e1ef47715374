// test/support/run.h: what tests of whole runs share: a temporary directory, an INI in it, a small text to train on.
#ifndef TEST_SUPPORT_RUN_H
#define TEST_SUPPORT_RUN_H

#include "base/io.h"
#include "trainer/session/evaluate.h"
#include "trainer/session/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define OK(call) \
    do { \
        err_t ok_ = (call); \
        if (ok_ != ERR_OK) fail_msg("%s: %d: %s", #call, ok_, err_last()->text); \
    } while (0)

// The beginning of a small run's settings: a GPT on raw tokens, and its batch.
#define SMALL_GPT(layers, heads, embed, context, vocab) \
    "[data]\nformat = raw16\n[model]\nlayers = " #layers "\nheads = " #heads "\nembed = " #embed \
    "\ncontext = " #context "\nvocab = " #vocab "\n"
#define SMALL_BATCH(global, micro, lanes) "[batch]\nglobal = " #global "\nmicro = " #micro "\nlanes = " #lanes "\n"

static inline char *make_dir(void) {
    const char *base = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/lockstep-test-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(path));
    return strdup(path);
}

static inline void drop_dir(char *dir) {
    OK(io_remove_tree(dir));
    free(dir);
}

static inline void write_text(const char *dir, const char *name, const char *text) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    OK(io_write_file(path, text, strlen(text), NULL));
}

// Three layers, later ones override: the run directory and data of `dir`, then `text`, then `more`.
static inline void load_config(config *c, const char *dir, const char *text, const char *more) {
    char layer[3][1024], paths[4096];
    snprintf(paths, sizeof paths, "[run]\ndir = %s/runs\n[data]\ntrain = %s/text.bin\nval = %s/val.bin\n", dir, dir,
             dir);
    const char *texts[] = {paths, text, more}, *files[3];
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "layer%d.ini", i);
        write_text(dir, name, texts[i]);
        snprintf(layer[i], sizeof layer[i], "%s/%s", dir, name);
        files[i] = layer[i];
    }
    OK(config_load(c, files, 3));
}

// Raw16 bytes of a text with structure: a counting rhyme, different on every line.
static inline void write_tokens(const char *dir, const char *name, int n) {
    char path[1024], line[64];
    uint16_t *t = malloc((size_t)n * 2);
    assert_non_null(t);
    for (int i = 0, k = 0; i < n; k++) {
        int length = snprintf(line, sizeof line, "%d bottles and %x walls;\n", k * 7 % 1000, k * 13);
        for (int j = 0; j < length && i < n; j++) t[i++] = (unsigned char)line[j];
    }
    snprintf(path, sizeof path, "%s/%s", dir, name);
    OK(io_write_file(path, t, (size_t)n * 2, NULL));
    free(t);
}

// A directory with texts to train on and to evaluate.
static inline char *data_dir(void) {
    char *dir = make_dir();
    write_tokens(dir, "text.bin", 6000);
    write_tokens(dir, "val.bin", 1500);
    return dir;
}

// The mean loss of the validation data, and over how many samples.
static inline err_t eval_loss(session *x, int64_t batches, double *loss, int64_t *samples) {
    evaluation e = {0};
    err_t rc = evaluate(&x->evaluator, x->val, batches, &e);
    *loss = e.loss;
    *samples = e.samples;
    return rc;
}

#endif
