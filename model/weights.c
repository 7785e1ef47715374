// model/weights.c: see model/weights.h.
#include "model/weights.h"

#include "base/io.h"
#include "model/llmc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JSON_MOST = 64 << 20, SHARDS_MOST = 10000 };

// --- a directory -----------------------------------------------------------------------------------------------------

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

static err_t read_json(const char *path, json_t **out) {
    char *text;
    size_t n;
    json_error_t why;
    TRY(io_read_file(path, JSON_MOST, &text, &n));
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (!*out) return err_set(ERR_DATA, "%s: line %d: not valid JSON: %s", path, why.line, why.text);
    if (json_is_object(*out)) return ERR_OK;
    json_decref(*out);
    *out = NULL;
    return err_set(ERR_DATA, "%s: expected a JSON object", path);
}

static err_t add_file(weights *w, const char *path) {
    st_file *files = realloc(w->file, (size_t)(w->files + 1) * sizeof *files);
    if (!files) return err_set(ERR_INTERNAL, "no memory for a table of %d files", w->files + 1);
    w->file = files;
    TRY(st_open(&w->file[w->files], path));
    w->files++;
    return ERR_OK;
}

static const st_file *file_named(const weights *w, const char *path) {
    for (int i = 0; i < w->files; i++)
        if (strcmp(w->file[i].path, path) == 0) return &w->file[i];
    return NULL;
}

// A name in the index may not lead out of the directory.
static err_t take_entry(weights *w, const char *index, const char *tensor, const json_t *value) {
    char path[IO_PATH];
    const char *name = json_string_value(value);
    if (!name || !*name || strchr(name, '/') || strcmp(name, "..") == 0)
        return err_set(ERR_DATA, "%s: weight_map: %.100s: expected the name of a file in the same directory", index,
                       tensor);
    TRY(io_path(path, "%s/%s", w->path, name));
    if (!file_named(w, path)) {
        if (w->files == SHARDS_MOST) return err_set(ERR_DATA, "%s: names more than %d files", index, SHARDS_MOST);
        TRY(add_file(w, path));
    }
    if (!st_find(file_named(w, path), tensor))
        return err_set(ERR_DATA, "%s: tensor %.100s should be in %s and is not", index, tensor, path);
    return ERR_OK;
}

// Every tensor of a file must be in the index, under that file, so that none is there twice.
static err_t check_index(const weights *w, const char *index, const json_t *map) {
    for (int i = 0; i < w->files; i++)
        for (int k = 0; k < w->file[i].count; k++) {
            const char *name = json_string_value(json_object_get(map, w->file[i].tensors[k].name)),
                       *slash = strrchr(w->file[i].path, '/');
            if (!name || strcmp(name, slash + 1) != 0)
                return err_set(ERR_DATA, "%s: tensor %s is in %s, and the index has it %s", index,
                               w->file[i].tensors[k].name, w->file[i].path, name ? "in another file" : "nowhere");
        }
    return ERR_OK;
}

static err_t open_index(weights *w, const char *path) {
    json_t *index, *value;
    const char *tensor;
    err_t rc = ERR_OK;
    TRY(read_json(path, &index));
    json_t *map = json_object_get(index, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        rc = err_set(ERR_DATA, "%s: no weight_map, or an empty one", path);
    json_object_foreach(map, tensor, value) if (rc == ERR_OK) rc = take_entry(w, path, tensor, value);
    if (rc == ERR_OK) rc = check_index(w, path, map);
    json_decref(index);
    return rc;
}

// As PEFT saves them.
static err_t open_adapters(weights *w, const char *config) {
    char path[IO_PATH];
    TRY(read_json(config, &w->adapters));
    TRY(io_path(path, "%s/adapter_model.safetensors", w->path));
    if (exists(path)) return add_file(w, path);
    return err_set(ERR_DATA,
                   "%s: adapter_model.safetensors is missing beside adapter_config.json; an adapter_model.bin is a "
                   "pickle, which runs code when it is read: save the adapters as safetensors",
                   w->path);
}

static err_t open_directory(weights *w) {
    char path[IO_PATH];
    TRY(io_path(path, "%s/config.json", w->path));
    if (exists(path)) TRY(read_json(path, &w->config));
    TRY(io_path(path, "%s/model.safetensors", w->path));
    if (exists(path)) return add_file(w, path);
    TRY(io_path(path, "%s/model.safetensors.index.json", w->path));
    if (exists(path)) return open_index(w, path);
    TRY(io_path(path, "%s/model.safetensors.blocks", w->path));
    if (exists(path)) return add_file(w, path);
    TRY(io_path(path, "%s/adapter_config.json", w->path));
    if (exists(path)) return open_adapters(w, path);
    TRY(io_path(path, "%s/pytorch_model.bin", w->path));
    return err_set(
        ERR_DATA, "%s: neither model.safetensors nor model.safetensors.index.json is in this directory%s", w->path,
        exists(path) ? "; pytorch_model.bin is a pickle, which runs code when it is read: save the model as safetensors"
                     : "");
}

// --- opening ---------------------------------------------------------------------------------------------------------

static err_t open_llmc(weights *w) {
    if (!(w->file = calloc(1, sizeof *w->file))) return err_set(ERR_INTERNAL, "%s: no memory", w->path);
    w->files = 1;
    return llmc_open(w->file, &w->config, w->path);
}

static err_t open_path(weights *w) {
    struct stat st;
    if (stat(w->path, &st) != 0) return err_set(ERR_IO, "%s: %m", w->path);
    if (S_ISDIR(st.st_mode)) return open_directory(w);
    return llmc_is(w->path) ? open_llmc(w) : add_file(w, w->path);
}

err_t weights_open(weights **out, const char *path) {
    weights *w = *out = calloc(1, sizeof *w);
    if (w) w->path = strdup(path);
    if (w && w->path) {
        size_t n = strlen(w->path);
        while (n > 1 && w->path[n - 1] == '/') w->path[--n] = 0;
    }
    err_t rc = w && w->path ? open_path(w) : err_set(ERR_INTERNAL, "%s: no memory", path);
    if (rc != ERR_OK) weights_close(w), *out = NULL;
    return rc;
}

void weights_close(weights *w) {
    if (!w) return;
    for (int i = 0; i < w->files; i++) st_close(&w->file[i]);
    json_decref(w->config), json_decref(w->adapters);
    free(w->file), free(w->path);
    free(w);
}

const st_tensor *weights_find(const weights *w, const char *name, const st_file **file) {
    for (int i = 0; i < w->files; i++) {
        const st_tensor *t = st_find(&w->file[i], name);
        if (t) return *file = &w->file[i], t;
    }
    return NULL;
}

static bool find_shape(const void *of, const char *name, int *dims, const int64_t **size) {
    const st_file *file;
    const st_tensor *t = weights_find(of, name, &file);
    if (t) *dims = t->dims, *size = t->size;
    return t != NULL;
}

tensor_shapes weights_shapes(const weights *w) { return (tensor_shapes){w, find_shape}; }
