// test/support/learned.h: a run beside what another program computed in double and left in a file, golden.safetensors:
// losses and norms of its steps, the loss after them, and the first gradients, grad/NAME.
#ifndef TEST_SUPPORT_LEARNED_H
#define TEST_SUPPORT_LEARNED_H

#include "test/support/foreign.h"
#include "test/support/square.h"

#include "model/foreign.h"
#include "trainer/session/restore.h"

#include <inttypes.h>
#include <math.h>

static inline int64_t elements(const st_tensor *t) { return shape_count(t->dims, t->size); }

static inline double *golden(const st_file *f, const char *name, int64_t *count) {
    const st_tensor *t = st_find(f, name);
    if (!t) fail_msg("%s has no %s", f->path, name);
    *count = elements(t);
    double *out = malloc((size_t)*count * sizeof *out);
    float *x = malloc((size_t)*count * sizeof *x);
    if (t->type == ST_F64) OK(st_read(f, t, out));
    else OK(st_read_f32(f, t, x));
    for (int64_t i = 0; i < *count && t->type != ST_F64; i++) out[i] = (double)x[i];
    free(x);
    return out;
}

// The mean square of what differs, in that of what is wanted. Where that is rounding alone, as in a bias of keys, whose
// gradient is 0, what is found is rounding too: of the whole gradient, whose square is `norm`.
static inline void near(const char *task, const char *what, const float *found, const double *want, int64_t n,
                        double norm) {
    double differs = 0, all = 0;
    for (int64_t i = 0; i < n; i++) differs += square((double)found[i] - want[i]), all += want[i] * want[i];
    bool none = all <= 1e-24 * norm;
    if (!(differs <= (none ? 1e-13 * norm : 1e-9 * all)))
        fail_msg("%s: %s: a square of %g, in %g of %g", task, what, differs, all, norm);
}

// Where some losses of a step do not count, its gradient is divided by the number of those that do only when the
// weights are updated: what it is multiplied by then. The validation data begin with the samples of the first step.
static inline float step_factor(session *x) {
    const config *c = x->cfg;
    int64_t T = x->net->losses, counted = 0;
    int32_t *targets = malloc((size_t)T * sizeof *targets);
    void *to[MODEL_INPUTS] = {0};
    to[x->net->targets] = targets;
    for (int64_t n = 0; config_weighs(c) && n < c->batch.global; n++) {
        OK(source_look(x->val, n, to));
        for (int64_t t = 0; t < T; t++) counted += targets[t] >= 0;
    }
    free(targets);
    return counted ? (float)((double)(c->batch.global * T) / (double)counted) : 1;
}

static inline void gradients_agree(session *x, const st_file *f, const char *task) {
    model *m = x->net;
    int64_t steps;
    double *norms = golden(f, "norms", &steps);
    float factor = step_factor(x);
    OK(step_gradient(&x->runner, x->data, 1));
    tensor *grad = &x->state.grad[x->state.sum_buffer * m->params];
    for (int i = 0; i < m->params; i++) {
        const param *p = &m->param[i];
        weight_part part[WEIGHT_PARTS];
        if (p->tied >= 0) continue;
        int parts = m->type->parts(m->options, p, part);
        float *host = malloc(tensor_bytes(&grad[i])), *ours = host;
        OK(stream_copy(x->s, host, grad[i].data, tensor_bytes(&grad[i])));
        OK(stream_wait(x->s));
        for (int64_t k = 0; k < tensor_count(&grad[i]); k++) host[k] *= factor;
        for (int k = 0; k < parts; k++) {
            char name[256];
            int64_t n, rows = part[k].rows * (p->dims > 1 ? p->size[1] : 1);
            snprintf(name, sizeof name, "grad/%s%s", part[k].prefixed ? m->type->prefix : "", part[k].name);
            double *want = golden(f, name, &n);
            assert_true(n >= rows);
            near(task, name, ours, want, rows, *norms * *norms);
            free(want);
            ours += rows;
        }
        free(host);
    }
    free(norms);
}

static inline void steps_agree(session *x, const st_file *f, const char *task) {
    int64_t n, one;
    double *losses = golden(f, "losses", &n), *norms = golden(f, "norms", &n), *last = golden(f, "final_loss", &one);
    step_result s;
    x->progress.step = 0;
    OK(session_feed(x, n));
    for (int64_t i = 0; i < n; i++) {
        OK(session_step(x, &s));
        if (!(fabs(s.loss - losses[i]) <= 1e-6 * losses[i]))
            fail_msg("%s: step %" PRId64 ": loss %.9f, expected %.9f", task, i + 1, s.loss, losses[i]);
        if (!(fabs(s.grad_norm - norms[i]) <= 1e-5 * norms[i]))
            fail_msg("%s: step %" PRId64 ": norm %.9f, expected %.9f", task, i + 1, s.grad_norm, norms[i]);
    }
    x->progress.step = 0;
    OK(session_feed(x, 1));
    OK(session_step(x, &s));
    if (!(fabs(s.loss - *last) <= 1e-6 * *last))
        fail_msg("%s: after %" PRId64 " updates: loss %.9f, expected %.9f", task, n, s.loss, *last);
    free(losses), free(norms), free(last);
}

#endif
