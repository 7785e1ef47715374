// model/model.c: what all architectures share: the parameter table and its initial values.
#include "model/model.h"

#include "base/fmath.h"
#include "base/philox.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

model *model_new(const model_type *type, size_t size, int params, int blocks) {
    model *m = calloc(1, size);
    if (!m) return NULL;
    m->type = type;
    m->blocks = blocks;
    m->slices = (model_slices){1, 0, 1, false};
    m->tokens = (model_tokens){1, 0, 1};
    m->held.block = -1;
    m->param = calloc((size_t)params, sizeof *m->param);
    m->block = calloc((size_t)blocks, sizeof *m->block);
    if (m->param && m->block) return m;
    model_free(m);
    return NULL;
}

void model_free(model *m) {
    free(m->param), free(m->block);
    free(m);
}

int model_add(model *m, int block, int64_t rows, int64_t cols, double std, float value, const char *format, ...) {
    param *p = &m->param[m->params];
    va_list ap;
    *p = (param){.dims = cols ? 2 : 1,
                 .size = {rows, cols ? cols : 1, 1, 1},
                 .block = block,
                 .decay = cols != 0,
                 .init_std = std,
                 .init_value = value,
                 .tied = -1};
    va_start(ap, format);
    vsnprintf(p->name, sizeof p->name, format, ap);
    va_end(ap);
    return m->params++;
}

void model_divide(model *m, int index, int axis, int matrices, const int64_t *rows) {
    param *p = &m->param[index];
    if (m->slices.of == 1) return;
    p->slices = m->slices.of, p->axis = axis;
    for (int k = 0; k < matrices; k++) p->share[k] = rows[k];
}

err_t model_plan_slices(model *m, arena *a, const model_plan *o, int64_t N, int64_t C) {
    model_slices *x = &m->slices;
    *x = (model_slices){x->of, o->slice_first, o->slice_count ? o->slice_count : x->of, o->slice_rows};
    m->tokens = (model_tokens){m->tokens.of, o->token_first, o->token_count ? o->token_count : m->tokens.of};
    N = model_most_matrix_rows(m, N);
    m->partials = m->partial = m->parts = m->all_rows = m->row_sums = m->row_sum = (tensor){0};
    if (x->of == 1) return ERR_OK;
    if (m->stream && !o->forward_only) {
        TRY(arena_3d(a, &m->row_sums, FP32, SUMS_OVER_ROWS, x->rows ? x->count : x->of / m->tokens.of, C));
        TRY(arena_2d(a, &m->row_sum, FP32, SUMS_OVER_ROWS, C));
    }
    if (x->rows) TRY(arena_2d(a, &m->all_rows, o->compute, N, C));
    if (device_about(a->dev)->kind == DEVICE_CUDA && x->count > 1) TRY(arena_3d(a, &m->partials, FP32, x->count, N, C));
    if (x->count == x->of) return ERR_OK;
    int64_t places = x->of / x->count;
    TRY(arena_2d(a, &m->partial, FP32, N, C));
    return arena_3d(a, &m->parts, FP32, places, (N + places - 1) / places, C);
}

void rule_break(model_rule *r, const char *a, const char *b, const char *c, const char *d) {
    const char *const keys[RULE_KEYS] = {a, b, c, d};
    memcpy(r->broken, keys, sizeof keys);
}

void rule_choose(model_rule *r, const char *key, int64_t *at, int64_t value) {
    int n = 0;
    if (*at) return;
    *at = value;
    while (r->chosen[n]) n++;
    r->chosen[n] = key;
}

// Samples that a token slice would cut in the middle are refused.
static err_t check_tokens(model_rule *r, int64_t context) {
    if (r->tokens <= 1 || r->micro % r->tokens == 0 || r->tokens % r->micro == 0) return ERR_OK;
    rule_break(r, "parallel.token_slices", "batch.micro", NULL, NULL);
    return err_set(ERR_CONFIG,
                   "micro-batches of %" PRId64 " x %" PRId64 " positions can't have [parallel] token_slices = %" PRId64
                   ": each has whole samples, or an equal part of one",
                   r->micro, context, r->tokens);
}

err_t model_check_rows(model_rule *r, int64_t context) {
    if (r->slices > r->micro * context) {
        rule_break(r, "context", "batch.micro", "parallel.slices", NULL);
        return err_set(ERR_CONFIG,
                       "micro-batches of %" PRId64 " x %" PRId64 " positions can't have [parallel] slices = %" PRId64
                       ": each slice has some of the positions",
                       r->micro, context, r->slices);
    }
    return check_tokens(r, context);
}

int64_t param_slice_room(const param *p) {
    int64_t all = shape_count(p->dims, p->size);
    return (p->rows_in_memory ? all / p->size[0] * p->rows_in_memory : all) / param_slices(p);
}

int64_t param_slice_count(const param *p, int slice) {
    int64_t room = param_slice_room(p), left = shape_count(p->dims, p->size) - slice * room;
    return left < 0 ? 0 : left < room ? left : room;
}

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
    for (int64_t i = -(first % 4); i < count; i += 4) {
        uint64_t group = (uint64_t)(first + i) / 4;
        uint32_t bits[4];
        double z[4];
        philox4x32(bits, seed, (uint32_t)group, SITE_INIT, (uint32_t)index, (uint32_t)(group >> 32));
        normal4(z, bits);
        for (int64_t j = i < 0 ? 0 : i; j < i + 4 && j < count; j++) dst[j] = (float)(z[j - i] * p->init_std);
    }
}

// --- running ---------------------------------------------------------------------------------------------------------------

static block_call call_of(const block *k, pass_part part) {
    if (part == PASS_FORWARD) return k->forward;
    if (part == PASS_BACKWARD || (part == PASS_INPUTS && !k->inputs)) return k->backward;
    return part == PASS_INPUTS ? k->inputs : k->weights;  // NULL: done with the inputs
}

err_t model_run(model *m, pass_part part, int first, int last, pass *p) {
    for (int i = first; i <= last; i++) {
        int b = part == PASS_FORWARD ? i : first + last - i;
        block_call call = call_of(&m->block[b], part);
        if (call) TRY(call(m, b, p));
    }
    return ERR_OK;
}
