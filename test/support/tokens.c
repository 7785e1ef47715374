// test/support/tokens.c: encodes texts for scripts, and times it.
//
//   tokens PATH HOW <texts >ids        each text is 4 bytes of length and its bytes; each answer 4 bytes of count and 4
//   of each id (or -1: the
//                                      ids do not decode to the text, where they should). HOW: ENCODE_... as a number
//   tokens PATH time SECONDS <text     MB/s of one thread, the best of passes over the whole text for so long
#include "base/clock.h"
#include "data/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(err_t rc) {
    if (rc == ERR_OK) return;
    fprintf(stderr, "tokens: %s\n", err_last()->text);
    exit(rc);
}

static bool decodes(const tokenizer *t, const int32_t *ids, int64_t count, const uint8_t *text, int64_t n) {
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *piece;
        int64_t bytes;
        check(tokenizer_piece(t, ids[i], &piece, &bytes));
        if (at + bytes > n || memcmp(text + at, piece, (size_t)bytes) != 0) return false;
        at += bytes;
    }
    return at == n;
}

static void answer(const tokenizer *t, encoder *e, int how) {
    uint8_t *text = NULL;
    uint32_t n;
    bool exact = tokenizer_about(t).exact && how == ENCODE_TEXT;
    while (fread(&n, 4, 1, stdin) == 1) {
        const int32_t *ids;
        int64_t count;
        text = realloc(text, (size_t)n + 1);
        if (n && fread(text, 1, n, stdin) != n) exit(1);
        check(encoder_encode(e, text, n, how, &ids, &count));
        int32_t said = exact && !decodes(t, ids, count, text, n) ? -1 : (int32_t)count;
        fwrite(&said, 4, 1, stdout);
        if (said > 0) fwrite(ids, 4, (size_t)count, stdout);
    }
    free(text);
}

static void measure(encoder *e, double seconds) {
    uint8_t *text = NULL;
    size_t n = 0;
    double best = 0, start = clock_now();
    const int32_t *ids;
    int64_t count = 0;
    do {
        text = realloc(text, n + (1 << 20));
        n += fread(text + n, 1, 1 << 20, stdin);
    } while (!feof(stdin));
    while (clock_now() - start < seconds || best == 0) {
        double begin = clock_now();
        check(encoder_encode(e, text, (int64_t)n, ENCODE_TEXT, &ids, &count));
        double rate = (double)n / 1e6 / (clock_now() - begin);
        if (rate > best) best = rate;
    }
    printf("%.2f MB/s, %lld tokens\n", best, (long long)count);
    free(text);
}

int main(int argc, char **argv) {
    tokenizer *t;
    encoder *e;
    if (argc < 3) return 64;
    check(tokenizer_open(&t, argv[1]));
    check(encoder_open(&e, t));
    if (strcmp(argv[2], "time") == 0) measure(e, argc > 3 ? atof(argv[3]) : 2);
    else answer(t, e, atoi(argv[2]));
    encoder_close(e);
    tokenizer_close(t);
    return 0;
}
