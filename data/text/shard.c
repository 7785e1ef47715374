// data/text/shard.c: opens a file of tokens, finds its format and checks it. No number of a header is used before it is
// checked against the size of the file; after shard_open() every offset and length is known to be inside the file.
#include "data/text/shard.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LLMC_HEADER = 1024,
    LLMC_GPT2 = 20240520,
    LLMC_LLAMA3 = 20240801,
    LLMC_EVAL = 20240522,
    SNIFF = 512,
    TEXT_LEAST = 64
};

const uint8_t shard_magic[SHARD_MAGIC_BYTES] = {0x93, 'L', 'S', 'H', 'A', 'R', 'D', 0x0a};

static const struct signature {
    uint8_t size;
    const char *bytes, *what;
} foreign[] = {
    {8, "\x93LIMAGE\n", "a shard of images"},
    {4, "\x89PNG", "a PNG image"},
    {3, "\xff\xd8\xff", "a JPEG image"},
    {2, "\x1f\x8b", "gzip data"},
    {4, "PK\3\4", "a zip archive"},
    {4, "\x28\xb5\x2f\xfd", "zstd data"},
    {6,
     "\xfd"
     "7zXZ",
     "xz data"},
    {3, "BZh", "bzip2 data"},
    {4,
     "\x7f"
     "ELF",
     "a program"},
    {4, "%PDF", "a PDF document"},
    {6, "\x93NUMPY", "a NumPy array"},
    {8, "\x89HDF\r\n\x1a\n", "HDF5 data"},
    {4, "PAR1", "Parquet data"},
    {6, "ARROW1", "Arrow data"},
    {4, "RIFF", "a RIFF file"},
    {4, "GGUF", "a GGUF model"},
    {16, "SQLite format 3", "a database"},
    {9, "MMIDIDX\0", "the index of Megatron-LM's data (name the .bin beside it)"},
};

// For a file without a known magic: what it is if it certainly holds no tokens; NULL if it may hold tokens.
static const char *looks_like(const uint8_t *head, int64_t n) {
    if (n >= 4 && le32_get(head) == LLMC_EVAL) return "an llm.c evaluation set";
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (n >= foreign[i].size && memcmp(head, foreign[i].bytes, foreign[i].size) == 0) return foreign[i].what;
    if (n < TEXT_LEAST) return NULL;
    for (int64_t i = 0; i < n; i++)
        if ((head[i] < 0x20 || head[i] > 0x7e) && !(head[i] >= '\t' && head[i] <= '\r')) return NULL;
    return "text (`lockstep pack` turns text into shards)";
}

// A lockstep shard with a damaged magic must not be read as a raw16 file: five of the eight bytes are enough.
static bool is_ours(const uint8_t *head, int64_t n) {
    int64_t m = n < SHARD_MAGIC_BYTES ? n : SHARD_MAGIC_BYTES, same = 0;
    for (int64_t i = 0; i < m; i++) same += head[i] == shard_magic[i];
    return same >= (m < SHARD_MAGIC_BYTES ? m : 5);
}

static err_t find_format(shard *s, shard_io *io, source_format wanted) {
    uint8_t head[SNIFF];
    int64_t n = s->file.size < SNIFF ? s->file.size : SNIFF;
    s->format = wanted;
    TRY(reader_read(&io->reader, &s->file, 0, head, n));  // a file that can't be read fails here, whatever its format
    if (wanted != FORMAT_AUTO) return ERR_OK;
    bool has_index = false;
    s->format = is_ours(head, n)                                                           ? FORMAT_LOCKSTEP
                : n >= 4 && (le32_get(head) == LLMC_GPT2 || le32_get(head) == LLMC_LLAMA3) ? FORMAT_LLMC
                                                                                           : FORMAT_RAW16;
    if (s->format != FORMAT_RAW16) return ERR_OK;
    TRY(megatron_beside(&io->reader, s->file.path, &has_index));
    if (has_index) s->format = FORMAT_MEGATRON;
    else if (looks_like(head, n))
        return err_set(ERR_DATA,
                       "%s: offset 0: looks like %s, expected a lockstep or llm.c shard, or raw 16-bit tokens. If that "
                       "is what it is, say so with [data] format",
                       s->file.path, looks_like(head, n));
    return ERR_OK;
}

// --- foreign formats -------------------------------------------------------------------------------------------------

// CRC of n zero bytes, by doubling.
static uint32_t crc_of_zeros(int64_t n) {
    uint8_t zero = 0;
    uint32_t crc = 0, unit = (uint32_t)crc32(0, &zero, 1);
    for (int64_t length = 1; n; n >>= 1, length *= 2) {
        if (n & 1) crc = (uint32_t)crc32_combine(crc, unit, length);
        if (n > 1) unit = (uint32_t)crc32_combine(unit, unit, length);
    }
    return crc;
}

// Where the next data (SEEK_DATA) or hole (SEEK_HOLE) from `at` on is, at most `end`. Without support by the file
// system: no holes.
static int64_t next_extent(const shard *s, int64_t at, int64_t end, int whence) {
    off_t found = lseek(s->file.fd, at, whence);
    if (found < 0) return errno == ENXIO || whence == SEEK_HOLE ? end : at;
    return found < at ? at : found < end ? found : end;
}

static err_t crc_of_range(shard *s, shard_io *io, int64_t at, int64_t end) {
    while (at < end) {
        int64_t data = next_extent(s, at, end, SEEK_DATA);
        if (data > at) s->crc = (uint32_t)crc32_combine(s->crc, crc_of_zeros(data - at), data - at);
        int64_t hole = data < end ? next_extent(s, data, end, SEEK_HOLE) : end;
        if (hole == data) hole = end;
        for (at = data; at < hole;) {
            int64_t n = hole - at < io->stage_bytes ? hole - at : io->stage_bytes;
            TRY(reader_read(&io->reader, &s->file, at, io->stage, n));
            s->crc = (uint32_t)crc32(s->crc, io->stage, (uInt)n);
            at += n;
        }
    }
    return ERR_OK;
}

static err_t open_raw(shard *s, shard_io *io, int token_bytes) {
    s->token_bytes = token_bytes;
    s->tokens = s->file.size / token_bytes;
    if (s->file.size % token_bytes)
        return err_set(ERR_DATA,
                       "%s: has %" PRId64 " bytes, expected a multiple of %d: the token at offset %" PRId64
                       " is cut short",
                       s->file.path, s->file.size, token_bytes, s->tokens * token_bytes);
    return crc_of_range(s, io, 0, s->file.size);
}

static err_t open_megatron(shard *s, shard_io *io) {
    token_index x;
    TRY(megatron_open(&x, &io->reader, &s->file, io->stage));
    s->token_bytes = x.token_bytes, s->is_signed = x.is_signed, s->tokens = x.tokens;
    s->stretch = x.stretch, s->stretches = x.stretches;
    for (int64_t i = 0; i < s->stretches; i++) {
        int64_t end = i + 1 < s->stretches ? s->stretch[i + 1].token : s->tokens, at = s->stretch[i].offset;
        TRY(crc_of_range(s, io, at, at + (end - s->stretch[i].token) * s->token_bytes));
    }
    return ERR_OK;
}

static err_t open_llmc(shard *s, shard_io *io) {
    uint8_t head[12];
    if (s->file.size < LLMC_HEADER)
        return err_set(
            ERR_DATA, "%s: ends at offset %" PRId64 ", expected the %d bytes of an llm.c header: the file is truncated",
            s->file.path, s->file.size, LLMC_HEADER);
    TRY(reader_read(&io->reader, &s->file, 0, head, sizeof head));
    uint32_t magic = le32_get(head), version = le32_get(head + 4), count = le32_get(head + 8);
    if (magic != LLMC_GPT2 && magic != LLMC_LLAMA3)
        return err_set(ERR_DATA,
                       "%s: offset 0: magic %u, expected %d (16-bit tokens) or %d (32-bit tokens) of an llm.c shard",
                       s->file.path, magic, LLMC_GPT2, LLMC_LLAMA3);
    uint32_t known = magic == LLMC_GPT2 ? 1 : 7;
    if (version != known)
        return err_set(ERR_DATA, "%s: offset 4: llm.c shard version %u, expected %u with magic %u", s->file.path,
                       version, known, magic);
    s->token_bytes = magic == LLMC_GPT2 ? 2 : 4;
    s->data_at = LLMC_HEADER;
    s->tokens = count;
    int64_t end = LLMC_HEADER + s->tokens * s->token_bytes;
    if (count == 0 || count > INT32_MAX)
        return err_set(ERR_DATA, "%s: offset 8: %" PRIu32 " tokens, expected 1 to %d", s->file.path, count, INT32_MAX);
    if (end != s->file.size)
        return err_set(ERR_DATA,
                       "%s: has %" PRId64 " bytes, expected %" PRId64
                       " for the %u tokens that the header at offset 8 gives "
                       "of: the file is %s",
                       s->file.path, s->file.size, end, count, s->file.size < end ? "truncated" : "too long");
    return crc_of_range(s, io, LLMC_HEADER, end);
}

// --- the lockstep format ---------------------------------------------------------------------------------------------

static err_t wrong(const shard *s, int offset, const char *what, uint64_t found, const char *expected) {
    return err_set(ERR_DATA, "%s: offset %d: %s is %" PRIu64 ", expected %s", s->file.path, offset, what, found,
                   expected);
}

// A shard without marks has no rows. One with marks has whole ones: a file is cut between samples.
static err_t check_rows(shard *s, const uint8_t *h) {
    uint32_t row = le32_get(h + 52), width = le32_get(h + 12);
    uint64_t tokens = le64_get(h + 24);
    bool marks = le32_get(h + 16) & SHARD_MARKS;
    if (le32_get(h + 56) != 0) return wrong(s, 56, "reserved field", le32_get(h + 56), "0");
    if (!marks && row != 0) return wrong(s, 52, "tokens of a row", row, "0, where no answers are marked");
    if (!marks) return ERR_OK;
    if (width == 1) return wrong(s, 12, "bytes per token", width, "2 or 4, where answers are marked");
    bool numbers = le32_get(h + 16) & SHARD_NUMBERS;
    if (numbers && width != 4) return wrong(s, 12, "bytes per token", width, "4, where labels are numbers");
    if (row < 2 || row > SHARD_ROW_MAX) return wrong(s, 52, "tokens of a row", row, "2 to 16777216");
    if (tokens % row) return wrong(s, 24, "token count", tokens, "a multiple of the tokens of a row");
    s->row_tokens = row, s->labels = le32_get(h + 16) & SHARD_LABELS, s->numbers = numbers;
    s->documents = le32_get(h + 16) & SHARD_DOCUMENTS;
    return ERR_OK;
}

// Labels are in marked rows, numbers are labels, and a row with a label is one text.
static bool known_flags(uint32_t flags) {
    static const uint32_t rows[] = {0, SHARD_MARKS, SHARD_MARKS | SHARD_LABELS,
                                    SHARD_MARKS | SHARD_LABELS | SHARD_NUMBERS, SHARD_MARKS | SHARD_DOCUMENTS};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if ((flags & ~(uint32_t)SHARD_ZLIB) == rows[k]) return true;
    return false;
}

// Checks that the header agrees with itself and with the size of the file. Every product stays below 2^63, because
// tokens <= 2^58 is checked first.
static err_t check_header(shard *s, const uint8_t *h, bool *packed) {
    uint32_t found = le32_get(h + 60), crc = (uint32_t)crc32(0, h, 60);
    if (memcmp(h, shard_magic, SHARD_MAGIC_BYTES) != 0)
        return err_set(ERR_DATA, "%s: offset 0: not the magic of a lockstep shard: a damaged header, or another format",
                       s->file.path);
    if (found != crc)
        return err_set(ERR_DATA,
                       "%s: offset 60: header checksum 0x%08x, expected 0x%08x. The shard is damaged; pack it again",
                       s->file.path, found, crc);
    uint32_t version = le32_get(h + 8), width = le32_get(h + 12), flags = le32_get(h + 16), block = le32_get(h + 20);
    uint64_t tokens = le64_get(h + 24), blocks = le64_get(h + 32), bytes = le64_get(h + 40);
    if (version != SHARD_VERSION) return wrong(s, 8, "shard version", version, "1; a newer lockstep reads it");
    if (width != 1 && width != 2 && width != 4) return wrong(s, 12, "bytes per token", width, "1, 2 or 4");
    if (!known_flags(flags)) return wrong(s, 16, "flags", flags, "0 to 3, 6, 7, 14, 15, 18 or 19");
    if (block < 1 || block > SHARD_BLOCK_MAX / width)
        return wrong(s, 20, "tokens per block", block, "1 to 4 MiB of tokens");
    if (tokens < 1 || tokens > UINT64_C(1) << 58) return wrong(s, 24, "token count", tokens, "1 to 2^58");
    if (blocks != (tokens - 1) / block + 1)
        return wrong(s, 32, "block count", blocks, "tokens / block tokens, rounded up");
    TRY(check_rows(s, h));
    if (bytes != (uint64_t)s->file.size)
        return err_set(
            ERR_DATA, "%s: has %" PRId64 " bytes, expected %" PRIu64 " as its header says at offset 40: the file is %s",
            s->file.path, s->file.size, bytes, (uint64_t)s->file.size < bytes ? "truncated" : "too long");
    if (blocks > (uint64_t)(s->file.size - SHARD_HEADER) / SHARD_ENTRY)
        return err_set(ERR_DATA, "%s: has %" PRId64 " bytes, too few for the table of %" PRIu64 " blocks at offset %d",
                       s->file.path, s->file.size, blocks, SHARD_HEADER);
    s->token_bytes = (int)width;
    s->tokens = (int64_t)tokens;
    s->block_tokens = block;
    s->blocks = (int64_t)blocks;
    *packed = flags & SHARD_ZLIB;
    return ERR_OK;
}

// Decodes the table, and checks that the blocks follow each other without a gap up to the end of the file.
static err_t check_table(shard *s, const uint8_t *bytes, bool packed) {
    int64_t at = SHARD_HEADER + s->blocks * SHARD_ENTRY;
    for (int64_t b = 0; b < s->blocks; b++, bytes += SHARD_ENTRY) {
        shard_block *k = &s->table[b];
        int64_t tokens = b < s->blocks - 1 ? s->block_tokens : s->tokens - b * s->block_tokens,
                raw = tokens * s->token_bytes;
        *k = (shard_block){at, le32_get(bytes + 8), le32_get(bytes + 12), le32_get(bytes + 16)};
        bool same = k->stored == raw;
        bool in_place = le64_get(bytes) == (uint64_t)at && k->stored >= 1 && k->stored <= s->file.size - at;
        if (!in_place || k->stored > raw || (!packed && !same) || (same && k->crc != k->raw_crc))
            return err_set(ERR_DATA,
                           "%s: offset %" PRId64 ": the table entry of block %" PRId64 " says offset %" PRIu64
                           ", %u bytes; expected "
                           "offset %" PRId64 ", %s%" PRId64 " bytes. Pack it again",
                           s->file.path, SHARD_HEADER + b * SHARD_ENTRY, b, le64_get(bytes), k->stored, at,
                           packed ? "1 to " : "", raw);
        at += k->stored;
    }
    if (at != s->file.size)
        return err_set(ERR_DATA, "%s: has %" PRId64 " bytes, but its last block ends at offset %" PRId64, s->file.path,
                       s->file.size, at);
    return ERR_OK;
}

static err_t open_lockstep(shard *s, shard_io *io) {
    uint8_t header[SHARD_HEADER];
    bool packed = false;
    if (s->file.size < SHARD_HEADER)
        return err_set(ERR_DATA,
                       "%s: ends at offset %" PRId64 ", expected the %d bytes of a shard header: the file is truncated",
                       s->file.path, s->file.size, SHARD_HEADER);
    TRY(reader_read(&io->reader, &s->file, 0, header, SHARD_HEADER));
    TRY(check_header(s, header, &packed));
    int64_t bytes = s->blocks * SHARD_ENTRY;
    s->table = malloc((size_t)s->blocks * sizeof *s->table);
    s->checked = calloc((size_t)(s->blocks + 63) / 64, sizeof *s->checked);
    uint8_t *table = malloc((size_t)bytes);
    err_t rc = ERR_OK;
    if (!s->table || !s->checked || !table)
        TRY_GOTO(err_set(ERR_INTERNAL, "%s: no memory for a table of %" PRId64 " blocks", s->file.path, s->blocks),
                 out);
    TRY_GOTO(reader_read(&io->reader, &s->file, SHARD_HEADER, table, bytes), out);
    uint32_t crc = (uint32_t)crc32_z(0, table, (size_t)bytes), expected = le32_get(header + 48);
    if (crc != expected)
        TRY_GOTO(err_set(ERR_DATA,
                         "%s: block table at offset %d: checksum 0x%08x, expected 0x%08x. The shard is damaged; pack "
                         "it again",
                         s->file.path, SHARD_HEADER, crc, expected),
                 out);
    TRY_GOTO(check_table(s, table, packed), out);
out:
    free(table);
    return rc;
}

err_t shard_open(shard *s, shard_io *io, const char *path, source_format format) {
    TRY(reader_find(&s->file, path, "a shard"));
    TRY(find_format(s, io, format));
    switch (s->format) {
    case FORMAT_LOCKSTEP: return open_lockstep(s, io);
    case FORMAT_LLMC: return open_llmc(s, io);
    case FORMAT_RAW16: return open_raw(s, io, 2);
    case FORMAT_RAW32: return open_raw(s, io, 4);
    case FORMAT_MEGATRON: return open_megatron(s, io);
    case FORMAT_AUTO:
    case FORMAT_IDX:
    case FORMAT_IMAGES:
    case FORMAT_CLICKS: break;
    }
    return err_set(ERR_INTERNAL, "%s: %d is not the format of a shard", path, (int)format);
}
