// data/source.c: what all sources have in common once they are open: whichever tensors the model reads, samples that
// are held out, and the order in which a run visits samples.
#include "data/source.h"

#include "data/sampler.h"

#include <inttypes.h>

void source_close(source *s) {
    if (s) s->type->close(s);
}

source_info source_about(const source *s) {
    source_info about = s->about;
    if (s->type->counts) s->type->counts(s, &about.retries, &about.read);
    return about;
}

static err_t check_sample(const source *s, int64_t sample) {
    if (sample >= 0 && sample < s->about.samples) return ERR_OK;
    return err_set(ERR_INTERNAL, "sample %" PRId64 " asked of a source of %" PRId64, sample, s->about.samples);
}

err_t source_read(source *s, const source_draw *d, void *const *out) {
    void *own[SOURCE_TENSORS] = {0};
    source_draw of_all = *d;
    TRY(check_sample(s, d->sample));
    for (int i = 0; i < s->inputs; i++) own[s->place[i]] = out[i];
    of_all.sample += s->first;
    return s->type->read(s, &of_all, own);
}

err_t source_look(source *s, int64_t sample, void *const *out) {
    return source_read(s, &(source_draw){.sample = sample, .n = sample}, out);
}

err_t source_picture(source *s, int64_t sample, uint8_t *out) {
    TRY(check_sample(s, sample));
    if (!s->picture[0]) return err_set(ERR_CONFIG, "the samples of these files are no pictures");
    return s->type->picture(s, sample + s->first, out);
}

const char *source_class(const source *s, int64_t label) { return s->type->class ? s->type->class(s, label) : NULL; }

source_draw source_draw_at(const source *s, uint64_t seed, int64_t n, bool shuffle) {
    source_draw d = {.seed = seed, .n = n, .train = true};
    if (s->type->at) {
        s->type->at(s, &d, shuffle);
    } else {
        d.sample = sampler_at(seed, n, s->about.samples, shuffle);
        d.epoch = n / s->about.samples;
    }
    return d;
}

int64_t source_at(const source *s, uint64_t seed, int64_t n, bool shuffle) {
    return source_draw_at(s, seed, n, shuffle).sample;
}

const source_part *source_parts(const source *s, int *count) {
    *count = s->parts;
    return s->part;
}

err_t source_verify(source *s, void (*report)(void *ctx, const char *text), void *ctx) {
    return s->type->verify(s, report, ctx);
}

void source_cancel(source *s, bool cancelled) { s->type->cancel(s, cancelled); }
