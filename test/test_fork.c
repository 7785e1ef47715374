// test/test_fork.c: of every bits key of every architecture it is written down whether it may differ in a fork, and why
// not; a checkpoint's origin is stored.
#include "model/types.h"
#include "test/support/checkpoint.h"
#include "trainer/fork.h"

static const char *const types[] = {"gpt", "llama", "mlp", "gemma", "resnet", "bert", "dlrm", "t5"};

// Of each, what may not differ, in the order of its settings.
static const char *const forbidden[] = {
    "model.type model.layers model.heads model.embed model.vocab model.context lora.rank lora.alpha lora.targets optimizer.type optimizer.ema optimizer.groups ",
    "model.type model.layers model.heads model.kv_heads model.head_dim model.embed model.hidden model.vocab model.tied model.bias model.qk_norm lora.rank lora.alpha lora.targets optimizer.type optimizer.ema optimizer.groups ",
    "model.type model.inputs model.hidden model.classes model.activation lora.rank lora.alpha lora.targets optimizer.type optimizer.ema optimizer.groups ",
    "model.type model.layers model.heads model.kv_heads model.head_dim model.embed model.hidden model.vocab lora.rank lora.alpha lora.targets optimizer.type optimizer.ema optimizer.groups ",
    "model.type model.depth model.units model.width model.channels model.classes model.mean model.deviation lora.rank lora.alpha lora.targets optimizer.type optimizer.ema optimizer.groups ",
    "model.type model.task model.layers model.heads model.embed model.hidden model.vocab model.context model.types model.classes model.next_sentence lora.rank lora.alpha lora.targets optimizer.type optimizer.ema optimizer.groups ",
    "model.type model.task model.dense model.tables model.rows model.demand model.embed model.bottom model.top lora.rank lora.alpha lora.targets optimizer.type optimizer.ema optimizer.groups ",
    "model.type model.layers model.decoder_layers model.heads model.head_dim model.embed model.hidden model.activation model.vocab model.tied model.buckets model.max_distance lora.rank lora.alpha lora.targets optimizer.type optimizer.ema optimizer.groups "};

typedef struct asked {
    const config *c;
    int keys;
    char forbidden[600];  // each with a blank after it
} asked;

static err_t ask(void *ctx, const char *key, const char *value) {
    asked *a = ctx;
    (void)value;
    if (!fork_knows(a->c, key)) fail_msg("neither trainer/fork_keys.c nor its row says it of %s", key);
    const char *why = fork_forbids(a->c, key);
    if (why) assert_true(strlen(why) > 10);
    if (why) strcat(strcat(a->forbidden, key), " ");
    a->keys++;
    return ERR_OK;
}

static void every_key_is_known(void **state) {
    (void)state;
    assert_int_equal(sizeof types / sizeof *types, MODEL_TYPES);
    config *c = calloc(1, sizeof *c);
    assert_non_null(c);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        asked a = {.c = c};
        char path[IO_PATH], text[64];
        const char *file = path, *base = getenv("TMPDIR");
        OK(io_path(path, "%s/lockstep-fork-XXXXXX", base ? base : "/tmp"));
        int fd = mkstemp(path), n = snprintf(text, sizeof text, "[model]\ntype = %s\n", types[i]);
        assert_true(fd >= 0 && write(fd, text, (size_t)n) == n && close(fd) == 0);
        OK(config_load(c, &file, 1));
        unlink(path);
        OK(config_each(c, CLASS_BITS, ask, &a));
        assert_true(a.keys >= 25);
        assert_string_equal(a.forbidden, forbidden[i]);
        assert_null(fork_forbids(c, "optimizer.lr"));
        assert_non_null(fork_forbids(c, "model.type"));
        assert_non_null(fork_forbids(c, "model.no_such_key"));
        // GPT has a row for each position; what has none has no such key
        bool has_texts = strcmp(types[i], "mlp") && strcmp(types[i], "resnet") && strcmp(types[i], "dlrm");
        assert_int_equal(fork_forbids(c, "model.context") != NULL, i == 0 || i == 5 || !has_texts);
    }
    free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_key_is_known)};
    return cmocka_run_group_tests_name("fork", tests, NULL, NULL);
}
