// test/fuzz/fuzz_questions.c: any bytes at all as a file of questions, in both protocols. What is accepted is rows that
// a model can read, of which something is asked; what is not is ERR_DATA, and names the file.
#include "base/io.h"
#include "data/text/questions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONTEXT = 40, VOCAB = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

static void expect(bool truth) {
    if (!truth) abort();
}

static char dir[64], path[96];  // where the file is
static tokenizer *words;

static void leave(void) {
    tokenizer_close(words);
    io_remove_tree(dir);
}

static void put(const uint8_t *data, size_t size) {
    const char *base = getenv("TMPDIR");
    if (!dir[0]) {
        snprintf(dir, sizeof dir, "%.40s/fuzz-q-XXXXXX", base ? base : "/tmp");
        expect(mkdtemp(dir) != NULL && tokenizer_open(&words, "bytes") == ERR_OK && atexit(leave) == 0);
        snprintf(path, sizeof path, "%s/q.jsonl", dir);
    }
    FILE *f = fopen(path, "wb");
    expect(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static void check_row(source *s, int64_t k) {
    int32_t tokens[CONTEXT], targets[CONTEXT];
    int64_t T = source_about(s).units_per_sample, asked = 0;
    expect(source_look(s, k, (void *[]){tokens, targets}) == ERR_OK);
    for (int64_t t = 0; t < T; t++) {
        expect(tokens[t] >= 0 && tokens[t] < VOCAB && targets[t] >= -1 && targets[t] < VOCAB);
        asked += targets[t] >= 0;
    }
    expect(asked > 0);
}

static void check(questions *q) {
    questions_info about = questions_about(q);
    source *s = questions_source(q);
    double *sums = malloc((size_t)about.rows * sizeof *sums);
    expect(sums && about.questions > 0 && about.rows >= about.questions && about.cut <= about.rows &&
           source_about(s).samples == about.rows);
    expect(source_about(s).units_per_sample > 0 && source_about(s).units_per_sample <= CONTEXT);
    for (int64_t k = 0; k < about.rows; k++) check_row(s, k), sums[k] = (double)(k % 7);
    answers a = questions_mark(q, sums);
    expect(a.questions == about.questions && a.right >= 0 && a.right <= a.questions && a.right_norm >= 0 &&
           a.right_norm <= a.questions);
    free(sums);
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    bool accepted = false;
    put(data, size);
    for (int p = 0; p < 2; p++) {
        questions *q;
        rows_from o = {.path = path, .words = words, .context = CONTEXT, .vocab = VOCAB};
        err_t rc = questions_open(&q, &o, (question_protocol)p);
        expect(rc == ERR_OK ? q != NULL : rc == ERR_DATA && !q && strstr(err_last()->text, path));
        if (rc == ERR_OK) check(q);
        accepted |= rc == ERR_OK;
        questions_close(q);
    }
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    static const char *const files[] = {
        "{\"query\": \"ab \", \"choices\": [\"c\", \"de\"], \"gold\": 1}\n\n{\"query\": \"x\", \"choices\": [\"\"], \"gold\": \"0\"}",
        "{\"ctx\": \"ab\", \"endings\": [\"c\", \"\\u00e9\"], \"label\": \"1\"}\r\n",
        "{\"activity_label\": \"R\", \"ctx_a\": \" a [b] [title] \\u00a0\", \"ctx_b\": \"\\u0391\\u03a3 [x\\ny] z\", \"ctx\": \"c\", \"endings\": [\"d [e\", \"  f  \"], \"label\": 0}",
        "{\"query\": \"a text that is longer than what is read at once, by far\", \"choices\": [\"c\"], \"gold\": 0}"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) seed(ctx, (const uint8_t *)files[i], strlen(files[i]));
    return 0;
}
