// test/test_families.c: models of Hugging Face, read from directories that save_pretrained wrote, against what
// transformers computes with them (test/golden/families): logits, the first gradient, five AdamW steps, greedy text.
// Other ways to write config.json, what must be refused, the angles of rotary embedding, and a checkpoint of llm.c.
#include "test/support/foreign.h"
#include "test/support/square.h"

#include "model/families.h"
#include "model/foreign.h"
#include "model/llama/llama.h"
#include "model/rope.h"
#include "model/weights.h"
#include "trainer/session/evaluate.h"
#include "trainer/session/restore.h"

#include <inttypes.h>
#include <math.h>

#define FOLDER "test/golden/families/"
enum { V = 61, T = 40, STEPS = 5, WINDOWS = 2, GREEDY = 20, PROMPT = 8 };

// The [model] section that fits the directory, as `lockstep inspect` prints it.
static void model_section(const char *family, char dst[4096]) {
    char path[256];
    weights *w;
    const model_type *type;
    void *options;
    snprintf(path, sizeof path, FOLDER "%s", family);
    OK(weights_open(&w, path));
    assert_non_null(w->config);
    OK(foreign_options(&type, &options, w->config, path));
    size_t n = (size_t)snprintf(dst, 4096, "[model]\ntype = %s\n", type->name);
    for (int i = 0; i < type->keys; i++) {
        char value[SETTING_VALUE];
        setting_value(&type->key[i], options, value);
        bool ours = strcmp(type->key[i].key, "context") != 0 && strcmp(type->key[i].key, "head_chunks") != 0;
        if (ours) n += (size_t)snprintf(dst + n, 4096 - n, "%s = %s\n", type->key[i].key, value);
    }
    snprintf(dst + n, 4096 - n, "context = %d\ninit_resize = yes\ninit_from = %s\n", T, path);
    free(options);
    weights_close(w);
}

static void family_open(session *x, config *c, const char *dir, const char *family, const char *more) {
    char text[8192], section[4096];
    model_section(family, section);
    snprintf(text, sizeof text,
             "[data]\ntrain = " FOLDER "tokens.bin\nval =\nformat = raw16\nshuffle = no\n%s"
             "[batch]\nglobal = 4\nmicro = 4\nlanes = 1\n"
             "[optimizer]\nlr = 1e-3\nbeta1 = 0.9\nbeta2 = 0.99\neps = 1e-8\nweight_decay = 0.1\ngrad_clip = 1\n"
             "[schedule]\ntype = constant\nwarmup = -1\n[sample]\ntokens = 0\n",
             section);
    load_config(c, dir, text, more);
    OK(session_open(x, c, SESSION_TRAIN, NULL));
    OK(session_init(x));
    OK(session_feed(x, STEPS));
}

static void golden_open_of(st_file *f, const char *family) {
    char path[256];
    snprintf(path, sizeof path, FOLDER "%s/golden.safetensors", family);
    OK(st_open(f, path));
}

static int64_t elements(const st_tensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->dims; d++) n *= t->size[d];
    return n;
}

static float *golden_floats(const st_file *f, const char *name, int64_t count) {
    const st_tensor *t = st_find(f, name);
    if (!t) fail_msg("%s has no %s", f->path, name);
    float *x = malloc((size_t)elements(t) * sizeof *x);
    assert_int_equal(elements(t), count);
    OK(st_read_f32(f, t, x));
    return x;
}

static void golden_doubles(const st_file *f, const char *name, int64_t count, double *out) {
    const st_tensor *t = st_find(f, name);
    if (!t || t->type != ST_F64 || elements(t) != count) fail_msg("%s: no %s", f->path, name);
    OK(st_read(f, t, out));
}

// --- logits and greedy text ------------------------------------------------------------------------------------------

static void tokens_of(int64_t window, int32_t out[T]) {
    uint16_t raw[T];
    FILE *f = fopen(FOLDER "tokens.bin", "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, window * T * 2, SEEK_SET), 0);
    assert_int_equal(fread(raw, 2, T, f), T);
    fclose(f);
    for (int i = 0; i < T; i++) out[i] = raw[i];
}

static void logits_agree(session *x, const st_file *f, const char *family) {
    float *want = golden_floats(f, "logits", WINDOWS * T * V), got[V], largest = 0;
    for (int64_t i = 0; i < (int64_t)WINDOWS * T * V; i++) largest = fmaxf(largest, fabsf(want[i]));
    for (int w = 0; w < WINDOWS; w++) {
        int32_t tokens[T];
        tokens_of(w, tokens);
        for (int64_t n = 1; n <= T; n++) {
            OK(evaluator_scores(&x->evaluator, &(predict_ask){.tokens = tokens, .count = n, .scores = got}));
            for (int v = 0; v < V; v++) {
                float wanted = want[(w * T + n - 1) * V + v];
                if (!(fabsf(got[v] - wanted) <= 1e-5f * largest))
                    fail_msg("%s: logit %d after %d tokens of window %d is %.7f, expected %.7f", family, v, (int)n, w,
                             (double)got[v], (double)wanted);
            }
        }
    }
    free(want);
}

static void greedy_agrees(session *x, const st_file *f, const char *family) {
    double want[PROMPT + GREEDY];
    int32_t tokens[T];
    float scores[V];
    golden_doubles(f, "greedy", PROMPT + GREEDY, want);
    tokens_of(0, tokens);
    for (int n = PROMPT; n < PROMPT + GREEDY; n++) {
        OK(evaluator_scores(&x->evaluator, &(predict_ask){.tokens = tokens, .count = n, .scores = scores}));
        int best = 0;
        for (int v = 1; v < V; v++)
            if (scores[v] > scores[best]) best = v;
        if (best != (int)want[n])
            fail_msg("%s: token %d of the greedy text is %d, expected %d", family, n, best, (int)want[n]);
        tokens[n] = best;
    }
}

// --- gradients and steps ---------------------------------------------------------------------------------------------

static void part_agrees(const st_file *f, const model *m, const weight_part *part, const param *p, const float *ours,
                        const char *family) {
    char name[256];
    int64_t cols = p->dims > 1 ? p->size[1] : 1, rows = part->rows;
    snprintf(name, sizeof name, "grad/%s%s", part->prefixed ? m->type->prefix : "", part->name);
    const st_tensor *t = st_find(f, name);
    if (!t) fail_msg("%s: golden file has no %s", family, name);
    int64_t there = elements(t) / cols;  // of a table of positions more than the context has
    float *want = golden_floats(f, name, there * cols);
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < rows * cols; i++) {
        double w = want[part->transposed ? i % cols * rows + i / cols : i];
        diff += square((double)ours[i] - w), norm += w * w;
    }
    free(want);
    if (!(sqrt(diff) <= 1e-4 * sqrt(norm) + 1e-7))
        fail_msg("%s: gradient of %s is off by %g in relative L2", family, name, sqrt(diff / norm));
}

static void gradients_agree(session *x, const st_file *f, const char *family) {
    model *m = x->net;
    OK(step_gradient(&x->runner, x->data, 1));
    tensor *grad = &x->state.grad[x->state.sum_buffer * m->params];
    for (int i = 0; i < m->params; i++) {
        const param *p = &m->param[i];
        weight_part part[WEIGHT_PARTS];
        if (p->tied >= 0) continue;
        int parts = m->type->parts(m->options, &m->param[i], part);
        float *host = malloc(tensor_bytes(&grad[i])), *ours = host;
        OK(stream_copy(x->s, host, grad[i].data, tensor_bytes(&grad[i])));
        OK(stream_wait(x->s));
        for (int k = 0; k < parts; k++) {
            part_agrees(f, m, &part[k], p, ours, family);
            ours += part[k].rows * (p->dims > 1 ? p->size[1] : 1);
        }
        free(host);
    }
}

static void steps_agree(session *x, const st_file *f, const char *family) {
    double losses[STEPS], norms[STEPS], last;
    step_result s;
    golden_doubles(f, "losses", STEPS, losses), golden_doubles(f, "norms", STEPS, norms),
        golden_doubles(f, "final_loss", 1, &last);
    x->progress.step = 0;
    OK(session_feed(x, STEPS));
    for (int i = 0; i < STEPS; i++) {
        OK(session_step(x, &s));
        if (!(fabs(s.loss - losses[i]) <= 1e-5 * losses[i]))
            fail_msg("%s: step %d: loss %.9f, expected %.9f", family, i + 1, s.loss, losses[i]);
        if (!(fabs(s.grad_norm - norms[i]) <= 1e-5 * norms[i]))
            fail_msg("%s: step %d: norm %.9f, expected %.9f", family, i + 1, s.grad_norm, norms[i]);
    }
    x->progress.step = 0;
    OK(session_feed(x, 1));
    OK(session_step(x, &s));
    if (!(fabs(s.loss - last) <= 1e-5 * last))
        fail_msg("%s: after %d updates: loss %.9f, expected %.9f", family, STEPS, s.loss, last);
}

static void family_agrees(const char *family, const char *more) {
    session x;
    config c;
    st_file f;
    char *dir = make_dir();
    golden_open_of(&f, family);
    family_open(&x, &c, dir, family, more);
    logits_agree(&x, &f, family);
    greedy_agrees(&x, &f, family);
    gradients_agree(&x, &f, family);
    steps_agree(&x, &f, family);
    session_close(&x);
    st_close(&f);
    drop_dir(dir);
}

// --- bits ------------------------------------------------------------------------------------------------------------

// Three steps from these weights, on the CPU: the hashes are those of b550c6f, and of Gemma 3 those of the build that
// brought it. (check_same_bits has more of it, and takes longer.)
static void bits_are_those_that_they_were(void **state) {
    (void)state;
    static const char *const types[] = {"fp32", "bf16", "fp16"};
    static const struct {
        const char *family, *hash[3];
    } all[] = {
        {"gpt2", {"8f2c23de0dd04d30", "c61792cb23ab808d", "7c64c9a6876553cd"}},
        {"llama", {"fc6e8ac2d9f12fde", "e35ebcb8c5c663ee", "63c3ec2d44874d82"}},
        {"llama3", {"ef4a0f1b8638ca1b", "df64f64b86dc1756", "652dbc123c5ded97"}},
        {"qwen2", {"55e277ff15c35f09", "3f7e86c438ed4fb2", "8aae19da78fe560a"}},
        {"qwen3", {"cfdad8069bea20aa", "823b47081f79ebd0", "81a43a2791c0d1b8"}},
        {"mistral", {"2ce1d7fd470f8caf", "77c88edb8fdda9e9", "d1c59b548bc931b8"}},
        {"gemma3", {"412dc4d1d510ff38", "3dffbe0b04f3a7ab", "36062ee376c9a84b"}},
    };
    char *dir = make_dir(), more[64], hash[17];
    for (int i = 0; i < 21; i++) {
        session x;
        config c;
        step_result s;
        snprintf(more, sizeof more, "[precision]\ncompute = %s\n", types[i % 3]);
        family_open(&x, &c, dir, all[i / 3].family, more);
        while (x.progress.step < 3) OK(session_step(&x, &s));
        OK(session_fetch(&x));
        OK(ckpt_hash(&x.state.ckpt, hash));
        session_close(&x);
        if (strcmp(hash, all[i / 3].hash[i % 3]) != 0)
            fail_msg("%s, %s: hash %s, expected %s", all[i / 3].family, types[i % 3], hash, all[i / 3].hash[i % 3]);
    }
    drop_dir(dir);
}

// --- other ways to say what a model is -------------------------------------------------------------------------------

enum { LAST = 8 };  // tokens whose logits are in configs.safetensors

// A session with these weights, as `lockstep inspect` says what they are.
static void look_open(session *x, config *c, const char *dir, const char *from, const char *more) {
    char *section = inspected(from), text[8192];
    snprintf(text, sizeof text,
             "[data]\nval =\n[batch]\nglobal = 1\nmicro = 1\n[device]\nthreads = 1\n[sample]\ntokens = 0\n%s", section);
    free(section);
    load_config(c, dir, text, more);
    OK(session_open(x, c, SESSION_INFERENCE, NULL));
    OK(session_init(x));
}

// The logits after each of the last tokens of the first window.
static void last_logits(session *x, float out[LAST][V]) {
    int32_t tokens[T];
    tokens_of(0, tokens);
    for (int n = 0; n < LAST; n++)
        OK(evaluator_scores(&x->evaluator,
                            &(predict_ask){.tokens = tokens, .count = T - LAST + 1 + n, .scores = out[n]}));
}

static void logits_are(const char *what, float found[LAST][V], const float *want) {
    float largest = 0;
    for (int i = 0; i < LAST * V; i++) largest = fmaxf(largest, fabsf(want[i]));
    for (int i = 0; i < LAST * V; i++)
        if (!(fabsf(found[i / V][i % V] - want[i]) <= 1e-5f * largest))
            fail_msg("%s: logit %d after %d tokens is %.7f, expected %.7f", what, i % V, T - LAST + 1 + i / V,
                     (double)found[i / V][i % V], (double)want[i]);
}

static void is_refused(const char *what, const char *from, const char *key) {
    weights *w;
    const model_type *type;
    void *options = NULL;
    OK(weights_open(&w, from));
    err_t rc = foreign_options(&type, &options, w->config, from);
    free(options);
    weights_close(w);
    if (rc != ERR_DATA) fail_msg("%s was read, and is another model", what);
    if (!strstr(err_last()->text, key)) fail_msg("%s is refused, but not for its %s: %s", what, key, err_last()->text);
}

static void reads_as(const char *name, const json_t *one, const st_file *golden, const char *more) {
    char *dir = make_dir(), from[600], key[128];
    const char *refused = json_string_value(json_object_get(one, "refused"));
    snprintf(from, sizeof from, "%s/from", dir);
    foreign_directory(from, json_string_value(json_object_get(one, "weights")), json_object_get(one, "config"));
    if (refused) is_refused(name, from, refused);
    else {
        session x;
        config c;
        float found[LAST][V];
        snprintf(key, sizeof key, "logits/%s", name);
        float *want = golden_floats(golden, key, LAST * V);
        look_open(&x, &c, dir, from, more);
        last_logits(&x, found);
        logits_are(name, found, want);
        session_close(&x);
        free(want);
    }
    drop_dir(dir);
}

// Keys that are missing, spelt as before, or switched off, are what transformers takes them for; and what is not known
// here is not read as something else.
static void config_json_means_what_transformers_reads(void **state) {
    json_t *all = read_json_file(FOLDER "configs.json"), *one;
    st_file golden;
    const char *name;
    OK(st_open(&golden, FOLDER "configs.safetensors"));
    assert_int_equal(json_object_size(all), 56);
    json_object_foreach(all, name, one) reads_as(name, one, &golden, *state);
    st_close(&golden);
    json_decref(all);
}

// A config.json that says its model_type and nothing else.
static void what_is_not_said_is_what_transformers_takes(void **state) {
    (void)state;
    json_t *all = read_json_file(FOLDER "defaults.json"), *want;
    const char *family;
    json_object_foreach(all, family, want) {
        const model_type *type;
        void *options;
        json_t *config = json_pack("{s:s}", "model_type", family);
        OK(foreign_options(&type, &options, config, family));
        for (int i = 0; i < type->keys; i++) {
            char found[SETTING_VALUE];
            const char *value = json_string_value(json_object_get(want, type->key[i].key));
            setting_value(&type->key[i], options, found);
            if (!value) continue;
            bool number = type->key[i].type == KEY_REAL;
            if (number ? strtod(value, NULL) != strtod(found, NULL) : strcmp(value, found) != 0)
                fail_msg("%s: %s is %s, expected %s", family, type->key[i].key, found, value);
        }
        free(options);
        json_decref(config);
    }
    assert_int_equal(json_object_size(all), 6);
    json_decref(all);
}

static err_t read_config(json_t *config, int64_t *kv_heads) {
    const model_type *type;
    void *options;
    err_t rc = foreign_options(&type, &options, config, "theirs");
    json_decref(config);
    if (rc != ERR_OK) return rc;
    *kv_heads = ((const llama_options *)options)->kv_heads;
    free(options);
    return ERR_OK;
}

// null is not the same as nothing: the heads of keys are then as many as those of queries, whatever the family has
// where nothing is said.
static void null_heads_of_keys_are_as_many_as_heads(void **state) {
    (void)state;
    static const char *const all[] = {"llama", "mistral", "qwen2", "qwen3"};
    for (int i = 0; i < 4; i++) {
        int64_t kv_heads;
        OK(read_config(
            json_pack("{s:s, s:i, s:n}", "model_type", all[i], "num_attention_heads", 16, "num_key_value_heads"),
            &kv_heads));
        assert_int_equal(kv_heads, 16);
    }
}

// A number that no INI file could have is refused by the key that it would be.
static void numbers_beyond_the_limits_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double value;
        const char *refused;  // NULL: the limit itself
    } all[] = {{"num_hidden_layers", 1024, NULL},
               {"num_hidden_layers", 1025, "layers = 1025"},
               {"num_hidden_layers", 0, "layers = 0"},
               {"rms_norm_eps", 1, NULL},
               {"rms_norm_eps", 1.5, "norm_eps = 1.5"},
               {"rms_norm_eps", -1e-6, "norm_eps = -1e-06"},
               {"rope_theta", 1, NULL},
               {"rope_theta", 0.5, "rope_theta = 0.5"},
               {"rope_theta", 2e12, "rope_theta = 2e+12"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool whole = strncmp(all[i].name, "num_", 4) == 0;
        int64_t kv_heads;
        json_t *value = whole ? json_integer((json_int_t)all[i].value) : json_real(all[i].value);
        err_t rc = read_config(json_pack("{s:s, s:o}", "model_type", "llama", all[i].name, value), &kv_heads);
        if (rc != (all[i].refused ? ERR_DATA : ERR_OK))
            fail_msg("%s = %g: %s", all[i].name, all[i].value, rc == ERR_OK ? "read" : err_last()->text);
        if (all[i].refused && !strstr(err_last()->text, all[i].refused))
            fail_msg("%s = %g: %s", all[i].name, all[i].value, err_last()->text);
    }
}

// --- ranges ----------------------------------------------------------------------------------------------------------

// A rank reads what it owns: any range of a parameter, which may begin and end inside a tensor that lies transposed,
// and reach over several.
static void expect_ranges(const weights_map *map, const model *m, int param, const char *family) {
    const struct param *p = &m->param[param];
    int64_t n = p->size[0] * (p->dims > 1 ? p->size[1] : 1), step = n / 37 + 1;
    float *whole = malloc((size_t)n * sizeof *whole), *some = malloc((size_t)n * sizeof *some);
    OK(weights_read(map, param, 0, n, 0, whole));
    for (int64_t first = 0; first < n; first += step)
        for (int64_t count = 1; first + count <= n; count = count < 3 ? count + 1 : 2 * count + first % 3) {
            OK(weights_read(map, param, first, count, 0, some));
            if (memcmp(some, whole + first, (size_t)count * sizeof *some) != 0)
                fail_msg("%s: %d elements of %s from %d on differ", family, (int)count, p->name, (int)first);
        }
    free(whole), free(some);
}

static void any_range_can_be_read(void **state) {
    (void)state;
    static const char *const families[] = {"gpt2", "llama3", "qwen2"};
    for (int i = 0; i < 3; i++) {
        char path[128];
        weights *w;
        weights_map *map;
        const model_type *type;
        void *options;
        model *m;
        snprintf(path, sizeof path, FOLDER "%s", families[i]);
        OK(weights_open(&w, path));
        OK(foreign_options(&type, &options, w->config, path));
        OK(model_open(&m, type, options));
        OK(weights_match(&map, w, m, options, false));
        for (int k = 0; k < m->params; k++)
            if (m->param[k].tied < 0) expect_ranges(map, m, k, families[i]);
        weights_map_close(map);
        model_close(m);
        free(options);
        weights_close(w);
    }
}

// --- a head that is the embedding ------------------------------------------------------------------------------------

// The tensors of m as others have them, and the head too, though it is the embedding: all of it, or all but one
// element. wrong: which one that is; -1: none.
static void write_with_head(const char *path, const model *m, int64_t wrong) {
    enum { MOST = 32 };
    st_tensor table[MOST] = {0};
    st_writer w;
    int count = 0;
    for (int i = 0; i < m->params; i++) {
        const struct param *p = &m->param[i];
        weight_part part[WEIGHT_PARTS];
        int parts = m->type->parts(m->options, &m->param[i], part);
        for (int k = 0; k < parts; k++) {
            st_tensor *t = &table[count++];
            assert_in_range(count, 1, MOST);
            *t = (st_tensor){.type = ST_F32, .dims = p->dims, .size = {part[k].rows, p->dims > 1 ? p->size[1] : 0}};
            snprintf(t->name, sizeof t->name, "%s%s", part[k].prefixed ? m->type->prefix : "", part[k].name);
        }
    }
    OK(st_create(&w, path, table, count, NULL, NULL));
    for (int i = 0; i < m->params; i++) {
        const struct param *p = &m->param[i];
        int64_t n = p->size[0] * (p->dims > 1 ? p->size[1] : 1);
        float *x = malloc((size_t)n * sizeof *x);
        model_init(m, p->tied >= 0 ? p->tied : i, 1, 0, n, x);
        if (p->tied >= 0 && wrong >= 0) x[wrong] += 1;
        OK(st_put(&w, x, (size_t)n * sizeof *x));
        free(x);
    }
    OK(st_finish(&w, NULL));
}

// Some write a tied head nevertheless. It may be there if each of its elements is that of the embedding, which has more
// of them than are compared at once.
static void a_tied_head_in_a_file_is_the_embedding(void **state) {
    (void)state;
    enum { ROWS = 500, COLS = 160 };
    static const int64_t wrong[] = {-1, 0, 65535, 65536, ROWS * COLS - 1};
    char *dir = make_dir(), path[600];
    config c;
    model *m;
    load_config(
        &c, dir,
        "[data]\ntrain = " FOLDER
        "tokens.bin\nval =\nformat = raw16\n[model]\ntype = llama\ntied = yes\nlayers = 1\nheads = 1\nembed = 160\n"
        "hidden = 4\ncontext = 8\nvocab = 500\n",
        "");
    OK(model_open(&m, model_types[c.model.type], &c.model.of));
    snprintf(path, sizeof path, "%s/with-head.safetensors", dir);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weights *w;
        weights_map *map;
        write_with_head(path, m, wrong[i]);
        OK(weights_open(&w, path));
        err_t rc = weights_match(&map, w, m, &c.model.of, false);
        if (rc != (wrong[i] < 0 ? ERR_OK : ERR_DATA))
            fail_msg("element %d: %s", (int)wrong[i], rc == ERR_OK ? "taken" : err_last()->text);
        if (wrong[i] >= 0) assert_non_null(strstr(err_last()->text, "lm_head.weight is not the embedding"));
        weights_map_close(map), weights_close(w);
    }
    model_close(m);
    drop_dir(dir);
}

// --- angles ----------------------------------------------------------------------------------------------------------

// Far from the first position an angle is what its rounding makes of it: at 100,000 half a unit of FP32 is a quarter of
// a degree.
static void angles_are_rounded_as_others_round_them(void **state) {
    (void)state;
    enum { D = 64, PLACES = 8 };
    static const struct {
        const char *name;
        rope r;
    } kinds[] = {
        {"default", {.theta = 10000}},
        {"theta", {.theta = 500000}},
        {"llama3", {.kind = ROPE_LLAMA3, .theta = 500000, .factor = 8, .low = 1, .high = 4, .original = 8192}}};
    st_file f;
    OK(st_open(&f, FOLDER "configs.safetensors"));
    float *at = golden_floats(&f, "rope/positions", PLACES),
          *table = malloc(sizeof *table * D * (size_t)(at[PLACES - 1] + 1));
    for (int k = 0; k < 3; k++) {
        char key[64];
        int same = 0;
        snprintf(key, sizeof key, "rope/%s/inv_freq", kinds[k].name);
        float *step = golden_floats(&f, key, D / 2);
        snprintf(key, sizeof key, "rope/%s/table", kinds[k].name);
        float *want = golden_floats(&f, key, PLACES * D);
        rope_table(&kinds[k].r, (int64_t)at[PLACES - 1] + 1, D, table);
        for (int i = 0; i < D / 2; i++) {
            float ours = rope_step(&kinds[k].r, i, D);  // others' powers and blends are off by a unit or two
            if (!(fabsf(ours - step[i]) <= 3e-7f * step[i]))
                fail_msg("%s: step of pair %d is %.9g, expected %.9g", kinds[k].name, i, ours, step[i]);
            for (int p = 0; p < PLACES && ours == step[i]; p++)
                for (int half = 0; half < 2; half++) {
                    float x = table[(int64_t)at[p] * D + half * D / 2 + i], y = want[p * D + half * D / 2 + i];
                    if (!(fabsf(x - y) <= 2e-7f))
                        fail_msg("%s: pair %d at position %d: %.9g, expected %.9g", kinds[k].name, i, (int)at[p], x, y);
                }
            same += ours == step[i];
        }
        assert_true(same > D / 4);
        free(step), free(want);
    }
    free(at), free(table);
    st_close(&f);
}

// --- llm.c -----------------------------------------------------------------------------------------------------------

static float bf16_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// One tensor of the directory gpt2, in FP32 (rounded or not) or as BF16; a matrix that lies there as (in, out) is
// turned; rows up to `stored` are filled up.
static void put_llmc(FILE *out, const st_file *f, const char *name, bool turn, int64_t stored, bool rounded,
                     bool narrow) {
    char full[128];
    snprintf(full, sizeof full, "transformer.%s", name);
    const st_tensor *t = st_find(f, full);
    if (!t) fail_msg("no %s", full);
    int64_t rows = t->size[turn ? 1 : 0], cols = t->dims > 1 ? t->size[turn ? 0 : 1] : 1;
    float *x = golden_floats(f, full, rows * cols);
    for (int64_t i = 0; i < (stored > rows ? stored : rows) * cols; i++) {
        float value = i >= rows * cols ? 7 : x[turn ? i % cols * rows + i / cols : i];
        if (rounded) value = bf16_of(value);
        assert_int_equal(fwrite((char *)&value + (narrow ? 2 : 0), narrow ? 2 : 4, 1, out), 1);
    }
    free(x);
}

// The file that llm.c's write_model makes of GPT-2: a header, then each kind of tensor for all layers.
static void write_llmc(const char *path, bool rounded, bool narrow) {
    static const struct {
        const char *name;
        bool turn;
    } kinds[] = {{"ln_1.weight", false},      {"ln_1.bias", false},         {"attn.c_attn.weight", true},
                 {"attn.c_attn.bias", false}, {"attn.c_proj.weight", true}, {"attn.c_proj.bias", false},
                 {"ln_2.weight", false},      {"ln_2.bias", false},         {"mlp.c_fc.weight", true},
                 {"mlp.c_fc.bias", false},    {"mlp.c_proj.weight", true},  {"mlp.c_proj.bias", false}};
    int32_t header[256] = {20240326, narrow ? 5 : 3, 64, V, 2, 4, 24, 64};
    st_file f;
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    OK(st_open(&f, FOLDER "gpt2/model.safetensors"));
    assert_int_equal(fwrite(header, sizeof header, 1, out), 1);
    put_llmc(out, &f, "wte.weight", false, 64, rounded, narrow);
    put_llmc(out, &f, "wpe.weight", false, 64, rounded, narrow);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int l = 0; l < 2; l++) {
            char name[64];
            snprintf(name, sizeof name, "h.%d.%s", l, kinds[k].name);
            put_llmc(out, &f, name, kinds[k].turn, 0, rounded, narrow);
        }
    put_llmc(out, &f, "ln_f.weight", false, 0, rounded, narrow);
    put_llmc(out, &f, "ln_f.bias", false, 0, rounded, narrow);
    assert_int_equal(fclose(out), 0);
    st_close(&f);
}

static void llmc_logits(const char *dir, const char *path, const char *more, float out[LAST][V]) {
    session x;
    config c;
    look_open(&x, &c, dir, path, more);
    last_logits(&x, out);
    session_close(&x);
}

// GPT-2 as a checkpoint of llm.c has the logits that transformers computed; in BF16 those of its rounded weights.
static void llm_c(void **state) {
    char *dir = make_dir(), path[3][600];
    float found[3][LAST][V];
    st_file golden;
    golden_open_of(&golden, "gpt2");
    float *want = golden_floats(&golden, "logits", WINDOWS * T * V);
    for (int i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s/%d.bin", dir, i);
        write_llmc(path[i], i > 0, i > 1);
        llmc_logits(dir, path[i], *state, found[i]);
    }
    logits_are("llm.c", found[0], want + (T - LAST) * V);
    assert_memory_equal(found[1], found[2], sizeof found[1]);
    assert_memory_not_equal(found[0], found[1], sizeof found[0]);
    free(want);
    st_close(&golden);
    drop_dir(dir);
}

static void gpt2(void **state) { family_agrees("gpt2", *state); }
static void llama(void **state) { family_agrees("llama", *state); }
static void llama_3(void **state) { family_agrees("llama3", *state); }
static void qwen_2(void **state) { family_agrees("qwen2", *state); }
static void qwen_3(void **state) { family_agrees("qwen3", *state); }
static void mistral(void **state) { family_agrees("mistral", *state); }
static void gemma_3(void **state) { family_agrees("gemma3", *state); }

// All on the CPU; `test_families cuda`: what a device computes, on a GPU, or on the simulator's.
int main(int argc, char **argv) {
    bool cuda = argc > 1 && strcmp(argv[1], "cuda") == 0;
    char *device = cuda ? "[device]\nbackend = cuda\n" : "[device]\nbackend = cpu\n";
    const struct CMUnitTest computed[] = {
        cmocka_unit_test_prestate(gpt2, device),    cmocka_unit_test_prestate(llama, device),
        cmocka_unit_test_prestate(llama_3, device), cmocka_unit_test_prestate(qwen_2, device),
        cmocka_unit_test_prestate(qwen_3, device),  cmocka_unit_test_prestate(mistral, device),
        cmocka_unit_test_prestate(gemma_3, device),
    };
    const struct CMUnitTest read[] = {
        cmocka_unit_test(bits_are_those_that_they_were),
        cmocka_unit_test_prestate(config_json_means_what_transformers_reads, device),
        cmocka_unit_test(what_is_not_said_is_what_transformers_takes),
        cmocka_unit_test(null_heads_of_keys_are_as_many_as_heads),
        cmocka_unit_test(numbers_beyond_the_limits_are_refused),
        cmocka_unit_test(any_range_can_be_read),
        cmocka_unit_test(a_tied_head_in_a_file_is_the_embedding),
        cmocka_unit_test(angles_are_rounded_as_others_round_them),
        cmocka_unit_test_prestate(llm_c, device),
    };
    int failed = cmocka_run_group_tests(computed, NULL, NULL);
    return cuda ? failed : failed + cmocka_run_group_tests(read, NULL, NULL);
}
