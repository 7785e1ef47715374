// test/support/classifiers.h: runs of models that sort images into classes, from the inside: what PyTorch came to, as
// lines of a text; and whether a run of many ranks holds and sends what its plan says, and has the bits of one rank.
#ifndef TEST_SUPPORT_CLASSIFIERS_H
#define TEST_SUPPORT_CLASSIFIERS_H

#include "test/support/idx.h"
#include "test/support/ranks.h"

#include "trainer/session/evaluate.h"
#include "trainer/plan/plan.h"
#include "trainer/session/restore.h"

#include <inttypes.h>
#include <math.h>

// --- PyTorch ---------------------------------------------------------------------------------------------------------

// The numbers on the line of a file that begins with "NAME WHAT".
static inline void golden_line(const char *path, const char *name, const char *what, double *out, int count) {
    char line[256], begins[32];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = (size_t)snprintf(begins, sizeof begins, "%s %s ", name, what);
    while (fgets(line, sizeof line, f)) {
        char *at = line + n;
        if (strncmp(line, begins, n) != 0) continue;
        for (int i = 0; i < count; i++) {
            char *end;
            out[i] = strtod(at, &end);
            assert_true(end > at);
            at = end;
        }
        fclose(f);
        return;
    }
    fail_msg("%s has no line \"%s\"", path, begins);
}

static inline void is_near(const char *name, const char *what, int step, double found, double wanted) {
    if (!(fabs(found - wanted) <= 1e-5 * wanted))
        fail_msg("%s, %s %d: %.9f, PyTorch %.9f", name, what, step, found, wanted);
}

// --- ranks -----------------------------------------------------------------------------------------------------------

enum { CLASSIFIER_STEPS = 3, CLASSIFIER_RANKS = 8, IMAGES_HELD_OUT = 13 };

typedef struct finding {
    char hash[17], state_hash[17];
    evaluation eval;
    class_answer answer[IMAGES_HELD_OUT];
    bool alone;  // the ranks share no blocks, so one communicator carries all traffic
    int64_t memory, planned, sent, planned_sent;
} finding;

static inline err_t measure(session *x, const config *c, finding *f) {
    plan_rank p;
    step_result s;
    int64_t before = 0;
    TRY(session_init(x));
    TRY(session_feed(x, CLASSIFIER_STEPS));
    while (x->progress.step < CLASSIFIER_STEPS) {
        TRY(session_settle(x));
        before = x->ranks->traffic.sent;
        TRY(session_step(x, &s));
        TRY(session_settle(x));
    }
    f->sent = x->ranks->traffic.sent - before;
    TRY(evaluate_classes(&x->evaluator, x->val, 0, f->answer, &f->eval));
    TRY(session_settle(x));
    TRY(session_fetch(x));
    TRY(ckpt_hash(&x->state.ckpt, f->hash));
    TRY(ckpt_state_hash(&x->state.ckpt, &x->progress, f->state_hash));
    TRY(plan_one(c, x->ranks->rank, x->ranks->world, x->ranks->place, &p));
    f->memory = (int64_t)(state_bytes(&x->state) + x->runner.memory.bytes + x->runner.staging.bytes + x->ring_bytes);
    f->planned = (int64_t)plan_bytes(&p);
    f->planned_sent = p.sent;
    f->alone = c->parallel.pipeline <= 1 && c->parallel.context <= 1;
    return ERR_OK;
}

static inline err_t live(const config *c, const launch *at, void *ctx) {
    session x;
    err_t rc = session_open(&x, c, SESSION_TRAIN, at);
    if (rc == ERR_OK) rc = measure(&x, c, (finding *)ctx + at->rank);
    session_abort(&x, rc);
    session_close(&x);
    return rc;
}

static inline void compare(const char *what, const finding *f, int rank, const finding *one) {
    if (strlen(f->hash) != 16 || strcmp(f->hash, one->hash) != 0 || strcmp(f->state_hash, one->state_hash) != 0)
        fail_msg("%s, rank %d: hash %s state %s, expected %s and %s", what, rank, f->hash, f->state_hash, one->hash,
                 one->state_hash);
    if (f->eval.loss != one->eval.loss || memcmp(f->eval.metric, one->eval.metric, sizeof f->eval.metric) != 0 ||
        f->eval.samples != IMAGES_HELD_OUT)
        fail_msg("%s, rank %d: evaluation %.17g, %.17g and %.17g of %d samples, expected %.17g, %.17g and %.17g", what,
                 rank, f->eval.loss, f->eval.metric[0], f->eval.metric[1], (int)f->eval.samples, one->eval.loss,
                 one->eval.metric[0], one->eval.metric[1]);
    for (int i = 0; i < IMAGES_HELD_OUT; i++)
        if (f->answer[i].class != one->answer[i].class || f->answer[i].sure != one->answer[i].sure)
            fail_msg("%s, rank %d: image %d is of class %d by %.17g, expected %d by %.17g", what, rank, i,
                     f->answer[i].class, f->answer[i].sure, one->answer[i].class, one->answer[i].sure);
    if (f->memory != f->planned)
        fail_msg("%s: rank %d holds %" PRId64 " bytes, planned %" PRId64, what, rank, f->memory, f->planned);
    if (f->alone && f->sent != f->planned_sent)
        fail_msg("%s: rank %d sent %" PRId64 " bytes, planned %" PRId64, what, rank, f->sent, f->planned_sent);
}

// The run of these settings on so many ranks, in this layout (lines of [parallel]), on the files `images` and `labels`
// of dir. All ranks must find what *one has; the first run fills it in.
static inline void try_world(const char *dir, const char *run, const char *kind, int ranks, const char *layout,
                             finding *one) {
    char more[1024], what[256];
    finding *all = share_memory(CLASSIFIER_RANKS * sizeof *all);
    config c;
    rank_world w = {.nodes = 1, .ranks = {ranks}};
    snprintf(more, sizeof more, "%s\n[data]\ntrain = %s/images %s/labels\nval =\nholdout = %d\n[parallel]\n%s\n", kind,
             dir, dir, IMAGES_HELD_OUT, layout);
    snprintf(what, sizeof what, "%d ranks, %s", ranks, layout);
    for (char *at = what; *at; at++)
        if (*at == '\n') *at = ',';
    rank_config(&c, dir, run, more);
    run_ranks(what, &w, &c, live, all);
    if (!one->hash[0]) *one = all[0];
    for (int k = 0; k < ranks; k++) compare(what, &all[k], k, one);
    munmap(all, CLASSIFIER_RANKS * sizeof *all);
}

#endif
