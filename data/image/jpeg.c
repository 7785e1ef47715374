// data/image/jpeg.c: JPEG files, decoded by libjpeg-turbo with its integer DCT and smooth upsampling of colour (its
// defaults, and Pillow's): the same bytes on every machine.
//
// libjpeg goes on after nearly everything and makes up what it could not read. Here what it warns of is an error, but
// for what leaves the picture whole, such as bytes between two markers.
#include "data/image/decode.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

// A progressive file of a few bytes may ask for a pass over all coefficients as often as it likes. Those that are made
// for use have about ten scans.
enum { SCANS_MOST = 100 };

typedef struct jpeg_reader {
    struct jpeg_decompress_struct z;  // first: libjpeg gives us only this
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    err_t rc;
} jpeg_reader;

static void fail(j_common_ptr z) {
    jpeg_reader *j = (jpeg_reader *)z;
    char text[JMSG_LENGTH_MAX];
    j->errors.format_message(z, text);
    j->rc = err_set(ERR_DATA, "not a whole JPEG picture: %s", text);
    longjmp(j->failed, 1);
}

// level -1: a warning; from 0 on: how it is going.
static void warn(j_common_ptr z, int level) {
    if (level >= 0) return;
    switch (z->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
    case JWRN_BOGUS_PROGRESSION: return;
    default: fail(z);
    }
}

static void print_nothing(j_common_ptr z) { (void)z; }

static void count_scans(j_common_ptr z) {
    jpeg_reader *j = (jpeg_reader *)z;
    if (j->z.input_scan_number <= SCANS_MOST) return;
    j->rc = err_set(ERR_DATA, "a JPEG picture in more than %d scans, expected about 10", SCANS_MOST);
    longjmp(j->failed, 1);
}

// CMYK as Pillow reads it, which takes all such files for Adobe's, with inverted values.
static void cmyk_to_rgb(uint8_t *rgb, const uint8_t *cmyk, int w) {
    for (int x = 0; x < w; x++, rgb += 3, cmyk += 4)
        for (int c = 0; c < 3; c++) {
            int black = cmyk[3], t = (255 - cmyk[c]) * black + 128, v = black - ((t + (t >> 8)) >> 8);
            rgb[c] = (uint8_t)(v < 0 ? 0 : v);
        }
}

static void find_orientation(jpeg_reader *j, int *orientation) {
    for (jpeg_saved_marker_ptr m = j->z.marker_list; m; m = m->next)
        if (m->data_length > 6 && memcmp(m->data, "Exif\0\0", 6) == 0) {
            *orientation = exif_orientation(m->data + 6, m->data_length - 6);
            return;
        }
}

static void read_rows(jpeg_reader *j, picture *out) {
    JSAMPARRAY four = NULL;
    bool inks = j->z.out_color_space == JCS_CMYK;
    if (inks) four = j->z.mem->alloc_sarray((j_common_ptr)&j->z, JPOOL_IMAGE, (JDIMENSION)out->w * 4, 1);
    for (int y = 0; y < out->h; y++) {
        uint8_t *row = out->at + (int64_t)y * out->w * 3;
        jpeg_read_scanlines(&j->z, inks ? four : &row, 1);
        if (inks) cmyk_to_rgb(row, four[0], out->w);
    }
}

static err_t decode(jpeg_reader *j, picture *out, int *orientation, const uint8_t *bytes, size_t n) {
    if (setjmp(j->failed)) return j->rc;
    jpeg_mem_src(&j->z, bytes, (unsigned long)n);
    jpeg_save_markers(&j->z, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(&j->z, TRUE);
    int parts = j->z.num_components;
    if (parts != 1 && parts != 3 && parts != 4)
        return err_set(ERR_DATA, "a JPEG picture of %d channels, expected 1, 3 or 4", parts);
    TRY(picture_make(out, j->z.image_height, j->z.image_width, PICTURE_CHANNELS));
    find_orientation(j, orientation);
    j->z.out_color_space = parts == 4 ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&j->z);
    read_rows(j, out);
    jpeg_finish_decompress(&j->z);
    return ERR_OK;
}

err_t jpeg_decode(picture *out, int *orientation, const uint8_t *bytes, size_t n) {
    jpeg_reader j = {.progress.progress_monitor = count_scans};
    j.z.err = jpeg_std_error(&j.errors);
    j.errors.error_exit = fail;
    j.errors.emit_message = warn;
    j.errors.output_message = print_nothing;
    if (setjmp(j.failed)) return j.rc;
    jpeg_create_decompress(&j.z);
    j.z.progress = &j.progress;
    err_t rc = decode(&j, out, orientation, bytes, n);
    jpeg_destroy_decompress(&j.z);
    return rc;
}
