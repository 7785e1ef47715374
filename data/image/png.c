// data/image/png.c: PNG files, decoded by libpng.
#include "data/image/decode.h"

#include "base/fmath.h"

#include <png.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 24, CHUNKS_MOST = 256 };  // of a chunk's contents, inflated, and of chunks that are kept

// libpng names libm's pow() for the correction of gamma, which nothing here asks for. This one takes its place, so that
// the program takes nothing from libm whose bits differ between machines.
double pow(double x, double y) { return x > 0 ? fm_exp(y * fm_log(x)) : 0; }

typedef struct png_bytes {
    const uint8_t *at;
    size_t left;
    png_structp z;
    png_infop info;
    jmp_buf failed;
    err_t rc;
} png_bytes;

static void fail(png_structp z, png_const_charp why) {
    png_bytes *p = png_get_error_ptr(z);
    p->rc = err_set(ERR_DATA, "not a whole PNG picture: %s", why);
    longjmp(p->failed, 1);
}

static void ignore(png_structp z, png_const_charp why) { (void)z, (void)why; }

static void take(png_structp z, png_bytep to, size_t n) {
    png_bytes *p = png_get_io_ptr(z);
    if (n > p->left) png_error(z, "the file ends too early");
    memcpy(to, p->at, n);
    p->at += n, p->left -= n;
}

// Whatever it is, three channels of 8 bits come out. Values are kept as they are: no gamma, no blending.
static void ask_for_rgb(png_structp z, png_infop info) {
    int depth = png_get_bit_depth(z, info), kind = png_get_color_type(z, info);
    if (depth == 16) png_set_strip_16(z);
    if (kind == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(z);
    if (kind == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(z);
    if (kind == PNG_COLOR_TYPE_GRAY || kind == PNG_COLOR_TYPE_GRAY_ALPHA) png_set_gray_to_rgb(z);
    if (kind & PNG_COLOR_MASK_ALPHA || kind == PNG_COLOR_TYPE_PALETTE) png_set_strip_alpha(z);
}

static err_t decode(png_bytes *p, picture *out, int *orientation) {
    png_uint_32 length = 0;
    png_bytep exif = NULL;
    if (setjmp(p->failed)) return p->rc;
    png_set_user_limits(p->z, PICTURE_SIDE, PICTURE_SIDE);
    png_set_chunk_malloc_max(p->z, CHUNK_BYTES);
    png_set_chunk_cache_max(p->z, CHUNKS_MOST);
    png_set_read_fn(p->z, p, take);
    png_read_info(p->z, p->info);
    TRY(picture_make(out, png_get_image_height(p->z, p->info), png_get_image_width(p->z, p->info), PICTURE_CHANNELS));
    ask_for_rgb(p->z, p->info);
    int passes = png_set_interlace_handling(p->z);
    png_read_update_info(p->z, p->info);
    if (png_get_rowbytes(p->z, p->info) != (size_t)out->w * PICTURE_CHANNELS)
        return err_set(ERR_INTERNAL, "libpng makes rows of %zu bytes, expected %d", png_get_rowbytes(p->z, p->info),
                       out->w * PICTURE_CHANNELS);
    for (int pass = 0; pass < passes; pass++)
        for (int y = 0; y < out->h; y++) png_read_row(p->z, out->at + (int64_t)y * out->w * PICTURE_CHANNELS, NULL);
    png_read_end(p->z, p->info);
    if (png_get_eXIf_1(p->z, p->info, &length, &exif)) *orientation = exif_orientation(exif, length);
    return ERR_OK;
}

err_t png_decode(picture *out, int *orientation, const uint8_t *bytes, size_t n) {
    png_bytes p = {.at = bytes, .left = n};
    if (setjmp(p.failed)) return p.rc;
    p.z = png_create_read_struct(PNG_LIBPNG_VER_STRING, &p, fail, ignore);
    if (p.z) p.info = png_create_info_struct(p.z);
    err_t rc = p.info ? decode(&p, out, orientation) : err_set(ERR_INTERNAL, "no memory to read a PNG picture");
    png_destroy_read_struct(&p.z, &p.info, NULL);
    return rc;
}
