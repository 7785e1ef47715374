// model/param.h: a row of a model's table of parameters.
#ifndef MODEL_PARAM_H
#define MODEL_PARAM_H

#include "gpu/gpu.h"

enum { MODEL_NAME = 96, PARAM_SHARES = 3 };

// What changes a row's values.
typedef enum param_rule {
    PARAM_OPTIMIZER,  // the run's optimizer, by their gradient
    // a running statistic of the samples, such as BatchNorm's: backward adds to its gradient what each span of samples
    // has, and the step moves it towards their mean (ops.h: average)
    PARAM_AVERAGE,
    // nothing: weights that adapters are added to. Such a row has values of the compute type, and neither gradient,
    // master nor moments
    PARAM_FROZEN,
} param_rule;

// One row of the parameter table. Norms, hashes and files follow the order of the table.
typedef struct param {
    char name[MODEL_NAME];
    int dims;
    int64_t size[TENSOR_DIMS];
    int64_t rows_in_memory;  // 0: size[0]. Else at least size[0]: rows of zeros pad values and gradient to this number
    int block;               // the block that uses it
    bool fp32;               // its values are FP32 in a 16-bit pass, too: pass.w has this type
    // Divided among slices (model_slices): each slice has an equal share of dimension `axis`. Slices lie in memory one
    // after the other, each row-major. If the matrix consists of several ones, one below the other, each is divided
    // along dimension 0. The padding of rows_in_memory, a multiple of the slices, is in the last slices.
    int slices, axis;             // 0 or 1 slices: it is whole
    int64_t share[PARAM_SHARES];  // rows of each of several matrices; all 0: it is one
    param_rule rule;
    // a matrix between hidden layers, (outputs, inputs), whose `share` rows are matrices of their own: not a table, not
    // the head, not what reads the model's input, not an adapter
    bool hidden;
    bool int8;       // a frozen one of these may be kept in 8 bits: pass.w has UINT8 (model/linear.h)
    bool whole;      // set by who trains: what changes it needs all of it, so that no owner has only a part
    float momentum;  // of an average: what a step takes of the new
    bool decay;      // weight decay applies: matrices and embeddings, not biases and gains
    // values start normal(0, init_std), or, where it is 0, uniform in +-init_bound, or, where that is 0 too, at
    // init_value
    double init_std, init_bound;
    float init_value;
    // -1, or the row whose values this one shares. It has its own gradient, which is added to that row's at the end. A
    // backward pass finishes this gradient before it adds to that row's, once, so both may use the same memory
    int tied;
} param;

static inline bool param_is_frozen(const param *p) { return p->rule == PARAM_FROZEN; }
// A checkpoint has it.
static inline bool param_is_saved(const param *p) { return p->tied < 0 && !param_is_frozen(p); }
static inline int param_slices(const param *p) { return p->slices > 1 ? p->slices : 1; }

// Elements of a slice in memory; and how many of them are not padding.
int64_t param_slice_room(const param *p);
int64_t param_slice_count(const param *p, int slice);

#endif
