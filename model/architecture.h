// model/architecture.h: what there is of an architecture: its keys, its page, and its names in files of others.
#ifndef MODEL_ARCHITECTURE_H
#define MODEL_ARCHITECTURE_H

#include "base/key.h"
#include "model/param.h"
#include "model/rule.h"

struct graph;
struct json_t;
struct foreign_reader;
struct weight_part;
struct tensor_shapes;

// Another name of an architecture: a family that is this one with some keys other than their defaults.
typedef struct model_alias {
    const char *name;
    const char *implies;  // "key=value key=value"; a key that is set in a file or by -o keeps its value
} model_alias;

// An architecture: its options, which begin with a model_division, its page, and its names in files of others.
typedef struct model_type {
    const char *name;
    const model_alias *alias;  // ends with a name of NULL; NULL: there are none
    const setting *key;        // its keys of [model]; offsets are within its options
    int keys;
    // Fills in what was left open, and checks the rules between keys. ERR_CONFIG: r->broken names the keys.
    err_t (*resolve)(void *options, model_rule *r);
    void (*page)(struct graph *g, const void *options);             // model/graph.h
    void (*describe)(const void *options, char *dst, size_t room);  // "4 layers 128 channels"
    // sizeof its options, at most MODEL_OPTIONS_ROOM (model/types.h)
    size_t options;
    // Files of Hugging Face (model/weights.h, model/families.h). parts: returns how many tensors hold a parameter.
    // NULL: there are none of this model.
    const char *prefix;
    int (*parts)(const void *options, const param *p, struct weight_part *part);
    // names that files may have and this model does not read, such as copies. NULL: there are none
    bool (*ignores)(const void *options, const char *name);
    // its model_type there, or several: "llama mistral". NULL: it has none
    const char *foreign;
    void (*from_foreign)(void *options, struct foreign_reader *r);  // of which the defaults are set
    err_t (*to_foreign)(const void *options, struct json_t *config);
    // For files without a config.json: fills in options, of which the defaults are set, by names and shapes of the
    // tensors. false: they are not of this model. NULL: it can't be told
    bool (*from_tensors)(void *options, const struct tensor_shapes *t);
} model_type;

#endif
