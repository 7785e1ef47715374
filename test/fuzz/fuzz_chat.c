// test/fuzz/fuzz_chat.c: any bytes at all as a file of conversations, in each template. What is accepted is rows that a
// model can read, of which something counts; what is not is ERR_DATA, and names the file.
#include "base/io.h"
#include "data/text/chat_spool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROW = 48 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

static void expect(bool truth) {
    if (!truth) abort();
}

static char dir[64], path[96], tokens[96];

static void leave(void) { io_remove_tree(dir); }

static void put(const uint8_t *data, size_t size) {
    const char *base = getenv("TMPDIR");
    if (!dir[0]) {
        snprintf(dir, sizeof dir, "%.40s/fuzz-c-XXXXXX", base ? base : "/tmp");
        expect(mkdtemp(dir) != NULL && atexit(leave) == 0);
        snprintf(path, sizeof path, "%s/c.jsonl", dir);
        snprintf(tokens, sizeof tokens, "%s/c.tmp", dir);
    }
    FILE *f = fopen(path, "wb");
    expect(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

// Each row has an answer, and no number that is no byte. Where rows hold several samples, each of these begins once,
// and so does what fills a row up.
static void check(spool *s, const chat_spooled *done, bool documents) {
    int64_t answers = 0, begins = 0, rows = s->tokens / ROW;
    const int token = documents ? 0x3FFF : 0x7FFF;
    expect(s->token_bytes == 2 && s->tokens == ROW * rows && done->cut <= s->documents && done->filled <= s->tokens);
    expect(documents ? rows <= s->documents : rows == s->documents);
    expect(spool_rewind(s) == ERR_OK);
    for (int64_t k = 0; k < rows; k++) {
        uint16_t row[ROW];
        int64_t before = answers;
        expect(spool_read(s, row, ROW) == ERR_OK);
        for (int i = 0; i < ROW; i++) {
            expect((row[i] & token) < 256);
            answers += row[i] >> 15, begins += documents && row[i] >> 14 & 1;
        }
        expect(answers > before && !(row[0] >> 15) && (!documents || row[0] >> 14 & 1));
    }
    expect(answers == done->answers);
    expect(!documents || (begins >= s->documents && begins <= s->documents + rows));
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    bool accepted = false;
    put(data, size);
    for (int k = 0; k < 2 * (CHAT_PLAIN - CHAT_CHATML + 1); k++) {
        int kind = CHAT_CHATML + k / 2;
        chat_spool_options o = {.vocab = 256, .row_tokens = ROW, .documents = k % 2};
        chat_spooled done;
        spool s;
        expect(chat_open(&o.chat, (chat_template)kind, "bytes", NULL) == ERR_OK);
        err_t rc = chat_spool_fill(&s, tokens, (const char *[]){path}, 1, &o, &done);
        expect(rc == ERR_OK || (rc == ERR_DATA && strstr(err_last()->text, path)));
        if (rc == ERR_OK) check(&s, &done, k % 2);
        accepted |= rc == ERR_OK && s.documents > 0;
        spool_close(&s);
        chat_close(o.chat);
    }
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    static const char *const files[] = {
        "{\"prompt\": \"a\", \"response\": \"b\"}\n\n{\"prompt\": \"\", \"response\": \"\\u00a0c\", \"id\": [1]}\r\n",
        "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}",
        "{\"messages\": [{\"role\": \"assistant\", \"content\": \"<|im_end|>\\u0000\\n\"}]}\n",
        "{\"prompt\": \"x\", \"response\": \"an answer that is longer than the row that it is written to, by far\"}"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) seed(ctx, (const uint8_t *)files[i], strlen(files[i]));
    return 0;
}
