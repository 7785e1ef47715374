// data/tokenizer/stream.c: reads about a megabyte, cuts it where both sides have the tokens that they would have
// together, encodes what stands before the cut, and goes on.
#include "data/tokenizer/stream.h"
#include "data/tokenizer/room.h"
#include "data/tokenizer/train.h"

#include <errno.h>
#include <string.h>

enum { PIECE = 1 << 20 };

static err_t read_some(FILE *in, bytes *text, int64_t want) {
    ROOM_FOR(text, want);
    text->n += (int64_t)fread(text->at + text->n, 1, (size_t)(want - text->n), in);
    return ferror(in) ? err_set(ERR_IO, "standard input: %s", strerror(errno)) : ERR_OK;
}

static err_t put(FILE *out, const void *text, size_t n) {
    if (n == 0 || fwrite(text, 1, n, out) == n) return ERR_OK;
    return err_set(ERR_IO, "standard output: %s", strerror(errno));
}

static err_t put_ids(FILE *out, const int32_t *ids, int64_t n) {
    char line[16];
    for (int64_t i = 0; i < n; i++) {
        char *at = line + sizeof line;
        int32_t id = ids[i];
        *--at = '\n';
        do *--at = (char)('0' + id % 10);
        while ((id /= 10) > 0);
        TRY(put(out, at, (size_t)(line + sizeof line - at)));
    }
    return ERR_OK;
}

// The text up to n, which goes from the buffer.
static err_t encode_some(encoder *e, bytes *text, int64_t n, int how, FILE *out) {
    const int32_t *ids;
    int64_t count;
    TRY(encoder_encode(e, text->at, n, how, &ids, &count));
    TRY(put_ids(out, ids, count));
    if (text->n > n) memmove(text->at, text->at + n, (size_t)(text->n - n));
    text->n -= n;
    return ERR_OK;
}

static err_t encode_all(encoder *e, const tokenizer *t, int how, bytes *text, FILE *in, FILE *out) {
    int64_t want = PIECE;
    int begin = how & ENCODE_BEGIN, special = how & ENCODE_SPECIAL;
    for (;;) {
        TRY(read_some(in, text, want));
        if (text->n < want) return encode_some(e, text, text->n, special | begin | (how & ENCODE_END), out);
        int64_t cut = tokenizer_cut(t, text->at, text->n, how);
        if (cut == 0 && want == TOKENIZER_UNCUT)
            return err_set(ERR_DATA, "standard input: %d MiB without a place where tokens certainly end",
                           TOKENIZER_UNCUT >> 20);
        if (cut == 0) {
            want = want < TOKENIZER_UNCUT / 2 ? 2 * want : TOKENIZER_UNCUT;
            continue;
        }
        TRY(encode_some(e, text, cut, special | begin, out));
        begin = 0;
        want = text->n < PIECE / 2 ? PIECE : 2 * text->n < TOKENIZER_UNCUT ? 2 * text->n : TOKENIZER_UNCUT;
    }
}

err_t tokenize_stream(const tokenizer *t, int how, FILE *in, FILE *out) {
    encoder *e;
    bytes text = {0};
    TRY(encoder_open(&e, t));
    err_t rc = encode_all(e, t, how, &text, in, out);
    free(text.at);
    encoder_close(e);
    return rc;
}

static bool is_space(int c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

err_t detokenize_stream(const tokenizer *t, FILE *in, FILE *out) {
    const uint8_t *text;
    int64_t n, count = 0;
    for (int c = getc(in); c != EOF;) {
        int64_t id = 0;
        int digits = 0;
        if (is_space(c)) {
            c = getc(in);
            continue;
        }
        for (; c >= '0' && c <= '9' && digits < 10; digits++, c = getc(in)) id = 10 * id + c - '0';
        count++;
        if (digits == 0 || (c != EOF && !is_space(c)))
            return err_set(ERR_DATA, "standard input: word %lld is not a token's id, expected whole numbers",
                           (long long)count);
        int32_t token = id > INT32_MAX ? INT32_MAX : (int32_t)id;
        err_t rc = count == 1 ? tokenizer_first_piece(t, token, &text, &n) : tokenizer_piece(t, token, &text, &n);
        if (rc != ERR_OK) return err_prefix("standard input: word %lld", (long long)count);
        TRY(put(out, text, (size_t)n));
    }
    return ferror(in) ? err_set(ERR_IO, "standard input: %s", strerror(errno)) : ERR_OK;
}

// The lines that are whole go from the buffer, or at the end of the input all of it.
static err_t feed_lines(bpe_trainer *b, bytes *text, bool ends) {
    int64_t from = 0;
    for (const uint8_t *end; text->n > from && (end = memchr(text->at + from, '\n', (size_t)(text->n - from)));
         from = end + 1 - text->at)
        TRY(bpe_trainer_feed(b, text->at + from, end + 1 - (text->at + from)));
    if (ends && text->n > from) TRY(bpe_trainer_feed(b, text->at + from, text->n - from));
    if (ends) from = text->n;
    if (from && text->n > from) memmove(text->at, text->at + from, (size_t)(text->n - from));
    text->n -= from;
    return ERR_OK;
}

static err_t feed(bpe_trainer *b, FILE *in) {
    bytes text = {0};
    err_t rc = ERR_OK;
    while (rc == ERR_OK && !feof(in)) {
        rc = read_some(in, &text, text.n + PIECE);
        if (rc == ERR_OK) rc = feed_lines(b, &text, feof(in));
        if (rc == ERR_OK && text.n > BPE_LINE)
            rc = err_set(ERR_DATA,
                         "standard input: a line is longer than %d MiB: divide it, to make a tokenizer from it",
                         BPE_LINE >> 20);
    }
    free(text.at);
    return rc;
}

err_t train_stream(const char *kind, int64_t vocab, FILE *in, FILE *out) {
    bpe_trainer *b;
    char *json = NULL;
    TRY(bpe_trainer_open(&b, kind, vocab));
    err_t rc = feed(b, in);
    if (rc == ERR_OK) rc = bpe_trainer_finish(b, &json);
    if (rc == ERR_OK) rc = put(out, json, strlen(json));
    if (rc == ERR_OK) rc = put(out, "\n", 1);
    free(json);
    bpe_trainer_close(b);
    return rc;
}

static err_t verb_train(int argc, char **argv, FILE *out) {
    char *end;
    if (argc != 2)
        return err_set(
            ERR_USAGE,
            "lockstep tokenize --train: expected a size and a kind, e.g. lockstep tokenize --train 8000 gpt2");
    long long vocab = strtoll(argv[0], &end, 10);
    if (argv[0][0] < '0' || argv[0][0] > '9' || *end)
        return err_set(ERR_USAGE, "--train %s: expected a number of tokens", argv[0]);
    return train_stream(argv[1], vocab, stdin, out);
}

err_t verb_tokenize(int argc, char **argv, FILE *out) {
    bool decode = argc > 0 && strcmp(argv[0], "--decode") == 0, special = argc > 0 && strcmp(argv[0], "--special") == 0;
    tokenizer *t;
    if (argc > 0 && strcmp(argv[0], "--train") == 0) return verb_train(argc - 1, argv + 1, out);
    argc -= decode || special, argv += decode || special;
    if (argc > 0 && strncmp(argv[0], "--", 2) == 0)
        return err_set(ERR_USAGE, "%s: no such option here; lockstep tokenize knows --special, --decode and --train",
                       argv[0]);
    if (argc != 1)
        return err_set(ERR_USAGE,
                       "lockstep tokenize: expected one tokenizer: bytes, a tokenizer.json, or a folder with one");
    TRY(tokenizer_open(&t, argv[0]));
    err_t rc = decode ? detokenize_stream(t, stdin, out)
                      : tokenize_stream(t, special ? ENCODE_SPECIAL | ENCODE_TEMPLATE : ENCODE_TEXT, stdin, out);
    tokenizer_close(t);
    return rc;
}
