// model/foreign.h: reads config.json of Hugging Face, member by member, and prints settings.
#ifndef MODEL_FOREIGN_H
#define MODEL_FOREIGN_H

#include "model/model.h"

#include <jansson.h>

enum { SETTING_VALUE = 1088 };

// The value of a setting in `options` as a file would have it.
void setting_value(const setting *k, const void *options, char dst[SETTING_VALUE]);

// --- for model_type.parts --------------------------------------------------------------------------------------------

enum { WEIGHT_PARTS = 3 };

// One of the tensors in files of others that hold a parameter: its next `rows` rows.
typedef struct weight_part {
    char name[MODEL_NAME];  // without model_type.prefix
    bool prefixed;          // files put that prefix before it
    bool transposed;        // stored as (columns, rows)
    bool filters;           // a parameter (K,R,S,C), stored as (K,C,R,S)
    bool table;             // a row for each token or position
    int64_t rows;
} weight_part;

// The sizes of that tensor, with so many rows. Returns how many dimensions it has.
int weight_part_shape(const weight_part *part, const param *p, int64_t rows, int64_t size[TENSOR_DIMS]);

// Which element of the part is `at` in the file, both row-major.
int64_t weight_part_element(const weight_part *part, const param *p, int64_t at);

// --- for model_type.from_tensors -------------------------------------------------------------------------------------

// What tensors there are. find: false: none of this name; else its dimensions, at most 8, and their sizes.
typedef struct tensor_shapes {
    const void *of;
    bool (*find)(const void *of, const char *name, int *dims, const int64_t **size);
} tensor_shapes;

// --- for model_type.from_foreign -------------------------------------------------------------------------------------

// Readers of members of a given type; `otherwise` if it is absent or null. ERR_DATA names it.
typedef struct foreign_reader {
    const char *path;
    const json_t *at;
    err_t rc;  // the first failure
} foreign_reader;
int64_t foreign_int(foreign_reader *r, const char *name, int64_t otherwise);
double foreign_real(foreign_reader *r, const char *name, double otherwise);
bool foreign_bool(foreign_reader *r, const char *name, bool otherwise);
const char *foreign_text(foreign_reader *r, const char *name, const char *otherwise);
// A reader of the member, an object; without it, a reader of nothing.
foreign_reader foreign_inside(const foreign_reader *r, const char *name);
void foreign_refuse(foreign_reader *r, const char *name, const char *why);

#endif
