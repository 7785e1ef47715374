// trainer/evaluate.c: see trainer/evaluate.h.
#include "trainer/evaluate.h"

#include "base/fmath.h"
#include "base/philox.h"

#include <math.h>
#include <string.h>

err_t evaluator_declare(evaluator *k, step_runner *r) {
    int64_t B = r->cfg->batch.micro, T = r->cfg->model.context, V = r->cfg->model.vocab, world = r->ranks->world;
    *k = (evaluator){.r = r};
    TRY(arena_1d(&r->memory, &k->window_loss, FP64, world * B));
    TRY(arena_1d(&r->memory, &k->logits, FP32, V));
    TRY(arena_2d(&r->staging, &k->windows, INT32, 2 * B + 1, T + 1));
    TRY(arena_1d(&r->staging, &k->host_window_loss, FP64, world * B));
    TRY(arena_2d(&r->staging, &k->host_logits, FP32, 2, V));
    return arena_1d(&r->staging, &k->context, INT32, T);
}

// Reads B windows of T+1 tokens, one at a time into the end of k->windows, and puts them as tokens and targets on the device.
static err_t load_windows(evaluator *k, dataset *val, int64_t first, int64_t B, int64_t T) {
    step_runner *r = k->r;
    int32_t *rows = k->windows.data, *window = rows + 2 * r->cfg->batch.micro * (T + 1);
    for (int64_t b = 0; b < B; b++) {
        TRY(dataset_read(val, (first + b) * T, T + 1, window));
        memcpy(rows + b * T, window, (size_t)T * 4);
        memcpy(rows + (B + b) * T, window + 1, (size_t)T * 4);
    }
    TRY(stream_copy(r->s, r->tokens[r->place].data, rows, (size_t)(B * T) * 4));
    return stream_copy(r->s, r->targets[r->place].data, rows + B * T, (size_t)(B * T) * 4);
}

// This rank's micro-batch of a round: B windows from `first`. With B = 0 only the hooks run: other ranks need its
// weights. The losses go to this rank's place in window_loss.
static err_t evaluate_batch(evaluator *k, dataset *val, int64_t first, int64_t B, int64_t T) {
    step_runner *r = k->r;
    err_t rc = B ? load_windows(k, val, first, B, T) : ERR_OK;
    if (rc != ERR_OK && rc != ERR_DATA && rc != ERR_IO) return rc;
    if (B == 0 || rc != ERR_OK) {
        err_record why = rc != ERR_OK ? *err_last() : (err_record){0};
        TRY(model_forward_hooks(r->net, &r->together.hooks));
        return rc == ERR_OK ? ERR_OK : err_restore(&why);
    }
    pass p = step_inference(r, B, T);
    TRY(model_forward(r->net, &p));
    tensor means = view1(&k->window_loss, B);
    means.data = (double *)k->window_loss.data + r->ranks->rank * r->cfg->batch.micro;
    return p.ops->loss_means(&(loss_means_args){.means = &means, .losses = &p.losses}, r->s);
}

// One micro-batch for each rank, W windows in all; their losses are added in order of window. Each loss comes from one
// rank and is zero on the others, so the all-reduce rounds nothing.
static err_t evaluate_round(evaluator *k, dataset *val, int64_t first, int64_t W, int64_t T, double *sum) {
    step_runner *r = k->r;
    comm *c = r->ranks;
    int64_t micro = r->cfg->batch.micro, mine = W - c->rank * micro;
    const double *host = k->host_window_loss.data;
    TRY(stream_zero(r->s, k->window_loss.data, tensor_bytes(&k->window_loss)));
    err_t rc = evaluate_batch(k, val, first + c->rank * micro, mine < 0 ? 0 : mine < micro ? mine : micro, T);
    TRY(parallel_wait(&r->together));
    if (rc != ERR_OK && rc != ERR_DATA && rc != ERR_IO) return rc;  // can't be shared by agreement
    TRY(comm_agree_ok(c, rc, r->s));
    TRY(c->table->all_reduce(c, k->window_loss.data, (size_t)tensor_count(&k->window_loss), FP64, REDUCE_SUM, r->s));
    TRY(stream_copy(r->s, k->host_window_loss.data, k->window_loss.data, tensor_bytes(&k->window_loss)));
    TRY(stream_wait(r->s));
    for (int64_t i = 0; i < W; i++) *sum += host[i];
    return ERR_OK;
}

err_t evaluate(evaluator *k, dataset *val, int64_t batches, double *loss, int64_t *windows) {
    step_runner *r = k->r;
    int64_t micro = r->cfg->batch.micro, T = r->cfg->model.context, W = sampler_windows(dataset_about(val).tokens, T), round = micro * r->ranks->world;
    if (batches > 0 && batches * micro < W) W = batches * micro;
    if (W < 1) return err_set(ERR_DATA, "[data] val holds %lld tokens, expected more than [model] context = %lld", (long long)dataset_about(val).tokens, (long long)T);
    double sum = 0;
    TRY(parallel_wait(&r->together));
    r->ranks->phase.what = r->ranks->host->phase.what = "evaluate";
    for (int64_t at = 0; at < W; at += round) TRY(evaluate_round(k, val, at, W - at < round ? W - at : round, T, &sum));
    *loss = sum / (double)W;
    *windows = W;
    return ERR_OK;
}

// --- generation ------------------------------------------------------------------------------------------------------------

// The k-th largest of n values (k >= 1), by selection over a copy.
static float kth_largest(const float *x, int64_t n, int64_t k, float *copy) {
    memcpy(copy, x, (size_t)n * sizeof *x);
    int64_t low = 0, high = n - 1;
    while (low < high) {
        float pivot = copy[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (copy[i] > pivot) i++;
            while (copy[j] < pivot) j--;
            if (i > j) break;
            float t = copy[i];
            copy[i++] = copy[j];
            copy[j--] = t;
        }
        if (k - 1 <= j) high = j;
        else if (k - 1 >= i) low = i;
        else break;
    }
    return copy[k - 1];
}

static int32_t likeliest(const float *x, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return (int32_t)best;
}

// Draws from softmax(x / temperature) over the top_k largest values and all that equal the smallest of these (as
// Hugging Face's generate does); u in [0,1) is the draw. Sums are doubles, in order of index.
static int32_t draw(const float *x, int64_t n, const generate_options *o, double u, float *copy) {
    int32_t best = likeliest(x, n);
    if (o->temperature <= 0) return best;
    float low = o->top_k > 0 && o->top_k < n ? kth_largest(x, n, o->top_k, copy) : -INFINITY;
    double total = 0, at = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i] >= low) total += fm_exp((x[i] - x[best]) / o->temperature);
    for (int64_t i = 0; i < n; i++) {
        if (!(x[i] >= low)) continue;
        at += fm_exp((x[i] - x[best]) / o->temperature);
        if (u * total < at) return (int32_t)i;
    }
    return best;
}

static err_t next_token(evaluator *k, const generate_options *o, int64_t count, int64_t n, int32_t *out) {
    step_runner *r = k->r;
    int64_t V = r->cfg->model.vocab;
    float *logits = k->host_logits.data;
    TRY(stream_copy(r->s, r->tokens[r->place].data, k->context.data, (size_t)count * 4));
    pass p = step_inference(r, 1, count);
    p.last_only = true;
    TRY(model_forward(r->net, &p));
    tensor row = view1(&p.logits, V);
    TRY(p.ops->cast(&(cast_args){.y = &k->logits, .x = &row}, r->s));
    TRY(stream_copy(r->s, logits, k->logits.data, (size_t)V * sizeof *logits));
    TRY(stream_wait(r->s));
    uint32_t bits[4];
    philox4x32(bits, o->seed, 0, SITE_SAMPLE, (uint32_t)o->step, (uint32_t)n);
    *out = draw(logits, V, o, bits[0] * 0x1p-32, logits + V);
    return ERR_OK;
}

// The prompt's last bytes as tokens; an empty one starts with a newline.
static err_t set_prompt(evaluator *k, const char *prompt, int64_t *count) {
    step_runner *r = k->r;
    int64_t T = r->cfg->model.context, V = r->cfg->model.vocab;
    size_t length = strlen(prompt), skip = length > (size_t)T ? length - (size_t)T : 0;
    int32_t *tokens = k->context.data;
    *count = 0;
    for (const char *c = length ? prompt + skip : "\n"; *c; c++) {
        if ((unsigned char)*c >= V)
            return err_set(ERR_CONFIG, "prompt: byte %d at position %d is no token of a vocabulary of %lld; choose another [sample] prompt",
                           (unsigned char)*c, (int)(c - prompt), (long long)V);
        tokens[(*count)++] = (unsigned char)*c;
    }
    return ERR_OK;
}

err_t generate(evaluator *k, const generate_options *o) {
    step_runner *r = k->r;
    int64_t T = r->cfg->model.context, count;
    int32_t *tokens = k->context.data, token;
    TRY(set_prompt(k, o->prompt, &count));
    for (int64_t n = 0; n < o->tokens; n++) {
        TRY(next_token(k, o, count, n, &token));
        o->put(o->ctx, token);
        if (count == T) memmove(tokens, tokens + 1, (size_t)(--count) * 4);
        tokens[count++] = token;
    }
    return ERR_OK;
}
