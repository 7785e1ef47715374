// test/test_model.c: the seam between a model and its caller. Blocks may be run in ranges, with several micro-batches
// under way, and backward in two halves: none of it moves a bit. Halves keep so many bytes more, and no others do. And
// the gradients of the multilayer perceptron are the slopes of its loss, computed here in double.
#include "test/support/models.h"

enum { B = 5, MICROS = 3 };

typedef struct kind {
    const char *name;
    int type;
    any_options o;
} kind;

static const kind kinds[] = {
    {"gpt", MODEL_gpt, {.gpt = {GPT_OPTIONS(3, 2, 24, 37, 11, 2), .dropout = 0.1}}},
    {"gpt without dropout", MODEL_gpt, {.gpt = {GPT_OPTIONS(3, 4, 20, 37, 11, 1)}}},
    {"llama", MODEL_llama, {.llama = {LLAMA_OPTIONS(3, 11, 2)}}},
    {"llama with all that its families add", MODEL_llama, {.llama = {LLAMA_WITH_ALL(3, 4, 1, 37), STRETCHED_ROPE}}},
    {"gemma", MODEL_gemma, {.gemma = {GEMMA_OPTIONS(3)}}},
    {"bert", MODEL_bert, {.bert = {BERT_OPTIONS(3, 11), .dropout = 0.1}}},
    {"bert of classes", MODEL_bert, {.bert = {BERT_OPTIONS(2, 11), .task = BERT_CLASSIFY}}},
    {"bert of numbers", MODEL_bert, {.bert = {BERT_OPTIONS(2, 11), .task = BERT_REGRESS}}},
    {"bert of pairs", MODEL_bert, {.bert = {BERT_OPTIONS(2, 11), .next_sentence = true}}},
    {"t5", MODEL_t5, {.t5 = {T5_OPTIONS(2, 2), .dropout = 0.1}}},
    {"t5 1.0", MODEL_t5, {.t5 = {T5_OPTIONS(1, 2), .activation = T5_RELU, .tied = true}}},
    {"mlp relu", MODEL_mlp, {.mlp = {.inputs = 21, .classes = 6, .hidden = "17 33 9", .activation = MLP_RELU}}},
    {"mlp gelu", MODEL_mlp, {.mlp = {.inputs = 21, .classes = 6, .hidden = "17 33 9", .activation = MLP_GELU}}},
    {"mlp without hidden layers", MODEL_mlp, {.mlp = {.inputs = 21, .classes = 6, .hidden = "  "}}},
};
enum { KINDS = sizeof kinds / sizeof *kinds, FIRST_MLP = 11 };

// A model with its memory, its weights and MICROS micro-batches of made-up samples.
typedef struct rig {
    net net;
    recomputation recompute;
    bool halves;
    tensor in[MICROS][MODEL_INPUTS], w[MOST], dw[MOST];
    double loss[MICROS][B];
} rig;

static void declare_rows(rig *r, dtype compute) {
    for (int i = 0; i < r->net.m->params; i++) {
        const param *p = &r->net.m->param[i];
        int64_t rows = p->rows_in_memory ? p->rows_in_memory : p->size[0];
        for (int k = 0; k < 2; k++)
            OK(arena_tensor(&r->net.memory, k ? &r->dw[i] : &r->w[i], k ? FP32 : compute, p->dims, rows, p->size[1], 1,
                            1));
    }
}

static void rig_open(rig *r, const kind *k, dtype compute, int slots, recomputation recompute, bool halves) {
    model_plan plan = {.compute = compute, .B = B, .recompute = recompute, .halves = halves};
    *r = (rig){.recompute = recompute, .halves = halves};
    net_open(&r->net, k->type, &k->o, &(model_rule){.micro = B}, plan, slots, 2);
    declare_rows(r, compute);
    declare_inputs(&r->net, r->in, MICROS, B);
    net_commit(&r->net, 0);
    ((step_state *)r->net.step.data)->loss_scale = 1;
    fill_inputs(&r->net, r->in, MICROS, B);
    for (int i = 0; i < r->net.m->params; i++) {
        fill_param(&r->net, i, &r->w[i]);
        r->w[i].size[0] = r->dw[i].size[0] = r->net.m->param[i].size[0];
    }
}

static void rig_close(rig *r) { net_close(&r->net); }

// Micro-batch n in a slot.
static pass pass_of(rig *r, int n, int slot) {
    pass p = {.ops = device_ops(r->net.dev),
              .s = r->net.s,
              .B = B,
              .slot = slot,
              .w = r->w,
              .dw = r->dw,
              .state = r->net.step.data,
              .loss_factor = 1.0f / (float)(B * r->net.m->losses),
              .losses = r->net.losses,
              .drop = {.seed = 3, .step = 1, .first_sample = (uint32_t)(n * B), .p = (float)r->net.m->dropout}};
    for (int i = 0; i < r->net.m->inputs; i++) p.in[i] = r->in[n][i];
    flow_use(&r->net.flow, &p);
    return p;
}

static void take_losses(rig *r, int n) {
    const float *loss = r->net.losses.data;
    for (int b = 0; b < B; b++)
        for (int64_t i = 0; i < r->net.m->losses; i++)
            r->loss[n][b] += loss[b * r->net.m->losses + i] / (double)r->net.m->losses;
}

// --- orders ----------------------------------------------------------------------------------------------------------

// One after the other, all blocks at once.
static void run_plainly(rig *r) {
    for (int n = 0; n < MICROS; n++) {
        pass p = pass_of(r, n, 0);
        OK(model_forward(r->net.m, &p));
        OK(model_backward(r->net.m, &p));
        take_losses(r, n);
    }
}

// All forward before any backward, as a pipeline's first stage may; block by block.
static void run_together(rig *r) {
    for (int n = 0; n < MICROS; n++) {
        pass p = pass_of(r, n, n);
        for (int b = 0; b < r->net.m->blocks; b++) OK(model_run(r->net.m, PASS_FORWARD, b, b, &p));
    }
    for (int n = 0; n < MICROS; n++) {
        pass p = pass_of(r, n, n);
        for (int b = r->net.m->blocks - 1; b >= 0; b--) {
            OK(model_run(r->net.m, PASS_BACKWARD, b, b, &p));
            if (b == r->net.m->blocks - 1) take_losses(r, n);
        }
    }
}

// Of a block that has halves the first one leaves the gradients of matrices alone.
static void expect_no_matrices(const rig *r) {
    for (int i = 0; i < r->net.m->params; i++) {
        const float *dw = r->dw[i].data;
        if (r->net.m->param[i].dims < 2 || !block_has_halves(&r->net.m->block[r->net.m->param[i].block], r->recompute))
            continue;
        for (int64_t e = 0; e < tensor_count(&r->dw[i]); e++)
            if (dw[e] != 0) fail_msg("the half for inputs forms the gradient of %s", r->net.m->param[i].name);
    }
}

// Backward in halves: a micro-batch's gradients of weights wait until the next one's inputs are done.
static void run_halves(rig *r) {
    for (int n = 0; n <= MICROS; n++) {
        pass now = pass_of(r, n % MICROS, n % MICROS),
             before = pass_of(r, (n + MICROS - 1) % MICROS, (n + MICROS - 1) % MICROS);
        if (n < MICROS) {
            OK(model_forward(r->net.m, &now));
            OK(model_run(r->net.m, PASS_INPUTS, 0, r->net.m->blocks - 1, &now));
            if (n == 0 && r->halves) expect_no_matrices(r);
            take_losses(r, n);
        }
        if (n > 0) OK(model_run(r->net.m, PASS_WEIGHTS, 0, r->net.m->blocks - 1, &before));
    }
}

static void expect_same(const rig *a, const rig *b, const char *kind, const char *what) {
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    for (int i = 0; i < a->net.m->params; i++) {
        assert_true(tensor_bytes(&a->dw[i]) == tensor_bytes(&b->dw[i]));
        if (memcmp(a->dw[i].data, b->dw[i].data, tensor_bytes(&a->dw[i])) != 0)
            fail_msg("%s, %s: the gradient of %s is another", kind, what, a->net.m->param[i].name);
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
    for (int i = 0; i < plain.net.m->params; i++)
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
    } else if (k->type == MODEL_bert) {
        // beside the stream's gradients, that of the MLP's product and of queries, keys and values
        layers = k->o.bert.layers, N = B * k->o.bert.context, C = k->o.bert.embed, wide = 3 * C + k->o.bert.hidden;
    } else if (k->type == MODEL_t5) {
        // no schedule has halves of it: at most the gradients of all its products
        layers = k->o.t5.layers + k->o.t5.decoder_layers, N = 2 * B * k->o.t5.context, C = k->o.t5.embed;
        wide = 6 * k->o.t5.heads * k->o.t5.head_dim + 2 * k->o.t5.hidden + 3 * C;
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
                    bytes[halves] = (int64_t)r.net.memory.bytes;
                    if (k >= FIRST_MLP) least = most = perceptron_halves(r.net.m, (dtype)type);
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
        for (int cut = 1; cut < whole.net.m->blocks; cut++) {
            for (int i = 0; i < 2; i++) rig_open(&part[i], &kinds[k], FP32, 1, RECOMPUTE_NONE, false);
            for (int n = 0; n < MICROS; n++) {
                pass p = pass_of(&part[0], n, 0), q = pass_of(&part[1], n, 0);
                size_t bytes = tensor_bytes(&p.x[cut - 1]);
                OK(model_run(part[0].net.m, PASS_FORWARD, 0, cut - 1, &p));
                memcpy(q.x[cut - 1].data, p.x[cut - 1].data, bytes);
                OK(model_run(part[1].net.m, PASS_FORWARD, cut, whole.net.m->blocks - 1, &q));
                OK(model_run(part[1].net.m, PASS_BACKWARD, cut, whole.net.m->blocks - 1, &q));
                memcpy(p.dx[cut - 1].data, q.dx[cut - 1].data, bytes);
                OK(model_run(part[0].net.m, PASS_BACKWARD, 0, cut - 1, &p));
                take_losses(&part[1], n);
            }
            for (int i = 0; i < whole.net.m->params; i++) {
                const rig *r = &part[whole.net.m->param[i].block >= cut];
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
    int layers = r->net.m->blocks, inputs = (int)o->inputs;
    const float *pixels = (const float *)r->in[n][0].data + b * inputs;
    for (int k = 0; k < inputs; k++) x[k] = pixels[k];
    for (int l = 0; l < layers; l++) {
        const float *w = r->w[2 * l].data, *c = r->w[2 * l + 1].data;
        int outputs = (int)r->net.m->param[2 * l].size[0];
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
        for (int i = 0; i < r.net.m->params; i++)
            for (int64_t e = 0; e < tensor_count(&r.dw[i]); e += 1 + tensor_count(&r.dw[i]) / 29) {
                double slope = (mean_loss(&r, o, i, e, H) - mean_loss(&r, o, i, e, -H)) / (2 * H),
                       found = ((float *)r.dw[i].data)[e];
                if (!(fabs(slope - found) <= 2e-5 * (1 + fabs(slope))))
                    fail_msg("%s: %s[%d]: %.8f, expected %.8f", kinds[k].name, r.net.m->param[i].name, (int)e, found,
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
        assert_int_equal(r.net.m->metrics, 1);
        assert_string_equal(r.net.m->metric[0], "accuracy");
        for (int n = 0; n < MICROS; n++) {
            pass p = pass_of(&r, n, 0);
            p.dw = NULL;
            p.metrics = view2(&r.net.metrics, 1, B);
            OK(model_forward(r.net.m, &p));
            for (int b = 0; b < B; b++) {
                truth t = mlp_truth(&r, &kinds[k].o.mlp, n, b, -1, 0, 0);
                assert_true(((double *)r.net.metrics.data)[b] == t.hit);
                assert_true(fabs(((float *)r.net.losses.data)[b] - t.loss) < 1e-5);
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
    bool gain = strstr(p->name, "norm") || strstr(p->name, "LayerNorm") || strstr(p->name, "ln_"),
         bias = ends_with(p->name, "bias");
    bool back = ends_with(p->name, "c_proj.weight") || ends_with(p->name, "o_proj.weight") ||
                ends_with(p->name, "down_proj.weight");
    *mean = gain && !bias && k->type != MODEL_gemma ? 1 : 0;
    *std = gain || bias ? 0 : back && k->type != MODEL_gemma ? 0.02 / sqrt(2.0 * (double)layers) : 0.02;
}

// T5's: the embedding normal(0, 1), and products as wide as keeps what they give of one size.
static void first_of_t5(const t5_options *o, const param *p, double *std) {
    int64_t fan = o->embed;
    if (p->dims == 1) return;
    if (ends_with(p->name, ".q.weight")) fan = o->embed * o->head_dim;
    if (ends_with(p->name, ".o.weight")) fan = o->heads * o->head_dim;
    if (ends_with(p->name, ".wo.weight")) fan = o->hidden;
    *std = strcmp(p->name, "shared.weight") == 0 ? 1 : 1 / sqrt((double)fan);
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
            double mean, std, sum = 0, squares = 0, wide = n < 64 ? 2 : 1;  // few elements are farther off
            float *x = malloc((size_t)n * sizeof *x + 1);
            first_values(&kinds[k], p, &mean, &std);
            if (kinds[k].type == MODEL_t5) first_of_t5(&o.t5, p, &std);
            model_init(m, i, 7, 0, n, x);
            for (int64_t e = 0; e < n; e++) sum += x[e] - mean, squares += (x[e] - mean) * (x[e] - mean);
            if (n &&
                !(fabs(sum / (double)n) <= wide * std / 4 && fabs(sqrt(squares / (double)n) - std) <= wide * std / 5))
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
    OK(model_forward(r->net.m, &p));
    OK(model_backward(r->net.m, &p));
}

// Elements that are not, to the last bit, the sum of two numbers: what was there before the pass, and its gradient.
static int64_t added_in_parts(rig *r) {
    float *alone[MOST];
    int64_t parts = 0;
    run_one(r, true);
    for (int i = 0; i < r->net.m->params; i++) {
        float *dw = r->dw[i].data;
        assert_non_null(alone[i] = malloc(tensor_bytes(&r->dw[i])));
        memcpy(alone[i], dw, tensor_bytes(&r->dw[i]));
        for (int64_t e = 0; e < tensor_count(&r->dw[i]); e++) dw[e] = 0.013f * (float)(e % 97 - 48);
    }
    run_one(r, false);
    for (int i = 0; i < r->net.m->params; i++) {
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
        if (r.net.m->adds_once && parts)
            fail_msg("%s: a pass adds more than once to %d elements of its gradients", kinds[k].name, (int)parts);
        if (!r.net.m->adds_once && !parts)
            fail_msg("%s: a pass adds once to each element of its gradients, and the model denies it", kinds[k].name);
        once += r.net.m->adds_once;
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
