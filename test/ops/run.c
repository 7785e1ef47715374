// test/ops/run.c: runs one row of the table and checks all that it promises (op_test.h). The one idea: an argument is a
// block of device memory with poison on both sides, and every check is a comparison of two executions' outcomes, or of
// one with the reference.
#include "test/ops/op_test.h"

#include "base/philox.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 256 };  // bytes on each side; keeps the alignment that arenas give

// As FP32, BF16, FP16 and FP64 a NaN, as INT32 negative: a read of it shows.
static void poison(unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++) p[i] = i % 2 ? 0xff : 0xd5;
}

bool failed(op_run *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->why, sizeof r->why, fmt, ap);
    va_end(ap);
    return false;
}

// --- arguments -------------------------------------------------------------------------------------------------------

arg *arg_add(op_run *r, const char *name, role role, dtype t, int dims, int64_t s0, int64_t s1, int64_t s2) {
    return arg_add_shape(r, name, role, t, dims, (int64_t[]){s0, s1, s2});
}

arg *arg_add_shape(op_run *r, const char *name, role role, dtype t, int dims, const int64_t *size) {
    arg *a = &r->arg[r->count++];
    *a = (arg){.name = name, .role = role, .t = {NULL, t, dims, {1, 1, 1, 1}}};
    memcpy(a->t.size, size, (size_t)dims * sizeof *size);
    a->t.data = calloc(1, tensor_bytes(&a->t));
    if (r->bench) return a;
    size_t n = (size_t)tensor_count(&a->t);
    if (role == IN || role == UPDATES) a->value = calloc(n, sizeof *a->value);
    if (t != INT32 && (role == OUT || role == ADDS || role == UPDATES)) a->want = calloc(n, sizeof *a->want);
    return a;
}

static void put(op_run *r, arg *a, int64_t i, double x) {
    storage_set(a->t.data, a->t.type, i, x);
    if (!r->bench && a->value) a->value[i] = storage_get(a->t.data, a->t.type, i);
}

// Argument k of the run draws from its own stream of random numbers.
static void draw(op_run *r, const arg *a, int64_t quad, uint32_t word[4]) {
    philox4x32(word, 20240520, (uint32_t)quad, (uint32_t)(a - r->arg), (uint32_t)r->row->op, (uint32_t)r->row->size[0]);
}

// A benchmark's large arguments are filled where they are used (bench.c), unless their sign matters.
static bool left_to_the_device(const op_run *r, arg *a, double scale, double offset) {
    a->random = r->bench && a->t.type <= FP16 && fabs(offset) <= scale && tensor_count(&a->t) >= 1 << 16;
    return a->random;
}

void arg_fill(op_run *r, arg *a, double scale, double offset) {
    uint32_t word[4];
    if (left_to_the_device(r, a, scale, offset)) return;
    for (int64_t i = 0, n = tensor_count(&a->t); i < n; i++) {
        if (i % 4 == 0) draw(r, a, i / 4, word);
        put(r, a, i, offset + scale * 3.4641016 * ((double)philox_uniform(word[i % 4]) - 0.5));
    }
}

void arg_fill_wide(op_run *r, arg *a, double scale) {
    arg_fill(r, a, 1, 0);
    for (int64_t i = 0, n = a->random ? 0 : tensor_count(&a->t); i < n; i++) {
        double x = storage_get(a->t.data, a->t.type, i);
        put(r, a, i, scale * x * x * x * x * x);
    }
}

void arg_fill_with(op_run *r, arg *a, const double *x) {
    for (int64_t i = 0, n = tensor_count(&a->t); i < n; i++) put(r, a, i, x[i]);
}

void arg_fill_index(op_run *r, arg *a, int64_t limit, int ignore_every) {
    uint32_t word[4];
    for (int64_t i = 0, n = tensor_count(&a->t); i < n; i++) {
        if (i % 4 == 0) draw(r, a, i / 4, word);
        put(r, a, i, ignore_every && i % ignore_every == 0 ? -1 : (double)(word[i % 4] % limit));
    }
}

void arg_fill_bytes(arg *a, const void *bytes) { memcpy(a->t.data, bytes, tensor_bytes(&a->t)); }

// A line for each sample, so that a part of the batch begins with its own.
void arg_add_key(op_run *r, int64_t samples) {
    if (!(r->row->options & OPT_AT)) return;
    arg *a = arg_add(r, "key", IN, INT32, 2, samples, 2, 0);
    a->batch = true;
    uint32_t *at = a->t.data;
    for (int64_t i = 0; i < samples; i++) at[2 * i] = r->drop.step, at[2 * i + 1] = r->drop.first_sample + (uint32_t)i;
    r->key_at = r->count;
}

// What is given by value is wrong where memory is to be read.
dropout_key call_key(const op_run *r, tensor *const t[ARGS]) {
    dropout_key k = r->drop;
    if (r->key_at && !r->by_value) k.step += 77, k.first_sample += 1000, k.at = t[r->key_at - 1]->data;
    return k;
}

double arg_traffic(const op_run *r) {
    double sum = 0;
    for (int i = 0; i < r->count; i++) {
        const arg *a = &r->arg[i];
        double n = (double)tensor_bytes(&a->t);
        if (!a->absent) sum += a->role == SCRATCH ? 0 : a->role == IN || a->role == OUT ? n : 2 * n;
    }
    return sum;
}

double loss_weight(int64_t i) { return (double)((i * 7919 + 13) % 1009) / 504.5 - 1; }

void run_open(op_run *r, const op_row *row, bool bench) {
    *r = (op_run){.row = row, .bench = bench};
    kind_of(row->op)->setup(r);
}

void run_close(op_run *r) {
    for (int i = 0; i < r->count; i++) {
        free(r->arg[i].t.data);
        free(r->arg[i].value);
        free(r->arg[i].want);
    }
}

bool gradient_near(op_run *r, const char *what, double (*loss)(void *), void *ctx, double *x, const double *g,
                   int64_t n) {
    double bytes, flops, power = 0;
    kind_of(r->row->op)->cost(r, &bytes, &flops);
    int samples = flops > 1e7 ? 2 : flops > 1e5 ? 6 : 24;
    for (int64_t i = 0; i < n; i++) power += g[i] * g[i];
    double rms = sqrt(power / (double)n);
    for (int k = 0; k < samples; k++) {
        uint32_t word[4];
        philox4x32(word, 7, (uint32_t)k, (uint32_t)n, 0, 0);
        int64_t i = samples >= n ? k % n : word[0] % n;
        double x0 = x[i], h = 1e-5 * (1 + fabs(x0));
        x[i] = x0 + h;
        double up = loss(ctx);
        x[i] = x0 - h;
        double down = loss(ctx);
        x[i] = x0;
        double slope = (up - down) / (2 * h),
               allowed = 1e-6 * (rms + fabs(g[i])) + 1e-15 * (fabs(up) + fabs(down)) / h + 1e-9;
        if (!(fabs(slope - g[i]) <= allowed))
            return failed(r, "reference gradient %s[%" PRId64 "] is %.9g, central difference %.9g", what, i, g[i],
                          slope);
    }
    return true;
}

// --- execution -------------------------------------------------------------------------------------------------------

typedef enum start { CLEAN, LOADED } start;  // CLEAN: (=) from NaN, (+=) from zero; LOADED: both from finite rubbish

// apart: no aliasing; split: rows of the first of two calls, 0: one call; by_value: no key from memory; recorded: a
// recording runs for the call
typedef struct how {
    start from;
    bool apart;
    int64_t split;
    bool by_value, recorded;
} how;

static unsigned char *initial(const arg *a, start from) {
    size_t n = tensor_bytes(&a->t);
    unsigned char *p = malloc(GUARD + n + GUARD);
    poison(p, GUARD + n + GUARD);
    if (a->role == IN || a->role == UPDATES) memcpy(p + GUARD, a->t.data, n);
    else if (a->role == ADDS && from == CLEAN) memset(p + GUARD, 0, n);
    else if (from == LOADED)
        for (int64_t i = 0, count = tensor_count(&a->t); i < count; i++)
            storage_set(p + GUARD, a->t.type, i, (double)((i * 37 + 11) % 101 - 50) / 32 + 0x1p-30);
    return p;
}

// Slices of columns, each a matrix of its own, and back again.
static void cut_columns(const arg *a, unsigned char *data, bool back) {
    int64_t rows = a->t.size[0], width = a->t.size[1] / a->slices;
    size_t bytes = tensor_bytes(&a->t), run = (size_t)width * dtype_bytes(a->t.type);
    unsigned char *from = malloc(bytes);
    memcpy(from, data, bytes);
    for (int64_t s = 0; s < a->slices; s++)
        for (int64_t r = 0; r < rows; r++) {
            size_t cut = (size_t)(s * rows + r) * run, whole = (size_t)(r * a->slices + s) * run;
            memcpy(data + (back ? whole : cut), from + (back ? cut : whole), run);
        }
    free(from);
}

// What LOADED puts into element i of an accumulated output.
static double loaded(const arg *a, int64_t i) {
    float c;
    storage_set(&c, a->t.type, 0, (double)((i * 37 + 11) % 101 - 50) / 32 + 0x1p-30);
    return (double)c;
}

static tensor part_of(const arg *a, char *block, int64_t first, int64_t rows) {
    tensor t = a->t;
    t.data = block + GUARD;
    if (a->slices) return view3(&t, a->slices, t.size[0], t.size[1] / a->slices);
    if (!rows || !a->batch) return t;
    t.data = block + GUARD + (size_t)(tensor_count(&t) / t.size[0] * first) * dtype_bytes(t.type);
    t.size[0] = rows;
    return t;
}

static err_t call_part(op_run *r, const fixture *f, char *block[ARGS], int64_t first, int64_t rows) {
    tensor view[ARGS], *t[ARGS] = {0};
    dropout_key whole = r->drop;
    for (int i = 0; i < r->count; i++) {
        view[i] = part_of(&r->arg[i], block[i], first, rows);
        if (!r->arg[i].absent) t[i] = &view[i];
    }
    r->drop.first_sample += (uint32_t)first;
    err_t rc = kind_of(r->row->op)->call(r, f->table, t, f->s);
    r->drop = whole;
    return rc;
}

// What the arguments hold at first; where `astray`, another step and sample. An output that lies on its input gets
// nothing.
static err_t upload(const op_run *r, const fixture *f, char *block[ARGS], start from, bool astray) {
    for (int i = 0; i < r->count; i++) {
        if (r->arg[i].alias && block[i] == block[r->arg[i].alias - 1]) continue;
        unsigned char *p = initial(&r->arg[i], from);
        if (r->arg[i].slices) cut_columns(&r->arg[i], p + GUARD, false);
        if (astray && i == r->key_at - 1) memset(p + GUARD, 0x35, tensor_bytes(&r->arg[i].t));
        err_t rc = stream_copy(f->s, block[i], p, GUARD + tensor_bytes(&r->arg[i].t) + GUARD);
        if (rc == ERR_OK) rc = stream_wait(f->s);
        free(p);
        TRY(rc);
    }
    return ERR_OK;
}

// Recorded with one key in memory, run with that, and run again with the right one, from the beginning: what the first
// run left is gone.
static err_t call_recorded(op_run *r, const fixture *f, char *block[ARGS], start from) {
    recording *k = NULL;
    TRY(upload(r, f, block, from, true));
    TRY(stream_record_begin(f->s));
    err_t rc = call_part(r, f, block, 0, 0), ended = stream_record_end(f->s, &k);
    if (rc == ERR_OK) rc = ended;
    if (rc == ERR_OK) rc = recording_run(k, f->s);
    if (rc == ERR_OK) rc = upload(r, f, block, from, false);
    if (rc == ERR_OK) rc = recording_run(k, f->s);
    if (rc == ERR_OK) rc = stream_wait(f->s);
    recording_close(k);
    return rc;
}

static err_t call_all(op_run *r, const fixture *f, char *block[ARGS], how how) {
    int64_t n = 0, split = how.split;
    if (how.recorded) return call_recorded(r, f, block, how.from);
    for (int i = 0; i < r->count; i++)
        if (r->arg[i].batch) n = r->arg[i].t.size[0];
    if (!split) TRY(call_part(r, f, block, 0, 0));
    else {
        TRY(call_part(r, f, block, 0, split));
        TRY(call_part(r, f, block, split, n - split));
    }
    return stream_wait(f->s);
}

static bool guards_hold(op_run *r, const fixture *f, const arg *a, const unsigned char *p) {
    unsigned char expected[GUARD];
    size_t n = tensor_bytes(&a->t), end = GUARD + n;
    poison(expected, GUARD);
    if (memcmp(p, expected, GUARD)) return failed(r, "%s: wrote before %s", f->name, a->name);
    for (size_t i = 0; i < GUARD; i++)
        if (p[end + i] != ((end + i) % 2 ? 0xff : 0xd5))
            return failed(r, "%s: wrote past %s, byte %zu after its end", f->name, a->name, i);
    return true;
}

// Takes one argument back from the device.
static bool collect(op_run *r, const fixture *f, int i, bool shared, const void *block, outcome *out) {
    const arg *a = &r->arg[i];
    size_t n = tensor_bytes(&a->t);
    unsigned char *p = malloc(GUARD + n + GUARD);
    bool ok = stream_copy(f->s, p, block, GUARD + n + GUARD) == ERR_OK && stream_wait(f->s) == ERR_OK;
    if (!ok) failed(r, "%s: %s", f->name, err_last()->text);
    ok = ok && guards_hold(r, f, a, p);
    if (a->slices) cut_columns(a, p + GUARD, true);
    if (ok && a->role == IN && !shared && memcmp(p + GUARD, a->t.data, n))
        ok = failed(r, "%s: changed its input %s", f->name, a->name);
    memmove(p, p + GUARD, n);
    out->data[i] = p;
    return ok;
}

static void outcome_free(outcome *o) {
    for (int i = 0; i < ARGS; i++) free(o->data[i]);
    *o = (outcome){0};
}

static bool execute(op_run *r, const fixture *f, how how, outcome *out) {
    char *block[ARGS] = {0}, *own[ARGS] = {0};
    size_t bytes[ARGS];
    bool ok = true, shared[ARGS] = {0};
    *out = (outcome){0};
    r->by_value = how.by_value;
    for (int i = 0; i < r->count && ok; i++) {
        void *q = NULL;
        bytes[i] = GUARD + tensor_bytes(&r->arg[i].t) + GUARD;
        ok = device_alloc(f->dev, MEMORY_DEVICE, bytes[i], &q) == ERR_OK;
        block[i] = own[i] = q;
    }
    ok = ok && upload(r, f, block, how.from, false) == ERR_OK;
    for (int i = 0; i < r->count; i++) {
        int with = how.apart ? 0 : r->arg[i].alias;
        if (with) block[i] = own[with - 1], shared[i] = shared[with - 1] = true;
    }
    if (!ok || call_all(r, f, block, how) != ERR_OK) ok = failed(r, "%s: %s", f->name, err_last()->text);
    for (int i = 0; i < r->count && ok; i++) ok = collect(r, f, i, shared[i], block[i], out);
    for (int i = 0; i < r->count; i++) device_free(f->dev, MEMORY_DEVICE, own[i], own[i] ? bytes[i] : 0);
    return ok;
}

// --- checks ----------------------------------------------------------------------------------------------------------

static bool is_output(const arg *a) { return !a->absent && (a->role == OUT || a->role == ADDS || a->role == UPDATES); }

static int64_t first_difference(const arg *a, const void *x, const void *y) {
    size_t width = dtype_bytes(a->t.type);
    for (int64_t i = 0, n = tensor_count(&a->t); i < n; i++)
        if (memcmp((const char *)x + (size_t)i * width, (const char *)y + (size_t)i * width, width)) return i;
    return -1;
}

// batch_only: what accumulates over the batch is left out.
static bool same_bits(op_run *r, const char *what, const fixture *f, const outcome *x, const outcome *y,
                      bool batch_only) {
    for (int i = 0; i < r->count; i++) {
        const arg *a = &r->arg[i];
        if (!is_output(a) || (batch_only && !a->batch)) continue;
        int64_t at = first_difference(a, x->data[i], y->data[i]);
        if (at < 0) continue;
        return failed(r, "%s: %s: %s[%" PRId64 "] is %.9g, expected the bits of %.9g", f->name, what, a->name, at,
                      storage_get(y->data[i], a->t.type, at), storage_get(x->data[i], a->t.type, at));
    }
    return true;
}

static bool is_convolution(const op_row *row) {
    return row->op == OP_conv_forward || row->op == OP_conv_inputs || row->op == OP_conv_weights;
}

// Whether devices of BF16 pairs have this operation of their own, and the row can be held against the true value: they
// refuse FP16, and scores of hundreds that are made of rounded FP32 numbers are off by whole numbers.
static bool is_paired(const op_row *row) {
    bool attention =
        row->op == OP_attention_forward || row->op == OP_attention_backward || row->op == OP_attention_past;
    return (row->op == OP_matmul || is_convolution(row) ||
            (attention && !(row->type == FP32 && row->options & OPT_EXTREME))) &&
           row->type != FP16;
}

// What rounding operands to BF16 costs, as normalised mean square error. Products have random signs, so a sum errs as
// one of them does: 0.4 u^2 for each operand that is rounded (values.c). Those are, in FP32, both of matmul; in
// attention probabilities (or gradients of scores) and what they meet, and what made them: q and k, whose error the
// exponential of a score passes on, scores being about 1, and in backward dy and v. In BF16 all is as it is stored but
// probabilities and gradients of scores. A single product is no mean: it errs by 2 u at most.
static double pairs_nmse(const op_run *r) {
    const op_row *row = r->row;
    int forward = row->type == FP32 ? 4 : 1, backward = row->type == FP32 ? 6 : 1, dense = row->type == FP32 ? 2 : 0;
    double bytes, flops;
    kind_of(row->op)->cost(r, &bytes, &flops);
    if (row->op == OP_matmul || is_convolution(row)) return (flops <= 2 ? 2 : 0.4) * 0x1p-16 * dense;
    return 0.4 * 0x1p-16 * (row->op == OP_attention_backward ? backward : forward);
}

static bool values_match(op_run *r, const fixture *f, const outcome *got) {
    bool gpu = device_about(f->dev)->kind == DEVICE_CUDA;
    for (int i = 0; i < r->count; i++) {
        const arg *a = &r->arg[i];
        char why[WHY];
        if (!is_output(a) || !a->want) continue;
        if (!values_near(a->name, a->t.type, got->data[i], a->want, tensor_count(&a->t),
                         r->row->nmse + (f->kin == KIN_PAIRS ? pairs_nmse(r) : 0), gpu ? a->rounded : 0, why))
            return failed(r, "%.60s: %.400s", f->name, why);
    }
    return true;
}

// From content c: c + (result from zero), one addition; overwritten outputs as before.
static bool adds_once(op_run *r, const fixture *f, const outcome *clean) {
    outcome on;
    bool ok = execute(r, f, (how){.from = LOADED}, &on);
    for (int i = 0; i < r->count && ok; i++) {
        const arg *a = &r->arg[i];
        if (a->role != ADDS || a->absent) continue;
        float *z = (float *)(void *)clean->data[i], *got = (float *)(void *)on.data[i];
        for (int64_t k = 0, n = tensor_count(&a->t); k < n && ok; k++) {
            float want = (float)loaded(a, k) + z[k];
            if (memcmp(&want, &got[k], sizeof want))
                ok = failed(r, "%s: %s[%" PRId64 "]: %.9g (+=) %.9g gave %.9g", f->name, a->name, k, loaded(a, k),
                            (double)z[k], (double)got[k]);
            got[k] = z[k];
        }
    }
    ok = ok && same_bits(r, "result depends on the output's old content", f, clean, &on, false);
    outcome_free(&on);
    return ok;
}

static bool again(op_run *r, const char *what, const fixture *f, how how, const outcome *first) {
    outcome second;
    bool ok = execute(r, f, how, &second) && same_bits(r, what, f, first, &second, how.split > 0);
    outcome_free(&second);
    return ok;
}

// Whether GPUs sum it in the CPU's order, and do all else as it does. NaNs of 16 bits are the hardware's.
static bool has_cpu_bits(const op_row *row) {
    switch (row->op) {
    case OP_conv_forward:
    case OP_conv_inputs: return row->type == FP32;
    case OP_max_pool_forward:
    case OP_max_pool_backward:
    case OP_mean_pool_forward:
    case OP_mean_pool_backward:
    case OP_batch_norm_sums:
    case OP_batch_norm_moments:
    case OP_batch_norm_apply:
    case OP_batch_norm_back_sums:
    case OP_batch_norm_back:
    case OP_pixels: return row->type == FP32 || !(row->options & OPT_EXTREME);
    default: return false;
    }
}

static bool same_on_cpu(op_run *r, const outcome *gpu) {
    fixture f = {.kin = KIN_CPU, .name = "cpu"};
    device_options o = {.kind = DEVICE_CPU, .threads = 1};
    if (device_open(&f.dev, &o) != ERR_OK) return failed(r, "%s", err_last()->text);
    bool ok = stream_open(f.dev, &f.s) == ERR_OK || failed(r, "%s", err_last()->text);
    f.table = device_ops(f.dev);
    ok = ok && again(r, "a CPU's bits against the GPU's", &f, (how){.from = CLEAN}, gpu);
    stream_close(f.s), device_close(f.dev);
    return ok;
}

static bool check_on(op_run *r, const fixture *f, bool once, outcome *base) {
    const op_kind *kind = kind_of(r->row->op);
    bool aliased = false;
    int64_t rows = 0;
    for (int i = 0; i < r->count; i++) {
        aliased |= r->arg[i].alias > 0;
        if (r->arg[i].batch) rows = r->arg[i].t.size[0];
    }
    if (!execute(r, f, (how){.from = CLEAN}, base) || !values_match(r, f, base)) return false;
    if (kind->exact && !kind->exact(r, base)) return false;
    if (once) return true;
    if (!again(r, "second run", f, (how){.from = CLEAN}, base) || !adds_once(r, f, base)) return false;
    if (f->kin == KIN_CUDA && has_cpu_bits(r->row) && !same_on_cpu(r, base)) return false;
    if (aliased && !again(r, "output on its input against output apart", f, (how){.apart = true}, base)) return false;
    if (r->key_at && !again(r, "step and sample by value", f, (how){.by_value = true}, base)) return false;
    if (r->key_at && device_records(f->dev) && !again(r, "a recording", f, (how){.recorded = true}, base)) return false;
    for (int64_t split = 1; split < rows && split <= rows / 3 + 1; split += rows / 3 > 1 ? rows / 3 : 1)
        if (!again(r, "batch in two parts", f, (how){.split = split}, base)) return false;
    return true;
}

bool run_row(const op_row *row, const fixtures *all, char why[WHY]) {
    const op_kind *kind = kind_of(row->op);
    op_run r;
    outcome base = {0};
    double bytes, flops;
    run_open(&r, row, false);
    kind->reference(&r);
    kind->cost(&r, &bytes, &flops);
    bool ok = all->once || all->f[0].kin == KIN_CUDA || !kind->gradient || kind->gradient(&r);
    const fixture *last = NULL;
    for (int i = 0; i < all->count && ok; i++) {
        const fixture *f = &all->f[i];
        if ((f->slow && flops + bytes > 4e7) || (f->kin == KIN_PAIRS && !is_paired(row))) continue;
        if (!last || f->kin != last->kin) outcome_free(&base), ok = check_on(&r, f, all->once, &base), last = f;
        else ok = again(&r, "another width or number of threads", f, (how){.from = CLEAN}, &base);
    }
    outcome_free(&base);
    run_close(&r);
    if (!ok) snprintf(why, WHY, "%s", r.why);
    return ok;
}

// --- devices ---------------------------------------------------------------------------------------------------------

static bool fixture_add(fixtures *all, const device_options *o, int kin, bool slow, char why[WHY]) {
    fixture *f = &all->f[all->count];
    err_t rc = device_open(&f->dev, o);
    if (rc == ERR_UNAVAILABLE) return true;  // this machine has no such device or width
    if (rc == ERR_OK) {
        rc = stream_open(f->dev, &f->s);
        f->table = device_ops(f->dev), f->kin = kin, f->slow = slow;
        snprintf(f->name, sizeof f->name, "%s", device_about(f->dev)->name);
        all->count++;
    }
    if (rc != ERR_OK) snprintf(why, WHY, "%s", err_last()->text);
    return rc == ERR_OK;
}

bool fixtures_open(fixtures *all, device_kind kind, char why[WHY]) {
    static const vector_width width[] = {WIDTH_AVX512, WIDTH_AVX2, WIDTH_NEON, WIDTH_PORTABLE, WIDTH_AVX512BF16};
    static const int threads[] = {1, 2, 4};
    *all = (fixtures){0};
    for (int w = 0; w < 4 && kind != DEVICE_CUDA; w++)
        for (int t = 0; t < 3; t++) {
            device_options o = {.kind = DEVICE_CPU, .threads = threads[t], .width = width[w]};
            if (!fixture_add(all, &o, KIN_CPU, width[w] == WIDTH_PORTABLE, why)) return false;
        }
    for (int w = 0; w < 5 && kind != DEVICE_CUDA; w++) {
        device_options o = {.kind = DEVICE_CPU, .threads = 3, .width = width[w], .products = PRODUCTS_BF16_PAIRS};
        if (!fixture_add(all, &o, KIN_PAIRS, width[w] == WIDTH_PORTABLE, why)) return false;
    }
    if (kind != DEVICE_CPU && !fixture_add(all, &(device_options){.kind = DEVICE_CUDA}, KIN_CUDA, false, why))
        return false;
    if (!all->count) snprintf(why, WHY, "no device of this kind: %.400s", err_last()->text);
    return all->count > 0;
}

void fixtures_close(fixtures *all) {
    for (int i = 0; i < all->count; i++) {
        stream_close(all->f[i].s);
        device_close(all->f[i].dev);
    }
}
