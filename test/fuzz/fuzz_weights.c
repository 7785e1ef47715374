// test/fuzz/fuzz_weights.c: any bytes at all as config.json, as an index of safetensors files, and as a checkpoint of
// llm.c. What is accepted is within the limits of the settings and can be read to its last element; what is not is
// ERR_DATA.
#include "base/io.h"
#include "model/families.h"
#include "model/foreign.h"
#include "model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

enum { CONFIG, INDEX, LLMC, KINDS };  // by the first byte

static void expect(bool truth) {
    if (!truth) abort();
}

static char dir[64];  // where the files are
static void leave(void) { io_remove_tree(dir); }

static const char *folder(void) {
    if (!dir[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(dir, sizeof dir, "%.40s/fuzz-w-XXXXXX", base ? base : "/tmp");
        expect(mkdtemp(dir) != NULL && atexit(leave) == 0);
    }
    return dir;
}

static void put(const char *name, const void *bytes, size_t n) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder(), name);
    FILE *f = fopen(path, "wb");
    expect(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static void take(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder(), name);
    unlink(path);
}

// One tensor "w" of two numbers, for whatever an index says of it.
static void put_tensor(const char *name) {
    static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}     ";
    char bytes[8 + sizeof header - 1 + 8] = {0};
    uint64_t n = sizeof header - 1;
    memcpy(bytes, &n, 8);
    memcpy(bytes + 8, header, n);
    put(name, bytes, sizeof bytes);
}

static bool read_all(const weights *w) {
    for (int i = 0; i < w->files; i++)
        for (int k = 0; k < w->file[i].count; k++) {
            const st_tensor *t = &w->file[i].tensors[k];
            int64_t n = 1;
            for (int d = 0; d < t->dims; d++) n *= t->size[d];
            float last;
            if (n > 0 && st_floating(t->type)) expect(st_read_f32_part(&w->file[i], t, n - 1, 1, &last) == ERR_OK);
        }
    return true;
}

static void check_config(const weights *w) {
    const model_type *type;
    void *options;
    if (!w->config) return;
    err_t rc = foreign_options(&type, &options, w->config, w->path);
    expect(rc == ERR_OK || rc == ERR_DATA);
    if (rc != ERR_OK) return;
    for (int i = 0; i < type->keys; i++) {
        const setting *k = &type->key[i];
        const void *at = (const char *)options + k->offset;
        double x = k->type == KEY_INT    ? (double)*(const int64_t *)at
                   : k->type == KEY_REAL ? *(const double *)at
                                         : k->min;
        char text[SETTING_VALUE];
        setting_value(k, options, text);
        expect((k->type != KEY_INT && k->type != KEY_REAL) || (x >= k->min && x <= k->max));
    }
    expect(foreign_agrees(type, options, w->config, w->path) == ERR_OK);
    free(options);
}

static bool try_path(const char *path) {
    weights *w;
    err_t rc = weights_open(&w, path);
    expect(rc == ERR_OK || rc == ERR_DATA || rc == ERR_IO);
    if (rc != ERR_OK) return false;
    read_all(w);
    check_config(w);
    weights_close(w);
    return true;
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    if (size == 0) return false;
    const uint8_t *rest = data + 1;
    char path[128];
    switch (data[0] % KINDS) {
    case CONFIG:
        put("config.json", rest, size - 1);
        put_tensor("model.safetensors");
        break;
    case INDEX:
        take("config.json"), take("model.safetensors");
        put_tensor("a.safetensors"), put_tensor("b.safetensors");
        put("model.safetensors.index.json", rest, size - 1);
        break;
    default:
        put("model.bin", rest, size - 1);
        snprintf(path, sizeof path, "%s/model.bin", folder());
        return try_path(path);
    }
    return try_path(folder());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

static void seed_text(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx, uint8_t kind,
                      const char *text) {
    uint8_t bytes[2048] = {kind};
    size_t n = strlen(text);
    expect(n < sizeof bytes - 1);
    memcpy(bytes + 1, text, n);
    seed(ctx, bytes, 1 + n);
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    seed_text(
        seed, ctx, CONFIG,
        "{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"hidden_size\":24,\"head_dim\":10,"
        "\"intermediate_size\":36,\"vocab_size\":61,\"max_position_embeddings\":64,\"rms_norm_eps\":0.01,\"tie_word_embeddings\":true,"
        "\"attention_bias\":true,\"rope_theta\":10000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
        "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":16}}");
    seed_text(
        seed, ctx, CONFIG,
        "{\"model_type\":\"qwen3\",\"num_hidden_layers\":2,\"num_attention_heads\":4,\"hidden_size\":24,\"intermediate_size\":36,\"vocab_size\":61,"
        "\"use_sliding_window\":true,\"sliding_window\":4,\"layer_types\":[\"sliding_attention\"],\"rope_parameters\":{\"rope_type\":\"default\","
        "\"rope_theta\":100}}");
    seed_text(
        seed, ctx, CONFIG,
        "{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"hidden_size\":24,\"head_dim\":8,"
        "\"query_pre_attn_scalar\":8,\"intermediate_size\":36,\"vocab_size\":61,\"sliding_window\":4,\"sliding_window_pattern\":2,\"layer_types\":["
        "\"sliding_attention\",\"full_attention\",\"sliding_attention\"],\"final_logit_softcapping\":null,\"rope_scaling\":{\"rope_type\":\"linear\","
        "\"factor\":8.0},\"rope_parameters\":{\"full_attention\":{\"rope_theta\":100},\"sliding_attention\":{\"rope_theta\":10}}}");
    seed_text(
        seed, ctx, CONFIG,
        "{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":4,\"n_embd\":24,\"vocab_size\":61,\"n_positions\":64}");
    seed_text(seed, ctx, INDEX, "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"w\":\"a.safetensors\"}}");
    uint8_t llmc[1 + 1024 + (16 * 4 + 2 * 4 + 12 * 16 + 13 * 4 + 2 * 4) * 4] = {LLMC};
    const int32_t header[8] = {20240326, 3, 2, 9, 1, 2, 4, 16};
    memcpy(llmc + 1, header, sizeof header);
    seed(ctx, llmc, sizeof llmc);
    return 0;
}
