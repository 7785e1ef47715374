// trainer/report/parting.c: see trainer/report/parting.h.
#include "trainer/report/parting.h"

#include "trainer/report/scan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// --- a log, step by step ---------------------------------------------------------------------------------------------

// Of one step: its record, and the one of its checkpoint.
typedef struct logged {
    int64_t step;  // 0: none
    double loss;
    bool has_loss;
    char hash[RUNLOG_WORD];
} logged;

typedef struct steps {
    follower log;
    char *text;
    logged next;  // the first of the step after
} steps;

// A log that is not there has no steps.
static err_t steps_open(steps *s, const char *dir) {
    char path[IO_PATH];
    follow_news news;
    *s = (steps){.log.fd = -1};
    TRY(io_path(path, "%s/log.jsonl", dir));
    s->text = malloc(RUNLOG_CHUNK);
    if (!s->text) return err_set(ERR_INTERNAL, "no memory to compare logs with");
    TRY(follow_begin(&s->log, path, s->text, RUNLOG_CHUNK));
    return follow_look(&s->log, &news);
}

static void steps_close(steps *s) {
    follow_close(&s->log);
    free(s->text);
}

// false: the line is neither a step's nor a checkpoint's, or damaged.
static bool parse(const char *line, size_t n, logged *x) {
    scan s = scan_of(line, n);
    scan_text key, kind = {"", 0};
    double step = NAN;
    *x = (logged){.loss = NAN};
    for (bool more = scan_begin(&s, '{'); more && scan_key(&s, &key); more = scan_more(&s, '}')) {
        if (scan_is(&key, "step")) step = scan_real(&s);
        else if (scan_is(&key, "loss")) x->loss = scan_real(&s), x->has_loss = true;
        else if (scan_is(&key, "hash")) scan_plain(x->hash, sizeof x->hash, scan_string(&s));
        else if (scan_is(&key, "t")) kind = scan_string(&s);
        else scan_skip(&s);
    }
    bool ours = scan_is(&kind, "step") || scan_is(&kind, "checkpoint");
    x->step = ours && step >= 1 && step <= 1e15 ? (int64_t)step : 0;
    return scan_end(&s) && x->step;
}

// The next line that counts; step 0: there is none.
static err_t next_line(steps *s, logged *x) {
    const char *line;
    size_t n;
    while (follow_next(&s->log, &line, &n))
        if (line && parse(line, n, x)) return ERR_OK;
    *x = (logged){0};
    return s->log.rc;
}

// The next step, with what its lines say together. Steps that go back are passed over.
static err_t next_step(steps *s, logged *x) {
    if (!s->next.step) TRY(next_line(s, &s->next));
    *x = s->next;
    if (!x->step) return ERR_OK;
    for (;;) {
        TRY(next_line(s, &s->next));
        if (!s->next.step || s->next.step > x->step) return ERR_OK;
        if (s->next.step < x->step) continue;
        if (s->next.has_loss && !x->has_loss) x->loss = s->next.loss, x->has_loss = true;
        if (s->next.hash[0] && !x->hash[0]) memcpy(x->hash, s->next.hash, sizeof x->hash);
    }
}

// --- two of them -----------------------------------------------------------------------------------------------------

static void compare(parting *p, const logged *a, const logged *b) {
    p->shared++, p->last_shared = a->step;
    if (a->hash[0] && b->hash[0]) {
        p->hashed++, p->last_hash = a->step;
        memcpy(p->hash[0], a->hash, sizeof p->hash[0]);
        memcpy(p->hash[1], b->hash, sizeof p->hash[1]);
        if (strcmp(a->hash, b->hash) == 0 && !p->other_hash) p->same_hash = a->step;
        if (strcmp(a->hash, b->hash) != 0 && !p->other_hash) p->other_hash = a->step;
    }
    if (!a->has_loss || !b->has_loss) return;
    bool same = a->loss == b->loss || (isnan(a->loss) && isnan(b->loss));
    if (same && !p->other_loss) p->same_loss = a->step;
    if (!same && !p->other_loss) p->other_loss = a->step;
}

err_t parting_of(parting *p, const char *dir_a, const char *dir_b) {
    steps a, b = {.log.fd = -1};
    logged x, y;
    *p = (parting){0};
    err_t rc = steps_open(&a, dir_a);
    if (rc == ERR_OK) rc = steps_open(&b, dir_b);
    if (rc == ERR_OK) rc = next_step(&a, &x);
    if (rc == ERR_OK) rc = next_step(&b, &y);
    while (rc == ERR_OK && x.step && y.step) {
        int64_t ahead = x.step - y.step;
        if (ahead == 0) compare(p, &x, &y);
        if (ahead <= 0) rc = next_step(&a, &x);
        if (ahead >= 0 && rc == ERR_OK) rc = next_step(&b, &y);
    }
    steps_close(&a);
    steps_close(&b);
    return rc;
}

const char *parting_text(char dst[PARTING_TEXT], const parting *p) {
    if (!p->shared) snprintf(dst, PARTING_TEXT, "no step is in both logs");
    else if (p->other_hash && p->same_hash)
        snprintf(dst, PARTING_TEXT, "the same weights at step %" PRId64 ", others at step %" PRId64, p->same_hash,
                 p->other_hash);
    else if (p->other_hash)
        snprintf(dst, PARTING_TEXT, "other weights from the first hash on, at step %" PRId64, p->other_hash);
    else if (p->hashed)
        snprintf(dst, PARTING_TEXT, "the same weights up to step %" PRId64 ", the last with a hash in both",
                 p->same_hash);
    else if (p->other_loss && p->same_loss)
        snprintf(dst, PARTING_TEXT,
                 "the same loss at step %" PRId64 ", another at step %" PRId64
                 " (no hashes to compare: [log] hash_every)",
                 p->same_loss, p->other_loss);
    else if (p->other_loss)
        snprintf(dst, PARTING_TEXT, "another loss from step %" PRId64 " on (no hashes to compare: [log] hash_every)",
                 p->other_loss);
    else
        snprintf(dst, PARTING_TEXT, "the same losses up to step %" PRId64 " (no hashes to compare: [log] hash_every)",
                 p->last_shared);
    size_t n = strlen(dst);
    if (p->other_hash && p->other_loss && p->other_loss < p->other_hash)
        snprintf(dst + n, PARTING_TEXT - n, "; the loss parts at step %" PRId64, p->other_loss);
    return dst;
}

// --- settings --------------------------------------------------------------------------------------------------------

const char *const parting_classes[3] = {[CLASS_BITS] = "bits: these decide the weights",
                                        [CLASS_LAYOUT] = "layout: how the work is dealt and what is logged",
                                        [CLASS_LOCAL] = "local: a node's own business"};

// Has an earlier run this setting, so that it was visited?
static bool seen(runlog *const *runs, int run, const char *name) {
    for (int i = 0; i < run; i++)
        if (runlog_find(runs[i], name)) return true;
    return false;
}

void parting_settings(runlog *const *runs, int n, parting_visit visit, void *ctx) {
    static const key_class order[] = {CLASS_BITS, CLASS_LAYOUT, CLASS_LOCAL};
    const char **value = calloc((size_t)n, sizeof *value);
    for (int k = 0; value && k < 3; k++)
        for (int run = 0; run < n; run++)
            for (int i = 0; i < runs[run]->settings; i++) {
                const runlog_setting *s = &runs[run]->setting[i];
                bool differs = false;
                if (s->class != order[k] || seen(runs, run, s->name) || strcmp(s->name, "run.name") == 0 ||
                    strcmp(s->name, "run.dir") == 0)
                    continue;
                for (int j = 0; j < n; j++) {
                    const runlog_setting *other = runlog_find(runs[j], s->name);
                    value[j] = other ? other->value : NULL;
                    differs = differs || !other || strcmp(other->value, s->value) != 0;
                }
                if (differs && runs[run]->settings) visit(ctx, s->class, s->name, value);
            }
    free(value);
}
