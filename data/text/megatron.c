// data/text/megatron.c: see data/text/megatron.h. NAME.bin holds tokens and nothing else, NAME.idx is the index. All
// numbers are little-endian (megatron/core/datasets/indexed_dataset.py of NVIDIA/Megatron-LM):
//
//      0  magic      9 bytes  "MMIDIDX", 0, 0
//      9  version    u64      1
//     17  type       u8       1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 6 float64, 7 float32, 8 uint16
//     18  sequences  u64      S
//     26  documents  u64      D, entries of the last table
//     34  lengths    S int32  tokens of each sequence
//         pointers   S int64  offset of each sequence in NAME.bin
//         documents  D int64  number of the sequence with which each document begins, and S at the end; not used here
//         modes      S int8   multimodal data only
//
// The stream is the tokens of all sequences, in the order of the index. Sequences that follow each other in the file
// too, which is what Megatron-LM writes, become one stretch. No number is used before it is checked against the sizes
// of both files.
#include "data/text/megatron.h"

#include "base/io.h"
#include "base/le.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { HEADER = 34, MAGIC = 9, VERSION_AT = 9, TYPE_AT = 17, SEQUENCES_AT = 18, DOCUMENTS_AT = 26 };

static const uint8_t magic[MAGIC] = "MMIDIDX\0";

static const struct {
    const char *name;
    int bytes;  // of a token; 0: not whole numbers
    bool is_signed;
} types[] = {{"", 0, 0},         {"uint8", 1, false}, {"int8", 1, true}, {"int16", 2, true},  {"int32", 4, true},
             {"int64", 8, true}, {"float64", 0, 0},   {"float32", 0, 0}, {"uint16", 2, false}};
enum { TYPES = sizeof types / sizeof *types };

typedef struct index_file {
    reader *reader;
    data_file file;
    const data_file *tokens;
    uint8_t *stage;
    int64_t sequences;
    int64_t end, room;  // offset after the last stretch; stretches that fit
    token_index of;     // what is known so far
} index_file;

// dst = the name with .idx in the place of .bin.
static err_t name_index(char dst[IO_PATH], const char *path) {
    size_t n = strlen(path);
    if (n < 4 || strcmp(path + n - 4, ".bin") != 0)
        return err_set(
            ERR_DATA,
            "%s: data of Megatron-LM is NAME.bin, with its index in NAME.idx beside it: name the file that ends in .bin",
            path);
    return io_path(dst, "%.*s.idx", (int)n - 4, path);
}

err_t megatron_beside(reader *r, const char *path, bool *found) {
    char name[IO_PATH];
    struct stat st;
    uint8_t head[MAGIC];
    data_file f = {0};
    *found = false;
    if (name_index(name, path) != ERR_OK || stat(name, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < MAGIC)
        return ERR_OK;
    err_t rc = reader_find(&f, name, "an index");
    if (rc == ERR_OK) rc = reader_read(r, &f, 0, head, MAGIC);
    reader_forget(r, &f);
    if (rc != ERR_OK)
        return err_prefix("%s: is the file beside it an index of Megatron-LM? [data] format can say what this is",
                          path);
    *found = memcmp(head, magic, MAGIC) == 0;
    return ERR_OK;
}

static err_t check_type(index_file *x, int type) {
    const char *path = x->file.path;
    if (type < 1 || type >= TYPES)
        return err_set(ERR_DATA, "%s: offset %d: type %d, expected 1 to %d", path, TYPE_AT, type, TYPES - 1);
    if (!types[type].bytes)
        return err_set(ERR_DATA, "%s: offset %d: type %d is %s, expected whole numbers: these are not tokens", path,
                       TYPE_AT, type, types[type].name);
    x->of.token_bytes = types[type].bytes;
    x->of.is_signed = types[type].is_signed;
    return ERR_OK;
}

// The sizes of all tables, against that of the file.
static err_t check_sizes(index_file *x, uint64_t sequences, uint64_t documents) {
    uint64_t left = (uint64_t)x->file.size - HEADER;
    const char *path = x->file.path;
    if (sequences < 1) return err_set(ERR_DATA, "%s: offset %d: no sequence, expected at least 1", path, SEQUENCES_AT);
    if (sequences > left / 12)
        return err_set(ERR_DATA,
                       "%s: has %" PRId64 " bytes, too few for the %" PRIu64
                       " sequences that offset %d gives: the file is truncated",
                       path, x->file.size, sequences, SEQUENCES_AT);
    left -= 12 * sequences;
    if (documents > left / 8)
        return err_set(ERR_DATA,
                       "%s: has %" PRId64 " bytes, too few for the %" PRIu64
                       " documents that offset %d gives: the file is truncated",
                       path, x->file.size, documents, DOCUMENTS_AT);
    left -= 8 * documents;
    if (left == sequences)
        return err_set(ERR_DATA,
                       "%s: offset %" PRId64
                       ": the index gives each sequence a mode, as that of multimodal data does: expected text",
                       path, x->file.size - (int64_t)left);
    if (left)
        return err_set(ERR_DATA,
                       "%s: has %" PRId64 " bytes, expected %" PRId64 " for %" PRIu64 " sequences and %" PRIu64
                       " documents: the file is too long",
                       path, x->file.size, x->file.size - (int64_t)left, sequences, documents);
    x->sequences = (int64_t)sequences;
    return ERR_OK;
}

static err_t check_header(index_file *x) {
    uint8_t h[HEADER];
    const char *path = x->file.path;
    if (x->file.size < HEADER)
        return err_set(ERR_DATA,
                       "%s: ends at offset %" PRId64 ", expected the %d bytes of a header: the file is truncated", path,
                       x->file.size, HEADER);
    TRY(reader_read(x->reader, &x->file, 0, h, HEADER));
    if (memcmp(h, magic, MAGIC) != 0)
        return err_set(ERR_DATA, "%s: offset 0: not the magic of an index of Megatron-LM, MMIDIDX", path);
    if (le64_get(h + VERSION_AT) != 1)
        return err_set(ERR_DATA, "%s: offset %d: version %" PRIu64 ", expected 1", path, VERSION_AT,
                       le64_get(h + VERSION_AT));
    TRY(check_type(x, h[TYPE_AT]));
    return check_sizes(x, le64_get(h + SEQUENCES_AT), le64_get(h + DOCUMENTS_AT));
}

// One more sequence: part of the last stretch, or a stretch of its own.
static err_t add_sequence(index_file *x, int64_t at, int64_t tokens) {
    token_index *k = &x->of;
    if (k->stretches == 0 || at != x->end) {
        if (k->stretches == x->room) {
            x->room = x->room ? 2 * x->room : 1;
            token_stretch *more = realloc(k->stretch, (size_t)x->room * sizeof *more);
            if (!more)
                return err_set(ERR_INTERNAL, "%s: no memory for %" PRId64 " stretches of tokens", x->file.path,
                               x->room);
            k->stretch = more;
        }
        k->stretch[k->stretches++] = (token_stretch){.token = k->tokens, .offset = at};
    }
    k->tokens += tokens;
    x->end = at + tokens * k->token_bytes;
    return ERR_OK;
}

// n sequences from number `first` on: their lengths and pointers.
static err_t read_piece(index_file *x, int64_t first, int64_t n) {
    uint8_t *lengths = x->stage, *pointers = x->stage + 4 * MEGATRON_PIECE;
    const data_file *of = x->tokens;
    int bytes = x->of.token_bytes;
    TRY(reader_read(x->reader, &x->file, HEADER + 4 * first, lengths, 4 * n));
    TRY(reader_read(x->reader, &x->file, HEADER + 4 * x->sequences + 8 * first, pointers, 8 * n));
    for (int64_t i = 0; i < n; i++) {
        int64_t tokens = (int32_t)le32_get(lengths + 4 * i), at = (int64_t)le64_get(pointers + 8 * i);
        if (tokens < 0 || at < 0 || at > of->size || tokens > (of->size - at) / bytes)
            return err_set(ERR_DATA,
                           "%s: sequence %" PRId64 " (offsets %" PRId64 " and %" PRId64 ") has %" PRId64
                           " tokens of %d bytes from byte %" PRId64 " on, expected inside the %" PRId64
                           " bytes of %s: one of the two files is truncated, or another one's",
                           x->file.path, first + i, HEADER + 4 * (first + i),
                           HEADER + 4 * x->sequences + 8 * (first + i), tokens, bytes, at, of->size, of->path);
        if (tokens > (INT64_C(1) << 58) - x->of.tokens)
            return err_set(ERR_DATA, "%s: more than 2^58 tokens in all", x->file.path);
        if (tokens > 0) TRY(add_sequence(x, at, tokens));
    }
    return ERR_OK;
}

static err_t read_index(index_file *x) {
    TRY(check_header(x));
    for (int64_t first = 0, n; first < x->sequences; first += n) {
        n = x->sequences - first < MEGATRON_PIECE ? x->sequences - first : MEGATRON_PIECE;
        TRY(read_piece(x, first, n));
    }
    if (x->of.tokens == 0)
        return err_set(ERR_DATA, "%s: all %" PRId64 " sequences are empty, expected tokens", x->file.path,
                       x->sequences);
    return ERR_OK;
}

err_t megatron_open(token_index *out, reader *r, const data_file *tokens, uint8_t *stage) {
    char name[IO_PATH];
    index_file x = {.reader = r, .tokens = tokens, .stage = stage};
    *out = (token_index){0};
    TRY(name_index(name, tokens->path));
    err_t rc = reader_find(&x.file, name, "an index of Megatron-LM");
    if (rc != ERR_OK) err_prefix("%s: its index", tokens->path);
    else rc = read_index(&x);
    reader_forget(r, &x.file);
    if (rc == ERR_OK) *out = x.of;
    else free(x.of.stretch);
    return rc;
}
