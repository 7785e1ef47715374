// test/test_show.c: what `lockstep plan --graph` prints is all that runs, of every model in many layouts: each step of
// each list, in order, with its operands; each gradient of a parameter is formed once; each value has a name of its
// own; and the bytes are those of the plan. The whole text of some of them is in test/golden/graph.txt
// (test/test_show.sh).
#include "model/op/op.h"
#include "model/show.h"
#include "model/slices.h"
#include "test/support/options.h"

#include <ctype.h>
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
        if (ok_ != ERR_OK) fail_msg("%s: %s: %s", name_of_case, #call, err_last()->text); \
    } while (0)

enum { MOST = 64, B = 4, T = 12 };

typedef struct kind {
    const char *name;
    int type;
    any_options o;
} kind;

#define LLAMA \
    .layers = 2, .heads = 8, .kv_heads = 4, .head_dim = 10, .embed = 20, .hidden = 28, .vocab = 137, .context = T, \
    .head_chunks = 2
#define GPT .layers = 2, .heads = 4, .embed = 24, .vocab = 37, .context = T, .head_chunks = 2

static const kind kinds[] = {
    {"gpt", MODEL_gpt, {.gpt = {GPT}}},
    {"gpt with dropout", MODEL_gpt, {.gpt = {GPT, .dropout = 0.1}}},
    {"llama", MODEL_llama, {.llama = {LLAMA, .norm_eps = 1e-2, .rope_theta = 100, .tied = true}}},
    {"llama with all",
     MODEL_llama,
     {.llama = {LLAMA, .norm_eps = 1e-2, .rope_theta = 100, .bias = LLAMA_BIAS_ALL, .qk_norm = true, .window = 5}}},
    {"mlp", MODEL_mlp, {.mlp = {.inputs = 128, .classes = 6, .hidden = "16 36 12", .activation = MLP_RELU}}},
    {"mlp with gelu", MODEL_mlp, {.mlp = {.inputs = 128, .classes = 6, .hidden = "16 36", .activation = MLP_GELU}}},
};

// Ranks that share layers, and with `rows` rows; or positions.
static const struct {
    int slices, ranks;
    bool rows;
    int tokens, context;
} layouts[] = {{1, 1, false, 1, 1}, {4, 1, false, 1, 1}, {4, 2, false, 1, 1},
               {4, 4, true, 1, 1},  {4, 1, false, 4, 1}, {4, 1, false, 4, 2}};

static const struct {
    recomputation recompute;
    bool halves;
    dtype compute;
    int slots;
} manners[] = {{RECOMPUTE_NONE, false, FP32, 1},
               {RECOMPUTE_NONE, true, BF16, 3},
               {RECOMPUTE_SELECTIVE, false, BF16, 1},
               {RECOMPUTE_BLOCK, false, FP16, 2},
               {RECOMPUTE_SELECTIVE, true, FP32, 1}};

static const char *name_of_case;  // for messages

typedef void (*check_call)(const model *m, size_t bytes);

// Opens and plans the model in one layout, and looks at it.
static void look(const kind *k, size_t at, size_t how, check_call check) {
    static char name[128];
    const kind *of = k;
    any_options o = of->o;
    model_rule rule = {
        .micro = B, .slices = layouts[at].slices, .tokens = layouts[at].tokens, .rows = layouts[at].rows};
    int slots[MOST];
    arena mem;
    device *dev;
    model *m;
    snprintf(name, sizeof name, "%s, layout %zu, manner %zu", of->name, at, how);
    name_of_case = name;
    for (int i = 0; i < MOST; i++) slots[i] = manners[how].slots;
    OK(device_open(&dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    OK(model_types[of->type]->resolve(&o, &rule));
    OK(model_open(&m, model_types[of->type], &o));
    arena_open(&mem, dev, MEMORY_DEVICE);
    model_plan plan = {.compute = manners[how].compute,
                       .B = B,
                       .slots = slots,
                       .recompute = manners[how].recompute,
                       .halves = manners[how].halves};
    if (layouts[at].ranks > 1)
        plan.slice_count = layouts[at].slices / layouts[at].ranks, plan.slice_rows = layouts[at].rows;
    if (layouts[at].tokens > 1) plan.token_count = layouts[at].tokens / layouts[at].context;
    OK(model_declare(m, &mem, &plan));
    check(m, mem.bytes);
    arena_close(&mem);
    model_close(m);
    device_close(dev);
}

static void each_case(check_call check) {
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t at = 0; at < sizeof layouts / sizeof *layouts; at++)
            for (size_t how = 0; how < sizeof manners / sizeof *manners; how++) {
                bool plain = !layouts[at].rows && layouts[at].tokens == 1 && manners[how].recompute == RECOMPUTE_NONE;
                if (kinds[k].type != MODEL_mlp || plain) look(&kinds[k], at, how, check);
            }
}

// The lists that the form of a block runs while it is trained.
static const lists *lists_of(const model *m, int b) {
    return &m->net->form[m->dropout > 0 ? WITH_DROPOUT : WITHOUT_DROPOUT][show_form(m, b)];
}

static char *text_of(const model *m, int form) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    show_lists(m, form, f);
    assert_int_equal(fclose(f), 0);
    return text;
}

// --- every step, and all of it ---------------------------------------------------------------------------------------

// Does `text` have this name, not as a part of another one?
static bool names(const char *text, size_t n, const char *name) {
    size_t length = strlen(name);
    for (const char *at = text; (at = strstr(at, name)) != NULL && at + length <= text + n; at++) {
        char before = at == text ? ' ' : at[-1], after = at[length];
        if (!isalnum((unsigned char)before) && !strchr("_.", before) && !isalnum((unsigned char)after) &&
            !strchr("_.", after))
            return true;
    }
    return false;
}

static void expect_operands(const model *m, const lists *x, const step *s, const char *text, size_t n) {
    for (int k = 0; k < s->count; k++)
        if (s->v[k] && !names(text, n, x->v[s->v[k]].name))
            fail_msg("%s: %s does not show %s", name_of_case, s->name, x->v[s->v[k]].name);
    for (int k = 0; k < s->rows; k++) {
        const char *whole = m->param[s->row[k]].name, *inside = whole;
        if (strncmp(whole, "h.", 2) == 0 || strncmp(whole, "layers.", 7) == 0)
            inside = strchr(strchr(whole, '.') + 1, '.') + 1;  // without the layer's prefix
        char shown[MODEL_NAME + 1];
        snprintf(shown, sizeof shown, "%s%s", s->row_how[k] == 'a' ? "d" : "", inside);
        if (!names(text, n, shown)) fail_msg("%s: %s does not show %s", name_of_case, s->name, shown);
    }
    bool meets = strstr(text, "ranks meet:") && strstr(text, "ranks meet:") < text + n;
    assert_int_equal(meets, show_meets(m, s));
}

static void expect_lines(const char *text) {
    for (const char *at = text; *at; at = strchr(at, '\n') + 1) {
        size_t n = strcspn(at, "\n");
        if (n > SHOW_COLUMNS) fail_msg("%s: %zu columns: %.*s", name_of_case, n, (int)n, at);
        if (n && at[n - 1] == ' ') fail_msg("%s: blanks at the end of %.*s", name_of_case, (int)n, at);
        for (size_t i = 0; i < n; i++) assert_true(at[i] >= ' ' && at[i] <= '~');
        assert_true(at[n] == '\n');
    }
}

// Steps are numbered, list by list: where one begins, the one before ends.
static void expect_steps(const model *m, size_t bytes) {
    (void)bytes;
    for (int b = 0; b < m->blocks; b++) {
        if (show_form(m, b) != b) continue;
        const lists *x = lists_of(m, b);
        char *text = text_of(m, b), start[64];
        const char *at = text;
        int found = 0, steps = 0;
        expect_lines(text);
        for (int k = 0; k < LISTS; k++)
            for (int i = 0; i < x->list[k].count; i++, steps++) {
                const step *s = &x->list[k].at[i];
                snprintf(start, sizeof start, "\n%4d  %s ", i + 1, s->name);
                const char *next = strstr(at, start);
                if (!next) fail_msg("%s, block %d: no step %d, %s, of list %d", name_of_case, b, i + 1, s->name, k);
                at = next + 1;
                size_t n = strcspn(at, "\n") + 1;
                // what belongs to it
                while (at[n] == ' ' && at[n + 3] == ' ' && at[n + 4] == ' ') n += strcspn(at + n, "\n") + 1;
                char *part = strndup(at, n);
                expect_operands(m, x, s, part, n);
                free(part);
            }
        for (const char *l = text; (l = strchr(l, '\n')) != NULL; l++)
            found += l[1] == ' ' && isdigit((unsigned char)l[4]) && l[5] == ' ';
        assert_int_equal(found, steps);
        free(text);
    }
}

static void every_step_is_shown(void **state) {
    (void)state;
    each_case(expect_steps);
}

// --- names -----------------------------------------------------------------------------------------------------------

static void expect_names(const model *m, size_t bytes) {
    (void)bytes;
    for (int b = 0; b < m->blocks; b++) {
        const lists *x = lists_of(m, b);
        for (value v = 1; v < x->values; v++) {
            assert_true(x->v[v].name[0] && x->v[v].letters[0]);
            for (value u = 1; u < v; u++)
                if (strcmp(x->v[u].name, x->v[v].name) == 0)
                    fail_msg("%s, block %d: two values are called %s", name_of_case, b, x->v[v].name);
        }
        for (int k = 0; k < LISTS; k++)
            for (int i = 0; i < x->list[k].count; i++) assert_true(x->list[k].at[i].name[0]);
    }
}

static void each_value_has_a_name(void **state) {
    (void)state;
    each_case(expect_names);
}

// --- parameters ------------------------------------------------------------------------------------------------------

static int count(const step_list *l, int row, char how) {
    int n = 0;
    for (int i = 0; i < l->count; i++)
        for (int k = 0; k < l->at[i].rows; k++) n += l->at[i].row[k] == row && l->at[i].row_how[k] == how;
    return n;
}

// Forward uses each of its block's parameters once, and backward forms the gradient of each once.
static void expect_params(const model *m, size_t bytes) {
    (void)bytes;
    for (int row = 0; row < m->params; row++) {
        int b = m->param[row].block;
        if (show_form(m, b) != b) continue;
        const lists *x = lists_of(m, b);
        int adds = count(&x->list[LIST_BACKWARD], row, 'a') + count(&x->list[LIST_WEIGHTS], row, 'a');
        int uses = count(&x->list[LIST_FORWARD], row, 'r');
        if (adds != 1 || uses != 1)
            fail_msg("%s: %s is used %d times, its gradient formed %d times", name_of_case, m->param[row].name, uses,
                     adds);
    }
}

static void each_gradient_is_formed_once(void **state) {
    (void)state;
    each_case(expect_params);
}

// GELU where no page of ours has it: before a product whose outputs are divided, so that its slope is a step of its
// own; and after a norm, whose bias is no product's.
static void odd_page(graph *g, const void *options) {
    projection whole = {.outputs = 16, .letters = "C", .bias = true},
               wide = {.outputs = 32, .letters = "2C", .bias = true}, back = whole;
    (void)options;
    wide.divide = LINEAR_OUTPUTS, back.divide = LINEAR_INPUTS;
    begin_block(g, "embedding");
    leave(g, embedding(g, "wte", NULL, 32, T, 16, 0.02, 1));
    value x = begin_layer(g, "h.%d.", 0);
    value y = project(g, layer_norm(g, x, "ln"), "a", whole);
    y = project(g, gelu(g, y), "b", wide);
    leave(g, add(g, x, project(g, gelu(g, y), "c", back)));
    x = begin_layer(g, "h.%d.", 1);
    leave(g, add(g, x, project(g, gelu(g, layer_norm(g, x, "ln")), "a", whole)));
    next_token_loss(g, layer_norm(g, begin_block(g, "head"), "ln_f"), "lm_head", 32, 0, 1, 0);
    leave(g, 0);
}

static void odd_pages_too(void **state) {
    static const model_type odd = {.name = "odd", .page = odd_page, .options = sizeof(model_division)};
    (void)state;
    name_of_case = "odd";
    for (int slices = 1; slices <= 2; slices++)
        for (int halves = 0; halves < 2; halves++) {
            int slots[] = {1, 1, 1, 1};
            model_division by = {.slices = slices};
            model_plan plan = {.compute = FP32, .B = B, .slots = slots, .halves = halves};
            arena mem;
            device *dev;
            model *m;
            OK(device_open(&dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
            OK(model_open(&m, &odd, &by));
            arena_open(&mem, dev, MEMORY_DEVICE);
            OK(model_declare(m, &mem, &plan));
            expect_params(m, 0), expect_steps(m, 0), expect_names(m, 0);
            arena_close(&mem);
            model_close(m);
            device_close(dev);
        }
}

// --- bytes -----------------------------------------------------------------------------------------------------------

// What the texts of the blocks say, for so many micro-batches, is what the model planned.
static void expect_bytes(const model *m, size_t bytes) {
    show_bytes planned = show_memory(m);
    long long kept = 0, held = 0, scratch = 0, sets = 0;
    for (int b = 0; b < m->blocks; b++) {
        char *text = text_of(m, show_form(m, b));
        const char *at = strstr(text, "  bytes: ");
        long long k, h, s;
        int slots = m->net->set[b + 1] - m->net->set[b];
        assert_non_null(at);
        assert_int_equal(sscanf(at,
                                "  bytes: kept %lld for each micro-batch; held %lld and scratch %lld for all blocks\n",
                                &k, &h, &s),
                         3);
        kept += k * slots, sets += slots;
        held = h > held ? h : held, scratch = s > scratch ? s : scratch;
        free(text);
    }
    assert_true(planned.kept == kept && planned.held == held && planned.scratch == scratch && planned.sets == sets);
    assert_true(kept + held + scratch <= (long long)bytes);
}

static void bytes_are_the_plans(void **state) {
    (void)state;
    each_case(expect_bytes);
}

// --- blocks ----------------------------------------------------------------------------------------------------------

static void expect_blocks(const model *m, size_t bytes) {
    char text[200], few[12];
    (void)bytes;
    show_blocks(m, text, sizeof text);
    assert_string_equal(text, "embedding (block 0), layer (blocks 1-2), head (block 3)");
    show_blocks(m, few, sizeof few);
    assert_string_equal(few, "embedding (");
    assert_true(show_means(m, 1, "layer") && show_means(m, 2, "layer") && show_means(m, 2, "2") &&
                show_means(m, 3, "head"));
    assert_false(show_means(m, 1, "lay") || show_means(m, 1, "2") || show_means(m, 1, "") || show_means(m, 1, "01"));
    // block 2 has no lists of its own
    assert_true(show_form(m, 2) == 1 && show_has(m, 1) && show_has(m, 3) && !show_has(m, 2));
}

static void blocks_are_named(void **state) {
    (void)state;
    look(&kinds[0], 0, 0, expect_blocks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_is_shown),          cmocka_unit_test(each_value_has_a_name),
        cmocka_unit_test(each_gradient_is_formed_once), cmocka_unit_test(odd_pages_too),
        cmocka_unit_test(bytes_are_the_plans),          cmocka_unit_test(blocks_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
