// data/text/tools.c: see data/text/tools.h.
#include "data/text/tools.h"

#include "base/io.h"
#include "data/text/about.h"
#include "data/text/dataset.h"
#include "data/text/labels.h"
#include "data/text/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const format_names[] = {SHARD_FORMATS(WORD_NAME)};
enum { FORMATS = sizeof format_names / sizeof *format_names, PIECE = 1 << 16 };

// --- info, verify ----------------------------------------------------------------------------------------------------

static err_t describe(const shard *s, FILE *out) {
    fprintf(out, "%s: %s, %" PRId64 " tokens of %d byte%s, %" PRId64 " bytes", s->file.path, format_names[s->format],
            s->tokens, s->token_bytes, s->token_bytes == 1 ? "" : "s", s->file.size);
    if (s->stretches > 1) fprintf(out, " in %" PRId64 " stretches", s->stretches);
    if (s->stretch && s->tokens * s->token_bytes != s->file.size)
        fprintf(out, ", of which the index names %" PRId64, s->tokens * s->token_bytes);
    if (s->format != FORMAT_LOCKSTEP) return fprintf(out, ", no checksums\n"), ERR_OK;
    int64_t stored = 0;
    for (int64_t k = 0; k < s->blocks; k++) stored += s->table[k].stored;
    fprintf(out, ", %" PRId64 " blocks with checksums%s\n", s->blocks,
            stored < s->tokens * s->token_bytes ? ", compressed" : "");
    if (s->labels)
        fprintf(out, "    %" PRId64 " samples for a context of %" PRId64 ", with %s\n", s->tokens / s->row_tokens,
                s->row_tokens - LABEL_ROW, s->numbers ? "numbers" : "labels");
    else if (s->row_tokens)
        fprintf(out, "    %" PRId64 " samples for a context of %" PRId64 ", answers marked%s\n",
                s->tokens / s->row_tokens, s->row_tokens - 1, s->documents ? ", several documents in each" : "");
    about a;
    TRY(about_find(&a, s->file.path));
    if (!a.known) return ERR_OK;
    fprintf(out, "    tokenizer %s%s%s", a.tokenizer, a.vocabulary[0] ? ", vocabulary " : "", a.vocabulary);
    if (a.best_loss > 0) fprintf(out, ", best possible loss %.4f", a.best_loss);
    fprintf(out, "\n");
    return ERR_OK;
}

err_t text_tools_info(const char *path, source_format from, FILE *out) {
    shard_io io = {0};
    shard s = {0};
    err_t rc = shard_io_open(&io, 0, 0, 1, NULL);
    if (rc == ERR_OK) rc = shard_open(&s, &io, path, from);
    if (rc == ERR_OK) rc = describe(&s, out);
    shard_close(&s, &io);
    shard_io_close(&io);
    return rc;
}

static void print_fault(void *ctx, const char *text) { fprintf(ctx, "%s\n", text); }

err_t text_tools_verify(const char *path, source_format from, FILE *out) {
    dataset *d;
    int32_t largest = -1, *tokens = malloc(PIECE * sizeof *tokens);
    if (!tokens) return err_set(ERR_INTERNAL, "no memory to read %s", path);
    err_t rc = dataset_open(&d, &(dataset_options){.files = path, .format = from});
    if (rc != ERR_OK) return free(tokens), rc;
    rc = dataset_verify(d, print_fault, out);
    for (int64_t at = 0, n, all = dataset_about(d).tokens; rc == ERR_OK && at < all; at += n) {
        n = all - at < PIECE ? all - at : PIECE;
        rc = dataset_read(d, at, n, tokens);
        for (int64_t i = 0; i < n && rc == ERR_OK; i++)
            if (tokens[i] > largest) largest = tokens[i];
    }
    if (rc == ERR_OK)
        fprintf(out, "%s: right, %" PRId64 " tokens, the largest is %d, hash %s\n", path, dataset_about(d).tokens,
                largest, dataset_about(d).hash);
    dataset_close(d);
    free(tokens);
    return rc;
}

// --- convert ---------------------------------------------------------------------------------------------------------

typedef struct conversion {
    dataset *from;
    source_format format;
    int token_bytes;
    int64_t tokens;
    char path[IO_PATH];    // temporary
    int fd;                // of foreign formats
    shard_writer *writer;  // of ours
} conversion;

// 256 numbers: magic, version, tokens.
static err_t put_llmc_header(conversion *c) {
    uint8_t header[1024] = {0};
    if (c->tokens > INT32_MAX)
        return err_set(ERR_DATA,
                       "llm.c's header holds at most %d tokens, and there are %" PRId64
                       ": convert fewer files at a time",
                       INT32_MAX, c->tokens);
    le32_put(header, c->token_bytes == 2 ? 20240520 : 20240801);
    le32_put(header + 4, c->token_bytes == 2 ? 1 : 7);
    le32_put(header + 8, (uint32_t)c->tokens);
    return io_write(c->fd, c->path, header, sizeof header, NULL);
}

static err_t begin(conversion *c) {
    dataset_info about = dataset_about(c->from);
    c->tokens = about.tokens;
    if (about.row_tokens)
        return err_set(ERR_DATA, "answers are marked in these files, and a file of another kind would not say which");
    c->token_bytes = c->format == FORMAT_LOCKSTEP ? about.token_bytes
                     : c->format == FORMAT_RAW16 || (c->format == FORMAT_LLMC && about.token_bytes <= 2) ? 2
                                                                                                         : 4;
    if (c->tokens < 1) return err_set(ERR_DATA, "there are no tokens in these files");
    if (c->format == FORMAT_LOCKSTEP) return shard_write_open(&c->writer, c->path, c->token_bytes, c->tokens, false);
    TRY(io_open(c->path, O_WRONLY | O_CREAT | O_TRUNC, &c->fd));
    return c->format == FORMAT_LLMC ? put_llmc_header(c) : ERR_OK;
}

static err_t put_tokens(conversion *c, const int32_t *tokens, int64_t n, int64_t first, uint8_t *bytes) {
    uint32_t most = c->token_bytes == 1 ? 0xFF : c->token_bytes == 2 ? 0xFFFF : UINT32_MAX;
    for (int64_t i = 0; i < n; i++) {
        if ((uint32_t)tokens[i] > most)
            return err_set(ERR_DATA,
                           "token %" PRId64
                           " is %d, which %s can't hold: expected at most %u; raw32 and lockstep hold it",
                           first + i, tokens[i], format_names[c->format], most);
        for (int k = 0; k < c->token_bytes; k++)
            bytes[i * c->token_bytes + k] = (uint8_t)((uint32_t)tokens[i] >> 8 * k);
    }
    return c->writer ? shard_write(c->writer, bytes, n)
                     : io_write(c->fd, c->path, bytes, (size_t)(n * c->token_bytes), NULL);
}

static err_t copy_tokens(conversion *c) {
    int32_t *tokens = malloc(PIECE * sizeof *tokens);
    uint8_t *bytes = malloc(PIECE * 4);
    err_t rc = tokens && bytes ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a buffer of tokens");
    for (int64_t at = 0, n; rc == ERR_OK && at < c->tokens; at += n) {
        n = c->tokens - at < PIECE ? c->tokens - at : PIECE;
        rc = dataset_read(c->from, at, n, tokens);
        if (rc == ERR_OK) rc = put_tokens(c, tokens, n, at, bytes);
    }
    free(tokens), free(bytes);
    return rc;
}

// On disk under the temporary name, then under its own.
static err_t convert_to(conversion *c, const char *out) {
    TRY(begin(c));
    TRY(copy_tokens(c));
    TRY(c->writer ? shard_write_finish(c->writer) : io_sync(c->fd, c->path, NULL));
    return io_rename(c->path, out, NULL);
}

err_t text_tools_convert(const char *files, source_format from, source_format format, const char *to, FILE *out) {
    conversion c = {.format = format, .fd = -1};
    struct stat st;
    if (stat(to, &st) == 0)
        return err_set(ERR_USAGE, "%s is there already: expected the name of a file that can be made", to);
    TRY(io_path(c.path, "%s.tmp", to));
    TRY(dataset_open(&c.from, &(dataset_options){.files = files, .format = from}));
    err_t rc = convert_to(&c, to);
    err_record why = rc == ERR_OK ? (err_record){0} : *err_last();
    shard_write_close(c.writer);
    if (c.fd >= 0) close(c.fd);
    if (rc != ERR_OK) unlink(c.path);
    else
        fprintf(out, "%s: %s, %" PRId64 " tokens of %d byte%s\n", to, format_names[format], c.tokens, c.token_bytes,
                c.token_bytes == 1 ? "" : "s");
    dataset_close(c.from);
    return rc == ERR_OK ? ERR_OK : err_restore(&why);
}

err_t text_tools_format(const char *option, const char *word, source_format *format) {
    bool written = strcmp(option, "--to") == 0;
    for (int f = FORMAT_LOCKSTEP; word && f < (written ? FORMAT_MEGATRON : FORMATS); f++)
        if (strcmp(word, format_names[f]) == 0) return *format = (source_format)f, ERR_OK;
    return err_set(ERR_USAGE, "%s %s: expected %s", option, word ? word : "",
                   written ? "lockstep, llmc, raw16 or raw32" : "lockstep, llmc, raw16, raw32 or megatron");
}
