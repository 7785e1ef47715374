// test/test_config_keys.c: what good configurations mean: spellings, each key, layers, defaults, canonical values,
// classes, and text that comes back the same. (test_config.c: what is refused.)
#include "test/support/config_file.h"
#include "test/support/options.h"
#include "trainer/config/table.h"

#include <locale.h>

// ---- what is accepted

static void test_spellings(void **state) {
    fixture *x = *state;
    static const char crlf[] =
        "\xef\xbb\xbf[run]\r\nseed = 7\r\n\r\n; crlf\r\nname = 'a-b_c.D9'\r\n\tsteps\t=\t200 # comment\r";
    assert_int_equal(load_text(x, crlf), ERR_OK);
    assert_int_equal(x->c.run.seed, 7);
    assert_int_equal(x->c.run.steps, 200);
    assert_string_equal(x->c.run.name, "a-b_c.D9");

    assert_int_equal(load_text(x, "; continued? \\\n# no \\\n [ run ] ; yes\nseed=1;x\nsteps=\"300\"#x\n"
                                  "[log]\n[run]\nname=b ; \\\nresume=never"),
                     ERR_OK);
    assert_int_equal(x->c.run.seed, 1);
    assert_int_equal(x->c.run.steps, 300);
    assert_string_equal(x->c.run.name, "b");
    assert_int_equal(x->c.run.resume, RESUME_NEVER);

    static const struct {
        const char *written, *read;
    } texts[] = {
        {"\"To be or; not # to = be \"", "To be or; not # to = be "},
        {"\"a\\nb\\tc\\\\n\\\"d\\\"\" ; \"e\"", "a\nb\tc\\n\"d\""},
        {"'say \"hi\" \\n ;#' # it's", "say \"hi\" \\n ;#"},
        {"it's = plain text", "it's = plain text"},
        {"\"\\\\\"", "\\"},
        {"\"'\"", "'"},
        {"''", ""},
        {"\"\"", ""},
        {"", ""},
        {"; none", ""},
        {"\" \"", " "},
        {"=", "="},
        {"[x]", "[x]"},
        {"\xc3\xa9\xff", "\xc3\xa9\xff"},
        {"\"a\tb\"", "a\tb"},
        {"\"%s%n\"", "%s%n"},
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        char text[256];
        snprintf(text, sizeof text, "[sample]\nprompt = %s\n", texts[i].written);
        assert_int_equal(load_text(x, text), ERR_OK);
        assert_string_equal(x->c.sample.prompt, texts[i].read);
    }

    static const struct {
        const char *written;
        double read;
    } reals[] = {
        {"3e-4", 3e-4}, {".5", .5},     {"5.", 5}, {"0.1", 0.1}, {"1E+2", 100},
        {"007", 7},     {"1000", 1000}, {"0", 0},  {"-0", 0},
    };
    for (size_t i = 0; i < COUNT(reals); i++) {
        char text[256];
        snprintf(text, sizeof text, "[optimizer]\nlr = %s\n", reals[i].written);
        assert_int_equal(load_text(x, text), ERR_OK);
        assert_memory_equal(&x->c.optimizer.lr, &reals[i].read, sizeof(double));
    }
    assert_int_equal(load_text(x, "[run]\nseed = 9007199254740991\n"), ERR_OK);
    assert_true(x->c.run.seed == 9007199254740991);
    assert_int_equal(load_text(x, "[precision]\nloss_scale = 1024\n"), ERR_OK);
    assert_true(x->c.precision.loss_scale == 1024);
    assert_int_equal(load_text(x, "[precision]\nloss_scale = dynamic\n"), ERR_OK);
    assert_true(x->c.precision.loss_scale == 0);
}

// Every word of every list is taken, and is stored as its own number.
static void test_words(void **state) {
    fixture *x = *state;
    const config *c = &x->c;
    const struct {
        const char *section, *key, *words[8];
        const void *at;
    } lists[] = {
        {"run", "resume", {"auto", "never", "must", "other-bits"}, &c->run.resume},
        {"device", "backend", {"auto", "cpu", "cuda"}, &c->device.backend},
        {"device", "simd", {"auto", "avx512bf16", "avx512", "avx2", "neon", "portable"}, &c->device.simd},
        {"model", "type", {"gpt", "mlp", "llama", "gemma"}, &c->model.type},
        {"data", "format", {"auto", "lockstep", "llmc", "raw16", "raw32", "megatron", "idx"}, &c->data.format},
        {"precision", "compute", {"fp32", "bf16", "fp16"}, &c->precision.compute},
        {"precision", "products", {"fp32", "bf16-pairs"}, &c->precision.products},
        {"optimizer", "type", {"adamw", "sgd", "lars", "muon"}, &c->optimizer.type},
        {"schedule", "type", {"cosine", "linear", "constant", "wsd"}, &c->schedule.type},
        {"parallel", "schedule", {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}, &c->parallel.schedule},
        {"parallel", "recompute", {"none", "selective", "block"}, &c->parallel.recompute},
        {"parallel", "offload", {"none", "host", "nvme"}, &c->parallel.offload},
        {"parallel", "balance", {"none", "auto"}, &c->parallel.balance},
        {"reduce", "order", {"fixed", "any"}, &c->reduce.order},
        {"reduce", "transport", {"auto", "tcp", "nccl", "fabric"}, &c->reduce.transport},
        {"reduce", "nccl_ib", {"auto", "no", "yes"}, &c->reduce.nccl_ib},
        {"eval", "protocol", {"lm-eval", "llmc"}, &c->eval.protocol},
    };
    assert_int_equal(RESUME_MUST, 2);
    assert_int_equal(DEVICE_CUDA, 2);
    assert_int_equal(WIDTH_PORTABLE, 5);
    assert_int_equal(FORMAT_IDX, 6);
    assert_int_equal(FP16, 2);
    assert_int_equal(SCHEDULE_WSD, 3);
    for (size_t i = 0; i < COUNT(lists); i++)
        for (int w = 0; lists[i].words[w]; w++) {
            char text[128];
            snprintf(text, sizeof text, "[%s]\n%s = %s\n", lists[i].section, lists[i].key, lists[i].words[w]);
            assert_int_equal(load_text(x, text), ERR_OK);
            assert_int_equal(*(const int *)lists[i].at, w);
        }
    assert_int_equal(load_text(x, "[precision]\ncompute = bf16\n"), ERR_OK);
    assert_int_equal(c->precision.rounding, ROUNDING_NEAREST);
    assert_int_equal(load_text(x, "[precision]\nrounding = stochastic\ncompute = bf16\n"), ERR_OK);
    assert_int_equal(c->precision.rounding, ROUNDING_STOCHASTIC);
    static const struct {
        const char *word;
        bool value;
    } bools[] = {{"yes", true}, {"no", false}};
    for (size_t i = 0; i < COUNT(bools); i++) {
        char text[128];
        snprintf(text, sizeof text, "[data]\nshuffle = %s\n[pack]\ncompress = %s\n", bools[i].word, bools[i].word);
        assert_int_equal(load_text(x, text), ERR_OK);
        assert_int_equal(c->data.shuffle, bools[i].value);
        assert_int_equal(c->pack.compress, bools[i].value);
    }
    // as it was spelled when there was one place to offload to
    assert_int_equal(load_text(x, "[parallel]\noffload = yes\n"), ERR_OK);
    assert_int_equal(c->parallel.offload, OFFLOAD_HOST);
    assert_int_equal(load_text(x, "[parallel]\noffload = no\n"), ERR_OK);
    assert_int_equal(c->parallel.offload, OFFLOAD_NONE);
    assert_int_equal(load_text(x, "[parallel]\nrecompute = no\n"), ERR_CONFIG);
}

// What the kind of device chooses, is chosen again when `auto` is decided; what the file says stays.
static void test_decide(void **state) {
    fixture *x = *state;
    const char *const large = "[model]\nvocab = 50257\ncontext = 1024\n[batch]\nglobal = 64\nmicro = 64\n";
    char text[256];
    assert_int_equal(load_text(x, large), ERR_OK);
    assert_int_equal(x->c.resolved.kind, DEVICE_AUTO);
    assert_int_equal(options_of(&x->c.model.of)->gpt.head_chunks, 171);  // as on a CPU
    assert_int_equal(config_decide(&x->c, DEVICE_CUDA, "because"), ERR_OK);
    assert_int_equal(x->c.resolved.kind, DEVICE_CUDA);
    assert_string_equal(x->c.resolved.why, "because");
    assert_int_equal(options_of(&x->c.model.of)->gpt.head_chunks, 8);
    assert_true(x->c.origin[config_find(&x->c, "model", "head_chunks")].chosen);
    assert_int_equal(config_decide(&x->c, DEVICE_CPU, ""), ERR_OK);
    assert_int_equal(options_of(&x->c.model.of)->gpt.head_chunks, 171);
    assert_int_equal(load_text(x, "[precision]\nproducts = bf16-pairs\n"), ERR_OK);  // `auto` may be a CPU
    assert_int_equal(config_decide(&x->c, DEVICE_CPU, "auto chose the CPU"), ERR_OK);
    assert_int_equal(config_decide(&x->c, DEVICE_CUDA, "auto chose the GPU: big"), ERR_CONFIG);
    assert_non_null(strstr(
        err_last()->text,
        ":2: [precision] products: products = bf16-pairs is an arithmetic of CPUs, whose bits no GPU computes, and auto chose the GPU: big"));
    assert_non_null(strstr(err_last()->text, "[precision] products = fp32"));
    assert_non_null(strstr(err_last()->text, "[device] backend = cpu"));
    snprintf(text, sizeof text, "%s[device]\nbackend = cuda\n", large);
    assert_int_equal(load_text(x, text), ERR_OK);
    assert_int_equal(options_of(&x->c.model.of)->gpt.head_chunks, 8);
    snprintf(text, sizeof text, "%s[model]\nhead_chunks = 5\n", large);
    assert_int_equal(load_text(x, text + strlen("[model]\nvocab = 50257\ncontext = 1024\n")), ERR_OK);
    assert_int_equal(config_decide(&x->c, DEVICE_CUDA, ""), ERR_OK);
    assert_int_equal(options_of(&x->c.model.of)->gpt.head_chunks, 5);
}

static void test_resolve(void **state) {
    fixture *x = *state;
    static const struct {
        int global, micro, lanes;
    } auto_lanes[] = {
        {16, 8, 2}, {12, 12, 1}, {12, 3, 4}, {256, 1, 8}, {24, 4, 2}, {7, 1, 1}, {40, 1, 8}, {1, 1, 1},
    };
    for (size_t i = 0; i < COUNT(auto_lanes); i++) {
        char text[128];
        snprintf(text, sizeof text, "[batch]\nglobal = %d\nmicro = %d\n", auto_lanes[i].global, auto_lanes[i].micro);
        assert_int_equal(load_text(x, text), ERR_OK);
        assert_int_equal(x->c.resolved.lanes, auto_lanes[i].lanes);
        assert_int_equal(x->c.batch.lanes, 0);  // what was read stays open
    }
    assert_int_equal(load_text(x, "[batch]\nglobal = 16\nmicro = 1\nlanes = 16\n"), ERR_OK);
    assert_int_equal(x->c.resolved.lanes, 16);
    assert_int_equal(load_text(x, "[run]\nsteps = 777\n"), ERR_OK);
    assert_int_equal(x->c.resolved.decay_steps, 777);
    assert_true(x->c.schedule.decay_steps == 0 && x->c.schedule.warmup == 0 && x->c.resolved.warmup == 77);
    assert_int_equal(load_text(x, "[run]\nsteps = 777\n[schedule]\ndecay_steps = 100\n"), ERR_OK);
    assert_int_equal(x->c.resolved.decay_steps, 100);
    static const struct {
        int micro, context, vocab, chunks;
    } auto_chunks[] = {
        {8, 128, 256, 1},      {4, 256, 50257, 3},  {4, 1024, 50257, 11},
        {1, 1280, 16384, 1},   {1, 1281, 16384, 2}, {3, 1000, 131072, 24},
        {3, 1000, 131073, 24}, {1, 7, 16777216, 7}, {1048576, 1048576, 2, 6710887},
    };
    static const char *const types[] = {"gpt", "llama", "gemma"};
    for (size_t i = 0; i < 3 * COUNT(auto_chunks); i++) {
        const char *type = types[i / COUNT(auto_chunks)];
        size_t k = i % COUNT(auto_chunks);
        char text[160];
        if (i >= COUNT(auto_chunks) && auto_chunks[k].context > ROPE_MOST) continue;
        snprintf(text, sizeof text, "[batch]\nglobal = %d\nmicro = %d\n[model]\ntype = %s\ncontext = %d\nvocab = %d\n",
                 auto_chunks[k].micro, auto_chunks[k].micro, type, auto_chunks[k].context, auto_chunks[k].vocab);
        assert_int_equal(load_text(x, text), ERR_OK);
        assert_int_equal(*(int64_t *)config_at(&x->c, config_find(&x->c, "model", "head_chunks")),
                         auto_chunks[k].chunks);
    }
    assert_int_equal(load_text(x, "[batch]\nmicro = 4\n[model]\nvocab = 50257\nhead_chunks = 1\n"), ERR_OK);
    assert_int_equal(options_of(&x->c.model.of)->gpt.head_chunks, 1);
    // a constant rate does not decay, so its bits do not depend on run.steps
    assert_int_equal(load_text(x, "[run]\nsteps = 50\n[schedule]\ntype = constant\n"), ERR_OK);
    assert_int_equal(x->c.resolved.decay_steps, 0);
    assert_int_equal(x->c.resolved.warmup, 100);
}

// A warm-up that is not named is a tenth of the schedule, and no rule can refuse it.
static void test_open_warmup(void **state) {
    fixture *x = *state;
    static const struct {
        const char *text;
        int64_t warmup;
    } rows[] = {
        {"[run]\nsteps = 1\n", 1},
        {"[run]\nsteps = 19\n", 1},
        {"[run]\nsteps = 20\n", 2},
        {"[run]\nsteps = 999\n", 99},
        {"[run]\nsteps = 1500\n", 100},
        {"[run]\nsteps = 1500\n[schedule]\ndecay_steps = 400\n", 40},
        {"[schedule]\nwarmup = -1\n", -1},
        {"[schedule]\nwarmup = 0\ndecay_steps = 50\n", 5},
        {"[schedule]\ntype = constant\ndecay_steps = 50\n", 5},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(load_text(x, rows[i].text), ERR_OK);
        assert_int_equal(x->c.resolved.warmup, rows[i].warmup);
    }
}

// ---- layers and printing

typedef struct listing {
    int count;
    size_t used;
    char text[1 << 16];
} listing;

static err_t list_key(void *ctx, const char *key, const char *value) {
    listing *l = ctx;
    l->count++;
    l->used += (size_t)snprintf(l->text + l->used, sizeof l->text - l->used, "%s=%s\n", key, value);
    assert_true(l->used < sizeof l->text);
    return ERR_OK;
}

static void list_class(const config *c, key_class class, listing *l) {
    *l = (listing){0};
    assert_int_equal(config_each(c, class, list_key, l), ERR_OK);
}

static void list_all(const config *c, listing *l) {
    *l = (listing){0};
    for (int class = CLASS_BITS; class <= CLASS_LOCAL; class ++)
        assert_int_equal(config_each(c, (key_class) class, list_key, l), ERR_OK);
}

// The line of config_print for this key, after its indentation. Freed by the caller.
static char *printed_line(const config *c, const char *section, const char *key) {
    char *text = NULL, start[80];
    print(c, &text);
    snprintf(start, sizeof start, "[%s]\n", section);
    char *at = strstr(text, start);
    assert_non_null(at);
    snprintf(start, sizeof start, "\n%s = ", key);
    at = strstr(at, start);
    assert_non_null(at);
    at[1 + strcspn(at + 1, "\n")] = 0;
    char *line = strdup(at + 1);
    free(text);
    return line;
}

static void assert_line(const config *c, const char *section, const char *key, const char *value, const char *origin) {
    char *line = printed_line(c, section, key), expected[1024];
    snprintf(expected, sizeof expected, "%s = %s ", key, value);
    if (strncmp(line, expected, strlen(expected)) != 0) fail_msg("expected %s at the start of\n%s", expected, line);
    size_t n = strlen(line), m = strlen(origin);
    if (n < m || strcmp(line + n - m, origin) != 0) fail_msg("expected %s at the end of\n%s", origin, line);
    free(line);
}

static void test_layers(void **state) {
    fixture *x = *state;
    char over[320], origin[400];
    snprintf(over, sizeof over, "%s/over.ini", x->dir);
    write_text(x->path, "[run]\nseed = 1\nsteps = 200\n[optimizer]\nlr = 1e-2\n");
    write_text(over, "; above\n[optimizer]\nlr = 3e-4\n[run]\nsteps = 300\n");
    const char *files[] = {x->path, over};
    assert_int_equal(config_load(&x->c, files, 2), ERR_OK);
    assert_int_equal(x->c.run.seed, 1);
    assert_int_equal(x->c.run.steps, 300);
    assert_true(x->c.optimizer.lr == 3e-4);

    config copy = x->c;  // origins survive a copy
    memset(&x->c, 0, sizeof x->c);
    snprintf(origin, sizeof origin, "; bits   %s:2", x->path);
    assert_line(&copy, "run", "seed", "1", origin);
    snprintf(origin, sizeof origin, "; layout %s:5", over);
    assert_line(&copy, "run", "steps", "300", origin);
    snprintf(origin, sizeof origin, "; bits   %s:3", over);
    assert_line(&copy, "optimizer", "lr", "0.0003", origin);
    assert_line(&copy, "optimizer", "beta1", "0.9", "; bits   default");
    assert_line(&copy, "batch", "lanes", "2", "; bits   default, chosen");
    assert_line(&copy, "model", "head_chunks", "1", "; bits   default, chosen");
    assert_line(&copy, "run", "dir", "\"runs\"", "; local  default");

    // the other way round the first file wins, and a mistake is reported in the file that holds it
    const char *swapped[] = {over, x->path};
    assert_int_equal(config_load(&x->c, swapped, 2), ERR_OK);
    assert_int_equal(x->c.run.steps, 200);
    write_text(over, "[run]\nseed = x\n");
    assert_int_equal(config_load(&x->c, files, 2), ERR_CONFIG);
    assert_says(over, ":2: [run] seed: expected", NULL, NULL);
    write_text(over, "[schedule]\nwarmup = 201\n");  // a rule between two files: the later one is to blame
    assert_int_equal(config_load(&x->c, files, 2), ERR_CONFIG);
    assert_says(over, ":2: [schedule] warmup: the warm-up of 201 steps", "[run] steps = 201,", NULL);
    assert_int_equal(config_load(&x->c, swapped, 2), ERR_CONFIG);
    assert_says(x->path, ":3: [run] steps: the warm-up of 201 steps", NULL, NULL);
    unlink(over);
}

// What stands on the command line is later than all files, in order, and is blamed as such.
static void test_overrides(void **state) {
    fixture *x = *state;
    const char *files[] = {x->path}, *over[] = {"model.qk_norm=yes", "run.steps=300", "model.type=llama",
                                                "run.steps=400", "sample.prompt=a = \"b\"\n;"};
    write_text(x->path, "[run]\nseed = 1\nsteps = 200\n[model]\ntype = gpt\n");
    assert_int_equal(config_load_with(&x->c, files, 1, over, 5), ERR_OK);
    config copy = x->c;
    assert_line(&copy, "run", "steps", "400", "; layout command line");
    assert_line(&copy, "model", "type", "llama", "; bits   command line");
    assert_line(&copy, "model", "qk_norm", "yes", "; bits   command line");
    assert_string_equal(copy.sample.prompt, "a = \"b\"\n;");
    assert_int_equal(copy.run.seed, 1);
    assert_int_equal(copy.file_count, 1);

    const char *late[] = {"schedule.warmup=201"}, *twice[] = {"schedule.warmup=301", "run.steps=300"};
    assert_int_equal(config_load_with(&x->c, files, 1, late, 1), ERR_CONFIG);
    assert_says("command line", ": [schedule] warmup: the warm-up of 201 steps", "[run] steps = 201,", NULL);
    assert_int_equal(config_load_with(&x->c, files, 1, twice, 2), ERR_CONFIG);
    assert_says("command line", ": [run] steps: the warm-up of 301 steps", NULL, NULL);

    char name[200], value[1200];
    memset(name, 'n', sizeof name - 1), memcpy(name + 150, ".k=1", 5);
    memset(value, 'v', sizeof value - 1), memcpy(value, "run.dir=", 8), value[sizeof value - 1] = 0;
    const char *wrong[] = {"run.steps", "run.steps=0x10", "run.dir=\a", "run.dir",      "=",  "",
                           "run.=1",    ".steps=1",       "a.b.c=1",    " run.steps=1", name, value};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(config_load_with(&x->c, NULL, 0, &wrong[i], 1), ERR_CONFIG);
        assert_says("command line", ": ", "expected", NULL);
    }
}

// A family is an architecture and what it implies where nobody sets it: the same bits keys as if all of it were spelled
// out.
static void test_family(void **state) {
    fixture *x = *state;
    static const struct {
        const char *family, *spelled;
    } rows[] = {
        {"gpt2", "type = gpt"},
        {"llama2", "type = llama"},
        {"llama3", "type = llama\nrope_theta = 500000"},
        {"llama3.1", "type = llama\nrope_theta = 500000\nrope_scaling = llama3"},
        {"mistral", "type = llama\nwindow = 4096"},
        {"qwen2", "type = llama\nbias = qkv\nrope_theta = 1e6\nnorm_eps = 1e-6"},
        {"qwen2.5", "type = llama\nbias = qkv\nrope_theta = 1e6\nnorm_eps = 1e-6"},
        {"qwen3", "type = llama\nqk_norm = yes\nhead_dim = 128\nrope_theta = 1e6\nnorm_eps = 1e-6"},
        {"gemma3", "type = gemma"},
        {"resnet18", "type = resnet\ndepth = 18"},
        {"resnet34", "type = resnet\ndepth = 34"},
        {"resnet50", "type = resnet"},
        {"resnet101", "type = resnet\ndepth = 101"},
        {"resnet20", "type = resnet\ndepth = 20"},
        {"resnet32", "type = resnet\ndepth = 32"},
        {"resnet56", "type = resnet\ndepth = 56"},
        {"t5-1.0", "type = t5\nactivation = relu\ntied = yes"},
    };
    int families = 0;
    for (int t = 0; t < MODEL_TYPES; t++) {
        assert_true(model_types[t]->options <= MODEL_OPTIONS_ROOM);
        for (const model_alias *a = model_types[t]->alias; a && a->name; a++) families++;
    }
    assert_int_equal(families, COUNT(rows));
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[200], alias[17], plain[17];
        snprintf(text, sizeof text, "[model]\ntype = %s\n", rows[i].family);
        assert_int_equal(load_text(x, text), ERR_OK);
        config_hash(&x->c, alias);
        snprintf(text, sizeof text, "[model]\n%s\n", rows[i].spelled);
        assert_int_equal(load_text(x, text), ERR_OK);
        config_hash(&x->c, plain);
        assert_string_equal(alias, plain);
    }
    // What is set by hand counts, wherever it is set, and where each value is from is shown.
    char origin[400];
    const char *files[] = {x->path}, *over[] = {"model.type=qwen2", "model.bias=all"}, *plain[] = {"model.type=llama"};
    write_text(x->path, "[model]\nnorm_eps = 1e-4\ntype = mistral\n");
    assert_int_equal(config_load(&x->c, files, 1), ERR_OK);
    snprintf(origin, sizeof origin, "; bits   %s:3, mistral implies", x->path);
    assert_line(&x->c, "model", "window", "4096", origin);
    snprintf(origin, sizeof origin, "; bits   %s:2", x->path);
    assert_line(&x->c, "model", "norm_eps", "0.0001", origin);
    // of two families only the last one implies anything
    assert_int_equal(config_load_with(&x->c, files, 1, over, 2), ERR_OK);
    assert_line(&x->c, "model", "window", "0", "; bits   default");
    assert_line(&x->c, "model", "bias", "all", "; bits   command line");
    assert_line(&x->c, "model", "rope_theta", "1e+06", "; bits   command line, qwen2 implies");
    assert_line(&x->c, "model", "norm_eps", "0.0001", origin);
    assert_int_equal(config_load_with(&x->c, files, 1, plain, 1), ERR_OK);
    assert_line(&x->c, "model", "window", "0", "; bits   default");
    assert_int_equal(load_text(x, "[model]\ntype = qwen4\n"), ERR_CONFIG);
    assert_says(
        x->path,
        ":2: [model] type: no such value `qwen4`. Did you mean `qwen2`? (values: gpt mlp llama gemma resnet bert dlrm t5; families: gpt2 llama2 ",
        NULL, NULL);
}

// Known names of others get an answer of their own, not the nearest word; a key's other names still lead to it.
static void test_absent(void **state) {
    fixture *x = *state;
    static const struct {
        const char *set, *says;
    } rows[] = {
        {"optimizer.type=adafactor",
         "[optimizer] type: `adafactor` is not supported. There are adamw, sgd, lars and muon. (values: adamw sgd lars muon)"},
        {"optimizer.type=Lion", "`Lion` is not supported"},
        {"optimizer.type=adam", "no such value `adam`. It is adamw with weight_decay = 0."},
        {"optimizer.label_smoothing=0.1", "[optimizer] label_smoothing: not supported. The loss is"},
        {"run.use_ema=yes", "[run] use_ema: no such key. Set [optimizer] ema, such as 0.999"},
        {"run.ema_decay=0.999", "Did you mean `ema` of [optimizer]?"},
        {"model.lora_rank=8", "Did you mean `rank` of [lora]?"},
        {"parallel.fsdp=yes", "[parallel] fsdp: no such key. [parallel] zero = 1, 2 or 3"},
        {"model.type=mixtral",
         "`mixtral` is not supported. There are these: (values: gpt mlp llama gemma resnet bert dlrm t5; families: gpt2 "},
        {"precision.compute=fp8", "`fp8` is not supported. There are fp32, bf16 and fp16."},
        {"precision.compute=bfloat16", "no such value `bfloat16`. It is bf16."},
        {"device.backend=gpu", "no such value `gpu`. It is cuda."},
        {"schedule.type=polynomial", "`polynomial` is not supported. There are cosine"},
        {"batch.gradient_accumulation_steps=4",
         "no such key. It is [batch] global / (lanes * micro): for so many steps set global to"},
        {"outer.type=diloco", "no such value `diloco`. It is nesterov."},
        {"outer.type=slowmo", "`slowmo` is not supported. There are average and nesterov."},
        {"outer.compress=fp8", "no such value `fp8`. It is int8."},
        {"outer.compress=4bit", "no such value `4bit`. It is int4."},
        {"outer.compress=topk", "`topk` is not supported. There are fp16, int8 and int4."},
        {"reduce.compress=q4", "no such value `q4`. It is int4."},
        {"run.diloco=yes", "no such key. Set [outer] islands, every and type."},
        {"run.num_epochs=3", "no such key. Did you mean `epochs`?"},
        {"log.wandb=yes", "not supported. [log] tensorboard"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(config_load_with(&x->c, NULL, 0, &rows[i].set, 1), ERR_CONFIG);
        assert_says("command line", ": [", rows[i].says, NULL);
    }
    // What is known of values is said of that key's values, and what is known of keys of keys.
    static const struct {
        const char *set, *not_said;
    } apart[] = {{"run.adam=1", "It is adamw"},
                 {"device.gpu=1", "It is cuda"},
                 {"optimizer.type=epochs", "Set [run] steps"},
                 {"schedule.type=muon", "not supported"},
                 {"precision.compute=gpu", "It is cuda"},
                 {"device.mixtral=1", "not supported"}};
    for (size_t i = 0; i < COUNT(apart); i++) {
        assert_int_equal(config_load_with(&x->c, NULL, 0, &apart[i].set, 1), ERR_CONFIG);
        if (strstr(err_last()->text, apart[i].not_said)) fail_msg("%s: %s", apart[i].set, err_last()->text);
    }
    for (int i = 0; i < config_keys(); i++) {
        const setting *k = config_key(i);
        char word[CONFIG_WORD], set[200], type[80];
        bool model = strcmp(k->section, "model") == 0 && strcmp(k->key, "type") != 0;
        for (int t = 0; model && t < MODEL_TYPES; t++)
            if (k >= model_types[t]->key && k < model_types[t]->key + model_types[t]->keys)
                snprintf(type, sizeof type, "model.type=%s", model_types[t]->name);
        if (!model || strncmp(k->key, "init_", 5) == 0) strcpy(type, "model.type=gpt");
        for (int n = 0; config_word(k->also, n, word); n++) {
            const char *over[] = {type, set};
            snprintf(set, sizeof set, "%s.%s=1", k->section, word);
            if (config_load_with(&x->c, NULL, 0, over, 2) == ERR_CONFIG && strstr(err_last()->text, "not supported"))
                fail_msg("%s", err_last()->text);
        }
    }
}

static void test_defaults(void **state) {
    fixture *x = *state;
    assert_int_equal(config_load(&x->c, NULL, 0), ERR_OK);
    const config *c = &x->c;
    assert_string_equal(c->run.name, "default");
    assert_string_equal(c->run.dir, "runs");
    assert_int_equal(options_of(&c->model.of)->gpt.embed % options_of(&c->model.of)->gpt.heads, 0);
    assert_string_equal(c->sample.prompt, "One");
    assert_int_equal(c->batch.global % (c->resolved.lanes * c->batch.micro), 0);
    assert_int_equal(c->resolved.decay_steps, c->run.steps);
    assert_int_equal(c->file_count, 0);

    // an empty file changes nothing
    listing *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    list_all(c, a);
    assert_int_equal(load_text(x, ""), ERR_OK);
    list_all(c, b);
    assert_string_equal(a->text, b->text);
    assert_int_equal(load_text(x, "\n ; nothing\n\n[run]"), ERR_OK);
    list_all(c, b);
    assert_string_equal(a->text, b->text);
    free(a);
    free(b);
}

static const char classes_of[] =
    "run.seed device.plans model.type model.layers model.heads model.embed model.vocab model.context model.dropout model.head_chunks lora.rank lora.alpha lora.dropout lora.weights lora.targets data.crop data.area data.shift data.flip data.shuffle data.holdout data.ignore data.answers data.documents data.document_end batch.global "
    "batch.micro batch.lanes batch.bn_span precision.compute precision.products precision.rounding precision.loss_scale precision.scale_window optimizer.type optimizer.lr "
    "optimizer.beta1 optimizer.beta2 optimizer.eps optimizer.weight_decay optimizer.grad_clip optimizer.skip_norm optimizer.rollback "
    "optimizer.momentum optimizer.nesterov optimizer.trust optimizer.muon_momentum optimizer.ema optimizer.groups schedule.type schedule.warmup schedule.decay_steps schedule.final_fraction parallel.slices parallel.token_slices reduce.order reduce.compress reduce.compress_back reduce.compress_span reduce.density reduce.density_warmup outer.islands outer.every outer.type outer.lr outer.momentum outer.compress outer.moments outer.fragments outer.overlap outer.keep server.mode server.staleness server.timeout server.late server.every | "
    "run.name run.steps run.epochs run.bad_steps run.resume device.match model.init_from model.init_missing model.init_resize model.demand_mb lora.init_from parallel.data parallel.tensor parallel.context parallel.sequence parallel.pipeline parallel.schedule parallel.chunks parallel.deal parallel.balance parallel.stages "
    "parallel.zero parallel.recompute parallel.offload reduce.bucket_mb reduce.transport "
    "reduce.nccl_ib reduce.nccl_algorithm reduce.fabric_provider server.count server.weight cluster.nodes cluster.racks cluster.joined cluster.port cluster.timeout cluster.heartbeat cluster.elastic cluster.min_ranks cluster.dead_s cluster.give_up_s cluster.evict_slow cluster.slow_s snapshot.every snapshot.live checkpoint.every checkpoint.compare checkpoint.async checkpoint.compress checkpoint.misses checkpoint.keep_best eval.every eval.patience eval.best_of eval.weights eval.batches eval.protocol "
    "sample.every sample.tokens sample.prompt sample.temperature sample.top_k sample.top_p sample.min_p sample.stop sample.template log.hash_every log.power_every | "
    "run.dir run.faults device.backend device.ranks device.threads device.simd device.graph device.check data.train data.val data.format "
    "data.prefetch data.workers data.retry pack.input pack.images pack.val_input pack.output pack.tokenizer pack.text_key pack.template pack.documents pack.shard_tokens pack.val_fraction "
    "pack.shard_images pack.size pack.bad_most pack.clicks pack.threshold pack.shard_records pack.compress parallel.offload_dir reduce.nccl_library reduce.nccl_interface reduce.fabric_domain server.record server.replay cluster.secret_file checkpoint.keep checkpoint.compress_level eval.sets eval.text eval.choices sample.batch sample.tokenizer log.every "
    "log.jsonl log.tensorboard log.report log.ranks_every log.watch log.machine_every log.http log.http_token log.prom_file ";

static err_t list_name(void *ctx, const char *key, const char *value) {
    (void)value;
    strcat(strcat(ctx, key), " ");
    return ERR_OK;
}

static err_t stop_at_third(void *ctx, const char *key, const char *value) {
    (void)key, (void)value;
    return ++*(int *)ctx == 3 ? err_set(ERR_DATA, "enough") : ERR_OK;
}

static void test_each(void **state) {
    fixture *x = *state;
    char names[8192] = "";
    assert_int_equal(config_load(&x->c, NULL, 0), ERR_OK);
    assert_int_equal(config_each(&x->c, CLASS_BITS, list_name, names), ERR_OK);
    strcat(names, "| ");
    assert_int_equal(config_each(&x->c, CLASS_LAYOUT, list_name, names), ERR_OK);
    strcat(names, "| ");
    assert_int_equal(config_each(&x->c, CLASS_LOCAL, list_name, names), ERR_OK);
    assert_string_equal(names, classes_of);
    int seen = 0;
    assert_int_equal(config_each(&x->c, CLASS_BITS, stop_at_third, &seen), ERR_DATA);
    assert_int_equal(seen, 3);
}

static void test_canonical(void **state) {
    fixture *x = *state;
    static const char text[] = "[optimizer]\nlr = 00.00100e0\nbeta1 = 0.95000\neps = 1e-10\ngrad_clip = 1e2\n"
                               "weight_decay = 0.1000000000000000055\n[model]\ndropout = 0.333333333333333333333\n"
                               "[precision]\nloss_scale = 65536.0\n[sample]\nprompt = 'a\"b\\'\n";
    listing *l = malloc(sizeof *l);
    assert_int_equal(load_text(x, text), ERR_OK);
    list_class(&x->c, CLASS_BITS, l);
    assert_non_null(strstr(l->text, "\noptimizer.lr=0.001\n"));
    assert_non_null(strstr(l->text, "\noptimizer.beta1=0.95\n"));
    assert_non_null(strstr(l->text, "\noptimizer.eps=1e-10\n"));
    assert_non_null(strstr(l->text, "\noptimizer.grad_clip=1e+02\n"));
    assert_non_null(strstr(l->text, "\noptimizer.weight_decay=0.1\n"));
    assert_non_null(strstr(l->text, "\nmodel.dropout=0.3333333333333333\n"));
    assert_non_null(strstr(l->text, "\nprecision.loss_scale=65536\n"));
    assert_non_null(strstr(l->text, "\nmodel.type=gpt\n"));
    assert_non_null(strstr(l->text, "\ndata.shuffle=yes\n"));
    assert_non_null(strstr(l->text, "\nbatch.lanes=2\n"));
    assert_non_null(strstr(l->text, "\nschedule.decay_steps=600\n"));
    list_class(&x->c, CLASS_LAYOUT, l);
    assert_non_null(strstr(l->text, "\nsample.prompt=a\\\"b\\\\\n"));
    assert_int_equal(load_text(x, ""), ERR_OK);
    list_class(&x->c, CLASS_BITS, l);
    assert_non_null(strstr(l->text, "\nprecision.loss_scale=dynamic\n"));
    free(l);
}

static void test_hash(void **state) {
    fixture *x = *state;
    char base[17], other[17];
    assert_int_equal(config_load(&x->c, NULL, 0), ERR_OK);
    config_hash(&x->c, base);
    assert_int_equal(strlen(base), 16);
    assert_int_equal(strspn(base, "0123456789abcdef"), 16);
    static const struct {
        const char *text;
        bool same;
    } rows[] = {
        {"", true},
        {"[run]\nseed = 1337\n[optimizer]\nlr = 0.0010\n[batch]\nlanes = 2\n[schedule]\nwarmup = 60\ndecay_steps = 600\n",
         true},
        // in other words
        {"[device]\nthreads = 1\nsimd = portable\n[run]\ndir = elsewhere\n[log]\nevery = 1\n", true},  // local
        {"[run]\nseed = 1338\n", false},
        {"[optimizer]\nlr = 0.0010000000000000002\n", false},
        {"[run]\nsteps = 601\n[schedule]\ndecay_steps = 600\n", false},  // layout
        {"[batch]\nlanes = 1\n", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(load_text(x, rows[i].text), ERR_OK);
        config_hash(&x->c, other);
        if ((strcmp(base, other) == 0) == rows[i].same) continue;
        fail_msg("hash is %s for\n%s", rows[i].same ? "another" : "the same", rows[i].text);
    }
}

// What is printed is an INI that means the same, whatever was set.
static void test_print_and_load(void **state) {
    fixture *x = *state;
    char longest[1100], prompt[901], roundabout[800];  // a path as long as the place in a comment can be
    size_t used = (size_t)snprintf(roundabout, sizeof roundabout, "%s", x->dir);
    while (used < 500) used += (size_t)sprintf(roundabout + used, "/.");
    strcpy(roundabout + used, "/c.ini");
    memset(prompt, '\'', 900);
    prompt[900] = 0;
    snprintf(longest, sizeof longest, "[sample]\nprompt = \"%s\"\n", prompt);
    const char *texts[] = {
        "",
        "[run]\nname = x.y-z\nfaults = write@3, read@5x2\nsteps = 100000\nresume = must\n"
        "[model]\ndropout = 0.1\ninit_from = ' a;b '\n",
        "[optimizer]\nlr = 6.0221e-4\nbeta2 = 0.95\neps = 1e-30\n[precision]\ncompute = fp16\nloss_scale = 3.3\n"
        "[batch]\nglobal = 480\nmicro = 12\n",
        "[sample]\nprompt = \"\\n\\t\\\"\\\\ ; # ' = \xc3\xa9 \"\ntemperature = 0\n"
        "[data]\ntrain = \"a b\\\"\" # x\nval =\nshuffle = no\n",
        "[schedule]\ntype = constant\nwarmup = 99999\n[checkpoint]\nkeep_best = no\n"
        "[pack]\ncompress = yes\n[device]\nsimd = avx2\n",
        longest,
    };
    listing *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    for (size_t i = 0; i < COUNT(texts); i++) {
        write_text(x->path, texts[i]);
        assert_int_equal(load(x, roundabout), ERR_OK);
        list_all(&x->c, a);
        char *printed = NULL;
        print(&x->c, &printed);
        if (load_text(x, printed) != ERR_OK) fail_msg("%s\nof\n%s", err_last()->text, printed);
        list_all(&x->c, b);
        assert_string_equal(a->text, b->text);
        free(printed);
    }
    free(a);
    free(b);
}

// In a country of decimal commas a point is still what is read and written.
static void test_locale(void **state) {
    fixture *x = *state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    for (size_t i = 0; i < COUNT(names) && !setlocale(LC_ALL, names[i]); i++) {}
    err_t rc = load_text(x, "[optimizer]\nlr = 0.25\n");
    char *line = rc == ERR_OK ? printed_line(&x->c, "optimizer", "lr") : NULL;
    setlocale(LC_ALL, "C");
    assert_int_equal(rc, ERR_OK);
    assert_true(x->c.optimizer.lr == 0.25);
    assert_int_equal(strncmp(line, "lr = 0.25 ", 10), 0);
    free(line);
}

// config.ini is what the table says, and is the defaults.
static void test_config_ini(void **state) {
    fixture *x = *state;
    char path[1100], *text = NULL;
    print(NULL, &text);
    const char *source = getenv("LOCKSTEP_SOURCE");
    snprintf(path, sizeof path, "%s/config.ini", source ? source : ".");
    size_t n = strlen(text);
    char *found = calloc(1, n + 2);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s: not found; run this at the top of the source, or set LOCKSTEP_SOURCE", path);
    size_t got = fread(found, 1, n + 1, f);
    fclose(f);
    size_t same = 0;
    while (same < n && same < got && text[same] == found[same]) same++;
    if (same < n || got != n)
        fail_msg("%s: differs from the table of keys at byte %zu; expected there:\n%.200s", path, same, text + same);

    listing *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    assert_int_equal(config_load(&x->c, NULL, 0), ERR_OK);
    list_all(&x->c, a);
    if (load(x, path) != ERR_OK) fail_msg("%s", err_last()->text);
    list_all(&x->c, b);
    assert_string_equal(a->text, b->text);
    int named = 0;
    for (int i = 0; i < CONFIG_KEYS_MAX; i++) named += x->c.origin[i].file == 1;
    assert_int_equal(named, a->count);  // every key is in it

    int lines = 0;  // each key under one line of comment
    for (char *p = text, *before = NULL; p && *p; before = p, p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        size_t length = strcspn(p, "\n");
        assert_true(length <= 130);
        if (*p >= 'a' && *p <= 'z') {
            lines++;
            assert_true(before[0] == ';' && before[1] == ' ' && before[2] != '-' && before[2] != '\n');
        }
    }
    assert_int_equal(lines, a->count);
    free(a);
    free(b);
    free(found);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_spellings),   TEST(test_words),          TEST(test_decide),    TEST(test_resolve),
        TEST(test_open_warmup), TEST(test_layers),         TEST(test_overrides), TEST(test_family),
        TEST(test_absent),      TEST(test_defaults),       TEST(test_each),      TEST(test_canonical),
        TEST(test_hash),        TEST(test_print_and_load), TEST(test_locale),    TEST(test_config_ini),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
