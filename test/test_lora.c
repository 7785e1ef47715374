// test/test_lora.c: adapters beside frozen weights. Beside a model with adapters stands one without, whose weights are
// W + alpha / rank * B A: it must have the same losses, and by the chain rule its gradient dW gives those of the
// adapters, dA = alpha / rank * B^T dW and dB = alpha / rank * dW A^T. Frozen rows have no gradient: their places
// are NULL here, so that a write would end the test. And values begin as PEFT's. Where what an adapter reads is dropped
// there is no such matrix: gradients are then compared with differences of losses under the same masks.
#include "base/philox.h"
#include "model/dropout.h"
#include "model/foreign.h"
#include "model/peft.h"
#include "test/support/models.h"

enum { B = 3, RANK = 2 };
static const double ALPHA = 6;

typedef struct kind {
    const char *name;
    int type;
    any_options o;
    const char *targets;
} kind;

static const kind kinds[] = {
    {"gpt", MODEL_gpt, {.gpt = {GPT_OPTIONS(2, 2, 24, 37, 11, 2)}}, "c_attn attn.c_proj c_fc mlp.c_proj"},
    {"gpt, the attention alone", MODEL_gpt, {.gpt = {GPT_OPTIONS(2, 4, 20, 37, 11, 1)}}, "c_attn"},
    {"gpt, after a GELU", MODEL_gpt, {.gpt = {GPT_OPTIONS(2, 4, 20, 37, 11, 1)}}, "mlp.c_proj"},
    {"gpt, before a GELU", MODEL_gpt, {.gpt = {GPT_OPTIONS(2, 4, 20, 37, 11, 1)}}, "c_fc"},
    {"llama", MODEL_llama, {.llama = {LLAMA_OPTIONS(2, 11, 2)}}, "q_proj,v_proj"},
    {"llama, all",
     MODEL_llama,
     {.llama = {LLAMA_WITH_ALL(2, 4, 1, 37), STRETCHED_ROPE}},
     "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj"},
    {"llama, by our names", MODEL_llama, {.llama = {LLAMA_OPTIONS(2, 11, 1)}}, "qkv_proj mlp.gate_up_proj"},
    {"gemma", MODEL_gemma, {.gemma = {GEMMA_OPTIONS(2)}}, "k_proj o_proj up_proj"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct rig {
    net net;
    tensor in[1][MODEL_INPUTS], w[2 * MOST], dw[2 * MOST];
    float drops;  // in the next run
    double loss;
} rig;

static void rig_open_with(rig *r, const kind *k, bool adapts, recomputation recompute, bool halves, double dropout) {
    model_adapters is = {.rank = adapts ? RANK : 0, .alpha = ALPHA, .dropout = dropout};
    model_plan plan = {.compute = FP32, .B = B, .recompute = recompute, .halves = halves};
    *r = (rig){0};
    snprintf(is.targets, sizeof is.targets, "%s", k->targets);
    net_open(&r->net, k->type, &k->o, &(model_rule){.micro = B, .adapters = &is}, plan, 1, 2);
    for (int i = 0; i < r->net.m->params; i++) {
        const param *p = &r->net.m->param[i];
        int64_t rows = p->rows_in_memory ? p->rows_in_memory : p->size[0];
        OK(arena_tensor(&r->net.memory, &r->w[i], FP32, p->dims, rows, p->size[1], 1, 1));
        if (!param_is_frozen(p)) OK(arena_tensor(&r->net.memory, &r->dw[i], FP32, p->dims, rows, p->size[1], 1, 1));
    }
    declare_inputs(&r->net, r->in, 1, B);
    net_commit(&r->net, 0);
    ((step_state *)r->net.step.data)->loss_scale = 1;
    fill_inputs(&r->net, r->in, 1, B);
    for (int i = 0; i < r->net.m->params; i++) r->w[i].size[0] = r->net.m->param[i].size[0];
    for (int i = 0; i < r->net.m->params; i++)
        if (r->dw[i].data) r->dw[i].size[0] = r->net.m->param[i].size[0];
}

static void rig_open(rig *r, const kind *k, bool adapts, recomputation recompute, bool halves) {
    rig_open_with(r, k, adapts, recompute, halves, 0);
}

// By its name, so that a row has the same values with adapters and without.
static void fill_row(rig *r, int i) {
    const param *p = &r->net.m->param[i];
    int64_t n = shape_count(p->dims, p->size);
    float *x = r->w[i].data;
    uint64_t word = 88172645463325252u;
    for (const char *c = p->name; *c; c++) word = word * 31 + (uint64_t)*c;
    if (p->tied >= 0) {
        memcpy(x, r->w[p->tied].data, (size_t)n * sizeof *x);
        return;
    }
    for (int64_t e = 0; e < n; e++) {
        word ^= word << 13, word ^= word >> 7, word ^= word << 17;  // Marsaglia 2003
        x[e] = (float)((double)(word >> 40) / 0x1p24 - 0.5) * 0.6f + (p->dims == 1 ? 0.5f : 0);
    }
}

static pass pass_of(rig *r, bool fresh) {
    pass p = {.ops = device_ops(r->net.dev),
              .s = r->net.s,
              .B = B,
              .w = r->w,
              .dw = r->dw,
              .fresh = fresh,
              .state = r->net.step.data,
              .loss_factor = 1.0f / (float)(B * r->net.m->losses),
              .drop = {.seed = 11, .step = 3, .first_sample = 40},
              .drop_adapted = r->drops,
              .losses = r->net.losses};
    for (int i = 0; i < r->net.m->inputs; i++) p.in[i] = r->in[0][i];
    return p;
}

static void run(rig *r, bool halves, bool fresh) {
    pass p = pass_of(r, fresh);
    flow_use(&r->net.flow, &p);
    OK(model_forward(r->net.m, &p));
    if (halves) {
        OK(model_run(r->net.m, PASS_INPUTS, 0, r->net.m->blocks - 1, &p));
        OK(model_run(r->net.m, PASS_WEIGHTS, 0, r->net.m->blocks - 1, &p));
    } else OK(model_backward(r->net.m, &p));
    r->loss = 0;
    for (int64_t i = 0; i < B * r->net.m->losses; i++)
        r->loss += ((float *)r->net.losses.data)[i] / (double)(B * r->net.m->losses);
}

// An adapter: its two rows, and the frozen row with the first of its outputs there.
typedef struct pair {
    int a, b, row;
    int64_t first;
} pair;

// By the names that files have of a row's parts.
static int pairs_of(const rig *r, pair *out) {
    const model *m = r->net.m;
    int n = 0;
    for (int i = 0; i < m->params; i++) {
        weight_part part[WEIGHT_PARTS];
        int64_t first = 0;
        int parts =
            m->param[i].dims == 2 && param_is_frozen(&m->param[i]) ? m->type->parts(m->options, &m->param[i], part) : 0;
        for (int k = 0; k < parts; first += part[k++].rows) {
            char name[2][MODEL_NAME + 16];
            size_t end = strlen(part[k].name) - strlen(".weight");
            for (int x = 0; x < 2; x++)
                snprintf(name[x], sizeof name[x], "%.*s.lora_%c.weight", (int)end, part[k].name, "AB"[x]);
            int a = model_find(m, name[0]);
            if (a >= 0) out[n++] = (pair){a, model_find(m, name[1]), i, first};
        }
    }
    return n;
}

static int same_row(const rig *plain, const rig *adapted, int row) {
    int at = model_find(plain->net.m, adapted->net.m->param[row].name);
    assert_true(at >= 0);
    return at;
}

static void add_adapters(const rig *adapted, rig *plain, const pair *x, int n) {
    for (int k = 0; k < n; k++) {
        const param *a = &adapted->net.m->param[x[k].a], *b = &adapted->net.m->param[x[k].b];
        int64_t I = a->size[1], O = b->size[0];
        float *w = (float *)plain->w[same_row(plain, adapted, x[k].row)].data + x[k].first * I;
        const float *A = adapted->w[x[k].a].data, *Bs = adapted->w[x[k].b].data;
        assert_true(a->size[0] == RANK && b->size[1] == RANK);
        for (int64_t o = 0; o < O; o++)
            for (int64_t i = 0; i < I; i++)
                for (int r = 0; r < RANK; r++) w[o * I + i] += (float)(ALPHA / RANK) * Bs[o * RANK + r] * A[r * I + i];
    }
}

static void expect_near(const char *kind, const char *name, int64_t at, double found, double wanted, double scale) {
    if (fabs(found - wanted) > 2e-5 * scale)
        fail_msg("%s: %s[%lld] is %.9g, expected %.9g", kind, name, (long long)at, found, wanted);
}

static double largest(const float *x, int64_t n) {
    double most = 1e-3;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
    return most;
}

// `times`: passes whose gradients were added.
static void expect_gradients(const kind *k, const rig *adapted, const rig *plain, const pair *x, int times) {
    const model *m = adapted->net.m;
    int64_t I = m->param[x->a].size[1], O = m->param[x->b].size[0];
    const float *A = adapted->w[x->a].data, *Bs = adapted->w[x->b].data, *dA = adapted->dw[x->a].data,
                *dB = adapted->dw[x->b].data,
                *dW = (float *)plain->dw[same_row(plain, adapted, x->row)].data + x->first * I;
    double scale = ALPHA / RANK * times;
    for (int64_t r = 0; r < RANK; r++)
        for (int64_t i = 0; i < I; i++) {
            double sum = 0;
            for (int64_t o = 0; o < O; o++) sum += Bs[o * RANK + r] * (double)dW[o * I + i];
            expect_near(k->name, m->param[x->a].name, r * I + i, dA[r * I + i], scale * sum, largest(dA, RANK * I));
        }
    for (int64_t o = 0; o < O; o++)
        for (int64_t r = 0; r < RANK; r++) {
            double sum = 0;
            for (int64_t i = 0; i < I; i++) sum += dW[o * I + i] * (double)A[r * I + i];
            expect_near(k->name, m->param[x->b].name, o * RANK + r, dB[o * RANK + r], scale * sum,
                        largest(dB, O * RANK));
        }
}

static void compare(const kind *k, recomputation recompute, bool halves) {
    rig adapted, plain;
    pair x[2 * MOST];
    rig_open(&adapted, k, true, recompute, halves);
    rig_open(&plain, k, false, RECOMPUTE_NONE, false);
    for (int i = 0; i < adapted.net.m->params; i++) fill_row(&adapted, i);
    for (int i = 0; i < plain.net.m->params; i++) fill_row(&plain, i);
    int n = pairs_of(&adapted, x);
    assert_true(n >= 2);
    add_adapters(&adapted, &plain, x, n);
    run(&plain, false, true);
    for (int times = 1; times <= 2; times++) {
        run(&adapted, halves, times == 1);
        expect_near(k->name, "loss", 0, adapted.loss, plain.loss, 1);
        for (int i = 0; i < n; i++) expect_gradients(k, &adapted, &plain, &x[i], times);
    }
    net_close(&adapted.net), net_close(&plain.net);
}

static void adapters_are_a_matrix_that_is_added(void **state) {
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (recomputation r = RECOMPUTE_NONE; r <= RECOMPUTE_BLOCK; r++) compare(&kinds[k], r, false);
    for (int k = 0; k < KINDS; k++) compare(&kinds[k], RECOMPUTE_NONE, true);
}

// --- dropout ---------------------------------------------------------------------------------------------------------

static double loss_at(rig *r, int row, const float *at, const float *along, double h) {
    int64_t n = shape_count(r->net.m->param[row].dims, r->net.m->param[row].size);
    float *w = r->w[row].data;
    for (int64_t i = 0; i < n; i++) w[i] = at[i] + (float)(h * along[i]);
    run(r, false, true);
    memcpy(w, at, (size_t)n * sizeof *w);
    return r->loss;
}

// Along a row's own gradient the loss grows by the square of its length.
static void expect_slope(rig *r, const char *kind, int row) {
    int64_t n = shape_count(r->net.m->param[row].dims, r->net.m->param[row].size);
    float *at = malloc((size_t)n * sizeof *at), *g = malloc((size_t)n * sizeof *g);
    double square = 0;
    run(r, false, true);
    memcpy(at, r->w[row].data, (size_t)n * sizeof *at);
    memcpy(g, r->dw[row].data, (size_t)n * sizeof *g);
    for (int64_t i = 0; i < n; i++) square += (double)g[i] * g[i];
    assert_true(square > 0);
    double h = 5e-3 / sqrt(square), found = (loss_at(r, row, at, g, h) - loss_at(r, row, at, g, -h)) / (2 * h);
    if (fabs(found / square - 1) > 0.02)
        fail_msg("%s: %s: the loss grows by %g along a gradient of square %g", kind, r->net.m->param[row].name, found,
                 square);
    free(at), free(g);
}

static void what_they_read_is_dropped(void **state) {
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (recomputation how = RECOMPUTE_NONE; how <= RECOMPUTE_BLOCK; how += RECOMPUTE_BLOCK) {
            rig r, plain;
            pair x[2 * MOST];
            rig_open_with(&r, &kinds[k], true, how, false, 0.3);
            rig_open(&plain, &kinds[k], true, how, false);
            for (int i = 0; i < r.net.m->params; i++) fill_row(&r, i), fill_row(&plain, i);
            int n = pairs_of(&r, x);
            run(&r, false, true), run(&plain, false, true);
            assert_true(r.loss == plain.loss);  // not in training
            r.drops = 0.3f;
            run(&r, false, true);
            assert_true(r.loss != plain.loss);
            for (int i = 0; i < n; i++)
                expect_slope(&r, kinds[k].name, x[i].a), expect_slope(&r, kinds[k].name, x[i].b);
            net_close(&r.net), net_close(&plain.net);
        }
}

// The matrix that is left of ones, (2,2,6) or (4,6), of so many samples from `first` on.
static void masks_of(rig *r, int block, int which, int dims, uint32_t first, float *out) {
    tensor in = view2(&r->in[0][0], 2, 2), y = {out, FP32, dims, {2, 2, 6}};
    pass p = {.ops = device_ops(r->net.dev), .s = r->net.s, .B = 2, .in = {in}};
    if (dims == 2) y.size[0] = 4, y.size[1] = 6;
    p.drop = (dropout_key){.seed = 5, .step = 9, .first_sample = first}, p.drop_adapted = 0.5f;
    for (int i = 0; i < 24; i++) out[i] = 1;
    if (dims == 3) p.B = 1;
    OK(dropout_adapted(r->net.m, &p, block, which, &y, &y));
    OK(stream_wait(r->net.s));
    for (int i = 0; i < 24; i++) assert_true(out[i] == 0 || out[i] == 2);
}

// Every adapter of a block has masks of its own (test_graph: they are numbered), and so has every slice and sample.
static void each_has_its_masks(void **state) {
    rig r;
    float a[24], b[24];
    (void)state;
    rig_open_with(&r, &kinds[5], true, RECOMPUTE_NONE, false, 0.5);
    masks_of(&r, 1, 0, 2, 0, a), masks_of(&r, 1, 0, 2, 0, b);
    assert_memory_equal(a, b, sizeof a);
    masks_of(&r, 1, 1, 2, 0, b);
    assert_memory_not_equal(a, b, sizeof a);
    masks_of(&r, 2, 0, 2, 0, b);
    assert_memory_not_equal(a, b, sizeof a);
    assert_memory_not_equal(a, a + 12, sizeof a / 2);
    masks_of(&r, 1, 0, 2, 1, b);
    assert_memory_equal(a + 12, b, sizeof a / 2);
    masks_of(&r, 1, 0, 3, 0, b);
    assert_memory_equal(a, b, sizeof a / 2);
    assert_memory_not_equal(b, b + 12, sizeof a / 2);
    net_close(&r.net);
}

// What the operations of a pass are called with: the site of each that drops something.
enum { SITES_MOST = 256 };
typedef struct sites {
    const ops *real;
    int n;
    uint32_t at[SITES_MOST];
} sites;
static sites called;

static void note(const dropout_key *drop) {
    if (!drop || drop->p == 0) return;
    assert_true(called.n < SITES_MOST);
    called.at[called.n++] = drop->site;
}
#define NOTED(op) \
    static err_t noted_##op(const op##_args *args, stream *s) { \
        note(args->drop); \
        return called.real->op(args, s); \
    }
NOTED(dropout)
NOTED(attention_forward)
NOTED(attention_backward)
NOTED(cross_attention_forward)
NOTED(cross_attention_backward)

static int by_site(const void *a, const void *b) {
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

// The sites of a forward pass, each once, or of a backward pass; sorted.
static sites sites_of(rig *r, bool backward) {
    ops noted = *device_ops(r->net.dev);
    called = (sites){.real = device_ops(r->net.dev)};
    noted.dropout = noted_dropout;
    noted.attention_forward = noted_attention_forward, noted.attention_backward = noted_attention_backward;
    noted.cross_attention_forward = noted_cross_attention_forward;
    noted.cross_attention_backward = noted_cross_attention_backward;
    pass p = pass_of(r, true);
    p.ops = &noted, p.drop.p = 0.25f, p.drop_adapted = 0.5f;
    flow_use(&r->net.flow, &p);
    OK(model_forward(r->net.m, &p));
    if (backward) called.n = 0;
    if (backward) OK(model_backward(r->net.m, &p));
    qsort(called.at, (size_t)called.n, sizeof *called.at, by_site);
    return called;
}

static int times(const sites *s, uint32_t site) {
    int n = 0;
    for (int i = 0; i < s->n; i++) n += s->at[i] == site;
    return n;
}

// Two places of a model that had one site would drop the same elements. Backward drops what forward did; an adapter's
// mask it draws for its matrix, and for the gradient of what it reads. What a head drops is both in backward.
static void expect_own_sites(const char *name, int type, const any_options *o, const char *targets, int wanted,
                             int adapters) {
    const kind k = {.name = name, .type = type, .o = *o, .targets = targets};
    rig r;
    rig_open_with(&r, &k, adapters > 0, RECOMPUTE_NONE, false, 0.5);
    for (int i = 0; i < r.net.m->params; i++) fill_row(&r, i);
    sites forward = sites_of(&r, false), backward = sites_of(&r, true);
    int found[2] = {0};
    for (int i = 0; i < backward.n; i++) {
        uint32_t site = backward.at[i];
        bool adapts = site >= SITE_ADAPTER;
        int first = times(&forward, site), then = times(&backward, site);
        if (i && site == backward.at[i - 1]) continue;
        found[adapts]++;
        if (first > 1 || then != (adapts || !first ? 2 : 1))
            fail_msg("%s: site %x drops %d times, and %d times in backward", name, site, first, then);
    }
    for (int i = 0; i < forward.n; i++)
        if (!times(&backward, forward.at[i])) fail_msg("%s: backward does not drop at %x", name, forward.at[i]);
    if (found[0] != wanted || found[1] != adapters)
        fail_msg("%s: %d places and %d adapters drop, expected %d and %d", name, found[0], found[1], wanted, adapters);
    net_close(&r.net);
}

static void each_place_has_its_site(void **state) {
    (void)state;
    any_options gpt = {.gpt = {GPT_OPTIONS(2, 2, 24, 37, 11, 2), .dropout = 0.25}},
                llama = {.llama = {LLAMA_OPTIONS(2, 11, 1)}}, gemma = {.gemma = {GEMMA_OPTIONS(2)}},
                mlm = {.bert = {BERT_OPTIONS(2, 16), .dropout = 0.25}}, sorts = mlm,
                t5 = {.t5 = {T5_OPTIONS(2, 3), .dropout = 0.25}}, first = t5;
    static const char all[] = "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj";
    sorts.bert.task = BERT_CLASSIFY;
    first.t5.activation = T5_RELU, first.t5.tied = true;
    // the embedding, and of each layer what attention sees and gives, and what the MLP gives
    expect_own_sites("gpt", MODEL_gpt, &gpt, "c_attn attn.c_proj c_fc mlp.c_proj", 1 + 2 * 3, 2 * 4);
    expect_own_sites("llama", MODEL_llama, &llama, all, 0, 2 * 7);
    expect_own_sites("gemma", MODEL_gemma, &gemma, all, 0, 2 * 7);
    expect_own_sites("bert", MODEL_bert, &mlm, "", 1 + 2 * 3, 0);
    expect_own_sites("bert of classes", MODEL_bert, &sorts, "", 1 + 2 * 3 + 1, 0);  // and the pooled row
    // of an encoder's layer also the hidden channels, of a decoder's both attentions, and of each stack the last norm
    expect_own_sites("t5", MODEL_t5, &t5, "", 1 + 2 * 4 + 1 + 3 * 6 + 1, 0);
    expect_own_sites("t5 1.0", MODEL_t5, &first, "", 1 + 2 * 4 + 1 + 3 * 6 + 1, 0);
}

// A uniform in +-1/sqrt(inputs), B zero, and everything else frozen.
static void they_begin_as_pefts(void **state) {
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        rig r;
        int trained = 0;
        rig_open(&r, &kinds[k], true, RECOMPUTE_NONE, false);
        for (int i = 0; i < r.net.m->params; i++) {
            const param *p = &r.net.m->param[i];
            int64_t n = shape_count(p->dims, p->size);
            float *x = r.w[i].data;
            bool a = strstr(p->name, ".lora_A.weight"), b = strstr(p->name, ".lora_B.weight");
            assert_true(param_is_frozen(p) == !(a || b));
            if (!a && !b) continue;
            double bound = a ? 1 / sqrt((double)p->size[1]) : 0, sum = 0;
            model_init(r.net.m, i, 5, 0, n, x);
            for (int64_t e = 0; e < n; e++) assert_true(fabs(x[e]) <= bound), sum += x[e] * x[e];
            if (a) assert_true(fabs(sum / (double)n / (bound * bound / 3) - 1) < 0.5);
            assert_true(p->decay);
            trained += (int)n;
        }
        assert_int_equal(model_trained(r.net.m), trained);
        net_close(&r.net);
    }
}

static void wrong_targets_are_named(void **state) {
    static const struct {
        const char *targets, *said;
    } wrong[] = {
        {"q_proj vproj", "targets: vproj names no product of this model: expected ends of names such as "},
        {"proj", "targets: proj names no"},
        {"embed_tokens", "targets: embed_tokens names no"},
    };
    (void)state;
    for (int i = 0; i < 3; i++) {
        any_options o = {.llama = {LLAMA_OPTIONS(2, 11, 1)}};
        model_adapters is = {.rank = RANK, .alpha = 1};
        model *m;
        snprintf(is.targets, sizeof is.targets, "%s", wrong[i].targets);
        OK(model_llama.resolve(&o, &(model_rule){.micro = B, .adapters = &is}));
        assert_int_equal(model_open(&m, &model_llama, &o), ERR_CONFIG);
        if (!strstr(err_last()->text, wrong[i].said) || !strstr(err_last()->text, "self_attn.q_proj"))
            fail_msg("found \"%s\", expected \"%s\"", err_last()->text, wrong[i].said);
    }
}

// Each form that would change what adapters add is refused by its name, and taken where it says that there is none.
static void other_forms_are_refused(void **state) {
    static const char *const forms[] = {"use_dora",
                                        "use_rslora",
                                        "rank_pattern",
                                        "alpha_pattern",
                                        "use_qalora",
                                        "modules_to_save",
                                        "trainable_token_indices",
                                        "megatron_config",
                                        "lora_bias",
                                        "target_parameters"};
    static const char *const none[] = {"null", "false", "{}", "[]"};
    static const char *const some[] = {"true", "{\"q_proj\": 8}", "[\"head\"]"};
    const model_adapters is = {.rank = 3, .alpha = 6};
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (int k = 0; k < 7; k++) {
            char text[256];
            snprintf(text, sizeof text, "{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 6, \"%s\": %s}", forms[i],
                     k < 4 ? none[k] : some[k - 4]);
            json_t *config = json_loads(text, 0, NULL);
            assert_non_null(config);
            err_t rc = peft_agrees(config, "theirs", &is);
            if (rc != (k < 4 ? ERR_OK : ERR_DATA) || (k >= 4 && !strstr(err_last()->text, forms[i])))
                fail_msg("%s: %s", text, rc == ERR_OK ? "taken" : err_last()->text);
            json_decref(config);
        }
}

// What is said of them must be there, of the right type, and what the settings say.
static void what_is_said_of_adapters_is_compared(void **state) {
    static const struct {
        const char *config, *said;  // NULL: they agree
        err_t code;
    } all[] = {
        {"{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 6}", NULL, ERR_OK},
        {"{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 6.0, \"bias\": \"none\"}", NULL, ERR_OK},
        {"{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 6, \"bias\": \"lora_only\"}",
         "theirs/adapter_config.json: bias lora_only: expected none", ERR_DATA},
        {"{\"r\": 3, \"lora_alpha\": 6}", "theirs/adapter_config.json: peft_type is missing: expected LORA", ERR_DATA},
        {"{\"peft_type\": \"LOHA\", \"r\": 3, \"lora_alpha\": 6}", "peft_type LOHA: expected LORA", ERR_DATA},
        {"{\"peft_type\": 1, \"r\": 3, \"lora_alpha\": 6}", "peft_type is missing", ERR_DATA},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 6}", "expected numbers r and lora_alpha", ERR_DATA},
        {"{\"peft_type\": \"LORA\", \"r\": 3}", "expected numbers r and lora_alpha", ERR_DATA},
        {"{\"peft_type\": \"LORA\", \"r\": 3.0, \"lora_alpha\": 6}", "expected numbers r and lora_alpha", ERR_DATA},
        {"{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": \"6\"}", "expected numbers r and lora_alpha", ERR_DATA},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 6}",
         "theirs holds adapters of [lora] rank = 4, alpha = 6, and the settings say 3 and 6", ERR_CONFIG},
        {"{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 6.5}",
         "theirs holds adapters of [lora] rank = 3, alpha = 6.5, and the settings say 3 and 6", ERR_CONFIG},
    };
    const model_adapters is = {.rank = 3, .alpha = 6};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        json_t *config = json_loads(all[i].config, 0, NULL);
        assert_non_null(config);
        err_t rc = peft_agrees(config, "theirs", &is);
        if (rc != all[i].code || (all[i].said && !strstr(err_last()->text, all[i].said)))
            fail_msg("%s: %s", all[i].config, rc == ERR_OK ? "taken" : err_last()->text);
        json_decref(config);
    }
}

// A rank is as high as the smaller side of a matrix at most.
static void ranks_have_a_limit(void **state) {
    static const struct {
        const char *targets, *name;
        int64_t most;  // of 20 channels, 24 of queries and 12 of keys, and 28 hidden
    } rows[] = {{"q_proj", "self_attn.q_proj", 20}, {"k_proj", "self_attn.k_proj", 12},
                {"o_proj", "self_attn.o_proj", 20}, {"up_proj", "mlp.up_proj", 20},
                {"down_proj", "mlp.down_proj", 20}, {"qkv_proj", "self_attn.k_proj", 12}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int64_t more = 0; more < 2; more++) {
            any_options o = {.llama = {LLAMA_OPTIONS(2, 11, 1)}};
            model_adapters is = {.rank = rows[i].most + more, .alpha = 1};
            char said[128];
            model *m;
            snprintf(is.targets, sizeof is.targets, "%s", rows[i].targets);
            OK(model_llama.resolve(&o, &(model_rule){.micro = B, .adapters = &is}));
            err_t rc = model_open(&m, &model_llama, &o);
            snprintf(said, sizeof said, "%s can have: expected at most %d", rows[i].name, (int)rows[i].most);
            if (rc != (more ? ERR_CONFIG : ERR_OK) || (more && !strstr(err_last()->text, said)))
                fail_msg("%s: %s, expected \"%s\"", rows[i].targets, rc ? err_last()->text : "taken", said);
            if (rc == ERR_OK) model_close(m);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_are_a_matrix_that_is_added),
        cmocka_unit_test(what_they_read_is_dropped),
        cmocka_unit_test(each_has_its_masks),
        cmocka_unit_test(each_place_has_its_site),
        cmocka_unit_test(they_begin_as_pefts),
        cmocka_unit_test(wrong_targets_are_named),
        cmocka_unit_test(other_forms_are_refused),
        cmocka_unit_test(what_is_said_of_adapters_is_compared),
        cmocka_unit_test(ranks_have_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
