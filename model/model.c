// model/model.c: the table of parameters and its initial values.
#include "model/model.h"

#include "base/fmath.h"
#include "base/philox.h"

#include <string.h>

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

int64_t model_trained(const model *m) {
    int64_t n = 0;
    for (int i = 0; i < m->params; i++)
        if (m->param[i].tied < 0 && !param_is_frozen(&m->param[i]))
            n += shape_count(m->param[i].dims, m->param[i].size);
    return n;
}

int model_input(const model *m, const char *name) {
    for (int i = 0; i < m->inputs; i++)
        if (strcmp(m->input[i].name, name) == 0) return i;
    return -1;
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
        double radius = __builtin_sqrt(-2.0 * fm_log((bits[i] + 0.5) * 0x1p-32)),
               angle = two_pi * (bits[i + 1] * 0x1p-32);
        z[i] = radius * fm_cos(angle);
        z[i + 1] = radius * fm_cos(angle - quarter);
    }
}

// Four numbers of (-1, 1).
static void uniform4(double z[4], const uint32_t bits[4]) {
    for (int i = 0; i < 4; i++) z[i] = 2 * ((bits[i] + 0.5) * 0x1p-32) - 1;
}

void model_init(const model *m, int index, uint64_t seed, int64_t first, int64_t count, float *dst) {
    const param *p = &m->param[index];
    if (p->init_std == 0 && p->init_bound == 0) {
        for (int64_t i = 0; i < count; i++) dst[i] = p->init_value;
        return;
    }
    for (int64_t i = -(first % 4); i < count; i += 4) {
        uint64_t group = (uint64_t)(first + i) / 4;
        uint32_t bits[4];
        double z[4];
        philox4x32(bits, seed, (uint32_t)group, SITE_INIT, (uint32_t)index, (uint32_t)(group >> 32));
        p->init_std == 0 ? uniform4(z, bits) : normal4(z, bits);
        double scale = p->init_std == 0 ? p->init_bound : p->init_std;
        for (int64_t j = i < 0 ? 0 : i; j < i + 4 && j < count; j++) dst[j] = (float)(z[j - i] * scale);
    }
}

int model_plan_sets(const model_plan *o, int first, int count, int *at) {
    int sets = 0;
    for (int i = 0; i < count; i++) {
        if (at) at[i] = sets;
        sets += o->slots[first + i];
    }
    return sets;
}
