// data/image/images.c: shards of images as a source. Sample k is image k of all shards, in order of their names: its
// pixels, cut to the sample's size (data/image/view.h), and its label. Pixels are bytes (h,w,c) or, where the model
// asks for numbers, these from 0 to 1, as of IDX files.
//
// Several threads may read at once: each has descriptors and buffers of its own, and the shards' tables are constant.
#include "data/files.h"
#include "data/hash.h"
#include "data/image/shard.h"
#include "data/image/view.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { PIXELS, LABEL };

// What a thread that reads has for itself.
typedef struct bench {
    reader reader;
    data_file *file;  // (shards)
    picture whole;
    resizer resizer;
    uint8_t *cut;  // (h,w,c)
} bench;

typedef struct image_source {
    source head;
    image_shard *shard;  // (shards)
    int shards;
    bench *bench;  // (readers); the first one's reader opened the shards
    int readers;
    source_view view;
    int h, w, c;  // of a sample
    int most_h, most_w;
    int64_t most_bytes;  // of an image
} image_source;

bool images_begin(const uint8_t *head, int64_t n) {
    int same = 0;
    for (int64_t i = 0; i < n && i < IMAGES_MAGIC_BYTES; i++) same += head[i] == images_magic[i];
    return same >= 6;  // of a shard of tokens four are the same
}

// --- one sample ------------------------------------------------------------------------------------------------------

static int shard_of(const image_source *x, int64_t sample) {
    int low = 0, high = x->shards;  // shard[low].start <= sample < shard[high].start
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (x->shard[middle].start <= sample) low = middle;
        else high = middle;
    }
    return low;
}

// cut (h,w,c) (=) what is seen of the image.
static err_t read_view(image_source *x, const source_draw *d, uint8_t *cut) {
    int k = shard_of(x, d->sample);
    image_shard *shard = &x->shard[k];
    bench *b = &x->bench[d->reader];
    TRY(image_shard_read(shard, &b->reader, &b->file[k], d->sample - shard->start, false, &b->whole));
    view v = d->train ? view_train(&x->view, &b->whole, x->h, x->w, d) : view_test(&b->whole, x->h, x->w, d->view);
    return view_cut(&b->resizer, cut, x->h, x->w, &b->whole, &v);
}

static err_t images_read(source *s, const source_draw *d, void *const *out) {
    image_source *x = (image_source *)s;
    const image_shard *shard = &x->shard[shard_of(x, d->sample)];
    int64_t values = (int64_t)x->h * x->w * x->c;
    if (out[LABEL]) *(int32_t *)out[LABEL] = shard->entry[d->sample - shard->start].label;
    if (!out[PIXELS]) return ERR_OK;
    bool bytes = s->tensor[PIXELS].type == UINT8;
    uint8_t *cut = bytes ? out[PIXELS] : x->bench[d->reader].cut;
    TRY(read_view(x, d, cut));
    for (int64_t i = 0; i < values && !bytes; i++) ((float *)out[PIXELS])[i] = (float)cut[i] / 255.0f;
    return ERR_OK;
}

static err_t images_picture(source *s, int64_t sample, uint8_t *out) {
    return read_view((image_source *)s, &(source_draw){.sample = sample, .n = sample}, out);
}

// All shards have the same names.
static const char *images_class(const source *s, int64_t label) {
    const image_shard *shard = ((const image_source *)s)->shard;
    const char *name = shard->names;
    if (label < 0 || label >= shard->classes) return NULL;
    while (label-- > 0) name += strlen(name) + 1;
    return name;
}

static err_t images_verify(source *s, void (*report)(void *ctx, const char *text), void *ctx) {
    image_source *x = (image_source *)s;
    int64_t bad = 0;
    for (int k = 0; k < x->shards; k++) TRY(image_shard_verify(&x->shard[k], &x->bench->reader, report, ctx, &bad));
    return bad ? err_set(ERR_DATA, "%" PRId64 " damaged image%s in %d files: copy or pack these files again", bad,
                         bad == 1 ? "" : "s", x->shards)
               : ERR_OK;
}

static void images_cancel(source *s, bool cancelled) {
    image_source *x = (image_source *)s;
    for (int k = 0; k < x->readers; k++) reader_cancel(&x->bench[k].reader, cancelled);
}

static void images_counts(const source *s, int64_t *retries, int64_t *read) {
    const image_source *x = (const image_source *)s;
    *retries = *read = 0;
    for (int k = 0; k < x->readers; k++) {
        int64_t again, bytes;
        reader_counts(&x->bench[k].reader, &again, &bytes);
        *retries += again, *read += bytes;
    }
}

static void images_close(source *s) {
    image_source *x = (image_source *)s;
    for (int k = 0; k < x->shards; k++) image_shard_close(&x->shard[k], &x->bench->reader);
    for (int k = 0; k < x->readers; k++) {
        bench *b = &x->bench[k];
        for (int i = 0; b->file && i < x->shards; i++)
            if (b->file[i].path) reader_forget(&b->reader, &b->file[i]);
        reader_close(&b->reader);
        picture_free(&b->whole);
        resizer_free(&b->resizer);
        free(b->file);
        free(b->cut);
    }
    free(x->shard);
    free(x->bench);
    free(x);
}

static const source_type type = {.read = images_read,
                                 .verify = images_verify,
                                 .cancel = images_cancel,
                                 .counts = images_counts,
                                 .close = images_close,
                                 .picture = images_picture,
                                 .class = images_class};

// --- opening ---------------------------------------------------------------------------------------------------------

// Shards that were packed together have the same channels, classes and sums.
static err_t check_kin(const image_shard *first, const image_shard *s) {
    if (s->channels != first->channels)
        return err_set(ERR_DATA, "%s has images of %d channel%s, and %s of %d: expected the same for all", s->file.path,
                       s->channels, s->channels == 1 ? "" : "s", first->file.path, first->channels);
    if (s->name_bytes == first->name_bytes && memcmp(s->names, first->names, s->name_bytes) == 0 &&
        memcmp(&s->sums, &first->sums, sizeof s->sums) == 0)
        return ERR_OK;
    return err_set(
        ERR_DATA,
        "%s and %s were not packed together, so that a label may mean another class: pack both inputs at once, or name them as parts of a mix, %s@1 %s@1",
        first->file.path, s->file.path, first->file.path, s->file.path);
}

// The size of a sample: what the model asks for, [data] crop, or that of all images.
static err_t find_size(image_source *x, const source_options *o) {
    const tensor_spec *wanted = source_wants(o, "pixels");
    const image_entry *first = x->shard[0].entry;
    x->h = first->h, x->w = first->w;
    if (wanted && wanted->dims == 3) x->h = (int)wanted->size[0], x->w = (int)wanted->size[1];
    if (x->view.crop) x->h = x->w = (int)x->view.crop;
    bool fixed = x->view.crop || (wanted && wanted->dims == 3) || x->view.area < 1;
    for (int k = 0; k < x->shards; k++)
        for (int64_t i = 0; i < x->shard[k].images; i++) {
            const image_entry *e = &x->shard[k].entry[i];
            int64_t bytes = (int64_t)e->h * e->w * x->c;
            if (e->h > x->most_h) x->most_h = e->h;
            if (e->w > x->most_w) x->most_w = e->w;
            if (bytes > x->most_bytes) x->most_bytes = bytes;
            if (!fixed && (e->h != x->h || e->w != x->w))
                return err_set(
                    ERR_CONFIG,
                    "%s: image %" PRId64
                    " has %d x %d pixels, and the first one %d x %d: say with [data] crop = N which square of each is a sample",
                    x->shard[k].file.path, i, e->w, e->h, first->w, first->h);
            if (x->view.shift && x->view.area >= 1 && (e->h < x->h || e->w < x->w))
                return err_set(
                    ERR_CONFIG,
                    "%s: image %" PRId64
                    " has %d x %d pixels, and [data] shift moves a box of %d x %d: make [data] crop smaller, or pack with a larger [pack] size",
                    x->shard[k].file.path, i, e->w, e->h, x->w, x->h);
        }
    return ERR_OK;
}

static err_t check_labels(const image_source *x, int64_t limit) {
    for (int k = 0; limit && k < x->shards; k++)
        for (int64_t i = 0; i < x->shard[k].images; i++)
            if (x->shard[k].entry[i].label >= limit)
                return err_set(ERR_DATA,
                               "%s: image %" PRId64 ": label %d, expected less than %" PRId64
                               ", the number of the model's classes ([model] classes = %d fits)",
                               x->shard[k].file.path, i, x->shard[k].entry[i].label, limit, x->shard[k].classes);
    return ERR_OK;
}

// Over all that a sample can depend on: the images' checksums stand for their pixels.
static void hash_images(image_source *x) {
    crypto_generichash_state state;
    const image_shard *s = x->shard;
    crypto_generichash_init(&state, NULL, 0, 32);
    hash_number(&state, (uint64_t)s->channels);
    hash_number(&state, (uint64_t)x->head.about.samples);
    hash_number(&state, s->sums.pixels);
    for (int c = 0; c < PICTURE_CHANNELS; c++)
        hash_number(&state, s->sums.sum[c]), hash_number(&state, s->sums.square[c]);
    hash_number(&state, s->name_bytes);
    crypto_generichash_update(&state, (const uint8_t *)s->names, s->name_bytes);
    for (int k = 0; k < x->shards; k++)
        for (int64_t i = 0; i < x->shard[k].images; i++) {
            const image_entry *e = &x->shard[k].entry[i];
            hash_number(&state, (uint64_t)e->h << 32 | (uint32_t)e->w);
            hash_number(&state, (uint64_t)e->label << 32 | e->crc);
        }
    hash_text(&state, x->head.about.hash);
}

static void describe(image_source *x, const source_options *o) {
    const tensor_spec *pixels = source_wants(o, "pixels"), *label = source_wants(o, "label");
    source *s = &x->head;
    s->about.units = s->about.samples;
    s->about.units_per_sample = 1;
    s->about.unit = "images";
    s->about.files = x->shards;
    s->readers = x->readers;
    s->picture[0] = x->h, s->picture[1] = x->w, s->picture[2] = x->c;
    s->tensors = 2;
    s->tensor[PIXELS] = (tensor_spec){.name = "pixels",
                                      .type = pixels && pixels->type == UINT8 ? UINT8 : FP32,
                                      .dims = 3,
                                      .size = {x->h, x->w, x->c}};
    s->tensor[LABEL] =
        (tensor_spec){.name = "label", .type = INT32, .size = {1, 1, 1}, .limit = label ? label->limit : 0};
    hash_images(x);
}

// Nothing is allocated after this.
static err_t set_up(bench *b, const image_source *x) {
    TRY(picture_reserve(&b->whole, x->most_bytes));
    TRY(resizer_reserve(&b->resizer, x->most_h, x->most_w, x->h, x->w, x->c));
    b->cut = malloc((size_t)x->h * (size_t)x->w * (size_t)x->c);
    b->file = calloc((size_t)x->shards, sizeof *b->file);
    if (!b->cut || !b->file) return err_set(ERR_INTERNAL, "no memory for a sample of %d x %d pixels", x->w, x->h);
    for (int k = 0; k < x->shards; k++) {
        b->file[k] = x->shard[k].file;  // the same file, by a descriptor of its own
        b->file[k].fd = -1;
        if (!(b->file[k].path = strdup(x->shard[k].file.path)))
            return err_set(ERR_INTERNAL, "no memory for a list of files");
    }
    return ERR_OK;
}

static err_t open_shards(image_source *x, const file_list *files) {
    reader *r = &x->bench->reader;
    if (!(x->shard = calloc((size_t)files->count, sizeof *x->shard)))
        return err_set(ERR_INTERNAL, "no memory for %d files", files->count);
    while (x->shards < files->count) {
        image_shard *s = &x->shard[x->shards++];
        s->file.fd = -1;
        TRY(image_shard_open(s, r, files->path[x->shards - 1]));
        TRY(check_kin(x->shard, s));
        s->start = x->head.about.samples;
        x->head.about.samples += s->images;
        reader_drop(r, &s->file);
    }
    x->c = x->shard[0].channels;
    return ERR_OK;
}

static err_t open_all(image_source *x, const source_options *o) {
    const tensor_spec *label = source_wants(o, "label");
    file_list files = {0};
    err_t rc =
        files_expand(&files, o->files, (files_hint){o->packed, "`lockstep pack` makes them, with [pack] images set"});
    if (rc == ERR_OK) rc = open_shards(x, &files);
    files_free(&files);
    TRY(rc);
    TRY(find_size(x, o));
    TRY(check_labels(x, label ? label->limit : 0));
    for (int k = 0; k < x->readers; k++) TRY(set_up(&x->bench[k], x));
    describe(x, o);
    return ERR_OK;
}

err_t images_open(source **out, const source_options *o) {
    int readers = o->readers > 1 ? o->readers : 1, shared = o->shared_by > 1 ? o->shared_by : 1;
    if (sodium_init() < 0) return err_set(ERR_INTERNAL, "libsodium does not start");
    image_source *x = calloc(1, sizeof *x);
    bench *benches = calloc((size_t)readers, sizeof *benches);
    if (!x || !benches) {
        free(x), free(benches);
        return err_set(ERR_INTERNAL, "no memory for a source of images");
    }
    x->head.type = &type;
    x->bench = benches;
    x->readers = readers;
    x->view = o->view;
    if (x->view.area <= 0) x->view.area = 1;
    for (int k = 0; k < readers; k++) {
        reader_open(&x->bench[k].reader, o->retry, o->faults);
        reader_share(&x->bench[k].reader, readers * shared);
    }
    err_t rc = open_all(x, o);
    if (rc != ERR_OK) images_close(&x->head);
    else *out = &x->head;
    return rc;
}
