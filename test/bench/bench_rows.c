// test/bench/bench_rows.c: how fast rows on demand (comm/server/) are found and updated, beside what memory gives.
//
//     bench_rows [thousands of rows a table] [width...]
//     bench_rows spill [thousands of rows a table] [width...]
//
// 26 tables of so many rows (1,000) of each width (16, 64, 128), one thread. Ids are Zipf's, of exponent 1.05, spread
// over 64 bits; a batch is 2,048 samples, whose ids are made before the clock runs. In turns, on the same batches:
//
//   unique    keys of a batch, sorted, each once: ids a second
//   look      the rows of these keys: rows a second
//   update    AdaGrad of these rows
//   lines     as many bytes of the rows' own size are copied from an array as large as all rows, at random places that
//             are known before: the bound of `look`. A row of less than a line takes a line
//
// Printed are medians of the rounds, in millions a second, and look's share of lines: of rows, and of lines that are
// read, which of a look are those of the row and one of the index.
//
// With `spill` a table that has memory for a third of its rows, and the others in a file in $TMPDIR, is measured beside
// one that has all in memory, in turns, on batches that are new in each round: a batch is looked up, updated, and the
// step ends. Then the same once more, on rows that are all in memory now: hot ids. Rounds before it bring the rows to
// where they are in a long run. Printed are both rates, their share, and how many of the rows of a batch were cold; and
// both rates of hot ids.
#include "base/clock.h"
#include "base/fmath.h"
#include "base/philox.h"
#include "comm/server/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { TABLES = 26, SAMPLES = 2048, IDS = SAMPLES * TABLES, BATCHES = 8, ROUNDS = 7, RATES = 4 };

typedef struct bench {
    int64_t rows, width;  // of a table
    double *below;        // Zipf: the chance of an id of at most this
    uint64_t *id;         // (BATCHES, IDS)
    row_key *key, *more;  // (IDS)
    int32_t *at, *scratch;
    float *row, *gradient, *lines;  // (IDS,D), (IDS,D), (TABLES*rows,D)
    int64_t *place;                 // (IDS) of lines
    row_table *table;
} bench;

// Spread by an odd factor: no two are the same.
static uint64_t spread(int64_t k) { return (uint64_t)k * 0xd1342543de82ef95u; }

static int64_t draw(const bench *b, uint32_t bits) {
    double u = (bits + 0.5) * 0x1p-32;
    int64_t low = 0, high = b->rows - 1;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (b->below[middle] < u) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void make_zipf(bench *b) {
    double sum = 0;
    for (int64_t k = 0; k < b->rows; k++) b->below[k] = sum += fm_exp(-1.05 * fm_log((double)k + 1));
    for (int64_t k = 0; k < b->rows; k++) b->below[k] /= sum;
}

static void make_ids(bench *b, uint32_t round) {
    for (int64_t i = 0; i < BATCHES * IDS; i++) {
        uint32_t bits[4];
        philox4x32(bits, 5, (uint32_t)i, (uint32_t)(i >> 32), round, 0);
        b->id[i] = spread(draw(b, bits[0]));
    }
}

static row_options usual_options(const bench *b) {
    return (row_options){.width = b->width, .seed = 1, .bound = 0.1f, .buckets = ROW_BUCKETS};
}

static err_t fill(const bench *b, row_table **t, const row_options *o) {
    TRY(row_table_open(t, o));
    for (int64_t k = 0; k < b->rows; k++)
        for (uint64_t i = 0; i < TABLES; i++) TRY(row_table_put(*t, row_key_of(i, spread(k)), b->row, 0));
    row_walk w;
    row_table_begin(*t, 0, &w);  // ends its growth
    return w.rc;
}

static bool open_bench(bench *b) {
    size_t all = (size_t)(TABLES * b->rows * b->width) * sizeof *b->lines;
    b->below = malloc((size_t)b->rows * sizeof *b->below);
    b->id = malloc((size_t)BATCHES * IDS * sizeof *b->id);
    b->key = malloc(IDS * sizeof *b->key), b->more = malloc(IDS * sizeof *b->more);
    b->at = malloc(IDS * sizeof *b->at), b->place = malloc(IDS * sizeof *b->place);
    b->scratch = malloc((size_t)row_unique_room(IDS) * sizeof *b->scratch);
    b->row = calloc((size_t)IDS * (size_t)b->width, sizeof *b->row);
    b->gradient = calloc((size_t)IDS * (size_t)b->width, sizeof *b->gradient);
    b->lines = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!b->below || !b->id || !b->key || !b->more || !b->at || !b->place || !b->scratch || !b->row || !b->gradient ||
        b->lines == MAP_FAILED)
        return false;
    madvise(b->lines, all, MADV_HUGEPAGE);  // as the table's
    memset(b->lines, 1, all);
    return true;
}

static void close_bench(bench *b) {
    row_table_close(b->table);
    munmap(b->lines, (size_t)(TABLES * b->rows * b->width) * sizeof *b->lines);
    free(b->below), free(b->id), free(b->key), free(b->more), free(b->at), free(b->place), free(b->scratch),
        free(b->row), free(b->gradient);
}

static void copy_lines(bench *b, int64_t n) {
    const int64_t D = b->width;
    enum { NEXT = 32 };
    for (int64_t i = 0; i < n; i++) {
        const char *next = (const char *)(b->lines + b->place[i + NEXT < n ? i + NEXT : i] * D);
        for (int64_t line = 0; line < 4 * D; line += 64) __builtin_prefetch(next + line);
        memcpy(b->row + i * D, b->lines + b->place[i] * D, (size_t)D * sizeof *b->row);
    }
}

// rate [RATES] (=) of one round over all batches, in millions a second.
static err_t round_of(bench *b, uint32_t round, double rate[RATES]) {
    double s[RATES] = {0}, t;
    int64_t rows = 0;
    for (int k = 0; k < BATCHES; k++) {
        t = clock_now();
        int64_t n = row_unique(b->id + (int64_t)k * IDS, IDS, TABLES, b->key, b->at, b->scratch, b->more);
        s[0] += clock_now() - t, rows += n;
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits[4];
            philox4x32(bits, 6, (uint32_t)i, (uint32_t)k, round, 0);
            b->place[i] = (int64_t)(bits[0] % (uint64_t)(TABLES * b->rows));
        }
        t = clock_now();
        copy_lines(b, n);
        s[3] += clock_now() - t;
        t = clock_now();
        TRY(row_table_look(b->table, b->key, n, b->row));
        s[1] += clock_now() - t;
        t = clock_now();
        TRY(row_table_update(b->table, &(row_list){n, b->key, b->gradient}, &(row_rules){1, 0.01f, 1e-10f}));
        s[2] += clock_now() - t;
    }
    for (int k = 0; k < RATES; k++) rate[k] = 1e-6 * (k ? (double)rows : (double)BATCHES * IDS) / s[k];
    return ERR_OK;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static err_t run(int64_t rows, int64_t width) {
    bench b = {.rows = rows, .width = width};
    double rate[ROUNDS + 1][RATES], of[RATES][ROUNDS];
    if (!open_bench(&b)) return err_set(ERR_INTERNAL, "no memory for tables of %" PRId64 " rows", rows);
    make_zipf(&b);
    make_ids(&b, 0);
    row_options o = usual_options(&b);
    TRY(fill(&b, &b.table, &o));
    for (int64_t i = 0; i < IDS * width; i++) b.gradient[i] = 1e-3f * (float)(i % 7 - 3);
    for (uint32_t k = 0; k <= ROUNDS; k++) TRY(round_of(&b, k, rate[k]));  // the first one is not counted
    for (int i = 0; i < RATES; i++) {
        for (int k = 0; k < ROUNDS; k++) of[i][k] = rate[k + 1][i];
        qsort(of[i], ROUNDS, sizeof of[i][0], by_size);
    }
    const double *m[RATES] = {&of[0][ROUNDS / 2], &of[1][ROUNDS / 2], &of[2][ROUNDS / 2], &of[3][ROUNDS / 2]};
    double row = (double)((4 * width + 63) / 64);  // lines of it
    printf("rows of %3" PRId64 "  unique %6.1f M ids/s  look %6.2f M rows/s  update %6.2f  lines %6.2f"
           "  look/lines %3.0f %% of rows, %3.0f %% of lines\n",
           width, *m[0], *m[1], *m[2], *m[3], 100 * *m[1] / *m[3], 100 * *m[1] / *m[3] * (row + 1) / row);
    close_bench(&b);
    return ERR_OK;
}

// --- with a file -----------------------------------------------------------------------------------------------------

enum { BEFORE = 12 };  // rounds

static err_t step_of(row_table *t, const bench *b, int64_t n, double *s) {
    double from = clock_now();
    TRY(row_table_look(t, b->key, n, b->row));
    TRY(row_table_update(t, &(row_list){n, b->key, b->gradient}, &(row_rules){1, 0.01f, 1e-10f}));
    TRY(row_table_cool(t));
    *s += clock_now() - from;
    return ERR_OK;
}

// Rates of all in memory, of a third, and both again for hot ids.
enum { WHOLE, THIRD, WHOLE_HOT, THIRD_HOT, SPILLS };

// rate [SPILLS] (=); *cold (=) the share of rows that were read.
static err_t spill_round(bench *b, row_table *third, uint32_t round, double rate[SPILLS], double *cold) {
    fault_list *reads = row_table_about(third)->faults;
    double s[SPILLS] = {0};
    int64_t rows = 0;
    long before = atomic_load(&reads->seen[FAULT_SPILL_READ]);
    make_ids(b, round);
    for (int k = 0; k < BATCHES; k++) {
        int64_t n = row_unique(b->id + (int64_t)k * IDS, IDS, TABLES, b->key, b->at, b->scratch, b->more);
        rows += n;
        for (int turn = 0; turn < SPILLS; turn++) {
            int which = turn / 2 * 2 + (turn + k) % 2;
            TRY(step_of(which % 2 ? third : b->table, b, n, &s[which]));
        }
    }
    for (int k = 0; k < SPILLS; k++) rate[k] = 1e-6 * (double)rows / s[k];
    *cold = (double)(atomic_load(&reads->seen[FAULT_SPILL_READ]) - before) / (double)rows;
    return ERR_OK;
}

static err_t run_spill(int64_t rows, int64_t width) {
    bench b = {.rows = rows, .width = width};
    row_table *third;
    fault_list faults;
    double rate[SPILLS], cold, of[SPILLS][ROUNDS], read = 0;
    const char *dir = getenv("TMPDIR");
    if (!open_bench(&b)) return err_set(ERR_INTERNAL, "no memory for tables of %" PRId64 " rows", rows);
    TRY(fault_parse(&faults, "spill_read@1000000000"));  // counts reads
    make_zipf(&b);
    row_options o = usual_options(&b);
    TRY(fill(&b, &b.table, &o));
    o.memory = TABLES * rows * 4 * (width + 1) / 3, o.dir = dir ? dir : "/tmp", o.faults = &faults;
    TRY(fill(&b, &third, &o));
    for (int64_t i = 0; i < IDS * width; i++) b.gradient[i] = 1e-3f * (float)(i % 7 - 3);
    for (uint32_t k = 0; k < BEFORE + ROUNDS; k++) {
        TRY(spill_round(&b, third, k, rate, &cold));
        if (k < BEFORE) continue;
        for (int i = 0; i < SPILLS; i++) of[i][k - BEFORE] = rate[i];
        read += cold / ROUNDS;
    }
    for (int i = 0; i < SPILLS; i++) qsort(of[i], ROUNDS, sizeof of[i][0], by_size), rate[i] = of[i][ROUNDS / 2];
    printf("rows of %3" PRId64
           "  in memory %6.2f M rows/s  a third of them %6.2f, share %3.0f %%  cold %4.1f %% of a batch's rows"
           "  hot ids: %6.2f, %6.2f, share %3.0f %%\n",
           width, rate[WHOLE], rate[THIRD], 100 * rate[THIRD] / rate[WHOLE], 100 * read, rate[WHOLE_HOT],
           rate[THIRD_HOT], 100 * rate[THIRD_HOT] / rate[WHOLE_HOT]);
    row_table_close(third);
    close_bench(&b);
    return ERR_OK;
}

int main(int argc, char **argv) {
    const char *const usual[] = {"16", "64", "128"};
    bool spills = argc > 1 && strcmp(argv[1], "spill") == 0;
    argc -= spills, argv += spills;
    int64_t rows = 1000 * (argc > 1 ? atoll(argv[1]) : 1000);
    int n = argc > 2 ? argc - 2 : 3;
    for (int k = 0; k < n; k++)
        if ((spills ? run_spill : run)(rows, atoll(argc > 2 ? argv[2 + k] : usual[k])) != ERR_OK) {
            fprintf(stderr, "bench_rows: %s\n", err_last()->text);
            return 1;
        }
    return 0;
}
