// trainer/verbs.c: the verbs beside training: each opens what it needs, looks, tells, and closes.
#include "base/clock.h"
#include "base/io.h"
#include "base/philox.h"
#include "base/version.h"
#include "trainer/evaluate.h"
#include "trainer/report.h"
#include "trainer/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// --- look at weights ---------------------------------------------------------------------------------------------------------

static err_t eval_session(session *x, const char *ckpt, FILE *out) {
    double loss;
    int64_t windows;
    if (!x->val) return err_set(ERR_CONFIG, "[data] val is empty: nothing to evaluate on");
    TRY(session_load(x, ckpt));
    TRY(evaluate(&x->runner, x->val, x->cfg->eval.batches, &loss, &windows));
    fprintf(out, "step %lld  loss %.6f  %lld windows of %lld tokens\n", (long long)x->step, loss, (long long)windows,
            (long long)x->cfg->model.context);
    return ERR_OK;
}

err_t verb_eval(const config *c, const char *ckpt, FILE *out) {
    session x;
    err_t rc = session_open(&x, c, SESSION_LOOK, NULL);
    if (rc == ERR_OK) rc = eval_session(&x, ckpt, out);
    session_close(&x);
    return rc;
}

static err_t sample_session(session *x, const char *ckpt, const char *prompt, FILE *out) {
    char *text;
    TRY(session_load(x, ckpt));
    TRY(session_sample(x, prompt, &text));
    if (isatty(fileno(out))) monitor_printable(text, strlen(text) + 6, text);  // in place: never longer than it was
    fprintf(out, "%s%s\n", prompt, text);
    free(text);
    return ERR_OK;
}

err_t verb_sample(const config *c, const char *ckpt, const char *prompt, FILE *out) {
    session x;
    config no_data = *c;
    no_data.data.val[0] = 0;
    err_t rc = session_open(&x, &no_data, SESSION_LOOK, NULL);
    if (rc == ERR_OK) rc = sample_session(&x, ckpt, prompt ? prompt : c->sample.prompt, out);
    session_close(&x);
    return rc;
}

err_t verb_hash(const char *ckpt, FILE *out) {
    char hash[17], state_hash[17];
    TRY(ckpt_hash_dir(ckpt, hash, state_hash));
    fprintf(out, "hash %s  state_hash %s  %s\n", hash, state_hash, ckpt);
    return ERR_OK;
}

// --- check, pack -------------------------------------------------------------------------------------------------------------

static void print_line(void *ctx, const char *text) { fprintf(ctx, "%s\n", text); }

static err_t check_session(session *x, FILE *out) {
    const config *c = x->cfg;
    dataset_info t = dataset_about(x->train);
    double epoch = (double)sampler_windows(t.tokens, c->model.context) / (double)c->batch.global;
    fprintf(out, "device  %s (%s)\n", device_about(x->dev)->name, device_about(x->dev)->choice);
    fprintf(out, "model   %s, %.2f M parameters\n", x->net->type->name, (double)model_elements(x->net) / 1e6);
    fprintf(out, "memory  %.1f MB of weights, moments and gradients, %.1f MB of activations\n", (double)state_bytes(&x->state) / 1e6,
            (double)x->runner.memory.bytes / 1e6);
    fprintf(out, "batch   %lld lanes; %lld steps are %.2f epochs\n", (long long)c->batch.lanes, (long long)c->run.steps,
            (double)c->run.steps / epoch);
    fprintf(out, "train   %lld tokens in %d files, hash %s\n", (long long)t.tokens, t.files, t.hash);
    err_t train = dataset_verify(x->train, print_line, out), val = ERR_OK;
    if (x->val) {
        dataset_info v = dataset_about(x->val);
        fprintf(out, "val     %lld tokens in %d files, hash %s\n", (long long)v.tokens, v.files, v.hash);
        val = dataset_verify(x->val, print_line, out);
    }
    if (train == ERR_OK && val == ERR_OK) fprintf(out, "every checksum is right\n");
    return train != ERR_OK ? train : val;
}

err_t verb_check(const config *c, FILE *out) {
    session x;
    err_t rc = session_open(&x, c, SESSION_TRAIN, NULL);
    if (rc == ERR_OK) rc = check_session(&x, out);
    session_close(&x);
    return rc;
}

err_t verb_pack(const config *c, FILE *out) {
    if (!c->pack.input[0] || !c->pack.output[0]) return err_set(ERR_CONFIG, "[pack] input and output must both be set");
    pack_report r;
    TRY(pack_run(&(pack_options){.input = c->pack.input, .output = c->pack.output, .shard_tokens = c->pack.shard_tokens,
                                 .val_fraction = c->pack.val_fraction, .compress = c->pack.compress}, &r));
    fprintf(out, "packed  %lld files, %lld bytes (%lld skipped: empty or binary) into %d shards: train %lld tokens, val %lld\n",
            (long long)r.files_in, (long long)r.bytes_in, (long long)r.files_skipped, r.shards_out, (long long)r.train_tokens,
            (long long)r.val_tokens);
    return ERR_OK;
}

// --- bench -------------------------------------------------------------------------------------------------------------------

// Tokens that no disk holds: a file in memory, read like any other.
static err_t made_up_tokens(const config *c, int *fd) {
    int64_t n = c->batch.global * c->model.context * 4 + 1;
    *fd = memfd_create("lockstep-bench", MFD_CLOEXEC);
    uint16_t *t = malloc((size_t)n * sizeof *t);
    if (*fd < 0 || !t) {
        free(t);
        return err_set(ERR_INTERNAL, "no memory for %lld tokens", (long long)n);
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits[4];
        philox4x32(bits, (uint64_t)c->run.seed, (uint32_t)i, SITE_SAMPLE, 1, 0);
        t[i] = (uint16_t)(bits[0] % (uint32_t)(c->model.vocab < 65536 ? c->model.vocab : 65536));
    }
    err_t rc = io_write(*fd, "tokens in memory", t, (size_t)n * sizeof *t, NULL);
    free(t);
    return rc;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// What rank 0 prints of the timed steps, sorted.
static void print_times(const session *x, const double *ms, int64_t steps, const rank_summary *t) {
    const config *c = x->cfg;
    double median = ms[steps / 2], tokens = (double)(c->batch.global * c->model.context);
    double weights = (double)(model_elements(x->net) - c->model.context * c->model.embed);
    double flops = tokens * (6 * weights + 6 * (double)(c->model.layers * c->model.embed * c->model.context));  // causal half of attention
    printf("%s  %lld layers %lld channels %lld x %lld tokens  %lld steps: median %.2f ms (min %.2f, max %.2f)  %.0f tok/s  %.1f GFLOP/s\n",
           device_about(x->dev)->name, (long long)c->model.layers, (long long)c->model.embed, (long long)c->batch.global,
           (long long)c->model.context, (long long)steps, median, ms[0], ms[steps - 1], tokens / median * 1e3, flops / median * 1e-6);
    if (x->ranks->world > 1)
        printf("%d ranks  zero %d  order %s  communication %.2f ms a step, waited for %.2f ms: %.0f %% hidden\n", x->ranks->world, x->state.o.stage,
               x->state.o.fixed ? "fixed" : "any", t->comm_ms, t->wait_ms, 100 * t->hidden);
}

static err_t bench_session(session *x, int64_t steps, double *ms) {
    enum { WARM = 2 };
    rank_report times;
    step_result s = {0};
    double start = 0;
    TRY(session_init(x));
    TRY(session_feed(x, steps + WARM));
    err_t rc = report_open(&times, x->ranks->world);
    for (int64_t i = -WARM; i < steps && rc == ERR_OK; i++) {
        if (!x->runner.untold) start = clock_now();
        rc = session_queue(x);
        while (rc == ERR_OK && x->runner.untold > (step_runs_ahead(&x->runner) && i + 1 < steps ? 1 : 0)) {
            rc = session_told(x, &s);
            double now = clock_now();
            if (rc == ERR_OK && s.step > WARM) ms[s.step - WARM - 1] = 1e3 * (now - start);
            if (rc == ERR_OK && s.step > WARM) report_add(&times, s.reports);
            start = now;
        }
    }
    rank_summary summary = rc == ERR_OK ? report_take(&times, x->state.reduce) : (rank_summary){0};
    report_close(&times);
    TRY(rc);
    TRY(session_settle(x));
    if (!isfinite(s.loss)) return err_set(ERR_INTERNAL, "the loss is not finite after %lld steps", (long long)steps);
    qsort(ms, (size_t)steps, sizeof *ms, by_value);
    if (x->ranks->rank == 0) print_times(x, ms, steps, &summary);
    return ERR_OK;
}

err_t bench_rank(const config *c, const launch *at, board *b) {
    session x = {0};
    config made_up = *c;
    int fd = -1;
    int64_t steps = c->run.steps;
    double *ms = calloc((size_t)steps, sizeof *ms);
    err_t rc = ms ? made_up_tokens(c, &fd) : err_set(ERR_INTERNAL, "no memory for %lld timings", (long long)steps);
    if (rc == ERR_OK) {
        snprintf(made_up.data.train, sizeof made_up.data.train, "/proc/self/fd/%d", fd);
        made_up.data.val[0] = 0;
        made_up.data.format = DATA_RAW16;
        rc = session_open(&x, &made_up, SESSION_TRAIN, at);
    }
    if (rc == ERR_OK) {
        atomic_fetch_add(&b->ready, 1);
        rc = bench_session(&x, steps, ms);
    }
    session_tell(&x, rc);
    session_close(&x);
    if (fd >= 0) close(fd);
    free(ms);
    return rc;
}
