// data/text/shard_read.c: turns bytes of a shard into tokens.
//
// A plain block is read whole and checked the first time it is touched; after that only the bytes that are needed are
// read. A compressed block is inflated into a small cache that keeps the blocks used last.
#include "data/text/shard.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CACHE_BYTES = 1 << 25, DECODE_TOKENS = 1024 };

// Bytes of the tokens of block b.
static int64_t raw_bytes(const shard *s, int64_t b) {
    int64_t left = s->tokens - b * s->block_tokens;
    return (left < s->block_tokens ? left : s->block_tokens) * s->token_bytes;
}

// --- buffers ---------------------------------------------------------------------------------------------------------

err_t shard_io_open(shard_io *io, int64_t vocab, int retry, int shared_by, fault_list *faults) {
    reader_open(&io->reader, retry, faults);
    reader_share(&io->reader, shared_by);
    io->vocab = vocab;
    io->stage_bytes = SHARD_STAGE;
    io->stage = malloc(SHARD_STAGE);
    if (!io->stage) return err_set(ERR_INTERNAL, "no memory for a read buffer of %d bytes", SHARD_STAGE);
    return ERR_OK;
}

err_t shard_io_reserve(shard_io *io, const shard *shards, int count) {
    int64_t plain = SHARD_STAGE, packed = 0;
    for (int i = 0; i < count; i++) {
        const shard *s = &shards[i];
        if (s->format != FORMAT_LOCKSTEP) continue;
        int64_t tokens = s->tokens < s->block_tokens ? s->tokens : s->block_tokens, raw = tokens * s->token_bytes;
        if (raw > plain) plain = raw;
        for (int64_t b = 0; b < s->blocks && raw > packed; b++)
            if (s->table[b].stored < raw_bytes(s, b)) packed = raw;
    }
    uint8_t *stage = realloc(io->stage, (size_t)plain);
    if (!stage) return err_set(ERR_INTERNAL, "no memory for a read buffer of %" PRId64 " bytes", plain);
    io->stage = stage;
    io->stage_bytes = plain;
    if (!packed) return ERR_OK;
    int64_t slots = CACHE_BYTES / packed;
    io->slots = slots > SHARD_CACHE_SLOTS ? SHARD_CACHE_SLOTS : (int)slots;
    io->cache = malloc((size_t)(packed * io->slots));
    if (!io->cache || inflateInit(&io->inflater) != Z_OK)
        return err_set(ERR_INTERNAL, "no memory for %d decompressed blocks of %" PRId64 " bytes", io->slots, packed);
    io->inflating = true;
    for (int i = 0; i < io->slots; i++) io->slot[i].raw = io->cache + i * packed;
    return ERR_OK;
}

void shard_io_close(shard_io *io) {
    if (io->inflating) inflateEnd(&io->inflater);
    free(io->cache);
    free(io->stage);
    reader_close(&io->reader);
}

void shard_close(shard *s, shard_io *io) {
    reader_forget(&io->reader, &s->file);
    free(s->table);
    free(s->checked);
    free(s->stretch);
    *s = (shard){.file.fd = -1};
}

// --- blocks ----------------------------------------------------------------------------------------------------------

static err_t damaged(const shard *s, int64_t b, const char *what, uint32_t found, uint32_t expected) {
    return err_set(ERR_DATA,
                   "%s: block %" PRId64 " at offset %" PRId64 ": %s 0x%08x, expected 0x%08x. The shard is damaged; "
                   "`lockstep check CONFIG.ini` lists all such blocks.",
                   s->file.path, b, s->table[b].offset, what, found, expected);
}

// stage = stored bytes of block b, checked.
static err_t load_stored(shard *s, shard_io *io, int64_t b) {
    const shard_block *k = &s->table[b];
    TRY(reader_read(&io->reader, &s->file, k->offset, io->stage, k->stored));
    uint32_t crc = (uint32_t)crc32(0, io->stage, k->stored);
    return crc == k->crc ? ERR_OK : damaged(s, b, "checksum", crc, k->crc);
}

// raw = tokens' bytes of block b, inflated from stage, checked.
static err_t inflate_block(const shard *s, shard_io *io, int64_t b, uint8_t *raw) {
    z_stream *z = &io->inflater;
    int64_t bytes = raw_bytes(s, b);
    inflateReset(z);
    z->next_in = io->stage;
    z->avail_in = s->table[b].stored;
    z->next_out = raw;
    z->avail_out = (uInt)bytes;
    if (inflate(z, Z_FINISH) != Z_STREAM_END || z->avail_out != 0 || z->avail_in != 0)
        return err_set(ERR_DATA,
                       "%s: block %" PRId64 " at offset %" PRId64 ": the zlib stream gives %" PRId64
                       " bytes of %" PRId64 " (%s). The "
                       "shard is damaged; `lockstep check CONFIG.ini` lists all such blocks.",
                       s->file.path, b, s->table[b].offset, bytes - z->avail_out, bytes,
                       z->msg ? z->msg : "wrong length");
    uint32_t crc = (uint32_t)crc32(0, raw, (uInt)bytes);
    return crc == s->table[b].raw_crc ? ERR_OK : damaged(s, b, "checksum of the tokens", crc, s->table[b].raw_crc);
}

// *raw = inflated block b, from the cache; on a miss it replaces the least recently used block.
static err_t cached_block(shard *s, shard_io *io, int64_t b, const uint8_t **raw) {
    shard_slot *oldest = &io->slot[0];
    for (int i = 0; i < io->slots; i++) {
        shard_slot *k = &io->slot[i];
        if (k->owner == s && k->block == b) {
            k->used = ++io->clock;
            *raw = k->raw;
            return ERR_OK;
        }
        if (k->used < oldest->used) oldest = k;
    }
    oldest->owner = NULL;
    oldest->used = 0;
    TRY(load_stored(s, io, b));
    TRY(inflate_block(s, io, b, oldest->raw));
    *oldest = (shard_slot){s, b, ++io->clock, oldest->raw};
    *raw = oldest->raw;
    return ERR_OK;
}

// Where token `first` is in a file of a foreign format; *n is lowered to what follows it in one piece.
static int64_t offset_of(const shard *s, int64_t first, int64_t *n) {
    int64_t low = 0, high = s->stretches;  // stretch[low].token <= first < stretch[high].token
    if (!s->stretch) return s->data_at + first * s->token_bytes;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (s->stretch[middle].token <= first) low = middle;
        else high = middle;
    }
    int64_t left = (low + 1 < s->stretches ? s->stretch[low + 1].token : s->tokens) - first;
    if (*n > left) *n = left;
    return s->stretch[low].offset + (first - s->stretch[low].token) * s->token_bytes;
}

// *raw = the bytes of tokens first .. first+*n; *n is lowered to what is available in one piece. Valid until the next
// call.
static err_t fetch(shard *s, shard_io *io, int64_t first, int64_t *n, const uint8_t **raw) {
    int64_t width = s->token_bytes, most = io->stage_bytes / width;
    *raw = io->stage;
    if (s->format != FORMAT_LOCKSTEP) {
        if (*n > most) *n = most;
        int64_t at = offset_of(s, first, n);
        return reader_read(&io->reader, &s->file, at, io->stage, *n * width);
    }
    int64_t b = first / s->block_tokens, skip = first - b * s->block_tokens, left = raw_bytes(s, b) / width - skip;
    uint64_t bit = UINT64_C(1) << b % 64;
    if (*n > left) *n = left;
    if (s->table[b].stored < raw_bytes(s, b)) {
        TRY(cached_block(s, io, b, raw));
    } else if (s->checked[b / 64] & bit) {
        return reader_read(&io->reader, &s->file, s->table[b].offset + skip * width, io->stage, *n * width);
    } else {
        TRY(load_stored(s, io, b));
        s->checked[b / 64] |= bit;
    }
    *raw += skip * width;
    return ERR_OK;
}

// --- tokens ----------------------------------------------------------------------------------------------------------

static err_t bad_token(const shard *s, const shard_io *io, int64_t index, int64_t token) {
    bool ours = s->format == FORMAT_LOCKSTEP;
    int64_t b = ours ? index / s->block_tokens : 0, inside = index - b * (ours ? s->block_tokens : 0), one = 1;
    int64_t offset = ours ? s->table[b].offset : offset_of(s, index, &one);
    if (ours && s->table[b].stored == raw_bytes(s, b)) offset += inside * s->token_bytes;
    return err_set(ERR_DATA,
                   "%s: token %" PRId64 " (%s offset %" PRId64 ") is %" PRId64 ", expected %sless than %" PRId64
                   ": made with another tokenizer, "
                   "or [model] vocab or [data] format is wrong",
                   s->file.path, index, ours ? "block at" : "at", offset, token, token < 0 ? "at least 0 and " : "",
                   io->vocab ? io->vocab : INT32_MAX);
}

// The number that token i is in these bytes, negative ones too.
static int64_t number_at(const shard *s, const uint8_t *raw, int64_t i) {
    switch (s->token_bytes) {
    case 1: return s->is_signed ? (int8_t)raw[i] : raw[i];
    case 2: return s->is_signed ? (int16_t)le16_get(raw + 2 * i) : (int64_t)le16_get(raw + 2 * i);
    case 4: return s->is_signed ? (int32_t)le32_get(raw + 4 * i) : (int64_t)le32_get(raw + 4 * i);
    default: return (int64_t)le64_get(raw + 8 * i);
    }
}

// The marks of n tokens go from the tokens to marks, unless it is NULL. A token of 2 bytes is not negative yet.
static void take_marks(const shard *s, int64_t n, int32_t *tokens, uint8_t *marks) {
    uint32_t answer = s->row_tokens ? UINT32_C(1) << (8 * s->token_bytes - 1) : 0,
             begin = s->documents ? answer / 2 : 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t token = (uint32_t)tokens[i];
        if (marks) marks[i] = (uint8_t)((token & answer ? MARK_ANSWER : 0) | (token & begin ? MARK_BEGIN : 0));
        tokens[i] = (int32_t)(token & ~(answer | begin));
    }
}

// out = n tokens from their bytes; `first` is the index of the first of them; marks as in shard_read. A number that no
// int32 holds becomes -1 first. Seen as unsigned, it and all negative ones exceed any limit.
static err_t decode(const shard *s, const shard_io *io, const uint8_t *raw, int64_t first, int64_t n, int32_t *out,
                    uint8_t *marks) {
    uint32_t largest = 0, limit = io->vocab > 0 && io->vocab <= INT32_MAX ? (uint32_t)io->vocab : INT32_MAX;
    switch (s->is_signed ? -s->token_bytes : s->token_bytes) {
    case 1:
        for (int64_t i = 0; i < n; i++) out[i] = raw[i];
        break;
    case 2:
        for (int64_t i = 0; i < n; i++) out[i] = (int32_t)le16_get(raw + 2 * i);
        break;
    case 4:
    case -4:
        for (int64_t i = 0; i < n; i++) out[i] = (int32_t)le32_get(raw + 4 * i);
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            int64_t number = number_at(s, raw, i);
            out[i] = number >= 0 && number <= INT32_MAX ? (int32_t)number : -1;
        }
        break;
    }
    if (s->row_tokens || marks) take_marks(s, n, out, marks);
    for (int64_t i = 0; i < n; i++) largest = (uint32_t)out[i] > largest ? (uint32_t)out[i] : largest;
    if (largest < limit) return ERR_OK;
    int64_t i = 0;
    while ((uint32_t)out[i] < limit) i++;
    return bad_token(s, io, first + i, s->row_tokens ? out[i] : number_at(s, raw, i));
}

err_t shard_read(shard *s, shard_io *io, int64_t first, int64_t n, int32_t *out, uint8_t *marks) {
    while (n > 0) {
        const uint8_t *raw;
        int64_t take = n;
        TRY(fetch(s, io, first, &take, &raw));
        TRY(decode(s, io, raw, first, take, out, marks));
        first += take;
        out += take;
        if (marks) marks += take;
        n -= take;
    }
    return ERR_OK;
}

// Verifies tokens first .. first+n, read from the disk and not from our cache.
static err_t verify_range(shard *s, shard_io *io, int64_t first, int64_t n, uint32_t *crc) {
    int32_t tokens[DECODE_TOKENS];
    const uint8_t *raw;
    if (s->format == FORMAT_LOCKSTEP) {  // one block
        int64_t b = first / s->block_tokens;
        s->checked[b / 64] &= ~(UINT64_C(1) << b % 64);
        for (int i = 0; i < io->slots; i++)
            if (io->slot[i].owner == s && io->slot[i].block == b) io->slot[i].owner = NULL;
    }
    for (int64_t some; n > 0; first += some, n -= some) {
        some = n;
        TRY(fetch(s, io, first, &some, &raw));
        *crc = (uint32_t)crc32(*crc, raw, (uInt)(some * s->token_bytes));
        for (int64_t i = 0; i < some; i += DECODE_TOKENS) {
            int64_t few = some - i < DECODE_TOKENS ? some - i : DECODE_TOKENS;
            TRY(decode(s, io, raw + i * s->token_bytes, first + i, few, tokens, NULL));
        }
    }
    return ERR_OK;
}

void shard_verify(shard *s, shard_io *io, void (*report)(void *ctx, const char *text), void *ctx, int64_t *faults) {
    bool ours = s->format == FORMAT_LOCKSTEP;
    int64_t piece = ours ? s->block_tokens : io->stage_bytes / s->token_bytes, before = *faults;
    uint32_t crc = 0;
    for (int64_t first = 0; first < s->tokens; first += piece) {
        int64_t n = s->tokens - first < piece ? s->tokens - first : piece;
        if (verify_range(s, io, first, n, &crc) == ERR_OK) continue;
        report(ctx, err_last()->text);
        ++*faults;
    }
    if (ours || *faults > before || crc == s->crc) return;
    err_set(ERR_DATA,
            "%s: offset %" PRId64
            ": checksum of all tokens 0x%08x, expected 0x%08x: the file has changed since it was opened",
            s->file.path, s->stretch ? s->stretch[0].offset : s->data_at, crc, s->crc);
    report(ctx, err_last()->text);
    ++*faults;
}
