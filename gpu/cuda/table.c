// gpu/cuda/table.c: the operations of a CUDA device.
#include "gpu/cuda/cuda.h"

const ops cuda_ops = {
    .matmul = cuda_matmul, .bias_backward = cuda_bias_backward,
    .attention_forward = cuda_attention_forward, .attention_backward = cuda_attention_backward,
    .layer_norm_forward = cuda_layer_norm_forward, .layer_norm_backward = cuda_layer_norm_backward,
    .gelu_forward = cuda_gelu_forward, .gelu_backward = cuda_gelu_backward,
    .embedding_forward = cuda_embedding_forward, .embedding_backward = cuda_embedding_backward,
    .cross_entropy = cuda_cross_entropy, .loss_means = cuda_loss_means, .dropout = cuda_dropout, .add = cuda_add, .cast = cuda_cast,
    .sum_squares = cuda_sum_squares, .step_decide = cuda_step_decide, .adamw = cuda_adamw, .cast_stochastic = cuda_cast_stochastic,
};
