// test/test_families.c: models of Hugging Face, read from directories that save_pretrained wrote, against what transformers computes with them
// (test/golden/families): logits, the first gradient, five AdamW steps, greedy text.
#include "test/support/run.h"

#include "model/families.h"
#include "model/foreign.h"
#include "model/weights.h"

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

// --- logits and greedy text ----------------------------------------------------------------------------------------------------

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
            OK(evaluator_scores(&x->evaluator, tokens, n, got));
            for (int v = 0; v < V; v++) {
                float wanted = want[(w * T + n - 1) * V + v];
                if (!(fabsf(got[v] - wanted) <= 1e-5f * largest))
                    fail_msg("%s: logit %d after %d tokens of window %d is %.7f, expected %.7f", family, v, (int)n, w, (double)got[v],
                             (double)wanted);
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
        OK(evaluator_scores(&x->evaluator, tokens, n, scores));
        int best = 0;
        for (int v = 1; v < V; v++)
            if (scores[v] > scores[best]) best = v;
        if (best != (int)want[n]) fail_msg("%s: token %d of the greedy text is %d, expected %d", family, n, best, (int)want[n]);
        tokens[n] = best;
    }
}

// --- gradients and steps -------------------------------------------------------------------------------------------------------

static void part_agrees(const st_file *f, const model *m, const weight_part *part, const param *p, const float *ours, const char *family) {
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
        diff += pow((double)ours[i] - w, 2), norm += w * w;
    }
    free(want);
    if (!(sqrt(diff) <= 1e-4 * sqrt(norm) + 1e-7)) fail_msg("%s: gradient of %s is off by %g in relative L2", family, name, sqrt(diff / norm));
}

static void gradients_agree(session *x, const st_file *f, const char *family) {
    model *m = x->net;
    OK(step_gradient(&x->runner, x->data, 1));
    tensor *grad = &x->state.grad[x->state.sum_buffer * m->params];
    for (int i = 0; i < m->params; i++) {
        const param *p = &m->param[i];
        weight_part part[WEIGHT_PARTS];
        if (p->tied >= 0) continue;
        int parts = m->type->parts(m, i, part);
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
    golden_doubles(f, "losses", STEPS, losses), golden_doubles(f, "norms", STEPS, norms), golden_doubles(f, "final_loss", 1, &last);
    x->step = 0;
    OK(session_feed(x, STEPS));
    for (int i = 0; i < STEPS; i++) {
        OK(session_step(x, &s));
        if (!(fabs(s.loss - losses[i]) <= 1e-5 * losses[i])) fail_msg("%s: step %d: loss %.9f, expected %.9f", family, i + 1, s.loss, losses[i]);
        if (!(fabs(s.grad_norm - norms[i]) <= 1e-5 * norms[i]))
            fail_msg("%s: step %d: norm %.9f, expected %.9f", family, i + 1, s.grad_norm, norms[i]);
    }
    x->step = 0;
    OK(session_feed(x, 1));
    OK(session_step(x, &s));
    if (!(fabs(s.loss - last) <= 1e-5 * last)) fail_msg("%s: after %d updates: loss %.9f, expected %.9f", family, STEPS, s.loss, last);
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

static void gpt2(void **state) { family_agrees("gpt2", *state); }
static void llama(void **state) { family_agrees("llama", *state); }
static void llama_3(void **state) { family_agrees("llama3", *state); }
static void qwen_2(void **state) { family_agrees("qwen2", *state); }
static void qwen_3(void **state) { family_agrees("qwen3", *state); }
static void mistral(void **state) { family_agrees("mistral", *state); }

// On the CPU; `test_families cuda`: on a GPU, or on the simulator's.
int main(int argc, char **argv) {
    char *device = argc > 1 && strcmp(argv[1], "cuda") == 0 ? "[device]\nbackend = cuda\n" : "[device]\nbackend = cpu\n";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(gpt2, device),   cmocka_unit_test_prestate(llama, device),  cmocka_unit_test_prestate(llama_3, device),
        cmocka_unit_test_prestate(qwen_2, device), cmocka_unit_test_prestate(qwen_3, device), cmocka_unit_test_prestate(mistral, device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
