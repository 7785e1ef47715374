// model/safetensors.c: see model/safetensors.h. The header is not trusted: every number in it is checked against the
// file before anything is read at an offset that it gives. Tensors must tile the data exactly: each byte belongs to one
// tensor, and a file that is longer or shorter than its header says is refused.
#include "model/safetensors.h"

#include "base/io.h"
#include "model/blocks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensors are little-endian in the file and are read as they are");

enum { NESTS = 3, ITEMS = 64 };  // a header is an object of objects with lists, and these are short

#define ST_ROW(name, bits) {#name, bits},
static const struct {
    const char *name;
    int bits;
} types[ST_TYPES] = {ST_FORMAT(ST_ROW)};

const char *st_count_bytes(st_tensor *t) {
    int64_t bits = types[t->type].bits;
    bool empty = false;
    for (int d = 0; d < t->dims; d++) {
        if (t->size[d] < 0) return "a dimension is not a whole number of 0 or more";
        if (t->size[d] == 0) empty = true;
        else if (__builtin_mul_overflow(bits, t->size[d], &bits)) return "its shape is larger than any file";
    }
    if (empty) bits = 0;
    t->bytes = bits / 8;
    return bits % 8 ? "its elements do not fill whole bytes" : NULL;
}

// --- reading the header ----------------------------------------------------------------------------------------------

static err_t tensor_error(const st_file *f, const char *name, const char *what) {
    return err_set(ERR_DATA, "%s: tensor %.200s: %s", f->path, name, what);
}

static err_t parse_type(const st_file *f, st_tensor *t, const json_t *dtype) {
    const char *text = json_string_value(dtype);
    if (!text) return tensor_error(f, t->name, "no \"dtype\" in the header");
    for (int i = 0; i < ST_TYPES; i++) {
        if (strcmp(text, types[i].name) != 0) continue;
        t->type = (st_type)i;
        return ERR_OK;
    }
    return err_set(
        ERR_DATA,
        "%s: tensor %s: dtype %.20s is not known, expected F32, F16, BF16, F64 or another one of the format: convert it first",
        f->path, t->name, text);
}

// Sets dims, size and bytes.
static err_t parse_shape(const st_file *f, st_tensor *t, const json_t *shape) {
    if (!json_is_array(shape)) return tensor_error(f, t->name, "no \"shape\" in the header");
    if (json_array_size(shape) > ST_DIMS)
        return err_set(ERR_DATA, "%s: tensor %s has %zu dimensions, expected at most %d", f->path, t->name,
                       json_array_size(shape), ST_DIMS);
    t->dims = (int)json_array_size(shape);
    for (int d = 0; d < t->dims; d++) {
        const json_t *n = json_array_get(shape, (size_t)d);
        t->size[d] = json_is_integer(n) ? json_integer_value(n) : -1;
    }
    const char *wrong = st_count_bytes(t);
    return wrong ? tensor_error(f, t->name, wrong) : ERR_OK;
}

// `data` is where the data begins in the file.
static err_t parse_offsets(const st_file *f, st_tensor *t, const json_t *offsets, int64_t data) {
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return tensor_error(f, t->name, "\"data_offsets\" is not a pair of whole numbers");
    int64_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin || end > f->plain_bytes - data)
        return err_set(ERR_DATA,
                       "%s: tensor %s: data_offsets [%" PRId64 ",%" PRId64 "] do not lie in the file's %" PRId64
                       " data bytes: the file is truncated or "
                       "its header is wrong",
                       f->path, t->name, begin, end, f->plain_bytes - data);
    if (end - begin != t->bytes)
        return err_set(ERR_DATA,
                       "%s: tensor %s: data_offsets [%" PRId64 ",%" PRId64 "] span %" PRId64
                       " bytes, its shape and dtype need %" PRId64,
                       f->path, t->name, begin, end, end - begin, t->bytes);
    t->offset = data + begin;
    return ERR_OK;
}

static err_t parse_tensor(const st_file *f, st_tensor *t, const char *name, const json_t *entry, int64_t data) {
    *t = (st_tensor){0};
    if (!name[0] || strlen(name) >= ST_NAME)
        return err_set(ERR_DATA, "%s: tensor \"%.200s\": its name has %zu bytes, expected 1 to %d", f->path, name,
                       strlen(name), ST_NAME - 1);
    memcpy(t->name, name, strlen(name));
    if (json_object_size(entry) != 3)
        return tensor_error(f, name, "expected the members dtype, shape and data_offsets in the header");
    TRY(parse_type(f, t, json_object_get(entry, "dtype")));
    TRY(parse_shape(f, t, json_object_get(entry, "shape")));
    return parse_offsets(f, t, json_object_get(entry, "data_offsets"), data);
}

static int by_offset(const void *a, const void *b) {
    const st_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    // an empty tensor before the one that starts where it does
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

// Each tensor starts where the previous one ended, and the last ends with the file.
static err_t check_tiling(const st_file *f, int64_t data) {
    int64_t at = data;
    const char *before = "the header";
    for (int i = 0; i < f->count; i++) {
        const st_tensor *t = &f->tensors[i];
        if (t->offset != at)
            return err_set(ERR_DATA,
                           "%s: tensor %s starts at offset %" PRId64 ", expected %" PRId64 " where %s ends: %s",
                           f->path, t->name, t->offset, at, before, t->offset < at ? "they overlap" : "there is a gap");
        at += t->bytes;
        before = t->name;
    }
    if (at != f->plain_bytes)
        return err_set(ERR_DATA,
                       "%s: has %" PRId64 " bytes, expected %" PRId64
                       " where %s ends: bytes that belong to no tensor follow it",
                       f->path, f->plain_bytes, at, before);
    return ERR_OK;
}

static err_t check_metadata(const st_file *f, json_t *metadata) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) return err_set(ERR_DATA, "%s: __metadata__ is not an object of strings", f->path);
    json_object_foreach(metadata, key, value) if (!json_is_string(value)) return err_set(
        ERR_DATA, "%s: __metadata__: \"%.100s\" is not a string", f->path, key);
    return ERR_OK;
}

static err_t parse_header(st_file *f, json_t *header, int64_t data) {
    const char *name;
    json_t *entry;
    f->tensors = calloc(json_object_size(header) + 1, sizeof *f->tensors);
    if (!f->tensors) return err_set(ERR_INTERNAL, "%s: no memory for %zu tensors", f->path, json_object_size(header));
    json_object_foreach(header, name, entry) {
        if (strcmp(name, ST_METADATA) == 0) TRY(check_metadata(f, entry));
        else TRY(parse_tensor(f, &f->tensors[f->count++], name, entry, data));
    }
    qsort(f->tensors, (size_t)f->count, sizeof *f->tensors, by_offset);
    return check_tiling(f, data);
}

// Before any of it is kept: a header that was built to fill the memory, some fifty times its own size, does not get
// there. Whether it is JSON is not seen here.
static err_t check_nesting(const st_file *f, const char *text, size_t n) {
    bool string = false, list[NESTS + 1] = {false};
    int depth = 0, items[NESTS + 1] = {0};
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (string && c == '\\') i++;
        else if (c == '"') string = !string;
        if (string || c == '"') continue;
        if (c == '{' || c == '[') {
            if (++depth > NESTS)
                return err_set(ERR_DATA,
                               "%s: offset %zu: the header nests deeper than tensors, their members and lists", f->path,
                               ST_LENGTH_BYTES + i);
            list[depth] = c == '[', items[depth] = 1;
        }
        if ((c == '}' || c == ']') && depth > 0) depth--;
        if (c == ',' && (list[depth] || depth == NESTS) && ++items[depth] > ITEMS)
            return err_set(ERR_DATA, "%s: offset %zu: the header has a list of more than %d items", f->path,
                           ST_LENGTH_BYTES + i, ITEMS);
    }
    return ERR_OK;
}

// White space may stand before the '{': with it, writers put the data on a boundary.
static err_t load_header(st_file *f, char *text, size_t n) {
    json_error_t why;
    size_t white = 0;
    TRY(io_read_at(f->fd, f->path, f->head_bytes - (int64_t)n, text, n));
    while (white < n - 1 && memchr(" \t\r\n", text[white], 4)) white++;
    if (text[white] != '{')
        return err_set(ERR_DATA, "%s: offset %zu: expected the header's '{', found byte 0x%02x", f->path,
                       ST_LENGTH_BYTES + white, (unsigned char)text[white]);
    TRY(check_nesting(f, text, n));
    json_t *header = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!header)
        return err_set(ERR_DATA, "%s: offset %d: header is not valid JSON: %s", f->path, ST_LENGTH_BYTES + why.position,
                       why.text);
    err_t rc = parse_header(f, header, ST_LENGTH_BYTES + (int64_t)n);
    json_decref(header);
    return rc;
}

// at: where its length is.
static err_t read_header(st_file *f, int64_t at) {
    uint64_t n = 0;
    TRY(io_read_at(f->fd, f->path, at, &n, sizeof n));
    int64_t most = f->file_bytes - at - ST_LENGTH_BYTES;
    if (n < 2 || n > (uint64_t)ST_HEADER_MAX || n > (uint64_t)most)
        return err_set(ERR_DATA,
                       "%s: offset %" PRId64 ": header length %" PRIu64 ", expected 2 to %d in a file of %" PRId64
                       " bytes: truncated, or not a safetensors file",
                       f->path, at, n, ST_HEADER_MAX, f->file_bytes);
    char *text = malloc(n);
    if (!text) return err_set(ERR_INTERNAL, "%s: no memory for a header of %" PRIu64 " bytes", f->path, n);
    f->head_bytes = at + ST_LENGTH_BYTES + (int64_t)n;
    err_t rc = load_header(f, text, n);
    free(text);
    return rc;
}

// The header has given the tensors their places in the plain file.
static err_t place_blocks(st_file *f) {
    const blocks *b = f->blocks;
    int64_t number = 0;
    for (int i = 0; i < f->count; i++) {
        st_tensor *t = &f->tensors[i];
        if (t->type != ST_F32)
            return err_set(ERR_DATA, "%s: tensor %s holds %s, and files of blocks hold F32", f->path, t->name,
                           types[t->type].name);
        if (blocks_of(t->bytes) > b->count - number)
            return err_set(ERR_DATA, "%s: tensor %s: the index ends after %" PRId64 " blocks: the index is damaged",
                           f->path, t->name, b->count);
        t->block = number, t->offset = b->at[number];
        number += blocks_of(t->bytes);
    }
    if (number == b->count) return ERR_OK;
    return err_set(ERR_DATA, "%s: its tensors have %" PRId64 " blocks, and the index %" PRId64 ": the index is damaged",
                   f->path, number, b->count);
}

static err_t read_blocks(st_file *f) {
    if (!(f->blocks = calloc(1, sizeof *f->blocks))) return err_set(ERR_INTERNAL, "%s: no memory", f->path);
    blocks *b = f->blocks;
    TRY(blocks_open(b, f->fd, f->path, f->file_bytes));
    f->plain_bytes = b->plain;
    if (b->header < ST_LENGTH_BYTES + 2)
        return err_set(ERR_DATA, "%s: offset 8: a header of %" PRId64 " bytes is none", f->path, b->header);
    TRY(read_header(f, b->begin));
    if (f->head_bytes != b->begin + b->header)
        return err_set(ERR_DATA, "%s: offset %" PRId64 ": the header's length is not what the head says: it is damaged",
                       f->path, b->begin);
    return place_blocks(f);
}

static err_t read_head(st_file *f) {
    struct stat st;
    uint8_t first[BLOCKS_MAGIC];
    if (fstat(f->fd, &st) != 0) return err_set(ERR_IO, "%s: %s", f->path, strerror(errno));
    f->file_bytes = f->plain_bytes = st.st_size;
    if (f->file_bytes < ST_LENGTH_BYTES + 2)
        return err_set(ERR_DATA, "%s: has %" PRId64 " bytes: empty or truncated, not a safetensors file", f->path,
                       f->file_bytes);
    TRY(io_read_at(f->fd, f->path, 0, first, sizeof first));
    return blocks_are(first) ? read_blocks(f) : read_header(f, 0);
}

err_t st_open(st_file *f, const char *path) {
    *f = (st_file){.fd = -1, .path = strdup(path)};
    if (!f->path) return err_set(ERR_INTERNAL, "%s: no memory", path);
    err_t rc = io_open(path, O_RDONLY, &f->fd);
    if (rc == ERR_OK) rc = read_head(f);
    if (rc != ERR_OK) st_close(f);
    return rc;
}

void st_close(st_file *f) {
    if (f->fd >= 0) close(f->fd);
    if (f->blocks) blocks_close(f->blocks);
    free(f->blocks);
    free(f->tensors);
    free(f->path);
    *f = (st_file){.fd = -1};
}

const char *st_type_name(st_type t) { return types[t].name; }

const st_tensor *st_find(const st_file *f, const char *name) {
    for (int i = 0; i < f->count; i++)
        if (strcmp(f->tensors[i].name, name) == 0) return &f->tensors[i];
    return NULL;
}

// --- reading tensors -------------------------------------------------------------------------------------------------

// n bytes of a tensor from its byte `from` on.
static err_t read_bytes(const st_file *f, const st_tensor *t, int64_t from, void *out, size_t n) {
    if (!f->blocks) return io_read_at(f->fd, f->path, t->offset + from, out, n);
    return blocks_read(f->blocks, f->fd, f->path, t->block, t->bytes, from, out, n);
}

err_t st_read(const st_file *f, const st_tensor *t, void *out) {
    err_t rc = read_bytes(f, t, 0, out, (size_t)t->bytes);
    if (rc != ERR_OK) err_prefix("tensor %s", t->name);
    return rc;
}

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// IEEE 754 binary16. A subnormal is its mantissa times 2^-24, which FP32 holds exactly.
static float from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return from_bits(sign | 0x7f800000 | mantissa << 13);
    if (exponent > 0) return from_bits(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
    float x = (float)mantissa * 0x1p-24f;
    return sign ? -x : x;
}

static void convert(float *out, const void *in, st_type type, int64_t n) {
    const uint16_t *h = in;
    const double *d = in;
    for (int64_t i = 0; i < n; i++)
        out[i] = type == ST_F16 ? from_f16(h[i]) : type == ST_BF16 ? from_bits((uint32_t)h[i] << 16) : (float)d[i];
}

err_t st_read_f32(const st_file *f, const st_tensor *t, float *out) {
    return st_read_f32_part(f, t, 0, t->bytes * 8 / types[t->type].bits, out);
}

err_t st_read_f32_part(const st_file *f, const st_tensor *t, int64_t first, int64_t count, float *out) {
    if (!st_floating(t->type))
        return err_set(ERR_DATA, "%s: tensor %s holds %s, expected F32, F16, BF16 or F64", f->path, t->name,
                       types[t->type].name);
    enum { PIECE = 2048 };
    double piece[PIECE];
    int64_t each = types[t->type].bits / 8, from = first * each;
    if (first < 0 || count < 0 || first > t->bytes / each - count)
        return err_set(ERR_INTERNAL, "%s: tensor %s has no elements %" PRId64 " .. +%" PRId64, f->path, t->name, first,
                       count);
    if (t->type == ST_F32) return read_bytes(f, t, from, out, (size_t)(count * each));
    for (int64_t i = 0; i < count; i += PIECE) {
        int64_t n = count - i < PIECE ? count - i : PIECE;
        TRY(read_bytes(f, t, from + i * each, piece, (size_t)(n * each)));
        convert(out + i, piece, t->type, n);
    }
    return ERR_OK;
}
