// trainer/verbs.c: the verbs other than training: each opens what it needs, prints its result, and closes.
#include "base/clock.h"
#include "base/io.h"
#include "base/version.h"
#include "trainer/evaluate.h"
#include "trainer/log/report.h"
#include "trainer/train.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// --- look at weights ---------------------------------------------------------------------------------------------------------

static err_t eval_session(session *x, const char *ckpt, FILE *out) {
    double loss;
    int64_t windows;
    if (!x->val) return err_set(ERR_CONFIG, "[data] val is empty: nothing to evaluate on");
    TRY(session_load(x, ckpt));
    TRY(evaluate(&x->evaluator, x->val, x->cfg->eval.batches, &loss, &windows));
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
    if (isatty(fileno(out))) monitor_printable(text, strlen(text) + 6, text);  // in place: never grows
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
    fprintf(out, "memory  %.1f MB of weights, optimizer state and gradients, %.1f MB of activations\n", (double)state_bytes(&x->state) / 1e6,
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
