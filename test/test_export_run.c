// test/test_export_run.c: what an export takes of a run: the weights alone, whatever else the run's settings name; from
// which paths and to which; and what it refuses, without making any file.
#include "test/support/export.h"
#include "trainer/verbs.h"

// --- a run whose files are gone --------------------------------------------------------------------------------------

static void remove_file(const rig *r, const char *name) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    assert_int_equal(unlink(path), 0);
}

// The run's own settings, as they would be from a machine with a GPU.
static void as_from_a_gpu(const rig *r) {
    char path[700], *text, *line, *rest, *out;
    size_t n, size;
    int changed = 0;
    snprintf(path, sizeof path, "%s/config.ini", r->run);
    OK(io_read_file(path, 1 << 20, &text, &n));
    FILE *f = open_memstream(&out, &size);
    assert_non_null(f);
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *now = strncmp(line, "backend = ", 10) == 0 ? "backend = cuda"
                          : strncmp(line, "plans = ", 8) == 0  ? "plans = lost.plans"
                                                               : line;
        changed += now != line;
        fprintf(f, "%s\n", now);
    }
    fclose(f);
    assert_int_equal(changed, 2);
    OK(io_write_file(path, out, size, NULL));
    free(text), free(out);
}

// A token for each byte, as a file that we read too. The caller frees it.
static char *words_of_bytes(size_t *n) {
    char *text;
    OK(io_read_file("test/golden/tokenizer/bytes.json", 1 << 20, &text, n));
    for (char *at = text; (at = strstr(at, "\"use_regex\":false"));) memcpy(at, "\"use_regex\": true", 17);
    return text;
}

// Trains with files for everything, and exports with them and without. The same weights as those of `plain`.
static void expect_alone(const char *model, const char *more, const char *plain, const char *tokenizer_was) {
    rig r;
    char text[8192], said[1024], lost[700], *words;
    size_t n;
    rig_open(&r);
    write_tokens(r.dir, "text.bin", 600), write_tokens(r.dir, "val.bin", 300);
    words = words_of_bytes(&n);
    write_text(r.dir, "words.json", words);
    write_text(r.dir, "passage.txt", "Some text.\n");
    write_text(r.dir, "questions.jsonl", "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 0}\n");
    snprintf(
        text, sizeof text,
        "%s[data]\nformat = raw16\n[run]\nsteps = 1\n[optimizer]\nlr = 0\n[batch]\nglobal = 4\nmicro = 2\n[device]\nthreads = 1\n"
        "[eval]\ntext = %s/passage.txt\nchoices = %s/questions.jsonl\n[sample]\ntokens = 3\ntokenizer = %s/words.json\n",
        model, r.dir, r.dir, r.dir);
    rig_train(&r, text, more);
    EXPORT(r.run, r.to, said, "--shard-mb", "100");
    if (!strstr(said, tokenizer_was)) fail_msg("said: %s", said);
    assert_true(same_file(r.to, plain));
    assert_true(is_there(r.to, "/tokenizer.json"));
    remove_file(&r, "text.bin"), remove_file(&r, "val.bin"), remove_file(&r, "words.json");
    remove_file(&r, "passage.txt"), remove_file(&r, "questions.jsonl");
    as_from_a_gpu(&r);
    snprintf(lost, sizeof lost, "%s-lost", r.to);
    EXPORT(r.run, lost, said, "--shard-mb", "100");
    if (!strstr(said, "; without a tokenizer (--tokenizer PATH adds it): ") || !strstr(said, "words.json"))
        fail_msg("said: %s", said);
    assert_true(same_file(lost, plain));
    assert_false(is_there(lost, "/tokenizer.json"));
    assert_false(is_there(lost, "/tokenizer_config.json"));
    free(words);
    rig_close(&r);
}

// Weights go out as they are, in FP32, whatever a step computes in, and though nothing of what the run read is there,
// nor its GPU.
static void an_export_needs_the_weights_alone(void **state) {
    (void)state;
    static const char model[] = "[model]\nlayers = 1\nheads = 2\nembed = 8\ncontext = 12\nvocab = 256\n";
    static const char *const more[] = {
        "", "[data]\nval =\nholdout = 3\n[precision]\ncompute = bf16\nrounding = stochastic\n"};
    rig plain;
    rig_open(&plain);
    rig_train(&plain, short_run, model);
    EXPORT(plain.run, plain.to, NULL, "--shard-mb", "100");
    for (int i = 0; i < 2; i++) expect_alone(model, more[i], plain.to, "; with the tokenizer ");
    rig_close(&plain);
}

// --- paths -----------------------------------------------------------------------------------------------------------

static const char small[] = "[model]\nlayers = 1\nheads = 1\nembed = 4\ncontext = 8\nvocab = 61\n";

// A run and its checkpoints are found from any directory, through links, and with a slash at the end; so is the place
// of what is made.
static void paths_may_be_given_in_any_way(void **state) {
    (void)state;
    static const struct {
        // the first three as a user has them, the last one from the test's directory
        const char *in, *from, *to, *made;
        int step;
    } all[] = {
        {".", "runs/default", "a", "a", 2},
        {".", "runs/default/", "b/", "b", 2},
        {"runs", "default", "../c//", "c", 2},
        {"runs/default", ".", "../../d", "d", 2},
        {"runs/default", "ckpt/step-00000001", "../../e", "e", 1},
        {"runs/default/ckpt/step-00000001", ".", "../../../../f", "f", 1},
        {"runs/default/ckpt", "step-00000001/", "../../../g", "g", 1},
        {".", "link", "h", "h", 1},
        {"runs/default/ckpt/step-00000002", "../step-00000001", "../../../../new/place/i", "new/place/i", 1},
    };
    rig r;
    char top[600], path[1400], said[1024], want[64];
    rig_open(&r);
    assert_non_null(getcwd(top, sizeof top));
    rig_train(
        &r, short_run,
        "[model]\nlayers = 1\nheads = 1\nembed = 4\ncontext = 8\nvocab = 61\n[run]\nsteps = 2\n[checkpoint]\nevery = 1\n");
    snprintf(path, sizeof path, "%s/link", r.dir);
    assert_int_equal(symlink("runs/default/ckpt/step-00000001", path), 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        snprintf(path, sizeof path, "%s/%s", r.dir, all[i].in);
        assert_int_equal(chdir(path), 0);
        EXPORT(all[i].from, all[i].to, said, "--shard-mb", "1");
        assert_int_equal(chdir(top), 0);
        snprintf(want, sizeof want, "exported step %d:", all[i].step);
        if (!strstr(said, want)) fail_msg("%s in %s: %s", all[i].from, all[i].in, said);
        snprintf(path, sizeof path, "%s/%s", r.dir, all[i].made);
        assert_true(is_there(path, "/config.json"));
        assert_false(is_there(path, ".tmp-export"));
        assert_false(is_there(path, "/.tmp-export"));
    }
    rig_close(&r);
}

// --- what is refused -------------------------------------------------------------------------------------------------

// The command with these words, of which %D is the test's directory.
static err_t command(const rig *r, const char *words) {
    char text[2048], *argv[16], *rest;
    size_t n = 0;
    int argc = 0;
    for (const char *c = words; *c && n + 600 < sizeof text; c++) {
        if (strncmp(c, "%D", 2) == 0) n += (size_t)snprintf(text + n, sizeof text - n, "%s", r->dir), c++;
        else text[n++] = *c;
    }
    text[n] = 0;
    for (char *word = strtok_r(text, " ", &rest); word && argc < 16; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    FILE *out = fopen("/dev/null", "w");
    assert_non_null(out);
    err_t rc = verb_export(argc, argv, out);
    fclose(out);
    return rc;
}

static void the_command_is_read_word_by_word(void **state) {
    (void)state;
    static const struct {
        const char *words;
        err_t rc;
        const char *says;  // ERR_OK: what is made
    } all[] = {
        {"%D/runs/default %D/a", ERR_OK, "a/model.safetensors"},
        {"--dtype bf16 %D/runs/default --shard-mb 1 %D/b", ERR_OK, "b/model.safetensors"},
        {"%D/runs/default --shard-mb 0.0001 %D/c --dtype f16", ERR_OK, "c/model.safetensors.index.json"},
        {"%D/runs/default %D/d --shard-mb 1e9", ERR_OK, "d/model.safetensors"},
        {"%D/runs/default %D/e --tokenizer bytes --dtype f32", ERR_CONFIG,
         "--tokenizer bytes has ids up to 255, and the model knows 61 tokens"},
        {"", ERR_USAGE, "expected a run and a directory"},
        {"%D/runs/default", ERR_USAGE, "expected a run and a directory"},
        {"%D/runs/default --dtype bf16", ERR_USAGE, "expected a run and a directory"},
        {"%D/runs/default %D/e %D/f", ERR_USAGE, "/f: expected no more than a run and a directory"},
        {"%D/runs/default %D/e --dtype", ERR_USAGE, "--dtype: expected a value after it"},
        {"%D/runs/default %D/e --tokenizer", ERR_USAGE, "--tokenizer: expected a value after it"},
        {"%D/runs/default %D/e --shard-mb", ERR_USAGE, "--shard-mb: expected a value after it"},
        {"%D/runs/default %D/e --dtype --shard-mb", ERR_USAGE, "--dtype --shard-mb: expected f32, bf16 or f16"},
        {"%D/runs/default %D/e --dtype float32", ERR_USAGE, "--dtype float32: expected f32, bf16 or f16"},
        {"%D/runs/default %D/e --shard-mb 0", ERR_USAGE, "--shard-mb 0: expected a number of megabytes above 0"},
        {"%D/runs/default %D/e --shard-mb -1", ERR_USAGE, "--shard-mb -1: expected"},
        {"%D/runs/default %D/e --shard-mb nan", ERR_USAGE, "--shard-mb nan: expected"},
        {"%D/runs/default %D/e --shard-mb 1.1e9", ERR_USAGE, "--shard-mb 1.1e9: expected"},
        {"%D/runs/default %D/e --shard-mb 5MB", ERR_USAGE, "--shard-mb 5MB: expected"},
        {"%D/runs/default %D/e --shards 5", ERR_USAGE, "--shards: no such option here"},
        {"%D/runs/default %D/e --tokenizer %D/none.json", ERR_IO, "--tokenizer: "},
        {"%D/runs/none %D/e", ERR_IO, "runs/none: No such file"},
        {"%D/runs/default/ckpt %D/e", ERR_DATA,
         "neither a run's directory, with its config.ini, nor one of its checkpoints"},
        {"%D/begun %D/e", ERR_DATA, "begun/ckpt: no checkpoint yet"},
        {"%D/runs/default %D/runs", ERR_USAGE, "runs is there already"},
        {"%D/runs/default %D/text.ini/", ERR_USAGE, "text.ini is there already"},
        {"%D/runs/default %D/nowhere", ERR_USAGE, "nowhere is there already"},
    };
    rig r;
    char path[700], *ini;
    size_t n;
    rig_open(&r);
    rig_train(&r, short_run, small);
    snprintf(path, sizeof path, "%s/config.ini", r.run);
    OK(io_read_file(path, 1 << 20, &ini, &n));
    write_text(r.dir, "text.ini", ini);
    snprintf(path, sizeof path, "%s/begun", r.dir);
    OK(io_mkdirs(path));
    write_text(path, "config.ini", ini);
    snprintf(path, sizeof path, "%s/nowhere", r.dir);
    assert_int_equal(symlink("gone", path), 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        err_t rc = command(&r, all[i].words);
        if (rc != all[i].rc) fail_msg("%s: %d, %s", all[i].words, rc, rc == ERR_OK ? "done" : err_last()->text);
        if (rc != ERR_OK && !strstr(err_last()->text, all[i].says)) fail_msg("%s: %s", all[i].words, err_last()->text);
        snprintf(path, sizeof path, "%s/%s", r.dir, all[i].says);
        if (rc == ERR_OK && !is_there(path, "")) fail_msg("%s: there is no %s", all[i].words, all[i].says);
        snprintf(path, sizeof path, "%s/e", r.dir);
        if (is_there(path, "") || is_there(path, ".tmp-export")) fail_msg("%s: something was left", all[i].words);
    }
    free(ini);
    rig_close(&r);
}

// A model that none of the families is: nothing of it stays, though its weights had been written.
static void what_no_family_is_leaves_nothing(void **state) {
    (void)state;
    static const struct {
        const char *settings, *says;
    } all[] = {{"bias = qkv\nqk_norm = yes\n", "qk_norm = yes with bias = qkv: no family"},
               {"bias = all\nwindow = 5\n", "window = 5 with bias = all: no family"}};
    for (int i = 0; i < 2; i++) {
        char text[256];
        rig r;
        rig_open(&r);
        snprintf(text, sizeof text,
                 "[model]\ntype = llama\nlayers = 1\nheads = 1\nembed = 4\nhidden = 4\ncontext = 8\nvocab = 61\n%s",
                 all[i].settings);
        rig_train(&r, short_run, text);
        assert_int_equal(command(&r, "%D/runs/default %D/to"), ERR_CONFIG);
        if (!strstr(err_last()->text, all[i].says)) fail_msg("%s: %s", all[i].settings, err_last()->text);
        assert_false(is_there(r.to, ""));
        assert_false(is_there(r.to, ".tmp-export"));
        rig_close(&r);
    }
}

// Those of large models have tens of megabytes.
static void a_large_tokenizer_goes_along(void **state) {
    (void)state;
    enum { LARGE = 40 << 20 };
    rig r;
    char from[700], to[700], *text, *copy;
    size_t n;
    rig_open(&r);
    rig_train(&r, short_run, "[model]\nlayers = 1\nheads = 1\nembed = 4\ncontext = 8\nvocab = 256\n");
    text = words_of_bytes(&n);
    text = realloc(text, LARGE);
    assert_non_null(text);
    memset(text + n, '\n', LARGE - n);
    snprintf(from, sizeof from, "%s/large.json", r.dir);
    OK(io_write_file(from, text, LARGE, NULL));
    EXPORT(r.run, r.to, NULL, "--tokenizer", from);
    snprintf(to, sizeof to, "%s/tokenizer.json", r.to);
    OK(io_read_file(to, LARGE, &copy, &n));
    assert_int_equal(n, LARGE);
    assert_memory_equal(copy, text, LARGE);
    free(text), free(copy);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_export_needs_the_weights_alone), cmocka_unit_test(paths_may_be_given_in_any_way),
        cmocka_unit_test(the_command_is_read_word_by_word),  cmocka_unit_test(what_no_family_is_leaves_nothing),
        cmocka_unit_test(a_large_tokenizer_goes_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
