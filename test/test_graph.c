// test/test_graph.c: mistakes in a page are found when the model is opened, and named by block and operation. And a
// page that is right says what its model is.
#include "model/op/op.h"
#include "test/support/options.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { T = 8, V = 32, C = 16 };

typedef struct options {
    model_division by;
    int mistake;
} options;

enum {
    NONE,
    NO_BLOCK,
    NO_FACTOR,
    WIDTHS,
    HEADS,
    HALVES,
    HALVES_GELU,
    DIVIDED,
    TWICE,
    NEVER_MADE,
    NOTHING_LEFT,
    NO_LOSS,
    USED_OFTEN,
    LONG_NAME,
    LONG_BLOCK,
    GRADIENT_LOST,
    GRADIENT_LOST_OUT,
    READ_AGAIN,
    ATTENDS_TWICE,
    MANY_ANGLES,
    TABLES_TWICE,
    NO_ROWS,
    RULE_FROZEN,
    NO_IMAGE,
    GROUPS,
    WINDOW,
    POOL_WINDOW,
    TIED_FP32,
    MISTAKES
};

// What each of them says, after "the page of odd, ".
static const char *const said[MISTAKES] = {
    [NO_BLOCK] = "block -1 (none), ln: no block was begun",
    [NO_FACTOR] =
        "block 0 (embedding), embedding: its factor is 0: expected 1, or what the rows of wte are multiplied by",
    [WIDTHS] = "block 1 (layer), add: x has width 16, and wide 32",
    [HEADS] = "block 1 (layer), attention: 4 + 2 x 4 heads of 4 are not 16 wide",
    [HALVES] = "block 1 (layer), swiglu: odd has width 15, which has no halves",
    [HALVES_GELU] = "block 1 (layer), geglu: odd has width 15, which has no halves",
    [DIVIDED] = "block 1 (layer), odd: 15 outputs can't be divided among 2 slices",
    [TWICE] = "block 1 (layer), ln: another parameter is called h.0.ln.weight",
    [NEVER_MADE] = "block 1 (layer), ln: it reads value 77, which nothing has made",
    [NOTHING_LEFT] = "block 1 (layer), leave: there is nothing for the next block",
    [NO_LOSS] = "block 1 (layer), the end: the last block has no loss",
    [USED_OFTEN] = "block 1 (layer), ln_4: x is read by more than 4 operations",
    [LONG_NAME] = "a name has at most 95 letters",
    [GRADIENT_LOST] = "block 1 (layer), gelu: ln is read again after it, and its gradient would be lost",
    [GRADIENT_LOST_OUT] = "block 1 (layer), gelu: fc is read again after it, and its gradient would be lost",
    [READ_AGAIN] = "block 1 (layer), relu: it overwrites tanh, which that one's backward reads",
    [ATTENDS_TWICE] = "block 1 (layer), attention: expected one in each block from block 1 on",
    [MANY_ANGLES] = "block 1 (layer), rotary: a model has at most 4 tables of angles",
    [TABLES_TWICE] = "block 1 (layer), more: a model has its tables on demand in one operation",
    [NO_ROWS] = "block 1 (layer), interact: ids has width 24, which is no number of rows of x, of width 16",
    [RULE_FROZEN] = "block 1 (layer), conv: the rule \"frozen\" is not built for the weights of a convolution",
    [NO_IMAGE] = "block 1 (layer), bn: x is no image",
    [GROUPS] = "block 1 (layer), conv: 6 channels and 8 filters can't be divided into 4 groups",
    [WINDOW] = "block 1 (layer), conv: windows of 5 x 5 pixels do not fit into 4 x 3",
    [POOL_WINDOW] = "block 1 (layer), pool: x is no image",
    [TIED_FP32] = "lm_head: a row that is tied can't be FP32 in 16-bit passes",
    [LONG_BLOCK] = "block 1 (layer), gelu: a block has at most 32 operations",
};

static projection wide(int64_t outputs, linear_division d) {
    return (projection){.outputs = outputs, .letters = "W", .divide = d, .std = 0.02};
}

// The value as if it were images.
static value an_image(graph *g, value x, int64_t H, int64_t W, int64_t images_C) {
    g->v[x].H = H, g->v[x].W = W, g->v[x].C = images_C;
    return x;
}

static value layer(graph *g, int mistake, value x) {
    static const char *const names[] = {"ln_0", "ln_1", "ln_2", "ln_3", "ln_4"};
    value y;
    switch (mistake) {
    case WIDTHS: return add(g, x, project(g, x, "wide", wide(2 * C, LINEAR_WHOLE)));
    case HEADS: return attend(g, x, (attention_options){.heads = 4, .head_size = 4, .letters = "C", .site = -1});
    case HALVES: return swiglu(g, project(g, x, "odd", wide(15, LINEAR_WHOLE)), "F");
    case HALVES_GELU: return geglu(g, project(g, x, "odd", wide(15, LINEAR_WHOLE)), "F");
    case DIVIDED: return project(g, x, "odd", wide(15, LINEAR_OUTPUTS));
    case TWICE: return layer_norm(g, layer_norm(g, x, "ln"), "ln");
    case NEVER_MADE: return layer_norm(g, 77, "ln");
    case NOTHING_LEFT: return 0;
    case LONG_NAME:
        return layer_norm(
            g, x,
            "a_name_of_which_a_part_is_enough_to_know_what_it_is_the_name_of_a_norm_that_has_more_letters_than_fit");
    case USED_OFTEN:
        for (int i = 0; i < 5; i++) layer_norm(g, x, names[i]);
        return x;
    case GRADIENT_LOST:  // two branches of one norm, of which the first is no product
        x = layer_norm(g, x, "ln");
        y = gelu(g, x);
        return add(g, y, project(g, x, "b", wide(C, LINEAR_WHOLE)));
    case GRADIENT_LOST_OUT: gelu(g, x = project(g, x, "fc", wide(C, LINEAR_WHOLE))); return x;
    case READ_AGAIN: return relu(g, hyperbolic(g, project(g, x, "fc", wide(C, LINEAR_WHOLE))));
    case ATTENDS_TWICE:
        for (int i = 0; i < 2; i++) {
            value qkv = project(g, x, i ? "qkv_1" : "qkv_0", wide(3 * C, LINEAR_WHOLE));
            x = attend(g, qkv, (attention_options){.heads = 4, .head_size = 4, .letters = "C", .site = -1});
        }
        return x;
    case MANY_ANGLES:
        for (int i = 0; i < 5; i++) x = rotary(g, x, 2, 4, &(rope){.theta = 100 + i});
        return x;
    case NO_IMAGE: return batch_norm(g, x, "bn", 1);
    case GROUPS: return conv(g, an_image(g, x, 3, 4, 6), "conv", (convolution){8, 1, 1, 0, 4});
    case WINDOW: return conv(g, an_image(g, x, 3, 4, 6), "conv", (convolution){8, 5, 1, 0, 1});
    case POOL_WINDOW: return max_pool(g, x, 3, 2, 1);
    case TABLES_TWICE:
        tables(g, "ids", "tables", (table_options){.tables = 2, .width = 4, .demand = true, .bound = 0.1});
        tables(g, "ids.more", "more", (table_options){.tables = 2, .width = 4, .demand = true, .bound = 0.1});
        return x;
    case NO_ROWS: return interact(g, x, tables(g, "ids", "ids", (table_options){.tables = 3, .rows = 5, .width = 8}));
    case RULE_FROZEN:
        y = conv(g, an_image(g, x, 1, 1, C), "conv", (convolution){C, 1, 1, 0, 1});
        graph_rule(g, g->m->params - 1, PARAM_FROZEN);
        return y;
    case TIED_FP32: graph_fp32(g, 0); return x;
    case LONG_BLOCK:
        for (int i = 0; i < 40; i++) x = gelu(g, x);
        return x;
    default: return add(g, x, project(g, layer_norm(g, x, "ln"), "fc", wide(C, LINEAR_WHOLE)));
    }
}

static void page(graph *g, const void *from) {
    int mistake = ((const options *)from)->mistake;
    if (mistake == NO_BLOCK) layer_norm(g, 0, "ln");
    begin_block(g, "embedding");
    leave(g, embedding(g, "wte", NULL, V, T, C, 0.02, mistake != NO_FACTOR));
    leave(g, layer(g, mistake, begin_layer(g, "h.%d.", 0)));
    if (mistake == NO_LOSS) return;
    next_token_loss(g, layer_norm(g, begin_block(g, "head"), "ln_f"), "lm_head", V, 0, 1, 0);
    leave(g, 0);
}

static const model_type odd = {.name = "odd", .page = page, .options = sizeof(options)};

static void mistakes_are_named(void **state) {
    (void)state;
    for (int k = 1; k < MISTAKES; k++) {
        options o = {.by = {.slices = 2}, .mistake = k};
        model *m = (model *)1;
        assert_int_equal(model_open(&m, &odd, &o), ERR_INTERNAL);
        assert_null(m);
        if (!said[k] || !strstr(err_last()->text, "the page of odd, ") || !strstr(err_last()->text, said[k]))
            fail_msg("mistake %d: found \"%s\", expected \"%s\"", k, err_last()->text, said[k] ? said[k] : "?");
    }
}

static void a_page_says_what_its_model_is(void **state) {
    static const char *const names[] = {"wte",         "h.0.ln.weight", "h.0.ln.bias", "h.0.fc.weight",
                                        "ln_f.weight", "ln_f.bias",     "lm_head"};
    options o = {0};
    model *m;
    (void)state;
    assert_int_equal(model_open(&m, &odd, &o), ERR_OK);
    assert_int_equal(m->params, 7);
    for (int i = 0; i < m->params; i++) assert_string_equal(m->param[i].name, names[i]);
    assert_int_equal(m->param[6].tied, 0);
    assert_int_equal(m->blocks, 3);
    for (int b = 0; b < 2; b++) {
        assert_int_equal(m->block[b].dims, 2);
        assert_true(m->block[b].size[0] == T && m->block[b].size[1] == C && !m->block[b].divided);
    }
    assert_true(!m->block[0].halves && m->block[1].halves && !m->block[2].halves);
    assert_true(!m->block[0].recomputes && m->block[1].recomputes && !m->block[2].recomputes);
    assert_int_equal(m->inputs, 2);
    assert_string_equal(m->input[0].name, "tokens");
    assert_string_equal(m->input[1].name, "targets");
    assert_true(m->losses == T && m->context == T && m->vocab == V && m->units == T && m->stream && m->adds_once);
    assert_true(m->flops == 6.0 * T * C * C + 6.0 * T * V * C && m->block[1].flops == 6.0 * T * C * C);
    model_close(m);
}

// Layers that are alike share their lists, and no others do.
static void equal_layers_have_one_form(void **state) {
    gpt_options o = {.layers = 3, .heads = 2, .embed = C, .vocab = V, .context = T, .head_chunks = 1, .dropout = 0.1};
    model *m;
    (void)state;
    assert_int_equal(model_open(&m, &model_gpt, &o), ERR_OK);
    const block_graph *k = m->net->g.block;
    assert_true(k[0].form == 0 && k[1].form == 1 && k[2].form == 1 && k[3].form == 1 && k[4].form == 4);
    model_close(m);
    mlp_options p = {.inputs = 5, .classes = 3, .width = {7, 7, 7}, .layers = 3};
    assert_int_equal(model_open(&m, &model_mlp, &p), ERR_OK);
    k = m->net->g.block;
    assert_true(k[0].form == 0 && k[1].form == 1 && k[2].form == 1 && k[3].form == 3);  // the first one reads samples
    model_close(m);
}

// Three layers, of which the last two have the same norms.
static void page_of_shifts(graph *g, const void *from) {
    (void)from;
    begin_block(g, "embedding");
    leave(g, embedding(g, "wte", NULL, V, T, C, 0.02, 1));
    for (int l = 0; l < 3; l++) leave(g, rms_norm(g, begin_layer(g, "h.%d.", l), "ln", 1e-5, l > 0));
    next_token_loss(g, layer_norm(g, begin_block(g, "head"), "ln_f"), "lm_head", V, 0, 1, 0);
    leave(g, 0);
}

static void a_shift_is_part_of_the_form(void **state) {
    static const model_type shifts = {.name = "shifts", .page = page_of_shifts, .options = sizeof(options)};
    options o = {0};
    model *m;
    (void)state;
    assert_int_equal(model_open(&m, &shifts, &o), ERR_OK);
    const block_graph *k = m->net->g.block;
    assert_true(k[1].form == 1 && k[2].form == 2 && k[3].form == 2);
    assert_true(m->param[1].init_value == 1 && m->param[2].init_value == 0 && m->param[3].init_value == 0);
    model_close(m);
}

// --- layers that differ ----------------------------------------------------------------------------------------------

typedef struct turning {
    int64_t window;
    rope r;
} turning;

enum { TURNINGS = 6 };
static const turning turnings[TURNINGS] = {{0, {.theta = 100}}, {3, {.theta = 100}},
                                           {0, {.theta = 200}}, {0, {.kind = ROPE_LINEAR, .theta = 200, .factor = 8}},
                                           {0, {.theta = 100}}, {3, {.theta = 100}}};

static void turning_page(graph *g, const void *from) {
    (void)from;
    begin_block(g, "embedding");
    leave(g, embedding(g, "wte", NULL, V, T, C, 0.02, 1));
    for (int l = 0; l < TURNINGS; l++) {
        value x = begin_layer(g, "h.%d.", l);
        value qkv = project(g, x, "qkv", wide(3 * C, LINEAR_WHOLE));
        value y = attend(
            g, rotary(g, qkv, 8, 4, &turnings[l].r),
            (attention_options){.heads = 4, .head_size = 4, .window = turnings[l].window, .letters = "C", .site = -1});
        leave(g, project(g, y, "o", wide(C, LINEAR_WHOLE)));
    }
    next_token_loss(g, layer_norm(g, begin_block(g, "head"), "ln_f"), "lm_head", V, 0, 1, 0);
    leave(g, 0);
}

// Layers may see other windows and turn by other angles. Those that do are not alike; and layers with the same angles
// share one table of them.
static void layers_with_another_window_or_other_angles_are_not_alike(void **state) {
    static const model_type type = {.name = "turning", .page = turning_page, .options = sizeof(options)};
    static const int form[TURNINGS] = {1, 2, 3, 4, 1, 2}, table[TURNINGS] = {0, 0, 1, 2, 0, 0};
    options o = {0};
    model *m;
    (void)state;
    assert_int_equal(model_open(&m, &type, &o), ERR_OK);
    const graph *g = &m->net->g;
    assert_int_equal(g->ropes, 3);
    for (int l = 0; l < TURNINGS; l++) {
        const operation *turn = &g->block[1 + l].op[1], *attention = &g->block[1 + l].op[2];
        assert_int_equal(g->block[1 + l].form, form[l]);
        assert_int_equal(turn->rope, table[l]);
        assert_true(rope_equal(&g->rope[turn->rope].r, &turnings[l].r) && g->rope[turn->rope].head_size == 4);
        assert_int_equal(attention->window, turnings[l].window);
    }
    assert_true(m->block[2].flops < m->block[1].flops && m->block[1].flops == m->block[3].flops);
    model_close(m);
}

// What is dropped before an adapter follows from its number in its block: each of them has one of its own.
static void adapters_of_a_block_are_numbered(void **state) {
    static const model_type type = {.name = "turning", .page = turning_page, .options = sizeof(options)};
    options o = {.by = {.adapters = {.rank = 2, .alpha = 1, .targets = "o qkv"}}};
    model *m;
    (void)state;
    assert_int_equal(model_open(&m, &type, &o), ERR_OK);
    for (int l = 0, n = 0; l < TURNINGS; l++, n = 0) {
        const block_graph *b = &m->net->g.block[1 + l];
        for (int i = 0; i < b->ops; i++)
            if (strcmp(b->op[i].type->name, "adapter, down") == 0) assert_int_equal(b->op[i].site, n++);
        assert_int_equal(n, 2);
    }
    model_close(m);
}

// Two that shared a site would drop the same elements of a block.
static void each_dropout_of_a_block_has_its_site(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        gpt_options gpt = {
            .layers = 2, .heads = 2, .embed = C, .vocab = V, .context = T, .head_chunks = 1, .dropout = 0.1};
        bert_options bert = {.task = i == 1 ? BERT_MLM : BERT_CLASSIFY,
                             .layers = 2,
                             .heads = 2,
                             .embed = C,
                             .hidden = 2 * C,
                             .vocab = V,
                             .context = T,
                             .types = 2,
                             .classes = 3,
                             .norm_eps = 1e-12,
                             .dropout = 0.1,
                             .head_chunks = 1,
                             .places = 2};
        model *m;
        int sites = 0;
        assert_int_equal(model_open(&m, i ? &model_bert : &model_gpt, i ? (void *)&bert : (void *)&gpt), ERR_OK);
        for (int b = 0; b < m->blocks; b++) {
            const block_graph *k = &m->net->g.block[b];
            unsigned seen = 0;
            for (int at = 0; at < k->ops; at++) {
                int site = k->op[at].site;
                if (site < 0) continue;
                assert_true(site < 8);  // a block has eight (model/dropout.c)
                if (seen >> site & 1) fail_msg("model %d, block %d: site %d drops twice", i, b, site);
                seen |= 1u << site, sites++;
            }
        }
        assert_int_equal(sites, i == 2 ? 8 : 7);
        model_close(m);
    }
}

// All layers of a stack have the first one's table of distances: what a group says of it holds for all of them.
static void a_shared_table_has_one_rule(void **state) {
    static const char table[] = "layer.0.SelfAttention.relative_attention_bias.weight";
    (void)state;
    for (int frozen = 0; frozen < 2; frozen++) {
        t5_options t5 = {.layers = 3,
                         .decoder_layers = 2,
                         .heads = 2,
                         .head_dim = 6,
                         .embed = C,
                         .hidden = 20,
                         .vocab = V,
                         .context = T,
                         .says = T,
                         .buckets = 8,
                         .max_distance = 9,
                         .norm_eps = 1e-6,
                         .head_chunks = 1};
        model *m;
        int tables = 0, encoders = 0;
        if (frozen) strcpy(t5.by.adapters.frozen, "-encoder.block.0.layer.0.SelfAttention.relative*");
        assert_int_equal(model_open(&m, &model_t5, &t5), ERR_OK);
        for (int i = 0; i < m->params; i++) {
            const param *p = &m->param[i];
            if (!strstr(p->name, table)) continue;
            bool encoder = strncmp(p->name, "encoder.", 8) == 0, first = strstr(p->name, "block.0.");
            tables++, encoders += encoder;
            if (param_is_frozen(p) != (frozen && encoder)) fail_msg("%s has another rule", p->name);
            assert_true(first ? p->tied < 0 : strstr(m->param[p->tied].name, table) != NULL);
        }
        assert_true(tables == 5 && encoders == 3);
        model_close(m);
    }
}

static void expect_flops(const model *m, int block, const char *what, double want) {
    if (fabs(m->block[block].flops - want) > 1e-9 * want)
        fail_msg("%s: block %d has %.0f flops, expected %.0f", what, block, m->block[block].flops, want);
}

// Of the products of a sample: 2 for each pair of numbers, as often again for either gradient. A causal position sees
// half of the others on average, and a frozen matrix has no gradient.
static void flops_are_those_of_the_products(void **state) {
    (void)state;
    model *m;
    enum { Te = 12, Td = 6, H = 2, D = 6, F = 20, inner = H * D };
    t5_options t5 = {.layers = 1,
                     .decoder_layers = 1,
                     .heads = H,
                     .head_dim = D,
                     .embed = C,
                     .hidden = F,
                     .vocab = V,
                     .context = Te,
                     .says = Td,
                     .buckets = 8,
                     .max_distance = 9,
                     .norm_eps = 1e-6,
                     .head_chunks = 1};
    const double mlp = 6.0 * 3 * F * C, four = 6.0 * 4 * inner * C;
    assert_int_equal(model_open(&m, &model_t5, &t5), ERR_OK);
    expect_flops(m, 1, "an encoder's layer", Te * (four + mlp) + 12.0 * Te * Te * inner);
    expect_flops(m, 3, "a decoder's layer",
                 Td * (four * 1.5 + mlp) + Te * four / 2 + 12.0 * Td * Td / 2 * inner + 12.0 * Td * Te * inner);
    expect_flops(m, 4, "a decoder's head", 6.0 * Td * V * C);
    model_close(m);
    for (int pairs = 0; pairs < 2; pairs++) {
        bert_options bert = {.next_sentence = pairs,
                             .layers = 1,
                             .heads = 2,
                             .embed = C,
                             .hidden = F,
                             .vocab = V,
                             .context = T,
                             .types = 2,
                             .norm_eps = 1e-12,
                             .head_chunks = 1,
                             .places = 2};
        assert_int_equal(model_open(&m, &model_bert, &bert), ERR_OK);
        expect_flops(m, 1, "a layer of bert", 6.0 * T * (4 * C * C + 2 * F * C) + 12.0 * T * T * C);
        expect_flops(m, 2, "masked tokens", 6.0 * 2 * (C * C + V * C) + (pairs ? 6.0 * (C * C + 2 * C) : 0));
        model_close(m);
    }
    gpt_options gpt = {.by = {.adapters = {.rank = 3, .alpha = 1, .targets = "c_fc attn.c_proj"}},
                       .layers = 1,
                       .heads = 2,
                       .embed = C,
                       .vocab = V,
                       .context = T,
                       .head_chunks = 1};
    assert_int_equal(model_open(&m, &model_gpt, &gpt), ERR_OK);
    expect_flops(m, 1, "a layer with adapters",
                 4.0 * T * 12 * C * C + 12.0 * T * T / 2 * C + 6.0 * T * 3 * (5 + 2) * C);
    model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(a_page_says_what_its_model_is),
        cmocka_unit_test(equal_layers_have_one_form),
        cmocka_unit_test(layers_with_another_window_or_other_angles_are_not_alike),
        cmocka_unit_test(a_shift_is_part_of_the_form),
        cmocka_unit_test(adapters_of_a_block_are_numbered),
        cmocka_unit_test(each_dropout_of_a_block_has_its_site),
        cmocka_unit_test(a_shared_table_has_one_rule),
        cmocka_unit_test(flops_are_those_of_the_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
