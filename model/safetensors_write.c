// model/safetensors_write.c: writing files of tensors: see model/safetensors.h. What is put is counted against what was
// declared.
#include "model/safetensors.h"

#include "base/io.h"
#include "model/blocks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Sets offset (from the start of the data, for now) and bytes. An error here is the caller's mistake.
static err_t set_offset(const char *path, st_tensor *t, int64_t at) {
    if (!t->name[0] || !memchr(t->name, 0, ST_NAME) || strcmp(t->name, ST_METADATA) == 0 || t->dims < 0 ||
        t->dims > ST_DIMS || (unsigned)t->type >= ST_TYPES)
        return err_set(ERR_INTERNAL, "%s: tensor %.95s can't be declared: name, type or number of dimensions", path,
                       t->name);
    const char *wrong = st_count_bytes(t);
    if (wrong) return err_set(ERR_INTERNAL, "%s: tensor %s: %s", path, t->name, wrong);
    t->offset = at;
    int64_t end;
    if (__builtin_add_overflow(at, t->bytes, &end))
        return err_set(ERR_INTERNAL, "%s: tensor %s is too large", path, t->name);
    return ERR_OK;
}

static err_t declare(const char *path, json_t *header, const st_tensor *t) {
    if (json_object_get(header, t->name))
        return err_set(ERR_INTERNAL, "%s: tensor %s is declared twice", path, t->name);
    json_t *shape = json_array();
    for (int d = 0; d < t->dims; d++) json_array_append_new(shape, json_integer(t->size[d]));
    json_t *entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype", st_type_name(t->type), "shape", shape, "data_offsets",
                              (json_int_t)t->offset, (json_int_t)(t->offset + t->bytes));
    if (!entry || json_object_set_new(header, t->name, entry) != 0)
        return err_set(ERR_INTERNAL, "%s: tensor %s can't be declared: its name is not UTF-8, or no memory", path,
                       t->name);
    return ERR_OK;
}

static err_t build_header(const char *path, json_t *header, st_tensor *tensors, int count, const char *const *metadata,
                          int64_t *bytes) {
    *bytes = 0;
    if (metadata) {
        json_t *pairs = json_object();
        int failed = json_object_set_new(header, ST_METADATA, pairs);
        for (; !failed && metadata[0]; metadata += 2)
            failed = json_object_set_new(pairs, metadata[0], json_string(metadata[1]));
        if (failed) return err_set(ERR_INTERNAL, "%s: metadata can't be written: not UTF-8, or no memory", path);
    }
    for (int i = 0; i < count; i++) {
        TRY(set_offset(path, &tensors[i], *bytes));
        TRY(declare(path, header, &tensors[i]));
        *bytes += tensors[i].bytes;
    }
    return ERR_OK;
}

// The header's length and then its text, padded with spaces so that the data starts on a multiple of 8. The caller
// frees *out.
static err_t print_header(const char *path, const json_t *header, char **out, size_t *size) {
    size_t n = json_dumpb(header, NULL, 0, JSON_COMPACT), padded = (n + 7) / 8 * 8;
    if (padded > (size_t)ST_HEADER_MAX)
        return err_set(ERR_INTERNAL, "%s: its header would have %zu bytes, and readers accept at most %d", path, padded,
                       ST_HEADER_MAX);
    char *text = n > 0 ? malloc(ST_LENGTH_BYTES + padded) : NULL;
    if (!text) return err_set(ERR_INTERNAL, "%s: no memory for the header", path);
    memset(text + ST_LENGTH_BYTES, ' ', padded);
    json_dumpb(header, text + ST_LENGTH_BYTES, n, JSON_COMPACT);
    memcpy(text, &(uint64_t){padded}, ST_LENGTH_BYTES);
    *out = text;
    *size = ST_LENGTH_BYTES + padded;
    return ERR_OK;
}

static err_t open_blocks(st_writer *w, const st_tensor *tensors, int count, int level) {
    int64_t *bytes = calloc((size_t)count + 1, sizeof *bytes);
    if (!bytes) return err_set(ERR_INTERNAL, "%s: no memory for a table of %d tensors", w->path, count);
    err_t rc = ERR_OK;
    for (int i = 0; i < count && rc == ERR_OK; i++) {
        bytes[i] = tensors[i].bytes;
        if (tensors[i].type != ST_F32)
            rc = err_set(ERR_INTERNAL, "%s: tensor %s can't be declared: files of blocks hold F32", w->path,
                         tensors[i].name);
    }
    if (rc == ERR_OK)
        rc = block_writer_open(&w->blocks, w->fd, w->path, level, w->header, w->header_bytes, bytes, count, w->faults);
    free(bytes);
    return rc;
}

// level 0: plain.
static err_t write_header(st_writer *w, st_tensor *tensors, int count, const json_t *header, int level) {
    TRY(print_header(w->path, header, &w->header, &w->header_bytes));
    for (int i = 0; i < count; i++) tensors[i].offset += (int64_t)w->header_bytes;
    TRY(io_open(w->path, O_WRONLY | O_CREAT | O_TRUNC, &w->fd));
    if (level) return open_blocks(w, tensors, count, level);
    return io_write(w->fd, w->path, w->header, w->header_bytes, w->faults);
}

static err_t create(st_writer *w, const char *path, st_tensor *tensors, int count, const char *const *metadata,
                    int level, fault_list *faults) {
    *w = (st_writer){.fd = -1, .faults = faults};
    TRY(io_path(w->path, "%s", path));
    json_t *header = json_object();
    if (!header) return err_set(ERR_INTERNAL, "%s: no memory for the header", path);
    err_t rc = build_header(path, header, tensors, count, metadata, &w->left);
    if (rc == ERR_OK) rc = write_header(w, tensors, count, header, level);
    json_decref(header);
    if (rc != ERR_OK) st_abort(w);
    return rc;
}

err_t st_create(st_writer *w, const char *path, st_tensor *tensors, int count, const char *const *metadata,
                fault_list *faults) {
    return create(w, path, tensors, count, metadata, 0, faults);
}

err_t st_create_blocks(st_writer *w, const char *path, st_tensor *tensors, int count, const char *const *metadata,
                       int level, fault_list *faults) {
    return create(w, path, tensors, count, metadata, level, faults);
}

const char *st_head(const st_writer *w, size_t *n) {
    if (w->blocks) return block_writer_head(w->blocks, n);
    *n = w->header_bytes;
    return w->header;
}

// As the file grows: a piece is sent to disk when it is complete, and waited for when the next one is.
static err_t push(const st_writer *w, int64_t before) {
    enum { PIECE = 64 << 20 };
    size_t head;
    st_head(w, &head);
    int64_t piece = w->done / PIECE, header = (int64_t)head;
    if (piece == before / PIECE) return ERR_OK;
    TRY(io_push(w->fd, w->path, header + (piece - 1) * PIECE, PIECE, false));
    return piece > 1 ? io_push(w->fd, w->path, header + (piece - 2) * PIECE, PIECE, true) : ERR_OK;
}

err_t st_put(st_writer *w, const void *bytes, size_t n) {
    if (n > (uint64_t)w->left)
        return err_set(ERR_INTERNAL, "%s: %zu bytes put, %" PRId64 " were declared to follow", w->path, n, w->left);
    int64_t before = w->done;
    if (w->blocks) TRY(block_writer_put(w->blocks, bytes, n, &w->done));
    else {
        TRY(io_write(w->fd, w->path, bytes, n, w->faults));
        w->done += (int64_t)n;
    }
    w->left -= (int64_t)n;
    return push(w, before);
}

static void drop_header(st_writer *w) {
    block_writer_close(w->blocks);
    free(w->header);
    w->blocks = NULL, w->header = NULL;
}

err_t st_finish(st_writer *w, int64_t *file_bytes) {
    err_t rc = ERR_OK;
    if (w->left != 0)
        rc = err_set(ERR_INTERNAL, "%s: %" PRId64 " bytes of data were declared and not put", w->path, w->left);
    if (rc == ERR_OK && w->blocks) rc = block_writer_end(w->blocks);
    if (rc == ERR_OK) rc = io_sync(w->fd, w->path, w->faults);
    off_t end = lseek(w->fd, 0, SEEK_END);
    if (file_bytes) *file_bytes = end;
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0 && rc == ERR_OK) rc = err_set(ERR_IO, "%s: close: %s", w->path, strerror(errno));
    drop_header(w);
    return rc;
}

void st_abort(st_writer *w) {
    if (w->fd >= 0) close(w->fd);
    w->fd = -1;
    drop_header(w);
}
