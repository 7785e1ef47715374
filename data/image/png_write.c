// data/image/png_write.c: PNG files, encoded by libpng.
#include "data/image/encode.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>

enum { BITS = 8, COMPRESSION = 9 };

typedef struct png_out {
    text *to;
    png_structp z;
    png_infop info;
    jmp_buf failed;
    err_t rc;
} png_out;

static void fail(png_structp z, png_const_charp why) {
    png_out *p = png_get_error_ptr(z);
    p->rc = err_set(ERR_INTERNAL, "a picture can't be written as PNG: %s", why);
    longjmp(p->failed, 1);
}

static void ignore(png_structp z, png_const_charp why) { (void)z, (void)why; }

static void give(png_structp z, png_bytep from, size_t n) { text_add(png_get_io_ptr(z), (const char *)from, n); }

// Nothing is held back.
static void flush(png_structp z) { (void)z; }

static err_t encode(png_out *o, const picture *p) {
    if (setjmp(o->failed)) return o->rc;
    png_set_write_fn(o->z, o->to, give, flush);
    png_set_IHDR(o->z, o->info, (png_uint_32)p->w, (png_uint_32)p->h, BITS,
                 p->c == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_set_compression_level(o->z, COMPRESSION);
    png_write_info(o->z, o->info);
    for (int y = 0; y < p->h; y++) png_write_row(o->z, p->at + (int64_t)y * p->w * p->c);
    png_write_end(o->z, NULL);
    return ERR_OK;
}

err_t png_encode(text *out, const picture *p) {
    png_out o = {.to = out};
    if (p->c != 1 && p->c != 3) return err_set(ERR_CONFIG, "a picture of %d channels, expected 1 or 3", p->c);
    if (setjmp(o.failed)) return o.rc;
    o.z = png_create_write_struct(PNG_LIBPNG_VER_STRING, &o, fail, ignore);
    if (o.z) o.info = png_create_info_struct(o.z);
    err_t rc = o.info ? encode(&o, p) : err_set(ERR_INTERNAL, "no memory to write a PNG picture");
    png_destroy_write_struct(&o.z, &o.info);
    return rc == ERR_OK && out->full ? err_set(ERR_INTERNAL, "no memory for a PNG picture") : rc;
}
