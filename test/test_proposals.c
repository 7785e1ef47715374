// test/test_proposals.c: what a refused setting's message proposes passes all rules. Settings are drawn at random, many
// of them impossible in several ways; every proposal is read out of the message, applied as on a command line, and must
// be a run that can begin.
#include "test/support/config_file.h"
#include "trainer/config/cluster_parse.h"
#include "trainer/session/session.h"

#include <inttypes.h>

enum { DRAWN = 10000, SETTINGS = 32, WORDS = 96 };

typedef struct settings {
    char text[SETTINGS][WORDS];
    const char *at[SETTINGS];
    int n;
} settings;

typedef struct chance {
    uint64_t x;
} chance;

static uint64_t draw(chance *c, uint64_t below) {
    c->x ^= c->x << 13, c->x ^= c->x >> 7, c->x ^= c->x << 17;
    return (c->x >> 11) % below;
}

static void set(settings *s, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void set(settings *s, const char *key, const char *fmt, ...) {
    char value[WORDS / 2];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    assert_true(s->n < SETTINGS);
    snprintf(s->text[s->n], WORDS, "%s=%s", key, value);
    s->at[s->n] = s->text[s->n], s->n++;
}

static int one_of(chance *c, const int *from, int n) { return from[draw(c, (uint64_t)n)]; }
#define ONE_OF(c, ...) one_of(c, (const int[]){__VA_ARGS__}, (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))

static void draw_model(settings *s, chance *c) {
    static const char *const types[] = {"gpt", "gpt", "gpt", "llama", "llama", "llama", "mlp", "resnet"},
                             *const widths[] = {"16 32", "12", "64 48 32 16", "7 5"};
    const char *type = types[draw(c, 8)];
    if (strcmp(type, "resnet") == 0) {
        set(s, "model.type", "resnet20");
        return;
    }
    set(s, "model.type", "%s", type);
    if (strcmp(type, "mlp") == 0) {
        set(s, "model.hidden", "%s", widths[draw(c, 4)]);
        return;
    }
    set(s, "model.layers", "%d", 1 + (int)draw(c, 8));
    set(s, "model.heads", "%d", ONE_OF(c, 2, 4, 4, 4, 4, 8, 8, 8, 3, 12));
    set(s, "model.embed", "%d", ONE_OF(c, 16, 32, 32, 64, 64, 64, 96, 30, 100));
    set(s, "model.context", "%d", ONE_OF(c, 1, 8, 16, 16, 64));
    if (strcmp(type, "gpt") == 0 && draw(c, 4) == 0) set(s, "model.dropout", "0.1");
    if (strcmp(type, "llama") == 0 && draw(c, 2)) set(s, "model.kv_heads", "%d", ONE_OF(c, 1, 2, 3, 4, 8));
    if (strcmp(type, "llama") == 0 && draw(c, 4) == 0) set(s, "model.head_dim", "%d", ONE_OF(c, 8, 9, 16));
}

static void draw_batch(settings *s, chance *c) {
    set(s, "batch.global", "%d", ONE_OF(c, 8, 16, 16, 32, 32, 64, 64, 1 + (int)draw(c, 64)));
    set(s, "batch.micro", "%d", ONE_OF(c, 1, 1, 2, 2, 2, 4, 4, 8, 3, 5));
    if (draw(c, 3) == 0) set(s, "batch.lanes", "%d", ONE_OF(c, 1, 2, 2, 4, 4, 8, 8, 16, 3, 13));
    if (draw(c, 6) == 0) set(s, "batch.bn_span", "%d", ONE_OF(c, 0, 2, 2, 4, 3));
}

static void draw_layout(settings *s, chance *c) {
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}, *const cuts[] = {
                                                                                                  "2 x", "3 3", "1 2 3",
                                                                                                  "2 2 2 2", "5"};
    if (draw(c, 2)) set(s, "parallel.slices", "%d", ONE_OF(c, 1, 2, 2, 2, 4, 4, 4, 4, 8, 3));
    if (draw(c, 5) == 0) set(s, "parallel.token_slices", "%d", ONE_OF(c, 1, 2, 4, 8, 3));
    if (draw(c, 4) == 0) set(s, "parallel.tensor", "%d", ONE_OF(c, 1, 2, 2, 4, 8, 3));
    if (draw(c, 8) == 0) set(s, "parallel.context", "%d", ONE_OF(c, 1, 2, 2, 4, 3));
    if (draw(c, 8) == 0) set(s, "parallel.sequence", "yes");
    if (draw(c, 3) == 0) set(s, "parallel.pipeline", "%d", 1 + (int)draw(c, 6));
    if (draw(c, 2)) set(s, "parallel.schedule", "%s", schedules[draw(c, 5)]);
    if (draw(c, 8) == 0) set(s, "parallel.chunks", "%d", ONE_OF(c, 1, 2, 2, 3, 5));
    if (draw(c, 16) == 0) set(s, "parallel.stages", "%s", cuts[draw(c, 5)]);
    if (draw(c, 2)) set(s, "parallel.zero", "%d", (int)draw(c, 4));
    if (draw(c, 6) == 0) set(s, "parallel.data", "%d", ONE_OF(c, 1, 2, 3, 4, 5));
}

static void draw_ranks(settings *s, chance *c) {
    static const char *const nodes[] = {"a:2,b:2", "a,b,c", "a:4,b:2", "n[1-4]:3", "a:1"};
    if (draw(c, 5)) set(s, "device.ranks", "%d", ONE_OF(c, 1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 8, 12, 16));
    if (draw(c, 8) == 0) set(s, "cluster.nodes", "%s", nodes[draw(c, 5)]);
    if (draw(c, 10) == 0) set(s, "schedule.warmup", "%d", ONE_OF(c, 100, 600, 601, 5000));
    if (draw(c, 20) == 0) set(s, "schedule.decay_steps", "%d", ONE_OF(c, 50, 600, 10000));
    if (draw(c, 20) == 0) set(s, "optimizer.nesterov", "yes");
    if (draw(c, 20) == 0) set(s, "cluster.heartbeat", "%d", ONE_OF(c, 1, 200, 1000));
    if (draw(c, 20) == 0) set(s, "data.holdout", "10");
}

static void draw_islands(settings *s, chance *c) {
    if (draw(c, 6)) return;
    set(s, "outer.islands", "%d", ONE_OF(c, 1, 2, 2, 4, 3));
    if (draw(c, 2)) set(s, "outer.every", "%d", ONE_OF(c, 1, 10, 50, 7));
    if (draw(c, 2)) set(s, "outer.type", "nesterov");
}

static void draw_servers(settings *s, chance *c) {
    static const char *const weights[] = {"0", "0.25", "1"};
    if (draw(c, 5)) return;
    set(s, "server.count", "%d", ONE_OF(c, 0, 1, 1, 2, 3, 7));
    if (draw(c, 2)) set(s, "server.weight", "%s", weights[draw(c, 3)]);
    if (draw(c, 8) == 0) set(s, "parallel.balance", "auto");
    if (draw(c, 8) == 0) set(s, "reduce.order", "any");
}

static void draw_all(settings *s, int number) {
    chance c = {88172645463325252u + 0x9e3779b97f4a7c15u * (uint64_t)(number + 1)};
    s->n = 0;
    draw_model(s, &c), draw_batch(s, &c), draw_layout(s, &c), draw_ranks(s, &c), draw_islands(s, &c);
    draw_servers(s, &c);
}

static int64_t shared_by(const config *c) {
    return c->outer.islands * c->parallel.tensor * c->parallel.context * c->parallel.pipeline *
           (c->parallel.data ? c->parallel.data : 1);
}

// A run that could begin: all rules, and the stages and schedules of its pipelines made for real. Where nothing says
// how many ranks there are, settings that are shared as before stand for any number, and others for one rank.
static err_t could_begin(config *c, const settings *s, int64_t shared_before) {
    cluster who = {.world = 0};
    TRY(config_load_with(c, NULL, 0, s->at, s->n));
    if (c->cluster.nodes[0]) TRY(cluster_parse(&who, c->cluster.nodes));
    else who.world = (int)c->device.ranks;
    if (!who.world && shared_by(c) == shared_before) return ERR_OK;
    int world = who.world ? who.world : 1;
    TRY(config_fits(c, world));
    return session_fits(c, world);
}

static void explain(const settings *s, const char *message, const char *proposal) {
    char all[SETTINGS * WORDS];
    size_t n = 0;
    for (int i = 0; i < s->n; i++) n += (size_t)snprintf(all + n, sizeof all - n, " -o '%s'", s->text[i]);
    fail_msg("settings:%s\n%s\nproposal: %s\nbut then: %s", all, message, proposal, err_last()->text);
}

// "[section] key = value and [section] key = value", added to the settings.
static void apply(settings *s, char *text) {
    for (char *at = text, *next; at; at = next) {
        char section[64], key[64], value[WORDS] = "";
        next = strstr(at, " and [");
        if (next) *next = 0, next += 5;
        if (sscanf(at, "[%63[a-z]] %63[a-z0-9_] = %95s", section, key, value) != 3) fail_msg("not a setting: %s", at);
        char name[130];
        snprintf(name, sizeof name, "%s.%s", section, key);
        set(s, name, "%s", strcmp(value, "\"\"") == 0 ? "" : value);
    }
}

typedef struct tally {
    int refused, proposals, none;
} tally;

static void try_proposals(config *c, const settings *s, tally *t) {
    char message[ERR_TEXT], *list;
    int64_t shared = shared_by(c);
    strcpy(message, err_last()->text);
    t->refused++;
    list = strstr(message, " Nearest that work");
    if (!list) {
        if (!strstr(message, " No settings near these"))
            explain(s, message, "neither a proposal nor that there is none");
        t->none++;
        return;
    }
    char all[ERR_TEXT];
    strcpy(all, strstr(list, ": ") + 2);
    all[strlen(all) - 1] = 0;  // the full stop
    int shown = 0;
    for (char *at = all, *next; at; at = next) {
        char text[ERR_TEXT];
        if (++shown > 3) explain(s, message, "more than three");
        settings with = *s;
        next = strstr(at, ", or [");
        if (next) *next = 0, next += 5;
        strcpy(text, at);
        apply(&with, at);
        for (int i = 0; i < with.n; i++) with.at[i] = with.text[i];
        t->proposals++;
        if (could_begin(c, &with, shared) != ERR_OK) explain(s, message, text);
    }
}

static void every_proposal_works(void **state) {
    (void)state;
    config *c = malloc(sizeof *c);
    tally t = {0};
    assert_non_null(c);
    for (int i = 0; i < DRAWN; i++) {
        settings s;
        draw_all(&s, i);
        if (could_begin(c, &s, -1) != ERR_OK) try_proposals(c, &s, &t);
    }
    printf("%d settings drawn, %d refused, %d proposals, none for %d\n", DRAWN, t.refused, t.proposals, t.none);
    assert_in_range(t.refused, DRAWN / 4, DRAWN - 100);
    assert_in_range(t.proposals, t.refused, 3 * t.refused);
    assert_in_range(t.none, 0, t.refused / 20);  // what is broken in many ways at once
    free(c);
}

// What the command line or the last file asks for is kept by some of the proposals, if other keys can give way.
static void what_was_asked_for_is_kept(void **state) {
    (void)state;
    static const struct {
        const char *asked, *keeps[2];
    } cases[] = {
        {"device.ranks=16",
         {"[batch] lanes = 16 and [batch] global = 128", "[batch] lanes = 16 and [batch] micro = 1"}},
        {"device.ranks=12",
         {"[batch] lanes = 16 and [batch] global = 128", "[batch] lanes = 16 and [batch] micro = 1"}},
        {"device.ranks=6", {"[batch] global = 64", "[batch] micro = 2"}},
    };
    config *c = malloc(sizeof *c);
    assert_non_null(c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(config_load_with(c, NULL, 0, &cases[i].asked, 1), ERR_CONFIG);
        for (int k = 0; k < 2; k++)
            if (!strstr(err_last()->text, cases[i].keeps[k]))
                fail_msg("%s: expected %s: %s", cases[i].asked, cases[i].keeps[k], err_last()->text);
    }
    free(c);
}

// The rules are told how many blocks a model has before it is opened.
static void models_have_the_blocks_that_the_rules_are_told(void **state) {
    (void)state;
    config *c = malloc(sizeof *c);
    assert_non_null(c);
    for (int t = 0; t < MODEL_TYPES; t++) {
        model *net;
        char text[64];
        const char *set = text;
        snprintf(text, sizeof text, "model.type=%s", model_types[t]->name);
        assert_int_equal(config_load_with(c, NULL, 0, &set, 1), ERR_OK);
        const model_type *type = model_types[c->model.type];
        model_rule rule = {.micro = c->batch.micro, .slices = 1, .tokens = 1};
        assert_int_equal(type->resolve(&c->model.of, &rule), ERR_OK);
        assert_int_equal(model_open(&net, type, &c->model.of), ERR_OK);
        assert_int_equal(rule.blocks, net->blocks);
        model_close(net);
    }
    free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(models_have_the_blocks_that_the_rules_are_told),
                                       cmocka_unit_test(what_was_asked_for_is_kept),
                                       cmocka_unit_test(every_proposal_works)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
