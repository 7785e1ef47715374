// gpu/cpu/kernel/table.c: the operations of one vector width, as a table.
#include "gpu/cpu/kernel/kernel.h"

#define ROW(op) .op = KERNEL(op)

const ops KERNEL(cpu_ops) = {
    ROW(matmul), ROW(bias_backward),
    ROW(attention_forward), ROW(attention_backward),
    ROW(layer_norm_forward), ROW(layer_norm_backward),
    ROW(gelu_forward), ROW(gelu_backward),
    ROW(embedding_forward), ROW(embedding_backward),
    ROW(cross_entropy), ROW(loss_means),
    ROW(dropout), ROW(add), ROW(cast), ROW(cast_stochastic),
    ROW(sum_squares), ROW(step_decide), ROW(adamw),
};
