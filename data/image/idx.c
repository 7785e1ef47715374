// data/image/idx.c: IDX files as a source of images and labels: the format of MNIST (LeCun, Cortes and Burges) and of
// those made like it. All numbers are big-endian, and there is no padding:
//
//      0  zero         2 bytes
//      2  type         u8   08 unsigned byte; 09 signed byte, 0b int16, 0c int32, 0d float, 0e double are not read here
//      3  dimensions   u8   1: labels (N); 2 to 4: images (N,...), mostly (N,H,W) or (N,C,H,W)
//      4  sizes        u32 each
//         values       the last dimension runs fastest
//
// A file may be compressed with gzip: then it is inflated when it is opened, and kept. Of a plain file of images only
// what a sample needs is read. Sample k is image k of all files of images, in order of their names, and label k of all
// files of labels.
#include "base/text.h"
#include "data/files.h"
#include "data/image/picture.h"
#include "data/image/unzip.h"
#include "data/source.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { DIMS = 4, HEADER = 4 + 4 * DIMS, UNSIGNED_BYTE = 8, PIECE = 1 << 18, PIXELS = 0, LABEL = 1 };

#define KEPT_MOST (INT64_C(8) << 30)  // bytes of inflated files
#define INFLATES 1032                 // deflate makes at most so many bytes of one: 258 of two bits

typedef struct idx_file {
    data_file file;
    bool gzip;
    int dims;
    int64_t size[DIMS];
    int64_t values;  // bytes, after the header
    int64_t start;   // the sample that its first item is
    uint8_t *kept;   // (values), of gzip and of labels; NULL: they stay in the file
    uint32_t crc;    // of header and values
} idx_file;

typedef struct idx_source {
    source head;
    reader reader;
    idx_file *file;  // (files)
    int files;
    idx_file **image;  // (pairs), and as many labels
    idx_file **label;
    int pairs;
    int64_t pixels;  // bytes of an image
    int64_t kept;    // bytes of all inflated files
    uint8_t *stage;  // an image, or a piece of a file
    int64_t stage_bytes;
    uint8_t digest[32];
} idx_source;

static int64_t header_bytes(const idx_file *f) { return 4 + 4 * f->dims; }

// "(60000,28,28)".
static const char *sizes_text(const idx_file *f, char dst[64]) { return text_shape(dst, 64, f->dims, f->size); }

// --- one file --------------------------------------------------------------------------------------------------------

static const char *type_name(int type) {
    switch (type) {
    case 0x08: return "unsigned bytes";
    case 0x09: return "signed bytes";
    case 0x0b: return "16-bit integers";
    case 0x0c: return "32-bit integers";
    case 0x0d: return "floats";
    case 0x0e: return "doubles";
    default: return "no type of IDX";
    }
}

// The four bytes that every IDX file begins with.
static err_t check_magic(idx_file *f, const uint8_t *h, int64_t got) {
    const char *path = f->file.path, *in = f->gzip ? " of what it inflates to" : "";
    if (got < 4)
        return err_set(ERR_DATA,
                       "%s: ends at offset %" PRId64 "%s, expected the 4 bytes that an IDX file begins with: truncated",
                       path, got, in);
    if (h[0] || h[1])
        return err_set(
            ERR_DATA,
            "%s: offset 0%s: 0x%02x%02x, expected the two zero bytes that an IDX file begins with: another format",
            path, in, h[0], h[1]);
    if (h[2] != UNSIGNED_BYTE)
        return err_set(ERR_DATA, "%s: offset 2%s: type 0x%02x, %s, expected 0x08, unsigned bytes", path, in, h[2],
                       type_name(h[2]));
    if (h[3] < 1 || h[3] > DIMS)
        return err_set(ERR_DATA, "%s: offset 3%s: %d dimensions, expected 1 (labels), or 2 to %d (images)", path, in,
                       h[3], DIMS);
    f->dims = h[3];
    return ERR_OK;
}

// Takes the sizes, and checks their product against what the file can hold. An item has at most 2^31 values.
static err_t check_sizes(idx_file *f, const uint8_t *h) {
    char text[64];
    int64_t item = 1, room = f->file.size - header_bytes(f);
    for (int d = 0; d < f->dims; d++, h += 4) {
        f->size[d] = (int64_t)h[0] << 24 | h[1] << 16 | h[2] << 8 | h[3];
        if (f->size[d] == 0)
            return err_set(ERR_DATA, "%s: offset %d: dimension %d has size 0, expected 1 at least", f->file.path,
                           4 + 4 * d, d);
        if (d > 0 && f->size[d] > INT32_MAX / item)
            return err_set(
                ERR_DATA, "%s: offset %d: size %" PRId64 " makes items of more than 2^31 values: the header is damaged",
                f->file.path, 4 + 4 * d, f->size[d]);
        if (d > 0) item *= f->size[d];
    }
    f->values = f->size[0] * item;  // below 2^63
    if (f->gzip && f->values / INFLATES > f->file.size)
        return err_set(ERR_DATA,
                       "%s: the header says %s, %" PRId64 " values, and a gzip file of %" PRId64
                       " bytes can't hold as many: the header is damaged",
                       f->file.path, sizes_text(f, text), f->values, f->file.size);
    if (!f->gzip && f->values != room)
        return err_set(ERR_DATA, "%s: has %" PRId64 " bytes, expected %" PRId64 " for the header's %s: the file is %s",
                       f->file.path, f->file.size, header_bytes(f) + f->values, sizes_text(f, text),
                       f->values > room ? "truncated" : "too long");
    return ERR_OK;
}

static err_t read_header(idx_file *f, unzip *u) {
    uint8_t h[HEADER];
    int64_t got, sizes;
    TRY(unzip_read(u, h, 4, &got));
    TRY(check_magic(f, h, got));
    sizes = header_bytes(f) - 4;
    TRY(unzip_read(u, h + 4, sizes, &got));
    if (got < sizes)
        return err_set(ERR_DATA,
                       "%s: ends at offset %" PRId64 ", expected the %" PRId64
                       " bytes of a header with %d dimensions: truncated",
                       f->file.path, 4 + got, header_bytes(f), f->dims);
    f->crc = (uint32_t)crc32(0, h, (uInt)header_bytes(f));
    return check_sizes(f, h + 4);
}

// The file has ended, with the values and no later: of a gzip file this also checks the checksum.
static err_t check_end(const idx_file *f, unzip *u) {
    uint8_t more;
    int64_t got;
    TRY(unzip_read(u, &more, 1, &got));
    if (got == 0) return ERR_OK;
    return err_set(ERR_DATA, "%s: inflates to more than the %" PRId64 " bytes of its header and values: it is too long",
                   f->file.path, header_bytes(f) + f->values);
}

static err_t too_short(const idx_file *f, int64_t values) {
    return err_set(ERR_DATA, "%s: %s offset %" PRId64 ", expected %" PRId64 " bytes: truncated", f->file.path,
                   f->gzip ? "inflates up to" : "ends at", header_bytes(f) + values, header_bytes(f) + f->values);
}

static err_t keep_values(idx_source *x, idx_file *f, unzip *u) {
    int64_t got;
    if (f->gzip) x->kept += f->values;
    if (x->kept > KEPT_MOST)
        return err_set(ERR_DATA,
                       "%s: has %" PRId64
                       " bytes of values, and of gzip files at most 8 GiB in all are kept in memory: gunzip it",
                       f->file.path, f->values);
    if (!(f->kept = malloc((size_t)f->values)))
        return err_set(ERR_INTERNAL, "%s: no memory for its %" PRId64 " bytes", f->file.path, f->values);
    TRY(unzip_read(u, f->kept, f->values, &got));
    return got < f->values ? too_short(f, got) : check_end(f, u);
}

static err_t open_file(idx_source *x, idx_file *f, const char *path) {
    unzip u = {0};
    err_t rc;
    TRY(reader_find(&f->file, path, "an IDX file"));
    TRY_GOTO(unzip_open(&u, &x->reader, &f->file), out);
    f->gzip = u.gzip;
    TRY_GOTO(read_header(f, &u), out);
    if (f->gzip || f->dims == 1) TRY_GOTO(keep_values(x, f, &u), out);
    if (f->kept) reader_drop(&x->reader, &f->file);
out:
    unzip_close(&u);
    return rc;
}

// --- all files -------------------------------------------------------------------------------------------------------

// All images have one shape, and each file of images has a file of as many labels.
static err_t check_pair(const idx_source *x, const idx_file *f, const idx_file *labels) {
    const idx_file *first = x->image[0];
    char has[64], wants[64];
    if (f->dims != first->dims || memcmp(f->size + 1, first->size + 1, sizeof f->size - sizeof *f->size) != 0)
        return err_set(ERR_DATA, "%s has the sizes %s, and %s has %s: expected images of one size", f->file.path,
                       sizes_text(f, has), first->file.path, sizes_text(first, wants));
    if (f->size[0] != labels->size[0])
        return err_set(ERR_DATA,
                       "%s has %" PRId64 " images, and %s has %" PRId64
                       " labels: expected one for each. Files are paired in the order of their names",
                       f->file.path, f->size[0], labels->file.path, labels->size[0]);
    return ERR_OK;
}

static err_t pair_files(idx_source *x) {
    int labels = 0;
    for (int i = 0; i < x->files; i++) labels += x->file[i].dims == 1;
    x->pairs = x->files - labels;
    if (x->pairs == 0 || x->pairs != labels)
        return err_set(ERR_DATA,
                       "%d files of images and %d of labels (%s%s): expected one of labels for each of images",
                       x->pairs, labels, x->file[0].file.path, x->files > 1 ? ", ..." : "");
    x->image = calloc((size_t)x->files, sizeof *x->image);
    if (!x->image) return err_set(ERR_INTERNAL, "no memory for %d files", x->files);
    x->label = x->image + x->pairs;
    for (int i = 0, image = 0, label = 0; i < x->files; i++) {
        idx_file *f = &x->file[i];
        if (f->dims == 1) x->label[label++] = f;
        else x->image[image++] = f;
    }
    for (int k = 0; k < x->pairs; k++) {
        TRY(check_pair(x, x->image[k], x->label[k]));
        x->image[k]->start = x->head.about.samples;
        x->head.about.samples += x->image[k]->size[0];
    }
    return ERR_OK;
}

static err_t check_labels(const idx_source *x, int64_t limit) {
    for (int k = 0; limit && k < x->pairs; k++) {
        const idx_file *f = x->label[k];
        for (int64_t i = 0; i < f->values; i++)
            if (f->kept[i] >= limit)
                return err_set(ERR_DATA,
                               "%s: offset %" PRId64 "%s: label %d, expected less than %" PRId64
                               ", the number of the model's classes",
                               f->file.path, header_bytes(f) + i, f->gzip ? " of what it inflates to" : "", f->kept[i],
                               limit);
    }
    return ERR_OK;
}

// --- hash ------------------------------------------------------------------------------------------------------------

// Values of f go into the hash and into *crc: from the disk, or from memory where they are.
static err_t sum_file(idx_source *x, idx_file *f, bool from_disk, crypto_generichash_state *hash, uint32_t *crc) {
    unzip u = {0};
    uint8_t header[HEADER];
    int64_t got;
    err_t rc = ERR_OK;
    if (f->kept && !from_disk) {
        *crc = (uint32_t)crc32_z(f->crc, f->kept, (size_t)f->values);
        crypto_generichash_update(hash, f->kept, (unsigned long long)f->values);
        return ERR_OK;
    }
    TRY_GOTO(unzip_open(&u, &x->reader, &f->file), out);
    TRY_GOTO(unzip_read(&u, header, header_bytes(f), &got), out);
    *crc = (uint32_t)crc32(0, header, (uInt)got);
    for (int64_t at = 0; at < f->values; at += got) {
        int64_t n = f->values - at < PIECE ? f->values - at : PIECE;
        TRY_GOTO(unzip_read(&u, x->stage, n, &got), out);
        if (got < n) TRY_GOTO(too_short(f, at + got), out);
        *crc = (uint32_t)crc32(*crc, x->stage, (uInt)n);
        crypto_generichash_update(hash, x->stage, (unsigned long long)n);
    }
    TRY_GOTO(check_end(f, &u), out);
out:
    unzip_close(&u);
    return rc;
}

// The sizes of all files of a kind as if they were one, so that the hash does not depend on how they are split.
static void hash_sizes(const idx_source *x, const idx_file *f, crypto_generichash_state *hash) {
    uint8_t b[8 * (DIMS + 1)] = {0};
    int64_t number[DIMS + 1] = {f->dims, 0, f->size[1], f->size[2], f->size[3]};
    for (int k = 0; k < x->pairs; k++) number[1] += x->image[k]->size[0];  // also those that are held out
    for (int i = 0; i < 8 * (DIMS + 1); i++) b[i] = (uint8_t)(number[i / 8] >> 8 * (i % 8));
    crypto_generichash_update(hash, b, sizeof b);
}

// Reads all files. At the open it notes their checksums; later it compares with them, and calls report for each that
// differs.
static err_t sum_all(idx_source *x, bool again, void (*report)(void *ctx, const char *text), void *ctx, int *bad) {
    crypto_generichash_state hash;
    uint8_t digest[32];
    crypto_generichash_init(&hash, NULL, 0, sizeof digest);
    for (int i = 0; i < x->files; i++) {
        idx_file *f = x->image[i];  // labels follow the images
        uint32_t crc = 0;
        if (i % x->pairs == 0) hash_sizes(x, f, &hash);
        err_t rc = sum_file(x, f, again, &hash, &crc);
        if (!again && rc != ERR_OK) return rc;
        if (again && rc == ERR_OK && crc != f->crc)
            rc = err_set(ERR_DATA,
                         "%s: checksum of all bytes 0x%08x, expected 0x%08x: the file has changed since it was opened",
                         f->file.path, crc, f->crc);
        if (rc != ERR_OK) report(ctx, err_last()->text), ++*bad;
        if (!again) f->crc = crc;
        if (f->kept) reader_drop(&x->reader, &f->file);
    }
    crypto_generichash_final(&hash, digest, sizeof digest);
    if (!again) memcpy(x->digest, digest, sizeof digest);
    if (*bad == 0 && memcmp(x->digest, digest, sizeof digest) != 0) {
        err_set(ERR_DATA, "%s and %d more: the hash of all values is another one than when they were opened",
                x->file[0].file.path, x->files - 1);
        report(ctx, err_last()->text), ++*bad;
    }
    return ERR_OK;
}

// --- the source ------------------------------------------------------------------------------------------------------

static int pair_of(const idx_source *x, int64_t sample) {
    int low = 0, high = x->pairs;  // image[low]->start <= sample < image[high]->start
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (x->image[middle]->start <= sample) low = middle;
        else high = middle;
    }
    return low;
}

static void numbers(float *to, const uint8_t *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = (float)from[i] / 255.0f;
}

// (c,h,w) -> (h,w,c)
static void interleave(uint8_t *to, const uint8_t *from, int64_t plane, int64_t C) {
    for (int64_t i = 0; i < plane; i++)
        for (int64_t c = 0; c < C; c++) to[i * C + c] = from[c * plane + i];
}

// *at = the bytes of an image, in memory or just read from the file.
static err_t find_image(idx_source *x, int64_t sample, const uint8_t **at) {
    idx_file *f = x->image[pair_of(x, sample)];
    int64_t first = (sample - f->start) * x->pixels;
    *at = f->kept ? f->kept + first : x->stage;
    return f->kept ? ERR_OK : reader_read(&x->reader, &f->file, header_bytes(f) + first, x->stage, x->pixels);
}

static err_t idx_read(source *s, const source_draw *d, void *const *out) {
    idx_source *x = (idx_source *)s;
    const tensor_spec *image = &s->tensor[PIXELS];
    const uint8_t *from;
    int k = pair_of(x, d->sample);
    if (out[PIXELS]) {
        TRY(find_image(x, d->sample, &from));
        if (image->type == UINT8) interleave(out[PIXELS], from, image->size[0] * image->size[1], image->size[2]);
        else numbers(out[PIXELS], from, x->pixels);
    }
    if (out[LABEL]) *(int32_t *)out[LABEL] = x->label[k]->kept[d->sample - x->image[k]->start];
    return ERR_OK;
}

static err_t idx_picture(source *s, int64_t sample, uint8_t *out) {
    const uint8_t *from;
    TRY(find_image((idx_source *)s, sample, &from));
    interleave(out, from, (int64_t)s->picture[0] * s->picture[1], s->picture[2]);
    return ERR_OK;
}

static err_t idx_verify(source *s, void (*report)(void *ctx, const char *text), void *ctx) {
    idx_source *x = (idx_source *)s;
    int bad = 0;
    TRY(sum_all(x, true, report, ctx, &bad));
    return bad ? err_set(ERR_DATA, "%d fault%s in %d files: copy these files again", bad, bad == 1 ? "" : "s", x->files)
               : ERR_OK;
}

static void idx_cancel(source *s, bool cancelled) { reader_cancel(&((idx_source *)s)->reader, cancelled); }
static void idx_counts(const source *s, int64_t *retries, int64_t *read) {
    reader_counts(&((const idx_source *)s)->reader, retries, read);
}

static void idx_close(source *s) {
    idx_source *x = (idx_source *)s;
    for (int i = 0; i < x->files; i++) {
        reader_forget(&x->reader, &x->file[i].file);
        free(x->file[i].kept);
    }
    reader_close(&x->reader);
    free(x->file);
    free(x->image);
    free(x->stage);
    free(x);
}

static const source_type type = {.read = idx_read,
                                 .verify = idx_verify,
                                 .cancel = idx_cancel,
                                 .counts = idx_counts,
                                 .close = idx_close,
                                 .picture = idx_picture};

// Numbers with the file's dimensions or, where the model asks for bytes, an image (h,w,c).
static tensor_spec pixels_of(const idx_file *f, const tensor_spec *wanted) {
    tensor_spec t = {.name = "pixels", .type = FP32, .dims = f->dims - 1, .size = {1, 1, 1}};
    for (int d = 1; d < f->dims; d++) t.size[d - 1] = f->size[d];
    if (!wanted || wanted->type != UINT8 || f->dims < 3) return t;
    int64_t channels = f->dims == 4 ? f->size[1] : 1;
    return (tensor_spec){
        .name = "pixels", .type = UINT8, .dims = 3, .size = {f->size[f->dims - 2], f->size[f->dims - 1], channels}};
}

// Items of a size that a picture may have, grey or in colour, are pictures, whether the model reads them as such or as
// a row of numbers.
static void describe_picture(source *s, const idx_file *f) {
    int64_t h = f->dims < 3 ? 0 : f->size[f->dims - 2], w = f->dims < 3 ? 0 : f->size[f->dims - 1],
            c = f->dims == 4 ? f->size[1] : 1;
    if (h < 1 || w < 1 || h > PICTURE_SIDE || w > PICTURE_SIDE || h * w > PICTURE_PIXELS || (c != 1 && c != 3)) return;
    s->picture[0] = (int)h, s->picture[1] = (int)w, s->picture[2] = (int)c;
}

static void describe(idx_source *x, const source_options *o, int64_t limit) {
    const idx_file *f = x->image[0];
    source *s = &x->head;
    s->about.units = s->about.samples;
    s->about.units_per_sample = 1;
    s->about.unit = "images";
    s->about.files = x->files;
    sodium_bin2hex(s->about.hash, sizeof s->about.hash, x->digest, 8);
    describe_picture(s, f);
    s->tensors = 2;
    s->tensor[PIXELS] = pixels_of(f, source_wants(o, "pixels"));
    s->tensor[LABEL] = (tensor_spec){.name = "label", .type = INT32, .size = {1, 1, 1}, .limit = limit};
}

static err_t open_files(idx_source *x, const file_list *files, const source_options *o) {
    const tensor_spec *wanted = source_wants(o, "label");
    int64_t limit = wanted ? wanted->limit : 0;
    int bad = 0;
    if (!(x->file = calloc((size_t)files->count, sizeof *x->file)))
        return err_set(ERR_INTERNAL, "no memory for %d files", files->count);
    while (x->files < files->count) {
        idx_file *f = &x->file[x->files++];
        TRY(open_file(x, f, files->path[x->files - 1]));
    }
    TRY(pair_files(x));
    TRY(check_labels(x, limit));
    x->pixels = x->image[0]->values / x->image[0]->size[0];
    x->stage_bytes = x->pixels > PIECE ? x->pixels : PIECE;
    if (!(x->stage = malloc((size_t)x->stage_bytes)))
        return err_set(ERR_INTERNAL, "no memory for an image of %" PRId64 " bytes", x->pixels);
    TRY(sum_all(x, false, NULL, NULL, &bad));
    describe(x, o, limit);
    return ERR_OK;
}

err_t idx_open(source **out, const source_options *o) {
    file_list files = {0};
    err_t rc;
    if (sodium_init() < 0) return err_set(ERR_INTERNAL, "libsodium does not start");
    idx_source *x = calloc(1, sizeof *x);
    if (!x) return err_set(ERR_INTERNAL, "no memory for a source of images");
    x->head.type = &type;
    reader_open(&x->reader, o->retry, o->faults);
    reader_share(&x->reader, o->shared_by);
    TRY_GOTO(
        files_expand(&files, o->files, (files_hint){"", "[data] train and val name files of images and of labels"}),
        out);
    TRY_GOTO(open_files(x, &files, o), out);
out:
    files_free(&files);
    if (rc != ERR_OK) idx_close(&x->head);
    else *out = &x->head;
    return rc;
}
