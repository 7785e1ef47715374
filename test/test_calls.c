// test/test_calls.c: what each architecture calls, in ten layouts, under each recomputation, in halves, with two
// micro-batches under way, in evaluation and while texts grow: the operations and the values they work on are those
// that test/golden/calls.txt has, made at build 5b541c0. How a model comes to its calls may change, and where its
// values lie, but not what is computed from what. Planned bytes are today's: they may become less.
//
//   test_calls                  compares
//   test_calls write            prints the table
//   test_calls say NAME         prints the calls of one line of it, such as "llama, slices 4, halves"; two builds'
//                               lists can be compared
#include "model/flow.h"
#include "model/lower.h"
#include "model/show.h"
#include "model/slices.h"
#include "test/support/options.h"
#include "test/support/calls.h"

#define OK(call) \
    do { \
        err_t ok_ = (call); \
        if (ok_ != ERR_OK) fail_msg("%s: %s: %s", name_of_case, #call, err_last()->text); \
    } while (0)

enum { T = 12, MOST = 64, PARTS = 4, LINE = 512 };

typedef struct kind {
    const char *name;
    int type;
    any_options o;
} kind;

#define LLAMA(T) \
    .layers = 2, .heads = 8, .kv_heads = 4, .head_dim = 10, .embed = 20, .hidden = 28, .vocab = 137, .context = T, \
    .head_chunks = 2
#define GEMMA \
    .layers = 3, .heads = 8, .kv_heads = 4, .head_dim = 10, .embed = 20, .hidden = 28, .vocab = 137, .context = T, \
    .head_chunks = 2, .pattern = 2, .window = 5
#define GPT .layers = 2, .heads = 4, .embed = 24, .vocab = 37, .context = T, .head_chunks = 2

#define BERT \
    .layers = 2, .heads = 4, .embed = 24, .hidden = 28, .vocab = 37, .context = T, .types = 2, .classes = 5, \
    .masked = 0.5, .mask_token = 4, .begin_token = 2, .end_token = 3, .norm_eps = 1e-12, .head_chunks = 1

#define T5 \
    .layers = 2, .decoder_layers = 2, .heads = 4, .head_dim = 6, .embed = 20, .hidden = 28, .vocab = 37, .context = T, \
    .buckets = 8, .max_distance = 9, .noise = 0.3, .span = 2, .sentinel_token = 36, .end_token = 1, .norm_eps = 1e-6, \
    .head_chunks = 1

static const kind kinds[] = {
    {"gpt", MODEL_gpt, {.gpt = {GPT}}},
    {"gpt with dropout", MODEL_gpt, {.gpt = {GPT, .dropout = 0.1}}},
    {"llama", MODEL_llama, {.llama = {LLAMA(T), .norm_eps = 1e-2, .rope_theta = 100, .tied = true}}},
    {"llama with all",
     MODEL_llama,
     {.llama = {LLAMA(T), .norm_eps = 1e-2, .rope_theta = 100, .bias = LLAMA_BIAS_ALL, .qk_norm = true, .window = 5}}},
    // no place has as many rows as another
    {"llama of 17 positions", MODEL_llama, {.llama = {LLAMA(17), .norm_eps = 1e-2, .rope_theta = 100}}},
    {"gemma",
     MODEL_gemma,
     {.gemma = {GEMMA, .norm_eps = 1e-2, .rope_theta = 5000, .rope_factor = 8, .local_theta = 100}}},
    {"mlp", MODEL_mlp, {.mlp = {.inputs = 128, .classes = 6, .hidden = "16 36 12", .activation = MLP_RELU}}},
    {"mlp with gelu", MODEL_mlp, {.mlp = {.inputs = 128, .classes = 6, .hidden = "16 36", .activation = MLP_GELU}}},
    {"bert", MODEL_bert, {.bert = {BERT, .dropout = 0.1}}},
    {"bert of classes", MODEL_bert, {.bert = {BERT, .task = BERT_CLASSIFY}}},
    {"bert of numbers", MODEL_bert, {.bert = {BERT, .task = BERT_REGRESS}}},
    {"bert of pairs", MODEL_bert, {.bert = {BERT, .next_sentence = true}}},
    {"t5", MODEL_t5, {.t5 = {T5, .dropout = 0.1}}},
    {"t5 1.0", MODEL_t5, {.t5 = {T5, .activation = T5_RELU, .tied = true}}},
};

// ranks share layers, and with `rows` the residual stream's rows, too; context: so many share positions.
typedef struct sharing {
    const char *name;
    int slices, ranks;
    bool rows;
    int tokens, context;
} sharing;

static const sharing layouts[] = {
    {"whole", 1, 1, false, 1, 1},
    {"slices 4", 4, 1, false, 1, 1},
    {"slices 4, 2 ranks", 4, 2, false, 1, 1},
    {"slices 4, 4 ranks", 4, 4, false, 1, 1},
    {"slices 4, 2 ranks with their rows", 4, 2, true, 1, 1},
    {"slices 4, 4 ranks with their rows", 4, 4, true, 1, 1},
    {"token slices 4", 4, 1, false, 4, 1},
    {"token slices 4, context 2", 4, 1, false, 4, 2},
    {"token slices 4, context 4", 4, 1, false, 4, 4},
    {"token slices 2, context 2", 4, 1, false, 2, 2},
};

typedef enum { TRAIN, EVALUATE, GROW } purpose;
typedef struct manner {
    const char *name;
    purpose what;
    recomputation recompute;
    bool halves;
    int slots;  // micro-batches under way
} manner;

static const manner manners[] = {
    {"none", TRAIN, RECOMPUTE_NONE, false, 1},
    {"halves", TRAIN, RECOMPUTE_NONE, true, 1},
    {"selective", TRAIN, RECOMPUTE_SELECTIVE, false, 1},
    {"block", TRAIN, RECOMPUTE_BLOCK, false, 1},
    {"none, two under way", TRAIN, RECOMPUTE_NONE, false, 2},
    {"halves, two under way", TRAIN, RECOMPUTE_NONE, true, 2},
    {"selective, two under way", TRAIN, RECOMPUTE_SELECTIVE, false, 2},
    {"block, two under way", TRAIN, RECOMPUTE_BLOCK, false, 2},
    {"evaluation", EVALUATE, RECOMPUTE_NONE, false, 1},
    {"growing texts", GROW, RECOMPUTE_NONE, false, 1},
};

static const char *name_of_case;  // for messages

// One model in one layout, as one place sees it.
typedef struct rig {
    const kind *k;
    const sharing *l;
    const manner *m;
    int place, places, tables;  // tables: of gradients
    int64_t B, planned;
    bool fresh;
    any_options o;
    device *dev;
    stream *s;
    model *net;
    arena mem;
    size_t bytes;  // that the model planned
    flow fl;
    int slots[MOST];
    tensor w[MOST], dw[5 * MOST], in[MODEL_INPUTS], losses, metrics, scores, state;
    slice_merge merge;
    row_swap swap;
} rig;

static model_plan plan_of(const rig *r) {
    const sharing *l = r->l;
    model_plan o = {.compute = BF16,
                    .B = r->planned,
                    .slots = r->slots,
                    .recompute = r->m->recompute,
                    .halves = r->m->halves,
                    .forward_only = r->m->what != TRAIN,
                    .kv_slots = r->m->what == GROW ? 2 : 0};
    if (l->ranks > 1)
        o.slice_first = r->place * (l->slices / l->ranks), o.slice_count = l->slices / l->ranks, o.slice_rows = l->rows;
    if (l->tokens > 1)
        o.token_count = l->tokens / l->context, o.token_first = l->context > 1 ? r->place * o.token_count : 0;
    return o;
}

// Values and gradients of all parameters, the slices that are here.
static void declare_params(rig *r) {
    const model *m = r->net;
    for (int i = 0; i < m->params; i++) {
        const param *q = &m->param[i];
        int64_t rows = q->rows_in_memory ? q->rows_in_memory : q->size[0];
        bool divided = param_slices(q) > 1;
        if (divided && q->axis == 0) rows = model_share(m, rows);
        for (int k = 0; k <= r->tables; k++) {
            tensor *t = k ? &r->dw[(k - 1) * m->params + i] : &r->w[i];
            if (divided && q->axis == 1)
                OK(arena_3d(&r->mem, t, k ? FP32 : BF16, m->slices.count, q->size[0], q->size[1] / q->slices));
            else OK(arena_tensor(&r->mem, t, k ? FP32 : BF16, q->dims, rows, q->size[1], 1, 1));
        }
    }
}

static void declare_inputs(rig *r) {
    const model *m = r->net;
    for (int i = 0; i < m->inputs; i++) {
        const tensor_spec *x = &m->input[i];
        OK(arena_2d(&r->mem, &r->in[i], x->type, r->planned, shape_count(x->dims, x->size)));
    }
    OK(arena_2d(&r->mem, &r->losses, FP32, r->planned, m->losses));
    OK(arena_2d(&r->mem, &r->metrics, FP64, m->metrics + 1, r->planned));
    OK(arena_2d(&r->mem, &r->scores, FP32, r->planned, m->vocab + 1));
    OK(arena_1d(&r->mem, &r->state, INT32, 64));
}

// A tied row has the values of the other one, and here its gradient, too. Of padding the caller knows nothing, unless
// it is divided.
static void name_params(rig *r) {
    const model *m = r->net;
    for (int i = 0; i < m->params; i++) {
        int tied = m->param[i].tied;
        if (tied >= 0) r->w[i] = r->w[tied];
        else rec_name(&r->w[i], "w", i);
        for (int k = 0; k < r->tables; k++) {
            tensor *dw = &r->dw[k * m->params + i];
            if (tied >= 0) *dw = r->dw[k * m->params + tied];
            else rec_name(dw, k ? "more_dw" : "dw", i);
            if (m->param[i].rows_in_memory && param_slices(&m->param[i]) == 1) dw->size[0] = m->param[i].size[0];
        }
        if (m->param[i].rows_in_memory && param_slices(&m->param[i]) == 1) r->w[i].size[0] = m->param[i].size[0];
    }
    for (int i = 0; i < m->inputs; i++) rec_name(&r->in[i], "in", i);
}

// What a model keeps of its own that never changes has a name, too.
static void name_constants(rig *r) {
    for (int k = 0; k < r->net->net->g.ropes; k++) rec_name(&r->net->net->angles[k], "angles", k);
}

// --- where places meet -----------------------------------------------------------------------------------------------

// `lockstep plan --graph` says of each step whether places meet in it: each step is watched, of which list it may be.
enum { WATCHED_MOST = 1024 };
static struct {
    const step *at[WATCHED_MOST];
    step_call run[WATCHED_MOST];
    int count;
} watched;

static err_t watch(const frame *f, const step *s) {
    int k = 0, before = rec.meetings;
    while (watched.at[k] != s) k++;
    err_t rc = watched.run[k](f, s);
    if ((rec.meetings > before) != show_meets(f->m, s))
        fail_msg("%s, block %d, %s: places %s, and the graph says otherwise", name_of_case, f->b, s->name,
                 rec.meetings > before ? "meet" : "do not meet");
    return rc;
}

static void watch_steps(const net *l) {
    watched.count = 0;
    for (int i = 0; i < VARIANTS; i++)
        for (int b = 0; b < l->g.m->blocks; b++)
            for (int k = 0; k < LISTS; k++)
                for (int n = 0; n < l->form[i][b].list[k].count; n++) {
                    step *s = &l->form[i][b].list[k].at[n];
                    assert_true(watched.count < WATCHED_MOST);
                    watched.at[watched.count] = s, watched.run[watched.count++] = s->run;
                    s->run = watch;
                }
}

static void rig_open(rig *r) {
    const sharing *l = r->l;
    model_rule rule = {.micro = r->planned, .slices = l->slices, .tokens = l->tokens, .rows = l->rows};
    r->o = r->k->o;
    r->tables = l->tokens / l->context;
    for (int i = 0; i < MOST; i++) r->slots[i] = r->m->slots;
    OK(device_open(&r->dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    OK(stream_open(r->dev, &r->s));
    OK(model_types[r->k->type]->resolve(&r->o, &rule));
    OK(model_open(&r->net, model_types[r->k->type], &r->o));
    arena_open(&r->mem, r->dev, MEMORY_DEVICE);
    model_plan plan = plan_of(r);
    OK(model_declare(r->net, &r->mem, &plan));
    watch_steps(r->net->net);
    r->bytes = r->mem.bytes;
    OK(flow_declare(&r->fl, r->net, &r->mem, &plan));
    declare_params(r);
    declare_inputs(r);
    arena_imagine(&r->mem);
    rec_open(r->mem.bytes + ARENA_ALIGN, ARENA_ALIGN);
    flow_link(&r->fl);
    name_params(r);
    name_constants(r);
    r->merge = (slice_merge){l->ranks, r->place, meet_whole, meet_deal, meet_gather, &r->merge};
    r->swap = (row_swap){{l->context, r->place, meet_whole, NULL, meet_gather, &r->swap}, meet_heads, meet_rows};
}

static void rig_close(rig *r) {
    rec_close();
    flow_close(&r->fl);
    arena_close(&r->mem);
    model_close(r->net);
    stream_close(r->s);
    device_close(r->dev);
}

static pass pass_of(rig *r, int slot) {
    bool trains = r->m->what == TRAIN;
    pass p = {.ops = &rec_ops,
              .s = r->s,
              .B = r->B,
              .slot = slot,
              .w = r->w,
              .dw = trains ? r->dw : NULL,
              .more_dw = trains && r->tables > 1 ? r->dw + r->net->params : NULL,
              .merge = r->l->ranks > 1 ? &r->merge : NULL,
              .swap = r->l->context > 1 ? &r->swap : NULL,
              .fresh = r->fresh,
              .state = r->state.data,
              .loss_factor = 1,
              .drop = {.seed = 3, .step = 1, .p = trains ? (float)r->net->dropout : 0},
              .losses = r->losses};
    p.losses.size[0] = r->B;
    if (r->net->metrics && !trains) p.metrics = view2(&r->metrics, r->net->metrics, r->B);
    for (int i = 0; i < r->net->inputs; i++) p.in[i] = r->in[i], p.in[i].size[0] = r->B;
    flow_use(&r->fl, &p);
    return p;
}

// --- digests ---------------------------------------------------------------------------------------------------------

static const char *const part_names[PARTS] = {"forward", "backward", "inputs", "weights"};

typedef struct digest {
    call_list part[PARTS];  // in the order of pass_part
    size_t bytes;
} digest;

// The lists of one part, block after block. The order of lists counts, that of calls within a list does not.
static void run_part(rig *r, digest *d, pass_part part, pass *p) {
    int n = r->net->blocks;
    for (int i = 0; i < n; i++) {
        int b = part == PASS_FORWARD ? i : n - 1 - i;
        rec.list = (call_list){0};
        if (rec.say)
            fprintf(rec.say, "# place %d of %d, %d samples, %s, slot %d: %s of block %d\n", r->place, r->places,
                    (int)r->B, r->fresh ? "fresh gradients" : "more gradients", p->slot, part_names[part], b);
        OK(model_run(r->net, part, b, b, p));
        d->part[part].calls += rec.list.calls;
        d->part[part].sum = mix(mix(d->part[part].sum, (uint64_t)rec.list.calls), rec.list.sum);
    }
}

static void train(rig *r, digest *d) {
    pass p[2];
    for (int s = 0; s < r->m->slots; s++) {
        p[s] = pass_of(r, s);
        if (s) p[s].fresh = false;
        run_part(r, d, PASS_FORWARD, &p[s]);
    }
    for (int s = 0; s < r->m->slots; s++) {
        run_part(r, d, r->m->halves ? PASS_INPUTS : PASS_BACKWARD, &p[s]);
        if (r->m->halves) run_part(r, d, PASS_WEIGHTS, &p[s]);
    }
}

typedef struct growth {
    int64_t B, n;
    pass_past past[2];
    pass_text text;
} growth;

static void grow_by(rig *r, digest *d, const growth *ask, size_t asks) {
    for (size_t i = 0; i < asks; i++) {
        r->B = ask[i].B;
        pass p = pass_of(r, 0);
        p.in[0] = view2(&p.in[0], ask[i].B, ask[i].n);
        p.predict = true, p.past = ask[i].past, p.text = ask[i].text;
        p.scores = view2(&r->scores, ask[i].B, r->net->vocab);
        run_part(r, d, PASS_FORWARD, &p);
    }
}

// Two texts begin, one after the other, and grow together; then the first one goes on alone, by several positions. Of
// two texts each, both are read, and what is said of them grows; then another one is read in the first one's place.
static void grow(rig *r, digest *d) {
    static const growth one[] = {
        {1, 5, {{0, 0, 0}}, TEXT_BOTH},
        {1, 3, {{1, 0, 0}}, TEXT_BOTH},
        {2, 1, {{0, 5, 0}, {1, 3, 0}}, TEXT_BOTH},
        {1, 4, {{0, 6, 0}}, TEXT_BOTH},
    };
    static const growth two[] = {
        {1, 5, {{0, 0, 5}}, TEXT_READ},
        {1, 2, {{0, 0, 5}}, TEXT_SAID},
        {1, 7, {{1, 0, 7}}, TEXT_READ},
        {1, 1, {{1, 0, 7}}, TEXT_SAID},
        {2, 1, {{0, 2, 5}, {1, 1, 7}}, TEXT_SAID},
        {1, 3, {{0, 0, 3}}, TEXT_READ},
        {2, 1, {{0, 0, 3}, {1, 2, 7}}, TEXT_SAID},
    };
    if (r->net->reads) grow_by(r, d, two, sizeof two / sizeof *two);
    else grow_by(r, d, one, sizeof one / sizeof *one);
}

static void run_case(rig *r, digest *d) {
    for (r->place = 0; r->place < r->places; r->place++)
        for (int fresh = 0; fresh < (r->m->what == TRAIN ? 2 : 1); fresh++)
            for (int B = 1; B <= 2; B++) {
                r->planned = r->m->what == TRAIN ? B : 4, r->B = B, r->fresh = fresh;
                if (r->m->what == GROW && B == 1) continue;
                rig_open(r);
                if (r->m->what == TRAIN) train(r, d);
                else if (r->m->what == GROW) grow(r, d);
                else {
                    pass p = pass_of(r, 0);
                    run_part(r, d, PASS_FORWARD, &p);
                }
                if (r->bytes > d->bytes) d->bytes = r->bytes;
                if (rec.overlaps)
                    fail_msg("%s: %d results lie partly in what their call reads", name_of_case, rec.overlaps);
                if (rec.garbage)
                    fail_msg("%s: %d operands were read that nothing had written", name_of_case, rec.garbage);
                rig_close(r);
            }
}

// --- lines -----------------------------------------------------------------------------------------------------------

// A perceptron has no rows to divide, no positions, and nothing to recompute or to continue. BERT and T5 have whole
// samples.
static bool exists(const kind *k, const sharing *l, const manner *m) {
    if (k->type == MODEL_t5) return !l->rows && l->tokens == 1;
    if (k->type == MODEL_bert) return !l->rows && l->tokens == 1 && m->what != GROW;
    return k->type != MODEL_mlp || (!l->rows && l->tokens == 1 && m->recompute == RECOMPUTE_NONE && m->what != GROW);
}

static void case_name(char dst[LINE], const kind *k, const sharing *l, const manner *m) {
    snprintf(dst, LINE, "%s, %s, %s", k->name, l->name, m->name);
}

static void case_line(char dst[LINE], const kind *k, const sharing *l, const manner *m) {
    rig r = {.k = k, .l = l, .m = m, .places = l->ranks > 1 ? l->ranks : l->context};
    digest d = {0};
    char name[LINE];
    case_name(name, k, l, m);
    name_of_case = name;
    run_case(&r, &d);
    size_t n = (size_t)snprintf(dst, LINE, "%s: ", name);
    for (int i = 0; i < PARTS; i++)
        if (d.part[i].calls)
            n += (size_t)snprintf(dst + n, LINE - n, "%s %d %016llx, ", part_names[i], d.part[i].calls,
                                  (unsigned long long)d.part[i].sum);
    snprintf(dst + n, LINE - n, "bytes %zu", d.bytes);
}

typedef void (*line_call)(void *ctx, const char *name, const kind *k, const sharing *l, const manner *m);

static void each_case(const kind *k, line_call f, void *ctx) {
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (size_t j = 0; j < sizeof manners / sizeof *manners; j++) {
            char name[LINE];
            if (!exists(k, &layouts[i], &manners[j])) continue;
            case_name(name, k, &layouts[i], &manners[j]);
            f(ctx, name, k, &layouts[i], &manners[j]);
        }
}

// --- comparing -------------------------------------------------------------------------------------------------------

typedef struct golden {
    FILE *f;
    int lines;
} golden;

static const char *bytes_at(const char *line) { return strstr(line, "bytes "); }

static void compare(void *ctx, const char *name, const kind *k, const sharing *l, const manner *m) {
    golden *g = ctx;
    char want[LINE], found[LINE];
    size_t n = strlen(name);
    rewind(g->f);
    do {
        if (!fgets(want, sizeof want, g->f)) fail_msg("%s: no such line in test/golden/calls.txt", name);
    } while (strncmp(want, name, n) || want[n] != ':');
    want[strcspn(want, "\n")] = 0;
    g->lines++;
    case_line(found, k, l, m);
    size_t upto = (size_t)(bytes_at(want) - want);
    if (strncmp(want, found, upto))
        fail_msg("other calls, or on other values:\n  expected %s\n  found    %s\ntest_calls say \"%s\" prints them",
                 want, found, name);
    if (strcmp(bytes_at(found), bytes_at(want)) != 0)
        fail_msg("%s: the model plans %s, expected %s", name, bytes_at(found), bytes_at(want));
}

static void calls_of(void **state) {
    golden g = {.f = fopen("test/golden/calls.txt", "r")};
    assert_non_null(g.f);
    each_case(*state, compare, &g);
    assert_true(g.lines >= 4);
    fclose(g.f);
}

// The recorder sees what it is there for: another order of calls that depend on each other, an operand that was
// overwritten, one of another call.
static void the_recorder_sees(void **state) {
    (void)state;
    char memory[4096];
    tensor t[4];
    call_list seen[6];
    for (int i = 0; i < 4; i++)
        t[i] = (tensor){.data = memory + 512 * i, .type = FP32, .dims = 1, .size = {8, 1, 1, 1}};
    for (int k = 0; k < 6; k++) {
        rec_open(sizeof memory, (uintptr_t)memory);
        rec_name(&t[0], "x", 0), rec_name(&t[1], "x", 1);
        tensor *first = &t[2], *second = &t[3];
        // other places: the same
        if (k == 1) first = &t[3], second = &t[2];
        // 2: the other order: the same
        if (k != 2) OK(rec_ops.gelu_forward(&(gelu_forward_args){.y = first, .x = &t[0]}, NULL));
        // 3: of another value
        OK(rec_ops.relu_forward(&(relu_forward_args){.y = second, .x = &t[k == 3]}, NULL));
        if (k == 2) OK(rec_ops.gelu_forward(&(gelu_forward_args){.y = first, .x = &t[0]}, NULL));
        // 4: overwritten too early
        if (k == 4) OK(rec_ops.gelu_forward(&(gelu_forward_args){.y = first, .x = &t[1]}, NULL));
        // 5: of a copy: the same
        if (k == 5) OK(rec_ops.cast(&(cast_args){.y = &t[1], .x = first}, NULL));
        if (k == 5) first = &t[1];
        OK(rec_ops.add(&(add_args){.y = &t[0], .a = first, .b = second}, NULL));
        seen[k] = rec.list;
        assert_int_equal(rec.garbage, 0);
        rec_close();
    }
    for (int k = 1; k < 6; k++) {
        bool same = k != 3 && k != 4;
        assert_int_equal(seen[k].sum == seen[0].sum && seen[k].calls == seen[0].calls, same);
    }
}

static void garbage_is_seen(void **state) {
    (void)state;
    char memory[1024];
    tensor x = {.data = memory, .type = FP32, .dims = 1, .size = {8, 1, 1, 1}}, y = x;
    y.data = memory + 512;
    rec_open(sizeof memory, (uintptr_t)memory);
    OK(rec_ops.relu_forward(&(relu_forward_args){.y = &y, .x = &x}, NULL));
    assert_int_equal(rec.garbage, 1);
    rec_close();
}

static void print_line(void *ctx, const char *name, const kind *k, const sharing *l, const manner *m) {
    char line[LINE];
    const char *only = ctx;
    if (only && strcmp(only, name) != 0) return;
    if (only) rec.say = stdout;
    case_line(line, k, l, m);
    if (!only) printf("%s\n", line);
}

int main(int argc, char **argv) {
    enum { KINDS = sizeof kinds / sizeof *kinds };
    struct CMUnitTest tests[KINDS + 2] = {cmocka_unit_test(the_recorder_sees), cmocka_unit_test(garbage_is_seen)};
    bool prints = argc > 1 && (strcmp(argv[1], "write") == 0 || (argc > 2 && strcmp(argv[1], "say") == 0));
    for (int i = 0; i < KINDS; i++) {
        if (prints) each_case(&kinds[i], print_line, argc > 2 ? argv[2] : NULL);
        tests[2 + i] =
            (struct CMUnitTest){.name = kinds[i].name, .test_func = calls_of, .initial_state = (void *)&kinds[i]};
    }
    return prints ? 0 : cmocka_run_group_tests_name("test_calls", tests, NULL, NULL);
}
