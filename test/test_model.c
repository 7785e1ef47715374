// test/test_model.c: the seam between a model and its caller. Blocks may be run in ranges, with several micro-batches
// under way, and backward in two halves: none of it moves a bit. Halves keep so many bytes more, and no others do. And
// the gradients of the multilayer perceptron are the slopes of its loss, computed here in double.
#include "data/source.h"
#include "model/flow.h"
#include "test/support/options.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OK(call) \
    do { \
        err_t ok_ = (call); \
        if (ok_ != ERR_OK) fail_msg("%s: %d: %s", #call, ok_, err_last()->text); \
    } while (0)

enum { B = 5, MICROS = 3, MOST = 64 };

typedef struct kind {
    const char *name;
    int type;
    any_options o;
} kind;

static const kind kinds[] = {
    {"gpt",
     MODEL_gpt,
     {.gpt = {.layers = 3, .heads = 2, .embed = 24, .vocab = 37, .context = 11, .head_chunks = 2, .dropout = 0.1}}},
    {"gpt without dropout",
     MODEL_gpt,
     {.gpt = {.layers = 3, .heads = 4, .embed = 20, .vocab = 37, .context = 11, .head_chunks = 1}}},
    {"llama",
     MODEL_llama,
     {.llama = {.layers = 3,
                .heads = 4,
                .kv_heads = 2,
                .head_dim = 6,
                .embed = 20,
                .hidden = 28,
                .vocab = 37,
                .context = 11,
                .head_chunks = 2,
                .norm_eps = 1e-2,
                .rope_theta = 100,
                .tied = true}}},
    {"llama with all that its families add",
     MODEL_llama,
     {.llama = {.layers = 3,
                .heads = 4,
                .kv_heads = 1,
                .head_dim = 10,
                .embed = 20,
                .hidden = 28,
                .vocab = 37,
                .context = 11,
                .head_chunks = 1,
                .norm_eps = 1e-2,
                .rope_theta = 100,
                .rope_scaling = ROPE_LLAMA3,
                .rope_factor = 8,
                .rope_low = 1,
                .rope_high = 4,
                .rope_original = 7,
                .bias = LLAMA_BIAS_ALL,
                .qk_norm = true,
                .window = 5}}},
    {"gemma",
     MODEL_gemma,
     {.gemma = {.layers = 3,
                .heads = 4,
                .kv_heads = 2,
                .head_dim = 6,
                .embed = 20,
                .hidden = 28,
                .vocab = 37,
                .context = 11,
                .head_chunks = 2,
                .pattern = 2,
                .window = 5,
                .norm_eps = 1e-2,
                .rope_theta = 5000,
                .rope_factor = 8,
                .local_theta = 100}}},
    {"mlp relu", MODEL_mlp, {.mlp = {.inputs = 21, .classes = 6, .hidden = "17 33 9", .activation = MLP_RELU}}},
    {"mlp gelu", MODEL_mlp, {.mlp = {.inputs = 21, .classes = 6, .hidden = "17 33 9", .activation = MLP_GELU}}},
    {"mlp without hidden layers", MODEL_mlp, {.mlp = {.inputs = 21, .classes = 6, .hidden = "  "}}},
};
enum { KINDS = sizeof kinds / sizeof *kinds, FIRST_MLP = 5 };

// A model with its memory, its weights and MICROS micro-batches of made-up samples.
typedef struct rig {
    device *dev;
    stream *s;
    model *m;
    arena memory;
    flow flow;
    recomputation recompute;
    bool halves;
    tensor in[MICROS][MODEL_INPUTS], w[MOST], dw[MOST], losses, metrics, step;
    double loss[MICROS][B];
} rig;

static void declare_rows(rig *r, dtype compute) {
    for (int i = 0; i < r->m->params; i++) {
        const param *p = &r->m->param[i];
        int64_t rows = p->rows_in_memory ? p->rows_in_memory : p->size[0];
        for (int k = 0; k < 2; k++)
            OK(arena_tensor(&r->memory, k ? &r->dw[i] : &r->w[i], k ? FP32 : compute, p->dims, rows, p->size[1], 1, 1));
    }
}

static void declare_samples(rig *r) {
    for (int n = 0; n < MICROS; n++)
        for (int i = 0; i < r->m->inputs; i++) {
            const tensor_spec *x = &r->m->input[i];
            OK(arena_tensor(&r->memory, &r->in[n][i], x->type, 1 + x->dims, B, x->size[0], x->size[1], x->size[2]));
        }
}

static void fill_samples(rig *r) {
    source *s;
    OK(made_up_open(&s, &(source_options){.wanted = r->m->input, .inputs = r->m->inputs}, 4, MICROS * B));
    for (int n = 0; n < MICROS * B; n++) {
        void *to[MODEL_INPUTS];
        for (int i = 0; i < r->m->inputs; i++)
            to[i] = (char *)r->in[n / B][i].data + (size_t)(n % B) * spec_bytes(&r->m->input[i]);
        OK(source_look(s, n, to));
    }
    source_close(s);
}

// Biases too: zeros would hide a bias that is left out.
static void fill_weights(rig *r) {
    for (int i = 0; i < r->m->params; i++) {
        param *p = &r->m->param[i];
        int64_t n = shape_count(p->dims, p->size);
        float *x = malloc((size_t)n * sizeof *x);
        if (p->init_std == 0) p->init_std = 0.3;
        model_init(r->m, p->tied >= 0 ? p->tied : i, 9, 0, n, x);
        tensor from = {x, FP32, 1, {n, 1, 1, 1}}, to = view1(&r->w[i], n);
        OK(device_ops(r->dev)->cast(&(cast_args){.y = &to, .x = &from}, r->s));
        r->w[i].size[0] = r->dw[i].size[0] = p->size[0];
        free(x);
    }
}

static void rig_open(rig *r, const kind *k, dtype compute, int slots, recomputation recompute, bool halves) {
    any_options o = k->o;
    model_rule rule = {.micro = B};
    int each[MOST];
    for (int i = 0; i < MOST; i++) each[i] = slots;
    model_plan plan = {.compute = compute, .B = B, .slots = each, .recompute = recompute, .halves = halves};
    *r = (rig){.recompute = recompute, .halves = halves};
    OK(device_open(&r->dev, &(device_options){.kind = DEVICE_CPU, .threads = 2}));
    OK(stream_open(r->dev, &r->s));
    OK(model_types[k->type]->resolve(&o, &rule));
    OK(model_open(&r->m, model_types[k->type], &o));
    assert_true(r->m->params <= MOST);
    arena_open(&r->memory, r->dev, MEMORY_DEVICE);
    OK(flow_declare(&r->flow, r->m, &r->memory, &plan));
    OK(model_declare(r->m, &r->memory, &plan));
    OK(arena_2d(&r->memory, &r->losses, FP32, B, r->m->losses));
    OK(arena_2d(&r->memory, &r->metrics, FP64, MODEL_METRICS, B));
    OK(arena_1d(&r->memory, &r->step, INT32, (int64_t)(sizeof(step_state) + 3) / 4));
    declare_rows(r, compute);
    declare_samples(r);
    OK(arena_commit(&r->memory));
    memset(r->memory.base, 0, r->memory.bytes);
    OK(model_fill(r->m, r->s));
    flow_link(&r->flow);
    ((step_state *)r->step.data)->loss_scale = 1;
    fill_samples(r);
    fill_weights(r);
}

static void rig_close(rig *r) {
    flow_close(&r->flow);
    arena_close(&r->memory);
    model_close(r->m);
    stream_close(r->s);
    device_close(r->dev);
}

// Micro-batch n in a slot.
static pass pass_of(rig *r, int n, int slot) {
    pass p = {.ops = device_ops(r->dev),
              .s = r->s,
              .B = B,
              .slot = slot,
              .w = r->w,
              .dw = r->dw,
              .state = r->step.data,
              .loss_factor = 1.0f / (float)(B * r->m->losses),
              .losses = r->losses,
              .drop = {.seed = 3, .step = 1, .first_sample = (uint32_t)(n * B), .p = (float)r->m->dropout}};
    for (int i = 0; i < r->m->inputs; i++) p.in[i] = r->in[n][i];
    flow_use(&r->flow, &p);
    return p;
}

static void take_losses(rig *r, int n) {
    const float *loss = r->losses.data;
    for (int b = 0; b < B; b++)
        for (int64_t i = 0; i < r->m->losses; i++) r->loss[n][b] += loss[b * r->m->losses + i] / (double)r->m->losses;
}

// --- orders ----------------------------------------------------------------------------------------------------------

// One after the other, all blocks at once.
static void run_plainly(rig *r) {
    for (int n = 0; n < MICROS; n++) {
        pass p = pass_of(r, n, 0);
        OK(model_forward(r->m, &p));
        OK(model_backward(r->m, &p));
        take_losses(r, n);
    }
}

// All forward before any backward, as a pipeline's first stage may; block by block.
static void run_together(rig *r) {
    for (int n = 0; n < MICROS; n++) {
        pass p = pass_of(r, n, n);
        for (int b = 0; b < r->m->blocks; b++) OK(model_run(r->m, PASS_FORWARD, b, b, &p));
    }
    for (int n = 0; n < MICROS; n++) {
        pass p = pass_of(r, n, n);
        for (int b = r->m->blocks - 1; b >= 0; b--) {
            OK(model_run(r->m, PASS_BACKWARD, b, b, &p));
            if (b == r->m->blocks - 1) take_losses(r, n);
        }
    }
}

// Of a block that has halves the first one leaves the gradients of matrices alone.
static void expect_no_matrices(const rig *r) {
    for (int i = 0; i < r->m->params; i++) {
        const float *dw = r->dw[i].data;
        if (r->m->param[i].dims < 2 || !block_has_halves(&r->m->block[r->m->param[i].block], r->recompute)) continue;
        for (int64_t e = 0; e < tensor_count(&r->dw[i]); e++)
            if (dw[e] != 0) fail_msg("the half for inputs forms the gradient of %s", r->m->param[i].name);
    }
}

// Backward in halves: a micro-batch's gradients of weights wait until the next one's inputs are done.
static void run_halves(rig *r) {
    for (int n = 0; n <= MICROS; n++) {
        pass now = pass_of(r, n % MICROS, n % MICROS),
             before = pass_of(r, (n + MICROS - 1) % MICROS, (n + MICROS - 1) % MICROS);
        if (n < MICROS) {
            OK(model_forward(r->m, &now));
            OK(model_run(r->m, PASS_INPUTS, 0, r->m->blocks - 1, &now));
            if (n == 0 && r->halves) expect_no_matrices(r);
            take_losses(r, n);
        }
        if (n > 0) OK(model_run(r->m, PASS_WEIGHTS, 0, r->m->blocks - 1, &before));
    }
}

static void expect_same(const rig *a, const rig *b, const char *kind, const char *what) {
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    for (int i = 0; i < a->m->params; i++) {
        assert_true(tensor_bytes(&a->dw[i]) == tensor_bytes(&b->dw[i]));
        if (memcmp(a->dw[i].data, b->dw[i].data, tensor_bytes(&a->dw[i])) != 0)
            fail_msg("%s, %s: the gradient of %s is another", kind, what, a->m->param[i].name);
    }
}

static void orders_of(const kind *k, dtype compute, recomputation recompute) {
    static const struct {
        const char *what;
        void (*run)(rig *r);
        bool halves;
    } orders[] = {{"all forward first", run_together, false},
                  {"halves", run_halves, true},
                  {"halves, and none were planned", run_halves, false},
                  {"no halves, and they were planned", run_together, true}};
    rig plain, other;
    rig_open(&plain, k, compute, 1, recompute, false);
    run_plainly(&plain);
    double size = 0;
    for (int i = 0; i < plain.m->params; i++)
        for (int64_t e = 0; e < tensor_count(&plain.dw[i]); e++) size += fabs(((float *)plain.dw[i].data)[e]);
    assert_true(size > 0 && isfinite(size));
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        rig_open(&other, k, compute, MICROS, recompute, orders[i].halves);
        orders[i].run(&other);
        expect_same(&plain, &other, k->name, orders[i].what);
        rig_close(&other);
    }
    rig_close(&plain);
}

static void no_order_of_a_schedule_moves_a_bit(void **state) {
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (int recompute = RECOMPUTE_NONE; recompute <= RECOMPUTE_BLOCK; recompute++)
            for (int type = FP32; type <= FP16; type++) orders_of(&kinds[k], (dtype)type, (recomputation)recompute);
}

static int64_t place(int64_t elements, dtype type) {
    return ((int64_t)((size_t)elements * dtype_bytes(type)) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

// What halves add at most, with all layers in all slots: two gradients of the residual stream, and that of what is
// widest. Room that a layer has to spare may hold some of it.
static int64_t most_for_halves(const kind *k, dtype type) {
    int64_t layers = k->o.llama.layers, N = B * k->o.llama.context, C = k->o.llama.embed, wide = 0;
    if (k->type == MODEL_gpt) layers = k->o.gpt.layers, N = B * k->o.gpt.context, C = k->o.gpt.embed, wide = 4 * C;
    else if (k->type == MODEL_gemma) {
        layers = k->o.gemma.layers, N = B * k->o.gemma.context, C = k->o.gemma.embed;
        wide = (k->o.gemma.heads + 2 * k->o.gemma.kv_heads) * k->o.gemma.head_dim;
    } else wide = (k->o.llama.heads + 2 * k->o.llama.kv_heads) * k->o.llama.head_dim;
    return layers * MICROS * (2 * place(N * C, type) + place(N * wide, type)) + ARENA_ALIGN;
}

// A perceptron's hidden layers keep the gradient before the activation; without halves they share one.
static int64_t perceptron_halves(const model *m, dtype type) {
    int64_t sum = 0, most = 0;
    for (int b = 0; b < m->blocks - 1; b++) {
        int64_t bytes = place(B * m->block[b].size[0], type);
        sum += MICROS * bytes;
        if (bytes > most) most = bytes;
    }
    return sum - most;
}

static void halves_keep_so_many_bytes(void **state) {
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (int recompute = RECOMPUTE_NONE; recompute <= RECOMPUTE_BLOCK; recompute++)
            for (int type = FP32; type <= FP16; type++) {
                int64_t bytes[2], least = 0, most = 0;
                for (int halves = 0; halves < 2; halves++) {
                    rig r;
                    rig_open(&r, &kinds[k], (dtype)type, MICROS, (recomputation)recompute, halves);
                    bytes[halves] = (int64_t)r.memory.bytes;
                    if (k >= FIRST_MLP) least = most = perceptron_halves(r.m, (dtype)type);
                    rig_close(&r);
                }
                if (k < FIRST_MLP && recompute == RECOMPUTE_NONE)
                    least = 1, most = most_for_halves(&kinds[k], (dtype)type);
                if (bytes[1] - bytes[0] < least || bytes[1] - bytes[0] > most)
                    fail_msg("%s, type %d, recompute %d: halves keep %d bytes, expected %d to %d", kinds[k].name, type,
                             recompute, (int)(bytes[1] - bytes[0]), (int)least, (int)most);
            }
}

// The head of a range leaves in x what the next range reads: another model with the same weights goes on from it.
static void another_rank_may_go_on(void **state) {
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        rig whole, part[2];
        rig_open(&whole, &kinds[k], FP32, 1, RECOMPUTE_NONE, false);
        run_plainly(&whole);
        for (int cut = 1; cut < whole.m->blocks; cut++) {
            for (int i = 0; i < 2; i++) rig_open(&part[i], &kinds[k], FP32, 1, RECOMPUTE_NONE, false);
            for (int n = 0; n < MICROS; n++) {
                pass p = pass_of(&part[0], n, 0), q = pass_of(&part[1], n, 0);
                size_t bytes = tensor_bytes(&p.x[cut - 1]);
                OK(model_run(part[0].m, PASS_FORWARD, 0, cut - 1, &p));
                memcpy(q.x[cut - 1].data, p.x[cut - 1].data, bytes);
                OK(model_run(part[1].m, PASS_FORWARD, cut, whole.m->blocks - 1, &q));
                OK(model_run(part[1].m, PASS_BACKWARD, cut, whole.m->blocks - 1, &q));
                memcpy(p.dx[cut - 1].data, q.dx[cut - 1].data, bytes);
                OK(model_run(part[0].m, PASS_BACKWARD, 0, cut - 1, &p));
                take_losses(&part[1], n);
            }
            for (int i = 0; i < whole.m->params; i++) {
                const rig *r = &part[whole.m->param[i].block >= cut];
                assert_memory_equal(r->dw[i].data, whole.dw[i].data, tensor_bytes(&whole.dw[i]));
            }
            assert_memory_equal(part[1].loss, whole.loss, sizeof whole.loss);
            for (int i = 0; i < 2; i++) rig_close(&part[i]);
        }
        rig_close(&whole);
    }
}

// --- the perceptron in double ----------------------------------------------------------------------------------------

static double gelu(double x) { return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

typedef struct truth {
    double loss;
    int hit;
} truth;

// Sample b of micro-batch n; element e of row i is moved by `by`.
static truth mlp_truth(const rig *r, const mlp_options *o, int n, int b, int i, int64_t e, double by) {
    double x[64], y[64], sum = 0;
    int layers = r->m->blocks, inputs = (int)o->inputs;
    const float *pixels = (const float *)r->in[n][0].data + b * inputs;
    for (int k = 0; k < inputs; k++) x[k] = pixels[k];
    for (int l = 0; l < layers; l++) {
        const float *w = r->w[2 * l].data, *c = r->w[2 * l + 1].data;
        int outputs = (int)r->m->param[2 * l].size[0];
        for (int j = 0; j < outputs; j++) {
            y[j] = c[j] + (i == 2 * l + 1 && e == j ? by : 0);
            for (int k = 0; k < inputs; k++)
                y[j] += x[k] * (w[j * inputs + k] + (i == 2 * l && e == j * inputs + k ? by : 0));
        }
        for (int j = 0; j < outputs; j++)
            x[j] = l == layers - 1 ? y[j] : o->activation == MLP_GELU ? gelu(y[j]) : y[j] > 0 ? y[j] : 0;
        inputs = outputs;
    }
    int label = ((const int32_t *)r->in[n][1].data)[b], best = 0;
    for (int j = 0; j < inputs; j++) sum += exp(x[j]);
    for (int j = 1; j < inputs; j++) best = x[j] > x[best] ? j : best;
    return (truth){log(sum) - x[label], best == label};
}

static double mean_loss(const rig *r, const mlp_options *o, int i, int64_t e, double by) {
    double sum = 0;
    for (int n = 0; n < MICROS; n++)
        for (int b = 0; b < B; b++) sum += mlp_truth(r, o, n, b, i, e, by).loss / B;
    return sum;
}

static void gradients_are_the_slopes_of_the_loss(void **state) {
    (void)state;
    const double H = 1e-5;
    for (int k = FIRST_MLP; k < KINDS; k++) {
        const mlp_options *o = &kinds[k].o.mlp;
        rig r;
        rig_open(&r, &kinds[k], FP32, 1, RECOMPUTE_NONE, false);
        run_plainly(&r);
        for (int n = 0; n < MICROS; n++)
            for (int b = 0; b < B; b++) assert_true(fabs(r.loss[n][b] - mlp_truth(&r, o, n, b, -1, 0, 0).loss) < 1e-5);
        for (int i = 0; i < r.m->params; i++)
            for (int64_t e = 0; e < tensor_count(&r.dw[i]); e += 1 + tensor_count(&r.dw[i]) / 29) {
                double slope = (mean_loss(&r, o, i, e, H) - mean_loss(&r, o, i, e, -H)) / (2 * H),
                       found = ((float *)r.dw[i].data)[e];
                if (!(fabs(slope - found) <= 2e-5 * (1 + fabs(slope))))
                    fail_msg("%s: %s[%d]: %.8f, expected %.8f", kinds[k].name, r.m->param[i].name, (int)e, found,
                             slope);
            }
        rig_close(&r);
    }
}

static void accuracy_counts_the_samples_that_are_right(void **state) {
    (void)state;
    int right = 0, wrong = 0;
    for (int k = FIRST_MLP; k < KINDS; k++) {
        rig r;
        rig_open(&r, &kinds[k], FP32, 1, RECOMPUTE_NONE, false);
        assert_int_equal(r.m->metrics, 1);
        assert_string_equal(r.m->metric[0], "accuracy");
        for (int n = 0; n < MICROS; n++) {
            pass p = pass_of(&r, n, 0);
            p.dw = NULL;
            p.metrics = view2(&r.metrics, 1, B);
            OK(model_forward(r.m, &p));
            for (int b = 0; b < B; b++) {
                truth t = mlp_truth(&r, &kinds[k].o.mlp, n, b, -1, 0, 0);
                assert_true(((double *)r.metrics.data)[b] == t.hit);
                assert_true(fabs(((float *)r.losses.data)[b] - t.loss) < 1e-5);
                right += t.hit, wrong += !t.hit;
            }
        }
        rig_close(&r);
    }
    assert_true(right > 0 && wrong > 0);
}

// --- a new model -----------------------------------------------------------------------------------------------------

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), e = strlen(end);
    return n >= e && strcmp(name + n - e, end) == 0;
}

// GPT-2's: normal(0, 0.02), what leads back into the residual stream divided by the square root of the additions to it,
// two a layer; gains of norms 1, biases 0. Gemma's gains are 1 + w, and norms follow what leads back: its scale is one.
static void first_values(const kind *k, const param *p, double *mean, double *std) {
    int64_t layers = k->type == MODEL_gpt ? k->o.gpt.layers : k->o.llama.layers;
    bool gain = strstr(p->name, "norm") || strstr(p->name, "ln_"), bias = ends_with(p->name, "bias");
    bool back = ends_with(p->name, "c_proj.weight") || ends_with(p->name, "o_proj.weight") ||
                ends_with(p->name, "down_proj.weight");
    *mean = gain && !bias && k->type != MODEL_gemma ? 1 : 0;
    *std = gain || bias ? 0 : back && k->type != MODEL_gemma ? 0.02 / sqrt(2.0 * (double)layers) : 0.02;
}

static void a_new_model_begins_as_gpt_2(void **state) {
    (void)state;
    for (int k = 0; k < FIRST_MLP; k++) {
        any_options o = kinds[k].o;
        model_rule rule = {.micro = B};
        model *m;
        OK(model_types[kinds[k].type]->resolve(&o, &rule));
        OK(model_open(&m, model_types[kinds[k].type], &o));
        for (int i = 0; i < m->params; i++) {
            const param *p = &m->param[i];
            int64_t n = p->tied >= 0 ? 0 : shape_count(p->dims, p->size);
            double mean, std, sum = 0, squares = 0;
            float *x = malloc((size_t)n * sizeof *x + 1);
            first_values(&kinds[k], p, &mean, &std);
            model_init(m, i, 7, 0, n, x);
            for (int64_t e = 0; e < n; e++) sum += x[e] - mean, squares += (x[e] - mean) * (x[e] - mean);
            if (n && !(fabs(sum / (double)n) <= std / 4 && fabs(sqrt(squares / (double)n) - std) <= std / 5))
                fail_msg("%s: %s has a mean of %g and a deviation of %g from %g, expected %g", kinds[k].name, p->name,
                         mean + sum / (double)n, sqrt(squares / (double)n), mean, std);
            free(x);
        }
        model_close(m);
    }
}

// --- sums ------------------------------------------------------------------------------------------------------------

// The gradients of micro-batch 1: alone, or added to what dw has.
static void run_one(rig *r, bool fresh) {
    pass p = pass_of(r, 1, 0);
    p.fresh = fresh;
    OK(model_forward(r->m, &p));
    OK(model_backward(r->m, &p));
}

// Elements that are not, to the last bit, the sum of two numbers: what was there before the pass, and its gradient.
static int64_t added_in_parts(rig *r) {
    float *alone[MOST];
    int64_t parts = 0;
    run_one(r, true);
    for (int i = 0; i < r->m->params; i++) {
        float *dw = r->dw[i].data;
        assert_non_null(alone[i] = malloc(tensor_bytes(&r->dw[i])));
        memcpy(alone[i], dw, tensor_bytes(&r->dw[i]));
        for (int64_t e = 0; e < tensor_count(&r->dw[i]); e++) dw[e] = 0.013f * (float)(e % 97 - 48);
    }
    run_one(r, false);
    for (int i = 0; i < r->m->params; i++) {
        const float *dw = r->dw[i].data;
        for (int64_t e = 0; e < tensor_count(&r->dw[i]); e++)
            parts += dw[e] != 0.013f * (float)(e % 97 - 48) + alone[i][e];
        free(alone[i]);
    }
    return parts;
}

// Lanes and token slices are joined without a buffer of their own where a model says that a pass adds to each element
// once.
static void what_adds_once_adds_once(void **state) {
    (void)state;
    int once = 0;
    for (int k = 0; k < KINDS; k++) {
        rig r;
        rig_open(&r, &kinds[k], FP32, 1, RECOMPUTE_NONE, false);
        int64_t parts = added_in_parts(&r);
        if (r.m->adds_once && parts)
            fail_msg("%s: a pass adds more than once to %d elements of its gradients", kinds[k].name, (int)parts);
        if (!r.m->adds_once && !parts)
            fail_msg("%s: a pass adds once to each element of its gradients, and the model denies it", kinds[k].name);
        once += r.m->adds_once;
        rig_close(&r);
    }
    assert_true(once > 0 && once < KINDS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_order_of_a_schedule_moves_a_bit),
        cmocka_unit_test(halves_keep_so_many_bytes),
        cmocka_unit_test(another_rank_may_go_on),
        cmocka_unit_test(gradients_are_the_slopes_of_the_loss),
        cmocka_unit_test(accuracy_counts_the_samples_that_are_right),
        cmocka_unit_test(a_new_model_begins_as_gpt_2),
        cmocka_unit_test(what_adds_once_adds_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
