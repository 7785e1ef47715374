// test/support/train.h: a whole run inside the test's process, and the records that it left.
#ifndef TEST_SUPPORT_TRAIN_H
#define TEST_SUPPORT_TRAIN_H

#include "test/support/run.h"
#include "trainer/train.h"

#include <fcntl.h>
#include <jansson.h>

// `lockstep CONFIG.ini` with one rank, and the board that it writes to. What it prints is in DIR/out.
static inline err_t train_on(const config *c, const char *dir, board *b) {
    char path[1024];
    comm_place here = {.host = "localhost"};
    launch at = {.world = 1, .nodes = 1, .locals = 1, .place = &here};
    snprintf(path, sizeof path, "%s/out", dir);
    fflush(stdout);
    int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), kept = dup(STDOUT_FILENO);
    assert_true(out >= 0 && kept >= 0 && dup2(out, STDOUT_FILENO) >= 0);
    err_t rc = train_rank(c, &at, b);
    fflush(stdout);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    close(out);
    close(kept);
    return rc;
}

static inline err_t train(const config *c, const char *dir) {
    board b = {0};
    return train_on(c, dir, &b);
}

// The records of DIR/NAME/FILE, whose "t" is t. A line that is no JSON ends the test.
static inline json_t *read_records(const config *c, const char *file, const char *t) {
    char path[2048], *text, *rest;
    size_t n;
    json_t *all = json_array();
    snprintf(path, sizeof path, "%s/%s/%s", c->run.dir, c->run.name, file);
    OK(io_read_file(path, 1 << 24, &text, &n));
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_error_t why;
        json_t *one = json_loads(line, JSON_REJECT_DUPLICATES, &why);
        if (!one) fail_msg("%s: %s: %.300s", file, why.text, line);
        const char *kind = json_string_value(json_object_get(one, "t"));
        assert_non_null(kind);
        if (strcmp(kind, t) == 0) json_array_append(all, one);
        json_decref(one);
    }
    free(text);
    return all;
}

static inline double real_of(const json_t *record, const char *key) {
    const json_t *value = json_object_get(record, key);
    if (!json_is_number(value)) fail_msg("a record without a number for \"%s\"", key);
    return json_number_value(value);
}

static inline const char *text_of(const json_t *record, const char *key) {
    const char *value = json_string_value(json_object_get(record, key));
    if (!value) fail_msg("a record without a text for \"%s\"", key);
    return value;
}

#endif
