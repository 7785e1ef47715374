// model/weights.h: weights that others made: a safetensors file, a directory as Hugging Face's save_pretrained writes
// it (model.safetensors, or several files and model.safetensors.index.json), or a checkpoint of llm.c (GPT-2, versions
// 3 and 5). Also our own safetensors in blocks (model.safetensors.blocks), and adapters as PEFT's save_pretrained
// writes them (adapter_model.safetensors).
//
// A parameter is read by ranges of its elements, so that a rank reads only what it owns. model_type.parts says how it
// is named and stored there: as several tensors, one after the other, or transposed.
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include "model/foreign.h"
#include "model/model.h"
#include "model/safetensors.h"

struct json_t;

typedef struct weights {
    char *path;
    int files;
    st_file *file;
    struct json_t *config;    // config.json; NULL: there is none
    struct json_t *adapters;  // adapter_config.json; NULL: these are no adapters
} weights;

// Opens the files and checks their headers. Reads no tensor. ERR_DATA, ERR_IO: which file, and what is wrong.
err_t weights_open(weights **out, const char *path);
void weights_close(weights *w);

// NULL when no file has it.
const st_tensor *weights_find(const weights *w, const char *name, const st_file **file);

// The same for model_type.from_tensors.
tensor_shapes weights_shapes(const weights *w);

// Where each parameter of a model is.
typedef struct weights_map weights_map;

// Every parameter of m must be there with its shape, and there must be nothing else. ERR_DATA lists what is missing,
// unexpected or of another shape. A directory's config.json must describe the same model as `options`: ERR_CONFIG lists
// the keys that differ, with both values. lenient: of the following
//   WEIGHTS_RESIZE   tables of a row for each token or position may have another number of rows. Those that the file
//                    lacks start as in a new model
//   WEIGHTS_MISSING  so do parameters that the file lacks: a new head on an old body
//   WEIGHTS_ADAPTERS not the frozen weights of a model with adapters, but these: the files are PEFT's
enum { WEIGHTS_RESIZE = 1, WEIGHTS_MISSING = 2, WEIGHTS_ADAPTERS = 4 };
err_t weights_match(weights_map **out, const weights *w, const model *m, const void *options, unsigned lenient);
void weights_map_close(weights_map *map);

// dst (count) = elements first .. first+count-1 of a parameter that is not tied, as FP32. seed: of a new model's
// values.
err_t weights_read(const weights_map *map, int param, int64_t first, int64_t count, uint64_t seed, float *dst);

#endif
