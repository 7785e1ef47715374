// data/image/tools.c: see data/image/tools.h.
#include "data/image/tools.h"

#include "data/image/shard.h"
#include "data/shard_head.h"
#include "data/source.h"

#include <inttypes.h>
#include <string.h>

enum { NAMES_SHOWN = 10 };

bool image_tools_know(const char *path) { return shard_begins(path, images_begin); }

static void print_sizes(const image_shard *s, FILE *out) {
    int h[2] = {s->entry->h, s->entry->h}, w[2] = {s->entry->w, s->entry->w};
    for (int64_t k = 1; k < s->images; k++) {
        const image_entry *e = &s->entry[k];
        if (e->h < h[0]) h[0] = e->h;
        if (e->h > h[1]) h[1] = e->h;
        if (e->w < w[0]) w[0] = e->w;
        if (e->w > w[1]) w[1] = e->w;
    }
    fprintf(out, "%d", w[0]);
    if (w[0] < w[1]) fprintf(out, "-%d", w[1]);
    fprintf(out, " x %d", h[0]);
    if (h[0] < h[1]) fprintf(out, "-%d", h[1]);
}

static void describe(const image_shard *s, FILE *out) {
    float mean[PICTURE_CHANNELS], inv[PICTURE_CHANNELS];
    const char *name = s->names;
    fprintf(out, "%s: images, %" PRId64 " of ", s->file.path, s->images);
    print_sizes(s, out);
    fprintf(out, " pixels, %d channel%s, %" PRId64 " bytes, a checksum each\n    %d class%s:", s->channels,
            s->channels == 1 ? "" : "s", s->file.size, s->classes, s->classes == 1 ? "" : "es");
    for (int k = 0; k < s->classes && k < NAMES_SHOWN; k++, name += strlen(name) + 1) fprintf(out, " %s", name);
    image_sums_scale(&s->sums, s->channels, mean, inv);
    fprintf(out, "%s; training images have mean", s->classes > NAMES_SHOWN ? " ..." : "");
    for (int c = 0; c < s->channels; c++) fprintf(out, " %.2f", (double)mean[c]);
    fprintf(out, ", deviation");
    for (int c = 0; c < s->channels; c++) fprintf(out, " %.2f", 1 / (double)inv[c]);
    fprintf(out, "\n");
}

typedef struct open_file {
    reader reader;
    image_shard shard;
} open_file;

static err_t begin(open_file *f, const char *path) {
    *f = (open_file){.shard.file.fd = -1};
    reader_open(&f->reader, 0, NULL);
    return image_shard_open(&f->shard, &f->reader, path);
}

static void end(open_file *f) {
    image_shard_close(&f->shard, &f->reader);
    reader_close(&f->reader);
}

err_t image_tools_info(const char *path, FILE *out) {
    open_file f;
    err_t rc = begin(&f, path);
    if (rc == ERR_OK) describe(&f.shard, out);
    end(&f);
    return rc;
}

static void print_fault(void *ctx, const char *text) { fprintf(ctx, "%s\n", text); }

err_t image_tools_verify(const char *path, FILE *out) {
    open_file f;
    int64_t faults = 0;
    err_t rc = begin(&f, path);
    if (rc == ERR_OK) rc = image_shard_verify(&f.shard, &f.reader, print_fault, out, &faults);
    if (rc == ERR_OK && faults)
        rc = err_set(ERR_DATA, "%s: %" PRId64 " of %" PRId64 " images are damaged: copy or pack this file again", path,
                     faults, f.shard.images);
    if (rc == ERR_OK)
        fprintf(out, "%s: right, %" PRId64 " images, %d classes\n", path, f.shard.images, f.shard.classes);
    end(&f);
    return rc;
}
