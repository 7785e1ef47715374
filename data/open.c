// data/open.c: opens the source that the files are, or a mix of several, and brings its tensors into the order in which
// the model reads them.
#include "data/source.h"

#include "base/text.h"
#include "data/files.h"
#include "data/mix.h"
#include "data/reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// --- which format ----------------------------------------------------------------------------------------------------

// IDX begins with two zero bytes, the type and the number of dimensions; compressed with gzip's magic. Shards of images
// and of clicks have magics of their own. What is neither is tokens; FORMAT_AUTO. What can't be read is reported by the
// opener.
static source_format looks_like(const source_options *o) {
    uint8_t head[8] = {0};
    file_list files = {0};
    reader r = {0};
    data_file first = {0};
    reader_open(&r, o->retry, NULL);
    bool known = files_expand(&files, o->files, (files_hint){0}) == ERR_OK &&
                 reader_find(&first, files.path[0], "a file") == ERR_OK && first.size >= 4 &&
                 reader_read(&r, &first, 0, head, first.size < 8 ? first.size : 8) == ERR_OK;
    reader_forget(&r, &first);
    reader_close(&r);
    files_free(&files);
    if (!known) return FORMAT_AUTO;
    if (images_begin(head, 8)) return FORMAT_IMAGES;
    if (clicks_begin(head, 8)) return FORMAT_CLICKS;
    bool gzip = head[0] == 0x1f && head[1] == 0x8b;
    bool idx = gzip || (head[0] == 0 && head[1] == 0 && head[2] >= 8 && head[2] <= 14 && head[3] >= 1 && head[3] <= 4);
    return idx ? FORMAT_IDX : FORMAT_AUTO;
}

// --- opening ---------------------------------------------------------------------------------------------------------

// "(28,28)", or "one value".
static const char *shape_text(const tensor_spec *x, char dst[96]) {
    return x->dims ? text_shape(dst, 96, x->dims, x->size) : strcpy(dst, "one value");
}

// The model's inputs among the source's tensors. Shapes may differ if the number of elements does not: an image may be
// read as a row.
static err_t match_inputs(source *s, const source_options *o) {
    char has[96], wants[96];
    s->inputs = o->inputs;
    for (int i = 0; i < o->inputs; i++) {
        const tensor_spec *x = &o->wanted[i];
        int k = 0;
        while (k < s->tensors && strcmp(s->tensor[k].name, x->name) != 0) k++;
        if (k == s->tensors)
            return err_set(
                ERR_CONFIG,
                "the model reads `%s`, and the samples of these files have %s%s%s: [model] type and the data do not fit together",
                x->name, s->tensor[0].name, s->tensors > 1 ? " and " : "", s->tensors > 1 ? s->tensor[1].name : "");
        if (s->tensor[k].type != x->type ||
            shape_count(s->tensor[k].dims, s->tensor[k].size) != shape_count(x->dims, x->size))
            return err_set(ERR_CONFIG,
                           "the model reads `%s` as %s %s, and the files have %s %s: change [model], or the data",
                           x->name, dtype_name(x->type), shape_text(x, wants), dtype_name(s->tensor[k].type),
                           shape_text(&s->tensor[k], has));
        s->place[i] = k;
    }
    return ERR_OK;
}

static err_t set_apart(source *s, const source_options *o) {
    int64_t all = s->about.samples, kept = all - o->held_out;
    if (o->held_out == 0) return ERR_OK;
    if (kept < 1)
        return err_set(ERR_CONFIG, "[data] holdout = %" PRId64 " of %" PRId64 " samples leaves none to train on",
                       o->held_out, all);
    s->first = o->only_held_out ? kept : 0;
    s->about.samples = o->only_held_out ? o->held_out : kept;
    s->about.units = s->about.samples * s->about.units_per_sample;
    s->about.best = 0;  // it was of all of them
    return ERR_OK;
}

static err_t open_one(source **out, const source_options *o) {
    source_format format = o->format == FORMAT_AUTO ? looks_like(o) : o->format;
    const source_view *v = &o->view;
    bool seen = v->crop || v->shift || v->flip || (v->area > 0 && v->area < 1);
    err_t rc;
    *out = NULL;
    if (seen && format != FORMAT_IMAGES)
        return err_set(ERR_CONFIG,
                       "[data] crop, area, shift and flip are for shards of images, and %s is none: leave them out%s",
                       o->files, format == FORMAT_IDX ? ", or pack these files ([pack] images = idx)" : "");
    if (format == FORMAT_IMAGES) TRY(images_open(out, o));
    else if (format == FORMAT_IDX) TRY(idx_open(out, o));
    else if (format == FORMAT_CLICKS) TRY(clicks_open(out, o));
    else if (source_wants(o, "places")) TRY(masked_open(out, o));
    else if (source_wants(o, "length") && source_wants(o, "targets"))
        TRY(o->window ? spans_open(out, o) : answered_open(out, o));
    else if (source_wants(o, "length") && source_wants(o, "label")) TRY(labelled_open(out, o));
    else TRY(text_open(out, o));
    TRY_GOTO(match_inputs(*out, o), fail);
    TRY_GOTO(set_apart(*out, o), fail);
    return ERR_OK;
fail:
    source_close(*out);
    *out = NULL;
    return rc;
}

static err_t open_mix(source **out, const source_options *o, const weights *w) {
    if (o->held_out)
        return err_set(
            ERR_CONFIG,
            "[data] holdout and weights exclude each other: a mix has no end at which samples could be held out");
    return mix_open(out, o, w, open_one);
}

err_t source_open(source **out, const source_options *o) {
    weights w = {0};
    source_options one = *o;
    *out = NULL;
    err_t rc = weights_parse(&w, o->files);
    if (w.parts == 1) one.files = w.part[0].files;
    if (rc == ERR_OK) rc = w.parts > 1 ? open_mix(out, o, &w) : open_one(out, &one);
    weights_free(&w);
    return rc;
}
