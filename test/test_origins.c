// test/test_origins.c: where settings come from: what an override of the command line may be, byte by byte; what is
// said of a key that one of the files, the command line, a family or nobody set; which proposals leave what was asked
// for; and values that a run takes from its checkpoint.
#include "test/support/config_file.h"
#include "trainer/config/pipes.h"
#include "trainer/config/table.h"

enum { ROWS = 512 };

static err_t load_with(fixture *x, const char *const *files, int count, const char *override) {
    return config_load_with(&x->c, files, count, &override, override ? 1 : 0);
}

static err_t override_with(fixture *x, const char *override) { return load_with(x, NULL, 0, override); }

// --- an override, byte by byte ---------------------------------------------------------------------------------------

// A name is letters, digits and _, up to 63 of them; what is no name of ours is looked for then.
static void names_of_overrides(void **state) {
    fixture *x = *state;
    char text[200];
    for (int c = 1; c < 256; c++) {
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        if (c == '=' || c == '.') continue;
        snprintf(text, sizeof text, "ru%cn.steps=1", c);
        assert_int_equal(override_with(x, text), ERR_CONFIG);
        assert_says("command line: ", good ? "[ru" : "-o `", good ? "no such section" : "expected section.key=value",
                    NULL);
        snprintf(text, sizeof text, "run.st%ceps=1", c);
        assert_int_equal(override_with(x, text), ERR_CONFIG);
        assert_says("command line: ", good ? "[run] st" : "-o `", good ? "no such key" : "expected section.key=value",
                    NULL);
    }
    for (int n = INI_NAME - 2; n <= INI_NAME; n++)
        for (int key = 0; key < 2; key++) {
            char name[INI_NAME + 1];
            memset(name, 'n', sizeof name), name[n] = 0;
            snprintf(text, sizeof text, "%s.%s=1", key ? "run" : name, key ? name : "steps");
            assert_int_equal(override_with(x, text), ERR_CONFIG);
            assert_says("command line: ", n < INI_NAME ? "[" : "-o `",
                        n < INI_NAME ? "no such" : "expected section.key=value", NULL);
        }
}

// A value is what stands after the first =, with the bytes that a quoted one of a file may have.
static void values_of_overrides(void **state) {
    fixture *x = *state;
    char text[INI_LINE + 100];
    for (int c = 1; c < 256; c++) {
        bool good = c == '\n' || c == '\t' || (c >= ' ' && c != 127);
        for (int at = 0; at < 3; at++) {
            snprintf(text, sizeof text, "sample.prompt=abc");
            text[14 + at] = (char)c;
            assert_int_equal(override_with(x, text), good ? ERR_OK : ERR_CONFIG);
            if (good) assert_string_equal(x->c.sample.prompt, text + 14);
            else
                assert_says("command line", ": [sample] prompt: expected at most 1000 bytes of plain text, found `",
                            NULL, NULL);
        }
    }
    static const char *const as_they_are[] = {"", "=", "a=b", "\"a\"", "'a", "a\\n", " a ", "#", ";", "a.b=c"};
    for (size_t i = 0; i < COUNT(as_they_are); i++) {
        snprintf(text, sizeof text, "sample.prompt=%s", as_they_are[i]);
        assert_int_equal(override_with(x, text), ERR_OK);
        assert_string_equal(x->c.sample.prompt, as_they_are[i]);
    }
    static const struct {
        int n;
        const char *says;
    } lengths[] = {{900, NULL},
                   {901, "expected at most 900 characters"},
                   {INI_LINE, "expected at most 900 characters"},
                   {INI_LINE + 1, "expected at most 1000 bytes"}};
    for (size_t i = 0; i < COUNT(lengths); i++) {
        memset(text, 'v', sizeof text), memcpy(text, "sample.prompt=", 14), text[14 + lengths[i].n] = 0;
        assert_int_equal(override_with(x, text), lengths[i].says ? ERR_CONFIG : ERR_OK);
        if (lengths[i].says) assert_says("command line", ": [sample] prompt: ", lengths[i].says, NULL);
    }
}

// Each key of each architecture is found, set, and known as set by the command line; and none of another architecture.
static void every_key_can_be_set(void **state) {
    fixture *x = *state;
    for (int t = 0; t < MODEL_TYPES; t++) {
        char type[80], place[INI_PLACE], value[CONFIG_VALUE];
        snprintf(type, sizeof type, "model.type=%s", model_types[t]->name);
        assert_int_equal(override_with(x, type), ERR_OK);
        config plain = x->c;
        int rows = 0;
        for (int i = config_next(&plain, -1); i >= 0; i = config_next(&plain, i), rows++) {
            const setting *k = config_key(i);
            char set[CONFIG_VALUE + 200];
            assert_int_equal(config_find(&plain, k->section, k->key), i);
            config_value(&plain, i, value);
            if (strchr(value, '\\')) continue;  // escapes are of files
            snprintf(set, sizeof set, "%s.%s=%s", k->section, k->key, value);
            const char *over[] = {type, set};
            if (config_load_with(&x->c, NULL, 0, over, 2) != ERR_OK) fail_msg("%s: %s", set, err_last()->text);
            assert_string_equal(config_place(&x->c, i, place), "command line");
            assert_false(x->c.origin[i].chosen && strcmp(value, "0") != 0);
            assert_true(config_given(&x->c, k->section, k->key, CONFIG_FILES_MAX));
        }
        int others = 0;
        for (int i = 0; i < config_keys(); i++) others += !config_applies(&plain, i);
        assert_int_equal(rows + others, config_keys());
        for (int i = 0; i < config_keys(); i++) {
            const setting *k = config_key(i);
            int found = config_find(&plain, k->section, k->key);
            if (!config_applies(&plain, i) && found >= 0) assert_true(config_applies(&plain, found));
        }
        assert_int_equal(config_find(&plain, "run", "layers"), -1);
        assert_int_equal(config_find(&plain, "", ""), -1);
    }
}

// --- who set it ------------------------------------------------------------------------------------------------------

static void blamed(fixture *x, const char *key, const char *says) {
    char section[80];
    const char *dot = strchr(key, '.');
    snprintf(section, sizeof section, "%.*s", (int)(dot - key), key);
    err_set(ERR_IO, "why");
    assert_int_equal(config_blame(&x->c, section, dot + 1), ERR_IO);
    assert_string_equal(err_last()->text, says);
}

static void who_set_a_key(void **state) {
    fixture *x = *state;
    char second[320], says[800];
    snprintf(second, sizeof second, "%s/second.ini", x->dir);
    write_text(x->path, "[sample]\ntokenizer = bytes\n[run]\nseed = 1\n");
    write_text(second, "; more\n[run]\nseed = 2\nsteps = 30\n");
    const char *files[] = {x->path, second}, *over[] = {"log.every=1", "run.steps=40"};
    assert_int_equal(config_load_with(&x->c, files, 2, over, 2), ERR_OK);
    static const struct {
        const char *section, *key;
        int last;  // number of the last file that set it; 3: the command line
    } rows[] = {{"run", "dir", 0},   {"sample", "tokenizer", 1}, {"run", "seed", 2},     {"run", "steps", 3},
                {"log", "every", 3}, {"batch", "lanes", 0},      {"model", "layers", 0}, {"model", "none", 0}};
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int after = 0; after < 3; after++)
            assert_int_equal(config_given(&x->c, rows[i].section, rows[i].key, after), rows[i].last > after);
    blamed(x, "run.dir", "[run] dir: why");
    blamed(x, "batch.lanes", "[batch] lanes: why");
    blamed(x, "log.every", "command line: [log] every: why");
    blamed(x, "run.steps", "command line: [run] steps: why");
    snprintf(says, sizeof says, "%s:2: [sample] tokenizer: why", x->path), blamed(x, "sample.tokenizer", says);
    snprintf(says, sizeof says, "%s:3: [run] seed: why", second), blamed(x, "run.seed", says);
}

// A family is of the place where it was named, and is shown there and at what it implies.
static void who_implied_a_key(void **state) {
    fixture *x = *state;
    static const struct {
        const char *first, *second, *override, *window, *type;  // %1, %2: the files
    } rows[] = {
        {"[model]\ntype = mistral\n", "", NULL, "4096 %1:2, mistral implies", "llama %1:2, mistral implies"},
        {"[run]\nseed = 1\n\n[model]\ntype = mistral\n", "", NULL, "4096 %1:5, mistral implies",
         "llama %1:5, mistral implies"},
        {"", "[model]\ntype = mistral\n", NULL, "4096 %2:2, mistral implies", "llama %2:2, mistral implies"},
        {"[model]\ntype = qwen3\n", "[model]\ntype = mistral\n", NULL, "4096 %2:2, mistral implies",
         "llama %2:2, mistral implies"},
        {"[model]\ntype = mistral\n", "[model]\ntype = llama2\n", NULL, "0 default", "llama %2:2, llama2 implies"},
        {"[model]\ntype = mistral\n", "[model]\ntype = llama\n", NULL, "0 default", "llama %2:2"},
        {"[model]\ntype = mistral\n", "[model]\nwindow = 9\n", NULL, "9 %2:2", "llama %1:2, mistral implies"},
        {"[model]\nwindow = 9\n", "[model]\ntype = mistral\n", NULL, "9 %1:2", "llama %2:2, mistral implies"},
        {"[model]\ntype = qwen3\n", "", "model.type=mistral", "4096 command line, mistral implies",
         "llama command line, mistral implies"},
        {"[model]\ntype = mistral\n", "", "model.window=0", "0 command line", "llama %1:2, mistral implies"},
        {"[model]\ntype = mistral\n", "", "model.type=llama", "0 default", "llama command line"},
    };
    char second[320];
    snprintf(second, sizeof second, "%s/second.ini", x->dir);
    const char *files[] = {x->path, second}, *keys[] = {"window", "type"};
    for (size_t i = 0; i < COUNT(rows); i++) {
        write_text(x->path, rows[i].first), write_text(second, rows[i].second);
        if (load_with(x, files, 2, rows[i].override) != ERR_OK) fail_msg("%s", err_last()->text);
        char *printed;
        print(&x->c, &printed);
        for (int k = 0; k < 2; k++) {
            char value[80], want[800], line[900] = "", start[80], *at;
            const char *from = k ? rows[i].type : rows[i].window;
            size_t n = strcspn(from, " ");
            snprintf(value, sizeof value, "%.*s", (int)n, from);
            from += n + 1;
            if (*from == '%') snprintf(want, sizeof want, "%s%s", files[from[1] - '1'], from + 2);
            else snprintf(want, sizeof want, "%s", from);
            snprintf(start, sizeof start, "\n%s = %s ", keys[k], value);
            at = strstr(strstr(printed, "[model]"), start);
            if (at) snprintf(line, sizeof line, "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
            const char *end = strstr(line, "; bits   ");
            if (!end || strcmp(end + 9, want) != 0)
                fail_msg("row %d: expected %s from %s: %s", (int)i, start + 1, want, line);
        }
        free(printed);
    }
}

// What is decided of the device chooses the model's open keys again, and nothing else.
static void deciding_changes_nothing_else(void **state) {
    fixture *x = *state;
    char before[CONFIG_VALUE], after[CONFIG_VALUE];
    assert_int_equal(load_text(x, "[model]\nvocab = 50257\ncontext = 1024\n[batch]\nglobal = 64\nmicro = 64\n"),
                     ERR_OK);
    config then = x->c;
    assert_int_equal(config_decide(&x->c, DEVICE_CUDA, "a GPU"), ERR_OK);
    int changed = 0;
    for (int i = config_next(&then, -1); i >= 0; i = config_next(&then, i)) {
        config_value(&then, i, before), config_value(&x->c, i, after);
        changed += strcmp(before, after) != 0;
        if (strcmp(before, after) != 0) assert_string_equal(config_key(i)->section, "model");
        assert_int_equal(then.origin[i].chosen, x->c.origin[i].chosen);
    }
    assert_int_equal(changed, 1);
}

// --- what is proposed ------------------------------------------------------------------------------------------------

// What the latest of the files, or the command line, asks for stays in a proposal if other keys of the rule can give
// way, whoever set those.
static void what_was_asked_for_last_stays(void **state) {
    fixture *x = *state;
    static const char *const kept =
        "Nearest that work: [device] ranks = 2, or [batch] lanes = 16 and [batch] global = 128, or [batch] lanes = 16 and "
        "[batch] micro = 1.";
    static const struct {
        const char *first, *second, *override;
        bool keeps;
    } rows[] = {
        {"", "", "device.ranks=16", true},
        {"", "[device]\nranks = 16\n", NULL, true},
        {"[batch]\nglobal = 16\nmicro = 8\nlanes = 2\n", "", "device.ranks=16", true},
        {"[batch]\nglobal = 16\nmicro = 8\n", "[batch]\nlanes = 2\n", "device.ranks=16", true},
        {"[batch]\nglobal = 16\nmicro = 8\nlanes = 2\n", "[device]\nranks = 16\n", NULL, true},
        {"[batch]\nlanes = 0\n[device]\nranks = 16\n", "", NULL, true},                           // lanes are left open
        {"", "[batch]\nlanes = 0\n[device]\nranks = 16\n", "run.steps=50", true},                 // of another rule
        {"[batch]\nglobal = 16\nmicro = 8\n[device]\nranks = 16\n", "", NULL, false},             // do not fit
        {"[batch]\nglobal = 16\nmicro = 8\nlanes = 2\n[device]\nranks = 16\n", "", NULL, false},  // all were asked for
        {"[device]\nranks = 16\n", "[batch]\nlanes = 2\n", NULL, false},                          // fewer lanes were
    };
    char second[320];
    snprintf(second, sizeof second, "%s/second.ini", x->dir);
    const char *files[] = {x->path, second};
    for (size_t i = 0; i < COUNT(rows); i++) {
        write_text(x->path, rows[i].first), write_text(second, rows[i].second);
        assert_int_equal(load_with(x, files, 2, rows[i].override), ERR_CONFIG);
        bool has = strstr(err_last()->text, kept) != NULL;
        if (has != rows[i].keeps) fail_msg("row %d: %s", (int)i, err_last()->text);
        if (!has) assert_non_null(strstr(err_last()->text, "Nearest that works: [device] ranks = 2."));
    }
}

// The nearest come first, and of those that keep what was asked for at most two take the places of the last ones.
static void the_nearest_are_shown(void **state) {
    fixture *x = *state;
    static const struct {
        const char *over[4], *shown;
    } rows[] = {
        {{"device.ranks=6"}, "[device] ranks = 2, or [batch] global = 64, or [batch] micro = 2."},
        {{"device.ranks=3"}, "[device] ranks = 2, or [batch] global = 32, or [batch] micro = 4."},
        {{"batch.lanes=64"},
         "[batch] lanes = 0, or [batch] global = 512, or [batch] micro = 4 and [batch] global = 256."},
        {{"cluster.nodes=a:8,b:8"},
         "[batch] lanes = 16 and [batch] global = 128, or [batch] lanes = 16 and [batch] micro = 1."},
        {{"parallel.tensor=4", "parallel.slices=4", "device.ranks=64"},
         "[device] ranks = 8, or [parallel] pipeline = 2 and [batch] global = 64, or [parallel] pipeline = 2 and [batch] micro = 2."},
        {{"parallel.pipeline=4", "device.ranks=4", "batch.lanes=2", "parallel.schedule=interleaved"},
         "[parallel] schedule = 1f1b, or [batch] global = 32, or [batch] micro = 4."},
        {{"batch.micro=3", "device.ranks=8"},
         "[batch] micro = 2, or [batch] micro = 4 and [device] ranks = 4, or [batch] micro = 4 and [batch] global = 32."},
        {{"parallel.pipeline=8", "device.ranks=8"},
         "[parallel] pipeline = 4, or [model] layers = 6, or [parallel] pipeline = 6 and [device] ranks = 6."},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int n = 0;
        while (n < 4 && rows[i].over[n]) n++;
        assert_int_equal(config_load_with(&x->c, NULL, 0, rows[i].over, n), ERR_CONFIG);
        const char *shown = strstr(err_last()->text, " Nearest that work: ");
        if (!shown || strcmp(shown + strlen(" Nearest that work: "), rows[i].shown) != 0)
            fail_msg("%s; expected %s", err_last()->text, rows[i].shown);
    }
}

// Where the ranks are those that the machine has, what is proposed is near to them, and no more GPUs than there are.
static void ranks_that_were_counted(void **state) {
    fixture *x = *state;
    static const struct {
        int world;
        device_kind kind;
        const char *over[2], *shown;
    } rows[] = {
        {8,
         DEVICE_CPU,
         {NULL},
         " Nearest that work: [device] ranks = 2, or [batch] global = 64, or [batch] micro = 2."},
        {8,
         DEVICE_CUDA,
         {NULL},
         " Nearest that work: [device] ranks = 2, or [batch] global = 64, or [batch] micro = 2."},
        {16, DEVICE_CUDA, {NULL}, " Nearest that works: [device] ranks = 2."},
        {4,
         DEVICE_CPU,
         {"parallel.pipeline=3"},
         " Nearest that work: [parallel] pipeline = 4, or [device] ranks = 3, or [parallel] pipeline = 2."},
        {6,
         DEVICE_CPU,
         {"parallel.tensor=4", "parallel.slices=4"},
         " Nearest that work: [device] ranks = 8, or [device] ranks = 4."},
        {6, DEVICE_CUDA, {"parallel.tensor=4", "parallel.slices=4"}, " Nearest that works: [device] ranks = 4."},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int n = 0;
        while (n < 2 && rows[i].over[n]) n++;
        assert_int_equal(config_load_with(&x->c, NULL, 0, rows[i].over, n), ERR_OK);
        assert_int_equal(config_decide(&x->c, rows[i].kind, "so"), ERR_OK);
        assert_int_equal(config_fits(&x->c, rows[i].world), ERR_CONFIG);
        const char *shown = strstr(err_last()->text, " Nearest that work");
        if (!shown || strcmp(shown, rows[i].shown) != 0)
            fail_msg("row %d: %s; expected %s", (int)i, err_last()->text, rows[i].shown);
    }
}

// --- pipelines -------------------------------------------------------------------------------------------------------

static void pipelines_at_their_limits(void **state) {
    (void)state;
    static const struct {
        pipeline_kind schedule;
        int ranks, chunks, micros;
        pipe_fault fault;
    } rows[] = {
        {PIPELINE_1F1B, 4, 1, 1, PIPE_FITS},          {PIPELINE_1F1B, 4, 2, 1, PIPE_CHUNKS},
        {PIPELINE_1F1B, 4, 1, 0, PIPE_EMPTY},         {PIPELINE_1F1B, 0, 1, 1, PIPE_EMPTY},
        {PIPELINE_ZB_V, 4, 2, 4, PIPE_FITS},          {PIPELINE_ZB_V, 4, 2, 3, PIPE_TOO_FEW},
        {PIPELINE_ZB_V, 4, 2, 5, PIPE_FITS},          {PIPELINE_ZB_V, 4, 1, 4, PIPE_CHUNKS},
        {PIPELINE_ZB_V, 4, 3, 4, PIPE_CHUNKS},        {PIPELINE_INTERLEAVED, 4, 1, 4, PIPE_FITS},
        {PIPELINE_INTERLEAVED, 4, 3, 8, PIPE_FITS},   {PIPELINE_INTERLEAVED, 4, 3, 6, PIPE_GROUPS},
        {PIPELINE_INTERLEAVED, 4, 3, 2, PIPE_GROUPS}, {PIPELINE_INTERLEAVED, 4, 0, 4, PIPE_CHUNKS},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_int_equal(pipe_judge(rows[i].schedule, rows[i].ranks, rows[i].chunks, rows[i].micros), rows[i].fault);
    int64_t most = pipe_most_micros(4, 1);
    assert_int_equal(most, (1 << 26) / 3 / 4);  // three units of each micro-batch and stage
    assert_int_equal(pipe_judge(PIPELINE_1F1B, 4, 1, most), PIPE_FITS);
    assert_int_equal(pipe_judge(PIPELINE_1F1B, 4, 1, most + 1), PIPE_TOO_MANY);
    static const struct {
        const char *text;
        bool good;
    } cuts[] = {{"5 4 3", true},    {"5,4,3", true},           {" 5, 4 ,3 ", true}, {"5 4", false},
                {"5 4 2", false},   {"5 4 4", false},          {"5 4 3 1", false},  {"6 6 0", false},
                {"13 -2 1", false}, {"5 4 3x", false},         {"5;4 3", false},    {"5+4+3", false},
                {"", false},        {"99999999999 4 3", false}};
    for (size_t i = 0; i < COUNT(cuts); i++) {
        int cut[5] = {-1, -1, -1, -1, -1};
        assert_int_equal(pipe_cuts(cuts[i].text, 3, 12, NULL), cuts[i].good);
        assert_int_equal(pipe_cuts(cuts[i].text, 3, 12, cut), cuts[i].good);
        assert_int_equal(cut[4], -1);  // there is no fourth
        if (cuts[i].good) assert_true(cut[0] == 0 && cut[1] == 5 && cut[2] == 9 && cut[3] == 12);
    }
}

// --- of a checkpoint -------------------------------------------------------------------------------------------------

static void open_keys_follow_the_steps(void **state) {
    fixture *x = *state;
    static const struct {
        const char *text;
        bool warmup, decay;
    } rows[] = {
        {"", true, true},
        {"[schedule]\nwarmup = 5\n", false, true},
        {"[schedule]\ndecay_steps = 500\n", true, false},
        {"[schedule]\nwarmup = 5\ndecay_steps = 500\n", false, false},
        {"[schedule]\nwarmup = 0\ndecay_steps = 0\n", true, true},
        {"[schedule]\ntype = constant\n", true, false},
        {"[schedule]\nwarmup = -1\n", false, true},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(load_text(x, rows[i].text), ERR_OK);
        assert_int_equal(config_follows_steps(&x->c, "schedule.warmup"), rows[i].warmup);
        assert_int_equal(config_follows_steps(&x->c, "schedule.decay_steps"), rows[i].decay);
        assert_false(config_follows_steps(&x->c, "batch.lanes"));  // open too
        assert_false(config_follows_steps(&x->c, "schedule.type"));
        assert_false(config_follows_steps(&x->c, "warmup"));
    }
}

typedef struct stored {
    char key[ROWS][80], value[ROWS][CONFIG_TEXT];
    int n;
} stored;

static err_t store(void *ctx, const char *key, const char *value) {
    stored *s = ctx;
    snprintf(s->key[s->n], sizeof *s->key, "%s", key), snprintf(s->value[s->n++], sizeof *s->value, "%s", value);
    return ERR_OK;
}

// All keys that decide bits, adopted by another run, give it the same settings, and leave alone what doesn't.
static void what_is_adopted_is_what_was_stored(void **state) {
    fixture *x = *state;
    stored *s = calloc(1, sizeof *s);
    char hash[17], again[17];
    assert_int_equal(
        load_text(
            x, "[run]\nseed = 9\nsteps = 77\n[model]\ndropout = 0.25\nlayers = 3\n[optimizer]\ntype = sgd\nlr = 3e-5\n"
               "[data]\nshuffle = no\n[precision]\ncompute = fp16\nloss_scale = 64\n"),
        ERR_OK);
    assert_int_equal(config_each(&x->c, CLASS_BITS, store, s), ERR_OK);
    assert_int_equal(config_each(&x->c, CLASS_LAYOUT, store, s), ERR_OK);
    config_hash(&x->c, hash);
    assert_int_equal(load_text(x, "[log]\nevery = 7\n"), ERR_OK);
    for (int i = 0; i < s->n; i++)
        if (config_adopt(&x->c, s->key[i], s->value[i]) != ERR_OK) fail_msg("%s: %s", s->key[i], err_last()->text);
    config_hash(&x->c, again);
    assert_string_equal(hash, again);
    assert_int_equal(x->c.log.every, 7);
    static const struct {
        const char *key, *value, *says;
        err_t code;
    } wrong[] = {
        {"run.none", "1", "run.none: no such key", ERR_INTERNAL},
        {"steps", "1", "steps: no such key", ERR_INTERNAL},
        {"llama.window", "1", "llama.window: no such key", ERR_INTERNAL},
        {"run.steps", "0", "run.steps of the checkpoint: expected a whole number", ERR_CONFIG},
        {"schedule.warmup", "x", "schedule.warmup of the checkpoint: expected", ERR_CONFIG},
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(config_adopt(&x->c, wrong[i].key, wrong[i].value), wrong[i].code);
        if (strncmp(err_last()->text, wrong[i].says, strlen(wrong[i].says)) != 0) fail_msg("%s", err_last()->text);
    }
    assert_int_equal(config_rename(&x->c, "other.name-2_x"), ERR_OK);
    assert_string_equal(x->c.run.name, "other.name-2_x");
    static const char *const names[] = {"", ".hidden", "-x", "a b", "a/b", "a\n"};
    for (size_t i = 0; i < COUNT(names); i++) assert_int_equal(config_rename(&x->c, names[i]), ERR_CONFIG);
    assert_non_null(strstr(err_last()->text, "[run] name: expected 1 to"));
    free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(names_of_overrides),
        TEST(values_of_overrides),
        TEST(every_key_can_be_set),
        TEST(who_set_a_key),
        TEST(who_implied_a_key),
        TEST(deciding_changes_nothing_else),
        TEST(what_was_asked_for_last_stays),
        TEST(the_nearest_are_shown),
        TEST(ranks_that_were_counted),
        TEST(pipelines_at_their_limits),
        TEST(open_keys_follow_the_steps),
        TEST(what_is_adopted_is_what_was_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
