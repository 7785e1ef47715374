// gpu/cpu/kernel/kernel.h: the operations of one vector width. Every file here is compiled once for each width with SIMD set
// to its name; KERNEL(x) is x with that name behind it, so that all widths live in one binary. kernel/table.c puts them into cpu_ops_<width>.
#ifndef GPU_CPU_KERNEL_KERNEL_H
#define GPU_CPU_KERNEL_KERNEL_H

#include "gpu/cpu/cpu.h"

#include <assert.h>

#define KERNEL_GLUE2(name, simd) name##_##simd
#define KERNEL_GLUE(name, simd) KERNEL_GLUE2(name, simd)
#define KERNEL(name) KERNEL_GLUE(name, SIMD)

err_t KERNEL(matmul)(tensor *d, tensor *pre, const tensor *a, bool ta, const tensor *b, bool tb, const tensor *bias,
                     unsigned epilogue, stream *s);
err_t KERNEL(bias_backward)(tensor *dbias, const tensor *dy, stream *s);
err_t KERNEL(attention_forward)(tensor *y, tensor *lse, const tensor *qkv, int heads, const dropout_key *drop, stream *s);
err_t KERNEL(attention_backward)(tensor *dqkv, tensor *delta, const tensor *dy, const tensor *y, const tensor *lse,
                                 const tensor *qkv, int heads, const dropout_key *drop, stream *s);
err_t KERNEL(layer_norm_forward)(tensor *y, tensor *mean, tensor *rstd, tensor *sum, const tensor *x, const tensor *residual,
                                 const tensor *w, const tensor *b, float eps, stream *s);
err_t KERNEL(layer_norm_backward)(tensor *dx, tensor *dw, tensor *db, const tensor *dy, const tensor *dresidual, const tensor *x,
                                  const tensor *w, const tensor *mean, const tensor *rstd, stream *s);
err_t KERNEL(gelu_forward)(tensor *y, const tensor *x, stream *s);
err_t KERNEL(gelu_backward)(tensor *dx, const tensor *dy, const tensor *x, stream *s);
err_t KERNEL(embedding_forward)(tensor *x, const tensor *tokens, const tensor *wte, const tensor *wpe, stream *s);
err_t KERNEL(embedding_backward)(tensor *dwte, tensor *dwpe, tensor *scratch, const tensor *dx, const tensor *tokens, stream *s);
err_t KERNEL(cross_entropy)(tensor *losses, tensor *logits, const tensor *targets, int64_t classes, const float *scale,
                            const step_state *state, stream *s);
err_t KERNEL(loss_means)(tensor *means, const tensor *losses, stream *s);
err_t KERNEL(dropout)(tensor *y, const tensor *x, const dropout_key *drop, stream *s);
err_t KERNEL(add)(tensor *y, const tensor *a, const tensor *b, stream *s);
err_t KERNEL(cast)(tensor *y, const tensor *x, stream *s);
err_t KERNEL(cast_stochastic)(tensor *y, const tensor *x, const rounding_key *round, const step_state *state, stream *s);
err_t KERNEL(sum_squares)(tensor *sums, const tensor *g, stream *s);
err_t KERNEL(step_decide)(step_state *state, const tensor *sums, const step_rules *r, stream *s);
err_t KERNEL(adamw)(tensor *w, tensor *master, tensor *m, tensor *v, const tensor *grad, const step_state *state,
                    const adamw_rules *r, const rounding_key *round, stream *s);

#endif
