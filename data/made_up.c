// data/made_up.c: random samples in memory, whatever the model reads: for benchmarks, which need no data and no files.
#include "base/philox.h"
#include "data/source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct made_up {
    source head;
    char *value[SOURCE_TENSORS];  // (samples, ...)
} made_up;

static err_t made_up_read(source *s, const source_draw *d, void *const *out) {
    const made_up *x = (made_up *)s;
    for (int k = 0; k < s->tensors; k++) {
        size_t bytes = spec_bytes(&s->tensor[k]);
        if (out[k]) memcpy(out[k], x->value[k] + (size_t)d->sample * bytes, bytes);
    }
    return ERR_OK;
}

static err_t made_up_verify(source *s, void (*report)(void *ctx, const char *text), void *ctx) {
    (void)s, (void)report, (void)ctx;
    return ERR_OK;
}

static void made_up_cancel(source *s, bool cancelled) { (void)s, (void)cancelled; }

static void made_up_close(source *s) {
    made_up *x = (made_up *)s;
    for (int k = 0; k < SOURCE_TENSORS; k++) free(x->value[k]);
    free(x);
}

static const source_type type = {
    .read = made_up_read, .verify = made_up_verify, .cancel = made_up_cancel, .close = made_up_close};

static void fill(void *to, const tensor_spec *t, int64_t count, uint64_t seed, uint32_t which) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits[4];
        philox4x32(bits, seed, (uint32_t)i, SITE_MADE_UP, which, (uint32_t)(i >> 32));
        if (t->type == INT32) ((int32_t *)to)[i] = (int32_t)(bits[0] % (uint32_t)(t->limit ? t->limit : INT32_MAX));
        else if (t->type == UINT8) ((uint8_t *)to)[i] = (uint8_t)bits[0];
        else ((float *)to)[i] = (float)(bits[0] >> 8) * 0x1p-24f;
    }
}

// Places in documents, which are runs of numbers from 0 on: here the second half of a sample is another document.
static void fill_places(int32_t *to, int64_t T, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = (int32_t)(i % T - (i % T >= T / 2 ? T / 2 : 0));
}

err_t made_up_open(source **out, const source_options *o, uint64_t seed, int64_t samples) {
    *out = NULL;
    made_up *x = calloc(1, sizeof *x);
    if (!x) return err_set(ERR_INTERNAL, "no memory for made-up samples");
    x->head = (source){
        .type = &type,
        .tensors = o->inputs,
        .inputs = o->inputs,
        .about = {.samples = samples, .units = samples, .units_per_sample = 1, .unit = "samples", .hash = "made up"}};
    for (int k = 0; k < o->inputs; k++) {
        int64_t count = samples * shape_count(o->wanted[k].dims, o->wanted[k].size);
        x->head.tensor[k] = o->wanted[k];
        x->head.place[k] = k;
        x->value[k] = malloc((size_t)samples * spec_bytes(&o->wanted[k]));
        if (!x->value[k]) {
            made_up_close(&x->head);
            return err_set(ERR_INTERNAL, "no memory for %" PRId64 " made-up samples", samples);
        }
        if (strcmp(o->wanted[k].name, "positions") == 0)
            fill_places((int32_t *)x->value[k], o->wanted[k].size[0], count);
        else fill(x->value[k], &o->wanted[k], count, seed, (uint32_t)k);
    }
    *out = &x->head;
    return ERR_OK;
}
