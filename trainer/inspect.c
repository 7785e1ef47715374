// trainer/inspect.c: says what weights are: files, tensors, types, and, where it is known, the [model] section that
// fits them.
#include "model/families.h"
#include "model/foreign.h"
#include "model/peft.h"
#include "model/weights.h"
#include "trainer/verbs.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int64_t elements(const st_tensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->dims; d++) n *= t->size[d];
    return n;
}

static void print_files(const weights *w, FILE *out) {
    int tensors = 0;
    int64_t numbers = 0, bytes = 0, of_type[ST_TYPES] = {0};
    for (int i = 0; i < w->files; i++) {
        tensors += w->file[i].count, bytes += w->file[i].file_bytes;
        for (int k = 0; k < w->file[i].count; k++) {
            const st_tensor *t = &w->file[i].tensors[k];
            numbers += elements(t), of_type[t->type]++;
        }
    }
    fprintf(out, "; %s: %d file%s, %" PRId64 " bytes, %d tensors, %" PRId64 " numbers;", w->path, w->files,
            w->files == 1 ? "" : "s", bytes, tensors, numbers);
    for (int t = 0; t < ST_TYPES; t++)
        if (of_type[t]) fprintf(out, " %s", st_type_name((st_type)t));
    fprintf(out, "\n");
}

// Files of others say with which dropout their weights were trained. A new run begins without: that is said, and how to
// have it.
static void print_dropout(const model_type *type, const json_t *config, FILE *out) {
    static const char *const names[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout"};
    double most = 0;
    bool has = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double p = json_number_value(json_object_get(config, names[i]));
        if (!(p > 0)) continue;
        fprintf(out, "%s %s = %g", most > 0 ? "," : "; config.json:", names[i], p);
        most = p > most ? p : most;
    }
    for (int i = 0; i < type->keys; i++) has |= strcmp(type->key[i].key, "dropout") == 0;
    if (most > 0 && has)
        fprintf(out, ". Dropout is a choice of each training run, so it is 0 above; with dropout = %g it is as there\n",
                most);
    else if (most > 0) fprintf(out, ". A %s here has no dropout\n", type->name);
}

static void print_tensors(const weights *w, FILE *out) {
    for (int i = 0; i < w->files; i++)
        for (int k = 0; k < w->file[i].count; k++) {
            const st_tensor *t = &w->file[i].tensors[k];
            fprintf(out, "; %s %s (", t->name, st_type_name(t->type));
            for (int d = 0; d < t->dims; d++) fprintf(out, "%s%" PRId64, d ? "," : "", t->size[d]);
            fprintf(out, ")\n");
        }
}

// What [lora] takes of PEFT's files, and where their base was found then.
static err_t print_adapters(const weights *w, FILE *out) {
    const json_t *c = w->adapters, *r = json_object_get(c, "r"), *alpha = json_object_get(c, "lora_alpha");
    const char *base = json_string_value(json_object_get(c, "base_model_name_or_path"));
    model_adapters is = {.rank = json_integer_value(r), .alpha = json_number_value(alpha)};
    json_t *targets = json_object_get(c, "target_modules"), *one;
    size_t i;
    TRY(peft_agrees(c, w->path, &is));
    fprintf(out, "[lora]\nrank = %" PRId64 "\nalpha = %g\ndropout = %g\ntargets =", is.rank, is.alpha,
            json_number_value(json_object_get(c, "lora_dropout")));
    json_array_foreach(targets, i, one) fprintf(out, " %s", json_is_string(one) ? json_string_value(one) : "");
    fprintf(out, "\ninit_from = %s\n", w->path);
    if (base) fprintf(out, "; beside the weights of: %s\n", base);
    return ERR_OK;
}

// Of files without config.json what names and shapes of the tensors tell; if that is nothing, the tensors.
static err_t print_section(const weights *w, FILE *out) {
    const model_type *type;
    void *options;
    if (w->adapters) return print_adapters(w, out);
    if (w->config) TRY(foreign_options(&type, &options, w->config, w->path));
    else {
        tensor_shapes t = weights_shapes(w);
        TRY(foreign_guess(&type, &options, &t));
    }
    if (!options) return print_tensors(w, out), ERR_OK;
    fprintf(out, "[model]\ntype = %s\n", type->name);
    for (int i = 0; i < type->keys; i++) {
        char value[SETTING_VALUE];
        setting_value(&type->key[i], options, value);
        // the run's own business
        if (strcmp(type->key[i].key, "head_chunks") != 0) fprintf(out, "%s = %s\n", type->key[i].key, value);
    }
    if (w->config) print_dropout(type, w->config, out);
    fprintf(out, "init_from = %s\n", w->path);
    free(options);
    return ERR_OK;
}

err_t verb_inspect(int argc, char **argv, FILE *out) {
    weights *w;
    char path[IO_PATH];
    const char *which;
    struct stat st;
    if (argc != 1)
        return err_set(
            ERR_USAGE,
            "lockstep inspect: expected a safetensors file, a directory of Hugging Face, a .bin of llm.c, or a run");
    TRY(io_path(path, "%s/ckpt", argv[0]));
    if (stat(path, &st) == 0) TRY(checkpoint_of(argv[0], path, &which));
    else TRY(io_path(path, "%s", argv[0]));
    TRY(weights_open(&w, path));
    print_files(w, out);
    err_t rc = print_section(w, out);
    weights_close(w);
    return rc;
}
