// data/text/stories.c: see data/text/stories.h.
#include "data/text/stories.h"

#include "base/fmath.h"
#include "base/philox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct stories {
    grammar *g;
    uint64_t seed, story;  // story: number of the next one
    uint32_t choice;       // number of the next choice in this story
    double surprise;
    bytes text;  // of the story that is being read; bytes before `at` are
    int64_t at;
};

static bool read_number(const char **at, int64_t least, int64_t most, int64_t *n) {
    char *end;
    if (**at < '0' || **at > '9') return false;
    errno = 0;
    long long value = strtoll(*at, &end, 10);
    *n = value;
    *at = end;
    return errno == 0 && value >= least && value <= most;
}

err_t stories_parse(const char *text, bool *is, uint64_t *seed, int64_t *size) {
    static const char prefix[] = "stories:";
    const char *at = text + sizeof prefix - 1;
    int64_t number = 0;
    *is = strncmp(text, prefix, sizeof prefix - 1) == 0;
    *size = STORIES_BYTES;
    if (!*is) return ERR_OK;
    bool good = read_number(&at, 0, INT64_MAX, &number);
    if (good && *at == ':') at++, good = read_number(&at, 1, INT64_C(1000000000000000), size);
    *seed = (uint64_t)number;
    if (good && !*at) return ERR_OK;
    return err_set(
        ERR_CONFIG,
        "\"%s\": expected stories:SEED or stories:SEED:BYTES, such as stories:1:2000000; a file of that name is ./%s",
        text, text);
}

err_t stories_open(stories **out, uint64_t seed) {
    stories *s = *out = calloc(1, sizeof *s);
    if (!s) return err_set(ERR_INTERNAL, "no memory for stories");
    s->seed = seed;
    err_t rc = grammar_open(&s->g, story_rules, story_rule_count);
    if (rc != ERR_OK) stories_close(s), *out = NULL;
    return rc;
}

void stories_close(stories *s) {
    if (!s) return;
    grammar_close(s->g);
    free(s->text.at);
    free(s);
}

// Even among n, to n / 2^64.
static err_t pick(void *ctx, int n, int *choice) {
    stories *s = ctx;
    uint32_t r[4];
    philox4x32(r, s->seed, s->choice++, SITE_STORIES, (uint32_t)s->story, (uint32_t)(s->story >> 32));
    *choice = (int)((r[0] | (uint64_t)r[1] << 32) % (uint64_t)n);
    s->surprise += fm_log(n);
    return ERR_OK;
}

err_t stories_next(stories *s, bytes *to) {
    s->choice = 0;
    TRY(grammar_tell(s->g, pick, s, to));
    s->story++;
    return ERR_OK;
}

err_t stories_read(stories *s, uint8_t *out, int64_t n) {
    while (n > 0) {
        int64_t left = s->text.n - s->at, some = n < left ? n : left;
        if (left == 0) {
            s->text.n = s->at = 0;
            TRY(stories_next(s, &s->text));
            continue;
        }
        memcpy(out, s->text.at + s->at, (size_t)some);
        s->at += some, out += some, n -= some;
    }
    return ERR_OK;
}

double stories_surprise(const stories *s) { return s->surprise; }
double stories_best(const stories *s) { return grammar_average(s->g).nats / grammar_average(s->g).bytes; }
double stories_best_story(const stories *s) { return grammar_average(s->g).nats; }
