// model/model.c: what all architectures share: the parameter table and its initial values.
#include "model/model.h"

#include "base/fmath.h"
#include "base/philox.h"

#include <string.h>

int64_t model_elements(const model *m) {
    int64_t n = 0;
    for (int i = 0; i < m->params; i++)
        if (m->param[i].tied < 0) n += shape_count(m->param[i].dims, m->param[i].size);
    return n;
}

int model_find(const model *m, const char *name) {
    for (int i = 0; i < m->params; i++)
        if (strcmp(m->param[i].name, name) == 0) return i;
    return -1;
}

// A share smaller than a tile is not rounded up.
int64_t model_head_rows(int64_t rows, int64_t chunks) {
    int64_t share = (rows + chunks - 1) / chunks, whole = (share + HEAD_TILE - 1) / HEAD_TILE * HEAD_TILE;
    return share < HEAD_TILE ? share : whole < rows ? whole : rows;
}

int64_t model_head_chunks(int64_t rows, int64_t vocab) {
    int64_t most = HEAD_LOGITS / model_vocab_in_memory(vocab);
    if (most >= rows) return 1;
    if (most > HEAD_TILE) most = most / HEAD_TILE * HEAD_TILE;
    return most > 1 ? (rows + most - 1) / most : rows;
}

// Four normal deviates from 128 random bits (Box & Muller 1958). Uniforms lie in (0,1): the logarithm is finite.
static void normal4(double z[4], const uint32_t bits[4]) {
    const double two_pi = 6.283185307179586, quarter = 1.5707963267948966;
    for (int i = 0; i < 4; i += 2) {
        double radius = __builtin_sqrt(-2.0 * fm_log((bits[i] + 0.5) * 0x1p-32)), angle = two_pi * (bits[i + 1] * 0x1p-32);
        z[i] = radius * fm_cos(angle);
        z[i + 1] = radius * fm_cos(angle - quarter);
    }
}

void model_init(const model *m, int index, uint64_t seed, int64_t first, int64_t count, float *dst) {
    const param *p = &m->param[index];
    if (p->init_std == 0) {
        for (int64_t i = 0; i < count; i++) dst[i] = p->init_value;
        return;
    }
    for (int64_t i = 0; i < count; i += 4) {
        uint64_t group = (uint64_t)(first + i) / 4;
        uint32_t bits[4];
        double z[4];
        philox4x32(bits, seed, (uint32_t)group, SITE_INIT, (uint32_t)index, (uint32_t)(group >> 32));
        normal4(z, bits);
        for (int64_t j = i; j < i + 4 && j < count; j++) dst[j] = (float)(z[j - i] * p->init_std);
    }
}

// One block, or none where p is NULL, with the hooks around it.
static err_t run_block(const model *m, int i, pass *p, const pass_hooks *h, bool backward) {
    if (h) TRY(h->enter(h->ctx, i, backward));
    if (p) TRY((backward ? m->block[i].backward : m->block[i].forward)((model *)m, m->block[i].layer, p));
    return h ? h->leave(h->ctx, i, backward) : ERR_OK;
}

err_t model_forward(model *m, pass *p) {
    for (int i = 0; i < m->blocks; i++) TRY(run_block(m, i, p, p->hooks, false));
    return ERR_OK;
}

err_t model_backward(model *m, pass *p) {
    for (int i = m->blocks - 1; i >= 0; i--) TRY(run_block(m, i, p, p->hooks, true));
    return ERR_OK;
}

err_t model_forward_hooks(const model *m, const pass_hooks *h) {
    for (int i = 0; i < m->blocks; i++) TRY(run_block(m, i, NULL, h, false));
    return ERR_OK;
}

err_t model_backward_hooks(const model *m, const pass_hooks *h) {
    for (int i = m->blocks - 1; i >= 0; i--) TRY(run_block(m, i, NULL, h, true));
    return ERR_OK;
}
