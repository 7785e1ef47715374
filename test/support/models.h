// test/support/models.h: a model in memory of the test's own, without a trainer: its device, its plan, made-up samples
// and weights. And options of every architecture, for tables of models.
#ifndef TEST_SUPPORT_MODELS_H
#define TEST_SUPPORT_MODELS_H

#include "data/source.h"
#include "model/flow.h"
#include "test/support/options.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Also in a thread, where cmocka can't end a test.
#define OK(call) \
    do { \
        err_t ok_ = (call); \
        if (ok_ != ERR_OK) { \
            fprintf(stderr, "%s: %d: %s\n", #call, ok_, err_last()->text); \
            abort(); \
        } \
    } while (0)

// --- options ---------------------------------------------------------------------------------------------------------

// L layers, H heads, C channels, V tokens, T positions, a head in K chunks.
#define GPT_OPTIONS(L, H, C, V, T, K) .layers = L, .heads = H, .embed = C, .vocab = V, .context = T, .head_chunks = K
#define LLAMA_OPTIONS(L, T, K) \
    .layers = L, .heads = 4, .kv_heads = 2, .head_dim = 6, .embed = 20, .hidden = 28, .vocab = 37, .context = T, \
    .head_chunks = K, .norm_eps = 1e-2, .rope_theta = 100, .tied = true
// With what its families add; G heads have keys and values.
#define LLAMA_WITH_ALL(L, H, G, V) \
    .layers = L, .heads = H, .kv_heads = G, .head_dim = 10, .embed = 20, .hidden = 28, .vocab = V, .context = 11, \
    .head_chunks = 1, .norm_eps = 1e-2, .rope_theta = 100, .bias = LLAMA_BIAS_ALL, .qk_norm = true, .window = 5
#define STRETCHED_ROPE .rope_scaling = ROPE_LLAMA3, .rope_factor = 8, .rope_low = 1, .rope_high = 4, .rope_original = 7
#define GEMMA_OPTIONS(L) \
    .layers = L, .heads = 4, .kv_heads = 2, .head_dim = 6, .embed = 20, .hidden = 28, .vocab = 37, .context = 11, \
    .head_chunks = 2, .pattern = 2, .window = 5, .norm_eps = 1e-2, .rope_theta = 5000, .rope_factor = 8, \
    .local_theta = 100

#define BERT_OPTIONS(L, T) \
    .layers = L, .heads = 4, .embed = 24, .hidden = 28, .vocab = 37, .context = T, .types = 2, .classes = 5, \
    .masked = 0.2, .mask_token = 4, .begin_token = 2, .end_token = 3, .norm_eps = 1e-12, .head_chunks = 1

// An encoder of E layers and a decoder of D.
#define T5_OPTIONS(E, D) \
    .layers = E, .decoder_layers = D, .heads = 4, .head_dim = 6, .embed = 20, .hidden = 28, .vocab = 37, \
    .context = 11, .buckets = 8, .max_distance = 9, .noise = 0.3, .span = 2, .sentinel_token = 36, .end_token = 1, \
    .norm_eps = 1e-6, .head_chunks = 1

// --- a model ---------------------------------------------------------------------------------------------------------

enum { MOST = 64 };  // parameters, and blocks

typedef struct net {
    device *dev;
    stream *s;
    model *m;
    arena memory;
    flow flow;
    tensor losses, metrics, step;
} net;

// Opens it and declares what the plan says; what the test declares after this goes to the same memory, up to
// net_commit. slots: of each block.
static inline void net_open(net *n, int type, const any_options *wanted, const model_rule *rule, model_plan plan,
                            int slots, int threads) {
    any_options o = *wanted;
    model_rule resolved = *rule;
    int each[MOST];
    for (int i = 0; i < MOST; i++) each[i] = slots;
    plan.slots = each;
    OK(device_open(&n->dev, &(device_options){.kind = DEVICE_CPU, .threads = threads}));
    OK(stream_open(n->dev, &n->s));
    OK(model_types[type]->resolve(&o, &resolved));
    OK(model_open(&n->m, model_types[type], &o));
    assert_true(n->m->params <= MOST);
    arena_open(&n->memory, n->dev, MEMORY_DEVICE);
    OK(model_declare(n->m, &n->memory, &plan));
    OK(flow_declare(&n->flow, n->m, &n->memory, &plan));
    OK(arena_2d(&n->memory, &n->losses, FP32, plan.B, n->m->losses));
    OK(arena_2d(&n->memory, &n->metrics, FP64, MODEL_METRICS, plan.B));
    OK(arena_1d(&n->memory, &n->step, INT32, (int64_t)(sizeof(step_state) + 3) / 4));
}

// The memory is there, each byte `byte`.
static inline void net_commit(net *n, int byte) {
    OK(arena_commit(&n->memory));
    memset(n->memory.base, byte, n->memory.bytes);
    OK(model_fill(n->m, n->s));
    flow_link(&n->flow);
}

static inline void net_close(net *n) {
    flow_close(&n->flow);
    arena_close(&n->memory);
    model_close(n->m);
    stream_close(n->s);
    device_close(n->dev);
}

// --- samples and weights ---------------------------------------------------------------------------------------------

static inline void declare_inputs(net *n, tensor in[][MODEL_INPUTS], int micros, int64_t B) {
    for (int k = 0; k < micros; k++)
        for (int i = 0; i < n->m->inputs; i++) {
            const tensor_spec *x = &n->m->input[i];
            OK(arena_tensor(&n->memory, &in[k][i], x->type, 1 + x->dims, B, x->size[0], x->size[1], x->size[2]));
        }
}

static inline void fill_inputs(const net *n, tensor in[][MODEL_INPUTS], int micros, int64_t B) {
    source *s;
    OK(made_up_open(&s, &(source_options){.wanted = n->m->input, .inputs = n->m->inputs}, 4, micros * B));
    for (int64_t k = 0; k < micros * B; k++) {
        void *to[MODEL_INPUTS];
        for (int i = 0; i < n->m->inputs; i++)
            to[i] = (char *)in[k / B][i].data + (size_t)(k % B) * spec_bytes(&n->m->input[i]);
        OK(source_look(s, k, to));
    }
    source_close(s);
}

// Biases too: zeros would hide a bias that is left out. In the order of the file, wherever slices lie.
static inline void fill_param(net *n, int i, const tensor *w) {
    param *p = &n->m->param[i];
    int64_t count = shape_count(p->dims, p->size);
    float *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    if (p->init_std == 0) p->init_std = 0.3;
    model_init(n->m, p->tied >= 0 ? p->tied : i, 9, 0, count, x);
    tensor from = {x, FP32, 1, {count, 1, 1, 1}}, to = view1(w, count);
    OK(device_ops(n->dev)->cast(&(cast_args){.y = &to, .x = &from}, n->s));
    free(x);
}

#endif
