// test/bench/foreign_fit.c: see test/bench/foreign_fit.h.
#include "test/bench/foreign_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct fit {
    const tables *t;
    const bool *left_out;
    double *error;  // [rows] of the constants so far, and of those that are tried
    double *tried;
    double *predicted;  // [rows] of those that are wanted
    bool *wanted;
} fit;

// --- what a constant is of -------------------------------------------------------------------------------------------

// What is not of one machine's own products and links is taken for H100 as it is for A100 (test/bench/foreign_sheet.c).
bool fit_matters(int constant, const table_row *r) {
    const char *name = constant_name(constant);
    bool hopper = r->kind == TABLE_TORCHTITAN, call = r->kind == TABLE_ALL_REDUCE;
    if (strncmp(name, "v100", 4) == 0) return r->device == FOREIGN_V100;
    if (r->device == FOREIGN_V100) return false;
    if (strncmp(name, "vtrain", 6) == 0) return r->kind == TABLE_VTRAIN;
    if (strncmp(name, "h100", 4) == 0) return hopper;
    switch (constant) {
    case CONSTANT_a100_zero3:
    case CONSTANT_a100_beside: return !call && r->run[0].run.one_by_one;
    case CONSTANT_a100_rate: return !hopper;
    case CONSTANT_a100_other:
    case CONSTANT_a100_launch: return !call;
    case CONSTANT_a100_matmul:
    case CONSTANT_a100_lost:
    case CONSTANT_a100_card: return !call && !hopper;
    default: return true;  // all-reduces in a node
    }
}

// Megatron's three tables are one: they have few rows.
static int table_of(const table_row *r) {
    return r->kind > TABLE_VTRAIN && r->kind <= TABLE_2205 ? TABLE_2205 : (int)r->kind;
}

static double loss(const fit *f, const double *error) {
    double sum[TABLES] = {0}, all = 0;
    int n[TABLES] = {0};
    for (int i = 0; i < f->t->rows; i++) {
        if (f->left_out && f->left_out[i]) continue;
        sum[table_of(&f->t->row[i])] += fabs(error[i]), n[table_of(&f->t->row[i])]++;
    }
    for (int k = 0; k < TABLES; k++) all += n[k] ? sum[k] / n[k] : 0;
    return all;
}

err_t fit_predict(double *predicted, const tables *t, const foreign_sheet *sheet, const bool *wanted) {
    foreign_machines m = {.sheet = sheet};
    err_t rc = ERR_OK;
    for (int i = 0; i < t->rows && rc == ERR_OK; i++)
        if (!wanted || wanted[i]) rc = table_predict(&predicted[i], &t->row[i], &m);
    foreign_machines_free(&m);
    return rc;
}

// Of all rows, or of those for which the constant matters.
static err_t predict(const fit *f, const foreign_sheet *sheet, int constant, double *error) {
    for (int i = 0; i < f->t->rows; i++)
        f->wanted[i] = !(f->left_out && f->left_out[i]) && (constant < 0 || fit_matters(constant, &f->t->row[i]));
    TRY(fit_predict(f->predicted, f->t, sheet, f->wanted));
    for (int i = 0; i < f->t->rows; i++)
        if (f->wanted[i]) error[i] = f->predicted[i] / f->t->row[i].measured - 1;
    return ERR_OK;
}

// --- the fit ---------------------------------------------------------------------------------------------------------

// Tries the constant times `factor`. *best: the loss, if it is smaller now.
static err_t try_factor(fit *f, foreign_sheet *sheet, int constant, double factor, double *best, bool *better) {
    double was = sheet->at[constant];
    sheet->at[constant] = was * factor;
    memcpy(f->tried, f->error, (size_t)f->t->rows * sizeof *f->tried);
    TRY(predict(f, sheet, constant, f->tried));
    double now = loss(f, f->tried);
    *better = now < *best;
    if (*better) {
        *best = now;
        memcpy(f->error, f->tried, (size_t)f->t->rows * sizeof *f->error);
    } else sheet->at[constant] = was;
    return ERR_OK;
}

static err_t descend(fit *f, foreign_sheet *sheet) {
    const double FIRST = 0.2, LEAST = 0.003, GROWS = 1.4;
    enum { STARTS = 3, ROUNDS = 20 };  // steps are large again at each start
    double step[CONSTANT_COUNT], best;
    TRY(predict(f, sheet, -1, f->error));
    best = loss(f, f->error);
    for (int round = 0; round < STARTS * ROUNDS; round++)
        for (int i = 0; i < CONSTANT_COUNT; i++) {
            bool better = false;
            if (round % ROUNDS == 0) step[i] = FIRST;
            if (step[i] < LEAST) continue;
            TRY(try_factor(f, sheet, i, 1 + step[i], &best, &better));
            if (!better) TRY(try_factor(f, sheet, i, 1 / (1 + step[i]), &best, &better));
            step[i] = better ? step[i] * GROWS : step[i] / 2;
        }
    return ERR_OK;
}

err_t fit_sheet(foreign_sheet *sheet, const tables *t, const bool *left_out) {
    fit f = {.t = t, .left_out = left_out};
    size_t n = (size_t)t->rows;
    f.error = calloc(n, sizeof *f.error), f.tried = calloc(n, sizeof *f.tried);
    f.predicted = calloc(n, sizeof *f.predicted), f.wanted = calloc(n, sizeof *f.wanted);
    bool room = f.error && f.tried && f.predicted && f.wanted;
    err_t rc = room ? descend(&f, sheet) : err_set(ERR_INTERNAL, "no memory for %d rows", t->rows);
    free(f.error), free(f.tried), free(f.predicted), free(f.wanted);
    return rc;
}

// --- folds -----------------------------------------------------------------------------------------------------------

// Each table's rows are dealt to the folds in a shuffled order (xorshift64, Marsaglia 2003).
static void deal(const tables *t, int *fold) {
    uint64_t state = 0x9e3779b97f4a7c15;
    for (int k = 0; k < TABLES; k++) {
        int order[t->rows + 1], n = 0;
        for (int i = 0; i < t->rows; i++)
            if ((int)t->row[i].kind == k) order[n++] = i;
        for (int i = n - 1; i > 0; i--) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            int j = (int)(state % (uint64_t)(i + 1)), other = order[i];
            order[i] = order[j], order[j] = other;
        }
        for (int i = 0; i < n; i++) fold[order[i]] = i % FOLDS;
    }
}

static err_t one_fold(const tables *t, const int *fold, int which, bool *left_out, double *predicted) {
    foreign_sheet sheet;
    foreign_sheet_start(&sheet);
    for (int i = 0; i < t->rows; i++) left_out[i] = fold[i] == which;
    TRY(fit_sheet(&sheet, t, left_out));
    return fit_predict(predicted, t, &sheet, left_out);
}

err_t fit_folds(const tables *t, double *predicted) {
    int *fold = calloc((size_t)t->rows, sizeof *fold);
    bool *left_out = calloc((size_t)t->rows, sizeof *left_out);
    err_t rc = fold && left_out ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %d rows", t->rows);
    if (rc == ERR_OK) deal(t, fold);
    for (int k = 0; k < FOLDS && rc == ERR_OK; k++) rc = one_fold(t, fold, k, left_out, predicted);
    free(fold), free(left_out);
    return rc;
}
